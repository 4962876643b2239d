"""The harness itself: what goes wrong with one input is found, whatever it is, and named."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
from itertools import count

import pytest

from dragoman.errors import DataError
from fuzz import harness
from fuzz.harness import survive


def fail(draw: random.Random) -> None:
    raise ValueError("not foreseen")


def crash(draw: random.Random) -> None:
    faulthandler.disable()  # no traceback in the output of a test that passes
    os.kill(os.getpid(), signal.SIGSEGV)


def take_memory(draw: random.Random) -> None:
    bytearray(harness.MEMORY * 2)


def take_time(draw: random.Random) -> None:
    for _ in count():
        pass


@pytest.mark.parametrize(
    ("attempt", "said"),
    [
        (fail, "0:.*not foreseen"),
        (crash, "0 ended.*-11"),
        (take_memory, "0:.*MemoryError"),
        (take_time, "0 ended.*-27"),
    ],
)
def test_failures_are_found(attempt: harness.Attempt, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against fuzzing that passes because it notices nothing."""
    monkeypatch.setattr(harness, "CPU_SECONDS", 0.1)
    with pytest.raises(AssertionError, match=f"(?s)'a name' {said}"):
        survive("a name", 1, attempt)


def test_own_errors_are_counted() -> None:
    """Guards the count of what was refused, and inputs that would depend on those before them."""
    seen: list[float] = []

    def attempt(draw: random.Random) -> None:
        seen.append(draw.random())
        assert seen[-1] == random.Random(f"a name {len(seen) - 1}").random()
        if draw.random() < 0.5:
            raise DataError("refused")

    worked, refused = survive("a name", 40, attempt)
    assert worked + refused == round(40 * harness.FACTOR)
    assert min(worked, refused) > 0
