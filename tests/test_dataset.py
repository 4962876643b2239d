"""Batches hold what the corpus holds, whatever the way they were made, and a corpus is prepared once and for all."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, SHARED, in_child, tiny_pairs, write_tsv
from dragoman import dataset
from dragoman.command_line import override
from dragoman.corpora import copying, preparation
from dragoman.corpora import report as report_module
from dragoman.corpora.mixing import rows_of
from dragoman.corpora.preparation import PreparedData, prepare_data, sampled
from dragoman.corpora.sources import SPLITS
from dragoman.corpora.splitting import assign
from dragoman.corpora.subwords import train_tokenizer, train_tokenizers
from dragoman.dataset import (
    Batch,
    EncodedPairs,
    EncodedSide,
    Pair,
    Tokenizer,
    batch_plan,
    batch_plan_of_size,
    encode_pairs,
    encode_side,
    make_batch,
    source_batch,
)
from dragoman.errors import DataChangedError, DataError
from dragoman.settings import EOS, PAD, SOS, UNK, Config, TokenizerConfig

WORD = TokenizerConfig(kind="word", min_frequency=1)
Make = Callable[..., Config]
LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), max_size=300)


def quiet(_: str) -> None:
    pass


def encoded(count: int) -> EncodedPairs:
    pairs = tiny_pairs(count)
    return encode_pairs(pairs, *train_tokenizers([a for a, _ in pairs], [b for _, b in pairs], WORD))


def sentence(side: EncodedSide, number: int) -> list[int]:
    return side.ids[side.offsets[number] : side.offsets[number + 1]].tolist()


@cache
def flickr() -> EncodedPairs:
    """Multi30k English-German, as words."""
    paths = [SHARED / "multi30k" / f"train.{language}" for language in ("en", "de")]
    if not paths[0].exists():
        pytest.skip(f"the real text {paths[0]} is not here")
    english, german = (path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths)
    return encode_pairs(list(zip(english, german, strict=True)), *train_tokenizers(english, german, WORD))


# --- The plan -----------------------------------------------------------------------------------------------------


@given(LENGTHS, st.integers(1, 300))
@settings(max_examples=200, deadline=None)
def test_a_plan_has_every_pair_once_within_the_budget(pairs: list[tuple[int, int]], budget: int) -> None:
    """Guards pairs lost at the cuts, and batches that do not fit into memory."""
    source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    plan = batch_plan(source, target, budget, seed=1, epoch=2)
    assert sorted(np.concatenate([np.zeros(0, int), *plan]).tolist()) == list(range(len(pairs)))
    for rows in plan:
        assert len(rows) > 0
        assert len(rows) == 1 or len(rows) * max(source[rows].max(), target[rows].max()) <= budget


def test_a_plan_fills_its_batches() -> None:
    """Guards a budget that is never used up, which trains with smaller batches than asked for."""
    lengths = np.full(95, 10)
    assert sorted(len(rows) for rows in batch_plan(lengths, lengths - 1, 100, 1, 1)) == [5, *[10] * 9]
    assert [len(rows) for rows in batch_plan(lengths, lengths, 9, 1, 1)] == [1] * 95


def test_a_plan_is_a_function_of_seed_and_epoch() -> None:
    """Guards a resumed run that sees other batches, and epochs that are all the same."""
    source = np.random.default_rng(0).poisson(12, 2000) + 1
    target = source + np.random.default_rng(1).integers(0, 4, 2000)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in batch_plan(source, target, 1000, seed, epoch)]

    assert plan(1, 2) == plan(1, 2)
    for other in (plan(1, 3), plan(2, 2), plan(2, 1)):
        assert other != plan(1, 2)
        repeated = {frozenset(rows) for rows in other} & {frozenset(rows) for rows in plan(1, 2)}
        assert len(repeated) < len(other) / 10


def test_a_plan_mixes_short_and_long_batches() -> None:
    """Guards an epoch that begins with all short sentences."""
    lengths = np.random.default_rng(0).integers(1, 40, size=20_000)
    means = np.array([lengths[rows].mean() for rows in batch_plan(lengths, lengths, 1000, 1, 1)])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


def plain_plan(
    source_lengths: np.ndarray, target_lengths: np.ndarray, budget: int, seed: int, epoch: int
) -> list[list[int]]:
    """`batch_plan`, one pair after the other."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    rows = []
    for number, (source, target) in enumerate(zip(source_lengths.tolist(), target_lengths.tolist(), strict=True)):
        lean = source - target + dataset.STRAY * random.random()
        rows.append((max(source, target), lean if max(source, target) % 2 else -lean, number))
    batches: list[list[int]] = [[]]
    for longest, _, number in sorted(rows):
        if batches[-1] and (len(batches[-1]) + 1) * longest > budget:
            batches.append([])
        batches[-1].append(number)
    return [batches[i] for i in random.permutation(len(batches))]


@pytest.mark.parametrize(("count", "long"), [(1, 1), (100, 1), (100_000, 1), (5000, 20), (5000, 6000)])
def test_a_plan_of_many_pairs_is_what_a_plain_loop_makes_it(count: int, long: int) -> None:
    """Guards a faster plan that is another plan, with which no run that has begun could go on, and long sentences that
    are taken for short ones where lengths are sorted in few bits."""
    random = np.random.default_rng(count)
    source = np.maximum(1, random.normal(13, 6, count).astype(int)) + 1
    source[::50] *= long
    target = np.maximum(1, source + random.normal(0, 3, count).astype(int))
    plan = batch_plan(source, target, 1000, seed=3, epoch=5)
    assert [rows.tolist() for rows in plan] == plain_plan(source, target, 1000, 3, 5)


def test_a_plan_of_real_text_is_full() -> None:
    """Guards the padding that comes with sorting by one side, or by one side after the other."""
    pairs = flickr()
    batches = [make_batch(pairs, indices) for indices in batch_plan(*pairs.lengths, 4096, seed=1, epoch=1)]
    tokens = sum(batch.tokens + batch.source_tokens for batch in batches)
    assert tokens == sum(int(lengths.sum()) for lengths in pairs.lengths)
    assert 1 - tokens / sum(batch.source.numel() + batch.target_out.numel() for batch in batches) < 0.043


# --- Batches ------------------------------------------------------------------------------------------------------


def reference(pairs: EncodedPairs, indices: list[int]) -> dict[str, list[list[int]]]:
    """What a batch must be, row by row and position by position."""
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
def test_a_batch_is_what_row_by_row_makes_it(indices: list[int]) -> None:
    """Guards the arithmetic over flat arrays: shifts of a row, ends that overwrite a word, padding before text."""
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


def equal(one: Batch, other: Batch) -> bool:
    tensors = all(torch.equal(getattr(one, n), getattr(other, n)) for n in ("source", "target_in", "target_out"))
    counts = (one.tokens, one.source_tokens, one.indices.tolist())
    return tensors and counts == (other.tokens, other.source_tokens, other.indices.tolist())


def test_sentences_to_translate_are_batched_as_in_training() -> None:
    """Guards an end token that the encoder saw in training and misses in use."""
    pairs = encoded(20)
    indices = [7, 0, 12]
    batch = make_batch(pairs, np.array(indices))
    assert torch.equal(source_batch([sentence(pairs.source, i) for i in indices]), batch.source)
    assert source_batch([[5, 6], []]).tolist() == [[5, 6, EOS], [EOS, PAD, PAD]]


# --- Ids ----------------------------------------------------------------------------------------------------------


def test_ids_fit_their_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards ids above 65,535 that come back as other words, and ends of chunks."""
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
def test_a_selection_keeps_the_sentences_whole(rows: list[list[int]], data: st.DataObject) -> None:
    """Guards offsets that still count what was dropped."""
    keep = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    side = EncodedSide.of(np.array([len(row) for row in rows], int), np.array([i for row in rows for i in row], int))
    kept = side.where(np.array(keep, bool))
    assert [sentence(kept, i) for i in range(sum(keep))] == [row for row, k in zip(rows, keep, strict=True) if k]


# --- Preparing ----------------------------------------------------------------------------------------------------


def same(one: PreparedData, other: PreparedData) -> bool:
    arrays = [
        np.array_equal(getattr(getattr(one.train, side), part), getattr(getattr(other.train, side), part))
        for side in ("source", "target")
        for part in ("ids", "offsets")
    ]
    return all(arrays) and all(
        getattr(one, name) == getattr(other, name) for name in ("validation", "test", "report", "fingerprint")
    )


def test_a_prepared_corpus_is_the_corpus(tiny: Make, tmp_path: Path) -> None:
    """Guards sides or rows that are mixed up on the way from the file to the ids."""
    data = prepare_data(tiny(), tmp_path / "data", quiet)
    sources = data.source.decode_batch([sentence(data.train.source, i) for i in range(len(data.train))])
    targets = data.target.decode_batch([sentence(data.train.target, i) for i in range(len(data.train))])
    trained = list(zip(sources, targets, strict=True))
    assert sorted([*trained, *data.validation, *data.test]) == sorted(tiny_pairs(300))
    order = [pair for pair in tiny_pairs(300) if pair in set(trained)]
    assert trained == order


def test_preparing_twice_is_preparing_once(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a resumed run that tokenises again: subword training gives other ids in another process."""
    config = tiny(tokenizer__kind="bpe", tokenizer__vocab_size=300, tokenizer__shared=True)
    first = prepare_data(config, tmp_path / "data", quiet)

    def read_portions(*_: object) -> None:
        raise AssertionError("the corpus is read again")

    monkeypatch.setattr(preparation, "read_portions", read_portions)
    second = prepare_data(config, tmp_path / "data", quiet)
    assert same(first, second)
    assert second.source is second.target
    monkeypatch.setattr(preparation, "LARGE", 0)
    mapped = prepare_data(config, tmp_path / "data", quiet)
    assert same(first, mapped)
    assert isinstance(mapped.train.source.ids.base, np.memmap)


def test_a_changed_corpus_is_refused(tiny: Make, tmp_path: Path) -> None:
    """Guards a resumed run that goes on with other data than it began with, and says nothing."""
    config = tiny()
    before = prepare_data(config, tmp_path / "data", quiet)
    corpus = Path(config.data.train)
    text = corpus.read_bytes()
    corpus.write_bytes(text + b"the cat\til gatto\n")
    with pytest.raises(DataChangedError, match=r"data\.train: pairs\.tsv is not the file it was.*new run\.name"):
        prepare_data(config, tmp_path / "data", quiet)
    corpus.write_bytes(text)
    assert same(prepare_data(config, tmp_path / "data", quiet), before)


def test_a_changed_setting_is_refused(tiny: Make, tmp_path: Path) -> None:
    """Guards a setting that seems to be in force and is not, and one that is refused without need."""
    before = prepare_data(tiny(), tmp_path / "data", quiet)
    with pytest.raises(
        DataChangedError, match=r"data\.max_length was 128 and is 5; tokenizer\.kind was word and is bpe"
    ):
        prepare_data(tiny(data__max_length=5, tokenizer__kind="bpe"), tmp_path / "data", quiet)
    assert same(prepare_data(tiny(data__bleu_tokenize="char", training__lr=0.5), tmp_path / "data", quiet), before)


def test_a_lowered_corpus_is_one_in_lower_case(tiny: Make, tmp_path: Path) -> None:
    """Guards a split, a tokenizer or a report that still sees the letters as they were written."""
    files = [Path(tiny().data.train).with_name(f"{name}.tsv") for name in ("lower", "upper")]
    pairs = [(source.replace("cat", "cat²"), target) for source, target in tiny_pairs(200)]
    write_tsv(files[0], [(source.replace("²", "2"), target) for source, target in pairs])
    write_tsv(files[1], [(source.title(), target.upper()) for source, target in pairs])
    settings = {"data__lowercase": True, "data__normalize": "nfkc"}
    lower = prepare_data(tiny(data__train=files[0]), tmp_path / "lower", quiet)
    upper = prepare_data(tiny(data__train=files[1], **settings), tmp_path / "upper", quiet)
    assert same(replace(upper, origin=lower.origin, fingerprint=lower.fingerprint), lower)
    assert same(prepare_data(tiny(data__train=files[1], **settings), tmp_path / "upper", quiet), upper)


def test_a_small_lowered_corpus_is_split_by_its_own_letters(tiny: Make, tmp_path: Path) -> None:
    """Guards a corpus that is fine in lower case: as it was written, it would have had nothing to validate on."""
    sources = [f"The {a}{b}" for a in "abcdefgh" for b in "abcdefgh"]
    splits = {text: [assign(each, 0.05, 0.0) for each in (text, text.lower())] for text in sources}
    train = [text for text, both in splits.items() if both == ["train", "train"]]
    held_out = next(text for text, both in splits.items() if both == ["train", "validation"])
    file = write_tsv(tmp_path / "small.tsv", [(text, "Uno") for text in [*train, held_out]])
    settings = {"data__lowercase": True, "data__validation_fraction": 0.05, "data__test_fraction": 0.0}
    found = prepare_data(tiny(data__train=file, **settings), tmp_path / "data", quiet)
    assert found.validation == [(held_out.lower(), "uno")]


def test_data_of_a_time_before_a_setting_are_as_its_default_makes_them(tiny: Make, tmp_path: Path) -> None:
    """Guards old runs: refused because they do not name what nobody could set, or gone on with in lower case."""
    before = prepare_data(tiny(), tmp_path / "data", quiet)
    file = tmp_path / "data" / "report.json"
    summary = json.loads(file.read_text(encoding="utf-8"))
    for key in ("data.lowercase", "data.normalize"):
        del summary["origin"]["settings"][key]
    file.write_text(json.dumps(summary), encoding="utf-8")
    assert prepare_data(tiny(), tmp_path / "data", quiet).validation == before.validation
    for change, said in (("lowercase", "was False and is True"), ("normalize", "was nfc and is nfkc")):
        value = {"lowercase": True, "normalize": "nfkc"}[change]
        with pytest.raises(DataChangedError, match=rf"data\.{change} {said}"):
            prepare_data(tiny(**{f"data__{change}": value}), tmp_path / "data", quiet)


def test_a_corpus_that_is_gone_is_no_obstacle(tiny: Make, tmp_path: Path) -> None:
    """Guards a run that cannot go on elsewhere although its folder holds all it needs."""
    config = tiny()
    before = prepare_data(config, tmp_path / "data", quiet)
    Path(config.data.train).unlink()
    said: list[str] = []
    assert same(prepare_data(config, tmp_path / "data", said.append), before)
    assert "no such thing" in said[0]
    assert "Going on with what was prepared" in said[0]


def test_the_same_corpus_gives_the_same_fingerprint(tiny: Make, tmp_path: Path) -> None:
    """Guards a checkpoint that does not fit the very data it was trained on, and one that fits all."""
    one, two = (prepare_data(tiny(), tmp_path / name, quiet) for name in ("one", "two"))
    assert same(one, two)
    other = prepare_data(tiny(tokenizer__min_frequency=2), tmp_path / "three", quiet)
    assert other.fingerprint != one.fingerprint


@pytest.mark.parametrize("moment", ["fsync", "rename"])
def test_a_killed_preparation_leaves_nothing_half(tiny: Make, tmp_path: Path, moment: str) -> None:
    """Guards half a corpus that the next start takes for a whole one."""
    config, directory = tiny(), tmp_path / "run" / "data"

    def die(*_: object) -> None:
        os._exit(9)

    def killed() -> None:
        setattr(os, moment, die)
        prepare_data(config, directory, quiet)

    assert in_child(killed) == 9
    assert not directory.exists()
    assert same(prepare_data(config, directory, quiet), prepare_data(config, tmp_path / "other", quiet))
    assert [path.name for path in directory.parent.iterdir()] == ["data"]


@pytest.mark.parametrize(
    "name", ["train.source.npy", "train.target.offsets.npy", "source.tokenizer.json", "report.json"]
)
@pytest.mark.parametrize("damage", ["empty", "gone", "half"])
def test_damage_is_told(tiny: Make, tmp_path: Path, name: str, damage: str) -> None:
    """Guards errors of numpy and json that name neither the folder nor what to do."""
    prepare_data(tiny(), tmp_path / "data", quiet)
    path = tmp_path / "data" / name
    content = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(content[: len(content) // 2 if damage == "half" else 0])
    with pytest.raises(DataError, match=r"data is damaged \(.*delete it"):
        prepare_data(tiny(), tmp_path / "data", quiet)


def test_given_tokenizers_are_used(tiny: Make, tmp_path: Path) -> None:
    """Guards weights that were learnt with other ids than the data now have."""
    given_ones = train_tokenizers(["the cat"], ["il gatto"], WORD)
    data = prepare_data(tiny(), tmp_path / "data", quiet, given_ones)
    assert data.source.fingerprint == given_ones[0].fingerprint
    assert UNK in data.train.source.ids
    assert same(prepare_data(tiny(), tmp_path / "data", quiet, given_ones), data)
    with pytest.raises(DataChangedError, match="tokenizer"):
        prepare_data(tiny(), tmp_path / "data", quiet)


# --- The report ---------------------------------------------------------------------------------------------------


def corpus_of(tiny: Make, train: list[Pair], validation: list[Pair], **changes: object) -> Config:
    """A config whose training and validation pairs are the given ones."""
    folder = Path(tiny().data.train).parent
    paths = [write_tsv(folder / f"{name}.tsv", pairs) for name, pairs in (("mine", train), ("validation", validation))]
    return tiny(data__train=paths[0], data__validation=paths[1], data__test_fraction=0.0, **changes)


def test_the_report_counts_what_is_there(tiny: Make, tmp_path: Path) -> None:
    """Guards figures that are computed on the wrong side, split or text."""
    train = [("a b c d", "x y"), ("a b", "x"), ("a  rare", "x x x")]
    config = corpus_of(tiny, train, [("a rare a new", "x"), ("a b", "x")], tokenizer__min_frequency=2)
    report = prepare_data(config, tmp_path / "data", quiet).report
    source, target = report.sides
    assert (source.language, source.mean, source.median, source.longest) == ("en", 8 / 3, 2, 4)
    assert (source.vocabulary, source.left_out, source.unknown) == (7, 3, 2 / 6)
    assert (target.language, target.mean, target.longest, target.unknown) == ("it", 2, 3, 0)
    assert report.repeated == {"validation": 1, "test": 0}
    assert any("1 source sentences of validation stand in train, too" in warning for warning in report.warnings())
    saved = json.loads((tmp_path / "data" / "report.json").read_text(encoding="utf-8"))["report"]
    assert report_module.CorpusReport.of(saved) == report


def test_repeated_are_those_that_stand_in_training(tiny: Make, tmp_path: Path) -> None:
    """Guards a warning about sentences that validation and test share, or have twice, and training has not."""
    train = [(f"train {i}", "x") for i in range(50)]
    validation = [("both", "x"), ("train 7", "x"), ("train 7", "y"), ("train 8", "x")]
    test = write_tsv(tmp_path / "test.tsv", [("both", "x"), ("both", "y"), ("train 7", "z")])
    config = corpus_of(tiny, train, validation, data__test=test)
    assert prepare_data(config, tmp_path / "data", quiet).report.repeated == {"validation": 3, "test": 1}


def test_a_sample_is_spread_and_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards figures that change from one preparation to the next, and those of the first lines alone."""
    assert sampled(2000).tolist() == list(range(2000))
    monkeypatch.setattr(preparation, "SAMPLE", 2000)
    assert sampled(2000).tolist() == list(range(2000))
    monkeypatch.setattr(preparation, "SAMPLE", 200)
    chosen = sampled(2000).tolist()
    assert len(chosen) == len(set(chosen)) == 200
    assert chosen == sorted(chosen)
    assert abs(np.mean(chosen) - 1000) < 150
    assert sampled(2000).tolist() == chosen


def test_sentences_are_counted_in_a_sample(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a large corpus that is cut into sentences from end to end, and a sample that tells something else."""
    counted: list[str] = []

    def sentences(text: str, _: str) -> list[str]:
        counted.append(text)
        return text.split(". ")

    monkeypatch.setattr(preparation, "sentences", sentences)
    train = [("One. Two. Three" if i % 40 == 0 else "One", "Uno. Due" if i % 40 == 0 else "Uno") for i in range(4000)]
    config = corpus_of(tiny, train, [("One", "Uno")])
    exact = prepare_data(config, tmp_path / "all", quiet).report
    assert len(counted) == 8000
    assert [side.sentences for side in exact.sides] == [3, 2]
    monkeypatch.setattr(preparation, "SAMPLE", 1000)
    counted.clear()
    assert prepare_data(config, tmp_path / "sample", quiet).report == exact
    assert len(counted) == 2000


def test_a_share_of_train_is_never_repeated_in_it(tiny: Make, tmp_path: Path) -> None:
    """Guards validation on sentences that were learnt by heart."""
    report = prepare_data(tiny(), tmp_path / "data", quiet).report
    assert report.repeated == {"validation": 0, "test": 0}
    assert not report.warnings()


# --- Plain text ---------------------------------------------------------------------------------------------------

ALONE = ["--data.source_lang", "null", "--model.architecture", "decoder-only", "--tokenizer.shared", "true"]


def without_source(config: Config, *arguments: str) -> Config:
    """The config of a language model on the target side of its corpus."""
    return override(config, [*ALONE, *arguments])


def test_a_language_model_learns_the_target_side(tiny: Make, tmp_path: Path) -> None:
    """Guards a text that is cut, doubled or mixed up with its translation on the way to the ids, or on the way back
    from disk; guards sources in the batches, and words that are hidden as if they were copied."""
    config = without_source(tiny())
    first = prepare_data(config, tmp_path / "data", quiet)
    for data in (first, prepare_data(config, tmp_path / "data", quiet)):
        trained = data.target.decode_batch([sentence(data.train.target, i) for i in range(len(data.train))])
        pairs = [*(("", text) for text in trained), *data.validation, *data.test]
        assert sorted(pairs) == sorted(("", text) for _, text in tiny_pairs(300))
        assert data.validation
        assert data.test
        assert data.source is data.target
        assert data.train.source.ids.size == 0
        assert same(data, first)
        plan = batch_plan(*data.train.lengths, 100, seed=1, epoch=1)
        assert sum(map(len, plan)) == len(data.train)
        for rows in plan:
            batch = make_batch(data.train, rows)
            assert batch.source.tolist() == [[EOS]] * len(rows)
            hidden = copying.mask_copied_words(
                batch, copying.shared_words(data.source, data.target), 0.999999, np.random.default_rng(0)
            )
            assert equal(hidden, batch)


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
def test_text_is_counted_once_by_its_tokenizer(tiny: Make, tmp_path: Path, kind: str) -> None:
    """Guards a vocabulary of words below min_frequency, because text stood for both sides, or of the other language."""
    config = without_source(
        tiny(tokenizer__kind=kind, tokenizer__vocab_size=400, tokenizer__min_frequency=140, data__test_fraction=0)
    )
    data = prepare_data(config, tmp_path / "data", quiet)
    held_out = {text for _, text in data.validation}
    texts = [text for _, text in tiny_pairs(300) if text not in held_out]
    expected = train_tokenizer(texts, config.tokenizer)
    assert data.target.vocabulary.keys() == expected.vocabulary.keys()
    assert data.report.sides[1].left_out == expected.left_out
    twice = train_tokenizer([*texts, *texts], config.tokenizer)
    assert kind == "unigram" or data.target.vocabulary.keys() < twice.vocabulary.keys()  # or it would prove nothing


def test_the_report_on_text_tells_of_one_language(tiny: Make, tmp_path: Path) -> None:
    """Guards means of nothing, a second language that is not there, and figures by which input would be cut to
    nothing; guards texts that are dropped as uneven, being longer than no source at all."""
    train = [("a", "x y"), ("b", "x"), ("c", "x x rare"), ("d", "x " * 9), ("e", "")]
    config = corpus_of(tiny, train, [("a", "x new"), ("z", "x")], tokenizer__min_frequency=2)
    config = without_source(config, "--data.max_ratio", "1", "--data.max_length", "8")
    said: list[str] = []
    with np.errstate(all="raise"):
        report = prepare_data(config, tmp_path / "data", said.append).report
    assert said[1:] == ["training the tokenizers on 4 texts", "turning text into ids"]
    source, target = report.sides
    assert source == target
    assert (target.language, target.mean, target.longest, target.left_out, target.unknown) == ("it", 2, 3, 2, 1 / 3)
    assert report.counts["train"] == preparation.Count(read=5, empty=1, too_long=1)
    assert report.repeated == {"validation": 1, "test": 0}
    assert report.lines() == [
        "train: 5 texts; 1 are empty and are dropped; 1 are too long and are dropped",
        "validation: 2 texts",
        "test: 0 texts",
        "it: 2.0 tokens a sentence, half up to 2, 99 % up to 3, longest 3; vocabulary 6 (without 2 rarer words); "
        "33.33% of the validation tokens are unknown",
        "warning: 40% of the train texts are dropped: is the corpus what it should be, and data.max_length large "
        "enough?",
        "warning: 33% of the it validation tokens are unknown and will be written as [UNK]: set tokenizer.kind to bpe, "
        "or lower tokenizer.min_frequency.",
        "warning: 1 texts of validation stand in train, too: scores will flatter.",
    ]
    saved = json.loads((tmp_path / "data" / "report.json").read_text(encoding="utf-8"))["report"]
    assert report_module.CorpusReport.of(saved) == report


def test_text_that_is_all_too_long_is_told_so(tiny: Make, tmp_path: Path) -> None:
    """Guards advice to raise a limit that has no say."""
    config = without_source(tiny(), "--data.max_ratio", "2", "--data.max_length", "1")
    with pytest.raises(DataError, match=r"every training text is longer than data.max_length \(1\): set it higher"):
        prepare_data(config, tmp_path / "data", quiet)


def test_a_run_on_text_goes_on_with_text(tiny: Make, tmp_path: Path) -> None:
    """Guards a language model that is refused on resume for want of a source, and one that goes on as a translator."""
    config = without_source(tiny())
    before = prepare_data(config, tmp_path / "data", quiet)
    said: list[str] = []
    assert same(prepare_data(config, tmp_path / "data", said.append), before)
    assert not said
    with pytest.raises(DataChangedError, match=r"data\.source_lang was None and is en"):
        prepare_data(tiny(tokenizer__shared=True), tmp_path / "data", quiet)
    corpus = Path(config.data.train)
    corpus.write_bytes(corpus.read_bytes() + b"the cat\til gatto\n")
    with pytest.raises(DataChangedError, match=r"pairs\.tsv is not the file it was"):
        prepare_data(config, tmp_path / "data", quiet)


def test_the_phrasebook_is_text_too(tmp_path: Path) -> None:
    """Guards the bundled corpus, whose folder has other files beside its splits, and sources that count as repeated."""
    data = prepare_data(without_source(Config()), tmp_path / "data", quiet)
    tables = {split: (ROOT / "data" / "phrasebook" / f"{split}.tsv").read_text(encoding="utf-8") for split in SPLITS}
    texts = {split: [row.split("\t")[1] for row in table.splitlines()[1:]] for split, table in tables.items()}
    assert data.target.decode_batch([sentence(data.train.target, i) for i in range(100)]) == texts["train"][:100]
    assert [len(data.train), len(data.validation), len(data.test)] == [len(texts[split]) for split in SPLITS]
    assert data.validation == [("", text) for text in texts["validation"]]
    trained = set(texts["train"])
    repeated = {split: sum(text in trained for text in texts[split]) for split in ("validation", "test")}
    assert data.report.repeated == repeated


TWINS = [
    ("Anna met Zoltan, and Anna paid 40 euros.", "Anna ha incontrato Zoltan, e Anna ha pagato 40 euro."),
    ("no, in a taxi", "no, in taxi"),
]


def pair_with_twins() -> tuple[dataset.Batch, np.ndarray, Tokenizer, Tokenizer]:
    settings = TokenizerConfig(min_frequency=1)
    source, target = train_tokenizers(*dataset.unzip_pairs(TWINS), settings)
    encoded = dataset.encode_pairs(TWINS, source, target)
    return dataset.make_batch(encoded, np.arange(2)), copying.shared_words(source, target), source, target


def test_twins_are_names_and_numbers() -> None:
    """Guards false friends: a short word that is the same in both languages is seldom the same word."""
    _, twin, source, target = pair_with_twins()
    found = {source.decode([i]): target.decode([int(j)]) for i, j in enumerate(twin) if j >= 0}
    assert found == {word: word for word in ("Anna", "Zoltan", "40", "taxi")}
    pieces = TokenizerConfig(kind="bpe", vocab_size=300)
    assert (copying.shared_words(*train_tokenizers(["Anna"], ["Anna"], pieces)) == -1).all()


def test_copied_words_are_hidden_on_both_sides() -> None:
    """Guards what the model learns from: [UNK] on one side alone would teach it to drop or to invent words."""
    batch, twin, source, target = pair_with_twins()
    random = np.random.default_rng(0)
    all_hidden = copying.mask_copied_words(batch, twin, 0.999999, random)
    assert source.decode(all_hidden.source[0].tolist()) == "[UNK] met [UNK], and [UNK] paid [UNK] euros."
    assert (
        target.decode(all_hidden.target_out[0].tolist()) == "[UNK] ha incontrato [UNK], e [UNK] ha pagato [UNK] euro."
    )
    for _ in range(50):
        hidden = copying.mask_copied_words(batch, twin, 0.3, random)
        texts = source.decode(hidden.source[0].tolist()), target.decode(hidden.target_out[0].tolist())
        for word in ("Anna", "Zoltan", "40"):
            assert texts[0].count(word) == texts[1].count(word) in (0, TWINS[0][0].count(word))
        assert torch.equal(hidden.target_in[:, 1:] == UNK, hidden.target_out[:, :-1] == UNK)
    untouched = copying.mask_copied_words(batch, twin, 0.0, random)
    assert torch.equal(untouched.source, batch.source)
    assert torch.equal(untouched.target_in, batch.target_in)


@pytest.mark.slow
def test_the_benchmark_of_scaling_works(tmp_path: Path) -> None:
    """Guards a table that nobody can make any more, and one that measures a preparation of other text."""
    command = [sys.executable, "benchmarks/scaling.py", "--sizes", "300", "900", "--seconds", "0.1", "--rounds", "1"]
    for _ in range(2):  # the second time with what the first has left
        done = subprocess.run([*command, "--work", tmp_path], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["prepare", "300", "900"]
    trained = preparation.load(tmp_path / "900" / "data").report.counts
    assert sum(count.read for count in trained.values()) == 900


@pytest.mark.parametrize("growth", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("epoch", range(3))
def test_a_plan_of_so_many_batches(growth: float, epoch: int) -> None:
    """Guards the number of updates, which must not change with the lengths, that no pair is lost or seen twice, and
    batches of one size."""
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


def test_a_plan_of_as_many_batches_as_pairs() -> None:
    """Guards the search for a limit where it ends: each pair alone, or all of them together."""
    lengths = np.array([5, 5, 9])
    assert list(map(len, batch_plan_of_size(1, lengths, lengths, 4, 1, 0))) == [3]
    assert sorted(map(len, batch_plan_of_size(3, lengths, lengths, 1000, 1, 0))) == [1, 1, 1]


def test_sentences_are_counted_with_their_capitals(tmp_path: Path) -> None:
    """Guards the length of what is translated at a time: a text in lower case has fewer sentences in it, of German for
    one, while what people type is cut by the capitals that it has."""
    pairs = [
        (f"Zwei Männer sitzen. Ein Hund {n} rennt. Es regnet.", f"two men sit, a dog {n} runs") for n in range(800)
    ]
    write_tsv(tmp_path / "pairs.tsv", pairs)
    words = ["--data.train", str(tmp_path / "pairs.tsv"), "--data.source_lang", "de", "--data.target_lang", "en"]
    counted = [
        prepare_data(override(Config(), [*words, "--data.lowercase", lower]), tmp_path / lower, print).report.sides[0]
        for lower in ("false", "true")
    ]
    assert [side.sentences for side in counted] == [3, 3]


def test_an_epoch_sees_each_pair_as_often_as_its_weight_says() -> None:
    """Guards the share of each corpus, and the number of rows, which must be the same in every epoch."""
    weights = np.array([1.0] * 50 + [2.5] * 40 + [0.25] * 40, np.float32)
    seen = [np.bincount(rows_of(weights, 1, epoch), minlength=len(weights)) for epoch in range(3)]
    for times in seen:
        assert (times[:50] == 1).all()
        assert sorted(times[50:90]) == [2] * 20 + [3] * 20
        assert sorted(times[90:]) == [0] * 30 + [1] * 10
    assert not np.array_equal(seen[0], seen[1])
    assert np.array_equal(rows_of(weights, 1, 2), rows_of(weights, 1, 2))
    assert not np.array_equal(rows_of(weights, 1, 2), rows_of(weights, 2, 2))


def test_weights_are_part_of_what_was_prepared(tiny: Make, tmp_path: Path) -> None:
    """Guards a resumed run whose corpora got other weights, which would be a change of the data in silence."""
    other = write_tsv(tmp_path / "other.tsv", [("hello.", "salve."), ("a b c d e f g h i.", "a."), ("bye.", "ciao.")])
    plain = tiny()
    several = tiny(data__train=f"{plain.data.train} + 3 * {other}", data__max_length=9)
    prepared = prepare_data(several, tmp_path / "data", quiet)
    assert prepared.weights is not None
    texts = prepared.source.decode_batch(
        [prepared.train.source.padded(np.array([i]))[0][0].tolist() for i in range(len(prepared.train))]
    )
    weight_of = dict(zip(texts, prepared.weights.tolist(), strict=True))
    assert {text: weight for text, weight in weight_of.items() if weight != 1} == {
        text: 3.0 for text in ("hello.", "bye.") if text in weight_of
    }
    assert 3.0 in weight_of.values()
    assert same(prepare_data(several, tmp_path / "data", quiet), prepared)
    for changed in (f"{plain.data.train} + 2 * {other}", f"{plain.data.train} + {other}", plain.data.train):
        with pytest.raises(DataChangedError):
            prepare_data(tiny(data__train=changed, data__max_length=9), tmp_path / "data", quiet)
    assert prepare_data(plain, tmp_path / "plain", quiet).weights is None


def test_weights_that_leave_nothing_are_refused(tiny: Make, tmp_path: Path) -> None:
    """Guards an epoch without a single batch, which would never end."""
    with pytest.raises(DataError, match=r"the weights in data\.train leave none of its .* pairs: raise them"):
        prepare_data(tiny(data__train=f"0.001 * {tiny().data.train}"), tmp_path / "data", quiet)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ("old.tsv", "new.tsv", True),
        ("owner/one", "owner/two", False),
        ("a.tsv + owner/one", "b.tsv + owner/one", True),
        ("a.tsv + owner/one", "a.tsv + owner/two", False),
        ("a.tsv", "a.tsv + owner/one", False),
    ],
)
def test_only_files_can_have_moved(before: str, after: str, moved: bool) -> None:
    """Guards a data set on the hub, whose content nothing tells, against another of several corpora that has moved."""
    files = {"data.train: a.tsv": "hash"} if ".tsv" in after else {}
    assert preparation._only_moved("data.train", before, after, files) == moved
