"""The optimizers."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.settings import TrainingConfig

BETAS = (0.9, 0.98)  # of the moments of AdamW, as in "Attention Is All You Need"
EPSILON = 1e-9
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
    adamw_groups = [
        {"params": groups["outer"], "weight_decay": settings.weight_decay},
        {"params": groups["vectors"], "weight_decay": 0.0},
    ]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(adamw_groups, lr=settings.lr, betas=BETAS, eps=EPSILON, fused=True)
    matrices = {"params": groups["inner"], "weight_decay": settings.weight_decay}
    return MuonAdamW(adamw_groups, matrices, settings.lr, torch.bfloat16 if dtype == torch.bfloat16 else torch.float32)


class MuonAdamW(torch.optim.AdamW):
    """AdamW, and Muon for the matrices of its last parameter group, with the settings and state of torch.optim.Muon.

    It makes several matrices of one shape orthogonal at a time. One by one, each matrix needs fifteen products that are
    too small to keep a processor busy. In batches they take half the time on two cores for a model of width 128 (24
    ms), and three quarters for a width of 256. On a CPU, a batch is no larger than what stays in its cache meanwhile.
    """

    def __init__(
        self, adamw_groups: list[dict[str, Any]], matrices: dict[str, Any], lr: float, dtype: torch.dtype
    ) -> None:
        """dtype: of Muon's products; bfloat16 where the processor is fast in it"""
        super().__init__(adamw_groups, lr=lr, betas=BETAS, eps=EPSILON, fused=True)
        self.add_param_group({**matrices, "momentum": 0.95, "ns_coefficients": (3.4445, -4.775, 2.0315), "ns_steps": 5})
        self.dtype = dtype
        # GradScaler must skip all of an update that overflows; fused AdamW would skip only its own part.
        self._step_supports_amp_scaling = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a state. AdamW's method would look for "step" in the state of Muon's matrices."""
        torch.optim.Optimizer.__setstate__(self, state)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters that have a gradient."""
        group = self.param_groups.pop()
        try:
            super().step()
        finally:
            self.param_groups.append(group)
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

    The Newton-Schulz iteration of Jordan et al. 2024: x <- a x + (b x xᵀ + c (x xᵀ)²) x brings all but tiny singular
    values to between 0.7 and 1.2. Nothing here takes new memory between its products.
    """
    a, b, c = coefficients
    x = matrices.div_(matrices.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7))
    spare, (square, factor) = torch.empty_like(x), x.new_empty(2, *x.shape[:2], x.shape[1])
    for _ in range(iterations):
        torch.bmm(x, x.mT, out=square)
        factor.copy_(square).baddbmm_(square, square, beta=b, alpha=c)
        x, spare = spare.copy_(x).baddbmm_(factor, x, beta=a), x
    return x
