"""Text as people see it: nothing that acts on the screen, and columns that line up.

Limits: a terminal has its own rules for words that run from right to left and for emoji made of several letters.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from itertools import accumulate

LONGEST_LOOP = 10  # words that are said again and again
# Marks that turn the direction of all that follows them.
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str) -> str:
    """A text in which no letter acts on what shows it: control characters and their kin appear as ⟨U+001B⟩."""
    if text.isprintable():
        return text
    return "".join(
        f"⟨U+{ord(c):04X}⟩" if c in _TURNING or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c for c in text
    )


def in_a_line(message: str) -> str:
    """A message for a terminal or a log: in one line, and visible. It may repeat names of files and pieces of texts."""
    return visible(" ".join(message.splitlines()))


def columns(text: str) -> int:
    """How many columns a terminal gives a text: two to a wide letter, none to a mark upon the letter before."""
    return sum(map(_takes, text))


def _takes(letter: str) -> int:
    marks = unicodedata.category(letter) in ("Mn", "Me")
    return 0 if marks else 1 + (unicodedata.east_asian_width(letter) in "WF")


def cut(text: str, width: int) -> str:
    """A text of so many columns at most, its end given up for an ellipsis if need be."""
    ends = list(accumulate(map(_takes, text)))
    return text if not ends or ends[-1] <= width else text[: bisect_right(ends, width - 1)] + "…"


def fit(text: str, width: int, side: str = "<") -> str:
    """A text cut, or filled with blanks, to so many columns; its left (<) or right (>) side stays where it is."""
    text = cut(text, width)
    blanks = " " * (width - columns(text))
    return text + blanks if side == "<" else blanks + text


def words(text: str) -> list[str]:
    """The words and the marks of a text, one by one."""
    return re.findall(r"\w+|[^\w\s]", text)


def loops(text: str) -> bool:
    """Whether up to ten words of a text, or of a compound, are said three times in a row; marks alone do not count."""
    said = words(text)
    for n in range(1, min(LONGEST_LOOP, len(said) // 3) + 1):
        run = 0
        for i in range(len(said) - n):
            run = run + 1 if said[i] == said[i + n] else 0
            if run >= 2 * n and any(letter.isalpha() for word in said[i : i + n] for letter in word):
                return True
    return False
