"""Translations as output: plain text, JSON, a table, or a page of attention."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dragoman import console
from dragoman.console import visible
from dragoman.corpora.formats.files import packing
from dragoman.lazy import numpy as np
from dragoman.storage import replacing
from dragoman.text.sentence_splitting import sentence_joiner
from dragoman.translation import attention_page
from dragoman.translation.results import Candidate, Sentence, Translation
from dragoman.translation.translator import Translator

LARGEST_PAGE = 100  # sentences on an attention page
MOST_WARNINGS = 20  # that are shown; the others are counted


def as_json(translation: Translation) -> str:
    """Everything about a translation, on one line."""
    return json.dumps(translation.as_dict(), ensure_ascii=False)


def score_line(candidate: Candidate, in_full: bool) -> str:
    """The score of a translation, or JSON with the scores of its tokens."""
    return json.dumps(candidate.as_dict(), ensure_ascii=False) if in_full else f"{candidate.score:.4f}"


def as_text(translator: Translator, translation: Translation, align: bool) -> str:
    """A translation for people; `align` makes it a table."""
    return (
        _table(translator, translation)
        if align
        else "\n".join(n_best(translation, translator.config.decoding.n_best, translator.usual.target))
    )


def n_best(translation: Translation, count: int, target: str) -> list[str]:
    """The best translations of a text, best first. The k-th candidates of all sentences are joined.

    A sentence for which fewer were found repeats its best one, so that each text has the same number of lines.
    """
    joiner = sentence_joiner(target)
    several = range(1, count)
    others = [
        joiner.join(found[k if k < len(found) else 0].text for found in (s.candidates for s in translation.sentences))
        for k in several
    ]
    return [translation.text, *others]


def _table(translator: Translator, translation: Translation) -> str:
    """The alignment of each sentence, and its other candidates."""
    lines = []
    for sentence in translation.sentences:
        best, *others = sentence.candidates
        lines += [*attention_page.table(sentence, best, translator.attention(sentence, best).numpy()), ""]
        lines += [f"{other.score:8.3f}  {other.text}" for other in others] + [""] * bool(others)
    return "\n".join(lines)


class AttentionPage:
    """Collects the first `LARGEST_PAGE` sentences for the page that --attention writes to a path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.views: list[tuple[Sentence, Candidate, np.ndarray]] = []
        self.left_out = 0

    def add(self, translator: Translator, translations: Sequence[Translation]) -> None:
        """Add the best translation of each sentence."""
        for sentence in (sentence for translation in translations for sentence in translation.sentences):
            if len(self.views) < LARGEST_PAGE:
                best = sentence.candidates[0]
                self.views.append((sentence, best, translator.attention(sentence, best).numpy()))
            else:
                self.left_out += 1

    def write(self, output: BinaryIO) -> None:
        """Write the page, and warn if it leaves out sentences."""
        output.write(attention_page.page(self.views).encode())
        if self.left_out:
            console.warn(f"{self.path} shows the first {LARGEST_PAGE} sentences and leaves out {self.left_out:,}")


class Warnings:
    """Shows warnings, and counts those beyond `MOST_WARNINGS`."""

    def __init__(self) -> None:
        self.number = 0

    def show(self, messages: Sequence[str]) -> None:
        """Show warnings, as long as there are not too many."""
        for message in messages[: max(0, MOST_WARNINGS - self.number)]:
            console.warn(message)
        self.number += len(messages)

    def count_hidden(self) -> None:
        """Say how many of all warnings were not shown."""
        if self.number > MOST_WARNINGS:
            console.warn(f"and {self.number - MOST_WARNINGS:,} more warnings")


def write(output: BinaryIO, text: str) -> None:
    """Write a text so that it can be seen at once, and cannot control a terminal."""
    output.write((printable(text) if output.isatty() else text).encode())
    output.flush()


def printable(text: str) -> str:
    """Text that cannot control a terminal; line feeds stay."""
    return "\n".join(map(visible, text.split("\n")))


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Context manager: a file that appears under its name only when it is complete, so it may be the input as well.

    It is packed if its name ends in .gz, .bz2, .xz or .zst. None: standard output. Raises OSError with the path given,
    not that of the temporary file.
    """
    if path is None:
        yield sys.stdout.buffer
        return
    if path.exists() and not path.is_file():  # a device or a pipe
        with path.open("wb") as output:
            yield output
        return
    temporary = path
    try:
        with replacing(path) as temporary, temporary.open("xb") as output, packing(path, output) as packed:
            yield packed
    except OSError as error:
        if error.filename == str(temporary):
            error.filename = str(path)
        raise
