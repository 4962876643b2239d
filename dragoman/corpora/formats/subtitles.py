"""Subtitles (.srt, .vtt, .ass, .ssa) in two languages, aligned by time.

Two cues are a pair if they are on the screen together for more than half of the time that either is. So no cue has two
partners, and a cue without one is left out. Subtitles of two versions of a film, in which few cues agree, are refused.
The two files may have different formats.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from dragoman.corpora.formats.files import File, read_text
from dragoman.corpora.formats.units import Fault, Say, Units, broken, require, require_skip
from dragoman.errors import DataError
from dragoman.settings import DataConfig

SUBTITLES = (".srt", ".vtt", ".ass", ".ssa")
ENOUGH = 0.5  # share of the time of two cues, and share of the shorter file's cues that must have a partner
_TAGS = re.compile(r"</?[a-zA-Z][^<>]*>|\{\\[^{}]*\}")
# Of .ass: lines and curves in place of text; codes and comments; a new line or a hard blank.
_DRAWING, _CODES, _BLANKS = re.compile(r"\{[^{}]*\\p[1-9]"), re.compile(r"\{[^{}]*\}"), re.compile(r"\\[Nnh]")


class Cue(NamedTuple):
    """A text and when it is on the screen."""

    start: timedelta
    end: timedelta
    text: str


def read_subtitles(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read two files of subtitles, or one as plain text. The position is the number of a cue of the first file."""
    faults: list[Fault] = []
    sides = [_cues(file, data, faults) for file in files]
    yield from (broken(number, *fault, data) for number, fault in enumerate(faults, 1))
    if len(sides) == 1:
        if data.source_lang:
            stem, end = files[0].path.with_name(files[0].path.name.partition(".")[0]), files[0].suffix
            raise DataError(
                f"{files[0]} is in one language: name what two files have in common, {stem} for {stem}"
                f".{data.source_lang}{end} and {stem}.{data.target_lang}{end}."
            )
        yield from ((number, "", cue.text) for number, cue in enumerate(sides[0], 1))
        return
    pairs = list(_aligned(*sides))
    both, fewest = f"{files[0]} and {files[1]}", min(map(len, sides))
    if len(pairs) < ENOUGH * fewest:
        raise DataError(
            f"{both} agree in {len(pairs):,} of {fewest:,} cues: are they of the same version of the film? Shift the "
            "times of one of them."
        )
    if pairs:
        say(f"{both}: {len(pairs):,} of {len(sides[0]):,} and {len(sides[1]):,} cues are on the screen together")
    for number, source, target in pairs:
        yield number, source.text, target.text


def _cues(file: File, data: DataConfig, faults: list[Fault]) -> list[Cue]:
    """Return the cues of a file, in order of time, each text in one line without tags; add broken ones to `faults`.

    Raises DataError; for broken ones, unless data.on_bad_line is skip.
    """
    match file.suffix:
        case ".srt":
            read, library = _read_srt, "srt"
        case ".vtt":
            read, library = _read_vtt, "webvtt"
        case _:
            read, library = _read_ass, "pysubs2"
    require(file.suffix, library)
    text = read_text(file, data)
    try:
        cues = [*read(file, text, 1)]
    except DataError as error:
        if file.suffix == ".vtt" and not text.startswith("WEBVTT"):
            raise
        require_skip(error, data)
        cues, line, head = [], 1, "WEBVTT\n\n" if file.suffix == ".vtt" else ""
        for part in re.split(r"(?<=\n)" if read is _read_ass else r"(?<=\n)[ \t]*\n", text.removeprefix("WEBVTT")):
            try:
                cues += read(file, head + part, line - head.count("\n"))
            except DataError as each:
                faults.append(Fault(" ".join(part.split())[:300], each))
            line += part.count("\n") + (read is not _read_ass)
    return sorted((cue._replace(text=" ".join(cue.text.split())) for cue in cues), key=lambda cue: cue[:2])


def _read_srt(file: File, text: str, first: int) -> Iterator[Cue]:
    import srt

    try:
        for cue in srt.parse(text):
            if "-->" in cue.content:  # the library takes some broken cues for text of the one before
                broken = next(line for line in cue.content.split("\n") if "-->" in line)
                raise _no_cue(file, text, text.index(broken), first)
            yield Cue(cue.start, cue.end, _TAGS.sub("", cue.content))
    except srt.SRTParseError as error:
        raise _no_cue(file, text, error.expected_start, first) from error


def _no_cue(file: File, text: str, start: int, first: int) -> DataError:
    line = text.count("\n", 0, start) + first
    return DataError(f"{file}:{line}: this is no cue of a number, two times and a text.")


def _read_vtt(file: File, text: str, first: int) -> Iterator[Cue]:
    import webvtt
    from webvtt.errors import MalformedCaptionError, MalformedFileError

    def fails(count: int) -> bool:
        try:
            webvtt.from_string("\n".join(lines[:count]), strict=True)
        except MalformedCaptionError:
            return True
        return False

    lines = text.split("\n")
    try:
        captions = webvtt.from_string(text, strict=True).captions
    except MalformedFileError as error:
        raise DataError(f"{file}:1: the first line must start with WEBVTT: is this another format?") from error
    except MalformedCaptionError as error:  # it does not say where
        line = first + bisect_left(range(1, len(lines)), True, key=fails)
        raise DataError(f"{file}:{line}: this is no cue of two times and a text: fix the times.") from error
    for caption in captions:
        start, end = (timedelta(milliseconds=each.in_milliseconds()) for each in (caption.start_time, caption.end_time))
        yield Cue(start, end, html.unescape(caption.text))


def _read_ass(file: File, text: str, first: int) -> Iterator[Cue]:
    from pysubs2 import SSAFile

    for number, line in enumerate(text.split("\n"), first):
        if line.startswith("Dialogue:") and not _DRAWING.search(line):
            try:  # each line alone, to know its number
                [event] = SSAFile.from_string(line, format_=file.suffix[1:])
            except ValueError as error:
                raise DataError(f"{file}:{number}: {error}: fix this line, or remove it.") from error
            start, end = (timedelta(milliseconds=each) for each in (event.start, event.end))
            yield Cue(start, end, _BLANKS.sub(" ", _CODES.sub("", event.text)))


def _aligned(sources: Sequence[Cue], targets: Sequence[Cue]) -> Iterator[tuple[int, Cue, Cue]]:
    """Yield the cues that are on the screen together, with the number of the first, from 1."""
    start = 0
    for number, source in enumerate(sources, 1):
        while start < len(targets) and targets[start].end <= source.start:
            start += 1
        for target in targets[start:]:
            if target.start >= source.end:
                break
            shared = min(source.end, target.end) - max(source.start, target.start)
            if shared > ENOUGH * (max(source.end, target.end) - min(source.start, target.start)) > timedelta(0):
                yield number, source, target
                break
