"""Pairs that are no translations of each other, and pairs of which one side was cut in half.

Three tests, each with a threshold that `fitting` finds by comparing the corpus with dirt made from it:
    length       how far the lengths deviate (Gale and Church 1993), without made dirt: FAR times the usual deviation
    misaligned   the mean of what the lexicon explains on both sides, against random targets, by number of words
    cut          a classifier of lengths, and of what is explained in the first and the second half of the longer side,
                 against pairs of which one side was cut
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dragoman.filtering.fitting import fit_logistic, logistic_scores, threshold
from dragoman.filtering.lexicon import Explained, Lexicon
from dragoman.filtering.words import Encoder, Words, digest

FAR = 5.0  # times the usual deviation; one pair in 10,000 of Multi30k and Tatoeba
FEWEST = 1000  # pairs without which no lexicon is learnt
BUCKETS = (0, 4, 6, 9, 14)  # words of the shorter side at which a bucket starts: short pairs prove less
FEWEST_CUT = 5  # words of the longer side of a pair that can be said to be cut
_ENDS = frozenset(".!?…。！？।؟:;")
_CLOSING = "\"'”’»›)]"  # may follow


@dataclass(frozen=True)
class Pairs:
    """Pairs as the tests see them."""

    source: Words
    target: Words
    characters: np.ndarray  # (N, 2)
    ended: np.ndarray  # (N, 2): whether a side ends in a mark
    folds: np.ndarray  # (N): 0 or 1, the lexicon that judges the pair

    @classmethod
    def of(cls, encoder: Encoder, sources: Sequence[str], targets: Sequence[str]) -> Pairs:
        """Encode pairs."""
        sides = (sources, targets)
        characters = np.array([list(map(len, side)) for side in sides], np.int64).reshape(2, -1).T
        ended = np.array([[text.rstrip(_CLOSING)[-1:] in _ENDS for text in side] for side in sides]).reshape(2, -1).T
        folds = np.array([digest(text) & 1 for text in sources], np.int64)
        return cls(encoder.encode(sources), encoder.encode(targets), characters, ended, folds)

    def take(self, rows: np.ndarray) -> Pairs:
        """Return some of the pairs."""
        return Pairs(
            self.source.take(rows), self.target.take(rows), self.characters[rows], self.ended[rows], self.folds[rows]
        )


@dataclass(frozen=True)
class AlignmentJudge:
    """What was learnt from a sample of the corpus."""

    ratio: float  # characters of the target for one of the source
    middle: float
    unit: float  # of the usual deviation
    lexicons: tuple[Lexicon, Lexicon] | None = None  # the first judges pairs of fold 0 and was learnt from fold 1
    random: tuple[float, ...] = ()  # threshold of each bucket
    cut_weights: tuple[np.ndarray, np.ndarray] | None = None  # for a cut source, and for a cut target
    cut: tuple[float, float] = (-np.inf, -np.inf)  # their thresholds

    @classmethod
    def learn(cls, encoder: Encoder, sources: Sequence[str], targets: Sequence[str], seed: int = 1) -> AlignmentJudge:
        """Learn from pairs without repetitions that passed the other rules."""
        pairs = Pairs.of(encoder, sources, targets)
        judge = cls(*_usual_lengths(pairs.characters))
        if len(sources) < FEWEST:
            return judge
        lexicons = tuple(
            Lexicon.learn(part.source, part.target)
            for part in (pairs.take(np.flatnonzero(pairs.folds != fold)) for fold in (0, 1))
        )
        judge = cls(judge.ratio, judge.middle, judge.unit, lexicons)  # pyright: ignore[reportArgumentType]
        draw = np.random.default_rng(seed)
        scores, sizes = judge.scores(pairs), _buckets(pairs)
        mixed = _with_targets(pairs, draw.permutation(len(sources)))
        at_random, random_sizes = judge.scores(mixed), _buckets(mixed)
        limits = tuple(
            threshold(scores[sizes == bucket], at_random[random_sizes == bucket]) for bucket in range(len(BUCKETS))
        )
        aligned = np.flatnonzero(scores >= np.array(limits)[sizes])
        cuts = [_cut(side, aligned, sources, targets, draw) for side in (0, 1)]
        whole = pairs.take(aligned)
        weights, thresholds = [], []
        for side, (rows, *texts) in enumerate(cuts):
            made = Pairs.of(encoder, *texts)
            made = Pairs(made.source, made.target, made.characters, made.ended, pairs.folds[rows])
            of_made, of_whole = judge.cut_features(made, side), judge.cut_features(whole, side)
            fitted = fit_logistic(of_whole, of_made)
            weights.append(fitted)
            thresholds.append(threshold(logistic_scores(fitted, of_whole), logistic_scores(fitted, of_made)))
        return cls(judge.ratio, judge.middle, judge.unit, judge.lexicons, limits, tuple(weights), tuple(thresholds))  # pyright: ignore

    def deviations(self, characters: np.ndarray) -> np.ndarray:
        """Return the deviation of the lengths of each pair, positive if the target is too long, in usual deviations."""
        return (_deviations(characters, self.ratio) - self.middle) / self.unit

    def explain(self, pairs: Pairs) -> Explained:
        """Return what the lexicon of the other fold explains of each word."""
        assert self.lexicons is not None
        source, target = np.zeros(len(pairs.source.ids)), np.zeros(len(pairs.target.ids))
        for fold, lexicon in enumerate(self.lexicons):
            rows = np.flatnonzero(pairs.folds == fold)
            found = lexicon.explain(pairs.source.take(rows), pairs.target.take(rows))
            source[pairs.folds[pairs.source.owners] == fold] = found.source
            target[pairs.folds[pairs.target.owners] == fold] = found.target
        return Explained(source, target)

    def scores(self, pairs: Pairs, explained: Explained | None = None) -> np.ndarray:
        """Return the mean of what is explained of each pair, in nats a word, both sides alike."""
        explained = explained or self.explain(pairs)
        return (pairs.source.means(explained.source) + pairs.target.means(explained.target)) / 2

    def cut_features(self, pairs: Pairs, side: int, explained: Explained | None = None) -> np.ndarray:
        """Return (N, 6): signs that one side was cut, 0 the source and 1 the target."""
        explained = explained or self.explain(pairs)
        words, nats = ((pairs.target, explained.target), (pairs.source, explained.source))[side]
        own, own_nats = ((pairs.source, explained.source), (pairs.target, explained.target))[side]
        excess = self.deviations(pairs.characters) * (1 if side == 0 else -1)  # of the other side
        logs = np.log((pairs.characters[:, 1 - side] + 1) / (pairs.characters[:, side] + 1))
        logs += np.log(self.ratio) * (1 if side == 1 else -1)
        unended = pairs.ended[:, 1 - side] & ~pairs.ended[:, side]
        halves = [words.means(nats, 0, 0.5), words.means(nats, 0.5, 1)]
        return np.stack([excess, logs, *halves, own.means(own_nats), unended], 1)

    def judge(self, pairs: Pairs) -> list[str]:
        """Return for each pair "length", "misaligned", "cut", or "" if nothing is wrong."""
        found = np.full(len(pairs.folds), "", object)
        found[np.abs(self.deviations(pairs.characters)) > FAR] = "length"
        if self.lexicons is None:
            return found.tolist()
        explained = self.explain(pairs)
        if self.cut_weights is not None:
            for side in (0, 1):
                scores = logistic_scores(self.cut_weights[side], self.cut_features(pairs, side, explained))
                long = (pairs.target, pairs.source)[side].sizes >= FEWEST_CUT
                found[(scores < self.cut[side]) & long] = "cut"
        found[self.scores(pairs, explained) < np.array(self.random)[_buckets(pairs)]] = "misaligned"
        return found.tolist()


def _usual_lengths(characters: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of the lengths, the middle of their deviations, and the usual deviation from it."""
    if not len(characters):
        return 1.0, 0.0, 1.0
    ratio = float(np.median(characters[:, 1] / characters[:, 0]))
    found = _deviations(characters, ratio)
    middle = float(np.median(found))
    return ratio, middle, max(1.5 * float(np.median(np.abs(found - middle))), 0.5)


def _deviations(characters: np.ndarray, ratio: float) -> np.ndarray:
    expected = ratio * characters[:, 0]
    return (characters[:, 1] - expected) / np.sqrt(characters[:, 1] + expected)


def _buckets(pairs: Pairs) -> np.ndarray:
    """Return the index of the bucket of each pair."""
    return np.searchsorted(BUCKETS, np.minimum(pairs.source.sizes, pairs.target.sizes), "right") - 1


def _with_targets(pairs: Pairs, rows: np.ndarray) -> Pairs:
    """Give each source another pair's target."""
    return Pairs(
        pairs.source,
        pairs.target.take(rows),
        np.stack([pairs.characters[:, 0], pairs.characters[rows, 1]], 1),
        np.stack([pairs.ended[:, 0], pairs.ended[rows, 1]], 1),
        pairs.folds,
    )


def _cut(
    side: int, rows: np.ndarray, sources: Sequence[str], targets: Sequence[str], draw: np.random.Generator
) -> tuple[np.ndarray, list[str], list[str]]:
    """Cut one side of pairs with enough words: which pairs, their sources and their targets."""
    texts: tuple[Sequence[str], ...] = (sources, targets)
    made: tuple[list[str], list[str]] = ([], [])
    chosen = []
    for row, share in zip(rows.tolist(), draw.uniform(0.35, 0.7, len(rows)).tolist(), strict=True):
        text, other = str(texts[side][row]), str(texts[1 - side][row])
        spaced = text.split()
        short = " ".join(spaced[: round(share * len(spaced))]) if len(spaced) > 3 else text[: round(share * len(text))]
        if len(text) >= 3 * FEWEST_CUT and short:
            chosen.append(row)
            made[side].append(short)
            made[1 - side].append(other)
    return np.array(chosen, np.int64), *made
