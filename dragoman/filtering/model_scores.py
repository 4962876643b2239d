"""Score pairs by two models, one for each direction: dual conditional cross-entropy (Junczys-Dowmunt 2018).

With H the cross-entropy of a side given the other, in nats a token, a pair scores exp(-(|Hf - Hb| + (Hf + Hb) / 2)):
1 if both models expect the pair, less if they do not, or if they disagree. Both models should be trained on clean data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import NamedTuple

from dragoman.checkpoint import MANIFEST, read_plain
from dragoman.corpora.formats.languages import is_same
from dragoman.errors import ConfigError
from dragoman.serialization import sha256_of
from dragoman.settings import DataConfig
from dragoman.translation.pieces import encode_piece
from dragoman.translation.teacher_forcing import score_texts
from dragoman.translation.translator import Translator


class Score(NamedTuple):
    """The score of a pair, and the cross-entropies it was made from; inf: too long for the model."""

    score: float
    forward: float
    backward: float


def dual_score(forward: float, backward: float) -> float:
    """Return the score of a pair with these cross-entropies, from 0 to 1."""
    return exp(-(abs(forward - backward) + (forward + backward) / 2)) if max(forward, backward) < 1e6 else 0.0


@dataclass(frozen=True)
class Scorer:
    """The models of both directions."""

    forward: Translator
    backward: Translator
    languages: tuple[str, str]

    @classmethod
    def load(cls, forward: Path, backward: Path, data: DataConfig, device: str) -> Scorer:
        """Load the models; one of several directions may serve as both. Raises ConfigError for other languages."""
        languages = (str(data.source_lang), data.target_lang)
        models = Translator(forward, device), Translator(backward, device)
        for model, path, (source, target) in zip(
            models, (forward, backward), (languages, languages[::-1]), strict=True
        ):
            trained = model.config.data
            several = trained.several
            serves = any(is_same(one, source) and is_same(two, target) for one, two in several)
            if not several and trained.source_lang:
                serves = is_same(trained.source_lang, source) and is_same(trained.target_lang, target)
            if not serves:
                raise ConfigError(f"{path} does not translate {source} to {target}: name a run that does.")
        return cls(*models, languages)

    def identity(self) -> list[str]:
        """Return what tells these models from all others: hashes of the manifests of their checkpoints."""
        return [sha256_of(read_plain(model.path / MANIFEST)) for model in (self.forward, self.backward)]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Score]:
        """Score pairs of source and target."""
        source, target = self.languages
        forward = _entropies(self.forward, pairs, source, target)
        backward = _entropies(self.backward, [(two, one) for one, two in pairs], target, source)
        return [Score(dual_score(*both), *both) for both in zip(forward, backward, strict=True)]


def _entropies(model: Translator, pairs: Sequence[tuple[str, str]], source: str, target: str) -> Iterator[float]:
    """Yield the cross-entropy of each second text given the first."""
    to = {"to": target, "source": source} if model.config.data.directions else {}
    requests = [model.request(text, **to) for text, _ in pairs]
    pieces = [encode_piece(model.trained, request.text, request.direction) for request in requests]
    for scored in score_texts(model.trained, [(piece, text) for piece, (_, text) in zip(pieces, pairs, strict=True)]):
        yield float("inf") if isinstance(scored, str) else -sum(scored.log_probs) / len(scored.log_probs)


def chosen(scores: Sequence[float], share: float | None, least: float | None) -> list[bool]:
    """Return whether each pair stays: the best share of them, the earlier one first if scores are equal, or those that
    score at least `least`.
    """
    if share is None:
        return [score >= (least or 0) for score in scores]
    best = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[: round(share * len(scores))]
    kept = set(best)
    return [i in kept for i in range(len(scores))]
