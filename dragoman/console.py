"""What the user sees: messages that cannot act on the terminal, columns that line up, and exit codes.

A terminal has its own rules for right-to-left text and for emoji made of several characters; these are not handled.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from dragoman.errors import DragomanError

program = "dragoman"  # the name in front of warnings and errors; `dragoman.__main__` sets it
# Marks that change the direction of all text after them.
_DIRECTION_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str) -> str:
    """Make control characters and direction marks visible, as ⟨U+001B⟩, so that the text cannot act on a terminal."""
    if text.isprintable():
        return text
    return "".join(
        f"⟨U+{ord(c):04X}⟩" if c in _DIRECTION_MARKS or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c
        for c in text
    )


def one_line(message: str) -> str:
    """Make a message one visible line; it may quote file names and pieces of text."""
    return visible(" ".join(message.splitlines()))


def display_width(text: str) -> int:
    """How many terminal columns a text takes: two for a wide character, none for a combining mark."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    combining = unicodedata.category(character) in ("Mn", "Me")
    return 0 if combining else 1 + (unicodedata.east_asian_width(character) in "WF")


def shorten(text: str, width: int) -> str:
    """Cut a text to at most `width` columns; an ellipsis replaces what is cut."""
    ends = list(accumulate(map(_columns, text)))
    return text if not ends or ends[-1] <= width else text[: bisect_right(ends, width - 1)] + "…"


def fit(text: str, width: int, side: str = "<") -> str:
    """Cut or pad a text to exactly `width` columns, aligned left (<) or right (>)."""
    text = shorten(text, width)
    blanks = " " * (width - display_width(text))
    return text + blanks if side == "<" else blanks + text


def table(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Format rows of cells as lines with columns of equal width. `sides` aligns each column left (<) or right (>)."""
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(fit, row, widths, sides)).rstrip() for row in rows]


def say(message: str) -> None:
    """Print a line of progress on standard output, above a progress bar.

    If the reader has gone, as in `train.py | head`, printing stops and the work continues.
    """
    try:
        from tqdm import tqdm  # here, so that --help does not import it

        tqdm.write(one_line(message), file=sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Discard all further output, after its reader has gone. Otherwise the interpreter complains when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn(message: str) -> None:
    """Print a line on standard error, with the name of the program in front."""
    print(f"{program}: {one_line(message)}", file=sys.stderr)


def run_program(work: Callable[[], int | None], output: str) -> int:
    """Do the work of a command and return its exit code. A foreseen failure becomes one line on standard error.

    `output` names what the command writes, for the message when the disk fails.
    """
    try:
        return work() or 0
    except DragomanError as error:
        warn(f"error: {error}")
        return error.exit_code
    except BrokenPipeError:  # the reader has seen enough, as in `| head`
        discard_output()
        return 0
    except OSError as error:
        warn(f"error: {output} cannot be written: {error.filename or 'standard output'}: {error.strerror or error}.")
        return 7
    except KeyboardInterrupt:
        return 130
