"""A request to translate: what is translated, and in which direction.

    parse_request("Good morning.", data, tags)                # in the usual direction of the model
    parse_request(">>it<< Good morning.", data, tags)         # in the direction of the tag
    parse_request("Good morning.", data, tags, to="it")       # in the direction of an option

In `translation`, only this module reads a tag out of a text. A request is parsed once, where it arrives; everything
after that gets the text and the direction separately.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from dragoman.directions import Direction, split_tag, tag_of, targets
from dragoman.errors import ConfigError
from dragoman.settings import DataConfig
from dragoman.text.cleaning import clean, require_text
from dragoman.translation.glossary import Glossary


@dataclass(frozen=True)
class Request:
    """A text to translate, and how."""

    text: str  # without its tag
    direction: Direction
    prefix: str = ""  # the words that the translation must begin with
    unknown_target: str = ""  # the language of a tag that the model does not know; that tag is part of the text
    glossary: Glossary | None = None  # the terms that the translation must contain

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text, cleaned once for all that follows."""
        return [clean(line) for line in self.text.split("\n")]


def usual_direction(data: DataConfig) -> Direction:
    """The direction of a text without a tag."""
    return Direction(data.source_lang or "", data.target_lang)


def parse_request(
    text: str, data: DataConfig, tags: Collection[str], to: str = "", source: str = "", prefix: str = ""
) -> Request:
    """Find the direction of a text: that of `to` and `source`, else that of its tag, else the usual one.

    A direction without training pairs is accepted if the model knows both of its languages.

    Args:
        tags: the tags that the source tokenizer knows
        to, source: languages to translate into and from; either may be empty. They take precedence over a tag.

    Raises ConfigError if the model does not know the language `to` or `source`, and DataError for what is not text.
    """
    require_text(text, prefix)
    usual = usual_direction(data)
    if to or source:
        return Request(split_tag(text)[1] if data.several else text, _choose(data, to, source), prefix)
    direction, rest = split_tag(text) if data.several else (None, text)
    if direction is None:
        return Request(text, usual, prefix)
    if tag_of(direction.target) not in tags:
        return Request(text, usual, prefix, unknown_target=direction.target)
    return Request(rest, direction if direction.source else _into(data, direction.target), prefix)


def _choose(data: DataConfig, to: str, source: str) -> Direction:
    directions = [usual_direction(data), *data.several]
    known = {"to": targets(directions), "from": list(dict.fromkeys(each.source for each in directions))}
    for preposition, language in (("to", to), ("from", source)):
        if language and language not in known[preposition]:
            choices = ", ".join(known[preposition])
            raise ConfigError(f"this model does not translate {preposition} {language}, only {preposition} {choices}.")
    to = to or next(each.target for each in directions if each.source == source)
    if to == source:
        raise ConfigError(f"both languages are {to}: there is nothing to translate.")
    return Direction(source, to) if source else _into(data, to)


def _into(data: DataConfig, target: str) -> Direction:
    """The first direction into a language. Its source language only decides how the text is split into sentences."""
    return next(each for each in (usual_direction(data), *data.several) if each.target == target)
