"""Which encoded pairs a model can learn from."""

from __future__ import annotations

import numpy as np

from dragoman.dataset import EncodedPairs
from dragoman.settings import DataConfig

CHUNK = 50_000  # pairs looked at together, to bound memory


def within_limits(pairs: EncodedPairs, data: DataConfig) -> tuple[np.ndarray, np.ndarray]:
    """Apply data.max_length and data.max_ratio. Return for each pair whether it is short and whether it is even: (N).

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
