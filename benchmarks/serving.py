"""Measure how many texts per second `dragoman serve` translates for many clients at once, and for one.

    python benchmarks/serving.py --run runs/phrasebook
    python benchmarks/serving.py --run runs/phrasebook --dialect libretranslate

The server runs on the same computer as its clients, which take processor time from it. Each client keeps its connection
open, sends a sentence of the run's test set, waits for the answer and sends the next one. Rounds with one client and
with all clients take turns, and the ratio is that of the medians. The answers to many clients are compared with those
to one client, because they must not differ.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import cycle, islice
from pathlib import Path

import yaml
from common import ROOT, SET


@contextmanager
def serving(run: Path, settings: Sequence[str] = ()) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """Context manager: start a server for a run; yield its process, its port and the file with its messages."""
    words = [sys.executable, "-m", "dragoman", "serve", "--run", str(run.resolve()), "--port", "0", *settings]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        environment = {name: value for name, value in os.environ.items() if name not in SET}
        with log.open("wb") as messages, subprocess.Popen(words, cwd=ROOT, stderr=messages, env=environment) as process:
            try:
                while not (ready := re.search(r"http://[^ ]*:(\d+) ", log.read_text(encoding="utf-8"))):
                    if process.poll() is not None:
                        sys.exit(log.read_text(encoding="utf-8"))
                    time.sleep(0.1)
                yield process, int(ready[1]), log
            finally:
                process.kill()


def read_sources(run: Path) -> list[str]:
    """The sources of the test set of a run."""
    rows = (run / "data" / "test.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    return [row.split("\t")[0] for row in rows]


def client(port: int, texts: Sequence[str], languages: dict[str, str]) -> list[str]:
    """Translate texts, one request after another. Raises RuntimeError if the server answers with an error.

    languages: `source` and `target` for requests as LibreTranslate's clients send them; nothing for our own
    """
    found = []
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        for text in texts:
            asked = {"q": text, **languages} if languages else {"text": text}
            connection.request("POST", "/translate", json.dumps(asked), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            body = json.loads(reply.read())
            if reply.status != 200:
                raise RuntimeError(f"{reply.status}: {body}")
            found.append(body["translatedText"] if languages else body["translations"][0]["translation"])
    return found


def translate_with(port: int, count: int, texts: Sequence[str], languages: dict[str, str]) -> tuple[float, list[str]]:
    """Share the texts among `count` clients; return texts per second and the translations."""
    found: list[str] = [""] * len(texts)
    with ThreadPoolExecutor(count) as pool:
        started = time.perf_counter()
        shares = [pool.submit(client, port, texts[i::count], languages) for i in range(count)]
        for i, share in enumerate(shares):
            found[i::count] = share.result()
        return len(texts) / (time.perf_counter() - started), found


def main() -> None:
    """Print a line for each round, and the ratio."""
    parser = argparse.ArgumentParser(description="Time dragoman serve with one client and with many.")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="folder of a run")
    parser.add_argument("--clients", type=int, default=50, metavar="N", help="simultaneous clients (default: 50)")
    parser.add_argument(
        "--texts", type=int, default=500, metavar="N", help="texts in a round of all clients (default: 500)"
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds of each kind (default: 5)")
    parser.add_argument("--dialect", choices=("dragoman", "libretranslate"), default="dragoman", help="of the requests")
    options, settings = parser.parse_known_args()

    texts = list(islice(cycle(read_sources(options.run)), options.texts))
    few = texts[: max(options.texts // 5, 1)]  # one client is slower
    data = yaml.safe_load((options.run / "config.yaml").read_text(encoding="utf-8"))["data"]
    is_ours = options.dialect == "dragoman"
    languages = {} if is_ours else {"source": data["source_lang"], "target": data["target_lang"]}
    alone, together = [], []
    with serving(options.run, settings) as (_, port, _):
        for number in range(options.rounds + 1):
            one, expected = translate_with(port, 1, few, languages)
            many, found = translate_with(port, options.clients, texts, languages)
            other = sum(a != b for a, b in zip(expected, found, strict=False))
            if number:  # the first round fills caches and does not count
                alone.append(one)
                together.append(many)
                print(
                    f"texts/s: 1 client {one:7.1f}   {options.clients} clients {many:7.1f}   different answers: {other}"
                )
    one, many = statistics.median(alone), statistics.median(together)
    print(f"\nmedians: 1 client {one:.1f}, {options.clients} clients {many:.1f}: {many / one:.2f} times as many")


if __name__ == "__main__":
    main()
