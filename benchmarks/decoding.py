"""What a search costs and gains: time against greedy decoding at the same batch, and scores.

    python benchmarks/decoding.py --run runs/multi30k-en-de

Both searches decode the same batches, in turns, and the best time of each counts, so that the ratio means something on
a machine with other work; the seconds themselves mean little.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # or this file would stand for the module of its name

import torch

from runtime import choose_device, describe, tune
from scores import score
from translator import Translator

TURNS = 3


def seconds(translator: Translator, batches: list[list[str]]) -> float:
    """The time that it takes to translate all batches, one after the other."""
    begun = time.perf_counter()
    for batch in batches:
        translator.translate(batch)
    if translator.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Compare beam search with greedy decoding on the pairs of a run.")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="folder of a run")
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--pairs", type=int, default=1000, help="how many at most (default: 1000)")
    parser.add_argument("--beams", type=int, nargs="+", default=[5], metavar="N", help="beam sizes (default: 5)")
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 64, 128], metavar="N", help="sentences a batch")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()

    device = choose_device(options.device)
    tune(device)
    greedy = Translator(options.run, options.device).with_decoding(beam_size=1, n_best=1, diversity_groups=1)
    beams = {size: greedy.with_decoding(beam_size=size) for size in options.beams}
    lines = (options.run / "data" / f"{options.split}.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    pairs = [line.split("\t") for line in lines[: options.pairs]]
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    print(f"{describe(device, greedy.dtype)}\n{len(sources):,} sentences of {options.run}, {options.split}\n")

    print("batch   search   sentences/s   time / greedy")
    by_length = sorted(sources, key=len, reverse=True)
    for size in options.batches:
        batches = [by_length[start : start + size] for start in range(0, len(sources), size)]
        turns = [[seconds(each, batches) for each in (greedy, *beams.values())] for _ in range(TURNS)]
        best = [min(times) for times in zip(*turns, strict=True)]
        for name, taken in zip(["greedy", *(f"beam {beam}" for beam in beams)], best, strict=True):
            print(f"{size:5}   {name:8} {len(sources) / taken:11.1f} {taken / best[0]:15.2f}")

    print("\nsearch    BLEU    chrF")
    for name, each in [("greedy", greedy), *((f"beam {beam}", each) for beam, each in beams.items())]:
        found = score(each.translate(sources), references, each.config.data.bleu_tokenize)
        print(f"{name:8} {found.bleu:5.2f}   {found.chrf:5.2f}")
    print(f"\nBLEU: {found.signature}")


if __name__ == "__main__":
    main()
