"""Cases 33 to 36: one line out per line in, in bounded time, with a warning where needed, whatever the input."""

from __future__ import annotations

import functools
import os
import pty
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import HANG, ROOT, run_python, tiny_pairs
from dragoman.dataset import Tokenizer
from dragoman.errors import CheckpointError
from dragoman.settings import SPECIAL_TOKENS
from dragoman.text.cleaning import clean
from dragoman.translation import batch_search
from dragoman.translation.pieces import encode_piece, encode_request
from dragoman.translation.translator import Translator
from echo import echo, until
from faults import untrained

faults = pytest.mark.faults


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained run, which no test may change."""
    return untrained.run(tmp_path_factory.mktemp("untrained"), decoding__max_length=6)


loaded = functools.cache(Translator)  # hypothesis calls a test many times


def command(
    *arguments: object, stdin: bytes = b"", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    words = [ROOT / "translate.py", *arguments]
    if not environment:
        return run_python(words, Path(), stdin)
    return subprocess.run(
        [sys.executable, *words], input=stdin, capture_output=True, env=os.environ | environment, timeout=HANG
    )


# --- 33: next to nothing ------------------------------------------------------------------------------------------

NOTHING = ["", " ", "\t", " \t  ", "\u00a0", "\r", "\u2028\x85", "\x0b\x0c", "\n", "\n\n", " \n\t\n "]


def test_33_blank_text_stays_blank_without_the_model(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards blank lines, from which a decoder would make words, and the line count."""

    def search(*_: object, **__: object) -> None:
        raise AssertionError("the model was called")

    monkeypatch.setattr(batch_search, "search", search)
    lines = loaded(run).translate(NOTHING)
    assert [line.count("\n") for line in lines] == [text.count("\n") for text in NOTHING]
    assert not "".join(lines).strip()
    assert loaded(run).translate([]) == []


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        (b"", 0),
        (b"\xef\xbb\xbf\n\r\nthe cat\n\t", 4),
        *(pytest.param(text, lines, marks=faults) for text, lines in ((b"\n", 1), (b"\n\n \n", 3), (b"the cat\nx", 2))),
    ],
)
def test_33_as_many_lines_out_as_in(run: Path, given: bytes, lines: int) -> None:
    """Guards parallel files: empty input, blank lines, and a last line without a line feed."""
    done = command("--run", run, stdin=given)
    assert done.returncode == 0, done.stderr
    out = done.stdout.split(b"\n")
    assert out.pop() == b""
    assert len(out) == lines
    expected = [not line.removeprefix(b"\xef\xbb\xbf").strip() for line in given.split(b"\n")][:lines]
    assert [not line for line in out] == expected


@faults
def test_33_one_argument_of_two_lines_is_two_lines(run: Path) -> None:
    """Guards arguments that are empty, blank or contain a line feed."""
    done = command("--run", run, "", " ", "the cat\nthe dog", "\t")
    assert [not line for line in done.stdout.split(b"\n")] == [True, True, False, False, True, True]


class Breaking(Tokenizer):
    """A tokenizer that decodes everything to text with line breaks, as a model of bytes can."""

    def decode(self, ids: object) -> str:
        return "a\nb\rc\u2028d\x85e\x1b[2J"


@faults
def test_33_model_that_writes_line_breaks() -> None:
    """Guards the line count against the model itself, which can write the byte of a line feed."""
    translator = echo(kind="bpe")
    translator.trained = replace(translator.trained, target=Breaking(translator.target._core))
    [translation] = translator.explain(["My name is"])
    assert translation.text == "a b c d e\x1b[2J"
    assert translation.sentences[0].candidates[0].text == translation.text


# --- 34: far too much ---------------------------------------------------------------------------------------------

LETTERS = {
    "x": "x" * 20_000, "full stops": "." * 20_000, "a.": "a." * 10_000, "a@": "a@" * 10_000, "commas": "," * 20_000,
    "address": "https://x.org/" + "a" * 20_000, "marks": "e" + "\u0301" * 20_000, "accents": "e\u0301 " * 5000,
    "words": "the cat " * 2500, "unknown words": "zyx " * 5000, "family": "👨‍👩‍👧‍👦" * 2000, "flags": "🇮🇹" * 5000,
    "Thai": "ภาษาไทย" * 3000, "Han": "漢字" * 10_000, "Linear B": "𐀀𐀁 " * 3000, "right to left": "שלום " * 4000,
    "brackets": "(" * 20_000, "quotes": '"' * 20_000, "joiners": "\u200d" * 20_000, "sentences": "Hi! " * 5000,
}  # fmt: skip


@faults
@pytest.mark.parametrize("kind", ["word", "bpe"])
@pytest.mark.parametrize("name", LETTERS)
def test_34_any_length_is_split_in_linear_time_without_loss(kind: str, name: str) -> None:
    """Guards against patterns and recursions of quadratic time, and against losing text where it is split.

    Four times the text may take ten times as long; in quadratic time it would take sixteen times as long.
    """
    translator, text = echo(kind=kind), clean(LETTERS[name])
    warnings: list[str] = []

    def seconds(part: str) -> float:
        began = time.process_time()
        list(encode_request(translator.trained, translator.request(part), lambda _: None))
        return time.process_time() - began

    assert min(seconds(text) for _ in range(3)) < 10 * min(seconds(text[: len(text) // 4]) for _ in range(3))
    [pieces] = encode_request(translator.trained, translator.request(text), warnings.append)
    assert "".join(piece.text for piece in pieces).replace(" ", "") == text.replace(" ", "")
    longest = translator.trained.trained_on.longest
    assert all(len(piece.ids) <= longest for piece in pieces)
    whole = encode_piece(translator.trained, text, translator.usual)
    assert bool(warnings) == (len(whole.ids) > longest and name != "sentences")


@faults
@pytest.mark.parametrize("name", ["x", "words", "marks", "family", "Linear B"])
def test_34_far_too_much_is_translated_with_a_warning(run: Path, name: str) -> None:
    """Guards memory and time of a real search on the command line: one line out, and a warning."""
    done = command("--run", run, LETTERS[name])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == 1
    if name == "family":
        assert LETTERS[name] in done.stdout.decode(), "emoji pass through whole"
    elif name not in ("x", "marks"):  # a single unknown word
        assert b"is translated in parts" in done.stderr


@faults
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_34_subwords_know_every_script(tmp_path: Path, kind: str) -> None:
    """Guards against <unk> in subword models: text in unseen scripts must survive."""
    text = "日本 👨‍👩‍👧 e\u0301 \u05e9\u05dc\u05d5\u05dd 𐀀 \u200d ½"
    translation = loaded(untrained.run(tmp_path, tokenizer__kind=kind, tokenizer__vocab_size=300)).explain([text])[0]
    hidden = [sentence.tokens[s] for sentence in translation.sentences for s in sentence.unknown]
    assert hidden == [r"👨\u200d👩\u200d👧"]
    assert "unk" not in translation.text.lower()
    if kind == "bpe":
        assert echo(kind=kind).translate([text]) == [clean(text)]


# --- 35: bytes and pipes ------------------------------------------------------------------------------------------


@faults
def test_35_utf16_is_read_as_training_reads_it(run: Path, tmp_path: Path) -> None:
    """Guards a file that a Windows editor saved as "Unicode": training reads it, so translating must, too."""
    outputs = []
    for encoding in ("utf-8", "utf-16"):
        path = tmp_path / f"{encoding}.txt"
        path.write_text("the cat sees the dog.\n\nthe dog.\n", encoding=encoding)
        done = command("--run", run, "--input", path)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0].count(b"\n") == 3


@faults
@pytest.mark.parametrize("data", [b"caf\xe9", b"a\xed\xa0\x80", b"a\0b", b"\xff\xfea\0", b"\xc3"])
def test_35_bad_line_ends_it_after_the_good_ones(run: Path, tmp_path: Path, data: bytes) -> None:
    """Guards the lines before a bad byte in the same block, and against question marks in its place."""
    number = 1 if data.startswith(b"\xff\xfe") else 3
    good = b"the cat.\nthe dog.\n" * (number > 1)
    expected = "".join(f"{line}\n" for line in loaded(run).translate(good.decode().split("\n")[:-1])).encode()
    done = command("--run", run, stdin=good + data + b"\nthe cat.\n")
    assert done.returncode == 3
    assert done.stdout == expected
    assert b"error: stdin" in done.stderr
    assert number == 1 or b"stdin:3, byte" in done.stderr
    assert b"Traceback" not in done.stderr
    if number == 1:
        return  # a file in UTF-16 is read, see above
    file, output = tmp_path / "in.txt", tmp_path / "out.txt"
    file.write_bytes(good + data)
    output.write_bytes(b"old")
    assert command("--run", run, "--input", file, "--output", output).returncode == 3
    assert output.read_bytes() == b"old", "a file must be written completely or not at all"


@faults
@pytest.mark.parametrize("environment", [{}, {"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}, {"PYTHONIOENCODING": "ascii"}])
@pytest.mark.parametrize("data", [b"caf\xe9", b"\xed\xa0\x80"])
def test_35_bad_argument_is_reported(run: Path, data: bytes, environment: dict[str, str]) -> None:
    """Guards against the tokenizer's own message for half a character, "TextInputSequence must be str"."""
    done = command("--run", run, "the cat", data, environment=environment)
    assert done.returncode == 3
    assert b"argument:2, byte" in done.stderr
    assert done.stderr.count(b"\n") == 1


LOCALES = [
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "utf-16"},
]


@faults
@pytest.mark.parametrize("environment", LOCALES, ids=["C", "ascii", "utf-16"])
def test_35_text_is_utf_8_in_any_locale(tmp_path: Path, environment: dict[str, str]) -> None:
    """Guards cron jobs and containers without a locale: their output has the same bytes as elsewhere."""
    path = untrained.run(tmp_path, tokenizer__kind="bpe", tokenizer__vocab_size=300, decoding__max_length=30)
    texts = "la città è più 🙂\nперевод 日本\n".encode()
    expected = command("--run", path, "--json", stdin=texts)
    done = command("--run", path, "--json", stdin=texts, environment=environment)
    assert (done.returncode, done.stdout) == (0, expected.stdout)
    assert "перевод" in done.stdout.decode()
    done = command("--run", tmp_path / "città", "x", environment=environment)
    assert done.returncode == 4
    assert done.stderr.count(b"\n") == 1 or environment == LOCALES[2]


def converse(folder: Path, said: bytes, end: bytes, environment: dict[str, str]) -> bytes:
    """What a terminal shows when a line is typed at the prompt of a run."""
    ours, theirs = pty.openpty()
    arguments = [sys.executable, str(ROOT / "translate.py"), "--run", str(folder)]
    variables = os.environ | {"HOME": str(folder.parent), "TERM": "dumb"} | environment
    with subprocess.Popen(
        arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=variables, start_new_session=True
    ) as process:
        os.close(theirs)
        shown = until(ours, end)
        os.write(ours, said + b"\n")
        shown += until(ours, end)
        os.write(ours, b"\x04")
        assert process.wait(HANG) == 0
    os.close(ours)
    return shown


@faults
@pytest.mark.parametrize("environment", [{}, *LOCALES[:2]], ids=["own", "C", "ascii"])
def test_35_prompt_takes_characters_in_any_locale(tmp_path: Path, environment: dict[str, str]) -> None:
    """Guards the prompt against a traceback at an accent, or at a byte that is not UTF-8."""
    path = untrained.run(tmp_path, tokenizer__kind="bpe", tokenizer__vocab_size=300, decoding__max_length=5)
    for said in ("più 🙂".encode(), b"caf\xe9"):
        assert b"Traceback" not in converse(path, said, b"en > ", environment)


@faults
@pytest.mark.parametrize("closed", ["before", "meanwhile"])
def test_35_closed_pipe_is_no_error(run: Path, closed: str) -> None:
    """Guards `| head`: a quiet end whenever the pipe is closed."""
    head = "true" if closed == "before" else "head -n 1"
    line = f"yes 'the cat sees' | head -n 3000 | '{sys.executable}' '{ROOT / 'translate.py'}' --run '{run}' | {head}"
    done = subprocess.run(["bash", "-c", line + '; exit "${PIPESTATUS[2]}"'], capture_output=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == (closed == "meanwhile")
    assert b"Error" not in done.stderr
    assert b"Traceback" not in done.stderr


# --- 36: special tokens, other tokenizers -------------------------------------------------------------------------


@faults
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_36_special_token_in_a_text_is_text(kind: str) -> None:
    """Guards against a text whose words end its translation or disappear from it."""
    text = f"My name is {' '.join(SPECIAL_TOKENS)} </s> <s> <pad> <unk> <|endoftext|>, number [EOS][EOS]!"
    assert echo(kind=kind).translate([text]) == [text]


@faults
def test_36_special_token_in_the_training_text_is_text(tmp_path: Path) -> None:
    """Guards the vocabulary: the word "[EOS]" in a corpus must not get the id of the end token."""
    pairs = [(f"{a} [EOS] [PAD]", f"[SOS] {b} [UNK] </s>") for a, b in tiny_pairs(60)]
    corpus = tmp_path / "corpus.tsv"
    corpus.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    translator = Translator(untrained.run(tmp_path / "run", data__train=corpus))
    ids = translator.source.encode(pairs[0][0])
    assert not set(ids) & set(range(4))
    assert translator.source.decode(ids) == pairs[0][0]


@faults
def test_36_tokenizer_of_another_run_is_refused(run: Path, tmp_path: Path) -> None:
    """Guards weights against ids of other words: by the hash, or by the size if the hash is forged."""
    mine = Path(shutil.copytree(run, tmp_path / "mine"))
    step = untrained.newest(mine)
    name = "target.tokenizer.json"
    other = untrained.newest(untrained.run(tmp_path / "other", tokenizer__vocab_size=12)) / name
    own = (step / name).read_bytes()
    (step / name).write_bytes(other.read_bytes())
    done = command("--run", mine, "x")
    assert done.returncode == 4
    assert name.encode() in done.stderr
    same_size = own.replace(b'"gatto"', b'"ottag"')
    assert len(same_size) == len(own) != 0
    (step / name).write_bytes(same_size)
    done = command("--run", mine, "x")
    assert done.returncode == 4
    assert b"sha256" in done.stderr
    untrained.forge(step, {name: other.read_bytes()})
    done = command("--run", mine, "x")
    assert done.returncode == 4
    assert b"the weights do not fit the model" in done.stderr
    assert done.stderr.count(b"\n") == 1


@faults
def test_36_missing_checkpoint_lists_the_existing_ones(run: Path) -> None:
    """Guards against a bare "not found", which does not help with a typing mistake."""
    done = command("--run", run.parent / "tiyn", "x")
    assert done.returncode == 4
    assert b"choose one of " + bytes(run) in done.stderr
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        Translator(run.parent / "nothing")
