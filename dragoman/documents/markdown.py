"""Markdown as a document of `markup`: CommonMark with tables, strikethrough, footnotes and front matter.

Only paragraphs, headings and table cells change, and there only what is text. All other lines stay as they are, byte
for byte: code, raw HTML, definitions of links, front matter, the marks of lists and quotes. A translated paragraph is
one line, or one for each hard line break.

Limits: a paragraph is not translated if the result would parse differently, or if its lines cannot be found in the
source because a tab is both indentation and content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdformat.renderer import MDRenderer
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

from dragoman.documents.inline import MAX_DEPTH, MAX_RUN, Content, Item, TaggedDocument, too_deep
from dragoman.documents.trees import FIXED, VOID
from dragoman.errors import DataError

TASKS = ("[ ] ", "[x] ", "[X] ")  # how an item of a task list begins
TEXTS = ("text", "softbreak")
AROUND_TEXT = ("link_open", "em_open", "strong_open", "s_open", "html_inline", "image")  # elements with text inside


@dataclass
class _Element:
    """An element: its tokens, around those that it contains."""

    first: Token
    last: Token | None = None
    inside: list[Item] = field(default_factory=list)


@dataclass
class _Place:
    """A paragraph, heading or cell, and where it is in the source."""

    parts: list[tuple[list[Item], int | None]]  # items, and the number of their inline; None: they stay as they are
    first: int  # line
    start: int  # character of that line
    last: int  # line
    end: int  # character of that line, exclusive
    indent: str  # what a further line begins with
    in_table: bool


class MarkdownDocument(TaggedDocument):
    """Lines, of which some are replaced."""

    def __init__(self, text: str) -> None:
        """Parse a document. Raises DataError if it is nested too deeply."""
        super().__init__()
        self._end = "\r\n" if "\r\n" in text else "\n"
        self._lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._parser = MarkdownIt("commonmark", {"store_labels": True}).enable(["table", "strikethrough"])
        self._parser.use(front_matter_plugin).use(footnote_plugin).disable(["footnote_inline", "footnote_tail"])
        # Addresses are written as they were read, whatever they are.
        self._parser.normalizeLink = str  # type: ignore[method-assign]
        self._parser.validateLink = bool  # type: ignore[method-assign]
        self._environment: dict[str, Any] = {}
        self._places: list[_Place] = []
        looked: dict[int, int] = {}  # the character up to which the cells of a line have been found
        in_table = False
        for token in self._parser.parse("\n".join(self._lines), self._environment):
            in_table = token.type in ("th_open", "td_open") or (in_table and token.type == "inline")
            if token.type == "inline" and token.content.strip():
                self._collect(token, looked, in_table)

    def items(self, element: _Element) -> list[Item]:
        """The texts and elements in an element."""
        return element.inside

    def is_fixed(self, element: _Element) -> bool:
        """Whether an element stays as it is."""
        token = element.first
        if token.type == "html_inline":
            marked = "notranslate" in token.content or 'translate="no"' in token.content
            return element.last is None or _tag(token) in FIXED or marked
        return token.type not in AROUND_TEXT or token.info == "auto"

    def shown(self, element: _Element) -> str:
        """The text of a fixed element, for the model to see."""
        return _plain(_tokens([element]))

    def texts(self, element: _Element) -> dict[str, str]:
        """The description of an image, and the title of an image or link."""
        token = element.first
        texts = {"title": "" if token.meta.get("label") else str(token.attrs.get("title", ""))}
        return texts | ({"alt": _plain(token.children or [])} if token.type == "image" else {})

    def size(self, item: Item) -> int:
        """Words and tags of an item; MAX_RUN + 1 for a line break. Raises DataError for too large an element."""
        if not isinstance(item, str) and (item.first.type == "hardbreak" or _tag(item.first) == "br"):
            return MAX_RUN + 1
        size = super().size(item)
        if size > MAX_RUN and not isinstance(item, str):
            raise DataError(f"a link or an emphasis has more than {MAX_RUN} words: split it.")
        return size

    def write(self, contents: Sequence[Content]) -> str:
        """See `markup.Document`."""
        for number, element, name in self.attributes:
            text = "".join(each for each in contents[number] if isinstance(each, str))
            if name == "alt":
                element.first.children = [Token("text", "", 0, content=text)]
            else:
                element.first.attrSet(name, text)
        lines = list(self._lines)
        for place in reversed(self._places):
            tokens: list[Token] = []
            for items, number in place.parts:
                written = items if number is None else self.inlines[number].with_edges(contents[number])
                tokens += _tokens(written)
            text = self._render(place, tokens)
            if text is not None:
                before, after = lines[place.first][: place.start], lines[place.last][place.end :]
                lines[place.first : place.last + 1] = (before + text + after).split("\n")
        return "\n".join(lines).replace("\n", self._end)

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
        runs = self.runs(_elements(token.children or []))
        parts = [(run, None if self.is_apart(run) else self.add_run(run)) for run in runs]
        if len(self.inlines) > before:
            self._places.append(_Place(parts, first, start, last, end, indent, in_table))

    def _render(self, place: _Place, tokens: list[Token]) -> str | None:
        """The Markdown of a translated paragraph, heading or cell; None if it would parse differently."""
        inline = Token("inline", "", 0, children=list(map(_verbatim, tokens)))
        paragraph = [Token("paragraph_open", "p", 1), inline, Token("paragraph_close", "p", -1)]
        options = {**self._parser.options, "mdformat": {}}
        text = MDRenderer().render(paragraph, options, dict(self._environment), finalize=False)
        read = self._parser.parse(text, dict(self._environment))
        if [token.type for token in read] != ["paragraph_open", "inline", "paragraph_close"]:
            return None
        if _shape(read[1].children or []) != _shape(tokens):
            return None
        if place.in_table:
            return text.replace("\n", " ").replace("\\|", "|").replace("|", "\\|")
        return text.replace("\n", "\n" + place.indent)


def _elements(tokens: Sequence[Token]) -> list[Item]:
    """Inline tokens as texts and elements. Raises DataError if they are nested too deeply."""
    pairs = _pairs(tokens)
    ends = set(pairs.values())
    root = _Element(Token("", "", 0))
    stack = [root]
    for number, token in enumerate(tokens):
        if token.nesting < 0 or number in ends:
            stack.pop().last = token
            continue
        if number == 0 and token.content.startswith(TASKS):
            root.inside.append(_Element(Token("html_inline", "", 0, content=token.content[:3])))
            token.content = token.content[3:]
        if token.type in TEXTS:
            stack[-1].inside.append(token.content or " ")
            continue
        stack[-1].inside.append(_Element(token))
        if token.nesting > 0 or number in pairs:
            stack.append(stack[-1].inside[-1])
        if len(stack) > MAX_DEPTH:
            too_deep()
    return root.inside


def _pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """Indices of matching raw start and end tags in the same element."""
    pairs: dict[int, int] = {}
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
                pairs[waiting.pop()[1]] = number
    return pairs


def _tag(token: Token) -> str:
    """The name of a raw tag; empty for a comment or another token."""
    name = (token.content.strip("</>").split() or [""])[0].rstrip("/").lower()
    return name if name[:1].isalpha() else ""


def _tokens(content: Sequence[Any]) -> Iterator[Token]:
    """The tokens of items, or of a translated content."""
    for item in content:
        if isinstance(item, str):
            yield Token("text", "", 0, content=item)
            continue
        element, inside = (item, item.inside) if isinstance(item, _Element) else (item.span.mark, item.content)
        yield element.first
        yield from _tokens(element.inside if inside is None else inside)
        if element.last:
            yield element.last


def _plain(tokens: Iterable[Token]) -> str:
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
