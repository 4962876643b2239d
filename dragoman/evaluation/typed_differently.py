"""Score the same sentences as other people would type them: in capitals, without the full stop, with a typo.

    for bucket in typed_differently(translator, pairs):
        bucket.name, bucket.bleu                                 # "IN CAPITALS", 97.8

The reference is written in the same way, and both sides are compared without case where it was changed. The row
"as it is, without case" is what those rows are to be compared with.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from dragoman.corpora.references import of_each, references_of
from dragoman.corpora.references import reference as reference_of
from dragoman.dataset import Pair
from dragoman.directions import Direction, split_tag, tag_of
from dragoman.evaluation.metrics import score
from dragoman.evaluation.per_direction import tokenizations
from dragoman.evaluation.report import Bucket
from dragoman.text.conventions import final_marks
from dragoman.text.letter_case import capitalized, lower, upper
from dragoman.text.sentence_splitting import sentence_joiner
from dragoman.translation.request import usual_direction
from dragoman.translation.translator import Translator

MOST = 500  # pairs, spread over all of them
PARAGRAPH = 10  # sentences
_WORD = re.compile(r"\b[^\W\d_A-ZÀ-Þ]{4,}\b")  # long enough for a typo, and not a name

Change = Callable[[str, str], str]  # of a text, and its language


def typed_differently(translator: Translator, pairs: Sequence[Pair]) -> list[Bucket]:
    """Translate up to MOST pairs in each of these ways, and score them."""
    chosen = pairs[:: -(-len(pairs) // MOST)]
    draw = random.Random(1)  # noqa: S311 - typos, not secrets
    ways: list[tuple[str, Change, Change]] = [
        ("as it is", _same, _same),
        ("as it is, without case", _same, upper),
        ("IN CAPITALS", upper, upper),
        ("In Title Case", title, upper),
        ("in lower case", lower, upper),
        ("without the final mark", without_mark, without_mark),
        ("with a typo", lambda text, _: with_typo(text, draw), _same),
    ]
    buckets = [_typed(translator, chosen, name, typed, compared) for name, typed, compared in ways]
    return [*buckets, _paragraphs(translator, chosen)]


def with_typo(text: str, draw: random.Random) -> str:
    """Swap two neighbouring letters of one word, if there is a word of four letters or more."""
    words = [word for word in _WORD.finditer(text) if len(set(word[0])) > 1]
    if not words:
        return text
    word = draw.choice(words)
    places = [i for i in range(word.start(), word.end() - 1) if text[i] != text[i + 1]]
    i = draw.choice(places)
    return text[:i] + text[i + 1] + text[i] + text[i + 2 :]


def title(text: str, language: str) -> str:
    """Capitalize Each Word."""
    return re.sub(r"(?<!\S)[^\W\d_]\S*", lambda word: capitalized(word[0], language), text)


def without_mark(text: str, _: str = "") -> str:
    """Drop the final mark, unless nothing else is there."""
    return text.removesuffix(final_marks(text)).rstrip() or text


def _typed(translator: Translator, pairs: Sequence[Pair], name: str, typed: Change, compared: Change) -> Bucket:
    parsed = [_direction_of(translator, source) for source, _ in pairs]
    sources = [tag + typed(text, direction.source) for tag, direction, text in parsed]
    languages = [direction.target for _, direction, _ in parsed]
    translations = list(map(compared, translator.translate(sources), languages))
    references = [
        of_each(reference, lambda text, language=language: compared(text, language))
        for (_, reference), language in zip(pairs, languages, strict=True)
    ]
    return _bucket(name, translator, sources, translations, references)


def _paragraphs(translator: Translator, pairs: Sequence[Pair]) -> Bucket:
    """PARAGRAPH sentences of one direction on a line."""
    by_tag: dict[str, list[Pair]] = {}
    for source, reference in pairs:
        tag, _, text = _direction_of(translator, source)
        by_tag.setdefault(tag, []).append((text, reference))
    sources, references = [], []
    for tag, of_direction in by_tag.items():
        for start in range(0, len(of_direction), PARAGRAPH):
            sides = list(zip(*of_direction[start : start + PARAGRAPH], strict=True))
            request = translator.request(tag + sides[0][0])
            joiners = sentence_joiner(request.direction.source), sentence_joiner(request.direction.target)
            sources.append(tag + joiners[0].join(sides[0]))
            versions = zip(*map(references_of, sides[1]), strict=False)  # as many as each has
            references.append(reference_of([joiners[1].join(version) for version in versions]))
    name = f"in paragraphs of {PARAGRAPH}"
    return _bucket(name, translator, sources, translator.translate(sources), references)


def _direction_of(translator: Translator, source: str) -> tuple[str, Direction, str]:
    """The tag, the direction and the text of a source."""
    data = translator.config.data
    direction, text = split_tag(source) if data.several else (None, source)
    return f"{tag_of(direction.target)} " if direction else "", direction or usual_direction(data), text


def _same(text: str, _: str) -> str:
    return text


def _bucket(
    name: str,
    translator: Translator,
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
) -> Bucket:
    scores = score(translations, references, tokenizations(sources, translator.config.data))
    return Bucket(name, len(references), scores.bleu, scores.chrf)
