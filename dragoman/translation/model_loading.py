"""Build models from checkpoints, for everything that needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from dragoman import checkpoint
from dragoman.architectures.build import Model, build_model
from dragoman.architectures.ensemble import Ensemble
from dragoman.device import choose_precision, tune_device
from dragoman.errors import CheckpointError
from dragoman.settings import ModelConfig
from dragoman.tensors import check_shapes, load_unpacked, unpack_weights
from dragoman.translation.loading import SIDES, WEIGHTS, TrainedModel, find_checkpoint, unpack


def load(paths: Sequence[Path], device: torch.device) -> tuple[TrainedModel, checkpoint.Checkpoint]:
    """Load a run or a checkpoint, or several as an ensemble, and return the model and the first checkpoint.

    Raises CheckpointError if one of them cannot be used, or if they do not fit together.
    """
    tune_device(device)
    checkpoints = [find_checkpoint(path) for path in paths]
    first = checkpoints[0]
    tokenizers = [[each.files[f"{side}.tokenizer.json"] for side in SIDES] for each in checkpoints]
    for other, texts in zip(checkpoints, tokenizers, strict=True):
        if texts != tokenizers[0]:
            raise CheckpointError(
                f"{other.path} and {first.path} do not have the same tokenizers: the models of an ensemble must be "
                "trained on the same prepared data."
            )
    dtype = choose_precision("auto", device)
    loaded = [unpack(each) for each in checkpoints]
    shapes = [each.config.model for each in loaded]
    if len({shape.architecture == "encoder-only" and shape.upsampling for shape in shapes}) > 1:
        raise CheckpointError(
            "the models of an ensemble must all write word by word, or all be encoder-only with the same "
            "model.upsampling."
        )
    if len({(each.config.data.lowercase, each.config.data.normalize) for each in loaded}) > 1:
        raise CheckpointError(
            "the models of an ensemble must read the same text, but data.lowercase or data.normalize differs."
        )
    models = [build(each, text) for each, text in zip(checkpoints, loaded, strict=True)]
    model = (models[0] if len(models) == 1 else Ensemble(models)).to(device).eval()
    one = loaded[0]
    # All must have learned what placeholders are.
    training = min((each.config.training for each in loaded), key=lambda training: training.placeholders)
    config = replace(one.config, training=replace(one.config.training, placeholders=training.placeholders))
    return replace(one, weights=lambda: (model, dtype), shapes=shapes, config=config), first


def build(opened: checkpoint.Checkpoint, trained: TrainedModel) -> Model:
    """Build the model of a checkpoint whose text was unpacked. Raises CheckpointError if the weights do not fit."""
    shape, sizes = trained.config.model, (len(trained.source), len(trained.target))
    try:
        tensors = unpack_weights(opened.files[WEIGHTS])
        # First without memory: the settings may say anything, but the weights are no larger than their file.
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
    """Fewer numbers than the weights of a model of this shape have, and more than a fraction of them."""
    layers, times = max(shape.encoder_layers, shape.decoder_layers), shape.upsampling
    widest = shape.d_model * (shape.d_model + shape.d_ff)
    positions = shape.max_positions * shape.d_model if shape.positions == "learned" else 0
    return max(layers * widest, positions, times * shape.d_model**2 if shape.architecture == "encoder-only" else 0)


def load_later(
    opened: checkpoint.Checkpoint, trained: TrainedModel, device: torch.device
) -> tuple[Model | Ensemble, torch.dtype]:
    """Read and build the model of a checkpoint of which only the text was read. Raises CheckpointError."""
    tune_device(device)
    whole = checkpoint.read(opened.path, [WEIGHTS])
    return build(whole, trained).to(device).eval(), choose_precision("auto", device)
