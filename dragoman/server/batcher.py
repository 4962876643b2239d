"""Translate the texts of many clients in batches, on one thread.

    batcher = Batcher(translator)
    results = batcher.submit(Job(["Where is the station?"], n_best=3))     # a future
    results.result()[0].translation.text
    batcher.close()

A `Translator` runs one search at a time, and a batch of fifty sentences takes far less than fifty times as long as one.
So one thread translates everything that has arrived since its last batch. No job waits for a batch to fill, and batches
grow with the load. Nothing here knows about HTTP.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from dragoman.server import limits
from dragoman.signals import Stopped
from dragoman.translation.request import Request
from dragoman.translation.results import Translation
from dragoman.translation.translator import Translator


@dataclass(frozen=True)
class TextResult:
    """The translation of one text of a job."""

    translation: Translation
    # For each sentence and candidate, (T, S) as from `Translator.alignments`; None if the job does not ask for them.
    weights: list[list[np.ndarray]] | None = None


@dataclass(frozen=True)
class Job:
    """Texts to translate together with the same search settings, and the future of their results."""

    texts: Sequence[str | Request]
    n_best: int | None = None  # None: the translator's setting
    beam_size: int | None = None  # None: the translator's setting; raised to n_best if smaller
    weights: bool = False  # whether to return the weights, and the log-probabilities of all tokens
    results: Future[list[TextResult]] = field(default_factory=Future, compare=False, repr=False)


class QueueFull(Exception):  # noqa: N818  (not a mistake: the server is busy)
    """Too many jobs are waiting."""


class Batcher:
    """The translating thread and its queue of jobs."""

    def __init__(self, translator: Translator, max_waiting: int = limits.MAX_WAITING) -> None:
        self.translator = translator
        self.max_waiting = max_waiting
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="translating")
        self._thread.start()

    def submit(self, job: Job) -> Future[list[TextResult]]:
        """Queue a job and return the future of its results, one per text. Cancel the future to withdraw the job.

        The future raises DataError for a text that cannot be translated. Raises QueueFull.
        """
        with self._changed:
            if self._closed or len(self._queue) >= self.max_waiting:
                self._queue = deque(job for job in self._queue if not job.results.cancelled())
            if self._closed or len(self._queue) >= self.max_waiting:
                raise QueueFull
            self._queue.append(job)
            self._changed.notify()
        return job.results

    def close(self) -> None:
        """Stop the thread, and cancel all jobs that are not finished."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def search_settings(self, job: Job) -> tuple[int, int]:
        """The n_best and beam_size closest to the job's wishes that the model and its other settings allow."""
        decoding = self.translator.config.decoding
        n_best = job.n_best or decoding.n_best
        if self.translator.config.model.architecture == "encoder-only":  # it predicts all words at once
            return 1, 1
        if decoding.sample:
            return n_best, 1
        groups = decoding.diversity_groups
        wanted = max(job.beam_size or decoding.beam_size, n_best)
        return n_best, -(-wanted // groups) * groups

    def _run(self) -> None:
        """The thread: translate batches until the batcher is closed."""
        while jobs := self._next_jobs():
            groups: dict[tuple[int, int, bool], list[Job]] = {}
            for job in jobs:
                groups.setdefault((*self.search_settings(job), job.weights), []).append(job)
            for group in groups.values():
                self._finish(group)
        for job in self._queue:
            job.results.cancel()

    def _next_jobs(self) -> list[Job]:
        """Wait for jobs and take all of them, up to BATCH_CHARACTERS; none when the batcher is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            jobs: list[Job] = []
            characters = 0
            while self._queue and not self._closed and characters < limits.BATCH_CHARACTERS:
                jobs.append(self._queue.popleft())
                characters += sum(len(each if isinstance(each, str) else each.text) for each in jobs[-1].texts)
            return jobs

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
        except Exception as error:  # whatever it is, the thread must live on for the other jobs
            if len(jobs) > 1:
                for job in jobs:
                    self._finish([job])
            else:
                with suppress(InvalidStateError):
                    jobs[0].results.set_exception(error)

    def _translate(self, jobs: list[Job]) -> list[TextResult]:
        """Translate jobs that ask for the same. Raises Stopped when all of them are cancelled."""

        def stop_if_cancelled(_: int = 0) -> None:
            if self._closed or all(job.results.cancelled() for job in jobs):
                raise Stopped

        stop_if_cancelled()
        n_best, beam_size = self.search_settings(jobs[0])
        translator = self.translator.with_decoding(n_best=n_best, beam_size=beam_size)
        texts = [text for job in jobs for text in job.texts]
        translations = translator.explain(texts, first=0, advance=stop_if_cancelled)
        if not jobs[0].weights:
            return list(map(TextResult, translations))
        stop_if_cancelled()
        translations = translator.with_log_probs(translations)
        pairs = [(sentence, each) for one in translations for sentence in one.sentences for each in sentence.candidates]
        weights = iter(translator.alignments(pairs))
        return [
            TextResult(one, [list(islice(weights, len(sentence.candidates))) for sentence in one.sentences])
            for one in translations
        ]
