"""The corpus as the checks see it: every pair in memory, with its line number, none dropped."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dragoman import console, presets, settings
from dragoman.corpora.checks.findings import KINDS, LEVELS, Example, Finding
from dragoman.corpora.checks.letters import UNREADABLE, find_flaw
from dragoman.corpora.downloads.fetch import Record, read_record
from dragoman.corpora.formats.units import unmarked
from dragoman.corpora.readers import Split, read_units
from dragoman.corpora.report import SAMPLE
from dragoman.corpora.sources import SPLITS, find_sources, parse_mixture
from dragoman.corpora.splitting import assign, key_text, nothing_for
from dragoman.corpora.subwords import train_tokenizers
from dragoman.dataset import Pair, Tokenizer
from dragoman.errors import DataError
from dragoman.settings import Config, DataConfig
from dragoman.text.cleaning import clean

EXAMPLES = 3  # shown for each finding


@dataclass(frozen=True)
class CheckedSplit:
    """A split as it was read: N pairs, 2 sides."""

    name: str
    unit: str  # what the positions count, such as line
    positions: np.ndarray  # (N), of the pairs in the file, from 1
    pairs: list[Pair]  # (N), cleaned
    flaws: Mapping[str, list[int]]  # from faults of the raw text to the pairs that have them
    whole: np.ndarray  # indices of the pairs that are UTF-8 and have text on each side
    sizes: np.ndarray  # (N, 2), characters
    hashes: np.ndarray  # (N, 2), 64 bits to find equal texts with a tenth of the memory of a set

    @classmethod
    def of(cls, name: str, split: Split, data: DataConfig) -> CheckedSplit:
        """Read a split, and clean it as training would."""
        pairs: list[Pair] = []
        positions = array("q")
        flaws: dict[str, list[int]] = defaultdict(list)
        for number, (position, source, target) in enumerate(split.units):
            positions.append(position)
            if not (source.isascii() and target.isascii() and source.isprintable() and target.isprintable()):
                flaw = find_flaw(source, target)
                if flaw:
                    flaws[flaw].append(number)
            pairs.append((clean(source, data), clean(target, data)))
        sizes, hashes = (
            np.stack([np.fromiter((of(pair[side]) for pair in pairs), np.int64, len(pairs)) for side in (0, 1)], 1)
            for of in (len, hash)
        )
        good = np.all(sizes[:, int(not data.source_lang) :] > 0, axis=1)
        for flaw in UNREADABLE:
            good[flaws[flaw]] = False
        return cls(name, split.unit, np.array(positions), pairs, flaws, np.flatnonzero(good), sizes, hashes)

    def finding(
        self, name: str, which: Sequence[int] | np.ndarray, of: int = 0, count: int = 0, **words: object
    ) -> Iterator[Finding]:
        """Report these pairs if there are enough of them, with the first as examples.

        Args:
            of: how many were looked at; 0 for all
            count: how many were found, if they are not pairs
            words: values for the text of the kind
        """
        of, count = of or len(self.pairs), count or len(which)
        grave, least, text = KINDS[name]
        if count and count / of >= least:
            level = LEVELS[0 if count / of >= grave else 1 if count / of >= grave / 10 else 2]
            examples = [Example(int(self.positions[i]), *map(_printable, self.pairs[i])) for i in which[:EXAMPLES]]
            yield Finding(name, level, self.name, count, of, text.format(unit=self.unit, **words), examples)

    def stretch(self, name: str, start: int, end: int, where: str = "") -> Iterator[Finding]:
        """Report the whole pairs from `start` to before `end`."""
        rows = self.whole[start:end]
        return self.finding(name, rows, first=self.positions[rows[0]], last=self.positions[rows[-1]], where=where)

    def where(self, test: Callable[[str, str], object]) -> list[int]:
        """Return the whole pairs whose two texts pass a test."""
        return [i for i in self.whole.tolist() if test(*self.pairs[i])]

    def texts(self, rows: np.ndarray, side: int) -> list[str]:
        return [self.pairs[i][side] for i in rows.tolist()]


@dataclass(frozen=True)
class CheckedCorpus:
    """Training, and the validation and test that are given; a share of training has no faults of its own.

    `borrowed` are the tokenizers of the model that training.init_from names.
    """

    config: Config
    splits: dict[str, CheckedSplit]
    borrowed: tuple[Tokenizer, Tokenizer] | None = None
    downloads: tuple[Record, ...] = ()

    @classmethod
    def read(cls, config: Config, borrowed: tuple[Tokenizer, Tokenizer] | None = None) -> CheckedCorpus:
        """Find and read everything that the settings name. Raises DataError for what cannot be read or has no text."""
        data = replace(config.data, on_bad_line="skip")
        given: dict[str, Split] = {}
        if len(parse_mixture(data.train)) > 1:
            raise DataError("data.train names several corpora, but the check reads one at a time: set it to one.")
        if data.several:
            raise DataError(
                "data.directions is set, but the check reads one direction at a time: set it to null, and "
                "data.source_lang and data.target_lang to one of them."
            )
        sources = find_sources(data)
        for source in sources:  # train first: a named split replaces the one that came with train
            for name, split in read_units(source, data, console.warn).items():
                if name == source.split or (source.split == "train" and name in SPLITS):
                    given[name] = split
        splits = {name: CheckedSplit.of(name, given[name], data) for name in SPLITS if name in given}
        if config.model.preset == "auto":  # choose it for the pairs that are left to train on, as training does
            held_out = sum(getattr(data, f"{name}_fraction") for name in SPLITS[1:] if name not in splits)
            pairs = round((1 - held_out) * len(splits["train"].pairs))
            config = settings.with_preset(config, presets.choose(pairs))
        downloads = {path: record for source in sources for path in source.downloads if (record := read_record(path))}
        return cls(config, splits, borrowed, tuple(downloads.values()))

    @property
    def sides(self) -> range:
        """The sides that have text: for plain text the target only."""
        return range(0 if self.config.data.source_lang else 1, 2)

    @cached_property
    def used(self) -> dict[str, tuple[CheckedSplit, np.ndarray]]:
        """The pairs that training and validation will use, split as in `read_portions`. Raises DataError if none."""
        data, train = self.config.data, self.splits["train"]
        fractions = [0.0 if name in self.splits else getattr(data, f"{name}_fraction") for name in SPLITS[1:]]
        names = np.array([assign(key_text(train.pairs[i], data), *fractions) for i in train.whole.tolist()])
        validation = self.splits.get("validation")
        found = {name: (train, train.whole[names == name]) for name in ("train", "validation")}
        found |= {"validation": (validation, validation.whole)} if validation else {}
        for name, (split, rows) in found.items():
            if not len(rows):
                raise nothing_for(name, len(split.pairs), data)
        return found

    @cached_property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizers that training would use. Words are counted in all of training, subwords learnt on a sample."""
        if self.borrowed:
            return self.borrowed
        train, rows = self.used["train"]
        rows = rows if self.config.tokenizer.kind == "word" else sample(rows)
        return train_tokenizers(train.texts(rows, 0), train.texts(rows, 1), self.config.tokenizer)


def sample(rows: np.ndarray) -> np.ndarray:
    """Return SAMPLE of the rows at equal distances, or all if there are no more."""
    return rows if len(rows) <= SAMPLE else rows[np.linspace(0, len(rows) - 1, SAMPLE).astype(int)]


def _printable(text: str) -> str:
    return console.shorten(console.visible(unmarked(text)[:300]), 200)
