"""The state of a training run: what it was given, what it learns, and how far it is.

`train.build_state` builds a `TrainingState`; the functions of this package take it as their first argument.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from dragoman import distributed
from dragoman.architectures.build import Model, build_model
from dragoman.corpora.hiding import Hiding
from dragoman.corpora.preparation import PreparedData
from dragoman.dataset import EncodedPairs
from dragoman.distributed import Ranks
from dragoman.settings import Config
from dragoman.signals import Stop
from dragoman.training import schedule
from dragoman.training.background import Background
from dragoman.training.batches import BatchPlanner
from dragoman.training.progress import Progress
from dragoman.training.tensorboard import Board


@dataclass
class TrainingState:
    """All that a training needs in memory. A checkpoint has `progress`, the weights, the optimizer and the scaler."""

    config: Config
    directory: Path  # of the run
    data: PreparedData
    device: torch.device
    dtype: torch.dtype  # of the matrix products
    ranks: Ranks

    model: Model  # the raw model; under FSDP it holds a shard of each weight
    learner: nn.Module  # model and loss, possibly wrapped by DDP or FSDP; only call it
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler  # does nothing unless dtype is float16

    planner: BatchPlanner
    hiding: Hiding | None  # of words behind placeholders; None: nothing is hidden
    validation: EncodedPairs
    batches_in_epoch: int
    total_steps: int | None  # None if only the clock ends the run

    progress: Progress = field(default_factory=Progress)
    writer: Board | None = None  # on rank 0, while training runs
    saving: Background | None = None  # of a checkpoint that is being written
    train_loss: float = math.nan  # at the last point of the curves
    losses: list[tuple[float, float]] = field(default_factory=list)  # of each validation, and of training before it
    signal: int = 0  # the signal number that asked a rank to stop; 0: none
    warned_of_memory: bool = False
    last_line_time: float = -math.inf  # of the last line of progress in a log file
    _started: float = 0.0  # when the clock was started, less the seconds of earlier processes

    @property
    def is_sharded(self) -> bool:
        """Whether FSDP has sharded the model, so that no rank has all weights."""
        return self.config.training.fsdp and self.ranks.world_size > 1

    def new_model(self) -> Model:
        """A full model of this architecture on the CPU, with random weights."""
        return build_model(self.config.model, len(self.data.source), len(self.data.target))

    @contextmanager
    def final_model(self, device: torch.device) -> Iterator[Model | None]:
        """Context manager: the model with the weights that people will use. All ranks must enter it.

        Under FSDP, rank 0 gets a full copy on `device`, freed afterwards, and the other ranks get None.
        """
        if self.is_sharded:
            weights = distributed.full_model_state(self.model)
            if not self.ranks.is_first:
                yield None
                return
            model = self.new_model()
            model.load_state_dict(weights)
            yield model.to(device)
        else:
            yield self.model

    def should_stop(self, stop: Stop) -> bool:
        """Whether any rank was asked to stop: then all of them stop, after the same update."""
        [self.signal] = map(int, self.ranks.maximum(stop.signal or 0))
        return bool(self.signal)

    def start_clock(self) -> None:
        """Count the time from here on, on top of that of earlier processes."""
        self._started = time.perf_counter() - self.progress.seconds

    def read_clock(self) -> None:
        """Update progress.seconds, to the same value on all ranks."""
        [self.progress.seconds] = self.ranks.maximum(time.perf_counter() - self._started)

    def clock(self) -> schedule.Clock | None:
        """How much of training.max_minutes is used; None if there is no such limit and it did not end the warm-up.

        Validations count, and pauses between two resumes do not.
        """
        minutes, progress = self.config.training.max_minutes, self.progress
        if minutes is None:
            ended_early = 0 < progress.warm_steps < self.config.training.warmup_steps
            return schedule.Clock(0.0, 0.0, progress.warm_steps) if ended_early else None
        return schedule.Clock(
            progress.seconds / 60 / minutes, progress.warm_seconds / 60 / minutes, progress.warm_steps
        )

    def learning_rate(self, step: int) -> float:
        """The learning rate of update `step`."""
        return schedule.learning_rate(step, self.config.training, self.total_steps, self.clock())

    def warmup_progress(self, step: int) -> float:
        """The share of the warm-up that is over at update `step`."""
        return schedule.warmup_progress(step, self.config.training, self.clock())

    def record_warmup(self) -> None:
        """Remember how long the warm-up took: once it is over, it stays over."""
        progress = self.progress
        if not progress.warm_steps:
            progress.warm_seconds = progress.seconds
            if self.warmup_progress(progress.step) >= 1:
                progress.warm_steps = progress.step
