"""Try many inputs in a process of their own, with limits: an input that kills it is reported like any other failure."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import NamedTuple

from conftest import in_child
from dragoman.errors import DragomanError

CPU_SECONDS = 10  # for one input, of all threads
MEMORY = 2 * 2**30  # bytes, beyond what the process has when it starts
SILENCE = 300  # seconds for one input, also of waiting: far more than any machine needs
# The inputs below are enough for each kind of mutation to meet each part; `FUZZ_FACTOR=10` goes deeper by hand.
FACTOR = float(os.environ.get("FUZZ_FACTOR", "1"))

Attempt = Callable[[random.Random], object]


class Outcome(NamedTuple):
    """How many inputs worked, and how many were refused with one of the program's errors."""

    worked: int
    refused: int


def survive(name: str, inputs: int, attempt: Attempt, allowed: type[Exception] = DragomanError) -> Outcome:
    """Call `attempt` once for each input, with its own random numbers: `attempt(random.Random(f"{name} 7"))`.

    Fails if one raises anything but `allowed`, kills the process, or takes more than CPU_SECONDS or MEMORY.
    """
    with tempfile.TemporaryFile("w+b", buffering=0) as notes:
        code = in_child(lambda: _try_all(name, round(inputs * FACTOR), attempt, allowed, notes.fileno()))
        notes.seek(0)
        *failures, last = notes.read().decode(errors="backslashreplace").split("\x1e")
    number, worked, refused = map(int, last.split()[:3])
    if code:
        failures.append(f"input {name!r} {number} ended the process: code {code}, or minus the signal")
    assert not failures, "\n".join(failures)
    return Outcome(worked, refused)


def _try_all(name: str, inputs: int, attempt: Attempt, allowed: type[Exception], notes: int) -> int:
    """The child: write failures, each ended by a record separator, and then the number of the input and both counts.

    Of the failures at one line of code, only the first is written.
    """
    _limit_memory()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # libraries and warnings
    counts, end = [0, 0], 0
    known: set[tuple[str, int, type]] = set()
    for number in range(inputs):
        os.pwrite(notes, f"{number:>10} {counts[0]:>10} {counts[1]:>10}".encode(), end)
        signal.alarm(SILENCE)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # their signals end the process
        try:
            attempt(random.Random(f"{name} {number}"))
            counts[0] += 1
        except allowed:
            counts[1] += 1
        except BaseException as error:  # also a panic of a library in Rust
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = (last.filename, last.lineno or 0, type(error))
            if place not in known:
                known.add(place)
                failure = f"input {name!r} {number}:\n{traceback.format_exc(limit=-6)}\x1e"
                end += os.pwrite(notes, failure.encode(errors="backslashreplace"), end)
    signal.setitimer(signal.ITIMER_PROF, 0)
    os.pwrite(notes, f"{inputs:>10} {counts[0]:>10} {counts[1]:>10}".encode(), end)
    return 0


def _limit_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
