"""The formats of files: which can be corpora, which can be documents to translate, and what the others are called.

The functions are named by strings, so that a command imports only the reader or parser that it needs.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class FileFormat(NamedTuple):
    """A format, known by the endings of file names."""

    what: str  # in messages: this file is ...
    endings: str
    reader: str = ""  # of pairs: module:function in corpora.formats
    unit: str = ""  # what positions in a corpus count
    parser: str = ""  # of documents: module:function in documents
    needs: tuple[str, ...] = ()  # libraries of the parser


TEXT = FileFormat("text", ".txt", "delimited:read_delimited", "line", "files:parse_lines")
HTML = FileFormat("HTML", ".html .htm", parser="files:parse_text", needs=("html5lib",))
XML = FileFormat("XML", ".xml", "sgm:read_sgm", "segment", "files:parse_text", ("lxml",))
MARKDOWN = FileFormat(
    "Markdown", ".md .markdown .mdown .mkd", parser="files:parse_text",
    needs=("markdown_it", "mdit_py_plugins", "mdformat"),
)  # fmt: skip
SUBTITLES = FileFormat(
    "a subtitle file", ".srt .vtt .ass .ssa", "subtitles:read_subtitles", "cue", "subtitles:parse_subtitles"
)
OTHER_OFFICE = FileFormat("an office document", ".doc .ott .fodt .rtf .xls .ppt .pages .numbers .key .docm")
MESSAGES = FileFormat("a file of messages", ".mo .sdlxliff .mxliff .tbx .properties .resx .strings .ftl .xcstrings")
FORMATS = (
    FileFormat("a table", ".tsv .csv", "delimited:read_delimited", "line"),
    TEXT, HTML, XML, MARKDOWN, SUBTITLES, OTHER_OFFICE, MESSAGES,
    FileFormat("a data file", ".jsonl", "records:read_jsonl", "line"),
    FileFormat("a data file", ".json", "records:read_json", "record", "messages:parse_json"),
    FileFormat("a file of messages", ".arb", parser="messages:parse_json"),
    FileFormat("a file of messages", ".yaml .yml", parser="messages:parse_yaml"),
    FileFormat("a data file", ".parquet", "records:read_parquet", "row"),
    FileFormat("a spreadsheet", ".xlsx", "spreadsheets:read_workbook", "row", "office:parse_office", ("lxml",)),
    FileFormat("a spreadsheet", ".ods", "spreadsheets:read_workbook", "row", "opendocument:parse_odf", ("lxml",)),
    FileFormat("an office document", ".odt .odp", parser="opendocument:parse_odf", needs=("lxml",)),
    FileFormat("a book", ".epub", parser="epub:parse_epub", needs=("lxml",)),
    FileFormat("a translation memory", ".tmx", "tmx_xliff:read_tmx", "unit"),
    FileFormat(
        "a file of messages", ".xliff .xlf", "tmx_xliff:read_xliff", "unit", "xliff:parse_xliff", ("lxml",)
    ),
    FileFormat("a file of messages", ".po", "po:read_po", "message", "messages:parse_po"),
    FileFormat("a file of messages", ".pot", parser="messages:parse_po"),
    FileFormat("a test set", ".sgm .sgml", "sgm:read_sgm", "segment"),
    FileFormat("XML", ".xhtml", parser="files:parse_text", needs=("lxml",)),
    FileFormat("an office document", ".docx .pptx", parser="office:parse_office", needs=("lxml",)),
    FileFormat("a subtitle file", ".sub .sbv .lrc .smi .ttml .dfxp"),
    FileFormat("a data file", ".ndjson .json5 .geojson .toml .ini .cfg .tab .sql .plist .ics .vcf .bib"),
    FileFormat(
        "a document with a format of its own",
        ".pdf .mobi .tex .ltx .rst .adoc .asciidoc .org .typ .ipynb .svg",
    ),
    FileFormat("a mail with its headers", ".eml .mbox .msg .mht .mhtml"),
    FileFormat(
        "a program", ".py .js .jsx .tsx .css .scss .php .java .kt .swift .c .h .cpp .go .rb .sh .bat .vue .lua"
    ),
)  # fmt: skip
BY_ENDING = {ending: each for each in FORMATS for ending in each.endings.split()}
CORPORA = tuple(ending for ending, each in BY_ENDING.items() if each.reader)
DOCUMENTS = tuple(ending for ending, each in BY_ENDING.items() if each.parser)

# How files begin, by signatures that prose never starts with: a text may contain angle brackets and braces. Binary
# files need no entry, because they are not UTF-8. Messages in XML have sources and translations, whatever their names
# end with.
_STARTS = (
    (re.compile(rb"(?:<\?xml[^>]*+>\s*+)?(?:<!DOCTYPE[^>]*+>\s*+)?<(?:xliff|tmx|TS)\b"), MESSAGES),
    (re.compile(rb"(?>(?><!--.*?-->)\s*)*+<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL), HTML),
    (re.compile(rb"<\?xml\s"), XML),
    (re.compile(rb"WEBVTT\b|\[Script Info\]|(?:\d+[ \t]*\r?\n)?\d+:\d\d:\d\d[,.]\d+[ \t]*-->"), SUBTITLES),
    (re.compile(rb"PK\x03\x04|%PDF-|\{\\rtf"), OTHER_OFFICE),
)


def format_of(ending: str, start: bytes) -> FileFormat | None:
    """The format of a file by the ending of its name and by how it begins; None if it is not known.

    A file of messages in XML is known by its content alone; all others first by their ending. A .txt is what it begins
    like.
    """
    start = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    by_start = next((each for pattern, each in _STARTS if pattern.match(start)), None)
    by_ending = BY_ENDING.get(ending.lower())
    if by_start is MESSAGES and (by_ending is None or "tmx_xliff" not in by_ending.reader):
        return MESSAGES
    if by_ending is None or by_ending is TEXT:
        return by_start or by_ending
    return by_ending
