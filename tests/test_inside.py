"""The tables that tell what is inside a model, held against the model itself."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from dragoman.architectures import summary
from dragoman.architectures.build import build_model
from dragoman.model import Transformer
from dragoman.settings import PAD, ModelConfig

SMALL = ModelConfig(d_model=32, n_heads=4, encoder_layers=2, decoder_layers=3, d_ff=64)
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, PAD, PAD]])
TARGET = torch.tensor([[2, 5, 9, 7], [2, 8, PAD, PAD]])
ARCHITECTURES = ["encoder-decoder", "decoder-only", "encoder-only"]


def model(**changes: Any) -> nn.Module:
    torch.manual_seed(0)
    return build_model(replace(SMALL, **changes), 12, 12).eval()


class Pair(NamedTuple):
    """Two tensors, as a model may hand them about."""

    one: Tensor
    other: Tensor


class Twisted(nn.Module):
    """What models do that is no plain chain: parameters of its own, a list of tuples, names, an error on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.layers = nn.ModuleList(nn.Bilinear(3, 3, 3) for _ in range(2))
        self.ending = nn.Linear(3, 2)

    def forward(self, pairs: list[Pair], flag: bool = False, last: Tensor | None = None) -> dict[str, Pair | None]:
        x = pairs[0].one * self.scale
        for layer in self.layers:
            x = layer(x, x)
        if flag:
            raise RuntimeError("as asked for")
        return {"pair": Pair(x, self.ending(x)), "nothing": None}


def smallest(parts: list[summary.Part]) -> list[summary.Part]:
    """Those of which no smaller part is listed."""
    return [part for part in parts[1:] if not any(other.path.startswith(f"{part.path}.") for other in parts)]


@pytest.mark.parametrize("tie", ["none", "output", "all"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_parts_add_up_to_the_whole(architecture: str, positions: str, tie: str) -> None:
    """Guards the shares: a shared matrix counted twice, a parameter that is in no part, or in two."""
    ours = model(architecture=architecture, positions=positions, tie=tie)
    parts = summary.parameters(ours)
    assert parts[0].count == sum(p.numel() for p in ours.parameters())
    assert sum(part.count for part in smallest(parts)) == parts[0].count
    for part in parts[1:]:  # at every level; torch, too, names a shared one by where it comes first
        place = re.compile(re.escape(part.path).replace(r"\*", "[0-9]+") + r"(\.|$)")
        assert part.count == sum(p.numel() for name, p in ours.named_parameters() if place.match(name)), part


def test_the_table_names_layers_of_a_kind_and_what_is_shared() -> None:
    """Guards the words: whose matrix it is, and of how many layers a line is the sum."""
    parts = {part.path: part for part in summary.parameters(model(tie="all"))}
    assert parts["encoder.layers"].kind == "2 x EncoderLayer"
    assert parts["decoder.layers.*.cross_attention"].kind == "3 x Attention"
    assert parts["decoder.layers.*.cross_attention"].count == 3 * 4 * (32 * 32 + 32)
    assert parts["encoder.embedding"].shared == ()
    for path in ("decoder.embedding", "projection"):
        assert parts[path].count == 0
        assert parts[path].shared == ("encoder.embedding.table.weight",)
    one = {part.path: part for part in summary.parameters(model(encoder_layers=1))}
    assert one["encoder.layers"].kind == "EncoderLayer"
    assert one["encoder.layers.*.attention"].count == 4 * (32 * 32 + 32)


def test_parameters_of_any_model() -> None:
    """Guards what the Transformer has not: a parameter beside modules, layers that differ, one layer used twice."""
    parts = {part.path: part for part in summary.parameters(Twisted())}
    assert {path: part.count for path, part in parts.items()} == {
        "": 3 + 2 * 30 + 8, "scale": 3, "layers": 2 * 30, "ending": 8,
    }  # fmt: skip
    assert parts["layers"].kind == "2 x Bilinear"
    layer = nn.Linear(2, 2)
    twice = summary.parameters(nn.Sequential(nn.Sequential(layer, nn.Linear(2, 3)), nn.Sequential(layer)))
    assert [(part.path, part.count, part.shared) for part in twice] == [
        ("", 6 + 9, ()), ("0", 6 + 9, ()), ("0.0", 6, ()), ("0.1", 9, ()), ("1", 0, ("0.0.weight", "0.0.bias")),
    ]  # fmt: skip


def test_shapes_come_in_the_order_of_calls() -> None:
    """Guards the way through the model: a caller stands before what it calls, and tensors in tuples are seen."""
    calls = summary.shapes(model(), lambda: None)
    assert calls == []
    ours = model()
    calls = summary.shapes(ours, lambda: ours(SOURCE, TARGET))
    paths = [call.path for call in calls]
    assert paths[:4] == ["", "encoder", "encoder.embedding", "encoder.embedding.table"]
    assert paths[-2:] == ["decoder.norm", "projection"]
    found = {call.path: call for call in calls}
    cross = found["decoder.layers.2.cross_attention"]
    assert cross == summary.Call(cross.path, "Attention", "(2, 4, 32), 2 x (2, 4, 5, 8), (2, 1, 1, 5)", "(2, 4, 32)")
    assert found["decoder.layers.0.feed_forward.0"][2:] == ("(2, 4, 32)", "(2, 4, 64)")
    assert found[""][2:] == ("(2, 5), (2, 4)", "(2, 4, 12)")


def test_shapes_of_lists_names_and_dictionaries() -> None:
    """Guards against a tensor that is not seen because of what it is wrapped in, and None taken for one."""
    twisted, x = Twisted(), torch.ones(5, 3)
    calls = summary.shapes(twisted, lambda: twisted([Pair(x, x), Pair(x, x[:2])], last=x[:1]))
    assert calls[0] == summary.Call("", "Twisted", "3 x (5, 3), (2, 3), (1, 3)", "(5, 3), (5, 2)")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_layers_that_do_the_same_are_told_once(architecture: str) -> None:
    """Guards the length of the page; and against a call that is told by nobody."""
    several, more = (model(architecture=architecture, encoder_layers=count, decoder_layers=count) for count in (3, 6))
    pages = [summary.told(summary.shapes(each, lambda each=each: each(SOURCE, TARGET))) for each in (several, more)]
    assert len(pages[0]) == len(pages[1])
    assert any(line.strip() == "decoder.layers.1 to 5: likewise" for line in pages[1])
    single = model(architecture=architecture, encoder_layers=1, decoder_layers=1)
    calls = summary.shapes(single, lambda: single(SOURCE, TARGET))
    shown = [line.split()[0] for line in pages[1] if "likewise" not in line]
    assert shown == [call.path or "(the" for call in calls]


def test_layers_that_differ_are_all_told() -> None:
    """Guards the word likewise: of the same class, but of another shape, and after something else, is not alike."""

    def told(*widths: int) -> list[str]:
        stack = nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))
        return [line.strip() for line in summary.told(summary.shapes(stack, lambda: stack(torch.ones(1, widths[0]))))]

    assert not any("likewise" in line for line in told(2, 3, 2, 3))
    assert told(2, 2, 2)[2:] == ["1: likewise"]
    assert told(3, 2, 2, 2, 2)[3:] == ["2 to 3: likewise"]
    twice = told(2, 2, 2, 3, 3, 3)
    assert twice[2::3] == ["1: likewise", "4: likewise"]
    assert len(twice) == 6
    nested = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nn.Linear(2, 2))
    lines = summary.told(summary.shapes(nested, lambda: nested(torch.ones(1, 2))))
    assert [line.split()[0] for line in lines] == ["(the", "0", "0.0", "0.1:", "1"]
    stacks = nn.ModuleDict({name: nn.ModuleList([nn.Linear(2, 2)]) for name in ("one", "other")})
    lines = summary.told(summary.shapes(stacks, lambda: [stack[0](torch.ones(1, 2)) for stack in stacks.values()]))  # type: ignore[index]
    assert [line.split()[0] for line in lines] == ["one.0", "other.0"]


def test_no_hook_stays_behind() -> None:
    """Guards the model that goes on to be used: also where the call fails."""
    twisted, x = Twisted(), torch.ones(5, 3)
    summary.summary_lines(twisted, lambda: twisted([Pair(x, x)]), 5)
    with pytest.raises(RuntimeError, match="as asked for"):
        summary.shapes(twisted, lambda: twisted([Pair(x, x)], flag=True))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in twisted.modules())
    assert all(p.grad is None for p in twisted.parameters())


def test_operations_are_products_and_scores() -> None:
    """Guards the figure against what the model itself says of its products, see `Transformer.products`."""
    torch.manual_seed(0)
    ours = Transformer(SMALL, 12, 12).eval()
    of_source, of_target = ours.products()
    scores = 4 * 32 * 2 * (2 * 5 * 5 + 3 * (4 * 4 + 4 * 5))  # of 2 sentences in 2 and 3 layers: QKᵀ and the mean of V
    expected = 2 * (of_source * SOURCE.numel() + of_target * TARGET.numel()) + scores
    assert summary.operations(lambda: ours(SOURCE, TARGET)) == expected
    lines = summary.summary_lines(ours, lambda: ours(SOURCE, TARGET), 18)
    assert f"operations: {expected:,} in a forward pass of 18 tokens, {expected / 18:,.0f} a token" in lines


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_of_it_fits_on_two_screens(architecture: str) -> None:
    """Guards the reader, and the tables' columns: six layers a side are no longer than three."""
    ours = model(architecture=architecture, encoder_layers=6, decoder_layers=6, positions="rotary", norm_kind="rms")
    lines = summary.summary_lines(ours, lambda: ours(SOURCE, TARGET), 18)
    assert lines[0] == f"parameters: {sum(p.numel() for p in ours.parameters()):,}"
    assert len(lines) < 100
    assert max(map(len, lines)) < 180
    assert not any(line != line.rstrip() for line in lines)
