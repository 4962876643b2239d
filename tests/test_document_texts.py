"""Subtitles and messages of programs: only the text changes, byte for byte."""

from __future__ import annotations

import json
from importlib import import_module
from itertools import pairwise
from typing import Any

import polib
import pytest
import yaml
from babel.messages.pofile import read_po
from hypothesis import given
from hypothesis import strategies as st
from pysubs2 import SSAFile

from dragoman.corpora.formats.file_formats import BY_ENDING, DOCUMENTS
from dragoman.documents.document import DocumentTask
from dragoman.documents.files import parse_file
from dragoman.documents.subtitles import broken
from dragoman.errors import DataError
from echo import echo
from shouting import shouted

etree: Any = import_module("lxml.etree")
SRT = (
    "1\n00:00:01,000 --> 00:00:03,000\nMy name is\n<i>Anna</i>.\n\n"
    "2\n00:00:04,000 --> 00:00:06,000 X1:1\n- Where?\n- <b>In</b> Rome.\n\n"
    "3\n00:00:07,000 --> 00:00:09,000\n{\\an8}♪ a song ♪\n\n4\n00:00:09,500 --> 00:00:10,000\n...\n\n\n"
    '5\n00:00:11,000 --> 00:00:12,000\n<font color="#ff 00">red</font>\n'
)
VTT = (
    "WEBVTT - a film\n\nSTYLE\n::cue { color: red }\n\nNOTE\na comment\n\nfirst\n00:01.000 --> 00:02.000 line:0\n"
    "<v Anna>Salt &amp; pepper\nand <00:01.500>time\n\n00:03.000 --> 00:04.000\n<c.loud>No!</c>\n\nNOTE the end\n"
)
ASS = (
    "[Script Info]\r\nTitle: a film\r\n\r\n[Events]\r\n"
    "Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\r\n"
    "Dialogue: 0,0:00:01.00,0:00:02.00,Default,Anna,0,0,0,,{\\i1}My{\\i0} name, is\\NAnna\r\n"
    "Comment: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,a comment\r\n"
    "Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,{\\p1}m 0 0 l 1 1{\\p0}\r\n"
)


@pytest.mark.parametrize(
    ("name", "before", "changes"),
    [
        ("a.srt", SRT, ["My name is\n<i>Anna</i>.", "Where?", "<b>In</b> Rome.", "a song", "red"]),
        ("a.vtt", VTT, ["Salt &amp; pepper\nand <00:01.500>time", "No!"]),
        ("a.ass", ASS, ["My{\\i0} name, is\\NAnna"]),
    ],
)
def test_only_the_text_of_cues_changes(name: str, before: str, changes: list[str]) -> None:
    """Guards numbers, times, settings, comments, drawings, marks of music, dashes and tags."""
    shown = {
        "My name is\n<i>Anna</i>.": "MY NAME IS <i>ANNA</i>.", "<b>In</b> Rome.": "<b>IN</b> ROME.",
        "Salt &amp; pepper\nand <00:01.500>time": "SALT &amp; PEPPER AND TIME",
        "My{\\i0} name, is\\NAnna": "MY{\\i0} NAME, IS ANNA",
    }  # fmt: skip
    expected = before
    for change in changes:
        assert expected.count(change) == 1
        expected = expected.replace(change, shown.get(change, change.upper()))
    for mark in ("", "\ufeff"):
        for encoding in ("utf-8", "utf-16-le"):
            if mark or encoding == "utf-8":
                content = (mark + before).encode(encoding)
                assert shouted(name, content) == (mark + expected).encode(encoding)
    old, new = (SSAFile.from_string(each, format_=name[2:]) for each in (before, expected))
    assert [(each.start, each.end, each.style, each.type) for each in old] == [
        (each.start, each.end, each.style, each.type) for each in new
    ]


@given(st.lists(st.text(st.characters(categories=["Ll", "Lo"]), min_size=1, max_size=12), min_size=1, max_size=40))
def test_lines_of_a_cue(words: list[str]) -> None:
    """No word is cut or lost, a line fits if its words do, and lines are about equally long."""
    lines = broken(" ".join(words), "\n").split("\n")
    assert "".join(lines).replace(" ", "") == "".join(words)
    assert all(len(line) <= 42 or len(line.split()) == 1 for line in lines if line.isascii())
    if all(word.isascii() for word in words):
        assert " ".join(lines) == " ".join(words)
        assert len(lines) == 1 or all(len(a) + 1 + len(b) > 42 for a, b in pairwise(lines))


def test_a_language_without_blanks_is_broken_anywhere() -> None:
    lines = broken("駅はどこですか。" * 6, "\n").split("\n")
    assert "".join(lines) == "駅はどこですか。" * 6
    assert [len(line) for line in lines] == [16, 16, 16]


PO = r"""# A title
msgid ""
msgstr ""
"Language: \n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\n"

#. for people
#: a.py:1
msgctxt "menu"
msgid "My \"name\" is:\n"
msgstr ""

#, python-format
msgid "%(count)s in "
"Rome"
msgstr ""

#, python-format
msgid "%d name"
msgid_plural "%d names"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
msgid "old"
msgstr "vecchio?"

msgid "100%"
msgstr ""

#~ msgid "gone"
#~ msgstr "via"
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_catalogue_gets_what_it_lacks(end: str) -> None:
    """Guards headers, comments, flags, obsolete messages, plurals and line ends, and what is translated already."""
    before = PO.replace("\n", end)
    after = shouted("a.po", before.encode()).decode()
    expected = before.replace('"Language: \\n"', '"Language: it\\n"').replace(
        "nplurals=INTEGER; plural=EXPRESSION;", "nplurals=2; plural=(n != 1);"
    )
    for translation in (r"MY \"NAME\" IS:\n", "%(count)s IN ROME"):
        expected = expected.replace('msgstr ""' + 2 * end, f'msgstr "{translation}"' + 2 * end, 1)
    expected = expected.replace('msgstr[0] ""', 'msgstr[0] "%d NAME"').replace('msgstr[1] ""', 'msgstr[1] "%d NAMES"')
    assert after == expected.replace('"100%"' + end + 'msgstr ""', '"100%"' + end + 'msgstr "100%"')
    assert {entry.msgid: entry.msgstr for entry in polib.pofile(after)}["old"] == "vecchio?"
    read_po(after.encode().splitlines(keepends=True), abort_invalid=True)
    assert shouted("a.po", after.encode()).decode() == after


def test_a_lost_placeholder_leaves_the_message_alone() -> None:
    """Guards programs against messages that they cannot fill in."""
    for name, content in (("a.po", b'msgid "%s in"\nmsgstr ""\n'), ("a.json", b'{"k": "see {name}"}')):
        document = parse_file(content, name, "it")
        assert document.write([["ohne Platzhalter"]]) == content


JSON = """{
  "greeting": "My <b>name</b>",\t"@greeting": {"description": "no"}, "@@locale": "en",
  "n": [1, true, null, "caf\\u00e9"], "id": "camelCase", "url": "https://a.b/c", "key": "a.b.c", "colour": "#fff",
  "plural": "{n, plural, one {# name} other {# names}}", "lines": "one\\ntwo", "nested": {"k": "In: Rome"}, "e": ""
}
"""


def test_json() -> None:
    after = shouted("en.arb", JSON.encode()).decode()
    expected = JSON
    for text in ("My <b>name</b>", "caf\\u00e9", "one\\ntwo", "In: Rome"):
        shown = {"My <b>name</b>": "MY <b>NAME</b>", "one\\ntwo": "ONE\\nTWO", "caf\\u00e9": "CAF\\u00c9"}
        expected = expected.replace(text, shown.get(text, text.upper()))
    assert after == expected
    json.loads(after)


YAML = """# a comment
en:
  plain: my name   # another
  double: "my \\"name\\""
  single: 'it''s'
  block: |
    one
    two

  folded: >-
    one
    two
  list: [one, two, 3, yes, 2026-11-26]
  shared: &a in Rome
  again: *a
  id: some_key
"""


def test_yaml() -> None:
    after = shouted("en.yml", YAML.encode()).decode()
    expected = YAML.replace("en:", "it:").replace("    one\n    two\n  list", "    ONE TWO\n  list")
    for text in ("my name ", 'my \\"name\\"', "it''s", "    one\n    two\n\n", "one, two", " in Rome"):
        expected = expected.replace(text, text.upper())
    assert after == expected
    assert yaml.safe_load(after)["it"]["block"] == "ONE\nTWO\n"


@pytest.mark.parametrize("text", ["a: b", "yes", "'x", "# a", "- a", "1", "a #b", "[a", "x\ny", "null"])
def test_yaml_stays_readable(text: str) -> None:
    """Guards translations that YAML would read as something else."""
    translator, document = echo(), parse_file(b"k: one\n", "a.yaml", "it")
    assert len(DocumentTask.begin(translator, document).requests) == 1
    written = document.write([[text]])
    assert yaml.safe_load(written) == {"k": text}


XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="x" source-language="en"
 datatype="plaintext"><body>
<trans-unit id="1"><source>My <g id="1">name</g><x id="2"/></source><note>a note</note></trans-unit>
<trans-unit id="2"><source>one</source><target state="final">uno</target></trans-unit>
<trans-unit id="3" translate="no"><source>Dragoman</source></trans-unit>
<trans-unit id="4"><source>two</source><target/></trans-unit>
</body></file></xliff>
"""


def test_xliff() -> None:
    after = shouted("a.xliff", XLIFF.encode())
    root = etree.fromstring(after)
    units = root.iter("{*}trans-unit")
    texts = [["".join(part.itertext()) for part in unit.iter("{*}source", "{*}target")] for unit in units]
    assert texts == [["My name", "MY NAME"], ["one", "uno"], ["Dragoman"], ["two", "TWO"]]
    target = next(root.iter("{*}target"))
    assert etree.tostring(target, encoding="unicode", with_tail=False).partition(">")[2] == (
        'MY <g id="1">NAME</g><x id="2"/></target>'
    )
    assert target.get("state") == "needs-review-translation"
    assert next(root.iter("{*}file")).get("target-language") == "it"
    assert shouted("a.xliff", after) == after
    two = b'<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file><unit><segment>'
    after = shouted("a.xlf", two + b"<source>a <pc>b</pc></source></segment></unit></file></xliff>")
    assert b'trgLang="it"' in after
    assert b"<target>A <pc>B</pc></target>" in after


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.srt", b"My name is Anna.\n", "line 1: there is no cue"),
        ("a.po", b'msgid "a"\nmsgstr b"\n', "line 2: expected"),
        ("a.json", b'{"a": }', "not JSON.*line 1"),
        ("a.json", b"[" * 100_000, "nested too deeply|not JSON"),
        ("a.yaml", b"a: [1\nb: 2", "not YAML.*line 2"),
        ("a.xliff", b"<x/>", "begins with <x>"),
        ("a.xliff", b"<xliff>", "not well-formed"),
        ("a.txt", b"one\nb\xff", "line 2 is not UTF-8"),
    ],
)
def test_what_is_malformed_is_refused(name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        parse_file(content, name, "it")
    assert str(refused.value).startswith(f"{name}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.srt", SRT.replace("name is\n", "name is ")), ("a.ass", ASS.replace("is\\N", "is ")),
        ("a.json", JSON), ("a.yaml", YAML.replace("one\n    two\n  list", "one two\n  list").replace("en:", "it:")),
        ("a.txt", "one\r\n  two \n\n\tthree"), ("a.md", "# My *name*\n\n- one\n- two\n"),
    ],
)  # fmt: skip
def test_without_a_change_the_file_is_the_same(name: str, content: str) -> None:
    assert shouted(name, content.encode(), capitals=False).decode() == content


def test_every_format_of_the_table_has_its_parser() -> None:
    """Guards a name in the table that no module has."""
    for ending in DOCUMENTS:
        with pytest.raises(DataError):
            parse_file(b"\xff\xfe\0\0", f"a{ending}", "it")
    assert BY_ENDING[".docx"].what == "an office document"


CUE = "1\n00:00:01,000 --> 00:00:02,000\n"
HEAVY = {
    "blanks.srt": CUE + "a" + " " * 200_000 + "b",
    "words.srt": CUE + "word " * 50_000,
    "tags.srt": CUE + "<b>" * 100_000 + "x",
    "two words.srt": CUE + "a" * 50 + " " + "b" * 50,
    "cues.srt": (CUE + "a word\n\n") * 10_000,
    "capitals.json": '{"a": "a' + "A" * 200_000 + '!"}',
    "dots.json": '{"a": "' + "a." * 100_000 + 'x y"}',
    "braces.json": '{"a": "' + "{a " * 50_000 + '$t($t(x"}',
    "many.po": 'msgid "a"\nmsgstr ""\n' * 10_000,
    "word.po": 'msgid "' + "a" * 200_000 + '"\nmsgstr ""\n',
    "commas.ass": f"Format: {',' * 1_000}\nDialogue: {',' * 100_000}",
}


@pytest.mark.parametrize("name", HEAVY)
def test_no_file_takes_quadratic_time(name: str) -> None:
    """Guards the server: a pattern that tries every place again would keep this test busy for minutes or for ever."""
    assert shouted(name, HEAVY[name].encode())
