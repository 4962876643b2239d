"""Every way to hold a corpus gives the same pairs, and a fault in one is told where it is."""

import csv
import json
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conftest import SHARED
from dragoman.corpora import sources as sources_module
from dragoman.corpora.cleaning import clean
from dragoman.corpora.readers import read_splits
from dragoman.corpora.sources import find_source, find_sources, parts_of
from dragoman.corpora.splitting import assign, hashes, read_corpus
from dragoman.dataset import UNSEEN, Pair
from dragoman.errors import DataError
from dragoman.settings import DataConfig

# Text that careless readers change: quotes, what looks like a missing value, and line breaks that are none.
PAIRS = [
    ('She said "hi".', "Disse «ciao»."),
    ("null", "NA"),
    ('An "unclosed quote, and a comma', "nan"),
    ("one\u2028two\x85three\x0bfour\x0cfive", "uno\u2028due"),
    ("", "senza inglese"),
    (" blanks ", "\u00a0spazi\u202f"),
    ("caf\u00e9", "cafe\u0301"),
    ("one\rtwo", "uno"),
    ("\ufeffa mark that begins no file", "\ufeff"),
]
# csv takes a CR for the end of a row, and no blanks at the beginning of a cell, which cleaning takes away anyway.
PLAIN = [(a.lstrip(" "), b.lstrip(" ")) for a, b in PAIRS if "\r" not in a]


def settings(train: object, **changes: object) -> DataConfig:
    return DataConfig(**{"source_lang": "en", "target_lang": "it", "train": str(train)} | changes)  # pyright: ignore


def read(train: object, **changes: object) -> list[Pair]:
    data = settings(train, **changes)
    return list(read_splits(find_source("train", data, data.train), data)["train"])


def write_lines(path: Path, lines: list[str], end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def write_parquet(path: Path, pairs: list[Pair]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"id": str(number), "translation": {"en": a, "it": b}} for number, (a, b) in enumerate(pairs)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def text(folder: Path) -> Path:
    write_lines(folder / "corpus.en", [pair[0] for pair in PAIRS])
    write_lines(folder / "corpus.it", [pair[1] for pair in PAIRS])
    return folder / "corpus"


def text_crlf_bom(folder: Path) -> Path:
    write_lines(folder / "corpus.en", ["\ufeff" + PAIRS[0][0], *(pair[0] for pair in PAIRS[1:])], "\r\n")
    (folder / "corpus.it").write_bytes("\n".join(pair[1] for pair in PAIRS).encode())  # the last line has no end
    return folder / "corpus"


def tsv(folder: Path) -> Path:
    return write_lines(folder / "corpus.tsv", [f"{a}\t{b}" for a, b in PAIRS])


def tsv_named(folder: Path) -> Path:
    return write_lines(folder / "corpus.tsv", ["it\tid\ten", *(f"{b}\t7\t{a}" for a, b in PAIRS)])


def csv_named(folder: Path) -> Path:
    with (folder / "corpus.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("source", "target"), *PLAIN])
    return folder / "corpus.csv"


def jsonl(folder: Path) -> Path:
    return write_lines(folder / "corpus.jsonl", [json.dumps({"translation": {"en": a, "it": b}}) for a, b in PAIRS])


def jsonl_columns(folder: Path) -> Path:
    rows = [json.dumps({"it": b, "en": a or None}, ensure_ascii=False) for a, b in PAIRS]
    return write_lines(folder / "corpus.jsonl", rows)


def parquet(folder: Path) -> Path:
    return write_parquet(folder / "corpus.parquet", PAIRS)


def folder_of_files(folder: Path) -> Path:
    write_lines(folder / "train.tsv", [f"{a}\t{b}" for a, b in PAIRS])
    write_lines(folder / "val.tsv", ["hello\tciao"])
    return folder


def hub_copy(folder: Path) -> Path:
    """A folder laid out like Helsinki-NLP/opus_books: a card that names configurations, and parquet files."""
    card = ["---", "configs:", "- config_name: en-it", "  data_files:"]
    for split, pairs in (("train", PAIRS), ("validation", PAIRS[:1])):
        write_parquet(folder / "en-it" / f"{split}-00000-of-00001.parquet", pairs)
        card += [f"  - split: {split}", f"    path: en-it/{split}-*"]
    write_lines(folder / "README.md", [*card, "---"])
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what `datasets` stores, and what it finds, to the test."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


# --- The same pairs from everywhere -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [text, text_crlf_bom, tsv, tsv_named, csv_named, jsonl, jsonl_columns, parquet, folder_of_files, hub_copy],
)
def test_every_format_gives_the_same_pairs(write: Callable[[Path], Path], tmp_path: Path) -> None:
    """Guards readers that swallow quotes, take "NA" for nothing, or break lines at U+2028."""
    assert read(write(tmp_path), config=None) == (PLAIN if write is csv_named else PAIRS)


def test_the_other_direction_is_the_same_corpus(tmp_path: Path) -> None:
    """Guards the sides changed over: configurations of the hub are named in one direction, and serve both."""
    folder = hub_copy(tmp_path)
    swapped = read(folder, config="en-it", source_lang="it", target_lang="en")
    assert swapped == [(b, a) for a, b in PAIRS]


def test_real_parallel_text_has_as_many_pairs_as_lines() -> None:
    """Guards lines lost or won: this text has tabs, no-break spaces and U+200B inside."""
    if not SHARED.exists():
        pytest.skip(f"the real text {SHARED} is not here")
    assert len(read(SHARED / "multi30k" / "train", target_lang="de")) == 29_000
    assert len(read(SHARED / "tatoeba-en-fr" / "train", target_lang="fr")) == 160_690


# --- Plain text ---------------------------------------------------------------------------------------------------


def a_side(folder: Path) -> Path:
    write_lines(folder / "corpus.it", [pair[1] for pair in PAIRS])
    return folder / "corpus"


def a_side_by_its_name(folder: Path) -> Path:
    return Path(f"{a_side(folder)}.it")


def txt(folder: Path) -> Path:
    return write_lines(folder / "book.txt", [pair[1] for pair in PAIRS])


def txt_in_a_folder(folder: Path) -> Path:
    write_lines(folder / "train.txt", [pair[1] for pair in PAIRS])
    write_lines(folder / "README.md", ["no text to learn from"])
    return folder


def column(folder: Path) -> Path:
    return write_lines(folder / "corpus.tsv", [pair[1] for pair in PAIRS])


def column_named(folder: Path) -> Path:
    with (folder / "corpus.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "id"), *((pair[1], 7) for pair in PLAIN)])
    return folder / "corpus.csv"


def jsonl_text(folder: Path) -> Path:
    return write_lines(folder / "corpus.jsonl", [json.dumps({"text": pair[1], "id": 7}) for pair in PAIRS])


def hub_copy_text(folder: Path) -> Path:
    """A folder laid out like a data set of plain text on the hub."""
    (folder / "data").mkdir()
    table = pyarrow.Table.from_pylist([{"text": pair[1]} for pair in PAIRS])
    pyarrow.parquet.write_table(table, folder / "data" / "train-00000-of-00001.parquet")
    return folder


BILINGUAL = [text, text_crlf_bom, tsv, tsv_named, csv_named, jsonl, jsonl_columns, parquet, folder_of_files, hub_copy]
ALONE = [a_side, a_side_by_its_name, txt, txt_in_a_folder, column, column_named, jsonl_text, hub_copy_text]


@pytest.mark.parametrize("write", [*BILINGUAL, *ALONE])
def test_every_format_gives_its_text(write: Callable[[Path], Path], tmp_path: Path) -> None:
    """Guards a language model that learns the other language, or both, or that needs a translation to begin."""
    expected = PLAIN if write in (csv_named, column_named) else PAIRS
    assert read(write(tmp_path), source_lang=None) == [("", target) for _, target in expected]


def test_the_language_goes_before_other_names(tmp_path: Path) -> None:
    """Guards a column that only happens to be there, such as the text from which a translation was made."""
    row = {"text": "one", "target": "eins", "it": "uno"}
    rows = write_lines(tmp_path / "a.jsonl", [json.dumps(row)])
    table = write_lines(tmp_path / "a.tsv", ["\t".join(row), "\t".join(row.values())])
    for path, language in ((rows, "it"), (table, "it"), (rows, "fr"), (table, "fr")):
        assert read(path, source_lang=None, target_lang=language) == [("", {"it": "uno", "fr": "eins"}[language])]


def test_what_is_packed_is_told_to_be_unpacked(tmp_path: Path) -> None:
    """Guards a hint at a file that is not there."""
    for name in ("pairs.tsv.gz", "train.en.xz", "train.it.xz"):
        write_lines(tmp_path / name, ["?"])
    for name, there in (("pairs", "pairs.tsv.gz"), ("pairs.tsv", "pairs.tsv.gz"), ("train", "train.en.xz")):
        with pytest.raises(DataError, match=rf"there is .*/{there}, which must be unpacked"):
            find_sources(settings(tmp_path / name))
    with pytest.raises(DataError, match=r"did you mean .*/pairs\.tsv\.gz\?"):
        find_sources(settings(tmp_path / "paris.tsv.gz"))


def test_a_name_that_no_file_can_have_is_told(tmp_path: Path) -> None:
    """Guards an error of the system about data, which was told as one of writing."""
    with pytest.raises(DataError, match="cannot be read: File name too long"):
        find_sources(settings(tmp_path / ("x" * 300)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("half", r"no such thing at .*: did you mean .*/half\.en\?"),
        ("half.en", r"a file of texts must end in \.tsv, \.csv, \.jsonl, \.parquet, \.txt, \.it\."),
        ("trian", r"no such thing at .*: did you mean .*/train\?"),
        ("two", r"there are .*two\.tsv and .*two\.txt: name the one"),
    ],
)
def test_text_that_is_not_there_is_told_with_what_is(name: str, message: str, tmp_path: Path) -> None:
    """Guards errors about a second side, which plain text has not, and a hint that is what was asked for."""
    for file in ("train.it", "half.en", "two.tsv", "two.txt"):
        write_lines(tmp_path / file, ["a"])
    with pytest.raises(DataError, match=message):
        find_sources(settings(tmp_path / name, source_lang=None))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"uno\nperch\xe9\n", r"a\.txt:2, byte 6: 0xe9 is not UTF-8"),
        ("a.txt", b"", r"is empty: there is nothing to learn from"),
        ("a.tsv", b"one\tuno\ttre\n", r"a\.tsv:1: 3 columns, but without a row of names there must be 1 or 2"),
        ("a.tsv", b"uno\n\ndue\ttre\n", r"a\.tsv:3: 2 columns, but the rows above have 1"),
        ("a.csv", b"one,uno\ndue\n", r"a\.csv:2: 1 column, but the rows above have 2"),
        ("a.csv", b"it,id\nuno,1\ndue\n", r"a\.csv:3: 1 column, but the first row names 2"),
        ("a.jsonl", b'["uno"]\n', r'a\.jsonl:1: a row must be an object such as \{"it": "\.\.\."\}'),
        ("a.jsonl", b'{"en": "one"}\n', r'a\.jsonl:1: there is en, but a row must be like \{"it": "\.\.\."\}'),
        ("a.jsonl", b'{"text": 1}\n', r"a\.jsonl:1, text: 1 is not text"),
    ],
)
def test_a_fault_of_text_is_told_with_its_place(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    """Guards a stray tab or comma that cuts a text in two, and examples of rows that would not do."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / name, source_lang=None)


def test_the_other_side_is_no_concern_of_text(tmp_path: Path) -> None:
    """Guards text that is lost, or refused, for the sake of a translation that nobody asked for."""
    (tmp_path / "a.en").write_bytes(b"perch\xe9\n")
    write_lines(tmp_path / "a.it", ["uno", "due"])
    assert read(tmp_path / "a", source_lang=None) == [("", "uno"), ("", "due")]
    rows = [{"en": None, "it": "uno"}, {"en": 1, "it": "due"}, {"it": "tre"}]
    path = write_lines(tmp_path / "b.jsonl", [json.dumps(row) for row in rows])
    assert read(path, source_lang=None) == [("", "uno"), ("", "due"), ("", "tre")]


def test_repeated_texts_stay_together(tmp_path: Path) -> None:
    """Guards all text in one split, that of the empty source, and a text that is learnt and tested; guards a count of
    empty sources, and an empty text that is not dropped."""
    rows = [f"sentence {i}\tfrase  {i % 500}" for i in range(2000)] + ["sentence\t", "\tfrase 1", "", " \t "]
    path = write_lines(tmp_path / "a.tsv", rows)
    data = settings(path, source_lang=None, validation_fraction=0.1, test_fraction=0.1)
    pairs, counts, _ = read_corpus(find_sources(data), data)
    texts = {split: {target for _, target in pairs[split]} for split in pairs}
    assert {source for split in pairs.values() for source, _ in split} == {""}
    assert all(texts.values())
    assert sum(map(len, texts.values())) == len(set.union(*texts.values())) == 500
    assert all(assign(text, 0.1, 0.1) == split for split in texts for text in texts[split])
    assert sum(map(len, pairs.values())) == 2001
    assert sum(count.read for count in counts.values()) == 2004
    assert sum(count.dropped for count in counts.values()) == sum(count.empty for count in counts.values()) == 3


def test_a_corpus_of_one_sentence_is_told_what_would_help(tmp_path: Path) -> None:
    """Guards a count that leaves out where the pairs went, and the advice to validate on more of what is not there."""
    pairs = [f"{chr(number)}\tuno" for number in range(97, 123)]
    [source] = [pair for pair in pairs if assign(pair[0], 0.1, 0.0) == "validation"][:1]
    data = settings(write_lines(tmp_path / "a.tsv", [source] * 20), validation_fraction=0.1, test_fraction=0.0)
    with pytest.raises(DataError, match=r"no pair for train among 20 .* or smaller data\.validation_fraction"):
        read_corpus(find_sources(data), data)


def test_text_too_small_to_validate_on_is_refused(tmp_path: Path) -> None:
    """Guards advice about pairs to somebody who has none."""
    data = settings(write_lines(tmp_path / "a.txt", ["uno"]), source_lang=None)
    with pytest.raises(DataError, match=r"no text for validation among 1 .*more texts are needed"):
        read_corpus(find_sources(data), data)


# --- Finding ------------------------------------------------------------------------------------------------------


def test_a_path_is_sought_here_then_beside_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a bundled corpus that is found from one folder only."""
    program, here = tmp_path / "program", tmp_path / "here"
    write_lines(program / "data" / "train.tsv", ["theirs\tloro"])
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sources_module, "__file__", str(program / "corpus.py"))
    assert read("data") == [("theirs", "loro")]
    write_lines(here / "data" / "train.tsv", ["mine\tmio"])
    assert read("data") == [("mine", "mio")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trian", r"no such thing at .*: did you mean .*/train\?"),
        ("nothing-like-it", r"no such thing at .*; .* has half\.en, notes\.txt, train\.tsv\."),
        ("no/folder/train", r"no such thing at .*; its folder does not exist"),
        ("half", r"half is the beginning of parallel text, but .*half\.it is missing"),
        ("half.en", r"must end in \.tsv, .*: for parallel text leave out the language, as in .*half\."),
        ("notes.txt", r"must end in \.tsv, \.csv, \.jsonl, \.parquet\."),
    ],
)
def test_what_is_not_there_is_told_with_what_is(name: str, message: str, tmp_path: Path) -> None:
    """Guards the bare 'file not found', which leaves a typing mistake to be searched for."""
    for file in ("train.tsv", "half.en", "notes.txt"):
        write_lines(tmp_path / file, ["a\tb"])
    with pytest.raises(DataError, match=message):
        find_sources(settings(tmp_path / name))


def test_two_tables_for_one_split_are_refused(tmp_path: Path) -> None:
    """Guards a choice that nobody made."""
    write_lines(tmp_path / "train.tsv", ["a\tb"])
    write_lines(tmp_path / "train.csv", ["a,b"])
    with pytest.raises(DataError, match=r"train\.tsv and .*train\.csv: name the one"):
        find_sources(settings(tmp_path))


def test_hashes_follow_the_content_not_the_place(tmp_path: Path) -> None:
    """Guards a run that is refused because its folder was moved, or goes on though a line was added."""
    first, second = folder_of_files(tmp_path / "a" / "corpus"), folder_of_files(tmp_path / "b" / "corpus")
    one, two = (hashes(find_sources(settings(folder))) for folder in (first, second))
    assert one == two
    assert list(one) == ["data.train: corpus/train.tsv", "data.train: corpus/val.tsv"]
    with (second / "train.tsv").open("a") as file:
        file.write("more\taltro\n")
    assert hashes(find_sources(settings(second))) != one


# --- Data sets of the hub -----------------------------------------------------------------------------------------


def test_a_hub_out_of_reach_is_one_line_at_once() -> None:
    """Guards a page of traceback, and half a minute of silence before it."""
    began = time.monotonic()
    with pytest.raises(
        DataError, match=r"^data\.train \(Some-Body/some_books\) .* cannot be reached: .* files of your own"
    ):
        read("Some-Body/some_books", config="en-it")
    assert time.monotonic() - began < 10


def test_mistakes_about_a_data_set_tell_what_there_is(tmp_path: Path) -> None:
    """Guards errors that name neither the configuration nor the column that would have been right."""
    folder = hub_copy(tmp_path)
    with pytest.raises(DataError, match=r"'it-en' not found.*en-it.* Set data.config \(now it-en\).*both directions"):
        read(folder, config="it-en")
    with pytest.raises(DataError, match=r'row 1: there is en, it, but a row must be like \{"en": "...", "fr"'):
        read(folder, config="en-it", target_lang="fr")
    data = settings(folder, config="en-it", test=str(folder))
    with pytest.raises(DataError, match=r"has no split test, only train, validation"):
        read_splits(find_source("test", data, str(data.test)), data)


# --- Faults in files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", b"one\tuno\nperch\xe9\tx\n", r"a\.tsv:2, byte 6: 0xe9 is not UTF-8"),
        ("a.tsv", b"one\tuno\ntwo\0\tx\n", r"a\.tsv:2, byte 4: a NUL"),
        ("a.tsv", "one\tuno\n".encode("utf-16"), r"a\.tsv is UTF-16"),
        ("a.tsv", "one\tuno\n".encode("utf-16-le"), r"a\.tsv:1, byte 2: a NUL"),
        ("a.tsv", b"", r"is empty: there is nothing to learn from"),
        ("a.tsv", b"one\tuno\ttre\n", r"a\.tsv:1: 3 columns, but without a row of names there must be 2"),
        ("a.tsv", b"en\tit\none\tuno\nonly one\n", r"a\.tsv:3: 1 column, but the first row names 2"),
        ("a.csv", b'one,uno\n"two,due\n', r"a\.csv:2: unexpected end of data"),
        ("a.csv", b'one,uno\n"two" more,due\n', r"a\.csv:2: .*expected after '\"'"),
        ("a.jsonl", b'{"en": "one", "it": "uno"}\n{"en": "two", \n', r"a\.jsonl:2: this is no JSON: .* at column"),
        ("a.jsonl", b'["one", "uno"]\n', r'a\.jsonl:1: a row must be an object such as \{"en"'),
        ("a.jsonl", b'{"en": "one"}\n', r"a\.jsonl:1: there is en, but a row must be like"),
        ("a.jsonl", b'\n{"en": "one"}\n', r"a\.jsonl:2: there is en, but a row must be like"),
        ("a.jsonl", b'{"en": "one", "it": 1}\n', r"a\.jsonl:1, it: 1 is not text"),
        ("a.jsonl", b'{"en": "\\ud800", "it": "uno"}\n', r"a\.jsonl:1, en: '\\ud800' is not text"),
        ("a.parquet", b"no parquet at all", r"a\.parquet cannot be read as parquet"),
    ],
)
def test_a_fault_is_told_with_its_place(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    """Guards U+FFFD in the training text, rows dropped in silence, and errors of libraries without a line."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("layout", ["a.parquet", "en-it/train-00000-of-00001.parquet"])
def test_parquet_that_is_not_utf8_is_told_with_its_place(layout: str, tmp_path: Path) -> None:
    """Guards against a traceback: Arrow takes any bytes for text, and finds out when they are read."""
    texts = [[b"one", b"caf\xe9"], [b"uno", b"due"]]
    columns = [pyarrow.array(side, pyarrow.binary()).view(pyarrow.string()) for side in texts]
    file = tmp_path / "there" / layout
    file.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table(columns, ["en", "it"]), file)
    with pytest.raises(DataError, match=r"row 0: text that is not UTF-8"):
        read(file if layout == "a.parquet" else tmp_path / "there")


def test_a_blank_line_of_jsonl_is_an_empty_pair(tmp_path: Path) -> None:
    """Guards the blank line at the end of a file, which ended the training."""
    file = write_lines(tmp_path / "a.jsonl", ['{"en": "one", "it": "uno"}', "", " "])
    assert read(file) == [("one", "uno"), ("", ""), ("", "")]


def test_a_blank_after_a_comma_is_no_text(tmp_path: Path) -> None:
    """Guards quotes around every target, which a model then learns to write."""
    assert read(write_lines(tmp_path / "a.csv", ['"One, two", "Uno, due"', "three, tre"])) == [
        ("One, two", "Uno, due"),
        ("three", "tre"),
    ]


@pytest.mark.parametrize("suffix", ["tsv", "csv"])
def test_a_table_that_others_would_read_is_refused(suffix: str, tmp_path: Path) -> None:
    """Guards pairs lost in silence: of a folder laid out otherwise a quote swallowed lines, and NA was nothing."""
    mark = "\t" if suffix == "tsv" else ","
    rows = [f"{a}{mark}{b}" for a, b in (("en", "it"), ("NA", "null"), ('"Stop', "Fermo"), ("Go", "Va"))]
    table = write_lines(tmp_path / "there" / "data" / f"train-00000.{suffix}", rows if suffix == "tsv" else rows[:2])
    with pytest.raises(DataError, match=rf"has data/train-00000\.{suffix}, .*: name the files, as in data\.train: "):
        read(tmp_path / "there")
    assert ("NA", "null") in read(table)


def test_a_path_is_no_pattern(tmp_path: Path) -> None:
    """Guards the pairs of a sibling folder, which `*` in a name would bring along."""
    for name in ("news*2", "newsX2"):
        hub_copy(tmp_path / name)
    with pytest.raises(DataError, match=r"cannot have \* in its path"):
        read(tmp_path / "news*2", config="en-it")


@pytest.mark.parametrize(("english", "italian"), [(3, 5), (5, 3), (4, 5), (0, 2)])
def test_sides_of_unequal_length_are_told_with_both_lengths(english: int, italian: int, tmp_path: Path) -> None:
    """Guards pairs that are cut to the shorter file, and numbers that do not help to find the place."""
    write_lines(tmp_path / "a.en", ["one"] * english)
    write_lines(tmp_path / "a.it", ["uno"] * italian)
    with pytest.raises(DataError, match=rf"a\.en has {english} lines and .*a\.it has {italian}, but"):
        read(tmp_path / "a")


# --- Cleaning and splitting ---------------------------------------------------------------------------------------


@given(st.text())
@example("\u0339 \u0334")
def test_clean_text_is_clean(text: str) -> None:
    """Guards a second form of the same sentence, and tabs or line breaks, which the prepared files could not hold."""
    cleaned = clean(text)
    assert clean(cleaned) == cleaned == unicodedata.normalize("NFC", cleaned)
    assert cleaned.split() == cleaned.split(" ") or not cleaned
    letters = [sorted("".join(unicodedata.normalize("NFD", each).split())) for each in (cleaned, text)]
    assert letters[0] == letters[1]  # sorted, for two marks upon a letter may change places


def test_cleaning_keeps_what_is_not_white() -> None:
    """Guards NFKC, which would turn … into ... in every translation, and the loss of joiners in other scripts."""
    assert clean(" a\t\u00a0b\u2028c\x85 … ½ e\u0301 \u200d") == "a b c … ½ é \u200d"


TURNING = "HJTWYAΑΩιΣσ İſ™ﬁK²Å\u212a\u212b\u0331\u0345\u0301\u0307¨"
CLEANINGS = [DataConfig(lowercase=lowercase, normalize=form) for lowercase in (False, True) for form in ("nfc", "nfkc")]


@pytest.mark.parametrize("data", CLEANINGS, ids=lambda data: f"{data.normalize}-{data.lowercase}")
@given(text=st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(TURNING))))
@example(text="H\u0331 J\u030c Ά\u0345 ᾈ \u0345Α Ω\u0345\u0301 İ I\u0307 ſ\u0307 ™ ﬁ \u212a ² Å ΣΑΣ ϴ ᏸ \ua64a ¨")
def test_what_is_clean_stays_as_it_is(text: str, data: DataConfig) -> None:
    """Guards lower case before the normal form, or after it alone: then a text cleaned twice has other ids, as its
    pieces in translating have, and so has one whose accents came apart. The stand-in for addresses must stay."""
    cleaned = clean(text, data)
    assert clean(cleaned, data) == cleaned
    assert clean(unicodedata.normalize("NFD", text), data) == cleaned
    assert bool(cleaned) == bool(clean(text))
    assert unicodedata.is_normalized("NFKC" if data.normalize == "nfkc" else "NFC", cleaned)
    assert clean(UNSEEN, data) == UNSEEN
    if data.lowercase:
        assert cleaned == cleaned.lower()


@pytest.mark.parametrize(
    ("text", "nfc", "nfkc", "lower", "both"),
    [
        ("Straße ΟΔΟΣ", "Straße ΟΔΟΣ", "Straße ΟΔΟΣ", "straße οδος", "straße οδος"),
        ("İI", "İI", "İI", "i\u0307i", "i\u0307i"),
        ("ﬁ X² ™", "ﬁ X² ™", "fi X2 TM", "ﬁ x² ™", "fi x2 tm"),
        ("Ｗｉｄｅ！", "Ｗｉｄｅ！", "Wide!", "ｗｉｄｅ！", "wide!"),
        ("\u212a \u212b ſ", "K Å ſ", "K Å s", "k å ſ", "k å s"),
        ("H\u0331\u3000ẖ", "H\u0331 ẖ", "H\u0331 ẖ", "ẖ ẖ", "ẖ ẖ"),
    ],
)
def test_letters_become_what_the_settings_say(text: str, nfc: str, nfkc: str, lower: str, both: str) -> None:
    """Guards casefold, which makes Strasse of Straße and an everyday sigma of the last one, and a setting ignored."""
    assert [clean(text, data) for data in CLEANINGS] == [nfc, nfkc, lower, both]


def test_the_split_is_a_property_of_the_sentence() -> None:
    """Guards splits that depend on the order or the size of the corpus, and shares that are not the ones asked for."""
    sentences = [f"sentence {i}" for i in range(20_000)]
    splits = [assign(sentence, 0.02, 0.05) for sentence in sentences]
    assert abs(splits.count("test") / 20_000 - 0.05) < 0.005
    assert abs(splits.count("validation") / 20_000 - 0.02) < 0.004
    other = [assign(sentence, 0.3, 0.05) for sentence in sentences]
    assert [i for i, split in enumerate(splits) if split == "test"] == [i for i, s in enumerate(other) if s == "test"]
    # Written down: a hash that changes between versions or machines would move sentences from test to train.
    golden = {"Hello.": "train", "Hi!": "test", "Ciao.": "test", "Yes.": "train", "No.": "validation"}
    assert {sentence: assign(sentence, 0.3, 0.3) for sentence in golden} == golden


def test_repeated_sources_stay_together(tmp_path: Path) -> None:
    """Guards a test sentence whose other translation, or other spacing or casing, is in training."""
    rows = [f"{'sS'[i // 500 % 2]}entence  {i % 500}\tfrase {i}" for i in range(2000)]
    file = write_lines(tmp_path / "a.tsv", rows)
    data = settings(file, validation_fraction=0.1, test_fraction=0.1, lowercase=True)
    pairs, counts, _ = read_corpus(find_sources(data), data)
    sources = {split: {source for source, _ in pairs[split]} for split in pairs}
    assert all(sources.values())
    assert sum(map(len, sources.values())) == len(set.union(*sources.values())) == 500
    assert sum(count.read for count in counts.values()) == sum(map(len, pairs.values())) == 2000


def test_named_splits_go_before_own_ones_before_shares(tmp_path: Path) -> None:
    """Guards a share of train that is held back although there is a validation set, and the wrong one of two."""
    folder = tmp_path / "corpus"
    for split in ("train", "dev", "test"):
        write_lines(folder / f"{split}.tsv", [f"{split} {i}\tx" for i in range(200)])
    named = write_lines(tmp_path / "mine.tsv", ["mine\tmia"])
    data = settings(folder, test=str(named))
    pairs, *_ = read_corpus(find_sources(data), data)
    assert [len(pairs[split]) for split in pairs] == [200, 200, 1]
    assert pairs["validation"][7] == ("dev 7", "x")
    assert pairs["test"] == [("mine", "mia")]


def test_a_corpus_too_small_to_validate_on_is_refused(tmp_path: Path) -> None:
    """Guards a run that would fail at its first validation, long after it began."""
    data = settings(write_lines(tmp_path / "a.tsv", ["one\tuno"]))
    with pytest.raises(DataError, match=r"no pair for validation among 1 .*data\.validation_fraction"):
        read_corpus(find_sources(data), data)


# --- Several corpora ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("several", "parts"),
    [
        ("data/news", [(1, "data/news")]),
        ("data/c++ notes", [(1, "data/c++ notes")]),
        ("two\nlines", [(1, "two\nlines")]),
        ("data/news + 2.5 * data/letters", [(1, "data/news"), (2.5, "data/letters")]),
        ("0.1*a + owner/name + 3 * c.tsv", [(0.1, "a"), (1, "owner/name"), (3, "c.tsv")]),
    ],
)
def test_several_corpora_are_told_apart(several: str, parts: list[tuple[float, str]]) -> None:
    """Guards paths with a plus or a blank in them against what joins several."""
    assert parts_of(several) == parts


@pytest.mark.parametrize("several", ["a + ", "0 * a", "1.2.3 * a", "2 *", "1001 * a"])
def test_weights_that_make_no_sense_are_refused(several: str) -> None:
    """Guards a corpus that is left out in silence."""
    with pytest.raises(DataError, match=r"several corpora are named as in .* above 0 and up to 1000"):
        find_sources(settings(several))


def test_several_corpora_are_read_in_turn(tmp_path: Path) -> None:
    """Guards the weight of each pair, past pairs that are dropped or told off, and what each corpus brings for other
    splits; guards a sentence of both that stands in two splits."""
    one = [f"one {i}\tuno {i}" for i in range(300)] + ["\tvuoto", "one 1\tuno"]
    two = [f"one {i}\tdue {i}" for i in range(200)]
    write_lines(tmp_path / "one.tsv", one)
    write_lines(tmp_path / "two" / "train.tsv", two)
    data = settings(f"{tmp_path / 'one.tsv'} + 2.5 * {tmp_path / 'two'}", validation_fraction=0.1, test_fraction=0.1)
    pairs, counts, weights = read_corpus(find_sources(data), data)
    assert sum(count.read for count in counts.values()) == 502
    assert counts["train"].empty == 1
    assert weights == [2.5 if target.startswith("due") else 1.0 for _, target in pairs["train"]]
    assert 0 < weights.count(2.5) < len(weights)
    sources = {split: {source for source, _ in pairs[split]} for split in pairs}
    assert sum(map(len, sources.values())) == len(set.union(*sources.values())) == 300

    write_lines(tmp_path / "two" / "test.tsv", ["exam\tesame"])
    pairs, _, _ = read_corpus(find_sources(data), data)
    assert pairs["test"] == [("exam", "esame")]
    named = settings(data.train, test=str(write_lines(tmp_path / "own.tsv", ["own\tproprio"])))
    assert read_corpus(find_sources(named), named)[0]["test"] == [("own", "proprio")]


def test_files_of_several_corpora_have_names_of_their_own(tmp_path: Path) -> None:
    """Guards a change in one of two files that are called the same, in different folders."""
    for folder in ("a", "b"):
        write_lines(tmp_path / folder / "pairs.tsv", [f"{folder}\tx"])
    data = settings(f"{tmp_path / 'a' / 'pairs.tsv'} + {tmp_path / 'b' / 'pairs.tsv'}")
    before = hashes(find_sources(data))
    assert list(before) == ["data.train: pairs.tsv", "data.train (2): pairs.tsv"]
    write_lines(tmp_path / "a" / "pairs.tsv", ["other\tx"])
    after = hashes(find_sources(data))
    assert before["data.train: pairs.tsv"] != after["data.train: pairs.tsv"]
    assert before["data.train (2): pairs.tsv"] == after["data.train (2): pairs.tsv"]
