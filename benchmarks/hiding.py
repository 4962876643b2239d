"""What placeholders cost in training: the speed of batches with hidden words beside that of the same batches without.

    python benchmarks/hiding.py --model.preset small --data.train corpus/train --data.source_lang en \\
        --data.target_lang de --training.precision bfloat16

All settings of `train.py` are taken. Each pair of updates learns from the same sentences, once as they are and once
with hidden words, so a busy minute of the machine slows both alike. The time to make a batch counts. The last line
reckons what the share of the batches that `training.placeholders` sets costs.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from common import fail

from dragoman import dataset, train
from dragoman.command_line import parse_train
from dragoman.corpora import preparation
from dragoman.dataset import Batch
from dragoman.device import choose_device, choose_precision, describe_device, matmul_rates, tune_device
from dragoman.distributed import Ranks
from dragoman.training.speed import target_tokens_per_second

WARMUP = 3  # updates of each kind that are not timed


def main() -> None:
    """Print the speeds and what they mean."""
    parser = argparse.ArgumentParser(description="Measure what placeholders cost in training.")
    parser.add_argument("--updates", type=int, default=60, help="of each kind (default: 60)")
    options, settings = parser.parse_known_args()
    config = parse_train([*settings])
    device = choose_device(config.training.device)
    tune_device(device)
    rates = matmul_rates(device)
    dtype = choose_precision(config.training.precision, device, rates)
    speed = partial(target_tokens_per_second, device=device, dtype=dtype, rate=rates.get(dtype, math.inf))
    config, _ = train.settle(config, Ranks(), device, speed)
    with tempfile.TemporaryDirectory() as folder:
        data = preparation.prepare_data(config, Path(folder) / "data", lambda _: None)
        state = train.build_state(config, Path(folder), data, device, dtype)
        if state.hiding is None:
            fail("this preset hides no words.")
        plan = state.planner.plan(state.batch_tokens, 0)[: options.updates + WARMUP]
        if len(plan) <= WARMUP:
            fail(f"an epoch has only {len(plan)} batches: lower training.batch_tokens, or take more pairs.")
        hiding, share = state.hiding, config.training.placeholders
        random = np.random.default_rng(1)

        def plain(rows: np.ndarray) -> Batch:
            return dataset.make_batch(data.train, rows)

        def hidden(rows: np.ndarray) -> Batch:
            pairs = hiding.hide(data.train, rows, random)
            return replace(dataset.make_batch(pairs, np.arange(len(rows))), indices=rows)

        totals = {plain: np.zeros(3), hidden: np.zeros(3)}  # seconds, target tokens, positions
        for number, rows in enumerate(plan):
            for kind in (plain, hidden) if number % 2 else (hidden, plain):
                started = time.perf_counter()
                batch = kind(rows)
                train.train_step(state, [batch])
                if number >= WARMUP:
                    positions = batch.source.numel() + batch.target_out.numel()
                    totals[kind] += time.perf_counter() - started, batch.tokens, positions
    speeds = [tokens / seconds for seconds, tokens, _ in totals.values()]
    print(describe_device(device, dtype))
    print(f"target tokens/s: {speeds[0]:,.0f} as they are, {speeds[1]:,.0f} with hidden words")
    print(f"batches with hidden words have {totals[hidden][2] / totals[plain][2] - 1:.0%} more positions")
    # Of the tokens, this share is in batches with hidden words.
    tokens = share * totals[hidden][1], (1 - share) * totals[plain][1]
    speed = sum(tokens) / (tokens[0] / speeds[1] + tokens[1] / speeds[0])
    print(f"in {share:.0%} of the batches, they cost {1 - speed / speeds[0]:.1%} of the speed")


if __name__ == "__main__":
    main()
