"""Search for the translations of many pieces, in batches of similar length and on several threads."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

import torch

from dragoman.dataset import source_batch
from dragoman.signals import Stopped
from dragoman.translation.batches import BATCH_TOKENS, batches_by_length
from dragoman.translation.constraints import constraints
from dragoman.translation.engines import CACHE, Engine
from dragoman.translation.hypotheses import Hypothesis, Watch
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece
from dragoman.translation.search import read_off, search


def search_batch(
    trained: TrainedModel, engine: Any, pieces: Sequence[Piece], watch: Watch | None = None
) -> list[list[Hypothesis]]:
    """The best hypotheses for each piece of a batch. Raises DataError if a prefix is too long.

    watch is called as in `search`; a model that writes all words at once settles them all in one step.
    """
    limits, minima, unknowns, prefixes, absent = constraints(trained, pieces)
    source = source_batch([piece.ids for piece in pieces]).to(trained.device)
    decoding = trained.config.decoding
    if trained.writes_at_once:
        found = read_off(engine, source, limits, decoding, unknowns, absent)
        if watch:
            for i, [hypothesis] in enumerate(found):
                watch(i, hypothesis.tokens)
        return found
    return search(engine, source, limits, decoding, minima, unknowns, prefixes, watch, absent)


def search_in_batches(
    trained: TrainedModel, engine: Engine, pieces: Sequence[Piece]
) -> Generator[tuple[list[int], list[list[Hypothesis]]], None, None]:
    """Yield the indices and the hypotheses of one batch of pieces after another, in the order in which they finish.

    On a CPU, several batches run at once, on one thread each: the steps of a decoder are too small to divide among
    threads, so two threads translate more with a batch each than with one batch together.
    """
    decoding = trained.config.decoding
    extra = decoding.max_length if trained.config.is_language_model else 0
    lengths = [len(piece.ids + piece.prefix) + 1 + extra for piece in pieces]
    threads = torch.get_num_threads() if trained.device.type == "cpu" else 1
    budget = BATCH_TOKENS // max(decoding.beam_size, decoding.n_best)
    # With enough pieces, make the batches small enough that every thread gets about one.
    if threads > 1 and len(pieces) >= 8 * threads:
        budget = min(budget, -(-sum(lengths) // threads) + max(lengths))
    batches = [(batch, [pieces[k] for k in batch]) for batch in batches_by_length(lengths, budget)]
    if threads == 1 or len(batches) == 1:
        for batch, chosen in batches:
            with suitable_threads(trained, engine):
                found = search_batch(trained, engine, chosen)
            yield batch, found
        return
    stoppable = _StoppableEngine(engine)
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        searches = {pool.submit(search_batch, trained, stoppable, chosen): batch for batch, chosen in batches}
        for done in as_completed(searches):
            yield searches[done], done.result()
    finally:
        stoppable.stopped = True
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # set_num_threads in the pool also changes process-wide state


@contextmanager
def suitable_threads(trained: TrainedModel, engine: Engine) -> Iterator[None]:
    """Context manager: search a single batch on all threads, or on one if the weights fit into the CPU's cache.

    More threads help to read weights from memory, but slow down reading them from the cache.
    """
    threads = torch.get_num_threads()
    if trained.device.type == "cpu" and engine.step_bytes < CACHE:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _StoppableEngine:
    """An engine for searches in threads that can all be stopped: each then ends at its next step, with Stopped."""

    COMPUTING = ("step", "places")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.stopped = False

    def __getattr__(self, name: str) -> Any:
        """The attribute of the engine. Raises Stopped for a method that computes."""
        if self.stopped and name in self.COMPUTING:
            raise Stopped
        return getattr(self.engine, name)
