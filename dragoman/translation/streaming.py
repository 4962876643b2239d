"""Write a translation word by word, while the search is still going on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

from dragoman.settings import UNK
from dragoman.translation.assembly import as_typed, make_sentences
from dragoman.translation.batch_search import search_batch, suitable_threads
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece, write_as_typed
from dragoman.translation.placeholders import as_target
from dragoman.translation.results import Sentence
from dragoman.translation.term_placement import place_terms


def stream_piece(
    trained: TrainedModel,
    piece: Piece,
    write: Callable[[str], object],
    search_again: Callable[[list[Piece], dict[int, Sentence]], None],
) -> Sentence:
    """Translate a piece and write each word once no hypothesis that could still win disagrees on it.

    `search_again` replaces a translation that is spoilt, and its piece.

    A piece with terms of a glossary is written when it is finished, because they replace words of the translation.
    If the final text turns out not to continue what was written, it follows in full on a new line.
    """
    written = ""
    hidden = as_target(piece.ids, *trained.hiders)
    words = {t: piece.words[hidden.index(t)] for t in trained.target.placeholders if hidden.count(t) == 1}

    growing = replace(piece, form=replace(piece.form, after=""))  # what stands behind a sentence is written last
    unclear = {UNK, *trained.target.placeholders}  # restored only at the end, except for these words

    def write_settled(_: int, tokens: list[int]) -> None:
        nonlocal written
        known = list(takewhile(lambda token: token in words or token not in unclear, tokens))
        given = {t: words[token] for t, token in enumerate(known) if token in words}
        # The last character may still lack some of its bytes, and what follows a space may be dropped.
        text = trained.target.decode_with(known, given) if given else trained.target.decode(known)
        text = text.rstrip("\ufffd ")
        text = re.sub(r"\s", " ", text)  # a model that writes bytes can write a line feed
        text = write_as_typed(trained, growing, text)
        if text.startswith(written):
            write(text[len(written) :])
            written = text

    with suitable_threads(trained):
        hypotheses = search_batch(trained, [piece], None if piece.terms else write_settled)
    pieces, found = [piece], dict(enumerate(make_sentences(trained, [piece], hypotheses)))
    search_again(pieces, found)
    [sentence] = as_typed(trained, pieces, place_terms(trained, pieces, [found[0]]))
    final = sentence.candidates[0].text
    write(final[len(written) :] if final.startswith(written) else f"\n{final}")
    return sentence
