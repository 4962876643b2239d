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

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dragoman import resources
from dragoman.directions import Direction
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.settings import DataConfig

SPLITS = ("train", "validation", "test")
# What folders and data sets call them, too.
ALIASES = {"valid": "validation", "val": "validation", "dev": "validation"}
ENDINGS = (".tsv", ".csv", ".jsonl", ".parquet")  # of tables of pairs; `readers` has a reader for each
MOST_OFTEN = 1000  # that a pair may be seen in an epoch
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")  # endings of files that are told what is wrong with them


def unit_name(data: DataConfig) -> str:
    """What to call one of the things that a corpus holds."""
    return "pair" if data.source_lang else "text"


def languages_of(data: DataConfig) -> tuple[str, ...]:
    """Those of a pair, or the one of plain text."""
    return (data.source_lang, data.target_lang) if data.source_lang else (data.target_lang,)


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
    places = [path] if path.is_absolute() else [Path.cwd() / path, resources.HOME / path]
    for place in dict.fromkeys(places):
        try:
            parts = _parts(place, split, data)
            if parts:
                return Source(split, name, str(place), parts, tuple(file for part in parts.values() for file in part))
            if place.is_dir():
                return Source(split, name, str(place), {}, _files(place))
        except OSError as error:  # a folder that one may not look into, a name that is too long
            raise unreadable(place, error) from error
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
    sides = [Path(f"{place}.{language}") for language in languages_of(data)]
    missing = [side for side in sides if not side.is_file()]
    if not missing:
        return tuple(sides)
    endings = list(ENDINGS) if data.source_lang else [*ENDINGS, ".txt", f".{data.target_lang}"]
    if place.is_file():
        if place.suffix in endings:
            return (place,)
        parallel = place.suffix[1:] in languages_of(data)
        hint = f": for parallel text leave out the language, as in {place.with_suffix('')}" if parallel else ""
        raise DataError(f"{place} is a file, but a file of {unit_name(data)}s must end in {', '.join(endings)}{hint}.")
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


def unreadable(path: Path, error: OSError) -> DataError:
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


def about_configs(error: Exception, data: DataConfig) -> str:
    if "config" not in str(error).lower():
        return ""
    return f" Set data.config (now {data.config}) to one of these; each serves both directions."
