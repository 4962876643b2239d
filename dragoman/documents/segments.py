"""Text files in which only some parts are translated; not a character of the rest changes.

    SegmentedDocument('{"hello": "My <b>name</b>"}', [Segment(10, 26, pieces('My <b>name</b>'), json.dumps)])

A segment has pieces: texts to translate, each with its tags as spans, and what stands between them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dragoman.documents.inline import MAX_RUN, Content, Inline, Span

TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")  # of HTML, and of subtitles
NAME = re.compile(r"</?([\w.:-]+)")
# Of programs: %(name)s, %d, %1$s, {name}, {{name}}, $t(key), %{name}, ${name}. A translation must have the same ones.
PLACEHOLDER = re.compile(r"%\(\w+\)[a-zA-Z]|%\d*\$?[-+0-9.]*[a-zA-Z@](?!\w)|[%$]?\{\{?[\w.\s-]*\}\}?|\$t\([^()]*\)")
VOID = frozenset(["br", "img", "hr", "wbr", "input"])


class Segment(NamedTuple):
    """A part of a file."""

    start: int  # characters of the file
    end: int
    pieces: Sequence[Inline | str]
    written: Callable[[str], str]  # what the file has for the translated pieces


class SegmentedDocument:
    """See `document.Document`."""

    def __init__(self, text: str, segments: Sequence[Segment]) -> None:
        """`segments` come in the order of the text."""
        self.text, self.segments = text, segments
        self.inlines = [piece for segment in segments for piece in segment.pieces if isinstance(piece, Inline)]

    def write(self, contents: Sequence[Content]) -> str:
        """See `document.Document`. Where a placeholder was lost, the file stays as it was."""
        rest, done, parts = iter(contents), 0, []
        for start, end, pieces, written in self.segments:
            texts = [piece if isinstance(piece, str) else _text(piece.with_edges(next(rest))) for piece in pieces]
            sources = "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)
            text = "".join(texts)
            kept = Counter(PLACEHOLDER.findall(TAG.sub("", text))) == Counter(PLACEHOLDER.findall(sources))
            parts += [self.text[done:start], written(text) if kept else self.text[start:end]]
            done = end
        return "".join([*parts, self.text[done:]])


def pieces(text: str, between: str = "\n") -> list[Inline | str]:
    """The texts of a segment, which has them on lines of their own."""
    parts: list[Inline | str] = []
    for part in re.split(f"({between})", text):
        parts.append(tagged(part) if has_words(part) else part)
    return parts


def has_words(text: str) -> bool:
    """Whether a text can be translated: it has letters beside its tags, and not too many of these."""
    words, tags = TAG.subn("", text)
    return tags <= MAX_RUN and any(map(str.isalpha, words))


def tagged(text: str) -> Inline:
    """A text whose tags are spans; one that is not closed marks a place."""
    inline = Inline("")
    open_spans: list[tuple[str, Span, list[Span]]] = []
    spans, done = inline.spans, 0
    for tag in TAG.finditer(text):
        inline.text += text[done : tag.start()]
        done, at = tag.end(), len(inline.text)
        name = (NAME.match(tag[0]) or [""] * 2)[1]
        if tag[0].startswith("</") and any(name == each for each, _, _ in open_spans):
            while True:
                opened, span, spans = open_spans.pop()
                if opened == name:
                    span.mark, span.end = (span.mark[0], tag[0]), at
                    break
                _unclosed(span)
            continue
        span = Span((tag[0], ""), at, at, fixed=True)
        spans.append(span)
        is_pair = f"</{name}>" in text[done:] if name and name not in VOID and not tag[0].startswith("</") else False
        if is_pair:
            span.fixed = False
            open_spans.append((name, span, spans))
            spans = span.inside
    inline.text += text[done:]
    for _, span, _ in open_spans:
        _unclosed(span)
    return inline


def _unclosed(span: Span) -> None:
    span.end = max([span.end, *(each.end for each in span.inside)])


def _text(content: Sequence[Any]) -> str:
    """A content as text with its tags."""
    return "".join(
        each if isinstance(each, str) else each.span.mark[0] + _text(each.content or []) + each.span.mark[1]
        for each in content
    )
