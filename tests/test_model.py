"""The Transformer against PyTorch's own layers, against itself step by step, and against what it must not see."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from config import PAD, ModelConfig
from model import (
    Attention,
    Decoder,
    DecoderLayer,
    Dropout,
    Embedding,
    Encoder,
    EncoderLayer,
    KeysValues,
    Transformer,
    causal_mask,
    padding_mask,
    sinusoid,
)
from runtime import seed_everything

SMALL = ModelConfig(d_model=32, n_heads=4, encoder_layers=2, decoder_layers=3, d_ff=64, dropout=0.1)
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, PAD, PAD]])
TARGET = torch.tensor([[2, 5, 9, 7], [2, 8, PAD, PAD]])


def model(**changes: object) -> Transformer:
    torch.manual_seed(0)
    return Transformer(replace(SMALL, **changes), 12, 11).double().eval()


def copy_linear(target: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    target.weight.data.copy_(weight)
    target.bias.data.copy_(bias)


def copy_attention(ours: Attention, theirs: nn.MultiheadAttention) -> None:
    """torch keeps the three projections in one matrix."""
    for part, weight, bias in zip(
        (ours.query, ours.key, ours.value), theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True
    ):
        copy_linear(part, weight, bias)
    copy_linear(ours.output, theirs.out_proj.weight, theirs.out_proj.bias)


def randomised(module: nn.Module) -> nn.Module:
    """Fresh biases are zero and fresh gains one: an error there would not show."""
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.double().eval()


def copy_feed_forward(ours: nn.Sequential, theirs: nn.Module) -> None:
    copy_linear(ours[0], theirs.linear1.weight, theirs.linear1.bias)  # type: ignore[arg-type]
    copy_linear(ours[2], theirs.linear2.weight, theirs.linear2.bias)  # type: ignore[arg-type]


def test_attention_equals_torch() -> None:
    """Guards the cutting into heads, the scale 1/√K and the sense of the mask: torch's mask says what is hidden."""
    theirs = randomised(nn.MultiheadAttention(32, 4, batch_first=True))
    ours = Attention(SMALL).double()
    copy_attention(ours, theirs)  # type: ignore[arg-type]
    x, memory = torch.randn(2, 4, 32).double(), torch.randn(2, 5, 32).double()
    mask = padding_mask(SOURCE)
    expected, weights = theirs(x, memory, memory, key_padding_mask=~mask[:, 0, 0], average_attn_weights=False)
    torch.testing.assert_close(ours(x, ours.keys_values(memory), mask), expected)
    torch.testing.assert_close(ours.weights(x, ours.keys_values(memory), mask), weights)


def test_both_forms_of_attention_agree() -> None:
    """Guards the two ways through `Attention.forward`: a CPU takes the one, a GPU the other."""
    torch.manual_seed(0)
    ours = Attention(SMALL).double()
    x = torch.randn(2, 5, 32).double()
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    mask = causal_mask(5) & padding_mask(SOURCE)
    spelled = ours(inputs[0], ours.keys_values(inputs[0]), mask)
    memory = ours.keys_values(inputs[1])
    queries = ours._split(ours.query(inputs[1]))
    fused = nn.functional.scaled_dot_product_attention(queries, memory.keys, memory.values, mask)
    fused = ours.output(fused.transpose(1, 2).flatten(2))
    torch.testing.assert_close(spelled, fused)
    for result in (spelled, fused):
        result.square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_layer_equals_torch(norm: str) -> None:
    """Guards where norms and residual connections stand, values and gradients."""
    theirs = randomised(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=norm == "pre"))
    ours = EncoderLayer(replace(SMALL, norm=norm)).double().eval()
    copy_attention(ours.attention, theirs.self_attn)  # type: ignore[arg-type]
    copy_feed_forward(ours.feed_forward, theirs)
    ours.around_attention.norm.load_state_dict(theirs.norm1.state_dict())  # type: ignore[union-attr]
    ours.around_feed_forward.norm.load_state_dict(theirs.norm2.state_dict())  # type: ignore[union-attr]
    x = torch.randn(2, 5, 32).double()
    mask = padding_mask(SOURCE)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    results = [ours(inputs[0], mask), theirs(inputs[1], src_key_padding_mask=~mask[:, 0, 0])]
    for result in results:
        result[mask[:, 0, 0]].square().sum().backward()
    torch.testing.assert_close(results[0][mask[:, 0, 0]], results[1][mask[:, 0, 0]])
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    torch.testing.assert_close(ours.feed_forward[0].weight.grad, theirs.linear1.weight.grad)  # type: ignore[union-attr]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoder_layer_equals_torch(norm: str) -> None:
    """Guards the causal mask (the best-known tutorial has it inverted in one place) and the order of sub-layers."""
    theirs = randomised(nn.TransformerDecoderLayer(32, 4, 64, batch_first=True, norm_first=norm == "pre"))
    ours = DecoderLayer(replace(SMALL, norm=norm)).double().eval()
    copy_attention(ours.self_attention, theirs.self_attn)  # type: ignore[arg-type]
    copy_attention(ours.cross_attention, theirs.multihead_attn)  # type: ignore[arg-type]
    copy_feed_forward(ours.feed_forward, theirs)
    around = (ours.around_self_attention, ours.around_cross_attention, ours.around_feed_forward)
    for residual, norm_module in zip(around, (theirs.norm1, theirs.norm2, theirs.norm3), strict=True):
        residual.norm.load_state_dict(norm_module.state_dict())  # type: ignore[union-attr]
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


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "none"])
def test_cached_equals_teacher_forced(norm: str, positions: str) -> None:
    """Guards the classic bug: fine in validation, wrong in translation, since the cache is built otherwise."""
    ours = model(norm=norm, positions=positions)
    target = torch.tensor([[2, 5, 9, 7, 4, 4], [2, 8, 6, 5, 10, 9]])
    expected = ours(SOURCE, target)
    state = ours.start(SOURCE)
    for t in range(target.shape[1]):
        logits, state = ours.step(target[:, t], state)
        torch.testing.assert_close(logits, expected[:, t])


def test_reordered_state_goes_on_as_the_reordered_sentences() -> None:
    """Guards beam search: memory, mask and past must all move together."""
    ours = model()
    rows = torch.tensor([1, 1, 0])
    _, state = ours.step(TARGET[:, 0], ours.start(SOURCE))
    logits, _ = ours.step(torch.tensor([5, 8, 5]), state.select(rows, rows))
    target = torch.tensor([[2, 5], [2, 8], [2, 5]])
    torch.testing.assert_close(logits, ours(SOURCE[rows], target)[:, 1])


def test_later_targets_and_padding_change_nothing() -> None:
    """Guards the masks by perturbation: a model that sees the next word learns to copy it and nothing else."""
    ours = model()
    expected = ours(SOURCE, TARGET)
    for t in range(1, TARGET.shape[1]):
        changed = TARGET.clone()
        changed[0, t:] = 4
        torch.testing.assert_close(ours(SOURCE, changed)[0, :t], expected[0, :t], rtol=0, atol=0)
        assert not torch.equal(ours(SOURCE, changed)[0, t], expected[0, t])
    # One more column of padding on either side; and each sentence alone, without any.
    padded = [torch.cat((ids, torch.full((2, 1), PAD)), 1) for ids in (SOURCE, TARGET)]
    torch.testing.assert_close(ours(*padded)[:, :-1], expected)
    torch.testing.assert_close(ours(SOURCE[1:, :3], TARGET[1:, :2]), expected[1:, :2])


def test_no_gradient_flows_from_what_is_hidden() -> None:
    """Guards against a mask that is applied after the softmax, which hides the value but not the weight."""
    ours = model()
    x = torch.randn(1, 5, 32).double().requires_grad_()
    layer = ours.decoder.layers[0]
    memory = layer.cross_attention.keys_values(torch.randn(1, 5, 32).double())
    layer(x, causal_mask(5), memory, None)[0][:, 2].sum().backward()
    assert x.grad is not None
    assert x.grad[:, 3:].abs().max() == 0
    assert x.grad[:, :3].abs().min() > 0


def test_sinusoid_is_the_papers() -> None:
    """Guards the layout, sine even and cosine odd, against the formula written with loops."""
    table = sinusoid(50, 16)
    for position in (0, 1, 7, 49):
        for i in range(8):
            angle = position / 10000 ** (2 * i / 16)
            assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


def test_positions_grow_on_demand() -> None:
    """Guards the crash at the first sentence longer than any in training; the old rows must not change."""
    ours = model()
    short = ours.encoder(SOURCE)
    length = 2 * len(ours.encoder.embedding.positions) + 1
    assert ours.encoder(torch.full((1, length), 5)).shape == (1, length, 32)
    torch.testing.assert_close(ours.encoder(SOURCE), short, rtol=0, atol=0)


def test_embeddings_start_with_unit_variance() -> None:
    """Guards √D: unscaled, the positions would drown the words."""
    torch.manual_seed(0)
    encoder = Transformer(replace(SMALL, d_model=256), 1000, 1000).encoder
    embedded = encoder.embedding.table(torch.arange(1000)) * encoder.embedding.scale
    assert embedded.std().item() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(("tie", "tables"), [("none", 3), ("output", 2), ("all", 1)])
def test_tying_shares_one_matrix_and_its_gradient(tie: str, tables: int) -> None:
    """Guards tying by copy: after one update, copies differ."""
    torch.manual_seed(0)
    ours = Transformer(replace(SMALL, tie=tie), 12, 12)
    matrices = (ours.encoder.embedding.table.weight, ours.decoder.embedding.table.weight, ours.projection.weight)
    assert len({matrix.data_ptr() for matrix in matrices}) == tables
    assert len({id(matrix) for matrix in matrices}) == tables
    size = sum(p.numel() for p in ours.parameters())
    assert (
        size
        == sum(p.numel() for p in Transformer(replace(SMALL, tie="none"), 12, 12).parameters()) - (3 - tables) * 12 * 32
    )


def test_three_way_tying_needs_one_vocabulary() -> None:
    """Guards against a crash far away, in the first embedding look-up."""
    with pytest.raises(ValueError, match="one vocabulary"):
        Transformer(replace(SMALL, tie="all"), 12, 11)


def test_cross_attention_maps_are_the_weights_in_use() -> None:
    """Guards the pictures: rows sum to one, padding gets nothing, and asking leaves no hook behind."""
    ours = model()
    before = ours(SOURCE, TARGET)
    maps = ours.cross_attention(SOURCE, TARGET)
    assert maps.shape == (3, 2, 4, 4, 5)
    torch.testing.assert_close(maps.sum(-1), torch.ones_like(maps[..., 0]))
    assert maps[:, 1, :, :, 3:].max() == 0
    torch.testing.assert_close(ours(SOURCE, TARGET), before, rtol=0, atol=0)
    assert not any(layer.cross_attention._forward_hooks for layer in ours.decoder.layers)


@pytest.mark.parametrize("where", ["dropout", "attention_dropout", "activation_dropout"])
def test_dropout_acts_in_training_alone(where: str) -> None:
    """Guards the model against translating with dropout on, and each kind of it against being left out."""
    ours = model(**{"dropout": 0.0, where: 0.5})
    torch.testing.assert_close(ours(SOURCE, TARGET), ours(SOURCE, TARGET), rtol=0, atol=0)
    ours.train()
    assert not torch.equal(ours(SOURCE, TARGET), ours(SOURCE, TARGET))


def test_operations_are_those_that_torch_counts() -> None:
    """Guards the share of the limit that training shows: a product left out, or counted for the wrong side."""
    ours = model()
    of_source, of_target = ours.products()
    with FlopCounterMode(display=False) as whole:
        ours(SOURCE, TARGET)
    with FlopCounterMode(display=False) as longer:
        ours(torch.cat((SOURCE, SOURCE), 1), TARGET)
    counted = whole.get_total_flops(), longer.get_total_flops() - whole.get_total_flops()
    scores = 4 * 32 * 2  # operations for each pair of positions and sentence: QKᵀ and the mean of V
    encoder, decoder = 2, 3
    looked = (encoder * 5 * 5 + decoder * (4 * 4 + 4 * 5)) * scores, (encoder * 3 * 5 * 5 + decoder * 4 * 5) * scores
    assert counted[0] == 2 * (of_source * 10 + of_target * 8) + looked[0]
    assert counted[1] == 2 * of_source * 10 + looked[1]


def test_threads_may_embed_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the table of positions that grows: another thread puts a shorter one there before this one has used it."""
    embedding = Embedding(12, SMALL).eval()
    ids = torch.full((1, 300), 5)
    expected = embedding(torch.full((1, 400), 5))[:, :300]
    embedding.positions = sinusoid(10, 32)
    setting = nn.Module.__setattr__

    def overtaken(self: nn.Module, name: str, value: Any) -> None:
        setting(self, name, sinusoid(20, 32) if name == "positions" else value)

    monkeypatch.setattr(Embedding, "__setattr__", overtaken)
    torch.testing.assert_close(embedding(ids), expected)


def test_parts_work_by_themselves() -> None:
    """The encoder and the decoder are stacks that can be used without the whole, masked or not."""
    torch.manual_seed(0)
    encoder, decoder = Encoder(12, SMALL), Decoder(11, SMALL)
    states = encoder(SOURCE)
    assert states.shape == (2, 5, 32)
    hidden, seen = decoder(TARGET, causal_mask(4), decoder.memory(states), None)
    assert hidden.shape == (2, 4, 32)
    assert all(isinstance(layer, KeysValues) and layer.keys.shape == (2, 4, 4, 8) for layer in seen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.0001, 0.99999])
def test_dropout_drops_its_share(share: float, dtype: torch.dtype) -> None:
    """Guards the random bits: the right share, everywhere alike, the rest scaled up, repeated by the same seed."""
    dropout, count = Dropout(share), 200_003  # a number that four does not divide
    x = torch.ones(count, dtype=dtype, requires_grad=True)
    seed_everything(3)
    y = dropout(x)
    dropped = (y == 0).float()
    deviation = math.sqrt(share * (1 - share) / count) + 1 / 2**16
    assert float(dropped.mean()) == pytest.approx(share, abs=5 * deviation)
    for part in range(4):  # of a word of 64 bits
        assert float(dropped[part::4].mean()) == pytest.approx(share, abs=10 * deviation)
    assert y[y != 0].unique().tolist() == pytest.approx([1 / (1 - share)], rel=1e-2)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # type: ignore[arg-type]
    seed_everything(3)
    assert torch.equal(dropout(x), y)
    assert dropout.eval()(x) is x
