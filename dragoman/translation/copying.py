"""Copy unknown words, web addresses and e-mail addresses from the source into the translation."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import Tensor

from dragoman.dataset import UNSEEN
from dragoman.settings import UNK

# Text that a translation keeps as it is. A word-level model reads UNSEEN, which is in no vocabulary, in its place, and
# translates it as [UNK], where the literal is then copied. An e-mail address is matched only from the start of a run of
# its characters: tried at each of them, 20,000 full stops in a row would take seconds.
LITERAL = re.compile(
    rf"(?<!\w)(?:(?:https?://|www\.)[^\s<>\"]*[\w/]|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+|{UNSEEN}(?!\w))"
)


def copies(target: Sequence[int], source: Sequence[int], words: Sequence[str], weights: Tensor) -> dict[int, int]:
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
