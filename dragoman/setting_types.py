"""How a setting is declared, checked and read from text; `settings` declares them all.

    lr: float = warned(0.003, above=0)           # a field of a section, a frozen dataclass
    parse_value("training.lr", field, "5e-4")     # 0.0005, or ConfigError

A config file and the command line both hand over text, so a value means the same in both, `5e-4` is a number in
both, and no file can build an object.
"""

from __future__ import annotations

import difflib
import json
import math
import operator
from collections.abc import Collection
from dataclasses import Field, field
from functools import partial
from typing import Any, Literal, NamedTuple, get_args, get_origin

from dragoman.errors import ConfigError

Resume = Literal["free", "warned", "refused"]
NULLS = ("", "~", "null", "none")  # text that unsets a setting
_LIMITS = {"at least": operator.ge, "greater than": operator.gt, "at most": operator.le, "less than": operator.lt}
_WORDS = {"at_least": "at least", "above": "greater than", "at_most": "at most", "below": "less than"}
_NOUNS = {bool: "true or false", int: "a whole number", float: "a number"}


def setting(default: Any, *, resume: Resume, **limits: float) -> Any:
    """Declare a field of a section.

    Args:
        default: its value if the user gives none
        resume: whether a resumed run may change it
        limits: at_least, above, at_most and below
    """
    return field(default=default, metadata={"resume": resume, "limits": {_WORDS[k]: v for k, v in limits.items()}})


# May a run that resumes from a checkpoint change the setting?
free = partial(setting, resume="free")  # yes: it only decides how long, where, or how closely the run is watched
warned = partial(setting, resume="warned")  # yes, with a warning: curves bend, or numbers are no longer comparable
refused = partial(setting, resume="refused")  # no: the weights would not fit, or the data would differ


class Kind(NamedTuple):
    """A declared type, taken apart.

    `int | None` is (int, no choices, optional). A Literal is (str, its choices).
    """

    base: type
    choices: tuple[str, ...]
    optional: bool


def kind_of(declared: Field) -> Kind:
    """Take the type of a declared setting apart."""
    parts = [declared.type] if get_origin(declared.type) is Literal else get_args(declared.type) or [declared.type]
    choices = next((get_args(part) for part in parts if get_origin(part) is Literal), ())
    base = parts[0] if isinstance(parts[0], type) else str
    return Kind(base, choices, type(None) in parts)


def parse_value(key: str, declared: Field, text: str, quoted: bool = False) -> Any:
    """Convert text to the declared type and check it. Quoted text is never null. Raises ConfigError."""
    kind = kind_of(declared)
    if kind.optional and not quoted and text.lower() in NULLS:
        return None
    if text in kind.choices:
        return text
    try:
        # bool("false") is True, so look the two words up.
        value = {"true": True, "false": False}[text.lower()] if kind.base is bool else kind.base(text)
    except (KeyError, ValueError):
        noun = " or ".join([_NOUNS[kind.base], *["null"] * kind.optional])
        remedy = f": write {float(text):.0f}" if kind.base is int and _is_whole(text) else ""
        raise ConfigError(f"{key} is {shown(text)}, but it must be {noun}{remedy}.") from None
    check_value(key, declared, value)
    return value


def _is_whole(text: str) -> bool:
    """Whether a text such as 1e5 or 3.0 is a whole number of at most 15 digits."""
    try:
        return float(text).is_integer() and abs(float(text)) < 1e15
    except ValueError:
        return False


def check_value(key: str, declared: Field, value: Any) -> None:
    """Check a value against the choices and limits of its setting. Raises ConfigError."""
    choices, limits = kind_of(declared).choices, declared.metadata["limits"]
    if value is None or value in choices:
        return
    if choices and isinstance(value, str):
        near = difflib.get_close_matches(value.lower(), choices, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ConfigError(f"{key} is {shown(value)}, but it must be one of {', '.join(choices)}{hint}.")
    if value == "":
        raise ConfigError(f"{key} is empty, but it must be some text.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key} is {value}, but it must be a finite number.")
    if not all(_LIMITS[words](value, bound) for words, bound in limits.items()):
        rule = " and ".join(f"{words} {bound}" for words, bound in limits.items())
        raise ConfigError(f"{key} is {shown(value)}, but it must be {rule}.")


def as_word(value: Any) -> str:
    """Format a value as on the command line."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def shown(value: Any) -> str:
    """Format a value for a message as a config file has it: quoted if needed, shortened to 60 characters."""
    text = as_word(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    if not text:
        return "empty"
    return text if text.isprintable() and " " not in text else repr(text)


# What other toolkits call settings whose names here are not similar.
ELSEWHERE = {
    "batch_size": "training.batch_tokens",
    "dim": "model.d_model",
    "hidden_size": "model.d_model",
    "learning_rate": "training.lr",
    "num_beams": "decoding.beam_size",
    "seq_len": "data.max_length",
    "src": "data.source_lang",
    "tgt": "data.target_lang",
    "time": "training.max_minutes",
}


def did_you_mean(wrong: str, valid: Collection[str], dashes: str = "") -> str:
    """End a message with the valid key that is most similar to a wrong one, in its last part and as a whole."""

    def similarity(a: str, b: str) -> float:
        return difflib.SequenceMatcher(None, a, b).ratio()

    wrong = wrong.lower().replace("-", "_")
    last = wrong.rpartition(".")[2]
    if ELSEWHERE.get(last) in valid:
        return f": did you mean {dashes}{ELSEWHERE[last]}?"
    scores = {key: (similarity(key.rpartition(".")[2], last), similarity(key, wrong)) for key in valid}
    near = [key for key, (in_last, _) in scores.items() if in_last >= 0.6]
    if not near:
        return "; --help lists them all."
    return f": did you mean {dashes}{max(near, key=lambda key: sum(scores[key]))}?"
