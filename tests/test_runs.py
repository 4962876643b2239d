"""The list of runs, and the charts of one."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from conftest import tiny_config
from dragoman import checkpoint, console, serialization
from dragoman.__main__ import main
from dragoman.__main__ import run as run_command
from dragoman.console import display_width
from dragoman.evaluation.curves import HEAD, METRICS, MOST_POINTS, charts, read_points
from dragoman.evaluation.runs import ListedRun, list_runs, run_lines
from dragoman.run_lock import lock
from dragoman.translation.loading import usual_run


@pytest.fixture(autouse=True)
def _same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in this process change the name in front of messages."""
    monkeypatch.setattr(console, "program", console.program)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and one that was stopped."""
    folder = tmp_path_factory.mktemp("listed")
    config = tiny_config(folder, training__max_epochs=None, training__max_steps=20)
    assert run_command("train", config) == 0
    stopped = Path(shutil.copytree(folder / "runs" / "tiny", folder / "runs" / "stopped"))
    (stopped / "result.json").unlink()
    (folder / "runs" / "no run").mkdir()
    return folder / "runs"


def test_runs_are_listed_with_their_scores(runs: Path) -> None:
    """The list shows the scores of the runs."""
    result = json.loads((runs / "tiny" / "result.json").read_bytes())
    found = {each.name: each for each in list_runs(runs)}
    assert found.keys() == {"tiny", "stopped"}
    assert (found["tiny"].state, found["stopped"].state) == ("finished", "stopped")
    for each in found.values():
        assert (each.languages, each.step) == ("en-it", 20)
        assert each.validation == pytest.approx(result["validation"]["bleu"])
    assert (found["tiny"].test, found["stopped"].test) == (pytest.approx(result["test"]["bleu"]), None)
    with lock(runs / "stopped"):
        assert {each.name: each.state for each in list_runs(runs)}["stopped"] == "training"


def test_a_run_that_was_continued_and_stopped_is_not_finished(runs: Path, tmp_path: Path) -> None:
    """Guards the state and the score against those of an earlier end: result.json stays until the next one."""
    copy = Path(shutil.copytree(runs, tmp_path / "runs"))
    root = copy / "tiny" / "checkpoints"
    shutil.copytree(root / "step-00000020", root / "step-00000027")
    found = {each.name: each for each in list_runs(copy)}
    assert (found["tiny"].state, found["tiny"].step, found["tiny"].test) == ("stopped", 27, None)


def test_runs_show_what_people_compare(runs: Path, tmp_path: Path) -> None:
    """Guards the metric and the step of the best score, the minutes, and the settings in which runs differ."""
    copy = Path(shutil.copytree(runs, tmp_path / "runs"))
    file = copy / "stopped" / "config.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("dropout: 0.1", "dropout: 0.25", 1), encoding="utf-8")
    found = list_runs(copy)
    best = json.loads((copy / "tiny" / "result.json").read_bytes())["validation"]["step"]
    assert {(each.metric, each.best_step) for each in found} == {("BLEU", best)}
    assert all(each.minutes and each.minutes > 0 for each in found)
    assert {each.name: each.settings for each in found} == {
        "tiny": {"model.dropout": 0.1}, "stopped": {"model.dropout": 0.25},
    }  # fmt: skip
    assert run_lines(found)[-1] in (
        "  model.dropout: 0.1 (tiny); 0.25 (stopped)", "  model.dropout: 0.25 (stopped); 0.1 (tiny)",
    )  # fmt: skip


def test_a_run_of_no_use_is_not_taken_silently(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards against serving the model of a smoke test because it finished last."""
    copy = Path(shutil.copytree(runs, tmp_path / "runs"))
    for name, bleu, time in (("tiny", 0.01, 2_000_000_000), ("stopped", 40.0, 1_000_000_000)):
        checkpoint.set_best(copy / name / "checkpoints", 20, bleu=bleu)
        result = {"step": 20, "test": {"bleu": bleu}}
        (copy / name / "result.json").write_bytes(serialization.json_bytes(result))
        for path in (copy / name / "checkpoints").iterdir():
            os.utime(path, (time, time))
    assert usual_run(copy) == copy / "tiny"
    said = capsys.readouterr().err
    assert "BLEU of 0.01" in said
    assert f"choose it with --run {copy / 'stopped'}" in said
    shutil.rmtree(copy / "tiny")
    assert usual_run(copy) == copy / "stopped"
    assert not capsys.readouterr().err


def test_a_damaged_run_does_not_hide_the_others(runs: Path, tmp_path: Path) -> None:
    """Guards the list against files that a crash or a person has spoilt."""
    copy = Path(shutil.copytree(runs, tmp_path / "runs"))
    for name in ("result.json", "config.yaml", "checkpoints/best.json"):
        (copy / "tiny" / name).write_bytes(b"\xff{")
    found = {each.name: each for each in list_runs(copy)}
    assert found["tiny"].step == 20
    assert (found["tiny"].languages, found["tiny"].validation, found["tiny"].test) == ("", None, None)
    assert found["stopped"].validation is not None


def test_the_list_fits_a_terminal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards 80 columns, names that act on a terminal, and a folder without runs."""
    names = ["very-long-name-of-a-run-" * 3, "\x1b[31m", "中文" * 20]
    scores = ("perplexity", 12.345, 1_000_000, 100.0, 12_345.0, 0.0)
    several = [
        ListedRun(name, "en-it,it-en,en-fr", "finished", 1_000_000, *scores, {"data.train": name * i})
        for i, name in enumerate(names, 1)
    ]
    lines = run_lines(several)
    assert all(display_width(line) <= 80 and line.isprintable() for line in lines)
    assert main(["runs", str(runs)]) == 0
    assert capsys.readouterr().out.splitlines() == run_lines(list_runs(runs))
    assert main(["runs", str(runs), "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == [each.name for each in list_runs(runs)]
    assert main(["runs", str(runs / "no run")]) == 4
    assert "holds no runs" in capsys.readouterr().err


def test_curves_show_the_points_of_the_run(runs: Path) -> None:
    """Guards the charts in the report against other points than those in metrics.csv."""
    points = read_points(runs / "tiny")
    assert points["loss/train"][-1][0] == 18
    assert [step for step, _ in points["score/bleu"]] == [10, 20]
    page = (runs / "tiny" / "report" / "test.html").read_text(encoding="utf-8")
    lines = [line.split() for line in re.findall(r'<polyline [^>]*points="([^"]*)"', page)]
    assert [len(line) for line in lines] == [len(points[tag]) for tag in ("loss/train", "loss/validation")] + [2, 2]
    height = [float(place.split(",")[1]) for place in lines[0]]
    losses = [value for _, value in points["loss/train"]]
    assert sorted(range(len(height)), key=height.__getitem__) == sorted(range(len(losses)), key=lambda i: -losses[i])


def test_curves_of_a_long_or_broken_file(tmp_path: Path) -> None:
    """Guards a page of megabytes, a line that a kill has cut, and a run without points."""
    assert charts(tmp_path) == []
    lines = [f"{step},loss/train,{9 / step:.7g}\n" for step in range(1, 10_001)]
    (tmp_path / METRICS).write_text("step,tag,value\n" + "".join(lines) + "10001,loss/tr", encoding="utf-8")
    [chart] = charts(tmp_path)
    [(_, name, shown)] = chart["lines"]
    assert name == "training"
    assert len(shown) <= MOST_POINTS
    assert shown[-1][0] == 10_000
    (tmp_path / METRICS).write_text(HEAD + "0,loss/train,9\n1,loss/train,inf\n0,score/bleu,nan\n", encoding="utf-8")
    [chart] = charts(tmp_path)
    assert chart["lines"] == [("two", "training", [(0, 9.0)])]


def test_a_second_other_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Guards against silently comparing with the last one only."""
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", "--against", "a", "--against=b"])
    assert stopped.value.code == 2
    assert "--against: given twice" in capsys.readouterr().err
