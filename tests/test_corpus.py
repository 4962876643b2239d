"""Reading a corpus: every format gives the same pairs, and an error names its place."""

import csv
import io
import json
import time
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conftest import SHARED, read_splits
from dragoman import resources
from dragoman.corpora.origin import file_hashes
from dragoman.corpora.selection import rows_of
from dragoman.corpora.sources import find_source, find_sources, parse_mixture
from dragoman.corpora.splitting import assign_split
from dragoman.dataset import UNSEEN, Pair
from dragoman.errors import DataError
from dragoman.settings import DataConfig
from dragoman.text.cleaning import clean
from whole_corpus import read_corpus

# Text that careless readers change: quotes, apparent missing values, and characters that look like line breaks.
PAIRS = [
    ('She said "hi".', "Disse «ciao»."),
    ("null", "NA"),
    ('An "unclosed quote, and a comma', "nan"),
    ("one\u2028two\x85three\x0bfour\x0cfive", "uno\u2028due"),
    ("", "senza inglese"),
    (" blanks ", "\u00a0spazi\u202f"),
    ("caf\u00e9", "cafe\u0301"),
    ("one\rtwo", "uno"),
    ("a mark \ufeff that begins no file", "uno\ufeff"),
]
# csv ends a row at CR, and drops spaces at the start of a cell, which cleaning removes anyway.
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


def lines(*texts: str, end: str = "\n") -> bytes:
    return "".join(text + end for text in texts).encode()


def table(*rows: tuple[str, ...]) -> bytes:
    stream = io.StringIO()
    csv.writer(stream).writerows(rows)
    return stream.getvalue().encode()


ENGLISH, ITALIAN = zip(*PAIRS, strict=True)
# What data.train names, and the files of each shape.
SHAPES: dict[str, tuple[str, dict[str, bytes]]] = {
    "text": ("corpus", {"corpus.en": lines(*ENGLISH), "corpus.it": lines(*ITALIAN)}),
    "text with CRLF and a mark": (
        "corpus",
        {
            "corpus.en": b"\xef\xbb\xbf" + lines(*ENGLISH, end="\r\n"),
            "corpus.it": lines(*ITALIAN)[:-1],  # without a newline at the end
        },
    ),
    "tsv": ("corpus.tsv", {"corpus.tsv": lines(*map("\t".join, PAIRS))}),
    "tsv with names": ("corpus.tsv", {"corpus.tsv": lines("it\tid\ten", *(f"{b}\t7\t{a}" for a, b in PAIRS))}),
    "csv with names": ("corpus.csv", {"corpus.csv": table(("source", "target"), *PLAIN)}),
    "jsonl": (
        "corpus.jsonl",
        {"corpus.jsonl": lines(*(json.dumps({"translation": {"en": a, "it": b}}) for a, b in PAIRS))},
    ),
    "jsonl with fields": (
        "corpus.jsonl",
        {"corpus.jsonl": lines(*(json.dumps({"it": b, "en": a or None}, ensure_ascii=False) for a, b in PAIRS))},
    ),
    "folder": (".", {"train.tsv": lines(*map("\t".join, PAIRS)), "val.tsv": b"hello\tciao\n"}),
}
TEXTS: dict[str, tuple[str, dict[str, bytes]]] = {
    "a side": ("corpus", {"corpus.it": lines(*ITALIAN)}),
    "a side by its name": ("corpus.it", {"corpus.it": lines(*ITALIAN)}),
    "txt": ("book.txt", {"book.txt": lines(*ITALIAN)}),
    "txt in a folder": (".", {"train.txt": lines(*ITALIAN), "README.md": b"not to be learnt"}),
    "column": ("corpus.tsv", {"corpus.tsv": lines(*ITALIAN)}),
    "csv column with a name": ("corpus.csv", {"corpus.csv": table(("text", "id"), *((b, "7") for _, b in PLAIN))}),
    "jsonl text": ("corpus.jsonl", {"corpus.jsonl": lines(*(json.dumps({"text": b, "id": 7}) for b in ITALIAN))}),
}


def write(shape: str, folder: Path) -> Path:
    """Write the files of a shape, and return what data.train names."""
    folder.mkdir(parents=True, exist_ok=True)
    if shape == "hub":
        return hub_copy(folder)
    if shape == "parquet":
        return write_parquet(folder / "corpus.parquet", PAIRS)
    if shape == "text of the hub":
        (folder / "data").mkdir()
        rows = pyarrow.Table.from_pylist([{"text": text} for text in ITALIAN])
        pyarrow.parquet.write_table(rows, folder / "data" / "train-00000-of-00001.parquet")
        return folder
    name, files = (SHAPES | TEXTS)[shape]
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return folder / name


def hub_copy(folder: Path) -> Path:
    """Write a folder like Helsinki-NLP/opus_books: a card that names configurations, and parquet files."""
    card = ["---", "configs:", "- config_name: en-it", "  data_files:"]
    for split, pairs in (("train", PAIRS), ("validation", PAIRS[:1])):
        write_parquet(folder / "en-it" / f"{split}-00000-of-00001.parquet", pairs)
        card += [f"  - split: {split}", f"    path: en-it/{split}-*"]
    write_lines(folder / "README.md", [*card, "---"])
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own cache of `datasets`."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


# --- The same pairs from everywhere -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [*SHAPES, "parquet", "hub"])
def test_every_format_gives_the_same_pairs(shape: str, tmp_path: Path) -> None:
    """Guards against readers that swallow quotes, take "NA" for a missing value, or break lines at U+2028."""
    assert read(write(shape, tmp_path), config=None) == (PLAIN if shape.startswith("csv") else PAIRS)


def test_other_direction_swaps_the_sides(tmp_path: Path) -> None:
    """Hub configurations are named after one direction, but serve both."""
    folder = hub_copy(tmp_path)
    swapped = read(folder, config="en-it", source_lang="it", target_lang="en")
    assert swapped == [(b, a) for a, b in PAIRS]


def test_real_parallel_text_has_as_many_pairs_as_lines() -> None:
    """Guards against lines lost or gained: this text contains tabs, no-break spaces and U+200B."""
    if not SHARED.exists():
        pytest.skip(f"the real text {SHARED} is not here")
    assert len(read(SHARED / "multi30k" / "train", target_lang="de")) == 29_000
    assert len(read(SHARED / "tatoeba-en-fr" / "train", target_lang="fr")) == 160_690


# --- Plain text ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [*SHAPES, "parquet", "hub", *TEXTS, "text of the hub"])
def test_every_format_gives_plain_text(shape: str, tmp_path: Path) -> None:
    """Guards against a language model that learns the other language, or both, or needs a translation to start."""
    expected = PLAIN if shape.startswith("csv") else PAIRS
    assert read(write(shape, tmp_path), source_lang=None) == [("", target) for _, target in expected]


def test_column_of_the_language_comes_first(tmp_path: Path) -> None:
    """Guards against using another column of the file, such as the text that a translation was made from."""
    row = {"text": "one", "target": "eins", "it": "uno"}
    rows = write_lines(tmp_path / "a.jsonl", [json.dumps(row)])
    table = write_lines(tmp_path / "a.tsv", ["\t".join(row), "\t".join(row.values())])
    for path, language in ((rows, "it"), (table, "it"), (rows, "fr"), (table, "fr")):
        assert read(path, source_lang=None, target_lang=language) == [("", {"it": "uno", "fr": "eins"}[language])]


def test_packed_file_is_found_by_its_name_or_the_start_of_it(tmp_path: Path) -> None:
    """Guards against a hint at a file that does not exist, and against packed files that must be unpacked first."""
    for name in ("pairs.tsv.gz", "train.en.xz", "train.it.xz"):
        write_lines(tmp_path / name, ["?"])
    for name, there in (("pairs", ["pairs.tsv.gz"]), ("train", ["train.en.xz", "train.it.xz"])):
        [source] = find_sources(settings(tmp_path / name))
        assert [path.name for path in source.files] == there
    for name in ("paris.tsv.gz", "pairs.tsv"):
        with pytest.raises(DataError, match=r"did you mean .*/pairs\.tsv\.gz\?"):
            find_sources(settings(tmp_path / name))


def test_impossible_file_name(tmp_path: Path) -> None:
    """Guards against an error about reading data that was reported as one of writing."""
    with pytest.raises(DataError, match="cannot be read: File name too long"):
        find_sources(settings(tmp_path / ("x" * 300)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("half", r"no such thing at .*: did you mean .*/half\.en\?"),
        ("half.en", r"a file of texts must end in \.tsv, \.csv, \.txt, .*, \.zip, \.it\."),
        ("trian", r"no such thing at .*: did you mean .*/train\.it\?"),
        ("two", r"there are .*two\.tsv and .*two\.txt: name the right one"),
    ],
)
def test_missing_plain_text_names_what_exists(name: str, message: str, tmp_path: Path) -> None:
    """Guards against errors about a second side, which plain text lacks, and hints that repeat the request."""
    for file in ("train.it", "half.en", "two.tsv", "two.txt"):
        write_lines(tmp_path / file, ["a"])
    with pytest.raises(DataError, match=message):
        find_sources(settings(tmp_path / name, source_lang=None))


def test_plain_text_ignores_the_other_side(tmp_path: Path) -> None:
    """Guards against text lost or refused because of a translation that nobody needs."""
    (tmp_path / "a.en").write_bytes(b"perch\xe9\n")
    write_lines(tmp_path / "a.it", ["uno", "due"])
    assert read(tmp_path / "a", source_lang=None) == [("", "uno"), ("", "due")]
    rows = [{"en": None, "it": "uno"}, {"en": 1, "it": "due"}, {"it": "tre"}]
    path = write_lines(tmp_path / "b.jsonl", [json.dumps(row) for row in rows])
    assert read(path, source_lang=None) == [("", "uno"), ("", "due"), ("", "tre")]


# --- Finding ------------------------------------------------------------------------------------------------------


def test_path_is_looked_up_here_then_beside_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a bundled corpus that is found from one folder only."""
    program, here = tmp_path / "program", tmp_path / "here"
    write_lines(program / "data" / "train.tsv", ["theirs\tloro"])
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(resources, "HOME", program)
    assert read("data") == [("theirs", "loro")]
    write_lines(here / "data" / "train.tsv", ["mine\tmio"])
    assert read("data") == [("mine", "mio")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trian", r"no such thing at .*: did you mean .*/train\.tsv\?"),
        ("nothing-like-it", r"no such thing at .*; .* has half\.en, notes\.doc, train\.tsv\."),
        ("no/folder/train", r"no such thing at .*; its folder does not exist"),
        ("half", r"half is one side of parallel text, but .*half\.it is missing"),
        ("half.en", r"half is one side of parallel text, but .*half\.it is missing\."),
        ("notes.doc", r"must end in \.tsv, .*, \.zip\."),
    ],
)
def test_missing_file_names_what_exists(name: str, message: str, tmp_path: Path) -> None:
    """Guards against a bare "file not found", which leaves the user to search for a typing mistake."""
    for file in ("train.tsv", "half.en", "notes.doc"):
        write_lines(tmp_path / file, ["a\tb"])
    with pytest.raises(DataError, match=message):
        find_sources(settings(tmp_path / name))


def test_two_tables_for_one_split_are_refused(tmp_path: Path) -> None:
    """Guards against choosing one of them silently."""
    write_lines(tmp_path / "train.tsv", ["a\tb"])
    write_lines(tmp_path / "train.csv", ["a,b"])
    with pytest.raises(DataError, match=r"train\.tsv and .*train\.csv: name the right one"):
        find_sources(settings(tmp_path))


def test_hashes_follow_the_content_not_the_place(tmp_path: Path) -> None:
    """Guards against a run refused because its folder moved, or resumed although a line was added."""
    first, second = (write("folder", tmp_path / name / "corpus") for name in "ab")
    one, two = (file_hashes(find_sources(settings(folder))) for folder in (first, second))
    assert one == two
    assert list(one) == ["data.train: corpus/train.tsv", "data.train: corpus/val.tsv"]
    with (second / "train.tsv").open("a") as file:
        file.write("more\taltro\n")
    assert file_hashes(find_sources(settings(second))) != one


# --- Data sets of the hub -----------------------------------------------------------------------------------------


def test_unreachable_hub_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against half a minute without output, followed by a long traceback."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with pytest.raises(
        DataError, match=r"^data\.train \(Some-Body/some_books\) .* cannot be reached: .* files of your own"
    ):
        read("Some-Body/some_books", config="en-it")
    assert not waits


def test_mistakes_about_a_data_set_name_what_exists(tmp_path: Path) -> None:
    """Guards against errors that do not name the right configuration or column."""
    folder = hub_copy(tmp_path)
    with pytest.raises(DataError, match=r"'it-en' not found.*en-it.* Set data.config \(now it-en\).*both directions"):
        read(folder, config="it-en")
    assert read(folder, config="en-it")
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
        ("a.tsv", "one\tuno\n".encode("utf-16")[:-1], r"a\.tsv, after line 0: this is not UTF-16 \(truncated data"),
        ("a.tsv", "one\tuno\n".encode("utf-32"), r"a\.tsv is UTF-32, but"),
        ("a.tsv", "one\tuno\n".encode("utf-16-le"), r"a\.tsv:1, byte 2: a NUL"),
        ("a.tsv", b"", r"is empty: there is nothing to learn from"),
        ("a.tsv", b"one\tuno\ttre\n", r"a\.tsv has 3 columns, of which 3 hold sentences"),
        ("a.csv", b'one,uno\n"two" more,due\n', r"a\.csv:2: .*expected after '\"'"),
        ("a.jsonl", b'["one", "uno"]\n', r'a\.jsonl:1: a row must be an object such as \{"en"'),
        ("a.jsonl", b'{"en": "one"}\n', r"a\.jsonl:1: there is en, but a row must be like"),
        ("a.jsonl", b'\n{"en": "one"}\n', r"a\.jsonl:2: there is en, but a row must be like"),
        ("a.jsonl", b'{"en": "\\ud800", "it": "uno"}\n', r"a\.jsonl:1, en: '\\ud800' is not text"),
        # Plain text: a stray tab or comma splits a text.
        ("a.txt", b"uno\nperch\xe9\n", r"a\.txt:2, byte 6: 0xe9 is not UTF-8"),
        ("it.tsv", b"one\tuno\ttre\n", r"it\.tsv has 3 columns, of which 3 hold sentences"),
        ("it.tsv", b"uno\n\ndue\ttre\n", r"it\.tsv:3: 2 columns, but the other rows have 1"),
        ("it.jsonl", b'{"en": "one"}\n', r'it\.jsonl:1: there is en, but a row must be like \{"it": "\.\.\."\}'),
        ("it.jsonl", b'{"text": 1}\n', r"it\.jsonl:1, text: 1 is not text"),
    ],
)
def test_error_names_the_place(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    """Guards against U+FFFD in training text, rows dropped silently, and library errors without a line number."""
    (tmp_path / name).write_bytes(content)
    plain = {"source_lang": None} if name.startswith("it.") or name.endswith(".txt") else {}
    with pytest.raises(DataError, match=message):
        read(tmp_path / name, **plain)


@pytest.mark.parametrize("layout", ["a.parquet", "en-it/train-00000-of-00001.parquet"])
def test_parquet_that_is_not_utf8_names_the_place(layout: str, tmp_path: Path) -> None:
    """Guards against a traceback: Arrow accepts any bytes as text, and only notices when they are read."""
    texts = [[b"one", b"caf\xe9"], [b"uno", b"due"]]
    columns = [pyarrow.array(side, pyarrow.binary()).view(pyarrow.string()) for side in texts]
    file = tmp_path / "there" / layout
    file.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table(columns, ["en", "it"]), file)
    with pytest.raises(DataError, match=r"row 2: text that is not UTF-8"):
        read(file if layout == "a.parquet" else tmp_path / "there")


def test_a_folder_of_parquet_is_read_in_order_without_a_copy(tmp_path: Path) -> None:
    """Guards disks that hold a large corpus once, but not twice."""
    folder = tmp_path / "there"
    folder.mkdir()
    for number, pair in enumerate(PAIRS):
        write_parquet(folder / f"train-{number:05}-of-{len(PAIRS):05}.parquet", [pair])
    assert read(folder) == PAIRS
    assert not list((tmp_path / "cache").rglob("*.arrow"))


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    """Guards against a traceback in the middle of a corpus."""
    folder = tmp_path / "there"
    folder.mkdir()
    write_parquet(folder / "train-00000-of-00002.parquet", PAIRS)
    (folder / "train-00001-of-00002.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"there\), split train cannot be read: .*Parquet"):
        read(folder)


def test_empty_line_of_jsonl_is_an_empty_pair(tmp_path: Path) -> None:
    """Guards against an empty line at the end of a file, which ended the training."""
    file = write_lines(tmp_path / "a.jsonl", ['{"en": "one", "it": "uno"}', "", " "])
    assert read(file) == [("one", "uno"), ("", ""), ("", "")]


def test_space_after_a_comma_is_no_text(tmp_path: Path) -> None:
    """Guards against quotes around every target, which a model then learns to write."""
    assert read(write_lines(tmp_path / "a.csv", ['"One, two", "Uno, due"', "three, tre"])) == [
        ("One, two", "Uno, due"),
        ("three", "tre"),
    ]


@pytest.mark.parametrize("suffix", ["tsv", "csv"])
def test_table_that_a_library_would_read_is_refused(suffix: str, tmp_path: Path) -> None:
    """Guards against pairs lost silently: the `datasets` library let a quote swallow lines, and dropped NA."""
    mark = "\t" if suffix == "tsv" else ","
    rows = [f"{a}{mark}{b}" for a, b in (("en", "it"), ("NA", "null"), ('"Stop', "Fermo"), ("Go", "Va"))]
    table = write_lines(tmp_path / "there" / "data" / f"train-00000.{suffix}", rows if suffix == "tsv" else rows[:2])
    with pytest.raises(DataError, match=rf"has data/train-00000\.{suffix}, .*: name the files, as in data\.train: "):
        read(tmp_path / "there")
    assert ("NA", "null") in read(table)


def test_path_is_no_pattern(tmp_path: Path) -> None:
    """Guards against the pairs of a sibling folder, which `*` in a name would include."""
    for name in ("news*2", "newsX2"):
        hub_copy(tmp_path / name)
    with pytest.raises(DataError, match=r"cannot have \* in its path"):
        read(tmp_path / "news*2", config="en-it")


# --- Cleaning and splitting ---------------------------------------------------------------------------------------


TURNING = "HJTWYAΑΩιΣσ İſ™ﬁK²Å\u212a\u212b\u0331\u0345\u0301\u0307¨"
CLEANINGS = [DataConfig(lowercase=lowercase, normalize=form) for lowercase in (False, True) for form in ("nfc", "nfkc")]


@pytest.mark.parametrize("data", CLEANINGS, ids=lambda data: f"{data.normalize}-{data.lowercase}")
@given(text=st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(TURNING))))
@example(text="H\u0331 J\u030c Ά\u0345 ᾈ \u0345Α Ω\u0345\u0301 İ I\u0307 ſ\u0307 ™ ﬁ \u212a ² Å ΣΑΣ ϴ ᏸ \ua64a ¨")
def test_every_cleaning_is_stable(text: str, data: DataConfig) -> None:
    """Guards against lower-casing before or after the normal form only: text cleaned twice, as in translating, would
    get other ids."""
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
def test_cleaning_by_each_setting(text: str, nfc: str, nfkc: str, lower: str, both: str) -> None:
    """Guards against casefold, which turns Straße into Strasse and a final sigma into another letter."""
    assert [clean(text, data) for data in CLEANINGS] == [nfc, nfkc, lower, both]


def test_split_is_a_property_of_the_sentence() -> None:
    """Guards against splits that depend on the order or the size of the corpus, and against wrong shares."""
    sentences = [f"sentence {i}" for i in range(20_000)]
    splits = [assign_split(sentence, 0.02, 0.05) for sentence in sentences]
    assert abs(splits.count("test") / 20_000 - 0.05) < 0.005
    assert abs(splits.count("validation") / 20_000 - 0.02) < 0.004
    other = [assign_split(sentence, 0.3, 0.05) for sentence in sentences]
    assert [i for i, split in enumerate(splits) if split == "test"] == [i for i, s in enumerate(other) if s == "test"]
    # Written down: a hash that changes between versions or machines would move sentences from test to train.
    golden = {"Hello.": "train", "Hi!": "test", "Ciao.": "test", "Yes.": "train", "No.": "validation"}
    assert {sentence: assign_split(sentence, 0.3, 0.3) for sentence in golden} == golden


@pytest.mark.parametrize("side", [0, 1], ids=["sources", "plain text"])
def test_equal_texts_share_a_split(side: int, tmp_path: Path) -> None:
    """Guards against a test sentence whose other translation, spacing or case is in training, and against splitting
    plain text by its empty source."""
    rows = [(f"{'sS'[i // 500 % 2]}entence  {i % 500}", f"frase {i}")[:: 1 - 2 * side] for i in range(2000)]
    file = write_lines(tmp_path / "a.tsv", [*map("\t".join, rows), "sentence\t", "\tfrase 1", "", " \t "])
    changes = {"source_lang": None} if side else {}
    data = settings(file, validation_fraction=0.1, test_fraction=0.1, lowercase=True, **changes)
    pairs, counts, _ = read_corpus(find_sources(data), data)
    texts = {split: {pair[side] for pair in pairs[split]} for split in pairs}
    assert all(texts.values())
    assert sum(map(len, texts.values())) == len(set.union(*texts.values())) == 500 + side
    assert all(assign_split(text, 0.1, 0.1) == split for split in texts for text in texts[split])
    empty = 4 - side
    assert sum(map(len, pairs.values())) == 2004 - empty
    assert sum(count.read for count in counts.values()) == 2004
    assert sum(count.dropped for count in counts.values()) == sum(count.empty for count in counts.values()) == empty


def test_named_split_replaces_own_split_replaces_share(tmp_path: Path) -> None:
    """Guards against holding out pairs although there is a validation set, and against the wrong set."""
    folder = tmp_path / "corpus"
    for split in ("train", "dev", "test"):
        write_lines(folder / f"{split}.tsv", [f"{split} {i}\tx" for i in range(200)])
    named = write_lines(tmp_path / "mine.tsv", ["mine\tmia"])
    data = settings(folder, test=str(named))
    pairs, *_ = read_corpus(find_sources(data), data)
    assert [len(pairs[split]) for split in pairs] == [200, 200, 1]
    assert pairs["validation"][7] == ("dev 7", "x")
    assert pairs["test"] == [("mine", "mia")]


# --- Several corpora ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("several", "parts"),
    [
        ("data/news", [(1, "data/news")]),
        ("data/c++ notes", [(1, "data/c++ notes")]),
        ("two\nlines", [(1, "two\nlines")]),
        ("data/news + 2.5 * data/letters", [(1, "data/news"), (2.5, "data/letters")]),
        ("0.1*a + owner/name + 3 * c.tsv", [(0.1, "a"), (1, "owner/name"), (3, "c.tsv")]),
        *((impossible, None) for impossible in ("a + ", "0 * a", "1.2.3 * a", "2 *", "1001 * a")),
    ],
)
def test_parse_mixture(several: str, parts: list[tuple[float, str]] | None) -> None:
    """Guards paths that contain a plus or a space, and a corpus that is silently left out."""
    if parts:
        assert parse_mixture(several) == parts
    else:
        with pytest.raises(DataError, match=r"several corpora are written as .* above 0 and up to 1000"):
            find_sources(settings(several))


def test_mixture_is_read_in_order(tmp_path: Path) -> None:
    """Guards the weight of each pair, the splits that each corpus brings, and a sentence that is in both."""
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


def test_files_of_a_mixture_have_distinct_names(tmp_path: Path) -> None:
    """Guards against a change in one of two files with the same name in different folders."""
    for folder in ("a", "b"):
        write_lines(tmp_path / folder / "pairs.tsv", [f"{folder}\tx"])
    data = settings(f"{tmp_path / 'a' / 'pairs.tsv'} + {tmp_path / 'b' / 'pairs.tsv'}")
    before = file_hashes(find_sources(data))
    assert list(before) == ["data.train: pairs.tsv", "data.train (2): pairs.tsv"]
    write_lines(tmp_path / "a" / "pairs.tsv", ["other\tx"])
    after = file_hashes(find_sources(data))
    assert before["data.train: pairs.tsv"] != after["data.train: pairs.tsv"]
    assert before["data.train (2): pairs.tsv"] == after["data.train (2): pairs.tsv"]


def test_epoch_shows_each_pair_as_often_as_its_weight() -> None:
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
