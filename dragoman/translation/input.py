"""What to translate: arguments, a file, or standard input, as blocks of lines."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from dragoman import console, reading
from dragoman.corpora.formats.files import File, lines, open_unpacked
from dragoman.errors import ConfigError, DataError
from dragoman.text.cleaning import AS_WRITTEN, decode_line

LINES = 2_000  # that are translated together, and counted together by the progress bar


@dataclass(frozen=True)
class Input:
    """Lines to translate."""

    name: str  # for messages about a line
    blocks: Iterator[list[str]]
    sizes: Sequence[int] | None = None  # the number of lines of each block, of a file that can be read again
    markup: str = ""  # what the whole is, for `documents.markup`; nothing: each line is a text of its own
    shard: tuple[int, int] | None = None  # (3, 16): these blocks are the third of 16 parts
    first: int = 1  # number of the first line


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
    if options.input and options.input.is_file():
        return _of_file(options, markup)
    name = str(options.input or "stdin")
    try:
        descriptor = os.open(options.input, os.O_RDONLY) if options.input else sys.stdin.fileno()
    except OSError as error:
        raise DataError(f"{name}: cannot be opened: {error.strerror}.") from error
    if options.shard:
        raise ConfigError(f"--shard counts the lines first, but {name} can be read only once: name a file.")
    return Input(name, _blocks(partial(os.read, descriptor), name), markup=markup)


def _of_file(options: argparse.Namespace, markup: str) -> Input:
    """The lines of a file, or those of one shard. A shard has whole blocks, so that it is translated like the whole."""
    shard: tuple[int, int] | None = options.shard
    rank, ranks = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
    if ranks > 1 and options.output and not (markup or options.attention):
        shard = shard or (rank + 1, ranks)
    sizes: list[int] = []
    # The whole raises an error again behind the lines before it, which are translated first.
    with nullcontext() if shard else suppress(DataError):
        for texts in _blocks_of_file(options.input):
            sizes.append(len(texts))
    number, count = shard or (1, 1)
    start, end = (len(sizes) * k // count for k in (number - 1, number))
    blocks = islice(_blocks_of_file(options.input), start, end if number < count else None)
    return Input(str(options.input), blocks, sizes[start:end], markup, shard, 1 + sum(sizes[:start]))


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


def _blocks_of_file(path: Path) -> Iterator[list[str]]:
    """The lines of a file that may be packed, always in the same blocks, because batches are made of these.

    Rounding depends on the batch. So a file is translated alike in one go, after a restart, and in shards.
    """
    with open_unpacked(File(path)) as stream:
        start = stream.peek(4)[:4]
        if start[:2] not in (b"\xff\xfe", b"\xfe\xff") or b"\0\0" in start:  # two zeros: UTF-32
            yield from _blocks(stream.read, str(path))
            return
    utf16 = lines(File(path), AS_WRITTEN)
    yield from iter(lambda: [*islice(utf16, LINES)], [])


def _blocks(read: Callable[[int], bytes], name: str) -> Iterator[list[str]]:
    """The lines of a stream, as many at a time as a read returns: one from a person, up to LINES from a file.

    So a filter answers each line at once, and a file is still translated in full batches. Raises DataError for a line
    that is not UTF-8 or far too long, after yielding those before it.
    """
    number = 1
    try:
        for lines in reading.lines(read, name):
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
        raise DataError(f"{name}: {error.strerror or error}.") from error
