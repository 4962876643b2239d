// A sentence and its translation as two rows of words, on the server's page and on the page of --attention. Pointing at
// a word colours the words of the other row. Tab moves to a row, the arrow keys move within it.
// Texts are set as text, never as markup.

export const byId = id => document.getElementById(id);

export function addElement(tag, parent, className = "", text = "") {
  const element = parent.appendChild(document.createElement(tag));
  element.className = className;
  element.textContent = text;
  return element;
}

export function percent(share) { return (100 * share).toFixed(0) + "%"; }

// Add both rows. point(t, s) is called when a target word t or a source word s is pointed at or gets the focus, leave()
// when it loses it. Returns the words of each row.
export function addWords(parent, { source, target, unknown, copied }, point, leave, languages = ["", ""]) {
  return [
    addRow(parent, languages[0], "Words of the source", source,
      s => unknown.includes(s) ? ["unknown", "unknown"] : [], s => point(undefined, s), leave),
    addRow(parent, languages[1], "Words of the translation", target,
      t => t in copied ? ["copied", `copied from ${source[copied[t]]}`] : [], t => point(t), leave),
  ];
}

// describe(i) gives a word's mark (a class) and what the mark means.
function addRow(parent, language, name, labels, describe, point, leave) {
  const row = addElement("div", parent, "words");
  row.dir = "auto";
  row.lang = language;
  row.role = "group";
  row.ariaLabel = name;
  const words = labels.map((label, i) => {
    const [mark = "", meaning = ""] = describe(i);
    const word = addElement("button", row, `word ${mark}`, label);
    word.type = "button";
    word.ariaLabel = meaning ? `${label}; ${meaning}` : label;
    word.title = meaning;
    word.tabIndex = i ? -1 : 0;
    addElement("small", word).ariaHidden = true;
    for (const event of ["mouseenter", "focus"]) word.addEventListener(event, () => point(i));
    for (const event of ["mouseleave", "blur"]) word.addEventListener(event, leave);
    return word;
  });
  row.addEventListener("keydown", event => {
    const right = getComputedStyle(row).direction === "rtl" ? -1 : 1;
    const step = { ArrowRight: right, ArrowLeft: -right }[event.key];
    const next = step && words[words.indexOf(event.target) + step];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return words;
}

// Colour the source words by their weights (T, S) for target word t, and the target words by those for source word s;
// undefined: not at all.
export function paintWords([sources, targets], weights, t, s) {
  paint(sources, weights[t] ?? [], s);
  paint(targets, weights.map(row => row[s]), t);
}

function paint(words, weights, pointed) {
  words.forEach((word, i) => {
    const weight = weights[i] ?? 0;
    word.style.setProperty("--weight", weight);
    word.lastChild.textContent = weight < 0.005 ? "" : percent(weight);
    word.classList.toggle("on", i === pointed);
  });
}
