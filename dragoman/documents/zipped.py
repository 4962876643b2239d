"""Documents that are .zip files of XML: their parts are translated, and all other members are copied.

Nothing is extracted to the disk, and no name of a member is used as a path. A file that unpacks to too much, that is
encrypted or damaged is refused.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from dragoman.console import one_line
from dragoman.corpora.formats.xml_stream import OPTIONS
from dragoman.documents.inline import Content, Inline
from dragoman.errors import DataError

MEMBERS = 10_000
UNPACKED = 2**28  # bytes of all members
PART = 2**25  # bytes of a member with text, whose tree takes several times as much
ENCRYPTED = b"\xd0\xcf\x11\xe0"  # how Office's old format begins, in which its encrypted files are packed
DECLARATION = re.compile(rb"\s*<\?xml.*?\?>\s*", re.DOTALL)


class Part(Protocol):
    """A parsed member."""

    inlines: list[Inline]

    def write(self, contents: Sequence[Content]) -> bytes:
        """The member with these contents in place of its inlines."""
        ...


class Archive:
    """An opened .zip file. Every method raises DataError for what is damaged, encrypted or too large."""

    def __init__(self, content: bytes) -> None:
        if content.startswith(ENCRYPTED):
            raise DataError("this is encrypted, or in Office's format before 2007: save it anew, without a password.")
        try:
            self.file = zipfile.ZipFile(io.BytesIO(content))
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise DataError(f"this is not a whole .zip file, as such a document is: {error}.") from None
        members = self.file.infolist()
        size = sum(member.file_size for member in members)
        if len(members) > MEMBERS or size > UNPACKED:
            raise DataError(
                f"this unpacks to {len(members):,} members of {size:,} bytes, but a document may have {MEMBERS:,} of "
                f"{UNPACKED:,}: split it."
            )
        self.names = [member.filename for member in members]
        if len(set(self.names)) < len(self.names):
            raise DataError("two members have the same name: save the document anew.")
        if any(member.flag_bits & 1 for member in members):
            raise DataError("this is encrypted: save it anew, without a password.")

    def read(self, name: str, most: int = PART) -> bytes:
        """Read a member, which may have at most `most` bytes."""
        try:
            if self.file.getinfo(name).file_size > most:
                raise DataError(f"{name} in it has more than {most:,} bytes: split the document.")
            return self.file.read(name)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
            raise DataError(f"{name} in it is damaged: {one_line(str(error))}.") from None
        except KeyError:
            raise DataError(f"{name} is missing in it: is this another kind of document?") from None

    def tree(self, name: str) -> Any:
        """The root element of a member that is XML."""
        return parse_tree(self.read(name), name)

    def write(self, changed: dict[str, bytes]) -> bytes:
        """The file with some members changed; names, order and times stay."""
        result = io.BytesIO()
        with zipfile.ZipFile(result, "w") as file:
            file.comment = self.file.comment
            for member in self.file.infolist():
                data = changed.get(member.filename)
                file.writestr(member, self.read(member.filename, UNPACKED) if data is None else data)
        return result.getvalue()


class ZippedDocument:
    """A document in a .zip file. See `document.Document`."""

    def __init__(self, archive: Archive, parts: Mapping[str, Part]) -> None:
        """`parts` are the members with text, by name."""
        self.archive, self.parts = archive, parts
        self.inlines = [inline for part in parts.values() for inline in part.inlines]

    def write(self, contents: Sequence[Content]) -> bytes:
        """See `document.Document`."""
        changed, done = dict[str, bytes](), 0
        for name, part in self.parts.items():
            if part.inlines:
                changed[name] = part.write(contents[done : done + len(part.inlines)])
            done += len(part.inlines)
        return self.archive.write(changed)


def parse_tree(content: bytes, name: str) -> Any:
    """Parse XML; nothing is loaded and no entity is expanded. Raises DataError."""
    etree: Any = import_module("lxml.etree")
    try:
        return etree.fromstring(content, etree.XMLParser(**OPTIONS))
    except (etree.XMLSyntaxError, ValueError) as error:
        raise DataError(f"{name} in it is not well-formed XML: {one_line(str(error))}.") from None


def serialize(root: Any, original: bytes) -> bytes:
    """A tree as XML, with the declaration of the original and the blanks at its end."""
    etree: Any = import_module("lxml.etree")
    tree = root.getroottree()
    content = etree.tostring(tree, encoding=tree.docinfo.encoding or "UTF-8", xml_declaration=False)
    declaration = DECLARATION.match(original)
    return (declaration[0] if declaration else b"") + content + original[len(original.rstrip()) :]
