"""A text of any length cut into pieces such as a model has learnt from.

Use:
    sentences("Dr. Rossi is here. Call her!", "en")              # ["Dr. Rossi is here.", "Call her!"]
    pieces(text, "en", Trained(usual=24, longest=60, sentences=1), count)

A model that was trained on single sentences translates the first of three and forgets the rest, and one that never saw
sixty tokens loses its way after them. So a text is first cut into sentences, then as many of them are put together
again as one line of the training text commonly held, and only what is longer than every training line is cut inside.

Limits: texts are cleaned lines; how they are counted in tokens is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sentencex

Count = Callable[[Sequence[str]], list[int]]  # texts to their lengths in tokens
MARKS = (".!?…。！？", ",;:–—，、；：")  # after which to cut a sentence: better, and worse


@dataclass(frozen=True)
class LineStatistics:
    """What the source lines were like from which a model has learnt."""

    usual: int  # 99 % of them had at most so many tokens
    longest: int  # tokens of the longest one
    sentences: int  # one of them in 200 had so many sentences or more


def sentence_joiner(language: str) -> str:
    """What stands between two sentences."""
    return "" if language.partition("-")[0].lower() in {"zh", "ja", "th", "lo", "km", "my"} else " "


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a cleaned text by the rules of its language, or those of English for one without rules."""
    return [part for part in map(str.strip, sentencex.segment(language, text)) if part]  # type: ignore[attr-defined]


def split_text(text: str, language: str, trained: LineStatistics, count: Count) -> list[str]:
    """Cut a cleaned text; joined by `glue(language)`, the pieces give it back, but for blanks between its sentences.

    A piece has at most `trained.longest` tokens. Only a single letter of more tokens than that stays whole.
    """
    found: list[str] = []
    room: list[int] = []  # sentences and tokens of the last piece
    parts = split_sentences(text, language)
    for part, length in zip(parts, count(parts), strict=True):
        if room and room[0] < trained.sentences and room[1] + length <= trained.usual:
            found[-1] += sentence_joiner(language) + part
            room = [room[0] + 1, room[1] + length]
        elif length <= trained.longest:
            found.append(part)
            room = [1, length]
        else:
            found += split_long_sentence(part, trained.longest, count)
            room = []
    return found


def split_long_sentence(text: str, longest: int, count: Count) -> list[str]:
    """Cut a sentence into parts of at most longest tokens each, which give it back, but for blanks between them.

    A part ends, if it can, where a sentence does, else at another mark of punctuation, else between two words; only
    a single word of more tokens than that, such as a sentence in a script without blanks, is itself cut.
    """
    words: list[str] = []
    inside = set()  # places in a word: two parts of it, joined again, might have more tokens than each of them says
    for word in text.split(" "):
        fragments = _short_enough(word, longest, count)
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
        if end < len(words):  # look back for a better place, but not so far that the part gets tiny
            candidates = range(end, start + (end - start) // 4, -1)
            ends_with = [words[i - 1].rstrip("\"'”’»)」』）")[-1:] for i in candidates]
            for marks in MARKS:
                places = [i for i, last in zip(candidates, ends_with, strict=True) if last and last in marks]
                if places:
                    end = places[0]
                    break
        parts.append(" ".join(words[start:end]))
        start = end
    return parts


def _short_enough(word: str, longest: int, count: Count) -> list[str]:
    """A word, or its halves, quarters and so on, cut at a mark near the middle if there is one, until all are short."""
    if len(word) <= 1 or count([word])[0] <= longest:
        return [word]
    middle = len(word) // 2
    for marks in MARKS:
        places = [i for i in range(len(word) // 4 + 1, len(word) - len(word) // 4) if word[i - 1] in marks]
        if places:
            middle = min(places, key=lambda i: abs(i - len(word) // 2))
            break
    return _short_enough(word[:middle], longest, count) + _short_enough(word[middle:], longest, count)
