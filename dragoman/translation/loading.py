"""Find and load the checkpoint to translate with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dragoman import checkpoint, config_file, console, errors, resources, serialization
from dragoman.architectures.build import build_model
from dragoman.architectures.protocol import Model
from dragoman.corpora.sentence_splitting import LineStatistics
from dragoman.dataset import Tokenizer
from dragoman.settings import Config

SIDES = ("source", "target")
BUNDLE = ("config.yaml", "model.safetensors", *(f"{side}.tokenizer.json" for side in SIDES), "trained_on.json")


def line_statistics(side: Mapping[str, Any]) -> LineStatistics:
    """What the report on the source side of the training pairs says of its lines."""
    return LineStatistics(math.ceil(side["percentile_99"]), side["longest"], side["sentences"])


def unpack(found: checkpoint.Checkpoint) -> tuple[Model, Config, Tokenizer, Tokenizer, LineStatistics]:
    """What a checkpoint holds, all of it or nothing. CheckpointError if a part of it is not what it should be."""
    try:
        source, target = (Tokenizer.from_json(found.files[f"{side}.tokenizer.json"].decode()) for side in SIDES)
        settings = config_file.loads(found.files["config.yaml"], found.path / "config.yaml")
        trained = line_statistics(serialization.load_json(found.files["trained_on.json"])["sides"][0])
        with _Blank():
            model = build_model(settings.model, len(source), len(target))
        serialization.load_weights(model, found.files["model.safetensors"])
    except (errors.CheckpointError, ValueError, LookupError, TypeError) as error:  # ConfigError is a ValueError
        raise errors.CheckpointError(f"{found.path} cannot be used: {error}") from error
    return model, settings, source, target, trained


class _Blank(TorchFunctionMode):
    """Within, fresh weights are left as they lie in memory: those of a checkpoint, none of which may lack, follow.

    To draw them would take 10 ms for the phrasebook's model, and half a second for one of 60 million weights.
    """

    DRAWING = (nn.init.kaiming_uniform_, nn.init.uniform_, nn.init.normal_, Tensor.uniform_, Tensor.normal_)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function of torch, unless it draws."""
        given = kwargs or {}
        if func in self.DRAWING:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


# ------------------------------------------------------------------------------------------------- finding a checkpoint


def find_checkpoint(path: Path) -> checkpoint.Checkpoint:
    """Read what a translator needs from a run's best checkpoint, from its newest if none is best, or from path itself.

    Raises CheckpointError that says what is there instead.
    """
    if (path / checkpoint.MANIFEST).exists():
        return checkpoint.read(path, only=BUNDLE)
    root = path / "checkpoints"
    best = checkpoint.get_best(root)
    if best is not None:
        try:
            return checkpoint.read(checkpoint.step_directory(root, best["step"]), only=BUNDLE)
        except errors.CheckpointError as error:
            console.warn(str(error))
    found = checkpoint.newest(root, quarantine=False, warn=console.warn, only=BUNDLE)
    if found is None:
        raise errors.CheckpointError(f"{path} holds no checkpoint: {_what_exists(path)}")
    return found


def newest_run(folder: Path = Path("runs")) -> Path:
    """The run in folder (or, if there is none, in that folder beside this program) that saved a checkpoint last."""
    for place in (folder, resources.HOME / folder):
        checkpoints = [path for path in place.glob("*/checkpoints/step-*") if path.is_dir()]
        if checkpoints:
            return max(checkpoints, key=lambda path: path.stat().st_mtime).parents[1]
    raise errors.CheckpointError(
        f"there is no trained model in {folder.absolute()}: train one with {resources.command('train')}, or name one with --run."
    )


def _what_exists(path: Path) -> str:
    """What a user who named a wrong folder may have meant."""
    place = path.parent if path.parent.is_dir() else Path("runs")
    names = sorted(str(other) for other in place.glob("*") if (other / "checkpoints").is_dir() or "step-" in other.name)
    return f"choose one of {', '.join(names)}." if names else f"train one first, with {resources.command('train')}."
