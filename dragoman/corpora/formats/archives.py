"""Which members of a .zip to read: two sides of parallel text, as in the downloads of OPUS, or one table."""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import PurePosixPath

from dragoman.corpora.formats.files import File, damage_refused
from dragoman.corpora.formats.languages import find_all, language_of, other_languages
from dragoman.corpora.formats.units import languages_of
from dragoman.errors import DataError
from dragoman.settings import DataConfig

# Documents beside a corpus, and files that OPUS and macOS add.
BESIDE = frozenset(["readme", "license", "licence", "_about", "copying", "changes", ".ds_store"])


def members(whole: File, data: DataConfig, endings: Collection[str]) -> tuple[File, ...]:
    """Choose one member with one of these endings, or the sides of parallel text. Raises DataError."""
    path = whole.path
    with damage_refused(path), zipfile.ZipFile(path) as archive:
        names = [PurePosixPath(info.filename) for info in archive.infolist() if not info.is_dir()]
    names = [name for name in names if "__MACOSX" not in name.parts and name.stem.lower() not in BESIDE]
    by_stem: dict[str, dict[str, PurePosixPath]] = {}
    for name in names:
        by_stem.setdefault(str(name.with_suffix("")), {})[name.suffix[1:]] = name
    wanted = languages_of(data)
    found = [[sides[each] for each in wanted] for sides in by_stem.values() if {*wanted} <= {*sides}]
    found += [[name] for name in names if name.suffix in endings and name.suffix[1:] not in wanted]
    if len(found) == 1:
        return tuple(replace(whole, member=str(name)) for name in found[0])
    if not found:
        for sides in by_stem.values():
            languages = {ending: language for ending in sides if (language := language_of(ending))}
            if len(languages) > 1:
                near = find_all([*languages.values()], data)
                if near is not None:
                    return tuple(replace(whole, member=str(sides[[*languages][i]])) for i in near)
                there = [*languages.values()]
                raise other_languages(f"{path} is in {' and '.join(there)}", there, data, ordered=False)
    listed = ", ".join(map(str, names[:6])) + (", ..." if len(names) > 6 else "")
    what = "several corpora" if found else "no corpus"
    raise DataError(f"{path} holds {what} ({listed}): unpack it, and name the files to use.")
