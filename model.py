"""The Transformer, from token ids to logits ("Attention Is All You Need", Vaswani et al. 2017), and its two siblings.

Nothing here knows about text, losses, files or search: `dataset` makes the ids, `optim` scores the logits, and
`decoding` calls `Transformer.start` once for a batch of sentences and `Transformer.step` once for each further token.

The file reads from the bottom of the paper's figure 1 to its top: positions and embeddings, attention, feed-forward,
one layer, a stack, the whole. Section numbers are the paper's. After the encoder-decoder come the decoder-only and the
encoder-only model, made of the same parts. `docs/transformer.md` follows one sentence on its way.

    python model.py --config config.yaml        prints parameters, shapes and operations

Shapes are written in these letters, and in this order:
    B batch   H heads   T target positions   S source positions   D model width   K head width   V vocabulary
Masks are boolean, True where a query may look at a key.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import config as configuration
import ctc
from config import EOS, PAD, SOS, Config, ModelConfig
from runtime import random_words

# --------------------------------------------------------------------------------------------------------------- masks


def padding_mask(ids: Tensor) -> Tensor:
    """Hide the padding of ids (B, S) from every query: (B, 1, 1, S), to be broadcast over heads and queries."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Let position t look at positions 0..t and at nothing later: (T, T)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def prefix_mask(prefix: int, length: int, device: torch.device | None = None) -> Tensor:
    """Let everyone look at the first so many positions, and beyond them at nothing later: (T, T)."""
    mask = causal_mask(length, device)
    mask[:, :prefix] = True
    return mask


# ------------------------------------------------------------------------------------------- positions and embeddings


def sinusoid(length: int, width: int) -> Tensor:
    """The position table (T, D) of section 3.5: sine on even dimensions, cosine on odd ones.

    Dimensions 2i and 2i+1 turn together at the angular speed 10000^(-2i/D), from one radian a position down to almost
    none, like the hands of D/2 clocks. A shift by k positions is therefore a rotation that does not depend on where it
    starts, which is what makes relative distance easy to learn.
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]
    speed = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angle = position * speed  # (T, D/2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021, "RoFormer"): turn vectors x (B, H, T, K) by the angles of their positions.

    Where the sinusoid shows each position the hands of its clocks, here the vector itself is the hands: features i and
    i + K/2 are the two coordinates of one. The product of a query and a key then depends on their distance alone.

    Args:
        turns: as `sinusoid` makes it for the width K, (T, K), or (B, 1, T, K) for rows that begin at different places
    """
    sin, cos = turns[..., 0::2], turns[..., 1::2]  # (T, K/2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x.dtype)


class Dropout(nn.Module):
    """Zero a share of the values in training and scale the others up, so that their mean stays (section 5.4).

    What costs on a CPU is to draw the random numbers. Sixteen bits decide on a value as well as thirty-two do, to
    within 1/65536, and four of them are drawn at a time: a fifth of the time of `F.dropout`.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape to the same shape; unchanged outside of training."""
        if not self.training or self.share == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.share)
        bits = random_words(math.ceil(x.numel() / 4)).view(torch.int16)[: x.numel()].view(x.shape)
        least = min(round(self.share * 2**16), 2**16 - 1) - 2**15
        factors = torch.ge(bits, least, out=torch.empty(x.shape, dtype=x.dtype))  # 0 or 1
        return x * factors.div_(1 - self.share)


class WholeDropout(Dropout):
    """Dropout that zeroes all or nothing of what stands at each place of the first dimensions, so many of them."""

    def __init__(self, share: float, dimensions: int) -> None:
        super().__init__(share)
        self.dimensions = dimensions

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape to the same shape; unchanged outside of training."""
        if not self.training or self.share == 0:
            return x
        ones = x.new_ones(x.shape[: self.dimensions])
        return x * super().forward(ones)[(...,) + (None,) * (x.dim() - self.dimensions)]


class Starts(NamedTuple):
    """At which position the rows of a batch begin, where that is not the same for all."""

    rows: Tensor  # (B, 1)
    latest: int  # at least the largest of them, known without waiting for the device

    def places(self, length: int) -> Tensor:
        """The positions of so many tokens of each row: (B, T)."""
        return self.rows + torch.arange(length, device=self.rows.device)


class Embedding(nn.Module):
    """Token ids to vectors: a learned table scaled by √D (section 3.4), plus the position, then dropout.

    Positions are the sinusoid, or a second learned table, or (rotary) nothing that is added here: then `turns` says by
    which angles attention turns its queries and keys.
    """

    positions: Tensor

    def __init__(self, size: int, settings: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(size, settings.d_model)
        self.scale = math.sqrt(settings.d_model)
        self.words = WholeDropout(settings.word_dropout, 2)  # a word may go, its place stays
        self.dropout = Dropout(settings.dropout)
        self.kind = settings.positions
        if self.kind == "learned":
            self.learned = nn.Embedding(settings.max_positions, settings.d_model)
        # Derived, hence not saved with the weights; grown when a longer sentence than any before arrives.
        width = settings.d_model // settings.n_heads if self.kind == "rotary" else settings.d_model
        self.register_buffer("positions", sinusoid(256, width), persistent=False)

    def forward(self, ids: Tensor, start: int | Starts = 0) -> Tensor:
        """Embed ids (B, T), the first of which stand at position start: (B, T, D)."""
        return self.dropout(self.placed(self.words(self.table(ids) * self.scale), ids != PAD, start))

    def placed(self, x: Tensor, real: Tensor, start: int | Starts = 0) -> Tensor:
        """Add to vectors x (B, T, D) their positions, as far as these are such that are added.

        real (B, T) is False for padding, which needs no position, and so may stand beyond the learned ones.
        """
        match self.kind:
            case "sinusoidal":
                return x + self._rows(start, x.shape[1])
            case "learned":
                return x + self._learned(start, real) * self.scale
            case "rotary" | "none":
                return x
        raise ValueError(self.kind)

    def turns(self, start: int | Starts, length: int) -> Tensor | None:
        """The angles for so many positions from start on, see `turned`; None if the model has no rotary positions."""
        if self.kind != "rotary":
            return None
        rows = self._rows(start, length)
        return rows if rows.dim() == 2 else rows[:, None]

    def _rows(self, start: int | Starts, length: int) -> Tensor:
        """So many rows of the sinusoid from start on: (T, D), or (B, T, D)."""
        positions, end = self.positions, (start if isinstance(start, int) else start.latest) + length
        if end > len(positions):
            with torch.inference_mode(False):  # in which a validation may be, while training needs gradients of it
                longer = sinusoid(2 * end, positions.shape[1]).to(positions.device)
            # Another thread may put a shorter table there meanwhile: this one goes on with its own.
            positions = self.positions = longer
        return positions[start:end] if isinstance(start, int) else positions[start.places(length)]

    def _learned(self, start: int | Starts, real: Tensor) -> Tensor:
        """Likewise of the learned table, as `real` (B, T) asks for. Raises ValueError past its end."""
        length, most = real.shape[1], self.learned.num_embeddings
        starts = (
            start if isinstance(start, Starts) else Starts(torch.full_like(real[:, :1], start, dtype=torch.long), start)
        )
        places = starts.places(length)
        # A device is not waited for: there it is for the caller to see that all fits.
        if (
            starts.latest + length > most
            and places.device.type == "cpu"
            and (end := int((places * real).max()) + 1) > most
        ):
            raise ValueError(
                f"a sequence of {end} tokens does not fit into the {most} positions that this model has learnt "
                "(model.max_positions)."
            )
        return self.learned(places.clamp(max=most - 1))


# ----------------------------------------------------------------------------------------------------------- attention


class KeysValues(NamedTuple):
    """One attention's projections of the sequence it looks at; during decoding they are kept and grow."""

    keys: Tensor  # (B, H, S, K); with grouped heads, fewer of them
    values: Tensor  # (B, H, S, K), likewise

    def extended(self, new: KeysValues) -> KeysValues:
        """Append what new positions contribute."""
        return KeysValues(torch.cat((self.keys, new.keys), 2), torch.cat((self.values, new.values), 2))

    def rows(self, index: Tensor) -> KeysValues:
        """Keep the rows that index (any number of row numbers) names, in its order."""
        return KeysValues(self.keys[index], self.values[index])

    def repeated(self, times: int) -> KeysValues:
        """Let each head serve so many heads of queries."""
        return KeysValues(self.keys.repeat_interleave(times, 1), self.values.repeat_interleave(times, 1))


def softmax(scores: Tensor) -> Tensor:
    """softmax over the last dimension, of scores (..., S).

    On a CPU, torch takes rows that do not fill a vector register number by number: 14 scores, as many as a sentence has
    words, cost it in bfloat16 four times as much as 32. So short rows are filled up with -inf, whose share is nothing.
    """
    keys = scores.shape[-1]
    missing = 64 // scores.element_size() - keys  # bytes of AVX-512
    if scores.device.type != "cpu" or missing <= 0:
        return scores.softmax(-1)
    return F.pad(scores, (0, missing), value=-math.inf).softmax(-1)[..., :keys]


class Attention(nn.Module):
    """Multi-head attention of one sequence over the keys and values of another, or of itself (section 3.2.2).

    With grouped heads (Ainslie et al. 2023, "GQA") there are fewer heads of keys and values than of queries, and each
    serves several of these: what decoding has to keep, and to read at every step, is so many times less.
    """

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        width, bias = settings.d_model, settings.attention_bias
        self.n_heads = settings.n_heads
        self.kv_heads = settings.kv_heads or settings.n_heads
        kv_width = width // self.n_heads * self.kv_heads
        self.query = nn.Linear(width, width, bias)
        self.key = nn.Linear(width, kv_width, bias)
        self.value = nn.Linear(width, kv_width, bias)
        self.output = nn.Linear(width, width, bias)
        self.dropout = Dropout(settings.attention_dropout)

    def queries(self, x: Tensor, turns: Tensor | None = None) -> Tensor:
        """What each position of x (B, T, D) looks for, cut into heads: (B, H, T, K)."""
        queries = self.query(x).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
        return queries if turns is None else turned(queries, turns)

    def keys_values(self, memory: Tensor, turns: Tensor | None = None) -> KeysValues:
        """Project memory (B, S, D) apart from its use, so that decoding projects each token once."""
        keys, values = (
            each(memory).unflatten(2, (self.kv_heads, -1)).transpose(1, 2) for each in (self.key, self.value)
        )
        return KeysValues(keys if turns is None else turned(keys, turns), values)

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor | None = None, turns: Tensor | None = None) -> Tensor:
        """Let every position of x (B, T, D) look at the keys that mask (broadcast to B, H, T, S) allows."""
        if self.kv_heads < self.n_heads:
            memory = memory.repeated(self.n_heads // self.kv_heads)
        if x.device.type == "cpu":
            # For thousands of short sentences, torch's fused kernel is slower on a CPU than the formula as it stands:
            # a whole training step of a 4+4-layer model took 2.3 times (bfloat16) to 7 times (float32) as long.
            heads = self.dropout(self._weights(self.queries(x, turns), memory, mask)) @ memory.values  # (B, H, T, K)
        else:
            dropped = self.dropout.share if self.training else 0.0
            queries = self.queries(x, turns)
            heads = F.scaled_dot_product_attention(queries, memory.keys, memory.values, mask, dropped)
        return self.output(heads.transpose(1, 2).flatten(2))  # (B, T, D)

    def weights(self, x: Tensor, memory: KeysValues, mask: Tensor | None = None, turns: Tensor | None = None) -> Tensor:
        """The weights by which `forward` takes its averages, to be looked at: (B, H, T, S), a row sums to 1."""
        return self._weights(self.queries(x, turns), memory.repeated(self.n_heads // self.kv_heads), mask)

    def _weights(self, queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """softmax(QKᵀ/√K), of queries (B, H, T, K)."""
        scores = (queries / math.sqrt(queries.shape[3])) @ memory.keys.transpose(2, 3)  # (B, H, T, S)
        if mask is not None:
            scores.masked_fill_(~mask, -math.inf)  # in place, for no gradient needs the scores themselves
        return softmax(scores)


# -------------------------------------------------------------------------------------------------------------- layers


class SwiGLU(nn.Module):
    """One half of the values, as far as the other half opens a gate to them (Shazeer 2020, "GLU Variants")."""

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, 2 F) to (B, T, F)."""
        gate, values = x.chunk(2, dim=-1)
        return F.silu(gate) * values


class FeedForward(nn.Sequential):
    """Two projections with a ReLU between, the same at every position (section 3.3); or with what came after ReLU."""

    def __init__(self, settings: ModelConfig) -> None:
        width, halves = settings.d_ff, 1
        match settings.activation:
            case "relu":
                activation = nn.ReLU()
            case "gelu":
                activation = nn.GELU()
            case "swiglu":
                activation, halves = SwiGLU(), 2
        super().__init__(
            nn.Linear(settings.d_model, width * halves),
            nn.Sequential(activation, Dropout(settings.activation_dropout)),
            nn.Linear(width, settings.d_model),
        )


def make_norm(settings: ModelConfig) -> nn.Module:
    """What brings each vector to one scale; ε, which keeps it from dividing by zero, is torch's 1e-5 in both.

    LayerNorm (Ba et al. 2016) subtracts the mean of the D features and divides by their standard deviation, the biased
    one; RMSNorm (Zhang & Sennrich 2019) divides by the root of the mean square. Gain and bias are one for each feature.
    """
    return nn.LayerNorm(settings.d_model) if settings.norm_kind == "layer" else nn.RMSNorm(settings.d_model, eps=1e-5)


class Residual(nn.Module):
    """What surrounds every sub-layer f: a way past it, dropout on its output (section 5.4), and layer norm.

    post-norm, as in the paper:  norm(x + f(x))
    pre-norm, the default:       x + f(norm(x))

    Pre-norm leaves the way past the sub-layers free of norms from the first layer to the last, and so trains without
    care for the warm-up (Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture").

    With stochastic depth (Huang et al. 2016, "Deep Networks with Stochastic Depth") some sentences of a batch go past
    the sub-layer without what it would add.
    """

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        self.norm = make_norm(settings)
        self.dropout = Dropout(settings.dropout)
        self.depth = WholeDropout(settings.depth_dropout, 1)
        self.pre = settings.norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer sees of x."""
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, y: Tensor) -> Tensor:
        """Join x with y, which the sub-layer made of it."""
        x = x + self.depth(self.dropout(y))
        return x if self.pre else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (section 3.1)."""

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(settings)
        self.feed_forward = FeedForward(settings)
        self.around_attention = Residual(settings)
        self.around_feed_forward = Residual(settings)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, turns: Tensor | None = None, past: KeysValues | None = None
    ) -> tuple[Tensor, KeysValues]:
        """States x (B, S, D) to states of the same shape, and the attention's keys and values up to here.

        mask is broadcast to (B, H, S, S). An encoder has no past: all of its sequence is there at once. The layer of a
        decoder-only model is this one too, and remembers what it has seen as `DecoderLayer` does.
        """
        y = self.around_attention.before(x)
        new = self.attention.keys_values(y, turns)
        past = new if past is None else past.extended(new)
        x = self.around_attention.after(x, self.attention(y, past, mask, turns))
        y = self.around_feed_forward.before(x)
        return self.around_feed_forward.after(x, self.feed_forward(y)), past


class DecoderLayer(nn.Module):
    """Self-attention over the target so far, attention over the source, then feed-forward (section 3.1)."""

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        self.self_attention = Attention(settings)
        self.cross_attention = Attention(settings)
        self.feed_forward = FeedForward(settings)
        self.around_self_attention = Residual(settings)
        self.around_cross_attention = Residual(settings)
        self.around_feed_forward = Residual(settings)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        memory: KeysValues,
        memory_mask: Tensor | None,
        past: KeysValues | None = None,
        turns: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """States x (B, T, D) to states of the same shape, and the self-attention's keys and values up to here.

        past holds those of the positions before x; training has none, and gives x whole with a causal mask.

        In a search x may hold several hypotheses, one after the other, for each sentence of memory: to the source, they
        are as so many positions of one target, and the memory need not be copied for each.
        """
        y = self.around_self_attention.before(x)
        new = self.self_attention.keys_values(y, turns)
        past = new if past is None else past.extended(new)
        x = self.around_self_attention.after(x, self.self_attention(y, past, mask, turns))
        y = self.around_cross_attention.before(x).reshape(len(memory.keys), -1, x.shape[2])  # (B, hypotheses x T, D)
        x = self.around_cross_attention.after(x, self.cross_attention(y, memory, memory_mask).view_as(x))
        y = self.around_feed_forward.before(x)
        return self.around_feed_forward.after(x, self.feed_forward(y)), past


# -------------------------------------------------------------------------------------------------------------- stacks


def final_norm(settings: ModelConfig) -> nn.Module:
    """Pre-norm leaves the last sum unnormed, so a norm closes the stack; a post-norm layer has ended with its own."""
    return make_norm(settings) if settings.norm == "pre" else nn.Identity()


class Encoder(nn.Module):
    """Embedding and a stack of encoder layers: source ids to states."""

    def __init__(self, size: int, settings: ModelConfig) -> None:
        super().__init__()
        self.embedding = Embedding(size, settings)
        self.layers: Sequence[EncoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            EncoderLayer(settings) for _ in range(settings.encoder_layers)
        )
        self.norm = final_norm(settings)

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """Source ids (B, S) to states (B, S, D); mask as `padding_mask` makes it."""
        x = self.embedding(source)
        turns = self.embedding.turns(0, source.shape[1])
        for layer in self.layers:
            x, _ = layer(x, mask, turns)
        return self.norm(x)


class Decoder(nn.Module):
    """Embedding and a stack of decoder layers: target ids and the source's keys and values to states."""

    def __init__(self, size: int, settings: ModelConfig) -> None:
        super().__init__()
        self.embedding = Embedding(size, settings)
        self.layers: Sequence[DecoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            DecoderLayer(settings) for _ in range(settings.decoder_layers)
        )
        self.norm = final_norm(settings)

    def memory(self, states: Tensor) -> list[KeysValues]:
        """Every layer's own keys and values of the encoder's states (B, S, D)."""
        return [layer.cross_attention.keys_values(states) for layer in self.layers]

    def forward(
        self,
        target: Tensor,
        mask: Tensor | None,
        memory: list[KeysValues],
        memory_mask: Tensor | None,
        past: list[KeysValues] | None = None,
    ) -> tuple[Tensor, list[KeysValues]]:
        """Target ids (B, T) to states (B, T, D), and every layer's keys and values up to here."""
        start = past[0].keys.shape[2] if past else 0
        x = self.embedding(target, start)
        turns = self.embedding.turns(start, target.shape[1])
        seen: list[KeysValues] = []
        for i, layer in enumerate(self.layers):
            x, own = layer(x, mask, memory[i], memory_mask, past[i] if past else None, turns)
            seen.append(own)
        return self.norm(x), seen


# --------------------------------------------------------------------------------------------------------------- whole


class State(NamedTuple):
    """What decoding remembers between two steps of B sentences, each with the same number W of hypotheses."""

    memory: list[KeysValues]  # a layer: of the source, 2 x (B, H, S, K); of a decoder-only model, nothing
    memory_mask: Tensor  # (B, 1, 1, S)
    # A layer: of the target so far, 2 x (B W, H, T, K); None before the first step. Decoder-only: of source and target.
    past: list[KeysValues] | None

    def select(self, hypotheses: Tensor | None, sentences: Tensor | None) -> State:
        """Keep the hypotheses and the sentences with these numbers, in this order; None keeps all as they are."""
        memory, mask, past = self
        if sentences is not None:
            memory, mask = [layer.rows(sentences) for layer in memory], mask[sentences]
        if hypotheses is not None and past is not None:
            past = [layer.rows(hypotheses) for layer in past]
        return State(memory, mask, past)


class Model(nn.Module):
    """What the three architectures have in common: how weights begin, which they share, and the last projection."""

    projection: nn.Linear

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        self.settings = settings

    def _begin(self, source: Embedding, target: Embedding | None) -> None:
        """Xavier for the matrices, zero for the biases; embeddings such that, scaled by √D, they have unit variance.

        Then share what model.tie says (section 3.4; Press & Wolf 2017): fewer weights to learn, and rare words are
        learnt from both ends. Raises ValueError for one table for two vocabularies of different sizes.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        match self.settings.tie:
            case "output" if target is not None:
                self.projection.weight = target.table.weight
            case "all":
                sizes = source.table.num_embeddings, self.projection.out_features
                if sizes[0] != sizes[1]:
                    raise ValueError(f"model.tie: all needs one vocabulary, not sizes {sizes[0]} and {sizes[1]}")
                shared = (target or source).table.weight
                source.table.weight = self.projection.weight = shared
            case "output" | "none":
                pass

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) for the token that follows each of target (B, T), which begins with [SOS].

        Row t has seen source (B, S) whole and target up to and including t; this is teacher forcing. An encoder-only
        model does not look at the target: see `EncoderOnly.states`.
        """
        return self.projection(self.states(source, target))

    def states(self, source: Tensor, target: Tensor) -> Tensor:
        """What `forward` projects, (B, T, D): training does that with the loss, in `optim`."""
        raise NotImplementedError

    def read(self, source: Tensor) -> Tensor:
        """What the model makes of source ids (B, S) by themselves: states (B, S, D)."""
        raise NotImplementedError

    def start(self, source: Tensor) -> State:
        """Read source ids (B, S): the state from which `step` goes on."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (B W, V) for the token after tokens (B W,), and the state that has seen them.

        tokens holds the last one of each hypothesis, in row b * W + w that of hypothesis w of sentence b.
        """
        raise NotImplementedError

    def products(self) -> tuple[int, int]:
        """The weights by which a source token is multiplied on its way, and those by which a target token is.

        A forward pass takes two operations for each, a training step six. Not counted is what depends on the length of
        a sentence, the attention scores, a few per cent of the whole.
        """
        raise NotImplementedError

    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """Where each position of target (B, T) looks in source (B, S): (layers, B, H, T, S).

        Rows sum to 1, or to less in a decoder-only model, which looks at the target meanwhile.
        """
        raise NotImplementedError

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """By how much each position of target (B, T) is made from each of source (B, S): (B, T, S)."""
        return self.cross_attention(source, target).mean((0, 2))


def matrices(module: nn.Module) -> int:
    """The weights of a module's matrices."""
    return sum(p.numel() for p in module.parameters() if p.dim() == 2)


@contextmanager
def watched(attentions: Sequence[Attention]) -> Iterator[list[Tensor]]:
    """Within, whenever one of the attentions is called, its weights (B, H, T, S) are added to the list."""
    maps: list[Tensor] = []

    def keep(attention: Attention, inputs: tuple[Any, ...], _: Tensor) -> None:
        maps.append(attention.weights(*inputs))

    hooks = [each.register_forward_hook(keep) for each in attentions]
    try:
        yield maps
    finally:
        for hook in hooks:
            hook.remove()


class Transformer(Model):
    """The encoder-decoder model: source ids and target ids to logits over the next target token."""

    def __init__(self, settings: ModelConfig, source_size: int, target_size: int) -> None:
        """Make a model with fresh weights (drawn from torch's global generator) for vocabularies of these sizes.

        Raises ValueError if all embeddings are to be one table but the vocabularies differ in size.
        """
        super().__init__(settings)
        self.encoder = Encoder(source_size, settings)
        self.decoder = Decoder(target_size, settings)
        self.projection = nn.Linear(settings.d_model, target_size, bias=False)
        self._begin(self.encoder.embedding, self.decoder.embedding)

    def states(self, source: Tensor, target: Tensor) -> Tensor:
        """As `Model.states`."""
        state = self.start(source)
        mask = causal_mask(target.shape[1], target.device) & padding_mask(target)  # (B, 1, T, T)
        states, _ = self.decoder(target, mask, state.memory, state.memory_mask)
        return states

    def read(self, source: Tensor) -> Tensor:
        """As `Model.read`: the encoder by itself."""
        return self.encoder(source, padding_mask(source))

    def products(self) -> tuple[int, int]:
        """As `Model.products`."""
        memory = sum(
            each.weight.numel()
            for layer in self.decoder.layers
            for each in (layer.cross_attention.key, layer.cross_attention.value)
        )
        encoder, decoder = (matrices(stack.layers) for stack in (self.encoder, self.decoder))  # type: ignore[arg-type]
        return encoder + memory, decoder - memory + self.projection.weight.numel()

    def start(self, source: Tensor) -> State:
        """As `Model.start`."""
        mask = padding_mask(source)
        return State(self.decoder.memory(self.encoder(source, mask)), mask, None)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """As `Model.step`."""
        # One new position may look at everything before it: no mask is needed.
        states, past = self.decoder(tokens[:, None], None, state.memory, state.memory_mask, state.past)
        return self.projection(states[:, 0]), state._replace(past=past)

    @torch.no_grad()
    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """As `Model.cross_attention`."""
        with watched([layer.cross_attention for layer in self.decoder.layers]) as maps:
            self.states(source, target)
        return torch.stack(maps)


# ------------------------------------------------------------------------------------------------------------ siblings


class Stack(nn.Module):
    """Layers of self-attention without an embedding of their own: all that the models below have for a decoder."""

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        self.layers: Sequence[EncoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            EncoderLayer(settings) for _ in range(settings.decoder_layers)
        )
        self.norm = final_norm(settings)

    def forward(
        self, x: Tensor, mask: Tensor, turns: Tensor | None, past: list[KeysValues] | None = None
    ) -> tuple[Tensor, list[KeysValues]]:
        """Embedded tokens x (B, T, D) to states, and every layer's keys and values up to here."""
        seen: list[KeysValues] = []
        for i, layer in enumerate(self.layers):
            x, own = layer(x, mask, turns, past[i] if past else None)
            seen.append(own)
        return self.norm(x), seen


class DecoderOnly(Model):
    """The decoder-only model (Radford et al. 2018, "GPT"): one stack goes on writing where the source ends.

    The sequence is the source, its [EOS], and the target, whose [SOS] parts the two. Among the tokens of the source all
    see one another (Liu et al. 2018, "Generating Wikipedia", has them see the earlier ones alone; Raffel et al. 2020
    compare), and the target sees the source and what it has written so far. With an empty source this is a language
    model. In a batch the padding of shorter sources stands amid the sequence: no one sees it, and it counts for no
    position.
    """

    def __init__(self, settings: ModelConfig, source_size: int, target_size: int) -> None:
        """As `Transformer`."""
        super().__init__(settings)
        self.source_embedding = Embedding(source_size, settings)
        self.embedding = Embedding(target_size, settings)
        if settings.positions == "learned":  # of the one sequence
            self.source_embedding.learned = self.embedding.learned
        self.decoder = Stack(settings)
        self.projection = nn.Linear(settings.d_model, target_size, bias=False)
        self._begin(self.source_embedding, self.embedding)

    def states(self, source: Tensor, target: Tensor) -> Tensor:
        """As `Model.states`: those of the target alone, for only the target is to be learnt."""
        read, length = source.shape[1], target.shape[1]
        start = Starts((source != PAD).sum(1, keepdim=True), read)  # each target begins where its source ends
        x = torch.cat((self.source_embedding(source), self.embedding(target, start)), 1)  # (B, S + T, D)
        mask = prefix_mask(read, read + length, x.device) & padding_mask(torch.cat((source, target), 1))
        turns = self._turns(source, start, length)
        return self.decoder(x, mask, turns)[0][:, read:]

    def _turns(self, source: Tensor, start: Starts, length: int) -> Tensor | None:
        of_source, of_target = self.source_embedding.turns(0, source.shape[1]), self.embedding.turns(start, length)
        if of_source is None or of_target is None:
            return None
        return torch.cat((of_source.expand(len(source), 1, -1, -1), of_target), 2)  # (B, 1, S + T, K)

    def read(self, source: Tensor) -> Tensor:
        """As `Model.read`."""
        return self._read(source)[0]

    def _read(self, source: Tensor) -> tuple[Tensor, list[KeysValues]]:
        turns = self.source_embedding.turns(0, source.shape[1])
        return self.decoder(self.source_embedding(source), padding_mask(source), turns)

    def products(self) -> tuple[int, int]:
        """As `Model.products`."""
        stack = matrices(self.decoder)
        return stack, stack + self.projection.weight.numel()

    def start(self, source: Tensor) -> State:
        """As `Model.start`."""
        return State([], padding_mask(source), self._read(source)[1])

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """As `Model.step`."""
        assert state.past is not None
        mask, start = written(state, len(tokens))
        turns = self.embedding.turns(start, 1)
        states, past = self.decoder(self.embedding(tokens[:, None], start), mask, turns, state.past)
        return self.projection(states[:, 0]), state._replace(past=past)

    @torch.no_grad()
    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """As `Model.cross_attention`."""
        with watched([layer.attention for layer in self.decoder.layers]) as maps:
            self.states(source, target)
        return torch.stack(maps)[..., source.shape[1] :, : source.shape[1]]


def written(state: State, hypotheses: int) -> tuple[Tensor, Starts]:
    """For the next token of each of so many hypotheses of a decoder-only model: what it may see, (B W, 1, 1, S + T),
    and its position."""
    assert state.past is not None
    mask, seen = state.memory_mask, state.past[0].keys.shape[2]
    before = seen - mask.shape[3]  # tokens of the target
    start = mask.sum((1, 2, 3))[:, None] + before  # (B, 1)
    mask = F.pad(mask, (0, before + 1), value=True)
    mask, start = (each.repeat_interleave(hypotheses // len(each), 0) for each in (mask, start))
    return mask, Starts(start, seen)


class EncoderOnly(Model):
    """The encoder-only model: all words of the translation at once, in a single pass.

    After Libovický & Helcl 2018, "End-to-End Non-Autoregressive Neural Machine Translation with CTC". The state that
    the encoder has of each source token is split into several, which are places for target tokens. Further layers, in
    which all places see one another, decide what stands at each: a token, or nothing. `ctc` tells how a sentence is
    learnt, and read, from places of which most are empty.
    """

    def __init__(self, settings: ModelConfig, source_size: int, target_size: int) -> None:
        """As `Transformer`. There is no embedding of the target, for no word waits for the one before it."""
        super().__init__(settings)
        self.encoder = Encoder(source_size, settings)
        self.split = nn.Linear(settings.d_model, settings.upsampling * settings.d_model)
        self.decoder = Stack(settings)
        self.projection = nn.Linear(settings.d_model, target_size, bias=False)
        self._begin(self.encoder.embedding, None)

    def states(self, source: Tensor, target: Tensor | None = None) -> Tensor:
        """The states of all places, (B, N, D): N is `upsampling` times S. The target is not looked at."""
        mask = padding_mask(source)
        places = self.split(self.encoder(source, mask)).unflatten(2, (self.settings.upsampling, -1)).flatten(1, 2)
        mask = mask.repeat_interleave(self.settings.upsampling, 3)  # (B, 1, 1, N)
        places = self.encoder.embedding.placed(places, mask[:, 0, 0])  # without them, it hardly begins to learn
        turns = self.encoder.embedding.turns(0, places.shape[1])
        return self.decoder(places, mask, turns)[0]

    def read(self, source: Tensor) -> Tensor:
        """As `Model.read`."""
        return self.encoder(source, padding_mask(source))

    def places(self, source: Tensor) -> Tensor:
        """Logits (B, N, V) of what stands at each place, `ctc.BLANK` being nothing."""
        return self.projection(self.states(source))

    def lengths(self, source: Tensor) -> Tensor:
        """How many places each sentence of source ids (B, S) has: (B)."""
        return self.settings.upsampling * (source != PAD).sum(1)

    def products(self) -> tuple[int, int]:
        """As `Model.products`: a target token costs nothing, and a source token its places."""
        each = matrices(self.decoder) + self.projection.weight.numel()
        return matrices(self.encoder.layers) + matrices(self.split) + self.settings.upsampling * each, 0  # type: ignore[arg-type]

    @torch.no_grad()
    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """Where the place of each next token of target (B, T) looks, by source token: (layers, B, H, T, S).

        Behind the last token stands no other, and its row is that of the token itself.
        """
        with watched([layer.attention for layer in self.decoder.layers]) as maps:
            log_probs = self.places(source).float().log_softmax(-1)
        wanted = F.pad(target[:, 1:], (0, 1), value=PAD)  # without [SOS]
        tokens = (wanted != PAD).sum(1)
        path = ctc.forced_path(log_probs, self.lengths(source), wanted, tokens)
        at = ctc.first_places(path, wanted.shape[1])  # (B, T)
        last = (tokens - 1).clamp(min=0)[:, None]
        at = torch.where(torch.arange(at.shape[1], device=at.device) > last, at.gather(1, last), at)
        looked = torch.stack(maps).unflatten(4, (-1, self.settings.upsampling)).sum(5)  # (layers, B, H, N, S)
        return looked[:, torch.arange(len(at))[:, None], :, at].permute(2, 0, 3, 1, 4)


def build_transformer(settings: ModelConfig, source_size: int, target_size: int) -> Model:
    """The model that model.architecture names, with fresh weights; see `Transformer`."""
    match settings.architecture:
        case "encoder-decoder":
            return Transformer(settings, source_size, target_size)
        case "decoder-only":
            return DecoderOnly(settings, source_size, target_size)
        case "encoder-only":
            return EncoderOnly(settings, source_size, target_size)


class Ensemble(nn.Module):
    """Several models that translate together, by the mean of their probabilities; they share the vocabularies."""

    def __init__(self, models: Sequence[Model]) -> None:
        super().__init__()
        self.members: Sequence[Model] = nn.ModuleList(models)  # type: ignore[assignment]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Log-probabilities (B, T, V), as logits of `Model.forward`."""
        return mean_log_probs([member(source, target) for member in self.members])

    def start(self, source: Tensor) -> EnsembleState:
        """Read source ids (B, S), each model for itself."""
        return EnsembleState([member.start(source) for member in self.members])

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Log-probabilities (B W, V), and the state, as `Model.step`."""
        steps = [member.step(tokens, own) for member, own in zip(self.members, state.states, strict=True)]
        return mean_log_probs([logits for logits, _ in steps]), EnsembleState([own for _, own in steps])

    def places(self, source: Tensor) -> Tensor:
        """Log-probabilities (B, N, V), as logits of `EncoderOnly.places`."""
        return mean_log_probs([member.places(source) for member in self.members])  # type: ignore[operator]

    def lengths(self, source: Tensor) -> Tensor:
        """As `EncoderOnly.lengths`."""
        return self.members[0].lengths(source)  # type: ignore[operator]

    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """The members' maps, (layers of all, B, 1, T, S); heads are averaged, for models may differ in their number."""
        return torch.cat([member.cross_attention(source, target).mean(2, keepdim=True) for member in self.members])

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """The mean of the members' alignments, (B, T, S)."""
        return torch.stack([member.alignment(source, target) for member in self.members]).mean(0)


class EnsembleState(NamedTuple):
    """The states of the members."""

    states: list[State]

    def select(self, hypotheses: Tensor | None, sentences: Tensor | None) -> EnsembleState:
        """As `State.select`."""
        return EnsembleState([state.select(hypotheses, sentences) for state in self.states])


def mean_log_probs(logits: list[Tensor]) -> Tensor:
    """The logarithm of the mean of the probabilities that logits (…, V) stand for."""
    log_probs = torch.stack([each.float().log_softmax(-1) for each in logits])
    return log_probs.logsumexp(0) - math.log(len(logits))


# ------------------------------------------------------------------------------------------------------- a look inside


def vocabularies(config: Config) -> tuple[int, int, str]:
    """How large they are, and how that is known: before a run's data are prepared, they may become so large at most."""
    from tokenizers import Tokenizer

    run = Path(config.run.dir) / config.run.name
    with suppress(Exception):  # no such run, or one of other data: then nothing is known
        begun = configuration.load(run / "config.yaml")
        if (begun.tokenizer, begun.data.source_lang) == (config.tokenizer, config.data.source_lang):
            files = (run / "data" / f"{side}.tokenizer.json" for side in ("source", "target"))
            source, target = (Tokenizer.from_file(str(file)).get_vocab_size() for file in files)
            return source, target, f"those of the run {config.run.name}"
    return config.tokenizer.vocab_size, config.tokenizer.vocab_size, "tokenizer.vocab_size, the most they may have"


def describe(config: Config) -> list[str]:
    """Parameters, shapes and operations of a model, and of the way of one short sentence through it."""
    import inside  # not needed to translate

    begun = None
    with suppress(Exception):  # no such run
        begun = configuration.load(Path(config.run.dir) / config.run.name / "config.yaml")
        config = configuration.as_begun(config, begun)
    unknown = config.model.preset == "auto" and (begun is None or begun.model.preset != "auto")
    note = [configuration.STAND_IN] if unknown else []
    of_source, of_target, why = vocabularies(config)
    model = build_transformer(config.model, of_source, of_target).eval()
    length = min(7, config.data.max_length)
    read = 0 if config.is_language_model else length
    source = torch.tensor([[*range(4, 4 + read), EOS]])  # (1, S)
    target = torch.tensor([[SOS, *range(4, 4 + length)]])  # (1, T)
    at_once = config.model.architecture == "encoder-only"
    with torch.no_grad():
        lines = inside.lines(model, lambda: model(source, target), source.shape[1] if at_once else target.shape[1])
    head = f"{config.model.architecture}; a sentence of {length} tokens{' a side' if read else ''}"
    return [head, f"vocabularies of {of_source:,} and {of_target:,} tokens: {why}", *note, "", *lines]


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `head` has seen enough
    print(
        "\n".join(describe(configuration.parse(prog="model.py", default_file=Path(__file__).with_name("config.yaml"))))
    )
