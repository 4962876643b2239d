"""The processes that prepare a corpus together: some on this machine, and under torchrun the same on every rank.

    with Crew(processes=4) as crew:
        crew.map(work, crew.shares)         # work(share) does the shards whose numbers are in its share

Processes exchange files, not data: each reads the corpus itself, and renames the file of a finished shard into place.
So neither the number of processes nor a kill changes the result.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from dragoman.errors import TooLargeError
from dragoman.processes import start_worker

if TYPE_CHECKING:
    from dragoman.distributed import Ranks

T = TypeVar("T")
Task = TypeVar("Task")


@dataclass(frozen=True)
class Share:
    """The shards of one process. Ranks take turns, and so do the processes of a rank."""

    rank: int = 0
    ranks: int = 1
    process: int = 0
    processes: int = 1

    def __contains__(self, number: int) -> bool:
        """Whether this process does the shard with this number."""
        return number % self.ranks == self.rank and number // self.ranks % self.processes == self.process

    @property
    def is_first(self) -> bool:
        """Whether this process shows the progress of all."""
        return self.rank == self.process == 0


class Crew:
    """The processes of this rank, and the other ranks."""

    def __init__(self, processes: int = 1, ranks: Ranks | None = None) -> None:
        """With one process, this one does the work itself."""
        self.processes, self._ranks = processes, ranks
        self._pool = None
        if processes > 1:
            # Not fork: libraries may run threads, which a forked process lacks.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(processes, context, start_worker)
            for _ in self.shares:  # they start now, while this process finds the corpus
                self._pool.submit(_begin)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    @property
    def is_first(self) -> bool:
        """Whether this rank does what only one can do."""
        return self._ranks is None or self._ranks.is_first

    @property
    def is_alone(self) -> bool:
        """Whether there are no other ranks."""
        return self._ranks is None

    @property
    def shares(self) -> list[Share]:
        """The shares of the processes of this rank."""
        rank, ranks = (self._ranks.rank, self._ranks.world_size) if self._ranks else (0, 1)
        return [Share(rank, ranks, process, self.processes) for process in range(self.processes)]

    def map(self, function: Callable[[Task], T], tasks: Iterable[Task]) -> list[T]:
        """Call a function for each task, in the processes of this rank. Raises its first error."""
        if self._pool is None:
            return [*map(function, tasks)]
        futures = [self._pool.submit(function, task) for task in tasks]
        try:
            wait(futures)  # for all, before an error makes the caller remove what they write
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            remedy = f"run the same command again with fewer --processes (now {self.processes})"
            raise TooLargeError(f"a process was killed, most often for lack of memory: {remedy}.") from error

    def broadcast(self, value: T) -> T:
        """The value of rank 0, on every rank."""
        return self._ranks.broadcast(value) if self._ranks else value

    def wait(self) -> None:
        """Wait until every rank has come here."""
        if self._ranks:
            self._ranks.sum(0)


def _begin() -> None:
    """Import in a process what the work needs."""
    import_module("dragoman.corpora.preparation")
