"""Config files: what a mistake says, and that a saved config reads back as it was."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from dragoman.command_line import parse_settings
from dragoman.config_file import dump, load, loads, meanings
from dragoman.errors import ConfigError
from dragoman.setting_types import kind_of
from dragoman.settings import (
    DEFAULTS_OF_0_1,
    OF_VERSION_0_1,
    RETIRED,
    SETTINGS,
    Config,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    RunConfig,
    TokenizerConfig,
    TrainingConfig,
    with_values,
)

# Each file is wrong in one way; the message must contain every fragment.
FILES: list[tuple[str | bytes, list[str]]] = [
    # names
    ("model:\n  d_modle: 64", [":2:", "model.d_modle", "did you mean model.d_model?"]),
    ("modle:\n  d_model: 64", [":1:", "modle", "did you mean model?"]),
    ("model:\n  qqq: 1", ["model.qqq", "not a setting", "--help"]),
    ("model.d_model: 64", ["model.d_model", "two levels"]),
    # types
    ("model:\n  d_model: abc", [":2:", "model.d_model is abc", "whole number"]),
    ("model:\n  d_model: 3.0", ["model.d_model is 3.0", "whole number", "write 3."]),
    ("training:\n  max_steps: 1e5", ["training.max_steps is 1e5", "whole number or null", "write 100000."]),
    ("model:\n  d_model:", ["model.d_model is empty", "whole number"]),
    ('training:\n  patience: "none"', ["training.patience is none", "whole number"]),
    ("training:\n  lr: fast", ["training.lr is fast", "a number"]),
    ("training:\n  compile: yes", ["training.compile is yes", "true or false"]),
    ("training:\n  batch_tokens: many", ["training.batch_tokens is many", "a whole number."]),
    ("model:\n  d_model: [64]", ["model.d_model is a list", "single value"]),
    ("data:\n  target_lang: no", [":2:", "data.target_lang is no", 'quote it, as "no"']),
    ("data:\n  revision: 0123456", ["data.revision is 0123456", "quote it"]),
    ("run:\n  name: 12:30", ["run.name is 12:30", "quote it"]),
    # choices
    ("model:\n  preset: smal", ["model.preset is smal", "auto, tiny, small, base, big", "did you mean small?"]),
    ("model:\n  tie: null", ["model.tie is null", "none, output, all"]),
    # limits, at their very edge
    ("training:\n  lr: -1", [":2:", "training.lr is -1.0, but it must be greater than 0."]),
    ("training:\n  lr: 0", ["training.lr is 0.0", "greater than 0"]),
    ("training:\n  lr: nan", ["training.lr is nan", "finite"]),
    ("training:\n  lr: 1e999", ["training.lr is inf", "finite"]),
    ("model:\n  dropout: 1", ["model.dropout is 1.0", "at least 0 and less than 1"]),
    ("data:\n  test_fraction: 0.6", ["data.test_fraction is 0.6", "at least 0 and at most 0.5"]),
    ("decoding:\n  n_best: 3", ["decoding.n_best is 3", "beam_size"]),
    ("decoding:\n  beam_size: 4\n  sample: true", ["decoding.sample is true", "beam_size"]),
    # settings that must agree
    ("model:\n  n_heads: 3", ["model.n_heads is 3", "divide model.d_model (128)", "1, 2, 4, 8, 16, 32"]),
    ("model:\n  d_model: 7\n  n_heads: 7", ["model.d_model is 7", "even"]),
    ("model:\n  tie: all", ["model.tie is all", "tokenizer.shared"]),
    ("training:\n  max_epochs: null", ["max_steps", "max_epochs", "max_minutes", "at least one"]),
    ("training: {schedule: inverse_sqrt, warmup_steps: 0}", ["training.warmup_steps is 0", "at least 1"]),
    ("training:\n  device: gpu", ["training.device is gpu", "cuda"]),
    ("run:\n  name: a/b", ["run.name is a/b", "plain folder name"]),
    ('run:\n  name: ""', ["run.name is empty"]),
    ('run:\n  name: "a\\nb"', ["run.name is 'a\\nb'", "plain folder name"]),
    # the file
    ("", ["file is empty"]),
    ("- model\n- data\n", [":1:", "the file is a list", "sections"]),
    ("model:", [":1:", "model is empty", "settings"]),
    ("model: {d_model: 64", ["not valid YAML"]),
    ("model:\n\td_model: 64", [":2:", "not valid YAML"]),
    ("a: 1\n---\nb: 2", ["not valid YAML", "another document"]),
    ("a: *nothing", ["not valid YAML", "undefined alias"]),
    ("? [a, b]\n: 1", ["plain word"]),
    ("model:\n  d_model: 64\n  n_heads: 2\n  d_model: 32", [":4:", "model.d_model appears twice", "line 2"]),
    ("model:\n  d_model: 64\nmodel:\n  n_heads: 2", [":3:", "model appears twice", "line 1"]),
    ("model: !!python/object/apply:os.system ['true']", [":1:", "model is a list"]),
    ("data:\n  train: !!python/name:os.system", [":2:", "data.train"]),
    ("[" * 1000 + "]" * 1000, ["nested too deeply"]),
    (b"run:\n  name: caf\xe9", [":2:", "0xe9", "UTF-8"]),
    (b"\xff\xfer\x00u\x00n\x00", ["0xff", "UTF-8"]),
    (b"run: \x01", ["not valid YAML", "special characters"]),
]


@pytest.mark.parametrize(("content", "fragments"), FILES, ids=[repr(content)[:50] for content, _ in FILES])
def test_mistake_names_file_line_and_remedy(
    content: str | bytes, fragments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against wrong settings accepted silently, tracebacks, and messages without a place or a remedy."""
    file = tmp_path / "mistake.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError) as raised:
        load(file)
    message = str(raised.value)
    assert str(file) in message
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    with pytest.raises(SystemExit) as stopped:
        parse_settings(["--config", str(file)])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert [fragment for fragment in fragments if fragment not in error] == [], error


@pytest.mark.parametrize("text", ["5e-4", "5E-4", "0.0005", ".0005", "+5.0e-04"])
def test_numbers_are_read_as_on_the_command_line(text: str, tmp_path: Path) -> None:
    """Guards against YAML 1.1, in which 5e-4 is text because it has no decimal point."""
    file = tmp_path / "a.yaml"
    file.write_text(f"training:\n  lr: {text}\n", encoding="utf-8")
    assert load(file).training.lr == parse_settings(["--training.lr", text]).training.lr == 0.0005


def test_file_from_another_editor(tmp_path: Path) -> None:
    """Guards against the byte order mark and Windows line ends, which could become part of a name or a value."""
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbfrun:\r\n  name: mine\r\n")
    assert load(file) == Config(run=RunConfig(name="mine"))


def test_retired_settings_still_load() -> None:
    """Guards the runs of users: a checkpoint saved by an earlier version names settings that no longer exist."""
    assert not RETIRED & set(SETTINGS)
    for key in RETIRED:
        section, _, name = key.partition(".")
        expected = with_values(Config(), DEFAULTS_OF_0_1) if key in OF_VERSION_0_1 else Config()
        assert loads(f"{section}:\n  {name}: 0.1\n".encode(), Path("old.yaml")) == expected


def test_a_file_means_the_defaults_of_its_version() -> None:
    """Guards runs of version 0.1, which must resume with their optimizer."""
    old, new = (
        loads(f"training:\n  weight_decay: 0.2\n{more}".encode(), Path("a.yaml"))
        for more in ("  copy_dropout: 0.1\n", "")
    )
    assert (old.training.optimizer, old.training.weight_decay, old.training.max_epochs) == ("adamw", 0.2, 9)
    assert new == Config(training=TrainingConfig(weight_decay=0.2))


ODD = [
    Config(),
    Config(data=DataConfig(source_lang="no", target_lang="null", validation="none", test="~", config="1e5")),
    Config(data=DataConfig(train="a: b # c", revision="0123456", config="12:30", test="über/日本 😀.tsv")),
    Config(data=DataConfig(train=" led by a space", validation="two\nlines", test="'\"\\", config="-", revision="=")),
    Config(training=TrainingConfig(lr=1e-9, clip_norm=1e30, label_smoothing=1 / 3, max_steps=10**15, max_minutes=0.1)),
    Config(tokenizer=TokenizerConfig(shared=True), model=ModelConfig(tie="all", positions="none")),
    Config(decoding=DecodingConfig(length_penalty=-0.5), training=TrainingConfig(max_epochs=None, max_steps=1)),
]


@pytest.mark.parametrize("original", ODD)
def test_dump_reads_back(original: Config, tmp_path: Path) -> None:
    """Guards against a run that resumes with other settings: none as null, no as False, 1e-09 as text."""
    file = tmp_path / "config.yaml"
    file.write_text(dump(original), encoding="utf-8")
    assert load(file) == original
    assert dump(load(file)) == dump(original)


@settings(deadline=None)
@given(st.text(min_size=1), st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_any_text_and_number_reads_back(tmp_path_factory: Any, text: str, number: float) -> None:
    """Guards the rest of Unicode and of the floats, which no list of odd values covers."""
    original = Config(data=DataConfig(train=text, test=text), training=TrainingConfig(lr=number))
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(dump(original).encode("ascii"))
    assert load(file) == original


def named(text: str) -> list[str]:
    """The dotted names of the settings in a file that we wrote, in order."""
    names, section = [], ""
    for line in text.splitlines():
        word = line.partition(":")[0]
        if line.startswith("  ") and not word.strip().startswith("#"):
            names.append(f"{section}.{word.strip()}")
        elif line and line[0].isalpha():
            section = word
    return names


def test_print_config_prints_what_load_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards against a printed config without the overrides, or without some of the keys."""

    def printed(*words: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            parse_settings(["--print_config", *words])
        assert stopped.value.code == 0
        return capsys.readouterr().out

    text = printed("--model.d_model", "64", "--run.name", "é: ü")
    assert loads(text.encode(), tmp_path) == Config(run=RunConfig(name="é: ü"), model=ModelConfig(d_model=64))
    assert named(text) == list(SETTINGS)
    own = printed("--data.train", "é: ü")  # what is not decided yet is said in a comment
    config = loads(own.encode(), tmp_path)
    assert (config.run.name, config.data.train, config.model.preset) == ("é-ü", "é: ü", "auto")
    assert "# Set data.source_lang and data.target_lang" in own


def test_shipped_file_is_the_default_run_and_explains_every_key() -> None:
    """Guards against a config.yaml that differs from the defaults in code, or that does not explain a new setting."""
    file = ROOT / "config.yaml"
    text = file.read_text(encoding="utf-8")
    assert load(file) == Config()
    assert named(text) == list(SETTINGS)
    assert {key for key, meaning in meanings().items() if meaning} == set(SETTINGS)
    choices = {key: {*kind_of(declared).choices} for key, declared in SETTINGS.items()}
    unnamed = {key: {each for each in choices[key] if each not in meaning} for key, meaning in meanings().items()}
    assert {key: words for key, words in unnamed.items() if words - {SETTINGS[key].default}} == {}


@pytest.mark.parametrize("file", sorted((ROOT / "configs").rglob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_configs_load_and_name_their_run(file: Path) -> None:
    """Guards against a shipped config that a later change of the settings has broken."""
    assert load(file).run.name == file.stem
