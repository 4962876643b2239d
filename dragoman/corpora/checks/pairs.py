"""Faults of single pairs, and pairs that occur again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from dragoman.corpora.checks.corpus import CheckedCorpus
from dragoman.corpora.checks.findings import Finding, SuggestedSetting
from dragoman.corpora.checks.letters import UNREADABLE
from dragoman.corpora.formats.languages import within_one
from dragoman.corpora.sources import unit_name


def check_letters(corpus: CheckedCorpus) -> Iterator[Finding | SuggestedSetting]:
    """Report what cannot be read, and text that was once decoded wrongly."""
    for split in corpus.splits.values():
        for name, which in split.flaws.items():
            yield from split.finding(name, which)
    bad = sum(len(split.flaws[flaw]) for split in corpus.splits.values() for flaw in UNREADABLE[:2])
    if bad and corpus.config.data.on_bad_line == "error":
        why = f"drops the {bad:,} {unit_name(corpus.config.data)}s that cannot be read"
        yield SuggestedSetting("data.on_bad_line", "skip", why)


FEW = 5  # words that may well be the same in both languages: names, titles
MOST = 0.8  # share of the words
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|&(?:[a-z]+|#[0-9]+|#x[0-9a-f]+);")
_ADDRESS = re.compile(r"https?://|www\.[a-z0-9]")
# Numbers of three or more digits, without thousands separators. Smaller ones are often spelled out, and a time of day
# such as 2:30 becomes 14 h 30. Even so, in Tatoeba a quarter of the rest is spelled out.
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
    """Report pairs whose two texts cannot be translations, or hold markup."""
    for split in corpus.splits.values():
        others = np.concatenate([split.whole, *(np.array(split.flaws[flaw], int) for flaw in UNREADABLE)])
        yield from split.finding("empty", np.setdiff1d(np.arange(len(split.pairs)), others))
        for name, test in TESTS.items():
            if name.endswith("copied") and within_one(corpus.config.data):
                continue
            yield from split.finding(name, split.where(test))
        numbered = split.where(lambda source, target: _NUMBER.search(source) or _NUMBER.search(target))
        if len(corpus.sides) == 2 and len(numbered) >= 10:
            other = [i for i in numbered if _numbers(split.pairs[i][0]) != _numbers(split.pairs[i][1])]
            yield from split.finding("numbers", other, len(numbered))


def check_repeats(corpus: CheckedCorpus) -> Iterator[Finding]:
    """Report pairs that repeat within training, or from training in another split."""
    train, *others = corpus.splits.values()
    known = train.hashes[train.whole]
    again = _again(_pair_hashes(known))
    yield from train.finding("duplicates", train.whole[again])
    if len(corpus.sides) == 2:
        for side, name in enumerate(("same_source", "same_target")):
            yield from train.finding(name, train.whole[~again][_again(known[~again, side])])
    for split in others:
        hashes = split.hashes[split.whole]
        seen = np.isin(hashes[:, corpus.sides[0]], known[:, corpus.sides[0]])
        pairs = np.isin(_pair_hashes(hashes[seen]), _pair_hashes(known)).sum()
        what = f"source ({pairs:,} with the same target) is" if len(corpus.sides) == 2 else "text is"
        yield from split.finding("overlap", split.whole[seen], what=what)


def _again(keys: np.ndarray) -> np.ndarray:
    """Whether each key occurred before."""
    again = np.ones(len(keys), bool)
    again[np.unique(keys, return_index=True)[1]] = False
    return again


def _pair_hashes(hashes: np.ndarray) -> np.ndarray:
    return hashes[:, 0] * 31 + hashes[:, 1]  # wraps around on purpose
