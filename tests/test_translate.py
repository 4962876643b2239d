"""The translator and its command line: every door gives the same, a line for a line, and nothing in silence."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import checkpoint
import train
import translate
from config import ConfigError, TokenizerConfig
from conftest import ROOT, in_child, tiny_config
from corpus import clean
from tokenizer import Tokenizer
from translate import Translator, batches_by_length, split

TEXTS = ["the cat sees the dog.", "this red wine.", "", "and here.", "the dog wants the black bread here today."]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained for a moment: what it says is nonsense, but always the same nonsense."""
    config = tiny_config(tmp_path_factory.mktemp("trained"), training__max_steps=10, data__max_length=12)
    assert in_child(lambda: train.main(config)) == 0
    return Path(config.run.dir) / config.run.name


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, to be treated in any way."""
    return Path(shutil.copytree(trained, tmp_path / "runs" / "tiny"))


loaded = functools.cache(Translator)  # hypothesis calls a test many times


def command(
    *arguments: object, stdin: bytes | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, ROOT / "translate.py", *map(str, arguments)]
    return subprocess.run(words, input=stdin, capture_output=True, cwd=cwd)


def test_every_door_gives_the_same(run: Path, tmp_path: Path) -> None:
    """Guards against peers' doors that differ: arguments, file, standard input and Python."""
    expected = Translator(run).translate(TEXTS)
    assert len(expected) == len(TEXTS)
    assert expected[2] == ""
    assert len(set(expected)) > 2
    text = "".join(f"{line}\n" for line in expected).encode()
    assert command("--run", run, *TEXTS).stdout == text
    file, output = tmp_path / "in put.txt", tmp_path / "out.txt"
    file.write_text("\n".join(TEXTS), encoding="utf-8")  # the last line without its end
    assert command("--run", run, "--input", file, "--output", output).stdout == b""
    assert output.read_bytes() == text
    assert command("--checkpoint", checkpoint.steps(run / "checkpoints")[0], stdin=file.read_bytes()).stdout == text
    newest = command(stdin=file.read_bytes(), cwd=run.parent.parent)  # where `runs` is
    assert newest.stdout == text, newest.stderr


@pytest.mark.parametrize("beam", [1, 3])
def test_a_batch_equals_one_by_one(run: Path, beam: int) -> None:
    """Guards sorting by length, padding and the way back to the order of the input."""
    translator = Translator(run, overrides=["--decoding.beam_size", str(beam)])
    assert translator.translate(TEXTS) == [translator.translate([text])[0] for text in TEXTS]


def test_a_line_arrives_before_the_next_is_sent(run: Path) -> None:
    """Guards the filter: a program that waits for its answer must not wait for ever."""
    arguments = [sys.executable, str(ROOT / "translate.py"), "--run", str(run)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in TEXTS:
            process.stdin.write(text.encode() + b"\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_a_reader_that_has_seen_enough_ends_it_quietly(run: Path) -> None:
    """Guards `| head`: no traceback, no error."""
    read, write = os.pipe()
    os.close(read)
    text = "the cat.\n" * 200
    arguments = [sys.executable, ROOT / "translate.py", "--run", run]
    result = subprocess.run(arguments, input=text.encode(), stdout=write, stderr=subprocess.PIPE)
    assert result.returncode == 0
    assert b"Error" not in result.stderr


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=4))
@settings(max_examples=25, deadline=None)
def test_one_line_out_for_each_text_in(trained: Path, texts: list[str]) -> None:
    """Guards the line count, which parallel files live by, against whatever a text may hold."""
    lines = loaded(trained).translate(texts)
    assert len(lines) == len(texts)
    assert not any("\n" in line or "\r" in line for line in lines)
    assert all(not line for line, text in zip(lines, texts, strict=True) if not clean(text))


def test_what_is_too_long_is_cut_in_parts_and_said(run: Path) -> None:
    """Guards against both ways of peers: a crash at the longest sentence, and silence about its end."""
    translator = Translator(run)
    assert translator.translate(["the cat. " * 1700])
    assert "5,100 tokens were translated in" in translator.warnings[0]
    assert len(translator.translate(["x" * 20_000, "the cat"])) == 2


@given(st.text("ab,. ", max_size=120), st.integers(2, 9))
@settings(max_examples=60, deadline=None)
def test_parts_joined_are_the_text(trained: Path, text: str, longest: int) -> None:
    """Guards the cut: no word lost or doubled, no part too long."""
    tokenizer = loaded(trained).source
    text = clean(text)
    parts = split(text, longest, tokenizer)
    assert " ".join(parts).replace(" ", "") == text.replace(" ", "")
    assert all(len(tokenizer.encode(part)) <= longest for part in parts)


def test_a_letter_of_more_tokens_than_allowed_is_no_endless_loop() -> None:
    """Guards the cut against what cannot be cut: over bytes, one emoji alone is four tokens."""
    tokenizer = Tokenizer.train(["a"], TokenizerConfig(kind="bpe", vocab_size=260))
    assert split("🙂🙂 a", 3, tokenizer) == ["🙂", "🙂", "a"]


def test_warnings_count_on_from_block_to_block(run: Path) -> None:
    """Guards the number that a user looks a line up by."""
    translator = Translator(run)
    translator.translate(["the cat.", "the cat. " * 50], first=1001)
    assert translator.warnings[0].startswith("text 1002: ")


def test_a_long_text_is_cut_where_a_sentence_ends(run: Path) -> None:
    """Guards the translation of paragraphs: half sentences make bad ones."""
    tokenizer = Translator(run).source
    text = "the cat sees the dog. this red wine. the dog, and the cat, and this black bread here today."
    assert split(text, 12, tokenizer) == [
        "the cat sees the dog. this red wine.",
        "the dog, and the cat,",
        "and this black bread here today.",
    ]


def test_batches_hold_everything_once_and_keep_to_their_budget() -> None:
    """Guards memory at translation: a batch is as wide as its longest sentence."""
    lengths = [3, 50, 7, 7, 200, 1, 9, 9, 9]
    batches = list(batches_by_length(lengths, 40))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(batch) * max(lengths[i] for i in batch) <= 40 or len(batch) == 1 for batch in batches)


@pytest.mark.parametrize(
    ("arguments", "code", "fragment"),
    [
        (["--run", "runs/nothing", "x"], 4, "holds no checkpoint"),
        (["--checkpoint", "nowhere", "x"], 4, "holds no checkpoint"),
        (["--decoding.beam_size", "0", "x"], 2, "decoding.beam_size is 0"),
        (["--beam", "3", "x"], 2, "--beam"),
        (["--input", "a", "x"], 2, "not both"),
        (["--input", "nowhere.txt"], 3, "nowhere.txt"),
        (["--device", "cuda:99", "x"], 2, "device"),
    ],
)
def test_a_mistake_is_one_line(run: Path, arguments: list[str], code: int, fragment: str) -> None:
    """Guards against tracebacks, and against silence."""
    where = [] if {"--run", "--checkpoint"} & set(arguments) else ["--run", run]
    result = command(*where, *arguments)
    assert result.returncode == code, result.stderr
    assert fragment in result.stderr.decode()
    assert result.stderr.count(b"\n") == 1
    assert result.stdout == b""


def test_a_file_may_be_translated_onto_itself(run: Path, tmp_path: Path) -> None:
    """Guards a user's only copy: it was emptied before it was read."""
    file = tmp_path / "letter.txt"
    file.write_text("\n".join(TEXTS), encoding="utf-8")
    assert command("--run", run, "--input", file, "--output", file).returncode == 0
    assert file.read_text(encoding="utf-8").splitlines() == Translator(run).translate(TEXTS)
    file.write_bytes(b"the cat.\n" * 3 + b"\xff\n")
    assert command("--run", run, "--input", file, "--output", file).returncode == 3
    assert file.read_bytes().startswith(b"the cat.\n"), "a translation that fails leaves the old file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letter.txt", "runs"]


def test_text_that_is_not_utf_8_is_told_by_its_line(run: Path) -> None:
    """Guards against Python's UnicodeDecodeError, and against question marks in its place."""
    result = command("--run", run, stdin=b"the cat\ncaf\xe9\n")
    assert result.returncode == 3
    assert b"stdin:2" in result.stderr
    assert b"Traceback" not in result.stderr
    result = command("--run", run, b"caf\xe9".decode("utf-8", "surrogateescape"))
    assert result.returncode == 3
    assert b"argument:1" in result.stderr


def test_a_bad_override_is_a_config_error(run: Path) -> None:
    """Guards the two-line use from Python."""
    with pytest.raises(ConfigError, match="beam_size"):
        Translator(run, overrides=["--decoding.beam_size", "none"])


def test_a_damaged_best_checkpoint_gives_way_to_another(run: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards a service against one flipped bit, and touches nothing while it does."""
    best = checkpoint.get_best(run / "checkpoints")
    assert best is not None
    weights = checkpoint.step_directory(run / "checkpoints", best["step"]) / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    before = sorted(run.rglob("*"))
    if len(checkpoint.steps(run / "checkpoints")) > 1:
        assert translate.find_checkpoint(run).step != best["step"]
        assert "sha256" in capsys.readouterr().err
    else:
        with pytest.raises(checkpoint.CheckpointError):
            translate.find_checkpoint(run)
    assert sorted(run.rglob("*")) == before


def test_a_read_only_run_that_has_moved_still_translates(run: Path, tmp_path: Path) -> None:
    """Guards deployment: a folder copied to another machine, where nothing may be written."""
    expected = Translator(run).translate(TEXTS)
    moved = tmp_path / "else where"
    run.rename(moved)
    for path in (*moved.rglob("*"), moved):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert Translator(moved).translate(TEXTS) == expected
    finally:
        for path in (moved, *moved.rglob("*")):
            path.chmod(0o755)
