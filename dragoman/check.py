"""Check a corpus before training: what is wrong with it, and which settings suit it better.

    dragoman check --config mine.yaml                                 # the corpus that this training would use
    dragoman check --data.train corpus/train --data.target_lang fr --json

    diagnosis = check_corpus(config)                                  # .findings, .settings
    print("\n".join(diagnosis_lines(diagnosis)))

The corpus is read by the same strict readers as in training, but lines that are not UTF-8 are counted, where training
would stop. The check reports the pairs that `dragoman clean` would drop, by the same rules, and adds advice. A check is
a function of `CheckedCorpus` that yields findings and suggested settings; CHECKS lists them all.

Limits: all pairs are held in memory, a million in 1.1 GB. Larger corpora are tokenised in a sample of SAMPLE pairs, and
the output says so.

Exit codes: 0 checked, whatever was found; 2 a mistake in the settings; 3 data that cannot be read; 4 training.init_from
names no model.
"""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from dragoman import console
from dragoman.corpora.data_report import SAMPLE
from dragoman.corpora.downloads.fetch import Record
from dragoman.corpora.language_choice import with_languages
from dragoman.corpora.sources import unit_name
from dragoman.dataset import encode_side
from dragoman.filtering.advice import (
    check_amounts,
    check_conventions,
    check_labels,
    check_limits,
    check_overlap,
    check_pairs,
    check_vocabulary,
    check_wording,
)
from dragoman.filtering.checked import KINDS, LEVELS, CheckedCorpus, Finding, SuggestedSetting, sample
from dragoman.filtering.commands import command_line, share
from dragoman.filtering.rules import REASONS
from dragoman.serialization import json_bytes
from dragoman.settings import Config
from dragoman.training.outlook import Outlook
from dragoman.translation.translator import Translator

WIDTH, TEXT = 80, 56  # columns of the output, and of the examples in it
CHECKS: tuple[Callable[[CheckedCorpus], Iterator[Finding | SuggestedSetting]], ...] = (
    check_pairs, check_overlap, check_labels, check_wording, check_conventions, check_vocabulary, check_limits,
    check_amounts,
)  # fmt: skip


@dataclass(frozen=True)
class SplitSummary:
    """What was read, and what example numbers count, such as line or row."""

    name: str
    read: int
    unit: str


@dataclass(frozen=True)
class Diagnosis:
    """The result of the check; `asdict` turns it into the JSON object."""

    format: int  # of this record; changes when readers must change
    source_lang: str | None
    target_lang: str
    splits: list[SplitSummary]
    downloads: list[Record]  # where the corpus came from, if it came from the internet
    sampled: int  # training pairs that were tokenised
    findings: list[Finding]  # the gravest first
    settings: list[SuggestedSetting]
    verdict: str
    command: str  # that trains as suggested
    clean: str | None = None  # the command that drops what is grave, if there is something that it drops


def main(options: tuple[Config, bool]) -> None:
    """Check the corpus of a config and print the diagnosis, as JSON if the second option is True."""
    config, as_json = options
    diagnosis = check_corpus(config)
    text = json_bytes(asdict(diagnosis)) if as_json else "\n".join([*diagnosis_lines(diagnosis), ""]).encode()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def check_corpus(config: Config) -> Diagnosis:
    """Check the corpus that training with this config would use.

    Raises:
        DataError: data that cannot be read
        ConfigError: a vocabulary that is too small
        CheckpointError: training.init_from names no model
    """
    config = with_languages(config, console.warn)
    other = Translator(config.training.init_from, "cpu") if config.training.init_from else None
    corpus = CheckedCorpus.read(config, other and (other.source, other.target))
    results = [result for check in CHECKS for result in check(corpus)]
    findings = [result for result in results if isinstance(result, Finding)]
    suggested = [result for result in results if isinstance(result, SuggestedSetting)]
    changes, kinds = {setting.key: setting.value for setting in suggested}, list(KINDS)
    return Diagnosis(
        format=2,
        source_lang=config.data.source_lang,
        target_lang=config.data.target_lang,
        splits=[SplitSummary(split.name, len(split.pairs), split.unit) for split in corpus.splits.values()],
        downloads=list(corpus.downloads),
        sampled=min(SAMPLE, len(corpus.used["train"][1])),
        findings=sorted(findings, key=lambda finding: (LEVELS.index(finding.level), kinds.index(finding.name))),
        settings=suggested,
        verdict=_verdict(corpus, findings),
        command=command_line(config, changes),
        clean=command_line(config, changes, "clean", "--output", "cleaned") if cleaned_by(findings) else None,
    )


def cleaned_by(findings: Sequence[Finding]) -> bool:
    """Whether `dragoman clean` would drop some of what is grave in training."""
    return any(
        finding.level == "grave" and finding.split == "train" and finding.name in {"slipped", *REASONS}
        for finding in findings
    )


# What to expect from a model, by the number of pairs it is trained on: fewer than each key.
EXPECTATIONS = {
    1_000: "expect phrases, not sentences: it will know little beyond these",
    10_000: "expect simple sentences that are much like these",
    100_000: "expect good translations of text like this, and gaps in any other",
    1_000_000: "expect good translations of text like this, and usable ones of everyday text",
    math.inf: "enough for a general translator, if it is trained for hours on a GPU",
}


def _verdict(corpus: CheckedCorpus, findings: Sequence[Finding]) -> str:
    """What a beginner needs to know, in a sentence or two."""
    count, unit = len(corpus.used["train"][1]), unit_name(corpus.config.data)
    expectation = next(text for most, text in EXPECTATIONS.items() if count < most)
    grave = sum(finding.level == "grave" for finding in findings)
    offer = "dragoman clean, below, drops such pairs" if cleaned_by(findings) else "training would learn it"
    outlook = _outlook(corpus)
    shortages = "; ".join(outlook.shortages(corpus.config.training)) if outlook else ""
    first = f"Too little training: {shortages}." if shortages else "No serious problems found."
    if grave:
        first = f"First fix what is grave above ({grave}): {offer}."
    speed = f" On this machine, {outlook.until_usable()}." if outlook else ""
    return f"{first} {count:,} {unit}s to train on: {expectation}.{speed}"


def _outlook(corpus: CheckedCorpus) -> Outlook | None:
    """How long training takes on this machine."""
    train, rows = corpus.used["train"]
    lengths = encode_side(train.texts(sample(rows), 1), corpus.tokenizers[1]).lengths
    return Outlook.of(
        corpus.config, len(rows), len(rows) * float(lengths.mean()), len(corpus.tokenizers[1]), _measured_speed
    )


def _measured_speed(config: Config, length: float) -> float:
    """How many target tokens a second a model learns from here."""
    # These import torch, which takes a second, and only here does a check need it.
    from dragoman import device
    from dragoman.training.planning import target_tokens_per_second

    chosen = device.choose_device(config.training.device)
    device.tune_device(chosen)
    dtype = device.choose_precision(config.training.precision, chosen, device.matmul_rates(chosen))
    return target_tokens_per_second(config, length, chosen, dtype)


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """Format the diagnosis for a terminal, at most WIDTH columns wide except for what can be copied."""
    plain = diagnosis.source_lang is None
    read = ", ".join(f"{split.read:,} {split.name}" for split in diagnosis.splits)
    languages = diagnosis.target_lang if plain else f"{diagnosis.source_lang} to {diagnosis.target_lang}"
    title = f"{languages}: {read} {'text' if plain else 'pair'}s"
    if diagnosis.sampled == SAMPLE:
        title += f"; tokens are those of {SAMPLE:,}"
    units = {split.name: split.unit for split in diagnosis.splits}
    lines = [console.shorten(console.visible(title), WIDTH)]
    for record in diagnosis.downloads:
        lines += _origin_lines(record)
    lines += [""]
    for finding in diagnosis.findings:
        lines += _finding_lines(finding, units, plain)
    lines += [] if diagnosis.findings else ["no problems found"]
    options = [f"--{setting.key} {setting.value}" for setting in diagnosis.settings]
    width = max(map(len, options), default=0)
    lines += ["", "suggested settings:"] if options else []
    for option, setting in zip(options, diagnosis.settings, strict=True):
        lines += _hanging(f"  {option:<{width}}   ", setting.why)
    clean = ["", "clean with:", diagnosis.clean] if diagnosis.clean else []
    return [*lines, "", *textwrap.wrap(diagnosis.verdict, WIDTH), *clean, "", "train with:", diagnosis.command]


def _hanging(head: str, text: str) -> list[str]:
    """Wrap a text beside its head."""
    wrapped = textwrap.wrap(text, max(WIDTH - len(head), 20))
    return [(" " * len(head) if i else head) + line for i, line in enumerate(wrapped)]


def _origin_lines(record: Record) -> list[str]:
    url = record.url or "a file put into the cache"
    licence = record.licence.partition("\n")[0]
    lines = [f"from {url} ({record.size / 1e6:,.1f} MB, {record.date[:10]})"]  # not shortened: it can be copied
    lines += [console.shorten(f"licence: {licence}", WIDTH)] if licence else []
    return list(map(console.visible, lines))


def _finding_lines(finding: Finding, units: Mapping[str, str], plain: bool) -> list[str]:
    percent = share(finding.count, finding.of)
    head = f"{finding.level:<5}  {finding.split:<10}  {finding.count:>9,}  {percent:>8}  "
    lines = _hanging(head, console.visible(finding.text))
    for example in finding.examples:
        sides = [example.source, example.target][plain:]
        both = " | ".join(sides)
        texts = [both] if console.display_width(both) <= TEXT else [console.shorten(side, TEXT) for side in sides]
        number = f"       {units[finding.split]} {example.line:,}"
        lines += [f"{'' if i else number:<{WIDTH - TEXT - 2}}  {text}" for i, text in enumerate(texts)]
    return lines
