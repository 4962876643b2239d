"""The batches of each update, identical after a resume."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dragoman import storage
from dragoman.corpora import selection
from dragoman.corpora.preparation import PreparedData
from dragoman.dataset import Batch, batch_plan, make_batch
from dragoman.distributed import Ranks
from dragoman.training import prefetch

if TYPE_CHECKING:
    from dragoman.training.state import TrainingState

PREFETCHED_UPDATES = 8  # updates whose batches are made while a GPU is busy
LONG_EPOCH = 1_000  # batches


class BatchPlanner:
    """Plans the batches of an epoch and keeps the last plan, which takes a second for millions of pairs.

    Of several ranks, the first plans and writes the plan to a file, which all of them map into memory.
    """

    def __init__(self, data: PreparedData, seed: int, ranks: Ranks | None = None, folder: Path | None = None) -> None:
        """`folder` is where plans are written; all ranks can read it."""
        self.data, self.seed = data, seed
        self.ranks, self.folder = ranks or Ranks(), folder
        self.plan = lru_cache(maxsize=1)(self._plan if self.ranks.world_size == 1 else self._stored_plan)
        if self.ranks.world_size > 1:
            self._remove_stored(math.inf)  # another version may have planned otherwise
            self.ranks.broadcast(None)  # nobody reads before that

    def _plan(self, batch_tokens: int, epoch: int) -> Sequence[np.ndarray]:
        """The pair numbers of each batch of an epoch: a pure function of the pairs, the seed and the arguments.

        Every epoch has the same number of batches, even where pairs are weighted and drawn anew.
        """
        pairs, weights = self.data.train, self.data.weights
        if weights is None:
            return batch_plan(*pairs.lengths, batch_tokens, self.seed, epoch)
        return selection.weighted_batch_plan(pairs, weights, batch_tokens, self.seed, epoch)

    def _stored_plan(self, batch_tokens: int, epoch: int) -> Sequence[np.ndarray]:
        """The same from a file. The ranks reach an epoch at different times, and maybe in a thread: they only wait."""
        assert self.folder
        path = self.folder / f".batches.{epoch}.npy"
        if self.ranks.is_first:
            plan = self._plan(batch_tokens, epoch)
            # Where an epoch is short, the other ranks may be as many epochs behind as updates are made ahead.
            self._remove_stored(epoch - 1 if len(plan) > LONG_EPOCH else epoch - 1 - PREFETCHED_UPDATES)
            write_plan(path, plan)
        while not path.exists():
            time.sleep(0.05)
        return StoredPlan(path)

    def _remove_stored(self, before: float) -> None:
        """Remove the plans of epochs before this one."""
        if self.ranks.is_first and self.folder:
            for path in self.folder.glob(".batches.*.npy"):
                if int(path.name.split(".")[2]) < before:
                    path.unlink()


class StoredPlan(Sequence[np.ndarray]):
    """A plan in a file: the number of batches, where each starts and where the last one ends, the pair numbers."""

    def __init__(self, path: Path) -> None:
        numbers = np.asarray(np.load(path, mmap_mode="r"))
        self.bounds, self.rows = np.split(numbers[1:], [int(numbers[0]) + 1])

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        start, end = map(int, self.bounds[index : index + 2])
        return self.rows[start:end].astype(np.int64)


def write_plan(path: Path, plan: Sequence[np.ndarray]) -> None:
    """Write a plan for `StoredPlan`. The file appears by one rename."""
    bounds = np.cumsum([0, *map(len, plan)])
    content = io.BytesIO()
    np.save(content, np.concatenate([[len(plan)], bounds, *plan]).astype(np.uint32))
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.replace_durably(path, content.getvalue())


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
                batch = _make_batch(state, rows, random)
                # A GPU can fetch pinned memory by itself; with other memory, the program would wait for the copy.
                batches.append(batch.moved(torch.Tensor.pin_memory) if state.device.type == "cuda" else batch)
            used += len(batches)
            yield (batches, epoch, used) if used < len(plan) else (batches, epoch + 1, 0)
        epoch, used = epoch + 1, 0


def _make_batch(state: TrainingState, rows: np.ndarray, random: np.random.Generator) -> Batch:
    """This rank's part of the batch of these pairs, in a share of the batches with placeholders in place of words.

    Placeholders make a sentence longer, and with it the whole batch, so they are gathered in few batches.
    """
    rank, ranks = state.ranks.rank, state.ranks.world_size
    if state.hiding is None or random.random() >= state.config.training.placeholders:
        return make_batch(state.data.train, rows, rank, ranks)
    hidden = state.hiding.hide(state.data.train, rows, random)  # of all rows: each rank draws the same
    batch = make_batch(hidden, np.arange(len(rows)), rank, ranks)
    return replace(batch, indices=rows[batch.indices])
