"""Ctrl-C and SIGTERM as a request to stop."""

from __future__ import annotations

import os
import signal

from conftest import in_child
from dragoman.signals import stop_signals


def test_first_signal_requests_a_stop_and_second_exits() -> None:
    """Guards the save after Ctrl-C, and the way out of a save that hangs."""

    def twice() -> int:
        with stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop
            assert stop.exit_code == 130
            os.kill(os.getpid(), signal.SIGTERM)
        return 0

    assert in_child(twice) == 143
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals():
        pass
    assert signal.getsignal(signal.SIGTERM) == before


def test_signal_is_handled_if_nobody_reads_the_output() -> None:
    """Guards Ctrl-C under `2>&1 | tee log`: it also ends tee, and the failing message ended the step without a save."""

    def unheard() -> int:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 2)
        with stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
        return stop.exit_code

    assert in_child(unheard) == 130
