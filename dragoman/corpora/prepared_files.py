"""Files of a preparation: they are written in shards, survive a kill, and are read without filling memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from dragoman import reading
from dragoman.corpora import splitting
from dragoman.corpora.crew import Share
from dragoman.corpora.formats.files import sha256_of_file
from dragoman.corpora.references import reference, references_of
from dragoman.corpora.sources import SPLITS, Source
from dragoman.corpora.splitting import PairCounts, Portion, check_splits, read_portions
from dragoman.dataset import Pair
from dragoman.errors import DataError
from dragoman.serialization import json_bytes, load_json
from dragoman.settings import DataConfig
from dragoman.storage import replace_durably, sync

LARGE = 64 * 2**20  # bytes; larger arrays are memory-mapped
COMPLETE = "complete"  # empty file in the folder of a corpus that has been read to its end


class CleanedCorpus:
    """The cleaned pairs of a corpus, in shards, so that several processes can read it, and resume after a kill.

    Each portion that is read becomes a shard: a file per split, with a pair a line and a tab between its sides, and
    then a note with its counts. A shard without a note is incomplete and is written again.

    Attributes:
        notes: of the shards, once all are complete
    """

    def __init__(self, folder: Path, unit: str) -> None:
        """`unit` is what the progress bar calls a pair."""
        self.folder, self.unit = folder, unit
        self.notes: list[dict[str, Any]] = []
        if (folder / COMPLETE).exists():
            self._read_notes(len([*folder.glob("[0-9]*.json")]))

    @property
    def counts(self) -> dict[str, PairCounts]:
        """How many pairs of each split were read and dropped."""
        counts_of = [note["counts"] for note in self.notes]
        return {split: sum((PairCounts(**each[split]) for each in counts_of), PairCounts()) for split in SPLITS}

    def _read_notes(self, count: int) -> None:
        self.notes = [read_note(self._note(number)) for number in range(count)]

    def read_share(self, share: Share, sources: Sequence[Source], data: DataConfig) -> int:
        """Read the shards of a share that are missing. Returns how many shards the corpus has. Raises DataError."""
        count = 0

        def is_missing(number: int) -> bool:
            nonlocal count
            count = number + 1
            bar.update(splitting.PORTION)
            return number in share and not self._note(number).exists()

        self.folder.mkdir(exist_ok=True)
        with progress_bar(self.unit, shown=share.is_first) as bar:
            for portion in read_portions(sources, data, is_missing):
                self._add(portion)
        return count

    def complete(self, count: int, sources: Sequence[Source], data: DataConfig) -> None:
        """Check that all is there, and that the files are the same as before. Raises DataError."""
        self._read_notes(count)
        for path, sha256 in [item for source in sources for item in source.hashes.items()]:
            if sha256_of_file(path) != sha256:
                raise DataError(
                    f"{path} was changed or replaced while it was being read: run the same command again when nothing "
                    "writes to it."
                )
        trained = {direction for note in self.notes for direction in note["trained_directions"]}
        check_splits(self.counts, trained, data)
        replace_durably(self.folder / COMPLETE, b"")

    def _add(self, portion: Portion) -> None:
        for split, pairs in portion.pairs.items():
            replace_durably(self._path(portion.number, split), _lines(pairs))
        note = {
            "weight": portion.weight,
            "trained_directions": sorted(portion.trained_directions),
            "counts": {split: asdict(count) for split, count in portion.counts.items()},
        }
        replace_durably(self._note(portion.number), json_bytes(note))

    def weight(self, number: int) -> float:
        """How often an epoch shows each training pair of a shard."""
        return read_note(self._note(number))["weight"]

    def _note(self, number: int) -> Path:
        return self.folder / f"{number:06}.json"

    def _path(self, number: int, split: str) -> Path:
        return self.folder / f"{number:06}.{split}.tsv"

    def shard(self, number: int, split: str) -> Iterator[Pair]:
        """Yield the pairs of one shard and one split."""
        with self._path(number, split).open(encoding="utf-8", newline="\n") as file:
            yield from map(_pair_of, file)

    def pairs(self, split: str) -> Iterator[Pair]:
        """Yield all pairs of a split."""
        for number in range(len(self.notes)):
            yield from self.shard(number, split)

    def training_side(self, side: int, shown: bool = True) -> Iterator[str]:
        """Yield the sources (0) or the targets (1) of training, with a progress bar."""
        with progress_bar(self.unit, self.counts["train"].kept, shown) as bar:
            for pair in self.pairs("train"):
                yield pair[side]
                bar.update()


def save_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs durably into a file that `load_pairs` loads."""
    replace_durably(path, _lines(pairs))


def load_pairs(path: Path) -> list[Pair]:
    """Load what `save_pairs` wrote."""
    return [_pair_of(f"{line}\n") for line in reading.read(path, reading.TABLE).decode().split("\n")[:-1]]


def load_head(path: Path, most: int) -> list[Pair]:
    """The first pairs of a file that `save_pairs` wrote; none if there is no such file."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            return [_pair_of(line) for line in islice(file, most)]
    except (OSError, ValueError):
        return []


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


def save_array(path: Path, dtype: np.dtype, count: int, parts: Iterable[np.ndarray]) -> None:
    """Write an .npy file of `count` numbers durably, equal to what `np.save` writes, from one part after another."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(part.tobytes())
    sync(path)


def read_note(path: Path) -> Any:
    """Load a note of an unfinished preparation; None if there is no such file. Raises CheckpointError."""
    return load_json(reading.read(path, reading.TEXT, plain=True)) if path.exists() else None


def progress_bar(unit: str, total: int | None = None, shown: bool = True) -> tqdm:
    """Show a progress bar, on a terminal only."""
    disable = None if shown else True  # None: unless it is a terminal
    return tqdm(total=total, unit=unit, unit_scale=True, dynamic_ncols=True, disable=disable, leave=False)
