"""Records with a field for each language: JSON, a record a line or in an array, Parquet, and the rows of data sets.

A record has its languages as `translation: {"en": ..., "it": ...}`, as fields `en` and `it`, or `source` and `target`;
a field may also be called English, or have a name in data.columns.
Further references are fields such as `it2`, or a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from dragoman.corpora.formats.files import File, lines, read_text, seekable
from dragoman.corpora.formats.languages import serves_others
from dragoman.corpora.formats.tables import columns_by_name, find_columns, further_columns, languages_in
from dragoman.corpora.formats.units import Say, Unit, Units, as_unit, broken, languages_of
from dragoman.corpora.references import reference, references_of
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.settings import DataConfig
from dragoman.text.cleaning import is_text

Block = Callable[[int, int], list[dict[str, Any]]]  # rows, by first index and number

ROWS = 10_000  # parquet rows turned into Python objects at a time
_BETWEEN = re.compile(r"(?:\}\s*,?|,|\n)\s*(?=\{)")  # two records of an array
_ARRAY = re.compile(r"\[\s*(?=\{)")


class Records:
    """Turns records into units. Records of a file mostly have the same fields, which are looked up once."""

    def __init__(self, data: DataConfig) -> None:
        self._data = data
        self._known: dict[tuple[str, ...], Sequence[int] | None] = {}
        self._fault: DataError | None = None  # the first one, until a record can be read

    def units(self, position: int, row: object, where: str) -> list[Unit]:
        """Return the unit of a record; none if the record serves another of data.directions. Raises DataError."""
        try:
            found = self._units(position, row, where)
        except DataError as error:
            if isinstance(error, OtherLanguagesError) and error.languages and not self._known:
                raise
            return [self.broken(position, row, error)]
        self._fault = None
        return found

    def broken(self, position: int, row: object, error: DataError) -> Unit:
        """Make the unit of a record that cannot be read."""
        if not self._known:
            self._fault = self._fault or error
        shown = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False, default=str)
        return broken(position, shown, error, self._data)

    def finish(self) -> None:
        """Raise the first error if no record could be read."""
        if self._fault:
            raise self._fault

    def _units(self, position: int, row: object, where: str) -> list[Unit]:
        if not isinstance(row, Mapping):
            raise DataError(f"{where}: a row must be an object such as {example(self._data)}.")
        inner = row.get("translation")
        row = inner if isinstance(inner, Mapping) else row
        names = tuple(row)
        if names not in self._known:
            self._known = {names: self._find(names, where)}
        sides = self._known[names]
        if sides is None:
            return []
        texts = [self._text(row[names[i]], where, names[i]) for i in sides]
        if len(texts) > 2:
            texts[1:] = [reference([each for text in texts[1:] for each in references_of(text)])]
        return [as_unit(position, texts)]

    def _find(self, names: tuple[str, ...], where: str) -> Sequence[int] | None:
        data = self._data
        if data.columns:
            return columns_by_name(names, where, data)[-len(languages_of(data)) :]
        found = find_columns(names, data)
        if found is None and not serves_others(names, data):
            there = ", ".join(map(str, names)) or "nothing"
            message = f"{where}: there is {there}, but a row must be like {example(data)}."
            raise OtherLanguagesError(message, languages_in(names))
        return found and [*found, *further_columns(names, found, data)]

    def _text(self, value: Any, where: str, name: str) -> str:
        """Return a field as text; null is empty text, a list of texts are references; else raise DataError."""
        # JSON allows half of a surrogate pair, which no tokenizer accepts.
        if isinstance(value, str) and (is_text(value) or self._data.on_bad_line == "skip"):
            return value
        if value is None:
            return ""
        if isinstance(value, list) and value and self._data.source_lang:
            return reference([self._text(each, where, name) for each in value])
        raise DataError(f"{where}, {name}: {value!r:.100} is not text.")


def read_jsonl(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a file with a JSON object on each line. An empty line is an empty pair, as in a table."""
    [file] = files
    records, name = Records(data), str(file)
    for number, line in enumerate(lines(file, data), 1):
        if not line.strip():
            yield number, "", ""
            continue
        try:
            row = _parse(line)
        except DataError as error:
            yield records.broken(number, line, DataError(f"{name}:{number}: {error}"))
            continue
        yield from records.units(number, row, f"{name}:{number}")
    records.finish()


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"this is not JSON: {error.msg} at column {error.colno}.") from error
    except (ValueError, RecursionError) as error:  # a number with too many digits, too many brackets
        raise DataError(f"this is not JSON of text: {reason(error)}.") from error


def read_json(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read JSON: records line by line, an array of them, an object that holds one, or an array for each side."""
    [file] = files
    starts = [line.strip()[:1] for line in islice((line for line in lines(file, data) if line.strip()), 2)]
    if starts == ["{", "{"]:
        yield from read_jsonl(files, data, say)
        return
    records = Records(data)
    for number, (row, fault) in enumerate(_rows_of_text(read_text(file, data), file, data), 1):
        where = f"{file}, record {number}"
        if fault:
            yield records.broken(number, row, DataError(f"{where}: {fault}"))
        else:
            yield from records.units(number, row, where)
    records.finish()


def _rows_of_text(text: str, file: File, data: DataConfig) -> Iterator[tuple[object, str]]:
    """Yield the records of JSON, or what stands in place of one and what is wrong with it. Raises DataError."""
    try:
        yield from ((row, "") for row in _rows(json.loads(text), file))
        return
    except (ValueError, RecursionError) as error:
        if data.on_bad_line == "error":
            line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise DataError(f"{file}{line}: this is not JSON: {reason(error)}.") from error
    start, decoder = _ARRAY.search(text), json.JSONDecoder()
    at = start.end() if start else 0
    while at < len(text) and text[at] != "]":
        try:
            row, end = decoder.raw_decode(text, at)
            yield row, ""
        except (ValueError, RecursionError) as error:
            between = _BETWEEN.search(text, at)
            end = between.end() if between else len(text)
            yield text[at:end].rstrip(", \n"), f"this is not JSON: {reason(error)}."
        following = re.compile(r"[\s,]*").match(text, end)
        at = following.end() if following else end
    if start and at == len(text):
        yield "", "the file ends inside its array."


def _rows(value: object, file: File) -> Sequence[object]:
    """Return the records of a JSON value. Raises DataError for an object with several arrays of records."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return [value]
    inner = value.get("translation", value)
    columns = {key: [*each.values()] if isinstance(each, dict) else each for key, each in dict(inner).items()}
    if len(columns) > 1 and all(isinstance(each, list) for each in columns.values()) and not _of_records(inner):
        if len({*map(len, columns.values())}) > 1:
            raise DataError(f"{file}: the arrays of {', '.join(columns)} have different lengths.")
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    several = _of_records(value)
    if len(several) > 1:
        raise DataError(f"{file} has several arrays of records ({', '.join(several)}): save one of them as a file.")
    return value[several[0]] if several else [value]


def _of_records(value: Mapping[str, Any]) -> list[str]:
    return [key for key, each in value.items() if isinstance(each, list) and each and isinstance(each[0], dict)]


def read_parquet(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a Parquet file, ROWS rows at a time."""
    import pyarrow  # installed with datasets; slow to import, and only this format needs it
    import pyarrow.parquet

    [file] = files
    try:
        with seekable(file) as content, pyarrow.parquet.ParquetFile(content) as table:
            blocks = ((len(batch), _rows_of_batch(batch)) for batch in table.iter_batches(batch_size=ROWS))
            yield from _records(blocks, data, str(file))
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{file} cannot be read as parquet: {reason(error)}") from error


def _rows_of_batch(batch: Any) -> Block:
    return lambda start, count: batch.slice(start, count).to_pylist()


def read_rows(table: Any, data: DataConfig, where: str) -> Units:
    """Read a split of a data set, as `datasets` loads it."""

    def rows(first: int) -> Block:
        def some(start: int, count: int) -> list[dict[str, Any]]:
            columns = table[first + start : first + start + count]
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

        return some

    blocks = ((min(1000, len(table) - first), rows(first)) for first in range(0, len(table), 1000))
    return _records(blocks, data, where)


def _records(blocks: Iterable[tuple[int, Block]], data: DataConfig, where: str) -> Units:
    """Yield the units of blocks of rows: all rows at once, or one by one where one of them is not UTF-8."""
    records, number = Records(data), 0
    for count, rows in blocks:
        try:
            some, one_by_one = rows(0, count), False
        except UnicodeDecodeError:
            some, one_by_one = range(count), True
        for row in some:
            number += 1
            try:
                row = rows(row, 1)[0] if one_by_one else row  # type: ignore[arg-type]
            except UnicodeDecodeError as error:
                fault = DataError(f"{where}, row {number}: text that is not UTF-8 ({reason(error)}).")
                yield records.broken(number, "", fault)
                continue
            yield from records.units(number, row, f"{where}, row {number}")
    records.finish()


def reason(error: BaseException) -> str:
    """Return a library's error message in one line; `datasets` hides the reason behind "an error occurred"."""
    if type(error).__name__ == "DatasetGenerationError" and error.__cause__:
        error = error.__cause__
    return " ".join(str(error).split())[:300] or type(error).__name__


def example(data: DataConfig) -> str:
    """Return a record such as these settings need."""
    return json.dumps(dict.fromkeys(languages_of(data), "..."))
