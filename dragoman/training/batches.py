"""The batches of each update, the same again after a resume."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import torch

from dragoman.corpora import copying, mixing
from dragoman.corpora.preparation import PreparedData
from dragoman.dataset import SHARD, Batch, EncodedPairs, batch_plan, batch_plan_of_size, make_batch
from dragoman.training import prefetch

if TYPE_CHECKING:
    from dragoman.training.state import TrainingState

AHEAD = 8  # updates whose batches are made while a GPU is busy


class BatchPlanner:
    """Plans the batches of an epoch and keeps the last plan, which takes a second for millions of pairs."""

    def __init__(self, data: PreparedData, seed: int) -> None:
        self.data = data
        self.seed = seed
        self._key: tuple[int, int] | None = None
        self._plan: list[np.ndarray] = []

    def plan(self, batch_tokens: int, epoch: int) -> list[np.ndarray]:
        """The pair numbers of each batch of an epoch: a pure function of the pairs, the seed and the arguments.

        Every epoch has the same number of batches, even where pairs are weighted and drawn anew.
        """
        if self._key != (batch_tokens, epoch):
            self._key, self._plan = (batch_tokens, epoch), self._compute(batch_tokens, epoch)
        return self._plan

    def _compute(self, batch_tokens: int, epoch: int) -> list[np.ndarray]:
        pairs, weights, seed = self.data.train, self.data.weights, self.seed
        if weights is None:
            return batch_plan(*pairs.lengths, batch_tokens, seed, epoch)
        first, rows = (mixing.rows_of(weights, seed, each) for each in (0, epoch))
        count = len(batch_plan(*pairs.lengths_of(first), batch_tokens, seed, epoch))
        plan = batch_plan_of_size(count, *pairs.lengths_of(rows), batch_tokens, seed, epoch)
        return [rows[batch] for batch in plan]


def training_batches(state: TrainingState) -> Generator[list[Batch], None, None]:
    """Yield the batches of each update, epoch after epoch, and move `state.progress` behind them.

    A GPU's batches are made ahead in a thread. On a CPU, whose cores are busy anyway, a thread gains nothing.
    """
    ahead = 0 if state.device.type == "cpu" else AHEAD
    with closing(prefetch.prefetched(_updates(state), ahead)) as items:
        for batches, epoch, used in items:
            state.progress.epoch, state.progress.batches = epoch, used
            yield batches


def _updates(state: TrainingState) -> Iterator[tuple[list[Batch], int, int]]:
    """Yield the batches of each update and the position in the data after it: epoch and batches used."""
    settings, seed = state.config.training, state.config.run.seed
    step, epoch, used = state.progress.step, state.progress.epoch, state.progress.batches
    while True:
        plan = state.planner.plan(state.batch_tokens, epoch)
        while used < len(plan):
            step += 1
            random = np.random.default_rng((seed, step))
            batches = []
            for rows in plan[used : used + settings.accumulate]:
                batch = make_batch(state.data.train, rows)
                batch = copying.mask_copied_words(batch, state.shared_words, settings.copy_dropout, random)
                batch = batch.share(state.ranks.rank, state.ranks.world_size)
                # A GPU can fetch pinned memory by itself; with other memory, the program would wait for the copy.
                batches.append(batch.moved(torch.Tensor.pin_memory) if state.device.type == "cuda" else batch)
            used += len(batches)
            yield (batches, epoch, used) if used < len(plan) else (batches, epoch + 1, 0)
        epoch, used = epoch + 1, 0


def have_room(pairs: EncodedPairs, upsampling: int) -> np.ndarray:
    """Which targets fit into the places of an encoder-only model: (N), boolean.

    A token takes a place, and so does what parts it from one that equals it, see `ctc`; the end token takes none.
    """
    needed = [np.zeros(0, np.int64)]
    for start in range(0, len(pairs), SHARD):
        offsets = pairs.target.offsets[start : start + SHARD + 1]
        ids = pairs.target.ids[offsets[0] : offsets[-1]]
        again = np.zeros(len(ids) + 1, np.int64)  # how often, up to each token, one follows upon its like
        again[2:] = np.cumsum(ids[1:] == ids[:-1])
        starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
        needed.append(ends - starts + again[ends] - again[np.minimum(starts + 1, ends)])
    return np.concatenate(needed) <= upsampling * pairs.source.lengths
