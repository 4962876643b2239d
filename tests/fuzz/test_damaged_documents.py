"""Documents of files: they are translated, or refused with a DataError; what is written can be read again."""

from __future__ import annotations

import io
import random
import zipfile

import pytest

from dragoman.documents.files import parse_file
from dragoman.errors import DataError
from fuzz.harness import survive
from fuzz.mutations import spliced
from shouting import contents_of
from test_document_texts import ASS, JSON, PO, SRT, VTT, XLIFF, YAML
from test_documents import word_document

pytestmark = pytest.mark.slow

TEXTS = {
    "a.srt": SRT, "a.vtt": VTT, "a.ass": ASS, "a.po": PO, "a.json": JSON, "a.yaml": YAML, "a.xliff": XLIFF,
}  # fmt: skip
PARTS = (
    *"<>&\"'/=!?-[]{}()*_`#|\\~:\n\t ", "\\n", "\\N", "{\\an8}", "<b>", "</b>", "<v A>", "-->", "Dialogue: ", 'msgid "',
    'msgstr ""\n', "00:00:01,000 --> 00:00:02,000", "\\u12", "&a", "*a", "!!x ", "|\n", ">-\n", "<source>", "</target>",
    "<w:r>", "</w:r>", "<w:t>", "</w:t>", "<w:p>", "</w:p>", '<w:fldChar w:fldCharType="begin"/>', "<w:hyperlink>",
    "</w:hyperlink>", "<w:br/>", "<w:sdt>", "<w:instrText>TOC</w:instrText>", "\0", "\ufeff", "\u2028", "名",
)  # fmt: skip


def attempt_with(name: str, content: bytes) -> None:
    """Translate a file to itself, and what comes out again."""
    for _ in range(2):
        document = parse_file(content, name, "it")
        written = document.write(contents_of(document))
        assert isinstance(written, bytes)
        content = written


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    """Guards the parsers that look for the text of a file with patterns of their own."""
    attempt_with(name, TEXTS[name].encode())

    def attempt(draw: random.Random) -> None:
        attempt_with(name, spliced(TEXTS[name], draw, PARTS).encode(errors="surrogatepass"))

    assert sum(survive(f"document {name}", 400, attempt, DataError)) == 400


def test_zipped() -> None:
    """Guards against parts of an office document that lack what others say of them."""
    original = word_document()
    attempt_with("a.docx", original)

    def attempt(draw: random.Random) -> None:
        file = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(original)) as old, zipfile.ZipFile(file, "w") as new:
            parts = ("[Content_Types].xml", "word/document.xml", "word/header1.xml")
            changed = draw.choice(parts)
            for member in old.infolist():
                data = old.read(member)
                if member.filename == changed:
                    data = spliced(data.decode(), draw, PARTS).encode(errors="surrogatepass")
                new.writestr(member, data)
        attempt_with("a.docx", file.getvalue())

    worked, refused = survive("document .docx", 600, attempt, DataError)
    assert worked > 20
    assert refused > 20
