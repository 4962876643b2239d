"""The files from which CTranslate2 runs a checkpoint: found, verified, and made where they are missing.

    files = engine_files(checkpoint.path)      # {"model.bin": b"...", ...}

They are made once for each checkpoint, in exports/ of its run or, if that cannot be written, in the user's cache:

    exports/engine-0123456789abcdef/    named after the hash of the checkpoint's manifest
        model.bin, config.json, ...     what CTranslate2 reads, in float32
        engine.json                     that hash, and the size and sha256 of every other file, signed

As for a checkpoint, the verified bytes are the bytes used. But CTranslate2 trusts what it reads, so forged files could
make it read or write memory that is not its own. So this program signs the files with a key of the user. What came
with another's run, is damaged, or was made by another version of this format is made again. To make them needs torch
(`engine_writer`); to read them does not.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from dragoman import checkpoint, console
from dragoman.errors import CheckpointError, EngineError, StorageError
from dragoman.serialization import json_bytes, sealed, sha256_of, unsealed
from dragoman.storage import make_folder, replace_durably, storing

MARK = "engine.json"
KEY = "engine.key"  # in the user's cache
KEY_BYTES = 32
VERSION = 1  # of what `engine_writer` writes
NEEDED = ("model.bin", "config.json")  # of what CTranslate2 reads; the names of its vocabularies differ


def engine_files(path: Path) -> dict[str, bytes]:
    """Read the files for the checkpoint in this folder, after making them if they are missing.

    Raises EngineError if CTranslate2 cannot run this model, and CheckpointError for a damaged checkpoint.
    """
    identity = sha256_of(checkpoint.read_plain(path / checkpoint.MANIFEST))
    folders = _places(path, identity)
    for folder in folders:
        try:
            return _read(folder, identity)
        except CheckpointError:  # missing or damaged
            continue
    from dragoman.translation.engine_writer import write  # slow to import

    folder = next((each for each in folders if _is_writable(each.parent)), None)
    if folder is None:
        raise EngineError(f"the files for CTranslate2 can be written to none of {', '.join(map(str, folders))}.")
    if folder != folders[0]:
        console.warn(f"{folders[0].parent} cannot be written, so the files for CTranslate2 are made in {folder}, once")
    try:
        write(path, folder, identity)
        return _read(folder, identity)
    except StorageError as error:
        raise EngineError(f"the files for CTranslate2 cannot be written: {error}") from error


def _read(folder: Path, identity: str) -> dict[str, bytes]:
    """Read and verify the files in a folder. Raises CheckpointError."""
    mark = unsealed(checkpoint.read_plain(folder / MARK))
    if mark.get("version") != VERSION or mark.get("checkpoint") != identity:
        raise CheckpointError(f"{folder} belongs to another checkpoint.")
    if not hmac.compare_digest(str(mark.pop("signature", "")).encode(), _signature(mark).encode()):
        raise CheckpointError(f"{folder} was not made by this user.")
    entries = checkpoint.checked_entries(mark.get("files"), folder / MARK)
    return checkpoint.read_entries(folder, entries, {*NEEDED, *entries})


def signed(mark: dict[str, Any]) -> bytes:
    """The content of MARK, with the user's signature."""
    return sealed({**mark, "signature": _signature(mark)})


def _signature(mark: dict[str, Any]) -> str:
    return hmac.new(_key(user_cache() / KEY), json_bytes(mark), hashlib.sha256).hexdigest()


@cache
def _key(path: Path) -> bytes:
    """The user's key, made once. If it cannot be kept, one for this process: the next one makes its files again."""
    try:
        return checkpoint.read_plain(path, KEY_BYTES)
    except CheckpointError:
        found = os.urandom(KEY_BYTES)
    try:
        with storing(path):
            make_folder(path.parent)
            replace_durably(path, found, mode=0o600)
        return checkpoint.read_plain(path, KEY_BYTES)  # another process may have made one at the same time
    except (StorageError, CheckpointError) as error:
        console.warn(f"the files for CTranslate2 are made at every start: {error}")
        return found


def _places(path: Path, identity: str) -> list[Path]:
    """Where the files for a checkpoint may lie: in its run, if it is in one, and in the user's cache."""
    name = f"engine-{identity[:16]}"
    path = path.absolute()
    run = path.parent.parent if path.parent.name == "checkpoints" else path.parent
    in_run = [run / "exports" / name] if (run / "checkpoints").is_dir() else []
    return [*in_run, user_cache() / name]


def user_cache() -> Path:
    """Return the folder of this program in the user's cache.

    It serves runs that cannot be written, such as those of another user. Nothing is ever removed from it, because any
    run may still need its files. The user can delete it at any time.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification says to ignore a relative path
        match sys.platform:
            case "win32":
                base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
            case "darwin":
                base = Path.home() / "Library" / "Caches"
            case _:
                base = Path.home() / ".cache"
    return Path(base, "dragoman")


def _is_writable(folder: Path) -> bool:
    """Whether a folder can be written, or made if it does not exist."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return os.access(existing, os.W_OK | os.X_OK)
