"""Batch plans, batches and token ids."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import SHARED, tiny_pairs
from dragoman import dataset
from dragoman.corpora.selection import batch_plan_of_size
from dragoman.corpora.subwords import train_tokenizer, train_tokenizers
from dragoman.dataset import (
    EncodedPairs,
    EncodedSide,
    batch_plan,
    encode_pairs,
    encode_side,
    make_batch,
    source_batch,
)
from dragoman.settings import EOS, PAD, SOS, TokenizerConfig

WORD = TokenizerConfig(kind="word", min_frequency=1)


LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), max_size=300)


def encoded(count: int) -> EncodedPairs:
    pairs = tiny_pairs(count)
    return encode_pairs(pairs, *train_tokenizers([a for a, _ in pairs], [b for _, b in pairs], WORD))


def sentence(side: EncodedSide, number: int) -> list[int]:
    return side.ids[side.offsets[number] : side.offsets[number + 1]].tolist()


@given(LENGTHS, st.integers(1, 300))
@settings(max_examples=200, deadline=None)
def test_plan_has_every_pair_once_and_keeps_the_limit(pairs: list[tuple[int, int]], budget: int) -> None:
    """Guards against pairs lost between batches, and batches that exceed memory."""
    source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    plan = batch_plan(source, target, budget, seed=1, epoch=2)
    assert sorted(np.concatenate([np.zeros(0, int), *plan]).tolist()) == list(range(len(pairs)))
    for rows in plan:
        assert len(rows) > 0
        assert len(rows) == 1 or len(rows) * max(source[rows].max(), target[rows].max()) <= budget


def test_plan_is_a_function_of_seed_and_epoch() -> None:
    """Guards against other batches after a resume, and against the same batches in every epoch."""
    source = np.random.default_rng(0).poisson(12, 2000) + 1
    target = source + np.random.default_rng(1).integers(0, 4, 2000)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in batch_plan(source, target, 1000, seed, epoch)]

    assert plan(1, 2) == plan(1, 2)
    for other in (plan(1, 3), plan(2, 2), plan(2, 1)):
        assert other != plan(1, 2)
        repeated = {frozenset(rows) for rows in other} & {frozenset(rows) for rows in plan(1, 2)}
        assert len(repeated) < len(other) / 10


def plain_plan(
    source_lengths: np.ndarray, target_lengths: np.ndarray, budget: int, seed: int, epoch: int
) -> list[list[int]]:
    """`batch_plan`, written as a loop over pairs."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    rows = []
    for number, (source, target) in enumerate(zip(source_lengths.tolist(), target_lengths.tolist(), strict=True)):
        lean = source - target + dataset.SHUFFLE_RANGE * random.random()
        rows.append((max(source, target), lean if max(source, target) % 2 else -lean, number))
    batches: list[list[int]] = [[]]
    for longest, _, number in sorted(rows):
        if batches[-1] and (len(batches[-1]) + 1) * longest > budget:
            batches.append([])
        batches[-1].append(number)
    return [batches[i] for i in random.permutation(len(batches))]


@pytest.mark.parametrize(("count", "long"), [(1, 1), (100, 1), (100_000, 1), (5000, 20), (5000, 6000)])
def test_plan_equals_that_of_a_plain_loop(count: int, long: int) -> None:
    """Guards against an optimised plan that differs, so that started runs could not resume, and against long lengths
    that overflow the small integers used for sorting."""
    random = np.random.default_rng(count)
    source = np.maximum(1, random.normal(13, 6, count).astype(int)) + 1
    source[::50] *= long
    target = np.maximum(1, source + random.normal(0, 3, count).astype(int))
    plan = batch_plan(source, target, 1000, seed=3, epoch=5)
    assert [rows.tolist() for rows in plan] == plain_plan(source, target, 1000, 3, 5)


def test_plan_of_real_text_has_little_padding() -> None:
    """Guards against the padding that results from sorting by one side only."""
    pairs = flickr()
    batches = [make_batch(pairs, indices) for indices in batch_plan(*pairs.lengths, 4096, seed=1, epoch=1)]
    tokens = sum(batch.tokens + batch.source_tokens for batch in batches)
    assert tokens == sum(int(lengths.sum()) for lengths in pairs.lengths)
    assert 1 - tokens / sum(batch.source.numel() + batch.target_out.numel() for batch in batches) < 0.043


@pytest.mark.parametrize("growth", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("epoch", range(3))
def test_plan_of_given_size(growth: float, epoch: int) -> None:
    """The number of updates must not change with the lengths. Guards against lost or repeated pairs, and uneven
    batches."""
    random = np.random.default_rng(epoch)
    before, other = (random.integers(2, 30, size=400) for _ in range(2))
    after = tuple(lengths + random.poisson(growth * lengths) for lengths in (before, other))
    count = len(batch_plan(before, other, 300, seed=1, epoch=0))
    plan = batch_plan_of_size(count, after[0], after[1], 300, 1, epoch)
    assert len(plan) == count
    assert sorted(np.concatenate(plan).tolist()) == list(range(400))
    sizes = [len(rows) * max(int(lengths[rows].max()) for lengths in after) for rows in plan]
    assert max(sizes) < 1.4 * 300 * (1 + growth)
    again = batch_plan_of_size(count, after[0], after[1], 300, 1, epoch)
    assert all(np.array_equal(one, other) for one, other in zip(plan, again, strict=True))


@cache
def flickr() -> EncodedPairs:
    """Multi30k English-German, as words."""
    paths = [SHARED / "multi30k" / f"train.{language}" for language in ("en", "de")]
    if not paths[0].exists():
        pytest.skip(f"the real text {paths[0]} is not here")
    english, german = (path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths)
    return encode_pairs(list(zip(english, german, strict=True)), *train_tokenizers(english, german, WORD))


def reference(pairs: EncodedPairs, indices: list[int]) -> dict[str, list[list[int]]]:
    """Make a batch row by row and position by position."""
    sources = [sentence(pairs.source, i) for i in indices]
    targets = [sentence(pairs.target, i) for i in indices]
    widths = [max(map(len, side)) + 1 for side in (sources, targets)]
    rows = {
        "source": [[*ids, EOS] for ids in sources],
        "target_in": [[SOS, *ids] for ids in targets],
        "target_out": [[*ids, EOS] for ids in targets],
    }
    width = dict(zip(rows, (widths[0], widths[1], widths[1]), strict=True))
    return {name: [row + [PAD] * (width[name] - len(row)) for row in part] for name, part in rows.items()}


@pytest.mark.parametrize("indices", [[0], [3, 1, 1, 40], list(range(50)), [49, 0]])
def test_batch_equals_one_made_row_by_row(indices: list[int]) -> None:
    """Guards the arithmetic on flat arrays: shifted rows, an end token that overwrites a word, padding before text."""
    pairs = encoded(50)
    batch = make_batch(pairs, np.array(indices))
    for name, rows in reference(pairs, indices).items():
        assert getattr(batch, name).tolist() == rows
        assert getattr(batch, name).dtype == torch.int64
    assert batch.indices.tolist() == indices
    assert batch.tokens == sum(len(sentence(pairs.target, i)) + 1 for i in indices)
    assert batch.source_tokens == sum(len(sentence(pairs.source, i)) + 1 for i in indices)
    holes = sum(int((side == PAD).sum()) for side in (batch.source, batch.target_out))
    assert batch.padding == pytest.approx(holes / (batch.source.numel() + batch.target_out.numel()))


def test_source_batch_equals_the_source_of_a_training_batch() -> None:
    """Guards against an end token that the encoder sees in training only."""
    pairs = encoded(20)
    indices = [7, 0, 12]
    batch = make_batch(pairs, np.array(indices))
    assert torch.equal(source_batch([sentence(pairs.source, i) for i in indices]), batch.source)
    assert source_batch([[5, 6], []]).tolist() == [[5, 6, EOS], [EOS, PAD, PAD]]


def test_ids_fit_their_array_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against ids above 65,535 that overflow, and against mistakes at the ends of chunks."""
    monkeypatch.setattr(dataset, "CHUNK", 1000)
    many = [f"w{number}" for number in range(66_000)]
    large = train_tokenizer(many, replace(WORD, vocab_size=100_000))
    side = encode_side(many, large)
    assert side.ids.dtype == np.int32
    assert large.decode_batch([sentence(side, number) for number in (0, 999, 1000, 65_999)]) == [
        many[number] for number in (0, 999, 1000, 65_999)
    ]
    assert encode_side(["w1 w2"], train_tokenizer(["w1 w2"], WORD)).ids.dtype == np.uint16


@given(st.lists(st.lists(st.integers(4, 99), min_size=1, max_size=5), max_size=20), st.data())
def test_take_keeps_sentences_whole(rows: list[list[int]], data: st.DataObject) -> None:
    """Guards against offsets that still count dropped sentences."""
    keep = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    side = EncodedSide.of(np.array([len(row) for row in rows], int), np.array([i for row in rows for i in row], int))
    kept = side.take(np.flatnonzero(keep))
    assert [sentence(kept, i) for i in range(sum(keep))] == [row for row, k in zip(rows, keep, strict=True) if k]
