"""A trained encoder-decoder as a model of Hugging Face's transformers, for `from_pretrained`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor, nn

from dragoman.architectures.portable_weights import (
    attention_projections,
    banned_bias,
    linear_layers,
    position_table,
    self_attention,
)
from dragoman.dataset import source_batch
from dragoman.export.loaded import BATCH_SIZE, Batch, LoadedExport, until_eos
from dragoman.model import Attention, DecoderLayer, Transformer
from dragoman.settings import EOS, PAD, SOS


def _transformers() -> Any:
    """Import transformers and turn off its progress bars."""
    import transformers  # pyright: ignore[reportMissingImports]

    transformers.utils.logging.disable_progress_bar()
    return transformers


def transformers_model(model: Transformer) -> Any:
    """Convert the model to Blenderbot, if it is pre-norm, or to Marian, if it is post-norm.

    Blenderbot has one vocabulary size for both sides, that of the larger one. The extra rows of the smaller one are
    never looked up and never generated. Its position table can hold any positions that are added to the embeddings.

    Marian computes its own sinusoids, with all sines before all cosines. So the features of every weight are reordered
    in the same way, which does not change the function.
    """
    transformers = _transformers()
    settings, width = model.settings, model.settings.d_model
    sizes = [each.embedding.table.num_embeddings for each in (model.encoder, model.decoder)]
    pre = settings.norm == "pre"
    config: dict[str, Any] = {
        "d_model": width, "encoder_ffn_dim": settings.d_ff, "decoder_ffn_dim": settings.d_ff,
        "encoder_layers": settings.encoder_layers, "decoder_layers": settings.decoder_layers,
        "encoder_attention_heads": settings.n_heads, "decoder_attention_heads": settings.n_heads,
        "activation_function": settings.activation, "scale_embedding": True,
        "max_position_embeddings": len(position_table(model.encoder.embedding)),
        "pad_token_id": PAD, "bos_token_id": SOS, "eos_token_id": EOS, "decoder_start_token_id": SOS,
        "forced_eos_token_id": None,
    }  # fmt: skip
    if pre:
        size = max(sizes)
        exported = transformers.BlenderbotForConditionalGeneration(
            transformers.BlenderbotConfig(
                **config, vocab_size=size, encoder_no_repeat_ngram_size=0, tie_word_embeddings=settings.tie == "all"
            )
        )
        weights = named_weights(model, torch.arange(width), [size, size])
        weights |= named_norm("model.encoder.layer_norm", model.encoder.norm, torch.arange(width))
        weights |= named_norm("model.decoder.layer_norm", model.decoder.norm, torch.arange(width))
    else:
        exported = transformers.MarianMTModel(
            transformers.MarianConfig(
                **config, vocab_size=sizes[0], decoder_vocab_size=sizes[1],
                share_encoder_decoder_embeddings=settings.tie == "all", tie_word_embeddings=settings.tie != "none",
            )
        )  # fmt: skip
        weights = named_weights(model, torch.arange(width).view(-1, 2).t().flatten(), sizes)
    if pre or settings.tie == "all":
        weights["model.shared.weight"] = weights["model.encoder.embed_tokens.weight"]
    exported.load_state_dict(weights)
    exported.generation_config = transformers.GenerationConfig(
        pad_token_id=PAD, bos_token_id=SOS, eos_token_id=EOS, decoder_start_token_id=SOS, max_new_tokens=256
    )
    return exported.eval()


def named_weights(model: Transformer, order: Tensor, sizes: Sequence[int]) -> dict[str, Tensor]:
    """Name the weights as Marian and Blenderbot do, with the model's features reordered by `order` (D).

    The embeddings of source and target are padded with zeros to `sizes`.
    """
    bias = banned_bias(model.projection.out_features)
    grow = sizes[1] - len(bias)
    weights = {
        "lm_head.weight": nn.functional.pad(model.projection.weight[:, order], (0, 0, 0, grow)),
        "final_logits_bias": nn.functional.pad(bias, (0, grow), value=-math.inf)[None],
    }
    for name, stack, size in (("encoder", model.encoder, sizes[0]), ("decoder", model.decoder, sizes[1])):
        table = stack.embedding.table.weight
        weights[f"model.{name}.embed_tokens.weight"] = nn.functional.pad(table[:, order], (0, 0, 0, size - len(table)))
        weights[f"model.{name}.embed_positions.weight"] = position_table(stack.embedding)[:, order]
        for i, layer in enumerate(stack.layers):
            prefix = f"model.{name}.layers.{i}"
            attention, norm = self_attention(layer)
            weights |= named_attention(f"{prefix}.self_attn", attention, order)
            weights |= named_norm(f"{prefix}.self_attn_layer_norm", norm, order)
            if isinstance(layer, DecoderLayer):
                weights |= named_attention(f"{prefix}.encoder_attn", layer.cross_attention, order)
                weights |= named_norm(f"{prefix}.encoder_attn_layer_norm", layer.around_cross_attention.norm, order)
            first, second = linear_layers(layer.feed_forward)
            weights |= {f"{prefix}.fc1.weight": first.weight[:, order], f"{prefix}.fc1.bias": first.bias}
            weights |= {f"{prefix}.fc2.weight": second.weight[order], f"{prefix}.fc2.bias": second.bias[order]}
            weights |= named_norm(f"{prefix}.final_layer_norm", layer.around_feed_forward.norm, order)
    return weights


def named_attention(prefix: str, attention: Attention, order: Tensor) -> dict[str, Tensor]:
    """Name the projections of an attention as transformers does."""
    *inputs, (weight, bias) = attention_projections(attention)
    weights = {f"{prefix}.out_proj.weight": weight[order], f"{prefix}.out_proj.bias": bias[order]}
    for letter, (weight, bias) in zip("qkv", inputs, strict=True):
        weights |= {f"{prefix}.{letter}_proj.weight": weight[:, order], f"{prefix}.{letter}_proj.bias": bias}
    return weights


def named_norm(prefix: str, norm: Any, order: Tensor) -> dict[str, Tensor]:
    """Name the gain and bias of a norm as transformers does."""
    return {f"{prefix}.weight": norm.weight[order], f"{prefix}.bias": norm.bias[order]}


def save_huggingface(
    model: Transformer, sides: tuple[tokenizers.Tokenizer, tokenizers.Tokenizer], folder: Path
) -> None:
    """Write the files that `from_pretrained` reads. A separate target tokenizer goes into the folder `target`."""
    transformers_model(model).save_pretrained(folder)
    source, target = sides
    names = {f"{name.lower()[1:-1]}_token": name for name in ("[PAD]", "[UNK]", "[EOS]")} | {"bos_token": "[SOS]"}
    options: dict[str, Any] = {
        **names,
        "split_special_tokens": True,  # so that "[EOS]" in a text does not end a sentence
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    _transformers().PreTrainedTokenizerFast(tokenizer_object=source, **options).save_pretrained(folder)
    if source.to_str() != target.to_str():
        _transformers().PreTrainedTokenizerFast(tokenizer_object=target, **options).save_pretrained(folder / "target")


def load_huggingface(folder: Path) -> LoadedExport:
    """Load the folder with transformers alone."""
    transformers = _transformers()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    source = transformers.AutoTokenizer.from_pretrained(folder)
    has_target = (folder / "target").exists()
    target = transformers.AutoTokenizer.from_pretrained(folder / "target") if has_target else source

    def greedy(sentences: Batch, limit: int) -> list[list[int]]:
        translations = []
        for start in range(0, len(sentences), BATCH_SIZE):
            ids = source_batch(sentences[start : start + BATCH_SIZE])
            rows = model.generate(
                input_ids=ids, attention_mask=(ids != PAD).long(), num_beams=1, do_sample=False, max_new_tokens=limit
            )
            translations += [until_eos(row) for row in rows[:, 1:].tolist()]
        return translations

    return LoadedExport(
        greedy, lambda texts: source(list(texts))["input_ids"], lambda batch: [target.decode(ids) for ids in batch]
    )
