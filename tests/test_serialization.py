"""Weights, training state and JSON come back exactly, and nothing hostile runs."""

from __future__ import annotations

import json
import struct

import pytest
import safetensors.torch
import torch
from torch import nn

from dragoman import serialization, tensors
from dragoman.errors import CheckpointError
from saved import Tied, bits


def packed(model: nn.Module) -> bytes:
    """The weights as a checkpoint has them."""
    return safetensors.torch.save(tensors.weights_of(model))


def test_weights_return_bit_for_bit() -> None:
    """Guards against rounding through another type, and tied weights that come back untied or stale."""
    saved, loaded = Tied(seed=1), Tied(seed=2)
    assert bits(saved.state_dict()) != bits(loaded.state_dict())
    tensors.load_weights(loaded, packed(saved))
    assert bits(saved.state_dict()) == bits(loaded.state_dict())
    assert loaded.generator.weight is loaded.embedding.weight


def test_tied_weights_are_stored_once_under_the_first_name() -> None:
    """Guards against a file that holds the largest matrix twice, or under a name that depends on chance."""
    data = packed(Tied())
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    assert header.keys() == Tied().state_dict().keys() - {"generator.weight"}
    assert data == packed(Tied())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["embedding.weight", "coarse.bias"])
def test_weights_that_are_not_finite_are_refused(name: str, value: float) -> None:
    """Guards against a diverged model that overwrites the last good checkpoint, and then its predecessors."""
    model = Tied()
    model.get_parameter(name).data.view(-1)[-1] = value
    with pytest.raises(CheckpointError, match=name):
        packed(model)


def test_weights_of_another_shape_are_refused_without_a_change() -> None:
    """Guards against an error that lists every tensor, and a half-loaded model."""
    model = Tied(vocabulary=9)
    before = bits(model.state_dict())
    with pytest.raises(CheckpointError, match=r"embedding.weight .*\(7, 4\).*\(9, 4\)"):
        tensors.load_weights(model, packed(Tied(vocabulary=7)))
    assert bits(model.state_dict()) == before


def test_weights_of_other_names_are_refused() -> None:
    """Guards against a strict=False that leaves a missing tensor at its random initial value."""
    more = Tied()
    more.extra = nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match=r"extra.weight has shape none in the checkpoint and \(2, 2\)"):
        tensors.load_weights(more, packed(Tied()))
    with pytest.raises(CheckpointError, match=r"extra.bias has shape \(2,\) in the checkpoint and none"):
        tensors.load_weights(Tied(), packed(more))
    untied = Tied()
    untied.generator.weight = nn.Parameter(untied.embedding.weight.detach().clone())
    with pytest.raises(CheckpointError, match=r"generator.weight"):
        tensors.load_weights(untied, packed(Tied()))


@pytest.mark.parametrize("data", [b"", b"\0" * 64, b"\xff" * 8 + b"{}", packed(Tied())[:-1]])
def test_bytes_that_are_not_safetensors_are_refused(data: bytes) -> None:
    """Guards against exceptions of the library, and against trusting a header length of 2 to the power of 64."""
    with pytest.raises(CheckpointError):
        tensors.load_weights(Tied(), data)


def test_optimizer_state_returns_bit_for_bit() -> None:
    """Guards against an optimizer that resumes with rounded moments or a step count of zero."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    saved = optimizer.state_dict()
    loaded = tensors.load_tensors(tensors.tensors_bytes(saved))
    assert loaded["param_groups"] == saved["param_groups"]
    for index, state in saved["state"].items():
        assert bits(loaded["state"][index]) == bits(state)


def test_json_returns_floats_exactly_and_refuses_what_is_not_finite() -> None:
    """Guards against a best score that is rounded on resume, and NaN, for which every comparison is false."""
    value = {"best": 0.1 + 0.2, "tiny": 5e-324, "step": 2**60, "none": None, "text": "жук\ud800"}
    assert serialization.load_json(serialization.json_bytes(value)) == value
    with pytest.raises(ValueError, match="JSON"):
        serialization.json_bytes({"best": float("nan")})
    for data in (b"", b"\xff", b"{", b"NaN", b"[-Infinity]", b"1e999", b"[" * 100_000):
        with pytest.raises(CheckpointError):
            serialization.load_json(data)
