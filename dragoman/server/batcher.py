"""What arrives while a batch is being translated is translated together, as the next batch.

    batcher = Batcher(translator)
    answers = batcher.submit(Order(["Where is the station?"], n_best=3))   # a future
    answers.result()[0].translation.text
    batcher.close()

A `Translator` does one thing at a time, and does fifty sentences in far less than fifty times the time of one. So one
thread translates, and takes each time all that waits: nobody waits for a batch to fill, and batches are as large as the
crowd is. Nothing here knows about HTTP.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from dragoman.signals import Stopped
from dragoman.translation.request import Request
from dragoman.translation.results import Translation
from dragoman.translation.translator import Translator

BATCH_CHARACTERS = 50_000  # after so many the others wait, lest a crowd wait for the longest text of all


@dataclass(frozen=True)
class Order:
    """Texts, and how they are to be translated."""

    texts: Sequence[str | Request]
    n_best: int | None = None  # None: as the translator is set
    beam_size: int | None = None  # likewise; it is at least n_best


@dataclass(frozen=True)
class Answer:
    """A text's translation."""

    translation: Translation
    warnings: list[str]  # what `Translator.warnings` says of this text
    weights: list[list[Tensor]]  # of each sentence's candidates: see `Translator.alignments`


class Full(Exception):  # noqa: N818  (no error of the program's: it has enough to do)
    """More is waiting than may wait."""


Job = tuple[Order, Future[list[Answer]]]


class Batcher:
    """A thread that translates, and what waits for it."""

    def __init__(self, translator: Translator, most_waiting: int = 200) -> None:
        self.translator = translator
        self.most_waiting = most_waiting
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="translating")
        self._thread.start()

    def submit(self, order: Order) -> Future[list[Answer]]:
        """The answers to come, one for each text. Who no longer waits for them cancels the future.

        It raises DataError for a text that cannot be translated. Raises Full if too many orders wait.
        """
        future: Future[list[Answer]] = Future()
        with self._changed:
            if self._closed or len(self._waiting) >= self.most_waiting:
                # Those who went away in the meantime must not keep others out.
                self._waiting = deque(job for job in self._waiting if not job[1].cancelled())
            if self._closed or len(self._waiting) >= self.most_waiting:
                raise Full
            self._waiting.append((order, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """End the thread; what it has not translated by now is cancelled."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    # ---------------------------------------------------------------------------------------------------- the thread

    def _work(self) -> None:
        while jobs := self._next_jobs():
            groups: dict[tuple[int, int], list[Job]] = {}
            for job in jobs:
                groups.setdefault(self._search_of(job[0]), []).append(job)
            for group in groups.values():
                self._attempt(group)
        for _, future in self._waiting:
            future.cancel()

    def _next_jobs(self) -> list[Job]:
        """All that waits, or as much of it as makes a batch; nothing at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            jobs: list[Job] = []
            characters = 0
            while self._waiting and not self._closed and characters < BATCH_CHARACTERS:
                jobs.append(self._waiting.popleft())
                characters += sum(len(each if isinstance(each, str) else each.text) for each in jobs[-1][0].texts)
            return jobs

    def _search_of(self, order: Order) -> tuple[int, int]:
        """n_best and beam_size that come nearest to what an order asks for and fit the model and its other settings."""
        decoding = self.translator.config.decoding
        n_best = order.n_best or decoding.n_best
        if self.translator.config.model.architecture == "encoder-only":  # it writes all words at once
            return 1, 1
        if decoding.sample:
            return n_best, 1
        groups = decoding.diversity_groups
        wanted = max(order.beam_size or decoding.beam_size, n_best)
        return n_best, -(-wanted // groups) * groups

    def _attempt(self, jobs: list[Job]) -> None:
        """Translate jobs together. If that fails, each by itself, so that one bad text is the trouble of one alone."""
        jobs = [job for job in jobs if not job[1].cancelled()]
        try:
            answers = iter(self._translate(jobs))
            for order, future in jobs:
                with suppress(InvalidStateError):  # cancelled in the meantime
                    future.set_result(list(islice(answers, len(order.texts))))
        except Stopped:
            for _, future in jobs:
                future.cancel()
        except Exception as error:  # a fault here must not end the thread, for which everybody waits
            if len(jobs) > 1:
                for job in jobs:
                    self._attempt([job])
            else:
                with suppress(InvalidStateError):
                    jobs[0][1].set_exception(error)

    def _translate(self, jobs: list[Job]) -> list[Answer]:
        """The answers to jobs of one search. Raises Stopped, now and then, once nobody waits for any of them."""

        def poll(_: int = 0) -> None:
            if self._closed or all(future.cancelled() for _, future in jobs):
                raise Stopped

        poll()
        n_best, beam_size = self._search_of(jobs[0][0])
        translator = self.translator.with_decoding(n_best=n_best, beam_size=beam_size)
        texts = [text for order, _ in jobs for text in order.texts]
        translations = translator.explain(texts, first=0, advance=poll)
        warnings = by_text(translator.warnings, len(texts))
        poll()
        pairs = [(sentence, each) for one in translations for sentence in one.sentences for each in sentence.candidates]
        weights = iter(translator.alignments(pairs))
        return [
            Answer(one, said, [list(islice(weights, len(sentence.candidates))) for sentence in one.sentences])
            for one, said in zip(translations, warnings, strict=True)
        ]


def by_text(warnings: Sequence[str], count: int) -> list[list[str]]:
    """The warnings of a translator that begins to count at 0, "text 3: ...", for each of so many texts."""
    found: list[list[str]] = [[] for _ in range(count)]
    for warning in warnings:
        number, _, message = warning.partition(": ")
        found[int(number.removeprefix("text "))].append(message)
    return found
