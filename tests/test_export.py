"""Exports: what another engine makes of a model is what we make of it, or there is no export."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from conftest import ROOT, tiny_config, tiny_pairs
from dragoman import checkpoint, command_line, errors
from dragoman.__main__ import run as run_command
from dragoman.corpora.cleaning import clean
from dragoman.corpora.subwords import train_tokenizers
from dragoman.dataset import Tokenizer, source_batch
from dragoman.export import export, formats, to_argos, to_ctranslate2
from dragoman.export.formats import Format
from dragoman.model import Transformer
from dragoman.settings import DataConfig, DecodingConfig, ModelConfig, TokenizerConfig
from dragoman.translation.search import search
from dragoman.translation.translator import Translator

PAIRS = tiny_pairs(300)
LIMIT = 20
SHAPE = ModelConfig(d_model=32, n_heads=4, encoder_layers=1, decoder_layers=2, d_ff=64)
MODERN = {
    "positions": "rotary", "kv_heads": 2, "activation": "swiglu", "norm_kind": "rms", "attention_bias": False,
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {}, "post": {"norm": "post"}, "untied": {"tie": "none"}, "post-untied": {"norm": "post", "tie": "none"},
    "learned": {"positions": "learned", "max_positions": 64}, "no-positions": {"positions": "none"},
    "gelu": {"activation": "gelu"}, "grouped": {"kv_heads": 2}, "no-bias": {"attention_bias": False},
    "post-grouped": {"norm": "post", "kv_heads": 1}, "rotary": {"positions": "rotary"},
    "swiglu": {"activation": "swiglu"}, "rms": {"norm_kind": "rms"}, "modern": MODERN,
    "modern-post": MODERN | {"norm": "post"}, "post-learned": {"norm": "post", "positions": "learned"},
}  # fmt: skip
TOKENIZERS: dict[str, dict[str, Any]] = {
    "words": {}, "one-vocabulary": {"shared": True}, "bpe": {"kind": "bpe"},
    "shared-unigram": {"kind": "unigram", "shared": True},
}  # fmt: skip


def need(kind: Format) -> None:
    for name in formats.LIBRARIES[kind]:
        pytest.importorskip(name, reason=f"{kind} needs {name}: pip install -e '.[export]'")


def vocabularies(**changes: Any) -> tuple[Tokenizer, Tokenizer]:
    settings = TokenizerConfig(min_frequency=1, vocab_size=300, **changes)
    return train_tokenizers([source for source, _ in PAIRS], [target for _, target in PAIRS], settings)


def varied(settings: ModelConfig, source: Tokenizer, target: Tokenizer) -> Transformer:
    """A model with weights so large that what it writes depends on every part of it."""
    torch.manual_seed(2)
    model = Transformer(settings, len(source), len(target))
    for name, parameter in model.named_parameters():
        is_gain = name.endswith("norm.weight")
        nn.init.normal_(parameter, float(is_gain), 0.4 if parameter.dim() > 1 else 0.3 if is_gain else 0.1)
    return model.eval()


def assert_parity(
    kind: Format, folder: Path, settings: ModelConfig, source: Tokenizer, target: Tokenizer, variety: int = 2
) -> None:
    """Write a model, and see that the engine translates as we do, and the tokenizers cut and join as ours."""
    folder.mkdir()
    model = varied(settings, source, target)
    formats.write(kind, model, source, target, DataConfig(), folder)
    engine = formats.opened(kind, folder)
    texts = [text for text, _ in PAIRS[:40]]
    ids = source.encode_batch(texts)
    ours = [best.tokens for [best] in search(model, source_batch(ids), [LIMIT] * len(ids), DecodingConfig())]
    assert engine.greedy(ids, LIMIT) == ours
    assert len(set(map(tuple, ours))) >= variety, "they all say the same, which would prove nothing"
    assert engine.encode(texts) == [[*each, 3] for each in ids]
    assert engine.decode(ours) == target.decode_batch(ours)


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", ["ctranslate2", "huggingface"])
def test_every_shape_says_the_same_elsewhere(kind: Format, changes: dict[str, Any], tmp_path: Path) -> None:
    """Guards each fold of the weights: joined and repeated heads, the order of a sinusoid's features, positions as a
    table, gates, norms, and tied tables."""
    settings = replace(SHAPE, **changes)
    if formats.refusal(kind, settings):
        assert kind == "huggingface"
        return
    need(kind)
    assert_parity(kind, tmp_path / "made", settings, *vocabularies())


@pytest.mark.parametrize("tokens", TOKENIZERS.values(), ids=TOKENIZERS)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("kind", ["ctranslate2", "huggingface"])
def test_every_vocabulary_says_the_same_elsewhere(
    kind: Format, norm: str, tokens: dict[str, Any], tmp_path: Path
) -> None:
    """Guards vocabularies of two sizes in an engine that has one, tables that are shared or not, and the tokenizers."""
    need(kind)
    for tie in ("output", "all") if tokens.get("shared") else ("output",):
        settings = replace(SHAPE, norm=norm, tie=tie)
        assert_parity(kind, tmp_path / tie, settings, *vocabularies(**tokens))


@pytest.mark.parametrize(
    "changes", [pytest.param(each, id=name, marks=[pytest.mark.slow]) for name, each in SHAPES.items()]
)
def test_onnx_says_the_same(changes: dict[str, Any], tmp_path: Path) -> None:
    """Guards the graphs of the encoder and of a step: sizes that may vary, and a past of no position."""
    need("onnx")
    assert_parity("onnx", tmp_path / "made", replace(SHAPE, decoder_layers=1, **changes), *vocabularies())


def test_texts_are_cleaned_as_ours() -> None:
    """Guards texts as people write them: white space, letters with their accents apart, literal names of tokens."""
    texts = [
        "  The   cat\t sees\u2028\u00a0the dog. ",
        "l'e\u0301te\u0301 [EOS] here",
        "ＡＢ Ⅳ",
        "\x1cthe\x85cat\u3000",
    ]
    for data in (DataConfig(), DataConfig(lowercase=True), DataConfig(normalize="nfkc")):
        for changes in TOKENIZERS.values():
            source, _ = vocabularies(**changes)
            found = formats.portable(source, data).encode_batch(texts)
            expected = [source.encode(clean(text, data)) for text in texts]
            assert [each.ids for each in found] == [[*each, 3] for each in expected]


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        ("ctranslate2", {"architecture": "decoder-only"}, "architecture"),
        ("onnx", {"architecture": "encoder-only"}, "architecture"),
        ("huggingface", {"positions": "rotary"}, "positions"),
        ("huggingface", {"norm_kind": "rms"}, "norm_kind"),
        ("huggingface", {"activation": "swiglu"}, "activation"),
        ("huggingface", {"norm": "post", "positions": "none"}, "norm is post"),
    ],
)
def test_what_an_engine_cannot_express_is_refused(kind: Format, changes: dict[str, Any], named: str) -> None:
    """Guards against an export that would translate wrongly: the setting is named instead."""
    assert named in (formats.refusal(kind, replace(SHAPE, **changes)) or "")
    assert formats.refusal(kind, SHAPE) is None


# ------------------------------------------------------------------------------------------------------ Argos Translate

PIECES: dict[str, dict[str, Any]] = {
    "bpe": {"kind": "bpe"}, "shared-bpe": {"kind": "bpe", "shared": True},
    "unigram": {"kind": "unigram"}, "shared-unigram": {"kind": "unigram", "shared": True},
}  # fmt: skip
ACCENTED = ["Quando arriverà, prenoterà l'albergo?", "Perché più così!", "Вот так.", "猫が好き", "œuvre 🙂 ‰"]


@pytest.mark.parametrize("tokens", PIECES.values(), ids=PIECES)
def test_sentencepiece_cuts_bytes_as_ours(tokens: dict[str, Any]) -> None:
    """Guards the letters of the bytes, and the merges: pieces that hold a part of a character are cut and joined, too,
    and so are characters that the tokenizer has never seen."""
    need("argos")
    import sentencepiece  # pyright: ignore[reportMissingImports]

    settings = TokenizerConfig(min_frequency=1, vocab_size=400, **tokens)
    accented = ["arriverà", "prenderà", "sarà", "là", "più", "così", "Вот", "猫", "猪"] * 9
    for tokenizer in set(train_tokenizers([*ACCENTED, *accented], [*accented, *(text for _, text in PAIRS)], settings)):
        made: Any = sentencepiece.SentencePieceProcessor()
        made.load_from_serialized_proto(to_argos.sentencepiece_model(tokenizer, DataConfig()))
        names = to_argos.pieces_of(tokenizer)
        texts = [*ACCENTED, *accented, *(text for _, text in PAIRS), "ñ Ω ﬁ [EOS] <0xC3> don't"]
        cut = made.encode(texts, out_type=str)
        assert cut == [[names[i] for i in ids] for ids in tokenizer.encode_batch(texts)]
        assert [made.decode_pieces(pieces) for pieces in cut] == texts


@pytest.mark.parametrize(
    "data",
    [DataConfig(), DataConfig(lowercase=True), DataConfig(normalize="nfkc")],
    ids=("as-it-is", "lowercase", "nfkc"),
)
def test_a_package_cleans_texts_as_ours(data: DataConfig) -> None:
    """Guards texts as Argos Translate passes them on: as people write them. Every letter of the scripts of Europe and
    of a few more is tried, composed and in its parts."""
    need("argos")
    import sentencepiece  # pyright: ignore[reportMissingImports]

    tokenizer, _ = vocabularies(kind="bpe")
    made: Any = sentencepiece.SentencePieceProcessor()
    made.load_from_serialized_proto(to_argos.sentencepiece_model(tokenizer, data))
    letters = [chr(code) for code in [*range(1, 0x600), *range(0x1E00, 0x2100), *range(0xAC00, 0xAD00), 0xFB01]]
    texts = [f"a {form}y" for letter in letters for form in (letter, unicodedata.normalize("NFD", letter))]
    texts += ["  The   cat\t sees\u2028\u00a0the dog. ", "e\u0302\u0323 ê\u0323", "ＡＢ Ⅳ"]
    names = to_argos.pieces_of(tokenizer)
    expected = tokenizer.encode_batch([clean(text, data) for text in texts])
    assert made.encode(texts, out_type=str) == [[names[i] for i in ids] for ids in expected]


def argos_translates(folder: Path, texts: Sequence[str], limit: int) -> list[str]:
    """What Argos Translate's own steps make of sentences, with a beam of one, from an unpacked package."""
    import ctranslate2  # pyright: ignore[reportMissingImports]
    import sentencepiece  # pyright: ignore[reportMissingImports]

    cutter: Any = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    results = ctranslate2.Translator(str(folder / "model")).translate_batch(
        [cutter.encode(text, out_type=str) for text in texts],
        target_prefix=None, replace_unknowns=True, max_batch_size=32, batch_type="tokens", beam_size=1,
        num_hypotheses=1, length_penalty=0.2, return_scores=True, max_decoding_length=limit,
    )  # fmt: skip
    found = [cutter.decode_pieces(result.hypotheses[0]).replace("▁", " ").replace("_", " ") for result in results]
    return [text.removeprefix(" ") for text in found]


@pytest.mark.parametrize("tokens", PIECES.values(), ids=PIECES)
def test_a_package_for_argos_says_the_same(tokens: dict[str, Any], tmp_path: Path) -> None:
    """Guards the package as it is installed: its places and names, and what its files make of a text."""
    need("argos")
    source, target = vocabularies(**tokens)
    model = varied(replace(SHAPE, tie="all" if tokens.get("shared") else "output"), source, target)
    data = DataConfig(source_lang="en", target_lang="it")
    formats.write("argos", model, source, target, data, tmp_path)
    (tmp_path / "README.md").write_text("What it is.\n")
    formats.finish("argos", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "dragoman-en_it.argosmodel"]
    with zipfile.ZipFile(tmp_path / "dragoman-en_it.argosmodel") as packed:
        assert {name.split("/")[0] for name in packed.namelist()} == {"dragoman-en_it"}
        packed.extractall(tmp_path)
    made = tmp_path / "dragoman-en_it"
    assert {"metadata.json", "README.md", "sentencepiece.model", "model"} == {path.name for path in made.iterdir()}
    metadata = json.loads((made / "metadata.json").read_text(encoding="utf-8"))
    names = {f"{side}_{what}" for side in ("from", "to") for what in ("code", "name")}
    assert {name: metadata[name] for name in sorted(names)} == {
        "from_code": "en", "from_name": "English", "to_code": "it", "to_name": "Italian",
    }  # fmt: skip
    texts = [text for text, _ in PAIRS[:40]]
    ids = source.encode_batch(texts)
    ours = [best.tokens for [best] in search(model, source_batch(ids), [LIMIT] * len(ids), DecodingConfig())]
    # For [UNK], which no training shows to a model of pieces, Argos Translate copies a piece of the source. It also
    # strips every blank that a translation begins with. Bytes that are no letter yet come from weights drawn by chance.
    found = zip(ours, target.decode_batch(ours), argos_translates(made, texts, LIMIT), strict=True)
    pairs = [(text, theirs) for each, text, theirs in found if 1 not in each and text.isprintable()]
    assert [theirs.lstrip(" ") for _, theirs in pairs] == [text.replace("_", " ").lstrip(" ") for text, _ in pairs]
    assert len(set(pairs)) > 1


def test_words_are_no_package_for_argos(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards the default of the tokenizer, whose runs Argos Translate cannot have: the remedy is in the line."""
    need("argos")
    assert call(run, "argos") == 2
    told = capsys.readouterr().err
    assert "tokenizer.kind is word" in told
    assert "bpe or unigram" in told
    assert not (run / "exports" / "argos").exists()


# -------------------------------------------------------------------------------------------------------- whole exports


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few epochs, whose translations differ from one another."""
    config = tiny_config(tmp_path_factory.mktemp("exported"))
    assert run_command("train", config) == 0
    return Path(config.run.dir) / config.run.name


def call(run: Path, kind: str, *more: str) -> int:
    return run_command("export", command_line.parse_export(["--run", str(run), "--to", kind, *more]))


@pytest.mark.parametrize(
    "kind", ["ctranslate2", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("huggingface", "onnx"))]
)
def test_an_export_is_loaded_by_its_own_card(
    kind: Format, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards the lines that a stranger copies: they run without this program, and translate as it does."""
    need(kind)
    output = tmp_path / "made"
    assert call(run, kind, "--output", str(output)) == 0
    told = capsys.readouterr()
    assert told.out == f"{output}\n"
    assert "token by token" in told.err
    assert "not in it: " in told.err
    readme = (output / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^2\d\d train pairs, \d+ validation pairs", readme, re.MULTILINE)
    assert json.loads((run / "result.json").read_text())["test"]["signature"] in readme
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=output, capture_output=True, text=True, env=clean, timeout=300
    )
    assert found.returncode == 0, found.stderr
    first = (run / "data" / "validation.tsv").read_text(encoding="utf-8").split("\t")[0]
    assert found.stdout == f"{Translator(run, 'cpu').translate([first])[0]}\n"


def test_a_broken_weight_leaves_nothing_behind(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards the check itself: an export that translates otherwise must not exist, not even in part."""
    need("ctranslate2")
    projections = to_ctranslate2.projections

    def spoilt(attention: Any) -> Any:
        query, key, (weight, bias), output = projections(attention)
        return [query, key, (-weight, bias), output]

    monkeypatch.setattr(to_ctranslate2, "projections", spoilt)
    output = tmp_path / "folder" / "made"
    assert call(run, "ctranslate2", "--output", str(output)) == 4
    told = capsys.readouterr()
    assert told.out == ""
    assert re.search(r"translates \d+ of \d+ sentences otherwise", told.err)
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_that_cuts_otherwise_is_found(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the tokenizers that travel along: right weights are worth nothing with other ids."""
    need("ctranslate2")
    portable = formats.portable
    lowered = DataConfig(lowercase=True)
    monkeypatch.setattr(formats, "portable", lambda tokenizer, _: portable(tokenizer, lowered))
    translator = Translator(run, "cpu")
    checked = export.sample(translator, run)
    sentence = checked.flat[0]
    upper = replace(sentence, source=sentence.source.upper(), ids=translator.source.encode(sentence.source.upper()))
    folder = tmp_path / "made"
    folder.mkdir()
    assert isinstance(translator.model, Transformer)
    formats.write("ctranslate2", translator.model, translator.source, translator.target, DataConfig(), folder)
    with pytest.raises(errors.ExportError, match="tokenizer"):
        export.check(formats.opened("ctranslate2", folder), replace(checked, sentences=[[upper]]), translator)


KILLED = """
import os, signal, sys
from pathlib import Path
import export
with export.appearing(Path(sys.argv[1])) as folder:
    (folder / "model.bin").touch()
    if sys.argv[2] == "replacing":
        Path.rename = lambda path, new, rename=Path.rename: (
            os.kill(os.getpid(), signal.SIGKILL) if path == folder else rename(path, new)
        )
    elif sys.argv[2] == "waiting":
        print(folder, flush=True)
        sys.stdin.read()
    else:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def filling(output: Path, how: str) -> subprocess.Popen[str]:
    """A process that fills a folder which is to become output, and is killed, or waits with it."""
    arguments = [sys.executable, "-c", KILLED, str(output), how]
    return subprocess.Popen(arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_what_a_killed_export_has_left_is_swept(tmp_path: Path) -> None:
    """Guards the disk: half an export, which no process fills any more, goes with the next export; that of another one
    that is at work stays, and so does what looks like it and is the user's."""
    own = [tmp_path / name for name in (".tmp-mine", ".tmp-made-abcdefgh", ".tmp-made-abcdefgh-old")]
    for folder in own:
        folder.mkdir()
    (tmp_path / ".tmp-notes-abcdefgh.lock").write_text("mine")
    kept = {path.name for path in tmp_path.iterdir()}
    with filling(tmp_path / "other", "waiting") as living:
        assert living.stdout is not None
        other = Path(living.stdout.readline().strip())
        with filling(tmp_path / "made", "dying") as dead:
            pass
        assert dead.returncode == -9
        left = {path.name for path in tmp_path.iterdir()} - kept - {other.name, f"{other.name}.lock"}
        assert len(left) == 2, "a folder and its lock"
        with export.appearing(tmp_path / "made"):
            assert not left & {path.name for path in tmp_path.iterdir()}
            assert other.is_dir()
        living.communicate("")
    assert {path.name for path in tmp_path.iterdir()} == kept | {"made", "other"}
    assert (tmp_path / "other" / "model.bin").exists()


def test_an_export_that_was_being_replaced_is_put_back(tmp_path: Path) -> None:
    """Guards the moment between two renames: killed there, neither the old export nor the new one has its name."""
    made = tmp_path / "made"
    made.mkdir()
    (made / "letter.txt").write_text("dear")
    with filling(made, "replacing") as dead:
        pass
    assert dead.returncode == -9
    assert not made.exists()
    export.sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert (made / "letter.txt").read_text() == "dear"


def test_an_existing_folder_is_not_touched(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards what lies at --output: an export gives way to --replace alone, and anything else to nothing."""
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
def test_int8_tells_what_it_costs(kind: Format, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards the smaller files: they are smaller, still translate, and say how well."""
    need(kind)
    sizes = {}
    for more in ([], ["--quantize", "int8"]):
        output = tmp_path / ("int8" if more else "float32")
        assert call(run, kind, "--output", str(output), *more) == 0
        files = [path for path in output.iterdir() if path.suffix in (".bin", ".onnx")]
        sizes[output.name] = sum(path.stat().st_size for path in files)
    assert sizes["int8"] < sizes["float32"]
    told = re.search(r"int8: ([\d.]+)% of the translations .* BLEU ([\d.]+), ([\d.]+) in", capsys.readouterr().err)
    assert told
    assert float(told[1]) > 50
    assert told[0] in (tmp_path / "int8" / "README.md").read_text(encoding="utf-8")


def test_a_missing_library_is_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards the first attempt of those who have installed no engine: the command that does it, not a traceback."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert call(run, "onnx") == 2
    assert "pip install -e '.[export]'" in capsys.readouterr().err
    assert not (run / "exports" / "onnx").exists()
    with pytest.raises(SystemExit, match="2"):
        call(run, "huggingface", "--quantize", "int8")


def test_a_run_without_its_data_is_no_export(run: Path, tmp_path: Path) -> None:
    """Guards against an export that nobody has checked."""
    need("ctranslate2")
    (tmp_path / "checkpoints").symlink_to(run / "checkpoints")
    assert call(tmp_path, "ctranslate2") == 3
    assert not (tmp_path / "exports").exists()


def test_equally_likely_tokens_are_no_difference() -> None:
    """Guards long checks against the last digit of a float: where two tokens tie, either may be taken."""
    source, target = vocabularies()
    model = varied(replace(SHAPE, tie="none"), source, target)
    with torch.no_grad():
        model.projection.weight[9] = model.projection.weight[8]
    assert export.tied(model, [5, 6], [8, 5], [9, 7])
    assert not export.tied(model, [5, 6], [8, 5], [10, 5])
    assert not export.tied(model, [5, 6], [8], [])


# --------------------------------------------------------------------------------------------- translate.py --engine


def translated(run: Path, *more: str) -> int:
    return run_command("translate", command_line.parse_translate(["--run", str(run), "--device", "cpu", *more]))


def test_ctranslate2_searches_for_the_translator(run: Path) -> None:
    """Guards the other search: limits, prefixes, copies, order and batches are ours, and so are the translations."""
    need("ctranslate2")
    translator = Translator(run, "cpu")
    other = export.with_ctranslate2(translator, run)
    texts = [source for source, _ in PAIRS[:60]] + ["", "the cat sees Zoltan.\n\nthe dog sees the cat."]
    assert other.translate(texts) == translator.translate(texts)
    requests = [translator.request(text, prefix="il") for text in texts]
    assert other.translate(requests) == translator.translate(requests)
    assert len(set(translator.translate(texts))) > 5
    short = ["--decoding.max_length", "3"]
    cut = export.with_ctranslate2(Translator(run, "cpu", short), run)
    assert cut.translate(texts) == Translator(run, "cpu", short).translate(texts)
    assert cut.warnings
    said: list[str] = []
    assert other.speak(texts[0], said.append).text == "".join(said)


def test_the_export_for_the_translator_is_made_once_for_a_checkpoint(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a run that is trained further: an export of its old checkpoint would translate as it did then; and a
    user's own folder beside it, whatever its name."""
    need("ctranslate2")
    made: list[Path] = []
    make = export.make

    def counted(translator: Translator, run: Path, kind: Format, output: Path) -> Any:
        made.append(output)
        return make(translator, run, kind, output)

    monkeypatch.setattr(export, "make", counted)
    for name in ("data", "result.json"):
        (tmp_path / name).symlink_to(run / name)
    (tmp_path / "checkpoints").symlink_to(run / "checkpoints")
    own = tmp_path / "exports" / "engine-phone"
    own.mkdir(parents=True)
    (own / command_line.EXPORT_MARK).touch()
    for _ in range(2):
        export.with_ctranslate2(Translator(tmp_path, "cpu"), tmp_path)
    assert len(made) == 1
    best = Translator(run, "cpu").path
    other = next(path for path in checkpoint.steps(run / "checkpoints") if path != best)
    export.with_ctranslate2(Translator(other, "cpu"), tmp_path)
    assert len(made) == 2
    assert {path.name for path in (tmp_path / "exports").iterdir()} == {made[1].name, own.name}


def test_a_run_that_cannot_be_written_is_translated_from_the_cache(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards a run of another user, or on a medium of its own kind: its export lies in the user's cache, is made once,
    and is not taken for that of another checkpoint."""
    need("ctranslate2")
    access = os.access

    def refused(path: Any, mode: int, **more: Any) -> bool:
        return not Path(path).is_relative_to(run) and access(path, mode, **more)

    monkeypatch.setattr(os, "access", refused)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = sorted(run.rglob("*"))
    for engine in run.glob("exports/engine-*"):  # of the tests before
        engine.rename(tmp_path / engine.name)
        before = [path for path in before if not path.is_relative_to(engine)]
    translator = Translator(run, "cpu")
    texts = [source for source, _ in PAIRS[:9]]
    assert export.with_ctranslate2(translator, run).translate(texts) == translator.translate(texts)
    [made] = (tmp_path / "cache" / "dragoman").iterdir()
    assert str(made) in capsys.readouterr().err
    assert made.name == f"engine-{export.fingerprint(translator)[:16]}"
    assert sorted(run.rglob("*")) == before
    changed = (made / "model.bin").stat().st_mtime_ns
    export.with_ctranslate2(translator, run)
    assert (made / "model.bin").stat().st_mtime_ns == changed
    mark = json.loads((made / command_line.EXPORT_MARK).read_bytes())
    mark["checkpoint"]["manifest"] = "0" * 64
    (made / command_line.EXPORT_MARK).write_text(json.dumps(mark))
    assert not export.is_export_of(made, translator)


def test_the_cache_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Guards the place: where the specification says, and never a path that depends on the current folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert export.cache() == tmp_path / "dragoman"
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert export.cache().is_absolute()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    assert export.cache() == Path.home() / ".cache" / "dragoman"


def test_engine_on_the_command_line(run: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Guards the option on its whole way, and what it cannot do: told in a line, before anything is translated."""
    need("ctranslate2")
    assert translated(run, "--engine", "ctranslate2", "--decoding.beam_size", "2", "the cat sees the dog.") == 0
    assert capsysbinary.readouterr().out.strip()
    assert translated(run, "--engine", "ctranslate2", "--decoding.sample", "true", "the cat.") == 2
    assert b"decoding.sample" in capsysbinary.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        translated(run, "--engine", "ctranslate2", "--json", "the cat.")


@pytest.mark.parametrize(
    "changes",
    [{"min_ratio": 0.5}, {"beam_size": 2, "diversity_groups": 2}, {"beam_size": 2, "length_formula": "paper"}],
)
def test_settings_that_ctranslate2_lacks_are_refused(changes: dict[str, Any]) -> None:
    """Guards against a setting that would be passed over in silence."""
    named = list(changes)[-1]
    assert named in (to_ctranslate2.unlike_ctranslate2(DecodingConfig(**changes)) or "")
    assert to_ctranslate2.unlike_ctranslate2(DecodingConfig(beam_size=4, n_best=2, length_penalty=0.5)) is None
