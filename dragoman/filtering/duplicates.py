"""Pairs that occurred before, exactly or nearly. Memory holds keys of 64 bits, KEYS of them for a pair.

Two pairs are nearly the same if both sides have the same words, with any case, marks and numbers; or if one side has
the same words, and the other side is long and differs in only one of its four quarters. In a corpus with several
translations of many sentences, good pairs differ like this, so only very long sides count there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from dragoman.filtering.words import Words, digest

# 0: exactly the same; 1: the same words; 2 to 9: the same except for a quarter of a side. A key of 0 stands for none.
KEYS = 10
LONG, VERY_LONG = 6, 14  # words of a side that may differ in one quarter
PARAPHRASED = 0.1  # share of pairs with another translation of their source
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))


def long_in(pairs: Sequence[tuple[str, str]]) -> int:
    """Return how many words are long in a corpus, given a sample that has all pairs of each of its sources."""
    pairs = [*{(source.lower(), target.lower()) for source, target in pairs}]
    counts = Counter(source for source, _ in pairs)
    paraphrased = sum(counts[source] > 1 for source, _ in pairs)
    return VERY_LONG if paraphrased > PARAPHRASED * len(pairs) else LONG


def keys_of(pairs: Sequence[tuple[str, str]], source: Words, target: Words, long: int = LONG) -> np.ndarray:
    """Return the keys of pairs, (N, KEYS) uint64. Sides of `long` words may differ in one quarter."""
    keys = np.zeros((len(pairs), KEYS), np.uint64)
    keys[:, 0] = [digest(f"{one}\t{other}") for one, other in pairs]
    wholes = [_sums(words, np.zeros(len(pairs), np.int64), words.sizes) for words in (source, target)]
    keys[:, 1] = _mixed(wholes[0], wholes[1], 1)
    for side, words in enumerate((source, target)):
        for quarter in range(4):
            part = _sums(words, words.sizes * quarter // 4, words.sizes * (quarter + 1) // 4)
            rest = wholes[side] - part + words.sizes.astype(np.uint64)
            number = 2 + 4 * side + quarter
            keys[:, number] = np.where(words.sizes >= long, _mixed(rest, wholes[1 - side], number), 0)
    keys[:, 1:] *= ((source.sizes > 0) & (target.sizes > 0)).astype(np.uint64)[:, None]
    return keys


def _sums(words: Words, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return a hash of a range of words of each text, which depends on their order; it wraps around on purpose."""
    places = np.arange(len(words.ids), dtype=np.uint64) - np.repeat(words.starts, words.sizes).astype(np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words.hashes * (places * _MIX[0] + _MIX[1]))])
    return sums[words.starts + end] - sums[words.starts + first]


def _mixed(one: np.ndarray, other: np.ndarray, number: int) -> np.ndarray:
    """Return a key of two hashes, which is not 0."""
    mixed = (one * _MIX[1]) ^ (other * _MIX[2] + np.uint64(number))
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX[0]
    return (mixed ^ (mixed >> np.uint64(32))) | np.uint64(1)


class SeenKeys:
    """A set of keys, as sorted arrays of growing size: ten bytes a key at most, where a Python set takes sixty."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []

    def find_repeated(self, keys: np.ndarray) -> np.ndarray:
        """Return whether each row (N, K) has a key that an earlier row had, now or before; then add all its keys."""
        flat = keys.ravel()
        unique, first, which = np.unique(flat, return_index=True, return_inverse=True)
        before = np.zeros(len(unique), bool)
        for part in self._parts:
            before |= part[np.minimum(np.searchsorted(part, unique), len(part) - 1)] == unique
        self._add(unique[~before & (unique != 0)])
        rows = np.arange(len(flat)) // keys.shape[1]
        repeated = (before[which] | (rows[first][which] < rows)) & (flat != 0)
        return np.any(repeated.reshape(keys.shape), axis=1)

    def _add(self, keys: np.ndarray) -> None:
        """Add sorted keys that are not in the set."""
        if len(keys):
            self._parts.append(keys)
        while len(self._parts) > 1 and len(self._parts[-2]) < 2 * len(self._parts[-1]):
            self._parts[-2:] = [np.sort(np.concatenate(self._parts[-2:]), kind="stable")]  # it merges sorted runs


class Repeats:
    """The pairs that occurred so far, by their keys (N, KEYS); pairs that repeat one of them get a reason."""

    def __init__(self, keep: Collection[str] = ()) -> None:
        kinds = (("near_duplicate", slice(1, None)), ("duplicate", slice(0, 1)))  # the second one overrules the first
        self._seen = [(reason, columns, SeenKeys()) for reason, columns in kinds if reason not in keep]

    def mark(self, reasons: list[str], keys: np.ndarray) -> None:
        """Write a reason beside each pair that occurred before, here or in an earlier call, then add all pairs."""
        for reason, columns, seen in self._seen:
            for row in seen.find_repeated(keys[:, columns]).nonzero()[0].tolist():
                reasons[row] = reason
