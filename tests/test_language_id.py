"""Languages of texts: clear cases only."""

from __future__ import annotations

import pytest

from dragoman.corpora import language_id

SENTENCES = {
    "en": "The children are playing with a red ball in the garden.",
    "de": "Die Kinder spielen mit einem roten Ball im Garten.",
    "fr": "Les enfants jouent avec un ballon rouge dans le jardin.",
    "it": "I bambini giocano con una palla rossa nel giardino.",
    "ru": "Дети играют с красным мячом в саду.",
    "ja": "子供たちは庭で赤いボールで遊んでいます。",
    "el": "Τα παιδιά παίζουν με μια κόκκινη μπάλα στον κήπο.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_identify_names_the_language_of_a_sentence(language: str) -> None:
    """Guards against codes of another standard, such as deu, and against an identifier that answers always en."""
    found, confidence = language_id.identify(SENTENCES[language])
    assert found == language
    assert confidence > 0.6


def test_many_texts_give_what_each_gives_alone() -> None:
    """Guards against an order that is lost."""
    texts = list(SENTENCES.values())
    assert language_id.identify_many(texts) == [language_id.identify(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "expected", "other"),
    [
        (SENTENCES["fr"], "de", "fr"),
        (SENTENCES["fr"], "fr-CA", None),  # the same language in another region
        (SENTENCES["fr"], "eo-XX", "fr"),
        (SENTENCES["fr"], "tlh", None),  # a language that is not known proves nothing
        ("Paris, 1999", "de", None),
        ("", "de", None),
        ("1234567890 1234567890", "de", None),
        ("Barna leker med en rød ball i hagen med hunden.", "da", None),  # too close
    ],
)
def test_only_clear_cases_are_another_language(text: str, expected: str, other: str | None) -> None:
    """Guards good pairs: a name, a number or a close language must not count as another language."""
    assert language_id.other_language(text, expected) == other
