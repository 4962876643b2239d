"""The files that people have: each is read to exactly its pairs, or refused in one line with the remedy.

Files are written by the libraries and in the forms that people use: spreadsheets, Anki, Tatoeba, OPUS, OmegaT.
"""

from __future__ import annotations

import bz2
import csv
import datetime
import gzip
import importlib.metadata
import io
import json
import lzma
import re
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from conftest import ROOT, in_child, read_splits, tiny_config, tiny_pairs
from dragoman.__main__ import run as run_command
from dragoman.corpora.formats import by_suffix, files, language_names, records
from dragoman.corpora.formats.units import OR_SKIP
from dragoman.corpora.readers import say_choices
from dragoman.corpora.sources import find_source, find_sources
from dragoman.dataset import Pair
from dragoman.errors import ConfigError, DataError
from dragoman.settings import DataConfig
from whole_corpus import read_corpus

PAIRS = [
    ("Hello, world.", "Ciao, mondo."),
    ('He said "hi"; then he left.', "Disse «ciao»; poi uscì."),
    ("Where is the station?", "Dov'è la stazione?"),
    ("It costs 5 €.", "Costa 5 €."),
]
NAMED = [("English", "Italian"), *PAIRS]
Write = Callable[[Path], Path]
Rows = Sequence[Sequence[str]]


def settings(path: object, **changes: object) -> DataConfig:
    return DataConfig(**{"source_lang": "en", "target_lang": "it", "train": str(path)} | changes)  # pyright: ignore


def read(path: object, **changes: object) -> list[Pair]:
    data = settings(path, **changes)
    return list(read_splits(find_source("train", data, data.train), data)["train"])


def choices(path: object, **changes: object) -> str:
    """The messages about reading a file, without its folder."""
    said: list[str] = []
    data = settings(path, **changes)
    say_choices(find_sources(data), data, said.append)
    return "\n".join(said).replace(f"{Path(str(path)).parent}/", "")


def refusal(path: object, **changes: object) -> str:
    with pytest.raises(DataError) as error:
        read(path, **changes)
    message = str(error.value)
    assert "\n" not in message
    return message.replace(f"{Path(str(path)).parent}/", "")


# --- Writing files ------------------------------------------------------------------------------------------------


def as_table(rows: Rows, delimiter: str = ",", encoding: str = "utf-8", head: str = "") -> bytes:
    """A table as Excel writes it: quotes where needed, CRLF at the ends of rows."""
    made = io.StringIO(newline="")
    made.write(head)
    csv.writer(made, delimiter=delimiter).writerows(rows)
    return made.getvalue().encode(encoding)


def as_text(rows: Rows) -> bytes:
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def table(path: Path, rows: Rows, *form: str) -> Path:
    path.write_bytes(as_table(rows, *form))
    return path


def text(path: Path, rows: Rows) -> Path:
    path.write_bytes(as_text(rows))
    return path


def excel_of_europe(folder: Path) -> Path:
    return table(folder / "pairs.csv", PAIRS, ";", "utf-8-sig")


def xlsx(path: Path, *sheets: Sequence[Sequence[object]]) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets, 1):
        sheet = book.create_sheet(f"Sheet{number}")
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def excel(folder: Path) -> Path:
    return xlsx(folder / "pairs.xlsx", PAIRS)


def ods(path: Path, rows: Sequence[Sequence[str]], repeated: int = 1) -> Path:
    opendocument = pytest.importorskip("odf.opendocument")
    from odf.table import Table, TableCell, TableRow
    from odf.text import P, S

    book, sheet = opendocument.OpenDocumentSpreadsheet(), Table(name="Foglio1")
    for cells in rows:
        row = TableRow(numberrowsrepeated=repeated)
        for cell in cells:
            element, paragraph = TableCell(valuetype="string"), P(text=cell.partition(" ")[0])
            if " " in cell:
                paragraph.addElement(S())  # LibreOffice writes repeated spaces so
                paragraph.addText(cell.partition(" ")[2])
            element.addElement(paragraph)
            row.addElement(element)
        sheet.addElement(row)
    rest = TableRow(numberrowsrepeated=1_048_000)
    rest.addElement(TableCell(numbercolumnsrepeated=1024))
    sheet.addElement(rest)
    book.spreadsheet.addElement(sheet)
    book.save(str(path))
    return path


def as_lines(names: tuple[str, str] = ("en", "it")) -> bytes:
    return "".join(json.dumps(dict(zip(names, pair, strict=True))) + "\n" for pair in PAIRS).encode()


def parquet(path: Path) -> None:
    rows = [{"id": i, "Italian": b, "English": a} for i, (a, b) in enumerate(PAIRS)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def tmx_of_omegat(folder: Path, one: str = "EN-US", two: str = "IT") -> Path:
    units = [
        f'<tu><prop type="x">p</prop><note>n</note><tuv xml:lang="{one}"><seg>{a}</seg></tuv>'
        f'<tuv xml:lang="{two}" changeid="me"><seg>{b}</seg></tuv></tu>'
        for a, b in PAIRS
    ]
    head = f'<header creationtool="OmegaT" segtype="sentence" srclang="{one}" adminlang="EN-US" datatype="plaintext"/>'
    start = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx11.dtd">\n<tmx version="1.1">'
    (folder / "project.tmx").write_text(f"{start}{head}<body>{''.join(units)}</body></tmx>", encoding="utf-8")
    return folder / "project.tmx"


def by_translate_toolkit(code: str, path: Path) -> Path:
    """Run code with `translate.storage` in a process of its own: in this one, `translate` is our translate.py."""
    try:
        importlib.metadata.version("translate-toolkit")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs translate-toolkit")
    start = f"from translate.storage import tmx, xliff\npairs = {PAIRS!r}\npath = {str(path)!r}\n"
    subprocess.run([sys.executable, "-I", "-c", start + code], check=True)
    return path


TMX = """
memory = tmx.tmxfile(sourcelanguage="en", targetlanguage="it")
for a, b in pairs:
    memory.addtranslation(a, "en", b, "it")
memory.savefile(path)
"""
XLIFF_1 = """
store = xliff.xlifffile()
store.setsourcelanguage("en-US")
store.settargetlanguage("it-IT")
for a, b in pairs:
    store.addsourceunit(a).target = b
store.savefile(path)
"""


def tmx_with_codes_and_more_languages() -> bytes:
    codes = '<bpt i="1">&lt;b&gt;</bpt>{}<ept i="1">&lt;/b&gt;</ept><ph>&lt;br/&gt;</ph>'
    units = [
        f'<tu><tuv xml:lang="it"><seg>{b}</seg></tuv><tuv xml:lang="fr"><seg>x</seg></tuv>'
        f'<tuv xml:lang="en"><seg>{codes.format("<hi>" + a[:5] + "</hi>" + a[5:])}</seg></tuv></tu>'
        for a, b in PAIRS
    ]
    units.insert(2, '<tu><tuv xml:lang="fr"><seg>x</seg></tuv><tuv xml:lang="en"><seg>y</seg></tuv></tu>')
    body = f'<tmx version="1.4"><header srclang="it"/><body>{"".join(units)}</body></tmx>'
    return body.encode("utf-16")


XLIFF_2 = """<?xml version="1.0"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="it" trgLang="en">
<file id="f">{}</file></xliff>
"""


def xliff_2(folder: Path) -> Path:
    """A file from Italian to English, with codes, two segments in a unit, and one that is not translated."""
    segments = [
        f'<segment state="final"><source><pc id="1">{b}</pc><ph id="2"/></source><target>{a}</target></segment>'
        for a, b in PAIRS
    ]
    todo = '<unit id="9"><notes><note>n</note></notes><segment state="initial"><source>Sì</source><target>Sì</target>'
    body = (
        f'<unit id="1">{"".join(segments[:2])}</unit><unit id="2">{"".join(segments[2:])}</unit>{todo}</segment></unit>'
    )
    (folder / "app.xliff").write_text(XLIFF_2.format(body), encoding="utf-8")
    return folder / "app.xliff"


PO = """
msgid ""
msgstr ""
"Language: it\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: file.c:1
msgid "Hello, world."
msgstr "Ciao, mondo."

#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d documento"
msgstr[1] "%d documenti"

#, fuzzy
msgid "Open"
msgstr "Chiudi"

msgctxt "menu"
msgid "A long "
"line"
msgstr "Una riga "
"lunga"

msgid "Later"
msgstr ""

#~ msgid "Old"
#~ msgstr "Vecchio"
"""
OF_PO = [
    ("Hello, world.", "Ciao, mondo."), ("%d file", "%d documento"), ("%d files", "%d documenti"),
    ("A long line", "Una riga lunga"), ("Later", ""),
]  # fmt: skip


def subtitles(path: Path, cues: Sequence[tuple[float, float, str]], end: str = "\r\n") -> Path:
    def stamp(seconds: float) -> str:
        return f"00:00:{seconds:06.3f}".replace(".", ",")

    made = "".join(f"{i}\n{stamp(a)} --> {stamp(b)}\n{each}\n\n" for i, (a, b, each) in enumerate(cues, 1))
    path.write_bytes(made.replace("\n", end).encode("utf-8-sig"))
    return path


def web_subtitles(path: Path, cues: Sequence[tuple[float, float, str]]) -> Path:
    """WebVTT, as on the web: with comments, styles, names of cues, voices and character references."""
    made = "WEBVTT\n\nSTYLE\n::cue { color: lime }\n\n"
    for number, (start, end, each) in enumerate(cues):
        line = each.replace("{\\an8}", "").replace("-", "&#45;")
        made += f"NOTE a comment\nof two lines\n\ncue {number}\n"
        made += f"00:{start:06.3f} --> 00:00:{end:06.3f} align:start\n<v Ann>{line}</v>\n\n"
    path.write_text(made, encoding="utf-8")
    return path


def styled_subtitles(path: Path, cues: Sequence[tuple[float, float, str]]) -> Path:
    """Aegisub's .ass, or the older .ssa: with codes, a comment and a drawing, and not in order of time."""
    pysubs2 = pytest.importorskip("pysubs2")
    made = pysubs2.SSAFile()
    for start, end, each in reversed(cues):
        line = re.sub("<(/?)i>", lambda tag: "{\\i0}" if tag[1] else "{\\i1}", each).replace("\n", "\\N")
        made.append(pysubs2.SSAEvent(round(start * 1000), round(end * 1000), line.replace(" ", "\\h", 1)))
    made.append(pysubs2.SSAEvent(1000, 3000, "a note", type="Comment"))
    made.append(pysubs2.SSAEvent(1000, 3000, "{\\an7\\p1}m 0 0 l 100 0 100 100{\\p0}"))
    made.save(str(path))
    return path


FILM_EN = [(1, 3, "<i>Hello,</i>\nworld."), (4, 8, "A long one."), (9, 11, "Half."), (12, 14, "{\\an8}Bye.")]
FILM_IT = [(1.2, 3.1, "Ciao, mondo."), (4, 6, "Una"), (6, 8, "lunga."), (10, 13, "Mezza."), (13.1, 14, "- Ciao.")]
FILM_EN += [(20, 22, "- Who?\n- Me."), (30, 31, "Yes."), (40, 42, "No.")]
FILM_IT += [(20.2, 22.1, "- Chi?\n- Io."), (25, 26, "(musica)"), (30, 31.5, "Sì."), (40.1, 42, "No.")]


def film(folder: Path) -> Path:
    """Cues that match, one that is split in one language, one that overlaps by half, and one without a partner."""
    subtitles(folder / "film.en.srt", FILM_EN)
    subtitles(folder / "film.it.srt", FILM_IT, end="\n")
    return folder / "film"


def film_of_the_web(folder: Path) -> Path:
    web_subtitles(folder / "film.en.vtt", FILM_EN)
    web_subtitles(folder / "film.it.vtt", FILM_IT)
    return folder / "film"


def styled_film(folder: Path) -> Path:
    styled_subtitles(folder / "film.en.ass", FILM_EN)
    styled_subtitles(folder / "film.it.ass", FILM_IT)
    return folder / "film"


OF_FILM = [("Hello, world.", "Ciao, mondo."), ("- Who? - Me.", "- Chi? - Io."), ("Yes.", "Sì."), ("No.", "No.")]


PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def packed(file: Path, suffix: str) -> Path:
    pack = PACK.get(suffix) or pytest.importorskip("backports.zstd").compress
    path = Path(f"{file}{suffix}")
    path.write_bytes(pack(file.read_bytes()))
    file.unlink()
    return path


def parallel(folder: Path, name: str, languages: tuple[str, str] = ("en", "it"), ending: str = "") -> list[Path]:
    made = [folder / f"{name}.{language}{ending}" for language in languages]
    for path, side in zip(made, zip(*PAIRS, strict=True), strict=True):
        path.write_text("\n".join(side) + "\n", encoding="utf-8")
    return made


def zipped(path: Path, members: Sequence[Path], **others: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            archive.write(member, member.name)
        for name, content in others.items():
            archive.writestr(name, content)
    return path


def moses_of_opus(folder: Path) -> Path:
    members = parallel(folder, "Books.en-it")
    return zipped(folder / "en-it.txt.zip", members, README="of OPUS", LICENSE="free", **{"Books.en-it.xml": "<a/>"})


def zip_with_a_folder(path: Path) -> None:
    zipped(path, [], **{"corpus/pairs.tsv": as_text(PAIRS).decode(), "__MACOSX/x": "?"})


# --- Read exactly -------------------------------------------------------------------------------------------------

GUESS = (
    "of {} columns, column {} is en (Hello, world.), column {} is it (Ciao, mondo.); set data.columns if that is wrong"
)
BY_NAME = "column {} ({}) is en, column {} ({}) is it, by its name"
CREDIT = "CC-BY 2.0 (France) Attribution: tatoeba.org #1 (CM) & #2 (Guybrush88)"
OF_MANY_THINGS = [(*pair, CREDIT) for pair in PAIRS]
SWAPPED = [(b, a) for a, b in PAIRS]
ANKI = [(f"<b>{a}</b>".replace('"', "&quot;"), f"{b}<br>[sound:a.mp3]", "travel lesson1") for a, b in PAIRS]
NOTES = [(f"Jx{i}$8d!", "Basic", "Italian::A1", a, b, "") for i, (a, b) in enumerate(PAIRS)]
NOTES_HEAD = "#separator:Semicolon\n#html:false\n#guid column:1\n#notetype column:2\n#deck column:3\n#tags column:6\n"
CRAWLED = [(f"http://a.org/{i}", f"http://a.it/{i}", a, b, f"0.{i}7") for i, (a, b) in enumerate(PAIRS)]
RECORDS = [{"en": a, "it": b} for a, b in PAIRS]
JSON = {  # as scripts for Hugging Face models take them
    "lines": "\n".join(map(json.dumps, RECORDS)),
    "lines of translations": "\n".join(json.dumps({"id": 1, "translation": row}) for row in RECORDS),
    "array": json.dumps(RECORDS),
    "array on lines": json.dumps(RECORDS, indent=2),
    "data": json.dumps({"version": 1, "data": [{"translation": row} for row in RECORDS]}),
    "translation": json.dumps({"translation": RECORDS}),
}
SHEETS = [], [(), ("n", *NAMED[0], "note"), *((i, a, b, None) for i, (a, b) in enumerate(PAIRS)), ()], [("other",)]

Content = bytes | Callable[[Path], object]
# A file, its content, and what is said about the choice that was made; nothing if it is obvious.
SHAPES: dict[str, tuple[str, Content, str]] = {
    "Excel in Europe": ("pairs.csv", as_table(PAIRS, ";", "utf-8-sig"), ""),
    "Excel in America": ("pairs.csv", as_table(PAIRS, ",", "utf-8-sig"), ""),
    "names": ("pairs.csv", as_table(NAMED), BY_NAME.format(1, "English", 2, "Italian")),
    "Italian names": (
        "pairs.csv",
        as_table([("Italiano", "Inglese"), *SWAPPED], ";"),
        BY_NAME.format(2, "Inglese", 1, "Italiano"),
    ),
    "long names": (
        "pairs.csv",
        as_table([("English words/sentences", "Italian words/sentences"), *PAIRS]),
        BY_NAME.format(1, "English words/sentences", 2, "Italian words/sentences"),
    ),
    "codes in capitals": (
        "pairs.csv",
        as_table([("ID", "IT-IT", "EN-GB"), *(("7", b, a) for a, b in PAIRS)]),
        BY_NAME.format(3, "EN-GB", 2, "IT-IT"),
    ),
    "tabs in a .csv": ("pairs.csv", as_table(PAIRS, "\t"), ""),
    "a line of Excel": ("pairs.csv", as_table(PAIRS, ";", head="sep=;\r\n"), ""),
    "UTF-16": ("pairs.csv", as_table(PAIRS, ";", "utf-16"), ""),
    "empty columns": ("pairs.csv", as_table([(*pair, "", "") for pair in PAIRS], ";"), GUESS.format(4, 1, 2)),
    "Unicode text of Excel": ("pairs.txt", as_table(PAIRS, "\t", "utf-16"), ""),
    "text of Excel": ("pairs.txt", as_table(PAIRS, "\t"), ""),
    "text with tabs": ("pairs.txt", as_text(PAIRS), ""),
    "roles": ("pairs.tsv", as_text([("id", "src", "tgt"), *(("7", *pair) for pair in PAIRS)]), ""),
    "Anki": (
        "deck.txt",
        as_table(ANKI, "\t", head="#separator:tab\n#html:true\n#tags column:3\n"),
        GUESS.format(3, 1, 2),
    ),
    "Anki with identifiers": ("deck.txt", as_table(NOTES, ";", head=NOTES_HEAD), GUESS.format(6, 4, 5)),
    "manythings.org": ("ita.txt", as_text(OF_MANY_THINGS), GUESS.format(3, 1, 2)),
    "tatoeba.org": (
        "Sentence pairs.tsv",
        as_text([(f"12{i}", a, f"34{i}", b) for i, (a, b) in enumerate(PAIRS)]),
        GUESS.format(4, 2, 4),
    ),
    "crawled": ("crawl.en-it.tsv", as_text(CRAWLED), GUESS.format(5, 3, 4)),
    "named after the other direction": ("news.it-en.tsv", as_text(SWAPPED), GUESS.format(2, 2, 1)),
    "Excel workbook": ("pairs.xlsx", lambda path: xlsx(path, PAIRS), ""),
    "Excel with names and notes": (
        "pairs.xlsx",
        lambda path: xlsx(path, *SHEETS),
        "the sheet Sheet2 is read, and not Sheet1, Sheet3\npairs.xlsx: " + BY_NAME.format(2, "English", 3, "Italian"),
    ),
    "LibreOffice": ("pairs.ods", lambda path: ods(path, NAMED), BY_NAME.format(1, "English", 2, "Italian")),
    "JSON": ("pairs.jsonl", as_lines(("english", "italian")), ""),
    **{f"JSON, {form}": ("pairs.json", content.encode(), "") for form, content in JSON.items()},
    "Parquet": ("pairs.parquet", parquet, ""),
    "OmegaT": (
        "project.tmx",
        lambda path: tmx_of_omegat(path.parent),
        "en-US is en, it is it, as the file says",
    ),
    "translate-toolkit": ("memory.tmx", lambda path: by_translate_toolkit(TMX, path), ""),
    "codes and more languages": ("memory.tmx", tmx_with_codes_and_more_languages(), ""),
    "XLIFF 1": (
        "app.xlf",
        lambda path: by_translate_toolkit(XLIFF_1, path),
        "en-US is en, it-IT is it, as the file says",
    ),
    "a folder in a .zip": ("mine.zip", zip_with_a_folder, ""),
    # Its name says that Italian comes first, though English does.
    "manythings.org, as it is": (
        "ita-eng.zip",
        lambda path: zipped(
            path, [], **{"ita.txt": as_text([(*p, CREDIT) for p in PAIRS]).decode(), "_about.txt": "x"}
        ),
        f"/{GUESS.format(3, 1, 2)}",
    ),
    "OPUS": ("en-it.txt.zip", lambda path: moses_of_opus(path.parent), ""),
    "parallel text": ("train", lambda path: parallel(path.parent, "train", ending=".txt"), ""),
    "three letters": ("train", lambda path: parallel(path.parent, "train", ("eng", "ita")), ""),
    "words": ("train", lambda path: parallel(path.parent, "train", ("English", "Italiano"), ".txt"), ""),
}


def made(shape: str, folder: Path) -> Path:
    """Write a file of SHAPES, and return what data.train names."""
    name, content, _ = SHAPES[shape]
    (folder / name).write_bytes(content) if isinstance(content, bytes) else content(folder / name)
    return folder / name


@pytest.mark.parametrize("shape", SHAPES)
def test_shape_is_read_exactly(shape: str, tmp_path: Path) -> None:
    """Guards against common files that cannot be read, a wrong column, and a silent choice."""
    path = made(shape, tmp_path)
    assert [tuple(" ".join(side.split()) for side in pair) for pair in read(path)] == PAIRS
    name, _, said = SHAPES[shape]
    assert choices(path).replace("zip/ita.txt: ", "zip: /") == (said and f"{name}: {said}")


@pytest.mark.parametrize(
    ("shape", "suffix"),
    [
        ("text with tabs", ".gz"), ("Excel in Europe", ".zst"), ("text of Excel", ".bz2"), ("JSON", ".xz"),
        ("translate-toolkit", ".gz"), ("Excel workbook", ".zst"), ("LibreOffice", ".gz"), ("parallel text", ".gz"),
    ],
)  # fmt: skip
def test_shape_is_read_packed(shape: str, suffix: str, tmp_path: Path) -> None:
    path = made(shape, tmp_path)
    for file in [*tmp_path.iterdir()]:
        packed(file, suffix)
    pairs = read(path if shape == "parallel text" else f"{path}{suffix}")
    assert [tuple(" ".join(side.split()) for side in pair) for pair in pairs] == PAIRS


@pytest.mark.parametrize("shape", ["names", "LibreOffice", "OmegaT", "XLIFF 1", "OPUS"])
def test_shape_that_says_its_languages(shape: str, tmp_path: Path) -> None:
    """Guards the other direction, and a language model, which learns one side only."""
    path = made(shape, tmp_path)
    assert read(path, source_lang="it", target_lang="en") == SWAPPED
    assert read(path, source_lang=None) == [("", b) for _, b in PAIRS]


def test_xliff_2(tmp_path: Path) -> None:
    """Guards the direction of the file, segments, codes, and a target that is a copy of its source."""
    path = xliff_2(tmp_path)
    assert read(path) == [*PAIRS, ("", "Sì")]
    assert choices(path) == ""


@pytest.mark.parametrize("source", ["en", "it"])
def test_po(source: str, tmp_path: Path) -> None:
    """Guards plurals, and against translations that a program guessed; either language may be the source."""
    (tmp_path / "app.po").write_text(PO, encoding="utf-8")
    target = "it" if source == "en" else "en"
    expected = OF_PO if source == "en" else [(b, a) for a, b in OF_PO]
    assert read(tmp_path / "app.po", source_lang=source, target_lang=target) == expected
    said = choices(tmp_path / "app.po", source_lang=source, target_lang=target)
    assert said == "app.po: 1 fuzzy and 1 obsolete messages are left out"


def test_po_with_three_plurals(tmp_path: Path) -> None:
    """Guards languages in which the form for one is not the first, or which have several for more."""
    rule = "nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2);"
    po = PO.replace("nplurals=2; plural=(n != 1);", rule).replace(
        'msgstr[1] "%d documenti"', 'msgstr[1] "uno"\nmsgstr[2] "tanti"'
    )
    (tmp_path / "app.po").write_text(po, encoding="utf-8")
    assert read(tmp_path / "app.po")[1:4] == [("%d files", "%d documento"), ("%d file", "uno"), ("%d files", "tanti")]


def test_subtitles(tmp_path: Path) -> None:
    """Guards against pairs of cues that merely follow each other, and against tags in training text."""
    place = film(tmp_path)
    assert read(place) == OF_FILM
    assert choices(place) == "film.en.srt and film.it.srt: 4 of 7 and 9 cues are on the screen together"


@pytest.mark.parametrize(
    ("one", "two"), [("eng.vtt", "ita.vtt"), ("en.ass", "it.ass"), ("English.ssa", "it.srt"), ("en.srt", "it.vtt.gz")]
)
def test_subtitles_in_other_formats(one: str, two: str, tmp_path: Path) -> None:
    """Guards against comments, names of cues, codes and drawings in training text: the pairs are those of the .srt."""
    writers = {"srt": subtitles, "vtt": web_subtitles, "ass": styled_subtitles, "ssa": styled_subtitles}
    for name, cues in ((one, FILM_EN), (two, FILM_IT)):
        path = tmp_path / f"film.{name.removesuffix('.gz')}"
        writers[path.suffix[1:]](path, cues)
        if name.endswith(".gz"):
            packed(path, ".gz")
    assert read(tmp_path / "film") == OF_FILM
    assert choices(tmp_path / "film") == f"film.{one} and film.{two}: 4 of 7 and 9 cues are on the screen together"
    texts = [text for _, text in read(tmp_path / f"film.{two}", source_lang=None)]
    assert texts == [" ".join(text.split()) for _, _, text in FILM_IT]


@pytest.mark.parametrize("form", ["srt", "vtt", "ass"])
def test_broken_cue_is_skipped_alone(form: str, tmp_path: Path) -> None:
    """Guards data.on_bad_line for subtitles: the cues after a broken one are kept."""
    write = {"srt": film, "vtt": film_of_the_web, "ass": styled_film}[form]
    place, path = write(tmp_path), tmp_path / f"film.en.{form}"
    path.write_bytes(re.sub(rb"[0:]+:30[.,]0+", b"half a minute", path.read_bytes()))
    assert refusal(place).startswith(f"film.en.{form}:")
    [broken, *pairs] = read(place, on_bad_line="skip")
    assert pairs == [pair for pair in OF_FILM if pair[0] != "Yes."]
    assert "Yes." in broken[0]
    assert f"film.en.{form}:" in broken[1]


# --- Refused in one line ------------------------------------------------------------------------------------------

SPANISH = [("Hola.", "Hello."), ("¿Dónde está?", "Where is it?")]
ADD = "but data.source_lang and data.target_lang are en and it: add --data.source_lang es --data.target_lang en"
FROM_EN = ADD[:-2].replace("es", "en")


def spanish_by_its_columns(folder: Path) -> Path:
    return table(folder / "pairs.csv", [("Spanish", "English"), *SPANISH])


def four_texts(folder: Path) -> Path:
    return text(folder / "pairs.tsv", [("Hello.", "Ciao.", "Salut.", "Hallo."), ("Yes.", "Sì.", "Oui.", "Ja.")])


def german_catalogue(folder: Path) -> Path:
    (folder / "app.po").write_text(PO.replace("Language: it", "Language: de"), encoding="utf-8")
    return folder / "app.po"


def german_xliff(folder: Path) -> Path:
    (folder / "app.xliff").write_text(XLIFF_2.format("").replace('"it"', '"de"'), encoding="utf-8")
    return folder / "app.xliff"


def short_row(folder: Path) -> Path:
    return table(folder / "pairs.csv", [*PAIRS, ("only one",), *PAIRS], ";")


def open_quote(folder: Path) -> Path:
    path = table(folder / "pairs.csv", PAIRS)
    path.write_bytes(path.read_bytes() + b'"open,aperto\nshut,chiuso\n')
    return path


def other_version_of_a_film(folder: Path) -> Path:
    subtitles(folder / "film.en.srt", [(i, i + 1, f"{i}") for i in range(1, 20, 2)])
    subtitles(folder / "film.it.srt", [(i + 0.8, i + 1.8, f"{i}") for i in range(1, 20, 2)])
    return folder / "film"


def subtitles_with_a_time_in_words(folder: Path) -> Path:
    film(folder)
    path = folder / "film.en.srt"
    path.write_bytes(path.read_bytes().replace(b"00:00:09,000 -->", b"nine seconds -->"))
    return folder / "film"


def broken_web_subtitles(folder: Path) -> Path:
    place, path = film_of_the_web(folder), folder / "film.en.vtt"
    path.write_bytes(path.read_bytes().replace(b"00:09.000 -->", b"00:9 -->"))
    return place


def no_web_subtitles(folder: Path) -> Path:
    place = film(folder)
    for language in ("en", "it"):
        (folder / f"film.{language}.srt").rename(folder / f"film.{language}.vtt")
    return place


def broken_styled_subtitles(folder: Path) -> Path:
    place, path = styled_film(folder), folder / "film.en.ass"
    path.write_bytes(path.read_bytes().replace(b"0:00:09.00,", b"nine,"))
    return place


def broken_catalogue(folder: Path) -> Path:
    (folder / "app.po").write_text(PO.replace('msgstr "Chiudi"', 'msgstr "Chiudi'), encoding="utf-8")
    return folder / "app.po"


def no_workbook(folder: Path) -> Path:
    (folder / "pairs.xlsx").write_bytes(b"\xd0\xcf\x11\xe0 an old or protected workbook")
    return folder / "pairs.xlsx"


def cut_off(path: Path, at: int) -> Path:
    path.write_bytes(path.read_bytes()[:at])
    return path


def long_table(folder: Path) -> Path:
    return text(folder / "pairs.tsv", [(f"{number:x}", "x") for number in range(5000)])


def ods_with_a_changed_byte(folder: Path) -> Path:
    path = ods(folder / "pairs.ods", NAMED)
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("content.xml")
    data = bytearray(path.read_bytes())
    data[member.header_offset + 30 + len("content.xml") + member.compress_size // 2] ^= 0x80
    path.write_bytes(data)
    return path


NO_CUE = "expected two times and a text: fix this line, or remove it."
REFUSED: list[tuple[Write, str]] = [
    (
        lambda folder: table(folder / "pairs.csv", PAIRS, ";", "cp1252"),
        "pairs.csv:2, byte 40: 0xab is not UTF-8 here: fix the line, or convert the file "
        "(from Windows or Excel: iconv -f CP1252 -t UTF-8).",
    ),
    (spanish_by_its_columns, f"pairs.csv:1: the first row names es and en, {ADD}"),
    (
        lambda folder: text(folder / "corpus.es-en.tsv", SPANISH),
        f"corpus.es-en.tsv is in es and en, by its name, {ADD}",
    ),
    (
        lambda folder: text(folder / "spa.txt", [(b, a, CREDIT) for a, b in SPANISH]),
        f"spa.txt is in en and es, by its name, {FROM_EN}es",
    ),
    (
        lambda folder: tmx_of_omegat(folder, "es-ES", "en"),
        f"project.tmx is in es-ES and en, {ADD.replace('lang es', 'lang es-ES')}",
    ),
    (
        lambda folder: zipped(folder / "en-es.txt.zip", parallel(folder, "Books.en-es", ("en", "es"))),
        f"en-es.txt.zip is in en and es, {FROM_EN}es",
    ),
    (
        lambda folder: parallel(folder, "train", ("en", "es"))[0].with_suffix(""),
        f"train is in en and es (train.en, train.es), {FROM_EN}es",
    ),
    (german_catalogue, f"app.po translates into de, {FROM_EN}de"),
    (german_xliff, f"app.xliff is in de and en, {ADD.replace('es', 'de')}"),
    (
        four_texts,
        "pairs.tsv has 4 columns, of which 4 hold sentences: set data.columns to the two to use, as in "
        "--data.columns 1,3; here they are: 1 (Hello.), 2 (Ciao.), 3 (Salut.), 4 (Hallo.).",
    ),
    (
        lambda folder: text(folder / "book.txt", [(b,) for _, b in PAIRS]),
        "book.txt has one column, but pairs need two, with a tab or a comma between them.",
    ),
    (short_row, "pairs.csv:5: 1 column, but the other rows have 2."),
    (
        open_quote,
        "pairs.csv:5: unexpected end of data; write a quote inside a cell twice, and one around the whole cell.",
    ),
    (
        lambda folder: xlsx(folder / "pairs.xlsx", [*PAIRS, (datetime.date(2026, 1, 2), "due gennaio")]),
        "pairs.xlsx, sheet Sheet1, row 5: 2026-01-02 is a number or a date, not text: format the column as text.",
    ),
    (
        other_version_of_a_film,
        "only 0 of 10 cues of film.en.srt and film.it.srt overlap: use subtitles of the same version of the film, or "
        "shift the times of one file.",
    ),
    (subtitles_with_a_time_in_words, f"film.en.srt:11: {NO_CUE}"),
    (broken_web_subtitles, f"film.en.vtt:25: {NO_CUE}"),
    (no_web_subtitles, f"film.en.vtt:2: {NO_CUE}"),
    (broken_styled_subtitles, f"film.en.ass:19: {NO_CUE}"),
    (
        lambda folder: subtitles(folder / "film.en.srt", FILM_EN),
        "film.en.srt is in one language: name what two files have in common, film for film.en.srt and film.it.srt.",
    ),
    (broken_catalogue, 'app.po:20: a line must be a comment, or text in quotes, but this is msgstr "Chiudi'),
    (lambda folder: cut_off(tmx_of_omegat(folder), -30), "project.tmx:3: not well-formed XML: ..."),
    (no_workbook, "pairs.xlsx is not a workbook, or is password-protected: save it again without one."),
    (ods_with_a_changed_byte, "pairs.ods cannot be read as .ods: ..."),
    (
        lambda folder: cut_off(packed(long_table(folder), ".gz"), 5000),
        "pairs.tsv.gz is damaged, or packed in a way that is not known: Compressed file ended before...",
    ),
    (
        lambda folder: cut_off(packed(long_table(folder), ".zst"), 3000),
        "pairs.tsv.zst is damaged, or packed in a way that is not known: Compressed file ended before...",
    ),
    (
        lambda folder: long_table(folder).rename(folder / "pairs.tsv.gz"),
        "pairs.tsv.gz cannot be read: Not a gzipped file...",
    ),
    (
        lambda folder: zipped(folder / "all.zip", [*parallel(folder, "a"), *parallel(folder, "b")], README="x"),
        "all.zip holds several corpora (a.en, a.it, b.en, b.it): unpack it, and name the files to use.",
    ),
    (
        lambda folder: zipped(folder / "all.zip", [], LICENSE="x", **{"letter.doc": "x"}),
        "all.zip holds no corpus (letter.doc): unpack it, and name the files to use.",
    ),
    (
        lambda folder: table(folder / "pairs.csv", [("en-US", "en-GB", "it"), ("color", "colour", "colore")]),
        "en-US and en-GB are both en: name one of them as the language, or, in a table, set data.columns.",
    ),
]


@pytest.mark.parametrize(("write", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_shape_is_refused_with_the_remedy(write: Write, message: str, tmp_path: Path) -> None:
    """Guards against training on a wrong column, language or half a file, and against a bare "cannot read"."""
    said = refusal(write(tmp_path)).replace(f"{tmp_path}/", "").removesuffix(OR_SKIP)
    message = message.removesuffix(".") if said + "." == message else message
    assert said == message or (message.endswith("...") and said.startswith(message[:-3]))


def test_command_ends_with_one_line_and_the_code_of_data(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Guards the whole way from the command: no traceback, no folder left behind, exit code 3."""
    config = tiny_config(tmp_path, data__train=spanish_by_its_columns(tmp_path))
    capfd.readouterr()
    assert in_child(lambda: run_command("train", config)) == 3
    error = capfd.readouterr().err
    assert error.startswith("dragoman: error: ")
    assert "--data.target_lang en" in error
    assert error.count("\n") == 1
    assert not list((tmp_path / "runs").rglob("report.json"))


def test_choice_is_printed_before_training(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Guards against a choice that only the corpus check shows."""
    rows = [(a, b, CREDIT) for a, b in tiny_pairs(200)]
    config = tiny_config(tmp_path, data__train=text(tmp_path / "ita.txt", rows), training__max_steps=2)
    assert in_child(lambda: run_command("train", config)) == 0
    said = capfd.readouterr().out
    assert "ita.txt: of 3 columns, column 1 is en" in said
    assert said.count("of 3 columns") == 1


@pytest.mark.parametrize(
    ("file", "module"),
    [("a.xlsx", "python_calamine"), ("a.tmx", "lxml"), ("a.ods", "python_calamine"), ("a.vtt", "pysubs2")],
)
def test_missing_library_is_named(file: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a ModuleNotFoundError for those who installed no extras."""
    (tmp_path / file).write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    kind = Path(file).suffix
    with pytest.raises(
        ConfigError, match=rf"cannot find {module}: install what reading {kind} files needs with pip install"
    ):
        read(tmp_path / file)


# --- data.columns -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "expected"),
    [("1,3", (0, 2)), ("4, 2", (3, 1)), ("english,german", (0, 3)), (" GERMAN , french ", (3, 2))],
)
@pytest.mark.parametrize("form", ["csv", "xlsx", "jsonl", "parquet"])
def test_columns_are_those_of_the_setting(form: str, columns: str, expected: tuple[int, int], tmp_path: Path) -> None:
    """Guards both ways to name columns, with names in any case; a row of names is not a pair."""
    names = ("english", "italian", "french", "German")
    rows = [("Hello.", "Ciao.", "Salut.", "Hallo."), ("Yes.", "Sì.", "Oui.", "Ja.")]
    path = tmp_path / f"pairs.{form}"
    records = [dict(zip(names, row, strict=True)) for row in rows]
    match form:
        case "csv":
            table(path, [names, *rows])
        case "xlsx":
            xlsx(path, [names, *rows])
        case _ if columns[0].isdecimal():
            pytest.skip("the fields of a record have names")
        case "jsonl":
            path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        case _:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    changes = {"source_lang": "xx", "target_lang": "yy", "columns": columns}
    assert read(path, **changes) == [tuple(row[i] for i in expected) for row in rows]
    assert read(path, **(changes | {"source_lang": None})) == [("", row[expected[1]]) for row in rows]


@pytest.mark.parametrize(
    ("columns", "changes", "message"),
    [
        ("1", {}, "it must name two columns"),
        ("1,1", {}, "it must name two columns"),
        ("1,italian", {}, "it must name two columns"),
        ("1,2,3", {"source_lang": None}, "it must name one column or two"),
        ("a,", {}, "it must name two columns"),
        ("0,1", {}, "numbers from 1"),
        ("1,2", {"directions": "en-it, it-en"}, "set it to null"),
    ],
)
def test_impossible_columns_are_refused(columns: str, changes: dict[str, object], message: str) -> None:
    """Guards against settings that are misread silently."""
    with pytest.raises(ConfigError, match=rf"^data\.columns is .*{message}"):
        settings("a.tsv", columns=columns, **changes)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = four_texts(tmp_path)
    assert refusal(path, columns="1,5") == "data.columns is 1,5, but pairs.tsv has 4 columns."
    said = refusal(path, columns="english,Ciao.")
    assert said == "data.columns names english, but pairs.tsv has Hello., Ciao., Salut., Hallo.."


# --- Names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("en", "en"), ("IT", "it"), ("ita", "it"), ("ger", "de"), ("en_US", "en-US"), ("zh-Hant-TW", "zh-Hant-TW"),
        ("English", "en"), ("inglese", "en"), ("Deutsch", "de"), ("Español", "es"), ("русский", "ru"), ("日本語", "ja"),
        ("Brazilian Portuguese", "pt-BR"), ("text_en", "en"), ("English sentence", "en"), ("source (Italian)", "it"),
        ("He", None), ("No", None), ("it is", None), ("id", "id"), ("text", None), ("", None), ("lui", None),
        ("I speak English", None),
    ],
)  # fmt: skip
def test_language_of_a_name(name: str, language: str | None) -> None:
    """Guards against words taken for languages, which would make the first pair a row of names."""
    assert language_names.language_of(name) == language


@pytest.mark.parametrize(
    ("stem", "pair"),
    [
        ("en-it", ("en", "it")), ("Books.en-it", ("en", "it")), ("wmt_de-en_v2", ("de", "en")),
        ("eng-ita", ("en", "it")),
        ("english_italian", ("en", "it")), ("spanish-english-pairs", ("es", "en")), ("pt-br", None), ("zh-TW", None),
        ("en-en", None), ("my_is", None), ("pairs", None), ("how-to", None), ("train.en", None),
    ],
)  # fmt: skip
def test_languages_of_a_file_name(stem: str, pair: tuple[str, str] | None) -> None:
    """Guards against a name that happens to contain two letters of a language."""
    assert language_names.in_file_name(stem) == pair


@pytest.mark.parametrize("first", [("Italian", "italiano"), ("English", "Words"), ("It", "Esso"), ("no", "no")])
def test_pair_of_a_dictionary_is_no_row_of_names(first: Pair, tmp_path: Path) -> None:
    """Guards the first pair of a list of words."""
    rows = [first, ("cat", "gatto"), ("dog", "cane")]
    assert read(text(tmp_path / "words.tsv", rows)) == rows


def test_file_names_serve_several_directions(tmp_path: Path) -> None:
    """Guards corpora of several directions, whose columns need no names if the files have them."""
    one = text(tmp_path / "a.en-it.tsv", tiny_pairs(60))
    two = text(tmp_path / "b.fr-en.tsv", [(b, a) for a, b in tiny_pairs(60)])
    data = settings(f"{one} + {two}", directions="en-it, en-fr", validation_fraction=0.2, test_fraction=0.0)
    pairs, _, _ = read_corpus(find_sources(data), data)
    found = {pair for each in pairs.values() for pair in each}
    expected = {(f">>en-{to}<< {a}", b) for to in ("it", "fr") for a, b in tiny_pairs(60)}
    assert found == expected


@pytest.mark.parametrize("shape", ["OPUS", "OmegaT", "XLIFF 1", "names", "named after the other direction"])
def test_file_of_one_direction_among_several(shape: str, tmp_path: Path) -> None:
    """Guards files that hold only some of the languages: the others come from other files."""
    french = text(tmp_path / "b.en-fr.tsv", tiny_pairs(60))
    data = settings(f"{made(shape, tmp_path)} + {french}", directions="en-it, en-fr", validation_fraction=0.2)
    pairs, _, _ = read_corpus(find_sources(data), data)
    found = {pair for each in pairs.values() for pair in each if pair[0].startswith(">>en-it")}
    assert found == {(f">>en-it<< {a}", b) for a, b in PAIRS}


# --- Files of strangers -------------------------------------------------------------------------------------------

ENTITIES = {
    "external": '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/hostname">]>',
    "bomb": '<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghx", strict=True))
    + "]>",
}


@pytest.mark.parametrize("kind", ENTITIES)
def test_entities_are_not_expanded(kind: str, tmp_path: Path) -> None:
    """Guards against files of this machine in training text, and a kilobyte that becomes a gigabyte."""
    unit = '<tu><tuv xml:lang="en"><seg>one &x;</seg></tuv><tuv xml:lang="it"><seg>uno</seg></tuv></tu>'
    (tmp_path / "a.tmx").write_text(f"{ENTITIES[kind]}<tmx><body>{unit}</body></tmx>", encoding="utf-8")
    assert refusal(tmp_path / "a.tmx") == f"a.tmx:1: not well-formed XML: Entity 'x' not defined{OR_SKIP}"


def test_entities_of_a_workbook_are_not_expanded(tmp_path: Path) -> None:
    """Guards against a library that parses sheets with other settings than ours."""
    with zipfile.ZipFile(excel(tmp_path)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = "xl/worksheets/sheet1.xml"
    start, cell = (
        ENTITIES["bomb"].replace("tmx", "worksheet").encode(),
        b'<c r="C1" t="inlineStr"><is><t>&x;</t></is></c>',
    )
    members[name] = start + re.sub(rb"(<row [^>]*>)", rb"\1" + cell, members[name], count=1)
    with zipfile.ZipFile(tmp_path / "bomb.xlsx", "w") as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    tracemalloc.start()
    try:
        assert refusal(tmp_path / "bomb.xlsx").endswith("unrecognized entity `&x;`")
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


def test_one_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards memory against a small packed file with one huge line."""
    monkeypatch.setattr(files, "LONGEST_LINE", 2**20)
    path = packed(text(tmp_path / "a.tsv", [("x" * 50_000_000, "y")]), ".gz")
    tracemalloc.start()
    try:
        assert refusal(path) == f"a.tsv.gz:1: this line is longer than 1 MiB: is this a text file{OR_SKIP}"
        assert tracemalloc.get_traced_memory()[1] < 10e6  # of 50 MB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["a.po", "a.srt", "a.vtt", "a.ass"])
def test_file_that_is_read_whole_has_a_limit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards memory against a small packed file of a format that is read at once."""
    monkeypatch.setattr(files, "LONGEST_WHOLE", 2**20)
    path = packed(text(tmp_path / name, [("# x" * 9,)] * 50_000), ".gz")
    assert (
        refusal(path, source_lang=None) == f"{name}.gz is larger than 1 MiB, the most that is read at once: split it."
    )


def test_repeated_cells_fill_no_memory(tmp_path: Path) -> None:
    """Guards against an .ods of a few kilobytes whose row is repeated a thousand million times."""
    path = ods(tmp_path / "a.ods", PAIRS[:1], repeated=1_000_000_000)
    pairs = read_splits(find_source("train", settings(path), str(path)), settings(path))["train"]
    assert next(pairs) == PAIRS[0]
    assert sum(1 for _ in pairs) < 2**20


def test_member_with_a_password_is_refused(tmp_path: Path) -> None:
    """Guards against a traceback of the library."""
    path = made("a folder in a .zip", tmp_path)
    content = bytearray(path.read_bytes())
    for start, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(start) + offset] |= 1  # the flag for encryption
    path.write_bytes(content)
    assert "password required" in refusal(path)


def test_member_outside_the_folder_is_only_a_name(tmp_path: Path) -> None:
    """Guards against a .zip that writes beside itself."""
    path = zipped(tmp_path / "a.zip", [], **{"../../evil.tsv": "one\tuno\n"})
    before = sorted(tmp_path.parent.rglob("*"))
    assert read(path) == [("one", "uno")]
    assert sorted(tmp_path.parent.rglob("*")) == before


# --- Memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "tsv.xz", "csv.zst", "zip", "tmx", "jsonl", "parquet", "hub"])
def test_rows_are_read_lazily(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a format that holds all rows before the first is used."""
    rows = [(f"{number} " + 20 * "word ", f"{number} " + 20 * "parola ") for number in range(20_000)]
    if form == "tmx":
        path = big_memory(tmp_path / "rows.tmx", 20_000)
    elif form in ("jsonl", "hub"):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps({"en": a, "it": b}) + "\n" for a, b in rows), encoding="utf-8")
        path = tmp_path if form == "hub" else path
    elif form == "parquet":
        path = tmp_path / "rows.parquet"
        columns = pyarrow.table([*zip(*rows, strict=True)], ["en", "it"])
        pyarrow.parquet.write_table(columns, path, row_group_size=1000)
        monkeypatch.setattr(records, "ROWS", 1000)
    elif form == "zip":
        path = zipped(tmp_path / "rows.zip", [text(tmp_path / "rows.tsv", rows)])
    else:
        name, _, pack = form.partition(".")
        path = table(tmp_path / f"rows.{name}", rows, "," if name == "csv" else "\t")
        path = packed(path, f".{pack}") if pack else path
    data = settings(path)
    raw = read_splits(find_source("train", data, str(path)), data)["train"]
    next(raw)
    tracemalloc.start()
    try:
        assert sum(1 for _ in raw) == len(rows) - 1
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()


def big_memory(path: Path, count: int) -> Path:
    with path.open("w", encoding="utf-8") as file:
        file.write('<tmx version="1.4"><header srclang="en"/><body>\n')
        for number in range(count):
            tuv = (
                f'<tuv xml:lang="{lang}"><seg>{number} {10 * word}</seg></tuv>'
                for lang, word in (("en", "word "), ("it", "parola "))
            )
            file.write(f"<tu>{''.join(tuv)}</tu>\n")
        file.write("</body></tmx>\n")
    return path


# --- The page of the docs -----------------------------------------------------------------------------------------


def test_examples_of_the_page_hold_the_same_pairs(tmp_path: Path) -> None:
    """Guards the examples of docs/your-data.md, which people copy."""
    page = (ROOT / "docs" / "your-data.md").read_text(encoding="utf-8")
    examples = page.partition("### Examples\n")[2].partition("\n### ")[0]
    found = re.findall(r"^`([\w.]+)`.*?:\n\n```text\n(.*?)^```$", examples, re.DOTALL | re.MULTILINE)
    assert len(found) == examples.count("```text") >= 10
    for name, content in found:
        (tmp_path / name).write_text(content, encoding="utf-8")
    subtitles = tuple(by_suffix.SUBTITLES)
    for name in {name.partition(".")[0] if name.endswith(subtitles) else name for name, _ in found}:
        pairs = [tuple(" ".join(side.split()) for side in pair) for pair in read(tmp_path / name)]
        assert pairs == [("Hello.", "Ciao."), ("Thank you; bye.", "Grazie; ciao.")], name


def test_page_names_every_ending() -> None:
    """Guards the table of formats against one that was added or removed."""
    page = (ROOT / "docs" / "your-data.md").read_text(encoding="utf-8")
    formats = page.partition("## Formats\n")[2].partition("\nSet `data.source_lang`")[0]
    named = {f".{ending}" for ending in re.findall(r"\.(\w+)`", formats)}
    assert {*by_suffix.ENDINGS, *files.PACKED} <= named


def test_page_shows_the_line_about_other_languages(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "your-data.md").read_text(encoding="utf-8")
    assert refusal(spanish_by_its_columns(tmp_path)) in " ".join(page.split())
    assert f"one of {len(language_names.NAMED_IN)} languages" in " ".join(page.split())
