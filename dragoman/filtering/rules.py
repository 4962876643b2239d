"""The reasons for which a pair is dropped, and the rules that look at one pair.

    first_reason(source, target, scripts)   # "empty", "copied", ...; "" if the pair may stay

`dragoman clean` drops pairs for these reasons, and `dragoman check` reports the same pairs. A pair that breaks several
rules has the first reason. These rules know nothing of the corpus but the scripts that are common on each side. The
rules that look at many pairs at once are in `judge`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import NamedTuple

from dragoman.corpora.formats.units import is_left_out
from dragoman.text.cleaning import is_text


class Kind(NamedTuple):
    """What is wrong with some pairs, and how much of it the check reports."""

    text: str
    grave: float = 0.01  # share of pairs that makes it grave; a tenth of it is worth a look, less is a note
    least: float = 0  # share below which it is not reported: comparing rules have false positives


NEVER = 10  # a share that is not reached

REASONS = {  # with texts of at most 42 characters
    "no_pair": Kind("not a pair, such as a fuzzy message", NEVER),
    "unreadable": Kind("not UTF-8, or a row unlike the others", 0),
    "empty": Kind("a side without a letter or digit", 0.1),
    "mojibake": Kind("decoded wrongly, as in Ã¤ for ä"),
    "script": Kind("a side in another script"),
    "long": Kind("over 1,000 characters or 200 words"),
    "copied": Kind("both sides the same, or nearly"),
    "numbers": Kind("each side has numbers of its own", 0.05),
    "swapped": Kind("source and target exchanged"),
    "language": Kind("a side in another language", least=0.001),
    "length": Kind("lengths that do not fit"),
    "misaligned": Kind("not a translation, judging by the words", 0.02, 0.002),
    "cut": Kind("a side without its second half", 0.02, 0.002),
    "duplicate": Kind("occurred before", 0.3, 0.001),
    "near_duplicate": Kind("same words as an earlier pair", 0.3, 0.02),
}
UNREADABLE = ("no_pair", "unreadable")  # pairs that training does not read either, so they cannot be kept
Scripts = tuple[frozenset[str], frozenset[str]]  # that are common on each side
MOST_CHARACTERS, MOST_WORDS = 1000, 200
FEW = 3  # up to this many words, a copy may be a name or a title
NEARLY = 0.8  # share of the words of a copy
_WORD_CHARACTER = re.compile(r"[^\W_]")

# The bytes of UTF-8 after the first, as Latin-1 and Windows-1252 show them. Those of the second kind are punctuation
# that may well follow a capital letter, as in “MANHÃ”.
_LATER = "\x80-\x9f\xa1-\xa6\xa8-\xaa\xac-\xb6\xb8-\xba\xbc-\xbf€ƒˆ‰Š‹ŒŽ˜™š›œžŸ†‡"
_PUNCTUATION = "\xa0\xa7\xab\xb7\xbb‚„…‘’“”•–—"
# Letters of Latin-1; punctuation, €, ™, the byte order mark, U+FFFD; emoji; other Latin letters; Greek and Cyrillic.
# Follows ftfy (Robyn Speer), but only patterns that correct text never has; its other rules weigh two readings.
_MOJIBAKE = re.compile(
    rf"\ufffd|[ÂÃ][{_LATER}]|(?<![A-ZÀ-Þ])[ÂÃ][{_PUNCTUATION}]|â(?:€|\x80)[{_LATER}{_PUNCTUATION}]|â‚¬|â„¢|ï»¿|ï¿½"
    rf"|ðŸ[{_LATER}{_PUNCTUATION}]|[ÄÅ][{_LATER}](?=[a-zß-ÿ])|(?:[ÎÏÐÑ][{_LATER}{_PUNCTUATION}]){{2}}"
)

_DIGIT = re.compile(r"\d")
# Digits, with separators between them; a space only before three digits.
_NUMBER = re.compile(r"\d+(?:[.,'’·٫٬/:-]\d+|[ \u00a0\u202f]\d{3}(?!\d))*")
_DIGITS = re.compile(r"\d+")
_CLOCK = re.compile(r"\d\s*(?:[:h]\s*\d\d|[ap]\.?\s?m\b|o'clock|uhr|heures?|h\b)", re.IGNORECASE)


@cache
def script_of(letter: str) -> str:
    """Return LATIN, CYRILLIC, CJK and so on, the first word of a letter's name; "" for other characters."""
    return unicodedata.name(letter, "?").split()[0] if letter.isalpha() else ""


def common_scripts(texts: Iterable[str]) -> frozenset[str]:
    """Return the scripts of at least one letter in fifty, and ""."""
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(text)
    counts: Counter[str] = Counter()
    for character, number in characters.items():
        counts[script_of(character)] += number
    letters = counts.total() - counts[""]
    return frozenset(["", *(script for script, number in counts.items() if number >= 0.02 * letters)])


def is_mojibake(text: str) -> bool:
    """Whether a text was decoded with the wrong encoding, or has lost letters to U+FFFD."""
    return not text.isascii() and bool(_MOJIBAKE.search(text))


def is_long(text: str) -> bool:
    """Whether a text is longer than any sentence."""
    return len(text) > MOST_CHARACTERS or text.count(" ") >= MOST_WORDS


def is_copied(source: str, target: str) -> bool:
    """Whether both sides have the same words, or nearly. Up to FEW words may be a name, so they may stay."""
    if source.count(" ") < FEW and target.count(" ") < FEW:
        return False
    if source == target:
        return True
    one, other = set(source.lower().split()), set(target.lower().split())
    most = max(len(one), len(other))
    shared = len(one & other)
    return most > FEW and (shared == most or (most > 2 * FEW and shared >= NEARLY * most))


def is_other_script(text: str, common: frozenset[str]) -> bool:
    """Whether most letters of a text, at least three, are in a script that its side hardly uses."""
    if common <= {""} or (text.isascii() and "LATIN" in common):  # nothing is known, or nothing to look for
        return False
    strange_letters = [character for character in set(text) if script_of(character) not in common]
    strange = sum(map(text.count, strange_letters))
    return strange > 2 and 2 * strange > sum(map(str.isalpha, text))


def numbers_differ(source: str, target: str) -> bool:
    """Whether each side has numbers of its own, of two digits or more, however they are split.

    Languages write the same number in several ways: 1,000.5 is 1.000,5, and 2:30 pm is 14 Uhr 30. Small numbers are
    often spelled out.
    """
    if not (_DIGIT.search(source) and _DIGIT.search(target)):
        return False
    least = 3 if _CLOCK.search(source) or _CLOCK.search(target) else 2  # 10 pm is 22 h
    return _conflict(_joined(source), _joined(target), least) and _conflict(_split(source), _split(target), least)


def _joined(text: str) -> Counter[str]:
    return Counter(_plain("".join(_DIGITS.findall(number))) for number in _NUMBER.findall(text))


def _split(text: str) -> Counter[str]:
    return Counter(_plain(digits) for digits in _DIGITS.findall(text))


def _plain(digits: str) -> str:
    """Digits as ASCII, without zeros at the start; zeros at the end count as decimals, as in 3.50 and 3,5."""
    ascii_digits = digits if digits.isascii() else "".join(str(int(digit)) for digit in digits)
    return ascii_digits.lstrip("0")


def _conflict(one: Counter[str], other: Counter[str], least: int) -> bool:
    left = [number for number in (one - other) if len(number) >= least]
    right = [number for number in (other - one) if len(number) >= least]
    return bool(left and right) and not {number.rstrip("0") for number in left} & {n.rstrip("0") for n in right}


RULES: dict[str, Callable[[str, str, Scripts], object]] = {
    "no_pair": lambda source, target, scripts: is_left_out(source),
    "unreadable": lambda source, target, scripts: not (is_text(source) and is_text(target)),
    "empty": lambda source, target, scripts: not (_WORD_CHARACTER.search(source) and _WORD_CHARACTER.search(target)),
    "mojibake": lambda source, target, scripts: is_mojibake(source) or is_mojibake(target),
    "script": lambda source, target, scripts: any(map(is_other_script, (source, target), scripts)),
    "long": lambda source, target, scripts: is_long(source) or is_long(target),
    "copied": lambda source, target, scripts: is_copied(source, target),
    "numbers": lambda source, target, scripts: numbers_differ(source, target),
}


def first_reason(source: str, target: str, scripts: Scripts, keep: Collection[str] = ()) -> str:
    """Return the first rule that a pair breaks, except those in `keep`; "" if none."""
    for name, rule in RULES.items():
        if name not in keep and rule(source, target, scripts):
            return name
    return ""
