"""Tables as text: .csv, .tsv and .txt alike.

The delimiter is the tab, semicolon or comma that gives most of the first rows the same number of cells. With commas and
semicolons, a cell may be in quotes. With tabs, quotes belong to the text unless the first rows show that a program
wrote them, such as Anki or a spreadsheet. The first lines may be those of Anki ("#separator:tab", "#html:true",
"#tags column:3") or Excel ("sep=;").
"""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import chain, islice

from dragoman.corpora.formats.files import File, lines
from dragoman.corpora.formats.tables import SAMPLE, Row, Table, pairs_of_rows
from dragoman.corpora.formats.units import Fault, Say, Units
from dragoman.errors import DataError
from dragoman.settings import DataConfig

Numbered = tuple[int, str]  # a line with its number

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "space": " ", "pipe": "|", "colon": ":"}  # as Anki says
_DIRECTIVE = re.compile(
    r"#(separator|html|columns|deck|notetype|tags|if matches|(?:guid|deck|notetype|tags) column):(.*)|sep=(.)",
    re.IGNORECASE,
)
_CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^"\t\n]*))(?:[\t\n]|$)')
_DOUBLED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')


@dataclass
class _Head:
    """What the first lines say about the rest."""

    delimiter: str = ""
    html: bool = False
    columns: str = ""  # names, separated by the delimiter
    left_out: tuple[int, ...] = ()  # columns, from 0, that are about a note, such as its tags


def read_delimited(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a table as text."""
    [file] = files
    numbered = enumerate(lines(file, data), 1)
    head, numbered = _read_head(numbered)
    sample = list(islice(numbered, SAMPLE))
    numbered = chain(sample, numbered)
    delimiter = head.delimiter or _delimiter(sample, file, data)
    if file.suffix != ".csv" and delimiter in ";," and not head.delimiter:
        say(f"{file}: its columns are separated by {'commas' if delimiter == ',' else 'semicolons'}")
    quotes = bool(head.delimiter) or delimiter != "\t" or _is_quoted(sample)
    plain = ((n, _unquoted(line) if '""' in line else line.split("\t")) for n, line in numbered)
    rows = _quoted(file, numbered, delimiter) if quotes else plain
    if head.html:
        rows = ((n, cells if isinstance(cells, Fault) else [*map(_without_html, cells)]) for n, cells in rows)
    names = head.columns.split(delimiter) if head.columns else None
    table = Table(file, lambda position: f"{file}:{position}", names, head.left_out)
    return pairs_of_rows(rows, table, data, say)


def _delimiter(sample: Sequence[Numbered], file: File, data: DataConfig) -> str:
    """Return the delimiter. Sentences have commas, so unless it is a .csv, all rows must have as many of them."""
    if file.suffix == ".csv":
        best = max("\t;,", key=lambda delimiter: _fit(sample, delimiter, file))
        return best if _fit(sample, best, file) else ","
    tabs = any("\t" in line for _, line in sample)
    rows = sum(1 for _, line in sample if line.strip())
    agreed = [mark for mark in ";," if rows and data.source_lang and _fit(sample, mark, file) == rows]
    return "\t" if tabs or not agreed else agreed[0]


def _unquoted(line: str) -> list[str]:
    """Split a line at tabs; a cell may have been quoted by a program, though none of the first rows was."""
    cells = line.split("\t")
    return [cell[1:-1].replace('""', '"') if _DOUBLED.fullmatch(cell) else cell for cell in cells]


def _read_head(numbered: Iterator[Numbered]) -> tuple[_Head, Iterator[Numbered]]:
    """Read the lines in front of the rows; return what they say, and the lines behind them."""
    head, left_out = _Head(), set()
    for number, line in numbered:
        matched = _DIRECTIVE.fullmatch(line)
        if not matched:
            head.left_out = tuple(left_out)
            return head, chain([(number, line)], numbered)
        key, value, separator = matched[1], matched[2], matched[3]
        match (key or "sep").lower():
            case "sep":
                head.delimiter = separator
            case "separator":
                head.delimiter = SEPARATORS.get(value.strip().lower(), value[:1])
            case "html":
                head.html = value.strip().lower() == "true"
            case "columns":
                head.columns = value
            case other if other.endswith(" column") and value.strip().isdecimal():
                left_out.add(int(value) - 1)
    return head, numbered


def _fit(sample: Sequence[Numbered], delimiter: str, file: File) -> int:
    """Return how many of the first rows have the usual number of cells, if that is more than one; else 0."""
    rows = _quoted(file, sample, delimiter)
    widths = Counter(len(cells) for _, cells in rows if cells and not isinstance(cells, Fault))
    [(width, count)] = widths.most_common(1) or [(0, 0)]
    return count if width > 1 else 0


def _is_quoted(sample: Sequence[Numbered]) -> bool:
    """Whether a program wrote the quotes of a table with tabs: they enclose all cells, or those that need it.

    Otherwise they are part of the text, as in "Stop!" she said.
    """
    text = "\n".join(line for _, line in sample if line)
    at, needed, maybe, bare, commas = 0, False, False, 0, False
    while at < len(text):
        matched = _CELL.match(text, at)
        if not matched:
            return needed and '"' not in text[at + 1 :]  # the sample may end inside a cell
        inside, plain = matched[1], matched[2]
        if inside is not None:
            needed, maybe = needed or bool(re.search(r'["\t\n]', inside)), maybe or bool(re.search("[,;]", inside))
        else:
            bare, commas = bare + 1, commas or bool(re.search("[,;]", plain))
        at = matched.end()
    return needed or (maybe and not commas) or (not bare and len(sample) > 1)


def _quoted(file: File, numbered: Iterable[Numbered], delimiter: str) -> Iterator[Row]:
    """Yield the rows of a table with quotes. The row after a broken one starts a line later.

    A cell has at most as many characters as `csv.field_size_limit` says, so an unclosed quote cannot swallow the file.
    """
    taken: deque[Numbered] = deque()  # lines of the row that is being read
    again: deque[Numbered] = deque()  # lines behind the first of a broken row
    numbered = iter(numbered)

    def feed() -> Iterator[str]:
        while line := again.popleft() if again else next(numbered, None):
            taken.append(line)
            yield line[1] + "\n"

    while True:
        try:
            # Without skipinitialspace, a space after a comma would make the quotes behind it part of the text.
            for cells in csv.reader(feed(), strict=True, skipinitialspace=True, delimiter=delimiter):
                yield taken[0][0], cells
                taken.clear()
            return
        except csv.Error as error:
            number, raw = taken.popleft()
            again.extendleft(reversed(taken))
            taken.clear()
            message = f"{file}:{number}: {error}; write a quote inside a cell twice, and one around the whole cell."
            yield number, Fault(raw, DataError(message))


class _Text(HTMLParser):
    """The text of a field of Anki; a tag that starts a line becomes a space."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.parts += [" "] * (tag in ("br", "div", "p", "li", "tr", "td", "img"))


def _without_html(cell: str) -> str:
    if "<" not in cell and "&" not in cell and "[sound:" not in cell:
        return cell
    parser = _Text()
    parser.feed(re.sub(r"\[sound:[^]]*\]", "", cell))
    parser.close()
    return "".join(parser.parts)
