"""Compute the next items of an iterator in a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetched(items: Iterator[T], count: int) -> Generator[T, None, None]:
    """Yield items while a thread computes up to `count` ahead; with a count of 0 there is no thread.

    No item may be None. An exception in `items` is raised here, in its turn. The thread ends with the items, and when
    this generator is closed.
    """
    if count == 0:
        yield from items
        return
    with ThreadPoolExecutor(1) as thread:  # leaving it waits for the item in progress
        pending = deque(thread.submit(next, items, None) for _ in range(count))
        while (item := pending.popleft().result()) is not None:
            pending.append(thread.submit(next, items, None))
            yield item
