"""The export formats: which models each can express, and the functions that write, quantize and load it.

    unsupported("huggingface", model.settings)                    # None, or why the engine cannot express the model
    write("ctranslate2", model, source, target, data, folder)     # write the files with the engine's own library
    load("ctranslate2", folder).greedy([[5, 7], [9]], 50)         # translate with the engine

An engine gets the same function as our model, up to the last digits of float32, and two rules of our search: it never
generates [PAD] or [SOS]. Other options of `decoding` depend on the engine.

The engines' libraries come with `pip install -e ".[export]"` and are imported where they are used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from dragoman.architectures.ctranslate2_spec import ctranslate2_spec, save_ctranslate2
from dragoman.dataset import Tokenizer
from dragoman.export.loaded import LoadedExport, ctranslate2_greedy
from dragoman.export.to_argos import load_argos, pack_argos, save_argos
from dragoman.export.to_huggingface import load_huggingface, save_huggingface
from dragoman.export.to_onnx import load_onnx, quantize_onnx, save_onnx
from dragoman.export.tokenizer_files import portable_tokenizer, save_tokenizers, text_functions
from dragoman.model import Transformer
from dragoman.settings import DataConfig, ModelConfig

Format = Literal["ctranslate2", "huggingface", "onnx", "argos"]
WRITERS = {  # modules needed to write an export and verify it
    "ctranslate2": ("ctranslate2",),
    "huggingface": ("transformers",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "argos": ("ctranslate2", "sentencepiece", "google.protobuf"),
}
READERS = {  # packages needed to load an export
    "ctranslate2": ("ctranslate2", "tokenizers"),
    "huggingface": ("transformers", "torch"),
    "onnx": ("onnxruntime", "tokenizers"),
    "argos": ("argostranslate",),
}


def unsupported(
    kind: Format, settings: ModelConfig, whole_words: bool = False, several_directions: bool = False
) -> str | None:
    """Say why a format cannot express a model of this shape, tokens and directions; None if it can."""
    if settings.architecture != "encoder-decoder":
        return f"model.architecture is {settings.architecture}, but only encoder-decoder models can be exported"
    if several_directions and kind in ("huggingface", "argos"):
        return f"the model translates in several directions, but {kind} has no place for the tag that selects one"
    if kind == "argos" and whole_words:
        return (
            "tokenizer.kind is word, but Argos Translate reads only subwords and copies no unknown words: "
            "train with tokenizer.kind bpe or unigram"
        )
    if kind != "huggingface":
        return None
    for name, value in ("positions", "rotary"), ("norm_kind", "rms"), ("activation", "swiglu"):
        if getattr(settings, name) == value:
            return f"model.{name} is {value}, but transformers has no encoder-decoder class of this shape with it"
    if settings.norm == "post" and settings.positions != "sinusoidal":
        return (
            f"model.norm is post and model.positions is {settings.positions}, but transformers' post-norm class, "
            "Marian, has sinusoidal positions only"
        )
    return None


def write(
    kind: Format,
    model: Transformer,
    source: Tokenizer,
    target: Tokenizer,
    data: DataConfig,
    folder: Path,
    quantization: str | None = None,
) -> None:
    """Write the model, in float32 or int8, and its tokenizers into an empty folder.

    int8 weights are made with the engine's own method. transformers has none.
    """
    sides = portable_tokenizer(source, data), portable_tokenizer(target, data)
    with torch.no_grad():
        match kind:
            case "ctranslate2":
                spec = ctranslate2_spec(model, source.tokens_by_id, target.tokens_by_id)
                save_ctranslate2(spec, folder, quantization)
                save_tokenizers(sides, folder)
            case "huggingface":
                save_huggingface(model, sides, folder)
            case "onnx":
                save_onnx(model, folder)
                save_tokenizers(sides, folder)
                if quantization:
                    quantize_onnx(folder)
            case "argos":
                save_argos(model, source, target, data, folder, quantization)


def load(kind: Format, folder: Path) -> LoadedExport:
    """Load an export with its engine, before `finish`."""
    match kind:
        case "ctranslate2":
            return LoadedExport(ctranslate2_greedy(folder), *text_functions(folder))
        case "huggingface":
            return load_huggingface(folder)
        case "onnx":
            return LoadedExport(load_onnx(folder), *text_functions(folder))
        case "argos":
            return load_argos(folder)


def finish(kind: Format, folder: Path) -> None:
    """Do what comes after README.md was written: Argos Translate needs everything in one file."""
    if kind == "argos":
        pack_argos(folder)
