"""What every reader of a file yields: units of text, each with its position.

A reader is a function of one or two files that yields (position, source, target). The position counts from 1 what
`Format.unit` says: lines, rows, units or cues. The source is empty if data.source_lang is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec

from dragoman import resources
from dragoman.errors import ConfigError
from dragoman.settings import DataConfig

Unit = tuple[int, str, str]
Units = Iterator[Unit]
Say = Callable[[str], None]  # callback for a choice that the user should know about

BROKEN = "\udcff"  # both sides of a row that data.on_bad_line skips; no text, see `cleaning.is_text`


def languages_of(data: DataConfig) -> tuple[str, ...]:
    """Return the languages of a pair, or the one of plain text."""
    return (data.source_lang, data.target_lang) if data.source_lang else (data.target_lang,)


def as_unit(position: int, sides: Iterable[str]) -> Unit:
    """Make a unit of both sides, or of the text alone."""
    *source, target = sides
    return position, "".join(source), target


def broken(position: int) -> Unit:
    """Make the unit that stands for a row that cannot be read."""
    return position, BROKEN, BROKEN


def require(kind: str, *modules: str) -> None:
    """Raise ConfigError unless the libraries that read a kind of file are installed."""
    if missing := [name for name in modules if find_spec(name) is None]:
        install = "pip install -e '.[formats]'" if resources.IN_CLONE else "pip install 'dragoman[formats]'"
        raise ConfigError(f"cannot find {' and '.join(missing)}: install what reads {kind} files with {install}")
