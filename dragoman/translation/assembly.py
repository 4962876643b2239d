"""Turn the token ids that a search found into text, with unknown words copied from the source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dragoman.console import shorten
from dragoman.corpora.cleaning import clean
from dragoman.settings import UNK
from dragoman.translation.copying import LITERAL, copies
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece, write_as_typed
from dragoman.translation.repetition import has_loop, words
from dragoman.translation.results import Candidate, Sentence
from dragoman.translation.search import Hypothesis
from dragoman.translation.teacher_forcing import alignments
from dragoman.translation.typed import AS_IS

SHOWN = 60  # characters of a sentence in a message
TOO_SHORT = 0.4  # of the tokens that translations of such sentences usually have
MIN_COPIED = 4  # words; fewer may be a name


def make_sentences(
    trained: TrainedModel, pieces: Sequence[Piece], hypotheses: Sequence[Sequence[Hypothesis]]
) -> list[Sentence]:
    """The pieces of a batch with their translations."""
    copied = _copied(trained, pieces, hypotheses)
    return [
        Sentence(
            piece.text,
            piece.read_as,
            piece.corrections,
            piece.ids,
            [*map(trained.source.label, piece.words), "[EOS]"],
            [s for s, token in enumerate(piece.ids) if token == UNK],
            [_candidate(trained, piece, h, copied.get(id(h), {})) for h in found],
        )
        for piece, found in zip(pieces, hypotheses, strict=True)
    ]


def _copied(
    trained: TrainedModel, pieces: Sequence[Piece], hypotheses: Sequence[Sequence[Hypothesis]]
) -> dict[int, dict[int, int]]:
    """The `copies` of each hypothesis that has unknown words, by its `id`."""
    unclear = [(piece, h) for piece, found in zip(pieces, hypotheses, strict=True) for h in found if UNK in h.tokens]
    if not unclear or trained.config.decoding.unknown != "copy":
        return {}
    copied = {}
    weights = alignments(trained, [(piece.ids, h.tokens) for piece, h in unclear])
    for (piece, h), alignment in zip(unclear, weights, strict=True):
        given = len(piece.prefix)  # nothing is copied into the prefix
        words = ["" if word in trained.source.tags else word for word in piece.words]
        after = copies(h.tokens[given:], piece.ids, words, alignment[given:])
        copied[id(h)] = {given + t: s for t, s in after.items()}
    return copied


def _candidate(trained: TrainedModel, piece: Piece, hypothesis: Hypothesis, copied: dict[int, int]) -> Candidate:
    ids, log_probs, score, complete = hypothesis
    words = {t: piece.words[s] for t, s in copied.items()}
    # A search that found nothing does not even return the prefix.
    words |= {t: word for t, word in enumerate(piece.prefix_words[: len(ids)]) if piece.prefix[t] == UNK}
    dropped = UNK if trained.config.decoding.unknown == "drop" else None
    kept = [t for t, token in enumerate(ids) if token != dropped or t in words]
    labels = trained.target.pieces(ids)
    for t, word in words.items():
        labels[t] = trained.source.label(word)
    kept_ids = [ids[t] for t in kept]
    if words:
        text = trained.target.decode_with(kept_ids, {i: words[t] for i, t in enumerate(kept) if t in words})
    else:
        text = trained.target.decode(kept_ids)
    # Cleaned, because a model that writes bytes can write a line feed.
    return Candidate(clean(text), ids, labels + ["[EOS]"] * complete, log_probs, score, complete, copied)


def as_typed(trained: TrainedModel, pieces: Sequence[Piece], sentences: Sequence[Sentence]) -> list[Sentence]:
    """The translations of these pieces in the form in which they were typed."""
    return [
        sentence
        if piece.form == AS_IS
        else replace(
            sentence,
            candidates=[replace(each, text=write_as_typed(trained, piece, each.text)) for each in sentence.candidates],
        )
        for piece, sentence in zip(pieces, sentences, strict=True)
    ]


def shortcomings(trained: TrainedModel, sentences: Sequence[Sentence]) -> Iterator[str]:
    """What is wrong with translations, or may be, and cannot be seen in them: messages for the user."""
    for sentence in sentences:
        best = sentence.candidates[0]
        for typed, meant in sentence.corrections:
            yield f"{typed} is read as {meant}."
        if not math.isfinite(best.score):
            yield "no translation is left, because the settings under decoding rule out every token."
        elif not best.complete:
            ratio = "" if trained.config.is_language_model else ", decoding.max_ratio"
            limits = f"decoding.max_length{ratio} or the model's positions"
            yield f"the translation was cut off after {len(best.ids)} tokens ({limits})."
        elif doubt := _doubt(trained, sentence, best):
            yield f"the model is unsure about {shorten(sentence.source, SHOWN)!r}: {doubt}."
        lost = [literal for literal in LITERAL.findall(sentence.source) if literal not in best.text]
        if lost:
            yield f"lost in translation: {', '.join(lost)}."
        for target in sentence.lost_terms:
            yield f"glossary: '{target}' could not be placed in the translation."


def _doubt(trained: TrainedModel, sentence: Sentence, best: Candidate) -> str:
    """Why a translation looks like a guess; "" if it does not."""
    if trained.config.is_language_model:
        return ""
    if has_loop(best.text) and not has_loop(sentence.source):
        return "its translation repeats itself"
    expected = trained.trained_on.length_ratio * len(sentence.ids)
    if len(best.ids) < TOO_SHORT * expected - 2:
        return "its translation is much too short"
    if len(words(sentence.source)) >= MIN_COPIED and best.text.casefold() == sentence.source.casefold():
        return "its translation is the same text"
    if best.log_probs and not sentence.rewritten and sum(best.log_probs) / len(best.log_probs) < trained.unsure:
        return "its words may be unlike those of the training text"
    return ""
