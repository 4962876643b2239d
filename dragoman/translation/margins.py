"""Separate a sentence from the marks around it, and read typographic variants of marks.

    split_margins("1) “Where is it?” :)")      # ("1) “", "Where is it?", "” :)")
    split_label("Step 1: Open the door.")      # ["Step 1:", "Open the door."]
    known_marks("I’m here.", {"'", …})         # ("I'm here.", {"'": "’"})

Models trained on sentences mistranslate list marks, labels, enclosing quotes and smileys. So these are removed
before the search, and put around the translation again.

Limits: texts are cleaned lines. A search takes time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import cycle

from dragoman.text.marks import APOSTROPHES, EMOJI, FINAL_MARKS, VARIANTS

_BULLETS = "–—―•◦▪▫‣⁃·●○■□◆◇►▶→⇒✓✔✗✘☐☑☒"
_LIST_MARK = (
    r"\(?(?:\d++(?:\.\d++)*+|[^\W\d_]|[ivx]{1,4}|[IVX]{1,4})\)|(?:\d++(?:\.\d++)*+|[^\W\d_])[.:]"  # 1) (a) iv) 1.2. 3:
    rf"|\[[^\[\]]?\]|[-*+>#{_BULLETS}]++"
)
_FRONT = re.compile(rf"(?:(?:{_LIST_MARK}) +|[{_BULLETS}-]++(?=[^\W\d_])|[{EMOJI}\ufe0f\u200d]++ *+)*+")
_LABEL = re.compile(r"(?=[^:]{0,80}[^\W\d_])(?:[^\s:.?!…。！？]++ ){0,2}[^\s:.?!…。！？]++ ?:(?= )")
_SMILEY = re.compile(r"[:;=8xX]['-]?[DPpOo3Xx)(\[\]|/\\*]+|<3+")
_SEPARATORS = ",:;"
_GREEK = re.compile("[\u0370-\u03ff\u1f00-\u1fff]")  # its ; is a question mark
_BRACKETS = "\"'“”‘’«»‹›()[]{}"  # a token with one of these stays with the sentence
# What may enclose a whole sentence, longest first.
_PAIRS = (
    ("**", "**"), ("__", "__"), ('"', '"'), ("“", "”"), ("„", "“"), ("„", "”"), ("«", "»"), ("»", "«"), ("‹", "›"),
    ("‘", "’"), ("'", "'"), ("*", "*"), ("_", "_"), ("(", ")"), ("「", "」"), ("『", "』"), ("``", "''"),
)  # fmt: skip
_OPENING = frozenset(opening[0] for opening, _ in _PAIRS)
_PLAIN = {variant: marks for marks in VARIANTS for variant in marks}
_APOSTROPHE = re.compile(rf"(?<=[^\W\d_])[{APOSTROPHES}](?=[^\W\d_])")
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-‐‑–−](?=[^\W\d_])")
_OTHER = re.compile(r'["“”„‟″«»＂。．，、？！：；（）]')


def split_margins(text: str) -> tuple[str, str, str]:
    """The text before a sentence, the sentence, and the text after it."""
    start = _front(text)
    start, end = _strip_quotes(text, start, _end(text, start))
    end = _end(text, start, end)
    return text[:start], text[start:end], text[end:]


def _front(text: str) -> int:
    found = _FRONT.match(text)
    end = found.end() if found else 0
    return end if end < len(text) else 0


def _end(text: str, start: int, end: int | None = None) -> int:
    """Where the sentence ends: before commas, colons, smileys and emoji."""
    end = len(text) if end is None else end
    separators = ",:" if _GREEK.search(text) else _SEPARATORS
    while True:
        space = text.rfind(" ", start, end)
        if space > start and _is_apart(text[space - 1], text[space + 1 : end]):
            end = space
        elif end - start > 1 and text[end - 1] in separators:
            end -= 1
        else:
            return end


def _is_apart(before: str, token: str) -> bool:
    """Whether the last token of a text is outside its sentence, as a smiley is. € after a number is inside."""
    if before.isdigit():
        return False
    no_word = not (any(map(str.isalnum, token)) or set(token) & set(_BRACKETS))
    return bool(_SMILEY.fullmatch(token)) or (no_word and bool(token.strip(FINAL_MARKS + _SEPARATORS)))


def _strip_quotes(text: str, start: int, end: int) -> tuple[int, int]:
    """Take off the marks that enclose a whole sentence."""
    if text[start : start + 1] not in _OPENING:
        return start, end
    core = text[start:end].rstrip(FINAL_MARKS)
    for opening, closing in _PAIRS:
        inner = core[len(opening) : -len(closing)]
        if core.startswith(opening) and core.endswith(closing) and inner and inner == inner.strip():
            rest = _APOSTROPHE.sub("", inner)
            if opening in rest or closing in rest or (opening[0] == "_" and " " not in inner):  # __name__ is code
                return start, end
            start += len(opening)
            return _strip_quotes(text, start, start + len(inner))
    return start, end


def split_label(line: str) -> list[str]:
    """A line, or its label and the rest: up to three words and a colon, with a list mark before them or not."""
    found = _LABEL.match(line, _front(line)) if ":" in line else None
    return [line[: found.end()], line[found.end() + 1 :]] if found else [line]


def known_marks(text: str, characters: Collection[str]) -> tuple[str, dict[str, str]]:
    """Replace variants of marks that a model does not know by those that it knows.

    Returns the text, and for each mark that replaced others what was typed, in order.
    """
    typed: dict[str, str] = {}
    if text.isascii() and "`" not in text:
        return text, typed

    def known(found: re.Match[str]) -> str:
        mark = found[0]
        if mark not in characters or mark == "`":  # every byte-level vocabulary has it
            mark = next((other for other in _PLAIN[mark] if other in characters and other != mark), mark)
        typed[mark] = typed.get(mark, "") + found[0]
        # A wide mark has its space in itself.
        return f"{mark} " if mark in ",.?!:;" and text[found.end() : found.end() + 1].isalnum() else mark

    for pattern in (_APOSTROPHE, _HYPHEN, _OTHER):
        text = pattern.sub(known, text)
    return text, {mark: marks for mark, marks in typed.items() if marks.strip(mark)}


def as_typed(text: str, variants: dict[str, str]) -> str:
    """Write the marks of a text as the variants that were typed for them, in turn."""
    turns: dict[str, Iterator[str]] = {mark: cycle(typed) for mark, typed in variants.items()}
    return "".join(next(turns[mark]) if mark in turns else mark for mark in text) if turns else text
