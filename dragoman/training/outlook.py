"""Estimate how fast a model learns from a corpus on this machine, and how long until its translations are usable.

    outlook = Outlook.of(config, pairs, tokens, vocabulary, speed)    # None for a run of a minute
    print(outlook.until_usable(), *outlook.shortages(config.training))

Nothing here imports torch; `planning.target_tokens_per_second` measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dragoman import presets, settings
from dragoman.settings import Config, TrainingConfig

# The target tokens a second that a model with these settings learns from, given the mean length of a sentence.
Speed = Callable[[Config, float], float]

SURELY_FAST = 1e9  # operations a second: every machine is faster, so a run of a minute needs no measurement
FOR_UPDATES = 0.8  # share of the time; the start, validations, the report and slower batches take the rest


@dataclass(frozen=True)
class Outlook:
    """The training time of a model on this machine."""

    speed: float  # target tokens a second
    tokens: float  # target tokens of a pass, with the end tokens
    usable: float  # passes after which translations become usable

    @classmethod
    def of(cls, config: Config, pairs: int, tokens: float, vocabulary: int, speed: Speed) -> Outlook | None:
        """Measure a model for these training pairs. None for a short run, and for a language model.

        Args:
            tokens: target tokens of all pairs, with the end tokens
            vocabulary: number of entries for the target
        """
        known = settings.with_values(config, {"tokenizer.vocab_size": vocabulary})
        values = settings.values(known)
        needed = presets.usable_tokens(values)
        if config.is_language_model or max(needed, tokens) * presets.operations(values) < 60 * SURELY_FAST:
            return None
        return cls(speed(known, tokens / pairs - 1), tokens, needed / tokens)

    def minutes(self, passes: float) -> float:
        """The minutes that a run of this many passes takes, start and report included."""
        return passes * self.tokens / self.speed / FOR_UPDATES / 60

    def until_usable(self) -> str:
        """When to expect translations that can be used, as a clause."""
        passes = "a pass" if self.usable <= 1 else f"{math.ceil(self.usable)} passes"
        return f"translations become usable after about {passes} over these data, {duration(self.minutes(self.usable))}"

    def shortages(self, training: TrainingConfig) -> Iterator[str]:
        """Warn of limits that end training before translations are usable."""
        if training.max_minutes is not None and (least := self.minutes(self.usable)) > training.max_minutes:
            yield (
                f"training.max_minutes is {training.max_minutes:g}, which is too short for usable translations: raise "
                f"it to {math.ceil(1.2 * least)} or more"
            )
        if training.max_epochs is not None and self.usable > training.max_epochs:
            yield (
                f"training.max_epochs is {training.max_epochs}, which is too few for usable translations: raise it to "
                f"{math.ceil(1.2 * self.usable)} or more"
            )


def duration(minutes: float) -> str:
    """Write a duration in the unit that people would use."""
    for size, unit in ((24 * 60, "days"), (60, "hours")):
        if minutes >= 2 * size:
            return f"{minutes / size:.0f} {unit}"
    return f"{minutes:.0f} minutes" if minutes >= 1.5 else "a minute"
