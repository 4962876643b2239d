"""A translation, and how it came about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """One translation of a sentence."""

    text: str
    ids: list[int]  # without [SOS] and [EOS]
    tokens: list[str]  # a label for each, of a copied word the word, "[EOS]" last if complete
    log_probs: list[float]  # of each, in nats
    score: float  # see decoding.Hypothesis
    complete: bool  # False: cut off by the limit of length
    copied: dict[int, int]  # position of a token that was copied -> of the source token it was copied from


@dataclass(frozen=True)
class Sentence:
    """A piece of text that was translated as a whole, often a sentence."""

    source: str
    ids: list[int]  # without [EOS]
    tokens: list[str]  # a label for each, "[EOS]" last
    unknown: list[int]  # positions of the tokens that the vocabulary does not know
    candidates: list[Candidate]  # best first, decoding.n_best of them at most


@dataclass(frozen=True)
class Translation:
    """A text, its translation, and how that came about."""

    source: str  # without a tag
    text: str
    sentences: list[Sentence]
