"""Checkpoints: saved whole or not at all, verified before use, and kept for as long as they are needed.

A checkpoint is one folder of plain files that appears by a single rename, so that a process killed at any moment
leaves the old one or the new one, never half of one:

    checkpoints/step-00001200/     one checkpoint; `manifest.json` holds the size and sha256 of every other file
    checkpoints/best.json          the step of the best checkpoint, and the figures that made it so
    checkpoints/corrupt-step-...   one found damaged when training resumed; never read again, and never deleted here
    checkpoints/stale-step-...     one that a resume from an older step left behind; likewise
    checkpoints/.tmp-... .del-...  litter of a process that was killed; the next save removes it
    averaged/                      what `average` made: a checkpoint too, but one to translate with, not to resume from

`train` holds `lock`, calls `save`, then `set_best` and `prune`, and resumes from `newest` after `set_aside_newer`;
`translate` calls `newest` or `read`, which write nothing unless they are asked to. A checkpoint holds no path, so it
can be moved and opened elsewhere.

    python checkpoint.py average --run runs/phrasebook --last 5
    python checkpoint.py average DIR DIR DIR --output DIR

makes one checkpoint of several, which often translates better than each of them. Exit codes: 0 done, 2 wrong arguments,
4 no usable checkpoint, 7 a disk that fails or is full.

Nothing is ever unpickled. Hashes detect accidents, not forgery: against a hostile file stand safetensors, JSON, torch's
weights-only loader, and the refusal of any name or link that leads out of the folder. A checkpoint passes through
memory as bytes, what is verified being what is used, so saving and reading cost its size in memory once more.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import io
import json
import math
import os
import platform
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from dragoman.errors import CheckpointError, NewerFormatError, NotFiniteError, RunInUseError, StorageError

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
BEST = "best.json"
# A save that replaces a checkpoint of the same step moves the old one to `replaced-step-...` until the new one is
# there. A crash in between may leave that name alone, so it counts as a checkpoint too.
_STEP_NAME = re.compile(r"(?:replaced-)?step-([0-9]{8,})")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: the bytes that were hashed are the bytes in `files`."""

    path: Path
    step: int
    files: dict[str, bytes]
    manifest: dict[str, Any]


# ------------------------------------------------------------------------------------------------ values to bytes


def weights_bytes(model: nn.Module) -> bytes:
    """Pack the weights as safetensors, a tensor that has several names once, under the first of them.

    Takes the raw model: the wrappers of torch.compile and of data parallelism add prefixes to the names.

    Raises:
        NotFiniteError: a tensor holds an infinite value or NaN.
    """
    state = model.state_dict()
    assert not any(name.startswith(("_orig_mod.", "module.")) for name in state), "pass the model, not its wrapper"
    tensors = {name: state[name].cpu().contiguous() for name in dict.fromkeys(_first_names(state).values())}
    _check_finite(tensors)
    return safetensors.torch.save(tensors)


def load_weights(model: nn.Module, data: bytes) -> None:
    """Fill the model from the bytes of `weights_bytes`, cast to the model's own types; all of it or nothing.

    Raises:
        CheckpointError: the data is not safetensors, or a name or a shape differs (the first one is named).
    """
    tensors = unpack_weights(data)
    state = model.state_dict()
    first = _first_names(state)
    expected = {name: tuple(state[name].shape) for name in first.values()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in [*expected, *sorted(found)]:
        if expected.get(name) != found.get(name):
            raise CheckpointError(
                f"the weights do not fit the model: {name} has shape {found.get(name, 'none')} in the checkpoint and "
                f"{expected.get(name, 'none')} in the model. Use the configuration that the checkpoint was made with."
            )
    model.load_state_dict({name: tensors[first[name]] for name in state})


def unpack_weights(data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # the Rust parser has an exception of its own, and its wrapper adds KeyError and others
        raise CheckpointError(f"the weights are not safetensors ({error}): use another checkpoint.") from error


def _first_names(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Map each name to the first name of the same tensor, which differs from it where weights are tied."""
    seen: dict[tuple, str] = {}
    return {
        name: seen.setdefault((t.untyped_storage().data_ptr(), t.storage_offset(), t.shape, t.stride(), t.dtype), name)
        for name, t in state.items()
    }


def tensors_bytes(value: Any) -> bytes:
    """Pack tensors, numbers, strings, lists and dicts, such as an optimizer's state, for `load_tensors`.

    Raises:
        NotFiniteError: a tensor holds an infinite value or NaN.
    """
    _check_finite(value)
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _check_finite(value: Any, name: str = "") -> None:
    """Look at every tensor, at whatever depth."""
    if isinstance(value, Tensor) and not torch.isfinite(value).all():
        raise NotFiniteError(
            f"the training cannot be saved, because {name} holds NaN or infinite values: run the same command again, "
            "which resumes from the last checkpoint, with a lower learning rate or more warm-up."
        )
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, part in parts:
        _check_finite(part, f"{name}.{key}" if name else str(key))


def load_tensors(data: bytes) -> Any:
    """Unpack the bytes of `tensors_bytes` on the CPU, running no code that they may contain.

    Raises:
        CheckpointError: the data is damaged, or holds anything else than plain values.
    """
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # what damage raises depends on where it sits
        # Torch's own message advises weights_only=False, which would run the code of a hostile file.
        raise CheckpointError(
            f"the training state holds something else than plain tensors and numbers ({type(error).__name__}), "
            "and was not loaded: use another checkpoint."
        ) from error


def json_bytes(value: Any) -> bytes:
    """Pack a value as JSON, floats exactly. NaN and infinities are no JSON: ValueError."""
    return (json.dumps(value, allow_nan=False, indent=2) + "\n").encode()


def load_json(data: bytes) -> Any:
    """Unpack JSON.

    Raises:
        CheckpointError: the data is not JSON, or holds a number that is not finite.
    """

    def finite(text: str) -> float:
        if not math.isfinite(number := float(text)):
            raise ValueError(f"{text} is not a finite number")
        return number

    try:
        return json.loads(data, parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the data is not JSON ({error}): use another checkpoint.") from error


def _sealed(content: dict[str, Any]) -> bytes:
    """Pack as JSON together with the hash of the rest, so that one flipped bit in a step number does not go unseen."""
    return json_bytes({**content, "sha256": sha256_of(json_bytes(content))})


def _unsealed(data: bytes) -> dict[str, Any]:
    content = load_json(data)
    if not isinstance(content, dict) or not content.pop("sha256", None) or _sealed(content) != data:
        raise CheckpointError("the data does not agree with its own sha256: use another checkpoint.")
    return content


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --------------------------------------------------------------------------------------------------------- saving


def step_directory(root: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return root / f"step-{step:08d}"


def save(root: Path, step: int, files: Mapping[str, bytes]) -> Path:
    """Write a checkpoint so that it exists whole or not at all, also after a crash or a power cut; return its folder.

    The caller holds the run's `lock`. An existing checkpoint of the same step is replaced.

    Raises:
        StorageError: the disk is full, or fails. What was saved before is intact.
    """
    final = step_directory(root, step)
    if root.is_dir():
        with storing(final):
            _remove_litter(root)
    publish(final, step, files)
    return final


def publish(final: Path, step: int, files: Mapping[str, bytes]) -> None:
    """Write the folder of a checkpoint so that it exists whole or not at all, also after a crash or a power cut.

    A folder that is there already gives way, for no two can be exchanged at once: it is renamed to `replaced-...`, the
    new one takes its name, and the old one is deleted. A process killed between the two renames leaves the old one,
    whole, under that other name; it is deleted when the next attempt has succeeded.

    Raises:
        StorageError: the disk is full, or fails. What was there before is intact.
    """
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
    contents = {**files, MANIFEST: _sealed(manifest)}
    root = final.parent
    temporary = root / f".tmp-{final.name}-{os.getpid()}"
    replaced = root / f"replaced-{final.name}"
    with storing(final, sum(map(len, contents.values()))):
        try:
            _make_directory(root)
            _remove_litter(root, final.name)
            os.mkdir(temporary)
            for name, data in contents.items():
                _write_durably(temporary / name, data)
            sync(temporary)
            # Older checkpoints are pruned on the strength of this one, so a disk that lies is found out first.
            if any((temporary / name).read_bytes() != data for name, data in contents.items()):
                raise OSError(errno.EIO, "what was written reads back differently")
            if os.path.lexists(final):  # a folder cannot be renamed onto another that has files in it
                os.rename(final, replaced)
            os.rename(temporary, final)
            sync(root)
            _remove_litter(root, final.name)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # after a failure; a published one no longer has this name


@contextmanager
def storing(path: Path, needed: int = 0) -> Iterator[None]:
    """Turn a failure to write at path, or below it, or to rename or remove there, into a StorageError."""
    try:
        yield
    except OSError as error:
        place = next(folder for folder in (path, *path.parents) if os.path.exists(folder))
        wanted = f"{needed:,} bytes are needed and " if needed else ""
        free = shutil.disk_usage(place).free
        raise StorageError(
            f"cannot write {path} ({error.strerror or error}): {wanted}{free:,} bytes are free. "
            "What was saved before is intact: make room, or mend the disk, and run the same command again."
        ) from error


def _write_durably(path: Path, data: bytes) -> None:
    """Write a file, and return when it would survive a power cut."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o666)  # less what the umask takes
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, data: bytes) -> None:
    """Write a file beside the old one and rename it, so that readers see the old or the new content."""
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        _write_durably(temporary, data)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk needs the room
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, new or renamed, survive a power cut."""
    if os.name == "nt":  # Windows opens no folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems have no such operation
            raise
    finally:
        os.close(descriptor)


def _make_directory(path: Path) -> None:
    if not path.is_dir():
        _make_directory(path.parent)
        os.mkdir(path)
        sync(path.parent)


# -------------------------------------------------------------------------------------------------------- reading


def read(directory: Path, only: Collection[str] | None = None) -> Checkpoint:
    """Read a checkpoint and verify every byte of it, or of the files named in `only`; the others are not opened.

    Raises:
        CheckpointError: the file and what is wrong with it: it is missing, damaged, or no plain file.
        NewerFormatError: a newer version of this program wrote the checkpoint.
    """
    manifest = read_manifest(directory)
    entries = manifest["files"]
    files: dict[str, bytes] = {}
    for name in entries if only is None else only:
        if name not in entries:
            raise unusable(directory / name, "is not part of it")
        data = _read_plain(directory / name, entries[name]["size"])
        if sha256_of(data) != entries[name]["sha256"]:
            raise unusable(directory / name, f"does not agree with its sha256 in {MANIFEST}")
        files[name] = data
    return Checkpoint(directory, manifest["step"], files, manifest)


def read_manifest(directory: Path) -> dict[str, Any]:
    path = directory / MANIFEST
    data = _read_plain(path)
    try:
        manifest = _unsealed(data)
    except CheckpointError as error:
        raise unusable(path, "is damaged") from error
    version, step, files = (manifest.get(key) for key in ("format_version", "step", "files"))
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise NewerFormatError(
            f"checkpoint {directory} was written by a newer version of this program (its format is {version}, the "
            f"newest known here is {FORMAT_VERSION}): update the program, or use another checkpoint."
        )
    if version != FORMAT_VERSION or not isinstance(step, int) or not isinstance(files, dict):
        raise unusable(path, "is not the manifest of a checkpoint")
    for name, entry in files.items():
        if not _PLAIN_NAME.fullmatch(name):
            raise unusable(path, f"names {name!r}, which is not a plain file name")
        match entry:
            case {"size": int(), "sha256": str()}:
                pass
            case _:
                raise unusable(path, f"lacks the size or the sha256 of {name}")
    return manifest


def _read_plain(path: Path, size: int | None = None) -> bytes:
    """Read a file whole, unless it is a link, a device, or of another size, which is looked at before any byte."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise unusable(path, "is a link, a folder or a device, not a plain file")
        if size is not None and status.st_size != size:
            raise unusable(path, f"has {status.st_size:,} bytes and not {size:,} as {MANIFEST} says")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise unusable(path, "is missing") from error
    except OSError as error:
        raise unusable(path, f"cannot be read ({error.strerror})") from error


def unusable(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} {reason}: restore the checkpoint from a copy, or use another.")


def steps(root: Path) -> list[Path]:
    """List the checkpoints in a folder by their names alone, newest first; none if there is no such folder."""
    if not root.is_dir():
        return []
    with os.scandir(root) as entries:  # which tells folders by the listing itself, while a training renames them
        found = [Path(entry.path) for entry in entries if _STEP_NAME.fullmatch(entry.name) and entry.is_dir()]
    return sorted(found, key=lambda path: (step_of(path), path.name.startswith("step-")), reverse=True)


def step_of(path: Path) -> int:
    match = _STEP_NAME.fullmatch(path.name)
    assert match
    return int(match[1])


def newest(
    root: Path, quarantine: bool, warn: Callable[[str], None], only: Collection[str] | None = None
) -> Checkpoint | None:
    """Read the newest checkpoint that is whole, or return None where there is none of any kind.

    Each damaged one that is passed over is described to `warn`. With `quarantine` it is then renamed, once a good one
    has been found; without it, nothing on disk is touched. A training may save and prune in the same folder meanwhile.

    Raises:
        CheckpointError: there are checkpoints, but all are damaged. None is touched, nothing silently starts afresh.
        NewerFormatError: the newest is sound but unreadable here; to fall back would throw away its training.
        StorageError: a damaged one could not be renamed.
    """
    damaged: list[Path] = []
    # The folder is listed again for each attempt: what the last listing named may have been pruned since.
    while candidates := [path for path in steps(root) if path not in damaged]:
        path = candidates[0]
        identity = folder_identity(path)
        try:
            found = read(path, only)
        except NewerFormatError:
            raise
        except CheckpointError as error:
            if identity is not None and identity == folder_identity(
                path
            ):  # else it was pruned or replaced while being read
                warn(str(error))
                damaged.append(path)
            continue
        if quarantine:
            for path in damaged:
                warn(f"damaged checkpoint {path} was renamed to {_set_aside(path, 'corrupt').name}")
        return found
    if damaged:
        raise CheckpointError(
            f"all {len(damaged)} checkpoints in {root} are damaged, the newest being {damaged[0].name}; nothing was "
            "changed: restore one from a copy, or start a new run under another name."
        )
    return None


def folder_identity(path: Path) -> tuple[int, int] | None:
    """Tell a folder from another one that took its name."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


# ------------------------------------------------------------------------------------------------------ retention


def set_best(root: Path, step: int, **figures: float) -> None:
    """Record which checkpoint is the best so far, and by what figures. StorageError if it cannot be written."""
    with storing(root / BEST):
        replace_durably(root / BEST, _sealed({**figures, "step": step}))


def get_best(root: Path) -> dict[str, Any] | None:
    """Return what `set_best` recorded, `step` among it; None if there is nothing, or nothing that can be trusted."""
    try:
        best = _unsealed(_read_plain(root / BEST))
    except CheckpointError:
        return None
    return best if isinstance(best.get("step"), int) else None


def prune(root: Path, keep_last: int) -> None:
    """Delete all checkpoints but the newest `keep_last` and the best.

    A damaged `best.json` may name any of them: then nothing is deleted until `set_best` has written it anew.

    Raises:
        StorageError: a checkpoint could not be deleted.
    """
    assert keep_last >= 1
    best = get_best(root)
    if best is None and os.path.lexists(root / BEST):
        return
    for path in steps(root)[keep_last:]:
        if best is None or step_of(path) != best["step"]:
            _set_aside(path, ".del")  # a reader then finds it whole or not at all
    with storing(root):
        _remove_litter(root)


def set_aside_newer(root: Path, step: int) -> None:
    """Rename what lies after the step that training resumes from, so that it is never mistaken for its future.

    Call it at every resume: it also drops a `best.json` that names a later step, one that was found damaged included.

    Raises:
        StorageError: a checkpoint could not be renamed.
    """
    for path in steps(root):
        if step_of(path) > step:
            _set_aside(path, "stale")
    best = get_best(root)
    if best is not None and best["step"] > step:
        with storing(root / BEST):
            os.unlink(root / BEST)


def _set_aside(path: Path, prefix: str) -> Path:
    """Rename a checkpoint so that it no longer counts as one, never onto another that had the same fate."""
    target = path.with_name(f"{prefix}-{path.name}")
    count = 1
    while os.path.lexists(target):
        count += 1
        target = path.with_name(f"{prefix}-{path.name}-{count}")
    with storing(path):
        os.rename(path, target)
        sync(path.parent)
    return target


def _remove_litter(root: Path, of: str | None = None) -> None:
    """Delete what killed processes left half written or half deleted, and checkpoints that have been replaced.

    In a folder of checkpoints all of that is ours; in any other only what bears the name of the checkpoint there.
    """
    name = ".*" if of is None else re.escape(of)
    for path in root.iterdir():
        if re.fullmatch(f"replaced-{name}", path.name) and (root / path.name.removeprefix("replaced-")).exists():
            path = _set_aside(path, ".del")  # as in `prune`
        if re.fullmatch(rf"\.(tmp|del)-(replaced-)?{name}(-[0-9]+)?", path.name):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

            # Else a training has pruned or replaced one meanwhile: choose again.


# ----------------------------------------------------------------------------------------------------------- lock


@contextmanager
def lock(run_dir: Path) -> Iterator[None]:
    """Hold a run folder for this process alone. The kernel frees it however the process ends.

    Raises:
        RunInUseError: another process holds it; this is said at once.
        StorageError: the folder cannot be written.
    """
    from filelock import FileLock, Timeout  # here, for a translator needs no lock and starts 5 ms sooner

    holder = run_dir / "run.json"
    guard = FileLock(run_dir / ".lock", timeout=0)
    with storing(run_dir):
        _make_directory(run_dir)
        try:
            guard.acquire()
        except Timeout:
            raise RunInUseError(_in_use(run_dir, holder)) from None
    try:
        with storing(holder):
            replace_durably(holder, json_bytes({"pid": os.getpid(), "host": platform.node()}))
        yield
    finally:
        with suppress(OSError):  # of a disk that can only be read by now: what was said of that is more useful
            holder.unlink(missing_ok=True)
        guard.release()


def _in_use(run_dir: Path, holder: Path) -> str:
    try:
        who = load_json(_read_plain(holder))
        name = f"process {who['pid']} on {who['host']}"
    except (CheckpointError, KeyError, TypeError):  # it is just starting or ending
        name = "another process"
    return f"{run_dir} is in use by {name}: wait until it ends, stop it, or train under another run name."
