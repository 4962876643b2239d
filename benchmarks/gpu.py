"""Show in one call what this program does on a GPU: tests, training, translating, and Multi30k by the clock.

    git clone https://github.com/multi30k/dataset data/multi30k
    python benchmarks/gpu.py
    python benchmarks/gpu.py --parts training --shapes base big --minutes 5

Each part runs in processes of its own for a limited time, and what it leaves unused goes to the parts after it. A part
that fails or takes too long is a row that says so; what it had found by then is kept. The table is printed at the end,
after Ctrl-C and SIGTERM as well, and each row on standard error as soon as it is known.

Parts:
    tests      `pytest -m gpu`
    training   target tokens per second in bfloat16, eager and compiled, beside `nn.Transformer` and Marian with our
               batches. MFU is the share of the fastest matrix product in bfloat16, measured just before. A GPU that
               emulates bfloat16 computes in float32
    auto       what `training.batch_tokens: auto` finds for the base shape, and how fast that trains
    decoding   sentences per second of `model.py`, our engine, Marian and CTranslate2, 20 tokens each
    quality    Multi30k by the clock: `model.preset: auto` with a limit of minutes; when validation reached --bleu
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from common import ROOT, number_formats, tokens_per_second

if TYPE_CHECKING:  # only workers use torch
    import torch

MULTI30K = ROOT / "data/multi30k/data/task1/tok"
GRACE = 8.0  # seconds, or a fifth of its time, that a process has to end by itself when it is interrupted
MINUTES = {"tests": 1.5, "training": 1.2, "auto": 0.4, "decoding": 0.9, "quality": 3.0}  # of 9; training: each shape


class Row(NamedTuple):
    """A line of the table."""

    part: str
    what: str
    result: str


class PartError(Exception):
    """A process failed or took too long."""


Found = Generator[tuple[str, str], None, None]  # what was measured, and the result
Part = Callable[[argparse.Namespace, Path, float], Found]  # gets the options, a folder and a limit in seconds


def split(options: argparse.Namespace, name: str) -> Path:
    """The pairs of a split, without the language: `train` or `train.lc.norm.tok`, whichever --data has."""
    for path in sorted(options.data.glob(f"{name}.*en")):
        return path.with_suffix("")
    raise PartError(f"{options.data} has no {name}.en")


# The parts. Each yields what it finds as soon as it knows it


def run_tests(options: argparse.Namespace, folder: Path, seconds: float) -> Found:
    """Run the tests that need a GPU."""
    command = [sys.executable, "-m", "pytest", "-v", "-m", "gpu", "tests/test_gpu.py", "--tb=short"]
    for _, line in lines(command, seconds):
        if found := re.match(r"(FAILED|ERROR) (\S+)(?: - (.*))?", line):
            yield found[2], f"{found[1].lower()}: {found[3]}"
        elif found := re.match(r"=+ (.*(?:passed|failed|skipped|error|no tests).*) =+$", line):
            yield "pytest -m gpu", found[1]


def run_worker(worker: str, shapes: list[str], options: argparse.Namespace, folder: Path, seconds: float) -> Found:
    """Run `train_shape` or `decode` in a process of its own."""
    given = ["--worker", worker, "--work", str(folder), "--data", str(options.data), "--shapes", *shapes]
    for _, line in lines([sys.executable, __file__, *sys.argv[1:], *given], seconds):
        if line.startswith('["'):
            what, result = json.loads(line)
            yield what, result


def train_auto(options: argparse.Namespace, folder: Path, seconds: float) -> Found:
    """Train with the batches that `auto` finds."""
    from training import SHAPES

    shape = "base" if "base" in options.shapes else options.shapes[0]
    settings = {
        "run.dir": folder, "run.name": "auto", "data.train": split(options, "train"), "data.source_lang": "en",
        "data.target_lang": "de", "data.validation_fraction": 0.01, "data.test_fraction": 0, "model.preset": "null",
        "model.dropout": 0.1, "training.batch_tokens": "auto", "training.max_epochs": "null",
        "training.max_minutes": min(0.4 * seconds, 10 * options.seconds) / 60, "training.device": options.device,
        "training.precision": "auto", "training.log_every": 5, "training.validate_every": 10**6,
        **{f"model.{key}": value for key, value in SHAPES[shape].items()},
    }  # fmt: skip
    command = [sys.executable, "train.py", *(f"--{key}={value}" for key, value in settings.items())]
    for _, line in lines(command, seconds):
        if "batch_tokens auto" in line:
            yield shape, line.strip()
    curves = (folder / "auto/metrics.csv").read_text(encoding="utf-8").splitlines()
    rates = [row.split(",")[2] for row in curves if row.split(",")[1] == "speed/tokens_per_second"]
    yield f"{shape}, the last updates", f"{float(rates[-1]):,.0f} target tokens/s"


def train_by_the_clock(options: argparse.Namespace, folder: Path, seconds: float) -> Found:
    """Train on Multi30k and say when validation reached the BLEU asked for."""
    minutes = min(options.quality_minutes, 0.7 * seconds / 60)  # the rest is for preparation and the final report
    settings = {
        "run.dir": folder, "run.name": "quality", "data.train": split(options, "train"),
        "data.validation": split(options, "val"), "data.test": split(options, "test_2016_flickr"),
        "training.device": options.device, "model.preset": "auto", "training.max_minutes": minutes,
        "training.max_epochs": "null",
    }  # fmt: skip
    given = [f"--{key}={value}" for key, value in settings.items()] + options.setting
    best = -1.0
    for at, line in lines([sys.executable, "train.py", "--config=configs/multi30k-en-de.yaml", *given], seconds):
        if found := re.search(r"validation loss .*BLEU ([\d.]+)", line):
            if best < options.bleu <= float(found[1]):
                yield f"validation BLEU of {options.bleu:g}", f"after {at:.0f} s from raw text"
            best = max(best, float(found[1]))
    if best < options.bleu:
        yield f"validation BLEU of {options.bleu:g}", f"not reached: {best:.2f}"
    result = json.loads((folder / "quality/result.json").read_text(encoding="utf-8"))
    scores = f"validation {result['validation']['bleu']:.2f}, test {result['test']['bleu']:.2f}"
    yield f"BLEU, {minutes:.1f} minutes, {result['step']} updates", scores


# What runs on the GPU in a process of its own


def train_shape(options: argparse.Namespace, device: torch.device) -> Found:
    """Measure how fast each contender trains a model of one shape, one after another."""
    import torch
    import training as bench

    from dragoman.command_line import override
    from dragoman.corpora import preparation
    from dragoman.device import DTYPES, describe_device, free_memory

    precision = number_formats(device)[-1]
    limit = bench.fastest_product(device, DTYPES[precision])
    yield describe_device(device, DTYPES[precision]), f"matrix products up to {limit / 1e12:,.2f} TFLOP/s"
    given = {"data": str(split(options, "train")), "languages": ["en", "de"], "shape": options.shapes[0]}
    options = argparse.Namespace(**vars(options) | given)
    config = bench.configuration(options, precision, options.work)
    compiled = override(config, ["--training.compile=true"])
    data = preparation.prepare_data(config, options.work / "data", lambda _: None)
    source, target = (lengths.sum() for lengths in data.train.lengths)
    flops = bench.useful_flops(options, source / target)
    contenders = {
        "ours": partial(bench.ours, config, data, options.work, device, precision),
        "Marian": partial(bench.peer, "marian", config, data, device, precision),
        "nn.Transformer with our batches": partial(bench.peer, "tutorial", config, data, device, precision),
        "nn.Transformer, tutorial, float32": partial(bench.peer, "tutorial", config, data, device, "float32"),
        "ours, compiled": partial(bench.ours, compiled, data, options.work, device, precision),
    }
    finish = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for name, make in contenders.items():
        try:
            step = make()
            for _ in range(options.warm_up):  # chooses kernels, allocates memory, compiles
                step()
            finish()
            rate = tokens_per_second(step, options.seconds, finish)
            useful = rate * flops
            yield name, f"{rate:,.0f} target tokens/s, {useful / 1e12:.2f} TFLOP/s, MFU {useful / limit:.1%}"
        except (RuntimeError, ImportError) as error:
            yield name, f"failed: {cell(error)}"
        step = None
        free_memory(device)


def decode(options: argparse.Namespace, device: torch.device) -> Found:
    """Measure how fast each contender translates."""
    from decoding import TOKENS, compare

    from dragoman.device import DTYPES, describe_device

    yield describe_device(device, DTYPES["float32"]), f"{TOKENS} tokens for each sentence"
    for found in compare(options.shapes, options.batches, str(split(options, "val")), device):
        for name, speed in found.speeds.items():
            yield f"{found.title}, {name}", f"{speed:,.1f} sentences/s"
        for name, reason in found.failed.items():
            yield f"{found.title}, {name}", f"failed: {reason}"
        if found.same is not None:
            yield f"{found.title}, the same as CTranslate2 in float32", f"{found.same:.0%}"


def work(options: argparse.Namespace) -> None:
    """Be the process of a part: print each finding as a line of JSON."""
    from dragoman.device import choose_device, tune_device

    device = choose_device(options.device)
    tune_device(device)
    for found in {"training": train_shape, "decoding": decode}[options.worker](options, device):
        print(json.dumps(found))


# Processes with a limit, and the table


def lines(command: list[str], seconds: float) -> Generator[tuple[float, str], None, None]:
    """Run a command in ROOT for at most this long; yield each line of its output with the seconds since its start.

    The processes that it started end with it. Raises PartError if it fails or takes too long.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    queue: Queue[str | None] = Queue()
    Thread(target=_read, args=(process, queue), daemon=True).start()
    grace = min(GRACE, 0.2 * seconds)
    until, stopped, last = started + seconds - grace, False, ""
    try:
        while True:
            line: str | None = ""
            with suppress(Empty):
                line = queue.get(timeout=max(0.0, until - time.perf_counter()))
            if line is None or (stopped and time.perf_counter() >= until):
                break
            if time.perf_counter() >= until:
                stopped, until = True, until + grace
                process.send_signal(signal.SIGINT)  # pytest then says what it has found so far
            if line:
                print(line, end="", file=sys.stderr)
                last = line if line.strip() else last
                yield time.perf_counter() - started, line
        if stopped:
            raise PartError(f"stopped after {seconds:.0f} s; its last line: {last}")
        if process.wait():
            raise PartError(f"exit code {process.returncode}; its last line: {last}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(process: subprocess.Popen[str], queue: Queue[str | None]) -> None:
    """Put the lines of a process in a queue, then None."""
    assert process.stdout
    for line in process.stdout:
        queue.put(line)
    queue.put(None)


def cell(text: object) -> str:
    """A text as it fits into a cell of the table."""
    return " ".join(str(text).split()).replace("|", "/")[:300]


def chosen_parts(options: argparse.Namespace) -> dict[str, tuple[float, Part]]:
    """The parts by name, each with its share of the time."""
    decoded = [shape for shape in options.shapes if shape != "big"]
    runs: dict[str, dict[str, Part]] = {
        "tests": {"tests": run_tests},
        "training": {f"training, {shape}": partial(run_worker, "training", [shape]) for shape in options.shapes},
        "auto": {"auto": train_auto},
        "decoding": {"decoding": partial(run_worker, "decoding", decoded)},
        "quality": {"quality": train_by_the_clock},
    }
    return {name: (MINUTES[part], run) for part in options.parts for name, run in runs[part].items()}


def measure(
    parts: dict[str, tuple[float, Part]], options: argparse.Namespace, folder: Path
) -> Generator[Row, None, None]:
    """Run one part after another, and divide the time that is left by their shares."""
    ends = time.perf_counter() + 60 * options.minutes
    left = sum(share for share, _ in parts.values())
    for name, (share, run) in parts.items():
        seconds = (ends - time.perf_counter()) * share / left
        left -= share
        try:
            with closing(run(options, folder, seconds)) as found:
                for what, result in found:
                    yield Row(name, cell(what), cell(result))
        except PartError as error:
            yield Row(name, "failed", cell(error))
        except Exception as error:  # such as an unexpected line: the other parts have their turn all the same
            yield Row(name, "failed", cell(repr(error)))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Show in one call what this program does on a GPU.")
    parser.add_argument("--data", type=Path, default=MULTI30K, help="folder with train.en, train.de, val.en ...")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all parts together (default: 9)")
    parser.add_argument("--parts", nargs="+", choices=MINUTES, default=list(MINUTES))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--shapes", nargs="+", default=["small", "base", "big"], help="tiny, small, base, big")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64, 512], help="sentences to translate at a time")
    parser.add_argument("--batch_tokens", type=int, default=25_000, help="for training (default: 25000)")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each speed of training (default: 3)")
    parser.add_argument("--warm_up", type=int, default=15, metavar="N", help="updates before that (default: 15)")
    parser.add_argument("--quality_minutes", type=float, default=2.5, help="of training on Multi30k (default: 2.5)")
    parser.add_argument("--bleu", type=float, default=41.0, help="to reach in validation (default: 41)")
    parser.add_argument("--setting", action="append", default=[], help="a further setting of the part quality")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.data = options.data.resolve()
    return options


def main() -> None:
    """Run the parts and print the table, which Ctrl-C and SIGTERM only shorten."""
    options = parse()
    if options.worker:
        work(options)
        return
    rows: list[Row] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with closing(measure(chosen_parts(options), options, Path(folder))) as found:
                for row in found:
                    print(f"# {row.part}: {row.what}: {row.result}", file=sys.stderr)
                    rows.append(row)
        except KeyboardInterrupt:
            rows.append(Row("all", "interrupted", "the parts after this row did not run"))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # nothing is left to interrupt
        print("| part | what | result |\n| --- | --- | --- |")
        for row in rows:
            print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
