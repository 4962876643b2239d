"""Reading files of limited size, so that no file decides how much memory it takes.

    read(path, NOTE)                            # all of it, as bytes
    for line in lines(stream.read, name): ...   # piece by piece

This is the one place that reads whole files which another program or person may have written. Corpora have their own
streams, in `corpora.formats.files`, with the same limit for a line. A file that is too large is refused by its size,
before memory is taken for it; what has no size, such as a pipe, is read up to the limit.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

CONFIG = 2**16  # bytes of a config file; the one with every setting and its meaning has 10,000
NOTE = 2**20  # bytes of what this program notes for itself, such as a manifest: a few kilobytes in practice
TEXT = 2**26  # bytes of a tokenizer, a glossary, a list of words, the report of a run
TABLE = 2**30  # bytes of a test set and its translations
LONGEST_LINE = 2**24  # bytes of a line of text, with its end
BLOCK = 2**18  # bytes that a stream is asked for


def read(path: Path, most: int, plain: bool = False) -> bytes:
    """Read a whole file. With `plain`, refuse links, folders, pipes and devices before a byte is read.

    Raises:
        OSError: the file has more than `most` bytes, is refused or cannot be read; `strerror` says which.
    """
    with open_plain(path) if plain else open(path, "rb") as file:
        status = os.fstat(file.fileno())
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        if size > most:
            raise _too_large(path, most)
        data = file.read(size + 1)
        if len(data) > size:  # a pipe, or a file that grows
            data += file.read(most + 1 - len(data))
    if len(data) > most:
        raise _too_large(path, most)
    return data


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading, but no link, folder, pipe or device. Raises OSError."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

    def opener(name: str, _: int) -> int:
        _check_plain(path, path.lstat().st_mode)  # first: to open a device may already have an effect
        descriptor = os.open(name, flags)
        try:
            _check_plain(path, os.fstat(descriptor).st_mode)  # again: it may have been exchanged in between
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    return open(path, "rb", opener=opener)


def lines(read: Callable[[int], bytes], name: str) -> Iterator[list[bytes]]:
    """Yield the lines of a stream without their ends, as many at a time as `read` returns. Only LF ends a line.

    Raises:
        OSError: a line is longer than LONGEST_LINE; `strerror` gives its number, and all lines before it were yielded.
    """
    rest, number = b"", 1
    while block := read(BLOCK):
        *whole, rest = (rest + block).split(b"\n")
        yield whole
        number += len(whole)
        if len(rest) > LONGEST_LINE:
            raise OSError(errno.EFBIG, f"line {number} is longer than {shown(LONGEST_LINE)}", name)
    if rest:
        yield [rest]


def shown(size: int) -> str:
    """Return a limit as people write it."""
    return f"{size // 2**20:,} MiB" if size >= 2**20 else f"{size // 2**10} KiB"


def _too_large(path: Path, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {shown(most)}, the most that is read of such a file", str(path))


def _check_plain(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a link, a folder or a device, not a plain file", str(path))
