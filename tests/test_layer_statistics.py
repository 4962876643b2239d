"""Layer statistics of models whose state is known, and that taking them changes nothing."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dragoman import device
from dragoman.architectures.build import build_model
from dragoman.dataset import masks
from dragoman.model import Transformer
from dragoman.settings import PAD, ModelConfig
from dragoman.training import layer_statistics
from dragoman.training.layer_statistics import LayerStatistics

SMALL = ModelConfig(d_model=32, n_heads=4, encoder_layers=2, decoder_layers=3, d_ff=64, dropout=0.3)
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, PAD, PAD], [7, 3, PAD, PAD, PAD]])
TARGET = torch.tensor([[2, 5, 9, 7, 4, 4], [2, 8, PAD, PAD, PAD, PAD], [2, 7, 7, PAD, PAD, PAD]])
ARCHITECTURES = ["encoder-decoder", "decoder-only", "encoder-only"]


def model(**changes: Any) -> nn.Module:
    device.seed_everything(0)
    return build_model(replace(SMALL, **changes), 12, 12)


def with_gradients(ours: nn.Module) -> nn.Module:
    (ours(SOURCE, TARGET, *masks(SOURCE, TARGET)) ** 2).mean().backward()
    return ours


def look(ours: nn.Module, source: Tensor = SOURCE, target: Tensor = TARGET) -> dict[str, float]:
    """The figures of an update that changes nothing."""
    watch = LayerStatistics(ours, source, target)
    watch.before_step()
    return watch.after_step()


def norm(tensors: list[Tensor]) -> float:
    return torch.cat([tensor.flatten() for tensor in tensors]).norm().item()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_training_is_the_same_bit_for_bit(architecture: str) -> None:
    """Guards training against side effects: a random number drawn, or a changed mode, gradient or weight."""

    def trained(watched: bool) -> tuple[list[Tensor], Tensor, Tensor]:
        ours = model(architecture=architecture, attention_dropout=0.2)
        watch = LayerStatistics(ours, SOURCE, TARGET)
        optimizer = torch.optim.Adam(ours.parameters(), lr=0.01)
        for step in range(4):
            words = torch.randint(4, 12, (2, 3 + step), generator=torch.Generator().manual_seed(step))
            (ours(words, words, *masks(words, words)) ** 2).mean().backward()
            if watched:
                watch.before_step()
            optimizer.step()
            figures = watch.after_step() if watched else {}
            assert all(math.isfinite(value) for value in figures.values())
            optimizer.zero_grad()
        return list(ours.state_dict().values()), torch.get_rng_state(), device.random_words(8)

    (weights, *numbers), (expected, *wanted) = trained(True), trained(False)
    for one, other in zip([*weights, *numbers], [*expected, *wanted], strict=True):
        assert torch.equal(one, other)


def test_gradients_and_modes_stay_the_same() -> None:
    """Guards what weights do not show: changed gradients, a module switched to training, memory kept alive."""
    ours = with_gradients(model())
    ours.train()
    ours.encoder.layers[0].eval()  # type: ignore[union-attr, index, operator]
    modes = [module.training for module in ours.modules()]
    before = [p.grad.clone() for p in ours.parameters() if p.grad is not None]
    learning: list[bool] = []
    hook = ours.encoder.register_forward_hook(lambda *_: learning.append(torch.is_grad_enabled()))  # type: ignore[operator]
    look(ours)
    hook.remove()
    assert learning == [False]  # else it would keep what a backward pass needs
    assert [module.training for module in ours.modules()] == modes
    for p, gradient in zip((p for p in ours.parameters() if p.grad is not None), before, strict=True):
        assert torch.equal(p.grad, gradient)  # type: ignore[arg-type]


def test_hooks_are_removed() -> None:
    """Guards later updates against the cost of hooks, even if the probe fails."""
    ours = with_gradients(model())
    look(ours)
    watch = LayerStatistics(ours, SOURCE, TARGET)
    watch.before_step()
    watch.source = SOURCE + 1000  # unknown ids
    with pytest.raises(IndexError):
        watch.after_step()
    assert not any(module._forward_hooks for module in ours.modules())
    assert ours.training


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("shape", [{}, {"norm": "post"}, {"positions": "rotary", "norm_kind": "rms", "kv_heads": 2}])
def test_every_layer_has_its_figures(architecture: str, shape: dict[str, Any]) -> None:
    """Guards against a layer, or an architecture, that is left out."""
    ours = with_gradients(model(architecture=architecture, **shape))
    figures = look(ours)
    sides = [("decoder", 3)] if architecture == "decoder-only" else [("encoder", 2), ("decoder", 3)]
    layers = [f"{side} {i + 1}" for side, count in sides for i in range(count)]
    looking = [f"{layer} self" for layer in layers]
    if architecture == "encoder-decoder":
        looking += [f"{layer} cross" for layer in layers if "decoder" in layer]
    normed = layers if shape.get("norm") == "post" else [*layers, *(f"{side} end" for side, _ in sides)]
    expected = {
        "dead_relu": layers, "norm_gain": normed, "norm_bias": [] if "norm_kind" in shape else normed,
        "activation": layers, "gradient": layers, "attention_entropy": looking, "update_to_weight": layers,
    }  # fmt: skip
    assert set(figures) == {f"under the hood/{measure}/{part}" for measure, parts in expected.items() for part in parts}
    assert all(math.isfinite(value) for value in figures.values())


@pytest.mark.parametrize("shape", [{}, {"positions": "rotary", "kv_heads": 1}, {"positions": "learned"}])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_changes_no_figure(architecture: str, shape: dict[str, Any]) -> None:
    """Guards each mean against padding, with the sequence lengths of each architecture."""
    ours = with_gradients(model(architecture=architecture, **shape))
    expected = look(ours)
    for more in ((3, 0), (0, 4), (1, 0), (7, 2)):  # (1, 0): both sides equally long
        padded = [
            nn.functional.pad(ids, (0, count), value=PAD) for ids, count in zip((SOURCE, TARGET), more, strict=True)
        ]
        assert look(ours, *padded) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    # Taking padding for words does change the figures, so the test can fail.
    assert look(ours, *(ids.masked_fill(ids == PAD, 5) for ids in (SOURCE, TARGET))) != pytest.approx(
        expected, rel=1e-4
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_probe_of_several_sentences_is_the_mean_over_their_tokens(architecture: str) -> None:
    """Guards the weights of the means: a sentence counts by its tokens, and a unit is dead if it is so for all."""
    ours = with_gradients(model(architecture=architecture))
    lengths = [(int(s.ne(PAD).sum()), int(t.ne(PAD).sum())) for s, t in zip(SOURCE, TARGET, strict=True)]
    alone = [look(ours, SOURCE[i : i + 1, :s], TARGET[i : i + 1, :t]) for i, (s, t) in enumerate(lengths)]
    positions = {"encoder": [s for s, _ in lengths], "decoder": [t for _, t in lengths]}
    if architecture != "encoder-decoder":
        places = [s + t if architecture == "decoder-only" else s * SMALL.upsampling for s, t in lengths]
        positions["decoder"] = places
    for tag, value in look(ours).items():
        _, measure, part = tag.split("/")
        weights, values = positions[part.split()[0]], [each[tag] for each in alone]
        match measure:
            case "attention_entropy":
                expected = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
            case "activation":
                expected = math.sqrt(sum(w * v * v for w, v in zip(weights, values, strict=True)) / sum(weights))
            case "dead_relu":
                assert value <= min(values)
                continue
            case _:
                expected = values[0]
        assert value == pytest.approx(expected, rel=1e-4), tag


def test_dead_units_are_counted() -> None:
    """Guards the count: a unit that fires once is alive, one that fires on padding alone is dead."""
    ours = with_gradients(model())
    for dead, layer in enumerate(ours.encoder.layers):  # type: ignore[union-attr, arg-type]
        first = layer.feed_forward[0]  # type: ignore[union-attr, index]
        nn.init.zeros_(first.weight)
        nn.init.ones_(first.bias)
        first.bias.data[: 8 * dead + 4] = -1
    figures = look(ours)
    assert figures["under the hood/dead_relu/encoder 1"] == pytest.approx(4 / 64)
    assert figures["under the hood/dead_relu/encoder 2"] == pytest.approx(12 / 64)
    hidden = torch.zeros(2, 3, 4)
    real = torch.tensor([[True, True, False], [True, False, False]])
    hidden[1, 0, 0] = 0.1  # once
    hidden[0, 2, 1] = hidden[1, 1, 2] = 5.0  # on padding
    assert layer_statistics.dead_units(hidden, real).item() == pytest.approx(3 / 4)


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_only_a_relu_has_dead_units(activation: str) -> None:
    """Guards against a meaningless figure: other activations are hardly ever exactly zero."""
    figures = look(with_gradients(model(activation=activation)))
    assert not any("dead_relu" in tag for tag in figures)
    assert any("activation" in tag for tag in figures)


def test_entropy_of_uniform_and_of_one_hot_attention() -> None:
    """Guards the logarithm and its zeros: ln n for uniform attention to n tokens, 0 for attention to one."""
    real = torch.tensor([[True, True], [True, False]])
    assert layer_statistics.entropy(torch.full((2, 4, 2, 10), 0.1), real).item() == pytest.approx(math.log(10))
    certain = nn.functional.one_hot(torch.tensor([3, 5]), 10).float().expand(2, 4, 2, 10).clone()
    assert layer_statistics.entropy(certain, real).item() == 0
    certain[1, :, 1] = math.nan  # a query of padding may have no keys
    assert layer_statistics.entropy(certain, real).item() == 0


def test_entropy_of_a_model_with_uniform_attention() -> None:
    """Guards which keys count: those that the mask allows for each query."""
    ours = with_gradients(model())
    for module in ours.modules():
        if isinstance(module, layer_statistics.Attention):
            nn.init.zeros_(module.query.weight)
    figures = look(ours)
    sources, targets = [5, 3, 2], [6, 2, 3]
    seen = {
        "encoder 1 self": [s for s in sources for _ in range(s)],
        "decoder 1 self": [i + 1 for t in targets for i in range(t)],
        "decoder 3 cross": [s for s, t in zip(sources, targets, strict=True) for _ in range(t)],
    }
    for part, counts in seen.items():
        expected = sum(map(math.log, counts)) / len(counts)
        assert figures[f"under the hood/attention_entropy/{part}"] == pytest.approx(expected, rel=1e-5), part


def test_activations_after_a_post_norm_have_its_size() -> None:
    """Guards the root mean square: it is one after a new norm, whose output has unit variance."""
    figures = look(with_gradients(model(norm="post")))
    sizes = [value for tag, value in figures.items() if "/activation/" in tag]
    assert sizes == pytest.approx([1.0] * 5, rel=1e-3)


def test_gradients_and_updates_are_those_of_the_layer() -> None:
    """Guards the norms: those of this layer and this update, although the gradient is gone by then."""
    ours = with_gradients(model())
    layer = ours.decoder.layers[1]  # type: ignore[union-attr, index]
    assert isinstance(layer, nn.Module)
    before = [p.detach().clone() for p in layer.parameters()]
    gradients = [p.grad.clone() for p in layer.parameters() if p.grad is not None]
    watch = LayerStatistics(ours, SOURCE, TARGET)
    watch.before_step()
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.25)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    figures = watch.after_step()
    assert figures["under the hood/gradient/decoder 2"] == pytest.approx(norm(gradients), rel=1e-5)
    expected = 0.25 * norm(gradients) / norm(before)
    assert figures["under the hood/update_to_weight/decoder 2"] == pytest.approx(expected, rel=1e-4)
    assert look(with_gradients(ours))["under the hood/update_to_weight/decoder 2"] == 0


def test_norms_are_means_of_absolute_values() -> None:
    """Guards the mean: gains of different signs do not cancel, and each norm of the layer counts."""
    ours = with_gradients(model())
    layer = ours.encoder.layers[1]  # type: ignore[union-attr, index]
    nn.init.constant_(layer.around_attention.norm.weight, -3.0)  # type: ignore[union-attr, arg-type]
    nn.init.constant_(layer.around_feed_forward.norm.bias, -0.5)  # type: ignore[union-attr, arg-type]
    nn.init.constant_(ours.decoder.norm.weight, 7.0)  # type: ignore[union-attr, arg-type]
    figures = look(ours)
    assert figures["under the hood/norm_gain/encoder 2"] == pytest.approx((3 + 1) / 2)
    assert figures["under the hood/norm_bias/encoder 2"] == pytest.approx((0 + 0.5) / 2)
    assert figures["under the hood/norm_gain/decoder end"] == 7
    assert figures["under the hood/norm_gain/encoder end"] == 1


def test_each_figure_has_its_chart() -> None:
    """Guards TensorBoard's page: each figure is in exactly one chart, and each chart shows some."""
    tags = look(with_gradients(model()))
    (charts,) = layer_statistics.charts().values()
    patterns = [pattern for kind, (pattern,) in charts.values() if kind == "Multiline"]
    assert len(patterns) == len(charts) == len(layer_statistics.MEASURES)
    for tag in tags:
        assert sum(re.match(pattern, tag) is not None for pattern in patterns) == 1
    for pattern in patterns:
        assert any(re.match(pattern, tag) for tag in tags)


def test_a_language_model_has_no_source() -> None:
    """Guards decoder-only language models, whose source is empty."""
    ours = with_gradients(model(architecture="decoder-only"))
    figures = look(ours, SOURCE[:, :0])
    assert all(math.isfinite(value) for value in figures.values())
    assert isinstance(model(), Transformer)
