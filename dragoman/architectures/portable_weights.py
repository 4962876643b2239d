"""The weights of a trained Transformer in the form that other engines expect.

Parts that an engine lacks are folded into parts that it has: shared key/value heads are repeated, missing biases become
zeros, and positions become a table. All weights are float32.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dragoman.model import Attention, DecoderLayer, Embedding, EncoderLayer, FeedForward, sinusoid
from dragoman.settings import PAD, SOS

POSITIONS = 1024  # rows of a table of sinusoids, which have no limit of their own
BANNED = [PAD, SOS]  # never generated, as in our own search


def attention_projections(attention: Attention) -> list[tuple[Tensor, Tensor]]:
    """Weights (D, D) and biases (D) of queries, keys, values and output; key/value heads are repeated as needed."""
    width, times = attention.query.out_features // attention.n_heads, attention.n_heads // attention.kv_heads
    layers = []
    for part in (attention.query, attention.key, attention.value, attention.output):
        weight = part.weight
        bias = torch.zeros(len(weight)) if part.bias is None else part.bias
        if len(weight) < attention.query.out_features:
            weight = weight.unflatten(0, (-1, width)).repeat_interleave(times, 0).flatten(0, 1)
            bias = bias.unflatten(0, (-1, width)).repeat_interleave(times, 0).flatten()
        layers.append((weight, bias))
    return layers


def self_attention(layer: EncoderLayer | DecoderLayer) -> tuple[Attention, nn.Module]:
    """Return a layer's self-attention and its norm."""
    match layer:
        case EncoderLayer():
            return layer.attention, layer.around_attention.norm
        case DecoderLayer():
            return layer.self_attention, layer.around_self_attention.norm


def linear_layers(block: FeedForward) -> tuple[nn.Linear, nn.Linear]:
    """Return the two linear layers of a feed-forward block."""
    first, _, second = block
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    return first, second


def position_table(embedding: Embedding) -> Tensor:
    """Tabulate what the model adds to the embedding at each position: (positions, D)."""
    width = embedding.table.embedding_dim
    match embedding.kind:
        case "sinusoidal":
            return sinusoid(POSITIONS, width)
        case "learned":
            return embedding.learned.weight * embedding.scale
        case "none" | "rotary":
            return torch.zeros(POSITIONS, width)
    raise ValueError(embedding.kind)


def banned_bias(size: int) -> Tensor:
    """A bias for the logits of `size` target tokens: -inf for tokens that are never generated, else 0."""
    return torch.zeros(size).index_fill_(0, torch.tensor(BANNED), -math.inf)
