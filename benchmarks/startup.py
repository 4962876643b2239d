"""Measure what translating one sentence from the command line costs, and where the time goes.

    python benchmarks/startup.py --run runs/phrasebook

Whole programs run in turns, as a user runs them. Each is timed from outside: when it answers and when it ends.

    python -c pass                            the interpreter alone
    python -c "import torch"                  the least that any program with torch needs
    translate.py --run (an empty folder)      imports everything and reads nothing; its answer is an error message
    translate.py --run RUN ""                 reads the checkpoint and searches nothing
    translate.py --run RUN SENTENCE           the whole program

The cost of each part is the time between the answers of two programs. At the end, the whole program is compared with
`import torch` plus the same search in a process that is already warm. The first turn fills the system's caches and does
not count. On a busy machine, compare processor seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT

from dragoman.device import choose_device, describe_device, tune_device
from dragoman.translation.translator import Translator

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise Python compiles the program at each start

PASS, TORCH, IMPORTS, EMPTY, WHOLE, WARM = (
    "python -c pass",
    'python -c "import torch"',
    "translate.py, no checkpoint",
    "translate.py, no sentence",
    "translate.py",
    "the search when warm",
)


def run(words: list[str]) -> tuple[float, float, float]:
    """Run Python; return the seconds until its first line of output, until its end, and of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        answered = time.perf_counter()
        process.stdout.read()
        process.wait()
    ended = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return answered - started, ended - started, used


def warm(translator: Translator, sentence: str) -> tuple[float, float, float]:
    """Translate in this process, once to warm up and once timed; return seconds like `run`."""
    translator.translate([sentence])
    started, used = time.perf_counter(), time.process_time()
    translator.translate([sentence])
    taken = time.perf_counter() - started
    return taken, taken, time.process_time() - used


def main() -> None:
    """Print two tables and a ratio."""
    parser = argparse.ArgumentParser(description="Time translate.py from start to end, for one sentence.")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="folder of a run")
    parser.add_argument("--sentence", default="Where is the station?")
    parser.add_argument("--turns", type=int, default=10, metavar="N", help="number of turns (default: 10)")
    options = parser.parse_args()

    device = choose_device("auto")
    tune_device(device)
    translator = Translator(options.run)
    print(describe_device(device, translator.trained.dtype))
    print(f"{options.sentence!r}, {options.run}, {options.turns} turns\n")

    program = [str(ROOT / "translate.py"), "--run"]
    with tempfile.TemporaryDirectory() as empty:
        commands = {
            PASS: ["-c", "pass"],
            TORCH: ["-c", "import torch"],
            IMPORTS: [*program, empty, options.sentence],
            EMPTY: [*program, str(options.run), ""],
            WHOLE: [*program, str(options.run), options.sentence],
        }
        turns = [
            {name: run(words) for name, words in commands.items()} | {WARM: warm(translator, options.sentence)}
            for _ in range(options.turns + 1)
        ][1:]

    print(f"{'seconds':28} median   least   processor")
    medians: dict[str, float] = {}
    least: dict[str, float] = {}
    processor: dict[str, float] = {}
    for name in turns[0]:
        _, ends, used = zip(*(turn[name] for turn in turns), strict=True)
        medians[name], least[name], processor[name] = statistics.median(ends), min(ends), statistics.median(used)
        print(f"{name:28} {medians[name]:6.3f} {least[name]:7.3f} {processor[name]:11.3f}")

    answers = {name: statistics.median(turn[name][0] for turn in turns) for name in turns[0]}
    steps = {
        "the interpreter": medians[PASS],
        "imports": answers[IMPORTS] - medians[PASS],
        "reading the checkpoint": answers[EMPTY] - answers[IMPORTS],
        "the search": answers[WHOLE] - answers[EMPTY],
        "exit": statistics.median(turn[WHOLE][1] - turn[WHOLE][0] for turn in turns),
    }
    print("\nparts of translate.py, medians")
    for name, taken in steps.items():
        print(f"{name:28} {taken:6.3f}")

    ratios = [each[WHOLE] / (each[TORCH] + each[WARM]) for each in (medians, least, processor)]
    print("\ntranslate.py / (import torch + the warm search): {:.2f}, {:.2f}, {:.2f}".format(*ratios))


if __name__ == "__main__":
    main()
