"""Corpora from the internet: found by name, downloaded whole or not at all, and not needed again.

The server is a local one that speaks as OPUS does, see `loopback`. No test uses the network.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset
from sacrebleu.dataset.plain_text import PlainTextDataset
from sacrebleu.dataset.wmt_xml import WMTXMLDataset

from conftest import HANG, ROOT, in_child, tiny_pairs, write_tsv
from dragoman.__main__ import run as run_command
from dragoman.corpora.downloads import fetch, opus, sacrebleu_sets
from dragoman.corpora.downloads.fetch import read_record
from dragoman.corpora.preparation import prepare_data
from dragoman.corpora.sources import find_named, find_source, find_sources
from dragoman.corpora.splitting import read_split
from dragoman.errors import DataError, NetworkError, OtherLanguagesError, StorageError
from dragoman.settings import Config, DataConfig
from loopback import LICENCE, Loopback, unused_port, wait_until, zip_of

PAIRS = tiny_pairs(300)
NAME = "opus:Tatoeba-v2023-04-12"
DATA = DataConfig(source_lang="en", target_lang="it", train=NAME)
CONTENT = zip_of(PAIRS)
HALF = len(CONTENT) // 2


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Loopback]:
    """A server with three versions of a corpus, which the settings point to. Nothing sleeps between attempts."""
    with Loopback() as server:
        server.add("Tatoeba", "v2", "en-it", zip_of(PAIRS[:50]), latest=False)
        server.add("Tatoeba", "v2023-04-12", "en-it", CONTENT)
        server.add("Tatoeba", "v20190709", "en-it", zip_of(PAIRS[:70]), latest=False)
        server.add("Books", "v1", "en-fr", zip_of(PAIRS, "en-fr", "Books"))
        monkeypatch.setenv("DRAGOMAN_OPUS_API", f"{server.url}/opusapi/")
        monkeypatch.setenv("DRAGOMAN_SACREBLEU_MIRROR", f"{server.url}/mirror/")
        monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr(fetch, "sleep", lambda seconds: None)
        opus._latest.cache_clear()
        yield server


def get(name: str = NAME, data: DataConfig = DATA) -> Path:
    """The file that a setting names, after downloading it."""
    return find_source("train", data, name).files[0]


def cached(version: str = "v2023-04-12") -> Path:
    return fetch.cache_folder() / "opus" / "Tatoeba" / version / "en-it.txt.zip"


def leftovers(path: Path) -> list[str]:
    """The files in the folder of a download."""
    return sorted(each.name for each in path.parent.glob("*") if each.suffix != ".lock")


# --- OPUS -----------------------------------------------------------------------------------------------------------


def test_corpus_of_opus_is_downloaded_once(server: Loopback, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_split("train", find_sources(replace(DATA, validation_fraction=0.01, test_fraction=0)), DATA) != []
    path = get()
    assert path == cached()
    assert path.read_bytes() == CONTENT
    assert len(server.log) == len(server.asked) == 1
    assert "preprocessing=moses" in server.asked[0]
    assert leftovers(path) == ["en-it.txt.zip", "en-it.txt.zip.json"]
    record = read_record(path)
    assert record is not None
    assert (record.sha256, record.size) == (hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
    assert record.url == server.index[1]["url"]
    assert record.licence == LICENCE
    said = capsys.readouterr()
    assert said.out == ""  # `dragoman check --json` prints JSON there
    assert record.url in said.err


def test_pairs_are_those_of_the_corpus_in_both_directions(server: Loopback) -> None:
    """Guards the sides: OPUS has one file for both directions, with its languages in the order of the alphabet."""
    one = replace(DATA, validation_fraction=0.001, test_fraction=0)
    other = replace(one, source_lang="it", target_lang="en")
    forwards, backwards = (
        [pair for split in ("train", "validation") for pair in read_split(split, find_sources(data), data)]
        for data in (one, other)
    )
    assert sorted(forwards) == sorted(PAIRS)
    assert sorted(backwards) == sorted((b, a) for a, b in PAIRS)
    assert len(server.log) == 1


def test_directions_use_the_pairs_that_opus_has(server: Loopback) -> None:
    """Guards corpora in three languages: a pair that OPUS lacks is left out, as in a folder of files."""
    server.add("Tatoeba", "v2023-04-12", "en-fr", zip_of(PAIRS[:9], "en-fr"))
    data = replace(DATA, directions="en-it, it-en, en-fr, it-fr")
    found = find_sources(data)
    assert [source.languages for source in found] == [("en", "it"), ("en", "fr")]
    assert [path.name for source in found for path in source.files] == ["en-it.txt.zip", "en-fr.txt.zip"]


@pytest.mark.parametrize("marked", [True, False])
def test_without_a_version_the_latest_is_used(
    server: Loopback, capsys: pytest.CaptureFixture[str], marked: bool
) -> None:
    """Guards the order of versions, v20190709 before v2023-04-12; the index marks none of a few hundred pairs."""
    server.index[1]["latest"] = str(marked)
    assert get("opus:Tatoeba") == cached()
    said = re.search(r"opus:Tatoeba is (\S+): name that to train on the same again", capsys.readouterr().err)
    assert said
    assert get(said[1]) == cached()
    asked = len(server.asked)
    assert get("opus:Tatoeba") == cached()
    assert len(server.asked) == asked
    opus._latest.cache_clear()  # as in another process
    server.stop()
    assert get("opus:Tatoeba") == cached()
    assert "the latest in the cache" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "changes", "error", "fragments"),
    [
        ("opus:tatoebe", {}, DataError, ["no corpus tatoebe", "did you mean opus:Tatoeba?"]),
        ("opus:Xyz", {}, DataError, ["no corpus Xyz", "https://opus.nlpl.eu"]),
        (
            "opus:Tatoeba-v2023-04-21",
            {},
            DataError,
            ["OPUS has for en-it are v2023-04-12, v20190709, v2."],
        ),
        ("opus:Books-v1", {}, OtherLanguagesError, ["no en-it in Books: with en it has fr; it has no it"]),
        ("opus:Books", {}, OtherLanguagesError, ["no en-it in Books"]),
        ("opus:../x", {}, DataError, ["written as opus:Tatoeba-v2023-04-12"]),
        ("opus:", {}, DataError, ["written as opus:Tatoeba-v2023-04-12"]),
        (NAME, {"source_lang": None}, DataError, ["set data.source_lang"]),
        (NAME, {"target_lang": "../it"}, DataError, ["../it is not a language code"]),
    ],
)
def test_what_opus_lacks_is_said(
    server: Loopback, name: str, changes: dict[str, Any], error: type, fragments: list[str]
) -> None:
    with pytest.raises(error) as raised:
        get(name, replace(DATA, **changes))
    assert str(raised.value).startswith(f"data.train is {name}, ")
    for fragment in fragments:
        assert fragment in str(raised.value)
    assert server.log == []
    assert not list(fetch.cache_folder().rglob("*.zip"))


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"corpora": 3}', b'{"corpora": [{"version": "../v2"}]}'])
def test_strange_answer_of_the_index_is_an_error(
    server: Loopback, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    """Guards against pages of a captive portal, and against a version that leads out of the cache."""
    monkeypatch.setattr("loopback.Handler._answer", lambda self, query: {})
    monkeypatch.setattr("loopback.json", SimpleNamespace(dumps=lambda values: answer.decode()))
    with pytest.raises(DataError):
        get()


def test_only_web_addresses_are_opened(server: Loopback, tmp_path: Path) -> None:
    """Guards against an index that names a file of this machine, directly or by a redirect."""
    secret = write_tsv(tmp_path / "secret.tsv", PAIRS)
    server.index[1]["url"] = secret.as_uri()
    with pytest.raises(DataError, match="must begin with https://"):
        get()
    server.index[1]["url"] = server.index[0]["url"]
    server.faults = [f"to {secret.as_uri()}", *["to ftp://127.0.0.1/x"] * 9]
    with pytest.raises(NetworkError):
        get()
    assert not cached().exists()


def test_redirect_to_another_address_is_followed(server: Loopback) -> None:
    server.faults = [f"to {server.url}/OPUS-Tatoeba/v2023-04-12/moses/en-it.txt.zip"]
    assert get().read_bytes() == CONTENT


# --- Servers that fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("validators", ["etag", "date"])
def test_broken_download_is_continued(server: Loopback, validators: str) -> None:
    server.validators = validators
    server.faults = [f"drop {HALF}", "500", "503", "drop 1000"]
    assert get().read_bytes() == CONTENT
    assert [request.sent for request in server.log] == [HALF, 0, 0, 1000, len(CONTENT) - HALF - 1000]
    assert [request.range for request in server.log[1:]] == [f"bytes={HALF}-"] * 3 + [f"bytes={HALF + 1000}-"]
    assert leftovers(cached()) == ["en-it.txt.zip", "en-it.txt.zip.json"]


def test_server_without_ranges_starts_over(server: Loopback) -> None:
    server.ranges = False
    server.faults = [f"drop {HALF}", "drop 10"]
    assert get().read_bytes() == CONTENT
    assert [(request.status, request.sent) for request in server.log] == [(200, HALF), (200, 10), (200, len(CONTENT))]


@pytest.mark.parametrize("validators", ["weak", "none"])
def test_file_without_a_version_starts_over(server: Loopback, validators: str) -> None:
    """Guards against joining pieces of two files: without a strong ETag or a date nothing says that they are one."""
    server.validators = validators
    server.faults = [f"drop {HALF}"]
    assert get().read_bytes() == CONTENT
    assert [request.range for request in server.log] == [None, None]


@pytest.mark.parametrize("longer", [True, False])
def test_file_that_changed_in_between_starts_over(server: Loopback, longer: bool) -> None:
    other = zip_of(tiny_pairs(400 if longer else 20, seed=3))
    server.faults = [f"drop {HALF}", "503", "503", "503", "503"]
    with pytest.raises(NetworkError):
        get()
    assert cached().with_name("en-it.txt.zip.part").stat().st_size == HALF
    server.files["/OPUS-Tatoeba/v2023-04-12/moses/en-it.txt.zip"] = other
    assert get().read_bytes() == other
    assert server.log[-1].status == 200
    record = read_record(cached())
    assert record is not None
    assert record.sha256 == hashlib.sha256(other).hexdigest()


def test_part_that_is_longer_than_the_file_starts_over(server: Loopback) -> None:
    """Guards against 416 for ever, when the version of a file is its date."""
    server.faults = [f"drop {HALF}", "503", "503", "503", "503"]
    with pytest.raises(NetworkError):
        get()
    with cached().with_name("en-it.txt.zip.part").open("ab") as part:
        part.write(bytes(len(CONTENT)))
    assert get().read_bytes() == CONTENT
    assert [request.status for request in server.log[-2:]] == [416, 200]


@pytest.mark.parametrize("fault", ["404", "403"])
def test_refusal_is_final(server: Loopback, fault: str) -> None:
    server.faults = [fault]
    with pytest.raises(NetworkError, match=f"{fault}.* put it at .*en-it.txt.zip$") as raised:
        get()
    assert len(server.log) == 1
    assert leftovers(cached()) == []
    Path(str(raised.value).rpartition("put it at ")[2]).write_bytes(CONTENT)
    assert get() == cached()


def test_server_is_asked_three_more_times(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(fetch, "sleep", pauses.append)
    server.faults = ["500"] * 9
    with pytest.raises(NetworkError, match="500"):
        get()
    assert pauses == [1, 2, 4]
    assert len(server.log) == 4


def test_progress_resets_the_count_of_failures(server: Loopback) -> None:
    """Guards large downloads over a bad line, which break off many times but get on."""
    server.faults = ["drop 100"] * 9
    assert get().read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("faults", "fragment"),
    [
        (["silent"] * 4, "timed out"),
        (["long"] * 9, f"breaks off after {len(CONTENT):,} of {len(CONTENT) + 10:,} bytes"),
        (["chunked"] * 9, "IncompleteRead"),
        (["short"], "is damaged"),
        (["unsized 5000"], "is damaged"),
    ],
)
def test_incomplete_file_never_gets_its_name(
    server: Loopback, monkeypatch: pytest.MonkeyPatch, faults: list[str], fragment: str
) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT", 0.2 if faults[0] == "silent" else 30)
    server.faults, server.validators = list(faults), "none"
    with pytest.raises(DataError) as raised:
        get()
    assert fragment in str(raised.value)
    assert not cached().exists()
    assert read_record(cached()) is None
    monkeypatch.setattr(fetch, "TIMEOUT", 30)
    server.faults = []
    assert get().read_bytes() == CONTENT


def test_file_of_unknown_size_is_downloaded(server: Loopback) -> None:
    server.faults = ["unsized"]
    assert get().read_bytes() == CONTENT


def test_damaged_zip_is_an_error(server: Loopback) -> None:
    """Guards against a byte that changed on the way: the checksums in the .zip are compared."""
    at = CONTENT.index(PAIRS[150][1].encode())
    server.files["/OPUS-Tatoeba/v2023-04-12/moses/en-it.txt.zip"] = CONTENT[:at] + b"?" + CONTENT[at + 1 :]
    with pytest.raises(DataError, match=r"Tatoeba.en-it.it|checksum") as raised:
        get()
    assert server.url in str(raised.value)
    assert leftovers(cached()) == []
    assert len(server.log) == 1
    assert "Run the same command again" in str(raised.value)
    server.files["/OPUS-Tatoeba/v2023-04-12/moses/en-it.txt.zip"] = CONTENT
    assert get().read_bytes() == CONTENT


def test_without_a_network_the_message_says_what_to_download(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_OPUS_API", f"http://127.0.0.1:{unused_port()}/opusapi/")
    with pytest.raises(NetworkError) as raised:
        get()
    assert "https://object.pouta.csc.fi/OPUS-Tatoeba/v2023-04-12/moses/en-it.txt.zip" in str(raised.value)
    assert str(cached()) in str(raised.value)
    with pytest.raises(NetworkError, match="name the version"):
        get("opus:Tatoeba")
    cached().write_bytes(CONTENT)  # what the message says
    assert get() == cached()
    record = read_record(cached())
    assert record is not None
    assert (record.url, record.licence) == ("", LICENCE)
    cached().write_bytes(zip_of(PAIRS[:9]))  # guards the record of a file that was replaced
    get()
    record = read_record(cached())
    assert record is not None
    assert record.sha256 == hashlib.sha256(cached().read_bytes()).hexdigest()


def test_file_put_there_by_hand_is_checked(server: Loopback) -> None:
    cached().parent.mkdir(parents=True)
    cached().write_bytes(CONTENT[:HALF])
    with pytest.raises(DataError, match=r"is damaged: .* Delete it\.") as raised:
        get()
    assert server.log == []
    Path(str(raised.value).partition(" is damaged")[0]).unlink()
    assert get().read_bytes() == CONTENT


# --- Disks and processes --------------------------------------------------------------------------------------------


def test_full_disk_leaves_nothing_under_the_name(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > HALF:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(bytes(data))

    plain = Path.open

    def open_path(self: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        return Full(self, mode.replace("b", "")) if self.suffix == ".part" else plain(self, mode, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "BLOCK", 1000)
        patch.setattr(Path, "open", open_path)
        with pytest.raises(StorageError, match=r"No space left on device.*bytes are needed") as raised:
            get()
        assert raised.value.exit_code == 7
    assert not cached().exists()
    assert len(server.log) == 1  # a full disk is no reason to ask again
    assert get().read_bytes() == CONTENT
    assert server.log[-1].status == 206


def in_process(name: str = NAME) -> subprocess.Popen[str]:
    """Another process that downloads a corpus."""
    code = (
        "from dragoman.corpora.sources import find_source\n"
        "from dragoman.settings import DataConfig\n"
        f"find_source('train', DataConfig(source_lang='en', target_lang='it'), {name!r})\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=environment)


def part_size() -> int:
    part = cached().with_name("en-it.txt.zip.part")
    return part.stat().st_size if part.exists() else 0


def test_killed_download_is_continued_by_the_next_process(server: Loopback) -> None:
    """The whole promise: killed in the middle, started again, and only the rest is sent."""
    server.faults = [f"hold {HALF}"]
    with in_process() as process:
        wait_until(lambda: part_size() == HALF)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not cached().exists()
    server.release.set()
    with in_process() as process:
        _, err = process.communicate(timeout=HANG)
    assert process.returncode == 0, err
    assert "continuing to download" in err
    assert cached().read_bytes() == CONTENT
    last = server.log[-1]
    assert (last.status, last.range, last.sent) == (206, f"bytes={HALF}-", len(CONTENT) - HALF)
    assert last.if_range == f'"{hashlib.md5(CONTENT).hexdigest()}"'
    assert leftovers(cached()) == ["en-it.txt.zip", "en-it.txt.zip.json"]


def test_second_process_waits_for_the_first(server: Loopback) -> None:
    server.faults = [f"hold {HALF}"]
    with in_process() as first:
        wait_until(lambda: part_size() == HALF)
        with in_process() as second:
            assert second.stderr is not None
            assert "waiting for another process" in second.stderr.readline()
            server.release.set()
            errors = first.communicate(timeout=HANG)[1] + second.communicate(timeout=HANG)[1]
    assert (first.returncode, second.returncode) == (0, 0), errors
    assert cached().read_bytes() == CONTENT
    assert len(server.log) == 1


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"DRAGOMAN_CACHE": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/dragoman"),
        ({}, "/home/me/.cache/dragoman"),
    ],
)
def test_place_of_the_cache(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], folder: str) -> None:
    for name in ("DRAGOMAN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert fetch.cache_folder() == Path(folder)


# --- Commands -------------------------------------------------------------------------------------------------------


def test_run_needs_neither_network_nor_cache_to_resume(
    server: Loopback, tiny: Callable[..., Config], capfd: pytest.CaptureFixture[str]
) -> None:
    """Guards a resume on a train or after the cache was emptied: the run's own data are enough."""

    def train(steps: int) -> int:
        return in_child(lambda: run_command("train", tiny(data__train=NAME, training__max_steps=steps)))

    assert train(2) == 0
    server.stop()
    shutil.rmtree(fetch.cache_folder())
    capfd.readouterr()
    assert train(4) == 0
    assert train(4) == 0  # a finished run
    said = capfd.readouterr()
    assert said.out.count(f"data.train is {NAME}, which is not in the cache") == 2
    assert said.err == ""
    assert not fetch.cache_folder().exists()
    folder = Path(tiny().run.dir) / "tiny"
    origin = json.loads((folder / "data" / "report.json").read_bytes())["origin"]
    url, sha256 = server.index[1]["url"], hashlib.sha256(CONTENT).hexdigest()
    assert origin["downloads"] == {"data.train: en-it.txt.zip": {"url": url, "sha256": sha256}}
    checkpoints = sorted((folder / "checkpoints").glob("step-*/trained_on.json"))
    assert json.loads(checkpoints[-1].read_bytes())["downloads"] == origin["downloads"]


@pytest.mark.parametrize("name", [NAME, "opus:Tatoeba"])
def test_prepared_data_are_never_compared_over_the_network(
    server: Loopback, tiny: Callable[..., Config], tmp_path: Path, name: str
) -> None:
    """Guards against a resume that asks for the latest version, and finds another one."""
    said: list[str] = []
    config, folder = tiny(data__train=name), tmp_path / "data"
    first = prepare_data(config, folder, said.append)
    asked = len(server.asked)
    server.add("Tatoeba", "v2024-01-01", "en-it", zip_of(PAIRS[:9]))
    opus._latest.cache_clear()
    assert get("opus:Tatoeba") == cached("v2024-01-01")
    said.clear()
    assert prepare_data(config, folder, said.append).fingerprint == first.fingerprint
    assert len(server.asked) == asked + 1
    assert said == (
        []
        if name == NAME
        else [
            "data.train is opus:Tatoeba, the latest version, which is not looked up again. Continuing with the data "
            "prepared from it."
        ]
    )


def test_check_says_where_the_corpus_is_from(server: Loopback, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("check", (Config(data=DATA), False)) == 0
    out = capsys.readouterr().out
    assert f"from {server.index[1]['url']} " in out
    assert "licence: CC BY 2.0 FR" in out
    assert run_command("check", (Config(data=DATA), True)) == 0
    [download] = json.loads(capsys.readouterr().out)["downloads"]
    assert download["sha256"] == hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.parametrize(("name", "code"), [("opus:Tatoebe", 3), ("sacrebleu:wmt14/ful", 3)])
def test_mistake_is_one_line(server: Loopback, capsys: pytest.CaptureFixture[str], name: str, code: int) -> None:
    assert run_command("check", (Config(data=replace(DATA, train=name)), False)) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "did you mean" in said.err


# --- Test sets of sacrebleu -----------------------------------------------------------------------------------------


SGML = '<srcset><doc docid="a" genre="news" origlang="en">\n{}</doc></srcset>\n'
XML = (
    '<dataset id="x"><doc id="a" origlang="en"><src lang="en"><p>{}</p></src>'
    '<ref lang="it" translator="A"><p>{}</p></ref></doc></dataset>'
)


def packed(files: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return stream.getvalue()


def segments(side: int) -> str:
    return "".join(f'<seg id="{i}">{pair[side]}</seg>\n' for i, pair in enumerate(PAIRS[:20], 1))


def publish(kind: str, server: Loopback, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give sacrebleu a test set in one of its formats, and put its archive on the server; return its name."""
    source, target = ("\n".join(side) + "\n" for side in zip(*PAIRS[:20], strict=True))
    files, paths, of, extra = {
        "sgml": (
            {"test/src.en.sgm": SGML.format(segments(0)), "test/ref.it.sgm": SGML.format(segments(1))},
            ["test/src.en.sgm", "test/ref.it.sgm"], FakeSGMLDataset, {},
        ),
        "xml": ({"test/x.xml": XML.format(segments(0), segments(1))}, ["test/x.xml"], WMTXMLDataset, {"refs": ["A"]}),
        "plain": ({"test.en": source, "test.it": target}, ["test.en", "test.it"], PlainTextDataset, {}),
    }[kind]  # fmt: skip
    content = packed(files)
    server.files["/mirror/example.org/set/test.tgz"] = content
    made = of(
        f"tiny/{kind}", data=["https://example.org/set/test.tgz"], md5=[hashlib.md5(content).hexdigest()],
        langpairs={"en-it": paths}, description="", citation="", **extra,
    )  # fmt: skip
    monkeypatch.setitem(DATASETS, f"tiny/{kind}", made)
    return f"sacrebleu:tiny/{kind}"


@pytest.mark.parametrize("kind", ["sgml", "xml", "plain"])
def test_sacrebleu_test_set_is_downloaded_once(server: Loopback, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    name = publish(kind, server, monkeypatch)
    server.faults = ["drop 100"]
    for _ in range(2):
        found = find_named("test", DATA, name)
        assert read_split("test", found, DATA) == PAIRS[:20]
    back = replace(DATA, source_lang="it", target_lang="en")
    assert read_split("test", find_named("test", back, name), back) == [(b, a) for a, b in PAIRS[:20]]
    assert [request.status for request in server.log] == [200, 206]
    [path] = found[0].downloads
    record = read_record(path)
    assert record is not None
    assert record.url == f"{server.url}/mirror/example.org/set/test.tgz"
    server.stop()
    path.unlink()
    assert find_named("test", DATA, name, download=False)[0].files == found[0].files


def test_wrong_md5_is_an_error(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    name = publish("plain", server, monkeypatch)
    server.files["/mirror/example.org/set/test.tgz"] = packed({"test.en": "other\n", "test.it": "altro\n"})
    with pytest.raises(DataError, match="its md5 is"):
        find_named("test", DATA, name)
    assert [each for each in fetch.cache_folder().rglob("*") if each.is_file() and each.suffix != ".lock"] == []


def test_test_set_in_other_languages_is_an_error(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    name = publish("plain", server, monkeypatch)
    with pytest.raises(OtherLanguagesError, match="has no en-de, only en-it"):
        find_named("test", replace(DATA, target_lang="de"), name)


def test_installed_sacrebleu_is_as_we_know_it() -> None:
    """Guards updates of sacrebleu: each archive has an md5, and each pair can be looked up."""
    assert "wmt14/full" in DATASETS
    for dataset in DATASETS.values():
        assert dataset.data
        assert dataset.md5
        assert len(dataset.data) == len(dataset.md5) == len({os.path.basename(url) for url in dataset.data})
        assert {"_outdir", "_rawdir"} <= vars(dataset).keys()
        for pair in dataset.langpairs:
            data = DataConfig(source_lang=pair.split("-")[0], target_lang=pair.split("-")[1])
            assert sacrebleu_sets._pair("data.test", "x", dataset, data) == pair
