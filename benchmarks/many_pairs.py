"""What each pair costs, of few and of many: time, memory and disk of preparing them, and of the start of a training.

    python benchmarks/many_pairs.py
    python benchmarks/many_pairs.py --pairs 10000000 --dir /scratch/many --kind bpe

Made-up parallel text of 30,000, 300,000 and `--pairs` pairs, of 5 to 25 words a side whose frequencies fall as in a
language (Zipf), is prepared, and then `train.py` makes a first update and 200 more, of a small model, each in a
process of its own, one after the other. `scaling.py` tells of the training itself, at length.

The columns:
    read, tokenizers, ids   the steps of preparing: text cleaned and split, vocabularies, ids and the report
    prepare                 all of these, hashes of the files included; `processors` is the time of all of them together
    peak                    the most memory of the process that prepares, libraries included
    disk, at most           of the prepared folder, without the text it was made from; and while it was being prepared
    start                   of `train.py`, from the shell to the first update, on data that are prepared
    updates                 `--updates` more, one after the other
    train                   the most memory of that process

Then the same for each pair, microseconds and bytes, and in brackets how often that is what a pair costs among the first
30,000: what does not grow with the pairs makes it fall below 1, and nothing may raise it much above. Of memory, what a
pair costs is the growth since the first size. Text that `--dir` holds from an earlier call is used again.

Linux only, for it reads /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from benchmarks.scaling import CHUNK, KINDS, words
from dragoman import train
from dragoman.__main__ import run as run_command
from dragoman.command_line import override
from dragoman.corpora import preparation
from dragoman.settings import Config
from dragoman.training.state import TrainingState

SIZES = (30_000, 300_000)  # and then as many as are asked for
STEPS = {"reading": "read", "training": "tokenizers", "turning": "ids"}  # by the line with which each begins
COLUMNS = ("read", "tokenizers", "ids", "prepare", "processors", "peak", "disk", "at most", "start", "updates", "train")


def write_pairs(place: Path, count: int) -> None:
    """Parallel text: the word of rank r is as frequent as 1 / (r + 3), one side up to a quarter longer."""
    random, table = np.random.default_rng(1), words()
    with Path(f"{place}.en").open("wb") as source, Path(f"{place}.de").open("wb") as target:
        for start in range(0, count, CHUNK):
            rows = min(CHUNK, count - start)
            lengths = random.integers(5, 26, rows)
            others = (lengths * random.uniform(0.8, 1.25, rows)).round().clip(5, 25).astype(int)
            for file, each in ((source, lengths), (target, others)):
                ends = each.cumsum()
                # The distribution turned around: a point between 0 and 1 becomes the rank that it falls to.
                ranks = 3 * (KINDS / 3 + 1) ** random.random(ends[-1]) - 3
                text = table[ranks.astype(int)]
                text[ends - 1, 8] = ord("\n")
                file.write(text[text > 0].tobytes())


def configuration(options: argparse.Namespace, folder: Path) -> Config:
    """A small model, the same at each size."""
    settings = {
        "run.dir": folder, "run.name": "run", "data.train": folder / "text", "data.target_lang": "de",
        "data.validation_fraction": 0.002, "data.test_fraction": 0.002, "tokenizer.kind": options.kind,
        "tokenizer.vocab_size": 10_000, "model.d_model": 64, "model.n_heads": 2, "model.d_ff": 128,
        "model.encoder_layers": 1, "model.decoder_layers": 1, "training.batch_tokens": 1024, "training.accumulate": 1,
        "training.max_steps": 1_000_000, "training.validate_every": 1_000_000, "training.device": options.device,
    }  # fmt: skip
    return override(Config(), [f"--{key}={value}" for key, value in settings.items()])


# ---------------------------------------------------------------------------------------------- processes of their own


def peak() -> float:
    """The most memory that this process has held, in MB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6


def size_of(folder: Path) -> float:
    """The bytes of a folder's files, in MB; of one that another thread works in, about."""
    found = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found += path.stat().st_size
    return found / 1e6


def prepare(config: Config, folder: Path) -> dict[str, float]:
    """Prepare the data of a run, and say what that costs."""
    marks: list[tuple[str, float]] = []
    most = [0.0]

    def say(line: str) -> None:
        marks.append((STEPS.get(line.split()[0], line), time.perf_counter()))

    def watch() -> None:
        while True:
            most[0] = max(most[0], size_of(folder / "run"))
            time.sleep(0.2)

    threading.Thread(target=watch, daemon=True).start()
    begun, used = time.perf_counter(), time.process_time()
    preparation.prepare_data(config, folder / "run" / "data", say)
    end = time.perf_counter()
    found = {"prepare": end - begun, "processors": time.process_time() - used, "peak": peak()}
    for (name, since), (_, until) in pairwise([*marks, ("", end)]):
        found[name] = until - since
    return found | {"disk": size_of(folder / "run" / "data"), "at most": most[0]}


def begin(config: Config, updates: int, begun: float) -> None:
    """Train as `train.py` does, and end amid it, after so many updates, with a line of what they took."""
    train_step, ends = train.train_step, []

    def timed(state: TrainingState, batches: list) -> None:
        train_step(state, batches)
        ends.append(time.time())
        if len(ends) > updates:
            print(json.dumps({"start": ends[0] - begun, "updates": ends[-1] - ends[0], "train": peak()}), flush=True)
            os._exit(0)

    train.train_step = timed
    sys.exit(run_command("train", config))


# ---------------------------------------------------------------------------------------------------------- measuring


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description="Measure what a pair costs, of few and of many.")
    parser.add_argument("--pairs", type=int, default=3_000_000, help="of the largest corpus")
    parser.add_argument("--dir", type=Path, help="folder for corpora and runs (default: a temporary one)")
    parser.add_argument("--kind", choices=("word", "bpe", "unigram"), default="bpe", help="of tokenizer")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--part", choices=("prepare", "train"), help=argparse.SUPPRESS)
    parser.add_argument("--begun", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        config = configuration(options, options.dir)
        if options.part == "train":
            begin(config, options.updates, options.begun)
        print(json.dumps(prepare(config, options.dir)))
    elif options.dir:
        measure(options)
    else:
        with tempfile.TemporaryDirectory() as name:
            options.dir = Path(name)
            measure(options)


def measure(options: argparse.Namespace) -> None:
    """Prepare and begin to train at each size, and print what that costs."""
    costs: dict[int, dict[str, float]] = {}
    for size in [*(size for size in SIZES if size < options.pairs), options.pairs]:
        folder = options.dir.resolve() / f"{size}"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "text.de").exists():
            write_pairs(folder / "text", size)
        shutil.rmtree(folder / "run", ignore_errors=True)
        costs[size] = {}
        for part in ("prepare", "train"):
            chosen = {"part": part, "dir": folder, "begun": time.time()}
            chosen |= {name: getattr(options, name) for name in ("kind", "updates", "device")}
            command = [sys.executable, __file__, *(f"--{key}={value}" for key, value in chosen.items())]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            costs[size] |= json.loads(done.stdout.splitlines()[-1])
    width = max(map(len, COLUMNS)) + 2
    print(" " * 10 + "".join(f"{name:>{width}}" for name in COLUMNS))
    for size, cost in costs.items():
        print(f"{size:10,}" + "".join(f"{cost[name]:>{width - 3},.1f} {unit(name):2}" for name in COLUMNS))
    first, *_ = costs
    print("a pair, and against the first:")
    for size, cost in costs.items():
        cells = []
        for name in COLUMNS:
            if name in ("peak", "train"):
                grown = 1e6 * (cost[name] - costs[first][name]) / max(1, size - first)
                cells.append(f"{grown:.0f} B" if size > first else "-")
            else:
                each = 1e6 * cost[name] / size
                cells.append(f"{each:.0f} ({each / (1e6 * costs[first][name] / first):.2f})")
        print(f"{size:10,}" + "".join(f"{cell:>{width}}" for cell in cells))


def unit(name: str) -> str:
    """Of a column."""
    return "MB" if name in ("peak", "disk", "at most", "train") else "s"


if __name__ == "__main__":
    main()
