"""List the runs of a folder, the one that saved last first, and the settings in which they differ.

dragoman runs                    # of runs/
dragoman runs other/runs --json
dragoman runs plain wide         # beside each other, see `comparison`

for each in list_runs(Path("runs")):
    print(each.name, each.test)
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dragoman import checkpoint, config_file, settings
from dragoman.console import shorten, table, visible
from dragoman.errors import CheckpointError, ConfigError
from dragoman.serialization import json_bytes, load_json
from dragoman.setting_types import as_word
from dragoman.settings import SETTINGS, Config
from dragoman.translation.loading import RESULT, last_saved, place_of_runs

NAME_WIDTH = 13  # columns of a terminal; the whole line has at most 80
HEADS = ("run", "languages", "state", "best", "at step", "test", "minutes")
WIDTH = 80
MOST_SETTINGS = 8  # lines about settings that differ


@dataclass(frozen=True)
class ListedRun:
    """A run and its scores: BLEU, or the perplexity of a language model."""

    name: str
    languages: str  # such as en-it; several directions are joined by commas
    state: str  # training, finished or stopped
    step: int  # of the last checkpoint
    metric: str  # of both scores: BLEU or perplexity
    validation: float | None  # of the best weights
    best_step: int | None  # of these weights
    test: float | None
    minutes: float | None  # of training, over all resumes
    saved: float  # when it saved last, in seconds since 1970
    settings: dict[str, Any] = field(default_factory=dict)  # in which the listed runs differ


def main(options: argparse.Namespace) -> None:
    """Print the runs as a table, or as JSON. Compare them if they are named."""
    if len(options.runs) > 1 or (options.runs and not last_saved(options.runs[0]) and find_run(options.runs[0])):
        from dragoman.evaluation import comparison  # here, so that the list does not import sacreBLEU

        comparison.print_comparison(options)
        return
    folder = options.runs[0] if options.runs else place_of_runs()
    listed = list_runs(folder)
    if not listed:
        raise CheckpointError(f"{folder} holds no runs: name the folder that does.")
    if options.json:
        sys.stdout.buffer.write(json_bytes([asdict(each) for each in listed]))
    else:
        print("\n".join(run_lines(listed)))


def find_run(name: Path) -> Path | None:
    """The run in the folder `name`, or of that name in the usual place, if it has a checkpoint."""
    places = (name, place_of_runs() / name)
    return next((place for place in places if checkpoint.steps(place / "checkpoints")), None)


def list_runs(folder: Path) -> list[ListedRun]:
    """Return the runs of a folder that have saved, the last first. What cannot be read is left empty."""
    saved = last_saved(folder)
    return with_different_settings(
        [listed_run(run, saved[run]) for run in sorted(saved, key=lambda run: (-saved[run], run))]
    )


def with_different_settings(listed: Sequence[ListedRun]) -> list[ListedRun]:
    """Keep only those settings in which the runs differ."""
    different = [
        key
        for key in SETTINGS
        if not key.startswith("run.") and len({repr(each.settings[key]) for each in listed if each.settings}) > 1
    ]
    return [
        replace(each, settings={key: each.settings[key] for key in different} if each.settings else {})
        for each in listed
    ]


def run_lines(runs: Sequence[ListedRun]) -> list[str]:
    """Format the runs for a terminal, at most WIDTH columns wide, and below them the settings that differ."""
    lines = table([HEADS, *map(_cells, runs)], "<<<<>>>")
    different = list(dict.fromkeys(key for each in runs for key in each.settings))
    lines += ["", "settings that differ:"] if different else []
    for key in different[:MOST_SETTINGS]:
        names: dict[str, list[str]] = defaultdict(list)
        for each in runs:
            if key in each.settings:
                names[as_word(each.settings[key])].append(each.name)
        values = "; ".join(f"{value} ({', '.join(of)})" for value, of in names.items())
        lines.append(shorten(visible(f"  {key}: {values}"), WIDTH))
    more = len(different) - MOST_SETTINGS
    return [*lines, f"  and {more} more, listed by --json"] if more > 0 else lines


def _cells(run: ListedRun) -> tuple[str, ...]:
    name, languages = shorten(visible(run.name), NAME_WIDTH), shorten(visible(run.languages), 9)
    best = "" if run.validation is None else f"{run.metric} {run.validation:.2f}"
    step = "" if run.best_step is None else f"{run.best_step:,}"
    test = "" if run.test is None else f"{run.test:.2f}"
    minutes = "" if run.minutes is None else f"{run.minutes:,.0f}"
    return name, languages, run.state, best, step, test, minutes


def listed_run(run: Path, saved: float) -> ListedRun:
    """Read a run with all its settings. What cannot be read is left empty."""
    result, config, root = _result(run), read_config(run), run / "checkpoints"
    best = checkpoint.get_best(root) or {}
    last = max(map(checkpoint.step_of, checkpoint.steps(root)), default=0)
    metric = "perplexity" if config and config.is_language_model else "BLEU"
    measure = metric.lower()
    finished = result.get("step") == last  # else it was continued since
    test, validation = (_scores(result.get(split)) if finished else {} for split in ("test", "validation"))
    return ListedRun(
        run.name,
        _languages(config),
        _state(run, finished),
        last,
        metric,
        validation.get(measure, _scores(best).get(measure)),
        int(validation["step"]) if "step" in validation else best.get("step"),
        test.get(measure),
        _minutes(checkpoint.step_directory(root, last)),
        saved,
        settings.values(config) if config else {},
    )


def _minutes(saved: Path) -> float | None:
    """How long a run had trained when it made a checkpoint."""
    try:
        return load_json(checkpoint.read_plain(saved / "state.json"))["progress"]["seconds"] / 60
    except (CheckpointError, KeyError, TypeError):
        return None


def _result(run: Path) -> dict[str, Any]:
    try:
        result = load_json(checkpoint.read_plain(run / RESULT))
    except CheckpointError:
        return {}
    return result if isinstance(result, dict) else {}


def _scores(entry: Any) -> dict[str, float]:
    """The numbers of an entry of result.json, which a person may have changed."""
    return (
        {key: value for key, value in entry.items() if type(value) in (int, float)} if isinstance(entry, dict) else {}
    )


def read_config(run: Path) -> Config | None:
    """The settings of a run; None if they cannot be read."""
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
