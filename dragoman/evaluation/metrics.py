"""Scores of translations, with what chance has to do with them.

    score(translations, references).bleu                      # during training: quick
    ours = Measured.of(translations, references, "13a")       # for a report: with intervals
    compare("the other", ours, theirs).differences            # and with p-values

BLEU, chrF and TER come from sacreBLEU, whose signatures make them comparable across programs, word and character error
rates from torchmetrics. All of them compare whole, detokenised text with one reference each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from torchmetrics.functional.text import char_error_rate, word_error_rate

RESAMPLES = 1000  # for the intervals
TRIALS = 10_000  # for the p-values; both numbers are sacreBLEU's own
SEED = 12345  # sacreBLEU's own, so that the intervals are those of `sacrebleu --confidence`


@dataclass(frozen=True)
class Scores:
    """Scores of a set of translations; BLEU and chrF up to 100, higher being better, error rates from 0 up."""

    bleu: float
    chrf: float
    wer: float  # word edits needed, per word of the references
    cer: float  # the same in characters
    signature: str  # how BLEU was computed, in sacreBLEU's notation


def score(translations: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Scores:
    """Compare translations with one reference each. tokenize is sacreBLEU's: `none` for text already tokenised."""
    bleu = BLEU(tokenize=tokenize, force=True)  # force: do not warn that tokenised text looks tokenised
    corpus_bleu = bleu.corpus_score(translations, [references])
    chrf = CHRF().corpus_score(translations, [references])
    return Scores(
        bleu=corpus_bleu.score,
        chrf=chrf.score,
        wer=word_error_rate(list(translations), list(references)).item(),
        cer=char_error_rate(list(translations), list(references)).item(),
        signature=str(bleu.get_signature()),
    )


@dataclass(frozen=True)
class Figure:
    """One metric over all translations."""

    name: str  # BLEU, chrF, TER, WER or CER
    score: float  # BLEU, chrF: up to 100, higher is better; the others: edits per 100 of the reference, lower is better
    low: float | None  # ends of the 95 % bootstrap interval; none for WER and CER
    high: float | None
    signature: str  # how it was computed


@dataclass(frozen=True)
class Difference:
    """This translator minus another, on the same pairs."""

    name: str  # BLEU, chrF or TER
    difference: float
    low: float  # ends of its 95 % interval, by paired bootstrap
    high: float
    p: float  # how often chance alone makes one as large, by approximate randomisation, two-sided


@dataclass(frozen=True)
class Comparison:
    """What an earlier run or report made of the same pairs."""

    name: str
    figures: list[Figure]
    differences: list[Difference]


class Sums:
    """A metric of sacreBLEU over N translations: K numbers a sentence, of which every score is computed.

    They are added first, over whatever sentences a figure is about, and divided once. It is the way of sacreBLEU's own
    significance tests: the two methods of a metric that they call are called here, though both have private names.
    """

    def __init__(self, metric: Metric, translations: Sequence[str], references: Sequence[str]) -> None:
        self.metric = metric
        self.sums = np.array(metric._extract_corpus_statistics(translations, [references]), np.float64)  # (N, K)

    def score(self, sentences: Sequence[int] | slice = slice(None)) -> float:
        """The corpus score of some sentences, by default of all."""
        return self._divided(self.sums[sentences].sum(0))

    def _divided(self, totals: np.ndarray) -> float:
        return float(self.metric._compute_score_from_stats(totals).score)  # type: ignore[arg-type]

    @cached_property
    def resampled(self) -> np.ndarray:
        """Scores (RESAMPLES) of as many sentences drawn with replacement; the draws depend on N alone."""
        random, count = np.random.default_rng(SEED), len(self.sums)
        draws = (np.bincount(random.integers(count, size=count), minlength=count) for _ in range(RESAMPLES))
        return np.array([self._divided(draw @ self.sums) for draw in draws])

    def shuffled(self, other: Sums) -> np.ndarray:
        """Differences (TRIALS) of two translators each of whose translations may have come from the other."""
        random, count = np.random.default_rng(SEED), len(self.sums)
        both, change = self.sums.sum(0) + other.sums.sum(0), self.sums - other.sums
        found = []
        for start in range(0, TRIALS, 320):  # at a time, for memory's sake
            swap = random.integers(2, size=(min(320, TRIALS - start), count), dtype=bool)
            for totals in other.sums.sum(0) + swap @ change:  # (K)
                found.append(self._divided(totals) - self._divided(both - totals))
        return np.array(found)

    def signature(self) -> str:
        """How the score and its interval were computed, as sacreBLEU writes it."""
        self.metric.n_bootstrap, self.metric.seed = RESAMPLES, SEED  # type: ignore[assignment]
        return str(self.metric.get_signature())


@dataclass(frozen=True)
class Measured:
    """All metrics over one set of translations."""

    bleu: Sums
    chrf: Sums
    ter: Sums
    figures: list[Figure]

    @classmethod
    def of(cls, translations: Sequence[str], references: Sequence[str], tokenize: str) -> Measured:
        # Words of Chinese and Japanese have no blanks between them, by which TER counts; it can count their letters.
        letters = tokenize in ("zh", "char")
        metrics = {
            "BLEU": BLEU(tokenize=tokenize, force=True),
            "chrF": CHRF(),
            "TER": TER(normalized=letters, asian_support=letters),
        }
        sums = {name: Sums(metric, translations, references) for name, metric in metrics.items()}
        figures = [
            Figure(name, each.score(), *interval(each.resampled), each.signature()) for name, each in sums.items()
        ]
        for name, rate in ("WER", word_error_rate), ("CER", char_error_rate):
            percent = 100 * rate(list(translations), list(references)).item()
            figures.append(Figure(name, percent, None, None, f"torchmetrics {version('torchmetrics')}"))
        return cls(sums["BLEU"], sums["chrF"], sums["TER"], figures)


def interval(samples: np.ndarray) -> tuple[float, float]:
    """The range that holds the middle 95 % of samples; half of its width is what sacreBLEU prints after ±."""
    cut = len(samples) // 40
    ordered = np.sort(samples)
    return float(ordered[cut]), float(ordered[-1 - cut])


def compare(name: str, ours: Measured, theirs: Measured) -> Comparison:
    """Is the difference more than chance? Both must have translated the same pairs, in the same order.

    The draws of the bootstrap are the same for both, so that its differences are of pairs. sacreBLEU counts only trials
    with a larger difference than the real one, by which a translator would differ from itself with p = 0.0001; here
    equal ones count, as in the randomisation test's definition (Noreen, 1989).
    """
    differences = []
    for figure, our, their in zip(
        ours.figures, (ours.bleu, ours.chrf, ours.ter), (theirs.bleu, theirs.chrf, theirs.ter), strict=False
    ):
        difference = our.score() - their.score()
        as_large = np.abs(our.shuffled(their)) >= abs(difference) - 1e-9  # which rounding may take from an equal one
        p = (int(as_large.sum()) + 1) / (TRIALS + 1)
        differences.append(Difference(figure.name, difference, *interval(our.resampled - their.resampled), p))
    return Comparison(name, theirs.figures, differences)
