"""What every other engine is given of a trained encoder-decoder: its weights, folded, and its tokenizers.

Weights are taken in float32; what an engine has no part for is folded into what it has: heads that share keys and
values get a copy each, biases that are not there become zeros, and a table of positions holds whatever the model adds
for them. `to_ctranslate2`, `to_huggingface`, `to_onnx` and `to_argos` write each engine's own files of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import tokenizers
import torch
from tokenizers import Regex, normalizers, processors
from torch import Tensor, nn

from dragoman.dataset import Tokenizer
from dragoman.model import Attention, DecoderLayer, Embedding, EncoderLayer, FeedForward, sinusoid
from dragoman.settings import EOS, PAD, SOS, DataConfig

Batch = Sequence[Sequence[int]]  # ids, without start and end
POSITIONS = 1024  # of a table that could go on for ever
BANNED = [PAD, SOS]  # as in `decoding`
BATCH = 32  # sentences that are translated at a time
SIDES = ("source", "target")


class Opened(NamedTuple):
    """An engine with the files of an export, as its users have it."""

    greedy: Callable[[Batch, int], list[list[int]]]  # sentences and the most tokens, [EOS] included -> translations
    encode: Callable[[Sequence[str]], list[list[int]]]  # texts to ids, [EOS] last
    decode: Callable[[Batch], list[str]]  # ids to texts


def ended(ids: list[int]) -> list[int]:
    """Ids up to the first [EOS], if there is one."""
    return ids[: ids.index(EOS)] if EOS in ids else ids


# ----------------------------------------------------------------------------------------------------------- tokenizers


def portable(tokenizer: Tokenizer, data: DataConfig) -> tokenizers.Tokenizer:
    """The tokenizer with what surrounds it here: it cleans a text as `corpus.clean` does, and closes it with [EOS]."""
    core = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    form = normalizers.NFKC() if data.normalize == "nfkc" else normalizers.NFC()
    steps = [form, *([normalizers.Lowercase(), form] if data.lowercase else [])]
    steps += [normalizers.Replace(Regex(r"[\s\x1c-\x1f]+"), " "), normalizers.Strip()]
    core.normalizer = normalizers.Sequence([*steps, core.normalizer])
    core.post_processor = processors.TemplateProcessing(single="$A [EOS]", special_tokens=[("[EOS]", EOS)])
    core.encode_special_tokens = True
    return core


def open_tokenizers(folder: Path) -> tuple[Callable[[Sequence[str]], list[list[int]]], Callable[[Batch], list[str]]]:
    """`Opened.encode` and `Opened.decode` by the tokenizers of a folder."""
    source, target = (tokenizers.Tokenizer.from_file(str(folder / f"{side}.tokenizer.json")) for side in SIDES)
    source.encode_special_tokens = True
    return (
        lambda texts: [encoding.ids for encoding in source.encode_batch(texts)],
        lambda batch: target.decode_batch(batch, skip_special_tokens=False),
    )


def words_of(tokenizer: Tokenizer) -> list[str]:
    """The tokens in the order of their ids."""
    vocabulary = tokenizer.vocabulary
    return sorted(vocabulary, key=vocabulary.__getitem__)


# -------------------------------------------------------------------------------------------------------------- weights


def projections(attention: Attention) -> list[tuple[Tensor, Tensor]]:
    """Weights (D, D) and biases (D) of queries, keys, values and output, with as many heads of each."""
    width, times = attention.query.out_features // attention.n_heads, attention.n_heads // attention.kv_heads
    found = []
    for part in (attention.query, attention.key, attention.value, attention.output):
        weight = part.weight
        bias = torch.zeros(len(weight)) if part.bias is None else part.bias
        if len(weight) < attention.query.out_features:
            weight = weight.unflatten(0, (-1, width)).repeat_interleave(times, 0).flatten(0, 1)
            bias = bias.unflatten(0, (-1, width)).repeat_interleave(times, 0).flatten()
        found.append((weight, bias))
    return found


def looking_at_itself(layer: EncoderLayer | DecoderLayer) -> tuple[Attention, nn.Module]:
    """A layer's self-attention, and the norm around it."""
    match layer:
        case EncoderLayer():
            return layer.attention, layer.around_attention.norm
        case DecoderLayer():
            return layer.self_attention, layer.around_self_attention.norm


def linears(block: FeedForward) -> tuple[nn.Linear, nn.Linear]:
    """The two projections of a feed-forward block."""
    first, _, second = block
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    return first, second


def places(embedding: Embedding) -> Tensor:
    """What the model adds to the embedding of each position, as a table (positions, D)."""
    width = embedding.table.embedding_dim
    match embedding.kind:
        case "sinusoidal":
            return sinusoid(POSITIONS, width)
        case "learned":
            return embedding.learned.weight * embedding.scale
        case "none" | "rotary":
            return torch.zeros(POSITIONS, width)
    raise ValueError(embedding.kind)


def bans(size: int) -> Tensor:
    """What is added to the logits of a target vocabulary: (V)."""
    return torch.zeros(size).index_fill_(0, torch.tensor(BANNED), -math.inf)
