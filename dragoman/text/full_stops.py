"""Full stops that do not end a sentence: after abbreviations, initials and ordinals.

    stops = FullStops.of(lines)                              # learnt from a corpus whose lines are mostly sentences
    stops.sentence_continues("Wir wohnen im 4. Stock.", 17, "de")     # True: this is one sentence

An abbreviation is a word that nearly always has a full stop inside lines, before words that do not begin a sentence, as
in Punkt (Kiss and Strunk 2006). All numbers with the same number of digits are one such word: in German "4." is mostly
an ordinal, in English mostly an end. The shape of a word and the language decide for words that the corpus does not
settle.

Limits: without a corpus, a short word with vowels is an abbreviation only before a number or a small letter, unless
it is one of the abbreviations known for 13 languages. Function words are known for these, too.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import Any

from dragoman.directions import base_code
from dragoman.text.closed_classes import function_words, known_abbreviations, may_precede_ordinal
from dragoman.text.letter_case import lower
from dragoman.text.marks import CLOSING_MARKS, OPENING_MARKS

MIN_TIMES = 3  # times that a corpus shows an abbreviation inside lines, at least
MAX_LETTERS = 7  # letters of an abbreviation without a full stop inside
SHORT_LETTERS = 5  # letters up to which a word before a number or a small letter is taken for an abbreviation
MAX_WORDS = 2_000  # words of each kind that are kept
CONTEXT = 300  # letters before and after a full stop that are looked at
STARTER_SHARE = 0.001  # share of the lines that begin with a word that begins sentences

_WORD = re.compile(r"[^\W\d_]+")
_AROUND = f"{OPENING_MARKS}{CLOSING_MARKS}.,;:!?…]}}"  # a word
_CONTINUES = re.compile(r"[,;/]|:\s|-\w")  # no sentence begins like this
_VOWEL = re.compile("[aeiouyæœøıаеиоуыъэюяієαεηιουω]")
_SYLLABIC = re.compile(r"[^\W\d_][rlрл][^\W\d_]")  # "krk" has a vowel, "str." has none
_ALPHABETS = re.compile("[a-zæœøßþðıͰ-ϿЀ-ӿ]+")  # without accents; other scripts may write no vowels
_DIGITS = re.compile(r"\d")
_ROMAN = re.compile("[IVXLC]+")
_NUMBER = re.compile(r"\d|[IVXLC]{2,}\b")
_PARTICLE = re.compile(r"(L[aeo]|L[ao]s|Les|D[eia]|Den) (?=[^\W\d_])(?![a-zß-ÿ])")  # of a name: "M. Le Pen"
_INITIALS = re.compile(r"[^\W\d_]\.(-?[^\W\d_]\.)?(?=\s|$)")


@dataclass(frozen=True)
class FullStops:
    """What a corpus in one language shows. Words are lower-cased, without their full stop; digits are zeros."""

    abbreviations: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()  # words that look like abbreviations, but end sentences
    starters: frozenset[str] = frozenset()  # words that begin sentences

    @classmethod
    def of(cls, lines: Iterable[str], language: str = "") -> FullStops:
        """Learn from cased lines in a language. Memory holds the distinct words."""
        first: Counter[str] = Counter()
        plain: Counter[str] = Counter()  # words without a full stop
        final: Counter[str] = Counter()  # words with one at the end of a line
        inner: Counter[tuple[str, str]] = Counter()  # words with one inside a line, and what comes next
        count = 0
        for line in lines:
            count += 1
            strings = line.split()
            if strings and (start := _WORD.match(strings[0].lstrip(OPENING_MARKS))):
                first[start[0]] += 1
            for number, string in enumerate(strings):
                if not string.endswith("."):
                    plain[string.strip(_AROUND)] += 1
                elif number == len(strings) - 1:
                    final[_shape(string)] += 1
                else:
                    following = _first_word(strings[number + 1])
                    # Skip numbers at the start of a line (list items), and those before a small letter.
                    if not string[:-1].isdecimal() or (number and following != following.lower()):
                        inner[_shape(string), lower(following, language)] += 1
        least = max(MIN_TIMES, STARTER_SHARE * count)
        starters = [
            small
            for word, times in first.most_common(MAX_WORDS)
            if times >= least and plain[small := lower(word, language)] and word != small
        ]
        return cls._judged(inner, final, plain, frozenset(starters))

    @classmethod
    def _judged(
        cls, inner: Counter[tuple[str, str]], final: Counter[str], plain: Counter[str], starters: frozenset[str]
    ) -> FullStops:
        """Classify words by how often they occur inside lines, before starters and at the end."""
        inside: Counter[str] = Counter()
        before_starters: Counter[str] = Counter()
        for (word, following), times in inner.items():
            (before_starters if following in starters else inside)[word] += times
        without: Counter[str] = Counter()
        for word, times in plain.items():
            without[word.lower()] += times
        abbreviations: dict[str, int] = {}
        for word, times in inside.items():
            ending = before_starters[word] + final[word]
            if word.isdecimal():
                is_one = times > ending
            else:
                known = len(word) <= MAX_LETTERS or "." in word
                is_one = known and times > without[word] and times > 2 * before_starters[word] and 10 * times > ending
            if is_one and times >= MIN_TIMES and word.strip("."):
                abbreviations[word] = times
        ends = {
            word: times
            for word, times in (final + before_starters).items()
            if times >= MIN_TIMES and word not in abbreviations and _looks_like_one(word) and without[word] >= MIN_TIMES
        }
        return cls(_most(abbreviations), _most(ends), starters)

    @property
    def json(self) -> dict[str, list[str]]:
        """All of it, for `from_json`."""
        return {field.name: sorted(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> FullStops:
        """Load what `json` returned. Raises LookupError or ValueError for anything else."""
        lists = [values[field.name] for field in fields(cls)]
        if not all(isinstance(words, list) and all(isinstance(word, str) for word in words) for words in lists):
            raise ValueError("the words before full stops are malformed")
        return cls(*map(frozenset, lists))

    def sentence_continues(self, text: str, at: int, language: str) -> bool:
        """Whether the mark before a position in a line, after which a splitter would cut, stands inside a sentence."""
        last = text[text.rfind(" ", 0, at - 1) + 1 : at].rstrip()
        kind, shape = _kind_and_shape(last, language)
        if kind is Kind.WORD and text[at].isupper() and text[at + 1 : at + 2].islower():
            return shape in self.abbreviations and not self._begins(text[at : at + CONTEXT], language)
        before, after = text[max(0, at - CONTEXT) : at].rstrip(), text[at : at + CONTEXT]
        if _CONTINUES.match(after):
            return True
        # A small letter begins no sentence if the writer uses capitals.
        continued = after.lstrip("-–— ")[:1].islower() and before != before.lower()
        if kind is Kind.OTHER:
            return continued and (before[-1:] not in "?!" or not after[0].isalpha())
        if shape in self.abbreviations:
            return not self._begins(after, language)
        if shape in self.ends or (kind is Kind.WORD and shape in function_words(language)):
            return False
        rest = before[: -len(last)].rstrip()
        if not rest and kind in (Kind.NUMBER, Kind.LETTER):  # the number of an item, or "M."
            return True
        if kind is Kind.NUMBER:
            ordinal = len(last) <= len("999.") and may_precede_ordinal(rest[rest.rfind(" ") + 1 :], language)
            return continued or ((ordinal or rest[-1] in ".!?…") and not self._begins(after, language))
        if continued or _NUMBER.match(after):
            return kind is not Kind.WORD or len(last) <= SHORT_LETTERS + 1 or "." in last[:-1]
        if kind is Kind.WORD:
            return False
        if rest[-1:].isdecimal() and last == last.lower() and not _INITIALS.match(after):  # "5 kg.", unlike "44 a. C."
            return False
        return not self._begins(after, language)

    def _begins(self, text: str, language: str) -> bool:
        """Whether a text begins like a sentence: with a function word, or a single letter that is no initial."""
        word = _first_word(text)
        if len(word) == 1:
            return not text.startswith(word + ".")
        if _PARTICLE.match(text):
            return False
        small = lower(word, language)
        return word != small and (small in self.starters or small in function_words(language))


class Kind(Enum):
    """What the shape of a string before a sentence says about its end."""

    OTHER = "no full stop, or several"
    WORD = "a word like any other"
    NUMBER = "a number, also in Roman figures"
    LETTER = "a letter or a Roman figure"
    ABBREVIATION = "initials, a full stop inside, no vowel, or known"


@lru_cache(2**13)
def _kind_and_shape(last: str, language: str) -> tuple[Kind, str]:
    """The kind of a string, and the string as the words of `FullStops` are written."""
    if not last.endswith(".") or last.endswith(".."):
        return Kind.OTHER, ""
    word = last[:-1].lstrip(OPENING_MARKS)
    if word.isdecimal() or (len(word) > 1 and _ROMAN.fullmatch(word)):
        kind = Kind.NUMBER
    elif len(word) == 1 and word.isalpha():
        kind = Kind.LETTER
    elif "." in word:
        kind = Kind.ABBREVIATION if _INITIALS.fullmatch(last) or word == word.lower() else Kind.WORD
    elif word.lower() in known_abbreviations(language) or _lacks_vowels(word, language):
        kind = Kind.ABBREVIATION
    else:
        kind = Kind.WORD
    return kind, _shape(last)


def _shape(string: str) -> str:
    """A word with a full stop, as the words of `FullStops` are written."""
    return _DIGITS.sub("0", string[:-1].lstrip(OPENING_MARKS).lower())


def _first_word(text: str) -> str:
    match = _WORD.match(text.lstrip(OPENING_MARKS))
    return match[0] if match else ""


def _lacks_vowels(word: str, language: str) -> bool:
    """Whether a word has no vowel, such as "Mr" and "χλμ"; not for capitals ("TV") or doubled letters ("Hmm")."""
    lower = "".join(filter(str.isalpha, unicodedata.normalize("NFD", word.lower())))
    if not word.isalpha() or word.isupper() or not _ALPHABETS.fullmatch(lower) or _VOWEL.search(lower):
        return False
    if len(lower) > 2 and any(one == other for one, other in pairwise(lower)):
        return False
    return not (base_code(language) in {"cs", "sk", "sl", "hr", "sr", "bs", "mk"} and _SYLLABIC.search(lower))


def _looks_like_one(word: str) -> bool:
    """Whether a word of more than one letter could be taken for an abbreviation."""
    return len(word) > 1 and word.isalpha() and (len(word) <= SHORT_LETTERS or _lacks_vowels(word, ""))


def _most(counts: Mapping[str, int]) -> frozenset[str]:
    return frozenset(sorted(counts, key=lambda word: (-counts[word], word))[:MAX_WORDS])
