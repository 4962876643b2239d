"""Find text that repeats itself."""

from __future__ import annotations

import re

LONGEST_LOOP = 10  # words that are said again and again


def words(text: str) -> list[str]:
    """The words and the marks of a text, one by one."""
    return re.findall(r"\w+|[^\w\s]", text)


def has_loop(text: str) -> bool:
    """Whether up to ten words of a text, or of a compound, are said three times in a row; marks alone do not count."""
    said = words(text)
    for n in range(1, min(LONGEST_LOOP, len(said) // 3) + 1):
        run = 0
        for i in range(len(said) - n):
            run = run + 1 if said[i] == said[i + n] else 0
            if run >= 2 * n and any(letter.isalpha() for word in said[i : i + n] for letter in word):
                return True
    return False
