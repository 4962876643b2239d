"""Translate the texts of many clients in batches, on one thread.

    batcher = Batcher(translator)
    results = batcher.submit(Job(["Where is the station?"], n_best=3))     # a future
    results.result()[0].translation.text
    batcher.close()

A `Translator` runs one search at a time, and a batch of fifty sentences takes far less than fifty times as long as one.
So one thread translates everything that has arrived since its last batch. No job waits for a batch to fill, and batches
grow with the load.

A long job would keep all others waiting. So it is translated a part at a time: between two batches of short jobs goes
one part of one long job, and long jobs take turns. While short jobs keep coming, the thread rests after each part for
as long as the part took, so that most short jobs need not wait for one. Otherwise parts are larger, because larger ones
are done in less time. Nothing here knows about HTTP.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from dragoman.server import limits
from dragoman.server.limits import Limits
from dragoman.signals import Stopped
from dragoman.translation.request import Request
from dragoman.translation.results import Sentence, Translation
from dragoman.translation.translator import Translator


@dataclass(frozen=True)
class TextResult:
    """The translation of one text of a job."""

    translation: Translation
    # For each sentence and candidate, (T, S) as from `Translator.alignments`; None if the job does not ask for them.
    weights: list[list[np.ndarray]] | None = None


@dataclass(eq=False)
class Job:
    """Texts to translate together with the same search settings, and the future of their results."""

    texts: Sequence[str | Request]
    n_best: int | None = None  # None: the translator's setting
    beam_size: int | None = None  # None: the translator's setting; raised to n_best if smaller
    weights: bool = False  # whether to return the weights, and the log-probabilities of all tokens
    results: Future[list[TextResult]] = field(default_factory=Future)
    # Of a long job: each step translates a part, and the last one returns the results.
    parts: Iterator[None] = field(default_factory=lambda: iter(()))
    seconds: float = 0.0  # that a long job has been computed for


class QueueFull(Exception):  # noqa: N818  (not a mistake: the server is busy)
    """Too many jobs are waiting."""


class TooMuchWork(Exception):  # noqa: N818  (not a mistake of the server)
    """A job is more work than a job may be."""


class TookTooLong(Exception):  # noqa: N818  (not a mistake of the server)
    """A job has been computed for as many seconds as a job may take, and is not finished."""


class Batcher:
    """The translating thread and its queues of jobs."""

    def __init__(self, translator: Translator, budgets: Limits | None = None) -> None:
        self.translator = translator
        self.limits = budgets or Limits()
        self._short: deque[Job] = deque()
        self._long: deque[Job] = deque()
        self._under_way: list[Job] = []
        self._changed = threading.Condition()
        self._closed = False
        self._last_short = float("-inf")  # when the last short job was submitted
        self._rest_until = float("-inf")  # when the next part of a long job may be translated
        self._thread = threading.Thread(target=self._run, name="translating")
        self._thread.start()

    def submit(self, job: Job) -> Future[list[TextResult]]:
        """Queue a job and return the future of its results, one per text. Cancel the future to withdraw the job.

        The future raises DataError for a text that cannot be translated, and TookTooLong. Raises QueueFull and
        TooMuchWork.
        """
        work = limits.work(map(_text, job.texts), self.search_settings(job)[1], job.weights)
        if work > self.limits.max_work:
            raise TooMuchWork(f"{work:,}")
        with self._changed:
            if work > limits.SHORT_WORK:
                job.parts = self._translate_in_parts(job)
                queue, most = self._long, -(-self.limits.max_waiting // limits.LONG_SHARE)
            else:
                self._last_short = time.monotonic()
                queue, most = self._short, self.limits.max_waiting
            if sum(not waiting.results.cancelled() for waiting in queue) >= most or self._closed:
                raise QueueFull
            queue.append(job)
            self._changed.notify()
        return job.results

    def give_up(self) -> None:
        """Cancel all jobs that are not finished, and accept no more."""
        with self._changed:
            self._closed = True
            jobs = [*self._short, *self._long, *self._under_way]
            self._changed.notify()
        for job in jobs:
            job.results.cancel()

    def close(self) -> None:
        """Stop the thread, and cancel all jobs that are not finished."""
        self.give_up()
        self._thread.join()

    def search_settings(self, job: Job) -> tuple[int, int]:
        """The n_best and beam_size closest to the job's wishes that the model and its other settings allow."""
        decoding = self.translator.config.decoding
        n_best = job.n_best or decoding.n_best
        if self.translator.config.model.architecture == "encoder-only":  # it predicts all words at once
            return 1, 1
        if decoding.sample:
            return n_best, 1
        return n_best, max(job.beam_size or decoding.beam_size, n_best)

    def _run(self) -> None:
        """The thread: translate batches of short jobs, and parts of long ones, until the batcher is closed."""
        try:
            while self._wait():
                groups: dict[tuple[int, int, bool], list[Job]] = {}
                for job in self._next_jobs():
                    groups.setdefault((*self.search_settings(job), job.weights), []).append(job)
                for group in groups.values():
                    self._finish(group)
                self._advance_long_job()
        finally:  # however the thread ends, no client may wait for it
            self.give_up()

    def _wait(self) -> bool:
        """Wait until there is something to do; False when the batcher is closed."""
        with self._changed:
            self._under_way = []
            timeout = max(self._rest_until - time.monotonic(), 0) if self._long else None
            self._changed.wait_for(lambda: self._short or self._has_long_job() or self._closed, timeout)
            return not self._closed

    def _has_long_job(self) -> bool:
        return bool(self._long) and time.monotonic() >= self._rest_until

    def _is_quiet(self) -> bool:
        """Whether no short job has come lately."""
        return time.monotonic() - self._last_short > limits.QUIET

    def _next_jobs(self) -> list[Job]:
        """Take all short jobs, up to BATCH_CHARACTERS."""
        with self._changed:
            characters = 0
            while self._short and not self._closed and characters < limits.BATCH_CHARACTERS:
                self._under_way.append(self._short.popleft())
                characters += sum(len(_text(each)) for each in self._under_way[-1].texts)
            return list(self._under_way)

    def _finish(self, jobs: list[Job]) -> None:
        """Translate jobs together. If that fails, translate each alone, so that a bad text fails only its own job."""
        jobs = [job for job in jobs if not job.results.cancelled()]
        try:
            results = iter(self._translate(jobs))
            for job in jobs:
                with suppress(InvalidStateError):  # cancelled in the meantime
                    job.results.set_result(list(islice(results, len(job.texts))))
        except Stopped:
            for job in jobs:
                job.results.cancel()
        except BaseException as error:  # a panic in a library, too: other jobs need the thread
            if len(jobs) > 1:
                for job in jobs:
                    self._finish([job])
            else:
                _fail(jobs[0], error)

    def _advance_long_job(self) -> None:
        """Translate one part of the long job whose turn it is."""
        with self._changed:
            if not self._has_long_job() or self._closed:
                return
            job = self._long.popleft()
            self._under_way.append(job)
        if not job.results.cancelled():
            started = time.perf_counter()
            try:
                next(job.parts)
                seconds = time.perf_counter() - started
                self._rest_until = time.monotonic() + (0 if self._is_quiet() else seconds)
                job.seconds += seconds
                if job.seconds > self.limits.max_seconds:
                    raise TookTooLong
            except StopIteration as stop:
                with suppress(InvalidStateError):  # cancelled in the meantime
                    job.results.set_result(stop.value)
            except BaseException as error:  # as in _finish
                _fail(job, error)
            else:
                with self._changed:
                    self._long.append(job)
                return
        job.parts = iter(())
        trim_memory()

    def _translate(self, jobs: list[Job]) -> list[TextResult]:
        """Translate jobs that ask for the same. Raises Stopped when all of them are cancelled."""

        def stop_if_cancelled(_: int = 0) -> None:
            if self._closed or all(job.results.cancelled() for job in jobs):
                raise Stopped

        stop_if_cancelled()
        translator = self._translator_for(jobs[0])
        texts = [text for job in jobs for text in job.texts]
        translations = translator.explain(texts, first=0, advance=stop_if_cancelled)
        if not jobs[0].weights:
            return list(map(TextResult, translations))
        stop_if_cancelled()
        return _weighed(translations, [_weigh(translator, _sentences(translations))])

    def _translate_in_parts(self, job: Job) -> Generator[None, None, list[TextResult]]:
        """Translate a job, with a pause after each part."""
        translator = self._translator_for(job)
        slowdown = (4 + translator.config.decoding.beam_size) / 5  # a beam of 10 takes thrice as long as one of 1

        def tokens() -> int:
            return int(limits.PART_TOKENS * (limits.QUIET_FACTOR if self._is_quiet() else 1) / slowdown)

        translations = yield from translator.explain_in_parts(job.texts, tokens, first=0)
        if not job.weights:
            return list(map(TextResult, translations))
        weighed = []
        for part in _parts(_sentences(translations), tokens):
            yield
            weighed.append(_weigh(translator, part))
        return _weighed(translations, weighed)

    def _translator_for(self, job: Job) -> Translator:
        n_best, beam_size = self.search_settings(job)
        return self.translator.with_decoding(n_best=n_best, beam_size=beam_size)


def trim_memory() -> None:
    """Give freed memory back to the system, where the C library has a function for that: glibc keeps most of it."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _text(text: str | Request) -> str:
    return text if isinstance(text, str) else text.text


def _fail(job: Job, error: BaseException) -> None:
    """Let a job raise an error. One that is no Exception, such as a panic of Rust code, would end its caller."""
    if not isinstance(error, Exception):
        reason = RuntimeError(f"translating failed: {type(error).__name__}: {error}")
        reason.__cause__ = error
        error = reason
    with suppress(InvalidStateError):  # cancelled in the meantime
        job.results.set_exception(error)


Weighed = tuple[list[Sentence], list[np.ndarray]]  # sentences, and the weights of all their candidates


def _sentences(translations: Sequence[Translation]) -> list[Sentence]:
    return [sentence for translation in translations for sentence in translation.sentences]


def _parts(sentences: Sequence[Sentence], tokens: Callable[[], int]) -> Iterator[list[Sentence]]:
    """Split sentences into parts of about `tokens()` source tokens, counted for each candidate."""
    part: list[Sentence] = []
    for sentence in sentences:
        part.append(sentence)
        if sum(len(member.tokens) * len(member.candidates) for member in part) >= tokens():
            yield part
            part = []
    if part:
        yield part


def _weigh(translator: Translator, sentences: list[Sentence]) -> Weighed:
    """Sentences with the log-probabilities of all tokens, and the weights of their candidates."""
    [whole] = translator.with_log_probs([Translation("", "", sentences, [])])
    pairs = [(sentence, candidate) for sentence in whole.sentences for candidate in sentence.candidates]
    return whole.sentences, translator.alignments(pairs)


def _weighed(translations: Sequence[Translation], parts: Sequence[Weighed]) -> list[TextResult]:
    """The results of texts whose sentences went through `_weigh`, in parts."""
    sentences = iter([sentence for part, _ in parts for sentence in part])
    weights = iter([array for _, arrays in parts for array in arrays])
    results = []
    for translation in translations:
        own = list(islice(sentences, len(translation.sentences)))
        arrays = [list(islice(weights, len(sentence.candidates))) for sentence in own]
        results.append(TextResult(replace(translation, sentences=own), arrays))
    return results
