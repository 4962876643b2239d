"""The batcher: jobs share batches, each gets its own results, and a failing job fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing
from itertools import count
from threading import Event
from typing import Any

import pytest

from conftest import HANG
from dragoman.errors import DataError
from dragoman.server import batcher as batcher_module
from dragoman.server import limits
from dragoman.server.batcher import Batcher, Job
from dragoman.server.limits import Limits, Refused
from dragoman.translation.pieces import Piece
from dragoman.translation.results import Translation
from dragoman.translation.translator import Translator
from echo import echo, reconfigured


class Gate:
    """Makes `Translator.translate_pieces` wait until the test lets it continue, and records its calls."""

    def __init__(self) -> None:
        self.started, self.open = Event(), Event()
        self.calls: list[tuple[int, list[str]]] = []  # (beam size, texts)

    def translate_pieces(self, translator: Translator, groups: Sequence[Sequence[Piece]]) -> Any:
        [pieces] = groups
        self.calls.append((translator.config.decoding.beam_size, [piece.text for piece in pieces]))
        self.started.set()
        assert self.open.wait(HANG)
        return translate_pieces(translator, groups)


translate_pieces = Translator.translate_pieces


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate for all translators of the test."""
    made = Gate()
    monkeypatch.setattr(Translator, "translate_pieces", lambda *arguments: made.translate_pieces(*arguments))
    return made


def texts_of(future: Future[list[Translation]]) -> list[str]:
    return [result.text for result in future.result(HANG)]


def keep_busy(batcher: Batcher, gate: Gate) -> Future[list[Translation]]:
    """Keep the batcher busy with a first job, until the gate opens."""
    first = batcher.submit(Job(["My name"]))
    assert gate.started.wait(HANG)
    return first


def test_jobs_that_arrive_during_a_batch_share_the_next_one(gate: Gate) -> None:
    """Guards throughput: one search per request would be as slow as no batching."""
    with closing(Batcher(echo())) as batcher:
        first = keep_busy(batcher, gate)
        texts = [["number"], ["live", "My live"], ["see"]]
        others = [batcher.submit(Job(each)) for each in texts]
        gate.open.set()
        assert texts_of(first) == ["My name"]
        assert [texts_of(each) for each in others] == texts
    assert gate.calls == [(1, ["My name"]), (1, ["number", "live", "My live", "see"])]


def test_jobs_with_different_settings_are_searched_separately(gate: Gate) -> None:
    """Guards against results made with another job's settings, and against settings that persist."""
    with closing(Batcher(echo())) as batcher:
        first = keep_busy(batcher, gate)
        asked = [(None, None), (3, None), (None, 4), (2, 3), (None, None)]
        others = [batcher.submit(Job(["My name"], *each)) for each in asked]
        gate.open.set()
        found = [future.result(HANG)[0].sentences[0].candidates for future in [first, *others]]
    assert [len(each) for each in found] == [1, 1, 3, 1, 2, 1]
    assert [beam for beam, _ in gate.calls[1:]] == [1, 3, 4, 3]
    assert len(gate.calls[1][1]) == 2


def test_cancelled_jobs_are_not_translated(gate: Gate) -> None:
    """A job can be cancelled before its batch starts and during it, so that other clients do not wait for it."""
    with closing(Batcher(echo())) as batcher:
        first = keep_busy(batcher, gate)
        cancelled, other = batcher.submit(Job(["number"])), batcher.submit(Job(["see"]))
        assert cancelled.cancel()
        assert first.cancel()
        gate.open.set()
        assert texts_of(other) == ["see"]
    assert [texts for _, texts in gate.calls] == [["My name"], ["see"]]


def test_a_full_queue_refuses_jobs(gate: Gate) -> None:
    """Guards memory and waiting times; cancelled jobs do not count."""
    with closing(Batcher(echo(), Limits(max_waiting=2))) as batcher:
        keep_busy(batcher, gate)
        cancelled, other = batcher.submit(Job(["number"])), batcher.submit(Job(["see"]))
        with pytest.raises(Refused, match="--max-waiting"):
            batcher.submit(Job(["live"]))
        cancelled.cancel()
        after = batcher.submit(Job(["live"]))
        gate.open.set()
        assert [texts_of(other), texts_of(after)] == [["see"], ["live"]]


def test_closing_cancels_all_jobs(gate: Gate) -> None:
    """Guards shutdown: the thread ends, and no client waits for ever."""
    batcher = Batcher(echo())
    first = keep_busy(batcher, gate)
    waiting = batcher.submit(Job(["see"]))
    batcher.give_up()  # close() does this, then waits for the thread, which here waits for the gate
    gate.open.set()
    batcher.close()
    for future in (first, waiting):
        with pytest.raises(CancelledError):
            future.result(HANG)
    with pytest.raises(Refused, match="--max-waiting"):
        batcher.submit(Job(["see"]))


class Panic(BaseException):
    """A panic of Rust code, which Python does not see as an Exception."""


@pytest.mark.parametrize("error", [DataError("untranslatable"), Panic("index out of bounds")])
def test_a_bad_text_fails_only_its_own_job(error: BaseException, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other jobs of the batch succeed, and the thread stays alive."""

    def picky(translator: Translator, groups: Sequence[Sequence[Piece]]) -> Any:
        if any(piece.text == "bad" for piece in groups[0]):
            raise error
        return gate.translate_pieces(translator, groups)

    monkeypatch.setattr(Translator, "translate_pieces", picky)
    with closing(Batcher(echo())) as batcher:
        keep_busy(batcher, gate)
        good, bad, fine = (batcher.submit(Job([text])) for text in ("number", "bad", "see"))
        long = batcher.submit(Job([LONG + "bad"]))
        gate.open.set()
        assert [texts_of(good), texts_of(fine)] == [["number"], ["see"]]
        for future in (bad, long):
            with pytest.raises((DataError, RuntimeError), match=str(error)):
                future.result(HANG)
        assert texts_of(batcher.submit(Job(["see"]))) == ["see"]


LONG = "My name is number\n" * 200


def test_long_jobs_wait_for_short_ones_and_take_turns(gate: Gate) -> None:
    """Short jobs do not wait for long ones, nor a long one for a longer one."""
    finished: list[str] = []
    with closing(Batcher(echo())) as batcher:
        keep_busy(batcher, gate)
        jobs = {"longest": Job([LONG * 3]), "long": Job([LONG]), "short": Job(["see"])}
        for name, job in jobs.items():
            batcher.submit(job).add_done_callback(lambda _, name=name: finished.append(name))
        gate.open.set()
        assert texts_of(jobs["longest"].results) == [LONG * 3]
    assert finished == ["short", "long", "longest"]


@pytest.mark.parametrize("weights", [False, True])
def test_parts_make_the_same_results_as_the_whole(weights: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against sentences, warnings or weights lost or doubled where a job is cut."""
    texts = ["My name is Anna.\n\nsee www.x.org! number", "", "live live live", LONG[:300], "word " * 90, "\n see \n"]
    found = []
    for most in (10**6, 0):
        monkeypatch.setattr(limits, "LONG_WORK", most)
        with closing(Batcher(echo("unknown=keep"))) as batcher:
            found.append(batcher.submit(Job(texts, weights=weights)).result(HANG))
    for whole, parts in zip(*found, strict=True):
        assert parts == whole
        for one, other in zip(parts.sentences, whole.sentences, strict=True):
            assert str(one.candidates[0].weights) == str(other.candidates[0].weights)
    assert any(result.warnings for result in found[0])


def test_a_job_has_a_budget_of_work() -> None:
    """Guards against small requests that take much work: lines of one letter, in a wide beam, with weights."""
    lines = "\n".join("a" * 2500)
    with closing(Batcher(echo())) as batcher, pytest.raises(Refused, match="1,100,000"):
        batcher.submit(Job([lines], 10, 10, weights=True))
    assert limits.estimated_work(["ab\n\n c"], 3, False) == 3 * (12 + 12)


def test_a_job_has_a_budget_of_seconds(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the other clients: what is left of a job is not computed."""
    clock = count()
    monkeypatch.setattr(batcher_module.time, "perf_counter", lambda: next(clock))
    gate.open.set()
    with closing(Batcher(echo(), Limits(max_seconds=2.5))) as batcher, pytest.raises(Refused, match="--max-seconds"):
        batcher.submit(Job([LONG * 2])).result(HANG)
    assert len(gate.calls) == 3


@pytest.mark.parametrize("cancelled", [False, True])
def test_memory_is_given_back_after_a_long_job(cancelled: bool, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of long jobs is returned to the system; the C library would keep it for ever."""
    trimmed = Event()
    monkeypatch.setattr(batcher_module, "trim_memory", trimmed.set)
    with closing(Batcher(echo())) as batcher:
        keep_busy(batcher, gate)
        long = batcher.submit(Job([LONG]))
        if cancelled:
            assert long.cancel()
        gate.open.set()
        assert trimmed.wait(HANG)


def test_warnings_and_weights_belong_to_their_text() -> None:
    """Guards against warnings sent to the wrong client, and weights of another sentence."""
    texts = ["My name is Anna.", "see www.x.org! number", "", "live live live"]
    with closing(Batcher(echo("unknown=keep"))) as batcher:
        results = batcher.submit(Job(texts, weights=True)).result(HANG)
    assert [bool(result.warnings) for result in results] == [False, True, False, False]
    assert results[1].warnings == [
        "the model is unsure about 'see www.x.org!': the training text does not have www, x, org.",
        "lost in translation: www.x.org.",
    ]
    for sentence in (sentence for result in results for sentence in result.sentences):
        [candidate] = sentence.candidates
        assert candidate.weights is not None
        assert candidate.weights.shape == (len(candidate.ids), len(sentence.ids))


def encoder_only(translator: Translator) -> Translator:
    return reconfigured(translator, "--model.architecture", "encoder-only")


@pytest.mark.parametrize(
    ("settings", "change", "job", "expected"),
    [
        ([], None, Job([]), (1, 1)),
        ([], None, Job([], n_best=3, beam_size=2), (3, 3)),
        (["beam_size=4", "n_best=2"], None, Job([]), (2, 4)),
        (["beam_size=4"], None, Job([], beam_size=1), (1, 1)),
        (["sample=true"], None, Job([], n_best=3, beam_size=5), (3, 1)),
        ([], encoder_only, Job([], n_best=3, beam_size=3), (1, 1)),
    ],
)
def test_every_valid_request_has_search_settings(
    settings: list[str], change: Callable[[Translator], Translator] | None, job: Job, expected: tuple[int, int]
) -> None:
    """Guards requests that are valid by the API's schema but break a rule between two settings."""
    translator = echo()
    translator = reconfigured(translator, *(f"--decoding.{word}" for word in settings))
    if change:
        translator = change(translator)
    with closing(Batcher(translator)) as batcher:
        n_best, beam_size = batcher.search_settings(job)
        translator.with_decoding(n_best=n_best, beam_size=beam_size)
    assert (n_best, beam_size) == expected
