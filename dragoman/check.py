"""Check a corpus before training: what is wrong with it, and which settings suit it better.

    dragoman check --config mine.yaml                                 # the corpus that this training would use
    dragoman check --data.train corpus/train --data.target_lang fr --json

    diagnosis = check_corpus(config)                                  # .findings, .settings
    print("\n".join(diagnosis_lines(diagnosis)))

The corpus is read by the same strict readers as in training, but lines that are not UTF-8 are counted, where training
would stop. A check is a function of `CheckedCorpus` that yields findings and suggested settings; CHECKS lists them all.

Limits: meaning is not looked at. Misalignment shows in lengths and numbers. A line in a wrong language shows only if it
is that of the other side or in another script; a whole side in a wrong language shows if py3langid knows it. All pairs
are held in memory, a million in 0.6 GB, and take 35 seconds of processor time. Larger corpora are tokenised in a sample
of SAMPLE pairs, and the output says so.

Exit codes: 0 checked, whatever was found; 2 a mistake in the settings; 3 data that cannot be read; 4 training.init_from
names no model.
"""

from __future__ import annotations

import math
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict

from dragoman import console, presets, resources, settings
from dragoman.corpora.checks import corpus as checked
from dragoman.corpora.checks.alignment import check_alignment
from dragoman.corpora.checks.corpus import CheckedCorpus, sample
from dragoman.corpora.checks.findings import KINDS, LEVELS, Diagnosis, Finding, SplitSummary, SuggestedSetting
from dragoman.corpora.checks.languages import check_labels, check_languages
from dragoman.corpora.checks.pairs import check_letters, check_repeats, check_sides
from dragoman.corpora.checks.tokens import check_amounts, check_limits, check_vocabulary
from dragoman.corpora.checks.wording import check_conventions, check_wording
from dragoman.corpora.downloads.fetch import Record
from dragoman.corpora.language_choice import KEYS as LANGUAGES
from dragoman.corpora.language_choice import with_languages
from dragoman.corpora.sources import unit_name
from dragoman.dataset import encode_side
from dragoman.serialization import json_bytes
from dragoman.settings import DEFAULTS, Config
from dragoman.training.outlook import Outlook
from dragoman.translation.translator import Translator

WIDTH, TEXT = 80, 56  # columns of the output, and of the examples in it
CHECKS: tuple[Callable[[CheckedCorpus], Iterator[Finding | SuggestedSetting]], ...] = (
    check_letters, check_sides, check_alignment, check_repeats, check_languages, check_labels,
    check_wording, check_conventions, check_vocabulary, check_limits, check_amounts,
)  # fmt: skip


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
    found = [each for check in CHECKS for each in check(corpus)]
    findings = [each for each in found if isinstance(each, Finding)]
    kinds = list(KINDS)
    return Diagnosis(
        format=1,
        source_lang=config.data.source_lang,
        target_lang=config.data.target_lang,
        splits=[SplitSummary(split.name, len(split.pairs), split.unit) for split in corpus.splits.values()],
        downloads=list(corpus.downloads),
        sampled=min(checked.SAMPLE, len(corpus.used["train"][1])),
        findings=sorted(findings, key=lambda finding: (LEVELS.index(finding.level), kinds.index(finding.name))),
        settings=(suggested := [each for each in found if isinstance(each, SuggestedSetting)]),
        verdict=_verdict(corpus, findings),
        command=_command(config, suggested),
        clean=_command(config, suggested, "clean") if cleaned_by(findings) else None,
    )


# What to expect from a model, by the number of pairs it is trained on: fewer than each key.
EXPECTATIONS = {
    1_000: "expect phrases, not sentences: it will know these, and little else",
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
    first = f"Too little training: {shortages}." if shortages else "Nothing here stands in the way of training."
    if grave:
        first = f"Mend first what is grave above ({grave}): {offer}."
    here = f" On this machine, {outlook.until_usable()}." if outlook else ""
    return f"{first} {count:,} {unit}s to train on: {expectation}.{here}"


def _outlook(corpus: CheckedCorpus) -> Outlook | None:
    """How long training takes on this machine."""
    train, rows = corpus.used["train"]
    lengths = encode_side(train.texts(sample(rows), 1), corpus.tokenizers[1]).lengths
    return Outlook.of(
        corpus.config, len(rows), len(rows) * float(lengths.mean()), len(corpus.tokenizers[1]), _measured_speed
    )


def _measured_speed(config: Config, length: float) -> float:
    """How many target tokens a second a model learns from here."""
    # Importing torch takes a second, and only here does a check need it.
    import torch

    from dragoman import device
    from dragoman.training.speed import target_tokens_per_second

    here = device.choose_device(config.training.device)
    device.tune_device(here)
    rates = device.matmul_rates(here)
    dtype = device.choose_precision(config.training.precision, here, rates)
    return target_tokens_per_second(config, length, here, dtype, rates.get(dtype, rates[torch.float32]))


# What `dragoman clean` drops, for one reason or another.
CLEANED = frozenset([
    "not_utf8", "broken_row", "slipped", "unaligned", "mojibake", "replaced", "empty", "swapped", "language", "script",
    "copied", "near_copied", "uneven", "numbers", "duplicates",
])  # fmt: skip


def cleaned_by(findings: Sequence[Finding]) -> bool:
    """Whether `dragoman clean` would drop some of what is grave in training."""
    return any(each.level == "grave" and each.split == "train" and each.name in CLEANED for each in findings)


def _command(config: Config, suggested: Sequence[SuggestedSetting], name: str = "train") -> str:
    """The command that trains with these settings and those that are suggested."""
    of_preset = set(presets.KEYS) - config.chosen if config.model.preset else set()
    left_out = of_preset | config.unsaid | {"run.name"}
    given = {key: value for key, value in settings.values(config).items() if key not in left_out}
    given = {key: value for key, value in given.items() if value != DEFAULTS[key] or key in LANGUAGES}
    given |= {each.key: each.value for each in suggested}
    if config.data.train == DEFAULTS["data.train"]:
        given = {key: value for key, value in given.items() if key not in LANGUAGES}
    if name == "clean":
        given = {key: value for key, value in given.items() if key.startswith("data.")}
    words = [word for key, value in given.items() for word in (f"--{key}", "null" if value is None else str(value))]
    words += ["--output", "cleaned"] if name == "clean" else []
    return " ".join([resources.command(name), *map(shlex.quote, words)])


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """Format the diagnosis for a terminal, at most WIDTH columns wide except for what can be copied."""
    plain = diagnosis.source_lang is None
    read = ", ".join(f"{split.read:,} {split.name}" for split in diagnosis.splits)
    languages = diagnosis.target_lang if plain else f"{diagnosis.source_lang} to {diagnosis.target_lang}"
    title = f"{languages}: {read} {'text' if plain else 'pair'}s"
    if diagnosis.sampled == checked.SAMPLE:
        title += f"; tokens are those of {checked.SAMPLE:,}"
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
    for option, each in zip(options, diagnosis.settings, strict=True):
        lines += _hanging(f"  {option:<{width}}   ", each.why)
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
    share = finding.count / finding.of
    share = "< 0.01 %" if share < 0.0001 else f"{100 * share:.2f} %"
    head = f"{finding.level:<5}  {finding.split:<10}  {finding.count:>9,}  {share:>8}  "
    lines = _hanging(head, console.visible(finding.text))
    for each in finding.examples:
        sides = [each.source, each.target][plain:]
        both = " | ".join(sides)
        texts = [both] if console.display_width(both) <= TEXT else [console.shorten(side, TEXT) for side in sides]
        number = f"       {units[finding.split]} {each.line:,}"
        lines += [f"{'' if i else number:<{WIDTH - TEXT - 2}}  {text}" for i, text in enumerate(texts)]
    return lines
