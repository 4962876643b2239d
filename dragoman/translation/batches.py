"""Group sentences of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BATCH_TOKENS = 4096  # padded source positions per batch, times the number of hypotheses per sentence


def batches_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Group the indices of all sentences, longest first, into batches of at most `budget` padded positions.

    A sentence longer than that is a batch of its own.
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
