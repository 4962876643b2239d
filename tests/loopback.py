"""A web server on this machine that has the index and the files of OPUS, and breaks in every way that servers do.

    with Loopback() as server:
        server.add("Tatoeba", "v2023-04-12", "en-it", zip_of(pairs))
        server.faults += ["drop 1000"]                  # one for each request of a file
        ...
        server.log                                      # what was asked for, and how much was sent

The index is written after `opustools.db_operations`, and its entries after those in the data base of opustools.
"""

from __future__ import annotations

import email.utils
import hashlib
import io
import json
import socket
import sys
import threading
import time
import traceback
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from conftest import HANG

LICENCE = "CC BY 2.0 FR\nSee https://tatoeba.org/eng/terms_of_use"


def zip_of(pairs: Sequence[tuple[str, str]], languages: str = "en-it", corpus: str = "Tatoeba") -> bytes:
    """A download of OPUS in the format Moses; not compressed, so that it is as large as its text."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in {"README": "about it", "LICENSE": LICENCE}.items():
            archive.writestr(zipfile.ZipInfo(name), text)
        for language, side in zip(languages.split("-"), zip(*pairs, strict=True), strict=True):
            archive.writestr(zipfile.ZipInfo(f"{corpus}.{languages}.{language}"), "\n".join(side) + "\n")
        archive.writestr(zipfile.ZipInfo(f"{corpus}.{languages}.xml"), "<cesAlign/>")
    return stream.getvalue()


@dataclass
class Request:
    """A request of a file, and the answer."""

    path: str
    range: str | None
    if_range: str | None
    status: int = 0
    sent: int = 0  # bytes of the body


class Loopback:
    """The server. Use it as a context manager.

    Attributes:
        files: content by path
        faults: what to do with the next requests of a file, see `Handler._send`
        ranges: whether Range is understood
        validators: etag, weak, date or none: how a file says its version
        release: what requests with the fault "hold" wait for
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.index: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.log: list[Request] = []
        self.asked: list[str] = []  # queries of the index
        self.ranges, self.validators, self.index_status = True, "etag", 200
        self.release = threading.Event()
        loopback = self

        class Bound(Handler):
            server_of = loopback

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self.http.daemon_threads = True
        self.http.handle_error = self._handle_error
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)

    def _handle_error(self, request: object, client_address: object) -> None:
        """Print a failure, unless the client was killed."""
        if not isinstance(sys.exception(), ConnectionError):
            traceback.print_exc()

    def __enter__(self) -> Loopback:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop answering; a second call does nothing."""
        self.release.set()
        if self.thread.is_alive():
            self.http.shutdown()
            self.thread.join()
            self.http.server_close()

    def add(self, corpus: str, version: str, languages: str, content: bytes, latest: bool = True) -> str:
        """Publish a corpus; return the path of its file."""
        path = f"/OPUS-{corpus}/{version}/moses/{languages}.txt.zip"
        source, target = languages.split("-")
        self.files[path] = content
        entry = {
            "alignment_pairs": 300, "corpus": corpus, "documents": "", "id": 366294 + len(self.index),
            "latest": str(latest), "preprocessing": "moses", "size": len(content) // 1024, "source": source,
            "source_tokens": 2000, "target": target, "target_tokens": 2100, "url": self.url + path, "version": version,
        }  # fmt: skip
        self.index.append(entry)
        return path


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server_of: Loopback
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path.startswith("/opusapi/"):
            self.server_of.asked.append(parts.query)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            self._reply(self.server_of.index_status, json.dumps(self._answer(query)).encode())
            return
        request = Request(parts.path, self.headers.get("Range"), self.headers.get("If-Range"))
        self.server_of.log.append(request)
        fault = self.server_of.faults.pop(0) if self.server_of.faults else ""
        try:
            self._send(request, fault)
        except OSError:  # the client has gone
            self.close_connection = True

    def _answer(self, query: dict[str, str]) -> dict[str, Any]:
        names = query.pop("corpora", None), query.pop("languages", None)
        if query.get("target"):
            query["source"], query["target"] = sorted((query["source"], query["target"]))
        if names[1]:
            language = query.pop("source")
            here = [each for each in self.server_of.index if query.items() <= each.items()]
            both = [(each["source"], each["target"]) for each in here]
            return {"languages": sorted({pair[1 - pair.index(language)] for pair in both if language in pair})}
        found = [each for each in self.server_of.index if query.items() <= each.items()]
        return {"corpora": list(dict.fromkeys(each["corpus"] for each in found)) if names[0] else found}

    def _reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send(self, request: Request, fault: str) -> None:
        """Send a file, or what a fault makes of it.

        drop N      close the connection after N bytes
        hold N      wait after N bytes, for `Loopback.release`
        silent      send no byte for as long as the client waits
        short       announce ten bytes fewer than there are
        long        announce ten bytes more
        chunked     announce no length, and close the connection after 100 bytes of a chunk
        unsized     announce no length, and close the connection in the end
        to URL      redirect
        a number    fail with this status
        """
        word, _, rest = fault.partition(" ")
        content = self.server_of.files.get(request.path)
        if word == "to":
            request.status = 302
            self._reply(302, b"", Location=rest)
            return
        if word.isdecimal() or content is None:
            request.status = int(word) if word.isdecimal() else 404
            self._reply(request.status, b"a page that explains it")
            return
        if word == "silent":
            self.server_of.release.wait(HANG)
            self.close_connection = True
            return
        body = self._head(request, content, {"short": -10, "long": 10}.get(word, 0), word)
        stop = int(rest) if rest else 100 if word == "chunked" else len(body)
        self._write(request, body[:stop])
        if word == "hold":
            self.server_of.release.wait(HANG)
            self._write(request, body[stop:])
        self.close_connection = word not in ("", "hold")

    def _head(self, request: Request, content: bytes, difference: int, word: str) -> bytes:
        """Send the header; return the body."""
        etag = f'"{hashlib.md5(content).hexdigest()}"'
        changed = email.utils.formatdate(1_600_000_000 + len(content), usegmt=True)
        kinds = {"etag": ("ETag", etag), "weak": ("ETag", f"W/{etag}"), "date": ("Last-Modified", changed)}
        name, version = kinds.get(self.server_of.validators, ("", ""))
        start = 0
        if self.server_of.ranges and request.range and request.if_range == version:
            start = int(request.range.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content) and start:
            request.status = 416
            self._reply(416, b"", Content_Range=f"bytes */{len(content)}")
            return b""
        request.status = 206 if start else 200
        self.send_response(request.status)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if name:
            self.send_header(name, version)
        if word == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        elif word != "unsized":
            self.send_header("Content-Length", str(len(content) - start + difference))
        self.end_headers()
        if word == "chunked":
            self.wfile.write(b"fffff\r\n")
        return content[start:]

    def _write(self, request: Request, body: bytes) -> None:
        """Send bytes; a connection that is closed right after them delivers them all."""
        request.sent += len(body)  # before the client can have it all, and the test looks
        self.wfile.write(body)
        self.wfile.flush()


def unused_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_until(true: Any, seconds: float = HANG) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "the other process is stuck"
        time.sleep(0.01)
