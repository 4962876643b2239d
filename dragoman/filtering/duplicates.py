"""Pairs that occurred before, exactly or nearly: the same words with another case, other marks or other numbers.

Memory holds KEYS keys of 64 bits for each pair.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from dragoman.dataset import Pair
from dragoman.filtering.words import Words, digest, digest_bytes

KEYS = 2  # of the texts, and of their words; 0 stands for none


def keys_of(pairs: Sequence[Pair], source: Words, target: Words) -> np.ndarray:
    """Return the keys of pairs, (N, KEYS) uint64, given both sides as words."""
    keys = np.zeros((len(pairs), KEYS), np.uint64)
    keys[:, 0] = [digest(f"{one}\t{other}") for one, other in pairs]
    sources, targets = (map(np.ndarray.tobytes, np.split(side.hashes, side.starts[1:])) for side in (source, target))
    keys[:, 1] = [
        digest_bytes(one + b"\t" + other) if one and other else 0 for one, other in zip(sources, targets, strict=True)
    ]
    return keys


class SeenKeys:
    """A set of keys, as sorted arrays of growing size: ten bytes a key at most, where a Python set takes sixty."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []

    def find_repeated(self, keys: np.ndarray) -> np.ndarray:
        """Return whether each key (N) occurred before, in this call or an earlier one; then add them all."""
        unique, first, which = np.unique(keys, return_index=True, return_inverse=True)
        before = np.zeros(len(unique), bool)
        for part in self._parts:
            before |= part[np.minimum(np.searchsorted(part, unique), len(part) - 1)] == unique
        self._add(unique[~before & (unique != 0)])
        return (before[which] | (first[which] < np.arange(len(keys)))) & (keys != 0)

    def _add(self, keys: np.ndarray) -> None:
        """Add sorted keys that are not in the set."""
        if len(keys):
            self._parts.append(keys)
        while len(self._parts) > 1 and len(self._parts[-2]) < 2 * len(self._parts[-1]):
            self._parts[-2:] = [np.sort(np.concatenate(self._parts[-2:]), kind="stable")]  # it merges sorted runs


class Repeats:
    """The pairs that occurred so far, by their keys (N, KEYS); pairs that repeat one of them get a reason."""

    def __init__(self, keep: Collection[str] = ()) -> None:
        columns = (("near_duplicate", 1), ("duplicate", 0))  # the second reason overrules the first
        self._seen = [(reason, column, SeenKeys()) for reason, column in columns if reason not in keep]

    def mark(self, reasons: list[str], keys: np.ndarray) -> None:
        """Write a reason beside each pair that occurred before, here or in an earlier call, then add all pairs."""
        for reason, column, seen in self._seen:
            for row in seen.find_repeated(keys[:, column]).nonzero()[0].tolist():
                reasons[row] = reason
