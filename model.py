"""The encoder-decoder Transformer, from token ids to logits ("Attention Is All You Need", Vaswani et al. 2017).

Nothing here knows about text, losses, files or search: `dataset` makes the ids and the masks, `loss` scores the logits,
and `search` calls `Transformer.start` once per batch of sentences and `Transformer.step` once per further token.

Read it from the bottom of the paper's figure 1 to the top: positions, embeddings, attention, feed-forward, layers,
encoder, decoder, Transformer. Section numbers refer to the paper. `docs/transformer.md` follows one sentence through
this file. The other models in `dragoman/architectures` are built from the same parts.

Shapes are written in these letters, and in this order:
    B batch   H heads   T target positions   S source positions   D model width   K head width   V vocabulary
Masks are boolean, True where a query may look at a key.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.dataset import masks, padding_mask
from dragoman.settings import PAD, ModelConfig

# --- Dropout ------------------------------------------------------------------------------------------------------


class Dropout(nn.Dropout):
    """Zero a share of the values in training and scale up the rest, so that the mean stays (section 5.4).

    A CPU spends most of torch's dropout on its random numbers. Here, 64 random bits serve four values: each share is
    met to within 1/65536, in a quarter of the time.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map x of any shape to the same shape; outside training, return it unchanged."""
        if not self.training or self.p == 0 or x.device.type != "cpu":
            return super().forward(x)
        words = torch.randint(-(2**63), 2**63 - 1, (math.ceil(x.numel() / 4),))
        kept = words.view(torch.int16)[: x.numel()].view(x.shape).ge_(round(self.p * 2**16) - 2**15)
        return x * kept.to(x.dtype).div_(1 - self.p)


# --- Positions ----------------------------------------------------------------------------------------------------


def sinusoid(length: int, width: int) -> Tensor:
    """The position table (T, D) of section 3.5: sine on even features, cosine on odd ones.

    Features 2i and 2i+1 rotate together at 10000^(-2i/D) radians per position, like the hands of D/2 clocks, from fast
    to almost still. A shift by k positions is therefore a fixed rotation, wherever it starts, which makes relative
    distance easy to learn.
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]
    speed = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angle = position * speed  # (T, D/2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021, "RoFormer"): rotate vectors x (B, H, T, K) by the angles of their positions.

    Features i and i + K/2 form one vector of two dimensions. The dot product of a query and a key then depends
    on the distance between them and not on where they are.

    Args:
        angles: rows of `sinusoid` for width K, (T, K), or (B, 1, T, K) if rows start at different positions
    """
    sin, cos = angles[..., 0::2], angles[..., 1::2]  # (T, K/2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x.dtype)


class RowPositions(NamedTuple):
    """The position at which each row of a batch starts, when rows differ."""

    rows: Tensor  # (B, 1)
    latest: int  # at least the largest of them, known without waiting for the device


# --- Embeddings ---------------------------------------------------------------------------------------------------


class Embedding(nn.Module):
    """Token ids to vectors: a learned table scaled by √D (section 3.4), plus positions, then dropout.

    Positions are the sinusoid or a second learned table, added here. Rotary positions add nothing here: attention
    rotates its queries and keys by `angles`.
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
        # Computed, so not saved with the weights. It grows when a longer sentence than any before arrives.
        width = settings.d_model // settings.n_heads if self.kind == "rotary" else settings.d_model
        self.register_buffer("positions", sinusoid(256, width), persistent=False)

    def forward(self, ids: Tensor, start: int | RowPositions = 0) -> Tensor:
        """Embed ids (B, T), the first of which are at position start: (B, T, D)."""
        return self.dropout(self.placed(self.table(ids) * self.scale, ids != PAD, start))

    def placed(self, x: Tensor, real: Tensor, start: int | RowPositions = 0) -> Tensor:
        """Add positions to vectors x (B, T, D), if this kind of position is added. real (B, T) is False for padding."""
        if self.kind == "sinusoidal":
            return x + self._rows(start, x.shape[1])
        if self.kind == "learned":
            places = torch.arange(x.shape[1], device=x.device) + (start if isinstance(start, int) else start.rows)
            return x + self.learned(places * real) * self.scale  # padding may lie beyond the last learned position
        return x

    def angles(self, start: int | RowPositions, length: int) -> Tensor | None:
        """The angles for `rotate` of `length` positions from start; None unless positions are rotary."""
        if self.kind != "rotary":
            return None
        rows = self._rows(start, length)
        return rows if rows.dim() == 2 else rows[:, None]

    def _rows(self, start: int | RowPositions, length: int) -> Tensor:
        """`length` rows of the sinusoid from start: (T, D), or (B, T, D)."""
        positions, end = self.positions, (start if isinstance(start, int) else start.latest) + length
        if end > len(positions):
            with torch.inference_mode(False):  # validation may run in it, but training needs gradients past this table
                longer = sinusoid(2 * end, positions.shape[1]).to(positions.device)
            # Another thread may replace self.positions by a shorter table at any time, so use the local name below.
            positions = self.positions = longer
        if isinstance(start, int):
            return positions[start:end]
        return positions[start.rows + torch.arange(length, device=positions.device)]


# --- Attention ----------------------------------------------------------------------------------------------------


class KeysValues(NamedTuple):
    """One attention's projections of the sequence it looks at. Decoding keeps them and appends to them."""

    keys: Tensor  # (B, H, S, K); fewer heads if grouped
    values: Tensor  # (B, H, S, K), likewise

    def extended(self, new: KeysValues) -> KeysValues:
        """Append the keys and values of new positions."""
        return KeysValues(torch.cat((self.keys, new.keys), 2), torch.cat((self.values, new.values), 2))

    def rows(self, index: Tensor) -> KeysValues:
        """Select batch rows by number, in the order of index."""
        return KeysValues(self.keys[index], self.values[index])


class Attention(nn.Module):
    """Multi-head attention of one sequence over the keys and values of another, or of itself (section 3.2.2).

    With grouped heads (Ainslie et al. 2023, "GQA") there are fewer key/value heads than query heads, and several query
    heads share each. Decoding then keeps and reads that much less.
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

    def keys_values(self, memory: Tensor, angles: Tensor | None = None) -> KeysValues:
        """Project memory (B, S, D), apart from `forward`, so that decoding projects each token once."""
        keys, values = (
            part(memory).unflatten(2, (self.kv_heads, -1)).transpose(1, 2) for part in (self.key, self.value)
        )
        return KeysValues(keys if angles is None else rotate(keys, angles), values)

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor | None, angles: Tensor | None = None) -> Tensor:
        """Let every position of x (B, T, D) look at the keys that mask (broadcast to B, H, T, S) allows."""
        # Not torch's fused attention, which on a CPU trains three times (64 tokens) to seventeen times (16) as slowly.
        heads = self.dropout(self.weights(x, memory, mask, angles)) @ self._shared(memory.values)  # (B, H, T, K)
        return self.output(heads.transpose(1, 2).flatten(2))  # (B, T, D)

    def weights(self, x: Tensor, memory: KeysValues, mask: Tensor | None, angles: Tensor | None = None) -> Tensor:
        """softmax(QKᵀ/√K), the attention weights of x (B, T, D): (B, H, T, S); each row sums to 1."""
        queries = self.query(x).unflatten(2, (self.n_heads, -1)).transpose(1, 2)  # (B, H, T, K)
        queries = queries if angles is None else rotate(queries, angles)
        scores = (queries / math.sqrt(queries.shape[3])) @ self._shared(memory.keys).transpose(2, 3)  # (B, H, T, S)
        if mask is not None:
            scores.masked_fill_(~mask, -math.inf)  # in place: no gradient needs the scores themselves
        return scores.softmax(-1)

    def _shared(self, heads: Tensor) -> Tensor:
        """Repeat key or value heads for the query heads that share each of them."""
        times = self.n_heads // self.kv_heads
        return heads if times == 1 else heads.repeat_interleave(times, 1)


# --- Layers -------------------------------------------------------------------------------------------------------


class SwiGLU(nn.Module):
    """Half of the features gate the other half (Shazeer 2020, "GLU Variants Improve Transformer")."""

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, 2 F) to (B, T, F)."""
        gate, values = x.chunk(2, dim=-1)
        return F.silu(gate) * values


class FeedForward(nn.Sequential):
    """Two projections with a ReLU between, the same at every position (section 3.3), or with a later activation."""

    def __init__(self, settings: ModelConfig) -> None:
        width, halves = settings.d_ff, 2 if settings.activation == "swiglu" else 1
        activation = {"relu": nn.ReLU, "gelu": nn.GELU, "swiglu": SwiGLU}[settings.activation]()
        super().__init__(
            nn.Linear(settings.d_model, width * halves),
            nn.Sequential(activation, Dropout(settings.activation_dropout)),
            nn.Linear(width, settings.d_model),
        )


def make_norm(settings: ModelConfig) -> nn.Module:
    """The normalisation of each D-vector; ε, which avoids division by zero, is 1e-5 in both kinds.

    LayerNorm (Ba et al. 2016) subtracts the mean and divides by the biased standard deviation. RMSNorm (Zhang &
    Sennrich 2019) divides by the root mean square. The gain, and the bias of LayerNorm, are per feature.
    """
    return nn.LayerNorm(settings.d_model) if settings.norm_kind == "layer" else nn.RMSNorm(settings.d_model, eps=1e-5)


def final_norm(settings: ModelConfig) -> nn.Module:
    """The norm that closes a stack: pre-norm leaves its last sum unnormed, post-norm layers need none."""
    return make_norm(settings) if settings.norm == "pre" else nn.Identity()


class Residual(nn.Module):
    """The frame around every sub-layer f: residual connection, dropout on the output (section 5.4), and norm.

    post-norm, as in the paper:  norm(x + f(x))
    pre-norm, the default:       x + f(norm(x))

    Pre-norm keeps the residual path free of norms from the first layer to the last, so that training does not depend on
    a careful warm-up (Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture").
    """

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        self.norm = make_norm(settings)
        self.dropout = Dropout(settings.dropout)
        self.pre = settings.norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """The input of the sub-layer."""
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the output y of the sub-layer to its input x."""
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
        self, x: Tensor, mask: Tensor | None = None, angles: Tensor | None = None, past: KeysValues | None = None
    ) -> tuple[Tensor, KeysValues]:
        """Map states x (B, S, D) to new ones, and return the keys and values of all positions so far.

        mask broadcasts to (B, H, S, S). An encoder has no past, because it sees the whole sequence at once. A
        decoder-only model uses this layer too and passes its past, as `DecoderLayer` does.
        """
        y = self.around_attention.before(x)
        new = self.attention.keys_values(y, angles)
        past = new if past is None else past.extended(new)
        x = self.around_attention.after(x, self.attention(y, past, mask, angles))
        y = self.around_feed_forward.before(x)
        return self.around_feed_forward.after(x, self.feed_forward(y)), past


class DecoderLayer(nn.Module):
    """Self-attention over the target so far, cross-attention over the source, then feed-forward (section 3.1)."""

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
        angles: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """Map states x (B, T, D) to new ones, and return the self-attention's keys and values so far.

        past holds those of the positions before x. Training has none: it passes the whole target and a causal mask.

        In a search, x may hold several hypotheses of each sentence in memory, one after the other. Cross-attention
        treats them as further positions of one target, so that memory need not be copied for each hypothesis.
        """
        y = self.around_self_attention.before(x)
        new = self.self_attention.keys_values(y, angles)
        past = new if past is None else past.extended(new)
        x = self.around_self_attention.after(x, self.self_attention(y, past, mask, angles))
        y = self.around_cross_attention.before(x).reshape(len(memory.keys), -1, x.shape[2])  # (B, hypotheses x T, D)
        x = self.around_cross_attention.after(x, self.cross_attention(y, memory, memory_mask).view_as(x))
        y = self.around_feed_forward.before(x)
        return self.around_feed_forward.after(x, self.feed_forward(y)), past


# --- Encoder and decoder ------------------------------------------------------------------------------------------


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
        """Map source ids (B, S) to states (B, S, D). mask is a `padding_mask`; without it, padding is seen."""
        x = self.embedding(source)
        angles = self.embedding.angles(0, source.shape[1])
        for layer in self.layers:
            x, _ = layer(x, mask, angles)
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
        """Each layer's own keys and values of the encoder's states (B, S, D)."""
        return [layer.cross_attention.keys_values(states) for layer in self.layers]

    def forward(
        self,
        target: Tensor,
        mask: Tensor | None,
        memory: list[KeysValues],
        memory_mask: Tensor | None,
        past: list[KeysValues] | None = None,
    ) -> tuple[Tensor, list[KeysValues]]:
        """Map target ids (B, T) to states (B, T, D), and return each layer's keys and values so far."""
        start = past[0].keys.shape[2] if past else 0
        x = self.embedding(target, start)
        angles = self.embedding.angles(start, target.shape[1])
        seen: list[KeysValues] = []
        for i, layer in enumerate(self.layers):
            x, own = layer(x, mask, memory[i], memory_mask, past[i] if past else None, angles)
            seen.append(own)
        return self.norm(x), seen


# --- Transformer --------------------------------------------------------------------------------------------------


class DecodingState(NamedTuple):
    """What decoding keeps between two steps of B sentences, each with W hypotheses."""

    memory: list[KeysValues]  # per layer, of the source: 2 x (B, H, S, K); empty for a decoder-only model
    memory_mask: Tensor  # (B, 1, 1, S)
    # Per layer, of the target so far: 2 x (B W, H, T, K); None before the first step. Decoder-only: source and target.
    past: list[KeysValues] | None

    def select(self, hypotheses: Tensor | None, sentences: Tensor | None) -> DecodingState:
        """Keep the hypotheses and the sentences with these numbers, in this order. None keeps all."""
        memory, mask, past = self
        if sentences is not None:
            memory, mask = [layer.rows(sentences) for layer in memory], mask[sentences]
        if hypotheses is not None and past is not None:
            past = [layer.rows(hypotheses) for layer in past]
        return DecodingState(memory, mask, past)


class Transformer(nn.Module):
    """The encoder-decoder model: source ids and target ids to logits of the next target token.

    `dragoman.architectures` has the others, which share `states`, `encode` and `cross_attention`.
    """

    def __init__(self, settings: ModelConfig, source_size: int, target_size: int) -> None:
        """Make a model for vocabularies of these sizes, with fresh weights from torch's global generator.

        Raises ValueError if model.tie is "all" and the vocabularies differ in size.
        """
        super().__init__()
        self.settings = settings
        self.encoder = Encoder(source_size, settings)
        self.decoder = Decoder(target_size, settings)
        self.projection = nn.Linear(settings.d_model, target_size, bias=False)
        init_weights(self)
        tie_weights(settings.tie, self.projection, self.encoder.embedding, self.decoder.embedding)

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """Logits (B, T, V) of the token that follows each token of target (B, T), which starts with [SOS].

        This is teacher forcing: row t has seen all of source (B, S), and target up to and including position t.

        Args:
            source_mask: (B, 1, 1, S), see `dataset.padding_mask`
            target_mask: (B, 1, T, T), see `dataset.decoder_mask`
        """
        return self.projection(self.states(source, target, source_mask, target_mask))

    def states(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """The states (B, T, D) that `forward` projects. Training computes projection and loss together."""
        memory = self.decoder.memory(self.encoder(source, source_mask))
        states, _ = self.decoder(target, target_mask, memory, source_mask)
        return states

    def encode(self, source: Tensor) -> Tensor:
        """Encode source ids (B, S): (B, S, D)."""
        return self.encoder(source, padding_mask(source))

    def start(self, source: Tensor) -> DecodingState:
        """Encode source ids (B, S) and return the state for the first `step`."""
        mask = padding_mask(source)
        return DecodingState(self.decoder.memory(self.encoder(source, mask)), mask, None)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """Logits (B W, V) of the token after tokens (B W,), and the state that includes these.

        tokens holds the last token of each hypothesis; row b * W + w is hypothesis w of sentence b.
        """
        # One new position may look at everything before it, so no mask is needed.
        states, past = self.decoder(tokens[:, None], None, state.memory, state.memory_mask, state.past)
        return self.projection(states[:, 0]), state._replace(past=past)

    @torch.no_grad()
    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """Where each position of target (B, T) looks in source (B, S): (layers, B, H, T, S); rows sum to 1."""
        with record_attention([layer.cross_attention for layer in self.decoder.layers]) as maps:
            self.states(source, target, *masks(source, target))
        return torch.stack(maps)


# --- What every architecture shares -------------------------------------------------------------------------------


def init_weights(model: nn.Module) -> None:
    """Xavier for matrices, zero for biases, and embeddings that have unit variance once scaled by √D."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


def tie_weights(tie: str, projection: nn.Linear, source: Embedding, target: Embedding | None) -> None:
    """Share matrices as model.tie says (section 3.4; Press & Wolf 2017, "Using the Output Embedding").

    There is less to learn, and rare words learn from both ends. Raises ValueError if one table should serve two
    vocabularies of different sizes.
    """
    if tie == "output" and target is not None:
        projection.weight = target.table.weight
    elif tie == "all":
        sizes = source.table.num_embeddings, projection.out_features
        if sizes[0] != sizes[1]:
            raise ValueError(f"model.tie all needs one vocabulary, but there are two, of {sizes[0]} and {sizes[1]}")
        source.table.weight = projection.weight = (target or source).table.weight


@contextmanager
def record_attention(attentions: Sequence[Attention]) -> Iterator[list[Tensor]]:
    """Context manager: append the weights (B, H, T, S) of every call of these attentions in this thread to a list."""
    maps: list[Tensor] = []
    thread = threading.get_ident()

    def record(attention: Any, given: tuple, _: Tensor) -> None:
        if threading.get_ident() == thread:  # other threads may use the same model meanwhile
            maps.append(attention.weights(*given))

    with ExitStack() as hooks:
        for attention in attentions:
            hooks.enter_context(attention.register_forward_hook(record))
        yield maps
