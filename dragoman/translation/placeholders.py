"""Replace names, addresses and other literals by stand-ins before the search, and restore them afterwards.

    source, target = (Hider(tokenizer, tokenizer.placeholders) for tokenizer in (source_tokenizer, target_tokenizer))
    ids, words = source.hide("See https://x.org, Zoltan.")    # "See ⟦1⟧, ⟦2⟧." and See, https://x.org, ￭,, Zoltan, ￭.
    restored = restore(target_ids, target_stand_ins(ids, source, target), target.stand_ins, weights)
    restored.copied                                           # which target token is replaced by which source token

`corpora.hiding` teaches it. A run without placeholders whose tokens are words hides literals as [UNK]: its [UNK]
marks a copied word, and the alignment tells which source word to copy.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import TYPE_CHECKING

import regex
import tokenizers
from tokenizers import normalizers

from dragoman.dataset import BYTES, JOINER, UNSEEN, Tokenizer
from dragoman.settings import UNK
from dragoman.text import literals
from dragoman.text.marks import FINAL_MARKS

if TYPE_CHECKING:
    from dragoman.text.conventions import Conventions

_TO_BYTES = normalizers.ByteLevel()  # spells a text with the letters of subword tokens
_DOTTED = r"(?:\b[^\W\d_]\.)+[^\W\d_]\b(?:\.(?!\s*$))?"  # U.S., e.g.; the full stop of the text does not belong to it
_WORD = regex.compile(rf"{_DOTTED}|\w+(?:['’-]\w+)*")  # with its apostrophes and hyphens
_PART = regex.compile(r"\w+")
_BRACKETS = re.compile(r"\([^()]*+\)|\[[^\[\]]*+\]|\{[^{}]*+\}|【[^【】]*+】")
_NUMBER = re.compile(r"\d+")
_LETTER = re.compile(r"[^\W\d_]")


class Hider:
    """Encodes text, with stand-ins in place of its literals and of its unknown words and names.

    Stand-ins are used in order, and reused from the first.

    Args:
        stand_ins: the ids of placeholders, or only UNK; none: nothing is hidden
        conventions: of the training text. Subwords can spell any word, so only names and words with digits that the
            training text lacks are hidden; None hides no words
    """

    def __init__(self, tokenizer: Tokenizer, stand_ins: Sequence[int], conventions: Conventions | None = None) -> None:
        self.tokenizer, self.stand_ins = tokenizer, stand_ins
        self._has: Callable[[str], object] | None = None  # whether a word is known, and in exactly this form
        self._knows: Callable[[str], object]
        if tokenizer.is_of_words:
            self._knows = self._has = {token.strip(JOINER) for token in tokenizer.vocabulary}.__contains__
        elif conventions and conventions.counts and not conventions.nouns_have_capitals:
            self._knows, self._has = conventions.usual, conventions.occurs
        if stand_ins and not tokenizer.is_of_words:
            # The tokenizer puts a space in front of a text, but a part of a text has none.
            self._parts = tokenizers.Tokenizer.from_str(tokenizer.to_json())
            self._parts.normalizer = None  # pyright: ignore[reportAttributeAccessIssue]
            self._parts.encode_special_tokens = True

    def hide(self, text: str, tag: str = "", numbers: bool = False) -> tuple[list[int], list[str]]:
        """Like `Tokenizer.encode_with_tokens`; the token of a stand-in is what it hides.

        numbers: hide all numbers, also those that may be known
        """
        if not self.stand_ins:
            return self.tokenizer.encode_with_tokens(text, tag)
        ids, words = self._hide(text, self._literals(text, numbers))
        if self._has is not None and (UNK in ids or not self.tokenizer.is_of_words):
            ids, words = self._hide(text, self._places(text, numbers))
        for k, t in enumerate(t for t, token in enumerate(ids) if token == UNK):
            ids[t] = self.stand_ins[k % len(self.stand_ins)]
        return ([self.tokenizer.tags[tag], *ids], [tag, *words]) if tag else (ids, words)

    def hide_in_translation(
        self, text: str, source_ids: Sequence[int], source_words: Sequence[str]
    ) -> tuple[list[int], list[str]]:
        """Encode a translation, with what is hidden in its source behind the same stand-ins."""
        if not self.stand_ins:
            return self.tokenizer.encode_with_tokens(text)
        hidden: dict[str, list[int]] = {}
        for token, word in zip(source_ids, source_words, strict=True):
            if token in self.stand_ins:
                plain = word.strip(JOINER)
                hidden.setdefault(plain if self.tokenizer.is_of_words else BYTES.decode([plain]), []).append(token)
        counts = {word: len(tokens) for word, tokens in hidden.items()}
        ids, words = self._hide(text, list(_find_whole_words(text, counts)))
        for t, word in enumerate(words):
            plain = word.strip(JOINER) if self.tokenizer.is_of_words else BYTES.decode([word])
            if ids[t] == UNK and hidden.get(plain):
                ids[t] = hidden[plain].pop(0)
        return ids, words

    def has_text(self, ids: Sequence[int], words: Sequence[str]) -> bool:
        """Whether there is something to translate beside what is hidden: more than marks, numbers and a lone letter."""
        shown = [word for token, word in zip(ids, words, strict=True) if token not in self.stand_ins]
        shown = [word for word in shown if word not in self.tokenizer.tags]
        text = "".join(shown) if self.tokenizer.is_of_words else BYTES.decode(shown)
        letters = _LETTER.findall(text)
        return len(letters) > 1 or any(letter.lower() == letter.upper() for letter in letters)  # 好 is a word

    def _literals(self, text: str, numbers: bool) -> list[tuple[int, int]]:
        """The places of literals that the vocabulary does not know, in order."""
        places = [place for place in literals.find(text) if numbers or not self._is_known_number(text[slice(*place)])]
        return _merge_overlaps([*places, *(number.span() for number in _NUMBER.finditer(text))]) if numbers else places

    def _places(self, text: str, numbers: bool) -> list[tuple[int, int]]:
        """The places of all that is hidden, in order: literals, unknown names, and brackets without a known word."""
        places = self._literals(text, numbers) + self._names(text)
        for bracket in _BRACKETS.finditer(text):
            parts = _PART.findall(bracket[0])
            if parts and not any(self._knows(part) for part in parts if not part.isdigit()):
                places.append(bracket.span())
        return _merge_overlaps(places)

    def _is_known_number(self, literal: str) -> bool:
        """Whether a vocabulary of words knows a number, in all of its parts, such as 18:40."""
        known = self.tokenizer.is_of_words and literal[0].isdigit() and literal[-1].isdigit()
        return known and (literal.isdigit() or UNK not in self.tokenizer.encode_with_tokens(literal)[0])

    def _names(self, text: str) -> list[tuple[int, int]]:
        """The places of unknown words; a name of several words is one."""
        places: list[tuple[int, int]] = []
        for word in _WORD.finditer(text):
            if not self.tokenizer.is_of_words and word[0].isalpha() and word[0].islower():
                continue
            place = self._unknown_part(word)
            if place is None:
                continue
            if (
                places
                and text[places[-1][1] : place[0]] == " "
                and text[places[-1][0]].isupper()
                and text[place[0]].isupper()
            ):
                place = places.pop()[0], place[1]
            places.append(place)
        return places

    def _unknown_part(self, word: regex.Match[str]) -> tuple[int, int] | None:
        """The place of the name in a word such as l'O'Brien, Jean-Luc's or Zork-like; None if all of it is known.

        Known words at its ends do not belong to it: small ones, and one with an apostrophe in front, as in L'Aquila.
        """
        assert self._has
        text = word.string
        parts = [part.span() for part in _PART.finditer(text, *word.span())]
        is_name = any(text[start].isupper() for start, _ in parts[1:])  # where "o" is known, O'Brien is not
        known = self._has if is_name else self._knows
        is_dotted = "." in word[0]
        if all(known(text[slice(*part)]) for part in parts) and not (is_dotted and self._lacks_a_token(word[0])):
            return None
        if is_dotted:
            return word.span()
        while len(parts) > 1 and self._has(first := text[slice(*parts[0])]):
            if text[parts[0][1]] == "-" and not first.islower():
                break
            parts.pop(0)
        while len(parts) > 1 and (last := text[slice(*parts[-1])]).islower() and self._has(last):
            parts.pop()
        start, end = parts[0][0], parts[-1][1]
        name = text[start:end]
        if self.tokenizer.is_of_words or name[0].isupper() or any(map(str.isdigit, name)):
            return None if name.isdigit() else (start, end)
        return None

    def _lacks_a_token(self, word: str) -> bool:
        """Whether a vocabulary of words cannot spell a word: one that has a and m, but no full stop inside a word."""
        return self.tokenizer.is_of_words and UNK in self.tokenizer.encode_with_tokens(word)[0]

    def _hide(self, text: str, places: Sequence[tuple[int, int]]) -> tuple[list[int], list[str]]:
        """Encode a text, with [UNK] in place of what is at these places."""
        ends = [0, *(at for place in places for at in place), len(text)]
        cut = [text[start:end] for start, end in pairwise(ends)]
        return (self._hide_words if self.tokenizer.is_of_words else self._hide_subwords)(cut[::2], cut[1::2])

    def _hide_words(self, parts: Sequence[str], hidden: Sequence[str]) -> tuple[list[int], list[str]]:
        text, tokens = parts[0], []
        for literal, after in zip(hidden, parts[1:], strict=True):
            # A literal that touches a word has a joiner, like a mark.
            left, right = _is_of_word(text[-1:]), _is_of_word(after[:1])
            text += f"{' ' * left}{UNSEEN}{' ' * right}{after}"
            tokens.append(JOINER * left + literal + JOINER * right)
        ids, words = self.tokenizer.encode_with_tokens(text)
        following = iter(tokens)
        return ids, [next(following, word) if word == UNSEEN else word for word in words]

    def _hide_subwords(self, parts: Sequence[str], hidden: Sequence[str]) -> tuple[list[int], list[str]]:
        first = self._parts.encode(f" {parts[0]}" if parts[0] or hidden else "", add_special_tokens=False)
        ids, words = list(first.ids), list(first.tokens)
        for literal, after in zip(hidden, parts[1:], strict=True):
            encoding = self._parts.encode(after, add_special_tokens=False)
            ids += [UNK, *encoding.ids]
            words += [_TO_BYTES.normalize_str(literal), *encoding.tokens]
        return ids, words


def _merge_overlaps(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places in order, those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places, key=lambda place: (place[0], -place[1])):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _find_whole_words(text: str, room: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """The places of these strings in a text, by themselves, each at most as often as `room` says."""
    left = Counter(room)
    longest_first = sorted(room, key=len, reverse=True)
    pattern = "|".join(re.escape(word) for word in longest_first if word)
    # Not inside a word: An is not in Anna.
    whole = rf"(?!(?<=[^\W_])[^\W_])(?:{pattern})(?!(?<=[^\W_])[^\W_])"
    for match in re.finditer(whole, text) if pattern else ():
        left[match[0]] -= 1
        if left[match[0]] >= 0:
            yield match.span()


def target_stand_ins(ids: Sequence[int], source: Hider, target: Hider) -> list[int]:
    """The stand-ins of source ids as ids of the target; -1 for every other token."""
    of_source = dict(zip(source.stand_ins, target.stand_ins, strict=True))
    return [of_source.get(token, -1) for token in ids]


def absent_placeholders(ids: Sequence[int], source: Hider, target: Hider) -> list[int]:
    """The placeholders that a translation of these source ids must not have, as ids of the target."""
    hidden = {*target_stand_ins(ids, source, target), UNK}
    return [token for token in target.stand_ins if token not in hidden]


def _is_of_word(character: str) -> bool:
    """Whether a character, or "", is part of a word for a word-level tokenizer."""
    return character.isalnum() or character == "_" or (character != "" and unicodedata.category(character)[0] == "M")


@dataclass(frozen=True)
class Restored:
    """Which source token each stand-in of a translation is replaced by."""

    copied: dict[int, int] = field(default_factory=dict)  # target position -> position of the source token to copy
    lost: dict[int, int] = field(default_factory=dict)  # source position -> target position to insert it after, or -1


def restore(
    target: Sequence[int],
    source: Sequence[int],
    stand_ins: Sequence[int],
    weights: Sequence[Sequence[float]] | None = None,
) -> Restored | None:
    """Find the source token that each stand-in of a translation is replaced by.

    A stand-in is matched with the source token of the same number, else with an unmatched one; the largest weight wins.
    Unmatched stand-ins are dropped. An unmatched source token is inserted after the target token that attends most to
    its left neighbour, except for unknown words: the model may have translated these.

    Args:
        source: the result of `target_stand_ins`
        weights: alignment (T, S); without it, None is returned if the stand-ins alone do not say enough
    """
    written = [t for t, token in enumerate(target) if token in stand_ins]
    hidden = [s for s, token in enumerate(source) if token in stand_ins]
    if weights is None:
        places = {source[s]: s for s in hidden}
        is_clear = len(places) == len(hidden) and sorted(target[t] for t in written) == sorted(places)
        return Restored({t: places[target[t]] for t in written}) if is_clear else None
    pairs = product(written, hidden)
    ranked = sorted(pairs, key=lambda pair: (target[pair[0]] != source[pair[1]], -weights[pair[0]][pair[1]]))
    copied: dict[int, int] = {}
    for t, s in ranked:
        if t not in copied and s not in copied.values():
            copied[t] = s
    if UNK in stand_ins:
        return Restored(copied)
    lost: dict[int, int] = {}
    for s in hidden:
        if s not in copied.values():
            column = [row[s - 1] for row in weights] if s else []
            lost[s] = column.index(max(column)) if column else -1
    return Restored(copied, lost)


def missing_spaces(
    target: Sequence[str], copied: Mapping[int, int], source: Sequence[str]
) -> dict[int, tuple[bool, bool]]:
    """Where a restored literal needs a space before and after it, because the model has joined a word to it.

    Args:
        target, source: the labels of subwords; a word that touches the literal in the source may do so again
    """

    def touched(labels: Sequence[str], at: int) -> tuple[bool, bool]:
        around = labels[at - 1][-1:] if at else "", labels[at + 1][:1] if at + 1 < len(labels) else ""
        before, after = (c.isdigit() or c.lower() != c.upper() for c in around)  # other scripts have no spaces
        return before, after

    spaces = {}
    for t, s in copied.items():
        (before, after), allowed = touched(target, t), touched(source, s)
        needed = before and not allowed[0], after and not allowed[1]
        if any(needed):
            spaces[t] = needed
    return spaces


def insert_literal(text: str, before: str, literal: str) -> str:
    """Insert a literal into a text, as a word of its own, after the word with which `before`, its beginning, ends.

    It is inserted before the final marks.
    """
    at = min(len(before) if text.startswith(before) else len(text), len(text.rstrip(f" {FINAL_MARKS}")))
    while 0 < at < len(text) and _is_of_word(text[at]):
        at += 1
    left, right = text[:at].rstrip(), text[at:]
    return " ".join(part for part in (left, literal) if part) + " " * _is_of_word(right[:1]) + right
