// The sentences of a translation: doubts where they stand, and below them other translations and word by word.

import { addElement, addWords, byId, paintWords, percent } from "./words.js";

const OPEN = 3;  // sentences whose words are shown at once; the others are drawn when they are opened
const GAP = 8;  // pixels between a doubt, its reasons and the edge of the window

// ---- A part of the translation

// Put the translation of a part into its element, each sentence into a span of its own.
export function fillPart(part, result) {
  const { translation, sentences, warnings } = part.result = result;
  part.element.replaceChildren();
  part.element.className = "";
  const element = addElement("span", part.element);
  part.element.append(part.after);
  let done = 0;
  part.spans = sentences.map(({ candidates: [best] }) => {
    const start = translation.indexOf(best.translation, done);
    if (start < 0) return null;
    element.append(translation.slice(done, start));
    done = start + best.translation.length;
    return addElement("span", element, "", best.translation);
  });
  element.append(translation.slice(done));
  part.spans.forEach((span, i) => { if (span) setDoubts(span, sentences[i].warnings); });
  const placed = new Set(sentences.flatMap((sentence, i) => part.spans[i] ? sentence.warnings : []));
  setDoubts(element, warnings.filter(warning => !placed.has(warning)));
}

// Change what follows a part: a line has become the last one, or is so no longer.
export function setAfter(part, after) {
  if (part.result) part.element.lastChild.data = after;
  part.after = after;
}

// ---- Doubts: underlined, with the reasons on hover and focus

const reasons = new WeakMap();
const tooltip = byId("reason");
let hiding = 0;

function setDoubts(element, messages) {
  element.classList.toggle("doubt", messages.length > 0);
  element.role = messages.length ? "mark" : null;
  if (messages.length) element.tabIndex = 0;
  else element.removeAttribute("tabindex");
  reasons.set(element, messages);
}

function showReasons({ target }) {
  const doubt = target.closest(".doubt");
  if (!doubt) return;
  hideReasons();
  for (const message of reasons.get(doubt)) addElement("p", tooltip, "", message);
  doubt.setAttribute("aria-describedby", tooltip.id);
  tooltip.hidden = false;
  const boxes = [...doubt.getClientRects()];
  const box = boxes.findLast(({ bottom }) => bottom + tooltip.offsetHeight + GAP < innerHeight) ?? boxes[0];
  const left = Math.min(box.left, document.documentElement.clientWidth - tooltip.offsetWidth - GAP);
  tooltip.style.left = `${Math.max(GAP, left) + scrollX}px`;
  tooltip.style.top = `${box.bottom + GAP + scrollY}px`;
}

export function hideReasons() {
  clearTimeout(hiding);
  tooltip.hidden = true;
  tooltip.replaceChildren();
  document.querySelector(`[aria-describedby=${tooltip.id}]`)?.removeAttribute("aria-describedby");
}

// Listen for the pointer and the focus on doubts. The pointer may move onto the reasons; Escape hides them.
export function explainDoubts(target) {
  for (const event of ["mouseover", "focusin"]) target.addEventListener(event, showReasons);
  target.addEventListener("focusout", hideReasons);
  for (const each of [target, tooltip]) {
    each.addEventListener("mouseout", () => { hiding = setTimeout(hideReasons, 200); });
  }
  tooltip.addEventListener("mouseover", () => clearTimeout(hiding));
  document.addEventListener("keydown", event => { if (event.key === "Escape") hideReasons(); });
}

// ---- Other translations, and word by word

// List the sentences of all parts. explain(part) fetches its sentences with what is known of each word, languages are
// those of source and translation, and onChoice is called when the reader chooses another translation.
export function listSentences(parts, explain, languages, onChoice) {
  const all = parts.flatMap(part => (part.result?.sentences ?? []).map((sentence, i) => ({ part, sentence, i })));
  byId("sentences").replaceChildren();
  all.forEach((each, number) => addSentence(each, number, explain, languages, onChoice));
}

function addSentence(each, number, explain, languages, onChoice) {
  const details = addElement("details", byId("sentences"));
  const summary = addElement("summary", details, "", each.sentence.source);
  summary.dir = "auto";
  summary.lang = languages[0];
  const draw = () => drawSentence(details, each, number, explain, languages, onChoice);
  details.addEventListener("toggle", draw, { once: true });
  details.open = number < OPEN;
  const span = each.part.spans[each.i];
  for (const event of ["mouseenter", "focusin"]) details.addEventListener(event, () => span?.classList.add("on"));
  for (const event of ["mouseleave", "focusout"]) details.addEventListener(event, () => span?.classList.remove("on"));
}

async function drawSentence(details, { part, sentence, i }, number, explain, languages, onChoice) {
  const words = addElement("div", details);
  const draw = async k => {
    const explained = (await explain(part))?.[i];
    words.replaceChildren();
    if (explained) drawWords(words, explained, explained.candidates[k], languages);
  };
  const { candidates } = sentence;
  const choices = candidates.length > 1 && addElement("fieldset", details, "candidates");
  if (choices) addElement("legend", choices, "", "Translations of this sentence, with their scores");
  candidates.forEach((candidate, k) => {
    if (!choices) return;
    const label = addElement("label", choices);
    const input = addElement("input", label);
    input.type = "radio";
    input.name = `candidates-${number}`;
    input.checked = k === 0;
    input.addEventListener("change", () => {
      const span = part.spans[i];
      if (span) {
        span.textContent = candidate.translation;
        setDoubts(span, k ? [] : sentence.warnings);
      }
      onChoice();
      draw(k);
    });
    const text = addElement("span", label, "", candidate.translation);
    text.dir = "auto";
    text.lang = languages[1];
    addElement("small", label, "", candidate.score?.toFixed(2) ?? "");
  });
  await draw(0);
}

function drawWords(parent, { tokens, unknown }, { tokens: translated, copied, attention }, languages) {
  if (!attention?.length) return;  // a language model, which has no source, or an empty translation
  // Both without [EOS].
  const words = { source: tokens.slice(0, -1), target: translated.slice(0, attention.length), unknown, copied };
  const point = (t, s) => paintWords(rows, attention, t, s);
  const rows = addWords(parent, words, point, () => point(), languages);
  rows[0].forEach((word, s) => describeLinks(word, attention.map(row => row[s]), words.target));
  rows[1].forEach((word, t) => describeLinks(word, attention[t], words.source));
}

// Say in the label of a word which words of the other row it goes with.
function describeLinks(word, weights, others) {
  const top = weights.map((_, k) => k).sort((a, b) => weights[b] - weights[a]).slice(0, 2);
  const linked = top.filter(k => weights[k] >= 0.05).map(k => `${others[k]} ${percent(weights[k])}`);
  if (linked.length) word.ariaLabel += `; goes with ${linked.join(", ")}`;
}
