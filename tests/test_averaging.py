"""Averages of checkpoints: the mean of each weight, from one run only, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from torch import nn

from conftest import in_child, tiny_config
from dragoman import averaging, checkpoint, command_line, serialization, tensors
from dragoman.__main__ import run as run_command
from dragoman.translation.translator import Translator
from faults.harness import die_at_call
from saved import Tied, bits, contents, flip_a_bit, names, silent, snapshot

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")


MODEL = {"d_model": 4, "n_heads": 2, "norm": "pre"}


def save_model(root: Path, step: int, model: nn.Module, changed: Mapping[str, bytes] = MappingProxyType({})) -> Path:
    """Save a checkpoint with real weights, and some files changed."""
    files = contents(step) | {
        "model.safetensors": tensors.weights_bytes(model),
        "config.yaml": json.dumps({"run": {"seed": step}, "model": MODEL}).encode(),
        "source.tokenizer.json": b"source",
        "target.tokenizer.json": b"target",
    }
    return checkpoint.save(root, step, {**files, **changed})


def config_with(**model: object) -> dict[str, bytes]:
    return {"config.yaml": json.dumps({"model": MODEL | model}).encode()}


def tied(seed: int) -> Tied:
    model = Tied(seed)
    model.counts = torch.arange(3)  # the same for all, unlike that of `Tied`
    return model


def some_checkpoints(root: Path, count: int = 3) -> list[Path]:
    return [save_model(root, step, tied(step)) for step in range(1, count + 1)]


def run_average(*words: object) -> int:
    """Run `dragoman average` in this process and return its exit code."""
    try:
        return run_command("average", command_line.parse_average([*map(str, words)]))
    except SystemExit as stop:
        return int(stop.code or 0)


def test_average_is_the_mean_of_each_weight(root: Path) -> None:
    """Guards against a sum in float32 or bfloat16, which loses the differences to be averaged."""
    models = [tied(seed) for seed in range(5)]
    paths = [save_model(root, step, model) for step, model in enumerate(models)]
    steps, files = averaging.average(paths)
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
    path = save_model(root, 1, model)
    _, files = averaging.average([path] * times)
    assert files["model.safetensors"] == (path / "model.safetensors").read_bytes()


def test_checkpoints_with_different_dropout_can_be_averaged(root: Path) -> None:
    """Guards against refusing the checkpoints of a run that was resumed with another dropout."""
    some_checkpoints(root, 2)
    other = config_with(preset="small", **{f"{kind}dropout": 0.3 for kind in ("", "attention_")})
    save_model(root, 3, tied(3), other)
    steps, _ = averaging.average(checkpoint.steps(root))
    assert sorted(steps) == [1, 2, 3]


def test_average_does_not_depend_on_the_order(root: Path) -> None:
    """Guards against a shell's sorting: `step-*` puts 100000000 before 99999999."""
    paths = some_checkpoints(root)
    expected = averaging.average(paths)
    assert averaging.average(paths[::-1]) == expected
    assert averaging.average([paths[1], paths[2], paths[0]]) == expected


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
    "a shape": (r"embedding\.weight .*\(7, 4\).*\(9, 4\)", lambda root: save_model(root, 2, Tied(vocabulary=9))),
    "a type": (r"coarse\.bias .*bfloat16.*float64", lambda root: save_model(root, 2, tied(2).double())),
    "a name": (r"extra\.", lambda root: save_model(root, 2, other_names())),
    "a counter": (r"counts.*\[0, 1, 2\].*\[2, 3, 4\]", lambda root: save_model(root, 2, Tied(2))),
    "a tokenizer": (
        r"target\.tokenizer\.json",
        lambda root: save_model(root, 2, tied(2), {"target.tokenizer.json": b""}),
    ),
    "heads, which no shape shows": (
        r"model\.n_heads \(2 and 4\)",
        lambda root: save_model(root, 2, tied(2), config_with(n_heads=4)),
    ),
    "a setting of a later version": (
        r"config\.yaml is not a conf",
        lambda root: save_model(root, 2, tied(2), config_with(new=1)),
    ),
    "no configuration": (
        r"config\.yaml is not a conf",
        lambda root: save_model(root, 2, tied(2), {"config.yaml": b"["}),
    ),
    "no model in it": (r"config\.yaml is not a conf", lambda root: save_model(root, 2, tied(2), {"config.yaml": b"a"})),
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
        ([], "either a run"),
        (["a", "--run", "b"], "either a run"),
        (["a", "--output", "b"], "a is only one"),
        (["a", "b"], "--output"),
        (["a", "b", "--last", "2", "--output", "c"], "--run"),
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


def test_kill_at_any_call_of_an_average_leaves_the_old_or_the_new_one(root: Path, tmp_path: Path) -> None:
    """Guards against half an average, and deleting files of a running training that look like leftovers."""
    paths = some_checkpoints(root)
    steps, files = averaging.average(paths)
    place = tmp_path / "run" / "averaged"
    set_aside = place.with_name("replaced-averaged")

    def publish_and_die(k: int) -> None:
        die_at_call(k)
        checkpoint.publish(place, steps[-1], files)

    deaths, seen, between = 0, set(), 0
    while True:
        shutil.rmtree(place.parent, ignore_errors=True)
        assert run_average(*paths[:2], "--output", place) == 0
        (place.parent / ".tmp-config.yaml").write_bytes(b"being written")
        before = names(place.parent)
        status = in_child(lambda k=deaths + 1: publish_and_die(k))
        assert status in (0, -signal.SIGKILL)
        between += not place.exists()
        seen.add(checkpoint.read(place if place.exists() else set_aside).step)
        assert run_average(*paths[1:], "--output", place) == 0
        left = names(place.parent) - before  # removed by a later save, an hour later or more
        assert all(name.startswith(".tmp-averaged-") for name in left)
        assert checkpoint.read(place).step == 3
        if status == 0:
            break
        deaths += 1
    assert seen == {2, 3}
    assert deaths > 3 * len(files), "no calls were seen"
    assert between == 1, "only between the two renames"


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
