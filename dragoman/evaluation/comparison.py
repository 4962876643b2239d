"""Compare runs: scores, speed, the settings that differ, and whether the scores of their reports differ significantly.

    dragoman runs plain wide narrow            # prints a table, and writes a page with the curves of all

    compare_runs([Path("runs/plain"), Path("runs/wide")]).differences

Nothing is translated here: the translations are those of each run's report.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from math import prod
from pathlib import Path
from statistics import median

from safetensors import SafetensorError, safe_open

from dragoman import checkpoint, console, storage
from dragoman.console import shorten, table, visible
from dragoman.errors import CheckpointError, ConfigError, DataError
from dragoman.evaluation.curves import Points, read_points, shared_charts
from dragoman.evaluation.metrics import Difference, Measurements, SentenceStatistics, difference
from dragoman.evaluation.page import render_comparison
from dragoman.evaluation.pairs import read_earlier, read_pairs
from dragoman.evaluation.per_direction import tokenizations
from dragoman.evaluation.runs import WIDTH, ListedRun, find_run, listed_run, read_config, with_different_settings
from dragoman.serialization import json_bytes
from dragoman.setting_types import as_word
from dragoman.text.cleaning import AS_WRITTEN
from dragoman.translation.loading import WEIGHTS, last_saved, place_of_runs, suggest_runs

BESIDE = 4  # runs in one table on a terminal
LABEL = 26  # columns of the names of settings there
LONGEST = 40  # columns of a setting
METRICS = ("BLEU", "chrF")  # TER takes much longer

Statistics = dict[str, SentenceStatistics]  # by metric


@dataclass(frozen=True)
class ComparedRun(ListedRun):
    """A run in a comparison. Its name is its path if another has the same name."""

    path: str = ""
    parameters: int | None = None
    tokens_per_second: float | None = None  # of training, the median
    scores: dict[str, float] = field(default_factory=dict)  # by METRICS, of its report


@dataclass(frozen=True)
class RunDifference:
    """The scores of a run minus those of another."""

    run: str
    other: str
    differences: list[Difference]


@dataclass(frozen=True)
class RunComparison:
    """Runs beside each other; `asdict` turns it into JSON."""

    format: int  # version of this record
    name: str  # of the pairs: test, validation, or data- and the name of a file
    pairs: int
    runs: list[ComparedRun]
    differences: list[RunDifference]  # of every two runs that have translated the pairs
    notes: list[str]  # what is missing, and how to get it


def print_comparison(options: argparse.Namespace) -> None:
    """Compare the runs that the command line names, and write the page. Raises CheckpointError and OSError."""
    paths = list(dict.fromkeys(map(_found, options.runs)))
    compared = compare_runs(paths, options.pairs)
    lines = "".join(f"{line}\n" for line in comparison_lines(compared)).encode()
    sys.stdout.buffer.write(json_bytes(asdict(compared)) if options.json else lines)
    sys.stdout.buffer.flush()
    points = {run.name: _points(path) for run, path in zip(compared.runs, paths, strict=True)}
    charts = shared_charts(points, {run.name: run.minutes for run in compared.runs})
    page: Path = options.page or paths[0] / "report" / "runs.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    text = render_comparison(asdict(compared), _rows(compared, compared.runs), charts)
    storage.replace_durably(page, text.encode())
    console.warn(f"wrote the page with the curves to {page}")


def _found(name: Path) -> Path:
    run = find_run(name)
    if run is None:
        raise CheckpointError(f"{name} holds no checkpoint: {suggest_runs(place_of_runs() / name)}")
    return run


def compare_runs(paths: Sequence[Path], name: str = "test") -> RunComparison:
    """Compare runs by their reports of this name. What is missing is left out, and noted."""
    names = [Path(os.path.abspath(path)).name for path in paths]
    labels = [str(path) if names.count(each) > 1 else each for path, each in zip(paths, names, strict=True)]
    listed = [listed_run(path, last_saved(path.parent).get(path, 0.0)) for path in paths]
    listed = [replace(run, name=label) for run, label in zip(with_different_settings(listed), labels, strict=True)]
    notes: list[str] = []
    measured = _measured(paths, listed, name, notes)
    runs = []
    for path, run in zip(paths, listed, strict=True):
        speeds = [value for _, value in _points(path).get("speed/tokens_per_second", [])]
        scores = {metric: statistics.score() for metric, statistics in measured.get(run.name, {}).items()}
        if run.metric == "perplexity" and run.test is not None and name == "test":
            scores["perplexity"] = run.test
        speed = median(speeds) if speeds else None
        more = {"path": str(path), "parameters": _parameters(path, run), "tokens_per_second": speed, "scores": scores}
        runs.append(ComparedRun(**vars(run), **more))
    differences = [
        RunDifference(b, a, [difference(metric, measured[b][metric], measured[a][metric]) for metric in METRICS])
        for a, b in combinations(measured, 2)
    ]
    pairs = len(next(iter(measured.values()))["BLEU"].sums) if measured else 0
    return RunComparison(1, name, pairs, runs, differences, notes)


def _measured(paths: Sequence[Path], runs: Sequence[ListedRun], name: str, notes: list[str]) -> dict[str, Statistics]:
    """Score the report of each run on the pairs of the first. Adds notes on reports that are missing or old."""
    measured: dict[str, Statistics] = {}
    pairs, data, tokenize = [], AS_WRITTEN, ["13a"]
    for path, run in zip(paths, runs, strict=True):
        chosen = f" --split {name}" if name in ("test", "validation") else " --data FILE"
        try:
            if run.metric != "BLEU":
                raise DataError("a language model translates nothing.")
            earlier = read_earlier(path, name, chosen=chosen)
            if not measured:
                config = read_config(path)
                data = config.data if config else AS_WRITTEN
                kept = path / "data" / f"{name}.tsv"  # with all references
                pairs = read_pairs(kept, data) if kept.exists() else [row[:2] for row in earlier.cleaned(data).rows]
                tokenize = tokenizations([source for source, _ in pairs], data)
            translations = earlier.cleaned(data).for_pairs(pairs)
            if not pairs:
                raise DataError("its report has no sentences.")
        except (ConfigError, DataError) as error:
            notes.append(f"{run.name} has no scores here: {error}")
            continue
        measurements = Measurements(translations, [reference for _, reference in pairs], tokenize)
        measured[run.name] = {"BLEU": measurements.bleu, "chrF": measurements.chrf}
        if not earlier.name.endswith(f", step {run.best_step}"):
            notes.append(
                f"{run.name}: the report is of {earlier.name}, but the best weights are of step {run.best_step}."
            )
    return measured


def _points(run: Path) -> dict[str, Points]:
    """The curves of a run; none if they cannot be read."""
    try:
        return read_points(run)
    except (OSError, ValueError):
        return {}


def _parameters(path: Path, run: ListedRun) -> int | None:
    """The number of weights of a run; None if the file of its last checkpoint cannot be read."""
    try:
        with safe_open(checkpoint.step_directory(path / "checkpoints", run.step) / WEIGHTS, "numpy") as weights:
            return sum(prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    except (OSError, SafetensorError):
        return None


def comparison_lines(compared: RunComparison) -> list[str]:
    """Format a comparison for a terminal, at most WIDTH columns wide except for commands."""
    lines: list[str] = []
    for start in range(0, len(compared.runs), BESIDE):
        runs = compared.runs[start : start + BESIDE]
        width = (WIDTH - LABEL) // len(runs) - 2
        rows = [
            [shorten(cell, LABEL if i == 0 else width) for i, cell in enumerate(row)] for row in _rows(compared, runs)
        ]
        lines += [*table(rows, "<" + ">" * len(runs)), ""]
    if compared.differences:
        lines.append(f"differences on the same {compared.pairs:,} {compared.name} pairs, by paired bootstrap:")
        rows = [["", "", "difference", "95 % interval", "p"]]
        for pair in compared.differences:
            names = " − ".join(shorten(visible(name), 13) for name in (pair.run, pair.other))
            for each in pair.differences:
                interval = f"{each.low:+.2f} to {each.high:+.2f}"
                rows.append([names, each.name, f"{each.difference:+.2f}", interval, f"{each.p:.3f}"])
                names = ""
        lines += [*table(rows, "<<>>>"), ""]
    return [*lines, *map(visible, compared.notes)] if compared.notes else lines[:-1]


def _rows(compared: RunComparison, runs: Sequence[ComparedRun]) -> list[list[str]]:
    """The table of some of the runs: a row for each property that one of them has, with a cell for each run."""
    rows = [
        ["", *(run.name for run in runs)],
        ["languages", *(run.languages for run in runs)],
        ["state", *(run.state for run in runs)],
        ["steps", *(_number(run.step) for run in runs)],
        ["best at step", *(_number(run.best_step) for run in runs)],
        ["validation", *(f"{run.metric} {run.validation:.2f}" if run.validation else "" for run in runs)],
        *(
            [f"{compared.name} {metric}", *(_number(run.scores.get(metric), 2) for run in runs)]
            for metric in (*METRICS, "perplexity")
        ),
        ["minutes", *(_number(run.minutes, 1) for run in runs)],
        ["parameters", *(_number(run.parameters) for run in runs)],
        ["tokens/s in training", *(_number(run.tokens_per_second) for run in runs)],
    ]
    different = dict.fromkeys(key for run in compared.runs for key in run.settings)
    rows += [[key, *(as_word(run.settings[key]) if key in run.settings else "" for run in runs)] for key in different]
    return [[shorten(visible(cell), LONGEST) for cell in row] for row in rows if any(row[1:])]


def _number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"
