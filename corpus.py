"""Sentence pairs from wherever they lie: found, read strictly, cleaned, and split.

Use:
    sources = find_sources(config.data)                          # is everything there, and what is it?
    pairs, counts, weights = read_corpus(sources, config.data)   # pairs["train"] is a list of ("Hello.", "Ciao.")
    for portion in read_portions(sources, config.data):          # likewise, of a corpus that memory cannot hold
        portion.pairs["train"]

What data.train, data.validation and data.test may name (a path is sought in the current folder, then beside this file):
    path/train                  parallel text: the lines of path/train.en and path/train.it belong together
    pairs.tsv  pairs.csv        two columns, or a first row with names of columns; .tsv knows no quotes, .csv does
    pairs.jsonl  pairs.parquet  rows with the two languages
    a folder                    of such files, called train, validation and test
    a folder, or owner/name     a data set of the Hugging Face hub, or a copy of it (no .tsv, no .csv)
data.train may name several, data/news + 2.5 * data/letters: what is seen of an epoch is all of the first, and each pair
of the second two or three times.
The languages of a row are `translation: {"en": ..., "it": ...}`, or columns `en` and `it`, or `source` and `target`.

With data.directions all of this is sought for each pair of languages among them, and what has them is read: a folder
may hold train.en, train.it and train.fr, a row any number of languages. Columns must then bear the names of languages,
unless there are but two. A pair that serves both ways is two pairs, each with its tag.

Where data.source_lang is null they name plain text in data.target_lang, which is read as pairs with an empty source. Of
all these the target side alone is then asked for; besides, a row may have its text in a column `text`, a table may be
one column, and a file may be text, a line each: book.txt, or book.it.

Limits: `read_corpus` holds all pairs in memory, `read_portions` some tens of thousands. Nothing is guessed: what is not
UTF-8, or has no partner, ends in a DataError that says where, because a file that slips by one line teaches the wrong
translation of everything below. Only pairs without text on a side are dropped, and counted; so are those that are not
UTF-8, if data.on_bad_line is skip.
"""

import csv
import difflib
import hashlib
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

from config import DataConfig
from languages import Direction, tagged

Pair = tuple[str, str]
SPLITS = ("train", "validation", "test")
# What folders and data sets call them, too.
ALIASES = {"valid": "validation", "val": "validation", "dev": "validation"}
MOST_OFTEN = 1000  # that a pair may be seen in an epoch
PORTION = 50_000  # pairs that are read at a time: 30 MB
ROWS = 10_000  # of parquet that are turned into Python's objects at a time
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")  # endings of files that are told what is wrong with them
AS_WRITTEN = DataConfig()  # to clean text by, where no run says how: letters stay what they are


class DataError(ValueError):
    """Something is wrong with the data: one line that says what, where, and what to do."""


class OtherLanguagesError(DataError):
    """Nothing is there in the languages that are asked for."""


# --- Text ---------------------------------------------------------------------------------------------------------


def clean(text: str, data: DataConfig = AS_WRITTEN) -> str:
    """Compose letters and their accents (data.normalize), make each run of white space one blank, and strip the ends.

    Whatever becomes ids goes through here, in training and in translating. The result has neither tab nor line break,
    and what is clean stays as it is. Lower case (data.lowercase) is that of Unicode whatever the language, as in
    published lower-cased scores: ß stays, Σ at the end of a word becomes ς, and I becomes i in Turkish, too.
    """
    form = "NFKC" if data.normalize == "nfkc" else "NFC"
    text = unicodedata.normalize(form, text)
    if data.lowercase:
        text = unicodedata.normalize(form, text.lower())  # H and a line below are two letters, but ẖ is one
    return " ".join(text.split())


def decode_line(raw: bytes, name: str, number: int, strict: bool = True) -> str:
    """The text of a line, without its end (LF or CRLF) and without the mark (BOM) that may begin the first line.

    Raises DataError, which tells the name of the file or stream and the number of the line, if that is not UTF-8. If
    not strict, lone surrogates stand for the wrong bytes instead, by which `is_text` knows the line.
    """
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    if number == 1:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError(f"{name} is UTF-16, but text must be UTF-8: convert it (iconv -f UTF-16 -t UTF-8).")
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    if not strict:
        return raw.replace(b"\0", b"\xff").decode(errors="surrogateescape")
    if b"\0" in raw:
        raise DataError(f"{name}:{number}, byte {raw.index(0) + 1}: a NUL, which no text has: is this UTF-8?")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}:{number}, byte {error.start + 1}: 0x{raw[error.start]:02x} is not UTF-8 here: "
            "mend the line, or convert the file (iconv -f ISO-8859-1 -t UTF-8, if that is what it is)."
        ) from error


def is_text(text: str) -> bool:
    """Whether a string can be written as UTF-8. A lone surrogate, half of a letter, cannot."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


# --- Finding ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Sentence pairs that were found but not yet read.

    Attributes:
        split: the setting that names it, and what it is for
        name: the value of that setting, or what it says of this one of several
        path: what to call it for `datasets`: a folder, or a name on the hub
        parts: the files of each split, two of parallel text or else one; nothing if `datasets` must read it
        files: everything it consists of, as far as that is on this machine
        weight: how often each training pair is seen in an epoch
        number: which one of several it is, from 1
        languages: of source and target, if there are several directions
    """

    split: str
    name: str
    path: str
    parts: Mapping[str, tuple[Path, ...]]
    files: tuple[Path, ...]
    weight: float = 1.0
    number: int = 1
    languages: tuple[str, str] | None = None

    def __str__(self) -> str:
        return f"data.{self.split} ({self.name})"


def noun(data: DataConfig) -> str:
    """What to call one of the things that a corpus holds."""
    return "pair" if data.source_lang else "text"


def _languages(data: DataConfig) -> tuple[str, ...]:
    """Those of a pair, or the one of plain text."""
    return (data.source_lang, data.target_lang) if data.source_lang else (data.target_lang,)


def find_sources(data: DataConfig) -> list[Source]:
    """Find what data.train, data.validation and data.test name, as far as they name anything. Raises DataError."""
    named = [("train", *part) for part in parts_of(data.train)]
    named += [(split, 1.0, name) for split in SPLITS[1:] if (name := getattr(data, split))]
    found: list[Source] = []
    for split, weight, name in named:
        number = 1 + max((source.number for source in found if source.split == split), default=0)
        found += [replace(source, weight=weight, number=number) for source in find_named(split, data, name)]
    return found


def find_named(split: str, data: DataConfig, name: str) -> list[Source]:
    """As `find_source`, but with data.directions once for each pair of languages that may be there."""
    found: list[Source] = []
    missing = OtherLanguagesError("")
    for languages, of_pair in by_languages(data).items():
        try:
            found.append(replace(find_source(split, of_pair, name), languages=languages))
        except OtherLanguagesError as error:
            missing = error
    if not found:
        raise missing
    # A folder in which there are files of one pair of languages is no data set that has the others.
    return [source for source in found if source.parts] or found


def by_languages(data: DataConfig) -> dict[tuple[str, str] | None, DataConfig]:
    """For each pair of languages among data.directions the settings to find and read its pairs by; None: the only one.

    Where there is but one pair of languages, columns need no names: there `directions` is null.
    """
    if not data.several:
        return {None: data}
    found: dict[tuple[str, str] | None, DataConfig] = {}
    for source, target in [(data.source_lang or "", data.target_lang), *data.several]:
        if (target, source) not in found:
            found[source, target] = replace(data, source_lang=source, target_lang=target)
    [usual, *others] = found
    return found if others else {usual: replace(data, directions=None)}


def directions_of(languages: tuple[str, str], data: DataConfig) -> list[Direction]:
    """The directions in which pairs of these languages are learnt from."""
    return [direction for direction in data.several if direction in (languages, languages[::-1])]


def parts_of(several: str) -> list[tuple[float, str]]:
    """The weights and the names of the corpora in the value of data.train, "a + 2.5 * b". Raises DataError."""
    found = []
    for part in re.split(r"\s\+\s", several):
        matched = re.fullmatch(r"\s*(?:(\d+|\d*\.\d+)\s*\*)?\s*(.*?)\s*", part, re.DOTALL)
        assert matched, "whatever it is"
        weight, name = matched.groups()
        found.append((float(weight or 1), name))
        if not name or re.match(r"[\d.]+\s*\*", name) or not 0 < found[-1][0] <= MOST_OFTEN:
            raise DataError(
                f"data.train is {several}, but several corpora are named as in data/news + 2.5 * data/letters, with "
                f"weights above 0 and up to {MOST_OFTEN}."
            )
    return found


def find_source(split: str, data: DataConfig, name: str) -> Source:
    """Find what data.train, data.validation or data.test names, or one of several; DataError if there is nothing."""
    path = Path(name).expanduser()
    places = [path] if path.is_absolute() else [Path.cwd() / path, Path(__file__).resolve().parent / path]
    for place in dict.fromkeys(places):
        try:
            parts = _parts(place, split, data)
            if parts:
                return Source(split, name, str(place), parts, tuple(file for part in parts.values() for file in part))
            if place.is_dir():
                return Source(split, name, str(place), {}, _files(place))
        except OSError as error:  # a folder that one may not look into, a name that is too long
            raise _unreadable(place, error) from error
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) and not any(place.parent.is_dir() for place in places):
        return Source(split, name, name, {}, ())
    tried = " or ".join(map(str, places))
    raise OtherLanguagesError(f"data.{split} is {name}, but there is no such thing at {tried}{_near(places)}")


def _parts(place: Path, split: str, data: DataConfig) -> dict[str, tuple[Path, ...]]:
    """The files of each split at a place, which is a file, what files begin with, or a folder of such."""
    if not place.is_dir() or data.config:
        part = _part(place, data)
        return {split: part} if part else {}
    found = {}
    for name in (*SPLITS, *ALIASES):
        try:
            part = _part(place / name, data)
        except OtherLanguagesError:
            if not data.directions:
                raise
            continue  # of several languages, some may have no validation of their own
        found |= {name: part} if part else {}
    return found


def _part(place: Path, data: DataConfig) -> tuple[Path, ...] | None:
    """The two sides of parallel text, or the one table or plain text, that are at a place or begin with it."""
    sides = [Path(f"{place}.{language}") for language in _languages(data)]
    missing = [side for side in sides if not side.is_file()]
    if not missing:
        return tuple(sides)
    endings = list(_READERS) if data.source_lang else [*_READERS, ".txt", f".{data.target_lang}"]
    if place.is_file():
        if place.suffix in endings:
            return (place,)
        parallel = place.suffix[1:] in _languages(data)
        hint = f": for parallel text leave out the language, as in {place.with_suffix('')}" if parallel else ""
        raise DataError(f"{place} is a file, but a file of {noun(data)}s must end in {', '.join(endings)}{hint}.")
    tables = [file for suffix in endings if (file := Path(f"{place}{suffix}")).is_file()]
    if not tables and len(missing) < len(sides):
        raise OtherLanguagesError(f"{place} is the beginning of parallel text, but {missing[0]} is missing.")
    if len(tables) > 1:
        raise DataError(f"there are {' and '.join(map(str, tables))}: name the one that is meant, or move the other.")
    return tuple(tables) or None


def _files(folder: Path) -> tuple[Path, ...]:
    """The files of a folder, but for hidden ones such as .git, which are no part of a data set."""
    found = (file for file in folder.rglob("*") if not any(part[0] == "." for part in file.relative_to(folder).parts))
    return tuple(sorted(file for file in found if file.is_file()))


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read: {error.strerror}.")


def _near(places: Collection[Path]) -> str:
    """How an error goes on that could not find a path: with what is like it, else with what there is."""
    for place in places:
        if place.parent.is_dir():
            entries = sorted(entry for entry in place.parent.iterdir() if not entry.name.startswith("."))
            there = [entry.name for entry in entries]
            packed = [entry for entry in entries if entry.suffix in PACKED]
            for entry in packed:
                if entry.name.startswith(f"{place.name}."):
                    return f": there is {Path(place.parent.name) / entry.name}, which must be unpacked first."
            stems = [entry.stem for entry in entries if entry not in packed]
            names = [each for each in (*there, *stems) if each != place.name]  # what was asked for is no help
            close = difflib.get_close_matches(place.name, names, n=1)
            if close:
                return f": did you mean {Path(place.parent.name) / close[0]}?"
            if there:
                return f"; {place.parent} has {', '.join(there[:8])}{', ...' if len(there) > 8 else '.'}"
    return "; its folder does not exist either."


def hashes(sources: Sequence[Source]) -> dict[str, str]:
    """The sha256 of every file, by its name as seen from where the source lies; a hub's data.revision pins its own."""
    found = {}
    for source in sources:
        setting = f"data.{source.split}" + (f" ({source.number})" if source.number > 1 else "")
        for path in source.files:
            name = os.path.relpath(path, Path(source.path).parent)
            try:
                with path.open("rb") as file:
                    found[f"{setting}: {name}"] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise _unreadable(path, error) from error
    return found


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
        raise _unreadable(path, error) from error


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
                f"{where}: the first row must name the columns, {' and '.join(_languages(data))}."
            )
        elif number == 0 and _names_others(cells, data):
            there, wanted = " and ".join(cells), " and ".join(_languages(data))
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
        raise DataError(f"{source} cannot be loaded: {_reason(error)}{_about_configs(error, data)}") from error
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


def _about_configs(error: Exception, data: DataConfig) -> str:
    if "config" not in str(error).lower():
        return ""
    return f" Set data.config (now {data.config}) to one of these; each serves both directions."


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
    return next((columns for columns in (_languages(data), *known) if set(columns) <= set(names)), None)


def _serves_others(names: Collection[str], data: DataConfig) -> bool:
    """Whether columns of these names serve another one of several directions."""
    return any(set(direction) <= set(names) for direction in data.several)


def _names_others(cells: Sequence[str], data: DataConfig) -> bool:
    """Whether what should be the first pair is names of languages, of which one is asked for and another is not."""
    names = all(re.fullmatch(r"[a-z]{2,3}(?:[-_]\w+)?", cell) for cell in cells)
    return names and len(cells) > 1 and len({*cells} & {*_languages(data)}) == 1


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
    return json.dumps(dict.fromkeys(_languages(data), "..."))


# --- Splitting ----------------------------------------------------------------------------------------------------


def known_by(pair: Pair, data: DataConfig) -> str:
    """What makes two pairs the same sentence: the source, or the text where there is no source."""
    return pair[0 if data.source_lang else 1]


def side_known_by(languages: tuple[str, str], data: DataConfig) -> int:
    """Likewise, the side (0 or 1) of pairs that serve several directions: that of the language that most of them have.

    So a sentence and its translation are on the same side of a split in all of them, if one language is in each.
    """
    often = Counter(chain(*data.several))
    return languages.index(max(languages, key=lambda language: often[language]))


def for_directions(pair: Pair, languages: tuple[str, str] | None, data: DataConfig) -> list[Pair]:
    """A pair of cleaned text as each direction has it that learns from such pairs; or as it is, if there is but one."""
    if languages is None:
        return [pair]
    by_name = dict(zip(languages, pair, strict=True))
    return [(tagged(by_name[each.source], each), by_name[each.target]) for each in directions_of(languages, data)]


def assign(sentence: str, validation_fraction: float, test_fraction: float) -> str:
    """The split of a pair, by a hash of what it is `known_by`: equals fall together, in any order, in any corpus.

    The test set is what hashes lowest, so that it stays the same whatever becomes of the validation set.
    """
    point = int.from_bytes(hashlib.blake2b(sentence.encode(), digest_size=8).digest()) / 2**64
    if point < test_fraction:
        return "test"
    return "validation" if point < test_fraction + validation_fraction else "train"


@dataclass
class Count:
    """What became of the pairs of a split."""

    read: int = 0
    empty: int = 0  # dropped: no text on a side
    too_long: int = 0  # dropped: more than data.max_length tokens on a side; in training alone
    uneven: int = 0  # dropped: one side more than data.max_ratio times as long as the other; in training alone
    unreadable: int = 0  # dropped: a side is not UTF-8, and data.on_bad_line is skip

    @property
    def dropped(self) -> int:
        return self.empty + self.too_long + self.uneven + self.unreadable

    def __add__(self, other: "Count") -> "Count":
        return Count(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Portion:
    """Cleaned pairs that stand one behind the other in a corpus, by split, and what became of the others."""

    read: int  # pairs of the corpus that all this was made of
    weight: float  # how often each training pair is seen in an epoch
    directions: list[str]  # that learn from them, if there are several
    pairs: dict[str, list[Pair]]
    counts: dict[str, Count]

    @property
    def learnt(self) -> set[str]:
        """The directions for which there is a training pair here."""
        return set(self.directions if self.pairs["train"] else ())


def read_portions(sources: Sequence[Source], data: DataConfig, skip: int = 0) -> Iterator[Portion]:
    """The cleaned pairs of each split, PORTION pairs of the corpus at a time.

    The splits are named by the settings, else the data sets' own, else a share of train. A portion is of one source and
    depends on nothing but its own pairs: whoever has had `skip` pairs goes on behind them.
    """
    for (read_from, languages), parts in (given := given_splits(sources, data)).items():
        fractions = [0.0 if (split, languages) in given else getattr(data, f"{split}_fraction") for split in SPLITS[1:]]
        for raw, weight in parts:
            for _ in islice(raw, skip):
                skip -= 1
            while some := list(islice(raw, PORTION)):
                yield _portion(some, read_from, languages, weight, fractions, data)


def _portion(
    raw: Sequence[Pair],
    read_from: str,
    languages: tuple[str, str] | None,
    weight: float,
    fractions: Sequence[float],
    data: DataConfig,
) -> Portion:
    directions = [str(direction) for direction in directions_of(languages, data)] if languages else []
    side = side_known_by(languages, data) if languages else None
    found = Portion(len(raw), weight, directions, {split: [] for split in SPLITS}, {split: Count() for split in SPLITS})
    for source, target in raw:
        if not (is_text(source) and is_text(target)):
            found.counts[read_from].read += 1
            found.counts[read_from].unreadable += 1
            continue
        pair = clean(source, data), clean(target, data)
        sentence = known_by(pair, data) if side is None else pair[side]
        split = assign(sentence, *fractions) if read_from == "train" else read_from
        several = for_directions(pair, languages, data)
        found.counts[split].read += len(several)
        if pair[1] and (pair[0] or not data.source_lang):
            found.pairs[split] += several
        else:
            found.counts[split].empty += len(several)
    return found


def read_corpus(
    sources: Sequence[Source], data: DataConfig
) -> tuple[dict[str, list[Pair]], dict[str, Count], list[float]]:
    """All that `read_portions` gives: the pairs, what became of the others, and the weight of each training pair."""
    pairs: dict[str, list[Pair]] = {split: [] for split in SPLITS}
    counts = {split: Count() for split in SPLITS}
    weights: list[float] = []
    learnt: set[str] = set()
    for portion in read_portions(sources, data):
        weights += [portion.weight] * len(portion.pairs["train"])
        learnt |= portion.learnt
        for split in SPLITS:
            pairs[split] += portion.pairs[split]
            counts[split] += portion.counts[split]
    check_splits({split: len(pairs[split]) for split in SPLITS}, counts, learnt, data)
    return pairs, counts, weights


def check_splits(
    kept: Mapping[str, int], counts: Mapping[str, Count], learnt: Collection[str], data: DataConfig
) -> None:
    """DataError if there is nothing to train on, or to validate on, among so many pairs that were kept.

    learnt names the directions of which there are training pairs.
    """
    for direction in data.several:
        if str(direction) not in learnt:
            raise DataError(f"there is no pair for {direction} among data.train ({data.train}).")
    for split, remedy in (
        ("train", "smaller data.validation_fraction and data.test_fraction"),
        ("validation", f"a larger data.validation_fraction, or {noun(data)}s that data.validation names"),
    ):
        if not kept[split]:
            raise DataError(
                f"there is no {noun(data)} for {split} among {sum(count.read for count in counts.values()):,} that "
                f"were read: more {noun(data)}s are needed, or {remedy}."
            )


def read_split(split: str, sources: Sequence[Source], data: DataConfig) -> list[Pair]:
    """The cleaned pairs of one split that sources have, but for those that lack a side. Raises DataError."""
    found = []
    for (name, languages), parts in given_splits(sources, data).items():
        for raw, _ in parts if name == split else ():
            pairs = (tuple(clean(text, data) for text in pair) for pair in raw)
            found += [
                each
                for source, target in pairs
                if source and target
                for each in for_directions((source, target), languages, data)
            ]
    return found


def given_splits(
    sources: Sequence[Source], data: DataConfig
) -> dict[tuple[str, tuple[str, str] | None], list[tuple[Iterator[Pair], float]]]:
    """What is to be read for each split, and each pair of languages, with its weight."""
    found: dict[tuple[str, tuple[str, str] | None], list[tuple[Iterator[Pair], float]]] = {}
    fed = set()
    for source in sources:  # train first: what is named for a split wins over what came with train
        splits = read_splits(source, data)
        own = source.split != "train"
        for split in [split for split in ([source.split] if own else SPLITS) if split in splits]:
            raw = splits[split] if source.languages is None else _begun(splits[split])
            if raw is None:
                continue
            fed.add((source.split, source.number))
            key = split, source.languages
            found[key] = [(raw, 1.0)] if own else [*found.get(key, []), (raw, source.weight)]
    for source in sources:
        if (source.split, source.number) not in fed:
            raise DataError(f"{source} has no pairs in the languages of data.directions ({data.directions}).")
    return {key: found[key] for key in sorted(found, key=lambda key: SPLITS.index(key[0]))}


def _begun(raw: Iterator[Pair]) -> Iterator[Pair] | None:
    """The pairs, of which the first one is read by now; None if there is none in these languages."""
    for first in raw:
        return chain([first], raw)
    return None
