"""Warnings about translations: mistakes and doubts that a reader of the translation cannot see.

for message in shortcomings(trained, sentence): ...     # "the model is unsure about 'Zug': ..."
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from dragoman.console import shorten
from dragoman.settings import DecodingConfig
from dragoman.text import literals
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece
from dragoman.translation.results import Candidate, Sentence, normalizer

SHOWN = 60  # characters of a sentence in a message
TOO_SHORT = 0.4  # of the tokens that translations of such sentences usually have
MANY_UNKNOWN = 4  # doubtful if at least every fourth word is unknown
MAX_LOOP_WORDS = 10
MIN_COPIED = 4  # words; fewer may be a name


def loses_numbers(piece: Piece, sentence: Sentence) -> bool:
    """Whether a translation has other numbers than its source, or has split a number of several parts."""
    wanted, text = literals.numbers(piece.read_as), sentence.candidates[0].text
    if not wanted or piece.prefix:
        return False
    whole = (each for each in literals.parts(piece.read_as)[1] if each[-1].isdigit())
    return wanted != literals.numbers(text) or any(each not in text for each in whole)


def lacks_words(piece: Piece, sentence: Sentence) -> bool:
    """Whether a translation has neither a letter nor a digit, although there is something to translate."""
    return not (piece.is_kept or piece.prefix or any(map(str.isalnum, sentence.candidates[0].text)))


def shortcomings(trained: TrainedModel, sentence: Sentence) -> Iterator[str]:
    """Warnings about the translation of a sentence: messages for the user."""
    best = sentence.candidates[0]
    for typed, meant in sentence.corrections:
        yield f"{typed} is read as {meant}."
    if not math.isfinite(best.score):
        yield "no translation was found, because the model gives no token a finite probability."
    elif not best.complete:
        ratio = "" if trained.config.is_language_model else ", decoding.max_ratio"
        limits = f"decoding.max_length{ratio} or the model's positions"
        yield f"the translation was cut off after {len(best.ids)} tokens ({limits})."
    elif doubt := doubt_about(trained, sentence, best):
        yield f"the model is unsure about {shorten(sentence.source, SHOWN)!r}: {doubt}."
    found = literals.parts(sentence.source)[1]
    lost = [each for each in found if each not in best.text and not each.isdigit()]
    if lost:
        yield f"lost in translation: {', '.join(lost)}."
    if not lost and (difference := _other_digits(sentence.source, best.text)):
        yield f"the numbers of {shorten(sentence.source, SHOWN)!r} and of its translation differ: {difference}."
    for target in sentence.lost_terms:
        yield f"glossary: '{target}' could not be placed in the translation."


def _other_digits(source: str, translation: str) -> str:
    """The numbers that a translation lacks, and those that it has in addition."""
    wanted, found = map(literals.numbers, (source, translation))
    changes = {"missing": wanted - found, "new": found - wanted}
    return ", ".join(f"{number} is {change}" for change, numbers in changes.items() for number in numbers)


def doubt_about(trained: TrainedModel, sentence: Sentence, best: Candidate) -> str:
    """Why a translation looks like a guess; "" if it does not."""
    if trained.config.is_language_model:
        return ""
    strange = [label for s in sentence.unknown if (label := sentence.tokens[s]).isalpha() and label.islower()]
    if sentence.is_kept:
        return _doubt_of_kept(trained, sentence)
    if len(strange) > 1 and MANY_UNKNOWN * len(strange) >= len(words_and_marks(sentence.source)):
        return f"the training text does not have {', '.join(strange)}"
    if has_loop(best.text) and not has_loop(sentence.source):
        return "its translation repeats itself"
    expected = trained.trained_on.length_ratio * len(sentence.ids)
    if len(best.ids) < TOO_SHORT * expected - 2:
        return "its translation is much too short"
    if len(words_and_marks(sentence.source)) >= MIN_COPIED and best.text.casefold() == sentence.source.casefold():
        return "its translation is the same text"
    if not sentence.rewritten and mean_log_prob(best, trained.config.decoding) < trained.unsure:
        return "its words may differ from those of the training text"
    return ""


def _doubt_of_kept(trained: TrainedModel, sentence: Sentence) -> str:
    """Why a text that is its own translation should have another; "" for names, numbers and marks."""
    unknown = [sentence.tokens[s] for s in sentence.unknown]
    strange = [label for label in unknown if label.isalpha() and label.islower() and len(label) > 1]
    if strange:
        return f"the training text does not have {', '.join(strange)}"
    known = trained.source.decode([token for s, token in enumerate(sentence.ids) if s not in sentence.unknown])
    is_name = sentence.source.endswith(":")  # of someone who speaks; no other label with known words is kept
    return "the model finds no word for it" if sum(map(str.isalpha, known)) > 1 and not is_name else ""


def mean_log_prob(candidate: Candidate, decoding: DecodingConfig) -> float:
    """The mean log-probability of the tokens of a complete translation, in nats."""
    tokens = len(candidate.ids) + 1  # with [EOS]
    return candidate.score * normalizer(tokens, decoding) / tokens


def words_and_marks(text: str) -> list[str]:
    """Split a text into words and punctuation marks."""
    return re.findall(r"\w+|[^\w\s]", text)


def has_loop(text: str) -> bool:
    """Whether the same 1 to 10 words occur three times in a row; repeated punctuation does not count."""
    tokens = words_and_marks(text)
    for n in range(1, min(MAX_LOOP_WORDS, len(tokens) // 3) + 1):
        run = 0
        for i in range(len(tokens) - n):
            run = run + 1 if tokens[i] == tokens[i + n] else 0
            if run >= 2 * n and any(letter.isalpha() for word in tokens[i : i + n] for letter in word):
                return True
    return False
