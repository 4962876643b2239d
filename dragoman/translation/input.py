"""What to translate: arguments, a file, or standard input, as blocks of lines."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dragoman import console, reading
from dragoman.corpora.formats.files import File, lines
from dragoman.errors import ConfigError, DataError
from dragoman.text.cleaning import AS_WRITTEN, decode_line

# Kinds of files by the ending of the name; else the content decides, by signatures that prose never starts with: a text
# may contain angle brackets and braces. Binary files need no entry, because they are not UTF-8.
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

LINES = 2_000  # that are translated together, and counted together by the progress bar


@dataclass(frozen=True)
class Input:
    """Lines to translate."""

    name: str  # for messages about a line
    blocks: Iterator[list[str]]
    lines: int | None = None  # how many, if that is known in advance
    markup: str = ""  # what the whole is, for `markup.translate_markup`; nothing: each line is a text of its own


def find_input(options: argparse.Namespace) -> Input:
    """The lines that the options name.

    Raises DataError if they cannot be read or are not text, and ConfigError for options that a document cannot have.
    """
    markup = _markup(options)
    if options.sentences:
        # From bytes, so that an argument that is not UTF-8 gets the same message as such a line.
        texts = [decode_line(os.fsencode(text), "argument", i) for i, text in enumerate(options.sentences, 1)]
        for text in options.sentences:
            if os.path.isfile(text):
                console.warn(f"{text} is taken as a sentence; to translate the file, use --input {text}")
        return Input("argument", iter([texts]), markup=markup)
    if options.input:
        name = str(options.input)
        if options.input.is_file() and _is_utf16(options.input):
            texts = [*lines(File(options.input), AS_WRITTEN)]
            return Input(name, iter([texts]), len(texts), markup=markup)
        return Input(name, _blocks(_open(options.input), name), _count(options.input), markup=markup)
    return Input("stdin", _blocks(sys.stdin.buffer, "stdin"), markup=markup)


def _markup(options: argparse.Namespace) -> str:
    """What the input is as a whole: what the options say, or what a file is by its name and content."""
    plain = "paragraphs" if options.paragraphs else ""
    if options.markup or options.score or options.input is None or not options.input.is_file():
        return options.markup if options.markup not in (None, "none") else plain
    kind, line_options = kind_of(options.input), ("align", "attention", "embed", "json", "paragraphs", "prefix")
    unsuitable = [f"--{name}" for name in line_options if getattr(options, name)]
    if kind and unsuitable:
        raise ConfigError(
            f"{options.input} is {kind}, which is translated as a whole: leave out {unsuitable[0]}, or take every line "
            "as text with --markup none."
        )
    return kind or plain


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


def pairs_to_score(texts: Sequence[str], name: str, first: int, language_model: bool) -> list[tuple[str, str]]:
    """Sources and translations: lines of two columns, or alternating arguments; a language model has texts alone.

    Raises DataError for a line that does not have two columns.
    """
    if language_model:
        return [("", text) for text in texts]
    if name == "argument" and len(texts) % 2 == 0 and not any("\t" in text for text in texts):
        return list(zip(texts[::2], texts[1::2], strict=True))
    pairs = [tuple(text.split("\t")) for text in texts]
    for number, pair in enumerate(pairs, first):
        if len(pair) != 2:
            raise DataError(f"{name}:{number}: this must be SOURCE TAB TRANSLATION, but it has {len(pair)} columns.")
    return [(source, target) for source, target in pairs]


def _blocks(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    """The lines of a stream, as many at a time as have arrived: one from a person, up to LINES from a file.

    So a filter answers each line at once, and a file is still translated in full batches. Raises DataError for a line
    that is not UTF-8 or far too long, after yielding those before it.
    """
    number = 1
    try:
        for lines in reading.lines(stream.fileno(), name):
            for start in range(0, len(lines), LINES):
                texts: list[str] = []
                try:
                    for line in lines[start : start + LINES]:
                        texts.append(decode_line(line, name, number))
                        number += 1
                finally:
                    if texts:
                        yield texts
    except OSError as error:
        raise DataError(f"{name}: {error.strerror}.") from error


def _count(path: Path) -> int | None:
    """How many lines a file has; None for a pipe, which can be read only once."""
    if not path.is_file():
        return None
    with _open(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))


def _is_utf16(path: Path) -> bool:
    with _open(path) as file:
        return (start := file.read(4))[:2] in (b"\xff\xfe", b"\xfe\xff") and b"\0\0" not in start


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror}.") from error
