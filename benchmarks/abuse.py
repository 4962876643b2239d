"""Abuse `dragoman serve` on this computer, and measure the effect on its ordinary clients.

    python benchmarks/abuse.py --run runs/phrasebook --minutes 10

Ordinary clients type like people: each keeps its connection open, sends a sentence of the run's test set, alternately
as plain text and as the web page does, and pauses. They are measured alone, and then beside clients that send nonsense,
send a byte a second, send too much, send nothing, do not read answers, and ask for as much work as allowed, or more.
These run in processes of lower priority, to imitate other computers. A request is lost if it gets no translation; a
kept connection that the server closed between two requests is opened again, as browsers do.

At the end the server gets SIGTERM while requests are under way. The exit code is 1 if requests were lost, an answer was
a 500, memory was not given back, or the server took more than ten seconds to stop.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from serving import read_sources, serving

ORDINARY = 4  # clients
PAUSE = 0.25  # seconds, at most twice that, between two requests of an ordinary client
CALM = 15.0  # seconds after the abuse until memory is measured
PAGE = {"n_best": 3, "attention": True}  # what the web page asks for
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ABUSERS = ("malformed", "slow", "huge", "idle", "unread", *4 * ["amplifying"])


def resident(process: subprocess.Popen[bytes]) -> float:
    """The memory of a process, in MB."""
    words = Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


# --- Ordinary clients ---


@dataclass
class Notes:
    """The measurements of ordinary clients."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"plain": [], "page": []})
    lost: list[str] = field(default_factory=list)


def exchange(connection: http.client.HTTPConnection, request: Mapping[str, Any]) -> int:
    """Send a request and read the answer; return its status."""
    connection.request("POST", "/translate", json.dumps(request), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    reply.read()
    return reply.status


def ordinary(port: int, texts: Sequence[str], notes: Notes, stop: Event, seed: int) -> None:
    """Send requests as an ordinary client does, until told to stop."""
    chance = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while not stop.wait(PAUSE * 2 * chance.random()):
        for kind, wishes in (("plain", {}), ("page", PAGE)):
            kept = connection.sock is not None
            started = time.perf_counter()
            try:
                request = {"text": chance.choice(texts), **wishes}
                try:
                    status = exchange(connection, request)
                except (ConnectionError, http.client.RemoteDisconnected):
                    connection.close()
                    if not kept:
                        raise
                    status = exchange(connection, request)
                if status != 200:
                    notes.lost.append(f"{kind}: {status}")
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                notes.lost.append(f"{kind}: {error!r}")
            notes.seconds[kind].append(time.perf_counter() - started)
    connection.close()


@contextmanager
def ordinary_clients(port: int, texts: Sequence[str]) -> Iterator[Notes]:
    """Context manager: run ordinary clients."""
    notes, stop = Notes(), Event()
    threads = [Thread(target=ordinary, args=(port, texts, notes, stop, seed)) for seed in range(ORDINARY)]
    for thread in threads:
        thread.start()
    try:
        yield notes
    finally:
        stop.set()
        for thread in threads:
            thread.join()


# --- Abusers: each is a process, and counts the statuses of the answers it gets ---


def head(length: int | None = None, **fields: str) -> bytes:
    """The head of a request, with additional fields."""
    lines = ["POST /translate HTTP/1.1", "Host: localhost", "Connection: close", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    lines += [] if length is None else [f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


def encoded(request: Mapping[str, Any]) -> bytes:
    """A whole request."""
    body = json.dumps(request).encode()
    return head(len(body)) + body


def send(port: int, data: bytes, seconds: float = 30.0) -> int:
    """Send bytes on a new connection and read the answer to its end; return its status, or 0 without an answer."""
    got = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        with suppress(OSError):  # the server may refuse before it has read everything
            connection.sendall(data)
        while part := connection.recv(2**20):
            got = got[:20] + part[: max(0, 20 - len(got))]
    found = re.match(rb"HTTP/1.1 (\d+)", got)
    return int(found[1]) if found else 0


def malformed(port: int, texts: Sequence[str], chance: random.Random) -> Iterator[int]:
    """Nonsense, and requests with some bytes changed."""
    while True:
        whole = bytearray(encoded({"text": chance.choice(texts), "n_best": 2, "format": "html"}))
        for _ in range(chance.randint(1, 8)):
            whole[chance.randrange(len(whole))] = chance.randrange(256)
        forged = [
            bytes(whole),
            chance.randbytes(chance.randint(1, 2000)),
            head(-5) + b"{}",
            head(10**30),
            head(5, Transfer_Encoding="chunked") + b"zz\r\n",
            b"GET / HTTP/9.9\r\n\r\n" * 9,
            encoded({"text": "a"}) * 30,
            head(30_000) + b'{"text": ' + b"[" * 29_991,
        ]
        yield send(port, chance.choice(forged), 3)
        time.sleep(0.05)


def slow(port: int, texts: Sequence[str], chance: random.Random) -> Iterator[int]:
    """Forty requests at a time, a byte a second each."""
    whole = encoded({"text": chance.choice(texts)})
    open_ones: list[tuple[socket.socket, Iterator[int]]] = []
    while True:
        with suppress(OSError):
            while len(open_ones) < 40:
                start = chance.choice((0, len(whole) - 20))
                connection = socket.create_connection(("127.0.0.1", port), timeout=5)
                connection.sendall(whole[:start])
                open_ones.append((connection, iter(whole[start:])))
        for pair in list(open_ones):
            try:
                pair[0].sendall(bytes([next(pair[1])]))
            except (OSError, StopIteration):
                pair[0].close()
                open_ones.remove(pair)
        time.sleep(1)
        yield 0


def huge(port: int, texts: Sequence[str], chance: random.Random) -> Iterator[int]:
    """Bodies that are too long, or come in too many chunks."""
    chunks = head(Transfer_Encoding="chunked") + b"1\r\na\r\n" * 300_000
    while True:
        text = chance.choice(texts)
        yield send(port, head(10**9) + text.encode() * 10_000)
        yield send(port, encoded({"text": text * 20_000}))
        yield send(port, encoded({"texts": ["a"] * 200_000}))
        yield send(port, chunks)
        time.sleep(0.5)


def idle(port: int, texts: Sequence[str], chance: random.Random) -> Iterator[int]:
    """More connections than the server keeps, without a request."""
    del texts, chance
    open_ones: list[socket.socket] = []
    while True:
        with suppress(OSError):
            open_ones.append(socket.create_connection(("127.0.0.1", port), timeout=5))
        if len(open_ones) > 700:
            open_ones.pop(0).close()
        time.sleep(0.01)
        yield 0


def unread(port: int, texts: Sequence[str], chance: random.Random) -> Iterator[int]:
    """Requests with large answers, which are not read."""
    open_ones: list[socket.socket] = []
    while True:
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port), timeout=5)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(encoded({"text": long_text(texts, chance), **PAGE}))
            open_ones.append(connection)
        if len(open_ones) > 30:
            open_ones.pop(0).close()
        time.sleep(2)
        yield 0


def amplifying(port: int, texts: Sequence[str], chance: random.Random) -> Iterator[int]:
    """One request after another with as much work as is allowed, or more."""
    while True:
        text = long_text(texts, chance)
        terms = {word: f"x{i}" for i, word in enumerate(dict.fromkeys(text.split()))}
        glossary = dict(list(terms.items())[:200])
        tags = "".join(f"<p>{chance.choice(LETTERS)}<b>b</b></p>" for _ in range(300))
        wishes = [
            {"text": "\n".join(chance.choice(LETTERS) for _ in range(2500)), "n_best": 10, "attention": True},
            {"text": "\n".join(chance.choice(LETTERS) for _ in range(2500))},
            {"text": " ".join(chance.choice(LETTERS) for _ in range(2500)), **PAGE},
            {"text": text, "n_best": 10, "beam_size": 10},
            {"text": text, **PAGE},
            {"text": text, "glossary": glossary, "n_best": 3},
            {"text": tags, "format": "html"},
            {"text": "x" * 5000, "beam_size": 10},
        ]
        yield send(port, encoded(chance.choice(wishes)), 90)


def long_text(texts: Sequence[str], chance: random.Random) -> str:
    """The longest text that a request may have."""
    return " ".join(chance.choice(texts) for _ in range(500))[:5000]


def abuse(kind: str, port: int, texts: Sequence[str], seed: int, answers: Any) -> None:
    """A process that abuses a server until it gets SIGTERM or its parent ends, then sends its counts through a pipe."""
    os.nice(19)
    stop, parent = Event(), multiprocessing.parent_process()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    counts: Counter[int] = Counter()
    for status in globals()[kind](port, texts, random.Random(seed)):
        counts[status] += 1
        if stop.is_set() or not (parent and parent.is_alive()):
            break
    with suppress(OSError):  # a parent that was killed does not read
        answers.send((kind, counts))


@contextmanager
def abusers(port: int, texts: Sequence[str], found: dict[str, Counter[int]]) -> Iterator[None]:
    """Context manager: run clients that abuse the server. Adds the statuses they got to `found`."""
    start = multiprocessing.get_context("spawn")
    receiver, sender = start.Pipe(duplex=False)
    processes = [
        start.Process(target=abuse, args=(kind, port, texts, seed, sender)) for seed, kind in enumerate(ABUSERS)
    ]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for _ in processes:
            if receiver.poll(100):
                kind, counts = receiver.recv()
                found[kind] = found.get(kind, Counter()) + counts
        for process in processes:
            process.kill()
            process.join()


# --- Phases ---


def watch(process: subprocess.Popen[bytes], seconds: float) -> float:
    """Wait, and return the peak memory during that time, in MB."""
    peak, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        peak = max(peak, resident(process))
        time.sleep(0.2)
    return peak


def stopped_under_way(process: subprocess.Popen[bytes], port: int, texts: Sequence[str]) -> tuple[float, Counter[int]]:
    """Send SIGTERM while requests are under way; return the seconds until the end, and the statuses of the answers."""
    requests = [{"text": text, **PAGE} for text in texts[:16]]
    requests += [{"text": " ".join(list(texts) * 100)[:5000], "n_best": 10} for _ in range(4)]
    connections = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in requests]
    for connection, request in zip(connections, requests, strict=True):
        connection.sendall(encoded(request))
    time.sleep(0.3)  # so that all have arrived
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)

    def status(connection: socket.socket) -> int:
        with suppress(OSError), connection:
            got = b""
            while part := connection.recv(2**20):
                got += part
            return int(got[9:12] or 0)
        return 0

    with ThreadPoolExecutor(len(connections)) as pool:
        statuses = Counter(pool.map(status, connections))
    process.wait(60)
    return time.monotonic() - started, statuses


def row(name: str, notes: Notes) -> str:
    """A line about ordinary clients."""
    cells = []
    for seconds in notes.seconds.values():
        cuts = statistics.quantiles(seconds, n=20)
        cells.append(f"{1e3 * statistics.median(seconds):8.0f} {1e3 * cuts[18]:6.0f}")
    count = sum(map(len, notes.seconds.values()))
    return f"{name:<14}{'   '.join(cells)}   {count:6} requests, {len(notes.lost)} lost"


def main() -> None:
    """Print the measurements of ordinary clients, the answers to each kind of abuse, memory, and the time to stop."""
    parser = argparse.ArgumentParser(description="Abuse dragoman serve, and measure what ordinary clients notice.")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="folder of a run")
    parser.add_argument("--minutes", type=float, default=10, metavar="N", help="minutes of abuse (default: 10)")
    options = parser.parse_args()
    seconds = 60 * options.minutes
    texts = read_sources(options.run)
    found: dict[str, Counter[int]] = {}
    with serving(options.run) as (process, port, log):
        warm = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        exchange(warm, {"text": texts[0], **PAGE})  # loads the model itself, which attention needs
        warm.close()
        with ordinary_clients(port, texts) as alone:
            watch(process, min(seconds / 4, 60))
        before = resident(process)
        with abusers(port, texts, found):
            watch(process, 2)  # processes start
            with ordinary_clients(port, texts) as beside:
                peak = watch(process, seconds)
        time.sleep(CALM)
        after = resident(process)
        with abusers(port, texts, {}):
            time.sleep(5)
            took, statuses = stopped_under_way(process, port, texts)
        messages = log.read_text(encoding="utf-8", errors="replace")

    print("latency in ms    plain: p50    p95     page: p50    p95")
    print(row("alone", alone))
    print(row("under abuse", beside))
    for kind, counts in found.items():
        print(f"{kind:<14}" + ", ".join(f"{n} x {status or 'no answer'}" for status, n in sorted(counts.items())))
    print(f"memory        {before:.0f} MB before, {peak:.0f} MB at most, {after:.0f} MB after")
    print(f"SIGTERM       {took:.1f} s, answers: {dict(statuses)}")
    print("\n".join(sorted(set(alone.lost + beside.lost))[:20]))
    errors = messages.count("Traceback") + sum(counts[500] for counts in found.values())
    if errors:
        print(f"{errors} errors of the server:\n{messages[-3000:]}")
    good = not (alone.lost or beside.lost or errors or statuses[0] or statuses[500])
    sys.exit(0 if good and took < 10 and after < 1.2 * before else 1)


if __name__ == "__main__":
    main()
