"""Corpora in every format: pairs come out, or a DataError; damaged as bytes, and inside their archives."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import test_file_shapes as shapes
from dragoman.check import check_corpus
from dragoman.errors import DataError
from dragoman.settings import Config
from fuzz.harness import survive
from fuzz.mutations import CHARACTERS, NUMBERS, WORDS, damaged, forged_zip, spliced

pytestmark = pytest.mark.slow
MARKS = (
    *"\t,;\"'\n\r\0|<>&=/:[]{}#\\", '""', "\r\n", "\n\n", '","', "\ufeff", "null", "NaN", "1e999", "[" * 2000,
    '{"a":' * 2000, "00:00:01,000 --> 00:00:02,000", "99:99:99.999", "-1:00", " --> ", "<i>", "{\\an8}", "Dialogue: ",
    "[Events]", "Format: ", "WEBVTT", "NOTE", "STYLE", "msgid", 'msgstr ""', "msgid_plural", "msgstr[1]", "msgstr[99]",
    "#~ ", "#| ", "Plural-Forms: ", "nplurals=99999999999;", "plural=n%0;", "&a;", "<!DOCTYPE x [", "<!ENTITY a '",
    "<![CDATA[", "]]>", "<tu>", "</tu>", "<tuv xml:lang='it'>", "<seg>", "</seg>", "<source>", "<target>", "</target>",
    "xml:lang='en'", "<c r='XFD1048576'>", "t='s'", "<v>9999999999</v>", "<v>-1</v>",
    "table:number-columns-repeated='2000000000'", "table:number-rows-repeated='2000000000'", "text:c='2000000000'",
    "<mergeCell ref='A1:XFD1048576'/>", *map(str, NUMBERS),
)  # fmt: skip


def catalogue(folder: Path) -> Path:
    (folder / "app.po").write_text(shapes.PO, encoding="utf-8")
    return folder / "app.po"


def of(*names: str) -> tuple[shapes.Write, ...]:
    return tuple(partial(shapes.made, name) for name in names)


def packed(name: str, suffix: str) -> shapes.Write:
    return lambda folder: shapes.packed(shapes.made(name, folder), suffix)


# Each makes the files of a corpus in a folder and returns what data.train names.
WRITERS: dict[str, tuple[shapes.Write, ...]] = {
    "tables": of("roles", "names", "Excel in Europe", "UTF-16", "tatoeba.org"),
    "text": of("text with tabs", "parallel text", "three letters"),
    "records": of("JSON", "Parquet"),
    "workbooks": of("Excel with names and notes", "LibreOffice"),
    "memories": (*of("OmegaT", "codes and more languages"), shapes.xliff_2),
    "catalogues": (catalogue,),
    "subtitles": (shapes.film, shapes.film_of_the_web, shapes.styled_film),
    "packed": (
        packed("text with tabs", ".gz"),
        packed("Excel in Europe", ".zst"),
        packed("text of Excel", ".bz2"),
        packed("JSON", ".xz"),
        packed("Excel workbook", ".zst"),
    ),
    "archives": of("OPUS", "manythings.org, as it is", "a folder in a .zip"),
}
INPUTS = {"tables": 1500, "text": 1500, "memories": 1000, "workbooks": 300}
PACKING: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (gzip.decompress, gzip.compress),
    ".bz2": (bz2.decompress, bz2.compress),
    ".xz": (lzma.decompress, lzma.compress),
}


def mutated(path: Path, data: bytes, draw: random.Random) -> bytes:
    """A damaged file: as bytes, as text, or what is packed in it, packed again."""
    if draw.random() < 0.3:
        return damaged(data, draw)
    if path.suffix in PACKING:
        unpack, pack = PACKING[path.suffix]
        return pack(mutated(path.with_suffix(""), unpack(data), draw))
    if data[:2] == b"PK":
        return forged_zip(data, draw, lambda name, content: mutated(Path(name), content, draw))
    for encoding in ("utf-16", "utf-8"):
        try:
            return spliced(data.decode(encoding), draw, [*MARKS, *WORDS, *CHARACTERS]).encode(encoding, "surrogatepass")
        except UnicodeDecodeError:
            continue
    return damaged(data, draw)


@pytest.fixture(params=WRITERS)
def corpora(request: pytest.FixtureRequest, tmp_path: Path) -> list[tuple[Path, Path]]:
    """Folders with the files of a corpus each, and what data.train names there."""
    made = []
    for number, write in enumerate(WRITERS[request.param]):
        folder = tmp_path / "whole" / str(number)
        folder.mkdir(parents=True)
        made.append((folder, write(folder)))
    return made


@pytest.mark.filterwarnings("ignore::UserWarning")  # zipfile's, of a name that is there twice
def test_corpora(corpora: list[tuple[Path, Path]], request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Guards the readers of all formats: what they read is text, and what they refuse is refused in one line."""
    place = tmp_path / "mutated"

    def attempt(draw: random.Random) -> None:
        folder, path = draw.choice(corpora)
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place)
        file = draw.choice(sorted(place.iterdir()))
        file.write_bytes(mutated(file, file.read_bytes(), draw))
        changes: dict[str, Any] = {"on_bad_line": draw.choice(["error", "skip"])}
        if draw.random() < 0.1:
            changes["source_lang"] = None
        pairs = shapes.read(place / path.relative_to(folder), **changes)
        if changes["on_bad_line"] == "error":
            "".join(side for pair in pairs for side in pair).encode()

    name = request.node.callspec.params["corpora"]
    worked, refused = survive(f"corpora {name}", INPUTS.get(name, 500), attempt, DataError)
    assert min(worked, refused) > 20


def test_checked_corpora(tmp_path: Path) -> None:
    """Guards `dragoman check`, which counts what is wrong with a corpus where training would stop."""
    from conftest import tiny_pairs, write_tsv

    whole = write_tsv(tmp_path / "whole.tsv", tiny_pairs(40)).read_bytes()

    def attempt(draw: random.Random) -> None:
        file = tmp_path / "pairs.tsv"
        file.write_bytes(mutated(file, whole, draw))
        check_corpus(Config(data=shapes.settings(file)))

    survive("checked corpora", 20, attempt)
