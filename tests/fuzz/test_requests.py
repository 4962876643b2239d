"""Requests to the server, byte by byte: an answer or a closed connection, no internal error, and no silence."""

from __future__ import annotations

import json
import logging
import random
import re
import socket
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the server needs more libraries: pip install -e '.[serve]'")
from conftest import HANG
from dragoman.server import limits
from echo import echo
from fuzz.harness import survive
from fuzz.mutations import VALUES, any_text, damaged, forged, spliced
from test_serve import Server, serving

pytestmark = pytest.mark.slow
KEPT = ExitStack()  # what lasts as long as the child process
WHOLE = {
    "text": "My name is Anna. I live in: number!", "n_best": 2, "beam_size": 2, "target_lang": "it",
    "source_lang": "en", "glossary": {"name": "nome", "Anna": ""}, "format": "text", "attention": False,
}  # fmt: skip
DOCUMENTS = {
    "html": "<p>My <b>name</b> is <img alt='see'></p>",
    "xml": "<a>My <b>name</b> is</a>",
    "markdown": "# My *name*\n\n- is `in` [live](x)",
}
TARGETS = (
    "/translate",
    "/info",
    "/",
    "/openapi.json",
    "/style.css",
    "/../x",
    "//",
    "/%00",
    "/translate?x=%ff",
    "*",
    "http://x/info",
    "",
)
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "CONNECT", "TRACE", "PATCH", "PRI", "get", "A" * 9000, "")
HEADERS = (
    "Host: localhost", "Host: x.org", "Host: ", "Host: [::1", "Host: localhost:99999999", "Content-Length: 5",
    "Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 1, 2", "Content-Length: 0x5",
    "Content-Length: +5", "Content-Length:", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: identity", "Transfer-Encoding:\tchunked", "Expect: 100-continue", "Expect: x",
    "Connection: close", "Connection: upgrade", "Upgrade: websocket", "Upgrade: h2c", "Content-Type: application/json",
    "Content-Type: text/plain", "Content-Type: application/json; charset=\xff", "Content-Type: ",
    "Content-Encoding: gzip", "X: \x00", "X: \r y", "X", ": x", " x: y", "X\xff: y", "x" * 70_000 + ": y",
    "Range: bytes=0-", "Cookie: a=b", "Origin: null", "Sec-WebSocket-Key: x", "Forwarded: for=x",
    "X-Forwarded-For: 127.0.0.1",
)  # fmt: skip
PIECES = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"0\r\n\r\n",
    b"\r\n\r\n",
    b"HTTP/1.1",
    b"HTTP/2.0",
    b"HTTP/9.9",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


@cache
def server() -> tuple[Server, list[str]]:
    """A server in the child process, and what is logged as an error, such as tracebacks."""
    translator = echo(kind="bpe")
    log: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: log.append(logging.Formatter().format(record))
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addHandler(handler)
    limits.READ_TIMEOUT = 0.3
    return KEPT.enter_context(serving(translator)), log


def body(draw: random.Random) -> bytes:
    """JSON for /translate that is whole, forged, or damaged."""
    asked: dict[str, Any] = {"text": any_text(draw).encode(errors="ignore").decode()}
    asked |= {key: value for key, value in WHOLE.items() if key != "text" and draw.random() < 0.2}
    asked.pop("target_lang", None)
    if draw.random() < 0.3:
        asked["format"] = draw.choice(list(DOCUMENTS))
        asked["text"] = spliced(
            DOCUMENTS[asked["format"]], draw, ["<", ">", "&", "<b>", "</b>", "*", "`", "\n", "[", "]("]
        )
    if draw.random() < 0.2:
        asked["texts"] = [
            asked.pop("text"),
            *draw.choices(["", "My name", "see\nlive", any_text(draw, 20)], k=draw.randrange(5)),
        ]
    match draw.randrange(6):
        case 0:
            asked = forged(asked, draw)
        case 1:
            asked[draw.choice([*WHOLE, "x"])] = draw.choice(VALUES)
    data = json.dumps(asked).encode()
    if draw.random() < 0.2:
        data = draw.choice(
            [damaged(data, draw), data * 2, b"[" * 10_000, b"\xff\xfe" + data, json.dumps(asked).encode("utf-16")]
        )
    return data


def chunked(data: bytes, draw: random.Random) -> bytes:
    """A body in chunks, some of which lie about their size."""
    sent = b""
    while data:
        size = draw.choice([1, 7, 100, len(data)])
        part, data = data[:size], data[size:]
        told = (
            f"{len(part):x}"
            if draw.random() < 0.95
            else draw.choice(["", "-1", "g", "0", "f" * 20, "1_0", "0x1", "5;x=y", "ffff"])
        )
        sent += told.encode() + draw.choice([b"\r\n"] * 20 + [b"\n", b"", b" \r\n"]) + part + b"\r\n"
    return sent + draw.choice([b"0\r\n\r\n"] * 9 + [b"0\r\n", b"0\r\nX: y\r\n\r\n", b"00000\r\n\r\n"])


def head(draw: random.Random, lines: list[str]) -> bytes:
    """The head of a request, with lines that may contradict these."""
    method, target = ("POST", "/translate") if draw.random() < 0.7 else (draw.choice(METHODS), draw.choice(TARGETS))
    lines = [*lines, *(draw.choice(HEADERS) for _ in range(draw.choice([0, 0, 0, 1, 2, 5])))]
    if draw.random() < 0.02:
        lines += ["X: y"] * draw.choice([100, 5000])
    draw.shuffle(lines)
    version = "HTTP/1.1" if draw.random() < 0.95 else draw.choice(["HTTP/1.0", "HTTP/0.9", "HTTP/3", "x", ""])
    return "\r\n".join([f"{method} {target} {version}", *lines, "", ""]).encode("latin-1")


def request(draw: random.Random) -> bytes:
    """One request, or several in a row."""
    sent = b""
    for _ in range(draw.choice([1, 1, 1, 1, 2, 5])):
        data = body(draw)
        lines = ["Host: localhost"] * (draw.random() < 0.98) + ["Content-Type: application/json"] * (
            draw.random() < 0.95
        )
        if draw.random() < 0.3:
            sent += head(draw, [*lines, "Transfer-Encoding: chunked"]) + chunked(data, draw)
        else:
            length = len(data) if draw.random() < 0.95 else draw.choice([0, len(data) - 1, len(data) + 1, 10**9])
            sent += head(draw, [*lines, f"Content-Length: {length}"]) + data
    if draw.random() < 0.1:
        at = draw.randrange(len(sent))
        sent = draw.choice([damaged(sent, draw), sent[:at] + draw.choice(PIECES) + sent[at:]])
    return sent


def exchange(port: int, sent: bytes, draw: random.Random) -> list[int]:
    """Send bytes, at once or in parts, and return the status of each response until the connection is closed."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG) as connection:
        try:
            at = draw.randrange(len(sent)) if draw.random() < 0.2 else 0
            connection.sendall(sent[:at])
            connection.sendall(sent[at:])
            if draw.random() < 0.95:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(2**16):
                got += part
        except TimeoutError:
            raise
        except OSError:  # the server closes it on what it refuses
            pass
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)]


def test_requests() -> None:
    """Guards the server against what any program on the network may send it."""

    def attempt(draw: random.Random) -> None:
        serving, log = server()
        found = exchange(serving.port, request(draw), draw)
        assert not log, log.pop()
        assert all(status < 500 for status in found), found
        if draw.random() < 0.02:
            answer = serving.post({"text": "My name"})
            assert (answer.status, answer.json["translations"][0]["translation"]) == (200, "My name")

    assert survive("requests", 1500, attempt).refused == 0


def test_bodies() -> None:
    """Guards the checks of what is asked for: valid requests and invalid ones in one of the described responses."""

    def attempt(draw: random.Random) -> None:
        serving, log = server()
        answer = serving.post(body(draw))
        assert not log, log.pop()
        assert answer.status in (200, 400, 413, 422), answer
        assert (answer.status == 200) == ("translations" in answer.json)

    assert survive("bodies", 1000, attempt).refused == 0
