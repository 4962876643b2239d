"""Train a translator.

    python train.py --config config.yaml
    python train.py --config config.yaml --run.name wide --model.d_model 512
    tensorboard --logdir runs

A run writes everything to runs/<name>/. Run the same command again to resume from the last checkpoint: on the same CPU
machine the result is bit for bit that of an uninterrupted run. config.yaml describes every setting.

This file is the recipe: `start_or_resume` prepares settings, data and model, `training_loop` is the loop, `train_step`
an update, and `Learner` calls the model and its loss. `dragoman/training/` has the parts.

Several GPUs train one model together, see `dragoman/distributed.py`:

    python train.py --config config.yaml --training.ranks 4

Exit codes: 0 done, 2 a mistake in the settings, 3 in the data, 4 no usable checkpoint, 5 the run is being trained
already, 6 numbers that are not finite or too little memory, 7 a disk that fails or is full, 8 another rank has ended,
130 and 143 stopped by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from dragoman.__main__ import main as run_command  # which imports this file again, as dragoman.train

    sys.exit(run_command(["train", *sys.argv[1:]], "train.py"))

import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

import torch
from torch import nn

from dragoman import checkpoint, config_file, dataset, distributed, resources, run_lock, signals, storage
from dragoman.architectures.build import Model, build_model
from dragoman.architectures.loss import Loss, batch_loss
from dragoman.console import say
from dragoman.corpora.hiding import make_hiding
from dragoman.corpora.language_choice import check_languages, with_languages
from dragoman.corpora.preparation import PreparedData, load, prepare_run, prepared_preset
from dragoman.corpora.sources import Source, find_sources
from dragoman.dataset import Batch
from dragoman.device import (
    DTYPES,
    choose_device,
    describe_device,
    seed_everything,
    tune_device,
)
from dragoman.distributed import Ranks
from dragoman.errors import CheckpointError, TooLargeError
from dragoman.model import DecoderLayer, EncoderLayer
from dragoman.python_api import make_callable
from dragoman.settings import Config, TrainingConfig, values, with_values
from dragoman.training import (
    batches,
    checks,
    final_report,
    gradients,
    planning,
    saving,
    schedule,
    starting,
    tensorboard,
    update_log,
    validation,
)
from dragoman.training.optimizer import make_optimizer
from dragoman.training.progress import end_reason, progress_of
from dragoman.training.state import TrainingState
from dragoman.translation.translator import Translator

SIGNAL_GRACE_SECONDS = 5.0  # a signal repeated within this time is one: launcher, Slurm and a terminal may each send it


class Learner(nn.Module):
    """A model and its loss as one module, so that DDP and FSDP wrap both: the loss uses the projection, too."""

    def __init__(self, model: Model, settings: TrainingConfig) -> None:
        super().__init__()
        self.model = model
        self.settings = settings
        # Compile this method alone, so that the names of the weights get no `_orig_mod.` in front.
        self.states = torch.compile(model.states, dynamic=True) if settings.compile else model.states

    def forward(self, batch: Batch) -> Loss:
        """The loss of a batch, summed over its target tokens."""
        return batch_loss(self.model, batch, self.settings.label_smoothing, self.states)


def train_step(state: TrainingState, micro_batches: list[Batch]) -> None:
    """Update the weights once, with the mean gradient over all target tokens of these batches on all ranks.

    Raises NumericalError, before the weights change, if the loss or the gradient is not finite.
    """
    progress, optimizer = state.progress, state.optimizer
    step = progress.step + 1
    for group in optimizer.param_groups:
        group["lr"] = state.learning_rate(step)

    [tokens] = map(int, state.ranks.sum(sum(batch.tokens for batch in micro_batches)))
    # For each batch: learner(batch) / tokens, then backward. Batches that do not fit in memory are split.
    pieces, sums = gradients.accumulate(state, micro_batches, step, tokens)
    state.scaler.unscale_(optimizer)
    norm = gradients.clip(state)
    # One transfer from the device for each update: it finds a NaN before that reaches the weights.
    *losses, norm = torch.cat([*sums, norm[None]]).tolist()
    smoothed, plain, halved = state.ranks.sum(sum(losses[::2]), sum(losses[1::2]), len(pieces) - len(micro_batches))
    gradients.check_finite(state, step, pieces, losses[::2], smoothed, norm)

    state.scaler.step(optimizer)  # in float16 this skips an update whose gradient overflowed
    state.scaler.update()
    optimizer.zero_grad(set_to_none=True)

    progress.step = step
    state.record_warmup()
    progress.halved += int(halved)
    padding = sum(batch.padding for batch in micro_batches) / len(micro_batches)
    progress.add_update(smoothed, plain, norm, tokens, padding)


def training_loop(state: TrainingState, stop: signals.Stop) -> None:
    """Train until a limit is reached or `stop` asks for it. The last step is always saved."""
    settings, progress = state.config.training, state.progress
    if state.ranks.is_first:
        state.writer = tensorboard.open_board(state.directory, progress.step, state.config)
    state.start_clock()

    with (
        update_log.progress_bar(state) as bar,
        closing(batches.training_batches(state)) as updates,
        distributed.watched(state.ranks, settings.timeout) as report_step,
    ):
        done = False
        while not done:
            report_step()
            # `unvalidated` is set if a signal interrupted a validation, and before the first update from another model.
            if not progress.unvalidated:
                started = time.perf_counter()
                micro_batches = next(updates)
                progress.data_seconds += time.perf_counter() - started
                train_step(state, micro_batches)
                progress.update_seconds += time.perf_counter() - started
                state.read_clock()
                if progress.step % settings.log_every == 0:
                    update_log.log_update(state, bar)
                bar.update()
                is_due = progress.step % settings.validate_every == 0 and validation.has_time(state)
                progress.unvalidated = is_due or end_reason(progress, state.config) is not None
            is_best = validation.validate(state, stop) if progress.unvalidated else False
            ended = end_reason(progress, state.config) is not None
            if ended or state.should_stop(stop) or is_best or progress.step % settings.save_every == 0:
                saving.save(state)
                done = ended or state.should_stop(stop)  # again: a signal may have come while saving
        saving.finish(state)
    if state.writer:
        state.writer.close()


def build_state(
    config: Config,
    directory: Path,
    data: PreparedData,
    device: torch.device,
    dtype: torch.dtype,
    ranks: Ranks | None = None,
) -> TrainingState:
    """Build a new model and all that trains it; `saving.restore` then loads a checkpoint.

    Args:
        dtype: of the matrix products
        ranks: by default this is the only process
    """
    settings, ranks = config.training, ranks or Ranks()
    seed_everything(config.run.seed, "weights")
    model = build_model(config.model, len(data.source), len(data.target))
    learner: nn.Module = Learner(model, settings)
    if settings.fsdp and ranks.world_size > 1:
        layers = [module for module in model.modules() if isinstance(module, EncoderLayer | DecoderLayer)]
        learner = distributed.wrap_fsdp(learner, layers, ranks, device)
    else:
        learner = distributed.wrap_ddp(learner.to(device), ranks, device)
    pairs = dataset.encode_pairs(data.validation, data.source, data.target)
    checks.check_lengths(config, data, pairs)
    planner = batches.BatchPlanner(data, config.run.seed, ranks, directory)
    # Only rank 0: when it resumes in a late epoch, it removes this plan before a slow rank has read it.
    batches_in_epoch = ranks.broadcast(len(planner.plan(settings.batch_tokens, 0)) if ranks.is_first else 0)
    return TrainingState(
        config=config,
        directory=directory,
        data=data,
        device=device,
        dtype=dtype,
        ranks=ranks,
        model=model,
        learner=learner,
        optimizer=make_optimizer(model, settings, dtype),
        scaler=torch.amp.GradScaler(device.type, enabled=dtype == torch.float16),
        planner=planner,
        hiding=make_hiding(config, data.source, data.target, data.train),
        validation=pairs,
        batches_in_epoch=batches_in_epoch,
        total_steps=schedule.total_steps(settings, batches_in_epoch),
    )


def train(config: Config) -> int:
    """Start the run that config describes, or resume it. Returns the exit code."""
    ranks = Ranks.from_environment()
    device = ranks.own_device(choose_device(config.training.device))
    with distributed.process_group(ranks, device):
        return start_or_resume(config, ranks, device)


def choose_open_settings(
    config: Config, ranks: Ranks, device: torch.device, speed: planning.Speed
) -> tuple[Config, Sequence[Source]]:
    """Find the corpus of a new run, and take from it and this machine what the user left open.

    These are the languages, and model.preset auto.
    """
    config = with_languages(config, say if ranks.is_first else lambda choice: None)
    sources = find_sources(config.data)
    if ranks.is_first:
        prepared = prepared_preset(config)
        config = validation.with_tokenization(starting.with_preset(config, device, speed, sources, prepared))
    return with_values(config, ranks.broadcast(values(config))), sources


def newest_saved(root: Path, ranks: Ranks) -> checkpoint.Checkpoint | None:
    """The newest checkpoint in `root`. Nothing is changed, and it is read again under the lock: others may be training.

    Raises CheckpointError if the ranks see different ones.
    """
    saved = checkpoint.newest(root, quarantine=False, warn=lambda _: None)
    step = saved.step if saved else None
    if ranks.broadcast(step) != step:
        raise CheckpointError(f"the ranks see different checkpoints in {root}: put it where all of them can reach it.")
    return saved


def prepared_data(
    config: Config, ranks: Ranks, directory: Path, other: Translator | None, sources: Sequence[Source] | None
) -> tuple[PreparedData, checkpoint.Checkpoint | None]:
    """The data of a run, and its newest checkpoint. Rank 0 prepares and checks the data; the others wait for it."""
    if not ranks.is_first:
        ranks.broadcast(None)
    saved = checkpoint.newest(directory / "checkpoints", quarantine=ranks.is_first, warn=say)
    if not ranks.is_first:
        distributed.await_shared(directory / "data", ranks)
        return load(directory / "data", is_checked=True), saved
    tokenizers = (other.source, other.target) if other else None
    data = prepare_run(config, directory / "data", saved is not None, say, tokenizers, sources)
    ranks.broadcast(None)
    return data, saved


def start_or_resume(config: Config, ranks: Ranks, device: torch.device) -> int:
    """Do the work of `train`, as one of several ranks or alone."""
    directory = Path(config.run.dir) / config.run.name
    root = directory / "checkpoints"
    # Everything that can be refused is refused before anything is written.
    tune_device(device)
    if config.training.tracker != "tensorboard":
        resources.require(config.training.tracker, [config.training.tracker], "training.tracker")
    saved = newest_saved(root, ranks)
    dtype = DTYPES[ranks.broadcast(starting.precision(config, device, saved))]
    say(describe_device(device, dtype))
    speed = partial(planning.target_tokens_per_second, device=device, dtype=dtype, ranks=ranks.world_size)
    sources = None
    if saved is None:
        config, sources = choose_open_settings(config, ranks, device, speed)
    else:
        config = validation.with_tokenization(starting.with_saved_settings(config, saved))
        starting.check_resume(config, saved)
        reason = end_reason(progress_of(saved), config)
        if reason and final_report.result_step(directory) == saved.step:
            starting.refuse_other_data(config, directory / "data")
            starting.say_finished(config, reason, saved.step)
            return 0
    other = starting.other_model(config, saved)
    if sources is not None:
        check_languages(config.data, sources)
    with run_lock.lock(directory) if ranks.is_first else nullcontext():
        data, saved = prepared_data(config, ranks, directory, other, sources)
        if starting.decides_steps_again(config, saved):
            steps = planning.planned_steps(config, data, speed) if ranks.is_first else None
            config = with_values(config, {"training.max_steps": ranks.broadcast(steps)})
        state = build_state(config, directory, data, device, dtype, ranks)
        checks.describe_training(state)
        if saved is not None:
            saving.restore(state, saved)
        elif other is not None:
            saving.start_from(state, other)
        other = None  # free its memory
        if ranks.is_first:
            storage.replace_durably(directory / "config.yaml", config_file.dump(state.config).encode())
        if state.progress.unvalidated or not end_reason(state.progress, state.config):
            gradients.try_largest_batch(state)
            with (
                signals.stop_signals(SIGNAL_GRACE_SECONDS if ranks.world_size > 1 else 0.0) as stop,
                storage.storing(directory),
            ):
                training_loop(state, stop)
            if stop or state.signal:
                say(f"stopped after step {state.progress.step}, which is saved: run the same command again to resume")
                return stop.exit_code if stop else 128 + state.signal
        say(f"finished: {end_reason(state.progress, state.config)}")
        if ranks.is_first:
            final_report.report(state.config, directory, data, state.progress)
        say(f'translate with: {resources.command("translate")} --run {directory} "your sentence"')
    return 0


def main(config: Config) -> int:
    """Train as one of several ranks, or alone. Returns the exit code."""
    try:
        return train(config)
    except torch.OutOfMemoryError:
        raise TooLargeError(
            "too little memory: train under a new run.name with half of training.batch_tokens and twice "
            "training.accumulate."
        ) from None


make_callable(__name__)  # so that dragoman.train("config.yaml") trains, too
