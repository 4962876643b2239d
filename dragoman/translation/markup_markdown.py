"""Markdown as a document of `markup`: CommonMark with tables, strikethrough, footnotes and front matter.

Only paragraphs, headings and table cells change, and there only what is text. All other lines stay as they are, byte
for byte: code, raw HTML, definitions of links, front matter, the marks of lists and quotes. A translated paragraph is
one line, or one for each hard line break.

Limits: a paragraph stays in the source language if its translation would be other Markdown, or if its lines cannot be
found in the source because a tab is both indentation and content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdformat.renderer import MDRenderer
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

from dragoman.errors import DataError
from dragoman.translation.inline import Content, Inline, Placed, Span
from dragoman.translation.markup_trees import FIXED, MAX_DEPTH, MAX_RUN, VOID, shown_of, too_deep

TASKS = ("[ ] ", "[x] ", "[X] ")  # how an item of a task list begins
TEXTS = ("text", "softbreak")
AROUND_TEXT = ("link_open", "em_open", "strong_open", "s_open", "html_inline")  # elements with text inside


@dataclass
class _Node:
    """A text, or an element: its tokens, around those that it contains."""

    first: Token
    last: Token | None = None
    inside: list[_Node] = field(default_factory=list)


@dataclass
class _Part:
    """What is translated together, or left as it is, in a paragraph, heading or cell."""

    nodes: list[_Node]
    number: int | None  # of its inline; None: it stays as it is


@dataclass
class _Place:
    """A paragraph, heading or cell, and where it is in the source."""

    parts: list[_Part]
    first: int  # line
    start: int  # character of that line
    last: int  # line
    end: int  # character of that line, exclusive
    indent: str  # what a further line begins with
    in_table: bool


class MarkdownDocument:
    """Lines, of which some are replaced. See `markup.Document`."""

    def __init__(self, text: str) -> None:
        """Parse a document. Raises DataError if it is nested too deeply."""
        self.inlines: list[Inline] = []
        self._end = "\r\n" if "\r\n" in text else "\n"
        self._lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._parser = MarkdownIt("commonmark", {"store_labels": True}).enable(["table", "strikethrough"])
        self._parser.use(front_matter_plugin).use(footnote_plugin).disable(["footnote_inline", "footnote_tail"])
        # Addresses are written as they were read, whatever they are.
        self._parser.normalizeLink = str  # type: ignore[method-assign]
        self._parser.validateLink = bool  # type: ignore[method-assign]
        self._environment: dict[str, Any] = {}
        self._attributes: list[tuple[int, Token, str]] = []
        self._places: list[_Place] = []
        looked: dict[int, int] = {}  # the character up to which the cells of a line have been found
        in_table = False
        for token in self._parser.parse("\n".join(self._lines), self._environment):
            in_table = token.type in ("th_open", "td_open") or (in_table and token.type == "inline")
            if token.type == "inline" and token.content.strip():
                self._collect(token, looked, in_table)

    def write(self, contents: Sequence[Content]) -> str:
        """See `markup.Document`."""
        for number, token, name in self._attributes:
            text = "".join(each for each in contents[number] if isinstance(each, str))
            if name == "alt":
                token.children = [_text_token(text)]
            else:
                token.attrSet(name, text)
        lines = list(self._lines)
        for place in reversed(self._places):
            text = self._render(place, list(self._written(place.parts, contents)))
            if text is not None:
                before, after = lines[place.first][: place.start], lines[place.last][place.end :]
                lines[place.first : place.last + 1] = (before + text + after).split("\n")
        return "\n".join(lines).replace("\n", self._end)

    # ---- Collecting

    def _collect(self, token: Token, looked: dict[int, int], in_table: bool) -> None:
        """Collect what to translate of a paragraph, heading or cell."""
        assert token.map
        rows = [row.strip() for row in token.content.split("\n")]
        if in_table:
            rows = [row.replace("|", "\\|") for row in rows]
        first, last = token.map[0], token.map[0] + len(rows) - 1
        start = self._lines[first].find(rows[0], looked.get(first, 0))
        end = self._lines[last].find(rows[-1], start if first == last else 0) + len(rows[-1])
        if start < 0 or end < len(rows[-1]):
            return
        looked[last] = end
        indent = self._lines[first + 1].partition(rows[1])[0] if len(rows) > 1 else ""
        before = len(self.inlines)
        parts = [_Part(nodes, self._inline(nodes)) for nodes in _split(_nodes(token.children or []))]
        if len(self.inlines) > before:
            self._places.append(_Place(parts, first, start, last, end, indent, in_table))

    def _inline(self, nodes: Sequence[_Node]) -> int | None:
        """The number of the inline of nodes; None if there is no text to translate."""
        inline = Inline("")
        free = self._add(inline, inline.spans, nodes)
        if not any(map(str.isalpha, free)):
            return None
        self.inlines.append(inline)
        return len(self.inlines) - 1

    def _add(self, inline: Inline, spans: list[Span], nodes: Sequence[_Node]) -> str:
        """Append nodes to an inline; return the text that is not fixed."""
        free = ""
        for node, following in zip_longest(nodes, nodes[1:]):
            start = len(inline.text)
            if node.first.type in TEXTS:
                free += node.first.content
                inline.text += node.first.content or " "
                continue
            fixed = _is_fixed(node)
            span = Span(node, start, start, fixed=fixed, is_link=node.first.type == "link_open")
            spans.append(span)
            if not fixed:
                self._collect_attributes(node.first)
                free += self._add(inline, span.inside, node.inside)
            else:
                after = following.first.content if following and following.first.type == "text" else ""
                inline.text += shown_of(_plain(_tokens([node])), inline.text, after)
            span.end = len(inline.text)
        return free

    def _collect_attributes(self, token: Token) -> None:
        """Collect the description of an image, and the title of an image or link."""
        values = {"title": "" if token.meta.get("label") else str(token.attrs.get("title", ""))}
        if token.type == "image":
            values["alt"] = _plain(token.children or [])
        for name, value in values.items():
            if any(map(str.isalpha, value)):
                self._attributes.append((len(self.inlines), token, name))
                self.inlines.append(Inline(value))

    # ---- Writing

    def _written(self, parts: Sequence[_Part], contents: Sequence[Content]) -> Iterator[Token]:
        """The tokens of a translated paragraph, heading or cell."""
        for part in parts:
            if part.number is None:
                yield from _tokens(part.nodes)
                continue
            yield from _content_tokens(self.inlines[part.number].with_edges(contents[part.number]))

    def _render(self, place: _Place, tokens: list[Token]) -> str | None:
        """The Markdown of a translated paragraph, heading or cell; None if it would be something else."""
        inline = Token("inline", "", 0, children=list(map(_verbatim, tokens)))
        paragraph = [Token("paragraph_open", "p", 1), inline, Token("paragraph_close", "p", -1)]
        environment = dict(self._environment)
        options = {**self._parser.options, "mdformat": {}}
        text = MDRenderer().render(paragraph, options, environment, finalize=False)
        read = self._parser.parse(text, dict(self._environment))
        if [token.type for token in read] != ["paragraph_open", "inline", "paragraph_close"]:
            return None
        if _shape(read[1].children or []) != _shape(tokens):
            return None
        if place.in_table:
            return text.replace("\n", " ").replace("\\|", "|").replace("|", "\\|")
        return text.replace("\n", "\n" + place.indent)


def _nodes(tokens: Sequence[Token]) -> list[_Node]:
    """Inline tokens as a tree. Raises DataError if it is nested too deeply."""
    pairs = _pairs(tokens)
    ends = set(pairs.values())
    root = _Node(Token("", "", 0))
    stack = [root]
    for number, token in enumerate(tokens):
        if token.nesting < 0 or number in ends:
            stack.pop().last = token
            continue
        if number == 0 and token.content.startswith(TASKS):
            root.inside.append(_Node(Token("html_inline", "", 0, content=token.content[:3])))
            token.content = token.content[3:]
        node = _Node(token)
        stack[-1].inside.append(node)
        if token.nesting > 0 or number in pairs:
            stack.append(node)
        if len(stack) > MAX_DEPTH:
            too_deep()
    return root.inside


def _pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """From the number of each raw start tag to that of its end tag, if it is in the same element."""
    found: dict[int, int] = {}
    waiting: list[tuple[str, int]] = []  # start tags; "" where an element begins
    for number, token in enumerate(tokens):
        if token.nesting > 0:
            waiting.append(("", number))
        elif token.nesting < 0:
            while waiting.pop()[0]:
                pass
        elif token.type == "html_inline":
            name = _tag(token)
            if not token.content.startswith("</"):
                if name and name not in VOID and not token.content.endswith("/>"):
                    waiting.append((name, number))
            elif waiting and waiting[-1][0] == name:
                found[waiting.pop()[1]] = number
    return found


def _tag(token: Token) -> str:
    """The name of a raw tag; empty for a comment."""
    name = (token.content.strip("</>").split() or [""])[0].rstrip("/").lower()
    return name if name[:1].isalpha() else ""


def _split(nodes: Sequence[_Node]) -> list[list[_Node]]:
    """Nodes in parts that are translated together. A line break is a part of its own."""
    parts: list[list[_Node]] = [[]]
    room = MAX_RUN
    for node in nodes:
        size = sum(1 + len(token.content.split()) for token in _tokens([node]))
        if size > MAX_RUN and node.first.type not in TEXTS:
            raise DataError(f"a link or an emphasis has more than {MAX_RUN} words: split it.")
        if node.first.type == "hardbreak" or (node.first.type == "html_inline" and _tag(node.first) == "br"):
            parts += [[node], []]
            room = MAX_RUN
            continue
        if size > room:
            parts.append([])
            room = MAX_RUN
        parts[-1].append(node)
        room -= size
    return [part for part in parts if part]


def _is_fixed(node: _Node) -> bool:
    """Whether an element stays as it is."""
    token = node.first
    if token.type == "image":
        return False
    if token.type != "html_inline":
        return token.type not in AROUND_TEXT or token.info == "auto"
    return (
        node.last is None or _tag(token) in FIXED or "notranslate" in token.content or 'translate="no"' in token.content
    )


def _tokens(nodes: Sequence[_Node]) -> Iterator[Token]:
    """The tokens of nodes."""
    for node in nodes:
        yield node.first
        yield from _tokens(node.inside)
        if node.last:
            yield node.last


def _content_tokens(content: Content) -> Iterator[Token]:
    """The tokens of a translated content."""
    for item in content:
        if isinstance(item, str):
            yield _text_token(item)
        elif not isinstance(item, Placed) or item.content is None:
            yield from _tokens([item.span.mark])
        else:
            yield item.span.mark.first
            yield from _content_tokens(item.content)
            yield item.span.mark.last


def _text_token(text: str) -> Token:
    return Token("text", "", 0, content=text)


def _plain(tokens: Iterator[Token] | Sequence[Token]) -> str:
    """The text of tokens, without marks."""
    text = ""
    for token in tokens:
        if token.type == "image":
            text += _plain(token.children or [])
        elif token.type not in ("html_inline", "footnote_ref"):
            text += " " if token.type in ("softbreak", "hardbreak") else token.content
    return text


def _verbatim(token: Token) -> Token:
    """A token as the renderer knows it: it writes raw HTML as it is."""
    if token.type in ("s_open", "s_close"):
        return Token("html_inline", "", 0, content=token.markup)
    if token.type == "footnote_ref":
        return Token("html_inline", "", 0, content=f"[^{token.meta['label']}]")
    return token


def _shape(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    """What must not change when tokens are written and read again: everything but text.

    Sorted, because ***text*** does not say which emphasis is inside the other.
    """
    return sorted(
        (token.type, str(token.attrs.get("href", token.attrs.get("src", token.content))))
        for token in tokens
        if token.type not in TEXTS and not token.content.startswith("[")
    )
