const views = JSON.parse(byId("data").textContent);
const OPEN_MAPS = 3;  // sentences whose map is drawn at once; the others are drawn when opened

// ---- The layer and the head shown; -1 is the mean of all.

const chosen = { layer: -1, head: -1 };

function addChoice(name, count) {
  if (count < 2) return;
  const select = addElement("select", addElement("label", byId("choices"), "", `${name} `));
  for (let i = 0; i <= count; i++) addElement("option", select, "", i || "mean");
  select.name = name;
  select.addEventListener("change", () => {
    chosen[name] = select.selectedIndex - 1;
    sentences.forEach(sentence => sentence.measure());
    show(shown);
  });
}

// ---- The word pointed at: { sentence, t: target word, s: source word, both in the map }, or null.

let shown = null;
let pressed = null;  // shown when no word is pointed at

function show(at) {
  if (shown && shown.sentence !== at?.sentence) shown.sentence.paint();
  shown = at;
  at?.sentence.paint(at.t, at.s);
  byId("readout").textContent = at ? describe(at) : "Point at a word.";
}

function describe({ sentence: { view, map }, t, s }) {
  const isolated = label => `\u2068${label}\u2069`;  // right-to-left words do not turn the text around them
  if (t === undefined) return isolated(view.source[s]) + (view.unknown.includes(s) ? ", not in the vocabulary" : "");
  const looked = s ?? map[t].indexOf(Math.max(...map[t]));
  return `${isolated(view.target[t])}, ${percent(view.probabilities[t])} probable, looks at `
    + `${isolated(view.source[looked])} ${percent(map[t][looked])}`
    + (t in view.copied ? `; copied from ${isolated(view.source[view.copied[t]])}` : "");
}

// ---- One sentence: its texts, its words, its map.

class Sentence {
  constructor(view, number) {
    this.view = view;
    this.measure();
    const section = addElement("section", byId("views"));
    addElement("p", section, "text-source", view.text_source).dir = "auto";
    addElement("p", section, "text-target", view.text_target).dir = "auto";
    this.words = addWords(section, view, (t, s) => show({ sentence: this, t, s }), () => show(pressed));
    this.words[1].forEach((word, t) => {
      word.classList.add("doubt");
      word.style.setProperty("--doubted", 1 - view.probabilities[t]);
    });
    section.addEventListener("click", () => { pressed = pressed === shown ? null : shown; });

    const details = addElement("details", section);
    addElement("summary", details, "", "The whole map");
    const holder = addElement("div", details, "scroll");
    details.addEventListener("toggle", () => { if (details.open && !this.cells) this.draw(holder); });
    details.open = number < OPEN_MAPS;
  }

  // Compute the map of the chosen layer and head, by target and source word.
  measure() {
    const { weights, target, source } = this.view;
    const layers = chosen.layer < 0 ? weights : [weights[chosen.layer]];
    const maps = layers.flatMap(heads => chosen.head < 0 ? heads : [heads[chosen.head]]);
    this.map = target.map((_, t) => source.map((_, s) =>
      maps.reduce((sum, map) => sum + map[t][s], 0) / maps.length / 10000));
    this.cells?.forEach((row, t) => row.forEach((cell, s) => cell.style.setProperty("--weight", this.map[t][s])));
  }

  draw(holder) {
    const { source, target } = this.view;
    const table = addElement("table", holder);
    table.style.setProperty("--cell", source.length > 30 ? "1.1rem" : source.length > 18 ? "1.4rem" : "1.8rem");
    const head = addElement("tr", addElement("thead", table));
    addElement("td", head);
    this.columns = source.map(label => this.addHeading(head, label));
    const body = addElement("tbody", table);
    this.rows = [];
    this.cells = target.map((label, t) => {
      const row = addElement("tr", body);
      this.rows.push(this.addHeading(row, label));
      return source.map((_, s) => {
        const cell = addElement("td", row);
        cell.addEventListener("mouseenter", () => show({ sentence: this, t, s }));
        return cell;
      });
    });
    body.addEventListener("mouseleave", () => show(pressed));
    this.measure();
  }

  addHeading(row, label) {
    const cell = addElement("th", row);
    addElement("span", cell, "", label).title = label;  // for labels that are cut
    return cell;
  }

  // Colour the words for target word t, source word s, or none, and mark t and s beside the map.
  paint(t, s) {
    paintWords(this.words, this.map, t, s);
    this.rows?.forEach((heading, i) => heading.classList.toggle("on", i === t));
    this.columns?.forEach((heading, i) => heading.classList.toggle("on", i === s));
  }
}

const sentences = views.map((view, number) => new Sentence(view, number));
if (views.length) {
  addChoice("layer", views[0].weights.length);
  addChoice("head", views[0].weights[0].length);
  show(null);
} else {
  addElement("p", byId("views"), "", "There was nothing to translate.");
}
