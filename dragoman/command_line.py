"""The command line of every command, and its --help.

`train`, `check` and `summary` take settings, as `--section.key value`; the other commands take options, and settings of
the search as `--decoding.key value`. Nothing here imports torch, so that --help and a mistake are answered at once.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from dragoman import presets, resources
from dragoman.config_file import dump, read_config_file, settings_in_file
from dragoman.console import one_line
from dragoman.errors import ConfigError
from dragoman.setting_types import did_you_mean, kind_of, parse_value, shown
from dragoman.settings import (
    DEFAULTS,
    SECTIONS,
    SETTINGS,
    STAND_IN,
    Config,
    keys,
    values,
    with_preset_values,
    with_values,
)

AVERAGED = "averaged.json"  # lists what an average was made of; only an average has this file
# Names of files that say less about the data than the folder does.
GENERAL_NAMES = frozenset({"corpus", "data", "pairs", "text", "train", "training"})
# The settings that -h shows.
MAIN = (
    "run.name", "data.source_lang", "data.target_lang", "data.train", "data.validation", "data.test", "tokenizer.kind",
    "model.preset", "training.max_epochs", "training.max_minutes", "training.device", "decoding.beam_size",
)  # fmt: skip
# A file that sets one of these describes a model and its training, to which no preset is added.
_OF_A_MODEL = frozenset(presets.KEYS) - {*presets.LIMITS}
CLEAN_OPTIONS = (
    ("--output DIR", "folder for train.tsv, dropped.tsv and report.html"),
    ("--keep REASON,...", "reasons for which no pair is dropped, as they stand in dropped.tsv"),
    ("--profanity FILE", "drop pairs with one of these words or phrases, one a line"),
    ("--processes N", "processes to use (default: all cores); the result is the same"),
    ("--forward RUN", "run or checkpoint that translates source to target, to score pairs"),
    ("--backward RUN", "run or checkpoint that translates target to source"),
    ("--share NUMBER", "with models: keep this share of the pairs, those with the best scores"),
    ("--threshold NUMBER", "with models: keep the pairs that score at least this, from 0 to 1"),
    ("--device NAME", "with models: auto, cpu, cuda, cuda:1 or mps (default: auto)"),
)
CLEAN_PATHS = ("output", "profanity", "forward", "backward")
EXPORT_MARK = "export.json"  # describes an export; only an export has this file


def parse_train(arguments: Sequence[str], prog: str = "train.py") -> Config:
    """Parse the settings of a run. Without --config, they start from the config.yaml that comes with the program."""
    about = "Train a translator. The same command resumes a run that was stopped."
    return parse_settings(arguments, prog, resources.HOME / "config.yaml", about)


def parse_check(arguments: Sequence[str], prog: str = "dragoman check") -> tuple[Config, bool]:
    """Parse the settings of the run whose corpus to check, and whether --json is given."""
    about = "Check the corpus of a run before training."
    rest = [word for word in arguments if word != "--json"]
    options = [("--json", "print the diagnosis as one JSON object")]
    return parse_settings(rest, prog, resources.HOME / "config.yaml", about, options), len(rest) < len(arguments)


def parse_clean(arguments: Sequence[str], prog: str = "dragoman clean") -> argparse.Namespace:
    """Parse the options of clean; `config` holds the settings, and `settings` the words that gave them."""
    parser = Parser(prog, "")
    for option, _ in CLEAN_OPTIONS:
        name, _, metavar = option.partition(" ")
        parser.add_argument(name, metavar=metavar, action="append")
    own, rest = argparse.Namespace(), list(arguments)
    if not {"-h", "--help"} & set(arguments):
        own, rest = parser.parse_known_args(arguments)
    about = "Drop dirty pairs from the training corpus of a run: a copy of it without them, and a list of them."
    config = parse_settings(rest, prog, resources.HOME / "config.yaml", about, CLEAN_OPTIONS)
    for name, given in vars(own).items():
        if given and len(given) > 1 and name != "keep":
            parser.error(f"--{name} is given twice")
    if not own.output:
        parser.error("choose a folder for the cleaned corpus with --output")

    def number(name: str, kind: type[int] | type[float], low: float, high: float) -> Any:
        [text] = getattr(own, name) or [None]
        try:
            value = None if text is None else kind(text)
        except ValueError:
            value = -1
        if value is not None and not low <= value <= high:
            parser.error(f"--{name} is {text}, but it must be a number from {low:g} to {high:g}")
        return value

    paths = {name: Path(given[0]) if (given := getattr(own, name)) else None for name in CLEAN_PATHS}
    keep = [reason for given in own.keep or [] for reason in given.split(",")]
    share, least = number("share", float, 0, 1), number("threshold", float, 0, 1)
    if bool(paths["forward"]) != bool(paths["backward"]):
        parser.error("pairs are scored in both directions: give --forward and --backward (one run may serve as both)")
    if (share is None) == (least is None) and (paths["forward"] or share is not None):
        parser.error("give either --share or --threshold to drop pairs by score")
    if not paths["forward"] and (share is not None or least is not None):
        parser.error("--share and --threshold need the models that score: give --forward and --backward")
    return argparse.Namespace(
        **paths, config=config, settings=rest, keep=keep, share=share, threshold=least,
        processes=number("processes", int, 1, 1024), device=(own.device or ["auto"])[0],
    )  # fmt: skip


def parse_summary(arguments: Sequence[str], prog: str = "dragoman summary") -> Config:
    """Parse the settings of the run whose model to show."""
    about = "Show the parameters, shapes and operations of a model. Takes the settings of a run."
    return parse_settings(arguments, prog, resources.HOME / "config.yaml", about)


def parse_settings(
    arguments: Sequence[str],
    prog: str = "train.py",
    default_file: Path | None = None,
    about: str = "",
    options: Sequence[tuple[str, str]] = (),
) -> Config:
    """Combine the settings on the command line with those in the file it names, or in `default_file` if that exists.

    `options` are rows for --help about options that are no settings.

    --help, -h and --print_config print and exit with 0. A mistake prints one line to standard error and
    exits with 2.
    """
    if {"-h", "--help"} & set(arguments):
        print(_settings_help(prog, about, keys() if "--help" in arguments else MAIN, options))
        raise SystemExit(0)
    try:
        config = read_settings(arguments, default_file)
    except ConfigError as error:
        print(f"{prog}: error: {one_line(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    if "--print_config" in arguments:
        if config.model.preset == "auto":
            print(f"# {STAND_IN}")
        if config.unsaid & {"data.source_lang", "data.target_lang"}:
            print("# Set both languages: nobody has named them, and en and it are those of the default run.")
        print(dump(config), end="")
        raise SystemExit(0)
    return config


def read_settings(arguments: Sequence[str], default_file: Path | None = None) -> Config:
    """As `parse_settings`, but raises ConfigError for a mistake."""
    if arguments and not arguments[0].startswith("-"):
        if arguments[0].endswith((".yaml", ".yml")):
            arguments = ["--config", *arguments]
        elif _names_data(arguments[0]):
            arguments = ["--data.train", *arguments]
    given = list(_pairs(arguments, ["config", "print_config", *SETTINGS]))
    files = [Path(text) for key, text in given if key == "config"]
    if len(files) > 1:
        raise ConfigError("--config is given twice, but a run takes one file.")
    if not files and default_file is not None and default_file.exists():
        files = [default_file]
    in_file = settings_in_file(read_config_file(files[0]), files[0]) if files else {}
    if files and default_file is not None and default_file.exists() and files[0].samefile(default_file):
        # It spells out every default. Only what differs from them is the user's choice.
        in_file = {key: value for key, value in in_file.items() if value != DEFAULTS[key]}
    return _combined(in_file, {key: parse_value(key, SETTINGS[key], text) for key, text in given if key in SETTINGS})


def _names_data(word: str) -> bool:
    """Whether a word that stands alone names training pairs: a file or folder, the prefix of two files, a download."""
    path = Path(word)
    files = path.parent.glob(f"{glob.escape(path.name)}.*") if path.name else ()
    return os.path.exists(word) or word.startswith(("opus:", "sacrebleu:")) or any(files)  # no error for a long name


def as_word(value: Any) -> str:
    """A value of a setting as on the command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def override(config: Config, arguments: Sequence[str]) -> Config:
    """Change just the settings that arguments such as `--section.key value` name. Raises ConfigError."""
    return with_values(config, {key: parse_value(key, SETTINGS[key], text) for key, text in _pairs(arguments, keys())})


def _combined(in_file: Mapping[str, Any], typed: Mapping[str, Any]) -> Config:
    """Combine the choices in a file with the command line, and apply a preset around both.

    A run on the user's own data has a name, a preset and languages of its own, not those of the default run. Until the
    data are known, auto stands for a preset that is valid with what the user chose, and the languages are unsaid.
    """
    given = {**in_file, **typed}
    if _own_limit(in_file, typed):
        given["training.plan_minutes"] = None
    unsaid: set[str] = set()
    if given.get("data.train", DEFAULTS["data.train"]) != DEFAULTS["data.train"]:
        given.setdefault("run.name", run_name(given["data.train"]))
        if "data.directions" not in given:
            unsaid |= {"data.source_lang", "data.target_lang"} - given.keys()
        if "model.preset" not in given and not in_file.keys() & _OF_A_MODEL:
            given["model.preset"] = "auto"
            unsaid.add("model.preset")
    preset = given.get("model.preset")
    if preset is None:
        return replace(with_values(Config(), given), unsaid=frozenset(unsaid))
    chosen = frozenset(typed if "model.preset" in typed else {**in_file, **typed}) & set(presets.KEYS)
    overruled = tuple((key, in_file[key]) for key in presets.KEYS if key in in_file and key not in chosen)
    empty, errors = Config(chosen=chosen, overruled=overruled, unsaid=frozenset(unsaid)), []
    for name in [preset] if preset != "auto" else [presets.STAND_IN, *presets.PRESETS]:
        of_preset = presets.values_of(name, values(empty) | given, chosen, presets.Plan())
        try:
            return with_preset_values(empty, {**given, **of_preset})
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


def _own_limit(in_file: Mapping[str, Any], typed: Mapping[str, Any]) -> bool:
    """Whether the user says how long to train, in a place as near as that of training.plan_minutes or nearer."""
    for place in (typed, in_file):
        if "training.plan_minutes" in place:
            return False
        if any(place.get(key) is not None for key in presets.ENDS):
            return True
    return False


def _pairs(arguments: Sequence[str], options: Collection[str]) -> Iterator[tuple[str, str]]:
    """Split `--key value` and `--key=value` into key and value.

    Unlike argparse, which would take the value `-1e-3` for an option, any word after a key is its value unless it
    starts with two dashes.
    """
    rest = list(reversed(arguments))
    while rest:
        argument = rest.pop()
        key, equals, text = argument.removeprefix("--").partition("=")
        if not argument.startswith("--"):
            if _names_data(argument):
                raise ConfigError(f"{shown(argument)} stands alone: put it first, or write --data.train {argument}")
            raise ConfigError(
                f"{shown(argument)} stands alone, but it is no file, and settings are given as --section.key value."
            )
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


def _settings_help(prog: str, about: str, shown_keys: Collection[str], options: Sequence[tuple[str, str]] = ()) -> str:
    """Settings with their types, meanings, choices and defaults, as wide as the terminal, from 68 to 110 columns."""
    rows = [
        ("DATA", "training pairs, as --data.train names them"),
        *options,
        ("--config FILE", "YAML file with settings; the command line overrules it"),
        ("--print_config", "print all settings as YAML and exit"),
        ("-h", "show the main settings and exit; defaults are in brackets"),
        ("--help", "show all settings and exit"),
    ]
    for name, section in SECTIONS.items():
        chosen = [declared for declared in fields(section) if f"{name}.{declared.name}" in shown_keys]
        rows += [("", ""), (f"{name}: {section.__doc__}", "")] if chosen else []
        for declared in chosen:
            base, choices, _ = kind_of(declared)
            noun = {bool: "BOOL", int: "INT", float: "NUMBER", str: "WORD" if choices else "TEXT"}[base]
            default = "null" if declared.default is None else declared.default
            default = str(default).lower() if base is bool else default
            meaning = declared.metadata["meaning"] + (f" ({', '.join(choices)})" if noun == "WORD" else "")
            rows.append((f"  --{name}.{declared.name} {noun}", f"{meaning} [{default}]"))
    columns = max(min(shutil.get_terminal_size((100, 24)).columns, 110), 68)
    lines = [f"usage: {prog} [DATA] [--config FILE] [--section.key VALUE] ...", ""]
    lines += [*textwrap.wrap(about, columns), ""] if about else []
    for left, right in rows:
        first, *more = textwrap.wrap(right, columns - 38) or [""]
        lines += [f"{left:<38}{first}".rstrip(), *(" " * 38 + line for line in more)]
    return "\n".join(lines)


def run_name(data: str) -> str:
    """A name for a run on the data that a value of data.train names: "letters" for my/letters.tsv."""
    first = Path(re.split(r"\s\+\s", data)[0].rpartition("* ")[2])
    name = first.name.split(".")[0]
    if name.lower() in GENERAL_NAMES and first.parent.name:
        name = first.parent.name
    return re.sub(r"[^\w-]+", "-", name).strip("-") or "mine"


class Parser(argparse.ArgumentParser):
    """The parser of the other commands. Reports a mistake in one line, without the usage before it."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def parse_args(self, args: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """Parse the words of a command line. A mistyped option gets the name that is most like it."""
        parsed, rest = self.parse_known_args(args)
        if rest:
            wrong = next((word.partition("=")[0] for word in rest if word.startswith("-")), "")
            options = [name.lstrip("-") for name in self._option_string_actions if name.startswith("--")]
            hint = did_you_mean(wrong.lstrip("-"), options, "--") if wrong else ": it stands alone; see --help."
            self.error(f"{wrong or rest[0]} is not an option of this command{hint}")
        return parsed

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {one_line(message)}\n")


def _add_model_options(parser: Parser) -> None:
    """Add --run, --checkpoint and --device, which choose the model and where it runs."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--run", type=Path, metavar="DIR", help="folder of a run (default: the one finished last)")
    where.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        action="append",
        help="folder of a checkpoint, instead of a run's best; give it several times to translate with an ensemble",
    )
    _add_device_option(parser)


def _add_device_option(parser: Parser) -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default: auto)")


def _add_glossary_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--glossary", type=Path, metavar="FILE", help="terms to use, one SOURCE TAB TARGET per line")


def _add_direction_options(parser: argparse._ActionsContainer) -> None:
    """Add --to and --from, which choose a direction of a multilingual model."""
    parser.add_argument("--to", metavar="LANGUAGE", help="multilingual model: translate into LANGUAGE")
    parser.add_argument("--from", dest="source", metavar="LANGUAGE", help="multilingual model: translate from LANGUAGE")


def _add_decoding_options(parser: Parser) -> None:
    """Add `--decoding.beam_size 5` and the other settings of the search; `_decoding_options` collects them."""
    chosen = [key for key in SETTINGS if key.startswith("decoding.")]
    parser.epilog = f"Settings of the search, as in config.yaml: {', '.join('--' + key for key in chosen)}."
    for key in chosen:
        if f"--{key}" not in parser._option_string_actions:  # the beam may be listed already
            parser.add_argument(f"--{key}", dest=key, help=argparse.SUPPRESS)


def _decoding_options(parser: Parser, parsed: argparse.Namespace) -> list[str]:
    """Collect the given settings of the search, as `override` takes them.

    Exits with 2 if a value is invalid by itself. Combinations can only be checked with the run's own settings.
    """
    given = {key: text for key, text in vars(parsed).items() if key in SETTINGS and text is not None}
    try:
        for key, text in given.items():
            parse_value(key, SETTINGS[key], text)
    except ConfigError as error:
        parser.error(str(error))
    return [word for key, text in given.items() for word in (f"--{key}", text)]


def parse_translate(arguments: Sequence[str], prog: str = "dragoman translate") -> argparse.Namespace:
    """Parse the options of translate; `overrides` holds the settings of the search."""
    parser = Parser(prog, "Translate sentences, a file, standard input line by line, or what you type at a prompt.")
    parser.usage = f"{prog} [SENTENCE ...] [--run DIR] [--input FILE] [OPTION ...]"
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="text to translate (none: --input or stdin)")
    _add_model_options(parser)
    parser.add_argument("--input", type=Path, metavar="FILE", help="read lines from FILE instead of standard input")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to FILE instead of standard output")
    parser.add_argument("--paragraphs", action="store_true", help="join wrapped lines, as of a mail, to paragraphs")
    parser.add_argument("--json", action="store_true", help="print scores, tokens, alignment and n-best as JSON lines")
    meaning = SETTINGS["decoding.beam_size"].metadata["meaning"]
    parser.add_argument("--decoding.beam_size", dest="decoding.beam_size", metavar="N", help=meaning)
    more = parser.add_argument_group("more options")
    _add_direction_options(more)
    _add_glossary_option(more)
    more.add_argument(
        "--markup",
        choices=("html", "xml", "markdown", "none"),
        help="each argument, or the whole input, is a document with tags; none: take every line of any file as text",
    )
    more.add_argument("--prefix", metavar="TEXT", help="start the translation of every line with TEXT")
    more.add_argument("--align", action="store_true", help="show which source word produced each word")
    more.add_argument("--attention", type=Path, metavar="FILE", help="write an HTML page that shows the attention")
    more.add_argument("--score", action="store_true", help="score given translations: SOURCE TAB TRANSLATION lines")
    more.add_argument("--embed", action="store_true", help="print a vector for each line, as JSON, not a translation")
    more.add_argument(
        "--example", type=int, metavar="N", action="append", help="translate sentence N of the run's test set"
    )
    more.add_argument(
        "--engine", choices=("auto", "ctranslate2", "torch"), default="auto", help="what searches (default: auto)"
    )
    _add_decoding_options(parser)
    parsed = parser.parse_args(arguments)
    _refuse_contradictions(parser, parsed)
    parsed.overrides = _decoding_options(parser, parsed)
    return parsed


def _refuse_contradictions(parser: Parser, parsed: argparse.Namespace) -> None:
    """Exit with 2 if options of translate exclude each other."""
    if bool(parsed.sentences) + bool(parsed.input) + bool(parsed.example) > 1:
        parser.error("give only one of sentences, --input and --example")
    if parsed.example and (parsed.to or parsed.source):
        parser.error("--example keeps the direction of its sentence: leave out --to and --from")
    if parsed.align and parsed.json:
        parser.error("give either --align, for people, or --json, for programs")
    given = (parsed.align, parsed.attention, parsed.example, parsed.prefix, parsed.glossary)
    if parsed.score and any(given):
        parser.error(
            "--score scores given translations: leave out --align, --attention, --example, --prefix and --glossary"
        )
    if parsed.embed and any((*given, parsed.json, parsed.score)):
        parser.error(
            "--embed prints vectors: "
            "leave out --align, --attention, --example, --json, --score, --prefix and --glossary"
        )
    tagged = parsed.markup not in (None, "none")
    if tagged and parsed.paragraphs:
        parser.error(f"--paragraphs is for plain text: leave out it or --markup {parsed.markup}")
    if (tagged or parsed.paragraphs) and any((*given[:-1], parsed.embed, parsed.json, parsed.score)):
        parser.error(
            f"{'--markup' if tagged else '--paragraphs'} writes documents: "
            "leave out --align, --attention, --embed, --example, --json, --prefix and --score"
        )


def parse_evaluate(arguments: Sequence[str], prog: str = "dragoman evaluate") -> argparse.Namespace:
    """Parse the options of evaluate; `overrides` holds the settings of the search."""
    parser = Parser(
        prog,
        "Translate the test pairs of a run and report the scores: in the terminal, and as JSON, HTML and TSV in the "
        "folder report of the run.",
    )
    parser.add_argument("--run", type=Path, metavar="DIR", help="folder of a run (default: the one finished last)")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        action="append",
        help="weights to use instead of the run's best; several form an ensemble; save the report with --output",
    )
    parser.add_argument("--split", choices=("test", "validation"), default="test", help="pairs of the run to use")
    parser.add_argument(
        "--data", metavar="NAME", help="other pairs: a file, the common prefix of two file names, or sacrebleu:NAME"
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="OTHER",
        action="append",
        help="compare with a run, a report's JSON, or a TSV like a report's",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of the report (default: RUN/report)")
    _add_device_option(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of tables")
    _add_direction_options(parser)
    _add_decoding_options(parser)
    parsed = parser.parse_args(arguments)
    if len(parsed.against or []) > 1:
        parser.error("--against compares with one other: give it once, or list all runs with dragoman runs")
    parsed.against = parsed.against[0] if parsed.against else None
    parsed.overrides = _decoding_options(parser, parsed)
    return parsed


def parse_runs(arguments: Sequence[str], prog: str = "dragoman runs") -> argparse.Namespace:
    """Parse the options of runs."""
    parser = Parser(prog, "List the runs of a folder with their scores, the one that saved last first.")
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="default: runs, where all commands look")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)


def parse_export(arguments: Sequence[str], prog: str = "dragoman export") -> argparse.Namespace:
    """Parse the options of export. Refuse to overwrite anything but an export, and that only with --replace."""
    parser = Parser(prog, "Write a trained translator in the format of another engine.")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="folder of a run, as runs/phrasebook")
    parser.add_argument(
        "--to", required=True, choices=("ctranslate2", "huggingface", "onnx", "argos"), help="the engine"
    )
    parser.add_argument("--quantize", choices=("int8",), help="store each weight in one byte, as the engine does it")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder to create (default: in RUN/exports)")
    parser.add_argument("--replace", action="store_true", help="replace an existing export")
    parsed = parser.parse_args(arguments)
    if parsed.quantize and parsed.to == "huggingface":
        parser.error("--quantize does not apply to huggingface: transformers has no int8 files of its own")
    name = f"{parsed.to}-{parsed.quantize}" if parsed.quantize else parsed.to
    parsed.output = parsed.output or parsed.run / "exports" / name
    if os.path.lexists(parsed.output):
        if not (parsed.output / EXPORT_MARK).is_file():
            parser.error(f"{parsed.output} exists and is not an export: choose another --output")
        if not parsed.replace:
            parser.error(f"{parsed.output} exists: choose another --output, or replace it with --replace")
    return parsed


# The options of serve that set its budgets: option, type, default in `server.limits.Limits`, meaning.
SERVER_BUDGETS = (
    ("--max-bytes", int, 900_000, "bytes of a request"),
    ("--max-work", int, 100_000, "work of a request: its characters and 10 for each line, times the beam size, times 4 "
        "for attention or markup"),
    ("--max-seconds", float, 20, "seconds of computing for a request"),
    ("--max-wait", float, 60, "seconds until a request is answered, and again for its client to take the answer"),
    ("--max-waiting", int, 200, "requests that wait; a tenth of them may be long"),
    ("--max-connections", int, 500, "connections; for a new one, an idle one is closed"),
)  # fmt: skip


def parse_serve(arguments: Sequence[str], prog: str = "dragoman serve") -> argparse.Namespace:
    """Parse the options of serve; `overrides` holds the settings of the search."""
    parser = Parser(prog, "Translate over HTTP, for a browser and for other programs.")
    _add_model_options(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this computer only)"
    )
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0: any (default: 8000)")
    _add_glossary_option(parser)
    for option, kind, default, what in SERVER_BUDGETS:
        text = f"{what} (default: {default:,})"
        parser.add_argument(option, type=kind, default=argparse.SUPPRESS, metavar="N", help=text)
    _add_decoding_options(parser)
    parsed = parser.parse_args(arguments)
    for option, *_ in SERVER_BUDGETS:
        if not vars(parsed).get(option[2:].replace("-", "_"), 1) > 0:
            parser.error(f"{option} must be more than 0")
    if not 0 <= parsed.port < 2**16:
        parser.error(f"--port is {parsed.port}, but it must be from 0 to 65535")
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        install = resources.install("serve")
        parser.error(f"cannot find {' and '.join(missing)}: install what the server needs with {install}")
    parsed.overrides = _decoding_options(parser, parsed)
    return parsed


def parse_average(arguments: Sequence[str], prog: str = "dragoman average") -> argparse.Namespace:
    """Parse the options of average. Refuse an output in which no average may be written."""
    parser = Parser(
        prog,
        "Average the weights of several checkpoints of one training run into a new checkpoint to translate with. "
        "Averaging checkpoints of separate runs gives a useless model.",
    )
    parser.add_argument("checkpoints", nargs="*", type=Path, metavar="DIR", help="folders of two or more checkpoints")
    parser.add_argument("--run", type=Path, metavar="DIR", help="instead: folder of a run, as runs/phrasebook")
    parser.add_argument("--last", type=int, metavar="N", help="how many of the run's newest checkpoints (default: 5)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder to create (default: RUN/averaged)")
    parsed = parser.parse_args(arguments)
    if bool(parsed.checkpoints) == bool(parsed.run):
        parser.error("give either a run with --run, or the folders of two or more checkpoints")
    if parsed.run is None:
        if len(parsed.checkpoints) < 2:
            parser.error(f"an average takes two checkpoints or more, but {parsed.checkpoints[0]} is only one")
        if parsed.last is not None:
            parser.error("--last counts the checkpoints of a run: give it with --run")
        if parsed.output is None:
            parser.error("choose a folder for the average with --output")
    else:
        parsed.last = 5 if parsed.last is None else parsed.last
        if parsed.last < 2:
            parser.error(f"--last is {parsed.last}, but an average takes two checkpoints or more")
        parsed.output = parsed.output or parsed.run / "averaged"
    if parsed.output.resolve().parent.name == "checkpoints":
        parser.error(f"{parsed.output} is where training keeps its own checkpoints: choose a folder outside of it")
    if os.path.lexists(parsed.output) and not (parsed.output / AVERAGED).is_file():
        parser.error(f"{parsed.output} exists and is not an average: choose another --output")
    return parsed
