"""HTML and XML as documents of `markup`: parsed into trees, whose text is replaced and whose elements are moved.

HTML is repaired as browsers do it (html5lib follows their specification); XML must be well-formed. A fragment of either
stays one. Parsing XML loads nothing and expands no entities.

Both libraries build trees with the interface of `xml.etree.ElementTree`. A child of an element either ends the sentence
before it (`breaks`: a block, a line break), or flows with the text around it, in a run that is translated together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import zip_longest
from typing import Any, NoReturn

from dragoman.console import one_line
from dragoman.errors import DataError
from dragoman.translation.inline import Content, Inline, Placed, Span

MAX_DEPTH = 250  # of nested elements; more than 256 is an error of libxml2, too
MAX_ATTRIBUTES = 1000  # of a tag
MAX_RUN = 500  # words and tags that are translated together; more are split at a tag
SHORT = 3  # words of a fixed text that the model sees; more would only confuse it

TEXT_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")
HIDDEN = frozenset(["script", "style", "textarea", "svg", "math", "template", "noscript", "iframe", "object"])
FIXED = HIDDEN | {"code", "kbd", "samp", "var", "pre", "<!doctype>"}
LINKS = frozenset(["a", "button", "label"])
BLOCKS = frozenset(
    [
        "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "col", "colgroup", "dd",
        "details", "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "frame",
        "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hgroup", "hr", "html", "legend", "li",
        "link", "main", "menu", "meta", "nav", "ol", "optgroup", "option", "p", "pre", "search", "section", "select",
        "summary", "table", "tbody", "td", "tfoot", "th", "thead", "title", "tr", "ul",
    ]
)  # fmt: skip
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
FRAGMENT = "fragment"  # the element around XML that is no document

Node = Any  # an element, comment, entity or processing instruction of either library
Item = str | Any  # of a node: text, or a child


class TreeDocument:
    """A tree whose text is replaced. See `markup.Document`."""

    def __init__(self, root: Node, breaks: Callable[[Node, bool], bool], serialize: Callable[[], str]) -> None:
        """Collect what to translate.

        Args:
            breaks: whether a child ends the sentence before it; the flag says whether there is text beside it
        """
        self.inlines: list[Inline] = []
        self._breaks, self._serialize = breaks, serialize
        self._attributes: list[tuple[int, Node, str]] = []
        self._elements: list[tuple[Node, list[Any]]] = []  # items, or the number of an inline
        self._collect(root, 1)

    def write(self, contents: Sequence[Content]) -> str:
        """See `markup.Document`."""
        for number, element, name in self._attributes:
            element.set(name, "".join(_legal(each) for each in contents[number] if isinstance(each, str)))
        for element, items in self._elements:
            written: list[Any] = []
            for item in items:
                if isinstance(item, int):
                    written += self.inlines[item].with_edges(contents[item])
                else:
                    written.append(item)
            _set_items(element, written)
        return self._serialize()

    def _collect(self, element: Node, depth: int) -> None:
        """Collect the inlines of an element and of all elements in it."""
        if depth > MAX_DEPTH:
            too_deep()
        self._collect_attributes(element)
        mixed = any(text and not text.isspace() for text in (element.text, *(child.tail for child in element)))
        items: list[Any] = []
        run: list[Item] = []
        room = MAX_RUN

        def end_run() -> None:
            nonlocal room
            items.extend(self._run(run))
            run.clear()
            room = MAX_RUN

        for item in _items(element):
            size = len(item.split()) if isinstance(item, str) else self._size(item, mixed)
            if size > room:
                end_run()
            if isinstance(item, str) or size <= MAX_RUN:
                run.append(item)
                room -= size
                continue
            items.append(item)
            if not _is_fixed(item):
                self._collect(item, depth + 1)
        end_run()
        self._elements.append((element, items))

    def _collect_attributes(self, element: Node) -> None:
        for name in TEXT_ATTRIBUTES:
            value = element.get(name)
            if value and any(map(str.isalpha, value)):
                self._attributes.append((len(self.inlines), element, name))
                self.inlines.append(Inline(value))

    def _size(self, node: Node, mixed: bool) -> int:
        """Words and tags of a node that flows with the text; more than MAX_RUN if it is to be collected by itself."""
        if self._breaks(node, mixed):
            return MAX_RUN + 1
        if _is_fixed(node):
            return 1
        size = 1
        for item in _items(node):
            size += len(item.split()) if isinstance(item, str) else self._size(item, True)
            if size > MAX_RUN:
                break
        return size

    def _run(self, run: Sequence[Item]) -> list[Any]:
        """A run as the number of its inline, or as it is if there is nothing to translate."""
        inline = Inline("")
        free = self._add(inline, inline.spans, run)
        if not any(map(str.isalpha, free)):
            return list(run)
        self.inlines.append(inline)
        return [len(self.inlines) - 1]

    def _add(self, inline: Inline, spans: list[Span], items: Sequence[Item]) -> str:
        """Append items to an inline, elements as spans; return the text that is not fixed."""
        free = ""
        for item, following in zip_longest(items, items[1:]):
            start = len(inline.text)
            if isinstance(item, str):
                inline.text += item
                free += item
                continue
            fixed = _is_fixed(item)
            # A raised number after a word is a note or a power.
            if not fixed and _name(item) == "sup" and inline.text[-1:].strip() and _text(item).strip().isdigit():
                spans.append(Span(item, start, start, fixed=True))
                continue
            span = Span(item, start, start, fixed=fixed, is_link=_name(item) in LINKS)
            spans.append(span)
            if not fixed:
                self._collect_attributes(item)
                free += self._add(inline, span.inside, _items(item))
            elif _name(item) not in HIDDEN:
                inline.text += shown_of(_text(item), inline.text, following)
            span.end = len(inline.text)
        return free


def _items(node: Node) -> list[Item]:
    """The text and the children of a node, in order."""
    items: list[Item] = [node.text] if isinstance(node.tag, str) and node.text else []
    for child in node:
        items.append(child)
        if child.tail:
            items.append(child.tail)
    return items


def _set_items(element: Node, items: Sequence[Any]) -> None:
    """Replace the text and the children of an element."""
    del element[:]
    element.text, last = None, None
    for item in items:
        if isinstance(item, str):
            if last is None:
                element.text = (element.text or "") + _legal(item)
            else:
                last.tail = (last.tail or "") + _legal(item)
            continue
        last = item.span.mark if isinstance(item, Placed) else item
        if isinstance(item, Placed) and item.content is not None:
            _set_items(last, item.content)
        last.tail = None
        element.append(last)


def _name(node: Node) -> str:
    """The name of an element without its namespace; empty for comments, entities and processing instructions."""
    return node.tag.rpartition("}")[2].lower() if isinstance(node.tag, str) else ""


def _text(node: Node) -> str:
    return "".join(item if isinstance(item, str) else _text(item) for item in _items(node))


def _is_fixed(node: Node) -> bool:
    """Whether a node stays as it is."""
    if not isinstance(node.tag, str) or _name(node) in FIXED or node.get("translate") == "no":
        return True
    return "notranslate" in (node.get("class") or "").split()


def _legal(text: str) -> str:
    """Text without the control characters that neither XML nor HTML allow."""
    return "".join(c for c in text if c >= " " or c in "\t\n\r").replace("\ufffe", "").replace("\uffff", "")


def shown_of(text: str, before: str, after: Any) -> str:
    """What the model sees of a fixed text: nothing if it is long, or if it would become part of a word beside it."""
    beside = before[-1:] + (after[:1] if isinstance(after, str) else "")
    return "" if len(text.split()) > SHORT or any(map(str.isalnum, beside)) else text


def too_deep() -> NoReturn:
    """Refuse a document."""
    raise DataError(f"tags are nested more than {MAX_DEPTH} deep: split the document.")


# ---- HTML


def parse_html(text: str) -> TreeDocument:
    """Parse an HTML document, or a fragment of one. Raises DataError if it is nested too deeply."""
    import html5lib
    from html5lib.serializer import HTMLSerializer
    from html5lib.treebuilders import getTreeBuilder

    class OpenElements(list):
        """The stack of open elements, which every step of the parser searches."""

        def append(self, element: Any) -> None:
            if len(self) >= MAX_DEPTH:
                too_deep()
            super().append(element)

    class Builder(getTreeBuilder("etree")):  # type: ignore[misc]
        def reset(self) -> None:
            super().reset()
            self.openElements = OpenElements()

    class Parser(html5lib.HTMLParser):
        def mainLoop(self) -> None:  # noqa: N802
            read_name = self.tokenizer.attributeNameState

            def bounded() -> bool:
                """Each new attribute of a tag is compared with all before it."""
                tag: Any = self.tokenizer.currentToken
                if len(tag["data"]) > MAX_ATTRIBUTES:
                    raise DataError(f"a tag has more than {MAX_ATTRIBUTES:,} attributes: this is not HTML.")
                return read_name()

            self.tokenizer.attributeNameState = bounded
            super().mainLoop()

    parser = Parser(tree=Builder, namespaceHTMLElements=False)
    if _is_html_document(text):
        parser.parse(text)
        root = parser.tree.document._element
    else:
        root = parser.parseFragment(text)
    writer = HTMLSerializer(
        quote_attr_values="always",
        omit_optional_tags=False,
        resolve_entities=False,
        alphabetical_attributes=False,
        inject_meta_charset=False,
    )
    return TreeDocument(root, lambda node, _: _name(node) in BLOCKS, lambda: writer.render(_html_tokens(root)))


def _html_tokens(node: Node) -> Iterator[dict[str, Any]]:
    """The content of an element as tokens for html5lib's serializer.

    html5lib's own tokens take quadratic time, and lose the prefix of xlink:href.
    """
    for item in _items(node):
        if isinstance(item, str):
            yield {"type": "Characters", "data": item}
        elif not isinstance(item.tag, str):
            text = item.text or ""
            # A processing instruction has become a comment.
            raw = {"type": "SpaceCharacters", "data": f"<{text}>"}
            yield raw if text.startswith("?") else {"type": "Comment", "data": text}
        elif item.tag == "<!DOCTYPE>":
            public, system = item.get("publicId"), item.get("systemId")
            yield {"type": "Doctype", "name": item.text, "publicId": public, "systemId": system}
        else:
            name = item.tag.rpartition("}")[2]
            attributes = {}
            for key, value in item.attrib.items():
                namespace, _, local = key.rpartition("}")
                prefix = namespace.rpartition("/")[2]  # xlink or xmlns
                prefix = "xml" if prefix == "namespace" else prefix
                attributes[None, f"{prefix}:{local}" if prefix and prefix != local else local] = value
            yield {"type": "EmptyTag" if name in VOID else "StartTag", "name": name, "data": attributes}
            if name not in VOID:
                yield from _html_tokens(item)
                yield {"type": "EndTag", "name": name}


def _is_html_document(text: str) -> bool:
    """Whether a text begins like a document, after comments and processing instructions."""
    at = 0
    while at < len(text):
        if text[at].isspace() or text[at] == "\ufeff":
            at += 1
        elif text.startswith(("<!--", "<?"), at):
            end = "-->" if text.startswith("<!--", at) else ">"
            at = text.find(end, at) + len(end)
            if at < len(end):
                break
        else:
            return text[at : at + 9].lower().startswith(("<!doctype", "<html", "<head>", "<head ", "<body"))
    return False


# ---- XML


def parse_xml(text: str) -> TreeDocument:
    """Parse an XML document, or content of an element. Raises DataError with line and column if it is malformed."""
    etree: Any = import_module("lxml.etree")  # it has no types

    text = text.removeprefix("\ufeff")

    def parse(source: str) -> Node:
        parser = etree.XMLParser(encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False)
        return etree.fromstring(source.encode(errors="replace"), parser)

    def malformed(error: Any, shift: int) -> DataError:
        line, column = error.position
        column -= shift if line == 1 else 0
        message = one_line(str(error.msg).partition(", line ")[0].partition("\n")[0])
        message = message.replace(f" and {FRAGMENT}", " and the end")
        return DataError(f"line {line}, column {max(1, column)}: this is not well-formed XML: {message}.")

    try:
        root = parse(text)
    except etree.XMLSyntaxError as error:
        try:
            root = parse(f"<{FRAGMENT}>{text}</{FRAGMENT}>")
        except etree.XMLSyntaxError as other:
            raise (
                malformed(error, 0) if text.lstrip().startswith("<") else malformed(other, len(f"<{FRAGMENT}>"))
            ) from None

        def inside() -> str:
            return etree.tostring(root, encoding="unicode").partition(">")[2].removesuffix(f"</{FRAGMENT}>")

        return TreeDocument(root, _breaks_xml, inside)
    declaration, found, _ = text.lstrip().partition("?>")
    declaration = f"{declaration}?>\n" if found and declaration.startswith("<?xml ") else ""
    end = "\n" if text.endswith("\n") else ""
    return TreeDocument(
        root, _breaks_xml, lambda: declaration + etree.tostring(root.getroottree(), encoding="unicode") + end
    )


def _breaks_xml(node: Node, mixed: bool) -> bool:
    """An element flows with the text beside it, unless it only structures other elements."""
    if not isinstance(node.tag, str):
        return False
    if not mixed or _name(node) == "br":
        return True
    has_text = any(isinstance(item, str) and item.strip() for item in _items(node))
    return len(node) > 0 and not has_text and _name(node) in BLOCKS
