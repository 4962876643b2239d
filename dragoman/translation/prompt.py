"""A prompt on a terminal that translates each line as it is typed."""

from __future__ import annotations

import atexit
import contextlib
import io
import sys
from pathlib import Path
from typing import Any

from dragoman import console
from dragoman.console import visible
from dragoman.errors import DataError
from dragoman.text.cleaning import decode_line
from dragoman.translation.output import printable
from dragoman.translation.translator import Translator

HELP = "type a sentence and press Enter; the up key recalls earlier ones; :quit or Ctrl-D ends"
HISTORY = Path.home() / ".dragoman_history"


def converse(translator: Translator, to: str = "", source: str = "", prefix: str = "") -> None:
    """Translate lines until Ctrl-D or :quit. The up and down keys recall earlier lines, also those of earlier sessions.

    Args:
        to, source: languages, for a model of several directions
        prefix: what every translation starts with
    """
    with contextlib.suppress(ImportError, OSError):  # no readline on this system, or an unreadable home folder
        import readline

        atexit.register(_save_history, readline)
        readline.read_history_file(HISTORY)
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
            if text.strip() in (":help", ":h"):
                console.warn(HELP)
                continue
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


def _save_history(readline: Any) -> None:
    with contextlib.suppress(OSError):
        readline.set_history_length(1000)
        readline.write_history_file(HISTORY)
