"""Training as a whole: a run that was killed equals one that was not, and every way it can end."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import checkpoint
import dataset
import train
from config import Config
from conftest import in_child, tiny_pairs, write_tsv
from optim import Loss
from runtime import Stop

Tiny = Callable[..., Config]


def die_at(step: int) -> Callable[[train.Training, list], None]:
    """An update that kills its own process, as a power cut or the out-of-memory killer would, before that step ends."""
    update = train.Training.update

    def fatal(self: train.Training, batches: list) -> None:
        update(self, batches)
        if self.progress.step == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return fatal


def run(config: Config, die: int | None = None) -> int:
    """Train in a process of its own, which dies in step die if it comes to it."""

    def work() -> int:
        if die is not None:
            train.Training.update = die_at(die)  # type: ignore[method-assign]
        return train.main(config)

    return in_child(work)


def outcome(config: Config) -> tuple[dict[str, bytes], dict, dict[str, list[tuple[int, float]]]]:
    """All that a finished run has come to: files of its last checkpoint, where it stands, and its curves."""
    directory = Path(config.run.dir) / config.run.name
    last = checkpoint.newest(directory / "checkpoints", quarantine=False, warn=pytest.fail)
    assert last is not None
    state = checkpoint.load_json(last.files["state.json"])
    state["progress"].pop("seconds")
    state["progress"].pop("update_seconds")
    tensors = {name: last.files[name] for name in ("model.safetensors", "training.pt", "source.tokenizer.json")}
    return tensors, state, curves(directory)


def curves(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """All points in TensorBoard but those of the clock, as TensorBoard itself reads them."""
    events = EventAccumulator(str(directory / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    tags = [tag for tag in events.Tags()["scalars"] if not tag.startswith("speed/")]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def test_killed_run_equals_uninterrupted_one_bit_for_bit(tiny: Tiny) -> None:
    """Guards all of resuming: weights, optimizer, dropout, order of data, best score, curves without gap or repeat.

    Three kills at random steps, one of them before the first checkpoint; intervals that are out of step.
    """
    reference, killed = tiny(run__name="reference"), tiny(run__name="killed")
    assert run(reference) == 0
    expected, state, points = outcome(reference)
    last = state["progress"]["step"]
    assert last > 30, "the run is too short to be killed three times"
    for step in [random.randint(1, 6), random.randint(8, last // 2), random.randint(last // 2 + 1, last - 1)]:
        assert run(killed, die=step) == -signal.SIGKILL
    assert run(killed) == 0
    files, other_state, other_points = outcome(killed)
    assert files == expected
    assert other_state == state
    assert other_points == points
    assert [step for step, _ in points["train/loss"]] == list(range(3, last + 1, 3))
    assert [step for step, _ in points["valid/bleu"]] == [*range(10, last, 10), last]


def tree(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*")}


def test_finished_run_says_so_and_touches_nothing(tiny: Tiny, capfd: pytest.CaptureFixture) -> None:
    """Guards against the peers' ways: exiting without a word, or training on past the end."""
    config = tiny(training__max_epochs=1)
    assert run(config) == 0
    before = tree(Path(config.run.dir))
    capfd.readouterr()
    assert run(config) == 0
    said = capfd.readouterr().out
    assert "is finished" in said
    assert "training.max_epochs" in said
    assert tree(Path(config.run.dir)) == before


def test_raised_limit_extends_a_finished_run(tiny: Tiny) -> None:
    """Guards extending: with a schedule that knows no end, 5 + 7 steps are 12 steps."""
    common = {"training__schedule": "constant", "training__max_epochs": None, "training__validate_every": 6}
    once, twice = (tiny(run__name=name, training__max_steps=12, **common) for name in ("once", "twice"))
    assert run(once) == 0
    assert run(replace(twice, training=replace(twice.training, max_steps=6))) == 0
    assert run(twice) == 0
    *expected, points = outcome(once)
    *found, extended = outcome(twice)
    assert found == expected
    # The test set was looked at after step 6, too.
    assert {tag: [p for p in curve if p[0] != 6 or "test/" not in tag] for tag, curve in extended.items()} == points


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_saves_the_step_and_the_run_goes_on(
    tiny: Tiny, number: signal.Signals, code: int, capfd: pytest.CaptureFixture
) -> None:
    """Guards Ctrl-C and the batch system's SIGTERM: nothing is lost, not even the steps since the last checkpoint."""
    reference, config = tiny(run__name="reference"), tiny(run__name="stopped")
    update = train.Training.update

    def interrupted() -> int:
        def signalled(self: train.Training, batches: list) -> None:
            if self.progress.step == 11:
                os.kill(os.getpid(), number)
            update(self, batches)

        train.Training.update = signalled  # type: ignore[method-assign]
        return train.main(config)

    assert in_child(interrupted) == code
    assert "stopped after step 12" in capfd.readouterr().out
    assert run(reference) == run(config) == 0
    assert outcome(config) == outcome(reference)


def training_of(config: Config) -> train.Training:
    directory = Path(config.run.dir) / config.run.name
    data = dataset.prepare(config, directory / "data", lambda _: None)
    return train.Training(config, directory, data, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_update_does_not_depend_on_how_the_batch_is_split(tiny: Tiny, cut: int) -> None:
    """Guards the classic accumulation bug: averaging per-batch means favours the short batch."""
    config = tiny(model__dropout=0.0)
    updated = []
    for pieces in ([range(6)], [range(cut), range(cut, 6)]):
        training = training_of(config)
        # Not Adam, which makes a step of full size out of a gradient that is zero but for rounding.
        training.optimizer = torch.optim.SGD(training.model.parameters())
        batches = [dataset.make_batch(training.data.train, torch.tensor(list(piece)).numpy()) for piece in pieces]
        training.update(batches)
        updated.append(training.model.state_dict())
    torch.testing.assert_close(updated[0], updated[1], rtol=1e-5, atol=1e-7)


def test_nan_stops_before_the_weights_are_touched(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Guards the weights of a week against one bad step: exit 6, the step named, and the run can go on."""
    reference, config = tiny(run__name="reference"), tiny(run__name="nan")
    sums = train.loss_sums
    calls = 0

    def bad_once(*args: object) -> Loss:
        nonlocal calls
        calls += 1
        loss = sums(*args)  # type: ignore[arg-type]
        return Loss(loss.smoothed * float("nan"), loss.plain) if calls == 21 else loss

    monkeypatch.setattr(train, "loss_sums", bad_once)
    assert run(config) == 6
    error = capfd.readouterr().err
    assert error.startswith("train.py: error: step 11:")
    assert error.count("\n") == 1
    monkeypatch.undo()
    assert run(reference) == run(config) == 0
    assert outcome(config) == outcome(reference)


@pytest.mark.parametrize("key", ["model.d_model", "data.max_length", "run.seed", "training.batch_tokens"])
def test_what_may_not_change_is_refused_on_resume(tiny: Tiny, key: str, capfd: pytest.CaptureFixture) -> None:
    """Guards a resumed run against other weights or other data than it began with."""
    assert run(tiny(training__max_steps=5)) == 0
    before = tree(Path(tiny().run.dir))
    assert run(tiny(**{key.replace(".", "__"): 64})) == 2
    assert key in capfd.readouterr().err
    assert tree(Path(tiny().run.dir)) == before


def test_what_may_change_goes_on_with_a_word(tiny: Tiny, capfd: pytest.CaptureFixture) -> None:
    """Guards against silence: a new learning rate is taken, and said."""
    assert run(tiny(training__max_steps=5)) == 0
    assert run(tiny(training__max_steps=8, training__lr=0.001)) == 0
    assert "training.lr was 0.01 and is 0.001" in capfd.readouterr().out


def test_a_changed_weight_decay_is_taken(tiny: Tiny) -> None:
    """Guards against an optimizer state that brings its old settings along, after the run has said otherwise."""
    assert run(tiny(training__max_steps=5)) == 0
    assert run(tiny(training__max_steps=8, training__weight_decay=0.1)) == 0
    last = checkpoint.newest(Path(tiny().run.dir) / "tiny" / "checkpoints", quarantine=False, warn=pytest.fail)
    assert last is not None
    groups = checkpoint.load_tensors(last.files["training.pt"])["optimizer"]["param_groups"]
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]


def test_attention_maps_are_drawn_without_dropout(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the pictures: with dropout on, the same sentence would look another way each time."""
    training = training_of(tiny(model__dropout=0.5))
    training.update(next(training.updates()))
    training.writer = train.board.open_board(training.directory / "tensorboard", 0, training.config)
    seen: list[bool] = []
    monkeypatch.setattr(type(training.model), "cross_attention", watched(seen, type(training.model).cross_attention))
    training.validate()
    assert seen == [False]


def watched(seen: list[bool], method: Callable) -> Callable:
    def call(self: torch.nn.Module, *arguments: object) -> object:
        seen.append(self.training)
        return method(self, *arguments)

    return call


def test_patience_ends_a_run_that_no_longer_learns(tiny: Tiny, capfd: pytest.CaptureFixture) -> None:
    """Guards early stopping, and that it survives the process: the count is saved."""
    config = tiny(training__lr=1e-9, training__validate_every=2, training__patience=3, training__max_epochs=50)
    assert run(config, die=7) == -signal.SIGKILL
    assert run(config) == 0
    assert "training.patience (3)" in capfd.readouterr().out
    assert outcome(config)[1]["progress"]["step"] == 8  # best at 2, then 4, 6 and 8 are no better


@pytest.mark.parametrize("damage", ["missing", "empty", "ragged", "latin-1"])
def test_bad_data_ends_in_one_line(tiny: Tiny, tmp_path: Path, damage: str, capfd: pytest.CaptureFixture) -> None:
    """Guards the first minute of a new user: exit 3, one line that names the file, no traceback, no run begun."""
    corpus = tmp_path / "bad.tsv"
    match damage:
        case "empty":
            corpus.write_bytes(b"")
        case "ragged":
            corpus.write_bytes(b"the cat\til gatto\nthe dog\n")
        case "latin-1":
            corpus.write_bytes("perché\twhy\n".encode("latin-1"))
    assert run(tiny(data__train=corpus)) == 3
    error = capfd.readouterr().err
    assert error.startswith("train.py: error: ")
    assert error.count("\n") == 1
    assert "bad.tsv" in error
    if damage == "missing":
        assert not Path(tiny().run.dir).exists(), "a mistyped path must leave nothing behind"


def test_second_training_of_one_run_is_refused(tiny: Tiny, capfd: pytest.CaptureFixture) -> None:
    """Guards two processes that prune each other's checkpoints."""
    config = tiny()
    with checkpoint.lock(Path(config.run.dir) / config.run.name):
        assert run(config) == 5
    assert str(os.getpid()) in capfd.readouterr().err


def test_all_checkpoints_damaged_is_no_fresh_start(tiny: Tiny, capfd: pytest.CaptureFixture) -> None:
    """Guards days of work against a silent beginning from step 1."""
    config = tiny(training__max_steps=8)
    assert run(config) == 0
    for path in Path(config.run.dir).rglob("model.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    assert run(config) == 4
    assert "damaged" in capfd.readouterr().err


def test_a_run_learns_and_leaves_all_that_it_promises(tiny: Tiny) -> None:
    """Guards the whole: a word-for-word language is learnt, and every artefact is there."""
    config = tiny(
        training__max_epochs=30, training__accumulate=1, training__keep_last=2, training__lr=0.003,
        training__warmup_steps=50, training__validate_every=200, training__save_every=300,
    )  # fmt: skip
    write_tsv(Path(config.data.train), tiny_pairs(600))
    assert run(config) == 0
    directory = Path(config.run.dir) / config.run.name
    result = checkpoint.load_json((directory / train.RESULT).read_bytes())
    assert result["test"]["bleu"] > 80
    assert result["test"]["signature"].startswith("nrefs:1")
    kept = checkpoint.steps(directory / "checkpoints")
    assert 2 <= len(kept) <= 3
    assert {path.name for path in kept[0].iterdir()} == {
        "model.safetensors", "config.yaml", "source.tokenizer.json", "target.tokenizer.json", "training.pt",
        "trained_on.json",
        "state.json", "manifest.json",
    }  # fmt: skip
    events = EventAccumulator(str(directory / "tensorboard")).Reload().Tags()
    assert {f"valid/{name}" for name in ("loss", "perplexity", "bleu", "chrf", "wer", "cer")} <= set(events["scalars"])
    assert {
        f"train/{name}" for name in ("loss", "perplexity", "learning_rate", "gradient_norm", "padding", "epoch")
    } <= set(events["scalars"])
    assert "speed/tokens_per_second" in events["scalars"]
    assert "attention" in events["images"]
    assert any("samples" in tag for tag in events["tensors"])
    assert sorted((directory / "samples").iterdir())
    assert "\t" in (directory / "report" / "test.tsv").read_text(encoding="utf-8")


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
@pytest.mark.parametrize("shared", [True, False])
def test_precisions_and_shared_vocabularies_train(tiny: Tiny, precision: str, shared: bool) -> None:
    """Guards the less used ways through the set-up."""
    tie = "all" if shared else "none"
    config = tiny(
        training__max_steps=4, training__precision=precision, tokenizer__shared=shared, model__tie=tie,
        tokenizer__kind="bpe", tokenizer__vocab_size=300, training__schedule="cosine",
    )  # fmt: skip
    assert run(config) == 0


def test_float16_needs_cuda(tiny: Tiny, capfd: pytest.CaptureFixture) -> None:
    """Guards against a run that is slow and wrong instead of refused."""
    assert run(tiny(training__precision="float16")) == 2
    assert "precision float16" in capfd.readouterr().err
    assert not Path(tiny().run.dir).exists()


def test_stop_is_false_until_asked() -> None:
    """Guards the exit codes that shells expect."""
    stop = Stop()
    assert not stop
    stop.signal = signal.SIGTERM
    assert stop
    assert stop.exit_code == 143
