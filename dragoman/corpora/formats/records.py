"""Records with a field for each language: JSON lines, Parquet, and the rows of data sets.

A record has its languages as `translation: {"en": ..., "it": ...}`, as fields `en` and `it`, or `source` and `target`;
a field may also be called English, or have a name in data.columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.corpora.cleaning import is_text
from dragoman.corpora.formats.files import File, lines, seekable
from dragoman.corpora.formats.languages import serves_others
from dragoman.corpora.formats.tables import columns_by_name, find_columns, languages_in
from dragoman.corpora.formats.units import Say, Unit, Units, as_unit, broken, languages_of
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.settings import DataConfig

ROWS = 10_000  # parquet rows turned into Python objects at a time


class Records:
    """Turns records into units. Records of a file mostly have the same fields, which are looked up once."""

    def __init__(self, data: DataConfig) -> None:
        self._data = data
        self._known: dict[tuple[str, ...], Sequence[int] | None] = {}

    def units(self, position: int, row: Mapping[str, Any], where: str) -> list[Unit]:
        """Return the unit of a record; none if the record serves another of data.directions. Raises DataError."""
        inner = row.get("translation")
        row = inner if isinstance(inner, Mapping) else row
        names = tuple(row)
        if names not in self._known:
            self._known = {names: self._find(names, where)}
        sides = self._known[names]
        if sides is None:
            return []
        return [as_unit(position, (self._text(row[names[i]], f"{where}, {names[i]}") for i in sides))]

    def _find(self, names: tuple[str, ...], where: str) -> Sequence[int] | None:
        data = self._data
        if data.columns:
            return columns_by_name(names, where, data)[-len(languages_of(data)) :]
        found = find_columns(names, data)
        if found is None and not serves_others(names, data):
            there = ", ".join(names) or "nothing"
            message = f"{where}: there is {there}, but a row must be like {example(data)}."
            raise OtherLanguagesError(message, languages_in(names))
        return found

    def _text(self, value: Any, where: str) -> str:
        """Return a field as text; null is empty text, and anything else raises DataError."""
        if value is None:
            return ""
        # JSON allows half of a surrogate pair, which no tokenizer accepts.
        if not isinstance(value, str) or (self._data.on_bad_line == "error" and not is_text(value)):
            raise DataError(f"{where}: {value!r:.100} is not text.")
        return value


def read_jsonl(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a file with a JSON object on each line. An empty line is an empty pair, as in a table."""
    [file] = files
    records, name = Records(data), str(file)
    for number, line in enumerate(lines(file, data), 1):
        if not line.strip():
            yield number, "", ""
            continue
        try:
            row = _parse(line, data)
        except DataError as error:
            if data.on_bad_line == "error":
                raise DataError(f"{file}:{number}: {error}") from error
            yield broken(number)
            continue
        yield from records.units(number, row, f"{name}:{number}")


def _parse(line: str, data: DataConfig) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"this is not JSON: {error.msg} at column {error.colno}.") from error
    except (ValueError, RecursionError) as error:  # a number with too many digits, too many brackets
        raise DataError(f"this is not JSON of text: {reason(error)}.") from error
    if not isinstance(row, dict):
        raise DataError(f"a row must be an object such as {example(data)}.")
    return row


def read_parquet(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a Parquet file, ROWS rows at a time."""
    import pyarrow  # installed with datasets; slow to import, and only this format needs it
    import pyarrow.parquet

    [file] = files
    records, name, number = Records(data), str(file), 0
    try:
        with seekable(file) as content, pyarrow.parquet.ParquetFile(content) as table:
            for batch in table.iter_batches(batch_size=ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield from records.units(number, row, f"{name}, row {number}")
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{file} cannot be read as parquet: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}, after row {number}: text that is not UTF-8 ({reason(error)}).") from error


def read_rows(table: Any, data: DataConfig, where: str) -> Units:
    """Read a split of a data set, as `datasets` loads it."""
    records, number = Records(data), 0
    try:
        for batch in table.iter(batch_size=1000):
            for values in zip(*batch.values(), strict=True):
                number += 1
                row = dict(zip(batch, values, strict=True))
                yield from records.units(number, row, f"{where}, row {number}")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}, after row {number}: text that is not UTF-8 ({reason(error)}).") from error


def reason(error: BaseException) -> str:
    """Return a library's error message in one line; `datasets` hides the reason behind "an error occurred"."""
    if type(error).__name__ == "DatasetGenerationError" and error.__cause__:
        error = error.__cause__
    return " ".join(str(error).split())[:300] or type(error).__name__


def example(data: DataConfig) -> str:
    """Return a record such as these settings need."""
    return json.dumps(dict.fromkeys(languages_of(data), "..."))
