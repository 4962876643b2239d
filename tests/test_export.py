"""`dragoman export` and `translate --engine`: verification, model cards, folders and the engine cache."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import HANG, tiny_config
from dragoman import command_line, errors
from dragoman.__main__ import run as run_command
from dragoman.architectures import ctranslate2_spec
from dragoman.export import formats, verification
from dragoman.export.formats import Format
from dragoman.model import Transformer
from dragoman.settings import Config, DataConfig
from dragoman.translation.translator import Translator
from test_export_formats import SHAPE, need, random_model, vocabularies

AS_WRITTEN = ["--decoding.tolerant", "false"]  # no export reads what people type


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few epochs whose translations differ from one another."""
    config = tiny_config(tmp_path_factory.mktemp("exported"))
    assert run_command("train", config) == 0
    return Path(config.run.dir) / config.run.name


def call(run: Path, kind: str, *more: str) -> int:
    """Run `dragoman export` and return its exit code."""
    return run_command("export", command_line.parse_export(["--run", str(run), "--to", kind, *more]))


@pytest.mark.parametrize(
    "kind", ["ctranslate2", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("huggingface", "onnx"))]
)
def test_the_code_in_the_card_loads_the_export(
    kind: Format, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards the code that a stranger copies: it runs without this program and translates the same."""
    need(kind)
    output = tmp_path / "made"
    assert call(run, kind, "--output", str(output)) == 0
    told = capsys.readouterr()
    assert told.out == f"{output}\n"
    assert "token by token" in told.err
    assert "limitation: " in told.err
    readme = (output / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^2\d\d training pairs, \d+ validation pairs", readme, re.MULTILINE)
    assert json.loads((run / "result.json").read_text())["test"]["signature"] in readme
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=output, capture_output=True, text=True, env=clean, timeout=HANG
    )
    assert found.returncode == 0, found.stderr
    first = (run / "data" / "validation.tsv").read_text(encoding="utf-8").split("\t")[0]
    assert found.stdout == f"{Translator(run, 'cpu', AS_WRITTEN).translate([first])[0]}\n"


def test_a_broken_weight_leaves_nothing_behind(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards the verification: an export that translates differently must not exist, not even in part."""
    need("ctranslate2")
    projections = ctranslate2_spec.attention_projections

    def negated(attention: Any) -> Any:
        query, key, (weight, bias), output = projections(attention)
        return [query, key, (-weight, bias), output]

    monkeypatch.setattr(ctranslate2_spec, "attention_projections", negated)
    output = tmp_path / "folder" / "made"
    assert call(run, "ctranslate2", "--output", str(output)) == 4
    told = capsys.readouterr()
    assert told.out == ""
    assert re.search(r"translates \d+ of \d+ sentences differently", told.err)
    assert told.err.endswith("Choose another format with --to.\n")
    assert list(output.parent.iterdir()) == []


def test_a_different_tokenizer_is_found(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the exported tokenizers: correct weights are useless with other ids."""
    need("ctranslate2")
    portable = formats.portable_tokenizer
    lowered = DataConfig(lowercase=True)
    monkeypatch.setattr(formats, "portable_tokenizer", lambda tokenizer, _: portable(tokenizer, lowered))
    translator = Translator(run, "cpu")
    checked = verification.translate_sample(translator, run)
    sentence = checked.flat[0]
    upper = replace(sentence, source=sentence.source.upper(), ids=translator.source.encode(sentence.source.upper()))
    made = tmp_path / "made"
    made.mkdir()
    assert isinstance(translator.model, Transformer)
    formats.write("ctranslate2", translator.model, translator.source, translator.target, DataConfig(), made)
    with pytest.raises(errors.ExportError, match="tokenizer"):
        verification.verify(formats.load("ctranslate2", made), replace(checked, sentences=[[upper]]), translator)


def test_an_existing_folder_is_not_touched(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards existing folders: --replace replaces an export, and nothing replaces any other folder."""
    need("ctranslate2")
    output = tmp_path / "made"
    output.mkdir()
    (output / "letter.txt").write_text("dear")
    for more in ([], ["--replace"]):
        with pytest.raises(SystemExit, match="2"):
            call(run, "ctranslate2", "--output", str(output), *more)
    assert (output / "letter.txt").read_text() == "dear"
    other = tmp_path / "other"
    assert call(run, "ctranslate2", "--output", str(other)) == 0
    (other / "model.bin").unlink()
    with pytest.raises(SystemExit, match="2"):
        call(run, "ctranslate2", "--output", str(other))
    assert not (other / "model.bin").exists()
    assert call(run, "ctranslate2", "--output", str(other), "--replace") == 0
    assert (other / "model.bin").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "other"]
    assert "--replace" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["ctranslate2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_int8_reports_its_cost(
    kind: Format, learned: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards int8 files: they are smaller, still translate, and their card says how well."""
    need(kind)
    run = Path(learned.run.dir) / learned.run.name
    sizes = {}
    for more in ([], ["--quantize", "int8"]):
        output = tmp_path / ("int8" if more else "float32")
        assert call(run, kind, "--output", str(output), *more) == 0
        files = [path for path in output.iterdir() if path.suffix in (".bin", ".onnx")]
        sizes[output.name] = sum(path.stat().st_size for path in files)
    assert sizes["int8"] < sizes["float32"]
    told = re.search(
        r"int8: ([\d.]+)% of the translations .* BLEU ([\d.]+), against ([\d.]+) in", capsys.readouterr().err
    )
    assert told
    assert 0 < float(told[1]) <= 100
    assert float(told[2]) > float(told[3]) - 10 > 40
    assert told[0] in (tmp_path / "int8" / "README.md").read_text(encoding="utf-8")


def test_a_missing_library_is_reported_in_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards a first attempt without the engine's library: the message shows how to install it."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert call(run, "onnx") == 2
    assert "pip install -e '.[export]'" in capsys.readouterr().err
    assert not (run / "exports" / "onnx").exists()
    with pytest.raises(SystemExit, match="2"):
        call(run, "huggingface", "--quantize", "int8")


def test_argos_refuses_whole_words(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards runs with the default tokenizer, which Argos Translate cannot use: the message says what to change."""
    need("argos")
    assert call(run, "argos") == 2
    told = capsys.readouterr().err
    assert "tokenizer.kind is word" in told
    assert "bpe or unigram" in told
    assert not (run / "exports" / "argos").exists()


def test_a_run_without_data_is_not_exported(run: Path, tmp_path: Path) -> None:
    """Guards against an export that was not verified."""
    need("ctranslate2")
    (tmp_path / "checkpoints").symlink_to(run / "checkpoints")
    assert call(tmp_path, "ctranslate2") == 3
    assert not (tmp_path / "exports").exists()


def test_equally_likely_tokens_count_as_equal() -> None:
    """Guards the verification against rounding: where two tokens tie, either is right."""
    source, target = vocabularies()
    model = random_model(replace(SHAPE, tie="none"), source, target)
    with torch.no_grad():
        model.projection.weight[9] = model.projection.weight[8]
    assert verification.is_tie(model, [5, 6], [8, 5], [9, 7])
    assert not verification.is_tie(model, [5, 6], [8, 5], [10, 5])
    assert not verification.is_tie(model, [5, 6], [8], [])


# translate --engine
