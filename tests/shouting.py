"""A translation that keeps every word and tag in its place, in capitals: it shows what a document does with it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dragoman.documents.document import Document
from dragoman.documents.files import parse_file
from dragoman.documents.inline import Content, Inline, Placed, Span
from dragoman.documents.segments import PLACEHOLDER


def shouted(name: str, content: bytes, target: str = "it", capitals: bool = True) -> bytes:
    """A file in capitals, or as it is."""
    document = parse_file(content, name, target)
    written = document.write(contents_of(document, capitals))
    assert isinstance(written, bytes)
    return written


def contents_of(document: Document, capitals: bool = True) -> list[Content]:
    return [_content(inline, capitals) for inline in document.inlines]


def _content(inline: Inline, capitals: bool) -> Content:
    """What `move_spans` would return, without the blanks at the ends of the text."""
    first = min([len(inline.text) - len(inline.text.lstrip()), *(span.start for span in inline.spans)])
    last = max([len(inline.text.rstrip()), *(span.end for span in inline.spans)])
    return _inside(inline.text, inline.spans, first, last, capitals)


def _inside(text: str, spans: Sequence[Span], start: int, end: int, capitals: bool) -> Content:
    content: Content = []
    for span in spans:
        content.append(_shout(text[start : span.start], capitals))
        inside = None if span.fixed else _inside(text, span.inside, span.start, span.end, capitals)
        content.append(Placed(span, inside))
        start = span.end
    content.append(_shout(text[start:end], capitals))
    return [each for each in content if each != ""]


def _shout(text: str, capitals: bool) -> str:
    """In capitals, except for placeholders."""
    parts = re.split(f"({PLACEHOLDER.pattern})", text)
    return "".join(part if i % 2 or not capitals else part.upper() for i, part in enumerate(parts))
