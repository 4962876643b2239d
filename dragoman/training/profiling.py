"""Record a trace of a few updates and list what takes the most time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile, schedule


@contextmanager
def profiler(
    device: torch.device, warm_up: int, updates: int, done: Callable[[profile], None]
) -> Iterator[Callable[[], None]]:
    """Context manager: record what the device does in `updates` updates after the first `warm_up`; none if 0.

    Yields a function to call after each update. `done` gets the record after the last of them, or at an earlier exit.
    """
    if updates == 0:
        yield lambda: None
        return
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if device.type == "cuda" else [ProfilerActivity.CPU]
    phases = schedule(wait=0, warmup=warm_up, active=updates, repeat=1)
    with profile(activities=activities, schedule=phases, on_trace_ready=done) as record:
        yield record.step


def slowest_operations(record: profile, device: torch.device, count: int) -> list[str]:
    """Lines with the operations that took most of the device's time, without the operations that they call."""
    on_cuda = device.type == "cuda"
    spent = [
        (event.self_device_time_total if on_cuda else event.self_cpu_time_total, event.count, event.key)
        for event in record.key_averages()
        if (event.device_type.name == "CUDA") == on_cuda and not event.is_user_annotation
    ]
    total = sum(time for time, *_ in spent)
    ranked = sorted(spent, reverse=True)[:count]
    return [f"{time / total:6.1%} {time / 1000:9.1f} ms {calls:7,} x {name:.70}" for time, calls, name in ranked]
