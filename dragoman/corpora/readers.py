"""Read sentence pairs from files and data sets, strictly.

    splits = read_splits(source, config.data)            # {"train": an iterator of ("Hello.", "Ciao."), ...}

Nothing is guessed: a line that is not UTF-8, or that has no partner, raises a DataError that says where, because a file
that slips by one line teaches a wrong translation from there on. With data.on_bad_line skip, lines that are not UTF-8
are read with lone surrogates, so that the caller can drop the whole pair.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from dragoman.corpora.cleaning import decode_line, is_text
from dragoman.corpora.sources import ALIASES, Languages, Source, by_languages, directions_of, languages_of, unreadable
from dragoman.dataset import Pair
from dragoman.directions import tagged
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.settings import DataConfig

ROWS = 10_000  # parquet rows turned into Python objects at a time


def read_splits(source: Source, data: DataConfig) -> dict[str, Iterator[Pair]]:
    """Return a lazy iterator over the raw pairs of each split of a source.

    A file has one split, the one it was named for. A folder or a data set must have that split, and may have others.
    Raises DataError, now or while iterating.
    """
    several = source.languages is not None
    data = by_languages(data)[source.languages] if several else data
    if source.split_files:
        splits = {split: _read_files(files, data) for split, files in source.split_files.items()}
    else:
        splits = _read_dataset(source, data)
    for alias in [alias for alias in ALIASES if alias in splits]:
        splits.setdefault(ALIASES[alias], splits.pop(alias))
    if source.split not in splits and not several:
        raise DataError(f"{source} has no split {source.split}, only {', '.join(splits)}: name another, or files.")
    return splits if several else {split: _not_empty(pairs, source) for split, pairs in splits.items()}


def for_directions(pair: Pair, languages: Languages | None, data: DataConfig) -> list[Pair]:
    """Return a cleaned pair once for each direction that learns from it, tagged; unchanged without data.directions."""
    if languages is None:
        return [pair]
    by_name = dict(zip(languages, pair, strict=True))
    return [(tagged(by_name[each.source], each), by_name[each.target]) for each in directions_of(languages, data)]


def _not_empty(pairs: Iterator[Pair], source: Source) -> Iterator[Pair]:
    empty = True
    for pair in pairs:
        empty = False
        yield pair
    if empty:
        raise DataError(f"{source} is empty: there is nothing to learn from.")


# ---------------------------------------------------------------------------------------------------------- files


def _read_files(files: tuple[Path, ...], data: DataConfig) -> Iterator[Pair]:
    if len(files) == 2:
        return _read_parallel(*files, data)
    return _READERS.get(files[0].suffix, _read_plain)(files[0], data)


def _lines(path: Path, data: DataConfig) -> Iterator[str]:
    """Yield the lines of a file, which only LF ends.

    Python's text files, `splitlines` and the text reader of `datasets` also end lines at some of CR, FF, NEL and
    U+2028. One such character in one of two parallel files would shift the rest by a line.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                yield decode_line(raw, str(path), number, strict=data.on_bad_line == "error")
    except OSError as error:
        raise unreadable(path, error) from error


def _read_parallel(source: Path, target: Path, data: DataConfig) -> Iterator[Pair]:
    sides = _lines(source, data), _lines(target, data)
    for number, pair in enumerate(zip_longest(*sides)):
        if None in pair:
            more = 1 + sum(1 for side in sides for _ in side)
            counts = [number + more * (text is not None) for text in pair]
            raise DataError(
                f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}, but line n of one must be the "
                "translation of line n of the other: find where they diverge."
            )
        yield pair


def _read_plain(path: Path, data: DataConfig) -> Iterator[Pair]:
    return (("", line) for line in _lines(path, data))


def _read_tsv(path: Path, data: DataConfig) -> Iterator[Pair]:
    rows = ((f"{path}:{number}", line.split("\t")) for number, line in enumerate(_lines(path, data), 1))
    return _pairs_of_cells(rows, data)


def _read_csv(path: Path, data: DataConfig) -> Iterator[Pair]:
    # Without skipinitialspace, a space after a comma would make the quotes behind it part of the text.
    reader = csv.reader((line + "\n" for line in _lines(path, data)), strict=True, skipinitialspace=True)

    def rows() -> Iterator[tuple[str, list[str]]]:
        try:
            for cells in reader:
                yield f"{path}:{reader.line_num}", cells
        except csv.Error as error:
            raise DataError(f"{path}:{reader.line_num}: {error}; quote cells that contain commas or quotes.") from error

    return _pairs_of_cells(rows(), data)


def _read_jsonl(path: Path, data: DataConfig) -> Iterator[Pair]:
    for number, line in enumerate(_lines(path, data), 1):
        where = f"{path}:{number}"
        if not line.strip():  # as in a table
            yield "", ""
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: this is not JSON: {error.msg} at column {error.colno}.") from error
        except (ValueError, RecursionError) as error:  # a number with too many digits, too many brackets
            raise DataError(f"{where}: this is not JSON of text: {_reason(error)}.") from error
        if not isinstance(row, dict):
            raise DataError(f"{where}: a row must be an object such as {_example(data)}.")
        yield from _pair_of_row(row, data, where)


def _read_parquet(path: Path, data: DataConfig) -> Iterator[Pair]:
    import pyarrow  # installed with datasets; slow to import, and only this format needs it
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


# ------------------------------------------------------------------------------------------------------ data sets


def _read_dataset(source: Source, data: DataConfig) -> dict[str, Iterator[Pair]]:
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
    import datasets  # takes seconds to import, and plain files do not need it

    try:
        # Not streaming: that would save a copy on disk, but download again each time the pairs are read: to choose a
        # preset, to prepare, and to resume. The copy is memory-mapped.
        found = datasets.load_dataset(source.path, data.config, revision=data.revision)
    except ConnectionError as error:
        raise DataError(
            f"{source} is not on this machine, and the Hugging Face hub cannot be reached: try again later, or set "
            "data.train, data.validation and data.test to files of your own, such as pairs.tsv."
        ) from error
    except Exception as error:  # whatever the library, its builders and the hub client may raise
        remedy = f" Set data.config (now {data.config}) to one of these; each serves both directions."
        raise DataError(
            f"{source} cannot be loaded: {_reason(error)}{remedy if 'config' in str(error).lower() else ''}"
        ) from error
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
    """Return a library's error message in one line; `datasets` hides the reason behind "an error occurred"."""
    if type(error).__name__ == "DatasetGenerationError" and error.__cause__:
        error = error.__cause__
    return " ".join(str(error).split())[:300] or type(error).__name__


# ----------------------------------------------------------------------------------------------------------- rows


def _pairs_of_cells(rows: Iterable[tuple[str, list[str]]], data: DataConfig) -> Iterator[Pair]:
    """Yield the pairs of a table from (place, cells). The first row may name columns; an empty row is an empty pair.

    Without names, plain text is the last column, which is the target of a table of pairs.
    """
    sides, widths = ([0, 1], [2]) if data.source_lang else ([-1], [1, 2])
    rule = f"without a row of names there must be {' or '.join(map(str, widths))}"
    named = False
    for number, (where, cells) in enumerate(rows):
        names = _column_names(cells, data) if number == 0 else None
        if number == 0 and not names and _serves_others(cells, data):
            return
        if names:
            sides = [cells.index(name) for name in names]
            widths, rule, named = [len(cells)], f"the first row names {len(cells)}", True
        elif cells in ([], [""]):
            yield "", ""
        elif data.directions and not named:
            raise OtherLanguagesError(
                f"{where}: the first row must name the columns, {' and '.join(languages_of(data))}."
            )
        elif number == 0 and _names_others(cells, data):
            there, wanted = " and ".join(cells), " and ".join(languages_of(data))
            raise DataError(f"{where}: the first row names {there}, but the settings ask for {wanted}.")
        elif len(cells) not in widths:
            raise DataError(f"{where}: {len(cells)} column{'s' * (len(cells) != 1)}, but {rule}.")
        else:
            if len(widths) > 1:  # from now on a tab or comma inside a text is a mistake, not a second column
                widths, rule = [len(cells)], f"the rows above have {len(cells)}"
            yield _pair(cells[side] for side in sides)


def _pair_of_row(row: Mapping[str, Any], data: DataConfig, where: str) -> list[Pair]:
    """Return the pair of a row; none if the row belongs to another direction."""
    inner = row.get("translation")
    row = inner if isinstance(inner, Mapping) else row
    names = _column_names(row, data)
    if names is None and _serves_others(row, data):
        return []
    if names is None:
        there = ", ".join(row) or "nothing"
        raise OtherLanguagesError(f"{where}: there is {there}, but a row must be like {_example(data)}.")
    return [_pair(_text(row[name], f"{where}, {name}", data) for name in names)]


def _pair(sides: Iterable[str]) -> Pair:
    """Make a pair of both sides, or of the text alone."""
    *source, target = sides
    return "".join(source), target


def _text(value: Any, where: str, data: DataConfig) -> str:
    """Return a cell as text; null is empty text, and anything else raises DataError."""
    if value is None:
        return ""
    # JSON allows half of a surrogate pair, which no tokenizer accepts.
    if not isinstance(value, str) or (data.on_bad_line == "error" and not is_text(value)):
        raise DataError(f"{where}: {value!r:.100} is not text.")
    return value


def _column_names(names: Collection[str], data: DataConfig) -> tuple[str, ...] | None:
    """Choose the columns of source and target, or of plain text; None if `names` has none of the known forms."""
    known = [("source", "target")] if data.source_lang else [("target",), ("text",)]
    if data.directions:
        known = []
    return next((form for form in (languages_of(data), *known) if set(form) <= set(names)), None)


def _serves_others(names: Collection[str], data: DataConfig) -> bool:
    """Whether columns of these names serve another direction."""
    return any(set(direction) <= set(names) for direction in data.several)


def _names_others(cells: Sequence[str], data: DataConfig) -> bool:
    """Whether the first row names languages, only one of which is wanted."""
    names = all(re.fullmatch(r"[a-z]{2,3}(?:[-_]\w+)?", cell) for cell in cells)
    return names and len(cells) > 1 and len({*cells} & {*languages_of(data)}) == 1


def _example(data: DataConfig) -> str:
    return json.dumps(dict.fromkeys(languages_of(data), "..."))
