"""Hide words of training pairs behind placeholders, so that a model learns to copy what it cannot translate.

    hiding = Hiding(data.source, data.target, data.train, max_length=128)
    pairs = hiding.hide(data.train, rows, random)     # "Anna has a cat." - "Anna ha un gatto." may become
                                                      # "⟦5⟧ has a ⟦2⟧. ⟦1⟧" - "⟦5⟧ ha un ⟦2⟧. ⟦1⟧"

Three kinds of words are hidden: those that both sides share, such as names and numbers; those that a small lexicon,
made from the corpus, knows as translations of each other; and one that is added to both sides, in front, at the end
or before the last mark. `translation.placeholders` then hides addresses, code, unknown names and the like in the same
way.

Everything works on token ids. A word is a token of a word-level vocabulary, or the subwords of a run of letters or of
digits; a number of several parts, such as 18:40, is one word. A space before a hidden word stays, as a token of its own
where tokens are subwords.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragoman.corpora.selection import fits_upsampling
from dragoman.dataset import BLANK, BYTES, JOINER, EncodedPairs, EncodedSide, Tokenizer
from dragoman.settings import SPECIAL_TOKENS, Config

HIDDEN = 0.4  # share of the words that are hidden, of those that can be
ADDED = 0.3  # share of the pairs to which a placeholder is added
# The lexicon: two words that nearly always occur in the same pairs, neither of which has a better partner.
PAIRS_SAMPLED = 20_000  # pairs that it is made from
FEWEST, MOST = 5, 0.02  # a word occurs in at least 5 of these pairs, and at most in this share; articles are in more
LEAST_DICE = 0.6  # least Dice coefficient of the two
_JOINING = frozenset(".,:/-'")
_JOINED = frozenset(f"{JOINER}{mark}{JOINER}" for mark in _JOINING)
# A word's key is a polynomial of its UTF-8 bytes, so it does not depend on how a vocabulary divides the word.
BASE, ROW = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
POWERS = np.cumprod(np.append(np.uint64(1), np.full(255, BASE)))  # modulo 2**64


@dataclass(frozen=True)
class WordSpans:
    """The W words of some sentences."""

    first: np.ndarray  # (W) index of the first token in the ids of all sentences
    sizes: np.ndarray  # (W) number of tokens
    rows: np.ndarray  # (W) which sentence
    keys: np.ndarray  # (W) uint64, equal for equal words
    copyable: np.ndarray  # (W) boolean: has a digit or more than two letters, which excludes a, in and no

    def single(self) -> tuple[np.ndarray, np.ndarray]:
        """The copyable words that their sentence has once: sorted keys, which differ by sentence, and indices."""
        keys, index, times = np.unique(self.keys + _row_keys(self.rows), return_index=True, return_counts=True)
        kept = (times == 1) & self.copyable[index]
        return keys[kept], index[kept]


def _row_keys(rows: np.ndarray) -> np.ndarray:
    return rows.astype(np.uint64) * ROW


class Spelling:
    """Finds the words of token ids of one vocabulary (V), and replaces them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.placeholders = np.array(tokenizer.placeholders, np.int64)
        self.tags = np.array([*tokenizer.tags.values()], np.int64)
        self.space = None if tokenizer.is_of_words else tokenizer.vocabulary[BLANK]
        size = len(tokenizer)
        self.spaced, self.kinds, self.keys = np.zeros(size, bool), np.zeros(size, np.int8), np.zeros(size, np.uint64)
        self.bytes, self.letters, self.digits = (np.zeros(size, np.int64) for _ in range(3))
        self.joins = np.zeros(size, bool)  # marks that join the parts of a number
        no_words = {*range(len(SPECIAL_TOKENS)), *tokenizer.tags.values(), *tokenizer.placeholders}
        for token, i in tokenizer.vocabulary.items():
            if i in no_words:
                continue
            self.spaced[i] = self.space is not None and token.startswith(BLANK)
            word = token.replace(JOINER, "") if self.space is None else token.removeprefix(BLANK)
            text = word if self.space is None else BYTES.decode([word])
            raw = np.frombuffer(word.encode(), np.uint8)
            self.bytes[i] = len(raw)
            self.keys[i] = (raw * POWERS[np.arange(len(raw)) % len(POWERS)]).sum()
            self.letters[i], self.digits[i] = sum(map(str.isalnum, text)), sum(map(str.isdigit, text))
            self.joins[i] = token in (_JOINING if self.space is not None else _JOINED)
            # Neighbours of one kind, without a space between them, are one word.
            self.kinds[i] = 3 if text[:1].isdigit() else 1 if text[:1].isalpha() or not text.isascii() else 2

    def words(self, side: EncodedSide) -> WordSpans:
        """The words of some sentences."""
        ids, lengths = side.ids, np.diff(side.offsets)
        starts = np.ones(len(ids), bool)
        if self.space is not None:
            kinds = self.kinds[ids]
            starts[1:] = self.spaced[ids[1:]] | (kinds[1:] != kinds[:-1])
            starts[side.offsets[:-1][lengths > 0]] = True
        starts &= ~self._within_numbers(side)
        first = np.flatnonzero(starts)
        sizes = np.diff(np.append(first, len(ids)))
        if not len(ids):  # `reduceat` would fail
            return WordSpans(first, sizes, first, first.astype(np.uint64), first > 0)
        before = np.cumsum(self.bytes[ids]) - self.bytes[ids]
        within = np.minimum(before - np.repeat(before[first], sizes), len(POWERS) - 1)  # bytes of the word so far
        keys = np.add.reduceat(self.keys[ids] * POWERS[within], first)
        letters, digits = (np.add.reduceat(each[ids], first) for each in (self.letters, self.digits))
        return WordSpans(
            first, sizes, np.repeat(np.arange(len(lengths)), lengths)[first], keys, (letters > 2) | (digits > 0)
        )

    def _within_numbers(self, side: EncodedSide) -> np.ndarray:
        """Which tokens are a mark inside a number, such as 18:40, or a part of it that follows such a mark."""
        ids = side.ids
        within = np.zeros(len(ids), bool)
        if len(ids) > 2:
            digits = self.kinds[ids] == 3
            row = np.repeat(np.arange(len(side.offsets) - 1), np.diff(side.offsets))
            after = digits[2:] & ~self.spaced[ids[2:]] & (row[2:] == row[:-2])
            within[1:-1] = self.joins[ids[1:-1]] & digits[:-2] & after
            within[2:] |= within[1:-1]
        return within

    def replace(self, side: EncodedSide, words: WordSpans, chosen: np.ndarray, numbers: np.ndarray) -> EncodedSide:
        """Put the placeholders with these numbers (H), counted from 0, in place of the chosen words (H)."""
        first = words.first[chosen]
        spaced = self.spaced[side.ids[first]]
        hidden = np.zeros(len(side.ids) + 1, np.int64)  # 1 where a hidden word starts, -1 where it ends
        np.add.at(hidden, first, 1)
        np.add.at(hidden, first + words.sizes[chosen], -1)
        counts = 1 - np.cumsum(hidden[:-1])  # how many tokens replace each token
        counts[first] = 1 + spaced
        ends = np.cumsum(counts)
        ids = np.repeat(side.ids, counts).astype(np.int64)
        ids[ends[first] - 1] = self.placeholders[numbers]
        ids[ends[first[spaced]] - 2] = self.space or 0
        total = np.append(0, ends)
        return EncodedSide(ids, total[side.offsets])

    def add(self, side: EncodedSide, rows: np.ndarray, places: np.ndarray, numbers: np.ndarray) -> EncodedSide:
        """Add a placeholder (A) to each of these sentences (A): in front (0), before the last mark (1), at the end (2).

        A sentence that does not end with a mark gets it at its end.
        """
        start, end = side.offsets[rows], side.offsets[rows + 1]
        filled = end > start
        ids = np.append(side.ids, 0)
        start = start + (filled & np.isin(ids[start], self.tags))  # the tag of the target language stays first
        marked = filled & (self.kinds[ids[end - 1]] == 2) & (self.letters[ids[end - 1]] == 0)
        at = np.choose(places, [start, end - marked, end])
        added = self.placeholders[numbers][:, None]
        if self.space is not None:
            added = np.concatenate([np.full_like(added, self.space), added], axis=1)
        width = added.shape[1]
        lengths = np.diff(side.offsets)
        lengths[rows] += width
        return EncodedSide.of(lengths, np.insert(side.ids, np.repeat(at, width), added.ravel()))


class Hiding:
    """Hides words of the pairs of a corpus, see the module."""

    def __init__(
        self, source: Tokenizer, target: Tokenizer, pairs: EncodedPairs, max_length: int, upsampling: int | None = None
    ) -> None:
        """Prepare to hide words of these pairs: make the lexicon.

        Args:
            max_length: a pair that would become longer is left as it is
            upsampling: of an encoder-only model, which needs room for the target
        """
        self.source, self.target = Spelling(source), Spelling(target)
        self.max_length, self.upsampling = max_length, upsampling
        sample = pairs.take(np.unique(np.linspace(0, len(pairs) - 1, min(PAIRS_SAMPLED, len(pairs)), dtype=np.int64)))
        self.lexicon = lexicon(self.source.words(sample.source), self.target.words(sample.target), len(sample))

    def hide(self, pairs: EncodedPairs, rows: np.ndarray, random: np.random.Generator) -> EncodedPairs:
        """The pairs of these rows (N), most of them with hidden words: the same placeholders on both sides."""
        pairs = pairs.take(rows)
        source, target = self.source.words(pairs.source), self.target.words(pairs.target)
        numbers = random.random((len(pairs), len(self.source.placeholders))).argsort(1)  # of each pair's words
        left, right = self._twins(source, target)
        drawn = random.random(len(left)) < HIDDEN
        left, right = left[drawn], right[drawn]
        of = source.rows[left]  # ascending
        place = np.arange(len(of)) - np.searchsorted(of, of)
        kept = place < numbers.shape[1] - 1  # one is left to be added
        left, right, of, place = left[kept], right[kept], of[kept], place[kept]
        added = np.flatnonzero(random.random(len(pairs)) < ADDED)
        where = random.integers(0, 3, len(added))
        extra = numbers[added, -1]
        sides = []
        for spelling, side, words, chosen in (
            (self.source, pairs.source, source, left),
            (self.target, pairs.target, target, right),
        ):
            hidden = spelling.replace(side, words, chosen, numbers[of, place])
            sides.append(spelling.add(hidden, added, where, extra))
        return self._within_limits(EncodedPairs(*sides), pairs)

    def _twins(self, source: WordSpans, target: WordSpans) -> tuple[np.ndarray, np.ndarray]:
        """Words of a source and of its target that mean the same: their indices, in the order of the source."""
        (keys, left), (target_keys, right) = source.single(), target.single()
        _, a, b = np.intersect1d(keys, target_keys, assume_unique=True, return_indices=True)
        # A word that both sides share is its own translation, whatever the lexicon says.
        rest, others = np.delete(left, a), np.delete(target_keys, b)
        written, meant = self.lexicon
        known = rest[np.isin(source.keys[rest], written)]
        wanted = meant[np.searchsorted(written, source.keys[known])] + _row_keys(source.rows[known])
        _, c, d = np.intersect1d(wanted, others, return_indices=True)
        left, right = np.append(left[a], known[c]), np.append(right[b], np.delete(right, b)[d])
        order = np.argsort(left)
        return left[order], right[order]

    def _within_limits(self, hidden: EncodedPairs, pairs: EncodedPairs) -> EncodedPairs:
        """The hidden pairs, but the original ones in place of those that have become too long."""
        kept = np.max(hidden.lengths, axis=0) - 1 <= self.max_length
        if self.upsampling:
            kept &= fits_upsampling(hidden, self.upsampling)
        if kept.all():
            return hidden
        rows = np.where(kept, 0, len(pairs)) + np.arange(len(pairs))
        return EncodedPairs(
            *(
                EncodedSide(np.append(a.ids, b.ids), np.append(a.offsets, b.offsets[1:] + a.offsets[-1])).take(rows)
                for a, b in ((hidden.source, pairs.source), (hidden.target, pairs.target))
            )
        )


def make_hiding(config: Config, source: Tokenizer, target: Tokenizer, pairs: EncodedPairs) -> Hiding | None:
    """What hides words in training; None if training.placeholders is 0 or the vocabulary has no placeholders."""
    if not config.training.placeholders or not source.placeholders or not target.placeholders:
        return None
    upsampling = config.model.upsampling if config.model.architecture == "encoder-only" else None
    return Hiding(source, target, pairs, config.data.max_length, upsampling)


def lexicon(source: WordSpans, target: WordSpans, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Words that mean the same: their keys in the source, sorted, and in the target.

    A pair of words counts if its Dice coefficient, twice the pairs with both over the sum of the pairs with either, is
    at least LEAST_DICE, and if neither word has a higher one with another word.
    """
    (keys, s, in_source), (target_keys, t, in_target) = (_usual(words, pairs) for words in (source, target))
    # Every combination of a source word and a target word of one pair.
    start, end = (np.searchsorted(t[0], s[0], side) for side in ("left", "right"))
    partners = end - start
    left = np.repeat(s[1], partners)
    right = t[1][np.arange(partners.sum()) + np.repeat(start - (np.cumsum(partners) - partners), partners)]
    codes, both = np.unique(left * len(target_keys) + right, return_counts=True)
    left, right = np.divmod(codes, max(1, len(target_keys)))
    dice = 2 * both / (in_source[left] + in_target[right])
    best = [np.zeros(len(each)) for each in (keys, target_keys)]
    for highest, side in zip(best, (left, right), strict=True):
        np.maximum.at(highest, side, dice)
    sure = (dice >= LEAST_DICE) & (dice == best[0][left]) & (dice == best[1][right])
    left, right = left[sure], right[sure]
    _, once = np.unique(left, return_index=True)  # of equally good partners, one
    left, right = left[once], right[once]
    _, once = np.unique(right, return_index=True)
    once.sort()
    return keys[left[once]], target_keys[right[once]]


def _usual(words: WordSpans, pairs: int) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], np.ndarray]:
    """The copyable words that are neither rare nor in every sentence.

    Returns their keys (U), sorted; where they occur, as rows and indices of keys, each once, by row; and in how many.
    """
    rows, keys = words.rows[words.copyable], words.keys[words.copyable]
    known, index = np.unique(keys, return_inverse=True)
    rows, index = np.divmod(np.unique(rows * len(known) + index), max(1, len(known)))
    times = np.bincount(index, minlength=len(known))
    kept = (times >= FEWEST) & (times <= max(FEWEST, MOST * pairs))
    rows, index = rows[kept[index]], index[kept[index]]
    return known[kept], (rows, (np.cumsum(kept) - 1)[index]), times[kept]
