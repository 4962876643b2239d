"""What to translate: arguments, a file, or standard input, as blocks of lines."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dragoman import console, reading
from dragoman.corpora.formats.files import File, lines
from dragoman.errors import DataError
from dragoman.text.cleaning import AS_WRITTEN, decode_line

LINES = 2_000  # that are translated together, and counted together by the progress bar


@dataclass(frozen=True)
class Input:
    """Lines to translate."""

    name: str  # for messages about a line
    blocks: Iterator[list[str]]
    lines: int | None = None  # how many, if that is known in advance
    markup: str = ""  # what the whole is, for `documents.markup`; nothing: each line is a text of its own


def find_input(options: argparse.Namespace) -> Input:
    """The lines that the options name. Raises DataError if they cannot be read or are not text."""
    markup = options.markup if options.markup not in (None, "none") else "paragraphs" if options.paragraphs else ""
    if options.sentences:
        # From bytes, so that an argument that is not UTF-8 gets the same message as such a line.
        texts = [decode_line(os.fsencode(text), "argument", i) for i, text in enumerate(options.sentences, 1)]
        for text in options.sentences:
            if os.path.exists(text):
                console.warn(f"{text} is taken as a sentence; to translate what has this name, use --input {text}")
        return Input("argument", iter([texts]), markup=markup)
    if options.input:
        name = str(options.input)
        if options.input.is_file() and _is_utf16(options.input):
            texts = [*lines(File(options.input), AS_WRITTEN)]
            return Input(name, iter([texts]), len(texts), markup=markup)
        return Input(name, _blocks(_open(options.input), name), _count(options.input), markup=markup)
    return Input("stdin", _blocks(sys.stdin.buffer, "stdin"), markup=markup)


def pairs_to_score(texts: Sequence[str], name: str, first: int, language_model: bool) -> list[tuple[str, str]]:
    """Sources and translations: lines of two columns, or alternating arguments; a language model has texts alone.

    Raises DataError for a line that does not have two columns.
    """
    if language_model:
        return [("", text) for text in texts]
    if name == "argument" and len(texts) % 2 == 0 and not any("\t" in text for text in texts):
        return list(zip(texts[::2], texts[1::2], strict=True))
    pairs = [tuple(text.split("\t")) for text in texts]
    for number, pair in enumerate(pairs, first):
        if len(pair) != 2:
            raise DataError(f"{name}:{number}: this must be SOURCE TAB TRANSLATION, but it has {len(pair)} columns.")
    return [(source, target) for source, target in pairs]


def _blocks(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    """The lines of a stream, as many at a time as have arrived: one from a person, up to LINES from a file.

    So a filter answers each line at once, and a file is still translated in full batches. Raises DataError for a line
    that is not UTF-8 or far too long, after yielding those before it.
    """
    number = 1
    try:
        for lines in reading.lines(stream.fileno(), name):
            for start in range(0, len(lines), LINES):
                texts: list[str] = []
                try:
                    for line in lines[start : start + LINES]:
                        texts.append(decode_line(line, name, number))
                        number += 1
                finally:
                    if texts:
                        yield texts
    except OSError as error:
        raise DataError(f"{name}: {error.strerror}.") from error


def _count(path: Path) -> int | None:
    """How many lines a file has; None for a pipe, which can be read only once."""
    if not path.is_file():
        return None
    with _open(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))


def _is_utf16(path: Path) -> bool:
    with _open(path) as file:
        return (start := file.read(4))[:2] in (b"\xff\xfe", b"\xfe\xff") and b"\0\0" not in start


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror}.") from error
