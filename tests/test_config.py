"""Settings: what a mistake says, what wins, what survives being written down."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import settings as settings_module
from dragoman.command_line import override, parse
from dragoman.config_file import dump, load
from dragoman.errors import ConfigError
from dragoman.settings import (
    Config,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    RunConfig,
    TokenizerConfig,
    TrainingConfig,
    changes,
    keys,
)

ROOT = Path(settings_module.__file__).parent
SECTIONS = [section for section in dataclasses.fields(Config) if isinstance(section.default, settings_module.Section)]


def test_special_tokens_stand_in_the_order_of_their_ids() -> None:
    """Guards a reordering of one list without the other: every id in a saved model would change its meaning."""
    tokens = [
        settings_module.SPECIAL_TOKENS[i]
        for i in (settings_module.PAD, settings_module.UNK, settings_module.SOS, settings_module.EOS)
    ]
    assert tokens == ["[PAD]", "[UNK]", "[SOS]", "[EOS]"]


# --- Mistakes -----------------------------------------------------------------------------------------------------

# Each file is wrong in one way; the message must contain every fragment.
FILES: list[tuple[str | bytes, list[str]]] = [
    # names
    ("model:\n  d_modle: 64", [":2:", "model.d_modle", "did you mean model.d_model?"]),
    ("modle:\n  d_model: 64", [":1:", "modle", "did you mean model?"]),
    ("run:\n  name: a\nlr: 0.1", [":3:", "lr is not a section", "did you mean training.lr?"]),
    ("training:\n  max_lenght: 64", ["training.max_lenght", "did you mean", "max_length?"]),
    ("model:\n  qqq: 1", ["model.qqq", "not a setting", "--help"]),
    ("model.d_model: 64", ["model.d_model", "two levels"]),
    # types
    ("model:\n  d_model: abc", [":2:", "model.d_model is abc", "whole number"]),
    ("model:\n  d_model: 3.0", ["model.d_model is 3.0", "whole number", "write 3."]),
    ("training:\n  max_steps: 1e5", ["training.max_steps is 1e5", "whole number or null", "write 100000."]),
    ("training:\n  max_steps: 1.5", ["training.max_steps is 1.5", "whole number"]),
    ("model:\n  d_model: true", ["model.d_model is true", "whole number"]),
    ("model:\n  d_model:", ["model.d_model is empty", "whole number"]),
    ("model:\n  d_model: null", ["model.d_model is null", "whole number"]),
    ('training:\n  patience: "none"', ["training.patience is none", "whole number"]),
    ("training:\n  lr: fast", ["training.lr is fast", "a number"]),
    ("training:\n  compile: yes", ["training.compile is yes", "true or false"]),
    ("training:\n  compile: 1", ["training.compile is 1", "true or false"]),
    ("training:\n  batch_tokens: many", ["training.batch_tokens is many", "a whole number or auto."]),
    ("training:\n  batch_tokens: 1e3", ["training.batch_tokens is 1e3", "a whole number or auto: write 1000."]),
    ("model:\n  d_model: [64]", ["model.d_model is a list", "single value"]),
    ("model:\n  d_model: {a: 64}", ["model.d_model is a mapping", "single value"]),
    ("data:\n  target_lang: no", [":2:", "data.target_lang is no", 'quote it, as "no"']),
    ("data:\n  target_lang: null", ["data.target_lang is null", "quote it"]),
    ("data:\n  revision: 0123456", ["data.revision is 0123456", "quote it"]),
    ("run:\n  name: 12:30", ["run.name is 12:30", "quote it"]),
    # choices
    ("model:\n  preset: smal", ["model.preset is smal", "auto, tiny, small, base, big", "did you mean small?"]),
    ("model:\n  norm: prre", ["model.norm is prre", "pre, post", "did you mean pre?"]),
    ("model:\n  tie: null", ["model.tie is null", "none, output, all"]),
    ("training:\n  precision: bf16", ["training.precision is bf16", "auto, float32, bfloat16, float16"]),
    # limits, at their very edge
    ("training:\n  lr: -1", [":2:", "training.lr is -1.0, but it must be greater than 0."]),
    ("training:\n  batch_tokens: 0", ["training.batch_tokens is 0", "at least 1"]),
    ("training:\n  lr: 0", ["training.lr is 0.0", "greater than 0"]),
    ("training:\n  lr: nan", ["training.lr is nan", "finite"]),
    ("training:\n  lr: .nan", ["training.lr is .nan", "number"]),
    ("training:\n  lr: 1e999", ["training.lr is inf", "finite"]),
    ("decoding:\n  length_penalty: -inf", ["decoding.length_penalty is -inf", "finite"]),
    ("model:\n  dropout: 1", ["model.dropout is 1.0", "at least 0 and less than 1"]),
    ("model:\n  dropout: -0.1", ["model.dropout is -0.1", "at least 0"]),
    ("data:\n  validation_fraction: 0", ["data.validation_fraction is 0.0", "greater than 0 and at most 0.5"]),
    ("data:\n  test_fraction: 0.6", ["data.test_fraction is 0.6", "at least 0 and at most 0.5"]),
    ("run:\n  seed: -1", ["run.seed is -1", "at least 0"]),
    ("tokenizer:\n  vocab_size: 7", ["tokenizer.vocab_size is 7", "at least 8"]),
    ("decoding:\n  beam_size: 0", ["decoding.beam_size is 0", "at least 1"]),
    ("decoding:\n  max_ratio: 0", ["decoding.max_ratio is 0.0", "greater than 0"]),
    ("decoding:\n  top_p: 0", ["decoding.top_p is 0.0", "greater than 0"]),
    ("decoding:\n  unknown: copie", ["decoding.unknown is copie", "did you mean copy?"]),
    ("decoding:\n  n_best: 3", ["decoding.n_best is 3", "beam_size"]),
    ("decoding:\n  beam_size: 4\n  diversity_groups: 3", ["decoding.diversity_groups is 3", "divide"]),
    ("decoding:\n  beam_size: 4\n  sample: true", ["decoding.sample is true", "beam_size"]),
    # settings that must agree
    ("model:\n  n_heads: 3", ["model.n_heads is 3", "divide model.d_model (128)", "1, 2, 4, 8, 16, 32"]),
    ("model:\n  d_model: 7\n  n_heads: 7", ["model.d_model is 7", "even"]),
    ("model:\n  tie: all", ["model.tie is all", "tokenizer.shared"]),
    ("data:\n  target_lang: en", ["data.target_lang is en", "differ from data.source_lang"]),
    ("training:\n  max_epochs: null", ["max_steps", "max_epochs", "max_minutes", "at least one"]),
    ("training: {schedule: inverse_sqrt, warmup_steps: 0}", ["training.warmup_steps is 0", "at least 1"]),
    ("training:\n  device: gpu", ["training.device is gpu", "cuda"]),
    ("run:\n  name: a/b", ["run.name is a/b", "plain folder name"]),
    ("run:\n  name: a\\b", ["run.name is a\\b", "plain folder name"]),
    ("run:\n  name: ..", ["run.name is ..", "plain folder name"]),
    ('run:\n  name: ""', ["run.name is empty"]),
    ('run:\n  name: "a\\nb"', ["run.name is 'a\\nb'", "plain folder name"]),
    # the file
    ("", ["file is empty"]),
    ("# only a comment\n", ["file is empty"]),
    ("- model\n- data\n", [":1:", "the file is a list", "sections"]),
    ("hello", ["the file is hello", "sections"]),
    ("model:", [":1:", "model is empty", "settings"]),
    ("model: 7", ["model is 7", "settings"]),
    ("model: [d_model]", ["model is a list", "settings"]),
    ("model: {d_model: 64", ["not valid YAML"]),
    ("model:\n\td_model: 64", [":2:", "not valid YAML"]),
    ("a: 1\n---\nb: 2", ["not valid YAML", "another document"]),
    ("a: *nothing", ["not valid YAML", "alias"]),
    ("? [a, b]\n: 1", ["plain word"]),
    ("model:\n  d_model: 64\n  n_heads: 2\n  d_model: 32", [":4:", "model.d_model stands twice", "line 2"]),
    ("model:\n  d_model: 64\nmodel:\n  n_heads: 2", [":3:", "model stands twice", "line 1"]),
    ("model: !!python/object/apply:os.system ['true']", [":1:", "!!python/object/apply:os.system", "refused"]),
    ("model:\n  d_model: !!python/name:os.system", [":2:", "!!python/name:os.system", "refused"]),
    ("[" * 1000 + "]" * 1000, ["nested too deeply"]),
    (b"run:\n  name: caf\xe9", [":2:", "0xe9", "UTF-8"]),
    (b"\xff\xfer\x00u\x00n\x00", ["0xff", "UTF-8"]),
    (b"run: \x01", ["not valid YAML", "special characters"]),
]

ARGUMENTS: list[tuple[list[str], list[str]]] = [
    (["--model.d_modle", "64"], ["--model.d_modle", "did you mean --model.d_model?"]),
    (["--model.d_modle=64"], ["--model.d_modle", "did you mean --model.d_model?"]),
    (["--model.d_mod", "64"], ["--model.d_mod is not an option", "did you mean --model.d_model?"]),
    (["--model.d-model", "64"], ["did you mean --model.d_model?"]),
    (["--trainnig.lr", "1"], ["did you mean --training.lr?"]),
    (["--confg", "x.yaml"], ["--confg", "did you mean --config?"]),
    (["--epochs", "3"], ["did you mean --training.max_epochs?"]),
    (["--training.max_length", "3"], ["did you mean --decoding.max_length?"]),
    (["--qqq", "3"], ["--qqq is not an option", "--help"]),
    (["--model.d_model"], ["--model.d_model needs a value"]),
    (["--model.d_model", "--model.n_heads", "2"], ["--model.d_model needs a value"]),
    (["--tokenizer.shared"], ["--tokenizer.shared needs a value"]),
    (["--config"], ["--config needs a value"]),
    (["--print_config=1"], ["--print_config takes no value"]),
    (["config.yaml"], ["config.yaml stands alone", "--section.key value"]),
    (["--model.d_model", "64", "128"], ["128 stands alone"]),
    (["-m", "64"], ["-m stands alone"]),
    (["--model.d_model", "abc"], ["model.d_model is abc", "whole number"]),
    (["--model.d_model", "1e3"], ["model.d_model is 1e3", "write 1000."]),
    (["--training.lr", "-1e-3"], ["training.lr is -0.001", "greater than 0"]),
    (["--training.lr=nan"], ["training.lr is nan", "finite"]),
    (["--training.compile", "maybe"], ["training.compile is maybe", "true or false"]),
    (["--model.norm", "past"], ["model.norm is past", "did you mean post?"]),
    (["--run.name="], ["run.name is empty"]),
    (["--model.d_model", "null"], ["model.d_model is null", "whole number"]),
    (["--model.architecture=encoder-only", "--training.r_drop=5"], ["training.r_drop is 5.0", "must be 0"]),
    (["--config", "nowhere.yaml"], ["nowhere.yaml", "No such file"]),
    (["--config", "."], [".: cannot read", "directory"]),
    (["--config", "a.yaml", "--config=b.yaml"], ["--config is given twice"]),
]


def failure(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that parse() prints before it exits with 2."""
    with pytest.raises(SystemExit) as stopped:
        parse(arguments)
    printed = capsys.readouterr()
    assert stopped.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("train.py: error: ")
    assert printed.err.count("\n") == 1
    assert printed.err.endswith("\n")
    return printed.err


@pytest.mark.parametrize(("content", "fragments"), FILES, ids=[repr(content)[:50] for content, _ in FILES])
def test_mistake_in_the_file(
    content: str | bytes, fragments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards wrong settings that pass in silence, tracebacks, and messages that leave the reader searching."""
    file = tmp_path / "mistake.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    message = failure(["--config", str(file)], capsys)
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    with pytest.raises(ConfigError) as raised:
        load(file)
    assert str(file) in str(raised.value)
    assert [fragment for fragment in fragments if fragment not in str(raised.value)] == []


@pytest.mark.parametrize(("arguments", "fragments"), ARGUMENTS, ids=[" ".join(given) for given, _ in ARGUMENTS])
def test_mistake_on_the_command_line(
    arguments: list[str], fragments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """Guards the same as above for arguments, where argparse would guess at abbreviations and at -1e-3."""
    monkeypatch.chdir(tmp_path)
    message = failure(arguments, capsys)
    assert [fragment for fragment in fragments if fragment not in message] == [], message


def test_every_limit_is_enforced() -> None:
    """Guards a limit that is declared but never looked at: just beyond each one, the section must refuse."""
    beyond = {"at least": -1, "greater than": 0, "at most": 1, "less than": 0}
    tried = 0
    for section in SECTIONS:
        for declared in dataclasses.fields(type(getattr(Config(), section.name))):
            for words, bound in declared.metadata["limits"].items():
                with pytest.raises(ConfigError, match=rf"{section.name}\.{declared.name} is .* {words} {bound}"):
                    type(getattr(Config(), section.name))(**{declared.name: bound + beyond[words]})
                tried += 1
    assert tried >= 30


def test_numbers_are_limited() -> None:
    """Guards a new setting without a limit: a count of -3 must not get as far as torch."""
    unlimited = []
    for key in keys():
        section, _, name = key.partition(".")
        declared = type(getattr(Config(), section)).__dataclass_fields__[name]
        if {int, float} & {declared.type, *get_args(declared.type)} and not declared.metadata["limits"]:
            unlimited.append(key)
    assert unlimited == []


def test_message_of_a_long_value_stays_short(capsys: pytest.CaptureFixture[str]) -> None:
    """Guards a terminal full of a pasted file."""
    assert len(failure(["--model.d_model", "x" * 100_000], capsys)) < 200


@pytest.mark.parametrize(
    ("arguments", "fragment"), [(["--model.d_modle", "64"], "model.d_model"), (["--config", "no.yaml"], "no.yaml")]
)
def test_mistake_in_a_process_of_its_own(arguments: list[str], fragment: str, tmp_path: Path) -> None:
    """Guards the exit code, a traceback after the message, and folders made before the settings were checked."""
    done = python("import config; config.parse()", arguments, tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert fragment in done.stderr
    assert list(tmp_path.iterdir()) == []


def python(code: str, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that works in the folder and leaves no cache behind."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"
    command = [sys.executable, "-B", "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30)


# --- What wins ----------------------------------------------------------------------------------------------------


def test_no_arguments_give_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a parser with defaults of its own, and one that does not read sys.argv."""
    assert parse([]) == Config()
    monkeypatch.setattr(sys, "argv", ["train.py", "--model.d_model", "64"])
    assert parse().model.d_model == 64


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config", "FILE", "--model.d_model", "64", "--run.name=mine"],
        ["--model.d_model=64", "--run.name", "mine", "--config=FILE"],
        ["--model.d_model", "64", "--config", "FILE", "--run.name", "mine"],
    ],
)
def test_command_line_wins_over_file_in_any_order(arguments: list[str], tmp_path: Path) -> None:
    """Guards the trap that arguments before --config are lost to the file."""
    file = tmp_path / "a.yaml"
    file.write_text("model:\n  d_model: 32\n  n_heads: 2\nrun:\n  name: file\n", encoding="utf-8")
    parsed = parse([argument.replace("FILE", str(file)) for argument in arguments])
    assert (parsed.model.d_model, parsed.model.n_heads, parsed.run.name) == (64, 2, "mine")
    assert parsed.training == TrainingConfig()


def test_default_file_is_read_only_without_config(tmp_path: Path) -> None:
    """Guards a mixture of two files, and a default file that must exist."""
    default, other = tmp_path / "default.yaml", tmp_path / "other.yaml"
    default.write_text("model: {d_model: 32}", encoding="utf-8")
    other.write_text("run: {name: other}", encoding="utf-8")
    assert parse([], default_file=default).model.d_model == 32
    assert parse(["--config", str(other)], default_file=default) == Config(run=RunConfig(name="other"))
    assert parse([], default_file=tmp_path / "absent.yaml") == Config()


def test_settings_that_must_agree_are_judged_together(tmp_path: Path) -> None:
    """Guards a check of the file alone, before the command line has mended it."""
    file = tmp_path / "a.yaml"
    file.write_text("model: {n_heads: 6}", encoding="utf-8")
    assert parse(["--config", str(file), "--model.d_model", "96"]).model == ModelConfig(d_model=96, n_heads=6)


@pytest.mark.parametrize("text", ["5e-4", "5E-4", "0.0005", ".0005", "+5.0e-04"])
def test_numbers_are_read_alike_everywhere(text: str, tmp_path: Path) -> None:
    """Guards YAML 1.1, for which 5e-4 is a text, since it has no point."""
    file = tmp_path / "a.yaml"
    file.write_text(f"training:\n  lr: {text}\n", encoding="utf-8")
    assert load(file).training.lr == parse(["--training.lr", text]).training.lr == 0.0005


def test_whole_number_for_a_float_is_a_float() -> None:
    """Guards an int that travels on as if it were a float and prints otherwise in a saved config."""
    value = parse(["--training.clip_norm", "2"]).training.clip_norm
    assert value == 2
    assert isinstance(value, float)


@pytest.mark.parametrize("text", ["null", "none", "None", "~"])
def test_null_unsets_only_what_may_be_unset(text: str, tmp_path: Path) -> None:
    """Guards a file called "None", and a model.tie of none that is taken for no value."""
    file = tmp_path / "a.yaml"
    file.write_text(f"data:\n  test: {text}\ntraining:\n  max_steps: {text}\n", encoding="utf-8")
    assert load(file) == Config()
    given = Config(training=TrainingConfig(patience=3))
    assert override(given, ["--training.patience", text]).training.patience is None
    assert parse(["--model.tie", "none"]).model.tie == "none"


def test_file_from_another_editor(tmp_path: Path) -> None:
    """Guards the byte order mark and the line ends of Windows, which would become part of a name or a value."""
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbfrun:\r\n  name: mine\r\n")
    assert load(file) == Config(run=RunConfig(name="mine"))


# --- Written down and read back -----------------------------------------------------------------------------------

ODD = [
    Config(),
    Config(data=DataConfig(source_lang="no", target_lang="null", validation="none", test="~", config="1e5")),
    Config(data=DataConfig(train="a: b # c", revision="0123456", config="12:30", test="über/日本 😀.tsv")),
    Config(data=DataConfig(train=" led by a space", validation="two\nlines", test="'\"\\", config="-", revision="=")),
    Config(training=TrainingConfig(lr=1e-9, clip_norm=1e30, label_smoothing=1 / 3, max_steps=10**15, max_minutes=0.1)),
    Config(tokenizer=TokenizerConfig(shared=True), model=ModelConfig(tie="all", positions="none")),
    Config(training=TrainingConfig(batch_tokens="auto")),
    Config(decoding=DecodingConfig(length_penalty=-0.5), training=TrainingConfig(max_epochs=None, max_steps=1)),
]


@pytest.mark.parametrize("original", ODD)
def test_dump_is_read_back(original: Config, tmp_path: Path) -> None:
    """Guards a run that resumes with other settings than it began with: none as null, no as False, 1e-09 as text."""
    file = tmp_path / "config.yaml"
    file.write_text(dump(original), encoding="utf-8")
    assert load(file) == original
    assert dump(load(file)) == dump(original)


@settings(deadline=None)
@given(st.text(min_size=1), st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_any_text_and_number_is_read_back(tmp_path_factory: Any, text: str, number: float) -> None:
    """Guards the rest of Unicode and of the floats, which no list of odd values covers."""
    original = Config(data=DataConfig(train=text, test=text), training=TrainingConfig(lr=number))
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(dump(original).encode("ascii"))
    assert load(file) == original


def test_print_config_prints_what_load_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards a printed config that leaves out the overrides or some of the keys."""
    with pytest.raises(SystemExit) as stopped:
        parse(["--print_config", "--model.d_model", "64", "--data.train", "é: ü"])
    assert stopped.value.code == 0
    file = tmp_path / "printed.yaml"
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    assert load(file) == Config(model=ModelConfig(d_model=64), data=DataConfig(train="é: ü"))
    assert named(file.read_text(encoding="utf-8")) == keys()


def named(text: str) -> list[str]:
    """The dotted names in a file of our own making, in their order."""
    names, section = [], ""
    for line in text.splitlines():
        word = line.partition(":")[0]
        if line.startswith("  ") and not word.strip().startswith("#"):
            names.append(f"{section}.{word.strip()}")
        elif line and line[0].isalpha():
            section = word
    return names


def test_shipped_file_is_the_default_run_and_explains_every_key() -> None:
    """Guards a config.yaml that has drifted from the defaults in code, or a new setting that it does not mention."""
    file = ROOT / "config.yaml"
    text = file.read_text(encoding="utf-8")
    assert load(file) == Config()
    assert named(text) == keys()
    bare = [line for line in text.splitlines() if line.startswith("  ") and "# " not in line]
    assert bare == []


# --- Help ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["20", "80", "200"])
def test_help_shows_every_setting(columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """Guards a setting that only the source tells of, and a narrow terminal that breaks the layout."""
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit) as stopped:
        parse(["--help"])
    assert stopped.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert [key for key in keys() if f" --{key} " not in text] == []
    assert "(inverse_sqrt, linear, cosine, constant) [linear]" in text
    # 1 == True, so a careless table of words would print these as true and false.
    assert "INT batches whose gradients are summed for one step [1]" in text
    assert "NUMBER pull of the weights towards zero [0.0]" in text
    assert "BOOL one vocabulary for both languages [false]" in text
    assert "passes over the data [9]" in text
    assert "stop after so many steps [null]" in text


@pytest.mark.parametrize("arguments", [["--help"], ["--print_config"], ["-h", "--model.d_model"]])
def test_help_is_instant(arguments: list[str], tmp_path: Path) -> None:
    """Guards an import of torch, which would make --help take seconds."""
    code = "import atexit; atexit.register(lambda: print('torch' in sys.modules)); import config; config.parse()"
    done = python(code, arguments, tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "False"
    assert list(tmp_path.iterdir()) == []


# --- For the other modules ----------------------------------------------------------------------------------------


def test_sections_are_frozen() -> None:
    """Guards a setting that changes under way, after it was checked and saved."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().model.d_model = 64  # pyright: ignore[reportAttributeAccessIssue]


RESUME = {
    "refused": """
        run.seed
        data.source_lang data.target_lang data.directions data.temperature data.config data.revision
        data.validation_fraction data.test_fraction data.on_bad_line data.lowercase data.normalize
        data.max_length data.max_ratio
        tokenizer.kind tokenizer.vocab_size tokenizer.min_frequency tokenizer.shared
        model.preset model.architecture model.d_model model.n_heads model.kv_heads model.encoder_layers
        model.decoder_layers model.d_ff model.activation model.attention_bias model.norm model.norm_kind
        model.positions model.max_positions model.upsampling model.tie
        training.init_from training.batch_tokens training.accumulate training.optimizer training.ema
    """,
    "warned": """
        data.bleu_tokenize model.dropout model.attention_dropout model.activation_dropout
        model.word_dropout model.depth_dropout training.decay_share training.r_drop training.subword_dropout
        training.lr training.warmup_steps training.schedule training.label_smoothing training.clip_norm
        training.copy_dropout training.weight_decay training.precision training.compile training.device
        decoding.beam_size decoding.length_penalty decoding.length_formula decoding.max_length decoding.max_ratio
        decoding.min_ratio decoding.no_repeat_ngram decoding.precision decoding.n_best decoding.diversity_groups
        decoding.diversity_penalty decoding.sample decoding.temperature decoding.top_k decoding.top_p decoding.seed
        decoding.unknown decoding.split_sentences
    """,
    "free": """
        run.name run.dir data.train data.validation data.test
        training.max_steps training.max_epochs training.max_minutes
        training.log_every training.validate_every training.save_every training.keep_last training.patience
        training.health_every training.profile training.fsdp
    """,
}


def test_every_setting_says_whether_a_resumed_run_may_change_it() -> None:
    """Guards a new setting that nobody has thought through for a resumed run, and a class that changes by accident."""
    classes = {}
    for section in SECTIONS:
        for declared in dataclasses.fields(type(getattr(Config(), section.name))):
            classes[f"{section.name}.{declared.name}"] = declared.metadata.get("resume")
    assert classes == {key: resume for resume, names in RESUME.items() for key in names.split()}
    with pytest.raises(TypeError, match="resume"):
        settings_module.setting(1, "a setting without a class")  # pyright: ignore[reportCallIssue]


def test_changes_are_named_with_their_class() -> None:
    """Guards a changed setting that a resumed run does not notice."""
    new = override(Config(), ["--training.max_epochs", "30", "--model.d_model", "64", "--training.lr", "5e-4"])
    assert changes(Config(), new) == [
        ("model.d_model", 128, 64, "refused"),
        ("training.max_epochs", 9, 30, "free"),
        ("training.lr", 0.003, 0.0005, "warned"),
    ]
    assert changes(new, new) == []


def test_override_changes_what_it_names_and_nothing_else() -> None:
    """Guards an override that starts again from the defaults, or that changes the loaded config in place."""
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
    """Guards a library call that ends the whole program, and options of train.py that would be ignored in silence."""
    with pytest.raises(ConfigError) as raised:
        override(Config(), arguments)
    assert fragment in str(raised.value)
