"""Documents that people have: the text is translated, and nothing else changes.

The files are written, and opened again, by the libraries of their formats.
"""

from __future__ import annotations

import base64
import io
import re
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from ebooklib import ITEM_DOCUMENT, epub
from odf import draw, text
from odf.opendocument import OpenDocumentText, load
from odf.style import Style, TextProperties
from odf.table import Table, TableCell, TableRow

from dragoman import translate
from dragoman.__main__ import run as run_command
from dragoman.command_line import parse_translate
from dragoman.documents.command import ZIPPED
from dragoman.documents.files import parse_file
from dragoman.documents.office import OfficePart
from dragoman.errors import DataError
from echo import echo
from shouting import contents_of, shouted

# Their types are incomplete.
docx: Any = import_module("docx")
openpyxl: Any = import_module("openpyxl")
pptx: Any = import_module("pptx")
etree: Any = import_module("lxml.etree")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def saved(document: Any) -> bytes:
    """What a library saves."""
    content = io.BytesIO()
    document.save(content)
    return content.getvalue()


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def blank(content: bytes) -> bytes:
    """XML without its text, to compare everything else."""
    root = etree.fromstring(content)
    for element in root.iter():
        element.text = element.tail = None
        for name in list(element.attrib):
            if name.endswith("}space"):
                del element.attrib[name]
    return etree.tostring(root, method="c14n")


def assert_only_text_changed(before: bytes, after: bytes, parts: str) -> None:
    """Compare all members; of those whose names match, all but the text."""
    old, new = members(before), members(after)
    assert list(new) == list(old)
    changed = [name for name in old if old[name] != new[name]]
    assert changed
    assert all(re.fullmatch(parts, name) for name in changed), changed
    for name in changed:
        assert blank(new[name]) == blank(old[name]), name


# ---- Each format


def word_document() -> bytes:
    document = docx.Document()
    document.add_heading("The black cat", 1)
    paragraph = document.add_paragraph("Where is the ", "Quote")
    paragraph.add_run("station").bold = True
    paragraph.add_run("? My name is Anna.")
    document.add_picture(io.BytesIO(PIXEL))
    table = document.add_table(2, 2)
    table.cell(0, 0).text, table.cell(1, 1).text = "Good morning!", "25"
    document.sections[0].header.paragraphs[0].text = "the train"
    link = docx.oxml.parse_xml(f'<w:hyperlink xmlns:w="{W}" w:anchor="x"><w:r><w:t>a link</w:t></w:r></w:hyperlink>')
    document.add_paragraph("See ")._p.append(link)
    return saved(document)


def test_word() -> None:
    before = word_document()
    after = shouted("report.docx", before)
    document = docx.Document(io.BytesIO(after))
    assert [(each.style.name, each.text) for each in document.paragraphs] == [
        ("Heading 1", "THE BLACK CAT"), ("Quote", "WHERE IS THE STATION? MY NAME IS ANNA."), ("Normal", ""),
        ("Normal", "SEE A LINK"),
    ]  # fmt: skip
    assert [(run.text, run.bold) for run in document.paragraphs[1].runs] == [
        ("WHERE IS THE ", None), ("STATION", True), ("? MY NAME IS ANNA.", None),
    ]  # fmt: skip
    assert [[cell.text for cell in row.cells] for row in document.tables[0].rows] == [["GOOD MORNING!", ""], ["", "25"]]
    assert document.sections[0].header.paragraphs[0].text == "THE TRAIN"
    assert len(document.inline_shapes) == 1
    assert_only_text_changed(before, after, r"word/(document|header1)\.xml")


def word_part(*paragraphs: str) -> OfficePart:
    body = "".join(f"<w:p>{each}</w:p>" for each in paragraphs)
    xml = f'<w:document xmlns:w="{W}" xmlns:m="m"><w:body>{body}</w:body></w:document>'
    return OfficePart(xml.encode(), "document.xml")


def run(text: str, properties: str = "", more: str = "") -> str:
    return f"<w:r>{f'<w:rPr>{properties}</w:rPr>' if properties else ''}<w:t>{text}</w:t>{more}</w:r>"


FIELD = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
INSTRUCTION = "<w:r><w:instrText>{}</w:instrText></w:r>"


def field(instruction: str, result: str) -> str:
    marks = [FIELD.format(kind) for kind in ("begin", "separate", "end")]
    return marks[0] + INSTRUCTION.format(instruction) + marks[1] + run(result) + marks[2]


@pytest.mark.parametrize(
    ("paragraph", "texts", "written"),
    [
        # Word cuts words where spelling was checked; properties that do not show do not separate.
        (run("my na") + '<w:proofErr w:type="x"/>' + run("me", '<w:lang w:val="en"/>'), ["my name"], "MY NAME"),
        (run("one") + run(" ", "<w:b/>") + run("two"), ["one two"], "ONE TWO"),
        (run("one", more="<w:br/>") + run("two"), ["one", "two"], "ONE|TWO"),
        (run("a") + "<w:r><w:noBreakHyphen/></w:r>" + run("b"), ["a\u2011b"], "A\u2011B"),
        (field("PAGE", "seven"), [], "seven"),
        (run("see ") + field("REF x", "seven"), ["see seven"], "SEE seven"),
        (field('HYPERLINK "x"', "seven"), ["seven"], "SEVEN"),
        ("<w:del>" + "<w:r><w:delText>old</w:delText></w:r></w:del><w:ins>" + run("new") + "</w:ins>", ["new"], "NEW"),
        ("<w:sdt><w:sdtContent>" + run("inside") + "</w:sdtContent></w:sdt>", ["inside"], "INSIDE"),
        (run("see") + "<w:r><w:footnoteReference/></w:r>", ["see"], "SEE"),
        ("<w:hyperlink>" + run("one", more="<w:br/>") + run("two") + "</w:hyperlink>", ["one", "two"], "ONE|TWO"),
        (FIELD.format("end") + run("last"), ["last"], "LAST"),  # of a field that began in another paragraph
        (
            "<w:r><w:txbxContent><w:p>" + run("box") + "</w:p></w:txbxContent></w:r>" + run("text"),
            ["text", "box"],
            None,
        ),
    ],
)
def test_runs_of_word(paragraph: str, texts: list[str], written: str) -> None:
    """Guards words that are cut, fields and notes that are lost, and text in fields that Word computes."""
    part = word_part(paragraph)
    assert [inline.line for inline in part.inlines] == texts
    root = etree.fromstring(part.write(contents_of(part)))
    result = "".join(
        "|" if each.tag.endswith("br") else each.text or "" for each in root.iter(f"{{{W}}}t", f"{{{W}}}br")
    )
    hyphen = "\u2011" in paragraph
    assert written is None or result == written or hyphen
    kinds = [re.sub(r".*\}", "", each.tag) for each in root.iter()]
    for kind in ("fldChar", "instrText", "delText", "footnoteReference", "hyperlink", "sdtContent", "txbxContent"):
        assert kinds.count(kind) == paragraph.count(f"<w:{kind}")


def test_powerpoint() -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "Where is the station?"
    slide.placeholders[1].text = "The cat is black.\nMy name is Anna."
    slide.notes_slide.notes_text_frame.text = "Good morning!"
    slide.shapes.add_table(1, 1, 0, 0, 9, 9).table.cell(0, 0).text = "milk"
    slide.shapes.add_picture(io.BytesIO(PIXEL), 0, 0)
    before = saved(presentation)
    after = shouted("talk.pptx", before)
    [slide] = pptx.Presentation(io.BytesIO(after)).slides
    texts = [shape.text_frame.text for shape in slide.shapes if shape.has_text_frame]
    assert texts == ["WHERE IS THE STATION?", "THE CAT IS BLACK.\nMY NAME IS ANNA."]
    assert slide.notes_slide.notes_text_frame.text == "GOOD MORNING!"
    assert slide.shapes[2].table.cell(0, 0).text == "MILK"
    assert_only_text_changed(before, after, r"ppt/(slides|notesSlides)/\w+\.xml")


def test_excel() -> None:
    """Formulas, numbers, sheet names and the names of a table's columns, which must equal its cells, stay."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet
    sheet.title = "milk"
    for row in (["name", "price"], ["milk", 25], ["a cat", "=B2*2"]):
        sheet.append(row)
    sheet["A2"].font = openpyxl.styles.Font(bold=True)
    sheet.add_table(openpyxl.worksheet.table.Table(displayName="t", ref="A1:B3"))
    before = saved(book)
    after = shouted("prices.xlsx", before)
    [sheet] = openpyxl.load_workbook(io.BytesIO(after)).worksheets
    rows = [[cell.value for cell in row] for row in sheet]
    assert (sheet.title, rows) == ("milk", [["name", "price"], ["MILK", 25], ["A CAT", "=B2*2"]])
    assert sheet["A2"].font.bold
    assert_only_text_changed(before, after, r"xl/(sharedStrings|worksheets/sheet1)\.xml")


def test_libreoffice() -> None:
    document: Any = OpenDocumentText()
    bold = Style(name="bold", family="text")
    bold.addElement(TextProperties(fontweight="bold"))
    document.automaticstyles.addElement(bold)
    document.text.addElement(text.H(outlinelevel=1, text="The black cat"))
    paragraph = text.P(text="Where is the ")
    paragraph.addElement(text.Span(stylename=bold, text="station"))
    note = text.Note(noteclass="footnote")
    note.addElement(text.NoteCitation(text="1"))
    body = text.NoteBody()
    body.addElement(text.P(text="a note"))
    note.addElement(body)
    paragraph.addElement(note)
    paragraph.addText("? See ")
    paragraph.addElement(text.A(href="http://a.b/", text="the train"))
    document.text.addElement(paragraph)
    frame = draw.Frame(width="1cm", height="1cm")
    frame.addElement(draw.Image(href=document.addPicture("pixel.png", "image/png", PIXEL)))
    picture = text.P()
    picture.addElement(frame)
    document.text.addElement(picture)
    table = Table(name="milk")
    row = TableRow()
    cell = TableCell(valuetype="string")
    cell.addElement(text.P(text="Good morning!"))
    formula = TableCell(valuetype="string", formula="of:=1")
    formula.addElement(text.P(text="computed"))
    for each in (cell, formula):
        row.addElement(each)
    table.addElement(row)
    document.text.addElement(table)
    before = saved(document)
    after = shouted("letter.odt", before)
    document = load(io.BytesIO(after))
    paragraphs = [str(each) for each in document.getElementsByType(text.P)]
    assert paragraphs[0].replace("1A NOTE", "") == "WHERE IS THE STATION? SEE THE TRAIN"
    assert paragraphs[1:] == ["A NOTE", "", "GOOD MORNING!", "computed"]
    assert [str(each) for each in document.getElementsByType(text.Span)] == ["STATION"]
    assert [each.getAttribute("href") for each in document.getElementsByType(text.A)] == ["http://a.b/"]
    assert_only_text_changed(before, after, r"content\.xml|styles\.xml")


def test_book() -> None:
    book = epub.EpubBook()
    book.set_title("The black cat")
    book.set_language("en")
    chapter = epub.EpubHtml(title="One", file_name="one.xhtml", lang="en")
    chapter.content = '<h1>One</h1><p>The <b>black</b> cat, <a href="one.xhtml">here</a>.</p><pre>code</pre>'
    book.add_item(chapter)
    book.add_item(epub.EpubItem(file_name="pixel.png", media_type="image/png", content=PIXEL))
    book.toc = [chapter]
    book.add_item(epub.EpubNcx())
    book.add_item(epub.EpubNav())
    book.spine = ["nav", chapter]
    content = io.BytesIO()
    epub.write_epub(content, book)
    before = content.getvalue()
    after = shouted("book.epub", before)
    with zipfile.ZipFile(io.BytesIO(after)) as archive:
        assert archive.infolist()[0].filename == "mimetype"
        assert archive.infolist()[0].compress_type == zipfile.ZIP_STORED
    book = epub.read_epub(io.BytesIO(after))
    assert book.get_metadata("DC", "title")[0][0] == "THE BLACK CAT"
    assert book.get_metadata("DC", "language")[0][0] == "it"
    [page] = [each for each in book.get_items_of_type(ITEM_DOCUMENT) if each.file_name == "one.xhtml"]
    body = page.get_content().decode()
    assert "<b>BLACK</b>" in body
    assert '<a href="one.xhtml">HERE</a>' in body
    assert "<pre>code</pre>" in body
    assert book.toc[0].title == "ONE"
    old, new = members(before), members(after)
    assert [name for name in old if old[name] != new[name]] == [
        name for name in old if name.endswith((".opf", "html", ".ncx"))
    ]


# ---- What cannot be translated


def zipped(**content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return file.getvalue()


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """300 kB that unpack to more than a document may have."""
    return zipped(**{"content.xml": bytes(2**28 + 1)})


def flagged(content: bytes) -> bytes:
    """A .zip whose members say that they are encrypted."""
    at = content.index(b"PK\x01\x02") + 8
    return content[:at] + b"\x01" + content[at + 1 :]


SMALL = zipped(x=b"x")
SPOILT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda _: SMALL[:-9], "not a whole .zip"),
    "no document": (lambda _: SMALL, "is missing in it"),
    "old Office, or encrypted": (lambda _: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "without a password"),
    "encrypted": (lambda _: flagged(SMALL), "without a password"),
    "bomb": (lambda bomb: bomb, "split it"),
    "empty": (lambda _: b"", "not a whole .zip"),
    "damaged": (lambda _: SMALL.replace(b"x", b"y", 2), "same name|missing|damaged|not a whole"),
}


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("ending", ZIPPED)
def test_what_cannot_be_read_is_refused(ending: str, how: str, bomb: bytes) -> None:
    """One line, which names the file and says what to do."""
    make, message = SPOILT[how]
    with pytest.raises(DataError, match=message) as refused:
        parse_file(make(bomb), f"file{ending}", "it")
    assert str(refused.value).startswith(f"file{ending}: ")
    assert "\n" not in str(refused.value)


def test_encrypted_by_the_format_itself() -> None:
    manifest = b'<manifest xmlns="m"><file-entry><encryption-data/></file-entry></manifest>'
    with pytest.raises(DataError, match="encrypted"):
        parse_file(zipped(**{"META-INF/manifest.xml": manifest, "content.xml": b"<x/>"}), "a.odt", "it")
    container = b'<container xmlns="c"><rootfiles><rootfile full-path="b.opf"/></rootfiles></container>'
    package = (
        b'<package xmlns="p"><manifest><item href="a.xhtml" media-type="application/xhtml+xml"/></manifest></package>'
    )
    encryption = b'<encryption xmlns="e"><CipherReference URI="a.xhtml"/></encryption>'
    names = ("META-INF/container.xml", "b.opf", "META-INF/encryption.xml", "a.xhtml")
    content = zipped(**dict(zip(names, (container, package, encryption, b"<html/>"), strict=True)))
    with pytest.raises(DataError, match="encrypted"):
        parse_file(content, "a.epub", "it")


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    """An entity that names a file stays an entity."""
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    part = f'<!DOCTYPE x [<!ENTITY e SYSTEM "{secret}">]><w:p xmlns:w="{W}"><w:r><w:t>one &e;</w:t></w:r></w:p>'
    office = OfficePart(part.encode(), "document.xml")
    assert b"hidden" not in office.write(contents_of(office))


# ---- The command


@pytest.fixture
def _echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate, "load_translator", lambda *_: echo())


@pytest.mark.usefixtures("_echo")
def test_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """One bad file costs no other; nothing is overwritten; what was made before is not translated again."""
    (tmp_path / "in").mkdir()
    (tmp_path / "report.en.docx").write_bytes(word_document())
    (tmp_path / "bad.docx").write_bytes(SMALL)
    (tmp_path / "in" / "page.html").write_text("<p>My name is <b>Anna</b>.</p>")
    (tmp_path / "in" / "notes.py").write_text("no document")

    def run(*words: object) -> tuple[int, set[str], str]:
        code = run_command("translate", parse_translate(["--run", "here", *map(str, words)]))
        files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.it.*")}
        return code, files, capsys.readouterr().err

    code, files, said = run(tmp_path)
    assert (code, files) == (3, {"report.it.docx", "in/page.it.html"})
    assert f"{tmp_path}/bad.docx: [Content_Types].xml is missing in it" in said
    assert "1 of 3 documents could not be translated" in said
    made = (tmp_path / "report.it.docx").read_bytes()
    code, files, said = run(tmp_path / "report.en.docx")
    assert (code, "exists" in said) == (3, True)
    assert (tmp_path / "report.it.docx").read_bytes() == made
    assert run("--input", tmp_path / "report.en.docx", "--output", tmp_path / "x.it.docx")[0] == 0
    assert (tmp_path / "x.it.docx").read_bytes() == made
    code, _, said = run("--input", tmp_path / "report.en.docx", "--output", tmp_path / "report.en.docx")
    assert (code, "would be overwritten" in said) == (3, True)
    code, files, _ = run("--output", tmp_path / "out", tmp_path / "in", tmp_path / "report.en.docx")
    assert (code, files >= {"out/page.it.html", "out/report.it.docx"}) == (0, True)
    assert run(tmp_path / "report.en.docx", "My name is Anna.")[0] == 2
    assert run(tmp_path / "report.en.docx", "--json")[0] == 2
