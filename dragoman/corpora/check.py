"""What is wrong with a corpus, and what to set for it: told before a training rather than after it.

    python doctor.py --config mine.yaml                               # the corpus that this training would use
    python doctor.py --data.train corpus/train --data.target_lang fr --json

    diagnosis = examine(config)                                       # .findings, .settings
    print("\n".join(lines(diagnosis)))

Settings are given as to train.py, and the corpus is read by the same strict readers; lines that are not UTF-8 are
counted here, where a training would end. A check is a function of `Corpus` that yields a `Finding` or a `Setting` for
whatever there is to tell; `CHECKS` is all of them, and `KINDS` what they say.

Limits: what a sentence means is not looked at. Misalignment shows in lengths and numbers, a wrong language only if it
is that of the other side, or in another script: where all lines of a side are in a wrong one, nothing shows. All pairs
are held in memory, some 500 bytes for one of thirteen words; a million take 40 seconds of processor time. Of more than
`preparing.SAMPLE` pairs a sample is tokenised, which is said.

Exit codes: 0 looked, whatever was found; 2 a mistake in the settings; 3 data that cannot be read at all; 4 no model
where training.init_from has one.
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from dragoman import console, presets
from dragoman import settings as settings_module
from dragoman.corpora.cleaning import clean
from dragoman.corpora.preparation import SAMPLE
from dragoman.corpora.readers import read_splits
from dragoman.corpora.sources import ALIASES, SPLITS, find_sources, is_text, parts_of, unit_name
from dragoman.corpora.splitting import assign, known_by
from dragoman.corpora.subwords import FEWEST_PIECES, train_tokenizers
from dragoman.dataset import Pair, encode_side
from dragoman.errors import DataError
from dragoman.serialization import json_bytes
from dragoman.settings import UNK, Config, DataConfig
from dragoman.translation.translator import Translator

Rows = Sequence[int] | np.ndarray  # which pairs of a part
EXAMPLES = 3
LEVELS = ("grave", "look", "note")
# What there is to find: the share from which on it is grave (from a tenth of that it is to be looked at, and below a
# note), the share below which it is not told, and what to say of the pairs that have it.
KINDS: dict[str, tuple[float, float, str]] = {
    "not_utf8": (0, 0, "not UTF-8, where training ends: mend them, or set data.on_bad_line skip"),
    "slipped": (0, 0, "slipped: from about {unit} {first:,} to {last:,} the translation stands {where}"),
    "unaligned": (0, 0, "no translations, to judge by their lengths: look from {unit} {first:,} to {last:,}"),
    "overlap": (0.01, 0, "of which the {what} in training, too: scores will flatter"),
    "mojibake": (0.01, 0, "decoded wrongly and encoded again, as è that became Ã¨"),
    "replaced": (0.01, 0, "with U+FFFD, which stands for letters that were lost"),
    "control": (0.01, 0, "with control characters or invisible ones, which spoil words"),
    "empty": (0.1, 0, "without text on a side: training drops them"),
    "swapped": (0.01, 0, "swapped: each side reads like the language of the other"),
    "language": (0.01, 0, "with both sides in one language"),
    "script": (0.01, 0, "mostly in another script than the side they stand on"),
    "copied": (0.01, 0, "copied: both sides are the same"),
    "near_copied": (0.01, 0, "nearly copied: most words are the same on both sides"),
    "uneven": (0.01, 0, "far more uneven than the others here: a side lacks something, or is too free"),
    "numbers": (0.5, 0.3, "with other numbers on one side, of those with one of three digits and more"),
    "too_long": (0.02, 0, "longer than data.max_length ({limit} tokens): training drops them"),
    "too_uneven": (0.1, 0, "more uneven than data.max_ratio ({limit:g}): training drops them"),
    "unknown": (0.05, 0.005, "tokens that the vocabulary would not know ({language}): {words}"),
    "markup": (0.05, 0, "with tags or entities of HTML"),
    "addresses": (0.1, 0, "with addresses of pages"),
    "duplicates": (0.3, 0.001, "that stood there before, word for word"),
    "same_source": (10, 0.2, "of which the source stood there before, with another target"),
    "same_target": (10, 0.2, "of which the target stood there before, with another source"),
}


# --- What is found, and in what -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """A pair as it can be shown: without anything that acts on a terminal, and cut where it is long."""

    line: int  # where Split.unit is pair, the number of the pair
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
class Setting:
    """A setting that suits this corpus better."""

    key: str
    value: str
    why: str


@dataclass(frozen=True)
class Split:
    """What was read, and what the numbers of examples count: lines, or pairs where a file does not keep to lines."""

    name: str
    read: int
    unit: str


@dataclass(frozen=True)
class Diagnosis:
    """All that there is to tell of a corpus. `asdict` makes it the JSON object."""

    format: int  # of this record; it changes when a reader would have to
    source_lang: str | None
    target_lang: str
    splits: list[Split]
    sampled: int  # training pairs that were tokenised
    findings: list[Finding]  # the gravest first
    settings: list[Setting]


@dataclass(frozen=True)
class CorpusPart:
    """A split as it was read, nothing dropped, so that what is said of a pair can name its line: N pairs, 2 sides."""

    split: str
    unit: str
    first: int  # number of the first pair
    pairs: list[Pair]  # (N), cleaned
    flaws: Mapping[str, list[int]]  # by what is wrong with the text before it is cleaned: which pairs
    whole: np.ndarray  # which pairs are UTF-8 and have text on each side
    sizes: np.ndarray  # (N, 2), characters
    hashes: np.ndarray  # (N, 2): 64 bits say which texts are equal, in a tenth of the room of a set of them

    @classmethod
    def of(cls, split: str, raw: Iterable[Pair], files: Sequence[Path], data: DataConfig) -> CorpusPart:
        """Read a split, to which the files belong, and clean it as training would."""
        pairs: list[Pair] = []
        flaws: dict[str, list[int]] = defaultdict(list)
        for number, (source, target) in enumerate(raw):
            if not (source.isascii() and target.isascii() and source.isprintable() and target.isprintable()):
                flaw = _flaw(source, target)
                if flaw:
                    flaws[flaw].append(number)
            pairs.append((clean(source, data), clean(target, data)))
        sizes, hashes = (
            np.stack([np.fromiter((of(pair[side]) for pair in pairs), np.int64, len(pairs)) for side in (0, 1)], 1)
            for of in (len, hash)
        )
        good = np.all(sizes[:, int(not data.source_lang) :] > 0, axis=1)
        good[flaws["not_utf8"]] = False
        unit = "line" if files and files[0].suffix not in (".csv", ".parquet") else "pair"
        first = 2 if unit == "line" and files[0].suffix == ".tsv" and _has_names(files[0], pairs[0], data) else 1
        return cls(split, unit, first, pairs, flaws, np.flatnonzero(good), sizes, hashes)

    def finding(self, name: str, which: Rows, of: int = 0, count: int = 0, **words: object) -> Iterator[Finding]:
        """Tell of pairs, if they are enough, and show the first.

        Args:
            of: how many were asked; 0 for all
            count: of what is no pair, how many there are
            words: for the gaps in the text of the kind
        """
        of, count = of or len(self.pairs), count or len(which)
        grave, least, text = KINDS[name]
        if count and count / of >= least:
            level = LEVELS[0 if count / of >= grave else 1 if count / of >= grave / 10 else 2]
            shown = [Example(int(i) + self.first, *map(_shown, self.pairs[i])) for i in which[:EXAMPLES]]
            yield Finding(name, level, self.split, count, of, text.format(unit=self.unit, **words), shown)

    def stretch(self, name: str, start: int, end: int, where: str = "") -> Iterator[Finding]:
        """Tell of the whole pairs from one to before another."""
        rows = self.whole[start:end]
        return self.finding(name, rows, first=rows[0] + self.first, last=rows[-1] + self.first, where=where)

    def where(self, test: Callable[[str, str], object]) -> list[int]:
        """The whole pairs that pass a test of their two texts."""
        return [i for i in self.whole.tolist() if test(*self.pairs[i])]

    def texts(self, rows: np.ndarray, side: int) -> list[str]:
        return [self.pairs[i][side] for i in rows.tolist()]


@dataclass(frozen=True)
class CheckedCorpus:
    """Training, and of validation and test what is given: what is split off training has no faults of its own."""

    config: Config
    parts: dict[str, CorpusPart]

    @classmethod
    def read(cls, config: Config) -> CheckedCorpus:
        """Find and read all that the settings name. DataError for what cannot be read, or has no text at all."""
        data = replace(config.data, on_bad_line="skip")
        given: dict[str, tuple[Iterator[Pair], Sequence[Path]]] = {}
        if len(parts_of(data.train)) > 1:
            raise DataError(
                "data.train names several corpora: the doctor looks at one at a time, set it to one of them."
            )
        if data.several:
            raise DataError(
                "data.directions is set, but the doctor looks at one direction at a time: set it to null, and "
                "data.source_lang and data.target_lang to one of them."
            )
        for source in find_sources(data):  # train first: what is named for a split wins over what came with train
            files = {ALIASES.get(split, split): files for split, files in source.parts.items()}
            for split, raw in read_splits(source, data).items():
                if split == source.split or (source.split == "train" and split in SPLITS):
                    given[split] = raw, files.get(split, ())
        parts = {split: CorpusPart.of(split, *given[split], data) for split in SPLITS if split in given}
        if config.model.preset == "auto":  # for the pairs that are left to train on, as `start.amount` reckons them
            held_out = sum(getattr(data, f"{name}_fraction") for name in SPLITS[1:] if name not in parts)
            pairs = round((1 - held_out) * len(parts["train"].pairs))
            config = settings_module.with_preset(config, presets.choose(pairs))
        return cls(config, parts)

    @property
    def sides(self) -> range:
        """Those that have text: of plain text the target alone."""
        return range(0 if self.config.data.source_lang else 1, 2)

    @cached_property
    def split(self) -> dict[str, tuple[CorpusPart, np.ndarray]]:
        """Which pairs are for training and for validation in the end, as `corpus.read_corpus` decides it."""
        data, train = self.config.data, self.parts["train"]
        fractions = [0.0 if name in self.parts else getattr(data, f"{name}_fraction") for name in SPLITS[1:]]
        names = np.array([assign(known_by(train.pairs[i], data), *fractions) for i in train.whole.tolist()])
        held_out = self.parts.get("validation")
        found = {name: (train, train.whole[names == name]) for name in ("train", "validation")}
        found |= {"validation": (held_out, held_out.whole)} if held_out else {}
        for name, (_, rows) in found.items():
            if not len(rows):
                raise DataError(
                    f"there is no {unit_name(data)} for {name}: more are needed, or what data.{name} names."
                )
        return found


def _has_names(table: Path, pair: Pair, data: DataConfig) -> bool:
    """Whether the first row of a table is not its first pair."""
    with table.open("rb") as file:
        cells = file.readline().removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape").split("\t")
    return not {text for text in pair if text} <= {clean(cell, data) for cell in cells}


def _shown(text: str) -> str:
    return console.shorten(console.visible(text[:300]), 200)


def _sample(rows: np.ndarray) -> np.ndarray:
    """SAMPLE of the rows at equal distances, or all where there are no more."""
    return rows if len(rows) <= SAMPLE else rows[np.linspace(0, len(rows) - 1, SAMPLE).astype(int)]


# --- Letters ------------------------------------------------------------------------------------------------------

# The bytes of UTF-8 after the first, as Latin-1 and Windows-1252 show them; those of the second kind are marks that may
# well stand behind a capital letter, as in “MANHÃ”.
_LATER = "\x80-\x9f\xa1-\xa6\xa8-\xaa\xac-\xb6\xb8-\xba\xbc-\xbf€ƒˆ‰Š‹ŒŽ˜™š›œžŸ†‡"
_MARKS = "\xa0\xa7\xab\xb7\xbb‚„…‘’“”•–—"
# Letters of Latin-1; punctuation, €, ™, the mark at the start of a file, U+FFFD; emoji; other Latin letters; Greek and
# Cyrillic. After ftfy (Robyn Speer), but only what no text has: the rest of its rules weigh one reading by another.
_MOJIBAKE = re.compile(
    rf"[ÂÃ][{_LATER}]|(?<![A-ZÀ-Þ])[ÂÃ][{_MARKS}]|â(?:€|\x80)[{_LATER}{_MARKS}]|â‚¬|â„¢|ï»¿|ï¿½|ðŸ[{_LATER}{_MARKS}]"
    rf"|[ÄÅ][{_LATER}](?=[a-zß-ÿ])|(?:[ÎÏÐÑ][{_LATER}{_MARKS}]){{2}}"
)
# White space, which cleaning makes a blank, is no flaw, nor are the joiners of Persian, Hindi and emoji.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\u202a-\u202e\u2060-\u2069\ufeff]")


def _flaw(source: str, target: str) -> str | None:
    """The gravest that is wrong with the letters of a raw pair."""
    text = f"{source}\n{target}"
    tests = {"not_utf8": not is_text(text), "mojibake": _MOJIBAKE.search(text), "replaced": "\ufffd" in text}
    return next((name for name, wrong in tests.items() if wrong), "control" if _CONTROL.search(text) else None)


def check_letters(corpus: CheckedCorpus) -> Iterator[Finding | Setting]:
    for part in corpus.parts.values():
        for name, which in part.flaws.items():
            yield from part.finding(name, which)
    bad = sum(len(part.flaws["not_utf8"]) for part in corpus.parts.values())
    if bad and corpus.config.data.on_bad_line == "error":
        yield Setting(
            "data.on_bad_line", "skip", f"drops the {bad:,} {unit_name(corpus.config.data)}s that are not UTF-8"
        )


# --- Sides --------------------------------------------------------------------------------------------------------

FEW = 5  # words that may be the same in both languages: names, titles
MOST = 0.8  # of the words
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|&(?:[a-z]+|#[0-9]+|#x[0-9a-f]+);")
_ADDRESS = re.compile(r"https?://|www\.[a-z0-9]")
# Numbers of three digits and more, the marks between thousands taken out: smaller ones are words in many a language,
# and of a time of day, 2:30, another makes 14 h 30. In Tatoeba a quarter of what is left is spelt out nevertheless.
_THOUSANDS = re.compile(r"(?<=\d)[.,'’ ](?=\d{3})")
_NUMBER = re.compile(r"\d{3,}")


def _copied(source: str, target: str) -> bool:
    return source == target and len(source.split()) > FEW


def _near_copied(source: str, target: str) -> bool:
    one, other = set(source.split()), set(target.split())
    most = max(len(one), len(other))
    return most > FEW and len(one & other) >= MOST * most and source != target


def _numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(_THOUSANDS.sub("", text)))


TESTS: dict[str, Callable[[str, str], object]] = {
    "copied": _copied,
    "near_copied": _near_copied,
    "markup": lambda source, target: _MARKUP.search(source) or _MARKUP.search(target),
    "addresses": lambda source, target: _ADDRESS.search(source) or _ADDRESS.search(target),
}


def check_sides(corpus: CheckedCorpus) -> Iterator[Finding]:
    for part in corpus.parts.values():
        others = np.append(part.whole, part.flaws["not_utf8"])
        yield from part.finding("empty", np.setdiff1d(np.arange(len(part.pairs)), others))
        for name, test in TESTS.items():
            yield from part.finding(name, part.where(test))
        numbered = part.where(lambda source, target: _NUMBER.search(source) or _NUMBER.search(target))
        if len(corpus.sides) == 2 and len(numbered) >= 10:
            other = [i for i in numbered if _numbers(part.pairs[i][0]) != _numbers(part.pairs[i][1])]
            yield from part.finding("numbers", other, len(numbered))


# --- Lengths ------------------------------------------------------------------------------------------------------

# Gale and Church (1993), "A Program for Aligning Sentences in Bilingual Corpora": the difference in characters between
# a sentence and its translation varies as the root of their length. How much, each corpus says itself, by its median.
FAR = 5.0  # times that: in Multi30k and Tatoeba one pair in 10,000, free or wrong
# A pair speaks for a shift by how much better it then fits, of 4 at most, less what chance may give. Over neighbours
# this sums up to 7 at most in those corpora, and to 30 within some forty pairs that have slipped by a line.
SHIFTS = (1, -1, 2, -2, 3, -3)
CHANCE, PROOF = 0.3, 30.0
STRETCHES = 5  # told at most
# Likewise for fitting no better than pairs put together at random, which their pairs do by 1.4 on average.
BETTER, NO_PROOF = 0.5, 100.0


def check_lengths(corpus: CheckedCorpus) -> Iterator[Finding]:
    for part in corpus.parts.values():
        if len(corpus.sides) == 2 and len(part.whole) >= 20:  # or there is no median that could be trusted
            yield from _lengths(part)


def _lengths(part: CorpusPart) -> Iterator[Finding]:
    source, target = part.sizes[part.whole].T.astype(np.float64)
    ratio = np.median(target / source)

    def strays(shift: int) -> np.ndarray:
        """How far each source strays from the target so many pairs below it, with a sign."""
        below = np.roll(target, -shift)
        return (below - ratio * source) / np.sqrt(below + ratio * source)

    middle = np.median(strays(0))
    unit = max(1.5 * np.median(np.abs(strays(0) - middle)), 0.5)  # made-up text has less; in those corpora it is 0.8
    here = np.abs(strays(0) - middle) / unit
    far = np.argsort(-here, kind="stable")[: int((here > FAR).sum())]
    yield from part.finding("uneven", part.whole[far])

    here = np.minimum(here, 4)
    tries = [*SHIFTS, len(here) // 2]
    *gains, at_random = (here - np.minimum(np.abs(strays(shift) - middle) / unit, 4) for shift in tries)
    gains, at_random = np.array(gains) - CHANCE, at_random + BETTER
    for _ in range(STRETCHES):
        # The best first, and nothing else within it: one line further on may look better than no shift at all.
        found = [(*_stretch(gain), shift) for gain, shift in zip(gains, SHIFTS, strict=True)]
        proof, start, end, shift = max(found)
        if proof <= PROOF:
            break
        gains[:, start:end] = at_random[start:end] = -4
        where = f"{abs(shift)} {part.unit}{'s' * (abs(shift) > 1)} {'below' if shift > 0 else 'above'}"
        yield from part.stretch("slipped", start, end, where=where)
    proof, start, end = _stretch(at_random)
    if proof > NO_PROOF and min(np.std(np.log(source)), np.std(np.log(target))) > 0.2:  # or lengths say nothing
        yield from part.stretch("unaligned", start, end)


def _stretch(gains: np.ndarray) -> tuple[float, int, int]:
    """The largest sum of neighbours (Kadane), the first of them, and the one after the last."""
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    rises = sums - np.minimum.accumulate(sums)
    end = int(rises.argmax())
    return float(rises[end]), int(sums[: end + 1].argmin()), end


# --- The same again -----------------------------------------------------------------------------------------------


def _again(keys: np.ndarray) -> np.ndarray:
    """Which of the keys stood there before."""
    again = np.ones(len(keys), bool)
    again[np.unique(keys, return_index=True)[1]] = False
    return again


def _both(hashes: np.ndarray) -> np.ndarray:
    return hashes[:, 0] * 31 + hashes[:, 1]  # it wraps around, which is meant


def check_repeats(corpus: CheckedCorpus) -> Iterator[Finding]:
    train, *others = corpus.parts.values()
    known = train.hashes[train.whole]
    again = _again(_both(known))
    yield from train.finding("duplicates", train.whole[again])
    if len(corpus.sides) == 2:
        for side, name in enumerate(("same_source", "same_target")):
            yield from train.finding(name, train.whole[~again][_again(known[~again, side])])
    for part in others:
        hashes = part.hashes[part.whole]
        seen = np.isin(hashes[:, corpus.sides[0]], known[:, corpus.sides[0]])
        pairs = np.isin(_both(hashes[seen]), _both(known)).sum()
        what = f"source ({pairs:,}: with this target) stands" if len(corpus.sides) == 2 else "text stands"
        yield from part.finding("overlap", part.whole[seen], what=what)


# --- Languages ----------------------------------------------------------------------------------------------------

BITS = 17  # of the numbers of trigrams; where two share one, the others of the line outvote them
CHUNK = 20_000  # lines looked at together
LONGEST = 1000  # characters of a line that are looked at
SURE = 20.0  # nats, of so many letters at least: no good line of Multi30k, Tatoeba or the phrasebook strays so far


def _codes(part: CorpusPart, rows: np.ndarray, side: int) -> Iterator[np.ndarray]:
    """The characters of many lines as numbers, with a line feed before, between and after them."""
    for start in range(0, len(rows), CHUNK):
        texts = (text[:LONGEST] for text in part.texts(rows[start : start + CHUNK], side))
        yield np.frombuffer("\n".join(["", *texts, ""]).lower().encode("utf-32-le"), np.uint32)


def _trigrams(codes: np.ndarray) -> np.ndarray:
    """A number for each three neighbours."""
    a, b, c = (codes[i : len(codes) - 2 + i] * np.uint32(k) for i, k in enumerate((0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35)))
    return (a ^ b ^ c) >> np.uint32(32 - BITS)


@cache
def _script(letter: int) -> str:
    """LATIN, CYRILLIC, CJK, ...: with what the name of a letter begins; nothing for what is none."""
    character = chr(letter)
    return unicodedata.name(character, "?").split()[0] if character.isalpha() else ""


def check_languages(corpus: CheckedCorpus) -> Iterator[Finding]:
    """Lines that read like the other side, and lines in a script that their side hardly uses.

    The log-odds of a line are the sum of those of its trigrams, by how often these stand on the one side of training
    and on the other (T. Dunning, "Statistical Identification of Language", 1994).
    """
    train = corpus.parts["train"]
    trigrams, used = np.full((2, 2**BITS), 0.5), np.zeros((2, sys.maxunicode + 1))
    for side in corpus.sides:
        for codes in _codes(train, _sample(train.whole), side):
            trigrams[side] += np.bincount(_trigrams(codes), minlength=2**BITS)
            used[side] += np.bincount(codes, minlength=sys.maxunicode + 1)
    source, target = np.log(trigrams / trigrams.sum(1, keepdims=True))
    odds = np.clip(source - target, -3, 3).astype(np.float32)  # a single name is no proof
    for part in corpus.parts.values():
        strange = np.zeros(len(part.whole), bool)
        likely = np.zeros((2, len(part.whole)))
        for side in corpus.sides:
            common = _scripts(used[side])
            found = [_judged(codes, odds, common) for codes in _codes(part, part.whole, side)]
            likely[side] = np.concatenate([likely for likely, _ in found] or [[]])
            strange |= np.concatenate([strange for _, strange in found] or [np.zeros(0, bool)])
        yield from part.finding("script", part.whole[strange])
        sizes, hashes = part.sizes[part.whole], part.hashes[part.whole]
        long = (sizes.min(1) >= SURE) & (hashes[:, 0] != hashes[:, 1])
        of_target, of_source = (likely[0] < -SURE) & long, (likely[1] > SURE) & long
        yield from part.finding("swapped", part.whole[of_target & of_source])
        yield from part.finding("language", part.whole[of_target ^ of_source])


def _scripts(used: np.ndarray) -> set[str]:
    """The scripts that have one letter in fifty, by how often each character is used; and that of what is no letter."""
    counts: Counter[str] = Counter()
    for letter in np.flatnonzero(used).tolist():
        counts[_script(letter)] += int(used[letter])
    all_letters = counts.total() - counts[""]
    return {""} | {script for script, number in counts.items() if number >= 0.02 * all_letters}


def _judged(codes: np.ndarray, odds: np.ndarray, common: set[str]) -> tuple[np.ndarray, np.ndarray]:
    """For each line its log-odds, and whether half of its letters, and three at least, are of no common script."""
    starts = np.flatnonzero(codes == 10)[:-1]
    values = np.where(codes[1:-1] == 10, 0, odds[_trigrams(codes)])  # without the trigrams of two lines
    seen = np.flatnonzero(np.bincount(codes))
    strange, letters = np.zeros((2, seen[-1] + 1), np.int32)
    for letter in seen.tolist():
        script = _script(letter)
        strange[letter], letters[letter] = script not in common, script != ""
    few, all_of_them = (np.add.reduceat(of[codes], starts) for of in (strange, letters))
    return np.add.reduceat(values, starts), (few > 2) & (2 * few > all_of_them)


# --- Tokens -------------------------------------------------------------------------------------------------------


def check_tokens(corpus: CheckedCorpus) -> Iterator[Finding | Setting]:
    """What this config's vocabulary would not know, and its limits drop; and what fits better.

    Whole words are counted in all of training; pieces of words are learnt from a sample, and only a sample is encoded.
    """
    config, data = corpus.config, corpus.config.data
    (train, rows), (held_out, held_rows) = corpus.split["train"], corpus.split["validation"]
    learnt, count = rows if config.tokenizer.kind == "word" else _sample(rows), len(rows)
    if borrowed := config.training.init_from:
        other = Translator(borrowed, "cpu")
        tokenizers = other.source, other.target
    else:
        tokenizers = train_tokenizers(train.texts(learnt, 0), train.texts(learnt, 1), config.tokenizer)
    rows, held_rows = _sample(rows), _sample(held_rows)
    unknown = []
    for side in corpus.sides:
        texts, tokenizer = held_out.texts(held_rows, side), tokenizers[side]
        ids = encode_side(texts, tokenizer)
        missing = np.flatnonzero(ids.ids == UNK)
        unknown.append(len(missing) / len(ids.ids))
        words: Counter[str] = Counter()
        for i in np.unique(np.searchsorted(ids.offsets, missing, "right") - 1).tolist():
            rest = ids.ids[ids.offsets[i] : ids.offsets[i + 1]] == UNK
            words.update(map(tokenizer.label, np.array(tokenizer.tokens(texts[i]))[rest].tolist()))
        language = (data.source_lang, data.target_lang)[side]
        some = ", ".join(word for word, _ in words.most_common(5))
        # Also where validation is split off training, and the part is that of training.
        told = replace(held_out, split="validation")
        yield from told.finding("unknown", [], len(ids.ids), len(missing), language=language, words=some)
    if max(unknown) >= KINDS["unknown"][0] and borrowed:
        why = f"with its vocabulary {max(unknown):.0%} of the validation tokens are unknown"
        yield Setting("training.init_from", "null", why)
    elif max(unknown) >= KINDS["unknown"][0]:
        yield Setting("tokenizer.kind", "bpe", f"as words, {max(unknown):.0%} of the validation tokens are unknown")
        if config.tokenizer.vocab_size < FEWEST_PIECES:
            size = presets.PRESETS[presets.choose(count)]["tokenizer.vocab_size"]
            yield Setting("tokenizer.vocab_size", str(size), f"{FEWEST_PIECES} bytes and marks come before all pieces")
    elif max(unknown) > 0.01 and count < 50_000 and config.model.dropout < 0.2:
        yield Setting("model.dropout", "0.3", f"{count:,} {unit_name(data)}s of such variety are little data")

    sizes = np.array([encode_side(train.texts(rows, side), tokenizers[side]).lengths - 1 for side in corpus.sides])
    longest, ratios = sizes.max(0), sizes.max(0) / sizes.min(0)
    long = longest > data.max_length
    uneven = ~long & (ratios > (data.max_ratio or np.inf))
    longest_first = rows[np.argsort(-longest, kind="stable")]
    yield from train.finding("too_long", longest_first[: long.sum()], len(rows), limit=data.max_length)
    yield from train.finding("too_uneven", rows[uneven], len(rows), limit=data.max_ratio)
    if long.mean() > 0.001:
        enough = math.ceil(np.percentile(longest, 99.9))
        why = f"keeps all but one in a thousand; {data.max_length} drops {long.mean():.1%}"
        yield Setting("data.max_length", str(enough), why)
    fair = math.ceil(2 * np.percentile(ratios, 99.5)) / 2
    beyond = float((ratios > 2 * fair).mean())
    if not data.max_ratio and beyond > 0.0005:
        yield Setting("data.max_ratio", f"{fair:g}", f"99.5 % are less uneven, but {beyond:.2%} more than twice so")


def check_amounts(corpus: CheckedCorpus) -> Iterator[Setting]:
    """What follows from how many pairs there are, as config.yaml has it."""
    (_, train), (_, held_out) = corpus.split.values()
    every, things = len(train) + len(held_out), f"{unit_name(corpus.config.data)}s"
    batch = corpus.config.training.batch_tokens
    if "validation" not in corpus.parts and len(held_out) > 5000:
        why = f"2,000 {things} tell as much as {len(held_out):,}, in less time"
        yield Setting("data.validation_fraction", f"{2000 / every:.2g}", why)
    if "validation" not in corpus.parts and len(held_out) < 100 and every >= 1000:
        why = f"{len(held_out):,} {things} are too few to tell one model from another"
        yield Setting("data.validation_fraction", f"{min(500 / every, 0.2):.2g}", why)
    if len(train) >= 1_000_000 and isinstance(batch, int) and batch < 4096:
        yield Setting("training.batch_tokens", "auto", f"{len(train):,} {things} are a large corpus")


# --- The diagnosis ------------------------------------------------------------------------------------------------

CHECKS: tuple[Callable[[CheckedCorpus], Iterator[Finding | Setting]], ...] = (
    check_letters, check_sides, check_lengths, check_repeats, check_languages, check_tokens, check_amounts
)  # fmt: skip


def check_corpus(config: Config) -> Diagnosis:
    """Look at the corpus that a training with this config would use.

    Raises DataError for what cannot be read, ConfigError for a vocabulary that has no room.
    """
    corpus = CheckedCorpus.read(config)
    found = [thing for check in CHECKS for thing in check(corpus)]
    findings = [thing for thing in found if isinstance(thing, Finding)]
    kinds = list(KINDS)
    return Diagnosis(
        format=1,
        source_lang=config.data.source_lang,
        target_lang=config.data.target_lang,
        splits=[Split(part.split, len(part.pairs), part.unit) for part in corpus.parts.values()],
        sampled=min(SAMPLE, len(corpus.split["train"][1])),
        findings=sorted(findings, key=lambda finding: (LEVELS.index(finding.level), kinds.index(finding.name))),
        settings=[thing for thing in found if isinstance(thing, Setting)],
    )


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """The diagnosis as text for a terminal, at most 100 columns wide but for the settings."""
    plain = diagnosis.source_lang is None
    read = ", ".join(f"{split.read:,} {split.name}" for split in diagnosis.splits)
    languages = diagnosis.target_lang if plain else f"{diagnosis.source_lang} to {diagnosis.target_lang}"
    title = f"{languages}: {read} {'text' if plain else 'pair'}s"
    if diagnosis.sampled == SAMPLE:
        title += f"; tokens are those of {SAMPLE:,}"
    found, units = (
        [console.shorten(console.visible(title), 100), ""],
        {split.name: split.unit for split in diagnosis.splits},
    )
    for finding in diagnosis.findings:
        share = finding.count / finding.of
        share = "< 0.01 %" if share < 0.0001 else f"{100 * share:.2f} %"
        head = f"{finding.level:<5}  {finding.split:<10}  {finding.count:>9,}  {share:>8}  "
        wrapped = textwrap.wrap(console.visible(finding.text), 100 - len(head))
        found += [(" " * len(head) if i else head) + line for i, line in enumerate(wrapped)]
        for each in finding.examples:
            sides = [each.source, each.target][plain:]
            one = " | ".join(sides)
            texts = [one] if console.display_width(one) <= 76 else [console.shorten(side, 76) for side in sides]
            number = f"       {units[finding.split]} {each.line:,}"
            found += [f"{'' if i else number:<22}  {text}" for i, text in enumerate(texts)]
    found += [] if diagnosis.findings else ["nothing to complain about"]
    options = [f"--{setting.key} {setting.value}" for setting in diagnosis.settings]
    width = max(map(len, options), default=0)
    found += ["", "to set:"] if options else []
    return found + [
        f"  {option:<{width}}   {each.why}" for option, each in zip(options, diagnosis.settings, strict=True)
    ]


# --- Command line -------------------------------------------------------------------------------------------------


def main(options: tuple[Config, bool]) -> None:
    """Check the corpus of a config and print the diagnosis, as JSON where that is asked for."""
    config, as_json = options
    diagnosis = check_corpus(config)
    text = (
        json_bytes(asdict(diagnosis))
        if as_json
        else "".join(f"{line}\n" for line in diagnosis_lines(diagnosis)).encode()
    )
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
