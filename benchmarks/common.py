"""What the benchmarks share: trainings as separate processes, parallel text, and contenders that take turns.

Import it before `dragoman`: it puts the repository first on sys.path, so that a benchmark measures this clone. It also
lets a benchmark write line by line, so that each row appears at once through a pipe, too.

    config = load_config(parser, path, ["--model.preset=small"])
    texts = write_texts(work / "text", pairs, ("en", "de"))
    run = train(work, "plain-1", path, ["--run.seed=1"], jobs=2)
    last_progress(run)["seconds"]
"""

from __future__ import annotations

import argparse
import ctypes
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(line_buffering=True)
# As `dragoman.__main__` sets them, before torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "20000")

from dragoman import command_line, config_file
from dragoman.errors import ConfigError
from dragoman.settings import Config

Texts = dict[str, tuple[list[str], list[str]]]  # by split: sources and targets


def fail(message: str) -> NoReturn:
    """End the benchmark with an error message."""
    sys.exit(f"{Path(sys.argv[0]).name}: error: {message}")


def mean_and_range(values: Sequence[float]) -> str:
    """Format the mean and, for several values, the lowest and highest: `31.20 [30.90, 31.50]`."""
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} [{min(values):.2f}, {max(values):.2f}]" if len(values) > 1 else mean


def number_formats(device: torch.device) -> list[str]:
    """Return the number formats of matrix products to measure on a device, the fastest last.

    bfloat16 is left out, and a line says so, where training with `auto` would not take it: a CPU that emulates it would
    need minutes for each row.
    """
    import torch

    from dragoman.device import choose_precision, matmul_rates

    rates = matmul_rates(device)
    if choose_precision("auto", device, rates) == torch.bfloat16:
        return ["float32", "bfloat16"]
    measured = ", ".join(f"{rate / 1e9:,.0f} GFLOP/s in {str(dtype)[6:]}" for dtype, rate in rates.items())
    print(f"bfloat16 is left out: matrix products reach {measured}")
    return ["float32"]


# Trainings


def load_config(parser: argparse.ArgumentParser, path: Path, settings: Sequence[str] = ()) -> Config:
    """Load a config with settings from the command line. A mistake ends the program now, not after hours of work."""
    try:
        return command_line.override(config_file.load(path), settings)
    except ConfigError as error:
        parser.error(str(error))


def train_command(work: Path, name: str, config: Path, settings: Sequence[str]) -> list[str]:
    """Return the command that trains the run work/name; it must be started in ROOT."""
    return [
        sys.executable, "train.py", f"--config={config.resolve()}", f"--run.dir={work.resolve()}", f"--run.name={name}",
        *settings,
    ]  # fmt: skip


def train(work: Path, name: str, config: Path, settings: Sequence[str], jobs: int) -> Path:
    """Train a run to its end, unless that is done, and return its folder. The output goes to a log beside the folder.

    Each of `jobs` simultaneous trainings gets an equal share of the processors.
    """
    work.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // jobs))}
    with (work / f"{name}.log").open("a", encoding="utf-8") as log:
        done = subprocess.run(
            train_command(work, name, config, settings), cwd=ROOT, stdout=log, stderr=log, env=environment, check=False
        )
    if done.returncode:
        fail(f"train.py ended with {done.returncode}: see {log.name}")
    return work / name


def last_progress(run: Path) -> dict[str, Any]:
    """Read the progress of a run from its last checkpoint: the fields of `progress.Progress`."""
    newest = max((run / "checkpoints").glob("step-*"))
    state: dict[str, dict[str, Any]] = json.loads((newest / "state.json").read_text(encoding="utf-8"))
    return state["progress"]


# Texts


def write_texts(folder: Path, pairs: Mapping[str, Sequence[Any]], languages: tuple[str, str]) -> Texts:
    """Write the pairs of each split as plain text, one sentence per line, and return the sentences as written.

    Line breaks that only Unicode defines become blanks, because programs disagree about them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts: Texts = {}
    for split, some in pairs.items():
        sources, targets = ([" ".join(pair[side].splitlines()) for pair in some] for side in (0, 1))
        for language, side in zip(languages, (sources, targets), strict=True):
            (folder / f"{split}.{language}").write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
        texts[split] = sources, targets
    return texts


def write_made_up_text(prefix: Path, count: int, kinds: int) -> None:
    """Write `count` pairs of random sentences, as long as picture captions, to prefix.en and prefix.de.

    They use `kinds` different words. As in a language (Zipf's law), the word of rank r has frequency 1 / (r + 3).
    """
    random, table = np.random.default_rng(1), _words(kinds)
    with Path(f"{prefix}.en").open("wb") as source, Path(f"{prefix}.de").open("wb") as target:
        for start in range(0, count, 100_000):
            rows = min(100_000, count - start)
            lengths = np.maximum(3, random.normal(13, 4, rows).round())
            others = np.maximum(3, (lengths * random.normal(0.97, 0.12, rows)).round())
            for file, each in ((source, lengths), (target, others)):
                ends = each.cumsum().astype(int)
                # The inverse of the distribution function maps a number between 0 and 1 to a rank.
                ranks = 3 * (kinds / 3 + 1) ** random.random(ends[-1]) - 3
                text = table[ranks.astype(int)]
                text[ends - 1, 8] = ord("\n")
                file.write(text[text > 0].tobytes())


def _words(kinds: int) -> np.ndarray:
    """Make words of two to eight letters, frequent ones short: (kinds, 9) bytes, padded with zeros, a blank last."""
    syllables = np.array([[c, v] for c in b"bcdfglmnprstvz" for v in b"aeiou"], np.uint8)
    found = np.zeros((kinds, 9), np.uint8)
    found[:, 8] = ord(" ")
    rest = np.arange(kinds)
    for place in range(4):
        more = rest >= 0
        found[more, 2 * place : 2 * place + 2] = syllables[rest[more] % len(syllables)]
        rest = rest // len(syllables) - 1
    return found


# Contenders that take turns, so that a busy minute of the machine slows all of them alike


def take_turns(
    commands: Mapping[Any, Sequence[str]], rounds: int
) -> Iterator[tuple[Any, dict[str, Any], list[dict[str, Any]]]]:
    """Run each command as a process that calls `serve_turns`, and give all of them a turn in each round.

    Yields the name of each command, its facts and the results of its turns, after its last turn. Ends the program if a
    process dies.
    """
    processes: dict[Any, subprocess.Popen[str]] = {}
    found: dict[Any, list[dict[str, Any]]] = {}
    try:
        for name, command in commands.items():
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            processes[name] = process
            found[name] = [_read(name, process)]
        for turn in range(rounds):
            for name, process in processes.items():
                assert process.stdin
                with suppress(BrokenPipeError):  # it has died: `_read` reports how
                    process.stdin.write("go\n")
                    process.stdin.flush()
                found[name].append(_read(name, process))
                if turn == rounds - 1:
                    yield name, found[name][0], found[name][1:]
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


def _read(name: Any, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Read one line of JSON from a process. Ends the program if the process has died."""
    assert process.stdout
    line = process.stdout.readline()
    if line:
        return json.loads(line)
    code = process.wait()
    if code == -signal.SIGKILL:
        fail(f"{name} was killed, probably because memory ran out: choose fewer or smaller contenders.")
    fail(f"{name} ended with exit code {code}; its message is above.")


def serve_turns(facts: Mapping[str, Any], turn: Callable[[], Mapping[str, Any]]) -> None:
    """Print the facts as JSON, then the result of `turn` for each line on standard input."""
    release_memory()
    print(json.dumps(facts))
    for _ in sys.stdin:
        result = turn()
        release_memory()
        print(json.dumps(result))


def release_memory() -> None:
    """Return freed memory to the system, which `tune_device` keeps in the process for the next update.

    A process that waits for its turn then holds its model and optimizer only: for the base shape 1.2 GB instead of 5.
    """
    with suppress(OSError, AttributeError):  # only glibc has malloc_trim
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def tokens_per_second(step: Callable[[], int], seconds: float, finish: Callable[[], object] = lambda: None) -> float:
    """Call `step` for this many seconds, then `finish`, which waits for the device; return the speed.

    `step` returns how many target tokens it learned from.
    """
    step()  # untimed: it gets back the memory that `release_memory` gave away
    tokens, started = 0, time.perf_counter()
    while tokens == 0 or time.perf_counter() - started < seconds:
        tokens += step()
    finish()
    return tokens / (time.perf_counter() - started)
