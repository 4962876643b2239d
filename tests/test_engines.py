"""Each engine computes the same function as its model, within the digits of its precision."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from conftest import HANG
from dragoman import train
from dragoman.__main__ import run as run_command
from dragoman.architectures.build import build_model
from dragoman.architectures.ensemble import Ensemble
from dragoman.corpora import preparation
from dragoman.errors import DeviceError
from dragoman.settings import PAD, Config, DecodingConfig, ModelConfig
from dragoman.training import validation
from dragoman.training.batches import training_batches
from dragoman.translation import batch_search, engines
from dragoman.translation.engines import (
    EncoderDecoderEngine,
    Precision,
    choose_weights,
    int8_is_exact,
    make_engine,
    product,
)
from dragoman.translation.search import read_off, search
from dragoman.translation.translator import Translator

SMALL = ModelConfig(d_model=32, n_heads=4, encoder_layers=2, decoder_layers=3, d_ff=64, dropout=0.1, upsampling=3)
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, PAD, PAD], [7, 3, PAD, PAD, PAD]])


BYTES = pytest.mark.skipif(not int8_is_exact(), reason="this CPU does not multiply bytes exactly")


def model(seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    made = build_model(replace(SMALL, **changes), 12, 12)
    for parameter in made.parameters():  # new biases are zero and gains one, which would hide errors
        nn.init.normal_(parameter, std=0.3)
    return made.eval()


MODERN = {
    "positions": "rotary", "kv_heads": 2, "activation": "swiglu", "norm_kind": "rms", "attention_bias": False,
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {}, "post": {"norm": "post"}, "no-positions": {"positions": "none"}, "tied": {"tie": "all"},
    "one-head": {"n_heads": 1}, "learned": {"positions": "learned"}, "rotary": {"positions": "rotary"},
    "gelu": {"activation": "gelu"}, "swiglu": {"activation": "swiglu"}, "rms": {"norm_kind": "rms"},
    "grouped": {"kv_heads": 2}, "one-for-all": {"kv_heads": 1}, "no-bias": {"attention_bias": False},
    "modern": MODERN, "modern-post": MODERN | {"norm": "post"},
}  # fmt: skip
each_shape = pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
each_precision = pytest.mark.parametrize(
    ("precision", "digits"), [("float32", 1e-5), ("bfloat16", 0.03), pytest.param("int8", 0.06, marks=BYTES)]
)


@each_precision
@each_shape
@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
@pytest.mark.parametrize("width", [1, 3])
def test_steps_equal_the_model(
    changes: dict[str, Any], architecture: str, width: int, precision: Precision, digits: float
) -> None:
    """Guards joined projections, norms before or after, masks, hypotheses that share a source, and sentences that
    leave the batch."""
    plain = model(architecture=architecture, **changes)
    ours: Any = make_engine(plain, precision)
    with torch.inference_mode():
        states: list[Any] = [each.start(SOURCE) for each in (plain, ours)]
        tokens = torch.full((3,), 2)
        for step in range(6):
            steps = [each.step(tokens, state) for each, state in zip((plain, ours), states, strict=True)]
            states = [state for _, state in steps]
            expected, found = steps[0][0], steps[1][0]
            assert (found - expected).norm() < digits * expected.norm()
            tokens = torch.randint(4, 12, (len(tokens),))
            if step == 0:  # each sentence continues as several hypotheses
                index = torch.arange(3).repeat_interleave(width)
                states, tokens = [state.select(index, None) for state in states], tokens[index]
            if step == 3:  # the second sentence leaves, and the others swap
                index = torch.cat((torch.arange(2 * width, 3 * width), torch.arange(width)))
                states = [state.select(index, torch.tensor([2, 0])) for state in states]
                tokens = tokens[index]


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_a_source_is_read_in_another_precision(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the precision of each part: auto may read a source in one and write a translation in another."""
    plain = model(architecture=architecture)
    reader, writer = make_engine(plain, "bfloat16"), make_engine(plain, "float32")
    monkeypatch.setattr(
        engines, "choose_weights", lambda *given: "bfloat16" if given[-1] == engines.READING else "float32"
    )
    mixed: Any = make_engine(plain)
    tokens = torch.tensor([2, 2, 2])
    with torch.inference_mode():
        expected: Any = reader.start(SOURCE)  # type: ignore[union-attr]
        found = mixed.start(SOURCE)
        torch.testing.assert_close((found.memory, found.past), (expected.memory, expected.past), rtol=0, atol=0)
        exact = mixed.step(tokens, found)[0], writer.step(tokens, found)[0]  # type: ignore[union-attr]
    torch.testing.assert_close(*exact, rtol=0, atol=0)


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_grouped_heads_in_another_memory_layout(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards GPUs, whose fused attention returns its result with another memory layout."""
    plain, fused = model(architecture=architecture, kv_heads=2), nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        nn.functional,
        "scaled_dot_product_attention",
        lambda *inputs: fused(*inputs).transpose(1, 2).contiguous().transpose(1, 2),
    )
    ours: Any = make_engine(plain, "float32")
    tokens = torch.tensor([2, 2, 2])
    with torch.inference_mode():
        expected, found = (each.step(tokens, each.start(SOURCE))[0] for each in (plain, ours))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@each_precision
@each_shape
def test_places_equal_the_model(changes: dict[str, Any], precision: Precision, digits: float) -> None:
    """Guards the encoder-only engine: upsampling, its mask, and its positions."""
    plain = model(architecture="encoder-only", **changes)
    ours: Any = make_engine(plain, precision)
    with torch.inference_mode():
        expected, found = plain.places(SOURCE), ours.places(SOURCE)
    assert ours.lengths(SOURCE).tolist() == [15, 9, 6]
    for a, b, length in zip(expected, found, (15, 9, 6), strict=True):
        assert (a[:length] - b[:length]).norm() < digits * a[:length].norm()


@pytest.mark.parametrize(("precision", "digits"), [("bfloat16", 0.02), pytest.param("int8", 0.03, marks=BYTES)])
def test_products_in_fewer_bits_are_close(precision: Precision, digits: float) -> None:
    """Guards the scales: each row of the weights has its own, and the bias is not rounded."""
    torch.manual_seed(0)
    weight = torch.randn(70, 64) * torch.logspace(-3, 3, 70)[:, None]
    weight[5] = 0
    for bias in (None, torch.randn(70)):
        apply = product(weight, bias, precision)
        x = torch.randn(3, 5, 64)
        exact = torch.nn.functional.linear(x, weight, bias)
        errors = (apply(x) - exact).flatten(0, 1).norm(dim=0) / exact.flatten(0, 1).norm(dim=0).clamp(min=1e-9)
        assert errors.max() < digits
        x[1, 2] = 0
        assert torch.equal(apply(x)[1, 2], torch.zeros(70) if bias is None else bias.to(exact.dtype)) or digits < 0.03
        assert apply(x).dtype == torch.float32


def test_one_column_is_not_int8() -> None:
    """Guards a feed-forward block of width 1, where torch's int8 product would read outside its memory."""
    weight, x = torch.randn(6, 1), torch.randn(4, 1)
    torch.testing.assert_close(product(weight, None, "int8")(x), x @ weight.t())


@pytest.mark.parametrize(
    "architectures",
    [("encoder-decoder", "encoder-decoder"), ("decoder-only", "decoder-only"), ("encoder-decoder", "decoder-only")],
)
def test_ensemble_of_engines_equals_ensemble_of_models(architectures: tuple[str, str]) -> None:
    """Guards the mean of probabilities, not of logits, and members with different kinds of state."""
    both = Ensemble([model(seed, architecture=name) for seed, name in enumerate(architectures, 1)])
    made: Any = make_engine(both, "float32")
    assert isinstance(made, Ensemble)
    settings = DecodingConfig(beam_size=3, n_best=2)
    found, expected = (search(each, SOURCE, [8] * 3, settings) for each in (made, both))
    assert [[h.tokens for h in best] for best in found] == [[h.tokens for h in best] for best in expected]
    for a, b in zip(found, expected, strict=True):
        assert [h.score for h in a] == pytest.approx([h.score for h in b], rel=1e-4)


def test_ensemble_of_encoder_only_engines_equals_ensemble_of_models() -> None:
    """Guards the mean of probabilities at each place."""
    members = [model(seed, architecture="encoder-only", decoder_layers=seed) for seed in (1, 2)]
    both = Ensemble(members)
    made: Any = make_engine(both, "float32")
    with torch.inference_mode():
        mean = torch.stack([each.places(SOURCE).softmax(-1) for each in members]).mean(0)
        for each in (both, made):
            real = torch.arange(15) < each.lengths(SOURCE)[:, None]
            torch.testing.assert_close(each.places(SOURCE).exp()[real], mean[real], rtol=1e-4, atol=1e-6)
    found, expected = (read_off(each, SOURCE, [20] * 3) for each in (made, both))
    assert [h.tokens for [h] in found] == [h.tokens for [h] in expected]
    assert any(h.tokens for [h] in found)


def test_choice_of_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards int8 where it would fail or translate wrongly: on a GPU, or on a CPU that saturates sums of bytes."""
    cpu, many = torch.device("cpu"), 5_000_000
    monkeypatch.setattr(engines, "fastest", lambda rows: f"fastest for {rows}")
    assert choose_weights("auto", cpu, many, 32) == "fastest for 32"
    assert choose_weights("auto", cpu, 1_000_000, 32) == "float32"
    for has in (True, False):
        monkeypatch.setattr(engines, "has_bfloat16", lambda _, has=has: has)
        assert choose_weights("auto", torch.device("cuda"), many, 32) == ("bfloat16" if has else "float32")
    assert choose_weights("auto", torch.device("mps"), many, 32) == "float32"
    assert choose_weights("float32", cpu, many, 32) == "float32"
    with pytest.raises(DeviceError, match=r"decoding.precision int8 .* cuda"):
        choose_weights("int8", torch.device("cuda"), many, 32)
    monkeypatch.setattr(engines, "int8_is_exact", lambda: False)
    with pytest.raises(DeviceError, match="does not multiply bytes exactly"):
        choose_weights("int8", cpu, many, 32)


@pytest.mark.parametrize(
    ("int8", "bfloat16", "exact", "expected"),
    [
        (1.0, 1.5, True, "int8"),
        (1.0, 1.1, True, "bfloat16"),  # int8 is faster, but by too little
        (1.0, 1.5, False, "bfloat16"),
        (3.0, 1.9, True, "float32"),
        (1.5, 9.0, True, "int8"),  # a CPU without instructions for bfloat16
    ],
)
def test_the_fastest_precision(
    int8: float, bfloat16: float, exact: bool, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Guards int8 where bfloat16 is as fast, and both where they are slow or wrong."""
    times = {"int8": int8, "bfloat16": bfloat16, "float32": 2.0}
    monkeypatch.setattr(engines, "seconds", lambda precision, _: times[precision])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(engines, "int8_is_exact", lambda: exact)
    assert engines.fastest(32) == expected
    monkeypatch.setattr(engines, "seconds", None)
    assert engines.fastest(32) == expected  # remembered


def test_threads_and_batches_do_not_change_translations(tiny: Callable[..., Config]) -> None:
    """Guards batches that threads finish in any order, and the number of threads afterwards."""
    config = tiny()
    assert run_command("train", config) == 0
    run = Path(config.run.dir) / config.run.name
    texts = [source for source, _ in preparation.load(run / "data").test] * 4
    translator, threads, alive = Translator(run, "cpu"), torch.get_num_threads(), threading.active_count()
    try:
        torch.set_num_threads(3)
        progress: list[int] = []
        found = [translation.text for translation in translator.explain(texts, advance=progress.append)]
        assert torch.get_num_threads() == 3
        assert sum(progress) == len(texts)
        assert len(progress) > 3, "there was only one batch"

        def stop(done: int) -> None:
            if done:
                raise InterruptedError

        with pytest.raises(InterruptedError) as raised:  # it keeps every frame alive
            translator.explain(texts, advance=stop)
        assert raised
        assert torch.get_num_threads() == 3
        assert threading.active_count() == alive
        torch.set_num_threads(1)
        assert found == translator.translate(texts) == [translator.translate([text])[0] for text in texts]
    finally:
        torch.set_num_threads(threads)


def test_abandoned_search_ends_at_its_next_step(tiny: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards Ctrl-C: otherwise the threads would finish their batches, which can take minutes."""
    config = tiny()
    assert run_command("train", config) == 0
    translator, threads = Translator(Path(config.run.dir) / config.run.name, "cpu"), torch.get_num_threads()
    steps, step, given_up = [], EncoderDecoderEngine.step, threading.Event()

    def counted(self: EncoderDecoderEngine, tokens: torch.Tensor, state: Any) -> Any:
        if len(translations) == 1:
            given_up.wait(HANG)
            steps.append(len(tokens))
        logits, state = step(self, tokens, state)
        return logits.index_fill(1, torch.tensor([3]), -math.inf), state  # no sentence ever ends

    translations: list[int] = []

    def stop(done: int) -> None:
        if done:
            translations.append(done)
            raise KeyboardInterrupt

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *arguments: Any, **options: Any) -> None:
            given_up.set()
            super().shutdown(*arguments, **options)

    monkeypatch.setattr(batch_search, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(EncoderDecoderEngine, "step", counted)
    texts = ["the cat sees the dog."] * 30 + ["the cat sees the dog and the cat and the dog."] * 30
    try:
        torch.set_num_threads(3)
        with pytest.raises(KeyboardInterrupt):
            translator.explain(texts, advance=stop)
    finally:
        torch.set_num_threads(threads)
    assert len(steps) <= 3, "each thread may finish its current step"


@pytest.mark.parametrize("precision", ["auto", "bfloat16", pytest.param("int8", marks=BYTES)])
def test_translation_in_any_precision(tiny: Callable[..., Config], precision: str) -> None:
    """Guards the setting from config to search, with beams and samples."""
    config = tiny(decoding__precision=precision)
    assert run_command("train", config) == 0
    translator = Translator(Path(config.run.dir) / config.run.name, "cpu")
    for changes in ({}, {"beam_size": 4, "n_best": 2}, {"sample": True}):
        assert all(translator.with_decoding(**changes).translate(["the cat sees the dog."] * 20))


def test_validation_uses_the_current_weights(tiny: Callable[..., Config]) -> None:
    """Guards validation during training: an engine kept from the first one would have old weights."""
    config = tiny()
    directory = Path(config.run.dir) / config.run.name
    data = preparation.prepare_data(config, directory / "data", lambda _: None)
    training = train.build_state(config, directory, data, torch.device("cpu"), torch.float32)
    texts = [source for source, _ in data.validation]
    translator = validation.translator_around(training, training.model)
    before = translator.translate(texts)
    updates = training_batches(training)
    for _ in range(40):
        train.train_step(training, next(updates))
    assert translator.translate(texts) != before
