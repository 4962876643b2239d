"""The programs in benchmarks/: they run, repeat no finished work, and compute what they say."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT, run_python, tiny_config, tiny_pairs
from dragoman import config_file
from dragoman.corpora import preparation
from faults import untrained


def load(name: str) -> ModuleType:
    """Import a program of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look it up there
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", [str(ROOT / "benchmarks"), *sys.path])
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A config file for a tiny run."""
    path = tmp_path / "tiny.yaml"
    path.write_text(config_file.dump(tiny_config(tmp_path, training__max_epochs=1)), encoding="utf-8")
    return path


def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program of benchmarks/ in a process of its own and return what it printed."""
    done = run_python([f"benchmarks/{name}.py", *arguments], ROOT)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_gains_compare_the_same_seeds() -> None:
    """Guards against a gain due to a lucky seed that only one of two recipes has."""
    recipes = load("recipes")
    found = {
        "plain": {1: recipes.Outcome(30.0, 10, 1.0), 2: recipes.Outcome(34.0, 20, 2.0)},
        "muon": {2: recipes.Outcome(35.0, 30, 4.0), 3: recipes.Outcome(99.0, 30, 4.0)},
        "both": {1: recipes.Outcome(31.0, 10, 1.0), 2: recipes.Outcome(34.0, 10, 1.0)},
    }
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in recipes.table(found)[2:]]
    assert rows[0] == ["plain", "32.00 ± 2.83", "", "15", "1.5"]
    assert rows[1][:3] == ["muon", "67.00 ± 45.25", "+1.00"]
    assert rows[2][:3] == ["both", "32.50 ± 2.12", "+0.50 ± 0.50"]


def test_recipes_are_trained_once(file: Path, tmp_path: Path) -> None:
    """Guards hours of training against being repeated, and a change against being ignored."""
    work = tmp_path / "work"
    arguments = ["--config", file, "--work", work, "--seeds", 1, "--jobs", 2, "--change", "narrow: --model.d_ff 16"]
    first = run("recipes", *arguments, "--only", "narrow")
    assert first.returncode == 0, first.stderr
    assert [line.split(" | ")[0] for line in first.stdout.splitlines()[2:]] == ["| narrow"]
    assert config_file.load(work / "narrow-1" / "config.yaml").model.d_ff == 16
    written = {path: path.stat().st_mtime_ns for path in work.glob("*/checkpoints/*/*")}
    assert run("recipes", *arguments, "--only", "narrow").stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in work.glob("*/checkpoints/*/*")} == written
    wrong = run("recipes", *arguments, "--only", "plane")
    assert wrong.returncode == 2
    assert "there is no recipe plane" in wrong.stderr


def test_mistakes_are_refused_before_training(file: Path, tmp_path: Path) -> None:
    """Guards against hours of training without a score, and a traceback after them."""
    wrong = run("recipes", "--config", file, "--work", tmp_path / "work", "--change", "wrong: --model.heads 4")
    assert wrong.returncode == 2
    assert "n_heads" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    text = file.read_text(encoding="utf-8").replace("source_lang: en", "source_lang: null")
    text = text.replace("shared: false", "shared: true").replace("encoder-decoder", "decoder-only")
    file.write_text(text, encoding="utf-8")
    refused = run("recipes", "--config", file, "--work", tmp_path / "work")
    assert refused.returncode == 2
    assert "BLEU" in refused.stderr
    assert not (tmp_path / "work").exists()


@pytest.mark.slow
def test_corpus_size_runs(tmp_path: Path) -> None:
    """Guards against a benchmark that no longer runs, or that measures the preparation of other text."""
    done = run("corpus_size", "--sizes", 300, 900, "--updates", 2, "--work", tmp_path)
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert "2 updates" in head
    assert [row.split()[0] for row in rows] == ["300", "900"]
    trained = preparation.load(tmp_path / "data-900").report.counts
    assert sum(count.read for count in trained.values()) == 900


def test_made_up_text_is_parallel(tmp_path: Path) -> None:
    """Guards the text of the benchmarks: as many pairs as asked for, no empty line, the same text each time."""
    common = load("common")
    for name in ("one", "two"):
        common.write_made_up_text(tmp_path / name, 500, 10_000)
    texts = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert texts["one.en"] == texts["two.en"]
    for language in ("en", "de"):
        lines = texts[f"one.{language}"].splitlines()
        assert len(lines) == 500
        assert min(len(line.split()) for line in lines) >= 3


def test_a_file_is_timed_beside_ctranslate2(tmp_path: Path) -> None:
    """Times the program in its own process, and the library alone on the same sentences."""
    text = tmp_path / "text.en"
    text.write_text("".join(f"{source}\n" for source, _ in tiny_pairs(20)), encoding="utf-8")
    done = run("files", "--run", untrained.run(tmp_path), "--input", text, "--turns", 1, "--precisions", "int8")
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(
        r"int8: (\d+) sentences, translate.py ([\d.]+) s, CTranslate2 alone ([\d.]+) s, .*\n", done.stdout
    )
    assert found, done.stdout
    assert int(found[1]) >= 20
    assert float(found[2]) > 0
