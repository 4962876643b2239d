"""The curves of a run, from the points in its metrics.csv: a chart for the report, and curves.svg on its own.

write_curves(Path("runs/phrasebook"))      # runs/phrasebook/curves.svg, which every browser shows
"""

from __future__ import annotations

from collections import defaultdict
from math import isfinite
from pathlib import Path
from typing import Any

from dragoman import reading, storage
from dragoman.evaluation.page import render, scale, ticks

METRICS = "metrics.csv"  # of a run: a line "step,tag,value" for each point of its curves
HEAD = "step,tag,value\n"
CURVES = "curves.svg"
MOST_POINTS = 300  # of a line; more would make the page large and show nothing new
# The panels: what they show, and their lines as (class, name, tag).
PANELS = (
    ("loss", (("two", "training", "loss/train"), ("one", "validation", "loss/validation"))),
    ("score", (("one", "BLEU", "score/bleu"), ("two", "chrF", "score/chrf"))),
)

Points = list[tuple[int, float]]


def read_points(run: Path) -> dict[str, Points]:
    """Read the points of a run as (step, value), by tag; none if there is no file or it is from version 0.1.

    A line that a killed process did not finish is left out.
    """
    points: defaultdict[str, Points] = defaultdict(list)
    if (run / METRICS).exists():
        for line in reading.read(run / METRICS, reading.TABLE).decode().split("\n")[1:-1]:
            step, tag, value = line.split(",")
            points[tag].append((int(step), float(value)))
    return dict(points)


def panels(run: Path) -> list[dict[str, Any]]:
    """What the template `curves.svg` needs for each panel that has points. Only finite ones can be drawn."""
    points = read_points(run)
    drawn = []
    for name, lines in PANELS:
        finite = {tag: [(step, value) for step, value in points.get(tag, []) if isfinite(value)] for *_, tag in lines}
        shown = [(kind, line, _thinned(finite[tag])) for kind, line, tag in lines if finite[tag]]
        if shown:
            steps = ticks(max(1, *(points[-1][0] for *_, points in shown)))
            marks = ticks(max(1.0, *(value for *_, points in shown for _, value in points)))
            places = {"x_position": scale(steps[-1], 30, 350), "y_position": scale(marks[-1], 190, 12)}
            drawn.append({"name": name, "lines": shown, "steps": steps, "marks": marks, **places})
    return drawn


def write_curves(run: Path) -> None:
    """Draw the curves of a run into its curves.svg, which is replaced atomically. Raises OSError."""
    if drawn := panels(run):
        storage.replace_durably(run / CURVES, render("curves.svg", panels=drawn).encode())


def _thinned(points: Points) -> Points:
    """Return at most MOST_POINTS points at equal distances, including the last."""
    every = -(-len(points) // MOST_POINTS)
    return points[::-1][::every][::-1]
