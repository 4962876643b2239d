"""Processes on this machine: how many cores they may use, and the ranks of a training.

    python train.py --training.ranks 2

`run_ranks` starts this command once for each rank and waits. The ranks find each other through a file in a folder that
only this user can read; `dragoman.distributed` connects them. For the same, torchrun opens a port on every network
interface, without a password, and unpickles what it receives: anyone who reaches the port can run code.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

from dragoman.errors import RankError

STORE = "DRAGOMAN_STORE"  # environment variable: the file through which the ranks find each other
# After a rank has failed, the others have some seconds to notice, then some more after SIGTERM. On GPUs, a rank can
# wait for hours for one that is gone. After a second SIGTERM, all ranks have the latter.
NOTICE_SECONDS, STOP_SECONDS = 5.0, 30.0
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes of a rank that saved and stopped as it was asked to


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_rank() -> bool:
    """Whether `run_ranks` or torchrun started this process."""
    return "RANK" in os.environ


def end_with_launcher() -> None:
    """End this process when `run_ranks` or torchrun ends, even if that was killed. A rank calls this once.

    With `run_ranks`, the standard input of a rank is a pipe to which nothing is written. The system closes it when the
    launcher ends. With torchrun, a rank gets another parent then. Ranks that were started by hand may outlive theirs.
    """
    parent = os.getppid()

    def wait() -> None:
        if STORE in os.environ:
            os.read(0, 1)
        while STORE not in os.environ and os.getppid() == parent:
            time.sleep(1)
        os._exit(RankError.exit_code)

    if STORE in os.environ or "TORCHELASTIC_RUN_ID" in os.environ:
        threading.Thread(target=wait, name="launcher", daemon=True).start()


def start_worker() -> None:
    """Prepare a process that works for another one: it ignores Ctrl-C, which reaches both, and ends with the other."""

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def run_ranks(count: int) -> int:
    """Run the command line of this process as `count` ranks. Returns the exit code of the first rank that failed.

    Ctrl-C and SIGTERM are passed on. Unless OMP_NUM_THREADS is set, the ranks share the cores evenly.
    """
    ranks: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="dragoman-ranks-") as folder, _passing_signals_on(ranks) as signals:
        threads = {"OMP_NUM_THREADS": str(max(1, cores() // count))}
        world = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), STORE: str(Path(folder, "store"))}
        try:
            for rank in map(str, range(count)):
                environment = {**threads, **os.environ, **world, "RANK": rank, "LOCAL_RANK": rank}
                command = [sys.executable, *sys.orig_argv[1:]]  # of this very process
                ranks.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE))  # noqa: S603
            return _wait(ranks, signals)
        finally:
            for each in ranks:
                each.kill()
                each.wait()


@contextmanager
def _passing_signals_on(ranks: list[subprocess.Popen[bytes]]) -> Iterator[list[float]]:
    """Context manager: Ctrl-C and SIGTERM go to the ranks. A terminal sends them its Ctrl-C too; they count it once.

    Yields a list that grows by the time of each signal.
    """
    times: list[float] = []

    def handle(number: int, _: object) -> None:
        times.append(time.monotonic())
        for each in ranks:
            each.send_signal(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield times
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(ranks: list[subprocess.Popen[bytes]], signals: list[float]) -> int:
    """Wait until all ranks have ended; after a failure or a second signal, end them. Returns the command's exit code.

    signals: the times of the signals so far
    """
    running, codes, failed = list(ranks), list[int](), 0.0
    measures = [(NOTICE_SECONDS + STOP_SECONDS, subprocess.Popen.kill), (NOTICE_SECONDS, subprocess.Popen.terminate)]
    while running:
        time.sleep(0.05)
        ended = [each for each in running if each.poll() is not None]
        running = [each for each in running if each not in ended]
        codes += [128 - each.returncode if each.returncode < 0 else each.returncode for each in ended]
        if not failed and any(code and code not in STOPPED for code in codes):
            failed = time.monotonic()
        if failed:
            for each in running:  # a stopped rank, which would wait for ever, notices that the other has ended
                each.send_signal(signal.SIGCONT)
        if failed and measures and time.monotonic() > failed + measures[-1][0]:
            _, end = measures.pop()
            for each in running:
                end(each)
        if len(signals) > 1 and time.monotonic() > signals[1] + STOP_SECONDS:
            for each in running:
                each.kill()
    # The first failure says most, unless it is of a rank that ended because of another one or as it was asked to.
    failures = sorted(filter(None, codes), key=lambda code: (code in STOPPED, code == RankError.exit_code))
    return failures[0] if failures else 0
