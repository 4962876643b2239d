"""The optimizers."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.settings import TrainingConfig

CACHED = 4 * 2**20  # numbers of the matrices that Muon handles at a time on a CPU


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
    """torch's Muon, but it makes several matrices of one shape orthogonal at a time.

    One by one, each matrix needs fifteen products that are too small to keep a processor busy. In batches they take
    half the time on two cores for a model of width 128 (24 ms), and three quarters for a width of 256. On a CPU, a
    batch is no larger than what stays in its cache meanwhile. Settings and state are torch's, and so is the result up
    to rounding.
    """

    dtype = torch.float32  # of the products; bfloat16 where the processor is fast in it

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[p.shape].append(p)
            for shape, parameters in by_shape.items():
                size = max(1, CACHED // shape.numel()) if parameters[0].device.type == "cpu" else len(parameters)
                for start in range(0, len(parameters), size):
                    self._update(parameters[start : start + size], group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Update parameters (R, C) of one shape."""
        shape = parameters[0].shape
        tall = shape[0] > shape[1]  # then work on its transpose, of which x xᵀ is smaller
        directions = parameters[0].new_empty(len(parameters), *sorted(shape), dtype=self.dtype)
        for p, direction in zip(parameters, directions, strict=True):
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
            momentum = self.state[p]["momentum_buffer"].lerp_(p.grad, 1 - group["momentum"])  # type: ignore[arg-type]
            nesterov = torch.lerp(p.grad, momentum, group["momentum"]).to(self.dtype)  # type: ignore[arg-type]
            direction.copy_(nesterov.t() if tall else nesterov)
        steps = orthogonal_(directions, group["ns_coefficients"], group["ns_steps"])
        length = 0.2 * math.sqrt(max(shape))  # that of AdamW's steps
        for p, step in zip(parameters, steps, strict=True):
            step = step.t().contiguous() if tall else step
            p.mul_(1 - group["lr"] * group["weight_decay"]).add_(step, alpha=-group["lr"] * length)


def orthogonal_(matrices: Tensor, coefficients: tuple[float, float, float], iterations: int) -> Tensor:
    """Approximate the nearest semi-orthogonal matrices to matrices (N, R, C), R <= C, which it overwrites.

    The Newton-Schulz iteration of Jordan et al. 2024: x <- a x + (b x xᵀ + c (x xᵀ)²) x brings all singular values that
    are not tiny to between 0.7 and 1.2, which is close enough. Nothing here takes new memory between its products.
    """
    a, b, c = coefficients
    x = matrices.div_(matrices.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7))
    spare, (square, factor) = torch.empty_like(x), x.new_empty(2, *x.shape[:2], x.shape[1])
    for _ in range(iterations):
        torch.bmm(x, x.mT, out=square)
        factor.copy_(square).baddbmm_(square, square, beta=b, alpha=c)
        x, spare = spare.copy_(x).baddbmm_(factor, x, beta=a), x
    return x


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
