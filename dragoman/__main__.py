"""The command line: `dragoman train`, `dragoman translate` and the others, also as `python -m dragoman train`.

Options are parsed before torch is imported, so that --help and a mistake are answered at once.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from dragoman import command_line, console, hub, processes, resources


class Command(NamedTuple):
    """One command of the program. `command_line` has a function of its name that parses its options."""

    meaning: str
    module: str  # its `main` takes the options and does the work
    output: str  # what it writes, for the message about a full disk


COMMANDS = {
    "train": Command("train a translator", "dragoman.train", "the run"),
    "translate": Command("translate text", "dragoman.translate", "the translations"),
    "evaluate": Command("score a trained translator", "dragoman.evaluation.evaluate", "the report"),
    "runs": Command("list runs with their scores, or compare some", "dragoman.evaluation.runs", "the list"),
    "check": Command("check a corpus before training", "dragoman.check", "the check"),
    "prepare": Command("prepare the data of a run before training", "dragoman.prepare", "the prepared data"),
    "plan": Command("estimate disk, memory and hours", "dragoman.training.scale", "the plan"),
    "clean": Command("drop dirty pairs before training", "dragoman.filtering.clean", "the cleaned corpus"),
    "export": Command("write a model for another engine", "dragoman.export.export", "the export"),
    "push": Command("put a model on the Hugging Face hub", "dragoman.export.push", "the copy to push"),
    "serve": Command("translate over HTTP", "dragoman.server.serve", "the answers"),
    "average": Command("average several checkpoints", "dragoman.averaging", "the average"),
    "summary": Command("show parameters, shapes and operations", "dragoman.architectures.summary", "the summary"),
}


def parse(name: str, words: Sequence[str], program: str) -> Any:
    """Parse the command line of a command. A mistake exits with 2, and --help with 0."""
    return getattr(command_line, f"parse_{name}")(words, program)


def run(name: str, options: Any) -> int:
    """Run a command with parsed options, and return its exit code."""
    command = COMMANDS[name]

    def work() -> int | None:
        if isinstance(options, argparse.Namespace):
            hub.resolve(options)
        return import_module(command.module).main(options)

    return console.run_program(work, command.output)


def main(arguments: Sequence[str] | None = None, program: str = "") -> int:
    """Parse a command line and run its command.

    Args:
        arguments: the name of a command and its own arguments; None: those of this process
        program: the name used in messages; default: `dragoman` and the command
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if "--version" in arguments[:2]:
        print(f"dragoman {resources.version()}")
        return 0
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in COMMANDS:
        near = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(COMMANDS)}."
        console.warn(f"error: {name} is not a command: {hint}")
        return 2
    console.program = program or f"dragoman {name}"
    # Let idle threads spin for microseconds, then sleep; torch reads this when it is imported. With the default of GNU
    # OpenMP, a second busy process made a training step take 20 times as long.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    # oneDNN compiles a kernel for each shape. An epoch has more shapes than it keeps by default, so it would compile
    # them again in every epoch. A server meets new shapes all the time, and its memory would only grow.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128" if name == "serve" else "20000")
    if name in ("train", "prepare"):
        # Before the first step there is nothing to save, so let Ctrl-C end the process at once. Python's own handler
        # waits for library code: seconds of imports, minutes of training a tokenizer.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A file name that the locale cannot show must not end a training run.
            sys.stdout.reconfigure(errors="backslashreplace")
    try:
        options = parse(name, rest, console.program)
    except BrokenPipeError:  # `--help | head`
        console.discard_output()
        return 0
    if name in ("train", "prepare", "translate") and processes.is_rank():
        processes.end_with_launcher()
    elif name == "train" and options.training.ranks > 1:
        return processes.run_ranks(options.training.ranks)
    # The imports create 250,000 objects that stay alive. Collecting garbage among them, during the imports and again at
    # exit, took a quarter of the time of translating one sentence.
    gc.disable()
    import_module(COMMANDS[name].module)
    gc.freeze()
    gc.enable()
    return run(name, options)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.meaning}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: dragoman COMMAND ...",
            "",
            "Train a machine translator of your own, and use it.",
            "",
            *lines,
            "",
            "`dragoman COMMAND --help` shows the options of a command, and `dragoman --version` the version.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
