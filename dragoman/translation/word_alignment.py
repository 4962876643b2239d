"""Which words of a translation were made from which words of its source.

    [translation] = translator.with_alignments(translator.explain(["The black cat."]))
    align_words(translator, translation, direction)          # (words of the translation, words of the source)

The model aligns tokens. Words are what white space separates; in a language written without spaces, each character
counts as a word.

Shapes: T target tokens, S source tokens, U target words, W source words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from dragoman.dataset import Tokenizer
from dragoman.directions import Direction
from dragoman.lazy import numpy as np
from dragoman.settings import UNK
from dragoman.text.sentence_splitting import sentence_joiner
from dragoman.translation.pieces import encode_piece
from dragoman.translation.results import Sentence, Translation
from dragoman.translation.translator import Translator

Range = tuple[int, int]


def words_of(text: str, language: str) -> list[Range]:
    """Where each word of a text starts and ends."""
    if not sentence_joiner(language):
        return [(i, i + 1) for i, character in enumerate(text) if not character.isspace()]
    ranges, end = [], 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        ranges.append((start, end))
    return ranges


def align_words(translator: Translator, translation: Translation, direction: Direction) -> np.ndarray:
    """How much of each word of a translation was made from each word of its source: (U, W), rows sum to 1.

    Words are matched with tokens by their position, because a model may read other letters than the user wrote. Where
    the numbers of words disagree, positions are scaled.
    """
    blocks = [_align_sentence(translator, sentence, direction) for sentence in translation.sentences]
    rows, columns = (sum(block.shape[axis] for block in blocks) for axis in (0, 1))
    whole = np.zeros((rows, columns))
    row = column = 0
    for block in blocks:
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    whole = _resize(whole, len(words_of(translation.text, direction.target)))
    whole = _resize(whole.T, len(words_of(translation.source, direction.source))).T
    return whole / whole.sum(1, keepdims=True).clip(min=1e-9)


def _align_sentence(translator: Translator, sentence: Sentence, direction: Direction) -> np.ndarray:
    """The alignment of the words of one sentence with those of its best candidate."""
    trained, best = translator.trained, sentence.candidates[0]
    assert best.weights is not None
    piece = encode_piece(trained, sentence.read_as, direction)
    tokens = dict(enumerate(piece.words)) if piece.ids == sentence.ids else {}
    tag = len([i for i in sentence.ids[:1] if i in trained.source.tags.values()])
    copied = {t: tokens.get(s, sentence.tokens[s]) for t, s in best.copied.items()}
    source = {t - tag: word for t, word in tokens.items() if t >= tag}
    rows = len(words_of(best.text, direction.target))
    columns = len(words_of(sentence.source, direction.source))
    if not best.weights.size:  # one side has no tokens
        return np.full((rows, columns), 1 / max(1, columns))
    target_shares = _shares(trained.target, best.ids, copied, direction.target)
    source_shares = _shares(trained.source, sentence.ids[tag:], source, direction.source)
    by_word = target_shares @ best.weights[:, tag:] @ source_shares.T
    return _resize(_resize(by_word, rows).T, columns).T


def _shares(tokenizer: Tokenizer, ids: Sequence[int], known: Mapping[int, str], language: str) -> np.ndarray:
    """Which words each token is part of: (words, tokens). A punctuation mark only counts in a word of its own.

    Args:
        known: tokens by position, as `Tokenizer.tokens` returns them, for ids that do not say what they are
    """
    spaced = bool(sentence_joiner(language))
    ends = [0]
    for t in range(len(ids)):
        before = {
            i: word for i, word in known.items() if i <= t and (ids[i] == UNK or ids[i] in tokenizer.placeholders)
        }
        ends.append(len(words_of(tokenizer.decode_with(ids[: t + 1], before), language)))
    shares = np.zeros((max(ends), len(ids)))
    for t, (before, end) in enumerate(pairwise(ends)):
        shares[end - 1 if spaced else before : end, t] = 1
    labels = [known.get(t, label) for t, label in enumerate(tokenizer.pieces(ids))]
    letters = np.array([any(map(str.isalnum, label)) for label in labels], bool)
    has_letters = (shares[:, letters] > 0).any(1)
    shares[np.ix_(has_letters, ~letters)] = 0
    return shares


def _resize(weights: np.ndarray, rows: int) -> np.ndarray:
    """Spread the rows of a matrix over another number of rows."""
    if len(weights) == rows:
        return weights
    if not len(weights) or not rows:
        return np.full((rows, weights.shape[1]), 1 / max(1, weights.shape[1]))
    return weights[np.arange(rows) * len(weights) // rows]
