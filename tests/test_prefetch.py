"""Batches made ahead of their use, by a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest

from dragoman.training.prefetch import prefetched


@pytest.mark.parametrize("number", [0, 1, 3, 20])
def test_items_come_in_order_and_not_too_early(number: int) -> None:
    """Guards the order, the end, and the memory: a thread faster than its user must wait."""
    made: list[int] = []

    def items() -> Iterator[int]:
        for i in range(10):
            made.append(i)
            yield i

    before = threading.active_count()
    for i, item in enumerate(prefetched(items(), number)):
        assert item == i
        time.sleep(0.001)
        assert len(made) <= i + 1 + number
    assert made == list(range(10))
    assert threading.active_count() == before


def test_error_is_raised_in_its_turn() -> None:
    """Guards against a batch lost before the error, an error that is swallowed, and a thread that outlives it."""

    def items() -> Iterator[int]:
        yield from (1, 2)
        raise KeyError("the third")

    before, got = threading.active_count(), []
    with pytest.raises(KeyError, match="the third"):
        got.extend(item for item in prefetched(items(), 5))
    assert threading.active_count() == before
    made = prefetched(items(), 5)
    assert [next(made), next(made)] == [1, 2]


@pytest.mark.parametrize("leave", ["close", "drop"])
def test_leaving_early_ends_the_thread(leave: str) -> None:
    """Guards against training that stops at a signal in the middle of an epoch."""
    before, numbers = threading.active_count(), prefetched(count(1), 3)
    assert next(numbers) == 1
    assert threading.active_count() == before + 1
    if leave == "close":
        numbers.close()
    del numbers
    assert threading.active_count() == before
