"""Batches on several threads: the same translations in any order, and an end when the caller stops waiting."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import HANG
from dragoman.__main__ import run as run_command
from dragoman.corpora import preparation
from dragoman.model import Transformer
from dragoman.settings import Config
from dragoman.translation import batch_search
from dragoman.translation.translator import Translator


def test_threads_and_batches_do_not_change_translations(tiny: Callable[..., Config]) -> None:
    """Guards batches that threads finish in any order, and the number of threads afterwards."""
    config = tiny()
    assert run_command("train", config) == 0
    run = Path(config.run.dir) / config.run.name
    texts = [source for source, _ in preparation.load(run / "data").test] * 4
    translator, threads, alive = Translator(run, "cpu"), torch.get_num_threads(), threading.active_count()
    try:
        torch.set_num_threads(3)
        progress: list[int] = []
        found = [translation.text for translation in translator.explain(texts, advance=progress.append)]
        assert torch.get_num_threads() == 3
        assert sum(progress) == len(texts)
        assert len(progress) > 3, "there was only one batch"

        def stop(done: int) -> None:
            if done:
                raise InterruptedError

        with pytest.raises(InterruptedError) as raised:  # it keeps every frame alive
            translator.explain(texts, advance=stop)
        assert raised
        assert torch.get_num_threads() == 3
        assert threading.active_count() == alive
        torch.set_num_threads(1)
        assert found == translator.translate(texts) == [translator.translate([text])[0] for text in texts]
    finally:
        torch.set_num_threads(threads)


def test_abandoned_search_ends_at_its_next_step(tiny: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards Ctrl-C: otherwise the threads would finish their batches, which can take minutes."""
    config = tiny()
    assert run_command("train", config) == 0
    translator, threads = Translator(Path(config.run.dir) / config.run.name, "cpu"), torch.get_num_threads()
    steps, step, given_up = [], Transformer.step, threading.Event()

    def counted(self: Transformer, tokens: torch.Tensor, state: Any) -> Any:
        if len(translations) == 1:
            given_up.wait(HANG)
            steps.append(len(tokens))
        logits, state = step(self, tokens, state)
        return logits.index_fill(1, torch.tensor([3]), -math.inf), state  # no sentence ever ends

    translations: list[int] = []

    def stop(done: int) -> None:
        if done:
            translations.append(done)
            raise KeyboardInterrupt

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *arguments: Any, **options: Any) -> None:
            given_up.set()
            super().shutdown(*arguments, **options)

    monkeypatch.setattr(batch_search, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(Transformer, "step", counted)
    texts = ["the cat sees the dog."] * 30 + ["the cat sees the dog and the cat and the dog."] * 30
    try:
        torch.set_num_threads(3)
        with pytest.raises(KeyboardInterrupt):
            translator.explain(texts, advance=stop)
    finally:
        torch.set_num_threads(threads)
    assert len(steps) <= 3, "each thread may finish its current step"


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
