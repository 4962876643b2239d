"""Measure what a larger corpus costs: time, memory and disk of preparing it, starting a run on it, and training.

    python benchmarks/corpus_size.py
    python benchmarks/corpus_size.py --sizes 30000 10000000 --work /scratch/sizes --kind bpe --seconds 10

For each size, made-up parallel text is prepared in one process and trained on in another, always with the same small
model. The trainings take turns, so a busy minute of the machine slows all sizes alike. Text and preparations that
`--work` holds from an earlier call are used again.

The rows:
    read, tokenizers, ids  the steps of preparation: clean and split the text, train tokenizers, write ids
    prepare                all of them together; `processors` is the processor time of all threads
    peak memory            of the preparing process, libraries included
    disk, most disk        of the prepared folder, without the original text: at the end, and at most
    imports                of torch and everything else, the same for all sizes
    start                  of a training on prepared data, to the end of the first update: imports, loading, the check
                           that the corpus is unchanged, the model, and a rehearsal of the largest batch
    plan                   grouping the pairs into batches, for one epoch
    training               target tokens per second; the median turn
    resident               peak memory of the training process without weights, gradients and the optimizer's state
    mapped                 the part of it that holds pages of the ids, which the system may take back

Behind each figure is the cost of one pair and, in brackets, its ratio to that of the first size: below 1 if part of the
cost does not grow with the corpus. For memory it is the growth since the first size, divided by the added pairs. For
training speed, the ratio is that of the speeds.

Linux only, because it reads /proc.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from common import serve_turns, take_turns, tokens_per_second, write_made_up_text

from dragoman import train
from dragoman.command_line import override
from dragoman.corpora import preparation
from dragoman.device import choose_device, choose_precision, tune_device
from dragoman.settings import Config
from dragoman.training import gradients
from dragoman.training.batches import training_batches

KINDS = 300_000  # different words of the text; the vocabulary keeps the most frequent ones
STEPS = {"reading": "read", "training": "tokenizers", "turning": "ids"}  # first word of a progress message -> step
SECONDS = ("read", "tokenizers", "ids", "prepare", "processors", "imports", "start", "plan")
ROWS = (*SECONDS[:5], "peak memory", "disk", "most disk", *SECONDS[5:], "training", "resident", "mapped")


def configuration(options: argparse.Namespace, size: int) -> Config:
    """Configure a run on the text of a size, with the same small model for each size."""
    held_out = max(0.002, 20 / size)  # a tiny corpus must have some such pairs too
    settings = {
        "run.dir": folder_of(options, size),
        "data.train": options.work / f"{size}" / "text",
        "data.target_lang": "de",
        "data.validation_fraction": held_out,
        "data.test_fraction": held_out,
        "tokenizer.kind": options.kind,
        "tokenizer.vocab_size": 10_000,
        "training.device": options.device,
        "training.max_steps": 1_000_000,
    }
    return override(Config(), [f"--{key}={value}" for key, value in settings.items()])


def folder_of(options: argparse.Namespace, size: int) -> Path:
    """Return the folder of everything made from the text of a size with this kind of tokenizer."""
    return options.work / f"{size}" / options.kind


def peak_memory() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def mapped_memory(folder: Path) -> float:
    """Return the memory of this process, in MB, that holds pages of files in a folder."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        key, *values = line.split()
        if not key.endswith(":"):
            inside = values[-1].startswith(f"{folder}/")
        elif inside and key == "Rss:":
            found += int(values[0])
    return found * 1024 / 1e6


def disk_space(folder: Path) -> float:
    """Return the size of a folder's files in MB, roughly if another thread is writing them."""
    found = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found += path.stat().st_size
    return found / 1e6


def prepare(options: argparse.Namespace, size: int) -> None:
    """Prepare the text of a size and save what that costs in cost.json."""
    folder = folder_of(options, size)
    marks: list[tuple[str, float]] = []
    most_disk = 0.0

    def mark(message: str) -> None:
        marks.append((STEPS.get(message.split()[0], message), time.perf_counter()))

    def watch() -> None:
        nonlocal most_disk
        while True:
            most_disk = max(most_disk, disk_space(folder))
            time.sleep(0.2)

    threading.Thread(target=watch, daemon=True).start()
    started, processor = time.perf_counter(), time.process_time()
    preparation.prepare_data(configuration(options, size), folder / "data", mark)
    ended = time.perf_counter()
    cost = {name: until - since for (name, since), (_, until) in pairwise([*marks, ("", ended)])}
    disk = disk_space(folder / "data")
    cost |= {
        "prepare": ended - started,
        "processors": time.process_time() - processor,
        "peak memory": peak_memory(),
        "disk": disk,
        "most disk": max(disk, most_disk),
    }
    (folder / "cost.json").write_text(json.dumps(cost), encoding="utf-8")


def work(options: argparse.Namespace, size: int) -> None:
    """Start a training on prepared data, then train for a while in each turn and report the speed."""
    imports = time.perf_counter() - STARTED
    config, folder = configuration(options, size), folder_of(options, size)
    device = choose_device(options.device)
    tune_device(device)
    dtype = choose_precision(config.training.precision, device)
    data = preparation.prepare_data(config, folder / "data", lambda _: None)
    state = train.build_state(config, folder, data, device, dtype)
    gradients.try_largest_batch(state)
    updates = training_batches(state)

    def step() -> int:
        batches = next(updates)
        train.train_step(state, batches)  # at its end, it waits for the device
        return sum(batch.tokens for batch in batches)

    def turn() -> dict[str, float]:
        rate = tokens_per_second(step, options.seconds)
        return {"training": rate, "resident": peak_memory() - model, "mapped": mapped_memory(folder / "data")}

    step()
    start = time.perf_counter() - STARTED
    planning = time.perf_counter()
    state.planner.plan(state.batch_tokens, 1)
    plan = time.perf_counter() - planning
    # Weights, gradients, and the optimizer's two moments.
    model = 4 * sum(parameter.nbytes for parameter in state.model.parameters()) / 1e6
    serve_turns({"imports": imports, "start": start, "plan": plan}, turn)


def measure(options: argparse.Namespace) -> dict[int, dict[str, float]]:
    """Prepare each size, then train on all of them in turns; return the figures by size and row."""
    options.work = options.work.resolve()

    def command(part: str, size: int) -> list[str]:
        shared = [f"--{name}={getattr(options, name)}" for name in ("work", "kind", "device", "seconds")]
        return [sys.executable, __file__, f"--part={part}", f"--sizes={size}", *shared]

    costs: dict[int, dict[str, float]] = {}
    for size in options.sizes:
        folder = folder_of(options, size)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder.parent / "text.de").exists():
            write_made_up_text(folder.parent / "text", size, KINDS)
        if not (folder / "cost.json").exists():
            shutil.rmtree(folder / "data", ignore_errors=True)
            subprocess.run(command("prepare", size), check=True)
        costs[size] = json.loads((folder / "cost.json").read_text(encoding="utf-8"))
    for size, facts, turns in take_turns({size: command("train", size) for size in options.sizes}, options.rounds):
        costs[size] |= facts | turns[-1]
        costs[size]["training"] = statistics.median(turn["training"] for turn in turns)
    return costs


def table(costs: Mapping[int, Mapping[str, float]]) -> list[str]:
    """Format the figures, a row for each cost and a column for each size."""
    (first, first_cost), *_ = costs.items()
    lines = [f"{'pairs':12}" + "".join(f"{size:>37,}" for size in costs)]
    for row in ROWS:
        cells = []
        for size, cost in costs.items():
            value, before = cost[row], first_cost[row]
            ratio = (value / size) / (before / first) if before else float("nan")
            if row in SECONDS:
                cell = f"{value:,.2f} s", f"{1e6 * value / size:,.0f} µs ({ratio:.2f})"
            elif row == "training":
                cell = f"{value:,.0f} tokens/s", f"({value / before:.2f})"
            elif "disk" in row:
                cell = f"{value:,.1f} MB", f"{1e6 * value / size:,.0f} B ({ratio:.2f})"
            else:
                cell = f"{value:,.1f} MB", f"{1e6 * (value - before) / max(1, size - first):,.0f} B"
            cells.append("".join(f"{part:>{width}}" for part, width in zip(cell, (19, 18), strict=True)))
        lines.append(f"{row:12}" + "".join(cells))
    return lines


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Measure what grows with the corpus.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[30_000, 300_000, 3_000_000], help="sentence pairs")
    parser.add_argument("--work", type=Path, help="folder for text and preparations (default: a temporary one)")
    parser.add_argument("--kind", choices=("word", "bpe", "unigram"), default="word", help="of tokenizer")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a turn")
    parser.add_argument("--part", choices=("prepare", "train"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        (prepare if options.part == "prepare" else work)(options, options.sizes[0])
        return
    with tempfile.TemporaryDirectory() as name:
        options.work = options.work or Path(name)
        print("\n".join(table(measure(options))))


if __name__ == "__main__":
    main()
