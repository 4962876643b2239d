"""A trace of a few updates, and what they spend their time on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile, schedule


@contextmanager
def profiled(
    device: torch.device, warm_up: int, updates: int, done: Callable[[profile], None]
) -> Iterator[Callable[[], None]]:
    """Within, record what the device does in so many updates; with 0 of them, nothing.

    Yields what is to be called after each update. After the last of these, or at an end amid them, done is called with
    the record.
    """
    if updates == 0:
        yield lambda: None
        return
    where = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if device.type == "cuda" else [ProfilerActivity.CPU]
    when = schedule(wait=0, warmup=warm_up, active=updates, repeat=1)
    with profile(activities=where, schedule=when, on_trace_ready=done) as record:
        yield record.step


def costliest(record: profile, device: torch.device, count: int) -> list[str]:
    """The operations in a record that took most of the device's time, themselves and not what they called, in lines."""
    on_cuda = device.type == "cuda"
    spent = [
        (event.self_device_time_total if on_cuda else event.self_cpu_time_total, event.count, event.key)
        for event in record.key_averages()
        if (event.device_type.name == "CUDA") == on_cuda and not event.is_user_annotation
    ]
    total = sum(time for time, *_ in spent)
    ranked = sorted(spent, reverse=True)[:count]
    return [f"{time / total:6.1%} {time / 1000:9.1f} ms {calls:7,} x {name:.70}" for time, calls, name in ranked]
