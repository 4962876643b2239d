"""Inject faults into a training, and compare the results.

A fault is a function that patches the program in a forked process; the program itself has no hooks. Processes really
die. SIGKILL cannot show the order of the fsyncs, since the page cache outlives the process; `test_checkpoint` reads it
from a log of the calls.

Forking takes 0.04 s, importing torch seconds. It is safe here because the parent has one thread.
"""

from __future__ import annotations

import os
import runpy
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from torch.utils.tensorboard import SummaryWriter

from conftest import HANG, ROOT, in_child, tiny_config, warm_up
from dragoman import checkpoint, serialization, train
from dragoman.__main__ import run as run_command
from dragoman.corpora import preparation
from dragoman.model import Transformer
from dragoman.settings import Config, values
from dragoman.training import tensorboard
from dragoman.training.state import TrainingState

Fault = Callable[[], object]
Outcome = tuple[dict[str, bytes], dict[str, Any], dict[str, list[tuple[int, float]]]]

CHANGING_CALLS = ("open", "write", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir")
# Fields of Progress that depend on the clock.
VOLATILE = ("seconds", "warm_seconds", "validation_seconds", "validations_seconds", "update_seconds", "data_seconds")
_writers = 0


def toy_config(folder: Path, **changes: object) -> Config:
    """Three epochs of eight steps over 300 pairs; a validation every 10 steps, a checkpoint every 7, with dropout.

    Without test pairs, whose report takes as long as the training.
    """
    return tiny_config(folder, **({"data__test_fraction": 0, "training__max_epochs": 3} | changes))


def directory(config: Config) -> Path:
    """The folder of a run."""
    return Path(config.run.dir) / config.run.name


def checkpoints(config: Config) -> Path:
    return directory(config) / "checkpoints"


def training_of(config: Config, device: str = "cpu", dtype: torch.dtype = torch.float32) -> TrainingState:
    """A training without any updates yet, in this process."""
    data = preparation.prepare_data(config, directory(config) / "data", lambda _: None)
    return train.build_state(config, directory(config), data, torch.device(device), dtype)


# ------------------------------------------------------------------------------------------------------- processes


def nothing() -> None:
    """No fault."""


def together(*faults: Fault) -> Fault:
    return lambda: [fault() for fault in faults]


def _prepare_child() -> None:
    """Skip pictures, which take time and which no fault concerns."""
    SummaryWriter.add_figure = lambda *_: None  # type: ignore[method-assign, assignment]
    tensorboard.attention_figure = lambda *_: None  # type: ignore[assignment]
    threading.excepthook = threading.__excepthook__  # pytest's own prints nothing at once
    # TensorBoard orders event files by the seconds in their names; these processes may start in the same second.
    start = time.time() + 10 * _writers
    event_file_writer.time = SimpleNamespace(time=lambda: start, sleep=time.sleep)  # type: ignore[assignment]


def run(config: Config, fault: Fault = nothing) -> int:
    """Train in a forked process with a fault; return how it ended."""
    global _writers
    _writers += 1

    def work() -> int:
        _prepare_child()
        fault()
        return run_command("train", config)

    return in_child(work)


def run_program(config: Config, fault: Fault = nothing) -> int:
    """Do the same through the command line: train.py as Python runs it."""
    global _writers
    _writers += 1

    def work() -> int | None:
        _prepare_child()
        fault()
        sys.argv = ["train.py", *arguments(config)]
        runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
        return None

    return in_child(work)


def arguments(config: Config) -> list[str]:
    """The command line that gives config."""
    return [f"--{key}={'null' if value is None else value}" for key, value in values(config).items()]


def start(config: Config, fault: Fault = nothing) -> int:
    """Start training in a process that leads its own group and may take `HANG`; return its pid, for `wait`."""
    global _writers
    _writers += 1
    warm_up()
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.alarm(HANG)
        _prepare_child()
        code = 99
        try:
            fault()
            code = run_command("train", config)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return child


def wait(child: int) -> int:
    """Return how a child of `start` ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def as_shell(code: int) -> int:
    """The result of `in_child` as a shell shows it: 128 + n for a process that signal n ended."""
    return 128 - code if code < 0 else code


class Signpost:
    """Lets a child report that it has reached some point, and the parent wait for it."""

    def __init__(self) -> None:
        self._receiver, self._sender = os.pipe()

    def pass_by(self, text: str = "") -> None:
        os.write(self._sender, text.encode() + b"\n")

    def await_(self) -> str:
        text = b""
        while not text.endswith(b"\n"):
            assert select.select([self._receiver], [], [], HANG)[0], "the child has not come here"
            text += os.read(self._receiver, 1)
        return text.decode().strip()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def signal_oneself(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


# ---------------------------------------------------------------------------------------------------------- faults


def wrap(owner: Any, name: str, act: Callable[[int], Any], which: Callable[..., bool] = lambda *_: True) -> Fault:
    """A fault: before each call of owner.name that `which` selects, call act with the number of the call, from 1."""

    def fault() -> None:
        original, calls = getattr(owner, name), 0

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            if which(*args):
                calls += 1
                act(calls)
            return original(*args, **kwargs)

        setattr(owner, name, wrapped)

    return fault


def at(number: int, act: Callable[[], Any]) -> Callable[[int], Any]:
    """Act at one call only."""
    return lambda call: act() if call == number else None


def at_step(step: int, act: Callable[[], Any]) -> Fault:
    """A fault in the middle of an update, before the second of its two batches is computed.

    The first forward pass of a process, the rehearsal of the largest batch, does not count.
    """

    def fault() -> None:
        train_step, forward, current, batches = train.train_step, Transformer.states, 0, 0

        def watched(state: TrainingState, given: list) -> None:
            nonlocal current, batches
            current, batches = state.progress.step + 1, 0
            train_step(state, given)

        def computing(self: Transformer, *args: Any) -> torch.Tensor:
            nonlocal batches
            batches += self.training
            if self.training and current == step and batches == 2:
                act()
            return forward(self, *args)

        train.train_step = watched
        Transformer.states = computing  # type: ignore[method-assign]

    return fault


def after_step(step: int, act: Callable[[], Any]) -> Fault:
    """A fault right after an update, before it is logged, validated or saved."""

    def fault() -> None:
        train_step = train.train_step

        def watched(state: TrainingState, given: list) -> None:
            train_step(state, given)
            if state.progress.step == step:
                act()

        train.train_step = watched

    return fault


def at_save(step: int, act: Callable[[], Any]) -> Fault:
    """A fault just before the checkpoint of a step is written, after its curves are flushed."""
    return wrap(checkpoint, "save", lambda _: act(), which=lambda root, number, files: number == step)


def watch_calls(before: Callable[[str, tuple[Any, ...]], None], patch: pytest.MonkeyPatch | None = None) -> None:
    """Call `before` with the name and arguments of each call of `os` that changes the disk, until patch undoes it."""
    patch = patch or pytest.MonkeyPatch()

    def wrapped(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            before(name, args)
            return original(*args, **kwargs)

        return call

    for name in CHANGING_CALLS:
        patch.setattr(os, name, wrapped(name, getattr(os, name)))


def die_at_call(k: int) -> None:
    """Kill this process at call k that changes the disk; in the middle of it if it is a write."""
    count = 0
    write = os.write

    def before(name: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        count += 1
        if count == k:
            if name == "write":
                write(args[0], args[1][: len(args[1]) // 2])
            die()

    watch_calls(before)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x04
    path.write_bytes(data)


# ------------------------------------------------------------------------------------------------------ comparison


def contents(saved: checkpoint.Checkpoint) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The contents of a checkpoint: bytes of the tensors, and the progress without the clock."""
    state = serialization.load_json(saved.files["state.json"])
    for name in VOLATILE:
        state["progress"].pop(name)
    return {name: saved.files[name] for name in ("model.safetensors", "training.pt", "source.tokenizer.json")}, state


def outcome(config: Config) -> Outcome:
    """The result of a run: files and progress of its last checkpoint, and its curves."""
    last = checkpoint.newest(checkpoints(config), quarantine=False, warn=pytest.fail)
    assert last is not None
    return (*contents(last), curves(directory(config)))


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """All points in TensorBoard, as it reads them itself, except speeds. Fails unless metrics.csv has them too."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    shown = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert_listed(shown, folder / "metrics.csv")
    return {tag: points for tag, points in shown.items() if not tag.startswith("speed/")}


def assert_listed(shown: dict[str, list[tuple[int, float]]], path: Path) -> None:
    """Fail unless metrics.csv has exactly these points."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    assert head == "step,tag,value"
    listed: dict[str, list[tuple[int, float]]] = {}
    for step, tag, value in (line.split(",") for line in lines):
        listed.setdefault(tag, []).append((int(step), float(value)))
    assert listed.keys() == shown.keys()
    for tag, points in shown.items():
        steps, values = zip(*listed[tag], strict=True)
        assert [step for step, _ in points] == [*steps], tag
        assert [value for _, value in points] == pytest.approx([*values], rel=1e-5, nan_ok=True), tag


def tree(folder: Path) -> dict[str, int]:
    """Everything below a folder, with its time of modification."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def litter(config: Config) -> list[str]:
    """Names of the partial files that killed processes left."""
    return [path.name for path in directory(config).rglob("*") if path.name.startswith((".tmp", ".del", "replaced"))]


@dataclass(frozen=True)
class Reference:
    """An uninterrupted training, with which all others are compared."""

    outcome: Outcome
    checkpoints: dict[int, tuple[dict[str, bytes], dict[str, Any]]]  # `contents` by step

    @classmethod
    def made_in(cls, folder: Path) -> Reference:
        config = toy_config(folder, run__name="reference", training__keep_last=100)
        assert run(config) == 0
        found = [checkpoint.read(path) for path in checkpoint.steps(checkpoints(config))]
        return cls(outcome(config), {each.step: contents(each) for each in found})

    @property
    def last(self) -> int:
        """The number of steps."""
        return max(self.checkpoints)
