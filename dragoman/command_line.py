"""The command line of every command, and its --help.

`train`, `check`, `clean` and `summary` take the settings of a run, as `--section.key value`, and a config file; the
commands that translate take those of the search. Nothing here imports torch, so that --help and a mistake are answered
at once.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from dragoman import config_file, presets, resources
from dragoman.console import one_line
from dragoman.errors import ConfigError
from dragoman.setting_types import as_word, did_you_mean, kind_of, parse_value
from dragoman.settings import DEFAULTS, SECTIONS, SETTINGS, STAND_IN, Config, values, with_preset_values, with_values

AVERAGED = "averaged.json"  # lists what an average was made of; only an average has this file
EXPORT_MARK = "export.json"  # describes an export; only an export has this file
# File names too general for the name of a run: the folder's name is used instead.
GENERAL_NAMES = frozenset({"corpus", "data", "pairs", "text", "train", "training"})
# The settings that -h shows.
MAIN = (
    "run.name", "data.source_lang", "data.target_lang", "data.train", "data.validation", "data.test", "tokenizer.kind",
    "model.preset", "training.max_epochs", "training.max_minutes", "training.device", "decoding.beam_size",
)  # fmt: skip
# A file that sets one of these describes a model and its training, to which no preset is added.
_OF_A_MODEL = frozenset(presets.KEYS) - {*presets.LIMITS}
_NOUNS = {bool: "BOOL", int: "INT", float: "NUMBER", str: "TEXT"}


class Parser(argparse.ArgumentParser):
    """The parser of every command: options, and settings as `--section.key value`.

    A mistake is one line, with the nearest name. -h shows the main settings, --help shows them all.
    """

    def __init__(self, prog: str = "", about: str = "", usage: str | None = None) -> None:
        columns = max(min(shutil.get_terminal_size((100, 24)).columns, 110), 68)
        layout = partial(argparse.HelpFormatter, max_help_position=38, width=columns)
        super().__init__(prog, usage, about, allow_abbrev=False, formatter_class=layout, add_help=False)
        self.add_argument("-h", action="help", help="show this help with the main settings and exit")
        self.add_argument("--help", action="help", help="show this help with all settings and exit")

    def parse(self, words: Sequence[str], sections: Collection[str]) -> argparse.Namespace:
        """Parse options and settings of some sections: `values` by name, and `overrides`, the words that gave them."""
        self._add_settings(sections, MAIN if "--help" not in words else SETTINGS)
        parsed, rest = self.parse_known_args(words)
        if rest:
            wrong = next((word.partition("=")[0] for word in rest if word.startswith("-")), "")
            options = [name.lstrip("-") for name in self._option_string_actions if name.startswith("--")]
            hint = did_you_mean(wrong.lstrip("-"), options, "--") if wrong else ": it stands alone; see --help."
            self.error(f"{wrong or rest[0]} is not an option of this command{hint}")
        typed = {key: text for key, text in vars(parsed).items() if key in SETTINGS}
        parsed.overrides = [f"--{key}={text}" for key, text in typed.items()]
        try:
            parsed.values = {key: parse_value(key, SETTINGS[key], text) for key, text in typed.items()}
        except ConfigError as error:
            self.error(str(error))
        return parsed

    def _add_settings(self, sections: Collection[str], shown: Collection[str]) -> None:
        meanings = config_file.meanings()
        for section in sections:
            keys = [f"{section}.{declared.name}" for declared in fields(SECTIONS[section])]
            title = f"{section} ({(SECTIONS[section].__doc__ or '').rstrip('.')})"
            group = self.add_argument_group(title) if {*keys} & {*shown} else self
            for key in keys:
                text = f"{meanings[key]} [{as_word(DEFAULTS[key])}]".replace("%", "%%")
                group.add_argument(
                    f"--{key}", dest=key, default=argparse.SUPPRESS,
                    metavar=_NOUNS[kind_of(SETTINGS[key]).base], help=text if key in shown else argparse.SUPPRESS,
                )  # fmt: skip

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace(": expected one argument", " needs a value after it")
        self.exit(2, f"{self.prog}: error: {one_line(message)}\n")


class _Library(Parser):
    """Raises ConfigError where a command would exit."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def parse_train(words: Sequence[str], prog: str = "train.py") -> Config:
    """Parse the settings of a run. Without --config, they start from the config.yaml that comes with the program."""
    return parse_settings(words, prog, config_file.DEFAULT)


def parse_settings(words: Sequence[str], prog: str = "train.py", default_file: Path | None = None) -> Config:
    """Combine the settings on the command line with those in the file it names, or in `default_file` if that exists."""
    about = "Train a translator. The same command resumes a run that was stopped."
    return _parse_run(Parser(prog, about), words, default_file).config


def read_settings(words: Sequence[str], default_file: Path | None = None) -> Config:
    """As `parse_settings`, but raises ConfigError for a mistake."""
    return _parse_run(_Library(), words, default_file).config


def override(config: Config, words: Sequence[str]) -> Config:
    """Change just the settings that words such as `--section.key value` name. Raises ConfigError."""
    return with_values(config, _Library().parse(words, SECTIONS).values)


def _parse_run(parser: Parser, words: Sequence[str], default_file: Path | None) -> argparse.Namespace:
    """Parse the options of a command that takes the settings of a run; `config` holds them all.

    --print_config prints them and exits with 0.
    """
    parser.usage = f"{parser.prog} [DATA] [--config FILE] [--section.key VALUE] ..."
    parser.add_argument("data", nargs="?", metavar="DATA", help="training pairs, as --data.train; or a config file")
    parser.add_argument("--config", metavar="FILE", help="YAML file with settings; the command line overrules it")
    parser.add_argument("--print_config", action="store_true", help="print all settings as YAML and exit")
    parsed = parser.parse(words, SECTIONS)
    typed, parsed.file = parsed.values, parsed.config
    if parsed.data and parsed.data.endswith((".yaml", ".yml")):
        parsed.file = parsed.data
    elif parsed.data:
        typed = {"data.train": parsed.data, **typed}
    try:
        parsed.config = _combined(_in_file(parsed.file, default_file), typed)
    except ConfigError as error:
        parser.error(str(error))
    if parsed.print_config:
        if parsed.config.model.preset == "auto":
            print(f"# {STAND_IN}")
        if parsed.config.left_open & {"data.source_lang", "data.target_lang"}:
            print("# Set data.source_lang and data.target_lang: en and it are only the defaults.")
        print(config_file.dump(parsed.config), end="")
        parser.exit(0)
    return parsed


def _in_file(file: str | None, default: Path | None) -> dict[str, Any]:
    """The user's choices in a config file, or in the default one. The latter spells out every default."""
    default = default if default is not None and default.exists() else None
    path = Path(file) if file is not None else default
    if path is None:
        return {}
    choices = config_file.settings_in_file(config_file.read_config_file(path), path)
    is_default = default is not None and path.samefile(default)
    return {key: value for key, value in choices.items() if not is_default or value != DEFAULTS[key]}


def _combined(in_file: Mapping[str, Any], typed: Mapping[str, Any]) -> Config:
    """Combine the choices in a file with the command line, and apply a preset around both.

    A run on the user's own data has a name, a preset and languages of its own, not those of the default run. Until the
    data are known, auto stands for a preset that is valid with what the user chose, and the languages are left open.
    """
    choices = {**in_file, **typed}
    # A limit of the user's own switches the plan off, unless the plan is set in the same place or nearer.
    limited, nearer = (any(place.get(key) is not None for key in presets.ENDS) for place in (choices, typed))
    if limited and "training.plan_minutes" not in (typed if nearer else choices):
        choices["training.plan_minutes"] = None
    left_open: set[str] = set()
    if choices.get("data.train", DEFAULTS["data.train"]) != DEFAULTS["data.train"]:
        choices.setdefault("run.name", run_name(choices["data.train"]))
        if "data.directions" not in choices:
            left_open |= {"data.source_lang", "data.target_lang"} - choices.keys()
        if "model.preset" not in choices and not in_file.keys() & _OF_A_MODEL:
            choices["model.preset"] = "auto"
            left_open.add("model.preset")
    preset = choices.get("model.preset")
    if preset is None:
        return replace(with_values(Config(), choices), left_open=frozenset(left_open))
    chosen = frozenset(typed if "model.preset" in typed else {**in_file, **typed}) & set(presets.KEYS)
    overruled = tuple((key, in_file[key]) for key in presets.KEYS if key in in_file and key not in chosen)
    empty, errors = Config(chosen=chosen, overruled=overruled, left_open=frozenset(left_open)), []
    for name in [preset] if preset != "auto" else [presets.STAND_IN, *presets.PRESETS]:
        of_preset = presets.values_of(name, values(empty) | choices, chosen, presets.Extent())
        try:
            return with_preset_values(empty, {**choices, **of_preset})
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


def run_name(data: str) -> str:
    """A name for a run on the data that a value of data.train names: "letters" for my/letters.tsv."""
    first = Path(re.split(r"\s\+\s", data)[0].rpartition("* ")[2])
    name = first.name.split(".")[0]
    if name.lower() in GENERAL_NAMES and first.parent.name:
        name = first.parent.name
    return re.sub(r"[^\w-]+", "-", name).strip("-") or "mine"


def parse_check(words: Sequence[str], prog: str = "dragoman check") -> tuple[Config, bool]:
    """Parse the settings of the run whose corpus to check, and whether --json is given."""
    parser = Parser(prog, "Check the corpus of a run before training.")
    parser.add_argument("--json", action="store_true", help="print the diagnosis as one JSON object")
    parsed = _parse_run(parser, words, config_file.DEFAULT)
    return parsed.config, parsed.json


def parse_summary(words: Sequence[str], prog: str = "dragoman summary") -> Config:
    """Parse the settings of the run whose model to show."""
    parser = Parser(prog, "Show the parameters, shapes and operations of a model. Takes the settings of a run.")
    return _parse_run(parser, words, config_file.DEFAULT).config


def parse_plan(words: Sequence[str], prog: str = "dragoman plan") -> argparse.Namespace:
    """Parse the options of plan; `config` holds the settings, with the preset for that many pairs unless one is set."""
    parser = Parser(prog, "Estimate disk, memory and hours of a training. Takes the settings of a run.")
    add, unset = parser.add_argument, argparse.SUPPRESS
    add("--pairs", type=_pairs, required=True, metavar="N", help="pairs of the corpus: 80000, 300k, 100M, 1.5B")
    add("--tokens", type=_number(float, 1, 1000), metavar="N", help="mean tokens of a side (default: as measured)")
    add("--model", dest="model.preset", choices=presets.PRESETS, default=unset, help="preset (default: by --pairs)")
    add("--epochs", dest="training.max_epochs", default=unset, metavar="N", help="as --training.max_epochs")
    add("--updates", dest="training.max_steps", default=unset, metavar="N", help="as --training.max_steps")
    add("--gpus", type=_number(int, 1, 100_000), default=1, metavar="N", help="GPUs of all machines (default: 1)")
    add("--nodes", type=_number(int, 1, 100_000), metavar="N", help="machines (default: one for 8 GPUs)")
    add("--gpu", type=str.lower, default="h100", metavar="NAME", help="h100, a100, l4, 4090 ... (default: h100)")
    add("--tflops", type=_number(float, 0.001, 1e6), metavar="N", help="peak of a GPU that --gpu does not know")
    add("--mfu", type=_number(float, 0.001, 1), metavar="SHARE", help="share of the peak that training reaches")
    add("--cores", type=_number(int, 1, 100_000), default=16, metavar="N", help="cores that prepare (default: 16)")
    # With data of one's own, and no model in a config file, the preset is auto, as in training.
    parsed = _parse_run(parser, ["--data.train", "corpus", *words], config_file.DEFAULT)
    if parsed.config.model.preset == "auto":
        return parse_plan([*words, "--model", presets.choose(parsed.pairs)], prog)
    return parsed


def _pairs(text: str) -> int:
    """The type of an option: a number of pairs, such as 80000, 300k, 100M or 1.5B."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kmb]?)", text, re.IGNORECASE)
    count = round(float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "b": 1e9}[match[2].lower()]) if match else 0
    if not 1 <= count < 2**32:  # a stored order of an epoch numbers pairs with 32 bits
        raise argparse.ArgumentTypeError(f"{text} is not a number of pairs below 4.2B: write 80000, 300k or 100M")
    return count


def parse_clean(words: Sequence[str], prog: str = "dragoman clean") -> argparse.Namespace:
    """Parse the options of clean; `config` holds the settings, and `settings` the words that gave them."""
    parser = Parser(
        prog, "Drop dirty pairs from the training corpus of a run: a copy of it without them, and a list of them."
    )
    add = parser.add_argument
    add("--output", type=Path, metavar="DIR", required=True, help="folder for train.tsv, dropped.tsv and cleaning.json")
    add(
        "--keep", type=lambda text: text.split(","), action="extend", default=[], metavar="REASON,...",
        help="reasons for which no pair is dropped, as they stand in dropped.tsv",
    )  # fmt: skip
    add("--processes", type=_number(int, 1, 1024), metavar="N", help="processes to use (default: all cores)")
    parsed = _parse_run(parser, words, config_file.DEFAULT)
    parsed.settings = [*(["--config", parsed.file] if parsed.file else []), *parsed.overrides]
    return parsed


def _number(kind: type[int] | type[float], least: float, most: float = math.inf) -> Callable[[str], Any]:
    """The type of an option: a number in these limits."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            limits = f"from {least:g} to {most:g}" if most < math.inf else f"of at least {least:g}"
            raise argparse.ArgumentTypeError(f"{text} is not a number {limits}")
        return value

    return read


def _shard(text: str) -> tuple[int, int]:
    """The type of --shard."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text} is not like 3/16, which is the third of 16 shards")
    return int(number), int(count)


# Options of several commands.
_SHARED: dict[str, dict[str, Any]] = {
    "--run": {"type": Path, "metavar": "DIR", "help": "folder of a run, or hf:OWNER/NAME (default: finished last)"},
    "--checkpoint": {
        "type": Path, "metavar": "DIR", "action": "append",
        "help": "folder of a checkpoint, instead of a run's best; several form an ensemble",
    },
    "--device": {"default": "auto", "help": "auto, cpu, cuda, cuda:1 or mps (default: auto)"},
    "--to": {"metavar": "LANGUAGE", "help": "multilingual model: translate into LANGUAGE"},
    "--from": {"dest": "source", "metavar": "LANGUAGE", "help": "multilingual model: translate from LANGUAGE"},
    "--glossary": {"type": Path, "metavar": "FILE", "help": "terms to use, one SOURCE TAB TARGET per line"},
}  # fmt: skip


def _add_shared(parser: argparse._ActionsContainer, *names: str) -> None:
    for name in names:
        parser.add_argument(name, **_SHARED[name])


def parse_translate(words: Sequence[str], prog: str = "dragoman translate") -> argparse.Namespace:
    """Parse the options of translate; `overrides` holds the settings of the search."""
    parser = Parser(
        prog,
        "Translate sentences, a file, standard input line by line, or what you type at a prompt.",
        f"{prog} [SENTENCE ...] [--run DIR] [--input FILE] [OPTION ...]",
    )
    add = parser.add_argument
    add("sentences", nargs="*", metavar="SENTENCE", help="text to translate (none: --input or stdin)")
    _add_shared(parser.add_mutually_exclusive_group(), "--run", "--checkpoint")
    _add_shared(parser, "--device", "--to", "--from", "--glossary")
    add("--input", type=Path, metavar="FILE", help="read lines from FILE instead of standard input")
    add("--output", type=Path, metavar="FILE", help="write to FILE instead of standard output")
    add("--shard", type=_shard, metavar="K/N", help="translate only the K-th of N parts of the lines of --input")
    add("--paragraphs", action="store_true", help="join wrapped lines, as of a mail, to paragraphs")
    add(
        "--markup", choices=("html", "xml", "markdown", "none"),
        help="each argument, or the whole input, is a document with tags; none: take every line of any file as text",
    )  # fmt: skip
    add("--prefix", metavar="TEXT", help="start the translation of every line with TEXT")
    add("--json", action="store_true", help="print scores, tokens, alignment and n-best as JSON lines")
    add("--align", action="store_true", help="show which source word produced each word")
    add("--attention", type=Path, metavar="FILE", help="write an HTML page that shows the attention")
    add("--score", action="store_true", help="score given translations: SOURCE TAB TRANSLATION lines")
    add("--embed", action="store_true", help="print a vector for each line, as JSON, not a translation")
    add("--engine", choices=("auto", "ctranslate2", "torch"), default="auto", help="what searches (default: auto)")
    parsed = parser.parse(words, ["decoding"])
    _refuse_contradictions(parser, parsed)
    return parsed


def _refuse_contradictions(parser: Parser, parsed: argparse.Namespace) -> None:
    """Exit with 2 if options of translate exclude each other."""
    if parsed.sentences and parsed.input:
        parser.error("give only one of sentences and --input")
    if parsed.shard and not parsed.input:
        parser.error("--shard divides the lines of a file: name it with --input")
    of_lines = ("align", "attention", "embed", "json", "score", "prefix")
    markup = parsed.markup if parsed.markup != "none" else None
    for option, value, others, why in (
        ("--align", parsed.align, ("json",), "is for people, and --json for programs"),
        ("--score", parsed.score, ("align", "attention", "prefix", "glossary"), "reads translations"),
        ("--embed", parsed.embed, (*of_lines, "glossary"), "prints vectors"),
        ("--attention", parsed.attention, ("shard",), "shows the first sentences"),
        (f"--markup {markup}", markup, (*of_lines, "paragraphs", "shard"), "translates documents"),
        ("--paragraphs", parsed.paragraphs, (*of_lines, "shard"), "translates documents"),
    ):
        given = [f"--{other}" for other in others if vars(parsed)[other] and f"--{other}" != option]
        if value and given:
            parser.error(f"{option} {why}: leave out {' and '.join(given)}, or {option}")


def parse_evaluate(words: Sequence[str], prog: str = "dragoman evaluate") -> argparse.Namespace:
    """Parse the options of evaluate; `overrides` holds the settings of the search."""
    parser = Parser(
        prog,
        "Translate the test pairs of a run and report the scores: in the terminal, and as JSON, HTML and TSV in the "
        "folder report of the run.",
        f"{prog} [--run DIR] [--data NAME] [OPTION ...]",
    )
    add = parser.add_argument
    _add_shared(parser, "--run", "--checkpoint", "--device", "--to", "--from")
    add("--split", choices=("test", "validation"), default="test", help="pairs of the run to use")
    add("--data", metavar="NAME", help="other pairs: a file, the common prefix of two file names, or sacrebleu:NAME")
    add(
        "--against", type=Path, action="append", default=[], metavar="OTHER",
        help="compare with a run, a report's JSON, or a TSV like a report's; may be given several times",
    )  # fmt: skip
    add("--output", type=Path, metavar="DIR", help="folder of the report (default: RUN/report)")
    add("--json", action="store_true", help="print the report as JSON instead of tables")
    return parser.parse(words, ["decoding"])


def parse_runs(words: Sequence[str], prog: str = "dragoman runs") -> argparse.Namespace:
    """Parse the options of runs."""
    parser = Parser(
        prog,
        "List the runs of a folder with their scores, the one that saved last first. Or compare the runs that are "
        "named: scores, speed, settings that differ, and significance, as a table and a page with their curves.",
        f"{prog} [DIR | RUN RUN ...] [OPTION ...]",
    )
    add = parser.add_argument
    add("runs", nargs="*", type=Path, metavar="DIR", help="a folder of runs (default: runs), or runs to compare")
    add("--pairs", default="test", metavar="NAME", help="compare the reports of this name (default: test)")
    add("--page", type=Path, metavar="FILE", help="where the page goes (default: report/runs.html in the first run)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse(words, [])


def parse_export(words: Sequence[str], prog: str = "dragoman export") -> argparse.Namespace:
    """Parse the options of export. Refuse to overwrite anything but an export, and that only with --replace."""
    parser = Parser(prog, "Write a trained translator in the format of another engine.")
    add = parser.add_argument
    add("--run", type=Path, required=True, metavar="DIR", help="folder of a run, as runs/phrasebook")
    add("--to", required=True, choices=("ctranslate2", "huggingface", "onnx", "argos"), help="the engine")
    add("--quantize", choices=("int8",), help="store each weight in one byte, as the engine does it")
    add("--output", type=Path, metavar="DIR", help="folder to create (default: in RUN/exports)")
    add("--replace", action="store_true", help="replace an existing export")
    parsed = parser.parse(words, [])
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


def parse_push(words: Sequence[str], prog: str = "dragoman push") -> argparse.Namespace:
    """Parse the options of push."""
    about = "Put a run on the Hugging Face hub, where others use it as --run hf:OWNER/NAME."
    parser = Parser(prog, about, f"{prog} OWNER/NAME --run DIR --license ID")
    add = parser.add_argument
    add("repository", metavar="OWNER/NAME", help="name of the repository, which is made if it does not exist")
    add("--run", type=Path, required=True, metavar="DIR", help="folder of a run, as runs/phrasebook")
    add(
        "--license", required=True, metavar="ID",
        help="of the model, as the hub calls it: apache-2.0, mit, cc-by-4.0, other ...; see that of the data",
    )  # fmt: skip
    add("--private", action="store_true", help="make the repository visible to you alone")
    parsed = parser.parse(words, [])
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", parsed.license):
        parser.error(f"--license: {parsed.license} is not an id of the hub, such as apache-2.0: see hf.co/docs/hub")
    return parsed


# The options of serve that set its budgets: option, type, default in `server.limits.Limits`, meaning.
SERVER_BUDGETS = (
    ("--max-bytes", int, 900_000, "bytes of a request"),
    ("--max-work", int, 100_000, "work of a request: its characters and 10 for each line, times the beam size, times 4 "
        "for attention or markup"),
    ("--max-seconds", float, 20, "seconds of computing for a request"),
    ("--max-wait", float, 60, "seconds until a request is answered"),
    ("--max-waiting", int, 200, "requests that wait"),
    ("--max-connections", int, 500, "connections; for a new one, an idle one is closed"),
    ("--max-document-bytes", int, 10_000_000, "bytes of a document"),
    ("--max-document-wait", float, 600, "seconds until a document is translated"),
)  # fmt: skip


def parse_serve(words: Sequence[str], prog: str = "dragoman serve") -> argparse.Namespace:
    """Parse the options of serve; `overrides` holds the settings of the search."""
    parser = Parser(prog, "Translate over HTTP, for a browser and for other programs.", f"{prog} [OPTION ...]")
    add = parser.add_argument
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--run", type=Path, metavar="DIR", action="append", help="folder of a run, or hf:OWNER/NAME; repeatable"
    )
    _add_shared(which, "--checkpoint")
    _add_shared(parser, "--device", "--glossary")
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this computer only)")
    add("--port", type=_number(int, 0, 65535), default=8000, help="port to listen on; 0: any (default: 8000)")
    add(
        "--public-name", action="append", default=[], metavar="NAME",
        help="a host name under which a proxy offers the server; the proxy says who its clients are",
    )  # fmt: skip
    add("--api-key", type=Path, metavar="FILE", help="keys, one a line, of which requests need one")
    add("--rate", type=_number(int, 1), metavar="N", help="requests a minute, for each key or address")
    add("--cors", action="append", default=[], metavar="ORIGIN", help="an origin whose pages may use the API; *: all")
    add("--metrics", action="store_true", help="figures for Prometheus at /metrics")
    for option, kind, default, what in SERVER_BUDGETS:
        text = f"{what} (default: {default:,})"
        add(option, type=_number(kind, 1 if kind is int else 0.01), default=argparse.SUPPRESS, metavar="N", help=text)
    parsed = parser.parse(words, ["decoding"])
    try:
        resources.require("serve", ("fastapi", "uvicorn", "python_multipart", "prometheus_client"), "the server")
    except ConfigError as error:
        parser.error(str(error))
    return parsed


def parse_average(words: Sequence[str], prog: str = "dragoman average") -> argparse.Namespace:
    """Parse the options of average. Refuse an output in which no average may be written."""
    parser = Parser(
        prog,
        "Average the weights of the newest checkpoints of a run into a new checkpoint to translate with.",
    )
    add = parser.add_argument
    add("--run", type=Path, required=True, metavar="DIR", help="folder of a run, as runs/phrasebook")
    add("--last", type=_number(int, 2), default=5, metavar="N", help="how many checkpoints (default: 5)")
    add("--output", type=Path, metavar="DIR", help="folder to create (default: RUN/averaged)")
    parsed = parser.parse(words, [])
    parsed.output = parsed.output or parsed.run / "averaged"
    if parsed.output.resolve().parent.name == "checkpoints":
        parser.error(f"{parsed.output} is where training keeps its own checkpoints: choose a folder outside of it")
    if os.path.lexists(parsed.output) and not (parsed.output / AVERAGED).is_file():
        parser.error(f"{parsed.output} exists and is not an average: choose another --output")
    return parsed
