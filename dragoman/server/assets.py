"""The page that `serve.py` gives a browser: its HTML, style and script, each a file of its own there.

The script speaks to the JSON API beside it and to nothing else. Whatever a text holds, it is set as text and never read
as markup, and the browser is told (see `serve.SAFE`) to allow no other script, style or address anyhow.

What a colour says is said once more by a line, a number or a word; what the pointer can do, the keyboard can: Tab leads
from part to part, the arrow keys from word to word.
"""

from __future__ import annotations

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Dragoman</title>
<link rel="icon" href="icon.svg">
<link rel="stylesheet" href="page.css">
<script type="module" src="page.js"></script>
</head>
<body>
<header>
<h1 id="title">Dragoman</h1>
<p id="about"></p>
<select id="direction" aria-label="Languages" hidden></select>
</header>
<main>
<div class="panes">
<section>
<label class="heading" for="source" id="source-name">Text</label>
<textarea id="source" rows="7" dir="auto" autofocus spellcheck="false" placeholder="Type here."></textarea>
</section>
<section aria-labelledby="target-name">
<h2 class="heading" id="target-name">Translation</h2>
<div id="target" dir="auto" aria-live="polite"></div>
<button id="copy" type="button" hidden>Copy</button>
</section>
</div>
<p id="status" role="status"></p>
<noscript><p>This page translates with JavaScript, which is switched off here.</p></noscript>
<section id="how" aria-labelledby="how-name" hidden>
<h2 id="how-name">Word by word</h2>
<p>Point at a word, or reach it with Tab and the arrow keys, to see which words it was made from, or what became of
it.</p>
<ul class="legend">
<li><b class="word looked">word</b> looked at: the share stands above it</li>
<li><b class="word unknown">word</b> unknown to the vocabulary</li>
<li><b class="word copied">word</b> copied from the text</li>
</ul>
<div id="sentences"></div>
</section>
</main>
</body>
</html>
"""
STYLE = """\
:root {
  color-scheme: light dark;
  --paper: #fcfbf9; --raised: #fff; --ink: #1d1d20; --muted: #62626b; --line: #d9d5cd;
  --map: 79 140 255; --accent: #2457c5; --wrong: #b3321f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #151619; --raised: #1d1e22; --ink: #ececf0; --muted: #a2a2ad; --line: #3b3c43;
    --map: 66 120 245; --accent: #8fb4ff; --wrong: #ff8b7d;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body {
  margin: 0 auto; max-width: 68rem; padding: 1.5rem 1.25rem 4rem;
  background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif;
}
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: .25rem 1rem; margin-bottom: 1.25rem; }
h1 { margin: 0; font-size: 1.5rem; font-weight: 650; letter-spacing: -.01em; }
h2 { margin: 0; font-size: 1.1rem; font-weight: 650; }
header p, #how > p { margin: 0; color: var(--muted); font-size: .9rem; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }

.panes { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
.panes section { display: flex; flex-direction: column; position: relative; }
#direction { padding: .15rem .4rem; font: inherit; font-size: .9rem; }
.heading { margin-bottom: .35rem; color: var(--muted); font-size: .9rem; font-weight: 500; line-height: 1.5; }
textarea, #target {
  flex: 1; min-height: 11rem; padding: .8rem 1rem; border: 1px solid var(--line); border-radius: .6rem;
  background: var(--raised); color: inherit; font: inherit; font-size: 1.2rem; line-height: 1.45;
  overflow-wrap: anywhere;
}
textarea { width: 100%; resize: vertical; }
textarea::placeholder { color: var(--muted); }
#target { padding-bottom: 3rem; white-space: pre-wrap; transition: opacity .15s; }
#target[aria-busy=true] { opacity: .6; }
#target .on { text-decoration: underline dotted; text-underline-offset: .25em; }
button, summary, .others label { cursor: pointer; }
#copy {
  position: absolute; bottom: .6rem; right: .6rem; padding: .25rem .75rem; border: 1px solid var(--line);
  border-radius: .4rem; background: var(--paper); color: inherit; font: inherit; font-size: .85rem;
}
#status { min-height: 1.5em; margin: .5rem 0 1rem; color: var(--muted); font-size: .9rem; white-space: pre-line; }
#status.wrong { color: var(--wrong); font-weight: 550; }

.legend {
  display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; margin: .6rem 0 0; padding: 0; list-style: none;
  color: var(--muted); font-size: .85rem;
}
.legend .word { padding: .05rem .4rem; color: var(--ink); font-weight: 400; }
details { margin-top: 1rem; padding: .7rem 1rem; border: 1px solid var(--line); border-radius: .6rem; }
summary { color: var(--muted); font-size: .9rem; overflow-wrap: anywhere; }
.words { display: flex; flex-wrap: wrap; gap: 1.2rem .4rem; margin-top: 1.5rem; }
.word {
  position: relative; min-width: 2.2rem; padding: .2rem .5rem; border: 1px solid var(--line); border-radius: .4rem;
  background: var(--raised); color: inherit; font: inherit; text-align: center; overflow-wrap: anywhere;
}
button.word { background: linear-gradient(rgb(var(--map) / var(--share, 0)) 0 0) var(--raised); }
.word small {
  position: absolute; inset: -1.15rem -.5rem auto; font-size: .7rem; line-height: 1rem; color: var(--muted);
  text-decoration: none; white-space: nowrap;
}
.word.on { outline: 2px solid var(--ink); outline-offset: 0; }
.looked { background: rgb(var(--map) / .5); }
.unknown { text-decoration: underline wavy var(--wrong) 1px; text-underline-offset: .25em; }
.copied { border: 2px dashed var(--muted); }
.others { margin: 1rem 0 .2rem; padding: 0; border: 0; }
.others legend { padding: 0; color: var(--muted); font-size: .85rem; }
.others label { display: flex; gap: .5rem; align-items: baseline; padding: .15rem 0; }
.others small { margin-inline-start: auto; color: var(--muted); font-variant-numeric: tabular-nums; }
@media (prefers-reduced-motion: reduce) { * { transition: none !important; } }
"""
SCRIPT = """\
const PAUSE = 250;  // milliseconds without a letter, after which what was typed is translated
const OTHERS = 3;  // translations of a sentence
const OPEN = 3;  // sentences that are shown word by word at once, the others when they are opened

const byId = id => document.getElementById(id);
const [source, target, copy, direction] = ["source", "target", "copy", "direction"].map(byId);

// Whatever a text holds, it is set as text and never read as markup.
function element(tag, parent, names = "", text = "") {
  const made = parent.appendChild(document.createElement(tag));
  made.className = names;
  made.textContent = text;
  return made;
}

function percent(share) { return (100 * share).toFixed(0) + "%"; }

function say(message, wrong = false) {
  byId("status").textContent = message;
  byId("status").classList.toggle("wrong", wrong);
}

// ---- Who answers here.

let info = null;

function language(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {  // not the code of any language
    return code;
  }
}

async function meet() {
  info = await (await fetch("info")).json();
  const { source_lang, target_lang, directions, run, step, characters } = info;
  byId("about").textContent = `Dragoman, run ${run}, step ${step}`;
  source.maxLength = characters;
  for (const each of directions) {
    const option = element("option", direction, "", `${language(each.source_lang)} to ${language(each.target_lang)}`);
    option.selected = each.source_lang === source_lang && each.target_lang === target_lang;
  }
  direction.hidden = !directions.length;
  name(chosen());
}

// The languages that are asked for: of a model of several directions the one that is selected.
function chosen() {
  return info.directions[direction.selectedIndex] ?? info;
}

function name({ source_lang, target_lang }) {
  const from = language(source_lang ?? target_lang), to = language(target_lang);
  byId("title").textContent = document.title = source_lang ? `${from} to ${to}` : to;
  byId("source-name").textContent = source_lang ? from : `${from}, as it begins`;
  byId("target-name").textContent = source_lang ? to : `${to}, as the model goes on`;
  source.lang = source_lang ?? target_lang;
  target.lang = target_lang;
}

// ---- While one types. An answer to what has been changed since is of no use: its request is given up.

let timer = 0;
let asking = new AbortController();

function typed(pause = PAUSE) {
  clearTimeout(timer);
  asking.abort();
  timer = setTimeout(translate, pause);
}

async function translate() {
  const { signal } = asking = new AbortController();
  const text = source.value;
  if (!text.trim()) {
    show({ translation: "", sentences: [], warnings: [] });
    return;
  }
  target.setAttribute("aria-busy", true);
  try {
    if (!info) await meet();
    const { source_lang, target_lang } = chosen();
    const languages = info.directions.length ? { source_lang, target_lang } : {};
    const body = JSON.stringify({ text, n_best: Math.min(OTHERS, info.n_best), attention: true, ...languages });
    const headers = { "Content-Type": "application/json" };
    const response = await fetch("translate", { method: "POST", headers, body, signal });
    const answer = await response.json();
    if (signal.aborted) return;
    if (response.ok) {
      show(answer.translations[0]);
    } else {
      say(answer.detail, true);
      const again = response.headers.get("Retry-After");
      if (again) timer = setTimeout(translate, 1000 * again);
    }
  } catch (error) {
    if (!signal.aborted) say(`No answer: ${error.message}. Is the server still there?`, true);
  } finally {
    if (!signal.aborted) target.setAttribute("aria-busy", false);
  }
}

// ---- A translation.

function show({ translation, sentences, warnings }) {
  target.replaceChildren();
  target.setAttribute("aria-busy", false);
  const spans = parts(translation, sentences);
  copy.hidden = !translation;
  copy.textContent = "Copy";
  say(warnings.join("\\n"));
  byId("how").hidden = !sentences.length;
  byId("sentences").replaceChildren();
  sentences.forEach((sentence, i) => panel(sentence, i, spans[i]));
}

// The translation, cut where the best candidate of each sentence stands, so that another may take its place.
function parts(text, sentences) {
  let done = 0;
  const spans = sentences.map(({ candidates: [best] }) => {
    const at = text.indexOf(best.translation, done);
    if (at < 0) return null;
    target.append(text.slice(done, at));
    done = at + best.translation.length;
    return element("span", target, "", best.translation);
  });
  target.append(text.slice(done));
  return spans;
}

function panel(sentence, number, span) {
  const details = element("details", byId("sentences"));
  const summary = element("summary", details, "", sentence.source);
  summary.dir = "auto";
  summary.lang = source.lang;
  const opened = () => draw(details, sentence, number, span);
  if (number < OPEN) {
    details.open = true;
    opened();
  } else {
    details.addEventListener("toggle", opened, { once: true });
  }
  if (span) {
    for (const event of ["mouseenter", "focusin"]) details.addEventListener(event, () => span.classList.add("on"));
    for (const event of ["mouseleave", "focusout"]) details.addEventListener(event, () => span.classList.remove("on"));
  }
}

function draw(details, sentence, number, span) {
  const { candidates } = sentence;
  const maps = element("div", details);
  wordByWord(maps, sentence, candidates[0]);
  if (candidates.length < 2) return;
  const others = element("fieldset", details, "others");
  element("legend", others, "", "Translations of this sentence, with their scores");
  candidates.forEach((candidate, i) => {
    const label = element("label", others);
    const input = element("input", label);
    input.type = "radio";
    input.name = `others-${number}`;
    input.checked = i === 0;
    input.addEventListener("change", () => {
      if (span) span.textContent = candidate.translation;
      copy.textContent = "Copy";
      maps.replaceChildren();
      wordByWord(maps, sentence, candidate);
    });
    const text = element("span", label, "", candidate.translation);
    text.dir = "auto";
    text.lang = target.lang;
    element("small", label, "", candidate.score?.toFixed(2) ?? "");
  });
}

// ---- Its words.

function wordByWord(parent, { tokens, unknown }, { tokens: made, copied, attention }) {
  if (!attention.length) return;  // a language model, which has no source; or not a word was found
  const sources = tokens.slice(0, -1);
  const targets = made.slice(0, attention.length);  // both without [EOS]
  const column = s => attention.map(row => row[s]);
  const from = row(parent, source.lang, "Words of the text", sources, s =>
    [unknown.includes(s) ? "unknown" : "", unknown.includes(s) ? "unknown" : "", column(s), targets]);
  const to = row(parent, target.lang, "Words of the translation", targets, t =>
    [t in copied ? "copied" : "", t in copied ? `copied from ${sources[copied[t]]}` : "", attention[t], sources]);
  link(from, to, column);
  link(to, from, t => attention[t]);
}

// One row of words. of(i) gives a word's mark, that mark in words, and its shares of the words of the other row.
function row(parent, lang, name, labels, of) {
  const holder = element("div", parent, "words");
  holder.dir = "auto";
  holder.lang = lang;
  holder.role = "group";
  holder.ariaLabel = name;
  const words = labels.map((label, i) => {
    const [mark, inWords, shares, others] = of(i);
    const word = element("button", holder, `word ${mark}`, label);
    const most = shares.map((_, k) => k).sort((a, b) => shares[b] - shares[a]).slice(0, 2);
    const looked = most.filter(k => shares[k] >= 0.05).map(k => `${others[k]} ${percent(shares[k])}`);
    word.type = "button";
    word.ariaLabel = [label, inWords, looked.length ? `goes with ${looked.join(", ")}` : ""].filter(Boolean).join("; ");
    word.title = inWords;
    word.tabIndex = i ? -1 : 0;  // Tab leads to the row, the arrows lead through it
    element("small", word).ariaHidden = true;
    return word;
  });
  holder.addEventListener("keydown", event => {
    const along = getComputedStyle(holder).direction === "rtl" ? -1 : 1;
    const step = { ArrowRight: along, ArrowLeft: -along }[event.key];
    const next = step && words[words.indexOf(event.target) + step];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return words;
}

// While a word is pointed at or has the focus, colour the words of the other row by its shares of them.
function link(words, others, sharesOf) {
  words.forEach((word, i) => {
    const paint = shares => {
      word.classList.toggle("on", shares.length > 0);
      others.forEach((other, k) => {
        const share = shares[k] ?? 0;
        other.style.setProperty("--share", share);
        other.lastChild.textContent = share < 0.01 ? "" : percent(share);
      });
    };
    for (const event of ["mouseenter", "focus"]) word.addEventListener(event, () => paint(sharesOf(i)));
    for (const event of ["mouseleave", "blur"]) word.addEventListener(event, () => paint([]));
  });
}

// ---- To begin with.

copy.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(target.textContent);
    copy.textContent = "Copied";
  } catch (error) {  // only a page from this computer, or an encrypted one, may
    say(`The browser does not let the page copy: ${error.message}`, true);
  }
});
direction.addEventListener("change", () => {
  name(chosen());
  typed(0);
});
source.addEventListener("input", event => { if (!event.isComposing) typed(); });
source.addEventListener("compositionend", () => typed());
try {
  await meet();
} catch (error) {
  say(`No answer: ${error.message}. Is the server still there?`, true);
}
if (source.value) typed(0);  // what the browser has kept, or was typed meanwhile
"""
ICON = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<rect width="16" height="16" rx="4" fill="#2457c5"/>
<path d="M4 3.5h3.5a4.5 4.5 0 0 1 0 9H4zM6 5.5v5h1.5a2.5 2.5 0 0 0 0-5z" fill="#fff" fill-rule="evenodd"/>
</svg>
"""
