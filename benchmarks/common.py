"""Shared by the benchmarks: trainings as separate processes, and parallel text.

Import it before `dragoman`: it puts the repository first on sys.path, so that a benchmark measures this clone. It also
makes output line-buffered, so that each row appears at once, even through a pipe.

    config = load_config(parser, path, ["--model.preset=small"])
    run = train(work, "plain-1", path, ["--run.seed=1"], jobs=2)
    last_progress(run)["seconds"]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(line_buffering=True)
# As `dragoman.__main__` sets them, before torch is imported. A server sets its own.
SET = {"GOMP_SPINCOUNT": "2000", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "20000"}
os.environ |= SET | os.environ

from dragoman import command_line, config_file
from dragoman.errors import ConfigError
from dragoman.settings import Config


def fail(message: str) -> NoReturn:
    """End the benchmark with an error message."""
    sys.exit(f"{Path(sys.argv[0]).name}: error: {message}")


def number_formats(device: torch.device) -> list[str]:
    """Return the number formats to measure on a device: bfloat16 only where training with `auto` takes it."""
    import torch

    from dragoman.device import choose_precision

    return ["float32", *["bfloat16"] * (choose_precision("auto", device) == torch.bfloat16)]


# Trainings


def load_config(parser: argparse.ArgumentParser, path: Path, settings: Sequence[str] = ()) -> Config:
    """Load a config with settings from the command line. A mistake ends the program now, not after hours of work."""
    try:
        return command_line.override(config_file.load(path), settings)
    except ConfigError as error:
        parser.error(str(error))


def train(work: Path, name: str, config: Path, settings: Sequence[str], jobs: int) -> Path:
    """Train a run to its end, unless that is done, and return its folder. The output goes to a log beside the folder.

    Each of `jobs` simultaneous trainings gets an equal share of the processors.
    """
    work.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // jobs))}
    words = ["train.py", f"--config={config.resolve()}", f"--run.dir={work.resolve()}", f"--run.name={name}", *settings]
    with (work / f"{name}.log").open("a", encoding="utf-8") as log:
        done = subprocess.run([sys.executable, *words], cwd=ROOT, stdout=log, stderr=log, env=environment, check=False)
    if done.returncode:
        fail(f"train.py ended with {done.returncode}: see {log.name}")
    return work / name


def last_progress(run: Path) -> dict[str, Any]:
    """Read the progress of a run from its last checkpoint: the fields of `progress.Progress`."""
    newest = max((run / "checkpoints").glob("step-*"))
    state: dict[str, dict[str, Any]] = json.loads((newest / "state.json").read_text(encoding="utf-8"))
    return state["progress"]


# Texts


def write_made_up_text(prefix: Path, count: int, kinds: int) -> None:
    """Write `count` pairs of random sentences, as long as picture captions, to prefix.en and prefix.de.

    They use `kinds` different words. As in a language (Zipf's law), the word of rank r has frequency 1 / (r + 3).
    """
    random, table = np.random.default_rng(1), _words(kinds)
    with Path(f"{prefix}.en").open("wb") as source, Path(f"{prefix}.de").open("wb") as target:
        for start in range(0, count, 100_000):
            rows = min(100_000, count - start)
            lengths = np.maximum(3, random.normal(13, 4, rows).round())
            others = np.maximum(3, (lengths * random.normal(0.97, 0.12, rows)).round())
            for file, each in ((source, lengths), (target, others)):
                ends = each.cumsum().astype(int)
                # The inverse of the distribution function maps a number between 0 and 1 to a rank.
                ranks = 3 * (kinds / 3 + 1) ** random.random(ends[-1]) - 3
                text = table[ranks.astype(int)]
                text[ends - 1, 8] = ord("\n")
                file.write(text[text > 0].tobytes())


def _words(kinds: int) -> np.ndarray:
    """Make words of two to eight letters, frequent ones short: (kinds, 9) bytes, padded with zeros, a blank last."""
    syllables = np.array([[c, v] for c in b"bcdfglmnprstvz" for v in b"aeiou"], np.uint8)
    found = np.zeros((kinds, 9), np.uint8)
    found[:, 8] = ord(" ")
    rest = np.arange(kinds)
    for place in range(4):
        more = rest >= 0
        found[more, 2 * place : 2 * place + 2] = syllables[rest[more] % len(syllables)]
        rest = rest // len(syllables) - 1
    return found
