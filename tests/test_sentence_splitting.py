"""Splitting text: nothing is lost, no chunk is too long, and chunks are like the lines of training."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.text.cleaning import clean
from dragoman.text.full_stops import FullStops
from dragoman.text.sentence_splitting import (
    LineStatistics,
    split_long_sentence,
    split_sentences,
    split_text,
)


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def letters(texts: Sequence[str]) -> list[int]:
    return [len(text.replace(" ", "")) for text in texts]


TEXT = (
    "Dr. Rossi came at 3.30 p.m. on Monday. Where is he? He left, i.e. he is gone! See https://x.org/a.b?c=1 for more."
)


def test_sentences_end_at_full_stops_only() -> None:
    """Guards against full stops that end nothing: titles, times, abbreviations, web addresses."""
    assert split_sentences(TEXT, "en") == [
        "Dr. Rossi came at 3.30 p.m. on Monday.",
        "Where is he?",
        "He left, i.e. he is gone!",
        "See https://x.org/a.b?c=1 for more.",
    ]
    assert split_sentences("Er kam am 3. Oktober. Ende!", "de") == ["Er kam am 3. Oktober.", "Ende!"]
    assert split_sentences("これは本です。私は学生です。", "ja") == ["これは本です。", "私は学生です。"]
    assert split_sentences("One. Two.", "tlh") == ["One.", "Two."]


def sentences() -> list[list[str]]:
    """Lines of sentences.tsv: a language, a sentence, and for some a second sentence."""
    with Path(__file__).with_name("sentences.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [[cell for cell in row if cell] for row in rows][1:]


def test_single_sentences_stay_whole() -> None:
    """Guards abbreviations, initials, ordinals, times and file names of 13 languages, where no corpus knows them."""
    single = [(language, text) for language, *texts in sentences() if len(texts) == 1 for text in texts]
    cut = [parts for language, text in single if len(parts := split_sentences(text, language)) > 1]
    assert len(single) > 170
    assert len(cut) < 0.05 * len(single), cut


def test_two_sentences_are_split() -> None:
    """Guards against full stops that end a sentence, but look like those of an abbreviation or an ordinal."""
    several = [(language, texts) for language, *texts in sentences() if len(texts) == 2]
    found = [split_sentences(" ".join(texts), language) for language, texts in several]
    assert len(several) > 155
    assert found == [texts for _, texts in several]


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("hello. how are you", "en", 2),  # nothing shows where a sentence begins
        ("Es gilt lt. vertrag.", "de", 1),
        ("„Kommst du?“ fragte er.", "de", 1),
        ("— Где ты? — спросил он.", "ru", 1),
        ("I came on the 4. It rained.", "en", 2),
        ("Er ging nach Haus... und schlief.", "de", 1),
        ("MR. SMITH IS HERE. WHERE IS HE?", "en", 2),
        ("IM 4. STOCK WOHNT HERR K. MEIER.", "de", 1),
        ("Vivía en el 44 a. C. en Roma.", "es", 1),
        ("Hmm. Peter wartet.", "de", 2),
        ("Ich sehe fern im TV. Peter liest.", "de", 2),
        ("Pazi na prst. Marko pada.", "hr", 2),
    ],
)
def test_shape_and_context_of_a_full_stop(text: str, language: str, expected: int) -> None:
    """Guards the rules for words that no corpus knows."""
    assert len(split_sentences(text, language)) == expected


GERMAN = [
    *10 * ["Sein zugel. Fahrzeug ist alt.", "Wir fahren auf der Kungsg. Richtung Hafen."],
    *10 * ["Das ist der 4. Versuch von Anna.", "Im 12. Jahr kam Peter.", "Es geschah 1990.", "Es war gut."],
    *10 * ["Das war gut. Peter lachte.", "Es war gut so.", "Er wohnt dort.", "Sie sieht es.", "Dort sieht es gut aus."],
]


def test_corpus_teaches_which_full_stops_end_no_sentence() -> None:
    """Guards abbreviations that no list has, and words at the end of the sentences of the same corpus."""
    stops = FullStops.of(GERMAN)
    assert stops.abbreviations == {"zugel", "kungsg", "0", "00"}
    assert {"gut", "dort"} <= stops.ends
    assert "es" in stops.starters
    for text in ("Ihr zugel. Motorrad ist neu.", "Ich wohne Kungsg. Nummer 3.", "Nur Versuch 5. Grades zählt."):
        assert len(split_sentences(text, "de")) == 2
        assert split_sentences(text, "de", stops) == [text]
    for text in ("Alles war gut. Anna lachte.", "Nimm Nummer 5. Es wartet.", "Es war 1990. Anna kam."):
        assert len(split_sentences(text, "de", stops)) == 2
    assert [len(split_sentences("Det var gut. 3 dagar.", "sv", each)) for each in (FullStops(), stops)] == [1, 2]
    assert FullStops.from_json(stops.json) == stops
    for known, expected in ({}, 2), ({"de": stops}, 1):
        trained = LineStatistics(9, 9, 1, full_stops=known)
        assert len(split_text("Ihr zugel. Motorrad ist neu.", "de", trained, words)) == expected


@pytest.mark.parametrize(("most", "usual", "expected"), [(1, 99, 4), (2, 99, 2), (3, 99, 2), (9, 99, 1), (9, 9, 3)])
def test_sentences_are_joined_up_to_the_usual_line(most: int, usual: int, expected: int) -> None:
    """Joins sentences up to the usual length of training lines, since pronouns need the sentence before."""
    found = split_text(TEXT, "en", LineStatistics(usual=usual, longest=99, sentences=most), words)
    assert len(found) == expected
    assert " ".join(found) == TEXT


def test_too_long_sentence_is_split_at_commas() -> None:
    """A comma is a better place than the middle of a phrase."""
    text = "the dog and the cat, and this black bread here today, and more of the same."
    trained = LineStatistics(usual=7, longest=9, sentences=1)
    assert split_text(text, "en", trained, words) == [
        "the dog and the cat,",
        "and this black bread here today,",
        "and more of the same.",
    ]


@given(st.text("ab,. !?\u3002", max_size=120), st.integers(2, 9), st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_chunks_joined_give_the_text(text: str, longest: int, most: int) -> None:
    """Guards against letters lost or doubled, and chunks that are too long."""
    text = clean(text)
    found = split_text(text, "en", LineStatistics(usual=longest - 1, longest=longest, sentences=most), letters)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
    assert all(letters([piece])[0] <= longest for piece in found)
    assert "".join(split_long_sentence(text, longest, letters)).replace(" ", "") == text.replace(" ", "")


def test_sentence_without_spaces_is_split_at_marks() -> None:
    """Guards scripts without spaces, and long addresses: they were split blindly, and got spaces inside words."""
    text = "我们昨天晚上在城里的一家小饭馆里吃了晚饭，然后走回家去看书。"
    assert split_long_sentence(text, 24, letters) == [
        "我们昨天晚上在城里的一家小饭馆里吃了晚饭，",
        "然后走回家去看书。",
    ]
    address = "https://example.org/" + "a" * 30

    def uneven(texts: Sequence[str]) -> list[int]:
        return [sum(1 if letter == "a" else 2 for letter in text) for text in texts]

    found = split_long_sentence(f"see {address} now", 20, uneven)
    assert "".join(part for part in found).replace(" ", "") == f"see{address}now"
    assert {blank for part in found for blank in part.split(" ")[1:-1]} <= {"now"}
    assert all(uneven([part])[0] <= 20 for part in found)
