"""Files that people have: each is translated as what it is, or refused in one line. None is spoilt."""

from __future__ import annotations

import configparser
import csv
import email.message
import gzip
import importlib.metadata
import io
import json
import lzma
import mailbox
import plistlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import babel.messages.catalog
import babel.messages.mofile
import babel.messages.pofile
import nbformat
import odf.opendocument
import odf.text
import openpyxl
import PIL.Image
import pysubs2
import pytest
import yaml
from matplotlib.figure import Figure

from dragoman import translate
from dragoman.__main__ import run as run_command
from dragoman.command_line import parse_translate
from echo import echo

SENTENCES = ["My name is Anna.", "I live in Rome, and my name is Anna!", "In Rome I see number 5."]
Writer = Callable[[Path], object]


def translated(path: Path, capsys: pytest.CaptureFixture, *options: str) -> tuple[int, str | None, str]:
    """Exit code, output file and messages of translate.py with a model that repeats its source."""
    output = path.with_name("output")
    words = ["--input", str(path), "--output", str(output), "--run", "here", *options]
    code = run_command("translate", parse_translate(words))
    return code, output.read_text(encoding="utf-8") if output.exists() else None, capsys.readouterr().err


@pytest.fixture(autouse=True)
def _echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate, "load_translator", lambda *_: echo())


def text_file(content: str) -> Writer:
    return lambda path: path.write_text(content, encoding="utf-8")


def write_subtitles(path: Path) -> None:
    subtitles = pysubs2.SSAFile()
    subtitles.events = [pysubs2.SSAEvent(start=i * 1000, end=i * 1000 + 900, text=t) for i, t in enumerate(SENTENCES)]
    subtitles.save(str(path))


def catalogue() -> babel.messages.catalog.Catalog:
    found = babel.messages.catalog.Catalog(locale="it")
    for sentence in SENTENCES:
        found.add(sentence, sentence.upper())
    return found


TOOLKIT = """
import sys
folder, name, path, *sentences = sys.argv[1:]
sys.path.insert(0, folder)  # before our own translate.py
from importlib import import_module
storage = getattr(import_module(f"translate.storage.{name}"), f"{name.rstrip('2')}file")()
for sentence in sentences:
    storage.addtranslation(sentence, "en", sentence, "it") if name == "tmx" else storage.addsourceunit(sentence)
open(path, "wb").write(bytes(storage))
"""


def write_storage(name: str) -> Writer:
    """A file as the Translate Toolkit writes it."""
    folder = str(importlib.metadata.distribution("translate-toolkit").locate_file("."))
    return lambda path: subprocess.run([sys.executable, "-c", TOOLKIT, folder, name, path, *SENTENCES], check=True)


def write_mail(path: Path) -> None:
    message = email.message.EmailMessage()
    message["Message-ID"], message["From"], message["To"] = "<1@a.example>", "anna@a.example", "tom@a.example"
    message.set_content("\n".join(SENTENCES))
    path.write_bytes(bytes(message))


def write_mbox(path: Path) -> None:
    box = mailbox.mbox(path)
    box.add("Subject: My name\n\n" + SENTENCES[0])
    box.close()


def write_office(*members: str) -> Writer:
    """A document with the members that programs recognise it by; there is no library for them here."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in members:
                archive.writestr(name, f"<p>{SENTENCES[0]}</p>")

    return write


def write_odt(path: Path) -> None:
    document = odf.opendocument.OpenDocumentText()
    document.text.addElement(odf.text.P(text=SENTENCES[0]))  # type: ignore[attr-defined]
    document.write(path)


def write_xlsx(path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(SENTENCES)  # type: ignore[union-attr]
    book.save(path)


def write_csv(delimiter: str) -> Writer:
    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=delimiter).writerows([s, s] for s in SENTENCES)

    return write


def write_ini(path: Path) -> None:
    settings = configparser.ConfigParser()
    settings["texts"] = {f"text{i}": text for i, text in enumerate(SENTENCES)}
    with path.open("w", encoding="utf-8") as file:
        settings.write(file)


def write_figure(path: Path) -> None:
    figure = Figure()
    figure.text(0.5, 0.5, SENTENCES[0])
    figure.savefig(path, format=path.suffix[1:])


def in_memory(write: Callable[[io.BytesIO], object]) -> Writer:
    def to_file(path: Path) -> None:
        memory = io.BytesIO()
        write(memory)
        path.write_bytes(memory.getvalue())

    return to_file


VALUES = {"title": SENTENCES[0], "texts": SENTENCES}
NOTEBOOK = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(SENTENCES[0])])
REFUSED: dict[str, Writer] = {
    "film.srt": write_subtitles,
    "FILM.SRT": write_subtitles,
    "film.en.ass": write_subtitles,
    "film.vtt": write_subtitles,
    "film.sbv": text_file("0:00:01.000,0:00:02.000\nMy name is Anna.\n"),
    "app.po": in_memory(lambda file: babel.messages.pofile.write_po(file, catalogue())),
    "app.mo": in_memory(lambda file: babel.messages.mofile.write_mo(file, catalogue())),
    "app.xliff": write_storage("xliff"),
    "app.ts.xml": write_storage("ts2"),
    "memory.tmx": write_storage("tmx"),
    "app.properties": text_file("".join(f"text{i}={text}\n" for i, text in enumerate(SENTENCES))),
    "app.json": text_file(json.dumps(VALUES, indent=2)),
    "rows.jsonl": text_file("".join(json.dumps({"text": text}) + "\n" for text in SENTENCES)),
    "app.yaml": text_file(yaml.safe_dump(VALUES, explicit_start=True)),
    "app.ini": write_ini,
    "app.plist": in_memory(lambda file: plistlib.dump(VALUES, file)),
    "table.csv": write_csv(","),
    "table.tsv": write_csv("\t"),
    "table.xlsx": write_xlsx,
    "letter.odt": write_odt,
    "letter.docx": write_office("[Content_Types].xml", "word/document.xml"),
    "talk.pptx": write_office("[Content_Types].xml", "ppt/slides/slide1.xml"),
    "book.epub": write_office("mimetype", "text/chapter1.xhtml"),
    "letter.rtf": text_file(r"{\rtf1\ansi My name is {\b Anna}.}"),
    "letter.tex": text_file("\\documentclass{article}\n\\begin{document}\nMy name is \\emph{Anna}.\n\\end{document}\n"),
    "figure.pdf": write_figure,
    "figure.svg": write_figure,
    "figure.png": lambda path: PIL.Image.new("RGB", (9, 9)).save(path, "png"),
    "figure.jpg": lambda path: PIL.Image.new("RGB", (9, 9)).save(path, "jpeg"),
    "notes.ipynb": text_file(nbformat.writes(NOTEBOOK)),
    "mail.eml": write_mail,
    "mails.mbox": write_mbox,
    "letter.txt.gz": lambda path: path.write_bytes(gzip.compress(SENTENCES[0].encode())),
    "letter.txt.xz": lambda path: path.write_bytes(lzma.compress(SENTENCES[0].encode())),
    "app.py": text_file(f"#!/usr/bin/env python\nprint('{SENTENCES[0]}')\n"),
}
SILENT = (  # content that says what it is under a name that does not
    "film.srt", "film.en.ass", "film.vtt", "film.sbv", "app.po", "app.xliff", "app.ts.xml", "memory.tmx", "app.json",
    "rows.jsonl", "app.yaml", "app.plist", "table.xlsx", "letter.odt", "letter.docx", "book.epub", "letter.rtf",
    "letter.tex", "figure.pdf", "figure.svg", "figure.png", "figure.jpg", "notes.ipynb", "mail.eml", "letter.txt.gz",
    "letter.txt.xz", "app.py",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "written"),
    [*((name, name) for name in REFUSED), *((name, other) for name in SILENT for other in ("words", "x.txt", "x.en"))],
)
def test_other_formats_are_refused(name: str, written: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards against translating time codes, keys, commands or bytes, or a part of a file, without a word."""
    path = tmp_path / name
    REFUSED[name](path)
    path = path.rename(tmp_path / written)
    code, output, said = translated(path, capsys)
    assert (code, output) == (3, None)
    assert said.count("\n") == 1
    assert f"{path} is a" in said
    assert "save its text as .txt or .html" in said
    is_text = b"\0" not in path.read_bytes() and not name.endswith((".rtf", ".jpg", ".gz", ".xz", ".pdf"))
    assert ("--markup none" in said) == is_text
    if is_text:
        lines = path.read_text(encoding="utf-8").splitlines()
        code, output, _ = translated(path, capsys, "--markup", "none")
        assert code == 0
        assert (output or "").count("\n") == len(lines)


HTML = "<!DOCTYPE html><html><head></head><body><p>My name is <b>Anna</b>.</p>\n</body></html>"
XML = '<?xml version="1.0"?>\n<note lang="en"><p>My name is <b>Anna</b>.</p></note>\n'
XHTML = '<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><p>My name<br/>is Anna.</p></html>\n'
MARKDOWN = "# My name\n\n- I live in `Rome`,\n  and my name is **Anna**.\n\n```sh\nls  -l\n```\n"


@pytest.mark.parametrize(
    ("names", "content"),
    [
        (("page.html", "PAGE.HTM", "page", "page.txt", "page.html.en"), HTML),
        (("note.xml", "note", "note.rdf"), XML),
        (("page.xhtml",), XHTML),
        (("notes.md", "notes.markdown"), MARKDOWN),
    ],
)
def test_markup_is_recognised(
    names: tuple[str, ...], content: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Guards tags that are translated as words, and the layout of Markdown."""
    for name in names:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        code, output, _ = translated(path, capsys)
        assert code == 0
        expected = content.replace("`Rome`,\n  and", "`Rome`, and")
        if content in (XML, XHTML):
            assert ElementTree.canonicalize(output) == ElementTree.canonicalize(expected)
        else:
            assert (output or "").split() == expected.split()
        assert translated(path, capsys, "--markup", "none")[1] != output
        code, _, said = translated(path, capsys, "--json")
        assert code == 2
        assert "leave out --json, or take every line as text with --markup none" in said


@pytest.mark.parametrize("name", ["letter.txt", "letter", "letter.en", "train.src", "news.2014", "x.foo"])
@pytest.mark.parametrize(
    "text",
    [
        "My name is <b>?",
        "<Anna> I live in Rome",
        "{name} is number 5!",
        '{"Anna"} is my name',
        "[1] My name is Anna.",
        "[Anna] is my name",
        "{}",
        "1",
        "10:30 I live in Rome",
        "# My name",
        "- I live in Rome",
        "---",
        "From Rome, I see: number 5",
        "msgid is my name",
        "",
    ],
)
def test_plain_text_stays_text(name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards against refusing a letter because of its brackets and braces."""
    path = tmp_path / name
    content = "".join(f"{line}\n" for line in [text, *SENTENCES])
    path.write_text(content, encoding="utf-8")
    code, output, _ = translated(path, capsys)
    assert code == 0
    assert (output or "").split() == content.split()


def test_pairs_to_score_may_be_a_table(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards --score, whose input is a table of two columns."""
    path = tmp_path / "pairs.tsv"
    path.write_text(f"{SENTENCES[0]}\t{SENTENCES[0]}\n", encoding="utf-8")
    assert parse_translate(["--score", "--input", str(path)]).markup is None
    assert translate.find_input(parse_translate(["--score", "--input", str(path)]), tmp_path).markup == ""
