"""Training, validation and search on a fake GPU find what a CPU finds, and wait for the device only where they must.

`test_fake_gpu.py` runs this in a process of its own, for the reason that `fake_gpu` gives. By hand:

    python -m pytest tests/on_fake_gpu.py
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fake_gpu
from conftest import tiny_config
from dragoman import train
from dragoman.architectures.build import build_model
from dragoman.architectures.ensemble import Ensemble
from dragoman.architectures.loss import Loss, batch_loss
from dragoman.dataset import Batch, batch_plan, make_batch, source_batch
from dragoman.evaluation.validation_loss import mean_loss
from dragoman.model import Embedding, sinusoid
from dragoman.settings import DecodingConfig, ModelConfig
from dragoman.training import gradients
from dragoman.training.state import TrainingState
from dragoman.translation.constraints import Constraints
from dragoman.translation.search import best_paths, search
from dragoman.translation.translator import Translator
from fake_gpu import FakeGpu
from faults.harness import training_of

ARCHITECTURES = ["encoder-decoder", "decoder-only", "encoder-only"]
NO_DROPOUT = {"model__dropout": 0, "model__attention_dropout": 0, "model__activation_dropout": 0}
LATER = {  # than the paper
    "model__positions": "rotary", "model__kv_heads": 1, "model__activation": "swiglu", "model__norm_kind": "rms",
    "model__attention_bias": False,
}  # fmt: skip
TRAININGS: dict[str, dict[str, Any]] = {
    "the default": {},
    "as in the paper": {"model__norm": "post", "model__tie": "output"},
    "later parts": LATER,
    "learned positions, Muon": {"model__positions": "learned", "training__optimizer": "muon"},
    "decoder-only": {"model__architecture": "decoder-only", **LATER},
    "encoder-only": {"model__architecture": "encoder-only"},
    "bfloat16": {"dtype": torch.bfloat16},
    "bfloat16, later parts": {"dtype": torch.bfloat16, **LATER},
}
SEARCHES: list[dict[str, Any]] = [
    {},
    {"beam_size": 4, "n_best": 2, "no_repeat_ngram": 2},
    {"sample": True, "n_best": 2, "top_k": 9, "top_p": 0.9},
]


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    fake_gpu.install()


def make_batches(state: TrainingState) -> list[Batch]:
    """Two batches with padding."""
    return [make_batch(state.data.train, rows) for rows in batch_plan(*state.data.train.lengths, 150, 0, 0)[:2]]


def three_updates(
    folder: Path, device: str, dtype: torch.dtype = torch.float32, **changes: Any
) -> tuple[TrainingState, dict[str, Tensor], float]:
    """A training after three updates, the gradients of the first, and the validation loss."""
    state = training_of(tiny_config(folder, **{**NO_DROPOUT, **changes}), device, dtype)
    batches = make_batches(state)
    gradients.accumulate(state, batches, 1, sum(batch.tokens for batch in batches))
    first = {name: p.grad.cpu() for name, p in state.model.named_parameters() if p.grad is not None}
    state.optimizer.zero_grad()
    for _ in range(3):
        train.train_step(state, batches)
    return state, first, mean_loss(state.model, state.validation, 150, dtype)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(changes, id=name, marks=[pytest.mark.slow] * (name in ("later parts", "bfloat16")))
        for name, changes in TRAININGS.items()
    ],
)
def test_training(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Guards the paths of a GPU against other gradients than a CPU's, and against tensors left on the CPU."""
    _, expected, expected_loss = three_updates(tmp_path, "cpu", **changes)
    with FakeGpu() as gpu:
        state, found, loss = three_updates(tmp_path, gpu.name, **changes)
        size = max(each.abs().max().item() for each in expected.values())
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=size * (0.02 if "dtype" in changes else 1e-5))
        assert loss == pytest.approx(expected_loss, rel=2e-3)
        assert all(each.device.type == gpu.name for each in state.model.state_dict().values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_waiting(tmp_path: Path, architecture: str, dtype: torch.dtype) -> None:
    """Guards the single wait of an update and of a validation: a GPU idles during each."""
    with FakeGpu() as gpu:
        state = training_of(tiny_config(tmp_path, model__architecture=architecture), gpu.name, dtype)
        for _ in range(2):
            gpu.forget()
            train.train_step(state, make_batches(state))
            assert len(gpu.waits) == 1
            assert gpu.uploads == 2 * 3, "source, target_in and target_out"
        gpu.forget()
        mean_loss(state.model, state.validation, 30)
        assert len(gpu.waits) == 1
        assert gpu.uploads > 3, "several batches"


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_search(architecture: str) -> None:
    """Guards every kind of search, with every rule, by models and ensembles, and how often each step waits."""
    model, source = model_and_source(architecture)
    rules = Constraints([7, 8, 5], [0, 1, 3], [[5], [], [6, 7]], [[9], [], [6]])

    def run(source: Tensor, gpu: FakeGpu | None = None) -> list[Any]:
        found = []
        for each in SEARCHES:
            for contender in (model,) if each else (model, Ensemble([model, model])):
                hypotheses = search(contender, source, DecodingConfig(**each), rules)
                found.append([[(h.tokens, pytest.approx(h.score, rel=1e-3)) for h in some] for some in hypotheses])
                if gpu:
                    steps = max(len(h.log_probs) for some in hypotheses for h in some)
                    assert len(gpu.waits) <= 5 * steps + 2
                    gpu.forget()
        return found

    expected = run(source)
    with FakeGpu() as gpu:
        model.to(gpu.name)
        assert run(source.to(gpu.name), gpu) == expected


def test_reading_off() -> None:
    """Guards the rules of a model that writes all words at once."""
    model, source = model_and_source("encoder-only")

    def run(source: Tensor) -> list[list[int]]:
        found = best_paths(model, source, DecodingConfig(), Constraints([8, 9, 7], [0, 3, 3], absent=[[5], [], [6, 7]]))
        return [best[0].tokens for best in found]

    expected = run(source)
    with FakeGpu() as gpu:
        model.to(gpu.name)
        assert run(source.to(gpu.name)) == expected


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_translator(tmp_path: Path, architecture: str) -> None:
    """Guards what validation and translation do around the search: alignment, scores, attention, embeddings."""
    state = training_of(tiny_config(tmp_path, model__architecture=architecture))
    pairs = state.data.validation[:6]

    def run() -> tuple[list[str], list[Tensor]]:
        translator = Translator.of_model(state.model, state.data, state.config, state.dtype)
        translations = translator.with_alignments(translator.explain([source for source, _ in pairs]))
        candidates = [(each.sentences[0], each.sentences[0].candidates[0]) for each in translations]
        scores = [each.score for each in translator.score([(source, "il gatto.") for source, _ in pairs])]
        alignments = [torch.tensor(candidate.weights) for _, candidate in candidates]
        tensors = [torch.tensor(scores), *alignments, translator.attention(*candidates[0])]
        return [each.text for each in translations], [*tensors, translator.embed([source for source, _ in pairs])]

    texts, tensors = run()
    with FakeGpu() as gpu:
        state.model.to(gpu.name)
        found = run()
    assert found[0] == texts
    torch.testing.assert_close(found[1], tensors, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sentences_longer_than_the_table_of_positions(architecture: str) -> None:
    """Guards the table that grows: on the device, and in the inference mode of a search."""
    model, _ = model_and_source(architecture)
    source = torch.full((1, 300), 7)
    expected = model.encode(source)
    model, _ = model_and_source(architecture)
    with FakeGpu() as gpu:
        model.to(gpu.name)
        torch.testing.assert_close(model.encode(source.to(gpu.name)).cpu(), expected, rtol=1e-4, atol=1e-4)


def model_and_source(architecture: str) -> tuple[Any, Tensor]:
    """A model with random weights, and three sentences."""
    torch.manual_seed(0)
    settings = ModelConfig(d_model=32, n_heads=2, encoder_layers=1, decoder_layers=1, d_ff=64, dropout=0.0)
    settings = replace(settings, architecture=architecture)  # type: ignore[arg-type]
    return build_model(settings, 30, 30).eval(), source_batch([[5, 6, 7], [8, 9], [10, 11, 12, 13]])


def test_a_tensor_on_the_cpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the tests above: they would pass if the fake GPU took tensors of the CPU."""
    monkeypatch.setattr(Embedding, "_rows", lambda self, start, length: sinusoid(length, 32))
    with FakeGpu() as gpu:
        state = training_of(tiny_config(tmp_path), gpu.name)
        with pytest.raises(RuntimeError, match="same device"):
            train.train_step(state, make_batches(state))


def test_a_hidden_wait_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards `test_waiting`: it would pass if nothing were counted."""

    def with_wait(*arguments: Any) -> Loss:
        loss = batch_loss(*arguments)
        assert loss.plain.item() > 0
        return loss

    monkeypatch.setattr(train, "batch_loss", with_wait)
    with FakeGpu() as gpu:
        state = training_of(tiny_config(tmp_path), gpu.name)
        gpu.forget()
        train.train_step(state, make_batches(state))
    assert len(gpu.waits) == 1 + 2, "one for each batch, and that of the update"
