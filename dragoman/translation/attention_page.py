"""What a translation looked at in its source, for people: a page for a browser, a table for a terminal.

    Path("attention.html").write_text(page([view]), encoding="utf-8")
    print(*table(view), sep="\\n")

A `View` is all that both need of a sentence: plain labels and numbers, no tensor, no file. Attention tells where the
layers looked when a token was chosen: a good hint at what was translated by what, and no proof of it.

Shapes are written in these letters:
    L layers   H heads   T target tokens   S source tokens
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from string import Template
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dragoman.console import display_width, fit, visible


@dataclass(frozen=True, eq=False)
class View:
    """One sentence and its translation, token by token. A label is what a person is shown of a token."""

    source: Sequence[str]  # (S,) labels, the last of them [EOS]
    target: Sequence[str]  # (T,) labels, the last of them [EOS] if the translation is complete
    log_probs: Sequence[float]  # (T,) log-probability of each target token, in nats
    weights: ArrayLike  # (L, H, T, S) where each head looked for each target token; a row sums to 1
    text_source: str
    text_target: str
    copied: Mapping[int, int] = field(default_factory=dict)  # target position: source position it was copied from
    unknown: Set[int] = frozenset()  # source positions of words that the vocabulary lacks

    def __post_init__(self) -> None:
        assert self.maps.ndim == 4, self.maps.shape
        assert self.maps.shape[2:] == (len(self.target), len(self.source)), self.maps.shape
        assert len(self.log_probs) == len(self.target), len(self.log_probs)

    @property
    def maps(self) -> np.ndarray:
        """The weights as an array (L, H, T, S)."""
        return np.asarray(self.weights, dtype=np.float64)

    def mean(self, layer: int | None = None) -> np.ndarray:
        """Where each target token looked on average, (T, S): over the heads of one layer, or over all of all layers."""
        return (self.maps if layer is None else self.maps[[layer]]).mean((0, 1))


# ------------------------------------------------------------------------------------------------------- the table

BAR = 10  # columns of a full bar
EIGHTHS = ("", *"▏▎▍▌▋▊▉")


def table(view: View, width: int = 100, layer: int | None = None) -> list[str]:
    """A heading, then a line for each target token: how probable it was, and which source token it looked at most.

    A second source token is named if its weight is at least half of the first's. No line is wider than width columns
    (60 at least), and none holds a character that could steer a terminal. layer is as in `View.mean`.
    """
    rows = [["token", "prob", "looks at", "weight", "", ""]]
    for t, weights in enumerate(view.mean(layer)):
        first, *others = np.argsort(-weights, kind="stable").tolist()
        remarks = []
        if others and 2 * weights[others[0]] >= weights[first]:
            remarks.append(f"also {view.source[others[0]]} {_percent(weights[others[0]])}")
        if first in view.unknown:
            remarks.append(f"{view.source[first]} is unknown")
        if t in view.copied:
            remarks.append(f"copied from {view.source[view.copied[t]]}")
        probability = _percent(math.exp(view.log_probs[t]))
        looks_at = [view.source[first], _percent(weights[first]), _bar(weights[first])]
        rows.append([view.target[t], probability, *looks_at, "; ".join(remarks)])
    rows = [[visible(cell) for cell in row] for row in rows]

    width = max(width, 60)
    widest = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    label = (width - len("prob") - len("weight") - BAR - 5 * len("  ")) // 3  # what each of three labels may take
    widths = [min(widest[0], label), len("prob"), min(widest[2], label), len("weight"), BAR]
    widths.append(width - sum(widths) - 5 * len("  "))
    aligned = ("<", ">", "<", ">", "<", "<")
    return ["  ".join(map(fit, row, widths, aligned)).rstrip() for row in rows]


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _bar(share: float) -> str:
    """A bar of block characters, exact to an eighth of a column."""
    full, rest = divmod(round(8 * BAR * share), 8)
    return "█" * full + EIGHTHS[rest]


# -------------------------------------------------------------------------------------------------------- the page


def page(views: Sequence[View]) -> str:
    """One HTML page, complete in itself, that shows the attention of some sentences, all of one model.

    Whatever the texts hold is shown as text: they arrive as JSON, the script sets them as text alone, and the page
    forbids the browser any other script and anything from outside. The first few maps are drawn at once and the others
    when they are opened, so that a browser bears a hundred sentences.
    """
    assert len({view.maps.shape[:2] for view in views}) <= 1, "views of different models"
    return PAGE.substitute(
        style=STYLE, style_hash=_hash(STYLE), script=SCRIPT, script_hash=_hash(SCRIPT),
        data=_embedded([_content(view) for view in views]),
    )  # fmt: skip


def _content(view: View) -> dict[str, Any]:
    """What the script of the page needs to know of a sentence."""
    return {
        "text_source": view.text_source,
        "text_target": view.text_target,
        "source": [visible(label) for label in view.source],
        "target": [visible(label) for label in view.target],
        "probabilities": [round(math.exp(each), 4) for each in view.log_probs],
        # In ten-thousandths, finer than anything shown; as decimals the page would be twice as large.
        "weights": np.rint(10_000 * view.maps).astype(int).tolist(),
        "copied": {str(t): s for t, s in view.copied.items()},
        "unknown": sorted(view.unknown),
    }


def _embedded(value: Any) -> str:
    """JSON that can stand inside a script element: plain ASCII, and nothing in it that could end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    """By this the browser knows the one style and the one script that the page may use."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src '$style_hash'; script-src '$script_hash'">
<title>What the translation looked at</title>
<style>$style</style>
</head>
<body>
<header>
<h1>What the translation looked at</h1>
<p>Each word of a translation was chosen with an eye on some words of the source. Point at one, tap it, or reach it with
Tab and the arrow keys to see on which.</p>
<ul>
<li><b class="looked">word</b> looked at: the stronger the colour, the more</li>
<li><b class="doubt">word</b> doubtful: the stronger the line, the less probable</li>
<li class="if-unknown"><b class="unknown">word</b> unknown to the vocabulary</li>
<li class="if-copied"><b class="copied">word</b> copied from the source</li>
</ul>
</header>
<div id="bar"><div id="choices"></div><output id="readout"></output></div>
<main id="views"><noscript>This page draws its pictures with JavaScript, which is switched off here.</noscript></main>
<script type="application/json" id="data">$data</script>
<script>$script</script>
</body>
</html>
""")
STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fcfbf9; --raised: #fff; --ink: #1d1d20; --muted: #6a6a72; --line: #e3e0da;
  --map: 79 140 255; --doubt: 217 119 6; --wrong: #c0392b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #151619; --raised: #1d1e22; --ink: #ececf0; --muted: #9b9ba6; --line: #33343a;
    --map: 66 120 245; --doubt: 245 165 36; --wrong: #ff7b6b;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 62rem; padding: 1.5rem 1.25rem 4rem;
  background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif;
}
h1 { margin: 0; font-size: 1.5rem; font-weight: 650; letter-spacing: -.01em; }
header p { margin: .5rem 0; max-width: 46rem; color: var(--muted); }
header ul {
  display: flex; flex-wrap: wrap; gap: .4rem 1.5rem; margin: 0 0 1rem; padding: 0;
  list-style: none; color: var(--muted); font-size: .85rem;
}
header b { padding: .1rem .35rem .3rem; border-radius: .3rem; color: var(--ink); font-weight: 400; }
.looked { background: rgb(var(--map) / .6); }

#bar {
  position: sticky; top: 0; z-index: 1; margin: 0 -1.25rem; padding: .6rem 1.25rem;
  background: var(--paper); border-bottom: 1px solid var(--line);
}
#choices { display: flex; flex-wrap: wrap; gap: .4rem 1.5rem; }
fieldset { display: flex; align-items: center; gap: .6rem; margin: 0; padding: 0; border: 0; }
legend { float: left; padding: 0; color: var(--muted); font-size: .85rem; }
.segments { display: flex; flex-wrap: wrap; border: 1px solid var(--line); border-radius: .5rem; overflow: hidden; }
.segments label { position: relative; }
.segments input { position: absolute; inset: 0; margin: 0; opacity: 0; cursor: pointer; }
.segments span { display: block; min-width: 2rem; padding: .2rem .55rem; text-align: center; font-size: .85rem; }
.segments input:hover + span { background: rgb(var(--map) / .15); }
.segments input:checked + span { background: rgb(var(--map) / .9); }
.segments input:focus-visible + span { outline: 2px solid var(--ink); outline-offset: -3px; border-radius: .5rem; }
#readout { display: block; min-height: 3em; margin-top: .5rem; font-size: .95rem; overflow-wrap: anywhere; }
#readout .quiet { color: var(--muted); }
@media (min-width: 45rem) { #readout { min-height: 1.5em; } }

section { padding: 1.75rem 0 1rem; border-bottom: 1px solid var(--line); }
section > p { margin: 0; overflow-wrap: anywhere; }
.text-source { color: var(--muted); }
.text-target { font-size: 1.15rem; font-weight: 600; }
.words { display: flex; flex-wrap: wrap; gap: .35rem; margin-top: .75rem; }
.word {
  position: relative; min-width: 2.2rem; padding: .2rem .45rem; border: 0; border-radius: .4rem;
  color: inherit; font: inherit; text-align: center; overflow-wrap: anywhere;
}
.source .word { margin-top: .9rem; background: rgb(var(--map) / var(--w, 0)); transition: background .1s; }
.source small {
  position: absolute; inset: -1.05rem -.5rem auto; font-size: .7rem; line-height: 1rem; white-space: nowrap;
  color: var(--muted);
}
.target .word {
  padding-bottom: .45rem; background-color: var(--raised); outline: 1px solid var(--line); cursor: pointer;
}
.target .word, .doubt {
  background-image: linear-gradient(rgb(var(--doubt) / var(--doubted, .8)) 0 0); background-repeat: no-repeat;
  background-position: 50% calc(100% - 3px); background-size: calc(100% - .7rem) 3px;
}
.target .copied, b.copied { outline: 1px dashed var(--muted); }
.target .word.on { outline: 2px solid var(--ink); }
.unknown { text-decoration: underline wavy var(--wrong) 1px; text-underline-offset: .25em; }

details { margin-top: 1.25rem; }
summary { color: var(--muted); font-size: .85rem; cursor: pointer; }
.scroll { overflow-x: auto; margin-top: .5rem; padding-bottom: .5rem; }
table { border-spacing: 0; font-size: .85rem; }
thead td { padding: 0; }
th { padding: 0; font-weight: 400; color: var(--muted); white-space: nowrap; }
th > span { display: block; max-width: 9rem; overflow: hidden; text-overflow: ellipsis; }
thead th { vertical-align: bottom; }
thead th > span {
  max-width: none; max-height: 9rem; margin: 0 auto; padding-top: .35rem;
  writing-mode: vertical-rl; text-orientation: sideways; transform: rotate(180deg);
}
tbody th { position: sticky; left: 0; padding-right: .5rem; background: var(--paper); text-align: right; }
th.on { color: var(--ink); font-weight: 650; }
tbody td {
  width: var(--cell); min-width: var(--cell); height: var(--cell); padding: 0;
  border: solid var(--line); border-width: 0 1px 1px 0; background: rgb(var(--map) / var(--w));
}
tbody tr:first-child td { border-top-width: 1px; }
tbody td:nth-child(2) { border-left-width: 1px; }
tbody td:hover { outline: 2px solid var(--ink); outline-offset: -2px; }

@media print { #bar { position: static; } details > summary { display: none; } }
"""
SCRIPT = """
"use strict";
const views = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const OPEN_MAPS = 3;  // of so many sentences the map is drawn at once, of the others when it is opened

// Whatever a text holds, it is set as text and never read as markup.
function element(tag, parent, names = "", text = "") {
  const made = parent.appendChild(document.createElement(tag));
  made.className = names;
  made.textContent = text;
  return made;
}

function percent(share) {
  return (100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0) + "%";
}

// ---- Which layer and which head; -1 is the mean of all.

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

// ---- What is pointed at: { sentence, t: target word, s: source word, in the map alone }, or null.

let shown = null;
let pressed = null;  // shown again when nothing is pointed at

function show(at) {
  if (shown && shown.sentence !== at?.sentence) shown.sentence.paint(null, null);
  shown = at;
  at?.sentence.paint(at.t, at.s);
  say(at);
}

function say(at) {
  const readout = byId("readout");
  const plain = text => element("span", readout, "quiet", text);
  const word = text => element("b", element("bdi", readout), "", text);  // bdi: whichever way it is written
  readout.replaceChildren();
  if (!at) {
    plain("No word is pointed at.");
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

  // The map of the chosen layer and head, by target and source word.
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
    element("span", cell, mark, label).title = label;  // a long one is cut
    return cell;
  }

  // Colour the source words by the weights of target word t, or none; name t and s beside the map.
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
"""
