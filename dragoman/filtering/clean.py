"""Drop dirty pairs from a training corpus, and say why.

    dragoman clean --config mine.yaml --output corpus/clean
    dragoman clean --data.train my/pairs.tsv --data.source_lang en --data.target_lang de --output clean --keep numbers

Writes train.tsv with the pairs that stay, dropped.tsv with all others (reason, position, source, target), cleaning.json
and report.html. Every pair that is read is in one of the two tables. `rules.REASONS` lists the reasons; the same
command with --keep REASON puts them back. Validation and test are not touched. With --forward and --backward, two
models score what stays (scores.tsv), and the worst of it is dropped too.

The corpus is read twice: once for a sample to learn from, once to judge each pair, in chunks, on all cores. Memory
holds the sample, some chunks, and 80 bytes for each pair that stays. Files get their names when all is done: a run that
was killed leaves only files that end in .part, and the same command starts over.

Exit codes: 0 done; 2 a mistake in the options; 3 data that cannot be read; 4 no usable model; 5 another cleaning is
writing to the same folder; 7 a disk that fails.
"""

from __future__ import annotations

import argparse
import os
import shlex
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TextIO

from dragoman import console, run_lock, storage
from dragoman.corpora.formats.units import Unit
from dragoman.corpora.language_choice import with_languages
from dragoman.corpora.prepared_files import progress_bar
from dragoman.corpora.readers import Split, read_units
from dragoman.corpora.sources import find_sources, parse_mixture
from dragoman.errors import ConfigError, DataError
from dragoman.filtering import page
from dragoman.filtering.duplicates import SeenKeys
from dragoman.filtering.judge import Judge, Judgement, Sample
from dragoman.filtering.model_scores import Scorer, chosen
from dragoman.filtering.outcome import Outcome
from dragoman.filtering.rules import REASONS
from dragoman.filtering.workers import default_processes, judged
from dragoman.serialization import json_bytes
from dragoman.setting_types import did_you_mean
from dragoman.settings import DataConfig

TRAIN, DROPPED, SCORES = "train.tsv", "dropped.tsv", "scores.tsv"
OUTCOME, PAGE = "cleaning.json", "report.html"
SCORED = 2000  # pairs at a time
PART = ".part"  # ends the names of files that are not complete
_ONE_LINE = str.maketrans("\t\n\r", "   ")  # what a cell of a .tsv cannot hold


def main(options: argparse.Namespace) -> None:
    """Clean the training corpus of a config, and print what was dropped and how to train on the rest."""
    options.config = with_languages(options.config, console.warn)
    outcome = clean_corpus(options)
    for line in outcome.lines():
        console.say(line)
    console.say("")
    console.say(f"{options.output / DROPPED} lists what was dropped, {options.output / PAGE} shows it.")
    if outcome.kept:
        console.say("Train on the rest with:")
        console.say(train_command(options))


def clean_corpus(options: argparse.Namespace) -> Outcome:
    """Clean a corpus; see the module. Raises ConfigError, DataError and RunInUseError."""
    data: DataConfig = replace(options.config.data, on_bad_line="skip")
    _check(options, data)
    with run_lock.lock(options.output, "choose another --output"):
        return _clean_locked(options, data)


def _clean_locked(options: argparse.Namespace, data: DataConfig) -> Outcome:
    """Clean a corpus into a folder that no other process writes to."""
    profane = _word_list(options.profanity) if options.profanity else []
    scorer = Scorer.load(options.forward, options.backward, data, options.device) if options.forward else None
    split = _training(data)
    sample, count = Sample(), 0
    with progress_bar("pair") as bar:
        bar.set_description("reading")
        for _, source, target in split.units:
            sample.add(source, target)
            count += 1
            bar.update()
    judge = Judge.learn(sample.pairs(), data, options.keep, profane)
    del sample
    outcome = Outcome(data.train, str(data.source_lang), data.target_lang, split.unit)
    with (
        storage.storing(options.output),
        _tables(options.output, outcome) as (train, dropped),
        progress_bar("pair", count) as bar,
    ):
        bar.set_description("cleaning")
        chunks = judged(_training(data).units, judge, options.processes or default_processes())
        positions = array("q")
        for units, reasons in _without_repeats(chunks, judge.keep):
            positions.extend(unit[0] for unit, reason in zip(units, reasons, strict=True) if not reason)
            _write(units, reasons, train, dropped, outcome)
            bar.update(len(units))
        if scorer:
            _drop_by_score(scorer, options, positions, train, dropped, outcome)
    return outcome


def train_command(options: argparse.Namespace) -> str:
    """Return the command that trains on the cleaned corpus, with the settings that were given."""
    words = list(options.settings)
    for name in ("data.train", "data.columns", "data.on_bad_line"):
        for i in reversed(range(len(words))):
            if words[i] == f"--{name}":
                del words[i : i + 2]
            elif words[i].startswith(f"--{name}="):
                del words[i]
    data = options.config.data
    words += ["--data.train", str(options.output / TRAIN)]
    words += ["--data.columns", "null"] if data.columns else []
    return shlex.join(["dragoman", "train", *words])


def _check(options: argparse.Namespace, data: DataConfig) -> None:
    """Raise an error for settings that this command cannot work with."""
    for reason in options.keep:
        if reason not in REASONS or reason == "unreadable":
            names = [name for name in REASONS if name != "unreadable"]
            hint = did_you_mean(reason, names, "") if reason not in REASONS else ": such pairs cannot be read."
            raise ConfigError(f"--keep names {reason}, which cannot be kept{hint}")
    if not data.source_lang:
        raise ConfigError("data.source_lang is null, but cleaning compares two sides: set it.")
    if data.several:
        raise ConfigError(
            "data.directions is set, but clean takes one direction at a time: set it to null, and data.source_lang "
            "and data.target_lang to one of them."
        )
    if len(parse_mixture(data.train)) > 1:
        raise DataError("data.train names several corpora, but clean takes one at a time: set it to one.")
    if Path(data.train).resolve() == (options.output / TRAIN).resolve():
        raise ConfigError(f"--output {options.output} holds the corpus that is to be cleaned: choose another folder.")
    if (options.output / TRAIN).exists() and not (options.output / OUTCOME).exists():
        raise ConfigError(f"{options.output} has a {TRAIN} that clean has not written: choose another --output.")


def _word_list(path: Path) -> list[str]:
    """Read words and phrases, one a line; lines that start with # are comments."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--profanity {path} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _training(data: DataConfig) -> Split:
    """Open the training split."""
    source = next(source for source in find_sources(data) if source.split == "train")
    return read_units(source, data, console.warn)["train"]


def _without_repeats(
    chunks: Iterator[tuple[list[Unit], Judgement]], keep: frozenset[str]
) -> Iterator[tuple[list[Unit], list[str]]]:
    """Yield the units and reasons of each chunk; pairs that occurred before get a reason too."""
    exact, near = SeenKeys(), SeenKeys()
    for units, (reasons, keys) in chunks:
        for seen, columns, reason in ((near, slice(1, None), "near_duplicate"), (exact, slice(0, 1), "duplicate")):
            if reason not in keep:
                for row in seen.find_repeated(keys[:, columns]).nonzero()[0].tolist():
                    reasons[row] = reason
        yield units, reasons


def _write(units: list[Unit], reasons: list[str], train: TextIO, dropped: TextIO, outcome: Outcome) -> None:
    kept = []
    for (position, source, target), reason in zip(units, reasons, strict=True):
        source, target = source.translate(_ONE_LINE), target.translate(_ONE_LINE)
        if reason:
            dropped.write(f"{reason}\t{position}\t{source}\t{target}\n")
            outcome.drop(reason, position, source, target)
        else:
            kept.append(f"{source}\t{target}\n")
    train.write("".join(kept))
    outcome.read += len(units)


def _drop_by_score(
    scorer: Scorer,
    options: argparse.Namespace,
    positions: Sequence[int],
    train: TextIO,
    dropped: TextIO,
    outcome: Outcome,
) -> None:
    """Score the pairs that have stayed so far, in scores.tsv, and drop those that score too low."""
    train.flush()
    path = Path(train.name)
    scores = array("d")
    with (
        open(path, encoding="utf-8", newline="\n") as rows,
        open(path.with_name(SCORES + PART), "w", encoding="utf-8", newline="\n") as table,
        progress_bar("pair", len(positions)) as bar,
    ):
        bar.set_description("scoring")
        table.write("position\tscore\tforward\tbackward\n")
        next(rows)
        while block := [(source, target) for source, target in map(_cells, islice(rows, SCORED))]:
            for found in scorer.score(block):
                table.write(f"{positions[len(scores)]}\t{found.score:.4f}\t{found.forward:.3f}\t{found.backward:.3f}\n")
                scores.append(found.score)
            bar.update(len(block))
    stays = chosen(scores, options.share, options.threshold)
    with open(path, encoding="utf-8", newline="\n") as rows:
        lines = path.with_name(TRAIN + ".kept" + PART)
        with open(lines, "w", encoding="utf-8", newline="\n") as kept:
            kept.write(next(rows))
            for row, position, stay in zip(rows, positions, stays, strict=True):
                if stay:
                    kept.write(row)
                else:
                    source, target = _cells(row)
                    dropped.write(f"score\t{position}\t{source}\t{target}\n")
                    outcome.drop("score", position, source, target)
            kept.flush()
            os.fsync(kept.fileno())
    os.replace(lines, path)


def _cells(row: str) -> list[str]:
    return row.removesuffix("\n").split("\t")


@contextmanager
def _tables(folder: Path, outcome: Outcome) -> Iterator[tuple[TextIO, TextIO]]:
    """Open the two tables; when all is written, write the report and give all files their names, train.tsv last."""
    storage.make_folder(folder)
    for left in folder.glob("*" + PART):  # by a cleaning that was killed
        left.unlink()
    names = (TRAIN, DROPPED)
    heads = (f"{outcome.source_lang}\t{outcome.target_lang}\n", "reason\tposition\tsource\ttarget\n")
    with ExitStack() as stack:
        # What is not UTF-8 is written as \\udce4, so that the list can be read.
        files = [
            stack.enter_context(
                open(folder / (name + PART), "w", encoding="utf-8", errors="backslashreplace", newline="\n")
            )
            for name in names
        ]
        for file, head in zip(files, heads, strict=True):
            file.write(head)
        yield files[0], files[1]
        for file in files:
            file.flush()
            os.fsync(file.fileno())
    (folder / TRAIN).unlink(missing_ok=True)  # it never stands beside the list of another cleaning
    content = outcome.as_json()
    storage.replace_durably(folder / PAGE, page.render(content).encode())
    os.replace(folder / (DROPPED + PART), folder / DROPPED)
    (folder / SCORES).unlink(missing_ok=True)
    if (folder / (SCORES + PART)).exists():
        os.replace(folder / (SCORES + PART), folder / SCORES)
    storage.replace_durably(folder / OUTCOME, json_bytes(content))
    os.replace(folder / (TRAIN + PART), folder / TRAIN)
    storage.sync(folder)
