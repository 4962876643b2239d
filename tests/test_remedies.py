"""What messages tell people to do: taken from the text of the message and done as it says, it ends the complaint."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

import test_file_shapes as shapes
from conftest import ROOT, in_child, tiny_config, tiny_pairs, write_tsv
from dragoman import check, command_line
from dragoman.__main__ import COMMANDS, main
from dragoman.command_line import as_word, parse_check, parse_clean, parse_train, read_settings
from dragoman.config_file import loads
from dragoman.corpora.formats import files, spreadsheets, units
from dragoman.corpora.language_choice import with_languages
from dragoman.corpora.preparation import prepare_data
from dragoman.corpora.sources import find_sources
from dragoman.corpora.splitting import check_splits, read_portions
from dragoman.errors import ConfigError, DataError
from dragoman.filtering.checked import CheckedCorpus
from dragoman.filtering.clean import clean_corpus
from dragoman.settings import DEFAULTS, Config, DataConfig, values

PAIRS = list(dict(tiny_pairs(300)).items())
ENGLISH_TO_ITALIAN = ["--data.source_lang", "en", "--data.target_lang", "it"]
ICONV = r"(?P<command>iconv -f \S+ -t UTF-8)"
ADD = r"add (?P<options>--data\.source_lang \S+ --data\.target_lang \S+)"
SKIP = r"with (?P<options>--data\.on_bad_line skip)$"


def follow(message: str, remedy: str, words: list[str]) -> list[str]:
    """Do what a message says, and return the command line to try again.

    The groups of the pattern `remedy` say what it names: `options` to add; a `key` and its `value`; what to write
    `instead` of the first word of the message; a `command` that converts the file of data.train; or the `language` that
    gets another `value`. Behind -> are the options with which a person does what a pattern without groups finds.
    """
    pattern, _, chosen = remedy.partition(" -> ")
    matched = re.search(pattern, message)
    assert matched, message
    if chosen:
        return with_options(words, shlex.split(chosen))
    match matched.groupdict():
        case {"options": options}:
            return [*words, *shlex.split(options)]
        case {"key": key, "value": value}:
            return with_options(words, [f"--{key}", value])
        case {"language": language, "value": value}:
            return [value if word == language else word for word in words]
        case {"instead": instead}:
            i = words.index(message.split()[0])
            return [*words[:i], *shlex.split(instead), *words[i + 1 :]]
        case {"command": command}:
            if not shutil.which("iconv"):
                pytest.skip("needs iconv")
            file = Path(read_settings(words).data.train)
            converted = subprocess.run(
                shlex.split(command), input=file.read_bytes(), stdout=subprocess.PIPE, check=True
            )
            file.write_bytes(converted.stdout)
            return words
        case _:
            raise AssertionError(remedy)


def with_options(words: list[str], options: list[str]) -> list[str]:
    """Give options that replace those of the same names."""
    for name in options[::2]:
        words = [each for before, each in pairwise(["", *words]) if name not in (each.partition("=")[0], before)]
    return [*words, *options]


def convert(file: Path, command: str) -> None:
    """Put a file through a command."""
    done = subprocess.run(shlex.split(command), input=file.read_bytes(), stdout=subprocess.PIPE, check=True)
    file.write_bytes(done.stdout)


# --- Settings -------------------------------------------------------------------------------------------------------

SET = r"set (?:it |that )?to (?P<value>[\w-]+)"
SETTINGS: list[tuple[str, list[str]]] = [
    ("--training.schedule inverse_sqrt --training.warmup_steps 0", [r"(?P<key>\S+) is 0, .* at least (?P<value>\d+)"]),
    ("--model.d_model 64 --model.n_heads 5", [r"(?P<key>model\.n_heads) is .* choose one of (?P<value>\d+)"]),
    ("--model.tie all", [r"set (?P<key>tokenizer\.shared) to (?P<value>\w+)"]),
    ("--model.tie all", [r"or (?P<key>model\.tie) to (?P<value>\w+)\."]),
    (
        "--data.source_lang null",
        [rf"(?P<key>model\.architecture) is .* {SET}", r"set (?P<key>tokenizer\.shared) to (?P<value>\w+)"],
    ),
    ("--model.positions learned --model.max_positions 99", [r"(?P<key>\S+) is 99.* need (?P<value>\d+): raise"]),
    ("--decoding.sample true --decoding.beam_size 2", [r"set (?P<key>decoding\.beam_size) and .* to (?P<value>1)"]),
    ("--decoding.n_best 9", [r"(?P<key>decoding\.n_best) is .* at most decoding\.beam_size \((?P<value>\d)\)"]),
    ("--training.fsdp true --training.optimizer muon", [rf"with (?P<key>training\.optimizer) muon: {SET}"]),
    (
        "--training.fsdp true --training.optimizer adamw --training.precision float16",
        [rf"with (?P<key>training\.precision) float16: {SET}"],
    ),
    (
        "--training.fsdp true --training.optimizer adamw --training.ema 0.9",
        [rf"with (?P<key>training\.ema): {SET}"],
    ),
    ("--data.directions en-it,it-en,en-fr --data.columns 1,2", [rf"(?P<key>data\.columns) is .* {SET}"]),
    ("--training.max_steps 1e3", [r"(?P<key>\S+) is 1e3, .*: write (?P<value>\d+)\."]),
    ("--model.dropout 1", [r"(?P<key>\S+) is 1.0, but it must be at least (?P<value>\d) "]),
    ("--data.columns 1", [r"(?P<key>\S+) is 1, but it must .* as in (?P<value>\d,\d) or"]),
    ("--data.columns 1", [r"(?P<key>\S+) is 1, but it must .* by names as in (?P<value>\w+,\w+)\."]),
    ("--data.directions english", [r"(?P<key>\S+) is english, but directions are named as in (?P<value>.*), or"]),
    ("--run.name=", [r"(?P<key>\S+) is empty, but it must be (?P<value>some) text"]),
    ("--training.epochs 3", [r"did you mean (?P<instead>--\S+)\?"]),
    ("--learning_rate 0.1", [r"did you mean (?P<instead>--\S+)\?"]),
    ("--model.dropout 0.1 pairs.tsv", [r"or write (?P<instead>--data\.train \S+)$"]),
]


@pytest.mark.parametrize(("line", "remedies"), SETTINGS, ids=[line for line, _ in SETTINGS])
def test_settings(
    line: str,
    remedies: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Guards remedies that name no value, or a value that is refused."""
    write_tsv(tmp_path / "pairs.tsv", PAIRS)
    monkeypatch.chdir(tmp_path)
    words = line.split()
    for remedy in remedies:
        with pytest.raises((ConfigError, SystemExit)) as refused:
            read_settings(words)
        words = follow(capsys.readouterr().err or str(refused.value), remedy, words)
    read_settings(words)


@pytest.mark.parametrize(
    ("line", "of_preset"),
    [("--data.columns 0,1", False), ("--run.name a/b", False), ("--model.n_heads 7", True)],
)
def test_a_preset_is_only_blamed_for_what_it_sets(line: str, of_preset: bool) -> None:
    """Guards a hint at model.preset after mistakes that have nothing to do with it."""
    with pytest.raises(ConfigError) as refused:
        read_settings(["--model.preset", "tiny", *line.split()])
    assert ("model.preset" in str(refused.value)) == of_preset


# --- Data -----------------------------------------------------------------------------------------------------------


def encoded(name: str, encoding: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        text = "".join(f"{a}\t{b}\n" for a, b in [("Is it café?", "È un caffè?"), *PAIRS])
        (folder / name).write_bytes(text.encode(encoding))
        return folder / name

    return write


def folder_of_texts(folder: Path) -> Path:
    (folder / "texts").mkdir()
    for name, side in zip(("one.txt", "two.txt"), zip(*PAIRS, strict=True), strict=True):
        (folder / "texts" / name).write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
    return folder / "texts"


def folder_with_a_table(folder: Path) -> Path:
    write_tsv(folder / "tables" / "mine.tsv", PAIRS)
    return folder / "tables"


def english_twice(folder: Path) -> Path:
    return shapes.table(folder / "pairs.csv", [("en-US", "en-GB", "it"), *((a, a, b) for a, b in PAIRS)])


DATA: list[tuple[str, Callable[[Path], Path], list[str], list[str]]] = [
    ("CP1252", encoded("a.tsv", "cp1252"), [], [ICONV]),
    ("UTF-32", encoded("a.tsv", "utf-32"), [], [ICONV]),
    ("UTF-16LE without a mark", encoded("a.tsv", "utf-16-le"), [], [ICONV]),
    ("UTF-16BE without a mark", encoded("a.tsv", "utf-16-be"), [], [ICONV]),
    (
        "nothing but lines that are left out",
        encoded("a.tsv", "utf-16-le"),
        ["--data.on_bad_line", "skip"],
        [r"set (?P<key>data\.on_bad_line) to (?P<value>error)", ICONV],
    ),
    ("folder of texts", folder_of_texts, [], [r'as in (?P<options>--data\.train ".*")$']),
    ("folder with a table", folder_with_a_table, [], [r"as in (?P<key>data\.train): (?P<value>\S+)$"]),
    ("four columns", shapes.four_texts, [], [r"as in (?P<options>--data\.columns \S+);"]),
    *(
        (write.__name__, write, [], [ADD])
        for write in (
            shapes.spanish_by_its_columns,
            shapes.spanish_by_its_name,
            shapes.spanish_of_opus,
            shapes.spanish_text,
            shapes.german_catalogue,
        )
    ),
    ("English twice", english_twice, [], [r"(?P<value>en-US) and \S+ are both (?P<language>en): name one of them"]),
    ("English twice: columns", english_twice, [], [r"set data\.columns -> --data.columns en-GB,it"]),
    *(
        (write.__name__, write, [], [SKIP])
        for write in (
            shapes.short_row,
            shapes.open_quote,
            shapes.subtitles_with_a_time_in_words,
            shapes.broken_catalogue,
        )
    ),
]


@pytest.mark.parametrize(("write", "words", "remedies"), [each[1:] for each in DATA], ids=[each[0] for each in DATA])
def test_data(
    write: Callable[[Path], Path],
    words: list[str],
    remedies: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards remedies that lead to the next refusal, or need what the message does not say."""
    monkeypatch.chdir(tmp_path)
    if write.__name__ in ("broken_subtitles", "broken_catalogue"):
        pytest.importorskip("srt" if "subtitles" in write.__name__ else "babel")
    name = str(write(tmp_path).relative_to(tmp_path))
    words = ["--data.train", name, *ENGLISH_TO_ITALIAN, "--data.check_languages", "false", *words]

    def read() -> int:
        config = read_settings([*words, "--data.validation_fraction", "0.3", "--data.test_fraction", "0"])
        portions = list(read_portions(find_sources(config.data), config.data))
        kept = sum(len(pairs) for portion in portions for pairs in portion.pairs.values())
        counts = {split: count for portion in portions for split, count in portion.counts.items()}
        check_splits({"train": kept, "validation": kept}, counts, [], config.data)
        return kept

    for remedy in remedies:
        with pytest.raises(DataError) as refused:
            read()
        words = follow(str(refused.value), remedy, words)
    assert read() >= 2


# --- Config files ---------------------------------------------------------------------------------------------------

# The file, what its message says, and the file that follows: \1 is the first group of what is said.
FILES: list[tuple[str, str, str]] = [
    ("", r"must contain sections such as (\S+:) with settings", "\\1\n  d_model: 64"),
    ("model.d_model: 64", r"two levels: (model:) and under it (d_model)\.", "\\1\n  \\2: 64"),
    ("model:\n  n_head: 2", r"did you mean model\.(\w+)\?", "model:\n  \\1: 2"),
    ("modle:\n  n_heads: 2", r"did you mean (model)\?", "\\1:\n  n_heads: 2"),
    ("model: 64", r"settings, each on an indented line", "model:\n  d_model: 64"),
    ("- model", r"must contain sections such as (\S+:)", "\\1\n  d_model: 64"),
    ("run:\n  name: &a tiny", r"write the value itself", "run:\n  name: tiny"),
    ("data:\n  train: *mine", r"or quote the text", "data:\n  train: '*mine'"),
    ("run:\n  seed: !!int 3", r"the tag (\S+) is refused: settings are plain values", "run:\n  seed: 3"),
    ("run:\n  ? [name]\n  : tiny", r"a name in run must be a plain word", "run:\n  name: tiny"),
    ("data:\n  directions: [en-it, it-en]", r"must be a single value", "data:\n  directions: en-it, it-en"),
    ("data:\n  train: [a.tsv, b.tsv]", r"must be a single value", "data:\n  train: a.tsv"),
    ("data:\n  source_lang: no", r'quote it, as ("\w+")\.', "data:\n  source_lang: \\1"),
    ("run:\n  seed: 1\n  seed: 2", r"appears twice, first on line (2)", "run:\n  seed: 2"),
]


@pytest.mark.parametrize(("wrong", "remedy", "right"), FILES, ids=[wrong for wrong, _, _ in FILES])
def test_config_file(wrong: str, remedy: str, right: str) -> None:
    """Guards messages after which the next try is refused, too."""
    with pytest.raises(ConfigError) as refused:
        loads(wrong.encode(), Path("a.yaml"))
    matched = re.search(remedy, str(refused.value))
    assert matched, refused.value
    loads(matched.expand(right).encode(), Path("a.yaml"))


def test_config_file_that_is_not_in_utf8() -> None:
    with pytest.raises(ConfigError, match="save the file as UTF-8"):
        loads("run:\n  name: café".encode("cp1252"), Path("a.yaml"))
    assert loads("run:\n  name: café".encode(), Path("a.yaml")).run.name == "café"


# --- Files that a person mends --------------------------------------------------------------------------------------


def changed(name: str, *changes: tuple[str, str]) -> Callable[[Path, re.Match[str]], None]:
    """Change a text file by hand; what the message says fills \\1 of the new text."""

    def mend(folder: Path, matched: re.Match[str]) -> None:
        content = (folder / name).read_bytes().decode()
        for old, new in changes:
            assert old in content
            content = content.replace(old, matched.expand(new) if matched.re.groups else new)
        (folder / name).write_bytes(content.encode())

    return mend


def holding(name: str, content: str) -> Callable[[Path], Path]:
    """A file with this content."""

    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content.encode())
        return folder / name

    write.__name__ = name
    return write


def unpacked(named: str) -> Callable[[Path, re.Match[str]], str]:
    def mend(folder: Path, _: re.Match[str]) -> str:
        with zipfile.ZipFile(folder / "all.zip") as archive:
            archive.extractall(folder / "unpacked")
        return ", ".join(str(folder / "unpacked" / name) for name in named.split())

    return mend


def renamed(folder: Path, matched: re.Match[str]) -> str:
    return str((folder / "pairs.text").rename(folder / f"pairs{matched[1]}"))


def moved(folder: Path, matched: re.Match[str]) -> None:
    (folder / "elsewhere").mkdir()
    Path(matched[1]).rename(folder / "elsewhere" / "file")


def two_tables(folder: Path) -> Path:
    shapes.text(folder / "pairs.tsv", shapes.PAIRS)
    shapes.table(folder / "pairs.csv", shapes.PAIRS)
    return folder / "pairs"


def two_sides_twice(folder: Path) -> Path:
    for name in ("en", "en.txt", "it"):
        (folder / f"train.{name}").write_text("a b\nc d\n", encoding="utf-8")
    return folder / "train"


def records(name: str, value: object) -> Callable[[Path], Path]:
    return holding(name, json.dumps(value))


ROWS = [{"en": a, "it": b} for a, b in shapes.PAIRS]
MEMORY = (
    '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE tmx [<!ENTITY x "Ciao">]><tmx version="1.4">'
    '<header srclang="en"/><body><tu><tuv xml:lang="en"><seg>Hi</seg></tuv><tuv xml:lang="it"><seg>&x;</seg></tuv></tu>'
    "</body></tmx>"
)
REPAIRED: list[tuple[Callable[[Path], Path], str, Callable[[Path, re.Match[str]], str | None]]] = [
    (shapes.several_corpora, r"unpack it, and name the files to use", unpacked("a.en a.it")),
    (shapes.several_corpora, r"unpack it, and name the files to use", unpacked("a.en")),
    (
        shapes.open_quote,
        r"write a quote inside a cell twice, and one around the whole cell",
        changed("pairs.csv", ('"open', '"""open"')),
    ),
    (
        shapes.broken_catalogue,
        r"a line must be a comment, or text in quotes, but this is (msgstr .*?);",
        changed("app.po", ('msgstr "Chiudi\n', '\\1"\n')),
    ),
    (shapes.broken_web_subtitles, r"fix this line", changed("film.en.vtt", ("00:9 -->", "00:09.000 -->"))),
    (shapes.broken_styled_subtitles, r"fix this line", changed("film.en.ass", ("nine,", "0:00:09.00,"))),
    (shapes.no_workbook, r"save it again without one", lambda folder, _: str(shapes.excel(folder))),
    (
        records("a.json", {"one": ROWS, "two": ROWS}),
        r"save one of them as a file",
        lambda folder, _: str(records("one.json", ROWS)(folder)),
    ),
    (
        records("a.jsonl", ["Hi", "Ciao"]),
        r"must be an object such as (\{.*?\})",
        changed("a.jsonl", ('["Hi", "Ciao"]', "\\1")),
    ),
    (
        records("a.jsonl", {"a": "Hi", "b": "Ciao"}),
        r"a row must be like (\{.*?\})",
        changed("a.jsonl", ('{"a": "Hi", "b": "Ciao"}', "\\1")),
    ),
    (two_tables, r"there are (\S+) and \S+: name the right one", lambda _, matched: matched[1]),
    (two_tables, r"there are (\S+) and \S+: .* or move the other", moved),
    (two_sides_twice, r"there are (\S+) and \S+: move all but one", moved),
    (holding("a.tmx", MEMORY), r"()Entity 'x' not defined", changed("a.tmx", ("&x;", "Ciao"))),
    (
        holding("a.tmx", MEMORY.replace('"it"', '"en"').replace("&x;", "x")),
        r"is in en, .* name a file with two languages",
        lambda folder, _: str(shapes.tmx_of_omegat(folder)),
    ),
    (
        shapes.other_version_of_a_film,
        r"Shift the times of one of them",
        lambda folder, _: shapes.film(folder) and None,
    ),
    (holding("pairs.text", "Hi\tCiao\nNo\tNo\n"), r"a file of pairs must end in (\.\w+)", renamed),
]


@pytest.mark.parametrize(
    ("write", "remedy", "mend"), REPAIRED, ids=[f"{write.__name__}: {remedy}" for write, remedy, _ in REPAIRED]
)
def test_file_mended_by_hand(
    write: Callable[[Path], Path],
    remedy: str,
    mend: Callable[[Path, re.Match[str]], str | None],
    tmp_path: Path,
) -> None:
    """Guards remedies that lead to the next refusal, or that nobody can carry out."""
    place = write(tmp_path)
    with pytest.raises(DataError) as refused:
        shapes.read(place)
    matched = re.search(remedy, str(refused.value))
    assert matched, refused.value
    assert shapes.read(mend(tmp_path, matched) or place)


@pytest.mark.parametrize("on_bad_line", ["error", "skip"])
def test_encoding_that_nobody_knows(on_bad_line: str, tmp_path: Path) -> None:
    """Guards a file that is saved as UTF-8 and still says that it is something else."""
    path = tmp_path / "a.tmx"
    path.write_text(MEMORY.replace("utf-8", "utf-99").replace("&x;", "Ciao"), encoding="utf-8")
    said = shapes.refusal(path, on_bad_line=on_bad_line)
    matched = re.search(r"utf-99 is no encoding: save the file as UTF-8, and write (\S+) in its first line\.$", said)
    assert matched, said
    path.write_text(path.read_text(encoding="utf-8").replace('encoding="utf-99"', matched[1]), encoding="utf-8")
    assert shapes.read(path) == [("Hi", "Ciao")]


def test_a_file_that_is_too_large_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("babel")
    head, *messages = shapes.PO.split("\n\n")
    for name, part in {"all.po": messages, "a.po": messages[:2], "b.po": messages[2:]}.items():
        (tmp_path / name).write_text("\n\n".join([head, *part]), encoding="utf-8")
    monkeypatch.setattr(files, "LONGEST_WHOLE", 400)
    with pytest.raises(DataError, match="the most that is read at once: split it"):
        shapes.read(tmp_path / "all.po")
    assert shapes.read(tmp_path / "a.po") + shapes.read(tmp_path / "b.po") == shapes.OF_PO


def test_a_workbook_that_is_too_large_is_saved_as_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreadsheets, "LARGEST", 400)
    with pytest.raises(DataError, match=r"save it as \.csv"):
        shapes.read(shapes.excel(tmp_path))
    assert shapes.read(shapes.excel_of_europe(tmp_path)) == shapes.PAIRS


CHECK: list[tuple[str, list[str]]] = [
    ("--data.train 'a.tsv + b.tsv'", [r"check reads one at a time: set it to one\. -> --data.train a.tsv"]),
    (
        "--data.train named.tsv --data.directions en-it,it-en",
        [r"(?P<key>data\.directions) is set, but the check .* set it to (?P<value>null)"],
    ),
    ("--data.train one.tsv", [r"no pair for validation.*: use more pairs -> --data.train a.tsv"]),
    (
        "--data.train one.tsv",
        [r"no pair for validation.* pairs of your own as data.validation -> --data.validation b.tsv"],
    ),
    (
        "--data.train a.tsv --data.validation empty.tsv",
        [r"use more pairs, or pairs of your own as data.validation\.$ -> --data.validation b.tsv"],
    ),
    (
        "--data.train other.tsv --data.validation_fraction 0.5 --data.test_fraction 0.5",
        [r"no pair for train.* a smaller \S+ and -> --data.validation_fraction 0.3 --data.test_fraction 0"],
    ),
]
CLEAN: list[tuple[str, list[str]]] = [
    ("--data.train 'a.tsv + b.tsv'", [r"clean takes one at a time: set it to one\. -> --data.train a.tsv"]),
    (
        "--data.train named.tsv --data.directions en-it,it-en",
        [r"(?P<key>data\.directions) is set, but clean .* set it to (?P<value>null)"],
    ),
    (
        "--data.train a.tsv --data.source_lang null --model.architecture decoder-only --tokenizer.shared true",
        [r"compares two sides: set it\. -> --data.source_lang en"],
    ),
    ("--data.train mine/train.tsv --output mine", [r"choose another folder\. -> --output other"]),
    ("--data.train a.tsv --output mine", [r"choose another --output\. -> --output other"]),
]


@pytest.mark.parametrize(
    ("command", "line", "remedies"),
    [(name, *each) for name, cases in (("check", CHECK), ("clean", CLEAN)) for each in cases],
)
def test_corpus_of_a_command(
    command: str, line: str, remedies: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a remedy that is a setting which is set already."""
    monkeypatch.chdir(tmp_path)
    for name, pairs in {
        "a.tsv": PAIRS[:60], "b.tsv": PAIRS[60:], "named.tsv": [("en", "it"), *PAIRS], "mine/train.tsv": PAIRS[:60],
        "one.tsv": PAIRS[:1], "other.tsv": PAIRS[:4], "empty.tsv": [("", "")],
    }.items():  # fmt: skip
        write_tsv(tmp_path / name, pairs)
    words = [*ENGLISH_TO_ITALIAN, *shlex.split(line)]

    def attempt() -> None:
        if command == "check":
            assert CheckedCorpus.read(parse_check(words)[0]).used
        else:
            clean_corpus(
                parse_clean([*([] if "--output" in words else ["--output", "cleaned"]), "--processes", "1", *words])
            )

    for remedy in remedies:
        with pytest.raises((ConfigError, DataError)) as refused:
            attempt()
        words = follow(str(refused.value), remedy, words)
    attempt()


# Settings of a training, and what the messages of its preparation say to do.
PREPARED: list[tuple[dict[str, object], list[str]]] = [
    ({"data__max_length": 1}, [r"longer than data\.max_length \(1\): raise it\. -> --data.max_length 100"]),
    (
        {"data__max_length": 1, "data__max_ratio": 1},
        [r"longer than .* or more uneven than .*: raise them -> --data.max_length 100 --data.max_ratio 3"],
    ),
    (
        {"tokenizer__kind": "bpe", "tokenizer__vocab_size": 100},
        [r"(?P<key>tokenizer\.vocab_size) is 100, but it must be at least (?P<value>\d+)"],
    ),
    (
        {"tokenizer__kind": "unigram", "tokenizer__vocab_size": 100},
        [r"(?P<key>tokenizer\.vocab_size) is 100, but it must be at least (?P<value>\d+)"],
    ),
    (
        {"data__validation_fraction": 1e-9},
        [r"or a larger data\.validation_fraction -> --data.validation_fraction 0.1"],
    ),
    ({"data__validation_fraction": 1e-9}, [r"or pairs of your own as data\.validation -> --data.validation more.tsv"]),
    (
        {"data__train": "few.tsv", "data__validation_fraction": 0.5, "data__test_fraction": 0.5},
        [r"or a smaller \S+ and \S+\.$ -> --data.validation_fraction 0.3 --data.test_fraction 0"],
    ),
    (
        {"data__train": "0.0001 * corpus/pairs.tsv + 0.0001 * more.tsv"},
        [r"the weights in data\.train leave .*: raise them\. -> --data.train 'corpus/pairs.tsv + 0.5 * more.tsv'"],
    ),
    (
        {"data__train": "split"},
        [r"has no split train, only test: name another -> --data.train corpus/pairs.tsv"],
    ),
    (
        {"data__train": "pickled"},
        [r"convert it to \.jsonl or \.tsv -> --data.train corpus/pairs.tsv"],
    ),
]


@pytest.mark.parametrize(("changes", "remedies"), PREPARED)
def test_preparation(
    changes: dict[str, object], remedies: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards remedies that name one of two settings that are both to blame."""
    monkeypatch.chdir(tmp_path)
    write_tsv(tmp_path / "more.tsv", tiny_pairs(60, seed=3))
    write_tsv(tmp_path / "few.tsv", PAIRS[:4])
    write_tsv(tmp_path / "split" / "test.tsv", PAIRS)
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "train.pkl").write_bytes(b"")
    words = arguments_of(tiny_config(Path(), **changes))
    for remedy in remedies:
        with pytest.raises((ConfigError, DataError)) as refused:
            prepare_data(read_settings(words), tmp_path / "data", print)
        words = follow(str(refused.value), remedy, words)
    assert len(prepare_data(read_settings(words), tmp_path / "data", print).train)


def test_damaged_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = tiny_config(Path())
    prepare_data(config, tmp_path / "data", print)
    shutil.copytree("data", "copy")
    for remedy in ("restore it, or", "or delete it to prepare it again"):
        (tmp_path / "data" / "report.json").write_bytes(b"")
        with pytest.raises(DataError, match=remedy) as refused:
            prepare_data(config, tmp_path / "data", print)
        shutil.rmtree(found(r"^(\S+) is damaged", str(refused.value)))
        if "restore" in remedy:
            shutil.copytree("copy", "data")
        assert len(prepare_data(config, tmp_path / "data", print).train)


def test_warnings_about_words_that_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rare = ["".join(letters) for letters in product("bdfg", "aeiou", "lmn")]
    write_tsv(
        tmp_path / "rare.tsv",
        [(f"{a} {b} {c}", f"{a}o {b}o {c}o") for a, b, c in zip(rare * 5, rare[7:] * 5, rare[20:] * 5, strict=False)],
    )
    tiny = prepare_data(tiny_config(Path()), tmp_path / "tiny", print)

    def warnings(words: list[str], tokenizers: Any = None) -> list[str]:
        shutil.rmtree("data", ignore_errors=True)
        warned = prepare_data(read_settings(words), tmp_path / "data", print, tokenizers).report.warnings()
        return [each for each in warned if "unknown" in each]

    words = [
        *arguments_of(tiny_config(Path(), data__train="rare.tsv", tokenizer__min_frequency=30)),
        "--tokenizer.kind",
        "word",
    ]
    said = warnings(words)[0]
    bpe = follow(said, r"set (?P<key>tokenizer\.kind) to (?P<value>bpe)", words)
    lower = follow(said, r"or lower tokenizer\.min_frequency -> --tokenizer.min_frequency 1", words)
    assert warnings(bpe) == warnings(lower) == []
    assert "set that to null for a vocabulary of its own" in warnings(lower, (tiny.source, tiny.target))[0]


def test_choices_that_may_be_wrong(tmp_path: Path) -> None:
    path = shapes.text(tmp_path / "pairs.tsv", [(a, b, "") for a, b in PAIRS] + [(a, b, "x y") for a, b in PAIRS[:3]])
    said = shapes.choices(path)
    assert re.search(r"column 1 is en .*; set data\.columns if that is wrong", said), said
    assert shapes.read(path, columns="2,1")[0] == (PAIRS[0][1], PAIRS[0][0])
    assert "if that is wrong" not in shapes.choices(path, columns="2,1")


def test_languages_of_several_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shapes.text(tmp_path / "pairs.tsv", [("de", "en", "it"), *((b, a, b) for a, b in PAIRS)])
    with pytest.raises(ConfigError) as refused:
        with_languages(read_settings(["--data.train", "pairs.tsv"]), print)
    add = found(r"add (.*), with the two to use\.$", str(refused.value))
    for codes in ("en", "it"):
        add = add.replace("CODE", codes, 1)
    data = with_languages(read_settings(["--data.train", "pairs.tsv", *shlex.split(add)]), print).data
    assert shapes.read("pairs.tsv", source_lang=data.source_lang, target_lang=data.target_lang) == PAIRS


def test_plain_text_in_another_language(tmp_path: Path) -> None:
    path = shapes.spanish_memory(tmp_path)
    language = found(r"add --data\.target_lang (\S+)$", shapes.refusal(path, source_lang=None))
    assert shapes.read(path, source_lang=None, target_lang=language)


def test_table_for_several_directions(tmp_path: Path) -> None:
    path, directions = write_tsv(tmp_path / "pairs.tsv", PAIRS), {"directions": "en-it, en-fr"}
    with pytest.raises(DataError) as refused:
        find_and_read(shapes.settings(path, **directions))
    first, second = re.findall(r"must name the columns, (\w+) and (\w+)", str(refused.value))[0]
    write_tsv(path, [(first, second), *PAIRS])
    assert find_and_read(shapes.settings(path, **directions))


def find_and_read(data: DataConfig) -> int:
    """Read the pairs that settings name; return how many there are."""
    return sum(len(pairs) for portion in read_portions(find_sources(data), data) for pairs in portion.pairs.values())


def test_letters_of_turkish(tmp_path: Path) -> None:
    pairs = [("the cat", "IŞIK"), *PAIRS]
    corpus = write_tsv(tmp_path / "corpus" / "pairs.tsv", pairs)
    changes = {"data__source_lang": "en", "data__target_lang": "tr", "data__check_languages": False}
    said: list[str] = []
    prepare_data(tiny_config(tmp_path, **changes, data__lowercase=True), tmp_path / "one", said.append)
    [warning] = [each for each in said if "data.lowercase" in each]
    matched = re.search(r"set it to (\w+) and lower-case the corpus with (\S+)\.lower\(text, \"(\w+)\"\)", warning)
    assert matched, warning
    lower = import_module(matched[2]).lower
    write_tsv(corpus, [(a.lower(), lower(b, matched[3])) for a, b in pairs])
    assert "ışık" in corpus.read_text(encoding="utf-8")
    said.clear()
    prepare_data(tiny_config(tmp_path, **changes, data__lowercase=matched[1]), tmp_path / "two", said.append)
    assert not [each for each in said if "data.lowercase" in each]


def test_side_without_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a remedy that leads to the next refusal."""
    monkeypatch.chdir(tmp_path)
    shapes.parallel(tmp_path, "corpus")
    Path("corpus.it").rename("away")
    said = shapes.refusal("corpus.en")
    Path("away").rename(found(r"but (\S+) is missing\.$", said))
    assert shapes.read("corpus.en") == shapes.PAIRS


@pytest.mark.parametrize("in_clone", [True, False])
def test_extras_hold_what_is_missing(
    in_clone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Guards a command that installs something else."""
    monkeypatch.chdir(tmp_path)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    monkeypatch.setattr(units, "find_spec", lambda name: None)
    monkeypatch.setattr(command_line, "find_spec", lambda name: None)
    monkeypatch.setattr(units.resources, "IN_CLONE", in_clone)
    messages = []
    for name in ("a.tmx", "a.xliff", "a.xlsx", "a.ods", "a.srt", "a.vtt", "a.ass", "a.tsv.zst"):
        with pytest.raises(ConfigError) as refused:
            shapes.read(shapes.text(Path(name), PAIRS))
        messages.append(str(refused.value))
    with pytest.raises(SystemExit):
        command_line.parse_serve(["--run", "x"])
    for message in (*messages, capsys.readouterr().err):
        matched = re.search(r"cannot find (.*): install .* with pip install .*\[(\w+)\]", message)
        assert matched, message
        for module in matched[1].split(" and "):
            assert any(each.startswith(module) for each in extras[matched[2]]), message


# --- Commands -------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capfd: pytest.CaptureFixture) -> Callable[..., str]:
    """Run a command as a message prints it, and return what it says. Fails if it ends with another code."""

    def call(line: str | list[str], code: int = 0) -> str:
        words = shlex.split(line) if isinstance(line, str) else line
        words = words[words.index("dragoman") + 1 :] if "dragoman" in words else words
        if words[0] == "python":
            words = [words[1].removesuffix(".py"), *words[2:]]
        import_module(COMMANDS[words[0]].module)  # once, not in every child
        capfd.readouterr()
        assert in_child(lambda: main(words)) == code, words
        printed = capfd.readouterr()
        return " ".join(f"{printed.out}\n{printed.err}".split())

    return call


def arguments_of(config: Config) -> list[str]:
    """The command line that makes a config."""
    given = {key: value for key, value in values(config).items() if value != DEFAULTS[key]}
    return [*ENGLISH_TO_ITALIAN, *(f"--{key}={as_word(value)}" for key, value in given.items())]


@pytest.fixture
def brief(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str]) -> list[str]:
    """The command that trained the run runs/tiny for eight steps, and the folder of both is the current one."""
    monkeypatch.chdir(tmp_path)
    tiny_config(tmp_path)
    config = tiny_config(
        Path(), training__max_epochs=None, training__max_steps=8, training__validate_every=40,
        training__save_every=40, decoding__max_length=12, data__check_languages=False,
    )  # fmt: skip
    command = ["train", *arguments_of(config)]
    run(command)
    return command


def test_what_is_said_of_a_run(brief: list[str], run: Callable[..., str]) -> None:
    """Guards commands in messages that name other pairs, another folder or an option that does not exist."""
    said = run(brief)
    run(found(r'to use it, run: (.*? "your sentence")', said))
    said = run("evaluate --run runs/tiny")
    more = run(found(r"Continue with: (.*? --training\.max_steps \d+)", said))
    assert "resumed from step 8" in more
    said = run("average --run runs/tiny")
    for command in re.findall(r"to (?:measure|use) it: (.*? --checkpoint \S+?)(?:;|$| )", said):
        assert run([*shlex.split(command), *(["the cat"] if "translate" in command else [])])
    assert "test pairs" in run("evaluate --checkpoint runs/tiny")

    write_tsv(Path("corpus/other.tsv"), tiny_pairs(80, seed=5))
    other = [*brief, "--data.train", "corpus/other.tsv"]
    said = run(other, 2)
    run([*other, "--data.test_fraction", "0", *shlex.split(found(r"such as (--run\.name \S+)\.$", said))])
    write_tsv(Path("corpus/few.tsv"), tiny_pairs(5, seed=6))
    against = "evaluate --run runs/tiny --data corpus/few.tsv --against runs/other"
    run(found(r"create it with (.*)$", run(against, 3)))
    assert "wrote the report" in run(against)

    said = run("evaluate --run runs/other", 3)
    choice = found(r"there are no test pairs: choose others with (--split) or --data\.$", said)
    assert "wrote the report" in run(f"evaluate --run runs/other {choice} validation")
    said = run("evaluate --run runs/tiny --decoding.max_length 1 --decoding.max_ratio 0.1")
    raised = re.findall(r"decoding\.\w+", found(r"If they do not repeat themselves, raise (.*?)\.(?: |$)", said))
    longer = run(["evaluate", "--run", "runs/tiny", *(f"--{key}=30" for key in raised)])
    assert float(found(CUT, longer)) < float(found(CUT, said))  # it has learnt too little to end most of them
    assert "name the folder that does" in run("runs corpus", 4)
    assert "tiny" in run("runs runs")


CUT = r"\(([\d.]+) ?%\) were cut off"


def found(pattern: str, said: str) -> str:
    matched = re.search(pattern, said)
    assert matched, said
    return matched[1]


def test_positions_for_the_lengths_that_the_message_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str]
) -> None:
    """Guards a training that ended, as it drew an attention map, where sentences fit but a bad translation did not."""
    monkeypatch.chdir(tmp_path)
    config = tiny_config(
        Path(), model__positions="learned", model__max_positions=20, data__max_length=19, tokenizer__kind="bpe",
        tokenizer__vocab_size=400, training__max_epochs=None, training__max_steps=2, training__validate_every=1,
    )  # fmt: skip
    run(["train", *arguments_of(config)])


def test_advice_of_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str]) -> None:
    """Guards the way from a dirty corpus over the printed commands to one that has nothing grave."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check, "_measured_speed", lambda *_: 2000)
    good = [(a.capitalize(), b.capitalize()) for a, b in PAIRS]
    write_tsv(tmp_path / "dirty.tsv", [*good, *((a, a) for a, _ in good[:30])])
    said = run(["check", "dirty.tsv", *ENGLISH_TO_ITALIAN])
    assert "grave" in said
    said = run(found(r"clean with: (.*?--output cleaned)", said))
    train = found(r"Train on the rest with: (.*)$", said)
    words = shlex.split(train)
    options = words[words.index("train" if "train" in words else "train.py") + 1 :]
    assert parse_train(options).data.train == "cleaned/train.tsv"
    assert "grave" not in run(["check", *options])


def test_training_that_is_too_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a number of epochs or minutes that is still too small."""
    monkeypatch.setattr(check, "_measured_speed", lambda *_: 2000)
    table = write_tsv(tmp_path / "pairs.tsv", [(a.capitalize(), b.capitalize()) for a, b in PAIRS])
    words = ["--data.train", str(table), *ENGLISH_TO_ITALIAN, "--training.max_epochs", "1"]
    words += ["--training.max_minutes", "0.001"]
    for setting in ("max_minutes", "max_epochs"):
        verdict = check.check_corpus(parse_check(words)[0]).verdict
        assert verdict.startswith("Too little training")
        words = follow(verdict, rf"(?P<key>training\.{setting}) is [^:]*: raise it to (?P<value>\d+) or more", words)
    assert "Too little training" not in check.check_corpus(parse_check(words)[0]).verdict


def test_spaces_that_moses_put_around_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str]
) -> None:
    """Guards a command that leaves the spaces, or takes the tab between the two sides for one."""
    pytest.importorskip("sacremoses", reason="needs sacremoses: pip install sacremoses")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check, "_measured_speed", lambda *_: 2000)
    for language, side in zip(("en", "it"), zip(*PAIRS, strict=True), strict=True):
        text = "".join(f"{text[:-1].capitalize()} .\n" for text in side)
        (tmp_path / f"apart.{language}").write_text(text, encoding="utf-8")
    command = ["check", "apart", *ENGLISH_TO_ITALIAN]
    said = run(command)
    commands = re.findall(r"(sacremoses -l (\w+) detokenize)", said)
    assert [language for _, language in commands] == ["en", "it"]
    for line, language in commands:
        convert(tmp_path / f"apart.{language}", line)
    assert "tokenized before" not in run(command)
