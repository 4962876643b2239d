"""Which encoded pairs a model can learn from, how often an epoch shows each of them, and in which batches."""

from __future__ import annotations

import math
from bisect import insort

import numpy as np

from dragoman.corpora.sources import LARGEST_WEIGHT
from dragoman.dataset import EncodedPairs, batch_plan
from dragoman.settings import DataConfig

CHUNK = 50_000  # pairs looked at together, to bound memory


def within_limits(pairs: EncodedPairs, data: DataConfig) -> tuple[np.ndarray, np.ndarray]:
    """Apply data.max_length and data.max_ratio. Return for each pair whether it is within each: (N).

    Plain text has one side only, which is always even. End tokens do not count.
    """
    lengths = pairs.lengths if data.source_lang else pairs.lengths[1:]
    shorter, longer = np.min(lengths, axis=0) - 1, np.max(lengths, axis=0) - 1
    return longer <= data.max_length, longer <= (data.max_ratio or np.inf) * shorter


def fits_upsampling(pairs: EncodedPairs, upsampling: int) -> np.ndarray:
    """Whether each target fits into the positions of an encoder-only model: (N), boolean.

    CTC needs a position for each target token, and a blank between two equal neighbours. The end token needs none.
    """
    needed = [np.zeros(0, np.int64)]
    for start in range(0, len(pairs), CHUNK):
        offsets = pairs.target.offsets[start : start + CHUNK + 1]
        ids = pairs.target.ids[offsets[0] : offsets[-1]]
        repeats = np.zeros(len(ids) + 1, np.int64)  # how many of the first k tokens equal the token before
        repeats[2:] = np.cumsum(ids[1:] == ids[:-1])
        starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
        needed.append(ends - starts + repeats[ends] - repeats[np.minimum(starts + 1, ends)])
    return np.concatenate(needed) <= upsampling * pairs.source.lengths


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


def weighted_batch_plan(
    pairs: EncodedPairs, weights: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Like `batch_plan`, for pairs that an epoch shows as often as their weights (N) say.

    Each epoch repeats other pairs, so lengths vary between epochs. The number of updates, which the learning rate
    follows, must not: it is that of epoch 0.
    """
    source, target = pairs.lengths
    first, rows = (rows_of(weights, seed, number) for number in (0, epoch))
    count = len(batch_plan(source[first], target[first], batch_tokens, seed, epoch))
    return [rows[batch] for batch in batch_plan_of_size(count, source[rows], target[rows], batch_tokens, seed, epoch)]


def batch_plan_of_size(
    count: int, source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Like `batch_plan`, but with exactly `count` batches, of at least as many pairs; batch_tokens may be exceeded."""
    limit = batch_tokens
    while len(plan := batch_plan(source_lengths, target_lengths, limit, seed, epoch)) > count:
        limit = max(limit + 1, math.ceil(limit * len(plan) / count))
    plan.sort(key=len)
    while len(plan) < count:  # a few are missing: halve the largest
        for half in np.array_split(plan.pop(), 2):
            insort(plan, half, key=len)
    random = np.random.default_rng((seed, epoch))
    return [plan[i] for i in random.permutation(len(plan))]
