"""How long training takes on this machine: until translations are usable, in all, and what fits into the planned time.

A slow machine gets fewer updates, so that the learning rate has come down to zero in time. Their number becomes the
run's training.max_steps before its first update, and a resumed run keeps it.
"""

from __future__ import annotations

import math

from dragoman.console import say
from dragoman.corpora.preparation import PreparedData
from dragoman.settings import Config
from dragoman.training.batches import BatchPlanner
from dragoman.training.outlook import Outlook, Speed, duration
from dragoman.training.state import TrainingState

LONG = 120  # minutes of training, after which a limit is proposed


def planned_steps(config: Config, data: PreparedData, speed: Speed) -> int | None:
    """Say how long a new run takes, and return its training.max_steps.

    That is the value of config, unless training.plan_minutes applies and all passes would take longer.
    """
    training, most = config.training, config.training.max_epochs
    tokens = len(data.train.target.ids) + len(data.train)
    outlook = Outlook.of(config, len(data.train), tokens, len(data.target), speed)
    if outlook is None:
        return training.max_steps
    say(f"this machine learns from about {outlook.speed:,.0f} tokens a second: {outlook.until_usable()}")
    for shortage in outlook.shortages(training):
        say(f"warning: {shortage}")
    if most is None or training.max_steps is not None or training.max_minutes is not None:
        return training.max_steps
    whole = outlook.minutes(most)
    fit = most * (training.plan_minutes or math.inf) / whole
    # In quarter passes, so that a second run plans the same unless the machine is busier.
    passes = max(outlook.usable, math.floor(4 * fit) / 4 if fit < most else most)
    if passes >= most:
        limit = "; --training.max_minutes sets a limit" if whole > LONG else ""
        say(f"all {most} passes take about {duration(whole)}{limit}")
        return None
    batches = len(BatchPlanner(data, config.run.seed).plan(training.batch_tokens, 0))
    steps = round(passes * math.ceil(batches / training.accumulate))
    say(
        f"to end in about {duration(outlook.minutes(passes))}, it makes {passes:.3g} passes instead of {most} "
        f"(training.max_steps {steps:,}); for all {most}, in about {duration(whole)}, add: --training.plan_minutes null"
    )
    return steps


def seconds_left(state: TrainingState) -> float:
    """Estimate the seconds until the last update, if the updates and validations to come take as long as those so far.

    NaN if the number of updates is unknown.
    """
    progress, minutes = state.progress, state.config.training.max_minutes
    if not (state.total_steps and progress.step):
        return math.nan
    seconds = (state.total_steps - progress.step) * progress.seconds / progress.step
    return seconds if minutes is None else min(seconds, 60 * minutes - progress.seconds)
