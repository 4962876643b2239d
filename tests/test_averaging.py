"""Averages of checkpoints: the mean of each weight, from one run only, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import safetensors.torch
import torch
from torch import nn

from conftest import in_child, tiny_config
from dragoman import averaging, checkpoint, command_line, serialization, tensors
from dragoman.__main__ import run as run_command
from dragoman.translation.translator import Translator
from saved import Tied, bits, contents, flip_a_bit, names, silent, snapshot

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")


def save_model(root: Path, step: int, model: nn.Module, changed: Mapping[str, bytes] = MappingProxyType({})) -> Path:
    """Save a checkpoint with real weights, and some files changed."""
    files = contents(step) | {
        "model.safetensors": safetensors.torch.save(tensors.weights_of(model)),
        "config.yaml": json.dumps({"run": {"seed": step}}).encode(),
        "source.tokenizer.json": b"source",
        "target.tokenizer.json": b"target",
    }
    return checkpoint.save(root, step, {**files, **changed})


def tied(seed: int) -> Tied:
    model = Tied(seed)
    model.counts = torch.arange(3)  # the same for all, unlike that of `Tied`
    return model


def run_average(*words: object) -> int:
    """Run `dragoman average` in this process and return its exit code."""
    try:
        return run_command("average", command_line.parse_average([*map(str, words)]))
    except SystemExit as stop:
        return int(stop.code or 0)


def test_average_is_the_mean_of_each_weight(root: Path) -> None:
    """Guards against a sum in float32 or bfloat16, which loses the differences to be averaged."""
    models = [tied(seed) for seed in range(5)]
    for step, model in enumerate(models):
        save_model(root, step, model)
    steps, files = averaging.average(root.parent, 9)
    assert steps == [0, 1, 2, 3, 4]
    mean = Tied(seed=9)
    tensors.load_weights(mean, files["model.safetensors"])
    for name, found in mean.state_dict().items():
        all_of_them = [model.state_dict()[name] for model in models]
        if found.is_floating_point():
            exact = [math.fsum(values) / 5 for values in zip(*(t.flatten().tolist() for t in all_of_them), strict=True)]
            expected = torch.tensor(exact, dtype=torch.float64).to(found.dtype).view(found.shape)
        else:
            expected = all_of_them[0]
        assert bits({name: found}) == bits({name: expected})
    assert mean.generator.weight is mean.embedding.weight


@pytest.mark.parametrize("times", [2, 3, 7])
def test_average_of_a_checkpoint_with_itself_is_itself(root: Path, times: int) -> None:
    """Guards against rounding, a -0.0 that becomes 0.0, and weights that come back untied."""
    model = tied(1)
    model.coarse.bias.data[:] = torch.tensor([-0.0, 1e-40, 3e38])
    model.embedding.weight.data[0] = torch.tensor([-0.0, 1e-45, 3e38, 1 / 3])
    paths = [save_model(root, step, model) for step in range(times)]
    _, files = averaging.average(root.parent, times)
    assert files["model.safetensors"] == (paths[0] / "model.safetensors").read_bytes()


def test_average_has_the_files_to_translate_with(root: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards against leaving out a file that a later version adds, and including the training state."""
    run = root.parent
    for step in (1, 2):
        save_model(root, step, tied(step))
    save_model(root, 3, tied(3), {"new.json": b"{}"})
    assert run_average("--run", run, "--last", 2) == 0
    found = checkpoint.read(run / "averaged")
    newest = checkpoint.read(root / "step-00000003").files
    assert found.step == 3
    assert found.files.keys() == newest.keys() - {"training.pt", "state.json"} | {"averaged.json"}
    assert all(found.files[name] == newest[name] for name in found.files.keys() & newest.keys() - {averaging.WEIGHTS})
    made_of = json.loads(found.files["averaged.json"])["mean_of"]
    assert [(one["name"], one["step"]) for one in made_of] == [("step-00000002", 2), ("step-00000003", 3)]
    assert made_of[1]["weights"] == serialization.sha256_of(newest[averaging.WEIGHTS])
    assert str(run.parent) not in found.files["averaged.json"].decode(), "a checkpoint holds no path"

    output, error = capsys.readouterr()
    assert error == ""
    assert output.count("\n") == 1
    for fragment in ("2, 3", f"dragoman evaluate --checkpoint {run / 'averaged'}", f"translate.py --checkpoint {run}"):
        assert fragment in output


def other_names() -> Tied:
    model = tied(2)
    model.extra = nn.Linear(2, 2)
    return model


DIFFERENCES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "a shape": ("names, shapes or types", lambda root: save_model(root, 2, Tied(vocabulary=9))),
    "a type": ("names, shapes or types", lambda root: save_model(root, 2, tied(2).double())),
    "a name": ("names, shapes or types", lambda root: save_model(root, 2, other_names())),
    "damage": (r"sha256", lambda root: flip_a_bit(save_model(root, 2, tied(2)) / "model.safetensors") or root),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_checkpoints_that_differ_are_refused_in_one_line(
    root: Path, difference: str, capsys: pytest.CaptureFixture
) -> None:
    """Guards against weights that match in shape but cannot be averaged, and half a result."""
    message, make = DIFFERENCES[difference]
    save_model(root, 1, tied(1))
    make(root)
    assert run_average("--run", root.parent) == 4
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert names(root.parent) == {"checkpoints"}


def test_average_of_fewer_checkpoints_than_requested(root: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards against a silent average of fewer checkpoints than requested, or of just one."""
    run = root.parent
    assert run_average("--run", run) == 4
    assert "holds 0" in capsys.readouterr().err
    save_model(root, 1, tied(1))
    assert run_average("--run", run) == 4
    assert "holds 1" in capsys.readouterr().err
    assert not (run / "averaged").exists()
    save_model(root, 2, tied(2))
    assert run_average("--run", run) == 0
    assert "holds only 2 checkpoints; training.keep_last" in capsys.readouterr().err
    shutil.copytree(root / "step-00000002", root / "replaced-step-00000002")  # a save in progress
    assert run_average("--run", run) == 0
    assert "steps 1, 2;" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        ([], "--run"),
        (["--run", "a", "--last", "1"], "--last: 1 is not"),
        (["--run", "a", "--last", "few"], "--last"),
        (["--run", "a", "--outp", "b"], "--outp"),
        (["--run", "a", "--output", "run/checkpoints/best"], "outside"),
        (["--run", "a", "--output", "run/checkpoints"], "exists"),
        (["--run", "a", "--output", "."], "exists"),
        (["--run", "a", "--output", "file"], "exists"),
    ],
)
def test_mistake_on_the_command_line_is_one_line(
    tmp_path: Path, words: list[str], fragment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Guards against an average that replaces a user's own folder or a run's checkpoints."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"precious")
    before = snapshot(tmp_path)
    assert run_average(*words) == 2
    error = capsys.readouterr().err
    assert fragment in error
    assert error.count("\n") == 1
    assert snapshot(tmp_path) == before


def test_translator_reads_an_average_and_a_resume_does_not(tmp_path: Path) -> None:
    """Guards against an average that cannot translate, and a resumed run that picks up its own average."""
    config = tiny_config(tmp_path, training__save_every=2, training__keep_last=5, training__max_steps=12)
    assert in_child(lambda: run_command("train", config)) == 0
    run = tmp_path / "runs" / "tiny"
    assert run_average("--run", run) == 0
    averaged = Translator(run / "averaged")
    assert averaged.step == 12
    models = [Translator(path).model for path in checkpoint.steps(run / "checkpoints")[:5]]
    states = [model.state_dict() for model in models]
    for name, mean in averaged.model.state_dict().items():
        torch.testing.assert_close(mean, torch.stack([state[name] for state in states]).mean(0))
    assert len(averaged.translate(["the cat sees the dog."])) == 1
    before = snapshot(run / "averaged")
    longer = tiny_config(tmp_path, training__save_every=2, training__keep_last=5, training__max_steps=13)
    assert in_child(lambda: run_command("train", longer)) == 0
    found = checkpoint.newest(run / "checkpoints", False, silent)
    assert found is not None
    assert found.step == 13
    assert snapshot(run / "averaged") == before
