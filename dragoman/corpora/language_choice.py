"""Which languages the user's data are in, if the settings do not say, and whether the text is in those that they say.

config = with_languages(config, say)     # takes en and es from columns "English" and "Spanish", and says so
check_languages(config.data)             # raises DataError if text labelled es is plainly Portuguese
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from dragoman import settings
from dragoman.corpora.formats.language_names import in_file_name, is_same, language_name, language_of
from dragoman.corpora.formats.units import Say, languages_of
from dragoman.corpora.readers import read_units
from dragoman.corpora.sources import DOWNLOADS, Source, find_entry, list_entries
from dragoman.errors import ConfigError, DataError, OtherLanguagesError
from dragoman.settings import Config, DataConfig
from dragoman.text.cleaning import is_text

UNKNOWN = ("qaa", "qab")  # codes that ISO 639 leaves to private use: no file is named after them
KEYS = ("data.source_lang", "data.target_lang")
READ = 5000  # units read at most, of which the LONGEST are looked at: they tell most
LONGEST = 200
FEWEST = 20  # texts whose language is clear, to judge a side
MOST = 0.6  # share of those in another language that proves that the side is in it


class Spoken(NamedTuple):
    """The language that most texts of a side are clearly in."""

    language: str
    share: float


def with_languages(config: Config, say: Say) -> Config:
    """Take the languages that the user did not choose from the names of files and columns.

    Raises ConfigError if there are no such names, with the settings to add, and DataError for data that cannot be read.
    """
    missing = [key for key in KEYS if key in config.left_open]
    if not missing:
        return config
    data = settings.with_values(config, {key: UNKNOWN[KEYS.index(key)] for key in missing}).data
    pair = in_file_name(data.config or "")
    named_by = _named(data) or (pair and (pair, f"data.config is {data.config}"))
    if not named_by:
        raise _ask(config, missing)
    languages, where = named_by
    values = settings.values(config)
    said = [values[key] for key in KEYS if key not in missing and values[key]]
    left = [language for language in languages if not any(is_same(language, other) for other in said)]
    if len(left) != len(missing) or len(left) + len(said) != len(languages):
        names, codes = " and ".join(said) or "none of them", _options(dict.fromkeys(KEYS, "CODE"))
        raise ConfigError(f"{where}, and the settings say {names}: add {codes}, with the two to use.")
    config = replace(
        settings.with_values(config, dict(zip(missing, left, strict=True))), left_open=config.left_open - {*missing}
    )
    names = " to ".join(map(language_name, languages_of(config.data)))
    other = _options(dict(zip(KEYS, reversed(left), strict=True))) if len(left) == 2 else ""
    say(f"{where}: {names}{f'; for the other direction add {other}' if other else ''}")
    return config


def _named(data: DataConfig) -> tuple[tuple[str, ...], str] | None:
    """Return the languages that the training data name, and who says so. Raises DataError."""
    if not data.source_lang:  # plain text: book.fr
        for entry in list_entries(data):
            if (language := language_of(Path(entry.name).suffix[1:])) and Path(entry.name).is_file():
                return (language,), entry.name
    try:
        for source in _local_sources(data):
            for split in read_units(source, data).values():
                next(split.units, None)
    except OtherLanguagesError as error:
        languages = tuple(each for each in error.languages if each not in UNKNOWN)
        if len(languages) < len(languages_of(data)):
            raise
        return languages, str(error).partition(", but data.")[0]
    return None


def _local_sources(data: DataConfig) -> list[Source]:
    """Find the training data that are files. Those from the internet are named by their languages. Raises DataError."""
    entries = [
        entry
        for entry in list_entries(data)
        if entry.split == "train" and entry.name.partition(":")[0] not in DOWNLOADS
    ]
    return [source for entry in entries for source in find_entry(entry, data) if source.files]


def _ask(config: Config, missing: Sequence[str]) -> ConfigError:
    sides = spoken(config.data)
    add = {key: side.language if side else "CODE" for key, side in zip(KEYS, sides, strict=True) if key in missing}
    known = [language_name(language) for language in add.values() if language != "CODE"]
    guess = f" (by the text: {' to '.join(known)})" if len(known) == len(missing) else ", such as en and it"
    return ConfigError(f"data.train ({config.data.train}) does not name its languages: add {_options(add)}{guess}")


def _options(values: Mapping[str, str]) -> str:
    return " ".join(f"--{key} {value}" for key, value in values.items())


def check_languages(data: DataConfig, sources: Sequence[Source] | None = None) -> None:
    """Raise DataError if the training text is plainly in another language than the settings say.

    Ignores unreadable data: preparation reports it with its line.
    """
    if not data.check_languages or data.several:
        return
    try:
        expected, sides = (data.source_lang, data.target_lang), spoken(data, sources)
    except DataError:
        return
    for language, side in zip(expected, sides, strict=True):
        if language and side and is_other(side, language):
            clear = {key: each.language for key, each in zip(KEYS, sides, strict=True) if each}
            raise DataError(
                f"data.train ({data.train}): {side.share:.0%} of the lines that should be {language_name(language)} "
                f"are {language_name(side.language)}: add {_options(clear)}, or train on them as they are "
                "with --data.check_languages false"
            )


def is_other(side: Spoken, expected: str) -> bool:
    """Whether a side is plainly in another language."""
    from dragoman.corpora.language_id import alike, knows

    return knows(expected) and side.share >= MOST and not alike(side.language, expected)


def spoken(data: DataConfig, sources: Sequence[Source] | None = None) -> tuple[Spoken | None, Spoken | None]:
    """Return the language of each side of the training data, going by its longest texts; None where it is not clear.

    Raises DataError.
    """
    lenient = replace(data, on_bad_line="skip")
    sources = _local_sources(data) if sources is None else sources
    pairs = [
        pair
        for source in sources
        if source.split == "train" and source.files and not source.downloads
        for _, *pair in islice(read_units(source, lenient)["train"].units, READ)
    ]
    one, other = (spoken_in([pair[side] for pair in pairs]) for side in (0, 1))
    return one, other


def spoken_in(texts: Sequence[str]) -> Spoken | None:
    """Return the language of most texts, going by the longest; None if too few are clear."""
    from dragoman.corpora.language_id import CLEAR, FEWEST_LETTERS, identify

    letters = (text for text in texts if sum(map(str.isalpha, text)) >= FEWEST_LETTERS and is_text(text))
    identified = map(identify, heapq.nlargest(LONGEST, letters, key=len))
    counts = Counter(language for language, confidence in identified if confidence >= CLEAR)
    if counts.total() < FEWEST:
        return None
    [(language, count)] = counts.most_common(1)
    return Spoken(language, count / counts.total())
