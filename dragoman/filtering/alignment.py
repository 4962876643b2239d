"""Pairs that are not translations of each other, and pairs of which one side was cut in half.

Three tests:
    length       the lengths deviate FAR times as far as usual (Gale and Church 1993)
    misaligned   the mean of what the lexicon explains on both sides, against random targets, by number of words
    cut          a classifier of lengths, and of what is explained in the first and the second half of the longer side,
                 against pairs of which one side was cut

There are no labels, so dirt is made for the last two, such as a source beside a random target, and scored as the pairs
are. The corpus is then a mixture of good pairs and an unknown share of such dirt, which tells the thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dragoman.filtering.lexicon import Explained, Lexicon
from dragoman.filtering.words import EncodedTexts, Encoder, digest

FAR = 5.0  # times the usual deviation; one pair in 10,000 of Multi30k and Tatoeba
FEWEST_PAIRS = 1000  # pairs that a lexicon is learnt from, at least
BUCKETS = (0, 4, 6, 9, 14)  # words of the shorter side at which a bucket starts: short pairs prove less
FEWEST_CUT = 5  # words of the longer side of a pair that can be said to be cut
HARM = 4.0  # good pairs that may be lost for each dirty one
FEWEST_SCORES = 100  # pairs and pieces of dirt without which no threshold is set
# Hardly any good pair lies below this quantile of the made dirt, so the share of the corpus below it estimates how much
# of the corpus is dirty.
DIRT_QUANTILE = 0.4
_ENDS = frozenset(".!?…。！？।؟:;")
_CLOSING = "\"'”’»›)]"  # may follow


@dataclass(frozen=True)
class Pairs:
    """Pairs as the tests see them."""

    source: EncodedTexts
    target: EncodedTexts
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

    def take(self, rows: np.ndarray, targets: np.ndarray | None = None) -> Pairs:
        """Return some of the pairs, or some of the sources beside the targets of other pairs."""
        of_targets = rows if targets is None else targets
        characters, ended = (
            np.stack([both[rows, 0], both[of_targets, 1]], 1) for both in (self.characters, self.ended)
        )
        return Pairs(self.source.take(rows), self.target.take(of_targets), characters, ended, self.folds[rows])


@dataclass
class AlignmentJudge:
    """What was learnt from a sample of the corpus."""

    ratio: float  # characters of the target for one of the source
    median_deviation: float  # of the lengths
    usual_deviation: float  # from the median
    lexicons: tuple[Lexicon, ...] = ()  # the first judges pairs of fold 0 and was learnt from fold 1
    misaligned_below: np.ndarray = field(default_factory=lambda: np.full(len(BUCKETS), -np.inf))  # score, by bucket
    cut: list[tuple[np.ndarray, float]] = field(default_factory=list)  # weights and thresholds: cut source, cut target

    @classmethod
    def learn(cls, encoder: Encoder, sources: Sequence[str], targets: Sequence[str], seed: int = 1) -> AlignmentJudge:
        """Learn from pairs without repetitions that passed the other rules."""
        pairs, everything = Pairs.of(encoder, sources, targets), np.arange(len(sources))
        judge = cls(*_usual_lengths(pairs.characters))
        if len(sources) < FEWEST_PAIRS:
            return judge
        halves = [pairs.take(np.flatnonzero(pairs.folds != fold)) for fold in (0, 1)]
        judge.lexicons = tuple(Lexicon.learn(half.source, half.target) for half in halves)
        draw = np.random.default_rng(seed)
        scores, sizes = judge.scores(pairs), _buckets(pairs)
        mixed = pairs.take(everything, draw.permutation(len(sources)))
        at_random, random_sizes = judge.scores(mixed), _buckets(mixed)
        judge.misaligned_below = np.array(
            [threshold(scores[sizes == i], at_random[random_sizes == i]) for i in range(len(BUCKETS))]
        )
        aligned = np.flatnonzero(scores >= judge.misaligned_below[sizes])
        cuts = [_cut(side, aligned, sources, targets, draw) for side in (0, 1)]
        for side, (rows, *texts) in enumerate(cuts):
            made = replace(Pairs.of(encoder, *texts), folds=pairs.folds[rows])
            of_made, of_whole = judge.cut_features(made, side), judge.cut_features(pairs.take(aligned), side)
            weights = fit_logistic(of_whole, of_made)
            limit = threshold(logistic_scores(weights, of_whole), logistic_scores(weights, of_made))
            judge.cut.append((weights, limit))
        return judge

    def deviations(self, characters: np.ndarray) -> np.ndarray:
        """Return the deviation of the lengths of each pair, positive if the target is too long, in usual deviations."""
        return (_deviations(characters, self.ratio) - self.median_deviation) / self.usual_deviation

    def explain(self, pairs: Pairs) -> Explained:
        """Return what the lexicon of the other fold explains of each word."""
        source, target = np.zeros(len(pairs.source.ids)), np.zeros(len(pairs.target.ids))
        for fold, lexicon in enumerate(self.lexicons):
            rows = np.flatnonzero(pairs.folds == fold)
            nats = lexicon.explain(pairs.source.take(rows), pairs.target.take(rows))
            source[pairs.folds[pairs.source.owners] == fold] = nats.source
            target[pairs.folds[pairs.target.owners] == fold] = nats.target
        return Explained(source, target)

    def scores(self, pairs: Pairs, explained: Explained | None = None) -> np.ndarray:
        """Return the mean of what is explained of each pair, in nats a word, both sides alike."""
        explained = explained or self.explain(pairs)
        return (pairs.source.means(explained.source) + pairs.target.means(explained.target)) / 2

    def cut_features(self, pairs: Pairs, side: int, explained: Explained | None = None) -> np.ndarray:
        """Return (N, 6): signs that one side was cut, 0 the source and 1 the target."""
        explained = explained or self.explain(pairs)
        views = (pairs.source, explained.source), (pairs.target, explained.target)
        (own, own_nats), (other, nats), sign = views[side], views[1 - side], 1 - 2 * side
        excess = self.deviations(pairs.characters) * sign  # of the other side
        logs = np.log((pairs.characters[:, 1 - side] + 1) / (pairs.characters[:, side] + 1)) - np.log(self.ratio) * sign
        unended = pairs.ended[:, 1 - side] & ~pairs.ended[:, side]
        halves = [other.means(nats, 0, 0.5), other.means(nats, 0.5, 1)]
        return np.stack([excess, logs, *halves, own.means(own_nats), unended], 1)

    def reasons_for(self, pairs: Pairs) -> list[str]:
        """Return for each pair "length", "misaligned", "cut", or "" if nothing is wrong."""
        reasons = np.full(len(pairs.folds), "", object)
        reasons[np.abs(self.deviations(pairs.characters)) > FAR] = "length"
        if self.lexicons:
            explained = self.explain(pairs)
            for side, (weights, limit) in enumerate(self.cut):
                scores = logistic_scores(weights, self.cut_features(pairs, side, explained))
                long = (pairs.target, pairs.source)[side].sizes >= FEWEST_CUT
                reasons[(scores < limit) & long] = "cut"
            reasons[self.scores(pairs, explained) < self.misaligned_below[_buckets(pairs)]] = "misaligned"
        return reasons.tolist()


def _usual_lengths(characters: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of the lengths, the median of their deviations, and the usual deviation from it."""
    if not len(characters):
        return 1.0, 0.0, 1.0
    ratio = float(np.median(characters[:, 1] / characters[:, 0]))
    deviations = _deviations(characters, ratio)
    median = float(np.median(deviations))
    return ratio, median, max(1.5 * float(np.median(np.abs(deviations - median))), 0.5)


def _deviations(characters: np.ndarray, ratio: float) -> np.ndarray:
    expected = ratio * characters[:, 0]
    return (characters[:, 1] - expected) / np.sqrt(characters[:, 1] + expected)


def _buckets(pairs: Pairs) -> np.ndarray:
    """Return the index of the bucket of each pair."""
    return np.searchsorted(BUCKETS, np.minimum(pairs.source.sizes, pairs.target.sizes), "right") - 1


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


def threshold(scores: np.ndarray, dirt: np.ndarray) -> float:
    """Return the score below which pairs are dropped; -inf if there is no such score.

    Args:
        scores: (N), of the corpus
        dirt: (M), of dirt that was made
    """
    if len(scores) < FEWEST_SCORES or len(dirt) < FEWEST_SCORES:
        return -np.inf
    scores, dirt = np.sort(scores), np.sort(dirt)
    share = np.searchsorted(scores, np.quantile(dirt, DIRT_QUANTILE)) / len(scores) / DIRT_QUANTILE
    of_dirt = share * np.searchsorted(dirt, scores) / len(dirt)
    good = np.arange(len(scores)) / len(scores) - of_dirt
    gain = HARM * of_dirt - good
    best = int(np.argmax(gain))
    return float(scores[best]) if gain[best] > 0 else -np.inf


def fit_logistic(good: np.ndarray, dirt: np.ndarray, rounds: int = 12) -> np.ndarray:
    """Return the weights of a logistic regression, by Newton's method; the last one is the bias.

    The two classes have the same weight, however many rows they have, and a small ridge keeps weights finite.

    Args:
        good: (N, features); a high score means good
        dirt: (M, features)
    """
    rows = np.concatenate([good, dirt])
    rows = np.concatenate([rows, np.ones((len(rows), 1))], 1)
    labels = np.repeat([1.0, 0.0], [len(good), len(dirt)])
    importance = np.repeat([0.5 / len(good), 0.5 / len(dirt)], [len(good), len(dirt)])
    weights = np.zeros(rows.shape[1])
    ridge = 1e-4 * np.eye(len(weights))
    for _ in range(rounds):
        likely = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (importance * (labels - likely)) - ridge @ weights
        curvature = (rows * (importance * likely * (1 - likely))[:, None]).T @ rows + ridge
        weights = weights + np.linalg.solve(curvature, slope)
    return weights


def logistic_scores(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return the log-odds that each row of features is good."""
    return features @ weights[:-1] + weights[-1]
