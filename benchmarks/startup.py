"""Measure the time to translate one sentence from the command line, and its parts.

    python benchmarks/startup.py --run runs/phrasebook

Whole programs run in turns, as a user runs them. Each is timed from outside: when it answers and when it ends.

    python -c pass                            the interpreter alone
    python -c "import torch"                  the least that any program with torch needs
    translate.py --run (an empty folder)      imports everything and reads nothing; its answer is an error message
    translate.py --run RUN ""                 reads the checkpoint and searches nothing
    translate.py --run RUN SENTENCE           the whole program
    ... --engine torch                        the whole program with its own search

The cost of each part is the time between the answers of two programs. At the end, both whole programs are compared with
`import torch`. The first turn fills the system's caches, makes the files for CTranslate2, and does not count. On a busy
machine, compare processor seconds.
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

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise Python compiles the program at each start

PASS, TORCH, IMPORTS, EMPTY, WHOLE, OWN = (
    "python -c pass",
    'python -c "import torch"',
    "translate.py, no checkpoint",
    "translate.py, no sentence",
    "translate.py",
    "translate.py --engine torch",
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


def main() -> None:
    """Print two tables and a ratio."""
    parser = argparse.ArgumentParser(description="Time translate.py from start to end, for one sentence.")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="folder of a run")
    parser.add_argument("--sentence", default="Where is the station?")
    parser.add_argument("--turns", type=int, default=10, metavar="N", help="number of turns (default: 10)")
    options = parser.parse_args()

    print(f"{options.sentence!r}, {options.run}, {options.turns} turns\n")

    program = [str(ROOT / "translate.py"), "--run"]
    with tempfile.TemporaryDirectory() as empty:
        commands = {
            PASS: ["-c", "pass"],
            TORCH: ["-c", "import torch"],
            IMPORTS: [*program, empty, options.sentence],
            EMPTY: [*program, str(options.run), ""],
            WHOLE: [*program, str(options.run), options.sentence],
            OWN: [*program, str(options.run), "--engine", "torch", options.sentence],
        }
        turns = [{name: run(words) for name, words in commands.items()} for _ in range(options.turns + 1)][1:]

    print(f"{'seconds':28} median   processor")
    medians: dict[str, float] = {}
    processor: dict[str, float] = {}
    for name in turns[0]:
        _, ends, used = zip(*(turn[name] for turn in turns), strict=True)
        medians[name], processor[name] = statistics.median(ends), statistics.median(used)
        print(f"{name:28} {medians[name]:6.3f} {processor[name]:11.3f}")

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

    print("\ncompared with import torch: median, processor")
    for name in (WHOLE, OWN):
        print(f"{name:28} " + " ".join(f"{column[name] / column[TORCH]:6.2f}" for column in (medians, processor)))


if __name__ == "__main__":
    main()
