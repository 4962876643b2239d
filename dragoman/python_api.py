"""Training from Python: `dragoman.train(...)`.

    import dragoman

    translator = dragoman.train("config.yaml", {"run.name": "first", "training.max_steps": 500})
    translator("Where is the station?")

`dragoman.train` is also the module of train.py, which calls `make_callable` for this.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dragoman import command_line, config_file
from dragoman.setting_types import as_word

if TYPE_CHECKING:
    from dragoman.translation.translator import Translator


def train(config: str | Path | None = None, settings: Mapping[str, Any] | None = None) -> Translator:
    """Start the run that these settings describe, or resume it, and return a translator with its best weights.

    Ctrl-C, or the button of a notebook that interrupts a cell, saves and stops the run; the same call resumes it.

    Args:
        config: a config file; by default the config.yaml that comes with the program
        settings: by their dotted names, such as {"data.train": "my/pairs.tsv"}; they overrule the file

    Raises DragomanError: ConfigError for a mistake in the settings, DataError for one in the data, and so on.
    """
    from dragoman import train as module  # imports torch
    from dragoman.translation.translator import Translator

    words = ["--config", str(config)] if config is not None else []
    words += [f"--{key}={as_word(value)}" for key, value in (settings or {}).items()]
    read = command_line.read_settings(words, config_file.DEFAULT)
    module.main(read)
    return Translator(Path(read.run.dir) / read.run.name, read.training.device)


class _TrainModule(ModuleType):
    def __call__(self, *arguments: Any, **named: Any) -> Translator:
        """As `train` here."""
        return train(*arguments, **named)


def make_callable(name: str) -> None:
    """Let the module of this name be called like `train`."""
    sys.modules[name].__class__ = _TrainModule
