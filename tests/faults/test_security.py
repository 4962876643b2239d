"""Cases 37 and 38: input never runs as code, never leaves its folder, and never controls a terminal."""

from __future__ import annotations

import ast
import io
import json
import os
import pickle
import pty
import random
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from conftest import HANG, ROOT, in_child, read_splits, tiny_config, tiny_pairs, write_tsv
from dragoman import averaging, checkpoint, command_line, console, serialization, tensors, train
from dragoman.__main__ import run as run_command
from dragoman.console import one_line, visible
from dragoman.corpora import preparation
from dragoman.corpora.sources import find_source
from dragoman.errors import CheckpointError, DataError
from dragoman.translation import attention_page, loading, prompt
from dragoman.translation.results import Candidate, Sentence
from dragoman.translation.translator import Translator
from faults import untrained
from fuzz.mutations import damaged

faults = pytest.mark.faults
FILES = sorted({*loading.BUNDLE, *averaging.TO_RESUME})


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained run; do not change it."""
    return untrained.run(tmp_path_factory.mktemp("untrained"), training__max_epochs=None, training__max_steps=2)


@pytest.fixture
def run(pattern: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(pattern, tmp_path / "runs" / "tiny"))


def resume(run: Path) -> int:
    """Resume a run in its own process; return its exit code."""
    settings = {"training__max_epochs": None, "training__max_steps": 2, "run__dir": run.parent}
    corpus = json.loads((run / "data" / "report.json").read_bytes())["origin"]["settings"]["data.train"]
    return in_child(lambda: run_command("train", tiny_config(run.parent.parent, data__train=corpus, **settings)))


class Payload:
    """Runs a command when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self.target}'",)


def in_torch(payload: Payload) -> bytes:
    buffer = io.BytesIO()
    torch.save({"optimizer": payload, "scaler": {}}, buffer)
    return buffer.getvalue()


def in_yaml(payload: Payload) -> bytes:
    return f"model: !!python/object/apply:os.system [\"touch '{payload.target}'\"]\n".encode()


PICKLES: dict[str, Callable[[Payload], bytes]] = {"pickle": pickle.dumps, "torch": in_torch, "YAML": in_yaml}


@pytest.mark.parametrize("form", PICKLES)
@pytest.mark.parametrize("name", FILES)
def test_37_file_that_would_run_code_is_refused(run: Path, tmp_path: Path, name: str, form: str) -> None:
    """Guards against code in an untrusted model: a forger can compute matching hashes, but nothing must run."""
    target = tmp_path / "PWNED"
    untrained.forge(untrained.newest(run), {name: PICKLES[form](Payload(target))})
    if name in averaging.TO_RESUME:
        assert resume(run) == 4
    else:
        with pytest.raises(CheckpointError):
            Translator(run)
    assert not target.exists()


def test_37_the_payload_would_have_run(tmp_path: Path) -> None:
    """Guards against a payload that does nothing, which would make the tests above pass."""
    for number, form in enumerate((pickle.dumps, in_torch)):
        target = tmp_path / f"PWNED{number}"
        data = io.BytesIO(form(Payload(target)))
        pickle.load(data) if form is pickle.dumps else torch.load(data, weights_only=False)
        assert target.exists()


@pytest.mark.parametrize("hub_like", [False, True], ids=["file", "folder"])
@pytest.mark.parametrize("suffix", [".pkl", ".pickle"])
def test_37_pickle_is_refused_as_corpus(tmp_path: Path, suffix: str, hub_like: bool) -> None:
    """Guards against code in untrusted data: for a folder, a library chooses the reader."""
    target = tmp_path / "PWNED"
    place = tmp_path / "corpus" / f"train{suffix}"
    place.parent.mkdir()
    place.write_bytes(pickle.dumps(Payload(target)))
    data = tiny_config(tmp_path, data__train=place.parent if hub_like else place).data
    with pytest.raises(DataError, match="is a pickle" if hub_like else "must end in"):
        read_splits(find_source("train", data, data.train), data)
    assert not target.exists()


@pytest.mark.parametrize("name", ["../x", "..", "/etc/hostname", "a/b", "a\\b", "C:x", "", ".x", "x\n", "x\0", "é"])
def test_37_name_outside_the_folder_is_refused(run: Path, name: str) -> None:
    """Guards against a manifest that names other files of the machine."""
    step = untrained.newest(run)
    manifest = json.loads((step / checkpoint.MANIFEST).read_bytes())
    manifest["files"][name] = {"size": 1, "sha256": "0" * 64}
    (step / checkpoint.MANIFEST).write_bytes(serialization.json_bytes(manifest))
    untrained.forge(step, {})
    outside = {path: path.stat().st_mtime_ns for path in run.parent.parent.iterdir()}
    for only in (None, [name]):
        with pytest.raises(CheckpointError, match="not a plain file name"):
            checkpoint.read(step, only)
    assert {path: path.stat().st_mtime_ns for path in run.parent.parent.iterdir()} == outside


@pytest.mark.parametrize("name", [*FILES, checkpoint.MANIFEST])
def test_37_link_in_a_checkpoint_is_refused(run: Path, tmp_path: Path, name: str) -> None:
    """Guards against private files that a link would bring into a model which is then shared."""
    step = untrained.newest(run)
    (step / name).rename(tmp_path / "elsewhere")
    (step / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="is a link"):
        checkpoint.read(step)


def used(run: Path) -> dict[str, bytes]:
    """Load everything in a checkpoint, translate with it and read its progress; return the bytes used."""
    step = untrained.newest(run)
    found = checkpoint.read(step)
    translator = Translator(step, overrides=["--decoding.max_length", "3"])
    with torch.inference_mode():
        finite = all(bool(weight.isfinite().all()) for weight in translator.model.parameters())
    assert finite
    translator.translate(["the cat sees the dog."])
    tensors.load_tensors(found.files["training.pt"])
    train.progress_of(found)
    return found.files


@faults
@pytest.mark.parametrize("name", [*FILES, checkpoint.MANIFEST])
def test_37_damage_is_found_before_anything_is_used(pattern: Path, tmp_path: Path, name: str) -> None:
    """Guards against half a model: what is loaded is exactly what was saved, or nothing."""
    run = Path(shutil.copytree(pattern, tmp_path / "run"))
    path = untrained.newest(run) / name
    whole, draw = path.read_bytes(), random.Random(name)
    for _ in range(150):
        data = damaged(whole, draw)
        path.write_bytes(data)
        if data == whole:
            continue
        with pytest.raises(CheckpointError):
            checkpoint.read(path.parent)


@faults
@pytest.mark.parametrize("name", FILES)
def test_37_forged_damage_ends_in_one_error_or_none(pattern: Path, tmp_path: Path, name: str) -> None:
    """Guards against crashes, endless loops and code in bytes with matching hashes: all load, or a CheckpointError.

    Runs in its own process with an alarm, so that neither a crash in a library nor a loop passes for an error.
    """
    run = Path(shutil.copytree(pattern, tmp_path / "run"))
    step = untrained.newest(run)
    whole = (step / name).read_bytes()

    def work() -> int:
        draw = random.Random(name)
        refused = 0
        for _ in range(40 if name == "model.safetensors" else 60):
            data = damaged(whole, draw)
            untrained.forge(step, {name: data})
            try:
                assert used(run)[name] == data
            except CheckpointError:
                refused += 1
        return 0 if refused else 3

    assert in_child(work) == 0


STATES = {
    "nothing": b"{}",
    "a list": b"[]",
    "no data": b'{"progress": {"step": 1}}',
    "no number": b'{"progress": {"step": "one"}, "data": "DATA", "device": "cpu", "threads": 1}',
    "no mapping": b'{"progress": [1], "data": "DATA", "device": "cpu", "threads": 1}',
    "another version": b'{"progress": {"step": 1, "new": 2}, "data": "DATA", "device": "cpu", "threads": 1}',
}


@faults
@pytest.mark.parametrize("state", STATES)
def test_37_forged_state_is_refused(run: Path, state: str, capfd: pytest.CaptureFixture) -> None:
    """Guards against a resume from JSON that is valid but makes no sense."""
    step = untrained.newest(run)
    data = json.loads((step / "state.json").read_bytes())["data"]
    untrained.forge(step, {"state.json": STATES[state].replace(b"DATA", data.encode())})
    assert resume(run) == 4
    error = capfd.readouterr().err
    assert error.count("\n") == 1, error


@faults
@pytest.mark.parametrize("value", [{}, [], {"optimizer": {}}, {"optimizer": {"state": 7, "param_groups": [{"lr": 1}]}}])
def test_37_forged_optimizer_state_is_refused(run: Path, value: object, capfd: pytest.CaptureFixture) -> None:
    """Guards against a resume from tensors that are valid but belong to nothing."""
    untrained.forge(untrained.newest(run), {"training.pt": tensors.tensors_bytes(value)})
    assert resume(run) == 4
    assert capfd.readouterr().err.count("\n") == 1


@faults
def test_37_moments_of_another_shape_are_refused(run: Path, capfd: pytest.CaptureFixture) -> None:
    """Guards against torch's fused AdamW, which writes beyond the end of moments that are too small."""
    step = untrained.newest(run)
    held = tensors.load_tensors((step / "training.pt").read_bytes())
    small = {"step": torch.tensor(1.0), "exp_avg": torch.zeros(1), "exp_avg_sq": torch.zeros(1)}
    held["optimizer"]["state"] = {0: small}
    untrained.forge(step, {"training.pt": tensors.tensors_bytes(held)})
    assert resume(run) == 4
    assert "another shape" in capfd.readouterr().err


@faults
@pytest.mark.parametrize("name", ["config.yaml", "source.tokenizer.json", "trained_on.json"])
@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, b"model: {d_model: -1}"], ids=len
)
def test_37_forged_part_is_refused_in_one_line(run: Path, name: str, data: bytes) -> None:
    """Guards against errors of libraries, which users do not understand."""
    untrained.forge(untrained.newest(run), {name: data})
    with pytest.raises(CheckpointError) as error:
        Translator(run)
    assert str(run) in str(error.value)


FORGED_LENGTHS = [{"longest": {}}, {"longest": "x"}, {"longest": -1}, {"mean": 10**400}]
FORGED_STOPS = [{"full_stops": value} for value in (3, "x", {"en": 3}, {"en": {}}, {"en": {"abbreviations": [3]}})]


@faults
@pytest.mark.parametrize("forged", FORGED_LENGTHS + FORGED_STOPS)
def test_37_forged_lengths_are_refused(run: Path, forged: dict[str, object]) -> None:
    """Guards against a traceback much later, when a text is split by the lengths of the training lines."""
    report = json.loads((untrained.newest(run) / "trained_on.json").read_bytes())
    report["sides"][0] |= forged
    untrained.forge(untrained.newest(run), {"trained_on.json": json.dumps(report).encode()})
    with pytest.raises(CheckpointError):
        Translator(run)


@faults
def test_37_vocabulary_with_gaps_is_refused(run: Path) -> None:
    """Guards against a word whose id is beyond the rows of the weights."""
    path = untrained.newest(run) / "target.tokenizer.json"
    forged = json.loads(path.read_bytes())
    word = max(forged["model"]["vocab"], key=forged["model"]["vocab"].get)
    forged["model"]["vocab"][word] = 10**6
    untrained.forge(path.parent, {path.name: json.dumps(forged).encode()})
    with pytest.raises(CheckpointError, match="without gaps"):
        Translator(run)


@faults
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_37_forged_weights_end_in_bounded_time(run: Path, value: float) -> None:
    """Guards against an endless search among numbers without a maximum."""
    step = untrained.newest(run)
    saved = safetensors.torch.load((step / "model.safetensors").read_bytes())
    forged = safetensors.torch.save({name: torch.full_like(tensor, value) for name, tensor in saved.items()})
    untrained.forge(step, {"model.safetensors": forged})
    for settings in ([], ["--decoding.beam_size", "3"], ["--decoding.sample", "true"]):
        done = subprocess.run(
            [sys.executable, ROOT / "translate.py", "--run", run, *settings, "the cat"],
            capture_output=True,
            timeout=HANG,
        )
        assert b"Traceback" not in done.stderr


MODULES = sorted([*ROOT.glob("*.py"), *(ROOT / "dragoman").rglob("*.py")])
BANNED_CALLS = {
    "eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.loads",
    "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all",
    "os.system", "os.popen", "shelve.open", "joblib.load", "pandas.read_pickle", "jsonpickle.decode", "dill.loads",
}  # fmt: skip
BANNED_MODULES = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "jsonpickle"}
BANNED_ARGUMENTS = {"shell": True, "allow_pickle": True, "trust_remote_code": True, "weights_only": False}


def unsafe(tree: ast.AST) -> list[str]:
    """List what in a program could run its input, by line."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [f"{node.lineno}: import {name}" for name in names if name.partition(".")[0] in BANNED_MODULES]
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        arguments = {each.arg: ast.unparse(each.value) for each in node.keywords}
        if name in BANNED_CALLS:
            found.append(f"{node.lineno}: {name}")
        # Anything but the harmless constant counts, because the value of a variable is unknown here.
        found += [
            f"{node.lineno}: {argument}={arguments[argument]}"
            for argument, banned in BANNED_ARGUMENTS.items()
            if arguments.get(argument, str(not banned)) != str(not banned)
        ]
        if name == "torch.load" and arguments.get("weights_only") != "True":
            found.append(f"{node.lineno}: torch.load without weights_only=True")
        if name in ("yaml.parse", "yaml.compose") and arguments.get("Loader") != "yaml.SafeLoader":
            found.append(f"{node.lineno}: {name} without the safe loader")
    return found


@pytest.mark.parametrize("module", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_38_no_module_can_run_its_input(module: Path) -> None:
    """Guards against a careless line in a later change."""
    assert unsafe(ast.parse(module.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "pickle.load(file)", "import pickle", "from pickle import loads", "yaml.load(text)", "yaml.full_load(text)",
        "eval(text)", "exec(text)", "np.load(path, allow_pickle=True)", "np.load(path, allow_pickle=flag)",
        "torch.load(file)", "torch.load(file, weights_only=False)", "subprocess.run(line, shell=True)",
        "load_dataset(name, trust_remote_code=True)", "yaml.compose(text)", "yaml.unsafe_load(text)",
    ],
)  # fmt: skip
def test_38_scan_finds_unsafe_lines(line: str) -> None:
    """Guards against a blind scan; `torch.load(file, weights_only=True)` and the like must pass."""
    assert unsafe(ast.parse(line))
    assert not unsafe(ast.parse("torch.load(f, weights_only=True); np.load(p, allow_pickle=False); yaml.safe_load(t)"))


def test_38_no_test_reaches_the_network() -> None:
    """Guards against a suite that needs the network, or reveals that it runs."""
    for family, address in ((socket.AF_INET, ("192.0.2.1", 80)), (socket.AF_INET6, ("2001:db8::1", 80))):
        if family == socket.AF_INET6 and not socket.has_ipv6:
            continue
        with socket.socket(family) as connection, pytest.raises(PermissionError, match="network"):
            connection.connect(address)
    with pytest.raises(PermissionError, match="network"):
        socket.create_connection(("example.org", 80), timeout=1)
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["HF_DATASETS_OFFLINE"] == "1"


NASTY = "a\x1b[2J\x1b]0;x\x07b\x9bc\x7f\u202ed\u2066e"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def test_38_visible_text_controls_nothing() -> None:
    """Guards against a missed character: every control character, separator and direction mark must be replaced."""
    for code in range(0x110000):
        if RAW.match(chr(code)) or 0xD800 <= code < 0xE000 or code == 10:
            assert visible(chr(code)) == f"⟨U+{code:04X}⟩"
    assert visible("più 🙂 日本語 e\u0301") == "più 🙂 日本語 e\u0301"
    assert one_line("one\ntwo\x1b[1m") == "one two⟨U+001B⟩[1m"


def saying(program: Callable[[str], object], capfd: pytest.CaptureFixture) -> str:
    capfd.readouterr()
    program(NASTY)
    printed = capfd.readouterr()
    return printed.out + printed.err


def fail_to_parse(message: str) -> None:
    with pytest.raises(SystemExit):
        command_line.parse_translate([f"--{message}"])


def fail_to_configure(message: str) -> None:
    with pytest.raises(SystemExit):
        command_line.parse_settings(["--config", message])


DOORS: dict[str, Callable[[str], object]] = {
    "train.say": train.say,
    "console.warn": console.warn,
    "argparse": fail_to_parse,
    "config": fail_to_configure,
}


@faults
@pytest.mark.parametrize("door", DOORS)
def test_38_no_message_controls_a_terminal(door: str, capfd: pytest.CaptureFixture) -> None:
    """Guards against file names and text in a message that control the terminal or split the line."""
    said = saying(DOORS[door], capfd)
    assert "⟨U+001B⟩[2J" in said or "U+001B" in said
    assert not RAW.search(said)
    assert said.count("\n") == 1


@faults
def test_38_no_output_of_training_controls_a_terminal(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Guards all output of train.py, with hostile characters in the corpus and in the name of its folder."""
    folder = tmp_path / NASTY
    pairs = [(f"{a} {NASTY}", f"{b} {NASTY}") for a, b in tiny_pairs(60)]
    corpus = write_tsv(folder / "corpus.tsv", pairs)
    config = tiny_config(folder, data__train=corpus, training__max_epochs=1, training__validate_every=2)
    assert in_child(lambda: run_command("train", config)) == 0
    said = capfd.readouterr()
    assert "⟨U+001B⟩" in said.out
    assert not RAW.search(said.out)
    corpus.write_bytes(b"one\n")
    assert in_child(lambda: run_command("train", tiny_config(folder, run__name="other", data__train=corpus))) == 3
    said = capfd.readouterr()
    assert "⟨U+001B⟩" in said.err
    assert not RAW.search(said.out + said.err)


@faults
@pytest.mark.parametrize(
    "options", [[], ["--decoding.unknown", "keep"], ["--align"], ["--json"], ["--decoding.beam_size", "3", "--align"]]
)
def test_38_no_translation_controls_a_terminal(tmp_path: Path, options: list[str]) -> None:
    """Guards the terminal when a hostile file is translated: text, table, warnings and prompt."""
    pairs = [(f"{a} {NASTY}", f"{b} {NASTY}") for a, b in tiny_pairs(60)]
    corpus = write_tsv(tmp_path / "corpus.tsv", pairs)
    bytes_ = {"tokenizer__kind": "bpe", "tokenizer__vocab_size": 300, "decoding__max_length": 30}
    run = untrained.run(tmp_path / "run", data__train=corpus, **bytes_)
    ours, theirs = pty.openpty()
    text = f"{NASTY} see https://x.org/{NASTY}x, the cat."
    arguments = [sys.executable, str(ROOT / "translate.py"), "--run", str(run), *options, text]
    with subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 4096)
            except OSError:
                break
    assert process.returncode == 0
    os.close(ours)
    assert not RAW.search(shown.decode().replace("\r\n", "\n")), shown
    if "keep" in options:
        assert "lost in translation: https://x.org/a⟨U+001B⟩" in shown.decode()


@faults
def test_38_no_streamed_word_controls_a_terminal(
    pattern: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Guards the prompt, where words appear as they are found, and its text, which names a language."""
    lines = iter([f"the cat {NASTY} zyx."])
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", ask)
    monkeypatch.setattr(prompt, "_save_history", lambda _: None)
    monkeypatch.setattr(prompt, "HISTORY", Path("/nonexistent"))
    translator = Translator(pattern)
    object.__setattr__(translator.config.data, "source_lang", NASTY)
    monkeypatch.setattr(translator.target, "decode", lambda ids: NASTY)
    monkeypatch.setattr(translator.target, "decode_with", lambda ids, words: NASTY)
    prompt.converse(translator)
    printed = capfd.readouterr()
    assert "⟨U+001B⟩[2J" in printed.out
    assert not RAW.search("".join([printed.out, printed.err, *asked]))


@faults
def test_38_attention_table_controls_nothing() -> None:
    """Guards the table of --align where translate.py does not print it."""
    weights = torch.full((1, 1, 2, 2), 0.5).numpy()
    candidate = Candidate(NASTY, [], [NASTY, "[EOS]"], [-1.0, -1.0], -1.0, True, {})
    sentence = Sentence(NASTY, NASTY, [], [], [NASTY, "[EOS]"], [], [candidate])
    assert not RAW.search("\n".join(attention_page.table(sentence, candidate, weights)))


@faults
def test_38_hub_data_without_a_revision_give_a_warning(tmp_path: Path) -> None:
    """Guards against a run that cannot be repeated, because its data set has changed since."""
    for revision, warned in ((None, True), ("0123abc", False)):
        config = tiny_config(tmp_path, data__train="Some-Body/some_books", data__revision=revision)
        said: list[str] = []
        with pytest.raises(DataError, match=r"cannot be (reached|loaded)"):
            preparation.prepare_data(config, tmp_path / "data", said.append)
        assert any("set data.revision to a commit" in line for line in said) == warned
    said = []
    preparation.prepare_data(tiny_config(tmp_path), tmp_path / "data", said.append)
    assert not any("data.revision" in line for line in said)
