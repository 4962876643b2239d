"""Search for the translations of many pieces, in batches of similar length and on several threads."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache
from threading import Event
from typing import Any

import torch

from dragoman.dataset import source_batch
from dragoman.device import DTYPES, autocast, choose_precision, matmul_rates
from dragoman.signals import Stopped
from dragoman.translation.batches import BATCH_TOKENS, batches_by_length
from dragoman.translation.constraints import constraints
from dragoman.translation.ctranslate2_engine import CACHE
from dragoman.translation.hypotheses import Hypothesis
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece
from dragoman.translation.search import read_off, search


def search_batch(trained: TrainedModel, pieces: Sequence[Piece], stop: Event | None = None) -> list[list[Hypothesis]]:
    """The best hypotheses for each piece of a batch. Raises DataError if a prefix is too long.

    stop ends the search at its next step once it is set, with Stopped.
    """
    limits, minima, unknowns, prefixes, absent = constraints(trained, pieces)
    source = source_batch([piece.ids for piece in pieces]).to(trained.device)
    decoding = trained.config.decoding
    model: Any = _StoppableModel(trained.model.eval(), stop)
    with autocast(trained.device, search_dtype(trained)):
        if trained.writes_at_once:
            return read_off(model, source, limits, decoding, unknowns, absent)
        return search(model, source, limits, decoding, minima, unknowns, prefixes, absent)


def search_dtype(trained: TrainedModel) -> torch.dtype:
    """The number format of the matrix products of a search.

    auto is bfloat16 on a GPU that has it, and on a CPU that is measured to be faster with it if the weights do not fit
    into its cache. int8 is for CTranslate2 only, and means auto here.
    """
    name = trained.config.decoding.precision
    if name not in ("auto", "int8"):
        return DTYPES[name]
    if trained.device.type != "cpu":
        return trained.dtype
    return torch.float32 if _fits_into_cache(trained) else _fastest_on_cpu()


def _fits_into_cache(trained: TrainedModel) -> bool:
    """Whether the weights, in float32, fit into the cache of a CPU core."""
    return 4 * sum(weight.numel() for weight in trained.model.parameters()) <= CACHE


@cache
def _fastest_on_cpu() -> torch.dtype:
    cpu = torch.device("cpu")
    return choose_precision("auto", cpu, matmul_rates(cpu))


def search_in_batches(
    trained: TrainedModel, pieces: Sequence[Piece]
) -> Generator[tuple[list[int], list[list[Hypothesis]]], None, None]:
    """Yield the indices and the hypotheses of one batch of pieces after another, in the order in which they finish.

    On a CPU, several batches run at once, on one thread each: the steps of a decoder are too small to divide among
    threads, so two threads translate more with a batch each than with one batch together.
    """
    search_dtype(trained)  # measures the CPU, if it has to, before threads make it busy
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
            with suitable_threads(trained):
                hypotheses = search_batch(trained, chosen)
            yield batch, hypotheses
        return
    stop = Event()
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        searches = {pool.submit(search_batch, trained, chosen, stop): batch for batch, chosen in batches}
        for done in as_completed(searches):
            yield searches[done], done.result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # set_num_threads in the pool also changes process-wide state


@contextmanager
def suitable_threads(trained: TrainedModel) -> Iterator[None]:
    """Context manager: search a single batch on all threads, or on one if the weights fit into the CPU's cache.

    More threads help to read weights from memory, but slow down reading them from the cache.
    """
    threads = torch.get_num_threads()
    if trained.device.type == "cpu" and _fits_into_cache(trained):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _StoppableModel:
    """A model for a search in a thread, which raises Stopped at its next step once `stop` is set."""

    def __init__(self, model: Any, stop: Event | None) -> None:
        self.model, self.stop = model, stop

    def __getattr__(self, name: str) -> Any:
        """The attribute of the model."""
        if self.stop and self.stop.is_set():
            raise Stopped
        return getattr(self.model, name)
