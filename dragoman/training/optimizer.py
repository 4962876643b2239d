"""What training minimises and how it steps: the loss, the learning rate, the optimizer.

Everything is a pure function of its arguments: the loss returns sums, to be divided once by the tokens of the whole
update, and the learning rate depends on the step alone, so that a resumed run goes on exactly where it was.

Shapes: B batch, T target positions, D model width, V vocabulary; N = B T, C of these in a chunk.
"""

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
    """AdamW with the paper's betas; weight decay, if any, on matrices alone, never on biases and norms.

    With Muon (Jordan et al. 2024) the matrices inside the layers are moved by it: by their momentum, made orthogonal,
    so that no direction is favoured. Its steps are scaled to be as long as AdamW's (Liu et al. 2025, "Muon is
    Scalable"), and the same learning rate serves both. Embeddings and what projects onto the vocabulary stay with
    AdamW: their rows are words, of which few occur in a batch. dtype is that of the model's products of matrices; what
    makes momentum orthogonal is such products, too.
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
    return CombinedOptimizer(adamw, muon)  # type: ignore[return-value]  # it has all that is used of one


class Muon(torch.optim.Muon):
    """That of torch, but all matrices of a shape are made orthogonal at a time.

    One by one these are fifteen products of each matrix, too small to keep a processor busy. As batches they take half
    the time on two cores where the model is 128 wide (24 ms), and three quarters where it is 256 wide. Settings and
    state are torch's, and so is what comes out, up to rounding. For some moments there is a copy of all matrices.
    """

    dtype = torch.float32  # in which they are made orthogonal: bfloat16 where the processor is fast in it

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change the weights that have a gradient."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            ahead: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is None:
                    continue
                if "momentum_buffer" not in self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
                momentum = self.state[p]["momentum_buffer"].lerp_(p.grad, 1 - group["momentum"])
                alike[p.shape].append(p)
                ahead[p.shape].append(p.grad.lerp(momentum, group["momentum"]))  # Nesterov's
            for shape, matrices in alike.items():
                steps = orthogonal(
                    torch.stack(ahead.pop(shape)).to(self.dtype), group["ns_coefficients"], group["ns_steps"]
                )
                length = 0.2 * math.sqrt(max(shape))  # as long as those of AdamW
                for p, step in zip(matrices, steps, strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(step, alpha=-group["lr"] * length)


def orthogonal(matrices: Tensor, coefficients: tuple[float, float, float], iterations: int) -> Tensor:
    """The nearest semi-orthogonal matrices, about, to some (N, R, C), by Newton and Schulz's iteration.

    Jordan et al. 2024: x <- a x + (b x xᵀ + c (x xᵀ)²) x brings all singular values that are not tiny to between 0.7
    and 1.2, which is near enough.
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
    """Several optimizers, each of parameters of its own, that are used, saved and restored as one."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all."""
        return [group for part in self.parts for group in part.param_groups]

    @property
    def state(self) -> dict[Tensor, Any]:
        """What each parameter's optimizer remembers of it."""
        return {p: state for part in self.parts for p, state in part.state.items()}

    def step(self) -> None:
        """Change the weights."""
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """As of one optimizer, whose parameters are those of the first part, then those of the next."""
        state, groups, first = {}, [], 0
        for part in self.parts:
            own = part.state_dict()
            state |= {first + i: values for i, values in own["state"].items()}
            groups += [{**group, "params": [first + i for i in group["params"]]} for group in own["param_groups"]]
            first += sum(len(group["params"]) for group in own["param_groups"])
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """What `state_dict` gave. Raises ValueError, LookupError or TypeError for that of other optimizers."""
        groups, first = list(saved["param_groups"]), 0
        if len(groups) != len(self.param_groups):
            raise ValueError(f"{len(groups)} groups of parameters instead of {len(self.param_groups)}")
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
    """The exponential moving average of a model's weights (Polyak & Juditsky 1992), to be used in their place.

    While the rate is high the weights stray around a better place than any that they are at: their mean is nearer to
    it. When the rate has come down to zero, they are there themselves.
    """

    def __init__(self, model: nn.Module, decay: float, fresh: bool = True) -> None:
        """fresh tells whether the model knows nothing yet: then its first weights are forgotten sooner."""
        self.fresh = fresh
        self.parameters = list(model.parameters())
        self.decay = decay
        self.means = [p.detach().clone() for p in self.parameters]

    def update(self, step: int) -> None:
        """Take in the weights after update number step."""
        decay = min(self.decay, (1 + step) / (10 + step)) if self.fresh else self.decay
        for p, mean in zip(self.parameters, self.means, strict=True):
            mean.lerp_(p.detach(), 1 - decay)

    def begin(self) -> None:
        """Begin anew with the weights as they are."""
        for p, mean in zip(self.parameters, self.means, strict=True):
            mean.copy_(p.detach())

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Until this is left, the model has the mean for its weights."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for p, mean in zip(self.parameters, self.means, strict=True):
            p.data, mean.data = mean.data, p.data
