"""Translate HTML, XML and Markdown: tags go around the right words, and what is not text stays as it is.

    translate_markup(translator, "<p>The <b>black</b> cat.</p>", "html")      # <p>Il gatto <b>nero</b>.</p>

A document becomes pieces of plain text with spans (`inline`), which are translated together, like the lines of a file.
The model's own alignment of words (`word_alignment`) says where each span goes.

Left alone: code, scripts, styles, comments, entities, processing instructions, `translate="no"` and the class
"notranslate". Attributes that are text (`markup_trees.TEXT_ATTRIBUTES`) are translated.

Limits: a document of `MAX_CHARACTERS` characters, nested `inline.MAX_DEPTH` deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Literal, Protocol

from dragoman import resources
from dragoman.console import shorten
from dragoman.errors import ConfigError, DataError
from dragoman.text.cleaning import require_text
from dragoman.translation.inline import Content, Inline, move_spans
from dragoman.translation.request import Request
from dragoman.translation.results import Translation
from dragoman.translation.translator import Translator
from dragoman.translation.word_alignment import align_words

Kind = Literal["html", "xml", "markdown"]
KINDS: tuple[Kind, ...] = ("html", "xml", "markdown")
LIBRARIES: dict[str, tuple[str, ...]] = {
    "html": ("html5lib",),
    "xml": ("lxml",),
    "markdown": ("markdown_it", "mdit_py_plugins", "mdformat"),
    "paragraphs": (),
}
MAX_CHARACTERS = 5_000_000  # some minutes of parsing, without the translation


class Document(Protocol):
    """A parsed document."""

    inlines: list[Inline]  # what to translate

    def write(self, contents: Sequence[Content]) -> str:
        """The document with these contents in place of its inlines. Call it once."""
        ...


def parse_markup(text: str, kind: str) -> Document:
    """Parse a document or a fragment of one.

    Raises DataError for malformed XML, and for a document that is too long or nested too deeply or is not text;
    ConfigError if the libraries are not installed.
    """
    require_text(text)
    if missing := [name for name in LIBRARIES[kind] if find_spec(name) is None]:
        install = resources.install("markup")
        raise ConfigError(f"cannot find {' and '.join(missing)}: install what {kind} needs with {install}")
    if len(text) > MAX_CHARACTERS:
        raise DataError(f"this has {len(text):,} characters, but a document may have {MAX_CHARACTERS:,}: split it.")
    match kind:
        case "html":
            from dragoman.translation.markup_trees import parse_html

            return parse_html(text)
        case "xml":
            from dragoman.translation.markup_trees import parse_xml

            return parse_xml(text)
        case "paragraphs":
            from dragoman.translation.paragraphs import ParagraphsDocument

            return ParagraphsDocument(text)
    from dragoman.translation.markup_markdown import MarkdownDocument

    return MarkdownDocument(text)


@dataclass(frozen=True)
class MarkupTask:
    """A document under translation."""

    source: str  # as it was given
    document: Document
    requests: list[Request]  # what to translate of it, in its order

    @classmethod
    def begin(cls, translator: Translator, text: str, kind: str, to: str = "", source: str = "") -> MarkupTask:
        """Parse a document or a fragment of one; `kind` is html, xml, markdown or paragraphs, for text that is wrapped.

        Raises DataError for malformed XML and for a document that is too long or nested too deeply, and ConfigError for
        languages that the model does not know.
        """
        if translator.config.is_language_model:
            raise ConfigError("a language model continues text, so it cannot translate markup.")
        document = parse_markup(text, kind)
        request = translator.request("", to, source)
        return cls(text, document, [replace(request, text=inline.line) for inline in document.inlines])

    def finish(self, translator: Translator, translations: Sequence[Translation]) -> Translation:
        """Put the translations of the requests together. Those of texts with spans must have alignments.

        Warnings quote the text that they are about. Call it once.
        """
        contents: list[Content] = []
        for inline, request, translation in zip(self.document.inlines, self.requests, translations, strict=True):
            content: Content = [translation.text]
            if inline.spans:
                aligned = align_words(translator, translation, request.direction)
                content = move_spans(inline, translation.text, aligned, request.direction)
            contents.append(content)
        sentences = [sentence for translation in translations for sentence in translation.sentences]
        warnings = [f'"{shorten(each.source, 40)}": {message}' for each in translations for message in each.warnings]
        return Translation(self.source, self.document.write(contents), sentences, warnings)


def translate_markup(translator: Translator, text: str, kind: str, to: str = "", source: str = "") -> str:
    """Translate a document or a fragment of one. See `MarkupTask.begin` for the arguments and errors."""
    task = MarkupTask.begin(translator, text, kind, to, source)
    translations = translator.explain(task.requests)
    spanned = [k for k, inline in enumerate(task.document.inlines) if inline.spans]
    for k, aligned in zip(spanned, translator.with_alignments([translations[k] for k in spanned]), strict=True):
        translations[k] = aligned
    translation = task.finish(translator, translations)
    translator.warnings = [(0, message) for message in translation.warnings]
    return translation.text
