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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import IO, Any

from dragoman import resources
from dragoman.corpora.formats.units import BROKEN, require_skip
from dragoman.errors import DataError
from dragoman.reading import BLOCK, LONGEST_LINE, shown
from dragoman.settings import DataConfig
from dragoman.text.cleaning import decode_line

LONGEST_SHOWN = 300  # bytes of a line that is too long
LONGEST_WHOLE = 2**28  # bytes of a file that is read into memory


def _open_zst(stream: Any, mode: Any = "rb") -> Any:
    try:
        from compression import zstd  # pyright: ignore[reportMissingImports]  # Python 3.14
    except ImportError:
        resources.require("formats", ["backports.zstd"], "reading .zst files")
        from backports import zstd
    return zstd.open(stream, mode)


PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _open_zst}


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


def sha256_of_file(path: Path) -> str:
    """The sha256 of a file, as it is on the disk. Raises DataError."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


@contextmanager
def open_unpacked(file: File) -> Iterator[Any]:
    """Open a file for reading bytes, unpacked. It has `read`, `readline` and `peek`. Raises DataError."""
    with damage_refused(file):
        if file.member:
            with zipfile.ZipFile(file.path) as archive, archive.open(file.member) as stream:
                yield stream
        else:
            unpack = PACKED.get(file.path.suffix)
            with open(file.path, "rb", BLOCK) as raw, unpack(raw) if unpack else raw as stream:
                yield stream


def packing(path: Path, stream: Any) -> AbstractContextManager[Any]:
    """Context manager: pack what is written to a stream as the ending of its name says. Packed files can be joined."""
    if path.suffix == ".gz":  # without name and time, so that the same text gives the same bytes
        return gzip.GzipFile("", "wb", fileobj=stream, mtime=0)
    return PACKED[path.suffix](stream, "wb") if path.suffix in PACKED else nullcontext(stream)


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
    with open_unpacked(file) as stream:
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
    with open_unpacked(file) as stream:
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


def seekable(file: File) -> IO[bytes]:
    """Open a file for a library that seeks in it; what is packed is read into memory. Raises DataError."""
    if file.member or file.path.suffix in PACKED:
        return io.BytesIO(read_whole(file))
    try:
        return open(file.path, "rb")
    except OSError as error:
        raise unreadable(file, error) from error
