"""Test sets that sacrebleu knows, as sacrebleu:wmt14/full: the sources and all references of each.

sacrebleu has the address and the md5 of each archive, and the code that turns its files into text. The archives are
downloaded by `fetch`: sacrebleu's own downloads do not resume, and keep the piece of a file that a kill leaves. With
the environment variable DRAGOMAN_SACREBLEU_MIRROR, https://host/path is read from MIRROR/host/path.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import os
import re
import shutil
import tarfile
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

from dragoman.corpora.downloads.fetch import CachedCorpus, alone, cache_folder, fetch
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.settings import DataConfig
from dragoman.storage import storing, sync


def find(setting: str, name: str, data: DataConfig, download: bool) -> CachedCorpus:
    """Return the two sides of a test set, after downloading it if that is allowed and necessary.

    Args:
        setting: for messages, such as data.test
        name: such as sacrebleu:wmt14/full

    Raises:
        OtherLanguagesError: the test set does not have these languages
        DataError: there is no such test set, no network, or it is not in the cache and must not be downloaded
    """
    dataset = _dataset(setting, name)
    pair = _pair(setting, name, dataset, data)
    folder = cache_folder() / "sacrebleu" / dataset.name
    stem = folder / f"{dataset.name.replace('/', '_')}.{pair}"
    sides = {language: stem.with_name(f"{stem.name}.{language}") for language in pair.split("-")}
    archives = {url: folder / "archives" / os.path.basename(url) for url in dataset.data}
    if not all(path.exists() for path in sides.values()):
        if not download:
            raise DataError(f"{setting} is {name}, which is not in the cache: there is no {stem}.*")
        for url, md5 in zip(dataset.data, dataset.md5 or [None] * len(dataset.data), strict=True):
            fetch(archives[url], partial(_mirrored, url), partial(check_md5, md5))
        with alone(stem), storing(folder):
            _unpack(dataset, pair, archives, tuple(sides.values()))
    more = sorted(folder.glob(f"{sides[data.target_lang].name}.ref*"))  # of the target of sacrebleu, if that is ours
    return CachedCorpus((sides[data.source_lang or ""], sides[data.target_lang], *more), tuple(archives.values()))


def further_sides(target: Path, count: int) -> list[Path]:
    """Return the names of the files of further references."""
    return [target.with_name(f"{target.name}.ref{number}") for number in range(1, count + 1)]


def _dataset(setting: str, name: str) -> Any:
    from sacrebleu.dataset import DATASETS  # it takes a while to import

    wanted = name.partition(":")[2]
    if wanted in DATASETS:
        return DATASETS[wanted]
    close = difflib.get_close_matches(wanted, DATASETS, n=1)
    hint = f"did you mean sacrebleu:{close[0]}?" if close else "sacrebleu --list lists them all."
    raise DataError(f"{setting} is {name}, but sacrebleu has no test set {wanted}: {hint}")


def _pair(setting: str, name: str, dataset: Any, data: DataConfig) -> str:
    """Return the pair of languages as sacrebleu calls it, in the other direction if it has only that."""
    one, two = data.source_lang or "", data.target_lang
    for pair in (f"{one}-{two}", f"{two}-{one}"):
        if pair in dataset.langpairs:
            return pair
    raise OtherLanguagesError(f"{setting} is {name}, which has no {one}-{two}, only {', '.join(dataset.langpairs)}.")


def _mirrored(url: str) -> str:
    mirror = os.environ.get("DRAGOMAN_SACREBLEU_MIRROR")
    return f"{mirror.rstrip('/')}/{re.sub('^https?://', '', url)}" if mirror else url


def check_md5(expected: str | None, path: Path) -> str:
    """Raise DataError unless a file has this md5. The archives of test sets have no licence in them."""
    with path.open("rb") as file:
        md5 = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
    if expected and md5 != expected:
        raise DataError(f"its md5 is {md5}, but sacrebleu knows it with {expected}.")
    return ""


def _unpack(dataset: Any, pair: str, archives: dict[str, Path], sides: tuple[Path, ...]) -> None:
    """Write the two sides of a test set as text. They appear by renaming."""
    work = sides[0].with_name(f".{pair}.tmp")
    shutil.rmtree(work, ignore_errors=True)
    raw = work / "raw"
    raw.mkdir(parents=True)
    there: Any = copy.copy(dataset)  # sacrebleu reads its own folder from the environment once, when it is imported
    there._outdir, there._rawdir, there.maybe_download = str(work), str(raw), lambda: None
    for url, path in archives.items():
        if path.name.endswith((".tgz", ".tar.gz")):
            with tarfile.open(path) as tar:
                tar.extractall(raw, filter="data")
        elif path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                archive.extractall(raw)  # noqa: S202  # it keeps inside the folder
        else:
            shutil.copyfile(path, raw / there._get_tarball_filename(url))
    source, references = there.get_source_file(pair), there.get_reference_files(pair)
    more = further_sides(sides[1], len(references) - 1)
    for text, side in [*zip((source, *references), (*sides, *more), strict=True)][::-1]:  # the usual sides come last
        sync(Path(text))
        os.replace(text, side)
    sync(sides[0].parent)
    shutil.rmtree(work)
