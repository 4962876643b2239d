"""Files that people have: each is translated as what it is, or refused in one line. None is spoilt."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from dragoman import translate
from dragoman.__main__ import run as run_command
from dragoman.command_line import parse_translate
from dragoman.corpora.formats.file_formats import TEXT
from dragoman.documents.command import given_files
from dragoman.documents.files import document_format
from echo import echo

SENTENCES = ["My name is Anna.", "I live in Rome, and my name is Anna!", "In Rome I see number 5."]


def translated(path: Path, capsys: pytest.CaptureFixture, *options: str) -> tuple[int, str | None, str]:
    """Exit code, output file and messages of translate.py with a model that repeats its source."""
    output = path.with_name("output")
    words = ["--input", str(path), "--output", str(output), "--run", "here", *options]
    code = run_command("translate", parse_translate(words))
    return code, output.read_text(encoding="utf-8") if output.exists() else None, capsys.readouterr().err


@pytest.fixture(autouse=True)
def _echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate, "load_translator", lambda *_: echo())


REFUSED = {  # names of files, and how such a file begins if its content says what it is
    "letter.rtf": "{\\rtf1\\ansi My name is {\\b Anna}.}",
    "letter.doc": "PK\x03\x04",
    "figure.pdf": "%PDF-1.7\n",
    "film.sub": "",
    "app.properties": "",
    "memory.tmx": "",
    "table.tsv": "",
    "mail.eml": "",
    "app.py": "",
}
MESSAGES = [
    '<?xml version="1.0"?>\n<xliff version="1.2"><file/></xliff>\n',
    '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"/>\n',
    '<!DOCTYPE TS><TS language="it"><context/></TS>\n',
]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *REFUSED.items(),
        *((name, content) for content in REFUSED.values() if content for name in ("words", "x.txt")),
        *((name, content) for content in MESSAGES for name in ("app.xml", "app.ts", "x.txt")),
    ],
)
def test_other_formats_are_refused(name: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards against translating time codes, keys or commands, or a part of a file, without a word."""
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    code, output, said = translated(path, capsys)
    assert (code, output) == (3, None)
    assert said.count("\n") == 1
    assert f"{path} is a" in said
    assert "save it as one of .txt, .html" in said
    assert translated(path, capsys, "--markup", "none")[0] == 0


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08", b"\x89PNG\r\n", b"\xff\xd8\xff\xe0", b"My\0name"])
def test_binary_files_are_refused(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards against translating the bytes of an image or of a packed file under a name that says nothing."""
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    code, output, said = translated(path, capsys)
    assert (code, output) == (3, None)
    assert f"{path}:1, byte" in said


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


PLAIN = (
    "My name is <b>?", "<Anna> I live in Rome", "{name} is number 5!", '{"Anna"} is my name', "[1] My name is Anna.",
    "{}", "1", "10:30 I live in Rome", "# My name", "---", "From Rome, I see: number 5", "msgid is my name", "",
)  # fmt: skip


@pytest.mark.parametrize("name", ["letter.txt", "letter", "letter.en", "news.2014"])
def test_plain_text_stays_text(name: str, tmp_path: Path) -> None:
    """Guards against refusing a letter because of its brackets and braces."""
    path = tmp_path / name
    for text in PLAIN:
        path.write_text(f"{text}\nMy name is Anna.\n", encoding="utf-8")
        assert document_format(str(path), path.read_bytes()) in (None, TEXT)
        assert given_files(parse_translate(["--input", str(path)])) == []


def test_pairs_to_score_may_be_a_table(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards --score, whose input is a table of two columns."""
    path = tmp_path / "pairs.tsv"
    path.write_text(f"{SENTENCES[0]}\t{SENTENCES[0]}\n", encoding="utf-8")
    assert parse_translate(["--score", "--input", str(path)]).markup is None
    assert translate.find_input(parse_translate(["--score", "--input", str(path)])).markup == ""
