"""Device, precision, seeds and memory."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from conftest import in_child
from dragoman.device import (
    autocast,
    choose_device,
    choose_precision,
    describe_device,
    memory_limit,
    seed_everything,
    total_memory,
    tune_device,
)
from dragoman.errors import DeviceError

CPU = torch.device("cpu")


def test_missing_device_is_refused() -> None:
    """Guards against a silent fallback to the CPU."""
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match="device cuda:3"):
            choose_device("cuda:3")
    for name in ("gpu", "CPU", "cuda:x", "meta"):
        with pytest.raises(DeviceError, match=name):
            choose_device(name)
    if not torch.backends.mps.is_available():
        with pytest.raises(DeviceError, match="mps"):
            choose_device("mps")


def test_precision_is_as_requested() -> None:
    """Guards against float16 without loss scaling, and float32 with autocast."""
    assert choose_precision("auto", CPU) == choose_precision("float32", CPU) == torch.float32
    f32, bf16 = torch.float32, torch.bfloat16
    assert choose_precision("auto", CPU, {f32: 2e11, bf16: 4e11}) == bf16
    assert choose_precision("auto", CPU, {f32: 2e11, bf16: 2.2e11}) == f32, "too little gain for the lost digits"
    assert choose_precision("float32", CPU, {f32: 2e11, bf16: 4e11}) == f32
    with pytest.raises(DeviceError, match="float16"):
        choose_precision("float16", CPU)
    a, b = torch.randn(3, 3), torch.randn(3, 3)
    with autocast(CPU, torch.float32):
        assert (a @ b).dtype == torch.float32
    with autocast(CPU, choose_precision("bfloat16", CPU)):
        assert (a @ b).dtype == torch.bfloat16
    assert "bfloat16" in describe_device(CPU, torch.bfloat16)


def test_seeds_depend_on_every_part_and_on_nothing_before() -> None:
    """Guards against seed + step in place of a hash: step 2 of seed 1 would draw the numbers of step 1 of seed 2."""

    def drawn(*parts: int | str) -> int:
        seed_everything(*parts)
        return int(torch.randint(2**62, ()))

    numbers = [drawn(seed, step) for seed in range(5) for step in range(5)]
    assert len(set(numbers)) == 25
    torch.rand(7)
    assert drawn(2, 3) == numbers[13]
    assert drawn(2, "weights") not in numbers


def test_tuning_changes_no_result_that_matters() -> None:
    """Guards the precision of the faster float32 products."""

    def tuned() -> int:
        torch.manual_seed(0)
        a, b = torch.randn(64, 512), torch.randn(512, 64)
        exact = a.double() @ b.double()
        tune_device(CPU)
        return int(((a @ b).double() - exact).abs().max() > 1e-3)

    assert in_child(tuned) == 0


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/", {}, math.inf),
        ("0::/", {"memory.max": "max"}, math.inf),
        ("0::/", {"memory.max": "2000"}, 2000),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "500", "memory.max": "2000"}, 500),
        ("0::/unseen/c", {"memory.max": "2000"}, 2000),
        ("3:cpuset:/x\n2:cpu,memory:/job\n0::/", {"memory/job/memory.limit_in_bytes": "700"}, 700),
        ("3:cpuset:/x", {"x/memory.max": "5"}, math.inf),
    ],
)
def test_memory_limit_of_a_container(groups: str, files: dict[str, str], limit: float, tmp_path: Path) -> None:
    """Guards against a preset for the whole computer's memory in a container that may use a small part of it."""
    for name, text in {"../../../proc/self/cgroup": groups, **files}.items():
        path = (tmp_path / "sys/fs/cgroup" / name).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    assert memory_limit(tmp_path) == limit
    assert memory_limit(tmp_path / "windows") == math.inf
    assert 2**28 < total_memory(torch.device("cpu")) < 2**60
