"""Judge a corpus in chunks, in several processes, and yield the reasons in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from itertools import islice
from multiprocessing.connection import wait

from dragoman.dataset import Pair
from dragoman.filtering.duplicates import Repeats
from dragoman.filtering.judge import Judge, Judgement

CHUNK = 5000  # pairs
AHEAD = 3  # chunks in memory for each process

_judge: Judge | None = None  # of this worker


def reasons_of(pairs: Iterable[Pair], judge: Judge, processes: int, with_repeats: bool = True) -> Generator[str]:
    """Yield the reason to drop each pair; "": it may stay. The result is the same for any number of processes."""
    repeats = Repeats(judge.keep)
    with closing(_judged(pairs, judge, processes)) as judgements:
        for reasons, keys in judgements:
            if with_repeats:
                repeats.mark(reasons, keys)
            yield from reasons


def _judged(pairs: Iterable[Pair], judge: Judge, processes: int) -> Generator[Judgement]:
    """Yield the judgements of CHUNK pairs at a time, in order."""
    pairs = iter(pairs)
    chunks = iter(lambda: list(islice(pairs, CHUNK)), [])
    if processes == 1:
        yield from map(judge.judge, chunks)
        return
    waiting: deque[Future[Judgement]] = deque()
    # Not fork: libraries may run threads, which a forked process lacks.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_start, initargs=(judge,))
    try:
        for chunk in chunks:
            waiting.append(pool.submit(_work, chunk))
            if len(waiting) >= AHEAD * processes:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _start(judge: Judge) -> None:
    global _judge
    _judge = judge
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process if the first one is killed; it would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work(pairs: Sequence[Pair]) -> Judgement:
    assert _judge is not None
    return _judge.judge(pairs)
