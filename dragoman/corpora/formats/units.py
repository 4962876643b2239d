"""What every reader of a file yields: units of text, each with its position.

A reader is a function of one or two files that yields (position, source, target). The position counts from 1 what
`Format.unit` says: lines, rows, units or cues. The source is empty if data.source_lang is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from dragoman.errors import DataError
from dragoman.settings import DataConfig

Unit = tuple[int, str, str]
Units = Iterator[Unit]


class Fault(NamedTuple):
    """What stands in place of a unit, and why it cannot be read."""

    raw: str
    error: DataError


Say = Callable[[str], None]  # callback for a choice that the user should know about

BROKEN = "\udcff\udcff"  # before both sides of a unit that cannot be read; makes them no text, see `cleaning.is_text`
OR_SKIP = "; or leave out what cannot be read, and count it, with --data.on_bad_line skip"
LEFT_OUT = "\udcfe\udcfe"  # likewise of a unit that is read but is no pair, such as a fuzzy message


def languages_of(data: DataConfig) -> tuple[str, ...]:
    """Return the languages of a pair, or the one of plain text."""
    return (data.source_lang, data.target_lang) if data.source_lang else (data.target_lang,)


def as_unit(position: int, sides: Iterable[str]) -> Unit:
    """Make a unit of both sides, or of the text alone."""
    *source, target = sides
    return position, "".join(source), target


def broken(position: int, raw: object, error: DataError, data: DataConfig) -> Unit:
    """Make the unit that stands for one that cannot be read: what is there, and why. Every reader calls this.

    Raises the error unless data.on_bad_line is skip.
    """
    require_skip(error, data)
    return position, f"{BROKEN}{raw}", f"{BROKEN}{error}"


def require_skip(error: DataError, data: DataConfig) -> None:
    """Raise the error of a unit that cannot be read, with the setting that leaves it out, unless it is set."""
    if data.on_bad_line == "error":
        raise DataError(f"{str(error).rstrip('.?')}{OR_SKIP}") from error


def left_out(position: int, raw: object, reason: str) -> Unit:
    """Make the unit that stands for one that is no pair, so that it is counted."""
    return position, f"{LEFT_OUT}{raw}", f"{LEFT_OUT}{reason}"


def is_left_out(text: str) -> bool:
    """Whether a side is that of a unit that is no pair."""
    return text.startswith(LEFT_OUT)


def unmarked(text: str) -> str:
    """Return a side of a broken or left-out unit without its mark, to be shown."""
    return text.removeprefix(BROKEN).removeprefix(LEFT_OUT)
