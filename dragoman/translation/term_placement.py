"""Put the terms of a glossary into translations.

The model translates as usual. Where its translation lacks the target of a term, the alignment shows which word the
model wrote for it, and the target replaces that word. Nothing else changes: an article or an adjective beside a term
keeps the form that it had beside the replaced word.

Another way is to search again with a forced prefix, the translation up to the term and the term, and to let the model
continue. On Multi30k it gained little where the references have the terms, and lost more with made-up names:
docs/translating.md has the figures.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dragoman.corpora.letter_case import capitalized, uncapitalized
from dragoman.dataset import EMPTY, JOINER, Tokenizer
from dragoman.settings import DecodingConfig
from dragoman.translation import literals
from dragoman.translation.glossary import Term, Word, split_words
from dragoman.translation.hypotheses import normalizer
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
    candidates = [list(sentence.candidates) for sentence in sentences]
    lacking = [
        (i, k)
        for i, piece in enumerate(pieces)
        for k, candidate in enumerate(candidates[i])
        if missing_targets(piece.terms, candidate.text)
    ]
    if not lacking:
        return list(sentences)
    from dragoman.translation.teacher_forcing import score_texts  # slow to import

    texts = _replace_words(trained, [(pieces[i], candidates[i][k].text) for i, k in lacking])
    scored = score_texts(trained, [(pieces[i], text) for (i, _), text in zip(lacking, texts, strict=True)])
    for (i, k), text, candidate in zip(lacking, texts, scored, strict=True):
        if text != candidates[i][k].text and isinstance(candidate, Candidate):
            cut_off = not candidates[i][k].complete
            candidates[i][k] = _without_eos(candidate, trained.config.decoding) if cut_off else candidate
    found = list(sentences)
    for i in {i for i, _ in lacking}:
        ranked = _ranked(candidates[i], pieces[i].terms)
        lost = list(missing_targets(pieces[i].terms, ranked[0].text))
        found[i] = replace(found[i], candidates=ranked, rewritten=True, lost_terms=lost)
    return found


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
    found: list[tuple[str, int, int]] = []
    for target in sorted(set(targets), key=len, reverse=True):
        for start in (word.start for word in words):
            end = start + len(target)
            same = text[start:end] == target or (
                text[start:end] in (capitalized(target, language), uncapitalized(target, language))
                and _starts_sentence(text, start)
            )
            if same and end in ends and all(end <= a or b <= start for _, a, b in found):
                found.append((target, start, end))
    return found


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
    found = []
    for (piece, text), (_, tokens), each in zip(translations, encoded, weights, strict=True):
        words = _free_words(trained, piece, text)
        rows = tokens_of_spans(trained.target, tokens, text, words)
        columns = tokens_of_spans(trained.source, piece.words, piece.read_as, piece.terms)
        places = choose_places(piece.terms, missing_targets(piece.terms, text), words, rows, columns, each)
        for start, end, term in sorted(places, key=lambda place: place[0], reverse=True):
            text = text[:start] + _cased(term, text, start) + text[end:]
        found.append(text)
    return found


def _free_words(trained: TrainedModel, piece: Piece, text: str) -> list[Word]:
    """The words of a translation that a target may replace: not those of targets, web addresses and the prefix."""
    prefix = len(trained.target.decode_with(piece.prefix, dict(enumerate(piece.prefix_words))))
    targets = [term.target for term in piece.terms]
    taken = [(start, end) for _, start, end in find_targets(text, targets, piece.language)]
    taken += literals.find(text)
    return [
        word
        for word in split_words(text)
        if any(map(str.isalnum, word.text))
        and word.start >= prefix
        and all(word.end <= start or end <= word.start for start, end in taken)
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

    Each term gets the word with the largest alignment weight, unless all weights are below LEAST_SHARE; the largest of
    all is chosen first. In scripts without spaces, where a word is a letter, it gets all adjacent letters that look at
    it.

    Args:
        words: those that may be replaced
        rows, columns: the tokens of each word in the translation, and of each term in the source
        weights: alignment (T, S)
    """
    shares = [
        (float(weights[row][:, column].sum(1).max()), t, w)
        for t, column in enumerate(columns)
        for w, row in enumerate(rows)
        if row and column and weights.size
    ]
    missing = missing.copy()
    waiting, free = set(range(len(terms))), set(range(len(words)))
    places = []
    for share, t, w in sorted(shares, key=lambda share: -share[0]):
        target = terms[t].target
        if share < LEAST_SHARE or t not in waiting or w not in free or not missing[target]:
            continue
        looking = {k for k in free if rows[k] and int(weights[rows[k]].mean(0).argmax()) in columns[t]}
        run = _touching(words, w, looking.__contains__)
        places.append((words[run[0]].start, words[run[-1]].end, terms[t]))
        waiting.discard(t)
        free -= set(run)
        missing[target] -= 1
    return places


def _touching(words: Sequence[Word], first: int, fits: Callable[[int], bool]) -> range:
    """The words around a word, without a space between them, that fit."""
    end = first + 1
    while first > 0 and words[first - 1].end == words[first].start and fits(first - 1):
        first -= 1
    while end < len(words) and words[end - 1].end == words[end].start and fits(end):
        end += 1
    return range(first, end)


def _cased(term: Term, text: str, start: int) -> str:
    """The target of a term, with a capital if it replaces a capital at the start of a sentence."""
    target = term.target
    keeps_case = term.as_written or any(map(str.isupper, target))
    if keeps_case or not text[start].isupper() or not _starts_sentence(text, start):
        return target
    return capitalized(target, term.language)


def _starts_sentence(text: str, position: int) -> bool:
    return _SENTENCE_START.search(text[:position]) is not None


def _without_eos(candidate: Candidate, decoding: DecodingConfig) -> Candidate:
    log_probs = candidate.log_probs[:-1]
    score = sum(log_probs) / normalizer(len(log_probs), decoding)
    return replace(candidate, tokens=candidate.tokens[:-1], log_probs=log_probs, score=score, complete=False)


def _ranked(candidates: Sequence[Candidate], terms: Sequence[Term]) -> list[Candidate]:
    """The candidates with different texts: those that lack the fewest targets first, then complete and good ones."""

    def rank(candidate: Candidate) -> tuple[int, bool, float]:
        return -missing_targets(terms, candidate.text).total(), candidate.complete, candidate.score

    unique: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=rank, reverse=True):
        unique.setdefault(candidate.text, candidate)
    return list(unique.values())
