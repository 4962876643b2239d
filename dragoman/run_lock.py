"""One training per run folder."""

from __future__ import annotations

import errno
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from dragoman.checkpoint import read_plain
from dragoman.errors import CheckpointError, RunInUseError, StorageError
from dragoman.serialization import json_bytes, load_json
from dragoman.storage import make_folder, remove_temporaries, replace_durably, storing


@contextmanager
def lock(run_dir: Path) -> Iterator[None]:
    """Context manager: reserve a folder for this process. The kernel frees it however the process ends.

    Args:
        run_dir: the folder; it is made if necessary

    Raises:
        RunInUseError: another process holds it; raised without waiting.
        StorageError: the folder cannot be written.
    """
    holder = run_dir / "run.json"
    guard = FileLock(run_dir / ".lock", timeout=0)
    with storing(run_dir):
        make_folder(run_dir)
        try:
            _acquire(guard, run_dir)
        except Timeout:
            advice = "wait until it ends, stop it, or choose another run.name or --output."
            raise RunInUseError(f"{_in_use(run_dir, holder)}: {advice}{_if_stale(guard)}") from None
    try:
        with storing(holder):
            remove_temporaries(run_dir)  # only the process with the lock writes here
            replace_durably(holder, json_bytes({"pid": os.getpid(), "host": platform.node()}))
        yield
    finally:
        with suppress(OSError):  # if the disk has become read-only, the earlier error is more useful
            holder.unlink(missing_ok=True)
        guard.release()


def _acquire(guard: FileLock, run_dir: Path) -> None:
    """Take a lock without waiting. Raises Timeout, OSError, and StorageError if the file system does not support locks.

    Where the kernel's locks are not implemented at all, the library takes the existence of the file for the lock.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "flock not supported")  # `_if_stale` says what follows from it
            guard.acquire()
    except OSError as error:
        if error.errno != errno.ENOLCK:
            raise
        raise StorageError(
            f"cannot lock {run_dir} ({error.strerror}): its file system does not support locks, and more "
            "space would not help. On NFS, start the lock service (rpc.statd), or mount the folder with "
            "local_lock=flock if only one machine trains there. Or put the run on another disk, with --run.dir."
        ) from error


def _if_stale(guard: FileLock) -> str:
    """What to do if the holder of a lock has ended and its file system could not tell: nothing frees such a lock."""
    # Such a lock becomes a SoftFileLock, and since filelock 4.3 it has the `pid` of one instead.
    if not (isinstance(guard, SoftFileLock) or hasattr(guard, "pid")):
        return ""
    return (
        " On this file system, locks outlive their process. If you see on that host that the process has "
        f"ended, delete {guard.lock_file}, and nothing else."
    )


def _in_use(run_dir: Path, holder: Path) -> str:
    try:
        who = load_json(read_plain(holder))
        name = f"process {who['pid']} on {who['host']}"
    except (CheckpointError, KeyError, TypeError):  # the holder is just starting or ending
        name = "another process"
    return f"{run_dir} is in use by {name}"
