"""What passes through a translation unchanged."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import Tensor

from dragoman.dataset import UNSEEN
from dragoman.settings import UNK

# What passes through a translation as it is. A word-level model gets a word instead that is in no vocabulary; its
# translation is [UNK], for which the literal is then copied. An address of mail is sought at the beginning of a run of
# its letters alone: sought at each of them, 20,000 full stops in a row would take seconds.
LITERAL = re.compile(
    rf"(?<!\w)(?:(?:https?://|www\.)[^\s<>\"]*[\w/]|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+|{UNSEEN}(?!\w))"
)


def copies(target: Sequence[int], source: Sequence[int], words: Sequence[str], weights: Tensor) -> dict[int, int]:
    """For each unknown token of target, by its position, the position of the source word to copy.

    It is the one that weights (T, S) align it with most among the words that the source vocabulary does not know
    either, each of which is taken once; if none is left, among all words that are not mere punctuation.
    """
    found: dict[int, int] = {}
    unknown = [s for s, token in enumerate(source) if token == UNK]
    others = [s for s, word in enumerate(words) if any(map(str.isalnum, word))] or list(range(len(source)))
    for t in (t for t, token in enumerate(target) if token == UNK):
        free = [s for s in unknown if s not in found.values()] or others
        found[t] = max(free, key=lambda s: float(weights[t, s]))
    return found
