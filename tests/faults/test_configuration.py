"""Cases 29 and 30: a mistake in the settings ends in one line that names it, before anything is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import HANG, ROOT

MISTAKES: dict[str, tuple[str | None, list[str]]] = {
    "unknown key": ("model:\n  d_modle: 64\n", [":2:", "model.d_modle", "did you mean model.d_model?"]),
    "unknown section": ("trainig:\n  lr: 0.1\n", [":1:", "trainig", "did you mean training?"]),
    "in the wrong section": ("model:\n  lr: 0.1\n", ["model.lr", "did you mean training.lr?"]),
    "wrong type": ("model:\n  d_model: wide\n", ["model.d_model is wide", "whole number"]),
    "list for a value": ("model:\n  d_model: [64]\n", ["model.d_model is a list"]),
    "nan": ("training:\n  lr: nan\n", ["training.lr is nan", "finite"]),
    "infinite": ("training:\n  clip_norm: 1e999\n", ["training.clip_norm is inf", "finite"]),
    "negative": ("training:\n  lr: -0.1\n", ["training.lr is -0.1", "greater than 0"]),
    "not divisible": ("model:\n  n_heads: 3\n", ["model.n_heads is 3", "divide model.d_model"]),
    "bad choice": ("model:\n  norm: prre\n", ["model.norm is prre", "did you mean pre?"]),
    "missing file": (None, ["wrong.yaml", "No such file"]),
    "empty": ("", ["wrong.yaml", "empty"]),
    "a list": ("- model\n", ["wrong.yaml:1", "a list"]),
    "no YAML": ("model: {d_model: 64\n", ["wrong.yaml", "not valid YAML"]),
    "no end": ("training: {max_epochs: null}\n", ["training.max_steps", "at least one"]),
}


def refusal(folder: Path, content: str | None, code: int = 2) -> str:
    """Run train.py with a config file in a folder where nothing may be created; return its message."""
    if content is not None:
        (folder / "wrong.yaml").write_text(content, encoding="utf-8")
    before = sorted(folder.iterdir())
    command = [sys.executable, "-B", ROOT / "train.py", "--config", "wrong.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert sorted(folder.iterdir()) == before
    return done.stderr


@pytest.mark.parametrize("mistake", MISTAKES)
def test_29_mistake_is_named_before_anything_is_made(tmp_path: Path, mistake: str) -> None:
    """Guards against folders and tracebacks of a run that never started; `test_config_file` has all messages."""
    content, fragments = MISTAKES[mistake]
    error = refusal(tmp_path, content)
    assert [fragment for fragment in fragments if fragment not in error] == [], error


TRAPS = {
    "no is false": ("data:\n  target_lang: no\n", ["data.target_lang is no", 'quote it, as "no"']),
    "duplicate key": ("model:\n  d_model: 64\n  n_heads: 2\n  d_model: 32\n", [":4:", "appears twice", "line 2"]),
    "duplicate section": ("run:\n  name: a\nmodel:\n  d_model: 64\nrun:\n  seed: 2\n", [":5:", "run appears twice"]),
    "time is a number": ("run:\n  name: 12:30\n", ["run.name is 12:30", "quote it"]),
    "octal": ("data:\n  revision: 0123456\n", ["data.revision is 0123456", "quote it"]),
}


@pytest.mark.faults
@pytest.mark.parametrize("trap", TRAPS)
def test_30_values_that_yaml_reads_differently_are_refused(tmp_path: Path, trap: str) -> None:
    """Guards against Norwegian as false, and a duplicate key, whose first value YAML silently drops."""
    content, fragments = TRAPS[trap]
    error = refusal(tmp_path, content)
    assert [fragment for fragment in fragments if fragment not in error] == [], error


@pytest.mark.faults
@pytest.mark.parametrize("text", ["1e-4", "1E-4", "1.0e-4", "0.0001"])
def test_30_number_formats(tmp_path: Path, text: str) -> None:
    """Guards against YAML 1.1, in which 1e-4 is text."""
    file = tmp_path / "right.yaml"
    file.write_text(f"training:\n  lr: {text}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, ROOT / "train.py", "--config", file, "--print_config"], capture_output=True, text=True
    )
    assert "\n  lr: 0.0001\n" in done.stdout, done.stderr
