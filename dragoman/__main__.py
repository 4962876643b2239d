"""The command line: `dragoman train`, `dragoman translate` and the others, also as `python -m dragoman train`.

A command line is parsed before torch is imported, so that --help and a mistake are answered at once.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from dragoman import command_line, console


class Command(NamedTuple):
    """One subcommand."""

    meaning: str
    parse: Callable[[Sequence[str], str], Any]  # arguments and program name to options
    module: str  # whose `main` takes the options and does the work
    output: str  # what it writes, for a message about a full disk


COMMANDS = {
    "train": Command("train a translator", command_line.parse_train, "dragoman.train", "the run"),
    "translate": Command("translate text", command_line.parse_translate, "dragoman.translate", "the translations"),
    "evaluate": Command(
        "score a trained translator", command_line.parse_evaluate, "dragoman.evaluation.evaluate", "the report"
    ),
    "check": Command(
        "look at a corpus before training", command_line.parse_check, "dragoman.corpora.check", "the check"
    ),
    "export": Command(
        "write a model for another engine", command_line.parse_export, "dragoman.export.export", "the export"
    ),
    "serve": Command("translate over HTTP", command_line.parse_serve, "dragoman.server.serve", "the answers"),
    "average": Command("average several checkpoints", command_line.parse_average, "dragoman.averaging", "the average"),
    "summary": Command(
        "show parameters, shapes and operations",
        command_line.parse_summary,
        "dragoman.architectures.summary",
        "the summary",
    ),
}


def run(name: str, options: Any) -> int:
    """Run a command whose options are parsed, and return its exit code."""
    command = COMMANDS[name]
    return console.run_program(lambda: import_module(command.module).main(options), command.output)


def main(arguments: Sequence[str] | None = None, program: str = "") -> int:
    """Parse a command line and run its command.

    Args:
        arguments: the name of a command and its own arguments; None: those of the process
        program: the name for messages, by default `dragoman` and the command
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in COMMANDS:
        console.warn(f"error: there is no command {name!r}: choose one of {', '.join(COMMANDS)}")
        return 2
    console.program = program or f"dragoman {name}"
    # Idle threads spin for microseconds only, then sleep. GNU OpenMP reads this when torch is imported. With its own
    # default, a second busy process was seen to make a training step take 20 times as long.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    if name == "train":
        # Until the first step there is nothing to save, so Ctrl-C ends the process at once. Python's own handler would
        # wait for libraries: seconds of imports, minutes of training a tokenizer.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if isinstance(sys.stdout, io.TextIOWrapper) and name == "train":
        # A file name that the locale cannot show must not end a training.
        sys.stdout.reconfigure(errors="backslashreplace")
    options = COMMANDS[name].parse(rest, console.program)
    # The imports make a quarter of a million objects that stay. Searching them for garbage, during the imports and
    # again at exit, took a quarter of the time that one sentence takes.
    gc.disable()
    import_module(COMMANDS[name].module)
    gc.freeze()
    gc.enable()
    return run(name, options)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.meaning}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: dragoman COMMAND ...", "", *lines, "", "`dragoman COMMAND --help` shows its options."])


if __name__ == "__main__":
    sys.exit(main())
