"""Several ranks are started, stopped and waited for; here with a small script in the place of train.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import HANG, ROOT

SCRIPT = """\
import os, signal, sys, time
from dragoman import processes

if not processes.is_rank():
    processes.NOTICE_SECONDS = processes.STOP_SECONDS = float(os.environ["PATIENCE"])
    sys.exit(processes.run_ranks(2))
processes.end_with_launcher()
first = os.environ["RANK"] == "0"

def say(text):  # whole lines: print writes the end of a line apart
    os.write(1, (text + "\\n").encode())

"""


def program(folder: Path, rank: str) -> list[str]:
    """The command of a program whose ranks run these lines; `first` is true on rank 0."""
    (folder / "program.py").write_text(SCRIPT + rank, encoding="utf-8")
    return [sys.executable, str(folder / "program.py"), "an argument"]


def run(folder: Path, rank: str, patience: float = HANG) -> subprocess.CompletedProcess[str]:
    """Run the ranks; after a failure, the others have `patience` seconds to end by themselves."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATIENCE": str(patience)}
    return subprocess.run(program(folder, rank), env=environment, capture_output=True, text=True, timeout=HANG)


@pytest.mark.parametrize(
    ("rank", "code", "patience"),
    [
        ("", 0, HANG),
        ("sys.exit(8 if first else 3)", 3, HANG),
        ("time.sleep(0 if first else 0.2); sys.exit(8 if first else 6)", 6, HANG),
        ("sys.exit(8)", 8, HANG),
        ("sys.exit(0 if first else 143)", 143, HANG),
        (f"first or os.kill(os.getpid(), signal.SIGKILL); time.sleep({HANG})", 137, 0.3),
        (f"signal.signal(signal.SIGTERM, signal.SIG_IGN); first or sys.exit(4); time.sleep({HANG})", 4, 0.3),
        ("first and sys.exit(8); os.kill(os.getpid(), signal.SIGSTOP); sys.exit(6)", 6, HANG),
    ],
)
def test_a_failure_ends_all_ranks_with_its_own_code(tmp_path: Path, rank: str, code: int, patience: float) -> None:
    """Guards against ranks that wait for ever for one that has died, and against losing its exit code."""
    assert run(tmp_path, rank, patience).returncode == code


def test_ranks_share_the_command_a_private_folder_and_the_cores(tmp_path: Path) -> None:
    """Guards against a store that other users reach, folders that stay, and ranks that take each other's cores."""
    rank = (
        "folder = os.path.dirname(os.environ[processes.STORE])\n"
        "assert sys.argv[1:] == ['an argument']\n"
        "assert os.environ['WORLD_SIZE'] == os.environ['LOCAL_WORLD_SIZE'] == '2'\n"
        "assert int(os.environ['OMP_NUM_THREADS']) <= max(1, processes.cores() // 2)\n"
        "say(f'{os.stat(folder).st_mode & 0o777:o} {folder}')\n"
    )
    done = run(tmp_path, rank)
    assert done.returncode == 0, done.stderr
    [line] = set(done.stdout.splitlines())  # the same on both ranks
    mode, folder = line.split(" ", 1)
    assert mode == "700"
    assert not Path(folder).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_every_rank(tmp_path: Path, number: signal.Signals) -> None:
    """Guards against a launcher that ends at once and leaves the ranks alone, or ends them before they have saved."""
    rank = (
        "def stop(*_):\n"
        "    time.sleep(1)\n"
        f"    say('saved')\n    sys.exit({128 + number})\n"
        f"signal.signal({int(number)}, stop)\n"
        f"say('ready')\ntime.sleep({HANG})\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATIENCE": str(HANG)}
    with subprocess.Popen(program(tmp_path, rank), env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        process.send_signal(number)
        assert process.wait(HANG) == 128 + number
        assert process.stdout.read() == "saved\n" * 2


def test_a_second_signal_ends_ranks_that_do_not_react(tmp_path: Path) -> None:
    """Guards against ranks that hang in a library, where no handler of a signal runs."""
    rank = f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay('ready')\ntime.sleep({HANG})\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATIENCE": "0.3"}
    with subprocess.Popen(program(tmp_path, rank), env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        assert process.wait(HANG) == 137


def test_ranks_end_with_their_launcher(tmp_path: Path) -> None:
    """Guards against ranks that train on, unseen, after their launcher was killed."""
    rank = f"say('ready')\ntime.sleep({HANG})\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATIENCE": str(HANG)}
    with subprocess.Popen(program(tmp_path, rank), env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        process.kill()
        started = time.monotonic()
        assert process.stdout.read() == ""  # when the last rank has ended
        assert time.monotonic() < started + HANG / 2
