"""Drop dirty pairs from a training corpus, and say why.

    dragoman clean --config mine.yaml --output corpus/clean
    dragoman clean --data.train my/pairs.tsv --data.source_lang en --data.target_lang de --output clean --keep numbers

Writes train.tsv with the pairs that stay, dropped.tsv with all others (reason, position, source, target), cleaning.json
and report.html. Every pair that is read is in one of the two tables. `rules.REASONS` lists the reasons; the same
command with --keep REASON puts them back. Validation and test are not touched. With --forward and --backward, two
models score what stays (scores.tsv), and the worst of it is dropped too.

The corpus is read twice: once for a sample to learn from, once to judge each pair, in chunks, on all cores. Memory
holds the sample, some chunks, and 80 bytes for each pair that stays. Files get their names when all is done. If it is
stopped, only files that end in .part are left, and the same command continues with the same result, see `progress`: the
sample is learnt again, and pairs that were judged or scored are only read. With another corpus, or other settings than
--processes, --share and --threshold, it starts over.

Exit codes: 0 done; 2 a mistake in the options; 3 data that cannot be read; 4 no usable model; 5 another cleaning is
writing to the same folder; 7 a disk that fails; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, TextIO

import numpy as np

from dragoman import console, reading, resources, run_lock, storage
from dragoman.corpora.formats.languages import within_one
from dragoman.corpora.formats.units import Unit, unmarked
from dragoman.corpora.language_choice import with_languages
from dragoman.corpora.prepared_files import progress_bar
from dragoman.corpora.readers import Split, read_units
from dragoman.corpora.sources import find_sources, parse_mixture
from dragoman.errors import ConfigError, DataError
from dragoman.filtering import page
from dragoman.filtering.duplicates import KEYS as KEY_COUNT
from dragoman.filtering.duplicates import Repeats
from dragoman.filtering.judge import SAME_LANGUAGE, Judge, Sample
from dragoman.filtering.model_scores import Score, Scorer, chosen
from dragoman.filtering.outcome import Outcome
from dragoman.filtering.progress import Unfinished, remove_unfinished, unfinished
from dragoman.filtering.rules import REASONS
from dragoman.filtering.workers import CHUNK, judged
from dragoman.processes import cores
from dragoman.serialization import json_bytes, sha256_of
from dragoman.setting_types import did_you_mean
from dragoman.settings import DataConfig

TRAIN, DROPPED, SCORES_TABLE = "train.tsv", "dropped.tsv", "scores.tsv"
OUTCOME, PAGE = "cleaning.json", "report.html"
DROPPED_HEAD = b"reason\tposition\tsource\ttarget\n"
# Arrays that a cleaning needs to continue: keys of the pairs seen, positions and scores of those that stay.
KEYS, POSITIONS, SCORES = "keys", "positions", "scores"
SCORED = 2000  # pairs at a time
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


def clean_corpus(options: argparse.Namespace) -> Outcome:
    """Clean a corpus; see the module. Raises ConfigError, DataError and RunInUseError."""
    data: DataConfig = replace(options.config.data, on_bad_line="skip")
    _check(options, data)
    if within_one(data):
        options.keep = [*options.keep, *SAME_LANGUAGE]
    with run_lock.lock(options.output, "choose another --output"):
        return _clean_locked(options, data)


def _clean_locked(options: argparse.Namespace, data: DataConfig) -> Outcome:
    """Clean a corpus into a folder that no other process writes to."""
    profane = _word_list(options.profanity) if options.profanity else []
    scorer = Scorer.load(options.forward, options.backward, data, options.device) if options.forward else None
    split = _training(data)
    sample, count, corpus = _read_sample(split)
    outcome = Outcome(data.train, str(data.source_lang), data.target_lang, split.unit)
    heads = {TRAIN: f"{outcome.source_lang}\t{outcome.target_lang}\n".encode(), DROPPED: DROPPED_HEAD, KEYS: b""}
    if scorer:
        heads |= {POSITIONS: b"", SCORES: b""}
    fingerprint = _fingerprint(options, data, profane, scorer, corpus)
    with storage.storing(options.output):
        with unfinished(options.output, fingerprint, heads) as work:
            outcome.restore(work.state)
            if outcome.read:
                console.say(f"Continuing after {outcome.read:,} pairs.")
            if outcome.read < count:
                judge = Judge.learn(sample.pairs(), data, options.keep, profane)
                del sample
                _judge_all(work, judge, _training(data).units, count, options.processes, outcome)
            if scorer:
                _score_all(work, scorer, outcome)
        kept = _drop_by_score(work, options.share, options.threshold, outcome) if scorer else work.path(TRAIN)
        _publish(work, kept, outcome)
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
    program = [path.read_text(encoding="utf-8") for path in program_files()]
    libraries = [importlib.metadata.version(name) for name in ("numpy", "py3langid", "torch")]
    models = scorer.identity() if scorer else []
    parts = (corpus, asdict(data), sorted({*options.keep}), profane, models, options.device, CHUNK, program, libraries)
    return sha256_of(repr(parts).encode())


def program_files() -> list[Path]:
    """The code of the program: a change anywhere may change a reason or a score."""
    return sorted([*resources.HOME.glob("*.py"), *Path(__file__).parent.parent.rglob("*.py")])


def _judge_all(
    work: Unfinished, judge: Judge, units: Iterator[Unit], count: int, processes: int | None, outcome: Outcome
) -> None:
    """Judge all pairs that have not been judged yet, and write each to its table."""
    repeats = Repeats(judge.keep)
    with open(work.path(KEYS), "rb") as file:
        while block := file.read(SAVED_EVERY * CHUNK * KEY_COUNT * 8):
            repeats.add(np.frombuffer(block, np.uint64).reshape(-1, KEY_COUNT))
    chunks = judged(islice(units, outcome.read, None), judge, processes or cores())
    with closing(chunks), progress_bar("pair", count, outcome.read) as bar:
        bar.set_description("cleaning")
        for number, (chunk, (reasons, keys)) in enumerate(chunks, 1):
            repeats.mark(reasons, keys)
            work.files[KEYS].write(keys[keys.any(1)].tobytes())
            _write(chunk, reasons, work.files, outcome)
            bar.update(len(chunk))
            if number % SAVED_EVERY == 0:
                work.save(outcome.state())
    work.save(outcome.state())


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
        lines = reading.read(path, reading.TEXT).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--profanity {path} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _training(data: DataConfig) -> Split:
    """Open the training split."""
    source = next(source for source in find_sources(data) if source.split == "train")
    return read_units(source, data, console.warn)["train"]


def _write(units: Sequence[Unit], reasons: Sequence[str], files: Mapping[str, BinaryIO], outcome: Outcome) -> None:
    kept: list[str] = []
    dropped: list[str] = []
    positions: list[int] = []
    for (position, source, target), reason in zip(units, reasons, strict=True):
        if not (source.isprintable() and target.isprintable()):  # `translate` is slow
            source, target = source.translate(_ONE_LINE), target.translate(_ONE_LINE)
        if reason:
            source, target = unmarked(source), unmarked(target)
            dropped.append(f"{reason}\t{position}\t{source}\t{target}\n")
            outcome.drop(reason, position, source, target)
        else:
            kept.append(f"{source}\t{target}\n")
            positions.append(position)
    files[TRAIN].write("".join(kept).encode())
    files[DROPPED].write("".join(dropped).encode(errors="backslashreplace"))  # bytes that are not UTF-8: \\udce4
    if POSITIONS in files:
        files[POSITIONS].write(np.array(positions, np.int64).tobytes())
    outcome.read += len(units)


def _score_all(work: Unfinished, scorer: Scorer, outcome: Outcome) -> None:
    """Score the pairs that have stayed so far and have no score yet, in blocks that are the same at each start."""
    done, count = (work.files[name].tell() // size for name, size in ((SCORES, 3 * 8), (POSITIONS, 8)))
    with (
        open(work.path(TRAIN), encoding="utf-8", newline="\n") as table,
        progress_bar("pair", count, done) as bar,
    ):
        bar.set_description("scoring")
        rows = islice(table, 1 + done, None)
        while block := [(source, target) for source, target in map(_cells, islice(rows, SCORED))]:
            work.files[SCORES].write(np.array(scorer.score(block), np.float64).tobytes())
            work.save(outcome.state())
            bar.update(len(block))


def _drop_by_score(work: Unfinished, share: float | None, least: float | None, outcome: Outcome) -> Path:
    """Write scores.tsv, and drop the pairs that score too low. Returns the table of the others."""
    scores = np.fromfile(work.path(SCORES)).reshape(-1, 3)
    positions = np.fromfile(work.path(POSITIONS), np.int64).tolist()
    stays = chosen(scores[:, 0].tolist(), share, least)
    path = work.path(f"kept-{TRAIN}")
    with (
        open(work.path(TRAIN), encoding="utf-8", newline="\n") as rows,
        _written(path) as kept,
        _written(work.path(SCORES_TABLE)) as table,
        _written(work.path(DROPPED), "a") as dropped,
    ):
        table.write("position\tscore\tforward\tbackward\n")
        kept.write(next(rows))
        for row, position, stay, found in zip(rows, positions, stays, map(Score._make, scores.tolist()), strict=True):
            table.write(f"{position}\t{found.score:.4f}\t{found.forward:.3f}\t{found.backward:.3f}\n")
            if stay:
                kept.write(row)
            else:
                source, target = _cells(row)
                dropped.write(f"score\t{position}\t{source}\t{target}\n")
                outcome.drop("score", position, source, target)
    return path


def _cells(row: str) -> list[str]:
    return row.removesuffix("\n").split("\t")


@contextmanager
def _written(path: Path, mode: Literal["w", "a"] = "w") -> Iterator[TextIO]:
    """Open a table, and write it through to the disk at the end."""
    with open(path, mode, encoding="utf-8", newline="\n") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _publish(work: Unfinished, kept: Path, outcome: Outcome) -> None:
    """Write the report, give all files their names, train.tsv last, and remove what only a new start would need."""
    folder, content = work.folder, outcome.as_json()
    (folder / TRAIN).unlink(missing_ok=True)  # it never stands beside the list of another cleaning
    storage.replace_durably(folder / PAGE, page.render(content).encode())
    os.replace(work.path(DROPPED), folder / DROPPED)
    (folder / SCORES_TABLE).unlink(missing_ok=True)
    if work.path(SCORES_TABLE).exists():
        os.replace(work.path(SCORES_TABLE), folder / SCORES_TABLE)
    storage.replace_durably(folder / OUTCOME, json_bytes(content))
    os.replace(kept, folder / TRAIN)
    remove_unfinished(folder)
    storage.sync(folder)
