"""What messages of training, translation, exports and the server tell people to do: done as said, it helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import tiny_config
from dragoman import checkpoint
from test_remedies import arguments_of, found, run

__all__ = ["run"]


def trained(folder: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str], **settings: object) -> list[str]:
    """Train a tiny run in a folder, which becomes the current one; returns the command."""
    monkeypatch.chdir(folder)
    tiny_config(folder)
    changes = {
        "training__max_epochs": None, "training__max_steps": 8, "training__validate_every": 40,
        "training__save_every": 4, "decoding__max_length": 12, "data__check_languages": False,
    }  # fmt: skip
    command = ["train", *arguments_of(tiny_config(Path(), **(changes | settings)))]
    run(command)
    return command


def test_a_model_that_is_not_trained_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str]
) -> None:
    """Guards a command that can be given for ever, since the best weights stay those of an early step."""
    trained(tmp_path, monkeypatch, run, training__save_every=50, training__validate_every=900)
    said = run("evaluate --run runs/tiny")
    run(found(r"Continue with: (.*? --training\.max_steps \d+)", said))
    root = Path("runs/tiny/checkpoints")
    checkpoint.set_best(root, min(map(checkpoint.step_of, checkpoint.steps(root))))
    assert "not trained enough" not in run("evaluate --run runs/tiny")
