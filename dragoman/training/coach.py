"""Notice when a training goes wrong, and name the one setting to change.

    coach = Coach(config, total_steps, constant=constant_loss(counts))
    coach.curve(step, loss, gradient_norm)                                           # at each point of the curves
    coach.validation(step, loss, train_loss, bleu, translations, references)         # at each validation

Both return lines to be printed, nearly always none. A rule speaks once, and again only when all has been well in
between. The rules know numbers and sentences, nothing of tensors; what they look for, in that order:

    diverging    the loss has jumped up and stays there, or the gradient norm has grown many times over
    dead         after the warm-up, the loss stands where a model would be that knows only how often each word occurs
    short        at the end of the run the loss still falls as fast as on its way
    overfitting  the validation loss rises, validation after validation, while the training loss falls
    same         one sentence for many sources
    loops        the same words again and again
    unknown      [UNK] in many translations

The numbers below were measured, and beside each stands what healthy runs came to: fourteen of this program's
architectures and settings on its phrasebook and on Multi30k. Those that were spoilt on purpose are in the tests.

Of a run that ends by the clock, the updates to come are taken to last as long as those before.

Limits: a resumed run has a new coach, which knows nothing of what was before: it may repeat itself, needs some two
hundred updates to find a dead run, and does not tell a run that is too short. Words are those of \\w, so a text without
blanks has few. A loss that is not finite is left out, for `train` ends such a run by itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from dragoman.evaluation.repetition import has_loop, words
from dragoman.settings import Config

BIN = 10  # updates at least that make one point here: a single update's loss says little
FEW = 3  # points, or validations, in a row that make an alarm
JUMP = 0.5  # nats above the lowest median of FEW losses, at FEW points in a row; healthy runs: up to 0.45
NOISE = 2.5  # and so many times the median step from a point to the next, that of small batches being up to 0.36 nats
FORGOTTEN = 0.5  # of the way to the constant model's loss, that another run's model may lose first; healthy runs: 0.2
NORM = 5.0  # times the lowest running median of gradient norms; healthy runs: 1.6, and 2.7 with tiny batches
WINDOW = 10  # points of a running median
DEAD = 0.85  # times the constant model's loss; healthy runs are below it when the warm-up ends, or 50 updates later
SLOW = 1.15  # times the constant model's loss: not even how often words occur is learnt; healthy runs: as with DEAD
STILL = 0.97  # of the median loss of the WINDOW before; healthy runs that are not below DEAD: up to 0.89
USUAL = 0.003  # learning rate of most of those runs
WAIT = 200  # updates after the warm-up, before a run is called dead or its translations are looked at
STEEP = 0.1  # of all that was learnt, in the last quarter; healthy runs: up to 0.04, a straight line: 0.25
RISE = 1.03  # times the lowest validation loss; in healthy runs it never rose
SAME = 0.5  # share of the translations that are one sentence; healthy runs: of eight no two
LOOPS = 0.1  # share of the translations; healthy runs: up to 0.02 at the end
UNKNOWN = 0.3  # share of the translations; 0.28 of Multi30k's training sentences hold a rare word


class Coach:
    """What is known of one run so far, and which rules have spoken."""

    def __init__(
        self, config: Config, total_steps: int | None, started: int = 0, constant: float | None = None
    ) -> None:
        """Begin at the step `started`; total_steps is None if the clock alone will end the run.

        constant is `constant_loss` of the training targets. Without it, six tenths of the first point's loss, which
        only a run that begins at step 0 has, stand for where learning begins.
        """
        self.config, self.planned, self.started, self.constant = config, total_steps, started, constant
        self.by_clock: int | None = None  # updates, should each of those to come take as long as those that were made
        self.warm = config.training.warmup_steps  # updates of the warm-up; fewer if the clock ends it
        self.told: set[str] = set()
        self.points: list[tuple[float, float]] = []  # loss and norm, means of BIN updates or more
        self.pending: list[tuple[float, float]] = []
        self.last = started  # step of the last of the points
        self.best, self.floor = math.inf, math.inf  # lowest running median of losses, and of norms
        self.validations: list[tuple[float, float]] = []  # loss in validation and training
        self.best_quality = -math.inf

    @property
    def total(self) -> int | None:
        """The updates of the whole run, as far as that is known: the nearest of its limits counts."""
        return min((end for end in (self.planned, self.by_clock) if end is not None), default=None)

    def curve(self, step: int, loss: float, gradient_norm: float, spent: float = 0.0) -> list[str]:
        """Look at a point of the curves: means since the last one of the loss (nats a token, without smoothing) and of
        the gradient norm before clipping. spent is the share of training.max_minutes that has gone, if that is set."""
        self.by_clock = round(step / spent) if spent else None
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            return []
        if not (self.points or self.pending):
            self.best = loss  # of the first updates, whose rate has hardly done anything yet
        self.pending.append((loss, gradient_norm))
        if step - self.last < BIN:
            return []
        losses, norms = zip(*self.pending, strict=True)
        self.points.append((sum(losses) / len(losses), sum(norms) / len(norms)))
        self.pending, self.last = [], step
        return [*self._diverging(), *self._dead(step), *self._short(step)]

    def validation(
        self,
        step: int,
        loss: float,
        train_loss: float,
        quality: float,
        outputs: Sequence[str],
        references: Sequence[str],
    ) -> list[str]:
        """Look at a validation: losses in nats a token, quality where more is better. Of a language model, outputs and
        references are empty."""
        return [*self._overfitting(loss, train_loss, quality), *self._translations(step, outputs, references)]

    def _tell(self, rule: str, wrong: bool, well: bool, line: str) -> list[str]:
        """The line, if all was well since the rule last spoke."""
        if well:
            self.told.discard(rule)
        if not wrong or rule in self.told:
            return []
        self.told.add(rule)
        return [line]

    # ------------------------------------------------------------------------------------------------ of the curves

    def _diverging(self) -> list[str]:
        """Judge the last FEW points by the lowest median of as many losses, and of WINDOW norms, before them."""
        recent, before = self.points[-FEW:], self.points[-FEW - WINDOW : -FEW]
        past = [loss for loss, _ in self.points[-FEW - 2 * WINDOW : -FEW]]
        if len(recent) < FEW:
            return []
        if before:
            self.best = min(self.best, median(loss for loss, _ in before[-FEW:]))
        if len(before) >= WINDOW:
            self.floor = min(self.floor, median(norm for _, norm in before))
        noise = median(abs(a - b) for a, b in pairwise(past)) if len(past) > 1 else 0.0
        bearable = max(JUMP, NOISE * noise)
        if self.config.training.init_from and self.constant:  # at its peak, the rate undoes what was learnt by heart
            bearable = max(bearable, FORGOTTEN * (self.constant - self.best))
        jumped = all(loss > self.best + bearable for loss, _ in recent)
        grown = all(norm > NORM * self.floor > 0 and loss > self.best for loss, norm in recent)
        loss, norm = recent[-1]
        what = f"the training loss has jumped from {self.best:.3g} to {loss:.3g} and stays there"
        if grown and not jumped:
            what = f"the gradient norm has grown from {self.floor:.3g} to {norm:.3g}, and the loss falls no more"
        line = f"{what}: the updates are too large. {self._smaller()}"
        return self._tell("diverging", jumped or grown, loss <= self.best, line)

    def _smaller(self) -> str:
        """What makes the updates bearable; the rate itself is the last to blame, if it is a usual one."""
        settings = self.config.training
        if settings.warmup_steps == 0 and settings.lr <= USUAL:
            return f"Raise training.warmup_steps (0), to {max(100, (self.total or 4000) // 10)} for one."
        if self.config.model.norm == "post" and settings.lr <= USUAL:
            return "Set model.norm to pre, in a new run."
        return f"Lower training.lr ({settings.lr:g}), to a third or less."

    def _dead(self, step: int) -> list[str]:
        """Judge the last WINDOW by those before it, and by what a model reaches that has not looked at its source."""
        if len(self.points) < 2 * WINDOW:
            return []
        losses = [loss for loss, _ in self.points[-2 * WINDOW :]]
        now, before = median(losses[WINDOW:]), median(losses[:WINDOW])
        start = 0.0 if self.started else 0.6 / DEAD * self.points[0][0]
        level = self.constant or start
        poor = now > DEAD * level > 0
        slow = self._slow()
        wrong = poor and (now > STILL * before or slow) and step >= self.warm + WAIT
        known = f", where a model that knows only how often each word occurs has {level:.3g}" if self.constant else ""
        line = (
            f"the training loss {'has only come down to' if slow else 'stands still at'} {now:.3g}{known}: "
            f"{'hardly anything' if slow else 'nothing'} is learnt. {self._remedy()}"
        )
        return self._tell("dead", wrong and not self.told & {"diverging", "same"}, not poor, line)

    def _slow(self) -> bool:
        """Whether the loss is still above that of the constant model, as with too low a learning rate."""
        return self.constant is not None and median(loss for loss, _ in self.points[-WINDOW:]) > SLOW * self.constant

    def _remedy(self) -> str:
        """For a run that learns nothing: larger updates, or smaller ones."""
        if self.points and self._slow() and "diverging" not in self.told:
            return f"Raise training.lr ({self.config.training.lr:g}), to three times as much or more."
        return self._smaller()

    def _short(self, step: int) -> list[str]:
        """At the last point of the curves: does the loss still fall as it did?"""
        if self.total is None or step + max(BIN, self.config.training.log_every) <= self.total:
            return []
        losses = [loss for loss, _ in self.points]
        if self.started or len(losses) < 2 * WINDOW or self.told & {"diverging", "dead"}:
            return []
        if self.config.training.decay_share < 1:  # then most is learnt at the end, whatever the length
            return []
        end, third = median(losses[-5:]), len(losses) * 3 // 4
        quarter, whole = median(losses[third - 4 : third + 1]) - end, median(losses[:5]) - end
        line = (
            f"the training loss fell by {quarter:.2g} in the last quarter of the run, to {end:.3g}: there was more to "
            f"learn. Raise {self._limit()}."
        )
        return self._tell("short", 0 < STEEP * whole < quarter, False, line)

    def _limit(self) -> str:
        """The setting that ends this run, and its value."""
        settings = self.config.training
        if self.total != self.planned or self.planned is None:
            return f"training.max_minutes ({settings.max_minutes or 0:g})"
        if self.total == settings.max_steps:
            return f"training.max_steps ({settings.max_steps})"
        return f"training.max_epochs ({settings.max_epochs})"

    # --------------------------------------------------------------------------------------------- of a validation

    def _overfitting(self, loss: float, train_loss: float, quality: float) -> list[str]:
        """Judge the validations since the best one. While the translations still get better, a loss may rise."""
        if not math.isfinite(loss):
            return []
        if better := quality > self.best_quality:
            self.best_quality = quality
        self.validations.append((loss, train_loss))
        losses = [loss for loss, _ in self.validations]
        best = losses.index(min(losses))
        rising = losses[-FEW - 1 :] == sorted(set(losses[-FEW - 1 :]))
        wrong = rising and len(losses) - 1 - best >= FEW and loss > RISE * losses[best]
        wrong = wrong and not better and train_loss < self.validations[best][1]
        dropout, patience = self.config.model.dropout, self.config.training.patience
        remedies = [f"raise model.dropout ({dropout:g})"] * (dropout < 0.3)
        remedies += [f"set training.patience: {FEW}"] * (patience is None)
        remedy = ", or ".join(remedies or ["lower training.patience"])
        line = (
            f"the validation loss has risen for {len(losses) - 1 - best} validations, from {losses[best]:.3g} to "
            f"{loss:.3g}, while the training loss falls: the model learns its pairs by heart. "
            f"{remedy[0].upper() + remedy[1:]}."
        )
        return self._tell("overfitting", wrong, best == len(losses) - 1, line)

    def _late(self, step: int, share: float) -> bool:
        """Whether so much of the run has passed that its translations may be judged."""
        return step >= max(self.warm + WAIT, share * (self.total or self.warm + 2000))

    def _translations(self, step: int, outputs: Sequence[str], references: Sequence[str]) -> list[str]:
        """Judge the translations of all validation sentences."""
        pairs = list(zip(outputs, references, strict=False))
        if not pairs or not self._late(step, 0.25):
            return []
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for output, reference in pairs:
            alike[tuple(dict.fromkeys(words(output)))].append(reference)  # "la la." and "la la la." are one
        most = max(alike, key=lambda said: len(alike[said]))
        same = len(alike[most]) / len(pairs)
        # [UNK] is a matter of its own; as a mark it is no word.
        loop = sum(has_loop(a.replace("[UNK]", "?")) and not has_loop(b) for a, b in pairs) / len(pairs)
        unknown = sum("[UNK]" in a for a, _ in pairs) / len(pairs)
        collapsed = same >= SAME and len(set(alike[most])) >= FEW and unknown < UNKNOWN
        shown = " ".join(most[:6]) or "nothing"
        found = self._tell(
            "same",
            collapsed and not self.told & {"diverging", "dead"},  # which have said it
            same < SAME / 2,
            f"{same:.0%} of the translations are the same ({shown}): the model does not look at its source. "
            f"{self._remedy()}",
        )
        found += self._tell(
            "loops",
            loop >= max(LOOPS, FEW / len(pairs)) and not collapsed and self._late(step, 0.5),
            loop < LOOPS / 2,
            f"{loop:.0%} of the translations say the same words three times in a row or more: the model has learnt too "
            f"little. Raise {self._limit()}.",
        )
        borrowed = self.config.training.init_from is not None  # with the tokenizers of that model
        remedy = "Set training.init_from to null" if borrowed else "Set tokenizer.kind to bpe"
        line = f"{unknown:.0%} of the translations hold [UNK], for many words are unknown. {remedy}, in a new run."
        return found + self._tell("unknown", unknown >= UNKNOWN, unknown < UNKNOWN / 2, line)


def constant_loss(counts: Iterable[float]) -> float:
    """The loss, in nats a token, of a model that knows only how often each token of the training targets occurs; counts
    are those of all tokens, the end token among them."""
    some = [count for count in counts if count > 0]
    total = sum(some)
    return sum(count / total * math.log(total / count) for count in some)
