"""One training per run folder, and a lock that no crash leaves behind."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import HANG
from dragoman import checkpoint, run_lock
from dragoman.errors import RunInUseError, StorageError
from saved import contents, names

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A process that holds the lock of tmp_path, and a worker that it forked: their pids."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with run_lock.lock(tmp_path):
                worker = os.fork()
                if worker:
                    os.write(sender, str(worker).encode())
                time.sleep(HANG)
        finally:
            os._exit(1)
    worker = int(os.read(receiver, 100))
    try:
        yield child, worker
    finally:
        os.close(receiver)
        os.close(sender)
        os.kill(worker, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_second_training_is_refused_at_once_and_names_the_first(tmp_path: Path, holder: tuple[int, int]) -> None:
    """Guards against two trainings that overwrite each other, and one that waits silently."""
    with pytest.raises(RunInUseError, match=rf"process {holder[0]} on \S+"), run_lock.lock(tmp_path):
        pass
    assert os.waitpid(holder[0], os.WNOHANG) == (0, 0), "the lock was waited for"
    assert json.loads((tmp_path / "run.json").read_text())["pid"] == holder[0], "the refused process changed the holder"


def test_sigkill_frees_the_lock_at_once(tmp_path: Path, holder: tuple[int, int]) -> None:
    """Guards against a lock file that must be removed by hand, and workers that outlive their training."""
    os.kill(holder[0], signal.SIGKILL)
    os.waitid(os.P_PID, holder[0], os.WEXITED | os.WNOWAIT)
    assert (tmp_path / "run.json").exists()
    with run_lock.lock(tmp_path):
        assert json.loads((tmp_path / "run.json").read_text())["pid"] == os.getpid()


def test_lock_is_freed_at_the_end_and_after_an_error(tmp_path: Path) -> None:
    """Guards against a run that names a process from long ago as its owner."""
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), run_lock.lock(tmp_path / "new" / "run"):
            raise ZeroDivisionError
    assert names(tmp_path / "new" / "run") == {".lock"}


def test_folder_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    """Guards against a traceback for a mistyped folder. A file in its place also fails for root."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file/run"), run_lock.lock(tmp_path / "file" / "run"):
        pass
    with pytest.raises(StorageError, match="file/checkpoints"):
        checkpoint.save(tmp_path / "file" / "checkpoints", 1, contents(1))
    with pytest.raises(StorageError, match=r"file/best\.json"):
        checkpoint.set_best(tmp_path / "file", 1)


def answer(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel answer every request for a lock with this error."""

    def flock(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_lock_of_another_host_says_what_may_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a file system without locks, where the file of a process that crashed on another host stays for ever."""
    answer(errno.ENOSYS, monkeypatch)
    with run_lock.lock(tmp_path):
        pass
    (tmp_path / ".lock").write_text("77\nfar-away\n")
    (tmp_path / "run.json").write_text('{"pid": 77, "host": "far-away"}')
    with pytest.raises(RunInUseError, match="process 77 on far-away") as caught, run_lock.lock(tmp_path):
        pass
    said = str(caught.value)
    assert f"If you see on that host that the process has ended, delete {tmp_path / '.lock'}, and nothing else." in said
    (tmp_path / ".lock").unlink()
    with run_lock.lock(tmp_path):
        pass


def test_no_locks_left_is_no_matter_of_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against the advice to free space when the disk is mounted wrongly."""
    answer(errno.ENOLCK, monkeypatch)
    with pytest.raises(StorageError, match="local_lock=flock") as caught, run_lock.lock(tmp_path):
        pass
    assert "bytes are free" not in str(caught.value)
