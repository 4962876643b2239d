"""Translations, with scores, tokens and alternatives. Nothing here needs torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.settings import DecodingConfig

if TYPE_CHECKING:
    import numpy as np


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


@dataclass(frozen=True)
class Candidate:
    """One translation of a sentence."""

    text: str
    ids: list[int]  # without [SOS] and [EOS]
    tokens: list[str]  # a label per id; for a copied word, the word; "[EOS]" last if complete
    log_probs: list[float]  # one per token, in nats
    score: float  # see Hypothesis
    complete: bool  # False: cut off by the length limit
    copied: dict[int, int]  # position of each copied token -> position of the source token it was copied from
    # (T, S) how much each token, without [EOS], was made from each source token; None until `with_alignments`.
    weights: np.ndarray | None = field(default=None, compare=False)

    @property
    def alignment(self) -> list[int] | None:
        """The source position that each token was copied from, or else aligns with most."""
        if self.weights is None:
            return None
        return [self.copied.get(t, int(row.argmax())) for t, row in enumerate(self.weights)]

    def as_dict(self) -> dict[str, Any]:
        """What can be JSON, which has no -inf: all but the ids and the weights."""
        return {
            "translation": self.text,
            "score": _rounded(self.score),
            "complete": self.complete,
            "tokens": self.tokens,
            "log_probs": list(map(_rounded, self.log_probs)),
            "copied": {str(t): s for t, s in self.copied.items()},
            "alignment": self.alignment,
        }


@dataclass(frozen=True)
class Sentence:
    """A piece of text that was translated as a whole, usually a sentence."""

    source: str  # as it was typed
    read_as: str  # as the model read it, by decoding.tolerant; it may differ in case, final marks and typos
    corrections: Sequence[tuple[str, str]]  # typos, and what they are read as
    ids: list[int]  # without [EOS]
    tokens: list[str]  # a label per id, then "[EOS]"
    unknown: list[int]  # positions of the tokens that the vocabulary does not know
    candidates: list[Candidate]  # best first, at most decoding.n_best
    is_kept: bool = False  # whether there was nothing to translate, so that the text is its own translation
    rewritten: bool = False  # whether terms of a glossary took the place of the model's own words
    lost_terms: list[str] = field(default_factory=list)  # targets of a glossary that the best candidate lacks
    warnings: list[str] = field(default_factory=list)  # about this sentence; filled in when its text is complete


@dataclass(frozen=True)
class Translation:
    """A text, its translation, and the sentences it was made from."""

    source: str  # without a tag
    text: str
    sentences: list[Sentence]
    warnings: list[str]  # about this text

    def as_dict(self, of_candidate: Callable[[Candidate], dict[str, Any]] = Candidate.as_dict) -> dict[str, Any]:
        """What `translate.py --json` and the server's API return."""
        return {
            "source": self.source,
            "translation": self.text,
            "warnings": self.warnings,
            "sentences": [
                {
                    "source": sentence.source,
                    "read_as": sentence.read_as,
                    "tokens": sentence.tokens,
                    "unknown": sentence.unknown,
                    "warnings": sentence.warnings,
                    "candidates": list(map(of_candidate, sentence.candidates)),
                }
                for sentence in self.sentences
            ],
        }


def _rounded(number: float) -> float | None:
    return round(number, 4) if math.isfinite(number) else None
