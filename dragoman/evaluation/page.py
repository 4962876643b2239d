"""Pages for a browser, each in one file: no script, no font or picture from elsewhere, light or dark as the reader is.

Use:
    Path("test.html").write_text(evaluation(asdict(report)), encoding="utf-8")

Texts on a page come from anywhere. Whatever a template inserts is first made visible, then escaped, by the environment
and not by each template; a page's own policy forbids scripts and loading even if something slipped through.

A new kind of page is a template that extends "page", and a function that fills it. Pictures are SVG, drawn by macros in
units of a pixel on a narrow phone; colours are those of the style sheet, so that they change with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from dragoman.console import visible


def written(value: object) -> str:
    """The value of a setting as it stands in a config file."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


_STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf6; --card: #ffffff; --ink: #1f2126; --soft: #666a73; --line: #e2dfd7;
  --one: #2b67b1; --two: #c2761a; --none: #9a9da5; --alarm: #b3361f; --alarm-card: #fdf0ec; --well: #2e7d4f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16181c; --card: #1e2126; --ink: #e7e5e0; --soft: #9ba0aa; --line: #33373f;
    --one: #79b0f2; --two: #e9a957; --none: #747984; --alarm: #ff9d87; --alarm-card: #33211d; --well: #7cc796;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.1rem 4rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%; overflow-wrap: anywhere;
}
h1, h2 { font-family: ui-serif, Georgia, "Noto Serif", "Liberation Serif", serif; font-weight: 600; line-height: 1.2; }
h1 { margin: 0 0 .3rem; font-size: 2rem; }
h2 { margin: 2.6rem 0 .6rem; font-size: 1.3rem; }
p { margin: .4rem 0; max-width: 46rem; }
.soft, figcaption, dt, th { color: var(--soft); }
.soft, figcaption { font-size: .875rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(6.2rem, 1fr)); gap: .6rem; margin: 1.4rem 0; }
.tile, figure, .sentence { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
.tile { padding: .6rem .75rem .55rem; }
.tile b { display: block; white-space: nowrap; font-size: 1.6rem; font-weight: 600; line-height: 1.25; }
.tile .soft { display: block; line-height: 1.35; font-size: .8rem; }
.alarms { margin: 0; padding: 0; list-style: none; }
.alarms li {
  margin: .5rem 0; padding: .6rem .9rem; background: var(--alarm-card); border-left: .25rem solid var(--alarm);
  border-radius: .3rem;
}
.well { color: var(--well); }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: .9rem; }
figure { margin: 0; padding: .8rem .9rem .9rem; }
figure h3 { margin: 0 0 .4rem; font-size: 1rem; }
figure p { font-size: .875rem; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font-size: 13px; fill: var(--ink); }
svg .soft { font-size: 12px; fill: var(--soft); }
svg .grid { stroke: var(--line); }
svg .axis { stroke: var(--none); }
.one { fill: var(--one); } .two { fill: var(--two); } .none { fill: var(--none); } .bad { fill: var(--alarm); }
svg .dot { fill-opacity: .55; }
svg .interval { stroke-width: 3; stroke-opacity: .5; stroke-linecap: round; }
svg line.one { stroke: var(--one); } svg line.two { stroke: var(--two); } svg line.none { stroke: var(--none); }
.key { display: inline-block; width: .7em; height: .7em; margin: 0 .3em 0 .8em; border-radius: .15em; }
.key:first-child { margin-left: 0; }
.key.one { background: var(--one); } .key.two { background: var(--two); } .key.none { background: var(--none); }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .94rem; }
th { font-weight: 500; font-size: .875rem; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
.sentence { margin: .7rem 0; padding: .6rem .9rem .7rem; }
.sentence dl, .facts { margin: 0; display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; }
.sentence header { display: flex; justify-content: space-between; margin-bottom: .2rem; }
dt { font-size: .875rem; line-height: 1.7; }
dd { margin: 0; min-width: 0; }
dd.text { unicode-bidi: isolate; }
dd.translation { font-weight: 500; }
.facts { font-size: .9rem; }
@media (max-width: 32rem) {
  .sentence dl { display: block; }
  .sentence dt { line-height: 1.4; margin-top: .3rem; }
  .facts { display: block; }
  .facts dd { margin-bottom: .4rem; }
  h1 { font-size: 1.6rem; }
  body { padding: 1.2rem .8rem 3rem; }
  table, th { font-size: .84rem; }
  th, td { padding: .3rem .35rem; }
}
"""
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{% block title %}{% endblock %}</title>
<style>{{ style | safe }}</style>
</head>
<body>
{% block body %}{% endblock %}
</body>
</html>
"""
# Pictures are 360 wide. `scale(v)` gives the place of a value along an axis, and was made by `_scale`.
_PICTURES = """
{% macro upright(scale, ticks, height) %}
{% for tick in ticks %}
<line class="grid" x1="{{ scale(tick) }}" y1="0" x2="{{ scale(tick) }}" y2="{{ height }}"/>
<text class="soft" x="{{ scale(tick) }}" y="{{ height + 14 }}" text-anchor="middle">{{ tick | plain }}</text>
{% endfor %}
{% endmacro %}

{# Scores as dots on their intervals: rows of (label, [(class, name, score, low, high)]). #}
{% macro intervals(rows, scale, ticks, label) %}
{% set step = 16 %}
{% set height = rows | sum(attribute=2) * step + rows | length * 10 %}
<svg viewBox="0 0 360 {{ height + 20 }}" role="img" aria-label="{{ label }}">
{{ upright(scale, ticks, height) }}
{% set place = namespace(y=4) %}
{% for name, marks, _ in rows %}
<text x="0" y="{{ place.y + marks | length * step / 2 + 4 }}">{{ name }}</text>
{% for kind, whose, score, low, high in marks %}
{% set y = place.y + step / 2 + loop.index0 * step %}
<g><title>{{ name }}, {{ whose }}: {{ score | two }}
{%- if low is not none %} ({{ low | two }} to {{ high | two }}){% endif %}</title>
{% if low is not none %}
<line class="{{ kind }} interval" x1="{{ scale(low) }}" x2="{{ scale(high) }}" y1="{{ y }}" y2="{{ y }}"/>
{% endif %}
<circle class="{{ kind }}" cx="{{ scale(score) }}" cy="{{ y }}" r="3.5"/></g>
{% endfor %}
{% set place.y = place.y + marks | length * step + 10 %}
{% endfor %}
</svg>
{% endmacro %}

{# BLEU and chrF of each bucket, side by side. #}
{% macro bars(buckets, scale, ticks, label) %}
{% set step = 36 %}
{% set height = buckets | length * step + 2 %}
<svg viewBox="0 0 360 {{ height + 20 }}" role="img" aria-label="{{ label }}">
{{ upright(scale, ticks, height) }}
{% for bucket in buckets %}
{% set top = loop.index0 * step + 5 %}
<text x="0" y="{{ top + 10 }}">{{ bucket.name }}</text>
<text class="soft" x="0" y="{{ top + 23 }}">{{ bucket.pairs | count }} pair{{ "" if bucket.pairs == 1 else "s" }}</text>
{% for kind, metric, score in (("one", "BLEU", bucket.bleu), ("two", "chrF", bucket.chrf)) %}
{% set y = top + loop.index0 * 14 %}
<g><title>{{ bucket.name }}: {{ metric }} {{ score | two }}</title>
<rect class="{{ kind }}" x="{{ scale(0) }}" y="{{ y }}" width="{{ scale(score) - scale(0) }}" height="12" rx="2"/>
<text class="soft" x="{{ scale(score) + 4 }}" y="{{ y + 10 }}">{{ score | one }}</text></g>
{% endfor %}
{% endfor %}
</svg>
{% endmacro %}

{# How many sentences have which score: counts of equal bins from 0 to 100. #}
{% macro histogram(counts, label) %}
{% set most = counts | max %}
{% set bin = 100 / counts | length %}
{% set width = 344 / counts | length %}
<svg viewBox="0 0 360 222" role="img" aria-label="{{ label }}">
{% for count in counts %}
{% set x = 8 + loop.index0 * width %}
{% set height = 180 * count / most %}
<g><title>{{ (loop.index0 * bin) | plain }} to {{ (loop.index * bin) | plain }}: {{ count | count }}</title>
<rect class="two" x="{{ x + 1 }}" y="{{ 192 - height }}" width="{{ width - 2 }}" height="{{ height }}" rx="2"/>
{% if count == most %}
<text class="soft" x="{{ x + width / 2 }}" y="{{ 188 - height }}" text-anchor="middle">{{ count | count }}</text>
{% endif %}
</g>
{% endfor %}
<line class="axis" x1="8" x2="352" y1="192.5" y2="192.5"/>
{% for tick in (0, 20, 40, 60, 80, 100) %}
<text class="soft" x="{{ 8 + tick * 3.44 }}" y="207" text-anchor="middle">{{ tick }}</text>
{% endfor %}
<text class="soft" x="352" y="221" text-anchor="end">chrF of a sentence</text>
</svg>
{% endmacro %}

{# Dots of (x, y, how many, beyond): the line is where both are equal. #}
{% macro lengths(dots, across, up, ticks, label) %}
{% set left, right, bottom, top = across(0), across(ticks[-1]), up(0), up(ticks[-1]) %}
<svg viewBox="0 0 360 262" role="img" aria-label="{{ label }}">
{% for tick in ticks %}
<line class="grid" x1="{{ across(tick) }}" x2="{{ across(tick) }}" y1="{{ bottom }}" y2="{{ top }}"/>
<line class="grid" x1="{{ left }}" x2="{{ right }}" y1="{{ up(tick) }}" y2="{{ up(tick) }}"/>
<text class="soft" x="{{ across(tick) }}" y="{{ bottom + 15 }}" text-anchor="middle">{{ tick | plain }}</text>
{% if tick %}
<text class="soft" x="{{ left - 5 }}" y="{{ up(tick) + 4 }}" text-anchor="end">{{ tick | plain }}</text>
{% endif %}
{% endfor %}
<line class="axis" x1="{{ left }}" y1="{{ bottom }}" x2="{{ right }}" y2="{{ top }}" stroke-dasharray="4 3"/>
{% for x, y, number, radius, beyond in dots %}
<circle class="dot {{ 'bad' if beyond else 'one' }}" cx="{{ across(x) }}" cy="{{ up(y) }}" r="{{ radius }}">
<title>{{ number | count }} with {{ x }} words in the reference
{%- if not beyond %}, {{ y }} in the translation{% endif %}</title></circle>
{% endfor %}
<text class="soft" x="{{ right }}" y="{{ bottom + 29 }}" text-anchor="end">words of the reference</text>
<text class="soft" x="0" y="9">words of the translation</text>
</svg>
{% endmacro %}
"""
_EVALUATION = """\
{% extends "page" %}
{% import "pictures" as pictures %}
{% block title %}{{ report.run }}: BLEU {{ report.figures[0].score | one }} on {{ report.name }}{% endblock %}
{% block body %}
<h1><bdi>{{ report.run }}</bdi></h1>
<p class="soft">{{ report.source_lang }} to {{ report.target_lang }} · step {{ report.step | count }} ·
{{ report.pairs | count }} {{ report.name }} pair{{ "s" if report.pairs != 1 }}</p>

<div class="tiles">
{% for figure in report.figures %}
<div class="tile">
<span class="soft">{{ figure.name }} {{ "↑" if loop.index0 < 2 else "↓" }}</span>
<b>{{ figure.score | one }}</b>
{% if figure.low is not none %}
<span class="soft">{{ figure.low | one }} to {{ figure.high | one }}</span>
{% endif %}
</div>
{% endfor %}
</div>
<p class="soft">↑ more is better, up to 100. ↓ less is better: edits per 100 words (TER, WER) or letters (CER) of the
reference. Below a score is its 95&nbsp;% interval: with other test sentences of the same kind the score would lie
within it 19 times out of 20.</p>

<h2>Alarms</h2>
{% if report.alarms %}
<ul class="alarms">
{% for alarm in report.alarms %}
<li><bdi>{{ alarm.text }}</bdi>
{% if alarm.sentences %}
<span class="soft">Sentence {{ alarm.sentences[:10] | join(", ") }}{{ " …" if alarm.sentences | length > 10 }}</span>
{% endif %}
</li>
{% endfor %}
</ul>
{% else %}
<p><span class="well">None.</span> Looked for: translations that are empty or cut off, that repeat themselves, that are
all the same, that are their source again, or hold [UNK]; a wrong length overall; scores no better than the source’s
own.</p>
{% endif %}

<h2>Compared</h2>
<div class="pictures">
<figure>
{{ pictures.intervals(compared, along, ticks, "scores with their intervals") }}
<figcaption><span class="key one"></span>this translator
{% if report.against %}
<span class="key two"></span><bdi>{{ report.against.name }}</bdi>
{% endif %}
<span class="key none"></span>the source copied</figcaption>
</figure>
<figure>
<div class="wide"><table>
<tr><th></th><th>score</th>{% if report.against %}<th>there</th>{% endif %}<th>source copied</th></tr>
{% for figure in report.figures %}
<tr><td>{{ figure.name }}</td><td>{{ figure.score | two }}</td>
{% if report.against %}
<td>{{ report.against.figures[loop.index0].score | two }}</td>
{% endif %}
<td>{{ report.copied[loop.index0].score | two }}</td></tr>
{% endfor %}
</table></div>
{% if report.against %}
<div class="wide"><table>
<tr><th></th><th>difference</th><th>95 % interval</th><th>p</th></tr>
{% for each in report.against.differences %}
<tr><td>{{ each.name }}</td><td>{{ each.difference | signed }}</td>
<td>{{ each.low | signed }} to {{ each.high | signed }}</td><td>{{ each.p | chance }}</td></tr>
{% endfor %}
</table></div>
<p class="soft">p: how often chance alone makes as large a difference between two equally good translators. Below 0.05
it is usually taken for real.</p>
{% endif %}
</figure>
</div>

<h2>Where it is good, and where it is not</h2>
<div class="pictures">
{% for title, buckets in parted %}
<figure><h3>{{ title }}</h3>
{{ pictures.bars(buckets, bar, (0, 20, 40, 60, 80, 100), title) }}
<figcaption><span class="key one"></span>BLEU<span class="key two"></span>chrF</figcaption></figure>
{% endfor %}
<figure><h3>Sentence by sentence</h3>
{{ pictures.histogram(counts, "how many sentences have which chrF") }}
<figcaption>Half of the sentences score {{ median | one }} or more.</figcaption></figure>
<figure><h3>Length</h3>
{{ pictures.lengths(dots, across, up, words, "words of translations and references") }}
<figcaption>{{ report.length_ratio | two }} words for each word of the references. A larger dot is more sentences.
{{ beyond ~ " longer than the picture (red)." if beyond }}</figcaption></figure>
</div>

<h2>The worst sentences</h2>
<p class="soft">By chrF, which knows nothing of meaning: a good translation in other words can stand here, too.</p>
{% for number, row in worst %}
<article class="sentence">
<header class="soft"><span>Sentence {{ number | count }}</span><span>chrF {{ row.chrf | one }}</span></header>
<dl>
{% for kind, text, language in (
  ("source", row.source, report.source_lang),
  ("reference", row.reference, report.target_lang),
  ("translation", row.translation, report.target_lang),
) %}
<dt>{{ kind }}</dt>
<dd class="text {{ kind }}" dir="auto" lang="{{ language if "," not in language }}">{{ text or "(empty)" }}</dd>
{% endfor %}
</dl></article>
{% endfor %}

<h2>How this was measured</h2>
<dl class="facts">
<dt>weights</dt><dd><bdi>{{ report.checkpoint }}</bdi></dd>
<dt>search</dt><dd>
{%- for key, value in report.decoding.items() -%}
{{ key }} {{ value | written }}{{ ", " if not loop.last }}
{%- endfor %}</dd>
{% for figure in report.figures %}
<dt>{{ figure.name }}</dt><dd>{{ figure.signature }}</dd>
{% endfor %}
</dl>
{% endblock %}
"""


def _finalize(value: Any) -> Any:
    """What every expression of a template goes through before it is escaped."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"  # a coordinate
    return visible(value) if isinstance(value, str) else value


_environment = Environment(
    loader=DictLoader({"page": _PAGE, "pictures": _PICTURES, "evaluation": _EVALUATION}),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_finalize,
)
_environment.globals["style"] = _STYLE
_environment.filters |= {
    "one": lambda value: f"{value:.1f}",
    "two": lambda value: f"{value:.2f}",
    "signed": lambda value: f"{value:+.2f}".replace("-", "−"),
    "count": lambda value: f"{value:,}",
    "chance": lambda p: f"{p:.3f}" if p >= 0.001 else "< 0.001",
    "written": written,
    "plain": lambda value: f"{value:g}",
}


def evaluation(report: Mapping[str, Any]) -> str:
    """The page of an `evaluate.Report`, given as what its JSON file holds."""
    against = report["against"]
    compared = []
    for i, figure in enumerate(report["figures"]):
        marks = [("one", "this translator", figure)]
        marks += [("two", against["name"], against["figures"][i])] if against else []
        marks += [("none", "the source copied", report["copied"][i])]
        places = [(kind, whose, each["score"], each["low"], each["high"]) for kind, whose, each in marks]
        compared.append((figure["name"], places, len(places)))
    highest = max(each[4] or each[2] for _, marks, _ in compared for each in marks)
    ticks = _ticks(max(100, highest))

    rows = report["sentences"]
    scores = sorted(row["chrf"] for row in rows)
    counts = [0] * 20
    for value in scores:
        counts[min(19, int(value / 5))] += 1

    # A translation that never ends would leave no room for the others: such are drawn at the upper edge.
    words = _ticks(1.3 * max(row["reference_words"] for row in rows))
    seen = Counter((row["reference_words"], min(row["words"], words[-1] + 1)) for row in rows)
    most = max(seen.values())
    dots = [(x, y, number, max(2.0, 6 * (number / most) ** 0.5), y > words[-1]) for (x, y), number in seen.items()]
    return _environment.get_template("evaluation").render(
        report=report,
        compared=compared,
        along=_scale(ticks[-1], 48, 348),
        ticks=ticks,
        bar=_scale(100, 78, 328),
        parted=[
            *([("By direction", report["directions"])] if report["directions"] else []),
            ("By source length, in tokens", report["lengths"]),
            ("By unknown source words", report["unknown"]),
        ],
        counts=counts,
        median=scores[len(scores) // 2],
        dots=dots,
        beyond=sum(number for _, _, number, _, beyond in dots if beyond),
        across=_scale(words[-1], 26, 350),
        up=_scale(words[-1], 228, 18),
        words=words,
        worst=[(number, rows[number - 1]) for number in report["worst"]],
    )


def _scale(highest: float, start: float, end: float) -> Any:
    """The place between start and end of a value between 0 and highest."""
    return lambda value: start + (end - start) * min(value, highest) / highest


def _ticks(highest: float) -> Sequence[int]:
    """About five round numbers from 0 to highest or a little more."""
    step = 1
    while 6 * step < highest:  # 1, 2, 5, 10, 20, 50, 100, ...
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return range(0, step * (-int(-highest // step)) + 1, step)
