"""Detect whether the corpus or its settings have changed since a run's data were prepared.

An origin is a dictionary: `settings`, every setting that affects the prepared data, `files`, the sha256 of each
file of the corpus, and `downloads`, the address and sha256 of each file that was downloaded. It is saved with the data.
A missing or moved corpus counts as unchanged. Nothing is downloaded to compare it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dragoman.command_line import run_name
from dragoman.corpora.downloads.fetch import read_record
from dragoman.corpora.formats.files import sha256_of_file
from dragoman.corpora.sources import SPLITS, Source, find_entry, list_entries, parse_mixture, setting_name
from dragoman.dataset import Tokenizer
from dragoman.errors import DataChangedError, DataError
from dragoman.setting_types import shown
from dragoman.settings import Config

FORMAT = 2  # of the prepared folder
SIDES = ("source", "target")
LOCATIONS = tuple(f"data.{split}" for split in SPLITS)  # settings that say where the corpus is

Tokenizers = tuple[Tokenizer, Tokenizer]  # of source and target


def origin_of(config: Config, sources: Sequence[Source], tokenizers: Tokenizers | None) -> dict[str, Any]:
    """Describe what data are prepared from. `tokenizers` are given ones, or None if they are trained on the data."""
    origin = {"settings": data_settings(config, tokenizers), "files": file_hashes(sources)}
    downloads = download_addresses(sources)
    return origin | ({"downloads": downloads} if downloads else {})


def data_settings(config: Config, tokenizers: Tokenizers | None) -> dict[str, Any]:
    """Return every setting that affects the prepared data, by name."""
    found: dict[str, Any] = {"format": FORMAT}
    weights = [weight for weight, _ in parse_mixture(config.data.train)]
    if weights != [1.0]:
        found["the weights in data.train"] = weights
    no_effect = {"bleu_tokenize", "check_languages"}
    found |= {f"data.{key}": value for key, value in asdict(config.data).items() if key not in no_effect}
    if tokenizers is None:
        return found | {f"tokenizer.{key}": value for key, value in asdict(config.tokenizer).items()}
    return found | {f"{side} tokenizer": each.fingerprint for side, each in zip(SIDES, tokenizers, strict=True)}


def file_hashes(sources: Sequence[Source]) -> dict[str, str]:
    """Return the sha256 of every file, keyed by setting and path relative to the parent folder of its source.

    Data sets of the hub have no files here; data.revision pins them.
    """
    return {
        f"{source.setting}: {os.path.relpath(path, Path(source.path).parent)}": sha256
        for source in map(with_hashes, sources)
        for path, sha256 in source.hashes.items()
    }


def with_hashes(source: Source) -> Source:
    """Hash the files of a source, if that is not done yet. Preparing it raises DataError if they change meanwhile."""
    return source if source.hashes else replace(source, hashes={path: sha256_of_file(path) for path in source.files})


def download_addresses(sources: Sequence[Source]) -> dict[str, dict[str, str]]:
    """Return the address and sha256 of each file that this program downloaded, keyed by setting and file name."""
    found = {}
    for source in sources:
        for path in source.downloads:
            if (record := read_record(path)) and record.url:
                found[f"{source.setting}: {path.name}"] = {"url": record.url, "sha256": record.sha256}
    return found


def check_unchanged(
    saved_origin: dict[str, Any], config: Config, say: Callable[[str], None], tokenizers: Tokenizers | None
) -> None:
    """Raise DataChangedError if data with the origin `saved_origin` were prepared from something else.

    A new location must hold the very same files. A data set on the hub cannot be recognised under another name.
    """
    # A setting newer than the data had the effect of its default.
    defaults = {key: value for key, value in data_settings(Config(), None).items() if key.startswith("data.")}
    before, after = defaults | saved_origin["settings"], data_settings(config, tokenizers)
    changed_settings = [key for key in before | after if before.get(key) != after.get(key)]
    moved = [key for key in changed_settings if key in LOCATIONS]
    now: dict[str, str] = {}
    for entry in list_entries(config.data):
        try:
            now |= file_hashes(find_entry(entry, config.data, download=False))
        except DataError as error:
            if moved:
                raise
            say(f"{error} Continuing with the data prepared from it.")
            setting = setting_name(entry.split, entry.number)
            now |= {name: sha256 for name, sha256 in saved_origin["files"].items() if name.startswith(f"{setting}: ")}
    old, new = _by_lasting_name(saved_origin["files"]), _by_lasting_name(now)
    changed_files = [
        old.get(name) or new[name]
        for name in old | new
        if saved_origin["files"].get(old.get(name, "")) != now.get(new.get(name, ""))
    ]
    if not changed_files:
        for key in [key for key in moved if has_only_moved(key, before[key], after[key], now)]:
            say(f"{key} was {before[key]} and is {after[key]}: the same files in another place")
            changed_settings.remove(key)
    changes = [f"{key} was {shown(before.get(key))} and is {shown(after.get(key))}" for key in changed_settings]
    changes += [f"{name} is not the same file" for name in changed_files]
    if changes:
        raise DataChangedError(
            f"this run was prepared from other data ({'; '.join(changes)}): change that back, or train "
            f"under a new run.name, such as --run.name {run_name(config.data.train)}."
        )


def _by_lasting_name(files: dict[str, str]) -> dict[str, str]:
    """Return the names of `file_hashes`, each keyed by the part of it that survives moving or renaming the corpus."""
    found = {}
    for name in files:
        setting, _, path = name.partition(": ")
        _, *inside = Path(path).parts
        found[f"{setting}: {'/'.join(inside) or Path(path).suffix}"] = name
    return found


def has_only_moved(key: str, before: str, after: str, files: dict[str, str]) -> bool:
    """Whether each location in a setting is the same as before, or consists of `files`, whose hashes are known."""
    names = [[name for _, name in parse_mixture(text)] if key == "data.train" else [text] for text in (before, after)]
    if len(names[0]) != len(names[1]):
        return False
    settings = [setting_name(key.removeprefix("data."), number) for number in range(1, len(names[0]) + 1)]
    return all(
        one == other or any(name.startswith(f"{setting}: ") for name in files)
        for setting, one, other in zip(settings, *names, strict=True)
    )
