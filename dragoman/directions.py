"""Directions of translation, and the tags by which a model of several knows which one it is asked for.

    directions = parse_directions("en-it, it-en")
    tagged("Good morning.", directions[0])                       # ">>en-it<< Good morning."
    split_tag(">>it<< Good morning.")                            # (Direction("", "it"), "Good morning.")

A model of several directions is one Transformer. All that tells them apart is the first token of the source, which
names the language to be written (Johnson et al. 2017). As text it is ">>it<<", the form of OPUS-MT; corpora and
references also keep the language that is read, ">>en-it<<", which is the same token.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

# A language is named as its files are; what follows a hyphen in a name begins with a capital or a digit, as in zh-Hant,
# pt-BR and es-419, and no name does: so "en-zh-Hant" and "es-419" can be read in one way only.
_NAME = r"[^\W\d_A-Z]\w*(?:-[A-Z0-9]\w*)*"
_PAIR = re.compile(rf"({_NAME})-({_NAME})")
_TAG = re.compile(rf"[^\S\n]*>>(?:({_NAME})-)?({_NAME})<<[^\S\n]*")


class Direction(NamedTuple):
    """From which language into which. An empty source is any, or none."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}" if self.source else self.target


def parse_directions(text: str) -> list[Direction]:
    """The directions in a text such as "en-it, it-en". Raises ValueError that says what is wrong."""
    found = []
    for part in re.split(r"\s*,\s*|\s+", text.strip()):
        matched = _PAIR.fullmatch(part)
        if not matched:
            raise ValueError("directions are named as in en-it, it-en, or pt-BR-en")
        direction = Direction(*matched.groups())
        if direction.source == direction.target or direction in found:
            raise ValueError(f"{part} is {'named twice' if direction in found else 'no translation'}")
        found.append(direction)
    return found


def targets(directions: Sequence[Direction]) -> list[str]:
    """The languages into which some directions lead, each once."""
    return list(dict.fromkeys(direction.target for direction in directions))


def tag_of(target: str) -> str:
    """The token that asks for a language."""
    return f">>{target}<<"


def tagged(text: str, direction: Direction) -> str:
    """A source text that says what is to be made of it."""
    return f">>{direction}<< {text}"


def split_tag(text: str) -> tuple[Direction | None, str]:
    """What a text is to become, if it says so, and the text without that."""
    matched = _TAG.match(text)
    if not matched:
        return None, text
    source, target = matched.groups()
    return Direction(source or "", target), text[matched.end() :]


def by_direction(sources: Sequence[str], usual: Direction) -> dict[Direction, list[int]]:
    """The positions of sources by the directions that their tags tell, or the usual one."""
    found: dict[Direction, list[int]] = defaultdict(list)
    for i, text in enumerate(sources):
        found[split_tag(text)[0] or usual].append(i)
    return dict(found)
