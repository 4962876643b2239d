"""Text that people type, or paste, or send: every step from a text to its translation takes any of it."""

from __future__ import annotations

import functools
import random
import tempfile
from pathlib import Path

import pytest

from conftest import tiny_pairs
from dragoman.console import display_width, fit, visible
from dragoman.text.cleaning import clean, require_text
from dragoman.text.conventions import Conventions
from dragoman.text.sentence_splitting import LineStatistics, split_text
from dragoman.translation.translator import Translator
from echo import echo
from faults import untrained
from fuzz.harness import survive
from fuzz.mutations import CHARACTERS, WORDS, any_text

pytestmark = pytest.mark.slow
LONGEST = 100_000  # characters
LANGUAGES = ("en", "it", "de", "zh", "ja", "th", "ar", "hi", "xx", "")
WRITTEN = Conventions.of(["My name is Anna, and I live in Rome.", "Where is the number of my house?"] * 9)


@functools.cache
def echoes(kind: str, unknown: str) -> Translator:
    """One that repeats its source, through reading as typed, splitting, copying, and writing."""
    return echo(f"unknown={unknown}", kind=kind, conventions=WRITTEN)


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
def test_any_text(kind: str) -> None:
    """Guards the way of a text: clean, split, encode, search, decode, join, restore; and what is shown of it."""

    def attempt(draw: random.Random) -> None:
        translator = echoes(kind, draw.choice(["copy", "keep"]))
        texts = [any_text(draw, draw.choice([20, 100, 400])) for _ in range(draw.choice([0, 1, 1, 3]))]
        lines = translator.translate(texts)
        assert [line.count("\n") for line in lines] == [text.count("\n") for text in texts]
        "".join(lines).encode()
        for line in [*lines, *(warning for _, warning in translator.warnings)]:
            assert display_width(fit(visible(line), 20)) == 20

    worked, refused = survive(f"text {kind}", 2000, attempt)
    assert worked > refused


def test_any_text_with_a_glossary() -> None:
    """Guards terms and placeholders: any text may be a term, in any text."""

    def attempt(draw: random.Random) -> None:
        terms = {any_text(draw, draw.choice([3, 10, 30])): any_text(draw, 10) for _ in range(draw.choice([1, 2, 8]))}
        text = " ".join([any_text(draw, 40), *terms, any_text(draw, 40)])
        echoes("bpe", "copy").with_glossary(terms).translate([text])

    worked, refused = survive("glossary", 1500, attempt)
    assert worked > 100
    assert refused > 100


def test_very_long_text() -> None:
    """Guards against quadratic time: 100,000 characters without a space, a letter, or the end of a sentence."""
    statistics = LineStatistics(20, 40, 2)

    def attempt(draw: random.Random) -> None:
        part = draw.choice([draw.choice(CHARACTERS), draw.choice(WORDS), any_text(draw, 30) or "a", "a b. C"])
        text = clean((part * (LONGEST // len(part)))[: draw.choice([LONGEST, LONGEST // 10])])
        require_text(text)
        found = split_text(text, draw.choice(LANGUAGES), statistics, lambda texts: [*map(len, texts)])
        assert "".join(found).replace(" ", "") == text.replace(" ", "")

    assert survive("long text", 40, attempt).worked > 20


def test_very_long_text_is_translated() -> None:
    """Guards the whole way for long text, with a real model."""
    folder = Path(tempfile.mkdtemp())
    words = {"decoding__max_length": 3, "tokenizer__kind": "bpe", "tokenizer__vocab_size": 300}
    translator = Translator(untrained.run(folder, **words))

    def attempt(draw: random.Random) -> None:
        part = draw.choice(
            [draw.choice(CHARACTERS), draw.choice(WORDS), any_text(draw, 30) or "a", tiny_pairs(1)[0][0]]
        )
        translator.translate([part * (LONGEST // 10 // len(part))])

    survive("long text translated", 4, attempt)
