"""One training per run folder, and one cleaning per output folder."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from dragoman.checkpoint import read_plain
from dragoman.errors import CheckpointError, RunInUseError
from dragoman.serialization import json_bytes, load_json
from dragoman.storage import make_folder, replace_durably, storing


@contextmanager
def lock(run_dir: Path, otherwise: str = "train under another run.name") -> Iterator[None]:
    """Context manager: reserve a folder for this process. The kernel frees it however the process ends.

    Args:
        run_dir: the folder; it is made if necessary
        otherwise: what a user can do who does not want to wait, for the message

    Raises:
        RunInUseError: another process holds it; raised without waiting.
        StorageError: the folder cannot be written.
    """
    holder = run_dir / "run.json"
    guard = FileLock(run_dir / ".lock", timeout=0)
    with storing(run_dir):
        make_folder(run_dir)
        try:
            guard.acquire()
        except Timeout:
            raise RunInUseError(f"{_in_use(run_dir, holder)}: wait until it ends, stop it, or {otherwise}.") from None
    try:
        with storing(holder):
            replace_durably(holder, json_bytes({"pid": os.getpid(), "host": platform.node()}))
        yield
    finally:
        with suppress(OSError):  # if the disk has become read-only, the error already raised says more
            holder.unlink(missing_ok=True)
        guard.release()


def _in_use(run_dir: Path, holder: Path) -> str:
    try:
        who = load_json(read_plain(holder))
        name = f"process {who['pid']} on {who['host']}"
    except (CheckpointError, KeyError, TypeError):  # the holder is just starting or ending
        name = "another process"
    return f"{run_dir} is in use by {name}"
