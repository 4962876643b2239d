"""Hide what a translation keeps, such as addresses and unknown names, from the model, and restore it afterwards.

    source, target = (Hider(tokenizer, tokenizer.placeholders) for tokenizer in (source_tokenizer, target_tokenizer))
    ids, words = source.hide("See https://x.org, Zoltan.")    # "See ⟦1⟧, ⟦2⟧." and See, https://x.org, ￭,, Zoltan, ￭.
    found = restore(target_ids, as_target(ids, source, target), target.stand_ins, weights)
    found.copied                                              # which target token is replaced by which source token

`corpora.placeholders` teaches it. A run without placeholders whose tokens are words hides literals as [UNK]: it has
learned to write [UNK] where a word is copied, and the alignment says which word.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import tokenizers
from tokenizers import normalizers

from dragoman.dataset import JOINER, UNSEEN, Tokenizer
from dragoman.settings import UNK
from dragoman.translation import literals

if TYPE_CHECKING:
    import numpy as np

_TO_BYTES = normalizers.ByteLevel()  # spells a text with the letters of subword tokens


class Hider:
    """Encodes text, with stand-ins in place of its literals and, if tokens are words, of its unknown words.

    The k-th thing to hide gets the k-th stand-in; when all are in use, the first one again.

    Args:
        stand_ins: the ids of placeholders, or only UNK; none: nothing is hidden
    """

    def __init__(self, tokenizer: Tokenizer, stand_ins: Sequence[int]) -> None:
        self.tokenizer, self.stand_ins = tokenizer, stand_ins
        if stand_ins and not tokenizer.is_of_words:
            # The tokenizer puts a space in front of a text, but a part of a text has none.
            self._parts = tokenizers.Tokenizer.from_str(tokenizer.to_json())
            self._parts.normalizer = None  # pyright: ignore[reportAttributeAccessIssue]
            self._parts.encode_special_tokens = True

    def hide(self, text: str, tag: str = "") -> tuple[list[int], list[str]]:
        """Like `Tokenizer.encode_with_tokens`; the token of a stand-in is what it hides."""
        if not self.stand_ins:
            return self.tokenizer.encode_with_tokens(text, tag)
        # A number of two digits or more is a literal as subwords, but as a word it may be known.
        ids, words = self._hide(text, lambda literal: not (self.tokenizer.is_of_words and literal.isdigit()))
        for k, t in enumerate(t for t, token in enumerate(ids) if token == UNK):
            ids[t] = self.stand_ins[k % len(self.stand_ins)]
        return ([self.tokenizer.tags[tag], *ids], [tag, *words]) if tag else (ids, words)

    def hide_again(
        self, text: str, source_ids: Sequence[int], source_words: Sequence[str]
    ) -> tuple[list[int], list[str]]:
        """Encode a translation, with what is hidden in its source behind the same stand-ins."""
        if not self.stand_ins:
            return self.tokenizer.encode_with_tokens(text)
        hidden: dict[str, list[int]] = {}
        for token, word in zip(source_ids, source_words, strict=True):
            if token in self.stand_ins:
                hidden.setdefault(word.strip(JOINER), []).append(token)
        room = {word: len(tokens) for word, tokens in hidden.items()}

        def occurs(literal: str) -> bool:
            word = literal if self.tokenizer.is_of_words else _TO_BYTES.normalize_str(literal)
            room[word] = room.get(word, 0) - 1
            return room[word] >= 0

        ids, words = self._hide(text, occurs)
        for t, word in enumerate(words):
            if ids[t] == UNK and hidden.get(word.strip(JOINER)):
                ids[t] = hidden[word.strip(JOINER)].pop(0)
        return ids, words

    def _hide(self, text: str, chosen: Callable[[str], bool]) -> tuple[list[int], list[str]]:
        """Encode a text, with [UNK] in place of the chosen literals."""
        around, found = literals.parts(text)
        parts, hidden = around[:1], []
        for literal, after in zip(found, around[1:], strict=True):
            if chosen(literal):
                hidden.append(literal)
                parts.append(after)
            else:
                parts[-1] += literal + after
        return self._hide_words(parts, hidden) if self.tokenizer.is_of_words else self._hide_subwords(parts, hidden)

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


def as_target(ids: Sequence[int], source: Hider, target: Hider) -> list[int]:
    """The stand-ins of source ids as ids of the target; -1 for every other token."""
    of_source = dict(zip(source.stand_ins, target.stand_ins, strict=True))
    return [of_source.get(token, -1) for token in ids]


def absent_placeholders(ids: Sequence[int], source: Hider, target: Hider) -> list[int]:
    """The placeholders that a translation of these source ids must not have, as ids of the target."""
    hidden = {*as_target(ids, source, target), UNK}
    return [token for token in target.stand_ins if token not in hidden]


def _is_of_word(character: str) -> bool:
    """Whether a character, or "", is part of a word for a word-level tokenizer."""
    return character.isalnum() or character == "_" or (character != "" and unicodedata.category(character)[0] == "M")


@dataclass(frozen=True)
class Restored:
    """What becomes of the stand-ins of a translation."""

    copied: dict[int, int] = field(default_factory=dict)  # target position -> position of the source token to copy
    lost: dict[int, int] = field(default_factory=dict)  # source position -> target position to insert it after, or -1


def restore_exactly(target: Sequence[int], source: Sequence[int], placeholders: Sequence[int]) -> Restored | None:
    """Restore the placeholders of a translation that has each one of its source once; None for any other.

    Args:
        source: the result of `as_target`
    """
    written = {token: t for t, token in enumerate(target) if token in placeholders}
    hidden = {token: s for s, token in enumerate(source) if token in placeholders}
    counts = [sum(token in placeholders for token in side) for side in (target, source)]
    if written.keys() != hidden.keys() or counts != [len(written), len(hidden)]:
        return None
    return Restored({t: hidden[token] for token, t in written.items()})


def restore(
    target: Sequence[int], source: Sequence[int], placeholders: Sequence[int], weights: Sequence[Sequence[float]]
) -> Restored:
    """Restore the placeholders of any translation, by the alignment (T, S) where their numbers do not say enough.

    A placeholder stands for the source token that has the same number, if another has not been preferred, or else for
    one that would get lost. Of several that could stand for a token, the one that looks at it most does; one that is
    left stands for nothing. What still is lost belongs after the token that looks most at what precedes it.
    """
    written = [t for t, token in enumerate(target) if token in placeholders]
    hidden = [s for s, token in enumerate(source) if token in placeholders]
    pairs = product(written, hidden)
    ranked = sorted(pairs, key=lambda pair: (target[pair[0]] != source[pair[1]], -weights[pair[0]][pair[1]]))
    copied: dict[int, int] = {}
    for t, s in ranked:
        if t not in copied and s not in copied.values():
            copied[t] = s
    missing = [s for s in hidden if s not in copied.values()]
    looking = range(len(weights))
    lost = {s: max(looking, key=lambda t: weights[t][s - 1]) if s and len(weights) else -1 for s in missing}
    return Restored(copied, lost)


def spaces(target: Sequence[str], copied: Mapping[int, int], source: Sequence[str]) -> dict[int, tuple[bool, bool]]:
    """Where a restored literal needs a space before and after it, because the model has joined a word to it.

    Args:
        target, source: the labels of subwords; a word that touches the literal in the source may do so again
    """

    def touched(labels: Sequence[str], at: int) -> tuple[bool, bool]:
        around = labels[at - 1][-1:] if at else "", labels[at + 1][:1] if at + 1 < len(labels) else ""
        before, after = (c.isdigit() or c.lower() != c.upper() for c in around)  # other scripts have no spaces
        return before, after

    found = {}
    for t, s in copied.items():
        (before, after), allowed = touched(target, t), touched(source, s)
        needed = before and not allowed[0], after and not allowed[1]
        if any(needed):
            found[t] = needed
    return found


def inserted(text: str, before: str, literal: str) -> str:
    """Insert a literal into a text, as a word of its own, after the word with which `before`, its beginning, ends."""
    at = len(before) if text.startswith(before) else len(text)
    while 0 < at < len(text) and _is_of_word(text[at]):
        at += 1
    left, right = text[:at].rstrip(), text[at:]
    return " ".join(part for part in (left, literal) if part) + " " * _is_of_word(right[:1]) + right


def copies(target: Sequence[int], source: Sequence[int], words: Sequence[str], weights: np.ndarray) -> dict[int, int]:
    """Choose the source word to copy for each [UNK] of target: target position to source position.

    Unknown source words come first, each used once; when none is left, any word that is not just punctuation. Among
    those, the word with the largest alignment weight is copied.

    Args:
        words: the word of each source id; an empty one is never copied
        weights: alignment (T, S)
    """
    found: dict[int, int] = {}
    unknown = [s for s, token in enumerate(source) if token == UNK]
    others = [s for s, word in enumerate(words) if any(map(str.isalnum, word))] or list(range(len(source)))
    for t in (t for t, token in enumerate(target) if token == UNK):
        free = [s for s in unknown if s not in found.values()] or others
        found[t] = max(free, key=lambda s: float(weights[t, s]))
    return found
