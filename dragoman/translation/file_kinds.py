"""Recognise files that are no plain text, by their names and their first bytes, before their lines are translated.

    kind_of(Path("page.htm"))       # "html", which `markup` translates
    kind_of(Path("letter.txt"))     # "", plain text; so is a name that says nothing
    kind_of(Path("film.srt"))       # DataError: a format whose lines are not its sentences

The name decides if it ends in one of the endings below. Otherwise, and for .txt, the content does, but only by marks
that no prose begins with: a text may contain angle brackets and braces.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from dragoman.errors import DataError

MARKUP = {
    **dict.fromkeys((".html", ".htm"), "html"),
    **dict.fromkeys((".xml", ".xhtml"), "xml"),
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), "markdown"),
}
FORMATS = {
    "a subtitle file": ".srt .vtt .ass .ssa .sub .sbv .lrc .smi .ttml .dfxp",
    "a file of messages": ".po .pot .mo .xliff .xlf .sdlxliff .mxliff .tmx .tbx .properties .resx .strings .arb .ftl",
    "a data file": ".json .jsonl .ndjson .json5 .geojson .yaml .yml .toml .ini .cfg .csv .tsv .tab .sql .plist "
    ".parquet .ics .vcf .bib",
    "an office document": ".docx .doc .odt .ott .fodt .rtf .xlsx .xls .ods .pptx .ppt .odp .pages .numbers .key",
    "a document with a format of its own": ".pdf .epub .mobi .tex .ltx .rst .adoc .asciidoc .org .typ .ipynb .svg",
    "a mail with its headers": ".eml .mbox .msg .mht .mhtml",
    "a program": ".py .js .jsx .tsx .css .scss .php .java .kt .swift .c .h .cpp .go .rb .sh .bat .vue .lua",
}
ENDINGS = {ending: what for what, endings in FORMATS.items() for ending in endings.split()}
SIGNATURES = {
    b"PK\x03\x04": "an archive or an office document",
    b"\xd0\xcf\x11\xe0": "an office document",
    b"{\\rtf": "an office document",
    b"%PDF-": "a PDF document",
    **dict.fromkeys((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"Rar!"), "a packed file"),
    **dict.fromkeys(
        (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"II*\0", b"MM\0*", b"\0\0\1\0"), "an image or film"
    ),
}
# What prose never begins with.
STARTS = {
    "html": re.compile(r"(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL),
    "xml": re.compile(r"<\?xml\s"),
    "a subtitle file": re.compile(
        r"WEBVTT\b|\[Script Info\]|(?:\d+[ \t]*\r?\n)?\d+:\d\d:\d\d[,.]\d+[ \t]*(?:-->|,)[ \t]*\d+:\d\d"
    ),
    "a file of messages": re.compile(r"(?:#.*\n|\s)*msg(?:ctxt|id) \""),
    "a data file": re.compile(r"%YAML |---[ \t]*\r?\n[\w.-]+:\s|BEGIN:V"),
    "a document with a format of its own": re.compile(r"\\documentclass\b|%!PS"),
    "a mail with its headers": re.compile(r"(?:Return-Path|Received|MIME-Version|Delivered-To|Message-ID): "),
    "a program": re.compile(r"#!\s*/"),
}
ROOT = re.compile(r"(?:\s|<\?.*?\?>|<!--.*?-->|<![^>\[]*(?:\[.*?\]\s*)?>)*<(?:\w+:)?(\w+)", re.DOTALL)  # element of XML
# Roots of XML whose text is in two languages, or not to be translated as a whole.
OTHER_XML = {
    **dict.fromkeys(("xliff", "tmx", "ts", "martif", "tbx"), "a file of messages"),
    "tt": "a subtitle file",
    "svg": "a document with a format of its own",
    "plist": "a data file",
}
SNIFFED = 2**16  # bytes


def kind_of(path: Path) -> str:
    """Return html, xml or markdown for a file that `markup` translates, and nothing for plain text.

    Raises DataError for other formats, and if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            start = file.read(SNIFFED)
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror}.") from error
    ending = path.suffix.lower()
    for signature, what in SIGNATURES.items():
        if start.startswith(signature):
            raise _refused(path, what)
    found = ENDINGS.get(ending) or MARKUP.get(ending) or ("" if b"\0" in start else _begun(start))
    if found == "xml" and (root := ROOT.match(start.decode(errors="replace").lstrip("\ufeff"))):
        found = OTHER_XML.get(root[1].lower(), found)
    if found and found not in MARKUP.values():
        raise _refused(path, found, other=", or take every line as text with --markup none" * (b"\0" not in start))
    return found


def _begun(start: bytes) -> str:
    """Return what a file is by its first characters; nothing if it may be prose."""
    text = start.decode(errors="replace").lstrip("\ufeff \t\r\n")
    found = next((what for what, begins in STARTS.items() if begins.match(text)), "")
    return found or ("a data file" if text.startswith(("{", "[")) and _is_json(text, len(start) == SNIFFED) else "")


def _is_json(text: str, cut: bool) -> bool:
    """Whether a text is JSON, or a JSON value a line, with names of values; [1] may be a note in prose."""
    if cut:
        return re.match(r'[\[{\s]*"[^"\n]*"\s*:', text) is not None
    for part in (text, text.partition("\n")[0]):
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            continue
        return bool(value) and isinstance(value[0] if isinstance(value, list) else value, dict)
    return False


def _refused(path: Path, what: str, other: str = "") -> DataError:
    return DataError(
        f"{path} is {what}, but only text, HTML, XML and Markdown can be translated: save its text as .txt or .html"
        f"{other}."
    )
