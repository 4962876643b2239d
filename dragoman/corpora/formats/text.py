"""Text, a sentence a line: files that are aligned line by line, or one file in one language.

The first file is the source, the second one the target, and the others are further references.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from dragoman.corpora.formats.files import File, lines
from dragoman.corpora.formats.sgm import SGM, segments
from dragoman.corpora.formats.units import Say, Units
from dragoman.corpora.references import reference, references_of
from dragoman.errors import DataError
from dragoman.settings import DataConfig


def read_parallel(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read parallel text. Raises DataError unless all files have as many lines."""
    sides = [segments(file, data) if file.suffix in SGM else lines(file, data) for file in files]
    for number, texts in enumerate(zip_longest(*sides), 1):
        if None in texts:
            counts = [
                number - 1 + (text is not None) + sum(1 for _ in side) for text, side in zip(texts, sides, strict=True)
            ]
            other = next(i for i, count in enumerate(counts) if count != counts[0])
            raise DataError(
                f"{files[0]} has {counts[0]:,} lines and {files[other]} has {counts[other]:,}, but line n of one must "
                "be the translation of line n of the other: find where they diverge."
            )
        if len(texts) == 2:
            yield number, *texts
        else:
            yield number, texts[0], reference([each for text in texts[1:] for each in references_of(text)])


def read_plain(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read plain text."""
    [file] = files
    return ((number, "", line) for number, line in enumerate(lines(file, data), 1))
