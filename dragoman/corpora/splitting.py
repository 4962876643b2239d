"""Which pairs are for training, validation and test."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import chain, islice
from pathlib import Path

from dragoman.corpora.cleaning import clean
from dragoman.corpora.readers import for_directions, read_splits
from dragoman.corpora.sources import SPLITS, Source, directions_of, is_text, unit_name, unreadable
from dragoman.dataset import Pair
from dragoman.errors import DataError
from dragoman.settings import DataConfig

PORTION = 50_000  # pairs that are read at a time: 30 MB


def hashes(sources: Sequence[Source]) -> dict[str, str]:
    """The sha256 of every file, by its name as seen from where the source lies; a hub's data.revision pins its own."""
    found = {}
    for source in sources:
        setting = f"data.{source.split}" + (f" ({source.number})" if source.number > 1 else "")
        for path in source.files:
            name = os.path.relpath(path, Path(source.path).parent)
            try:
                with path.open("rb") as file:
                    found[f"{setting}: {name}"] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise unreadable(path, error) from error
    return found


# --- Splitting ----------------------------------------------------------------------------------------------------


def known_by(pair: Pair, data: DataConfig) -> str:
    """What makes two pairs the same sentence: the source, or the text where there is no source."""
    return pair[0 if data.source_lang else 1]


def side_known_by(languages: tuple[str, str], data: DataConfig) -> int:
    """Likewise, the side (0 or 1) of pairs that serve several directions: that of the language that most of them have.

    So a sentence and its translation are on the same side of a split in all of them, if one language is in each.
    """
    often = Counter(chain(*data.several))
    return languages.index(max(languages, key=lambda language: often[language]))


def assign(sentence: str, validation_fraction: float, test_fraction: float) -> str:
    """The split of a pair, by a hash of what it is `known_by`: equals fall together, in any order, in any corpus.

    The test set is what hashes lowest, so that it stays the same whatever becomes of the validation set.
    """
    point = int.from_bytes(hashlib.blake2b(sentence.encode(), digest_size=8).digest()) / 2**64
    if point < test_fraction:
        return "test"
    return "validation" if point < test_fraction + validation_fraction else "train"


@dataclass
class Count:
    """What became of the pairs of a split."""

    read: int = 0
    empty: int = 0  # dropped: no text on a side
    too_long: int = 0  # dropped: more than data.max_length tokens on a side; in training alone
    uneven: int = 0  # dropped: one side more than data.max_ratio times as long as the other; in training alone
    unreadable: int = 0  # dropped: a side is not UTF-8, and data.on_bad_line is skip

    @property
    def dropped(self) -> int:
        return self.empty + self.too_long + self.uneven + self.unreadable

    def __add__(self, other: Count) -> Count:
        return Count(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Portion:
    """Cleaned pairs that stand one behind the other in a corpus, by split, and what became of the others."""

    read: int  # pairs of the corpus that all this was made of
    weight: float  # how often each training pair is seen in an epoch
    directions: list[str]  # that learn from them, if there are several
    pairs: dict[str, list[Pair]]
    counts: dict[str, Count]

    @property
    def learnt(self) -> set[str]:
        """The directions for which there is a training pair here."""
        return set(self.directions if self.pairs["train"] else ())


def read_portions(sources: Sequence[Source], data: DataConfig, skip: int = 0) -> Iterator[Portion]:
    """The cleaned pairs of each split, PORTION pairs of the corpus at a time.

    The splits are named by the settings, else the data sets' own, else a share of train. A portion is of one source and
    depends on nothing but its own pairs: whoever has had `skip` pairs goes on behind them.
    """
    for (read_from, languages), parts in (given := given_splits(sources, data)).items():
        fractions = [0.0 if (split, languages) in given else getattr(data, f"{split}_fraction") for split in SPLITS[1:]]
        for raw, weight in parts:
            for _ in islice(raw, skip):
                skip -= 1
            while some := list(islice(raw, PORTION)):
                yield _portion(some, read_from, languages, weight, fractions, data)


def _portion(
    raw: Sequence[Pair],
    read_from: str,
    languages: tuple[str, str] | None,
    weight: float,
    fractions: Sequence[float],
    data: DataConfig,
) -> Portion:
    directions = [str(direction) for direction in directions_of(languages, data)] if languages else []
    side = side_known_by(languages, data) if languages else None
    found = Portion(len(raw), weight, directions, {split: [] for split in SPLITS}, {split: Count() for split in SPLITS})
    for source, target in raw:
        if not (is_text(source) and is_text(target)):
            found.counts[read_from].read += 1
            found.counts[read_from].unreadable += 1
            continue
        pair = clean(source, data), clean(target, data)
        sentence = known_by(pair, data) if side is None else pair[side]
        split = assign(sentence, *fractions) if read_from == "train" else read_from
        several = for_directions(pair, languages, data)
        found.counts[split].read += len(several)
        if pair[1] and (pair[0] or not data.source_lang):
            found.pairs[split] += several
        else:
            found.counts[split].empty += len(several)
    return found


def read_corpus(
    sources: Sequence[Source], data: DataConfig
) -> tuple[dict[str, list[Pair]], dict[str, Count], list[float]]:
    """All that `read_portions` gives: the pairs, what became of the others, and the weight of each training pair."""
    pairs: dict[str, list[Pair]] = {split: [] for split in SPLITS}
    counts = {split: Count() for split in SPLITS}
    weights: list[float] = []
    learnt: set[str] = set()
    for portion in read_portions(sources, data):
        weights += [portion.weight] * len(portion.pairs["train"])
        learnt |= portion.learnt
        for split in SPLITS:
            pairs[split] += portion.pairs[split]
            counts[split] += portion.counts[split]
    check_splits({split: len(pairs[split]) for split in SPLITS}, counts, learnt, data)
    return pairs, counts, weights


def check_splits(
    kept: Mapping[str, int], counts: Mapping[str, Count], learnt: Collection[str], data: DataConfig
) -> None:
    """DataError if there is nothing to train on, or to validate on, among so many pairs that were kept.

    learnt names the directions of which there are training pairs.
    """
    for direction in data.several:
        if str(direction) not in learnt:
            raise DataError(f"there is no pair for {direction} among data.train ({data.train}).")
    for split, remedy in (
        ("train", "smaller data.validation_fraction and data.test_fraction"),
        ("validation", f"a larger data.validation_fraction, or {unit_name(data)}s that data.validation names"),
    ):
        if not kept[split]:
            raise DataError(
                f"there is no {unit_name(data)} for {split} among {sum(count.read for count in counts.values()):,} that "
                f"were read: more {unit_name(data)}s are needed, or {remedy}."
            )


def read_split(split: str, sources: Sequence[Source], data: DataConfig) -> list[Pair]:
    """The cleaned pairs of one split that sources have, but for those that lack a side. Raises DataError."""
    found = []
    for (name, languages), parts in given_splits(sources, data).items():
        for raw, _ in parts if name == split else ():
            pairs = (tuple(clean(text, data) for text in pair) for pair in raw)
            found += [
                each
                for source, target in pairs
                if source and target
                for each in for_directions((source, target), languages, data)
            ]
    return found


def given_splits(
    sources: Sequence[Source], data: DataConfig
) -> dict[tuple[str, tuple[str, str] | None], list[tuple[Iterator[Pair], float]]]:
    """What is to be read for each split, and each pair of languages, with its weight."""
    found: dict[tuple[str, tuple[str, str] | None], list[tuple[Iterator[Pair], float]]] = {}
    fed = set()
    for source in sources:  # train first: what is named for a split wins over what came with train
        splits = read_splits(source, data)
        own = source.split != "train"
        for split in [split for split in ([source.split] if own else SPLITS) if split in splits]:
            raw = splits[split] if source.languages is None else _begun(splits[split])
            if raw is None:
                continue
            fed.add((source.split, source.number))
            key = split, source.languages
            found[key] = [(raw, 1.0)] if own else [*found.get(key, []), (raw, source.weight)]
    for source in sources:
        if (source.split, source.number) not in fed:
            raise DataError(f"{source} has no pairs in the languages of data.directions ({data.directions}).")
    return {key: found[key] for key in sorted(found, key=lambda key: SPLITS.index(key[0]))}


def _begun(raw: Iterator[Pair]) -> Iterator[Pair] | None:
    """The pairs, of which the first one is read by now; None if there is none in these languages."""
    for first in raw:
        return chain([first], raw)
    return None
