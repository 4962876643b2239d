"""Cross-entropy and perplexity of a model on a set of pairs."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from dragoman.architectures.build import Model
from dragoman.architectures.loss import batch_loss
from dragoman.dataset import EncodedPairs, batch_plan, make_batch
from dragoman.device import autocast


@torch.inference_mode()
def mean_loss(
    model: Model,
    pairs: EncodedPairs,
    batch_tokens: int,
    dtype: torch.dtype = torch.float32,
    advance: Callable[[int], object] | None = None,
) -> float:
    """The negative log-likelihood per target token, in nats, without label smoothing or dropout.

    Losses and tokens are summed over all batches and divided once, so that the result does not depend on the batches.
    `advance` is called after each batch with its number of pairs.
    """
    model.eval()
    device = model.projection.weight.device
    sums: list[Tensor] = []  # read at the end, since each reading waits for a GPU
    tokens = 0
    for indices in batch_plan(*pairs.lengths, batch_tokens, seed=0, epoch=0):
        batch = make_batch(pairs, indices).to(device)
        with autocast(device, dtype):
            loss = batch_loss(model, batch, 0.0)
        sums.append(loss.plain)
        tokens += batch.tokens
        if advance:
            advance(len(indices))
    return sum(torch.stack(sums).tolist()) / tokens


def perplexity(loss: float) -> float:
    """exp(loss), capped at 1e9 so that an untrained model does not overflow it."""
    return math.exp(min(loss, math.log(1e9)))
