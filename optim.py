"""What training minimises and how it steps: the loss, the learning rate, the optimizer.

Everything is a pure function of its arguments: the loss returns sums, to be divided once by the tokens of the whole
update, and the learning rate depends on the step alone, so that a resumed run goes on exactly where it was.

Shapes: B batch, T target positions, V vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from config import PAD, TrainingConfig


class Loss(NamedTuple):
    """Sums over the target tokens of a batch, in nats."""

    smoothed: Tensor  # (), what is minimised
    plain: Tensor  # (), the negative log-likelihood, of which exp(mean) is the perplexity


def loss_sums(logits: Tensor, target: Tensor, smoothing: float) -> Loss:
    """Cross-entropy of logits (B, T, V) with target ids (B, T), summed over all but padding.

    Label smoothing (Szegedy et al. 2016) asks for the right token with probability 1 - smoothing and spreads the rest
    over all V tokens alike, as `torch.nn.functional.cross_entropy` does; here the plain loss comes with it at no cost.
    """
    logits = logits.float()  # under autocast they come in 16 bits, too few for a sum over V
    real = target != PAD
    total = logits.logsumexp(-1)  # (B, T)
    plain = ((total - logits.gather(-1, target[..., None]).squeeze(-1)) * real).sum()
    if smoothing == 0:
        return Loss(plain, plain.detach())
    uniform = ((total - logits.mean(-1)) * real).sum()  # the cross-entropy with the uniform distribution
    return Loss((1 - smoothing) * plain + smoothing * uniform, plain.detach())


def learning_rate(step: int, settings: TrainingConfig, total_steps: int | None) -> float:
    """The rate of update number step (the first is 1), at most training.lr.

    All schedules rise in a straight line over warmup_steps. Then
        inverse_sqrt  falls with 1/√step, as in the paper (section 5.3), and never ends;
        linear        falls in a straight line to zero after total_steps;
        cosine        falls along half a cosine to zero after total_steps;
        constant      stays.
    """
    warmup = settings.warmup_steps
    if step < warmup:
        return settings.lr * step / warmup
    match settings.schedule:
        case "inverse_sqrt":
            return settings.lr * math.sqrt(warmup / step)
        case "constant":
            return settings.lr
        case "linear" | "cosine":
            if total_steps is None:
                raise ValueError(f"schedule {settings.schedule} needs a last step")
            # The update after the last would have the rate 0, so that no update is spent on nothing.
            left = max(0.0, (total_steps + 1 - step) / max(1, total_steps + 1 - warmup))
            return settings.lr * (left if settings.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2)


def make_optimizer(model: nn.Module, settings: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW with the paper's betas; weight decay, if any, on matrices alone, never on biases and norms."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.lr, betas=(0.9, 0.98), eps=1e-9, fused=True)
