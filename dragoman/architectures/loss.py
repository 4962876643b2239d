"""The loss of a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dragoman.architectures import ctc
from dragoman.settings import EOS, PAD

CHUNK = 8 * 2**20  # logits that are held at a time


class Loss(NamedTuple):
    """Sums over the target tokens of a batch, in nats."""

    smoothed: Tensor  # (), what is minimised
    plain: Tensor  # (), the negative log-likelihood, of which exp(mean) is the perplexity


def batch_loss(
    architecture: str,
    states: Tensor,
    projection: Tensor,
    source: Tensor,
    target: Tensor,
    smoothing: float,
) -> Loss:
    """The loss of a batch for a model of that architecture, see `config.ModelConfig`; the rest as `loss_sums`.

    Only for places that hold no token beforehand does it matter how long each source (B, S) is.
    """
    match architecture:
        case "encoder-only":
            return ctc_sums(states, projection, source, target)
        case _:
            return loss_sums(states, projection, target, smoothing)


def ctc_sums(states: Tensor, projection: Tensor, source: Tensor, target: Tensor) -> Loss:
    """-log p of target ids (B, T) without their [EOS], which needs no place: a sentence ends where its places do.

    There is no label smoothing: between tokens and nothing, the model has to make up its mind.

    Args:
        states: (B, N, D), of N / S places for each token of source ids (B, S)
        projection: as for `loss_sums`
    """
    lengths = states.shape[1] // source.shape[1] * (source != PAD).sum(1)
    tokens = ((target != PAD) & (target != EOS)).sum(1)
    total = _LinearCTC.apply(states, projection, lengths, target, tokens, torch.is_grad_enabled())
    return Loss(total, total.detach())  # type: ignore[union-attr, arg-type]


def loss_sums(states: Tensor, projection: Tensor, target: Tensor, smoothing: float) -> Loss:
    """Cross-entropy of the logits states · projectionᵀ with the target ids (B, T), summed over all but padding.

    Label smoothing (Szegedy et al. 2016) asks for the right token with probability 1 - smoothing and spreads the rest
    over all V tokens alike, as `torch.nn.functional.cross_entropy` does; here the plain loss comes with it at no cost.

    Args:
        states: (B, T, D), the decoder's last ones
        projection: (V, D), its rows are the vectors of the tokens
    """
    learning = torch.is_grad_enabled()
    given = states.flatten(0, 1), projection, target.flatten(), smoothing, learning
    return Loss(*_LinearCrossEntropy.apply(*given))  # type: ignore[misc]


class _LinearCrossEntropy(torch.autograd.Function):
    """The projection onto the vocabulary and the loss in one, a chunk of tokens at a time.

    The logits of a batch are by far its largest tensor, and the textbook passes over them again and again. Here a chunk
    of them becomes probabilities and its part of the gradient while it is in the cache, and none is kept: this takes
    two thirds of the time, and 40 MB in place of 500 for 4,096 tokens and 10,000 words.

    With z = W x, p = softmax z, a smoothing of ε, the loss of a token y is (1 - ε) (lse z - z_y) + ε (lse z - mean z),
    its gradient by z is p - (1 - ε) [y] - ε / V. What is the same for all V tokens needs no pass over them: mean z is
    x · mean W, and the last term adds -ε mean W to the gradient by x, and -ε / V Σ x to that by each row of W.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, target: Tensor, smoothing: float, learning: bool
    ) -> tuple[Tensor, Tensor]:
        """x (N, D), weight (V, D), target (N) to the sums of `Loss`.

        learning tells whether `backward` will be called.
        """
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        real = target != PAD
        with torch.autocast(kind, enabled=False):
            # A row of zeros adds nothing to the gradient by W.
            x, own = (x * real[:, None]).to(dtype), weight.to(dtype)
            by_x = torch.empty(x.shape, device=x.device) if learning else None
            by_weight = torch.zeros_like(weight) if learning else None
            total, logit = (torch.zeros(target.shape, device=x.device) for _ in range(2))
            size = max(1, CHUNK // len(weight))
            for start in range(0, len(x), size):
                chunk = slice(start, start + size)
                rows, tokens = x[chunk], target[chunk]
                logits = rows @ own.t()  # (C, V)
                probs = logits.softmax(1)
                right = torch.arange(len(rows), device=x.device), tokens  # the places of the right tokens
                total[chunk] = _log_sum_exp(logits, probs, right)
                logit[chunk] = logits[right].float()
                if by_x is not None and by_weight is not None:
                    probs[right] -= 1 - smoothing
                    by_x[chunk] = probs @ own
                    by_weight += probs.t() @ rows
            mean = weight.mean(0)
            plain = ((total - logit) * real).sum()
            uniform = ((total - x.float() @ mean) * real).sum()
            smoothed = (1 - smoothing) * plain + smoothing * uniform
            if by_x is not None and by_weight is not None:
                by_weight -= smoothing / len(weight) * x.float().sum(0)
                by_x = (by_x - smoothing * mean) * real[:, None]
                ctx.save_for_backward(by_x, by_weight)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, *scales: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        """What `forward` has found already, times the gradient by the smoothed sum."""
        by_x, by_weight = ctx.saved_tensors
        return by_x * scales[0], by_weight * scales[0], None, None, None


def _log_sum_exp(logits: Tensor, probs: Tensor, places: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """lse z of logits (C, V) as z - ln p, which is the same by every token.

    A CPU has little to do if it is told the place of one in each row, where the probability may have vanished, though.
    That of the likeliest never does, even in 16 bits, for it is at least 1/V; but it has to be looked for.
    """
    if places and logits.device.type == "cpu":
        known = probs[places].float()
        if known.min() >= torch.finfo(probs.dtype).tiny:
            return logits[places].float() - known.log()
    return logits.amax(1).float() - probs.amax(1).float().log()


class _LinearCTC(torch.autograd.Function):
    """The projection and CTC in one, as `_LinearCrossEntropy`.

    Of all logits, CTC needs those of the tokens in the sentence, of [PAD], and the sum of all. When it has told from
    these what each place should hold, the logits are made once more for their gradient: cheaper than to keep them.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, lengths: Tensor, target: Tensor, tokens: Tensor, learning: bool
    ) -> Tensor:
        """states (B, N, D), weight (V, D), target (B, T), lengths and tokens (B) to the sum over all sentences."""
        kind = states.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        with torch.autocast(kind, enabled=False):
            own, x = weight.to(dtype), states.detach().to(dtype).flatten(0, 1)  # (B N, D)
            # A column for [PAD] and one for each token; that of a token that comes again is that of its first time.
            again = (target[:, :, None] == target[:, None, :]).int().argmax(2) + 1  # (B, T)
            columns = torch.cat((torch.full_like(target[:, :1], ctc.BLANK), target), 1)  # (B, 1 + T)
            wanted = columns[:, None].expand(-1, states.shape[1], -1).flatten(0, 1)  # (B N, 1 + T)
            log_probs = torch.empty(wanted.shape, device=x.device)
            size = max(1, CHUNK // len(own))
            chunks = [slice(start, start + size) for start in range(0, len(x), size)]
            for chunk in chunks:
                logits = x[chunk] @ own.t()  # (C, V)
                total = _log_sum_exp(logits, logits.softmax(1))
                log_probs[chunk] = logits.gather(1, wanted[chunk]).float() - total[:, None]
            given = log_probs.unflatten(0, states.shape[:2]), lengths, again, tokens
            if not learning:
                rows = ctc.loss(*given)
            else:
                rows, held = ctc.loss_and_shares(*given)
                real = torch.arange(states.shape[1], device=x.device) < lengths[:, None]
                real &= (rows > 0)[:, None]  # where nothing can be learnt, the loss is 0
                held, real = held.flatten(0, 1).to(dtype), real.flatten().to(dtype)[:, None]
                by_x, by_weight = torch.empty(x.shape, device=x.device), torch.zeros_like(weight)
                for chunk in chunks:
                    gradient = (
                        (x[chunk] @ own.t()).softmax(1).scatter_add_(1, wanted[chunk], -held[chunk]).mul_(real[chunk])
                    )
                    by_x[chunk] = gradient @ own
                    by_weight += gradient.t() @ x[chunk]
                ctx.save_for_backward(by_x.view(states.shape), by_weight)
        return rows.sum()

    @staticmethod
    def backward(ctx: Any, *scales: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        """What `forward` has found already, times the gradient by the sum."""
        by_x, by_weight = ctx.saved_tensors
        return by_x * scales[0], by_weight * scales[0], None, None, None, None
