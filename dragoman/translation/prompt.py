"""A prompt on a terminal that translates each line as it is typed."""

from __future__ import annotations

import contextlib
import io
import sys

from dragoman import console
from dragoman.console import visible
from dragoman.errors import DataError
from dragoman.text.cleaning import decode_line
from dragoman.translation.output import printable
from dragoman.translation.translator import Translator

HELP = "type a sentence and press Enter; the up key recalls earlier ones; :quit or Ctrl-D ends"


def converse(translator: Translator, to: str = "", source: str = "", prefix: str = "") -> None:
    """Translate lines until Ctrl-D or :quit. The up and down keys recall earlier lines.

    Args:
        to, source: languages, for a model of several directions
        prefix: what every translation starts with
    """
    with contextlib.suppress(ImportError):  # no readline on this system
        import readline  # noqa: F401  # its import gives `input` the keys and the memory
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):  # text is UTF-8 in any locale
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    usual = translator.usual
    question = f"{visible(source or (to and f'to {to}') or usual.source or usual.target)} > "
    console.warn(HELP)
    while True:
        try:
            text = decode_line(input(question).encode(errors="surrogateescape"), "the line", 1)
            if text.strip() in (":quit", ":q"):
                return
            [translation] = translator.translate([translator.request(text, to, source, prefix)])
        except EOFError:
            print()
            return
        except DataError as error:
            console.warn(str(error))
            continue
        print(printable(translation))
        for _, message in translator.warnings:
            console.warn(message)
