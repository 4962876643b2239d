"""Cases 20 to 27: each line of a corpus is used, or dropped and counted, or reported with its place."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import in_child, read_splits, tiny_config, tiny_pairs, write_tsv
from dragoman import checkpoint
from dragoman.__main__ import run as run_command
from dragoman.command_line import run_name
from dragoman.corpora.origin import check_unchanged, data_settings
from dragoman.corpora.preparation import PreparedData, prepare_data
from dragoman.corpora.sources import find_source, find_sources
from dragoman.corpora.splitting import PairCounts
from dragoman.dataset import Pair
from dragoman.errors import DataChangedError, DataError
from dragoman.settings import Config
from dragoman.text.cleaning import clean
from faults import untrained
from whole_corpus import read_corpus

Tiny = Callable[..., Config]
faults = pytest.mark.faults


def refusal(config: Config, code: int, capfd: pytest.CaptureFixture) -> str:
    """Return the one line with which a training refuses to start."""
    capfd.readouterr()
    assert in_child(lambda: run_command("train", config)) == code
    error = capfd.readouterr().err
    assert error.startswith("dragoman: error: ")
    assert error.count("\n") == 1
    return error


def parallel(folder: Path, source: bytes, target: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.en").write_bytes(source)
    (folder / "text.it").write_bytes(target)
    return folder / "text"


def lines(texts: list[str], end: str = "\n") -> bytes:
    return "".join(text + end for text in texts).encode()


def ready(config: Config, folder: Path) -> tuple[PreparedData, str]:
    """Return the prepared data and all messages."""
    said: list[str] = []
    data = prepare_data(config, folder, said.append)
    return data, "\n".join([*said, *data.report.lines()])


# ------------------------------------------------------------------------------------------------- 20: not text

BAD = {
    "latin-1": (b"perch\xe9", "byte 6: 0xe9 is not UTF-8"),
    "cut off": (b"caff\xc3", "byte 5: 0xc3 is not UTF-8"),
    "a surrogate": (b"a\xed\xa0\x80", "byte 2: 0xed is not UTF-8"),
    "overlong": (b"\xc0\xaf", "byte 1: 0xc0 is not UTF-8"),
    "NUL": (b"du\0e", "byte 3: a NUL"),
}


@faults
@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("side", [0, 1])
def test_20_bad_byte_is_located(tiny: Tiny, tmp_path: Path, kind: str, side: int, capfd: pytest.CaptureFixture) -> None:
    """Guards against U+FFFD in training text, and a message that leaves a million lines to search."""
    data, fragment = BAD[kind]
    sides = [lines(["one", "two", "three"]), lines(["uno", "due", "tre"])]
    sides[side] += data + b"\nmore\n"
    sides[1 - side] += b"altro\naltro\n"
    config = tiny(data__train=parallel(tmp_path / "bad", *sides))
    error = refusal(config, 3, capfd)
    assert f"text.{('en', 'it')[side]}:4, {fragment}" in error
    assert not (untrained.directory(config) / "data").exists()


@faults
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32"])
def test_20_other_encoding_is_refused(tiny: Tiny, tmp_path: Path, encoding: str, capfd: pytest.CaptureFixture) -> None:
    """Guards against a file of another system, full of NULs, also where bad lines are skipped."""
    text = "uno\ndue\n".encode(encoding)
    for choice in ("error", "skip"):
        config = tiny(data__train=parallel(tmp_path / "bad", b"one\ntwo\n", text), data__on_bad_line=choice)
        error = refusal(config, 3, capfd)
        assert choice == "skip" or f"text.it is {encoding.upper()}" in error or "text.it:1, byte" in error
        if not encoding.endswith("e"):  # it starts with a byte order mark
            assert f"text.it is {encoding.upper()}" in error


@faults
def test_20_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    """Guards against an unknown first word in a file from Windows, and in files that were joined."""
    mark = b"\xef\xbb\xbf"
    data = tiny_config(
        tmp_path, data__train=parallel(tmp_path, mark + b"one\r\n" + mark + b"two\r\n", mark + b"uno\ndue")
    )
    pairs = list(read_splits(find_source("train", data.data, data.data.train), data.data)["train"])
    assert pairs == [("one", "uno"), ("two", "due")]


def as_text(folder: Path, rows: list[tuple[bytes, bytes]]) -> Path:
    return parallel(folder, *(b"".join(row[side] + b"\n" for row in rows) for side in (0, 1)))


def as_tsv(folder: Path, rows: list[tuple[bytes, bytes]]) -> Path:
    (folder / "rows.tsv").write_bytes(b"".join(a + b"\t" + b + b"\n" for a, b in rows))
    return folder / "rows.tsv"


def as_csv(folder: Path, rows: list[tuple[bytes, bytes]]) -> Path:
    """Write cells of two lines, the second of which may be bad."""
    (folder / "rows.csv").write_bytes(b"".join(b'"' + a + b'","(\n' + b + b')"\n' for a, b in rows))
    return folder / "rows.csv"


def as_jsonl(folder: Path, rows: list[tuple[bytes, bytes]]) -> Path:
    (folder / "rows.jsonl").write_bytes(b"".join(b'{"en": "' + a + b'", "it": "' + b + b'"}\n' for a, b in rows))
    return folder / "rows.jsonl"


@faults
@pytest.mark.parametrize("write", [as_text, as_tsv, as_csv, as_jsonl])
def test_20_skip_drops_the_pair_and_counts_it(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Guards against a bad line dropped on one side only, after which every translation is wrong."""
    rows: list[tuple[bytes, bytes]] = [(f"one {i}".encode(), f"uno {i}".encode()) for i in range(40)]
    good = [f"one {i}" for i in range(40) if i not in (3, 4, 17, 39)]
    for i, side, data in ((3, 0, b"\xff"), (4, 1, b"caf\xe9"), (17, 1, b"\xed\xa0\x80"), (39, 0, b"a\0b")):
        if write is as_jsonl and data == b"a\0b":
            data = b"\\ud800"  # the equivalent in JSON
        rows[i] = (data, rows[i][1]) if side == 0 else (rows[i][0], data)
    path = write(tmp_path, rows)
    config = tiny_config(tmp_path, data__train=path, data__on_bad_line="skip")
    pairs, counts, _ = read_corpus(find_sources(config.data), config.data)
    assert sorted(pair for split in pairs.values() for pair in split) == sorted(
        (source, clean(source.replace("one", "( uno" if write is as_csv else "uno") + ")" * (write is as_csv)))
        for source in good
    )
    assert sum(count.unreadable for count in counts.values()) == 4
    assert sum(count.read for count in counts.values()) == 40
    _, said = ready(config, tmp_path / "data")
    assert "4 cannot be read and are dropped" in said
    with pytest.raises(DataError, match=rf"{path.stem}.*:\d"):
        ready(tiny_config(tmp_path, data__train=path), tmp_path / "other")


# -------------------------------------------------------------------------------------------------- 21: line counts


@pytest.mark.parametrize("target", [["uno", "due"], ["uno", "due", "tre", "quattro"], []])
def test_21_different_line_counts_are_refused(
    tiny: Tiny, tmp_path: Path, target: list[str], capfd: pytest.CaptureFixture
) -> None:
    """Guards against `zip`, which silently stops at the shorter file, and against keeping half a corpus."""
    config = tiny(data__train=parallel(tmp_path / "ragged", lines(["one", "two", "three"]), lines(target)))
    error = refusal(config, 3, capfd)
    assert "text.en has 3 lines" in error
    assert f"text.it has {len(target)}" in error
    assert not [path for path in untrained.directory(config).rglob("*") if path.name != ".lock"]


# ------------------------------------------------------------------------------------------------- 22: ends of lines

# What text files in Python, `splitlines` or libraries take for the end of a line.
ENDS = ["\r", "\u2028", "\u2029", "\x85", "\x0c", "\x0b", "\x1c", "\x1d", "\x1e", "\r\r", "\t", "\u00a0"]


@faults
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False], ids=["ended", "not ended"])
def test_22_only_lf_ends_a_line(tmp_path: Path, end: str, last: bool) -> None:
    """Guards against one file that slips by a line, the worst of all faults, since it is silent."""
    draw = random.Random(22)

    def text(word: str, i: int) -> str:
        return draw.choice(ENDS).join([f"{word}{i}", "a", "b"]) + "."

    sides = [[text(word, i) for i in range(1000)] for word in ("en", "it")]
    path = parallel(tmp_path, *(lines(side, end)[: None if last else -len(end)] for side in sides))
    data = tiny_config(tmp_path, data__train=path).data
    pairs = list(read_splits(find_source("train", data, data.train), data)["train"])
    counted = (tmp_path / "text.en").read_bytes().count(b"\n") + (not last)  # as `wc -l` does
    assert len(pairs) == counted == 1000
    assert pairs == list(zip(*sides, strict=True))
    prepared, _ = ready(tiny_config(tmp_path, data__train=path), tmp_path / "data")
    kept = [*prepared.validation, *prepared.test]
    assert kept
    assert set(kept) <= {(clean(a), clean(b)) for a, b in pairs}


# -------------------------------------------------------------------------------------------------- 23: an empty side


@faults
def test_23_pairs_without_a_side_are_dropped_and_counted(tmp_path: Path) -> None:
    """Guards against a source trained to mean nothing, unreported drops, and a changed order of the rest."""
    rows = ["one\tuno", "\tdue", "three\t \u00a0", "", "\u2028\x85\ttre", "four\tquattro", "five\tcinque"]
    for name in ("train", "validation"):
        (tmp_path / f"{name}.tsv").write_bytes(lines(rows))
    changes = {"data__validation": tmp_path / "validation.tsv", "data__test_fraction": 0.0}
    config = tiny_config(tmp_path, data__train=tmp_path / "train.tsv", **changes)
    pairs, counts, _ = read_corpus(find_sources(config.data), config.data)
    assert pairs["train"] == pairs["validation"] == [("one", "uno"), ("four", "quattro"), ("five", "cinque")]
    assert counts["train"] == counts["validation"] == PairCounts(read=7, empty=4)
    assert counts["train"].dropped == 4
    _, said = ready(config, tmp_path / "data")
    assert "train: 7 pairs; 4 lack a side and are dropped" in said


# --------------------------------------------------------------------------------------------------- 24: too long


def corpus_of(folder: Path, train_pairs: list[Pair], others: list[Pair], **changes: object) -> Config:
    paths = {
        f"data__{split}": write_tsv(folder / "given" / f"{split}.tsv", train_pairs if split == "train" else others)
        for split in ("train", "validation", "test")
    }
    return tiny_config(folder, **paths, **changes)


@faults
def test_24_too_long_pairs_are_dropped_from_training_only(tmp_path: Path) -> None:
    """Guards memory against a book on one line, and scores that improve because hard sentences are missing."""
    long = ("x " * 5000, "y " * 5000)
    pairs = [("a b c", "x"), ("a", "x y z"), ("a b", "x y"), ("a b", "x"), ("", "x"), long]
    others = [("a b c a b c", "x"), ("a", ""), long]
    data, said = ready(corpus_of(tmp_path, pairs, others, data__max_length=2), tmp_path / "data")
    assert len(data.train) == 2
    assert data.validation == data.test == [("a b c a b c", "x"), (clean(long[0]), clean(long[1]))]
    assert "train: 6 pairs; 1 lack a side and are dropped; 3 are too long and are dropped\n" in said
    assert "warning: 67% of the train pairs are dropped" in said
    with pytest.raises(DataError, match=r"every training pair is longer than data\.max_length \(1\)"):
        ready(corpus_of(tmp_path, pairs[:3], [("a", "x")], data__max_length=1), tmp_path / "other")


@faults
def test_24_uneven_pairs_are_dropped_from_training_only(tmp_path: Path) -> None:
    """Guards data.max_ratio exactly at its limit, and on both sides."""
    pairs = [("a b", "x"), ("a", "x y"), ("a b c", "x"), ("a", "x y z"), ("a b", "x y"), ("", "x"), ("a b c d", "x")]
    config = corpus_of(tmp_path, pairs, [("a b c d e", "x")], data__max_ratio=2, data__max_length=3)
    data, said = ready(config, tmp_path / "data")
    assert len(data.train) == 3
    assert data.validation == data.test == [("a b c d e", "x")]
    assert "1 lack a side and are dropped; 1 are too long and are dropped; 2 are too uneven and are dropped\n" in said
    with pytest.raises(DataError, match=r"or more uneven than data\.max_ratio \(1\): raise them"):
        ready(corpus_of(tmp_path, pairs[:2], [("a", "x")], data__max_ratio=1), tmp_path / "other")


@faults
def test_24_every_test_line_is_scored(tmp_path: Path) -> None:
    """A line of 10,000 letters is translated and counted like any other."""
    others = [*tiny_pairs(5, seed=7), ("cat " * 2500, "gatto")]
    config = corpus_of(
        tmp_path, tiny_pairs(40), others, training__max_steps=2, training__max_epochs=None, decoding__max_length=8
    )
    assert in_child(lambda: run_command("train", config)) == 0
    result = json.loads((untrained.directory(config) / "result.json").read_bytes())
    assert result["test"]["pairs"] == len(others)


# ------------------------------------------------------------------------------------------- 25: cells, rows, columns

FIELDS = [
    "null", "NA", "nan", "NaN", "None", "true", "1e5", "007", '"', '""', '"open', "it's", "#", "\\N", "\\t", "=1+1",
    "a, b", "-", "[EOS]", "</s>", "<pad>", "%s", "{}", "N/A", "#REF!",
]  # fmt: skip


@faults
def test_25_every_cell_is_text(tmp_path: Path) -> None:
    """Guards against readers that take "NA" for missing, or a quote for a cell that ends lines below."""
    pairs = [(f"{i} {a}", a) for i, a in enumerate(FIELDS)] + [(a, f"{i} {a}") for i, a in enumerate(FIELDS)]
    tsv = write_tsv(tmp_path / "cells.tsv", pairs)
    rows = [json.dumps({"source": a, "target": b}, ensure_ascii=False) for a, b in pairs]
    (tmp_path / "cells.jsonl").write_bytes(lines(rows))
    for path in (tsv, tmp_path / "cells.jsonl"):
        config = tiny_config(tmp_path, data__train=tsv, data__validation=path, data__test_fraction=0.0)
        source = find_source("validation", config.data, str(config.data.validation))
        assert list(read_splits(source, config.data)["validation"]) == pairs
        data, _ = ready(config, tmp_path / path.suffix[1:])
        assert data.validation == [(clean(a), clean(b)) for a, b in pairs]
        assert len(data.train) == len(pairs)


BROKEN = {
    "rows.tsv": (b"one\tuno\ntwo\n", "rows.tsv:2: 1 column"),
    "more.tsv": (b"en\tit\none\tuno\ttre\n", "more.tsv:2: 3 columns"),
    "half.jsonl": (b'{"en": "one", "it": "uno"}\n{"en": "two", "it": "d', "half.jsonl:2: this is not JSON"),
    "key.jsonl": (b'{"en": "one", "it": "uno"}\n{"en": "two"}\n', "key.jsonl:2: there is en, but"),
    "type.jsonl": (b'{"en": "one", "it": null}\n{"en": "two", "it": 2}\n', "type.jsonl:2, it: 2 is not text"),
    "deep.jsonl": (b"[" * 100_000, "deep.jsonl:1: this is not JSON of text"),
    "digits.jsonl": (b'{"en": ' + b"9" * 100_000 + b"}", "digits.jsonl:1: this is not JSON of text"),
    "quote.csv": (b'one,uno\n"two,due\n', "quote.csv:2"),
    "huge.csv": (b'one,"' + b"x" * 200_000 + b'"\n', "huge.csv:1"),
    "plain.parquet": (b"PAR1 no parquet PAR1", "plain.parquet cannot be read as parquet"),
}


@faults
@pytest.mark.parametrize("name", BROKEN)
def test_25_broken_row_is_reported_with_its_number(
    tiny: Tiny, tmp_path: Path, name: str, capfd: pytest.CaptureFixture
) -> None:
    """Guards against rows dropped silently, and library errors without a line or with a traceback."""
    content, fragment = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    assert fragment in refusal(tiny(data__train=tmp_path / name), 3, capfd)


# ------------------------------------------------------------------------------------------------ 26: another corpus


@pytest.fixture
def started(tmp_path: Path) -> Config:
    """Start a run, and leave it with a checkpoint."""
    folder = tmp_path / "first" / "text"
    sides = zip(*tiny_pairs(300), strict=True)
    config = tiny_config(tmp_path, data__train=parallel(folder, *map(lines, map(list, sides))).parent / "text")
    untrained.begin(config)
    return config


def moved(config: Config, **changes: object) -> Config:
    tiny = {"data__train": config.data.train, "training__max_steps": 2, "training__max_epochs": None} | changes
    return tiny_config(Path(config.run.dir).parent, **tiny)


@faults
@pytest.mark.parametrize("change", ["a line more", "a letter", "sides swapped"])
def test_26_changed_corpus_is_refused(started: Config, change: str, capfd: pytest.CaptureFixture) -> None:
    """Guards against a resumed run that silently continues with other data."""
    files = [Path(f"{started.data.train}.{language}") for language in ("en", "it")]
    texts = [file.read_bytes() for file in files]
    new = {
        "a line more": [text + b"more\n" for text in texts],
        "a letter": [texts[0], texts[1].replace(b"g", b"G", 1)],
        "sides swapped": texts[::-1],
    }[change]
    for file, text in zip(files, new, strict=True):
        file.write_bytes(text)
    error = refusal(moved(started), 2, capfd)
    assert "is not the same file" in error
    assert "train under a new run.name" in error
    for file, text in zip(files, texts, strict=True):
        file.write_bytes(text)
    assert in_child(lambda: run_command("train", moved(started))) == 0


@faults
def test_26_moved_corpus_is_the_same_corpus(started: Config, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Guards days of training against a folder's new name; a place with other files is refused."""
    old = Path(started.data.train).parent
    new = tmp_path / "elsewhere"
    old.rename(new)
    (new / "text.en").rename(new / "corpus.en")
    (new / "text.it").rename(new / "corpus.it")
    assert "did you mean" in refusal(moved(started, data__train=new / "copus"), 3, capfd)
    other = parallel(tmp_path / "other", lines(["one", "two"]), lines(["uno", "due"]))
    assert "is not the same file" in refusal(moved(started, data__train=other), 2, capfd)
    assert "data.train was" in refusal(moved(started, data__train="some-body/of-the-hub"), 2, capfd)
    assert in_child(lambda: run_command("train", moved(started, data__train=new / "corpus"))) == 0
    assert "the same files in another place" in capfd.readouterr().out
    steps = [
        int(path.name.removeprefix("step-")) for path in checkpoint.steps(untrained.directory(started) / "checkpoints")
    ]
    assert steps == [2, 1], "it resumed and did not start again"


@faults
def test_26_a_finished_run_refuses_other_data(started: Config, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Guards against data that are ignored because the run of that name is finished."""
    done = moved(started)
    assert in_child(lambda: run_command("train", done)) == 0
    assert in_child(lambda: run_command("train", done)) == 0
    assert "is finished" in capfd.readouterr().out
    other = parallel(tmp_path / "letters", lines(["one", "two"]), lines(["uno", "due"]))
    error = refusal(moved(started, data__train=other), 2, capfd)
    assert "data.train was" in error
    assert f"--run.name {run_name(str(other))}" in error


@faults
def test_26_renamed_folder_must_have_the_same_files(tmp_path: Path) -> None:
    """Files are compared by name and content: the name says which split a file is for."""
    folder = tmp_path / "corpus"
    write_tsv(folder / "train.tsv", tiny_pairs(50))
    write_tsv(folder / "validation.tsv", tiny_pairs(9, seed=2))
    before, _ = ready(tiny_config(tmp_path, data__train=folder), tmp_path / "data")
    folder.rename(tmp_path / "renamed")
    config = tiny_config(tmp_path, data__train=tmp_path / "renamed")
    after, said = ready(config, tmp_path / "data")
    assert after.fingerprint == before.fingerprint
    assert "data.train was" in said
    (tmp_path / "renamed" / "validation.tsv").rename(tmp_path / "renamed" / "test.tsv")
    with pytest.raises(DataChangedError, match=r"validation\.tsv is not the same file"):
        ready(config, tmp_path / "data")


@faults
def test_26_hub_data_set_cannot_have_moved(tmp_path: Path) -> None:
    """Guards against comparing no files with no files, which are always equal."""
    one, other = (tiny_config(tmp_path, data__train=f"Some-Body/{name}") for name in ("books", "films"))
    then = {"settings": data_settings(one, None), "files": {}}
    check_unchanged(then, one, pytest.fail, None)
    with pytest.raises(DataChangedError, match=r"data\.train was Some-Body/books and is Some-Body/films"):
        check_unchanged(then, other, pytest.fail, None)


@faults
def test_26_other_tokenizer_is_refused(started: Config, capfd: pytest.CaptureFixture) -> None:
    """Guards weights against ids that mean other words, due to a setting or to a file of the run."""
    assert "tokenizer.min_frequency was 1 and is 2" in refusal(moved(started, tokenizer__min_frequency=2), 2, capfd)
    data = untrained.directory(started) / "data"
    text = (data / "target.tokenizer.json").read_text(encoding="utf-8")
    (data / "target.tokenizer.json").write_text((data / "source.tokenizer.json").read_text(encoding="utf-8"))
    assert "other data" in refusal(moved(started), 4, capfd)
    (data / "target.tokenizer.json").write_text(text, encoding="utf-8")
    assert in_child(lambda: run_command("train", moved(started))) == 0


@faults
def test_26_run_of_an_older_version_resumes(started: Config) -> None:
    """Guards against a new setting, which old records cannot have: it counts as its default."""
    report = untrained.directory(started) / "data" / "report.json"
    saved = json.loads(report.read_bytes())
    for key in ("data.on_bad_line", "data.max_ratio"):
        saved["origin"]["settings"].pop(key)
    report.write_text(json.dumps(saved), encoding="utf-8")
    prepare_data(started, report.parent, pytest.fail)
    with pytest.raises(DataChangedError, match=r"data\.max_ratio was null and is 3\.0"):
        prepare_data(moved(started, data__max_ratio=3), report.parent, pytest.fail)


# ----------------------------------------------------------------------------------------------- 27: next to nothing


@faults
@pytest.mark.parametrize("content", ["", "\n", "\n\n\n", " \t \n", "one\tuno\n"], ids=repr)
def test_27_nothing_to_train_on_is_a_clear_error(
    tiny: Tiny, tmp_path: Path, content: str, capfd: pytest.CaptureFixture
) -> None:
    """Guards against division by zero, and epochs without a step that repeat forever."""
    (tmp_path / "few.tsv").write_text(content, encoding="utf-8")
    error = refusal(tiny(data__train=tmp_path / "few.tsv"), 3, capfd)
    assert "is empty: there is nothing to learn from" in error or "there is no pair for" in error


@faults
@pytest.mark.parametrize("split", ["validation", "test"])
def test_27_empty_split_is_reported_before_training(tmp_path: Path, split: str, capfd: pytest.CaptureFixture) -> None:
    """Guards against an empty file that would fail the first validation, hours later."""
    (tmp_path / "none.tsv").write_bytes(b"")
    config = tiny_config(tmp_path, **{f"data__{split}": tmp_path / "none.tsv"})
    assert f"data.{split}" in refusal(config, 3, capfd)


@faults
@pytest.mark.parametrize("count", [1, 3])
def test_27_corpus_smaller_than_a_batch_trains(tmp_path: Path, count: int) -> None:
    """Guards against gradient accumulation that waits for a second batch, and batches that must be full."""
    config = corpus_of(
        tmp_path, tiny_pairs(count), tiny_pairs(2, seed=5), training__accumulate=4, training__max_epochs=3
    )
    assert in_child(lambda: run_command("train", config)) == 0, "it must end"
    found = checkpoint.newest(untrained.directory(config) / "checkpoints", quarantine=False, warn=pytest.fail)
    assert found is not None
    assert found.step == 3
