"""Average the weights of several checkpoints of one training run, which often translates better than each of them.

dragoman average --run runs/phrasebook --last 5
"""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from dragoman import console, resources
from dragoman.checkpoint import publish, read, read_manifest, step_of, steps
from dragoman.command_line import AVERAGED
from dragoman.errors import CheckpointError
from dragoman.serialization import json_bytes
from dragoman.tensors import unpack_weights

WEIGHTS = "model.safetensors"
TO_RESUME = ("training.pt", "state.json")  # only training needs these


def average(run_dir: Path, last: int) -> tuple[list[int], dict[str, bytes]]:
    """Average the newest `last` checkpoints of a run; return their steps, and the files of an average for `publish`.

    Near the end of training, the weights oscillate around a better point ("Attention Is All You Need", section 6.1).
    If there are fewer checkpoints, all are averaged.

    The files are those of the newest checkpoint without what only training needs, so the result can translate but not
    be resumed; `averaged.json` lists what it was made of. Memory holds one checkpoint at a time and the sum in float64.

    Raises:
        CheckpointError: there are fewer than two, they differ, one is damaged, or training has just deleted one.
    """
    root = run_dir / "checkpoints"
    by_step = {step_of(path): path for path in reversed(steps(root))}  # one that is being replaced counts once
    paths = list(by_step.values())[-last:]
    if len(paths) < 2:
        raise CheckpointError(
            f"an average takes two checkpoints or more, but {root} holds {len(paths)}: "
            "choose a run that has saved more, and raise training.keep_last to keep more."
        )
    sums: dict[str, Tensor] = {}
    shapes: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    made_of: list[dict[str, Any]] = []
    for path in paths:
        names = [name for name in read_manifest(path)["files"] if name not in TO_RESUME]
        saved = read(path, dict.fromkeys([WEIGHTS, *names]))
        weights, files = unpack_weights(saved.files[WEIGHTS]), saved.files
        own_shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()}
        shapes = shapes or own_shapes
        if own_shapes != shapes:
            raise CheckpointError(
                f"cannot average {paths[0]} and {path}, because their weights have other names, shapes or types: "
                "average checkpoints of one training run."
            )
        for name, tensor in weights.items():
            if name not in sums:  # adding the first to zero would turn -0.0 into 0.0
                sums[name] = tensor.double()
            else:
                sums[name] += tensor
        sha256 = saved.manifest["files"][WEIGHTS]["sha256"]
        made_of.append({"name": path.name, "step": saved.step, "weights": sha256})
        del weights  # before the next ones are read
    means = {name: (total / len(paths)).to(shapes[name][1]) for name, total in sums.items()}
    files |= {WEIGHTS: safetensors.torch.save(means), AVERAGED: json_bytes({"mean_of": made_of})}
    return [one["step"] for one in made_of], files


def main(options: argparse.Namespace) -> None:
    """Run `dragoman average`."""
    output = Path(os.path.abspath(options.output))  # "." has no name
    made_of, files = average(options.run, options.last)
    if len(made_of) < options.last:
        console.warn(f"{options.run} holds only {len(made_of)} checkpoints; training.keep_last sets how many to keep")
    publish(output, made_of[-1], files)
    place = shlex.quote(str(options.output))
    evaluate, translate = map(resources.command, ("evaluate", "translate"))
    print(
        f"{options.output} averages the checkpoints of steps {', '.join(map(str, made_of))}; to measure it: "
        f"{evaluate} --checkpoint {place}; to use it: {translate} --checkpoint {place}"
    )
