"""Catalogues of gettext (.po): messages of a program and their translations.

The messages are in one language, by custom English, and the header names the other. Messages that are marked fuzzy are
guesses of a program, and obsolete ones are out of use: both are left out. The singular of a message is paired with the
form for one, the plural with each other form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from gettext import c2py
from io import BytesIO
from typing import Any

from dragoman.corpora.formats.files import File, read_whole
from dragoman.corpora.formats.language_names import is_same, language_of, other_languages, serves_others
from dragoman.corpora.formats.units import Fault, Say, Units, broken, languages_of, left_out
from dragoman.dataset import Pair
from dragoman.errors import DataError
from dragoman.settings import DataConfig

_LINE = re.compile(rb'(?:msg(?:ctxt|id|id_plural|str(?:\[\d+\])?)\s*)?"(?:[^"\\]|\\.)*"')


def read_po(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a catalogue. The position is that of the message, from 1. Raises DataError."""
    [file] = files
    catalogs = [*_catalogs(read_whole(file), file)]
    whole = [catalog for catalog in catalogs if not isinstance(catalog, Fault)]
    messages = [message for catalog in whole for message in catalog if message.id]
    fuzzy, obsolete = sum(message.fuzzy for message in messages), sum(len(catalog.obsolete) for catalog in whole)
    if fuzzy or obsolete:
        say(f"{file}: {fuzzy:,} fuzzy and {obsolete:,} obsolete messages are left out")
    swapped = _is_swapped(whole[0].locale_identifier if whole else None, file, data)
    if swapped is None:
        return
    number = 0
    for catalog in catalogs:
        if isinstance(catalog, Fault):
            number += 1
            yield broken(number, *catalog, data)
            continue
        for message in catalog:
            number += bool(message.id)
            if message.id and message.fuzzy:
                yield left_out(number, " | ".join([message.id, message.string][:: -1 if swapped else 1]), "fuzzy")
            elif message.id:
                for source, target in _pairs(message, catalog.plural_expr):
                    source, target = (target, source) if swapped else (source, target)
                    yield number, source if data.source_lang else "", target


def _catalogs(content: bytes, file: File) -> Iterator[Any]:
    """Parse each message alone, with the header, so that it costs no other. Raises DataError for the header."""
    header, line = b"", 1
    for block in re.split(rb"(?<=\n)[ \t\r]*\n", content):
        if not header and b'msgid ""' in block:
            header = block
            yield _catalog(header, file, line)
        elif block.strip():
            try:
                yield _catalog(header + b"\n" + block, file, line - header.count(b"\n") - 1)
            except DataError as error:
                yield Fault(" ".join(block.decode(errors="backslashreplace").split())[:300], error)
        line += block.count(b"\n") + 1


def _catalog(content: bytes, file: File, line: int) -> Any:
    """Parse a catalogue that starts at a line of a file. Raises DataError."""
    from babel.messages import pofile

    _check_lines(content, file, line)
    try:
        return pofile.read_po(BytesIO(content), abort_invalid=True)
    except pofile.PoFileError as error:
        raise DataError(f"{file}:{error.lineno + line}: {error}: {error.line.strip()!r}."[:300]) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}:{line} is not {error.encoding}, the charset of its header: {error.reason}.") from error
    except (ValueError, LookupError, SyntaxError) as error:  # of the header: a date, a charset, a rule for plurals
        raise DataError(f"{file} cannot be read as .po: {type(error).__name__}: {error}.") from error


def _check_lines(content: bytes, file: File, first: int) -> None:
    """Raise DataError for a line without both its quotes, which Babel would cut."""
    for number, line in enumerate(content.split(b"\n"), first):
        line = line.removeprefix(b"\xef\xbb\xbf").strip()
        if line and line[:1] != b"#" and not _LINE.fullmatch(line):
            shown = line[:60].decode(errors="replace")
            raise DataError(f"{file}:{number}: a line must be a comment, or text in quotes, but this is {shown}")


def _is_swapped(header: str | None, file: File, data: DataConfig) -> bool | None:
    """Whether the translations are in the source language; None if they serve another of data.directions.

    Raises DataError if they are in neither language.
    """
    name = header or file.name.stem.rpartition(".")[2]
    language = language_of(name)
    if language is None:
        return False
    wanted = [language_of(each) or each for each in languages_of(data)]
    if is_same(language, wanted[-1]):
        return False
    if is_same(language, wanted[0]):
        return True
    languages = ["en" if language != "en" else wanted[0], language]
    if serves_others(languages, data):
        return None
    raise other_languages(f"{file} translates into {language}", languages, data)


def _pairs(message: Any, rule: str) -> Iterator[Pair]:
    """Yield the pairs of a message; several if it has a plural."""
    if isinstance(message.id, str):
        yield message.id, message.string
        return
    singular, plural = message.id
    forms = [message.string] if isinstance(message.string, str) else [*message.string]
    try:
        one = c2py(rule)(1)
    except ValueError:
        one = 0
    for number, form in enumerate(forms):
        yield (singular if number == one and len(forms) > 1 else plural), form
