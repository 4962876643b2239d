"""At which addresses processes listen, from Linux's /proc."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LISTENING = "0A"  # the state of a TCP socket in /proc/net/tcp


def family(pid: int) -> set[int]:
    """A process and all its descendants."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # a process that has just ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while new := {child for child, parent in parents.items() if parent in found} - found:
        found |= new
    return found


def addresses(pids: set[int]) -> set[str]:
    """The IP addresses at which these processes listen; `::` and `0.0.0.0` are all interfaces."""
    own = {inode for pid in pids for inode in _sockets(pid)}
    return {address for address, inode in _listening() if inode in own}


def _sockets(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            name = str(link.readlink())
            if name.startswith("socket:["):
                yield name[8:-1]


def _listening() -> Iterator[tuple[str, str]]:
    for name, kind in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        table = Path("/proc/net", name)
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            columns = line.split()
            if columns[3] == LISTENING:
                words = bytes.fromhex(columns[1].partition(":")[0])  # 32-bit words in the byte order of this machine
                packed = b"".join(struct.pack("!I", *word) for word in struct.iter_unpack("=I", words))
                yield socket.inet_ntop(kind, packed), columns[9]
