"""The loss, the learning rate and the optimizers against their definitions."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dragoman.architectures import loss as loss_module
from dragoman.architectures.build import build_model
from dragoman.architectures.loss import batch_loss, ctc_sums, loss_sums
from dragoman.dataset import EncodedPairs, EncodedSide, make_batch
from dragoman.settings import EOS, PAD, ModelConfig, TrainingConfig
from dragoman.training import optimizer as optimizer_module
from dragoman.training.optimizer import make_optimizer
from dragoman.training.schedule import Clock, learning_rate

TARGET = torch.tensor([[5, 9, 3], [4, 3, PAD]])


@pytest.mark.parametrize("chunk", [11, 22, 10**6])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_loss_equals_torch(smoothing: float, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the smoothing over all tokens including the right one, padding, the hand-written gradients, and the seams
    between chunks."""
    monkeypatch.setattr(loss_module, "CHUNK", chunk)
    torch.manual_seed(0)
    states, projection = (torch.randn(shape, requires_grad=True) for shape in ((2, 3, 8), (11, 8)))
    loss = loss_sums(states, projection, TARGET, smoothing)
    logits = (states @ projection.t()).flatten(0, 1)
    expected, plain = (
        F.cross_entropy(logits, TARGET.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=eps)
        for eps in (smoothing, 0.0)
    )
    torch.testing.assert_close(loss.smoothed, expected)
    torch.testing.assert_close(loss.plain, plain)
    found, wanted = (torch.autograd.grad(3 * x, (states, projection)) for x in (loss.smoothed, expected))
    torch.testing.assert_close(found, wanted)
    assert found[0][1, 2].abs().max() == 0
    assert not loss.plain.requires_grad
    with torch.no_grad():
        assert loss_sums(states, projection, TARGET, smoothing) == loss


@pytest.mark.parametrize("spread", [3, 12])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_loss_in_16_bits_is_near_that_of_32(dtype: torch.dtype, spread: float) -> None:
    """Guards against a probability that underflows in 16 bits: a very unlikely token must not have an infinite loss."""
    torch.manual_seed(0)
    states, projection = torch.randn(5, 40, 32, requires_grad=True), (spread * torch.randn(500, 32)).requires_grad_()
    target = torch.randint(4, 500, (5, 40))
    exact = loss_sums(states, projection, target, 0.1)
    with torch.autocast("cpu", dtype):
        near = loss_sums(states, projection, target, 0.1)
    wanted = F.cross_entropy((states @ projection.t()).flatten(0, 1), target.flatten(), reduction="sum")
    torch.testing.assert_close(exact.plain, wanted)
    assert exact.plain / target.numel() > 14 * spread, "exp(-40) underflows in float16, exp(-100) in both"
    torch.testing.assert_close(near.plain, exact.plain, rtol=1e-3, atol=0)
    for a, b in zip(*(torch.autograd.grad(x.smoothed, (states, projection)) for x in (near, exact)), strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.02 * b.norm()


# Two places per source token. Words repeat, next to each other and apart; one sentence is empty; the last but one is
# too long for its places.
PLACED_SOURCE = torch.tensor([[5, 6, 3], [4, 3, PAD], [7, 3, PAD], [8, 9, 3], [3, PAD, PAD], [5, 7, 3]])
PLACED = torch.tensor(
    [[5, 9, 5, EOS], [4, 4, EOS, PAD], [EOS, PAD, PAD, PAD], [6, 7, 8, EOS], [5, 5, 5, EOS], [4, 6, EOS, PAD]]
)


def placed(generator_seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """States of all places, and a projection."""
    torch.manual_seed(generator_seed)
    return torch.randn(6, 6, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)


@pytest.mark.parametrize("chunk", [11, 33, 10**6])
def test_ctc_loss_equals_torch(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the sum over sentences (torch's mean would divide by their lengths), the hand-written gradients, repeated
    words, the seams between chunks, and padding."""
    monkeypatch.setattr(loss_module, "CHUNK", chunk)
    states, projection = placed()
    loss = ctc_sums(states, projection, PLACED_SOURCE, PLACED)
    lengths, tokens = 2 * (PLACED_SOURCE != PAD).sum(1), (PLACED > EOS).sum(1)
    log_probs = (states @ projection.t()).log_softmax(-1).transpose(0, 1)
    rows = F.ctc_loss(log_probs, PLACED, lengths, tokens, reduction="none", zero_infinity=True)
    assert (rows > 0).tolist() == [True] * 4 + [False, True]
    torch.testing.assert_close(loss.smoothed, rows.sum())
    assert loss.plain == loss.smoothed
    assert not loss.plain.requires_grad
    found, wanted = (torch.autograd.grad(3 * x, (states, projection)) for x in (loss.smoothed, rows.sum()))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert found[0][1, 4:].abs().max() == 0
    assert found[0][4].abs().max() == 0, "a sentence without a path"
    with torch.no_grad():
        assert ctc_sums(states, projection, PLACED_SOURCE, PLACED) == loss


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_ctc_loss_in_16_bits_is_near_that_of_32(dtype: torch.dtype) -> None:
    """Guards the sums over places and paths against the low precision of the products."""
    torch.manual_seed(0)
    states, projection = torch.randn(5, 40, 32, requires_grad=True), torch.randn(500, 32, requires_grad=True)
    source, target = torch.full((5, 20), 5), torch.randint(4, 500, (5, 15))
    exact = ctc_sums(states, projection, source, target)
    with torch.autocast("cpu", dtype):
        near = ctc_sums(states, projection, source, target)
    torch.testing.assert_close(near.plain, exact.plain, rtol=1e-3, atol=0)
    for a, b in zip(*(torch.autograd.grad(x.smoothed, (states, projection)) for x in (near, exact)), strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.02 * b.norm()


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only", "encoder-only"])
def test_each_architecture_has_its_loss(architecture: Any) -> None:
    """Guards the choice: CTC for encoder-only models, without label smoothing; cross-entropy for the others."""
    model = build_model(ModelConfig(architecture=architecture, d_model=16, n_heads=2, d_ff=16), 20, 20).eval()
    pairs = EncodedPairs(*(EncodedSide.of(np.array([3, 1]), np.array([5, 6, 7, 8])) for _ in range(2)))
    batch = make_batch(pairs, np.arange(2))
    states = model.states(batch.source, batch.target_in, batch.source_mask, batch.target_mask)
    if architecture == "encoder-only":
        expected = ctc_sums(states, model.projection.weight, batch.source, batch.target_out)
    else:
        expected = loss_sums(states, model.projection.weight, batch.target_out, 0.1)
    assert batch_loss(model, batch, 0.1) == expected


def settings(**changes: object) -> TrainingConfig:
    return replace(TrainingConfig(lr=0.5, warmup_steps=10, max_steps=110, max_epochs=None), **changes)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear", "cosine", "constant"])
def test_the_rate_rises_to_its_peak_and_no_further(schedule: str) -> None:
    """Guards the transition from warm-up to schedule, where an off-by-one error makes a jump."""
    rates = [learning_rate(step, settings(schedule=schedule), 110) for step in range(1, 111)]
    assert rates[:10] == pytest.approx([0.05 * step for step in range(1, 11)])
    assert max(rates) == 0.5
    assert all(a >= b for a, b in itertools.pairwise(rates[9:]))
    assert min(rates) > 0


def test_rates_after_the_peak() -> None:
    """Guards each formula at a step where it is known by hand."""
    assert learning_rate(40, settings(schedule="inverse_sqrt"), None) == pytest.approx(0.25)
    assert learning_rate(110, settings(schedule="linear"), 110) == pytest.approx(0.5 / 101)
    assert learning_rate(60, settings(schedule="cosine"), 109) == pytest.approx(0.25)
    assert learning_rate(110, settings(schedule="constant"), None) == 0.5
    assert learning_rate(200, settings(schedule="linear"), 110) == 0.0, "a run extended by minutes must not climb back"


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("by_time", [False, True])
def test_the_rate_stays_at_the_peak_until_its_share_is_left(schedule: str, by_time: bool) -> None:
    """Guards warmup-stable-decay: the last fifth must be the whole fall, without a jump, by steps and by the clock."""

    def rate(left: float, share: float) -> float:
        """The rate when this share of the 100 steps, or of the time, after the warm-up is left."""
        step = round(111 - 101 * left)
        shared = settings(schedule=schedule, decay_share=share)
        return learning_rate(11, shared, None, Clock(1 - left, 0.0)) if by_time else learning_rate(step, shared, 110)

    ways = [i / 101 for i in range(1, 101)]
    rates = [rate(left, 20 / 101) for left in ways]
    assert rates[19:] == pytest.approx([0.5] * 81)
    assert rates[:19] == pytest.approx([rate(left * 101 / 20, 1.0) for left in ways[:19]], abs=0.02)
    assert rates[:20] == sorted(set(rates[:20]))


def test_inverse_sqrt_is_the_papers() -> None:
    """Guards section 5.3: with the peak (d·warmup)^-0.5 it is d^-0.5 · min(step^-0.5, step · warmup^-1.5)."""
    width, warmup = 512, 4000
    paper = settings(lr=(width * warmup) ** -0.5, warmup_steps=warmup, schedule="inverse_sqrt")
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        expected = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert learning_rate(step, paper, None) == pytest.approx(expected, rel=1e-9)


def test_a_schedule_that_falls_to_zero_needs_an_end() -> None:
    """Guards against a rate that silently stays constant."""
    with pytest.raises(ValueError, match="needs an end"):
        learning_rate(50, settings(schedule="cosine"), None)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_rate_follows_the_nearer_end(schedule: str) -> None:
    """Guards the time limit: the rate falls with the clock, with or without a number of steps, and never rises."""
    chosen = settings(schedule=schedule)
    half = learning_rate(60, chosen, 109)
    halfway = Clock(spent=0.52, warm=0.04)  # of what was left after the warm-up
    assert learning_rate(60, chosen, None, halfway) == pytest.approx(half)
    assert learning_rate(60, chosen, 109, Clock(0.3)) == pytest.approx(half)
    assert learning_rate(60, chosen, 10**6, halfway) == pytest.approx(half)
    assert learning_rate(60, chosen, 109, Clock(0.99)) < 0.02 * chosen.lr
    assert learning_rate(60, chosen, None, Clock(1.1)) == 0
    constant = settings(schedule="constant")
    assert learning_rate(60, constant, None, Clock(0.9)) == constant.lr


def test_the_warmup_takes_at_most_a_tenth_of_the_time() -> None:
    """Guards a preset's 1000 warm-up steps in a run of ten minutes that has time for 800 steps."""
    chosen = settings(schedule="linear", warmup_steps=1000)
    by_clock = [learning_rate(30, chosen, None, Clock(share / 100)) / chosen.lr for share in range(10)]
    assert by_clock == pytest.approx([max(0.03, share / 10) for share in range(10)])
    assert learning_rate(1, chosen, None, Clock(0.3)) <= 0.05 * chosen.lr, "a validation before it used the time"
    assert learning_rate(700, chosen, None, Clock(0.05)) == pytest.approx(0.7 * chosen.lr), "steps may end it sooner"
    assert learning_rate(60, chosen, None, Clock(0.1, 0.1)) == pytest.approx(chosen.lr)
    assert learning_rate(500, chosen, None, Clock(0.55, 0.1, 60)) == pytest.approx(0.5 * chosen.lr)
    assert learning_rate(500, chosen, None, Clock(0.02, 0.01, 60)) > 0.98 * chosen.lr, "with more time it stays high"
    assert learning_rate(500, chosen, 939, Clock(0.1, 0.1, 60)) == pytest.approx(0.5 * chosen.lr), "falls by steps"
    paper = settings(schedule="inverse_sqrt", warmup_steps=1000)
    assert learning_rate(500, paper, None, Clock(0.9)) == pytest.approx(0.5 * paper.lr), "ignores the clock"
    assert learning_rate(500, settings(schedule="linear", warmup_steps=1000), 2000) == pytest.approx(0.5 * paper.lr)


def test_weight_decay_spares_norms_and_biases() -> None:
    """Guards the groups: every parameter in exactly one of them."""
    module = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    optimizer = make_optimizer(module, settings(weight_decay=0.1))
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decay == {id(p): 0.1 if p.dim() == 2 else 0.0 for p in module.parameters()}
    assert math.isclose(optimizer.param_groups[0]["betas"][1], 0.98)


def muon(**changes: object) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A small Transformer, the optimizer for it, and a gradient in each parameter."""
    torch.manual_seed(0)
    small = ModelConfig(d_model=16, n_heads=2, encoder_layers=1, decoder_layers=1, d_ff=24)
    model = build_model(small, 11, 13)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    return model, make_optimizer(model, settings(optimizer="muon", **{"weight_decay": 0.0} | changes))


def test_muon_updates_the_matrices_inside_the_layers() -> None:
    """Guards the embeddings, few of whose rows have a gradient, against Muon's steps, and against parameters that are
    left out or updated twice."""
    model, optimizer = muon()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.step()
    moved = [p for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, moved)) == sorted(map(id, model.parameters()))
    by_muon = {id(p) for p in moved if "momentum_buffer" in optimizer.state[p]}
    for name, p in model.named_parameters():
        step = (before[name] - p.detach()) / 0.5
        inside = p.dim() == 2 and "embedding" not in name and "projection" not in name
        assert (id(p) in by_muon) == inside, name
        if inside:  # nearly orthogonal after five iterations, and as long as a step of Adam
            stretched = torch.linalg.svdvals(step) / (0.2 * math.sqrt(max(p.shape)))
            assert 0.5 < float(stretched[-3]) <= float(stretched[0]) < 1.4, name  # two of 16 may be too small
        else:
            torch.testing.assert_close(step.abs(), torch.ones_like(step), rtol=1e-3, atol=0)


@pytest.mark.parametrize("cached", [1, 16 * 16 * 3, 10**6])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 0.03), (torch.bfloat16, 0.03)])
def test_muon_in_batches_equals_torchs(
    dtype: torch.dtype, tolerance: float, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compares our Muon with torch's over several updates: one, several or all matrices at a time, tall and wide ones,
    one without a gradient, one of zeros, weight decay, and a state written by torch's."""
    monkeypatch.setattr(optimizer_module, "CACHED", cached)
    _model, ours = muon(weight_decay=0.1, lr=0.02)
    ours.dtype = dtype  # type: ignore[attr-defined]
    matrices = ours.param_groups[-1]["params"]
    twins = [p.detach().clone().requires_grad_() for p in matrices]
    torchs = torch.optim.Muon(twins, 0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for update in range(4):
        for i, (p, twin) in enumerate(zip(matrices, twins, strict=True)):
            p.grad = torch.randn_like(p) * (i != 1) if i else None
            twin.grad = None if p.grad is None else p.grad.clone()
        before = [p.detach().clone() for p in twins]
        torchs.step()
        ours.step()
        for i, (p, twin, was) in enumerate(zip(matrices, twins, before, strict=True)):
            if i:
                assert (p - twin).norm() <= tolerance * (twin - was).norm(), (update, i, p.shape)
            else:
                assert torch.equal(p, was)
        if update == 1:
            for p, twin in zip(matrices, twins, strict=True):
                if twin in torchs.state:
                    ours.state[p] = copy.deepcopy(torchs.state[twin])
        with torch.no_grad():
            for p, twin in zip(matrices, twins, strict=True):
                p.copy_(twin)
    assert [p in ours.state for p in matrices] == [twin in torchs.state for twin in twins]
    assert {p.shape[0] > p.shape[1] for p in twins} == {True, False}


def test_the_state_of_muon_and_adamw_is_restored_exactly() -> None:
    """Guards the exact resume: each parameter must get its own state back."""
    (model, optimizer), (other, fresh) = muon(), muon()
    gradients = [p.grad for p in model.parameters()]

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, scale: float) -> None:
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            p.grad = scale * gradient if gradient is not None else None
        optimizer.step()

    for scale in (1.0, -0.3):
        step(model, optimizer, scale)
    other.load_state_dict(model.state_dict())
    fresh.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each in ((model, optimizer), (other, fresh)):
        step(*each, 0.7)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)
    with pytest.raises(ValueError, match="parameter groups"):
        fresh.load_state_dict(make_optimizer(model, settings(optimizer="adamw")).state_dict())
