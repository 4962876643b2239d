"""Find what data.train, data.validation and data.test name.

    sources = find_sources(config.data)          # raises DataError if something is missing

Each may name one of these; a path is looked up in the current folder, then beside this program:
    path/train                  parallel text: line n of path/train.en is translated by line n of path/train.it
    path/film                   subtitles: path/film.en.srt and path/film.it.srt, or .vtt, .ass, .ssa
    pairs.tsv  pairs.jsonl ...  one file of pairs; `formats.by_suffix` has the endings
    pairs.csv.gz                any of these, packed as .gz, .bz2, .xz or .zst
    opus.zip                    one of these in a .zip
    a folder                    of such files, called train, validation and test
    a folder, or owner/name     a data set of the Hugging Face hub, or a copy of one (without .tsv or .csv)
    opus:Tatoeba-v2023-04-12    a corpus of OPUS, downloaded once; without a version the latest
    sacrebleu:wmt14/full        a test set that sacrebleu knows, downloaded once
data.train may name a mixture, data/news + 2.5 * data/letters: an epoch then shows every pair of the first once, and
each pair of the second two or three times.

With data.directions, all of this is looked up for each pair of languages, and what exists is read: a folder may hold
train.en, train.it and train.fr, a row any number of languages. Columns must then be named after languages, unless
there are only two. A pair used in both directions counts as two pairs, each with its tag.

If data.source_lang is null, the settings name plain text in data.target_lang, which is read as pairs with an empty
source. Only the target side of the above is then needed. A row may also have its text in a column `text`, a table may
have one column, and a file may be plain text, one line each: book.txt, or book.it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from dragoman import resources
from dragoman.corpora.downloads import opus, sacrebleu_sets
from dragoman.corpora.formats.by_suffix import ENDINGS, OF_A_SIDE, ZIP
from dragoman.corpora.formats.files import PACKED, File, unreadable
from dragoman.corpora.formats.languages import find_all, is_named, language_of, other_languages
from dragoman.corpora.formats.units import languages_of
from dragoman.directions import Direction
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.settings import DataConfig

SPLITS = ("train", "validation", "test")
ALIASES = {"valid": "validation", "val": "validation", "dev": "validation"}  # other names in folders and data sets
LARGEST_WEIGHT = 1000  # times that an epoch may show a pair
DOWNLOADS = {"opus": opus.find, "sacrebleu": sacrebleu_sets.find}  # by the beginnings of names

Languages = tuple[str, str]  # source and target


def unit_name(data: DataConfig) -> str:
    """Return what one entry of the corpus is called in messages."""
    return "pair" if data.source_lang else "text"


@dataclass(frozen=True)
class Source:
    """Sentence pairs that were found but not yet read."""

    split: str  # the split whose setting names it
    name: str  # the value of that setting, or one entry of a mixture
    path: str  # what `datasets` loads: a folder, or a name on the hub
    split_files: Mapping[str, tuple[Path, ...]]  # two files for parallel text, else one; empty if `datasets` reads it
    files: tuple[Path, ...]  # all its files on this machine
    weight: float = 1.0  # how often an epoch shows each training pair
    number: int = 1  # position in a mixture, from 1
    languages: Languages | None = None  # source and target language, if there are several directions
    downloads: tuple[Path, ...] = ()  # files in the cache that it was made from
    hashes: Mapping[Path, str] = field(default_factory=dict)  # sha256 of each of `files`, if it must be these

    @property
    def setting(self) -> str:
        """What messages and the hashes of files call the setting, or its entry in a mixture."""
        return setting_name(self.split, self.number)

    def __str__(self) -> str:
        return f"data.{self.split} ({self.name})"


class Named(NamedTuple):
    """What one of the settings names, or one entry of its mixture."""

    split: str
    weight: float
    number: int  # position in a mixture, from 1
    name: str


def named(data: DataConfig) -> list[Named]:
    """List everything that data.train, data.validation and data.test name, train first. Raises DataError."""
    found = [Named("train", weight, i, name) for i, (weight, name) in enumerate(parse_mixture(data.train), 1)]
    return found + [Named(split, 1.0, 1, name) for split in SPLITS[1:] if (name := getattr(data, split))]


def setting_name(split: str, number: int) -> str:
    return f"data.{split}" + (f" ({number})" if number > 1 else "")


def find_sources(data: DataConfig) -> list[Source]:
    """Find everything that data.train, data.validation and data.test name, train first. Raises DataError.

    What is on the internet is downloaded into the cache, unless it is there.
    """
    return [source for entry in named(data) for source in find_entry(entry, data)]


def find_entry(entry: Named, data: DataConfig, download: bool = True) -> list[Source]:
    """Find what one entry names; without `download`, only on this machine. Raises DataError."""
    found = find_named(entry.split, data, entry.name, download)
    return [replace(source, weight=entry.weight, number=entry.number) for source in found]


def parse_mixture(text: str) -> list[tuple[float, str]]:
    """Parse a value of data.train, "a + 2.5 * b", into weights and names. Raises DataError."""
    found = []
    for entry in re.split(r"\s\+\s", text):
        matched = re.fullmatch(r"\s*(?:(\d+|\d*\.\d+)\s*\*)?\s*(.*?)\s*", entry, re.DOTALL)
        assert matched, "it matches any text"
        weight, name = matched.groups()
        found.append((float(weight or 1), name))
        if not name or re.match(r"[\d.]+\s*\*", name) or not 0 < found[-1][0] <= LARGEST_WEIGHT:
            raise DataError(
                f"data.train is {text}, but several corpora are written as data/news + 2.5 * data/letters, with "
                f"weights above 0 and up to {LARGEST_WEIGHT}."
            )
    return found


def find_named(split: str, data: DataConfig, name: str, download: bool = True) -> list[Source]:
    """Like `find_source`; with data.directions, find a source for each pair of languages that exists there."""
    found: list[Source] = []
    missing = OtherLanguagesError("")
    for languages, settings in by_languages(data).items():
        try:
            found.append(replace(find_source(split, settings, name, download), languages=languages))
        except OtherLanguagesError as error:
            missing = error
    if not found:
        raise missing
    # A folder with files in one pair of languages is not also a data set with the others.
    return [source for source in found if source.split_files] or found


def by_languages(data: DataConfig) -> dict[Languages | None, DataConfig]:
    """Return the settings to find and read each pair of languages with; the key is None without data.directions.

    If all directions share one pair of languages, columns need no names: `directions` is null in those settings.
    """
    if not data.several:
        return {None: data}
    found: dict[Languages | None, DataConfig] = {}
    for source, target in [(data.source_lang or "", data.target_lang), *data.several]:
        if (target, source) not in found:
            found[source, target] = replace(data, source_lang=source, target_lang=target)
    [usual, *others] = found
    return found if others else {usual: replace(data, directions=None)}


def directions_of(languages: Languages, data: DataConfig) -> list[Direction]:
    """Return the directions that learn from pairs of these languages."""
    return [direction for direction in data.several if direction in (languages, languages[::-1])]


def find_source(split: str, data: DataConfig, name: str, download: bool = True) -> Source:
    """Find what a setting names, or one entry of a mixture. Raises DataError if it does not exist.

    Without `download`, a corpus from the internet must be in the cache.
    """
    if find := DOWNLOADS.get(name.partition(":")[0]):
        files, downloads = find(f"data.{split}", name, data, download)
        # The name under which `origin` knows a file is relative to the folder above this path.
        path = files[0].parent if data.directions else files[0]
        return Source(split, name, str(path), {split: files}, files, downloads=downloads)
    path = Path(name).expanduser()
    places = [path] if path.is_absolute() else [Path.cwd() / path, resources.HOME / path]
    for place in dict.fromkeys(places):
        try:
            found = _split_files(place, split, data)
            if found:
                return Source(split, name, str(place), found, tuple(file for files in found.values() for file in files))
            if place.is_dir():
                return Source(split, name, str(place), {}, _files(place))
        except OSError as error:  # such as a folder without permission, or a name that is too long
            raise unreadable(place, error) from error
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) and not any(place.parent.is_dir() for place in places):
        return Source(split, name, name, {}, ())
    tried = " or ".join(map(str, places))
    raise OtherLanguagesError(f"data.{split} is {name}, but there is no such thing at {tried}{_hint(places)}")


def _split_files(place: Path, split: str, data: DataConfig) -> dict[str, tuple[Path, ...]]:
    """Find the files of each split at a place: a file, the common beginning of files, or a folder."""
    if not place.is_dir() or data.config:
        files = _text_files(place, data)
        return {split: files} if files else {}
    found = {}
    for name in (*SPLITS, *ALIASES):
        try:
            files = _text_files(place / name, data)
        except OtherLanguagesError:
            if not data.directions:
                raise
            continue  # some languages may have no validation or test of their own
        found |= {name: files} if files else {}
    return found


def _text_files(place: Path, data: DataConfig) -> tuple[Path, ...] | None:
    """Find the two sides of parallel text, or the one file of pairs or plain text, at a place or beginning with it."""
    beside = _beside(place)
    sides = [_side(beside, language) for language in languages_of(data)]
    whole = [side for side in sides if side]
    if len(whole) == len(sides):
        return tuple(whole)
    if place.is_file():
        suffix = File(place).suffix
        if suffix in ENDINGS or (not data.source_lang and is_named(suffix[1:], data.target_lang)):
            return (place,)
        raise _no_table(place, data)
    tables = [beside[name] for ending in ENDINGS for name in _packed(ending) if name in beside]
    if len(tables) > 1:
        raise DataError(f"there are {' and '.join(map(str, tables))}: name the right one, or move the other.")
    if not tables:
        _check_sides(place, beside, whole, data)
    return tuple(tables) or None


def _beside(place: Path) -> dict[str, Path]:
    """Return the files whose names begin with a place and a full stop, by the rest of their names."""
    if not place.parent.is_dir():
        return {}
    start = len(place.name)
    found = (entry for entry in place.parent.iterdir() if entry.name.startswith(f"{place.name}."))
    return {entry.name[start:]: entry for entry in sorted(found) if entry.is_file()}


def _packed(ending: str) -> list[str]:
    """Return the endings that a file may have, packed or not."""
    return [ending] if ending == ZIP else [ending, *(ending + packed for packed in PACKED)]


def _sides(beside: Mapping[str, Path]) -> list[tuple[str, Path]]:
    """Return the files that may hold one side, each with the part of its name that would be the language."""
    endings = {name for ending in OF_A_SIDE for name in _packed(ending)}
    parts = ((name[1:].partition("."), path) for name, path in beside.items())
    return [(language, path) for (language, dot, ending), path in parts if dot + ending in endings]


def _side(beside: Mapping[str, Path], language: str) -> Path | None:
    """Return the file of one side. Its name may have the language itself, else another code or name of it."""
    sides = _sides(beside)
    found = [path for name, path in sides if name == language]
    found = found or [path for name, path in sides if is_named(name, language)]
    if len(found) > 1:
        raise DataError(f"there are {' and '.join(map(str, found))}: move all but one of them.")
    return found[0] if found else None


def _check_sides(place: Path, beside: Mapping[str, Path], whole: Sequence[Path], data: DataConfig) -> None:
    """Raise OtherLanguagesError if there is one side, or there are sides in other languages."""
    sides = {language: path for name, path in _sides(beside) if (language := language_of(name))}
    if len(sides) > 1 and find_all([*sides], data) is None:
        there = f"{place} is in {' and '.join(sides)} ({', '.join(path.name for path in sides.values())})"
        raise other_languages(there, [*sides], data, ordered=False)
    if whole:
        missing = next(language for language in languages_of(data) if not _side(beside, language))
        raise OtherLanguagesError(f"{place} is one side of parallel text, but {place}.{missing} is missing.")


def _no_table(place: Path, data: DataConfig) -> DataError:
    """Return the error for a file that has another ending."""
    language, hint = File(place).suffix[1:], ""
    if data.source_lang and (language in languages_of(data) or language_of(language)):
        stem = File(place).name.stem
        hint = f": for parallel text leave out the language, as in {place.with_name(stem)}"
    endings = ENDINGS if data.source_lang else (*ENDINGS, f".{data.target_lang}")
    return DataError(f"{place} is a file, but a file of {unit_name(data)}s must end in {', '.join(endings)}{hint}.")


def _files(folder: Path) -> tuple[Path, ...]:
    """List all files of a folder, except hidden ones such as .git."""
    found = (file for file in folder.rglob("*") if not any(part[0] == "." for part in file.relative_to(folder).parts))
    return tuple(sorted(file for file in found if file.is_file()))


def _hint(places: Collection[Path]) -> str:
    """End the error about a missing path: name the most similar file, else what the folder contains."""
    for place in places:
        if place.parent.is_dir():
            entries = sorted(entry for entry in place.parent.iterdir() if not entry.name.startswith("."))
            there = [entry.name for entry in entries]
            stems = [str(File(entry).name.stem) for entry in entries]
            names = [each for each in (*there, *stems) if each != place.name]  # never suggest the same name
            close = difflib.get_close_matches(place.name, names, n=1)
            if close:
                return f": did you mean {Path(place.parent.name) / close[0]}?"
            if there:
                return f"; {place.parent} has {', '.join(there[:8])}{', ...' if len(there) > 8 else '.'}"
    return "; its folder does not exist either."
