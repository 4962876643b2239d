"""How often each pair is seen in an epoch."""

from __future__ import annotations

import numpy as np

from dragoman.corpora.sources import MOST_OFTEN


def rows_of(weights: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """The pairs that an epoch sees, each by its number, as often as its weight (N) says: 2.5 is two or three times.

    Which are seen once more is drawn from (seed, epoch), among all pairs of that weight; how many they are is the same
    in every epoch.
    """
    random = np.random.default_rng((seed, epoch))
    times = np.floor(weights).astype(np.int64)
    for weight in np.unique(weights):
        alike = np.flatnonzero(weights == weight)
        more = round(float(weight % 1) * len(alike))
        times[random.permutation(alike)[:more]] += 1
    return np.repeat(np.arange(len(weights)), times)


def balanced(weights: np.ndarray, parts: np.ndarray, temperature: float) -> np.ndarray:
    """The weights of pairs (N) that are parted, raised where a part (its number for each, N) has few.

    A part of share p is seen in proportion to p ** (1 / temperature) (Arivazhagan et al. 2019), the largest as before.
    """
    totals = np.bincount(parts, weights)
    factors = np.divide(totals, totals.max(), out=np.ones_like(totals), where=totals > 0) ** (1 / temperature - 1)
    return (weights * np.minimum(factors, MOST_OFTEN)[parts]).astype(np.float32)
