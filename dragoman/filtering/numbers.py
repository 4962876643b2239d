"""Numbers that differ between the two sides of a pair.

Languages write the same number in several ways: 1,000.5 is 1.000,5, and 2:30 pm is 14 Uhr 30. Small numbers are often
spelled out. So a pair differs only if each side has numbers of its own, of two digits or more, however they are split.
"""

from __future__ import annotations

import re
from collections import Counter

_DIGIT = re.compile(r"\d")
# Digits, with separators between them; a space only before three digits.
_NUMBER = re.compile(r"\d+(?:[.,'’·٫٬/:-]\d+|[ \u00a0\u202f]\d{3}(?!\d))*")
_DIGITS = re.compile(r"\d+")
_CLOCK = re.compile(r"\d\s*(?:[:h]\s*\d\d|[ap]\.?\s?m\b|o'clock|uhr|heures?|h\b)", re.IGNORECASE)


def numbers_differ(source: str, target: str) -> bool:
    """Whether each side has numbers that the other lacks."""
    if not (_DIGIT.search(source) and _DIGIT.search(target)):
        return False
    least = 3 if _CLOCK.search(source) or _CLOCK.search(target) else 2  # 10 pm is 22 h
    return _conflict(_joined(source), _joined(target), least) and _conflict(_split(source), _split(target), least)


def _joined(text: str) -> Counter[str]:
    return Counter(_plain("".join(_DIGITS.findall(number))) for number in _NUMBER.findall(text))


def _split(text: str) -> Counter[str]:
    return Counter(_plain(digits) for digits in _DIGITS.findall(text))


def _plain(digits: str) -> str:
    """Digits as ASCII, without zeros at the start; zeros at the end count as decimals, as in 3.50 and 3,5."""
    ascii_digits = digits if digits.isascii() else "".join(str(int(digit)) for digit in digits)
    return ascii_digits.lstrip("0")


def _conflict(one: Counter[str], other: Counter[str], least: int) -> bool:
    left = [number for number in (one - other) if len(number) >= least]
    right = [number for number in (other - one) if len(number) >= least]
    return bool(left and right) and not {number.rstrip("0") for number in left} & {n.rstrip("0") for n in right}
