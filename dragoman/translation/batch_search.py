"""Search for the translations of many pieces, in batches of similar length."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import torch

from dragoman.dataset import source_batch
from dragoman.device import DTYPES, autocast
from dragoman.translation.constraints import BATCH_TOKENS, batches_by_length, constraints
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece
from dragoman.translation.results import Hypothesis
from dragoman.translation.search import best_paths, search


def search_batch(trained: TrainedModel, pieces: Sequence[Piece]) -> list[list[Hypothesis]]:
    """The best hypotheses for each piece of a batch. Raises DataError if a prefix is too long."""
    limits = constraints(trained, pieces)
    source = source_batch([piece.ids for piece in pieces]).to(trained.device)
    decoding = trained.config.decoding
    model: Any = trained.model.eval()
    with autocast(trained.device, search_dtype(trained)):
        if trained.writes_at_once:
            return best_paths(model, source, decoding, limits)
        return search(model, source, decoding, limits)


def search_dtype(trained: TrainedModel) -> torch.dtype:
    """The number format of the matrix products of a search.

    auto is bfloat16 on a GPU that has it, and float32 on a CPU. int8 is for CTranslate2 only, and means auto here.
    """
    name = trained.config.decoding.precision
    if name not in ("auto", "int8"):
        return DTYPES[name]
    return torch.float32 if trained.device.type == "cpu" else trained.dtype


def search_in_batches(
    trained: TrainedModel, pieces: Sequence[Piece]
) -> Generator[tuple[list[int], list[list[Hypothesis]]], None, None]:
    """Yield the indices and the hypotheses of one batch of pieces after another."""
    decoding = trained.config.decoding
    extra = decoding.max_length if trained.config.is_language_model else 0
    lengths = [len(piece.ids + piece.prefix) + 1 + extra for piece in pieces]
    for batch in batches_by_length(lengths, BATCH_TOKENS // max(decoding.beam_size, decoding.n_best)):
        yield batch, search_batch(trained, [pieces[k] for k in batch])
