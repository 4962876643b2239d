"""Capitals and small letters by the rules of each language: what is typed is read, and written as it was typed."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.text.conventions import Conventions, in_language
from dragoman.text.full_stops import FullStops
from dragoman.text.letter_case import capitalized, in_capitals, lower, uncapitalized, upper
from dragoman.translation.glossary import Glossary
from dragoman.translation.term_placement import find_targets
from dragoman.translation.usual_form import to_usual_form

Change = Callable[[str, str], str]
CASES: list[tuple[Change, str, str, str]] = [
    (upper, "tr", "ışık ve iyi", "IŞIK VE İYİ"),
    (lower, "tr", "IŞIK VE İYİ", "ışık ve iyi"),
    (lower, "az", "I\u0307LK", "ilk"),
    (capitalized, "tr", "izmir", "İzmir"),
    (capitalized, "az-Latn", "ilk", "İlk"),
    (uncapitalized, "tr", "Işık", "ışık"),
    (uncapitalized, "tr", "İzmir", "izmir"),
    (capitalized, "en", "izmir", "Izmir"),
    (capitalized, "nl", "ijs", "IJs"),
    (capitalized, "nl", "ĳs", "Ĳs"),
    (uncapitalized, "nl", "IJsland", "ijsland"),
    (capitalized, "de", "ijs", "Ijs"),
    (upper, "de", "straße", "STRASSE"),
    (lower, "de", "STRAẞE", "straße"),
    (upper, "el", "Ποιος είναι ο Γιάννης;", "ΠΟΙΟΣ ΕΙΝΑΙ Ο ΓΙΑΝΝΗΣ;"),
    (upper, "el", "Μάιος, μαΐου, άυλος, ευφυΐα", "ΜΑΪΟΣ, ΜΑΪΟΥ, ΑΫΛΟΣ, ΕΥΦΥΪΑ"),
    (upper, "el", "αυτό ή εκείνο ήδη", "ΑΥΤΟ Ή ΕΚΕΙΝΟ ΗΔΗ"),
    (upper, "el", "ἄνθρωπος τῷ", "ΑΝΘΡΩΠΟΣ ΤΩΙ"),
    (lower, "el", "ΟΔΟΣ ΣΊΣΥΦΟΣ", "οδος σίσυφος"),
    (capitalized, "el", "έλα", "Έλα"),
    (upper, "lt", "i̇̀ ir į̇̃", "Ì IR Į̃"),
    (lower, "lt", "Ì IR Į̃", "i̇̀ ir į̇̃"),
    (capitalized, "hr", "ǆep", "ǅep"),
    (upper, "hr", "ǆep", "ǄEP"),
    (upper, "hy", "և", "ԵՎ"),
    (capitalized, "hy", "և", "Եվ"),
    (capitalized, "ka", "კარგი", "კარგი"),
    (upper, "fr", "été", "ÉTÉ"),
]


@pytest.mark.parametrize(("change", "language", "text", "expected"), CASES)
def test_case_follows_the_language(change: Change, language: str, text: str, expected: str) -> None:
    """Guards against Unicode's rules for all languages: GIDIYORUM, ijs and ΠΟΎ are misspelt."""
    assert unicodedata.normalize("NFC", change(text, language)) == unicodedata.normalize("NFC", expected)


@given(st.text(), st.sampled_from(["en", "de", "it", "", "ru"]))
def test_other_languages_keep_the_rules_of_unicode(text: str, language: str) -> None:
    """Guards the ids of languages without rules of their own."""
    assert (lower(text, language), upper(text, language)) == (text.lower(), text.upper())


SPECIAL = st.sampled_from("aąeiįıjIİJĮΣςάΐϊήὦᾳßẞǆԵև\u0301\u0307\u0308 x")


@given(st.text(SPECIAL), st.sampled_from(["tr", "nl", "el", "lt", "hy"]))
@example("\u0130\u0307", "lt")  # a dotted capital I with another dot
def test_capitals_and_small_letters_are_stable(text: str, language: str) -> None:
    """Guards against rules that change their own result."""
    text = unicodedata.normalize("NFC", text)
    for change in (lower, upper):
        once = unicodedata.normalize("NFC", change(text, language))
        assert unicodedata.normalize("NFC", change(once, language)) == once


def test_in_capitals() -> None:
    """Guards capitals with letters that have none: a small ß among them, as people type it."""
    assert all(map(in_capitals, ["STRAßE", "STRAẞE", "İSTANBUL", "A", "ΠΟΥ"]))
    assert not any(map(in_capitals, ["Straße", "istanbul", "京", "ß", ""]))


TEXTS = {
    "tr": ["Kız kardeşim Isparta'da oturuyor.", "Ben her gün işe gidiyorum.", "İstanbul nerede?", "Hava ılık ve iyi."],
    "az": ["Bakı gözəl şəhərdir.", "Mən işə gedirəm."],
    "de": ["Die Straße ist groß und weiß.", "Die Masse ist nicht das Maß."],
    "el": ["Πού είναι ο σταθμός;", "Ο Γιάννης είναι εδώ.", "Τον Μάιο πάμε στο σπίτι."],
    "nl": ["Het ijs is koud.", "Ik woon in IJsland en eet ijs.", "IJs is koud."],
}
CONVENTIONS = {language: Conventions.of(10 * lines, language) for language, lines in TEXTS.items()}


@pytest.mark.parametrize(
    ("language", "typed", "read_as"),
    [
        ("tr", "KIZ KARDEŞİM ISPARTA'DA OTURUYOR.", "Kız kardeşim Isparta'da oturuyor."),
        ("tr", "İSTANBUL NEREDE?", "İstanbul nerede?"),
        ("tr", "istanbul nerede?", "İstanbul nerede?"),
        ("tr", "Hava Ilık Ve İyi.", "Hava ılık ve iyi."),
        ("az", "BAKI GÖZƏL ŞƏHƏRDİR.", "Bakı gözəl şəhərdir."),
        ("de", "DIE STRASSE IST GROSS.", "Die Straße ist groß."),
        ("de", "DIE STRAßE IST GROß.", "Die Straße ist groß."),
        ("de", "DIE STRAẞE IST GROẞ.", "Die Straße ist groß."),
        ("de", "DIE MASSE IST WEISS.", "Die Masse ist weiß."),
        ("el", "ΠΟΥ ΕΙΝΑΙ Ο ΓΙΑΝΝΗΣ;", "Πού είναι ο Γιάννης;"),
        ("el", "ΠΟΎ ΕΊΝΑΙ Ο ΣΤΑΘΜΌΣ;", "Πού είναι ο σταθμός;"),
        ("el", "ΤΟΝ ΜΑΪΟ ΠΑΜΕ ΣΤΟ ΣΠΙΤΙ.", "Τον Μάιο πάμε στο σπίτι."),
        ("nl", "HET IJS IS KOUD.", "Het ijs is koud."),
        ("nl", "Het IJs Is Koud.", "Het ijs is koud."),
        ("nl", "ijs is koud.", "IJs is koud."),
    ],
)
def test_typed_case_is_read(language: str, typed: str, read_as: str) -> None:
    """Guards words that capitals hide from the vocabulary."""
    assert to_usual_form(typed, CONVENTIONS[language]).text == read_as
    other = in_language(Conventions.of(10 * TEXTS[language]), language)  # of a run that does not know its language
    assert to_usual_form(typed, other).text == read_as


@pytest.mark.parametrize(
    ("typed", "language", "translation", "expected"),
    [
        ("HET IJS IS KOUD.", "tr", "Kız işe gidiyor.", "KIZ İŞE GİDİYOR."),
        ("HET IJS IS KOUD.", "el", "Ο Γιάννης ή ο Μάιος.", "Ο ΓΙΑΝΝΗΣ Ή Ο ΜΑΪΟΣ."),
        ("HET IJS IS KOUD.", "de", "Die Straße ist weiß.", "DIE STRASSE IST WEISS."),
        ("Het IJs Is Koud.", "tr", "ilk ışık", "İlk Işık"),
        ("Het IJs Is Koud.", "nl", "ik eet ijs.", "Ik Eet IJs."),
        ("het ijs is koud.", "tr", "Işe gidiyorum.", "ışe gidiyorum."),
    ],
)
def test_typed_case_is_restored(typed: str, language: str, translation: str, expected: str) -> None:
    """Guards translations whose language has other capitals than that of the text."""
    target = Conventions.of(10 * [*TEXTS[language], "Ben ışe ve ilk ışık."], language)
    assert to_usual_form(typed, CONVENTIONS["nl"]).form.restore(translation, target) == expected


def test_glossary_terms_follow_the_language() -> None:
    """Guards terms that are typed in capitals, and those at the start of a translation."""
    glossary = Glossary({"ılık ışık": "ijs"})
    assert glossary.find("ILIK IŞIK") == []
    [term] = glossary.find("ILIK IŞIK", "tr", "nl")
    assert (term.target, term.language) == ("ijs", "nl")
    assert find_targets("IJs is koud.", ["ijs"], "nl") == [("ijs", 0, 3)]
    assert find_targets("IJs is koud.", ["ijs"], "de") == []
    assert find_targets("İzmir ve izmir", ["izmir"], "tr") == [("izmir", 0, 5), ("izmir", 9, 14)]


def test_words_that_begin_sentences_follow_the_language() -> None:
    """Guards full stops before İki, which is iki elsewhere."""
    lines = 9 * ["İki ev var.", "Burada iki kedi var.", "Bu Hz. Ali iki."]
    assert "iki" in FullStops.of(lines, "tr").starters
    assert "iki" not in FullStops.of(lines, "en").starters
