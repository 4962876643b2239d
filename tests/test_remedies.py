"""What messages tell people to do: taken from the text of the message and done as it says, it ends the complaint."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import test_file_shapes as shapes
from conftest import in_child, tiny_config, tiny_pairs, write_tsv
from dragoman import check
from dragoman.__main__ import COMMANDS, main
from dragoman.command_line import as_word, parse_train, read_settings
from dragoman.corpora.sources import find_sources
from dragoman.corpora.splitting import check_splits, read_portions
from dragoman.errors import ConfigError, DataError
from dragoman.settings import DEFAULTS, Config, values

PAIRS = list(dict(tiny_pairs(300)).items())
ENGLISH_TO_ITALIAN = ["--data.source_lang", "en", "--data.target_lang", "it"]
ICONV = r"(?P<command>iconv -f \S+ -t UTF-8)"
ADD = r"add (?P<options>--data\.source_lang \S+ --data\.target_lang \S+)"
SKIP = r"with (?P<options>--data\.on_bad_line skip)$"


def follow(message: str, remedy: str, words: list[str]) -> list[str]:
    """Do what a message says, and return the command line to try again.

    The groups of the pattern `remedy` say what it names: `options` to add; a `key` and its `value`; what to write
    `instead` of the first word of the message; or a `command` that converts the file of data.train.
    """
    matched = re.search(remedy, message)
    assert matched, message
    match matched.groupdict():
        case {"options": options}:
            return [*words, *shlex.split(options)]
        case {"key": key, "value": value}:
            return [*words, f"--{key}", value]
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
    ("--training.epochs 3", [r"did you mean (?P<instead>--\S+)\?"]),
    ("--learning_rate 0.1", [r"did you mean (?P<instead>--\S+)\?"]),
    ("--model.dropout 0.1 pairs.tsv", [r"or write (?P<instead>--data\.train \S+)$"]),
]


@pytest.mark.parametrize(("line", "remedies"), SETTINGS, ids=[line for line, _ in SETTINGS])
def test_settings(line: str, remedies: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards remedies that name no value, or a value that is refused."""
    write_tsv(tmp_path / "pairs.tsv", PAIRS)
    monkeypatch.chdir(tmp_path)
    words = line.split()
    for remedy in remedies:
        with pytest.raises(ConfigError) as refused:
            read_settings(words)
        words = follow(str(refused.value), remedy, words)
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
    *(
        (write.__name__, write, [], [SKIP])
        for write in (shapes.short_row, shapes.open_quote, shapes.broken_subtitles, shapes.broken_catalogue)
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
    run([*other, *shlex.split(found(r"such as (--run\.name \S+)\.$", said))])
    write_tsv(Path("corpus/few.tsv"), tiny_pairs(5, seed=6))
    against = "evaluate --run runs/tiny --data corpus/few.tsv --against runs/other"
    run(found(r"create it with (.*)$", run(against, 3)))
    assert "wrote the report" in run(against)


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
