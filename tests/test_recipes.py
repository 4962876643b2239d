"""The programs that compare recipes: what they train, what they take over, and how they reckon."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import config as configuration
from conftest import ROOT, tiny_config


def loaded(name: str) -> ModuleType:
    """A program of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses looks for it
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", ["", *sys.path])  # of which it sets the first
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tiny run's settings in a file."""
    path = tmp_path / "tiny.yaml"
    path.write_text(configuration.dump(tiny_config(tmp_path, training__max_epochs=1)), encoding="utf-8")
    return path


def ran(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program of benchmarks/ in a process of its own."""
    command = [sys.executable, f"benchmarks/{name}.py", *map(str, arguments)]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=surroundings)


def test_gains_are_those_of_the_same_seeds() -> None:
    """Guards against a gain that is the luck of a seed which only one of two recipes has."""
    recipes = loaded("recipes")
    found = {
        "plain": {1: recipes.Outcome(30.0, 10, 1.0), 2: recipes.Outcome(34.0, 20, 2.0)},
        "r_drop": {2: recipes.Outcome(35.0, 30, 4.0), 3: recipes.Outcome(99.0, 30, 4.0)},
        "both": {1: recipes.Outcome(31.0, 10, 1.0), 2: recipes.Outcome(34.0, 10, 1.0)},
    }
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in recipes.table(found)[2:]]
    assert rows[0] == ["plain", "32.00 ± 2.83", "", "15", "1.5"]
    assert rows[1][:3] == ["r_drop", "67.00 ± 45.25", "+1.00"]
    assert rows[2][:3] == ["both", "32.50 ± 2.12", "+0.50 ± 0.50"]


def test_recipes_are_trained_once(file: Path, tmp_path: Path) -> None:
    """Guards hours of training against being done again, and a change against being left out."""
    work = tmp_path / "work"
    arguments = ["--config", file, "--work", work, "--seeds", 1, "--jobs", 2, "--change", "narrow: --model.d_ff 16"]
    first = ran("recipes", *arguments, "--only", "narrow")
    assert first.returncode == 0, first.stderr
    assert [line.split(" | ")[0] for line in first.stdout.splitlines()[2:]] == ["| narrow"]
    assert configuration.load(work / "narrow-1" / "config.yaml").model.d_ff == 16
    written = {path: path.stat().st_mtime_ns for path in work.glob("*/checkpoints/*/*")}
    assert ran("recipes", *arguments, "--only", "narrow").stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in work.glob("*/checkpoints/*/*")} == written
    wrong = ran("recipes", *arguments, "--only", "plane")
    assert wrong.returncode == 2
    assert "there is no recipe plane" in wrong.stderr


def test_a_speedrun_begins_with_nothing(file: Path, tmp_path: Path) -> None:
    """Guards the budget (a limit of epochs would end it first) and against time that an earlier run has spent."""
    work = tmp_path / "work"
    arguments = ["--config", file, "--minutes", 0.05, "--work", work]
    first = ran("speedrun", *arguments)
    assert first.returncode == 0, first.stderr
    [row] = first.stdout.splitlines()[2:]
    budget, spent, passes, *scores = [cell.strip().removesuffix(" min") for cell in row.strip("|").split("|")]
    assert budget == "0.05"
    assert 0.05 <= float(spent) < 2
    assert float(passes) > 1
    assert all(0 <= float(score) <= 100 for score in scores)
    again = ran("speedrun", *arguments)
    assert again.returncode == 1
    assert "begins with nothing" in again.stderr


@pytest.mark.parametrize("name", ["recipes", "speedrun"])
def test_what_has_no_bleu_is_refused_before_hours_of_training(name: str, file: Path, tmp_path: Path) -> None:
    """Guards against a training whose result nobody can read."""
    text = file.read_text(encoding="utf-8").replace("source_lang: en", "source_lang: null")
    text = text.replace("shared: false", "shared: true").replace("encoder-decoder", "decoder-only")
    file.write_text(text, encoding="utf-8")
    refused = ran(name, "--config", file, "--work", tmp_path / "work")
    assert refused.returncode == 2
    assert "BLEU" in refused.stderr or "test set" in refused.stderr
    assert not (tmp_path / "work").exists()
