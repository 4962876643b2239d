"""XML element by element, in little memory. Nothing is loaded from elsewhere, and entities are not expanded."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from dragoman.corpora.formats.files import File
from dragoman.errors import DataError


def elements(stream: Any, file: File, ends: tuple[str, ...], starts: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield the elements named in `ends` when they are complete, and those named in `starts` when they begin.

    Names are without namespace. A complete element is emptied when the next one is asked for. Raises DataError for XML
    that is not well-formed, or whose text has entities of its own.
    """
    etree: Any = import_module("lxml.etree")
    tags = [f"{{*}}{name}" for name in (*ends, *starts)]
    options = {"resolve_entities": False, "load_dtd": False, "no_network": True, "huge_tree": False}
    try:
        for event, element in etree.iterparse(stream, events=("start", "end"), tag=tags, **options):
            if event == "start":
                if local_name(element) in starts:
                    yield element
            elif local_name(element) in ends:
                if next(element.iter(etree.Entity), None) is not None:
                    raise DataError(f"{file}:{element.sourceline}: the text has an entity of its own: write it out.")
                yield element
                _forget(element)
    except etree.XMLSyntaxError as error:
        raise DataError(f"{file} is not well-formed XML: {error.msg}.") from error


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace; empty for comments and the like."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _forget(element: Any) -> None:
    """Empty an element, and drop those before it."""
    element.clear()
    while (before := element.getprevious()) is not None:
        before.getparent().remove(before)
