"""Recognise files that are not plain text before their lines are translated.

    kind_of(Path("page.htm"))       # "html", which `markup` translates
    kind_of(Path("letter.txt"))     # "", plain text; also for a name that says nothing
    kind_of(Path("film.srt"))       # DataError: a format whose lines are not its sentences

The ending of the name decides if it is listed below. Otherwise the content does, by marks that no prose begins with: a
text may contain angle brackets and braces. Binary files need no list, since they are not UTF-8.
"""

from __future__ import annotations

import re
from pathlib import Path

from dragoman.errors import DataError

MARKUP = {"html": ".html .htm", "xml": ".xml .xhtml", "markdown": ".md .markdown .mdown .mkd"}
OTHERS = {
    "a subtitle file": ".srt .vtt .ass .ssa .sub .sbv .lrc .smi .ttml .dfxp",
    "a file of messages": ".po .pot .mo .xliff .xlf .sdlxliff .mxliff .tmx .tbx .properties .resx .strings .arb .ftl",
    "a data file": ".json .jsonl .ndjson .json5 .geojson .yaml .yml .toml .ini .cfg .csv .tsv .tab .sql .plist "
    ".parquet .ics .vcf .bib",
    "an office document": ".docx .doc .odt .ott .fodt .rtf .xlsx .xls .ods .pptx .ppt .odp .pages .numbers .key",
    "a document with a format of its own": ".pdf .epub .mobi .tex .ltx .rst .adoc .asciidoc .org .typ .ipynb .svg",
    "a mail with its headers": ".eml .mbox .msg .mht .mhtml",
    "a program": ".py .js .jsx .tsx .css .scss .php .java .kt .swift .c .h .cpp .go .rb .sh .bat .vue .lua",
}
ENDINGS = {ending: kind for kind, endings in (MARKUP | OTHERS).items() for ending in endings.split()}
# Messages in XML have sources and translations, whatever their names end with.
MESSAGES = re.compile(rb"(?:<\?xml[^>]*+>\s*+)?(?:<!DOCTYPE[^>]*+>\s*+)?<(?:xliff|tmx|TS)\b")
STARTS = {
    "html": re.compile(rb"(?>(?><!--.*?-->)\s*)*+<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL),
    "xml": re.compile(rb"<\?xml\s"),
    "a subtitle file": re.compile(rb"WEBVTT\b|\[Script Info\]|(?:\d+[ \t]*\r?\n)?\d+:\d\d:\d\d[,.]\d+[ \t]*-->"),
    "an office document": re.compile(rb"PK\x03\x04|%PDF-|\{\\rtf"),
}
SNIFFED = 2**16  # bytes


def kind_of(path: Path) -> str:
    """Return html, xml or markdown for a file that `markup` translates, and nothing for plain text.

    Raises DataError for other formats, and if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            start = file.read(SNIFFED).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror}.") from error
    by_content = next((kind for kind, pattern in STARTS.items() if pattern.match(start)), "")
    kind = "a file of messages" if MESSAGES.match(start) else ENDINGS.get(path.suffix.lower(), by_content)
    if kind and kind not in MARKUP:
        raise DataError(
            f"{path} is {kind}, but only text, HTML, XML and Markdown can be translated: save its text as .txt or "
            ".html, or take every line as text with --markup none."
        )
    return kind
