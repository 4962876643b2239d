"""The tables of `dragoman summary`, checked against the model itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from dragoman.architectures import summary
from dragoman.architectures.build import build_model
from dragoman.dataset import masks
from dragoman.settings import PAD, ModelConfig

SMALL = ModelConfig(d_model=32, n_heads=4, encoder_layers=2, decoder_layers=3, d_ff=64)
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, PAD, PAD]])
TARGET = torch.tensor([[2, 5, 9, 7], [2, 8, PAD, PAD]])
INPUTS = (SOURCE, TARGET, *masks(SOURCE, TARGET))
ARCHITECTURES = ["encoder-decoder", "decoder-only", "encoder-only"]


def model(**changes: Any) -> Any:
    torch.manual_seed(0)
    return build_model(replace(SMALL, **changes), 12, 12).eval()


@pytest.mark.parametrize("tie", ["none", "output", "all"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_first_row_counts_every_parameter_once(architecture: str, tie: str) -> None:
    """Guards against a shared matrix counted twice, and against one that is not named."""
    ours = model(architecture=architecture, tie=tie)
    assert summary.trace(ours, INPUTS)[0].parameters == sum(p.numel() for p in ours.parameters())
    shared = [owner for name, owner in summary.shared_weights(ours) if name == "projection.weight"]
    assert bool(shared) == (tie == "all" or (tie == "output" and architecture != "encoder-only"))
    assert all(ours.get_parameter(owner) is ours.projection.weight for owner in shared)


def test_shapes_come_in_the_order_of_calls() -> None:
    """A caller comes before what it calls, and tensors inside tuples and lists are seen."""
    calls = summary.trace(model(), INPUTS)
    paths = [call.path for call in calls]
    assert paths[:4] == ["", "encoder", "encoder.embedding", "encoder.embedding.table"]
    assert paths[-2:] == ["decoder.norm", "projection"]
    found = {call.path: call for call in calls}
    cross = found["decoder.layers.*.cross_attention"]
    assert cross == summary.Call(
        cross.path, "Attention", 4 * (32 * 32 + 32), "(2, 4, 32), 2 x (2, 4, 5, 8), (2, 1, 1, 5)", "(2, 4, 32)"
    )
    assert found["decoder.layers.*.feed_forward.0"][3:] == ("(2, 4, 32)", "(2, 4, 64)")
    assert found[""][3:] == ("(2, 5), (2, 4), (2, 1, 1, 5), (2, 1, 4, 4)", "(2, 4, 12)")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_equal_layers_are_shown_once(architecture: str) -> None:
    """Six layers take as many lines as one, and every call of the first layer is there."""
    one, six = (model(architecture=architecture, encoder_layers=count, decoder_layers=count) for count in (1, 6))
    assert [call.path for call in summary.trace(six, INPUTS)] == [call.path for call in summary.trace(one, INPUTS)]


def test_no_hook_stays_behind() -> None:
    """Guards the model after the summary, also when its call fails."""
    ours = model()
    summary.summary_lines(ours, INPUTS, 18)
    with pytest.raises(IndexError):
        summary.trace(ours, (SOURCE + 1000, *INPUTS[1:]))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in ours.modules())
    assert all(p.grad is None for p in ours.parameters())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_summary_fits_on_two_screens(architecture: str) -> None:
    ours: nn.Module = model(
        architecture=architecture, encoder_layers=6, decoder_layers=6, positions="rotary", norm_kind="rms"
    )
    lines = summary.summary_lines(ours, INPUTS, 18)
    assert lines[0] == f"parameters: {sum(p.numel() for p in ours.parameters()):,}"
    assert len(lines) < 100
    assert max(map(len, lines)) < 180
    assert not any(line != line.rstrip() for line in lines)
