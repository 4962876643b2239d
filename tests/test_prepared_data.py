"""What a preparation makes of a corpus: ids, tokenizers, the report; and which changes it refuses."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import ROOT, in_child, tiny_pairs, write_tsv
from dragoman.command_line import override
from dragoman.corpora import data_report as report_module
from dragoman.corpora import preparation, prepared_files
from dragoman.corpora.data_report import CorpusReport, sample_indices
from dragoman.corpora.origin import has_only_moved
from dragoman.corpora.preparation import PreparedData, prepare_data
from dragoman.corpora.sources import SPLITS
from dragoman.corpora.splitting import PairCounts, assign_split
from dragoman.corpora.subwords import train_tokenizers
from dragoman.dataset import (
    Batch,
    EncodedSide,
    Pair,
    batch_plan,
    make_batch,
)
from dragoman.errors import DataChangedError, DataError
from dragoman.settings import EOS, UNK, Config, TokenizerConfig
from dragoman.text.full_stops import FullStops

WORD = TokenizerConfig(kind="word", min_frequency=1)


Make = Callable[..., Config]


def quiet(_: str) -> None:
    pass


def sentence(side: EncodedSide, number: int) -> list[int]:
    return side.ids[side.offsets[number] : side.offsets[number + 1]].tolist()


def equal(one: Batch, other: Batch) -> bool:
    tensors = all(torch.equal(getattr(one, n), getattr(other, n)) for n in ("source", "target_in", "target_out"))
    counts = (one.tokens, one.source_tokens, one.indices.tolist())
    return tensors and counts == (other.tokens, other.source_tokens, other.indices.tolist())


def same(one: PreparedData, other: PreparedData) -> bool:
    arrays = [
        np.array_equal(getattr(getattr(one.train, side), part), getattr(getattr(other.train, side), part))
        for side in ("source", "target")
        for part in ("ids", "offsets")
    ]
    return all(arrays) and all(
        getattr(one, name) == getattr(other, name) for name in ("validation", "test", "report", "fingerprint")
    )


def test_prepared_data_equal_the_corpus(tiny: Make, tmp_path: Path) -> None:
    """Guards against sides or rows mixed up between the file and the ids."""
    data = prepare_data(tiny(), tmp_path / "data", quiet)
    sources = data.source.decode_batch([sentence(data.train.source, i) for i in range(len(data.train))])
    targets = data.target.decode_batch([sentence(data.train.target, i) for i in range(len(data.train))])
    trained = list(zip(sources, targets, strict=True))
    assert sorted([*trained, *data.validation, *data.test]) == sorted(tiny_pairs(300))
    order = [pair for pair in tiny_pairs(300) if pair in set(trained)]
    assert trained == order


def test_second_preparation_loads_the_first(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a resumed run that tokenises again: subword training gives other ids in another process."""
    config = tiny(tokenizer__kind="bpe", tokenizer__vocab_size=300, tokenizer__shared=True)
    first = prepare_data(config, tmp_path / "data", quiet)

    def read_portions(*_: object) -> None:
        raise AssertionError("the corpus is read a second time")

    monkeypatch.setattr(prepared_files, "read_portions", read_portions)
    second = prepare_data(config, tmp_path / "data", quiet)
    assert same(first, second)
    assert second.source is second.target
    monkeypatch.setattr(prepared_files, "LARGE", 0)
    mapped = prepare_data(config, tmp_path / "data", quiet)
    assert same(first, mapped)
    assert isinstance(mapped.train.source.ids.base, np.memmap)


def test_changed_setting_is_refused(tiny: Make, tmp_path: Path) -> None:
    """Guards against a setting that is silently ignored, and against refusing harmless changes."""
    before = prepare_data(tiny(), tmp_path / "data", quiet)
    with pytest.raises(
        DataChangedError, match=r"data\.max_length was 128 and is 5; tokenizer\.kind was word and is bpe"
    ):
        prepare_data(tiny(data__max_length=5, tokenizer__kind="bpe"), tmp_path / "data", quiet)
    assert same(prepare_data(tiny(data__bleu_tokenize="char", training__lr=0.5), tmp_path / "data", quiet), before)


def test_lowercase_equals_a_corpus_in_lower_case(tiny: Make, tmp_path: Path) -> None:
    """Guards against a split, a tokenizer or a report that still sees the original case."""
    files = [Path(tiny().data.train).with_name(f"{name}.tsv") for name in ("lower", "upper")]
    pairs = [(source.replace("cat", "cat²"), target) for source, target in tiny_pairs(200)]
    write_tsv(files[0], [(source.replace("²", "2"), target) for source, target in pairs])
    write_tsv(files[1], [(source.title(), target.upper()) for source, target in pairs])
    settings = {"data__lowercase": True, "data__normalize": "nfkc"}
    lower = prepare_data(tiny(data__train=files[0]), tmp_path / "lower", quiet)
    upper = prepare_data(tiny(data__train=files[1], **settings), tmp_path / "upper", quiet)
    assert same(replace(upper, origin=lower.origin, fingerprint=lower.fingerprint), lower)
    assert same(prepare_data(tiny(data__train=files[1], **settings), tmp_path / "upper", quiet), upper)


def test_lowercase_corpus_is_split_by_its_lower_case_text(tiny: Make, tmp_path: Path) -> None:
    """In its original case, this corpus would have nothing to validate on."""
    sources = [f"The {a}{b}" for a in "abcdefgh" for b in "abcdefgh"]
    splits = {text: [assign_split(each, 0.05, 0.0) for each in (text, text.lower())] for text in sources}
    train = [text for text, both in splits.items() if both == ["train", "train"]]
    held_out = next(text for text, both in splits.items() if both == ["train", "validation"])
    file = write_tsv(tmp_path / "small.tsv", [(text, "Uno") for text in [*train, held_out]])
    settings = {"data__lowercase": True, "data__validation_fraction": 0.05, "data__test_fraction": 0.0}
    found = prepare_data(tiny(data__train=file, **settings), tmp_path / "data", quiet)
    assert found.validation == [(held_out.lower(), "uno")]


def test_setting_newer_than_the_data_counts_as_its_default(tiny: Make, tmp_path: Path) -> None:
    """Guards old runs: refused for lacking a setting that did not exist, or continued in lower case."""
    before = prepare_data(tiny(), tmp_path / "data", quiet)
    file = tmp_path / "data" / "report.json"
    summary = json.loads(file.read_text(encoding="utf-8"))
    for key in ("data.lowercase", "data.normalize"):
        del summary["origin"]["settings"][key]
    file.write_text(json.dumps(summary), encoding="utf-8")
    assert prepare_data(tiny(), tmp_path / "data", quiet).validation == before.validation
    for change, said in (("lowercase", "was false and is true"), ("normalize", "was nfc and is nfkc")):
        value = {"lowercase": True, "normalize": "nfkc"}[change]
        with pytest.raises(DataChangedError, match=rf"data\.{change} {said}"):
            prepare_data(tiny(**{f"data__{change}": value}), tmp_path / "data", quiet)


def test_missing_corpus_is_no_obstacle(tiny: Make, tmp_path: Path) -> None:
    """Guards against a run that cannot continue elsewhere although its folder has everything it needs."""
    config = tiny()
    before = prepare_data(config, tmp_path / "data", quiet)
    Path(config.data.train).unlink()
    said: list[str] = []
    assert same(prepare_data(config, tmp_path / "data", said.append), before)
    assert "no such thing" in said[0]
    assert "Continuing with the data prepared from it" in said[0]


def test_same_corpus_has_same_fingerprint(tiny: Make, tmp_path: Path) -> None:
    """Guards against a checkpoint that does not match its own data, and against one that matches any data."""
    one, two = (prepare_data(tiny(), tmp_path / name, quiet) for name in ("one", "two"))
    assert same(one, two)
    other = prepare_data(tiny(tokenizer__min_frequency=2), tmp_path / "three", quiet)
    assert other.fingerprint != one.fingerprint


@pytest.mark.parametrize("moment", ["fsync", "rename"])
def test_killed_preparation_leaves_no_partial_folder(tiny: Make, tmp_path: Path, moment: str) -> None:
    """Guards against half a corpus that the next start takes for a whole one."""
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
def test_damaged_file_is_reported(tiny: Make, tmp_path: Path, name: str, damage: str) -> None:
    """Guards against errors of numpy and json that name neither the folder nor a remedy."""
    prepare_data(tiny(), tmp_path / "data", quiet)
    path = tmp_path / "data" / name
    content = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(content[: len(content) // 2 if damage == "half" else 0])
    with pytest.raises(DataError, match=r"data is damaged \(.*delete it"):
        prepare_data(tiny(), tmp_path / "data", quiet)


ARRAYS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "id of no word": ("train.source.npy", lambda ids: np.where(ids == ids[0], 60_000, ids).astype(np.uint16)),
    "fractions": ("train.source.npy", lambda ids: ids.astype(np.float32)),
    "too few ids": ("train.target.npy", lambda ids: ids[:-1]),
    "backwards": ("train.target.offsets.npy", lambda offsets: np.concatenate([[0], offsets[-2::-1], offsets[-1:]])),
    "one sentence less": ("train.target.offsets.npy", lambda offsets: np.delete(offsets, 1)),
    "one number": ("train.source.offsets.npy", lambda offsets: offsets[0]),
}


@pytest.mark.parametrize("change", ARRAYS)
def test_arrays_that_are_no_training_pairs_are_reported(tiny: Make, tmp_path: Path, change: str) -> None:
    """Guards against well-formed files that cause a traceback or wrong batches when training reads them."""
    config = tiny(data__train=write_tsv(tmp_path / "pairs.tsv", tiny_pairs(60)))
    prepare_data(config, tmp_path / "data", quiet)
    name, changed = ARRAYS[change]
    np.save(tmp_path / "data" / name, changed(np.load(tmp_path / "data" / name)))
    with pytest.raises(DataError, match=r"data is damaged \(.*delete it"):
        prepare_data(config, tmp_path / "data", quiet)


@pytest.mark.parametrize("forged", [{"counts": 7}, {"sides": [7]}, {"repeated": {}, "counts": {"train": []}}])
def test_report_of_another_shape_is_reported(tiny: Make, tmp_path: Path, forged: dict[str, object]) -> None:
    """Guards against JSON that is well-formed, but not a report."""
    config = tiny(data__train=write_tsv(tmp_path / "pairs.tsv", tiny_pairs(60)))
    prepare_data(config, tmp_path / "data", quiet)
    path = tmp_path / "data" / "report.json"
    summary = json.loads(path.read_bytes())
    summary["report"] |= forged
    path.write_text(json.dumps(summary), encoding="utf-8")
    with pytest.raises(DataError, match=r"data is damaged \(.*delete it"):
        prepare_data(config, tmp_path / "data", quiet)


def test_header_that_is_no_python_is_reported(tiny: Make, tmp_path: Path) -> None:
    """Guards against a SyntaxError: numpy parses the header of an array as Python."""
    config = tiny(data__train=write_tsv(tmp_path / "pairs.tsv", tiny_pairs(60)))
    prepare_data(config, tmp_path / "data", quiet)
    path = tmp_path / "data" / "train.source.npy"
    path.write_bytes(path.read_bytes().replace(b"'shape': (", b"'shape': {"))
    with pytest.raises(DataError, match=r"train\.source\.npy is not an array"):
        prepare_data(config, tmp_path / "data", quiet)


def test_given_tokenizers_are_used(tiny: Make, tmp_path: Path) -> None:
    """Guards against weights trained with other ids than the data have."""
    given_ones = train_tokenizers(["the cat"], ["il gatto"], WORD)
    data = prepare_data(tiny(), tmp_path / "data", quiet, given_ones)
    assert data.source.fingerprint == given_ones[0].fingerprint
    assert UNK in data.train.source.ids
    assert same(prepare_data(tiny(), tmp_path / "data", quiet, given_ones), data)
    with pytest.raises(DataChangedError, match="tokenizer"):
        prepare_data(tiny(), tmp_path / "data", quiet)


def corpus_of(tiny: Make, train: list[Pair], validation: list[Pair], **changes: object) -> Config:
    """Make a config with these training and validation pairs."""
    folder = Path(tiny().data.train).parent
    paths = [write_tsv(folder / f"{name}.tsv", pairs) for name, pairs in (("mine", train), ("validation", validation))]
    return tiny(data__train=paths[0], data__validation=paths[1], data__test_fraction=0.0, **changes)


def test_report_of_a_small_corpus(tiny: Make, tmp_path: Path) -> None:
    """Guards against figures of the wrong side, split or text."""
    train = [("a b c d", "x y"), ("a b", "x"), ("a  rare", "x x x")]
    config = corpus_of(tiny, train, [("a rare a new", "x"), ("a b", "x")], tokenizer__min_frequency=2)
    report = prepare_data(config, tmp_path / "data", quiet).report
    source, target = report.sides
    assert (source.language, source.mean, source.median, source.longest) == ("en", 8 / 3, 2, 4)
    assert (source.vocabulary, source.left_out, source.unknown) == (15, 3, 2 / 6)
    assert (target.language, target.mean, target.longest, target.unknown) == ("it", 2, 3, 0)
    assert report.repeated == {"validation": 1, "test": 0}
    assert any("1 source sentences of validation are also in train" in warning for warning in report.warnings())
    saved = json.loads((tmp_path / "data" / "report.json").read_text(encoding="utf-8"))["report"]
    assert CorpusReport.of(saved) == report


def test_repeated_counts_only_pairs_of_training(tiny: Make, tmp_path: Path) -> None:
    """Guards against a warning about sentences that only validation and test share."""
    train = [(f"train {i}", "x") for i in range(50)]
    validation = [("both", "x"), ("train 7", "x"), ("train 7", "y"), ("train 8", "x")]
    test = write_tsv(tmp_path / "test.tsv", [("both", "x"), ("both", "y"), ("train 7", "z")])
    config = corpus_of(tiny, train, validation, data__test=test)
    assert prepare_data(config, tmp_path / "data", quiet).report.repeated == {"validation": 3, "test": 1}


def test_sample_is_spread_and_reproducible() -> None:
    """Guards against figures that change between preparations, and against those of the first lines only."""
    assert sample_indices(2000, 2000).tolist() == list(range(2000))
    chosen = sample_indices(2000, 200).tolist()
    assert len(chosen) == len(set(chosen)) == 200
    assert chosen == sorted(chosen)
    assert abs(np.mean(chosen) - 1000) < 150
    assert sample_indices(2000, 200).tolist() == chosen


def test_sentences_are_counted_in_a_sample(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against splitting all of a large corpus into sentences, and against a sample with another result."""
    counted: list[str] = []

    def split(text: str, *_: object) -> list[str]:
        counted.append(text)
        return text.split(". ")

    monkeypatch.setattr(report_module, "split_sentences", split)
    train = [("One. Two. Three" if i % 40 else "One", "Uno. Due" if i % 40 else "Uno") for i in range(4000)]
    config = corpus_of(tiny, train, [("One", "Uno")])
    exact = prepare_data(config, tmp_path / "all", quiet).report
    assert len(counted) == 8000
    assert [side.usual_sentences for side in exact.sides] == [3, 2]
    assert exact.sides[0].full_stops == {"en": FullStops.of(source for source, _ in train).json}
    monkeypatch.setattr(report_module, "SAMPLE", 1000)
    counted.clear()
    assert prepare_data(config, tmp_path / "sample", quiet).report == exact
    assert len(counted) == 2000


def test_validation_split_from_train_never_repeats_it(tiny: Make, tmp_path: Path) -> None:
    """Guards against validation on memorised sentences."""
    report = prepare_data(tiny(), tmp_path / "data", quiet).report
    assert report.repeated == {"validation": 0, "test": 0}
    assert not report.warnings()


ALONE = ["--data.source_lang", "null", "--model.architecture", "decoder-only", "--tokenizer.shared", "true"]


def without_source(config: Config, *arguments: str) -> Config:
    """Turn a config into that of a language model on the target side."""
    return override(config, [*ALONE, *arguments])


def test_large_validation_set_is_sampled(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards large corpora against validations that take hours; each time it is the same pairs."""
    config = tiny(data__validation_fraction=0.3)
    whole = prepare_data(config, tmp_path / "data", quiet).validation
    monkeypatch.setattr(preparation, "VALIDATED", 7)
    first, second = (prepare_data(config, tmp_path / "data", quiet).validation for _ in range(2))
    assert len(whole) > 2 * 7 == 2 * len(first)
    assert first == second == [pair for pair in whole if pair in first]
    assert whole.index(first[-1]) > len(whole) / 2


def test_language_model_gets_the_target_side(tiny: Make, tmp_path: Path) -> None:
    """Guards against text lost, doubled or mixed up with its translation on the way to the ids or back from disk,
    against sources in the batches, and against placeholders where nothing is copied."""
    config = without_source(tiny())
    first = prepare_data(config, tmp_path / "data", quiet)
    for data in (first, prepare_data(config, tmp_path / "data", quiet)):
        trained = data.target.decode_batch([sentence(data.train.target, i) for i in range(len(data.train))])
        pairs = [*(("", text) for text in trained), *data.validation, *data.test]
        assert sorted(pairs) == sorted(("", text) for _, text in tiny_pairs(300))
        assert data.validation
        assert data.test
        assert data.source is data.target
        assert not data.source.placeholders
        assert data.train.source.ids.size == 0
        assert same(data, first)
        plan = batch_plan(*data.train.lengths, 100, seed=1, epoch=1)
        assert sum(map(len, plan)) == len(data.train)
        for rows in plan:
            batch = make_batch(data.train, rows)
            assert batch.source.tolist() == [[EOS]] * len(rows)


def test_report_on_plain_text_has_one_language(tiny: Make, tmp_path: Path) -> None:
    """Guards against the mean of an empty side, a second language, prompts split at length 0, and texts dropped as more
    uneven than their empty source."""
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
    assert report.counts["train"] == PairCounts(read=5, empty=1, too_long=1)
    assert report.repeated == {"validation": 1, "test": 0}
    assert report.lines() == [
        "train: 5 texts; 1 are empty and are dropped; 1 are too long and are dropped",
        "validation: 2 texts",
        "test: 0 texts",
        "it: 2.0 tokens per sentence, half up to 2, 99 % up to 3, longest 3; vocabulary 6 (without 2 rarer words); "
        "33.33% of the validation tokens are unknown",
        "warning: 40% of the train texts are dropped: is this the right corpus, and is data.max_length large enough?",
        "warning: 33% of the it validation tokens are unknown and will be written as [UNK]: set tokenizer.kind to bpe, "
        "or lower tokenizer.min_frequency.",
        "warning: 1 texts of validation are also in train: its scores will be too good.",
    ]
    saved = json.loads((tmp_path / "data" / "report.json").read_text(encoding="utf-8"))["report"]
    assert CorpusReport.of(saved) == report


def test_plain_text_that_is_all_too_long(tiny: Make, tmp_path: Path) -> None:
    """Guards against advice to raise data.max_ratio, which plain text ignores."""
    config = without_source(tiny(), "--data.max_ratio", "2", "--data.max_length", "1")
    with pytest.raises(DataError, match=r"every training text is longer than data.max_length \(1\): raise it"):
        prepare_data(config, tmp_path / "data", quiet)


def test_language_model_resumes_with_its_text(tiny: Make, tmp_path: Path) -> None:
    """Guards against a language model that is refused on resume for lack of a source, or resumes as a translator."""
    config = without_source(tiny())
    before = prepare_data(config, tmp_path / "data", quiet)
    said: list[str] = []
    assert same(prepare_data(config, tmp_path / "data", said.append), before)
    assert not said
    with pytest.raises(DataChangedError, match=r"data\.source_lang was null and is en"):
        prepare_data(tiny(tokenizer__shared=True), tmp_path / "data", quiet)
    corpus = Path(config.data.train)
    corpus.write_bytes(corpus.read_bytes() + b"the cat\til gatto\n")
    with pytest.raises(DataChangedError, match=r"pairs\.tsv is not the same file"):
        prepare_data(config, tmp_path / "data", quiet)


def test_phrasebook_as_plain_text(tmp_path: Path) -> None:
    """Guards the bundled corpus: its folder has other files, and its sources must not count as repeated."""
    data = prepare_data(without_source(Config()), tmp_path / "data", quiet)
    tables = {split: (ROOT / "data" / "phrasebook" / f"{split}.tsv").read_text(encoding="utf-8") for split in SPLITS}
    texts = {split: [row.split("\t")[1] for row in table.splitlines()[1:]] for split, table in tables.items()}
    assert data.target.decode_batch([sentence(data.train.target, i) for i in range(100)]) == texts["train"][:100]
    assert [len(data.train), len(data.validation), len(data.test)] == [len(texts[split]) for split in SPLITS]
    assert data.validation == [("", text) for text in texts["validation"]]
    trained = set(texts["train"])
    repeated = {split: sum(text in trained for text in texts[split]) for split in ("validation", "test")}
    assert data.report.repeated == repeated


def test_sentences_are_counted_in_the_original_case(tmp_path: Path) -> None:
    """Lower-cased German has fewer recognisable sentences, but what users type is split by its capitals."""
    pairs = [
        (f"Zwei Männer sitzen. Ein Hund {n} rennt. Es regnet.", f"two men sit, a dog {n} runs") for n in range(800)
    ]
    write_tsv(tmp_path / "pairs.tsv", pairs)
    words = ["--data.train", str(tmp_path / "pairs.tsv"), "--data.source_lang", "de", "--data.target_lang", "en"]
    counted = [
        prepare_data(override(Config(), [*words, "--data.lowercase", lower]), tmp_path / lower, print).report.sides[0]
        for lower in ("false", "true")
    ]
    assert [side.usual_sentences for side in counted] == [3, 3]


def test_weights_are_part_of_the_prepared_data(tiny: Make, tmp_path: Path) -> None:
    """Guards against a resumed run whose corpora silently get other weights."""
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
    """Guards against an epoch without batches, which would never end."""
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
    """A data set on the hub has no files to compare, also when another corpus of the mixture has moved."""
    files = {"data.train: a.tsv": "hash"} if ".tsv" in after else {}
    assert has_only_moved("data.train", before, after, files) == moved
