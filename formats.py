"""A trained encoder-decoder in the files of other engines: CTranslate2, Hugging Face's transformers, ONNX.

    refusal("huggingface", model.settings)                        # None, or why the engine cannot express such a model
    write("ctranslate2", model, source, target, data, folder)     # the engine's own library writes its files
    opened("ctranslate2", folder).greedy([[5, 7], [9]], 50)       # what the engine makes of them, greedily

An engine gets the function that the model is, to the last digits of float32, and with it two rules of our search: [PAD]
and [SOS] never come next. What else `decoding` can do, the engine does in its own way or not at all.

The libraries are those of `pip install -e ".[export]"`, imported where they are used. Weights are taken in float32;
what an engine has no part for is folded into what it has: heads that share keys and values get a copy each, biases that
are not there become zeros, and a table of positions holds whatever the model adds for them.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import tokenizers
import torch
from tokenizers import Regex, normalizers, processors
from torch import Tensor, nn
from torch.export import Dim

from config import EOS, PAD, SOS, ConfigError, DataConfig, DecodingConfig, ModelConfig
from dataset import source_batch
from decoding import Hypothesis, Watch
from model import (
    Attention,
    Decoder,
    DecoderLayer,
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    KeysValues,
    Starts,
    Transformer,
    padding_mask,
    sinusoid,
)
from tokenizer import Tokenizer

Format = Literal["ctranslate2", "huggingface", "onnx"]
Batch = Sequence[Sequence[int]]  # ids, without start and end
POSITIONS = 1024  # of a table that could go on for ever
BANNED = [PAD, SOS]  # as in `decoding`
BATCH = 32  # sentences that are translated at a time
SIDES = ("source", "target")
LIBRARIES = {
    "ctranslate2": ("ctranslate2",),
    "huggingface": ("transformers",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}
READERS = {  # what is needed to load an export
    "ctranslate2": ("ctranslate2", "tokenizers"),
    "huggingface": ("transformers", "torch"),
    "onnx": ("onnxruntime", "tokenizers"),
}


class Opened(NamedTuple):
    """An engine with the files of an export, as its users have it."""

    greedy: Callable[[Batch, int], list[list[int]]]  # sentences and the most tokens, [EOS] included -> translations
    encode: Callable[[Sequence[str]], list[list[int]]]  # texts to ids, [EOS] last
    decode: Callable[[Batch], list[str]]  # ids to texts


def require(kind: Format) -> None:
    """See that the libraries are there. Raises ConfigError with the command that installs them."""
    for name in LIBRARIES[kind]:
        try:
            import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"{kind} needs {' and '.join(LIBRARIES[kind])} ({error}): pip install -e '.[export]'."
            ) from None


def refusal(kind: Format, settings: ModelConfig) -> str | None:
    """Why an engine cannot express a model of such a shape; None if it can."""
    if settings.architecture != "encoder-decoder":
        return f"model.architecture is {settings.architecture}, and only the encoder-decoder can be exported"
    if kind != "huggingface":
        return None
    if settings.positions == "rotary":
        return "model.positions is rotary, and transformers has them in no class of this shape"
    if settings.norm_kind == "rms":
        return "model.norm_kind is rms, and transformers has it in no class of this shape"
    if settings.activation == "swiglu":
        return "model.activation is swiglu, and transformers has it in no class of this shape"
    if settings.norm == "post" and settings.positions != "sinusoidal":
        return (
            f"model.norm is post, where transformers (Marian) has sinusoidal positions, not {settings.positions} ones"
        )
    return None


def write(
    kind: Format, model: Transformer, source: Tokenizer, target: Tokenizer, data: DataConfig, folder: Path
) -> None:
    """Write the model and its tokenizers, in float32, into a folder that is there and empty."""
    sides = portable(source, data), portable(target, data)
    with torch.no_grad():
        match kind:
            case "ctranslate2":
                words = [words_of(side) for side in (source, target)]
                save_ctranslate2(ctranslate2_spec(model, *words), folder)
            case "huggingface":
                save_huggingface(model, sides, folder)
            case "onnx":
                save_onnx(model, folder)
    if kind != "huggingface":
        for name, side in zip(SIDES, sides, strict=True):
            side.save(str(folder / f"{name}.tokenizer.json"))


def quantize(kind: Format, model: Transformer, source: Tokenizer, target: Tokenizer, folder: Path) -> None:
    """Put int8 weights in place of the float32 ones that `write` has left in a folder, as the engine does it."""
    match kind:
        case "ctranslate2":
            (folder / "model.bin").unlink()
            with torch.no_grad():
                save_ctranslate2(ctranslate2_spec(model, words_of(source), words_of(target)), folder, "int8")
        case "onnx":
            quantize_onnx(folder)
        case "huggingface":
            raise ConfigError("transformers has no int8 files of its own: leave out --quantize.")


def opened(kind: Format, folder: Path) -> Opened:
    """The engine with the files of a folder."""
    match kind:
        case "ctranslate2":
            return Opened(open_ctranslate2(folder), *open_tokenizers(folder))
        case "huggingface":
            return open_huggingface(folder)
        case "onnx":
            return Opened(open_onnx(folder), *open_tokenizers(folder))


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


def values(x: Tensor) -> np.ndarray:
    """A tensor as CTranslate2 takes it."""
    return x.detach().float().cpu().numpy()


# ---------------------------------------------------------------------------------------------------------- CTranslate2


def ctranslate2_spec(model: Transformer, source: Sequence[str], target: Sequence[str]) -> Any:
    """The model as CTranslate2 describes one, with the words of both vocabularies in the order of their ids."""
    from ctranslate2 import specs  # pyright: ignore[reportMissingImports]

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
        # What its replace_unknowns copies is the word that the last layer looks at, by the mean of its heads.
        specs.TransformerDecoderSpec(
            settings.decoder_layers, settings.n_heads, alignment_heads=settings.n_heads, **shape
        ),
    )
    describe_stack(spec.encoder, model.encoder)
    describe_stack(spec.decoder, model.decoder)
    spec.decoder.projection.weight = values(model.projection.weight)
    spec.decoder.projection.bias = values(bans(len(target)))
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    names = {"unk_token": "[UNK]", "bos_token": "[SOS]", "eos_token": "[EOS]", "decoder_start_token": "[SOS]"}
    for name, token in names.items():
        setattr(spec.config, name, token)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = 1e-5
    return spec


def describe_stack(spec: Any, stack: Encoder | Decoder) -> None:
    """Fill CTranslate2's description of an encoder or a decoder."""
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = values(stack.embedding.table.weight)
    spec.scale_embeddings = True
    if stack.embedding.kind != "rotary":
        spec.position_encodings.encodings = values(places(stack.embedding))
    if not isinstance(stack.norm, nn.Identity):
        describe_norm(spec.layer_norm, stack.norm)
    for theirs, layer in zip(spec.layer, stack.layers, strict=True):
        if isinstance(layer, DecoderLayer):
            query, key, value, output = projections(layer.cross_attention)
            for linear, parts in zip(theirs.attention.linear, ([query], [key, value], [output]), strict=True):
                describe_linear(linear, parts)
            describe_norm(theirs.attention.layer_norm, layer.around_cross_attention.norm)
        attention, norm = looking_at_itself(layer)
        *inputs, output = projections(attention)
        describe_linear(theirs.self_attention.linear[0], inputs)
        describe_linear(theirs.self_attention.linear[1], [output])
        describe_norm(theirs.self_attention.layer_norm, norm)
        describe_feed_forward(theirs.ffn, layer.feed_forward)
        describe_norm(theirs.ffn.layer_norm, layer.around_feed_forward.norm)


def describe_feed_forward(spec: Any, block: FeedForward) -> None:
    """Likewise of a feed-forward block, whose first projection is two where one half opens a gate to the other."""
    first, second = linears(block)
    gates = hasattr(spec, "linear_0_noact")
    parts = zip(first.weight.chunk(1 + gates), first.bias.chunk(1 + gates), strict=True)
    for linear, part in zip([spec.linear_0, *([spec.linear_0_noact] if gates else [])], parts, strict=True):
        describe_linear(linear, [part])
    describe_linear(spec.linear_1, [(second.weight, second.bias)])


def describe_linear(spec: Any, parts: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Likewise of several projections that CTranslate2 has as one."""
    spec.weight = np.concatenate([values(weight) for weight, _ in parts])
    spec.bias = np.concatenate([values(bias) for _, bias in parts])


def describe_norm(spec: Any, norm: nn.Module) -> None:
    """Likewise of a norm; RMSNorm has no bias."""
    spec.gamma = values(norm.weight)  # type: ignore[arg-type]
    if isinstance(norm, nn.LayerNorm):
        spec.beta = values(norm.bias)


def save_ctranslate2(spec: Any, folder: Path, quantization: str | None = None) -> None:
    """Write what CTranslate2 reads. With int8, matrices and tables have a scale for each row."""
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def open_ctranslate2(folder: Path) -> Callable[[Batch, int], list[list[int]]]:
    """`Opened.greedy` by CTranslate2, in whatever type the weights in the folder have."""
    import ctranslate2  # pyright: ignore[reportMissingImports]

    translator = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=1)
    source, target = (tokenizers.Tokenizer.from_file(str(folder / f"{side}.tokenizer.json")) for side in SIDES)
    ids = target.get_vocab()

    def greedy(sentences: Batch, limit: int) -> list[list[int]]:
        texts = [[source.id_to_token(i) for i in sentence] for sentence in sentences]
        found = translator.translate_batch(
            texts, beam_size=1, min_decoding_length=0, max_decoding_length=limit, max_batch_size=BATCH
        )
        return [[ids[token] for token in result.hypotheses[0]] for result in found]

    return greedy


class CTranslate2:
    """CTranslate2 in place of `decoding.search`: an engine for `Translator.searching_with`.

    With a beam of one it finds what ours finds; a beam ends by another rule than ours, and finds nearly the same.
    """

    step_bytes = 0  # its threads are its own

    def __init__(
        self, folder: Path, source: Tokenizer, target: Tokenizer, device: torch.device, precision: str, threads: int
    ) -> None:
        """Load an export. Raises ConfigError for a device or a precision that CTranslate2 does not have here."""
        import ctranslate2  # pyright: ignore[reportMissingImports]

        try:
            self.translator: Any = ctranslate2.Translator(
                str(folder),
                device=device.type,
                device_index=device.index or 0,
                compute_type=precision,
                inter_threads=threads,
                intra_threads=1,
            )
        except (ValueError, RuntimeError) as error:
            raise ConfigError(f"CTranslate2 cannot translate on {device} in {precision}: {error}") from None
        self.source, self.target, self.ids = words_of(source), words_of(target), target.vocabulary

    def search(
        self,
        source: Tensor,
        limits: Sequence[int],
        settings: DecodingConfig,
        least: Sequence[int] | None = None,
        unknowns: Sequence[int] | None = None,
        prefixes: Sequence[Sequence[int]] | None = None,
        watch: Watch | None = None,
    ) -> list[list[Hypothesis]]:
        """As `decoding.search`, without `least` and `watch`; of unknowns, it only knows whether there may be any."""
        found: list[list[Hypothesis]] = [[] for _ in limits]
        for allowed in (True, False):
            chosen = [i for i in range(len(limits)) if allowed == (unknowns is None or unknowns[i] > 0)]
            results = self.translator.translate_batch(
                [[self.source[token] for token in ended(source[i].tolist())] for i in chosen],
                [[self.target[token] for token in prefixes[i]] for i in chosen] if prefixes else None,
                beam_size=settings.beam_size,
                num_hypotheses=settings.n_best,
                length_penalty=settings.length_penalty,
                no_repeat_ngram_size=settings.no_repeat_ngram or 0,
                disable_unk=not allowed,
                min_decoding_length=0,
                max_decoding_length=max((limits[i] for i in chosen), default=1),
                max_input_length=0,
                return_scores=True,
                return_end_token=True,
            )
            for i, result in zip(chosen, results, strict=True):
                for words, score in zip(result.hypotheses, result.scores, strict=True):
                    ids = [self.ids[word] for word in words][: limits[i]]
                    found[i].append(Hypothesis(ended(ids), [], score, EOS in ids))
        return found


def unlike_ctranslate2(settings: DecodingConfig) -> str | None:
    """Which setting of the search CTranslate2 has no part for, if there is one."""
    if settings.sample:
        return "decoding.sample: it draws by other random numbers"
    if settings.diversity_groups > 1:
        return "decoding.diversity_groups: it has one group"
    if settings.min_ratio:
        return "decoding.min_ratio: its least length is one for all sentences"
    if settings.length_formula == "paper" and settings.beam_size > 1:
        return "decoding.length_formula: it has the power alone"
    return None


# --------------------------------------------------------------------------------------------------------- Hugging Face


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


def ended(ids: list[int]) -> list[int]:
    """Ids up to the first [EOS], if there is one."""
    return ids[: ids.index(EOS)] if EOS in ids else ids


# ----------------------------------------------------------------------------------------------------------------- ONNX


class OnnxEncoder(nn.Module):
    """Source ids (B, S) to what the decoder's layers L look at: keys and values (L, 2, B, H, S, K)."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> Tensor:
        """As `Transformer.start`."""
        states = self.model.encoder(source, padding_mask(source))
        return torch.stack([torch.stack(each) for each in self.model.decoder.memory(states)])


class OnnxDecoder(nn.Module):
    """The last token (B, 1) to the logits of the next one (B, V), and keys and values of all so far.

    These are past (L, 2, B, H, T, K), to begin with of no position at all, and come back as (L, 2, B, H, T + 1, K).
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("banned", bans(model.projection.out_features))
        self.last = len(places(model.decoder.embedding)) - 1

    def forward(self, token: Tensor, source: Tensor, memory: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """As `Transformer.step`."""
        decoder, mask = self.model.decoder, padding_mask(source)
        start = Starts(torch.full_like(token, past.shape[4]), self.last)
        x, turns = decoder.embedding(token, start), decoder.embedding.turns(start, 1)
        seen = []
        for layer, looked_at, before in zip(decoder.layers, memory, past, strict=True):
            x, own = layer(x, None, KeysValues(*looked_at), mask, KeysValues(*before), turns)
            seen.append(torch.stack(own))
        # Of three dimensions, for of two it becomes a Gemm, and onnxruntime's quantizer turns that one's matrix around,
        # though it may be the table of the embedding, too.
        logits = self.model.projection(decoder.norm(x))[:, 0]
        return logits + self.banned, torch.stack(seen)


def save_onnx(model: Transformer, folder: Path) -> None:
    """Write encoder.onnx and decoder.onnx, the latter one step of a search that keeps what it has computed."""
    for embedding in (model.encoder.embedding, model.decoder.embedding):  # no table grows within a graph
        embedding.positions = sinusoid(POSITIONS, embedding.positions.shape[1])
    most = len(places(model.encoder.embedding))
    batch, length, past_length = Dim("batch"), Dim("source", max=most), Dim("past")
    encoder, decoder = OnnxEncoder(model).eval(), OnnxDecoder(model).eval()
    source, token = torch.full((2, 5), EOS), torch.full((2, 1), SOS)
    memory = encoder(source)
    past = torch.zeros_like(memory[..., :3, :])
    ids = {0: batch, 1: length}
    save_graph(encoder, {"source": source}, ["memory"], {"source": ids}, folder / "encoder.onnx")
    given = {"token": token, "source": source, "memory": memory, "past": past}
    sizes = {"token": {0: batch}, "source": ids, "memory": {2: batch, 4: length}, "past": {2: batch, 4: past_length}}
    save_graph(decoder, given, ["logits", "present"], sizes, folder / "decoder.onnx")


def save_graph(
    module: nn.Module, inputs: dict[str, Tensor], outputs: list[str], sizes: dict[str, Any], path: Path
) -> None:
    """Write one graph with inputs and outputs of these names; sizes says which dimensions of an input may vary."""
    # strict: len() of a tensor, as it stands in the model, stays a size that may vary.
    with quiet():
        program = torch.export.export(module, tuple(inputs.values()), dynamic_shapes=sizes, strict=True)
        torch.onnx.export(
            program, (), str(path), input_names=list(inputs), output_names=outputs, dynamo=True, external_data=False,
            verbose=False,
        )  # fmt: skip


@contextmanager
def quiet() -> Iterator[None]:
    """Within, libraries keep to themselves what they would tell those who develop them."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def quantize_onnx(folder: Path) -> None:
    """Let onnxruntime put int8 matrices in place of float32 ones; embeddings stay as they are."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # pyright: ignore[reportMissingImports]

    for name in ("encoder", "decoder"):
        exact = folder / f"{name}.float32.onnx"
        (folder / f"{name}.onnx").rename(exact)
        with quiet():
            quantize_dynamic(exact, folder / f"{name}.onnx", weight_type=QuantType.QInt8, per_channel=True)
        exact.unlink()


def open_onnx(folder: Path) -> Callable[[Batch, int], list[list[int]]]:
    """`Opened.greedy` by onnxruntime and a greedy search."""
    import onnxruntime  # pyright: ignore[reportMissingImports]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions: list[Any] = [
        onnxruntime.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    ]
    encoder, decoder = sessions

    def greedy(sentences: Batch, limit: int) -> list[list[int]]:
        found = []
        for start in range(0, len(sentences), BATCH):
            source = source_batch(sentences[start : start + BATCH]).numpy()
            [memory] = encoder.run(None, {"source": source})
            past, tokens = memory[..., :0, :], [np.full((len(source), 1), SOS)]
            while len(tokens) <= limit and not all((row == EOS).any() for row in np.hstack(tokens)):
                given = {"token": tokens[-1], "source": source, "memory": memory, "past": past}
                logits, past = decoder.run(None, given)
                tokens.append(logits.argmax(1)[:, None])
            found += [ended(row) for row in np.hstack(tokens)[:, 1:].tolist()]
        return found

    return greedy
