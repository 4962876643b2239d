"""`dragoman prepare`: the same files for any number of processes and ranks, resumed after a kill, found by training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conftest import HANG, ROOT, tiny_pairs, write_tsv
from dragoman import config_file, prepare, train
from dragoman.command_line import parse_prepare, read_settings
from dragoman.corpora import preparation, splitting
from dragoman.corpora.crew import Crew
from dragoman.corpora.preparation import prepare_data, prepared_preset
from dragoman.errors import TooLargeError
from dragoman.processes import STORE
from dragoman.settings import Config
from dragoman.text.conventions import ConventionCounts, Conventions
from dragoman.training import starting
from test_preparation import CORPORA, files, quiet

Make = Callable[..., Config]


def words(folder: Path, **more: str) -> list[str]:
    """The command line of a run on 300 tiny pairs."""
    corpus = folder / "pairs.tsv"
    if not corpus.exists():
        write_tsv(corpus, tiny_pairs(300))
    settings = {
        "data.train": corpus, "data.source_lang": "en", "data.target_lang": "it", "run.dir": folder / "runs",
        "run.name": "tiny", "model.preset": "tiny", "training.device": "cpu", "training.max_steps": "1", **more,
    }  # fmt: skip
    return [f"--{key}={value}" for key, value in settings.items()]


def test_counts_of_parts_are_those_of_the_whole() -> None:
    """Guards against another usual mark, another spelling or another order where equally frequent ones meet."""
    lines = [source for source, _ in tiny_pairs(500)]
    lines += ["Where? Here!", "the cat's l’amico", "&quot;No&quot; , he said .", "", "42", "Ist's gut? Ja, ist's."] * 3
    lines[100:100] = ["What a day!", "What a day.", "B. is Anna's?", "…?!"]
    whole = Conventions.of(lines, "en")
    for size in (1, 7, 100):
        counts = ConventionCounts()
        for start in range(0, len(lines), size):
            part = ConventionCounts.of(lines[start : start + size], "en")
            counts.add(ConventionCounts.from_json(part.json))
        merged = counts.conventions("en")
        assert merged == whole
        assert [*merged.openings.items()] == [*whole.openings.items()]
        assert [*merged.inside] == [*whole.inside]


def test_two_processes_make_the_same_files(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against shards that are missing, doubled or in another order, counts that are not merged, and settings
    that do not reach the other processes."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    large = write_tsv(tmp_path / "large.tsv", tiny_pairs(splitting.PORTION + 500))
    configs = {name: make(tiny) for name, make in CORPORA.items()} | {
        "shards": tiny(data__train=large, tokenizer__kind="bpe", tokenizer__vocab_size=300, tokenizer__shared=True)
    }
    with Crew(2) as crew:
        for name, config in configs.items():
            alone = prepare_data(config, tmp_path / name / "data", quiet)
            both = prepare_data(config, tmp_path / name / "both", quiet, crew=crew)
            assert files(tmp_path / name / "both") == files(tmp_path / name / "data")
            assert both.fingerprint == alone.fingerprint
        assert sorted(path.name for path in (tmp_path / "shards").iterdir()) == ["both", "data"]
        with pytest.raises(TooLargeError, match="fewer --processes"):
            crew.map(os._exit, [9])


def as_rank(rank: int, folder: Path, store: Path, options: list[str]) -> int:
    """Start one of two ranks with a different number of processes; return its pid."""
    child = os.fork()
    if child == 0:
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, STORE: store}
        os.environ.update({name: str(value) for name, value in names.items()})
        code = 9
        signal.alarm(HANG)
        try:
            prepare.main(parse_prepare([*words(folder), *options]))
            code = 0
        finally:
            os._exit(code)
    return child


def test_two_ranks_make_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a rank that prepares everything, and one that reads what another has not yet written."""
    monkeypatch.setattr(splitting, "PORTION", 40)
    prepare_data(read_settings(words(tmp_path)), tmp_path / "alone", quiet)
    children = [as_rank(rank, tmp_path, tmp_path / "store", ["--processes=1"]) for rank in (0, 1)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    assert files(tmp_path / "runs/tiny/data") == files(tmp_path / "alone")
    assert not (tmp_path / "runs/tiny/.data.tmp").exists()


def test_training_starts_on_prepared_data(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against data that training prepares a second time."""
    prepare.prepare(tiny(), 1, None)
    monkeypatch.setattr(preparation._Preparation, "run", lambda *_: pytest.fail("the data are prepared again"))
    prepare.prepare(tiny(), 1, None)  # a second time changes nothing
    assert train.main(tiny(training__max_steps=1, data__bleu_tokenize="none")) == 0


def test_preset_of_the_preparation_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards against hours of preparation that another machine throws away, since it would choose another preset."""
    automatic = words(tmp_path, **{"model.preset": "auto"})
    auto = read_settings(automatic)
    assert auto.model.preset == "auto"
    assert prepared_preset(auto) is None
    prepare.main(parse_prepare([*words(tmp_path, **{"model.preset": "big"}), "--processes=1"]))
    assert config_file.load(tmp_path / "runs/tiny/config.yaml").model.preset == "big"
    assert prepared_preset(auto) == "big"
    chosen = starting.with_preset(auto, torch.device("cpu"), prepared=prepared_preset(auto))
    assert chosen.tokenizer.vocab_size == 16000
    assert "-> big, for which the data are prepared" in capsys.readouterr().out
    write_tsv(tmp_path / "pairs.tsv", tiny_pairs(400))
    assert prepared_preset(auto) is None
    prepare.main(parse_prepare([*automatic, "--processes=1"]))  # prepared again, for the preset of these data
    assert prepared_preset(auto) == "tiny"


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dragoman", "prepare", *words(folder), *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.faults
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system does not list child processes")
def test_killed_processes_leave_what_they_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against finished shards that are done again, and processes that outlive the command."""
    write_tsv(tmp_path / "pairs.tsv", tiny_pairs(40_000))
    running = started(tmp_path, "--processes=2")
    ids, ended = tmp_path / "runs/tiny/.data.tmp/ids", time.monotonic() + HANG
    while not list(ids.glob("[0-9]*.npz")):
        assert running.poll() is None
        assert time.monotonic() < ended
        time.sleep(0.01)
    workers = children_of(running.pid)
    assert len(workers) >= 2
    running.kill()
    running.wait()
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < ended
        time.sleep(0.01)
    finished = len(list(ids.glob("[0-9]*.npz")))
    assert 0 < finished < 4
    done: list[int] = []
    encode = preparation._encode_shard
    monkeypatch.setattr(preparation, "_encode_shard", lambda *given: (done.append(1), encode(*given))[1])
    monkeypatch.setattr(preparation.CleanedCorpus, "read_share", lambda *_, **__: pytest.fail("the text is read again"))
    monkeypatch.setattr(preparation, "train_tokenizer", lambda *_: pytest.fail("tokenizers are trained again"))
    config = read_settings(words(tmp_path))
    prepare_data(config, tmp_path / "runs/tiny/data", quiet)
    assert len(done) == 4 - finished
    monkeypatch.undo()
    prepare_data(config, tmp_path / "undisturbed", quiet)
    assert files(tmp_path / "runs/tiny/data") == files(tmp_path / "undisturbed")


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_command_at_once(tmp_path: Path, number: signal.Signals) -> None:
    """Guards against processes that work on after Ctrl-C."""
    write_tsv(tmp_path / "pairs.tsv", tiny_pairs(40_000))
    running = started(tmp_path, "--processes=2")
    assert running.stdout is not None
    while "reading" not in running.stdout.readline():
        assert running.poll() is None
    running.send_signal(number)
    assert running.wait() == -number
    running.stdout.read()  # to its end: no other process holds it
    assert not (tmp_path / "runs/tiny/data").exists()
