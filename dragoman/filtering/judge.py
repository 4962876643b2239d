"""Judge the pairs of a corpus by what was learnt from a sample of it, in chunks, in several processes.

    judge = Judge.learn(sample.pairs(), data)
    for reason in reasons_of(pairs, judge, processes):  # "empty", "copied", ...; "" if the pair may stay

A judgement does not depend on other chunks, so the number of processes does not change the result.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Collection, Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from dragoman.corpora.formats.language_names import within_one
from dragoman.dataset import Pair
from dragoman.filtering.alignment import AlignmentJudge, Pairs
from dragoman.filtering.duplicates import KEYS, Repeats, keys_of
from dragoman.filtering.language_judge import LanguageJudge
from dragoman.filtering.rules import Scripts, common_scripts, first_reason
from dragoman.filtering.words import Encoder, digest
from dragoman.processes import start_worker
from dragoman.settings import DataConfig
from dragoman.text.cleaning import clean, is_text

SAME_LANGUAGE = ("copied", "language", "swapped")  # no reasons where both sides are in one language
CHUNK = 5000  # pairs
AHEAD = 3  # chunks in memory for each process
SCRIPTS_FROM = 20_000  # pairs that tell the scripts of the two sides

_judge: Judge | None = None  # of this worker


class Sample:
    """A bounded sample of the distinct pairs of a corpus: all of them, or the share that their hashes choose."""

    def __init__(self, size: int = 80_000) -> None:
        self._pairs: dict[Pair, None] = {}
        self._most, self._share = 2 * size, 1

    def add(self, source: str, target: str) -> None:
        """Add a pair if the sample takes it."""
        if self._takes((source, target)):
            self._pairs[source, target] = None
        while len(self._pairs) >= self._most:
            self._share *= 2
            self._pairs = {pair: None for pair in self._pairs if self._takes(pair)}

    def _takes(self, pair: Pair) -> bool:
        return self._share == 1 or digest("\t".join(pair)) % self._share == 0

    def pairs(self) -> list[Pair]:
        """Return the pairs."""
        return list(self._pairs)


class Judgement(NamedTuple):
    """The reasons to drop pairs of a chunk of N."""

    reasons: list[str]  # (N), empty: the pair may stay
    keys: np.ndarray  # (N, KEYS) uint64; 0 for pairs that are dropped


@dataclass
class Judge:
    """What was learnt from a sample."""

    data: DataConfig
    keep: frozenset[str]  # reasons for which no pair is dropped
    scripts: Scripts
    encoder: Encoder
    languages: LanguageJudge | None = None
    alignment: AlignmentJudge | None = None

    @classmethod
    def learn(cls, sample: Sequence[Pair], data: DataConfig, keep: Collection[str] = ()) -> Judge:
        """Learn from a sample of raw pairs, without those that break a rule for single pairs, and repetitions."""
        cleaned = dict.fromkeys(cleaned_pair(pair, data) for pair in sample)
        pairs = [pair for pair in cleaned if all(map(is_text, pair))]
        source, target = (common_scripts(pair[side] for pair in pairs[:SCRIPTS_FROM]) for side in (0, 1))
        scripts = (source, target)
        kept = frozenset([*keep, *(SAME_LANGUAGE if within_one(data) else ())])
        judge = cls(data, kept, scripts, Encoder([]))
        good = [pair for pair in pairs if not first_reason(*pair, scripts, kept)]
        if not good:
            return judge
        judge.encoder = Encoder.learn(text for pair in good for text in pair)
        texts = tuple(zip(*good, strict=True))
        words = [judge.encoder.encode(side) for side in texts]
        judge.languages = LanguageJudge.learn(texts, words, (str(data.source_lang), data.target_lang))
        wrong = judge.languages.reasons_for(texts, words)
        unique = dict(pair for pair, reason in zip(good, wrong, strict=True) if not reason or reason in kept)
        judge.alignment = AlignmentJudge.learn(judge.encoder, [*unique.keys()], [*unique.values()])
        return judge

    def reasons_for(self, chunk: Sequence[Pair]) -> Judgement:
        """Judge raw pairs by all rules except those for repeated pairs."""
        pairs = [cleaned_pair(pair, self.data) for pair in chunk]
        reasons = [first_reason(*pair, self.scripts, self.keep) for pair in pairs]
        keys = np.zeros((len(pairs), KEYS), np.uint64)
        rows = [row for row, reason in enumerate(reasons) if not reason]
        if not rows or not self.languages or not self.alignment:
            return Judgement(reasons, keys)
        texts = tuple(zip(*(pairs[row] for row in rows), strict=True))
        seen = Pairs.of(self.encoder, *texts)
        keys[rows] = keys_of([pairs[row] for row in rows], seen.source, seen.target)
        of_language = self.languages.reasons_for(texts, (seen.source, seen.target))
        for further in (of_language, self.alignment.reasons_for(seen)):
            for row, reason in zip(rows, further, strict=True):
                if reason and not reasons[row] and reason not in self.keep:
                    reasons[row] = reason
        keys[[row for row in rows if reasons[row]]] = 0
        return Judgement(reasons, keys)


def cleaned_pair(pair: Pair, data: DataConfig) -> Pair:
    """Clean both sides as training does. Text that is not UTF-8 stays as it is."""
    source, target = pair
    return (clean(source, data), clean(target, data)) if is_text(source) and is_text(target) else pair


def reasons_of(pairs: Iterable[Pair], judge: Judge, processes: int, with_repeats: bool = True) -> Generator[str]:
    """Yield the reason to drop each pair; "": it may stay. The result is the same for any number of processes."""
    repeats = Repeats(judge.keep)
    with closing(_judge_in_processes(pairs, judge, processes)) as judgements:
        for reasons, keys in judgements:
            if with_repeats:
                repeats.mark(reasons, keys)
            yield from reasons


def _judge_in_processes(pairs: Iterable[Pair], judge: Judge, processes: int) -> Generator[Judgement]:
    """Yield the judgements of CHUNK pairs at a time, in order."""
    pairs = iter(pairs)
    chunks = iter(lambda: list(islice(pairs, CHUNK)), [])
    if processes == 1:
        yield from map(judge.reasons_for, chunks)
        return
    waiting: deque[Future[Judgement]] = deque()
    # Not fork: libraries may run threads, which a forked process lacks.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_start, initargs=(judge,))
    try:
        for chunk in chunks:
            waiting.append(pool.submit(_work, chunk))
            if len(waiting) >= AHEAD * processes:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _start(judge: Judge) -> None:
    global _judge
    _judge = judge
    start_worker()


def _work(pairs: Sequence[Pair]) -> Judgement:
    assert _judge is not None
    return _judge.reasons_for(pairs)
