"""Subtitles (.srt, .vtt, .ass, .ssa) in two languages, aligned by time.

Two cues are a pair if they are on the screen together for more than half of the time that either is. So no cue has two
partners, and a cue without one is left out. Subtitles of two versions of a film, in which few cues agree, are refused.
The two files may have different formats.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from dragoman import resources
from dragoman.corpora.formats.files import File, read_text
from dragoman.corpora.formats.units import Fault, Say, Units, broken
from dragoman.errors import DataError
from dragoman.settings import DataConfig

SUBTITLES = (".srt", ".vtt", ".ass", ".ssa")
ENOUGH = 0.5  # share of the time of two cues, and share of the shorter file's cues that must have a partner


class Cue(NamedTuple):
    """A text and when it is on the screen, in milliseconds."""

    start: int
    end: int
    text: str


def read_subtitles(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read two files of subtitles, or one as plain text. The position is the number of a cue of the first file."""
    resources.require("formats", ["pysubs2"], f"reading {files[0].suffix} files")
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
            f"only {len(pairs):,} of {fewest:,} cues of {both} overlap: use subtitles of the same version of the film, "
            "or shift the times of one file."
        )
    if pairs:
        say(f"{both}: {len(pairs):,} of {len(sides[0]):,} and {len(sides[1]):,} cues are on the screen together")
    for number, source, target in pairs:
        yield number, source.text, target.text


def _cues(file: File, data: DataConfig, faults: list[Fault]) -> list[Cue]:
    """Return the cues of a file, in order of time, each text in one line without tags; add broken ones to `faults`."""
    from pysubs2 import SSAFile

    cues = []
    for line, part in _parts(read_text(file, data), file.suffix):
        try:
            [event] = SSAFile.from_string(part, format_=file.suffix[1:])
        except ValueError:
            shown = " ".join(part.split())[:300]
            message = f"{file}:{line}: expected two times and a text: fix this line, or remove it."
            faults.append(Fault(shown, DataError(message)))
            continue
        if event.is_text:  # not a comment or a drawing
            text = html.unescape(event.plaintext) if file.suffix == ".vtt" else event.plaintext
            cues.append(Cue(event.start, event.end, " ".join(text.split())))
    return sorted(cues)


def _parts(text: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Cut a file into its cues, each with the number of its first line, so that a broken cue costs no other."""
    lines = text.split("\n")
    if suffix in (".ass", ".ssa"):
        yield from ((number, line) for number, line in enumerate(lines, 1) if line.startswith("Dialogue:"))
        return
    starts = [i for i, line in enumerate(lines) if "-->" in line]
    for start, end in pairwise([*starts, len(lines) + 1]):
        cue = lines[start : end - 1]  # without the line before the times of the next cue, which has its number
        if suffix == ".vtt":  # comments and names of cues follow a blank line; times in a text highlight its words
            cue = [re.sub(r"<[\d:.]+>", "", line) for line in cue[: cue.index("") if "" in cue else None]]
        yield start + 1, "\n".join([*cue, "", "0"])  # the library drops a number at the end


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
            if shared > ENOUGH * (max(source.end, target.end) - min(source.start, target.start)) > 0:
                yield number, source, target
                break
