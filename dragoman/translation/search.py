"""Search for translations: from a model that scores the next token to whole sentences with scores.

`search` does greedy decoding (a beam of one), beam search and sampling. It knows nothing of Transformers or text: a
model is anything with `start` and `step`, so a table of numbers is enough for a test.

Shapes are written in these letters:
    A sentences still being translated   P hypotheses of each   V vocabulary   T tokens so far
Row a * P + p of the model's batch is hypothesis p of sentence a.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from dragoman.architectures import ctc
from dragoman.settings import EOS, SOS, UNK, DecodingConfig
from dragoman.translation.next_tokens import Rules, best_continuations, sample_continuations, sentence_generators

if TYPE_CHECKING:
    from dragoman.translation.constraints import Constraints
from dragoman.translation.results import NOTHING, Hypothesis, normalizer


class StepModel(Protocol):
    """What `search` needs of a model. The state has a method `select(hypotheses, sentences)`, see `model.State`."""

    def start(self, source: Tensor) -> Any:
        """Read source ids (A, S) and return the state before the first step, with one hypothesis per sentence."""
        ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits (A P, V) of the token after tokens (A P,), and the state that includes them."""
        ...


Found = list[list[Hypothesis]]  # the finished hypotheses of each sentence


@dataclass
class Beam:
    """The hypotheses of the sentences that are still being translated. P is 1 before the first step."""

    sentences: list[int]  # (A) index of each sentence in the input
    max_lengths: Tensor  # (A)
    scores: Tensor  # (A, P) sum of log-probabilities; -inf: the place is empty
    tokens: Tensor  # (A, P, 1 + T)
    log_probs: Tensor  # (A, P, T)

    @classmethod
    def start(cls, max_lengths: Sequence[int], device: torch.device) -> Beam:
        count = len(max_lengths)
        return cls(
            list(range(count)),
            torch.tensor(max_lengths, device=device),
            torch.zeros(count, 1, device=device),
            torch.full((count, 1, 1), SOS, device=device),
            torch.empty(count, 1, 0, device=device),
        )

    def extend(self, origin: Tensor, token: Tensor, allowed: Tensor) -> None:
        """Replace the hypotheses by continuations: hypothesis origin (A, P) by token (A, P), with allowed (A, P, V)."""
        at = torch.arange(len(self.sentences), device=token.device)[:, None]
        log_prob = allowed[at, origin, token]  # (A, P)
        self.scores = self.scores[at, origin] + log_prob
        self.tokens = torch.cat((self.tokens[at, origin], token[:, :, None]), 2)
        self.log_probs = torch.cat((self.log_probs[at, origin], log_prob[:, :, None]), 2)

    def take_finished(self, found: Found, settings: DecodingConfig) -> None:
        """Move the hypotheses that end in [EOS] or have reached their limit to found."""
        at_limit = self.log_probs.shape[2] >= self.max_lengths
        finished = ((self.tokens[:, :, -1] == EOS) | at_limit[:, None]) & self.scores.isfinite()  # (A, P)
        places = finished.nonzero()  # the number of rows waits for a GPU, and so does each `tolist`
        if len(places):
            at = tuple(places.t())
            ended = zip(places.tolist(), self.tokens[at][:, 1:].tolist(), self.log_probs[at].tolist(), strict=True)
            for (a, _), tokens, log_probs in ended:
                found[self.sentences[a]].append(_finish(tokens, log_probs, settings))
        self.scores = self.scores.masked_fill(finished, -torch.inf)

    def unfinished(self, found: Found, settings: DecodingConfig) -> list[int]:
        """Which of the A sentences may still find a better hypothesis than those they have; a sample always ends."""
        # The best score a live hypothesis can reach: at the limit, or with one more token if length is penalized.
        length = (
            self.max_lengths
            if settings.length_penalty >= 0
            else torch.full_like(self.max_lengths, self.tokens.shape[2])
        )
        best = self.scores.amax(1) / normalizer(length, settings)  # (A)
        return [
            a
            for a, (sentence, reachable) in enumerate(zip(self.sentences, best.tolist(), strict=True))
            if reachable > (-torch.inf if settings.sample else _worst(found[sentence], settings.n_best))
        ]

    def keep(self, kept: list[int]) -> Tensor:
        """Keep only these of the A sentences; return them as a tensor."""
        index = torch.tensor(kept, dtype=torch.long, device=self.tokens.device)
        self.sentences = [self.sentences[a] for a in kept]
        self.max_lengths, self.scores = self.max_lengths[index], self.scores[index]
        self.tokens, self.log_probs = self.tokens[index], self.log_probs[index]
        return index


@torch.inference_mode()
def search(
    model: StepModel,
    source: Tensor,
    settings: DecodingConfig,
    constraints: Constraints,
) -> list[list[Hypothesis]]:
    """The best translations of each sentence of source (A, S): different ones, best first, at most settings.n_best.

    Each step keeps the best continuations of a sentence, finished ones included, so a beam of one is exactly greedy
    decoding. A sentence leaves the batch when no live hypothesis can overtake those it has found. This can be known,
    because a sum of log-probabilities never rises and the length normalization is bounded.
    """
    rules = Rules(settings, constraints, source.device)
    generators = sentence_generators(source, rules, settings.seed) if settings.sample else []
    found: Found = [[] for _ in source]
    beam = Beam.start(constraints.max_lengths, source.device)
    state = model.start(source)
    while beam.sentences:
        logits, state = model.step(beam.tokens[:, :, -1].flatten(), state)
        log_probs = logits.float().log_softmax(-1).unflatten(0, beam.scores.shape)
        allowed = rules.apply(log_probs, beam.tokens)  # (A, P, V)
        if settings.sample:
            chosen = [generators[i] for i in beam.sentences]
            origin, token = sample_continuations(beam.scores, allowed, settings, chosen)
        else:
            origin, token = best_continuations(beam.scores, allowed, settings.beam_size)
        beam.extend(origin, token, allowed)
        beam.take_finished(found, settings)

        row = torch.arange(len(origin), device=origin.device)[:, None] * allowed.shape[1] + origin  # (A, P)
        going = beam.unfinished(found, settings)
        kept = None
        if len(going) < len(beam.sentences):
            kept = beam.keep(going)
            rules.keep(kept)
            row = row[kept]
        if beam.sentences:
            same = kept is None and allowed.shape[1] == beam.scores.shape[1] == 1  # greedy, and all go on
            state = state.select(None if same else row.flatten(), kept)
    return [_ranked(hypotheses)[: settings.n_best] or [NOTHING] for hypotheses in found]


class PlacesModel(Protocol):
    """What `best_paths` needs of a model that writes all words at once."""

    def places(self, source: Tensor) -> Tensor:
        """Logits (A, N, V) of the token at each of N places; `ctc.BLANK` is an empty place."""
        ...

    def lengths(self, source: Tensor) -> Tensor:
        """How many places are real: (A)."""
        ...


@torch.inference_mode()
def best_paths(
    model: PlacesModel, source: Tensor, settings: DecodingConfig, constraints: Constraints
) -> list[list[Hypothesis]]:
    """The translation that a model writes in a single pass, one per sentence: the likeliest path, see `ctc`.

    The log-probability of a token is the sum over its places; that of [EOS] is the sum over all empty places.
    Prefixes are ignored, and [UNK] is ruled out only where max_unknowns is 0.
    """
    log_probs = model.places(source).float().log_softmax(-1)
    log_probs[..., [SOS, EOS]] = -torch.inf
    if constraints.max_unknowns:
        never = torch.tensor(constraints.max_unknowns, device=log_probs.device) == 0
        log_probs[..., UNK].masked_fill_(never[:, None], -torch.inf)
    for row, tokens in zip(log_probs, constraints.absent, strict=False):
        row[:, list(tokens)] = -torch.inf
    lengths = model.lengths(source)
    sentences, path = ctc.best_path(log_probs, lengths)
    by_token = [ctc.by_token(*row) for row in zip(log_probs, lengths.tolist(), sentences, path, strict=True)]
    return [
        [_finish([*ids, EOS] if len(ids) < limit else ids[:limit], scores[:limit], settings)]
        for ids, scores, limit in zip(sentences, by_token, constraints.max_lengths, strict=True)
    ]


def _finish(ids: list[int], log_probs: list[float], settings: DecodingConfig) -> Hypothesis:
    """A hypothesis that ends in [EOS] or has reached its limit."""
    complete = ids[-1] == EOS
    score = math.fsum(log_probs) / normalizer(len(ids), settings)
    return Hypothesis(ids[:-1] if complete else ids, log_probs, score, complete)


def _ranked(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """The different hypotheses, best first; complete ones come before those that were cut off."""
    unique: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in sorted(hypotheses, key=lambda each: (each.complete, each.score), reverse=True):
        unique.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(unique.values())


def _worst(hypotheses: list[Hypothesis], wanted: int) -> float:
    """The score that a new hypothesis must beat to be among the `wanted` best."""
    return _ranked(hypotheses)[wanted - 1].score if len(hypotheses) >= wanted else -torch.inf
