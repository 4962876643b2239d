"""Read what people type as the training text would have written it, and write the translation as they typed.

    reading = read("WEHRE IS THE STATION", source)            # conventions of the source text
    reading.text                                              # "Where is the station?"
    reading.form.restore("Dov'è la stazione?", target)        # "DOV'È LA STAZIONE"
    read("I like teh cat.", source).corrections               # [("teh", "the")]

Capitals, typos or a missing full stop can spoil a translation, because the model has only seen the usual form of a
sentence. `Conventions` hold that form. Text that is written like the training text stays as it is.

Limits: a text is one sentence, or a few that are translated together. Names, numbers and the words of a text all in
capitals are never corrected. What `literals` finds is left alone.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import regex

from dragoman.text import literals
from dragoman.text.conventions import LETTERS, RARE_SHARE, WORD, Conventions, final_marks, words
from dragoman.text.letter_case import capitalized, in_capitals, lower, uncapitalized, upper
from dragoman.text.marks import CLOSING_MARKS, FINAL_MARKS
from dragoman.translation import margins

WORDS = 2**13  # whose reading is remembered: they make up most text, and a hostile one fills 40 MB at most
SHORTEST_TYPO = 4  # letters; a shorter word is too easily another word
CLEAR_RATIO = 20  # a form is meant if it is this many times as frequent as the one typed
_ADDRESS = re.compile(r"[/@#\\=_`<>{}\[\]|]")  # no mark belongs right behind it
_PAUSE = re.compile(r"""[^\w\s,'’/&-]""")  # behind it, a capital may be that of a sentence
_WORD_END = regex.compile(r"\w\Z")
_QUANTITY = re.compile(r"[\d.,]+ ?[^\W\d]+")
_INSIDE_DOTS = regex.compile(r"(?<=\w\.)\w\b|\b\w(?=\.\w)")  # a letter of e.g., i.e., U.S.
_REPEATED = re.compile(r"(.)\1+")
_TIGHT = re.compile(rf" +([{FINAL_MARKS},;:]+)(?=\s|$)")  # marks with a space before them
# In a text whose marks stand apart: those that belong to the word before, and to the word after.
_CLOSING = re.compile(rf" +([{FINAL_MARKS},;:%)\]}}»]+|['’]\w+|n['’]t\b)")
_OPENING = re.compile(r"([(\[{«¿¡]|\b\w+['’]) +")
_ESCAPES = str.maketrans({"&": "&amp;", "'": "&apos;", '"': "&quot;"})


@dataclass(frozen=True)
class Form:
    """How a text was typed, in all that its translation should repeat."""

    capitals: bool = False  # ALL OF IT
    title: bool = False  # Each Word
    lower_start: bool = False  # a small letter where the training text has a capital
    capital_start: bool = False  # a capital where the training text has a small letter
    join_marks: bool = False  # marks touch their words, but stand apart in the training text
    added_mark: bool = False  # a final mark was missing
    marks: str = ""  # final marks that the training text does not have, such as "?!"
    variants: tuple[tuple[str, str], ...] = ()  # marks of the training text, and what was typed for them
    before: str = ""  # a list mark, an opening quote
    after: str = ""  # a closing quote, a colon, a smiley

    def restore(self, translation: str, target: Conventions) -> str:
        """Write a translation in this form; `target` are the conventions of the training text on that side."""
        text = self._restore_words(translation, target)
        if self.variants:
            text = _outside_literals(text, lambda part: margins.as_typed(part, dict(self.variants)))
        return f"{self.before}{text}{self.after}"

    def _restore_words(self, translation: str, target: Conventions) -> str:
        text = join_marks(translation) if self.join_marks and target.is_tokenized else translation
        end = final_marks(text)
        if (self.added_mark or self.marks) and 0 < len(end) < len(text):  # a text of marks alone stays
            text = text[: -len(end)].rstrip() + self.marks
        if self.capitals:
            return _outside_literals(text, lambda part: upper(part, target.language))
        if self.title:
            return _outside_literals(
                text, lambda part: WORD.sub(lambda word: capitalized(word[0], target.language), part)
            )
        first = WORD.search(text)
        if first and self.lower_start and (target.usual(first[0]) or "").islower():
            return _with_start(text, lambda word: uncapitalized(word, target.language))
        return _with_start(text, lambda word: capitalized(word, target.language)) if self.capital_start else text


AS_IS = Form()


@dataclass(frozen=True)
class Reading:
    """A text as the training text would have written it."""

    text: str
    form: Form = AS_IS
    corrections: list[tuple[str, str]] = field(default_factory=list)  # each typo, and what it is read as


def to_usual_form(typed: str, source: Conventions, characters: Collection[str] = "'") -> Reading:
    """Read a cleaned text by the conventions of the source side; `characters` are those that the model knows."""
    if not source.counts:
        return Reading(typed)
    before, text, after = ("", typed, "") if source.is_tokenized else margins.split_margins(typed)
    text, variants = margins.known_marks(text, characters)
    text = _TIGHT.sub(r"\1", text) if source.apart <= RARE_SHARE else text
    as_written = text
    places = list(_words(text))
    forms = [word[0] for word, _ in places]
    capitals = all(map(in_capitals, forms)) and any(len(form) > 1 for form in forms)  # a lone "I" does not count
    title = _is_title(places, source)
    text, corrections = _in_usual_form(text, places, source, capitals, title)
    first = WORD.search(text)
    text, added, marks = _with_final_mark(text, source)
    apart = split_marks(text, source) if source.is_tokenized else text
    begins = bool(places) and not any(map(str.isalnum, as_written[: places[0][0].start()]))  # not with a number
    small = bool(first) and first[0][0].islower()
    form = Form(
        capitals=capitals and text != as_written,
        title=title,
        lower_start=begins and forms[0][0].islower() and source.begins_with_capital,
        capital_start=begins and forms[0][0].isupper() and small,
        join_marks=apart != text,
        added_mark=added,
        marks=marks,
        variants=tuple(variants.items()),
        before=before,
        after=after,
    )
    return Reading(apart, form, corrections)


def _in_usual_form(
    text: str, places: list[tuple[regex.Match[str], bool]], source: Conventions, capitals: bool, title: bool
) -> tuple[str, list[tuple[str, str]]]:
    """Write each word in the form that the training text has. Returns the typos that were corrected, too."""
    if _is_lone_word(text, source):
        return text, []
    is_lower = text == lower(text, source.language)
    corrections: list[tuple[str, str]] = []
    parts: list[str] = []
    end = 0
    for match, starts in places:
        word = match[0]
        if capitals or (title and word[0].isupper()):
            unknown = capitalized if source.nouns_have_capitals else lower
            meant = _known_form(word, source) or unknown(word, source.language)
        elif _INSIDE_DOTS.match(text, match.start()):
            meant = word
        else:
            meant = _meant(word, source, starts, is_lower)
            is_name = word[0].isupper() and (bool(parts) or not word[1:].islower())  # McDonald, D'Angelo
            if meant == word and not is_name and (corrected := _corrected(word, source)) != word:
                meant = corrected
                corrections.append((word, meant))
        capital = source.begins_with_capital and (not parts or (starts and (capitals or title or is_lower)))
        if capital and not any(map(str.isalnum, text[end : match.start()])):
            meant = _at_start(meant, source) or (capitalized(meant, source.language) if word[0].isupper() else meant)
        parts += [text[end : match.start()], meant]
        end = match.end()
    return "".join([*parts, text[end:]]), corrections


def _at_start(word: str, source: Conventions) -> str | None:
    """The known form of a word for the start of a sentence, with a capital if possible; None if it has none."""
    forms = (capitalized(word, source.language), word, source.usual(word))
    return next((form for form in forms if form and source.has(form)), None)


def _words(text: str) -> Iterator[tuple[regex.Match[str], bool]]:
    """The words of a text that are not part of a literal, each with whether a sentence begins with it."""
    # Quantities are not skipped: in "AT 9 A.M." one would end inside a word.
    hidden = [(start, end) for start, end in literals.find(text) if not _QUANTITY.fullmatch(text, start, end)]
    for match, begins in words(text):
        while hidden and hidden[0][1] <= match.start():
            hidden.pop(0)
        if not hidden or match.end() <= hidden[0][0]:
            yield match, begins


def _with_final_mark(text: str, source: Conventions) -> tuple[str, bool, str]:
    """End a text as the training text ends its lines. Return too whether it had no mark, and which were replaced."""
    end, first = final_marks(text), WORD.search(text)
    if not source.ends_with_mark or first is None:
        return text, False, ""
    if not end and text[-1] not in CLOSING_MARKS:
        bare = _is_lone_word(text, source) or not _WORD_END.search(text) or _ADDRESS.search(text.rpartition(" ")[2])
        return text if bare else text + source.final_mark(first[0]), True, ""
    if end and (end not in source.marks or (len(end) > 1 and source.marks[end] <= RARE_SHARE)):
        one = next((mark for mark in "?？!！" if mark in end), end[0])
        if one not in source.marks:  # the text may have no exclamation mark, for example
            one = source.final_mark(first[0])
        return text[: -len(end)].rstrip() + one, False, end
    return text, False, ""


def _is_lone_word(text: str, source: Conventions) -> bool:
    """Whether a text is a known word in small letters: as a sentence, with a capital and a mark, it may be unknown."""
    return source.begins_with_capital and text.islower() and bool(WORD.fullmatch(text)) and source.has(text)


def _is_title(places: list[tuple[regex.Match[str], bool]], source: Conventions) -> bool:
    """Whether Most Words Have a Capital that the training text does not give them.

    A word does not count at the start of a sentence, after a mark, as in a dialogue, or after a hyphen, where a title
    may write it small. One capital is enough only if all words have one.
    """
    if not any(match[0][0].isupper() for match, _ in places[1:]):
        return False
    inner, lifted = [], []
    is_sure = False  # whether a capital follows a word that is not a name: Good Morning, not Tom Brown
    for (before, _), (match, _) in pairwise(places):
        word, gap = match[0], match.string[before.end() : match.start()]
        if word.isupper() or gap == "-" or _PAUSE.search(gap):
            continue
        inner.append(word)
        if word[0].isupper() and _is_usually_lower(word, source):
            lifted.append(word)
            part = LETTERS.findall(before[0])[0]  # I'm, We're
            follows = len(part) == 1 or (source.usual(part) or "").islower()
            is_sure |= gap.isspace() and follows
    small = [word for word in inner if word[0].islower()]
    long = [word for word in inner if len(word) > 3]  # short ones, such as "of", often stay small in a title
    if not lifted or 2 * len(lifted) < len(long) or any(len(word) > 3 for word in small):
        return False
    return len(lifted) > 1 or (is_sure and not small)


def _is_usually_lower(word: str, source: Conventions) -> bool:
    usual = source.usual(word)
    return bool(usual) and usual.islower() and source.occurs(usual) > CLEAR_RATIO * source.inside.get(word, 0)


def _known_form(word: str, source: Conventions) -> str | None:
    """The usual form of a word, or of each of its parts; None if no part is known."""
    if usual := source.usual(word):
        return usual
    if not any(source.usual(part) for part in LETTERS.findall(word)):
        return None
    return LETTERS.sub(lambda part: source.usual(part[0]) or lower(part[0], source.language), word)


@lru_cache(WORDS)
def _meant(word: str, source: Conventions, starts: bool, is_lower: bool) -> str:
    """The form of a word that is meant, in a text of mixed case, or in one all in lower case."""
    known = _known_form(word, source)
    if known is None or known == word:
        return word
    if word.islower():  # "anna", "i"; in German, a noun
        times = source.occurs(word)
        return known if not times or (is_lower and source.inside.get(known, 0) >= CLEAR_RATIO * times) else word
    if source.is_lowercase or (len(word) > 1 and in_capitals(word) and not source.occurs(word)):
        return known
    # Keep capitals at the start of a sentence, and those of possible names.
    return known if starts and not source.begins_with_capital else word


@lru_cache(WORDS)
def _corrected(word: str, source: Conventions) -> str:
    """A word without the typos that can be recognised."""
    near = nearest(lower(word, source.language), source)
    if near is None and word.isalpha():
        return word
    if near is None:  # the parts of a word with an apostrophe
        near = LETTERS.sub(lambda part: nearest(lower(part[0], source.language), source) or part[0], word)
    return capitalized(near, source.language) if word[0].isupper() else near


def nearest(word: str, source: Conventions) -> str | None:
    """The well-known word that an unknown lower-cased word is a typo of, in its usual form; None if there is none."""
    if source.counts[word] or not word.isalpha():
        return None
    from rapidfuzz import process  # here, because most texts have no unknown word
    from rapidfuzz.distance import OSA

    near = process.extract(word, source.well_known, scorer=OSA.distance, score_cutoff=1, limit=None)
    meant = [other for other, _, _ in near if is_likely_typo(word, other)]
    usual = source.usual(max(meant, key=lambda other: source.counts[other])) if meant else None
    # Lower-case words are not corrected to names ("coal" to "Cola"), except in languages such as German.
    return usual if usual and (usual.islower() or source.nouns_have_capitals) else None


def is_likely_typo(word: str, meant: str) -> bool:
    """Whether a word that is one edit away from another one is a typing mistake and not a word of its own.

    It is one if two letters are swapped, a letter is doubled or not doubled, or an apostrophe is missing. The held-out
    sets of Multi30k have 485 words that its training set does not have. It accepts 6 of them, of which 5
    are typos. Accepting changed, added or missing letters too would turn motel into model, and butler into butter.
    """
    if "'" in meant:
        return meant.replace("'", "") == word
    if len(word) < SHORTEST_TYPO:
        return False
    return sorted(word) == sorted(meant) or _REPEATED.sub(r"\1", word) == _REPEATED.sub(r"\1", meant)


def split_marks(text: str, source: Conventions) -> str:
    """Write marks apart from words, as a tokenized training text does: "Isn't it?" becomes "Isn 't it ?"."""
    apart = _outside_literals(html.unescape(text), lambda part: re.sub(r"([^\w\s'’-])", r" \1 ", part))
    text = " ".join(part for token in apart.split() for part in _split_contraction(token, source))
    return text.translate(_ESCAPES) if source.escaped > 0.5 else text


def _split_contraction(word: str, source: Conventions) -> list[str]:
    """Split a word at an apostrophe, in the way that the training text does it most."""
    at = word.find("'", 1)
    if at < 0 or source.apostrophes.get(word):
        return [word]
    ways = [(word[:cut], word[cut:]) for cut in (at, at + 1, at - 1) if 0 < cut < len(word)]
    return list(max(ways, key=lambda way: min(source.apostrophes.get(part) or source.counts[part] for part in way)))


def join_marks(text: str) -> str:
    """Join marks to their words again."""
    return _OPENING.sub(r"\1", _CLOSING.sub(r"\1", html.unescape(text)))


def _with_start(text: str, change: Callable[[str], str]) -> str:
    """Change the first word of a text, unless it begins with a literal or a word with digits."""
    first = WORD.search(text)
    if first is None or any(map(str.isalnum, text[: first.start()])) or text[first.end() : first.end() + 1].isdigit():
        return text
    if any(start <= first.start() < end for start, end in literals.find(text)):
        return text
    return text[: first.start()] + change(first[0]) + text[first.end() :]


def _outside_literals(text: str, change: Callable[[str], str]) -> str:
    """Change the parts of a text that are not literals."""
    around, hidden = literals.parts(text)
    return "".join(change(part) + literal for part, literal in zip(around, [*hidden, ""], strict=True))
