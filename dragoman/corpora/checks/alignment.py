"""Pairs that are not translations of each other, judged by their lengths.

Gale and Church (1993), "A Program for Aligning Sentences in Bilingual Corpora": the difference in characters between a
sentence and its translation grows as the square root of their length. The median of the corpus gives the factor.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dragoman.corpora.checks.corpus import CheckedCorpus, CheckedSplit
from dragoman.corpora.checks.findings import Finding

FEWEST = 20  # pairs without which a median means little
FAR = 5.0  # times the median difference: in Multi30k and Tatoeba one pair in 10,000, translated freely or wrong
# A pair is evidence for a shift to the extent that it fits better when shifted, 4 at most, minus what chance may give.
# Summed over neighbours this reaches at most 7 in those corpora, and 30 within some forty pairs that slipped by a line.
SHIFTS = (1, -1, 2, -2, 3, -3)
CHANCE, PROOF = 0.3, 30.0
STRETCHES = 5  # reported at most
# Likewise for pairs that fit no better than random ones; in those corpora pairs fit better by 1.4 on average.
BETTER, NO_PROOF = 0.5, 100.0


def check_alignment(corpus: CheckedCorpus) -> Iterator[Finding]:
    """Report pairs of very different length, stretches that slipped by some lines, and stretches that do not match."""
    for split in corpus.splits.values():
        if len(corpus.sides) == 2 and len(split.whole) >= FEWEST:
            yield from _check_split(split)


def _check_split(split: CheckedSplit) -> Iterator[Finding]:
    source, target = split.sizes[split.whole].T.astype(np.float64)
    ratio = np.median(target / source)

    def deviations(shift: int) -> np.ndarray:
        """Return the signed difference between each source and the target `shift` lines below it."""
        below = np.roll(target, -shift)
        return (below - ratio * source) / np.sqrt(below + ratio * source)

    middle = np.median(deviations(0))
    unit = max(1.5 * np.median(np.abs(deviations(0) - middle)), 0.5)  # 0.8 in those corpora; less in synthetic text
    here = np.abs(deviations(0) - middle) / unit
    far = np.argsort(-here, kind="stable")[: int((here > FAR).sum())]
    yield from split.finding("uneven", split.whole[far])

    here = np.minimum(here, 4)
    tries = [*SHIFTS, len(here) // 2]
    *gains, at_random = (here - np.minimum(np.abs(deviations(shift) - middle) / unit, 4) for shift in tries)
    gains, at_random = np.array(gains) - CHANCE, at_random + BETTER
    for _ in range(STRETCHES):
        # Take the best and nothing else within it: a shift by one line more may also look better than none.
        found = [(*_best_stretch(gain), shift) for gain, shift in zip(gains, SHIFTS, strict=True)]
        proof, start, end, shift = max(found)
        if proof <= PROOF:
            break
        gains[:, start:end] = at_random[start:end] = -4
        where = f"{abs(shift)} {split.unit}{'s' * (abs(shift) > 1)} {'below' if shift > 0 else 'above'}"
        yield from split.stretch("slipped", start, end, where=where)
    proof, start, end = _best_stretch(at_random)
    lengths_vary = min(np.std(np.log(source)), np.std(np.log(target))) > 0.2  # or they prove nothing
    if proof > NO_PROOF and lengths_vary:
        yield from split.stretch("unaligned", start, end)


def _best_stretch(gains: np.ndarray) -> tuple[float, int, int]:
    """Return the largest sum of consecutive values (Kadane), the index of the first, and the index after the last."""
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    rises = sums - np.minimum.accumulate(sums)
    end = int(rises.argmax())
    return float(rises[end]), int(sums[: end + 1].argmin()), end
