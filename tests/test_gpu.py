"""What only a CUDA device can show; `pytest -m gpu` on a machine that has one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import train
from config import PAD, Config, ModelConfig
from model import Transformer
from translator import Translator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_cuda_computes_what_a_cpu_does() -> None:
    """Guards the fused attention, which a CPU never runs: logits and gradients, padding included."""
    torch.manual_seed(0)
    settings = ModelConfig(d_model=64, n_heads=4, encoder_layers=2, decoder_layers=2, d_ff=128, dropout=0.0)
    model = Transformer(settings, 30, 30)
    source, target = (torch.randint(4, 30, (3, 9)) for _ in range(2))
    source[1, 5:] = target[2, 4:] = PAD
    results = []
    for device in ("cpu", "cuda"):
        model = model.to(device)
        model.zero_grad()
        logits = model(source.to(device), target.to(device))
        logits.square().mean().backward()
        gradients = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
        results.append([logits.detach().cpu(), *gradients])
    for on_cpu, on_cuda in zip(*results, strict=True):
        torch.testing.assert_close(on_cuda, on_cpu, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_trains_and_translates_on_cuda(tiny: Callable[..., Config], precision: str, compiled: bool) -> None:
    """Guards every precision, with and without compilation, from the first update to a translation on a CPU."""
    config = tiny(
        training__device="cuda", training__precision=precision, training__compile=compiled, training__max_epochs=20,
        training__lr=0.003, training__warmup_steps=50, training__validate_every=100,
    )  # fmt: skip
    assert train.main(config) == 0
    run = Path(config.run.dir) / config.run.name
    on_cpu, on_cuda = (Translator(run, device).translate(["the cat sees the dog."]) for device in ("cpu", "cuda"))
    assert on_cpu == on_cuda
