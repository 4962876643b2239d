"""From sentence pairs to batches: ids in flat arrays, put together by length.

Use:
    data = prepare(config, run / "data", print)                  # see `preparing`
    for indices in batch_plan(*data.train.lengths, config.training.batch_tokens, seed, epoch):
        batch = make_batch(data.train, indices)              # .source, .target_in, .target_out, .tokens

Plain text, for a language model, is pairs with an empty source: in a batch it is an end token and nothing else.

The batches and their order are a pure function of (lengths, seed, epoch), so that a resumed run needs to remember
nothing but the number of its next batch.

Shapes are written in these letters:
    N pairs   B rows of a batch   S source positions   T target positions
A row is one sentence: its ids, the end token, and then padding.

Limits: a plan takes 45 bytes a pair.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from config import EOS, PAD, SOS, SPECIAL_TOKENS, UNK
from corpus import MOST_OFTEN, Pair
from tokenizer import UNSEEN, Tokenizer

CHUNK = 10_000  # sentences that are tokenised at a time
SHARD = 50_000  # pairs that are worked on at a time


# --- Ids ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncodedSide:
    """The ids of N sentences of one language, in one flat array: sentence i is ids[offsets[i] : offsets[i + 1]]."""

    ids: np.ndarray  # uint16, or int32 for a large vocabulary
    offsets: np.ndarray  # (N + 1), int64

    @classmethod
    def of(cls, lengths: np.ndarray, ids: np.ndarray) -> EncodedSide:
        return cls(ids, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    @property
    def lengths(self) -> np.ndarray:
        """(N), int32, the end token included."""
        lengths = np.empty(len(self.offsets) - 1, np.int32)
        np.subtract(self.offsets[1:], self.offsets[:-1], out=lengths, casting="same_kind")
        lengths += 1
        return lengths

    def where(self, keep: np.ndarray) -> EncodedSide:
        """The sentences that `keep` (N, boolean) selects."""
        lengths = np.diff(self.offsets)
        return EncodedSide.of(lengths[keep], self.ids[np.repeat(keep, lengths)])

    def joined(self, rows: np.ndarray) -> np.ndarray:
        """The ids of the given sentences, any number of times each, one after the other."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        # Every token at once: where its row starts in `ids`, plus how many tokens of the row came before it.
        shift = starts - (np.cumsum(lengths) - lengths)
        return self.ids[np.repeat(shift, lengths) + np.arange(lengths.sum())]

    def padded(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The given sentences (B) as a block (B, longest) of ids, end token and padding, and their lengths (B)."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        columns = np.arange(lengths.max(initial=0) + 1)
        block = np.where(columns == lengths[:, None], EOS, PAD)
        block[columns < lengths[:, None]] = self.joined(rows)
        return block, lengths + 1


def columns(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """The sources and the targets of pairs."""
    return [source for source, _ in pairs], [target for _, target in pairs]


@dataclass(frozen=True)
class EncodedPairs:
    """N sentence pairs as ids."""

    source: EncodedSide
    target: EncodedSide

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    @property
    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Those of the sources (N) and those of the targets (N), the end tokens included."""
        return self.source.lengths, self.target.lengths

    def lengths_of(self, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Likewise, of the given pairs, any number of times each; None: of all."""
        source, target = self.lengths
        return (source, target) if rows is None else (source[rows], target[rows])


def id_type(tokenizer: Tokenizer) -> type[np.integer]:
    return np.uint16 if len(tokenizer) <= 2**16 else np.int32


def encode_side(texts: Sequence[str], tokenizer: Tokenizer) -> EncodedSide:
    """Tokenise sentences, in chunks, since a list of Python's numbers takes 20 times the room of an array."""
    dtype = id_type(tokenizer)
    lengths, ids = [np.zeros(0, np.int64)], [np.zeros(0, dtype)]
    for start in range(0, len(texts), CHUNK):
        rows = tokenizer.encode_batch(texts[start : start + CHUNK])
        lengths.append(np.fromiter(map(len, rows), np.int64))
        ids.append(np.fromiter(chain.from_iterable(rows), dtype))
    return EncodedSide.of(np.concatenate(lengths), np.concatenate(ids))


def encode_pairs(pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer) -> EncodedPairs:
    """Tokenise both sides of cleaned pairs."""
    sources, targets = columns(pairs)
    return EncodedPairs(encode_side(sources, source), encode_side(targets, target))


# --- Batches ------------------------------------------------------------------------------------------------------

# How far a pair may stray among pairs of its length, in tokens by which its sides differ: at 0 an epoch would be much
# like the one before it, at 8 there is twice as much padding (6 % rather than 3 % of Multi30k).
STRAY = 2.0


def batch_plan(
    source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Which pairs make which batch, in the order in which they are trained on; each pair is in one batch.

    Args:
        source_lengths, target_lengths: (N), the end tokens included
        batch_tokens: limit of rows x longest sentence of either side; a longer pair is a batch of its own
        seed, epoch: the same numbers give the same plan, on any machine
    """
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    longest = np.maximum(source_lengths, target_lengths)
    # Pairs of a length are sorted by which side is the longer one, to and fro, so that where one length ends and the
    # next begins both sides go on as they are.
    lean = source_lengths - target_lengths + STRAY * random.random(len(longest))
    order = np.argsort(np.where(longest % 2, lean, -lean), kind="stable")
    small = longest.astype(np.min_scalar_type(longest.max(initial=0)))  # numbers of one or two bytes sort in no time
    order = order[np.argsort(small[order], kind="stable")]
    longest = longest[order]
    batches = []
    start = 0
    while start < len(order):
        ahead = longest[start : start + max(1, batch_tokens // longest[start])]
        sizes = ahead * np.arange(1, len(ahead) + 1)  # of the batch that ends with each row; they only grow
        rows = max(1, int(np.searchsorted(sizes, batch_tokens, side="right")))
        batches.append(order[start : start + rows])
        start += rows
    return [batches[i] for i in random.permutation(len(batches))]


def rows_of(weights: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """The pairs that an epoch sees, each by its number, as often as its weight (N) says: 2.5 is two or three times.

    Which are seen once more is drawn from (seed, epoch), among all pairs of that weight; how many they are is the same
    in every epoch.
    """
    random = np.random.default_rng((seed, epoch))
    times = np.floor(weights).astype(np.int64)
    for weight in np.unique(weights):
        alike = np.flatnonzero(weights == weight)
        more = round(float(weight % 1) * len(alike))
        times[random.permutation(alike)[:more]] += 1
    return np.repeat(np.arange(len(weights)), times)


def balanced(weights: np.ndarray, parts: np.ndarray, temperature: float) -> np.ndarray:
    """The weights of pairs (N) that are parted, raised where a part (its number for each, N) has few.

    A part of share p is seen in proportion to p ** (1 / temperature) (Arivazhagan et al. 2019), the largest as before.
    """
    totals = np.bincount(parts, weights)
    factors = np.divide(totals, totals.max(), out=np.ones_like(totals), where=totals > 0) ** (1 / temperature - 1)
    return (weights * np.minimum(factors, MOST_OFTEN)[parts]).astype(np.float32)


def plan_of(
    count: int, source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """As `batch_plan`, in so many batches, for which their limit may have to be another one.

    With subword dropout lengths change from epoch to epoch, but the number of updates, by which the rate falls, must
    not. `count` is that of the very pairs as they are, and at most so many pairs are there.
    """
    limit = batch_tokens
    while len(plan := batch_plan(source_lengths, target_lengths, limit, seed, epoch)) > count:
        limit = max(limit + 1, math.ceil(limit * len(plan) / count))
    plan.sort(key=len)
    while len(plan) < count:  # by a few
        for half in np.array_split(plan.pop(), 2):
            insort(plan, half, key=len)
    random = np.random.default_rng((seed, epoch))
    return [plan[i] for i in random.permutation(len(plan))]


@dataclass(frozen=True)
class Batch:
    """Pairs as padded ids, all int64. Position t of target_out is the token that follows position t of target_in."""

    source: Tensor  # (B, S): ids, end, padding
    target_in: Tensor  # (B, T): start, ids, padding
    target_out: Tensor  # (B, T): ids, end, padding
    indices: np.ndarray  # (B): which pairs these are
    tokens: int  # of the target, the end tokens included, padding not
    source_tokens: int  # likewise

    @property
    def padding(self) -> float:
        """Share of the positions of both sides that hold no token."""
        return 1 - (self.source_tokens + self.tokens) / (self.source.numel() + self.target_out.numel())

    def to(self, device: torch.device | str) -> Batch:
        """The batch on a device."""
        return self.moved(lambda ids: ids.to(device))

    def moved(self, how: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with its ids in another memory."""
        source, target_in, target_out = map(how, (self.source, self.target_in, self.target_out))
        return replace(self, source=source, target_in=target_in, target_out=target_out)

    def halves(self) -> list[Batch]:
        """The first and the second half of at least two rows, each no wider than its own sentences are."""
        middle = len(self.indices) // 2
        return [self._rows(slice(middle)), self._rows(slice(middle, None))]

    def share(self, index: int, count: int) -> Batch:
        """What rank `index` of `count` computes of it: every count-th row, so that each has as much to do.

        Of fewer rows than ranks, whoever has none computes the first one for nothing, as `tokens` of 0 tells: in what
        follows all take part.
        """
        if count == 1:
            return self
        if index >= len(self.indices):
            return replace(self._rows(slice(1)), tokens=0, source_tokens=0)
        return self._rows(slice(index, None, count))

    def _rows(self, rows: slice) -> Batch:
        source, target = self.source[rows], self.target_out[rows]
        of_source, of_target = ((ids != PAD).any(0) for ids in (source, target))
        return Batch(
            source[:, of_source],
            self.target_in[rows][:, of_target],
            target[:, of_target],
            self.indices[rows],
            int((target != PAD).sum()),
            int((source != PAD).sum()),
        )


def make_batch(pairs: EncodedPairs, indices: np.ndarray) -> Batch:
    """The batch of the given pairs (B)."""
    source, source_lengths = pairs.source.padded(indices)
    target, target_lengths = pairs.target.padded(indices)
    started = np.where(target == EOS, PAD, target)[:, :-1]
    started = np.concatenate([np.full((len(indices), 1), SOS), started], axis=1)
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(started),
        torch.from_numpy(target),
        indices,
        int(target_lengths.sum()),
        int(source_lengths.sum()),
    )


def have_room(pairs: EncodedPairs, upsampling: int) -> np.ndarray:
    """Which targets fit into the places of an encoder-only model: (N), boolean.

    A token takes a place, and so does what parts it from one that equals it, see `ctc`; the end token takes none.
    """
    needed = [np.zeros(0, np.int64)]
    for start in range(0, len(pairs), SHARD):
        offsets = pairs.target.offsets[start : start + SHARD + 1]
        ids = pairs.target.ids[offsets[0] : offsets[-1]]
        again = np.zeros(len(ids) + 1, np.int64)  # how often, up to each token, one follows upon its like
        again[2:] = np.cumsum(ids[1:] == ids[:-1])
        starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
        needed.append(ends - starts + again[ends] - again[np.minimum(starts + 1, ends)])
    return np.concatenate(needed) <= upsampling * pairs.source.lengths


def twins(source: Tokenizer, target: Tokenizer) -> np.ndarray:
    """For each source id the target id of the very same word, if that is likely to be a name, a number or the like.

    -1 stands for no such word: pieces of words have none, and words of one or two letters (a, in, no) mean different
    things in two languages.
    """
    found = np.full(len(source), -1)
    if UNK in source.encode(UNSEEN):
        there = target.vocabulary
        for word, i in source.vocabulary.items():
            letters = sum(map(str.isalnum, word))
            if word not in SPECIAL_TOKENS and word not in source.tags and (letters > 2 or any(map(str.isdigit, word))):
                found[i] = there.get(word, -1)
    return found


def without_copied(batch: Batch, twin: np.ndarray, rate: float, random: np.random.Generator) -> Batch:
    """The batch with [UNK], at the given rate, for words that a source and its target share, on both sides.

    What stands on both sides is copied, be it the name of a person or a number. A model that has never seen [UNK] in
    the place of one makes up some word for the next name that it does not know; now it learns to say [UNK] there, and
    `Translator` puts the name.

    Args:
        twin: see `twins`
    """
    target, twin_of = batch.target_out.numpy(), twin[batch.source.numpy()]  # (B, T), (B, S)
    drawn = (random.random(twin_of.shape) < rate) & (twin_of >= 0)  # (B, S)
    if not drawn.any():  # with pieces of words: always
        return batch
    same = (twin_of[:, :, None] == target[:, None, :]) & drawn[:, :, None]  # (B, S, T)
    # A word that occurs twice is dropped twice.
    of_target = same.any(1)  # (B, T)
    of_source = (twin_of[:, :, None] == np.where(of_target, target, -2)[:, None, :]).any(2)  # (B, S)
    started = np.pad(of_target[:, :-1], ((0, 0), (1, 0)))
    return replace(
        batch,
        source=batch.source.masked_fill(torch.from_numpy(of_source), UNK),
        target_in=batch.target_in.masked_fill(torch.from_numpy(started), UNK),
        target_out=batch.target_out.masked_fill(torch.from_numpy(of_target), UNK),
    )


def source_batch(sources: Sequence[Sequence[int]]) -> Tensor:
    """Sentences to translate, as ids without an end token, made (B, S)."""
    lengths = np.fromiter(map(len, sources), np.int64)
    side = EncodedSide.of(lengths, np.fromiter(chain.from_iterable(sources), np.int64))
    return torch.from_numpy(side.padded(np.arange(len(sources)))[0])
