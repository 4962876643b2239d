"""Split text of any length into chunks like the lines that a model was trained on.

    split_sentences("Dr. Rossi is here. Call her!", "en")        # ["Dr. Rossi is here.", "Call her!"]
    split_text(text, "en", LineStatistics(usual=24, longest=60, sentences=1), count)

A model trained on single sentences translates the first of three and drops the rest; one that never saw sixty tokens
loses its way after them. So text is split into sentences, and only as many of them are joined again as training
lines usually had, and only a sentence longer than every training line is split inside.

Limits: texts are cleaned lines. The caller counts their tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import sentencex

from dragoman.directions import base_code
from dragoman.text.full_stops import FullStops
from dragoman.text.marks import CLOSING_MARKS, FINAL_MARKS, PAUSES

CountTokens = Callable[[Sequence[str]], list[int]]  # texts to their lengths in tokens
NO_CORPUS = FullStops()
MARKS = (FINAL_MARKS, PAUSES)  # split after one of the first if possible, else after one of the second


@dataclass(frozen=True)
class LineStatistics:
    """The source lines that a model was trained on."""

    usual: int  # 99 % of them had at most this many tokens
    longest: int  # tokens of the longest one
    sentences: int  # half of them had at least this many sentences
    length_ratio: float = 1.0  # tokens in their translations per token
    full_stops: Mapping[str, FullStops] = field(default_factory=dict)  # by language; older data have none

    def stops(self, language: str) -> FullStops:
        """What the corpus has taught about full stops in a language."""
        return self.full_stops.get(language, NO_CORPUS)


def sentence_joiner(language: str) -> str:
    """Return what separates two sentences: a space, or nothing in scripts that use none."""
    return "" if base_code(language) in {"zh", "ja", "th", "lo", "km", "my"} else " "


def split_sentences(text: str, language: str, stops: FullStops = NO_CORPUS) -> list[str]:
    """Split a cleaned text into sentences by the rules of its language, or of English if there are none for it.

    A part without letters, such as "1." or "???", is joined to the sentence before it. `stops` are what a corpus in
    this language has taught about full stops.
    """
    sentences: list[str] = []
    start = end = 0
    complete = False  # whether what has been read since `start` has letters
    for part in sentencex.segment(language, text):  # type: ignore[attr-defined]
        has_letters = any(map(str.isalpha, part))
        if complete and has_letters and not stops.sentence_continues(text, end, language):
            sentences.append(text[start:end].strip())
            start, complete = end, False
        end += len(part)
        complete |= has_letters
    return [*sentences, text[start:].strip()] if text.strip() else []


def split_text(
    text: str, language: str, trained: LineStatistics, count: CountTokens, warn: Callable[[int], object] = bool
) -> list[str]:
    """Split a cleaned text into chunks of at most `trained.longest` tokens.

    Joined by `sentence_joiner(language)`, the chunks give the text back, except for spaces between sentences. Only a
    single letter of more tokens than the limit exceeds it. `warn` gets the length of each sentence that is too long.
    """
    chunks: list[str] = []
    last: list[int] = []  # number of sentences and tokens in the last chunk; empty if nothing may be added to it
    parts = split_sentences(text, language, trained.stops(language))
    for part, length in zip(parts, count(parts), strict=True):
        if last and last[0] < trained.sentences and last[1] + length <= trained.usual:
            chunks[-1] += sentence_joiner(language) + part
            last = [last[0] + 1, last[1] + length]
        elif length <= trained.longest:
            chunks.append(part)
            last = [1, length]
        else:
            warn(length)
            chunks += split_long_sentence(part, trained.longest, count)
            last = []
    return chunks


def split_long_sentence(text: str, longest: int, count: CountTokens) -> list[str]:
    """Split a sentence into parts of at most `longest` tokens each.

    A part ends after a sentence if possible, else after another punctuation mark, else between words. Only a single
    word that is too long, such as a sentence in a script without spaces, is split inside.
    """
    words: list[str] = []
    inside = set()  # indices inside a word: its fragments, joined again, may have more tokens than their sum
    for word in text.split(" "):
        fragments = _split_long_word(word, longest, count)
        inside |= set(range(len(words) + 1, len(words) + len(fragments)))
        words += fragments
    lengths = count(words)
    parts: list[str] = []
    start = 0
    while start < len(words):
        end, total = start, 0
        while end < len(words) and (end == start or (end not in inside and total + lengths[end] <= longest)):
            total += lengths[end]
            end += 1
        if end < len(words):
            end = _last_mark(words, start, end)
        parts.append(" ".join(words[start:end]))
        start = end
    return parts


def _last_mark(words: Sequence[str], start: int, end: int) -> int:
    """Look back from `end` for a word that ends in a mark, but keep at least a quarter of the words."""
    candidates = range(end, start + (end - start) // 4, -1)
    last_letters = [words[i - 1].rstrip(CLOSING_MARKS)[-1:] for i in candidates]
    for marks in MARKS:
        for i, last in zip(candidates, last_letters, strict=True):
            if last and last in marks:
                return i
    return end


def _split_long_word(word: str, longest: int, count: CountTokens) -> list[str]:
    """Halve a word, at a mark near its middle if there is one, until all fragments are short enough."""
    if len(word) <= 1 or count([word])[0] <= longest:
        return [word]
    middle = len(word) // 2
    for marks in MARKS:
        places = [i for i in range(len(word) // 4 + 1, len(word) - len(word) // 4) if word[i - 1] in marks]
        if places:
            middle = min(places, key=lambda i: abs(i - len(word) // 2))
            break
    return _split_long_word(word[:middle], longest, count) + _split_long_word(word[middle:], longest, count)
