"""Translate the texts of many clients in batches, on one thread.

    batcher = Batcher(translator)
    results = batcher.submit(Job(["Where is the station?"], n_best=3))     # a future
    results.result()[0].text
    batcher.close()

A `Translator` runs one search at a time, and a batch of fifty sentences takes far less than fifty times as long as one.
So one thread translates in rounds: each round is one search for all jobs that wait with the same settings.

A long job would keep all others waiting. So short jobs come first, and a round of long jobs takes few tokens, from the
job that has been computed for the shortest time. While short jobs keep coming, the thread rests after such a round for
as long as the round took.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from dragoman.server import limits
from dragoman.server.limits import Limits, Refused
from dragoman.translation.pieces import Piece
from dragoman.translation.request import Request
from dragoman.translation.results import Sentence, Translation
from dragoman.translation.translator import Translator
from dragoman.translation.work import Work


@dataclass(eq=False)
class Job:
    """Texts to translate together with the same search settings, and the future of their results."""

    texts: Sequence[str | Request]
    n_best: int | None = None  # None: the translator's setting
    beam_size: int | None = None  # None: the translator's setting; raised to n_best if smaller
    weights: bool = False  # whether to return the weights of the candidates, and the log-probabilities of all tokens
    results: Future[list[Translation]] = field(default_factory=Future)
    work: Work | None = None  # None until its first round
    seconds: float = 0.0  # that it has been computed for
    is_long: bool = False


Part = tuple[Job, Work, list[Piece]]  # what a round translates of a job


class Batcher:
    """The translating thread and its queue of jobs."""

    def __init__(self, translator: Translator, budgets: Limits | None = None) -> None:
        self.translator = translator
        self.limits = budgets or Limits()
        # Kept, because a translator with other settings prepares its literals anew, which takes 10 ms.
        self._with_decoding = lru_cache(8)(
            lambda n_best, beam_size: translator.with_decoding(n_best=n_best, beam_size=beam_size)
        )
        self._waiting: list[Job] = []
        self._under_way: list[Job] = []
        self._changed = threading.Condition()
        self._closed = False
        self._last_short = float("-inf")  # when the last short job was submitted
        self._rest = 0.0  # seconds to wait for a short job before the next round
        self._thread = threading.Thread(target=self._run, name="translating")
        self._thread.start()

    def submit(self, job: Job) -> Future[list[Translation]]:
        """Queue a job and return the future of its results, one per text. Cancel the future to withdraw the job.

        The future raises DataError for a text that cannot be translated. It and this method raise Refused where a job
        meets a budget.
        """
        work = limits.estimated_work(map(_text, job.texts), self.search_settings(job)[1], job.weights)
        if work > self.limits.max_work:
            raise Refused(
                413,
                f"too much work: {work:,}, but at most {self.limits.max_work:,} (--max-work) is allowed. A character "
                "counts 1 and a line 10 more, times the beam size, times 4 for attention or markup",
            )
        job.is_long = work > limits.LONG_WORK
        with self._changed:
            if not job.is_long:
                self._last_short = time.monotonic()
            waiting = sum(not other.results.cancelled() for other in self._waiting)
            if waiting >= self.limits.max_waiting or self._closed:
                limit = f"--max-waiting is {self.limits.max_waiting}"
                raise Refused(503, f"too many requests are waiting ({limit}): try again in a moment")
            self._waiting.append(job)
            self._changed.notify()
        return job.results

    @property
    def waiting(self) -> int:
        """How many jobs are queued or under way."""
        return len(self._waiting) + len(self._under_way)

    def give_up(self) -> None:
        """Cancel all jobs that are not finished, and accept no more."""
        with self._changed:
            self._closed = True
            jobs = [*self._waiting, *self._under_way]
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
        """The thread: translate in rounds until the batcher is closed."""
        try:
            while jobs := self._next_jobs():
                started = time.monotonic()
                self._translate_round([job for job in jobs if not job.results.cancelled()])
                rests = jobs[0].is_long and not self._is_quiet()
                self._rest = time.monotonic() - started if rests else 0.0
                with self._changed:
                    self._waiting[:0] = [job for job in jobs if not job.results.done()]
                    self._under_way = []
                if any(job.results.done() and job.is_long for job in jobs):
                    trim_memory()
        finally:  # cancel all jobs if the thread ends
            self.give_up()

    def _next_jobs(self) -> list[Job]:
        """Wait for jobs. Take all like the first: a short job if there is one, else the least computed long one."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            self._changed.wait_for(
                lambda: self._closed or not all(job.is_long for job in self._waiting), timeout=self._rest
            )
            if self._closed:
                return []
            self._waiting.sort(key=lambda job: (job.is_long, job.seconds))
            wanted = self._settings(self._waiting[0])
            self._under_way = [job for job in self._waiting if self._settings(job) == wanted]
            self._waiting = [job for job in self._waiting if self._settings(job) != wanted]
            return list(self._under_way)

    def _is_quiet(self) -> bool:
        """Whether no short job has come lately."""
        return time.monotonic() - self._last_short > limits.QUIET

    def _settings(self, job: Job) -> tuple[int, int, bool, bool]:
        """What the jobs of a round have in common."""
        return (*self.search_settings(job), job.weights, job.is_long)

    def _room(self, job: Job) -> int:
        """How many tokens a round has for jobs like this one."""
        if not job.is_long:
            return limits.SHORT_TOKENS
        n_best, beam_size = self.search_settings(job)
        # A beam of 10 takes thrice as long as one of 1, and for weights the model reads every translation twice.
        slowdown = (4 + beam_size) / 5 * (1 + n_best if job.weights else 1)
        return max(1, round((limits.QUIET_TOKENS if self._is_quiet() else limits.LONG_TOKENS) / slowdown))

    def _translate_round(self, jobs: list[Job]) -> None:
        """Translate a part of each job, as far as there is room for it. Short jobs usually fit whole."""
        parts: list[Part] = []
        room = self._room(jobs[0]) if jobs else 0
        for job in jobs:
            if room <= 0:
                break
            with _errors_of(job):
                job.work = job.work or self.translator.work(job.texts)
                pieces = job.work.take(room)
                parts.append((job, job.work, pieces))
                room -= sum(len(piece.ids) + 1 for piece in pieces)
        self._translate(parts)

    def _translate(self, parts: list[Part]) -> None:
        """Translate parts together. If that fails, translate each alone, so that a bad text fails only its own job."""
        if not parts:
            return
        started = time.perf_counter()
        pieces = [piece for _, _, part in parts for piece in part]
        try:
            sentences = iter(self._sentences(parts[0][0], pieces))
        except BaseException as error:  # a panic in a library, too: other jobs need the thread
            if len(parts) == 1:
                _fail(parts[0][0], error)
            else:
                for part in parts:
                    self._translate([part])
            return
        seconds = time.perf_counter() - started
        for job, work, part in parts:
            job.seconds += seconds * len(part) / max(1, len(pieces))
            with _errors_of(job):
                work.add(islice(sentences, len(part)))
                if work.is_encoded:
                    job.results.set_result(work.translations())
                elif job.seconds > self.limits.max_seconds:
                    limit = f"{self.limits.max_seconds:g} seconds of computing (--max-seconds)"
                    raise Refused(504, f"not translated within {limit}: send less text at a time")

    def _sentences(self, job: Job, pieces: Sequence[Piece]) -> list[Sentence]:
        """The translations of pieces, with what the job asks for."""
        translator = self._with_decoding(*self.search_settings(job))
        sentences = translator.translate_pieces([pieces])
        if not job.weights:
            return sentences
        [whole] = translator.with_alignments(translator.with_log_probs([Translation("", "", sentences, [])]))
        return whole.sentences


def trim_memory() -> None:
    """Give freed memory back to the system, where the C library has a function for that: glibc keeps most of it."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _text(text: str | Request) -> str:
    return text if isinstance(text, str) else text.text


@contextmanager
def _errors_of(job: Job) -> Iterator[None]:
    """Context manager: let a job raise the errors of its own texts."""
    try:
        yield
    except BaseException as error:
        _fail(job, error)


def _fail(job: Job, error: BaseException) -> None:
    """Let a job raise an error. One that is no Exception, such as a panic of Rust code, would end its caller."""
    if not isinstance(error, Exception):
        reason = RuntimeError(f"translating failed: {type(error).__name__}: {error}")
        reason.__cause__ = error
        error = reason
    with suppress(InvalidStateError):  # cancelled in the meantime
        job.results.set_exception(error)
