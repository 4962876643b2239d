"""Export a trained translator for CTranslate2, Hugging Face's transformers, ONNX or Argos Translate.

    dragoman export --run runs/phrasebook --to ctranslate2
    dragoman export --run runs/phrasebook --to onnx --quantize int8 --output phrasebook-onnx

The export is a folder with the model in the engine's own files, the tokenizers, and a README.md that describes the
model and shows how to load it without this program. For Argos Translate, which LibreTranslate uses too, all of this is
one file to install.

The folder appears by one rename, and only after the engine has translated sentences of the run's validation set
greedily into exactly the tokens that we produce in float32. With int8, it also reports what the smaller weights cost.

Messages go to standard error, the path of the folder to standard output. Exit codes are those of `errors`: 2 for a
model that the engine cannot express, 3 without sentences to verify with, 4 if the engine translates differently.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from dragoman import checkpoint, console, resources, serialization
from dragoman.command_line import EXPORT_MARK
from dragoman.errors import ConfigError
from dragoman.evaluation.metrics import tokenization
from dragoman.export import card, formats, verification
from dragoman.export.formats import Format
from dragoman.model import Transformer
from dragoman.storage import atomic_folder
from dragoman.translation.translator import Translator


def main(options: argparse.Namespace) -> None:
    """Make the export that the command line asks for, and print its path."""
    resources.require("export", formats.WRITERS[options.to], options.to)
    translator = Translator(options.run, "cpu")
    export(translator, options.run, options.to, options.output, bool(options.quantize))
    for line in card.limitations(options.to, translator):
        console.warn(f"limitation: {line}")
    print(options.output)


def export(translator: Translator, run: Path, kind: Format, output: Path, quantize: bool = False) -> None:
    """Export a run's translator, verify it, and write its model card.

    Raises:
        ConfigError: the engine cannot express the model
        DataError: the run has no sentences to verify with
        ExportError: the engine translates differently
        StorageError: the folder cannot be written
    """
    config, model, source, target = translator.config, translator.model, translator.source, translator.target
    reason = formats.unsupported(kind, config.model, source.is_of_words, bool(config.data.several))
    if reason:
        raise ConfigError(f"{translator.path}: {reason}.")
    assert isinstance(model, Transformer)
    sample, cost = verification.translate_sample(translator, run), None
    count = len(sample.flat)
    with atomic_folder(output) as folder:
        formats.write(kind, model, source, target, config.data, folder)
        verification.verify(formats.load(kind, folder), sample, translator)
        console.warn(f"{count} sentences: {kind} translates them like Dragoman in float32, token by token")
        if quantize:
            tokenize = tokenization(config.data, config.data.target_lang)
            shutil.rmtree(folder)
            folder.mkdir()
            formats.write(kind, model, source, target, config.data, folder, "int8")
            cost = verification.measure_quantization(formats.load(kind, folder), sample, tokenize)
            console.warn(f"{count} sentences, {cost}")
        (folder / "README.md").write_text(card.card(translator, run, kind, sample, cost), encoding="utf-8")
        mark = {
            "format": kind,
            "weights": "int8" if quantize else "float32",
            "checkpoint": {"step": translator.step, "manifest": checkpoint_hash(translator)},
            "checked": count,
        }
        (folder / EXPORT_MARK).write_bytes(serialization.json_bytes(mark))
        formats.finish(kind, folder)


def checkpoint_hash(translator: Translator) -> str:
    """Identify the translator's checkpoint by the SHA-256 of its manifest."""
    return serialization.sha256_of(checkpoint.read_plain(translator.path / checkpoint.MANIFEST))
