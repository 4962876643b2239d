"""Test sets of WMT, NIST and IWSLT: text in <seg>, one side a file (.sgm, .xml), or both in one file (.xml of WMT).

They are usually not well-formed XML. Several references are the documents of several systems in a <refset>, or
several <ref> in a document.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dragoman.corpora.formats.files import File, read_text
from dragoman.corpora.formats.language_names import is_named
from dragoman.corpora.formats.units import Say, Units
from dragoman.corpora.references import reference
from dragoman.errors import DataError
from dragoman.settings import DataConfig

SGM = (".sgm", ".sgml", ".xml")
_ELEMENT = re.compile(
    r"<(seg)\b([^>]*)>(.*?)</seg>|<(srcset|refset|tstset|doc|src|ref|hyp)\b([^>]*)>", re.IGNORECASE | re.DOTALL
)
_ATTRIBUTE = re.compile(r"""([\w:]+)\s*=\s*["']([^"']*)["']""")


class _Version(NamedTuple):
    """A source or a reference: which of both, its language and who wrote it."""

    role: str
    language: str
    name: str


def segments(file: File, data: DataConfig) -> Iterator[str]:
    """Yield the segments of a file with one side, each with its other references. Raises DataError."""
    versions = [*_versions(file, data).values()]
    for place in versions[0]:
        yield reference([version.get(place, "") for version in versions])


def read_sgm(files: Sequence[File], data: DataConfig, say: Say) -> Units:
    """Read a file with sources and references. Raises DataError."""
    [file] = files
    versions = _versions(file, data)
    sources = [texts for version, texts in versions.items() if version.role == "src"]
    targets = [
        texts for each, texts in versions.items() if each.role == "ref" and is_named(each.language, data.target_lang)
    ]
    if not targets or (data.source_lang and not sources):
        there = ", ".join(f"{each.role} in {each.language or 'no language'}" for each in versions)
        raise DataError(f"{file} has {there}, but a file of pairs has src and ref in {data.target_lang}.")
    for number, place in enumerate(targets[0], 1):
        source = sources[0].get(place, "") if data.source_lang else ""
        yield number, source, reference([texts.get(place, "") for texts in targets])


def _versions(file: File, data: DataConfig) -> dict[_Version, dict[tuple[str, str], str]]:
    """Return the segments of each version by document and number. Raises DataError if there are none."""
    versions: defaultdict[_Version, dict[tuple[str, str], str]] = defaultdict(dict)
    version, document = _Version("src", "", ""), ""
    for element in _ELEMENT.finditer(read_text(file, data)):
        kind = (element[1] or element[4]).lower()
        values = {key.lower(): value for key, value in _ATTRIBUTE.findall(element[2] or element[5] or "")}
        if kind == "seg":
            if version.role != "hyp":
                place = document, values.get("id") or str(len(versions[version]))
                versions[version][place] = html.unescape(" ".join(element[3].split()))
        elif kind == "doc":
            document = values.get("docid") or values.get("id", "")
            version = version._replace(name=values.get("sysid", "")) if "sysid" in values else version
        else:
            role = {"srcset": "src", "refset": "ref", "tstset": "hyp"}.get(kind, kind)
            language = values.get("lang") or values.get("srclang" if role == "src" else "trglang", "")
            version = _Version(role, language, values.get("translator", ""))
    if not versions:
        raise DataError(f"{file} has no <seg>: is it a test set?")
    return versions
