"""Translate HTML, XML and Markdown: tags go around the right words, and what is not text stays as it is.

    translate_markup(translator, "<p>The <b>black</b> cat.</p>", "html")      # <p>Il gatto <b>nero</b>.</p>

Left alone: code, scripts, styles, comments, entities, processing instructions, `translate="no"` and the class
"notranslate". Attributes that are text (`trees.TEXT_ATTRIBUTES`) are translated.

Limits: a document of `MAX_CHARACTERS` characters, nested `inline.MAX_DEPTH` deep.
"""

from __future__ import annotations

from typing import Literal

from dragoman import resources
from dragoman.documents.document import Document, translate_document
from dragoman.errors import DataError
from dragoman.text.cleaning import require_text
from dragoman.translation.translator import Translator

Kind = Literal["html", "xml", "markdown"]
KINDS: tuple[Kind, ...] = ("html", "xml", "markdown")
LIBRARIES: dict[str, tuple[str, ...]] = {
    "html": ("html5lib",),
    "xml": ("lxml",),
    "markdown": ("markdown_it", "mdit_py_plugins", "mdformat"),
    "paragraphs": (),
}
MAX_CHARACTERS = 5_000_000  # some minutes of parsing, without the translation


def parse_markup(text: str, kind: str) -> Document:
    """Parse a document or a fragment of one.

    Raises DataError for malformed XML, and for a document that is too long or nested too deeply or is not text;
    ConfigError if the libraries are not installed.
    """
    require_text(text)
    resources.require("documents", LIBRARIES[kind], kind)
    if len(text) > MAX_CHARACTERS:
        raise DataError(f"this has {len(text):,} characters, but a document may have {MAX_CHARACTERS:,}: split it.")
    match kind:
        case "html":
            from dragoman.documents.trees import parse_html

            return parse_html(text)
        case "xml":
            from dragoman.documents.trees import parse_xml

            return parse_xml(text)
        case "paragraphs":
            from dragoman.documents.paragraphs import ParagraphsDocument

            return ParagraphsDocument(text)
    from dragoman.documents.markdown import MarkdownDocument

    return MarkdownDocument(text)


def translate_markup(translator: Translator, text: str, kind: str, to: str = "", source: str = "") -> str:
    """Translate a document or a fragment of one; `kind` is html, xml, markdown or paragraphs, for text that is wrapped.

    Raises the errors of `parse_markup` and of `translate_document`.
    """
    return str(translate_document(translator, parse_markup(text, kind), to, source))
