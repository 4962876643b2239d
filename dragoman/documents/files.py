"""Files as documents: the format is that of the name and of the content.

    document = parse_file(path.read_bytes(), "report.docx", "it")
    translate_document(translator, document)                        # bytes of the same format

A parser is a function of the content, the ending of the name in lower case, and the language to translate into. It
returns a `document.Document` whose `write` gives bytes. It raises DataError for what cannot be read, without the name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import PurePath

from dragoman import resources
from dragoman.corpora.formats.file_formats import DOCUMENTS, HTML, MARKDOWN, FileFormat, format_of
from dragoman.documents.document import Document
from dragoman.documents.inline import Content, Inline
from dragoman.errors import DataError

LARGEST = 2**26  # bytes of a document as it is stored
SNIFFED = 2**16  # bytes that tell the format


def document_format(name: str, start: bytes) -> FileFormat | None:
    """The format of a document; None for text in a file whose name does not say what it is.

    Raises DataError for a format that is not translated.
    """
    known = format_of(PurePath(name).suffix, start[:SNIFFED])
    if known and not known.parser:
        raise DataError(
            f"{name} is {known.what}, which is not translated: save it as one of {', '.join(DOCUMENTS)}, or take every "
            "line as text with --markup none."
        )
    return known


def parse_file(content: bytes, name: str, target: str) -> Document:
    """Parse a file.

    Args:
        name: of the file, for its ending and for messages
        target: language to translate into, which some formats note

    Raises DataError for what cannot be read, and ConfigError if a library is not installed.
    """
    known = document_format(name, content)
    if len(content) > LARGEST:
        raise DataError(f"{name} has {len(content):,} bytes, but a document may have {LARGEST:,}: split it.")
    resources.require("documents", known.needs if known else (), name)
    module, _, function = (known.parser if known else "files:parse_lines").partition(":")
    parse: Callable[[bytes, str, str], Document] = getattr(import_module(f"dragoman.documents.{module}"), function)
    try:
        return parse(content, PurePath(name).suffix.lower(), target)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def decode(content: bytes) -> tuple[str, str]:
    """Text and its encoding: UTF-8, or UTF-16 with a byte order mark. Raises DataError."""
    encoding = "utf-8"
    if content[:2] in (b"\xff\xfe", b"\xfe\xff") and content[2:4] != b"\0\0":
        encoding = "utf-16-le" if content[:1] == b"\xff" else "utf-16-be"
    try:
        return content.decode(encoding), encoding
    except UnicodeDecodeError as error:
        place = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"line {place} is not {encoding.upper()}: save the file as UTF-8.") from None


class TextDocument:
    """A document whose parser takes text: its encoding and byte order mark stay."""

    def __init__(self, content: bytes, parse: Callable[[str], Document]) -> None:
        text, self.encoding = decode(content)
        self.mark = "\ufeff" * text.startswith("\ufeff")
        self.document = parse(text.removeprefix("\ufeff"))
        self.inlines = self.document.inlines

    def write(self, contents: Sequence[Content]) -> bytes:
        """See `document.Document`."""
        return f"{self.mark}{self.document.write(contents)}".encode(self.encoding)


class LinesDocument:
    """A text whose lines are translated one by one."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.inlines = [Inline(line) for line in self.lines if line.strip()]

    def write(self, contents: Sequence[Content]) -> str:
        """See `document.Document`."""
        rest = iter(zip(self.inlines, contents, strict=True))
        lines = []
        for line in self.lines:
            if line.strip():
                inline, content = next(rest)
                line = "".join(map(str, inline.with_edges(content)))
            lines.append(line)
        return "\n".join(lines)


def parse_lines(content: bytes, ending: str, target: str) -> Document:
    """Parse text."""
    return TextDocument(content, LinesDocument)


def parse_text(content: bytes, ending: str, target: str) -> Document:
    """Parse HTML, XML or Markdown."""
    from dragoman.documents.markup import parse_markup

    known = format_of(ending, content)
    kind = "html" if known is HTML else "markdown" if known is MARKDOWN else "xml"
    return TextDocument(content, lambda text: parse_markup(text, kind))
