"""Clean pairs, and divide them into training, validation and test.

    for portion in read_portions(sources, config.data):
        portion.pairs["train"]                                   # a list of ("Hello.", "Ciao.")

The settings name the splits; otherwise they are a data set's own, or a share of train. Pairs without text on a side are
dropped and counted; so are units that cannot be read if data.on_bad_line is skip, with the places of the first ones.

Memory: `read_portions` holds PORTION pairs at a time, `read_split` all pairs of its split.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from itertools import chain, count, islice
from typing import NamedTuple

from dragoman.corpora.formats.units import BROKEN, Unit, Units, is_left_out, unmarked
from dragoman.corpora.readers import for_directions, read_units
from dragoman.corpora.references import of_each
from dragoman.corpora.sources import SPLITS, Languages, Source, directions_of, unit_name
from dragoman.dataset import Pair
from dragoman.errors import DataError
from dragoman.settings import DataConfig
from dragoman.text.cleaning import clean, is_text

PORTION = 10_000  # pairs read at a time: 6 MB
PLACES = 5  # of units that cannot be read, shown


def key_text(pair: Pair, data: DataConfig) -> str:
    """Return the text that decides the split of a pair: its source, or the text itself where there is no source."""
    return pair[0 if data.source_lang else 1]


def key_side(languages: Languages, data: DataConfig) -> int:
    """Return the side (0 or 1) that decides the split of pairs used in several directions.

    It is the language that occurs in most directions, so that a sentence and its translations fall into the same split
    in all of them, provided that one language is part of each.
    """
    counts = Counter(chain(*data.several))
    return languages.index(max(languages, key=lambda language: counts[language]))


def assign_split(text: str, validation_fraction: float, test_fraction: float) -> str:
    """Return the split of a pair by a hash of its key text, so that equal texts share a split in any corpus and order.

    The lowest hashes are the test set, so it does not depend on the size of the validation set.
    """
    point = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
    if point < test_fraction:
        return "test"
    return "validation" if point < test_fraction + validation_fraction else "train"


@dataclass
class PairCounts:
    """How many pairs of a split were read, and how many were dropped for which reason."""

    read: int = 0
    empty: int = 0  # no text on a side
    too_long: int = 0  # training only: more than data.max_length tokens on a side
    uneven: int = 0  # training only: one side more than data.max_ratio times as long as the other
    unreadable: int = 0  # not UTF-8, or a broken row, and data.on_bad_line is skip
    left_out: int = 0  # not a pair, such as a fuzzy message
    places: list[str] = field(default_factory=list)  # of the first PLACES that cannot be read, with the reasons

    @property
    def dropped(self) -> int:
        return self.empty + self.too_long + self.uneven + self.unreadable + self.left_out

    @property
    def kept(self) -> int:
        return self.read - self.dropped

    def __add__(self, other: PairCounts) -> PairCounts:
        added = PairCounts(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))
        return replace(added, places=added.places[:PLACES])


@dataclass(frozen=True)
class Portion:
    """Cleaned consecutive pairs of one source, by split, and the counts of those dropped."""

    number: int  # from 0
    weight: float  # how often an epoch shows each training pair
    directions: list[str]  # the directions that learn from them, if there are several
    pairs: dict[str, list[Pair]]
    counts: dict[str, PairCounts]

    @property
    def trained_directions(self) -> set[str]:
        """The directions that have a training pair here."""
        return set(self.directions if self.pairs["train"] else ())


class Part(NamedTuple):
    """The raw pairs of one source in one split."""

    units: Units
    name: str  # of the source, for messages
    unit: str  # what positions count
    weight: float


def read_portions(
    sources: Sequence[Source], data: DataConfig, wanted: Callable[[int], bool] = lambda number: True
) -> Iterator[Portion]:
    """Yield the cleaned pairs of each split, from PORTION raw pairs at a time.

    A portion comes from one source and depends on nothing but its own pairs. `wanted` is called with the number of each
    one in turn; those that are not wanted are read but neither cleaned nor yielded.
    """
    given = _given_parts(sources, data)
    numbers = count()
    for (read_from, languages), parts in given.items():
        fractions = [0.0 if (split, languages) in given else getattr(data, f"{split}_fraction") for split in SPLITS[1:]]
        for part in parts:
            while some := list(islice(part.units, PORTION)):
                if wanted(number := next(numbers)):
                    yield _portion(number, some, part, read_from, languages, fractions, data)


def _portion(
    number: int,
    raw: Sequence[Unit],
    part: Part,
    read_from: str,
    languages: Languages | None,
    fractions: Sequence[float],
    data: DataConfig,
) -> Portion:
    directions = [str(direction) for direction in directions_of(languages, data)] if languages else []
    side = key_side(languages, data) if languages else None
    pairs: dict[str, list[Pair]] = {split: [] for split in SPLITS}
    counts = {split: PairCounts() for split in SPLITS}
    cleaned = partial(clean, data=data)
    for position, source, target in raw:
        if not (is_text(source) and is_text(target)):
            counts[read_from] += _dropped(f"{part.name}, {part.unit} {position}", source, target)
            continue
        pair = clean(source, data), clean(target, data) if read_from == "train" else of_each(target, cleaned)
        key = key_text(pair, data) if side is None else pair[side]
        split = assign_split(key, *fractions) if read_from == "train" else read_from
        uses = for_directions(pair, languages, data)
        counts[split].read += len(uses)
        if pair[1] and (pair[0] or not data.source_lang):
            pairs[split] += uses
        else:
            counts[split].empty += len(uses)
    return Portion(number, part.weight, directions, pairs, counts)


def _dropped(place: str, source: str, target: str) -> PairCounts:
    """Count a unit without two texts."""
    if is_left_out(source):
        return PairCounts(read=1, left_out=1)
    why = unmarked(target) if source.startswith(BROKEN) and target.startswith(BROKEN) else f"{place}: not UTF-8."
    return PairCounts(read=1, unreadable=1, places=[why])


def check_splits(counts: Mapping[str, PairCounts], trained: Collection[str], data: DataConfig) -> None:
    """Raise DataError unless there are pairs to train and to validate on, and to train each of the directions on.

    `trained` are the directions that have training pairs.
    """
    for direction in data.several:
        if str(direction) not in trained:
            raise DataError(f"there is no pair for {direction} in data.train ({data.train}).")
    unit, read = unit_name(data), sum(count.read for count in counts.values())
    if read and read == sum(count.unreadable for count in counts.values()):
        raise DataError(f"none of the {read:,} {unit}s can be read: set data.on_bad_line to error, which says why.")
    for split in SPLITS[:2]:
        if not counts[split].kept:
            raise nothing_for(split, read, data)


def nothing_for(split: str, read: int, data: DataConfig) -> DataError:
    """Return the error for a split that has no pairs, of all that were read."""
    unit = unit_name(data)
    larger = "" if data.validation else "a larger data.validation_fraction, or "
    remedy = {
        "train": "a smaller data.validation_fraction and data.test_fraction",
        "validation": f"{larger}{unit}s of your own as data.validation",
    }[split]
    return DataError(f"there is no {unit} for {split} among {read:,} read: use more {unit}s, or {remedy}.")


def read_split(split: str, sources: Sequence[Source], data: DataConfig) -> list[Pair]:
    """Read the cleaned pairs of one split into memory. Raises DataError."""
    return [pair for portion in read_portions(sources, data) for pair in portion.pairs[split]]


def given_splits(
    sources: Sequence[Source], data: DataConfig
) -> dict[tuple[str, Languages | None], list[tuple[Iterator[Pair], float]]]:
    """Return iterators over the raw pairs, with their weights, for each split and each pair of languages."""
    return {
        key: [((unit[1:] for unit in part.units), part.weight) for part in parts]
        for key, parts in _given_parts(sources, data).items()
    }


def _given_parts(sources: Sequence[Source], data: DataConfig) -> dict[tuple[str, Languages | None], list[Part]]:
    """Return the units of each split and each pair of languages."""
    given: dict[tuple[str, Languages | None], list[Part]] = {}
    used = set()
    for source in sources:  # train first: a split that a setting names replaces the one that came with train
        splits = read_units(source, data)
        named = source.split != "train"
        for split in [split for split in ([source.split] if named else SPLITS) if split in splits]:
            units = splits[split].units if source.languages is None else _unless_empty(splits[split].units)
            if units is None:
                continue
            used.add((source.split, source.number))
            key = split, source.languages
            part = Part(units, source.name, splits[split].unit, 1.0 if named else source.weight)
            given[key] = [part] if named else [*given.get(key, []), part]
    for source in sources:
        if (source.split, source.number) not in used:
            raise DataError(f"{source} has no pairs in the languages of data.directions ({data.directions}).")
    return {key: given[key] for key in sorted(given, key=lambda key: SPLITS.index(key[0]))}


def _unless_empty(raw: Units) -> Units | None:
    """Return the iterator, or None if it yields nothing. Reads the first pair to find out."""
    for first in raw:
        return chain([first], raw)
    return None
