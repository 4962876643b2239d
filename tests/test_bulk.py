"""Large files: a killed translation continues, shards make the whole, and packed files are read and written."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, in_child, tiny_config
from dragoman import run_lock, translate
from dragoman.__main__ import run as run_command
from dragoman.command_line import parse_translate
from dragoman.corpora.formats.files import File, read_whole
from dragoman.serialization import load_json
from dragoman.translation import input
from echo import echo, reconfigured

LINES = [f"My name is number {i}, and I live in: {i % 3}!" for i in range(17)]
TEXT = "\ufeff" + "\n".join(LINES[:5]) + "\r\n\n" + "\n".join(LINES[5:])  # with a blank line, and no end of the last
BLOCKS = [["", *LINES][1:5], [LINES[4], "", *LINES[5:7]], LINES[7:11], LINES[11:15], LINES[15:16], LINES[16:]]


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The blocks that are translated. The translation of a line is the line, with its block's first line and size.

    So the output shows which lines were translated together, as rounding does in a real model.
    """
    made: list[list[str]] = []
    translator = echo()
    monkeypatch.setattr(input, "LINES", 4)
    monkeypatch.setattr(translate, "translate_block", noted(made, lambda _, texts, *__: texts))
    monkeypatch.setattr(translate, "load_translator", lambda *_: translator)
    return made


def noted(made: list[list[str]], translated: Callable[..., Sequence[str]]) -> Callable[..., list[str]]:
    """A function like `translate_block` that adds the texts to `made`, and the block to the translations."""

    def translate_block(translator: Any, texts: Sequence[str], first: int, *rest: Any) -> list[str]:
        made.append(list(texts))
        return [f"{line} [{first}+{len(texts)}]" for line in translated(translator, texts, first, *rest)]

    return translate_block


def translated(folder: Path, *options: object, source: str = "huge.en", output: str = "huge.it") -> int:
    """The exit code of translate.py, which reads and writes these files of a folder."""
    words = ["--input", folder / source, "--output", folder / output, "--run", "here", *options]
    return run_command("translate", parse_translate([*map(str, words)]))


def written(folder: Path, text: str = TEXT) -> Path:
    """A new folder with the text to translate."""
    folder.mkdir(exist_ok=True)
    (folder / "huge.en").write_text(text, encoding="utf-8", newline="")
    return folder


def whole(folder: Path, text: str = TEXT, *options: object) -> bytes:
    """The output of a translation that was not interrupted."""
    assert translated(written(folder, text), *options) == 0
    return (folder / "huge.it").read_bytes()


def killed(folder: Path, at: int, *options: object) -> int:
    """Translate in a process that is killed when it is about to give a file its name for the `at`-th time."""

    def work() -> int:
        replace, left = os.replace, iter(range(1, 1000))

        def replace_or_die(*paths: Any) -> None:
            if next(left) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(*paths)

        os.replace = replace_or_die  # type: ignore[assignment]
        return translated(folder, *options)

    return in_child(work)


def test_blocks_are_those_of_the_lines(blocks: list[list[str]], tmp_path: Path) -> None:
    """Guards the tests below: the text has six blocks, and each line of the output names its own."""
    output = whole(tmp_path).decode().split("\n")
    assert blocks == BLOCKS
    assert output[0] == f"{LINES[0]} [1+4]"
    assert output[-2:] == [f"{LINES[-1]} [18+1]", ""]


def test_killed_anywhere_continues_to_the_same_bytes(
    blocks: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Guards a night of translating: after kill -9 the same command makes the same file, and no block twice."""
    expected = whole(tmp_path / "whole")
    at = 0
    while code := killed(folder := written(tmp_path / f"killed-{(at := at + 1)}"), at):
        assert code == -signal.SIGKILL
        assert not (folder / "huge.it").exists(), "half a file has the name of the whole"
        there = len([*(folder / "huge.it.part").glob("*.block")])
        blocks.clear()
        capsys.readouterr()
        assert translated(folder) == 0
        assert (folder / "huge.it").read_bytes() == expected
        assert blocks == BLOCKS[there:]
        said = f"huge.it.part has the first {sum(map(len, BLOCKS[:there]))} lines: continuing behind them"
        assert (said in capsys.readouterr().err) == (0 < there < len(BLOCKS))
        assert not (folder / "huge.it.part").exists()
    assert at == 1 + len(BLOCKS) + 2, "kills: at the note of the lock, at each block, at the end; the last did not come"
    assert (folder / "huge.it").read_bytes() == expected


def other_model(change: str) -> Callable[..., Any]:
    """Stands for load_translator, with a translator in which something differs."""
    translator = echo()
    if change == "glossary":
        translator = translator.with_glossary({"name": "nome"})
    elif change == "model":
        translator.manifests = [{"files": {"model.safetensors": {"sha256": "another"}}}]
    elif change == "search":
        translator = reconfigured(translator, "--decoding.max_length=5")
    return lambda *_: translator


@pytest.mark.parametrize("change", ["glossary", "model", "search", "--json", "--prefix", "--engine"])
def test_what_was_made_otherwise_is_not_used(
    change: str, blocks: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Guards a file whose first half is of another model or of other options. A change starts over, and says so."""
    folder = written(tmp_path / "killed")
    assert killed(folder, 5) == -signal.SIGKILL
    options = {"--json": ["--json"], "--prefix": ["--prefix", "My"], "--engine": ["--engine", "torch"]}.get(change, [])
    if not options:
        monkeypatch.setattr(translate, "load_translator", other_model(change))
    expected = whole(tmp_path / "whole", TEXT, *options)
    blocks.clear()
    capsys.readouterr()
    assert translated(folder, *options) == 0
    said = capsys.readouterr().err
    assert "huge.it.part was made from another input, model or options: starting over" in said
    assert blocks == BLOCKS
    assert (folder / "huge.it").read_bytes() == expected


@pytest.mark.parametrize(("line", "again"), [(0, [0]), (5, [1]), (16, [])])
def test_changed_input_is_translated_again(
    line: int, again: list[int], blocks: list[list[str]], tmp_path: Path
) -> None:
    """Guards against a translation of lines that the input no longer has; it costs no other block."""
    folder = written(tmp_path / "killed")
    assert killed(folder, 5) == -signal.SIGKILL  # after three blocks
    changed = TEXT.replace(LINES[line], "I live in: number")
    expected = whole(tmp_path / "whole", changed)
    blocks_of_whole = [*blocks]
    blocks.clear()
    assert translated(written(folder, changed)) == 0
    assert (folder / "huge.it").read_bytes() == expected
    assert blocks == [blocks_of_whole[i] for i in (*again, 3, 4, 5)]


def test_bad_line_costs_only_what_follows(
    blocks: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Guards the lines before a bad one: once it is mended, the same command continues behind them."""
    folder = written(tmp_path)
    good = (folder / "huge.en").read_bytes()
    (folder / "huge.en").write_bytes(good.replace(b"number 12", b"number \xff"))
    assert translated(folder) == 3
    assert "huge.en:14, byte 19: 0xff is not UTF-8" in capsys.readouterr().err
    assert not (folder / "huge.it").exists()
    (folder / "huge.en").write_bytes(good)
    blocks.clear()
    assert translated(folder) == 0
    assert blocks == BLOCKS[3:]
    assert (folder / "huge.it").read_bytes() == whole(tmp_path / "whole")


TRANSLATE_BLOCK = translate.translate_block
FORMS = ["--json", "--align", "--score", "--decoding.n_best"]


@pytest.mark.parametrize("form", [*FORMS, ".gz", ".bz2", ".xz", ".zst", ""])
def test_shards_together_are_the_whole(
    form: str, blocks: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards every form of output, packed ones too: cat makes the whole of the shards, in the order of their names."""
    options = [form] * (form in FORMS[:3])
    if form in FORMS:
        translator = echo("beam_size=3", "n_best=3") if form == "--decoding.n_best" else echo()
        monkeypatch.setattr(translate, "load_translator", lambda *_: translator)
        monkeypatch.setattr(translate, "translate_block", noted(blocks, TRANSLATE_BLOCK))
    if form == ".zst":
        pytest.importorskip("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")
    text = TEXT if form != "--score" else "".join(f"{line}\t{line}\n" for line in LINES)
    expected = whole(tmp_path, text, *options)
    made, ending = len(blocks), form if form.startswith(".") else ""
    for count in (3, 12):
        blocks.clear()
        for number in range(1, count + 1):
            assert translated(tmp_path, *options, "--shard", f"{number}/{count}", output=f"part{ending}") == 0
        assert len(blocks) == made, "a block belongs to one shard"
        parts = sorted(tmp_path.glob(f"part.*-of-{count}{ending}"))
        assert len(parts) == count
        (tmp_path / f"together{ending}").write_bytes(b"".join(path.read_bytes() for path in parts))
        assert read_whole(File(tmp_path / f"together{ending}")) == expected


def test_torchrun_divides_a_file(
    blocks: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Guards ranks that write the same file, and a shell in a cluster whose variables would cut a pipe to its shard."""
    expected = whole(written(tmp_path))
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        assert translated(tmp_path) == 0
    assert (tmp_path / "huge.1-of-2.it").read_bytes() + (tmp_path / "huge.2-of-2.it").read_bytes() == expected
    assert translated(tmp_path, "--shard", "3/3") == 0
    assert expected.endswith((tmp_path / "huge.3-of-3.it").read_bytes())
    capfdbinary.readouterr()
    assert run_command("translate", parse_translate(["--run", "here", "--input", str(tmp_path / "huge.en")])) == 0
    assert capfdbinary.readouterr().out == expected


PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.usefixtures("blocks")
def test_packed_input_is_translated_like_plain_input(encoding: str, ending: str, tmp_path: Path) -> None:
    """Guards the blocks of a packed file, which are those of the file in it; and one that consists of several."""
    folder, data = written(tmp_path, TEXT), TEXT.removeprefix("\ufeff").encode(encoding)
    (folder / "plain").write_bytes(data)
    assert translated(folder, source="plain") == 0
    halves = data[:100], data[100:]
    (folder / f"packed{ending}").write_bytes(b"".join(map(PACK[ending], halves)))
    assert translated(folder, source=f"packed{ending}", output=f"out{ending}") == 0
    assert read_whole(File(folder / f"out{ending}")) == (folder / "huge.it").read_bytes()


@pytest.mark.usefixtures("blocks")
def test_gz_is_the_same_after_a_kill(tmp_path: Path) -> None:
    """Guards against the time in a .gz file, which makes each a different one."""
    assert translated(written(tmp_path), output="one.gz") == 0
    assert translated(tmp_path, output="other.gz") == 0
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "other.gz").read_bytes()


@pytest.mark.usefixtures("blocks")
def test_second_process_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards a night of translating twice: a job that is started again may find itself still at work."""
    with run_lock.lock(written(tmp_path) / "huge.it.part"):
        assert in_child(lambda: translated(tmp_path)) == 5
    assert not (tmp_path / "huge.it").exists()
    assert translated(tmp_path) == 0


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--shard", "0/3"], 2, "0/3 is not like 3/16"),
        (["--shard", "4/3"], 2, "4/3 is not like 3/16"),
        (["--shard", "3"], 2, "3 is not like 3/16"),
        (["--shard", "1/2", "--paragraphs"], 2, "leave out --shard"),
        (["--shard", "1/2", "--markup", "html"], 2, "leave out --shard"),
        (["--shard", "1/2", "--attention", "page.html"], 2, "leave out --shard"),
        (["--shard", "1/2", "--input", "report.docx"], 2, "leave out --shard"),
        (["--shard", "1/2", "--input", "/dev/null"], 2, "can be read only once"),
        (["--shard", "1/2", "--input", "nowhere"], 3, "cannot be opened"),
        (["--input", "page.html.gz"], 3, "page.html.gz is HTML that is packed: unpack it"),
        (["--input", "cut.gz"], 3, "cut.gz is damaged"),
        (["--output", "nowhere/huge.it"], 7, "cannot write nowhere/huge.it.part"),
        (["--output", "taken"], 7, "cannot write taken.part (File exists)"),
    ],
)
@pytest.mark.usefixtures("blocks")
def test_refusals(
    options: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Guards what cannot be divided or continued: it is refused in one line, and no file is written."""
    monkeypatch.chdir(written(tmp_path))
    (tmp_path / "page.html.gz").write_bytes(gzip.compress(b"<p>My name"))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(TEXT.encode())[:-9])
    shutil.copy("huge.en", "report.docx")
    Path("taken.part").touch()
    before = {*tmp_path.iterdir()}
    try:
        ended = run_command("translate", parse_translate(["--run", "x", "--input=huge.en", "--output=out", *options]))
    except SystemExit as stop:
        ended = stop.code
    assert ended == code
    assert said in (told := capsys.readouterr().err)
    assert told.count("\n") == 1
    assert {*tmp_path.iterdir()} - before <= {tmp_path / "out.part"}
    assert run_command("translate", parse_translate(["--run", "x", "--input=huge.en", "--shard=2/3"])) == 0


@pytest.mark.faults
def test_ranks_of_torchrun_are_killed_and_continue(tmp_path: Path) -> None:
    """Guards the real programs: torchrun and CTranslate2, kill -9 of all of them, and the same command again."""
    config = tiny_config(tmp_path, training__max_steps=10)
    assert in_child(lambda: run_command("train", config)) == 0
    words = ["the", "cat", "sees", "this", "red", "dog", "and", "wants", "bread", "here"]
    lines = (" ".join(words[int(digit)] for digit in str(number)) for number in range(12_000))
    (tmp_path / "huge.en").write_text("\n".join(lines), encoding="utf-8")
    run = [ROOT / "translate.py", "--run", tmp_path / "runs" / "tiny", "--input", tmp_path / "huge.en"]
    run += ["--decoding.max_length=3", "--output"]
    assert subprocess.run([sys.executable, *run, tmp_path / "whole.it"]).returncode == 0
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--"]
    call = [*torchrun, *run, tmp_path / "x.it"]
    with subprocess.Popen(call) as agent:
        while {path.parent.name[2] for path in tmp_path.glob("x.*.part/*.block")} != {"1", "2"}:
            assert agent.poll() is None
            time.sleep(0.05)
        agent.kill()
        for path in tmp_path.glob("x.*.part/run.json"):  # the ranks, which the agent leaves alone
            os.kill(load_json(path.read_bytes())["pid"], signal.SIGKILL)
    assert {path.name for path in tmp_path.glob("x.*")} == {"x.1-of-2.it.part", "x.2-of-2.it.part"}
    assert subprocess.run(call).returncode == 0
    parts = sorted(tmp_path.glob("x.*-of-2.it"))
    assert b"".join(path.read_bytes() for path in parts) == (tmp_path / "whole.it").read_bytes()
