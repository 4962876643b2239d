"""Presets: which setting wins, what a resumed run keeps, and that no preset makes an invalid config."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from conftest import ROOT, in_child, tiny_pairs, write_tsv
from dragoman import checkpoint, command_line, presets, train
from dragoman import settings as settings_module
from dragoman.__main__ import run as run_command
from dragoman.architectures import build, summary
from dragoman.command_line import parse_settings
from dragoman.config_file import dump, load, loads
from dragoman.corpora.sources import find_sources
from dragoman.dataset import masks
from dragoman.errors import ConfigError
from dragoman.settings import Config, DataConfig, ModelConfig, values
from dragoman.training import planning, starting
from whole_corpus import read_corpus

NAMES = [*presets.PRESETS]


def given(**settings: object) -> list[str]:
    """Settings as a command line: `model__dropout=0.2`."""
    return [f"--{key.replace('__', '.')}={'null' if value is None else value}" for key, value in settings.items()]


@contextmanager
def tables(**changes: dict[str, Any]) -> Iterator[None]:
    """Context manager: change the tables of presets, as a later version of this program might."""
    with pytest.MonkeyPatch.context() as patch:
        for name, values in changes.items():
            patch.setitem(presets.PRESETS, name, presets.PRESETS[name] | values)
        yield


def test_all_presets_set_the_same_settings() -> None:
    """Guards against a misspelt key, a key that one preset lacks, and a name without a table."""
    (declared,) = (field for field in fields(ModelConfig) if field.name == "preset")
    assert get_args(get_args(declared.type)[0]) == ("auto", *presets.PRESETS)
    assert list(presets.UP_TO) == NAMES
    assert set(presets.KEYS) <= set(settings_module.SETTINGS)
    assert [name for name in NAMES if set(presets.PRESETS[name]) != set(presets.KEYS)] == []


@pytest.mark.parametrize("name", NAMES)
def test_preset_sets_its_table_and_is_saved_by_value(name: str) -> None:
    """Guards against a value of the wrong type, which dump writes differently, and a load that uses today's table."""
    config = parse_settings(["--model.preset", name])
    assert {key: value for key, value in values(config).items() if key in presets.KEYS} == presets.PRESETS[name]
    text = dump(config)
    with tables(**{name: {"model.d_model": 64, "training.lr": 0.5}}):
        again = loads(text.encode(), Path("config.yaml"))
    assert again == config
    assert dump(again) == text
    assert "chosen" not in text


KINDS = {
    "encoder-decoder": {},
    "decoder-only": {},
    "encoder-only": {},
    "language model": {"model__architecture": "decoder-only", "data__source_lang": None, "tokenizer__shared": "true"},
}
CHOICES: list[dict[str, object]] = [
    {},
    {"tokenizer__kind": "word"},
    {"tokenizer__kind": "unigram", "model__tie": "none"},
    {"tokenizer__shared": "false"},
    {"model__positions": "rotary", "model__activation": "swiglu"},
    {"training__max_minutes": 3.0},
]


@pytest.mark.parametrize(("kind", "name"), [*product(KINDS, NAMES)])
def test_preset_is_valid_with_every_architecture(kind: str, name: str) -> None:
    """Guards against a table that is tuned on one architecture and refused by another, above all its ties."""
    settings = KINDS[kind] or {"model__architecture": kind}
    for choice in CHOICES:
        choice = settings | choice
        if choice.get("tokenizer__shared") == "false" and kind == "language model":
            continue
        config = values(parse_settings(given(model__preset=name, **choice)))
        assert [
            key for key, value in choice.items() if str(config[key.replace("__", ".")]).lower() != str(value).lower()
        ] == []


@pytest.mark.parametrize("name", NAMES)
def test_preset_is_valid_with_fsdp(name: str) -> None:
    """Guards against refusing the models that need several GPUs: Muon needs whole matrices."""
    training = parse_settings(given(model__preset=name, training__fsdp="true")).training
    assert (training.fsdp, training.optimizer) == (True, "adamw")
    begun = parse_settings(given(model__preset=name))
    if begun.training.optimizer == "muon":  # a run that started with it is not changed silently
        with pytest.raises(ConfigError, match=r"training\.optimizer is muon, .* training\.fsdp"):
            settings_module.with_saved_preset(parse_settings(given(model__preset=name, training__fsdp="true")), begun)


@pytest.mark.parametrize("name", NAMES)
def test_word_vocabulary_is_larger_than_a_subword_vocabulary(name: str) -> None:
    """Guards against word tokenization with a vocabulary of 2,000, in which most words would be [UNK]."""
    config = parse_settings(given(model__preset=name, tokenizer__kind="word"))
    assert (config.tokenizer.vocab_size, config.tokenizer.shared, config.model.tie) == (
        presets.WORD_VOCABULARY,
        False,
        "output",
    )
    config = parse_settings(
        given(model__preset=name, tokenizer__kind="word", tokenizer__vocab_size=900, tokenizer__shared="true")
    )
    assert (config.tokenizer.vocab_size, config.tokenizer.shared, config.model.tie) == (900, True, "all")
    plain = {"data__source_lang": None, "model__architecture": "decoder-only"}
    config = parse_settings(given(model__preset=name, tokenizer__kind="word", **plain))
    assert (config.tokenizer.vocab_size, config.tokenizer.shared) == (presets.WORD_VOCABULARY, True)


@pytest.mark.parametrize("name", NAMES)
def test_weight_decay_suits_the_optimizer(name: str) -> None:
    """Guards against AdamW, chosen by a user or by fsdp, with a weight decay that was measured with Muon."""
    for choice in ({"training__optimizer": "adamw"}, {"training__fsdp": "true"}):
        assert parse_settings(given(model__preset=name, **choice)).training.weight_decay == 0
    asked = parse_settings(given(model__preset=name, training__optimizer="adamw", training__weight_decay=0.1))
    assert asked.training.weight_decay == 0.1


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        ("encoder-decoder", "tiny", {}),
        ("encoder-decoder", "big", {"model__activation": "swiglu"}),
        ("encoder-decoder", "base", {"tokenizer__shared": "false"}),
        ("encoder-decoder", "base", {"model__tie": "none"}),
        ("decoder-only", "small", {"model__tie": "none"}),
        ("encoder-only", "base", {}),
    ],
)
def test_parameters_are_estimated(kind: str, name: str, settings: dict[str, object]) -> None:
    """Guards the formula behind the memory estimate, against the model itself."""
    config = parse_settings(given(model__preset=name, model__architecture=kind, **settings))
    vocabulary = config.tokenizer.vocab_size
    with torch.device("meta"):
        built = build.build_model(config.model, vocabulary, vocabulary)
    weights = sum(p.numel() for p in built.parameters())
    assert presets.parameters(values(config)) == pytest.approx(weights, rel=0.05)


EDITED = "tokenizer: {vocab_size: 500}\nmodel: {d_model: 64, dropout: 0.25, kv_heads: 2}\ndata: {max_length: 77}\n"
NAMED = EDITED.replace("model: {", "model: {preset: big, ")


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        # preset on the command line: overrules the file, but not the rest of the command line
        (EDITED, {"model__preset": "base"}, (8000, 256, 0.2, None, 0.003)),
        (EDITED, {"model__preset": "base", "model__dropout": 0.4}, (8000, 256, 0.4, None, 0.003)),
        (EDITED, {"training__lr": 0.1, "model__preset": "base"}, (8000, 256, 0.2, None, 0.1)),
        (NAMED, {"model__preset": "base", "model__kv_heads": 1}, (8000, 256, 0.2, 1, 0.003)),
        # preset in the file: yields to the file and to the command line
        (NAMED, {}, (500, 64, 0.25, 2, 0.001)),
        (NAMED, {"model__dropout": 0.4, "training__lr": 0.1}, (500, 64, 0.4, 2, 0.1)),
        # no preset
        (EDITED, {}, (500, 64, 0.25, 2, 0.007)),
        (NAMED, {"model__preset": None}, (500, 64, 0.25, 2, 0.007)),
    ],
)
def test_precedence(file: str, line: dict[str, object], expected: tuple[object, ...], tmp_path: Path) -> None:
    """Guards the order of defaults, file, preset and command line. What no preset sets always comes from the file."""
    path = tmp_path / "a.yaml"
    path.write_text(file, encoding="utf-8")
    config = parse_settings(["--config", str(path), *given(**line)])
    found = config.tokenizer.vocab_size, config.model.d_model, config.model.dropout, config.model.kv_heads
    assert (*found, config.training.lr) == expected
    assert config.data.max_length == 77


def test_preset_overrules_the_shipped_file() -> None:
    """Guards `python train.py --model.preset auto`: config.yaml spells out every key, yet the user chose none."""
    line = given(model__preset="auto", model__dropout=0.2, run__name="mine")
    config = parse_settings(line, default_file=ROOT / "config.yaml")
    assert config == parse_settings(line)
    assert config.chosen == {"model.dropout"}
    assert config.model.d_model == presets.PRESETS[presets.STAND_IN]["model.d_model"]


@pytest.mark.parametrize(
    ("settings", "ends"),
    [
        ({}, (None, 30, None)),
        ({"training__max_steps": 5}, (5, None, None)),
        ({"training__max_minutes": 5}, (None, None, 5)),
        ({"training__max_epochs": 7}, (None, 7, None)),
        ({"training__max_epochs": 7, "training__max_minutes": 5}, (None, 7, 5)),
        ({"training__max_minutes": None}, (None, 30, None)),
    ],
)
def test_limit_that_the_user_set_is_the_only_limit(settings: dict[str, object], ends: tuple[object, ...]) -> None:
    """Guards against a preset's number of epochs that cuts a limit of ten minutes short."""
    training = parse_settings(given(model__preset="small", **settings)).training
    assert (training.max_steps, training.max_epochs, training.max_minutes) == ends


@pytest.mark.parametrize(
    ("settings", "fragments"),
    [
        (
            {"model__preset": "big", "model__d_model": 100},
            ["model.n_heads is 8", "divide model.d_model (100)", "model.preset"],
        ),
        ({"model__preset": "auto", "model__d_model": 99}, ["model.d_model is 99", "even"]),
        ({"model__preset": "small", "training__max_epochs": None}, ["at least one", "model.preset"]),
        ({"model__preset": "small", "tokenizer__shared": "false", "model__tie": "all"}, ["model.tie is all"]),
    ],
)
def test_mistake_together_with_a_preset(settings: dict[str, object], fragments: list[str], capsys: Any) -> None:
    """Guards against an unchecked combination with the preset's values; and a message about a number that the user has
    never seen, without saying where it comes from."""
    with pytest.raises(SystemExit) as stopped:
        parse_settings(given(**settings))
    message = capsys.readouterr().err
    assert stopped.value.code == 2
    assert [fragment for fragment in fragments if fragment not in message] == []
    assert message.count("\n") == 1


def test_auto_accepts_what_some_preset_accepts() -> None:
    """Guards against refusing 8 key heads, valid only with big: before the data are known, auto may become that."""
    assert parse_settings(given(model__preset="auto", model__kv_heads=8)).model.kv_heads == 8


def test_printed_config_says_that_auto_is_undecided(capsys: Any, tmp_path: Path) -> None:
    """Guards against numbers that look like those of the future run."""
    with pytest.raises(SystemExit):
        parse_settings(["--print_config", "--model.preset", "auto"])
    text = capsys.readouterr().out
    assert text.startswith("# model.preset auto is decided when a run starts")
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    assert load(tmp_path / "a.yaml") == parse_settings(["--model.preset", "auto"])


@pytest.mark.parametrize(
    ("pairs", "name"),
    [
        (1, "tiny"),
        (10_000, "tiny"),
        (10_001, "small"),
        (100_000, "small"),
        (100_001, "base"),
        (1_000_000, "base"),
        (1_000_001, "big"),
        (10**9, "big"),
    ],
)
def test_preset_by_number_of_pairs(pairs: int, name: str) -> None:
    """Guards both sides of each boundary, and a count that stops too early."""
    assert presets.choose(pairs) == name
    assert presets.choose(min(pairs, presets.ENOUGH + 1)) == name


def test_little_memory_makes_the_preset_smaller_never_larger() -> None:
    """Guards against a step in the wrong direction, and no choice when nothing fits."""
    fitting = {"tiny": "tiny", "small": "tiny", "base": "base", "big": "base"}
    for pairs, name in ((1, "tiny"), (50_000, "small"), (500_000, "base"), (10**7, "big")):
        assert presets.choose(pairs, lambda name: name in ("tiny", "base")) == fitting[name]
        assert presets.choose(pairs, lambda _: False) == "tiny"
    needs = [presets.memory(values(parse_settings(["--model.preset", name]))) for name in NAMES]
    assert needs == sorted(needs)


@pytest.mark.parametrize(
    ("gigabytes", "settings", "name"),
    [
        (math.inf, {}, "big"),
        (1.2, {}, "base"),
        (0.01, {}, "tiny"),
        (1.2, {"model__d_model": 64, "model__d_ff": 64, "tokenizer__vocab_size": 100}, "big"),
    ],
)
def test_memory_estimate_uses_the_final_settings(
    gigabytes: float, settings: dict[str, object], name: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Guards against an estimate from the table when the user chose a narrower model; and a silent step down."""
    monkeypatch.setattr(starting, "corpus_size", lambda *_: presets.CorpusSize(2_000_000, 60.0))
    monkeypatch.setattr(starting, "total_memory", lambda _: gigabytes * 2**30)
    config = starting.with_preset(parse_settings(given(model__preset="auto", **settings)), torch.device("cpu"))
    told = capsys.readouterr().out
    assert config.training.lr == presets.PRESETS[name]["training.lr"]
    assert f"more than 1,000,000 pairs to train on -> {name}" in told
    assert ("for big needs about" in told) == (name != "big")
    assert [key.replace("__", ".") for key in settings if key.replace("__", ".") not in told.partition("kept")[2]] == []
    assert config.model.preset == "auto"


@pytest.mark.parametrize(
    ("pairs", "settings", "gigaflops", "name", "dropout", "every"),
    [
        (200_000, {"training__max_minutes": 600}, 300, "base", 0.2, 1000),
        (200_000, {"training__max_minutes": 30}, 300, "small", 0.1, 500),
        (200_000, {"training__max_minutes": 30}, 30_000, "base", 0.2, 1000),
        (200_000, {"training__max_minutes": 30, "model__d_model": 64, "model__d_ff": 64}, 600, "base", 0.16, 1000),
        (200_000, {"training__max_minutes": 30, "model__dropout": 0.25}, 300, "small", 0.25, 500),
        (10**7, {"training__max_minutes": 1}, 300, "small", 0.1, 50),
        (30_000, {"training__max_minutes": 60}, 300, "small", 0.3, 500),
        (30_000, {"training__max_epochs": 20}, 300, "small", 0.2, 500),
        (30_000, {"training__max_epochs": 30}, 300, "small", 0.3, 500),
        (1000, {"training__max_minutes": 60}, 300, "tiny", 0.3, 250),
        (200_000, {"training__max_epochs": 3}, 300, "base", 0.1, 440),
        (200_000, {"training__max_epochs": 3, "training__max_minutes": 600}, 300, "base", 0.1, 440),
        (200_000, {"training__max_epochs": 3, "training__accumulate": 4}, 300, "base", 0.1, 110),
        (200_000, {"training__max_steps": 2000}, 300, "base", 0.1, 400),
        (10**7, {"training__max_minutes": 1000}, 300, "base", 0.1, 1000),
        (10**7, {"training__max_epochs": 2}, 300, "big", 0.1, 2000),
        (200_000, {}, 300, "base", 0.2, 1000),
    ],
)
def test_time_limit_makes_model_and_dropout_smaller(
    pairs: int, settings: dict[str, object], gigaflops: float, name: str, dropout: float,
    every: int,     monkeypatch: pytest.MonkeyPatch, capsys: Any,
) -> None:  # fmt: skip
    """Guards against ten minutes for a model that needs hours, dropout where passes are too few to overfit, and a run
    that is validated once, at its end."""
    monkeypatch.setattr(starting, "corpus_size", lambda *_: presets.CorpusSize(min(pairs, presets.ENOUGH + 1), 60.0))
    monkeypatch.setattr(starting, "total_memory", lambda _: 2**40)
    # As fast as large models train, and slower if it is narrow.
    config = starting.with_preset(
        parse_settings(given(model__preset="auto", **settings)),
        torch.device("cpu"),
        lambda config, length: (
            gigaflops * 1e9 * 0.025 * math.sqrt(config.model.d_model) / presets.operations(values(config))
        ),
    )
    told = capsys.readouterr().out
    assert f"-> {name}" in told
    assert config.training.lr == presets.PRESETS[name]["training.lr"]
    assert config.model.dropout == dropout
    assert ("too few for" in told) == (name != presets.choose(pairs))
    own = presets.PRESETS[name]["model.dropout"]
    assert ("so dropout is" in told) == (dropout != own and "model__dropout" not in settings)
    assert (config.training.validate_every, config.training.save_every) == (every, every)


@pytest.mark.parametrize(("kind", "name"), [*product(KINDS, NAMES)])
def test_operations_of_a_preset_agree_with_those_of_the_model(kind: str, name: str) -> None:
    """Guards the estimate against the operations that torch counts."""
    config = parse_settings(given(model__preset=name, **(KINDS[kind] or {"model__architecture": kind})))
    vocabulary = config.tokenizer.vocab_size
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        built = build.build_model(config.model, vocabulary, vocabulary)
        source = torch.ones((1, 0 if config.is_language_model else 8), dtype=torch.long)
        target = torch.ones((1, 8), dtype=torch.long)
        built(source, target, *masks(source, target))
    assert presets.operations(values(config)) == pytest.approx(3 * counter.get_total_flops() / 8, rel=0.1)


@pytest.mark.parametrize("form", ["pairs.tsv", "text", "plain.txt", "folder"])
def test_pairs_are_counted(form: str, tmp_path: Path) -> None:
    """Guards against a count of held-out pairs, other splits or the wrong side; and one that reads everything."""
    pairs = [(source, f"{target} {target}") for source, target in tiny_pairs(2000)]
    changes: dict[str, Any] = {"train": str(tmp_path / form)}
    match form:
        case "pairs.tsv":
            write_tsv(tmp_path / form, pairs)
            changes |= {"validation_fraction": 0.2, "test_fraction": 0.1}
        case "text":
            for side, language in enumerate(("en", "it")):
                text = "".join(f"{pair[side]}\n" for pair in pairs)
                (tmp_path / f"text.{language}").write_text(text, encoding="utf-8")
            changes |= {"validation": str(write_tsv(tmp_path / "few.tsv", pairs[:50])), "test_fraction": 0.3}
        case "plain.txt":
            (tmp_path / form).write_text("".join(f"{target}\n" for _, target in pairs), encoding="utf-8")
            changes |= {"source_lang": None}
        case "folder":
            write_tsv(tmp_path / "folder" / "train.tsv", pairs)
            write_tsv(tmp_path / "folder" / "validation.tsv", pairs[:300])
            write_tsv(tmp_path / "folder" / "test.tsv", pairs[:300])
            changes |= {"validation_fraction": 0.2, "test_fraction": 0.2}
    data = DataConfig(**changes)
    read = len(read_corpus(find_sources(data), data)[0]["train"])
    found = starting.corpus_size(data, 10**6)
    assert found.pairs == pytest.approx(read, rel=0.05)
    lengths = [sum(len(text.encode()) for text in side) / len(pairs) for side in zip(*pairs, strict=True)]
    assert abs(lengths[1] / lengths[0] - 1) > 0.1, "or it could be the other side"
    assert found.bytes == pytest.approx(lengths[1], rel=0.05)
    assert 500 < starting.corpus_size(data, 500).pairs < 510


def test_resumed_run_keeps_what_its_preset_set() -> None:
    """Guards against a run that resumes with the numbers of a later version, or of a corpus that has grown since."""
    begun = parse_settings(given(model__preset="tiny", model__dropout=0.2, training__max_steps=2))
    begun = command_line.override(begun, ["--model.preset", "auto", "--training.batch_tokens", "512"])
    for line in ({}, {"model__dropout": 0.15}, {"training__max_steps": 9}, {"training__max_minutes": 3}):
        with tables(tiny={"model.d_model": 64}, small={"model.d_model": 32}):
            config = settings_module.with_saved_preset(parse_settings(given(model__preset="auto", **line)), begun)
        different = {key: new for key, _, new, _ in settings_module.changes(begun, config)}
        expected: dict[str, object] = {key.replace("__", "."): value for key, value in line.items()}
        if "training__max_minutes" in line:
            expected["training.max_steps"] = None
        assert different == expected
    for other in ({}, {"model__preset": "small"}):
        config = parse_settings(given(**other))
        assert settings_module.with_saved_preset(config, begun) == config


def test_auto_from_the_first_step_to_the_resume(tmp_path: Path, capfd: Any) -> None:
    """Guards the whole of auto: it is decided before anything is written, the run saves its numbers, and a resume uses
    them, even with another table or without the corpus."""
    corpus = write_tsv(tmp_path / "pairs.tsv", tiny_pairs(300))

    def settings(**changes: object) -> Config:
        fixed: dict[str, object] = {
            "model__preset": "auto", "run__dir": tmp_path / "runs", "run__name": "auto", "data__train": corpus,
            "data__source_lang": "en", "data__target_lang": "it",
            "training__max_steps": 2, "training__batch_tokens": 300, "training__device": "cpu", "model__d_ff": 64,
            "training__precision": "float32", "decoding__precision": "float32", "decoding__max_length": 8,
        }  # fmt: skip
        return parse_settings(given(**fixed | changes), default_file=ROOT / "config.yaml")

    def run(config: Config) -> tuple[int, str]:
        code = in_child(lambda: run_command("train", config))
        printed = capfd.readouterr()
        return code, printed.out + printed.err

    # Valid with big only; now that the data are known, it is an error.
    code, told = run(settings(model__kv_heads=8))
    assert code == 2
    assert "model.kv_heads is 8" in told
    assert not (tmp_path / "runs").exists()

    assert settings_module.STAND_IN in summary.describe_model(settings())
    code, told = run(settings())
    assert code == 0, told
    assert "model.preset auto: about 288 pairs to train on -> tiny; each is seen only about" in told
    assert "times, so dropout is 0.1: d_model 128, encoder_layers 3, decoder_layers 3, d_ff 64" in told
    (kept,) = (line.removeprefix("kept as given: ") for line in told.splitlines() if line.startswith("kept as given"))
    assert set(kept.split(", ")) == {"model.d_ff", "training.max_steps", "training.batch_tokens"}
    begun = load(tmp_path / "runs" / "auto" / "config.yaml")
    assert begun.model.preset == "auto"
    ours = {"model.d_ff": 64, "training.max_steps": 2, "training.max_epochs": None, "training.batch_tokens": 300}
    ours |= {"model.dropout": 0.1, "training.validate_every": 50, "training.save_every": 50}  # because of so few steps
    assert {key: values(begun)[key] for key in presets.KEYS} == presets.PRESETS["tiny"] | ours
    assert settings_module.STAND_IN not in summary.describe_model(settings())

    corpus.unlink()
    with tables(tiny={"model.d_model": 64, "model.dropout": 0.5}):
        code, told = run(settings(training__max_steps=4, training__lr=0.001))
    assert code == 0, told
    assert "training.lr was 0.003 and is 0.001" in told
    assert len(re.findall(r"\w+\.\w+ was ", told)) == 1, told
    saved = checkpoint.newest(tmp_path / "runs" / "auto" / "checkpoints", quarantine=False, warn=print)
    assert saved is not None
    assert train.progress_of(saved).step == 4
    (changed,) = (
        key
        for key, *_ in settings_module.changes(begun, load(tmp_path / "runs" / "auto" / "config.yaml"))
        if key != "training.max_steps"
    )
    assert changed == "training.lr"

    code, told = run(settings(model__d_ff=128))
    assert code == 2
    assert "model.d_ff was 64 and is 128" in told
    code, told = run(settings(model__preset="small"))
    assert code == 2
    assert "model.preset was auto and is small" in told


@pytest.mark.parametrize(
    ("settings", "warns"),
    [
        ({"data__train": "mine.tsv"}, True),
        ({"data__train": "mine.tsv", "training__max_epochs": 3}, True),
        ({"data__train": "mine.tsv", "model__dropout": 0.3}, False),
        ({}, False),
    ],
)
def test_a_preset_is_proposed_for_own_data(settings: dict[str, object], warns: bool, capsys: Any) -> None:
    """Guards against using a full copy of the phrasebook's settings silently for other data."""
    words = [f"--{key.replace('__', '.')}={value}" for key, value in settings.items()]
    starting.with_preset(command_line.override(Config(), words), torch.device("cpu"))
    assert ("--model.preset auto chooses" in capsys.readouterr().out) == warns


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind != "encoder-decoder")) for kind in KINDS]
)
def test_speed_is_measured_on_the_model_itself(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the measurement for every architecture, and that larger models come out slower."""
    monkeypatch.setattr(planning, "SECONDS", 0.05)
    found = []
    for width in (32, 256):
        sizes = {"model__d_model": width, "model__d_ff": 4 * width, "tokenizer__vocab_size": 300}
        changes = (KINDS[kind] or {"model__architecture": kind}) | sizes | {"training__batch_tokens": 256}
        config = parse_settings(given(model__preset="tiny", **changes))
        found.append(planning.target_tokens_per_second(config, 9.0, torch.device("cpu"), torch.float32))
    assert found[0] > 2 * found[1] > 0


def test_preset_without_effect_is_reported(tmp_path: Path, capsys: Any) -> None:
    """Guards against a user who adds a preset to config.yaml, which spells out every key, and expects it to act."""
    file = tmp_path / "mine.yaml"
    text = (ROOT / "config.yaml").read_text(encoding="utf-8")
    file.write_text(text.replace("preset: null", "preset: auto"), encoding="utf-8")
    config = parse_settings(["--config", str(file), "--data.train", str(tmp_path / "absent.tsv")])
    assert starting.with_preset(config, torch.device("cpu")) == config  # without reading the data
    told = capsys.readouterr().out
    assert told.startswith("warning: model.preset is auto, but it has no effect")
    assert told.count("\n") == 1


def test_what_a_preset_overrules_is_reported(tmp_path: Path, capsys: Any) -> None:
    """Guards against silently overruling a user's own file. Overruling the shipped file is not reported."""
    file = tmp_path / "mine.yaml"
    file.write_text("training: {schedule: cosine, lr: 0.003}\nmodel: {dropout: 0.2}", encoding="utf-8")
    starting.with_preset(
        parse_settings(["--config", str(file), "--model.preset", "tiny", "--model.dropout=0.25"]), torch.device("cpu")
    )
    said = capsys.readouterr().out
    assert "overrules it: training.schedule cosine, now linear\n" in said, "the learning rate equals the preset's"
    starting.with_preset(
        parse_settings(["--model.preset", "tiny"], default_file=ROOT / "config.yaml"), torch.device("cpu")
    )
    assert "overrules" not in capsys.readouterr().out
