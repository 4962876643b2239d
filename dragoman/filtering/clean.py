"""Drop dirty pairs from a training corpus, and say why.

    dragoman clean --config mine.yaml --output corpus/clean
    dragoman clean --data.train my/pairs.tsv --data.source_lang en --data.target_lang de --output clean --keep numbers

Writes train.tsv with the pairs that stay, dropped.tsv with all others (reason, position, source, target), cleaning.json
and report.html. Every pair that is read is in one of the two tables. `rules.REASONS` lists the reasons; the same
command with --keep REASON puts them back. Validation and test are not touched. With --forward and --backward, two
models score what stays (scores.tsv), and the worst of it is dropped too.

The corpus is read three times: for a sample to learn from, to judge the pairs, in chunks, on all cores, and to write
the tables. Memory holds the sample, some chunks, and 80 bytes for each pair that stays. Files get their names at the
end. A command that is stopped leaves only files that end in .part. The same command then learns from the sample again,
but judges and scores only the rest, and has the same result. With another corpus, or other settings than --processes,
--share and --threshold, it starts over.

Exit codes: 0 done; 2 a mistake in the options; 3 data that cannot be read; 4 no usable model; 5 another cleaning is
writing to the same folder; 7 a disk that fails; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from dragoman import console, reading, resources, run_lock, storage
from dragoman.corpora.formats.units import unmarked
from dragoman.corpora.language_choice import with_languages
from dragoman.corpora.prepared_files import GrowingFiles, progress_bar
from dragoman.corpora.readers import Split, read_units
from dragoman.corpora.sources import find_sources
from dragoman.errors import ConfigError, DataError
from dragoman.filtering.commands import command_line, require_one_corpus
from dragoman.filtering.duplicates import KEYS as KEY_COUNT
from dragoman.filtering.duplicates import Repeats
from dragoman.filtering.judge import Judge, Sample
from dragoman.filtering.model_scores import Score, Scorer, chosen
from dragoman.filtering.outcome import Outcome, dropped_of, render
from dragoman.filtering.rules import REASONS, UNREADABLE
from dragoman.filtering.workers import CHUNK, judged
from dragoman.processes import cores
from dragoman.serialization import json_bytes, sha256_of
from dragoman.setting_types import did_you_mean
from dragoman.settings import DataConfig

TRAIN, DROPPED, SCORES = "train.tsv", "dropped.tsv", "scores.tsv"
OUTCOME, PAGE = "cleaning.json", "report.html"
PART = ".part"  # ends the names of files that are not complete
RECORDS = "progress-*" + PART  # named by a hash of all that the other files depend on
# What a cleaning needs to continue: the number of the reason of each pair; keys and scores of those that stay.
JUDGED, KEYS, SCORED = (name + PART for name in ("judged", "keys", "scored"))
NUMBERS = {reason: number for number, reason in enumerate(["", *REASONS])}
BLOCK = 2000  # pairs that are scored at a time
SAVED_EVERY = 10  # chunks
_ONE_LINE = str.maketrans("\t\n\r", "   ")  # what a cell of a .tsv cannot hold


def main(options: argparse.Namespace) -> None:
    """Clean the training corpus of a config, and print what was dropped and how to train on the rest."""
    options.config = with_languages(options.config, console.warn)
    try:
        outcome = clean_corpus(options)
    except KeyboardInterrupt:
        console.warn("stopped: run the same command again to continue")
        raise
    for line in outcome.lines():
        console.say(line)
    console.say("")
    console.say(f"{options.output / DROPPED} lists what was dropped, {options.output / PAGE} shows it.")
    if outcome.kept:
        console.say("Train on the rest with:")
        console.say(train_command(options))


def train_command(options: argparse.Namespace) -> str:
    """Return the command that trains on the cleaned corpus, with the settings that were given."""
    cleaned = {"data.train": str(options.output / TRAIN), "data.columns": None, "data.on_bad_line": "error"}
    return command_line(options.config, cleaned)


def clean_corpus(options: argparse.Namespace) -> Outcome:
    """Clean a corpus; see the module. Raises ConfigError, DataError and RunInUseError."""
    data: DataConfig = replace(options.config.data, on_bad_line="skip")
    _check(options, data)
    with run_lock.lock(options.output, "choose another --output"):
        return _clean_locked(options, data)


def _clean_locked(options: argparse.Namespace, data: DataConfig) -> Outcome:
    """Clean a corpus into a folder that no other process writes to."""
    folder, profane = options.output, _word_list(options.profanity) if options.profanity else []
    scorer = Scorer.load(options.forward, options.backward, data, options.device) if options.forward else None
    sample, count, corpus = _read_sample(_training(data))
    record = folder / RECORDS.replace("*", _fingerprint(options, data, profane, scorer, corpus)[:16])
    with storage.storing(folder):
        _start_over_unless(record)
        files = dict.fromkeys([folder / JUDGED, folder / KEYS, folder / SCORED], b"")
        with GrowingFiles(record, files, {}) as growing:
            done = (folder / JUDGED).stat().st_size
            if done:
                console.say(f"Continuing after {done:,} pairs.")
            if done < count:
                judge = Judge.learn(sample.pairs(), data, options.keep, profane)
                del sample  # judging needs the memory
                _judge_all(folder, growing, judge, done, count, options.processes or cores())
            if scorer:
                _score_all(folder, growing, scorer, data)
        outcome = _write_tables(folder, options, data)
        _publish(folder, outcome, with_scores=scorer is not None)
    return outcome


def _read_sample(split: Split) -> tuple[Sample, int, str]:
    """Read the corpus once: a sample, the number of its pairs, and a hash of them all."""
    sample, count, hashed = Sample(), 0, hashlib.sha256()
    with progress_bar("pair") as bar:
        bar.set_description("reading")
        while units := list(islice(split.units, CHUNK)):
            hashed.update(repr(units).encode())
            for _, source, target in units:
                sample.add(source, target)
            count += len(units)
            bar.update(len(units))
    return sample, count, hashed.hexdigest()


def _fingerprint(
    options: argparse.Namespace, data: DataConfig, profane: Sequence[str], scorer: Scorer | None, corpus: str
) -> str:
    """Hash all that the files of a cleaning depend on. What only acts at its end is left out: --share, --threshold."""
    # A change anywhere in the program may change a reason or a score.
    files = sorted([*resources.HOME.glob("*.py"), *Path(__file__).parent.parent.rglob("*.py")])
    program = [path.read_text(encoding="utf-8") for path in files]
    libraries = [importlib.metadata.version(name) for name in ("numpy", "py3langid", "torch")]
    models = scorer.identity() if scorer else []
    parts = (corpus, asdict(data), sorted({*options.keep}), profane, models, options.device, CHUNK, program, libraries)
    return sha256_of(repr(parts).encode())


def _start_over_unless(record: Path) -> None:
    """Remove what another cleaning has left unfinished, unless there is the record of this one."""
    folder = record.parent
    if not record.exists():
        if any(folder.glob(RECORDS)):
            console.warn(
                f"{folder} has an unfinished cleaning, but with other settings, another corpus or another version of "
                "the program: starting over."
            )
        _remove_parts(folder)


def _remove_parts(folder: Path) -> None:
    for pattern in (RECORDS, "*" + PART):  # a record must not outlive a file that it describes
        for path in folder.glob(pattern):
            path.unlink()


def _judge_all(folder: Path, growing: GrowingFiles, judge: Judge, done: int, count: int, processes: int) -> None:
    """Judge the pairs that are not judged yet."""
    repeats = Repeats(judge.keep)
    with (folder / KEYS).open("rb") as file:
        while block := file.read(SAVED_EVERY * CHUNK * KEY_COUNT * 8):
            repeats.add(np.frombuffer(block, np.uint64).reshape(-1, KEY_COUNT))
    pairs = (unit[1:] for unit in islice(_training(judge.data).units, done, None))
    judgements = judged(pairs, judge, processes)
    with closing(judgements), progress_bar("pair", count, done) as bar:
        bar.set_description("cleaning")
        while some := list(islice(judgements, SAVED_EVERY)):
            for reasons, keys in some:
                repeats.mark(reasons, keys)
            numbers = bytes(NUMBERS[reason] for reasons, _ in some for reason in reasons)
            growing.append([numbers, b"".join(keys[keys.any(1)].tobytes() for _, keys in some), b""])
            bar.update(len(numbers))


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
    if Path(data.train).resolve() == (options.output / TRAIN).resolve():
        raise ConfigError(f"--output {options.output} holds the corpus that is to be cleaned: choose another folder.")
    if (options.output / TRAIN).exists() and not (options.output / OUTCOME).exists():
        raise ConfigError(f"{options.output} has a {TRAIN} that clean has not written: choose another --output.")


def _word_list(path: Path) -> list[str]:
    """Read words and phrases, one a line; lines that start with # are comments."""
    try:
        lines = reading.read(path, reading.TEXT).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--profanity {path} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _training(data: DataConfig) -> Split:
    """Open the training split."""
    source = next(source for source in find_sources(data) if source.split == "train")
    return read_units(source, data, console.warn)["train"]


def _score_all(folder: Path, growing: GrowingFiles, scorer: Scorer, data: DataConfig) -> None:
    """Score the pairs that have stayed so far and have no score yet, in blocks that are the same at each start."""
    numbers, done = (folder / JUDGED).read_bytes(), (folder / SCORED).stat().st_size // (3 * 8)
    pairs = (unit[1:] for unit, number in zip(_training(data).units, numbers, strict=True) if not number)
    rest = islice(pairs, done, None)
    with progress_bar("pair", numbers.count(0), done) as bar:
        bar.set_description("scoring")
        while block := list(islice(rest, BLOCK)):
            growing.append([b"", b"", np.array(scorer.score(block), np.float64).tobytes()])
            bar.update(len(block))


def _write_tables(folder: Path, options: argparse.Namespace, data: DataConfig) -> Outcome:
    """Write all tables, under the names of parts: the pairs that stay, and those that the rules or the scores drop."""
    split, reasons = _training(data), list(NUMBERS)
    numbers = np.fromfile(folder / JUDGED, np.uint8)
    scores = np.fromfile(folder / SCORED).reshape(-1, 3)
    if options.forward:
        stay = np.array(chosen(scores[:, 0].tolist(), options.share, options.threshold), bool)
        numbers[np.flatnonzero(numbers == 0)[~stay]] = NUMBERS["score"]
    scored = map(Score._make, scores.tolist())
    dropped, shown = dropped_of(numbers)
    with (
        _written(folder / (TRAIN + PART)) as train_table,
        _written(folder / (DROPPED + PART)) as dropped_table,
        _written(folder / (SCORES + PART)) as scores_table,
    ):
        train_table.write(f"{data.source_lang}\t{data.target_lang}\n")
        dropped_table.write("reason\tposition\tsource\ttarget\n")
        scores_table.write("position\tscore\tforward\tbackward\n")
        for row, ((position, *texts), number) in enumerate(zip(split.units, numbers.tobytes(), strict=True)):
            source, target = (
                text if text.isprintable() else unmarked(text).translate(_ONE_LINE)  # `translate` is slow
                for text in texts
            )
            if options.forward and reasons[number] in ("", "score"):
                score = next(scored)
                scores_table.write(f"{position}\t{score.score:.4f}\t{score.forward:.3f}\t{score.backward:.3f}\n")
            if number:
                dropped_table.write(f"{reasons[number]}\t{position}\t{source}\t{target}\n")
            else:
                train_table.write(f"{source}\t{target}\n")
            if row in shown:
                shown[row].add_example(position, source, target)
    kept = int((numbers == 0).sum())
    return Outcome(data.train, str(data.source_lang), data.target_lang, split.unit, len(numbers), kept, dropped)


@contextmanager
def _written(path: Path) -> Iterator[TextIO]:
    """Context manager: open a new table, and write it through to the disk at the end."""
    path.unlink(missing_ok=True)
    # Bytes that are not UTF-8 become \\udce4.
    with open(path, "x", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        yield file
    storage.sync(path)


def _publish(folder: Path, outcome: Outcome, with_scores: bool) -> None:
    """Write the report, give all files their names, train.tsv last, and remove what only a new start would need."""
    content = asdict(outcome)
    (folder / TRAIN).unlink(missing_ok=True)  # it never stands beside the list of another cleaning
    storage.replace_durably(folder / PAGE, render(content).encode())
    os.replace(folder / (DROPPED + PART), folder / DROPPED)
    (folder / SCORES).unlink(missing_ok=True)
    if with_scores:
        os.replace(folder / (SCORES + PART), folder / SCORES)
    storage.replace_durably(folder / OUTCOME, json_bytes(content))
    os.replace(folder / (TRAIN + PART), folder / TRAIN)
    _remove_parts(folder)
    storage.sync(folder)
