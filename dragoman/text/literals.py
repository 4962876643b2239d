"""Find literals: text that a translation keeps as it is, such as addresses, code, placeholders, paths and quantities.

    find("Send 2.5 kg to {name}, see https://x.org.")              # the places of 2.5 kg, {name} and https://x.org

A search takes time in proportion to the text, even if that was made to be slow: each pattern starts with a mark that
it does not repeat, or may not start inside a run of the characters that it repeats, and nothing it repeats can match
in two ways. Otherwise 20,000 full stops in a row would take seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from dragoman.dataset import UNSEEN
from dragoman.text.marks import EMOJI

# Endings by which a file is known without a path, and domains by which a host is known without "www.".
_FILES = (
    "avi|bak|bat|bmp|c|cc|cfg|conf|cpp|cs|css|csv|dll|docx?|epub|exe|gif|go|gz|h|hpp|html?|ico|ini|ipynb|iso|jar|java|jpe?g|"
    "js|json|jsonl|jsx|kt|log|lua|md|mkv|mov|mp[34]|odt|ogg|pdf|php|pl|png|po|pptx?|ps1|py|rar|rb|rs|rst|rtf|sh|so|sql|svg|"
    "swift|tar|tex|tgz|tiff?|tmx|toml|ts|tsv|tsx|ttf|txt|vue|wav|webm|webp|whl|xlsx?|xml|ya?ml|zip"
)
_DOMAINS = "com|org|net|edu|gov|info|io|dev|app|eu|de|fr|es|it|uk|us|ch|at|nl|pl|pt|jp|cn|ru|br"
_UNITS = (
    "km/h|m/s|mph|km²|m²|cm²|m³|cm³|km|cm|mm|µm|nm|m|kg|mg|µg|g|lbs?|oz|ml|cl|dl|l|L|°C|°F|°|K|%|‰|€|\\$|£|¥|EUR|USD|GBP|CHF|"
    "JPY|am|pm|AM|PM|h|min|ms|GHz|MHz|kHz|Hz|kWh|kW|MW|W|mV|kV|V|mA|A|Ω|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB|Mbit/s|Gbit/s|px|pt|dpi|rpm|bpm|dB|hPa|bar"
)
# A number of any number of parts: 1,000.50, 2026-11-23, 17:43, 3/4, 5–7, 9:00 - 17:00, 4×4, 1 000 000.
_CURRENCY = r"[$€£¥]"
_JOINED = rf"(?:[.,:/'’·×−]|[–—-]{_CURRENCY}?)"
_NUMBER = rf"\d++(?:(?:{_JOINED}| [–—-] |[ \u00a0\u2009\u202f](?=\d{{3}}(?!\d)))\d++)*+"
_PARTS = rf"\d++(?:(?:{_JOINED}| [–—-] )\d++|(?:[ \u00a0\u2009\u202f]\d{{3}}(?!\d))++)++"  # two parts or more
_START = r"(?<![\w.,:/'’·×–—−$€£¥-])(?:[-+−±~≈#№](?=[\d$€£¥]))?+"  # a sign belongs to the number

_PATTERNS = {
    "code": r"(?<![\w`])(?:``(?:[^`]|`(?!`))++``|`[^`]++`)",
    "address": r"(?<!\w)(?:(?:https?|ftps?|file|ssh|git|mailto)://|www\.)[^\s<>\"`]*[\w/]",
    "mail": r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "braces": r"(?<!\{)\$?\{++[^\s{}`]*+\}++",
    "variable": r"\$[A-Za-z_]\w*+|%[A-Z_][A-Z_0-9]*+%",
    "tag": r"<[/!|?]?\w[^<>]*+>|>>\w[\w-]*+<<",
    # [NAME], [x], [1], [YOUR NAME], ⟦1⟧; in [the black cat] there are words, and [word](address) is a link.
    "brackets": r"(?<!\[)\[++(?:[^\s\[\]]*+|[^\[\]a-z]*+)\]++(?!\()|⟦[^⟦⟧]*+⟧",
    "and": r"(?<![\w&])\w++(?:&\w++)++(?!;)",  # AT&T, Q&A
    "format": r"%(?:\(\w++\))?+(?:\d++\$)?+[-+#]?+\d*+(?:\.\d++)?+(?:[hlqL]|ll)?+[sdifgeEGxXcrouq@](?!\w)",
    "windows path": r"(?<![\w\\])(?:[A-Za-z]:|\\)\\[^\s\"<>|*?]*[\w\\]",
    "path": r"(?<![\w.~/@+-])(?:(?:~|\.{1,2})?/[\w@+-]|~/)[\w.~/@+-]*(?<![.])",
    "file": rf"(?<![\w./-])[\w./-]*\w\.(?:{_FILES})(?![\w/-])(?!\.\w)",
    "host": rf"(?<![\w./-])\w[\w-]*(?:\.\w[\w-]*)*\.(?:{_DOMAINS})(?![\w-])(?:/[^\s<>\"`]*[\w/])?",
    "handle": r"(?<![\w@#&/])[@#](?=\w*[^\W\d])\w+(?:[.-]\w+)*",
    "iban": r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)",
    "version": r"(?<![\w.])(?:[vV]\d++(?:\.\d++)*+|\d++(?:\.\d++){2,}+)(?:[-+][\w.]*\w)?(?!\w)",
    "phone": r"(?<![\w+])\+\d{1,3}(?:[ .-]?\d{2,5}){2,6}(?!\w)",
    "emoji": rf"(?:[#*0-9]\ufe0f?\u20e3|[{EMOJI}][{EMOJI}\ufe0f\u200d\U000e0020-\U000e007f]*)",
    "price": rf"{_START}(?:[A-Z]{{0,3}}{_CURRENCY}|EUR|USD|GBP|CHF) ?{_NUMBER}",
    "quantity": rf"{_START}{_NUMBER}[ \u00a0\u202f]?(?:{_UNITS})(?![\w'’])",
    "time": rf"{_START}\d{{1,2}}:\d{{2}} ?[ap]\.m(?:\.(?= \S))?(?!\w)",
    "number": rf"{_START}{_PARTS}\w*+",
    "signed": r"(?<![\w.,:/'’·×–—−-])[-+−±#№]\d++(?!\w)",
    "digits": r"(?<!\w)\d{2,}+(?!\w)",
    "unseen": rf"(?<!\w){UNSEEN}(?!\w)",
}
_DIGITS = re.compile(r"\d+")
_LITERAL = re.compile("|".join(f"(?:{pattern})" for pattern in _PATTERNS.values()))
# Every literal has one of these. Most texts have none, and this is found out in a tenth of the time.
_HINT = re.compile(rf"[\d`/\\@#*{{<>\[⟦$%£€¥{EMOJI}{UNSEEN[0]}]|\w[.&]\w")


def find(text: str) -> list[tuple[int, int]]:
    """The places of the literals of a text, each as start and end, in order. Neighbours without a space are one."""
    places: list[tuple[int, int]] = []
    if not _HINT.search(text):
        return places
    for matched in _LITERAL.finditer(text):
        start, end = matched.span()
        if places and places[-1][1] == start:
            start = places.pop()[0]
        places.append((start, end))
    return places


def numbers(text: str) -> Counter[str]:
    """The runs of digits of a text."""
    return Counter(_DIGITS.findall(text))


def parts(text: str) -> tuple[list[str], list[str]]:
    """The texts around the literals, one more than there are literals, and the literals."""
    places = find(text)
    ends = [0, *(at for place in places for at in place), len(text)]
    cut = [text[start:end] for start, end in pairwise(ends)]
    return cut[::2], cut[1::2]
