"""Connectionist temporal classification (CTC, Graves et al. 2006): the loss and the decoding of encoder-only models.

An encoder-only model gives, at each of N places in a row, a probability to every token of the vocabulary and to BLANK,
which stands for nothing. A path chooses one of them at each place. To read the sentence it spells, merge equal
neighbours, then drop the blanks: `a a _ b _ b` spells `a b b`. The probability of a sentence is the sum over all paths
that spell it. The probability of a path is a plain product, because given the source the places are independent.

Paths are written as token numbers: -1 for an empty place, 0 for the first token of the sentence, and so on.

Shapes: B batch, N places, T tokens of a target, V vocabulary. Lengths (B) say how many places or tokens are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

BLANK = 0  # the id of [PAD], which occurs in no sentence


def loss(log_probs: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
    """-log p of each target (B, T), summed over all paths through log_probs (B, N, V) that spell it: (B), in nats.

    If a target is longer than its places allow, no path exists and the loss is 0.
    """
    return F.ctc_loss(
        log_probs.transpose(0, 1), target, lengths, target_lengths, BLANK, reduction="none", zero_infinity=True
    )


def best_path(log_probs: Tensor, lengths: Tensor) -> tuple[list[list[int]], Tensor]:
    """The sentences spelled by the likeliest path through log_probs (B, N, V), and that path (B, N)."""
    ids = log_probs.argmax(-1)
    ids = ids.masked_fill(torch.arange(ids.shape[1], device=ids.device) >= lengths[:, None], BLANK)
    new = ids.ne(BLANK) & ids.ne(F.pad(ids, (1, 0), value=BLANK)[:, :-1])
    path = torch.where(ids == BLANK, -1, new.cumsum(1) - 1)
    return [row[keep].tolist() for row, keep in zip(ids, new, strict=True)], path


def forced_path(log_probs: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
    """The likeliest path (B, N) through log_probs (B, N, V) that spells target (B, T), by Viterbi's algorithm.

    There are 2 T + 1 states: the T tokens, and the blanks before, between and after them. At each place a path stays,
    moves to the next state, or skips the blank between two different tokens. For a target without a path, the result
    spells something else.
    """
    rows, places = log_probs.shape[:2]
    states = 2 * target.shape[1] + 1
    labels = torch.full((rows, states), BLANK, device=target.device)
    labels[:, 1::2] = target
    skips = F.pad((labels[:, 2:] != BLANK) & (labels[:, 2:] != labels[:, :-2]), (2, 0))[:, :states]
    rated = log_probs.gather(2, labels[:, None].expand(-1, places, -1))  # (B, N, states)
    best = torch.full_like(rated[:, 0], -torch.inf)
    best[:, :2] = rated[:, 0, :2]
    came = []
    for n in range(1, places):
        two = F.pad(best, (2, 0), value=-torch.inf)[:, :-2].masked_fill(~skips, -torch.inf)
        ways = torch.stack((best, F.pad(best, (1, 0), value=-torch.inf)[:, :-1], two))
        most, way = ways.max(0)
        # Rows with no places left stay where they are.
        going = (n < lengths)[:, None]
        best = torch.where(going, most + rated[:, n], best)
        came.append(torch.where(going, way, 0))
    ends = torch.stack((2 * target_lengths, (2 * target_lengths - 1).clamp(min=0)), 1)  # last blank, last token
    state = ends.gather(1, best.gather(1, ends).argmax(1, keepdim=True))  # (B, 1)
    walked = [state]
    for way in reversed(came):
        state = state - way.gather(1, state)
        walked.append(state)
    path = torch.cat(walked[::-1], 1)
    real = torch.arange(places, device=path.device) < lengths[:, None]
    return torch.where(real & (path % 2 == 1), path // 2, -1)


def needed(target: Sequence[int]) -> int:
    """The fewest places that can hold a sentence: one per token, and a blank between equal neighbours."""
    return len(target) + sum(a == b for a, b in pairwise(target))


def first_places(path: Tensor, tokens: int) -> Tensor:
    """The first place of each token on a path (B, N): (B, tokens); 0 for a token that is not on it."""
    at = path[:, None] == torch.arange(tokens, device=path.device)[:, None]  # (B, tokens, N)
    return at.int().argmax(2)


def by_token(log_probs: Tensor, length: int, target: list[int], path: Tensor) -> list[float]:
    """The share of each target token in the log-probability of its path (N), and last the share of the blanks.

    log_probs (N, V) are those of one sentence.
    """
    path = path[:length]
    ids = torch.tensor([*target, BLANK], device=path.device)[path]  # -1 is the last
    rated = log_probs[torch.arange(length, device=path.device), ids].double()
    sums = rated.new_zeros(len(target) + 1)
    return sums.index_add_(0, path % len(sums), rated).tolist()
