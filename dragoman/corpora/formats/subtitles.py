"""Subtitles (.srt) in two languages, aligned by time.

Two cues are a pair if they are on the screen together for more than half of the time that either is. So no cue has two
partners, and a cue without one is left out. Subtitles of two versions of a film, in which few cues agree, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from dragoman.corpora.formats.files import File, read_text
from dragoman.corpora.formats.units import Say, Units, require
from dragoman.errors import DataError
from dragoman.settings import DataConfig

ENOUGH = 0.5  # share of the time of two cues, and share of the shorter file's cues that must have a partner
_TAGS = re.compile(r"</?[a-zA-Z][^<>]*>|\{\\[^{}]*\}")


def read_subtitles(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read two files of subtitles, or one as plain text. The position is the number of a cue of the first file."""
    require(".srt", "srt")
    sides = [_cues(file, data) for file in files]
    if len(sides) == 1:
        if data.source_lang:
            stem = files[0].path.with_name(files[0].path.name.partition(".")[0])
            raise DataError(
                f"{files[0]} is in one language: name what two files have in common, {stem} for {stem}"
                f".{data.source_lang}.srt and {stem}.{data.target_lang}.srt."
            )
        yield from ((number, "", _text(cue)) for number, cue in enumerate(sides[0], 1))
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
        yield number, _text(source), _text(target)


def _cues(file: File, data: DataConfig) -> list[Any]:
    """Return the cues of a file, in order of time. Raises DataError."""
    import srt

    text = read_text(file, data)
    try:
        return list(srt.sort_and_reindex(srt.parse(text), skip=False))
    except srt.SRTParseError as error:
        line = text.count("\n", 0, error.expected_start) + 1
        raise DataError(f"{file}:{line}: this is no cue of a number, two times and a text.") from error


def _aligned(sources: Sequence[Any], targets: Sequence[Any]) -> Iterator[tuple[int, Any, Any]]:
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


def _text(cue: Any) -> str:
    """Return the text of a cue in one line, without tags."""
    return " ".join(_TAGS.sub("", cue.content).split())
