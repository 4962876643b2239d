"""Languages of texts: clear cases only."""

from __future__ import annotations

import pytest
from py3langid.langid import MODEL_FILE, LanguageIdentifier

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


def test_answers_are_those_of_the_library() -> None:
    """Guards the table that is rearranged for speed: its rows and columns must keep their meaning."""
    library = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    library.set_languages([label for label in library.labels if len(label) == 2])
    for text in (*SENTENCES.values(), "", "1999", "Paris"):
        expected, confidence = library.classify(text)
        assert language_id.identify(text) == (expected, pytest.approx(confidence, abs=1e-3))


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
