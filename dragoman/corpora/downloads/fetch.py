"""Download files into a cache: resumed after a break, verified, and under their names only when they are whole.

    fetch(cache_folder() / "opus" / "en-it.txt.zip", find_url, check)
    read_record(path)                              # its address, sha256, size, date and licence

A server that fails, is slow or cannot be reached is asked RETRIES more times, after 1, 2 and 4 seconds. A refusal, such
as 404, is final.

While FILE is downloaded, FILE.part grows, and FILE.part.json says which version of the file it is a part of. A later
process continues there if the server still has that version. FILE.json is the record of a whole file, and FILE.lock
makes a second process wait. A file that the user put there by hand is checked, and used.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from platformdirs import user_cache_path
from tqdm import tqdm

from dragoman import console, reading, resources
from dragoman.errors import CheckpointError, DataError, NetworkError
from dragoman.serialization import json_bytes, load_json
from dragoman.storage import replace_durably, storing, sync

BLOCK = 2**18  # bytes
RETRIES = 3  # without progress in between
TIMEOUT = 30.0  # seconds to wait for the next bytes
PASSING = (408, 425, 429)  # of the refusals of HTTP, those that may soon pass
LARGEST_DOCUMENT = 2**26  # bytes of a JSON document
FAILURES = (OSError, http.client.HTTPException)

sleep = time.sleep  # tests replace it
Result = TypeVar("Result")
Check = Callable[[Path], str]  # raises DataError if a file is damaged; returns the text of its licence, if it has one


class CachedCorpus(NamedTuple):
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
    """Return the folder of all downloads."""
    if folder := os.environ.get("DRAGOMAN_CACHE"):
        return Path(folder).expanduser()
    return user_cache_path("dragoman", appauthor=False)


def open_url(url: str, headers: Mapping[str, str] | None = None) -> http.client.HTTPResponse:
    """Send a GET request, and follow redirects. Raises DataError unless it is http or https, and one of FAILURES."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f"{url} is not a web address: it must begin with https:// or http://.")
    # Without "identity", a server may pack the file, and then ranges and sizes are those of the packed bytes.
    usual = {"User-Agent": f"dragoman/{resources.version()}", "Accept-Encoding": "identity"}
    request = urllib.request.Request(url, headers={**usual, **(headers or {})})  # noqa: S310
    return urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310


def with_retries(url: str, attempt: Callable[[], Result], size: Callable[[], int] = lambda: 0) -> Result:
    """Call `attempt` until it raises none of FAILURES.

    Args:
        size: how much has been downloaded; while it grows, failures are not counted

    Raises:
        NetworkError: it was refused, or failed too often
    """
    failures, reached = 0, size()
    while True:
        try:
            return attempt()
        except FAILURES as error:
            code, reason = getattr(error, "code", 0), str(error) or type(error).__name__
            failures = 1 if size() > reached else failures + 1
            reached = max(reached, size())
            if failures > RETRIES or (400 <= code < 500 and code not in PASSING):
                raise NetworkError(f"{url} cannot be downloaded: {reason}.") from error
            pause = 2 ** (failures - 1)
            console.warn(f"{url}: {reason}; trying again in {pause} s")
            sleep(pause)


def get_json(url: str) -> Any:
    """Read a JSON document. Raises DataError; it is a NetworkError if there is no answer."""

    def attempt() -> bytes:
        with open_url(url) as response:
            return response.read(LARGEST_DOCUMENT)

    try:
        return json.loads(with_retries(url, attempt))
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{url} does not answer with JSON: {error}.") from error


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
        with_retries(url, lambda: _resume_download(url, part), lambda: _size(part))
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


def _resume_download(url: str, part: Path) -> None:
    """Download what is missing of a file. Raises one of FAILURES if that breaks off, and StorageError."""
    start, note = _size(part), _load(_beside(part, ".json")) or {}
    if note.get("url") != url or not note.get("version"):
        start = 0  # unknown, or may have changed
    elif start and start == note["size"]:
        return
    headers = {"Range": f"bytes={start}-", "If-Range": note["version"]} if start else {}
    try:
        response = open_url(url, headers)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            _forget(part)
            raise ConnectionError("the server's file is shorter than our part") from error
        raise
    with response:
        # If-Range has made sure that a partial response is of the same version.
        if response.status == 206 and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
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


def _append(response: http.client.HTTPResponse, part: Path, start: int, size: int | None) -> None:
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


def _version(response: http.client.HTTPResponse) -> str:
    """What identifies this version of a file in If-Range; empty if nothing does. A weak ETag does not."""
    etag = response.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")


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
