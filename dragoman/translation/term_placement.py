"""Put the terms of a glossary into translations.

The model translates as usual. Where its translation lacks the target of a term, the alignment shows which word the
model wrote for it, and the target replaces that word. Nothing else changes: an article or an adjective beside a term
keeps the form that it had beside the replaced word.

Two other ways were tried: to search again with a forced prefix, the translation up to the term and the term, and to
hide the term behind a placeholder. Both spoil more of the sentence around a made-up name: docs/translating.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dragoman.dataset import EMPTY, JOINER, Tokenizer
from dragoman.text import literals
from dragoman.text.letter_case import capitalized, uncapitalized
from dragoman.translation.glossary import Term, Word, split_words
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece, encode_translation
from dragoman.translation.results import Candidate, Sentence

if TYPE_CHECKING:
    import numpy as np

_SENTENCE_START = re.compile(r"(?:^|[.!?…]\s)[^\w\s]*$")
LEAST_SHARE = 0.05  # of the attention of a word: with less, the model did not write it for the term


def place_terms(trained: TrainedModel, pieces: Sequence[Piece], sentences: Sequence[Sentence]) -> list[Sentence]:
    """The sentences, translated from these pieces, with the terms of the pieces in all candidates.

    Changed candidates are scored and ranked again; of equal texts the best stays.
    """
    lacking = [
        (i, candidate.text)
        for i, (piece, sentence) in enumerate(zip(pieces, sentences, strict=True))
        for candidate in sentence.candidates
        if missing_targets(piece.terms, candidate.text)
    ]
    if not lacking:
        return list(sentences)
    from dragoman.translation.teacher_forcing import score_texts  # slow to import

    texts = _replace_words(trained, [(pieces[i], text) for i, text in lacking])
    scored = score_texts(trained, [(pieces[i], text) for (i, _), text in zip(lacking, texts, strict=True)])
    changed = {key: each for key, each in zip(lacking, scored, strict=True) if isinstance(each, Candidate)}
    placed = list(sentences)
    for i in {i for i, _ in lacking}:
        terms = pieces[i].terms
        candidates = [_changed(each, changed.get((i, each.text), each)) for each in sentences[i].candidates]
        candidates.sort(key=lambda each: (-missing_targets(terms, each.text).total(), each.score))
        ranked = [*{each.text: each for each in candidates}.values()][::-1]
        lost = list(missing_targets(terms, ranked[0].text))
        placed[i] = replace(sentences[i], candidates=ranked, rewritten=True, lost_terms=lost)
    return placed


def _changed(candidate: Candidate, scored: Candidate) -> Candidate:
    """The scored candidate, cut off where the search was; the score still includes [EOS]."""
    end = len(scored.ids) + candidate.complete
    return replace(scored, tokens=scored.tokens[:end], log_probs=scored.log_probs[:end], complete=candidate.complete)


def missing_targets(terms: Sequence[Term], text: str) -> Counter[str]:
    """How often each target is missing from a translation: it belongs there as often as its terms are in the source."""
    wanted = Counter(term.target for term in terms)
    if terms:
        wanted -= Counter(target for target, _, _ in find_targets(text, list(wanted), terms[0].language))
    return wanted


def find_targets(text: str, targets: Sequence[str], language: str = "") -> list[tuple[str, int, int]]:
    """The targets in a text as whole words, with start and end; they do not overlap, and long ones are found first.

    At the start of a sentence, the case of the first letter does not count.
    """
    words = split_words(text)
    ends = {word.end for word in words}
    places: list[tuple[str, int, int]] = []
    for target in sorted(set(targets), key=len, reverse=True):
        for start in (word.start for word in words):
            end = start + len(target)
            same = text[start:end] == target or (
                text[start:end] in (capitalized(target, language), uncapitalized(target, language))
                and _starts_sentence(text, start)
            )
            if same and end in ends and all(end <= a or b <= start for _, a, b in places):
                places.append((target, start, end))
    return places


def tokens_of_spans(
    tokenizer: Tokenizer, tokens: Sequence[str], text: str, spans: Sequence[Term | Word]
) -> list[list[int]]:
    """The positions of the tokens of each span of a text.

    Text and tokens are compared in bytes without spaces, because a subword can be a part of a letter.
    """
    owners: list[int] = []  # for each byte, the position of its token
    for i, token in enumerate(tokens):
        if token in tokenizer.tags or token == EMPTY:
            continue
        # In the byte alphabet of subwords each byte is one character, and Ġ is the space.
        length = len(token.replace(JOINER, "").encode() if tokenizer.is_of_words else token.replace("Ġ", ""))
        owners += [i] * length

    def offset(position: int) -> int:
        return len(text[:position].replace(" ", "").encode())

    return [sorted(set(owners[offset(span.start) : offset(span.end)])) for span in spans]


def _replace_words(trained: TrainedModel, translations: Sequence[tuple[Piece, str]]) -> list[str]:
    """Put the missing targets into translations of pieces, in place of the words that the model wrote for them."""
    from dragoman.translation.teacher_forcing import alignments, why_too_long  # slow to import

    encoded = [encode_translation(trained, text, piece) for piece, text in translations]
    pairs = [(piece.ids, ids) for (piece, _), (ids, _) in zip(translations, encoded, strict=True)]
    # A text that is too long for the model has no alignment, so nothing is replaced.
    weights = alignments(trained, [([], []) if why_too_long(trained, pair) else pair for pair in pairs])
    texts = []
    for (piece, text), (_, tokens), alignment in zip(translations, encoded, weights, strict=True):
        words = _free_words(trained, piece, text)
        rows = tokens_of_spans(trained.target, tokens, text, words)
        columns = tokens_of_spans(trained.source, piece.words, piece.read_as, piece.terms)
        places = choose_places(piece.terms, missing_targets(piece.terms, text), words, rows, columns, alignment)
        for start, end, term in sorted(places, key=lambda place: place[0], reverse=True):
            text = text[:start] + _cased(term, text, start) + text[end:]
        texts.append(text)
    return texts


def _free_words(trained: TrainedModel, piece: Piece, text: str) -> list[Word]:
    """The words of a translation that a target may replace: not those of targets, web addresses and the prefix."""
    prefix = len(trained.target.decode_with(piece.prefix, dict(enumerate(piece.prefix_words))))
    targets = [term.target for term in piece.terms]
    taken = [(0, prefix), *literals.find(text), *(place[1:] for place in find_targets(text, targets, piece.language))]
    return [
        word
        for word in split_words(text)
        if any(map(str.isalnum, word.text)) and all(word.end <= start or end <= word.start for start, end in taken)
    ]


def choose_places(
    terms: Sequence[Term],
    missing: Counter[str],
    words: Sequence[Word],
    rows: Sequence[list[int]],
    columns: Sequence[list[int]],
    weights: np.ndarray,
) -> list[tuple[int, int, Term]]:
    """Choose the words that the missing targets replace: start and end in the translation, and the term.

    Each term gets the word with the largest alignment weight, unless all weights are below LEAST_SHARE. In scripts
    without spaces, where a word is a letter, it also gets the adjacent letters that look at it.

    Args:
        words: those that may be replaced
        rows, columns: the tokens of each word in the translation, and of each term in the source
        weights: alignment (T, S)
    """
    missing = missing.copy()
    free = [w for w, row in enumerate(rows) if row and weights.size]
    places = []
    for term, column in zip(terms, columns, strict=True):
        shares = {w: float(weights[rows[w]][:, column].sum(1).max()) for w in free}
        best = max(shares, key=lambda w: shares[w], default=0)
        if not missing[term.target] or shares.get(best, 0.0) < LEAST_SHARE:
            continue
        looking = [w for w in free if w == best or int(weights[rows[w]].mean(0).argmax()) in column]
        first = last = best
        while first - 1 in looking and words[first - 1].end == words[first].start:
            first -= 1
        while last + 1 in looking and words[last].end == words[last + 1].start:
            last += 1
        places.append((words[first].start, words[last].end, term))
        free = [w for w in free if not first <= w <= last]
        missing[term.target] -= 1
    return places


def _cased(term: Term, text: str, start: int) -> str:
    """The target of a term, with a capital if it replaces a capital at the start of a sentence."""
    keeps_case = term.as_written or any(map(str.isupper, term.target))
    if keeps_case or not text[start].isupper() or not _starts_sentence(text, start):
        return term.target
    return capitalized(term.target, term.language)


def _starts_sentence(text: str, position: int) -> bool:
    return _SENTENCE_START.search(text[:position]) is not None
