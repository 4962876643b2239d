"""The optimizers, and the moving average of the weights."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.settings import TrainingConfig


def make_optimizer(
    model: nn.Module, settings: TrainingConfig, dtype: torch.dtype = torch.float32
) -> torch.optim.Optimizer:
    """AdamW with the paper's betas, or Muon with AdamW. Weight decay applies to matrices, not to biases and norms.

    Muon (Jordan et al. 2024) updates the matrices inside the layers by their momentum, made orthogonal, which favours
    no direction. Its steps are scaled to the length of AdamW's (Liu et al. 2025, "Muon is Scalable"), so one learning
    rate serves both. Embeddings and the output projection stay with AdamW: their rows are words, and few words occur in
    a batch. dtype is that of the model's matrix products, in which Muon makes the momentum orthogonal, too.
    """
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    tables += [module.weight for name, module in model.named_children() if name == "projection"]  # type: ignore[misc]
    groups: dict[str, list[nn.Parameter]] = {"inner": [], "outer": [], "vectors": []}
    for p in model.parameters():
        outer = settings.optimizer == "adamw" or any(p is table for table in tables)
        groups["vectors" if p.dim() < 2 else "outer" if outer else "inner"].append(p)
    adamw = torch.optim.AdamW(
        [
            {"params": groups["outer"], "weight_decay": settings.weight_decay},
            {"params": groups["vectors"], "weight_decay": 0.0},
        ],
        lr=settings.lr,
        betas=(0.9, 0.98),
        eps=1e-9,
        fused=True,
    )
    if settings.optimizer == "adamw":
        return adamw
    muon = Muon(groups["inner"], settings.lr, weight_decay=settings.weight_decay, adjust_lr_fn="match_rms_adamw")
    muon.dtype = torch.bfloat16 if dtype == torch.bfloat16 else torch.float32
    return CombinedOptimizer(adamw, muon)  # type: ignore[return-value]  # it has what is used of one


class Muon(torch.optim.Muon):
    """torch's Muon, but it makes all matrices of one shape orthogonal at a time.

    One by one, each matrix needs fifteen products that are too small to keep a processor busy. In batches they take
    half the time on two cores for a model of width 128 (24 ms), and three quarters for a width of 256. Settings and
    state are torch's, and so is the result up to rounding. It briefly needs a copy of all matrices.
    """

    dtype = torch.float32  # of the products; bfloat16 where the processor is fast in it

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            parameters: dict[torch.Size, list[Tensor]] = defaultdict(list)  # by shape
            momenta: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is None:
                    continue
                if "momentum_buffer" not in self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
                momentum = self.state[p]["momentum_buffer"].lerp_(p.grad, 1 - group["momentum"])
                parameters[p.shape].append(p)
                momenta[p.shape].append(p.grad.lerp(momentum, group["momentum"]))  # Nesterov's
            for shape, matrices in parameters.items():
                steps = orthogonal(
                    torch.stack(momenta.pop(shape)).to(self.dtype), group["ns_coefficients"], group["ns_steps"]
                )
                length = 0.2 * math.sqrt(max(shape))  # that of AdamW's steps
                for p, step in zip(matrices, steps, strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(step, alpha=-group["lr"] * length)


def orthogonal(matrices: Tensor, coefficients: tuple[float, float, float], iterations: int) -> Tensor:
    """Approximate the nearest semi-orthogonal matrices to matrices (N, R, C) by the Newton-Schulz iteration.

    Jordan et al. 2024: x <- a x + (b x xᵀ + c (x xᵀ)²) x brings all singular values that are not tiny to between 0.7
    and 1.2, which is close enough.
    """
    a, b, c = coefficients
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT.contiguous() if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for _ in range(iterations):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class CombinedOptimizer:
    """Several optimizers with parameters of their own, used, saved and restored as one."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all parts."""
        return [group for part in self.parts for group in part.param_groups]

    @property
    def state(self) -> dict[Tensor, Any]:
        """The state of each parameter in its optimizer."""
        return {p: state for part in self.parts for p, state in part.state.items()}

    def step(self) -> None:
        """Update the parameters."""
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """As of one optimizer, numbering the parameters of the first part, then those of the next."""
        state, groups, first = {}, [], 0
        for part in self.parts:
            own = part.state_dict()
            state |= {first + i: values for i, values in own["state"].items()}
            groups += [{**group, "params": [first + i for i in group["params"]]} for group in own["param_groups"]]
            first += sum(len(group["params"]) for group in own["param_groups"])
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. Raises ValueError, LookupError or TypeError if it does not fit."""
        groups, first = list(saved["param_groups"]), 0
        if len(groups) != len(self.param_groups):
            raise ValueError(f"{len(groups)} parameter groups instead of {len(self.param_groups)}")
        for part in self.parts:
            own, groups = groups[: len(part.param_groups)], groups[len(part.param_groups) :]
            last = first + sum(len(group["params"]) for group in own)
            part.load_state_dict(
                {
                    "state": {i - first: values for i, values in saved["state"].items() if first <= i < last},
                    "param_groups": [{**group, "params": [i - first for i in group["params"]]} for group in own],
                }
            )
            first = last


class MovingAverage:
    """The exponential moving average (EMA) of a model's weights (Polyak & Juditsky 1992).

    While the learning rate is high, the weights move around a better point, and their average is closer to it. Once the
    rate has come down to zero, they are there themselves.
    """

    def __init__(self, model: nn.Module, decay: float, fresh: bool = True) -> None:
        """Start with the current weights. `fresh` weights are random, and soon forgotten."""
        self.fresh = fresh
        self.parameters = list(model.parameters())
        self.decay = decay
        self.means = [p.detach().clone() for p in self.parameters]

    def update(self, step: int) -> None:
        """Add the weights after update `step` to the average."""
        decay = min(self.decay, (1 + step) / (10 + step)) if self.fresh else self.decay
        for p, mean in zip(self.parameters, self.means, strict=True):
            mean.lerp_(p.detach(), 1 - decay)

    def restart(self) -> None:
        """Restart the average from the current weights."""
        for p, mean in zip(self.parameters, self.means, strict=True):
            mean.copy_(p.detach())

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Context manager: swap in the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for p, mean in zip(self.parameters, self.means, strict=True):
            p.data, mean.data = mean.data, p.data
