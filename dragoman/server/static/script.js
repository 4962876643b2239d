// Texts are set as text, never as markup; the server's content security policy forbids other scripts and hosts.
// Everything works from the keyboard: Tab moves between the parts of the page, the arrow keys between words.

import { addElement, addWords, byId, paintWords, percent } from "./words.js";

const DELAY = 250;  // milliseconds without typing before the text is translated
const CANDIDATES = 3;  // translations of a sentence
const OPEN = 3;  // sentences whose words are shown at once; the others are drawn when they are opened

const [source, target, copy, direction, glossary] =
  ["source", "target", "copy", "direction", "glossary"].map(byId);

function setStatus(message, isError = false) {
  byId("status").textContent = message;
  byId("status").classList.toggle("error", isError);
}

function setNoConnection(error) { setStatus(`Cannot reach the server: ${error.message}.`, true); }

// ---- Languages

let info = null;

function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {  // not a language code
    return code;
  }
}

async function loadInfo() {
  info = await (await fetch("info")).json();
  const { source_lang, target_lang, directions, run, step, characters } = info;
  byId("about").textContent = `Dragoman, run ${run}, step ${step}`;
  source.maxLength = characters;
  for (const each of directions) {
    const name = `${languageName(each.source_lang)} to ${languageName(each.target_lang)}`;
    const option = addElement("option", direction, "", name);
    option.selected = each.source_lang === source_lang && each.target_lang === target_lang;
  }
  direction.hidden = !directions.length;
  showLanguages(selectedDirection());
}

// The selected direction, or the only one.
function selectedDirection() {
  return info.directions[direction.selectedIndex] ?? info;
}

function showLanguages({ source_lang, target_lang }) {
  const from = languageName(source_lang ?? target_lang), to = languageName(target_lang);
  byId("title").textContent = document.title = source_lang ? `${from} to ${to}` : to;
  byId("source-name").textContent = source_lang ? from : `${from}: beginning of a text`;
  byId("target-name").textContent = source_lang ? to : `${to}: continued by the model`;
  source.lang = source_lang ?? target_lang;
  target.lang = target_lang;
  byId("terms").hidden = !source_lang;
}

// ---- Translating as you type. A new edit cancels the request for the text before it.

let timer = 0;
let request = new AbortController();

function scheduleTranslation(delay = DELAY) {
  clearTimeout(timer);
  request.abort();
  timer = setTimeout(translate, delay);
}

// The terms and their translations; lines without a term are skipped.
function readGlossary() {
  const lines = glossary.value.split("\n").map(line => line.split(/[=\t](.*)/).map(part => part.trim()));
  return Object.fromEntries(lines.filter(([term]) => term).map(([term, translation]) => [term, translation ?? ""]));
}

// How many translations of a sentence to ask for: fewer in a long text, by the server's budget of work.
function candidatesFor(text) {
  const units = text.split("\n").filter(line => line.trim()).reduce((sum, line) => sum + line.length + 10, 0);
  return Math.max(1, Math.min(CANDIDATES, info.n_best, Math.floor(info.budgets.max_work / (4 * units))));
}

async function translate() {
  const { signal } = request = new AbortController();
  const text = source.value;
  if (!text.trim()) {
    show({ translation: "", sentences: [], warnings: [] });
    return;
  }
  target.setAttribute("aria-busy", true);
  try {
    if (!info) await loadInfo();
    const { source_lang, target_lang } = selectedDirection();
    const languages = info.directions.length ? { source_lang, target_lang } : {};
    const wishes = { n_best: candidatesFor(text), glossary: readGlossary(), attention: true };
    const body = JSON.stringify({ text, ...wishes, ...languages });
    const headers = { "Content-Type": "application/json" };
    const response = await fetch("translate", { method: "POST", headers, body, signal });
    const answer = await response.json();
    if (signal.aborted) return;
    if (response.ok) {
      show(answer.translations[0]);
    } else {
      setStatus(answer.detail, true);
      const seconds = response.headers.get("Retry-After");
      if (seconds) timer = setTimeout(translate, 1000 * seconds);
    }
  } catch (error) {
    if (!signal.aborted) setNoConnection(error);
  } finally {
    if (!signal.aborted) target.setAttribute("aria-busy", false);
  }
}

// ---- Showing a translation

function show({ translation, sentences, warnings }) {
  target.replaceChildren();
  target.setAttribute("aria-busy", false);
  const spans = addSpans(translation, sentences);
  copy.hidden = !translation;
  copy.textContent = "Copy";
  setStatus(warnings.join("\n"));
  byId("how").hidden = !sentences.length;
  byId("sentences").replaceChildren();
  sentences.forEach((sentence, i) => addSentence(sentence, i, spans[i]));
}

// Put the translation of each sentence into a span of its own, so that another candidate can replace it.
function addSpans(text, sentences) {
  let done = 0;
  const spans = sentences.map(({ candidates: [best] }) => {
    const start = text.indexOf(best.translation, done);
    if (start < 0) return null;
    target.append(text.slice(done, start));
    done = start + best.translation.length;
    return addElement("span", target, "", best.translation);
  });
  target.append(text.slice(done));
  return spans;
}

function addSentence(sentence, number, span) {
  const details = addElement("details", byId("sentences"));
  const summary = addElement("summary", details, "", sentence.source);
  summary.dir = "auto";
  summary.lang = source.lang;
  const draw = () => drawSentence(details, sentence, number, span);
  if (number < OPEN) {
    details.open = true;
    draw();
  } else {
    details.addEventListener("toggle", draw, { once: true });
  }
  if (span) {
    for (const event of ["mouseenter", "focusin"]) details.addEventListener(event, () => span.classList.add("on"));
    for (const event of ["mouseleave", "focusout"]) details.addEventListener(event, () => span.classList.remove("on"));
  }
}

function drawSentence(details, sentence, number, span) {
  const { candidates } = sentence;
  const words = addElement("div", details);
  drawWords(words, sentence, candidates[0]);
  if (candidates.length < 2) return;
  const choices = addElement("fieldset", details, "candidates");
  addElement("legend", choices, "", "Translations of this sentence, with their scores");
  candidates.forEach((candidate, i) => {
    const label = addElement("label", choices);
    const input = addElement("input", label);
    input.type = "radio";
    input.name = `candidates-${number}`;
    input.checked = i === 0;
    input.addEventListener("change", () => {
      if (span) span.textContent = candidate.translation;
      copy.textContent = "Copy";
      words.replaceChildren();
      drawWords(words, sentence, candidate);
    });
    const text = addElement("span", label, "", candidate.translation);
    text.dir = "auto";
    text.lang = target.lang;
    addElement("small", label, "", candidate.score?.toFixed(2) ?? "");
  });
}

// ---- Word by word

function drawWords(parent, { tokens, unknown }, { tokens: translated, copied, attention }) {
  if (!attention.length) return;  // a language model, which has no source, or an empty translation
  // Both without [EOS].
  const words = { source: tokens.slice(0, -1), target: translated.slice(0, attention.length), unknown, copied };
  const point = (t, s) => paintWords(rows, attention, t, s);
  const rows = addWords(parent, words, point, () => point(), [source.lang, target.lang]);
  rows[0].forEach((word, s) => describeLinks(word, attention.map(row => row[s]), words.target));
  rows[1].forEach((word, t) => describeLinks(word, attention[t], words.source));
}

// Say in the label of a word which words of the other row it goes with.
function describeLinks(word, weights, others) {
  const top = weights.map((_, k) => k).sort((a, b) => weights[b] - weights[a]).slice(0, 2);
  const linked = top.filter(k => weights[k] >= 0.05).map(k => `${others[k]} ${percent(weights[k])}`);
  if (linked.length) word.ariaLabel += `; goes with ${linked.join(", ")}`;
}

// ---- Start

copy.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(target.textContent);
    copy.textContent = "Copied";
  } catch (error) {  // browsers allow copying only on pages of this computer or over HTTPS
    setStatus(`The browser does not allow copying: ${error.message}`, true);
  }
});
direction.addEventListener("change", () => {
  showLanguages(selectedDirection());
  scheduleTranslation(0);
});
source.addEventListener("input", event => { if (!event.isComposing) scheduleTranslation(); });
glossary.addEventListener("input", () => scheduleTranslation());
source.addEventListener("compositionend", () => scheduleTranslation());
try {
  await loadInfo();
} catch (error) {
  setNoConnection(error);
}
if (source.value) scheduleTranslation(0);  // text that the browser restored, or that was typed during loading
