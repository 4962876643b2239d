"""Directions of translation, and the tags that tell a multi-direction model which language to write.

    directions = parse_directions("en-it, it-en")
    tagged("Good morning.", directions[0])                       # ">>en-it<< Good morning."
    split_tag(">>it<< Good morning.")                            # (Direction("", "it"), "Good morning.")

A model of several directions is one Transformer. The first source token names the target language (Johnson et al.
2017). In text it is written ">>it<<", as in OPUS-MT; corpora and references also keep the source language,
">>en-it<<", which is the same token.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

# A language is named as in file names. After a hyphen, a name continues with a capital or a digit (zh-Hant, pt-BR,
# es-419), and no name starts with one, so "en-zh-Hant" and "es-419" can be read in only one way.
_NAME = r"[^\W\d_A-Z]\w*(?:-[A-Z0-9]\w*)*"
_PAIR = re.compile(rf"({_NAME})-({_NAME})")
_TAG = re.compile(rf"[^\S\n]*>>(?:({_NAME})-)?({_NAME})<<[^\S\n]*")


class Direction(NamedTuple):
    """Source and target language. An empty source means any language, or none."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}" if self.source else self.target


def parse_directions(text: str) -> list[Direction]:
    """Parse a text such as "en-it, it-en". Raises ValueError with the reason."""
    directions = []
    for part in re.split(r"\s*,\s*|\s+", text.strip()):
        matched = _PAIR.fullmatch(part)
        if not matched:
            raise ValueError("directions are named as in en-it, it-en, or pt-BR-en")
        direction = Direction(*matched.groups())
        if direction.source == direction.target or direction in directions:
            raise ValueError(f"{part} is {'named twice' if direction in directions else 'no translation'}")
        directions.append(direction)
    return directions


def targets(directions: Sequence[Direction]) -> list[str]:
    """Return the target languages of directions, each once."""
    return list(dict.fromkeys(direction.target for direction in directions))


def tag_of(target: str) -> str:
    """Return the tag token of a target language."""
    return f">>{target}<<"


def tagged(text: str, direction: Direction) -> str:
    """Put the tag of a direction in front of a source text."""
    return f">>{direction}<< {text}"


def split_tag(text: str) -> tuple[Direction | None, str]:
    """Split a text into the direction that its tag names (None without a tag) and the rest."""
    matched = _TAG.match(text)
    if not matched:
        return None, text
    source, target = matched.groups()
    return Direction(source or "", target), text[matched.end() :]


def by_direction(sources: Sequence[str], usual: Direction) -> dict[Direction, list[int]]:
    """Group the indices of source texts by the direction of their tags; untagged texts have the usual one."""
    indices: dict[Direction, list[int]] = defaultdict(list)
    for i, text in enumerate(sources):
        indices[split_tag(text)[0] or usual].append(i)
    return dict(indices)


@cache
def base_code(language: str) -> str:
    """Return the code of a language without script and region: pt for pt-BR, zh for zh_TW."""
    return language.replace("_", "-").partition("-")[0].lower()
