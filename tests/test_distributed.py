"""Several ranks train the same model as one process would; here over gloo, on the CPU, in forked processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import distributed_c10d

import listening
from conftest import HANG, ROOT, tiny_config
from dragoman import checkpoint, distributed, tensors, train
from dragoman.command_line import override
from dragoman.dataset import Batch, EncodedPairs, EncodedSide, batch_plan, make_batch
from dragoman.distributed import Ranks
from dragoman.errors import ConfigError, DeviceError
from dragoman.processes import STORE
from dragoman.settings import EOS, PAD, Config
from dragoman.training import saving
from dragoman.training.batches import BatchPlanner, StoredPlan, write_plan
from dragoman.training.state import TrainingState
from dragoman.translation.translator import Translator
from faults import harness
from faults.harness import Fault, after_step, die, nothing, outcome, signal_oneself, together

# Without attention biases: those of the keys have a gradient of pure rounding errors, which AdamW turns into steps.
EXACT = {
    "model__dropout": 0, "model__attention_bias": False, "data__test_fraction": 0, "training__max_epochs": 3,
    "training__optimizer": "adamw",
}  # fmt: skip
Tiny = Callable[..., Config]


def start(config: Config, index: int, count: int, store: Path, fault: Fault) -> int:
    """Start training as one of several ranks; return the pid."""

    def as_rank() -> None:
        names = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, STORE: store}
        os.environ.update({name: str(value) for name, value in names.items()})
        fault()

    return harness.start(config, as_rank)


def run(config: Config, count: int, faults: dict[int, Fault] | None = None, everywhere: Fault = nothing) -> list[int]:
    """Train on `count` ranks, some with faults, and return how each ended."""
    faults = faults or {}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "store")
        children = [start(config, i, count, store, together(everywhere, faults.get(i, nothing))) for i in range(count)]
        return [harness.wait(child) for child in children]


def weights(config: Config) -> dict[str, torch.Tensor]:
    """The weights of the newest checkpoint."""
    found = checkpoint.newest(harness.checkpoints(config), quarantine=False, warn=print)
    assert found
    return load_file(found.path / "model.safetensors")


def optimizer_shapes(config: Config) -> tuple[dict[int, dict[str, torch.Size]], list[list[int]]]:
    """The shapes of the saved optimizer state by parameter number, and the parameters of each group."""
    found = checkpoint.newest(harness.checkpoints(config), quarantine=False, warn=print)
    assert found
    saved = tensors.load_tensors(found.files["training.pt"])["optimizer"]
    shapes = {i: {name: value.shape for name, value in each.items()} for i, each in saved["state"].items()}
    return shapes, [group["params"] for group in saved["param_groups"]]


def assert_like(one: Config, other: Config) -> None:
    """Compare curves to 4 digits and weights to 0.001, a tenth of one update at the full rate."""
    curves, expected = outcome(one)[2], outcome(other)[2]
    for tag in ("loss/train", "training/gradient_norm", "loss/validation", "training/epoch"):
        assert curves[tag] == [(step, pytest.approx(value, rel=1e-4)) for step, value in expected[tag]]
    torch.testing.assert_close(weights(one), weights(other), rtol=0, atol=1e-3)


def to_log(folder: Path, index: int) -> Fault:
    """A fault that logs the pairs of each update of this rank."""

    def fault() -> None:
        train_step = train.train_step

        def logged(state: TrainingState, batches: list[Batch]) -> None:
            pairs = [batch.indices.tolist() if batch.tokens else [] for batch in batches]
            with (folder / f"{index}.jsonl").open("a") as file:
                file.write(json.dumps([state.progress.step + 1, pairs]) + "\n")
            train_step(state, batches)

        train.train_step = logged

    return fault


def seen(folder: Path) -> dict[int, list[list[int]]]:
    """The pairs of each batch on all ranks together, sorted, by step."""
    found: dict[int, list[list[int]]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for step, batches in map(json.loads, path.read_text().splitlines()):
            before = found.get(step, [[] for _ in batches])
            found[step] = [sorted(a + b) for a, b in zip(before, batches, strict=True)]
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A finished run of one process, to compare with."""
    config = tiny_config(tmp_path_factory.mktemp("alone"), run__name="alone", **EXACT)
    assert harness.run(config) == 0
    return config


def unpickle_nothing() -> None:
    """A fault: fail where a rank reads a pickle that another has sent. Pickles can run code."""

    def unpickler(*_: object) -> NoReturn:
        raise AssertionError("a rank unpickles")

    distributed_c10d._unpickler = unpickler  # type: ignore[assignment]


SLOW = [pytest.param(*each, marks=pytest.mark.slow) for each in ((2, False), (4, True))]


@pytest.mark.parametrize(("count", "fsdp"), [(4, False), (2, True), *SLOW])
def test_ranks_make_the_weights_of_one_process(tiny: Tiny, alone: Config, count: int, fsdp: bool) -> None:
    """Guards gradients weighted by rank instead of token, forgotten shares, batches with fewer rows than ranks, weights
    that drift apart, checkpoints with names of wrappers or with parts of weights, and values sent as pickles."""
    config = tiny(run__name="several", training__fsdp=fsdp, **EXACT)
    assert run(config, count, everywhere=unpickle_nothing) == [0] * count
    assert_like(config, alone)
    assert optimizer_shapes(config) == optimizer_shapes(alone)
    assert Translator(harness.directory(config)).translate(["the cat sees the dog."])[0]


def test_ranks_share_the_batches_of_one_process(tiny: Tiny, tmp_path: Path) -> None:
    """Guards the order of the data, before and after a resume on another number of ranks: one rank sees each pair, in
    the same update as one process would."""
    settings = {"data__test_fraction": 0, "training__max_epochs": 3}
    folders = [tmp_path / "one", tmp_path / "several"]
    for folder in folders:
        folder.mkdir()
    one = tiny(run__name="one", **settings)
    assert harness.run(one, to_log(folders[0], 0)) == 0
    several = tiny(run__name="several", **settings)
    stopped = {i: together(to_log(folders[1], i), after_step(9, signal_oneself(signal.SIGTERM))) for i in range(2)}
    assert run(several, 2, stopped) == [128 + signal.SIGTERM] * 2
    assert run(several, 3, {i: to_log(folders[1], i) for i in range(3)}) == [0, 0, 0]
    assert seen(folders[1]) == seen(folders[0])


SHARDED = [pytest.param(*counts, True, marks=pytest.mark.slow) for counts in ((2, 1), (1, 2))]


@pytest.mark.parametrize(("before", "after", "fsdp"), [(2, 1, False), (1, 3, False), *SHARDED])
def test_a_run_resumes_on_other_ranks(tiny: Tiny, alone: Config, before: int, after: int, fsdp: bool) -> None:
    """Guards checkpoints that depend on the ranks: sharded moments, or moments on the wrong rank."""
    config = tiny(run__name="several", training__fsdp=fsdp, **EXACT)
    stop = after_step(10, signal_oneself(signal.SIGTERM))
    assert run(config, before, {before - 1: stop}) == [128 + signal.SIGTERM] * before
    assert run(config, after) == [0] * after
    assert_like(config, alone)


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
def test_training_continues_while_a_sharded_model_is_saved(
    tiny: Tiny, alone: Config, tmp_path: Path, dies: bool
) -> None:
    """Guards updates that reach an earlier step's checkpoint, and parts of a killed save that a later one reads."""
    config = tiny(run__name="several", training__fsdp=True, **EXACT)
    later = tmp_path / "later"

    def wait_for_later_updates() -> None:
        write = saving._write

        def waiting(state: TrainingState, *rest: Any) -> None:
            while state.progress.step == 7 and not later.exists():
                time.sleep(0.01)
            if dies and state.progress.step == 7:
                die()
            write(state, *rest)

        saving._write = waiting

    faults = {0: together(wait_for_later_updates, after_step(9, later.touch))}
    if not dies:
        assert run(config, 2, faults) == [0, 0]
        assert_like(config, alone)
        return
    assert run(config, 2, faults)[0] == -signal.SIGKILL
    assert not checkpoint.steps(harness.checkpoints(config))
    assert run(config, 2) == [0, 0]
    assert_like(config, alone)
    assert not list(harness.checkpoints(config).glob(".tmp-*"))


@pytest.mark.slow
def test_a_rank_holds_its_share_of_a_sharded_model(tiny: Tiny, tmp_path: Path) -> None:
    """Guards the memory that FSDP is there for: of weights, gradients and moments."""
    config = tiny(run__name="several", training__fsdp=True, **EXACT)

    def note_bytes() -> None:
        save = saving.save

        def noting(state: TrainingState) -> None:
            moments = [moment for each in state.optimizer.state.values() for moment in each.values() if moment.dim()]
            held: list[Any] = [*state.model.parameters(), *moments]
            whole = sum(tensor.numel() for tensor in held)
            own = sum(tensor.to_local().untyped_storage().nbytes() // tensor.element_size() for tensor in held)
            (tmp_path / f"{state.ranks.rank}.json").write_text(json.dumps([own, whole]))
            save(state)

        saving.save = noting

    assert run(config, 4, everywhere=note_bytes) == [0] * 4
    held = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("[0-3].json"))]
    assert len(held) == 4
    for own, whole in held:
        assert own < 0.3 * whole


def test_a_slow_rank_finds_its_plan(tiny: Tiny) -> None:
    """Guards a resume in a late epoch: the first rank removes old plans while another has not come to any."""
    config = tiny(run__name="several", **EXACT | {"training__max_epochs": 12})
    assert run(config, 2, {0: after_step(85, signal_oneself(signal.SIGTERM))}) == [128 + signal.SIGTERM] * 2

    def slow() -> None:
        plan = BatchPlanner._stored_plan
        BatchPlanner._stored_plan = lambda *given: (time.sleep(1), plan(*given))[1]  # type: ignore[method-assign]

    assert run(config, 2, {1: slow}) == [0, 0]


def test_a_rank_that_dies_ends_all(tiny: Tiny, alone: Config, capfd: pytest.CaptureFixture[str]) -> None:
    """Guards against waiting forever for a rank that has died; the last checkpoint stays intact."""
    config = tiny(run__name="several", **EXACT)
    codes = run(config, 3, {1: after_step(9, die)})
    assert codes == [8, -signal.SIGKILL, 8]
    errors = capfd.readouterr().err
    assert "another rank has ended or cannot be reached" in errors
    assert "Traceback" not in errors
    assert run(config, 2) == [0, 0]
    assert_like(config, alone)


def test_a_rank_that_does_not_answer_ends_all(tiny: Tiny, alone: Config, capfd: pytest.CaptureFixture[str]) -> None:
    """Guards against waiting for hours for a rank that was stopped; the message names it."""
    config = tiny(run__name="several", training__timeout=0.1, **EXACT)
    with tempfile.TemporaryDirectory() as folder:
        faults = [nothing, after_step(9, signal_oneself(signal.SIGSTOP))]
        first, stopped = (start(config, i, 2, Path(folder, "store"), fault) for i, fault in enumerate(faults))
        assert harness.wait(first) == 8
        os.kill(stopped, signal.SIGKILL)
        harness.wait(stopped)
    assert "no step for 0.1 minutes (training.timeout): rank 1 does not answer" in capfd.readouterr().err
    assert run(config, 2) == [0, 0]
    assert_like(config, alone)


def test_the_silent_rank_is_that_of_this_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards the message after a second hang: the store of torchrun still has the answers of the first."""
    monkeypatch.setenv(STORE, str(tmp_path / "store"))
    monkeypatch.setattr(distributed, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(os, "_exit", sys.exit)
    for start, rank in (("first", 1), ("second", 0)):
        with pytest.raises(SystemExit, match="8"):
            distributed._end_of_waiting(Ranks(rank, 2), 30, start)
    assert re.findall(r"rank \d does not answer", capsys.readouterr().err) == [
        "rank 0 does not answer",
        "rank 1 does not answer",
    ]


def test_a_loss_that_is_not_finite_on_one_rank_ends_all(tiny: Tiny, capfd: pytest.CaptureFixture[str]) -> None:
    """No rank updates its weights, and the message names the sentences that caused it."""
    config = tiny(run__name="several", **EXACT)

    def spoil() -> None:
        forward = train.Learner.forward

        def spoilt(self: train.Learner, batch: Batch) -> train.Loss:
            loss = forward(self, batch)
            return loss._replace(smoothed=loss.smoothed * float("nan")) if steps[0] == 5 else loss

        steps = [0]
        after_step(4, lambda: steps.__setitem__(0, 5))()
        train.Learner.forward = spoilt  # type: ignore[method-assign]

    assert run(config, 2, {1: spoil}) == [8, 6]
    errors = capfd.readouterr().err
    assert "the loss of another rank is not finite" in errors
    assert "step 5: loss nan" in errors
    assert "The cause is in the training pairs" in errors


def test_a_run_folder_that_is_not_shared_is_named(
    tiny: Tiny, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Guards two machines with a run folder each: the data are not damaged, they are elsewhere."""
    configs = [tiny(run__name="several", run__dir=tmp_path / f"machine{i}", **EXACT) for i in range(2)]
    store = tmp_path / "store"

    def impatient() -> None:
        distributed.SHARED_SECONDS = 0.2

    children = [start(config, i, 2, store, impatient) for i, config in enumerate(configs)]
    assert [harness.wait(child) for child in children] == [8, 4]
    errors = capfd.readouterr().err
    assert f"{tmp_path / 'machine1' / 'several' / 'data'}, but rank 1 does not find it: set run.dir" in errors


def test_rank_0_reports_what_is_wrong_for_all(tiny: Tiny, capfd: pytest.CaptureFixture[str]) -> None:
    """Guards against ranks that wait for a rank 0 that could not read the data."""
    config = tiny(run__name="several", data__max_length=1, **EXACT)
    codes = run(config, 2)
    assert codes[0] == 3
    assert codes[1] in (3, 8)
    output = capfd.readouterr()
    assert "data.max_length" in output.err
    assert output.out.count("reading data.train") == 1


def test_all_ranks_share_one_clock(tiny: Tiny) -> None:
    """Guards training.max_minutes: a rank that stopped by its own clock would leave the others waiting."""
    config = tiny(run__name="several", **EXACT | {"training__max_epochs": None, "training__max_minutes": 0.05})

    def slow() -> None:
        counter = time.perf_counter
        time.perf_counter = lambda: 1.5 * counter()  # type: ignore[assignment]

    assert run(config, 2, {1: slow}) == [0, 0]
    assert outcome(config)[1]["progress"]["step"] > 0


@pytest.mark.parametrize(("rows", "count"), [(7, 1), (7, 2), (7, 3), (2, 3)])
def test_shares_add_up_to_the_batch(rows: int, count: int) -> None:
    """Guards against rows on two ranks or on none, and against needless padding in a share."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(1, 6, rows)
    ids = [draw.integers(4, 9, length).tolist() for length in lengths]
    side = EncodedSide.of(lengths, np.concatenate(ids))
    pairs = EncodedPairs(side, side)
    whole = make_batch(pairs, np.arange(rows))
    shares = [make_batch(pairs, np.arange(rows), index, count) for index in range(count)]
    working = [share for share in shares if share.tokens]
    assert sorted(i for share in working for i in share.indices) == list(range(rows))
    assert sum(share.tokens for share in shares) == sum(share.source_tokens for share in shares) == whole.tokens
    for share in working:
        assert [[i for i in row if i not in (PAD, EOS)] for row in share.source.tolist()] == [
            ids[i] for i in share.indices
        ]
        assert share.source.shape[1] == max(lengths[share.indices]) + 1
    assert len(shares) - len(working) == max(0, count - rows)


def test_a_stored_plan_is_the_plan(tmp_path: Path) -> None:
    """Guards the order of the data on several ranks, which read it from a file."""
    lengths = np.random.default_rng(0).integers(2, 40, 1_000)
    plan = batch_plan(lengths, lengths[::-1], 256, seed=1, epoch=3)
    write_plan(tmp_path / "plan.npy", plan)
    stored = StoredPlan(tmp_path / "plan.npy")
    assert len(stored) == len(plan)
    assert [rows.tolist() for rows in stored] == [rows.tolist() for rows in plan]
    assert [rows.tolist() for rows in stored[5:7]] == [rows.tolist() for rows in plan[5:7]]
    assert stored[len(plan) - 1 :][0].dtype == plan[0].dtype


@pytest.mark.parametrize(
    "setting",
    ["optimizer=muon", "precision=float16"],
)
def test_settings_that_need_full_weights_are_refused_with_fsdp(setting: str) -> None:
    """Guards settings that would train another model, or hang, where each rank has a shard of the weights."""
    with pytest.raises(ConfigError, match=r"training\.fsdp"):
        override(Config(), ["--training.fsdp=true", f"--training.{setting}"])


def test_ranks_do_not_share_a_device() -> None:
    """Guards against two ranks on the one GPU that training.device names."""
    ranks = Ranks(rank=1, world_size=2, local_rank=1)
    assert ranks.own_device(torch.device("cpu")) == torch.device("cpu")
    assert Ranks().own_device(torch.device("cuda", 1)) == torch.device("cuda", 1)
    for device in ("cuda:1", "mps"):
        with pytest.raises(DeviceError, match="2 ranks cannot share"):
            ranks.own_device(torch.device(device))


def test_a_rank_that_gets_its_signal_twice_still_saves(tiny: Tiny) -> None:
    """Guards the end under Slurm, where torchrun passes on a signal that each process also gets itself, and a rank that
    gets its signal a moment after another rank made it stop."""
    config = tiny(run__name="several", **EXACT)
    terminate = signal_oneself(signal.SIGTERM)
    assert run(config, 2, {0: after_step(9, together(terminate, terminate))}) == [143, 143]
    assert outcome(config)[1]["progress"]["step"] == 9


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
def test_ranks_listen_on_loopback_only(tiny: Tiny, tmp_path: Path) -> None:
    """Guards against ports that other machines reach, also where the environment names another network interface."""
    config = tiny(run__name="several", **EXACT | {"training__max_epochs": 1})
    interface = {"GLOO_SOCKET_IFNAME": socket.if_nameindex()[-1][1]}

    def watch() -> None:
        os.environ.update(interface)
        log = tmp_path / f"{os.getpid()}.json"
        after_step(2, lambda: log.write_text(json.dumps(sorted(listening.addresses({os.getpid()})))))()

    assert run(config, 2, everywhere=watch) == [0, 0]
    assert [json.loads(path.read_text()) for path in tmp_path.glob("*.json")] == [["127.0.0.1"]] * 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
def test_documented_command_listens_on_loopback_only(tiny: Tiny, alone: Config) -> None:
    """Guards the command on the page about several GPUs: torchrun opens a port on all interfaces, for whoever comes."""
    config = tiny(run__name="several", **EXACT)
    page = (ROOT / "docs" / "several-gpus.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```sh\n(.*)$", page, re.MULTILINE)[0]
    assert shown == "python train.py --config config.yaml --training.ranks 2"
    given = [word for word in harness.arguments(config) if not word.startswith("--training.ranks=")]
    command = [sys.executable, *shlex.split(shown)[1:], *given]
    found: set[str] = set()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            found |= listening.addresses(listening.family(process.pid))
            time.sleep(0.05)
        assert process.returncode == 0
        assert process.stdout is not None
        assert process.stdout.read().count("finished:") == 1
    assert found == {"127.0.0.1"}
    assert_like(config, alone)


@pytest.mark.slow
def test_torchrun_starts_the_ranks(tiny: Tiny, alone: Config) -> None:
    """Guards the program under torchrun: its environment, its exit code, output printed once."""
    config = tiny(run__name="several", **EXACT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    done = subprocess.run(
        [*command, *harness.arguments(config)], cwd=ROOT, capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("finished:") == 1
    assert_like(config, alone)
