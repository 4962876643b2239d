"""CTranslate2 as the engine: the same translations without torch, and files that are never stale or damaged."""

from __future__ import annotations

import builtins
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from conftest import HANG, ROOT, tiny_config, tiny_pairs
from dragoman import checkpoint, command_line
from dragoman.__main__ import run as run_command
from dragoman.architectures import ctranslate2_spec
from dragoman.errors import EngineError, ExportError, UnsupportedError
from dragoman.evaluation.metrics import score
from dragoman.serialization import sealed, unsealed
from dragoman.settings import UNK, Config, DecodingConfig
from dragoman.translation import assembly, ctranslate2_engine, engine_files, engine_precision, engine_writer
from dragoman.translation.loading import TEXT, find_checkpoint
from dragoman.translation.translator import Translator
from test_export_formats import PAIRS

TEXTS = [source for source, _ in PAIRS[:60]] + ["", "the cat sees Zoltan.\n\nthe dog sees the cat."]
FLOAT32 = ["--decoding.precision", "float32"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few epochs whose translations differ from one another."""
    config = tiny_config(tmp_path_factory.mktemp("engine"))
    assert run_command("train", config) == 0
    return Path(config.run.dir) / config.run.name


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run without files for CTranslate2, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(trained, tmp_path / "run"))


def fast(run: Path, *overrides: str) -> Translator:
    return Translator(run, "cpu", [*FLOAT32, *overrides], "ctranslate2")


def slow(run: Path, *overrides: str) -> Translator:
    return Translator(run, "cpu", [*FLOAT32, *overrides])


def files_of(run: Path) -> Path:
    [folder] = (run / "exports").glob("engine-*")
    return folder


@pytest.mark.parametrize(
    "overrides", [(), ("--decoding.max_length", "3"), ("--decoding.unknown", "keep"), ("--decoding.unknown", "drop")]
)
def test_translations_are_those_of_our_own_search(run: Path, overrides: tuple[str, ...]) -> None:
    """Guards limits, prefixes, copies, banned placeholders, order and batches."""
    one, other = slow(run, *overrides), fast(run, *overrides)
    assert other.translate(TEXTS) == one.translate(TEXTS)
    assert other.warnings == one.warnings
    assert len(set(other.translate(TEXTS))) > 5
    prefixed = [one.request(text, prefix="il") for text in TEXTS]
    assert other.translate(prefixed) == one.translate(prefixed)
    said: list[str] = []
    assert other.speak(TEXTS[0], said.append).text == "".join(said)
    for a, b in zip(one.explain(TEXTS), other.explain(TEXTS), strict=True):
        for s, t in zip(a.sentences, b.sentences, strict=True):
            # CTranslate2 shares the probability of banned tokens among the others before it scores them, and of a
            # translation that is cut off it has not scored the same tokens.
            if s.candidates[0].complete:
                assert -1e-3 <= t.candidates[0].score - s.candidates[0].score < 0.1


def prefer_unknown_words(run: Path) -> None:
    """Change the best checkpoint so that [UNK] is often the likeliest token."""
    found = checkpoint.read(find_checkpoint(run, TEXT).path)
    weights = safetensors.torch.load(found.files["model.safetensors"])
    embedding = weights["decoder.embedding.table.weight"]  # also the projection
    embedding[UNK] = 1.05 * embedding[Translator(run, "cpu").target.vocabulary["il"]]
    files = found.files | {"model.safetensors": safetensors.torch.save(weights)}
    checkpoint.publish(found.path, found.step, files)


@pytest.mark.parametrize("beam", ["1", "3"])
def test_no_more_unknown_words_than_in_the_source(run: Path, beam: str) -> None:
    """Guards [UNK] in place of words: CTranslate2 can only allow any number of them or none."""
    prefer_unknown_words(run)
    one, other = slow(run, "--decoding.beam_size", beam), fast(run, "--decoding.beam_size", beam)
    requests = [one.request(text, prefix=prefix) for text in TEXTS for prefix in ("xyzzy", "il xyzzy", "il")]
    expected, found = one.translate(requests), other.translate(requests)
    assert max(text.count("[UNK]") for text in found) == max(text.count("[UNK]") for text in expected)
    assert found == expected or beam == "3"


def test_hypotheses_come_in_the_order_of_their_scores(run: Path) -> None:
    """Guards the way of n-best lists through the engine."""
    beam = fast(run, "--decoding.beam_size", "4", "--decoding.n_best", "3").explain(TEXTS[:9])
    assert all(len(sentence.candidates) == 3 for one in beam for sentence in one.sentences)
    scores = [[candidate.score for candidate in s.candidates] for one in beam for s in one.sentences]
    assert all(each == sorted(each, reverse=True) for each in scores)


def test_int8_translates_as_well_as_float32(learned: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the way of other precisions through the engine. Single translations may differ, by processor: some
    saturate sums of bytes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = shutil.copytree(Path(learned.run.dir) / learned.run.name, tmp_path / "run")
    sources, references = map(list, zip(*tiny_pairs(100, seed=5), strict=True))
    bleu = {
        name: score(fast(run, "--decoding.precision", name).translate(sources), references, "13a").bleu
        for name in ("float32", "int8")
    }
    assert bleu["float32"] > 50
    assert bleu["int8"] > bleu["float32"] - 10


def test_another_precision_keeps_the_engine(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against our own engine, three times as slow, after `with_decoding(precision=...)`."""
    one = fast(run)
    loaded: list[object] = []
    monkeypatch.setattr(type(one.trained), "model", property(lambda _: loaded.append(1)))
    int8 = one.with_decoding(precision="int8")
    assert int8._fast is not one._fast
    assert int8._fast is not None
    assert int8._fast.translator.compute_type.startswith("int8")
    int8.translate(TEXTS[:3])
    assert not loaded
    assert one.with_decoding(precision="bfloat16")._fast is None  # CTranslate2's bfloat16 is not for every CPU


def test_what_needs_the_model_still_works(run: Path) -> None:
    """Guards the model that is loaded only when something asks for it."""
    one, other = slow(run), fast(run)
    [[sentence]] = [each.sentences for each in other.explain(TEXTS[:1])]
    assert (other.alignments([(sentence, sentence.candidates[0])])[0] > 0).any()
    pairs = [(TEXTS[0], "il gatto.")]
    assert other.score(pairs)[0].score == pytest.approx(one.score(pairs)[0].score, abs=1e-4)
    assert other.with_decoding(sample=True, seed=3).translate(TEXTS) == one.with_decoding(
        sample=True, seed=3
    ).translate(TEXTS)
    long = " ".join(["the cat"] * 600)
    assert other.with_decoding(split_sentences=False).translate(long) == one.with_decoding(
        split_sentences=False
    ).translate(long)


def test_files_are_made_once_for_each_checkpoint(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a run that is trained further, where old files would give old translations, and a user's own folder."""
    made: list[Path] = []
    write = engine_writer.write

    def counted(path: Path, folder: Path, identity: str) -> None:
        made.append(folder)
        write(path, folder, identity)

    monkeypatch.setattr(engine_writer, "write", counted)
    (run / "exports" / "engine-phone").mkdir(parents=True)
    for _ in range(2):
        best = fast(run).path
    assert len(made) == 1
    other = next(path for path in checkpoint.steps(run / "checkpoints") if path != best)
    assert fast(other).translate(TEXTS) == slow(other).translate(TEXTS)
    assert len(made) == 2
    assert {path.name for path in (run / "exports").iterdir()} == {made[1].name, "engine-phone"}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def forge(folder: Path, model: int = 0, **changes: Any) -> None:
    """Change what the mark says, with a hash that agrees; give model.bin this size if it is not 0."""
    mark = unsealed((folder / engine_files.MARK).read_bytes())
    (folder / engine_files.MARK).write_bytes(sealed({**mark, **changes}))
    if model:
        os.truncate(folder / "model.bin", model)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(folder / "model.bin"),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: flip(folder / engine_files.MARK),
        lambda folder: (folder / "model.bin").write_bytes(b""),
        lambda folder: forge(folder, files=["model.bin"]),
        lambda folder: forge(folder, files={"model.bin": {"size": 5}}),
        lambda folder: forge(folder, files={}),
        lambda folder: forge(folder, files={"../model.bin": {"size": 5, "sha256": ""}}),
        lambda folder: forge(folder, files={"config.json": {"size": 10**15, "sha256": ""}}),
        lambda folder: forge(folder, files={"model.bin": {"size": 10**13, "sha256": ""}}, model=10**13),
        lambda folder: forge(folder, version=[]),
        lambda folder: (folder / engine_files.MARK).write_bytes(b"[" * 100_000),
        lambda folder: os.truncate(folder / engine_files.MARK, 50 * 10**9),
    ],
    ids=[
        "bit",
        "missing",
        "mark",
        "empty",
        "list",
        "no sha256",
        "no files",
        "outside",
        "large text",
        "large model",
        "version",
        "no json",
        "large mark",
    ],
)
def test_damaged_files_are_made_again(run: Path, damage: Callable[[Path], object]) -> None:
    """Guards against translating with half a model."""
    expected = fast(run).translate(TEXTS)
    folder = files_of(run)
    before = (folder / "model.bin").read_bytes()
    damage(folder)
    assert fast(run).translate(TEXTS) == expected
    assert (files_of(run) / "model.bin").read_bytes() == before


def test_files_of_others_are_made_again(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against files that came with a stranger's run: all hashes fit, and CTranslate2 trusts what it reads."""
    expected = fast(run).translate(TEXTS)
    model = files_of(run) / "model.bin"
    before = model.read_bytes()
    mark = unsealed((files_of(run) / engine_files.MARK).read_bytes())
    flip(model)
    mark["files"]["model.bin"] = checkpoint.file_entry(model.read_bytes())
    (files_of(run) / engine_files.MARK).write_bytes(sealed(mark))
    assert fast(run).translate(TEXTS) == expected
    assert model.read_bytes() == before
    made = model.stat().st_ino
    fast(run)
    assert model.stat().st_ino == made
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache of another user"))
    fast(run)
    assert model.stat().st_ino != made
    key = engine_files.user_cache() / engine_files.KEY
    assert os.name == "nt" or key.stat().st_mode & 0o077 == 0


def test_a_key_that_cannot_be_kept_is_no_reason_to_fail(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards containers and services without a home: the files are made for each process, which is said."""
    (tmp_path / "no folder").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no folder"))
    assert fast(run).translate(TEXTS) == slow(run).translate(TEXTS)
    made = files_of(run).stat().st_ino
    fast(run)
    assert files_of(run).stat().st_ino == made
    assert capsys.readouterr().err.count("are made at every start") == 1


def test_a_wrong_file_is_found(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards the comparison with the model: with one wrong matrix nothing is written, and torch is used."""
    projections = ctranslate2_spec.attention_projections

    def negated(attention: Any) -> Any:
        (weight, bias), *others = projections(attention)
        return [(-weight, bias), *others]

    monkeypatch.setattr(ctranslate2_spec, "attention_projections", negated)
    with pytest.raises(ExportError, match="log-probabilities"):
        fast(run)
    assert not list(run.glob("exports/engine-*"))
    capsys.readouterr()
    assert Translator(run, "cpu", FLOAT32, "auto").translate(TEXTS) == slow(run).translate(TEXTS)
    assert capsys.readouterr().err.count("Translating with torch instead") == 1


def test_a_read_only_run_uses_the_cache(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards runs of another user or on a read-only disk: the files lie in the user's cache, and are made once."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_relative_to(run) and access(path, mode))
    before = sorted(run.rglob("*"))
    assert fast(run).translate(TEXTS) == slow(run).translate(TEXTS)
    [made] = (tmp_path / "cache" / "dragoman").glob("engine-*")
    assert str(made) in capsys.readouterr().err
    assert sorted(run.rglob("*")) == before
    changed = (made / "model.bin").stat().st_mtime_ns
    fast(run)
    assert (made / "model.bin").stat().st_mtime_ns == changed


def test_no_place_to_write_is_no_reason_to_fail(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(EngineError, match="can be written to none"):
        fast(run)
    assert Translator(run, "cpu", FLOAT32, "auto").translate(TEXTS) == slow(run).translate(TEXTS)


def test_without_the_library_torch_translates(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards a platform for which there is no CTranslate2: it is said once, and everything works."""
    original = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "ctranslate2":
            raise ImportError("no such wheel")
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert Translator(run, "cpu", FLOAT32, "auto").translate(TEXTS) == slow(run).translate(TEXTS)
    assert capsys.readouterr().err.count("no such wheel") == 1
    with pytest.raises(EngineError, match="no such wheel"):
        fast(run)


def test_the_cache_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Guards the place of the cache: as the XDG specification says, and never relative to the current folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert engine_files.user_cache() == tmp_path / "dragoman"
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert engine_files.user_cache().is_absolute()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    assert engine_files.user_cache() == Path.home() / ".cache" / "dragoman"


def translated(run: Path, *more: str) -> int:
    return run_command("translate", command_line.parse_translate(["--run", str(run), "--device", "cpu", *more]))


def test_engine_on_the_command_line(run: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Guards --engine from the command line to the output, and the message for a setting that it lacks."""
    assert translated(run, "--engine", "ctranslate2", "--decoding.beam_size", "2", "the cat sees the dog.") == 0
    assert capsysbinary.readouterr().out.strip()
    assert translated(run, "--engine", "ctranslate2", "--decoding.sample", "true", "the cat.") == 2
    assert b"decoding.sample" in capsysbinary.readouterr().err
    assert translated(run, "--decoding.sample", "true", "the cat.") == 0
    assert b"decoding.sample" not in capsysbinary.readouterr().err  # a model this small may find no word
    with pytest.raises(SystemExit, match="2"):
        translated(run, "--engine", "ctranslate2", "--json", "the cat.")


@pytest.mark.parametrize(
    "changes",
    [{"min_ratio": 0.5}, {"beam_size": 2, "diversity_groups": 2}, {"beam_size": 2, "length_formula": "paper"}],
)
def test_settings_that_ctranslate2_lacks_are_refused(run: Path, changes: dict[str, Any]) -> None:
    """Guards against a setting that would be ignored without a word."""
    named = list(changes)[-1]
    assert named in (ctranslate2_engine.unsupported_setting(DecodingConfig(**changes)) or "")
    assert ctranslate2_engine.unsupported_setting(DecodingConfig(beam_size=4, n_best=2, length_penalty=0.5)) is None
    with pytest.raises(UnsupportedError, match=named):
        fast(run, *(word for key, value in changes.items() for word in (f"--decoding.{key}", str(value))))


def test_translating_does_not_import_torch(run: Path) -> None:
    """Guards the start of the program: importing torch takes several times as long as everything else."""
    fast(run)  # makes the files
    code = "import sys; from dragoman.__main__ import main; status = main(sys.argv[1:])\n"
    code += "assert not status, status\nassert 'ctranslate2' in sys.modules and 'torch' not in sys.modules"
    words = ["translate", "--run", str(run), "--device", "cpu", TEXTS[0], ""]
    result = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == slow(run).translate(TEXTS[0]) + "\n\n"


def test_attention_of_ctranslate2_restores_placeholders(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards unknown words in unclear translations: the engine says itself where they belong, without torch."""
    texts = [f"{name} sees {other}. the cat sees {name}." for name in ("Zoltan", "Ivo") for other in ("Ada", "the dog")]
    texts += ["Zoltan, Ivo and Ada see the cat of Imre.", "https://x.org Zoltan the dog"]
    calls: list[Any] = []

    def counted(*given: Any) -> Any:
        calls.append(given)
        return restore(*given)

    restore = assembly.restore
    monkeypatch.setattr(assembly, "restore", counted)
    for overrides in ((), ("--decoding.beam_size", "3", "--decoding.n_best", "2")):
        calls.clear()
        translator = fast(run, *overrides)
        found = translator.explain(texts)
        assert calls
        assert translator.trained.weights.cache_info().currsize == 0  # type: ignore[attr-defined]
        if not overrides:  # beams of the two engines may differ
            assert [each.text for each in found] == [each.text for each in slow(run).explain(texts)]
            prefixed = [translator.request(text, prefix="il") for text in texts]
            assert translator.translate(prefixed) == slow(run).translate(prefixed)


def test_the_fastest_precision_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Guards int8 where float32 is faster, and a measurement at every start."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    measured: list[str] = []
    times = {"int8": 1.0, "float32": 1.3}

    def seconds(_: Any, __: Any, precision: str) -> float:
        measured.append(precision)
        return times[precision]

    def chosen(name: str = "auto", size: int = engine_precision.CACHE + 1, supported: str = "int8 float32") -> str:
        measured.clear()
        return engine_precision.choose(name, {"model.bin": bytes(size)}, ["a"], supported.split())

    monkeypatch.setattr(engine_precision, "seconds", seconds)
    assert (chosen("int8"), chosen("float32"), chosen(size=9), chosen(supported="float32")) == (
        "int8", "float32", "float32", "float32"
    )  # fmt: skip
    assert not measured
    assert (chosen(), len(measured)) == ("int8", 2)
    times["float32"] = 1.1
    assert (chosen(), len(measured)) == ("int8", 0)  # remembered
    assert (chosen(size=engine_precision.CACHE + 2), len(measured)) == ("float32", 2)  # another size
    file = tmp_path / "cache" / "dragoman" / "precision.json"
    file.write_text("{")
    assert (chosen(), len(measured)) == ("float32", 2)
    monkeypatch.setattr(engine_precision, "_processor", lambda: "another")
    assert (chosen(), len(measured)) == ("float32", 2)
    file.unlink()
    file.mkdir()  # cannot be written
    for _ in range(2):
        assert (chosen(), len(measured)) == ("float32", 2)


def test_precision_is_measured_on_a_real_model(run: Path) -> None:
    """Guards the measurement itself."""
    translator = fast(run)
    files = engine_files.engine_files(translator.path)
    for precision in ("int8", "float32"):
        assert 0 < engine_precision.seconds(files, translator.source.tokens_by_id, precision) < 60


def test_two_processes_may_make_the_files_at_once(run: Path) -> None:
    """Guards two programs that start with the same new checkpoint: both translate, and one set of files stays."""
    words = ["translate.py", "--run", str(run), "--device", "cpu", "--engine", "ctranslate2", TEXTS[0]]
    both = [
        subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        output, errors = process.communicate(timeout=HANG)
        assert process.returncode == 0, errors
        assert output == slow(run).translate(TEXTS[0]) + "\n"
    assert fast(run).translate(TEXTS[0]) == slow(run).translate(TEXTS[0])
    assert [path.name for path in (run / "exports").iterdir()] == [files_of(run).name]


def test_other_devices_are_left_to_torch() -> None:
    """Guards devices that CTranslate2 does not know, and a GPU that nobody asked it to use."""
    device = ctranslate2_engine._device
    assert device("auto", False, 0) == "cpu"
    assert device("auto", True, 1) == "cuda"
    assert device("cuda:1", True, 2) == "cuda:1"
    for name, gpu, gpus in [("mps", True, 1), ("cuda:1", True, 1), ("cuda", True, 0), ("auto", False, 1)]:
        with pytest.raises(UnsupportedError):
            device(name, gpu, gpus)


def test_a_failure_of_ctranslate2_is_a_message(run: Path) -> None:
    """Guards a library that is missing only when the first sentence is translated."""

    class Failing:
        def result(self) -> None:
            raise RuntimeError("Library libcublas.so.12 is not found")

    translator = fast(run)
    assert translator._fast is not None
    translator._fast._start = lambda *_, **__: [Failing()]  # type: ignore[method-assign, list-item]
    with pytest.raises(EngineError, match=r"libcublas.*--engine torch"):
        translator.translate("the cat.")


def test_a_kill_while_the_files_are_made(run: Path) -> None:
    """Guards against half-made files: the next start makes them, and removes what the killed one left."""
    code = "import os, signal, sys\nfrom dragoman.translation import engine_writer\n"
    code += "engine_writer.compare = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    code += "from dragoman.__main__ import main; main(sys.argv[1:])"
    words = ["translate", "--run", str(run), "--device", "cpu", "--engine", "ctranslate2", TEXTS[0]]
    killed = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True)
    assert killed.returncode == -9
    assert not list((run / "exports").glob("engine-*"))
    assert list((run / "exports").glob(".tmp-*"))
    assert fast(run).translate(TEXTS[0]) == slow(run).translate(TEXTS[0])
    assert [path.name for path in (run / "exports").iterdir()] == [files_of(run).name]


FORKS = """
import multiprocessing, os, sys
from dragoman import Translator

run, *texts = sys.argv[1:]
translator = Translator(run, "cpu", ["--decoding.precision", "float32"], "ctranslate2")
other = translator.with_decoding(beam_size=2)
before = {before}

def translate(some):
    return translator.translate(some)

def statuses(*work):
    for each in work:
        if (child := os.fork()) == 0:
            each()
            sys.exit(0)  # with all that the interpreter does at its end, unlike multiprocessing
        yield os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def grandchild():
    assert list(statuses(lambda: translator.translate(texts))) == [0]

with multiprocessing.get_context("fork").Pool(2) as pool:
    parts = pool.map(translate, [texts[:5], texts[5:]])
assert list(statuses(lambda: None, lambda: other.translate(texts), grandchild)) == [0, 0, 0]
assert parts[0] + parts[1] == translator.translate(texts)
assert before in (None, parts[0] + parts[1])
"""


@pytest.mark.parametrize("before", ["None", "translator.translate(texts)"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_translates(run: Path, before: str) -> None:
    """Guards against a child that waits for the threads of its parent: in a search, or when it ends without one."""
    script = FORKS.replace("{before}", before)
    subprocess.run([sys.executable, "-c", script, run, *TEXTS[:10]], check=True, timeout=300, cwd=ROOT)
