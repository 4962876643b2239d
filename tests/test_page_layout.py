"""Pages in a browser: no label covers another, is cut off, or leaves the window on a phone or a desktop."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import ROOT, tiny_pairs
from dragoman.evaluation import comparison, curves, metrics
from dragoman.evaluation.evaluate import evaluate
from dragoman.evaluation.page import render_comparison, render_page
from dragoman.evaluation.pairs import EarlierTranslations
from dragoman.translation.attention_page import page
from dragoman.translation.results import Candidate, Sentence
from echo import echo
from page_layout import assert_readable, complaints

pytestmark = pytest.mark.slow

FLAWS = {
    "leaves the window": "<p style='white-space: nowrap'>" + "word " * 100,
    "leaves its container": "<div style='width: 3em; white-space: nowrap'>three words here</div>",
    "is cut": "<div style='height: 1em; overflow: hidden'>one<br>two</div>",
    "is broken": "<table style='width: 3em; word-break: break-word'><tr><td>translation<td>reference</table>",
    "lies on": "<p>under</p><p style='margin-top: -2.2em'>above</p>",
    "is too small": "<p style='font-size: 8px'>small print</p>",
    "leaves its drawing": "<svg width='90' height='20'><text x='60' y='15'>label</text></svg>",
    "lies on a bar": "<svg width='90' height='20'><rect x='20' width='70' height='20'/><text y='15'>label</text></svg>",
}


def write_points(run: Path) -> None:
    """Write the curves of a training."""
    tags = [tag for _, lines in curves.CHARTS for *_, tag in lines]
    points = [f"{step},{tag},{step / 40}\n" for step in (0, 40, 4000) for tag in tags]
    (run / curves.METRICS).write_text(curves.HEAD + "".join(points), encoding="utf-8")


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_found(browser: Any, flaw: str) -> None:
    """Guards the rules: each finds a page that breaks it, and none complains about a plain page."""
    window = browser.new_page(viewport={"width": 390, "height": 900})
    window.set_content("<p>" + "A plain text that is longer than a line. " * 5)
    assert complaints(window) == []
    window.set_content(FLAWS[flaw])
    assert any(flaw in each for each in complaints(window))


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize("compared", ["", "short, step 60", "/data/translations/of-another-program/test.en-it.tsv"])
def test_an_evaluation_is_readable(browser: Any, tmp_path: Path, good: bool, compared: str) -> None:
    """Guards names of any length in charts, tables and legends, and cards without content."""
    sources = ["My name is number, and I live in: (see)!", *(source for source, _ in tiny_pairs(40))]
    pairs = [(source, source if good else f"{source} {source}"[:-9]) for source in sources]
    earlier = [EarlierTranslations(compared, [(*pair, "name") for pair in pairs])] if compared else []
    translator = echo()
    translator.step, translator.path = 1200, Path("runs/echo/checkpoints/step-00001200")
    write_points(tmp_path)
    for times, scrolled in (1, ""), (3, ".wide"):
        report = asdict(evaluate(translator, pairs, earlier=earlier * times))
        written = tmp_path / "test.html"
        written.write_text(render_page(report, curves.charts(tmp_path)), encoding="utf-8")
        assert_readable(browser, written.as_uri(), scrolled=scrolled)
        assert (compared or "source copied") in written.read_text(encoding="utf-8")


@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_comparison_of_runs_is_readable(browser: Any, tmp_path: Path, count: int) -> None:
    """Guards the table and the legends of many runs; the rest of a wide table can be scrolled into view."""
    write_points(tmp_path)
    names = [f"run-with-a-name-{i}" for i in range(count)]
    differences = [metrics.Difference("BLEU", -12.34, -15.0, -10.0, 0.002)] * 2
    pairs = [comparison.RunDifference(name, names[0], differences) for name in names[1:]]
    compared = comparison.RunComparison(1, "test", 5000, [], pairs, ["a run has no scores: create them with a command"])
    rows = [["", *names], *([key, *["1,234,567"] * count] for key in ("parameters", "training.learning_rate"))]
    points = dict.fromkeys(names, curves.read_points(tmp_path))
    charts = curves.shared_charts(points, dict.fromkeys(names, 70.0))
    written = tmp_path / "runs.html"
    written.write_text(render_comparison(asdict(compared), rows, charts), encoding="utf-8")
    assert_readable(browser, written.as_uri(), scrolled=".wide")


def test_attention_is_readable(browser: Any, tmp_path: Path) -> None:
    """Guards the shares above the words and the labels of the map."""
    texts = "My name is Christopher , and I live here . [EOS]", "Mi chiamo Christopher e abito qui . [EOS]"
    source, target = map(str.split, texts)
    weights = np.full((3, 4, len(target), len(source)), 0.1)
    candidate = Candidate(texts[1], [], target, [-0.5] * len(target), -0.5, True, {2: 3})
    sentence = Sentence(texts[0], texts[0], [], [], source, [3], [candidate])
    written = tmp_path / "attention.html"
    written.write_text(page([(sentence, candidate, weights)]), encoding="utf-8")
    assert_readable(browser, written.as_uri(), lambda opened: opened.locator("main button").nth(12).hover(), ".scroll")


def test_the_documentation_is_readable(browser: Any, tmp_path: Path) -> None:
    """Guards names in tables and lists; the rest of a wide table or of a command can be scrolled into view."""
    pytest.importorskip("material", reason="needs mkdocs-material: pip install -e '.[dev]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    written = sorted(tmp_path.glob("*.html"))
    assert len(written) > 10
    for each in written:
        scrolled = "pre" if each.stem == "settings" else "pre, .md-typeset__scrollwrap"
        assert_readable(browser, each.as_uri(), scrolled=scrolled)
