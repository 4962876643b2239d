"""Read sentence pairs from files and data sets, strictly.

    splits = read_units(source, config.data)             # {"train": Split of (1, "Hello.", "Ciao."), ..., ...}

Nothing is guessed: a line that is not UTF-8, or that has no partner, raises a DataError that says where, because a file
that slips by one line teaches a wrong translation from there on. With data.on_bad_line skip, such lines, and rows with
too few or too many cells, are read with lone surrogates, so that the caller can drop the whole pair and say why.

`formats` has a reader for each kind of file. Data sets are read here, by the `datasets` library.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dragoman.corpora.formats.by_suffix import format_of
from dragoman.corpora.formats.records import read_rows, reason
from dragoman.corpora.formats.units import Say, Units
from dragoman.corpora.leftovers import undone
from dragoman.corpora.sources import ALIASES, Languages, Source, by_languages, directions_of
from dragoman.dataset import Pair
from dragoman.directions import tagged
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.setting_types import shown
from dragoman.settings import DataConfig


class Split(NamedTuple):
    """A split that is not read yet."""

    units: Units
    unit: str  # what their positions count


def read_units(source: Source, data: DataConfig, say: Say = lambda choice: None) -> dict[str, Split]:
    """Return the raw pairs of each split of a source, each with its position. Nothing is read yet.

    A file has one split, the one it was named for. A folder or a data set must have that split, and may have others.
    `say` is called for each choice that is not obvious. Raises DataError, now or while iterating.
    """
    several = source.languages is not None
    data = by_languages(data)[source.languages] if several else data
    splits = {}
    if source.split_files:
        for split, paths in source.split_files.items():
            try:
                format, files = format_of(paths, data)
            except OtherLanguagesError:  # of a .zip, which is not looked into before
                if not data.directions:
                    raise
                continue
            splits[split] = Split(undone(format.read(files, data, say), str(files[0]), say), format.unit)
    else:
        splits = _read_dataset(source, data, say)
    for alias in [alias for alias in ALIASES if alias in splits]:
        splits.setdefault(ALIASES[alias], splits.pop(alias))
    if source.split not in splits and not several:
        raise DataError(f"{source} has no split {source.split}, only {', '.join(splits)}: name another, or files.")
    if several:
        return splits
    return {name: Split(_not_empty(split.units, source), split.unit) for name, split in splits.items()}


def say_choices(sources: Sequence[Source], data: DataConfig, say: Say) -> None:
    """Say how the files that the settings name are read, where that is not obvious. Reads their first rows only.

    Raises DataError.
    """
    for source in sources:
        if source.split_files and (split := read_units(source, data, say).get(source.split)):
            next(split.units, None)


def for_directions(pair: Pair, languages: Languages | None, data: DataConfig) -> list[Pair]:
    """Return a cleaned pair once for each direction that learns from it, tagged; unchanged without data.directions."""
    if languages is None:
        return [pair]
    by_name = dict(zip(languages, pair, strict=True))
    return [(tagged(by_name[each.source], each), by_name[each.target]) for each in directions_of(languages, data)]


def _not_empty(units: Units, source: Source) -> Units:
    empty = True
    for unit in units:
        empty = False
        yield unit
    if empty:
        raise DataError(f"{source} is empty: there is nothing to learn from.")


def _read_dataset(source: Source, data: DataConfig, say: Say) -> dict[str, Split]:
    for file in source.files:
        if file.suffix in (".pkl", ".pickle"):
            raise DataError(f"{file} is a pickle, which can run code when it is read: convert it to .jsonl or .tsv.")
    by_ending = {file.suffix: file for file in source.files}
    table = by_ending.get(".tsv", by_ending.get(".csv"))
    if table and not by_ending.keys() & {".parquet", ".jsonl", ".json", ".arrow"}:
        raise DataError(
            f"{source} has {table.relative_to(source.path)}, but the `datasets` library reads quotes and missing "
            f"values in tables by other rules than this program: name the files, as in data.train: {table}"
        )
    if source.files and (patterns := set(source.path) & set("*?[")):
        raise DataError(f"{source}: a folder of many files cannot have {' or '.join(sorted(patterns))} in its path.")
    if source.files and not by_ending.keys() & {".parquet", ".jsonl", ".json", ".arrow", ".zip", ".py", ".gz", ".zst"}:
        there = ", ".join(file.name for file in source.files[:6])
        two = ", ".join(str(Path(source.name) / file.relative_to(source.path)) for file in source.files[:2])
        raise DataError(f'{source} has {there}: name the file of pairs, or two files, as in --data.train "{two}"')
    import datasets  # takes seconds to import, and plain files do not need it

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        # Parquet files that are here are read as they are; of others, the library makes a memory-mapped copy. Streaming
        # from the hub would download again each time the pairs are read: to choose a preset, to prepare, to resume.
        streaming = bool(source.files) and ".parquet" in by_ending
        tables = datasets.load_dataset(source.path, data.config, revision=data.revision, streaming=streaming)
    except ConnectionError as error:
        raise DataError(
            f"{source} is not on this machine, and the Hugging Face hub cannot be reached: try again later, or set "
            "data.train, data.validation and data.test to files of your own, such as pairs.tsv."
        ) from error
    except Exception as error:  # whatever the library, its builders and the hub client may raise
        remedy = f" Set data.config (now {shown(data.config)}) to one of these; each serves both directions."
        raise DataError(
            f"{source} cannot be loaded: {reason(error)}{remedy if 'config' in str(error).lower() else ''}"
        ) from error
    assert isinstance(tables, dict)
    return {
        str(name): Split(undone(read_rows(table, data, f"{source}, split {name}"), str(source), say), "row")
        for name, table in tables.items()
    }
