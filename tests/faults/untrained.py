"""Untrained runs, made in a moment, for tests that need a checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch

from conftest import tiny_config
from dragoman import checkpoint, serialization, train
from dragoman.console import say
from dragoman.corpora.preparation import prepare_run
from dragoman.settings import Config
from dragoman.training import saving


def directory(config: Config) -> Path:
    """The folder of a run."""
    return Path(config.run.dir) / config.run.name


def begin(config: Config) -> Path:
    """Prepare the data of a run and save a first checkpoint with its initial weights."""
    folder = directory(config)
    data = prepare_run(config, folder / "data", has_checkpoint=False, say=say)
    state = train.build_state(config, folder, data, torch.device("cpu"), torch.float32)
    state.start_clock()
    state.progress.step = 1
    saving.save(state)
    return folder


def run(folder: Path, **settings: object) -> Path:
    """A run that can translate and be resumed, with the settings of `tiny_config`."""
    return begin(tiny_config(folder, **settings))


def newest(folder: Path) -> Path:
    """The folder of a run's newest checkpoint."""
    return checkpoint.steps(folder / "checkpoints")[0]


def forge(step: Path, files: Mapping[str, bytes]) -> None:
    """Replace files of a checkpoint and make the manifest agree: hashes do not stop a forger."""
    manifest = json.loads((step / checkpoint.MANIFEST).read_bytes())
    for name, data in files.items():
        (step / name).write_bytes(data)
        manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest.pop("sha256")
    seal = hashlib.sha256(serialization.json_bytes(manifest)).hexdigest()
    (step / checkpoint.MANIFEST).write_bytes(serialization.json_bytes({**manifest, "sha256": seal}))
