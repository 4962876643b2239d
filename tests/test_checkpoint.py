"""A checkpoint survives the death of the process at any instruction, a full disk, damage, and hostile files.

Deaths are real: a forked child kills itself with SIGKILL at the k-th file system call. What SIGKILL cannot show,
for the page cache outlives the process, is the order of the fsyncs: that is read from a log of the calls.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import resource
import shutil
import signal
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import in_child, tiny_config
from dragoman import averaging as averaging_module
from dragoman import checkpoint, command_line, run_lock, serialization
from dragoman.__main__ import run as run_command
from dragoman.errors import CheckpointError, NewerFormatError, RunInUseError, StorageError
from dragoman.translation.translator import Translator
from faults.harness import die_at_call, watch_calls

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")

FILES = (
    "model.safetensors",
    "config.yaml",
    "source.tokenizer.json",
    "target.tokenizer.json",
    "training.pt",
    "state.json",
)


def contents(mark: int) -> dict[str, bytes]:
    """The six files of a checkpoint, different for each mark."""
    return {name: f"{name} {mark} ".encode() * 50 for name in FILES}


def silent(message: str) -> None:
    raise AssertionError(f"an unexpected warning: {message}")


def newest_files(root: Path, quarantine: bool = False, warn: Callable[[str], None] = silent) -> dict[str, bytes]:
    found = checkpoint.newest(root, quarantine, warn)
    assert found is not None
    return found.files


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def snapshot(root: Path) -> dict[str, Any]:
    """Everything there is below a folder: names, kinds, contents."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        if path.is_file() and path.stat().st_size < 2**20
        else (path.lstat().st_mode, path.lstat().st_size)
        for path in sorted(root.rglob("*"))
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "toy" / "checkpoints"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait for the disk where hundreds of saves need no power cut to survive; the call is still made."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


# ------------------------------------------------------------------------------------------------ values to bytes


class Tied(nn.Module):
    """A bf16 and an fp32 matrix, an integer buffer, a transposed view, and one matrix under two names."""

    def __init__(self, seed: int = 0, vocabulary: int = 7) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embedding = nn.Embedding(vocabulary, 4)
        self.coarse = nn.Linear(4, 3, dtype=torch.bfloat16)
        self.generator = nn.Linear(4, vocabulary, bias=False)
        self.transposed = nn.Parameter(torch.empty(5, 4).t())
        self.register_buffer("counts", torch.arange(3) + seed)
        self.generator.weight = self.embedding.weight
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))


def bits(state: dict[str, Tensor]) -> dict[str, tuple[torch.dtype, bytes]]:
    return {name: (t.dtype, t.contiguous().flatten().view(torch.uint8).numpy().tobytes()) for name, t in state.items()}


def test_weights_return_bit_for_bit() -> None:
    """Guards against rounding through another type, and against a tied weight that comes back untied or stale."""
    saved, loaded = Tied(seed=1), Tied(seed=2)
    assert bits(saved.state_dict()) != bits(loaded.state_dict())
    serialization.load_weights(loaded, serialization.weights_bytes(saved))
    assert bits(saved.state_dict()) == bits(loaded.state_dict())
    assert loaded.generator.weight is loaded.embedding.weight


def test_tied_weights_are_stored_once_under_the_first_name() -> None:
    """Guards against a file that holds the largest matrix twice, or under a name that depends on chance."""
    data = serialization.weights_bytes(Tied())
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    assert header.keys() == Tied().state_dict().keys() - {"generator.weight"}
    assert data == serialization.weights_bytes(Tied())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["embedding.weight", "coarse.bias"])
def test_weights_that_are_not_finite_are_refused(name: str, value: float) -> None:
    """Guards against a diverged model that overwrites the last good checkpoint, and then its predecessors."""
    model = Tied()
    model.get_parameter(name).data.view(-1)[-1] = value
    with pytest.raises(CheckpointError, match=name):
        serialization.weights_bytes(model)


def test_weights_of_another_shape_are_refused_and_change_nothing() -> None:
    """Guards against an error that lists every tensor, and against a model that is left half loaded."""
    model = Tied(vocabulary=9)
    before = bits(model.state_dict())
    with pytest.raises(CheckpointError, match=r"embedding.weight .*\(7, 4\).*\(9, 4\)"):
        serialization.load_weights(model, serialization.weights_bytes(Tied(vocabulary=7)))
    assert bits(model.state_dict()) == before


def test_weights_of_other_names_are_refused() -> None:
    """Guards against a strict=False that leaves a missing tensor at its random initial value."""
    more = Tied()
    more.extra = nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match=r"extra.weight has shape none in the checkpoint and \(2, 2\)"):
        serialization.load_weights(more, serialization.weights_bytes(Tied()))
    with pytest.raises(CheckpointError, match=r"extra.bias has shape \(2,\) in the checkpoint and none"):
        serialization.load_weights(Tied(), serialization.weights_bytes(more))
    untied = Tied()
    untied.generator.weight = nn.Parameter(untied.embedding.weight.detach().clone())
    with pytest.raises(CheckpointError, match=r"generator.weight"):
        serialization.load_weights(untied, serialization.weights_bytes(Tied()))


@pytest.mark.parametrize("data", [b"", b"\0" * 64, b"\xff" * 8 + b"{}", serialization.weights_bytes(Tied())[:-1]])
def test_what_is_no_safetensors_is_refused(data: bytes) -> None:
    """Guards against a foreign exception type, and against trusting a header length of 2 to the power of 64."""
    with pytest.raises(CheckpointError):
        serialization.load_weights(Tied(), data)


@pytest.mark.parametrize("wrapper", ["module", "_orig_mod"])
def test_a_wrapped_model_is_a_contract_broken(wrapper: str) -> None:
    """Guards against checkpoints that only load under the very wrapper that saved them."""
    with pytest.raises(AssertionError):
        serialization.weights_bytes(nn.ModuleDict({wrapper: Tied()}))


def test_optimizer_state_returns_bit_for_bit() -> None:
    """Guards against an optimizer that resumes with rounded moments or a step count of zero."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    saved = optimizer.state_dict()
    loaded = serialization.load_tensors(serialization.tensors_bytes(saved))
    assert loaded["param_groups"] == saved["param_groups"]
    for index, state in saved["state"].items():
        assert bits(loaded["state"][index]) == bits(state)


class Payload:
    """Runs a shell command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def test_a_malicious_pickle_runs_nothing(tmp_path: Path) -> None:
    """Guards against a fallback to weights_only=False, and against an error that advises it."""
    flag = tmp_path / "PWNED"
    data = serialization.tensors_bytes({"moments": Payload(f"touch {flag}")})
    with pytest.raises(CheckpointError) as caught:
        serialization.load_tensors(data)
    assert not flag.exists()
    assert "weights_only" not in str(caught.value)
    torch.load(io.BytesIO(data), weights_only=False)
    assert flag.exists(), "the payload is a dud, and this test proves nothing"


def test_json_returns_floats_exactly_and_refuses_what_is_not_finite() -> None:
    """Guards against a best score that is rounded on resume, and against NaN, with which every comparison fails."""
    value = {"best": 0.1 + 0.2, "tiny": 5e-324, "step": 2**60, "none": None, "text": "жук\ud800"}
    assert serialization.load_json(serialization.json_bytes(value)) == value
    with pytest.raises(ValueError, match="JSON"):
        serialization.json_bytes({"best": float("nan")})
    for data in (b"", b"\xff", b"{", b"NaN", b"[-Infinity]", b"1e999", b"[" * 100_000):
        with pytest.raises(CheckpointError):
            serialization.load_json(data)


# --------------------------------------------------------------------------------------------------------- saving


def test_a_checkpoint_returns_whole(root: Path) -> None:
    """Guards against a file left out, and against a temporary folder left behind."""
    path = checkpoint.save(root, 1200, contents(1))
    assert path == root / "step-00001200"
    assert names(root) == {"step-00001200"}
    assert names(path) == {*FILES, "manifest.json"}
    found = checkpoint.read(path)
    assert (found.step, found.files, found.path) == (1200, contents(1), path)
    assert {"python", "torch", "safetensors"} <= found.manifest["versions"].keys()


def test_a_checkpoint_can_be_moved_and_renamed(root: Path, tmp_path: Path) -> None:
    """Guards against absolute paths, and against a step that is taken from the folder's name."""
    moved = shutil.move(checkpoint.save(root, 12, contents(1)), tmp_path / "my model")
    assert checkpoint.read(Path(moved)).step == 12


def test_steps_beyond_eight_digits_are_still_sorted_as_numbers(root: Path) -> None:
    """Guards against sorting names: step-100000000 comes before step-99999999 in the alphabet."""
    for step in (99_999_999, 100_000_000, 5):
        checkpoint.save(root, step, contents(step))
    assert newest_files(root) == contents(100_000_000)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o027])
def test_files_are_readable_as_the_umask_says(root: Path, umask: int) -> None:
    """Guards against the mode 0600 of temporary files, with which a colleague cannot open the checkpoint."""
    previous = os.umask(umask)
    try:
        path = checkpoint.save(root, 1, contents(1))
        checkpoint.set_best(root, 1, bleu=1.0)
    finally:
        os.umask(previous)
    for file in [*path.iterdir(), root / "best.json"]:
        assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask, file
    assert stat.S_IMODE(path.stat().st_mode) == 0o777 & ~umask


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("step", [1, 2], ids=["the same step again", "the next step"])
def test_death_at_every_call_of_a_save_leaves_the_old_or_the_new_checkpoint(tmp_path: Path, step: int) -> None:
    """Guards against half a checkpoint, against none while one is being replaced, and against litter that stays."""

    def save_and_die(root: Path, k: int) -> None:
        die_at_call(k)
        checkpoint.save(root, step, contents(2))
        checkpoint.set_best(root, step, bleu=2.0)
        checkpoint.prune(root, keep_last=1)

    deaths, seen = 0, set()
    while True:
        root = tmp_path / str(deaths)
        checkpoint.save(root, 1, contents(1))
        checkpoint.set_best(root, 1, bleu=1.0)
        status = in_child(lambda root=root, k=deaths + 1: save_and_die(root, k))
        assert status in (0, -signal.SIGKILL)
        for quarantine in (False, True):
            files = newest_files(root, quarantine)
            assert files in (contents(1), contents(2))
        assert checkpoint.get_best(root) in ({"step": 1, "bleu": 1.0}, {"step": step, "bleu": 2.0})
        for path in checkpoint.steps(root):
            checkpoint.read(path)  # also those that are being deleted
        seen.add(files == contents(2))
        checkpoint.save(root, 3, contents(3))
        assert {name for name in names(root) if not name.startswith("step-")} <= {"best.json", "replaced-step-00000001"}
        checkpoint.set_best(root, 3, bleu=3.0)
        checkpoint.prune(root, keep_last=1)
        assert names(root) == {"step-00000003", "best.json"}
        if status == 0:
            break
        deaths += 1
    assert seen == {True, False}
    assert deaths > 3 * len(FILES), "the calls of a save were not seen"


def test_a_save_clears_what_an_earlier_process_left(root: Path, tmp_path: Path) -> None:
    """Guards against litter in the way: in a container, a restarted process has the pid of the one that died."""
    old = shutil.copytree(checkpoint.save(root, 1, contents(1)), tmp_path / "old")
    checkpoint.save(root, 1, contents(2))
    shutil.copytree(old, root / "replaced-step-00000001")
    shutil.copytree(old, root / f".tmp-step-00000001-{os.getpid()}")
    shutil.copytree(old, root / ".del-step-00000001")
    (root / ".tmp-best.json").write_bytes(b"{")
    assert newest_files(root) == contents(2), "the new one counts, not the one that it replaced"
    checkpoint.save(root, 1, contents(3))
    assert names(root) == {"step-00000001"}
    assert newest_files(root) == contents(3)


def test_short_writes_are_continued(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against weights beyond 2 GiB, which no kernel writes in one call."""
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:100]))
        checkpoint.save(root, 1, contents(1))
    assert newest_files(root) == contents(1)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the path of a descriptor is read from /proc")
def test_fsync_comes_before_the_rename_that_publishes_and_after_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a power cut after which a checkpoint is there by name, with empty files."""
    log: list[tuple[str, str]] = []

    def before(name: str, args: tuple[Any, ...]) -> None:
        path = os.readlink(f"/proc/self/fd/{args[0]}") if isinstance(args[0], int) else os.fspath(args[0])
        log.append((name, Path(path).name))

    with monkeypatch.context() as patch:
        watch_calls(before, patch)
        checkpoint.save(root, 2, contents(2))
    temporary = f".tmp-step-00000002-{os.getpid()}"
    published = log.index(("rename", temporary))
    for name in (*FILES, "manifest.json"):
        assert log.index(("write", name)) < log.index(("fsync", name)) < published
    assert log.index(("fsync", "manifest.json")) < log.index(("fsync", temporary)) < published
    assert log.index(("fsync", FILES[-1])) < log.index(("write", "manifest.json")), "the manifest comes last"
    assert ("fsync", root.name) in log[published:]
    for folder in (root, root.parent, root.parent.parent):  # all three are new
        assert ("fsync", folder.parent.name) in log[log.index(("mkdir", folder.name)) :]


def test_best_is_written_beside_and_renamed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against an empty best.json, after which the best checkpoint is no longer known."""
    checkpoint.save(root, 1, contents(1))
    log: list[str] = []
    with monkeypatch.context() as patch:
        watch_calls(lambda name, _: log.append(name), patch)
        checkpoint.set_best(root, 1, bleu=30.5)
    assert log == ["open", "write", "fsync", "replace", "open", "fsync"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_failure_of_every_call_of_a_save_is_one_clear_error(
    root: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a failed save that goes unnoticed, leaves litter on a full disk, or costs the old checkpoint."""
    failures, unreported, failed = 0, 0, True
    while failed:
        shutil.rmtree(root, ignore_errors=True)
        checkpoint.save(root, 1, contents(1))
        count, failed = 0, False

        def before(name: str, args: tuple[Any, ...], k: int = failures) -> None:
            nonlocal count, failed
            count += 1
            if count == k + 1:
                failed = True
                raise OSError(code, os.strerror(code))

        message = ""
        with monkeypatch.context() as patch:
            watch_calls(before, patch)
            try:
                checkpoint.save(root, 2, contents(2))
            except StorageError as error:
                message = str(error)
        assert newest_files(root) in (contents(1), contents(2))
        if message:
            assert "step-00000002" in message
            assert os.strerror(code) in message
            assert not any(name.startswith(".tmp-") for name in names(root))
        else:  # the one harmless failure is that of looking, after a success, for a temporary folder to clear away
            assert names(root) == {"step-00000001", "step-00000002"}
            unreported += failed
        assert checkpoint.read(root / "step-00000001").files == contents(1)
        failures += 1
    assert failures > 3 * len(FILES)
    assert unreported <= 1


def test_a_full_disk_is_reported_with_figures_and_costs_nothing(root: Path) -> None:
    """Guards against a short write taken for a whole one: the kernel itself sets the limit here."""
    checkpoint.save(root, 1, contents(1))
    before = snapshot(root)
    large = {**contents(2), "training.pt": bytes(100_000)}

    def save_in_little_space() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        with pytest.raises(
            StorageError, match=r"step-00000002.* 10\d,\d\d\d bytes are needed and [\d,]+ bytes are free.*intact"
        ):
            checkpoint.save(root, 2, large)

    assert in_child(save_in_little_space) == 0
    assert snapshot(root) == before
    checkpoint.save(root, 2, large)
    assert newest_files(root) == large


def test_a_disk_that_returns_other_bytes_publishes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against pruning good checkpoints on the strength of one that was never read back."""
    checkpoint.save(root, 1, contents(1))
    before = snapshot(root)
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, bytes(len(data))))
        with pytest.raises(StorageError, match="reads back differently"):
            checkpoint.save(root, 2, contents(2))
    assert snapshot(root) == before


@pytest.mark.parametrize(("code", "harmless"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_folders_without_fsync_are_tolerated_and_failing_ones_are_not(
    root: Path, code: int, harmless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a network folder on which nothing can be saved, and against a real failure that is swallowed."""
    fsync = os.fsync

    def fsync_files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    root.mkdir(parents=True)
    monkeypatch.setattr(os, "fsync", fsync_files_only)
    if harmless:
        checkpoint.save(root, 1, contents(1))
        assert newest_files(root) == contents(1)
    else:
        with pytest.raises(StorageError):
            checkpoint.save(root, 1, contents(1))


@pytest.mark.parametrize("name", ["manifest.json", "../x", "/x", "a/b", "", ".tmp-x"])
def test_only_plain_names_are_saved(root: Path, name: str) -> None:
    """Guards against a checkpoint that its own reader refuses."""
    with pytest.raises(AssertionError):
        checkpoint.save(root, 1, {name: b""})


# --------------------------------------------------------------------------------------------------------- damage


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x04
    path.write_bytes(data)


def replace_by_a_link(path: Path) -> None:
    """Link to a good copy outside: the content agrees, and is refused all the same."""
    outside = path.parent.parent.parent / "outside"
    os.replace(path, outside)
    path.symlink_to(outside)


def replace_by_a_pipe(path: Path) -> None:
    """Opening it would wait for ever for somebody to write."""
    path.unlink()
    os.mkfifo(path)


def replace_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size - 1),
    "empty": lambda path: os.truncate(path, 0),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a terabyte": lambda path: os.truncate(path, 2**40) if path.name != "manifest.json" else path.write_bytes(b"{}"),
    "one bit": flip_a_bit,
    "missing": lambda path: path.unlink(),
    "link": replace_by_a_link,
    "pipe": replace_by_a_pipe,
    "folder": replace_by_a_folder,
}


def forge(directory: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a manifest and give it the seal that it needs, as an attacker or a later version would."""
    path = directory / "manifest.json"
    manifest = serialization.unsealed(path.read_bytes())
    change(manifest)
    path.write_bytes(serialization.sealed(manifest))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_damaged_checkpoint_is_named_set_aside_and_the_next_older_used(root: Path, name: str, damage: str) -> None:
    """Guards against training on damaged weights, against a crash instead of a fallback, and against deleting."""
    for step in (1, 2, 3):
        checkpoint.save(root, step, contents(step))
    DAMAGES[damage](root / "step-00000003" / name)
    before = snapshot(root)
    warnings: list[str] = []
    assert newest_files(root, False, warnings.append) == contents(2)
    assert len(warnings) == 1
    assert f"step-00000003/{name} " in warnings[0]
    assert "\n" not in warnings[0]
    assert snapshot(root) == before, "a reader must not write"

    assert newest_files(root, True, warnings.append) == contents(2)
    assert "corrupt-step-00000003" in warnings[-1]
    expected = {path.replace("step-00000003", "corrupt-step-00000003"): data for path, data in before.items()}
    assert snapshot(root) == expected, "renamed, and nothing else"
    assert newest_files(root) == contents(2), "no second warning"


def test_a_checkpoint_damaged_twice_is_set_aside_twice(root: Path) -> None:
    """Guards against a rename onto the folder that the first accident left."""
    checkpoint.save(root, 1, contents(1))
    for _ in range(3):
        flip_a_bit(checkpoint.save(root, 2, contents(2)) / "training.pt")
        assert newest_files(root, True, lambda _: None) == contents(1)
    assert names(root) == {"step-00000001", *(f"corrupt-step-00000002{suffix}" for suffix in ("", "-2", "-3"))}


@pytest.mark.parametrize("quarantine", [False, True])
def test_when_all_are_damaged_nothing_is_touched(root: Path, quarantine: bool) -> None:
    """Guards against training that silently starts afresh, in the folder of a run that could still be rescued."""
    for step, name in enumerate(FILES):
        flip_a_bit(checkpoint.save(root, step, contents(step)) / name)
    before = snapshot(root)
    warnings: list[str] = []
    with pytest.raises(CheckpointError, match="all 6 checkpoints"):
        checkpoint.newest(root, quarantine, warnings.append)
    assert len(warnings) == len(FILES)
    assert snapshot(root) == before


def test_no_checkpoint_is_no_error(root: Path) -> None:
    """Guards against a first start that fails, and against litter taken for a checkpoint."""
    assert checkpoint.newest(root, True, silent) is None
    (root / ".tmp-step-00000001-1").mkdir(parents=True)
    (root / "corrupt-step-00000001").mkdir()
    (root / "step-1").mkdir()
    assert checkpoint.newest(root, True, silent) is None


def test_every_flipped_bit_of_a_manifest_is_noticed(root: Path) -> None:
    """Guards against the one unprotected file: a step that reads 1201 for 1200 skips a batch in silence."""
    path = checkpoint.save(root, 1200, {"state.json": b"{}"})
    manifest = (path / "manifest.json").read_bytes()
    for index in range(len(manifest)):
        flipped = bytearray(manifest)
        flipped[index] ^= 1 << index % 8
        (path / "manifest.json").write_bytes(flipped)
        with pytest.raises(CheckpointError):
            checkpoint.read(path)


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"sha256": 1}'])
def test_a_manifest_of_garbage_is_an_error_of_ours(root: Path, data: bytes) -> None:
    """Guards against a TypeError or RecursionError in place of a fallback."""
    path = checkpoint.save(root, 1, contents(1))
    (path / "manifest.json").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged"):
        checkpoint.read(path)


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no files": lambda manifest: manifest.pop("files"),
    "files a list": lambda manifest: manifest.update(files=[*FILES]),
    "no step": lambda manifest: manifest.pop("step"),
    "step a word": lambda manifest: manifest.update(step="1"),
    "no version": lambda manifest: manifest.pop("format_version"),
    "version 0": lambda manifest: manifest.update(format_version=0),
    "version a list": lambda manifest: manifest.update(format_version=[1]),
    "no entry": lambda manifest: manifest["files"].update({"state.json": None}),
    "no size": lambda manifest: manifest["files"]["state.json"].pop("size"),
    "size a word": lambda manifest: manifest["files"]["state.json"].update(size="600"),
    "size of an exabyte": lambda manifest: manifest["files"]["state.json"].update(size=2**60),
    "no hash": lambda manifest: manifest["files"]["state.json"].pop("sha256"),
    "a file more": lambda manifest: manifest["files"].update({"more": {"size": 0, "sha256": ""}}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_manifest_is_an_error_of_ours(root: Path, forgery: str) -> None:
    """Guards against a KeyError or TypeError, and against an allocation as large as the manifest asks for."""
    path = checkpoint.save(root, 1, contents(1))
    forge(path, FORGERIES[forgery])
    with pytest.raises(CheckpointError, match="step-00000001"):
        checkpoint.read(path)


@pytest.mark.parametrize("quarantine", [False, True])
def test_a_newer_format_is_neither_read_nor_taken_for_damage(root: Path, quarantine: bool) -> None:
    """Guards against an older program that falls back and throws away what a newer one has trained."""
    checkpoint.save(root, 1, contents(1))
    forge(checkpoint.save(root, 2, contents(2)), lambda manifest: manifest.update(format_version=2, files=["new"]))
    before = snapshot(root)
    with pytest.raises(NewerFormatError, match=r"step-00000002 was written by a newer version .*update"):
        checkpoint.newest(root, quarantine, silent)
    assert snapshot(root) == before


def test_some_files_can_be_read_without_the_others(root: Path) -> None:
    """Guards against a translator that reads, or depends on, an optimizer state thrice as large as the weights."""
    path = checkpoint.save(root, 1, contents(1))
    (path / "training.pt").unlink()
    wanted = ("model.safetensors", "config.yaml")
    assert checkpoint.read(path, wanted).files == {name: contents(1)[name] for name in wanted}
    found = checkpoint.newest(root, False, silent, only=wanted)
    assert found is not None
    assert found.files.keys() == {*wanted}
    flip_a_bit(path / "config.yaml")
    with pytest.raises(CheckpointError, match=r"config\.yaml does not agree"):
        checkpoint.read(path, wanted)
    with pytest.raises(CheckpointError, match=r"vocabulary is not part of it"):
        checkpoint.read(path, only=["vocabulary"])


def test_a_checkpoint_that_is_not_there_is_named(root: Path) -> None:
    """Guards against a bare FileNotFoundError."""
    with pytest.raises(CheckpointError, match=r"step-00000001/manifest\.json is missing"):
        checkpoint.read(root / "step-00000001")


# ------------------------------------------------------------------------------------------------------ retention


def test_prune_keeps_the_newest_and_the_best(root: Path) -> None:
    """Guards against pruning by name or by age, and against losing the one checkpoint that was worth the training."""
    for step in range(1, 7):
        checkpoint.save(root, step, contents(step))
    checkpoint.set_best(root, 2, bleu=31.5, loss=0.1 + 0.2)
    checkpoint.prune(root, keep_last=3)
    assert names(root) == {"best.json", *(f"step-0000000{step}" for step in (2, 4, 5, 6))}
    assert checkpoint.get_best(root) == {"step": 2, "bleu": 31.5, "loss": 0.1 + 0.2}
    checkpoint.set_best(root, 5, bleu=32.0)
    checkpoint.prune(root, keep_last=1)
    assert names(root) == {"best.json", "step-00000005", "step-00000006"}


def test_a_damaged_best_is_no_best_and_stops_pruning(root: Path) -> None:
    """Guards against a crash on resume, and against deleting the best because a bit flipped in its step."""
    for step in range(1, 5):
        checkpoint.save(root, step, contents(step))
    assert checkpoint.get_best(root) is None
    checkpoint.set_best(root, 1, bleu=1.5)
    whole = (root / "best.json").read_bytes()
    for index in range(len(whole)):
        damaged = bytearray(whole)
        damaged[index] ^= 1 << index % 8
        (root / "best.json").write_bytes(damaged)
        assert checkpoint.get_best(root) is None
    checkpoint.prune(root, keep_last=1)
    assert len(checkpoint.steps(root)) == 4
    for data in (b"", b"[]", b"null", serialization.sealed({"bleu": 1.5}), serialization.sealed({"step": "1"})):
        (root / "best.json").write_bytes(data)
        assert checkpoint.get_best(root) is None
    checkpoint.set_best(root, 1, bleu=1.5)
    checkpoint.prune(root, keep_last=1)
    assert [path.name for path in checkpoint.steps(root)] == ["step-00000004", "step-00000001"]


def test_training_from_an_older_step_never_returns_to_the_newer_ones(root: Path) -> None:
    """Guards against a second resume that picks up the abandoned future, or a best that was never trained."""
    for step in (1, 2, 3):
        checkpoint.save(root, step, contents(step))
    checkpoint.set_best(root, 3, bleu=9.0)
    for attempt in (1, 2):
        checkpoint.set_aside_newer(root, 1)
        assert newest_files(root) == contents(1)
        assert checkpoint.get_best(root) is None
        checkpoint.save(root, 2, contents(20 + attempt))
        assert newest_files(root) == contents(20 + attempt)
    stale = {"stale-step-00000002", "stale-step-00000002-2", "stale-step-00000003"}
    assert names(root) == {"step-00000001", "step-00000002", *stale}
    assert checkpoint.read(root / "stale-step-00000002").files == contents(2)
    checkpoint.set_best(root, 2, bleu=1.0)
    checkpoint.set_aside_newer(root, 2)
    assert checkpoint.get_best(root) == {"step": 2, "bleu": 1.0}


@pytest.mark.parametrize("event", ["pruned", "replaced"])
def test_a_checkpoint_that_goes_while_it_is_read_is_not_reported(
    root: Path, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a translator that cries damage, or finds none at all, because a training has moved on."""
    checkpoint.save(root, 1, contents(1))
    read_plain, reads = checkpoint.read_plain, 0

    def training_goes_on(path: Path, size: int | None = None) -> bytes:
        nonlocal reads
        reads += 1
        if reads == 3:  # the manifest and one file have been read
            checkpoint.save(root, 1 if event == "replaced" else 2, contents(7))
            checkpoint.prune(root, keep_last=1)
        return read_plain(path, size)

    monkeypatch.setattr(checkpoint, "_read_plain", training_goes_on)
    assert newest_files(root) == contents(7)


@pytest.mark.parametrize("listing", ["listdir", "scandir"])
def test_a_checkpoint_that_goes_while_the_folder_is_listed_is_not_the_end(
    root: Path, listing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against asking the disk about names of a listing that is out of date, and so finding no checkpoint."""
    checkpoint.save(root, 1, contents(1))
    original, calls = getattr(os, listing), 0

    def list_and_let_training_go_on(path: Any = ".") -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            return original(path)
        entries = list(original(path))
        checkpoint.save(root, 2, contents(2))
        checkpoint.prune(root, keep_last=1)
        return nullcontext(entries) if listing == "scandir" else entries

    monkeypatch.setattr(os, listing, list_and_let_training_go_on)
    found = checkpoint.newest(root, False, silent)
    assert found is not None
    assert found.files in (contents(1), contents(2))


@pytest.mark.usefixtures("quick")
def test_a_reader_beside_a_training_always_finds_a_whole_checkpoint(root: Path) -> None:
    """Guards against every race that the test above has not thought of."""
    checkpoint.save(root, 0, contents(0))

    def train() -> None:
        for step in range(1, 100_000):
            for _ in range(2):  # the second save of a step replaces the first
                checkpoint.save(root, step, contents(step))
            checkpoint.set_best(root, step, bleu=float(step))
            checkpoint.prune(root, keep_last=1)

    child = os.fork()
    if child == 0:
        try:
            train()
        finally:
            os._exit(1)
    seen = set()
    try:
        deadline = time.monotonic() + 20
        reads = 0
        while (reads < 300 or len(seen) < 50) and time.monotonic() < deadline:
            found = checkpoint.newest(root, False, silent)
            assert found is not None
            assert found.files == contents(found.step)
            seen.add(found.step)
            reads += 1
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the training has failed"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert len(seen) >= 50, "the training made no progress"


# ------------------------------------------------------------------------------------------------------ averaging

MODEL = {"d_model": 4, "n_heads": 2, "norm": "pre"}


def save_model(root: Path, step: int, model: nn.Module, changed: Mapping[str, bytes] = MappingProxyType({})) -> Path:
    """A checkpoint with real weights, and some files changed."""
    files = contents(step) | {
        "model.safetensors": serialization.weights_bytes(model),
        "config.yaml": json.dumps({"run": {"seed": step}, "model": MODEL}).encode(),
        "source.tokenizer.json": b"source",
        "target.tokenizer.json": b"target",
    }
    return checkpoint.save(root, step, {**files, **changed})


def config_with(**model: object) -> dict[str, bytes]:
    return {"config.yaml": json.dumps({"model": MODEL | model}).encode()}


def tied(seed: int) -> Tied:
    model = Tied(seed)
    model.counts = torch.arange(3)  # the same for all, unlike that of `Tied`
    return model


def some_checkpoints(root: Path, count: int = 3) -> list[Path]:
    return [save_model(root, step, tied(step)) for step in range(1, count + 1)]


def averaging(*words: object) -> int:
    """The command line without its process; argparse ends by SystemExit."""
    try:
        return run_command("average", command_line.parse_average([*map(str, words)]))
    except SystemExit as stop:
        return int(stop.code or 0)


def test_the_average_is_the_mean_of_each_weight(root: Path) -> None:
    """Guards against a sum in float32 or bfloat16, which loses the very differences that are to be averaged."""
    models = [tied(seed) for seed in range(5)]
    paths = [save_model(root, step, model) for step, model in enumerate(models)]
    steps, files = averaging_module.average(paths)
    assert steps == [0, 1, 2, 3, 4]
    mean = Tied(seed=9)
    serialization.load_weights(mean, files["model.safetensors"])
    for name, found in mean.state_dict().items():
        all_of_them = [model.state_dict()[name] for model in models]
        if found.is_floating_point():
            exact = [math.fsum(values) / 5 for values in zip(*(t.flatten().tolist() for t in all_of_them), strict=True)]
            expected = torch.tensor(exact, dtype=torch.float64).to(found.dtype).view(found.shape)
        else:
            expected = all_of_them[0]
        assert bits({name: found}) == bits({name: expected})
    assert mean.generator.weight is mean.embedding.weight


@pytest.mark.parametrize("times", [2, 3, 7])
def test_the_average_of_a_checkpoint_with_itself_is_itself(root: Path, times: int) -> None:
    """Guards against rounding, against a -0.0 that becomes 0.0, and against weights that come back untied."""
    model = tied(1)
    model.coarse.bias.data[:] = torch.tensor([-0.0, 1e-40, 3e38])
    model.embedding.weight.data[0] = torch.tensor([-0.0, 1e-45, 3e38, 1 / 3])
    path = save_model(root, 1, model)
    _, files = averaging_module.average([path] * times)
    assert files["model.safetensors"] == (path / "model.safetensors").read_bytes()


def test_what_a_resume_may_change_does_not_part_checkpoints(root: Path) -> None:
    """Guards a training that went on with another dropout: its checkpoints are as alike as any."""
    some_checkpoints(root, 2)
    other = config_with(preset="small", **{f"{kind}dropout": 0.3 for kind in ("", "attention_", "word_", "depth_")})
    save_model(root, 3, tied(3), other)
    steps, _ = averaging_module.average(checkpoint.steps(root))
    assert sorted(steps) == [1, 2, 3]


def test_an_average_does_not_depend_on_the_order(root: Path) -> None:
    """Guards against a shell's sorting: `step-*` puts 100000000 before 99999999, and that is not the newest."""
    paths = some_checkpoints(root)
    expected = averaging_module.average(paths)
    assert averaging_module.average(paths[::-1]) == expected
    assert averaging_module.average([paths[1], paths[2], paths[0]]) == expected


def test_an_average_is_a_checkpoint_to_translate_with(root: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards against a bundle file of a later version that is left out, and a training state that is taken along."""
    run = root.parent
    for step in (1, 2):
        save_model(root, step, tied(step))
    save_model(root, 3, tied(3), {"new.json": b"{}"})
    assert averaging("--run", run, "--last", 2) == 0
    found = checkpoint.read(run / "averaged")
    newest = checkpoint.read(root / "step-00000003").files
    assert found.step == 3
    assert found.files.keys() == newest.keys() - {"training.pt", "state.json"} | {"averaged.json"}
    assert all(
        found.files[name] == newest[name] for name in found.files.keys() & newest.keys() - {averaging_module.WEIGHTS}
    )
    made_of = json.loads(found.files["averaged.json"])["mean_of"]
    assert [(one["name"], one["step"]) for one in made_of] == [("step-00000002", 2), ("step-00000003", 3)]
    assert made_of[1]["weights"] == serialization.sha256_of(newest[averaging_module.WEIGHTS])
    assert str(run.parent) not in found.files["averaged.json"].decode(), "a checkpoint holds no path"

    output, error = capsys.readouterr()
    assert error == ""
    assert output.count("\n") == 1
    for fragment in ("2, 3", f"evaluate.py --checkpoint {run / 'averaged'}", f"translate.py --checkpoint {run}"):
        assert fragment in output


def other_names() -> Tied:
    model = tied(2)
    model.extra = nn.Linear(2, 2)
    return model


DIFFERENCES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "a shape": (r"embedding\.weight .*\(7, 4\).*\(9, 4\)", lambda root: save_model(root, 2, Tied(vocabulary=9))),
    "a type": (r"coarse\.bias .*bfloat16.*float64", lambda root: save_model(root, 2, tied(2).double())),
    "a name": (r"extra\.", lambda root: save_model(root, 2, other_names())),
    "a counter": (r"counts.*\[0, 1, 2\].*\[2, 3, 4\]", lambda root: save_model(root, 2, Tied(2))),
    "a tokenizer": (
        r"target\.tokenizer\.json",
        lambda root: save_model(root, 2, tied(2), {"target.tokenizer.json": b""}),
    ),
    "heads, which no shape tells": (
        r"model\.n_heads \(2 and 4\)",
        lambda root: save_model(root, 2, tied(2), config_with(n_heads=4)),
    ),
    "a setting of a later version": (
        r"model\.new \(None and 1\)",
        lambda root: save_model(root, 2, tied(2), config_with(new=1)),
    ),
    "no configuration": (
        r"config\.yaml is not a conf",
        lambda root: save_model(root, 2, tied(2), {"config.yaml": b"["}),
    ),
    "no model in it": (r"config\.yaml is not a conf", lambda root: save_model(root, 2, tied(2), {"config.yaml": b"a"})),
    "damage": (r"sha256", lambda root: flip_a_bit(save_model(root, 2, tied(2)) / "model.safetensors") or root),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_what_has_no_mean_is_refused_in_a_line(root: Path, difference: str, capsys: pytest.CaptureFixture) -> None:
    """Guards against weights that fit each other by shape and translate nothing, and against half a result."""
    message, make = DIFFERENCES[difference]
    save_model(root, 1, tied(1))
    make(root)
    assert averaging("--run", root.parent) == 4
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert names(root.parent) == {"checkpoints"}


def test_as_many_as_there_are(root: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards against a silent mean of fewer than were asked for, and against one of one."""
    run = root.parent
    assert averaging("--run", run) == 4
    assert "holds 0" in capsys.readouterr().err
    save_model(root, 1, tied(1))
    assert averaging("--run", run) == 4
    assert "holds 1" in capsys.readouterr().err
    assert not (run / "averaged").exists()
    save_model(root, 2, tied(2))
    assert averaging("--run", run) == 0
    assert "no more than 2: training.keep_last" in capsys.readouterr().err
    shutil.copytree(root / "step-00000002", root / "replaced-step-00000002")  # a save that is being replaced
    assert averaging("--run", run) == 0
    assert "steps 1, 2;" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        ([], "either a run"),
        (["a", "--run", "b"], "either a run"),
        (["a", "--output", "b"], "a is only one"),
        (["a", "b"], "--output"),
        (["a", "b", "--last", "2", "--output", "c"], "--run"),
        (["--run", "a", "--last", "1"], "--last is 1"),
        (["--run", "a", "--last", "few"], "--last"),
        (["--run", "a", "--outp", "b"], "--outp"),
        (["--run", "a", "--output", "run/checkpoints/best"], "outside"),
        (["--run", "a", "--output", "run/checkpoints"], "exists"),
        (["--run", "a", "--output", "."], "exists"),
        (["--run", "a", "--output", "file"], "exists"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    tmp_path: Path, words: list[str], fragment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Guards a user's own folder, which an average must not replace, and a run's checkpoints, likewise."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"precious")
    before = snapshot(tmp_path)
    assert averaging(*words) == 2
    error = capsys.readouterr().err
    assert fragment in error
    assert error.count("\n") == 1
    assert snapshot(tmp_path) == before


@pytest.mark.usefixtures("quick")
def test_death_at_every_call_of_an_average_leaves_the_old_or_the_new_one(root: Path, tmp_path: Path) -> None:
    """Guards against half an average, and against the files of a training beside it that look like litter."""
    paths = some_checkpoints(root)
    steps, files = averaging_module.average(paths)
    place = tmp_path / "run" / "averaged"
    set_aside = place.with_name("replaced-averaged")

    def publish_and_die(k: int) -> None:
        die_at_call(k)
        checkpoint.publish(place, steps[-1], files)

    deaths, seen, between = 0, set(), 0
    while True:
        shutil.rmtree(place.parent, ignore_errors=True)
        assert averaging(*paths[:2], "--output", place) == 0
        (place.parent / ".tmp-config.yaml").write_bytes(b"is just being written")
        (place.parent / ".tmp-averaged-again-1").mkdir()
        before = names(place.parent)
        status = in_child(lambda k=deaths + 1: publish_and_die(k))
        assert status in (0, -signal.SIGKILL)
        between += not place.exists()
        seen.add(checkpoint.read(place if place.exists() else set_aside).step)
        assert averaging(*paths[1:], "--output", place) == 0
        assert names(place.parent) == before
        assert checkpoint.read(place).step == 3
        if status == 0:
            break
        deaths += 1
    assert seen == {2, 3}
    assert deaths > 3 * len(files), "the calls were not seen"
    assert between == 1, "only between the two renames"


def test_a_full_disk_costs_no_average(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Guards the exit code by which a script tells a disk from a mistake."""
    some_checkpoints(root)
    run = root.parent
    assert averaging("--run", run) == 0
    before = snapshot(run)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert averaging("--run", run) == 7
    assert "bytes are free" in capsys.readouterr().err
    assert snapshot(run) == before


def test_a_training_that_prunes_meanwhile_is_no_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against an average beside a training that fails because its oldest checkpoint has just been deleted."""
    some_checkpoints(root)
    read_plain, calls = checkpoint.read_plain, 0

    def training_goes_on(path: Path, size: int | None = None) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 5:
            save_model(root, 4, tied(4))
            checkpoint.prune(root, keep_last=2)
        return read_plain(path, size)

    monkeypatch.setattr(checkpoint, "_read_plain", training_goes_on)
    steps, _ = averaging_module.average_newest(root.parent, last=3)
    assert steps == [3, 4]


def test_a_translator_reads_an_average_and_a_resume_does_not(tmp_path: Path) -> None:
    """Guards the way from a training to its averaged translator, and the training against its own average."""
    config = tiny_config(tmp_path, training__save_every=2, training__keep_last=5, training__max_steps=12)
    assert in_child(lambda: run_command("train", config)) == 0
    run = tmp_path / "runs" / "tiny"
    assert averaging("--run", run) == 0
    averaged = Translator(run / "averaged")
    assert averaged.step == 12
    models = [Translator(path).model for path in checkpoint.steps(run / "checkpoints")[:5]]
    states = [model.state_dict() for model in models]
    for name, mean in averaged.model.state_dict().items():
        torch.testing.assert_close(mean, torch.stack([state[name] for state in states]).mean(0))
    assert len(averaged.translate(["the cat sees the dog."])) == 1
    before = snapshot(run / "averaged")
    longer = tiny_config(tmp_path, training__save_every=2, training__keep_last=5, training__max_steps=13)
    assert in_child(lambda: run_command("train", longer)) == 0
    found = checkpoint.newest(run / "checkpoints", False, silent)
    assert found is not None
    assert found.step == 13
    assert snapshot(run / "averaged") == before


# ----------------------------------------------------------------------------------------------------------- lock


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A process that holds the lock of tmp_path, and a worker that it has forked since: their pids."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with run_lock.lock(tmp_path):
                worker = os.fork()
                if worker:
                    os.write(sender, str(worker).encode())
                time.sleep(60)
        finally:
            os._exit(1)
    worker = int(os.read(receiver, 100))
    try:
        yield child, worker
    finally:
        os.close(receiver)
        os.close(sender)
        os.kill(worker, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_second_training_is_refused_at_once_and_told_by_whom(tmp_path: Path, holder: tuple[int, int]) -> None:
    """Guards against two trainings that write over each other, and against one that waits in silence."""
    start = time.monotonic()
    with pytest.raises(RunInUseError, match=rf"process {holder[0]} on \S+"), run_lock.lock(tmp_path):
        pass
    assert time.monotonic() - start < 1
    assert json.loads((tmp_path / "run.json").read_text())["pid"] == holder[0], "the refused one changed the name"


def test_sigkill_frees_the_lock_at_once(tmp_path: Path, holder: tuple[int, int]) -> None:
    """Guards against a lock file that must be removed by hand, and against workers that outlive their training."""
    os.kill(holder[0], signal.SIGKILL)
    os.waitid(os.P_PID, holder[0], os.WEXITED | os.WNOWAIT)
    assert (tmp_path / "run.json").exists()
    with run_lock.lock(tmp_path):
        assert json.loads((tmp_path / "run.json").read_text())["pid"] == os.getpid()


def test_the_lock_is_freed_at_the_end_and_after_an_error(tmp_path: Path) -> None:
    """Guards against a run that names a process of long ago as its owner."""
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), run_lock.lock(tmp_path / "new" / "run"):
            raise ZeroDivisionError
    assert names(tmp_path / "new" / "run") == {".lock"}


def test_a_lock_does_not_hide_what_went_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the advice of a save that failed, on a disk that Linux has made read-only meanwhile."""

    def unlink(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    def fail() -> None:
        monkeypatch.setattr(Path, "unlink", unlink)
        raise StorageError("make room")

    with pytest.raises(StorageError, match="make room"), run_lock.lock(tmp_path):
        fail()
    monkeypatch.undo()
    with run_lock.lock(tmp_path):
        pass


def test_a_lock_without_a_readable_name_is_still_a_lock(tmp_path: Path) -> None:
    """Guards against a KeyError while the holder is just writing its name."""
    for data in (b"", b"[]", b"{}"):
        with run_lock.lock(tmp_path):
            (tmp_path / "run.json").write_bytes(data)
            with pytest.raises(RunInUseError, match="another process"), run_lock.lock(tmp_path):
                pass


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    """Guards against a traceback for a mistyped folder; a file in its place fails for root as well."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file/run"), run_lock.lock(tmp_path / "file" / "run"):
        pass
    with pytest.raises(StorageError, match="file/checkpoints"):
        checkpoint.save(tmp_path / "file" / "checkpoints", 1, contents(1))
    with pytest.raises(StorageError, match=r"file/best\.json"):
        checkpoint.set_best(tmp_path / "file", 1)
