"""The paths that the program takes on a GPU, without one: see `on_fake_gpu`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from conftest import ROOT


@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_the_paths_of_a_gpu(which: str) -> None:
    """Guards against tensors left on the CPU, hidden waits, and results that differ from those on a CPU.

    A process of its own, because the fake GPU cannot be removed again, and autograd's thread for it survives no fork.
    """
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-m", which, "tests/on_fake_gpu.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
