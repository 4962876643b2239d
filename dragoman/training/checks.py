"""Check a new training against its settings: lengths that the model cannot handle, settings without effect."""

from __future__ import annotations

from dragoman import dataset
from dragoman.console import say
from dragoman.corpora.preparation import PreparedData
from dragoman.corpora.selection import fits_upsampling
from dragoman.corpora.sources import unit_name
from dragoman.dataset import EncodedPairs
from dragoman.errors import DataError
from dragoman.settings import Config
from dragoman.training.state import TrainingState


def check_lengths(config: Config, data: PreparedData, validation: EncodedPairs) -> None:
    """Warn about pairs that do not fit the model.

    Training pairs are within data.max_length, those of validation and test may be longer. Raises DataError if one needs
    more than model.max_positions, or if no target fits an encoder-only model.
    """
    settings = config.model
    if settings.positions != "learned" and settings.architecture != "encoder-only":
        return
    test = dataset.encode_pairs(data.test, data.source, data.target)
    for split, pairs in (("training", data.train), ("validation", validation), ("test", test)):
        if not len(pairs):
            continue
        if settings.positions == "learned" and split != "training":
            _check_positions(config, split, pairs)
        if settings.architecture == "encoder-only":
            _check_room(split, pairs, settings.upsampling)


def _check_positions(config: Config, split: str, pairs: EncodedPairs) -> None:
    settings, unit = config.model, unit_name(config.data)
    longest = max(settings.positions_of(*map(int, lengths)) for lengths in zip(*pairs.lengths, strict=True))
    if longest > settings.max_positions:
        raise DataError(
            f"the longest {split} {unit} needs {longest} positions, but model.max_positions is "
            f"{settings.max_positions}: raise it, or remove such {unit}s."
        )


def _check_room(split: str, pairs: EncodedPairs, upsampling: int) -> None:
    too_long = int((~fits_upsampling(pairs, upsampling)).sum())
    if too_long == len(pairs):
        raise DataError(
            f"in every one of the {split} pairs the target is longer than model.upsampling ({upsampling}) allows: "
            "raise it."
        )
    if too_long:
        say(
            f"warning: in {too_long:,} of {len(pairs):,} {split} pairs the target is longer than model.upsampling "
            f"({upsampling}) allows: the model learns nothing from them, and their loss counts as 0"
        )


def describe_training(state: TrainingState) -> None:
    """Print the size of the training, and warn of settings that do not suit it."""
    settings, steps = state.config.training, state.total_steps
    parameters = sum(p.numel() for p in state.model.parameters())
    say(
        f"{parameters:,} parameters; {state.batches_in_epoch:,} batches per epoch"
        + (f", {steps:,} steps in all" if steps else "")
    )
    follows_clock = settings.max_minutes and settings.schedule in ("linear", "cosine")
    if steps and settings.warmup_steps > steps / 2 and not follows_clock:
        limit = "max_steps" if steps == settings.max_steps else "max_epochs"
        say(
            f"warning: training.warmup_steps is {settings.warmup_steps}, but there are only {steps} steps: the "
            f"learning rate will not reach its peak, or will not come down. Lower it, or raise training.{limit}."
        )
    if settings.decay_share < 1 and settings.schedule in ("inverse_sqrt", "constant"):
        say(f"warning: training.decay_share has no effect: the schedule {settings.schedule} has no end")
    if settings.fsdp and not state.is_sharded:
        say("warning: training.fsdp has no effect: there is only one rank, which holds all weights")
    if state.config.data.temperature > 1 and len(state.config.data.several) < 2:
        say("warning: data.temperature has no effect: there is only one direction")
    if steps and settings.validate_every > steps:
        say(
            f"warning: training.validate_every is {settings.validate_every}, but there are only {steps} steps: the "
            "only validation will be at the end."
        )
