"""HTML and XML as documents of `markup`: parsed into trees, whose text is replaced and whose elements are moved.

HTML is repaired as browsers do it (html5lib follows their specification); XML must be well-formed. A fragment of either
stays one. Parsing XML loads nothing and expands no entities.

Both libraries build trees with the interface of `xml.etree.ElementTree`. A child of an element either ends the sentence
before it (`breaks`: a block, a line break), or flows with the text around it, in a run that is translated together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib import import_module
from typing import Any

from dragoman.console import one_line
from dragoman.documents.inline import MAX_DEPTH, MAX_RUN, Content, Item, Placed, TaggedDocument, too_deep
from dragoman.errors import DataError

MAX_ATTRIBUTES = 1000  # of a tag

TEXT_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")
HIDDEN = frozenset(["script", "style", "textarea", "svg", "math", "template", "noscript", "iframe", "object"])
FIXED = HIDDEN | {"code", "kbd", "samp", "var", "pre", "<!doctype>"}
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
# Elements whose text has no entities.
RAW = frozenset(["script", "style", "xmp", "iframe", "noembed", "noframes", "noscript", "plaintext"])
# How a document begins, after comments and processing instructions. Nothing in it can match in two ways.
HTML_START = re.compile(
    r"(?>\s|\ufeff|(?><!--.*?-->)|(?><\?[^>]*>))*+<(?:!doctype|html|head[ >]|body)", re.IGNORECASE | re.DOTALL
)
# How XML documents begin; other XML is parsed as the content of an element.
DECLARATION = re.compile(r"\s*(<\?xml\s.*?\?>)", re.DOTALL)
DOCTYPE = re.compile(r"(?>\s|(?><!--.*?-->)|(?><\?.*?\?>))*+<!DOCTYPE", re.DOTALL)
FRAGMENT = "document"  # that element; messages name it

Node = Any  # an element, comment, entity or processing instruction of either library


class TreeDocument(TaggedDocument):
    """A tree whose text is replaced."""

    def __init__(
        self, roots: Sequence[Node], breaks: Callable[[Node, bool], bool], serialize: Callable[[], Any]
    ) -> None:
        """Collect what to translate.

        Args:
            roots: the elements with text, none inside another, unless that is fixed
            breaks: whether a child ends the sentence before it; the flag says whether there is text beside it
        """
        super().__init__()
        self._breaks, self._serialize = breaks, serialize
        self._elements: list[tuple[Node, list[Any]]] = []  # items, or the number of an inline
        self._mixed = True  # whether the element that is being collected has text of its own
        for root in roots:
            self._collect(root, 1)

    def items(self, element: Node) -> list[Item]:
        """The text and the children of a node, in order."""
        return _items(element)

    def is_fixed(self, element: Node) -> bool:
        """Whether a node stays as it is."""
        if not isinstance(element.tag, str) or _name(element) in FIXED or element.get("translate") == "no":
            return True
        return "notranslate" in (element.get("class") or "").split() or _is_note(element)

    def shown(self, element: Node) -> str:
        """The text of a fixed element, for the model to see."""
        return "" if _name(element) in HIDDEN or _is_note(element) else _text(element)

    def texts(self, element: Node) -> dict[str, str]:
        """The attributes of an element that may be text."""
        return {name: element.get(name) or "" for name in TEXT_ATTRIBUTES}

    def size(self, item: Item) -> int:
        """Words and tags of an item; more than MAX_RUN if it is to be collected by itself."""
        if not isinstance(item, str) and self._breaks(item, self._mixed):
            return MAX_RUN + 1
        return super().size(item)

    def write(self, contents: Sequence[Content]) -> Any:
        """See `document.Document`."""
        for number, element, name in self.attributes:
            element.set(name, "".join(_legal(each) for each in contents[number] if isinstance(each, str)))
        for element, items in self._elements:
            written: list[Any] = []
            for item in items:
                written += self.inlines[item].with_edges(contents[item]) if isinstance(item, int) else [item]
            _set_items(element, written)
        return self._serialize()

    def _collect(self, element: Node, depth: int) -> None:
        """Collect the inlines of an element and of all elements in it."""
        if depth > MAX_DEPTH:
            too_deep()
        self.add_attributes(element)
        self._mixed = any(text and not text.isspace() for text in (element.text, *(child.tail for child in element)))
        items: list[Any] = []
        for run, is_apart in [(run, self.is_apart(run)) for run in self.runs(_items(element))]:
            number = None if is_apart else self.add_run(run)
            items += run if number is None else [number]
            if is_apart and not self.is_fixed(run[0]):
                self._collect(run[0], depth + 1)
        self._elements.append((element, items))


def _items(node: Node) -> list[Item]:
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


def _is_note(node: Node) -> bool:
    """Whether an element is a raised number: a note or a power."""
    return _name(node) == "sup" and _text(node).strip().isdigit()


def _legal(text: str) -> str:
    """Text without the control characters that neither XML nor HTML allow."""
    return "".join(c for c in text if c >= " " or c in "\t\n\r").replace("\ufffe", "").replace("\uffff", "")


# ---- HTML


def parse_html(text: str) -> TreeDocument:
    """Parse an HTML document, or a fragment of one. Raises DataError if it is nested too deeply."""
    import html5lib
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
    if HTML_START.match(text):
        parser.parse(text)
        root = parser.tree.document._element
    else:
        root = parser.parseFragment(text)
    return TreeDocument([root], is_block, lambda: "".join(_html(root)))


def is_block(node: Node, _: bool) -> bool:
    """Whether an element of HTML ends the sentence before it."""
    return _name(node) in BLOCKS


def _html(node: Node, raw: bool = False) -> Iterator[str]:
    """The content of an element as HTML. html5lib's writer loses the prefix of xlink:href and takes quadratic time."""
    for item in _items(node):
        if isinstance(item, str):
            yield item if raw else escape(item, quote=False)
        elif not isinstance(item.tag, str):
            # A processing instruction has become a comment.
            yield f"<{item.text}>" if (item.text or "").startswith("?") else f"<!--{item.text or ''}-->"
        elif item.tag == "<!DOCTYPE>":
            public, system = item.get("publicId"), item.get("systemId")
            kind = f' PUBLIC "{public}"' if public else " SYSTEM" if system else ""
            yield f"<!DOCTYPE {item.text}{kind}" + (f' "{system}">' if system else ">")
        else:
            name = item.tag.rpartition("}")[2]
            yield f"<{name}{''.join(map(_attribute, item.attrib.items()))}>"
            if name not in VOID:
                yield from _html(item, raw or name in RAW)
                yield f"</{name}>"


def _attribute(pair: tuple[str, str]) -> str:
    """An attribute of HTML; one in a namespace with the prefix xlink, xml or xmlns."""
    namespace, _, name = pair[0].rpartition("}")
    prefix = namespace.rstrip("/").rpartition("/")[2].replace("namespace", "xml")
    quote = "'" if '"' in pair[1] and "'" not in pair[1] else '"'
    value = pair[1].replace("&", "&amp;").replace(quote, "&quot;")
    return f" {prefix + ':' if prefix and prefix != name else ''}{name}={quote}{value}{quote}"


# ---- XML


def parse_xml(text: str) -> TreeDocument:
    """Parse an XML document, or content of an element. Raises DataError with line and column if it is malformed."""
    etree: Any = import_module("lxml.etree")  # it has no types

    text = text.removeprefix("\ufeff")
    declaration = DECLARATION.match(text)
    is_document = declaration or DOCTYPE.match(text)
    before, after = ("", "") if is_document else (f"<{FRAGMENT}>", f"</{FRAGMENT}>")
    parser = etree.XMLParser(encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(f"{before}{text}{after}".encode(errors="replace"), parser)
    except etree.XMLSyntaxError as error:
        line, column = error.position
        column -= len(before) if line == 1 else 0
        column = min(column, len(text.split("\n")[line - 1]) + 1)  # where the end tag that we added does not match
        message = one_line(str(error.msg).partition(", line ")[0].partition("\n")[0])
        message = message.replace(f" and {FRAGMENT}", " and the end")
        raise DataError(f"line {line}, column {max(1, column)}: this is not well-formed XML: {message}.") from None

    def serialize() -> str:
        if not is_document:
            return etree.tostring(root, encoding="unicode").partition(">")[2].removesuffix(after)
        end = "\n" if text.endswith("\n") else ""
        first = f"{declaration[1]}\n" if declaration else ""
        return first + etree.tostring(root.getroottree(), encoding="unicode") + end

    return TreeDocument([root], _breaks_xml, serialize)


def _breaks_xml(node: Node, mixed: bool) -> bool:
    """An element flows with the text beside it, unless it only structures other elements."""
    if not isinstance(node.tag, str):
        return False
    if not mixed or _name(node) == "br":
        return True
    has_text = any(isinstance(item, str) and item.strip() for item in _items(node))
    return len(node) > 0 and not has_text and _name(node) in BLOCKS
