"""What the benchmarks that train have in common: the texts, a training as anybody starts it, what it came to.

Use:
    config = configured(parser, path, ["--model.preset=small"])
    sides = write_texts(work / "text", pairs, ("en", "de"))
    train(work, "plain-1", config, ["--run.seed=1"], jobs=2)
    progress(work / "plain-1")["seconds"]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dragoman import command_line, config_file, dataset
from dragoman.errors import ConfigError
from dragoman.settings import Config

ROOT = Path(__file__).resolve().parent.parent

Texts = dict[str, tuple[list[str], list[str]]]  # by split: sources and targets


def configured(parser: argparse.ArgumentParser, path: Path, settings: Sequence[str] = ()) -> Config:
    """The configuration of trainings with these settings; a mistake in it ends the program, before hours of work."""
    try:
        return command_line.override(config_file.load(path), settings)
    except ConfigError as error:
        parser.error(str(error))


def write_texts(folder: Path, pairs: Mapping[str, Sequence[Any]], languages: tuple[str, str]) -> Texts:
    """Write the pairs of each split as text, a sentence a line, and return them as they can be read from there.

    A line break that only Unicode knows would be one line to this program and two to others: it becomes a blank.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts: Texts = {}
    for split, some in pairs.items():
        sources, targets = ([" ".join(text.splitlines()) for text in side] for side in dataset.unzip_pairs(some))
        for language, side in zip(languages, (sources, targets), strict=True):
            (folder / f"{split}.{language}").write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
        texts[split] = sources, targets
    return texts


def command(work: Path, name: str, config: Path, settings: Sequence[str]) -> list[str]:
    """What starts a training, from ROOT. The run becomes work / name."""
    return [
        sys.executable, "train.py", f"--config={config.resolve()}", f"--run.dir={work.resolve()}", f"--run.name={name}",
        *settings,
    ]  # fmt: skip


def train(work: Path, name: str, config: Path, settings: Sequence[str], jobs: int) -> Path:
    """Train a run to its end, unless it is there, and return its folder.

    It takes its part of the processors that so many jobs share, and what it prints goes to a log beside the folder.
    """
    work.mkdir(parents=True, exist_ok=True)
    surroundings = {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // jobs))}
    with (work / f"{name}.log").open("a", encoding="utf-8") as log:
        ended = subprocess.run(
            command(work, name, config, settings), cwd=ROOT, stdout=log, stderr=log, env=surroundings, check=False
        )
    if ended.returncode:
        sys.exit(f"{Path(sys.argv[0]).name}: error: train.py ended with {ended.returncode}: see {log.name}")
    return work / name


def progress(run: Path) -> dict[str, Any]:
    """How far a run has come: the fields of `progress.Progress`, by its last checkpoint."""
    newest = max((run / "checkpoints").glob("step-*"))
    state: dict[str, dict[str, Any]] = json.loads((newest / "state.json").read_text(encoding="utf-8"))
    return state["progress"]
