"""Measure what a pair costs: the constants from which `dragoman plan` and docs/scale.md reckon.

    python benchmarks/scale.py
    python benchmarks/scale.py --data corpus/train --languages en fr --pairs 80000

The last lines go into dragoman/training/scale.py. Seconds are processor seconds, so a busy machine changes them little.
Those of preparing are divided into what only the main thread does and what all cores share. Memory per pair comes from
the allocations of Python and numpy, and that of a process from the kernel.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from common import write_made_up_text

from dragoman.command_line import override, read_settings
from dragoman.corpora import preparation
from dragoman.corpora.prepared_files import load_pairs
from dragoman.dataset import batch_plan
from dragoman.filtering.duplicates import KEYS, Repeats
from dragoman.settings import Config
from dragoman.training.batches import StoredPlan, training_batches, write_plan

BATCH = 4096  # tokens, as the preset base has
UPDATES = 100


def configuration(options: argparse.Namespace) -> Config:
    """Configure a run with the subwords of the preset base."""
    source, target = options.languages
    settings = {
        "model.preset": "base", "data.train": options.work / "text", "data.source_lang": source,
        "data.target_lang": target, "data.check_languages": "false",
    }  # fmt: skip
    return read_settings([f"--{key}={value}" for key, value in settings.items()])


def prepare(options: argparse.Namespace) -> dict[str, float]:
    """Prepare the text; return the processor seconds and the peak memory."""
    before = time.thread_time(), time.process_time()
    preparation.prepare_data(configuration(options), options.work / "data", lambda _: None)
    serial, own = time.thread_time() - before[0], time.process_time() - before[1]
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"serial": serial, "parallel": own - serial + workers.ru_utime + workers.ru_stime}


def learn(options: argparse.Namespace) -> dict[str, float]:
    """Make updates on one pair with a model so narrow that nearly all time goes into Python; return it for a layer."""
    import torch

    from dragoman import train

    torch.set_num_threads(1)
    narrow = {"training.batch_tokens": 1, "model.d_model": 8, "model.n_heads": 1, "model.d_ff": 8}
    config = override(configuration(options), [f"--{key}={value}" for key, value in narrow.items()])
    data = preparation.load(options.work / "data")
    state = train.build_state(config, options.work, data, torch.device("cpu"), torch.float32)
    updates = training_batches(state)
    train.train_step(state, next(updates))
    started = time.process_time()
    for _ in range(UPDATES):
        train.train_step(state, next(updates))
    return {"update": (time.process_time() - started) / UPDATES / (state.config.model.encoder_layers * 2)}


def held_out(options: argparse.Namespace) -> dict[str, float]:
    """Return the bytes of memory of a held-out pair, which each rank keeps as text."""
    path = options.work / "data" / "validation.tsv"
    size, _, pairs = cost(lambda: load_pairs(path))
    return {"bytes": size / len(pairs)}


def plan(options: argparse.Namespace) -> dict[str, float]:
    """Plan an epoch of pairs of the lengths of the prepared ones and write the plan; return the cost of a pair."""
    data = preparation.load(options.work / "data")
    pairs = data.train.take(np.random.default_rng(0).integers(0, len(data.train), options.made_up))
    path = options.work / "plan.npy"
    size, seconds, _ = cost(lambda: write_plan(path, batch_plan(*pairs.lengths, BATCH, 1, 0)))
    fill = pairs.target.lengths.sum() / (BATCH * len(StoredPlan(path)))
    return {"bytes": size / options.made_up, "seconds": seconds / options.made_up, "fill": fill}


def compare(options: argparse.Namespace) -> dict[str, float]:
    """Look for repeated pairs, as `dragoman clean` does; return the cost of a pair."""
    keys = np.random.default_rng(0).integers(1, 2**63, (options.made_up, KEYS), np.uint64)

    def mark() -> None:
        repeats = Repeats()
        for start in range(0, options.made_up, 10_000):
            repeats.mark([""] * 10_000, keys[start : start + 10_000])

    size, seconds, _ = cost(mark)
    return {"bytes": size / options.made_up, "seconds": seconds / options.made_up}


def cost(work: Callable[[], Any]) -> tuple[int, float, Any]:
    """Do the work twice, for the peak of its memory and for its processor seconds; also return its result."""
    started = time.process_time()
    work()
    seconds = time.process_time() - started
    tracemalloc.start()
    result = work()
    return tracemalloc.get_traced_memory()[1], seconds, result


PARTS = {"prepare": prepare, "learn": learn, "held_out": held_out, "plan": plan, "compare": compare}


def write_text(options: argparse.Namespace) -> int:
    """Write the pairs to measure to the folder `work`; return their bytes."""
    if options.data is None:
        options.languages = ["en", "de"]
        write_made_up_text(options.work / "text", options.pairs, 300_000)
    else:
        for language in options.languages:
            with open(f"{options.data}.{language}", "rb") as file:
                Path(f"{options.work}/text.{language}").write_bytes(b"".join(islice(file, options.pairs)))
    return size_of(options.work, "text.*")


def size_of(folder: Path, pattern: str) -> int:
    """The bytes of the files in a folder that match a pattern, while another process writes and removes them."""
    sizes = 0
    for path in folder.glob(pattern):
        try:
            sizes += path.stat().st_size
        except FileNotFoundError:
            continue
    return sizes


def measured(options: argparse.Namespace, part: str) -> dict[str, float]:
    """Run a part in a process of its own; return its figures, its peak memory, and the peak of the hidden folder."""
    arguments = [f"--part={part}", f"--work={options.work}", f"--made_up={options.made_up}", "--languages"]
    with subprocess.Popen(
        [sys.executable, __file__, *arguments, *options.languages], stdout=subprocess.PIPE, text=True
    ) as process:
        disk = 0
        while process.poll() is None:
            disk = max(disk, size_of(options.work / ".data.tmp", "**/*"))
            time.sleep(0.05)
        assert process.stdout
        output = process.stdout.read()
    if process.returncode:
        sys.exit(process.returncode)
    return json.loads(output.splitlines()[-1]) | {"disk": disk}


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description="Measure what a pair costs.")
    parser.add_argument("--data", help="prefix of two files of parallel text (default: made-up text)")
    parser.add_argument("--languages", nargs=2, default=["en", "fr"], help="suffixes of these files (default: en fr)")
    parser.add_argument("--pairs", type=int, default=80_000, help="how many to use (default: 80000)")
    parser.add_argument(
        "--made_up", type=int, default=2_000_000, help="more, to order and to compare (default: 2000000)"
    )
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        figures = PARTS[options.part](options)
        peak = 1024 * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        print(json.dumps(figures | {"memory": peak}))
        return
    with tempfile.TemporaryDirectory() as name:
        options.work = Path(name).resolve()
        text = write_text(options)
        costs = {part: measured(options, part) for part in PARTS}
        report = preparation.load(options.work / "data").report
        data = size_of(options.work / "data", "**/*")
    read = sum(count.read for count in report.counts.values())
    tokens = sum(side.mean for side in report.sides) / 2
    for part, figures in costs.items():
        print(f"{part:9}", ", ".join(f"{key} {value:.4g}" for key, value in figures.items()))
    prepared, planned, learnt = (costs[part] for part in ("prepare", "plan", "learn"))
    constants = {
        "tokens": tokens, "text": text / read, "beside": (prepared["disk"] - data) / read,
        "serial": prepared["serial"] / read, "parallel": prepared["parallel"] / read,
        "held_out": costs["held_out"]["bytes"], "planning": planned["bytes"], "cleaning": costs["compare"]["bytes"],
        "process": learnt["memory"], "fill": planned["fill"], "update": learnt["update"],
    }  # fmt: skip
    print(f"\nMEASURED_ON = {date.today()}: {read:,} pairs of {options.data or 'made-up text'}")
    for key, value in constants.items():
        print(f'    "{key}": {value:.2g},' if value < 1 else f'    "{key}": {value:.3g},')


if __name__ == "__main__":
    main()
