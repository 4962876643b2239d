"""Measure the time to translate one sentence: whole programs run in turns, and are timed from outside.

    python benchmarks/startup.py --run runs/phrasebook

    python -c "import torch"                  the least that any program with torch needs
    translate.py --run RUN SENTENCE           the whole program
    ... --engine torch                        the whole program with its own search

The first turn fills the system's caches and makes the files for CTranslate2. It does not count. On a busy machine,
compare processor seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import ROOT

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise Python compiles the program at each start

TORCH, WHOLE, OWN = 'python -c "import torch"', "translate.py", "translate.py --engine torch"


def run(words: list[str]) -> tuple[float, float]:
    """Run Python; return the seconds until its end, and of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    ended = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended - started, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print a table and the ratios."""
    parser = argparse.ArgumentParser(description="Time translate.py from start to end, for one sentence.")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="folder of a run")
    parser.add_argument("--sentence", default="Where is the station?")
    parser.add_argument("--turns", type=int, default=10, metavar="N", help="number of turns (default: 10)")
    options = parser.parse_args()
    program = [str(ROOT / "translate.py"), "--run", str(options.run)]
    commands = {
        TORCH: ["-c", "import torch"],
        WHOLE: [*program, options.sentence],
        OWN: [*program, "--engine", "torch", options.sentence],
    }
    turns = [{name: run(words) for name, words in commands.items()} for _ in range(options.turns + 1)][1:]

    print(f"{'seconds':28} median   processor")
    medians: dict[str, float] = {}
    processor: dict[str, float] = {}
    for name in commands:
        seconds, used = zip(*(turn[name] for turn in turns), strict=True)
        medians[name], processor[name] = statistics.median(seconds), statistics.median(used)
        print(f"{name:28} {medians[name]:6.3f} {processor[name]:11.3f}")

    print("\ncompared with import torch: median, processor")
    for name in (WHOLE, OWN):
        print(f"{name:28} " + " ".join(f"{column[name] / column[TORCH]:6.2f}" for column in (medians, processor)))


if __name__ == "__main__":
    main()
