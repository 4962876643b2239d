"""The scripts of letters, and those that a text is usually in."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import cache


@cache
def script_of(letter: int) -> str:
    """Return LATIN, CYRILLIC, CJK and so on, the first word of a letter's name; "" for other characters."""
    character = chr(letter)
    return unicodedata.name(character, "?").split()[0] if character.isalpha() else ""


def common_scripts(used: Mapping[int, int]) -> set[str]:
    """Return the scripts of at least one letter in fifty, and "".

    Args:
        used: how often each letter, given as its code point, is used
    """
    counts: Counter[str] = Counter()
    for letter, number in used.items():
        counts[script_of(letter)] += number
    all_letters = counts.total() - counts[""]
    return {""} | {script for script, number in counts.items() if number >= 0.02 * all_letters}
