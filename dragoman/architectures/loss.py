"""The loss of a batch, computed together with the projection onto the vocabulary.

The logits of a batch are by far its largest tensor: 160 MB for 4,096 tokens and 10,000 words, and their gradient takes
as much again. So both losses here make the logits of a chunk of the batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.architectures import ctc
from dragoman.architectures.build import Model
from dragoman.dataset import Batch
from dragoman.settings import EOS, PAD

CHUNK = 8 * 2**20  # logits in memory at a time, so that they stay in the cache of a CPU
GPU_CHUNK = 128 * 2**20  # small chunks leave a GPU idle


class Loss(NamedTuple):
    """Sums over the target tokens of a batch, in nats."""

    smoothed: Tensor  # (), the loss to minimise
    plain: Tensor  # (), the negative log-likelihood; exp(mean) is the perplexity


def batch_loss(model: Model, batch: Batch, smoothing: float, states: Callable[..., Tensor] | None = None) -> Loss:
    """The loss of a model on a batch.

    Args:
        smoothing: share of the probability that label smoothing spreads over all tokens; see `loss_sums`
        states: `model.states`, or its compiled form
    """
    inputs = batch.source, batch.target_in, batch.source_mask, batch.target_mask
    last, projection = (states or model.states)(*inputs), model.projection.weight
    if model.settings.architecture == "encoder-only":
        return ctc_sums(last, projection, batch.source, batch.target_out)
    return loss_sums(last, projection, batch.target_out, smoothing)


def loss_sums(states: Tensor, projection: Tensor, target: Tensor, smoothing: float) -> Loss:
    """Cross-entropy of the logits states · projectionᵀ with target ids (B, T), summed over all but padding.

    Label smoothing ε (Szegedy et al. 2016) gives the right token y the probability 1 - ε and spreads the rest evenly
    over all V tokens, which adds ε (z_y - mean z) to the loss of logits z. With z = W x, that takes no logits.

    Args:
        states: (B, T, D), the last states of the decoder
        projection: (V, D), one row per token
    """
    states, target = states.flatten(0, 1), target.flatten()
    plain = in_chunks(_cross_entropy, states, projection, target)
    right, mean = F.embedding(target, projection), projection.mean(0)
    smoothed = plain + smoothing * ((states * (right - mean)).sum(1) * (target != PAD)).sum()
    return Loss(smoothed, plain.detach())


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target, ignore_index=PAD, reduction="none")


def ctc_sums(states: Tensor, projection: Tensor, source: Tensor, target: Tensor) -> Loss:
    """-log p by CTC of target ids (B, T) without [EOS], summed over sentences. A sentence ends where its places end.

    There is no label smoothing, because a place has to decide between a token and nothing.

    Args:
        states: (B, N, D), with N / S places per token of source ids (B, S)
        projection: (V, D), one row per token
    """
    lengths = states.shape[1] // source.shape[1] * (source != PAD).sum(1)
    tokens = ((target != PAD) & (target != EOS)).sum(1)
    total = in_chunks(_ctc_loss, states, projection, lengths, target, tokens)
    return Loss(total, total.detach())


def _ctc_loss(logits: Tensor, lengths: Tensor, target: Tensor, tokens: Tensor) -> Tensor:
    return ctc.loss(logits.float().log_softmax(-1), lengths, target, tokens)


def in_chunks(rows_loss: Callable[..., Tensor], states: Tensor, projection: Tensor, *given: Tensor) -> Tensor:
    """Sum the losses of all rows of states (B, ..., D), making the logits of a few rows at a time.

    Args:
        rows_loss: maps logits (b, ..., V) and b rows of each tensor in `given` to the loss of each row, (b)
    """
    logits = states[:1].numel() // states.shape[-1] * len(projection)  # of a row
    chunk = max(1, (CHUNK if states.device.type == "cpu" else GPU_CHUNK) // logits)
    return _InChunks.apply(rows_loss, chunk, torch.is_grad_enabled(), states, projection, *given)  # type: ignore[return-value]


class _InChunks(torch.autograd.Function):
    """`in_chunks`, with the gradient computed by the forward pass, while the logits of a chunk are there."""

    @staticmethod
    def forward(
        ctx: Any, rows_loss: Callable[..., Tensor], chunk: int, learning: bool, states: Tensor, weight: Tensor,
        *given: Tensor,
    ) -> Tensor:  # fmt: skip
        """Return the sum. learning: `backward` will be called."""
        kind = states.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        total = torch.zeros((), device=states.device)
        by_states, by_weight = [], torch.zeros_like(weight)
        with torch.autocast(kind, enabled=False), torch.set_grad_enabled(learning):
            own = weight.detach().to(dtype).requires_grad_(learning)
            for part, *others in zip(*(tensor.split(chunk) for tensor in (states, *given)), strict=True):
                x = part.detach().to(dtype).requires_grad_(learning)
                loss = rows_loss(x @ own.t(), *others).sum(dtype=torch.float32)
                total += loss.detach()
                if learning:
                    by_x, by_own = torch.autograd.grad(loss, (x, own))
                    by_states.append(by_x)
                    by_weight += by_own
        if learning:
            ctx.save_for_backward(torch.cat(by_states).float(), by_weight)
        return total

    @staticmethod
    def backward(ctx: Any, *scales: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients that `forward` computed by the gradient of the sum."""
        by_states, by_weight = ctx.saved_tensors
        return None, None, None, by_states * scales[0], by_weight * scales[0], *[None] * (len(ctx.needs_input_grad) - 5)
