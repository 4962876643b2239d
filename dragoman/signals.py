"""Ctrl-C and SIGTERM as a request to stop after the current step."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Stopped(Exception):  # noqa: N818  (not an error: the user asked for it)
    """Repeatable work was abandoned because this process has been asked to stop."""


class Stop:
    """Whether this process has been asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def poll(self, *_: object) -> None:
        """Raise Stopped if asked to stop. Long, repeatable work calls this now and then."""
        if self:
            raise Stopped

    @property
    def exit_code(self) -> int:
        """What a shell expects from a process that a signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or 0)


@contextmanager
def stop_signals(grace: float = 0.0) -> Iterator[Stop]:
    """Context manager: the first Ctrl-C or SIGTERM sets a flag, polled where stopping is safe; the second exits.

    Signals within `grace` seconds of the first count as the same one.
    """
    stop = Stop()
    first = -math.inf

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if stop and time.monotonic() < first + grace:
            return
        first = time.monotonic()
        if stop:
            os._exit(128 + number)  # skip cleanup, which may be what hangs; checkpoints are atomic
        stop.signal = number
        with suppress(OSError):  # with `2>&1 | tee log`, the same Ctrl-C has ended the reader
            os.write(2, b"\nstopping after this step; press Ctrl-C again to stop at once\n")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
