"""The commands that the check and the cleaning print, to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from dragoman import presets, resources, settings
from dragoman.corpora.language_choice import KEYS as LANGUAGES
from dragoman.settings import DEFAULTS, Config


def command_line(config: Config, changes: Mapping[str, Any], name: str = "train", *options: str) -> str:
    """Return the command that does this with the settings of a config and some changes; clean takes those of data."""
    of_preset = set(presets.KEYS) - config.chosen if config.model.preset else set()
    left_out = of_preset | config.unsaid | {"run.name"}
    values = {key: value for key, value in settings.values(config).items() if key not in left_out} | changes
    other_data = values["data.train"] != DEFAULTS["data.train"]
    words = []
    for key, value in values.items():
        given = other_data if key in LANGUAGES else value != DEFAULTS[key]
        if given and (name == "train" or key.startswith("data.")):
            words += [f"--{key}", "null" if value is None else str(value)]
    return " ".join([resources.command(name), *map(shlex.quote, [*words, *options])])
