// Texts are set as text, never as markup; the server's content security policy forbids other scripts and hosts.
// Everything works from the keyboard: Tab moves between the parts of the page, the arrow keys between words.

import { translateDocument } from "./documents.js";
import { ask, groups, roomOf, split } from "./requests.js";
import { explainDoubts, fillPart, hideReasons, listSentences, setAfter } from "./sentences.js";
import { addToHistory, load, loadHistory, removeFromHistory, save } from "./storage.js";
import { addElement, byId, percent } from "./words.js";

const DELAY = 250;  // milliseconds without typing before the text is translated
const SETTLED = 3000;  // milliseconds without typing before a translation joins the history
const CANDIDATES = 3;  // translations of a sentence
const REMEMBERED = 20_000;  // parts of texts whose translations are kept, so that only what changes is translated
const LONG = 600;  // characters of a text that is shown smaller
const EXAMPLES = 4;  // on the empty page
const AUTO = "auto";  // the source language is detected

const [source, target, copy, from, to, swap, glossary, clear, progress] =
  ["source", "target", "copy", "from", "to", "swap", "glossary", "clear", "progress"].map(byId);
const [keepText, keepHistory] = ["keep-text", "keep-history"].map(byId);

function setStatus(message, isError = false) {
  byId("status").textContent = message;
  byId("message").classList.toggle("error", isError);
  byId("again").hidden = true;
}

function showError(error) {
  setStatus(error.message, true);
  byId("again").hidden = false;
  byId("access").hidden = error.status !== 403;
}

function waitFor(seconds) { setStatus(`The server is busy. Trying again in ${seconds} s.`); }

// ---- Languages

let info = null;
let directions = [];  // that are served
let detected = { start: "", language: "" };  // the language of a text that starts so

function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {  // not a language code
    return code;
  }
}

function setOptions(select, codes, chosen) {
  select.replaceChildren();
  for (const code of codes) addElement("option", select, "", languageName(code)).value = code;
  select.value = String(codes.includes(chosen) ? chosen : codes[0]);
  select.hidden = codes.length < 2;
}

async function loadInfo() {
  info = await (await ask("info", { onWait: waitFor })).json();
  directions = info.directions;
  const sources = [...new Set(directions.map(each => each.source_lang))];
  const [source_lang, target_lang] = load("languages", [info.source_lang, info.target_lang]);
  setOptions(from, sources.length > 1 ? [AUTO, ...sources] : sources, source_lang);
  showLanguages(target_lang);
  byId("file").accept = info.documents.join();
  byId("choose").title = info.documents.join(" ");
  byId("choose").hidden = false;
}

// The directions from the selected or detected language; all, if it is not known yet.
function possible() {
  const language = from.value === AUTO ? detected.language : from.value;
  const found = directions.filter(each => String(each.source_lang) === language);
  return found.length ? found : directions;
}

function direction() { return possible().find(each => each.target_lang === to.value) ?? possible()[0]; }

function opposite() {
  const { source_lang, target_lang } = direction();
  return directions.find(each => each.source_lang === target_lang && each.target_lang === source_lang);
}

function showLanguages(wanted = to.value) {
  const [first] = from.options;
  if (first.value === AUTO) {
    first.textContent = detected.language ? `Detected: ${languageName(detected.language)}` : "Detect language";
  }
  setOptions(to, [...new Set(possible().map(each => each.target_lang))], wanted);
  const { source_lang, target_lang, run, step, examples } = direction();
  const [input, output] = [source_lang ?? target_lang, target_lang].map(languageName);
  const name = source_lang ? `${input} to ${output}` : output;
  document.title = `${name} – Dragoman`;
  byId("about").textContent = `${name} · run ${run}, step ${step}`;
  byId("source-name").textContent = source_lang ? input : `${input}: beginning of a text`;
  byId("target-name").textContent = source_lang ? output : `${output}: continued by the model`;
  byId("source-name").classList.toggle("aside", !from.hidden);
  byId("target-name").classList.toggle("aside", !to.hidden);
  source.lang = source_lang ?? target_lang;
  target.lang = target_lang;
  byId("terms").hidden = !source_lang;
  swap.hidden = !opposite();
  byId("examples").replaceChildren();
  for (const text of examples.slice(0, EXAMPLES)) {
    const chip = addElement("button", byId("examples"), "", text);
    chip.type = "button";
    chip.lang = source.lang;
    chip.addEventListener("click", () => setText(text));
  }
}

// Detect the language of a text by its beginning, if that has changed.
async function detect(text, signal) {
  if (from.value !== AUTO) return;
  const start = text.trim().slice(0, 300);
  if (start !== detected.start) {
    const body = { q: start };
    const [best] = start ? await (await ask("detect", { body, signal, onWait: waitFor })).json() : [];
    detected = { start, language: best?.language ?? "" };
    showLanguages();
  }
  if (start && !directions.some(each => each.source_lang === detected.language)) {
    const name = languageName(detected.language);
    throw new Error(`This text looks like ${name}, which this server does not translate. Choose its language above.`);
  }
}

// ---- Translating as you type. A new edit cancels the request for the text before it.

const translated = new Map();  // from the keys of parts to their translations
let parts = [];  // of the text that is shown: { key, text, after, element, and with its translation result, spans }
let running = new AbortController();
let timer = 0;
let settling = 0;
let finished = "";  // the text whose translation is shown completely

function scheduleTranslation(delay = DELAY) {
  clearTimeout(timer);
  clearTimeout(settling);
  running.abort();
  finished = "";
  timer = setTimeout(translate, delay);
}

// The terms and their translations; lines without a term are skipped.
function readGlossary() {
  const lines = glossary.value.split("\n").map(line => line.split(/[=\t](.*)/).map(part => part.trim()));
  return Object.fromEntries(lines.filter(([term]) => term).map(([term, translation]) => [term, translation ?? ""]));
}

async function request(texts, { source_lang, target_lang }, options, signal) {
  const languages = directions.length > 1 ? { source_lang, target_lang } : {};
  const body = { texts, n_best: Math.min(CANDIDATES, info.n_best), glossary: readGlossary(), ...options, ...languages };
  return (await (await ask("translate", { body, signal, onWait: waitFor })).json()).translations;
}

async function translate() {
  const { signal } = running = new AbortController();
  const text = source.value.toWellFormed();
  hideReasons();
  try {
    if (!info) await loadInfo();
    await detect(text, signal);
    const into = direction(), room = roomOf(info, Math.min(CANDIDATES, info.n_best));
    const missing = layOut(text ? split(text, room, into.target_lang) : [], into);
    target.ariaBusy = missing.length > 0;
    const waiting = [...groups(missing, room)];
    for (const [i, group] of waiting.entries()) {
      showProgress(i, waiting.length);
      const results = await request(group.map(part => part.text), into, {}, signal);
      if (signal.aborted) return;
      group.forEach((part, k) => {
        translated.set(part.key, results[k]);
        fillPart(part, results[k]);
      });
    }
    if (translated.size > REMEMBERED) translated.clear();
    setStatus("");
    byId("access").hidden = true;
    finished = text;
    settling = setTimeout(remember, SETTLED);
  } catch (error) {
    if (!signal.aborted) showError(error);
  }
  if (signal.aborted) return;
  target.ariaBusy = false;
  showProgress(0, 0);
  showTranslation();
}

// Lay out the parts of a text, and return those to translate. Unchanged ones at the beginning and the end stay; a
// changed one shows the translation before it, paler, until its own arrives.
function layOut(texts, { source_lang, target_lang }) {
  const settings = JSON.stringify([source_lang, target_lang, glossary.value]);
  const next = texts.map(part => ({ ...part, key: settings + part.text }));
  const shorter = Math.min(parts.length, next.length);
  let start = 0, end = 0;
  while (start < shorter && parts[start].key === next[start].key) start++;
  while (end < shorter - start && parts.at(-1 - end).key === next.at(-1 - end).key) end++;
  const old = parts.slice(start, parts.length - end), kept = parts.slice(parts.length - end);
  const changed = next.slice(start, next.length - end);
  for (const [i, part] of changed.entries()) {
    part.element = old[i]?.element ?? target.insertBefore(document.createElement("span"), kept[0]?.element ?? null);
    const known = part.text.trim() ? translated.get(part.key) : { translation: part.text, sentences: [], warnings: [] };
    if (known) fillPart(part, known);
    else part.element.classList.add("pending");
  }
  for (const { element } of old.slice(changed.length)) element.remove();
  parts = [...parts.slice(0, start), ...changed, ...kept];
  parts.forEach((part, i) => setAfter(part, next[i].after));
  return parts.filter(part => !part.result);
}

function showProgress(done, all) {
  progress.hidden = byId("share").hidden = all < 2;
  progress.value = all ? done / all : 0;
  byId("share").textContent = percent(progress.value);
}

// Show what depends on the translation as a whole.
function showTranslation() {
  const doubts = target.querySelectorAll(".doubt").length;
  byId("doubts").hidden = !doubts;
  byId("doubts").dataset.next = 0;
  byId("doubts").textContent = doubts === 1 ? "1 doubtful place" : `${doubts.toLocaleString("en")} doubtful places`;
  copy.hidden = !target.textContent.trim();
  copy.textContent = "Copy";
  byId("how").hidden = !parts.some(part => part.result?.sentences.length);
  if (!byId("how").hidden && byId("how").open) showSentences();
}

function showSentences() {
  const into = direction();
  const explain = part => part.explained ??= request([part.text], into, { attention: true }, running.signal)
    .then(([{ sentences }]) => sentences, error => {
      part.explained = null;
      if (error.name !== "AbortError") showError(error);
    });
  listSentences(parts, explain, [source.lang, target.lang], () => { copy.textContent = "Copy"; });
}

// ---- The text

function setText(text) {
  source.value = text;
  showText();
  scheduleTranslation(0);
  source.focus();
}

// Show what depends on the text, and keep it.
function showText() {
  const text = source.value, characters = [...text].length;
  byId("empty").hidden = text !== "";
  clear.hidden = !text;
  byId("card").classList.toggle("long", characters > LONG);
  if (info) {
    const [count, limit] = [characters, info.characters].map(number => number.toLocaleString("en"));
    byId("counter").textContent = characters <= info.characters ? `${count} / ${limit} characters per request`
      : `${count} characters: more than ${limit} go in several requests, and nothing is cut`;
  }
  if (!CSS.supports("field-sizing", "content")) {
    source.style.height = "auto";
    source.style.height = `${source.scrollHeight}px`;
  }
  if (keepText.checked) save("text", text);
}

async function openFile(file) {
  if (info.documents.some(ending => file.name.toLowerCase().endsWith(ending))) {
    const { source_lang, target_lang } = direction();
    const language = from.value === AUTO ? AUTO : source_lang;
    await translateDocument(file, { source_lang: language, target_lang }, byId("documents"));
  } else if (file.type.startsWith("text/")) {
    setText(await file.text());
  } else {
    setStatus(`${file.name} cannot be translated here, only ${["text", ...info.documents].join(" ")}.`, true);
  }
}

// ---- History

function remember() {
  clearTimeout(settling);
  if (!keepHistory.checked || !finished.trim() || finished !== source.value) return;
  const { source_lang, target_lang } = direction();
  addToHistory({ text: finished, translation: target.textContent, from: source_lang, to: target_lang });
  showHistory();
}

function showHistory() {
  const entries = loadHistory(), list = byId("history");
  list.replaceChildren();
  byId("forget").hidden = !entries.length;
  for (const entry of entries) {
    const row = addElement("li", list);
    const open = addElement("button", row);
    for (const text of [entry.text, entry.translation]) addElement("span", open, "", text.slice(0, 200)).dir = "auto";
    const remove = addElement("button", row, "", "Delete");
    open.type = remove.type = "button";
    remove.ariaLabel = `Delete ${entry.text.slice(0, 60)}`;
    open.addEventListener("click", () => {
      selectLanguages(entry.from, entry.to);
      setText(entry.text);
    });
    remove.addEventListener("click", () => {
      removeFromHistory(entry);
      showHistory();
      byId("past").firstElementChild.focus();
    });
  }
}

function selectLanguages(source_lang, target_lang) {
  if (!directions.some(each => each.source_lang === source_lang && each.target_lang === target_lang)) return;
  from.value = source_lang;
  showLanguages(target_lang);
  save("languages", [from.value, to.value]);
}

// ---- Controls

source.addEventListener("input", event => {
  showText();
  if (!event.isComposing) scheduleTranslation();
});
source.addEventListener("compositionend", () => scheduleTranslation());
glossary.addEventListener("input", () => {
  if (keepText.checked) save("glossary", glossary.value);
  scheduleTranslation();
});
for (const select of [from, to]) select.addEventListener("change", () => {
  detected = { start: "", language: "" };
  showLanguages();
  save("languages", [from.value, to.value]);
  scheduleTranslation(0);
});
swap.addEventListener("click", () => {
  remember();
  const text = finished ? target.textContent : source.value, { source_lang, target_lang } = opposite();
  selectLanguages(source_lang, target_lang);
  setText(text);
});
clear.addEventListener("click", () => {
  remember();
  setText("");
});
byId("again").addEventListener("click", () => scheduleTranslation(0));
byId("doubts").addEventListener("click", () => {
  const doubts = target.querySelectorAll(".doubt"), { next } = byId("doubts").dataset;
  doubts[next]?.focus();
  byId("doubts").dataset.next = (Number(next) + 1) % doubts.length;
});
byId("how").addEventListener("toggle", () => { if (byId("how").open) showSentences(); });
byId("access").addEventListener("submit", event => {
  event.preventDefault();
  save("key", byId("key").value.trim());
  scheduleTranslation(0);
});
copy.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(target.textContent);
    copy.textContent = "Copied";
  } catch (error) {  // browsers allow copying only on pages of this computer or over HTTPS
    setStatus(`The browser does not allow copying: ${error.message}`, true);
  }
});

byId("choose").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", () => {
  for (const file of byId("file").files) openFile(file);
  byId("file").value = "";  // so that the same file can be chosen again
});
const mark = (event, isOver) => {
  if (!event.dataTransfer?.types.includes("Files")) return;  // text that is dragged into a box
  event.preventDefault();
  byId("card").classList.toggle("dropping", isOver);
};
document.addEventListener("dragover", event => mark(event, true));
document.addEventListener("dragleave", event => mark(event, false));
document.addEventListener("drop", event => {
  mark(event, false);
  for (const file of event.dataTransfer.files) openFile(file);
});

keepText.checked = load("keep-text", true);
keepHistory.checked = load("keep-history", false);
keepText.addEventListener("change", () => {
  save("keep-text", keepText.checked);
  save("text", keepText.checked ? source.value : "");
  save("glossary", keepText.checked ? glossary.value : "");
});
keepHistory.addEventListener("change", () => {
  save("keep-history", keepHistory.checked);
  remember();
});
byId("forget").addEventListener("click", () => {
  save("history", []);
  showHistory();
});
addEventListener("pagehide", remember);

// ---- Start

explainDoubts(target);
showHistory();
if (keepText.checked) {
  source.value ||= load("text", "");
  glossary.value ||= load("glossary", "");
}
try {
  await loadInfo();
} catch (error) {
  showError(error);
}
showText();
if (source.value) scheduleTranslation(0);
