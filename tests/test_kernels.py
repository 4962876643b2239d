"""The CPU kernels compared with their plain equivalents."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from dragoman.device import seed_everything
from dragoman.kernels import Dropout, softmax


@pytest.mark.parametrize("keys", [1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 70])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_softmax_equals_torch(dtype: torch.dtype, keys: int) -> None:
    """Guards the lengths at which rows are padded: padding gets no weight, and no gradient is lost."""
    torch.manual_seed(0)
    scores = (3 * torch.randn(2, 4, 6, keys)).masked_fill(torch.rand(2, 1, 6, keys) < 0.3, -math.inf)
    scores[..., 0] = 1.0  # every row sees something
    scores, wanted = (scores.to(dtype).detach().requires_grad_() for _ in range(2))
    found, expected = softmax(scores), wanted.softmax(-1)
    torch.testing.assert_close(found, expected)
    assert found.shape == scores.shape
    weights = torch.randn(2, 4, 6, keys).to(dtype)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(scores.grad, wanted.grad)


class Softmax(nn.Module):
    def forward(self, scores: Tensor) -> Tensor:
        return softmax(scores)


def test_an_exported_softmax_takes_any_length() -> None:
    """Guards the ONNX export: the padding would fix the number of source positions to at most 15."""
    sizes = {"scores": {1: torch.export.Dim("source", max=1024)}}
    exported = torch.export.export(Softmax(), (torch.randn(2, 5),), dynamic_shapes=sizes, strict=True).module()
    for length in (3, 70):
        scores = torch.randn(2, length)
        torch.testing.assert_close(exported(scores), scores.softmax(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.0001, 0.99999])
def test_dropout_drops_its_share(share: float, dtype: torch.dtype) -> None:
    """Guards the random bits: the right share everywhere, the rest scaled up, and the same mask for the same seed."""
    dropout, count = Dropout(share), 200_003  # not divisible by four
    x = torch.ones(count, dtype=dtype, requires_grad=True)
    seed_everything(3)
    y = dropout(x)
    dropped = (y == 0).float()
    deviation = math.sqrt(share * (1 - share) / count) + 1 / 2**16
    assert float(dropped.mean()) == pytest.approx(share, abs=5 * deviation)
    for part in range(4):  # of each 64-bit word
        assert float(dropped[part::4].mean()) == pytest.approx(share, abs=10 * deviation)
    assert y[y != 0].unique().tolist() == pytest.approx([1 / (1 - share)], rel=1e-2)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # type: ignore[arg-type]
    seed_everything(3)
    assert torch.equal(dropout(x), y)
    assert dropout.eval()(x) is x
