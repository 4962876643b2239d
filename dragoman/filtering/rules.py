"""Rules for a single pair: each is a function of the two texts, and its name is the reason for which a pair is dropped.

    first_reason(source, target, sides)     # "empty", "copied", ...; "" if the pair may stay

A pair that breaks several rules is dropped for the first of them. What these rules need to know of the corpus is in
`Sides`. `judge` has the rules that look at many pairs at once, and REASONS lists all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

from dragoman.corpora.checks.letters import UNREADABLE, find_flaw
from dragoman.corpora.checks.scripts import common_scripts, script_of
from dragoman.filtering.numbers import numbers_differ

REASONS = {  # with their meanings, at most 42 characters long
    "unreadable": "not UTF-8, a broken row, or no pair",
    "empty": "a side without a letter or digit",
    "mojibake": "decoded wrongly, as in Ã¤ for ä",
    "script": "a side in another script",
    "long": "over 1,000 characters or 200 words",
    "copied": "both sides the same, or nearly",
    "numbers": "each side has numbers of its own",
    "profanity": "a word of the list",
    "swapped": "source and target exchanged",
    "language": "a side in another language",
    "length": "lengths that do not fit",
    "misaligned": "not a translation, judging by the words",
    "cut": "a side without its second half",
    "duplicate": "occurred before",
    "near_duplicate": "occurred before with a few changes",
    "score": "a low score by the models",
}
MOST_CHARACTERS, MOST_WORDS = 1000, 200
FEW = 3  # words that may well be the same in both languages: names, titles
NEARLY = 0.8  # share of the words of a copy
_WORD_CHARACTER = re.compile(r"[^\W_]")


@dataclass(frozen=True)
class Sides:
    """What the rules know of the two sides."""

    scripts: tuple[frozenset[str], frozenset[str]]  # that are common on each side
    profane: re.Pattern[str] | None = None


def common_scripts_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the scripts of at least one letter in fifty."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    return frozenset(common_scripts({ord(character): number for character, number in counts.items()}))


def profanity_pattern(words: Collection[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds any of the words or phrases, whatever their case."""
    listed = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{listed})(?!\w)", re.IGNORECASE) if listed else None


def is_unreadable(source: str, target: str) -> bool:
    """Whether a side is not UTF-8, or the row could not be split into two sides."""
    return _flaw(source, target) in UNREADABLE


def is_empty(source: str, target: str) -> bool:
    """Whether a side has no letter and no digit."""
    return not (_WORD_CHARACTER.search(source) and _WORD_CHARACTER.search(target))


def is_mojibake(source: str, target: str) -> bool:
    """Whether a side was decoded with the wrong encoding."""
    return _flaw(source, target) in ("mojibake", "replaced")


def is_long(source: str, target: str) -> bool:
    """Whether a side is longer than any sentence."""
    longest = max(len(source), len(target))
    if longest > MOST_CHARACTERS:
        return True
    return longest > MOST_WORDS and max(source.count(" "), target.count(" ")) >= MOST_WORDS


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
    strange_letters = {character for character in set(text) if script_of(ord(character)) not in common}
    strange = sum(map(text.count, strange_letters))
    return strange > 2 and 2 * strange > sum(map(str.isalpha, text))


def is_profane(source: str, target: str, pattern: re.Pattern[str] | None) -> bool:
    """Whether a side has a word of the list."""
    return bool(pattern and (pattern.search(source) or pattern.search(target)))


RULES: dict[str, Callable[[str, str, Sides], bool]] = {
    "unreadable": lambda source, target, sides: is_unreadable(source, target),
    "empty": lambda source, target, sides: is_empty(source, target),
    "mojibake": lambda source, target, sides: is_mojibake(source, target),
    "script": lambda source, target, sides: any(map(is_other_script, (source, target), sides.scripts)),
    "long": lambda source, target, sides: is_long(source, target),
    "copied": lambda source, target, sides: is_copied(source, target),
    "numbers": lambda source, target, sides: numbers_differ(source, target),
    "profanity": lambda source, target, sides: is_profane(source, target, sides.profane),
}


def first_reason(source: str, target: str, sides: Sides, keep: Collection[str] = ()) -> str:
    """Return the first rule that a pair breaks, except those in `keep`; "" if none. Unreadable pairs cannot stay."""
    for name, rule in RULES.items():
        if (name not in keep or name == "unreadable") and rule(source, target, sides):
            return name
    return ""


@lru_cache(maxsize=1)  # two rules ask for the same pair
def _flaw(source: str, target: str) -> str | None:
    return None if source.isascii() and target.isascii() else find_flaw(source, target)
