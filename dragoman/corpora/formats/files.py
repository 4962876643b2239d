"""Files as streams: as they are, packed (.gz, .bz2, .xz, .zst), or members of a .zip, which are never extracted.

Memory holds a block of a packed file, and a line of at most LONGEST_LINE bytes, however far the file unpacks.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
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

from dragoman.corpora.formats.units import BROKEN, require, require_skip
from dragoman.errors import DataError
from dragoman.reading import BLOCK, LONGEST_LINE, shown
from dragoman.settings import DataConfig
from dragoman.text.cleaning import decode_line

LONGEST_SHOWN = 300  # bytes of a line that is too long
LONGEST_WHOLE = 2**28  # bytes of a file that is read into memory


def _open_zst(stream: Any) -> Any:
    try:
        from compression import zstd  # pyright: ignore[reportMissingImports]  # Python 3.14
    except ImportError:
        require(".zst", "backports.zstd")
        from backports import zstd
    return zstd.open(stream)


class _Hashed(io.RawIOBase):
    """A file that is hashed while it is read from its start to its end."""

    def __init__(self, raw: io.FileIO) -> None:
        self._raw, self._hash = raw, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._raw.readinto(buffer)
        self._hash.update(memoryview(buffer)[:count])
        return count

    def finish(self) -> str:
        """Read the rest, which no format needs, and return the sha256 of all."""
        buffer = bytearray(BLOCK)
        while self.readinto(buffer):
            pass
        return self._hash.hexdigest()


@contextmanager
def _unchanged(raw: io.BufferedReader, file: File) -> Iterator[None]:
    """Context manager: check the hash of an open file, at the end since it is read back and forth. Raises DataError."""
    yield
    raw.seek(0)
    if file.sha256 and _digest(raw) != file.sha256:
        raise changed(file)


def _digest(raw: io.BufferedReader) -> str:
    return hashlib.file_digest(raw, "sha256").hexdigest()


def changed(file: File | Path) -> DataError:
    """Return the error for a file that is another one than when its sha256 was taken."""
    return DataError(
        f"{file} was changed or replaced while it was being read: run the same command again when nothing writes to it."
    )


PACKED: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _open_zst}


@dataclass(frozen=True)
class File:
    """A file that may be packed, or a member of a .zip.

    With a sha256, what is read is compared with it: as it is read, if that is from start to end.
    """

    path: Path
    member: str = ""
    sha256: str = ""  # of the file at `path`; empty: any content is right

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


def sha256_of_file(path: Path) -> str:
    """The sha256 of a file, as it is on the disk. Raises DataError."""
    try:
        with open(path, "rb") as file:
            return _digest(file)
    except OSError as error:
        raise unreadable(path, error) from error


@contextmanager
def opened(file: File) -> Iterator[Any]:
    """Open a file for reading bytes, unpacked. It has `read`, `readline` and `peek`.

    Raises DataError, also at the end if the hash of what was read is not `file.sha256`. A caller that stops earlier
    learns nothing about the hash.
    """
    with damage_refused(file):
        if file.member:
            with (
                open(file.path, "rb") as raw,
                _unchanged(raw, file),
                zipfile.ZipFile(raw) as archive,
                archive.open(file.member) as stream,
            ):
                yield stream
            return
        with open(file.path, "rb", buffering=0) as raw:
            hashed = _Hashed(raw) if file.sha256 else None
            stream, unpack = io.BufferedReader(hashed or raw, BLOCK), PACKED.get(file.path.suffix)
            with unpack(stream) if unpack else stream as stream:
                yield stream
            if hashed and hashed.finish() != file.sha256:
                raise changed(file)


@contextmanager
def damage_refused(file: File | Path) -> Iterator[None]:
    """Context manager: raise DataError where a file cannot be read or unpacked."""
    try:
        yield
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
            yield from _utf16_lines(file, stream, data)
            return
        strict, name = data.on_bad_line == "error", str(file)
        for number, raw in enumerate(iter(partial(stream.readline, LONGEST_LINE), b""), 1):
            if len(raw) == LONGEST_LINE:
                require_skip(_too_long(file, number), data)
                while not raw.endswith(b"\n") and (rest := stream.readline(LONGEST_LINE)):
                    raw = raw[:LONGEST_SHOWN] + b"\xff" + rest[-1:]
            yield decode_line(raw, name, number, strict)


def _utf16_lines(file: File, stream: Any, data: DataConfig) -> Iterator[str]:
    text = io.TextIOWrapper(stream, encoding="utf-16", newline="\n")
    number = 0
    try:
        for line in iter(partial(text.readline, LONGEST_LINE), ""):
            number += 1
            if len(line) == LONGEST_LINE:
                raise _too_long(file, number)
            if "\0" in line:
                require_skip(DataError(f"{file}:{number}: a NUL, which text never contains: is this UTF-16?"), data)
                line = line.replace("\0", BROKEN)
            yield line.removesuffix("\n").removesuffix("\r").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        require_skip(DataError(f"{file}, after line {number}: this is not UTF-16 ({error.reason})."), data)
        yield BROKEN


def _too_long(file: File, number: int) -> DataError:
    return DataError(f"{file}:{number}: this line is longer than {shown(LONGEST_LINE)}: is this a text file?")


def read_whole(file: File) -> bytes:
    """Read a file into memory, unpacked. Raises DataError if it has more than LONGEST_WHOLE bytes."""
    with opened(file) as stream:
        content = stream.read(LONGEST_WHOLE + 1)
    if len(content) > LONGEST_WHOLE:
        raise _too_large(file)
    return content


def read_text(file: File, data: DataConfig) -> str:
    """Read a text file into memory, unpacked, as `lines` does. Raises DataError if it has more than LONGEST_WHOLE."""
    texts, size = [], 0
    for line in lines(file, data):
        texts.append(line)
        size += len(line) + 1
        if size > LONGEST_WHOLE:
            raise _too_large(file)
    return "\n".join(texts)


def _too_large(file: File) -> DataError:
    return DataError(f"{file} is larger than {shown(LONGEST_WHOLE)}, the most that is read at once: split it.")


@contextmanager
def seekable(file: File) -> Iterator[Any]:
    """Open a file for a library that moves about in it; what is packed is read into memory. Raises DataError."""
    if file.member or file.path.suffix in PACKED:
        yield io.BytesIO(read_whole(file))
        return
    try:
        raw = open(file.path, "rb")  # noqa: SIM115  # an OSError of the library is none of this file
    except OSError as error:
        raise unreadable(file, error) from error
    with raw, _unchanged(raw, file):
        yield raw
