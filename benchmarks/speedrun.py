"""How good a model is after so many minutes, from raw text: each budget is a training of its own, planned for it.

    python benchmarks/speedrun.py --config configs/multi30k-en-de.yaml --minutes 5 15 30
    python benchmarks/speedrun.py --config mine.yaml --minutes 1 2 5 --seeds 1 2 3 --work /scratch/speedrun

Every budget begins with nothing: the tokenizers are trained, the text is turned into ids, and the model learns with
`training.max_minutes`, by which its learning rate comes down. Validations and checkpoints are part of the minutes.

The columns: the budget; the minutes from the start of the program until the training had ended, imports and preparing
included; the passes over the data that were completed; BLEU of validation and test by the best checkpoint, searched
for as the config says, mean over the seeds and their range. A checkpoint is chosen by validation alone; the test set
says what that came to.
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

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path.append(str(ROOT / "benchmarks"))

import trainings


@dataclass(frozen=True)
class Outcome:
    """What a budget came to."""

    minutes: float
    passes: float
    validation: float
    test: float


def main() -> None:
    """Train by each budget and seed, and print a table."""
    parser = argparse.ArgumentParser(description="Measure what so many minutes of training give.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--minutes", type=float, nargs="+", default=[5.0, 15.0, 30.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--work", type=Path, help="folder for the runs, new ones (default: a temporary one)")
    options, settings = parser.parse_known_args()
    config = trainings.configured(parser, options.config, [*budget(min(options.minutes)), *settings])
    if config.is_language_model or not (config.data.test or config.data.test_fraction):
        parser.error(f"{options.config} has no test set of pairs, by which a budget is told")
    print("| budget | from raw text | passes | validation BLEU | test BLEU |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        work = (options.work or Path(scratch)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        for minutes in options.minutes:
            found = [trained(options.config.resolve(), work, minutes, seed, settings) for seed in options.seeds]
            spent, passes = (statistics.mean(getattr(each, key) for each in found) for key in ("minutes", "passes"))
            scores = " | ".join(spread([getattr(each, key) for each in found]) for key in ("validation", "test"))
            print(f"| {minutes:g} min | {spent:.1f} min | {passes:.0f} | {scores} |", flush=True)


def budget(minutes: float) -> list[str]:
    """The settings of a training that ends when so many minutes are over, and by nothing else."""
    return [f"--training.max_minutes={minutes}", "--training.max_epochs=null", "--training.max_steps=null"]


def trained(config: Path, work: Path, minutes: float, seed: int, settings: list[str]) -> Outcome:
    """Train for so many minutes."""
    run = f"{minutes:g}-minutes-{seed}"
    if (work / run).exists():
        sys.exit(f"speedrun.py: error: {work / run} exists, but a speedrun begins with nothing: take it away.")
    command = trainings.command(work, run, config, [f"--run.seed={seed}", *budget(minutes), *settings])
    begun = time.perf_counter()
    ended = None
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            if line.startswith("finished:"):  # what follows is the test set
                ended = time.perf_counter()
    if process.returncode or ended is None:
        sys.exit(f"speedrun.py: error: train.py ended with {process.returncode}.")
    result = json.loads((work / run / "result.json").read_text(encoding="utf-8"))
    passes = trainings.progress(work / run)["epoch"]
    return Outcome((ended - begun) / 60, passes, result["validation"]["bleu"], result["test"]["bleu"])


def spread(values: list[float]) -> str:
    """The mean of some figures, and from where to where they go."""
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} [{min(values):.2f}, {max(values):.2f}]" if len(values) > 1 else mean


if __name__ == "__main__":
    main()
