"""Texts under translation: their pieces are taken out, and the translated sentences come back in the same order.

work = Work(trained, requests)
while pieces := work.take(400):
    work.add(translated(pieces))
work.translations()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dragoman.text.sentence_splitting import sentence_joiner
from dragoman.translation.doubts import shortcomings
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece, encode_request
from dragoman.translation.request import Request
from dragoman.translation.results import Sentence, Translation


class Work:
    """Texts to translate, and the sentences translated so far.

    Attributes:
        counts: for each text that was encoded, the number of pieces of each line
        is_encoded: whether all pieces have been taken
        warnings: messages about the texts, each with the index of its text
    """

    def __init__(self, trained: TrainedModel, requests: Sequence[Request]) -> None:
        self.trained, self.requests = trained, requests
        self.counts: list[list[int]] = []
        self.is_encoded = False
        self.warnings = [
            (i, f"this model does not translate to {request.unknown_target}.")
            for i, request in enumerate(requests)
            if request.unknown_target
        ]
        self._sentences: list[Sentence] = []
        self._pieces = self._encode()

    def _encode(self) -> Iterator[Piece]:
        """Encode one line after another, when its pieces are asked for."""
        for i, request in enumerate(self.requests):
            self.counts.append([])
            for line in encode_request(self.trained, request, lambda message, i=i: self.warnings.append((i, message))):
                self.counts[i].append(len(line))
                yield from line
        self.is_encoded = True

    def take(self, tokens: int) -> list[Piece]:
        """The next pieces, with about this many tokens; none when all have been taken."""
        part: list[Piece] = []
        for piece in self._pieces:
            part.append(piece)
            tokens -= len(piece.ids) + 1
            if tokens <= 0:
                break
        return part

    def add(self, sentences: Iterable[Sentence]) -> None:
        """Add the translations of the pieces that were taken, in their order."""
        self._sentences += sentences

    def translations(self) -> list[Translation]:
        """The translation of each text, with the warnings about it. Call it once, when all pieces are translated."""
        rest = iter(self._sentences)
        translations = []
        for i, (request, counts) in enumerate(zip(self.requests, self.counts, strict=True)):
            joiner = sentence_joiner(request.direction.target)
            lines = [[next(rest) for _ in range(count)] for count in counts]
            text = "\n".join(  # a line that was not translated keeps its text
                joiner.join(sentence.candidates[0].text for sentence in line).strip() if line else raw
                for line, raw in zip(lines, request.lines, strict=True)
            )
            sentences = [sentence for line in lines for sentence in line]
            for sentence in sentences:
                sentence.warnings[:] = shortcomings(self.trained, sentence)
                self.warnings += [(i, message) for message in sentence.warnings]
            translations.append(Translation(request.text, text, sentences, []))
        for i, message in self.warnings:
            translations[i].warnings.append(message)
        return translations
