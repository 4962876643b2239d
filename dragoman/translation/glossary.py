"""A glossary: terms, and how to translate them.

    glossary = Glossary.read("terms.tsv")                  # or Glossary({"dog": "Hund", "Zoltan": ""})
    glossary.find("The dogs and the dog.")                 # [Term(start=17, end=20, target="Hund")]

A file has one term per line, SOURCE TAB TARGET; in a .csv file, commas or semicolons separate the columns. A term
without a target is copied as it is written. Blank lines and lines that start with # are skipped.

A term is found only as whole words, and the longest one first. A term in lower case is found in any case; one with
capitals is found only as it is written. Other inflections are terms of their own.

`term_placement` puts the terms into translations.
"""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, pre_tokenizers

from dragoman import reading
from dragoman.errors import DataError
from dragoman.settings import DataConfig
from dragoman.text import literals
from dragoman.text.cleaning import clean, decode_line
from dragoman.text.letter_case import lower

# A word with its accents, a single letter in scripts that put no space between words, or a single mark.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORDS = pre_tokenizers.Split(Regex(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]"), "isolated")


@dataclass(frozen=True)
class Word:
    """A word or a mark of a text, which is text[start:end]."""

    text: str
    start: int
    end: int


def split_words(text: str) -> list[Word]:
    """The words and marks of a text, without the spaces."""
    return [Word(word, *span) for word, span in _WORDS.pre_tokenize_str(text) if not word.isspace()]


@dataclass(frozen=True)
class Term:
    """A term of a glossary where a text has it: as text[start:end]."""

    start: int
    end: int
    target: str
    as_written: bool = False  # whether the target has to keep its case at the start of a sentence
    language: str = ""  # of the target


class Glossary:
    """Terms and their translations.

    Attributes:
        terms: from each source term to its target; an empty target means that the source is copied
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        """Take the terms. Raises DataError for an empty source term or one with control characters."""
        self.terms: dict[str, str] = {}
        for source, target in terms.items():
            if reason := _fault(source, target):
                raise DataError(f"glossary: {reason}")
            self.terms[clean(source)] = clean(target)
        self._exact: dict[str, str] = {}
        self._folded: dict[str, str] = {}  # terms in lower case
        self._longest = 0  # words of a term
        for source, target in self.terms.items():
            words = [word.text for word in split_words(source)]
            self._exact[" ".join(words)] = target
            if source == source.lower():
                self._folded[" ".join(words).casefold()] = target
            self._longest = max(self._longest, len(words))

    @classmethod
    def read(cls, path: str | Path) -> Glossary:
        """Read a file. Raises DataError, with the line, if it cannot be read or a line is wrong."""
        path = Path(path)
        terms: dict[str, str] = {}
        lines: dict[str, int] = {}
        for number, columns in _rows(path):
            where = f"{path}:{number}"
            if len(columns) > 2:
                raise DataError(f"{where}: a term has a source and a target, but this line has {len(columns)} columns.")
            source, target = [*columns, "", ""][:2]
            if reason := _fault(source, target):
                raise DataError(f"{where}: {reason}")
            source, target = clean(source), clean(target)
            if terms.setdefault(source, target) != target:
                raise DataError(
                    f"{where}: '{source}' has another target in line {lines[source]}: keep one of the two lines."
                )
            lines.setdefault(source, number)
        return cls(terms)

    def cleaned(self, data: DataConfig) -> Glossary:
        """The same terms as a model with these settings reads and writes them, for instance in lower case."""
        return Glossary({clean(source, data): clean(target, data) for source, target in self.terms.items()})

    def find(self, text: str, source: str = "", target: str = "") -> list[Term]:
        """The terms in a text, from left to right; they do not overlap. Web and mail addresses have none.

        `source` and `target` are the languages of the terms, whose rules change the case of letters.
        """
        hidden = literals.find(text)
        words = [w for w in split_words(text) if not any(start < w.end and w.start < end for start, end in hidden)]
        terms: list[Term] = []
        for first, word in enumerate(words):
            if terms and word.start < terms[-1].end:
                continue
            for last in range(min(first + self._longest, len(words)), first, -1):
                key = " ".join(word.text for word in words[first:last])
                known = self._exact.get(key, self._folded.get(lower(key, source).casefold()))
                if known is not None:
                    start, end = word.start, words[last - 1].end
                    terms.append(Term(start, end, known or text[start:end], not known, target))
                    break
        return terms


def _fault(source: str, target: str) -> str | None:
    """What is wrong with a term, if anything."""
    for text in (source, target):
        for char in text:
            if unicodedata.category(char) in ("Cc", "Cs") and not char.isspace():
                return f"a term contains the control character U+{ord(char):04X}: remove it."
    if not clean(source):
        return "a term has no source: write SOURCE TAB TARGET, or SOURCE alone to copy it."
    return None


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number and the columns of each line with a term. Empty columns at the end of a line are left out."""
    try:
        raw = reading.read(path, reading.TEXT)
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror}.") from error
    lines = [decode_line(line, str(path), i) for i, line in enumerate(raw.split(b"\n"), 1)]
    some = next((line for line in lines if line and not line.startswith("#")), "")
    separator = "\t" if path.suffix.lower() != ".csv" else ";" if some.count(";") > some.count(",") else ","
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        # A quotation mark is a plain character in a .tsv file.
        try:
            columns = line.split("\t") if separator == "\t" else next(csv.reader([line], delimiter=separator))
        except csv.Error as error:
            raise DataError(f"{path}:{number}: {error}; quote cells that contain commas or quotes.") from error
        columns = [column.strip() for column in columns]
        while columns and not columns[-1]:
            columns.pop()
        yield number, columns
