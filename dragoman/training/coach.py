"""Notice when training goes wrong, and advise which setting to change.

    coach = Coach(config, total_steps, constant=constant_loss(counts))
    coach.curve(step, loss, gradient_norm)                                           # at each point of the curves
    coach.validation(step, loss, train_loss, bleu, translations, references)         # at each validation

Both return lines to print, nearly always none. A rule speaks once, and again only after all was well in between. The
rules see numbers and sentences, not tensors. In this order, they look for:

    diverging    the loss has jumped up and stays there, or the gradient norm has grown many times over
    dead         after the warm-up, the loss is no better than that of a model that knows only word frequencies
    short        at the end of the run the loss still falls fast
    overfitting  the validation loss rises at each validation while the training loss falls
    same         one sentence for many sources
    loops        the same words again and again
    unknown      [UNK] in many translations

The thresholds below were measured, and beside each stands what healthy runs reached: fourteen of this program's
architectures and settings on its phrasebook and on Multi30k. Runs that were spoilt on purpose are in the tests.

In a run with a time limit, the coming updates are assumed to take as long as the past ones.

Limits: a resumed run has a new coach without memory. It may repeat itself, needs some 200 updates to find a dead run,
and does not notice a run that is too short. Words are those of \\w, so a text without spaces has few. A loss that is
not finite is ignored, since training ends such a run by itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from dragoman.settings import Config
from dragoman.translation.repetition import has_loop, words

BIN = 10  # updates per point, at least: the loss of a single update says little
FEW = 3  # consecutive points, or validations, for an alarm
JUMP = 0.5  # nats above the lowest median of FEW losses, for FEW points in a row; healthy runs: up to 0.45
NOISE = 2.5  # likewise, times the median step between points; with small batches that is up to 0.36 nats
FORGOTTEN = 0.5  # of the way to the constant model's loss, which a model of another run may lose; healthy runs: 0.2
NORM = 5.0  # times the lowest running median of gradient norms; healthy runs: 1.6, and 2.7 with tiny batches
WINDOW = 10  # points of a running median
DEAD = 0.85  # times the constant model's loss; healthy runs are below it at the end of the warm-up or 50 updates later
SLOW = 1.15  # times the constant model's loss: not even word frequencies are learnt; healthy runs: as with DEAD
STILL = 0.97  # of the median loss of the WINDOW before; healthy runs that are not below DEAD: up to 0.89
USUAL = 0.003  # learning rate of most of those runs
WAIT = 200  # updates after the warm-up, before a run is called dead or its translations are judged
STEEP = 0.1  # of the whole fall of the loss, in the last quarter; healthy runs: up to 0.04, a straight line: 0.25
RISE = 1.03  # times the lowest validation loss; in healthy runs it never rose
SAME = 0.5  # share of the translations that are one sentence; healthy runs: no two of eight
LOOPS = 0.1  # share of the translations; healthy runs: up to 0.02 at the end
UNKNOWN = 0.3  # share of the translations; 0.28 of Multi30k's training sentences have a rare word


class Coach:
    """What is known of a run so far, and which rules have spoken."""

    def __init__(
        self, config: Config, total_steps: int | None, started: int = 0, constant: float | None = None
    ) -> None:
        """Start at step `started`; total_steps is None if only the clock ends the run.

        constant is `constant_loss` of the training targets. Without it, six tenths of the loss of the first point,
        known only in a run from step 0, stand for the level where learning begins.
        """
        self.config, self.planned, self.started, self.constant = config, total_steps, started, constant
        self.by_clock: int | None = None  # updates of the whole run, if all take as long as those so far
        self.warm = config.training.warmup_steps  # updates of the warm-up; fewer if the clock ends it
        self.told: set[str] = set()  # rules that have spoken
        self.diverged = False  # whether the updates have once been too large
        self.points: list[tuple[float, float]] = []  # loss and norm, means of BIN updates or more
        self.pending: list[tuple[float, float]] = []
        self.last = started  # step of the last point
        self.best, self.floor = math.inf, math.inf  # lowest running median of losses, and of norms
        self.validations: list[tuple[float, float]] = []  # loss in validation and training
        self.best_quality = -math.inf

    @property
    def total(self) -> int | None:
        """The updates of the whole run, by its nearest limit; None if unknown."""
        return min((end for end in (self.planned, self.by_clock) if end is not None), default=None)

    def curve(self, step: int, loss: float, gradient_norm: float, spent: float = 0.0) -> list[str]:
        """Look at a point of the curves.

        Args:
            loss: mean since the last point, in nats per token, without smoothing
            gradient_norm: likewise, before clipping
            spent: share of training.max_minutes used, if that is set
        """
        self.by_clock = round(step / spent) if spent else None
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            return []
        if not (self.points or self.pending):
            self.best = loss  # of the first updates, whose learning rate has had hardly any effect
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
        """Look at a validation: losses in nats per token, and a quality where higher is better.

        For a language model, outputs and references are empty.
        """
        return [*self._overfitting(loss, train_loss, quality), *self._translations(step, outputs, references)]

    def _tell(self, rule: str, wrong: bool, well: bool, line: str) -> list[str]:
        """The line if something is wrong, and all was well since the rule last spoke."""
        if well:
            self.told.discard(rule)
        if not wrong or rule in self.told:
            return []
        self.told.add(rule)
        return [line]

    def _diverging(self) -> list[str]:
        """Compare the last FEW points with the lowest median of as many losses, and of WINDOW norms, before them."""
        recent, before = self.points[-FEW:], self.points[-FEW - WINDOW : -FEW]
        past = [loss for loss, _ in self.points[-FEW - 2 * WINDOW : -FEW]]
        if len(recent) < FEW:
            return []
        if before:
            self.best = min(self.best, median(loss for loss, _ in before[-FEW:]))
        if len(before) >= WINDOW:
            self.floor = min(self.floor, median(norm for _, norm in before))
        noise = median(abs(a - b) for a, b in pairwise(past)) if len(past) > 1 else 0.0
        tolerated = max(JUMP, NOISE * noise)
        if self.config.training.init_from and self.constant:  # at its peak, the rate undoes what was memorised
            tolerated = max(tolerated, FORGOTTEN * (self.constant - self.best))
        jumped = all(loss > self.best + tolerated for loss, _ in recent)
        grown = all(norm > NORM * self.floor > 0 and loss > self.best for loss, norm in recent)
        loss, norm = recent[-1]
        what = f"the training loss has jumped from {self.best:.3g} to {loss:.3g} and stays there"
        if grown and not jumped:
            what = f"the gradient norm has grown from {self.floor:.3g} to {norm:.3g}, and the loss no longer falls"
        line = f"{what}: the updates are too large. {self._smaller_updates()}"
        self.diverged |= jumped or grown
        return self._tell("diverging", jumped or grown, loss <= self.best, line)

    def _smaller_updates(self) -> str:
        """How to make the updates smaller. If the learning rate is a usual one, it is the last to blame."""
        settings = self.config.training
        if settings.warmup_steps == 0 and settings.lr <= USUAL:
            return f"Raise training.warmup_steps (0), for example to {max(100, (self.total or 4000) // 10)}."
        if self.config.model.norm == "post" and settings.lr <= USUAL:
            return "Set model.norm to pre, in a new run."
        return f"Lower training.lr ({settings.lr:g}) to a third or less."

    def _dead(self, step: int) -> list[str]:
        """Compare the last WINDOW with those before it, and with a model that ignores its source."""
        if len(self.points) < 2 * WINDOW:
            return []
        losses = [loss for loss, _ in self.points[-2 * WINDOW :]]
        now, before = median(losses[WINDOW:]), median(losses[:WINDOW])
        start = 0.0 if self.started else 0.6 / DEAD * self.points[0][0]
        level = self.constant or start
        poor = now > DEAD * level > 0
        slow = self._is_slow()
        wrong = poor and (now > STILL * before or slow) and step >= self.warm + WAIT
        known = f", while a model that knows only word frequencies reaches {level:.3g}" if self.constant else ""
        line = (
            f"the training loss {'has only fallen to' if slow else 'stays at'} {now:.3g}{known}: "
            f"the model learns {'hardly anything' if slow else 'nothing'}. {self._remedy()}"
        )
        return self._tell("dead", wrong and not self.told & {"diverging", "same"}, not poor, line)

    def _is_slow(self) -> bool:
        """Whether the loss is still above that of the constant model, as with too low a learning rate."""
        return self.constant is not None and median(loss for loss, _ in self.points[-WINDOW:]) > SLOW * self.constant

    def _remedy(self) -> str:
        """For a run that learns nothing: larger updates, or smaller ones."""
        if self.points and self._is_slow() and not self.diverged:
            return f"Raise training.lr ({self.config.training.lr:g}) to three times as much or more."
        return self._smaller_updates()

    def _short(self, step: int) -> list[str]:
        """At the last point of the curves: does the loss still fall as before?"""
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
        """The setting that ends this run, with its value."""
        settings = self.config.training
        if self.total != self.planned or self.planned is None:
            return f"training.max_minutes ({settings.max_minutes or 0:g})"
        if self.total == settings.max_steps:
            return f"training.max_steps ({settings.max_steps})"
        return f"training.max_epochs ({settings.max_epochs})"

    def _overfitting(self, loss: float, train_loss: float, quality: float) -> list[str]:
        """Judge the validations since the best one. While the translations improve, the loss may rise."""
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
            f"{loss:.3g}, while the training loss falls: the model overfits. {remedy[0].upper() + remedy[1:]}."
        )
        return self._tell("overfitting", wrong, best == len(losses) - 1, line)

    def _is_late(self, step: int, share: float) -> bool:
        """Whether this share of the run is over, so that its translations can be judged."""
        return step >= max(self.warm + WAIT, share * (self.total or self.warm + 2000))

    def _translations(self, step: int, outputs: Sequence[str], references: Sequence[str]) -> list[str]:
        """Judge the translations of all validation sentences."""
        pairs = list(zip(outputs, references, strict=False))
        if not pairs or not self._is_late(step, 0.25):
            return []
        references_of: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for output, reference in pairs:
            references_of[tuple(dict.fromkeys(words(output)))].append(reference)  # "la la." and "la la la." are one
        most = max(references_of, key=lambda output: len(references_of[output]))
        same = len(references_of[most]) / len(pairs)
        # [UNK] has a rule of its own; here it counts as a mark of punctuation, not as a word.
        loop = sum(has_loop(a.replace("[UNK]", "?")) and not has_loop(b) for a, b in pairs) / len(pairs)
        unknown = sum("[UNK]" in a for a, _ in pairs) / len(pairs)
        collapsed = same >= SAME and len(set(references_of[most])) >= FEW and unknown < UNKNOWN
        shown = " ".join(most[:6]) or "nothing"
        found = self._tell(
            "same",
            collapsed and not self.told & {"diverging", "dead"},  # these have already said it
            same < SAME / 2,
            f"{same:.0%} of the translations are the same ({shown}): the model ignores its source. {self._remedy()}",
        )
        found += self._tell(
            "loops",
            loop >= max(LOOPS, FEW / len(pairs)) and not collapsed and self._is_late(step, 0.5),
            loop < LOOPS / 2,
            f"{loop:.0%} of the translations repeat the same words three times or more: the model has learnt too "
            f"little. Raise {self._limit()}.",
        )
        borrowed = self.config.training.init_from is not None  # with the tokenizers of that model
        remedy = "Set training.init_from to null" if borrowed else "Set tokenizer.kind to bpe"
        line = f"{unknown:.0%} of the translations contain [UNK], since many words are unknown. {remedy}, in a new run."
        return found + self._tell("unknown", unknown >= UNKNOWN, unknown < UNKNOWN / 2, line)


def constant_loss(counts: Iterable[float]) -> float:
    """The loss, in nats per token, of a model that knows only how often each token occurs in the training targets.

    counts are those of all tokens, the end token included.
    """
    some = [count for count in counts if count > 0]
    total = sum(some)
    return sum(count / total * math.log(total / count) for count in some)
