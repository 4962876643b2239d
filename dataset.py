"""From sentence pairs to batches: tokenizers, token ids, the batch plan, padded batches.

    english, italian = ["Good morning.", "Thank you."], ["Buongiorno.", "Grazie."]
    source, target = train_tokenizers(english, italian, TokenizerConfig(min_frequency=1))
    pairs = encode_pairs(list(zip(english, italian)), source, target)
    for indices in batch_plan(*pairs.lengths, batch_tokens=4096, seed=1, epoch=0):
        batch = make_batch(pairs, indices)                   # .source, .target_in, .target_out, .tokens

`dragoman.corpora.subwords` has `train_tokenizers`, and training reads its pairs from disk, see
`dragoman.corpora.preparation`. A language model learns from plain text: pairs with an empty source, which in a batch is
a single end token.

The batches and their order are a pure function of (lengths, seed, epoch), so a resumed run only has to remember the
number of its next batch.

Shapes are written in these letters:
    N pairs   B rows of a batch   S source positions   T target positions
A row is one sentence: its ids, the end token, then padding.

Limits: a batch plan takes 45 bytes per pair.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from dragoman.directions import split_tag, tag_of
from dragoman.lazy import numpy as np
from dragoman.lazy import torch
from dragoman.settings import EOS, PAD, PLACEHOLDERS, SOS, SPECIAL_TOKENS

if TYPE_CHECKING:
    from torch import Tensor

Pair = tuple[str, str]

# Marks in word-level tokens; in a text they become look-alikes (■, ⎵).
JOINER = "￭"  # on the side where a punctuation mark touches its neighbour: l ￭'￭ amico
EMPTY = "␣"  # the empty word between two spaces, or between a space and an end of the text
UNSEEN = "ꙮꙮꙮ"  # a word that no text contains, so no vocabulary has it
BLANK = "Ġ"  # a space, as the first letter of a subword or as a subword
BYTES = decoders.ByteLevel()  # decodes the byte alphabet of subword tokens
NOT_TEXT = frozenset((PAD, SOS, EOS))  # ids that decoding drops

# ------------------------------------------------------------------------------------------------------ tokenizers


class Tokenizer:
    """Text to ids and back, without loss; one class for word-level and subword vocabularies.

        ids = tokenizer.encode("l'amico (vero), no?")
        tokenizer.decode(ids)                                # "l'amico (vero), no?"
        Tokenizer.from_json(tokenizer.to_json())             # the same tokenizer

    It wraps one tokenizer.json of Hugging Face's `tokenizers`. The first four ids are [PAD] [UNK] [SOS] [EOS]; a
    literal "[EOS]" in a sentence stays text. Tags of a multi-direction model (>>it<<) and placeholders (⟦1⟧) follow. A
    tag counts as one only at the start of a text, see `directions`, and is dropped in decoding.

    Word-level tokens are words and punctuation marks that know which neighbour they touch, so every text of known words
    comes back with its spacing; an unknown word becomes [UNK]. Subword tokens spell bytes, so nothing is unknown.

    Limits: `encode` does not clean text. A lone surrogate raises TypeError.

    Attributes:
        is_of_words: whether tokens are whole words, not subwords
        left_out: number of distinct training words that are not in the vocabulary; 0 for a loaded tokenizer
        tags: from each tag to its id
        placeholders: the ids of PLACEHOLDERS, which no text is encoded to; empty in tokenizers without them
    """

    def __init__(self, core: tokenizers.Tokenizer) -> None:
        self._core = core
        self.is_of_words = isinstance(core.model, models.WordLevel)
        self.left_out = 0
        added = {each.content: i for i, each in sorted(core.get_added_tokens_decoder().items())}
        self.tags = {token: i for token, i in added.items() if token not in (*SPECIAL_TOKENS, *PLACEHOLDERS)}
        self.placeholders = [added[token] for token in PLACEHOLDERS if token in added]
        self._not_text = NOT_TEXT | set(self.tags.values())
        # Otherwise "[EOS]" in a sentence would end it. The json does not store this flag, so set it every time.
        core.encode_special_tokens = True

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """Load what `to_json` returned. Raises ValueError for any other text."""
        try:
            _check_components(json.loads(text, object_pairs_hook=_without_repeats))
            core = tokenizers.Tokenizer.from_str(text)
        except (Exception, RecursionError) as error:  # the library raises nothing narrower
            raise ValueError(f"this is not a tokenizer.json of this program: {error}") from error
        if [core.token_to_id(token) for token in SPECIAL_TOKENS] != list(range(len(SPECIAL_TOKENS))):
            raise ValueError(f"the first ids of this tokenizer.json are not {' '.join(SPECIAL_TOKENS)}")
        if set(core.get_vocab().values()) != set(range(core.get_vocab_size())):
            raise ValueError("the ids of this tokenizer.json are not numbered from 0 without gaps")
        return cls(core)

    def to_json(self) -> str:
        """Return the whole tokenizer as the text of a tokenizer.json."""
        return self._core.to_str()

    @property
    def fingerprint(self) -> str:
        """A sha256 that differs between any two tokenizers that could give different ids."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def __len__(self) -> int:
        """Size of the vocabulary, special tokens included."""
        return self._core.get_vocab_size()

    @property
    def vocabulary(self) -> dict[str, int]:
        """From every token, joiners included, to its id."""
        return self._core.get_vocab()

    @property
    def tokens_by_id(self) -> list[str]:
        """Every token, joiners included, in the order of the ids."""
        vocabulary = self.vocabulary
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without start and end tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, using all processors."""
        tags = []
        if self.tags:
            tags, texts = zip(*map(self._split_tag, texts), strict=True) if texts else ((), ())
        rows = [encoding.ids for encoding in self._core.encode_batch_fast(texts, add_special_tokens=False)]
        return [[self.tags[tag], *ids] if tag else ids for tag, ids in zip(tags, rows, strict=True)] if tags else rows

    def _split_tag(self, text: str) -> tuple[str, str]:
        """Split off the tag that a text starts with; "" if it has none that this tokenizer knows."""
        direction, rest = split_tag(text)
        tag = tag_of(direction.target) if direction else ""
        return (tag, rest) if tag in self.tags else ("", text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids without padding, start and end tokens. An unknown word shows as [UNK]."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each sequence of ids."""
        kept = [[i for i in ids if i not in self._not_text] for ids in batch]
        # Not skipped by the library, which counts [UNK] as special and would drop it, too.
        return self._core.decode_batch(kept, skip_special_tokens=False)

    def decode_with(self, ids: Sequence[int], words: Mapping[int, str]) -> str:
        """Decode ids, using words[t] in place of ids[t], for words that have no id.

        Each word is a token as `tokens` returns it, joiners included. The ids have no start and end tokens.
        """
        tokens = [words.get(t, self._core.id_to_token(i)) for t, i in enumerate(ids)]
        return self._core.decoder.decode(tokens) if tokens else ""

    def tokens(self, text: str) -> list[str]:
        """Return the token behind each id of `encode(text)`, joiners included; unknown words are spelled out."""
        tag, text = self._split_tag(text)
        return self.encode_with_tokens(text, tag)[1]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return a short label for each id, for plots and tables: no joiners, nothing invisible."""
        return [self.label(self._core.id_to_token(i) or "") for i in ids]

    def encode_with_tokens(self, text: str, tag: str = "") -> tuple[list[int], list[str]]:
        """Return the ids of a text, after that of the tag if given, and their tokens. Does not look for a tag."""
        encoding = self._core.encode(text, add_special_tokens=False)
        tokens = split_words(text) if self.is_of_words else encoding.tokens
        return ([self.tags[tag], *encoding.ids], [tag, *tokens]) if tag else (encoding.ids, tokens)

    def label(self, token: str) -> str:
        """Return the label of one token, as in `pieces`."""
        if token in SPECIAL_TOKENS or token in PLACEHOLDERS or token in self.tags:
            return token
        text = token.replace(JOINER, "") if self.is_of_words else BYTES.decode([token]).replace(" ", EMPTY)
        if "\ufffd" in text and not self.is_of_words:  # part of a character: show the library's stand-ins for its bytes
            return token
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# Rewrites a text so that its spaces, and only those, separate two tokens without a joiner towards each other:
#     "l'amico  (qui)"  ->  "l ￭'￭ amico ␣ (￭ qui ￭)"
# Only the plain space separates words; tabs, no-break spaces and the like are marks, as commas are. The order matters:
# a word is joined to the mark before it only after that mark has its own joiners.
_NORMALIZER = normalizers.Sequence(
    [
        normalizers.Replace(JOINER, "■"),
        normalizers.Replace(EMPTY, "⎵"),
        normalizers.Replace(Regex(r"(?<![^ ])(?= )|(?<= )(?![^ ])"), EMPTY),
        normalizers.Replace(Regex(r"(?<=[^ ])(?=[^\w ])"), f" {JOINER}"),
        normalizers.Replace(Regex(rf"(?<=[^\w {JOINER}])(?=\w)"), f"{JOINER} "),
    ]
)


def with_components(core: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Set the normalizer, pre-tokenizer and decoder that belong to the type of the model."""
    if isinstance(core.model, models.WordLevel):
        core.normalizer = _NORMALIZER
        core.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
        # WordPiece puts a space before every token that does not start with its prefix; a joiner at the end of a token
        # then removes the space after it. A model may join tokens that no text joins, so leftover joiners are removed
        # last.
        rest = [decoders.Replace(mark, "") for mark in (f"{JOINER} ", JOINER, EMPTY)]
        core.decoder = decoders.Sequence([decoders.WordPiece(prefix=JOINER, cleanup=False), decoders.Fuse(), *rest])
    else:
        # Every text gets a space in front, so that a word is the same token at the start of a text and after a space.
        # The pre-tokenizer's own add_prefix_space does not do: it would make " a" and "a" the same text.
        core.normalizer = normalizers.Prepend(" ")
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.Sequence([BYTES, decoders.Strip(" ", 1, 0)])
    return core


def _check_components(saved: Any) -> None:
    """Raise ValueError unless a tokenizer.json has, around a vocabulary, only what this program writes.

    That has been the same since its first version. A foreign pattern or normalizer could hang or crash the process.
    """
    match saved:
        case {"model": {"type": "WordLevel" | "BPE" | "Unigram" as kind, "vocab": vocabulary} as model}:
            usual = json.loads(with_components(tokenizers.Tokenizer(getattr(models, kind)())).to_str())
        case _:
            raise ValueError("its type of model is not supported")
    usual["model"] |= {"unk_token": "[UNK]"} if kind == "WordLevel" else {"unk_id": 1} if kind == "Unigram" else {}
    of_vocabulary = {name: value for name, value in usual["model"].items() if name in ("vocab", "merges")}
    # Older versions of the library wrote fewer names.
    around = usual | saved | {"model": usual["model"] | model | of_vocabulary}
    added, special = around.pop("added_tokens"), {"normalized": False, "special": True}
    if around | {"added_tokens": []} != usual:
        raise ValueError("its normalizer, pre-tokenizer, decoder or model is not supported")
    if kind == "WordLevel" and "[UNK]" not in vocabulary:
        raise ValueError("its vocabulary lacks [UNK]")
    if not isinstance(added, list) or not all(isinstance(token, dict) and token == token | special for token in added):
        raise ValueError("its special tokens are not supported")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object. The library and `json` would take different ones of two values with the same name."""
    if len(made := dict(pairs)) != len(pairs):
        raise ValueError("a name appears twice")
    return made


def split_words(text: str) -> list[str]:
    """Split a text into words and marks, joiners and empty words included."""
    return _NORMALIZER.normalize_str(text).split(" ") if text else []


# ------------------------------------------------------------------------------------------------------- token ids

CHUNK = 10_000  # sentences tokenised at a time: a list of Python ints takes 20 times the memory of an array


@dataclass(frozen=True)
class EncodedSide:
    """The ids of N sentences of one language in one flat array: sentence i is ids[offsets[i] : offsets[i + 1]]."""

    ids: np.ndarray  # uint16, or int32 for a large vocabulary
    offsets: np.ndarray  # (N + 1), int64

    @classmethod
    def of(cls, lengths: np.ndarray, ids: np.ndarray) -> EncodedSide:
        """Build it from the lengths (N) of the sentences, without end tokens, and their ids in one array."""
        return cls(ids, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    @property
    def lengths(self) -> np.ndarray:
        """Lengths of the sentences (N), int32, the end token included."""
        return (np.diff(self.offsets) + 1).astype(np.int32)

    def take(self, rows: np.ndarray) -> EncodedSide:
        """Select sentences by their numbers, which may repeat."""
        return EncodedSide.of(self.offsets[rows + 1] - self.offsets[rows], self.joined(rows))

    def joined(self, rows: np.ndarray) -> np.ndarray:
        """Concatenate the ids of the given sentences, which may repeat."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        # The index of every token at once: where its row starts in `ids`, plus its position in the row.
        shift = starts - (np.cumsum(lengths) - lengths)
        return self.ids[np.repeat(shift, lengths) + np.arange(lengths.sum())]

    def padded(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the given sentences (B) as ids with end token and padding (B, longest), and their lengths (B)."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        positions = np.arange(lengths.max(initial=0) + 1)
        block = np.where(positions == lengths[:, None], EOS, PAD)
        block[positions < lengths[:, None]] = self.joined(rows)
        return block, lengths + 1


@dataclass(frozen=True)
class EncodedPairs:
    """N sentence pairs as ids."""

    source: EncodedSide
    target: EncodedSide

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    @property
    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Lengths of the sources (N) and of the targets (N), end tokens included."""
        return self.source.lengths, self.target.lengths

    def take(self, rows: np.ndarray) -> EncodedPairs:
        """Select pairs by their numbers, which may repeat."""
        return EncodedPairs(self.source.take(rows), self.target.take(rows))


def unzip_pairs(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Return the sources and the targets of pairs as two lists."""
    return [source for source, _ in pairs], [target for _, target in pairs]


def id_type(tokenizer: Tokenizer) -> type[np.integer]:
    """Return the smallest array type that holds every id of the vocabulary."""
    return np.uint16 if len(tokenizer) <= 2**16 else np.int32


def encode_side(texts: Sequence[str], tokenizer: Tokenizer) -> EncodedSide:
    """Tokenise the sentences of one language."""
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


# ------------------------------------------------------------------------------------------------------ batch plan

# How far a pair may move among pairs of its length, in tokens of difference between its sides. At 0 every epoch would
# have much the same batches; at 8 there is twice as much padding (6 % of Multi30k rather than 3 %).
SHUFFLE_RANGE = 2.0


def batch_plan(
    source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Return the pair indices of each batch of an epoch: pairs of similar length, batches in random order.

    Args:
        source_lengths, target_lengths: (N), end tokens included
        batch_tokens: limit of rows x longest sentence of either side; a longer pair gets a batch of its own
        seed, epoch: the same numbers give the same plan on any machine
    """
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    longest = np.maximum(source_lengths, target_lengths)
    # Sort pairs of one length by which side is longer, in alternating direction, so that both sides continue smoothly
    # where one length ends and the next begins.
    lean = source_lengths - target_lengths + SHUFFLE_RANGE * random.random(len(longest))
    order = np.argsort(np.where(longest % 2, lean, -lean), kind="stable")
    small = longest.astype(np.min_scalar_type(longest.max(initial=0)))  # integers of one or two bytes sort much faster
    order = order[np.argsort(small[order], kind="stable")]
    longest = longest[order]
    batches = []
    start = 0
    while start < len(order):
        ahead = longest[start : start + max(1, batch_tokens // longest[start])]
        sizes = ahead * np.arange(1, len(ahead) + 1)  # size of the batch if it ended with each row; non-decreasing
        rows = max(1, int(np.searchsorted(sizes, batch_tokens, side="right")))
        batches.append(order[start : start + rows])
        start += rows
    return [batches[i] for i in random.permutation(len(batches))]


# --------------------------------------------------------------------------------------------------------- batches


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
    tokens: int  # target tokens, end tokens included, padding not
    source_tokens: int  # source tokens, likewise

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
        """Share of the positions of both sides that hold padding."""
        return 1 - (self.source_tokens + self.tokens) / (self.source.numel() + self.target_out.numel())

    def to(self, device: torch.device | str) -> Batch:
        """Copy the batch to a device."""
        return self.moved(lambda ids: ids.to(device))

    def moved(self, how: Callable[[Tensor], Tensor]) -> Batch:
        """Apply a function such as `Tensor.pin_memory` to the ids."""
        source, target_in, target_out = map(how, (self.source, self.target_in, self.target_out))
        return replace(self, source=source, target_in=target_in, target_out=target_out)

    def halves(self) -> list[Batch]:
        """Split a batch of two or more rows in two, each without columns that hold only padding."""
        middle = len(self.indices) // 2
        return [self._rows(slice(middle)), self._rows(slice(middle, None))]

    def _rows(self, rows: slice) -> Batch:
        """Select rows, and drop columns that hold only padding."""
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


def make_batch(pairs: EncodedPairs, indices: np.ndarray, rank: int = 0, ranks: int = 1) -> Batch:
    """Make the batch of the pairs with these indices (B), or the part of one of several ranks.

    A rank gets every ranks-th row, so that all have equal work. If there are fewer rows, the others compute the first
    with `tokens` 0, that is with zero weight, since all ranks must take part in what follows.
    """
    if rank >= len(indices):
        return replace(make_batch(pairs, indices[:1]), tokens=0, source_tokens=0)
    indices = indices[rank::ranks]
    source, source_lengths = pairs.source.padded(indices)
    target, target_lengths = pairs.target.padded(indices)
    shifted = np.where(target == EOS, PAD, target)[:, :-1]
    target_in = np.concatenate([np.full((len(indices), 1), SOS), shifted], axis=1)
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(target_in),
        torch.from_numpy(target),
        indices,
        int(target_lengths.sum()),
        int(source_lengths.sum()),
    )


def source_batch(sources: Sequence[Sequence[int]]) -> Tensor:
    """Make sentences to translate, given as ids without end tokens, into a padded tensor (B, S) with them."""
    lengths = np.fromiter(map(len, sources), np.int64)
    side = EncodedSide.of(lengths, np.fromiter(chain.from_iterable(sources), np.int64))
    return torch.from_numpy(side.padded(np.arange(len(sources)))[0])
