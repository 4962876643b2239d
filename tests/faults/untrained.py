"""A run as training leaves it, made in a moment because nothing is learnt: for faults that need a checkpoint."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import torch

from conftest import tiny_config
from dragoman import checkpoint, serialization, train
from dragoman.settings import Config
from dragoman.training import starting


def directory(config: Config) -> Path:
    """The folder of a run."""
    return Path(config.run.dir) / config.run.name


def begin(config: Config) -> Path:
    """Prepare the data of a run and save its first checkpoint, with the weights that training would begin with."""
    folder = directory(config)
    data = starting.prepare(config, folder / "data", begun=False)
    training = train.Training(config, folder, data, torch.device("cpu"), torch.float32)
    training.writer = SimpleNamespace(flush=lambda: None)  # type: ignore[assignment]
    training.begun = time.perf_counter()
    training.progress.step = 1
    training.save()
    return folder


def run(folder: Path, **settings: object) -> Path:
    """A run of words, or with any settings of `tiny_config`, which can translate and be resumed."""
    return begin(tiny_config(folder, **settings))


def newest(folder: Path) -> Path:
    """The folder of a run's newest checkpoint."""
    return checkpoint.steps(folder / "checkpoints")[0]


def forge(step: Path, files: Mapping[str, bytes]) -> None:
    """Replace files of a checkpoint, and its manifest by one that agrees with them: hashes keep out no forger."""
    manifest = json.loads((step / checkpoint.MANIFEST).read_bytes())
    for name, data in files.items():
        (step / name).write_bytes(data)
        manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest.pop("sha256")
    seal = hashlib.sha256(serialization.json_bytes(manifest)).hexdigest()
    (step / checkpoint.MANIFEST).write_bytes(serialization.json_bytes({**manifest, "sha256": seal}))
