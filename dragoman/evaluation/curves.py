"""The charts of a training in the report, from the points in the run's metrics.csv.

charts(Path("runs/phrasebook"))      # what templates/evaluation.html needs to draw loss and scores as SVG
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from dragoman import reading

METRICS = "metrics.csv"  # of a run: a line "step,tag,value" for each point of its curves
HEAD = "step,tag,value\n"
MOST_POINTS = 300  # of a line; more would make the page large and show nothing new
# The charts: what they show, and their lines as (class, name, tag).
CHARTS = (
    ("loss", (("two", "training", "loss/train"), ("one", "validation", "loss/validation"))),
    ("score", (("one", "BLEU", "score/bleu"), ("two", "chrF", "score/chrf"))),
)
# The charts of several runs: what they show, its tag, and the unit of the other axis.
SHARED_CHARTS = (
    ("training loss", "loss/train", "step"),
    ("validation loss", "loss/validation", "step"),
    ("validation BLEU", "score/bleu", "step"),
    ("validation BLEU", "score/bleu", "minutes"),
)
COLOURS = ("one", "two", "three", "four", "five", "six")  # classes of lines; more runs use them again, dashed

Points = Sequence[tuple[float, float]]


def read_points(run: Path) -> dict[str, Points]:
    """Read the points of a run as (step, value), by tag; none if there is no file or it is from version 0.1.

    A line that a killed process did not finish is left out.
    """
    points: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    if (run / METRICS).exists():
        for line in reading.read(run / METRICS, reading.TABLE).decode().split("\n")[1:-1]:
            step, tag, value = line.split(",")
            points[tag].append((int(step), float(value)))
    return dict(points)


def charts(run: Path) -> list[dict[str, Any]]:
    """Return the lines, ticks and scales of each chart that has points. Only finite points can be drawn.

    The scales map steps and values to pixels on a narrow phone.
    """
    points = read_points(run)
    drawn = [
        _chart(name, "step", [(kind, line, points.get(tag, [])) for kind, line, tag in lines]) for name, lines in CHARTS
    ]
    return [chart for chart in drawn if chart["lines"]]


def shared_charts(
    runs: Mapping[str, Mapping[str, Points]], minutes: Mapping[str, float | None]
) -> list[dict[str, Any]]:
    """Like `charts`, with a line for each run; `runs` has their points, `minutes` how long each was trained."""
    kinds = [f"{COLOURS[i % len(COLOURS)]}{' dashed' * (i >= len(COLOURS))}" for i in range(len(runs))]
    drawn = []
    for name, tag, unit in SHARED_CHARTS:
        lines = [(kind, run, points.get(tag, [])) for kind, (run, points) in zip(kinds, runs.items(), strict=True)]
        if unit == "minutes":
            lines = [(kind, run, _by_minutes(points, runs[run], minutes[run])) for kind, run, points in lines]
        drawn.append(_chart(name, unit, lines))
    return [chart for chart in drawn if chart["lines"]]


def _by_minutes(points: Points, of_run: Mapping[str, Points], minutes: float | None) -> Points:
    """The points with the minutes of training in place of the step. A run of version 0.1 has noted only how many."""
    last = max((each[-1][0] for each in of_run.values()), default=0)
    known = of_run.get("speed/minutes") or ([(last, minutes)] if minutes else [])
    if not known:
        return []
    steps, times = zip((0, 0), *known, strict=True)
    passed = np.interp([step for step, _ in points], steps, times)
    return [(round(float(time), 2), value) for time, (_, value) in zip(passed, points, strict=True)]


def _chart(name: str, unit: str, lines: Sequence[tuple[str, str, Points]]) -> dict[str, Any]:
    finite = [(kind, line, [point for point in points if isfinite(point[1])]) for kind, line, points in lines]
    shown = [(kind, line, _thinned(points)) for kind, line, points in finite if points]
    steps = ticks(max([1, *(points[-1][0] for *_, points in shown)]))
    marks = ticks(max([1.0, *(value for *_, points in shown for _, value in points)]))
    scales = {"x": _scale(steps[-1], 30, 350), "y": _scale(marks[-1], 190, 12)}
    return {"name": name, "unit": unit, "lines": shown, "steps": steps, "marks": marks, **scales}


def ticks(highest: float) -> Sequence[int]:
    """About five round numbers for an axis from 0 to `highest` or a little more."""
    step = 1
    while 6 * step < highest:  # 1, 2, 5, 10, 20, 50, 100, ...
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return range(0, step * (-int(-highest // step)) + 1, step)


def _scale(highest: float, start: float, end: float) -> Callable[[float], float]:
    """A function that maps 0 to start and highest to end."""
    return lambda value: start + (end - start) * value / highest


def _thinned(points: Points) -> Points:
    """Return at most MOST_POINTS points at equal distances, including the last."""
    every = -(-len(points) // MOST_POINTS)
    return points[::-1][::every][::-1]
