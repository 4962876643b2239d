"""Faults in the characters of raw text."""

from __future__ import annotations

import re

from dragoman.corpora.formats.units import BROKEN, is_left_out
from dragoman.text.cleaning import is_text

UNREADABLE = ("not_utf8", "broken_row", "no_pair")  # flaws of pairs that training does not read

# The bytes of UTF-8 after the first, as Latin-1 and Windows-1252 show them. Those of the second kind are punctuation
# that may well follow a capital letter, as in “MANHÃ”.
_LATER = "\x80-\x9f\xa1-\xa6\xa8-\xaa\xac-\xb6\xb8-\xba\xbc-\xbf€ƒˆ‰Š‹ŒŽ˜™š›œžŸ†‡"
_PUNCTUATION = "\xa0\xa7\xab\xb7\xbb‚„…‘’“”•–—"
# Letters of Latin-1; punctuation, €, ™, the byte order mark, U+FFFD; emoji; other Latin letters; Greek and Cyrillic.
# Follows ftfy (Robyn Speer), but only patterns that correct text never has; its other rules weigh two readings.
_MOJIBAKE = re.compile(
    rf"[ÂÃ][{_LATER}]|(?<![A-ZÀ-Þ])[ÂÃ][{_PUNCTUATION}]|â(?:€|\x80)[{_LATER}{_PUNCTUATION}]|â‚¬|â„¢|ï»¿|ï¿½"
    rf"|ðŸ[{_LATER}{_PUNCTUATION}]|[ÄÅ][{_LATER}](?=[a-zß-ÿ])|(?:[ÎÏÐÑ][{_LATER}{_PUNCTUATION}]){{2}}"
)
SIGNS_OF_FLAWS = frozenset("ÂÃâïðÄÅÎÏÐÑ\ufffd")  # text without these, and without surrogates, has no flaw but "control"
# White space is fine, since cleaning turns it into spaces, and so are the joiners of Persian, Hindi and emoji.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\u202a-\u202e\u2060-\u2069\ufeff]")


def find_flaw(source: str, target: str) -> str | None:
    """Name the gravest fault in the characters of a raw pair, if there is one."""
    text = f"{source}\n{target}"
    if source.startswith(BROKEN):
        return "broken_row"
    if is_left_out(source):
        return "no_pair"
    tests = {"not_utf8": not is_text(text), "mojibake": _MOJIBAKE.search(text), "replaced": "\ufffd" in text}
    return next((name for name, wrong in tests.items() if wrong), "control" if _CONTROL.search(text) else None)
