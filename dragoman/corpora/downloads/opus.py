"""Corpora of OPUS (opus.nlpl.eu), as opus:Tatoeba-v2023-04-12, or opus:Tatoeba for the latest version.

The index of OPUS is asked for the address of the .zip in the format Moses; the environment variable DRAGOMAN_OPUS_API
names another index. A version that is in the cache needs no network. OPUS publishes no checksums: the .zip has one of
each file in it.
"""

from __future__ import annotations

import difflib
import os
import re
import zipfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlencode

from dragoman import console
from dragoman.corpora.downloads.fetch import CachedCorpus, cache_folder, fetch, get_json
from dragoman.errors import DataError, NetworkError, OtherLanguagesError
from dragoman.settings import DataConfig

API = "https://opus.nlpl.eu/opusapi/"
FILES = "https://object.pouta.csc.fi/OPUS-{corpus}/{version}/moses/{pair}.txt.zip"
LICENCES = ("license", "licence", "copying")
LONGEST_LICENCE = 20_000  # bytes
LISTED = 12  # most names in a message


@dataclass(frozen=True)
class Wanted:
    """A corpus of OPUS that a setting names."""

    setting: str  # such as data.train
    corpus: str
    version: str  # empty: the latest
    pair: tuple[str, str]  # of languages, in the order of OPUS, which is that of the alphabet

    @property
    def name(self) -> str:
        return f"opus:{self.corpus}" + (f"-{self.version}" if self.version else "")

    @property
    def languages(self) -> str:
        return "-".join(self.pair)

    def path(self, version: str) -> Path:
        """Its place in the cache."""
        return cache_folder() / "opus" / self.corpus / version / f"{self.languages}.txt.zip"


def find(setting: str, name: str, data: DataConfig, download: bool) -> CachedCorpus:
    """Return the .zip of a corpus, after downloading it if that is allowed and necessary.

    Args:
        setting: for messages, such as data.train
        name: such as opus:Tatoeba-v2023-04-12

    Raises:
        OtherLanguagesError: the corpus does not have these languages
        DataError: there is no such corpus, no network, or the file is not in the cache and must not be downloaded
    """
    wanted = _parse(setting, name, data)
    version, entry = wanted.version, None
    if not version:
        if not download:
            raise DataError(f"{setting} is {name}, the latest version, which is not looked up again.")
        version, entry = _latest(wanted, _address())
    path = wanted.path(version)
    if not download and not path.exists():
        raise DataError(f"{setting} is {name}, which is not in the cache: there is no {path}.")
    fetch(path, lambda: str((entry or _named(wanted))["url"]), check_zip)
    return CachedCorpus((path,), (path,))


def _parse(setting: str, name: str, data: DataConfig) -> Wanted:
    if not data.source_lang:
        raise DataError(f"{setting} is {name}, but OPUS has pairs of sentences: set data.source_lang, too.")
    matched = re.fullmatch(r"opus:(\w[\w.-]*?)(?:-(v\d[\w.-]*))?", name)
    if not matched:
        raise DataError(f"{setting} is {name}, but a corpus of OPUS is written as opus:Tatoeba-v2023-04-12.")
    one, two = sorted((data.source_lang, data.target_lang))
    for language in (one, two):
        if not re.fullmatch(r"[\w-]+", language):
            raise DataError(f"{setting} is {name}, but {language} is not a language code.")
    return Wanted(setting, matched[1], matched[2] or "", (one, two))


def _index(**query: str) -> Any:
    """Ask the index of OPUS. Raises DataError; it is a NetworkError if there is no answer."""
    return get_json(f"{_address()}?{urlencode(query)}")


def _address() -> str:
    return os.environ.get("DRAGOMAN_OPUS_API") or API


def _entries(wanted: Wanted) -> dict[str, dict[str, Any]]:
    """Return what the index says about each version of a corpus. Raises DataError, also if there is none."""
    one, two = wanted.pair
    found = _listed(_index(corpus=wanted.corpus, source=one, target=two, preprocessing="moses"), "corpora")
    versions: dict[str, dict[str, Any]] = {}
    for entry in found:
        # The versions become names of folders. Some corpora are listed twice, under an older address, too.
        if re.fullmatch(r"\w[\w.-]*", str(entry.get("version"))) and "url" in entry:
            old = versions.get(str(entry["version"]), {"url": ""})
            if f"OPUS-{wanted.corpus}/" not in str(old["url"]):
                versions[str(entry["version"])] = entry
    if not versions:
        raise _unknown(wanted)
    return versions


def _listed(answer: Any, key: str) -> list[Any]:
    values = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(values, list) or not all(isinstance(each, str | dict) for each in values):
        raise DataError(f"the index of OPUS does not answer as usual: there is no list of {key} in its answer.")
    return values


def _named(wanted: Wanted) -> dict[str, Any]:
    """Return the entry of the version that is wanted. Raises DataError."""
    try:
        versions = _entries(wanted)
    except NetworkError as error:
        url = FILES.format(corpus=wanted.corpus, version=wanted.version, pair=wanted.languages)
        raise NetworkError(
            f"{wanted.setting} is {wanted.name}, but {error} Try again with a network, or download {url} on another "
            f"machine and put it at {wanted.path(wanted.version)}"
        ) from error
    if wanted.version not in versions:
        raise DataError(
            f"{wanted.setting} is {wanted.name}, but the versions of {wanted.corpus} that OPUS has for "
            f"{wanted.languages} are {_some(versions, wanted.version)}."
        )
    return versions[wanted.version]


@cache  # a training looks its corpus up several times
def _latest(wanted: Wanted, _: str) -> tuple[str, dict[str, Any] | None]:
    """Return the latest version and its entry; without a network, the latest in the cache. Raises DataError.

    A process asks each index once.
    """
    try:
        versions = _entries(wanted)
    except NetworkError as error:
        cached = [path.parent.name for path in wanted.path("").parent.glob(f"*/{wanted.languages}.txt.zip")]
        if not cached:
            raise NetworkError(
                f"{wanted.setting} is {wanted.name}, but {error} Try again with a network, or name the version, "
                f"download it on another machine and put it at {wanted.path('VERSION')}"
            ) from error
        version = max(cached, key=_age)
        console.warn(f"{error} {wanted.name} is {version}, the latest in the cache.")
        return version, None
    # The index marks the latest version of a corpus, but of a few hundred pairs none.
    marked = [version for version, entry in versions.items() if str(entry.get("latest")) == "True"]
    version = max(marked or versions, key=_age)
    console.warn(f"{wanted.name} is {wanted.name}-{version}: name that to train on the same again")
    return version, versions[version]


def _age(version: str) -> list[int]:
    """Order versions such as v2, v7.1, v20190709 and v2020-05-31 by time."""
    return [int(number) for number in re.findall(r"\d+", version.replace("-", ""))]


def _unknown(wanted: Wanted) -> DataError:
    """Return the error for a corpus that the index does not have: what is like it."""
    start = f"{wanted.setting} is {wanted.name}, but OPUS has"
    names = list(map(str, _listed(_index(corpora="True"), "corpora")))
    if wanted.corpus not in names:
        lower = {name.lower(): name for name in names}
        close = [lower[name] for name in difflib.get_close_matches(wanted.corpus.lower(), lower, n=1)]
        hint = f"did you mean opus:{close[0]}?" if close else "https://opus.nlpl.eu lists them all."
        return DataError(f"{start} no corpus {wanted.corpus}: {hint}")
    one, two = wanted.pair
    there = []
    for language, other in ((one, two), (two, one)):
        answer = _index(languages="True", corpus=wanted.corpus, source=language, preprocessing="moses")
        found = list(map(str, _listed(answer, "languages")))
        there.append(f"with {language} it has {_some(found, other)}" if found else f"it has no {language}")
    return OtherLanguagesError(f"{start} no {wanted.languages} in {wanted.corpus}: {'; '.join(there)}.")


def _some(names: Collection[str], wanted: str) -> str:
    """List names, the most similar first."""
    close = difflib.get_close_matches(wanted, names, n=LISTED, cutoff=0.3)
    ordered = list(dict.fromkeys([*close, *sorted(names)]))
    return ", ".join(ordered[:LISTED]) + (", ..." if len(ordered) > LISTED else "")


def check_zip(path: Path) -> str:
    """Check the checksum of every file in a .zip, and return the text of the licence in it. Raises DataError."""
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise DataError(f"the checksum of {damaged} in it is wrong.")
            for info in archive.infolist():
                if PurePosixPath(info.filename).stem.lower() in LICENCES:
                    with archive.open(info) as file:
                        return file.read(LONGEST_LICENCE).decode(errors="replace").strip()
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{error}.") from error
    return ""
