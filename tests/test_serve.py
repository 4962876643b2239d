"""The server, over real connections: the API, its limits and errors, starting and stopping, and the web page."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from conftest import HANG, ROOT, in_child, tiny_config
from dragoman import command_line
from dragoman.__main__ import run as run_command
from dragoman.translation import output
from dragoman.translation.results import Translation
from dragoman.translation.translator import Translator
from echo import echo

pytest.importorskip("fastapi", reason="the server needs more libraries: pip install -e '.[serve]'")
from dragoman.server import application, connection, limits, serve
from dragoman.server.application import PAGE_FILES, create_application
from dragoman.server.batcher import Batcher, Job
from dragoman.server.connection import Listener, listen, make_server
from dragoman.server.limits import Limits
from dragoman.server.models import Models
from dragoman.server.security import only_for

TEXTS = ["the cat sees the dog.", "this red wine.", "", "and <b>here</b>.\n\nthe dog wants the black bread here today."]


@dataclass(frozen=True)
class Reply:
    """The response to a request."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    """A running server."""

    listener: Listener
    batcher: Batcher
    stop: Callable[[], None]  # returns at once

    @property
    def port(self) -> int:
        return self.listener.getsockname()[1]

    def get(self, path: str, method: str = "GET", host: str = "localhost") -> Reply:
        return self._exchange(method, path, None, {"Host": host})

    def post(self, content: object, kind: str = "application/json") -> Reply:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self._exchange("POST", "/translate", body, {"Content-Type": kind})

    def _exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG)) as connection:
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())

    def raw(self, head: str) -> bytes:
        """Send the beginning of a request and read the response, up to its closing brace."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=HANG) as connection:
            connection.sendall(head.replace("\n", "\r\n").encode())
            got = b""
            while not got.endswith(b"}"):
                got += (part := connection.recv(2**16))
                assert part, got
            return got


@contextmanager
def serving(*translators: Translator, **budgets: float) -> Iterator[Server]:
    limited = Limits(**budgets)  # type: ignore[arg-type]
    with listen("127.0.0.1", 0, limited.max_connections) as listener, ExitStack() as stack:
        for translator in translators:
            translator.step, translator.path = 10, getattr(translator, "path", Path("echo"))
        batchers = [stack.enter_context(closing(Batcher(each, limited))) for each in translators]
        batcher, models = batchers[0], Models(batchers)
        server = make_server(only_for(create_application(models)), listener)
        thread = Thread(target=lambda: asyncio.run(connection.serve(server, listener, models.give_up)))
        thread.start()

        def stop() -> None:
            server.should_exit = True

        try:
            yield Server(listener, batcher, stop)
        finally:
            stop()
            thread.join()


def trained_in(folder: Path, **changes: object) -> Path:
    config = tiny_config(folder, training__max_steps=10, data__max_length=12, **changes)
    assert in_child(lambda: run_command("train", config)) == 0
    return Path(config.run.dir) / config.run.name


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ten updates: its translations are nonsense, but always the same."""
    return trained_in(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def server(trained: Path) -> Iterator[Server]:
    """A server of that run."""
    with serving(Translator(trained)) as found:
        yield found


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Event, Event]]:
    """Translators set the first event when they start, then wait for the second."""
    started, go = Event(), Event()
    translate_pieces = Translator.translate_pieces

    def wait(translator: Translator, *pieces: Any, **options: Any) -> Any:
        started.set()
        assert go.wait(HANG)
        return translate_pieces(translator, *pieces, **options)

    monkeypatch.setattr(Translator, "translate_pieces", wait)
    yield started, go
    go.set()


# --- The API ---


@pytest.mark.parametrize("n_best", [1, 3])
def test_the_api_returns_the_same_as_the_command_line(trained: Path, server: Server, n_best: int) -> None:
    """All fields equal those of `translate.py --json`."""
    translator = Translator(trained).with_decoding(n_best=n_best, beam_size=n_best)
    expected = [json.loads(output.as_json(each)) for each in translator.with_alignments(translator.explain(TEXTS))]
    found = server.post({"texts": TEXTS, "n_best": n_best, "attention": True}).json["translations"]
    plain = server.post({"texts": TEXTS, "n_best": n_best}).json["translations"]
    for one, other in zip(found, plain, strict=True):
        for sentence, bare in zip(one["sentences"], other["sentences"], strict=True):
            for candidate, without in zip(sentence["candidates"], bare["candidates"], strict=True):
                assert without == candidate | {"log_probs": None, "alignment": None, "attention": None}
                del candidate["attention"]
    assert found == expected
    [alone] = server.post({"text": TEXTS[3], "n_best": n_best}).json["translations"]
    assert alone["translation"] == expected[3]["translation"]


def test_attention_is_returned_on_request(trained: Path, server: Server) -> None:
    """Guards rows and columns of the weights, which the page colours words by, and the alignment: their maxima."""
    [answer] = server.post({"text": TEXTS[0], "attention": True, "n_best": 2}).json["translations"]
    translator = Translator(trained).with_decoding(n_best=2, beam_size=2)
    for sentence, found in zip(answer["sentences"], translator.explain(TEXTS[:1])[0].sentences, strict=True):
        for candidate, other in zip(sentence["candidates"], found.candidates, strict=True):
            rows = candidate["attention"]
            assert len(rows) == len(candidate["alignment"]) == len(other.ids)
            assert {len(row) for row in rows} == {len(sentence["tokens"]) - 1}
            whole = translator.attention(found, other).mean((0, 1))
            for row, expected in zip(rows, whole.tolist(), strict=False):
                assert row == pytest.approx(expected[:-1], abs=1e-3)


def test_ctranslate2_answers_as_torch_does(trained: Path) -> None:
    """Guards what CTranslate2 does not report: log-probabilities and alignment come from the model, if asked for."""
    translator = Translator(trained, "cpu", ["--decoding.precision=float32"], "ctranslate2")
    expected = Translator(trained, "cpu", ["--decoding.precision=float32"]).explain(TEXTS)
    with serving(translator) as server:
        plain = server.post({"texts": TEXTS}).json["translations"]
        found = server.post({"texts": TEXTS, "attention": True}).json["translations"]
    assert [each["translation"] for each in plain] == [each.text for each in expected]
    for one, other in zip(found, expected, strict=True):
        for sentence, own in zip(one["sentences"], other.sentences, strict=True):
            [candidate], [mine] = sentence["candidates"], own.candidates
            assert candidate["translation"] == mine.text
            assert len(candidate["log_probs"]) == len(candidate["tokens"])
            # The search shares the probability of banned tokens among the others; the model alone does not.
            assert candidate["log_probs"] == pytest.approx(mine.log_probs, abs=0.1)
            assert len(candidate["alignment"]) == len(mine.ids)


def test_fifty_clients_get_their_own_translations() -> None:
    """No client receives the translation of another."""
    texts = [f"My name is number{i}, and I live in {'see ' * (i % 7)}." for i in range(50)]
    with serving(echo()) as server, ThreadPoolExecutor(50) as clients:
        replies = list(clients.map(lambda text: server.post({"text": text}), texts))
    assert [reply.status for reply in replies] == [200] * 50
    translations = [reply.json["translations"][0]["translation"] for reply in replies]
    assert translations == [" ".join(text.split()) for text in translations]
    assert translations == echo().translate(texts)


def test_warnings_are_returned_with_their_text(server: Server) -> None:
    """Guards warnings that the command line prints on standard error, which a client never sees."""
    reply = server.post({"texts": ["the cat.", "the cat " * 50]})
    first, second = (each["warnings"] for each in reply.json["translations"])
    assert not any("in parts" in warning for warning in first)
    assert "a sentence of 101 tokens is translated in parts" in second[0]


def test_markup_keeps_its_tags() -> None:
    """Guards that documents of a request are not mixed up, that their tags stay, and that mistakes have a place."""
    texts = ["<p>My <b>name</b> is</p><p>number</p>", "", "<code>x</code>", "My<br><i>name</i> &amp; number"]
    with serving(echo("max_length=3")) as server:
        answers = server.post({"texts": texts, "format": "html"}).json["translations"]
        assert [answer["translation"] for answer in answers] == texts
        assert [len(answer["sentences"]) for answer in answers] == [2, 0, 0, 2]
        [answer] = server.post({"text": "*My* name is `x` number", "format": "markdown"}).json["translations"]
        assert answer["warnings"][0].startswith('"My name is x number": the translation was cut off')
        reply = server.post({"text": "<a>\n<b></a>", "format": "xml"})
        assert reply.status == 422
        assert reply.json["detail"].startswith("line 2, column")
        assert server.post({"text": "a", "format": "docx"}).status == 422
        assert server.post({"text": "<b>" * 1600, "format": "html"}).status == 422
        schema = json.dumps(server.get("/openapi.json").json)
        assert all(f'"{kind}"' in schema for kind in ("text", "html", "xml", "markdown"))


def test_info_describes_the_model(server: Server) -> None:
    """Guards the heading of the page, and health checks."""
    info = server.get("/info").json
    assert info["status"] == "ok"
    assert (info["source_lang"], info["target_lang"], info["run"], info["step"]) == ("en", "it", "tiny", 10)


NUL = "a\0b \u202e<script>alert(1)</script> &amp; {{7*7}}"


@pytest.mark.parametrize("text", [NUL, " \n ", "🙂" * 1000, "x" * limits.MAX_CHARACTERS, "שלום \u2028 漢字"])
def test_any_text_is_translated(server: Server, text: str) -> None:
    """Guards unusual characters and lengths: they must neither fail nor be changed."""
    reply = server.post({"text": text, "attention": True})
    assert reply.status == 200, reply.body[:300]
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.json["translations"][0]["source"] == text


DEEP = b'{"text": ' + b"[" * 20_000


@pytest.mark.parametrize(
    ("body", "status", "fragment"),
    [
        (b"", 400, "JSON"),
        (DEEP, 400, "JSON"),
        (b"\xff\xfe{\x00}\x00", 400, "JSON"),
        (rb'{"text": "\ud800"}', 400, "JSON"),
        (b'{"text": NaN}', 422, "text"),
        (b'{"text": "a", "n_best": 1e999}', 422, "n_best"),
        (b'{"text": "a", "n_best": ' + b"9" * 5000 + b"}", 400, "number"),
        ({}, 422, "give text or texts"),
        ([], 422, "object"),
        ({"text": None}, 422, "text"),
        ({"texts": []}, 422, "texts"),
        ({"texts": ["a", None]}, 422, "texts.1"),
        ({"texts": ["a"] * (limits.MAX_TEXTS + 1)}, 422, "texts"),
        ({"text": "a", "texts": ["a"]}, 422, "give text or texts"),
        ({"text": "x" * (limits.MAX_CHARACTERS + 1)}, 422, "text"),
        ({"texts": ["x" * limits.MAX_CHARACTERS, "x"]}, 413, "5,000 characters"),
        ({"text": "a", "n_best": 0}, 422, "n_best"),
        ({"text": "a", "n_best": True}, 422, "n_best"),
        ({"text": "a", "beam_size": 11}, 422, "beam_size"),
        ({"text": "a", "\x1b<b>": 1}, 422, "⟨U+001B⟩"),
    ],
)
def test_invalid_requests_get_a_one_line_error(server: Server, body: object, status: int, fragment: str) -> None:
    """Guards clear errors: with the field at fault, in one line, and without repeating the whole request."""
    reply = server.post(body)
    assert reply.status == status, reply.body
    assert reply.headers["Content-Type"] == "application/json"
    assert fragment in reply.json["detail"]
    assert "\n" not in reply.json["detail"]
    assert len(reply.body) < 400


def test_other_types_methods_and_paths_are_refused(server: Server) -> None:
    """Guards a clear answer to what is neither our API nor LibreTranslate's, and pages with scripts of other hosts."""
    refused = server.post(b"text=a", "application/x-www-form-urlencoded")
    assert (refused.status, refused.json["error"]) == (
        400, "Invalid request: missing q parameter: beside source and target, text is called q"
    )  # fmt: skip
    assert server.post({"text": "a"}, "text/plain").status == 400
    assert server.post({"text": "a"}, "application/json; charset=utf-8").status == 200
    assert server.get("/translate").status == 405
    assert server.get("/translate").headers["Allow"] == "POST"
    assert server.get("/info", "DELETE").status == 405
    for path in ("/redoc", "/../serve.py", "/%2e%2e/serve.py", "/script.js/"):
        assert server.get(path).status in (404, 307), path


def test_a_broken_body_after_head_leaves_no_traceback(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Guards the log: uvicorn answers invalid HTTP with a body, which a response to HEAD must not have."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG) as connection:
        connection.sendall(b"HEAD / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\n")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 400 ")
        while connection.recv(2**16):
            pass
    assert not [record for record in caplog.records if record.exc_info]


def test_long_bodies_are_refused_unread(server: Server) -> None:
    """Guards memory: the error comes before the whole body has arrived, with Content-Length and without."""
    head = "POST /translate HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
    assert b" 413 " in server.raw(f"{head}Content-Length: 1000000\n\n")
    chunk = f"{2**20:x}\n{'x' * 2**20}\n"
    assert b" 413 " in server.raw(f"{head}Transfer-Encoding: chunked\n\n{chunk}")
    assert server.post(b"x" * 1_000_000).status == 413
    few = "".join(f"1\n{letter}\n" for letter in '{"text": "the cat."}')
    assert b" 200 " in server.raw(f"{head}Transfer-Encoding: chunked\n\n{few}0\n\n")


def test_incomplete_requests_time_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the number of connections: uvicorn alone keeps one without a request for ever."""
    monkeypatch.setattr(limits, "READ_TIMEOUT", 1.0)
    body = json.dumps({"text": TEXTS[0]}).encode()
    head = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    whole = head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for sent in (b"", head[:9], whole + head):
        with socket.create_connection(("127.0.0.1", server.port), timeout=HANG) as connection:
            connection.sendall(sent)
            got = b""
            while part := connection.recv(2**16):
                got += part
        assert (b" 200 " in got) == (b"text" in sent)


def test_connections_send_without_delay() -> None:
    """Guards kept-alive connections: without TCP_NODELAY every response after the first was 45 ms late."""
    with serving(echo()) as server, closing(http.client.HTTPConnection("127.0.0.1", server.port)) as client:
        seconds = []
        for _ in range(20):
            started = time.perf_counter()
            client.request("GET", "/info")
            client.getresponse().read()
            seconds.append(time.perf_counter() - started)
        assert min(seconds[1:]) < 0.03


def test_every_response_has_security_headers(server: Server) -> None:
    """Error responses, which other code makes, have them, too."""
    replies = [server.get(path) for path in ("/", "/script.js", "/style.css", "/info", "/openapi.json", "/nothing")]
    replies += [server.post({"text": "a"}), server.post(b"{"), server.get("/", "PUT"), server.get("/", host="evil.org")]
    for reply in replies:
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in reply.headers


def test_other_host_names_are_refused(server: Server) -> None:
    """Guards against DNS rebinding: a web page whose host name resolves to this computer could read translations."""
    for host in ("evil.org", "evil.org:8000", "127.0.0.1.evil.org", "localhost.evil.org", "[::1", "", "8.8.8.8"):
        assert server.get("/info", host=host).status == 421, host
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1", f"127.0.0.1:{server.port}", "[::1]:8000"):
        assert server.get("/info", host=host).status == 200, host
    assert b" 421 " in server.raw("GET /info HTTP/1.0\n\n")


# --- Load, timeouts, cancelled requests and shutdown ---


def test_a_busy_server_refuses_requests(gate: tuple[Event, Event]) -> None:
    """Guards against accepting more than can be translated in time."""
    started, go = gate
    with serving(echo(), max_waiting=1) as server:
        first = server.batcher.submit(Job(["My name"]))
        assert started.wait(HANG)
        second = server.batcher.submit(Job(["live"]))
        reply = server.post({"text": "see"})
        assert reply.status == 503
        assert int(reply.headers["Retry-After"]) > 0
        go.set()
        assert first.result(HANG)
        assert second.result(HANG)
        assert server.post({"text": "see"}).status == 200


def record_jobs(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[Future[list[Translation]]]:
    """The futures of all jobs that a server submits from now on."""
    futures: list[Future[list[Translation]]] = []
    submit = server.batcher.submit
    monkeypatch.setattr(server.batcher, "submit", lambda job: futures.append(submit(job)) or futures[-1])
    return futures


def is_cancelled(future: Future[list[Translation]]) -> bool:
    """Wait until a future is done; whether it was cancelled."""
    done = Event()
    future.add_done_callback(lambda _: done.set())
    return done.wait(HANG) and future.cancelled()


def test_slow_requests_time_out(gate: tuple[Event, Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against waiting for another client's long text; the job is cancelled."""
    _, go = gate
    with serving(echo(), max_wait=0.2) as server:
        futures = record_jobs(server, monkeypatch)
        reply = server.post({"text": "see"})
        assert reply.status == 504
        assert "not translated within" in reply.json["detail"]
        assert is_cancelled(futures[0])
        go.set()


def test_a_disconnect_cancels_the_job(gate: tuple[Event, Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards other clients: the page cancels a request with each further letter typed."""
    started, go = gate
    with serving(echo()) as server:
        futures = record_jobs(server, monkeypatch)
        body = b'{"text": "see"}'
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
            assert started.wait(HANG)
        assert is_cancelled(futures[0])
        go.set()
        assert server.post({"text": "see"}).status == 200


def test_shutdown_waits_for_accepted_requests(gate: tuple[Event, Event]) -> None:
    """Guards a request that arrived just before Ctrl-C."""
    started, go = gate
    with serving(echo()) as server, ThreadPoolExecutor(1) as client:
        reply = client.submit(server.post, {"text": "see"})
        assert started.wait(HANG)
        server.stop()
        go.set()
        assert reply.result(HANG).json["translations"][0]["translation"] == "see"


def test_shutdown_answers_what_it_cannot_finish(gate: tuple[Event, Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against waiting a minute for a long translation, and then giving no answer."""
    started, go = gate
    monkeypatch.setattr(limits, "FINISH_TIMEOUT", 0.2)
    with serving(echo()) as server, ThreadPoolExecutor(1) as client:
        reply = client.submit(server.post, {"text": "see"})
        assert started.wait(HANG)
        server.stop()
        answer = reply.result(HANG)
        assert answer.status == 503
        assert "shutting down" in answer.json["detail"]
        go.set()


@pytest.fixture
def big_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer of a server is 30 MB, more than a kernel keeps for a client that does not read."""
    monkeypatch.setattr(application, "response", lambda *_: "x" * (30_000_000 - len('""')))


@contextmanager
def unread_answer(server: Server) -> Iterator[socket.socket]:
    """A connection whose client has sent a request and does not read the answer."""
    body = b'{"text": "see"}'
    head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        assert select.select([connection], [], [], HANG)[0]
        yield connection


def is_cut_off(connection: socket.socket) -> bool:
    """Whether the server resets a connection."""
    poll = select.poll()
    poll.register(connection, select.POLLERR)
    return bool(poll.poll(1000 * HANG))


def test_clients_that_do_not_read_are_cut_off(big_answers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards memory: the answer for a client that reads nothing would stay in the server for ever."""
    monkeypatch.setattr(limits, "STALL_TIMEOUT", 2.0)
    with serving(echo()) as server:
        with unread_answer(server) as connection:
            assert is_cut_off(connection)
        assert len(server.post({"text": "see"}).body) == 30_000_000  # one that reads gets everything


def test_shutdown_does_not_wait_for_clients_that_do_not_read(
    big_answers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against waiting a minute for them."""
    monkeypatch.setattr(limits, "FINISH_TIMEOUT", 0.2)
    monkeypatch.setattr(limits, "ABORT_TIMEOUT", 0.5)
    monkeypatch.setattr(limits, "STALL_TIMEOUT", HANG)
    with serving(echo()) as server, unread_answer(server) as connection:
        server.stop()
        assert is_cut_off(connection)


def test_a_new_connection_takes_the_place_of_an_idle_one(gate: tuple[Event, Event]) -> None:
    """Guards clients against others that open connections and send nothing; requests under way are not disturbed."""
    started, go = gate
    address = "127.0.0.1"
    with serving(echo(), max_connections=2) as server, ThreadPoolExecutor(2) as clients:
        oldest, other, newest = (socket.create_connection((address, server.port), timeout=HANG) for _ in range(3))
        with oldest, other, newest:
            assert is_cut_off(oldest)
            newest.sendall(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert newest.recv(2**16).startswith(b"HTTP/1.1 200 ")
        replies = [clients.submit(server.post, {"text": "see"})]
        assert started.wait(HANG)  # before the second one connects, which may take the place of any that is idle
        replies.append(clients.submit(server.post, {"text": "see"}))
        until = time.monotonic() + 60
        while sum(each.is_busy for each in server.listener.connections.values()) < 2:  # the second has not arrived
            assert time.monotonic() < until
            time.sleep(0.01)
        refused = server.get("/info")
        assert refused.status == 503
        assert "--max-connections" in refused.json["detail"]
        assert refused.headers["Retry-After"]
        go.set()
        assert [reply.result(HANG).status for reply in replies] == [200, 200]
        assert server.get("/info").status == 200, "in a moment, as the answer says"


def test_answers_name_the_budget_that_was_met(server: Server) -> None:
    """Guards against requests that cost a hundred times what they look like, and refusals that do not say why."""
    reply = server.post({"text": "\n".join("a" * 2500), "n_best": 10, "beam_size": 10, "attention": True})
    assert reply.status == 413
    assert "--max-work" in reply.json["detail"]
    page = {"n_best": 3, "attention": True}
    assert server.post({"text": "the cat sees the dog. " * 25, **page}).status == 200
    with serving(echo(), max_seconds=1e-9, max_bytes=50_000, max_wait=30) as limited:
        reply = limited.post({"text": "see\n" * 1000})
        assert reply.status == 504
        assert "--max-seconds" in reply.json["detail"]
        reply = limited.post(b" " * 50_001)
        assert reply.status == 413
        assert "50,000 bytes (--max-bytes)" in reply.json["detail"]
        assert limited.get("/info").json["budgets"] == asdict(Limits(max_seconds=1e-9, max_bytes=50_000, max_wait=30))


def test_the_options_of_the_command_are_the_budgets() -> None:
    """Guards the defaults that --help shows, and options that set nothing."""
    options = {option[2:].replace("-", "_"): default for option, _, default, _ in command_line.SERVER_BUDGETS}
    assert options == asdict(Limits())
    assert command_line.parse_serve(["--max-wait", "2.5"]).max_wait == 2.5
    with pytest.raises(SystemExit):
        command_line.parse_serve(["--max-work", "0"])


def test_internal_errors_reveal_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards paths and other clients' texts, which a traceback contains; the next request works."""
    with serving(echo()) as server, monkeypatch.context() as broken:

        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("secret")

        broken.setattr(Translator, "translate_pieces", fail)
        reply = server.post({"text": "see"})
        assert reply.status == 500
        assert b"secret" not in reply.body
        assert b"Traceback" not in reply.body
        assert reply.json["detail"]
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        broken.undo()
        assert server.post({"text": "see"}).status == 200


# --- Other models, starting and stopping ---

LANGUAGE_MODEL = {"model__architecture": "decoder-only", "data__source_lang": None, "tokenizer__shared": True}


@pytest.mark.parametrize(
    "changes",
    [LANGUAGE_MODEL, {"model__architecture": "encoder-only"}],
    ids=["language-model", "encoder-only"],
)
def test_other_models_are_served(tmp_path: Path, changes: dict[str, object]) -> None:
    """Guards models without a source, and without a search or cross-attention."""
    translator = Translator(trained_in(tmp_path, **changes))
    text = "il gatto vede" if translator.config.is_language_model else "the cat sees."
    with serving(translator) as server:
        reply = server.post({"text": text, "n_best": 3, "attention": True})
        assert reply.status == 200, reply.body
        [answer] = reply.json["translations"]
        [sentence] = answer["sentences"]
        assert answer["translation"] == sentence["candidates"][0]["translation"]
        rows = sentence["candidates"][0]["attention"]
        assert [len(row) for row in rows] == [len(sentence["tokens"]) - 1] * len(rows)
        assert server.post({"text": ""}).status == 200
        if translator.config.is_language_model:
            assert server.get("/info").json["source_lang"] is None
            assert answer["translation"].startswith(text)
            assert rows == []


@contextmanager
def program(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The server as a process, and its port."""
    words = [sys.executable, "-m", "dragoman", "serve", "--port", "0", *arguments]
    # In the background of a shell, processes inherit an ignored SIGINT: set a handler, so that the child reacts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(list(map(str, words)), cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        signal.signal(signal.SIGINT, before)
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            assert found, line + process.stderr.read()
            yield process, int(found[1])
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_starts_answers_and_stops(trained: Path, number: signal.Signals) -> None:
    """Guards the whole command: one line when it is ready, a translation, and a clean exit on a signal."""
    with program("--run", trained, "--decoding.beam_size", "2", "--decoding.n_best", "2") as (process, port):
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/translate", json.dumps({"text": TEXTS[0]}), headers)
            reply = json.loads(connection.getresponse().read())
            assert len(reply["translations"][0]["sentences"][0]["candidates"]) == 2
            process.send_signal(number)
            assert process.stderr is not None
            assert process.stderr.read() == ""
        assert process.wait(HANG) in (130, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "code", "fragment"),
    [
        (["--run", "runs/nothing"], 4, "holds no checkpoint"),
        (["--port", "65536"], 2, "--port: 65536 is not"),
        (["--host", "no such host"], 2, "cannot listen"),
        (["--port", "TAKEN"], 2, "in use"),
        (["--decoding.beam_size", "0"], 2, "decoding.beam_size is 0"),
        (["--device", "cuda:99"], 2, "cuda:99"),
    ],
)
def test_mistakes_at_the_start_are_one_line(
    arguments: list[str],
    code: int,
    fragment: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Guards against tracebacks, for instance when a server is already running."""
    monkeypatch.setattr(serve, "tune_device", lambda device: None)  # it would change the digits of other tests
    with listen("127.0.0.1", 0) as taken:
        words = [word.replace("TAKEN", str(taken.getsockname()[1])) for word in arguments]
        try:
            found = run_command("serve", command_line.parse_serve(["--port", "0", *words]))
        except SystemExit as stop:
            found = stop.code
    said = capsys.readouterr().err
    assert found == code, said
    assert fragment in said
    assert said.count("\n") == 1


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards installations without the extra `serve`: the error names the pip command."""
    for name in ("fastapi", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit, match="2"):
        command_line.parse_serve([])
    said = capsys.readouterr().err
    assert "fastapi and uvicorn" in said
    assert "pip install -e '.[serve]'" in said
    assert said.count("\n") == 1


# --- The page ---


def test_the_page_loads_nothing_from_other_hosts(server: Server) -> None:
    """Guards privacy, machines without a network, and the rule that text is never inserted as markup."""
    page = server.get("/").body.decode()
    linked = re.findall(r'(?:src|href)="([^"]*)"', page)
    imported = re.findall(r'from "./([^"]*)"', server.get("/script.js").body.decode())
    assert {"/", *(f"/{path}" for path in linked + imported)} == set(PAGE_FILES)
    for path, (file, media_type) in PAGE_FILES.items():
        reply = server.get(path)
        assert (reply.status, reply.body) == (200, file.read_bytes())
        assert reply.headers["Content-Type"].startswith(media_type)
        text = reply.body.decode()
        assert set(re.findall(r"https?://[^\s\"'`]*", text)) <= {"http://www.w3.org/2000/svg"}  # a name, not an address
        assert not re.search(r"@import|url\(|innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b", text)
    assert not re.search(r"<style|\bstyle=|\bon\w+=|<script(?! type=\"module\" src=)", page)


@pytest.mark.slow
def test_the_api_matches_its_description(server: Server, tmp_path: Path) -> None:
    """Guards /openapi.json, the reference for client authors, with hundreds of valid and invalid requests."""
    tool = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    if not tool:
        pytest.skip("schemathesis is not installed: pip install schemathesis")
    # A body of a megabyte is refused as too long, unread, even if it is invalid for another reason.
    # A document may be unreadable, and its name is not part of the description.
    rejecting = "[checks.negative_data_rejection]\nexpected-statuses = [400, 404, 413, 422]\n"
    rejecting += "[checks.positive_data_acceptance]\nexpected-statuses = [200, 404, 422]\n"
    (tmp_path / "schemathesis.toml").write_text(rejecting, encoding="utf-8")
    address = f"http://127.0.0.1:{server.port}/openapi.json"
    words = [tool, "run", address, "--checks", "all", "--max-examples", "100", "--no-color"]
    result = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=HANG)
    assert result.returncode == 0, result.stdout[-3000:]
