"""A checkpoint survives a kill at any instruction, a full disk, damage, and hostile files.

Kills are real: a forked child kills itself with SIGKILL at the k-th file system call. SIGKILL cannot show the order of
fsyncs, because the page cache outlives the process; that is read from a log of the calls.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import HANG, in_child
from dragoman import checkpoint, console, serialization
from dragoman.errors import CheckpointError, NewerFormatError, StorageError
from dragoman.storage import atomic_folder
from dragoman.translation import loading
from faults.harness import die_at_call, watch_calls
from saved import FILES, contents, flip_a_bit, names, newest_files, silent, snapshot

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")


def test_checkpoint_reads_back_whole(root: Path) -> None:
    """Guards against a file left out, and a temporary folder left behind."""
    path = checkpoint.save(root, 1200, contents(1))
    assert path == root / "step-00001200"
    assert names(root) == {"step-00001200"}
    assert names(path) == {*FILES, "manifest.json"}
    found = checkpoint.read(path)
    assert (found.step, found.files, found.path) == (1200, contents(1), path)
    assert {"python", "torch", "safetensors"} <= found.manifest["versions"].keys()


def test_checkpoint_can_be_moved_and_renamed(root: Path, tmp_path: Path) -> None:
    """Guards against absolute paths, and a step taken from the folder's name."""
    moved = shutil.move(checkpoint.save(root, 12, contents(1)), tmp_path / "my model")
    assert checkpoint.read(Path(moved)).step == 12


def test_steps_beyond_eight_digits_are_still_sorted_as_numbers(root: Path) -> None:
    """Guards against sorting by name: step-100000000 comes before step-99999999 in the alphabet."""
    for step in (99_999_999, 100_000_000, 5):
        checkpoint.save(root, step, contents(step))
    assert newest_files(root) == contents(100_000_000)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o027])
def test_file_modes_follow_the_umask(root: Path, umask: int) -> None:
    """Guards against the mode 0600 of temporary files, which keeps a colleague from opening the checkpoint."""
    previous = os.umask(umask)
    try:
        path = checkpoint.save(root, 1, contents(1))
        checkpoint.set_best(root, 1, bleu=1.0)
    finally:
        os.umask(previous)
    for file in [*path.iterdir(), root / "best.json"]:
        assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask, file
    assert stat.S_IMODE(path.stat().st_mode) == 0o777 & ~umask


@pytest.mark.parametrize("step", [1, 2], ids=["same step", "next step"])
def test_kill_at_any_call_of_a_save_leaves_the_old_or_the_new_checkpoint(tmp_path: Path, step: int) -> None:
    """Guards against half a checkpoint, none while one is being replaced, and leftovers that stay."""

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
            checkpoint.read(path)  # including those being deleted
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
    assert deaths > 3 * len(FILES), "no calls were seen"


def test_save_removes_leftovers_of_an_earlier_process(root: Path, tmp_path: Path) -> None:
    """Guards against leftovers in the way: in a container, a restarted process has the pid of the one that died."""
    old = shutil.copytree(checkpoint.save(root, 1, contents(1)), tmp_path / "old")
    checkpoint.save(root, 1, contents(2))
    shutil.copytree(old, root / "replaced-step-00000001")
    shutil.copytree(old, root / f".tmp-step-00000001-{os.getpid()}")
    (root / ".tmp-best.json").write_bytes(b"{")
    assert newest_files(root) == contents(2), "the new one counts, not the one it replaced"
    checkpoint.save(root, 1, contents(3))
    assert names(root) == {"step-00000001"}
    assert newest_files(root) == contents(3)


def test_folder_of_a_killed_process_is_removed_an_hour_later(tmp_path: Path) -> None:
    """Guards the disk, the folder of a process that still writes, and folders of the user with similar names."""
    old, running, mine = (tmp_path / name for name in (f".tmp-made-{16 * '0'}", f".tmp-made-{16 * '1'}", ".tmp-made"))
    for folder in (old, running, mine):
        folder.mkdir()
    os.utime(old, (0, 0))
    os.utime(mine, (0, 0))
    with atomic_folder(tmp_path / "made") as made:
        assert names(tmp_path) == {running.name, mine.name, made.name}
    assert names(tmp_path) == {running.name, mine.name, "made"}


def test_short_writes_are_continued(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against weights beyond 2 GiB, which no kernel writes in one call."""
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:100]))
        checkpoint.save(root, 1, contents(1))
    assert newest_files(root) == contents(1)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the path of a descriptor is read from /proc")
def test_fsync_before_and_after_the_rename_that_publishes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a checkpoint with empty files after a power cut."""
    log: list[tuple[str, str]] = []

    def before(name: str, args: tuple[Any, ...]) -> None:
        path = os.readlink(f"/proc/self/fd/{args[0]}") if isinstance(args[0], int) else os.fspath(args[0])
        log.append((name, Path(path).name))

    with monkeypatch.context() as patch:
        watch_calls(before, patch)
        checkpoint.save(root, 2, contents(2))
    published, temporary = next((i, name) for i, (call, name) in enumerate(log) if call == "rename")
    for name in (*FILES, "manifest.json"):
        assert log.index(("write", name)) < log.index(("fsync", name)) < published
    assert log.index(("fsync", "manifest.json")) < log.index(("fsync", temporary)) < published
    assert log.index(("fsync", FILES[-1])) < log.index(("write", "manifest.json")), "the manifest comes last"
    assert ("fsync", root.name) in log[published:]
    for folder in (root, root.parent, root.parent.parent):  # all three are new
        assert ("fsync", folder.parent.name) in log[log.index(("mkdir", folder.name)) :]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_failure_at_any_call_of_a_save_is_one_clear_error(
    root: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a failed save that is silent, leaves files on a full disk, or destroys the old checkpoint."""
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
        else:  # only one failure is harmless: after success, looking for a temporary folder to delete
            assert names(root) == {"step-00000001", "step-00000002"}
            unreported += failed
        assert checkpoint.read(root / "step-00000001").files == contents(1)
        failures += 1
    assert failures > 3 * len(FILES)
    assert unreported <= 1


def test_full_disk_is_reported_with_numbers_and_destroys_nothing(root: Path) -> None:
    """Guards against a short write taken for a complete one. Here the kernel itself sets the limit."""
    checkpoint.save(root, 1, contents(1))
    before = snapshot(root)
    large = {**contents(2), "training.pt": bytes(100_000)}

    def save_with_little_space() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        with pytest.raises(
            StorageError, match=r"step-00000002.* 10\d,\d\d\d bytes are needed and [\d,]+ bytes are free.*intact"
        ):
            checkpoint.save(root, 2, large)

    assert in_child(save_with_little_space) == 0
    assert snapshot(root) == before
    checkpoint.save(root, 2, large)
    assert newest_files(root) == large


def test_disk_that_returns_other_bytes_publishes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against pruning good checkpoints because of one that was never read back."""
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
    """Guards against a network folder in which nothing can be saved, and a real failure that is swallowed."""
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


def replace_by_a_link(path: Path) -> None:
    """Link to a good copy outside: the content matches, but the link must be refused."""
    outside = path.parent.parent.parent / "outside"
    os.replace(path, outside)
    path.symlink_to(outside)


def replace_by_a_pipe(path: Path) -> None:
    """Opening it would wait forever for a writer."""
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
    """Change a manifest and its seal, as an attacker or a later version would."""
    path = directory / "manifest.json"
    manifest = serialization.unsealed(path.read_bytes())
    change(manifest)
    path.write_bytes(serialization.sealed(manifest))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_damaged_checkpoint_is_reported_renamed_and_the_next_older_used(root: Path, name: str, damage: str) -> None:
    """Guards against training on damaged weights, a crash instead of a fallback, and deleted evidence."""
    for step in (1, 2, 3):
        checkpoint.save(root, step, contents(step))
    DAMAGES[damage](root / "step-00000003" / name)
    before = snapshot(root)
    warnings: list[str] = []
    assert newest_files(root, False, warnings.append) == contents(2)
    assert len(warnings) == 1
    assert f"step-00000003/{name} " in warnings[0]
    assert "\n" not in warnings[0]
    assert snapshot(root) == before, "reading must not write"

    assert newest_files(root, True, warnings.append) == contents(2)
    assert "corrupt-step-00000003" in warnings[-1]
    expected = {path.replace("step-00000003", "corrupt-step-00000003"): data for path, data in before.items()}
    assert snapshot(root) == expected, "renamed, and nothing else"
    assert newest_files(root) == contents(2), "no second warning"


def test_checkpoint_damaged_twice_is_renamed_twice(root: Path) -> None:
    """Guards against a rename onto the folder left by the first accident."""
    checkpoint.save(root, 1, contents(1))
    for _ in range(3):
        flip_a_bit(checkpoint.save(root, 2, contents(2)) / "training.pt")
        assert newest_files(root, True, lambda _: None) == contents(1)
    assert names(root) == {"step-00000001", *(f"corrupt-step-00000002{suffix}" for suffix in ("", "-2", "-3"))}


@pytest.mark.parametrize("quarantine", [False, True])
def test_nothing_changes_when_all_are_damaged(root: Path, quarantine: bool) -> None:
    """Guards against training that silently starts from zero in the folder of a run that could still be rescued."""
    for step, name in enumerate(FILES):
        flip_a_bit(checkpoint.save(root, step, contents(step)) / name)
    before = snapshot(root)
    warnings: list[str] = []
    with pytest.raises(CheckpointError, match="all 6 checkpoints"):
        checkpoint.newest(root, quarantine, warnings.append)
    assert len(warnings) == len(FILES)
    assert snapshot(root) == before


def test_no_checkpoint_is_not_an_error(root: Path) -> None:
    """Guards against a first start that fails, and leftovers taken for a checkpoint."""
    assert checkpoint.newest(root, True, silent) is None
    (root / ".tmp-step-00000001-1").mkdir(parents=True)
    (root / "corrupt-step-00000001").mkdir()
    (root / "step-1").mkdir()
    assert checkpoint.newest(root, True, silent) is None


def test_every_flipped_bit_of_a_manifest_is_noticed(root: Path) -> None:
    """Guards against an unprotected manifest: a step of 1201 instead of 1200 silently skips a batch."""
    path = checkpoint.save(root, 1200, {"state.json": b"{}"})
    manifest = (path / "manifest.json").read_bytes()
    for index in range(len(manifest)):
        flipped = bytearray(manifest)
        flipped[index] ^= 1 << index % 8
        (path / "manifest.json").write_bytes(flipped)
        with pytest.raises(CheckpointError):
            checkpoint.read(path)


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"sha256": 1}'])
def test_garbage_manifest_is_a_checkpoint_error(root: Path, data: bytes) -> None:
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
def test_forged_manifest_is_a_checkpoint_error(root: Path, forgery: str) -> None:
    """Guards against a KeyError or TypeError, and an allocation as large as the manifest requests."""
    path = checkpoint.save(root, 1, contents(1))
    forge(path, FORGERIES[forgery])
    with pytest.raises(CheckpointError, match="step-00000001"):
        checkpoint.read(path)


@pytest.mark.parametrize("quarantine", [False, True])
def test_newer_format_is_neither_read_nor_taken_for_damage(root: Path, quarantine: bool) -> None:
    """Guards against an older program that falls back and discards what a newer one has trained."""
    checkpoint.save(root, 1, contents(1))
    forge(checkpoint.save(root, 2, contents(2)), lambda manifest: manifest.update(format_version=2, files=["new"]))
    before = snapshot(root)
    with pytest.raises(NewerFormatError, match=r"step-00000002 was written by a newer version .*update"):
        checkpoint.newest(root, quarantine, silent)
    assert snapshot(root) == before


def test_only_some_files_can_be_read(root: Path) -> None:
    """Guards against a translator that needs the optimizer state, which is three times as large as the weights."""
    path = checkpoint.save(root, 1, contents(1))
    (path / "training.pt").unlink()
    wanted = ("model.safetensors", "config.yaml")
    assert checkpoint.read(path, wanted).files == {name: contents(1)[name] for name in wanted}
    found = checkpoint.newest(root, False, silent, only=wanted)
    assert found is not None
    assert found.files.keys() == {*wanted}
    flip_a_bit(path / "config.yaml")
    with pytest.raises(CheckpointError, match=r"config\.yaml does not match"):
        checkpoint.read(path, wanted)
    with pytest.raises(CheckpointError, match=r"vocabulary is not part of it"):
        checkpoint.read(path, only=["vocabulary"])


def test_missing_checkpoint_is_named(root: Path) -> None:
    """Guards against a bare FileNotFoundError."""
    with pytest.raises(CheckpointError, match=r"step-00000001/manifest\.json is missing"):
        checkpoint.read(root / "step-00000001")


def test_prune_keeps_the_newest_and_the_best(root: Path) -> None:
    """Guards against pruning by name or age, and losing the best checkpoint."""
    for step in range(1, 7):
        checkpoint.save(root, step, contents(step))
    checkpoint.set_best(root, 2, bleu=31.5, loss=0.1 + 0.2)
    checkpoint.prune(root, keep_last=3)
    assert names(root) == {"best.json", *(f"step-0000000{step}" for step in (2, 4, 5, 6))}
    assert checkpoint.get_best(root) == {"step": 2, "bleu": 31.5, "loss": 0.1 + 0.2}
    checkpoint.set_best(root, 5, bleu=32.0)
    checkpoint.prune(root, keep_last=1)
    assert names(root) == {"best.json", "step-00000005", "step-00000006"}


def test_damaged_best_is_ignored_and_stops_pruning(root: Path) -> None:
    """Guards against a crash on resume, and deleting the best checkpoint because a bit flipped in its step."""
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


def test_best_of_a_step_that_is_trained_again_is_forgotten(root: Path) -> None:
    """Guards against a best checkpoint that was damaged, and a score that its next one does not have."""
    checkpoint.save(root, 1, contents(1))
    checkpoint.set_best(root, 3, bleu=9.0)
    checkpoint.forget_later_best(root, 3)
    assert checkpoint.get_best(root) == {"step": 3, "bleu": 9.0}
    checkpoint.forget_later_best(root, 1)
    assert checkpoint.get_best(root) is None


def test_reader_during_training_always_finds_a_whole_checkpoint(root: Path) -> None:
    """Guards against all races that the tests above do not cover."""
    checkpoint.save(root, 0, contents(0))

    def train() -> None:
        for step in range(1, 100_000):
            for _ in range(2):  # the second save of a step replaces the first
                checkpoint.save(root, step, contents(step))
            checkpoint.set_best(root, step, bleu=float(step))
            checkpoint.prune(root, keep_last=1)

    child = os.fork()
    if child == 0:
        signal.alarm(HANG)
        try:
            train()
        finally:
            os._exit(1)
    seen = set()
    try:
        reads = 0
        while reads < 300 or len(seen) < 50:
            found = checkpoint.newest(root, False, silent)
            assert found is not None
            assert found.files == contents(found.step)
            seen.add(found.step)
            reads += 1
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the training has failed"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_best_checkpoint_that_is_pruned_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a translator beside a training against a warning, or an older checkpoint, when the best one changes."""
    root, read, said = tmp_path / "checkpoints", checkpoint.read, list[str]()
    checkpoint.save(root, 1, contents(1))
    checkpoint.set_best(root, 1, bleu=1.0)

    def prune_first(directory: Path, *arguments: Any) -> checkpoint.Checkpoint:
        if checkpoint.step_of(directory) == 1:
            checkpoint.save(root, 2, contents(2))
            checkpoint.set_best(root, 2, bleu=2.0)
            checkpoint.prune(root, keep_last=1)
        return read(directory, *arguments)

    monkeypatch.setattr(checkpoint, "read", prune_first)
    monkeypatch.setattr(console, "warn", said.append)
    assert loading.find_checkpoint(tmp_path, list(FILES)).step == 2
    assert not said
    flip_a_bit(root / "step-00000002" / next(iter(FILES)))  # damage, on the other hand, is named
    with pytest.raises(CheckpointError):
        loading.find_checkpoint(tmp_path, list(FILES))
    assert said
