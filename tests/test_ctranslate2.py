"""CTranslate2 as the engine: the same translations without torch, and files that are never stale or damaged."""

from __future__ import annotations

import builtins
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from conftest import HANG, ROOT, tiny_config, tiny_pairs
from dragoman import checkpoint, command_line
from dragoman.__main__ import run as run_command
from dragoman.architectures import ctranslate2_spec
from dragoman.errors import EngineError, UnsupportedError
from dragoman.evaluation.metrics import Measurements
from dragoman.settings import UNK, Config, DecodingConfig, ModelConfig
from dragoman.translation import ctranslate2_engine, engine_files
from dragoman.translation.loading import TEXT, find_checkpoint
from dragoman.translation.translator import Translator
from echo import echo
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


def kept() -> Path:
    """The one folder of files for CTranslate2 in the cache."""
    [folder] = engine_files.cache_folder().iterdir()
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
    """The engine returns n-best lists in the right order."""
    beam = fast(run, "--decoding.beam_size", "4", "--decoding.n_best", "3").explain(TEXTS[:9])
    assert all(len(sentence.candidates) == 3 for one in beam for sentence in one.sentences)
    scores = [[candidate.score for candidate in s.candidates] for one in beam for s in one.sentences]
    assert all(each == sorted(each, reverse=True) for each in scores)


def test_int8_translates_as_well_as_float32(learned: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine computes in other precisions. Single translations may differ, by processor: some
    saturate sums of bytes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = shutil.copytree(Path(learned.run.dir) / learned.run.name, tmp_path / "run")
    sources, references = map(list, zip(*tiny_pairs(100, seed=5), strict=True))
    bleu = {
        name: Measurements(fast(run, "--decoding.precision", name).translate(sources), references).bleu.score()
        for name in ("float32", "int8")
    }
    assert bleu["float32"] > 50
    assert bleu["int8"] > bleu["float32"] - 10


def test_what_needs_the_model_still_works(run: Path) -> None:
    """The model is loaded when something needs it."""
    one, other = slow(run), fast(run)
    [translation] = other.with_alignments(other.explain(TEXTS[:1]))
    weights = translation.sentences[0].candidates[0].weights
    assert weights is not None
    assert (weights > 0).any()
    pairs = [(TEXTS[0], "il gatto.")]
    assert other.score(pairs)[0].score == pytest.approx(one.score(pairs)[0].score, abs=1e-4)
    assert other.with_decoding(sample=True, seed=3).translate(TEXTS) == one.with_decoding(
        sample=True, seed=3
    ).translate(TEXTS)
    long = " ".join(["the cat"] * 600)
    whole = [each.with_decoding(split_sentences=False).translate(long) for each in (one, other)]
    assert whole[0] == whole[1], "CTranslate2 has too few positions for it"


def test_files_are_made_once_for_each_checkpoint(run: Path) -> None:
    """Guards a run that is trained further, where old files would give old translations, and a run that cannot be
    written: nothing is added to it."""
    before = sorted(run.rglob("*"))
    best = fast(run).path
    made = (kept() / "model.bin").stat().st_ino
    fast(run)
    assert (kept() / "model.bin").stat().st_ino == made
    other = next(path for path in checkpoint.steps(run / "checkpoints") if path != best)
    assert fast(other).translate(TEXTS) == slow(other).translate(TEXTS)
    assert len(list(engine_files.cache_folder().iterdir())) == 2
    assert sorted(run.rglob("*")) == before


def test_files_that_nobody_uses_are_removed(run: Path) -> None:
    """Guards the disk: each new checkpoint adds its weights to the cache."""
    old = engine_files.cache_folder() / "old"
    fast(run)
    first = kept()
    for folder in (first, old):
        folder.mkdir(exist_ok=True)
        os.utime(folder, (0, 0))
    fast(run)  # uses the first folder again
    fast(next(path for path in checkpoint.steps(run / "checkpoints") if path != fast(run).path))
    assert first.exists()
    assert not old.exists()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(folder / "model.bin"),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: flip(folder / checkpoint.MANIFEST),
        lambda folder: os.truncate(folder / "model.bin", 0),
        lambda folder: os.truncate(folder / "model.bin", 10**13),
    ],
    ids=["bit", "missing", "manifest", "empty", "large"],
)
def test_damaged_files_are_made_again(run: Path, damage: Callable[[Path], object]) -> None:
    """Guards against translating with half a model."""
    expected = fast(run).translate(TEXTS)
    before = (kept() / "model.bin").read_bytes()
    damage(kept())
    assert fast(run).translate(TEXTS) == expected
    assert (kept() / "model.bin").read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize("place", ["writable by others", "no folder", "a link", "no home"])
def test_a_cache_that_is_not_private_is_not_used(
    run: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against forged files, as CTranslate2 trusts what it reads, and services without a home."""
    fast(run)
    folder = engine_files.cache_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    flip(kept() / "model.bin")  # a forger's work, which nobody looks at
    match place:
        case "writable by others":
            folder.chmod(0o770)
        case "no folder":
            (tmp_path / "file").touch()
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        case "a link":
            folder.rename(tmp_path / "elsewhere")
            folder.symlink_to(tmp_path / "elsewhere")
        case "no home":
            monkeypatch.delenv("XDG_CACHE_HOME")
            monkeypatch.delenv("HOME")
            monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert fast(run).translate(TEXTS) == slow(run).translate(TEXTS)
    assert capsys.readouterr().err.count("are made at every start") == 1


def test_a_wrong_file_is_found(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards the comparison with the model: with one wrong matrix nothing is written, and torch is used."""
    projections = ctranslate2_spec.attention_projections

    def negated(attention: Any) -> Any:
        (weight, bias), *others = projections(attention)
        return [(-weight, bias), *others]

    monkeypatch.setattr(ctranslate2_spec, "attention_projections", negated)
    with pytest.raises(EngineError, match="log-probabilities"):
        fast(run)
    assert not list(engine_files.cache_folder().iterdir())
    capsys.readouterr()
    assert Translator(run, "cpu", FLOAT32, "auto").translate(TEXTS) == slow(run).translate(TEXTS)
    assert capsys.readouterr().err.count("Translating with torch instead") == 1


def test_without_the_library_torch_translates(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a platform without CTranslate2, one message says so, and everything works."""
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


def test_json_does_not_change_translations(run: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Guards the choice of the engine: options that show more of a translation do not change it, nor its warnings."""
    shown = []
    for more in ([], ["--json"], ["--align"]):
        assert translated(run, "--decoding.beam_size", "3", *more, *TEXTS[:5], TEXTS[-1]) == 0
        shown.append(capsysbinary.readouterr())
    rows = [json.loads(line) for line in shown[1].out.splitlines()]
    assert "".join(row["translation"] + "\n" for row in rows).encode() == shown[0].out
    assert {each.err for each in shown} == {shown[0].err}
    for row in rows:
        for candidate in (sentence["candidates"][0] for sentence in row["sentences"]):
            assert len(candidate["log_probs"]) == len(candidate["tokens"])
            if candidate["tokens"]:
                assert candidate["score"] == pytest.approx(
                    sum(candidate["log_probs"]) / len(candidate["tokens"]), abs=1e-3
                )


def test_translating_does_not_import_torch(run: Path) -> None:
    """Guards the start of the program, also for unknown words: the engine's own attention places them."""
    texts = [f"{name} sees {other}. the cat sees {name}." for name in ("Zoltan", "Ivo") for other in ("Ada", "the dog")]
    texts += ["Zoltan, Ivo and Ada see the cat of Imre.", "https://x.org Zoltan the dog", ""]
    fast(run)  # makes the files
    code = "import sys; from dragoman.__main__ import main; status = main(sys.argv[1:])\n"
    code += "assert not status, status\nassert 'ctranslate2' in sys.modules and 'torch' not in sys.modules"
    words = ["translate", "--run", str(run), "--device", "cpu", *texts]
    result = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split("\n")[:-1] == slow(run).translate(texts)


def test_choice_of_precision() -> None:
    """Guards int8 for weights that fit into the cache, which would gain little and cost accuracy."""
    assert ctranslate2_engine.choose_precision("auto", ctranslate2_engine.CACHE, "cpu") == "float32"
    assert ctranslate2_engine.choose_precision("auto", ctranslate2_engine.CACHE + 1, "cpu") == "int8"
    assert ctranslate2_engine.choose_precision("float32", ctranslate2_engine.CACHE + 1, "cpu") == "float32"


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
    assert {path.name for path in kept().iterdir()} >= {"model.bin", "config.json", checkpoint.MANIFEST}


def test_the_choice_of_the_engine_names_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards settings that would be ignored, unknown devices, and a GPU that nobody asked CTranslate2 to use."""
    import ctranslate2

    def choose(name: str, device: str = "cpu", models: int = 1, **changes: Any) -> ctranslate2_engine.Choice:
        trained = replace(echo().trained, config=Config(**changes), shapes=[ModelConfig()] * models)
        return ctranslate2_engine.choose_engine(name, trained, device)  # type: ignore[arg-type]

    def decoding(**changes: Any) -> dict[str, Any]:
        return {"decoding": DecodingConfig(**changes)}

    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    assert choose("auto", **decoding(beam_size=4, n_best=2, length_penalty=0.5)).engine == "ctranslate2"
    assert choose("torch").reason == "torch is asked for"
    assert choose("ctranslate2", "auto")[:2] == ("ctranslate2", "cuda")
    assert choose("auto", "cuda").engine == "torch"
    for reason, given in {
        "several models": {"models": 2},
        "decoder-only": {"model": ModelConfig(architecture="decoder-only")},
        "sample": decoding(sample=True),
        "length_formula": decoding(beam_size=2, length_formula="paper"),
        "bfloat16": decoding(precision="bfloat16"),
        "more than 1,023": decoding(max_length=1024),
        "may have more": decoding(split_sentences=False),
        "cuda:1": {"device": "cuda:1"},
        "mps": {"device": "mps"},
    }.items():
        chosen = choose("auto", **given)
        assert chosen.engine == "torch"
        assert reason in chosen.reason
        with pytest.raises(UnsupportedError, match=reason):
            choose("ctranslate2", **given)


def test_a_failure_of_ctranslate2_is_a_message(run: Path) -> None:
    """Guards against a traceback when the library fails at the first sentence."""

    class Failing:
        def result(self) -> None:
            raise RuntimeError("Library libcublas.so.12 is not found")

    translator = fast(run)
    assert translator._engine is not None
    translator._engine._start = lambda *_, **__: [Failing()]  # type: ignore[method-assign, list-item]
    with pytest.raises(EngineError, match=r"libcublas.*--engine torch"):
        translator.translate("the cat.")


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
    """Guards against a child that waits for the threads of its parent, in a search or when it ends."""
    script = FORKS.replace("{before}", before)
    subprocess.run([sys.executable, "-c", script, run, *TEXTS[:10]], check=True, timeout=300, cwd=ROOT)
