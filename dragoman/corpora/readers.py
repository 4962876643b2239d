"""Read sentence pairs from files and data sets."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from dragoman.corpora.cleaning import decode_line
from dragoman.corpora.sources import (
    ALIASES,
    Source,
    about_configs,
    by_languages,
    directions_of,
    is_text,
    languages_of,
    unreadable,
)
from dragoman.dataset import Pair
from dragoman.directions import tagged
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.settings import DataConfig

ROWS = 10_000  # of parquet that are turned into Python's objects at a time


# --- Reading ------------------------------------------------------------------------------------------------------


def read_splits(source: Source, data: DataConfig) -> dict[str, Iterator[Pair]]:
    """The raw pairs of a source by split, read as they are asked for, once.

    A file has one split, the one that it was named for. A folder or a data set must have that one, and brings the
    others that it has. DataError, now or on the way, for what cannot be read.
    """
    several = source.languages is not None
    data = by_languages(data)[source.languages] if several else data
    if source.parts:
        splits = {split: _read_part(part, data) for split, part in source.parts.items()}
    else:
        splits = _read_dataset(source, data)
    for alias in [alias for alias in ALIASES if alias in splits]:
        splits.setdefault(ALIASES[alias], splits.pop(alias))
    if source.split not in splits and not several:
        raise DataError(f"{source} has no split {source.split}, only {', '.join(splits)}: name another, or files.")
    return splits if several else {split: _not_empty(pairs, source) for split, pairs in splits.items()}


def _read_part(part: tuple[Path, ...], data: DataConfig) -> Iterator[Pair]:
    if len(part) == 2:
        return _read_text(*part, data)
    return _READERS.get(part[0].suffix, _read_plain)(part[0], data)


def _pair(sides: Iterable[str]) -> Pair:
    """Both sides, or the text alone, as a pair."""
    *source, target = sides
    return "".join(source), target


def _not_empty(pairs: Iterator[Pair], source: Source) -> Iterator[Pair]:
    empty = True
    for pair in pairs:
        empty = False
        yield pair
    if empty:
        raise DataError(f"{source} is empty: there is nothing to learn from.")


def _lines(path: Path, data: DataConfig) -> Iterator[str]:
    """The lines of a file, ended by LF alone.

    Python's text files, its `splitlines` and the text reader of `datasets` also break lines at some of CR, FF, NEL and
    U+2028, and one such character in one of two parallel files shifts the rest by a line.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                yield decode_line(raw, str(path), number, strict=data.on_bad_line == "error")
    except OSError as error:
        raise unreadable(path, error) from error


def _read_text(source: Path, target: Path, data: DataConfig) -> Iterator[Pair]:
    sides = _lines(source, data), _lines(target, data)
    for number, pair in enumerate(zip_longest(*sides)):
        if None in pair:
            more = 1 + sum(1 for side in sides for _ in side)
            counts = [number + more * (text is not None) for text in pair]
            raise DataError(
                f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}, but line n of one must be the "
                "translation of line n of the other: find where they part."
            )
        yield pair


def _read_plain(path: Path, data: DataConfig) -> Iterator[Pair]:
    return (("", line) for line in _lines(path, data))


def _read_tsv(path: Path, data: DataConfig) -> Iterator[Pair]:
    rows = ((f"{path}:{number}", line.split("\t")) for number, line in enumerate(_lines(path, data), 1))
    return _pairs_of_cells(rows, data)


def _read_csv(path: Path, data: DataConfig) -> Iterator[Pair]:
    # A blank after a comma would make the quotes behind it part of the text.
    reader = csv.reader((line + "\n" for line in _lines(path, data)), strict=True, skipinitialspace=True)

    def rows() -> Iterator[tuple[str, list[str]]]:
        try:
            for cells in reader:
                yield f"{path}:{reader.line_num}", cells
        except csv.Error as error:
            raise DataError(f"{path}:{reader.line_num}: {error}; quote a cell with commas or quotes in it.") from error

    return _pairs_of_cells(rows(), data)


def _pairs_of_cells(rows: Iterable[tuple[str, list[str]]], data: DataConfig) -> Iterator[Pair]:
    """The pairs of (where, cells), by the names in the first row if that has names; an empty row is an empty pair.

    Without names plain text is the last column, which is the target of a table of pairs.
    """
    sides, widths = ([0, 1], [2]) if data.source_lang else ([-1], [1, 2])
    rule = f"without a row of names there must be {' or '.join(map(str, widths))}"
    named = False
    for number, (where, cells) in enumerate(rows):
        columns = _columns(cells, data) if number == 0 else None
        if number == 0 and not columns and _serves_others(cells, data):
            return
        if columns:
            sides = [cells.index(column) for column in columns]
            widths, rule, named = [len(cells)], f"the first row names {len(cells)}", True
        elif cells in ([], [""]):
            yield "", ""
        elif data.directions and not named:
            raise OtherLanguagesError(
                f"{where}: the first row must name the columns, {' and '.join(languages_of(data))}."
            )
        elif number == 0 and _names_others(cells, data):
            there, wanted = " and ".join(cells), " and ".join(languages_of(data))
            raise DataError(f"{where}: the first row names {there}, but {wanted} are asked for.")
        elif len(cells) not in widths:
            raise DataError(f"{where}: {len(cells)} column{'s' * (len(cells) != 1)}, but {rule}.")
        else:
            if len(widths) > 1:  # from now on a tab or comma within a text is a fault, not a second column
                widths, rule = [len(cells)], f"the rows above have {len(cells)}"
            yield _pair(cells[side] for side in sides)


def _read_jsonl(path: Path, data: DataConfig) -> Iterator[Pair]:
    for number, line in enumerate(_lines(path, data), 1):
        where = f"{path}:{number}"
        if not line.strip():  # as in a table
            yield "", ""
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: this is no JSON: {error.msg} at column {error.colno}.") from error
        except (ValueError, RecursionError) as error:  # a number of too many digits, too many brackets
            raise DataError(f"{where}: this is no JSON of text: {_reason(error)}.") from error
        if not isinstance(row, dict):
            raise DataError(f"{where}: a row must be an object such as {_example(data)}.")
        yield from _pair_of_row(row, data, where)


def _read_parquet(path: Path, data: DataConfig) -> Iterator[Pair]:
    import pyarrow  # comes with datasets; it takes a while to import, and only this format needs it
    import pyarrow.parquet

    try:
        number = 0
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=ROWS):
            for row in batch.to_pylist():
                number += 1
                yield from _pair_of_row(row, data, f"{path}, row {number}")
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as parquet: {_reason(error)}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, after row {number}: text that is not UTF-8 ({_reason(error)}).") from error


_READERS = {".tsv": _read_tsv, ".csv": _read_csv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}


def _read_dataset(source: Source, data: DataConfig) -> dict[str, Iterator[Pair]]:
    for file in source.files:
        if file.suffix in (".pkl", ".pickle"):
            raise DataError(f"{file} is a pickle, which can run code when it is read: convert it to .jsonl or .tsv.")
    kinds = {file.suffix: file for file in source.files}
    table = kinds.get(".tsv", kinds.get(".csv"))
    if table and not kinds.keys() & {".parquet", ".jsonl", ".json", ".arrow"}:
        raise DataError(
            f"{source} has {table.relative_to(source.path)}, which the library of data sets would read by other "
            f"rules, of quotes and of what is missing, than this program: name the files, as in data.train: {table}"
        )
    if source.files and (strange := set(source.path) & set("*?[")):
        raise DataError(f"{source}: a folder of many files cannot have {' or '.join(sorted(strange))} in its path.")
    import datasets  # takes seconds to import, and files need it not

    try:
        # Not streaming: that spares the disk a copy, but comes from the network each time that the pairs are asked for:
        # to choose a preset, to prepare, and to go on after a kill. The copy is mapped, so memory holds neither.
        found = datasets.load_dataset(source.path, data.config, revision=data.revision)
    except ConnectionError as error:
        raise DataError(
            f"{source} is not on this machine, and the Hugging Face hub cannot be reached: try again later, or set "
            "data.train, data.validation and data.test to files of your own, such as pairs.tsv."
        ) from error
    except Exception as error:  # whatever the library, its builders and the hub's client may raise
        raise DataError(f"{source} cannot be loaded: {_reason(error)}{about_configs(error, data)}") from error
    assert isinstance(found, datasets.DatasetDict)
    return {str(name): _rows(table, data, f"{source}, split {name}") for name, table in found.items()}


def _rows(table: Any, data: DataConfig, where: str) -> Iterator[Pair]:
    number = 0
    try:
        for batch in table.iter(batch_size=1000):
            for values in zip(*batch.values(), strict=True):
                number += 1
                yield from _pair_of_row(dict(zip(batch, values, strict=True)), data, f"{where}, row {number}")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}, after row {number}: text that is not UTF-8 ({_reason(error)}).") from error


def _reason(error: BaseException) -> str:
    """What a library's error says, in a line; `datasets` hides the reason behind "an error occurred"."""
    if type(error).__name__ == "DatasetGenerationError" and error.__cause__:
        error = error.__cause__
    return " ".join(str(error).split())[:300] or type(error).__name__


# --- Rows ---------------------------------------------------------------------------------------------------------


def _columns(names: Collection[str], data: DataConfig) -> tuple[str, ...] | None:
    """The names of the columns of source and target, or of plain text; None if `names` has none of the known forms."""
    known = [("source", "target")] if data.source_lang else [("target",), ("text",)]
    if data.directions:
        known = []
    return next((columns for columns in (languages_of(data), *known) if set(columns) <= set(names)), None)


def _serves_others(names: Collection[str], data: DataConfig) -> bool:
    """Whether columns of these names serve another one of several directions."""
    return any(set(direction) <= set(names) for direction in data.several)


def _names_others(cells: Sequence[str], data: DataConfig) -> bool:
    """Whether what should be the first pair is names of languages, of which one is asked for and another is not."""
    names = all(re.fullmatch(r"[a-z]{2,3}(?:[-_]\w+)?", cell) for cell in cells)
    return names and len(cells) > 1 and len({*cells} & {*languages_of(data)}) == 1


def _pair_of_row(row: Mapping[str, Any], data: DataConfig, where: str) -> list[Pair]:
    """The pair in a row; none, if the row is one of another direction."""
    inner = row.get("translation")
    row = inner if isinstance(inner, Mapping) else row
    columns = _columns(row, data)
    if columns is None and _serves_others(row, data):
        return []
    if columns is None:
        there = ", ".join(row) or "nothing"
        raise OtherLanguagesError(f"{where}: there is {there}, but a row must be like {_example(data)}.")
    return [_pair(_text(row[column], f"{where}, {column}", data) for column in columns)]


def _text(value: Any, where: str, data: DataConfig) -> str:
    """A cell as text: none is empty text, and anything but text is a mistake."""
    if value is None:
        return ""
    # JSON lets half of a surrogate pair through, which no tokenizer takes.
    if not isinstance(value, str) or (data.on_bad_line == "error" and not is_text(value)):
        raise DataError(f"{where}: {value!r:.100} is not text.")
    return value


def _example(data: DataConfig) -> str:
    return json.dumps(dict.fromkeys(languages_of(data), "..."))


def for_directions(pair: Pair, languages: tuple[str, str] | None, data: DataConfig) -> list[Pair]:
    """A pair of cleaned text as each direction has it that learns from such pairs; or as it is, if there is but one."""
    if languages is None:
        return [pair]
    by_name = dict(zip(languages, pair, strict=True))
    return [(tagged(by_name[each.source], each), by_name[each.target]) for each in directions_of(languages, data)]
