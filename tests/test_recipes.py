"""The programs that compare recipes: what they train, what they take over, and how they reckon."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from conftest import ROOT, tiny_config
from dragoman import command_line, config_file, settings


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
    path.write_text(config_file.dump(tiny_config(tmp_path, training__max_epochs=1)), encoding="utf-8")
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
    assert config_file.load(work / "narrow-1" / "config.yaml").model.d_ff == 16
    written = {path: path.stat().st_mtime_ns for path in work.glob("*/checkpoints/*/*")}
    assert ran("recipes", *arguments, "--only", "narrow").stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in work.glob("*/checkpoints/*/*")} == written
    wrong = ran("recipes", *arguments, "--only", "plane")
    assert wrong.returncode == 2
    assert "there is no recipe plane" in wrong.stderr


def test_a_recipe_that_a_config_cannot_have_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards against hours of training that end at the recipe which whole words cannot have, or that show no more than
    plain does."""
    recipes = loaded("recipes")
    config = tiny_config(tmp_path, tokenizer__kind="word", training__optimizer="muon", model__dropout=0.3)
    assert [name for name in recipes.CHANGES if not recipes.suits(config, name)] == ["subword_dropout", "muon"]
    assert "tokenizer.kind" in capsys.readouterr().err


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


@pytest.mark.slow
def test_contenders_are_trained_once_on_the_same_text(file: Path, tmp_path: Path) -> None:
    """Guards hours of training against being done again, and a comparison against runs that had other time."""
    work = tmp_path / "work"
    arguments = ["--config", file, "--threads", 1, "--device", "cpu", "--work", work, "--pairs", 200]
    contenders = ["--contenders", "ours", "pieces"]
    first = ran("quality", *arguments, "--minutes", 0.05, *contenders)
    assert first.returncode == 0, first.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in first.stdout.splitlines()[2:4]]
    assert [row[0] for row in rows] == ["ours", "pieces"]
    for _, minutes, whole, *_, validation, test in rows:
        assert 0 < float(minutes) <= float(whole) < 2
        assert 0 <= float(validation) <= 100
        assert 0 <= float(test) <= 100
    assert "tok:13a" in first.stdout
    assert "ours - pieces:" in first.stdout
    assert len((work / "text" / "train.en").read_text(encoding="utf-8").splitlines()) == 200
    written = {path: path.stat().st_mtime_ns for path in work.glob("*/**/*.safetensors")}
    assert ran("quality", *arguments, "--minutes", 0.05, *contenders).stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in work.glob("*/**/*.safetensors")} == written
    longer = ran("quality", *arguments, "--minutes", 0.1, *contenders)
    assert longer.returncode == 1
    assert "other options" in longer.stderr


@pytest.mark.slow
def test_students_learn_from_what_teachers_made(file: Path, tmp_path: Path) -> None:
    """Guards sides that change places between forward and backward teachers, real pairs that a student does not see,
    held-out pairs that it does, a further round that forgets the first, and work that is done again."""
    work = tmp_path / "work"
    arguments = ["--config", file, "--work", work, "--teachers", 1, "--backward", 1, "--seeds", 1, 2, "--jobs", 2]
    arguments += ["--student=--training.max_epochs 2", "--tests", work / "text" / "test"]
    first = ran("diversify", *arguments)
    assert first.returncode == 0, first.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in first.stdout.splitlines()[2:-2]]
    students = ["round-1-student-1", "round-1-student-2"]
    assert [row[0] for row in rows] == ["forward-1", "backward-1", *students, "round 1, mean"]
    assert {len(row) for row in rows} == {6}, "the further test set has the name of the first, and takes its place"

    def lines(name: str) -> list[str]:
        return (work / "text" / name).read_text(encoding="utf-8").splitlines()

    assert lines("forward-1/train.en") == lines("train.en")
    assert lines("backward-1/train.it") == lines("train.it")
    assert lines("forward-1/train.it") != lines("train.it")
    assert len(lines("forward-1/train.it")) == len(lines("backward-1/train.en")) == len(lines("train.en"))
    assert not set(lines("train.en")) & set(lines("test.en"))
    backward = config_file.load(work / "backward-1" / "config.yaml")
    assert (backward.data.source_lang, backward.data.target_lang) == ("it", "en")
    student = config_file.load(work / "round-1-student-2" / "config.yaml")
    assert (student.run.seed, student.training.max_epochs, backward.training.max_epochs) == (2, 2, 1)
    text = work / "text"
    assert student.data.train == f"2 * {text}/train + {text}/forward-1/train + {text}/backward-1/train"
    written = {path: path.stat().st_mtime_ns for path in work.glob("*/**/*.safetensors")}
    assert ran("diversify", *arguments).stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in work.glob("*/**/*.safetensors")} == written
    second = ran("diversify", *arguments, "--rounds", 2)
    assert second.returncode == 0, second.stderr
    assert {path: path.stat().st_mtime_ns for path in written} == written
    means = [line.split("|")[1].strip() for line in second.stdout.splitlines()[-4:-2]]
    assert means == ["round 1, mean", "round 2, mean"]
    again = config_file.load(work / "round-2-student-1" / "config.yaml")
    assert again.data.train == " + ".join([str(student.data.train), *(f"{text}/{name}/train" for name in students)])
    assert again.training.init_from is None
    assert lines("round-1-student-1/train.it") != lines("round-1-student-2/train.it")


@torch.inference_mode()
def test_the_tutorial_writes_what_it_was_trained_to() -> None:
    """Guards the peer: step by step, with hypotheses that change places, its logits are those of its training."""
    quality = loaded("quality")
    torch.manual_seed(1)
    words = [f"--model.{key}={value}" for key, value in {**quality.TUTORIAL, "d_model": 16, "d_ff": 16}.items()]
    model = quality.Tutorial(command_line.override(settings.Config(), words), 20, 20).eval()
    source = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0], [9, 9, 3, 0]])
    target = torch.tensor([[2, 10, 11, 12], [2, 13, 14, 15], [2, 16, 17, 18]])
    stepwise = quality.Stepwise(model)
    state = stepwise.start(source)
    _, state = stepwise.step(target[:, 0], state)
    kept = torch.tensor([2, 0])
    both = torch.tensor([2, 2, 0, 0])  # two hypotheses of each sentence that is left, which then differ
    state = state.select(both, kept)
    written = target[[2, 1, 0, 1]]
    for place in (1, 2, 3):
        logits, state = stepwise.step(written[:, place], state)
    torch.testing.assert_close(logits, model(source[both], written)[:, -1])


def test_a_peer_is_stopped_as_by_hand(tmp_path: Path) -> None:
    """Guards the peer's minutes: counted from where its training begins, and ended so that it can still save."""
    quality = loaded("quality")
    program = tmp_path / "peer.py"
    program.write_text(
        "import time\nprint('ready', flush=True)\ntime.sleep(0.2)\nprint('EPOCH 1', flush=True)\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('saved', flush=True)\n",
        encoding="utf-8",
    )
    lines = list(quality.told([sys.executable, program], tmp_path / "peer", tmp_path, stop_after=("EPOCH 1", 0.3)))
    assert [line for line, _ in lines] == ["ready\n", "EPOCH 1\n", "saved\n"]
    assert 0.25 < lines[2][1] - lines[1][1] < 30
    assert (tmp_path / "peer.log").read_text(encoding="utf-8") == "ready\nEPOCH 1\nsaved\n"
    program.write_text("raise SystemExit(3)", encoding="utf-8")
    with pytest.raises(SystemExit, match="ended with 3"):
        list(quality.told([sys.executable, program], tmp_path / "peer", tmp_path))


@pytest.mark.parametrize("name", ["recipes", "speedrun", "quality"])
def test_what_has_no_bleu_is_refused_before_hours_of_training(name: str, file: Path, tmp_path: Path) -> None:
    """Guards against a training whose result nobody can read."""
    text = file.read_text(encoding="utf-8").replace("source_lang: en", "source_lang: null")
    text = text.replace("shared: false", "shared: true").replace("encoder-decoder", "decoder-only")
    file.write_text(text, encoding="utf-8")
    refused = ran(name, "--config", file, "--work", tmp_path / "work")
    assert refused.returncode == 2
    assert "BLEU" in refused.stderr or "test set" in refused.stderr
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("recipes", ["--change", "wrong: --model.heads 4"]),
        ("speedrun", ["--model.heads", 4]),
        ("quality", ["--model.heads", 4]),
        ("diversify", ["--model.heads", 4]),
        ("diversify", ["--student=--model.heads 4"]),
    ],
)
def test_a_wrong_setting_is_a_line_before_hours_of_training(
    name: str, given: list[object], file: Path, tmp_path: Path
) -> None:
    """Guards against a traceback, and against a mistake in students' settings that shows when teachers are done."""
    refused = ran(name, "--config", file, "--work", tmp_path / "work", *given)
    assert refused.returncode == 2
    assert "model.heads" in refused.stderr
    assert "n_heads" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "work").exists()
