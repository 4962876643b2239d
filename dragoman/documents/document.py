"""Documents: their text is translated, and everything else stays as it is.

    document = parse_markup("<p>The <b>black</b> cat.</p>", "html")
    translate_document(translator, document)                    # "<p>Il gatto <b>nero</b>.</p>"

A document becomes pieces of plain text with spans (`inline`), which are translated together, like the lines of a file.
The model's own alignment of words (`word_alignment`) says where each span goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from dragoman.console import shorten
from dragoman.documents.inline import Content, Inline, move_spans
from dragoman.errors import ConfigError
from dragoman.translation.request import Request
from dragoman.translation.results import Translation
from dragoman.translation.translator import Translator
from dragoman.translation.word_alignment import align_words

GROUP = 200  # texts of a document that are translated together, and counted together by a progress bar


class Document(Protocol):
    """A parsed document."""

    inlines: list[Inline]  # what to translate

    def write(self, contents: Sequence[Content]) -> str | bytes:
        """The document with these contents in place of its inlines; bytes if it is that of a file. Call it once."""
        ...


@dataclass(frozen=True)
class DocumentTask:
    """A document under translation."""

    document: Document
    requests: list[Request]  # what to translate of it, in its order

    @classmethod
    def begin(cls, translator: Translator, document: Document, to: str = "", source: str = "") -> DocumentTask:
        """Make the requests. Raises ConfigError for languages that the model does not know, and a language model."""
        if translator.config.is_language_model:
            raise ConfigError("a language model continues text, so it cannot translate documents.")
        request = translator.request("", to, source)
        return cls(document, [replace(request, text=inline.line) for inline in document.inlines])

    def finish(self, translator: Translator, translations: Sequence[Translation]) -> tuple[str | bytes, list[str]]:
        """Put the translations of the requests together. Those of texts with spans must have alignments.

        Returns what `Document.write` returns, and warnings, which quote the text that they are about. Call it once.
        """
        contents: list[Content] = []
        for inline, request, translation in zip(self.document.inlines, self.requests, translations, strict=True):
            content: Content = [translation.text]
            if inline.spans:
                aligned = align_words(translator, translation, request.direction)
                content = move_spans(inline, translation.text, aligned, request.direction)
            contents.append(content)
        warnings = [f'"{shorten(each.source, 40)}": {message}' for each in translations for message in each.warnings]
        return self.document.write(contents), warnings


def translate_document(
    translator: Translator,
    document: Document,
    to: str = "",
    source: str = "",
    advance: Callable[[int], object] = lambda texts: None,
) -> str | bytes:
    """Translate a document; `translator.warnings` has what to warn of.

    Args:
        to, source: languages, for a model of several directions
        advance: called after each group of texts with their number

    Raises ConfigError as `DocumentTask.begin` does.
    """
    task = DocumentTask.begin(translator, document, to, source)
    translations: list[Translation] = []
    for start in range(0, len(task.requests), GROUP):
        group = translator.explain(task.requests[start : start + GROUP])
        spanned = [i for i in range(len(group)) if document.inlines[start + i].spans]
        for i, aligned in zip(spanned, translator.with_alignments([group[i] for i in spanned]), strict=True):
            group[i] = aligned
        translations += group
        advance(len(group))
    written, warnings = task.finish(translator, translations)
    translator.warnings = [(0, message) for message in warnings]
    return written
