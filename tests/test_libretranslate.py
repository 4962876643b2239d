"""Clients of LibreTranslate talk to our server unchanged, and what the options of the server allow or forbid."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deep_translator
import pytest
import requests
from libretranslatepy import LibreTranslateAPI
from starlette.testclient import TestClient

from dragoman.errors import ConfigError, DataError
from dragoman.server.access import Access, read_keys
from dragoman.server.application import create_application
from dragoman.server.batcher import Batcher
from dragoman.server.models import Models
from dragoman.server.security import only_for
from echo import echo, reconfigured
from test_serve import Server, serving

TEXT = "My name is Anna."


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(echo()) as running:
        yield running


@pytest.fixture(scope="module")
def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}/"


# ---- Clients of others


def test_libretranslatepy(address: str) -> None:
    client = LibreTranslateAPI(address)
    assert client.translate(TEXT, "en", "it") == TEXT
    assert client.detect("Where is the station of this town?")[0]["language"] == "en"
    assert {each["code"]: each["targets"] for each in client.languages()} == {"en": ["it"], "it": []}
    assert {each["name"] for each in client.languages()} == {"English", "Italian"}


def test_deep_translator(address: str) -> None:
    """It sends everything in the address."""
    client = deep_translator.LibreTranslator("en", "it", api_key="some key", custom_url=address)
    assert client.translate(TEXT) == TEXT
    assert client.translate_batch([TEXT, "in Rome"]) == [TEXT, "in Rome"]


def test_a_file_comes_back(address: str) -> None:
    """As the documentation of LibreTranslate describes it; the name says the language, and nothing can be guessed."""
    source = b"<p>My name is <b>Anna</b>.</p>"
    form = {"source": "en", "target": "it"}
    answer = requests.post(f"{address}translate_file", form, files={"file": ("page.en.html", source)}, timeout=30)
    found = answer.json()["translatedFileUrl"]
    assert found.startswith(f"{address}download_file/")
    assert found.endswith(".page.it.html")
    translated = requests.get(found, timeout=30)
    assert translated.content == source
    assert translated.headers["Content-Disposition"] == 'attachment; filename="page.it.html"'
    missing = requests.get(found[:-20], timeout=30)
    assert (missing.status_code, "translate it again" in missing.json()["error"]) == (404, True)


@pytest.mark.parametrize(
    ("name", "content", "fragment"),
    [
        ("a.docx", b"PK\x03\x04", "not a whole .zip"),
        ("a.pdf", b"%PDF-", "is not translated"),
        ("../../etc/x.txt", b"\xff", "not UTF-8"),
        ("a.txt", None, "missing file parameter"),
    ],
)
def test_a_file_that_cannot_be_read(address: str, name: str, content: bytes | None, fragment: str) -> None:
    files = {"file": (name, content)} if content else {"other": (name, b"x")}
    answer = requests.post(f"{address}translate_file", {"source": "en", "target": "it"}, files=files, timeout=30)
    assert answer.status_code in (400, 422)
    assert fragment in answer.json()["error"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"q": TEXT, "source": "en", "target": "it"}, {"translatedText": TEXT}),
        ({"q": [TEXT, "Rome"], "source": "en", "target": "it"}, {"translatedText": [TEXT, "Rome"]}),
        (
            {"q": "My <b>name</b>", "source": "en", "target": "it", "format": "html"},
            {"translatedText": "My <b>name</b>"},
        ),
        ({"q": "", "source": "en", "target": "it"}, {"translatedText": ""}),
    ],
)
def test_json(server: Server, asked: dict[str, Any], expected: dict[str, Any]) -> None:
    assert server.post(asked).json == expected


def test_a_language_is_detected(server: Server) -> None:
    text = "Where is the station of this town?"
    answer = server.post({"q": [text], "source": "auto", "target": "it", "alternatives": 2}).json
    [detected] = answer["detectedLanguage"]
    assert detected["language"] == "en"
    assert 50 < detected["confidence"] <= 100
    assert answer["translatedText"] == [text]
    assert len(answer["alternatives"][0]) <= 2


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"q": TEXT, "source": "en"}, "Invalid request: missing target parameter"),
        (
            {"q": TEXT, "source": "en", "target_lang": "it"},
            "missing target parameter: beside q, target_lang is called target",
        ),
        ({"q": TEXT, "source": "en", "target": "xx"}, "xx is not supported"),
        ({"q": TEXT, "source": "en", "target": "it", "format": "pdf"}, "format: Input should be 'text' or 'html'"),
        ({"q": "a" * 5001, "source": "en", "target": "it"}, "at most 5000 characters"),
        ({"q": 7, "source": "en", "target": "it"}, "Input should be a valid string"),
        ({"q": [], "source": "en", "target": "it"}, "Invalid request"),
        ({"q": TEXT, "source": "it", "target": "it"}, "it is not supported"),
    ],
)
def test_errors(server: Server, asked: dict[str, Any], error: str) -> None:
    """In the form of LibreTranslate, with the field at fault."""
    reply = server.post(asked)
    assert reply.status == 400, reply.body
    assert error in reply.json["error"]


@pytest.mark.parametrize(
    ("field", "hint"),
    [("query", "text"), ("source", "source_lang"), ("target_language", "target_lang"), ("xyz", "/docs")],
)
def test_a_wrong_field_names_the_right_one(server: Server, field: str, hint: str) -> None:
    assert hint in server.post({"text": TEXT, field: "x"}).json["detail"]


def test_what_clients_ask_first(server: Server) -> None:
    settings = server.get("/frontend/settings").json
    assert settings["charLimit"] == 5000
    assert settings["keyRequired"] is False
    assert ".docx" in settings["supportedFilesFormat"]
    assert server.get("/health").json == {"status": "ok"}
    assert server.get("/spec").json == server.get("/openapi.json").json
    page = server.get("/docs").body.decode()
    assert "POST /translate" in page
    assert "<script" not in page


# ---- Options


def client_of(access: Access, with_metrics: bool = False, translators: int = 1) -> Iterator[TestClient]:
    """A client of an application without a network."""
    translator = echo()
    translator.step, translator.path = 1, Path("echo")
    other_way = ["--data.source_lang=it", "--data.target_lang=en"]
    batchers = [Batcher(reconfigured(translator, *(other_way * i))) for i in range(translators)]
    try:
        app = create_application(Models(batchers), access, with_metrics)
        yield TestClient(only_for(app, access.names), base_url="http://localhost")
    finally:
        for batcher in batchers:
            batcher.close()


ASKED = {"q": TEXT, "source": "en", "target": "it"}


def test_keys(tmp_path: Path) -> None:
    """In each place where clients put them; nothing is translated without one, and pages can be read."""
    path = tmp_path / "keys"
    path.write_text("# of our team\nanna: 0123456789\nabcdefghij\n")
    for client in client_of(Access(read_keys(path))):
        for key in ("0123456789", "abcdefghij"):
            assert client.post("/translate", json=ASKED | {"api_key": key}).status_code == 200
            assert client.post("/translate", data=ASKED | {"api_key": key}).status_code == 200
            assert client.post("/translate", params=ASKED | {"api_key": key}).status_code == 200
            own = client.post("/translate", json={"text": TEXT}, headers={"Authorization": f"Bearer {key}"})
            assert own.status_code == 200
        for key in ("", "anna", "0123456789 ", "012345678"):
            for content in (ASKED, {"text": TEXT}):
                reply = client.post("/translate", json=content | {"api_key": key})
                assert (reply.status_code, "API key" in reply.json()["error"]) == (403, True)
            assert client.post("/detect", data={"q": TEXT, "api_key": key}).status_code == 403
            upload = client.post(
                "/translate_file", files={"file": ("a.txt", b"a")}, data={"target": "it", "api_key": key}
            )
            assert upload.status_code == 403
        for page in ("/", "/info", "/languages", "/health", "/frontend/settings"):
            assert client.get(page).status_code == 200
        assert client.get("/frontend/settings").json()["keyRequired"] is True


@pytest.mark.parametrize(
    ("text", "message"), [("", "has no key"), ("short\n", "fewer than 8"), (None, "cannot be read")]
)
def test_a_file_of_keys_that_does_not_protect_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "keys"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_keys(path)


def test_rate() -> None:
    """For each address; behind a proxy that of its client, and only then."""
    for client in client_of(Access(rate=2)):
        codes = [
            client.post("/translate", json=ASKED, headers={"X-Forwarded-For": str(i)}).status_code for i in range(4)
        ]
        assert codes == [200, 200, 429, 429]
        refused = client.post("/translate", json=ASKED)
        assert 1 <= int(refused.headers["Retry-After"]) <= 31
        assert client.get("/info").status_code == 200
    for client in client_of(Access(rate=2, names=["translate.example.org"])):
        for i in range(4):
            headers = {"Host": "translate.example.org", "X-Forwarded-For": f"1.1.1.1, 2.2.2.{i}"}
            assert client.post("/translate", json=ASKED, headers=headers).status_code == 200


def test_names_and_origins() -> None:
    """Other names are refused with the remedy; other pages can use the API only if --cors says so."""
    foreign = {"Origin": "https://other.example"}
    for client in client_of(Access(names=["translate.example.org"], origins=["https://app.example"])):
        assert client.get("/health", headers={"Host": "translate.example.org"}).status_code == 200
        refused = client.get("/health", headers={"Host": "evil.example"})
        assert (refused.status_code, "--public-name" in refused.json()["error"]) == (421, True)
        allowed = client.post("/translate", data=ASKED, headers={"Origin": "https://app.example"})
        assert allowed.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert client.post("/translate", data=ASKED, headers=foreign).status_code == 403
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        assert client.options("/translate", headers={"Origin": "https://app.example"} | asked).status_code == 200
        assert client.options("/translate", headers=foreign | asked).status_code == 400
        own = {"Origin": "https://translate.example.org", "Host": "translate.example.org", "X-Forwarded-Proto": "https"}
        files = {"file": ("a.txt", b"My name")}
        url = client.post("/translate_file", files=files, data={"target": "it"}, headers=own).json()[
            "translatedFileUrl"
        ]
        assert url.startswith("https://translate.example.org/download_file/")


def test_metrics() -> None:
    for client in client_of(Access(), with_metrics=True):
        client.post("/translate", json=ASKED)
        client.get("/made-up")
        figures = client.get("/metrics").text
        assert 'dragoman_requests_total{path="/translate",status="200"} 1.0' in figures
        assert 'dragoman_requests_total{path="other",status="404"} 1.0' in figures
        assert f'dragoman_characters_total{{source="en",target="it"}} {len(TEXT)}.0' in figures
    for client in client_of(Access()):
        assert client.get("/metrics").status_code == 404


def test_several_runs() -> None:
    """Each request goes to the run that translates it."""
    for client in client_of(Access(), translators=2):
        directions = [(each["source_lang"], each["target_lang"]) for each in client.get("/info").json()["directions"]]
        assert directions == [("en", "it"), ("it", "en")]
        assert client.post("/translate", json={"q": TEXT, "source": "it", "target": "en"}).status_code == 200
        assert client.post("/translate", json={"text": TEXT, "target_lang": "en"}).status_code == 200
        both = ["Where is the station of this town?", "Dov'è la stazione di questa città?"]
        mixed = client.post("/translate", json={"q": both, "source": "auto", "target": "it"})
        assert (mixed.status_code, "several languages" in mixed.json()["error"]) == (400, True)
        refused = client.post("/translate", json={"text": TEXT, "target_lang": "fr"})
        assert (refused.status_code, "only en to it, it to en" in refused.json()["detail"]) == (422, True)
    translator = echo()
    translator.path = Path("echo")
    batchers = [Batcher(translator), Batcher(translator)]
    with pytest.raises(ConfigError, match="both translate en to it"):
        Models(batchers)
    for batcher in batchers:
        batcher.close()


def test_a_large_document_is_translated_in_parts() -> None:
    """Guards against budgets of a request that refuse what is a book; the texts come back in order."""
    lines = [f"My name is {i}." for i in range(2_000)]
    with serving(echo(), max_work=30_000) as running:
        address = f"http://127.0.0.1:{running.port}/"
        files = {"file": ("book.txt", "\n".join(lines).encode())}
        answer = requests.post(f"{address}translate_file", {"target": "it"}, files=files, timeout=60)
        content = requests.get(answer.json()["translatedFileUrl"], timeout=30).content.decode()
        assert content.split("\n") == lines
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("x", bytes(2**20))
        assert json.loads(requests.get(f"{address}health", timeout=30).content) == {"status": "ok"}


def test_a_request_counts_once() -> None:
    """Guards --rate for our own requests that mention q, which are looked at as both dialects."""
    for client in client_of(Access(rate=2)):
        codes = [client.post("/translate", json={"text": "q"}).status_code for _ in range(3)]
        assert codes == [200, 200, 429]
