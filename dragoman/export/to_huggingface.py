"""A trained encoder-decoder as a class of Hugging Face's transformers, saved for `from_pretrained`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor, nn

from dragoman.dataset import source_batch
from dragoman.export.weights import BATCH, Batch, Opened, bans, ended, linears, looking_at_itself, places, projections
from dragoman.model import Attention, DecoderLayer, Transformer
from dragoman.settings import EOS, PAD, SOS


def library() -> Any:
    """transformers, without its progress bars."""
    import transformers  # pyright: ignore[reportMissingImports]

    transformers.utils.logging.disable_progress_bar()
    return transformers


def transformers_model(model: Transformer) -> Any:
    """The model as a class of transformers: Blenderbot, which is pre-norm, or Marian, which is post-norm.

    Blenderbot has one vocabulary for both sides, of the size of the larger one; what the smaller one lacks is never
    looked up, and never written. Its table of positions holds any that are added. Marian makes its sinusoid itself, and
    sets all sines before all cosines: our features are put in that order, in every weight alike, which changes nothing.
    """
    transformers = library()
    settings, width = model.settings, model.settings.d_model
    sizes = [each.embedding.table.num_embeddings for each in (model.encoder, model.decoder)]
    pre = settings.norm == "pre"
    config: dict[str, Any] = {
        "d_model": width, "encoder_ffn_dim": settings.d_ff, "decoder_ffn_dim": settings.d_ff,
        "encoder_layers": settings.encoder_layers, "decoder_layers": settings.decoder_layers,
        "encoder_attention_heads": settings.n_heads, "decoder_attention_heads": settings.n_heads,
        "activation_function": settings.activation, "scale_embedding": True,
        "max_position_embeddings": len(places(model.encoder.embedding)),
        "pad_token_id": PAD, "bos_token_id": SOS, "eos_token_id": EOS, "decoder_start_token_id": SOS,
        "forced_eos_token_id": None,
    }  # fmt: skip
    if pre:
        size = max(sizes)
        made = transformers.BlenderbotForConditionalGeneration(
            transformers.BlenderbotConfig(
                **config, vocab_size=size, encoder_no_repeat_ngram_size=0, tie_word_embeddings=settings.tie == "all"
            )
        )
        found = named_weights(model, torch.arange(width), [size, size])
        found |= named_norm("model.encoder.layer_norm", model.encoder.norm, torch.arange(width))
        found |= named_norm("model.decoder.layer_norm", model.decoder.norm, torch.arange(width))
    else:
        made = transformers.MarianMTModel(
            transformers.MarianConfig(
                **config, vocab_size=sizes[0], decoder_vocab_size=sizes[1],
                share_encoder_decoder_embeddings=settings.tie == "all", tie_word_embeddings=settings.tie != "none",
            )
        )  # fmt: skip
        found = named_weights(model, torch.arange(width).view(-1, 2).t().flatten(), sizes)
    if pre or settings.tie == "all":
        found["model.shared.weight"] = found["model.encoder.embed_tokens.weight"]
    made.load_state_dict(found)
    made.generation_config = transformers.GenerationConfig(
        pad_token_id=PAD, bos_token_id=SOS, eos_token_id=EOS, decoder_start_token_id=SOS, max_new_tokens=256
    )
    return made.eval()


def named_weights(model: Transformer, order: Tensor, sizes: Sequence[int]) -> dict[str, Tensor]:
    """The weights by the names that Marian and Blenderbot have in common, with the model's features in an order (D).

    The tables of source and target are filled up with zeros to the sizes.
    """
    grow = sizes[1] - model.projection.out_features
    found = {
        "lm_head.weight": nn.functional.pad(model.projection.weight[:, order], (0, 0, 0, grow)),
        "final_logits_bias": nn.functional.pad(bans(model.projection.out_features), (0, grow), value=-math.inf)[None],
    }
    for name, stack, size in (("encoder", model.encoder, sizes[0]), ("decoder", model.decoder, sizes[1])):
        table = stack.embedding.table.weight
        found[f"model.{name}.embed_tokens.weight"] = nn.functional.pad(table[:, order], (0, 0, 0, size - len(table)))
        found[f"model.{name}.embed_positions.weight"] = places(stack.embedding)[:, order]
        for i, layer in enumerate(stack.layers):
            prefix = f"model.{name}.layers.{i}"
            attention, norm = looking_at_itself(layer)
            found |= named_attention(f"{prefix}.self_attn", attention, order)
            found |= named_norm(f"{prefix}.self_attn_layer_norm", norm, order)
            if isinstance(layer, DecoderLayer):
                found |= named_attention(f"{prefix}.encoder_attn", layer.cross_attention, order)
                found |= named_norm(f"{prefix}.encoder_attn_layer_norm", layer.around_cross_attention.norm, order)
            first, second = linears(layer.feed_forward)
            found |= {f"{prefix}.fc1.weight": first.weight[:, order], f"{prefix}.fc1.bias": first.bias}
            found |= {f"{prefix}.fc2.weight": second.weight[order], f"{prefix}.fc2.bias": second.bias[order]}
            found |= named_norm(f"{prefix}.final_layer_norm", layer.around_feed_forward.norm, order)
    return found


def named_attention(prefix: str, attention: Attention, order: Tensor) -> dict[str, Tensor]:
    """The projections of an attention, by their names in transformers."""
    *inputs, (weight, bias) = projections(attention)
    found = {f"{prefix}.out_proj.weight": weight[order], f"{prefix}.out_proj.bias": bias[order]}
    for letter, (weight, bias) in zip("qkv", inputs, strict=True):
        found |= {f"{prefix}.{letter}_proj.weight": weight[:, order], f"{prefix}.{letter}_proj.bias": bias}
    return found


def named_norm(prefix: str, norm: Any, order: Tensor) -> dict[str, Tensor]:
    """Gain and bias of a norm, likewise."""
    return {f"{prefix}.weight": norm.weight[order], f"{prefix}.bias": norm.bias[order]}


def save_huggingface(
    model: Transformer, sides: tuple[tokenizers.Tokenizer, tokenizers.Tokenizer], folder: Path
) -> None:
    """Write what `from_pretrained` reads; the tokenizer of the target, if it is another one, in a folder of its own."""
    transformers_model(model).save_pretrained(folder)
    source, target = sides
    names = {f"{name.lower()[1:-1]}_token": name for name in ("[PAD]", "[UNK]", "[EOS]")} | {"bos_token": "[SOS]"}
    options: dict[str, Any] = {
        **names,
        "split_special_tokens": True,  # or a literal "[EOS]" would end a sentence
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    library().PreTrainedTokenizerFast(tokenizer_object=source, **options).save_pretrained(folder)
    if source.to_str() != target.to_str():
        library().PreTrainedTokenizerFast(tokenizer_object=target, **options).save_pretrained(folder / "target")


def open_huggingface(folder: Path) -> Opened:
    """What transformers makes of the folder by itself."""
    transformers = library()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    source = transformers.AutoTokenizer.from_pretrained(folder)
    other = (folder / "target").exists()
    target = transformers.AutoTokenizer.from_pretrained(folder / "target") if other else source

    def greedy(sentences: Batch, limit: int) -> list[list[int]]:
        found = []
        for start in range(0, len(sentences), BATCH):
            ids = source_batch(sentences[start : start + BATCH])
            rows = model.generate(
                input_ids=ids, attention_mask=(ids != PAD).long(), num_beams=1, do_sample=False, max_new_tokens=limit
            )
            found += [ended(row) for row in rows[:, 1:].tolist()]
        return found

    return Opened(
        greedy, lambda texts: source(list(texts))["input_ids"], lambda batch: [target.decode(ids) for ids in batch]
    )
