"""What a search must respect for each piece of text: lengths, prefixes, and tokens that may not be written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dragoman.settings import UNK
from dragoman.translation.limits import length_limit
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece
from dragoman.translation.placeholders import absent_placeholders


class Constraints(NamedTuple):
    """The arguments of `search.search`, one item for each piece; None: no such constraint for any of them."""

    limits: list[int]
    min_lengths: list[int] | None
    max_unknowns: list[int] | None
    prefixes: list[list[int]] | None
    absent: list[list[int]]

    def chosen(self, pieces: Sequence[int]) -> Constraints:
        """Those of the pieces with these indices."""
        return Constraints(*(each and [each[k] for k in pieces] for each in self))  # type: ignore[arg-type]


def constraints(trained: TrainedModel, pieces: Sequence[Piece]) -> Constraints:
    """The constraints of these pieces. Raises DataError if a prefix is too long."""
    decoding = trained.config.decoding
    lengths = [len(piece.ids) for piece in pieces]
    prefixes = [piece.prefix for piece in pieces]
    limits = [length_limit(trained, len(piece.ids), len(piece.prefix)) for piece in pieces]
    least = [min(int(decoding.min_ratio * length), limit - 1) for length, limit in zip(lengths, limits, strict=True)]
    # Only unknown words are copied: a known one would appear in the wrong language.
    unknowns = [(piece.ids + piece.prefix).count(UNK) for piece in pieces] if decoding.unknown == "copy" else None
    absent = [absent_placeholders(piece.ids, *trained.hiders) for piece in pieces]
    return Constraints(limits, least if any(least) else None, unknowns, prefixes if any(prefixes) else None, absent)
