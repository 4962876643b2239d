"""How long a translation may be."""

from __future__ import annotations

import sys

from dragoman.errors import DataError
from dragoman.settings import ModelConfig
from dragoman.translation.loading import TrainedModel


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
