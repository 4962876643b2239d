"""Spreadsheets: the first sheet with rows of an .xlsx or .ods workbook.

Memory holds the sheet that is read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, time, timedelta
from itertools import chain
from typing import Any

from dragoman import resources
from dragoman.corpora.formats.files import File, seekable
from dragoman.corpora.formats.records import reason
from dragoman.corpora.formats.tables import NotText, Row, Table, pairs_of_rows
from dragoman.corpora.formats.units import Say, Units
from dragoman.errors import DataError
from dragoman.settings import DataConfig

LARGEST = 2**28  # bytes of a workbook when it is unpacked


def read_workbook(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a workbook of Excel or LibreOffice. Raises DataError."""
    [file] = files
    resources.require("formats", ["python_calamine"], f"reading {file.suffix} files")
    import python_calamine

    with seekable(file) as content:
        _check(content, file)
        try:
            book = python_calamine.CalamineWorkbook.from_filelike(content)
            sheets = {name: _rows(book.get_sheet_by_name(name)) for name in book.sheet_names}
        except Exception as error:
            raise DataError(f"{file} cannot be read as {file.suffix}: {reason(error)}") from error
    for name, rows in sheets.items():
        if first := next(rows, None):
            if others := [other for other in sheets if other != name]:
                say(f"{file}: the sheet {name} is read, and not {', '.join(others)}")
            table = Table(file, lambda position: f"{file}, sheet {name}, row {position}", rows_may_be_short=True)  # noqa: B023
            yield from pairs_of_rows(chain([first], rows), table, data, say)
            return


def _rows(sheet: Any) -> Iterator[Row]:
    """Yield the rows that are not empty, numbered from 1."""
    for number, values in enumerate(sheet.iter_rows(), 1):
        cells = sheet.start[1] * [""] + [_cell_text(value) for value in values]
        while cells and not cells[-1].strip():
            cells.pop()
        if cells:
            yield number, cells


def _cell_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return NotText(str(value) if isinstance(value, date | time | timedelta) else repr(value))


def _check(content: Any, file: File) -> None:
    """Raise DataError if a workbook is not a .zip, or unpacks to more than LARGEST bytes."""
    try:
        with zipfile.ZipFile(content) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:  # as zipfile raises them
        raise DataError(f"{file} is not a workbook, or is password-protected: save it again without one.") from error
    if size > LARGEST:
        raise DataError(f"{file} unpacks to {size:,} bytes, but a workbook may have {LARGEST:,}: save it as .csv.")
    content.seek(0)
