"""Books (.epub): each chapter is XHTML; the table of contents and the title are translated, too.

Format: W3C, "EPUB 3.3", and the NCX of version 2.
"""

from __future__ import annotations

import posixpath
from typing import Any
from urllib.parse import unquote

from dragoman.documents.trees import TreeDocument, is_block
from dragoman.documents.zipped import Archive, Part, ZippedDocument, serialize
from dragoman.errors import DataError

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def parse_epub(content: bytes, ending: str, target: str) -> ZippedDocument:
    """Parse a book. Raises DataError."""
    archive = Archive(content)
    package = next((each.get("full-path", "") for each in archive.tree(CONTAINER).iter("{*}rootfile")), "")
    root = archive.tree(package)
    names: dict[str, list[str]] = {}
    for item in root.iter("{*}item"):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(item.get("href", ""))))
        names.setdefault(item.get("media-type", ""), []).append(name)
    chapters = names.get("application/xhtml+xml", [])
    if ENCRYPTION in archive.names:  # fonts may be
        references = archive.tree(ENCRYPTION).iter("{*}CipherReference")
        if {unquote(each.get("URI", "")) for each in references} & {*chapters}:
            raise DataError("this book is encrypted: its publisher does not allow it to be read by programs.")
    for language in root.iter(f"{DUBLIN_CORE}language"):
        language.text = target
    original = archive.read(package)
    parts: dict[str, Part] = {
        package: TreeDocument([*root.iter(f"{DUBLIN_CORE}title")], is_block, lambda: serialize(root, original))
    }
    for name in chapters:
        parts[name] = _chapter(archive, name, target)
    for name in names.get("application/x-dtbncx+xml", []):
        contents = archive.tree(name)
        parts[name] = TreeDocument([*contents.iter("{*}text")], is_block, _writer(archive, name, contents))
    return ZippedDocument(archive, parts)


def _chapter(archive: Archive, name: str, target: str) -> TreeDocument:
    root = archive.tree(name)
    for attribute in ("lang", XML_LANG):
        if root.get(attribute):
            root.set(attribute, target)
    return TreeDocument([root], is_block, _writer(archive, name, root))


def _writer(archive: Archive, name: str, root: Any) -> Any:
    return lambda: serialize(root, archive.read(name))
