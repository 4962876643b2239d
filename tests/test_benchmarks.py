"""The programs in benchmarks/: they run, repeat no finished work, and compute what they say."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from conftest import HANG, ROOT, tiny_config, tiny_pairs, write_tsv
from dragoman import config_file, device, settings
from dragoman.corpora import preparation
from faults import untrained


def load(name: str) -> ModuleType:
    """Import a program of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look it up there
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", [str(ROOT / "benchmarks"), *sys.path])
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A config file for a tiny run."""
    path = tmp_path / "tiny.yaml"
    path.write_text(config_file.dump(tiny_config(tmp_path, training__max_epochs=1)), encoding="utf-8")
    return path


def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program of benchmarks/ in a process of its own and return what it printed."""
    command = [sys.executable, f"benchmarks/{name}.py", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


def test_gains_compare_the_same_seeds() -> None:
    """Guards against a gain due to a lucky seed that only one of two recipes has."""
    recipes = load("recipes")
    found = {
        "plain": {1: recipes.Outcome(30.0, 10, 1.0), 2: recipes.Outcome(34.0, 20, 2.0)},
        "muon": {2: recipes.Outcome(35.0, 30, 4.0), 3: recipes.Outcome(99.0, 30, 4.0)},
        "both": {1: recipes.Outcome(31.0, 10, 1.0), 2: recipes.Outcome(34.0, 10, 1.0)},
    }
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in recipes.table(found)[2:]]
    assert rows[0] == ["plain", "32.00 ± 2.83", "", "15", "1.5"]
    assert rows[1][:3] == ["muon", "67.00 ± 45.25", "+1.00"]
    assert rows[2][:3] == ["both", "32.50 ± 2.12", "+0.50 ± 0.50"]


def test_recipes_are_trained_once(file: Path, tmp_path: Path) -> None:
    """Guards hours of training against being repeated, and a change against being ignored."""
    work = tmp_path / "work"
    arguments = ["--config", file, "--work", work, "--seeds", 1, "--jobs", 2, "--change", "narrow: --model.d_ff 16"]
    first = run("recipes", *arguments, "--only", "narrow")
    assert first.returncode == 0, first.stderr
    assert [line.split(" | ")[0] for line in first.stdout.splitlines()[2:]] == ["| narrow"]
    assert config_file.load(work / "narrow-1" / "config.yaml").model.d_ff == 16
    written = {path: path.stat().st_mtime_ns for path in work.glob("*/checkpoints/*/*")}
    assert run("recipes", *arguments, "--only", "narrow").stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in work.glob("*/checkpoints/*/*")} == written
    wrong = run("recipes", *arguments, "--only", "plane")
    assert wrong.returncode == 2
    assert "there is no recipe plane" in wrong.stderr


def test_a_useless_recipe_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against hours of training a recipe that is the config itself, or that ends with an error."""
    recipes = load("recipes")
    monkeypatch.setitem(recipes.CHANGES, "five heads", "--model.n_heads 5")
    config = tiny_config(tmp_path, training__optimizer="muon", model__dropout=0.3)
    assert [name for name in recipes.CHANGES if not recipes.suits(config, name)] == ["muon", "five heads"]
    assert "skipping five heads: model.n_heads" in capsys.readouterr().err


def test_a_speedrun_starts_from_nothing(file: Path, tmp_path: Path) -> None:
    """Guards the budget: a limit of epochs must not shorten it, and an earlier run must not have used part of it."""
    work = tmp_path / "work"
    arguments = ["--config", file, "--minutes", 0.05, "--work", work]
    first = run("speedrun", *arguments)
    assert first.returncode == 0, first.stderr
    [row] = first.stdout.splitlines()[2:]
    budget, spent, passes, *scores = [cell.strip().removesuffix(" min") for cell in row.strip("|").split("|")]
    assert budget == "0.05"
    assert float(spent) >= 0.05
    assert float(passes) > 1
    assert all(0 <= float(score) <= 100 for score in scores)
    again = run("speedrun", *arguments)
    assert again.returncode == 1
    assert "starts from nothing" in again.stderr


def test_a_killed_contender_is_reported() -> None:
    """Guards `training.py --shape base`: the system killed a contender for lack of memory, and the benchmark ended with
    BrokenPipeError and no word about it."""
    common = load("common")
    code = "import os, signal; print('{}', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(SystemExit, match="large was killed, probably because memory ran out"):
        list(common.take_turns({"large": [sys.executable, "-c", code]}, 1))
    with pytest.raises(SystemExit, match="broken ended with exit code 3"):
        list(common.take_turns({"broken": [sys.executable, "-c", "raise SystemExit(3)"]}, 1))


def test_a_format_that_the_machine_emulates_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against ten minutes for each row: a CPU without bfloat16 multiplied in it at 1 GFLOP/s."""
    number_formats, cpu = load("common").number_formats, torch.device("cpu")
    monkeypatch.setattr(device, "matmul_rates", lambda _: {torch.float32: 60e9, torch.bfloat16: 1e9})
    assert number_formats(cpu) == ["float32"]
    said = "bfloat16 is left out: matrix products reach 60 GFLOP/s in float32, 1 GFLOP/s in bfloat16\n"
    assert capsys.readouterr().out == said
    monkeypatch.setattr(device, "matmul_rates", lambda _: {torch.float32: 60e9, torch.bfloat16: 120e9})
    assert number_formats(cpu) == ["float32", "bfloat16"]
    assert not capsys.readouterr().out


def test_rows_appear_as_soon_as_they_are_known() -> None:
    """Guards against a pipe that shows nothing until the end, and contenders that are held back for the others."""
    code = "import common, time; print('row'); time.sleep(int(sys.argv[1]))"
    start = f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); "
    with subprocess.Popen([sys.executable, "-c", start + code, str(HANG)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"row\n"
        process.kill()
    code = "import common; turns = iter(sys.argv[1]); common.serve_turns({}, lambda: {'turn': next(turns)})"
    commands = {name: [sys.executable, "-c", start + code, turns] for name, turns in (("a", "12"), ("b", "1"))}
    rows = load("common").take_turns(commands, 2)
    assert next(rows) == ("a", {}, [{"turn": "1"}, {"turn": "2"}])
    with pytest.raises(SystemExit, match="b ended"):  # in its second turn, which comes after this row
        next(rows)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can return freed memory")
def test_a_waiting_contender_returns_its_memory() -> None:
    """Guards the cause: `tune_device` keeps freed memory in the process, so each waiting contender held the 5 GB that
    an update needs, and six of them did not fit into 24 GB."""
    code = (
        f"sys_path = {str(ROOT / 'benchmarks')!r}"
        + """
import json, sys
sys.path.insert(0, sys_path)
from common import serve_turns
import torch
from dragoman.device import tune_device
tune_device(torch.device("cpu"))
def resident():
    return next(int(line.split()[1]) / 1e3 for line in open("/proc/self/status") if line.startswith("VmRSS"))
before = resident()
def turn():
    added = resident() - before
    del_me = [torch.ones(1000, 1000) for _ in range(100)]
    return {"added": added, "used": resident() - before}
serve_turns({}, turn)
"""
    )
    [(_, _, turns)] = load("common").take_turns({"one": [sys.executable, "-c", code]}, 2)
    assert turns[0]["used"] > 350, "megabytes"
    assert turns[1]["added"] < 100


@pytest.mark.slow
def test_contenders_are_trained_once_on_the_same_text(file: Path, tmp_path: Path) -> None:
    """Guards hours of training against being repeated, and comparisons against runs with another time budget."""
    work = tmp_path / "work"
    arguments = ["--config", file, "--threads", 1, "--device", "cpu", "--work", work, "--pairs", 200]
    contenders = ["--contenders", "ours", "pieces"]
    first = run("quality", *arguments, "--minutes", 0.05, *contenders)
    assert first.returncode == 0, first.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in first.stdout.splitlines()[2:4]]
    assert [row[0] for row in rows] == ["ours", "pieces"]
    for _, minutes, whole, *_, validation, test in rows:
        assert 0 < float(minutes) <= float(whole)
        assert 0 <= float(validation) <= 100
        assert 0 <= float(test) <= 100
    assert "tok:13a" in first.stdout
    assert "ours - pieces:" in first.stdout
    assert len((work / "text" / "train.en").read_text(encoding="utf-8").splitlines()) == 200
    written = {path: path.stat().st_mtime_ns for path in work.glob("*/**/*.safetensors")}
    assert run("quality", *arguments, "--minutes", 0.05, *contenders).stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in work.glob("*/**/*.safetensors")} == written
    longer = run("quality", *arguments, "--minutes", 0.1, *contenders)
    assert longer.returncode == 1
    assert "other options" in longer.stderr


@pytest.mark.slow
def test_students_train_on_translations_of_teachers(file: Path, tmp_path: Path) -> None:
    """Guards against swapped sides of forward and backward teachers, real pairs missing from a student's data, held-out
    pairs in it, a second round that forgets the first, and repeated work."""
    work = tmp_path / "work"
    arguments = ["--config", file, "--work", work, "--teachers", 1, "--backward", 1, "--seeds", 1, 2, "--jobs", 2]
    arguments += ["--student=--training.max_epochs 2", "--tests", work / "text" / "test"]
    first = run("diversify", *arguments)
    assert first.returncode == 0, first.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in first.stdout.splitlines()[2:-2]]
    students = ["round-1-student-1", "round-1-student-2"]
    assert [row[0] for row in rows] == ["forward-1", "backward-1", *students, "round 1, mean"]
    assert {len(row) for row in rows} == {6}, "a further test set with the name of the first takes its place"

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
    assert run("diversify", *arguments).stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in work.glob("*/**/*.safetensors")} == written
    second = run("diversify", *arguments, "--rounds", 2)
    assert second.returncode == 0, second.stderr
    assert {path: path.stat().st_mtime_ns for path in written} == written
    means = [line.split("|")[1].strip() for line in second.stdout.splitlines()[-4:-2]]
    assert means == ["round 1, mean", "round 2, mean"]
    again = config_file.load(work / "round-2-student-1" / "config.yaml")
    assert again.data.train == " + ".join([str(student.data.train), *(f"{text}/{name}/train" for name in students)])
    assert again.training.init_from is None
    weights = [max((work / name).glob("checkpoints/*/model.safetensors")).read_bytes() for name in students]
    assert weights[0] != weights[1], "each student has its own seed"


@torch.inference_mode()
def test_stepwise_decoding_equals_training() -> None:
    """Guards the tutorial's model in our search: step by step, with reordered hypotheses, it gives its own logits."""
    tutorial = load("quality_tutorial")
    torch.manual_seed(1)
    model = tutorial.Tutorial(settings.ModelConfig(**{**tutorial.SHAPE, "d_model": 16, "d_ff": 16}), 20, 20).eval()
    source = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0], [9, 9, 3, 0]])
    target = torch.tensor([[2, 10, 11, 12], [2, 13, 14, 15], [2, 16, 17, 18]])
    stepwise = tutorial.Stepwise(model)
    state = stepwise.start(source)
    _, state = stepwise.step(target[:, 0], state)
    kept = torch.tensor([2, 0])
    both = torch.tensor([2, 2, 0, 0])  # two hypotheses of each remaining sentence, which then differ
    state = state.select(both, kept)
    written = target[[2, 1, 0, 1]]
    for place in (1, 2, 3):
        logits, state = stepwise.step(written[:, place], state)
    torch.testing.assert_close(logits, model(source[both], written)[:, -1])


def test_a_peer_is_stopped_like_by_hand(tmp_path: Path) -> None:
    """Guards the minutes of a peer: they count from the start of its training, and end so that it can still save."""
    contenders = load("quality_contenders")
    program = tmp_path / "peer.py"
    program.write_text(
        "import time\nprint('ready', flush=True)\ntime.sleep(0.2)\nprint('EPOCH 1', flush=True)\n"
        f"try:\n    time.sleep({HANG})\nexcept KeyboardInterrupt:\n    print('saved', flush=True)\n",
        encoding="utf-8",
    )
    lines = list(
        contenders.output_lines([sys.executable, program], tmp_path / "peer", tmp_path, stop_after=("EPOCH 1", 0.3))
    )
    assert [line for line, _ in lines] == ["ready\n", "EPOCH 1\n", "saved\n"]
    assert lines[2][1] - lines[1][1] > 0.25
    assert (tmp_path / "peer.log").read_text(encoding="utf-8") == "ready\nEPOCH 1\nsaved\n"
    program.write_text("raise SystemExit(3)", encoding="utf-8")
    with pytest.raises(SystemExit, match="ended with 3"):
        list(contenders.output_lines([sys.executable, program], tmp_path / "peer", tmp_path))


@pytest.mark.parametrize("name", ["recipes", "speedrun", "quality"])
def test_a_config_without_bleu_is_refused_before_training(name: str, file: Path, tmp_path: Path) -> None:
    """Guards against hours of training without a score."""
    text = file.read_text(encoding="utf-8").replace("source_lang: en", "source_lang: null")
    text = text.replace("shared: false", "shared: true").replace("encoder-decoder", "decoder-only")
    file.write_text(text, encoding="utf-8")
    refused = run(name, "--config", file, "--work", tmp_path / "work")
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
def test_a_wrong_setting_is_refused_before_training(name: str, given: list[object], file: Path, tmp_path: Path) -> None:
    """Guards against a traceback, and against a mistake in settings of the students that shows after hours."""
    refused = run(name, "--config", file, "--work", tmp_path / "work", *given)
    assert refused.returncode == 2
    assert "model.heads" in refused.stderr
    assert "n_heads" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "work").exists()


@pytest.mark.slow
def test_corpus_size_runs(tmp_path: Path) -> None:
    """Guards against a benchmark that no longer runs, or that measures the preparation of other text."""
    for _ in range(2):  # the second run uses the preparation of the first
        arguments = ["--sizes", 300, 900, "--seconds", 0.1, "--rounds", 1, "--work", tmp_path]
        done = run("corpus_size", *arguments)
        assert done.returncode == 0, done.stderr
        first, *lines = done.stdout.splitlines()
        assert first.split() == ["pairs", "300", "900"]
        assert [line[:12].strip() for line in lines] == list(load("corpus_size").ROWS)
    trained = preparation.load(tmp_path / "900" / "word" / "data").report.counts
    assert sum(count.read for count in trained.values()) == 900


def test_made_up_text_is_parallel(tmp_path: Path) -> None:
    """Guards the text of the benchmarks: as many pairs as asked for, no empty line, the same text each time."""
    common = load("common")
    for name in ("one", "two"):
        common.write_made_up_text(tmp_path / name, 500, 10_000)
    texts = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert texts["one.en"] == texts["two.en"]
    for language in ("en", "de"):
        lines = texts[f"one.{language}"].splitlines()
        assert len(lines) == 500
        assert min(len(line.split()) for line in lines) >= 3


def test_literals_are_counted(tmp_path: Path) -> None:
    """Guards a benchmark that counts what is not there, or no longer runs."""
    done = run("placeholders", untrained.run(tmp_path), "--count", 2)
    assert done.returncode == 0, done.stderr
    rows = {line[:14].strip(): line.split()[-3:] for line in done.stdout.splitlines()[1:]}
    placeholders = load("placeholders")
    assert set(rows) == {*placeholders.KINDS, "all but names", "without repair"}
    assert rows["web address"][0] == "100.0%", "repaired, because this model has learnt nothing"
    assert float(rows["without repair"][0].rstrip("%")) < 50
    assert placeholders.is_unharmed("%s", "Ho %s euro.")
    assert not any(placeholders.is_unharmed("%s", text) for text in ("Ho 5 euro.", "%s e %s", "%secco"))


def test_a_file_is_timed_beside_ctranslate2(tmp_path: Path) -> None:
    """Guards the two contenders: the program in a process of its own, and the library alone on the same sentences."""
    text = tmp_path / "text.en"
    text.write_text("".join(f"{source}\n" for source, _ in tiny_pairs(20)), encoding="utf-8")
    done = run("files", "--run", untrained.run(tmp_path), "--input", text, "--turns", 1, "--precisions", "int8")
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(
        r"int8: (\d+) sentences, translate.py ([\d.]+) s, CTranslate2 alone ([\d.]+) s, .*\n", done.stdout
    )
    assert found, done.stdout
    assert int(found[1]) >= 20
    assert float(found[2]) > 0


def test_the_cost_of_hiding_is_reckoned_from_both_speeds(tmp_path: Path) -> None:
    """Guards a benchmark that no longer runs, or reckons a cost that does not follow from the speeds it prints."""
    corpus = write_tsv(tmp_path / "pairs.tsv", tiny_pairs(300))
    settings = ["--data.train", corpus, "--data.source_lang", "en", "--data.target_lang", "it"]
    small = ["--model.d_model", 16, "--model.n_heads", 2, "--model.d_ff", 16, "--training.batch_tokens", 256]
    done = run("hiding", "--updates", 4, "--model.preset", "small", *settings, *small, "--training.placeholders", 1)
    assert done.returncode == 0, done.stderr
    plain, hidden = (float(each.replace(",", "")) for each in re.findall(r"([\d,]+) (?:as|with)", done.stdout))
    cost = float(re.search(r"in 100% of the batches, they cost (-?[\d.]+)%", done.stdout)[1])  # type: ignore[index]
    assert cost == pytest.approx(100 * (1 - hidden / plain), abs=0.2)


def test_augmented_text_is_the_corpus_and_more(tmp_path: Path) -> None:
    """Guards the comparison of augmentation with reading as typed: each pass has each pair, and most are unchanged."""
    pairs = tiny_pairs(200)
    for language, side in zip(("en", "it"), zip(*pairs, strict=True), strict=True):
        (tmp_path / f"train.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    arguments = ["--data", tmp_path / "train", "--languages", "en", "it", "--passes", 2, "--output", tmp_path / "more"]
    done = run("augmentation", "text", *arguments)
    assert done.returncode == 0, done.stderr
    sides = [(tmp_path / "more" / f"train.{language}").read_text(encoding="utf-8") for language in ("en", "it")]
    more = list(zip(*(side.splitlines() for side in sides), strict=True))
    assert len(more) == 400
    same = [new == old for new, old in zip(more, pairs + pairs, strict=True)]
    assert 0.6 < sum(same) / len(same) < 0.85
    assert more[:200] != more[200:], "each pass is drawn anew"
    assert any(a.isupper() and b.isupper() for a, b in more)
    done = run("augmentation", "table", untrained.run(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].startswith("| as it is |")


def test_a_part_of_the_gpu_benchmark_that_fails_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards the table of the one call on a GPU: a part that fails, hangs or is killed must not cost the other rows.

    The clock jumps to the end of a part that hangs, but not before it has started.
    """
    gpu = load("gpu")
    jumped = [0.0]
    monkeypatch.setattr(gpu, "time", SimpleNamespace(perf_counter=lambda: time.perf_counter() + jumped[0]))
    monkeypatch.setattr(gpu, "GRACE", 3.0)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    hang = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGINT, lambda *_: {on_interrupt}); "
        f"subprocess.Popen(['sleep', '{2 * HANG}'], stdout=open({str(fifo)!r}, 'w')); "
        f"print('on', flush=True); time.sleep({HANG})"
    )

    def program(code: str) -> Callable[..., Iterator[tuple[str, str]]]:
        def run(options: object, folder: Path, seconds: float) -> Iterator[tuple[str, str]]:
            for _, line in gpu.lines([sys.executable, "-c", code], seconds):
                yield "said", line
                if line == "on\n":
                    jumped[0] += seconds - gpu.GRACE
            yield "ended", "well"

        return run

    def terminate(*_: object) -> Iterator[tuple[str, str]]:
        yield "said", "a | b"
        os.kill(os.getpid(), signal.SIGTERM)
        yield "never", "this"

    parts = {  # with their shares of the time
        "broken": (10, program("print('one'); raise SystemExit(3)")),
        "hanging": (2, program(hang.replace("{on_interrupt}", "sys.exit('interrupted')"))),
        "deaf": (2, program(hang.replace("{on_interrupt}", "None"))),
        "good": (10, program("print('two')")),
        "killed": (1, terminate),
        "late": (1, program("print('three')")),
    }
    monkeypatch.setattr(gpu, "chosen_parts", lambda _: parts)
    monkeypatch.setattr("sys.argv", ["gpu.py", "--data", str(tmp_path), "--minutes", str(HANG)])
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        gpu.main()
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    found = [(part, what, re.sub(r"\d+ s", "N s", result)) for part, what, result in rows[2:]]
    assert found == [
        ("broken", "said", "one"),
        ("broken", "failed", "exit code 3; its last line: one"),
        ("hanging", "said", "on"),
        ("hanging", "said", "interrupted"),
        ("hanging", "failed", "stopped after N s; its last line: interrupted"),
        ("deaf", "said", "on"),
        ("deaf", "failed", "stopped after N s; its last line: on"),
        ("good", "said", "two"),
        ("good", "ended", "well"),
        ("killed", "said", "a / b"),
        ("all", "interrupted", "the parts after this row did not run"),
    ]
    assert select.select([reader], [], [], HANG)[0], "what a part started ends with it, and with it the fifo"
    os.close(reader)


@pytest.mark.slow
def test_the_gpu_benchmark_in_miniature(tmp_path: Path) -> None:
    """Guards the one call on a GPU against parts that no longer run, on a CPU and with tiny models."""
    common = load("common")
    for name, count in (("train", 400), ("val", 30), ("test_2016_flickr", 30)):
        common.write_made_up_text(tmp_path / name, count, 50)
    tiny = ["model.preset=null", "model.d_model=16", "tokenizer.min_frequency=1", "training.validate_every=10"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHDYNAMO_DISABLE", "1")  # a compiler takes a minute
        done = run(
            "gpu", "--data", tmp_path, "--device", "cpu", "--shapes", "tiny", "--batches", 1, 2, "--batch_tokens", 200,
            "--seconds", 0.3, "--warm_up", 1, "--minutes", 5, "--quality_minutes", 0.05, "--bleu", 0,
            *(f"--setting=--{setting}" for setting in tiny),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    assert not [row for row in rows if "failed" in row[1:]], done.stderr
    found = {(part, what): result for part, what, result in rows}
    assert re.match(r"\d+ (passed|skipped)", found["tests", "pytest -m gpu"])
    for name in ("ours", "ours, compiled", "nn.Transformer with our batches", "nn.Transformer, tutorial, float32"):
        rate, share = re.findall(r"([\d.,]+)(?: target tokens/s|%)", found["training, tiny", name])
        assert float(rate.replace(",", "")) > 0
        assert 0 <= float(share) < 100
    assert float(found["auto", "tiny, the last updates"].split()[0].replace(",", "")) > 0
    for name in ("model float32", "ours float32"):
        assert float(found["decoding", f"tiny, batch 2, {name}"].split()[0].replace(",", "")) > 0
    assert re.match(r"after \d+ s", found["quality", "validation BLEU of 0"])
    assert any(what.startswith("BLEU, 0.1 minutes") for part, what in found if part == "quality")
