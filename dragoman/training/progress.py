"""Where a training stands, when it is over, and how it says so."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman import checkpoint, errors, serialization
from dragoman.settings import Config


@dataclass
class Progress:
    """Where training stands after an update. Saved with each checkpoint, it is all that a resumed run needs to know
    beside the weights and the optimizer: what is random is drawn anew from (seed, step)."""

    step: int = 0  # updates made
    epoch: int = 0  # passes over the data completed
    batches: int = 0  # batches of the current pass that have been used
    seconds: float = 0.0  # spent since training began, over all resumes
    warm_seconds: float = 0.0  # of these, until the warm-up was over
    warm_steps: int = 0  # likewise, updates; 0: it is not over
    best_bleu: float = -1.0  # of a language model: 100 / perplexity
    best_step: int = 0
    worse: int = 0  # validations since the best one
    unvalidated: bool = False  # the validation of this step is still to be made: a signal cut it short, or it is step 0
    validation_seconds: float = 0.0  # that the last validation took
    first_bleu: float = -1.0  # with training.init_from: as `best_bleu`, of that model as it came
    old_bleu: float = -1.0  # likewise, on the test set of the run it came from; -1: not measured
    overflows: int = 0  # updates in a row that float16 has left out
    halved: int = 0  # batches that were cut in two because they did not fit into memory
    # Sums since the last point of the curves:
    smoothed: float = 0.0
    plain: float = 0.0
    norm: float = 0.0
    norms: int = 0  # of so many updates: one whose gradient overflows in float16 has none
    tokens: int = 0
    source_tokens: int = 0
    padding: float = 0.0
    updates: int = 0
    update_seconds: float = 0.0
    data_seconds: float = 0.0

    def reset_sums(self) -> None:
        """Begin the next point of the curves."""
        self.smoothed = self.plain = self.norm = self.padding = self.update_seconds = self.data_seconds = 0.0
        self.tokens = self.source_tokens = self.updates = self.norms = 0


def progress_of(saved: checkpoint.Checkpoint) -> Progress:
    """Where the checkpoint stands. Raises CheckpointError if another version of this program wrote it."""
    try:
        progress = Progress(**serialization.load_json(saved.files["state.json"])["progress"])
        if not all(isinstance(value, int | float) for value in vars(progress).values()):
            raise TypeError("what must be a number is none")
        return progress
    except (KeyError, TypeError) as error:
        raise errors.CheckpointError(
            f"{saved.path}: state.json is that of another version of this program ({error}): go on with that version."
        ) from error


def end(progress: Progress, config: Config) -> str | None:
    """Why training is over, naming the key that would extend it; None if it is not."""
    settings = config.training
    if settings.max_steps is not None and progress.step >= settings.max_steps:
        return f"training.max_steps ({settings.max_steps}) is reached"
    if settings.max_epochs is not None and progress.epoch >= settings.max_epochs:
        return f"training.max_epochs ({settings.max_epochs}) is reached"
    if settings.max_minutes is not None and progress.seconds >= 60 * settings.max_minutes:
        return f"training.max_minutes ({settings.max_minutes:g}) is used up"
    if settings.patience is not None and progress.worse >= settings.patience:
        return f"the score has not improved for training.patience ({settings.patience}) validations"
    return None
