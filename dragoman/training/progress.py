"""How far training has come, and when it ends."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dragoman.checkpoint import Checkpoint
from dragoman.errors import CheckpointError
from dragoman.serialization import load_json
from dragoman.settings import Config
from dragoman.translation.loading import UNSURE


@dataclass
class Progress:
    """How far a training is after an update.

    Saved in each checkpoint. Apart from the weights and the optimizer's state, a resumed run needs nothing else, since
    all randomness is a function of (seed, step).
    """

    step: int = 0  # updates made
    epoch: int = 0  # complete passes over the data
    batches: int = 0  # batches used in the current epoch
    seconds: float = 0.0  # training time over all resumes
    warm_seconds: float = 0.0  # of these, until the end of the warm-up
    warm_steps: int = 0  # updates until the end of the warm-up; 0 while it lasts
    best_bleu: float = -1.0  # of a language model: 100 / perplexity
    best_chrf: float = -1.0  # breaks ties of BLEU; -1: not recorded by an older version
    best_loss: float = 0.0  # of the validation pairs; breaks ties of chrF
    best_step: int = 0
    worse: int = 0  # validations since the best one
    unvalidated: bool = False  # this step still needs its validation: a signal cut it short, or it is step 0
    validation_seconds: float = 0.0  # duration of the last validation
    validations_seconds: float = 0.0  # and of all of them
    first_bleu: float = -1.0  # with training.init_from: as `best_bleu`, for the initial model
    old_bleu: float = -1.0  # likewise, on the test set of the run it came from; -1: not measured
    unsure: float = UNSURE  # nats per token: translations of the last validation that are below it are the worst 2 %
    overflows: int = 0  # consecutive updates that float16 has skipped
    halved: int = 0  # batches split in two because they did not fit in memory
    # Sums since the last point of the curves:
    smoothed: float = 0.0
    plain: float = 0.0
    norm: float = 0.0
    norms: int = 0  # updates in `norm`: those that overflow in float16 have no norm
    tokens: int = 0
    padding: float = 0.0
    updates: int = 0
    update_seconds: float = 0.0
    data_seconds: float = 0.0

    def add_update(self, smoothed: float, plain: float, norm: float, tokens: int, padding: float) -> None:
        """Add the figures of an update to the sums."""
        self.smoothed += smoothed
        self.plain += plain
        if math.isfinite(norm):
            self.norm += norm
            self.norms += 1
        self.tokens += tokens
        self.padding += padding
        self.updates += 1

    def reset_sums(self) -> None:
        """Start the next point of the curves."""
        self.smoothed = self.plain = self.norm = self.padding = self.update_seconds = self.data_seconds = 0.0
        self.tokens = self.updates = self.norms = 0


def progress_of(saved: Checkpoint) -> Progress:
    """Read the progress of a checkpoint. Raises CheckpointError if another version of the program wrote it."""
    try:
        recorded = load_json(saved.files["state.json"])["progress"]
        recorded.pop("source_tokens", None)  # of older versions
        progress = Progress(**recorded)
        if not all(isinstance(value, int | float) for value in vars(progress).values()):
            raise TypeError("a value is not a number")
        return progress
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{saved.path}: state.json was written by another version of this program ({error}): resume with that one."
        ) from error


def end_reason(progress: Progress, config: Config) -> str | None:
    """Why training is over, naming the setting that would extend it; None if it is not over.

    A resumed run may have a lower limit than before: then it is "exceeded".
    """
    settings = config.training
    for name, reached in ("max_steps", progress.step), ("max_epochs", progress.epoch):
        limit = getattr(settings, name)
        if limit is not None and reached >= limit:
            return f"training.{name} ({limit}) is {'reached' if reached == limit else 'exceeded'}"
    if settings.max_minutes is not None and progress.seconds >= 60 * settings.max_minutes:
        return f"training.max_minutes ({settings.max_minutes:g}) is used up"
    if settings.patience is not None and progress.worse >= settings.patience:
        return f"the score has not improved for training.patience ({settings.patience}) validations"
    return None
