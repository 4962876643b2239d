"""Spreadsheets: the first sheet with rows of an .xlsx or .ods workbook, row by row.

Memory holds a row at a time, and for .xlsx the distinct texts of the workbook.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, time, timedelta
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from dragoman.corpora.formats.files import File, damage_refused, seekable
from dragoman.corpora.formats.records import reason
from dragoman.corpora.formats.tables import NotText, Row, Table, pairs_of_rows
from dragoman.corpora.formats.units import Fault, Say, Units, require
from dragoman.corpora.formats.xml_stream import units
from dragoman.errors import DataError
from dragoman.settings import DataConfig

MOST_ROWS, MOST_COLUMNS = 2**20, 2**10  # rows that a sheet may have, and columns that are looked at
LARGEST = 2**30  # bytes of a workbook when it is unpacked

OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


def read_xlsx(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a workbook of Excel. Raises DataError."""
    require(".xlsx", "openpyxl", "defusedxml")  # openpyxl parses with defusedxml if it is there
    import openpyxl

    [file] = files
    try:
        with seekable(file) as content:
            _check(content, file)
            book = openpyxl.load_workbook(content, read_only=True, data_only=True)
            names = [sheet.title for sheet in book.worksheets]
            yield from _pairs(file, chain.from_iterable(map(_xlsx_rows, book.worksheets)), names, data, say)
    except DataError:
        raise
    except Exception as error:  # openpyxl lets errors of its parsers, of zlib and of its own checks through
        raise DataError(f"{file} cannot be read as .xlsx: {reason(error.__cause__ or error)}") from error


def _xlsx_rows(sheet: Any) -> Iterator[tuple[str, Row]]:
    sheet.reset_dimensions()  # some programs write wrong ones
    for number, cells in enumerate(sheet.iter_rows(values_only=True, max_row=MOST_ROWS), 1):
        yield sheet.title, (number, _trimmed([_text(cell) for cell in cells]))


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if whole else NotText(str(value) if isinstance(value, date | time | timedelta) else repr(value))


def read_ods(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a workbook of LibreOffice. Raises DataError."""
    require(".ods", "lxml")
    [file] = files
    try:
        with seekable(file) as content, damage_refused(file):
            _check(content, file)
            with zipfile.ZipFile(content) as archive:
                with archive.open("content.xml") as stream:
                    names = dict.fromkeys(sheet for sheet, _ in _ods_rows(stream, file))
                with archive.open("content.xml") as stream:
                    yield from _pairs(file, _ods_rows(stream, file), [*names], data, say)
    except KeyError as error:
        raise DataError(f"{file} cannot be read as .ods: it has no content.xml.") from error


def _ods_rows(stream: Any, file: File) -> Iterator[tuple[str, Row]]:
    """Yield the rows, each with the name of its sheet, and an empty row at the start of each sheet."""
    sheet, number = "", 0
    for element in units(stream, file, ("table-row",), ("document-content", "table")):
        if isinstance(element, Fault):
            raise element.error
        if element.tag == f"{TABLE}table":
            sheet, number = element.get(f"{TABLE}name", ""), 0
            yield sheet, (0, [])
        elif element.tag == f"{TABLE}table-row":
            cells, times = _ods_cells(element), int(element.get(f"{TABLE}number-rows-repeated", 1))
            for _ in range(min(times, MOST_ROWS - number) if cells else 0):
                number += 1
                yield sheet, (number, list(cells))
            number += 0 if cells else times


def _ods_cells(row: Any) -> list[str]:
    cells: list[str] = []
    for cell in row.iterchildren(f"{TABLE}table-cell", f"{TABLE}covered-table-cell"):
        times = int(cell.get(f"{TABLE}number-columns-repeated", 1))
        cells += [_ods_text(cell)] * min(times, MOST_COLUMNS - len(cells))
    return _trimmed(cells)


def _ods_text(cell: Any) -> str:
    kind = cell.get(f"{OFFICE}value-type", "string")
    shown = "\n".join(_paragraph(element) for element in cell.iterchildren(f"{TEXT}p"))
    if kind == "string":
        return shown
    value = cell.get(f"{OFFICE}value", "")
    return value if kind == "float" and value.isdecimal() else NotText(shown or value)


def _paragraph(element: Any) -> str:
    """Return the text of a paragraph, in which repeated spaces, tabs and line breaks are elements."""
    parts = [element.text or ""]
    for child in element:
        if child.tag in (f"{TEXT}s", f"{TEXT}tab", f"{TEXT}line-break"):
            parts.append(" ")
        elif child.tag != f"{OFFICE}annotation":
            parts.append(_paragraph(child))
        parts.append(child.tail or "")
    return "".join(parts)


def _pairs(file: File, rows: Iterable[tuple[str, Row]], sheets: Sequence[str], data: DataConfig, say: Say) -> Units:
    """Yield the pairs of the first sheet that has a row. Empty rows, which a sheet may have in plenty, are left out."""
    for sheet, group in groupby((row for row in rows if row[1][1]), key=itemgetter(0)):
        if len(sheets) > 1:
            say(f"{file}: the sheet {sheet} is read, and not {', '.join(name for name in sheets if name != sheet)}")
        table = Table(file, lambda position: f"{file}, sheet {sheet}, row {position}", padded=True)  # noqa: B023
        yield from pairs_of_rows((row for _, row in group), table, data, say)
        return


def _trimmed(cells: list[str]) -> list[str]:
    while cells and not cells[-1].strip():
        cells.pop()
    return cells


def _check(content: Any, file: File) -> None:
    """Raise DataError if a workbook is no .zip, or unpacks to more than LARGEST bytes.

    `zipfile` never reads more of a member than the size that the archive declares.
    """
    try:
        with zipfile.ZipFile(content) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{file} is no workbook, or is protected by a password: save it again without one.") from error
    if size > LARGEST:
        raise DataError(f"{file} unpacks to {size:,} bytes, but a workbook may have {LARGEST:,}: save it as .csv.")
    content.seek(0)
