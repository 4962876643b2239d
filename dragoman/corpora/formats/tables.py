"""From the rows of a table to pairs: which columns hold the two languages, and which rows are broken.

The columns are those of data.columns, else those that the first row names, else the only two, else the only two that
hold sentences: what looks like numbers, addresses, licences or a few words again and again does not. A choice that is
not obvious is said in one line. All rows must have the same number of columns. Columns such as `it2` and `ref1` are
further references. Where tables were joined, a row of names may come again, with the columns in another order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import itemgetter

from dragoman.console import shorten
from dragoman.corpora.formats.files import File
from dragoman.corpora.formats.languages import (
    ROLES,
    find_all,
    in_file_name,
    is_named,
    is_same,
    language_of,
    names_of,
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
    place: Callable[[int], str]  # names a row in messages, by its position
    names: list[str] | None = None  # of the columns, if not in the first row
    left_out: Collection[int] = ()  # columns, from 0, that the file says are no text
    padded: bool = False  # empty cells at the end of a row may be missing


@dataclass(frozen=True)
class Columns:
    """Where the sides are. The first row is no pair if it holds names."""

    sides: Sequence[int]  # column of each language, from 0, and of further references
    width: int
    rule: str  # for the message about a row of another width
    in_first_row: bool = False
    note: str = ""


@dataclass
class _Found:
    """Columns that may hold text, and why the others do not."""

    text: list[int] = field(default_factory=list)
    others: dict[int, str] = field(default_factory=dict)


def pairs_of_rows(rows: Iterable[Row], table: Table, data: DataConfig, say: Say) -> Units:
    """Yield the pairs of a table. An empty row is an empty pair. Raises DataError; see the module."""
    rows = iter(rows)
    sample = list(islice(rows, SAMPLE))
    if not sample:
        return
    columns = _choose(sample, table, data)
    if columns is None:  # it serves another of data.directions
        return
    if columns.note:
        say(f"{table.file}: {columns.note}")
    sides, width, pick, more = columns.sides, columns.width, _picker(columns.sides), len(columns.sides) > 2
    names = _first_names(sample[0][1], columns, data)
    for position, cells in chain(sample[columns.in_first_row :], rows):
        if isinstance(cells, Fault):
            yield broken(position, *cells, data)
            continue
        if table.padded:
            cells += [""] * (width - len(cells))
        fits = len(cells) == width and NotText not in map(type, texts := pick(cells))
        if fits and texts[0] not in names:  # most rows
            yield position, texts[0], reference(texts[1:]) if more else texts[1]
        elif not any(cells):
            yield position, "", ""
        elif not names.isdisjoint(cells) and (found := _columns_of_header(cells, sides, data)):
            columns = replace(columns, sides=found, width=len(cells))
            sides, width, pick, more = found, len(cells), _picker(found), len(found) > 2
            yield left_out(position, " | ".join(cells), "names of columns, no pair")
        elif fits:
            yield position, texts[0], reference(texts[1:]) if more else texts[1]
        else:
            yield broken(position, " | ".join(cells), _fault(position, cells, columns, table), data)


def _picker(sides: Sequence[int]) -> Callable[[list[str]], Sequence[str]]:
    return itemgetter(*sides) if len(sides) > 1 else lambda cells: ("", cells[sides[0]])


def _first_names(first: list[str] | Fault, columns: Columns, data: DataConfig) -> frozenset[str]:
    """Return cells that a row of names has at least one of."""
    if len(columns.sides) < 2:
        return frozenset()
    names = [str(first[side]) for side in columns.sides] if columns.in_first_row else []
    names += [name for language in languages_of(data) for name in (language, *names_of(language))]
    names += chain(*ROLES)
    return frozenset(form(name) for name in names for form in (str, str.lower, str.capitalize, str.upper))


def _columns_of_header(cells: list[str], sides: Sequence[int], data: DataConfig) -> Sequence[int] | None:
    """Return the columns of the sides, if a row holds names of columns and no pair."""
    if data.columns:
        wanted = [each.strip().casefold() for each in str(data.columns).split(",")]
        plain = [cell.strip().casefold() for cell in cells]
        if all(each in plain for each in wanted):
            return [plain.index(each) for each in wanted][-len(sides) :]
    found = find_columns(cells, data)
    return sides if found and data.columns else found and [*found, *further_columns(cells, found, data)]


def _fault(position: int, cells: list[str], columns: Columns, table: Table) -> DataError:
    place, count = table.place(position), len(cells)
    if count != columns.width:
        return DataError(f"{place}: {count} column{'s' * (count != 1)}, but {columns.rule}.")
    value = next(cells[side] for side in columns.sides if isinstance(cells[side], NotText))
    return DataError(f"{place}: {value} is a number or a date, not text: format the column as text.")


# ----------------------------------------------------------------------------------------------- choosing columns


def _choose(sample: Sequence[Row], table: Table, data: DataConfig) -> Columns | None:
    """Choose the columns; None if they serve another of data.directions. Raises DataError."""
    whole = [cells for _, cells in sample if not isinstance(cells, Fault) and any(cells)]
    first = [] if isinstance(sample[0][1], Fault) else sample[0][1]
    names = table.names or first
    if not (whole or table.names):
        return Columns([0], 1, "the rows above are empty")
    width = len(names) if table.names else _usual_width(whole, table)
    if data.columns:
        return _as_set(names, width, table, data)
    if named := find_columns(names, data):
        return _named(names, named, table, data)
    there = languages_in(names)
    if there:
        if serves_others(there, data):
            return None
        raise _others(f"{table.place(sample[0][0])}: the first row names {_list(there)}", there, data)
    if _names_one(names, data):
        said = f"{table.place(sample[0][0])}: the first row names {_list(names)}"
        raise DataError(f"{said}, but the settings ask for {_list(languages_of(data))}.")
    pair = in_file_name(table.file.name.stem)
    if data.directions and not pair:
        where = table.place(sample[0][0])
        raise OtherLanguagesError(f"{where}: the first row must name the columns, {_list(languages_of(data))}.")
    return _unnamed(whole, width, pair, table, data)


def _usual_width(rows: Sequence[list[str]], table: Table) -> int:
    widths = Counter(map(len, rows))
    return max(widths, default=0) if table.padded else widths.most_common(1)[0][0] if widths else 0


def _as_set(names: Sequence[str], width: int, table: Table, data: DataConfig) -> Columns:
    """The columns of data.columns."""
    wanted = [each.strip() for each in str(data.columns).split(",")]
    headed = bool(languages_in(names) or find_columns(names, data))
    if all(each.isdecimal() for each in wanted):
        sides = [int(each) - 1 for each in wanted]
        if max(sides) >= width:
            raise DataError(f"data.columns is {data.columns}, but {table.file} has {width} columns.")
    else:
        sides, headed = columns_by_name(names, str(table.file), data), table.names is None
    rule = f"the {'first row names' if headed else 'other rows have'} {width}"
    sides = sides if data.source_lang else sides[-1:]
    return Columns(sides, width, rule, headed and table.names is None, _note_references(sides, data))


def columns_by_name(names: Sequence[str], where: str, data: DataConfig) -> list[int]:
    """Return the indices of the names in data.columns. Raises DataError if one is not there."""
    plain = [name.strip().casefold() for name in names]
    wanted = [each.strip() for each in str(data.columns).split(",")]
    if missing := [each for each in wanted if each.casefold() not in plain]:
        there = ", ".join(shorten(name, 30) for name in names) or "nothing"
        raise DataError(f"data.columns names {missing[0]}, but {where} has {there}.")
    return [plain.index(each.casefold()) for each in wanted]


def find_columns(names: Sequence[str], data: DataConfig) -> list[int] | None:
    """Return the indices of the columns of source and target, or of plain text, by their names; None if unknown."""
    plain = [name.strip().casefold() for name in names]
    exact = [(language.casefold(),) for language in languages_of(data)]
    known = [] if data.directions else [[*ROLES]] if data.source_lang else [[("target",)], [("text",)]]
    for form in (exact, *known):
        if found := _distinct(plain, form) or _distinct([*map(without_number, plain)], form):
            return found
    found = [language_of(without_number(name)) for name in names]
    if len({*exact}) < len(exact):
        return _distinct([each or "" for each in found], exact)
    # Not for one language: the first pair of a dictionary may be English and inglese.
    return find_all(found, data) if languages_in(names) else None


def _distinct(names: Sequence[str], form: Sequence[Collection[str]]) -> list[int] | None:
    """Return the first column for each collection of names, none of them twice; None unless all are there."""
    found: list[int] = []
    for any_of in form:
        found += [i for i, name in enumerate(names) if name in any_of and i not in found][:1]
    return found if len(found) == len(form) else None


def further_columns(names: Sequence[str], sides: Sequence[int], data: DataConfig) -> list[int]:
    """Return the columns of further references: named like the target, with a number or "ref", or exactly so."""
    if len(sides) < 2:
        return []
    plain = [str(name).strip().casefold() for name in names]
    target = plain[sides[1]]
    found = []
    for i, name in enumerate(plain):
        base = without_number(name)
        alike = base == without_number(target) or base in ROLES[1] or is_named(base, data.target_lang)
        if i not in sides and alike and (name == target or base != name or "ref" in name):
            found.append(i)
    return found


def _note_references(sides: Sequence[int], data: DataConfig) -> str:
    """Say which columns only scores use."""
    numbers = _list(str(side + 1) for side in sides[2:])
    return f"column {numbers}: further references, which only scores use" if numbers else ""


def languages_in(names: Sequence[str]) -> list[str]:
    """Return the languages that a row names, if there are several; otherwise it is no row of names."""
    found = list(dict.fromkeys(language for name in names if (language := language_of(without_number(str(name))))))
    return found if len(found) > 1 and not is_same(found[0], found[1]) else []


def _named(names: Sequence[str], sides: Sequence[int], table: Table, data: DataConfig) -> Columns:
    wanted = languages_of(data)
    obvious = {*wanted, "text", *chain(*ROLES)}
    sides, note = [*sides, *further_columns(names, sides, data)], ""
    if not {names[side] for side in sides[:2]} <= obvious:
        each = (
            f"column {side + 1} ({shorten(names[side], 30)}) is {language}"
            for side, language in zip(sides, wanted, strict=False)
        )
        note = f"{', '.join(each)}, by its name"
    note = "; ".join(filter(None, [note, _note_references(sides, data)]))
    return Columns(sides, len(names), f"the first row names {len(names)}", table.names is None, note)


def _names_one(cells: Sequence[str], data: DataConfig) -> bool:
    """Whether the first row holds codes of languages, only one of which is wanted."""
    codes = all(re.fullmatch(r"[a-z]{2,3}(?:[-_]\w+)?", cell) for cell in cells)
    return codes and len(cells) > 1 and len({*cells} & {*languages_of(data)}) == 1


def _unnamed(
    rows: Sequence[list[str]], width: int, pair: tuple[str, str] | None, table: Table, data: DataConfig
) -> Columns | None:
    """Choose among columns without names, by what they hold and what the name of the file says."""
    wanted = languages_of(data)
    rule = f"the other rows have {width}"
    if len(wanted) == 1 and width == 1:
        return Columns([0], width, rule)
    if width < 2:
        raise DataError(f"{table.file} has one column, but pairs need two, with a tab or a comma between them.")
    found = _text_columns(rows, width, table) if width > 2 else _Found([0, 1])
    if len(wanted) == 1 and len(found.text) == 1:
        return Columns(found.text, width, rule, note=_guess(found.text, rows, width, wanted))
    if len(found.text) != 2:
        raise _undecided(rows, width, found, table)
    name = table.file.name.stem
    if "licences" in found.others.values() and (other := language_of(name)) and not find_any(other, data):
        raise _others(f"{table.file} is in en and {other}, by its name", ["en", other], data)
    sides = found.text if len(wanted) == 2 else found.text[1:]
    if pair is None:
        return Columns(sides, width, rule, note=_guess(sides, rows, width, wanted) if width > 2 else "")
    order = find_all(pair, data)
    if order is None:
        if serves_others(pair, data):
            return None
        raise _others(f"{table.file} is in {_list(pair)}, by its name", pair, data)
    usual, sides = sides, [found.text[i] for i in order]
    changed = width > 2 or sides != usual
    return Columns(sides, width, rule, note=_guess(sides, rows, width, wanted) if changed else "")


def find_any(language: str, data: DataConfig) -> bool:
    """Whether a language is one of those wanted."""
    return any(is_same(language, language_of(wanted) or wanted) for wanted in languages_of(data))


_NO_TEXT = {
    "numbers": re.compile(r"[\d\s.,:;/+%TZ-]+"),
    "addresses": re.compile(r"(?:https?://|www\.)\S+"),
    "licences": re.compile(r"CC[- ]?(?:BY|0)\b.*|.*\bAttribution:.*"),
}


def _text_columns(rows: Sequence[list[str]], width: int, table: Table) -> _Found:
    """Judge each column by its cells in these rows."""
    found = _Found()
    rows = [row + [""] * (width - len(row)) for row in rows if table.padded or len(row) == width]
    for column in range(width):
        cells = [row[column] for row in rows if row[column].strip()]
        kind = next((kind for kind, form in _NO_TEXT.items() if cells and all(map(form.fullmatch, cells))), "")
        few = not any(" " in cell.strip() for cell in cells) and 0 < len({*cells}) <= len(cells) / 10
        if column in table.left_out:
            found.others[column] = "no text, as the file says"
        elif len(cells) * 2 < len(rows):
            found.others[column] = "mostly empty"
        elif kind or few or (len(cells) > 1 and len({*cells}) == 1):
            found.others[column] = kind or "the same words again"
        else:
            found.text.append(column)
    return found


def _guess(sides: Sequence[int], rows: Sequence[list[str]], width: int, wanted: Sequence[str]) -> str:
    example = next((row for row in rows if len(row) > max(sides)), [""] * width)
    each = (
        f"column {side + 1} is {language} ({shorten(' '.join(example[side].split()), 30)})"
        for side, language in zip(sides, wanted, strict=True)
    )
    return f"of {width} columns, {', '.join(each)}; set data.columns if that is wrong"


def _undecided(rows: Sequence[list[str]], width: int, found: _Found, table: Table) -> DataError:
    first = next((row for row in rows if len(row) == width), [])
    shown = [shorten(" ".join(cell.split()), 20) for cell in first[:8]]
    held = ", ".join(f"{number} ({cell})" for number, cell in enumerate(shown, 1))
    count = "none holds" if not found.text else "one holds" if len(found.text) == 1 else f"{len(found.text)} hold"
    return DataError(
        f"{table.file} has {width} columns, of which {count} sentences: set data.columns to the two to use, as in "
        f"--data.columns 1,{min(width, 3)}; here they are: {held}."
    )


def _others(what: str, languages: Sequence[str], data: DataConfig) -> OtherLanguagesError:
    return other_languages(what, languages, data)


def _list(names: Iterable[str]) -> str:
    return " and ".join(names)
