"""Searching in batches: the same translations in any order, in any precision."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import torch

from dragoman.__main__ import run as run_command
from dragoman.corpora import preparation
from dragoman.settings import Config
from dragoman.translation import batch_search
from dragoman.translation.translator import Translator


def test_batches_do_not_change_translations(tiny: Callable[..., Config]) -> None:
    """Guards the order of the translations: batches are made by length."""
    config = tiny()
    assert run_command("train", config) == 0
    run = Path(config.run.dir) / config.run.name
    texts = [source for source, _ in preparation.load(run / "data").test] * 10
    translator = Translator(run, "cpu", engine="torch").with_decoding(beam_size=8)
    batches = count()
    together = [translation.text for translation in translator.explain(texts, poll=lambda: next(batches))]
    assert next(batches) > 2, "there was only one batch"
    assert together == [translator.translate([text])[0] for text in texts[: len(texts) // 10]] * 10


@pytest.mark.parametrize(
    ("precision", "architecture"),
    [
        ("auto", "decoder-only"),
        ("bfloat16", "encoder-decoder"),
        ("bfloat16", "encoder-only"),
        ("int8", "encoder-decoder"),
    ],
)
def test_translation_in_any_precision(tiny: Callable[..., Config], precision: str, architecture: str) -> None:
    """Guards the setting from config to search, in validation, too, with beams and samples."""
    config = tiny(decoding__precision=precision, model__architecture=architecture, training__max_epochs=1)
    assert run_command("train", config) == 0
    translator = Translator(Path(config.run.dir) / config.run.name, "cpu")
    wanted = torch.bfloat16 if precision == "bfloat16" else torch.float32  # so small a model gains nothing
    assert batch_search.search_dtype(translator.trained) == wanted
    for changes in ({}, {"beam_size": 4}, {"sample": True})[: 1 if architecture == "encoder-only" else None]:
        translator.with_decoding(**changes).translate(["the cat sees the dog."] * 20)
