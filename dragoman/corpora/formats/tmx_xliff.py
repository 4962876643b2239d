"""Translation memories (.tmx) and files of translators (.xliff, .xlf, versions 1.2 and 2), unit by unit.

The languages are those that the file names. Codes inside a text, such as <bpt> and <ph>, are left out, and the text in
<hi>, <g>, <pc> and <mrk> is kept. A unit of a memory that lacks a language is left out and counted; several texts in
the target language are references. A unit of an XLIFF file that is not translated yet has an empty side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dragoman import resources
from dragoman.corpora.formats.files import File, open_unpacked
from dragoman.corpora.formats.language_names import find_all, language_of, other_languages, serves_others
from dragoman.corpora.formats.units import Fault, Say, Units, as_unit, broken, languages_of, left_out
from dragoman.corpora.formats.xml_stream import local_name, units
from dragoman.corpora.references import reference
from dragoman.settings import DataConfig

CODES = frozenset(["bpt", "ept", "ph", "it", "ut", "x", "bx", "ex", "sc", "ec", "sm", "em"])  # their text is markup
LANG = "{http://www.w3.org/XML/1998/namespace}lang"
UNTRANSLATED = frozenset(["new", "needs-translation", "initial"])  # states of a target


def read_tmx(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a translation memory. Raises DataError."""
    resources.require("formats", ["lxml"], "reading .tmx files")
    [file] = files
    there: dict[str, None] = {}  # the languages, in order
    number, waiting = 0, []  # units before the first pair
    empty = True
    with open_unpacked(file) as stream:
        for element in units(stream, file, ("tu",), ("tmx", "header")):
            if not isinstance(element, Fault) and local_name(element) != "tu":
                continue
            number += 1
            if isinstance(element, Fault):
                waiting.append(broken(number, *element, data))
            else:
                variants = [(language, text) for language, text in _variants(element) if text.strip()]
                names = [language for language, _ in variants]
                there |= dict.fromkeys(names)
                if sides := _find_variants(names, data):
                    if empty:
                        _say_languages(file, [names[side[0]] for side in sides], data, say)
                    empty = False
                    waiting.append(as_unit(number, (reference([variants[i][1] for i in side]) for side in sides)))
                elif not data.directions:
                    waiting.append(left_out(number, " | ".join(text for _, text in variants), "no text in a language"))
            if not empty:
                yield from waiting
                waiting.clear()
    if empty and there and not serves_others([*there], data):
        raise other_languages(f"{file} is in {' and '.join(there)}", [*there], data)
    yield from waiting


def _find_variants(names: Sequence[str], data: DataConfig) -> list[list[int]] | None:
    """Return the variants of each side, for the target all in its language; None unless both are there."""
    sides = find_all(names, data)
    if sides is None:
        return None
    *sources, target = sides
    targets = [i for i, name in enumerate(names) if name == names[target] and i not in sources]
    return [*([source] for source in sources), targets]


def _variants(unit: Any) -> Iterator[tuple[str, str]]:
    """Yield the languages of a unit with their texts."""
    for variant in unit.iterchildren("{*}tuv"):
        name = variant.get(LANG) or variant.get("lang") or ""
        segment = next(variant.iterchildren("{*}seg"), None)
        if segment is not None:
            yield language_of(name) or name, _text(segment)


def read_xliff(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read an XLIFF file. Raises DataError."""
    resources.require("formats", ["lxml"], "reading .xliff files")
    [file] = files
    sides: Sequence[int] | None = None
    number = 0
    with open_unpacked(file) as stream:
        for element in units(stream, file, ("trans-unit", "segment"), ("xliff", "file")):
            if isinstance(element, Fault):
                number += 1
                yield broken(number, *element, data)
            elif local_name(element) in ("xliff", "file"):
                # Version 1.2 names the languages for each file in it.
                attributes = (
                    ("srcLang", "trgLang") if element.get("srcLang") else ("source-language", "target-language")
                )
                if element.get(attributes[0]):
                    sides = _sides([element.get(name) for name in attributes], file, data, say, number == 0)
            elif sides is not None:
                number += 1
                texts = _child(element, "source"), _target(element)
                yield as_unit(number, (texts[side] for side in sides))


def _sides(names: list[str | None], file: File, data: DataConfig, say: Say, first: bool) -> Sequence[int] | None:
    """Return which of source and target are wanted; None if they serve another of data.directions."""
    languages = [language_of(name) or name if name else None for name in names]
    wanted = languages_of(data)
    sides = find_all(languages, data)
    if sides is None and languages[1] is None and len(wanted) == 2 and find_all([languages[0], wanted[1]], data):
        sides = [0, 1]  # version 1.2 may leave out the target language
    if sides is None:
        if serves_others(languages, data):
            return None
        known = [language for language in languages if language]
        raise other_languages(f"{file} is in {' and '.join(known)}", known, data)
    if first:
        _say_languages(file, [languages[side] or wanted[1] for side in sides], data, say)
    return sides


def _target(unit: Any) -> str:
    target = next(unit.iterchildren("{*}target"), None)
    state = unit.get("state") or (target.get("state") if target is not None else None)
    return "" if target is None or state in UNTRANSLATED else _text(target)


def _child(unit: Any, name: str) -> str:
    child = next(unit.iterchildren(f"{{*}}{name}"), None)
    return "" if child is None else _text(child)


def _text(element: Any) -> str:
    """Return the text of a segment without codes."""
    parts = [element.text or ""]
    for child in element:
        name = local_name(child)
        if name == "cp":  # a character that XML cannot hold
            parts.append(" ")
        elif name and name not in CODES:
            parts.append(_text(child))
        parts.append(child.tail or "")
    return "".join(parts)


def _say_languages(file: File, languages: Sequence[str], data: DataConfig, say: Say) -> None:
    """Say which languages of the file are used, unless their names are the same as in the settings."""
    wanted = languages_of(data)
    if [*languages] != [*wanted]:
        each = (f"{theirs} is {ours}" for theirs, ours in zip(languages, wanted, strict=True))
        say(f"{file}: {', '.join(each)}, as the file says")
