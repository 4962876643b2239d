"""Full stops that end no sentence: after abbreviations, initials and ordinals.

    continues("Wir wohnen im 4. Stock.", 17, "de")     # True: this is one sentence

The shape of the word before the full stop, the language and what follows decide.

Limits: a short word is an abbreviation only before a number or a small letter, unless it is one of the abbreviations
known for 13 languages. Function words are known for these, too.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from dragoman.text.closed_classes import function_words, known_abbreviations, may_precede_ordinal
from dragoman.text.letter_case import lower
from dragoman.text.marks import OPENING_MARKS

SHORT = 5  # letters up to which a word before a number or a small letter is taken for an abbreviation
AROUND = 300  # letters before and after a full stop that are looked at

_WORD = re.compile(r"[^\W\d_]+")
_CONTINUES = re.compile(r"[,;/]|:\s|-\w")  # no sentence begins like this
_ROMAN = re.compile("[IVXLC]+")
_NUMBER = re.compile(r"\d|[IVXLC]{2,}\b")
_INITIALS = re.compile(r"[^\W\d_]\.(-?[^\W\d_]\.)?(?=\s|$)")


def continues(text: str, at: int, language: str) -> bool:
    """Whether the mark before a position in a line, after which a splitter would cut, stands inside a sentence."""
    last = text[text.rfind(" ", 0, at - 1) + 1 : at].rstrip()
    kind = _kind(last, language)
    if kind is Kind.WORD and text[at].isupper() and text[at + 1 : at + 2].islower():
        return False
    before, after = text[max(0, at - AROUND) : at].rstrip(), text[at : at + AROUND]
    if _CONTINUES.match(after):
        return True
    # A small letter begins no sentence if the writer uses capitals.
    continued = after.lstrip("-–— ")[:1].islower() and before != before.lower()
    if kind is Kind.OTHER:
        return continued and (before[-1:] not in "?!" or not after[0].isalpha())
    if kind is Kind.WORD and last[:-1].lstrip(OPENING_MARKS).lower() in function_words(language):
        return False
    rest = before[: -len(last)].rstrip()
    if not rest and kind in (Kind.NUMBER, Kind.LETTER):  # the number of an item, or "M."
        return True
    if kind is Kind.NUMBER:
        ordinal = len(last) <= len("999.") and may_precede_ordinal(rest[rest.rfind(" ") + 1 :], language)
        return continued or ((ordinal or rest[-1] in ".!?…") and not _begins(after, language))
    if continued or _NUMBER.match(after):
        return kind is not Kind.WORD or len(last) <= SHORT + 1 or "." in last[:-1]
    if kind is Kind.WORD:
        return False
    if rest[-1:].isdecimal() and last == last.lower() and not _INITIALS.match(after):  # "5 kg.", unlike "44 a. C."
        return False
    return not _begins(after, language)


def _begins(text: str, language: str) -> bool:
    """Whether a text begins like a sentence: with a function word, or a single letter that is not an initial."""
    found = _WORD.match(text.lstrip(OPENING_MARKS))
    word = found[0] if found else ""
    if len(word) == 1:
        return not text.startswith(word + ".")
    small = lower(word, language)
    return word != small and small in function_words(language)


class Kind(Enum):
    """What the shape of a string before a sentence says about its end."""

    OTHER = "no full stop, or several"
    WORD = "a word like any other"
    NUMBER = "a number, also in Roman figures"
    LETTER = "a letter or a Roman figure"
    ABBREVIATION = "initials, a full stop inside, or known"


@lru_cache(2**13)
def _kind(last: str, language: str) -> Kind:
    """The kind of a string before a sentence."""
    if not last.endswith(".") or last.endswith(".."):
        return Kind.OTHER
    word = last[:-1].lstrip(OPENING_MARKS)
    if word.isdecimal() or (len(word) > 1 and _ROMAN.fullmatch(word)):
        return Kind.NUMBER
    if len(word) == 1 and word.isalpha():
        return Kind.LETTER
    if "." in word:
        return Kind.ABBREVIATION if _INITIALS.fullmatch(last) or word == word.lower() else Kind.WORD
    return Kind.ABBREVIATION if word.lower() in known_abbreviations(language) else Kind.WORD
