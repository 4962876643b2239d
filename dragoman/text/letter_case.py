"""Capitals and small letters as each language writes them.

    upper("istanbul", "tr")            # "İSTANBUL"
    upper("Μάιος", "el")               # "ΜΑΪΟΣ"
    capitalized("ijs", "nl")           # "IJs"

Python's methods follow Unicode's rules for all languages. These functions add what single languages do differently:
Unicode's SpecialCasing and CLDR list Turkish, Azeri, Lithuanian, Dutch, Greek and Armenian. All of the program's code
that changes the case of text in a language calls them.

Limits: a German ß becomes SS, not ẞ. In Lithuanian only the dot of an i with an accent differs.
"""

from __future__ import annotations

import re
import unicodedata

from dragoman.directions import base_code

_DOT = "\N{COMBINING DOT ABOVE}"
_SOFT_DOT = re.compile(rf"([ijIJ]\u0328?){_DOT}+")
_LITHUANIAN = re.compile(r"([IJ]\u0328?)(?=[\u0300\u0301\u0303])")
_GREEK_VOWEL = re.compile(r"([αεηιουωΑΕΗΙΟΥΩ])([\u0300-\u0345]*)")
_GREEK_ACCENT = re.compile(r"[\u0300\u0301\u0342]")
_DIALYTIKA, _IOTA_BELOW, _TONOS = "\u0308", "\u0345", "\u0301"


def lower(text: str, language: str) -> str:
    """Lower-case a text."""
    match base_code(language):
        case "tr" | "az" | "crh" | "gag":
            text = text.replace("I" + _DOT, "i").replace("İ", "i").replace("I", "ı")
        case "lt" if not text.isascii():
            return _composed(_LITHUANIAN.sub(rf"\1{_DOT}", unicodedata.normalize("NFD", text)).lower())
    return text.lower()


def upper(text: str, language: str) -> str:
    """Upper-case a text."""
    match base_code(language):
        case "tr" | "az" | "crh" | "gag":
            text = text.replace("i", "İ")
        case "lt" if not text.isascii():
            return _composed(_SOFT_DOT.sub(r"\1", unicodedata.normalize("NFD", text)).upper())
        case "el":
            return _greek_capitals(text)
        case "hy":
            text = text.replace("և", "եվ")
    return text.upper()


def capitalized(word: str, language: str) -> str:
    """A word with a capital at its start; the rest stays as it is."""
    first, rest = _first(word, language)
    match base_code(language):
        case "tr" | "az" | "crh" | "gag" | "nl":
            return upper(first, language) + rest
        case "hy" if first == "և":
            return "Եվ" + rest
    return first.title() + rest  # title() capitalises only the first half of a digraph such as ǆ


def uncapitalized(word: str, language: str) -> str:
    """A word with a small letter at its start; the rest stays as it is."""
    first, rest = _first(word, language)
    return lower(first, language) + rest


def in_capitals(word: str) -> bool:
    """Whether a word is in capitals; a ß may stay small."""
    return any(map(str.isupper, word)) and all(len(large := letter.upper()) > 1 or large == letter for letter in word)


def _first(word: str, language: str) -> tuple[str, str]:
    """The letter that gets a capital, and the rest. In Dutch, ij is one letter."""
    end = 2 if base_code(language) == "nl" and word[:2].lower() in ("ij", "íj") else 1
    return word[:end], word[end:]


def _greek_capitals(text: str) -> str:
    """Capitals have no accents. A dialytika shows that two vowels are apart, if an accent showed it before."""
    text = unicodedata.normalize("NFD", text)
    accented = -1  # the end of the last vowel with an accent

    def large(match: re.Match[str]) -> str:
        nonlocal accented
        vowel, marks = match.groups()
        apart = _DIALYTIKA in marks or (not marks and vowel in "ιυΙΥ" and match.start() == accented)
        accented = match.end() if _GREEK_ACCENT.search(marks) else -1
        before = text[max(0, match.start() - 1) : match.start()]
        alone = not (
            before.isalpha() or unicodedata.combining(before or " ") or text[match.end() : match.end() + 1].isalpha()
        )
        is_or = accented > 0 and vowel in "ηΗ" and alone  # and not the article
        return vowel + apart * _DIALYTIKA + is_or * _TONOS + "Ι" * (_IOTA_BELOW in marks)

    return _composed(_GREEK_VOWEL.sub(large, text).upper())


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)
