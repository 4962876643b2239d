"""A lexicon of translations, learnt from the corpus itself, and how well it explains each word of a pair.

IBM model 1 (Brown et al. 1993) in both directions. A word is explained to the extent that the words of the other side
make it more likely than its frequency does: log(mean over the other side of p(word | other) / p(word)), in nats.

A lexicon explains the pairs that it was learnt from too well, good or bad. So each of two lexicons is learnt from one
half of the pairs and judges the other half. The half depends on the source, so repeated pairs are in the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dragoman.filtering.words import EncodedTexts, ranges

ROUNDS = 4  # of EM
LEARNT = 12_000_000  # combinations of words, at most, that one lexicon is learnt from
AT_ONCE = 2_000_000  # combinations that are looked up at a time
FLOOR = 0.05  # weight of a word's frequency beside the lexicon, so that no single word decides
SAME = 50.0  # how much more likely a word is if the other side has it too, as names do
_ID_BITS = 20


class Explained(NamedTuple):
    """Nats by which the other side explains each word."""

    source: np.ndarray  # (words of all sources)
    target: np.ndarray  # (words of all targets)


def combine(source: EncodedTexts, target: EncodedTexts) -> tuple[np.ndarray, np.ndarray]:
    """Return all combinations of a source and a target word of the same pair, as two arrays of indices."""
    repeats = np.repeat(source.sizes, target.sizes)
    return ranges(np.repeat(source.starts, target.sizes), repeats), np.repeat(np.arange(len(target.ids)), repeats)


@dataclass(frozen=True)
class Lexicon:
    """A hash table of pairs of ids. Of pairs with the same slot, it holds the one that was more frequent."""

    keys: np.ndarray  # (slots), int64; -1: empty
    ratios: np.ndarray  # (2, slots): p(target | source) / p(target), p(source | target) / p(source)

    @classmethod
    def learn(cls, source: EncodedTexts, target: EncodedTexts) -> Lexicon:
        """Learn from pairs, as many as LEARNT allows."""
        fitting = int(np.searchsorted(np.cumsum(source.sizes * target.sizes), LEARNT, "right"))
        rows = np.arange(fitting)
        source, target = source.take(rows), target.take(rows)
        of_source, of_target = combine(source, target)
        known, which = np.unique((source.ids[of_source] << _ID_BITS) + target.ids[of_target], return_inverse=True)
        ids = (known >> _ID_BITS, known & (2**_ID_BITS - 1))
        ratios, counts = [], []
        for given, predicted, of_word, own in ((*ids, of_target, target), (*ids[::-1], of_source, source)):
            count = np.ones(len(known))
            for _ in range(ROUNDS):
                likely = count / np.bincount(given, count)[given]
                shares = likely[which]
                shares /= np.bincount(of_word, shares, len(own.ids))[of_word]
                count = np.bincount(which, shares, len(known))
            likely = count / np.bincount(given, count)[given]
            frequency = np.bincount(own.ids) / max(len(own.ids), 1)
            ratios.append(likely / frequency[predicted])
            counts.append(count)
        telling = (np.maximum(*ratios) > 0.5) & (ids[0] > 0) & (ids[1] > 0)
        order = np.flatnonzero(telling)
        order = order[np.argsort(np.maximum(*counts)[order], kind="stable")]
        bits = max(16, int(8 * len(order)).bit_length())
        table = cls(np.full(2**bits, -1), np.zeros((2, 2**bits), np.float32))
        slots = table._slots(known[order])
        table.keys[slots] = known[order]  # the last one stays
        for side in (0, 1):
            table.ratios[side, slots] = ratios[side][order]
        return table

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return (mixed >> np.uint64(65 - len(self.keys).bit_length())).astype(np.int64)

    def explain(self, source: EncodedTexts, target: EncodedTexts) -> Explained:
        """Return how well each word is explained by the other side. A word that is not known counts 0."""
        ends = np.cumsum(source.sizes * target.sizes)
        parts, start = [], 0
        while start < len(ends):
            done = ends[start - 1] if start else 0
            end = max(int(np.searchsorted(ends, done + AT_ONCE, "right")), start + 1)
            rows = np.arange(start, end)
            parts.append(self._explain(source.take(rows), target.take(rows)))
            start = end
        empty = [np.zeros(0)]
        return Explained(*(np.concatenate(empty + [part[side] for part in parts]) for side in (0, 1)))

    def _explain(self, source: EncodedTexts, target: EncodedTexts) -> Explained:
        of_source, of_target = combine(source, target)
        keys = (source.ids[of_source] << _ID_BITS) + target.ids[of_target]
        slots = self._slots(keys)
        known = self.keys[slots] == keys
        same = source.hashes[of_source] == target.hashes[of_target]
        explained = []
        for side, of_word, own, other in ((1, of_source, source, target), (0, of_target, target, source)):
            ratios = np.where(known, self.ratios[side][slots], 0)
            ratios = np.where(same, np.maximum(ratios, SAME), ratios)
            mean = np.bincount(of_word, ratios, len(own.ids)) / np.maximum(other.sizes, 1)[own.owners]
            nats = np.log(FLOOR + (1 - FLOOR) * mean)
            explained.append(np.where((own.ids == 0) & (mean == 0), 0, nats))
        return Explained(*explained)
