"""The list of runs, and the charts of one."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch

from conftest import tiny_config
from dragoman import checkpoint, console, serialization
from dragoman.__main__ import main
from dragoman.__main__ import run as run_command
from dragoman.console import display_width
from dragoman.evaluation.curves import HEAD, METRICS, MOST_POINTS, charts, read_points, shared_charts
from dragoman.evaluation.runs import ListedRun, list_runs, run_lines
from dragoman.run_lock import lock
from dragoman.translation.loading import usual_run
from dragoman.translation.translator import Translator


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


# --- Runs beside each other ---


def compare(*words: object) -> int:
    return main(["runs", *map(str, words)])


@pytest.fixture
def several(runs: Path, tmp_path: Path) -> Path:
    """Three runs: one with the translations of the test set all right, one with its own, one without a report."""
    copy = Path(shutil.copytree(runs, tmp_path / "runs"))
    (copy / "stopped").rename(copy / "right")
    shutil.copytree(copy / "tiny", copy / "without")
    shutil.rmtree(copy / "without" / "report")
    file = copy / "right" / "report" / "test.json"
    report = json.loads(file.read_bytes())
    for row in report["sentences"]:
        row["translation"] = row["reference"]
    file.write_bytes(serialization.json_bytes(report))
    config = copy / "right" / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("dropout: 0.1", "dropout: 0.25", 1), encoding="utf-8")
    return copy


def test_runs_stand_beside_each_other(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards scores, settings, the sign and significance of a difference, and the command for a missing report."""
    assert compare(*(several / name for name in ("tiny", "right", "without")), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    tiny, right, without = found["runs"]
    report = json.loads((several / "tiny" / "report" / "test.json").read_bytes())
    assert tiny["scores"]["BLEU"] == pytest.approx(report["figures"][0]["score"])
    assert right["scores"] == {"BLEU": pytest.approx(100), "chrF": pytest.approx(100)}
    assert without["scores"] == {}
    assert (tiny["settings"], right["settings"]) == ({"model.dropout": 0.1}, {"model.dropout": 0.25})
    model = Translator(several / "tiny", "cpu").model
    assert isinstance(model, torch.nn.Module)
    assert {run["parameters"] for run in found["runs"]} == {sum(each.numel() for each in model.parameters())}
    assert tiny["tokens_per_second"] > 0
    [difference] = found["differences"]
    assert (difference["run"], difference["other"]) == ("right", "tiny")
    bleu = difference["differences"][0]
    assert bleu["difference"] == pytest.approx(100 - tiny["scores"]["BLEU"])
    assert bleu["p"] < 0.05
    [note] = found["notes"]
    assert f"evaluate --run {several / 'without'} --split test" in note
    assert compare(several / "right", several / "tiny", several / "right") == 0  # twice the same is once
    shown = capsys.readouterr().out
    assert re.search(r"^ +right +tiny$", shown, re.MULTILINE)
    assert re.search(r"^test BLEU +100.00 +[\d.]+$", shown, re.MULTILINE)
    assert re.search(r"^model.dropout +0.25 +0.1$", shown, re.MULTILINE)
    assert re.search(r"^tiny − right +BLEU +-[\d.]+ +-[\d.]+ to -[\d.]+ +0.002$", shown, re.MULTILINE)


def test_the_page_of_several_runs_has_the_curves_of_each(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards the lines of a chart against another run's points, and the axis of minutes."""
    names = ("tiny", "right")
    file = several / "right" / METRICS
    slower = [f"20,speed/minutes,{7}\n", "20,score/bleu,1\n"]
    file.write_text(HEAD + "".join(["10,speed/minutes,3\n", "10,score/bleu,2\n", *slower]), encoding="utf-8")
    page = several / "new" / "runs.html"
    assert compare(*(several / name for name in names), "--page", page) == 0
    assert str(page) in capsys.readouterr().err
    points = {name: read_points(several / name) for name in names}
    drawn = {(each["name"], each["unit"]): each for each in shared_charts(points, dict.fromkeys(names, 1.0))}
    assert [line for _, line, _ in drawn["training loss", "step"]["lines"]] == ["tiny"]
    [_, (_, name, shown)] = drawn["validation BLEU", "minutes"]["lines"]
    assert (name, shown) == ("right", [(3, 2), (7, 1)])
    text = page.read_text(encoding="utf-8")
    assert text.count("<polyline") == sum(len(each["lines"]) for each in drawn.values()) == 6
    for name in names:
        assert f"<bdi>{name}</bdi>" in text
    assert not (several / "tiny" / "report" / "runs.html").exists()


def test_a_run_that_noted_no_minutes_is_drawn_by_its_share_of_them() -> None:
    """Guards runs of version 0.1, whose points have only a step."""
    points = {"loss/train": [(10, 2.0), (40, 1.0)], "score/bleu": [(20, 5.0), (40, 9.0)]}
    *_, chart = shared_charts({"old": points, "none": {}}, {"old": 8.0, "none": None})
    assert (chart["unit"], chart["lines"]) == ("minutes", [("one", "old", [(4.0, 5.0), (8.0, 9.0)])])


def test_a_damaged_run_is_compared_by_what_is_left(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards against tracebacks: broken files, other pairs, values of another type, no run at all."""
    broken = several / "without"
    shutil.copytree(several / "tiny" / "report", broken / "report")
    damaged = (METRICS, "config.yaml", "report/test.json")
    for path in (*(broken / name for name in damaged), *broken.glob("checkpoints/*/model.safetensors")):
        path.write_bytes(b"\xff{\n,\n")
    (broken / "result.json").write_text('{"step": 20, "test": 5, "validation": {"bleu": "high"}}', encoding="utf-8")
    fewer = several / "right" / "report" / "test.json"
    report = json.loads(fewer.read_bytes())
    report["sentences"].pop()
    fewer.write_bytes(serialization.json_bytes(report))
    assert compare(several / "tiny", broken, several / "right") == 0
    shown = capsys.readouterr().out
    assert "without has no scores here" in shown
    assert "its pairs are different" in shown
    assert re.search(r"^test BLEU +[\d.]+$", shown, re.MULTILINE)
    assert compare(broken) == 0
    assert "best at step" in capsys.readouterr().out
    assert compare(several / "tiny", several / "nowhere") == 4
    assert "nowhere holds no checkpoint" in capsys.readouterr().err


def test_an_old_report_is_noted(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards the scores of a run that was trained on since its report."""
    checkpoint.set_best(several / "tiny" / "checkpoints", 19, bleu=50.0)
    (several / "tiny" / "result.json").unlink()
    assert compare(several / "tiny") == 0
    shown = capsys.readouterr().out
    assert re.search(r"tiny: the report is of tiny, step [12]0, but the best weights are of step 19", shown)


def test_a_comparison_fits_a_terminal(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards 80 columns for many runs with long names, and two runs of the same name."""
    names = ["very-long-name-of-a-run-" * 3 + str(i) for i in range(4)] + ["\x1b[31m", "中文" * 20]
    for name in names:
        shutil.copytree(several / "tiny", several / name)
    copy = Path(shutil.copytree(several / "tiny", several / "more" / "tiny"))
    assert compare(copy, several / "tiny", *(several / name for name in names)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 60
    assert all(display_width(line) <= 80 and line.isprintable() for line in lines)
