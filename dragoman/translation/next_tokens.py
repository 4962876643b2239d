"""Choose the next tokens of a search: which are allowed, which are best, and which are drawn at random.

Shapes are those of `search`: A sentences, P hypotheses of each in G groups of W, V vocabulary, T tokens so far.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman.settings import EOS, PAD, SOS, UNK, DecodingConfig


class Rules:
    """Which tokens are allowed next, however probable they are."""

    def __init__(
        self,
        settings: DecodingConfig,
        min_lengths: Sequence[int] | None,
        max_unknowns: Sequence[int] | None,
        prefixes: Sequence[Sequence[int]] | None,
        device: torch.device,
        absent: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Take the rules of A sentences: see `search`."""
        self.ngram = settings.no_repeat_ngram
        self.longest_minimum = max(min_lengths, default=0) if min_lengths else 0
        self.min_lengths = torch.tensor(min_lengths or [], device=device)[:, None]  # (A, 1) or empty
        self.limits_unknowns = max_unknowns is not None
        self.most_unknowns = max(max_unknowns, default=0) if max_unknowns else 0
        self.max_unknowns = torch.tensor(max_unknowns or [], device=device)[:, None]  # (A, 1) or empty
        longest = max(map(len, prefixes), default=0) if prefixes else 0
        rows = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes or []]
        self.prefixes = torch.tensor(rows, device=device).view(len(rows), longest)  # (A, longest) or empty; -1: free
        most = max(map(len, absent), default=0) if absent else 0
        rows = [[*tokens, *[PAD] * (most - len(tokens))] for tokens in absent or []]  # PAD is ruled out anyway
        self.absent = torch.tensor(rows, dtype=torch.long, device=device).view(len(rows), most)  # (A, most) or empty

    def keep(self, kept: Tensor) -> None:
        """Keep only these of the A sentences."""
        self.min_lengths, self.max_unknowns, self.prefixes, self.absent = (
            rows[kept] if len(rows) else rows
            for rows in (self.min_lengths, self.max_unknowns, self.prefixes, self.absent)
        )

    def apply(self, log_probs: Tensor, tokens: Tensor) -> Tensor:
        """Set log_probs (A, P, V) to -inf for each token that must not follow tokens (A, P, 1 + T)."""
        done = tokens.shape[2] - 1
        unrestricted = log_probs.clone() if done < self.prefixes.shape[1] else log_probs
        for never in (PAD, SOS):  # a model gives them some probability
            log_probs.select(2, never).fill_(-torch.inf)
        if self.absent.numel():
            log_probs.scatter_(2, self.absent[:, None].expand(-1, log_probs.shape[1], -1), -torch.inf)
        if done < self.longest_minimum:
            log_probs.select(2, EOS).masked_fill_(self.min_lengths > done, -torch.inf)
        if self.limits_unknowns and self.most_unknowns == 0:
            log_probs.select(2, UNK).fill_(-torch.inf)
        elif self.limits_unknowns:
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


def best_continuations(
    scores: Tensor, allowed: Tensor, groups: int, width: int, diversity_penalty: float
) -> tuple[Tensor, Tensor]:
    """The best continuations of scores (A, P) by allowed (A, P, V): the hypotheses and the tokens, (A, G W) each.

    Groups choose in turn. Each avoids the tokens that earlier groups took at this step, by diversity_penalty per time
    (Vijayakumar et al. 2018, "Diverse Beam Search", with Hamming diversity).
    """
    total = scores[:, :, None] + allowed  # (A, P, V)
    vocabulary = total.shape[2]
    if total.shape[1] == 1:  # the first step: all groups continue the same hypothesis
        total = total.expand(-1, groups, -1)
    parts = total.unflatten(1, (groups, -1))  # (A, G, W, V)
    taken = torch.zeros_like(total[:, 0])  # (A, V), how often each token was taken by the groups so far
    origins, tokens = [], []
    for g in range(groups):
        rank = parts[:, g] - diversity_penalty * taken[:, None] if g else parts[:, g]
        best, index = rank.flatten(1).topk(min(width, rank[0].numel()))  # (A, W)
        token = index % vocabulary
        offset = g * parts.shape[2] if scores.shape[1] > 1 else 0
        origins.append(offset + index // vocabulary)
        tokens.append(token)
        if groups > 1:
            taken = taken.scatter_add(1, token, best.isfinite().to(taken.dtype))  # -inf: the group has ended
    return torch.cat(origins, 1), torch.cat(tokens, 1)


def sample_continuations(
    scores: Tensor, allowed: Tensor, samples: int, settings: DecodingConfig, generators: Sequence[torch.Generator]
) -> tuple[Tensor, Tensor]:
    """Draw one continuation of each hypothesis by its probability: the hypotheses and the tokens, (A, samples) each.

    The maximum of log p + Gumbel noise is each token with probability p, so a draw is a plain argmax.
    """
    logits = filter_likely(allowed / settings.temperature, settings.top_k, settings.top_p)  # (A, P, V)
    uniform = torch.stack([torch.rand(samples, logits.shape[2], generator=each) for each in generators])
    gumbel = -(-uniform.clamp(1e-20, 1 - 1e-7).log()).log()  # (A, samples, V)
    token = (logits + gumbel.to(logits.device)).argmax(2)
    # At the first step all samples continue the same hypothesis.
    origin = torch.arange(samples, device=token.device).clamp(max=scores.shape[1] - 1)
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
