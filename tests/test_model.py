"""The models compared with PyTorch's layers, step by step with all at once, and with inputs that must not matter."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dragoman.architectures import ctc
from dragoman.architectures.build import build_model
from dragoman.architectures.decoder_only import DecoderOnly
from dragoman.architectures.encoder_only import EncoderOnly
from dragoman.architectures.ensemble import Ensemble, alignment
from dragoman.dataset import causal_mask, masks, padding_mask
from dragoman.model import (
    Attention,
    DecoderLayer,
    Dropout,
    Embedding,
    EncoderLayer,
    FeedForward,
    RowPositions,
    Transformer,
    make_norm,
    record_attention,
    rotate,
    sinusoid,
)
from dragoman.settings import PAD, ModelConfig

SMALL = ModelConfig(d_model=32, n_heads=4, encoder_layers=2, decoder_layers=3, d_ff=64, dropout=0.1, upsampling=3)
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, PAD, PAD]])
TARGET = torch.tensor([[2, 5, 9, 7], [2, 8, PAD, PAD]])
INPUTS = (SOURCE, TARGET, *masks(SOURCE, TARGET))

WRITING = ["encoder-decoder", "decoder-only"]  # word by word
ARCHITECTURES = [*WRITING, "encoder-only"]
POSITIONS = ["sinusoidal", "learned", "rotary", "none"]
MODERN = {
    "positions": "rotary", "kv_heads": 2, "activation": "swiglu", "norm_kind": "rms", "attention_bias": False,
}  # fmt: skip
VARIANTS: list[dict[str, Any]] = [*({"positions": each} for each in POSITIONS), MODERN]

each_variant = pytest.mark.parametrize("changes", VARIANTS, ids=[*POSITIONS, "modern"])
each_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)
each_that_writes = pytest.mark.parametrize("architecture", WRITING)


def model(**changes: Any) -> Any:
    """A model in double precision, with random biases and gains: with fresh ones, 0 and 1, errors would not show."""
    torch.manual_seed(0)
    made = build_model(replace(SMALL, **changes), 12, 11).double().eval()
    for parameter in made.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return made


def forced(ours: Any, source: Tensor, target: Tensor) -> Tensor:
    """The logits of teacher forcing, with the masks that a training batch has."""
    return ours(source, target, *masks(source, target))


Pairs = list[tuple[list[Any], Any]]  # parameters of ours, and torch's parameter that holds them concatenated


def of_attention(ours: Attention, theirs: Any) -> Pairs:
    three = (ours.query, ours.key, ours.value)
    return [
        ([each.weight for each in three], theirs.in_proj_weight),
        ([each.bias for each in three], theirs.in_proj_bias),
        *of_linear(ours.output, theirs.out_proj),
    ]


def of_linear(ours: Any, theirs: Any) -> Pairs:
    """Of a projection or a norm."""
    return [([ours.weight], theirs.weight), ([ours.bias], theirs.bias)]


def of_feed_forward(ours: FeedForward, theirs: Any) -> Pairs:
    return [*of_linear(ours[0], theirs.linear1), *of_linear(ours[2], theirs.linear2)]


def copy(pairs: Pairs) -> None:
    """Copy torch's parameters to ours. Without biases, torch's layers have none, and ours are zero or missing."""
    for ours, theirs in pairs:
        for i, parameter in enumerate(ours):
            if parameter is not None:
                parameter.data.copy_(torch.tensor(0.0) if theirs is None else theirs.chunk(len(ours))[i])


def assert_same_gradients(pairs: Pairs) -> None:
    for ours, theirs in pairs:
        if theirs is not None:
            torch.testing.assert_close(torch.cat([parameter.grad for parameter in ours]), theirs.grad)


def randomised(module: nn.Module) -> nn.Module:
    """The module with random parameters, in double precision: fresh biases and gains would hide errors."""
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.double().eval()


@pytest.mark.parametrize("bias", [True, False])
def test_attention_equals_torch(bias: bool) -> None:
    """Guards the split into heads, the scale 1/√K and the meaning of the mask: torch's is True for hidden keys."""
    theirs = randomised(nn.MultiheadAttention(32, 4, bias=bias, batch_first=True))
    ours = Attention(replace(SMALL, attention_bias=bias)).double()
    assert (ours.query.bias is not None) == bias
    pairs = of_attention(ours, theirs)
    copy(pairs)
    inputs = [[torch.randn(2, n, 32).double().requires_grad_() for n in (4, 5)]]
    inputs.append([each.detach().clone().requires_grad_() for each in inputs[0]])
    mask = padding_mask(SOURCE)
    [x1, memory1], [x2, memory2] = inputs
    found, weights = ours(x1, ours.keys_values(memory1), mask), ours.weights(x1, ours.keys_values(memory1), mask)
    expected, their_weights = theirs(x2, memory2, memory2, key_padding_mask=~mask[:, 0, 0], average_attn_weights=False)
    torch.testing.assert_close((found, weights), (expected, their_weights))
    for result in (found, expected):
        result.square().sum().backward()
    torch.testing.assert_close([each.grad for each in inputs[0]], [each.grad for each in inputs[1]])
    assert_same_gradients(pairs)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_heads_are_repeated_heads(kv_heads: int) -> None:
    """Guards which query heads share a key head: neighbours, not every second one; values and gradients."""
    torch.manual_seed(0)
    grouped, whole = Attention(replace(SMALL, kv_heads=kv_heads)).double(), Attention(SMALL).double()

    def repeated(x: Tensor) -> Tensor:
        return x.unflatten(0, (kv_heads, 8)).repeat_interleave(4 // kv_heads, 0).flatten(0, 1)

    def summed(x: Any) -> Tensor:
        return x.unflatten(0, (kv_heads, -1, 8)).sum(1).flatten(0, 1)

    for name, parameter in grouped.named_parameters():
        shared = name.startswith(("key", "value"))
        whole.get_parameter(name).data.copy_(repeated(parameter.data) if shared else parameter.data)
    x, mask = torch.randn(2, 5, 32).double(), padding_mask(SOURCE)
    results = [each(x, each.keys_values(x), mask) for each in (grouped, whole)]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(each.weights(x, each.keys_values(x), mask) for each in (grouped, whole)))
    assert grouped.keys_values(x).keys.shape == (2, kv_heads, 5, 8), "the cache must hold the unrepeated heads"
    for result in results:
        result.square().sum().backward()
    for name, parameter in grouped.named_parameters():
        gradient = whole.get_parameter(name).grad
        torch.testing.assert_close(parameter.grad, summed(gradient) if name.startswith(("key", "value")) else gradient)


LAYERS = {
    "relu": ("relu", True),
    "gelu": ("gelu", True),
    "no-bias": ("gelu", False),
}
each_layer = pytest.mark.parametrize(("activation", "bias"), LAYERS.values(), ids=LAYERS)


@each_layer
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_layer_equals_torch(norm: Any, activation: Any, bias: bool) -> None:
    """Guards the places of norms and residual connections; values and gradients."""
    theirs: Any = randomised(
        nn.TransformerEncoderLayer(
            32, 4, 64, activation=activation, batch_first=True, norm_first=norm == "pre", bias=bias
        )
    )
    settings = replace(SMALL, norm=norm, activation=activation, attention_bias=bias)
    ours = EncoderLayer(settings).double().eval()
    pairs = [
        *of_attention(ours.attention, theirs.self_attn), *of_feed_forward(ours.feed_forward, theirs),
        *of_linear(ours.around_attention.norm, theirs.norm1), *of_linear(ours.around_feed_forward.norm, theirs.norm2),
    ]  # fmt: skip
    copy(pairs)
    x = torch.randn(2, 5, 32).double()
    mask = padding_mask(SOURCE)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    results = [ours(inputs[0], mask)[0], theirs(inputs[1], src_key_padding_mask=~mask[:, 0, 0])]
    for result in results:
        result[mask[:, 0, 0]].square().sum().backward()
    torch.testing.assert_close(results[0][mask[:, 0, 0]], results[1][mask[:, 0, 0]])
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    assert_same_gradients(pairs)


@each_layer
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoder_layer_equals_torch(norm: Any, activation: Any, bias: bool) -> None:
    """Guards the causal mask (the best-known tutorial inverts it in one place) and the order of sub-layers."""
    theirs: Any = randomised(
        nn.TransformerDecoderLayer(
            32, 4, 64, activation=activation, batch_first=True, norm_first=norm == "pre", bias=bias
        )
    )
    ours = DecoderLayer(replace(SMALL, norm=norm, activation=activation, attention_bias=bias)).double().eval()
    pairs = [
        *of_attention(ours.self_attention, theirs.self_attn),
        *of_attention(ours.cross_attention, theirs.multihead_attn),
        *of_feed_forward(ours.feed_forward, theirs),
        *of_linear(ours.around_self_attention.norm, theirs.norm1),
        *of_linear(ours.around_cross_attention.norm, theirs.norm2),
        *of_linear(ours.around_feed_forward.norm, theirs.norm3),
    ]
    copy(pairs)
    x, states = torch.randn(2, 4, 32).double(), torch.randn(2, 5, 32).double()
    mask = padding_mask(SOURCE)
    inputs = [(x.clone().requires_grad_(), states.clone().requires_grad_()) for _ in range(2)]
    (x1, states1), (x2, states2) = inputs
    first, _ = ours(x1, causal_mask(4), ours.cross_attention.keys_values(states1), mask)
    second = theirs(
        x2, states2, tgt_mask=nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.double),
        memory_key_padding_mask=~mask[:, 0, 0], tgt_is_causal=True,
    )  # fmt: skip
    torch.testing.assert_close(first, second)
    first.square().sum().backward()
    second.square().sum().backward()
    torch.testing.assert_close(x1.grad, x2.grad)
    torch.testing.assert_close(states1.grad, states2.grad)
    assert_same_gradients(pairs)


def test_swiglu_is_its_formula() -> None:
    """Guards which half is the gate, and the third matrix: (silu(x W) * (x V)) W2, with biases."""
    block: Any = randomised(FeedForward(replace(SMALL, activation="swiglu")))
    x = torch.randn(3, 32).double()
    gate, values = (x @ w.t() + b for w, b in zip(block[0].weight.chunk(2), block[0].bias.chunk(2), strict=True))
    expected = (gate / (1 + (-gate).exp()) * values) @ block[2].weight.t() + block[2].bias
    assert block[0].weight.shape == (128, 32)
    torch.testing.assert_close(block(x), expected)


EPS = 1e-5


@pytest.mark.parametrize("size", [1.0, 0.003])
def test_rms_norm_is_its_formula(size: float) -> None:
    """Guards ε, which torch would choose by dtype; and against a subtracted mean or an added bias."""
    norm: Any = randomised(make_norm(replace(SMALL, norm_kind="rms")))
    x = size * (1 + torch.randn(3, 32).double())
    torch.testing.assert_close(norm(x), x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * norm.weight)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


@each_that_writes
@pytest.mark.parametrize("norm", ["pre", "post"])
@each_variant
def test_cached_equals_teacher_forced(changes: dict[str, Any], norm: str, architecture: str) -> None:
    """Guards the classic cache bug: fine in validation, wrong in translation. In a beam, sentences split into
    hypotheses, hypotheses change places, and sentences finish: the whole cache must move along."""
    ours = model(architecture=architecture, norm=norm, **changes)
    source = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, PAD, PAD], [7, 10, 5, 3, PAD]])
    rows, target, state = torch.arange(3), torch.full((3, 1), 2), ours.start(source)
    moves = {  # after a step: the hypotheses and the sentences to keep
        0: (torch.tensor([0, 0, 1, 1, 2, 2]), None),
        2: (torch.tensor([1, 0, 2, 2, 5, 4]), None),
        3: (torch.tensor([5, 5, 1, 0]), torch.tensor([2, 0])),
    }
    for step in range(6):
        logits, state = ours.step(target[:, -1], state)
        torch.testing.assert_close(logits, forced(ours, source[rows], target)[:, -1])
        if step in moves:
            hypotheses, sentences = moves[step]
            rows, target, state = rows[hypotheses], target[hypotheses], state.select(hypotheses, sentences)
        target = torch.cat((target, torch.randint(4, 11, (len(target), 1))), 1)


def tables(ours: Any) -> tuple[Tensor, Tensor | None]:
    """The tables of source and target embeddings."""
    match ours:
        case Transformer():
            return ours.encoder.embedding.table.weight, ours.decoder.embedding.table.weight
        case DecoderOnly():
            return ours.source_embedding.table.weight, ours.embedding.table.weight
    return ours.encoder.embedding.table.weight, None


@each_that_writes
@each_variant
def test_gradients_show_what_a_position_sees(changes: dict[str, Any], architecture: str) -> None:
    """Guards the masks in both directions: the source and the target so far are seen, nothing else."""
    ours = model(architecture=architecture, tie="none", **changes)
    for t in range(4):
        parts = torch.autograd.grad(forced(ours, SOURCE, TARGET)[0, t].square().sum(), tables(ours))  # type: ignore[arg-type]
        seen = [set(part.abs().amax(1).nonzero()[:, 0].tolist()) for part in parts]
        assert seen == [{5, 6, 7, 8, 3}, set(TARGET[0, : t + 1].tolist())]


@each_variant
def test_the_source_does_not_see_the_target(changes: dict[str, Any]) -> None:
    """Guards the prefix mask: a decoder-only model reads the source before it writes anything."""
    ours = model(architecture="decoder-only", **changes)
    alone, found = ours.encode(SOURCE), []
    ours.decoder.register_forward_hook(lambda _module, _inputs, output: found.append(output[0]))
    forced(ours, SOURCE, TARGET)
    real = SOURCE != PAD
    torch.testing.assert_close(found[0][:, :5][real], alone[real])


def real_places(ours: Any, source: Tensor, target: Tensor) -> Tensor:
    """Which rows of the logits are not padding: (B, T), or (B, N)."""
    if isinstance(ours, EncoderOnly):
        return (source != PAD).repeat_interleave(ours.settings.upsampling, 1)
    return target != PAD


PADDED = [torch.cat((ids, torch.full((2, columns), PAD)), 1) for ids, columns in ((SOURCE, 2), (TARGET, 1))]
ALONE = [(SOURCE[:1], TARGET[:1]), (SOURCE[1:, :3], TARGET[1:, :2])]


@each_architecture
@each_variant
def test_padding_changes_nothing(changes: dict[str, Any], architecture: str) -> None:
    """Guards the masks, and positions that start where the source ends: sentences alone equal sentences in a batch
    with extra padding on either side."""
    ours = model(architecture=architecture, **changes)
    alone = torch.cat([forced(ours, *pair)[0] for pair in ALONE])
    for batch in ((SOURCE, TARGET), PADDED):
        torch.testing.assert_close(forced(ours, *batch)[real_places(ours, *batch)], alone)


@each_architecture
@each_variant
def test_padding_changes_no_gradient(changes: dict[str, Any], architecture: str) -> None:
    """Padding must not affect gradients either."""
    ours = model(architecture=architecture, **changes)

    def gradients(*pair: Tensor) -> tuple[Tensor, ...]:
        logits = forced(ours, *pair)[real_places(ours, *pair)]
        return torch.autograd.grad(logits.square().sum(), tuple(ours.parameters()))

    expected = tuple(a + b for a, b in zip(*(gradients(*pair) for pair in ALONE), strict=True))
    torch.testing.assert_close(gradients(*PADDED), expected)
    assert all(part.abs().max() > 0 for part in expected), "a parameter gets no gradient"


@each_variant
def test_encoder_only_ignores_the_target(changes: dict[str, Any]) -> None:
    """An encoder-only model must ignore the target: when translating there is none."""
    ours = model(architecture="encoder-only", **changes)
    torch.testing.assert_close(forced(ours, SOURCE, TARGET), ours.places(SOURCE))
    assert ours.places(SOURCE).shape == (2, 15, 11)
    assert ours.lengths(SOURCE).tolist() == [15, 9]


def test_sinusoid_matches_the_paper() -> None:
    """Guards the layout, sine even and cosine odd, against the formula in loops."""
    table = sinusoid(50, 16)
    for position in (0, 1, 7, 49):
        for i in range(8):
            angle = position / 10000 ** (2 * i / 16)
            assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


STARTS = {
    "0": 0,
    "7": 7,
    "rows": RowPositions(torch.tensor([[0], [11]]), 11),
    "beyond the first table": RowPositions(torch.tensor([[300], [2]]), 300),
    "a higher bound": RowPositions(torch.tensor([[4], [9]]), 99),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_rotary_positions_are_complex_powers(start: int | RowPositions) -> None:
    """Guards the layout: features i and i + K/2 are one complex number, rotated by position / 10000^(2i/K)."""
    x = torch.randn(2, 4, 5, 8).double()
    angles = Embedding(12, replace(SMALL, positions="rotary")).angles(start, 5)
    assert angles is not None
    number = torch.complex(*x.chunk(2, -1))
    speed = 10000 ** -(torch.arange(4).double() / 4)
    position = (
        torch.as_tensor(start if isinstance(start, int) else start.rows).reshape(-1, 1, 1, 1) + torch.arange(5)[:, None]
    )
    expected = number * torch.exp(1j * position * speed)
    torch.testing.assert_close(rotate(x, angles), torch.cat((expected.real, expected.imag), -1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@each_architecture
def test_positions_grow_on_demand(architecture: str, positions: str) -> None:
    """Guards against a crash at the first sentence longer than any in training. The old rows must not change."""
    ours = model(architecture=architecture, positions=positions)
    short = forced(ours, SOURCE, TARGET)
    assert forced(ours, torch.full((1, 260), 5), TARGET[:1]).isfinite().all()
    torch.testing.assert_close(forced(ours, SOURCE, TARGET), short, rtol=0, atol=0)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@each_architecture
def test_training_goes_on_with_positions_that_grew_in_validation(architecture: str, positions: str) -> None:
    """Guards the next update: a table made in inference mode cannot take part in autograd."""
    ours = model(architecture=architecture, positions=positions)
    with torch.inference_mode():
        forced(ours, torch.full((1, 260), 5), TARGET[:1])
    forced(ours, SOURCE, TARGET).sum().backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in ours.parameters())


def ids(*lengths: int) -> Tensor:
    """Padded rows of these lengths."""
    return torch.tensor([[5] * length + [PAD] * (max(lengths) - length) for length in lengths])


TABLES = {  # pairs that just fit into eight positions, and pairs that do not
    "encoder-decoder": ([(ids(8), ids(8))], [(ids(9), ids(2)), (ids(2), ids(9))]),
    "decoder-only": ([(ids(6), ids(2)), (ids(3), ids(5))], [(ids(9), ids(1)), (ids(6), ids(3)), (ids(2), ids(7))]),
    "encoder-only": ([(ids(2), ids(20))], [(ids(9), ids(2)), (ids(3), ids(2))]),  # three places per token
}


@each_architecture
def test_learned_positions_have_an_end(architecture: str) -> None:
    """Guards the table of positions: a sequence that is too long is an error, not a wrong position."""
    ours = model(architecture=architecture, positions="learned", max_positions=8)
    fitting, longer = TABLES[architecture]
    for pair in fitting:
        assert forced(ours, *pair).isfinite().all()
    for pair in longer:
        with pytest.raises(IndexError):
            forced(ours, *pair)


@pytest.mark.parametrize(("architecture", "steps"), [("encoder-decoder", 8), ("decoder-only", 3)])
def test_learned_positions_end_in_translation_too(architecture: str, steps: int) -> None:
    """Guards `step`: the sentence with the longest source is the first to reach the end."""
    ours = model(architecture=architecture, positions="learned", max_positions=8)
    state = ours.start(SOURCE)
    for _ in range(steps):
        _, state = ours.step(torch.tensor([5, 5]), state)
    with pytest.raises(IndexError):
        ours.step(torch.tensor([5, 5]), state)


def test_padding_takes_no_learned_position() -> None:
    """Guards a batch in which each pair fits by itself: the padding of a target may lie past the last position."""
    ours = model(architecture="decoder-only", positions="learned", max_positions=8)
    source, target = ids(6, 2), ids(2, 6)
    found = forced(ours, source, target)
    torch.testing.assert_close(found[0, :2], forced(ours, source[:1], target[:1, :2])[0])
    torch.testing.assert_close(found[1], forced(ours, source[1:, :2], target[1:])[0])


def test_one_sequence_has_one_table_of_positions() -> None:
    """Guards a decoder-only model against two tables, with which the target would start again at 0."""
    ours = model(architecture="decoder-only", positions="learned")
    assert ours.source_embedding.learned.weight is ours.embedding.learned.weight


def test_embeddings_start_with_unit_variance() -> None:
    """Guards the factor √D: without it, positions would drown out the words. Learned positions start alike."""
    torch.manual_seed(0)
    encoder = Transformer(replace(SMALL, d_model=256, positions="learned"), 1000, 1000).eval().encoder
    words = torch.arange(400)[None]
    embedded = encoder.embedding.table(words) * encoder.embedding.scale
    assert embedded.std().item() == pytest.approx(1.0, rel=0.05)
    assert (encoder.embedding(words) - embedded).std().item() == pytest.approx(1.0, rel=0.05)


TIED = {
    "encoder-decoder": {"none": 3, "output": 2, "all": 1},
    "decoder-only": {"none": 3, "output": 2, "all": 1},
    "encoder-only": {"none": 2, "output": 2, "all": 1},  # there is no target embedding
}


@each_architecture
@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_tying_shares_one_matrix_and_its_gradient(tie: Any, architecture: Any) -> None:
    """Guards against tying by copy: after one update, copies differ."""
    ours = build_model(replace(SMALL, architecture=architecture, tie=tie), 12, 12)
    matrices = [table for table in (*tables(ours), ours.projection.weight) if table is not None]
    assert len({id(matrix) for matrix in matrices}) == TIED[architecture][tie]
    untied = build_model(replace(SMALL, architecture=architecture, tie="none"), 12, 12)
    sizes = [sum(p.numel() for p in each.parameters()) for each in (ours, untied)]
    assert sizes[1] - sizes[0] == (TIED[architecture]["none"] - TIED[architecture][tie]) * 12 * 32
    if tie == "output" and architecture != "encoder-only":
        assert ours.projection.weight is tables(ours)[1]


@each_architecture
def test_tying_all_needs_one_vocabulary(architecture: Any) -> None:
    """Guards against a crash much later, in the first embedding look-up."""
    with pytest.raises(ValueError, match="one vocabulary"):
        build_model(replace(SMALL, architecture=architecture, tie="all"), 12, 11)


@each_architecture
@pytest.mark.parametrize("changes", [{}, MODERN], ids=["plain", "modern"])
def test_cross_attention_maps_are_the_weights_in_use(changes: dict[str, Any], architecture: str) -> None:
    """Rows sum to one, padding gets nothing, and no hook stays behind."""
    ours = model(architecture=architecture, **changes)
    before = forced(ours, SOURCE, TARGET)
    maps = ours.cross_attention(SOURCE, TARGET)
    assert maps.shape == (3, 2, 4, 4, 5)
    if architecture == "decoder-only":  # the rest goes to the target so far
        assert maps.min() >= 0
        assert maps.sum(-1).max() < 1
    else:
        torch.testing.assert_close(maps.sum(-1), torch.ones_like(maps[..., 0]))
    assert maps[:, 1, :, :, 3:].max() == 0
    torch.testing.assert_close(alignment(ours, SOURCE, TARGET), maps.mean((0, 2)))
    torch.testing.assert_close(ours.cross_attention(*ALONE[1])[:, 0], maps[:, 1, :, :2, :3])
    torch.testing.assert_close(forced(ours, SOURCE, TARGET), before, rtol=0, atol=0)
    assert not any(module._forward_hooks for module in ours.modules())


def test_a_decoder_only_model_looks_at_both_sides() -> None:
    """Guards the slice: the rows of the target and the columns of the source."""
    ours = model(architecture="decoder-only", decoder_layers=1, norm="post")
    attention = ours.decoder.layers[0].attention
    x = torch.cat((ours.source_embedding(SOURCE[:1]), ours.embedding(TARGET[:1], 5)), 1)
    mask = causal_mask(9)
    mask[:, :5] = True
    weights = attention.weights(x, attention.keys_values(x), mask)
    torch.testing.assert_close(ours.cross_attention(SOURCE[:1], TARGET[:1])[0], weights[:, :, 5:, :5])


def test_encoder_only_alignment_follows_the_places() -> None:
    """The row of a word is where its first place on the likeliest path looked, summed over each source token's
    places. After the last word, its row is repeated."""
    ours = model(architecture="encoder-only", decoder_layers=1, norm="post")
    attention = ours.decoder.layers[0].attention
    mask = padding_mask(SOURCE)
    x = ours.split(ours.encoder(SOURCE, mask)).view(2, 15, 32) + sinusoid(15, 32)
    weights = attention.weights(x, attention.keys_values(x), mask.repeat_interleave(3, 3))
    expected = weights.view(2, 4, 15, 5, 3).sum(4)
    wanted = TARGET[:, 1:]
    path = ctc.forced_path(ours.places(SOURCE).log_softmax(-1), torch.tensor([15, 9]), wanted, torch.tensor([3, 1]))
    maps = ours.cross_attention(SOURCE, TARGET)[0]
    for b, tokens in enumerate((3, 1)):
        for t in range(4):
            place = path[b].tolist().index(min(t, tokens - 1))
            torch.testing.assert_close(maps[b, :, t], expected[b, :, place])


@pytest.mark.parametrize("where", ["dropout", "attention_dropout", "activation_dropout"])
def test_dropout_acts_only_in_training(where: str) -> None:
    """Guards against translating with dropout on, and against a kind of dropout that does nothing."""
    ours = model(**{"dropout": 0.0, where: 0.5})
    torch.testing.assert_close(forced(ours, SOURCE, TARGET), forced(ours, SOURCE, TARGET), rtol=0, atol=0)
    ours.train()
    assert not torch.equal(forced(ours, SOURCE, TARGET), forced(ours, SOURCE, TARGET))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.0001])
def test_dropout_drops_its_share(share: float, dtype: torch.dtype) -> None:
    """Guards the random bits: the right share everywhere, the rest scaled up, and the same mask for the same seed."""
    dropout, count = Dropout(share), 200_003  # not divisible by four
    x = torch.ones(count, dtype=dtype, requires_grad=True)
    torch.manual_seed(3)
    y = dropout(x)
    dropped = (y == 0).float()
    deviation = math.sqrt(share * (1 - share) / count) + 1 / 2**16
    for part in range(4):  # of each 64-bit word
        assert float(dropped[part::4].mean()) == pytest.approx(share, abs=10 * deviation)
    assert y[y != 0].unique().tolist() == pytest.approx([1 / (1 - share)], rel=1e-2)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # type: ignore[arg-type]
    torch.manual_seed(3)
    assert torch.equal(dropout(x), y)
    assert dropout.eval()(x) is x


def test_attention_is_recorded_for_one_thread_only() -> None:
    """Guards attention maps while another thread searches with the same model: they would include its steps."""
    ours = model()
    mine = ours.cross_attention(SOURCE, TARGET)
    layers = [layer.cross_attention for layer in ours.decoder.layers]
    with record_attention(layers) as maps, ThreadPoolExecutor(1) as other:
        other.submit(ours, SOURCE[:1], TARGET[:1, :2], *masks(SOURCE[:1], TARGET[:1, :2])).result()
        ours(SOURCE, TARGET, *masks(SOURCE, TARGET))
    torch.testing.assert_close(torch.stack(maps), mine)


@pytest.mark.parametrize("architecture", ["decoder-only", "encoder-only"])
def test_an_ensemble_takes_any_members(architecture: str) -> None:
    """Members need only the methods in use; they need not be modules."""
    one, two = (model(architecture=architecture, encoder_layers=layers) for layers in (1, 2))
    used = ("start", "step") if architecture == "decoder-only" else ("places", "lengths")
    plain = Ensemble([SimpleNamespace(**{name: getattr(each, name) for name in used}) for each in (one, two)])
    both = Ensemble([one, two])
    if architecture == "encoder-only":
        assert torch.equal(plain.places(SOURCE), both.places(SOURCE))
        assert torch.equal(plain.lengths(SOURCE), one.lengths(SOURCE))
        return
    found, expected = (each.step(TARGET[:, 0], each.start(SOURCE))[0] for each in (plain, both))
    assert torch.equal(found, expected)
    mean = (one(*INPUTS)[:, 0].softmax(-1) + two(*INPUTS)[:, 0].softmax(-1)) / 2
    torch.testing.assert_close(found.exp(), mean, rtol=1e-4, atol=1e-6, check_dtype=False)
