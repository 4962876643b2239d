"""Measure what more ranks gain: target tokens per second on one rank, on two, ...

    python benchmarks/ranks.py
    python benchmarks/ranks.py --counts 1 2 4 8 --steps 200 --training.device cuda --training.batch_tokens 32768

Every count trains the same model on the same batches from the beginning. The counts take turns, so a busy minute of the
machine slows all of them alike. On a CPU each rank has one thread. Settings of train.py may follow.

The columns: tokens per second, the median over the turns; the speed relative to the first count; and that as a share of
perfect scaling.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import ROOT, fail
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

WARM_UP = 2  # points at the start of the curve that do not count


def speed(count: int, steps: int, folder: Path, settings: list[str]) -> float:
    """Train on `count` ranks in a new folder and return the tokens per second: the median of the curve."""
    every = max(1, steps // 20)
    given = {
        "run.dir": folder, "run.name": f"ranks-{count}", "training.max_steps": steps, "training.log_every": every,
        "training.validate_every": steps, "training.save_every": steps,
        "decoding.max_length": 5, "training.ranks": count,
    }  # fmt: skip
    command = [sys.executable, str(ROOT / "train.py"), "--config", str(ROOT / "config.yaml")]
    command += [*(f"--{key}={value}" for key, value in given.items()), *settings]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        fail(f"{count} ranks: {done.stderr[-2000:]}")
    events = EventAccumulator(str(folder / f"ranks-{count}")).Reload()
    points = [event.value for event in events.Scalars("speed/tokens_per_second")]
    return statistics.median(points[WARM_UP:] or points)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2], help="numbers of ranks")
    parser.add_argument("--steps", type=int, default=100, help="updates in a turn")
    parser.add_argument("--turns", type=int, default=3)
    options, settings = parser.parse_known_args()
    found: dict[int, list[float]] = {count: [] for count in options.counts}
    for turn in range(options.turns):
        for count in options.counts:
            with tempfile.TemporaryDirectory() as folder:
                found[count].append(speed(count, options.steps, Path(folder), settings))
            print(f"turn {turn + 1}, {count} ranks: {found[count][-1]:,.0f} tokens/s", file=sys.stderr)
    first, *_ = options.counts
    base = statistics.median(found[first])
    print(f"{'ranks':>6} {'tokens/s':>10} {'times':>6} {'share':>6}")
    for count, speeds in found.items():
        times = statistics.median(speeds) / base
        print(f"{count:>6} {statistics.median(speeds):>10,.0f} {times:>6.2f} {times * first / count:>6.0%}")


if __name__ == "__main__":
    main()
