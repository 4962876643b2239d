"""How often an epoch shows each pair, for weighted corpora and for several directions."""

from __future__ import annotations

import numpy as np

from dragoman.corpora.sources import LARGEST_WEIGHT


def rows_of(weights: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Return the indices of the pairs of an epoch, each as often as its weight (N): 2.5 means two or three times.

    Among pairs of equal weight, (seed, epoch) decides at random which ones come once more; how many do is the same in
    every epoch.
    """
    random = np.random.default_rng((seed, epoch))
    times = np.floor(weights).astype(np.int64)
    for weight in np.unique(weights):
        alike = np.flatnonzero(weights == weight)
        more = round(float(weight % 1) * len(alike))
        times[random.permutation(alike)[:more]] += 1
    return np.repeat(np.arange(len(weights)), times)


def balanced(weights: np.ndarray, groups: np.ndarray, temperature: float) -> np.ndarray:
    """Raise the weights (N) of pairs in small groups. `groups` (N) holds the group number of each pair.

    A group with share p of the data is sampled in proportion to p ** (1 / temperature) (Arivazhagan et al. 2019); the
    weights of the largest group stay as they are.
    """
    totals = np.bincount(groups, weights)
    factors = np.divide(totals, totals.max(), out=np.ones_like(totals), where=totals > 0) ** (1 / temperature - 1)
    return (weights * np.minimum(factors, LARGEST_WEIGHT)[groups]).astype(np.float32)
