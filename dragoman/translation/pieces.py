"""Split lines of text into pieces that a model can translate, and encode them.

A piece is as long as the lines that the model was trained on: usually one sentence, sometimes several short ones, or
part of a very long one. A language model continues each line instead, as a translation without a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from dragoman.directions import Direction, tag_of
from dragoman.text.cleaning import clean
from dragoman.text.conventions import WORD, Conventions, in_language
from dragoman.text.sentence_splitting import split_text
from dragoman.translation.constraints import target_room
from dragoman.translation.glossary import Term
from dragoman.translation.loading import TrainedModel
from dragoman.translation.margins import split_label
from dragoman.translation.placeholders import target_stand_ins
from dragoman.translation.request import Request
from dragoman.translation.usual_form import AS_IS, Form, to_usual_form


@dataclass(frozen=True)
class Piece:
    """A piece of text as token ids."""

    text: str  # as it was typed
    ids: list[int]  # of the source, without [EOS]
    words: list[str]  # the token of each id; for a stand-in or [UNK], the original text
    prefix: list[int] = field(default_factory=list)  # target ids that the translation must begin with
    prefix_words: list[str] = field(default_factory=list)  # and their tokens
    read_as: str = ""  # the text that the ids stand for
    form: Form = AS_IS  # in which to write the translation
    language: str = ""  # whose rules change the case of the translation
    is_kept: bool = False  # nothing is left to translate once literals are hidden
    corrections: tuple[tuple[str, str], ...] = ()  # typos in the text, and what they are read as
    terms: list[Term] = field(default_factory=list)  # those of the glossary in the text


def encode_request(trained: TrainedModel, request: Request, warn: Callable[[str], object]) -> Iterator[list[Piece]]:
    """The pieces of each line of a request; none for a line that is blank or does not fit into the model."""
    for number, line in enumerate(request.lines):
        if not line:
            pieces = []
        elif trained.config.is_language_model:
            text = clean(line, trained.config.data)
            pieces = [Piece(text, [], [], *trained.target.encode_with_tokens(text), read_as=text)]
        else:
            pieces = _split_and_encode(trained, line, request.direction, warn)
        if any(target_room(trained, len(piece.ids)) <= len(piece.prefix) for piece in pieces):
            warn("not translated, because it needs more positions than the model has (model.max_positions).")
            pieces = []
        if request.prefix and pieces and number == 0:
            prefix, words = encode_translation(trained, request.prefix, pieces[0])
            pieces[0] = replace(pieces[0], prefix=prefix, prefix_words=words)
        if request.glossary:
            terms = [request.glossary.find(piece.read_as, *request.direction) for piece in pieces]
            pieces = [
                replace(piece, terms=own, is_kept=piece.is_kept and not own)
                for piece, own in zip(pieces, terms, strict=True)
            ]
        yield pieces


def encode_piece(trained: TrainedModel, text: str, direction: Direction) -> Piece:
    """Clean a text as in training and encode it as one piece, with stand-ins for what is to be copied."""
    data = trained.config.data
    text = clean(text, data)
    tag = tag_of(direction.target) if data.several else ""
    ids, words = trained.hiders[0].hide(text, tag)
    return Piece(
        text,
        ids,
        words,
        read_as=text,
        language=_language_of_case(trained, direction.target),
        is_kept=not trained.hiders[0].has_text(ids, words),
    )


def with_hidden_numbers(trained: TrainedModel, piece: Piece) -> Piece:
    """The same piece with stand-ins for all of its numbers, also for those that the vocabulary knows."""
    tag = piece.words[0] if piece.words and piece.words[0] in trained.source.tags else ""
    ids, words = trained.hiders[0].hide(piece.read_as, tag, numbers=True)
    return replace(piece, ids=ids, words=words)


def encode_translation(trained: TrainedModel, text: str, piece: Piece) -> tuple[list[int], list[str]]:
    """Clean and encode a translation of a piece, or its start. Returns its ids and their tokens."""
    hidden = target_stand_ins(piece.ids, *trained.hiders)
    return trained.hiders[1].hide_in_translation(clean(text, trained.config.data), hidden, piece.words)


def read_piece(trained: TrainedModel, text: str, direction: Direction) -> Piece:
    """Like `encode_piece`, but with decoding.tolerant the text is first put into the form of the training text."""
    if trained.readable is None or not trained.config.decoding.tolerant:
        return encode_piece(trained, text, direction)
    conventions = in_language(trained.readable, _language_of_case(trained, direction.source))
    reading = to_usual_form(text, conventions, trained.characters)
    piece = encode_piece(trained, reading.text, direction)
    return replace(piece, text=text, form=reading.form, corrections=tuple(reading.corrections))


def _language_of_case(trained: TrainedModel, language: str) -> str:
    """The language whose rules change the case of letters; none if data.lowercase has lower-cased all text."""
    return "" if trained.config.data.lowercase else language


def write_as_typed(trained: TrainedModel, piece: Piece, translation: str) -> str:
    """Write a translation in the form in which its piece was typed, unless its beginning was prescribed."""
    if piece.is_kept:
        return piece.text
    if trained.conventions is None or piece.form == AS_IS or piece.prefix:
        return translation
    return piece.form.restore(translation, in_language(trained.conventions[1], piece.language))


def _split_and_encode(
    trained: TrainedModel, line: str, direction: Direction, warn: Callable[[str], object]
) -> list[Piece]:
    """The pieces of a line, which still has the capitals that sentences begin with."""
    statistics = trained.trained_on
    if not trained.config.decoding.split_sentences:
        # Fill each piece up to the longest training line; no line has more sentences than characters.
        statistics = replace(statistics, usual=statistics.longest, sentences=len(line))

    @cache
    def encode(text: str) -> Piece:
        return read_piece(trained, text, direction)

    def lengths(texts: Sequence[str]) -> list[int]:
        return [len(encode(text).ids) for text in texts]

    def warn_of_length(length: int) -> None:
        longest = f"the longest training sentence has {statistics.longest}"
        warn(f"a sentence of {length:,} tokens is translated in parts, because {longest}.")

    parts = split_text(line, direction.source, statistics, lengths, warn_of_length)
    parts = [line] if len(parts) == 1 else parts
    if trained.readable is None or not trained.config.decoding.tolerant:
        return [encode(part) for part in parts]
    pieces: list[Piece] = []
    for part in parts:
        *labels, rest = split_label(part)
        pieces += [_with_kept_name(trained.readable, encode(label)) for label in labels]
        pieces.append(encode(rest))
    return pieces


def _with_kept_name(source: Conventions, label: Piece) -> Piece:
    """The label of a line, which is kept if it is a name: John Smith, not Step 1."""
    words = WORD.findall(label.text)
    is_name = all(word[0].isupper() and not (source.usual(word) or word).islower() for word in words)
    return replace(label, is_kept=label.is_kept or (is_name and not all(map(source.has, words))))
