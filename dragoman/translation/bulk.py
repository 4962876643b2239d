"""Output of a file so large that translating it may be interrupted, or divided into shards.

    with open_lines(translator, given, options) as (has, add):
        for texts in given.blocks:
            if not has(texts):
                add(translated(texts))

Until all is translated, the output of each block of lines is a file in a folder beside it, huge.it.part. The name of
that file is a hash of the lines and of all else that decides their translation, so it is used only for the same.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from dragoman import console, reading, resources
from dragoman.serialization import json_bytes, sha256_of
from dragoman.storage import replace_durably, storing
from dragoman.translation.input import Input
from dragoman.translation.output import open_output, write
from dragoman.translation.translator import Translator


@contextmanager
def open_lines(
    translator: Translator, given: Input, options: argparse.Namespace
) -> Iterator[tuple[Callable[[Sequence[str]], bool], Callable[[str], None]]]:
    """Context manager: yields `Blocks.has` and `Blocks.add` if a file of more than two blocks goes to a file.

    Otherwise each block is written at once. Raises RunInUseError if another process writes this file, and StorageError.
    """
    path: Path | None = options.output
    if path and given.shard:
        path = shard_path(path, given.shard)
        console.warn(f"{path} gets {sum(given.sizes or []):,} lines, from line {given.first:,} on")
    if path is None or len(given.sizes or []) < 3 or options.attention or (path.exists() and not path.is_file()):
        with open_output(path) as output:
            yield lambda texts: False, partial(write, output)
        return
    from dragoman import run_lock  # slow to import

    folder = path.with_name(f"{path.name}.part")
    with storing(folder):
        folder.mkdir(exist_ok=True)
    with run_lock.lock(folder):
        blocks = Blocks(folder, _made_with(translator, options))
        yield blocks.has, blocks.add
        with open_output(path) as output:
            for block in blocks.paths:
                output.write(reading.read(block, reading.TABLE))
        shutil.rmtree(folder, ignore_errors=True)  # a leftover does no harm


def shard_path(path: Path, shard: tuple[int, int]) -> Path:
    """The name of a shard's file, huge.03-of-16.it: `cat huge.*-of-16.it` takes them in their order."""
    number, count = shard
    return path.with_name(f"{path.stem}.{number:0{len(str(count))}}-of-{count}{path.suffix}")


def _made_with(translator: Translator, options: argparse.Namespace) -> list[object]:
    """All that decides a translation, except its text."""
    terms, decoding = translator.glossary and translator.glossary.terms, asdict(translator.config.decoding)
    device = options.device.partition(":")[0]  # any GPU
    given = [vars(options)[name] for name in ("to", "source", "prefix", "json", "align", "score", "embed", "engine")]
    return [resources.version(), translator.manifests, terms, decoding, device, given]


class Blocks:
    """The output of the blocks of a file, each kept as soon as it is complete."""

    def __init__(self, folder: Path, made_with: object) -> None:
        self.folder, self.made_with = folder, sha256_of(json_bytes(made_with))
        self.paths: list[Path] = []  # of the blocks so far
        self.lines = 0  # in them
        self.is_resuming = any(folder.glob("*.block"))  # until the first block that is missing

    def has(self, texts: Sequence[str]) -> bool:
        """Whether the output of the next block, of these lines, is there. If not, the caller adds it."""
        self.paths.append(self.folder / f"{sha256_of(json_bytes([self.made_with, texts]))}.block")
        is_there = self.paths[-1].exists()
        if self.is_resuming and not is_there:
            self.is_resuming = False
            done = f"has the first {self.lines:,} lines: continuing behind them"
            other = "was made from another input, model or options: starting over"
            console.warn(f"{self.folder} {done if self.lines else other}")
        self.lines += len(texts)
        return is_there

    def add(self, output: str) -> None:
        """Keep the output of the block that was missing. Raises StorageError."""
        with storing(self.folder):
            replace_durably(self.paths[-1], output.encode())
