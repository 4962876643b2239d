"""Wrapped text, as in a mail, as a document of `markup`: its paragraphs are translated, not its lines.

    translate_markup(translator, "> I am looking\\n> for the station.", "paragraphs")     # "> Cerco la stazione."
    broken_lines(["I am looking for the", "station. Where is it?"])                      # [0]

Each paragraph becomes one line, behind the quotation marks, the indentation and the bullet of its first line. Blank
lines and lines without words stay as they are. A new paragraph begins after these, where quotation or indentation
changes, at a bullet, and where the line above ends so early that the next word would have had room on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from dragoman.console import display_width
from dragoman.text.marks import CLOSING_MARKS, FINAL_MARKS, PAUSES, UNSPACED

if TYPE_CHECKING:
    from dragoman.documents.inline import Content

NARROWEST = 30  # columns: shorter lines, as in an address, are not wrapped
FULL_LINE = 0.75  # of the width, with the next word: editors wrap at different widths
SHORT_LINE = 0.4  # of the width: the next line does not continue a shorter one, as in a list
LONGEST_WORD = 40  # lines with a longer one, such as an address, do not count for the width
BROKEN_SHARE = 0.3  # of the line ends of wrapped text are inside sentences
ENDING_SHARE = 0.1  # of the lines of wrapped text have the end of a sentence; skip text without punctuation
_LINE = re.compile(r"((?:\s*>)*)(\s*)((?:[-*+•◦–]|\(?(?:\d{1,3}[.)]|[a-z]\)))\s+)?(.*)")
_SPACELESS = re.compile(rf"[{UNSPACED}\u3000-\u303f\uff01-\uff65]")  # letters and marks
_END = re.compile(rf"[{FINAL_MARKS}][{re.escape(CLOSING_MARKS)}]*(?:\s|$)")
_FINAL = re.compile(rf"[{FINAL_MARKS}:][{re.escape(CLOSING_MARKS)}]*$")


@dataclass(frozen=True)
class Line:
    """A line of a text, taken apart."""

    number: int  # from 0
    raw: str
    quote: str  # the quotation marks before the text, with the blanks between them
    indent: str
    bullet: str  # with the blanks after it
    text: str

    @classmethod
    def of(cls, number: int, raw: str) -> Line:
        """Take a line apart."""
        match = _LINE.fullmatch(raw.rstrip())
        assert match, "every line matches"
        return cls(number, raw, *match.groups(""))

    @property
    def has_words(self) -> bool:
        """Whether there is something to translate; a mark alone is the end of a French question."""
        return any(map(str.isalnum, self.text)) or self.text in tuple(FINAL_MARKS + PAUSES + CLOSING_MARKS)

    @cached_property
    def width(self) -> int:
        """Its columns on a terminal."""
        return display_width(self.raw.rstrip().expandtabs())


class ParagraphsDocument:
    """A text as paragraphs. See `markup.Document`."""

    def __init__(self, text: str) -> None:
        """Find the paragraphs."""
        from dragoman.documents.inline import Inline  # slow to import

        self._parts: list[list[Line]] = []
        for block in _blocks(text.split("\n")):
            self._parts += _paragraphs(block) if block[0].has_words else [[line] for line in block]
        self.inlines = [Inline(_joined(part)) for part in self._parts if part[0].has_words]

    def write(self, contents: Sequence[Content]) -> str:
        """See `markup.Document`."""
        written = iter(contents)
        lines = []
        for [first, *_] in self._parts:
            prefix = first.quote + first.indent + first.bullet
            lines.append(prefix + "".join(map(str, next(written))) if first.has_words else first.raw)
        return "\n".join(lines)


def broken_lines(lines: Sequence[str]) -> list[int]:
    """The indices of the lines that end inside a sentence, in blocks of text that look wrapped."""
    numbers: list[int] = []
    for block in filter(lambda block: block[0].has_words, _blocks(lines)):
        pairs = [pair for part in _paragraphs(block) for pair in pairwise(part)]
        broken = [
            line.number for line, following in pairs if not _FINAL.search(line.text) and not following.text[0].isupper()
        ]
        ending = sum(_END.search(line.text) is not None for line in block)
        if ending >= ENDING_SHARE * len(block) and len(broken) >= BROKEN_SHARE * (len(block) - 1):
            numbers += broken
    return numbers


def _blocks(lines: Sequence[str]) -> Iterator[list[Line]]:
    """Consecutive lines that are quoted alike and have words, or have none."""
    parsed = [Line.of(number, line) for number, line in enumerate(lines)]
    for _, block in groupby(parsed, lambda line: (line.quote.count(">"), line.has_words)):
        yield list(block)


def _paragraphs(block: Sequence[Line]) -> list[list[Line]]:
    """Split lines with words into paragraphs."""
    width = max([NARROWEST, *(line.width for line in block if max(map(len, line.text.split())) <= LONGEST_WORD)])
    paragraphs = [[block[0]]]
    for line, following in pairwise(block):
        if _has_its_shape(following, paragraphs[-1]) and _is_wrapped(line, following, width):
            paragraphs[-1].append(following)
        else:
            paragraphs.append([following])
    return paragraphs


def _has_its_shape(line: Line, part: Sequence[Line]) -> bool:
    """Whether a line can be a further line of a paragraph by its indentation and bullet."""
    first, last = part[0], part[-1]
    if line.bullet:  # a dash or a number in a sentence looks like one
        inside = not first.bullet or len(line.indent) > len(first.indent)
        return inside and line.indent == last.indent and not _FINAL.search(last.text)
    if len(part) > 1:
        return line.indent == last.indent
    return len(line.indent) >= len(first.indent) if first.bullet else len(line.indent) <= len(first.indent)


def _is_wrapped(line: Line, following: Line, width: int) -> bool:
    """Whether a line ended because it was full, or where no sentence ends."""
    start = following.bullet or following.text
    word = start[0] if _SPACELESS.match(start) else f" {start.split()[0]}"
    if line.width + display_width(word) > max(FULL_LINE * width, NARROWEST):
        return True
    ends = line.text[-1] in FINAL_MARKS + PAUSES + CLOSING_MARKS
    return following.text[0].islower() and not following.bullet and not ends and line.width > SHORT_LINE * width


def _joined(part: Sequence[Line]) -> str:
    """Join the lines of a paragraph: with a space, except in scripts without spaces and after a hyphen in a word."""
    whole = part[0].text
    for line in part[1:]:
        text = line.bullet + line.text
        hyphenated = whole[-1] in "-‐" and whole[-2:-1].isalpha() and text[0].isalnum()
        direct = hyphenated or (_SPACELESS.match(whole[-1]) and _SPACELESS.match(text))
        whole = whole[:-1] + text if whole.endswith("\u00ad") else whole + " " * (not direct) + text
    return whole
