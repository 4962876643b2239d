"""Show in one call what this program does on a GPU: tests, training, translating, and Multi30k by the clock.

    python benchmarks/gpu.py --data data/multi30k --minutes 9
    python benchmarks/gpu.py --parts training --shapes base big

--data is a folder with train.en, train.de, val.en and so on, as corpora/multi30k has them; without it, made-up text is
used and the part `quality` is left out. Each part is a process of its own with a limit of time. One that fails or takes
too long is a row that says so; what it had measured by then is kept. The table is printed at the end, and each row on
standard error as soon as it is known.

Parts:
    tests      `pytest -m gpu`
    training   target tokens per second, eager and compiled, beside `nn.Transformer` and Marian with our batches. MFU is
               the share of the fastest matrix product in bfloat16 that was measured here
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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from types import ModuleType

import torch
from common import ROOT, tokens_per_second, write_made_up_text

from dragoman.command_line import override
from dragoman.corpora import preparation
from dragoman.device import DTYPES, choose_device, describe_device, free_memory, tune_device

GRACE_SECONDS = 8.0  # for a process to end by itself after it was interrupted


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    part: str
    what: str
    result: str


# What runs in a process of its own: each yields its rows as soon as it has them


def training(options: argparse.Namespace, device: torch.device, folder: Path) -> Iterator[Row]:
    """Measure one shape after another, and each contender alone on the device."""
    import training as bench

    limit = bench.fastest_product(device, torch.bfloat16)
    yield Row("training", "fastest matrix product, bfloat16", f"{limit / 1e12:,.1f} TFLOP/s")
    text = options.data / "train" if options.data else folder / "text"
    if not options.data:
        write_made_up_text(text, 20_000, bench.VOCABULARY)
    given = argparse.Namespace(**{**vars(options), "data": str(text), "languages": ["en", "de"]})
    eager = ["ours", "marian", "nn.Transformer + tricks", "nn.Transformer, tutorial"]
    jobs = [(shape, name) for shape in options.shapes for name in eager]
    data = None
    for given.shape, name in [*jobs, *((shape, "ours compiled") for shape in options.shapes)]:
        data = data or preparation.prepare_data(
            bench.configuration(given, "bfloat16", folder), folder / "data", lambda _: None
        )
        source, target = (lengths.sum() for lengths in data.train.lengths)
        flops = bench.useful_flops(given, source / target)
        precision = "float32" if name.endswith("tutorial") else "bfloat16"
        try:
            rate = _rate(bench, name, precision, given, data, folder, device)
            result = f"{rate:,.0f} target tokens/s, {rate * flops / 1e12:.1f} TFLOP/s, MFU {rate * flops / limit:.1%}"
        except (ImportError, RuntimeError) as error:
            result = f"failed: {str(error).strip().splitlines()[0]}"
        yield Row("training", f"{given.shape}, {name}, {precision}", result)
        free_memory(device)


def _rate(
    bench: ModuleType,
    name: str,
    precision: str,
    options: argparse.Namespace,
    data: preparation.PreparedData,
    folder: Path,
    device: torch.device,
) -> float:
    """Measure target tokens per second of one contender."""
    config = bench.configuration(options, precision, folder)
    if name.startswith("ours"):
        config = override(config, [f"--training.compile={'compiled' in name}"])
        step = bench.ours(config, data, folder, device, precision)
    else:
        step = bench.peer("marian" if name == "marian" else "tutorial", config, data, device, precision)
    for _ in range(options.warm_up):  # chooses kernels, allocates memory, compiles
        step()
    finish = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    finish()
    return tokens_per_second(step, options.seconds, finish)


def auto(options: argparse.Namespace, device: torch.device, folder: Path) -> Iterator[Row]:
    """Train with the batches that `auto` finds."""
    from training import SHAPES

    if not options.data:
        write_made_up_text(folder / "train", 20_000, 10_000)
    shape = "base" if "base" in options.shapes else options.shapes[0]
    settings = {
        "run.dir": folder, "run.name": "auto", "data.train": (options.data or folder) / "train",
        "data.source_lang": "en", "data.target_lang": "de", "data.validation_fraction": 0.01, "data.test_fraction": 0,
        "model.preset": "null",
        "model.dropout": 0.1, "training.batch_tokens": "auto", "training.max_minutes": options.seconds * 4 / 60,
        "training.max_epochs": "null", "training.device": options.device, "training.precision": "bfloat16",
        "training.log_every": 5, "training.validate_every": 10**6,
        **{f"model.{key}": value for key, value in SHAPES[shape].items()},
    }  # fmt: skip
    for _, line in lines([sys.executable, "train.py", *(f"--{key}={value}" for key, value in settings.items())], 600):
        if "batch_tokens auto" in line or "error" in line:
            yield Row("auto", shape, line.strip())
    rates = [
        float(line.split(",")[2])
        for line in (folder / "auto/metrics.csv").read_text(encoding="utf-8").splitlines()
        if line.split(",")[1] == "speed/tokens_per_second"
    ]
    yield Row("auto", f"{shape}, the last updates", f"{rates[-1]:,.0f} target tokens/s")


def decoding(options: argparse.Namespace, device: torch.device, folder: Path) -> Iterator[Row]:
    """Measure the speed of translating."""
    from decoding import compare

    tune_device(device)
    shapes = [shape for shape in options.shapes if shape != "big"]
    for found in compare(shapes, options.batches, str(options.data / "val") if options.data else None, device):
        for name, speed in found.speeds.items():
            yield Row("decoding", f"{found.title}, {name}", f"{speed:,.1f} sentences/s")
        if found.same is not None:
            yield Row("decoding", f"{found.title}, the same as CTranslate2 in float32", f"{found.same:.0%}")


def tests(options: argparse.Namespace, device: torch.device, folder: Path) -> Iterator[Row]:
    """Run the tests that need a GPU."""
    command = [sys.executable, "-m", "pytest", "-v", "-m", "gpu", "tests/test_gpu.py", "--tb=short"]
    for _, line in lines([*command, *options.pytest], 600):
        print(line, end="", file=sys.stderr, flush=True)
        if re.match(r"(FAILED|ERROR) |=+ .*(passed|failed|skipped|error)", line):
            yield Row("tests", line.strip("= \n").split(" - ")[0], line.partition(" - ")[2].strip())


def quality(options: argparse.Namespace, device: torch.device, folder: Path) -> Iterator[Row]:
    """Train on Multi30k and say when validation reached the BLEU asked for."""
    if not options.data:
        yield Row("quality", "left out", "needs --data")
        return
    settings = {
        "run.dir": folder, "run.name": "multi30k", "data.train": options.data / "train",
        "data.validation": options.data / "val", "data.test": options.data / "test_2016_flickr",
        "training.device": options.device, "model.preset": "auto", "training.max_minutes": options.quality_minutes,
        "training.max_epochs": "null",
    }  # fmt: skip
    given = [f"--{key}={value}" for key, value in settings.items()] + options.setting
    reached = None
    best = 0.0
    for seconds, line in lines([sys.executable, "train.py", "--config=configs/multi30k-en-de.yaml", *given], 600):
        print(f"{seconds:6.1f} {line}", end="", file=sys.stderr, flush=True)
        if found := re.search(r"BLEU ([\d.]+)", line):
            best = max(best, float(found[1]))
            if reached is None and best >= options.bleu:
                reached = seconds
                yield Row("quality", f"validation BLEU of {options.bleu:g}", f"after {seconds:.0f} s from raw text")
        if "error" in line:
            yield Row("quality", "failed", line.strip())
    with suppress(OSError):
        result = json.loads((folder / "multi30k/result.json").read_text(encoding="utf-8"))
        scores = f"validation {result['validation']['bleu']:.2f}, test {result['test']['bleu']:.2f}"
        yield Row("quality", f"BLEU, {options.quality_minutes:g} minutes, {result['step']} updates", scores)


PARTS: dict[str, tuple[Callable[[argparse.Namespace, torch.device, Path], Iterator[Row]], float]] = {
    "tests": (tests, 0.40),  # with the share of all minutes that it may take
    "training": (training, 0.55),
    "decoding": (decoding, 0.25),
    "auto": (auto, 0.12),
    "quality": (quality, 0.45),
}

# Processes with a limit


def lines(command: list[str], seconds: float) -> Iterator[tuple[float, str]]:
    """Run a command in ROOT for at most this long; yield each line of its output with the seconds since its start.

    The processes that it started end with it. If it fails or takes too long, the last line says so.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout
    output, queue = process.stdout, Queue[str | None]()

    def read() -> None:
        for line in output:
            queue.put(line)
        queue.put(None)

    Thread(target=read, daemon=True).start()
    until, stopped = started + seconds, False
    try:
        while True:
            try:
                line = queue.get(timeout=max(0.0, until - time.perf_counter()))
            except Empty:
                if stopped:
                    break
                stopped, until = True, until + GRACE_SECONDS
                process.send_signal(signal.SIGINT)  # pytest then says what failed so far
                continue
            if line is None:
                break
            yield time.perf_counter() - started, line
        if stopped:
            yield time.perf_counter() - started, f"error: stopped after {seconds:.0f} s\n"
        elif process.wait():
            yield time.perf_counter() - started, f"error: ended with exit code {process.returncode}\n"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def measure(name: str, seconds: float) -> Iterator[Row]:
    """Run a part in a process of its own and yield its rows, and one more if it did not end well."""
    last = ""
    for _, line in lines([sys.executable, __file__, *sys.argv[1:], "--part", name], seconds):
        if line.startswith('{"part"'):
            yield Row(**json.loads(line))
        elif line.startswith("error: "):
            yield Row(name, "did not end well", f"{line.strip()}; {last.strip()}")
        else:
            print(line, end="", file=sys.stderr, flush=True)
            last = line if line.strip() else last


def main() -> None:
    """Run the parts and print a table."""
    parser = argparse.ArgumentParser(description="Show in one call what this program does on a GPU.")
    parser.add_argument("--data", type=Path, help="folder with Multi30k's train.en, train.de, val.en ...")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all parts together (default: 9)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--shapes", nargs="+", default=["small", "base", "big"], choices=["tiny", "small", "base", "big"]
    )
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[1, 64, 512], metavar="N", help="sentences to translate at a time"
    )
    parser.add_argument("--batch_tokens", type=int, default=25_000, help="for training (default: 25000)")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each speed of training")
    parser.add_argument("--warm_up", type=int, default=15, metavar="N", help="updates before that (default: 15)")
    parser.add_argument("--quality_minutes", type=float, default=2.5)
    parser.add_argument("--bleu", type=float, default=41.0, help="to reach in validation (default: 41)")
    parser.add_argument("--setting", action="append", default=[], help="a further setting of the part quality")
    parser.add_argument("--pytest", action="append", default=[], help="a further argument for pytest")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.data:
        options.data = options.data.resolve()
    device = choose_device(options.device)
    if options.part:
        with tempfile.TemporaryDirectory() as folder:
            for row in PARTS[options.part][0](options, device, Path(folder)):
                print(json.dumps(asdict(row)), flush=True)
        return

    ends = time.perf_counter() + options.minutes * 60
    rows: list[Row] = []
    for name in options.parts:
        allowed = min(PARTS[name][1] * options.minutes * 60, ends - time.perf_counter() - 2)
        if allowed < 1:
            rows.append(Row(name, "left out", "no time was left"))
            continue
        started = time.perf_counter()
        for row in measure(name, allowed):
            print(f"# {row.part}: {row.what}: {row.result}", file=sys.stderr, flush=True)
            rows.append(row)
        print(f"# {name} took {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    print(f"{describe_device(device, DTYPES['bfloat16'])}\n")
    print("| part | what | result |\n| --- | --- | --- |")
    for row in rows:
        print(f"| {row.part} | {row.what} | {row.result} |")


if __name__ == "__main__":
    main()
