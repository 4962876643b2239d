"""What a setting is worth: one config trained several times over, with that setting changed, by several seeds.

    python benchmarks/recipes.py --config configs/multi30k-en-de.yaml --work /scratch/recipes --jobs 2
    python benchmarks/recipes.py --config mine.yaml --work /scratch/recipes --seeds 1 --only plain muon \
        --change "narrow: --model.d_model 64 --model.d_ff 256"

Each recipe is the config and nothing else (plain), or with the settings of CHANGES or of --change. All seeds of a
recipe are trained before the next begins. Runs that `--work` holds from an earlier call are not made again if they are
finished, and go on where they stopped if they are not.

The columns: BLEU of the validation pairs by the best checkpoint, as the training measured it, mean and standard
deviation over the seeds; what that is more than plain, mean over the seeds that both have, and its standard error; the
step of that checkpoint; the minutes that the training took, which depend on what else the machine did meanwhile. The
test set is for the recipe that was chosen: `evaluate.py` looks at it.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path.append(str(ROOT / "benchmarks"))

import trainings

from dragoman import command_line
from dragoman.errors import ConfigError
from dragoman.settings import Config

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
    "constant, with ema": "--training.schedule constant --training.ema 0.998",
}


@dataclass(frozen=True)
class Outcome:
    """What a finished run reached."""

    bleu: float
    step: int
    minutes: float


def main() -> None:
    """Train what is not trained yet, and print a table."""
    parser = argparse.ArgumentParser(description="Measure what settings are worth.")
    parser.add_argument("--config", type=Path, required=True, help="of which all recipes are variants")
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the recipes; default: all")
    parser.add_argument("--change", action="append", default=[], metavar="'NAME: --SECTION.KEY VALUE …'")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, which share the processors")
    options = parser.parse_args()
    recipes = {PLAIN: "", **CHANGES}
    for change in options.change:
        name, _, settings = change.partition(":")
        recipes[name] = settings
    config = trainings.configured(parser, options.config)
    if config.is_language_model:
        parser.error(f"{options.config} is of a language model, but recipes are compared by BLEU")
    wanted = options.only or [name for name in recipes if name not in CHANGES or suits(config, name)]
    for name in wanted:
        if name not in recipes:
            parser.error(f"there is no recipe {name}: choose among {', '.join(recipes)}")
        trainings.configured(parser, options.config, shlex.split(recipes[name]))

    found: dict[str, dict[int, Outcome]] = {name: {} for name in wanted}

    def make(job: tuple[str, int]) -> None:
        name, seed = job
        found[name][seed] = trained(options, name, seed, shlex.split(recipes[name]))
        print(f"{name}, seed {seed}: {found[name][seed].bleu:.2f}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(make, [(name, seed) for name in wanted for seed in options.seeds]))
    print("\n".join(table(found)))


def suits(config: Config, name: str) -> bool:
    """Whether one of CHANGES can be made to a config (subword dropout cannot, to whole words), and changes it."""
    try:
        changed = command_line.override(config, shlex.split(CHANGES[name]))
    except ConfigError as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        return False
    return changed != config


def trained(options: argparse.Namespace, name: str, seed: int, settings: list[str]) -> Outcome:
    """Train a recipe with a seed, unless that is done, and read what came of it."""
    run = f"{name.replace(' ', '-').replace(',', '')}-{seed}"
    directory = trainings.train(options.work, run, options.config, [f"--run.seed={seed}", *settings], options.jobs)
    best = json.loads((directory / "result.json").read_text(encoding="utf-8"))["validation"]
    return Outcome(best["bleu"], best["step"], trainings.progress(directory)["seconds"] / 60)


def table(found: dict[str, dict[int, Outcome]]) -> list[str]:
    """A Markdown table, a row for each recipe."""
    lines = ["| recipe | validation BLEU | more than plain | best step | minutes |", "| --- | --- | --- | --- | --- |"]
    plain = found.get(PLAIN, {})
    for name, runs in found.items():
        gains = [run.bleu - plain[seed].bleu for seed, run in runs.items() if seed in plain]
        gain = "" if name == PLAIN or not gains else f"{statistics.mean(gains):+.2f}"
        if gain and len(gains) > 1:
            gain += f" ± {statistics.stdev(gains) / math.sqrt(len(gains)):.2f}"
        step, minutes = (statistics.mean(getattr(run, key) for run in runs.values()) for key in ("step", "minutes"))
        bleu = spread([run.bleu for run in runs.values()])
        lines.append(f"| {name} | {bleu} | {gain} | {step:.0f} | {minutes:.1f} |")
    return lines


def spread(values: list[float]) -> str:
    """The mean of some figures, and their standard deviation where there are several."""
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


if __name__ == "__main__":
    main()
