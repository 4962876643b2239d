"""Read the pairs to evaluate on, and earlier translations to compare with."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dragoman import console, reading, resources
from dragoman.corpora.formats.units import OR_SKIP
from dragoman.corpora.readers import say_choices
from dragoman.corpora.references import reference as reference_of
from dragoman.corpora.sources import find_named
from dragoman.corpora.splitting import read_split
from dragoman.dataset import Pair
from dragoman.directions import split_tag
from dragoman.errors import DataError
from dragoman.evaluation.per_direction import clean_source
from dragoman.settings import DataConfig
from dragoman.text.cleaning import AS_WRITTEN, clean, decode_line


def read_pairs(path: Path, data: DataConfig = AS_WRITTEN) -> list[Pair]:
    """Read pairs that a run has kept in <run>/data/<split>.tsv, and clean them for these settings. Raises DataError."""
    rows = read_tsv(path, 2, more=True)
    return [
        (clean_source(source, data), reference_of([clean(text, data) for text in texts])) for source, *texts in rows
    ]


def read_data(name: str, data: DataConfig) -> list[Pair]:
    """Find, read and clean other pairs, as training does for data.test. Raises DataError."""
    data = replace(data, test=name, config=None, revision=None, on_bad_line="error")
    try:
        sources = find_named("test", data, name)
        say_choices(sources, data, console.warn)
        return read_split("test", sources, data)
    except DataError as error:
        raise DataError(str(error).removesuffix(OR_SKIP).replace("data.test", "--data")) from error


def read_tsv(path: Path, columns: int, more: bool = False) -> list[list[str]]:
    """Read the non-empty rows of a TSV file. Raises DataError for rows with fewer columns, or more unless they may."""
    rows = []
    for number, line in enumerate(read_bytes(path).removesuffix(b"\n").split(b"\n"), 1):
        row = decode_line(line, str(path), number).split("\t")
        if (len(row) < columns or (len(row) > columns and not more)) and row != [""]:
            raise DataError(
                f"{path}:{number}: found {len(row)} columns, but each row needs {columns}, with tabs between."
            )
        rows += [row] if row != [""] else []
    return rows


def read_bytes(path: Path) -> bytes:
    """Read a file. Raises DataError."""
    try:
        return reading.read(path, reading.TABLE)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


@dataclass(frozen=True)
class EarlierTranslations:
    """Translations made by another translator."""

    name: str
    rows: list[tuple[str, str, str]]  # (source, reference, translation)

    def cleaned(self, data: DataConfig) -> EarlierTranslations:
        """The same translations, cleaned for a run with these settings."""
        rows = [(clean_source(a, data), clean(b, data), clean(c, data)) for a, b, c in self.rows]
        return EarlierTranslations(self.name, rows)

    def for_pairs(self, pairs: Sequence[Pair]) -> list[str]:
        """The translations in the order of these pairs. Raises DataError if the pairs are not the same ones."""
        translations: dict[Pair, list[str]] = defaultdict(list)
        # Ignore tags: other translators may select the direction in another way.
        for source, reference, translation in reversed(self.rows):
            translations[split_tag(source)[1], reference].append(translation)
        wanted = [(split_tag(source)[1], reference) for source, reference in pairs]
        ordered = [translations[pair].pop() if translations[pair] else None for pair in wanted]
        missing, extra = ordered.count(None), sum(map(len, translations.values()))
        if missing or extra:
            raise DataError(
                f"{self.name} cannot be compared, because its pairs are different: {missing:,} of the {len(pairs):,} "
                f"pairs here are missing there, and {extra:,} pairs there are missing here."
            )
        return [translation for translation in ordered if translation is not None]


def read_earlier(path: Path, name: str, whole: str = "", chosen: str = "") -> EarlierTranslations:
    """Read the translations in a run's report of that name, a report's JSON file, or a TSV file with three columns.

    `whole` names the report to use in a run without one called `name`: the report on all directions together.
    `chosen` are the options that make a report on these pairs, for the message that there is none.

    Raises DataError.
    """
    if path.is_dir():
        files = [path / "report" / f"{each}.json" for each in (name, whole or name)]
        existing = [file for file in files if file.is_file()]
        if not existing:
            command = f"{resources.command('evaluate')} --run {shlex.quote(str(path))}{chosen}"
            raise DataError(f"{files[-1]} does not exist: create it with {command}")
        path = existing[0]
    if path.suffix != ".json":
        return EarlierTranslations(str(path), [(a, b, c) for a, b, c in read_tsv(path, 3)])
    try:
        values = json.loads(read_bytes(path))
        rows = [(row["source"], row["reference"], row["translation"]) for row in values["sentences"]]
        if not all(isinstance(text, str) for row in rows for text in row):
            raise TypeError("a sentence is not text")
        return EarlierTranslations(f"{values['run']}, step {values['step']}", rows)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is not a report of {resources.command('evaluate')} ({error}).") from error
