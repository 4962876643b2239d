"""Any Unicode text passes through: nothing breaks, no line is lost, and known text comes back unchanged."""

from __future__ import annotations

import functools
import tempfile
import unicodedata
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conftest import read_splits, tiny_config, tiny_pairs, write_tsv
from dragoman.console import display_width, fit, shorten, visible
from dragoman.corpora.preparation import prepare_data
from dragoman.corpora.sources import find_source
from dragoman.corpora.subwords import train_tokenizer
from dragoman.dataset import EMPTY, JOINER, Tokenizer, encode_pairs
from dragoman.settings import EOS, PAD, SOS, UNK, TokenizerConfig
from dragoman.text.cleaning import clean
from dragoman.text.conventions import Conventions
from dragoman.text.sentence_splitting import LineStatistics, split_sentences, split_text
from dragoman.translation.translator import Translator
from echo import echo
from faults import untrained

pytestmark = pytest.mark.faults
Kind = Literal["word", "bpe", "unigram"]
KINDS: tuple[Kind, ...] = ("word", "bpe", "unigram")

LETTERS = st.characters(exclude_categories=["Cs"])  # everything that UTF-8 can encode
CONTROLS = st.sampled_from([chr(code) for code in (*range(1, 32), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0xFEFF)])
MARKS = st.sampled_from("\u0300\u0301\u0327\u0331\u0345\u05b8\u064b\u093f\u0e31\u20dd\u3099\ufe0f")
STACKED = st.builds(lambda letter, marks: letter + "".join(marks), LETTERS, st.lists(MARKS, min_size=1, max_size=9))
RUNS = st.builds(lambda letter, times: letter * times, LETTERS, st.integers(2, 200))
EMOJI = st.sampled_from(
    ["👨‍👩‍👧‍👦", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🇮🇹🇯🇵", "👍🏽", "❤️‍🔥", "1️⃣", "🧑🏿‍🚀", "\u200d", "\ufe0f", "🏽", "\U000e007f"]
)
WORDS = st.sampled_from(
    ["the", "cat", "[EOS]", "[PAD]", "</s>", "<pad>", "null", "https://x.org/a", "a@b.co", "Dr.", "3.14"]
)
GLUE = st.sampled_from(
    [" ", "  ", ".", ". ", "! ", ", ", '"', "'", "-", "\u00a0", "\u3000", "\u3002", "(", ")", "\t", "\r"]
)
TEXT = st.one_of(
    st.lists(st.one_of(LETTERS, CONTROLS, STACKED, EMOJI, WORDS, GLUE), max_size=40).map("".join),
    st.lists(st.one_of(RUNS, WORDS, GLUE), max_size=6).map("".join),
    st.text(LETTERS, max_size=60),
)
LINE = TEXT.map(lambda text: text.replace("\n", " ").replace("\0", " "))
some = functools.partial(
    settings, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@functools.cache
def trained(kind: Kind) -> Tokenizer:
    return train_tokenizer([a for a, _ in tiny_pairs(50)], TokenizerConfig(kind=kind, vocab_size=300, min_frequency=1))


@functools.cache
def translator(kind: str) -> Translator:
    """A real, untrained model with its search."""
    folder = Path(tempfile.mkdtemp())
    settings = {"decoding__max_length": 5, "tokenizer__kind": kind, "tokenizer__vocab_size": 300}
    return Translator(untrained.run(folder, **settings))


@given(TEXT, st.sampled_from(["bpe", "unigram"]))
@some(max_examples=300)
def test_33_subwords_of_any_text_decode_to_it(text: str, kind: Kind) -> None:
    """Guards against characters without a byte, and ids that belong to no text."""
    ids = trained(kind).encode(text)
    assert trained(kind).decode(ids) == text
    assert not {PAD, UNK, SOS, EOS} & set(ids)


@given(TEXT)
@some(max_examples=300)
def test_33_known_words_decode_and_unknown_words_keep_their_place(text: str) -> None:
    """Guards the joiners: known words decode to the text, and so do unknown ones once their gaps are filled."""
    text = text.replace(JOINER, "").replace(EMPTY, "")
    own = train_tokenizer([text], TokenizerConfig(min_frequency=1))
    assert own.decode(own.encode(text)) == text
    other = trained("word")
    ids, tokens = other.encode(text), other.tokens(text)
    assert len(ids) == len(tokens)
    assert not {PAD, SOS, EOS} & set(ids)
    assert other.decode_with(ids, {t: token for t, token in enumerate(tokens) if ids[t] == UNK}) == text
    assert all(other.label(token).isprintable() for token in tokens)


@given(st.lists(st.tuples(LINE, LINE), max_size=6), st.sampled_from(["\n", "\r\n"]), st.booleans())
@example([("", ""), ("", "\ufeff")], "\n", False)
@some(max_examples=150)
def test_22_one_pair_per_line(pairs: list[tuple[str, str]], end: str, last: bool) -> None:
    """Guards against a shift: line n of one file is read with line n of the other, whatever they contain.

    A byte order mark may begin any line, because files may have been joined.
    """
    pairs = [(a.rstrip("\r"), b.rstrip("\r")) for a, b in [*pairs, ("the end", "la fine")]]
    with tempfile.TemporaryDirectory() as folder:
        for side, language in enumerate(("en", "it")):
            lines = end.join(pair[side] for pair in pairs) + end * last
            (Path(folder) / f"any.{language}").write_bytes(lines.encode())
        data = tiny_config(Path(folder), data__train=Path(folder) / "any").data
        read = list(read_splits(find_source("train", data, data.train), data)["train"])
    assert read == [(a.removeprefix("\ufeff"), b.removeprefix("\ufeff")) for a, b in pairs]


@given(st.lists(st.tuples(LINE, LINE), min_size=1, max_size=5), st.sampled_from(KINDS))
@some(max_examples=40)
def test_23_prepared_pairs_are_the_clean_pairs(pairs: list[tuple[str, str]], kind: str) -> None:
    """Guards the path from a file to ids and back: no pair lost, added or moved."""
    pairs = [(a.replace("\t", " "), b.replace("\t", " ")) for a, b in pairs]
    rows = [*pairs, ("the cat", "il gatto")]
    kept = [
        (clean(a.removeprefix("\ufeff") if i == 0 else a), clean(b.removesuffix("\r"))) for i, (a, b) in enumerate(rows)
    ]
    kept = [pair for pair in kept if all(pair)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {f"data__{split}": write_tsv(folder / f"{split}.tsv", rows) for split in ("train", "validation")}
        words = {"tokenizer__kind": kind, "tokenizer__vocab_size": 5000, "data__max_length": 5000}
        data = prepare_data(
            tiny_config(folder, **paths, **words, data__test_fraction=0), folder / "data", lambda _: None
        )
    assert data.validation == kept
    assert data.report.counts["train"].read == len(rows)
    assert data.report.counts["train"].empty == len(rows) - len(kept)
    encoded = encode_pairs(kept, data.source, data.target)
    assert encoded.source.ids.tolist() == data.train.source.ids.tolist()
    for side, tokenizer, texts in (
        (data.train.source, data.source, [a for a, _ in kept]),
        (data.train.target, data.target, [b for _, b in kept]),
    ):
        found = [tokenizer.decode(side.ids[a:b].tolist()) for a, b in zip(side.offsets, side.offsets[1:], strict=False)]
        assert found == [text.replace(JOINER, "■").replace(EMPTY, "⎵") if kind == "word" else text for text in texts]


@given(TEXT, st.sampled_from(["en", "it", "de", "zh", "ja", "ar", "hi", "th", "xx", ""]), st.integers(1, 9))
@some(max_examples=400)
def test_34_no_character_is_lost_between_sentences(text: str, language: str, longest: int) -> None:
    """Guards against splits that lose, repeat or move characters, in every script, and pieces that are too long."""
    text = clean(text)

    def letters(texts: list[str] | tuple[str, ...]) -> list[int]:
        return [len(each.replace(" ", "")) for each in texts]

    found = split_text(text, language, LineStatistics(longest, longest, 2), letters)  # type: ignore[arg-type]
    bare = text.replace(" ", "")
    assert "".join(found).replace(" ", "") == bare
    assert "".join(split_sentences(text, language)).replace(" ", "") == bare
    assert all(0 < length <= longest for length in letters(found))


@given(st.lists(TEXT, max_size=4), st.sampled_from(["word", "bpe"]))
@some(max_examples=60)
def test_33_one_line_out_per_line_in(texts: list[str], kind: str) -> None:
    """Guards the number of lines with a real model and its search, and blank lines, which stay blank."""
    lines = translator(kind).translate(texts)
    assert len(lines) == len(texts)
    assert [line.count("\n") for line in lines] == [text.count("\n") for text in texts]
    for line, text in zip("\n".join(lines).split("\n"), "\n".join(texts).split("\n"), strict=True):
        assert clean(line) == line
        assert clean(text) or not line
    assert all(len(warning.splitlines()) == 1 or visible(warning) for _, warning in translator(kind).warnings)


@given(TEXT)
@some(max_examples=150)
def test_34_echo_repeats_its_input(text: str) -> None:
    """Guards copying and splitting: a model that repeats its source must repeat all of it, known or not."""
    text = clean(text.replace(JOINER, "").replace(EMPTY, ""))
    said = echo(kind="bpe").translate([text])[0]
    assert said.replace(" ", "") == text.replace(" ", "")


WRITTEN = Conventions.of(["My name is Anna, and I live in Rome.", "Where is the number of my house?"] * 9)


@given(TEXT)
@some(max_examples=150)
def test_34_tolerant_echo_repeats_letters_and_digits(text: str) -> None:
    """Guards reading what people type, and writing it back: case and marks may differ, nothing else."""
    text = clean(text.replace(JOINER, "").replace(EMPTY, ""))
    [said] = echo(kind="bpe", conventions=WRITTEN).translate([text])
    assert [c for c in said.casefold() if c.isalnum()] == [c for c in text.casefold() if c.isalnum()]


@given(TEXT, st.integers(1, 30))
@some(max_examples=300)
def test_38_columns_line_up_without_raw_characters(text: str, width: int) -> None:
    """Guards tables: cut or padded text has the requested width, and no character in it acts on the screen."""
    shown = visible(text)
    assert display_width(shorten(shown, width)) <= width
    assert display_width(fit(shown, width)) == width
    assert not any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in shown)
    assert len(shown.splitlines()) <= 1
