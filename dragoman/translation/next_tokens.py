"""Choose the next tokens of a search: which are allowed, which are best, and which are drawn at random.

Shapes are those of `search`: A sentences, P hypotheses of each, V vocabulary, T tokens so far.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dragoman.settings import PAD, SOS, UNK, DecodingConfig

if TYPE_CHECKING:
    from dragoman.translation.constraints import Constraints


class Rules:
    """Which tokens are allowed next, however probable they are."""

    def __init__(self, settings: DecodingConfig, constraints: Constraints, device: torch.device) -> None:
        """Take the rules of A sentences."""
        self.ngram = settings.no_repeat_ngram
        self.has_unknowns = not constraints.max_unknowns or any(constraints.max_unknowns)
        self.max_unknowns = torch.tensor(constraints.max_unknowns, dtype=torch.long, device=device)[:, None]  # (A, 1)
        self.prefixes = _padded(constraints.prefixes, -1, device)  # (A, longest prefix); -1: any token
        self.absent = _padded(constraints.absent, PAD, device)  # (A, most tokens); PAD is ruled out anyway

    def keep(self, kept: Tensor) -> None:
        """Keep only these of the A sentences."""
        self.max_unknowns, self.prefixes, self.absent = (
            rows[kept] if len(rows) else rows for rows in (self.max_unknowns, self.prefixes, self.absent)
        )

    def apply(self, log_probs: Tensor, tokens: Tensor) -> Tensor:
        """Set log_probs (A, P, V) to -inf for each token that must not follow tokens (A, P, 1 + T)."""
        done = tokens.shape[2] - 1
        unrestricted = log_probs.clone() if done < self.prefixes.shape[1] else log_probs
        for never in (PAD, SOS):  # a model gives them some probability
            log_probs.select(2, never).fill_(-torch.inf)
        if self.absent.numel():
            log_probs.scatter_(2, self.absent[:, None].expand(-1, log_probs.shape[1], -1), -torch.inf)
        if not self.has_unknowns:
            log_probs.select(2, UNK).fill_(-torch.inf)
        elif len(self.max_unknowns):
            log_probs.select(2, UNK).masked_fill_((tokens == UNK).sum(2) >= self.max_unknowns, -torch.inf)
        if self.ngram and done >= self.ngram:
            windows = tokens[:, :, 1:].unfold(2, self.ngram, 1)  # (A, P, T - n + 1, n)
            last = tokens[:, :, None, tokens.shape[2] - self.ngram + 1 :]  # (A, P, 1, n - 1)
            again = (windows[..., :-1] == last).all(3)  # where an earlier n-gram starts like the one that would end now
            follower = torch.where(again, windows[..., -1], PAD)  # PAD is ruled out already
            log_probs.scatter_(2, follower, -torch.inf)
        if done < self.prefixes.shape[1]:
            forced = self.prefixes[:, done][:, None, None]  # (A, 1, 1)
            other = torch.arange(log_probs.shape[2], device=log_probs.device) != forced  # (A, 1, V)
            return torch.where(forced < 0, log_probs, unrestricted.masked_fill(other, -torch.inf))
        return log_probs


def _padded(rows: Sequence[Sequence[int]], fill: int, device: torch.device) -> Tensor:
    """Rows as one tensor (rows, longest), filled up at their ends."""
    longest = max(map(len, rows), default=0)
    full = [[*row, *[fill] * (longest - len(row))] for row in rows]
    return torch.tensor(full, dtype=torch.long, device=device).view(len(rows), longest)


def best_continuations(scores: Tensor, allowed: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The best continuations of scores (A, P) by allowed (A, P, V): the hypotheses and the tokens, (A, width) each."""
    total = scores[:, :, None] + allowed  # (A, P, V)
    index = total.flatten(1).topk(min(width, total[0].numel())).indices  # (A, width)
    return index // total.shape[2], index % total.shape[2]


def sample_continuations(
    scores: Tensor, allowed: Tensor, settings: DecodingConfig, generators: Sequence[torch.Generator]
) -> tuple[Tensor, Tensor]:
    """Draw one continuation of each hypothesis by its probability: the hypotheses and the tokens, (A, n_best) each.

    The maximum of log p + Gumbel noise is each token with probability p, so a draw is a plain argmax.
    """
    logits = filter_likely(allowed / settings.temperature, settings.top_k, settings.top_p)  # (A, P, V)
    uniform = torch.stack([torch.rand(settings.n_best, logits.shape[2], generator=each) for each in generators])
    gumbel = -(-uniform.clamp(1e-20, 1 - 1e-7).log()).log()  # (A, n_best, V)
    token = (logits + gumbel.to(logits.device)).argmax(2)
    # At the first step all samples continue the same hypothesis.
    origin = torch.arange(settings.n_best, device=token.device).clamp(max=scores.shape[1] - 1)
    return origin.expand_as(token), token


def filter_likely(logits: Tensor, top_k: int | None, top_p: float) -> Tensor:
    """Rule out all but the top_k likeliest tokens, then all but the fewest that together have probability top_p.

    The second is nucleus sampling (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration").
    """
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k).values[..., -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p < 1:
        ordered, order = logits.softmax(-1).sort(-1, descending=True)
        before = ordered.cumsum(-1) - ordered  # the probability of all likelier tokens
        unlikely = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= top_p)
        logits = logits.masked_fill(unlikely, -torch.inf)
    return logits


def sentence_generators(source: Tensor, rules: Rules, seed: int) -> list[torch.Generator]:
    """A random generator per sentence of source (A, S).

    It depends on the seed, the source and the prefix, not on padding or on the rest of the batch.
    """
    rows = source.tolist()
    prefixes = rules.prefixes.tolist() or [[]] * len(rows)
    return [_generator(seed, [*a, *b]) for a, b in zip(rows, prefixes, strict=True)]


def _generator(seed: int, ids: list[int]) -> torch.Generator:
    ids = [each for each in ids if each not in (PAD, -1)]
    digest = hashlib.sha256(repr((seed, ids)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
