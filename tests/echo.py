"""A translator that repeats its source, and reading from a terminal."""

from __future__ import annotations

import copy
import os
import select
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from conftest import HANG
from dragoman.command_line import override
from dragoman.corpora.subwords import train_tokenizers
from dragoman.model import Transformer
from dragoman.settings import Config, ModelConfig, TokenizerConfig
from dragoman.text.conventions import Conventions
from dragoman.translation.translator import Translator


class Echo(Transformer):
    """A model that repeats the source, position by position, and attends to the position it repeats."""

    def __init__(self, size: int) -> None:
        super().__init__(ModelConfig(d_model=8, n_heads=2, encoder_layers=1, decoder_layers=1, d_ff=8), size, size)
        self.size = size

    def start(self, source: torch.Tensor) -> EchoState:  # type: ignore[override]
        return EchoState(source, 0)

    def step(self, tokens: torch.Tensor, state: EchoState) -> tuple[torch.Tensor, EchoState]:  # type: ignore[override]
        following = state.source[:, min(state.position, state.source.shape[1] - 1)]
        logits = torch.nn.functional.one_hot(following, self.size) * 20.0
        return logits.repeat_interleave(len(tokens) // len(following), 0), EchoState(state.source, state.position + 1)

    def cross_attention(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.eye(target.shape[1], source.shape[1]).expand(1, len(source), 1, -1, -1)


class EchoState:
    def __init__(self, source: torch.Tensor, position: int) -> None:
        self.source, self.position = source, position

    def select(self, hypotheses: torch.Tensor | None, sentences: torch.Tensor | None) -> EchoState:
        return EchoState(self.source if sentences is None else self.source[sentences], self.position)


def echo(*settings: str, kind: str = "word", conventions: Conventions | None = None) -> Translator:
    """A translator that repeats its source and knows only the words of one sentence; `conventions` are of both."""
    known = ["My name is, and I live in: number! (see)"]
    vocabulary = TokenizerConfig(kind=kind, min_frequency=1, vocab_size=300, shared=True)  # type: ignore[arg-type]
    source, target = train_tokenizers(known, known, vocabulary)
    config = override(Config(), [f"--decoding.{word}" for word in settings])
    report = SimpleNamespace(sides=2 * [SimpleNamespace(percentile_99=40, longest=60, mean=8.0)])
    data: Any = SimpleNamespace(
        source=source, target=target, report=report, conventions=conventions and 2 * (conventions,)
    )
    model: Any = Echo(len(source))
    return Translator.of_model(model, data, config, torch.float32)


def complaints(translator: Translator) -> list[str]:
    """The warnings of an echo, except the two doubts that it deserves: it repeats its source, and knows few words."""
    deserved = ("its translation is the same text.", "the training text does not have ")
    return [warning for _, warning in translator.warnings if not any(doubt in warning for doubt in deserved)]


def reconfigured(translator: Translator, *arguments: str) -> Translator:
    """The translator with other settings, given as on the command line."""
    other = copy.copy(translator)
    other.trained = replace(translator.trained, config=override(translator.config, arguments))
    return other


def until(terminal: int, end: bytes) -> bytes:
    """Read from a terminal until `end` appears. Fails if nothing arrives."""
    shown = b""
    while end not in shown:
        assert select.select([terminal], [], [], HANG)[0], shown
        shown += os.read(terminal, 4096)
    return shown
