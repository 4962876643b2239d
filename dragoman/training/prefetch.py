"""Compute the next items of an iterator in a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor

from dragoman.device import T


def prefetched(items: Iterator[T], count: int) -> Generator[T, None, None]:
    """The items, none of which is None; while the caller has one, a thread makes the next ones, up to `count` of them.

    An exception of items is raised here, in its turn. The thread ends with them, and when this generator is closed; a
    count of 0 takes none.
    """
    if count == 0:
        yield from items
        return
    with ThreadPoolExecutor(1) as thread:  # whose end waits for what is being made
        made = deque(thread.submit(next, items, None) for _ in range(count))
        while (item := made.popleft().result()) is not None:
            made.append(thread.submit(next, items, None))
            yield item
