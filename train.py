"""Train a translator.

    python train.py --config config.yaml
    python train.py --config config.yaml --run.name wide --model.d_model 512
    tensorboard --logdir runs

All that a run makes lies in runs/<name>/. The same command run again goes on after the last checkpoint, bit for bit as
if it had never stopped, on the same CPU machine. Every setting is described in config.yaml.

From here to the loss it is one hop: `Learner` calls the model and `optim.batch_loss`.

Several GPUs, or machines, train one model together when torchrun starts this program on each of them, see `ranks`:

    torchrun --nproc-per-node 4 train.py --config config.yaml

Exit codes: 0 done, 2 a mistake in the settings, 3 in the data, 4 no usable checkpoint, 5 the run is being trained
already, 6 numbers that are not finite or too little memory, 7 a disk that fails or is full, 8 another rank has ended,
130 and 143 stopped by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from dragoman.__main__ import main as dragoman  # which imports this file again, under its package name

    sys.exit(dragoman(["train", *sys.argv[1:]], "train.py"))

import copy
import math
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from dragoman import (
    checkpoint,
    config_file,
    dataset,
    distributed,
    errors,
    presets,
    resources,
    run_lock,
    serialization,
    signals,
    storage,
)
from dragoman import device as device_module
from dragoman.architectures.build import build_model
from dragoman.architectures.loss import Loss, batch_loss
from dragoman.architectures.protocol import Model
from dragoman.console import say, shorten, visible
from dragoman.corpora import copying, mixing
from dragoman.corpora.filtering import fits_upsampling
from dragoman.corpora.preparation import PreparedData
from dragoman.corpora.sources import find_sources, unit_name
from dragoman.dataset import Batch, EncodedPairs
from dragoman.distributed import Ranks
from dragoman.errors import DataError, NumericalError, RankError, TooLargeError
from dragoman.evaluation import per_direction, validation_loss
from dragoman.evaluation.metrics import score
from dragoman.model import DecoderLayer, EncoderLayer
from dragoman.settings import EOS, Config, TrainingConfig
from dragoman.training import final_report, prefetch, profiling, starting, tensorboard
from dragoman.training.coach import Coach, constant_loss
from dragoman.training.layer_statistics import LayerStatistics
from dragoman.training.optimizer import MovingAverage, make_optimizer
from dragoman.training.progress import Progress, end, progress_of
from dragoman.training.samples import Samples
from dragoman.training.schedule import Clock, learning_rate, warmth
from dragoman.translation.translator import Translator

AHEAD = 8  # updates whose batches are made while a GPU is busy
FEWEST_BATCHES = 100  # in an epoch, with training.batch_tokens auto: from few large steps, little is learnt
COUNTED = 1_000_000  # tokens that tell how often each occurs
COSTLIEST = 10  # operations of a profile that are named
OVERFLOWS = 20  # updates in a row that float16 may leave out; it finds its scale in fewer, or never
ALONE = Ranks()
SEVERAL = 5.0  # seconds in which torchrun, Slurm and a terminal may all send the same process their signals
WARM_UP = 3  # updates before those that training.profile shows
PROBE = 16  # validation sentences by which the health of the layers is told, always the same


def largest_that_fits(most: int, fits: Callable[[int], bool]) -> int:
    """Double from 1024, or from `most` where that is less, as long as it fits and up to `most`, a power of two.

    The first is not tried: where it does not fit, there is no better one, and such batches are computed in parts.
    """
    tokens = min(1024, most)
    while tokens < most and fits(2 * tokens):
        tokens *= 2
    return tokens


class Learner(nn.Module):
    """A model and its loss as one call, so that what torch wraps around it, for several ranks, sees all of it."""

    def __init__(self, model: Model, settings: TrainingConfig) -> None:
        super().__init__()
        self.model = model
        self.settings = settings
        # Only the call is compiled; weights are read from and written to the raw model, whose names stay plain.
        self.states = torch.compile(model.states, dynamic=True) if settings.compile else model.states

    def forward(
        self, source: Tensor, target_in: Tensor, target_out: Tensor, source_mask: Tensor, target_mask: Tensor
    ) -> Loss:
        """The loss of a batch, see `dataset.Batch`, as sums over its target tokens."""
        return batch_loss(
            self.model.settings.architecture,
            self.states(source, target_in, source_mask, target_mask),
            self.model.projection.weight,
            source,
            target_out,
            self.settings.label_smoothing,
        )


class Training:
    """One run: the model, how far it has come, and where that is written down."""

    def __init__(
        self,
        config: Config,
        directory: Path,
        data: PreparedData,
        device: torch.device,
        dtype: torch.dtype,
        limit: float = math.inf,
        rank: Ranks = ALONE,
    ) -> None:
        """Make a fresh model; `restore` turns it into that of a checkpoint.

        Args:
            limit: the rate at which the device multiplies matrices, FLOP/s; the curves show what share of it is used
            rank: this process among those that train together
        """
        settings = config.training
        self.directory = directory
        self.data = data
        self.device = device
        self.dtype = dtype
        self.limit = limit
        self.rank = rank
        device_module.seed_everything(config.run.seed, "weights")
        self.model = build_model(config.model, len(data.source), len(data.target))
        self.whole = self.model  # but with training.fsdp, when `model` has a part of each weight: see `collect`
        if settings.fsdp and rank.count > 1:
            self.whole = copy.deepcopy(self.model).to(device if rank.first else "cpu")
        self.learner = self.wrapped(Learner(self.model, settings))
        self.optimizer = make_optimizer(self.model, settings, dtype)
        self.average = MovingAverage(self.model, settings.ema, fresh=not settings.init_from) if settings.ema else None
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.translator = Translator.around(self.whole, data.source, data.target, config, data.report.sides[0], dtype)
        self.samples = Samples(directory / "samples", data, self.translator, self.whole)
        self.validation = dataset.encode_pairs(data.validation, data.source, data.target)
        few = dataset.make_batch(self.validation, np.arange(min(PROBE, len(data.validation)))).to(device)
        self.health = LayerStatistics(self.whole, few.source, few.target_in)
        self.twins = copying.shared_words(data.source, data.target)
        self._planned: tuple[tuple[int, int], tuple[EncodedPairs, list[np.ndarray]]] | None = None  # the last one
        self.progress = Progress()
        self.told_of_memory = False
        self.signal = 0  # that has asked one of the ranks to end
        self.train_loss = math.nan  # at the last point of the curves
        self.last_line = -math.inf  # when a line of progress was last written to a log file
        self.config = config
        self.check_lengths()
        self.batch_tokens = self.found_tokens() if settings.batch_tokens == "auto" else settings.batch_tokens
        # From here on, and in all that is saved, the number stands for auto.
        self.config = replace(config, training=replace(settings, batch_tokens=self.batch_tokens))
        # The same in every epoch, for it depends on the lengths alone.
        self.batches_in_epoch = len(self.planned(self.batch_tokens, 0)[1])
        limits = [settings.max_steps] if settings.max_steps else []
        if settings.max_epochs:
            limits.append(settings.max_epochs * math.ceil(self.batches_in_epoch / settings.accumulate))
        self.total_steps = min(limits, default=None)  # None if only the clock will end the run
        self.coach = self.new_coach()

    def wrapped(self, learner: Learner) -> nn.Module:
        """What is called in place of the learner, so that the gradients of all ranks come together."""
        if self.is_dealt_out:
            layers = [each for each in self.model.modules() if isinstance(each, EncoderLayer | DecoderLayer)]
            return distributed.sharded(learner, layers, self.rank, self.device)
        return distributed.replicated(learner.to(self.device), self.rank, self.device)

    @property
    def is_dealt_out(self) -> bool:
        """Whether this rank has but a part of each weight."""
        return self.whole is not self.model

    def introduce(self) -> None:
        """Say how large all this is, and which settings do not suit it."""
        settings, steps = self.config.training, self.total_steps
        parameters = sum(p.numel() for p in self.model.parameters())
        say(
            f"{parameters:,} parameters; {self.batches_in_epoch:,} batches an epoch"
            + (f", {steps:,} steps in all" if steps else "")
        )
        rises_by_clock = settings.max_minutes and settings.schedule in ("linear", "cosine")
        if steps and settings.warmup_steps > steps / 2 and not rises_by_clock:
            limit = "max_steps" if steps == settings.max_steps else "max_epochs"
            say(
                f"warning: training.warmup_steps is {settings.warmup_steps}, but there are only {steps} steps: the "
                f"learning rate will hardly fall, or not even reach its peak. Lower it, or raise training.{limit}."
            )
        if settings.decay_share < 1 and settings.schedule in ("inverse_sqrt", "constant"):
            say(f"warning: training.decay_share is of no effect: the schedule {settings.schedule} does not end")
        if settings.fsdp and not self.is_dealt_out:
            say("warning: training.fsdp is of no effect: there is one rank, which keeps all weights itself")
        if self.is_dealt_out and settings.health_every:
            say("warning: training.health_every is of no effect with training.fsdp: no rank has all weights")
        if self.config.data.temperature > 1 and len(self.config.data.several) < 2:
            say("warning: data.temperature is of no effect: there is but one direction")
        if steps and settings.validate_every > steps:
            say(
                f"warning: training.validate_every is {settings.validate_every}, but there are only {steps} steps: "
                "there will be one validation, at the end."
            )

    def check_lengths(self) -> None:
        """Say which pairs this model can learn nothing from, or not be measured by. Raises DataError if that is fatal.

        Those of training are within data.max_length; those of validation and test are as they are.
        """
        settings, data = self.config.model, self.data
        if settings.positions != "learned" and settings.architecture != "encoder-only":
            return
        test = dataset.encode_pairs(data.test, data.source, data.target)
        for name, pairs in (("training", data.train), ("validation", self.validation), ("test", test)):
            if not len(pairs):
                continue
            if settings.positions == "learned" and name != "training":
                most = max(settings.positions_of(*map(int, lengths)) for lengths in zip(*pairs.lengths, strict=True))
                if most > settings.max_positions:
                    things = f"{unit_name(self.config.data)}s"
                    raise DataError(
                        f"the longest of the {name} {things} takes {most} positions, but model.max_positions is "
                        f"{settings.max_positions}: raise it, or take such {things} out."
                    )
            if settings.architecture == "encoder-only":
                lost = int((~fits_upsampling(pairs, settings.upsampling)).sum())
                if lost == len(pairs):
                    raise DataError(
                        f"every one of the {name} pairs has a longer target than model.upsampling "
                        f"({settings.upsampling}) makes places for: raise it."
                    )
                if lost:
                    say(
                        f"warning: {lost:,} of {len(pairs):,} {name} pairs have longer targets than model.upsampling "
                        f"({settings.upsampling}) makes places for: nothing is learnt from them, and their loss counts "
                        "as 0"
                    )

    def planned(self, batch_tokens: int, epoch: int) -> tuple[EncodedPairs, list[np.ndarray]]:
        """The pairs as an epoch has them, and its batches, as arrays of pair numbers: a function of the pairs, the seed
        and the epoch."""
        key = batch_tokens, epoch
        if self._planned is None or self._planned[0] != key:  # of millions of pairs, a plan takes a second
            pairs, seed, weights = self.data.train, self.config.run.seed, self.data.weights
            first, rows = (None if weights is None else mixing.rows_of(weights, seed, each) for each in (0, epoch))
            plan = dataset.batch_plan(*pairs.lengths_of(first), batch_tokens, seed, epoch)
            if weights is not None:  # other lengths in each epoch, but as many batches
                plan = dataset.batch_plan_of_size(len(plan), *pairs.lengths_of(rows), batch_tokens, seed, epoch)
            if rows is not None:
                plan = [rows[batch] for batch in plan]
            self._planned = key, (pairs, plan)
        return self._planned[1]

    # ------------------------------------------------------------------------------------------------ one update

    def updates(self) -> Generator[list[Batch], None, None]:
        """The batches of each further update, epoch after epoch; `progress` already stands behind them.

        They are made ahead while a GPU is busy. On a CPU, whose cores are busy themselves, a thread more gains nothing.
        """
        count = 0 if self.device.type == "cpu" else AHEAD
        with closing(prefetch.prefetched(self._made(), count)) as made:
            for batches, epoch, used in made:
                self.progress.epoch, self.progress.batches = epoch, used
                yield batches

    def _made(self) -> Iterator[tuple[list[Batch], int, int]]:
        """The batches of each further update, and where the data stand behind them: the epoch and its batches used."""
        settings, seed = self.config.training, self.config.run.seed
        step, epoch, used = self.progress.step, self.progress.epoch, self.progress.batches
        while True:
            pairs, plan = self.planned(self.batch_tokens, epoch)
            while used < len(plan):
                step += 1
                random = np.random.default_rng((seed, step))
                batches = []
                for rows in plan[used : used + settings.accumulate]:
                    batch = dataset.make_batch(pairs, rows)
                    batch = copying.mask_copied_words(batch, self.twins, settings.copy_dropout, random)
                    batch = batch.share(self.rank.index, self.rank.count)
                    # From pinned memory a GPU fetches it by itself; from other memory the program would have to wait.
                    batches.append(batch.moved(torch.Tensor.pin_memory) if self.device.type == "cuda" else batch)
                used += len(batches)
                yield (batches, epoch, used) if used < len(plan) else (batches, epoch + 1, 0)
            epoch, used = epoch + 1, 0

    def update(self, batches: list[Batch]) -> None:
        """Change the weights once, by the mean gradient of all target tokens of the batches of all ranks.

        Raises NumericalError, before the weights are touched, if the loss or the gradient is not finite.
        """
        settings, progress = self.config.training, self.progress
        step = progress.step + 1
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, settings, self.total_steps, self.clock())

        counts = sum(batch.tokens for batch in batches), sum(batch.source_tokens for batch in batches)
        tokens, source_tokens = map(int, self.rank.sums(*counts))
        pieces, sums = self.gradients(batches, step, tokens)
        self.scaler.unscale_(self.optimizer)
        with distributed.lost():
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
        if self.is_dealt_out:
            norm = distributed.whole(norm).to(self.device)
        # The one synchronisation of an update: it pays for weights that are never spoilt.
        *losses, length = torch.cat([*sums, norm[None]]).tolist()
        own = sum(losses[::2])
        smoothed, plain, halved = self.rank.sums(own, sum(losses[1::2]), len(pieces) - len(batches))
        overflow = self.scaler.is_enabled() and not math.isfinite(length)
        progress.overflows = progress.overflows + 1 if overflow else 0
        if not math.isfinite(smoothed) or not (overflow or math.isfinite(length)) or progress.overflows > OVERFLOWS:
            if math.isfinite(own) and not math.isfinite(smoothed):
                raise RankError("the loss of another rank is not finite: see what it said. The last checkpoint stands.")
            bad = [piece for piece, loss in zip(pieces, losses[::2], strict=True) if not math.isfinite(loss)] or pieces
            raise NumericalError(
                f"step {step}: loss {smoothed:g}, gradient norm {length:g}, learning rate "
                f"{self.optimizer.param_groups[0]['lr']:g}"
                + (f", the {progress.overflows}th overflow of float16 in a row" if overflow else "")
                + f"; the weights were not touched. It came of {self._describe(bad)}. Lower training.lr or raise "
                "training.warmup_steps, and run the same command again."
            )
        look = self.looks_inside and step % settings.health_every == 0
        if look:
            self.health.before()
        self.scaler.step(self.optimizer)  # in float16, an update whose gradient overflowed is left out
        self.scaler.update()
        if look:
            for tag, value in self.health.after().items():
                self.writer.add_scalar(tag, value, step)
        self.optimizer.zero_grad(set_to_none=True)
        if self.average:
            self.average.update(step)

        progress.step = step
        self._follow_warmup()
        progress.halved += int(halved)
        progress.smoothed += smoothed
        progress.plain += plain
        if math.isfinite(length):
            progress.norm += length
            progress.norms += 1
        progress.tokens += tokens
        progress.source_tokens += source_tokens
        progress.padding += sum(batch.padding for batch in batches) / len(batches)
        progress.updates += 1

    def _follow_warmup(self) -> None:
        """Keep how long the warm-up took: once it is over, it stays over."""
        progress = self.progress
        if not progress.warm_steps:
            progress.warm_seconds = progress.seconds
            if warmth(progress.step, self.config.training, self.clock()) >= 1:
                progress.warm_steps = self.coach.warm = progress.step

    def clock(self) -> Clock | None:
        """How much of training.max_minutes has gone; None if there is no such limit, nor was when the warm-up ended.

        A validation takes its part of it, and a pause between two resumes does not.
        """
        minutes, progress = self.config.training.max_minutes, self.progress
        if minutes is None:
            sooner = 0 < progress.warm_steps < self.config.training.warmup_steps
            return Clock(0.0, 0.0, progress.warm_steps) if sooner else None
        return Clock(progress.seconds / 60 / minutes, progress.warm_seconds / 60 / minutes, progress.warm_steps)

    def gradients(self, batches: list[Batch], step: int, tokens: int) -> tuple[list[Batch], list[Tensor]]:
        """Leave in the weights the mean gradient of all target tokens, so many, of the batches of all ranks.

        A batch that does not fit into memory is cut in two, and all is begun again. The update stays the same, since
        the loss is a sum over tokens whatever the batches; only dropout then draws otherwise.

        Returns the batches that fitted, and of each the sums of `optim.Loss`, (2).
        Raises TooLargeError if a single pair does not fit.
        """
        pieces = list(batches)
        while len(sums := self._attempt(pieces, step, tokens)) < len(pieces):
            large = len(sums)
            pieces[large : large + 1] = self._halves(pieces[large], step)
        return pieces, sums

    def _attempt(self, batches: list[Batch], step: int, tokens: int) -> list[Tensor]:
        """Do what `gradients` does, but end at the first batch that does not fit into memory, and leave no gradient.

        Returns the sums of those that fitted.
        """
        self.model.train()
        # Dropout depends on the seed and the step, and on nothing drawn before: so a resumed run repeats it.
        device_module.seed_everything(self.config.run.seed, step, *([] if self.rank.first else [self.rank.index]))
        sums: list[Tensor] = []
        with suppress(torch.OutOfMemoryError):  # which holds on to what is in memory until this block is left
            for batch in batches:
                there = batch.moved(self._sent)
                last = batch is batches[-1]
                with distributed.lost(), nullcontext() if last else distributed.without_exchange(self.learner):
                    with device_module.autocast(self.device, self.dtype):
                        loss = self.learner(
                            there.source, there.target_in, there.target_out, there.source_mask, there.target_mask
                        )
                    # Divided by the tokens of the whole update: how it is cut into batches, and dealt out to ranks,
                    # does not change what is minimised. That gradients are averaged over the ranks is made good.
                    share = self.rank.count if batch.tokens else 0
                    self.scaler.scale(loss.smoothed * share / max(1, tokens)).backward()
                sums.append(torch.stack([loss.smoothed.detach(), loss.plain]) * bool(batch.tokens))
            return sums
        there = loss = None  # room for the next attempt
        self.optimizer.zero_grad(set_to_none=True)
        device_module.free_memory(self.device)
        return sums

    def _sent(self, ids: torch.Tensor) -> torch.Tensor:
        """The ids on the device; CUDA alone keeps the order of its work without being waited for."""
        return ids.to(self.device, non_blocking=self.device.type == "cuda")

    def _halves(self, batch: Batch, step: int) -> list[Batch]:
        """Cut a batch that does not fit into memory."""
        rows, source, target = len(batch.indices), batch.source.shape[1], batch.target_out.shape[1]
        if self.rank.count > 1:  # the others do not wait until this rank has begun again
            raise TooLargeError(
                f"step {step}: {rows} pairs of up to {source} and {target} tokens do not fit into the memory of "
                f"{self.device}: train under a new run.name with half of training.batch_tokens and twice "
                "training.accumulate, or with more ranks."
            )
        if rows == 1:
            raise TooLargeError(
                f"step {step}: a single pair of {source} and {target} tokens does not fit into the memory of "
                f"{self.device}: lower data.max_length or the size of the model, under a new run.name."
            )
        if not self.told_of_memory:
            self.told_of_memory = True
            say(
                f"warning: step {step}: a batch of {rows} pairs of up to {source} and {target} tokens does not fit "
                f"into the memory of {self.device}. Such a batch is computed in parts, which takes longer and comes to "
                "the same; a new run had better have half of training.batch_tokens and twice training.accumulate."
            )
        return batch.halves()

    def rehearse(self) -> None:
        """Compute the gradient of the largest batch and drop it: too little memory shows now, and not in an hour."""
        with self._rehearsal(self.batch_tokens) as batch:
            self.gradients([batch], self.progress.step + 1, batch.tokens)
            if self.looks_inside:  # which takes its memory, too
                self.health.before()
                self.health.after()

    @property
    def looks_inside(self) -> bool:
        """Whether the health of the layers is told: by the first rank, if it has all weights."""
        return self.rank.first and not self.is_dealt_out and bool(self.config.training.health_every)

    @contextmanager
    def _rehearsal(self, batch_tokens: int) -> Iterator[Batch]:
        """Yield the largest batch of up to so many tokens; until this is left, memory is as full as at an update."""
        pairs, plan = self.planned(batch_tokens, self.progress.epoch)
        source, target = pairs.lengths
        largest = max(plan, key=lambda rows: len(rows) * int(source[rows].max() + target[rows].max()))
        # Room for the moments, which the optimizer makes at its first step.
        moments = [torch.empty_like(p) for p in self.model.parameters() if p not in self.optimizer.state for _ in "mv"]
        with distributed.without_exchange(self.learner):
            yield dataset.make_batch(pairs, largest).share(self.rank.index, self.rank.count)
        del moments
        self.optimizer.zero_grad(set_to_none=True)

    def found_tokens(self) -> int:
        """What training.batch_tokens auto comes to.

        The largest power of two that leaves FEWEST_BATCHES an epoch: on a CUDA device, of those that fit; elsewhere, up
        to `presets.UNTRIED`, for a CPU gains nothing from more.
        """
        positions = int(np.maximum(*self.data.train.lengths).sum())
        most = 2 ** int(math.log2(max(1, positions / FEWEST_BATCHES)))
        if self.device.type == "cuda":
            found = -int(*self.rank.most(-largest_that_fits(most, self.fits)))  # what fits on every rank
            device_module.free_memory(self.device)
        else:
            found = min(most, presets.UNTRIED)
        say(f"training.batch_tokens auto: {found:,}")
        return found

    def fits(self, batch_tokens: int) -> bool:
        """Whether updates by batches of so many tokens take no more than OF_MEMORY of the memory of a CUDA device."""
        device_module.peak_memory(self.device)  # from now on
        with self._rehearsal(batch_tokens) as batch:
            fitted = len(self._attempt([batch], 1, batch.tokens)) == 1
        return fitted and device_module.peak_memory(self.device) <= starting.OF_MEMORY

    def _describe(self, batches: list[Batch]) -> str:
        """Name the pairs of batches by their numbers among the training pairs, and show the first."""
        alone = self.config.is_language_model
        side, tokenizer = ("target_out", self.data.target) if alone else ("source", self.data.source)
        rows = [pair for each in batches for pair in zip(each.indices.tolist(), getattr(each, side), strict=True)]
        numbers = ", ".join(str(i) for i, _ in rows[:8])
        more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
        text = visible(shorten(tokenizer.decode(rows[0][1].tolist()), 60))
        return f"the training {'texts' if alone else 'pairs'} {numbers}{more}, the first being {text!r}"

    # --------------------------------------------------------------------------------------------- checkpoints

    def save(self) -> None:
        """Write a checkpoint of this very step, and delete those that are no longer needed."""
        progress, root = self.progress, self.directory / "checkpoints"
        [progress.seconds] = self.rank.most(time.perf_counter() - self.begun)
        self.collect()
        tensors = {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}
        if self.is_dealt_out:
            tensors = distributed.whole(tensors)
        if not self.rank.first:
            return
        self.writer.flush()  # first, so that a resumed run finds every point of the curves up to its checkpoint
        if self.average:
            tensors["weights"] = self.model.state_dict()
        with self.best_weights():
            weights = serialization.weights_bytes(self.whole)
        files = {
            "model.safetensors": weights,
            "config.yaml": config_file.dump(self.config).encode(),
            "source.tokenizer.json": self.data.source.to_json().encode(),
            "target.tokenizer.json": self.data.target.to_json().encode(),
            "trained_on.json": serialization.json_bytes(asdict(self.data.report)),
            "training.pt": serialization.tensors_bytes(tensors),
            "state.json": serialization.json_bytes(
                {
                    "progress": asdict(progress),
                    "data": self.data.fingerprint,
                    **self.surroundings(),
                }
            ),
        }
        checkpoint.save(root, progress.step, files)
        self._mark_best()
        checkpoint.prune(root, self.config.training.keep_last)

    def collect(self) -> None:
        """Bring the weights together in `whole`, on the first rank, where they are dealt out to all."""
        if self.is_dealt_out:
            to = self.whole.state_dict()
            for name, weight in self.model.state_dict().items():
                weight = distributed.whole(weight)
                if self.rank.first:
                    to[name].copy_(weight)

    def deal_out(self) -> None:
        """Take the weights from `whole`, where each rank has a part of them."""
        if self.is_dealt_out:
            to = self.model.state_dict()
            for name, weight in self.whole.state_dict().items():
                to[name].copy_(distributed.dealt(weight, to[name]))

    def best_weights(self) -> AbstractContextManager[None]:
        """Until this is left, the model has the weights that are to be used: with training.ema their running mean."""
        return self.average.in_place() if self.average else nullcontext()

    def surroundings(self) -> dict[str, object]:
        """What has a say in the last bits of a sum beside the config and the data."""
        return {
            "device": self.device.type,
            "precision": str(self.dtype).removeprefix("torch."),
            "processor": device_module.processor(self.device),
            "threads": torch.get_num_threads(),
            "ranks": self.rank.count,
            "torch": str(torch.__version__),
        }

    def _mark_best(self) -> None:
        """Name the best checkpoint in best.json; a kill between a save and this is made good by the next resume."""
        progress, root = self.progress, self.directory / "checkpoints"
        best = checkpoint.get_best(root)
        if progress.best_bleu >= 0 and (best is None or best["step"] != progress.best_step):
            score = progress.best_bleu
            figure = {"perplexity": 100 / score} if self.config.is_language_model else {"bleu": score}
            checkpoint.set_best(root, progress.best_step, **figure)

    def begin_with(self, other: Translator) -> None:
        """Take the weights of another run's model. Before the first update it is validated, and saved, as it came."""
        self.whole.load_state_dict(other.model.state_dict())
        self.deal_out()
        if self.average:
            self.average.begin()
        say(f"begins with {other.path}")
        measured = final_report.old_test(self.config, other) if self.rank.first else None
        self.progress = self.rank.same(Progress(unvalidated=True, old_bleu=measured[1].bleu if measured else -1.0))

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Become what the checkpoint holds. Raises CheckpointError if it does not belong to this run's data."""
        state = serialization.load_json(saved.files["state.json"])
        if state.get("data") != self.data.fingerprint:
            raise errors.CheckpointError(
                f"{saved.path} was trained on other data than {self.directory / 'data'} holds now: restore the corpus, "
                "or train under another run.name."
            )
        for name, value in self.surroundings().items():
            if state.get(name, value) != value:
                say(
                    f"warning: {name} was {state[name]} and is {value}: the run goes on, but not bit for bit as "
                    "it would have"
                )
        serialization.load_weights(self.whole, saved.files["model.safetensors"])
        self.deal_out()
        tensors = serialization.load_tensors(saved.files["training.pt"])
        # The moments alone: decay and the rest are what the config says now, and each update sets its own rate.
        try:
            before = tensors["optimizer"]["param_groups"][0]["lr"]  # of the last update
            groups = [{**group, "lr": before} for group in self.optimizer.state_dict()["param_groups"]]
            moments = tensors["optimizer"]["state"]
            if self.is_dealt_out:
                weights = [p for group in self.optimizer.param_groups for p in group["params"]]
                moments = {
                    i: {name: distributed.dealt(value, weights[i]) for name, value in of_weight.items()}
                    for i, of_weight in moments.items()
                }
            self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
            if self.scaler.is_enabled() and tensors["scaler"]:
                self.scaler.load_state_dict(tensors["scaler"])
            if self.average:
                self.average.begin()
                self.model.load_state_dict(tensors["weights"])
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise errors.CheckpointError(
                f"{saved.path}: training.pt does not hold this optimizer's state ({error!r}): use another checkpoint."
            ) from error
        self.progress = progress_of(saved)
        if not self.progress.step:  # the board begins anew, and needs that first validation again
            self.progress = Progress(unvalidated=True, old_bleu=self.progress.old_bleu)
        self.coach = self.new_coach()
        step, settings = self.progress.step, self.config.training
        now = learning_rate(step + 1, settings, self.total_steps, self.clock())
        if now > before and warmth(step, settings, self.clock()) >= 1:
            say(
                f"warning: the learning rate had fallen to {before:.3g} and rises again to {now:.3g}, because how long "
                "training is to last or training.lr has changed: the curves will jump"
            )
        if self.rank.first:
            # Later checkpoints, if the newest was damaged, belong to steps that are about to be made again.
            checkpoint.set_aside_newer(self.directory / "checkpoints", self.progress.step)
            self._mark_best()
        say(f"resumed from step {self.progress.step}")

    # ------------------------------------------------------------------------------------------------ the loop

    def run(self, stop: signals.Stop) -> None:
        """Train until the end, or until stop asks for it; either way the last step is saved."""
        settings, progress = self.config.training, self.progress
        if self.rank.first:
            self.writer = tensorboard.open_board(self.directory / "tensorboard", progress.step, self.config)
        self.begun = time.perf_counter() - progress.seconds
        bar = tqdm(
            total=self.total_steps,
            initial=progress.step,
            unit="step",
            dynamic_ncols=True,
            disable=None if self.rank.first else True,  # None: if no terminal
            leave=False,
        )
        with (
            bar,
            closing(self.updates()) as updates,
            profiling.profiled(self.device, WARM_UP, settings.profile, self.show_profile) as profiled,
        ):
            over = False
            while not over:
                if not progress.unvalidated:
                    before = time.perf_counter()
                    batches = next(updates)
                    progress.data_seconds += time.perf_counter() - before
                    self.update(batches)
                    progress.update_seconds += time.perf_counter() - before
                    profiled()
                    [progress.seconds] = self.rank.most(time.perf_counter() - self.begun)
                    if progress.step % settings.log_every == 0:
                        self.log(bar)
                    bar.update()
                    due = progress.step % settings.validate_every == 0 and self.is_time_to_validate()
                    progress.unvalidated = due or end(progress, self.config) is not None
                better = False
                if progress.unvalidated:
                    self.collect()
                    with suppress(signals.Stopped), self.best_weights():
                        better = self.rank.first and self.validate(stop)
                    better, validated = self.rank.same((better, progress))
                    vars(progress).update(vars(validated))
                    [progress.seconds] = self.rank.most(time.perf_counter() - self.begun)
                ended = end(progress, self.config) is not None
                if ended or self.asked(stop) or better or progress.step % settings.save_every == 0:
                    self.save()
                    over = ended or self.asked(stop)  # once more, for a save takes its time
        if self.rank.first:
            self.writer.close()

    def is_time_to_validate(self) -> bool:
        """Whether the clock leaves more than a validation takes. Otherwise the one at the end will do: the learning
        rate would still be high when this one was over, and all time used up."""
        minutes, progress = self.config.training.max_minutes, self.progress
        return minutes is None or progress.seconds + progress.validation_seconds < 60 * minutes

    def asked(self, stop: signals.Stop) -> bool:
        """Whether the process of any rank has been asked to end: then all do, after the same update."""
        [self.signal] = map(int, self.rank.most(stop.signal or 0))
        return bool(self.signal)

    def new_coach(self) -> Coach:
        """One that knows nothing of this run but where it stands, and how often each token is to be learnt."""
        target = self.data.train.target
        stride = max(1, len(target.ids) // COUNTED)  # of millions of pairs, all of them would be as many bytes again
        counts = np.bincount(target.ids[::stride], minlength=EOS + 1)
        counts[EOS] += len(self.data.train) // stride
        coach = Coach(self.config, self.total_steps, self.progress.step, constant_loss(counts.tolist()))
        coach.warm = self.progress.warm_steps or coach.warm
        return coach

    def advise(self, lines: list[str]) -> None:
        """Say what the coach has to say."""
        for line in lines:
            say(f"coach: {line}")

    def log(self, bar: tqdm) -> None:
        """One point of the training curves: means over the updates since the last one."""
        progress, step = self.progress, self.progress.step
        loss = progress.plain / progress.tokens
        speed = progress.tokens / progress.update_seconds
        of_source, of_target = self.model.products()
        operations = 6 * (of_source * progress.source_tokens + of_target * progress.tokens)
        utilisation = operations / progress.update_seconds / self.limit
        curves = {
            "train/loss": loss,
            "train/perplexity": validation_loss.perplexity(loss),
            "train/smoothed_loss": progress.smoothed / progress.tokens,
            "train/gradient_norm": progress.norm / max(1, progress.norms),
            "train/learning_rate": self.optimizer.param_groups[0]["lr"],
            "train/padding": progress.padding / progress.updates,
            "train/epoch": progress.epoch + progress.batches / self.batches_in_epoch,
            "speed/tokens_per_second": speed,
            "speed/utilisation": utilisation,  # of the rate at which this device multiplies matrices
            "speed/data": progress.data_seconds / progress.update_seconds,  # share of the time without a batch to learn
        }
        self.train_loss = loss
        progress.reset_sums()
        if not self.rank.first:
            return
        for tag, value in curves.items():
            self.writer.add_scalar(tag, value, step)
        epoch = curves["train/epoch"]
        line = (
            f"epoch {epoch:.1f}, loss {loss:.2f}, {speed:,.0f} tokens/s, {utilisation:.0%} of the limit, "
            f"{curves['train/padding']:.0%} padding, {curves['speed/data']:.0%} waiting for data"
        )
        bar.set_postfix_str(line, refresh=False)
        if bar.disable and time.monotonic() - self.last_line > 20:  # in a log file, a line now and then
            self.last_line = time.monotonic()
            last = f" of {self.total_steps}" if self.total_steps else ""
            say(f"step {step}{last}: {line}")
        clock = self.clock()
        spent = clock.spent if clock else 0.0
        self.advise(self.coach.curve(step, loss, curves["train/gradient_norm"], spent))

    def show_profile(self, record: torch.profiler.profile) -> None:
        """Write down what the last updates did, and say what took longest."""
        if not self.rank.first:
            return
        path = self.directory / "profile" / f"step-{self.progress.step:08d}.json.gz"
        path.parent.mkdir(exist_ok=True)
        record.export_chrome_trace(str(path))
        say(f"a trace of the updates up to step {self.progress.step}, to be opened at https://ui.perfetto.dev: {path}")
        for line in profiling.costliest(record, self.device, COSTLIEST):
            say(line)

    def validate(self, stop: signals.Stop) -> bool:
        """Measure the model on the validation pairs, show it at work, and tell whether it is the best so far.

        Raises Stopped, having left no trace, if stop asks for it meanwhile.
        """
        progress, step, before = self.progress, self.progress.step, time.perf_counter()
        loss = validation_loss.mean_loss(self.whole, self.validation, self.batch_tokens, self.dtype, stop.poll)
        curves = {"loss": loss, "perplexity": validation_loss.perplexity(loss)}
        if self.config.is_language_model:
            quality, told = 100 / curves["perplexity"], f"perplexity {curves['perplexity']:.2f}"
            translations, references = [], ()
            self.samples.of_texts(self.writer, step)
        else:
            sources, references = zip(*self.data.validation, strict=True)
            translations = [each.text for each in self.translator.explain(sources, advance=stop.poll)]
            scores = score(translations, references, self.config.data.bleu_tokenize)
            curves |= {"chrf": scores.chrf, "wer": scores.wer, "cer": scores.cer}
            each = per_direction.bleu_by_direction(sources, translations, references, self.config.data)
            # Of several directions the mean: in BLEU of all sentences together, the longest texts would count most.
            quality = sum(each.values()) / len(each) if each else scores.bleu
            curves |= {"bleu": quality} | {f"bleu/{direction}": bleu for direction, bleu in each.items()}
            told = f"BLEU {quality:.2f}, chrF {scores.chrf:.2f}"
            told += "".join(f", {direction} {bleu:.2f}" for direction, bleu in each.items())
            self.samples.of_translations(self.writer, step, list(zip(sources, references, translations, strict=True)))
        for tag, value in curves.items():
            self.writer.add_scalar(f"valid/{tag}", value, step)

        if not step:
            progress.first_bleu = quality
        better = quality > progress.best_bleu
        if better:
            progress.best_bleu, progress.best_step, progress.worse = quality, step, 0
        else:
            progress.worse += 1
        progress.unvalidated = False
        progress.validation_seconds = time.perf_counter() - before
        say(
            f"step {step}, {progress.seconds / 60:.1f} min: validation loss {loss:.3f}, {told}"
            f"{' (best so far)' if better else ''}"
        )
        self.advise(self.coach.validation(step, loss, self.train_loss, quality, translations, references))
        return better


# ---------------------------------------------------------------------------------------------------------- the program


def train(config: Config) -> int:
    """Begin the run that config describes, or go on with it. Returns the exit code."""
    rank = Ranks.of_environment()
    device = rank.own(device_module.choose_device(config.training.device))
    with distributed.joined(rank, device):
        return train_on(config, rank, device)


def train_on(config: Config, rank: Ranks, device: torch.device) -> int:
    """Do what `train` does as one of several ranks, or alone."""
    directory = Path(config.run.dir) / config.run.name
    root = directory / "checkpoints"
    # All that can be refused is refused before anything is written.
    device_module.tune_device(device)
    rates = device_module.matmul_rates(device)
    saved = checkpoint.newest(root, quarantine=False, warn=lambda _: None)
    step = saved.step if saved else None
    if rank.same(step) != step:
        raise errors.CheckpointError(f"{root} does not look alike to all ranks: it must lie where all can reach it.")
    dtype = rank.same(device_module.choose_precision(starting.precision(config, device, saved), device, rates))
    say(device_module.describe_device(device, dtype))
    measured = ", ".join(f"{rate / 1e9:,.0f} in {str(kind).removeprefix('torch.')}" for kind, rate in rates.items())
    say(f"products of matrices, billions of operations a second: {measured}")
    limit = rank.count * rates.get(dtype, rates.get(torch.bfloat16, math.inf))
    if saved is None:
        find_sources(config.data)
        config = rank.same(starting.with_preset(config, device, limit) if rank.first else config)
    else:
        config = starting.settled(config, saved)
        starting.resumable(config, saved)
        progress = progress_of(saved)
        why = end(progress, config)
        if why and final_report.result_step(directory) == progress.step:
            say(
                f"the run {config.run.name} is finished: {why} at step {progress.step}. "
                f"To go on, raise the limit; to begin anew, choose another run.name; to use it, "
                f'run: {resources.command("translate")} --run {directory} "your sentence"'
            )
            return 0
    other = starting.other_model(config, saved)
    with run_lock.lock(directory) if rank.first else nullcontext():
        with rank.before_others():
            saved = checkpoint.newest(root, quarantine=rank.first, warn=say)
            data = starting.prepare(config, directory / "data", begun=saved is not None, other=other)
        training = Training(config, directory, data, device, dtype, limit, rank)
        training.introduce()
        if saved is not None:
            training.restore(saved)
        elif other is not None:
            training.begin_with(other)
        other = None  # it has its place in memory
        if rank.first:
            storage.replace_durably(directory / "config.yaml", config_file.dump(training.config).encode())
        if training.progress.unvalidated or not end(training.progress, config):
            training.rehearse()
            with signals.stop_signals(SEVERAL if rank.count > 1 else 0.0) as stop, storage.storing(directory):
                training.run(stop)
            if stop or training.signal:
                say(f"stopped after step {training.progress.step}, which is saved: the same command goes on from there")
                return stop.exit_code if stop else 128 + training.signal
        say(f"finished: {end(training.progress, config)}")
        if rank.first:
            final_report.report(training.config, directory, data, training.progress)
        say(f'translate with: {resources.command("translate")} --run {directory} "your sentence"')
    return 0


def main(config: Config) -> int:
    """Train as one of the ranks that torchrun started, or alone. Returns the exit code."""
    try:
        return train(config)
    except torch.OutOfMemoryError:
        raise TooLargeError(
            "too little memory: train under a new run.name with half of training.batch_tokens and "
            "twice training.accumulate."
        ) from None
