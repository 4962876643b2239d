"""Word, PowerPoint and Excel (.docx, .pptx, .xlsx): a paragraph is a text, and its runs are spans.

Office cuts a sentence into runs wherever a property changes, and often where none does. Neighbours with the same
properties are joined first. Of those that are left, the properties of most letters are those of the paragraph; every
other run is a span, and so is a hyperlink. Fields, images, notes, formulas and text that tracked changes deleted stay
as they are. Line breaks and tabs end a sentence.

Format: ECMA-376, "Office Open XML File Formats", parts 1 (WordprocessingML, SpreadsheetML, DrawingML) and 2 (packages).
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from dragoman.corpora.formats.xml_stream import local_name
from dragoman.documents.inline import MAX_RUN, Content, Item, Placed, TaggedDocument
from dragoman.documents.zipped import Archive, ZippedDocument, parse_tree, serialize

CONTENT_TYPES = "[Content_Types].xml"
# The ends of the content types of parts with text.
WITH_TEXT = (
    "document.main+xml", "header+xml", "footer+xml", "footnotes+xml", "endnotes+xml", "slide+xml", "notesSlide+xml",
    "drawingml.chart+xml", "diagramData+xml", "sharedStrings+xml", "worksheet+xml",
)  # fmt: skip
TABLE = "spreadsheetml.table+xml"  # the names of its columns must stay equal to the texts of the cells
PARAGRAPHS = frozenset(["p", "si", "is"])
RUN, PROPERTIES, TEXT = "r", "rPr", "t"
FIRST = frozenset(["pPr"])
LAST = frozenset(["endParaRPr", "rPh", "phoneticPr"])
WRAPPERS = frozenset(["hyperlink", "ins", "moveTo", "smartTag", "customXml"])
BREAKS = frozenset(["br", "cr", "tab", "ptab"])
LETTERS = {"noBreakHyphen": "\u2011", "softHyphen": ""}  # elements that are parts of words
DROPPED = frozenset(["proofErr", "lastRenderedPageBreak"])  # notes of Word about an older text and layout
# Properties that do not show: the language, and whether spelling was checked.
UNSEEN = frozenset(["lang", "noProof", "altLang", "dirty", "err", "smtClean"])
TRANSLATED_FIELDS = ("HYPERLINK", "TOC")  # whose result is text; that of others is a number, a date, a name
SPACE = "{http://www.w3.org/XML/1998/namespace}space"

Node = Any  # an element of lxml


@dataclass(eq=False)
class Unit:
    """A part of a paragraph that is not plain text."""

    items: list[Any]  # texts and units inside
    write: Callable[[Sequence[Any]], list[Node]]  # the elements for it, from what `items` have become
    shown: str | None = None  # the text of a unit that stays as it is; None: it is translated
    breaks: bool = False  # whether it ends a sentence


@dataclass(frozen=True)
class Styled:
    """A text and the properties of its run."""

    text: str
    properties: Node  # or None

    @property
    def key(self) -> bytes:
        """Equal for properties that look the same."""
        return _look(self.properties)


class OfficePart(TaggedDocument):
    """A part of such a document, as XML with paragraphs."""

    def __init__(self, content: bytes, name: str, kept: frozenset[str] = frozenset()) -> None:
        """`kept` are texts that stay as they are."""
        super().__init__()
        self.content, self.root = content, parse_tree(content, name)
        self._paragraphs: list[tuple[Node, Node, list[Any]]] = []  # with its properties, and items or inlines' numbers
        for element in self.root.iter():
            if local_name(element) in PARAGRAPHS and "".join(_texts(element)) not in kept:
                self._collect(element)

    def items(self, element: Item) -> Sequence[Item]:
        """See `TaggedDocument`."""
        return element.items

    def is_fixed(self, element: Item) -> bool:
        """See `TaggedDocument`."""
        return element.shown is not None

    def shown(self, element: Item) -> str:
        """See `TaggedDocument`."""
        return element.shown

    def texts(self, element: Item) -> dict[str, str]:
        """Runs have no attributes that are text."""
        return {}

    def size(self, item: Item) -> int:
        """Words and units of an item; more than MAX_RUN if it ends a sentence."""
        return MAX_RUN + 1 if isinstance(item, Unit) and item.breaks else super().size(item)

    def write(self, contents: Sequence[Content]) -> bytes:
        """See `zipped.Part`."""
        for paragraph, properties, items in self._paragraphs:
            nodes = _nodes(self._with(items, contents), properties, paragraph)
            kept = [child for child in paragraph if local_name(child) in FIRST | LAST]
            first = [child for child in kept if local_name(child) in FIRST]
            paragraph[:] = first + nodes + [child for child in kept if child not in first]
        return serialize(self.root, self.content)

    def _collect(self, paragraph: Node) -> None:
        children = [child for child in paragraph if local_name(child) not in FIRST | LAST]
        units, properties = _units(children, paragraph)
        before = len(self.inlines)
        items = self._numbered(units)
        if len(self.inlines) > before:
            self._paragraphs.append((paragraph, properties, items))

    def _numbered(self, units: Sequence[Any]) -> list[Any]:
        """Add the runs of units to the inlines: their numbers, and what is left as it is."""
        items: list[Any] = []
        for run in self.runs(units):
            is_apart = self.is_apart(run)
            if is_apart and not self.is_fixed(run[0]):
                run[0].items = self._numbered(run[0].items)
            number = None if is_apart else self.add_run(run)
            items += run if number is None else [number]
        return items

    def _with(self, items: Sequence[Any], contents: Sequence[Content]) -> list[Any]:
        """The items with contents in place of numbers."""
        written: list[Any] = []
        for item in items:
            if isinstance(item, Unit):
                item.items = self._with(item.items, contents)
            written += self.inlines[item].with_edges(contents[item]) if isinstance(item, int) else [item]
        return written


def parse_office(content: bytes, ending: str, target: str) -> ZippedDocument:
    """Parse a .docx, .pptx or .xlsx. Raises DataError."""
    archive = Archive(content)
    types = {
        child.get("PartName", "").lstrip("/"): child.get("ContentType", "") for child in archive.tree(CONTENT_TYPES)
    }
    names = [name for name in archive.names if types.get(name, "").endswith(WITH_TEXT)]
    tables = [archive.tree(name) for name in archive.names if types.get(name, "").endswith(TABLE)]
    columns = frozenset(column.get("name") for table in tables for column in table.iter("{*}tableColumn"))
    return ZippedDocument(archive, {name: OfficePart(archive.read(name), name, columns) for name in names})


# ---- From elements to texts and units


def _units(children: Sequence[Node], paragraph: Node) -> tuple[list[Any], Node]:
    """The texts and units of elements, and the properties of most of their letters, which the texts have."""
    parts = _joined(_parts(children, paragraph))
    letters: Counter[bytes] = Counter()
    examples: dict[bytes, Node] = {}
    for part in parts:
        if isinstance(part, Styled):
            letters[part.key] += len(part.text.strip())
            examples.setdefault(part.key, part.properties)
    base = max(letters, key=letters.__getitem__, default=b"")
    units: list[Any] = []
    for part in parts:
        if isinstance(part, Unit):
            units.append(part)
        elif part.key == base or not part.text.strip():
            units.append(part.text)
        else:
            units.append(Unit([part.text], partial(_nodes, properties=part.properties, paragraph=paragraph)))
    return units, examples.get(base)


def _parts(children: Sequence[Node], paragraph: Node) -> Iterator[Styled | Unit]:
    """Texts of runs, and units for everything else."""
    rest = list(children)
    while rest:
        child = rest.pop(0)
        name = local_name(child)
        if name in DROPPED:
            continue
        if _field_mark(child) == "begin":
            length = _field_length([child, *rest])
            elements, rest = [child, *rest[: length - 1]], rest[length - 1 :]
            yield _field(elements, paragraph)
        elif name == RUN and _field_mark(child) is None:
            yield from _of_run(child)
        elif name == TEXT:  # of a cell without runs
            yield Styled(child.text or "", None)
        elif name in WRAPPERS or (name == "fldSimple" and _is_translated(child.attrib.values())):
            yield _wrapper(child, child)
        elif name == "sdt" and (inside := next(child.iterchildren("{*}sdtContent"), None)) is not None:
            yield _wrapper(child, inside)
        else:
            yield _fixed([child], shown="".join(_texts(child)) if name in ("fld", "fldSimple") else "", name=name)


def _of_run(run: Node) -> Iterator[Styled | Unit]:
    """The texts of a run, and a run for each other thing in it."""
    properties = next(run.iterchildren(f"{{*}}{PROPERTIES}"), None)
    for child in run:
        name = local_name(child)
        if name == TEXT:
            yield Styled(child.text or "", properties)
        elif name in LETTERS:
            yield Styled(LETTERS[name], properties)
        elif name != PROPERTIES and name not in DROPPED:
            yield Unit([], partial(_run_of, child, run, properties), "", name in BREAKS)


def _run_of(child: Node, run: Node, properties: Node, _: object) -> list[Node]:
    """A run for one thing that was in a run with others."""
    alone = run.makeelement(run.tag, run.attrib)
    alone[:] = [*([copy.deepcopy(properties)] if properties is not None else []), child]
    return [alone]


def _joined(parts: Iterator[Styled | Unit]) -> list[Styled | Unit]:
    """Join neighbours that look the same."""
    joined: list[Styled | Unit] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Styled) and isinstance(last, Styled) and last.key == part.key:
            joined[-1] = Styled(last.text + part.text, last.properties)
        else:
            joined.append(part)
    return joined


def _fixed(elements: list[Node], shown: str = "", name: str = "") -> Unit:
    return Unit([], lambda _: elements, shown, name in BREAKS)


def _wrapper(element: Node, inside: Node, before: Sequence[Node] = (), after: Sequence[Node] = ()) -> Unit:
    """An element such as a hyperlink: what is inside is translated."""
    units, properties = _units(list(inside), inside)

    def write(items: Sequence[Any]) -> list[Node]:
        inside[:] = _nodes(items, properties, inside)
        return [element]

    return Unit(units, write)


def _field(elements: list[Node], paragraph: Node) -> Unit:
    """A field: what it is, the mark "separate", its result, the mark "end"."""
    marks = [_field_mark(each) for each in elements]
    instruction = ["".join(each.itertext("{*}instrText")) for each in elements]
    if "separate" not in marks or marks[-1] != "end" or not _is_translated(instruction):
        result = elements[marks.index("separate") :] if "separate" in marks else []
        return _fixed(elements, "".join(text for each in result for text in _texts(each)))
    start = marks.index("separate") + 1
    units, properties = _units(elements[start:-1], paragraph)

    def write(items: Sequence[Any]) -> list[Node]:
        return [*elements[:start], *_nodes(items, properties, paragraph), elements[-1]]

    return Unit(units, write)


def _field_mark(element: Node) -> str | None:
    """begin, separate or end if a run is such a mark of a field, "" if it holds the field's instruction."""
    for child in element if local_name(element) == RUN else ():
        if local_name(child) == "fldChar":
            return next((value for name, value in child.attrib.items() if name.endswith("fldCharType")), "")
        if local_name(child) == "instrText":
            return ""
    return None


def _field_length(elements: Sequence[Node]) -> int:
    """How many elements the field at their start has. One that ends in another paragraph goes to its last mark."""
    depth, last = 0, 1
    for number, element in enumerate(elements, 1):
        mark = _field_mark(element)
        depth += {"begin": 1, "end": -1}.get(mark or "", 0)
        if mark is not None:
            last = number
        if depth == 0:
            return number
    return last


def _is_translated(instruction: Any) -> bool:
    return any(name in text for text in instruction for name in TRANSLATED_FIELDS)


# ---- And back


def _nodes(items: Sequence[Any], properties: Node, paragraph: Node) -> list[Node]:
    """Elements for texts, which get these properties, and for units."""
    nodes: list[Node] = []
    for item in items:
        if isinstance(item, str):
            nodes += [_run(item, properties, paragraph)] if item else []
        elif isinstance(item, Placed):
            unit = item.span.mark
            nodes += unit.write(unit.items if item.content is None else item.content)
        else:
            nodes += item.write(item.items)
    return nodes


def _run(text: str, properties: Node, paragraph: Node) -> Node:
    """A run; in a cell without runs, its text alone."""
    etree: Any = import_module("lxml.etree")
    namespace = etree.QName(paragraph).namespace
    node = etree.Element(f"{{{namespace}}}{TEXT}")
    node.text = "".join(c for c in text if c >= " " or c in "\t\n")
    if text != text.strip() and not namespace.endswith("/drawingml/main"):  # which has no such attribute
        node.set(SPACE, "preserve")
    if local_name(paragraph) in ("si", "is") and properties is None and paragraph.find("{*}r") is None:
        return node
    run = etree.Element(f"{{{namespace}}}{RUN}")
    if properties is not None:
        run.append(copy.deepcopy(properties))
    run.append(node)
    return run


def _look(properties: Node) -> bytes:
    if properties is None:
        return b""
    etree: Any = import_module("lxml.etree")
    seen = copy.deepcopy(properties)
    for name in [name for name in seen.attrib if name in UNSEEN]:
        del seen.attrib[name]
    seen[:] = [child for child in seen if local_name(child) not in UNSEEN]
    return etree.tostring(seen, with_tail=False) if len(seen) or seen.attrib else b""


def _texts(element: Node) -> Iterator[str]:
    return (node.text or "" for node in element.iter(f"{{*}}{TEXT}"))
