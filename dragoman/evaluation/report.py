"""The report of an evaluation: its contents, and its form on a terminal and in files."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dragoman import serialization, storage
from dragoman.console import shorten, table, visible
from dragoman.evaluation.curves import charts
from dragoman.evaluation.metrics import Comparison, MetricScore
from dragoman.evaluation.page import render_page
from dragoman.setting_types import as_word
from dragoman.settings import DecodingConfig, Section
from dragoman.text.cleaning import AS_WRITTEN, clean

NAME = 24  # columns of the name of a translator above a table
WIDTH = 80  # columns on a terminal, except for signatures, which are copied


@dataclass(frozen=True)
class Bucket:
    """Scores of sentences that have something in common, for example their length."""

    name: str  # "6-10", "31+"
    pairs: int
    bleu: float
    chrf: float


@dataclass(frozen=True)
class Alarm:
    """A failure of many translations, or of all of them together."""

    name: str  # undertrained, empty, repeated, cut, same, untranslated, unknown, length or useless
    text: str
    sentences: list[int]  # numbers from 1, at most 20; none if the alarm is about all sentences


@dataclass(frozen=True)
class EvaluatedSentence:
    """A pair and its translation."""

    source: str
    reference: str
    translation: str
    chrf: float  # of this sentence alone
    tokens: int  # source tokens of the translator
    unknown: int  # source words that are not in the vocabulary
    complete: bool  # False: cut off by the length limit
    words: int  # of the translation, as BLEU counts them
    reference_words: int


@dataclass(frozen=True)
class EvaluationReport:
    """How good a translator is on a set of pairs, and where it fails. `asdict` turns it into the JSON file.

    Attributes:
        format: version of this record, for programs that read it; in 1, `against` was one comparison or null
        name: of the pairs: a split, or data- and the name of a file
        run, step, checkpoint: origin of the weights
        source_lang, target_lang: languages; several are joined by commas
        decoding: settings of the search
        cleaning: settings that sources and references were cleaned with
        pairs: number of pairs
        length_ratio: words in the translations per reference word, as BLEU counts them
        figures: BLEU, chrF, TER, WER, CER of all pairs
        copied: the same figures of the sources, taken as translations
        against: comparisons with other translators on the same pairs
        directions: scores of each direction, for a model of several
        lengths: scores by the number of source tokens, without empty buckets
        alarms: failures to look at before trusting the scores
        worst: numbers, from 1, of the sentences with the lowest chrF, worst first
        sentences: all sentences, in the order of the pairs
    """

    format: int
    name: str
    run: str
    step: int
    checkpoint: str
    source_lang: str
    target_lang: str
    decoding: dict[str, Any]
    cleaning: dict[str, Any]
    pairs: int
    length_ratio: float
    figures: list[MetricScore]
    copied: list[MetricScore]
    against: list[Comparison]
    directions: list[Bucket]
    lengths: list[Bucket]
    alarms: list[Alarm]
    worst: list[int]
    sentences: list[EvaluatedSentence]


def write_report(report: EvaluationReport, folder: Path, name: str) -> None:
    """Write <name>.json, <name>.html and <name>.tsv into a folder; each file is replaced atomically.

    The columns of the TSV file are source, reference and translation. In the folder of a run, the page also has the
    charts of the training. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    values = asdict(report)
    rows = [(each.source, each.reference, each.translation) for each in report.sentences]
    files = {
        "tsv": "".join("\t".join(map(clean, row)) + "\n" for row in rows).encode(),
        "html": render_page(values, charts(folder.parent)).encode(),
        "json": serialization.json_bytes(values),
    }
    for suffix, data in files.items():
        storage.replace_durably(folder / f"{name}.{suffix}", data)


def report_lines(report: EvaluationReport) -> list[str]:
    """Format the report for a terminal, at most 100 columns wide."""
    decoding = _changed(report.decoding, DecodingConfig()) or ["default search"]
    settings = ", ".join(decoding + _changed(report.cleaning, AS_WRITTEN))
    title = (
        f"{report.run}, step {report.step}, {report.source_lang} to {report.target_lang}: "
        f"{report.pairs:,} {report.name} pair{'s' * (report.pairs != 1)}; {settings}"
    )
    signatures = [f"{figure.name:6}{figure.signature}" for figure in report.figures]
    parts = [_wrapped(title), _score_lines(report), *map(_comparison_lines, report.against), *_bucket_lines(report)]
    parts += [_worst_lines(report), signatures, _alarm_lines(report)]
    lines = [line for part in parts if part for line in [*part, ""]]
    return lines[:-1]


def _score_lines(report: EvaluationReport) -> list[str]:
    rows = [["", "score", "95 % interval", "source copied"]]
    for figure, copied in zip(report.figures, report.copied, strict=True):
        interval = "" if figure.low is None else f"{figure.low:.2f} to {figure.high:.2f}"
        rows.append([figure.name, f"{figure.score:.2f}", interval, f"{copied.score:.2f}"])
    return [
        *table(rows, "<>>>"),
        "BLEU and chrF: higher is better.",
        "TER, WER and CER (edits per 100 of the reference): lower is better.",
    ]


def _comparison_lines(other: Comparison) -> list[str]:
    rows = [["", shorten(visible(other.name), NAME), "difference", "95 % interval", "p"]]
    for figure, each in zip(other.figures, other.differences, strict=False):
        interval = f"{each.low:+.2f} to {each.high:+.2f}"
        rows.append([each.name, f"{figure.score:.2f}", f"{each.difference:+.2f}", interval, f"{each.p:.3f}"])
    return [*_wrapped(f"compared with {other.name}:"), *table(rows, "<>>>>")]


def _bucket_lines(report: EvaluationReport) -> list[list[str]]:
    formatted = []
    for label, buckets in ("direction", report.directions), ("source tokens", report.lengths):
        rows = [[each.name, f"{each.pairs:,}", f"{each.bleu:.2f}", f"{each.chrf:.2f}"] for each in buckets]
        if len(rows) > 1:  # one bucket says no more than the scores of all sentences
            formatted.append(table([[label, "pairs", "BLEU", "chrF"], *rows], "<>>>"))
    return formatted


def _worst_lines(report: EvaluationReport) -> list[str]:
    lines = ["worst sentences by chrF (more in the report):"]
    for number in report.worst[:3]:
        each = report.sentences[number - 1]
        texts = (f"{number:>6}  {each.source}", f"     =  {each.reference}", f"{each.chrf:6.1f}  {each.translation}")
        lines += [shorten(visible(text), WIDTH) for text in texts]
    return lines


def _alarm_lines(report: EvaluationReport) -> list[str]:
    lines = []
    for alarm in report.alarms:
        numbers = ", ".join(map(str, alarm.sentences[:5]))
        numbers = f" Sentence{'s' * (len(alarm.sentences) > 1)} {numbers}." if numbers else ""
        lines += textwrap.wrap(f"alarm: {alarm.text}{numbers}", WIDTH, subsequent_indent="       ")
    return lines or ["no alarms"]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(visible(text), WIDTH)


def _changed(settings: dict[str, Any], defaults: Section) -> list[str]:
    """The settings that differ from their defaults, with their values."""
    usual = asdict(defaults)
    return [f"{key} {as_word(value)}" for key, value in settings.items() if value != usual.get(key)]
