"""The files from which CTranslate2 runs a checkpoint: read from the user's cache, and made where they are missing.

    files = engine_files(checkpoint.path)      # {"model.bin": b"...", ...}

They are made once for each checkpoint:

    ~/.cache/dragoman/ctranslate2/          a folder that only the user can write
        1-0123456789abcdef.../              named after the format and the hash of the checkpoint's manifest
            model.bin, config.json, ...     what CTranslate2 reads, in float32
            manifest.json                   the size and sha256 of each file, as in a checkpoint

CTranslate2 trusts what it reads, so forged files could make it read or write memory that is not its own. That is why
nothing is read from the folder of a run, which may be somebody else's. To make the files needs torch
(`engine_writer`); to read them does not.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

from dragoman import checkpoint, console
from dragoman.errors import CheckpointError, StorageError
from dragoman.serialization import sha256_of
from dragoman.storage import make_folder, storing

VERSION = 1  # of what `engine_writer` makes
UNUSED = 30 * 24 * 3600  # seconds after which the files of a checkpoint are removed


def engine_files(path: Path) -> dict[str, bytes]:
    """Read the files for the checkpoint in this folder, after making them if they are missing or damaged.

    If they cannot be kept, a warning says so. Raises as `engine_writer.make_files` does.
    """
    identity = sha256_of(checkpoint.read_plain(path / checkpoint.MANIFEST))
    unkept = "the files for CTranslate2 are made at every start: {}"
    try:
        folder = private_folder() / f"{VERSION}-{identity}"
    except StorageError as error:
        console.warn(unkept.format(error))
        return _made(path)
    with suppress(CheckpointError):
        files = checkpoint.read(folder).files
        with suppress(OSError):  # a cache that can only be read
            os.utime(folder)
        return files
    files = _made(path)
    try:
        remove_unused(folder.parent)
        checkpoint.publish(folder, 0, files)
    except StorageError as error:
        if not folder.exists():  # another process may have made it meanwhile
            console.warn(unkept.format(error))
    return files


def _made(path: Path) -> dict[str, bytes]:
    from dragoman.translation.engine_writer import make_files  # slow to import

    return make_files(path)


def cache_folder() -> Path:
    """Return the folder of the files of all checkpoints. The user can delete it at any time."""
    return user_cache_path("dragoman", appauthor=False) / "ctranslate2"


def private_folder() -> Path:
    """Return `cache_folder`, made if it is missing. Raises StorageError if others can write it."""
    try:
        folder = cache_folder()
    except RuntimeError as error:  # no home folder
        raise StorageError(f"{error}.") from error
    with storing(folder):
        if not os.path.lexists(folder):
            make_folder(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise OSError("it is not a folder")
        if os.name != "nt" and (status.st_uid != os.getuid() or status.st_mode & 0o022):
            raise OSError("others can write it")
    return folder


def remove_unused(folder: Path) -> None:
    """Remove the files of checkpoints that have not translated for a month."""
    for old in folder.iterdir():
        with suppress(OSError):  # another process may remove it at the same time
            if old.stat().st_mtime < time.time() - UNUSED:
                shutil.rmtree(old)
