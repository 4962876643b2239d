"""A trained encoder-decoder in the files of CTranslate2, and CTranslate2 as an engine for our `Translator`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from torch import Tensor, nn

from dragoman.dataset import Tokenizer
from dragoman.errors import ConfigError
from dragoman.export.weights import (
    BATCH,
    SIDES,
    Batch,
    bans,
    ended,
    linears,
    looking_at_itself,
    places,
    projections,
    words_of,
)
from dragoman.model import Decoder, DecoderLayer, Encoder, FeedForward, Transformer
from dragoman.settings import EOS, DecodingConfig
from dragoman.translation.search import Hypothesis, Watch


def values(x: Tensor) -> np.ndarray:
    """A tensor as CTranslate2 takes it."""
    return x.detach().float().cpu().numpy()


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
    """CTranslate2 in place of `decoding.search`: an engine for `Translator.with_engine`.

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
