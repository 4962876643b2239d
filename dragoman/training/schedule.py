"""The learning rate, a pure function of the step and the clock."""

from __future__ import annotations

import math
from typing import NamedTuple

from dragoman.settings import TrainingConfig

WARMUP_SHARE = 0.1  # of the time limit, at most, for the warm-up
MIN_WARMUP_STEPS = 20  # before the clock may end the warm-up: the time may have been spent on a validation


class Clock(NamedTuple):
    """How much of training.max_minutes a run has used."""

    spent: float  # share of the time used
    warm: float = 0.0  # share used when the warm-up ended
    warm_steps: int = 0  # updates of the warm-up; 0 while it lasts


def total_steps(settings: TrainingConfig, batches_in_epoch: int) -> int | None:
    """The updates of a whole run; None if only the clock ends it."""
    limits = [settings.max_steps] if settings.max_steps else []
    if settings.max_epochs:
        limits.append(settings.max_epochs * math.ceil(batches_in_epoch / settings.accumulate))
    return min(limits, default=None)


def warmup_progress(step: int, settings: TrainingConfig, clock: Clock | None = None) -> float:
    """The share of the warm-up that is over at update `step`; 1 or more after its end.

    Nobody knows beforehand how many updates a time limit allows. Schedules that fall with the clock also rise with it,
    so the warm-up never takes more than a tenth of the time. Once over, it stays over, whatever changes later.
    """
    by_steps = step / settings.warmup_steps if settings.warmup_steps else math.inf
    if clock is None:
        return by_steps
    follows_clock = settings.schedule in ("linear", "cosine")
    by_clock = min(clock.spent / WARMUP_SHARE, step / MIN_WARMUP_STEPS) if follows_clock else 0.0
    return max(by_steps, float(clock.warm_steps > 0), by_clock)


def learning_rate(step: int, settings: TrainingConfig, total_steps: int | None, clock: Clock | None = None) -> float:
    """The learning rate of update `step` (the first is 1), at most training.lr.

    All schedules rise linearly over warmup_steps. Then
        inverse_sqrt  falls with 1/√step, as in the paper (section 5.3), and never ends;
        linear        falls linearly to zero at the end;
        cosine        falls along half a cosine to zero at the end;
        constant      stays.
    With decay_share below 1, linear and cosine stay at the peak until that share of the updates after the warm-up is
    left: warmup-stable-decay (Hu et al. 2024, "MiniCPM").

    The end comes after total_steps or when the clock runs out, whichever is nearer. The clock may also end the warm-up
    early, see `warmup_progress`. Raises ValueError if the schedule needs an end and has none.
    """
    warmup = settings.warmup_steps
    if (warm := warmup_progress(step, settings, clock)) < 1:
        return settings.lr * warm
    match settings.schedule:
        case "inverse_sqrt":
            return settings.lr * math.sqrt(min(1.0, warmup / step))  # the clock may have ended the warm-up early
        case "constant":
            return settings.lr
        case "linear" | "cosine":
            # The update after the last would have a rate of 0, so no update is wasted.
            risen = clock.warm_steps if clock and clock.warm_steps else warmup
            steps = [] if total_steps is None else [(total_steps + 1 - step) / max(1, total_steps + 1 - risen)]
            times = [] if clock is None else [(1 - clock.spent) / max(1e-9, 1 - clock.warm)]
            if not steps and not times:
                raise ValueError(f"schedule {settings.schedule} needs an end")
            left = max(0.0, min(steps + times))
            left = min(1.0, left / settings.decay_share)
            return settings.lr * (left if settings.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2)
