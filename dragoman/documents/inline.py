"""Inline content as plain text with spans, and where each span goes in the translation of the text.

    inline = Inline("The black cat sleeps.", [Span(tag, 4, 9)])       # which a `TaggedDocument` collects
    move_spans(inline, "Il gatto nero dorme.", weights, direction)     # "Il gatto ", Placed(span, ["nero"]), " dorme."

A span becomes a run of whole words. Each word of the translation votes for or against it: the vote is its weight on the
words inside the span, minus a half, and the run with the largest sum of votes wins. Nested spans stay nested and
neighbours do not overlap, so the result is well-formed, and no span is lost. Punctuation at the ends of a run stays
outside the span, unless the span had punctuation there.

Nothing here knows HTML, XML or Markdown.

Shapes: U words of the translation, W words of the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NoReturn

from dragoman.directions import Direction
from dragoman.errors import DataError
from dragoman.lazy import numpy as np
from dragoman.translation.word_alignment import Range, words_of


@dataclass(eq=False)
class Span:
    """A tag with the part of a text that it surrounds. Without words, it marks a place."""

    mark: Any  # what a document needs to write it
    start: int  # characters of Inline.text
    end: int
    inside: list[Span] = field(default_factory=list)
    fixed: bool = False  # its content stays as it is; the text only shows what the translation has in its place


@dataclass
class Inline:
    """What is translated together: the content of a paragraph, heading or table cell, or an attribute."""

    text: str
    spans: list[Span] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The text with single spaces."""
        return " ".join(self.text.split())

    def with_edges(self, content: Content) -> Content:
        """A content with the white space at the ends of the text, except for white space inside spans."""
        first = min([len(self.text) - len(self.text.lstrip()), *(span.start for span in self.spans)])
        last = max([len(self.text.rstrip()), *(span.end for span in self.spans)])
        return [self.text[:first], *content, self.text[last:]]


@dataclass
class Placed:
    """A span in a translation."""

    span: Span
    content: Content | None  # None: as it was


Content = list["str | Placed"]
Item = Any  # of a document: a text, or an element as its parser returns it
MAX_RUN = 500  # words and tags that are translated together; more are split at a tag
MAX_DEPTH = 250  # of nested elements; more than 256 is an error of libxml2, too
SHORT_TEXT = 3  # words of a fixed text that the model sees; more would only confuse it


class TaggedDocument:
    """A parsed document: what to translate of it, in runs of text and of elements that flow with the text.

    Subclasses implement the first four methods.
    """

    def __init__(self) -> None:
        self.inlines: list[Inline] = []
        self.attributes: list[tuple[int, Any, str]] = []  # inlines that are attributes, with their elements and names

    def items(self, element: Item) -> Sequence[Item]:
        """The texts and elements in an element."""
        raise NotImplementedError

    def is_fixed(self, element: Item) -> bool:
        """Whether an element stays as it is."""
        raise NotImplementedError

    def shown(self, element: Item) -> str:
        """The text of a fixed element, for the model to see."""
        raise NotImplementedError

    def texts(self, element: Item) -> dict[str, str]:
        """The attributes of an element that may be text."""
        raise NotImplementedError

    def size(self, item: Item) -> int:
        """Words and tags of an item, MAX_RUN + 1 if there are more."""
        if isinstance(item, str):
            return len(item.split())
        size = 1
        for inner in () if self.is_fixed(item) else self.items(item):
            size += self.size(inner)
            if size > MAX_RUN:
                return MAX_RUN + 1
        return size

    def runs(self, items: Sequence[Item]) -> Iterator[list[Item]]:
        """Split items into runs that are translated together. An element that is too large is a run of its own."""
        run: list[Item] = []
        room = MAX_RUN
        for item in items:
            size = self.size(item)
            if run and size > room:
                yield run
                run, room = [], MAX_RUN
            run.append(item)
            room -= size
        if run:
            yield run

    def is_apart(self, run: Sequence[Item]) -> bool:
        """Whether a run is an element that does not flow with text."""
        return not isinstance(run[0], str) and self.size(run[0]) > MAX_RUN

    def add_run(self, run: Sequence[Item]) -> int | None:
        """Add a run to the inlines. Returns its number, or None if there is nothing to translate."""
        inline = Inline("")
        free = self._add(inline, inline.spans, run)
        if not any(map(str.isalpha, free)):
            return None
        self.inlines.append(inline)
        return len(self.inlines) - 1

    def add_attributes(self, element: Item) -> None:
        """Add the attributes of an element to the inlines."""
        for name, value in self.texts(element).items():
            if any(map(str.isalpha, value)):
                self.attributes.append((len(self.inlines), element, name))
                self.inlines.append(Inline(value))

    def _add(self, inline: Inline, spans: list[Span], items: Sequence[Item]) -> str:
        """Append items to an inline, elements as spans; return the text that is not fixed."""
        free = ""
        for item, following in zip_longest(items, items[1:]):
            start = len(inline.text)
            if isinstance(item, str):
                inline.text += item
                free += item
                continue
            span = Span(item, start, start, fixed=self.is_fixed(item))
            spans.append(span)
            if not span.fixed:
                self.add_attributes(item)
                free += self._add(inline, span.inside, self.items(item))
            else:
                text = self.shown(item)
                # Text beside a letter would become part of a word.
                beside = inline.text[-1:] + (following[:1] if isinstance(following, str) else "")
                if len(text.split()) <= SHORT_TEXT and not any(map(str.isalnum, beside)):
                    inline.text += text
            span.end = len(inline.text)
        return free


def too_deep() -> NoReturn:
    """Refuse a document."""
    raise DataError(f"tags are nested more than {MAX_DEPTH} deep: split the document.")


@dataclass
class _Run:
    """The words of the translation that a span surrounds: first to last - 1."""

    span: Span
    first: int
    last: int
    characters: Range | None = None  # if they are known


def move_spans(inline: Inline, translation: str, weights: np.ndarray, direction: Direction) -> Content:
    """The translation of inline content, with its spans.

    Args:
        weights: the alignment (U, W) of the words of the translation with those of the text, see `word_alignment`
    """
    mover = _Mover(inline.text, translation, weights, direction)
    everything = Span(None, 0, len(inline.text), inline.spans)
    return mover.write(_Run(everything, 0, len(mover.target), (0, len(translation))))


class _Mover:
    """Moves the spans of one text."""

    def __init__(self, text: str, translation: str, weights: np.ndarray, direction: Direction) -> None:
        self.text, self.translation, self.weights = text, translation, weights
        self.source = words_of(text, direction.source)
        self.target = words_of(translation, direction.target)
        self._known_votes: dict[Span, np.ndarray] = {}

    def write(self, outer: _Run) -> Content:
        """The content of a run: its characters, and the spans inside."""
        start, end = self._characters(outer)
        spans = outer.span.inside
        runs = self._runs([span for span in spans if self._has_words(span)], outer)
        lost = {span for span in spans if span.fixed} - {run.span for run in runs}
        order = {span: number for number, span in enumerate(spans)}
        items: list[tuple[int, int, int, _Run | Span]] = []
        for run in runs:
            items.append((*self._characters(run), order[run.span], run))
        for span in spans:
            if span in lost or not self._has_words(span):
                at = self._place(span, outer, runs)
                items.append((at, at, order[span], span))
        content: Content = []
        done = start
        for first, last, _, item in sorted(items, key=lambda item: item[:3]):
            first, last = (min(max(at, done), end) for at in (first, last))
            content.append(self.translation[done:first])
            if isinstance(item, Span):
                content += self._spaced(item, first, end)
            elif item.span.fixed:
                content.append(Placed(item.span, None))
            else:
                item.characters = first, last
                content.append(Placed(item.span, self.write(item)))
            done = last
        return [each for each in [*content, self.translation[done:end]] if each != ""]

    # ---- Spans with words

    def _words(self, span: Span) -> Range:
        """The words of the text that a span touches, first to last - 1."""
        return sum(end <= span.start for _, end in self.source), sum(start < span.end for start, _ in self.source)

    def _has_words(self, span: Span) -> bool:
        return bool(self.text[span.start : span.end].strip())

    def _runs(self, spans: Sequence[Span], outer: _Run) -> list[_Run]:
        """Where neighbouring spans go, among the words of the outer span; the span with the best vote chooses first.

        A fixed span goes where the translation repeats its text, or where the words align with it.
        """
        free = np.zeros(len(self.target), bool)
        free[outer.first : outer.last] = True
        runs: list[_Run] = []
        waiting = []
        for span in spans:
            run = self._repeated(span, free) if span.fixed else None
            if run:
                runs.append(run)
                free[run.first : run.last] = False
            else:
                waiting.append((self._votes(span), span))
        for votes, span in sorted(waiting, key=lambda each: -each[0][free].max(initial=-1)):
            first, last = _best_run(votes, free)
            if span.fixed and (first == last or votes[first:last].max() <= 0):
                continue  # no target word aligns with it
            if self._words(span) == self._words(outer.span) and len(spans) == 1:
                first, last = outer.first, outer.last
            elif first == last:  # no word is left for it
                first = last = outer.last
            runs.append(_Run(span, first, last))
            free[first:last] = False
        return runs

    def _votes(self, span: Span) -> np.ndarray:
        """The weight of each target word inside the span, minus 0.5: (U).

        Words that a nested span would take get 1 more, so that it is likely to get them.
        """
        if span not in self._known_votes:
            first, last = self._words(span)
            votes = self.weights[:, first:last].sum(1) - 0.5
            for inner in filter(self._has_words, span.inside):
                start, end = _best_run(self._votes(inner), np.ones(len(votes), bool))
                votes[start:end] += 1
            self._known_votes[span] = votes
        return self._known_votes[span]

    def _repeated(self, span: Span, free: np.ndarray) -> _Run | None:
        """Where the translation repeats the text of a span."""
        text = " ".join(self.text[span.start : span.end].split())
        start = self.translation.find(text)
        while start >= 0:
            end = start + len(text)
            words = [u for u, (first, last) in enumerate(self.target) if first < end and last > start]
            beside = self.translation[max(0, start - 1) : start] + self.translation[end : end + 1]
            if words and free[words].all() and not any(map(str.isalnum, beside)):
                return _Run(span, words[0], words[-1] + 1, (start, end))
            start = self.translation.find(text, start + 1)
        return None

    def _characters(self, run: _Run) -> Range:
        """The characters of a run, without the punctuation at its ends unless the span has some there."""
        if run.characters:
            return run.characters
        if run.first == run.last:
            at = self.target[run.first - 1][1] if run.first else 0
            return at, at
        text = self.text[run.span.start : run.span.end].strip()
        start, end = self.target[run.first][0], self.target[run.last - 1][1]
        letters = [i for i in range(start, end) if self.translation[i].isalnum()]
        if letters and text[0].isalnum():
            start = letters[0]
        if letters and text[-1].isalnum():
            end = letters[-1] + 1
        return start, end

    # ---- Spans that mark a place

    def _place(self, span: Span, outer: _Run, runs: Sequence[_Run]) -> int:
        """The character where a place goes: before the next word, or after the last one if it touches that."""
        first, last = self._words(outer.span)
        following = sum(start < span.start for start, _ in self.source)
        touches = bool(self.text[: span.start][-1:].strip())
        inside = self.weights[outer.first : outer.last]
        if following <= first or not len(inside):
            gap = outer.first
        elif following >= last:
            gap = outer.last
        elif touches:
            gap = outer.first + int(inside[:, following - 1].argmax()) + 1
        else:
            gap = outer.first + int(inside[:, following].argmax())
        for run in runs:
            if run.first < gap < run.last:
                gap = run.first if gap - run.first < run.last - gap else run.last
        if gap == outer.first or (not touches and gap < outer.last):
            return self.target[gap][0] if gap < len(self.target) else len(self.translation)
        start, end = self.target[gap - 1]
        letters = [i for i in range(start, end) if self.translation[i].isalnum()]
        if touches and letters and self.text[span.start - 1].isalnum() and self.text[span.end :][:1].strip():
            return letters[-1] + 1  # before the punctuation, as in the source
        return end

    def _spaced(self, span: Span, at: int, end: int) -> Content:
        """A place, with a space to its neighbour if it has one in the source."""
        placed = Placed(span, None)
        before, after = self.translation[:at][-1:], self.translation[at : at + 1]
        if at == end and self.text[: span.start][-1:].isspace() and before.strip() and not after.strip():
            return [" ", placed]
        if at < end and self.text[span.end :][:1].isspace() and after.strip() and not before.strip():
            return [placed, " "]
        return [placed]


def _best_run(votes: np.ndarray, free: np.ndarray) -> Range:
    """The run of free words with the largest sum of votes; (0, 0) if no word is free."""
    best, largest = (0, 0), -np.inf
    start, total = 0, 0.0
    for u, (vote, allowed) in enumerate(zip(votes, free, strict=True)):
        if not allowed or total <= 0:
            start, total = u, 0.0
        if allowed:
            total += float(vote)
            if total > largest:
                best, largest = (start, u + 1), total
    return best
