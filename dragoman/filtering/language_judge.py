"""Texts in the wrong language: cheap evidence first, py3langid for the rest.

Words that are frequent in texts of the right language, and rare in the others, prove most texts right. The words and
their weights are learnt from a sample of the corpus, whose languages py3langid names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dragoman.corpora import language_id
from dragoman.filtering.words import EncodedTexts

Texts = list[str] | tuple[str, ...]

NAMED = 4000  # texts of each side whose languages are named to learn from
ENOUGH = 6.0  # nats that prove a text right
STRONGEST = 3.0  # nats of one word
DOUBT = 8.0  # smoothing: assumed occurrences of each word in 100,000 of other languages


@dataclass(frozen=True)
class LanguageJudge:
    """Judges the language of both sides."""

    languages: tuple[str, str]
    weights: np.ndarray  # (2, ids): log-odds that a word is in the language of the side

    @classmethod
    def learn(cls, texts: Sequence[Texts], words: Sequence[EncodedTexts], languages: tuple[str, str]) -> LanguageJudge:
        """Learn from the texts of the two sides, and the same texts as words."""
        size = 1 + max(int(side.ids.max(initial=0)) for side in words)
        right, wrong = np.zeros((2, size)), np.zeros((2, size))
        for side in (0, 1):
            count = len(texts[side])
            rows = np.unique(np.linspace(0, count - 1, min(NAMED, count)).astype(np.int64))
            other = np.array(
                [bool(language_id.other_language(texts[side][row], languages[side])) for row in rows], bool
            )
            for which, counts in ((rows[~other], right[side]), (rows[other], wrong[side])):
                counts += np.bincount(words[side].take(which).ids, minlength=size)
        # What is right on the other side is wrong on this one, unless both languages have the word.
        wrong = wrong + right[::-1]
        share_right = (right + 0.1) / (right.sum(1, keepdims=True) + 1)
        share_wrong = (wrong + 0.1) / (wrong.sum(1, keepdims=True) + 1) + DOUBT / 1e5
        weights = np.clip(np.log(share_right / share_wrong), -STRONGEST, STRONGEST)
        weights[:, 0] = 0
        return cls(languages, weights)

    def reasons_for(self, texts: Sequence[Texts], words: Sequence[EncodedTexts]) -> list[str]:
        """Return for each pair "language", "swapped", or "" if nothing is clearly wrong."""
        reasons = [""] * len(texts[0])
        others: list[dict[int, str]] = [{}, {}]
        for side in (0, 1):
            if not language_id.knows(self.languages[side]):
                continue
            proof = words[side].means(self.weights[side][words[side].ids]) * words[side].sizes
            for row in np.flatnonzero(proof < ENOUGH).tolist():
                if other := language_id.other_language(texts[side][row], self.languages[side]):
                    others[side][row] = other
                    reasons[row] = "language"
        for row in others[0].keys() & others[1].keys():
            if all(language_id.alike(others[side][row], self.languages[1 - side]) for side in (0, 1)):
                reasons[row] = "swapped"
        return reasons
