"""Measure the speed of translation compared with peers, or the cost and gain of a beam.

    python benchmarks/decoding.py                                      # models with random weights, in two sizes
    python benchmarks/decoding.py --shapes base --batches 64 --data corpus/val
    python benchmarks/decoding.py --architecture decoder-only          # without peers
    python benchmarks/decoding.py --run runs/multi30k-en-de            # greedy search against beams, with scores

Without --run, all contenders have a model of the same shape with random weights (CTranslate2's is converted from ours,
and the table says how often the two agree). Each writes exactly 20 tokens per sentence, for sentences as long as real
ones. Contenders take turns and the shortest time of each counts, so the ratios are meaningful on a busy machine; the
absolute speeds are less so. On a machine that emulates bfloat16, it is left out.

Contenders:
    ours         our search
    marian       `generate` of Hugging Face's Marian of the same shape, if `transformers` is installed
    ctranslate2  CTranslate2, if it is installed

For single sentences, each contender uses the number of threads that suits it best. Larger batches are translated by as
many workers as there are cores, with one thread each, except by Marian, which gets all threads for one batch.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import ROOT, number_formats
from peers import marian_model

from dragoman.architectures.build import build_model
from dragoman.architectures.ctranslate2_spec import ctranslate2_spec, save_ctranslate2
from dragoman.dataset import source_batch
from dragoman.device import DTYPES, autocast, choose_device, describe_device, tune_device
from dragoman.evaluation.metrics import Measurements, tokenization
from dragoman.model import Transformer
from dragoman.settings import EOS, PAD, SPECIAL_TOKENS, DecodingConfig, ModelConfig
from dragoman.translation.constraints import Constraints
from dragoman.translation.search import best_paths, search
from dragoman.translation.translator import Translator

TURNS = 4
TOKENS = 20
VOCABULARY = 10_000
SHAPES = {
    "tiny": ModelConfig(d_model=32, d_ff=64, n_heads=2, encoder_layers=1, decoder_layers=1, tie="none"),  # for tests
    "small": ModelConfig(d_model=256, d_ff=1024, n_heads=4, encoder_layers=3, decoder_layers=3, tie="none"),
    "base": ModelConfig(d_model=512, d_ff=2048, n_heads=8, encoder_layers=6, decoder_layers=6, tie="none"),
}

Batch = list[list[int]]  # ids, without [EOS]
Translate = Callable[[list[Batch]], list[list[int]]]  # batches -> translations


def ours(model: Any, kind: str, device: torch.device, threads: int) -> Translate:
    """Return our search: one batch after another on a GPU or for one batch, else one batch per thread."""

    def translate_batch(batch: Batch) -> list[list[int]]:
        source = source_batch(batch).to(device)
        exactly = Constraints([TOKENS] * len(batch), absent=[[EOS]] * len(batch))
        with autocast(device, DTYPES[kind]):
            if hasattr(model, "places"):  # writes all words at once
                hypotheses = best_paths(model, source, DecodingConfig(), exactly)
            else:
                hypotheses = search(model, source, DecodingConfig(), exactly)
        return [best[0].tokens for best in hypotheses]

    def translate(batches: list[Batch]) -> list[list[int]]:
        if len(batches) == 1 or device.type != "cpu":
            torch.set_num_threads(threads)
            found = list(map(translate_batch, batches))
        else:
            with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                found = list(pool.map(translate_batch, batches))
        return [tokens for batch in found for tokens in batch]

    return translate


def marian(shape: ModelConfig, device: torch.device, threads: int) -> Translate:
    """Return greedy `generate` of Hugging Face's encoder-decoder."""
    model = marian_model(shape, VOCABULARY, VOCABULARY).eval().to(device)

    def translate(batches: list[Batch]) -> list[list[int]]:
        torch.set_num_threads(threads)
        found = []
        for batch in batches:
            source = source_batch(batch).to(device)
            with torch.inference_mode():
                rows = model.generate(
                    input_ids=source, attention_mask=(source != PAD).long(), num_beams=1, do_sample=False,
                    min_new_tokens=TOKENS, max_new_tokens=TOKENS, forced_eos_token_id=None,
                )  # fmt: skip
            found += rows[:, 1:].tolist()
        return found

    return translate


def ctranslate2(model: Transformer, folder: Path, kind: str, device: str, threads: int) -> Translate:
    """Return the search of CTranslate2, with one worker for each thread."""
    from ctranslate2 import Translator as CTranslate2  # pyright: ignore[reportMissingImports]

    place = Path(tempfile.mkdtemp(dir=folder)) / kind
    words = [*SPECIAL_TOKENS, *(str(i) for i in range(len(SPECIAL_TOKENS), VOCABULARY))]  # numbers as tokens
    place.mkdir()
    save_ctranslate2(ctranslate2_spec(model, words, words), place, None if kind == "float32" else kind)
    translator = CTranslate2(str(place), device=device, inter_threads=threads, intra_threads=1, compute_type=kind)

    def translate(batches: list[Batch]) -> list[list[int]]:
        sentences = [[str(i) for i in ids] for batch in batches for ids in batch]
        results = translator.translate_batch(
            sentences, beam_size=1, min_decoding_length=TOKENS, max_decoding_length=TOKENS,
            max_batch_size=len(batches[0]), batch_type="examples",
        )  # fmt: skip
        names = {token: i for i, token in enumerate(SPECIAL_TOKENS)}
        return [[names.get(word) or int(word) for word in result.hypotheses[0]] for result in results]

    return translate


def sentences(data: str | None, count: int) -> Batch:
    """Make random ids for sentences with the lengths of real ones, longest first."""
    path = Path(f"{data}.en") if data else ROOT / "data/phrasebook/train.tsv"
    if data and not path.exists():
        path = Path(data)
    lengths = sorted(len(line.split("\t")[0].split()) for line in path.read_text(encoding="utf-8").split("\n")[:2000])
    random = np.random.default_rng(1)
    chosen = [max(1, lengths[i]) for i in np.linspace(len(lengths) - 1, 0, count).astype(int)]
    return [random.integers(len(SPECIAL_TOKENS), VOCABULARY, length).tolist() for length in chosen]


def compare(options: argparse.Namespace, device: torch.device) -> None:
    """Let all contenders translate, for each shape and batch size, and print the speeds. Peers have no other models."""
    on_cpu = device.type == "cpu"
    cores = torch.get_num_threads() if on_cpu else 4  # batches
    with tempfile.TemporaryDirectory() as folder:
        for name in options.shapes:
            shape = replace(SHAPES[name], architecture=options.architecture)
            torch.manual_seed(1)
            model: Any = build_model(shape, VOCABULARY, VOCABULARY).eval().requires_grad_(False).to(device)
            for size in options.batches:
                many = size > 1 and on_cpu
                batches = [sentences(options.data, size * cores)[i * size : (i + 1) * size] for i in range(cores)]
                groups = [batches] if many else [[batch] for batch in batches] * (6 if size == 1 else 1)
                # Single sentences are translated on one thread or on all, whichever is faster.
                thread_counts = [cores] if many or not on_cpu else sorted({1, cores})
                contenders = {
                    f"ours {kind}": [ours(model, kind, device, threads) for threads in thread_counts]
                    for kind in reversed(number_formats(device))
                }
                if options.architecture == "encoder-decoder" and find_spec("transformers"):
                    contenders["marian float32"] = [marian(shape, device, cores)]
                if options.architecture == "encoder-decoder" and find_spec("ctranslate2"):
                    for kind in ("int8", "float32") if on_cpu else ("float16", "float32"):
                        peer = ctranslate2(model, Path(folder), kind, device.type, cores if many else 1)
                        contenders[f"ctranslate2 {kind}"] = [peer]
                print(f"{name}, batch {size}")
                print_speeds(contenders, groups)


def print_speeds(contenders: dict[str, list[Translate]], groups: list[list[Batch]]) -> None:
    """Let all contenders translate all groups of batches, in turns. The shortest time of each counts."""
    best = dict.fromkeys(contenders, float("inf"))
    translations: dict[str, list[list[int]]] = {}
    for turn in range(TURNS + 1):
        for name, ways in contenders.items():
            for translate in ways:
                started = time.perf_counter()
                translations[name] = [tokens for group in groups for tokens in translate(group)]
                if turn:  # the first turn warms up
                    best[name] = min(best[name], time.perf_counter() - started)
    count = sum(len(batch) for group in groups for batch in group)
    for name, taken in best.items():
        same = sum(a == b for a, b in zip(translations[name], translations["ours float32"], strict=True)) / count
        print(f"{name:20} {count / taken:9.1f} sentences/s, {same:4.0%} the same as ours in float32")
    print()


def seconds(translator: Translator, batches: list[list[str]]) -> float:
    """Measure the time to translate all batches, one after another."""
    started = time.perf_counter()
    for batch in batches:
        translator.translate(batch)
    return time.perf_counter() - started


def beams(options: argparse.Namespace, device: torch.device) -> None:
    """Compare greedy search with beams, and the precisions, on the pairs of a run."""
    greedy = Translator(options.run, options.device).with_decoding(beam_size=1, n_best=1)
    contenders = {"greedy": greedy} | {f"beam {size}": greedy.with_decoding(beam_size=size) for size in options.beams}
    kinds = [*number_formats(device), *(("int8",) if device.type == "cpu" else ())]
    contenders |= {f"greedy {kind}": greedy.with_decoding(precision=kind) for kind in kinds}
    lines = (options.run / "data" / f"{options.split}.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    pairs = [line.split("\t") for line in lines[: options.pairs]]
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    print(describe_device(device, greedy.trained.dtype))
    print(f"{len(sources):,} sentences of {options.run}, {options.split}\n")
    print("batch   search            sentences/s   time / greedy")
    by_length = sorted(sources, key=len, reverse=True)
    for size in options.batches:
        batches = [by_length[start : start + size] for start in range(0, len(sources), size)]
        turns = [[seconds(each, batches) for each in contenders.values()] for _ in range(TURNS)]
        best = [min(times) for times in zip(*turns, strict=True)]
        for name, taken in zip(contenders, best, strict=True):
            print(f"{size:5}   {name:16} {len(sources) / taken:12.1f} {taken / best[0]:15.2f}")
    print("\nsearch             BLEU    chrF")
    for name, each in contenders.items():
        data = each.config.data
        measured = Measurements(each.translate(sources), references, tokenization(data, data.target_lang))
        print(f"{name:16}  {measured.bleu.score():5.2f}   {measured.chrf.score():5.2f}")
    print(f"\nBLEU: {measured.bleu.signature()}")


def main() -> None:
    """Print tables."""
    parser = argparse.ArgumentParser(description="Measure translating, against peers or greedily against beams.")
    parser.add_argument("--shapes", choices=SHAPES, nargs="+", default=["small", "base"])
    parser.add_argument("--architecture", default="encoder-decoder", help="or decoder-only, encoder-only")
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[1, 64], metavar="N", help="sentences per batch (default: 1 64)"
    )
    parser.add_argument("--data", metavar="NAME", help="text for the lengths: a file, or NAME for NAME.en")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--run", type=Path, metavar="DIR", help="instead: compare searches on the pairs of this run")
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--pairs", type=int, default=1000, help="most pairs to translate (default: 1000)")
    parser.add_argument("--beams", type=int, nargs="+", default=[5], metavar="N", help="beam sizes (default: 5)")
    options = parser.parse_args()
    device = choose_device(options.device)
    tune_device(device)
    if options.run:
        beams(options, device)
        return
    print(f"{describe_device(device, torch.float32)}\n{TOKENS} tokens for each sentence\n")
    compare(options, device)


if __name__ == "__main__":
    main()
