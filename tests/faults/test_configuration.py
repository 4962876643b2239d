"""Cases 29 and 30: a mistake in the settings ends in one line that names it, before anything is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import HANG, ROOT
from dragoman.config_file import loads
from dragoman.errors import ConfigError

MISTAKES: dict[str, tuple[str | None, list[str]]] = {
    "unknown key": ("model:\n  d_modle: 64\n", [":2:", "model.d_modle", "did you mean model.d_model?"]),
    "not divisible": ("model:\n  n_heads: 3\n", ["model.n_heads is 3", "divide model.d_model"]),
    "missing file": (None, ["wrong.yaml", "No such file"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_29_mistake_is_named_before_anything_is_made(tmp_path: Path, mistake: str) -> None:
    """Guards against folders and tracebacks of a run that never started; `test_config_file` has all messages."""
    content, fragments = MISTAKES[mistake]
    if content is not None:
        (tmp_path / "wrong.yaml").write_text(content, encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    command = [sys.executable, "-B", ROOT / "train.py", "--config", "wrong.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert sorted(tmp_path.iterdir()) == before
    assert [fragment for fragment in fragments if fragment not in done.stderr] == []


TRAPS: dict[str, tuple[str, list[str]]] = {
    "no is false": ("data:\n  target_lang: no\n", ["data.target_lang is no", 'quote it, as "no"']),
    "duplicate key": ("model:\n  d_model: 64\n  n_heads: 2\n  d_model: 32\n", [":4:", "appears twice", "line 2"]),
    "duplicate section": ("run:\n  name: a\nmodel:\n  d_model: 64\nrun:\n  seed: 2\n", [":5:", "run appears twice"]),
    "time is a number": ("run:\n  name: 12:30\n", ["run.name is 12:30", "quote it"]),
    "octal": ("data:\n  revision: 0123456\n", ["data.revision is 0123456", "quote it"]),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_30_values_that_yaml_reads_differently_are_refused(trap: str) -> None:
    """Guards against Norwegian as false, and a duplicate key, whose first value YAML silently drops."""
    content, fragments = TRAPS[trap]
    with pytest.raises(ConfigError) as refused:
        loads(content.encode(), Path("wrong.yaml"))
    assert [fragment for fragment in fragments if fragment not in str(refused.value)] == []
