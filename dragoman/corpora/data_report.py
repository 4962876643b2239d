"""The report of a preparation: what the corpus contains, and what was dropped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import chain, compress
from typing import Any

import numpy as np

from dragoman.corpora.origin import SIDES, Tokenizers
from dragoman.corpora.prepared_files import CleanedCorpus
from dragoman.corpora.splitting import PairCounts, key_text
from dragoman.dataset import EncodedPairs, Pair, encode_pairs, unzip_pairs
from dragoman.directions import split_tag
from dragoman.settings import UNK, DataConfig
from dragoman.text.full_stops import FullStops
from dragoman.text.sentence_splitting import split_sentences

SAMPLE = 100_000  # training pairs whose sentences are counted; more would hardly change the result


@dataclass(frozen=True)
class SideReport:
    """One language: lengths of the training lines in tokens, the vocabulary and its coverage."""

    language: str
    mean: float
    median: float
    percentile_99: float
    longest: int
    vocabulary: int
    left_out: int  # distinct words of training without an id
    unknown: float  # share of the validation tokens
    usual_sentences: int = 1  # half of the lines have at least this many; older data do not say
    full_stops: dict[str, dict[str, list[str]]] = field(default_factory=dict)  # `FullStops` by language; likewise


@dataclass(frozen=True)
class CorpusReport:
    """What the corpus contains, and what was dropped."""

    counts: dict[str, PairCounts]
    sides: list[SideReport]  # source and target; for plain text the same one twice
    repeated: dict[str, int]  # by split: pairs whose source, or plain text, is also in training
    borrowed: bool = False  # whether the tokenizers are those of training.init_from

    @classmethod
    def of(cls, values: dict[str, Any]) -> CorpusReport:
        """Build a report from the values that `asdict` made of it."""
        counts = {split: PairCounts(**count) for split, count in values["counts"].items()}
        names = {field.name for field in fields(SideReport)}
        sides = [SideReport(**{key: side[key] for key in side.keys() & names}) for side in values["sides"]]
        return cls(counts, sides, values["repeated"], values.get("borrowed", False))

    @property
    def plain(self) -> bool:
        """Whether this is about plain text, which has only one side."""
        return self.sides[0] == self.sides[1]

    @property
    def _units(self) -> str:
        return "texts" if self.plain else "pairs"

    def lines(self) -> list[str]:
        """Return the report as lines to print."""
        lines = []
        for split, count in self.counts.items():
            reasons = {
                "are empty" if self.plain else "lack a side": count.empty,
                "are not pairs": count.left_out,
                "cannot be read": count.unreadable,
                "are too long": count.too_long,
                "are too uneven": count.uneven,
            }
            dropped = "".join(f"; {number:,} {reason} and are dropped" for reason, number in reasons.items() if number)
            lines.append(f"{split}: {count.read:,} {self._units}{dropped}")
            lines += [f"  cannot be read: {place}" for place in count.places]
            lines += ["  ... dragoman clean lists all of them"] * (count.unreadable > len(count.places) > 0)
        for side in self.sides[self.plain :]:
            rare = f" (without {side.left_out:,} rarer words)" if side.left_out else ""
            lines.append(
                f"{side.language}: {side.mean:.1f} tokens per sentence, half up to {side.median:.0f}, 99 % up to "
                f"{side.percentile_99:.0f}, longest {side.longest}; vocabulary {side.vocabulary:,}{rare}; "
                f"{side.unknown:.2%} of the validation tokens are unknown"
            )
        return lines + [f"warning: {warning}" for warning in self.warnings()]

    def warnings(self) -> list[str]:
        """Return what to look at before trusting the run."""
        remedy = "set tokenizer.kind to bpe, or lower tokenizer.min_frequency."
        if self.borrowed:
            remedy = "the tokenizers are those of training.init_from, so set that to null for a vocabulary of its own."
        warnings = [
            f"{count.dropped / count.read:.0%} of the {split} {self._units} are dropped: is this the right corpus, and "
            "is data.max_length large enough?"
            for split, count in self.counts.items()
            if count.dropped > 0.2 * count.read
        ]
        warnings += [
            f"{side.unknown:.0%} of the {side.language} validation tokens are unknown and will be "
            f"{'written' if self.plain else 'translated'} as [UNK]: {remedy}"
            for side in self.sides[self.plain :]
            if side.unknown > 0.05
        ]
        return warnings + [
            f"{number:,} {'texts' if self.plain else 'source sentences'} of {split} are also in train: its scores will "
            "be too good."
            for split, number in self.repeated.items()
            if number
        ]


def make_report(
    text: CleanedCorpus,
    cased: Iterable[Pair],
    counts: dict[str, PairCounts],
    train: EncodedPairs,
    tokenizers: Tokenizers,
    data: DataConfig,
    borrowed: bool,
) -> CorpusReport:
    """Measure a corpus. `cased` are its pairs before lower-casing, since sentences are split by their capitals."""
    sides = []
    held_out = {split: [*text.pairs(split)] for split in ("validation", "test")}
    validation = encode_pairs(held_out["validation"], *tokenizers)
    wanted = np.zeros(text.counts["train"].kept, bool)
    wanted[sample_indices(len(wanted), SAMPLE)] = True
    samples = unzip_pairs([*compress(cased, wanted.tobytes())])
    languages = [data.source_lang, data.target_lang]
    if data.several:
        each = (", ".join(dict.fromkeys(names)) for names in zip(*data.several, strict=True))
        languages = [f"{side} ({names})" for side, names in zip(SIDES, each, strict=True)]
    for side, language, tokenizer, texts in zip(SIDES, languages, tokenizers, samples, strict=True):
        if language is None:
            continue
        lengths = np.diff(getattr(train, side).offsets)
        by_language: defaultdict[str, list[str]] = defaultdict(list)
        for tagged in texts:
            line, name = _without_tag(tagged, language, data)
            by_language[name].append(line)
        stops = {name: FullStops.of(lines, name) for name, lines in by_language.items()}
        sentences = [len(split_sentences(line, name, stops[name])) for name in stops for line in by_language[name]]
        sides.append(
            SideReport(
                language,
                mean=float(lengths.mean()),
                median=float(np.median(lengths)),
                percentile_99=float(np.percentile(lengths, 99)),
                longest=int(lengths.max()),
                usual_sentences=int(np.median(sentences)),
                full_stops={name: each.json for name, each in stops.items()},
                vocabulary=len(tokenizer),
                left_out=tokenizer.left_out,
                unknown=float((getattr(validation, side).ids == UNK).mean()),
            )
        )
    # The translator reads its line statistics from the source side, so plain text puts its only side there, too.
    sides = sides if data.source_lang else 2 * sides
    return CorpusReport(counts, sides, _count_repeated(text, held_out, data), borrowed)


def sample_indices(count: int, most: int) -> np.ndarray:
    """Return the indices of all pairs, or of `most` random ones; sorted, and always the same."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def _without_tag(text: str, language: str, data: DataConfig) -> tuple[str, str]:
    """Return a text without its tag, if it has one, and the language that it is in."""
    direction, rest = split_tag(text) if data.several else (None, text)
    return rest, direction.source if direction else language


def _count_repeated(text: CleanedCorpus, held_out: dict[str, list[Pair]], data: DataConfig) -> dict[str, int]:
    """Count the pairs of each held-out split that share a source, or plain text, with training; see `_keys`."""
    # Collect the few held-out texts, not those of training, which would take as much memory as their ids.
    keys = {split: [_keys(pair, data) for pair in pairs] for split, pairs in held_out.items()}
    few = set(chain(*chain(*keys.values())))
    known = {key for pair in text.pairs("train") for key in _keys(pair, data) if key in few}
    return {split: sum(not known.isdisjoint(each) for each in of_split) for split, of_split in keys.items()}


def _keys(pair: Pair, data: DataConfig) -> list[str]:
    """Return the texts that identify a pair: with several directions both, since a target may be a source elsewhere."""
    return [split_tag(pair[0])[1], pair[1]] if data.several else [key_text(pair, data)]
