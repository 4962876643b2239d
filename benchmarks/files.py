"""Compare the time of translate.py for a file, start included, with CTranslate2 alone on prepared tokens.

    python benchmarks/files.py --run runs/multi30k --input corpus/val.en --turns 5

CTranslate2 alone gets the same model, the source tokens of the same sentences, sorted by length, and the best of three
batch sizes. It neither reads nor writes text, and its start is not timed. Both take turns, and medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT

from dragoman.translation.ctranslate2_engine import CTranslate2Engine
from dragoman.translation.translator import Translator

BATCHES = (32, 64, 128)  # sentences


def tokens(translator: Translator, engine: CTranslate2Engine, texts: list[str]) -> list[list[str]]:
    """The source tokens of each sentence of the texts, longest first."""
    sentences = [sentence.ids for text in translator.explain(texts) for sentence in text.sentences]
    return [[engine.source[i] for i in ids] for ids in sorted(sentences, key=len, reverse=True)]


def alone(engine: CTranslate2Engine, source: list[list[str]], size: int) -> float:
    """The seconds that CTranslate2 takes, on all processors."""
    started = time.perf_counter()
    engine.translator.translate_batch(source, beam_size=1, max_batch_size=size, max_decoding_length=128)
    return time.perf_counter() - started


def whole(run: Path, text: Path, precision: str, output: Path) -> float:
    """The seconds that translate.py takes."""
    words = ["translate.py", "--run", run, "--input", text, "--output", output, "--device", "cpu"]
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, *map(str, words), "--decoding.precision", precision],
        cwd=ROOT, check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return time.perf_counter() - started


def main() -> None:
    """Print a line for each precision."""
    parser = argparse.ArgumentParser(description="Time translate.py on a file, beside CTranslate2 alone.")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="folder of a run")
    parser.add_argument("--input", type=Path, required=True, metavar="FILE", help="text, a sentence per line")
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"], metavar="NAME")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="turns (default: 5)")
    options = parser.parse_args()
    texts = options.input.read_text(encoding="utf-8").splitlines()
    for precision in options.precisions:
        translator = Translator(options.run, "cpu", ["--decoding.precision", precision], "ctranslate2")
        engine = translator._engine
        assert engine
        source = tokens(translator, engine, texts)
        programs, peers = [], []
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(options.turns + 1):
                program = whole(options.run.resolve(), options.input.resolve(), precision, Path(folder) / "output")
                peer = min(alone(engine, source, size) for size in BATCHES)
                if turn:  # the first one fills caches and makes the files
                    programs.append(program)
                    peers.append(peer)
        program, peer = statistics.median(programs), statistics.median(peers)
        print(
            f"{precision}: {len(source)} sentences, translate.py {program:.2f} s, CTranslate2 alone {peer:.2f} s, "
            f"ratio {program / peer:.2f}, after 0.4 s {(program - 0.4) / peer:.2f}"
        )


if __name__ == "__main__":
    main()
