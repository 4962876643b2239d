"""Drop dirty pairs from a training corpus, and say why.

    dragoman clean --config mine.yaml --output corpus/clean
    dragoman clean --data.train my/pairs.tsv --data.source_lang en --data.target_lang de --output clean --keep numbers

Writes train.tsv with the pairs that stay, dropped.tsv with all others (reason, position, source, target), cleaning.json
and report.html. Every pair that is read is in one of the two tables. `rules.REASONS` lists the reasons; the same
command with --keep REASON puts them back. Validation and test are not touched. With --forward and --backward, two
models score what stays (scores.tsv), and the worst of it is dropped too.

The corpus is read twice: once for a sample to learn from, once to judge each pair, in chunks, on all cores. Memory
holds the sample, some chunks, and 80 bytes for each pair that stays. Files get their names at the end. A command that
is stopped leaves only files that end in .part. The same command then learns from the sample again, only reads the pairs
that are judged or scored already, and has the same result. With another corpus, or other settings than --processes,
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
from typing import Literal, TextIO

import numpy as np

from dragoman import console, reading, resources, run_lock, storage
from dragoman.corpora.formats.units import Unit, unmarked
from dragoman.corpora.language_choice import with_languages
from dragoman.corpora.prepared_files import GrowingFiles, progress_bar, read_json
from dragoman.corpora.readers import Split, read_units
from dragoman.corpora.sources import find_sources, parse_mixture
from dragoman.errors import ConfigError, DataError
from dragoman.filtering.commands import command_line
from dragoman.filtering.duplicates import KEYS as KEY_COUNT
from dragoman.filtering.duplicates import Repeats
from dragoman.filtering.judge import Judge, Sample
from dragoman.filtering.model_scores import Score, Scorer, chosen
from dragoman.filtering.outcome import Outcome, render
from dragoman.filtering.rules import REASONS, UNREADABLE
from dragoman.filtering.workers import CHUNK, judged
from dragoman.processes import cores
from dragoman.serialization import json_bytes, sha256_of
from dragoman.setting_types import did_you_mean
from dragoman.settings import DataConfig

TRAIN, DROPPED, SCORES_TABLE = "train.tsv", "dropped.tsv", "scores.tsv"
OUTCOME, PAGE = "cleaning.json", "report.html"
PART = ".part"  # ends the names of files that are not complete
RECORD = "progress.json" + PART
DROPPED_HEAD = b"reason\tposition\tsource\ttarget\n"
# Arrays that a cleaning needs to continue: keys of the pairs seen, positions and scores of those that stay.
KEYS, POSITIONS, SCORES = "keys", "positions", "scores"
GROWING = (TRAIN, DROPPED, KEYS, POSITIONS, SCORES)
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
    profane = _word_list(options.profanity) if options.profanity else []
    scorer = Scorer.load(options.forward, options.backward, data, options.device) if options.forward else None
    split = _training(data)
    sample, count, corpus = _read_sample(split)
    outcome = Outcome(data.train, str(data.source_lang), data.target_lang, split.unit)
    fingerprint = _fingerprint(options, data, profane, scorer, corpus)
    folder = options.output
    with storage.storing(folder):
        _start_over_unless(folder, fingerprint)
        languages = f"{outcome.source_lang}\t{outcome.target_lang}\n"
        heads = dict.fromkeys(_paths(folder), b"") | {
            _part(folder, TRAIN): languages.encode(), _part(folder, DROPPED): DROPPED_HEAD,
        }  # fmt: skip
        with GrowingFiles(folder / RECORD, heads, {"fingerprint": fingerprint, **outcome.state()}) as growing:
            outcome.restore(growing.state)
            if outcome.read:
                console.say(f"Continuing after {outcome.read:,} pairs.")
            if outcome.read < count:
                judge = Judge.learn(sample.pairs(), data, options.keep, profane)
                del sample
                repeats = _seen_before(folder, judge)
                chunks = judged(islice(_training(data).units, outcome.read, None), judge, options.processes or cores())
                with closing(chunks), progress_bar("pair", count, outcome.read) as bar:
                    bar.set_description("cleaning")
                    while some := list(islice(chunks, SAVED_EVERY)):
                        rows = [_rows(units, *judgement, repeats, outcome) for units, judgement in some]
                        growing.state.update(outcome.state())
                        growing.append(b"".join(parts) for parts in zip(*rows, strict=True))
                        bar.update(sum(len(units) for units, _ in some))
            if scorer:
                _score_all(folder, growing, scorer)
        kept = _drop_by_score(folder, options.share, options.threshold, outcome) if scorer else _part(folder, TRAIN)
        _publish(folder, kept, outcome)
    return outcome


def _part(folder: Path, name: str) -> Path:
    return folder / (name + PART)


def _paths(folder: Path) -> list[Path]:
    return [_part(folder, name) for name in GROWING]


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


def _start_over_unless(folder: Path, fingerprint: str) -> None:
    """Remove what another cleaning has left unfinished, so that this one continues only its own work."""
    record = read_json(folder / RECORD)
    if record and record["state"]["fingerprint"] == fingerprint:
        return
    if record:
        console.warn(
            f"{folder} has an unfinished cleaning, but with other settings, another corpus or another version of the "
            "program: starting over."
        )
    _remove_parts(folder)


def _remove_parts(folder: Path) -> None:
    (folder / RECORD).unlink(missing_ok=True)  # first: it must not outlive a file that it describes
    for path in folder.glob("*" + PART):
        path.unlink()


def _seen_before(folder: Path, judge: Judge) -> Repeats:
    """Return the pairs that are judged already, to find repetitions of them."""
    repeats = Repeats(judge.keep)
    with _part(folder, KEYS).open("rb") as file:
        while block := file.read(SAVED_EVERY * CHUNK * KEY_COUNT * 8):
            repeats.add(np.frombuffer(block, np.uint64).reshape(-1, KEY_COUNT))
    return repeats


def _check(options: argparse.Namespace, data: DataConfig) -> None:
    """Raise an error for settings that this command cannot work with."""
    names = [name for name in REASONS if name not in UNREADABLE]
    for reason in options.keep:
        if reason not in names:
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


def _rows(
    units: Sequence[Unit], reasons: list[str], keys: np.ndarray, repeats: Repeats, outcome: Outcome
) -> tuple[bytes, ...]:
    """Mark repeated pairs, count what is dropped, and return what to append to each of GROWING."""
    repeats.mark(reasons, keys)
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
    outcome.read += len(units)
    return (
        "".join(kept).encode(),
        "".join(dropped).encode(errors="backslashreplace"),  # bytes that are not UTF-8: \\udce4
        keys[keys.any(1)].tobytes(),
        np.array(positions, np.int64).tobytes(),
        b"",
    )


def _score_all(folder: Path, growing: GrowingFiles, scorer: Scorer) -> None:
    """Score the pairs that have stayed so far and have no score yet, in blocks that are the same at each start."""
    done, count = (_part(folder, name).stat().st_size // size for name, size in ((SCORES, 3 * 8), (POSITIONS, 8)))
    with (
        open(_part(folder, TRAIN), encoding="utf-8", newline="\n") as table,
        progress_bar("pair", count, done) as bar,
    ):
        bar.set_description("scoring")
        rows = islice(table, 1 + done, None)
        while block := [(source, target) for source, target in map(_cells, islice(rows, SCORED))]:
            growing.append([b"", b"", b"", b"", np.array(scorer.score(block), np.float64).tobytes()])
            bar.update(len(block))


def _drop_by_score(folder: Path, share: float | None, least: float | None, outcome: Outcome) -> Path:
    """Write scores.tsv, and drop the pairs that score too low. Returns the table of the others."""
    scores = np.fromfile(_part(folder, SCORES)).reshape(-1, 3)
    positions = np.fromfile(_part(folder, POSITIONS), np.int64).tolist()
    stays = chosen(scores[:, 0].tolist(), share, least)
    path = _part(folder, f"kept-{TRAIN}")
    with (
        open(_part(folder, TRAIN), encoding="utf-8", newline="\n") as rows,
        _written(path) as kept,
        _written(_part(folder, SCORES_TABLE)) as table,
        _written(_part(folder, DROPPED), "a") as dropped,
    ):
        table.write("position\tscore\tforward\tbackward\n")
        kept.write(next(rows))
        for row, position, stay, score in zip(rows, positions, stays, map(Score._make, scores.tolist()), strict=True):
            table.write(f"{position}\t{score.score:.4f}\t{score.forward:.3f}\t{score.backward:.3f}\n")
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
    """Context manager: open a table, and write it through to the disk at the end."""
    with open(path, mode, encoding="utf-8", newline="\n") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _publish(folder: Path, kept: Path, outcome: Outcome) -> None:
    """Write the report, give all files their names, train.tsv last, and remove what only a new start would need."""
    content = outcome.as_json()
    (folder / TRAIN).unlink(missing_ok=True)  # it never stands beside the list of another cleaning
    storage.replace_durably(folder / PAGE, render(content).encode())
    (folder / RECORD).unlink()  # it must not outlive a file that it describes
    storage.sync(folder)
    os.replace(_part(folder, DROPPED), folder / DROPPED)
    (folder / SCORES_TABLE).unlink(missing_ok=True)
    if _part(folder, SCORES_TABLE).exists():
        os.replace(_part(folder, SCORES_TABLE), folder / SCORES_TABLE)
    storage.replace_durably(folder / OUTCOME, json_bytes(content))
    os.replace(kept, folder / TRAIN)
    _remove_parts(folder)
    storage.sync(folder)
