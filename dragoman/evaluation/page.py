"""Render a report as a web page: one HTML file without scripts, and nothing loaded from elsewhere.

    Path("test.html").write_text(render_page(asdict(report)), encoding="utf-8")

Texts come from anywhere. The Jinja environment makes every inserted value visible (`console.visible`) and escapes it,
and the page's content security policy forbids scripts and loading in case something slips through.

`templates/charts.html` draws the charts as SVG, in units of a pixel on a narrow phone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dragoman.console import visible

HISTOGRAM_BINS = 20  # of sentence chrF, from 0 to 100
EQUAL = 99.995  # chrF from which a translation counts as equal to its reference
GROUPS = (  # of sentences; one of a single bucket says no more than the scores of all sentences
    ("By direction", "directions"),
    ("By source length, in tokens", "lengths"),
    ("By number of unknown source words", "unknown"),
    ("Typed differently", "typed"),
)
Row = Mapping[str, Any]


def setting_text(value: object) -> str:
    """The value of a setting, as in a config file."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def render(template: str, **values: Any) -> str:
    """Render one of the templates."""
    return _environment.get_template(template).render(values)


def render_page(report: Mapping[str, Any], curves: Sequence[Row] = ()) -> str:
    """Render an `EvaluationReport`, given as the contents of its JSON file, with the curves of the training."""
    return render(
        "evaluation.html",
        report=report,
        curves=curves,
        **_interval_chart(report),
        score_position=scale(100, 0, 318),
        bucket_groups=[(title, report[key]) for title, key in GROUPS if len(report[key]) > 1],
        **_histogram(report["sentences"]),
        **_length_chart(report["sentences"]),
        worst=[(number, report["sentences"][number - 1]) for number in report["worst"]],
    )


def _interval_chart(report: Mapping[str, Any]) -> dict[str, Any]:
    """Scores with their intervals, of this translator, of another one, and of the copied sources."""
    against = report["against"]
    this = f"{report['run']}, step {report['step']}" if against else "this translator"
    rows = []
    for i, figure in enumerate(report["figures"]):
        marks = [("one", this, figure)]
        marks += [("two", against["name"], against["figures"][i])] if against else []
        marks += [("none", "the source copied", report["copied"][i])]
        rows.append((figure["name"], [(*mark, each["score"], each["low"], each["high"]) for *mark, each in marks]))
    marks_at = ticks(max(100, *(high or score for _, marks in rows for *_, score, _, high in marks)))
    return {
        "this": this,
        "interval_rows": rows,
        "interval_ticks": marks_at,
        "interval_position": scale(marks_at[-1], 48, 348),
    }


def _histogram(sentences: Sequence[Row]) -> dict[str, Any]:
    """The distribution of sentence chrF, without the translations that equal their references, which would hide it."""
    scores = sorted(each["chrf"] for each in sentences)
    others = [score for score in scores if score < EQUAL]
    counts = [0] * HISTOGRAM_BINS
    for score in others:
        counts[min(HISTOGRAM_BINS - 1, int(score / (100 / HISTOGRAM_BINS)))] += 1
    median = scores[len(scores) // 2]
    return {"histogram": counts, "equal": len(scores) - len(others), "median": median if median < EQUAL else None}


def _length_chart(sentences: Sequence[Row]) -> dict[str, Any]:
    """Words of translations against words of references; the area of a dot shows its number of sentences."""
    marks_at = ticks(1.3 * max(each["reference_words"] for each in sentences))
    limit = marks_at[-1]
    # Endless translations would squeeze all other dots together, so draw them at the upper edge.
    dots = Counter((each["reference_words"], min(each["words"], limit + 1)) for each in sentences)
    largest = max(dots.values())
    return {
        "dots": [(x, y, count, max(2.0, 6 * (count / largest) ** 0.5), y > limit) for (x, y), count in dots.items()],
        "too_long": sum(count for (_, y), count in dots.items() if y > limit),
        "word_ticks": marks_at,
        "x_position": scale(limit, 26, 344),
        "y_position": scale(limit, 240, 30),
    }


def scale(highest: float, start: float, end: float) -> Callable[[float], float]:
    """A function that maps 0 to start and highest to end; larger values are drawn at the end."""
    return lambda value: start + (end - start) * min(value, highest) / highest


def ticks(highest: float) -> Sequence[int]:
    """About five round numbers for an axis from 0 to `highest` or a little more."""
    step = 1
    while 6 * step < highest:  # 1, 2, 5, 10, 20, 50, 100, ...
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return range(0, step * (-int(-highest // step)) + 1, step)


def _finalize(value: Any) -> Any:
    """Applied to the value of every template expression before it is escaped."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"  # a coordinate
    return visible(value) if isinstance(value, str) else value


def environment(*folders: Path) -> Environment:
    """Return an environment for pages from the templates in these folders, and those of the evaluation's page."""
    made = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made.filters |= FILTERS
    return made


FILTERS = {
    "one_digit": lambda value: f"{value:.1f}",
    "two_digits": lambda value: f"{value:.2f}",
    "signed": lambda value: f"{value:+.2f}".replace("-", "−"),
    "thousands": lambda value: f"{value:,}",
    "p_value": lambda p: f"{p:.3f}" if p >= 0.001 else "<\u00a00.001",
    "setting": setting_text,
    "plain": lambda value: f"{value:g}",
}
_environment = environment()
