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

import hashlib
import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
import tokenizers
import torch
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from dragoman.directions import split_tag, tag_of
from dragoman.settings import EOS, PAD, SOS, SPECIAL_TOKENS, TokenizerConfig

# Marks of kind "word". Where a text itself uses one, its look-alike (■, ⎵) is taken instead, and comes back.
JOINER = "￭"  # on the side on which a mark of punctuation touches its neighbour: l ￭'￭ amico
EMPTY = "␣"  # the empty word between two blanks, or between a blank and an end of the text
UNSEEN = "ꙮꙮꙮ"  # a word that no text has, and no vocabulary
BYTES = decoders.ByteLevel()  # how pieces of words spell bytes
SILENT = frozenset((PAD, SOS, EOS))  # ids that are no part of a text


class Tokenizer:
    """Text to ids and back; see the module's text for the kinds.

    Attributes:
        left_out: kinds of word that the training text had and the vocabulary has not; 0 for a tokenizer that was loaded
        tags: the ids of the tags, by the token
    """

    def __init__(self, core: tokenizers.Tokenizer) -> None:
        self._core = core
        self._words = isinstance(core.model, models.WordLevel)
        self.left_out = 0
        added = {i: each.content for i, each in core.get_added_tokens_decoder().items()}
        self.tags = {content: i for i, content in sorted(added.items()) if i >= len(SPECIAL_TOKENS)}
        self._silent = SILENT | set(self.tags.values())
        # Otherwise "[EOS]" in a sentence would end it. Not saved in the json, so it is set here, for every tokenizer.
        core.encode_special_tokens = True

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """The tokenizer that `to_json` wrote; ValueError if the text is anything else."""
        try:
            core = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"this is not a tokenizer.json: {error}") from error
        if [core.token_to_id(token) for token in SPECIAL_TOKENS] != list(range(len(SPECIAL_TOKENS))):
            raise ValueError(f"the first ids of this tokenizer.json are not {' '.join(SPECIAL_TOKENS)}")
        if set(core.get_vocab().values()) != set(range(core.get_vocab_size())):
            raise ValueError("the ids of this tokenizer.json are not numbered from 0 without gaps")
        return cls(core)

    def to_json(self) -> str:
        """Everything there is to know about the tokenizer, as text."""
        return self._core.to_str()

    @property
    def fingerprint(self) -> str:
        """A hash (sha256) that differs for any two tokenizers that could give different ids."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @property
    def is_of_words(self) -> bool:
        """Whether its tokens are whole words, not pieces of them."""
        return self._words

    def __len__(self) -> int:
        """Number of ids, the special ones included."""
        return self._core.get_vocab_size()

    @property
    def vocabulary(self) -> dict[str, int]:
        """Every token, joiners included, and its id."""
        return self._core.get_vocab()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with neither start nor end token."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, on all processors."""
        tags = []
        if self.tags:
            tags, texts = zip(*map(self._parted, texts), strict=True) if texts else ((), ())
        found = [encoding.ids for encoding in self._core.encode_batch_fast(texts, add_special_tokens=False)]
        return [[self.tags[tag], *ids] if tag else ids for tag, ids in zip(tags, found, strict=True)] if tags else found

    def _parted(self, text: str) -> tuple[str, str]:
        """The tag that a text begins with, if it does, and the rest."""
        direction, rest = split_tag(text)
        tag = tag_of(direction.target) if direction else ""
        return (tag, rest) if tag in self.tags else ("", text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, from which padding, start and end are left out; an unknown word shows as [UNK]."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """The texts of many sequences of ids."""
        texts = [[i for i in ids if i not in self._silent] for ids in batch]
        # "Special" is [UNK] as well, so the library must not be the one that skips.
        return self._core.decode_batch(texts, skip_special_tokens=False)

    def decode_with(self, ids: Sequence[int], words: Mapping[int, str]) -> str:
        """The text of ids, with the tokens words[t] in place of the ids[t]: for a word that has no id.

        A token is one of those that `tokens` cuts a text into, with its joiners. Ids are without start and end.
        """
        tokens = [words.get(t, self._core.id_to_token(i)) for t, i in enumerate(ids)]
        return self._core.decoder.decode(tokens) if tokens else ""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A short label for each id, for plots and tables: no joiners, and nothing invisible."""
        return [self.label(self._core.id_to_token(i) or "") for i in ids]

    def tokens(self, text: str) -> list[str]:
        """What the ids of `encode(text)` stand for: of an unknown word the word, not [UNK]. Joiners are included."""
        tag, text = self._parted(text)
        words = _normalize(text) if self._words else self._core.encode(text, add_special_tokens=False).tokens
        return [tag, *words] if tag else words

    def encode_with_tokens(self, text: str, tag: str = "") -> tuple[list[int], list[str]]:
        """The ids of a text, and the token that each id stands for: an unknown word itself, not [UNK].

        `tag` is one of `tags`, and its id comes first. The text is never searched for a tag.
        """
        encoding = self._core.encode(text, add_special_tokens=False)
        tokens = _normalize(text) if self._words else encoding.tokens
        return ([self.tags[tag], *encoding.ids], [tag, *tokens]) if tag else (encoding.ids, tokens)

    def label(self, token: str) -> str:
        """A token as `pieces` shows it."""
        if token in SPECIAL_TOKENS or token in self.tags:
            return token
        if self._words:
            text = token.replace(JOINER, "")
        else:
            text = BYTES.decode([token]).replace(" ", EMPTY)
            if "\ufffd" in text:  # part of a character: the library's stand-ins for its bytes are all there is to show
                return token
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# --- Words --------------------------------------------------------------------------------------------------------

# After this, the blanks of the text, and no others, part two tokens neither of which has a joiner towards the other:
#     "l'amico  (qui)"  ->  "l ￭'￭ amico ␣ (￭ qui ￭)"
# Only the plain blank parts words; tab, no-break space and their kin are marks like a comma. The order matters: words
# are joined to the marks that stand before them only once these have their own joiners.
_NORMALIZER = normalizers.Sequence(
    [
        normalizers.Replace(JOINER, "■"),
        normalizers.Replace(EMPTY, "⎵"),
        normalizers.Replace(Regex(r"(?<![^ ])(?= )|(?<= )(?![^ ])"), EMPTY),
        normalizers.Replace(Regex(r"(?<=[^ ])(?=[^\w ])"), f" {JOINER}"),
        normalizers.Replace(Regex(rf"(?<=[^\w {JOINER}])(?=\w)"), f"{JOINER} "),
    ]
)


def _normalize(text: str) -> list[str]:
    """The words and marks of a text, joiners and empty words included."""
    return _NORMALIZER.normalize_str(text).split(" ") if text else []


def train_word_tokenizer(sentences: Iterable[str], settings: TokenizerConfig, special: Sequence[str]) -> Tokenizer:
    # Counted here rather than by the library's trainer, which is no faster and tells nobody what it leaves out.
    # What stands between two blanks becomes the same tokens wherever it stands, so each kind is normalised once.
    between: Counter[str] = Counter()
    for sentence in sentences:
        between.update(sentence.split(" "))
    counts: Counter[str] = Counter()
    for text, number in between.items():
        for word in _normalize(text):
            counts[word] += number
    ranked = sorted((word for word in counts if word != EMPTY), key=lambda word: (-counts[word], word))
    room = settings.vocab_size - len(special) - 1
    kept = [word for word in ranked[:room] if counts[word] >= settings.min_frequency]
    vocabulary = {token: i for i, token in enumerate([*special, EMPTY, *kept])}

    core = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106
    core.add_special_tokens(list(special))
    core.normalizer = _NORMALIZER
    core.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    # WordPiece puts a blank before each token but those that begin with its prefix; the joiners at the end of a token
    # then take back the blank that follows. A model may join what no text joins: what is left of the marks goes last.
    core.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=JOINER, cleanup=False),
            decoders.Fuse(),
            decoders.Replace(f"{JOINER} ", ""),
            decoders.Replace(JOINER, ""),
            decoders.Replace(EMPTY, ""),
        ]
    )
    tokenizer = Tokenizer(core)
    tokenizer.left_out = len(ranked) - len(kept)
    return tokenizer


Pair = tuple[str, str]
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


def unzip_pairs(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
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
    sources, targets = unzip_pairs(pairs)
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


def batch_plan_of_size(
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


def padding_mask(ids: Tensor) -> Tensor:
    """Hide the padding of ids (B, S) from every query: (B, 1, 1, S), broadcast over heads and queries."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Let position t see positions 0 to t, never a later one: (T, T)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def decoder_mask(target: Tensor) -> Tensor:
    """Let position t of target (B, T) see the tokens at positions 0 to t, never padding: (B, 1, T, T)."""
    return causal_mask(target.shape[1], target.device) & padding_mask(target)


def masks(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both masks that a model takes: `padding_mask` of source (B, S) and `decoder_mask` of target (B, T)."""
    return padding_mask(source), decoder_mask(target)


@dataclass(frozen=True)
class Batch:
    """Pairs as padded ids, all int64. Position t of target_out is the token that follows position t of target_in.

    Masks are boolean, True where a query may look at a key. Each is made once, on the device of the ids.
    """

    source: Tensor  # (B, S): ids, end, padding
    target_in: Tensor  # (B, T): start, ids, padding
    target_out: Tensor  # (B, T): ids, end, padding
    indices: np.ndarray  # (B): which pairs these are
    tokens: int  # of the target, the end tokens included, padding not
    source_tokens: int  # likewise

    @cached_property
    def source_mask(self) -> Tensor:
        """See `padding_mask`: (B, 1, 1, S)."""
        return padding_mask(self.source)

    @cached_property
    def target_mask(self) -> Tensor:
        """See `decoder_mask`: (B, 1, T, T)."""
        return decoder_mask(self.target_in)

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


def source_batch(sources: Sequence[Sequence[int]]) -> Tensor:
    """Sentences to translate, as ids without an end token, made (B, S)."""
    lengths = np.fromiter(map(len, sources), np.int64)
    side = EncodedSide.of(lengths, np.fromiter(chain.from_iterable(sources), np.int64))
    return torch.from_numpy(side.padded(np.arange(len(sources)))[0])
