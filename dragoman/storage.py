"""Writing files and folders so that they survive a crash or a power cut, and one clear error when the disk fails.

    with atomic_folder(Path("exports/onnx")) as folder:          # a new folder beside it, with a hidden name
        (folder / "model.onnx").write_bytes(...)                 # which appears whole or not at all

Two folders cannot be exchanged atomically. So one that already has the name is renamed to `replaced-NAME`, the new one
takes the name, and the old one is deleted. A process killed between the two renames leaves the old one whole under the
other name; the next call with the same name deletes it.
"""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dragoman.errors import StorageError

STALE = 3600  # seconds after which a temporary file belongs to no process that still writes


@contextmanager
def storing(path: Path, needed: int = 0) -> Iterator[None]:
    """Context manager: turn a failure to write, rename or remove at or below `path` into a StorageError."""
    try:
        yield
    except OSError as error:
        place = next(folder for folder in (path, *path.parents) if os.path.exists(folder))
        wanted = f"{needed:,} bytes are needed and " if needed else ""
        free = shutil.disk_usage(place).free
        raise StorageError(
            f"cannot write {path} ({error.strerror or error}): {wanted}{free:,} bytes are free. "
            "Everything saved before is intact: free some space or repair the disk, and run the same command again."
        ) from error


def write_durably(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a new file, and return once it would survive a power cut. A file or link with this name is an error.

    `mode` says who may read and write it, minus the umask.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, mode)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file beside the old one and rename it, so that readers see either the old or the new content."""
    with replacing(path) as temporary:
        write_durably(temporary, data, mode)
    sync(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Context manager: yield the name of a new file beside `path`, which it renames to `path` at the end.

    After an error the new file is removed. What a killed process left is removed with the next file of that name, an
    hour later or more.
    """
    temporary = temporary_name(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # a full disk needs the space
        raise
    with suppress(OSError):  # a leftover does no harm
        remove_temporaries(path.parent, re.escape(path.name), path.stat().st_mtime - STALE)


def temporary_name(path: Path) -> Path:
    """Return a hidden name beside `path` that nobody can foresee, so nobody can put a link there."""
    return path.with_name(f".tmp-{path.name}-{os.urandom(8).hex()}")


def remove_temporaries(folder: Path, name: str = ".+", before: float = math.inf) -> None:
    """Remove what killed processes left in a folder while they replaced files and folders.

    Args:
        name: pattern of the names of those
        before: time, in seconds since the epoch, before which they were last written
    """
    for path in folder.iterdir():
        if re.fullmatch(rf"\.tmp-{name}-[0-9a-f]{{16}}", path.name) and path.lstat().st_mtime < before:
            remove(path)


def remove(path: Path) -> None:
    """Delete a file, a link, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def sync(path: Path) -> None:
    """Make a file, or new and renamed entries of a folder, survive a power cut."""
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync folders
            raise
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents durably."""
    if not path.is_dir():
        make_folder(path.parent)
        os.mkdir(path)
        sync(path.parent)


@contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """Yield an empty folder beside `final`, and rename it to `final` at the end; after an error, remove it.

    What a killed process left is removed by the next call for the same name, an hour later or more.

    Raises StorageError.
    """
    made = temporary_name(final)
    with storing(final):
        make_folder(final.parent)
        remove_temporaries(final.parent, re.escape(final.name), time.time() - STALE)
        os.mkdir(made)
    try:
        yield made
        with storing(final):
            publish(made, final)
    finally:
        shutil.rmtree(made, ignore_errors=True)  # after a failure; a published one has another name by now


def publish(made: Path, final: Path) -> None:
    """Make all files of a folder durable and rename it to `final`, in place of a folder with that name."""
    for path in (*made.rglob("*"), made):
        sync(path)
    replaced = final.with_name(f"replaced-{final.name}")
    if os.path.lexists(final):  # a folder cannot be renamed onto a non-empty one
        discard(replaced)
        os.rename(final, replaced)
    os.rename(made, final)
    sync(final.parent)
    discard(replaced)


def discard(folder: Path) -> None:
    """Delete a folder, if it exists, so that others see it whole or not at all."""
    with suppress(FileNotFoundError):
        hidden = temporary_name(folder.with_name(folder.name.removeprefix("replaced-")))
        os.rename(folder, hidden)
        shutil.rmtree(hidden)
