"""`dragoman plan`: its figures against a real preparation and a real model, its arithmetic, and its errors."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import ROOT, tiny_pairs, write_tsv
from dragoman import __main__ as program
from dragoman import presets
from dragoman.architectures.build import build_model
from dragoman.command_line import parse_plan
from dragoman.corpora.preparation import prepare_data
from dragoman.settings import Config, values
from dragoman.training import scale

BASE = "--pairs 100M --model base --gpus 16"


def figures(command: str) -> dict[str, float]:
    """The figures of a plan by their names."""
    options = parse_plan(shlex.split(command))
    options.tokens = options.tokens or scale.MEASURED["tokens"]
    return {name.strip(): figure for name, figure, _ in rows_of(options)}


def rows_of(options: argparse.Namespace) -> list[tuple[str, float, str]]:
    """The rows of a plan."""
    settings = values(options.config)
    return [*scale.space(options, settings), *scale.time(options, settings)]


@pytest.fixture
def planned(capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Print a plan and return it."""

    def run(command: str) -> str:
        assert program.main(["plan", *shlex.split(command)]) == 0
        return capsys.readouterr().out

    return run


def test_prepared_folder_has_the_predicted_size(tiny: Callable[..., Config], tmp_path: Path, monkeypatch: Any) -> None:
    """Guards the bytes a pair that the plan multiplies by a billion, when the format of the prepared data changes."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    pairs = 5_000
    config = tiny(data__train=write_tsv(tmp_path / "pairs.tsv", tiny_pairs(pairs)))
    data = prepare_data(config, tmp_path / "data", lambda _: None)
    tokens = sum(side.mean for side in data.report.sides) / 2
    monkeypatch.setitem(scale.MEASURED, "tokens", tokens)
    monkeypatch.setitem(scale.MEASURED, "text", (tmp_path / "pairs.tsv").stat().st_size / pairs)
    measured = sum(path.stat().st_size for path in (tmp_path / "data").glob("*.npy"))
    measured += sum((tmp_path / "data" / f"{split}.tsv").stat().st_size for split in ("validation", "test"))
    fractions = "--data.validation_fraction 0.05 --data.test_fraction 0.05"
    plan = figures(f"--pairs {pairs} --tokens {tokens} {fractions}")
    assert plan["prepared"] * 1e9 == pytest.approx(measured, rel=0.02)
    assert plan["disk: corpus"] * 1e9 == pytest.approx((tmp_path / "pairs.tsv").stat().st_size, rel=0.01)


@pytest.mark.parametrize("name", presets.PRESETS)
def test_checkpoints_are_those_of_the_real_model(name: str) -> None:
    """Guards against a second formula for the number of weights."""
    config = parse_plan(["--pairs", "1M", "--model", name]).config
    with torch.device("meta"):
        model = build_model(config.model, config.tokenizer.vocab_size, config.tokenizer.vocab_size)
    weights = sum(p.numel() for p in model.parameters())
    kept = config.training.keep_last + 2
    assert figures(f"--pairs 1M --model {name}")["checkpoints"] * 1e9 == pytest.approx(12 * kept * weights, rel=0.05)


def test_default_utilisation_is_that_of_its_source() -> None:
    """Recomputes it from the published speed, with the operations that this program counts for that model."""
    big = {
        "d_model": 1024, "n_heads": 16, "d_ff": 4096, "encoder_layers": 6, "decoder_layers": 6,
    }  # fmt: skip
    words = [f"--model.{key}={value}" for key, value in big.items()]
    config = parse_plan(["--pairs", "5M", *words, "--tokenizer.vocab_size", "33708"]).config
    per_gpu = 551_599 * presets.operations(values(config)) / 8
    assert per_gpu / (scale.GPUS["a100"][0] * 1e12) == pytest.approx(scale.MFU, abs=0.005)


def test_cost_grows_with_what_causes_it() -> None:
    """Guards against a factor that is left out or counted twice."""
    plan, gpus = figures(BASE), {"GPUs", "each GPU"}
    more = figures(BASE.replace("100M", "200M"))
    assert more["disk: corpus"] == pytest.approx(2 * plan["disk: corpus"])
    assert more["training"] == pytest.approx(2 * plan["training"])
    assert more["each GPU"] == plan["each GPU"]
    assert figures(f"{BASE} --tokens {2 * scale.MEASURED['tokens']}")["time: preparing"] == pytest.approx(
        2 * plan["time: preparing"]
    )
    faster = figures(f"{BASE} --tflops {2 * scale.GPUS['h100'][0]} --mfu {scale.MFU / 2}")
    assert faster == pytest.approx(plan)
    half = figures(BASE.replace("16", "8"))
    assert half["GPUs"] == pytest.approx(2 * plan["GPUs"])
    assert {name for name in plan if half[name] != pytest.approx(plan[name])} == gpus
    assert figures(f"{BASE} --nodes 4")["each machine"] < plan["each machine"]
    cores = [figures(f"{BASE} --cores {count}")["time: preparing"] for count in (1, 2, 10**5)]
    assert cores[0] > cores[1] > cores[2] > 0


def test_length_is_given_in_passes_updates_or_minutes(planned: Callable[[str], str]) -> None:
    """Guards against limits in different units that do not agree."""
    plan = planned(f"{BASE} --epochs 3")
    assert "passes: 3," in plan
    updates = plan.split("updates: ")[1].split(";")[0].replace(",", "")
    hours = figures(f"{BASE} --epochs 3")["training"]
    assert figures(f"{BASE} --updates {updates}")["training"] == pytest.approx(hours, rel=1e-3)
    assert figures(f"{BASE} --training.max_minutes 90")["training"] == pytest.approx(1.5)
    assert figures(f"{BASE} --epochs 3 --updates 5")["training"] < hours


def test_small_updates_wait_for_python_and_large_ones_for_the_gpus() -> None:
    """Guards against hours that no program reaches: with tiny batches, a GPU waits for Python."""
    small, large = (figures(f"{BASE} --training.batch_tokens {tokens}") for tokens in (4096, 100_000_000))
    assert small["Python"] > 100 * small["GPUs"]
    assert large["GPUs"] == small["GPUs"] > large["Python"]
    assert large["each GPU"] > small["each GPU"]


def test_sharding_divides_the_weights_among_the_gpus() -> None:
    """Guards `presets.memory`: with FSDP, 16 GPUs hold a sixteenth of the weights each; without it, all of them."""
    with_preset = [values(parse_plan(shlex.split(f"{BASE} --training.fsdp {fsdp}")).config) for fsdp in (False, True)]
    batch = presets.memory(with_preset[0]) - 16 * presets.parameters(with_preset[0])
    for settings, shards in zip(with_preset, (1, 16), strict=True):
        assert presets.memory(settings, 16) == pytest.approx(
            16 * presets.parameters(settings) / shards + batch / 16, abs=2
        )


def test_preset_follows_the_pairs_unless_something_sets_the_model(tmp_path: Path) -> None:
    """Guards a plan for the default run's tiny model, and a config file that is ignored."""
    for pairs, preset in (("5k", "tiny"), ("80_000".replace("_", ""), "small"), ("0.5M", "base"), ("1.5B", "big")):
        assert parse_plan(["--pairs", pairs]).config.model.preset == preset
    assert parse_plan(["--pairs", "5k", "--model.preset", "big"]).config.model.preset == "big"
    file = tmp_path / "mine.yaml"
    file.write_text("model: {d_model: 96, n_heads: 4}\n", encoding="utf-8")
    config = parse_plan(["--pairs", "1B", "--config", str(file)]).config
    assert (config.model.preset, config.model.d_model) == (None, 96)


def test_plain_text_has_one_side() -> None:
    """Guards a language model against the disk of two sides."""
    plain = "--data.source_lang null --model.architecture decoder-only"
    pair, text = figures(BASE), figures(f"{BASE} {plain}")
    assert text["disk: corpus"] == pytest.approx(pair["disk: corpus"] / 2)


@pytest.mark.parametrize(
    "command",
    [
        "--pairs 1", BASE, "--pairs 4.2B --tokens 1000 --gpus 100000 --nodes 1 --gpu mi300x --cores 100000",
        "--pairs 1.5B --tflops 123456.7 --mfu 0.123 --gpus 4096 --updates 123456789 --model big",
    ],
)  # fmt: skip
def test_plan_fits_80_columns(command: str, planned: Callable[[str], str]) -> None:
    """Guards against lines that a terminal breaks in the middle of a word."""
    text = planned(command)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert scale.MEASURED_ON.split(",")[0] in text


def test_every_figure_has_a_source() -> None:
    """Guards against a number that nobody can check."""
    options = parse_plan(shlex.split(BASE))
    options.tokens = scale.MEASURED["tokens"]
    for name, _, source in rows_of(options):
        assert any(word in source for word in ("measured", "counted", "stated", "published", "these")), name


def test_held_out_pairs_are_named_only_where_there_are_too_many(planned: Callable[[str], str]) -> None:
    """The printed options are accepted, and end the warning."""
    text = planned(BASE)
    changes = [word for word in text.split("\n") if word.startswith("--data.")]
    assert len(changes) == 2
    again = planned(f"{BASE} " + " ".join(line.split(" leaves")[0] for line in changes))
    assert "holds out" not in again
    assert "holds out" not in planned("--pairs 100M --data.validation my.tsv --data.test other.tsv")
    assert "holds out" not in planned("--pairs 10k")
    assert "--data.test_fraction 0.0015 leaves 3,000" in planned("--pairs 2M")


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        ("--pairs 100X", ["--pairs: 100X is not a number of pairs", "write 80000, 300k or 100M"]),
        ("--pairs 0", ["--pairs: 0 is not"]),
        ("--pairs -5", ["--pairs: -5 is not"]),
        ("--pairs 1,5M", ["--pairs: 1,5M is not"]),
        ("--pairs inf", ["--pairs: inf is not"]),
        ("--pairs 5B", ["--pairs: 5B is not"]),
        ("--pairs ''", ["--pairs:  is not"]),
        ("--gpus 16", ["required: --pairs"]),
        ("--pairs 1M --model huge", ["--model", "huge", "base"]),
        ("--pairs 1M --gpus 0", ["--gpus: 0 is not a number from 1"]),
        ("--pairs 1M --mfu 3", ["--mfu: 3 is not a number from 0.001 to 1"]),
        ("--pairs 1M --tflops nan", ["--tflops: nan is not a number"]),
        ("--pairs 1M --epochs 0", ["training.max_epochs is 0", "at least 1"]),
        ("--pairs 1M --updates x", ["training.max_steps is x", "whole number"]),
        ("--pairs 1M --gpu h1000", ["--gpu is h1000", "h100", "--tflops"]),
        ("--pairs 1M --modle base", ["did you mean --model?"]),
    ],
)
def test_mistake_is_one_line(arguments: str, fragments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Guards against a traceback, and a message without a remedy."""
    try:
        code = program.main(["plan", *shlex.split(arguments)])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert [fragment for fragment in fragments if fragment not in said] == []


@pytest.mark.slow
def test_benchmark_prints_what_the_plan_needs() -> None:
    """Guards against a cost that is used and no longer measured, or measured in other units."""
    command = [sys.executable, "benchmarks/scale.py", "--pairs=3000", "--made_up=20000"]
    threads = {
        key: value for key, value in os.environ.items() if key != "TOKENIZERS_PARALLELISM"
    }  # conftest has it off
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=threads)
    assert done.returncode == 0, done.stderr
    found = {key: float(value) for key, value in re.findall(r'^    "(\w+)": (.+),$', done.stdout, re.MULTILINE)}
    assert found.keys() == scale.MEASURED.keys() - {"preparing"}
    assert [
        key for key, value in found.items() if not scale.MEASURED[key] / 20 < value < 20 * scale.MEASURED[key]
    ] == []
