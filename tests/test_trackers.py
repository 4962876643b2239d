"""The points of a training in other trackers: the same as in TensorBoard, once each; a failure stops no training."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from conftest import tiny_config
from dragoman.__main__ import run as run_command
from dragoman.evaluation.curves import read_points
from dragoman.settings import Config, with_values
from dragoman.training import trackers
from dragoman.training.tensorboard import open_board, reopened

Curves = dict[str, list[tuple[int, float]]]


@dataclass
class FakeWandb(ModuleType):
    """Stands in for wandb, whose import takes seconds: one run that keeps what it is given."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)
    fails: bool = False

    def __post_init__(self) -> None:
        super().__init__("wandb")
        self.__spec__ = SimpleNamespace(name="wandb")  # type: ignore[assignment]

    def init(self, **options: Any) -> Any:
        self.calls.append(("init", options))
        finish = lambda: self.calls.append(("finish", {}))  # noqa: E731
        return SimpleNamespace(id="7", log=self.log, finish=finish, define_metric=self.define)

    def define(self, name: str, **options: Any) -> None:
        self.calls.append((name, options))

    def log(self, row: dict[str, float]) -> None:
        if self.fails:
            raise ConnectionError("no route to host")
        self.rows.append(dict(row))


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


@pytest.fixture(autouse=True)
def _own_projects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test has its own projects, in its own folder."""
    for name, variable in trackers.PROJECTS.items():
        monkeypatch.setenv(variable, f"{name}-{tmp_path.name}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflow").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def trackio_curves(folder: Path) -> tuple[Curves, dict[str, Any]]:
    """The curves that trackio's own database has, and the settings."""
    from trackio.sqlite_storage import SQLiteStorage

    project = f"trackio-{folder.name}"
    [name] = SQLiteStorage.get_runs(project)
    curves: Curves = defaultdict(list)
    for row in SQLiteStorage.get_logs(project, name):
        for tag in row.keys() - {"step", "timestamp"}:
            curves[tag].append((row["step"], row[tag]))
    return curves, SQLiteStorage.get_run_config(project, name) or {}


def mlflow_curves(folder: Path) -> tuple[Curves, dict[str, Any]]:
    """The curves that MLflow's own client reads, and the settings."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name(f"mlflow-{folder.name}")
    assert experiment
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    history = {tag: client.get_metric_history(run.info.run_id, tag) for tag in run.data.metrics}
    return {tag: [(each.step, each.value) for each in points] for tag, points in history.items()}, run.data.params


@pytest.mark.parametrize(("name", "curves"), [("trackio", trackio_curves), ("mlflow", mlflow_curves)])
def test_a_tracker_has_each_point_of_a_killed_and_resumed_run_once(
    name: str, curves: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against points that are made again after a resume and counted twice, and against a second run."""
    if name == "trackio":
        monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip(name, reason=f"needs {name}: pip install -e '.[{name}]'")
    if name == "trackio":
        for module in [module for key, module in sys.modules.items() if key.startswith("trackio")]:
            if hasattr(module, "TRACKIO_DIR"):
                monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    config = with_values(Config(), {"training.tracker": name, "run.name": "mine"})
    run = tmp_path / "mine"
    killed = open_board(run, 0, config)
    for step in range(1, 9):
        killed.add_scalar("loss/train", 1 / step, step)
        killed.add_scalar("score/bleu/en-it", step, step)
    killed.close()
    resumed = open_board(run, 5, config)
    for step in range(6, 12):
        resumed.add_scalar("loss/train", 1 / step, step)
        resumed.add_scalar("score/bleu/en-it", step, step)
    resumed.close()
    with reopened(run, config) as board:
        board.add_scalar("test/bleu", 12.5, 11)
    found, settings = curves(tmp_path)
    expected = read_points(run)
    assert found.keys() == expected.keys()
    for tag, points in found.items():
        assert sorted(points) == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected[tag]]
    assert str(settings["training.tracker"]) == name


def test_wandb_continues_its_run_on_the_axis_of_our_steps(wandb: FakeWandb, tmp_path: Path) -> None:
    """Guards the options of wandb: the same id after a resume, and points of a step that it has seen already."""
    config = with_values(Config(), {"training.tracker": "wandb", "run.name": "mine"})
    for start in (0, 5):
        board = open_board(tmp_path, start, config)
        for step in range(start + 1, start + 4):
            board.add_scalar("loss/train", step, step)
            board.add_scalar("speed/minutes", step, step)
        board.close()
    assert wandb.rows == [{"loss/train": s, "speed/minutes": s, "step": s} for s in (1, 2, 3, 6, 7, 8)]
    inits = [options for name, options in wandb.calls if name == "init"]
    assert [(each["name"], each["id"], each["resume"]) for each in inits] == [
        ("mine", None, "allow"), ("mine", "7", "allow"),
    ]  # fmt: skip
    assert inits[0]["config"]["training.tracker"] == "wandb"
    assert [name for name, _ in wandb.calls] == ["init", "*", "finish"] * 2


def test_a_tracker_that_fails_stops_nothing(
    wandb: FakeWandb, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards days of training against a network that is gone: a warning each for training and test, and all points."""
    wandb.fails = True
    config = tiny_config(tmp_path, training__tracker="wandb", training__max_epochs=None, training__max_steps=20)
    assert run_command("train", config) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "wandb" in line]
    assert len(said) == 2
    assert all("no route to host" in line for line in said)
    points = read_points(tmp_path / "runs" / "tiny")
    assert points["test/bleu"]
    assert len(points["loss/train"]) > 2


def test_a_damaged_note_stops_nothing(wandb: FakeWandb, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards a resumed training against a file that a crash or a person has spoilt."""
    config = with_values(Config(), {"training.tracker": "wandb"})
    for content in (b"\xff{", b"[]", b'{"tracker": "wandb", "sent": 1}'):
        (tmp_path / trackers.NOTE).write_bytes(content)
        board = open_board(tmp_path, 5, config)
        board.add_scalar("loss/train", 1, 6)
        board.close()
        assert capsys.readouterr().err.count("warning: training.tracker wandb gets no more points") == 1


def test_a_missing_library_is_said_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against hours of training without the curves that were asked for."""
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert run_command("train", tiny_config(tmp_path, training__tracker="mlflow")) == 2
    error = capsys.readouterr().err
    assert re.search(r"cannot find mlflow: install what training.tracker needs with pip install .*\[mlflow\]", error)
    assert not list(tmp_path.rglob("checkpoints"))
