"""Detect text that repeats itself, as undertrained models write it."""

from __future__ import annotations

import re

MAX_LOOP_WORDS = 10


def words(text: str) -> list[str]:
    """Split a text into words and punctuation marks."""
    return re.findall(r"\w+|[^\w\s]", text)


def has_loop(text: str) -> bool:
    """Whether the same 1 to 10 words occur three times in a row; repeated punctuation does not count."""
    tokens = words(text)
    for n in range(1, min(MAX_LOOP_WORDS, len(tokens) // 3) + 1):
        run = 0
        for i in range(len(tokens) - n):
            run = run + 1 if tokens[i] == tokens[i + n] else 0
            if run >= 2 * n and any(letter.isalpha() for word in tokens[i : i + n] for letter in word):
                return True
    return False
