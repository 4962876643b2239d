"""A trained encoder-decoder in the files of CTranslate2, which its own library writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from dragoman.architectures.portable_weights import (
    attention_projections,
    banned_bias,
    linear_layers,
    position_table,
    self_attention,
)
from dragoman.model import Decoder, DecoderLayer, Encoder, FeedForward, Transformer


def to_numpy(x: Tensor) -> np.ndarray:
    """Convert a tensor to the array that CTranslate2 expects."""
    return x.detach().float().cpu().numpy()


def ctranslate2_spec(model: Transformer, source: Sequence[str], target: Sequence[str]) -> Any:
    """Describe the model to CTranslate2; `source` and `target` list the tokens of each vocabulary by id."""
    from ctranslate2 import specs

    settings = model.settings
    activations = {
        "relu": specs.Activation.RELU, "gelu": specs.Activation.GELU, "swiglu": specs.Activation.SWISH,
    }  # fmt: skip
    rotary = {"rotary_dim": 0, "rotary_interleave": False} if settings.positions == "rotary" else {}
    shape: dict[str, Any] = {
        "pre_norm": settings.norm == "pre", "activation": activations[settings.activation],
        "ffn_glu": settings.activation == "swiglu", "rms_norm": settings.norm_kind == "rms", **rotary,
    }  # fmt: skip
    spec: Any = specs.TransformerSpec(
        specs.TransformerEncoderSpec(settings.encoder_layers, settings.n_heads, **shape),
        # replace_unknowns copies the source word with the most attention in the last layer, averaged over all heads.
        specs.TransformerDecoderSpec(
            settings.decoder_layers, settings.n_heads, alignment_heads=settings.n_heads, **shape
        ),
    )
    describe_stack(spec.encoder, model.encoder)
    describe_stack(spec.decoder, model.decoder)
    spec.decoder.projection.weight = to_numpy(model.projection.weight)
    spec.decoder.projection.bias = to_numpy(banned_bias(len(target)))
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    names = {"unk_token": "[UNK]", "bos_token": "[SOS]", "eos_token": "[EOS]", "decoder_start_token": "[SOS]"}
    for name, token in names.items():
        setattr(spec.config, name, token)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = 1e-5
    return spec


def describe_stack(spec: Any, stack: Encoder | Decoder) -> None:
    """Fill in the description of an encoder or decoder."""
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = to_numpy(stack.embedding.table.weight)
    spec.scale_embeddings = True
    if stack.embedding.kind != "rotary":
        spec.position_encodings.encodings = to_numpy(position_table(stack.embedding))
    if not isinstance(stack.norm, nn.Identity):
        describe_norm(spec.layer_norm, stack.norm)
    for theirs, layer in zip(spec.layer, stack.layers, strict=True):
        if isinstance(layer, DecoderLayer):
            query, key, value, output = attention_projections(layer.cross_attention)
            for linear, parts in zip(theirs.attention.linear, ([query], [key, value], [output]), strict=True):
                describe_linear(linear, parts)
            describe_norm(theirs.attention.layer_norm, layer.around_cross_attention.norm)
        attention, norm = self_attention(layer)
        *inputs, output = attention_projections(attention)
        describe_linear(theirs.self_attention.linear[0], inputs)
        describe_linear(theirs.self_attention.linear[1], [output])
        describe_norm(theirs.self_attention.layer_norm, norm)
        describe_feed_forward(theirs.ffn, layer.feed_forward)
        describe_norm(theirs.ffn.layer_norm, layer.around_feed_forward.norm)


def describe_feed_forward(spec: Any, block: FeedForward) -> None:
    """Fill in a feed-forward block. With a gated activation (SwiGLU), the first projection is split into two."""
    first, second = linear_layers(block)
    gates = hasattr(spec, "linear_0_noact")
    parts = zip(first.weight.chunk(1 + gates), first.bias.chunk(1 + gates), strict=True)
    for linear, part in zip([spec.linear_0, *([spec.linear_0_noact] if gates else [])], parts, strict=True):
        describe_linear(linear, [part])
    describe_linear(spec.linear_1, [(second.weight, second.bias)])


def describe_linear(spec: Any, parts: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Fill in one linear layer, made of several projections side by side."""
    spec.weight = np.concatenate([to_numpy(weight) for weight, _ in parts])
    spec.bias = np.concatenate([to_numpy(bias) for _, bias in parts])


def describe_norm(spec: Any, norm: nn.Module) -> None:
    """Fill in a norm. RMSNorm has no bias."""
    spec.gamma = to_numpy(norm.weight)  # type: ignore[arg-type]
    if isinstance(norm, nn.LayerNorm):
        spec.beta = to_numpy(norm.bias)


def save_ctranslate2(spec: Any, folder: Path, quantization: str | None = None) -> None:
    """Write the files that CTranslate2 reads. With int8, matrices and embeddings have one scale for each row."""
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
