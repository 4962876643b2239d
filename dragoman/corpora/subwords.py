"""Tokenizers of pieces of words: BPE and unigram."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from dragoman.dataset import BYTES, Tokenizer, train_word_tokenizer
from dragoman.directions import split_tag, tag_of
from dragoman.errors import ConfigError
from dragoman.settings import SPECIAL_TOKENS, TokenizerConfig


def train_tokenizer(sentences: Iterable[str], settings: TokenizerConfig, languages: Sequence[str] = ()) -> Tokenizer:
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
            return train_word_tokenizer(sentences, settings, special)
        case "bpe" | "unigram":
            return train_subword_tokenizer(sentences, settings, special)


def train_tokenizers(
    source_sentences: Iterable[str],
    target_sentences: Iterable[str],
    settings: TokenizerConfig,
    languages: Sequence[str] = (),
) -> tuple[Tokenizer, Tokenizer]:
    """Train the tokenizers of source and target, which are one and the same object if they share a vocabulary.

    languages are those for which the source has tags, of a model of several directions.
    """
    if settings.shared:
        both = train_tokenizer(chain(source_sentences, target_sentences), settings, languages)
        return both, both
    return train_tokenizer(source_sentences, settings, languages), train_tokenizer(target_sentences, settings)


# --- Pieces of words ----------------------------------------------------------------------------------------------

FEWEST_PIECES = len(SPECIAL_TOKENS) + len(pre_tokenizers.ByteLevel.alphabet())  # and the tags, where there are any


def train_subword_tokenizer(sentences: Iterable[str], settings: TokenizerConfig, special: Sequence[str]) -> Tokenizer:
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
    core.decoder = decoders.Sequence([BYTES, decoders.Strip(" ", 1, 0)])
    core.train_from_iterator(sentences, trainer)
    return Tokenizer(core if settings.kind == "bpe" else round_scores(core))


def round_scores(core: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Six decimals for the scores of unigram: the library does not read all the digits that it writes, and a tokenizer
    would differ from itself, saved and loaded."""
    saved = json.loads(core.to_str())
    saved["model"]["vocab"] = [[piece, round(score, 6)] for piece, score in saved["model"]["vocab"]]
    return tokenizers.Tokenizer.from_str(json.dumps(saved))
