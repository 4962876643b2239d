"""Two machines for a test: network namespaces of Linux, with a cable between them that can be pulled.

    with Machines() as machines:
        first = machines.start(0, [sys.executable, "-m", "torch.distributed.run", ...], environment)
        machines.cut()
        machines.join()

They need no root where users may make namespaces of their own. Files and the clock are shared, as on a cluster.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import listening
from loopback import wait_until

ADDRESSES = ("10.77.0.1", "10.77.0.2")
CABLE = "cable"  # name of the network interface on both machines
TIED = ("setpriv", "--pdeathsig", "KILL")  # to this process: it may be killed itself


class Machines:
    """The two machines. Use it as a context manager: at the end, no process on them is left."""

    def __init__(self) -> None:
        self._idle: list[subprocess.Popen[str]] = []  # one process that keeps the namespace of each machine
        self._namespaces: set[str] = set()
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Machines:
        try:
            self._add(["unshare", "--user", "--map-root-user", "--net"])
            self._add([*self._on(0), "unshare", "--net"])
            peer = ["peer", "name", CABLE, "netns", str(self._idle[1].pid)]
            self._run(0, "link", "add", CABLE, "type", "veth", *peer)
            for i, address in enumerate(ADDRESSES):
                self._run(i, "address", "add", f"{address}/24", "dev", CABLE)
                for interface in ("lo", CABLE):
                    self._run(i, "link", "set", interface, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # a process that has just ended, or of somebody else
                if os.readlink(path / "ns/net") in self._namespaces:
                    os.kill(int(path.name), signal.SIGKILL)
        for process in (*self._started, *self._idle):
            process.wait()

    def _add(self, prefix: list[str]) -> None:
        """Start the process that keeps a namespace, which the command in front of it makes."""
        process = _idle(prefix)
        self._idle.append(process)
        self._namespaces.add(os.readlink(f"/proc/{process.pid}/ns/net"))

    def _on(self, machine: int) -> list[str]:
        """The start of a command line that runs on a machine."""
        process = self._idle[machine].pid
        return ["nsenter", "--target", str(process), "--user", "--net", "--preserve-credentials", "--"]

    def _run(self, machine: int, *words: str) -> None:
        subprocess.run([*self._on(machine), "ip", *words], check=True, capture_output=True, text=True)

    def start(
        self, machine: int, command: Sequence[str], environment: dict[str, str], output: IO[Any]
    ) -> subprocess.Popen[str]:
        """Start a program on a machine. Its pid is that of the program itself."""
        process = subprocess.Popen(
            [*self._on(machine), *TIED, *command],
            env={**os.environ, **environment}, stdout=output, stderr=output, text=True, start_new_session=True,
        )  # fmt: skip
        self._started.append(process)
        return process

    def cut(self) -> None:
        """Pull the cable: packets are lost, and neither side gets an error."""
        self._run(0, "link", "set", CABLE, "down")

    def join(self) -> None:
        """Plug the cable in again."""
        self._run(0, "link", "set", CABLE, "up")


def _idle(prefix: list[str]) -> subprocess.Popen[str]:
    """Start a process that does nothing, once the command in front of it has done its part."""
    command = [*prefix, *TIED, "sh", "-c", "echo; exec sleep inf"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    if not process.stdout.readline():
        raise subprocess.CalledProcessError(process.wait(), command, stderr=process.communicate()[1])
    return process


def why_not() -> str:
    """Why there can be no machines here; empty if there can be."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    for tool in ("ip", "unshare", "nsenter", "setpriv"):
        if not shutil.which(tool):
            return f"needs {tool}: apt install iproute2 util-linux"
    try:
        with Machines():
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {getattr(error, 'stderr', None) or error}"


def lives(pid: int) -> bool:
    """Whether a process exists and is not just waiting for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_all(process: subprocess.Popen[Any]) -> None:
    """Kill a program and all its descendants, and wait until they have freed their locks."""
    family = listening.family(process.pid)
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(map(lives, family)))
