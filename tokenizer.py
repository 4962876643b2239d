"""Text to token ids and back, without loss.

Use:
    source, target = train_pair(english, italian, TokenizerConfig())
    ids = target.encode("l'amico (vero), no?")
    target.decode(ids)                                   # "l'amico (vero), no?"
    Tokenizer.from_json(target.to_json())                # the same tokenizer, in another process or year

A tokenizer is one tokenizer.json of Hugging Face's `tokenizers`: normaliser, vocabulary and decoder all live in that
text, and the first four ids are [PAD] [UNK] [SOS] [EOS]. None of them can be written in a sentence: a literal "[EOS]"
stays the text that it is. After them come the tags of a model of several directions, if it is one, such as >>it<<. At
the beginning of a text, and there alone, a tag is what it says, see `languages`; it is no part of what is decoded.

kind "word": words, and marks of punctuation that know which neighbour they touch, so that `decode(encode(text))` is
`text` for every text of known words, its spacing included. An unknown word becomes [UNK].
kind "bpe", "unigram": pieces of words over bytes; nothing is unknown, and every text comes back as it was.

Limits: `encode` changes nothing in a text; `corpus.clean` is the place for that. A lone surrogate is no text, hence a
TypeError. Training bpe or unigram twice on the same text can give different ids, so a tokenizer is trained once and
saved, never trained again on resume.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from config import EOS, PAD, SOS, SPECIAL_TOKENS, ConfigError, TokenizerConfig
from languages import split_tag, tag_of

# Marks of kind "word". Where a text itself uses one, its look-alike (■, ⎵) is taken instead, and comes back.
JOINER = "￭"  # on the side on which a mark of punctuation touches its neighbour: l ￭'￭ amico
EMPTY = "␣"  # the empty word between two blanks, or between a blank and an end of the text

UNSEEN = "ꙮꙮꙮ"  # a word that no text has, and no vocabulary

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
    def train(cls, sentences: Iterable[str], settings: TokenizerConfig, languages: Sequence[str] = ()) -> "Tokenizer":
        """Learn a vocabulary, with a tag for each of the languages.

        Of words the most frequent are kept, in that order, equals in the order of their text. min_frequency is not used
        by unigram, whose pieces are chosen by likelihood. Raises ConfigError for a vocabulary that has no room for the
        bytes.
        """
        special = [*SPECIAL_TOKENS, *map(tag_of, languages)]
        if languages:
            sentences = (split_tag(sentence)[1] for sentence in sentences)
        match settings.kind:
            case "word":
                return _train_words(sentences, settings, special)
            case "bpe" | "unigram":
                return _train_pieces(sentences, settings, special)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
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

    def label(self, token: str) -> str:
        """A token as `pieces` shows it."""
        if token in SPECIAL_TOKENS or token in self.tags:
            return token
        if self._words:
            text = token.replace(JOINER, "")
        else:
            text = _BYTES.decode([token]).replace(" ", EMPTY)
            if "\ufffd" in text:  # part of a character: the library's stand-ins for its bytes are all there is to show
                return token
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def train_pair(
    source_sentences: Iterable[str],
    target_sentences: Iterable[str],
    settings: TokenizerConfig,
    languages: Sequence[str] = (),
) -> tuple[Tokenizer, Tokenizer]:
    """Train the tokenizers of source and target, which are one and the same object if they share a vocabulary.

    languages are those for which the source has tags, of a model of several directions.
    """
    if settings.shared:
        both = Tokenizer.train(chain(source_sentences, target_sentences), settings, languages)
        return both, both
    return Tokenizer.train(source_sentences, settings, languages), Tokenizer.train(target_sentences, settings)


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


def _train_words(sentences: Iterable[str], settings: TokenizerConfig, special: Sequence[str]) -> Tokenizer:
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


# --- Pieces of words ----------------------------------------------------------------------------------------------

_BYTES = decoders.ByteLevel()
FEWEST_PIECES = len(SPECIAL_TOKENS) + len(pre_tokenizers.ByteLevel.alphabet())  # and the tags, where there are any


def _train_pieces(sentences: Iterable[str], settings: TokenizerConfig, special: Sequence[str]) -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    least = FEWEST_PIECES + len(special) - len(SPECIAL_TOKENS)
    if settings.vocab_size < least:
        raise ConfigError(
            f"tokenizer.vocab_size is {settings.vocab_size}, but it must be at least {least} for {settings.kind}, "
            f"which needs {len(alphabet)} bytes and {len(special)} special tokens."
        )
    trainer: trainers.Trainer
    common = {"vocab_size": settings.vocab_size, "special_tokens": list(special), "initial_alphabet": alphabet}
    if settings.kind == "bpe":
        core = tokenizers.Tokenizer(models.BPE())
        trainer = trainers.BpeTrainer(**common, min_frequency=settings.min_frequency, show_progress=False)
    else:
        core = tokenizers.Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(**common, unk_token="[UNK]", show_progress=False)  # noqa: S106
    # A word is one piece at the start of a text and after a blank, because every text gets a blank in front, whether or
    # not it has one: the pre-tokenizer's own add_prefix_space would make " a" and "a" the same.
    core.normalizer = normalizers.Prepend(" ")
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.Sequence([_BYTES, decoders.Strip(" ", 1, 0)])
    core.train_from_iterator(sentences, trainer)
    return Tokenizer(core if settings.kind == "bpe" else _round_scores(core))


def _round_scores(core: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Six decimals for the scores of unigram: the library does not read all the digits that it writes, and a tokenizer
    would differ from itself, saved and loaded."""
    saved = json.loads(core.to_str())
    saved["model"]["vocab"] = [[piece, round(score, 6)] for piece, score in saved["model"]["vocab"]]
    return tokenizers.Tokenizer.from_str(json.dumps(saved))
