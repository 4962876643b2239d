"""The learning rate."""

from __future__ import annotations

import math
from typing import NamedTuple

from dragoman.settings import TrainingConfig

WARM = 0.1  # of the time that a run is given, which the warm-up takes at most
LEAST = 20  # updates of a warm-up that the clock would end sooner: a validation may have taken that time


class Clock(NamedTuple):
    """Where a run stands that is to last training.max_minutes."""

    spent: float  # share of the time that has gone
    warm: float = 0.0  # share that had gone when the warm-up was over
    warm_steps: int = 0  # updates that it took; 0: it is not over


def warmth(step: int, settings: TrainingConfig, clock: Clock | None = None) -> float:
    """What share of the warm-up is over at update number step; 1 and more behind it.

    How many updates a given time allows is not known beforehand: a schedule that comes down with the clock also rises
    with it, so that warm-up never takes more than a tenth of the time. What is over stays over, whatever then changes.
    """
    by_steps = step / settings.warmup_steps if settings.warmup_steps else math.inf
    if clock is None:
        return by_steps
    by_clock = min(clock.spent / WARM, step / LEAST) if settings.schedule in ("linear", "cosine") else 0.0
    return max(by_steps, float(clock.warm_steps > 0), by_clock)


def learning_rate(step: int, settings: TrainingConfig, total_steps: int | None, clock: Clock | None = None) -> float:
    """The rate of update number step (the first is 1), at most training.lr.

    All schedules rise in a straight line over warmup_steps. Then
        inverse_sqrt  falls with 1/√step, as in the paper (section 5.3), and never ends;
        linear        falls in a straight line to zero at the end;
        cosine        falls along half a cosine to zero at the end;
        constant      stays.
    With decay_share below 1, linear and cosine stay at the peak, too, until that share of what comes after the warm-up
    is left: warmup-stable-decay (Hu et al. 2024, "MiniCPM").

    The end comes after total_steps, or when the clock has spent all its time: whichever is nearer. By that clock the
    warm-up may end sooner, see `warmth`.
    """
    warmup = settings.warmup_steps
    if (warm := warmth(step, settings, clock)) < 1:
        return settings.lr * warm
    match settings.schedule:
        case "inverse_sqrt":
            return settings.lr * math.sqrt(min(1.0, warmup / step))  # the clock may have ended the warm-up before
        case "constant":
            return settings.lr
        case "linear" | "cosine":
            # The update after the last would have the rate 0, so that no update is spent on nothing.
            risen = clock.warm_steps if clock and clock.warm_steps else warmup
            steps = [] if total_steps is None else [(total_steps + 1 - step) / max(1, total_steps + 1 - risen)]
            times = [] if clock is None else [(1 - clock.spent) / max(1e-9, 1 - clock.warm)]
            if not steps and not times:
                raise ValueError(f"schedule {settings.schedule} needs an end")
            left = max(0.0, min(steps + times))
            left = min(1.0, left / settings.decay_share)
            return settings.lr * (left if settings.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2)
