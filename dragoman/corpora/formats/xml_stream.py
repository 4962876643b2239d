"""XML element by element, in little memory. Nothing is loaded from elsewhere, and entities are not expanded.

Broken XML can be read further: each element is then cut out of the text and parsed alone, so that one that is not
well-formed costs no other.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import chain, pairwise
from typing import Any

from dragoman.corpora.formats.files import File, opened
from dragoman.corpora.formats.units import Fault, require_skip
from dragoman.errors import DataError
from dragoman.reading import BLOCK
from dragoman.settings import DataConfig

OPTIONS = {"resolve_entities": False, "load_dtd": False, "no_network": True, "huge_tree": False}
LONGEST = 2**24  # characters of one element of broken XML


class XmlError(DataError):
    """XML that is not well-formed, or has entities of its own."""


def units(file: File, data: DataConfig, ends: tuple[str, ...], starts: tuple[str, ...]) -> Iterator[Any]:
    """Yield the elements of a file as `elements` does, and a Fault in place of each that is broken.

    Raises DataError; for what is broken, unless data.on_bad_line is skip.
    """
    done = 0
    try:
        with opened(file) as stream:
            for element in elements(stream, file, ends, starts):
                parent = element.getparent()
                if parent is not None and local_name(parent) in ends:  # which has no end tag
                    raise XmlError(f"{file}:{element.sourceline}: <{local_name(element)}> inside another.")
                done += local_name(element) in ends
                yield element
        return
    except XmlError as error:
        require_skip(error, data)
    for number, element in _one_by_one(file, ends, starts):
        if number == 0 or number > done:
            yield element


def _one_by_one(file: File, ends: tuple[str, ...], starts: tuple[str, ...]) -> Iterator[tuple[int, Any]]:
    """Yield the elements of broken XML, each parsed alone inside the root; (number among `ends` or 0, element)."""
    etree: Any = import_module("lxml.etree")
    parse = partial(etree.fromstring, parser=etree.XMLParser(**OPTIONS))
    root, name, number, part = "", "", 0, ""
    for line, part in _parts(file, (*ends, *starts)):
        matched = re.match(r"<((?:[\w.-]+:)?([\w.-]+))[^<>]*?/?>", part)
        if matched and matched[2] in starts:
            name, root = (name, root) if root else (matched[1], matched[0])
            child = f"{matched[0].removesuffix('>').removesuffix('/')}/>"
            try:
                begun = parse(child) if root == matched[0] else parse(f"{root}{child}</{name}>")[0]
            except (etree.XMLSyntaxError, ValueError) as error:
                raise DataError(f"{file}:{line}: not well-formed XML: {error}.") from error
            yield 0, begun
            continue
        number += 1
        close = [*re.finditer(rf"</[\w.:-]*(?:{'|'.join(ends)})\s*>", part)]
        whole = part[: close[-1].end()] if close else part
        try:
            element = parse(f"{root}{whole}</{name}>")[0]
            entity = next(element.iter(etree.Entity), None)
            fault = "" if entity is None else "the text has an entity of its own: write it out"
        except (etree.XMLSyntaxError, ValueError) as error:
            element, fault = None, f"not well-formed XML: {error}"
        shown = " ".join(whole.split())[:300]
        yield number, Fault(shown, DataError(f"{file}:{line}: {fault}.")) if fault else element
    if f"</{name}" not in part:
        yield number + 1, Fault("", DataError(f"{file} ends without </{name}>."))


def _parts(file: File, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Cut a file before each start tag of these names, and yield each part with the number of its first line."""
    tag = re.compile(rf"<(?:[\w.-]+:)?(?:{'|'.join(names)})(?=[\s/>])")
    with opened(file) as stream:
        head = stream.peek(200)[:200]
        wide = head[:2] in (b"\xff\xfe", b"\xfe\xff")
        declared = re.search(rb"encoding=[\"']([\w.-]+)", head)
        encoding = "utf-16" if wide else declared[1].decode() if declared else "utf-8"
        try:
            decoder = codecs.getincrementaldecoder(encoding)("replace" if wide else "surrogateescape")
        except (LookupError, UnicodeError, AttributeError, TypeError) as error:
            raise _unknown_encoding(file, encoding) from error
        text, line = "", 1
        for block in chain(iter(partial(stream.read, BLOCK), b""), [b""]):
            text += decoder.decode(block, not block)
            if len(text) > LONGEST + BLOCK:
                raise DataError(f"{file}:{line}: this element is too long: is this the right format?")
            starts = [matched.start() for matched in tag.finditer(text)]
            cuts: list[int] = sorted({0, *starts, len(text) if not block else 0})
            for start, end in pairwise(cuts):
                if start in starts:
                    yield line, text[start:end]
                line += text.count("\n", start, end)
            text = text[cuts[-1] :]


def elements(stream: Any, file: File, ends: tuple[str, ...], starts: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield the elements named in `ends` when they are complete, and those named in `starts` when they begin.

    Names are without namespace. A complete element is emptied when the next one is asked for. Raises DataError for XML
    that is not well-formed, or whose text has entities of its own.
    """
    etree: Any = import_module("lxml.etree")
    tags = [f"{{*}}{name}" for name in (*ends, *starts)]
    try:
        for event, element in etree.iterparse(stream, events=("start", "end"), tag=tags, **OPTIONS):
            if event == "start":
                if local_name(element) in starts:
                    yield element
            elif local_name(element) in ends:
                if next(element.iter(etree.Entity), None) is not None:
                    raise XmlError(f"{file}:{element.sourceline}: the text has an entity of its own: write it out.")
                yield element
                _forget(element)
    except etree.XMLSyntaxError as error:
        if unknown := re.match(r"Unsupported encoding: ([\w.-]+)", error.msg or ""):
            raise _unknown_encoding(file, unknown[1]) from error
        raise XmlError(f"{file} is not well-formed XML: {error.msg}.") from error


def _unknown_encoding(file: File, name: str) -> DataError:
    return DataError(
        f'{file}: {name} is no encoding: save the file as UTF-8, and write encoding="UTF-8" in its first line.'
    )


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace; empty for comments and the like."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _forget(element: Any) -> None:
    """Empty an element, and drop those before it."""
    element.clear()
    while (before := element.getprevious()) is not None:
        before.getparent().remove(before)
