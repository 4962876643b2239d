"""Prepare the data of a run ahead of its training, on all cores and, under torchrun, on all machines.

    dragoman prepare --config config.yaml                # then: python train.py --config config.yaml
    torchrun ... -m dragoman prepare --config config.yaml

Training does the same work before its first step, in one process, while the GPUs wait. It finds what this command has
made, and starts at once. The files are the same, bit for bit, for any number of processes and ranks. A command that is
stopped or killed continues with what is missing. The ranks need a file system that all of them share.

Exit codes: those of train.py.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman import config_file, processes, resources, run_lock
from dragoman.console import say
from dragoman.corpora.crew import Crew
from dragoman.corpora.language_choice import check_languages, with_languages
from dragoman.corpora.origin import Tokenizers
from dragoman.corpora.preparation import prepare_run, prepared_preset
from dragoman.corpora.sources import Source, find_sources, unit_name
from dragoman.settings import Config, values, with_preset, with_values
from dragoman.storage import replace_durably

if TYPE_CHECKING:
    from dragoman.distributed import Ranks


def main(options: argparse.Namespace) -> None:
    """Prepare the data of a run, as one of several ranks or alone."""
    # Torch takes as long to import as some thousand pairs to prepare, and only some of this needs it.
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        prepare(options.config, options.processes or processes.cores(), None)
        return
    import torch

    from dragoman.distributed import Ranks, process_group

    ranks = Ranks.from_environment()
    share = processes.cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    with process_group(ranks, torch.device("cpu")):
        prepare(options.config, options.processes or max(1, share), ranks)


def prepare(config: Config, count: int, ranks: Ranks | None) -> None:
    """Prepare the data of a run in `count` processes on each rank."""
    directory = Path(config.run.dir) / config.run.name
    with Crew(count, ranks) as crew:
        config = with_languages(config, say if crew.is_first else lambda choice: None)
        sources = find_sources(config.data)
        config = with_values(config, crew.broadcast(values(_with_preset(config, sources) if crew.is_first else config)))
        if crew.is_first:
            check_languages(config.data, sources)
        tokenizers = _tokenizers(config)
        with run_lock.lock(directory) if crew.is_first else nullcontext():
            has_checkpoint = any((directory / "checkpoints").glob("*"))
            data = prepare_run(config, directory / "data", has_checkpoint, say, tokenizers, sources, crew)
            if crew.is_first and not has_checkpoint:  # so that training knows the preset
                replace_durably(directory / "config.yaml", config_file.dump(config).encode())
    ready = f"{len(data.train):,} {unit_name(config.data)}s are ready in {directory / 'data'}"
    say(f"{ready}: {resources.command('train')} with the same settings starts at once")


def _with_preset(config: Config, sources: Sequence[Source]) -> Config:
    """Choose the preset as training does, for its tokenizers."""
    name = prepared_preset(config) or config.model.preset
    if name != "auto":
        return config if name == config.model.preset else with_preset(config, str(name))
    from dragoman.device import DTYPES, choose_device, tune_device
    from dragoman.training import planning, starting

    device = choose_device(config.training.device)
    tune_device(device)
    dtype = DTYPES[starting.precision(config, device, None)]
    speed = partial(planning.target_tokens_per_second, device=device, dtype=dtype, ranks=config.training.ranks)
    config, name, reason = starting.automatic_preset(config, device, speed, sources)
    say(f"model.preset {name}{reason}")
    return with_values(config, {"model.preset": name})


def _tokenizers(config: Config) -> Tokenizers | None:
    """The tokenizers of the model that training.init_from names."""
    if not config.training.init_from:
        return None
    from dragoman.training import starting

    other = starting.other_model(config, None)
    return (other.source, other.target) if other else None
