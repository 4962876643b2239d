"""Training tokenizers: words, or subwords (BPE or unigram).

    source, target = train_tokenizers(english, italian, TokenizerConfig(kind="bpe"))

Limits: training BPE or unigram twice on the same text can give different ids, so a tokenizer is trained once and saved;
a resumed run never trains it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from dragoman.dataset import EMPTY, Tokenizer, split_words, with_components
from dragoman.directions import split_tag, tag_of
from dragoman.errors import ConfigError
from dragoman.settings import PLACEHOLDERS, SPECIAL_TOKENS, TokenizerConfig

# Size of a vocabulary without tags.
SMALLEST_SUBWORDS = len(SPECIAL_TOKENS) + len(PLACEHOLDERS) + len(pre_tokenizers.ByteLevel.alphabet())


def train_tokenizers(
    source_sentences: Iterable[str],
    target_sentences: Iterable[str],
    settings: TokenizerConfig,
    languages: Sequence[str] = (),
    placeholders: Sequence[str] = PLACEHOLDERS,
) -> tuple[Tokenizer, Tokenizer]:
    """Train the tokenizers of source and target; with a shared vocabulary both are the same object.

    Both get the placeholders. The source tokenizer also gets a tag for each of the languages, the targets of a
    multi-direction model.
    """
    special = special_tokens(languages, placeholders)
    if settings.shared:
        both = train_tokenizer(chain(source_sentences, target_sentences), settings, special[0])
        return both, both
    source = train_tokenizer(source_sentences, settings, special[0])
    return source, train_tokenizer(target_sentences, settings, special[1])


def special_tokens(languages: Sequence[str], placeholders: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The special tokens of the source tokenizer, or of a shared one, and of the target tokenizer."""
    return [*map(tag_of, languages), *placeholders], placeholders


def train_tokenizer(sentences: Iterable[str], settings: TokenizerConfig, special: Sequence[str] = ()) -> Tokenizer:
    """Learn a vocabulary that begins with SPECIAL_TOKENS and then `special`, tags and placeholders.

    Unigram ignores min_frequency, since it chooses its tokens by likelihood. Raises ConfigError if vocab_size has no
    room for the bytes.
    """
    if any(split_tag(token)[0] for token in special):
        sentences = (split_tag(sentence)[1] for sentence in sentences)
    special = [*SPECIAL_TOKENS, *special]
    match settings.kind:
        case "word":
            return train_word_tokenizer(sentences, settings, special)
        case "bpe" | "unigram":
            return train_subword_tokenizer(sentences, settings, special)


def train_word_tokenizer(sentences: Iterable[str], settings: TokenizerConfig, special: Sequence[str]) -> Tokenizer:
    """Build a vocabulary of the most frequent words, equally frequent ones in alphabetical order.

    The first ids go to `special`: SPECIAL_TOKENS, then tags and placeholders. They count towards settings.vocab_size.
    """
    # Count here, since the library's trainer is no faster and does not say what it leaves out. The tokens of a string
    # between two spaces do not depend on its neighbours, so each distinct string is normalised once.
    strings: Counter[str] = Counter()
    for sentence in sentences:
        strings.update(sentence.split(" "))
    counts: Counter[str] = Counter()
    for text, number in strings.items():
        for word in split_words(text):
            counts[word] += number
    ranked = sorted((word for word in counts if word != EMPTY), key=lambda word: (-counts[word], word))
    room = settings.vocab_size - len(special) - 1
    kept = [word for word in ranked[:room] if counts[word] >= settings.min_frequency]
    vocabulary = {token: i for i, token in enumerate([*special, EMPTY, *kept])}

    core = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106
    core.add_special_tokens(list(special))
    tokenizer = Tokenizer(with_components(core))
    tokenizer.left_out = len(ranked) - len(kept)
    return tokenizer


def train_subword_tokenizer(sentences: Iterable[str], settings: TokenizerConfig, special: Sequence[str]) -> Tokenizer:
    """Learn a vocabulary of subwords over bytes. Raises ConfigError if vocab_size has no room for the bytes."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    least = len(special) + len(alphabet)
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
    with_components(core).train_from_iterator(sentences, trainer)
    return Tokenizer(core if settings.kind == "bpe" else round_scores(core))


def round_scores(core: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Round unigram scores to six decimals.

    The library does not read back every digit it writes, so a loaded tokenizer would differ from the saved one.
    """
    saved = json.loads(core.to_str())
    saved["model"]["vocab"] = [[piece, round(score, 6)] for piece, score in saved["model"]["vocab"]]
    return tokenizers.Tokenizer.from_str(json.dumps(saved))
