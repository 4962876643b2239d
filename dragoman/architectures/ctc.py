"""Sentences from places of which most are empty: connectionist temporal classification (Graves et al. 2006, "CTC").

An encoder-only model rates, for each of N places in a row, every token of the vocabulary, and BLANK, which is nothing.
A path chooses one of them at each place. It spells the sentence that is left when equal neighbours become one and the
blanks are taken out: `a a _ b _ b` spells `a b b`. The probability of a sentence is the sum over all paths that spell
it; that of a path is a plain product, for given the source no place knows what another one chose.

Paths are written as token numbers: -1 where a place is empty, else 0 for the first token of the sentence and so on.

Shapes: B batch, N places, T tokens of a target, V vocabulary. Lengths (B) say how many places or tokens are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

BLANK = 0  # the id of [PAD], which no sentence holds


def loss(log_probs: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
    """-log p of each target (B, T) by log_probs (B, N, V), over all paths that spell it: (B), in nats.

    A target that has no path, because it is too long for its places, counts as 0: nothing can be learnt from it.
    """
    return F.ctc_loss(
        log_probs.transpose(0, 1), target, lengths, target_lengths, BLANK, reduction="none", zero_infinity=True
    )


def loss_and_shares(
    log_probs: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """The loss, and how probable each token is at each place once it is known what the sentence is: (B, N, V).

    What log_probs say, less that, is the gradient by the logits that they were made of, as with any cross-entropy.
    """
    with torch.enable_grad():
        given = log_probs.detach().requires_grad_()
        rows = loss(given, lengths, target, target_lengths)
        # What torch calls the gradient by log-probabilities is that by the logits behind them.
        (gradient,) = torch.autograd.grad(rows.sum(), given)
    return rows.detach(), log_probs.exp() - gradient


def best_path(log_probs: Tensor, lengths: Tensor) -> tuple[list[list[int]], Tensor]:
    """The sentences that the likeliest path through log_probs (B, N, V) spells, and that path (B, N)."""
    ids = log_probs.argmax(-1)
    ids = ids.masked_fill(torch.arange(ids.shape[1], device=ids.device) >= lengths[:, None], BLANK)
    new = ids.ne(BLANK) & ids.ne(F.pad(ids, (1, 0), value=BLANK)[:, :-1])
    path = torch.where(ids == BLANK, -1, new.cumsum(1) - 1)
    return [row[keep].tolist() for row, keep in zip(ids, new, strict=True)], path


def forced_path(log_probs: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
    """The likeliest path (B, N) through log_probs (B, N, V) that spells target (B, T); Viterbi's algorithm.

    It runs through 2 T + 1 states: before, between and after the tokens, where places are empty, and the tokens. A path
    stays, or goes on to the next state, or skips an empty one between two tokens that differ. For a target that has no
    path, what is returned spells something else.
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
        # A row that has no more places stays where it is.
        going = (n < lengths)[:, None]
        best = torch.where(going, most + rated[:, n], best)
        came.append(torch.where(going, way, 0))
    ends = torch.stack((2 * target_lengths, (2 * target_lengths - 1).clamp(min=0)), 1)  # on nothing, on the last token
    state = ends.gather(1, best.gather(1, ends).argmax(1, keepdim=True))  # (B, 1)
    walked = [state]
    for way in reversed(came):
        state = state - way.gather(1, state)
        walked.append(state)
    path = torch.cat(walked[::-1], 1)
    real = torch.arange(places, device=path.device) < lengths[:, None]
    return torch.where(real & (path % 2 == 1), path // 2, -1)


def needed(target: Sequence[int]) -> int:
    """How many places a sentence needs at least: one for each token, and one between equal neighbours."""
    return len(target) + sum(a == b for a, b in pairwise(target))


def first_places(path: Tensor, tokens: int) -> Tensor:
    """Where on a path (B, N) each token of a sentence stands first: (B, tokens); 0 for those that it does not hold."""
    at = path[:, None] == torch.arange(tokens, device=path.device)[:, None]  # (B, tokens, N)
    return at.int().argmax(2)


def by_token(log_probs: Tensor, length: int, target: list[int], path: Tensor) -> list[float]:
    """What each token of a target adds to the log-probability of its path (N), and last what the empty places add.

    log_probs are those of one sentence, (N, V).
    """
    path = path[:length]
    ids = torch.tensor([*target, BLANK], device=path.device)[path]  # -1 is the last
    rated = log_probs[torch.arange(length, device=path.device), ids].double()
    sums = rated.new_zeros(len(target) + 1)
    return sums.index_add_(0, path % len(sums), rated).tolist()
