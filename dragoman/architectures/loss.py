"""The loss of a batch, computed together with the projection onto the vocabulary.

The logits of a batch are by far its largest tensor. The plain form (`nn.Linear`, then `F.cross_entropy` or
`F.ctc_loss`) keeps them all and passes over them several times. Both losses here work on a chunk of tokens at a time
and compute the gradient in the forward pass, while the chunk is in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dragoman.architectures import ctc
from dragoman.settings import EOS, PAD

CHUNK = 8 * 2**20  # logits in memory at a time, so that they stay in the cache of a CPU
GPU_CHUNK = 128 * 2**20  # a GPU needs large pieces of work: with 30 chunks, it waits for the program that queues them
LARGE = 1e25  # a sum of exponentials this large is far from an overflow, also in products


class Loss(NamedTuple):
    """Sums over the target tokens of a batch, in nats."""

    smoothed: Tensor  # (), the loss to minimise
    plain: Tensor  # (), the negative log-likelihood; exp(mean) is the perplexity


def batch_loss(
    architecture: str, states: Tensor, projection: Tensor, source: Tensor, target: Tensor, smoothing: float
) -> Loss:
    """The loss of a batch for a model of this `model.architecture`. For the other arguments see `loss_sums`.

    source ids (B, S) matter only to an encoder-only model, whose number of places depends on the source length.
    """
    match architecture:
        case "encoder-only":
            return ctc_sums(states, projection, source, target)
        case _:
            return loss_sums(states, projection, target, smoothing)


def loss_sums(states: Tensor, projection: Tensor, target: Tensor, smoothing: float) -> Loss:
    """Cross-entropy of the logits states · projectionᵀ with target ids (B, T), summed over all but padding.

    Label smoothing (Szegedy et al. 2016) gives the right token the probability 1 - smoothing and spreads the rest
    evenly over all V tokens. The plain equivalent of `Loss.smoothed` is `F.cross_entropy(logits, target,
    ignore_index=PAD, label_smoothing=smoothing, reduction="sum")`; the unsmoothed loss comes at no extra cost.

    Args:
        states: (B, T, D), the last states of the decoder
        projection: (V, D), one row per token
    """
    given = states.flatten(0, 1), projection, target.flatten(), smoothing, torch.is_grad_enabled()
    return Loss(*_LinearCrossEntropy.apply(*given))  # type: ignore[misc]


def ctc_sums(states: Tensor, projection: Tensor, source: Tensor, target: Tensor) -> Loss:
    """-log p by CTC of target ids (B, T) without [EOS], summed over sentences. A sentence ends where its places end.

    There is no label smoothing, because a place has to decide between a token and nothing. The plain equivalent is
    `ctc.loss((states @ projection.t()).log_softmax(-1), lengths, target, tokens).sum()`.

    Args:
        states: (B, N, D), with N / S places per token of source ids (B, S)
        projection: (V, D), one row per token
    """
    lengths = states.shape[1] // source.shape[1] * (source != PAD).sum(1)
    tokens = ((target != PAD) & (target != EOS)).sum(1)
    total = _LinearCTC.apply(states, projection, lengths, target, tokens, torch.is_grad_enabled())
    return Loss(total, total.detach())  # type: ignore[union-attr, arg-type]


def _product_dtype(weight: Tensor) -> torch.dtype:
    """The number format of matrix products, which autocast would choose."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def _chunks(rows: int, vocabulary: int, device: torch.device) -> list[slice]:
    """Cut rows of logits so that each chunk holds at most CHUNK of them, or GPU_CHUNK."""
    size = max(1, (CHUNK if device.type == "cpu" else GPU_CHUNK) // vocabulary)
    return [slice(start, start + size) for start in range(0, rows, size)]


class _LinearCrossEntropy(torch.autograd.Function):
    """Projection and cross-entropy in one. The plain equivalent is in `loss_sums`.

    This takes two thirds of the plain form's time, and 40 MB instead of 500 for 4,096 tokens and 10,000 words.

    With z = W x, p = softmax z and smoothing ε, the loss of a token y is (1 - ε) (lse z - z_y) + ε (lse z - mean z).
    Its gradient by z is p - (1 - ε) [y] - ε / V. The terms that are equal for all V tokens need no pass over them: mean
    z is x · mean W, and -ε / V adds -ε mean W to the gradient by x and -ε / V Σ x to the gradient by each row of W.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, target: Tensor, smoothing: float, learning: bool
    ) -> tuple[Tensor, Tensor]:
        """Map x (N, D), weight (V, D) and target (N) to the sums of `Loss`. learning: `backward` will be called."""
        dtype, real = _product_dtype(weight), target != PAD
        with torch.autocast(x.device.type, enabled=False):
            # Zero the rows of padding, so that they add nothing to the gradient by W.
            x, own = (x * real[:, None]).to(dtype), weight.to(dtype)
            summing = _with_ones(own, learning)
            by_x = torch.empty(x.shape, device=x.device) if learning else None
            by_weight = torch.zeros_like(weight) if learning else None
            total, logit = (torch.zeros(target.shape, device=x.device) for _ in range(2))
            for chunk in _chunks(len(x), len(weight), x.device):
                rows, tokens = x[chunk], target[chunk]
                right = tokens, torch.arange(len(tokens), device=x.device)
                logits = own @ rows.t()  # (V, C), in which both products with the gradient are fast
                logit[chunk] = logits[right].float()
                shares, sums, total[chunk], weighted = _exponentials(logits, own, rows, summing)
                if by_x is not None and by_weight is not None:
                    # What it takes for p is divided out where that is cheap: of C x D numbers instead of C x V.
                    by_x[chunk] = weighted.t() / sums[:, None] - (1 - smoothing) * own[tokens]
                    shares[right] -= ((1 - smoothing) * sums).to(dtype)
                    by_weight += shares @ (rows / sums[:, None]).to(dtype)
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
        """Scale the gradients found by `forward` by the gradient of the smoothed sum."""
        by_x, by_weight = ctx.saved_tensors
        return by_x * scales[0], by_weight * scales[0], None, None, None


def _with_ones(weight: Tensor, whole: bool) -> Tensor:
    """A row of V ones, for sums by a product; before it, if `whole`, the transpose of weight (V, D)."""
    width = weight.shape[1] if whole else 0
    rows = weight.new_ones(width + 1, len(weight))
    rows[:width].copy_(weight[:, :width].t())
    return rows


def _exponentials(
    logits: Tensor, weight: Tensor, rows: Tensor, summing: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """e, Σ e, log Σ exp z and Wᵀ e of logits z = weight · rowsᵀ (V, C), which it overwrites; softmax z = e / Σ e.

    On a CPU, e = exp z takes less than half the time of a softmax. Where that overflows, or nothing is left, e =
    softmax z. Σ e costs nothing: it is a further row of the product with `_with_ones`.
    """
    if logits.device.type == "cpu" and logits.dtype != torch.float16:
        shares = logits.exp_()
        weighted = summing @ shares
        sums = weighted[-1].float()
        if all(1 / LARGE < end < LARGE for end in map(float, sums.aminmax())):
            return shares, sums, sums.log(), weighted[:-1]
        logits = weight @ rows.t()
    shares = logits.softmax(0)
    likeliest = shares.amax(0).float()  # at least 1/V, which does not underflow even in 16 bits
    log_sum = logits.amax(0).float() - likeliest.log()
    return shares, torch.ones_like(likeliest), log_sum, summing[:-1] @ shares


def _log_sum_exp(logits: Tensor, probs: Tensor) -> Tensor:
    """log Σ exp z of logits z (C, V), as z - log p of the likeliest token per row.

    Its probability is at least 1/V, which does not underflow even in 16 bits.
    """
    return logits.amax(1).float() - probs.amax(1).float().log()


class _LinearCTC(torch.autograd.Function):
    """Projection and CTC in one. The plain equivalent is in `ctc_sums`.

    Of all logits, CTC needs only those of the sentence's tokens and of the blank, and their log-sum-exp. The gradient
    needs all of them, so a second pass computes them again: that is cheaper than keeping them.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, lengths: Tensor, target: Tensor, tokens: Tensor, learning: bool
    ) -> Tensor:
        """Map states (B, N, D), weight (V, D), target (B, T), lengths and tokens (B) to the sum over all sentences."""
        dtype = _product_dtype(weight)
        with torch.autocast(states.device.type, enabled=False):
            own, x = weight.to(dtype), states.detach().to(dtype).flatten(0, 1)  # (B N, D)
            # One column for the blank and one per token. A repeated token uses the column of its first occurrence.
            again = (target[:, :, None] == target[:, None, :]).int().argmax(2) + 1  # (B, T)
            columns = torch.cat((torch.full_like(target[:, :1], ctc.BLANK), target), 1)  # (B, 1 + T)
            wanted = columns[:, None].expand(-1, states.shape[1], -1).flatten(0, 1)  # (B N, 1 + T)
            log_probs = torch.empty(wanted.shape, device=x.device)
            chunks = _chunks(len(x), len(own), x.device)
            for chunk in chunks:
                logits = x[chunk] @ own.t()  # (C, V)
                total = _log_sum_exp(logits, logits.softmax(1))
                log_probs[chunk] = logits.gather(1, wanted[chunk]).float() - total[:, None]
            given = log_probs.unflatten(0, states.shape[:2]), lengths, again, tokens
            if not learning:
                return ctc.loss(*given).sum()
            rows, held = ctc.loss_and_shares(*given)
            real = torch.arange(states.shape[1], device=x.device) < lengths[:, None]
            real &= (rows > 0)[:, None]  # the loss is 0 where a target has no path, and nothing can be learned
            held, real = held.flatten(0, 1).to(dtype), real.flatten().to(dtype)[:, None]
            by_x, by_weight = torch.empty(x.shape, device=x.device), torch.zeros_like(weight)
            for chunk in chunks:
                probs = (x[chunk] @ own.t()).softmax(1)
                gradient = probs.scatter_add_(1, wanted[chunk], -held[chunk]).mul_(real[chunk])
                by_x[chunk] = gradient @ own
                by_weight += gradient.t() @ x[chunk]
            ctx.save_for_backward(by_x.view(states.shape), by_weight)
        return rows.sum()

    @staticmethod
    def backward(ctx: Any, *scales: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        """Scale the gradients found by `forward` by the gradient of the sum."""
        by_x, by_weight = ctx.saved_tensors
        return by_x * scales[0], by_weight * scales[0], None, None, None, None
