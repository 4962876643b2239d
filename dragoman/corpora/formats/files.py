"""Files as streams: as they are, packed (.gz, .bz2, .xz, .zst), or members of a .zip, which are never extracted.

Memory holds a block of a packed file, and a line of at most LONGEST_LINE bytes, however far the file unpacks.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from dragoman.corpora.cleaning import decode_line
from dragoman.corpora.formats.units import require
from dragoman.errors import DataError
from dragoman.settings import DataConfig

LONGEST_LINE = 2**24  # bytes
LONGEST_WHOLE = 2**28  # bytes of a file that is read into memory


def _open_zst(path: Path) -> Any:
    try:
        from compression import zstd  # pyright: ignore[reportMissingImports]  # Python 3.14
    except ImportError:
        require(".zst", "backports.zstd")
        from backports import zstd
    return zstd.open(path)


PACKED: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _open_zst}


@dataclass(frozen=True)
class File:
    """A file that may be packed, or a member of a .zip."""

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return str(self.path / self.member)

    @property
    def name(self) -> PurePath:
        """Its name when unpacked, without folders."""
        name = PurePath(PurePath(self.member or self.path).name)
        return name.with_suffix("") if not self.member and name.suffix in PACKED else name

    @property
    def suffix(self) -> str:
        return self.name.suffix


def unreadable(path: object, error: OSError) -> DataError:
    """Return the error for a file that the system will not read."""
    return DataError(f"{path} cannot be read: {error.strerror or error}.")


@contextmanager
def opened(file: File) -> Iterator[Any]:
    """Open a file for reading bytes, unpacked. It has `read`, `readline` and `peek`. Raises DataError."""
    try:
        if file.member:
            with zipfile.ZipFile(file.path) as archive, archive.open(file.member) as stream:
                yield stream
        else:
            with PACKED.get(file.path.suffix, partial(open, mode="rb"))(file.path) as stream:
                yield stream
    except OSError as error:
        raise unreadable(file, error) from error
    # A password is a RuntimeError, and an unknown method of packing a NotImplementedError. The error of the library
    # for .zst is imported with it, so its name must do.
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError) as error:
        raise DataError(f"{file} is damaged, or packed in a way that is not known: {error}.") from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise DataError(f"{file} is damaged: {error}.") from error


def lines(file: File, data: DataConfig) -> Iterator[str]:
    """Yield the lines of a text file, which only LF ends. UTF-16 is read if the file starts with its mark.

    Python's text files, `splitlines` and the text reader of `datasets` also end lines at some of CR, FF, NEL and
    U+2028. One such character in one of two parallel files would shift the rest by a line.
    """
    with opened(file) as stream:
        start = stream.peek(4)[:4]
        if start[:2] in (b"\xff\xfe", b"\xfe\xff") and b"\0\0" not in start:  # two zeros: UTF-32
            yield from _utf16_lines(file, stream)
            return
        strict, name = data.on_bad_line == "error", str(file)
        for number, raw in enumerate(iter(partial(stream.readline, LONGEST_LINE), b""), 1):
            if len(raw) == LONGEST_LINE:
                raise _too_long(file, number)
            yield decode_line(raw, name, number, strict)


def _utf16_lines(file: File, stream: Any) -> Iterator[str]:
    text = io.TextIOWrapper(stream, encoding="utf-16", newline="\n")
    number = 0
    try:
        for line in iter(partial(text.readline, LONGEST_LINE), ""):
            number += 1
            if len(line) == LONGEST_LINE:
                raise _too_long(file, number)
            if "\0" in line:
                raise DataError(f"{file}:{number}: a NUL, which text never contains: is this UTF-16?")
            yield line.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}, after line {number}: this is not UTF-16 ({error.reason}).") from error


def _too_long(file: File, number: int) -> DataError:
    return DataError(f"{file}:{number}: this line is longer than {LONGEST_LINE // 2**20} MiB: is this a text file?")


def read_whole(file: File) -> bytes:
    """Read a file into memory, unpacked. Raises DataError if it has more than LONGEST_WHOLE bytes."""
    with opened(file) as stream:
        content = stream.read(LONGEST_WHOLE + 1)
    if len(content) > LONGEST_WHOLE:
        raise _too_large(file)
    return content


def read_text(file: File, data: DataConfig) -> str:
    """Read a text file into memory, unpacked, as `lines` does. Raises DataError if it has more than LONGEST_WHOLE."""
    found, size = [], 0
    for line in lines(file, data):
        found.append(line)
        size += len(line) + 1
        if size > LONGEST_WHOLE:
            raise _too_large(file)
    return "\n".join(found)


def _too_large(file: File) -> DataError:
    return DataError(f"{file} is larger than {LONGEST_WHOLE // 2**20} MiB, the most that is read at once: split it.")


def seekable(file: File) -> Path | io.BytesIO:
    """Return what a library that moves about in a file can open: its path, or its content if it is packed."""
    packed = file.member or file.path.suffix in PACKED
    return io.BytesIO(read_whole(file)) if packed else file.path
