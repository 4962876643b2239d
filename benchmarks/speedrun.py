"""Measure how good a model is after some minutes of training from raw text.

    python benchmarks/speedrun.py --config configs/multi30k-en-de.yaml --minutes 5 15 30
    python benchmarks/speedrun.py --config mine.yaml --minutes 1 2 5 --seeds 1 2 3 --work /scratch/speedrun

Each time budget is a training of its own that starts from nothing: it trains the tokenizers, turns the text into ids,
and trains the model with `training.max_minutes`, by which its learning rate decays. The minutes include validation and
checkpoints. Settings of train.py may follow.

The columns: the budget; the minutes from the start of the program to the end of training, including imports and
preparation; completed passes over the data; BLEU of validation and test for the best checkpoint, with the search of the
config: mean and range over the seeds. The checkpoint is chosen by validation alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from common import ROOT, fail, last_progress, load_config, mean_and_range, train_command


@dataclass(frozen=True)
class Outcome:
    """The result of a training."""

    minutes: float  # from raw text
    passes: float
    validation: float
    test: float


def main() -> None:
    """Train with each budget and seed, and print a table."""
    parser = argparse.ArgumentParser(description="Measure how good a model is after some minutes.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--minutes", type=float, nargs="+", default=[5.0, 15.0, 30.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--work", type=Path, help="folder for the new runs (default: a temporary one)")
    options, settings = parser.parse_known_args()
    config = load_config(parser, options.config, [*budget(min(options.minutes)), *settings])
    if config.is_language_model or not (config.data.test or config.data.test_fraction):
        parser.error(f"{options.config} has no test set of sentence pairs, which BLEU needs")
    print("| budget | from raw text | passes | validation BLEU | test BLEU |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        work = (options.work or Path(scratch)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        for minutes in options.minutes:
            found = [trained(options.config.resolve(), work, minutes, seed, settings) for seed in options.seeds]
            spent, passes = (statistics.mean(getattr(each, key) for each in found) for key in ("minutes", "passes"))
            scores = " | ".join(
                mean_and_range([getattr(each, key) for each in found]) for key in ("validation", "test")
            )
            print(f"| {minutes:g} min | {spent:.1f} min | {passes:.0f} | {scores} |")


def budget(minutes: float) -> list[str]:
    """Return the settings of a training that is ended by the clock alone."""
    return [f"--training.max_minutes={minutes}", "--training.max_epochs=null", "--training.max_steps=null"]


def trained(config: Path, work: Path, minutes: float, seed: int, settings: list[str]) -> Outcome:
    """Train for some minutes and return the result."""
    run = f"{minutes:g}-minutes-{seed}"
    if (work / run).exists():
        fail(f"{work / run} exists, but a speedrun starts from nothing: remove it or choose another --work.")
    command = train_command(work, run, config, [f"--run.seed={seed}", *budget(minutes), *settings])
    started = time.perf_counter()
    ended = None
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", file=sys.stderr)
            if line.startswith("finished:"):  # the test set follows
                ended = time.perf_counter()
    if process.returncode or ended is None:
        fail(f"train.py ended with {process.returncode}.")
    result = json.loads((work / run / "result.json").read_text(encoding="utf-8"))
    passes = last_progress(work / run)["epoch"]
    return Outcome((ended - started) / 60, passes, result["validation"]["bleu"], result["test"]["bleu"])


if __name__ == "__main__":
    main()
