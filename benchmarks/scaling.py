"""What a large corpus costs: time, memory and disk of preparing it, of starting a run on it, and of training.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --sizes 30000 3000000 --work /scratch/scaling --seconds 10

Made-up parallel text of each size is prepared in a process of its own, and then trained on, by the same shape of model
at each size, in another one. These take turns, so that a busy minute of the machine hits all sizes alike. A corpus or
preparation that `--work` holds from an earlier call is used again; what it cost is remembered beside it.

The columns:
    prepare     from text to ids: the time it takes, that of all processors together, and the most memory
    disk        of the prepared folder, without the text it was made from
    imports     of torch and all else, which no corpus makes slower
    start       from there to the first update of a run whose data are prepared: loading, checking that the corpus is
                still the same, model, plan, and the rehearsal of the largest batch
    plan        which pairs make which batch, for an epoch
    tokens/s    target tokens learnt from: the median turn, and its share of that of the first size
    resident    the most memory of a training process at any time, less weights, gradients and the optimizer's moments;
                libraries included. `mapped` are the pages of the ids among it, which the system may take back.

Linux only, for it reads /proc.
"""

from __future__ import annotations

import time

BEGUN = time.perf_counter()

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

import numpy as np

from dragoman import device as device_module
from dragoman import train
from dragoman.command_line import override
from dragoman.corpora import preparation
from dragoman.settings import Config
from dragoman.training import gradients
from dragoman.training.batches import training_batches

KINDS = 300_000  # of word, of which the vocabulary keeps the most frequent
VOCABULARY = 10_000
CHUNK = 100_000  # pairs that are made at a time


# ------------------------------------------------------------------------------------------------------------ the text


def words() -> np.ndarray:
    """(KINDS, 9) letters: a word of two to eight letters, short if it is frequent, zeros, and a blank at the end."""
    syllables = np.array([[c, v] for c in b"bcdfglmnprstvz" for v in b"aeiou"], np.uint8)
    found = np.zeros((KINDS, 9), np.uint8)
    found[:, 8] = ord(" ")
    rest = np.arange(KINDS)
    for place in range(4):
        more = rest >= 0
        found[more, 2 * place : 2 * place + 2] = syllables[rest[more] % len(syllables)]
        rest = rest // len(syllables) - 1
    return found


def write_pairs(place: Path, count: int) -> None:
    """Parallel text of captions' lengths, in which the word of rank r is as frequent as 1 / (r + 3) (Zipf)."""
    random, table = np.random.default_rng(1), words()
    with Path(f"{place}.en").open("wb") as source, Path(f"{place}.de").open("wb") as target:
        for start in range(0, count, CHUNK):
            rows = min(CHUNK, count - start)
            lengths = np.maximum(3, random.normal(13, 4, rows).round())
            others = np.maximum(3, (lengths * random.normal(0.97, 0.12, rows)).round())
            for file, each in ((source, lengths), (target, others)):
                ends = each.cumsum().astype(int)
                # The distribution turned around: a point between 0 and 1 becomes the rank that it falls to.
                ranks = 3 * (KINDS / 3 + 1) ** random.random(ends[-1]) - 3
                text = table[ranks.astype(int)]
                text[ends - 1, 8] = ord("\n")
                file.write(text[text > 0].tobytes())


def configuration(options: argparse.Namespace, size: int) -> Config:
    """A small model, the same at each size."""
    settings = {
        "run.dir": options.work / f"{size}",
        "data.train": options.work / f"{size}" / "text",
        "data.target_lang": "de",
        "tokenizer.vocab_size": VOCABULARY,
        "training.device": options.device,
        "training.max_steps": 1_000_000,
    }
    return override(Config(), [f"--{key}={value}" for key, value in settings.items()])


# ----------------------------------------------------------------------------------------------- processes of their own


def memory() -> float:
    """The most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def mapped(folder: Path) -> float:
    """The memory of this process, in MB, that holds pages of a folder's files."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        key, *values = line.split()
        if not key.endswith(":"):
            inside = values[-1].startswith(f"{folder}/")
        elif inside and key == "Rss:":
            found += int(values[0])
    return found * 1024 / 1e6


def prepare(options: argparse.Namespace, size: int) -> None:
    """Prepare the text of a size, and write down what that costs."""
    folder = options.work / f"{size}"
    begun, used = time.perf_counter(), time.process_time()
    preparation.prepare_data(configuration(options, size), folder / "data", lambda _: None)
    cost = {
        "prepare": time.perf_counter() - begun,
        "processors": time.process_time() - used,
        "peak": memory(),
        "disk": sum(path.stat().st_size for path in (folder / "data").iterdir()) / 1e6,
    }
    (folder / "cost.json").write_text(json.dumps(cost), encoding="utf-8")


def work(options: argparse.Namespace, size: int) -> None:
    """Start a run on prepared data; then, for each line on standard input, train a while and say how fast."""
    imports, begun = time.perf_counter() - BEGUN, time.perf_counter()
    config, folder = configuration(options, size), options.work / f"{size}"
    device = device_module.choose_device(options.device)
    device_module.tune_device(device)
    dtype = device_module.choose_precision(config.training.precision, device)
    data = preparation.prepare_data(config, folder / "data", lambda _: None)
    training = train.build_state(config, folder, data, device, dtype)
    gradients.try_largest_batch(training)
    updates = training_batches(training)
    batches = next(updates)
    start = time.perf_counter() - begun

    begun = time.perf_counter()
    training.planner.plan(training.batch_tokens, 1)
    found = {"imports": imports, "start": start, "plan": time.perf_counter() - begun}
    for _ in range(2):
        train.train_step(training, batches)
        batches = next(updates)
    print(json.dumps(found), flush=True)
    # Weights, gradients, and the optimizer's two moments.
    model = 4 * sum(parameter.nbytes for parameter in training.model.parameters()) / 1e6
    for _ in sys.stdin:
        tokens, begun = 0, time.perf_counter()
        while tokens == 0 or time.perf_counter() - begun < options.seconds:
            train.train_step(training, batches)  # whose end waits for the device
            tokens += sum(batch.tokens for batch in batches)
            batches = next(updates)
        rate = tokens / (time.perf_counter() - begun)
        print(json.dumps({"rate": rate, "resident": memory() - model, "mapped": mapped(folder / "data")}), flush=True)


# ---------------------------------------------------------------------------------------------------------- measuring


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Measure what grows with the corpus.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[30_000, 300_000, 3_000_000], help="sentence pairs")
    parser.add_argument("--work", type=Path, help="folder for corpora and preparations (default: a temporary one)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a size's turn in a round")
    parser.add_argument("--part", choices=("prepare", "train"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        (prepare if options.part == "prepare" else work)(options, options.sizes[0])
    elif options.work:
        measure(options)
    else:
        with tempfile.TemporaryDirectory() as name:
            options.work = Path(name)
            measure(options)


def measure(options: argparse.Namespace) -> None:
    """Prepare each size, then train on all of them in turns."""
    options.work = options.work.resolve()

    def command(part: str, size: int) -> list[str]:
        chosen = {"part": part, "sizes": size, "work": options.work, "device": options.device}
        chosen["seconds"] = options.seconds
        return [sys.executable, __file__, *(f"--{key}={value}" for key, value in chosen.items())]

    found: dict[int, dict[str, float]] = {}
    rates: dict[int, list[float]] = {size: [] for size in options.sizes}
    processes: dict[int, subprocess.Popen[str]] = {}
    for size in options.sizes:
        folder = options.work / f"{size}"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "text.de").exists():
            write_pairs(folder / "text", size)
        if not (folder / "cost.json").exists():
            subprocess.run(command("prepare", size), check=True)
        found[size] = json.loads((folder / "cost.json").read_text(encoding="utf-8"))
    try:
        for size in options.sizes:
            processes[size] = subprocess.Popen(
                command("train", size), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            found[size] |= _answer(processes[size])
        for _ in range(options.rounds):
            for size in options.sizes:
                processes[size].stdin.write("go\n")  # type: ignore[union-attr]
                processes[size].stdin.flush()  # type: ignore[union-attr]
                answer = _answer(processes[size])
                rates[size].append(answer.pop("rate"))
                found[size] |= answer
    finally:
        for process in processes.values():
            process.kill()
            process.wait()

    first = float(np.median(rates[options.sizes[0]]))
    print(
        "           prepare (processors)     peak     disk  imports   start    plan  tokens/s  ratio  resident  mapped"
    )
    for size, each in found.items():
        rate = float(np.median(rates[size]))
        print(
            f"{size:10,} {each['prepare']:6.0f} s {each['processors']:10.0f} s {each['peak']:5,.0f} MB "
            f"{each['disk']:5,.0f} MB {each['imports']:6.1f} s {each['start']:5.1f} s {each['plan']:5.2f} s "
            f"{rate:9,.0f} {rate / first:6.3f} {each['resident']:6,.0f} MB {each['mapped']:4,.0f} MB"
        )


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    line = process.stdout.readline()  # type: ignore[union-attr]
    if not line:
        raise SystemExit("a size has ended; its message is above")
    return json.loads(line)


if __name__ == "__main__":
    main()
