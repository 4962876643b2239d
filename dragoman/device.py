"""The machine under the program: device, precision, seeds, memory.

Nothing here knows that the numbers are a translation. Each choice is made once, at start, and can be said in a line.
"""

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
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from dragoman.errors import DeviceError

T = TypeVar("T")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str) -> torch.device:
    """The device of that name; auto takes CUDA, then Apple's MPS, then the CPU.

    Raises DeviceError if a named device is missing, for a run that silently falls back to a CPU wastes a night.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if not re.fullmatch(r"cpu|mps|cuda(:[0-9]+)?", name):
        raise DeviceError(f"device {name} is none of auto, cpu, cuda, cuda:1, mps.")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError(
            f"device {name} is not to be had: this PyTorch ({torch.__version__}) sees no CUDA device; "
            "choose cpu or auto, or install a CUDA build."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(
            f"device {name} is not to be had: there are {torch.cuda.device_count()} CUDA devices, counted from 0."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("device mps is not to be had: there is no Apple GPU here; choose cpu or auto.")
    return device


def choose_precision(
    name: str, device: torch.device, measured: Mapping[torch.dtype, float] | None = None
) -> torch.dtype:
    """The number format of the matrix products; weights, sums and the optimizer stay in float32 whatever it is.

    auto takes bfloat16 on a CUDA device that has it, and on a CPU that has been measured (see `rates`) to be a third
    faster in it: one without instructions for it takes many times as long. Elsewhere it takes float32.
    Raises DeviceError for float16 off CUDA: it needs loss scaling, and has no fast kernels there.
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
        raise DeviceError(f"precision float16 is not to be had on the device {device}: choose float32 or bfloat16.")
    return DTYPES[name]


def has_bfloat16(device: torch.device) -> bool:
    """Whether the hardware has it: torch's own test also counts emulation, which is slow."""
    return torch.version.hip is not None or torch.cuda.get_device_properties(device).major >= 8


def matmul_rates(device: torch.device) -> dict[torch.dtype, float]:
    """How fast this device multiplies matrices in float32 and bfloat16: FLOP/s, measured in a fraction of a second.

    The best of some attempts counts, for other programs can only make it slower.
    """
    rows, across = (4096, 4096) if device.type == "cuda" else (1024, 1024)
    found = {}
    for dtype in (torch.float32,) if device.type == "mps" else (torch.float32, torch.bfloat16):
        x, y = (torch.ones(shape, device=device, dtype=dtype) for shape in ((rows, 512), (512, across)))
        best, begun = math.inf, time.perf_counter()
        for attempt in range(50):
            before = time.perf_counter()
            (x @ y)[0, 0].item()  # waits for a GPU to have finished
            if attempt:  # the first one also chooses its kernel
                best = min(best, time.perf_counter() - before)
                if time.perf_counter() - begun > 0.1:
                    break
        found[dtype] = 2 * rows * 512 * across / best
    return found


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager:
    """The context in which a forward pass computes its matrix products in dtype."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def processor(device: torch.device) -> str:
    """What computes: the GPU's name, or the instructions that a CPU's kernels are chosen by."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()


def describe_device(device: torch.device, dtype: torch.dtype) -> str:
    """Name device, precision, threads and build, in a line."""
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
    """Seed torch's generators by a hash of parts, so that what is drawn depends on them and on nothing before.

    Training calls it with (seed, step) before every update. No generator state needs to be saved for an exact resume,
    and nothing that validation draws can disturb training. A sum in place of the hash would make step 2 of seed 1
    draw what step 1 of seed 2 does.
    """
    global _words
    digest = hashlib.sha256(repr(parts).encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    _words = np.random.SFC64(int.from_bytes(digest[8:16], "big"))


_words = np.random.SFC64(0)


def random_words(count: int) -> Tensor:
    """Random bits (count), int64, drawn on the CPU after `seed_everything`.

    numpy's SFC64 takes half the time of torch's generator, which is a Mersenne twister: a training step with dropout
    everywhere takes 2 % less for it.
    """
    return torch.from_numpy(_words.random_raw(count).view(np.int64))


def tune_device(device: torch.device) -> None:
    """Settings of the process that make a CPU faster and change no result that matters; none on another device.

    oneDNN's float32 kernels ("medium") are about twice as fast as MKL's on AMD processors. On CPUs that could use
    bfloat16 inside them, the price is precision: there PyTorch's own default stays.

    glibc gives every large block back to the system when it is freed and fetches it again at the next step, paying for
    the page faults each time; kept, a ReLU over 4096 x 2048 numbers takes a seventh of the time.
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
    """Give the device back what this process holds of its memory but does not use."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def total_memory(device: torch.device) -> float:
    """The bytes of memory that the device has, used or not; infinite if unknown.

    Of a GPU its own; else the computer's, or what of it a container or a job may take.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), granted_memory())
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return math.inf


def granted_memory(root: Path = Path("/")) -> float:
    """The bytes to which Linux holds the control groups of this process, of either version; infinite if to none."""
    limits = [math.inf]
    with suppress(OSError, ValueError):  # no such file elsewhere, and no promise of its form
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, group = line.split(":", 2)
            if kinds and "memory" not in kinds.split(","):
                continue
            top, name = ("memory", "memory.limit_in_bytes") if kinds else ("", "memory.max")
            place = Path(group.lstrip("/"))
            for each in (place, *place.parents):  # the narrowest counts; within a container some cannot be seen
                with suppress(OSError, ValueError):  # "max" is no number
                    limits.append(int((root / "sys/fs/cgroup" / top / each / name).read_text(encoding="utf-8")))
    return min(limits)


def peak_memory(device: torch.device) -> float:
    """The share of a GPU's memory that was held at most since the last call, of what other processes leave: 0 to 1."""
    held = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return held / (torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device))
