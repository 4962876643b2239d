"""Case 41: clients that abuse the server do not harm its ordinary clients."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import HANG, ROOT, in_child, tiny_config
from dragoman.__main__ import run as run_command


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_41_ordinary_clients_of_an_abused_server_lose_nothing(tmp_path: Path) -> None:
    """Under every kind of abuse at once, ordinary requests succeed, abuse gets its answers, and the server can stop."""
    config = tiny_config(tmp_path, training__max_steps=10)
    assert in_child(lambda: run_command("train", config)) == 0
    run = Path(config.run.dir) / config.run.name
    words = [sys.executable, "benchmarks/abuse.py", "--run", str(run), "--minutes", "0.25"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANG)
    assert not said.stderr, said.stderr
    assert re.findall(r"(\d+) lost", said.stdout) == ["0", "0"], said.stdout
    assert "errors of the server" not in said.stdout, said.stdout
    stopping = re.search(r"SIGTERM +[\d.]+ s, answers: \{(.*)\}", said.stdout)
    assert stopping, said.stdout
    assert set(re.findall(r"(\d+):", stopping[1])) <= {"200", "503"}
