"""How fast this machine trains a model, measured on the model itself.

The speed of large matrix products does not predict it: training reaches between a seventh and two thirds of that,
depending on the processor and the width of the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from dragoman.architectures.build import build_model
from dragoman.architectures.loss import batch_loss
from dragoman.dataset import Batch, EncodedPairs, EncodedSide, make_batch
from dragoman.device import autocast
from dragoman.settings import SPECIAL_TOKENS, Config
from dragoman.training.optimizer import make_optimizer

SECONDS = 0.7  # for the gradient, and again for the optimizer, after one of each to warm up
CPU_POSITIONS = 1024  # in a batch at most; on a GPU, only a whole batch shows the speed


def target_tokens_per_second(
    config: Config, length: float, device: torch.device, dtype: torch.dtype, ranks: int = 1
) -> float:
    """Measure the updates of a new model on random text.

    Args:
        length: tokens per sentence
        dtype: of the matrix products
        ranks: processes that train together, each on a device like this one
    """
    whole = config.training.batch_tokens
    positions = min(whole, CPU_POSITIONS) if device.type == "cpu" else whole
    batch = _random_batch(config, positions, length).moved(lambda ids: ids.to(device))
    size = config.tokenizer.vocab_size
    model = build_model(config.model, size, size).to(device).train()
    optimizer = make_optimizer(model, config.training, dtype)

    def gradient() -> None:
        with autocast(device, dtype):
            loss = batch_loss(model, batch, config.training.label_smoothing)
        (loss.smoothed / batch.tokens).backward()
        loss.plain.item()  # waits for a GPU

    def update() -> None:
        optimizer.step()
        next(model.parameters()).sum().item()

    gradient_seconds, update_seconds = _seconds(gradient), _seconds(update)
    gradients = config.training.accumulate * whole / positions
    return ranks * gradients * batch.tokens / (gradients * gradient_seconds + update_seconds)


def _random_batch(config: Config, positions: int, length: float) -> Batch:
    """Random sentences of one length that fill `positions`."""
    rng = np.random.default_rng(0)
    words = max(1, round(length))
    rows = max(1, positions // (words + 1))  # with the end token

    def side(words: int) -> EncodedSide:
        ids = rng.integers(len(SPECIAL_TOKENS), config.tokenizer.vocab_size, rows * words)
        return EncodedSide.of(np.full(rows, words), ids)

    return make_batch(EncodedPairs(side(words if config.data.source_lang else 0), side(words)), np.arange(rows))


def _seconds(work: Callable[[], None]) -> float:
    """Return how long the work takes, on average over at least SECONDS."""
    work()
    started, times = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < SECONDS or not times:
        work()
        times += 1
    return elapsed / times
