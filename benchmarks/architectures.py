"""Compare finished runs: their size, the time of an update and of a translation, and their score.

    python benchmarks/architectures.py --run runs/phrasebook --run runs/decoder-only --run runs/encoder-only

For each run: its parameters; the time of an update on its own batches and of all its updates together; sentences per
second, one by one and all test sentences at once, greedily and as `translate.py` does it; BLEU on the test set as the
training reported it (perplexity for a language model). Runs take turns, and the shortest time of each counts. Ratios
are relative to the first run.

The time of all updates leaves out validation and checkpoints, and whatever else the machine did meanwhile.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from common import ROOT  # noqa: F401  # it sets sys.path

from dragoman import dataset, train
from dragoman.corpora import preparation
from dragoman.device import choose_device, choose_precision, describe_device, matmul_rates, tune_device
from dragoman.training import final_report
from dragoman.training.batches import training_batches
from dragoman.training.state import TrainingState
from dragoman.translation.translator import Translator

UPDATES = 4  # timed together


@dataclass
class Contender:
    """A finished run and its shortest times so far."""

    path: Path
    translator: Translator
    training: TrainingState
    updates: list[list[dataset.Batch]]
    sources: list[str]
    result: dict[str, Any]
    best: dict[str, float] = field(default_factory=dict)  # seconds

    @classmethod
    def load(cls, path: Path, device: torch.device, dtype: torch.dtype, scratch: Path) -> Contender:
        """Load a run. Its training starts from new weights, which does not change the time of an update."""
        translator = Translator(path, str(device))
        data = preparation.load(path / "data")
        training = train.build_state(translator.config, scratch / path.name, data, device, dtype)
        training.writer = cast(Any, SimpleNamespace(add_scalar=lambda *_: None))
        updates = list(islice(training_batches(training), UPDATES))
        result = json.loads((path / final_report.RESULT).read_text(encoding="utf-8"))
        sources = [text for _, text in data.test] if translator.config.is_language_model else [a for a, _ in data.test]
        return cls(path, translator, training, updates, sources, result)

    def take_turn(self, pairs: int) -> None:
        """Train and translate once, and keep the shortest times."""
        started = time.perf_counter()
        for batches in self.updates:
            train.train_step(self.training, batches)
        self._keep("update", (time.perf_counter() - started) / len(self.updates))
        few, many = self.sources[: max(1, pairs // 10)], self.sources[:pairs]
        started = time.perf_counter()
        for text in few:
            self.translator.translate([text])
        self._keep("one", (time.perf_counter() - started) / len(few))
        started = time.perf_counter()
        self.translator.translate(many)
        self._keep("all", (time.perf_counter() - started) / len(many))

    def _keep(self, name: str, seconds: float) -> None:
        self.best[name] = min(seconds, self.best.get(name, seconds))

    def quality(self) -> str:
        """Return the score of the test set, as the training reported it."""
        test = self.result.get("test", {})
        return f"{test['bleu']:.2f}" if "bleu" in test else f"ppl {test['perplexity']:.2f}" if test else "-"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Compare finished runs: size, time of an update, speed, score.")
    parser.add_argument("--run", type=Path, required=True, action="append", metavar="DIR", help="folder of a run")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="number of turns (default: 5)")
    parser.add_argument("--pairs", type=int, default=500, help="test sentences to translate (default: 500)")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = choose_device(options.device)
    tune_device(device)
    dtype = choose_precision("auto", device, matmul_rates(device))
    print(f"{describe_device(device, dtype)}\n")
    with tempfile.TemporaryDirectory() as scratch:
        contenders = [Contender.load(path, device, dtype, Path(scratch)) for path in options.run]
        for _ in range(options.turns):
            for each in contenders:
                each.take_turn(options.pairs)
    first = contenders[0].best
    print(f"{'':20}parameters  ms/update  updates  minutes   test   one by one  x {'':4}all at once  x")
    for each in contenders:
        parameters = sum(p.numel() for p in each.training.model.parameters())
        update, one, together = (each.best[name] for name in ("update", "one", "all"))
        steps = each.result["step"]
        print(
            f"{each.path.name:20}{parameters:10,} {update * 1e3:10.1f} {steps:8,} {update * steps / 60:8.1f}"
            f" {each.quality():>8} {1 / one:10.1f}/s {first['one'] / one:5.2f} {1 / together:10.0f}/s"
            f" {first['all'] / together:5.2f}"
        )


if __name__ == "__main__":
    main()
