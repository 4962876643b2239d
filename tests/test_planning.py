"""The planned time of a training: fewer steps on a slow machine, the same after a resume, and the time that is left."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from dragoman import checkpoint, config_file, presets
from dragoman.command_line import parse_settings
from dragoman.corpora.preparation import PreparedData, prepare_data
from dragoman.settings import Config, TrainingConfig, values, with_values
from dragoman.training import outlook, planning
from dragoman.training.progress import progress_of
from faults import harness
from faults.harness import after_step, die, outcome, together, training_of

Tiny = Callable[..., Config]


def seven_passes(tiny: Tiny, tmp_path: Path, **changes: object) -> tuple[Config, PreparedData, int]:
    """A run of seven passes that is planned for a minute, its data, and the tokens of a pass."""
    limits = {"training__max_steps": None, "training__max_epochs": 7, "training__plan_minutes": 1}
    config = tiny(**limits | changes)
    data = prepare_data(config, tmp_path / "data", lambda _: None)
    return config, data, len(data.train.target.ids) + len(data.train)


def of_target(config: Config, data: PreparedData) -> dict[str, Any]:
    """The settings, with the number of entries that the vocabulary of the target has."""
    return values(config) | {"tokenizer.vocab_size": len(data.target)}


def steps_of(config: Config) -> int:
    """The steps of all passes."""
    steps = training_of(config).total_steps
    assert steps is not None
    return steps


@pytest.mark.parametrize(("passes", "planned"), [(8, None), (3.5, 3.5), (0.1, 2.0)])
def test_steps_fit_into_the_planned_time(
    passes: float, planned: float | None, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Guards against a first run that takes too long or is too short, and a rate that is still high at its end."""
    monkeypatch.setattr(outlook, "SURELY_FAST", 0)
    config, data, tokens = seven_passes(tiny, tmp_path)
    monkeypatch.setattr(presets, "USABLE", presets.USABLE * 2 * tokens / presets.usable_tokens(of_target(config, data)))
    speed = passes * tokens / (60 * outlook.FOR_UPDATES)
    steps = planning.planned_steps(config, data, lambda *_: speed)
    assert steps == (None if planned is None else round(planned * steps_of(config) / 7))
    said = capsys.readouterr().out
    assert "translations become usable after about 2 passes" in said
    assert ("--training.plan_minutes null" in said) == (planned is not None)


@pytest.mark.parametrize(
    ("limits", "warnings"),
    [
        ({"max_minutes": 3}, ["training.max_minutes is 3, which is too short for usable translations: raise it to 6"]),
        ({"max_minutes": 6}, []),
        ({"max_epochs": 4}, ["training.max_epochs is 4, which is too few for usable translations: raise it to 6"]),
    ],
)
def test_limits_before_translations_are_usable_are_named(limits: dict[str, Any], warnings: list[str]) -> None:
    """Guards three minutes of training that can only end in "vous vous vous"."""
    here = outlook.Outlook(speed=1000 / outlook.FOR_UPDATES, tokens=60_000, usable=5)
    assert [each.removesuffix(" or more") for each in here.shortages(TrainingConfig(**limits))] == warnings


@pytest.mark.parametrize("limit", [{"max_steps": 9}, {"max_minutes": 9}, {"plan_minutes": None}])
def test_another_limit_is_left_alone(limit: dict[str, object], tiny: Tiny, tmp_path: Path) -> None:
    """A limit that the user has set is not replaced by a plan."""
    config, data, _ = seven_passes(tiny, tmp_path, **{f"training__{key}": value for key, value in limit.items()})
    assert planning.planned_steps(config, data, lambda *_: 1e-9) == config.training.max_steps


def test_a_short_run_is_not_measured(tiny: Tiny, tmp_path: Path) -> None:
    """Small runs start without seconds of measuring."""
    config, data, _ = seven_passes(tiny, tmp_path, training__plan_minutes=5)
    assert planning.planned_steps(config, data, lambda *_: pytest.fail("it was measured")) is None


@pytest.mark.parametrize(
    ("words", "file", "minutes"),
    [
        ([], None, 5.0),
        (["--training.max_epochs", "9"], None, None),
        (["--training.max_steps", "9"], None, None),
        (["--training.max_steps", "null"], None, 5.0),
        (["--training.max_epochs", "9", "--training.plan_minutes", "2"], None, 2.0),
        ([], "training: {max_epochs: 9}", None),
        ([], "training: {max_epochs: 9, plan_minutes: 3}", 3.0),
        (["--training.max_epochs", "8"], "training: {max_epochs: 9, plan_minutes: 3}", None),
        (["--model.preset", "small"], None, None),
    ],
)
def test_a_limit_of_the_user_ends_the_plan(
    words: list[str], file: str | None, minutes: float | None, tmp_path: Path
) -> None:
    """A limit that the user or a preset sets is not shortened by the plan."""
    path = ROOT / "config.yaml"
    if file:
        path = tmp_path / "mine.yaml"
        path.write_text(file, encoding="utf-8")
    config = parse_settings(["--config", str(path), *words], default_file=ROOT / "config.yaml")
    assert config.training.plan_minutes == minutes


def test_a_resumed_run_keeps_its_plan(tiny: Tiny, tmp_path: Path) -> None:
    """A resume on another machine, or at another speed, keeps the schedule."""
    planned = {"training__max_steps": None, "training__max_epochs": 5, "training__plan_minutes": 0.001}
    once, killed = (tiny(run__name=name, **planned) for name in ("once", "killed"))

    def slow() -> None:  # so that the run makes as few passes as are usable
        outlook.SURELY_FAST, presets.USABLE = 0, 0.2

    def faster() -> None:
        outlook.SURELY_FAST, presets.USABLE = 0, 0.3

    assert harness.run(once, slow) == 0
    steps = config_file.load(Path(once.run.dir) / "once" / "config.yaml").training.max_steps
    assert steps is not None
    assert steps_of(once) / 5 < steps < steps_of(once)
    assert harness.run(killed, together(slow, after_step(steps - 3, die))) == -signal.SIGKILL
    assert harness.run(killed, faster) == 0
    assert outcome(killed) == outcome(once)
    longer = with_values(once, {"training.plan_minutes": 9.0})
    assert harness.run(longer, slow) == 0
    assert config_file.load(Path(once.run.dir) / "once" / "config.yaml").training.max_steps is None
    last = checkpoint.newest(harness.checkpoints(once), quarantine=False, warn=print)
    assert last is not None
    assert progress_of(last).step == steps_of(once)


def test_the_time_left_ends_with_the_nearest_limit(tiny: Tiny) -> None:
    """The time left considers every limit."""
    state = training_of(tiny(training__max_steps=100, training__max_epochs=None))
    assert math.isnan(planning.seconds_left(state))
    state.progress.step, state.progress.seconds = 40, 100.0
    assert planning.seconds_left(state) == pytest.approx(60 * 2.5)
    state.config = with_values(state.config, {"training.max_minutes": 2})
    assert planning.seconds_left(state) == pytest.approx(20)
