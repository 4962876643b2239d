"use strict";
const views = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const OPEN_MAPS = 3;  // sentences whose map is drawn at once; the others are drawn when opened

// Text is set as textContent and never parsed as markup.
function element(tag, parent, names = "", text = "") {
  const made = parent.appendChild(document.createElement(tag));
  made.className = names;
  made.textContent = text;
  return made;
}

function percent(share) {
  return (100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0) + "%";
}

// ---- The layer and the head shown; -1 is the mean of all.

const chosen = { layer: -1, head: -1 };

function choice(name, count) {
  if (count < 2) return;
  const fieldset = element("fieldset", byId("choices"));
  element("legend", fieldset, "", name[0].toUpperCase() + name.slice(1));
  const segments = element("div", fieldset, "segments");
  for (let i = -1; i < count; i++) {
    const label = element("label", segments);
    const input = element("input", label);
    input.type = "radio";
    input.name = name;
    input.checked = i < 0;
    input.addEventListener("change", () => {
      chosen[name] = i;
      sentences.forEach(sentence => sentence.measure());
      show(shown);
    });
    element("span", label, "", i < 0 ? "mean" : i + 1);
  }
}

// ---- The word pointed at: { sentence, t: target word, s: source word, only in the map }, or null.

let shown = null;
let pressed = null;  // shown when no word is pointed at

function show(at) {
  if (shown && shown.sentence !== at?.sentence) shown.sentence.paint(null, null);
  shown = at;
  at?.sentence.paint(at.t, at.s);
  say(at);
}

function say(at) {
  const readout = byId("readout");
  const plain = text => element("span", readout, "quiet", text);
  const word = text => element("b", element("bdi", readout), "", text);  // bdi: isolates right-to-left words
  readout.replaceChildren();
  if (!at) {
    plain("Point at a word.");
    return;
  }
  const { source, target, probabilities, copied, unknown } = at.sentence.view;
  const weights = at.sentence.map[at.t];
  const most = source.map((_, s) => s).sort((a, b) => weights[b] - weights[a]);
  const worthSaying = most.filter((s, i) => i === 0 || i < 3 && weights[s] >= 0.005);
  word(target[at.t]);
  plain(", " + percent(probabilities[at.t]) + " probable, looks at ");
  (at.s === undefined ? worthSaying : [at.s]).forEach((s, i) => {
    plain(i ? ", " : "");
    word(source[s]);
    plain((unknown.includes(s) ? " (unknown) " : " ") + percent(weights[s]));
  });
  if (at.t in copied) {
    plain("; copied from ");
    word(source[copied[at.t]]);
  }
}

// ---- One sentence: its texts, its words, its map.

class Sentence {
  constructor(view, number) {
    this.view = view;
    this.measure();
    const section = element("section", byId("views"));
    element("p", section, "text-source", view.text_source).dir = "auto";
    element("p", section, "text-target", view.text_target).dir = "auto";

    const source = element("div", section, "words source");
    source.dir = "auto";
    this.sources = view.source.map((label, s) => element("span", source, this.sourceMark(s) + " word", label));
    this.shares = this.sources.map(word => element("small", word));

    const target = element("div", section, "words target");
    target.dir = "auto";
    this.targets = view.target.map((label, t) => {
      const word = element("button", target, this.targetMark(t) + " word", label);
      const at = { sentence: this, t };
      word.style.setProperty("--doubted", 1 - view.probabilities[t]);
      for (const event of ["mouseenter", "focus"]) word.addEventListener(event, () => show(at));
      for (const event of ["mouseleave", "blur"]) word.addEventListener(event, () => show(pressed));
      word.addEventListener("click", () => { pressed = pressed === at ? null : at; show(at); });
      word.addEventListener("keydown", event => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step) this.targets[t + step]?.focus();
      });
      return word;
    });

    const details = element("details", section);
    element("summary", details, "", "The whole map");
    const holder = element("div", details, "scroll");
    details.addEventListener("toggle", () => { if (details.open && !this.cells) this.draw(holder); });
    details.open = number < OPEN_MAPS;
  }

  sourceMark(s) { return this.view.unknown.includes(s) ? "unknown" : ""; }
  targetMark(t) { return t in this.view.copied ? "copied" : ""; }

  // Compute the map of the chosen layer and head, by target and source word.
  measure() {
    const { weights, target, source } = this.view;
    const layers = chosen.layer < 0 ? weights : [weights[chosen.layer]];
    const maps = layers.flatMap(heads => chosen.head < 0 ? heads : [heads[chosen.head]]);
    this.map = target.map((_, t) => source.map((_, s) =>
      maps.reduce((sum, map) => sum + map[t][s], 0) / maps.length / 10000));
    this.cells?.forEach((row, t) => row.forEach((cell, s) => cell.style.setProperty("--w", this.map[t][s])));
  }

  draw(holder) {
    const { source, target } = this.view;
    const table = element("table", holder);
    table.style.setProperty("--cell", source.length > 30 ? "1.1rem" : source.length > 18 ? "1.4rem" : "1.8rem");
    const head = element("tr", element("thead", table));
    element("td", head);
    this.columns = source.map((label, s) => this.heading(head, label, this.sourceMark(s)));
    const body = element("tbody", table);
    this.rows = [];
    this.cells = target.map((label, t) => {
      const row = element("tr", body);
      this.rows.push(this.heading(row, label, this.targetMark(t)));
      return source.map((_, s) => {
        const cell = element("td", row);
        cell.addEventListener("mouseenter", () => show({ sentence: this, t, s }));
        return cell;
      });
    });
    body.addEventListener("mouseleave", () => show(pressed));
    this.measure();
  }

  heading(row, label, mark) {
    const cell = element("th", row);
    element("span", cell, mark, label).title = label;  // for labels that are cut
    return cell;
  }

  // Colour the source words by the weights of target word t, or not at all if null; mark t and s beside the map.
  paint(t, s) {
    this.sources.forEach((word, i) => {
      const weight = t === null ? 0 : this.map[t][i];
      word.style.setProperty("--w", weight);
      this.shares[i].textContent = weight < 0.005 ? "" : percent(weight);
    });
    const mark = (all, which) => all?.forEach((each, i) => each.classList.toggle("on", i === which));
    mark(this.targets, t);
    mark(this.rows, t);
    mark(this.columns, s);
  }
}

const sentences = views.map((view, number) => new Sentence(view, number));
if (views.length) {
  choice("layer", views[0].weights.length);
  choice("head", views[0].weights[0].length);
  show(null);
} else {
  element("p", byId("views"), "", "There was nothing to translate.");
}
for (const mark of ["unknown", "copied"]) {
  document.querySelector(".if-" + mark).hidden = !document.querySelector(".word." + mark);
}
