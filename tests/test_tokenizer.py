"""Tokenizers: encoding and decoding give the text back, and no text passes for a special token."""

import subprocess
import sys
from functools import cache
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conftest import ROOT, SHARED
from dragoman.corpora.subwords import train_tokenizer, train_tokenizers
from dragoman.dataset import EMPTY, JOINER, Tokenizer
from dragoman.errors import ConfigError
from dragoman.settings import EOS, PAD, SOS, SPECIAL_TOKENS, UNK, TokenizerConfig

WORD = TokenizerConfig(kind="word", vocab_size=100_000, min_frequency=1)
Kind = Literal["word", "bpe", "unigram"]
KINDS: tuple[Kind, ...] = ("word", "bpe", "unigram")
SENTENCES = ['l\'amico (ciao) dice: "no...?!"', "3,14 a : b", "un ben-detto", " due  vuoti ", "perché? è così!"]
# What has broken detokenisers: punctuation beside words, and spaces and line breaks of every sort, in any order.
ATOMS = [
    *("l", "amico", "È", "e\u0301", "日本", "42", "_", "ß"),
    *(" ", "  ", "'", ",", ".", "...", "?!", "(", ")", '"', "-", ":", "</s>", "[EOS]", "❤️", "👨‍👩‍👧", "\u200b"),
    *("\t", "\n", "\r\n", "\u00a0", "\u202f", "\u2028", "\x85", "\x00"),
]
HARD_TEXT = st.one_of(st.lists(st.sampled_from(ATOMS)).map("".join), st.text())


@cache
def flickr(name: str) -> list[str]:
    path = SHARED / "multi30k" / name
    if not path.exists():
        pytest.skip(f"the real text {path} is not here")
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@cache
def trained(kind: Kind) -> Tokenizer:
    return train_tokenizer(SENTENCES, TokenizerConfig(kind=kind, vocab_size=400, min_frequency=1))


# --- Round trips --------------------------------------------------------------------------------------------------


def test_words_of_real_text_round_trip() -> None:
    """Guards the spacing that detokenisers guess: '( Ciao )', "l ' amico", '3, 14'."""
    lines = flickr("train.de")
    tokenizer = train_tokenizer(lines, WORD)
    assert tokenizer.decode_batch(tokenizer.encode_batch(lines)) == lines
    fresh = [(line, ids) for line in flickr("val.de") if UNK not in (ids := tokenizer.encode(line))]
    assert len(fresh) > 500
    assert [tokenizer.decode(ids) for _, ids in fresh] == [line for line, _ in fresh]


@given(HARD_TEXT)
@example("")
@example("   ")
@example("a [PAD] [UNK]b")
@settings(max_examples=400, deadline=None)
def test_words_round_trip_whatever_separates_them(text: str) -> None:
    """Guards double spaces, spaces at the ends, and punctuation in any order."""
    text = text.replace(JOINER, "").replace(EMPTY, "")
    tokenizer = train_tokenizer([text], WORD)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & {PAD, UNK, SOS, EOS}


def test_joiners_in_a_text_become_look_alikes() -> None:
    """Guards against a text that steers the decoder and so loses its own spaces."""
    text = f"a{JOINER} b {EMPTY} c"
    tokenizer = train_tokenizer([text], WORD)
    assert tokenizer.decode(tokenizer.encode(text)) == "a■ b ⎵ c"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=HARD_TEXT)
@example(text="￭ ␣ Ġ ▁ ��")
@settings(max_examples=300, deadline=None)
def test_subwords_of_any_text_round_trip(kind: Kind, text: str) -> None:
    """Guards leading spaces, scripts that training never saw, and control characters."""
    ids = trained(kind).encode(text)
    assert trained(kind).decode(ids) == text
    assert not set(ids) & {PAD, UNK, SOS, EOS}


@pytest.mark.parametrize("kind", KINDS)
def test_batch_equals_one_by_one(kind: Kind) -> None:
    """Guards against a batch call that pads, sorts or adds tokens."""
    tokenizer = trained(kind)
    texts = [*SENTENCES, "", "Ciao mondo"]
    batch = tokenizer.encode_batch(texts)
    assert batch == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(batch) == [tokenizer.decode(ids) for ids in batch]


# --- Special tokens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first_and_are_not_decoded(kind: Kind) -> None:
    """Guards against ids that depend on the corpus, and output that shows "[EOS]" to a reader."""
    tokenizer = trained(kind)
    assert tokenizer.pieces([PAD, UNK, SOS, EOS]) == list(SPECIAL_TOKENS)
    ids = tokenizer.encode("ben-detto")
    assert tokenizer.decode([SOS, *ids, EOS, PAD, PAD]) == "ben-detto"
    assert tokenizer.decode([UNK]).strip() == "[UNK]"


@pytest.mark.parametrize("kind", KINDS)
def test_special_token_in_a_sentence_is_text(kind: Kind) -> None:
    """Guards against a literal "[EOS]" that ends a sentence, also after saving and loading."""
    tokenizer = train_tokenizer([*SENTENCES, "[EOS] [PAD] [SOS] </s>"], TokenizerConfig(kind=kind, min_frequency=1))
    for each in (tokenizer, Tokenizer.from_json(tokenizer.to_json())):
        ids = each.encode("[EOS] [PAD] [SOS] </s>")
        assert not set(ids) & {PAD, UNK, SOS, EOS}
        assert each.decode(ids) == "[EOS] [PAD] [SOS] </s>"


def test_unknown_word_is_shown() -> None:
    """Guards against the library's decoder, which drops [UNK] as a special token."""
    tokenizer = trained("word")
    assert tokenizer.decode(tokenizer.encode("l'Xyzzy (ciao), Xyzzy?")).count("[UNK]") >= 2
    assert "[UNK]" in tokenizer.decode(tokenizer.encode("Xyzzy"))


# --- Vocabulary ---------------------------------------------------------------------------------------------------


def test_words_are_ranked_by_frequency_then_text() -> None:
    """Guards against a vocabulary in the order of a hash table, and limits that count wrongly."""
    settings = TokenizerConfig(kind="word", vocab_size=8, min_frequency=2)
    tokenizer = train_tokenizer(["d b a c e", "d b a c", "d"], settings)
    assert tokenizer.pieces(range(len(tokenizer))) == [*SPECIAL_TOKENS, EMPTY, "d", "a", "b"]
    assert tokenizer.left_out == 2
    rare = train_tokenizer(["b b a"], TokenizerConfig(kind="word", min_frequency=2))
    assert rare.pieces(range(len(rare)))[5:] == ["b"]


def test_word_ids_are_the_same_in_every_process() -> None:
    """Guards against ids that depend on the seed of Python's hashes."""
    code = (
        "from dragoman.corpora.subwords import train_tokenizer; from dragoman.settings import TokenizerConfig;"
        f"print(train_tokenizer({SENTENCES!r}, TokenizerConfig(min_frequency=1)).fingerprint)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout


def test_shared_vocabulary_is_one_object() -> None:
    """Guards against tied embeddings whose two sides use different ids."""
    source, target = train_tokenizers(["uno"], ["due"], TokenizerConfig(min_frequency=1, shared=True))
    assert source is target
    assert UNK not in source.encode("uno due")
    source, target = train_tokenizers(["uno"], ["due"], TokenizerConfig(min_frequency=1))
    assert (source.encode("due"), target.encode("uno")) == ([UNK], [UNK])


def test_vocabulary_without_room_for_the_bytes_is_refused() -> None:
    """Guards against the trainer, which would silently make a larger one."""
    with pytest.raises(ConfigError, match=r"tokenizer.vocab_size is 100, .* at least 260"):
        train_tokenizer(["a"], TokenizerConfig(kind="bpe", vocab_size=100))


# --- Saving -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_saved_tokenizer_loads_unchanged(kind: Kind) -> None:
    """Guards against scores that lose a digit in the file: ids or fingerprint would differ after a resume."""
    tokenizer = trained(kind)
    loaded = Tokenizer.from_json(tokenizer.to_json())
    assert loaded.to_json() == tokenizer.to_json()
    assert loaded.fingerprint == tokenizer.fingerprint
    assert len(loaded) == len(tokenizer)
    texts = [*SENTENCES, "Ciao, [EOS] mondo"]
    assert loaded.encode_batch(texts) == tokenizer.encode_batch(texts)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"model": {"type": "WordLevel", "vocab": {}, "unk_token": "x"}}'])
def test_other_json_is_refused(text: str) -> None:
    """Guards against a damaged checkpoint that ends in a library error, or loads with other ids."""
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        Tokenizer.from_json(text)


# --- Tokens and labels --------------------------------------------------------------------------------------------


@given(HARD_TEXT)
@settings(max_examples=200, deadline=None)
def test_decode_with_unknown_words_gives_the_text(text: str) -> None:
    """Guards copying: an unknown word must fit into the place of [UNK], with its joiners."""
    text = text.replace(JOINER, "■").replace(EMPTY, "⎵")
    tokenizer = train_tokenizer(["l'amico (vero), no?"], WORD)
    ids, words = tokenizer.encode(text), tokenizer.tokens(text)
    assert len(words) == len(ids)
    unknown = {t: word for t, word in enumerate(words) if ids[t] == UNK}
    assert tokenizer.decode_with(ids, unknown) == text
    assert tokenizer.decode_with(ids, {}) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_match_ids(kind: Kind) -> None:
    """Guards against labels and copies shifted by one from their ids."""
    tokenizer, text = trained(kind), "l'amico (vero), no?"
    vocabulary = tokenizer.vocabulary
    ids = tokenizer.encode(text)
    assert [vocabulary.get(token, UNK) for token in tokenizer.tokens(text)] == ids
    assert tokenizer.pieces(ids) == [
        "[UNK]" if i == UNK else tokenizer.label(token) for i, token in zip(ids, tokenizer.tokens(text), strict=True)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_show_invisible_characters(kind: Kind) -> None:
    """Guards against plots with empty labels, and labels that break a table."""
    tokenizer = train_tokenizer(["a\tb  c, d\n日"], TokenizerConfig(kind=kind, min_frequency=1))
    labels = tokenizer.pieces(tokenizer.encode("a\tb  c, d\n日"))
    assert all(label and label.isprintable() and " " not in label and JOINER not in label for label in labels)
