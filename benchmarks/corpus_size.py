"""Measure the cost of a larger corpus: time, memory and disk of preparing it, starting a run on it, and 200 updates.

    python benchmarks/corpus_size.py
    python benchmarks/corpus_size.py --sizes 30000 10000000 --work /scratch/sizes --kind bpe

For each size, made-up parallel text is prepared in one process and trained on in another, always with the same small
model. `--work` keeps the text and the prepared data, and must be empty. The columns:

    prepare, processor  seconds to read the text, train tokenizers and write ids, and processor seconds of all threads
    memory              peak of that process, libraries included; on the right, of the training process
    disk                of the prepared data
    start               seconds to the end of the first update: imports, loading, the check that the corpus is
                        unchanged, the model, and a rehearsal of the largest batch
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import write_made_up_text

from dragoman import train
from dragoman.command_line import override
from dragoman.corpora import preparation
from dragoman.device import choose_device, choose_precision, tune_device
from dragoman.settings import Config
from dragoman.training import gradients
from dragoman.training.batches import training_batches

KINDS = 300_000  # different words of the text; the vocabulary keeps the most frequent ones
UPDATES = 200


def configuration(options: argparse.Namespace, size: int) -> Config:
    """Configure a run on the text of a size, with the same small model for each size."""
    held_out = max(0.002, 20 / size)  # a tiny corpus must have some such pairs too
    settings = {
        "run.dir": options.work, "data.train": options.work / f"text-{size}", "data.target_lang": "de",
        "data.validation_fraction": held_out, "data.test_fraction": held_out, "tokenizer.kind": options.kind,
        "tokenizer.vocab_size": 10_000, "training.device": options.device, "training.max_steps": 1_000_000,
    }  # fmt: skip
    return override(Config(), [f"--{key}={value}" for key, value in settings.items()])


def prepare(options: argparse.Namespace, size: int) -> dict[str, float]:
    """Prepare the text of a size; return the cost."""
    folder = options.work / f"data-{size}"
    started, processor = time.perf_counter(), time.process_time()
    preparation.prepare_data(configuration(options, size), folder, lambda _: None)
    seconds, used = time.perf_counter() - started, time.process_time() - processor
    disk = sum(path.stat().st_size for path in folder.rglob("*")) / 1e6
    return {"prepare": seconds, "processor": used, "disk": disk}


def learn(options: argparse.Namespace, size: int) -> dict[str, float]:
    """Start a training on prepared data and make some updates; return the cost."""
    config = configuration(options, size)
    device = choose_device(options.device)
    tune_device(device)
    dtype = choose_precision(config.training.precision, device)
    data = preparation.prepare_data(config, options.work / f"data-{size}", lambda _: None)
    state = train.build_state(config, options.work, data, device, dtype)
    gradients.try_largest_batch(state)
    updates = training_batches(state)
    train.train_step(state, next(updates))
    start = time.perf_counter() - STARTED
    started = time.perf_counter()
    for _ in range(options.updates):
        train.train_step(state, next(updates))  # at its end, it waits for the device
    return {"start": start, "updates": time.perf_counter() - started}


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description="Measure what grows with the corpus.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[30_000, 300_000, 3_000_000], help="sentence pairs")
    parser.add_argument("--work", type=Path, help="empty folder for text and data (default: a temporary one)")
    parser.add_argument("--kind", choices=("word", "bpe", "unigram"), default="word", help="of tokenizer")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--part", choices=("prepare", "learn"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        costs = (prepare if options.part == "prepare" else learn)(options, options.sizes[0])
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        print(json.dumps(costs | {"memory": memory}))
        return
    with tempfile.TemporaryDirectory() as name:
        options.work = (options.work or Path(name)).resolve()

        def measured(part: str, size: int) -> dict[str, Any]:
            shared = [f"--{key}={getattr(options, key)}" for key in ("work", "kind", "device", "updates")]
            command = [sys.executable, __file__, f"--part={part}", f"--sizes={size}", *shared]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            return json.loads(output.splitlines()[-1])

        print(f"     pairs  prepare  processor     memory       disk    start  {options.updates} updates     memory")
        for size in options.sizes:
            write_made_up_text(options.work / f"text-{size}", size, KINDS)
            made, used = measured("prepare", size), measured("learn", size)
            print(
                f"{size:10,} {made['prepare']:6.1f} s {made['processor']:8.1f} s {made['memory']:7,.0f} MB "
                f"{made['disk']:7,.0f} MB {used['start']:6.1f} s {used['updates']:10.1f} s {used['memory']:7,.0f} MB"
            )


if __name__ == "__main__":
    main()
