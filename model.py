"""The encoder-decoder Transformer, from token ids to logits ("Attention Is All You Need", Vaswani et al. 2017).

Nothing here knows about text, losses, files or search: `dataset` makes the ids, `optim` scores the logits, and
`decoding` calls `Transformer.start` once for a batch of sentences and `Transformer.step` once for each further token.

The file reads from the bottom of the paper's figure 1 to its top: positions and embeddings, attention, feed-forward,
one layer, a stack, the whole. Section numbers are the paper's.

Shapes are written in these letters, and in this order:
    B batch   H heads   T target positions   S source positions   D model width   K head width   V vocabulary
Masks are boolean, True where a query may look at a key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from config import PAD, ModelConfig
from runtime import random_words

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


class Embedding(nn.Module):
    """Token ids to vectors: a learned table scaled by √D (section 3.4), plus the position, then dropout."""

    positions: Tensor

    def __init__(self, size: int, settings: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(size, settings.d_model)
        self.scale = math.sqrt(settings.d_model)
        self.dropout = Dropout(settings.dropout)
        self.has_positions = settings.positions == "sinusoidal"
        # Derived, hence not saved with the weights; grown by `forward` when a longer sentence than any before arrives.
        self.register_buffer("positions", sinusoid(256, settings.d_model), persistent=False)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Embed ids (B, T), the first of which stands at position start: (B, T, D)."""
        x = self.table(ids) * self.scale
        if self.has_positions:
            positions, end = self.positions, start + ids.shape[1]
            if end > len(positions):
                # Another thread may put a shorter table there meanwhile: this one goes on with its own.
                positions = self.positions = sinusoid(2 * end, x.shape[2]).to(positions.device)
            x = x + positions[start:end]
        return self.dropout(x)


# ----------------------------------------------------------------------------------------------------------- attention


class KeysValues(NamedTuple):
    """One attention's projections of the sequence it looks at; during decoding they are kept and grow."""

    keys: Tensor  # (B, H, S, K)
    values: Tensor  # (B, H, S, K)

    def extended(self, new: KeysValues) -> KeysValues:
        """Append what new positions contribute."""
        return KeysValues(torch.cat((self.keys, new.keys), 2), torch.cat((self.values, new.values), 2))

    def rows(self, index: Tensor) -> KeysValues:
        """Keep the rows that index (any number of row numbers) names, in its order."""
        return KeysValues(self.keys[index], self.values[index])


class Attention(nn.Module):
    """Multi-head attention of one sequence over the keys and values of another, or of itself (section 3.2.2)."""

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        width = settings.d_model
        self.n_heads = settings.n_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.dropout = Dropout(settings.attention_dropout)

    def _split(self, x: Tensor) -> Tensor:
        """Cut the width into heads: (B, T, D) to (B, H, T, K)."""
        return x.unflatten(2, (self.n_heads, -1)).transpose(1, 2)

    def keys_values(self, memory: Tensor) -> KeysValues:
        """Project memory (B, S, D) apart from its use, so that decoding projects each token once."""
        return KeysValues(self._split(self.key(memory)), self._split(self.value(memory)))

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor | None = None) -> Tensor:
        """Let every position of x (B, T, D) look at the keys that mask (broadcast to B, H, T, S) allows."""
        if x.device.type == "cpu":
            # For thousands of short sentences, torch's fused kernel is slower on a CPU than the formula as it stands:
            # a whole training step of a 4+4-layer model took 2.3 times (bfloat16) to 7 times (float32) as long.
            heads = self.dropout(self.weights(x, memory, mask)) @ memory.values  # (B, H, T, K)
        else:
            queries = self._split(self.query(x))  # (B, H, T, K)
            dropped = self.dropout.share if self.training else 0.0
            heads = F.scaled_dot_product_attention(queries, memory.keys, memory.values, mask, dropped)
        return self.output(heads.transpose(1, 2).flatten(2))  # (B, T, D)

    def weights(self, x: Tensor, memory: KeysValues, mask: Tensor | None = None) -> Tensor:
        """softmax(QKᵀ/√K), by which `forward` takes its averages: (B, H, T, S), a row sums to 1."""
        queries = self._split(self.query(x))  # (B, H, T, K)
        scores = (queries / math.sqrt(queries.shape[3])) @ memory.keys.transpose(2, 3)  # (B, H, T, S)
        if mask is not None:
            scores.masked_fill_(~mask, -math.inf)  # in place, for no gradient needs the scores themselves
        return scores.softmax(dim=-1)


# -------------------------------------------------------------------------------------------------------------- layers


class FeedForward(nn.Sequential):
    """Two projections with a ReLU between, the same at every position (section 3.3)."""

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__(
            nn.Linear(settings.d_model, settings.d_ff),
            nn.Sequential(nn.ReLU(), Dropout(settings.activation_dropout)),
            nn.Linear(settings.d_ff, settings.d_model),
        )


class Residual(nn.Module):
    """What surrounds every sub-layer f: a way past it, dropout on its output (section 5.4), and layer norm.

    post-norm, as in the paper:  norm(x + f(x))
    pre-norm, the default:       x + f(norm(x))

    Pre-norm leaves the way past the sub-layers free of norms from the first layer to the last, and so trains without
    care for the warm-up (Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture").
    """

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.d_model)
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

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """States x (B, S, D) to states of the same shape; mask is broadcast to (B, H, S, S)."""
        y = self.around_attention.before(x)
        x = self.around_attention.after(x, self.attention(y, self.attention.keys_values(y), mask))
        y = self.around_feed_forward.before(x)
        return self.around_feed_forward.after(x, self.feed_forward(y))


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
    ) -> tuple[Tensor, KeysValues]:
        """States x (B, T, D) to states of the same shape, and the self-attention's keys and values up to here.

        past holds those of the positions before x; training has none, and gives x whole with a causal mask.

        In a search x may hold several hypotheses, one after the other, for each sentence of memory: to the source, they
        are as so many positions of one target, and the memory need not be copied for each.
        """
        y = self.around_self_attention.before(x)
        new = self.self_attention.keys_values(y)
        past = new if past is None else past.extended(new)
        x = self.around_self_attention.after(x, self.self_attention(y, past, mask))
        y = self.around_cross_attention.before(x).reshape(len(memory.keys), -1, x.shape[2])  # (B, hypotheses x T, D)
        x = self.around_cross_attention.after(x, self.cross_attention(y, memory, memory_mask).view_as(x))
        y = self.around_feed_forward.before(x)
        return self.around_feed_forward.after(x, self.feed_forward(y)), past


# -------------------------------------------------------------------------------------------------------------- stacks


def final_norm(settings: ModelConfig) -> nn.Module:
    """Pre-norm leaves the last sum unnormed, so a norm closes the stack; a post-norm layer has ended with its own."""
    return nn.LayerNorm(settings.d_model) if settings.norm == "pre" else nn.Identity()


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
        for layer in self.layers:
            x = layer(x, mask)
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
        seen: list[KeysValues] = []
        for i, layer in enumerate(self.layers):
            x, own = layer(x, mask, memory[i], memory_mask, past[i] if past else None)
            seen.append(own)
        return self.norm(x), seen


# --------------------------------------------------------------------------------------------------------------- whole


class State(NamedTuple):
    """What decoding remembers between two steps of B sentences, each with the same number W of hypotheses."""

    memory: list[KeysValues]  # a layer: of the source, 2 x (B, H, S, K)
    memory_mask: Tensor  # (B, 1, 1, S)
    past: list[KeysValues] | None  # a layer: of the target so far, 2 x (B W, H, T, K); None before the first step

    def select(self, hypotheses: Tensor | None, sentences: Tensor | None) -> State:
        """Keep the hypotheses and the sentences with these numbers, in this order; None keeps all as they are."""
        memory, mask, past = self
        if sentences is not None:
            memory, mask = [layer.rows(sentences) for layer in memory], mask[sentences]
        if hypotheses is not None and past is not None:
            past = [layer.rows(hypotheses) for layer in past]
        return State(memory, mask, past)


class Transformer(nn.Module):
    """The encoder-decoder model: source ids and target ids to logits over the next target token."""

    def __init__(self, settings: ModelConfig, source_size: int, target_size: int) -> None:
        """Make a model with fresh weights (drawn from torch's global generator) for vocabularies of these sizes.

        Raises ValueError if all embeddings are to be one table but the vocabularies differ in size.
        """
        super().__init__()
        self.encoder = Encoder(source_size, settings)
        self.decoder = Decoder(target_size, settings)
        self.projection = nn.Linear(settings.d_model, target_size, bias=False)
        self._initialize()
        # Sharing weights (section 3.4; Press & Wolf 2017): fewer to learn, and rare words are learnt from both ends.
        match settings.tie:
            case "output":
                self.projection.weight = self.decoder.embedding.table.weight
            case "all":
                if source_size != target_size:
                    raise ValueError(f"model.tie: all needs one vocabulary, not sizes {source_size} and {target_size}")
                self.encoder.embedding.table.weight = self.decoder.embedding.table.weight
                self.projection.weight = self.decoder.embedding.table.weight
            case "none":
                pass

    def _initialize(self) -> None:
        """Xavier for the matrices, zero for the biases; embeddings such that, scaled by √D, they have unit variance."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) for the token that follows each of target (B, T), which begins with [SOS].

        Row t has seen source (B, S) whole and target up to and including t; this is teacher forcing.
        """
        return self.projection(self.states(source, target))

    def states(self, source: Tensor, target: Tensor) -> Tensor:
        """What `forward` projects, (B, T, D): training does that with the loss, in `optim.loss_sums`."""
        state = self.start(source)
        mask = causal_mask(target.shape[1], target.device) & padding_mask(target)  # (B, 1, T, T)
        states, _ = self.decoder(target, mask, state.memory, state.memory_mask)
        return states

    def products(self) -> tuple[int, int]:
        """The weights by which a source token is multiplied on its way, and those by which a target token is.

        A forward pass takes two operations for each, a training step six. Not counted is what depends on the length of
        a sentence, the attention scores, a few per cent of the whole.
        """
        encoder, decoder = (
            sum(p.numel() for p in stack.layers.parameters() if p.dim() == 2)  # type: ignore[attr-defined]
            for stack in (self.encoder, self.decoder)
        )
        memory = sum(
            each.weight.numel()
            for layer in self.decoder.layers
            for each in (layer.cross_attention.key, layer.cross_attention.value)
        )
        return encoder + memory, decoder - memory + self.projection.weight.numel()

    def start(self, source: Tensor) -> State:
        """Read source ids (B, S): the state from which `step` goes on."""
        mask = padding_mask(source)
        return State(self.decoder.memory(self.encoder(source, mask)), mask, None)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (B W, V) for the token after tokens (B W,), and the state that has seen them.

        tokens holds the last one of each hypothesis, in row b * W + w that of hypothesis w of sentence b.
        """
        # One new position may look at everything before it: no mask is needed.
        states, past = self.decoder(tokens[:, None], None, state.memory, state.memory_mask, state.past)
        return self.projection(states[:, 0]), state._replace(past=past)

    @torch.no_grad()
    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """Where each position of target (B, T) looks in source (B, S): (layers, B, H, T, S), rows sum to 1."""
        maps: list[Tensor] = []

        def keep(attention: Attention, inputs: tuple[Tensor, KeysValues, Tensor], _: Tensor) -> None:
            maps.append(attention.weights(*inputs))

        hooks = [layer.cross_attention.register_forward_hook(keep) for layer in self.decoder.layers]
        try:
            self.states(source, target)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack(maps)

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """By how much each position of target (B, T) is made from each of source (B, S): (B, T, S), rows sum to 1."""
        return self.cross_attention(source, target).mean((0, 2))


class Ensemble(nn.Module):
    """Several models that translate together, by the mean of their probabilities; they share the vocabularies."""

    def __init__(self, models: Sequence[Transformer]) -> None:
        super().__init__()
        self.members: Sequence[Transformer] = nn.ModuleList(models)  # type: ignore[assignment]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Log-probabilities (B, T, V), as logits of `Transformer.forward`."""
        return mean_log_probs([member(source, target) for member in self.members])

    def start(self, source: Tensor) -> EnsembleState:
        """Read source ids (B, S), each model for itself."""
        return EnsembleState([member.start(source) for member in self.members])

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Log-probabilities (B W, V), and the state, as `Transformer.step`."""
        steps = [member.step(tokens, own) for member, own in zip(self.members, state.states, strict=True)]
        return mean_log_probs([logits for logits, _ in steps]), EnsembleState([own for _, own in steps])

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
