"""The machine: device, precision, speed, seeds and memory."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import platform
import re
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import torch

from dragoman.errors import DeviceError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str) -> torch.device:
    """Return the named device; auto takes CUDA, then Apple's MPS, then the CPU.

    Raises DeviceError if a named device is missing: a run that silently falls back to the CPU wastes a night.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if not re.fullmatch(r"cpu|mps|cuda(:[0-9]+)?", name):
        raise DeviceError(f"device {name} must be one of auto, cpu, cuda, cuda:1, mps.")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError(
            f"device {name} is not available: this PyTorch ({torch.__version__}) finds no CUDA device; "
            "choose cpu or auto, or install a CUDA build."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(
            f"device {name} is not available: there are {torch.cuda.device_count()} CUDA devices, counted from 0."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("device mps is not available: there is no Apple GPU here; choose cpu or auto.")
    return device


def choose_precision(
    name: str, device: torch.device, measured: Mapping[torch.dtype, float] | None = None
) -> torch.dtype:
    """Return the number format of matrix products; weights, sums and the optimizer always stay in float32.

    auto takes bfloat16 on a CUDA device that supports it, and on a CPU on which it was `measured` (`matmul_rates`) to
    be at least a third faster. CPUs without instructions for it are many times slower. Elsewhere it takes float32.
    Raises DeviceError for float16 without CUDA: it needs loss scaling, and other devices have no fast kernels for it.
    """
    if name == "auto":
        match device.type:
            case "cuda":
                fast = has_bfloat16(device)
            case "cpu":
                fast = bool(measured) and measured[torch.bfloat16] > 4 / 3 * measured[torch.float32]
            case _:
                fast = False
        name = "bfloat16" if fast else "float32"
    if name == "float16" and device.type != "cuda":
        raise DeviceError(f"precision float16 is not available on {device}: choose float32 or bfloat16.")
    return DTYPES[name]


def has_bfloat16(device: torch.device) -> bool:
    """Whether the hardware supports bfloat16. PyTorch's own test also counts slow emulation."""
    return torch.version.hip is not None or torch.cuda.get_device_properties(device).major >= 8


def matmul_rates(device: torch.device) -> dict[torch.dtype, float]:
    """Measure in a fraction of a second how fast this device multiplies matrices in float32 and bfloat16, in FLOP/s.

    The best of several attempts counts, because other programs can only slow it down.
    """
    rows, across = (4096, 4096) if device.type == "cuda" else (1024, 1024)
    rates = {}
    for dtype in (torch.float32,) if device.type == "mps" else (torch.float32, torch.bfloat16):
        x, y = (torch.ones(shape, device=device, dtype=dtype) for shape in ((rows, 512), (512, across)))
        best, start = math.inf, time.perf_counter()
        for attempt in range(50):
            before = time.perf_counter()
            (x @ y)[0, 0].item()  # waits for a GPU to finish
            if attempt:  # the first one also chooses its kernel
                best = min(best, time.perf_counter() - before)
                if time.perf_counter() - start > 0.1:
                    break
        rates[dtype] = 2 * rows * 512 * across / best
    return rates


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager:
    """Context manager: compute matrix products in dtype."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def processor(device: torch.device) -> str:
    """Name the GPU, or the instruction set that selects a CPU's kernels."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()


def describe_device(device: torch.device, dtype: torch.dtype) -> str:
    """Describe device, precision, threads and build in a line."""
    if device.type == "cuda":
        where = f"{device} ({processor(device)})"
    elif device.type == "cpu":
        where = f"cpu ({torch.get_num_threads()} threads, {processor(device)})"
    else:
        where = str(device)
    return (
        f"{where}, {str(dtype).removeprefix('torch.')}, PyTorch {torch.__version__}, Python {platform.python_version()}"
    )


def seed_everything(*parts: int | str) -> None:
    """Seed torch's generators with a hash of `parts`, so that random numbers depend on them alone.

    Training calls this with (seed, step) before every update, so an exact resume needs no saved generator state, and
    validation cannot disturb training. A plain sum seed + step would repeat numbers between seeds.
    """
    digest = hashlib.sha256(repr(parts).encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "big", signed=True))


def tune_device(device: torch.device) -> None:
    """Make a CPU faster for this whole process, without changing results that matter. Do nothing on other devices.

    oneDNN's float32 kernels ("medium") are about twice as fast as MKL's on AMD processors. On CPUs where they would use
    bfloat16 inside and lose precision, PyTorch's default stays.

    glibc returns each large block to the system when it is freed, and the next step pays for its page faults again.
    With the blocks kept, a ReLU over 4096 x 2048 numbers takes a seventh of the time.
    """
    if device.type != "cpu":
        return
    if not torch.cpu.get_capabilities().get("amx_bf16", True):
        torch.set_float32_matmul_precision("medium")
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        m_trim_threshold, m_top_pad, m_mmap_max = -1, -2, -4
        libc = ctypes.CDLL(None)
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)
        libc.mallopt(m_top_pad, 256 * 2**20)


def free_memory(device: torch.device) -> None:
    """Return cached, unused GPU memory to the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def total_memory(device: torch.device) -> float:
    """Total memory of the device in bytes, used or not; infinite if unknown.

    For a GPU its own memory, else the computer's, or the limit of this container or job.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), memory_limit())
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return math.inf


def memory_limit(root: Path = Path("/")) -> float:
    """Memory limit of this process's control groups (version 1 or 2) in bytes; infinite without a limit."""
    limits = [math.inf]
    with suppress(OSError, ValueError):  # other systems have no such file, and nothing promises its format
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, group = line.split(":", 2)
            if kinds and "memory" not in kinds.split(","):
                continue
            top, name = ("memory", "memory.limit_in_bytes") if kinds else ("", "memory.max")
            place = Path(group.lstrip("/"))
            for folder in (place, *place.parents):  # the lowest limit counts; a container cannot see some of them
                with suppress(OSError, ValueError):  # "max" means no limit
                    limits.append(int((root / "sys/fs/cgroup" / top / folder / name).read_text(encoding="utf-8")))
    return min(limits)
