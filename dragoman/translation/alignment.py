"""Which source token each target token is made from."""

from __future__ import annotations

from torch import Tensor

from dragoman.translation.results import Candidate


def made_from(candidate: Candidate, weights: Tensor) -> list[int]:
    """For each token of a candidate the position of the source token that weights (T, S) align it with most."""
    return [candidate.copied.get(t, int(row.argmax())) for t, row in enumerate(weights)]
