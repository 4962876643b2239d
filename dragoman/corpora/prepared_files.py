"""Files of a preparation: they grow shard by shard, survive a kill, and are read without filling memory."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from dragoman import reading
from dragoman.corpora.references import reference, references_of
from dragoman.corpora.sources import SPLITS, Source
from dragoman.corpora.splitting import PairCounts, check_splits, read_portions
from dragoman.dataset import Pair
from dragoman.serialization import json_bytes, load_json
from dragoman.settings import DataConfig
from dragoman.storage import replace_durably

SHARD = 50_000  # pairs processed at a time
HEADER = 128  # bytes before the numbers of an .npy file
BLOCK = 2**16  # numbers that are read at once
LARGE = 64 * 2**20  # bytes; larger arrays are memory-mapped
NOTE = "so-far.json"


class GrowingFiles:
    """Files that grow together, shard by shard, so that work on them can be resumed after a kill.

    Once a shard is on disk, a note with the sizes of the files and with `state` replaces the previous note. On
    resuming, bytes beyond the noted sizes belong to an incomplete shard and are truncated.

    Attributes:
        state: everything else needed to resume, as JSON values
    """

    def __init__(self, note: Path, files: Mapping[Path, bytes], state: dict[str, Any]) -> None:
        """`files` maps each path to its first bytes; `state` is the initial state."""
        self.note = note
        noted = read_note(note)
        self.state = noted["state"] if noted else state
        for number, (path, first) in enumerate(files.items()):
            if noted:
                os.truncate(path, noted["sizes"][number])
            else:
                path.unlink(missing_ok=True)
                with path.open("xb") as file:  # never through a link
                    file.write(first)
        self.files = [path.open("ab") for path in files]

    def __enter__(self) -> GrowingFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.close()

    def append(self, parts: Iterable[bytes]) -> None:
        """Add one part to each file, then note the new sizes and the state."""
        for file, part in zip(self.files, parts, strict=True):
            file.write(part)
            file.flush()
            os.fsync(file.fileno())
        replace_durably(self.note, json_bytes({"sizes": [file.tell() for file in self.files], "state": self.state}))


class CleanText:
    """The cleaned pairs of a corpus, one file per split: a pair a line, its sides separated by a tab."""

    def __init__(self, folder: Path, unit: str) -> None:
        """`unit` is what the progress bar calls a pair."""
        self.folder, self.unit = folder, unit
        noted = read_note(folder / NOTE)
        start = {
            "read": 0, "whole": False, "kept": dict.fromkeys(SPLITS, 0), "weights": [], "learnt": [],
            "counts": {split: asdict(PairCounts()) for split in SPLITS},
        }  # fmt: skip
        self.state: dict[str, Any] = noted["state"] if noted else start

    @property
    def is_complete(self) -> bool:
        """Whether the whole corpus has been read."""
        return self.state["whole"]

    @property
    def kept(self) -> dict[str, int]:
        """Number of pairs in each split."""
        return self.state["kept"]

    @property
    def counts(self) -> dict[str, PairCounts]:
        """How many pairs of each split were read and dropped."""
        return {split: PairCounts(**count) for split, count in self.state["counts"].items()}

    def path(self, split: str) -> Path:
        return self.folder / f"{split}.tsv"

    def read(self, sources: Sequence[Source], data: DataConfig) -> None:
        """Read the corpus, or resume reading it. Raises DataError, also if nothing is there to train or validate on."""
        self.folder.mkdir(exist_ok=True)
        files = {self.path(split): b"" for split in SPLITS}
        with GrowingFiles(self.folder / NOTE, files, self.state) as growing:
            self.state = state = growing.state
            with progress_bar(self.unit, done=state["read"]) as bar:
                for portion in read_portions(sources, data, skip=state["read"]):
                    for split, count in self.counts.items():
                        state["counts"][split] = asdict(count + portion.counts[split])
                        state["kept"][split] += len(portion.pairs[split])
                    state["read"] += portion.read
                    state["learnt"] = sorted({*state["learnt"], *portion.trained_directions})
                    state["weights"].append((portion.weight, len(portion.pairs["train"])))
                    growing.append(_lines(portion.pairs[split]) for split in SPLITS)
                    bar.update(portion.read)
            check_splits(self.kept, self.counts, state["learnt"], data)
            state["whole"] = True
            growing.append(b"" for _ in SPLITS)

    def weights(self, start: int, stop: int) -> np.ndarray:
        """Return how often an epoch shows each of these training pairs, float32."""
        weights, counts = zip(*self.state["weights"], strict=True)
        ends = np.cumsum(counts)
        inside = np.minimum(ends, stop) - np.maximum(ends - counts, start)
        return np.repeat(np.array(weights, np.float32), inside.clip(0))

    def training_pairs(self) -> Iterator[Pair]:
        with self.path("train").open(encoding="utf-8", newline="\n") as file:
            yield from map(_pair_of, file)

    def training_side(self, side: int) -> Iterator[str]:
        """Yield the sources (0) or the targets (1) of training, with a progress bar."""
        with progress_bar(self.unit, self.kept["train"]) as bar:
            for pair in self.training_pairs():
                yield pair[side]
                bar.update()

    def shards(self, offset: int) -> Iterator[tuple[list[Pair], int]]:
        """Yield the training pairs from a byte offset on, SHARD at a time, with the offset after each shard."""
        with self.path("train").open("rb") as file:
            file.seek(offset)
            while lines := list(islice(file, SHARD)):
                offset += sum(map(len, lines))
                yield [_pair_of(line.decode()) for line in lines], offset


def load_pairs(path: Path) -> list[Pair]:
    """Load a file of `CleanText`."""
    return [_pair_of(f"{line}\n") for line in reading.read(path, reading.TABLE).decode().split("\n")[:-1]]


def _lines(pairs: Iterable[Pair]) -> bytes:
    return "".join("\t".join((source, *references_of(target))) + "\n" for source, target in pairs).encode()


def _pair_of(line: str) -> Pair:
    source, *targets = line[:-1].split("\t")
    return source, reference(targets)


def load_array(path: Path) -> np.ndarray:
    """Load an .npy file; a large one is memory-mapped. Raises OSError and ValueError."""
    try:
        # Mapped in any case, since that compares the size in the header with the file before it takes memory.
        mapped = np.load(path, mmap_mode="r")
    except OSError:
        raise
    except Exception as error:  # the header is parsed as Python, which has many errors
        raise ValueError(f"{path.name} is not an array: {error}") from error
    # As a plain array either way: each slice of a memmap is a new memmap, which is five times slower.
    return np.asarray(mapped) if path.stat().st_size > LARGE else np.array(mapped)


def blocks(path: Path) -> Iterator[np.ndarray]:
    """Yield the numbers of an .npy file a block at a time: pages of a mapped file that were read count as memory.

    Raises OSError and ValueError.
    """
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        _, _, dtype = np.lib.format.read_array_header_1_0(file)
        while len(block := np.fromfile(file, dtype, BLOCK)):
            yield block


def write_header(path: Path, dtype: np.dtype) -> None:
    """Fill in the first HEADER bytes of an .npy file of numbers, so that it equals what `np.save` writes."""
    header = io.BytesIO()
    count = (path.stat().st_size - HEADER) // dtype.itemsize
    np.lib.format.write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    )
    assert header.tell() == HEADER
    with path.open("r+b") as file:
        file.write(header.getvalue())


def read_note(path: Path) -> Any:
    """Load a note of an unfinished preparation; None if there is no such file. Raises CheckpointError."""
    return load_json(reading.read(path, reading.TEXT, plain=True)) if path.exists() else None


def progress_bar(unit: str, total: int | None = None, done: int = 0) -> tqdm:
    """Show a progress bar, on a terminal only."""
    return tqdm(total=total, initial=done, unit=unit, unit_scale=True, dynamic_ncols=True, disable=None, leave=False)
