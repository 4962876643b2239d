"""Let a cleaning that was killed continue: files that only grow, and a record of how much of them is valid.

    with unfinished(folder, fingerprint, {"train.tsv": b"en\tde\n", "keys": b""}) as work:
        work.state                                  # what was saved last; empty at the start
        work.files["train.tsv"].write(b"...")
        work.save({"read": 5000})                   # now this much survives a kill or a power cut

The files are called train.tsv.part and so on. The next start cuts off what was written to them after the last `save`.
The fingerprint stands for everything that the content depends on; if it differs, the files start empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dragoman import console, storage
from dragoman.checkpoint import read_plain
from dragoman.errors import CheckpointError
from dragoman.serialization import sealed, unsealed

PART = ".part"  # ends the names of files that are not complete
RECORD = "progress.json" + PART


@dataclass(frozen=True)
class Unfinished:
    """Files that are being written; `state` was saved with the part of them that is already there."""

    folder: Path
    fingerprint: str
    files: Mapping[str, BinaryIO]  # by name, without PART
    state: dict[str, Any]

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self.folder / (name + PART)

    def save(self, state: Mapping[str, Any]) -> None:
        """Make all that was written survive, together with a state that JSON can hold."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        sizes = {name: file.tell() for name, file in self.files.items()}
        record = {"fingerprint": self.fingerprint, "sizes": sizes, "state": state}
        storage.replace_durably(self.folder / RECORD, sealed(record))


@contextmanager
def unfinished(folder: Path, fingerprint: str, heads: Mapping[str, bytes]) -> Iterator[Unfinished]:
    """Context manager: open the files that a killed cleaning left, or new ones with these first lines."""
    record = _read_record(folder, fingerprint, heads)
    if not record:
        remove_unfinished(folder)
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for name, head in heads.items():
            path = folder / (name + PART)
            files[name] = stack.enter_context(open(path, "r+b" if record else "xb"))
            if record:
                files[name].truncate(record["sizes"][name])
                files[name].seek(0, os.SEEK_END)
            else:
                files[name].write(head)
        yield Unfinished(folder, fingerprint, files, record.get("state", {}))


def remove_unfinished(folder: Path) -> None:
    """Remove the record and all other files that end in PART."""
    (folder / RECORD).unlink(missing_ok=True)  # first: it must not outlive a file that it describes
    for path in folder.glob("*" + PART):
        path.unlink()


def _read_record(folder: Path, fingerprint: str, heads: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the record, or {} and say why what is there cannot be used."""
    path = folder / RECORD
    if not path.exists():
        return {}
    record: dict[str, Any] = {}
    with suppress(CheckpointError):
        record = unsealed(read_plain(path))
    if record.get("fingerprint") != fingerprint:
        why = "other settings, another corpus or another version of the program"
    elif any(not _has(folder / (name + PART), record["sizes"][name]) for name in heads):
        why = "files that are now missing or shorter"
    else:
        return record
    console.warn(f"{folder} has an unfinished cleaning, but with {why}: starting over.")
    return {}


def _has(path: Path, size: int) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size >= size
