"""Score the same sentences as other people would type them: in capitals, without the full stop, with a typo.

    for bucket in typed_differently(translator, pairs, "13a"):
        bucket.name, bucket.bleu                                 # "IN CAPITALS", 97.8

The reference is written in the same way, and both sides are compared without case where it was changed. The row
"as it is, without case" is what those rows are to be compared with.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from dragoman.corpora.conventions import final_marks
from dragoman.corpora.references import of_each, references_of
from dragoman.corpora.references import reference as reference_of
from dragoman.corpora.sentence_splitting import sentence_joiner
from dragoman.dataset import Pair
from dragoman.directions import split_tag, tag_of
from dragoman.evaluation.metrics import score
from dragoman.evaluation.report import Bucket
from dragoman.translation.translator import Translator

MOST = 500  # pairs, spread over all of them
PARAGRAPH = 10  # sentences
_WORD = re.compile(r"\b[^\W\d_A-ZÀ-Þ]{4,}\b")  # long enough for a typo, and not a name

Change = Callable[[str], str]


def typed_differently(translator: Translator, pairs: Sequence[Pair], tokenize: str) -> list[Bucket]:
    """Translate up to MOST pairs in each of these ways, and score them."""
    chosen = pairs[:: -(-len(pairs) // MOST)]
    draw = random.Random(1)  # noqa: S311 - typos, not secrets
    ways: list[tuple[str, Change, Change]] = [
        ("as it is", str, str),
        ("as it is, without case", str, str.casefold),
        ("IN CAPITALS", str.upper, str.casefold),
        ("In Title Case", title, str.casefold),
        ("in lower case", str.lower, str.casefold),
        ("without the final mark", without_mark, without_mark),
        ("with a typo", lambda text: with_typo(text, draw), str),
    ]
    found = [_typed(translator, chosen, name, typed, compared, tokenize) for name, typed, compared in ways]
    return [*found, _paragraphs(translator, chosen, tokenize)]


def with_typo(text: str, draw: random.Random) -> str:
    """Swap two neighbouring letters of one word, if there is a word of four letters or more."""
    words = [word for word in _WORD.finditer(text) if len(set(word[0])) > 1]
    if not words:
        return text
    word = draw.choice(words)
    places = [i for i in range(word.start(), word.end() - 1) if text[i] != text[i + 1]]
    i = draw.choice(places)
    return text[:i] + text[i + 1] + text[i] + text[i + 2 :]


def title(text: str) -> str:
    """Capitalize Each Word."""
    return re.sub(r"(?<![^\s])[^\W\d_]", lambda letter: letter[0].upper(), text)


def without_mark(text: str) -> str:
    """Drop the final mark, unless nothing else is there."""
    return text.removesuffix(final_marks(text)).rstrip() or text


def _typed(
    translator: Translator, pairs: Sequence[Pair], name: str, typed: Change, compared: Change, tokenize: str
) -> Bucket:
    several = bool(translator.config.data.several)
    sources = [_after_tag(source, typed) if several else typed(source) for source, _ in pairs]
    translations = [compared(text) for text in translator.translate(sources)]
    return _bucket(name, translations, [of_each(reference, compared) for _, reference in pairs], tokenize)


def _paragraphs(translator: Translator, pairs: Sequence[Pair], tokenize: str) -> Bucket:
    """PARAGRAPH sentences of one direction on a line."""
    by_tag: dict[str, list[Pair]] = {}
    for source, reference in pairs:
        direction, rest = split_tag(source) if translator.config.data.several else (None, source)
        by_tag.setdefault(f"{tag_of(direction.target)} " if direction else "", []).append((rest, reference))
    sources, references = [], []
    for tag, of_direction in by_tag.items():
        for start in range(0, len(of_direction), PARAGRAPH):
            sides = list(zip(*of_direction[start : start + PARAGRAPH], strict=True))
            request = translator.request(tag + sides[0][0])
            joiners = sentence_joiner(request.direction.source), sentence_joiner(request.direction.target)
            sources.append(tag + joiners[0].join(sides[0]))
            versions = zip(*map(references_of, sides[1]), strict=False)  # as many as each has
            references.append(reference_of([joiners[1].join(version) for version in versions]))
    return _bucket(f"in paragraphs of {PARAGRAPH}", translator.translate(sources), references, tokenize)


def _after_tag(source: str, change: Change) -> str:
    direction, rest = split_tag(source)
    return f"{tag_of(direction.target)} {change(rest)}" if direction else change(source)


def _bucket(name: str, translations: Sequence[str], references: Sequence[str], tokenize: str) -> Bucket:
    scores = score(translations, references, tokenize)
    return Bucket(name, len(references), scores.bleu, scores.chrf)
