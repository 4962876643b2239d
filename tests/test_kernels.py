"""The CPU kernels compared with their plain equivalents."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dragoman import kernels
from dragoman.architectures.build import build_model
from dragoman.dataset import masks
from dragoman.device import seed_everything
from dragoman.kernels import Dropout, attend, linear, relu_block, softmax
from dragoman.settings import ModelConfig


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


def kept(shape: tuple[int, ...], share: float) -> Tensor:
    """The factors, 0 or 1 / (1 - share), that a kernel draws first after `seed_everything(5)`."""
    seed_everything(5)
    return kernels._draw(torch.Size(shape), share).double() / (1 - share)


def compare(found: Tensor, wanted: Tensor, given: list[Tensor], dtype: torch.dtype) -> None:
    """Compare two results and their gradients by `given`; all gradients have the format of what they belong to."""
    torch.manual_seed(1)
    weights = torch.randn(found.shape, dtype=torch.float64)
    gradients = [torch.autograd.grad((y.double() * weights).sum(), given) for y in (found, wanted)]
    for a, b in zip((found, *gradients[0]), (wanted, *gradients[1]), strict=True):
        error = 0.02 if dtype == torch.bfloat16 else 1e-5 if dtype == torch.float32 else 1e-12
        assert (a.double() - b.double()).norm() <= error * b.double().norm()
    assert [each.dtype for each in gradients[0]] == [each.dtype for each in given]


DTYPES = [torch.float64, torch.float32, torch.bfloat16]  # bfloat16: by autocast


def autocast(dtype: torch.dtype) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=torch.float32 if dtype == torch.bfloat16 else dtype).requires_grad_()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_of_a_residual_equals_the_plain_sum(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the hand-written gradient: the same values must be dropped in it, with the same scale."""
    monkeypatch.setattr(kernels, "applies", lambda x: True)
    torch.manual_seed(0)
    x, y = random(3, 5, 7, dtype=dtype), random(3, 5, 7, dtype=dtype)
    factors = kept((3, 5, 7), 0.3)
    seed_everything(5)
    with autocast(dtype):
        short = y.to(torch.bfloat16) if dtype == torch.bfloat16 else y
        compare(Dropout(0.3).added(x, short), x + y * factors.to(x.dtype), [x, y], dtype)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_joined_layers_equal_single_ones(dtype: torch.dtype, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the order of the joined rows, the biases, and the number format of the gradients."""
    monkeypatch.setattr(kernels, "applies", lambda x: True)
    torch.manual_seed(0)
    layers = [nn.Linear(6, width, bias, dtype=random(1, dtype=dtype).dtype) for width in (4, 2, 5)]
    x = random(2, 3, 6, dtype=dtype)
    given = [x, *(p for layer in layers for p in layer.parameters())]
    with autocast(dtype):
        found, wanted = linear(x, *layers), [layer(x) for layer in layers]
    assert [each.dtype for each in found] == [each.dtype for each in wanted]
    compare(torch.cat(found, -1), torch.cat(wanted, -1), given, dtype)


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_feed_forward_block_equals_its_parts(dtype: torch.dtype, share: float) -> None:
    """Guards the gradient of dropped and of negative hidden units, and the scale on both sides."""
    torch.manual_seed(0)
    first, second = (nn.Linear(*sizes, dtype=random(1, dtype=dtype).dtype) for sizes in ((6, 9), (9, 6)))
    x = random(2, 3, 6, dtype=dtype)
    factors = kept((2, 3, 9), share) if share else torch.ones(())
    seed_everything(5)
    with autocast(dtype):
        found = relu_block(x, first, second, share)
        wanted = second(first(x).relu() * factors.to(x.dtype))
    compare(found, wanted, [x, *first.parameters(), *second.parameters()], dtype)


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("seen", ["everything", "no padding", "the past"])
@pytest.mark.parametrize("keys", [3, 8, 33])
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_equals_the_plain_formula(dtype: torch.dtype, keys: int, seen: str, share: float) -> None:
    """Guards the widened rows (narrower, as wide as and wider than a register), both forms of masks, the order of the
    heads, and the hand-written gradients."""
    torch.manual_seed(0)
    queries = random(2, 4, keys, 2, dtype=dtype)  # split into heads like a projection, which is not contiguous
    keys_, values = random(2, 4, keys, 2, dtype=dtype), random(2, 4, keys, 2, dtype=dtype)
    mask = torch.ones(2, 1, 1, keys, dtype=torch.bool)
    mask[1, :, :, 2:] = False
    mask = {"everything": None, "no padding": mask, "the past": torch.ones(keys, keys, dtype=torch.bool).tril()}[seen]
    factors = kept((8, keys, keys), share).view(2, 4, keys, keys) if share else torch.ones(())
    given = [queries, keys_, values]
    q, k, v = (each.transpose(1, 2).contiguous().transpose(1, 2) for each in given)
    scores = q @ k.transpose(2, 3) / math.sqrt(2)
    scores = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    wanted = ((scores.softmax(-1) * factors.to(q.dtype)) @ v).transpose(1, 2).flatten(2)
    short = [each.bfloat16() if dtype == torch.bfloat16 else each for each in (q, k, v)]
    seed_everything(5)
    with autocast(dtype):
        compare(attend(*short, mask, share), wanted, given, dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only", "encoder-only"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post", "tie": "all", "activation": "gelu", "attention_bias": False},
        {"activation": "swiglu", "norm_kind": "rms", "positions": "rotary", "kv_heads": 2},
    ],
    ids=["plain", "post-norm", "modern"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_learns_the_same_without_the_kernels(
    dtype: torch.dtype, changes: dict[str, Any], architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards how the model uses the kernels: every state and every gradient must be those of the plain forms."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "d_model": 16,
        "d_ff": 24,
        "n_heads": 4,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "dropout": 0.0,
    }
    sizes |= {"architecture": architecture}
    model = build_model(ModelConfig(**sizes, **changes), 12, 12)
    source, target = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]]), torch.tensor([[2, 5, 6, 9], [2, 8, 0, 0]])
    results = []
    for fast in (True, False):
        monkeypatch.setattr(kernels, "applies", lambda x, fast=fast: fast)
        model.zero_grad()
        with autocast(dtype):
            states = model.states(source, target, *masks(source, target))
        (states.float() * torch.arange(16)).sum().backward()
        found = [states, *(p.grad for p in model.parameters() if p.grad is not None)]
        assert all(each.dtype == torch.float32 for each in found[1:])
        results.append([found[0].flatten().float(), torch.cat([each.flatten() for each in found[1:]])])
    for a, b in zip(*results, strict=True):
        assert (a - b).norm() <= (0.03 if dtype == torch.bfloat16 else 1e-5) * b.norm()


def test_kernels_are_for_learning_in_16_bits() -> None:
    """Guards search and validation, which need the plain forms, and float32, which gains nothing."""
    x = torch.ones(1)
    with autocast(torch.bfloat16):
        assert kernels.applies(x)
        with torch.no_grad():
            assert not kernels.applies(x)
    assert not kernels.applies(x)


@pytest.mark.parametrize("sizes", [(3, 8), (8, 3), (5, 5)])
def test_the_gradient_of_a_large_weight_equals_the_plain_product(
    sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the two transposed forms, whichever side is the narrower one."""
    monkeypatch.setattr(kernels, "LARGE", 1)
    torch.manual_seed(0)
    by_y, x = (torch.randn(7, size, dtype=torch.float64) for size in sizes)
    found = kernels._weight_gradient(by_y, x, torch.float64)
    torch.testing.assert_close(found, by_y.t() @ x)
    assert found.is_contiguous()
