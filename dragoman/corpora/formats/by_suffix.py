"""Choose the reader of a file by its suffix; read text and look into .zip archives.

Text has a sentence a line: files that are aligned line by line, or one file in one language. The first file is the
source, the second one the target, and the others are further references. Of a .zip, two sides of parallel text are
read, as in the downloads of OPUS, or one table.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from dragoman.corpora.formats.file_formats import BY_ENDING, CORPORA
from dragoman.corpora.formats.files import File, damage_refused, lines
from dragoman.corpora.formats.language_names import find_all, language_of, other_languages
from dragoman.corpora.formats.sgm import SGM, segments
from dragoman.corpora.formats.subtitles import SUBTITLES
from dragoman.corpora.formats.units import Say, Units, languages_of
from dragoman.corpora.references import reference, references_of
from dragoman.errors import DataError
from dragoman.settings import DataConfig


def read_parallel(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read parallel text. Raises DataError unless all files have as many lines."""
    sides = [segments(file, data) if file.suffix in SGM else lines(file, data) for file in files]
    for number, texts in enumerate(zip_longest(*sides), 1):
        if None in texts:
            counts = [
                number - 1 + (text is not None) + sum(1 for _ in side) for text, side in zip(texts, sides, strict=True)
            ]
            other = next(i for i, count in enumerate(counts) if count != counts[0])
            raise DataError(
                f"{files[0]} has {counts[0]:,} lines and {files[other]} has {counts[other]:,}, but line n of one must "
                "be the translation of line n of the other: find where they diverge."
            )
        if len(texts) == 2:
            yield number, *texts
        else:
            yield number, texts[0], reference([each for text in texts[1:] for each in references_of(text)])


def read_lines(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read plain text."""
    [file] = files
    return ((number, "", line) for number, line in enumerate(lines(file, data), 1))


class Format(NamedTuple):
    """How to read a file, and what the positions of its units count."""

    read: Callable[[Sequence[File], DataConfig, Say], Units]
    unit: str


# Documents beside a corpus, and files that OPUS and macOS add.
NOT_CORPORA = frozenset(["readme", "license", "licence", "_about", "copying", "changes", ".ds_store"])
PARALLEL, PLAIN = Format(read_parallel, "line"), Format(read_lines, "line")
ZIP = ".zip"
ENDINGS = (*CORPORA, ZIP)
FOUND = tuple(ending for ending in ENDINGS if ending not in SGM)  # of tables that need not be named in full
OF_A_SIDE = ("", ".txt", *SUBTITLES, *SGM)  # endings of a file that holds one side, behind its language


def format_of(paths: Iterable[Path], data: DataConfig) -> tuple[Format, tuple[File, ...]]:
    """Return the format of a corpus and its files, looking into a .zip. Raises DataError."""
    files = tuple(map(File, paths))
    if files[0].suffix == ZIP:
        files = _members(files[0].path, data)
    suffix = files[0].suffix
    if len(files) > 1 and not all(file.suffix in SUBTITLES for file in files):
        return PARALLEL, files
    if suffix not in CORPORA or (suffix == ".txt" and not data.source_lang):
        return PLAIN, files
    module, _, function = BY_ENDING[suffix].reader.partition(":")
    return Format(getattr(import_module(f"dragoman.corpora.formats.{module}"), function), BY_ENDING[suffix].unit), files


def _members(path: Path, data: DataConfig) -> tuple[File, ...]:
    """Choose one member that is a table, or the sides of parallel text. Raises DataError."""
    with damage_refused(path), zipfile.ZipFile(path) as archive:
        names = [PurePosixPath(info.filename) for info in archive.infolist() if not info.is_dir()]
    names = [name for name in names if "__MACOSX" not in name.parts and name.stem.lower() not in NOT_CORPORA]
    by_stem: dict[str, dict[str, PurePosixPath]] = {}
    for name in names:
        by_stem.setdefault(str(name.with_suffix("")), {})[name.suffix[1:]] = name
    wanted = languages_of(data)
    corpora = [[name] for name in names if name.suffix in FOUND and name.suffix[1:] not in wanted]
    others: list[str] = []
    for sides in by_stem.values():
        languages = [language_of(ending) or ending for ending in sides]
        if (order := find_all(languages, data)) is not None:
            corpora.append([[*sides.values()][i] for i in order])
        elif sum(language_of(ending) is not None for ending in sides) > 1:
            others = others or languages
    if len(corpora) == 1:
        return tuple(File(path, str(name)) for name in corpora[0])
    if others and not corpora:
        raise other_languages(f"{path} is in {' and '.join(others)}", others, data, ordered=False)
    listed = ", ".join(map(str, names[:6])) + (", ..." if len(names) > 6 else "")
    what = "several corpora" if corpora else "no corpus"
    raise DataError(f"{path} holds {what} ({listed}): unpack it, and name the files to use.")
