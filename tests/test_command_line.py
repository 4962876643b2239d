"""Command lines: what a mistake says, which value wins, and --help."""

import dataclasses
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dragoman
from conftest import HANG, ROOT
from dragoman import __main__ as program
from dragoman import command_line
from dragoman.command_line import override, parse_settings
from dragoman.config_file import load
from dragoman.errors import ConfigError
from dragoman.settings import SETTINGS, Config, DecodingConfig, ModelConfig, RunConfig, TrainingConfig

ARGUMENTS: list[tuple[list[str], list[str]]] = [
    (["--model.d_modle", "64"], ["--model.d_modle", "did you mean --model.d_model?"]),
    (["--model.d_mod", "64"], ["--model.d_mod is not an option", "did you mean --model.d_model?"]),
    (["--confg", "x.yaml"], ["--confg", "did you mean --config?"]),
    (["--batch-size", "3"], ["did you mean --training.batch_tokens?"]),
    (["--training.max_length", "3"], ["did you mean --decoding.max_length?"]),
    (["--qqq", "3"], ["--qqq is not an option", "--help"]),
    (["--model.d_model"], ["--model.d_model needs a value"]),
    (["--model.d_model", "--model.n_heads", "2"], ["--model.d_model needs a value"]),
    (["--config"], ["--config needs a value"]),
    (["--print_config=1"], ["--print_config", "ignored"]),
    (["a.tsv", "--model.d_model", "64", "128"], ["128 is not an option", "stands alone"]),
    (["-m", "64"], ["-m is not an option"]),
    (["--model.d_model", "abc"], ["model.d_model is abc", "whole number"]),
    (["--training.lr", "-0.1"], ["training.lr is -0.1", "greater than 0"]),
    (["--training.lr=nan"], ["training.lr is nan", "finite"]),
    (["--model.d_model", "x" * 100_000], ["model.d_model is xxx"]),
    (["--run.name="], ["run.name is empty"]),
    (["--model.architecture=encoder-only", "--decoding.beam_size=5"], ["encoder-only", "beam_size to 1"]),
    (["--training.r_drop", "5"], ["--training.r_drop is not an option"]),
    (["--config", "nowhere.yaml"], ["nowhere.yaml", "No such file"]),
]


def failure(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that parse_settings prints before it exits with 2."""
    with pytest.raises(SystemExit) as stopped:
        parse_settings(arguments)
    printed = capsys.readouterr()
    assert stopped.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("train.py: error: ")
    assert printed.err.count("\n") == 1
    assert printed.err.endswith("\n")
    return printed.err


@pytest.mark.parametrize(("arguments", "fragments"), ARGUMENTS, ids=[" ".join(given)[:60] for given, _ in ARGUMENTS])
def test_mistake_names_the_setting_and_the_remedy(
    arguments: list[str], fragments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """Guards against silently ignored settings, and argparse, which abbreviates."""
    monkeypatch.chdir(tmp_path)
    message = failure(arguments, capsys)
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    assert len(message) < 200


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config", "FILE", "--model.d_model", "64", "--run.name=mine"],
        ["--model.d_model=64", "--run.name", "mine", "--config=FILE"],
        ["--model.d_model", "64", "--config", "FILE", "--run.name", "mine"],
    ],
)
def test_command_line_overrules_the_file_in_any_order(arguments: list[str], tmp_path: Path) -> None:
    """Guards against arguments before --config, which the file must not overrule."""
    file = tmp_path / "a.yaml"
    file.write_text("model:\n  d_model: 32\n  n_heads: 2\nrun:\n  name: file\n", encoding="utf-8")
    parsed = parse_settings([argument.replace("FILE", str(file)) for argument in arguments])
    assert (parsed.model.d_model, parsed.model.n_heads, parsed.run.name) == (64, 2, "mine")
    assert parsed.training == TrainingConfig()


def test_a_first_word_names_the_data_or_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepts what people type first: `dragoman check pairs.xlsx`, two files by their prefix, a file of settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("pairs.xlsx", "corpus.en", "corpus.it", "folder/x"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    Path("mine.yaml").write_text("training: {max_steps: 7}", encoding="utf-8")
    for word in ("pairs.xlsx", "corpus", "folder", "opus:Tatoeba-v2023-04-12"):
        assert parse_settings([word, "--training.max_steps", "5"]).data.train == word
        assert parse_settings(["--training.max_steps", "5", word]).data.train == word
    assert parse_settings(["mine.yaml"]).training.max_steps == 7


def test_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    """Guards the first question in a bug report, for each way to start the program."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert dragoman.__version__ == version
    for arguments in (["--version"], ["train", "--version"], ["translate", "--version"]):
        assert program.main(arguments) == 0
        assert capsys.readouterr().out == f"dragoman {version}\n"


def test_the_package_shows_what_it_offers() -> None:
    """Guards `dir(dragoman)` in an interpreter, and against an unneeded import of torch."""
    code = "import dragoman, sys; print(*dir(dragoman)); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "Translator __version__ train\n"


def test_default_file_is_read_only_without_config(tmp_path: Path) -> None:
    """Guards against a mixture of two files, and a default file that must exist."""
    default, other = tmp_path / "default.yaml", tmp_path / "other.yaml"
    default.write_text("model: {d_model: 32}", encoding="utf-8")
    other.write_text("run: {name: other}", encoding="utf-8")
    assert parse_settings([], default_file=default).model.d_model == 32
    assert parse_settings(["--config", str(other)], default_file=default) == Config(run=RunConfig(name="other"))
    assert parse_settings([], default_file=tmp_path / "absent.yaml") == Config()
    other.write_text("model: {n_heads: 6}", encoding="utf-8")  # not valid without the command line
    assert parse_settings(["--config", str(other), "--model.d_model=96"]).model == ModelConfig(d_model=96, n_heads=6)
    assert isinstance(parse_settings(["--training.clip_norm", "2"]).training.clip_norm, float)


@pytest.mark.parametrize("text", ["null", "none", "None", "~"])
def test_null_unsets_only_optional_settings(text: str, tmp_path: Path) -> None:
    """Guards against a file called "None", and a model.tie of none taken for no value."""
    file = tmp_path / "a.yaml"
    file.write_text(f"data:\n  test: {text}\ntraining:\n  max_steps: {text}\n", encoding="utf-8")
    assert load(file) == Config()
    given = Config(training=TrainingConfig(patience=3))
    assert override(given, ["--training.patience", text]).training.patience is None
    assert parse_settings(["--model.tie", "none"]).model.tie == "none"


def test_override_changes_only_what_it_names() -> None:
    """Guards against an override that starts from the defaults again, or that changes the loaded config in place."""
    loaded = Config(run=RunConfig(name="mine"), model=ModelConfig(d_model=64))
    changed = override(loaded, ["--decoding.beam_size", "5", "--decoding.length_penalty=0.6"])
    assert changed == dataclasses.replace(loaded, decoding=DecodingConfig(beam_size=5, length_penalty=0.6))
    assert loaded.decoding == DecodingConfig()
    assert override(loaded, []) == loaded


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--decoding.beam_sise", "5"], "did you mean --decoding.beam_size?"),
        (["--decoding.beam_size", "0"], "at least 1"),
        (["--config", "a.yaml"], "--config is not an option"),
        (["--model.n_heads", "3"], "must divide"),
    ],
)
def test_override_raises_instead_of_exiting(arguments: list[str], fragment: str) -> None:
    """Guards against a library call that ends the whole program, and options of train.py that are ignored silently."""
    with pytest.raises(ConfigError) as raised:
        override(Config(), arguments)
    assert fragment in str(raised.value)


@pytest.mark.parametrize("columns", ["20", "80", "200"])
def test_help_shows_every_setting(columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """Guards against a setting that only the source mentions, and a narrow terminal that breaks the layout."""
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit) as stopped:
        command_line.parse_train(["--model.d_model", "64", "--help"])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= max(int(columns), 80)
    text = " ".join(printed.split())
    assert [key for key in SETTINGS if f" --{key} " not in text] == []
    # 1 == True, so a careless table of words would print these as true and false.
    for line in ("for one step [1]", "with adamw, 0 [0.1]", "subwords [false]", "training pairs [8]", "steps [null]"):
        assert line in text


@pytest.mark.parametrize("name", program.COMMANDS)
def test_help_of_every_command_fits_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against lines that wrap in the middle of a word."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stopped:
        program.parse(name, ["--help"], f"dragoman {name}")
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: dragoman {name} ")
    assert [line for line in text.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    ("arguments", "code", "fragment"),
    [
        ([], 2, "usage: dragoman COMMAND"),
        (["--help"], 0, "  average    average several checkpoints"),
        (["trian"], 2, "trian is not a command: did you mean train?"),
        (["Evaluate"], 2, "did you mean evaluate?"),
        (["frobnicate"], 2, "choose one of train, translate, "),
    ],
)
def test_command_without_a_known_name(
    arguments: list[str], code: int, fragment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against a traceback, or a list of all commands where the right one is clear."""
    assert program.main(arguments) == code
    printed = capsys.readouterr()
    assert fragment in printed.out + printed.err


def test_help_into_a_closed_pipe_is_no_error() -> None:
    """Guards against `--help | head`, which ended in a traceback."""
    command = f"{sys.executable} {ROOT / 'train.py'} --help | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=HANG)
    assert done.stdout.startswith("usage: train.py")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("parse", "arguments", "fragment"),
    [
        (command_line.parse_translate, ["--beam_size", "5", "hello"], "did you mean --decoding.beam_size?"),
        (command_line.parse_translate, ["--num_beams=5"], "did you mean --decoding.beam_size?"),
        (command_line.parse_serve, ["--prot", "80"], "did you mean --port?"),
        (command_line.parse_average, ["--run", "a", "--lats", "3"], "did you mean --last?"),
        (command_line.parse_export, ["--run", "x", "--to", "onnx", "more"], "more is not an option"),
    ],
)
def test_every_command_names_the_nearest_option(
    parse: Callable[[list[str]], object], arguments: list[str], fragment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against the bare "unrecognized arguments" of argparse."""
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert fragment in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("my/letters.tsv", "letters"),
        ("corpora/news/train", "news"),
        ("a folder/Übung 1.de-en.csv.gz", "Übung-1"),
        ("2.5 * data/letters + data/news", "letters"),
        ("train", "train"),
        ("Some-Body/opus_books", "opus_books"),
        ("???", "mine"),
    ],
)
def test_a_run_on_own_data_is_named_after_them(data: str, name: str, tmp_path: Path) -> None:
    """Guards the run of the default file, which other data would resume, and a name that the user chose."""
    file = tmp_path / "mine.yaml"
    file.write_text("model:\n  d_model: 64\n", encoding="utf-8")
    default = ROOT / "config.yaml"
    assert parse_settings([f"--data.train={data}"], default_file=default).run.name == name
    assert parse_settings([f"--data.train={data}", "--config", str(file)]).run.name == name
    assert parse_settings([f"--data.train={data}", "--run.name", "chosen"], default_file=default).run.name == "chosen"
    assert parse_settings([], default_file=default).run.name == parse_settings(["--config", str(file)]).run.name
    file.write_text(f"data:\n  train: '{data}'\nrun:\n  name: written\n", encoding="utf-8")
    assert parse_settings(["--config", str(file)]).run.name == "written"


def test_the_short_help_is_one_screen_of_the_long_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Guards against a short help that lists a hundred settings."""
    texts = []
    for flag in ("-h", "--help"):
        with pytest.raises(SystemExit) as ended:
            command_line.parse_train([flag])
        assert ended.value.code == 0
        texts.append(capsys.readouterr().out)
    short, whole = (set(text.splitlines()) for text in texts)
    assert len(texts[0].splitlines()) < 60
    assert len(short) < len(whole) / 2
    assert [key for key in SETTINGS if f"--{key} " in texts[0]] == [key for key in SETTINGS if key in command_line.MAIN]
