"""What one sentence on the command line costs: how long it takes beside `import torch`, and where the time goes.

    python benchmarks/startup.py --run runs/phrasebook

Whole programs are run in turns, as a user runs them, and timed from outside by when they answer and when they end:

    python -c pass                            the interpreter alone
    python -c "import torch"                  what no program that uses torch can do without
    translate.py --run (an empty folder)      imports everything and reads nothing, which is said and is its answer
    translate.py --run RUN ""                 reads the checkpoint and searches nothing
    translate.py --run RUN SENTENCE           the thing itself

Each step is the time between the answers of two of them. The last one is compared with `import torch` and the same
search in a process that has been at it for a while. The first turn fills the system's caches and does not count. On a
machine with other work compare the processor's seconds.
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

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # or this file would stand for the module of its name
os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # as in translate.py
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, Python compiles the program anew each time

from dragoman.device import choose_device, describe_device, tune_device
from dragoman.translation.translator import Translator

PASS, TORCH, IMPORTS, EMPTY, WHOLE, WARM = (
    "python -c pass",
    'python -c "import torch"',
    "translate.py, no checkpoint",
    "translate.py, no sentence",
    "translate.py",
    "the search when warm",
)


def run(words: list[str]) -> tuple[float, float, float]:
    """Run Python: seconds until the first line of its answer or until its end, until its end, and of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        answered = time.perf_counter()
        process.stdout.read()
        process.wait()
    ended = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return answered - begun, ended - begun, used


def warm(translator: Translator, sentence: str) -> tuple[float, float, float]:
    """Translate here, once to come back to it and once for the clock; seconds as those of `run`."""
    translator.translate([sentence])
    begun, used = time.perf_counter(), time.process_time()
    translator.translate([sentence])
    taken = time.perf_counter() - begun
    return taken, taken, time.process_time() - used


def main() -> None:
    """Print two tables and a ratio."""
    parser = argparse.ArgumentParser(description="Time translate.py from its start to its end, for one sentence.")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="folder of a run")
    parser.add_argument("--sentence", default="Where is the station?")
    parser.add_argument("--turns", type=int, default=10, metavar="N", help="how often (default: 10)")
    options = parser.parse_args()

    device = choose_device("auto")
    tune_device(device)
    translator = Translator(options.run)
    print(f"{describe_device(device, translator.dtype)}\n{options.sentence!r}, {options.run}, {options.turns} turns\n")

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
    print("\nof translate.py, medians")
    for name, taken in steps.items():
        print(f"{name:28} {taken:6.3f}")

    ratios = [each[WHOLE] / (each[TORCH] + each[WARM]) for each in (medians, least, processor)]
    print("\ntranslate.py / (import torch + the warm search): {:.2f}, {:.2f}, {:.2f}".format(*ratios))


if __name__ == "__main__":
    main()
