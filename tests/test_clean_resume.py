"""A cleaning that was killed continues, and ends with the same bytes as one that was not."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import in_child, write_tsv
from dragoman.command_line import parse_clean
from dragoman.corpora import language_id
from dragoman.corpora.prepared_files import GrowingFiles
from dragoman.filtering import clean, workers
from dragoman.filtering.duplicates import Repeats
from dragoman.filtering.judge import Judge
from dragoman.filtering.model_scores import Score, dual_score
from faults.harness import Fault, die, die_at_call, nothing, wrap
from test_cleaning import folder_bytes, soiled

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")
Pair = tuple[str, str]
KILLED = -signal.SIGKILL
CORPUS = "pairs.tsv"
SCORED = ("--forward", "runs/a", "--backward", "runs/b", "--share", "0.8")
Whole = tuple[dict[str, bytes], Counter[str]]


class MadeScorer:
    """Scores that depend on the texts and on their block, like the last digits of a model's scores."""

    def identity(self) -> list[str]:
        return ["made"]

    def score(self, pairs: Sequence[Pair]) -> list[Score]:
        found = []
        for source, target in pairs:
            forward = sum(map(ord, source)) % 97 / 50 + sum(map(len, pairs[0])) * 1e-9
            backward = float("inf") if len(target) % 29 == 0 else len(target) % 11 / 7
            found.append(Score(dual_score(forward, backward), forward, backward))
        return found


@pytest.fixture(autouse=True, scope="module")
def _small_steps() -> Iterator[None]:
    """Save after every 200 pairs that are judged and 100 that are scored, without waiting for the disk."""
    language_id.knows("en")  # its model is unpacked here once, not in each child
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path.cwd())  # `dirty_options` leaves it; other tests find it as it was
        patch.setattr(os, "fsync", lambda descriptor: None)
        for module in (clean, workers):
            patch.setattr(module, "CHUNK", 100)
        patch.setattr(clean, "SAVED_EVERY", 2)
        patch.setattr(clean, "BLOCK", 100)
        patch.setattr(clean.Scorer, "load", lambda *_: MadeScorer())
        yield


@pytest.fixture(scope="module")
def whole(_small_steps: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], Counter[str]]:
    """The files of an uninterrupted cleaning, and the amount of its work."""
    parsed = dirty_options(tmp_path_factory.mktemp("whole"), "clean")
    code, work = run(parsed)
    assert code == 0
    files = folder_bytes(parsed.output)
    assert set(files) == {"train.tsv", "dropped.tsv", "scores.tsv", "cleaning.json", "report.html", ".lock"}
    assert json.loads(files["cleaning.json"])["corpus"] == CORPUS
    return files, work


def dirty_options(folder: Path, output: str, *words: str) -> argparse.Namespace:
    """Options that clean 800 pairs and their dirt, and score the rest, into this folder."""
    os.chdir(folder)  # cleaning.json names the corpus as the command does
    pairs = [pair for _, pair in soiled(800)]
    pairs[5:5] = [("a\rb 12", "c 34"), ("", "")]
    table = write_tsv(Path(CORPUS), [("en", "de"), *pairs])
    table.write_bytes(table.read_bytes().replace(b"\n", b"\ngr\xfc\xdfe\tgr\xfc\xdfe\n", 1))
    settings = ("--data.train", CORPUS, "--data.source_lang", "en", "--data.target_lang", "de", "--processes", "1")
    return parse_clean([*settings, "--output", str(folder / output), *(words or SCORED)])


def run(parsed: argparse.Namespace, fault: Fault = nothing) -> tuple[int, Counter[str]]:
    """Clean in another process: how it ended, and how many chunks it judged and blocks it scored."""
    log = parsed.output.with_suffix(".log")
    log.write_text("")

    def note(kind: str) -> None:
        with open(log, "a") as file:
            file.write(f"{kind}\n")

    def work() -> None:
        fault()
        wrap(Judge, "judge", lambda _: note("judged"))()
        wrap(MadeScorer, "score", lambda _: note("scored"))()
        clean.clean_corpus(parsed)

    return in_child(work), Counter(log.read_text().split())


def at(owner: Any, name: str, number: int) -> Fault:
    """Die before this call of owner.name."""
    return wrap(owner, name, lambda call: die() if call == number else None)


def at_rename(name: str) -> Fault:
    """Die before a file gets its name."""
    return wrap(os, "replace", lambda _: die(), lambda _, to: Path(to).name == name)


@pytest.mark.parametrize(
    ("fault", "judged", "scored"),
    [
        (at(Judge, "judge", 2), 0, 0),
        (at(Judge, "judge", 6), 4, 0),
        (at(Repeats, "mark", 9), 8, 0),
        (at(GrowingFiles, "append", 3), 4, 0),
        (at(MadeScorer, "score", 1), 9, 0),
        (at(MadeScorer, "score", 4), 9, 3),
        (at(clean, "chosen", 1), 9, 6),
        (at(clean, "render", 1), 9, 6),
        (at_rename("dropped.tsv"), 9, 6),
        (at_rename("cleaning.json"), 9, 6),
        (at_rename("train.tsv"), 9, 6),
    ],
)  # fmt: skip
def test_killed_cleaning_continues_to_the_same_bytes(
    tmp_path: Path, whole: Whole, fault: Fault, judged: int, scored: int
) -> None:
    """Guards rows that are lost, written twice or without their repetitions, and work that is done again."""
    files, all_work = whole
    parsed = dirty_options(tmp_path, "clean")
    assert run(parsed, fault)[0] == KILLED
    assert not (parsed.output / "train.tsv").exists()
    code, work = run(parsed)
    assert code == 0
    assert folder_bytes(parsed.output) == files
    assert all_work - work == +Counter(judged=judged, scored=scored)


def test_cleaning_that_is_killed_again_and_again_ends(tmp_path: Path, whole: Whole) -> None:
    """Guards a second resume, after data and sizes that the first one wrote."""
    parsed = dirty_options(tmp_path, "clean")
    deaths = [at(Judge, "judge", 4), at(Judge, "judge", 4), at(MadeScorer, "score", 2), at(MadeScorer, "score", 3)]
    assert [run(parsed, fault)[0] for fault in deaths] == [KILLED] * 4
    assert run(parsed) == (0, Counter(scored=whole[1]["scored"] - 3))
    assert folder_bytes(parsed.output) == whole[0]


@pytest.mark.parametrize("change", ["corpus", "keep", "setting"])
def test_other_work_starts_over_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], whole: Whole, change: str
) -> None:
    """Guards against tables in which one part was cleaned by other rules than the rest."""
    parsed = dirty_options(tmp_path, "clean")
    assert run(parsed, at(Judge, "judge", 6))[0] == KILLED
    words: tuple[str, ...] = SCORED
    match change:
        case "corpus":
            table = Path(CORPUS).read_bytes()
            Path(CORPUS).write_bytes(table[: table.rindex(b".")] + b"!\n")
        case "keep":
            words += ("--keep", "numbers")
        case _:
            words += ("--data.lowercase", "true")
    changed = parsed if change == "corpus" else dirty_options(tmp_path, "clean", *words)
    code, work = run(changed)
    assert (code, work["judged"]) == (0, whole[1]["judged"])
    assert "starting over" in capfd.readouterr().err
    fresh = parsed if change == "corpus" else dirty_options(tmp_path, "fresh", *words)
    fresh.output = tmp_path / "fresh"
    assert run(fresh)[0] == 0
    assert folder_bytes(changed.output) == folder_bytes(fresh.output)
    assert folder_bytes(changed.output) != whole[0]


def test_share_and_processes_may_change(tmp_path: Path, whole: Whole) -> None:
    """Guards against scoring again for another --share, and against a resume that needs the same number of cores."""
    other = (*SCORED[:4], "--threshold", "0.3")
    fresh = dirty_options(tmp_path, "fresh", *other)
    assert run(fresh)[0] == 0
    for fault, processes in ((at(clean, "render", 1), 1), (at(Judge, "judge", 6), 2)):
        assert run(dirty_options(tmp_path, str(processes)), fault)[0] == KILLED
        again = dirty_options(tmp_path, str(processes), *other)
        again.processes = processes
        code, work = run(again)
        assert code == work["judged"] == 0  # or another process has judged
        assert folder_bytes(again.output) == folder_bytes(fresh.output) != whole[0]


@pytest.mark.slow
def test_kill_at_every_change_of_the_disk(tmp_path: Path, whole: Whole) -> None:
    """Guards the order of all writes and renames."""
    for call in range(1, 1000):
        parsed = dirty_options(tmp_path, str(call))
        code, _ = run(parsed, partial(die_at_call, call))
        assert code in (0, KILLED)
        assert run(parsed)[0] == 0
        assert folder_bytes(parsed.output) == whole[0], call
        shutil.rmtree(parsed.output)
        if code == 0:
            assert call > 50
            return
    raise AssertionError
