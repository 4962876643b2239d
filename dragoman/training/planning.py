"""How long training takes on this machine: until translations are usable, in all, and what fits into the planned time.

A slow machine gets fewer updates, so that the learning rate has come down to zero in time. Their number becomes the
run's training.max_steps before its first update, and a resumed run keeps it.

The speed is measured on the model itself. That of large matrix products does not predict it: training reaches between
a seventh and two thirds of that, depending on the processor and the width of the model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch

from dragoman.architectures.build import build_model
from dragoman.architectures.loss import batch_loss
from dragoman.console import say
from dragoman.corpora.preparation import PreparedData
from dragoman.dataset import Batch, EncodedPairs, EncodedSide, make_batch
from dragoman.device import autocast
from dragoman.settings import SPECIAL_TOKENS, Config
from dragoman.training.batches import BatchPlanner
from dragoman.training.optimizer import make_optimizer
from dragoman.training.outlook import Outlook, Speed, duration
from dragoman.training.state import TrainingState

LONG = 120  # minutes of training, after which a limit is proposed
SECONDS = 0.7  # to measure the gradient, and again the optimizer, after one of each to warm up
CPU_POSITIONS = 1024  # in a batch at most; on a GPU, only a whole batch shows the speed


def planned_steps(config: Config, data: PreparedData, speed: Speed) -> int | None:
    """Say how long a new run takes, and return its training.max_steps.

    That is the value of config, unless training.plan_minutes applies and all passes would take longer.
    """
    training, most = config.training, config.training.max_epochs
    tokens = len(data.train.target.ids) + len(data.train)
    outlook = Outlook.of(config, len(data.train), tokens, len(data.target), speed)
    if outlook is None:
        return training.max_steps
    say(f"this machine learns from about {outlook.speed:,.0f} tokens a second: {outlook.until_usable()}")
    for shortage in outlook.shortages(training):
        say(f"warning: {shortage}")
    if most is None or training.max_steps is not None or training.max_minutes is not None:
        return training.max_steps
    whole = outlook.minutes(most)
    fit = most * (training.plan_minutes or math.inf) / whole
    # In quarter passes, so that a second run plans the same unless the machine is busier.
    passes = max(outlook.usable, math.floor(4 * fit) / 4 if fit < most else most)
    if passes >= most:
        limit = "; --training.max_minutes sets a limit" if whole > LONG else ""
        say(f"all {most} passes take about {duration(whole)}{limit}")
        return None
    batches = len(BatchPlanner(data, config.run.seed).plan(training.batch_tokens, 0))
    steps = round(passes * math.ceil(batches / training.accumulate))
    say(
        f"to end in about {duration(outlook.minutes(passes))}, it makes {passes:.3g} passes instead of {most} "
        f"(training.max_steps {steps:,}); for all {most}, in about {duration(whole)}, add: --training.plan_minutes null"
    )
    return steps


def seconds_left(state: TrainingState) -> float:
    """Estimate the seconds until the last update, if the updates and validations to come take as long as those so far.

    NaN if the number of updates is unknown.
    """
    progress, minutes = state.progress, state.config.training.max_minutes
    if not (state.total_steps and progress.step):
        return math.nan
    seconds = (state.total_steps - progress.step) * progress.seconds / progress.step
    return seconds if minutes is None else min(seconds, 60 * minutes - progress.seconds)


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
