"""Build models from checkpoints, for everything that needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from dragoman.architectures.build import Model, build_model
from dragoman.architectures.ensemble import Ensemble
from dragoman.checkpoint import Checkpoint, read
from dragoman.device import choose_precision, tune_device
from dragoman.errors import CheckpointError
from dragoman.settings import ModelConfig
from dragoman.tensors import check_shapes, load_unpacked, unpack_weights
from dragoman.translation.loading import WEIGHTS, TrainedModel, open_all


def load(paths: Sequence[Path], device: torch.device) -> tuple[TrainedModel, list[Checkpoint]]:
    """Load a run or a checkpoint, or several as an ensemble, and return the model and the checkpoints.

    Raises CheckpointError if one of them cannot be used, or if they do not fit together.
    """
    trained, checkpoints = open_all(paths)
    built = build_all(checkpoints, trained, device)
    return replace(trained, weights=lambda: built), checkpoints


def build_all(
    checkpoints: Sequence[Checkpoint], trained: TrainedModel, device: torch.device
) -> tuple[Model | Ensemble, torch.dtype]:
    """Build the model or the ensemble of checkpoints opened by `open_all`, and choose the dtype of a forward pass.

    Weights that were not opened are read now. Raises CheckpointError.
    """
    tune_device(device)
    sizes = len(trained.source), len(trained.target)
    models = [build(opened, shape, sizes) for opened, shape in zip(checkpoints, trained.shapes, strict=True)]
    model = models[0] if len(models) == 1 else Ensemble(models)
    return model.to(device).eval(), choose_precision("auto", device)


def build(opened: Checkpoint, shape: ModelConfig, sizes: tuple[int, int]) -> Model:
    """Build the model of a checkpoint for vocabularies of these sizes. Raises CheckpointError if it is unusable."""
    try:
        weights = opened.files[WEIGHTS] if WEIGHTS in opened.files else read(opened.path, [WEIGHTS]).files[WEIGHTS]
        tensors = unpack_weights(weights)
        # Check the shapes on the meta device first: forged settings could ask for any amount of memory.
        if shape.encoder_layers + shape.decoder_layers > len(tensors):
            raise CheckpointError("its settings have more layers than there are weights")
        if _least(shape) > sum(tensor.numel() for tensor in tensors.values()):
            with torch.device("meta"):  # imports for a second
                check_shapes(build_model(shape, *sizes), tensors)
        model = build_model(shape, *sizes)
        load_unpacked(model, tensors)
    except MemoryError as error:
        raise CheckpointError(f"{opened.path} does not fit into the memory of this machine.") from error
    # ConfigError is a ValueError, and torch raises RuntimeError for impossible shapes and for too little memory.
    except (RuntimeError, ValueError, LookupError, TypeError, OverflowError) as error:
        raise CheckpointError(f"{opened.path} cannot be used: {error}") from error
    return model


def _least(shape: ModelConfig) -> int:
    """A lower bound of the number of weights of a model of this shape."""
    layers, times = max(shape.encoder_layers, shape.decoder_layers), shape.upsampling
    widest = shape.d_model * (shape.d_model + shape.d_ff)
    positions = shape.max_positions * shape.d_model if shape.positions == "learned" else 0
    return max(layers * widest, positions, times * shape.d_model**2 if shape.architecture == "encoder-only" else 0)
