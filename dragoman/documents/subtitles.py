"""Subtitles (.srt, .vtt, .ass, .ssa): the lines of a cue are one text, and its translation is broken into lines again.

Numbers, times, positions, styles, comments and drawings stay, and so do the marks of music and of who speaks. Lines
that begin with a dash are said by different people, and are translated apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from dragoman.console import display_width
from dragoman.documents.document import Document
from dragoman.documents.files import TextDocument
from dragoman.documents.segments import TAG, Segment, SegmentedDocument, has_words, tagged
from dragoman.errors import DataError
from dragoman.text.marks import UNSPACED

WIDTH = 42  # characters of a line on the screen, as broadcasters have it
WIDEST = 84  # of a file with longer lines
MOST_BALANCED = 6  # lines
TIMES = re.compile(r"^[^\n]*\d[ \t]*-->[^\n]*\n?", re.MULTILINE)
NUMBER = re.compile(r"\n[ \t]*\d+[ \t\r]*\n\Z")  # of the next cue
# What stands before a text, such as {\\an8}, a voice, a dash, and the marks of music, and what stands behind it.
BEFORE = re.compile(r"(?:\{[^{}]*\}|<v[^<>]*>|\\N|[♪♫#*\s]|[-–—]\s*(?=\S))*")
BEHIND = "♪♫#* \t\r\n"
DASH = re.compile(r"[ \t]*(?:<[^<>]*>|\{[^{}]*\})*[ \t]*[-–—]")
_BREAKS = re.compile(rf"(?<=[{UNSPACED}\u3000-\u303f\uff01-\uff65])(?<![「『（])(?=[{UNSPACED}「『（])")


def parse_subtitles(content: bytes, ending: str, target: str) -> Document:
    """Parse subtitles. Raises DataError if there are no cues."""
    return TextDocument(content, lambda text: _parse(text, ending))


def _parse(text: str, ending: str) -> Document:
    cues, separator = (_of_ass(text), r"\N") if ending in (".ass", ".ssa") else (_of_srt(text, ending), "")
    separator = separator or ("\r\n" if "\r\n" in text else "\n")
    segments = [segment for start, end in cues for segment in _segments(text, start, end, separator, ending)]
    if not segments and text.strip() and not TIMES.search(text) and "Dialogue:" not in text:
        raise DataError("line 1: there is no cue, which has two times and a text: is this another format?")
    return SegmentedDocument(text, segments)


def _of_srt(text: str, ending: str) -> Iterator[tuple[int, int]]:
    """Where the text of each cue is. In WebVTT a blank line ends it; else only the times of the next cue do."""
    starts = [*TIMES.finditer(text)]
    for times, following in pairwise([*starts, None]):
        assert times
        start, end = times.end(), following.start() if following else len(text)
        number = NUMBER.search(text, start - 1, end)
        end = number.start() if number else end
        blank = re.compile(r"^[ \t]*\r?$", re.MULTILINE).search(text, start, end) if ending == ".vtt" else None
        end = max(start, blank.start()) if blank else end
        yield start, start + len(text[start:end].rstrip())


def _of_ass(text: str) -> Iterator[tuple[int, int]]:
    """Where the text of each line of dialogue is: the last column, as `Format` lists them."""
    columns = 10
    for line in re.finditer(r"^(Format|Dialogue):[^\r\n]*", text, re.MULTILINE):
        if line[1] == "Format":
            columns = line[0].count(",") + 1
        else:
            head = re.match(rf"(?:[^,]*,){{{columns - 1}}}", line[0])
            if head and not re.search(r"\{[^{}]*\\p[1-9]", line[0]):  # a drawing
                yield line.start() + head.end(), line.end()


def _segments(text: str, start: int, end: int, separator: str, ending: str) -> Iterator[Segment]:
    """The texts of a cue: one, or one for each person who speaks."""
    line_break = r"\\[Nn]" if separator == r"\N" else r"\r?\n"
    bounds = [start, *(start + each.start() for each in re.finditer(line_break, text[start:end])), end]
    lines = [re.sub(rf"^{line_break}", "", text[a:b]) for a, b in pairwise(bounds)]
    width = min(WIDEST, max(WIDTH, *(display_width(TAG.sub("", line)) for line in lines)))
    if not (len(lines) > 1 and all(map(DASH.match, lines))):
        bounds = [start, end]
    for first, last in pairwise(bounds):
        before = BEFORE.match(text, first, last)
        assert before
        begin = before.end()
        words = text[begin:last].rstrip(BEHIND)
        end = begin + len(words)
        words = " ".join(re.split(rf"{line_break}|\\h|\s+", words))
        if ending == ".vtt":  # times highlight words
            words = re.sub(r"<[\d:.]+>", "", words).replace("&nbsp;", " ").replace("&amp;", "&")
        if has_words(words):
            write = partial(broken, separator=separator, width=width)
            escaped = (lambda text, write=write: write(text).replace("&", "&amp;")) if ending == ".vtt" else write
            yield Segment(begin, end, [tagged(words)], escaped)


def broken(text: str, separator: str, width: int = WIDTH) -> str:
    """A text in as few lines as this width allows, all of about the same length."""
    whole = TAG.sub(lambda tag: tag[0].replace(" ", "\0"), text)
    words = [part for word in whole.split(" ") for part in _parts(word)]
    lines = _filled(words, width)
    if len(lines) <= MOST_BALANCED:
        for limit in range(width - 1, 0, -1):
            narrower = _filled(words, limit)
            if len(narrower) > len(lines):
                break
            lines = narrower
    return separator.join(lines).replace("\0", " ")


def _parts(word: str) -> list[str]:
    """A word with the blank after it, or the letters of a script without blanks."""
    return [part for part in _BREAKS.split(f"{word} ") if part]


def _filled(words: list[str], limit: int) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and display_width(TAG.sub("", lines[-1] + word).rstrip()) > limit:
            lines.append("")
        lines[-1] += word
    return [line.strip() for line in lines]
