"""How long training takes on this machine: the updates that fit into the planned time, and the time that is left.

A slow machine gets fewer updates, so that the learning rate has come down to zero in time. Their number becomes the
run's training.max_steps before its first update, and a resumed run keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dragoman import presets, settings
from dragoman.console import say
from dragoman.corpora.preparation import PreparedData
from dragoman.settings import Config
from dragoman.training.batches import BatchPlanner
from dragoman.training.state import TrainingState

# How many target tokens a second a model with these settings learns from, in sentences of so many tokens.
Speed = Callable[[Config, float], float]

SURELY_FAST = 1e9  # operations a second: every machine is faster, so a short run needs no measurement
FOR_UPDATES = 0.8  # share of the planned time; the start, validations, the report and slower batches take the rest
FEWEST_PASSES = 2  # a run with fewer would not be worth its time, however slow the machine
VALIDATION = 3.0  # duration of a validation, before the first one, in the time that training on as many pairs takes
REPORT = 4.0  # duration of the report on the test set, in validations of as many pairs


def planned_steps(config: Config, data: PreparedData, speed: Speed) -> int | None:
    """The training.max_steps with which the run takes training.plan_minutes, if all its passes would take longer.

    Prints the plan. Returns the value of config if a limit is set there, and for training.batch_tokens auto.
    """
    training, most = config.training, config.training.max_epochs
    limited = training.max_steps is not None or training.max_minutes is not None
    if not training.plan_minutes or not most or limited or training.batch_tokens == "auto":
        return training.max_steps
    tokens = len(data.train.target.ids) + len(data.train)  # with the end tokens
    known = settings.with_values(config, {"tokenizer.vocab_size": len(data.target)})
    if most * tokens * presets.operations(settings.values(known)) < SURELY_FAST * 60 * training.plan_minutes:
        return None
    rate = speed(known, tokens / len(data.train) - 1)
    minutes = tokens / rate / FOR_UPDATES / 60  # for a pass
    here = f"this machine learns from about {rate:,.0f} tokens a second, so"
    if most * minutes <= training.plan_minutes:
        say(f"{here} {most} passes over the data take about {duration(most * minutes)}")
        return None
    passes = max(min(FEWEST_PASSES, most), training.plan_minutes / minutes)
    say(
        f"{here} it makes {passes:.1f} passes over the data instead of {most}, in about {duration(passes * minutes)}; "
        f"for all {most}, in about {duration(most * minutes)}, add: --training.plan_minutes null"
    )
    batches = len(BatchPlanner(data, config.run.seed).plan(int(training.batch_tokens), 0))
    return round(passes * math.ceil(batches / training.accumulate))


def duration(minutes: float) -> str:
    """Write a duration in the unit that people would use."""
    for size, unit in ((24 * 60, "days"), (60, "hours")):
        if minutes >= 2 * size:
            return f"{minutes / size:.0f} {unit}"
    return f"{max(1, minutes):.0f} minutes" if round(minutes) > 1 else "a minute"


def seconds_left(state: TrainingState) -> float:
    """Estimate the seconds until the end of the run: its updates, its validations, and the report on the test set.

    Updates are assumed to take as long as those so far, and validations as long as the last one. NaN if the number of
    updates is unknown.
    """
    progress, training = state.progress, state.config.training
    if not (state.total_steps and progress.step):
        return math.nan
    per_step = (progress.seconds - progress.validations_seconds) / progress.step
    per_pair = per_step * state.batches_in_epoch / training.accumulate / len(state.data.train)
    validation = progress.validation_seconds or VALIDATION * per_pair * len(state.validation)
    validations = math.ceil(state.total_steps / training.validate_every) - progress.step // training.validate_every
    seconds = (state.total_steps - progress.step) * per_step + validations * validation
    if training.max_minutes is not None:
        seconds = min(seconds, 60 * training.max_minutes - progress.seconds)
    return seconds + REPORT * validation * len(state.data.test) / max(1, len(state.validation))
