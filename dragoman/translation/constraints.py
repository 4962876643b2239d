"""What a search must respect: the length of each translation, its prefix, banned tokens, and the size of a batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dragoman.errors import DataError
from dragoman.settings import UNK, ModelConfig
from dragoman.translation.loading import TrainedModel
from dragoman.translation.placeholders import absent_placeholders

if TYPE_CHECKING:
    from dragoman.translation.pieces import Piece

BATCH_TOKENS = 4096  # padded source positions per batch, times the number of hypotheses per sentence


class Constraints(NamedTuple):
    """What the translations of A pieces must respect, one item for each; empty: no such constraint."""

    max_lengths: Sequence[int]  # the most tokens of a translation, counting [EOS]
    max_unknowns: Sequence[int] = ()  # the most [UNK] in a translation
    prefixes: Sequence[Sequence[int]] = ()  # the tokens that a translation starts with
    absent: Sequence[Sequence[int]] = ()  # the tokens that a translation must not have

    def chosen(self, pieces: Sequence[int]) -> Constraints:
        """Those of the pieces with these indices."""
        return Constraints(*([items[k] for k in pieces if items] for items in self))  # type: ignore[arg-type]


def constraints(trained: TrainedModel, pieces: Sequence[Piece]) -> Constraints:
    """The constraints of these pieces. Raises DataError if a prefix is too long."""
    decoding = trained.config.decoding
    prefixes = [piece.prefix for piece in pieces]
    max_lengths = [length_limit(trained, len(piece.ids), len(piece.prefix)) for piece in pieces]
    # Only unknown words are copied: a known one would appear in the wrong language.
    unknowns = [(piece.ids + piece.prefix).count(UNK) for piece in pieces] if decoding.unknown == "copy" else []
    absent = [absent_placeholders(piece.ids, *trained.hiders) for piece in pieces]
    return Constraints(max_lengths, unknowns, prefixes if any(prefixes) else [], absent)


def length_limit(trained: TrainedModel, source_length: int, prefix_length: int) -> int:
    """How many tokens a translation may have, counting [EOS] and the prefix that it must begin with.

    Raises DataError if the prefix alone needs more positions than the model has.
    """
    decoding = trained.config.decoding
    if trained.config.is_language_model:
        limit = prefix_length + decoding.max_length
    else:
        limit = max(min(decoding.max_length, int(decoding.max_ratio * source_length) + 10), prefix_length + 1)
    room = target_room(trained, source_length)
    if room <= prefix_length:
        raise DataError(f"a prefix of {prefix_length} tokens leaves the translation no room (model.max_positions).")
    return min(limit, room)


def target_room(trained: TrainedModel, source_length: int) -> int:
    """How many target tokens the positions of all members have room for after `source_length` source tokens.

    One less than there are positions: to compute its alignment, a translation is read with both [SOS] and [EOS].
    """
    return min(_room(shape, source_length + 1) for shape in trained.shapes)


def _room(settings: ModelConfig, read: int) -> int:
    if settings.positions != "learned":
        return sys.maxsize
    if settings.positions_of(read, 1) > settings.max_positions:
        return 0
    match settings.architecture:
        case "encoder-decoder":
            return settings.max_positions - 1
        case "decoder-only":
            return settings.max_positions - read - 1
        case "encoder-only":
            return sys.maxsize


def batches_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Group the indices of all sentences, longest first, into batches of at most `budget` padded positions.

    A sentence longer than that is a batch of its own.
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
