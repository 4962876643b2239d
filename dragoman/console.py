"""Text as people see it: nothing that acts on the screen, and columns that line up.

Limits: a terminal has its own rules for words that run from right to left and for emoji made of several letters.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from dragoman.errors import DragomanError

program = "dragoman"  # the name in front of warnings and errors; a root script sets its own
# Marks that turn the direction of all that follows them.
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str) -> str:
    """A text in which no letter acts on what shows it: control characters and their kin appear as ⟨U+001B⟩."""
    if text.isprintable():
        return text
    return "".join(
        f"⟨U+{ord(c):04X}⟩" if c in _TURNING or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c for c in text
    )


def one_line(message: str) -> str:
    """A message for a terminal or a log: in one line, and visible. It may repeat names of files and pieces of texts."""
    return visible(" ".join(message.splitlines()))


def display_width(text: str) -> int:
    """How many columns a terminal gives a text: two to a wide letter, none to a mark upon the letter before."""
    return sum(map(_takes, text))


def _takes(letter: str) -> int:
    marks = unicodedata.category(letter) in ("Mn", "Me")
    return 0 if marks else 1 + (unicodedata.east_asian_width(letter) in "WF")


def shorten(text: str, width: int) -> str:
    """A text of so many columns at most, its end given up for an ellipsis if need be."""
    ends = list(accumulate(map(_takes, text)))
    return text if not ends or ends[-1] <= width else text[: bisect_right(ends, width - 1)] + "…"


def fit(text: str, width: int, side: str = "<") -> str:
    """A text cut, or filled with blanks, to so many columns; its left (<) or right (>) side stays where it is."""
    text = shorten(text, width)
    blanks = " " * (width - display_width(text))
    return text + blanks if side == "<" else blanks + text


def say(message: str) -> None:
    """Print a line without tearing the progress bar.

    If nobody reads any more, as of `train.py | head`, nothing more is said, and the training goes on.
    """
    try:
        from tqdm import tqdm  # here, so that --help does not import it

        tqdm.write(one_line(message), file=sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# -------------------------------------------------------------------------------------------------- programs around it


def warn(message: str) -> None:
    """Print a line on standard error, with the name of the program in front."""
    print(f"{program}: {one_line(message)}", file=sys.stderr)


def run_program(work: Callable[[], int | None], output: str) -> int:
    """Do the work of a command and return its exit code. A foreseen failure becomes one line on standard error.

    output names what the command writes, for the message about a disk that fails.
    """
    try:
        return work() or 0
    except DragomanError as error:
        warn(f"error: {error}")
        return error.exit_code
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter would complain when it flushes at exit
        return 0
    except OSError as error:
        warn(f"error: {output} cannot be written: {error.filename or 'standard output'}: {error.strerror or error}.")
        return 7
    except KeyboardInterrupt:
        return 130
