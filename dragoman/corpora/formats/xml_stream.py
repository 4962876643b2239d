"""XML unit by unit, in little memory: each unit is cut out of the text and parsed alone.

So a unit that is not well-formed costs no other. Nothing is loaded from elsewhere, and no entity is expanded, since
nothing parses the document type.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import chain, pairwise
from typing import Any

from dragoman.corpora.formats.files import File
from dragoman.corpora.formats.units import Fault
from dragoman.errors import DataError
from dragoman.reading import BLOCK

OPTIONS = {"resolve_entities": False, "load_dtd": False, "no_network": True, "huge_tree": False}
LONGEST = 2**24  # characters of one element
_START = re.compile(r"""<((?:[\w.-]+:)?([\w.-]+))(?:[^<>"']|"[^"]*"|'[^']*')*>""")


def units(stream: Any, file: File, names: Sequence[str], around: Sequence[str]) -> Iterator[Any]:
    """Yield the elements with one of these names, whole, and the start of each of those `around` them, without content.

    Names are without namespace. A Fault stands in place of each element that is not well-formed. Raises DataError if
    no element is one of `around`, of which the first that occurs is the root.
    """
    etree: Any = import_module("lxml.etree")
    parse = partial(etree.fromstring, parser=etree.XMLParser(**OPTIONS))
    end = re.compile(rf"</[\w.:-]*(?:{'|'.join(names)})\s*>")
    root, close, part = "", "", ""
    for line, part in _parts(stream, file, (*names, *around)):
        start = _START.match(part)
        element = part
        if start and (start[2] in around or start[0].endswith("/>")):
            element = f"{start[0].removesuffix('>').removesuffix('/')}/>"
        elif whole := end.search(part):
            element = part[: whole.end()]
        if start and not root and start[2] in around:
            root, close, element = start[0], f"</{start[1]}>", ""
        try:
            parsed = parse(f"{root}{element}{close}")
            yield parsed[0] if element else parsed
        except (etree.XMLSyntaxError, ValueError, IndexError) as error:
            reason = str(error).partition(", line")[0]
            yield Fault(" ".join(element.split())[:300], DataError(f"{file}:{line}: not well-formed XML: {reason}."))
    if not root:
        raise DataError(f"{file} has no <{around[0]}>: is it another format?")
    if close not in part and not root.endswith("/>"):
        yield Fault("", DataError(f"{file} ends without {close}."))


def _parts(stream: Any, file: File, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Cut a file before each start tag of these names, and yield each part with the number of its first line."""
    tag = re.compile(rf"<!--.*?(?:-->|\Z)|(<(?:[\w.-]+:)?(?:{'|'.join(names)})(?=[\s/>]))", re.DOTALL)
    decoder = _decoder(stream.peek(200)[:200], file)
    text, line = "", 1
    for block in chain(iter(partial(stream.read, BLOCK), b""), [b""]):
        text += decoder.decode(block, not block)
        if len(text) > LONGEST + BLOCK:
            raise DataError(f"{file}:{line}: this element is too long: is this the right format?")
        starts = {matched.start() for matched in tag.finditer(text) if matched[1]}
        cuts: list[int] = sorted({0, *starts, len(text) if not block else 0})
        for start, end in pairwise(cuts):
            if start in starts:
                yield line, text[start:end]
            line += text.count("\n", start, end)
        text = text[cuts[-1] :]


def _decoder(head: bytes, file: File) -> codecs.IncrementalDecoder:
    """Return the decoder of a file that starts with `head`. Raises DataError."""
    wide = head[:2] in (b"\xff\xfe", b"\xfe\xff")
    declared = re.search(rb"encoding=[\"']([\w.-]+)", head)
    encoding = "utf-16" if wide else declared[1].decode() if declared else "utf-8"
    try:
        return codecs.getincrementaldecoder(encoding)("replace" if wide else "surrogateescape")
    except (LookupError, UnicodeError, AttributeError, TypeError) as error:
        raise DataError(
            f"{file}: unknown encoding {encoding}: save the file as UTF-8, and write "
            'encoding="UTF-8" in its first line.'
        ) from error


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace; empty for comments and the like."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
