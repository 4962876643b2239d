"""The page and its API, over a real connection: what the translator says, whatever is asked, and nothing more."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from conftest import ROOT, in_child, tiny_config
from dragoman import command_line
from dragoman.__main__ import run as run_command
from dragoman.server import assets
from dragoman.server.batcher import Answer, Batcher, Order
from dragoman.translation import output
from dragoman.translation.translator import Translator
from echo import echo

serve = pytest.importorskip("serve", reason="serve.py needs libraries of its own: pip install -e '.[serve]'")

TEXTS = ["the cat sees the dog.", "this red wine.", "", "and <b>here</b>.\n\nthe dog wants the black bread here today."]


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    """A server that is being tested."""

    port: int
    batcher: Batcher
    end: Callable[[], None]  # asks it to, and does not wait

    def get(self, path: str, method: str = "GET", host: str = "localhost") -> Reply:
        return self._exchange(method, path, None, {"Host": host})

    def post(self, asked: object, kind: str = "application/json") -> Reply:
        body = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
        return self._exchange("POST", "/translate", body, {"Content-Type": kind})

    def _exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())

    def raw(self, head: str) -> bytes:
        """What comes back to the bytes of a request that is never finished, up to the end of the answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(head.replace("\n", "\r\n").encode())
            got = b""
            while not got.endswith(b"}"):
                got += (part := connection.recv(2**16))
                assert part, got
            return got


@contextmanager
def serving(translator: Translator, most_waiting: int = 200, seconds: float = 60) -> Iterator[Server]:
    translator.step = 10
    with serve.listen("127.0.0.1", 0) as listening, closing(Batcher(translator, most_waiting)) as batcher:
        app = serve.application(batcher, serve.introduce(translator), seconds)
        server = serve.server(serve.guarded(app, loopback=True))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()

        def end() -> None:
            server.should_exit = True

        try:
            yield Server(listening.getsockname()[1], batcher, end)
        finally:
            end()
            thread.join()


def trained_in(folder: Path, **changes: object) -> Path:
    config = tiny_config(folder, training__max_steps=10, data__max_length=12, **changes)
    assert in_child(lambda: run_command("train", config)) == 0
    return Path(config.run.dir) / config.run.name


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained for a moment: what it says is nonsense, but always the same nonsense."""
    return trained_in(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def server(trained: Path) -> Iterator[Server]:
    """A server of that run."""
    with serving(Translator(trained)) as found:
        yield found


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Event, Event]]:
    """Translators say by the first event that they have begun, and wait for the second."""
    begun, go = Event(), Event()
    explain = Translator.explain

    def wait(translator: Translator, *texts: Any, **options: Any) -> Any:
        begun.set()
        assert go.wait(60)
        return explain(translator, *texts, **options)

    monkeypatch.setattr(Translator, "explain", wait)
    yield begun, go
    go.set()


# ------------------------------------------------------------------------------------------------------------- the API


@pytest.mark.parametrize("n_best", [1, 3])
def test_the_api_says_what_the_translator_says(trained: Path, server: Server, n_best: int) -> None:
    """Guards the door for programs against the one on the command line: the same, number for number."""
    translator = Translator(trained).with_decoding(n_best=n_best, beam_size=n_best)
    expected = [json.loads(output.as_json(translator, each)) for each in translator.explain(TEXTS)]
    told = server.post({"texts": TEXTS, "n_best": n_best}).json["translations"]
    for each in told:
        each.pop("warnings")
        for sentence in each["sentences"]:
            assert [candidate.pop("attention") for candidate in sentence["candidates"]] == [None] * n_best
    assert told == expected
    [alone] = server.post({"text": TEXTS[3], "n_best": n_best}).json["translations"]
    assert alone["translation"] == expected[3]["translation"]


def test_an_answer_is_written_beside_the_others(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards everybody else, who waited while the megabytes of a long text's attention were made into JSON."""
    threads = []

    def told(*arguments: Any) -> Any:
        threads.append(current_thread())
        return written(*arguments)

    written = serve.told
    monkeypatch.setattr(serve, "told", told)
    assert server.post({"text": TEXTS[0]}).status == 200
    assert "asyncio" in threads[0].name


def test_attention_is_told_to_who_asks(trained: Path, server: Server) -> None:
    """Guards rows and columns, which the page paints words by, and the alignment, which is where they are largest."""
    [told] = server.post({"text": TEXTS[0], "attention": True, "n_best": 2}).json["translations"]
    translator = Translator(trained).with_decoding(n_best=2, beam_size=2)
    for sentence, found in zip(told["sentences"], translator.explain(TEXTS[:1])[0].sentences, strict=True):
        for candidate, other in zip(sentence["candidates"], found.candidates, strict=True):
            rows = candidate["attention"]
            assert len(rows) == len(candidate["alignment"]) == len(other.ids)
            assert {len(row) for row in rows} == {len(sentence["tokens"]) - 1}
            whole = translator.attention(found, other).mean((0, 1))
            for row, expected in zip(rows, whole.tolist(), strict=False):
                assert row == pytest.approx(expected[:-1], abs=1e-3)


def test_fifty_clients_each_get_their_own() -> None:
    """Guards the way back from a batch: an answer that is another's would be read by another."""
    texts = [f"My name is number{i}, and I live in {'see ' * (i % 7)}." for i in range(50)]
    with serving(echo()) as server, ThreadPoolExecutor(50) as clients:
        replies = list(clients.map(lambda text: server.post({"text": text}), texts))
    assert [reply.status for reply in replies] == [200] * 50
    translations = [reply.json["translations"][0]["translation"] for reply in replies]
    assert translations == [" ".join(text.split()) for text in translations]
    assert translations == echo().translate(texts)


def test_warnings_come_with_their_text(server: Server) -> None:
    """Guards what the command line says on standard error, which a client never sees."""
    reply = server.post({"texts": ["the cat.", "the cat " * 50]})
    first, second = (each["warnings"] for each in reply.json["translations"])
    assert not any("in parts" in warning for warning in first)
    assert "a sentence of 100 tokens is translated in parts" in second[0]


def test_info_says_who_answers(server: Server) -> None:
    """Guards the page's heading, and a watcher who asks whether the server is alive."""
    info = server.get("/info").json
    assert info["status"] == "ok"
    assert (info["source_lang"], info["target_lang"], info["run"], info["step"]) == ("en", "it", "tiny", 10)


NUL = "a\0b \u202e<script>alert(1)</script> &amp; {{7*7}}"


@pytest.mark.parametrize("text", [NUL, " \n ", "🙂" * 1000, "x" * serve.CHARACTERS, "שלום \u2028 漢字"])
def test_any_text_is_answered(server: Server, text: str) -> None:
    """Guards against a fault for what nobody types, and against its being taken for anything but text."""
    reply = server.post({"text": text, "attention": True})
    assert reply.status == 200, reply.body[:300]
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.json["translations"][0]["source"] == text


DEEP = b'{"text": ' + b"[" * 20_000


@pytest.mark.parametrize(
    ("body", "status", "fragment"),
    [
        (b"", 400, "JSON"),
        (b"{", 400, "JSON"),
        (DEEP, 400, "JSON"),
        (b"\xff\xfe{\x00}\x00", 400, "JSON"),
        (b'{"text": "\xc3"}', 400, "JSON"),
        (rb'{"text": "\ud800"}', 400, "JSON"),
        (b'{"text": NaN}', 422, "text"),
        (b'{"text": 1e999}', 422, "text"),
        (b'{"text": "a", "n_best": 1e999}', 422, "n_best"),
        (b'{"text": "a", "n_best": ' + b"9" * 5000 + b"}", 400, "number"),
        (b'{"text": "a", "n_best": ' + b"9" * 50 + b"}", 422, "n_best"),
        ({}, 422, "give text or texts"),
        ([], 422, "object"),
        (None, 422, "object"),
        ({"text": None}, 422, "text"),
        ({"text": ["a"]}, 422, "text"),
        ({"texts": "a"}, 422, "texts"),
        ({"texts": []}, 422, "texts"),
        ({"texts": ["a", None]}, 422, "texts.1"),
        ({"texts": ["a"] * (serve.TEXTS + 1)}, 422, "texts"),
        ({"text": "a", "texts": ["a"]}, 422, "give text or texts"),
        ({"text": "x" * (serve.CHARACTERS + 1)}, 422, "text"),
        ({"texts": ["x" * serve.CHARACTERS, "x"]}, 413, "5,000 characters"),
        ({"text": "a", "n_best": 0}, 422, "n_best"),
        ({"text": "a", "n_best": "3"}, 422, "n_best"),
        ({"text": "a", "n_best": True}, 422, "n_best"),
        ({"text": "a", "beam_size": 11}, 422, "beam_size"),
        ({"text": "a", "attention": 1}, 422, "attention"),
        ({"text": "a", "\x1b<b>": 1}, 422, "⟨U+001B⟩"),
    ],
)
def test_a_mistake_is_said_in_a_line(server: Server, body: object, status: int, fragment: str) -> None:
    """Guards the client against riddles, and the server against faults and against repeating what it was sent."""
    reply = server.post(body)
    assert reply.status == status, reply.body
    assert reply.headers["Content-Type"] == "application/json"
    assert fragment in reply.json["detail"]
    assert "\n" not in reply.json["detail"]
    assert len(reply.body) < 400


def test_other_doors_are_closed(server: Server) -> None:
    """Guards forms of other pages, which can send anything but this type, and documentation that loads from afar."""
    assert server.post(b"text=a", "application/x-www-form-urlencoded").status == 415
    assert server.post({"text": "a"}, "text/plain").status == 415
    assert server.post({"text": "a"}, "application/json; charset=utf-8").status == 200
    assert server.get("/translate").status == 405
    assert server.get("/translate").headers["Allow"] == "POST"
    assert server.get("/info", "DELETE").status == 405
    for path in ("/docs", "/redoc", "/../serve.py", "/%2e%2e/serve.py", "/page.js/"):
        assert server.get(path).status in (404, 307), path


def test_what_is_too_long_is_not_even_read(server: Server) -> None:
    """Guards memory: the answer comes before the body has, whether its length was told or not."""
    head = "POST /translate HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
    assert b" 413 " in server.raw(f"{head}Content-Length: 1000000\n\n")
    chunk = f"{2**20:x}\n{'x' * 2**20}\n"
    assert b" 413 " in server.raw(f"{head}Transfer-Encoding: chunked\n\n{chunk}")
    assert server.post(b"x" * 1_000_000).status == 413


def test_who_never_finishes_asking_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the connections that a computer can have: uvicorn kept one without a request for ever."""
    monkeypatch.setattr(serve, "READING", 0.3)
    asked = json.dumps({"text": TEXTS[0]}).encode()
    head = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    whole = head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(asked) + asked
    for begun in (b"", head[:9], whole + head):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(begun)
            got = b""
            while part := connection.recv(2**16):
                got += part
        assert (b" 200 " in got) == (b"text" in begun)


def test_every_answer_keeps_a_browser_safe(server: Server) -> None:
    """Guards errors, too, which are made elsewhere than answers."""
    replies = [server.get(path) for path in ("/", "/page.js", "/page.css", "/info", "/openapi.json", "/nothing")]
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


def test_another_name_for_this_computer_is_refused(server: Server) -> None:
    """Guards against DNS rebinding: a page whose name leads here would read what is translated here."""
    for host in ("evil.org", "evil.org:8000", "127.0.0.1.evil.org", "localhost.evil.org", "[::1", "", "8.8.8.8"):
        assert server.get("/info", host=host).status == 421, host
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1", f"127.0.0.1:{server.port}", "[::1]:8000"):
        assert server.get("/info", host=host).status == 200, host
    assert b" 421 " in server.raw("GET /info HTTP/1.0\n\n")


# ------------------------------------------------------------------------------------------------ crowds, and their end


def test_a_crowd_is_told_to_come_back(gate: tuple[Event, Event]) -> None:
    """Guards a server that takes in more than it can do, until nobody is answered."""
    begun, go = gate
    with serving(echo(), most_waiting=1) as server:
        first = server.batcher.submit(Order(["My name"]))
        assert begun.wait(60)
        second = server.batcher.submit(Order(["live"]))
        reply = server.post({"text": "see"})
        assert reply.status == 503
        assert int(reply.headers["Retry-After"]) > 0
        go.set()
        assert first.result(60)
        assert second.result(60)
        assert server.post({"text": "see"}).status == 200


def caught(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[Future[list[Answer]]]:
    """The futures of what a server takes in from now on."""
    futures: list[Future[list[Answer]]] = []
    submit = server.batcher.submit
    monkeypatch.setattr(server.batcher, "submit", lambda order: futures.append(submit(order)) or futures[-1])
    return futures


def given_up(future: Future[list[Answer]]) -> bool:
    """Whether a future is cancelled, now or soon."""
    done = Event()
    future.add_done_callback(lambda _: done.set())
    return done.wait(60) and future.cancelled()


def test_nobody_waits_for_ever(gate: tuple[Event, Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a client against an endless text of another's; what nobody waits for is no longer worked on."""
    begun, go = gate
    with serving(echo(), seconds=0.2) as server:
        futures = caught(server, monkeypatch)
        reply = server.post({"text": "see"})
        assert begun.is_set()
        assert reply.status == 504
        assert "not translated after" in reply.json["detail"]
        assert given_up(futures[0])
        go.set()


def test_who_hangs_up_is_not_translated_for(gate: tuple[Event, Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the time of the others: each letter typed gives up the request before it."""
    begun, go = gate
    with serving(echo()) as server:
        futures = caught(server, monkeypatch)
        body = b'{"text": "see"}'
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
            assert begun.wait(60)
        assert given_up(futures[0])
        go.set()
        assert server.post({"text": "see"}).status == 200


def test_the_end_waits_for_what_was_taken_in(gate: tuple[Event, Event]) -> None:
    """Guards the client whose request came just before Ctrl-C."""
    begun, go = gate
    with serving(echo()) as server, ThreadPoolExecutor(1) as client:
        reply = client.submit(server.post, {"text": "see"})
        assert begun.wait(60)
        server.end()
        go.set()
        assert reply.result(60).json["translations"][0]["translation"] == "see"


def test_a_fault_tells_the_client_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards paths and pieces of others' texts, which a traceback holds; the next request is answered."""
    with serving(echo()) as server, monkeypatch.context() as broken:

        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("secret")

        broken.setattr(Translator, "explain", fail)
        reply = server.post({"text": "see"})
        assert reply.status == 500
        assert b"secret" not in reply.body
        assert b"Traceback" not in reply.body
        assert reply.json["detail"]
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        broken.undo()
        assert server.post({"text": "see"}).status == 200


# -------------------------------------------------------------------------------------------------- other models, start

LANGUAGE_MODEL = {"model__architecture": "decoder-only", "data__source_lang": None, "tokenizer__shared": True}


@pytest.mark.parametrize(
    "changes",
    [LANGUAGE_MODEL, {"model__architecture": "encoder-only"}],
    ids=["language-model", "encoder-only"],
)
def test_other_models_are_served_as_well(tmp_path: Path, changes: dict[str, object]) -> None:
    """Guards models without a source, without a search, and without attention of one side to the other."""
    translator = Translator(trained_in(tmp_path, **changes))
    text = "il gatto vede" if translator.config.is_language_model else "the cat sees."
    with serving(translator) as server:
        reply = server.post({"text": text, "n_best": 3, "attention": True})
        assert reply.status == 200, reply.body
        [told] = reply.json["translations"]
        [sentence] = told["sentences"]
        assert told["translation"] == sentence["candidates"][0]["translation"]
        rows = sentence["candidates"][0]["attention"]
        assert [len(row) for row in rows] == [len(sentence["tokens"]) - 1] * len(rows)
        assert server.post({"text": ""}).status == 200
        if translator.config.is_language_model:
            assert server.get("/info").json["source_lang"] is None
            assert told["translation"].startswith(text)
            assert rows == []


@contextmanager
def program(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """serve.py at a port that is free, and that port."""
    words = [sys.executable, ROOT / "serve.py", "--port", "0", *arguments]
    # Ctrl-C is heard, even if the tests run in the background of a shell, whose programs inherit that it is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True) as process:
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
def test_the_program_starts_answers_and_stops(trained: Path, number: signal.Signals) -> None:
    """Guards the whole: one line when it is ready, an answer, and an end that is neither a traceback nor a kill."""
    with program("--run", trained, "--decoding.beam_size", "2", "--decoding.n_best", "2") as (process, port):
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/translate", json.dumps({"text": TEXTS[0]}), headers)
            reply = json.loads(connection.getresponse().read())
            assert len(reply["translations"][0]["sentences"][0]["candidates"]) == 2
            process.send_signal(number)
            assert process.stderr is not None
            assert process.stderr.read() == ""
        assert process.wait(60) in (130, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "code", "fragment"),
    [
        (["--run", "runs/nothing"], 4, "holds no checkpoint"),
        (["--port", "65536"], 2, "--port is 65536"),
        (["--host", "no such host"], 2, "cannot listen"),
        (["--port", "TAKEN"], 2, "in use"),
        (["--decoding.beam_size", "0"], 2, "decoding.beam_size is 0"),
        (["--device", "cuda:99"], 2, "cuda:99"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    code: int,
    fragment: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Guards against tracebacks at the start, the commonest mistake of all among them: it is running already."""
    monkeypatch.setattr(serve, "tune", lambda device: None)  # which would change other tests' last digits
    with serve.listen("127.0.0.1", 0) as taken:
        words = [word.replace("TAKEN", str(taken.getsockname()[1])) for word in arguments]
        try:
            found = run_command("serve", command_line.parse_serve(["--port", "0", *words]))
        except SystemExit as end:
            found = end.code
    said = capsys.readouterr().err
    assert found == code, said
    assert fragment in said
    assert said.count("\n") == 1


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards who has installed Dragoman without its extra: what to type, in a line."""
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        serve.parse([])
    said = capsys.readouterr().err
    assert "fastapi and uvicorn" in said
    assert "pip install -e '.[serve]'" in said
    assert said.count("\n") == 1


# ------------------------------------------------------------------------------------------------------------ the page


def test_the_page_loads_nothing_from_elsewhere(server: Server) -> None:
    """Guards a reader's privacy, a machine without a network, and the rule that text is never markup."""
    assert server.get("/").body.decode() == assets.PAGE
    for path in re.findall(r'(?:src|href)="([^"]*)"', assets.PAGE):
        assert server.get(f"/{path}").status == 200
    names = {"http://www.w3.org/2000/svg"}  # of a language, not an address
    for text in (assets.PAGE, assets.STYLE, assets.SCRIPT, assets.ICON):
        assert set(re.findall(r"https?://[^\s\"'`]*", text)) <= names
        assert not re.search(r"@import|url\(|innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b", text)
    assert not re.search(r"<style|\bstyle=|\bon\w+=|<script(?! type=\"module\" src=)", assets.PAGE)


def test_the_page_is_light_or_dark() -> None:
    """Guards colours that would not change with the reader's wish."""
    roots = re.findall(r":root \{(.*?)\}", assets.STYLE, re.DOTALL)
    light, dark = (set(re.findall(r"(--[\w-]+):", root)) for root in roots)
    used = set(re.findall(r"var\((--[\w-]+)", assets.STYLE)) - {"--share"}
    assert light == dark == used
    assert "#" not in re.sub(r":root \{.*?\}|#[a-z]+(?=[\s,.\[{:>])", "", assets.STYLE, flags=re.DOTALL)


@pytest.mark.slow
def test_the_api_is_as_it_is_described(server: Server, tmp_path: Path) -> None:
    """Guards /openapi.json, by which clients are written: hundreds of requests that it allows or forbids."""
    tool = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    if not tool:
        pytest.skip("schemathesis is not installed: pip install schemathesis")
    # A body of a megabyte is refused as too long before it is read, whatever else is wrong with it.
    rejecting = "[checks.negative_data_rejection]\nexpected-statuses = [400, 413, 415, 422]\n"
    (tmp_path / "schemathesis.toml").write_text(rejecting, encoding="utf-8")
    address = f"http://127.0.0.1:{server.port}/openapi.json"
    words = [tool, "run", address, "--checks", "all", "--max-examples", "100", "--no-color"]
    result = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout[-3000:]


HTML = "My name is <img src=x onerror=alert(1)><b>Anna</b>, see"


@pytest.fixture
def browse() -> Iterator[Callable[[str], Any]]:
    """Open a page in Debian's Chromium."""
    driver = pytest.importorskip("playwright.sync_api", reason="a browser is driven by it: pip install playwright")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not chromium:
        pytest.skip("there is no Chromium here: apt install chromium")
    with driver.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)

        def page_at(address: str) -> Any:
            page = browser.new_page()
            page.asked = []
            page.faults = []
            page.on("request", lambda request: page.asked.append(request.url))
            page.on("pageerror", lambda error: page.faults.append(str(error)))
            page.on("console", lambda message: page.faults.append(message.text))
            page.on("dialog", lambda dialog: page.faults.append(dialog.message))
            page.goto(address)
            return page

        yield page_at
        browser.close()


@pytest.mark.slow
def test_the_page_translates_while_one_types(browse: Callable[[str], Any]) -> None:
    """Guards the page as people have it: typing, looking, choosing, with the pointer and without."""
    with serving(echo()) as server:
        address = f"http://127.0.0.1:{server.port}/"
        page = browse(address)
        source, target = page.locator("#source"), page.locator("#target")
        page.get_by_text("English to Italian").wait_for()
        source.press_sequentially("My name is Anna, and I live in")
        page.locator("#target:has-text('I live in')").wait_for()
        rows = page.locator(".words")
        words = rows.nth(1).locator("button")
        assert words.nth(3).text_content() == "Anna"
        assert "copied from Anna" in words.nth(3).get_attribute("aria-label")
        assert "unknown" in rows.nth(0).locator("button").nth(3).get_attribute("class")

        shares = "all => all.map(word => Number(word.style.getPropertyValue('--share')))"
        words.nth(1).hover()
        assert rows.nth(0).locator("button").evaluate_all(shares)[:3] == [0, 1, 0]
        assert rows.nth(0).locator("button").nth(1).text_content() == "name100%"
        page.mouse.move(0, 0)
        assert sum(rows.nth(0).locator("button").evaluate_all(shares)) == 0

        words.nth(0).focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert rows.nth(0).locator("button").evaluate_all(shares)[:4] == [0, 0, 1, 0]
        assert page.evaluate("document.activeElement.tabIndex") == 0

        choices = page.get_by_role("radio")
        assert choices.count() == 3
        assert choices.nth(0).is_checked()
        other = page.locator(".others label span").nth(1).text_content()
        choices.nth(1).check()
        assert target.text_content() == other

        source.fill(HTML)
        page.locator("#target:has-text('onerror')").wait_for()
        assert target.text_content() == echo("beam_size=3", "n_best=3").translate([HTML])[0]
        assert "<img" in target.text_content()
        assert page.locator("main img, main b:not(.word)").count() == 0
        assert page.locator("summary").text_content() == HTML

        source.fill("")
        page.locator("#how").wait_for(state="hidden")
        assert target.text_content() == ""
        assert page.faults == []
        assert {url.startswith(address) for url in page.asked} == {True}


@pytest.mark.slow
def test_the_page_gives_up_what_is_stale(browse: Callable[[str], Any], gate: tuple[Event, Event]) -> None:
    """Guards the order of answers: the translation shown is that of the text that stands there."""
    begun, go = gate
    with serving(echo()) as server:
        page = browse(f"http://127.0.0.1:{server.port}/")
        page.get_by_text("English to Italian").wait_for()
        page.locator("#source").fill("My name")
        page.locator("#target[aria-busy=true]").wait_for()
        assert begun.wait(60)
        with page.expect_event("requestfailed"):
            page.locator("#source").fill("I live in")
        go.set()
        page.locator("#target:has-text('I live in')").wait_for()
        assert page.locator("#status").text_content() == ""
        assert page.faults == []
