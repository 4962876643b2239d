"""Log a training run: a point of the curves and the line of progress."""

from __future__ import annotations

import math
import time

from tqdm import tqdm

from dragoman.console import say
from dragoman.evaluation.validation_loss import perplexity
from dragoman.training import planning
from dragoman.training.state import TrainingState

LINE_EVERY = 20  # seconds between lines of progress where there is no terminal for a bar
BAR = "{percentage:3.0f}% |{bar}| step {n_fmt}/{total_fmt}{postfix}"  # fits 80 columns


def progress_bar(state: TrainingState) -> tqdm:
    """A bar on rank 0's terminal, if it has one."""
    return tqdm(
        total=state.total_steps,
        initial=state.progress.step,
        unit="step",
        bar_format=BAR if state.total_steps else None,
        dynamic_ncols=True,
        disable=None if state.ranks.is_first else True,  # None: if there is no terminal
        leave=False,
    )


def log_update(state: TrainingState, bar: tqdm) -> None:
    """Log a point of the training curves: means over the updates since the last one."""
    progress, step = state.progress, state.progress.step
    loss = progress.plain / progress.tokens
    speed = progress.tokens / progress.update_seconds
    figures = {
        "loss/train": loss,
        "score/perplexity_train": perplexity(loss),
        "training/smoothed_loss": progress.smoothed / progress.tokens,
        "training/gradient_norm": progress.norm / max(1, progress.norms),
        "training/learning_rate": state.optimizer.param_groups[0]["lr"],
        "training/padding": progress.padding / progress.updates,
        "training/epoch": progress.epoch + progress.batches / state.batches_in_epoch,
        "speed/tokens_per_second": speed,
        "speed/minutes": progress.seconds / 60,  # of training so far, over all resumes
        "speed/data": progress.data_seconds / progress.update_seconds,  # share of the time spent waiting for a batch
    }
    state.train_loss = loss
    progress.reset_sums()
    if not state.writer:
        return
    for tag, value in figures.items():
        state.writer.add_scalar(tag, value, step)
    left = planning.seconds_left(state)
    left = f", {tqdm.format_interval(left)} left" if math.isfinite(left) else ""
    bar.set_postfix_str(f"loss {loss:.2f}, {speed:,.0f} tokens/s{left}", refresh=False)
    line = (
        f"epoch {figures['training/epoch']:.1f}, loss {loss:.2f}, {speed:,.0f} tokens/s, "
        f"{figures['training/padding']:.0%} padding, "
        f"{figures['speed/data']:.0%} waiting for data{left}"
    )
    if bar.disable and time.monotonic() - state.last_line_time > LINE_EVERY:
        state.last_line_time = time.monotonic()
        total = f" of {state.total_steps}" if state.total_steps else ""
        say(f"step {step}{total}: {line}")
