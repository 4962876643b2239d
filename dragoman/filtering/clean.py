"""Drop dirty pairs from a training corpus, and say why.

    dragoman clean --config mine.yaml --output corpus/clean
    dragoman clean --data.train my/pairs.tsv --data.source_lang en --data.target_lang de --output clean --keep numbers

Writes train.tsv with the pairs that stay, dropped.tsv with all others (reason, position, source, target), and
cleaning.json with the counts. Every pair that is read is in one of the two tables. `rules.REASONS` lists the reasons;
the same command with --keep REASON puts them back. Validation and test are not touched.

The corpus is read twice: for a sample to learn from, and to judge the pairs, in chunks, on all cores. Memory holds the
sample, some chunks, and 16 bytes for each pair that stays. The folder appears when it is complete, in place of an
earlier result of this command; a command that is stopped leaves nothing.

Exit codes: 0 done; 2 a mistake in the options; 3 data that cannot be read; 7 a disk that fails; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import tee
from pathlib import Path

from dragoman import console
from dragoman.corpora.formats.units import Units, unmarked
from dragoman.corpora.language_choice import with_languages
from dragoman.corpora.prepared_files import progress_bar
from dragoman.corpora.readers import read_units
from dragoman.corpora.sources import find_sources
from dragoman.errors import ConfigError
from dragoman.filtering.commands import command_line, require_one_corpus, share
from dragoman.filtering.judge import Judge, Sample, reasons_of
from dragoman.filtering.rules import REASONS, UNREADABLE
from dragoman.processes import cores
from dragoman.serialization import json_bytes
from dragoman.setting_types import did_you_mean
from dragoman.settings import DataConfig
from dragoman.storage import atomic_folder, storing

TRAIN, DROPPED, OUTCOME = "train.tsv", "dropped.tsv", "cleaning.json"
# What a folder may have that is replaced; the last three are files of earlier versions.
OWN_FILES = {TRAIN, DROPPED, OUTCOME, "report.html", "scores.tsv", ".lock"}
WIDTH = 80  # columns of the summary
_ONE_LINE = str.maketrans("\t\n\r", "   ")  # what a cell of a .tsv cannot hold


@dataclass
class Outcome:
    """What was read, kept and dropped; the fields are those of cleaning.json."""

    corpus: str
    source_lang: str
    target_lang: str
    unit: str  # what positions count, such as line
    read: int
    kept: int
    dropped: dict[str, int]  # pairs by reason, in the order of REASONS
    format: int = 2  # changes when readers must change

    def lines(self) -> list[str]:
        """Return a summary for a terminal, at most WIDTH columns wide."""

        def row(count: int, text: str) -> str:
            return f"{count:>10,}  {share(count, self.read):>8}  {text}"

        title = f"{self.source_lang} to {self.target_lang}, {self.corpus}"
        lines = [console.shorten(console.visible(title), WIDTH), "", f"{self.read:>10,}            pairs read"]
        lines += [row(self.kept, "kept"), row(self.read - self.kept, "dropped")]
        lines += [""] * bool(self.dropped)
        return lines + [row(count, f"{reason:<15} {REASONS[reason].text}") for reason, count in self.dropped.items()]


def main(options: argparse.Namespace) -> None:
    """Clean the training corpus of a config, and print what was dropped and how to train on the rest."""
    options.config = with_languages(options.config, console.warn)
    outcome = clean_corpus(options)
    for line in outcome.lines():
        console.say(line)
    console.say("")
    console.say(f"{options.output / DROPPED} lists what was dropped.")
    if outcome.kept:
        console.say("Train on the rest with:")
        console.say(train_command(options))


def train_command(options: argparse.Namespace) -> str:
    """Return the command that trains on the cleaned corpus, with the settings that were given."""
    cleaned = {"data.train": str(options.output / TRAIN), "data.columns": None, "data.on_bad_line": "error"}
    return command_line(options.config, cleaned)


def clean_corpus(options: argparse.Namespace) -> Outcome:
    """Clean a corpus; see the module. Raises ConfigError, DataError and StorageError."""
    data: DataConfig = replace(options.config.data, on_bad_line="skip")
    _check(options, data)
    source = next(source for source in find_sources(data) if source.split == "train")
    split = read_units(source, data, console.warn)["train"]
    judge, read = _learn(split.units, data, options.keep)
    with atomic_folder(options.output.resolve()) as folder, storing(options.output):
        units = read_units(source, data)["train"].units
        counts = _write_tables(folder, units, judge, options.processes or cores(), read)
        dropped = {reason: counts[reason] for reason in REASONS if counts[reason]}
        languages = str(data.source_lang), data.target_lang
        outcome = Outcome(data.train, *languages, split.unit, counts.total(), counts[""], dropped)
        (folder / OUTCOME).write_bytes(json_bytes(asdict(outcome)))
    return outcome


def _check(options: argparse.Namespace, data: DataConfig) -> None:
    """Raise an error for settings that this command cannot work with."""
    names = [name for name in REASONS if name not in UNREADABLE]
    for reason in options.keep:
        if reason not in names:
            hint = did_you_mean(reason, names, "") if reason not in REASONS else ": such pairs cannot be read."
            raise ConfigError(f"--keep names {reason}, which cannot be kept{hint}")
    if not data.source_lang:
        raise ConfigError("data.source_lang is null, but cleaning compares two sides: set it.")
    require_one_corpus(data, "clean takes")
    output, corpus = options.output.resolve(), Path(data.train).resolve()
    if output in (corpus, *corpus.parents):
        raise ConfigError(f"--output {options.output} holds the corpus that is to be cleaned: choose another folder.")
    if output.exists() and not output.is_dir():
        raise ConfigError(f"--output {options.output} is a file: choose another --output.")
    present = {path.name for path in output.iterdir()} if output.exists() else set()
    if present and not {OUTCOME} <= present <= OWN_FILES:
        strange = min(present - OWN_FILES or present)
        raise ConfigError(f"{options.output} has a {strange} that clean has not written: choose another --output.")


def _learn(units: Units, data: DataConfig, keep: Sequence[str]) -> tuple[Judge, int]:
    """Learn from a sample of the corpus. Returns the number of units, too."""
    sample, count = Sample(), 0
    with progress_bar("pair") as bar:
        bar.set_description("reading")
        for _, source, target in units:
            sample.add(source, target)
            count += 1
            bar.update()
    return Judge.learn(sample.pairs(), data, keep), count


def _write_tables(folder: Path, units: Units, judge: Judge, processes: int, count: int) -> Counter[str]:
    """Judge all pairs, write them to two tables, and count them by reason; "" is that of the pairs that stay."""
    counts, data = Counter[str](), judge.data
    units, to_judge = tee(units)  # the second is a few chunks ahead, so `tee` holds only those
    reasons = reasons_of((unit[1:] for unit in to_judge), judge, processes)
    # Bytes that are not UTF-8 become \\udce4.
    table = partial(open, mode="x", encoding="utf-8", errors="backslashreplace", newline="\n")
    with (
        table(folder / TRAIN) as kept,
        table(folder / DROPPED) as dropped,
        closing(reasons),
        progress_bar("pair", count) as bar,
    ):
        bar.set_description("cleaning")
        kept.write(f"{data.source_lang}\t{data.target_lang}\n")
        dropped.write("reason\tposition\tsource\ttarget\n")
        for (position, *texts), reason in zip(units, reasons, strict=True):
            source, target = (
                text if text.isprintable() else unmarked(text).translate(_ONE_LINE)  # `translate` is slow
                for text in texts
            )
            if reason:
                dropped.write(f"{reason}\t{position}\t{source}\t{target}\n")
            else:
                kept.write(f"{source}\t{target}\n")
            counts[reason] += 1
            bar.update()
    return counts
