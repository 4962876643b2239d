"""Text, a sentence a line: two files that are aligned line by line, or one file in one language."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from dragoman.corpora.formats.files import File, lines
from dragoman.corpora.formats.units import Say, Units
from dragoman.errors import DataError
from dragoman.settings import DataConfig


def read_parallel(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read parallel text. Raises DataError unless both files have as many lines."""
    source, target = files
    sides = lines(source, data), lines(target, data)
    for number, pair in enumerate(zip_longest(*sides), 1):
        if None in pair:
            more = sum(1 for side in sides for _ in side)
            counts = [number - 1 + (1 + more) * (text is not None) for text in pair]
            raise DataError(
                f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}, but line n of one must be the "
                "translation of line n of the other: find where they diverge."
            )
        yield number, *pair


def read_plain(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read plain text."""
    [file] = files
    return ((number, "", line) for number, line in enumerate(lines(file, data), 1))
