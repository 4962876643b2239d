"""What the check and the cleaning have in common: which data they take, and the commands that they print."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from dragoman import presets, resources, settings
from dragoman.corpora.language_choice import KEYS as LANGUAGES
from dragoman.corpora.sources import parse_mixture
from dragoman.errors import ConfigError, DataError
from dragoman.settings import DEFAULTS, Config, DataConfig


def require_one_corpus(data: DataConfig, command_takes: str) -> None:
    """Raise an error unless the settings name one corpus and one direction; "clean takes" begins the explanation."""
    if data.several:
        raise ConfigError(
            f"data.directions is set, but {command_takes} one direction at a time: set it to null, and "
            "data.source_lang and data.target_lang to one of them."
        )
    if len(parse_mixture(data.train)) > 1:
        raise DataError(f"data.train names several corpora, but {command_takes} one at a time: set it to one.")


def share(count: int, of: int) -> str:
    """Write a share as a percentage."""
    return "< 0.01 %" if 0 < count / max(of, 1) < 0.0001 else f"{100 * count / max(of, 1):.2f} %"


def command_line(config: Config, changes: Mapping[str, Any], name: str = "train", *options: str) -> str:
    """Return the command that does this with the settings of a config and some changes; clean takes those of data."""
    of_preset = set(presets.KEYS) - config.chosen if config.model.preset else set()
    left_out = of_preset | config.left_open | {"run.name"}
    values = {key: value for key, value in settings.values(config).items() if key not in left_out} | dict(changes)
    other_data = values["data.train"] != DEFAULTS["data.train"]
    words = []
    for key, value in values.items():
        given = other_data if key in LANGUAGES else value != DEFAULTS[key]
        if given and (name == "train" or key.startswith("data.")):
            words += [f"--{key}", "null" if value is None else str(value)]
    return " ".join([resources.command(name), *map(shlex.quote, [*words, *options])])
