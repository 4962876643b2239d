"""Writing files so that they survive a crash or a power cut, and one clear error when the disk fails."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dragoman.errors import StorageError


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


def write_durably(path: Path, data: bytes) -> None:
    """Write a file, and return once it would survive a power cut."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o666)  # minus the umask
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, data: bytes) -> None:
    """Write a file beside the old one and rename it, so that readers see either the old or the new content."""
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        write_durably(temporary, data)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk needs the space
        raise
    sync(path.parent)


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
