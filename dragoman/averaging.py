"""Average the weights of several checkpoints of one training run, which often translates better than each of them.

dragoman average --run runs/phrasebook --last 5
dragoman average DIR DIR DIR --output DIR
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from dragoman import config_file, console, resources
from dragoman.checkpoint import Checkpoint, publish, read, read_manifest, step_of, steps, unusable
from dragoman.command_line import AVERAGED
from dragoman.errors import CheckpointError, ConfigError
from dragoman.serialization import json_bytes, sha256_of
from dragoman.tensors import unpack_weights

WEIGHTS = "model.safetensors"
CONFIG = "config.yaml"
TOKENIZERS = ("source.tokenizer.json", "target.tokenizer.json")
TO_RESUME = ("training.pt", "state.json")  # only training needs these


def average(checkpoints: Sequence[Path]) -> tuple[list[int], dict[str, bytes]]:
    """Average the weights of several checkpoints; return their steps, and the files of an average for `publish`.

    Near its end, training circles around a point that is often better than any it visits ("Attention Is All You Need",
    section 6.1). Averaging weights of separate runs is meaningless, but cannot be detected here.

    The files are those of the newest checkpoint without what only training needs, so the result can translate but not
    be resumed; `averaged.json` lists what it was made of. Memory holds one checkpoint at a time and the sum in float64.

    Raises:
        CheckpointError: one is damaged, or they differ in a tokenizer, a model setting, or a tensor's shape.
    """
    assert checkpoints
    traits: dict[str, Any] = {}
    sums: dict[str, Tensor] = {}
    types: dict[str, torch.dtype] = {}
    made_of: list[dict[str, Any]] = []
    # Sorted by step, so that the result does not depend on the order of the arguments.
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
                    f"cannot average {paths[0]} and {path}, because they differ in {trait} "
                    f"({traits.get(trait)!s:.60} and {here.get(trait)!s:.60}): choose checkpoints of one training run."
                )
        for name, tensor in weights.items():
            types[name] = tensor.dtype
            if name not in sums:  # adding the first to zero would turn -0.0 into 0.0
                sums[name] = tensor.double() if tensor.is_floating_point() else tensor
            elif tensor.is_floating_point():
                sums[name] += tensor
        sha256 = found.manifest["files"][WEIGHTS]["sha256"]
        made_of.append({"name": path.resolve().name, "step": found.step, "weights": sha256})
        del weights  # before the next ones are read
    for name, total in sums.items():
        sums[name] = (total / len(paths)).to(types[name]) if total.is_floating_point() else total
    files = {WEIGHTS: safetensors.torch.save(sums), **found.files, AVERAGED: json_bytes({"mean_of": made_of})}
    return [one["step"] for one in made_of], files


def _traits(found: Checkpoint, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """What must be equal in checkpoints that are averaged."""
    try:
        model = asdict(config_file.loads(found.files[CONFIG], found.path / CONFIG).model)
    except ConfigError as error:
        raise unusable(found.path / CONFIG, "is not a configuration of this program") from error
    named = sorted(weights.items())  # safetensors returns them in any order
    return {
        # A resumed run may change its dropout, and neither dropout nor the preset's name affects the shape.
        **{f"model.{key}": value for key, value in model.items() if key != "preset" and "dropout" not in key},
        **{name: sha256_of(found.files[name]) for name in TOKENIZERS},
        **{name: (tuple(tensor.shape), tensor.dtype) for name, tensor in named},
        # Integers, such as counters, cannot be averaged.
        **{f"{name}[:]": tensor.tolist() for name, tensor in named if not tensor.is_floating_point()},
    }


def average_newest(run_dir: Path, last: int) -> tuple[list[int], dict[str, bytes]]:
    """Average the newest `last` checkpoints of a run, or all if there are fewer.

    Raises:
        CheckpointError: as `average` does, if there are fewer than two, and if training has just deleted one.
    """
    root = run_dir / "checkpoints"
    by_step = {step_of(path): path for path in reversed(steps(root))}  # one that is being replaced counts once
    chosen = list(by_step.values())[-last:]
    if len(chosen) < 2:
        raise CheckpointError(
            f"an average takes two checkpoints or more, but {root} holds {len(chosen)}: "
            "choose a run that has saved more, and raise training.keep_last to keep more."
        )
    return average(chosen)


def main(options: argparse.Namespace) -> None:
    """Run `dragoman average`."""
    output = Path(os.path.abspath(options.output))  # "." has no name
    if options.run is None:
        made_of, files = average(options.checkpoints)
    else:
        made_of, files = average_newest(options.run, options.last)
        if len(made_of) < options.last:
            console.warn(
                f"{options.run} holds only {len(made_of)} checkpoints; training.keep_last sets how many to keep"
            )
    publish(output, made_of[-1], files)
    place = shlex.quote(str(options.output))
    evaluate, translate = map(resources.command, ("evaluate", "translate"))
    print(
        f"{options.output} averages the checkpoints of steps {', '.join(map(str, made_of))}; to measure it: "
        f"{evaluate} --checkpoint {place}; to use it: {translate} --checkpoint {place}"
    )
