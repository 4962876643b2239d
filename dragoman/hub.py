"""Runs on the Hugging Face hub: `hf:owner/name`, or `hf:owner/name@revision`, wherever a run is named.

    local("hf:anna/phrasebook")         # the folder of the run, downloaded the first time
    local("runs/phrasebook")            # itself

Only files of a checkpoint are downloaded, by names that cannot lead out of the folder: weights as safetensors, JSON and
the config file. They pass the same checks as every checkpoint, and nothing in them can run. Without a network, what was
downloaded before is used.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from dragoman.errors import CheckpointError
from dragoman.storage import atomic_folder

PREFIX = "hf:"
RUN = "dragoman"  # the folder of the run in a repository
NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
WANTED = re.compile(
    rf"{RUN}/(?:config\.yaml|result\.json|checkpoints/step-\d{{8,12}}/[A-Za-z0-9_][\w.-]*\.(?:json|yaml|safetensors))",
    re.ASCII,
)
LARGEST = 2**36  # bytes of a run


def resolve(options: argparse.Namespace) -> None:
    """Put folders in the place of the names of runs on the hub. Raises CheckpointError."""
    for name in ("run", "runs", "checkpoint", "against"):
        value = getattr(options, name, None)
        if value:
            setattr(options, name, list(map(local, value)) if isinstance(value, list) else local(value))


def local(path: str | Path) -> Path:
    """The folder of a run. Raises CheckpointError for one on the hub that cannot be had."""
    name = str(path)
    if not name.startswith(PREFIX):
        return Path(path)
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    if not NAME.fullmatch(repository):
        raise CheckpointError(f"{name} is not a run on the hub: write hf:owner/name, or hf:owner/name@revision.")
    from huggingface_hub.errors import HfHubHTTPError

    cache = user_cache_path("dragoman", appauthor=False) / "hub"
    stem = repository.replace("/", "--")
    try:
        folder = _downloaded(name, repository, revision or None, cache, stem)
    except Exception as error:
        if is_of_network(error):
            before = sorted(cache.glob(f"{stem}--{revision}*"), key=lambda each: each.stat().st_mtime)
            if not before:
                raise CheckpointError(f"{name} was not downloaded before, and the hub cannot be reached.") from None
            return before[-1] / RUN
        if not isinstance(error, HfHubHTTPError):
            raise
        raise CheckpointError(f"{name} cannot be downloaded: {' '.join(str(error).split())[:200]}") from None
    return folder / RUN


def _downloaded(name: str, repository: str, revision: str | None, cache: Path, stem: str) -> Path:
    """Download a repository, unless its commit is there. Raises CheckpointError and what huggingface_hub raises."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    info: Any = HfApi().model_info(repository, revision=revision, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings if WANTED.fullmatch(file.rfilename)}
    if not sizes:
        raise CheckpointError(f"{name} has no run of Dragoman: its folder {RUN} is missing.")
    if sum(sizes.values()) > LARGEST:
        raise CheckpointError(f"{name} has {sum(sizes.values()):,} bytes, but a run may have {LARGEST:,}.")
    folder = cache / f"{stem}--{info.sha}"
    if not folder.exists():
        if not sys.stderr.isatty():
            disable_progress_bars()
        cache.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as made:
            snapshot_download(repository, revision=info.sha, local_dir=made, allow_patterns=list(sizes))
            shutil.rmtree(made / ".cache", ignore_errors=True)  # notes of huggingface_hub
    return folder


def is_of_network(error: Exception) -> bool:
    """Whether the hub could not be reached. huggingface_hub passes on the errors of one or the other HTTP library."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in ("httpx", "httpx2")
