"""Split lines of text into pieces that a model can translate, and encode them.

A piece is as long as the lines that the model was trained on: usually one sentence, sometimes several short ones, or
part of a very long one. A language model continues each line instead, as a translation without a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from dragoman.corpora.cleaning import clean
from dragoman.corpora.conventions import in_language
from dragoman.corpora.sentence_splitting import split_sentences, split_text
from dragoman.directions import Direction, tag_of
from dragoman.translation.glossary import Term
from dragoman.translation.limits import target_room
from dragoman.translation.loading import TrainedModel
from dragoman.translation.placeholders import as_target
from dragoman.translation.request import Request
from dragoman.translation.typed import AS_IS, Form, read


@dataclass(frozen=True)
class Piece:
    """A piece of text as token ids."""

    text: str  # as it was typed
    ids: list[int]  # of the source, without [EOS]
    words: list[str]  # the token of each id; what a stand-in hides, or an unknown word, as it was written
    prefix: list[int] = field(default_factory=list)  # target ids that the translation must begin with
    prefix_words: list[str] = field(default_factory=list)  # and their tokens
    read_as: str = ""  # the text that the ids stand for
    form: Form = AS_IS  # in which to write the translation
    language: str = ""  # whose rules change the case of the translation
    corrections: tuple[tuple[str, str], ...] = ()  # typos in the text, and what they are read as
    terms: list[Term] = field(default_factory=list)  # those of the glossary in the text


def encode_request(trained: TrainedModel, request: Request, warn: Callable[[str], object]) -> Iterator[list[Piece]]:
    """The pieces of each line of a request; none for a line that is blank or does not fit into the model."""
    for number, line in enumerate(request.text.split("\n")):
        pieces = encode_line(trained, clean(line), request.direction, warn)
        if request.prefix and pieces and number == 0:
            prefix, words = encode_translation(trained, request.prefix, pieces[0])
            pieces[0] = replace(pieces[0], prefix=prefix, prefix_words=words)
        if request.glossary:
            languages = request.direction
            pieces = [replace(piece, terms=request.glossary.find(piece.read_as, *languages)) for piece in pieces]
        yield pieces


def encode_line(trained: TrainedModel, line: str, direction: Direction, warn: Callable[[str], object]) -> list[Piece]:
    """The pieces of a line that `clean` has cleaned without settings: its capitals show where sentences begin."""
    if not line:
        return []
    if trained.config.is_language_model:
        text = clean(line, trained.config.data)
        ids, words = trained.target.encode_with_tokens(text)
        pieces = [Piece(text, [], [], ids, words, read_as=text)]
    else:
        pieces = _split_and_encode(trained, line, direction, warn)
    if any(target_room(trained, len(piece.ids)) <= len(piece.prefix) for piece in pieces):
        warn("not translated, because it needs more positions than the model has (model.max_positions).")
        return []
    return pieces


def encode_piece(trained: TrainedModel, text: str, direction: Direction) -> Piece:
    """Clean a text as in training and encode it as one piece, with stand-ins for what is to be copied."""
    data = trained.config.data
    text = clean(text, data)
    tag = tag_of(direction.target) if data.several else ""
    language = _language_of_case(trained, direction.target)
    return Piece(text, *trained.hiders[0].hide(text, tag), read_as=text, language=language)


def encode_translation(trained: TrainedModel, text: str, piece: Piece) -> tuple[list[int], list[str]]:
    """Clean and encode a translation of a piece, or its start. Returns its ids and their tokens."""
    hidden = as_target(piece.ids, *trained.hiders)
    return trained.hiders[1].hide_again(clean(text, trained.config.data), hidden, piece.words)


def read_piece(trained: TrainedModel, text: str, direction: Direction) -> Piece:
    """Like `encode_piece`, but by decoding.tolerant the text is read as the training text would be written."""
    if trained.conventions is None or not trained.config.decoding.tolerant:
        return encode_piece(trained, text, direction)
    reading = read(text, in_language(trained.conventions[0], _language_of_case(trained, direction.source)))
    piece = encode_piece(trained, reading.text, direction)
    return replace(piece, text=text, form=reading.form, corrections=tuple(reading.corrections))


def _language_of_case(trained: TrainedModel, language: str) -> str:
    """The language whose rules change the case of letters; none if data.lowercase has lower-cased all text."""
    return "" if trained.config.data.lowercase else language


def write_as_typed(trained: TrainedModel, piece: Piece, translation: str) -> str:
    """Write a translation in the form in which its piece was typed, unless its beginning was prescribed."""
    if trained.conventions is None or piece.form == AS_IS or piece.prefix:
        return translation
    return piece.form.restore(translation, in_language(trained.conventions[1], piece.language))


def _split_and_encode(
    trained: TrainedModel, line: str, direction: Direction, warn: Callable[[str], object]
) -> list[Piece]:
    longest = trained.trained_on.longest
    statistics = trained.trained_on
    if not trained.config.decoding.split_sentences:
        # Fill each piece up to the longest training line; no line has more sentences than characters.
        statistics = replace(statistics, usual=longest, sentences=len(line))

    @cache
    def encode(text: str) -> Piece:
        return read_piece(trained, text, direction)

    def lengths(texts: Sequence[str]) -> list[int]:
        return [len(encode(text).ids) for text in texts]

    parts = split_text(line, direction.source, statistics, lengths)
    if len(parts) == 1:
        return [encode(line)]
    for length in lengths(split_sentences(line, direction.source, statistics.stops(direction.source))):
        if length > longest:
            warn(
                f"a sentence of {length:,} tokens is translated in parts, because the longest training sentence has "
                f"{longest}."
            )
    return [encode(part) for part in parts]
