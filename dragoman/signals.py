"""Ctrl-C and SIGTERM as a request to stop after the current step."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Stopped(Exception):  # noqa: N818  (no error: the user asked for it)
    """Work that leaves nothing behind was given up, because this process has been asked to end."""


class Stop:
    """Whether the user or the system has asked this process to end, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def poll(self, *_: object) -> None:
        """Raise Stopped if asked to end. Long work that can be repeated calls it now and then."""
        if self:
            raise Stopped

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or 0)


@contextmanager
def stop_signals(several: float = 0.0) -> Iterator[Stop]:
    """Within, the first Ctrl-C or SIGTERM only sets a flag, polled where stopping is safe; the second ends all.

    Those that come within `several` seconds of the first count as the same.
    """
    stop = Stop()
    first = -math.inf

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if stop and time.monotonic() < first + several:
            return
        first = time.monotonic()
        if stop:
            os._exit(128 + number)  # no clearing up, which may be what hangs; a checkpoint survives worse than this
        stop.signal = number
        with suppress(OSError):  # of `2>&1 | tee log` the reader has ended by the same Ctrl-C
            os.write(2, b"\nstopping after this step; once more to stop at once\n")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
