"""Find what data.train, data.validation and data.test name.

    sources = find_sources(config.data)          # raises DataError if something is missing

Each may name one of these; a path is looked up in the current folder, then beside this program:
    path/train                  parallel text: line n of path/train.en is translated by line n of path/train.it
    path/film                   subtitles: path/film.en.srt and path/film.it.srt, or .vtt, .ass, .ssa
    "a.src, b.trg"              two files of any names, source first; further ones are further references
    pairs.tsv  pairs.jsonl ...  one file of pairs; `formats.by_suffix` has the endings
    pairs.csv.gz                any of these, packed as .gz, .bz2, .xz or .zst
    opus.zip                    one of these in a .zip
    a folder                    of such files, called train, validation and test
    a folder, or owner/name     a data set of the Hugging Face hub, or a copy of one (without .tsv or .csv)
    opus:Tatoeba-v2023-04-12    a corpus of OPUS, downloaded once; without a version the latest
    sacrebleu:wmt14/full        a test set that sacrebleu knows, downloaded once
The sides of parallel text may also be called src-train.txt and tgt-train.txt, train.source and train.target, or, in a
folder of their own, just en and it; one of their names finds both. Of validation and test, test.it1 and test.ref2 are
further references.

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
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from dragoman import resources
from dragoman.corpora.downloads import opus, sacrebleu_sets
from dragoman.corpora.formats.by_suffix import ENDINGS, FOUND, OF_A_SIDE, ZIP
from dragoman.corpora.formats.files import PACKED, File, unreadable
from dragoman.corpora.formats.language_names import (
    ROLES,
    find_all,
    is_named,
    language_of,
    other_languages,
    without_number,
)
from dragoman.corpora.formats.units import languages_of
from dragoman.directions import Direction
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.settings import DataConfig

SPLITS = ("train", "validation", "test")
ALIASES = {
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "devtest": "test",
}  # other names in folders and data sets
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
    split_files: Mapping[str, tuple[Path, ...]]  # one, or two of parallel text and more references; or `datasets` reads
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


class Entry(NamedTuple):
    """What one of the settings names, or one entry of its mixture."""

    split: str
    weight: float
    number: int  # position in a mixture, from 1
    name: str


def list_entries(data: DataConfig) -> list[Entry]:
    """List everything that data.train, data.validation and data.test name, train first. Raises DataError."""
    training = [Entry("train", weight, i, name) for i, (weight, name) in enumerate(parse_mixture(data.train), 1)]
    return training + [Entry(split, 1.0, 1, name) for split in SPLITS[1:] if (name := getattr(data, split))]


def setting_name(split: str, number: int) -> str:
    return f"data.{split}" + (f" ({number})" if number > 1 else "")


def find_sources(data: DataConfig) -> list[Source]:
    """Find everything that data.train, data.validation and data.test name, train first. Raises DataError.

    What is on the internet is downloaded into the cache, unless it is there.
    """
    return [source for entry in list_entries(data) for source in find_entry(entry, data)]


def find_entry(entry: Entry, data: DataConfig, download: bool = True) -> list[Source]:
    """Find what one entry names; without `download`, only on this machine. Raises DataError."""
    sources = find_named(entry.split, data, entry.name, download)
    return [replace(source, weight=entry.weight, number=entry.number) for source in sources]


def parse_mixture(text: str) -> list[tuple[float, str]]:
    """Parse a value of data.train, "a + 2.5 * b", into weights and names. Raises DataError."""
    entries = []
    for entry in re.split(r"\s\+\s", text):
        matched = re.fullmatch(r"\s*(?:(\d+|\d*\.\d+)\s*\*)?\s*(.*?)\s*", entry, re.DOTALL)
        assert matched, "it matches any text"
        weight, name = float(matched[1] or 1), matched[2]
        if not name or re.match(r"[\d.]+\s*\*", name) or not 0 < weight <= LARGEST_WEIGHT:
            raise DataError(
                f"data.train is {text}, but several corpora are written as data/news + 2.5 * data/letters, with "
                f"weights above 0 and up to {LARGEST_WEIGHT}."
            )
        entries.append((weight, name))
    return entries


def find_named(split: str, data: DataConfig, name: str, download: bool = True) -> list[Source]:
    """Like `find_source`; with data.directions, find a source for each pair of languages that exists there."""
    sources: list[Source] = []
    missing = OtherLanguagesError("")
    for languages, settings in by_languages(data).items():
        try:
            sources.append(replace(find_source(split, settings, name, download), languages=languages))
        except OtherLanguagesError as error:
            missing = error
    if not sources:
        raise missing
    # A folder with files in one pair of languages is not also a data set with the others.
    return [source for source in sources if source.split_files] or sources


def by_languages(data: DataConfig) -> dict[Languages | None, DataConfig]:
    """Return the settings to find and read each pair of languages with; the key is None without data.directions.

    If all directions share one pair of languages, columns need no names: `directions` is null in those settings.
    """
    if not data.several:
        return {None: data}
    settings: dict[Languages | None, DataConfig] = {}
    for source, target in [(data.source_lang or "", data.target_lang), *data.several]:
        if (target, source) not in settings:
            settings[source, target] = replace(data, source_lang=source, target_lang=target)
    [usual, *others] = settings
    return settings if others else {usual: replace(data, directions=None)}


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
    if listed := _listed(name, split, data):
        return listed
    path = Path(name).expanduser()
    places = [path] if path.is_absolute() else [Path.cwd() / path, resources.HOME / path]
    for place in dict.fromkeys(places):
        try:
            files = _split_files(place, split, data)
            if files or place.is_dir():
                every = tuple(file for files_of in files.values() for file in files_of) or _files(place)
                return Source(split, name, str(place), files, every)
        except OSError as error:  # such as a folder without permission, or a name that is too long
            raise unreadable(place, error) from error
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) and not any(place.parent.is_dir() for place in places):
        return Source(split, name, name, {}, ())
    tried = " or ".join(dict.fromkeys(map(str, places)))  # in a clone, both may be the same
    raise OtherLanguagesError(f"data.{split} is {name}, but there is no such thing at {tried}{_hint(places)}")


def _listed(name: str, split: str, data: DataConfig) -> Source | None:
    """Find the files of a name that lists them: source, target, and more references."""
    for separator in (r"\s*,\s*", r"\s+"):
        parts = [Path(part).expanduser() for part in re.split(separator, name)]
        for base in (Path.cwd(), resources.HOME):
            files = [base / part for part in parts]
            if len(files) < 2 or not all(map(Path.is_file, files)):
                continue
            labels = ((language_of(label) for _, label in _places(file)) for file in files[:2])
            languages = [language for some in labels if (language := next(filter(None, some), None))]
            if len(languages) == 2 and (order := find_all(languages, data)) != [0, 1][-len(languages_of(data)) :]:
                if order is None:
                    raise other_languages(f"{name} is in {' and '.join(languages)}", languages, data)
                files[:2] = [files[i] for i in (*order, 1 - order[0])][:2]
            files = files[: 2 if split == "train" else None] if data.source_lang else files[-1:]
            return Source(split, name, str(files[0]), {split: tuple(files)}, tuple(files))
    return None


def _split_files(place: Path, split: str, data: DataConfig) -> dict[str, tuple[Path, ...]]:
    """Find the files of each split at a place: a file, the common beginning of files, or a folder."""
    if not place.is_dir() or data.config:
        files = _text_files(place, split, data)
        return {split: files} if files else {}
    of_split = {}
    for name in (*SPLITS, *ALIASES):
        try:
            files = _text_files(place / name, name, data)
        except OtherLanguagesError:
            if not data.directions:
                raise
            continue  # some languages may have no validation or test of their own
        of_split |= {name: files} if files else {}
    return of_split or _only_pair(place, split, data)


def _only_pair(folder: Path, split: str, data: DataConfig) -> dict[str, tuple[Path, ...]]:
    """Find the parallel text of a folder that holds no other, whatever its name. Raises DataError for several."""
    corpora: dict[tuple[Path, ...], None] = {}
    for entry in sorted(folder.iterdir()) if data.source_lang else []:
        corpora |= dict.fromkeys(_with_partner(entry, split, data)) if entry.is_file() else {}
    if len(corpora) > 1:
        several = " and ".join(", ".join(path.name for path in files) for files in corpora)
        raise DataError(f"{folder} has several corpora ({several}): name the files of one.")
    return dict.fromkeys([split], next(iter(corpora))) if corpora else {}


def _text_files(place: Path, split: str, data: DataConfig) -> tuple[Path, ...] | None:
    """Find the sides of parallel text, or the one file of pairs or plain text, at a place or beginning with it."""
    sides = _sides(place)
    whole = _whole(sides, split, data)
    if all(whole):
        return tuple(path for side in whole for path in side)
    if place.is_file():
        partners = _with_partner(place, split, data) if data.source_lang else []
        suffix = File(place).suffix
        if partners or suffix in ENDINGS or (not data.source_lang and is_named(suffix[1:], data.target_lang)):
            return partners[0] if partners else (place,)
        raise _no_table(place, split, data)
    tables = [path for ending in FOUND for name in _packed(ending) if (path := Path(f"{place}{name}")).is_file()]
    if len(tables) > 1:
        raise DataError(f"there are {' and '.join(map(str, tables))}: name the right one, or move the other.")
    if not tables:
        _check_sides(place, sides, whole, data)
    return tuple(tables) or None


def _packed(ending: str) -> list[str]:
    """Return the endings that a file may have, packed or not."""
    return [ending] if ending == ZIP else [ending, *(ending + packed for packed in PACKED)]


def _unpacked_name(path: Path) -> str:
    """Return the name of a file that may hold one side, without the ending of its format."""
    endings = (name for ending in OF_A_SIDE for name in _packed(ending) if path.name.endswith(name))
    return path.name.removesuffix(max(endings, key=len))


def _places(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield each place whose parallel text a file may be a side of, with the part of the name that says which."""
    name = _unpacked_name(path)
    for matched in reversed([*re.finditer(r"[-._ ]", name)]):
        before, after = name[: matched.start()], name[matched.end() :]
        if before and after:
            yield path.with_name(before), after
            yield path.with_name(after), before
    yield path.parent, name


def _sides(place: Path) -> list[tuple[str, Path]]:
    """Return the files that may hold one side, each with the part of its name that says which.

    First those whose names begin with the place and a full stop. Of a folder, the whole names say it.
    """
    if place.is_dir():
        return [(_unpacked_name(entry), entry) for entry in sorted(place.iterdir()) if entry.is_file()]
    if not place.parent.is_dir():
        return []
    entries = [entry for entry in sorted(place.parent.iterdir()) if place.name in entry.name and entry.is_file()]
    sides = [(label, entry) for entry in entries for at, label in _places(entry) if at == place]
    return sorted(sides, key=lambda side: not side[1].name.startswith(f"{place.name}."))


def _with_partner(path: Path, split: str, data: DataConfig) -> list[tuple[Path, ...]]:
    """Return the parallel text that a file is the source or the target of."""
    corpora = []
    for place, label in _places(path):
        name = without_number(label)
        if language_of(name) or name.casefold() in (*ROLES[0], *ROLES[1]):
            sources, targets = _whole(_sides(place), split, data)
            corpora += [(*sources, *targets)] if sources and targets and path in (*sources, *targets) else []
    return corpora


def _whole(sides: Sequence[tuple[str, Path]], split: str, data: DataConfig) -> list[list[Path]]:
    """Return the files of each side: one, for the target of validation and test all references; [] where none is."""
    languages = languages_of(data)
    whole: list[list[Path]] = []
    for role, language in zip(ROLES[-len(languages) :], languages, strict=True):
        left = [(label, path) for label, path in sides if path not in chain(*whole)]
        whole.append(_side(left, language, role if not data.directions else ()))
    if data.source_lang and split != "train" and whole[1]:
        for label, path in sides:
            name = without_number(label)
            is_role = name.casefold() in ROLES[1]
            if (is_role or (name != label and is_named(name, data.target_lang))) and path not in chain(*whole):
                whole[1].append(path)
    return whole


def _side(sides: Sequence[tuple[str, Path]], language: str, role: Collection[str]) -> list[Path]:
    """Return the file of one side. Its name may have the language itself, else another code or name of it, or a role.

    The first of several references has the lowest number. Raises DataError for several that have none.
    """
    tests: list[Callable[[str], bool]] = [
        lambda label: label == language,
        lambda label: is_named(label, language),
        lambda label: label.casefold() in role,
    ]
    for test in tests:
        if fitting := list(dict.fromkeys(path for label, path in sides if test(label))):
            if len(fitting) > 1:
                raise DataError(f"there are {' and '.join(map(str, fitting))}: move all but one of them.")
            return fitting
    numbered = (path for label, path in sides if any(test(without_number(label)) for test in tests))
    return [first] if role is ROLES[1] and (first := next(numbered, None)) else []


def _check_sides(
    place: Path, sides: Sequence[tuple[str, Path]], whole: Sequence[Sequence[Path]], data: DataConfig
) -> None:
    """Raise OtherLanguagesError if there is one side, or there are sides in other languages."""
    named = {language: path for name, path in sides if (language := language_of(name))}
    if len(named) > 1 and find_all([*named], data) is None:
        there = f"{place} is in {' and '.join(named)} ({', '.join(path.name for path in named.values())})"
        raise other_languages(there, [*named], data, ordered=False)
    if any(whole):
        missing = next(language for language, side in zip(languages_of(data), whole, strict=True) if not side)
        raise OtherLanguagesError(f"{place} is one side of parallel text, but {place}.{missing} is missing.")


def _no_table(place: Path, split: str, data: DataConfig) -> DataError:
    """Return the error for a file that has another ending. Raises OtherLanguagesError for a side of parallel text."""
    if data.source_lang:
        whole = place.with_name(str(File(place).name.stem))
        sides = _sides(whole)
        _check_sides(whole, sides, _whole(sides, split, data), data)
    endings = ENDINGS if data.source_lang else (*ENDINGS, f".{data.target_lang}")
    return DataError(f"{place} is a file, but a file of {unit_name(data)}s must end in {', '.join(endings)}.")


def _files(folder: Path) -> tuple[Path, ...]:
    """List all files of a folder, except hidden ones such as .git."""
    shown = (file for file in folder.rglob("*") if not any(part[0] == "." for part in file.relative_to(folder).parts))
    return tuple(sorted(file for file in shown if file.is_file()))


def _hint(places: Collection[Path]) -> str:
    """End the error about a missing path: name the most similar thing, else what the folder holds."""
    for place in places:
        if place.parent.is_dir():
            there = sorted(entry.name for entry in place.parent.iterdir() if not entry.name.startswith("."))
            stems = {name: str(File(Path(name)).name.stem) for name in there}
            twice = Counter(stems.values())  # two files with one stem are parallel text
            names = {stem: stem if twice[stem] > 1 else name for name, stem in stems.items()} | {
                name: name for name in there
            }
            for close in difflib.get_close_matches(place.name, [name for name in names if name != place.name], n=1):
                return f": did you mean {place.with_name(names[close])}?"
            if there:
                return f"; {place.parent} has {', '.join(there[:8])}{', ...' if len(there) > 8 else '.'}"
    return "; its folder does not exist either."
