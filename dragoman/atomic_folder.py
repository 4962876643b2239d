"""An output folder that appears complete or not at all, even if the process is killed."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from dragoman import storage

LOCK_NAME = re.compile(r"\.tmp-(?P<output>.+)-[a-z0-9_]{8}\.lock")


@contextmanager
def atomic_folder(output: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `output`; on success rename it to `output`, otherwise remove it.

    A folder that already lies at `output` is replaced. While the temporary folder is being filled, this process holds a
    lock file beside it. The lock ends with the process, so the next export can tell what a killed one left behind.

    Raises StorageError.
    """
    with storage.storing(output):
        new_parent = not output.parent.exists()
        output.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(output.parent)
        handle, name = tempfile.mkstemp(prefix=f".tmp-{output.name}-", suffix=".lock", dir=output.parent)
        os.close(handle)
        lock = FileLock(name, timeout=0)
        lock.acquire()
        temporary = Path(name).with_suffix("")
        temporary.mkdir(mode=0o755)
    old = _old(temporary)
    try:
        yield temporary
        with storage.storing(output):
            if os.path.lexists(output):
                output.rename(old)
            try:
                temporary.rename(output)
            except OSError:
                if old.exists():
                    old.rename(output)
                raise
    finally:
        _remove(temporary, old)
        lock.release()
        Path(name).unlink(missing_ok=True)
        if new_parent:
            with suppress(OSError):
                output.parent.rmdir()


def remove_leftovers(folder: Path) -> None:
    """Remove what killed exports left in a folder: temporary folders whose lock file no process holds.

    A previous export that was about to be replaced gets its name back. Files without such a lock belong to the user and
    stay.
    """
    for path in folder.glob(".tmp-*.lock"):
        named = LOCK_NAME.fullmatch(path.name)
        temporary = path.with_suffix("")
        old = _old(temporary)
        if not named or not path.is_file() or not (temporary.is_dir() or old.is_dir()):
            continue  # a lock without a folder may belong to an export that is about to make it
        lock = FileLock(path, timeout=0)
        with suppress(Timeout, OSError), lock:  # a leftover that cannot be removed does no harm
            output = folder / named["output"]
            if old.is_dir() and not os.path.lexists(output):
                old.rename(output)
            _remove(temporary, old)
            path.unlink(missing_ok=True)


def _old(temporary: Path) -> Path:
    """Where the folder that is being replaced lies between two renames."""
    return temporary.with_name(f"{temporary.name}-old")


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
