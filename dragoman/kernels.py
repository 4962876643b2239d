"""Faster forms of what a Transformer computes on a CPU, each with its plain equivalent.

Between two matrix products, a CPU mostly waits for memory. So the functions here pass over their numbers less often
than autograd would: they compute several steps at once, keep what the gradient needs in 16 bits, and compute again what
is cheap. They do so in training only. Without gradients, on other devices, and where PyTorch compiles or exports the
model, the plain form is what runs.

Shapes: B batch, H heads, T queries, S keys, K head width, N rows, D, F and V features.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.device import random_words

LARGE = 2**20  # numbers of a weight for which transposing an operand of its gradient pays


def applies(x: Tensor) -> bool:
    """Whether the kernels replace the plain forms for x. In float32 they would gain nothing."""
    learns = x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()
    return learns and not torch.compiler.is_compiling()


def product_dtype(x: Tensor) -> torch.dtype:
    """The number format of matrix products with x, which autocast would choose."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def rounded(x: Tensor) -> Tensor:
    """x in the number format of matrix products, once for all products with it. The plain equivalent is x."""
    return x.to(product_dtype(x)) if applies(x) else x


# --- Dropout ------------------------------------------------------------------------------------------------------


class Dropout(nn.Module):
    """Zero a share of the values in training and scale up the rest, so that the mean stays (section 5.4 of the paper).

    The plain equivalent is `nn.Dropout(share)`, with other random numbers. On a CPU, drawing these is what costs time.
    This draws 64 bits for four values: 16 bits give the share to within 1/65536, in a fifth of the time of `F.dropout`.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """Map x of any shape to the same shape; outside training, return it unchanged."""
        if not self.training or self.share == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.share)
        return x * _draw(x.shape, self.share).to(x.dtype).div_(1 - self.share)

    def added(self, x: Tensor, y: Tensor) -> Tensor:
        """x + dropout(y), for x and y of one shape."""
        if not self.training or self.share == 0 or not applies(x):
            return x + self(y)
        return _AddDropped.apply(x, y, self.share)  # type: ignore[return-value]

    @property
    def now(self) -> float:
        """The share that is dropped in the present mode: 0 outside training."""
        return self.share if self.training else 0.0


def _draw(shape: torch.Size, share: float) -> Tensor:
    """Draw for each value whether it is kept: 1 or 0, as 16-bit integers."""
    count = shape.numel()
    bits = random_words(math.ceil(count / 4)).view(torch.int16)[:count].view(shape)
    return bits.ge_(min(round(share * 2**16), 2**16 - 1) - 2**15)


def _drop(x: Tensor, kept: Tensor) -> Tensor:
    """Zero the values of x that are not kept. For 16 bits, multiplying them as integers takes the least time."""
    if x.element_size() == 2:
        return (x.view(torch.int16) * kept).view(x.dtype)
    return x * kept


def _drop_(x: Tensor, kept: Tensor) -> Tensor:
    """Do the same in place."""
    if x.element_size() == 2:
        x.view(torch.int16).mul_(kept)
        return x
    return x.mul_(kept)


def _cut_(x: Tensor, y: Tensor) -> None:
    """Zero x where y is not positive. For 16 bits, comparing integers takes half the time; their signs are the same."""
    if x.element_size() == 2:
        x, y = x.view(torch.int16), y.view(torch.int16)
    torch.ops.aten.threshold_backward.grad_input(x, y, 0, grad_input=x)


class _AddDropped(torch.autograd.Function):
    """x + dropout(y)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, share: float) -> Tensor:
        ctx.dtype, ctx.scale = y.dtype, 1 / (1 - share)
        kept = _draw(y.shape, share)
        ctx.save_for_backward(kept)
        return torch.add(x, _drop(y, kept), alpha=ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        by_sum, (kept,) = gradients[0], ctx.saved_tensors
        by_y = torch.mul(by_sum, ctx.scale, out=torch.empty_like(by_sum, dtype=ctx.dtype))
        return by_sum, _drop_(by_y, kept), None


# --- Products with weights ----------------------------------------------------------------------------------------


def linear(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Apply several layers to x (..., D) by one product. The plain equivalent is `each(x)` for each of them."""
    if not applies(x):
        return tuple(layer(x) for layer in layers)
    return _Linear.apply(x, *(layer.weight for layer in layers), *(layer.bias for layer in layers))  # type: ignore[return-value]


class _Linear(torch.autograd.Function):
    """x Wᵀ + b for several W and b; all b may be None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        weights, biases = parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]
        dtype = product_dtype(x)
        ctx.dtype, ctx.sizes, ctx.has_bias = x.dtype, [len(each) for each in weights], parameters[-1] is not None
        ctx.parameter_dtype = weights[0].dtype
        with torch.autocast("cpu", enabled=False):
            own = [each.to(dtype) for each in weights]
            weight = torch.cat(own) if len(own) > 1 else own[0]
            bias = torch.cat(biases).to(dtype) if ctx.has_bias else None
            x = x.to(dtype)
            ctx.save_for_backward(x, weight)
            return _affine(x, weight, bias).split(ctx.sizes, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (joined, *others) = ctx.saved_tensors, gradients
        joined = (torch.cat(gradients, -1) if others else joined).reshape(-1, len(weight))
        by_x = (joined @ weight).view(x.shape).to(ctx.dtype) if ctx.needs_input_grad[0] else None
        by_weights = _weight_gradient(joined, x.reshape(len(joined), -1), ctx.parameter_dtype).split(ctx.sizes)
        by_biases = joined.sum(0).to(ctx.parameter_dtype).split(ctx.sizes) if ctx.has_bias else [None] * len(ctx.sizes)
        return by_x, *by_weights, *by_biases


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "none") -> Tensor:
    """x Wᵀ + b for x (..., D), then no activation or "relu". The plain equivalent is `F.linear` and `relu_`.

    PyTorch writes the bias to all rows and adds the product to it. In bfloat16, oneDNN can do all this at once.
    """
    if x.dtype == torch.bfloat16 and _joins_bias():
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")
    y = F.linear(x, weight, bias)
    return y.relu_() if activation == "relu" else y


@cache
def _joins_bias() -> bool:
    """Whether this build of PyTorch and this CPU have oneDNN's product of 16-bit numbers with what follows it."""
    own = torch.ops.mkldnn
    return hasattr(own, "_linear_pointwise") and bool(own._is_mkldnn_bf16_supported())


def _weight_gradient(by_y: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient by W of x Wᵀ, for x (N, D) and the gradient by_y (N, F) by the product: by_yᵀ x, (F, D), in dtype.

    In bfloat16, oneDNN is slow if it has to transpose the left operand, the more so the wider the other one is. So
    transpose the narrower one, if it is much narrower and W large.
    """
    narrow, wide = sorted((by_y.shape[1], x.shape[1]))
    if wide < 2 * narrow or wide * narrow < LARGE:
        return (by_y.t() @ x).to(dtype)
    if by_y.shape[1] == narrow:
        return (by_y.t().contiguous() @ x).to(dtype)
    return (x.t().contiguous() @ by_y).t().contiguous().to(dtype)


def relu_block(x: Tensor, first: nn.Linear, second: nn.Linear, share: float) -> Tensor:
    """A feed-forward block with ReLU and dropout. The plain equivalent is `second(dropout(relu(first(x))))`.

    A hidden unit that is positive was neither dropped nor cut off. So the hidden units are all that the gradient needs.
    """
    return _ReluBlock.apply(x, first.weight, first.bias, second.weight, second.bias, share)  # type: ignore[return-value]


class _ReluBlock(torch.autograd.Function):
    """`relu_block` for x (..., D)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, into: Tensor, into_bias: Tensor, out: Tensor, out_bias: Tensor, share: float
    ) -> Tensor:
        dtype, ctx.scale = product_dtype(x), 1 / (1 - share)
        ctx.dtype, ctx.parameter_dtype = x.dtype, into.dtype
        with torch.autocast("cpu", enabled=False):
            x, own_into = x.to(dtype), into.to(dtype)
            own_out = (out * ctx.scale).to(dtype) if share else out.to(dtype)
            hidden = _affine(x, own_into, into_bias.to(dtype), "relu")
            if share:
                _drop_(hidden, _draw(hidden.shape, share))
            ctx.save_for_backward(x, hidden, own_into, own_out)
            return _affine(hidden, own_out, out_bias.to(dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, into, out = ctx.saved_tensors
        x, hidden, by_y = (each.reshape(-1, each.shape[-1]) for each in (x, hidden, gradients[0]))
        by_out = _weight_gradient(by_y, hidden, ctx.parameter_dtype).mul_(ctx.scale)
        by_hidden = by_y @ out
        _cut_(by_hidden, hidden)
        by_x = (by_hidden @ into).view(*gradients[0].shape[:-1], -1).to(ctx.dtype)
        by_into = _weight_gradient(by_hidden, x, ctx.parameter_dtype)
        return by_x, by_into, by_hidden.sum(0).to(by_into.dtype), by_out, by_y.sum(0).to(by_out.dtype), None


# --- Attention ----------------------------------------------------------------------------------------------------


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, share: float) -> Tensor:
    """Attention with dropout on its weights, for (B, H, T, K) and twice (B, H, S, K): (B, T, H K).

    The plain equivalent is `dropout(softmax(mask(queries keysᵀ / √K))) values`, with the heads side by side.
    """
    return _Attend.apply(queries, keys, values, mask, share)  # type: ignore[return-value]


class _Attend(torch.autograd.Function):
    """`attend`, with rows of scores as wide as a vector register; see `softmax`."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, share: float) -> Tensor:
        (b, h, t, k), s = queries.shape, keys.shape[2]
        ctx.sizes, ctx.scales = (b, h, t, k), (k**-0.5, 1 / (1 - share))
        with torch.autocast("cpu", enabled=False):
            queries, keys, values = (each.flatten(0, 1) for each in (queries, keys, values))
            scores = _widened(_product(queries, keys.mT, ctx.scales[0]))
            if mask is not None or scores.shape[2] > s:
                scores.view(b, h, t, -1).add_(_log_mask(mask, s, scores))
            weights = scores.softmax(-1)
            kept = _draw(weights[..., :s].shape, share) if share else None
            ctx.save_for_backward(queries, keys, values, weights, kept)
            dropped = weights[..., :s] if kept is None else _drop(weights[..., :s], kept)
            return _product(dropped, values, ctx.scales[1]).view(b, h, t, k).transpose(1, 2).flatten(2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, weights, kept = ctx.saved_tensors
        (b, h, t, k), (scale, rest), s = ctx.sizes, ctx.scales, keys.shape[1]
        by_heads = gradients[0].view(b, t, h, k).transpose(1, 2).flatten(0, 1)
        dropped = weights[..., :s] if kept is None else _drop(weights[..., :s], kept)
        by_values = _product(dropped.mT, by_heads, rest)
        by_weights = _product(by_heads, values.mT, rest)
        if kept is not None:
            _drop_(by_weights, kept)
        by_scores = torch.ops.aten._softmax_backward_data(_widened(by_weights), weights, -1, weights.dtype)[..., :s]
        by_queries, by_keys = _product(by_scores, keys, scale), _product(by_scores.mT, queries, scale)
        found = (each.view(b, h, -1, k) for each in (by_queries, by_keys, by_values))
        return *found, None, None


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """scale · a b, for batches of matrices."""
    return a.new_empty(len(a), a.shape[1], b.shape[2]).baddbmm_(a, b, beta=0, alpha=scale)


def _widened(rows: Tensor) -> Tensor:
    """Pad rows (..., S) with zeros to the 64 bytes of an AVX-512 register, if they are shorter."""
    missing = 64 // rows.element_size() - rows.shape[-1]
    return F.pad(rows, (0, missing)) if missing > 0 else rows


def _log_mask(mask: Tensor | None, keys: int, scores: Tensor) -> Tensor:
    """What to add to scores: 0 for the keys that mask (..., S) allows, else -inf, also for those beyond S."""
    shape = (keys,) if mask is None else mask.shape
    added = scores.new_full((*shape[:-1], scores.shape[-1]), -math.inf)
    added[..., :keys].masked_fill_(mask if mask is not None else added.new_ones((), dtype=torch.bool), 0)
    return added


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension of scores (..., S). The plain equivalent is `scores.softmax(-1)`.

    On a CPU, torch handles rows shorter than a vector register one number at a time: in bfloat16, a row of 14 scores, a
    typical sentence, takes four times as long as one of 32. So pad short rows with -inf, which gets no weight.
    """
    if torch.compiler.is_exporting():  # an exported graph must take any S, and padding would fix a range
        return scores.softmax(-1)
    keys = scores.shape[-1]
    missing = 64 // scores.element_size() - keys  # up to the 64 bytes of an AVX-512 register
    if scores.device.type != "cpu" or missing <= 0:
        return scores.softmax(-1)
    return F.pad(scores, (0, missing), value=-math.inf).softmax(-1)[..., :keys]
