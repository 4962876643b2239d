"""The search for a translation: from a model that rates the next token to whole sentences with scores.

One search serves greedy decoding (a beam of one) and beam search. It knows no Transformer and no text: a model is
anything with `start` and `step`, and a state that can keep and reorder its rows; a table of numbers will do for a test.

Shapes are written in these letters:
    A sentences still being translated   W beam width   V vocabulary   T tokens so far
Row a * W + w of the model's batch is hypothesis w of sentence a.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from config import EOS, PAD, SOS


class StepModel(Protocol):
    """What a search needs of a model; the state offers `rows(index)`, which keeps and reorders sentences."""

    def start(self, source: Tensor) -> Any:
        """Read source ids (A, S) and return the state before the first step."""
        ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits (A, V) of the token after tokens (A,), and the state that has seen them."""
        ...


class Hypothesis(NamedTuple):
    """One translation found."""

    tokens: list[int]  # without [SOS] and [EOS]
    log_probs: list[float]  # of every token, in nats, that of the closing [EOS] last if there is one
    score: float  # their sum / length ** alpha, the measure by which hypotheses were compared
    complete: bool  # False if the limit of length cut it off before its [EOS]


@torch.inference_mode()
def search(
    model: StepModel,
    source: Tensor,
    limits: Sequence[int],
    beam_size: int = 1,
    length_penalty: float = 1.0,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """The best n_best translations of each sentence of source (A, S), best first, limits[a] tokens long at most.

    At each step the W best continuations of a sentence are kept, those that end among them, so that a beam of one is
    exactly greedy decoding. A sentence is finished when nothing still alive can overtake what it has found, which is
    certain: log-probabilities only fall, and the most that division by length ** alpha can give back is known. A
    finished sentence leaves the batch.
    """
    found: list[list[Hypothesis]] = [[] for _ in limits]
    sentences = list(range(len(limits)))  # a -> number of the sentence in the input
    limit = torch.tensor(limits, device=source.device)  # (A,)
    state = model.start(source)
    scores = torch.zeros(len(limits), 1, device=source.device)  # (A, W), beginning with W = 1; -inf: place is empty
    tokens = torch.full((len(limits), 1, 1), SOS, device=source.device)  # (A, W, 1 + T)
    steps = torch.empty(len(limits), 1, 0, device=source.device)  # (A, W, T), log-probability of each token

    while sentences:
        logits, state = model.step(tokens[:, :, -1].flatten(), state)
        log_probs = logits.float().log_softmax(-1).view(*scores.shape, -1)  # (A, W, V)
        scores, origin, token = _extend(scores, log_probs, beam_size)
        new = log_probs[torch.arange(len(sentences), device=source.device)[:, None], origin, token]  # (A, W)
        tokens = torch.cat((_reorder(tokens, origin), token[:, :, None]), 2)
        steps = torch.cat((_reorder(steps, origin), new[:, :, None]), 2)

        length = steps.shape[2]
        ended = token == EOS
        leaving = (ended | (length >= limit)[:, None]) & scores.isfinite()  # (A, W)
        for a, w in leaving.nonzero().tolist():
            found[sentences[a]].append(_hypothesis(tokens[a, w, 1:].tolist(), steps[a, w].tolist(), length_penalty))
        scores = scores.masked_fill(leaving, -torch.inf)

        # No hypothesis alive can end with a better score than this.
        bound = scores.max(1).values / (limit if length_penalty >= 0 else length + 1) ** length_penalty
        going = [
            a
            for a, (sentence, best) in enumerate(zip(sentences, bound.tolist(), strict=True))
            if best > _worst(found[sentence], n_best)
        ]
        if len(going) < len(sentences):
            sentences = [sentences[a] for a in going]
            kept = torch.tensor(going, dtype=torch.long, device=source.device)
            limit, scores, tokens, steps, origin = (x[kept] for x in (limit, scores, tokens, steps, origin))
        else:
            kept = torch.arange(len(going), device=source.device)
        if sentences:
            width = log_probs.shape[1]
            rows = (kept[:, None] * width + origin).flatten()  # where each hypothesis stood in the batch just computed
            if len(rows) != log_probs.shape[0] * width or width > 1:  # else greedy, and nobody left: all stay in place
                state = state.rows(rows)

    return [_ranked(hypotheses)[:n_best] for hypotheses in found]


def _hypothesis(ids: list[int], log_probs: list[float], length_penalty: float) -> Hypothesis:
    """A hypothesis that leaves the beam, because it ends in [EOS] or has reached its limit."""
    complete = ids[-1] == EOS
    score = math.fsum(log_probs) / len(ids) ** length_penalty
    return Hypothesis(ids[:-1] if complete else ids, log_probs, score, complete)


def _extend(scores: Tensor, log_probs: Tensor, beam_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of scores (A, W) by log_probs (A, W, V): their scores, origins in W and tokens, (A, W)."""
    total = scores[:, :, None] + log_probs  # (A, W, V)
    total[:, :, PAD] = -torch.inf  # neither is ever the right next token, but the model gives each some probability
    total[:, :, SOS] = -torch.inf
    vocabulary = total.shape[2]
    best, index = total.flatten(1).topk(min(beam_size, total[0].numel()))
    return best, index // vocabulary, index % vocabulary


def _reorder(x: Tensor, origin: Tensor) -> Tensor:
    """Row origin[a, w] of x (A, W, T) in place w, for each sentence."""
    return x.gather(1, origin[:, :, None].expand(-1, -1, x.shape[2]))


def _ranked(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Best first; one that was cut off is worth less than any that ended by itself."""
    return sorted(hypotheses, key=lambda hypothesis: (hypothesis.complete, hypothesis.score), reverse=True)


def _worst(hypotheses: list[Hypothesis], n_best: int) -> float:
    """The score that a new hypothesis has to beat to be among the n_best."""
    return _ranked(hypotheses)[n_best - 1].score if len(hypotheses) >= n_best else -torch.inf
