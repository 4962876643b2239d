"""Device, precision, seeds and signals."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import torch

from conftest import ROOT, in_child
from dragoman.device import (
    autocast,
    choose_device,
    choose_precision,
    describe_device,
    matmul_rates,
    memory_limit,
    random_words,
    seed_everything,
    total_memory,
    tune_device,
)
from dragoman.errors import DeviceError
from dragoman.signals import stop_signals
from dragoman.training.prefetch import prefetched

CPU = torch.device("cpu")


def test_a_device_that_is_not_there_is_refused() -> None:
    """Guards against a silent fallback to the CPU, which wastes a night."""
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


def test_precision_is_what_was_asked_for() -> None:
    """Guards float16 without loss scaling, and that float32 means no autocast at all."""
    assert choose_precision("auto", CPU) == choose_precision("float32", CPU) == torch.float32
    f32, bf16 = torch.float32, torch.bfloat16
    assert choose_precision("auto", CPU, {f32: 2e11, bf16: 4e11}) == bf16
    assert choose_precision("auto", CPU, {f32: 2e11, bf16: 2.2e11}) == f32, "too little for the digits it costs"
    assert choose_precision("float32", CPU, {f32: 2e11, bf16: 4e11}) == f32
    with pytest.raises(DeviceError, match="float16"):
        choose_precision("float16", CPU)
    a, b = torch.randn(3, 3), torch.randn(3, 3)
    with autocast(CPU, torch.float32):
        assert (a @ b).dtype == torch.float32
    with autocast(CPU, choose_precision("bfloat16", CPU)):
        assert (a @ b).dtype == torch.bfloat16
    assert "bfloat16" in describe_device(CPU, torch.bfloat16)


def test_rates_are_told_for_both_formats() -> None:
    """Guards the unit: any machine that can run this makes between a hundred million and 10^16 operations a second."""
    found = matmul_rates(CPU)
    assert set(found) == {torch.float32, torch.bfloat16}
    assert all(1e8 < rate < 1e16 for rate in found.values())


def test_random_words_depend_on_the_seed_alone() -> None:
    """Guards the exact resume: dropout draws from them."""
    seed_everything(1, 2)
    first = random_words(1000)
    seed_everything(1, 3)
    other = random_words(1000)
    seed_everything(1, 2)
    assert torch.equal(torch.cat((random_words(400), random_words(600))), first)
    assert not torch.equal(first, other)
    assert abs((first < 0).float().mean() - 0.5) < 0.1


def test_seeds_depend_on_every_part_and_on_nothing_before() -> None:
    """Guards seed + step in place of a hash: step 2 of seed 1 would draw what step 1 of seed 2 does."""

    def drawn(*parts: int | str) -> int:
        seed_everything(*parts)
        return int(torch.randint(2**62, ()))

    numbers = [drawn(seed, step) for seed in range(5) for step in range(5)]
    assert len(set(numbers)) == 25
    torch.rand(7)
    assert drawn(2, 3) == numbers[13]
    assert drawn(2, "weights") not in numbers


def test_tuning_changes_no_result_that_matters() -> None:
    """Guards the faster float32 products, which must remain float32."""

    def tuned() -> int:
        torch.manual_seed(0)
        a, b = torch.randn(64, 512), torch.randn(512, 64)
        exact = a.double() @ b.double()
        tune_device(CPU)
        return int(((a @ b).double() - exact).abs().max() > 1e-3)

    assert in_child(tuned) == 0


def test_first_signal_asks_and_second_ends() -> None:
    """Guards both the save at Ctrl-C and the way out of a save that hangs."""

    def twice() -> int:
        with stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop
            assert stop.exit_code == 130
            os.kill(os.getpid(), signal.SIGTERM)
        return 0

    assert in_child(twice) == 143
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals():
        pass
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_is_heard_if_nobody_reads() -> None:
    """Guards Ctrl-C under `2>&1 | tee log`: it ends tee as well, and what could not be said ended the step, unsaved."""

    def unheard() -> int:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 2)
        with stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
        return stop.exit_code

    assert in_child(unheard) == 130


@pytest.mark.parametrize("number", [0, 1, 3, 20])
def test_what_is_made_ahead_comes_in_order_and_not_too_early(number: int) -> None:
    """Guards the order, the end, and the memory: a thread that is faster than its user must wait."""
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


def test_a_failure_ahead_comes_in_its_turn() -> None:
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
def test_who_leaves_what_is_made_ahead_leaves_no_thread(leave: str) -> None:
    """Guards a training that stops at a signal amid an epoch."""
    before, numbers = threading.active_count(), prefetched(count(1), 3)
    assert next(numbers) == 1
    assert threading.active_count() == before + 1
    if leave == "close":
        numbers.close()
    del numbers
    assert threading.active_count() == before


def test_a_thread_ahead_hinders_neither_signals_nor_the_end() -> None:
    """Guards Ctrl-C while a batch is waited for, and the end of a process that has not closed anything."""
    code = (
        "import itertools, os, signal, time\n"
        "from runtime import ahead, stop_signals\n"
        "def items():\n"
        "    yield 1\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(0.5)\n"
        "    yield from itertools.count(2)\n"
        "with stop_signals() as stop:\n"
        "    numbers = ahead(items(), 1)\n"
        "    seen = [next(itertools.dropwhile(lambda _: not stop, numbers))]\n"
        "print(seen)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("[1]\n", "[2]\n")


@pytest.mark.parametrize(
    ("groups", "files", "granted"),
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
def test_a_container_has_what_is_granted(groups: str, files: dict[str, str], granted: float, tmp_path: Path) -> None:
    """Guards a preset for the memory of the whole computer, of which a container or a job may have a small part."""
    for name, text in {"../../../proc/self/cgroup": groups, **files}.items():
        path = (tmp_path / "sys/fs/cgroup" / name).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    assert memory_limit(tmp_path) == granted
    assert memory_limit(tmp_path / "windows") == math.inf
    assert 2**28 < total_memory(torch.device("cpu")) < 2**60
