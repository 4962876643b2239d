"""Lines that read like the other side, and lines in a script that their side hardly uses.

The log-odds of a line are the sum of those of its character trigrams, estimated from how often each occurs on the two
sides of training (T. Dunning, "Statistical Identification of Language", 1994).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from dragoman.corpora import language_choice
from dragoman.corpora.checks.corpus import CheckedCorpus, CheckedSplit, sample
from dragoman.corpora.checks.findings import Finding, SuggestedSetting
from dragoman.corpora.checks.scripts import common_scripts, script_of
from dragoman.corpora.formats.languages import language_name, within_one
from dragoman.corpora.formats.units import languages_of
from dragoman.corpora.language_choice import is_other, spoken_in

BITS = 17  # of a trigram's hash; the other trigrams of a line outvote collisions
CHUNK = 20_000  # lines processed at a time
LONGEST = 1000  # characters of a line that are looked at
SURE = 20.0  # nats, and fewest characters: no good line of Multi30k, Tatoeba or the phrasebook deviates so far


def check_languages(corpus: CheckedCorpus) -> Iterator[Finding]:
    """Report swapped pairs, pairs in one language, and lines in a strange script."""
    train = corpus.splits["train"]
    trigrams, used = np.full((2, 2**BITS), 0.5), np.zeros((2, sys.maxunicode + 1))
    for side in corpus.sides:
        for codes in _codes(train, sample(train.whole), side):
            trigrams[side] += np.bincount(_trigrams(codes), minlength=2**BITS)
            used[side] += np.bincount(codes, minlength=sys.maxunicode + 1)
    source, target = np.log(trigrams / trigrams.sum(1, keepdims=True))
    odds = np.clip(source - target, -3, 3).astype(np.float32)  # clipped, since a single name proves nothing
    for split in corpus.splits.values():
        strange = np.zeros(len(split.whole), bool)
        log_odds = np.zeros((2, len(split.whole)))
        for side in corpus.sides:
            common = common_scripts({letter: int(used[side, letter]) for letter in np.flatnonzero(used[side]).tolist()})
            found = [_judge(codes, odds, common) for codes in _codes(split, split.whole, side)]
            log_odds[side] = np.concatenate([of_lines for of_lines, _ in found] or [[]])
            strange |= np.concatenate([of_lines for _, of_lines in found] or [np.zeros(0, bool)])
        yield from split.finding("script", split.whole[strange])
        if within_one(corpus.config.data):
            continue
        sizes, hashes = split.sizes[split.whole], split.hashes[split.whole]
        long = (sizes.min(1) >= SURE) & (hashes[:, 0] != hashes[:, 1])
        like_target, like_source = (log_odds[0] < -SURE) & long, (log_odds[1] > SURE) & long
        yield from split.finding("swapped", split.whole[like_target & like_source])
        yield from split.finding("language", split.whole[like_target ^ like_source])


def check_labels(corpus: CheckedCorpus) -> Iterator[Finding | SuggestedSetting]:
    """Report sides in another language than the settings say, and suggest that language."""
    train, data = corpus.splits["train"], corpus.config.data
    rows = train.whole[: language_choice.READ]
    sides = {
        key: spoken_in(train.texts(rows, side)) for side, key in enumerate(language_choice.KEYS) if side in corpus.sides
    }
    for (key, side), expected in zip(sides.items(), languages_of(data), strict=True):
        if side and is_other(side, expected):
            count = round(side.share * len(rows))
            names = {"language": language_name(side.language), "expected": language_name(expected)}
            yield from train.finding("label", [], len(rows), count, **names)
            yield SuggestedSetting(key, side.language, f"{side.share:.0%} of the lines whose language is clear")


def _codes(split: CheckedSplit, rows: np.ndarray, side: int) -> Iterator[np.ndarray]:
    """Yield many lines as code points, with a line feed before, between and after them."""
    for start in range(0, len(rows), CHUNK):
        texts = (text[:LONGEST] for text in split.texts(rows[start : start + CHUNK], side))
        yield np.frombuffer("\n".join(["", *texts, ""]).lower().encode("utf-32-le"), np.uint32)


def _trigrams(codes: np.ndarray) -> np.ndarray:
    """Hash every three consecutive code points."""
    a, b, c = (codes[i : len(codes) - 2 + i] * np.uint32(k) for i, k in enumerate((0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35)))
    return (a ^ b ^ c) >> np.uint32(32 - BITS)


def _judge(codes: np.ndarray, odds: np.ndarray, common: set[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return for each line its log-odds, and whether most of its letters, at least three, are in no common script."""
    starts = np.flatnonzero(codes == 10)[:-1]
    values = np.where(codes[1:-1] == 10, 0, odds[_trigrams(codes)])  # without trigrams that span two lines
    seen = np.flatnonzero(np.bincount(codes))
    strange, letters = np.zeros((2, seen[-1] + 1), np.int32)
    for letter in seen.tolist():
        script = script_of(letter)
        strange[letter], letters[letter] = script not in common, script != ""
    number_strange, number = (np.add.reduceat(of[codes], starts) for of in (strange, letters))
    return np.add.reduceat(values, starts), (number_strange > 2) & (2 * number_strange > number)
