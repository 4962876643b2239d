"""Engines: the models again, as fast as a CPU allows, for `search` only.

    engine = make_engine(model, "int8")
    hypotheses = search(engine, source, limits)

`model` is written to be read and trained. A search calls it for one token at a time, which costs little arithmetic: the
time goes into reading the weights, and into the hundreds of small calls around that. So in an engine
    - weights are 8-bit integers with a scale per row, a quarter of the memory (or bfloat16, half of it); a source is
      read in the precision that is fastest for many rows at once, and a translation written in the fastest for few;
    - one product computes queries, keys and values;
    - no layer is called through `nn.Module`, and the variant of the model is resolved in advance.
A single sentence takes a third of the time, a batch of sixty-four half. A test compares each engine with its model.

Shapes are those of `model`: B batch   W hypotheses per sentence   H heads   S source positions   D and K widths
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.architectures.decoder_only import DecoderOnly, next_position
from dragoman.architectures.encoder_only import EncoderOnly
from dragoman.architectures.ensemble import Ensemble
from dragoman.architectures.protocol import Model
from dragoman.dataset import padding_mask
from dragoman.device import has_bfloat16
from dragoman.errors import DeviceError
from dragoman.model import Attention, DecoderLayer, EncoderLayer, KeysValues, Residual, State, Transformer, rotate
from dragoman.translation.engine_precision import FASTER, remembered

Precision = Literal["float32", "bfloat16", "int8"]
TensorFunction = Callable[[Tensor], Tensor]
CACHE = 16 * 2**20  # bytes of cache that every CPU core has
READING, WRITING = 400, 8  # rows of a product: all tokens of 30 sources, and one token of each of a few translations
BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}  # per weight
int8_matmul = torch.ops.aten._int_mm.default  # int8 x int8 to int32, exact


def product(weight: Tensor, bias: Tensor | None, precision: Precision) -> TensorFunction:
    """The function x (…, D) to x · weightᵀ + bias. Both ends are float32; the product is in the precision."""
    match precision:
        case "float32":
            return lambda x: F.linear(x, weight, bias)
        case "bfloat16":
            half, half_bias = weight.bfloat16(), None if bias is None else bias.bfloat16()
            return lambda x: F.linear(x.bfloat16(), half, half_bias).float()
        case "int8" if weight.shape[1] > 1:  # for one column, torch's int8 product reads outside its memory
            return _int8(weight, bias)
        case "int8":
            return product(weight, bias, "float32")


def _int8(weight: Tensor, bias: Tensor | None) -> TensorFunction:
    """Round weights and x to integers from -127 to 127, with a scale per row.

    A scale per row keeps the sentences of a batch independent. Sums are exact, in 32 bits.
    """
    scale = weight.abs().amax(1).clamp(min=1e-30) / 127
    integers = (weight / scale[:, None]).round_().to(torch.int8).t()  # (D, out)

    def apply(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        size = rows.abs().amax(1, True).mul_(1 / 127)
        # A row of zeros is divided by zero here, but multiplied by zero again below.
        sums = int8_matmul((rows / size).round_().to(torch.int8), integers).float().mul_(scale)
        result = sums.mul_(size) if bias is None else torch.addcmul(bias, sums, size)
        return result.view(*x.shape[:-1], -1)

    return apply


def choose_weights(name: str, device: torch.device, weights: int, rows: int) -> Precision:
    """The precision with this name, for a model that reads this number of weights for about this number of rows.

    auto is bfloat16 on a GPU that has it. On a CPU it is the `fastest` if the weights do not fit into the cache as
    float32; a smaller model would gain little. Raises DeviceError if this device has no int8.
    """
    match name:
        case "auto" if device.type == "cpu":
            return fastest(rows) if 4 * weights > CACHE else "float32"
        case "auto":
            return "bfloat16" if device.type == "cuda" and has_bfloat16(device) else "float32"
        case "int8" if device.type != "cpu":
            raise DeviceError(f"decoding.precision int8 needs a CPU, but the device is {device}.")
        case "int8" if not int8_is_exact():
            raise DeviceError("decoding.precision int8 does not work here: this CPU does not multiply bytes exactly.")
        case "float32" | "bfloat16" | "int8":
            return name
    raise ValueError(name)


@cache
def int8_is_exact() -> bool:
    """Whether int8 products are exact: a processor without instructions for them may saturate sums."""
    x, weight = torch.ones(32, 512), torch.ones(512, 512)
    return torch.allclose(product(weight, None, "int8")(x), x @ weight.t(), rtol=1e-3)


def fastest(rows: int) -> Precision:
    """The precision in which this CPU multiplies this number of rows fastest, measured in a third of a second, once."""

    def measure() -> Precision:
        best: Precision = "float32"
        for precision in ("bfloat16", "int8") if int8_is_exact() else ("bfloat16",):
            if FASTER * seconds(precision, rows) < seconds(best, rows):
                best = precision
        return best

    return remembered(f"products of {rows} rows", measure)  # type: ignore[return-value]


def seconds(precision: Precision, rows: int) -> float:
    """How long one thread takes to multiply rows by more weights than fit into the cache.

    The shortest time of each product counts, so a busy machine measures the same.
    """
    x, products = torch.ones(rows, 512), [product(torch.ones(2048, 512), None, precision) for _ in range(8)]
    threads, best = torch.get_num_threads(), [math.inf] * len(products)
    torch.set_num_threads(1)
    try:
        for _ in range(4):
            for i, apply in enumerate(products):
                begin = time.perf_counter()
                apply(x)
                best[i] = min(best[i], time.perf_counter() - begin)
    finally:
        torch.set_num_threads(threads)
    return sum(best)


def _norm(module: nn.Module) -> TensorFunction:
    """The function of a norm; the identity if the model has none."""
    match module:
        case nn.LayerNorm(normalized_shape=shape, weight=weight, bias=bias, eps=eps):
            return lambda x: torch.layer_norm(x, shape, weight, bias, eps)  # type: ignore[arg-type]
        case nn.RMSNorm(normalized_shape=shape, weight=weight, eps=eps):
            return lambda x: torch.rms_norm(x, shape, weight, eps)  # type: ignore[arg-type]
    return lambda x: x


def _norms_around(residual: Residual) -> tuple[TensorFunction, TensorFunction]:
    """The norms before and after a sublayer, see `Residual`. One of them is the identity."""
    norm = _norm(residual.norm)
    return (norm, lambda x: x) if residual.pre else (lambda x: x, norm)


class _Attention:
    """Multi-head attention with its residual connection and norms."""

    def __init__(self, attention: Attention, residual: Residual, precision: Precision) -> None:
        self.width = attention.query.out_features // attention.n_heads
        self.heads, self.kv_heads = attention.n_heads, attention.kv_heads
        self.output = self.joined(precision, attention.output)
        self.before, self.after = _norms_around(residual)

    def joined(self, precision: Precision, *parts: nn.Linear) -> TensorFunction:
        """Several projections as one: (B, T, D) to (B, T, sum of their widths)."""
        weight = torch.cat([part.weight for part in parts])
        bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
        return product(weight, bias, precision)

    def split(self, x: Tensor, *heads: int) -> tuple[Tensor, ...]:
        """Split (B, T, H K) into (B, H, T, K) for each of several numbers of heads."""
        return x.view(*x.shape[:2], -1, self.width).transpose(1, 2).split(heads, 1)

    def look(self, x: Tensor, queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """Let states x (B, T, D) attend to memory; mask (B, 1, 1, S) is added to the scores."""
        shape = queries.shape
        if self.kv_heads < self.heads:  # heads that share a key become positions
            queries = queries.reshape(shape[0], self.kv_heads, -1, self.width)
        if shape[2] == 1 or x.device.type != "cpu":
            heads = F.scaled_dot_product_attention(queries, memory.keys, memory.values, mask)
        else:  # for the many short sentences of an encoder, half the time; see `model.Attention`
            scores = (queries / math.sqrt(self.width)) @ memory.keys.transpose(2, 3)
            heads = (scores if mask is None else scores.add_(mask)).softmax(-1) @ memory.values
        return self.after(x + self.output(heads.reshape(shape).transpose(1, 2).reshape(x.shape)))


class _SelfAttention(_Attention):
    """Self-attention."""

    def __init__(self, attention: Attention, residual: Residual, precision: Precision) -> None:
        super().__init__(attention, residual, precision)
        self.all = self.joined(precision, attention.query, attention.key, attention.value)

    def __call__(
        self, x: Tensor, mask: Tensor | None, past: KeysValues | None, turns: Tensor | None
    ) -> tuple[Tensor, KeysValues]:
        """New states (B, T, D), and the keys and values of all positions so far."""
        queries, keys, values = self.split(self.all(self.before(x)), self.heads, self.kv_heads, self.kv_heads)
        if turns is not None:
            queries, keys = rotate(queries, turns), rotate(keys, turns)
        new = KeysValues(keys, values)
        seen = new if past is None else past.extended(new)
        return self.look(x, queries, seen, mask), seen


class _CrossAttention(_Attention):
    """Attention of the target to the source."""

    def __init__(self, attention: Attention, residual: Residual, reading: Precision, writing: Precision) -> None:
        super().__init__(attention, residual, writing)
        self.query = self.joined(writing, attention.query)
        self.both = self.joined(reading, attention.key, attention.value)

    def keys_values(self, states: Tensor) -> KeysValues:
        """See `Attention.keys_values`."""
        keys, values = self.split(self.both(states), self.kv_heads, self.kv_heads)
        return KeysValues(keys.contiguous(), values.contiguous())  # because every step reads them

    def __call__(self, x: Tensor, memory: KeysValues, mask: Tensor) -> Tensor:
        """New states of the shape of x (B, T, D)."""
        [queries] = self.split(self.query(self.before(x)), self.heads)
        return self.look(x, queries, memory, mask)


def _feed_forward(layer: EncoderLayer | DecoderLayer, precision: Precision) -> TensorFunction:
    first, second = (
        product(each.weight, each.bias, precision) for each in layer.feed_forward if isinstance(each, nn.Linear)
    )
    before, after = _norms_around(layer.around_feed_forward)
    [_, [activation, _], _] = layer.feed_forward  # type: ignore[misc]
    if isinstance(activation, nn.ReLU):
        activation = Tensor.relu_
    return lambda x: after(x + second(activation(first(before(x)))))


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
        """See `model.Stack`. The mask (B, 1, 1, S) is added to the scores."""
        seen = []
        for i, (attention, feed_forward) in enumerate(self.layers):
            x, own = attention(x, mask, past[i] if past else None, turns)
            x = feed_forward(x)
            seen.append(own)
        return self.norm(x), seen


def _additive(mask: Tensor) -> Tensor:
    """A mask to add to the scores: 0 where a query may look at a key, else -inf."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -math.inf)


class EncoderDecoderEngine:
    """The engine of a `Transformer`."""

    def __init__(self, model: Transformer, reading: Precision, writing: Precision) -> None:
        """Take the weights of the model as they are now, in one precision for the source and one for each step."""
        self.model = model
        self.encoder = _Stack(model.encoder.layers, model.encoder.norm, reading)
        self.decoder = [
            (
                _SelfAttention(layer.self_attention, layer.around_self_attention, writing),
                _CrossAttention(layer.cross_attention, layer.around_cross_attention, reading, writing),
                _feed_forward(layer, writing),
            )
            for layer in model.decoder.layers
        ]
        self.step_bytes = BYTES[writing] * matrix_weights(model)  # that each step reads
        self.norm = _norm(model.decoder.norm)
        self.projection = product(model.projection.weight, None, writing)

    def start(self, source: Tensor) -> State:
        """See `Transformer.start`. The mask of the state is additive."""
        mask, embedding = _additive(padding_mask(source)), self.model.encoder.embedding
        x, _ = self.encoder(embedding(source), mask, embedding.turns(0, source.shape[1]))
        return State([cross.keys_values(x) for _, cross, _ in self.decoder], mask, None)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See `Transformer.step`."""
        memory, mask, past = state
        embedding, start = self.model.decoder.embedding, past[0].keys.shape[2] if past else 0
        x, turns = embedding(tokens[:, None], start), embedding.turns(start, 1)  # (B W, 1, D)
        seen = []
        for i, (own, cross, feed_forward) in enumerate(self.decoder):
            x, layer = own(x, None, past[i] if past else None, turns)
            seen.append(layer)
            y = x.view(len(mask), -1, x.shape[2])  # (B, W, D): hypotheses become positions
            x = feed_forward(cross(y, memory[i], mask).view(x.shape))
        return self.projection(self.norm(x[:, 0])), State(memory, mask, seen)


class DecoderOnlyEngine:
    """The engine of a `DecoderOnly` model."""

    def __init__(self, model: DecoderOnly, reading: Precision, writing: Precision) -> None:
        """As above. The same layers read and write, so two precisions take two copies of the weights."""
        self.model = model
        self.writer = _Stack(model.decoder.layers, model.decoder.norm, writing)
        self.reader = self.writer if reading == writing else _Stack(model.decoder.layers, model.decoder.norm, reading)
        self.step_bytes = BYTES[writing] * matrix_weights(model)
        self.projection = product(model.projection.weight, None, writing)

    def start(self, source: Tensor) -> State:
        """See `DecoderOnly.start`."""
        mask, embedding = padding_mask(source), self.model.source_embedding
        _, seen = self.reader(embedding(source), _additive(mask), embedding.turns(0, source.shape[1]))
        return State([], mask, seen)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See `DecoderOnly.step`."""
        mask, start = next_position(state, len(tokens))
        embedding = self.model.embedding
        x, seen = self.writer(embedding(tokens[:, None], start), _additive(mask), embedding.turns(start, 1), state.past)
        return self.projection(x[:, 0]), state._replace(past=seen)


class EncoderOnlyEngine:
    """The engine of an `EncoderOnly` model, which `read_off` runs once per batch."""

    step_bytes = 0  # it has no steps

    def __init__(self, model: EncoderOnly, precision: Precision) -> None:
        self.model = model
        self.encoder = _Stack(model.encoder.layers, model.encoder.norm, precision)
        self.decoder = _Stack(model.decoder.layers, model.decoder.norm, precision)
        self.split = product(model.split.weight, model.split.bias, precision)
        self.projection = product(model.projection.weight, None, precision)
        self.lengths = model.lengths

    def places(self, source: Tensor) -> Tensor:
        """See `EncoderOnly.places`."""
        embedding, times = self.model.encoder.embedding, self.model.settings.upsampling
        mask = padding_mask(source)
        x, _ = self.encoder(embedding(source), _additive(mask), embedding.turns(0, source.shape[1]))
        mask = mask.repeat_interleave(times, 3)
        x = embedding.placed(self.split(x).unflatten(2, (times, -1)).flatten(1, 2), mask[:, 0, 0])
        x, _ = self.decoder(x, _additive(mask), embedding.turns(0, x.shape[1]))
        return self.projection(x)


def matrix_weights(model: Model) -> int:
    """The number of weights in the matrices of a model."""
    return sum(p.numel() for p in model.parameters() if p.dim() == 2)


Engine = EncoderDecoderEngine | DecoderOnlyEngine | EncoderOnlyEngine | Ensemble  # an ensemble of engines


def make_engine(model: Model | Ensemble, precision: str = "auto") -> Engine:
    """The engine of a model with its weights as they are now; of an ensemble, an ensemble of engines.

    precision is a name, see `choose_weights`.
    """
    members = list(model.members) if isinstance(model, Ensemble) else [model]
    weights = max(map(matrix_weights, members))
    device = members[0].projection.weight.device
    reading = choose_weights(precision, device, weights, READING)
    writing = choose_weights(precision, device, weights, WRITING)
    with torch.inference_mode():
        model.eval()  # no dropout
        engines = [_engine(each, reading, writing) for each in members]
    return Ensemble(engines) if isinstance(model, Ensemble) else engines[0]


def _engine(
    model: Model, reading: Precision, writing: Precision
) -> EncoderDecoderEngine | DecoderOnlyEngine | EncoderOnlyEngine:
    match model:
        case DecoderOnly():
            return DecoderOnlyEngine(model, reading, writing)
        case EncoderOnly():
            return EncoderOnlyEngine(model, reading)
        case Transformer():
            return EncoderDecoderEngine(model, reading, writing)
    raise TypeError(type(model))
