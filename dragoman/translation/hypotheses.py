"""What a search finds, whichever program searches. Nothing here needs torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dragoman.settings import DecodingConfig


class Hypothesis(NamedTuple):
    """A translation that was found."""

    tokens: list[int]  # without [SOS] and [EOS]
    log_probs: list[float]  # of each token, in nats; that of [EOS] last if complete; empty if the engine does not say
    score: float  # the sum of log_probs, divided by `normalizer` of their number; hypotheses are ranked by it
    complete: bool  # False: the length limit cut it off before [EOS]
    # (T, S) how much each token looked at each source token in the last layer; None if the engine does not say.
    attention: Sequence[Sequence[float]] | None = None


NOTHING = Hypothesis([], [], -math.inf, False)  # if the rules allow no token


def normalizer(length: Any, settings: DecodingConfig) -> Any:
    """What to divide a sum of log-probabilities of `length` tokens by; length is a number or a tensor.

    length ** alpha, or ((5 + length) / 6) ** alpha, which is equation 14 of Wu et al. 2016, "Google's Neural Machine
    Translation System", and what "Attention Is All You Need" uses.
    """
    base = length if settings.length_formula == "power" else (5 + length) / 6
    return base**settings.length_penalty
