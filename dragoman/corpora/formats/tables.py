"""From the rows of a table to pairs: which columns hold the two languages, and which rows are broken.

The columns are those of data.columns, else those that the first row names, else the only two, else the only two that
hold sentences. Numbers, addresses, licences and repeated labels do not count as sentences. Choices that are not obvious
are printed. All rows must have the same number of columns. Columns such as `it2` and `ref1` are further references.
Where tables were joined, the row of names may come again, with the columns in another order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from dragoman.console import shorten
from dragoman.corpora.formats.files import File
from dragoman.corpora.formats.language_names import (
    ROLES,
    find_all,
    in_file_name,
    is_named,
    is_same,
    language_of,
    other_languages,
    serves_others,
    without_number,
)
from dragoman.corpora.formats.units import Fault, Say, Units, broken, languages_of, left_out
from dragoman.corpora.references import reference
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.settings import DataConfig

SAMPLE = 200  # rows that decide about the columns

Row = tuple[int, list[str] | Fault]  # position and cells


class NotText(str):
    """A cell that holds a date, a fraction or a truth value, as text."""


@dataclass(frozen=True)
class Table:
    """What is known of a table besides its rows."""

    file: File
    row_name: Callable[[int], str]  # of a position, for messages
    names: list[str] | None = None  # of the columns, if not in the first row
    left_out: Collection[int] = ()  # columns, from 0, that do not hold text, as the file says
    rows_may_be_short: bool = False  # empty cells at the end of a row may be missing


@dataclass(frozen=True)
class Columns:
    """Where the sides are. The first row is not a pair if it holds names."""

    sides: Sequence[int]  # column of each language, from 0, and of further references
    width: int
    rule: str  # for the message about a row of another width
    in_first_row: bool = False
    note: str = ""


def pairs_of_rows(rows: Iterable[Row], table: Table, data: DataConfig, say: Say) -> Units:
    """Yield the pairs of a table. An empty row is an empty pair. Raises DataError; see the module."""
    rows = iter(rows)
    sample = list(islice(rows, SAMPLE))
    columns = _choose(sample, table, data) if sample else None
    if columns is None:  # it serves another of data.directions
        return
    if columns.note:
        say(f"{table.file}: {columns.note}")
    sides, width = columns.sides, columns.width
    first = sample[0][1]
    names = set(map(str.casefold, first)) if columns.in_first_row and not isinstance(first, Fault) else set()
    for position, cells in chain(sample[columns.in_first_row :], rows):
        if isinstance(cells, Fault):
            yield broken(position, *cells, data)
            continue
        if table.rows_may_be_short:
            cells += [""] * (width - len(cells))
        if not any(cells):
            yield position, "", ""
        elif len(cells) != width or NotText in map(type, texts := [cells[side] for side in sides]):
            yield broken(position, " | ".join(cells), _fault(position, cells, columns, table), data)
        elif texts[0].casefold() in names and names == set(map(str.casefold, cells)):
            sides = _sides(cells, table, data)
            yield left_out(position, " | ".join(cells), "names of columns, not a pair")
        elif len(texts) == 1:
            yield position, "", texts[0]
        else:
            yield position, texts[0], texts[1] if len(texts) == 2 else reference(texts[1:])


def _fault(position: int, cells: list[str], columns: Columns, table: Table) -> DataError:
    place, count = table.row_name(position), len(cells)
    if count != columns.width:
        return DataError(f"{place}: {count} column{'s' * (count != 1)}, but {columns.rule}.")
    value = next(cells[side] for side in columns.sides if isinstance(cells[side], NotText))
    return DataError(f"{place}: {value} is a number or a date, not text: format the column as text.")


# ----------------------------------------------------------------------------------------------- choosing columns


def _choose(sample: Sequence[Row], table: Table, data: DataConfig) -> Columns | None:
    """Choose the columns; None if they serve another of data.directions. Raises DataError."""
    whole = [cells for _, cells in sample if not isinstance(cells, Fault) and any(cells)]
    names = table.names or ([] if isinstance(sample[0][1], Fault) else sample[0][1])
    if not (whole or table.names):
        return Columns([0], 1, "the rows above are empty")
    widths = Counter(map(len, whole))
    width = len(names) if table.names else max(widths) if table.rows_may_be_short else widths.most_common(1)[0][0]
    there = languages_in(names)
    columns = find_columns(names, data) if not (data.columns and there) else None
    if columns or data.columns:
        by_number = bool(re.fullmatch(r"[\d,\s]+", data.columns or "x"))
        headed = table.names is None and (bool(columns or there) or not by_number)
        sides = _sides(names, table, data)
        if max(sides) >= width:
            raise DataError(f"data.columns is {data.columns}, but {table.file} has {width} columns.")
        rule = f"the {'first row names' if headed or table.names else 'other rows have'} {width}"
        return Columns(sides, width, rule, headed, _note(names, sides, data))
    if there:
        if serves_others(there, data):
            return None
        raise other_languages(f"{table.row_name(sample[0][0])}: the first row names {_list(there)}", there, data)
    return _unnamed(whole, width, table, data)


def _sides(names: Sequence[str], table: Table, data: DataConfig) -> list[int]:
    """Return the columns of the sides and of further references, as data.columns or their names say."""
    if data.columns:
        numbers = [number.strip() for number in data.columns.split(",")]
        by_number = all(map(str.isdecimal, numbers))
        sides = [int(number) - 1 for number in numbers] if by_number else columns_by_name(names, str(table.file), data)
        return sides if data.source_lang else sides[-1:]
    sides = find_columns(names, data) or []
    return [*sides, *further_columns(names, sides, data)]


def _note(names: Sequence[str], sides: Sequence[int], data: DataConfig) -> str:
    """Say which columns were chosen by names that are not plain, and which ones only scores use."""
    notes = []
    if not data.columns and not {names[side] for side in sides[:2]} <= {*languages_of(data), "text", *chain(*ROLES)}:
        columns = (
            f"column {side + 1} ({shorten(names[side], 30)}) is {language}"
            for side, language in zip(sides, languages_of(data), strict=False)
        )
        notes.append(f"{', '.join(columns)}, by its name")
    if further := _list(str(side + 1) for side in sides[2:]):
        notes.append(f"column {further}: further references, which only scores use")
    return "; ".join(notes)


def columns_by_name(names: Sequence[str], where: str, data: DataConfig) -> list[int]:
    """Return the indices of the names in data.columns. Raises DataError if one is not there."""
    plain = [name.strip().casefold() for name in names]
    wanted = [name.strip() for name in str(data.columns).split(",")]
    if missing := [name for name in wanted if name.casefold() not in plain]:
        there = ", ".join(shorten(name, 30) for name in names) or "nothing"
        raise DataError(f"data.columns names {missing[0]}, but {where} has {there}.")
    return [plain.index(name.casefold()) for name in wanted]


def find_columns(names: Sequence[str], data: DataConfig) -> list[int] | None:
    """Return the indices of the columns of source and target, or of plain text, by their names; None if unknown."""
    plain = [name.strip().casefold() for name in names]
    exact = [(language.casefold(),) for language in languages_of(data)]
    known = [] if data.directions else [[*ROLES]] if data.source_lang else [[("target",)], [("text",)]]
    for form in (exact, *known):
        if columns := _distinct(plain, form) or _distinct([*map(without_number, plain)], form):
            return columns
    languages = [language_of(without_number(name)) for name in names]
    if len({*exact}) < len(exact):
        return _distinct([language or "" for language in languages], exact)
    # Not for one language: the first pair of a dictionary may be English and inglese.
    return find_all(languages, data) if languages_in(names) else None


def _distinct(names: Sequence[str], form: Sequence[Collection[str]]) -> list[int] | None:
    """Return the first column for each collection of names, none of them twice; None unless all are there."""
    columns: list[int] = []
    for any_of in form:
        columns += [i for i, name in enumerate(names) if name in any_of and i not in columns][:1]
    return columns if len(columns) == len(form) else None


def further_columns(names: Sequence[str], sides: Sequence[int], data: DataConfig) -> list[int]:
    """Return the columns of further references: named like the target, with a number or "ref", or exactly so."""
    if len(sides) < 2:
        return []
    plain = [str(name).strip().casefold() for name in names]
    target = plain[sides[1]]
    further = []
    for i, name in enumerate(plain):
        base = without_number(name)
        alike = base == without_number(target) or base in ROLES[1] or is_named(base, data.target_lang)
        if i not in sides and alike and (name == target or base != name or "ref" in name):
            further.append(i)
    return further


def languages_in(names: Sequence[str]) -> list[str]:
    """Return the languages that a row names, if there are several; otherwise the row is data."""
    languages = list(dict.fromkeys(language for name in names if (language := language_of(without_number(str(name))))))
    return languages if len(languages) > 1 and not is_same(languages[0], languages[1]) else []


def _unnamed(rows: Sequence[list[str]], width: int, table: Table, data: DataConfig) -> Columns | None:
    """Choose among columns without names, by what they hold and what the name of the file says."""
    wanted, name = languages_of(data), table.file.name.stem
    pair = in_file_name(name)
    if data.directions and not pair:
        raise OtherLanguagesError(f"{table.file}: the first row must name the columns, {_list(wanted)}.")
    if width < 2 <= len(wanted):
        raise DataError(f"{table.file} has one column, but pairs need two, with a tab or a comma between them.")
    texts, kinds = _text_columns(rows, width, table) if width > 2 else ([*range(width)], set())
    if len(texts) != 2 and not len(wanted) == len(texts) == 1:
        raise _undecided(rows, width, texts, table)
    if (
        "licences" in kinds
        and (other := language_of(name))
        and not any(is_same(other, language) for language in wanted)
    ):
        raise other_languages(f"{table.file} is in en and {other}, by its name", ["en", other], data)
    sides = usual = texts[-len(wanted) :]
    if pair and len(texts) == 2:
        order = find_all(pair, data)
        if order is None and serves_others(pair, data):
            return None
        if order is None:
            raise other_languages(f"{table.file} is in {_list(pair)}, by its name", pair, data)
        sides = [texts[i] for i in order]
    note = _guess(sides, rows, width, wanted) if width > 2 or sides != usual else ""
    return Columns(sides, width, f"the other rows have {width}", note=note)


_NO_TEXT = {
    "numbers": re.compile(r"[\d\s.,:;/+%TZ-]+"),
    "addresses": re.compile(r"(?:https?://|www\.)\S+"),
    "licences": re.compile(r"CC[- ]?(?:BY|0)\b.*|.*\bAttribution:.*"),
}


def _text_columns(rows: Sequence[list[str]], width: int, table: Table) -> tuple[list[int], set[str]]:
    """Return the columns that may hold text, by their cells in these rows, and what others hold, see _NO_TEXT."""
    texts, kinds = [], set()
    rows = [row + [""] * (width - len(row)) for row in rows if table.rows_may_be_short or len(row) == width]
    for column in range(width):
        cells = [row[column] for row in rows if row[column].strip()]
        kind = next((kind for kind, form in _NO_TEXT.items() if cells and all(map(form.fullmatch, cells))), "")
        few = not any(" " in cell.strip() for cell in cells) and 0 < len({*cells}) <= len(cells) / 10
        same = len(cells) > 1 and len({*cells}) == 1
        mostly_empty = len(cells) * 2 < len(rows)
        kinds.add(kind)
        if not (column in table.left_out or mostly_empty or kind or few or same):
            texts.append(column)
    return texts, kinds


def _guess(sides: Sequence[int], rows: Sequence[list[str]], width: int, wanted: Sequence[str]) -> str:
    example = next((row for row in rows if len(row) > max(sides)), [""] * width)
    columns = (
        f"column {side + 1} is {language} ({shorten(' '.join(example[side].split()), 30)})"
        for side, language in zip(sides, wanted, strict=True)
    )
    return f"of {width} columns, {', '.join(columns)}; set data.columns if that is wrong"


def _undecided(rows: Sequence[list[str]], width: int, texts: Sequence[int], table: Table) -> DataError:
    first = next((row for row in rows if len(row) == width), [])
    held = ", ".join(f"{i} ({shorten(' '.join(cell.split()), 20)})" for i, cell in enumerate(first[:8], 1))
    count = {0: "none holds", 1: "one holds"}.get(len(texts), f"{len(texts)} hold")
    return DataError(
        f"{table.file} has {width} columns, of which {count} sentences: set data.columns to the two to use, as in "
        f"--data.columns 1,{min(width, 3)}; here they are: {held}."
    )


def _list(names: Iterable[str]) -> str:
    return " and ".join(names)
