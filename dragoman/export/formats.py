"""A trained encoder-decoder in the files of other engines: CTranslate2, Hugging Face's transformers, ONNX, Argos.

    refusal("huggingface", model.settings)                        # None, or why the engine cannot express such a model
    write("ctranslate2", model, source, target, data, folder)     # the engine's own library writes its files
    opened("ctranslate2", folder).greedy([[5, 7], [9]], 50)       # what the engine makes of them, greedily

An engine gets the function that the model is, to the last digits of float32, and with it two rules of our search: [PAD]
and [SOS] never come next. What else `decoding` can do, the engine does in its own way or not at all.

This is the door; each engine has a module of its own, `to_ctranslate2`, `to_huggingface`, `to_onnx` and `to_argos`, and
`foreign` has what they share. The libraries are those of `pip install -e ".[export]"`, imported where they are used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Literal

import torch

from dragoman.dataset import Tokenizer
from dragoman.errors import ConfigError
from dragoman.export.to_argos import open_argos, pack_argos, quantize_argos, save_argos
from dragoman.export.to_ctranslate2 import ctranslate2_spec, open_ctranslate2, save_ctranslate2
from dragoman.export.to_huggingface import open_huggingface, save_huggingface
from dragoman.export.to_onnx import open_onnx, quantize_onnx, save_onnx
from dragoman.export.weights import SIDES, Opened, open_tokenizers, portable, words_of
from dragoman.model import Transformer
from dragoman.settings import DataConfig, ModelConfig

Format = Literal["ctranslate2", "huggingface", "onnx", "argos"]
LIBRARIES = {
    "ctranslate2": ("ctranslate2",),
    "huggingface": ("transformers",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "argos": ("ctranslate2", "sentencepiece", "google.protobuf"),
}
READERS = {  # what is needed to load an export
    "ctranslate2": ("ctranslate2", "tokenizers"),
    "huggingface": ("transformers", "torch"),
    "onnx": ("onnxruntime", "tokenizers"),
    "argos": ("argostranslate",),
}


def require(kind: Format) -> None:
    """See that the libraries are there. Raises ConfigError with the command that installs them."""
    for name in LIBRARIES[kind]:
        try:
            import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"{kind} needs {' and '.join(LIBRARIES[kind])} ({error}): pip install -e '.[export]'."
            ) from None


def refusal(kind: Format, settings: ModelConfig, of_words: bool = False) -> str | None:
    """Why an engine cannot express a model of such a shape, or with tokens that are whole words; None if it can."""
    if settings.architecture != "encoder-decoder":
        return f"model.architecture is {settings.architecture}, and only the encoder-decoder can be exported"
    if kind == "argos" and of_words:
        return (
            "tokenizer.kind is word, and Argos Translate reads pieces of words alone, and copies no unknown word: "
            "train with tokenizer.kind bpe or unigram"
        )
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
            case "argos":
                save_argos(model, source, target, data, folder)
    if kind in ("ctranslate2", "onnx"):
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
        case "argos":
            with torch.no_grad():
                quantize_argos(model, source, target, folder)
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
        case "argos":
            return open_argos(folder)


def finish(kind: Format, folder: Path) -> None:
    """Do what is left once a folder has its README.md: Argos Translate wants one file of it all."""
    if kind == "argos":
        pack_argos(folder)
