"""How the training text of one language is written: its words, capitals, final marks and spaces.

    conventions = Conventions.of(lines)
    conventions.usual("anna")                    # "Anna": the form that the word has inside sentences
    conventions.final_mark("where")              # "?": how sentences that begin with this word end
    Conventions.from_json(conventions.json)

`translation.usual_form` uses them to read what people type, which follows these conventions less strictly. They
are saved with the data of a run and with each of its checkpoints.

Limits: the most frequent FORMS word forms are kept. A sentence that begins inside a line is recognised by the mark
before it.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import regex

from dragoman.dataset import CHUNK, EncodedSide, Tokenizer
from dragoman.lazy import numpy as np
from dragoman.text.letter_case import in_capitals, lower, upper
from dragoman.text.marks import FINAL_MARKS, UNSPACED

FORMS = 100_000
SAMPLE = 100_000  # sentences that are decoded, where the text itself is gone
OPENINGS = 2_000  # words whose sentences' final marks are kept, and strings with an apostrophe
WELL_KNOWN = 5  # times that a word occurs, for a typo to be read as this word
_LETTER = rf"[^\W\d_{UNSPACED}]"
# Not with `re`, which takes the vowel signs of Hindi, Bengali or Tamil for marks between words.
LETTERS = regex.compile(rf"{_LETTER}+")
WORD = regex.compile(rf"{_LETTER}+(?:['’]{_LETTER}+)*")  # "don't" and "l'amico" are one word
_FINAL_MARK = re.compile(rf"[{FINAL_MARKS}]")
_MARK = re.compile(r"(?<=\S)(\s?)[.,?!](?=\s|$)")  # one that ends a word, and the space before it if there is one
CERTAIN_SHARE = 0.9  # share of the lines that makes a habit a convention
NOUNS_SHARE = 0.35  # of words with a capital: with more, it does not mark a name; 64 % in German, 12 % in English
RARE_SHARE = 0.01  # shares up to this count as never


@dataclass(frozen=True)
class Conventions:
    """What a training text looks like. Shares are of its lines."""

    inside: dict[str, int]  # word forms inside sentences, as written, and how often they occur there
    first: dict[str, int]  # word forms at the start of sentences
    marks: dict[str, float]  # share of lines for each final mark or run of them; "" for none
    apostrophes: dict[str, int]  # strings between spaces that have an apostrophe, and how often they occur
    openings: dict[str, str]  # lower-cased first words of sentences that usually end in another mark than most
    capitals: float  # share of the lines that start with a capital, of those that start with a cased letter
    apart: float  # share of the marks at the end of a word that have a space before them
    escaped: float  # share of the apostrophes and quotation marks that are written &apos; and &quot;
    language: str = ""  # whose rules change the case of letters; not saved

    __hash__ = object.__hash__  # so that functions of them can be cached

    @classmethod
    def of(cls, lines: Iterable[str], language: str = "") -> Conventions:
        """Read a text once. Memory holds its distinct words."""
        return ConventionCounts.of(lines, language).conventions(language)

    @cached_property
    def json(self) -> str:
        """All of it as JSON, for `from_json`."""
        values = asdict(self)
        del values["language"]
        return json.dumps(values, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Conventions:
        """Load what `json` returned. Raises ValueError for anything else."""
        values: Any = json.loads(text)
        if isinstance(values, dict):
            values.pop("rare_capitals", None)  # of older versions
        tables = {"inside": int, "first": int, "marks": float, "apostrophes": int, "openings": str}
        if not isinstance(values, dict) or set(values) != {field.name for field in fields(cls)} - {"language"}:
            raise ValueError("these are not the conventions of a text")
        for name, value in values.items():
            kind = tables.get(name)
            entries = [value] if kind is None else value.values() if isinstance(value, dict) else [None]
            if not all(isinstance(entry, kind or float) for entry in entries):
                raise ValueError(f"{name} in the conventions of a text is malformed")
        return cls(**values)

    def within(self, vocabulary: Collection[str]) -> Conventions:
        """These conventions with only the word forms whose parts are in a vocabulary."""

        def kept(counts: dict[str, int]) -> dict[str, int]:
            return {form: count for form, count in counts.items() if all(map(vocabulary.__contains__, parts(form)))}

        return replace(self, inside=kept(self.inside), first=kept(self.first))

    @cached_property
    def nouns_have_capitals(self) -> bool:
        """Whether a capital inside a sentence is no sign of a name, as in German."""
        return sum(form[0].isupper() for form in self.inside) > NOUNS_SHARE * len(self.inside)

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each word occurs, by its lower-cased form."""
        counts: Counter[str] = Counter()
        for forms_of in (self.inside, self.first):
            for form, count in forms_of.items():
                counts[lower(form, self.language)] += count
        return counts

    @cached_property
    def _usual(self) -> dict[str, str]:
        """By lower-cased form the most frequent one inside sentences."""
        only_first = {form: form for form in (lower(form, self.language) for form in self.first)}
        best: dict[str, str] = {}
        for form in sorted(self.inside):
            small = lower(form, self.language)
            if small not in best or self.inside[form] > self.inside[best[small]]:
                best[small] = form
        return only_first | best

    @cached_property
    def _by_capitals(self) -> dict[str, str]:
        """Words that do not survive upper() and lower(), such as those with ß or Greek accents, by their capitals."""
        by_capitals: dict[str, str] = {}
        for small, form in sorted(self._usual.items(), key=lambda item: self.counts[item[0]]):
            large = upper(small, self.language)
            if lower(large, self.language) != small:
                by_capitals[large] = form
        return by_capitals

    @cached_property
    def well_known(self) -> list[str]:
        """The lower-cased words that occur often enough to be what a typo means."""
        return [word for word, count in self.counts.items() if count >= WELL_KNOWN]

    def usual(self, word: str) -> str | None:
        """The form that a word, in any case, usually has inside sentences; None if it is unknown.

        A word that is only seen at the start of sentences counts as lower case.
        """
        usual = self._usual.get(lower(word, self.language))
        return self._by_capitals.get(upper(word, self.language)) if usual is None and in_capitals(word) else usual

    def occurs(self, form: str) -> int:
        """How often a word occurs in exactly this form."""
        return self.inside.get(form, 0) + self.first.get(form, 0)

    def has(self, word: str) -> bool:
        """Whether the text has a word, or all parts of it, in exactly this form."""
        return all(map(self.occurs, parts(word)))

    @property
    def begins_with_capital(self) -> bool:
        """Whether nearly all lines begin with a capital."""
        return self.capitals >= CERTAIN_SHARE

    @property
    def is_lowercase(self) -> bool:
        """Whether the text has no capitals at the start of lines, because it was lower-cased."""
        return bool(self.counts) and self.capitals <= RARE_SHARE

    @property
    def is_tokenized(self) -> bool:
        """Whether marks stand apart from words, as tokenizers such as Moses leave them."""
        return self.apart >= CERTAIN_SHARE

    @property
    def ends_with_mark(self) -> bool:
        """Whether nearly all lines end with a final mark."""
        return bool(self.marks) and self.marks.get("", 0.0) <= 1 - CERTAIN_SHARE

    def final_mark(self, word: str) -> str:
        """The mark at the end of most lines that begin with this word; of all lines, if it is rare."""
        usual = self.openings.get(lower(word, self.language))
        return usual or max((mark for mark in self.marks if mark), key=self.marks.__getitem__)


@dataclass
class ConventionCounts:
    """What conventions are made of. The counts of parts of a text, added in order, are those of the whole text."""

    inside: Counter[str] = field(default_factory=Counter)  # as in Conventions, all word forms
    first: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    apostrophes: Counter[str] = field(default_factory=Counter)
    opened: dict[str, Counter[str]] = field(default_factory=dict)  # final marks by the lower-cased first word
    shares: Counter[str] = field(default_factory=Counter)  # how often each share of Conventions was and could have been

    @classmethod
    def of(cls, lines: Iterable[str], language: str = "") -> ConventionCounts:
        """Count a text in a language."""
        counts = cls()
        shares = counts.shares
        for raw in lines:
            line = html.unescape(raw) if "&" in raw else raw
            escaped = raw.count("&apos;") + raw.count("&quot;")
            shares["escaped"] += escaped
            shares["quotes"] += escaped + raw.count("'") + raw.count('"')
            mark = final_marks(line)
            counts.marks[mark] += 1
            if "'" in line:
                counts.apostrophes.update(string for string in line.split() if "'" in string)
            spaces = _MARK.findall(line)
            shares["apart"] += sum(map(bool, spaces))
            shares["spaces"] += len(spaces)
            for number, (match, begins) in enumerate(words(line)):
                word = match[0]
                table = counts.first if begins else counts.inside
                for form in forms(word):
                    table[form] += 1
                if number == 0:
                    counts.opened.setdefault(lower(word, language), Counter())[mark] += 1
                    if word[0].lower() != word[0].upper():
                        shares["capitals"] += word[0].isupper()
                        shares["starts"] += 1
        return counts

    def add(self, other: ConventionCounts) -> None:
        """Add the counts of the next part of the text. The order decides between equally frequent ones."""
        for name in ("inside", "first", "marks", "apostrophes", "shares"):
            getattr(self, name).update(getattr(other, name))
        for word, marks in other.opened.items():
            self.opened.setdefault(word, Counter()).update(marks)

    def conventions(self, language: str) -> Conventions:
        """The conventions of the text that was counted."""
        inside, first, marks, opened, shares = self.inside, self.first, self.marks, self.opened, self.shares
        usual = marks.most_common(1)[0][0] if marks else ""
        openings = {word: max(counts, key=lambda mark: counts[mark]) for word, counts in opened.items()}
        common = sorted((word for word in openings if openings[word] != usual), key=lambda word: -opened[word].total())
        kept = dict(sorted((inside + first).items(), key=lambda item: (-item[1], item[0]))[:FORMS])
        return Conventions(
            {form: count for form, count in inside.items() if form in kept},
            {form: count for form, count in first.items() if form in kept},
            {mark: count / marks.total() for mark, count in marks.most_common(20)},
            dict(self.apostrophes.most_common(OPENINGS)),
            {word: openings[word] for word in common[:OPENINGS] if opened[word].total() > 1},
            shares["capitals"] / max(1, shares["starts"]),
            shares["apart"] / max(1, shares["spaces"]),
            shares["escaped"] / max(1, shares["quotes"]),
            language,
        )

    @property
    def json(self) -> str:
        """All of it as JSON, for `from_json`."""
        return json.dumps(vars(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> ConventionCounts:
        """Load what `json` returned."""
        values = json.loads(text)
        opened = {word: Counter(marks) for word, marks in values.pop("opened").items()}
        return cls(opened=opened, **{name: Counter(counts) for name, counts in values.items()})


@lru_cache(16)
def in_language(conventions: Conventions, language: str) -> Conventions:
    """The same conventions, with the rules of a language for the case of letters."""
    return conventions if language == conventions.language else replace(conventions, language=language)


def conventions_of_ids(side: EncodedSide, tokenizer: Tokenizer) -> Conventions:
    """The conventions of encoded sentences, or of SAMPLE of them. Words outside the vocabulary are left out."""
    count = len(side.offsets) - 1
    rows = np.unique(np.linspace(0, count - 1, min(count, SAMPLE)).astype(np.int64)) if count else []
    batches = (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))
    texts = (
        text.replace("[UNK]", "")
        for batch in batches
        for text in tokenizer.decode_batch([side.ids[side.offsets[i] : side.offsets[i + 1]].tolist() for i in batch])
    )
    return Conventions.of(texts)


def words(line: str) -> Iterator[tuple[regex.Match[str], bool]]:
    """The words of a line, each with whether a sentence begins with it."""
    end = 0
    word = ""
    for match in WORD.finditer(line):
        yield match, not word or ends_sentence(word, line[end : match.start()])
        word, end = match[0], match.end()


def ends_sentence(word: str, between: str) -> bool:
    """Whether a sentence ends between a word and the next. "Dr." and "a.m." end in the middle of one."""
    mark = _FINAL_MARK.search(between)
    if mark is None or (mark[0] == "." and len(word) < 3):
        return False
    return mark[0] in "。！？" or any(map(str.isspace, between[mark.end() :]))


def parts(word: str) -> list[str]:
    """The parts of a word between its apostrophes."""
    return LETTERS.findall(word)


def forms(word: str) -> list[str]:
    """A word, and its parts if it has an apostrophe."""
    return [word, *parts(word)] if "'" in word or "’" in word else [word]


def final_marks(line: str) -> str:
    """The marks at the very end of a line, "" if there are none. A space before them does not count."""
    return line[len(line.rstrip(FINAL_MARKS)) :]
