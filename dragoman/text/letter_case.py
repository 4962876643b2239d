"""Capitals and small letters as each language writes them.

    upper("istanbul", "tr")            # "İSTANBUL"
    upper("Μάιος", "el")               # "ΜΑΪΟΣ"
    capitalized("ijs", "nl")           # "IJs"

Python's methods follow Unicode's rules for all languages. These functions add the exceptions of Turkish, Azeri, Dutch
and Greek. All of the program's code that changes the case of text in a language calls them.

Limits: a German ß becomes SS, not ẞ. The exceptions of Lithuanian and Armenian are missing.
"""

from __future__ import annotations

import re
import unicodedata

from dragoman.directions import base_code

_TURKIC = ("tr", "az", "crh", "gag")
_GREEK_ACCENTS = re.compile(r"[\u0300\u0301\u0313\u0314\u0342]")
_GREEK_HIATUS = re.compile(r"([αεο]\u0301[ιυ])(?![\u0300-\u0345])")  # only the accent shows that the vowels are apart


def lower(text: str, language: str) -> str:
    """All in small letters."""
    if base_code(language) in _TURKIC:
        text = text.replace("I\N{COMBINING DOT ABOVE}", "i").replace("İ", "i").replace("I", "ı")
    return text.lower()


def upper(text: str, language: str) -> str:
    """All in capitals. In Greek they have no accents."""
    if base_code(language) in _TURKIC:
        text = text.replace("i", "İ")
    if base_code(language) == "el":
        text = _GREEK_HIATUS.sub("\\1\u0308", unicodedata.normalize("NFD", text))
        return unicodedata.normalize("NFC", _GREEK_ACCENTS.sub("", text).upper())
    return text.upper()


def capitalized(word: str, language: str) -> str:
    """A word with a capital at its start; the rest stays as it is."""
    first, rest = _first(word, language)
    if len(first) > 1 or base_code(language) in _TURKIC:
        return upper(first, language) + rest
    return first.title() + rest  # of a digraph such as ǆ only the first letter gets large


def uncapitalized(word: str, language: str) -> str:
    """A word with a small letter at its start; the rest stays as it is."""
    first, rest = _first(word, language)
    return lower(first, language) + rest


def in_capitals(word: str) -> bool:
    """Whether a word has capitals, and no letter that would be another one in capitals. A ß may stay small."""
    return any(map(str.isupper, word)) and all(len(large := letter.upper()) > 1 or large == letter for letter in word)


def _first(word: str, language: str) -> tuple[str, str]:
    """The letter that gets a capital, and the rest. In Dutch, ij is one letter."""
    end = 2 if base_code(language) == "nl" and word[:2].lower() in ("ij", "íj") else 1
    return word[:end], word[end:]
