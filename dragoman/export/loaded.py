"""An export as its own engine loads it: what `verification` compares with our translations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dragoman.settings import EOS

Batch = Sequence[Sequence[int]]  # token ids, without [SOS] and [EOS]
BATCH_SIZE = 32  # sentences translated together


class LoadedExport(NamedTuple):
    """The functions of an export, loaded the way its users load it."""

    greedy: Callable[[Batch, int], list[list[int]]]  # sentences, limit of tokens with [EOS] -> translations
    encode: Callable[[Sequence[str]], list[list[int]]]  # texts -> ids, [EOS] last
    decode: Callable[[Batch], list[str]]  # ids -> texts


def until_eos(ids: list[int]) -> list[int]:
    """Cut ids before the first [EOS]."""
    return ids[: ids.index(EOS)] if EOS in ids else ids
