"""LibreOffice's documents (.odt, .odp, .ods): their paragraphs are texts, as those of XML are.

Notes, frames and everything else inside a paragraph stay where they are; the paragraphs inside them are texts of their
own. Comments, deleted text, formulas and numbers of cells stay as they are.

Format: ISO/IEC 26300, "Open Document Format for Office Applications".
"""

from __future__ import annotations

from typing import Any

from dragoman.corpora.formats.xml_stream import local_name
from dragoman.documents.trees import TreeDocument
from dragoman.documents.zipped import Archive, ZippedDocument, parse_tree, serialize
from dragoman.errors import DataError

MANIFEST = "META-INF/manifest.xml"
PARTS = ("content.xml", "styles.xml")  # the latter has headers and footers
FLOWING = frozenset(["span", "a", "meta", "ruby", "ruby-base"])
BREAKS = frozenset(["line-break", "tab"])
LEFT_ALONE = frozenset(["annotation", "tracked-changes"])
OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


class OdfPart(TreeDocument):
    """content.xml or styles.xml of such a document."""

    def __init__(self, content: bytes, name: str) -> None:
        root = parse_tree(content, name)
        paragraphs = [each for each in root.iter(f"{TEXT}p", f"{TEXT}h") if not _is_left_alone(each)]
        super().__init__(paragraphs, lambda node, _: local_name(node) in BREAKS, lambda: serialize(root, content))

    def is_fixed(self, element: Any) -> bool:
        """Whether an element in a paragraph stays as it is."""
        return local_name(element) not in FLOWING

    def shown(self, element: Any) -> str:
        """Nothing: such elements are marks, or hold paragraphs of their own."""
        return ""


def parse_odf(content: bytes, ending: str, target: str) -> ZippedDocument:
    """Parse such a document. Raises DataError."""
    archive = Archive(content)
    if next(archive.tree(MANIFEST).iter("{*}encryption-data"), None) is not None:
        raise DataError("this is encrypted: save it anew, without a password.")
    archive.read(PARTS[0])
    return ZippedDocument(archive, {name: OdfPart(archive.read(name), name) for name in PARTS if name in archive.names})


def _is_left_alone(paragraph: Any) -> bool:
    for around in paragraph.iterancestors():
        if local_name(around) in LEFT_ALONE:
            return True
        if local_name(around) in ("table-cell", "covered-table-cell"):
            is_text = around.get(f"{OFFICE}value-type", "string") == "string"
            return not is_text or around.get(f"{TABLE}formula") is not None
    return False
