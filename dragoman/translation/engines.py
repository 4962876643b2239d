"""The Transformer once more, for translating: the same function as `model.Transformer`, as fast as a CPU allows.

    engine = ready(model, "int8")
    hypotheses = search(engine, source, limits)

`model` is written to be read, and to learn. A search calls it for one word at a time; then what takes the time is not
the arithmetic but fetching the weights, and the hundreds of small calls around it. So here
    - weights are integers of 8 bits with a scale for each row, a quarter of the memory (or bfloat16, half of it);
    - queries, keys and values come of one product;
    - no layer is called through `nn.Module`, and which variant of the model this is is settled in advance.
A sentence by itself takes a third of the time for it, one of sixty-four half. A test holds both equal.

Shapes are those of `model`: B batch   W hypotheses of a sentence   H heads   S source positions   D and K widths
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.architectures.decoder_only import DecoderOnly, next_position
from dragoman.architectures.encoder_only import EncoderOnly
from dragoman.architectures.ensemble import Ensemble, EnsembleState, mean_log_probs
from dragoman.architectures.protocol import Model
from dragoman.dataset import padding_mask
from dragoman.device import has_bfloat16
from dragoman.errors import DeviceError
from dragoman.model import (
    Attention,
    DecoderLayer,
    EncoderLayer,
    KeysValues,
    Residual,
    State,
    Transformer,
    rotate,
)

Precision = Literal["float32", "bfloat16", "int8"]
Map = Callable[[Tensor], Tensor]
CACHE = 16 * 2**20  # bytes, such as a core can count on
multiply_bytes = torch.ops.aten._int_mm.default  # int8 x int8 to int32, exact


# ------------------------------------------------------------------------------------------------- products of matrices


def product(weight: Tensor, bias: Tensor | None, precision: Precision) -> Map:
    """x (…, D) to x · weightᵀ + bias, in float32 at both ends; what is between is in the precision."""
    match precision:
        case "float32":
            return lambda x: F.linear(x, weight, bias)
        case "bfloat16":
            half, half_bias = weight.bfloat16(), None if bias is None else bias.bfloat16()
            return lambda x: F.linear(x.bfloat16(), half, half_bias).float()
        case "int8" if weight.shape[1] > 1:  # for one column, torch's product of bytes reads what is not its own
            return _int8(weight, bias)
        case "int8":
            return product(weight, bias, "float32")


def _int8(weight: Tensor, bias: Tensor | None) -> Map:
    """Weights as integers from -127 to 127, with a scale for each row of them; x likewise, row by row.

    So no sentence changes the digits of another in the batch. Sums are exact, in 32 bits.
    """
    scale = weight.abs().amax(1).clamp(min=1e-30) / 127
    integers = (weight / scale[:, None]).round_().to(torch.int8).t()  # (D, out)

    def apply(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        size = rows.abs().amax(1, True).mul_(1 / 127)
        # A row of zeros is divided by zero here; multiplied by it again below, whatever that gave is zero.
        sums = multiply_bytes((rows / size).round_().to(torch.int8), integers).float().mul_(scale)
        result = sums.mul_(size) if bias is None else torch.addcmul(bias, sums, size)
        return result.view(*x.shape[:-1], -1)

    return apply


def choose_weights(name: str, device: torch.device, weights: int) -> Precision:
    """The precision of that name for a model whose every step reads so many weights.

    auto is bfloat16 on a GPU that has it. On a CPU it is int8 for a model that the cache would not hold in float32, if
    the CPU is right in it and not far slower: a smaller model gains little, and int8 costs a tenth of a BLEU point.
    Raises DeviceError for int8 where it is not to be had.
    """
    match name:
        case "auto" if device.type == "cpu":
            return "int8" if 4 * weights > CACHE and _right() and _swift() else "float32"
        case "auto":
            return "bfloat16" if device.type == "cuda" and has_bfloat16(device) else "float32"
        case "int8" if device.type != "cpu":
            raise DeviceError(f"decoding.precision int8 is for CPUs, not for the device {device}.")
        case "int8" if not _right():
            raise DeviceError("decoding.precision int8 is not to be had: this CPU does not multiply bytes exactly.")
        case "float32" | "bfloat16" | "int8":
            return name
    raise ValueError(name)


@cache
def _right() -> bool:
    """Whether products of bytes are exact here: a processor without instructions for them may cut sums off."""
    x, weight = torch.ones(32, 512), torch.ones(512, 512)
    return torch.allclose(product(weight, None, "int8")(x), x @ weight.t(), rtol=1e-3)


@cache
def _swift() -> bool:
    """Whether products of bytes take less than four times as long as those of float32; found out in milliseconds.

    They are either far faster or far slower, so that a machine that is busy meanwhile finds the same.
    """
    x, weight = torch.ones(32, 512), torch.ones(512, 512)
    times = []
    for precision in ("int8", "float32"):
        apply, best = product(weight, None, precision), math.inf
        for _ in range(5):
            begun = time.perf_counter()
            apply(x)
            best = min(best, time.perf_counter() - begun)
        times.append(best)
    return times[0] < 4 * times[1]


# --------------------------------------------------------------------------------------------------------------- layers


def _norm(module: nn.Module) -> Map:
    """A norm, or nothing where the model has none."""
    match module:
        case nn.LayerNorm(normalized_shape=shape, weight=weight, bias=bias, eps=eps):
            return lambda x: torch.layer_norm(x, shape, weight, bias, eps)  # type: ignore[arg-type]
        case nn.RMSNorm(normalized_shape=shape, weight=weight, eps=eps):
            return lambda x: torch.rms_norm(x, shape, weight, eps)  # type: ignore[arg-type]
    return lambda x: x


def _around(residual: Residual) -> tuple[Map, Map]:
    """What `Residual.before` and `Residual.after` do with a norm: one of the two does nothing."""
    norm = _norm(residual.norm)
    return (norm, lambda x: x) if residual.pre else (lambda x: x, norm)


class _Attention:
    """Multi-head attention and what surrounds it."""

    def __init__(self, attention: Attention, residual: Residual, precision: Precision) -> None:
        self.width = attention.query.out_features // attention.n_heads
        self.heads, self.kv_heads = attention.n_heads, attention.kv_heads
        self.output = self.joined(precision, attention.output)
        self.before, self.after = _around(residual)

    def joined(self, precision: Precision, *parts: nn.Linear) -> Map:
        """Several projections as one: (B, T, D) to (B, T, all their widths)."""
        weight = torch.cat([part.weight for part in parts])
        bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
        return product(weight, bias, precision)

    def split(self, x: Tensor, *heads: int) -> tuple[Tensor, ...]:
        """(B, T, all heads K) to (B, H, T, K) for each number of heads."""
        return x.view(*x.shape[:2], -1, self.width).transpose(1, 2).split(heads, 1)

    def look(self, x: Tensor, queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """States x (B, T, D) to states that know of memory; mask (B, 1, 1, S) is the same for all positions."""
        shape = queries.shape
        if self.kv_heads < self.heads:  # to keys, the heads that share them are as so many positions
            queries = queries.reshape(shape[0], self.kv_heads, -1, self.width)
        if shape[2] == 1 or x.device.type != "cpu":
            heads = F.scaled_dot_product_attention(queries, memory.keys, memory.values, mask)
        else:  # of an encoder; for many short sentences in half the time, see `model.Attention`
            scores = (queries / math.sqrt(self.width)) @ memory.keys.transpose(2, 3)
            heads = (scores if mask is None else scores.add_(mask)).softmax(-1) @ memory.values
        return self.after(x + self.output(heads.reshape(shape).transpose(1, 2).reshape(x.shape)))


class _SelfAttention(_Attention):
    """Attention of a sequence over itself."""

    def __init__(self, attention: Attention, residual: Residual, precision: Precision) -> None:
        super().__init__(attention, residual, precision)
        self.all = self.joined(precision, attention.query, attention.key, attention.value)

    def __call__(
        self, x: Tensor, mask: Tensor | None, past: KeysValues | None, turns: Tensor | None
    ) -> tuple[Tensor, KeysValues]:
        """States x (B, T, D) to states, and the keys and values of all positions up to here."""
        queries, keys, values = self.split(self.all(self.before(x)), self.heads, self.kv_heads, self.kv_heads)
        if turns is not None:
            queries, keys = rotate(queries, turns), rotate(keys, turns)
        new = KeysValues(keys, values)
        seen = new if past is None else past.extended(new)
        return self.look(x, queries, seen, mask), seen


class _CrossAttention(_Attention):
    """Attention of a target over its source."""

    def __init__(self, attention: Attention, residual: Residual, precision: Precision) -> None:
        super().__init__(attention, residual, precision)
        self.query = self.joined(precision, attention.query)
        self.both = self.joined(precision, attention.key, attention.value)

    def keys_values(self, states: Tensor) -> KeysValues:
        """As `Attention.keys_values`."""
        keys, values = self.split(self.both(states), self.kv_heads, self.kv_heads)
        return KeysValues(keys.contiguous(), values.contiguous())  # once, for they are read at every step

    def __call__(self, x: Tensor, memory: KeysValues, mask: Tensor) -> Tensor:
        """States x (B, T, D) to states of the same shape."""
        [queries] = self.split(self.query(self.before(x)), self.heads)
        return self.look(x, queries, memory, mask)


def _feed_forward(layer: EncoderLayer | DecoderLayer, precision: Precision) -> Map:
    first, second = (
        product(each.weight, each.bias, precision) for each in layer.feed_forward if isinstance(each, nn.Linear)
    )
    before, after = _around(layer.around_feed_forward)
    [_, [activation, _], _] = layer.feed_forward  # type: ignore[misc]
    if isinstance(activation, nn.ReLU):
        activation = Tensor.relu_
    return lambda x: after(x + second(activation(first(before(x)))))


# -------------------------------------------------------------------------------------------------------------- models

BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


class _Stack:
    """Layers of self-attention."""

    def __init__(self, layers: Sequence[EncoderLayer], norm: nn.Module, precision: Precision) -> None:
        self.layers = [
            (_SelfAttention(layer.attention, layer.around_attention, precision), _feed_forward(layer, precision))
            for layer in layers
        ]
        self.norm = _norm(norm)

    def __call__(
        self, x: Tensor, mask: Tensor | None, turns: Tensor | None, past: list[KeysValues] | None = None
    ) -> tuple[Tensor, list[KeysValues]]:
        """As `model.Stack`; the mask (B, 1, 1, S) is one to be added to scores."""
        seen = []
        for i, (attention, feed_forward) in enumerate(self.layers):
            x, own = attention(x, mask, past[i] if past else None, turns)
            x = feed_forward(x)
            seen.append(own)
        return self.norm(x), seen


def _added(mask: Tensor) -> Tensor:
    """A mask that is added to scores: 0 where a query may look, else -inf."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -math.inf)


class Engine:
    """An encoder-decoder model that `decoding.search` can run, and nothing else."""

    def __init__(self, model: Transformer, precision: Precision) -> None:
        """Take the weights of the model as they are now."""
        self.model = model
        self.encoder = _Stack(model.encoder.layers, model.encoder.norm, precision)
        self.decoder = [
            (
                _SelfAttention(layer.self_attention, layer.around_self_attention, precision),
                _CrossAttention(layer.cross_attention, layer.around_cross_attention, precision),
                _feed_forward(layer, precision),
            )
            for layer in model.decoder.layers
        ]
        self.step_bytes = BYTES[precision] * model.products()[1]  # that are read for each step
        self.norm = _norm(model.decoder.norm)
        self.projection = product(model.projection.weight, None, precision)

    def start(self, source: Tensor) -> State:
        """As `Model.start`; the mask is one to be added to scores."""
        mask, embedding = _added(padding_mask(source)), self.model.encoder.embedding
        x, _ = self.encoder(embedding(source), mask, embedding.turns(0, source.shape[1]))
        return State([cross.keys_values(x) for _, cross, _ in self.decoder], mask, None)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """As `Model.step`."""
        memory, mask, past = state
        embedding, start = self.model.decoder.embedding, past[0].keys.shape[2] if past else 0
        x, turns = embedding(tokens[:, None], start), embedding.turns(start, 1)  # (B W, 1, D)
        seen = []
        for i, (own, cross, feed_forward) in enumerate(self.decoder):
            x, layer = own(x, None, past[i] if past else None, turns)
            seen.append(layer)
            y = x.view(len(mask), -1, x.shape[2])  # (B, W, D): to the source, hypotheses are as so many positions
            x = feed_forward(cross(y, memory[i], mask).view(x.shape))
        return self.projection(self.norm(x[:, 0])), State(memory, mask, seen)


class DecoderOnlyEngine:
    """A decoder-only model, likewise."""

    def __init__(self, model: DecoderOnly, precision: Precision) -> None:
        self.model = model
        self.stack = _Stack(model.decoder.layers, model.decoder.norm, precision)
        self.step_bytes = BYTES[precision] * model.products()[1]
        self.projection = product(model.projection.weight, None, precision)

    def start(self, source: Tensor) -> State:
        """As `Model.start`."""
        mask, embedding = padding_mask(source), self.model.source_embedding
        _, seen = self.stack(embedding(source), _added(mask), embedding.turns(0, source.shape[1]))
        return State([], mask, seen)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """As `Model.step`."""
        mask, start = next_position(state, len(tokens))
        embedding = self.model.embedding
        x, seen = self.stack(embedding(tokens[:, None], start), _added(mask), embedding.turns(start, 1), state.past)
        return self.projection(x[:, 0]), state._replace(past=seen)


class EncoderOnlyEngine:
    """An encoder-only model, which `decoding.read_off` runs once for a batch."""

    step_bytes = 0  # there are no steps

    def __init__(self, model: EncoderOnly, precision: Precision) -> None:
        self.model = model
        self.encoder = _Stack(model.encoder.layers, model.encoder.norm, precision)
        self.decoder = _Stack(model.decoder.layers, model.decoder.norm, precision)
        self.split = product(model.split.weight, model.split.bias, precision)
        self.projection = product(model.projection.weight, None, precision)
        self.lengths = model.lengths

    def places(self, source: Tensor) -> Tensor:
        """As `EncoderOnly.places`."""
        embedding, times = self.model.encoder.embedding, self.model.settings.upsampling
        mask = padding_mask(source)
        x, _ = self.encoder(embedding(source), _added(mask), embedding.turns(0, source.shape[1]))
        mask = mask.repeat_interleave(times, 3)
        x = embedding.placed(self.split(x).unflatten(2, (times, -1)).flatten(1, 2), mask[:, 0, 0])
        x, _ = self.decoder(x, _added(mask), embedding.turns(0, x.shape[1]))
        return self.projection(x)


class Engines:
    """The engines of an ensemble, which translate together as `model.Ensemble` does."""

    def __init__(self, ensemble: Ensemble, precision: Precision) -> None:
        self.members: list[Any] = [_engine(member, precision) for member in ensemble.members]
        self.step_bytes = max(member.step_bytes for member in self.members)

    def start(self, source: Tensor) -> EnsembleState:
        """As `Ensemble.start`."""
        return EnsembleState([member.start(source) for member in self.members])

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """As `Ensemble.step`."""
        steps = [member.step(tokens, own) for member, own in zip(self.members, state.states, strict=True)]
        return mean_log_probs([logits for logits, _ in steps]), EnsembleState([own for _, own in steps])

    def places(self, source: Tensor) -> Tensor:
        """As `Ensemble.places`."""
        return mean_log_probs([member.places(source) for member in self.members])

    def lengths(self, source: Tensor) -> Tensor:
        """As `Ensemble.lengths`."""
        return self.members[0].lengths(source)


AnyEngine = Engine | DecoderOnlyEngine | EncoderOnlyEngine | Engines


def _engine(model: Model, precision: Precision) -> Engine | DecoderOnlyEngine | EncoderOnlyEngine:
    match model:
        case DecoderOnly():
            return DecoderOnlyEngine(model, precision)
        case EncoderOnly():
            return EncoderOnlyEngine(model, precision)
        case Transformer():
            return Engine(model, precision)
    raise TypeError(type(model))


def ready(model: Model | Ensemble, name: str = "auto") -> AnyEngine:
    """What `decoding` runs in place of a model, with its weights as they are now; name: see `choose_weights`."""
    members = list(model.members) if isinstance(model, Ensemble) else [model]
    precision = choose_weights(name, members[0].projection.weight.device, max(max(each.products()) for each in members))
    with torch.inference_mode():
        model.eval()  # no dropout
        return Engines(model, precision) if isinstance(model, Ensemble) else _engine(model, precision)
