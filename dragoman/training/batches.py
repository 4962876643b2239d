"""The batches of each update, identical after a resume."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from dragoman.corpora import selection
from dragoman.corpora.preparation import PreparedData
from dragoman.dataset import Batch, batch_plan, make_batch
from dragoman.training import prefetch

if TYPE_CHECKING:
    from dragoman.training.state import TrainingState

PREFETCHED_UPDATES = 8  # updates whose batches are made while a GPU is busy


class BatchPlanner:
    """Plans the batches of an epoch and keeps the last plan, which takes a second for millions of pairs."""

    def __init__(self, data: PreparedData, seed: int) -> None:
        self.data, self.seed = data, seed
        self.plan = lru_cache(maxsize=1)(self._plan)

    def _plan(self, batch_tokens: int, epoch: int) -> list[np.ndarray]:
        """The pair numbers of each batch of an epoch: a pure function of the pairs, the seed and the arguments.

        Every epoch has the same number of batches, even where pairs are weighted and drawn anew.
        """
        pairs, weights = self.data.train, self.data.weights
        if weights is None:
            return batch_plan(*pairs.lengths, batch_tokens, self.seed, epoch)
        return selection.weighted_batch_plan(pairs, weights, batch_tokens, self.seed, epoch)


def training_batches(state: TrainingState) -> Generator[list[Batch], None, None]:
    """Yield the batches of each update, epoch after epoch, and set `state.progress` to the position after each.

    A GPU's batches are made ahead in a thread. On a CPU, whose cores are busy anyway, a thread gains nothing.
    """
    ahead = 0 if state.device.type == "cpu" else PREFETCHED_UPDATES
    with closing(prefetch.prefetched(_updates(state), ahead)) as items:
        for batches, epoch, used in items:
            state.progress.epoch, state.progress.batches = epoch, used
            yield batches


def _updates(state: TrainingState) -> Iterator[tuple[list[Batch], int, int]]:
    """Yield the batches of each update and the position in the data after it: epoch and batches used."""
    settings, seed = state.config.training, state.config.run.seed
    step, epoch, used = state.progress.step, state.progress.epoch, state.progress.batches
    while True:
        plan = state.planner.plan(settings.batch_tokens, epoch)
        while used < len(plan):
            step += 1
            random = np.random.default_rng((seed, step))
            batches = []
            for rows in plan[used : used + settings.accumulate]:
                batch = _make_batch(state, rows, random).share(state.ranks.rank, state.ranks.world_size)
                # A GPU can fetch pinned memory by itself; with other memory, the program would wait for the copy.
                batches.append(batch.moved(torch.Tensor.pin_memory) if state.device.type == "cuda" else batch)
            used += len(batches)
            yield (batches, epoch, used) if used < len(plan) else (batches, epoch + 1, 0)
        epoch, used = epoch + 1, 0


def _make_batch(state: TrainingState, rows: np.ndarray, random: np.random.Generator) -> Batch:
    """The batch of these pairs, in a share of the batches with placeholders in place of words.

    Placeholders make a sentence longer, and with it the whole batch, so they are gathered in few batches.
    """
    if state.hiding is None or random.random() >= state.config.training.placeholders:
        return make_batch(state.data.train, rows)
    hidden = state.hiding.hide(state.data.train, rows, random)
    return replace(make_batch(hidden, np.arange(len(rows))), indices=rows)
