"""The command lines of all programs. Nothing here imports torch, so --help and a mistake are answered at once."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from dragoman import presets, resources
from dragoman.config_file import dump, read_config_file, settings_in_file
from dragoman.console import one_line
from dragoman.errors import ConfigError
from dragoman.settings import (
    SECTIONS,
    SETTINGS,
    STAND_IN,
    Config,
    beside_preset,
    did_you_mean,
    keys,
    kind_of,
    parse_value,
    shown,
    values,
    with_values,
)


def parse_train(arguments: Sequence[str], prog: str = "train.py") -> Config:
    """Parse the settings of a run. A file that is not named is the config.yaml that comes with the program."""
    return parse(arguments, prog, resources.HOME / "config.yaml")


def parse(arguments: Sequence[str] | None = None, prog: str = "train.py", default_file: Path | None = None) -> Config:
    """Read the command line (None: sys.argv) and the file it names, else `default_file` where that exists.

    --help and --print_config print and exit with 0; a mistake prints one line to standard error and exits with 2.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help"} & set(arguments):
        print(_help(prog))
        raise SystemExit(0)
    try:
        given = list(_pairs(arguments, ["config", "print_config", *SETTINGS]))
        files = [Path(text) for key, text in given if key == "config"]
        if len(files) > 1:
            raise ConfigError("--config is given twice, but a run has one file.")
        if not files and default_file is not None and default_file.exists():
            files = [default_file]
        in_file = settings_in_file(read_config_file(files[0]), files[0]) if files else {}
        named = any(key == "config" for key, _ in given)
        config = _given(in_file, named, {key: parse_value(key, text) for key, text in given if key in SETTINGS})
    except ConfigError as error:
        print(f"{prog}: error: {one_line(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    if any(key == "print_config" for key, _ in given):
        if config.model.preset == "auto":
            print(f"# {STAND_IN}")
        print(dump(config), end="")
        raise SystemExit(0)
    return config


class Parser(argparse.ArgumentParser):
    """For the other programs: says a mistake in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {one_line(message)}\n")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Let a program be told with what to translate, and where: --run or --checkpoint, and --device."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--run", type=Path, metavar="DIR", help="folder of a run (default: the one that saved last)")
    where.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        action="append",
        help="folder of one checkpoint, instead of a run's best; given several times, they translate together",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default: auto)")


def add_direction_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options that choose among the directions of a model of several."""
    parser.add_argument("--to", metavar="LANGUAGE", help="of a model of several directions: translate into LANGUAGE")
    parser.add_argument("--from", dest="source", metavar="LANGUAGE", help="and take the text to be in LANGUAGE")


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """Let a program take `--decoding.beam_size 5` and the like; `decoding_options` collects them."""
    chosen = [key for key in SETTINGS if key.startswith("decoding.")]
    parser.epilog = f"Settings of the search, as in config.yaml: {', '.join('--' + key for key in chosen)}."
    for key in chosen:
        parser.add_argument(f"--{key}", dest=key, help=argparse.SUPPRESS)


def decoding_options(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> list[str]:
    """The settings of the search that were given, as `override` takes them.

    Ends the program if one is wrong by itself; whether it suits the others is known when the run's own settings are.
    """
    given = {key: text for key, text in vars(parsed).items() if key in SETTINGS and text is not None}
    try:
        for key, text in given.items():
            parse_value(key, text)
    except ConfigError as error:
        parser.error(str(error))
    return [word for key, text in given.items() for word in (f"--{key}", text)]


def override(config: Config, arguments: Sequence[str]) -> Config:
    """Change what arguments such as `--section.key value` name, and nothing else. Raises ConfigError."""
    return with_values(config, {key: parse_value(key, text) for key, text in _pairs(arguments, keys())})


def _given(in_file: Mapping[str, Any], named: bool, in_line: Mapping[str, Any]) -> Config:
    """The config that a file, which the user has named or not, and the command line describe together.

    auto is known when the data are. Until then it stands for a preset that goes with what was chosen.
    """
    given = {**in_file, **in_line}
    preset = given.get("model.preset")
    if preset is None:
        return with_values(Config(), given)
    chosen = frozenset(in_line if "model.preset" in in_line else given) & set(presets.KEYS)
    # What the default file spells out is nobody's choice.
    overruled = tuple((key, in_file[key]) for key in presets.KEYS if key in in_file and key not in chosen and named)
    empty, errors = Config(chosen=chosen, overruled=overruled), []
    for name in [preset] if preset != "auto" else [presets.STAND_IN, *presets.PRESETS]:
        try:
            return beside_preset(given, presets.settings(name, values(empty) | given, chosen, presets.Plan()), empty)
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


# --- The command line ---------------------------------------------------------------------------------------------


def _pairs(arguments: Sequence[str], options: Collection[str]) -> Iterator[tuple[str, str]]:
    """Take `--key value` and `--key=value` apart.

    argparse would take the value `-1e-3` for an option. Here the word after a key is its value, unless it begins with
    two dashes.
    """
    rest = list(reversed(arguments))
    while rest:
        argument = rest.pop()
        key, equals, text = argument.removeprefix("--").partition("=")
        if not argument.startswith("--"):
            raise ConfigError(f"{shown(argument)} stands alone, but settings are given as --section.key value.")
        if key not in options:
            raise ConfigError(f"{shown('--' + key)} is not an option{did_you_mean(key, options, '--')}")
        if key == "print_config":
            if equals:
                raise ConfigError("--print_config takes no value.")
        elif not equals:
            if not rest or rest[-1].startswith("--"):
                raise ConfigError(f"--{key} needs a value after it.")
            text = rest.pop()
        yield key, text


def _help(prog: str) -> str:
    """Every setting with its type, meaning, choices and default."""
    rows = [
        ("--config FILE", "YAML file with settings; the command line wins over it"),
        ("--print_config", "print all settings as YAML and stop"),
        ("--help", "print this and stop; a default stands in brackets"),
    ]
    for name, section in SECTIONS.items():
        rows += [("", ""), (f"{name}: {section.__doc__}", "")]
        for declared in fields(section):
            base, choices, _ = kind_of(declared)
            noun = {bool: "BOOL", int: "INT", float: "NUMBER", str: "WORD" if choices else "TEXT"}[base]
            default = "null" if declared.default is None else declared.default
            default = str(default).lower() if base is bool else default
            meaning = declared.metadata["meaning"] + (f" ({', '.join(choices)})" if noun == "WORD" else "")
            rows.append((f"  --{name}.{declared.name} {noun}", f"{meaning} [{default}]"))
    width = min(shutil.get_terminal_size((100, 24)).columns, 110) - 38
    lines = [f"usage: {prog} [--config FILE] [--section.key VALUE ...] [--print_config] [--help]", ""]
    for left, right in rows:
        first, *more = textwrap.wrap(right, max(width, 30)) or [""]
        lines += [f"{left:<38}{first}".rstrip(), *(" " * 38 + line for line in more)]
    return "\n".join(lines)


AVERAGED = "averaged.json"  # of what an average was made; only an average has this file


def parse_average(argv: Sequence[str] | None = None, prog: str = "dragoman average") -> argparse.Namespace:
    """Parse the command line, and refuse a place at which no average may lie."""
    command = Parser(
        prog=prog,
        allow_abbrev=False,
        description="Make a checkpoint to translate with, whose weights are the mean of those of several others. They "
        "must come from one training: the mean of separate ones translates nothing.",
    )
    command.add_argument("checkpoints", nargs="*", type=Path, metavar="DIR", help="folders of two or more checkpoints")
    command.add_argument("--run", type=Path, metavar="DIR", help="instead: folder of a run, as runs/phrasebook")
    command.add_argument("--last", type=int, metavar="N", help="how many of the run's newest checkpoints (default: 5)")
    command.add_argument("--output", type=Path, metavar="DIR", help="folder to be made (default: averaged in the run)")
    parsed = command.parse_args(argv)
    if bool(parsed.checkpoints) == bool(parsed.run):
        command.error("name either a run with --run, or the folders of two or more checkpoints")
    if parsed.run is None:
        if len(parsed.checkpoints) < 2:
            command.error(f"an average takes two checkpoints or more: {parsed.checkpoints[0]} is only one")
        if parsed.last is not None:
            command.error("--last counts the checkpoints of a run: give it with --run")
        if parsed.output is None:
            command.error("say with --output where the average is to lie")
    else:
        parsed.last = 5 if parsed.last is None else parsed.last
        if parsed.last < 2:
            command.error(f"--last is {parsed.last}, but an average takes two checkpoints or more")
        parsed.output = parsed.output or parsed.run / "averaged"
    if parsed.output.resolve().parent.name == "checkpoints":
        command.error(f"{parsed.output} is where training keeps its own checkpoints: choose a folder outside of it")
    if os.path.lexists(parsed.output) and not (parsed.output / AVERAGED).is_file():
        command.error(f"{parsed.output} exists, and is not an average that may be replaced: choose another --output")
    return parsed


def parse_evaluate(argv: Sequence[str] | None = None, prog: str = "dragoman evaluate") -> argparse.Namespace:
    """Parse the command line; `overrides` of the result holds what it says of the run's decoding settings."""
    parser = Parser(
        prog=prog,
        allow_abbrev=False,
        description="Translate the test pairs of a run and report how good that is: on the terminal, and as JSON, "
        "HTML and TSV in the folder report of the run.",
    )
    parser.add_argument("--run", type=Path, metavar="DIR", help="folder of a run (default: the newest)")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        action="append",
        help="weights to use instead of the run's best, several together; the report is then saved with --output only",
    )
    parser.add_argument("--split", choices=("test", "validation"), default="test", help="pairs of the run to use")
    parser.add_argument("--data", metavar="NAME", help="other pairs: a file, or what the names of two files begin with")
    parser.add_argument(
        "--against", type=Path, metavar="OTHER", help="compare with a run, a report's JSON, or a TSV as a report's"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of the report (default: RUN/report)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default: auto)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of as tables")
    add_direction_options(parser)
    add_decoding_options(parser)
    parsed = parser.parse_args(argv)
    parsed.overrides = decoding_options(parser, parsed)
    return parsed


def parse_check(argv: Sequence[str] | None = None, prog: str = "dragoman check") -> tuple[Config, bool]:
    """The settings on the command line, which are those of train.py, and whether it has --json besides."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(arguments):
        print("Look at the corpus of a training, before it. --json prints one object; all else is as for train.py.\n")
    settings = [word for word in arguments if word != "--json"]
    return parse_train(settings, prog), len(settings) < len(arguments)


def parse_summary(argv: Sequence[str], prog: str = "dragoman summary") -> Config:
    """Parse the settings of the run whose model is shown."""
    return parse_train(argv, prog)


def parse_serve(argv: Sequence[str] | None = None, prog: str = "dragoman serve") -> argparse.Namespace:
    """Parse the command line."""
    parser = Parser(
        prog=prog, allow_abbrev=False, description="Translate for a browser and for other programs, over HTTP."
    )
    add_model_options(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1, for this computer alone)"
    )
    parser.add_argument("--port", type=int, default=8000, help="port to listen at; 0: any (default: 8000)")
    add_decoding_options(parser)
    parsed = parser.parse_args(argv)
    if not 0 <= parsed.port < 2**16:
        parser.error(f"--port is {parsed.port}, but it must be 0 to 65535")
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        parser.error(f"{' and '.join(missing)} cannot be found: pip install -e '.[serve]' brings what is needed")
    parsed.overrides = decoding_options(parser, parsed)
    return parsed


EXPORT_MARK = "export.json"  # of what an export was made; only an export has this file


def parse_export(argv: Sequence[str] | None = None, prog: str = "dragoman export") -> argparse.Namespace:
    """Parse the command line, and refuse a place that must not be overwritten."""
    parser = Parser(prog=prog, allow_abbrev=False, description="Write a trained translator as another engine reads it.")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="folder of a run, as runs/phrasebook")
    parser.add_argument(
        "--to", required=True, choices=("ctranslate2", "huggingface", "onnx", "argos"), help="the engine"
    )
    parser.add_argument("--quantize", choices=("int8",), help="weights of a byte each, as the engine makes them")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder to be made (default: in RUN/exports)")
    parser.add_argument("--replace", action="store_true", help="replace an export that lies there already")
    parsed = parser.parse_args(argv)
    if parsed.quantize and parsed.to == "huggingface":
        parser.error("--quantize is not for huggingface: transformers has no int8 files of its own")
    name = f"{parsed.to}-{parsed.quantize}" if parsed.quantize else parsed.to
    parsed.output = parsed.output or parsed.run / "exports" / name
    if os.path.lexists(parsed.output):
        if not (parsed.output / EXPORT_MARK).is_file():
            parser.error(f"{parsed.output} exists, and is no export that may be replaced: choose another --output")
        if not parsed.replace:
            parser.error(f"{parsed.output} exists: choose another --output, or replace it with --replace")
    return parsed


def parse_translate(argv: Sequence[str] | None = None, prog: str = "dragoman translate") -> argparse.Namespace:
    """Parse the command line."""
    parser = Parser(
        prog=prog,
        allow_abbrev=False,
        description="Translate sentences, a file, standard input line by line, or what is typed at a prompt.",
    )
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="text to translate (none: --input or stdin)")
    parser.add_argument("--input", type=Path, metavar="FILE", help="read lines from FILE instead of standard input")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to FILE instead of standard output")
    parser.add_argument("--prefix", metavar="TEXT", help="let the translation of every line begin with TEXT")
    parser.add_argument("--json", action="store_true", help="a JSON object a line: scores, tokens, alignment, n-best")
    parser.add_argument("--align", action="store_true", help="show which source word each word was made from")
    parser.add_argument("--embed", action="store_true", help="give a vector for each line, as JSON, not a translation")
    parser.add_argument("--score", action="store_true", help="score given translations: SOURCE TAB TRANSLATION a line")
    parser.add_argument("--attention", type=Path, metavar="FILE", help="write a page that shows the attention, as HTML")
    parser.add_argument(
        "--example", type=int, metavar="N", action="append", help="translate sentence N of the run's test set"
    )
    add_model_options(parser)
    parser.add_argument("--engine", choices=("ctranslate2",), help="let another program search, with a run's model")
    add_direction_options(parser)
    add_decoding_options(parser)
    parsed = parser.parse_args(argv)
    if bool(parsed.sentences) + bool(parsed.input) + bool(parsed.example) > 1:
        parser.error("give sentences, --input or --example, not more than one of them")
    if parsed.example and (parsed.to or parsed.source):
        parser.error("--example goes in the direction of its sentence: --to and --from have no part in that")
    if parsed.align and parsed.json:
        parser.error("give --align, which is for people, or --json, which is for programs, not both")
    if parsed.score and (parsed.align or parsed.attention or parsed.example or parsed.prefix):
        parser.error("--score scores what is given: --align, --attention, --example and --prefix have no part in that")
    if parsed.embed and any((parsed.align, parsed.attention, parsed.example, parsed.json, parsed.score, parsed.prefix)):
        parser.error("--embed gives vectors: no other option about the output has a part in that")
    looks_inside = (parsed.json, parsed.align, parsed.attention, parsed.score, parsed.embed)
    if parsed.engine and (parsed.checkpoint or any(looks_inside)):
        parser.error("--engine gives translations of a run alone, without --checkpoint and what looks into the model")
    parsed.overrides = decoding_options(parser, parsed)
    return parsed
