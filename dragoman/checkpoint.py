"""Checkpoints: saved whole or not at all, verified before use, pruned when no longer needed.

A checkpoint is one folder of plain files that appears by a single rename, so a process killed at any moment leaves
the old one or the new one, never half of one:

    checkpoints/step-00001200/     a checkpoint; `manifest.json` holds the size and sha256 of every other file
    checkpoints/best.json          the step of the best checkpoint, and the scores that made it so
    checkpoints/corrupt-step-...   found damaged when training resumed; never read again, never deleted here
    checkpoints/.tmp-...           left by a killed process; the next save removes it
    averaged/                      made by `averaging`: a checkpoint to translate with, not to resume from

`train` calls `save`, then `set_best` and `prune`, under the run's lock; it resumes from `newest`. Translation calls
`newest` or `read`, which write nothing by default. A checkpoint holds no path, so it can be moved.

Hashes detect accidents, not forgery. Against a hostile file, this relies on safetensors, JSON, torch's weights-only
loader, and on refusing any name or link that leads out of the folder. The verified bytes are the bytes used, so saving
and reading take the size of the checkpoint in memory once more.
"""

from __future__ import annotations

import errno
import math
import os
import platform
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman import reading
from dragoman.atomic_folder import atomic_folder, discard
from dragoman.errors import CheckpointError, NewerFormatError
from dragoman.serialization import sealed, sha256_of, unsealed
from dragoman.storage import remove_temporaries, replace_durably, storing, sync, write_durably

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
BEST = "best.json"
# When a save replaces a checkpoint of the same step, the old one is called `replaced-step-...` until the new one is
# in place. A crash in between may leave only that name, so it counts as a checkpoint too.
_STEP_NAME = re.compile(r"(?:replaced-)?step-([0-9]{8,})")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TENSORS = (".safetensors", ".pt", ".bin")  # files that may be as large as a model


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: `files` holds the very bytes that were hashed."""

    path: Path
    step: int
    files: dict[str, bytes]
    manifest: dict[str, Any]


def step_directory(root: Path, step: int) -> Path:
    """The folder of the checkpoint of a step."""
    return root / f"step-{step:08d}"


def save(root: Path, step: int, files: Mapping[str, bytes]) -> Path:
    """Write the checkpoint of a step, as `publish` does, and return its folder.

    The caller holds the run's lock. An existing checkpoint of the same step is replaced, and what killed processes
    left is removed.

    Raises:
        StorageError: the disk is full or fails. Everything saved before is intact.
    """
    final = step_directory(root, step)
    with storing(final):
        if root.is_dir():
            remove_temporaries(root)
    publish(final, step, files)
    return final


def publish(final: Path, step: int, files: Mapping[str, bytes]) -> None:
    """Write a checkpoint folder so that it exists whole or not at all, see `atomic_folder`.

    Raises:
        StorageError: the disk is full or fails. What was there before is intact.
    """
    import importlib.metadata  # slow to import, and reading a checkpoint does not need it

    assert step >= 0
    assert all(_PLAIN_NAME.fullmatch(name) and name != MANIFEST for name in files), list(files)
    manifest = {
        "format_version": FORMAT_VERSION,
        "step": step,
        "files": {name: {"size": len(data), "sha256": sha256_of(data)} for name, data in files.items()},
        "versions": {
            "python": platform.python_version(),
            **{library: importlib.metadata.version(library) for library in ("torch", "safetensors", "tokenizers")},
        },
    }
    contents = {**files, MANIFEST: sealed(manifest)}
    with storing(final, sum(map(len, contents.values()))), atomic_folder(final) as made:
        for name, data in contents.items():
            write_durably(made / name, data)
        # Older checkpoints are pruned because this one exists, so detect a disk that returns wrong bytes.
        if any((made / name).read_bytes() != data for name, data in contents.items()):
            raise OSError(errno.EIO, "what was written reads back differently")


def read(directory: Path, only: Collection[str] | None = None, optional: Collection[str] = ()) -> Checkpoint:
    """Read a checkpoint and verify every byte. With `only`, read and verify just the files it names.

    `optional` are further files to read with `only`, if the checkpoint has them.

    Raises:
        CheckpointError: a file is missing, damaged, not a plain file or too large for memory; the message names it.
        NewerFormatError: a newer version of this program wrote the checkpoint.
    """
    manifest = read_manifest(directory)
    entries = manifest["files"]
    files: dict[str, bytes] = {}
    for name in [*entries] if only is None else [*only, *(name for name in optional if name in entries)]:
        if name not in entries:
            raise unusable(directory / name, "is not part of it")
        data = read_plain(directory / name, entries[name]["size"])
        if sha256_of(data) != entries[name]["sha256"]:
            raise unusable(directory / name, "does not match the sha256 that was noted when it was written")
        files[name] = data
    return Checkpoint(directory, manifest["step"], files, manifest)


def _most(name: str) -> float:
    """Return how many bytes a file with this name may have; tensors may fill the memory."""
    return math.inf if name.endswith(_TENSORS) else reading.TEXT


def read_manifest(directory: Path) -> dict[str, Any]:
    """Read and verify the manifest of a checkpoint. Raises as `read` does."""
    path = directory / MANIFEST
    data = read_plain(path)
    try:
        manifest = unsealed(data)
    except CheckpointError as error:
        raise unusable(path, "is damaged") from error
    version, step, files = (manifest.get(key) for key in ("format_version", "step", "files"))
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise NewerFormatError(
            f"checkpoint {directory} was written by a newer version of this program (its format is {version}, and "
            f"this version knows formats up to {FORMAT_VERSION}): update the program, or use another checkpoint."
        )
    if version != FORMAT_VERSION or not isinstance(step, int) or step < 0 or not isinstance(files, dict):
        raise unusable(path, "is not the manifest of a checkpoint")
    for name, entry in files.items():
        if not _PLAIN_NAME.fullmatch(name):
            raise unusable(path, f"names {name!r}, which is not a plain file name")
        match entry:
            case {"size": int(size), "sha256": str()} if not 0 <= size <= _most(name):
                raise unusable(path, f"says that {name} has {size:,} bytes, more than is read of such a file")
            case {"size": int(), "sha256": str()}:
                pass
            case _:
                raise unusable(path, f"lacks the size or the sha256 of {name}")
    return manifest


def read_plain(path: Path, size: int | None = None) -> bytes:
    """Read a whole file of `size` bytes, or of a note's size if that is None, see `reading.NOTE`.

    Before any byte is read, refuse a link, a folder, a device, or a file of another size.

    Raises:
        CheckpointError: the file is refused, missing or unreadable.
    """
    try:
        data = reading.read(path, reading.NOTE if size is None else size, plain=True)
    except FileNotFoundError as error:
        raise unusable(path, "is missing") from error
    except OSError as error:
        if size is not None and error.errno == errno.EFBIG:
            raise unusable(path, f"has more than the {size:,} bytes that were noted when it was written") from error
        raise unusable(path, f"cannot be read ({error.strerror})") from error
    except MemoryError as error:
        raise unusable(path, "does not fit into memory") from error
    if size is not None and len(data) != size:
        raise unusable(path, f"has {len(data):,} bytes, but {size:,} were noted when it was written")
    return data


def unusable(path: Path, reason: str) -> CheckpointError:
    """The error that says what is wrong with a file, and what to do."""
    return CheckpointError(f"{path} {reason}: restore the checkpoint from a copy, or use another.")


def steps(root: Path) -> list[Path]:
    """List the checkpoints in a folder by name, newest first; none if the folder does not exist."""
    if not root.is_dir():
        return []
    with os.scandir(root) as entries:  # the listing itself says what is a folder, while training renames them
        paths = [Path(entry.path) for entry in entries if _STEP_NAME.fullmatch(entry.name) and entry.is_dir()]
    return sorted(paths, key=lambda path: (step_of(path), path.name.startswith("step-")), reverse=True)


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint that `steps` listed."""
    match = _STEP_NAME.fullmatch(path.name)
    assert match
    return int(match[1])


def newest(
    root: Path,
    quarantine: bool,
    warn: Callable[[str], None],
    only: Collection[str] | None = None,
    optional: Collection[str] = (),
) -> Checkpoint | None:
    """Read the newest intact checkpoint, as `read` does. Return None if there are no checkpoints at all.

    `warn` is called for each damaged one that is skipped. With `quarantine` these are renamed once an intact one is
    found; without it, nothing on disk changes. Training may save and prune in the same folder meanwhile.

    Raises:
        CheckpointError: all checkpoints are damaged. Nothing is renamed, and no run silently starts again from zero.
        NewerFormatError: a newer version wrote the newest one; falling back would discard its training.
        StorageError: a damaged one could not be renamed.
    """
    damaged: list[Path] = []
    # List the folder again for each attempt: what the last listing named may have been pruned since.
    while candidates := [path for path in steps(root) if path not in damaged]:
        path = candidates[0]
        identity = folder_identity(path)
        try:
            checkpoint = read(path, only, optional)
        except NewerFormatError:
            raise
        except CheckpointError as error:
            if identity is not None and identity == folder_identity(path):  # else pruned or replaced while being read
                warn(str(error))
                damaged.append(path)
            continue
        if quarantine:
            for path in damaged:
                warn(f"damaged checkpoint {path} was renamed to {_set_aside(path).name}")
        return checkpoint
    if damaged:
        raise CheckpointError(
            f"all {len(damaged)} checkpoints in {root} are damaged, the newest is {damaged[0].name}; nothing was "
            "changed: restore one from a copy, or start a new run under another name."
        )
    return None


def folder_identity(path: Path) -> tuple[int, int] | None:
    """Identify a folder, to tell it from a later one with the same name. None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def set_best(root: Path, step: int, **scores: float) -> None:
    """Record the best checkpoint so far and its scores. Raises StorageError."""
    with storing(root / BEST):
        replace_durably(root / BEST, sealed({**scores, "step": step}))


def get_best(root: Path) -> dict[str, Any] | None:
    """Return what `set_best` recorded, including `step`; None if nothing is recorded or it is damaged."""
    try:
        best = unsealed(read_plain(root / BEST))
    except CheckpointError:
        return None
    return best if isinstance(best.get("step"), int) else None


def forget_later_best(root: Path, step: int) -> None:
    """Remove `best.json` if it names a later step than the one that training resumes from. Raises StorageError."""
    best = get_best(root)
    if best is not None and best["step"] > step:
        with storing(root / BEST):
            os.unlink(root / BEST)


def prune(root: Path, keep_last: int) -> None:
    """Delete all checkpoints except the newest `keep_last` and the best.

    While `best.json` is damaged it might name any of them, so nothing is deleted until `set_best` writes it again.

    Raises:
        StorageError: a checkpoint could not be deleted.
    """
    assert keep_last >= 1
    best = get_best(root)
    if best is None and os.path.lexists(root / BEST):
        return
    for path in steps(root)[keep_last:]:
        if best is None or step_of(path) != best["step"]:
            with storing(path):
                discard(path)


def _set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint so that it no longer counts as one, without overwriting an earlier one."""
    target = path.with_name(f"corrupt-{path.name}")
    count = 1
    while os.path.lexists(target):
        count += 1
        target = path.with_name(f"corrupt-{path.name}-{count}")
    with storing(path):
        os.rename(path, target)
        sync(path.parent)
    return target
