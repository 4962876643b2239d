"""The batches of each update."""

from __future__ import annotations

import numpy as np

from dragoman.dataset import SHARD, EncodedPairs


def have_room(pairs: EncodedPairs, upsampling: int) -> np.ndarray:
    """Which targets fit into the places of an encoder-only model: (N), boolean.

    A token takes a place, and so does what parts it from one that equals it, see `ctc`; the end token takes none.
    """
    needed = [np.zeros(0, np.int64)]
    for start in range(0, len(pairs), SHARD):
        offsets = pairs.target.offsets[start : start + SHARD + 1]
        ids = pairs.target.ids[offsets[0] : offsets[-1]]
        again = np.zeros(len(ids) + 1, np.int64)  # how often, up to each token, one follows upon its like
        again[2:] = np.cumsum(ids[1:] == ids[:-1])
        starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
        needed.append(ends - starts + again[ends] - again[np.minimum(starts + 1, ends)])
    return np.concatenate(needed) <= upsampling * pairs.source.lengths
