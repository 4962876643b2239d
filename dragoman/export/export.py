"""A trained translator for other engines: CTranslate2, Hugging Face's transformers, ONNX, Argos Translate.

    python export.py --run runs/phrasebook --to ctranslate2
    python export.py --run runs/phrasebook --to onnx --quantize int8 --output phrasebook-onnx

makes a folder that holds the model in the engine's own files, the tokenizers, and a README.md that says what it is and
how to load it without this program; for Argos Translate, and LibreTranslate with it, all of that is in one file, which
they install. The folder appears by one rename, and only after the engine has translated
sentences of the run's validation set, greedily, into the very tokens that we make of them in float32. With int8, what
that costs is told besides.

Messages go to standard error, the name of the folder to standard output. Exit codes: 0 done, 2 wrong arguments, or a
model that the engine cannot express, 3 no sentences to check with, 4 no usable checkpoint, or an engine that translates
it otherwise, 7 a folder that cannot be written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from dragoman import checkpoint, console, serialization, storage
from dragoman.command_line import EXPORT_MARK
from dragoman.console import one_line
from dragoman.directions import split_tag, tag_of
from dragoman.errors import ConfigError, DataError, ExportError
from dragoman.evaluation.metrics import score
from dragoman.export import formats, to_argos, to_ctranslate2
from dragoman.export import weights as weights_module
from dragoman.export.formats import Format
from dragoman.model import Transformer
from dragoman.settings import EOS, SOS, DataConfig, ModelConfig
from dragoman.translation.engines import choose_weights
from dragoman.translation.results import Sentence
from dragoman.translation.translator import Translator

CHECKED = 200  # sentences that an engine has to translate as we do
TIE = 1e-3  # nats; between tokens as near as that, the last digits of float32 decide, and each engine has its own


# ------------------------------------------------------------------------------------------------------------ checking


@dataclass(frozen=True)
class Sample:
    """Sentence pairs, and what we make of them: greedily, in float32, with [UNK] where a word is not known."""

    sources: list[str]
    references: list[str]
    sentences: list[list[Sentence]]  # of each source
    limit: int  # tokens of a translation, the closing [EOS] included

    @property
    def flat(self) -> list[Sentence]:
        """All sentences, one after the other."""
        return [sentence for of_text in self.sentences for sentence in of_text]

    @property
    def ours(self) -> list[list[int]]:
        """The ids of their translations."""
        return [sentence.candidates[0].ids for sentence in self.flat]


def sample(translator: Translator, run: Path) -> Sample:
    """Translate some of the run's validation pairs, and of its test pairs if there are too few. Raises DataError."""
    pairs = []
    for split in ("validation", "test"):
        path = run / "data" / f"{split}.tsv"
        if path.exists():
            pairs += [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    if not pairs:
        raise DataError(f"{run / 'data'}: an export is checked on the run's validation pairs, and there are none.")
    if translator.config.data.several:  # some of each
        pairs = pairs[:: max(1, len(pairs) // CHECKED)]
    sources, references = (list(side) for side in zip(*pairs[:CHECKED], strict=True))
    settings = translator.config
    longest = max(len(translator.source.encode(text)) for text in sources)
    limit = min(settings.decoding.max_length, 2 * longest + 10)
    if settings.model.positions == "learned":
        limit = min(limit, settings.model.max_positions - 1)
    plain = translator.with_decoding(
        beam_size=1, n_best=1, diversity_groups=1, sample=False, min_ratio=0.0, max_ratio=float(limit),
        max_length=limit, no_repeat_ngram=None, precision="float32", unknown="keep", split_sentences=False,
    )  # fmt: skip
    return Sample(sources, references, [found.sentences for found in plain.explain(sources)], limit)


def check(engine: weights_module.Opened, sample: Sample, translator: Translator) -> None:
    """See that the engine makes of the texts what we do. Raises ExportError."""
    flat = sample.flat
    texts = [sentence.source for sentence in flat]
    tags = set(translator.source.tags.values())  # whoever calls an engine puts them there
    ids = ([*sentence.ids[sentence.ids[0] in tags :], EOS] for sentence in flat)
    cut = zip(texts, ids, engine.encode(texts), strict=True)
    if unlike := [each for each in cut if each[1] != each[2]]:
        text, ours, theirs = unlike[0]
        raise ExportError(
            f"the tokenizer of the export cuts {len(unlike)} of {len(flat)} sentences otherwise, and nothing was "
            f"written. The first is {text!r}: {theirs}, not {ours}."
        )
    joined = zip(translator.target.decode_batch(sample.ours), engine.decode(sample.ours), strict=True)
    if unlike := [each for each in joined if each[0] != each[1]]:
        ours, theirs = unlike[0]
        raise ExportError(
            f"the tokenizer of the export joins {len(unlike)} of {len(flat)} translations otherwise, and nothing was "
            f"written. The first is {theirs!r}, not {ours!r}."
        )
    found = zip(flat, sample.ours, engine.greedy([sentence.ids for sentence in flat], sample.limit), strict=True)
    unlike = [
        (sentence.source, ours, theirs)
        for sentence, ours, theirs in found
        if ours != theirs and not tied(translator.model, sentence.ids, ours, theirs)  # type: ignore[arg-type]
    ]
    if unlike:
        text, ours, theirs = unlike[0]
        raise ExportError(
            f"the engine translates {len(unlike)} of {len(flat)} sentences otherwise, and nothing was written. "
            f"The first is {text!r}: {translator.target.decode(theirs)!r}, not {translator.target.decode(ours)!r}."
        )


def tied(model: Transformer, source: Sequence[int], ours: Sequence[int], theirs: Sequence[int]) -> bool:
    """Whether, where two translations part, both tokens are equally likely but for the last digits of float32."""
    a, b = [*ours, EOS], [*theirs, EOS]
    parted = next((t for t, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if parted is None:  # one was cut off where the other one was not
        return False
    with torch.inference_mode():
        logits = model(torch.tensor([[*source, EOS]]), torch.tensor([[SOS, *ours[:parted]]]))[0, -1]
    return abs(float(logits[a[parted]] - logits[b[parted]])) < TIE


@dataclass(frozen=True)
class Cost:
    """What fewer bits cost: greedy translations in int8 against ours in float32."""

    same: float  # share of the sentences
    bleu: float
    bleu_float32: float
    signature: str

    def __str__(self) -> str:
        return (
            f"int8: {self.same:.1%} of the translations are the same as in float32; "
            f"BLEU {self.bleu:.2f}, {self.bleu_float32:.2f} in float32 ({self.signature})"
        )


def cost(engine: weights_module.Opened, sample: Sample, tokenize: str) -> Cost:
    """Translate the sample once more, with the engine's weights as they are now."""
    found = engine.greedy([sentence.ids for sentence in sample.flat], sample.limit)
    same = sum(a == b for a, b in zip(sample.ours, found, strict=True)) / len(found)
    scores = []
    for translations in (found, sample.ours):
        texts = iter(engine.decode(translations))
        joined = [" ".join(next(texts) for _ in of_text) for of_text in sample.sentences]
        scores.append(score(joined, sample.references, tokenize))
    return Cost(same, scores[0].bleu, scores[1].bleu, scores[0].signature)


# -------------------------------------------------------------------------------------------------------------- making


LITTER = re.compile(r"\.tmp-(?P<output>.+)-[a-z0-9_]{8}\.lock")


@contextmanager
def appearing(output: Path) -> Iterator[Path]:
    """A folder beside output, which takes its name, and the place of what lies there, if all goes well; or is gone.

    While it is being filled, this process holds a lock beside it, which ends with the process: by that the next export
    knows what a killed one has left.
    """
    with storage.storing(output):
        new = not output.parent.exists()
        output.parent.mkdir(parents=True, exist_ok=True)
        sweep(output.parent)
        handle, name = tempfile.mkstemp(prefix=f".tmp-{output.name}-", suffix=".lock", dir=output.parent)
        os.close(handle)
        lock = FileLock(name, timeout=0)
        lock.acquire()
        beside = Path(name).with_suffix("")
        beside.mkdir(mode=0o755)
    old = beside.with_name(f"{beside.name}-old")
    try:
        yield beside
        with storage.storing(output):
            if os.path.lexists(output):
                output.rename(old)
            try:
                beside.rename(output)
            except OSError:
                if old.exists():
                    old.rename(output)
                raise
    finally:
        for litter in (beside, old):
            shutil.rmtree(litter, ignore_errors=True)
        lock.release()
        Path(name).unlink(missing_ok=True)
        if new:
            with suppress(OSError):
                output.parent.rmdir()


def sweep(folder: Path) -> None:
    """Remove what killed exports have left in a folder: that beside which lies a lock of ours that no process holds.

    An export that was on its way to be replaced is put back. What has no such lock is somebody else's, and stays.
    """
    for path in folder.glob(".tmp-*.lock"):
        named = LITTER.fullmatch(path.name)
        beside = path.with_suffix("")
        old = beside.with_name(f"{beside.name}-old")
        if not named or not path.is_file() or not (beside.is_dir() or old.is_dir()):
            continue  # a lock without a folder may belong to an export that makes it this very moment
        lock = FileLock(path, timeout=0)
        with suppress(Timeout, OSError), lock:  # what cannot be removed harms nobody
            output = folder / named["output"]
            if old.is_dir() and not os.path.lexists(output):
                old.rename(output)
            for litter in (beside, old):
                shutil.rmtree(litter, ignore_errors=True)
            path.unlink(missing_ok=True)


def fingerprint(translator: Translator) -> str:
    """What tells the translator's checkpoint from any other: the hash of its manifest."""
    return hashlib.sha256((translator.path / checkpoint.MANIFEST).read_bytes()).hexdigest()


def make(translator: Translator, run: Path, kind: Format, output: Path, quantize: bool = False) -> Sample:
    """Write an export of a run's translator, checked; return what it was checked with.

    Raises ConfigError for a model that the engine cannot express, DataError if there is nothing to check with,
    ExportError if the engine translates otherwise, and StorageError.
    """
    reason = formats.refusal(kind, translator.config.model, translator.source.is_of_words)
    if not reason and translator.config.data.several and kind in ("huggingface", "argos"):
        reason = f"{kind} has no place for the tag that says which of several directions a text takes"
    if reason:
        raise ConfigError(f"{translator.path}: {reason}.")
    model, source, target = translator.model, translator.source, translator.target
    assert isinstance(model, Transformer)
    checked, lost = sample(translator, run), None
    with appearing(output) as folder:
        formats.write(kind, model, source, target, translator.config.data, folder)
        check(formats.opened(kind, folder), checked, translator)
        console.warn(f"{len(checked.flat)} sentences: {kind} translates them as we do in float32, token by token")
        if quantize:
            formats.quantize(kind, model, source, target, folder)
            lost = cost(formats.opened(kind, folder), checked, translator.config.data.bleu_tokenize)
            console.warn(f"{len(checked.flat)} sentences, {lost}")
        (folder / "README.md").write_text(card(translator, run, kind, checked, lost), encoding="utf-8")
        mark = {
            "format": kind, "weights": "int8" if quantize else "float32",
            "checkpoint": {"step": translator.step, "manifest": fingerprint(translator)}, "checked": len(checked.flat),
        }  # fmt: skip
        (folder / EXPORT_MARK).write_bytes(serialization.json_bytes(mark))
        formats.finish(kind, folder)
    return checked


def with_ctranslate2(translator: Translator, run: Path) -> Translator:
    """A run's translator, for which CTranslate2 searches. The export that it needs is made once for each checkpoint.

    Raises ConfigError for a setting of the search that CTranslate2 lacks, and what `make` does.
    """
    formats.require("ctranslate2")
    if translator.device.type not in ("cpu", "cuda"):
        raise ConfigError(f"CTranslate2 does not translate on {translator.device}: set --device to cpu or cuda.")
    unlike = to_ctranslate2.unlike_ctranslate2(translator.config.decoding)
    if unlike:
        raise ConfigError(f"CTranslate2 lacks {unlike}.")
    folder = engine_folder(translator, run)
    weights = max(translator.model.products())  # type: ignore[operator]
    precision = choose_weights(translator.config.decoding.precision, translator.device, weights)
    return translator.with_engine(
        to_ctranslate2.CTranslate2(
            folder, translator.source, translator.target, translator.device, precision, torch.get_num_threads()
        )
    )


def engine_folder(translator: Translator, run: Path) -> Path:
    """The export for CTranslate2 as our engine, made if it is not there: in the run, or in the user's cache.

    The cache serves a run that cannot be written, as one of another user. There nothing is cleared away, for who knows
    which runs still come: whoever needs the room may remove it at any time.
    """
    name = f"engine-{fingerprint(translator)[:16]}"
    own, cached = run / "exports" / name, cache() / name
    for folder in (own, cached):
        if is_export_of(folder, translator):
            return folder
    folder = own
    if not writable(own.parent):
        console.warn(f"{run} cannot be written: what CTranslate2 needs is made in {cached}, once for this checkpoint")
        folder = cached
    make(Translator(translator.path, "cpu"), run, "ctranslate2", folder)
    if folder == own:
        for old in own.parent.glob("engine-*"):  # of other checkpoints; what a user has named stays
            if old != own and re.fullmatch(r"engine-[0-9a-f]{16}", old.name) and (old / EXPORT_MARK).is_file():
                shutil.rmtree(old, ignore_errors=True)
    return folder


def is_export_of(folder: Path, translator: Translator) -> bool:
    """Whether a folder is an export of the translator's checkpoint."""
    try:
        mark = json.loads((folder / EXPORT_MARK).read_bytes())
    except (OSError, ValueError):
        return False
    return mark["checkpoint"]["manifest"] == fingerprint(translator)


def cache() -> Path:
    """Where this program may keep, for the user, what it can make again."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # as its specification has it
        match sys.platform:
            case "win32":
                base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
            case "darwin":
                base = Path.home() / "Library" / "Caches"
            case _:
                base = Path.home() / ".cache"
    return Path(base, "dragoman")


def writable(folder: Path) -> bool:
    """Whether a folder can be written, or made if it is not there."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return os.access(there, os.W_OK | os.X_OK)


# ---------------------------------------------------------------------------------------------------------- model card


def left_out(kind: Format, translator: Translator) -> list[str]:
    """What our translator does, and the export does not, a line each."""
    config, decoding = translator.config, translator.config.decoding
    longest = len(weights_module.places(translator.model.encoder.embedding))  # type: ignore[union-attr]
    notes = [
        f"A translation is limited by one number of tokens, not by decoding.max_ratio ({decoding.max_ratio:g}) "
        "times its source.",
    ]
    if config.data.several:
        tags = ", ".join(translator.source.tags)
        notes.append(
            f"The first token of a source asks for a language: {tags}. Whoever calls the engine puts it there."
        )
    if kind == "argos":
        notes = [*of_its_own(config.data), *notes]
    else:
        notes.insert(
            0,
            "Texts are not cut into sentences: give it one sentence at a time, such as it was trained on, "
            f"of {longest - 1:,} tokens at most.",
        )
    if translator.source.is_of_words and kind == "ctranslate2":
        notes.append("Words that the vocabulary does not know are copied in CTranslate2's way, by replace_unknowns.")
    elif translator.source.is_of_words:
        notes.append("Words that the vocabulary does not know are not copied, but written as [UNK].")
    if kind == "onnx":
        notes.append("The files hold one step of a search; the search itself, here greedy, is the caller's.")
    elif decoding.length_formula == "paper":
        notes.append(f"decoding.length_formula: {kind} divides by length^α, not by ((5 + length) / 6)^α.")
    if decoding.diversity_groups > 1 or decoding.sample or decoding.min_ratio:
        notes.append("decoding: groups, samples and min_ratio are those of the engine, if it has them.")
    if config.data.lowercase:
        notes.append("Capital letters are lowered one by one, so that a Σ at the end of a word becomes σ, not ς.")
    return notes


def of_its_own(data: DataConfig) -> list[str]:
    """What Argos Translate does with texts in its own way, a line each."""
    return [
        "Argos Translate cuts texts into sentences by a model of its own for the language "
        f"({data.source_lang}), which it fetches over the network when it first needs one.",
        "It was compared greedily; Argos Translate itself takes four beams and a length penalty of 0.2, which finds "
        "other translations.",
        "Argos Translate computes in int8 where it can, unless ARGOS_COMPUTE_TYPE is float32.",
        "Argos Translate reads a ▁ as a blank, and writes a blank for each _ of a translation.",
        "Texts are cleaned as in training, but for several marks on a letter that is no character of Unicode.",
    ]


def loading(kind: Format, translator: Translator, text: str) -> str:
    """Lines of Python that load the export and translate a text, to be run in its folder."""
    direction, text = split_tag(text) if translator.config.data.several else (None, text)
    tag = [tag_of(direction.target)] if direction else []
    match kind:
        case "ctranslate2":
            return of_ctranslate2(tag, text, translator.source.is_of_words)
        case "huggingface":
            return of_huggingface(text, translator.source.fingerprint == translator.target.fingerprint)
        case "onnx":
            return of_onnx([translator.source.tags[each] for each in tag], text, translator.config.model)
        case "argos":
            return of_argos(text, translator.config.data)


TOKENIZERS = """\
source, target = (tokenizers.Tokenizer.from_file(f"{side}.tokenizer.json") for side in ("source", "target"))
source.encode_special_tokens = True  # "[EOS]" in a text is text
"""


def of_ctranslate2(tag: list[str], text: str, of_words: bool) -> str:
    """`loading` for CTranslate2, which copies words that are in no vocabulary if it is given them."""
    if of_words:
        work = f"""\
words = {_before(tag)}source.normalizer.normalize_str({text!r}).split(" ")
known = all(source.token_to_id(word) is not None for word in words)
options = {{"beam_size": 1, "min_decoding_length": 0, "replace_unknowns": True, "disable_unk": known}}
[found] = translator.translate_batch([words], **options)
"""
    else:
        work = f"""\
pieces = {_before(tag)}source.encode({text!r}, add_special_tokens=False).tokens
[found] = translator.translate_batch([pieces], beam_size=1, min_decoding_length=0)
"""
    return f"""\
import ctranslate2
import tokenizers

{TOKENIZERS}translator = ctranslate2.Translator(".")
{work}print(target.decoder.decode(found.hypotheses[0]))
"""


def _before(tag: list[Any]) -> str:
    return f"{tag!r} + " if tag else ""


def of_huggingface(text: str, shared: bool) -> str:
    """`loading` for transformers."""
    return f"""\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

source = AutoTokenizer.from_pretrained(".")
target = {"source" if shared else 'AutoTokenizer.from_pretrained("./target")'}
model = AutoModelForSeq2SeqLM.from_pretrained(".")
batch = source([{text!r}], padding=True, return_tensors="pt")
[ids] = model.generate(**batch, num_beams=1)
print(target.decode(ids[1:-1]))  # without [SOS] and [EOS]
"""


def of_onnx(tag: list[int], text: str, settings: ModelConfig) -> str:
    """`loading` for onnxruntime."""
    heads, width = settings.kv_heads or settings.n_heads, settings.d_model // settings.n_heads
    return f"""\
import numpy as np
import onnxruntime
import tokenizers

{TOKENIZERS}encoder, decoder = (onnxruntime.InferenceSession(f"{{name}}.onnx") for name in ("encoder", "decoder"))
ids = np.array([{_before(tag)}source.encode({text!r}).ids])
[memory] = encoder.run(None, {{"source": ids}})  # keys and values of the source
past = np.zeros(({settings.decoder_layers}, 2, 1, {heads}, 0, {width}), np.float32)  # and of the target so far
found, token = [], {SOS}
while len(found) < 256:
    given = {{"token": np.array([[token]]), "source": ids, "memory": memory, "past": past}}
    logits, past = decoder.run(None, given)
    token = int(logits[0].argmax())
    if token == {EOS}:
        break
    found.append(token)
print(target.decode(found, skip_special_tokens=False))
"""


def of_argos(text: str, data: DataConfig) -> str:
    """`loading` for Argos Translate."""
    codes = {"from_code": data.source_lang or "", "to_code": data.target_lang}
    return f"""\
import argostranslate.package
import argostranslate.translate

argostranslate.package.install_from_path("{to_argos.package_name(codes)}.argosmodel")
print(argostranslate.translate.translate({text!r}, {codes["from_code"]!r}, {codes["to_code"]!r}))
"""


def card(translator: Translator, run: Path, kind: Format, sample: Sample, lost: Cost | None) -> str:
    """The README.md of an export: what it is, how good, how to load it, and what it lacks."""
    config = translator.config
    directions = config.data.several or [translator.usual]
    languages = list(dict.fromkeys(language for direction in directions for language in direction))
    title = ", ".join(" to ".join(direction) for direction in directions)
    parameters = sum(p.numel() for p in translator.model.parameters())
    checked = f"{len(sample.flat)} sentences were translated greedily, token by token as Dragoman does in float32"
    return "\n".join(
        [
            "---",
            f"language: {json.dumps(languages)}",
            "license: unknown",
            "pipeline_tag: translation",
            "---",
            "",
            f"# {one_line(config.run.name)}: {one_line(title)}",
            "",
            f"A Transformer encoder-decoder of {parameters:,} parameters, trained with Dragoman for "
            f"{translator.step:,} updates and written for {kind}.",
            "",
            "## Data",
            "",
            counts(translator),
            "",
            "## Scores",
            "",
            *results(run, translator.step),
            f"- The float32 files were checked: {checked}.",
            *([f"- {lost}."] if lost else []),
            "",
            "## Use",
            "",
            f"    pip install {' '.join(formats.READERS[kind])}",
            "",
            "In this folder:",
            "",
            "```python",
            f"{loading(kind, translator, sample.sources[0])}```",
            "",
            "## What is not in it",
            "",
            *(f"- {line}" for line in left_out(kind, translator)),
            "",
            "## Licence",
            "",
            "Unknown: it depends on the data, and is for those to state who publish the model.",
            "",
        ]
    )


def counts(translator: Translator) -> str:
    """How many pairs there were, in a line."""
    report = json.loads((translator.path / "trained_on.json").read_bytes())
    parts = []
    for split, count in report["counts"].items():
        kept = count["read"] - sum(number for name, number in count.items() if name != "read")
        parts.append(f"{kept:,} {split} pairs")
    return ", ".join(parts) + "."


def results(run: Path, step: int) -> list[str]:
    """The scores of result.json, as far as they are those of the same step."""
    path = run / "result.json"
    found = json.loads(path.read_bytes()) if path.exists() else {}
    lines = []
    if found.get("validation", {}).get("step") == step:
        lines.append(f"- Validation: BLEU {found['validation']['bleu']:.2f}.")
    test: dict[str, Any] = found.get("test", {})
    if test.get("step") == step:
        lines.append(
            f"- Test, {test['pairs']:,} pairs: BLEU {test['bleu']:.2f}, chrF {test['chrf']:.2f} ({test['signature']})."
        )
        for direction, each in test.get("directions", {}).items():
            lines.append(f"- Of these, {direction}, {each['pairs']:,} pairs: BLEU {each['bleu']:.2f}.")
    return [*lines, "- Scores are Dragoman's own, with the search of the run."] if lines else ["- None are known."]


# -------------------------------------------------------------------------------------------------------- command line


def main(options: argparse.Namespace) -> None:
    """Export what the command line names."""
    formats.require(options.to)
    translator = Translator(options.run, "cpu")
    make(translator, options.run, options.to, options.output, bool(options.quantize))
    for line in left_out(options.to, translator):
        console.warn(f"not in it: {line}")
    print(options.output)
