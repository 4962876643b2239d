"""Subword dropout: in training, a word is now and then cut into other pieces than usual.

Use:
    dropout = SubwordDropout(pairs, source, target, rate=0.1, longest=128, seed=1)
    pairs_of_epoch = dropout(epoch)                                      # the same pairs, in other pieces

A model that has only ever seen "running" as one piece knows nothing of "run". Shown "runn" and "ing" or "r" and
"unning" as well, it learns what pieces have in common, and how a word is spelt: worth most where data are few.

bpe: BPE-dropout (Provilkov et al. 2020), each merge is left out with that probability whenever it could be made.
unigram: each piece of several bytes is left out with that probability wherever it could stand, and the likeliest
segmentation of what remains is taken; after MaxMatch-Dropout (Hiraoka 2022).

The library's own dropout cannot be seeded. Here all is a function of (seed, epoch): each word has VARIANTS, each a
function of the seed, the word and its number, and which one a word has at which place, the epoch draws. So a resumed
run repeats it, and a variant is made once, when it is first drawn.

Limits: where blanks do not part words, as in Chinese, a run of more than LONG pieces is parted into pairs of pieces,
and nothing is joined across these. The table of words takes 45 bytes a token while it is made, and each epoch a copy of
all ids. Lengths grow (by a quarter at 0.1 with bpe), and with them the batches, whose number stays; for an encoder-only
model a target may outgrow its places, and then teaches nothing in that epoch.

Shapes: N sentences   W words of all of them   U different words
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise

import numpy as np

from dragoman.dataset import EncodedPairs, EncodedSide, Tokenizer
from dragoman.settings import SPECIAL_TOKENS

VARIANTS = 32  # of a word; the same one may come twice
LONG = 8  # pieces from one blank to the next
BLANK = "Ġ"  # how byte-level pieces write the blank with which a word begins
CHUNK = 100_000  # sentences that are cut at a time, to bound the memory that it takes


class SubwordDropout:
    """Cuts the words of training pairs into other pieces in every epoch."""

    def __init__(
        self, pairs: EncodedPairs, source: Tokenizer, target: Tokenizer, rate: float, longest: int, seed: int
    ) -> None:
        """rate is that at which merges, or pieces, are left out; a side that would then have more than `longest` tokens
        stays as it is."""
        self.source = SideDropout(pairs.source, Divider(source, rate, seed), longest)
        self.target = SideDropout(pairs.target, Divider(target, rate, seed), longest)
        self.seed = seed

    def __call__(self, epoch: int) -> EncodedPairs:
        """The pairs as that epoch has them."""
        generators = np.random.default_rng((self.seed, epoch)).spawn(2)
        return EncodedPairs(self.source(generators[0]), self.target(generators[1]))


class SideDropout:
    """Cuts the words of one side into other pieces. A word is what stands from one blank to the next.

    Where one ends and the next begins makes no difference while nothing is left out: what BPE has not joined in the
    end, it has joined at no time.
    """

    def __init__(self, side: EncodedSide, divider: Divider, longest: int) -> None:
        self.divider, self.longest, self.dtype = divider, longest, side.ids.dtype
        begins = divider.begins[side.ids]
        begins[side.offsets[:-1][np.diff(side.offsets) > 0]] = True
        starts = np.flatnonzero(begins)  # of the words, in `ids`
        sizes = np.diff(np.append(starts, len(side.ids)))
        places = np.arange(len(side.ids)) - np.repeat(starts, sizes)
        starts = np.flatnonzero((places == 0) | ((places % 2 == 0) & np.repeat(sizes > LONG, sizes)))
        self.offsets = np.searchsorted(starts, side.offsets)  # (N + 1), of the sentences, in `words`
        kinds, first, words = np.unique(hashes(side.ids, starts), return_index=True, return_inverse=True)
        self.words = words.astype(np.int32)  # (W), the number of each word among the different ones
        ends = np.append(starts[1:], len(side.ids))
        self.kinds = [tuple(side.ids[starts[i] : ends[i]].tolist()) for i in first]
        # Those variants that were drawn so far, one after the other; first of all the words as they are.
        self.variants = EncodedSide.of(*flat(self.kinds, self.dtype))
        self.numbers = np.full(len(kinds) * VARIANTS, -1, np.int32)  # of each variant among these; -1: not drawn yet

    def __call__(self, generator: np.random.Generator) -> EncodedSide:
        """The side with words cut as the generator draws it."""
        parts = [self._cut(generator, at, at + CHUNK) for at in range(0, max(1, len(self.offsets) - 1), CHUNK)]
        lengths, ids = (np.concatenate(each) for each in zip(*parts, strict=True))
        return EncodedSide.of(lengths, ids)

    def _cut(self, generator: np.random.Generator, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """The lengths and the ids of sentences start to end."""
        offsets = self.offsets[start : end + 1]
        words = self.words[offsets[0] : offsets[-1]].astype(np.int64)
        drawn = words * VARIANTS + generator.integers(VARIANTS, size=len(words))
        self._make(np.unique(drawn[self.numbers[drawn] < 0]))
        variants = self.numbers[drawn]
        # A sentence that grows too long keeps its words as they are, whose numbers are those of the words.
        long = self._lengths(variants, offsets) > self.longest
        variants = np.where(np.repeat(long, np.diff(offsets)), words, variants)
        return self._lengths(variants, offsets), self.variants.joined(variants)

    def _lengths(self, variants: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Tokens of each sentence, of words in these variants."""
        ends = np.concatenate([[0], np.cumsum(np.diff(self.variants.offsets)[variants])])
        return np.diff(ends[offsets - offsets[0]])

    def _make(self, missing: np.ndarray) -> None:
        """Make variants that no epoch has drawn before."""
        new = [self.divider.variant(self.kinds[i // VARIANTS], i % VARIANTS) for i in missing.tolist()]
        lengths, ids = flat(new, self.dtype)
        self.numbers[missing] = np.arange(len(new)) + len(self.variants.offsets) - 1
        known = np.diff(self.variants.offsets)
        self.variants = EncodedSide.of(np.concatenate([known, lengths]), np.concatenate([self.variants.ids, ids]))


def flat(rows: list[tuple[int, ...]], dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of rows, and all their numbers one after the other."""
    return np.fromiter(map(len, rows), np.int64), np.fromiter((i for row in rows for i in row), dtype)


def hashes(ids: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """A number of 64 bits for each word of `ids`, (W): by it, equal words are found without a loop over all."""
    if not len(starts):
        return np.zeros(0, np.uint64)
    places = np.arange(len(ids)) - np.repeat(starts, np.diff(np.append(starts, len(ids))))
    powers = np.full(int(places.max()) + 1, 0x9E3779B97F4A7C15, np.uint64).cumprod(dtype=np.uint64)
    return np.add.reduceat((ids.astype(np.uint64) + np.uint64(1)) * powers[places], starts)


class Divider:
    """Cuts words into pieces of a tokenizer, of which each is left out at the given rate."""

    def __init__(self, tokenizer: Tokenizer, rate: float, seed: int) -> None:
        model = json.loads(tokenizer.to_json())["model"]
        self.ids = tokenizer.vocabulary
        self.names = sorted(self.ids, key=lambda name: self.ids[name])
        self.rate, self.seed = rate, seed
        self.tags = frozenset(tokenizer.tags.values())
        self.is_bpe = model["type"] == "BPE"
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])} if self.is_bpe else {}
        # The library gives the special tokens the score of certainty; in a text they are letters like any other.
        special = {*SPECIAL_TOKENS, *tokenizer.tags}
        self.scores = {} if self.is_bpe else {name: score for name, score in model["vocab"] if name not in special}

    @cached_property
    def begins(self) -> np.ndarray:
        """Which pieces begin a word."""
        return np.array([name.startswith(BLANK) for name in self.names])

    def variant(self, word: tuple[int, ...], number: int) -> tuple[int, ...]:
        """The ids of a word, given by ids, in its variant of that number. A tag, a word for itself, has but one."""
        if word[0] in self.tags:
            return word
        text = "".join(self.names[i] for i in word)
        draw = random.Random(f"{self.seed} {number} {text}").random  # noqa: S311

        def dropped() -> bool:
            return draw() < self.rate

        pieces = merged(text, self.ranks, dropped) if self.is_bpe else likeliest(text, self.scores, dropped)
        return tuple(self.ids[piece] for piece in pieces)


def merged(word: str, ranks: Mapping[tuple[str, ...], int], dropped: Callable[[], bool]) -> list[str]:
    """The pieces of a word by BPE: the earliest learnt of all merges that are not dropped is made, again and again."""
    pieces = list(word)
    while True:
        possible = [
            (rank, at)
            for at, pair in enumerate(pairwise(pieces))
            if (rank := ranks.get(pair)) is not None and not dropped()
        ]
        if not possible:
            return pieces
        _, at = min(possible)
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


def likeliest(word: str, scores: Mapping[str, float], dropped: Callable[[], bool]) -> list[str]:
    """The pieces of a word of the highest sum of log-probabilities (Viterbi), of those pieces that are not dropped."""
    best: list[tuple[float, int]] = [(0.0, 0)]  # for each end the score, and where the last piece begins
    for end in range(1, len(word) + 1):
        found = (-math.inf, end - 1)
        for start in range(end):
            score = scores.get(word[start:end])
            if score is not None and (end - start == 1 or not dropped()):
                found = max(found, (best[start][0] + score, start))
        best.append(found)
    pieces, end = [], len(word)
    while end:
        start = best[end][1]
        pieces.append(word[start:end])
        end = start
    return pieces[::-1]
