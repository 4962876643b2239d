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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.kernels import Dropout, softmax
from dragoman.settings import PAD, ModelConfig

# --------------------------------------------------------------------------------------------------------------- masks


def padding_mask(ids: Tensor) -> Tensor:
    """Hide the padding of ids (B, S) from every query: (B, 1, 1, S), to be broadcast over heads and queries."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Let position t look at positions 0..t and at nothing later: (T, T)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


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


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021, "RoFormer"): turn vectors x (B, H, T, K) by the angles of their positions.

    Where the sinusoid shows each position the hands of its clocks, here the vector itself is the hands: features i and
    i + K/2 are the two coordinates of one. The product of a query and a key then depends on their distance alone.

    Args:
        turns: as `sinusoid` makes it for the width K, (T, K), or (B, 1, T, K) for rows that begin at different places
    """
    sin, cos = turns[..., 0::2], turns[..., 1::2]  # (T, K/2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x.dtype)


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
        self.dropout = Dropout(settings.dropout)
        self.kind = settings.positions
        if self.kind == "learned":
            self.learned = nn.Embedding(settings.max_positions, settings.d_model)
        # Derived, hence not saved with the weights; grown when a longer sentence than any before arrives.
        width = settings.d_model // settings.n_heads if self.kind == "rotary" else settings.d_model
        self.register_buffer("positions", sinusoid(256, width), persistent=False)

    def forward(self, ids: Tensor, start: int | Starts = 0) -> Tensor:
        """Embed ids (B, T), the first of which stand at position start: (B, T, D)."""
        return self.dropout(self.placed(self.table(ids) * self.scale, ids != PAD, start))

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
        return queries if turns is None else rotate(queries, turns)

    def keys_values(self, memory: Tensor, turns: Tensor | None = None) -> KeysValues:
        """Project memory (B, S, D) apart from its use, so that decoding projects each token once."""
        keys, values = (
            each(memory).unflatten(2, (self.kv_heads, -1)).transpose(1, 2) for each in (self.key, self.value)
        )
        return KeysValues(keys if turns is None else rotate(keys, turns), values)

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
    """

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        self.norm = make_norm(settings)
        self.dropout = Dropout(settings.dropout)
        self.pre = settings.norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer sees of x."""
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, y: Tensor) -> Tensor:
        """Join x with y, which the sub-layer made of it."""
        x = x + self.dropout(y)
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


def matrix_weights(module: nn.Module) -> int:
    """The weights of a module's matrices."""
    return sum(p.numel() for p in module.parameters() if p.dim() == 2)


@contextmanager
def record_attention(attentions: Sequence[Attention]) -> Iterator[list[Tensor]]:
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
        encoder, decoder = (matrix_weights(stack.layers) for stack in (self.encoder, self.decoder))  # type: ignore[arg-type]
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
        with record_attention([layer.cross_attention for layer in self.decoder.layers]) as maps:
            self.states(source, target)
        return torch.stack(maps)
