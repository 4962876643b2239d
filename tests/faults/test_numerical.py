"""Cases 15 to 18: numbers that are not finite, too little memory, and empty batches."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from dragoman import checkpoint, dataset, errors, train
from dragoman.architectures.loss import Loss
from dragoman.corpora import preparation
from dragoman.model import Transformer
from dragoman.settings import EOS, PAD, Config
from dragoman.training import gradients, saving
from dragoman.training.batches import training_batches
from dragoman.training.progress import Progress
from dragoman.training.state import TrainingState
from faults.harness import (
    Fault,
    Reference,
    at_step,
    checkpoints,
    contents,
    die,
    directory,
    outcome,
    run,
    training_of,
)

Toy = Callable[..., Config]
faults = pytest.mark.faults


def batches_of(training: TrainingState, *rows: range) -> list[dataset.Batch]:
    return [dataset.make_batch(training.data.train, np.array(each)) for each in rows]


def weights(training: TrainingState) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in training.model.state_dict().items()}


def spoilt_loss(step: int, value: float) -> Fault:
    """A fault: the loss of the second batch of an update is not finite."""

    def fault() -> None:
        sums, armed = train.batch_loss, []
        at_step(step, lambda: armed.append(True))()

        def spoilt(*args: object) -> Loss:
            loss = sums(*args)  # type: ignore[arg-type]
            return Loss(loss.smoothed * value, loss.plain) if armed and armed.pop() else loss

        train.batch_loss = spoilt  # type: ignore[assignment]

    return fault


@faults
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_15_loss_that_is_not_finite(toy: Toy, reference: Reference, value: float, capfd: pytest.CaptureFixture) -> None:
    """One bad step must not ruin a week of training.

    The exit code is 6, the message names the step and the sentences of the guilty batch, the last checkpoint is
    unchanged, and the run can resume from it.
    """
    assert run(toy(), spoilt_loss(11, value)) == 6
    error = capfd.readouterr().err
    assert f"error: step 11: loss {value}, gradient norm nan, learning rate 0.00" in error
    assert error.count("\n") == 1
    data = preparation.load(directory(toy()) / "data")
    plan = dataset.batch_plan(*data.train.lengths, int(toy().training.batch_tokens), seed=toy().run.seed, epoch=1)
    guilty = plan[2 * (11 - 8) - 1]
    assert f"the training pairs {', '.join(map(str, guilty[:8]))} and {len(guilty) - 8} more" in error
    first = data.train.source.padded(guilty[:1])[0][0]
    assert repr(data.source.decode(first.tolist())) in error
    last = checkpoint.newest(checkpoints(toy()), quarantine=False, warn=pytest.fail)
    assert last is not None
    assert contents(last) == reference.checkpoints[10]
    assert run(toy()) == 0
    assert outcome(toy()) == reference.outcome


@faults
def test_15_weights_that_are_not_finite_are_never_saved(toy: Toy, capfd: pytest.CaptureFixture) -> None:
    """Guards the checkpoints against damaged weights or moments, for example by faulty memory."""

    def spoil(what: Callable[[TrainingState], torch.Tensor]) -> Fault:
        def fault() -> None:
            save = saving.save

            def spoilt(state: TrainingState) -> None:
                if state.progress.step == 10:
                    what(state).view(-1)[0] = float("inf")
                save(state)

            saving.save = spoilt

        return fault

    for what in (
        lambda t: next(t.model.parameters()).data,
        lambda t: next(iter(t.optimizer.state.values()))["exp_avg"],
    ):
        capfd.readouterr()
        assert run(toy(), spoil(what)) == 6
        assert re.search(r"because \S+ holds NaN or infinite values", capfd.readouterr().err)
        assert [path.name for path in checkpoint.steps(checkpoints(toy()))] == ["step-00000007"]


@faults
def test_16_infinite_gradient_of_a_finite_loss(toy: Toy, reference: Reference, capfd: pytest.CaptureFixture) -> None:
    """Guards against clipping by an infinite norm, which would make every weight NaN."""

    def overflow() -> None:
        armed = []
        at_step(11, lambda: armed.append(True))()
        sums = train.batch_loss

        def steep(*args: object) -> Loss:
            loss = sums(*args)  # type: ignore[arg-type]
            if armed and armed.pop():
                loss.smoothed.register_hook(lambda gradient: gradient * float("inf"))
            return loss

        train.batch_loss = steep  # type: ignore[assignment]

    assert run(toy(), overflow) == 6
    error = capfd.readouterr().err
    assert re.search(r"error: step 11: loss [\d.]+, gradient norm (inf|nan), .*the training pairs ", error)
    assert run(toy()) == 0
    assert outcome(toy()) == reference.outcome


@faults
def test_16_float16_skips_an_overflow_but_not_forever(toy: Toy) -> None:
    """Guards float16 both ways: single overflows find its scale, but overflows without end are an error."""
    training = training_of(toy())
    training.scaler = torch.amp.GradScaler("cpu")
    updates = training_batches(training)
    parameter = next(training.model.parameters())
    train.train_step(training, next(updates))
    before, scale = weights(training), training.scaler.get_scale()

    for _ in range(3):
        hook = parameter.register_hook(lambda gradient: gradient * float("inf"))
        train.train_step(training, next(updates))
        assert all(torch.equal(tensor, before[name]) for name, tensor in weights(training).items())
        hook.remove()
        train.train_step(training, next(updates))
        assert training.progress.overflows == 0
        before = weights(training)
    assert training.scaler.get_scale() == scale / 8

    parameter.register_hook(lambda gradient: gradient * float("inf"))
    for k in range(gradients.MAX_OVERFLOWS):
        train.train_step(training, next(updates))
        assert training.progress.overflows == k + 1
    with pytest.raises(errors.NumericalError, match=f"float16 overflow number {gradients.MAX_OVERFLOWS + 1} in a row"):
        train.train_step(training, next(updates))
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(training).items())


def too_large_above(positions: int) -> Callable[..., torch.Tensor]:
    """A forward pass on a device where only a given number of padded positions fits; it fails after computing them."""
    forward = Transformer.states

    def limited(self: Transformer, source: torch.Tensor, target: torch.Tensor, *masks: torch.Tensor) -> torch.Tensor:
        states = forward(self, source, target, *masks)
        if self.training and source.numel() + target.numel() > positions:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return states

    return limited


@faults
@pytest.mark.parametrize("positions", [400, 130, 40])
def test_17_update_of_a_halved_batch_equals_that_of_the_whole(
    toy: Toy, positions: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Guards against sentences that are skipped or counted twice when memory runs out during an update.

    The first batch fits and has added its gradient when the second fails. Parts are split again until they fit. Without
    dropout the results are equal, up to the order of sums. The optimizer is SGD, since Adam turns a gradient of pure
    rounding errors into a full step.
    """
    updated, still = [], toy(model__dropout=0.0)
    for limit in (10**9, positions):
        with monkeypatch.context() as patch:
            patch.setattr(Transformer, "states", too_large_above(limit))
            training = training_of(still)
            training.optimizer = torch.optim.SGD(training.model.parameters(), lr=1.0)
            batches = batches_of(training, range(2), range(2, 40))
            train.train_step(training, batches)
            train.train_step(training, batches)
        updated.append(training)
    whole, parts = updated
    torch.testing.assert_close(weights(parts), weights(whole), rtol=1e-4, atol=1e-6)
    assert whole.progress.halved == 0
    assert parts.progress.halved > 1
    assert (parts.progress.tokens, parts.progress.step) == (whole.progress.tokens, whole.progress.step)
    assert parts.progress.plain == pytest.approx(whole.progress.plain, rel=1e-5)
    said = capfd.readouterr().out
    assert said.count("does not fit") == 1, "only once, not at every step"
    assert "batch of 38 pairs" in said


@faults
def test_17_running_out_of_memory_does_not_end_a_run(toy: Toy, capfd: pytest.CaptureFixture) -> None:
    """Guards the whole path: the run ends well, the count is saved, and a killed run repeats it bit for bit."""
    names = [toy(run__name=f"{toy().run.name}-{name}") for name in ("whole", "killed")]

    def limit() -> None:
        Transformer.states = too_large_above(230)  # type: ignore[method-assign]

    def limit_and_die() -> None:
        limit()
        at_step(12, die)()

    assert run(names[0], limit) == 0
    assert "does not fit in the memory" in capfd.readouterr().out
    assert run(names[1], limit_and_die) == -signal.SIGKILL
    assert run(names[1], limit) == 0
    assert outcome(names[1]) == outcome(names[0])
    assert outcome(names[0])[1]["progress"]["halved"] > 0


@faults
def test_17_single_pair_that_does_not_fit(toy: Toy, capfd: pytest.CaptureFixture) -> None:
    """Guards against splitting forever: exit code 6 with the shape, before anything else happens."""

    def limit() -> None:
        Transformer.states = too_large_above(10)  # type: ignore[method-assign]

    assert run(toy(), limit) == 6
    error = capfd.readouterr().err
    assert re.search(r"error: step 1: a single pair of \d+ and \d+ tokens does not fit", error)
    assert error.count("\n") == 1
    assert not checkpoints(toy()).exists()
    assert not list(directory(toy()).glob("events*")), "no step has started"


@faults
def test_17_the_largest_batch_is_tried_first_and_leaves_no_trace(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a run that dies in its second hour, when the longest sentences come.

    The rehearsal needs as much memory as an update, including the moments, which do not exist yet.
    """
    training = training_of(toy())
    shapes, held = [], []
    states = training.model.states

    def seen(source: torch.Tensor, target: torch.Tensor, *masks: torch.Tensor) -> torch.Tensor:
        shapes.append(source.numel() + target.numel())
        return states(source, target, *masks)

    def counted(like: torch.Tensor) -> torch.Tensor:
        held.append(like.numel())
        return torch.empty(like.shape)

    monkeypatch.setattr(training.learner, "states", seen)
    monkeypatch.setattr(torch, "empty_like", counted)
    before, random = weights(training), torch.get_rng_state()
    gradients.try_largest_batch(training)
    monkeypatch.undo()
    batches = [
        dataset.make_batch(training.data.train, rows) for rows in training.planner.plan(toy().training.batch_tokens, 0)
    ]
    assert shapes == [max(batch.source.numel() + batch.target_out.numel() for batch in batches)]
    assert sum(held) == 2 * sum(parameter.numel() for parameter in training.model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(training).items())
    assert all(parameter.grad is None for parameter in training.model.parameters())
    assert training.progress == Progress()
    assert not torch.equal(random, torch.get_rng_state()), "so each update seeds the generators itself"
    update = next(training_batches(training))
    train.train_step(training, update)
    fresh = training_of(toy())
    train.train_step(fresh, next(training_batches(fresh)))
    assert all(torch.equal(tensor, weights(fresh)[name]) for name, tensor in weights(training).items())


@faults
def test_17_halves_hold_every_row_once_and_no_empty_column(toy: Toy) -> None:
    """Guards the parts of a batch: equal to those of `make_batch`, also for an odd number of rows."""
    pairs = training_of(toy()).data.train
    rows = np.array([5, 3, 40, 8, 11, 2, 77])
    halves = dataset.make_batch(pairs, rows).halves()
    for half, expected in zip(halves, (rows[:3], rows[3:]), strict=True):
        fresh = dataset.make_batch(pairs, expected)
        for name in ("source", "target_in", "target_out"):
            assert torch.equal(getattr(half, name), getattr(fresh, name)), name
        assert half.indices.tolist() == fresh.indices.tolist()
        assert (half.tokens, half.source_tokens) == (fresh.tokens, fresh.source_tokens)


@faults
def test_18_a_batch_without_tokens_changes_nothing(toy: Toy) -> None:
    """Guards against 0 / 0. Text cannot give such a batch, since each side has an end token; here it is forced."""
    training = training_of(toy())
    empty = dataset.EncodedSide(np.zeros(0, np.uint16), np.zeros(3, np.int64))
    made = dataset.make_batch(dataset.EncodedPairs(empty, empty), np.arange(2))
    assert made.source.tolist() == made.target_out.tolist() == [[EOS], [EOS]]
    assert made.tokens == 2

    [full] = batches_of(training, range(4))
    forced = replace(full, target_out=torch.full_like(full.target_out, PAD), tokens=0)
    gradients.accumulate(training, [forced], step=1, tokens=0)
    assert not any(p.grad is not None and p.grad.any() for p in training.model.parameters())
    before = weights(training)
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=1.0)
    training.optimizer.zero_grad()
    train.train_step(training, [forced])
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(training).items())

    # With a source of padding only, there is nothing to attend to and no finite result: a clear error.
    with pytest.raises(errors.NumericalError):
        train.train_step(training, [replace(full, source=torch.full_like(full.source, PAD))])
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(training).items())
