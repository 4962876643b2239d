"""Batches of what waits: together, each its own, and nobody's trouble is another's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing
from threading import Event
from typing import Any

import pytest

from dragoman.errors import DataError
from dragoman.server import batcher as batcher_module
from dragoman.server.batcher import Answer, Batcher, Full, Order, by_text
from dragoman.translation.translator import Translator
from echo import echo, reconfigured


class Gate:
    """What a translator is asked for, and a gate behind which it waits until it may."""

    def __init__(self) -> None:
        self.begun, self.go = Event(), Event()
        self.calls: list[tuple[int, list[str]]] = []  # the beam, the texts
        self.given_up = 0

    def explain(self, translator: Translator, texts: Sequence[str], **options: Any) -> Any:
        self.calls.append((translator.config.decoding.beam_size, list(texts)))
        self.begun.set()
        assert self.go.wait(60)
        try:
            return explain(translator, texts, **options)
        except batcher_module.Stopped:
            self.given_up += 1
            raise


explain = Translator.explain


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """All translators of the test wait at it."""
    made = Gate()
    monkeypatch.setattr(Translator, "explain", lambda *texts, **options: made.explain(*texts, **options))
    return made


def said(future: Future[list[Answer]]) -> list[str]:
    return [answer.translation.text for answer in future.result(60)]


def busy(batcher: Batcher, gate: Gate) -> Future[list[Answer]]:
    """A batcher that is at its first text."""
    first = batcher.submit(Order(["My name"]))
    assert gate.begun.wait(60)
    return first


def test_what_comes_meanwhile_goes_together(gate: Gate) -> None:
    """Guards the batch: one call a request would be as slow as if they stood in a queue."""
    with closing(Batcher(echo())) as batcher:
        first = busy(batcher, gate)
        texts = [["number"], ["live", "My live"], ["see"]]
        others = [batcher.submit(Order(each)) for each in texts]
        gate.go.set()
        assert said(first) == ["My name"]
        assert [said(each) for each in others] == texts
    assert gate.calls == [(1, ["My name"]), (1, ["number", "live", "My live", "see"])]


def test_other_settings_are_kept_apart(gate: Gate) -> None:
    """Guards an answer made by another's settings, and settings that would stay behind."""
    with closing(Batcher(echo())) as batcher:
        first = busy(batcher, gate)
        asked = [(None, None), (3, None), (None, 4), (2, 3), (None, None)]
        others = [batcher.submit(Order(["My name"], *each)) for each in asked]
        gate.go.set()
        found = [future.result(60)[0].translation.sentences[0].candidates for future in [first, *others]]
    assert [len(each) for each in found] == [1, 1, 3, 1, 2, 1]
    assert [beam for beam, _ in gate.calls[1:]] == [1, 3, 4, 3]
    assert len(gate.calls[1][1]) == 2


def test_one_bad_text_is_the_trouble_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the others of its batch, and the thread, without which nobody would get an answer any more."""
    gate = Gate()

    def picky(translator: Translator, texts: Sequence[str], **options: Any) -> Any:
        if "bad" in texts:
            raise DataError("this one cannot be")
        return gate.explain(translator, texts, **options)

    monkeypatch.setattr(Translator, "explain", picky)
    with closing(Batcher(echo())) as batcher:
        busy(batcher, gate)
        good, bad, fine = (batcher.submit(Order([text])) for text in ("number", "bad", "see"))
        gate.go.set()
        assert said(good) == ["number"]
        with pytest.raises(DataError, match="cannot be"):
            bad.result(60)
        assert said(fine) == ["see"]


def test_who_went_away_is_not_translated_for(gate: Gate) -> None:
    """Guards the time of those who are still there: before a batch begins, and in its midst."""
    with closing(Batcher(echo())) as batcher:
        first = busy(batcher, gate)
        left, stays = batcher.submit(Order(["number"])), batcher.submit(Order(["see"]))
        assert left.cancel()
        assert first.cancel()
        gate.go.set()
        assert said(stays) == ["see"]
    assert [texts for _, texts in gate.calls] == [["My name"], ["see"]]
    assert gate.given_up == 1


def test_no_more_wait_than_may(gate: Gate) -> None:
    """Guards memory and patience; who has gone away takes no place."""
    with closing(Batcher(echo(), most_waiting=2)) as batcher:
        busy(batcher, gate)
        left, stays = batcher.submit(Order(["number"])), batcher.submit(Order(["see"]))
        with pytest.raises(Full):
            batcher.submit(Order(["live"]))
        left.cancel()
        after = batcher.submit(Order(["live"]))
        gate.go.set()
        assert [said(stays), said(after)] == [["see"], ["live"]]


def test_a_crowd_does_not_wait_for_all_of_itself(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the size of a batch, at whose end all its answers come."""
    monkeypatch.setattr(batcher_module, "BATCH_CHARACTERS", 5)
    with closing(Batcher(echo())) as batcher:
        busy(batcher, gate)
        others = [batcher.submit(Order([text])) for text in ("see", "see", "number", "live")]
        gate.go.set()
        assert [said(each) for each in others] == [["see"], ["see"], ["number"], ["live"]]
    assert [texts for _, texts in gate.calls[1:]] == [["see", "see"], ["number"], ["live"]]


def test_the_end_leaves_nobody_waiting(gate: Gate) -> None:
    """Guards a program that should stop: its thread ends, and what waits is told."""
    batcher = Batcher(echo())
    first = busy(batcher, gate)
    waiting = batcher.submit(Order(["see"]))
    batcher._closed = True  # what close does first, before it waits for the thread, which waits for us
    gate.go.set()
    batcher.close()
    for future in (first, waiting):
        with pytest.raises(CancelledError):
            future.result(60)
    with pytest.raises(Full):
        batcher.submit(Order(["see"]))
    assert not batcher._thread.is_alive()


def test_warnings_and_weights_go_to_their_text() -> None:
    """Guards a warning told to the wrong person, and attention of another sentence."""
    texts = ["My name is Anna.", "see www.x.org! number", "", "live live live"]
    with closing(Batcher(echo("unknown=keep"))) as batcher:
        answers = batcher.submit(Order(texts)).result(60)
    assert [bool(answer.warnings) for answer in answers] == [False, True, False, False]
    assert answers[1].warnings == ["lost in translation: www.x.org."]
    for answer in answers:
        assert [len(each) for each in answer.weights] == [len(s.candidates) for s in answer.translation.sentences]
        for sentence, [weights] in zip(answer.translation.sentences, answer.weights, strict=True):
            assert weights.shape == (len(sentence.candidates[0].ids), len(sentence.ids))
    assert by_text(["text 1: a: text 0: b"], 2) == [[], ["a: text 0: b"]]


def encoder_only(translator: Translator) -> Translator:
    return reconfigured(translator, "--model.architecture", "encoder-only")


@pytest.mark.parametrize(
    ("settings", "change", "order", "expected"),
    [
        ([], None, Order([]), (1, 1)),
        ([], None, Order([], n_best=3, beam_size=2), (3, 3)),
        (["beam_size=4", "n_best=2"], None, Order([]), (2, 4)),
        (["beam_size=4"], None, Order([], beam_size=1), (1, 1)),
        (["sample=true"], None, Order([], n_best=3, beam_size=5), (3, 1)),
        (["beam_size=4", "diversity_groups=2"], None, Order([], n_best=3, beam_size=3), (3, 4)),
        ([], encoder_only, Order([], n_best=3, beam_size=3), (1, 1)),
    ],
)
def test_any_wish_has_a_search(
    settings: list[str], change: Callable[[Translator], Translator] | None, order: Order, expected: tuple[int, int]
) -> None:
    """Guards a request that is as the API describes it, and would break a rule between two settings."""
    translator = reconfigured(echo(), *(f"--decoding.{word}" for word in settings))
    if change:
        translator = change(translator)
    with closing(Batcher(translator)) as batcher:
        n_best, beam_size = batcher._search_of(order)
        translator.with_decoding(n_best=n_best, beam_size=beam_size)
    assert (n_best, beam_size) == expected
