"""Cases 19, 28, 31, 32, 39 and 40: what may change between two starts, and other processes at work."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import safetensors.torch
import torch

from conftest import HANG
from dragoman import checkpoint, console, serialization
from dragoman.corpora import preparation
from dragoman.settings import Config
from dragoman.translation.translator import Translator
from faults import harness
from faults.harness import (
    Reference,
    Signpost,
    at,
    at_step,
    checkpoints,
    die,
    directory,
    outcome,
    run,
    start,
    tree,
    wait,
    wrap,
)
from loopback import wait_until

Toy = Callable[..., Config]
faults = pytest.mark.faults

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")


# --- The environment


@faults
@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("threads was 1 and is now 2", lambda: torch.set_num_threads(2)),
        ("torch was .* and is now 99.0", lambda: setattr(torch, "__version__", "99.0")),
        ("processor was .* and is now Z80", lambda: setattr(torch.backends.cpu, "get_cpu_capability", lambda: "Z80")),
    ],
)
def test_19_another_environment_gives_a_warning(
    toy: Toy, what: str, change: harness.Fault, capfd: pytest.CaptureFixture
) -> None:
    """Guards the promise "bit for bit": where sums may run in another order, a warning says so."""
    assert run(toy(), at_step(9, die)) == -signal.SIGKILL
    assert run(toy(training__max_steps=8)) == 0
    assert "warning: torch was" not in capfd.readouterr().out
    assert run(toy(training__max_steps=10), change) == 0
    assert re.search(f"warning: {what}: the run continues, but not bit for bit", capfd.readouterr().out)
    assert outcome(toy())[1]["progress"]["step"] == 10
    assert run(toy(training__max_steps=11), change) == 0
    assert "warning:" not in capfd.readouterr().out.partition("resumed")[0], "the new environment is recorded"


@faults
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are counted in /proc")
def test_28_there_are_no_workers_to_kill(toy: Toy, reference: Reference) -> None:
    """Guards the promise that one process does everything, so that no death leaves a training waiting for a batch.

    Making a batch takes some 0.1 ms, less than a worker would need to send it. If workers are ever added, this test
    must kill one, and see the training end and resume. The death of a library's child changes nothing.
    """

    def count_and_kill() -> None:
        lines = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
        if any(lines):
            os._exit(50)
        stranger = os.fork()
        if stranger == 0:
            time.sleep(HANG)
        os.kill(stranger, signal.SIGKILL)

    assert run(toy(), at_step(9, count_and_kill)) == 0
    assert outcome(toy()) == reference.outcome


# --- The settings


@faults
@pytest.mark.parametrize("key", ["model.d_model", "data.max_length", "run.seed", "training.batch_tokens"])
def test_31_a_forbidden_change_is_refused(toy: Toy, key: str, capfd: pytest.CaptureFixture) -> None:
    """Guards a resumed run against other weights or other data than it started with.

    `test_config` checks that every setting says whether it may change.
    """
    assert run(toy(training__max_steps=5)) == 0
    before = tree(directory(toy()))
    assert run(toy(**{key.replace(".", "__"): 64})) == 2
    assert key in capfd.readouterr().err
    assert tree(directory(toy())) == before


@faults
def test_31_an_allowed_change_gives_a_warning(toy: Toy, capfd: pytest.CaptureFixture) -> None:
    """Guards against silent changes: a new learning rate takes effect, is reported, and is in config.yaml."""
    assert run(toy(training__max_steps=5)) == 0
    assert run(toy(training__max_steps=8, training__lr=0.001, training__log_every=2)) == 0
    said = capfd.readouterr().out
    assert "training.lr was 0.01 and is 0.001" in said
    assert "log_every was" not in said, "free to change without a warning"
    assert "lr: 0.001" in (directory(toy()) / "config.yaml").read_text()


@faults
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_31_a_rate_that_rises_again_gives_a_warning(toy: Toy, schedule: str, capfd: pytest.CaptureFixture) -> None:
    """Guards a user who extends a finished run: the rate had fallen to zero, and jumps."""
    change = {"training__schedule": schedule, "training__validate_every": 100}
    assert run(toy(training__max_epochs=1, **change)) == 0
    capfd.readouterr()
    assert run(toy(training__max_epochs=3, **change), at_step(12, die)) == -signal.SIGKILL
    said = capfd.readouterr().out
    assert re.search(r"warning: the learning rate had fallen to 0\.00\S* and rises again to 0\.00", said)
    assert run(toy(training__max_epochs=3, training__save_every=5, **change), at_step(14, die)) == -signal.SIGKILL
    assert "rises again" not in capfd.readouterr().out.partition("resumed")[2], "once the rate is as the config says"


@faults
def test_32_newer_and_unknown_formats_are_refused(toy: Toy, capfd: pytest.CaptureFixture) -> None:
    """Guards the work of a newer version against an older one, which would fall back and train it again."""
    assert run(toy(training__max_steps=10)) == 0
    newest = checkpoints(toy()) / "step-00000010"
    manifest = newest / "manifest.json"
    content = serialization.unsealed(manifest.read_bytes())
    manifest.write_bytes(serialization.sealed({**content, "format_version": checkpoint.FORMAT_VERSION + 1}))
    before = tree(directory(toy()))
    capfd.readouterr()
    assert run(toy()) == 4
    assert "written by a newer version" in capfd.readouterr().err
    assert tree(directory(toy())) == before

    state = serialization.load_json((newest / "state.json").read_bytes())
    state["progress"]["invention"] = 1
    data = serialization.json_bytes(state)
    (newest / "state.json").write_bytes(data)
    content["files"]["state.json"] = {"size": len(data), "sha256": serialization.sha256_of(data)}
    manifest.write_bytes(serialization.sealed(content))
    assert run(toy()) == 4
    error = capfd.readouterr().err
    assert "another version of this program" in error
    assert "invention" in error


# --- Other processes


@faults
@pytest.mark.parametrize("moment", ["while data are prepared", "while it trains"])
def test_39_second_training_of_one_run_is_refused_at_once(
    toy: Toy, reference: Reference, moment: str, capfd: pytest.CaptureFixture
) -> None:
    """Guards against two processes that prune each other's checkpoints, or write the same prepared data.

    The second does not wait for the first, which sleeps, and learns its number. SIGKILL of the first frees the run at
    once, even if a child outlives it.
    """
    sign = Signpost()

    def hold() -> None:
        helper = os.fork()
        if helper == 0:
            time.sleep(HANG)
            os._exit(0)
        sign.pass_by("here")
        time.sleep(HANG)

    preparing = moment == "while data are prepared"
    place = wrap(preparation, "train_tokenizer", at(1, hold)) if preparing else at_step(9, hold)
    first = start(toy(), place)
    try:
        sign.await_()
        capfd.readouterr()
        before = tree(directory(toy()))
        assert run(toy()) == 5
        assert os.waitpid(first, os.WNOHANG) == (0, 0), "the second has waited for the first"
        error = capfd.readouterr().err
        assert re.search(rf"in use by process {first} on {re.escape(os.uname().nodename)}", error)
        assert error.count("\n") == 1
        assert tree(directory(toy())) == before
    finally:
        os.kill(first, signal.SIGKILL)
    assert wait(first) == -signal.SIGKILL
    assert run(toy()) == 0
    assert outcome(toy()) == reference.outcome
    os.killpg(first, signal.SIGKILL)  # the helper


@faults
def test_39_translating_while_a_training_saves_and_prunes(toy: Toy) -> None:
    """Guards a translator beside a training: each of 200 starts finds a whole checkpoint, without a warning."""
    config = toy(
        training__save_every=1, training__keep_last=1, training__max_epochs=None, training__max_steps=100_000,
        training__validate_every=3, training__log_every=1000,
    )  # fmt: skip
    training = start(config)
    try:
        wait_until(lambda: checkpoint.get_best(checkpoints(config)))
        steps, complaints = [], []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(console, "warn", complaints.append)
            for i in count():
                if i >= 200 and len(set(steps)) > 10:  # the training moves, however busy the machine is
                    break
                assert i < 2000, "the training has not moved"
                found = Translator(directory(config), "cpu")
                steps.append(found.step)
                if i % 20 == 0:
                    assert len(found.translate(["the cat sees the dog."])) == 1
                newest = checkpoint.newest(checkpoints(config), False, complaints.append)
                assert newest is not None
                steps.append(newest.step)
        assert not complaints
    finally:
        os.killpg(training, signal.SIGKILL)
        wait(training)


# --- Other places


@faults
def test_40_a_run_that_was_moved_resumes_and_translates(
    toy: Toy, reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against absolute paths in a run, and against trouble with blanks, links and a strict umask.

    The folder of runs is reached by a symbolic link with blanks in its name, then moved, and another directory becomes
    the current one. Translating writes nothing, so a read-only folder is enough.
    """
    real, link = tmp_path / "the real place", tmp_path / "a link with blanks"
    real.mkdir()
    link.symlink_to(real)
    umask = os.umask(0o077)
    try:
        assert run(toy(run__dir=link), at_step(12, die)) == -signal.SIGKILL
    finally:
        os.umask(umask)
    for path in real.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    link.unlink()
    moved = Path(shutil.move(real, tmp_path / "elsewhere"))
    monkeypatch.chdir(moved)
    config = toy(run__dir=".")
    assert run(config) == 0
    assert outcome(config) == reference.outcome
    translator = Translator(moved / config.run.name, "cpu")
    before = tree(moved)
    for path in [moved, *moved.rglob("*")]:
        path.chmod(0o555)
    assert Translator(moved / config.run.name, "cpu").translate(["the cat."]) == translator.translate(["the cat."])
    for path in [moved, *moved.rglob("*")]:
        path.chmod(0o755)
    assert tree(moved) == before
    text = [path.read_bytes() for path in moved.rglob("*") if path.suffix in (".json", ".yaml")]
    assert not any(str(tmp_path).encode() in each for each in text)


@faults
def test_40_weights_of_a_compiled_model_have_plain_names(toy: Toy) -> None:
    """Guards against `_orig_mod.` in a checkpoint, which would then load into a compiled model only."""

    def quick_compiler() -> None:
        torch.compile = partial(torch.compile, backend="eager")  # type: ignore[attr-defined]

    assert run(toy(training__compile=True, training__max_steps=10), quick_compiler) == 0
    saved = checkpoint.newest(checkpoints(toy()), quarantine=False, warn=pytest.fail)
    assert saved is not None
    names = set(safetensors.torch.load(saved.files["model.safetensors"]))
    assert not any(part in name for name in names for part in ("module.", "_orig_mod."))
    assert run(toy(training__max_steps=12)) == 0, "resumes uncompiled"
    assert Translator(directory(toy()), "cpu").translate(["the cat."])
