"""Tests that need a CUDA device: run `pytest -m gpu` on a machine that has one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman import train
from dragoman.__main__ import run as run_command
from dragoman.architectures import loss as loss_module
from dragoman.architectures.build import build_model
from dragoman.architectures.loss import loss_sums
from dragoman.dataset import masks
from dragoman.settings import PAD, Config, ModelConfig
from dragoman.training import gradients
from dragoman.training.batches import training_batches
from dragoman.translation.translator import Translator
from faults.harness import training_of

Tiny = Callable[..., Config]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only", "encoder-only"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "learned", "activation": "gelu"},
        {"positions": "rotary", "kv_heads": 2, "activation": "swiglu", "norm_kind": "rms", "attention_bias": False},
    ],
)
def test_cuda_computes_what_a_cpu_does(architecture: str, changes: dict[str, Any]) -> None:
    """Guards logits and gradients, with padding."""
    torch.manual_seed(0)
    settings = ModelConfig(d_model=64, n_heads=4, encoder_layers=2, decoder_layers=2, d_ff=128, dropout=0.0)
    model = build_model(replace(settings, architecture=architecture, **changes), 30, 30)  # type: ignore[arg-type]
    source, target = (torch.randint(4, 30, (3, 9)) for _ in range(2))
    source[1, 5:] = target[2, 4:] = PAD
    results = []
    for device in ("cpu", "cuda"):
        model = model.to(device)
        model.zero_grad()
        given = source.to(device), target.to(device)
        logits = model(*given, *masks(*given))
        logits.square().mean().backward()
        # Copied, because `to` moves a gradient in place, and with it every reference to it.
        gradients = [p.grad.cpu().clone() for p in model.parameters() if p.grad is not None]
        results.append([logits.detach().cpu(), *gradients])
    for on_cpu, on_cuda in zip(*results, strict=True):
        torch.testing.assert_close(on_cuda, on_cpu, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("architecture", ["decoder-only", "encoder-only"])
def test_other_architectures_train_and_translate_on_cuda(tiny: Tiny, architecture: str) -> None:
    """Guards CTC, learned positions and grouped heads on a GPU."""
    config = tiny(
        model__architecture=architecture, model__positions="learned", model__kv_heads=1, training__device="cuda",
        training__precision="bfloat16", training__max_epochs=40, training__validate_every=100,
    )  # fmt: skip
    assert run_command("train", config) == 0
    run = Path(config.run.dir) / config.run.name
    on_cpu, on_cuda = (Translator(run, device).translate(["the cat sees the dog."]) for device in ("cpu", "cuda"))
    assert on_cpu == on_cuda


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_trains_and_translates_on_cuda(tiny: Tiny, precision: str, compiled: bool) -> None:
    """Guards every precision, with and without compilation, from the first update to a translation on a CPU."""
    config = tiny(
        training__device="cuda", training__precision=precision, training__compile=compiled, training__max_epochs=20,
        training__lr=0.003, training__warmup_steps=50, training__validate_every=100,
    )  # fmt: skip
    assert run_command("train", config) == 0
    run = Path(config.run.dir) / config.run.name
    on_cpu, on_cuda = (Translator(run, device).translate(["the cat sees the dog."]) for device in ("cpu", "cuda"))
    assert on_cpu == on_cuda


@pytest.mark.parametrize(
    "settings",
    [
        {"training__optimizer": "muon"},
        {"training__placeholders": 0.05},
    ],
    ids=["muon", "placeholders"],
)
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_recipes_train_on_cuda(tiny: Tiny, settings: dict[str, object], precision: str) -> None:
    """Guards each part of a recipe with float16's scaler, which unscales and skips for every optimizer."""
    config = tiny(
        training__device="cuda", training__precision=precision, training__max_epochs=20, training__lr=0.003,
        training__warmup_steps=50, training__validate_every=100, **settings,
    )  # fmt: skip
    assert run_command("train", config) == 0
    assert Translator(Path(config.run.dir) / config.run.name, "cpu").translate(["the cat sees the dog."])[0]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_on_cuda_is_that_on_a_cpu(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the chunked loss: both sums and both gradients, over several chunks, with padding."""
    for name in ("CHUNK", "GPU_CHUNK"):
        monkeypatch.setattr(loss_module, name, 300)  # 6 tokens of 50 words
    generator = torch.Generator().manual_seed(0)
    states, weight = (torch.randn(*shape, generator=generator) for shape in ((4, 7, 16), (50, 16)))
    target = torch.randint(4, 50, (4, 7), generator=generator)
    target[1, 5:] = target[3, 2:] = PAD
    results = []
    for device in ("cpu", "cuda"):
        x, projection = (tensor.clone().to(device).requires_grad_() for tensor in (states, weight))
        loss = loss_sums(x, projection, target.to(device), smoothing)
        loss.smoothed.backward()
        assert x.grad is not None
        assert projection.grad is not None
        results.append([tensor.detach().cpu() for tensor in (*loss, x.grad, projection.grad)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_prefetched_batches_are_pinned_and_the_same(tiny: Tiny) -> None:
    """Guards the thread and the copy: the same batches as on a CPU, and `progress` no further than they are."""
    config = tiny(training__placeholders=0.5)
    on_cpu, on_cuda = (training_of(config, device) for device in ("cpu", "cuda"))
    with closing(training_batches(on_cuda)) as updates:
        for _, expected, found in zip(range(40), training_batches(on_cpu), updates, strict=False):
            for one, other in zip(expected, found, strict=True):
                for side in ("source", "target_in", "target_out"):
                    ids = getattr(other, side)
                    assert ids.is_pinned()
                    assert torch.equal(ids, getattr(one, side))
                    assert torch.equal(ids.to("cuda", non_blocking=True).cpu(), ids)
            assert on_cuda.progress == on_cpu.progress


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_never_wait_for_the_device(tiny: Tiny, dtype: torch.dtype) -> None:
    """Guards the single synchronisation of an update: the next batch is queued while one is computed."""
    training = training_of(tiny(), "cuda", dtype)
    with closing(training_batches(training)) as updates:
        train.train_step(training, next(updates))  # chooses kernels, and allocates the moments
        batches = next(updates)
        torch.cuda.set_sync_debug_mode("error")
        try:
            gradients.accumulate(training, batches, 2, sum(batch.tokens for batch in batches))
        finally:
            torch.cuda.set_sync_debug_mode("default")
    training.optimizer.zero_grad()
