"""Measure the gain of a setting: train one config several times, with that setting changed and with several seeds.

    python benchmarks/recipes.py --config configs/multi30k-en-de.yaml --work /scratch/recipes --jobs 2
    python benchmarks/recipes.py --config mine.yaml --work /scratch/recipes --seeds 1 --only plain muon \
        --change "narrow: --model.d_model 64 --model.d_ff 256"

A recipe is the config as it is (`plain`), or the config with the settings of one entry of CHANGES or --change. All
seeds of a recipe are trained before the next recipe starts. Finished runs in `--work` are not trained again, and
interrupted ones are resumed.

The columns: BLEU of the validation pairs for the best checkpoint, as measured during training, mean and standard
deviation over the seeds; the gain over `plain`, mean and standard error over the seeds that both have; the step of that
checkpoint; the minutes of training, which depend on the load of the machine. Keep the test set for the recipe that
you choose: `dragoman evaluate` scores it.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from common import last_progress, load_config, train

PLAIN = "plain"
CHANGES = {
    "no smoothing": "--training.label_smoothing 0",
    "smoothing 0.2": "--training.label_smoothing 0.2",
    "dropout 0.1": "--model.dropout 0.1",
    "attention_dropout": "--model.attention_dropout 0.1",
    "activation_dropout": "--model.activation_dropout 0.1",
    "weight_decay": "--training.weight_decay 0.1",
    "weight_decay 0.5": "--training.weight_decay 0.5",
    "adamw": "--training.optimizer adamw",
    "muon": "--training.optimizer muon",
    "cosine": "--training.schedule cosine",
    "stable, then decay": "--training.decay_share 0.5",
    "inverse_sqrt": "--training.schedule inverse_sqrt",
    "constant": "--training.schedule constant",
}


@dataclass(frozen=True)
class Outcome:
    """The result of a finished run."""

    bleu: float
    step: int
    minutes: float


def main() -> None:
    """Train the recipes that are not trained yet, and print a table."""
    parser = argparse.ArgumentParser(description="Measure what settings gain.")
    parser.add_argument("--config", type=Path, required=True, help="the config that all recipes change")
    parser.add_argument("--work", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these recipes (default: all)")
    parser.add_argument("--change", action="append", default=[], metavar="'NAME: --SECTION.KEY VALUE …'")
    parser.add_argument("--jobs", type=int, default=1, help="simultaneous runs, which share the processors")
    options = parser.parse_args()
    recipes = {PLAIN: "", **CHANGES}
    for change in options.change:
        name, _, settings = change.partition(":")
        recipes[name] = settings
    config = load_config(parser, options.config)
    if config.is_language_model:
        parser.error(f"{options.config} trains a language model, but recipes are compared by BLEU")
    wanted = []
    for name in options.only or recipes:
        if name not in recipes:
            parser.error(f"there is no recipe {name}: choose from {', '.join(recipes)}")
        changed = load_config(parser, options.config, shlex.split(recipes[name]))
        if name == PLAIN or changed != config:  # else the config has this setting
            wanted.append(name)

    found: dict[str, dict[int, Outcome]] = {name: {} for name in wanted}

    def run(job: tuple[str, int]) -> None:
        name, seed = job
        found[name][seed] = trained(options, name, seed, shlex.split(recipes[name]))
        print(f"{name}, seed {seed}: {found[name][seed].bleu:.2f}", file=sys.stderr)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, [(name, seed) for name in wanted for seed in options.seeds]))
    print("\n".join(table(found)))


def trained(options: argparse.Namespace, name: str, seed: int, settings: list[str]) -> Outcome:
    """Train a recipe with a seed, unless that is done, and read its result."""
    run = f"{name.replace(' ', '-').replace(',', '')}-{seed}"
    directory = train(options.work, run, options.config, [f"--run.seed={seed}", *settings], options.jobs)
    best = json.loads((directory / "result.json").read_text(encoding="utf-8"))["validation"]
    return Outcome(best["bleu"], best["step"], last_progress(directory)["seconds"] / 60)


def table(found: dict[str, dict[int, Outcome]]) -> list[str]:
    """Format a Markdown table with a row for each recipe."""
    lines = ["| recipe | validation BLEU | gain over plain | best step | minutes |", "| --- | --- | --- | --- | --- |"]
    plain = found.get(PLAIN, {})
    for name, runs in found.items():
        gains = [run.bleu - plain[seed].bleu for seed, run in runs.items() if seed in plain]
        gain = "" if name == PLAIN or not gains else f"{statistics.mean(gains):+.2f}"
        if gain and len(gains) > 1:
            gain += f" ± {statistics.stdev(gains) / math.sqrt(len(gains)):.2f}"
        step, minutes = (statistics.mean(getattr(run, key) for run in runs.values()) for key in ("step", "minutes"))
        bleu = mean_and_deviation([run.bleu for run in runs.values()])
        lines.append(f"| {name} | {bleu} | {gain} | {step:.0f} | {minutes:.1f} |")
    return lines


def mean_and_deviation(values: Sequence[float]) -> str:
    """Format the mean and, for several values, the standard deviation."""
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


if __name__ == "__main__":
    main()
