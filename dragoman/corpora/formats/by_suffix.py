"""The table of formats: which reader reads a file, by the end of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dragoman.corpora.formats.archives import members
from dragoman.corpora.formats.delimited import read_delimited
from dragoman.corpora.formats.files import File
from dragoman.corpora.formats.po import read_po
from dragoman.corpora.formats.records import read_json, read_jsonl, read_parquet
from dragoman.corpora.formats.sgm import SGM, read_sgm
from dragoman.corpora.formats.spreadsheets import read_ods, read_xlsx
from dragoman.corpora.formats.subtitles import SUBTITLES, read_subtitles
from dragoman.corpora.formats.text import read_parallel, read_plain
from dragoman.corpora.formats.tmx_xliff import read_tmx, read_xliff
from dragoman.corpora.formats.units import Say, Units
from dragoman.settings import DataConfig


class Format(NamedTuple):
    """How to read a file, and what the positions of its units count."""

    read: Callable[[Sequence[File], DataConfig, Say], Units]
    unit: str


FORMATS = {
    **dict.fromkeys((".tsv", ".csv", ".txt"), Format(read_delimited, "line")),
    ".jsonl": Format(read_jsonl, "line"),
    ".json": Format(read_json, "record"),
    ".parquet": Format(read_parquet, "row"),
    ".xlsx": Format(read_xlsx, "row"),
    ".ods": Format(read_ods, "row"),
    ".tmx": Format(read_tmx, "unit"),
    ".xliff": Format(read_xliff, "unit"),
    ".xlf": Format(read_xliff, "unit"),
    ".po": Format(read_po, "message"),
    **dict.fromkeys(SGM, Format(read_sgm, "segment")),
    **dict.fromkeys(SUBTITLES, Format(read_subtitles, "cue")),
}
PARALLEL, PLAIN = Format(read_parallel, "line"), Format(read_plain, "line")
ZIP = ".zip"
ENDINGS = (*FORMATS, ZIP)
FOUND = tuple(ending for ending in ENDINGS if ending not in SGM)  # of tables that need not be named in full
OF_A_SIDE = ("", ".txt", *SUBTITLES, *SGM)  # endings of a file that holds one side, behind its language


def format_of(paths: Iterable[Path], data: DataConfig, hashes: Mapping[Path, str]) -> tuple[Format, tuple[File, ...]]:
    """Return the format of a corpus and its files, looking into a .zip. Raises DataError.

    Args:
        hashes: the sha256 of files whose content must be this one
    """
    files = tuple(File(path, sha256=hashes.get(path, "")) for path in paths)
    if files[0].suffix == ZIP:
        files = members(files[0], data, FOUND)
    suffix = files[0].suffix
    if all(file.suffix in SUBTITLES for file in files):
        return FORMATS[suffix], files
    if len(files) > 1:
        return PARALLEL, files
    plain = not data.source_lang and suffix == ".txt"
    return (PLAIN if plain else FORMATS.get(suffix, PLAIN)), files
