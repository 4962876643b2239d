"""Download files into a cache: resumed after a break, verified, and under their names only when they are whole.

    fetch(cache_folder() / "opus" / "en-it.txt.zip", find_url, check)
    read_record(path)                              # its address, sha256, size, date and licence

While FILE is downloaded, FILE.part grows, and FILE.part.json says which version of the file it is a part of. A later
process continues there if the server still has that version. FILE.json is the record of a whole file, and FILE.lock
makes a second process wait. A file that the user put there by hand is checked, and used.
"""

from __future__ import annotations

import hashlib
import os
import re
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from dragoman import console, reading
from dragoman.corpora.downloads import web
from dragoman.errors import CheckpointError, DataError, NetworkError
from dragoman.serialization import json_bytes, load_json
from dragoman.storage import replace_durably, storing, sync

BLOCK = 2**18  # bytes

Check = Callable[[Path], str]  # raises DataError if a file is damaged; returns the text of its licence, if it has one


class Found(NamedTuple):
    """A corpus in the cache."""

    files: tuple[Path, ...]  # to read: a .zip, or the sides of parallel text
    downloads: tuple[Path, ...]  # the files that were downloaded, each with a record


@dataclass(frozen=True)
class Record:
    """Where a file came from."""

    url: str  # empty if the user put the file there
    sha256: str
    size: int  # bytes
    date: str  # UTC
    licence: str  # its text; empty if the file has none


def cache_folder() -> Path:
    """The folder of all downloads."""
    if folder := os.environ.get("DRAGOMAN_CACHE"):
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dragoman"


def read_record(path: Path) -> Record | None:
    """Load the record of a downloaded file; None if it has none, or has been replaced by a file of another size."""
    try:
        record = Record(**(_load(_beside(path, ".json")) or {}))
    except TypeError:
        return None
    return record if not path.exists() or path.stat().st_size == record.size else None


def fetch(path: Path, find_url: Callable[[], str], check: Check) -> None:
    """Download a file unless it is there.

    Args:
        path: where to put it
        find_url: called only if it is not there
        check: of the whole file

    Raises:
        DataError: there is no such file, no network, or the file is damaged
        StorageError: the disk is full or failing
    """
    if path.exists() and read_record(path):
        return
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    url = "" if path.exists() else find_url()
    with alone(path):
        if not path.exists():
            _download(url, path, check)
        elif not read_record(path):
            _record(path, path, "", check)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Context manager: keep other processes from downloading the same file."""
    from filelock import FileLock, Timeout  # translating imports this module, and never downloads

    lock = FileLock(_beside(path, ".lock"))
    with storing(path):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            console.warn(f"waiting for another process that downloads {path}")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _download(url: str, path: Path, check: Check) -> None:
    part = _beside(path, ".part")
    try:
        web.with_retries(url, lambda: _attempt(url, part), lambda: _size(part))
    except NetworkError as error:
        raise NetworkError(f"{error} If you can get this file in another way, put it at {path}") from error
    with storing(part):
        sync(part)
    try:
        _record(part, path, url, check)
    except DataError:
        _forget(part)
        raise
    with storing(path):
        part.rename(path)
        sync(path.parent)
    _forget(part)


def _record(file: Path, path: Path, url: str, check: Check) -> None:
    """Check a whole file, and write the record of what is to be at `path`."""
    try:
        licence = check(file)
    except DataError as error:
        remedy = "Run the same command again; if that does not help, its server has a damaged file."
        raise DataError(f"{url or path} is damaged: {error} {remedy if url else 'Delete it.'}") from error
    with storing(path):
        with file.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        date = datetime.now(UTC).isoformat(timespec="seconds")
        record = Record(url, sha256, _size(file), date, licence)
        replace_durably(_beside(path, ".json"), json_bytes(asdict(record)))


def _attempt(url: str, part: Path) -> None:
    """Download what is missing of a file. Raises one of `web.FAILURES` if that breaks off, and StorageError."""
    start, note = _size(part), _load(_beside(part, ".json")) or {}
    if note.get("url") != url or not note.get("version"):
        start = 0  # unknown, or may have changed
    elif start and start == note["size"]:
        return
    headers = {"Range": f"bytes={start}-", "If-Range": note["version"]} if start else {}
    try:
        response = web.opened(url, headers)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the file ends before the part does
            _forget(part)
            raise ConnectionError("the server has no more of it") from error
        raise
    with response:
        if response.status == 206 and not _continues(response, start, note):
            _forget(part)
            raise ConnectionError("the server sends another part than it was asked for")
        if response.status != 206:
            start = 0
            note = {"url": url, "version": _version(response), "size": response.length}
            with storing(part):
                part.unlink(missing_ok=True)  # first: the note must never describe bytes of another version
                replace_durably(_beside(part, ".json"), json_bytes(note))
            amount = f" ({response.length / 1e6:,.1f} MB)" if response.length else ""
            console.warn(f"downloading {url}{amount}")
        else:
            console.warn(f"continuing to download {url}, after {start / 1e6:,.1f} MB")
        _append(response, part, start, note["size"])
    if note["size"] is not None and _size(part) != note["size"]:
        raise ConnectionError(f"the server breaks off after {_size(part):,} of {note['size']:,} bytes")


def _append(response: HTTPResponse, part: Path, start: int, size: int | None) -> None:
    """Append the body of a response to a file of `start` bytes, of which the whole has `size` if that is known."""
    with storing(part, size or 0):
        file = part.open("ab", buffering=0)
    name = part.name.removesuffix(".part")
    bar = tqdm(
        desc=name, total=size, initial=start, unit="B", unit_scale=True, dynamic_ncols=True, disable=None, leave=False
    )
    with file, bar:
        at = start
        while at != size and (block := response.read1(BLOCK if size is None else min(BLOCK, size - at))):
            with storing(part, size or 0):
                rest = memoryview(block)
                while rest:
                    rest = rest[file.write(rest) :]
            at += len(block)
            bar.update(len(block))


def _version(response: HTTPResponse) -> str:
    """What identifies this version of a file in If-Range; empty if nothing does. A weak ETag does not."""
    etag = response.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")


def _continues(response: HTTPResponse, start: int, note: dict[str, Any]) -> bool:
    """Whether a partial response is the rest of the file of which there are `start` bytes."""
    matched = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if not (matched and start and int(matched[1]) == start):
        return False
    same_size = matched[2] == "*" or note["size"] in (None, int(matched[2]))
    return same_size and _version(response) in ("", note["version"])


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _load(path: Path) -> dict[str, Any] | None:
    """Load a JSON object; None if there is none."""
    try:
        return load_json(reading.read(path, reading.TEXT))
    except (OSError, CheckpointError):
        return None


def _forget(part: Path) -> None:
    with storing(part):
        part.unlink(missing_ok=True)
        _beside(part, ".json").unlink(missing_ok=True)
