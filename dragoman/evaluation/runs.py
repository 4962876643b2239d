"""List the runs of a folder, the one that saved last first.

dragoman runs                    # of runs/
dragoman runs other/runs --json

for each in list_runs(Path("runs")):
    print(each.name, each.test)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dragoman import checkpoint, config_file
from dragoman.console import display_width, fit, shorten, visible
from dragoman.errors import CheckpointError, ConfigError
from dragoman.serialization import json_bytes, load_json
from dragoman.settings import Config
from dragoman.translation.loading import RESULT, last_saved

NAME_WIDTH = 20  # columns of a terminal; the whole line has at most 80
HEADS = ("run", "languages", "state", "step", "valid.", "test", "saved")


@dataclass(frozen=True)
class ListedRun:
    """A run and its scores: BLEU, or the perplexity of a language model."""

    name: str
    languages: str  # such as en-it; several directions are joined by commas
    state: str  # training, finished or stopped
    step: int  # of the last checkpoint
    validation: float | None  # of the best weights
    test: float | None
    saved: float  # when it saved last, in seconds since 1970


def main(options: argparse.Namespace) -> None:
    """Print the runs as a table, or as JSON."""
    found = list_runs(options.folder)
    if not found:
        raise CheckpointError(f"{options.folder} holds no runs: name the folder that does.")
    if options.json:
        sys.stdout.buffer.write(json_bytes([asdict(each) for each in found]))
    else:
        print("\n".join(run_lines(found)))


def list_runs(folder: Path) -> list[ListedRun]:
    """Return the runs of a folder that have saved, the last first. What cannot be read is left empty."""
    saved = last_saved(folder)
    return [_listed(run, saved[run]) for run in sorted(saved, key=lambda run: (-saved[run], run))]


def run_lines(runs: Sequence[ListedRun]) -> list[str]:
    """Format the runs for a terminal, at most 80 columns wide."""
    rows = [HEADS, *(_cells(each) for each in runs)]
    widths = [max(display_width(row[i]) for row in rows) for i in range(len(HEADS))]
    sides = ("<", "<", "<", ">", ">", ">", "<")
    return [
        "  ".join(fit(cell, width, side) for cell, width, side in zip(row, widths, sides, strict=True)).rstrip()
        for row in rows
    ]


def _cells(run: ListedRun) -> tuple[str, ...]:
    scores = ("" if value is None else f"{value:.2f}" for value in (run.validation, run.test))
    when = time.strftime("%Y-%m-%d", time.localtime(run.saved))
    name, languages = shorten(visible(run.name), NAME_WIDTH), shorten(visible(run.languages), 9)
    return (name, languages, run.state, f"{run.step:,}", *scores, when)


def _listed(run: Path, saved: float) -> ListedRun:
    result, config, root = _result(run), _config(run), run / "checkpoints"
    best = checkpoint.get_best(root) or {}
    last = max(map(checkpoint.step_of, checkpoint.steps(root)), default=0)
    plain = ListedRun(run.name, _languages(config), _state(run, bool(result)), last, None, None, saved)
    measure = "perplexity" if config and config.is_language_model else "bleu"
    test, validation = result.get("test") or {}, result.get("validation") or {}
    return replace(plain, validation=validation.get(measure, best.get(measure)), test=test.get(measure))


def _result(run: Path) -> dict[str, Any]:
    try:
        return load_json(checkpoint.read_plain(run / RESULT))
    except CheckpointError:
        return {}


def _config(run: Path) -> Config | None:
    try:
        return config_file.load(run / "config.yaml")
    except (OSError, ConfigError):
        return None


def _languages(config: Config | None) -> str:
    if config is None:
        return ""
    data = config.data
    pairs = data.several or [(data.source_lang, data.target_lang)]
    return ",".join("-".join(filter(None, pair)) for pair in pairs)


def _state(run: Path, finished: bool) -> str:
    """What a run is doing. One that is being trained holds its lock."""
    lock = run / ".lock"
    if lock.exists():
        try:
            with FileLock(lock, timeout=0):
                pass
        except Timeout:
            return "training"
        except OSError:  # a folder that cannot be written
            pass
    return "finished" if finished else "stopped"
