"""Render a report as a web page: one HTML file without scripts, and nothing loaded from elsewhere.

    Path("test.html").write_text(render_page(asdict(report)), encoding="utf-8")

Texts come from anywhere. The Jinja environment makes every inserted value visible (`console.visible`) and escapes it,
and the page's content security policy forbids scripts and loading in case something slips through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dragoman.console import visible
from dragoman.setting_types import as_word

EQUAL = 99.995  # chrF from which a translation counts as equal to its reference
GROUPS = (("By direction", "directions"), ("By source length, in tokens", "lengths"))  # of sentences


def render_page(report: Mapping[str, Any], charts: Sequence[Mapping[str, Any]] = ()) -> str:
    """Render an `EvaluationReport`, given as the contents of its JSON file, with the charts of the training."""
    return _environment.get_template("evaluation.html").render(
        report=report,
        charts=charts,
        this=f"{report['run']}, step {report['step']}",
        # One bucket says no more than the scores of all sentences.
        bucket_groups=[(title, report[key]) for title, key in GROUPS if len(report[key]) > 1],
        equal=sum(sentence["chrf"] >= EQUAL for sentence in report["sentences"]),
        worst=[(number, report["sentences"][number - 1]) for number in report["worst"]],
    )


def render_comparison(
    comparison: Mapping[str, Any], rows: Sequence[Sequence[str]], charts: Sequence[Mapping[str, Any]]
) -> str:
    """Render a `RunComparison`, given as the contents of its JSON, with the rows of its table and the runs' charts."""
    return _environment.get_template("runs.html").render(comparison=comparison, rows=rows, charts=charts)


def _finalize(value: Any) -> Any:
    """Applied to the value of every template expression before it is escaped."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"  # a coordinate
    return visible(value) if isinstance(value, str) else value


_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_finalize,
)
_environment.filters |= {
    "one_digit": lambda value: f"{value:.1f}",
    "two_digits": lambda value: f"{value:.2f}",
    "three_digits": lambda value: f"{value:.3f}",
    "signed": lambda value: f"{value:+.2f}".replace("-", "−"),
    "thousands": lambda value: f"{value:,}",
    "setting": as_word,
}
