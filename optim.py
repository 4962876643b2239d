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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import ctc
from config import EOS, PAD, TrainingConfig

CHUNK = 8 * 2**20  # logits that are held at a time
WARM = 0.1  # of the time that a run is given, which the warm-up takes at most
LEAST = 20  # updates of a warm-up that the clock would end sooner: a validation may have taken that time


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
    r_drop: float = 0.0,
) -> Loss:
    """The loss of a batch for a model of that architecture, see `config.ModelConfig`; the rest as `loss_sums`.

    Only for places that hold no token beforehand does it matter how long each source (B, S) is.
    """
    match architecture:
        case "encoder-only":
            return ctc_sums(states, projection, source, target)
        case _:
            return loss_sums(states, projection, target, smoothing, r_drop)


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


def loss_sums(states: Tensor, projection: Tensor, target: Tensor, smoothing: float, r_drop: float = 0.0) -> Loss:
    """Cross-entropy of the logits states · projectionᵀ with the target ids (B, T), summed over all but padding.

    Label smoothing (Szegedy et al. 2016) asks for the right token with probability 1 - smoothing and spreads the rest
    over all V tokens alike, as `torch.nn.functional.cross_entropy` does; here the plain loss comes with it at no cost.

    R-Drop (Liang et al. 2021) reads a batch twice and asks the two passes, between which dropout differs, to agree: to
    the mean of their losses comes r_drop / 4 times KL(p || q) + KL(q || p), which makes r_drop the α of that paper.

    Args:
        states: (B, T, D), the decoder's last ones; with R-Drop (2 B, T, D), one pass behind the other
        projection: (V, D), its rows are the vectors of the tokens
    """
    learning = torch.is_grad_enabled()
    given = states.flatten(0, 1), projection, target.flatten(), smoothing, r_drop, learning
    return Loss(*_LinearCrossEntropy.apply(*given))  # type: ignore[misc]


class _LinearCrossEntropy(torch.autograd.Function):
    """The projection onto the vocabulary and the loss in one, a chunk of tokens at a time.

    The logits of a batch are by far its largest tensor, and the textbook passes over them again and again. Here a chunk
    of them becomes probabilities and its part of the gradient while it is in the cache, and none is kept: this takes
    two thirds of the time, and 40 MB in place of 500 for 4,096 tokens and 10,000 words.

    With z = W x, p = softmax z, a smoothing of ε, the loss of a token y is (1 - ε) (lse z - z_y) + ε (lse z - mean z),
    its gradient by z is p - (1 - ε) [y] - ε / V. What is the same for all V tokens needs no pass over them: mean z is
    x · mean W, and the last term adds -ε mean W to the gradient by x, and -ε / V Σ x to that by each row of W.

    Of two passes, the rows of one stand behind those of the other, and a chunk has the same tokens of both.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, target: Tensor, smoothing: float, r_drop: float, learning: bool
    ) -> tuple[Tensor, Tensor]:
        """x (P N, D) of P passes, weight (V, D), target (N) to the sums of `Loss`.

        learning tells whether `backward` will be called.
        """
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        passes = len(x) // len(target)
        x, target = x.unflatten(0, (passes, -1)), target.expand(passes, -1)  # (P, N, D), (P, N)
        real = target != PAD
        with torch.autocast(kind, enabled=False):
            # A row of zeros adds nothing to the gradient by W.
            x, own = (x * real[:, :, None]).to(dtype), weight.to(dtype)
            by_x = torch.empty(x.shape, device=x.device) if learning else None
            by_weight = torch.zeros_like(weight) if learning else None
            total, logit, apart = (torch.zeros(target.shape, device=x.device) for _ in range(3))
            size = max(1, CHUNK // (passes * len(weight)))
            for start in range(0, x.shape[1], size):
                chunk = slice(start, start + size)
                rows, tokens = x[:, chunk].flatten(0, 1), target[:, chunk]
                logits = rows @ own.t()  # (P C, V)
                probs = logits.softmax(1)
                right = torch.arange(len(rows), device=x.device), tokens.flatten()  # the places of the right tokens
                total[:, chunk] = _log_sum_exp(logits, probs, right).view(tokens.shape)
                logit[:, chunk] = logits[right].float().view(tokens.shape)
                if r_drop:
                    apart[:, chunk], pull = _disagreement(
                        logits.unflatten(0, (2, -1)), total[:, chunk], probs.unflatten(0, (2, -1))
                    )
                if by_x is not None and by_weight is not None:
                    probs[right] -= 1 - smoothing
                    if r_drop:
                        probs.add_(pull.flatten(0, 1), alpha=r_drop / 2)
                    by_x[:, chunk] = (probs @ own).unflatten(0, (passes, -1))
                    by_weight += probs.t() @ rows
            mean = weight.mean(0)
            plain = ((total - logit) * real).sum() / passes
            uniform = ((total - x.float() @ mean) * real).sum() / passes
            smoothed = (1 - smoothing) * plain + smoothing * uniform + r_drop / 4 * apart.sum()
            if by_x is not None and by_weight is not None:
                by_weight -= smoothing / len(weight) * x.float().sum((0, 1))
                by_x = (by_x - smoothing * mean) * real[:, :, None]
                ctx.save_for_backward(by_x.flatten(0, 1) / passes, by_weight / passes)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, *scales: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        """What `forward` has found already, times the gradient by the smoothed sum."""
        by_x, by_weight = ctx.saved_tensors
        return by_x * scales[0], by_weight * scales[0], None, None, None, None


def _disagreement(logits: Tensor, total: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
    """KL(p || q) and KL(q || p) of two passes, (2, C), and the gradient of their sum by the logits, (2, C, V).

    With d = ln p - ln q, that by the logits of p is p (d - KL(p || q)) + p - q, and likewise with the two exchanged.

    Args:
        logits, probs: (2, C, V)
        total: lse of the logits, (2, C)
    """
    d = (logits[0] - logits[1]).sub_((total[0] - total[1])[:, None].to(logits.dtype))
    apart = torch.stack([(probs[0] * d).sum(1, dtype=torch.float32), -(probs[1] * d).sum(1, dtype=torch.float32)])
    own = 1 - apart.to(d.dtype)[:, :, None]
    return apart, torch.stack([probs[0] * (d + own[0]) - probs[1], probs[1] * (own[1] - d) - probs[0]])


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


class Clock(NamedTuple):
    """Where a run stands that is to last training.max_minutes."""

    spent: float  # share of the time that has gone
    warm: float = 0.0  # share that had gone when the warm-up was over
    warm_steps: int = 0  # updates that it took; 0: it is not over


def warmth(step: int, settings: TrainingConfig, clock: Clock | None = None) -> float:
    """What share of the warm-up is over at update number step; 1 and more behind it.

    How many updates a given time allows is not known beforehand: a schedule that comes down with the clock also rises
    with it, so that warm-up never takes more than a tenth of the time. What is over stays over, whatever then changes.
    """
    by_steps = step / settings.warmup_steps if settings.warmup_steps else math.inf
    if clock is None:
        return by_steps
    by_clock = min(clock.spent / WARM, step / LEAST) if settings.schedule in ("linear", "cosine") else 0.0
    return max(by_steps, float(clock.warm_steps > 0), by_clock)


def learning_rate(step: int, settings: TrainingConfig, total_steps: int | None, clock: Clock | None = None) -> float:
    """The rate of update number step (the first is 1), at most training.lr.

    All schedules rise in a straight line over warmup_steps. Then
        inverse_sqrt  falls with 1/√step, as in the paper (section 5.3), and never ends;
        linear        falls in a straight line to zero at the end;
        cosine        falls along half a cosine to zero at the end;
        constant      stays.
    With decay_share below 1, linear and cosine stay at the peak, too, until that share of what comes after the warm-up
    is left: warmup-stable-decay (Hu et al. 2024, "MiniCPM").

    The end comes after total_steps, or when the clock has spent all its time: whichever is nearer. By that clock the
    warm-up may end sooner, see `warmth`.
    """
    warmup = settings.warmup_steps
    if (warm := warmth(step, settings, clock)) < 1:
        return settings.lr * warm
    match settings.schedule:
        case "inverse_sqrt":
            return settings.lr * math.sqrt(min(1.0, warmup / step))  # the clock may have ended the warm-up before
        case "constant":
            return settings.lr
        case "linear" | "cosine":
            # The update after the last would have the rate 0, so that no update is spent on nothing.
            risen = clock.warm_steps if clock and clock.warm_steps else warmup
            steps = [] if total_steps is None else [(total_steps + 1 - step) / max(1, total_steps + 1 - risen)]
            times = [] if clock is None else [(1 - clock.spent) / max(1e-9, 1 - clock.warm)]
            if not steps and not times:
                raise ValueError(f"schedule {settings.schedule} needs an end")
            left = max(0.0, min(steps + times))
            left = min(1.0, left / settings.decay_share)
            return settings.lr * (left if settings.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2)


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
    return Together(adamw, muon)  # type: ignore[return-value]  # it has all that is used of one


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


class Together:
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


class Average:
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
