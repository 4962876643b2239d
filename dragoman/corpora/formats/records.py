"""Records with a field for each language: JSON, a record a line or in an array, Parquet, and the rows of data sets.

A record has its languages as `translation: {"en": ..., "it": ...}`, as fields `en` and `it`, or `source` and `target`;
a field may also be called English, or have a name in data.columns.
Further references are fields such as `it2`, or a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from dragoman.corpora.formats.files import File, lines, read_text, seekable
from dragoman.corpora.formats.language_names import serves_others
from dragoman.corpora.formats.tables import columns_by_name, find_columns, further_columns, languages_in
from dragoman.corpora.formats.units import Fault, Say, Unit, Units, as_unit, broken, languages_of
from dragoman.corpora.references import reference, references_of
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.settings import DataConfig
from dragoman.text.cleaning import is_text

ROWS = 10_000  # parquet rows turned into Python objects at a time
_BETWEEN = re.compile(r"(?:\}\s*,?|,|\n)\s*(?=\{)")  # two records of an array
_BLANKS = re.compile(r"[\s,]*")


class Records:
    """Turns records into units. Records of a file mostly have the same fields, which are looked up once."""

    def __init__(self, data: DataConfig) -> None:
        self._data = data
        self._known: dict[tuple[str, ...], Sequence[int] | None] = {}
        self._fault: DataError | None = None  # the first one, until a record can be read

    def units(self, position: int, row: object, where: str) -> list[Unit]:
        """Return the unit of a record; none if the record serves another of data.directions. Raises DataError."""
        try:
            units = self._units(position, row, where)
        except DataError as error:
            if isinstance(error, OtherLanguagesError) and error.languages and not self._known:
                raise
            return [self.broken(position, row, error)]
        self._fault = None
        return units

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
        columns = find_columns(names, data)
        if columns is None and not serves_others(names, data):
            there = ", ".join(map(str, names)) or "nothing"
            message = f"{where}: there is {there}, but a row must be like {example(data)}."
            raise OtherLanguagesError(message, languages_in(names))
        return columns and [*columns, *further_columns(names, columns, data)]

    def _text(self, value: Any, where: str, name: str) -> str:
        """Return a field as text; null is empty text, a list of texts are references; else raise DataError."""
        # JSON allows half of a surrogate pair, which no tokenizer accepts.
        if isinstance(value, str) and (is_text(value) or self._data.on_bad_line == "skip"):
            return value
        if value is None:
            return ""
        if isinstance(value, list) and value and self._data.source_lang:
            return reference([self._text(one, where, name) for one in value])
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
    """Read JSON: records line by line, an array of them, or an object that holds one."""
    [file] = files
    starts = [line.strip()[:1] for line in islice((line for line in lines(file, data) if line.strip()), 2)]
    if starts == ["{", "{"]:
        yield from read_jsonl(files, data, say)
        return
    text = read_text(file, data)
    yield from _units(_array(text) if starts[:1] == ["["] else _rows(text, file), data, f"{file}, record")


def _array(text: str) -> Iterator[object]:
    """Yield the records of an array, and a Fault in place of one that is not JSON, so that it costs no other."""
    decoder, at = json.JSONDecoder(), _end_of_blanks(text, text.index("[") + 1)
    while at < len(text) and text[at] != "]":
        try:
            row, end = decoder.raw_decode(text, at)
            yield row
        except (ValueError, RecursionError) as error:
            between = _BETWEEN.search(text, at)
            end = between.end() if between else len(text)
            yield Fault(text[at:end].rstrip(", \n"), DataError(f"this is not JSON: {reason(error)}."))
        at = _end_of_blanks(text, end)
    if at == len(text):
        yield Fault("", DataError("the file ends inside its array."))


def _end_of_blanks(text: str, at: int) -> int:
    matched = _BLANKS.match(text, at)
    return matched.end() if matched else at


def _rows(text: str, file: File) -> Sequence[object]:
    """Return the records of a JSON value. Raises DataError for an object with several arrays of records."""
    try:
        value = _parse(text)
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
    if not isinstance(value, dict):
        return [value]
    several = [key for key, each in value.items() if isinstance(each, list) and each and isinstance(each[0], dict)]
    if len(several) > 1:
        raise DataError(f"{file} has several arrays of records ({', '.join(several)}): save one of them as a file.")
    return value[several[0]] if several else [value]


def read_parquet(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a Parquet file, ROWS rows at a time."""
    import pyarrow  # installed with datasets; slow to import, and only this format needs it
    import pyarrow.parquet

    [file] = files
    try:
        with seekable(file) as content, pyarrow.parquet.ParquetFile(content) as table:
            batches = table.iter_batches(batch_size=ROWS)
            yield from _units(chain.from_iterable(map(_rows_of, batches)), data, f"{file}, row")
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{file} cannot be read as parquet: {reason(error)}") from error


def read_rows(table: Any, data: DataConfig, where: str) -> Units:
    """Read a split of a data set, as `datasets` loads or streams it."""
    batches = table.with_format("arrow").iter(1000)
    try:
        yield from _units(chain.from_iterable(map(_rows_of, batches)), data, f"{where}, row")
    except DataError:
        raise
    except Exception as error:  # whatever the library may raise while it streams
        raise DataError(f"{where} cannot be read: {reason(error)}") from error


def _rows_of(batch: Any) -> Iterator[object]:
    """Yield the rows of a batch of Arrow, and a Fault in place of one that is not UTF-8."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for number in range(batch.num_rows):
            try:
                yield from batch.slice(number, 1).to_pylist()
            except UnicodeDecodeError as error:
                yield Fault("", DataError(f"text that is not UTF-8 ({reason(error)})."))


def _units(rows: Iterable[object], data: DataConfig, where: str) -> Units:
    """Yield the units of records and faults; `where` is what their numbers count, as in "pairs.json, record"."""
    records = Records(data)
    for number, row in enumerate(rows, 1):
        if isinstance(row, Fault):
            yield records.broken(number, row.raw, DataError(f"{where} {number}: {row.error}"))
        else:
            yield from records.units(number, row, f"{where} {number}")
    records.finish()


def reason(error: BaseException) -> str:
    """Return a library's error message in one line; `datasets` hides the reason behind "an error occurred"."""
    if type(error).__name__ == "DatasetGenerationError" and error.__cause__:
        error = error.__cause__
    return " ".join(str(error).split())[:300] or type(error).__name__


def example(data: DataConfig) -> str:
    """Return a record such as these settings need."""
    return json.dumps(dict.fromkeys(languages_of(data), "..."))
