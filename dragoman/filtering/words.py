"""Many texts as arrays of words, for the lexicon, the languages and the duplicates.

A word is a run of letters, in lower case; letters of scripts without spaces stand alone. All numbers are one word, "0".
Words that begin with the same STEM letters share an id, which inflected languages need.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import islice

import numpy as np

STEM = 5  # letters
VOCABULARY = 60_000  # most frequent stems
MOST_KNOWN = 500_000  # words whose hashes are remembered
BLOCK = 10_000  # texts that are searched at once, which is faster than one by one
# Letters of Thai, Lao, Burmese, Khmer, Japanese and Chinese stand alone.
_ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_ALONE}]|[^\W\d_{_ALONE}]+|\d+")
_WORD_OR_END = re.compile(rf"{_WORD.pattern}|\n")
_NUMBER = "0"  # the word that stands for all numbers
_END = "\n"  # of a text among others


def words_of(text: str) -> list[str]:
    """Return the words of a text."""
    return [_NUMBER if word.isdecimal() else word for word in _WORD.findall(text.lower())]


def digest(text: str) -> int:
    """Return a hash of 64 bits that is the same in every process."""
    return digest_bytes(text.encode(errors="surrogatepass"))


def digest_bytes(content: bytes) -> int:
    """Like `digest`, for bytes."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


_word_digest = lru_cache(MOST_KNOWN)(digest)


@dataclass(frozen=True)
class Words:
    """N texts with T words in all."""

    ids: np.ndarray  # (T), of stems; 0: unknown
    hashes: np.ndarray  # (T), uint64, of whole words
    sizes: np.ndarray  # (N), words of each text

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each text starts, (N)."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def owners(self) -> np.ndarray:
        """The text of each word, (T)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def take(self, rows: np.ndarray) -> Words:
        """Return some of the texts."""
        at = ranges(self.starts[rows], self.sizes[rows])
        return Words(self.ids[at], self.hashes[at], self.sizes[rows])

    def means(self, values: np.ndarray, start: float = 0, end: float = 1) -> np.ndarray:
        """Return the mean of the values (T) in a part of each text, from one share of its words to another; (N)."""
        first, last = (self.starts + np.floor(self.sizes * share).astype(np.int64) for share in (start, end))
        sums = np.concatenate([[0], np.cumsum(values)])
        return (sums[last] - sums[first]) / np.maximum(last - first, 1)


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Concatenate the ranges that start at `starts` and have `sizes` elements."""
    offsets = np.cumsum(sizes) - sizes
    return np.repeat(starts - offsets, sizes) + np.arange(sizes.sum())


class Encoder:
    """Turns texts into `Words`."""

    def __init__(self, stems: Sequence[str]) -> None:
        self.stems = {stem: number for number, stem in enumerate(stems, 1)}

    @classmethod
    def learn(cls, texts: Iterable[str]) -> Encoder:
        """Give an id to each stem that occurs twice."""
        words: Counter[str] = Counter()
        texts = iter(texts)
        while block := list(islice(texts, BLOCK)):
            words.update(words_of("\n".join(block)))
        counts: Counter[str] = Counter()
        for word, count in words.items():
            counts[word[:STEM]] += count
        return cls([stem for stem, count in counts.most_common(VOCABULARY) if count > 1])

    def encode(self, texts: Sequence[str]) -> Words:
        """Encode many texts, none of which has a line feed."""
        numbers = {_END: 0}  # of the distinct words
        words = _WORD_OR_END.findall("\n".join([*texts, ""]).lower())
        flat = np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64)
        ends = np.flatnonzero(flat == 0)
        sizes = np.diff(ends, prepend=-1) - 1
        flat = np.delete(flat, ends)
        distinct = [_NUMBER if word.isdecimal() else word for word in numbers]
        ids = np.array([self.stems.get(word[:STEM], 0) for word in distinct], np.int64)
        hashes = np.array([_word_digest(word) for word in distinct], np.uint64)
        return Words(ids[flat], hashes[flat], sizes)
