"""The mean of several checkpoints of one training."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import yaml
from torch import Tensor

from dragoman import console, resources
from dragoman.checkpoint import (
    Checkpoint,
    folder_identity,
    json_bytes,
    publish,
    read,
    read_manifest,
    sha256_of,
    step_of,
    steps,
    unpack_weights,
    unusable,
)
from dragoman.command_line import AVERAGED
from dragoman.errors import CheckpointError

# ------------------------------------------------------------------------------------------------------ averaging

WEIGHTS = "model.safetensors"
CONFIG = "config.yaml"
TOKENIZERS = ("source.tokenizer.json", "target.tokenizer.json")
TO_RESUME = ("training.pt", "state.json")  # what is of use to training alone


def average(checkpoints: Sequence[Path]) -> tuple[list[int], dict[str, bytes]]:
    """Take the mean of the weights of several checkpoints; return their steps, and the files of one for `publish`.

    Towards its end a training circles around a place that is often better than any at which it was saved ("Attention
    Is All You Need", section 6.1). Weights of separate trainings have no meaningful mean, which nothing here can tell.

    The files are those of the newest, less what only training needs: the result is to translate with, not to resume
    from. `averaged.json` says what it was made of. In memory are one checkpoint at a time and the sum in float64.

    Raises:
        CheckpointError: one is damaged, or they differ in a tokenizer, a setting of the model, or a tensor's shape.
    """
    assert checkpoints
    traits: dict[str, Any] = {}
    sums: dict[str, Tensor] = {}
    types: dict[str, torch.dtype] = {}
    made_of: list[dict[str, Any]] = []
    # In the order of their steps, so that the same ones give the same bytes in whatever order they are named.
    paths = sorted(checkpoints, key=lambda path: read_manifest(path)["step"])
    for path in paths:
        names = [name for name in read_manifest(path)["files"] if name not in TO_RESUME]
        found = read(path, dict.fromkeys([WEIGHTS, CONFIG, *TOKENIZERS, *names]))
        weights = unpack_weights(found.files.pop(WEIGHTS))
        here = _traits(found, weights)
        traits = traits or here
        for trait in [*traits, *here]:
            if traits.get(trait) != here.get(trait):
                raise CheckpointError(
                    f"{paths[0]} and {path} have no mean, for they differ in {trait} ({traits.get(trait)!s:.60} and "
                    f"{here.get(trait)!s:.60}): choose checkpoints of one training."
                )
        for name, tensor in weights.items():
            types[name] = tensor.dtype
            if name not in sums:  # the first is not added to zero, for that would make 0.0 of -0.0
                sums[name] = tensor.double() if tensor.is_floating_point() else tensor
            elif tensor.is_floating_point():
                sums[name] += tensor
        sha256 = found.manifest["files"][WEIGHTS]["sha256"]
        made_of.append({"name": path.resolve().name, "step": found.step, "weights": sha256})
        del weights  # before the next are read
    for name, total in sums.items():
        sums[name] = (total / len(paths)).to(types[name]) if total.is_floating_point() else total
    files = {WEIGHTS: safetensors.torch.save(sums), **found.files, AVERAGED: json_bytes({"mean_of": made_of})}
    return [one["step"] for one in made_of], files


def _traits(found: Checkpoint, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """What has to be equal in checkpoints that are averaged."""
    try:
        model = dict(yaml.safe_load(found.files[CONFIG])["model"])
    except (yaml.YAMLError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise unusable(found.path / CONFIG, "is not a configuration of this program") from error
    named = sorted(weights.items())  # safetensors returns them in any order
    return {
        # A resumed training may have changed its dropout, which shapes nothing; nor does the name of a preset.
        **{f"model.{key}": value for key, value in model.items() if key != "preset" and "dropout" not in key},
        **{name: sha256_of(found.files[name]) for name in TOKENIZERS},
        **{name: (tuple(tensor.shape), tensor.dtype) for name, tensor in named},
        # Counters and the like have no mean.
        **{f"{name}[:]": tensor.tolist() for name, tensor in named if not tensor.is_floating_point()},
    }


def average_newest(run_dir: Path, last: int) -> tuple[list[int], dict[str, bytes]]:
    """Call `average` with the newest checkpoints of a run, `last` of them or as many as there are.

    Raises:
        CheckpointError: as `average` does, and if there are fewer than two.
    """
    root = run_dir / "checkpoints"
    while True:
        by_step = {step_of(path): path for path in reversed(steps(root))}  # one that is being replaced counts once
        chosen = list(by_step.values())[-last:]
        if len(chosen) < 2:
            raise CheckpointError(
                f"an average takes two checkpoints or more, but {root} holds {len(chosen)}: "
                "name the folder of a run that has saved more, and see training.keep_last."
            )
        identities = [folder_identity(path) for path in chosen]
        try:
            return average(chosen)
        except CheckpointError:
            if identities == [folder_identity(path) for path in chosen]:
                raise


# --------------------------------------------------------------------------------------------------- command line


def main(options: argparse.Namespace) -> None:
    """Make the average that the command line asks for."""
    output = Path(os.path.abspath(options.output))  # "." has no name
    if options.run is None:
        made_of, files = average(options.checkpoints)
    else:
        made_of, files = average_newest(options.run, options.last)
        if len(made_of) < options.last:
            console.warn(f"{options.run} holds only {len(made_of)}: training.keep_last is how many a run keeps")
    publish(output, made_of[-1], files)
    place = shlex.quote(str(options.output))
    evaluate, translate = map(resources.command, ("evaluate", "translate"))
    print(
        f"{options.output} is the mean of the checkpoints of steps {', '.join(map(str, made_of))}; to measure it: "
        f"{evaluate} --checkpoint {place}; to use it: {translate} --checkpoint {place}"
    )
