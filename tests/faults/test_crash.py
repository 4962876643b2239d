"""Cases 1 to 14: however a training dies, the same command resumes as if it had never stopped, bit for bit."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
import torch
from tensorboard.summary.writer import record_writer

from conftest import HANG, ROOT, in_child
from dragoman import checkpoint
from dragoman.corpora import preparation, prepared_files
from dragoman.model import Transformer
from dragoman.settings import Config
from dragoman.training import final_report, saving
from dragoman.training.state import TrainingState
from dragoman.translation import batch_search, translator
from faults import harness
from faults.harness import (
    Reference,
    after_step,
    arguments,
    as_shell,
    at,
    at_save,
    at_step,
    checkpoints,
    curves,
    die,
    die_at_call,
    directory,
    flip_a_bit,
    litter,
    outcome,
    run,
    run_program,
    signal_oneself,
    start,
    together,
    tree,
    wait,
    wrap,
)

Toy = Callable[..., Config]
KILLED = -signal.SIGKILL

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")


def arrived(config: Config, reference: Reference) -> bool:
    """Check that a finished run equals the uninterrupted one."""
    files, state, points = outcome(config)
    expected_files, expected_state, expected_points = reference.outcome
    assert files == expected_files
    assert state == expected_state
    assert points == expected_points
    return True


# --- SIGKILL


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(3, 8))])
def test_01_sigkill_at_a_random_step(toy: Toy, reference: Reference, seed: int) -> None:
    """Guards all of resuming: weights, optimizer, dropout, order of data, best score, curves without gap or repeat."""
    step = random.Random(seed).randint(1, reference.last)
    assert run(toy(), at_step(step, die)) == KILLED
    assert run(toy()) == 0
    assert arrived(toy(), reference)


def test_02_sigkill_at_every_file_system_call_of_a_save(toy: Toy, reference: Reference, workshop: Path) -> None:
    """Guards against half a checkpoint, none at all, and leftovers.

    Before it saves step 14, the training forks once for each call of the save, including the removal of step 7, and the
    fork dies at that call. Each death must leave the checkpoint of step 10 or that of step 14, whole. Some of them are
    then trained to the end.
    """
    config = toy()
    deaths = workshop / f"{config.run.name}-deaths"

    def die_at_each_call() -> None:
        save = saving.save

        def dying(state: TrainingState) -> None:
            if state.progress.step != 14:
                return save(state)
            assert state.writer
            state.writer.close()
            state.writer.flush = lambda: None  # type: ignore[method-assign]  # a fork does not have its thread
            root = checkpoints(config)
            shutil.copytree(root, deaths / "before")
            os.fsync = lambda _: None  # the power stays on
            state.config = replace(state.config, training=replace(state.config.training, keep_last=1))
            for k in range(1, 1000):

                def save_and_die(k: int = k) -> None:
                    die_at_call(k)
                    save(state)

                status = in_child(save_and_die)
                assert status in (0, KILLED)
                shutil.move(root, deaths / f"{k:03d}")
                shutil.copytree(deaths / "before", root)
                if status == 0:
                    os._exit(42)
            raise AssertionError

        saving.save = dying

    assert run(config, die_at_each_call) == 42
    left = sorted(path for path in deaths.iterdir() if path.name != "before")
    found = {}
    for path in left:
        saved = checkpoint.newest(path, quarantine=False, warn=pytest.fail)
        assert saved is not None
        assert harness.contents(saved) == reference.checkpoints[saved.step]
        for older in checkpoint.steps(path):
            checkpoint.read(older)
        found[path] = saved.step
    steps = list(found.values())
    assert set(steps) == {10, 14}
    assert steps == sorted(steps), "the new checkpoint appears at one moment, and stays"
    assert len(left) > 3 * len(reference.checkpoints[14][0]) + 20, "the calls of a save were not recorded"
    # One of each kind: at the first call, among the files, around the rename, and during the removal.
    moment = steps.index(14)
    for path in {left[0], left[moment // 2], left[moment - 1], left[moment], left[-3]}:
        shutil.rmtree(checkpoints(config))
        shutil.move(path, checkpoints(config))
        shutil.copytree(deaths / "before" / "step-00000010", checkpoints(config) / f".tmp-step-00000014-{16 * 'f'}")
        assert run(config) == 0
        assert outcome(config)[:2] == reference.outcome[:2]
        assert not litter(config)


@pytest.mark.faults
@pytest.mark.parametrize("moment", ["the first batch", "between loss and translations", "between validation and save"])
def test_03_sigkill_around_a_validation(toy: Toy, reference: Reference, moment: str) -> None:
    """Guards best score and patience against a validation that counts twice, and curves against double points."""
    evaluating = wrap(Transformer, "states", at(1, die), which=lambda self, *_: not self.training)
    fault = {
        "the first batch": evaluating,
        "between loss and translations": wrap(translator.Translator, "explain", at(1, die)),
        "between validation and save": wrap(
            saving, "save", lambda _: die(), which=lambda state: state.progress.step == 10
        ),
    }[moment]
    assert run(toy(), fault) == KILLED
    assert run(toy()) == 0
    assert arrived(toy(), reference)


@pytest.mark.faults
def test_03_sigkill_during_a_validation_that_is_no_better(toy: Toy) -> None:
    """Guards the best score and the count of worse validations, which belong to the run, not to the process."""
    undisturbed, killed = (toy(training__lr=1e-30, run__name=f"idle-{name}") for name in ("whole", "killed"))
    assert run(undisturbed) == 0
    state = outcome(undisturbed)[1]["progress"]
    assert (state["best_step"], state["worse"]) == (10, 2)
    evaluating = wrap(translator.Translator, "explain", at(2, die))
    assert run(killed, evaluating) == KILLED
    assert run(killed) == 0
    assert outcome(killed) == outcome(undisturbed)


# --- Signals


@pytest.mark.parametrize("step", [1, 10, 14, *(pytest.param(step, marks=pytest.mark.faults) for step in (4, 20))])
def test_04_sigterm_during_a_step_finishes_it_and_saves(
    toy: Toy, reference: Reference, step: int, capfd: pytest.CaptureFixture
) -> None:
    """The notice of a batch system: the steps since the last checkpoint are saved, and no further step is made.

    The validation of step 10 is cut short and made after the resume; step 14 saves in any case.
    """
    after = together(at_step(step, signal_oneself(signal.SIGTERM)), after_step(step + 1, die))
    assert run(toy(), after) == 143
    assert f"stopped after step {step}, which is saved" in capfd.readouterr().out
    saved = checkpoint.newest(checkpoints(toy()), quarantine=False, warn=pytest.fail)
    assert saved is not None
    assert saved.step == step
    assert run(toy()) == 0
    assert arrived(toy(), reference)


def never_return() -> None:
    """Many minutes in C that no Python code can interrupt, like the training of a large tokenizer."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("owner", "work"),
    [(prepared_files, "read_portions"), (preparation, "train_tokenizers"), (preparation, "encode_pairs")],
    ids=["reading", "tokenizers", "encoding"],
)
def test_05_signal_during_the_preparation_ends_it_at_once(
    toy: Toy, owner: ModuleType, work: str, number: signal.Signals
) -> None:
    """Guards against minutes of waiting for a tokenizer that is not needed, and against half-prepared data.

    There is no step to save yet, so the process dies of the signal, even inside a library.
    """

    def signalled() -> None:
        threading.Timer(0.2, signal_oneself(number)).start()
        never_return()
        die()

    assert as_shell(run_program(toy(), wrap(owner, work, lambda _: signalled()))) == 128 + number
    assert not (directory(toy()) / "data").exists()
    assert not checkpoints(toy()).exists()
    assert run(toy(training__max_steps=1)) == 0
    assert not litter(toy())


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("work", ["loss", "translations"])
def test_05_signal_during_a_validation_cuts_it_short(toy: Toy, work: str, number: signal.Signals) -> None:
    """Guards against minutes of validation between the signal and the save; the next start repeats it."""
    blind = {"data__validation_fraction": 0.4}
    config = toy(**blind, run__name=f"many-{work}-{number}")
    expected = toy(**blind, run__name="many-undisturbed")
    if not directory(expected).exists():
        assert run(expected) == 0

    def signal_in_the_first_batch() -> None:
        batch_search.BATCH_TOKENS = 50  # many batches
        wrap(
            *((Transformer, "states") if work == "loss" else (batch_search, "search_batch")),
            act=lambda call: os.kill(os.getpid(), number) if call == 1 else die(),
            which=lambda self, *_: work == "translations" or not self.training,
        )()

    assert run(config, signal_in_the_first_batch) == 128 + number
    assert not curves(directory(config)).get("score/bleu"), "half a validation"
    assert run(config) == 0
    assert outcome(config) == outcome(expected)


@pytest.mark.faults
@pytest.mark.parametrize("max_steps", [10, 12])
def test_05_signal_during_the_last_validation(toy: Toy, max_steps: int) -> None:
    """Guards against a run that counts as finished although its last step was never validated."""
    config, expected = (toy(training__max_steps=max_steps, run__name=f"{n}-{max_steps}") for n in ("cut", "whole"))
    evaluating = wrap(
        batch_search,
        "search_batch",
        at(2 if max_steps == 12 else 1, signal_oneself(signal.SIGTERM)),
    )
    assert run(config, evaluating) == 143
    assert not (directory(config) / final_report.RESULT).exists()
    assert run(config) == run(expected) == 0
    assert outcome(config) == outcome(expected)


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_05_signal_during_a_save_lets_it_complete(toy: Toy, reference: Reference, number: signal.Signals) -> None:
    """Guards against a signal that interrupts the save it asks for."""
    during = wrap(os, "fsync", at(3, signal_oneself(number)))
    assert run(toy(), at_save(14, during)) == 128 + number
    assert checkpoint.steps(checkpoints(toy()))[0].name == "step-00000014"
    assert not litter(toy())
    assert run(toy()) == 0
    assert arrived(toy(), reference)


def with_a_helper(config_act: Callable[[], Any]) -> harness.Fault:
    """A fault: the training, which leads a process group, has a child in that group, like a worker."""

    def fault() -> None:
        helper = os.fork()
        if helper == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            time.sleep(HANG)
            os._exit(0)
        os.environ["TOKENIZERS_PARALLELISM"] = "true"  # its threads must not take the signal
        torch.set_num_threads(1)
        config_act()

    return fault


@pytest.mark.faults
def test_06_ctrl_c_to_the_group_of_the_real_program(workshop: Path, tmp_path: Path) -> None:
    """Guards the usual end of a session: Ctrl-C in a terminal reaches all its processes, and the step is saved.

    There are no workers that could die first: making a batch takes less time than sending it to another process. The
    group holds the program and whatever its libraries start. Everything is real: interpreter, imports, command line.
    """
    endless = {"training__max_epochs": None, "training__max_steps": 100_000, "training__validate_every": 100_000}
    config = harness.toy_config(workshop, run__name="group", training__save_every=100_000, **endless)
    program = subprocess.Popen(
        [sys.executable, "train.py", *arguments(config)],
        cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout
    for line in program.stdout:
        if re.match(r"step \d", line):
            break
    os.killpg(program.pid, signal.SIGINT)
    rest, error = program.communicate(timeout=HANG)
    assert program.returncode == 130, error
    assert "Traceback" not in error
    said = re.search(r"stopped after step (\d+), which is saved", rest)
    assert said
    step = int(said[1])
    files, state, points = outcome(config)
    undisturbed = replace(config, run=replace(config.run, name="group-undisturbed"))
    assert run(undisturbed, after_step(step, signal_oneself(signal.SIGINT))) == 130
    expected_files, expected_state, expected_points = outcome(undisturbed)
    assert files == expected_files
    assert state == expected_state
    assert points == expected_points


@pytest.mark.faults
def test_06_second_ctrl_c_ends_at_once(toy: Toy, reference: Reference) -> None:
    """Guards the way out of a save that hangs on a dead disk; the previous checkpoint is whole.

    The first Ctrl-C only asks: the second is sent after the first has been handled.
    """
    sign = harness.Signpost()

    def hang() -> None:
        handle = signal.getsignal(signal.SIGINT)
        assert callable(handle)

        def handle_and_tell(number: int, frame: FrameType | None) -> None:
            handle(number, frame)
            sign.pass_by("asked to stop")

        signal.signal(signal.SIGINT, handle_and_tell)
        sign.pass_by("saving")
        while True:  # like an endless retry; signal handlers run in between
            time.sleep(1)

    child = start(toy(), at_save(14, wrap(os, "fsync", at(3, hang))))
    assert sign.await_() == "saving"
    os.killpg(child, signal.SIGINT)
    assert sign.await_() == "asked to stop"
    os.killpg(child, signal.SIGINT)
    assert wait(child) == 130
    last = checkpoint.newest(checkpoints(toy()), quarantine=False, warn=pytest.fail)
    assert last is not None
    assert last.step == 10
    assert run(toy()) == 0
    assert arrived(toy(), reference)
    assert not litter(toy())


@pytest.mark.faults
def test_07_sigterm_to_the_group_with_a_helper_that_dies_of_it(toy: Toy, reference: Reference) -> None:
    """Guards against a stop that fails because another process or thread has ended first.

    There are no workers (see case 6); a child process stands for any that a library starts.
    """
    sign = harness.Signpost()

    def wait_for_the_signal() -> None:
        sign.pass_by("during step 12")
        while not os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
            time.sleep(0.01)

    child = start(toy(), with_a_helper(at_step(12, wait_for_the_signal)))
    assert sign.await_()
    os.killpg(child, signal.SIGTERM)
    assert wait(child) == 143
    last = checkpoint.newest(checkpoints(toy()), quarantine=False, warn=pytest.fail)
    assert last is not None
    assert last.step == 12
    assert run(toy()) == 0
    assert arrived(toy(), reference)


# --- Repeated resumes


@pytest.mark.faults
def test_08_three_kills_and_three_resumes(toy: Toy, reference: Reference, capfd: pytest.CaptureFixture) -> None:
    """Guards against errors that add up over several resumes. One kill comes before the first checkpoint."""
    for step in (5, 12, reference.last - 1):
        assert run(toy(), at_step(step, die)) == KILLED
    capfd.readouterr()
    assert run(toy()) == 0
    assert "resumed from step 21" in capfd.readouterr().out
    assert arrived(toy(), reference)
    points = reference.outcome[2]
    assert [step for step, _ in points["loss/train"]] == list(range(3, reference.last + 1, 3))
    assert [step for step, _ in points["score/bleu"]] == [10, 20, reference.last]


@pytest.mark.faults
@pytest.mark.parametrize("step", [8, 16, 24])
def test_09_sigkill_exactly_at_the_end_of_an_epoch(toy: Toy, reference: Reference, step: int) -> None:
    """Guards the order of the next epoch, and a last step that was made but not saved: it is made again.

    The second run stops at the boundary, so that the checkpoint to resume from lies on it.
    """
    per_epoch = reference.outcome[1]["progress"]["step"] // 3
    assert step % per_epoch == 0, "this is not the end of an epoch"
    assert run(toy(), after_step(step, die)) == KILLED
    assert run(toy(), after_step(step, signal_oneself(signal.SIGTERM))) == 143
    assert run(toy()) == 0
    assert arrived(toy(), reference)


@pytest.mark.faults
def test_09_finished_run_says_so_and_touches_nothing(toy: Toy, capfd: pytest.CaptureFixture) -> None:
    """Guards against exiting without a message, and against training past the end."""
    assert run(toy(training__max_epochs=1)) == 0
    before = tree(directory(toy()))
    capfd.readouterr()
    assert run(toy(training__max_epochs=1)) == 0
    said = capfd.readouterr().out
    assert "is finished" in said
    assert "training.max_epochs (1) is reached" in said
    step = outcome(toy())[1]["progress"]["step"]
    assert run(toy(training__max_epochs=None, training__max_steps=step - 1)) == 0
    assert f"is finished at step {step}: training.max_steps ({step - 1}) is exceeded" in capfd.readouterr().out
    assert tree(directory(toy())) == before


# --- The disk


@pytest.mark.faults
def test_10_disk_full_in_a_save(toy: Toy, reference: Reference, capfd: pytest.CaptureFixture) -> None:
    """Guards against a training that continues without saving, or that loses the previous checkpoint.

    The kernel sets the limit: no file may be as large as the weights.
    """
    size = len(reference.outcome[0]["model.safetensors"])
    fault = after_step(14, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2)))
    assert run(toy(), fault) == 7
    error = capfd.readouterr().err
    assert re.search(r"step-00000014.*[\d,]+ bytes are needed and [\d,]+ bytes are free", error)
    assert error.count("\n") == 1
    assert not litter(toy())
    assert checkpoint.steps(checkpoints(toy()))[0].name == "step-00000010"
    assert run(toy()) == 0
    assert arrived(toy(), reference)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system too small for a run."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place]).returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.faults
def test_10_a_file_system_that_fills_up(
    toy: Toy, reference: Reference, small_disk: Path, capfd: pytest.CaptureFixture
) -> None:
    """Guards a real disk without room for a checkpoint, which no patch can imitate."""
    config = toy(run__dir=small_disk)

    def fill() -> None:
        with (small_disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
            file.write(bytes(shutil.disk_usage(small_disk).free - 50_000))

    assert run(config, after_step(12, fill)) == 7
    error = capfd.readouterr().err
    assert re.search(r"error: cannot write \S+14 \(No space left on device\): .*[\d,]+ bytes are free.", error)
    assert error.count("\n") == 1
    assert not litter(config)
    (small_disk / "filler").unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    assert run(config) == 0
    assert arrived(config, reference)


@pytest.mark.faults
def test_10_the_curves_hit_the_full_disk_first(toy: Toy, reference: Reference, capfd: pytest.CaptureFixture) -> None:
    """Guards against curves that end silently or in a thread's traceback: one line, as for a checkpoint."""

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert run(toy(), after_step(11, wrap(record_writer.RecordWriter, "write", fail))) == 7
    error = capfd.readouterr().err
    assert re.search(r"error: cannot write \S+ \(No space left on device\): [\d,]+ bytes are free.", error)
    assert error.count("\n") == 1
    assert checkpoint.steps(checkpoints(toy()))[0].name == "step-00000010"
    assert run(toy()) == 0
    assert arrived(toy(), reference)


@pytest.mark.faults
def test_10_every_write_of_the_program_may_fail(toy: Toy, reference: Reference, capfd: pytest.CaptureFixture) -> None:
    """Guards everything written beside the checkpoints: data, config, samples, best.json, the result.

    Each failure gives exit code 7 and one line, and once there is space again the run resumes bit for bit.
    """

    def full(number: int) -> harness.Fault:
        def fail() -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return wrap(os, "fsync", at(number, fail))

    number, codes = 0, []
    while True:
        number += 7  # a different one of the dozen calls of a save each time
        capfd.readouterr()
        codes.append(run(toy(), full(number)))
        if codes[-1] == 0:
            break
        assert codes[-1] == 7
        error = capfd.readouterr().err
        assert "error: " in error
        assert error.count("\n") == 1
        assert not litter(toy())
    assert len(codes) > 3
    assert arrived(toy(), reference)


# --- Damage

DAMAGES: dict[str, Callable[[Path], Any]] = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size - 1),
    "empty": lambda path: os.truncate(path, 0),
    "one bit": flip_a_bit,
    "missing": lambda path: path.unlink(),
}


@pytest.fixture(scope="session")
def interrupted(workshop: Path) -> Config:
    """A run that was killed after its checkpoint of step 21, with those of 20 and 14."""
    config = harness.toy_config(workshop, run__name="interrupted")
    assert run(config, after_step(22, die)) == KILLED
    return config


def copied(config: Config, name: str) -> Config:
    """A copy of the run under another name."""
    copy = replace(config, run=replace(config.run, name=name))
    shutil.copytree(directory(config), directory(copy))
    return copy


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["model.safetensors", "training.pt", "state.json", "manifest.json"])
def test_11_newest_checkpoint_damaged(
    interrupted: Config, reference: Reference, name: str, damage: str, capfd: pytest.CaptureFixture
) -> None:
    """Guards against training on damaged weights, and against a crash instead of a fallback.

    `test_checkpoint` tests the reader with every damage to every file.
    """
    config = copied(interrupted, f"damaged-{name}-{damage}")
    DAMAGES[damage](checkpoints(config) / "step-00000021" / name)
    capfd.readouterr()
    assert run(config) == 0
    said = capfd.readouterr().out
    assert f"step-00000021/{name} " in said
    assert "corrupt-step-00000021" in said
    assert "resumed from step 20" in said
    assert (checkpoints(config) / "corrupt-step-00000021").is_dir()
    assert arrived(config, reference)


@pytest.mark.faults
@pytest.mark.parametrize("damage", DAMAGES)
def test_12_a_run_with_only_damaged_checkpoints_does_not_start_anew(
    interrupted: Config, damage: str, capfd: pytest.CaptureFixture
) -> None:
    """Guards days of work against a silent start from step 1: exit code 4, and nothing is touched."""
    config = copied(interrupted, f"all-damaged-{damage}")
    for path in checkpoint.steps(checkpoints(config)):
        DAMAGES[damage](path / "model.safetensors")
    before = tree(directory(config))
    capfd.readouterr()
    assert run(config) == 4
    error = capfd.readouterr().err
    assert "are damaged" in error
    assert error.count("\n") == 1
    assert tree(directory(config)) == before


@pytest.mark.faults
def test_13_the_steps_after_a_fallback_are_made_and_saved_again(interrupted: Config, reference: Reference) -> None:
    """Guards the rename onto an existing folder, and against later use of an abandoned checkpoint.

    The two newest are damaged, so that steps 20 and 21 are saved a second time; then these are damaged, too.
    """
    config = copied(interrupted, "again")
    for attempt in ("", "-2"):
        for step in (20, 21):
            flip_a_bit(checkpoints(config) / f"step-{step:08d}" / "model.safetensors")
        assert run(config, at_save(reference.last, die)) == KILLED
        names = {path.name for path in checkpoints(config).iterdir() if "step" in path.name}
        assert {f"corrupt-step-000000{step}{attempt}" for step in (20, 21)} <= names
        assert {"step-00000020", "step-00000021"} <= names
        found = checkpoint.newest(checkpoints(config), quarantine=False, warn=pytest.fail)
        assert found is not None
        assert harness.contents(found) == reference.checkpoints[21]
    assert run(config) == 0
    assert arrived(config, reference)


# --- Curves


@pytest.mark.faults
def test_14_sigkill_between_the_curves_and_the_checkpoint(toy: Toy, reference: Reference) -> None:
    """Guards the curves against double points: those of steps that are made again are purged."""
    assert run(toy(), at_save(14, die)) == KILLED
    assert curves(directory(toy()))["loss/train"][-1][0] == 12, "the curves should be ahead of the checkpoint"
    assert run(toy()) == 0
    assert arrived(toy(), reference)


@pytest.mark.faults
def test_14_sigkill_right_after_a_checkpoint_leaves_no_gap(toy: Toy, reference: Reference) -> None:
    """Guards the points that TensorBoard's writer still holds, since a resume does not make them again.

    The writer is a thread that lags behind, here because of a slow disk.
    """
    slow = wrap(record_writer.RecordWriter, "write", lambda _: time.sleep(0.03))
    published = wrap(checkpoint, "prune", at(3, die))  # after the saves of 7, 10 and 14
    assert run(toy(), together(slow, published)) == KILLED
    assert run(toy()) == 0
    assert arrived(toy(), reference)


@pytest.mark.faults
@pytest.mark.parametrize("torn", [1, 5, 20])
def test_14_a_torn_last_record_costs_no_other(toy: Toy, reference: Reference, torn: int) -> None:
    """Guards the curves against a power cut within a record: all before it remain, and it is made again."""
    assert run(toy(), at_save(14, die)) == KILLED
    [events] = (directory(toy())).glob("events*")
    os.truncate(events, events.stat().st_size - torn)
    assert run(toy()) == 0
    assert arrived(toy(), reference)
