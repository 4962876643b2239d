"""The loss and the learning rate against their definitions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from config import PAD, TrainingConfig
from optim import learning_rate, loss_sums, make_optimizer

TARGET = torch.tensor([[5, 9, 3], [4, 3, PAD]])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_loss_equals_torch(smoothing: float) -> None:
    """Guards the smoothing (over all tokens, the right one included) and that padding counts for nothing."""
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 11, dtype=torch.float32, requires_grad=True)
    loss = loss_sums(logits, TARGET, smoothing)
    expected, plain = (
        F.cross_entropy(logits.flatten(0, 1), TARGET.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=eps)
        for eps in (smoothing, 0.0)
    )
    torch.testing.assert_close(loss.smoothed, expected)
    torch.testing.assert_close(loss.plain, plain)
    gradients = [torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (loss.smoothed, expected)]
    torch.testing.assert_close(*gradients)
    assert gradients[0][1, 2].abs().max() == 0


def settings(**changes: object) -> TrainingConfig:
    return replace(TrainingConfig(lr=0.5, warmup_steps=10, max_steps=110, max_epochs=None), **changes)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear", "cosine", "constant"])
def test_rate_rises_to_its_peak_and_no_further(schedule: str) -> None:
    """Guards the joint of warm-up and schedule, where an off-by-one makes a jump."""
    rates = [learning_rate(step, settings(schedule=schedule), 110) for step in range(1, 111)]
    assert rates[:10] == pytest.approx([0.05 * step for step in range(1, 11)])
    assert max(rates) == 0.5
    assert all(a >= b for a, b in itertools.pairwise(rates[9:]))
    assert min(rates) > 0


def test_rates_after_the_peak() -> None:
    """Guards each formula at a step where it can be told by hand."""
    assert learning_rate(40, settings(schedule="inverse_sqrt"), None) == pytest.approx(0.25)
    assert learning_rate(110, settings(schedule="linear"), 110) == pytest.approx(0.5 / 101)
    assert learning_rate(60, settings(schedule="cosine"), 109) == pytest.approx(0.25)
    assert learning_rate(110, settings(schedule="constant"), None) == 0.5
    assert learning_rate(200, settings(schedule="linear"), 110) == 0.0, "a run extended by minutes must not climb back"


def test_inverse_sqrt_is_the_papers() -> None:
    """Guards section 5.3: with the peak (d·warmup)^-0.5 it is d^-0.5 · min(step^-0.5, step · warmup^-1.5)."""
    width, warmup = 512, 4000
    paper = settings(lr=(width * warmup) ** -0.5, warmup_steps=warmup, schedule="inverse_sqrt")
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        expected = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert learning_rate(step, paper, None) == pytest.approx(expected, rel=1e-9)


def test_a_schedule_that_falls_to_the_end_needs_one() -> None:
    """Guards against a silent constant rate."""
    with pytest.raises(ValueError, match="last step"):
        learning_rate(50, settings(schedule="cosine"), None)


def test_weight_decay_spares_norms_and_biases() -> None:
    """Guards the groups: every parameter in exactly one of them."""
    module = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    optimizer = make_optimizer(module, settings(weight_decay=0.1))
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decay == {id(p): 0.1 if p.dim() == 2 else 0.0 for p in module.parameters()}
    assert math.isclose(optimizer.param_groups[0]["betas"][1], 0.98)
