"""Finished runs side by side: their size, what an update and a translation cost them, and how well they translate.

    python benchmarks/architectures.py --run runs/phrasebook --run runs/decoder-only --run runs/encoder-only

Of each run: its parameters; the time of an update on its own batches, and that of all its updates together; sentences a
second, one by one and all test sentences at once, greedily and as `translate.py` has them; BLEU of the test set, as the
training reported it (of a language model, its perplexity). Runs take turns, and the shortest time of each counts. The
first run is what the others are compared with.

The time of all updates leaves out validations and checkpoints, and what else the machine did meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # or this file would stand for the module of its name
os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # as in train.py

import torch

from dragoman import dataset, train
from dragoman.corpora import preparation
from dragoman.device import choose_device, choose_precision, describe_device, matmul_rates, tune_device
from dragoman.training import final_report
from dragoman.training.batches import training_batches
from dragoman.training.state import TrainingState
from dragoman.translation.translator import Translator

UPDATES = 4  # that are timed together


@dataclass
class Contender:
    """A finished run, and the shortest times so far."""

    path: Path
    translator: Translator
    training: TrainingState
    updates: list[list[dataset.Batch]]
    sources: list[str]
    step: int
    best: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, device: torch.device, dtype: torch.dtype, scratch: Path) -> Contender:
        """Load a run; its training is made anew, for an update costs the same whatever the weights are."""
        translator = Translator(path, str(device))
        data = preparation.load(path / "data")
        training = train.build_state(translator.config, scratch / path.name, data, device, dtype)
        training.writer = cast(Any, SimpleNamespace(add_scalar=lambda *_: None))
        updates = list(islice(training_batches(training), UPDATES))
        result = json.loads((path / final_report.RESULT).read_text(encoding="utf-8"))
        sources = [text for _, text in data.test] if translator.config.is_language_model else [a for a, _ in data.test]
        return cls(path, translator, training, updates, sources, result["step"])

    def turn(self, pairs: int) -> None:
        """Learn and translate once, and keep the shortest times."""
        begun = time.perf_counter()
        for batches in self.updates:
            train.train_step(self.training, batches)
        self._keep("update", (time.perf_counter() - begun) / len(self.updates))
        few, many = self.sources[: max(1, pairs // 10)], self.sources[:pairs]
        begun = time.perf_counter()
        for text in few:
            self.translator.translate([text])
        self._keep("one", (time.perf_counter() - begun) / len(few))
        begun = time.perf_counter()
        self.translator.translate(many)
        self._keep("all", (time.perf_counter() - begun) / len(many))

    def _keep(self, name: str, seconds: float) -> None:
        self.best[name] = min(seconds, self.best.get(name, seconds))

    def quality(self) -> str:
        """What the training said of the test set."""
        test = json.loads((self.path / final_report.RESULT).read_text(encoding="utf-8")).get("test", {})
        return f"{test['bleu']:.2f}" if "bleu" in test else f"ppl {test['perplexity']:.2f}" if test else "-"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Compare finished runs: size, time of an update, speed, score.")
    parser.add_argument("--run", type=Path, required=True, action="append", metavar="DIR", help="folder of a run")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="how often (default: 5)")
    parser.add_argument("--pairs", type=int, default=500, help="test sentences to translate (default: 500)")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = choose_device(options.device)
    tune_device(device)
    dtype = choose_precision("auto", device, matmul_rates(device))
    print(f"{describe_device(device, dtype)}\n")
    with tempfile.TemporaryDirectory() as scratch:
        contenders = [Contender.of(path, device, dtype, Path(scratch)) for path in options.run]
        for _ in range(options.turns):
            for each in contenders:
                each.turn(options.pairs)
    first = contenders[0].best
    print(f"{'':20}parameters  ms/update  updates  minutes   test   one by one  x {'':4}all at once  x")
    for each in contenders:
        parameters = sum(p.numel() for p in each.training.model.parameters())
        update, one, together = (each.best[name] for name in ("update", "one", "all"))
        print(
            f"{each.path.name:20}{parameters:10,} {update * 1e3:10.1f} {each.step:8,} {update * each.step / 60:8.1f}"
            f" {each.quality():>8} {1 / one:10.1f}/s {first['one'] / one:5.2f} {1 / together:10.0f}/s"
            f" {first['all'] / together:5.2f}"
        )


if __name__ == "__main__":
    main()
