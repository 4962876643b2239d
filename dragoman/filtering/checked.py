"""A corpus as `dragoman check` sees it, with every pair in memory, and what the check can report."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dragoman import console, presets, settings
from dragoman.corpora.data_report import SAMPLE
from dragoman.corpora.downloads.fetch import Record, read_record
from dragoman.corpora.formats.units import unmarked
from dragoman.corpora.readers import Split, read_units
from dragoman.corpora.sources import SPLITS, find_sources
from dragoman.corpora.splitting import assign_split, key_text, nothing_for
from dragoman.corpora.subwords import train_tokenizers
from dragoman.dataset import Pair, Tokenizer
from dragoman.filtering.commands import require_one_corpus
from dragoman.filtering.judge import cleaned_pair
from dragoman.filtering.rules import NEVER, REASONS, Kind
from dragoman.settings import Config, DataConfig
from dragoman.text.cleaning import is_text

EXAMPLES = 3  # shown for each finding
LEVELS = ("grave", "look", "note")
KINDS = {
    "slipped": Kind("slipped: from about {unit} {first:,} to {last:,}, the translations are elsewhere", 0),
    "label": Kind("in {language} by their text, not in {expected}", 0),
    "overlap": Kind(
        "whose {what} is also in training, {rough:,} with other capitals or marks: scores will be too good"
    ),
    **REASONS,  # what `dragoman clean` drops
    "control": Kind("with control characters or invisible ones, which spoil words"),
    "lowercased": Kind("lower-cased before ({language}): what people type will be lower-cased, too", NEVER, 0.5),
    "tokenized": Kind(
        "tokenized before ({language}): what people type will be split, too; to undo it in a file of this language "
        "alone: sacremoses -l {language} detokenize",
        NEVER,
        0.5,
    ),
    "too_long": Kind("longer than data.max_length ({limit} tokens): training drops them", 0.02),
    "too_uneven": Kind("more uneven than data.max_ratio ({limit:g}): training drops them", 0.1),
    "unknown": Kind("tokens that the vocabulary would not know ({language}): {words}", 0.05, 0.005),
    "markup": Kind("with HTML tags or entities", 0.05),
}


@dataclass(frozen=True)
class Example:
    """A pair that is safe to print on a terminal, shortened if it is long."""

    line: int  # or the number of whatever SplitSummary.unit says
    source: str
    target: str


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with some of the pairs, or may be."""

    name: str  # one of KINDS
    level: str  # one of LEVELS
    split: str
    count: int
    of: int  # how many were looked at: all, a sample, or those that the question is about
    text: str
    examples: list[Example]


@dataclass(frozen=True)
class SuggestedSetting:
    """A setting that suits this corpus better."""

    key: str
    value: str
    why: str


@dataclass(frozen=True)
class CheckedSplit:
    """A split as it was read: N pairs."""

    name: str
    unit: str  # what the positions count, such as line
    positions: np.ndarray  # (N), of the pairs in the file, from 1
    pairs: list[Pair]  # (N), cleaned
    whole: np.ndarray  # indices of the pairs that are UTF-8 and have text on each side

    @classmethod
    def of(cls, name: str, split: Split, data: DataConfig) -> CheckedSplit:
        """Read a split, and clean it as training would."""
        pairs: list[Pair] = []
        positions = array("q")
        for position, *pair in split.units:
            positions.append(position)
            pairs.append(cleaned_pair((pair[0], pair[1]), data))
        whole = [
            i
            for i, (source, target) in enumerate(pairs)
            if target and (source or not data.source_lang) and is_text(source) and is_text(target)
        ]
        return cls(name, split.unit, np.array(positions), pairs, np.array(whole, int))

    def finding(
        self, name: str, which: Sequence[int] | np.ndarray, of: int = 0, count: int = 0, **words: object
    ) -> Iterator[Finding]:
        """Report these pairs if there are enough of them, with the first as examples.

        Args:
            of: how many were looked at; 0 for all
            count: how many were found, if they are not pairs
            words: values for the text of the kind
        """
        of, count, kind = of or len(self.pairs), count or len(which), KINDS[name]
        if count and count / of >= kind.least:
            level = LEVELS[0 if count / of >= kind.grave else 1 if count / of >= kind.grave / 10 else 2]
            examples = [Example(int(self.positions[i]), *map(_printable, self.pairs[i])) for i in which[:EXAMPLES]]
            yield Finding(name, level, self.name, count, of, kind.text.format(unit=self.unit, **words), examples)

    def texts(self, rows: np.ndarray, side: int) -> list[str]:
        return [self.pairs[i][side] for i in rows.tolist()]


@dataclass(frozen=True)
class CheckedCorpus:
    """Training, and the validation and test that are given; splits taken from training are not checked again.

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
        require_one_corpus(data, "the check reads")
        given: dict[str, Split] = {}
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
        names = np.array([assign_split(key_text(train.pairs[i], data), *fractions) for i in train.whole.tolist()])
        used = {name: (train, train.whole[names == name]) for name in ("train", "validation")}
        if validation := self.splits.get("validation"):
            used["validation"] = validation, validation.whole
        for name, (split, rows) in used.items():
            if not len(rows):
                raise nothing_for(name, len(split.pairs), data)
        return used

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
