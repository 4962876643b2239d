"""The gradient of an update, however its batches have to be split to fit in memory.

The loss of an update is its sum over target tokens divided by their number, over all micro-batches and ranks. So how
the batches are split does not change what is minimised.
"""

from __future__ import annotations

import math
from contextlib import nullcontext, suppress

import torch
from torch import Tensor

from dragoman import distributed
from dragoman.console import say, shorten, visible
from dragoman.dataset import Batch, make_batch
from dragoman.device import autocast, seed_everything
from dragoman.errors import NumericalError, RankError, TooLargeError
from dragoman.training.state import TrainingState

MAX_OVERFLOWS = 20  # consecutive updates that float16 may skip; it finds its scale in fewer, or never


def accumulate(state: TrainingState, batches: list[Batch], step: int, tokens: int) -> tuple[list[Batch], list[Tensor]]:
    """Accumulate the gradient, averaged over `tokens`, of these batches on every rank.

    A batch that does not fit in memory is split in two, and the gradient is computed again from the start. The update
    stays the same, except that dropout draws other numbers. Under DDP the ranks exchange gradients at the last batch
    only; under FSDP, at each.

    Returns the batches that fitted, and for each the two sums of its `Loss`, (2).
    Raises TooLargeError if a single pair does not fit, or, with several ranks, any batch.
    """
    pieces, sums, loss = list(batches), list[Tensor](), None
    while len(sums) < len(pieces):
        state.model.train()
        # Seeded by (run.seed, step, rank), so that a resumed run repeats its dropout. Rank 0 seeds like one process.
        seed_everything(state.config.run.seed, step, *([] if state.ranks.is_first else [state.ranks.rank]))
        sums = []
        with suppress(torch.OutOfMemoryError):  # the exception keeps tensors alive until this block is left
            for batch in pieces:
                on_device = batch.moved(lambda ids: ids.to(state.device, non_blocking=state.device.type == "cuda"))
                exchange = nullcontext() if batch is pieces[-1] else distributed.no_sync(state.learner)
                with exchange:
                    with autocast(state.device, state.dtype):
                        loss = state.learner(on_device)
                    # Multiply by the world size to undo the averaging of the ranks. One without rows has zero weight.
                    weight = state.ranks.world_size if batch.tokens else 0
                    state.scaler.scale(loss.smoothed * weight / max(1, tokens)).backward()
                sums.append(torch.stack([loss.smoothed.detach(), loss.plain]) * bool(batch.tokens))
        if len(sums) < len(pieces):
            loss = None  # free its graph
            state.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()  # does nothing without a GPU
            large = len(sums)
            pieces[large : large + 1] = _split_batch(state, pieces[large], step)
    return pieces, sums


def clip(state: TrainingState) -> Tensor:
    """Clip the gradient to training.clip_norm; return its norm before clipping, a scalar."""
    norm = torch.nn.utils.clip_grad_norm_(state.model.parameters(), state.config.training.clip_norm)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # type: ignore[operator]  # sharded under FSDP


def check_finite(
    state: TrainingState, step: int, batches: list[Batch], losses: list[float], loss: float, norm: float
) -> None:
    """Raise NumericalError if the loss or the gradient norm is not finite, naming the guilty pairs.

    In float16 the scaler skips an update whose gradient overflows, so only too many in a row are an error.

    Args:
        batches: those of this rank
        losses: of each of them, to find the guilty one
        loss: of all ranks
    """
    progress = state.progress
    overflow = state.scaler.is_enabled() and not math.isfinite(norm)
    progress.overflows = progress.overflows + 1 if overflow else 0
    if math.isfinite(loss) and (overflow or math.isfinite(norm)) and progress.overflows <= MAX_OVERFLOWS:
        return
    if math.isfinite(sum(losses)) and not math.isfinite(loss):
        raise RankError("the loss of another rank is not finite: see its own message. The last checkpoint is intact.")
    guilty = [batch for batch, each in zip(batches, losses, strict=True) if not math.isfinite(each)] or batches
    raise NumericalError(
        f"step {step}: loss {loss:g}, gradient norm {norm:g}, learning rate "
        f"{state.optimizer.param_groups[0]['lr']:g}"
        + (f", float16 overflow number {progress.overflows} in a row" if overflow else "")
        + f". The weights were not changed. The cause is in {_describe(state, guilty)}. Lower training.lr or raise "
        "training.warmup_steps, and run the same command again."
    )


def _describe(state: TrainingState, batches: list[Batch]) -> str:
    """Name the pairs of batches by their numbers among the training pairs, and quote the first."""
    alone = state.config.is_language_model
    side, tokenizer = ("target_out", state.data.target) if alone else ("source", state.data.source)
    rows = [pair for each in batches for pair in zip(each.indices.tolist(), getattr(each, side), strict=True)]
    numbers = ", ".join(str(i) for i, _ in rows[:8])
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    text = visible(shorten(tokenizer.decode(rows[0][1].tolist()), 60))
    return f"the training {'texts' if alone else 'pairs'} {numbers}{more}; the first is {text!r}"


def _split_batch(state: TrainingState, batch: Batch, step: int) -> list[Batch]:
    """Split a batch that does not fit in memory. Raises TooLargeError if that is impossible."""
    rows, source, target = len(batch.indices), batch.source.shape[1], batch.target_out.shape[1]
    if state.ranks.world_size > 1:  # the other ranks would not wait while this one starts again
        raise TooLargeError(
            f"step {step}: {rows} pairs of up to {source} and {target} tokens do not fit in the memory of "
            f"{state.device}: train under a new run.name with half of training.batch_tokens and twice "
            "training.accumulate, or with more ranks."
        )
    if rows == 1:
        raise TooLargeError(
            f"step {step}: a single pair of {source} and {target} tokens does not fit in the memory of "
            f"{state.device}: lower data.max_length or the size of the model, under a new run.name."
        )
    if not state.warned_of_memory:
        state.warned_of_memory = True
        say(
            f"warning: step {step}: a batch of {rows} pairs of up to {source} and {target} tokens does not fit in the "
            f"memory of {state.device}. Such batches are split, which gives the same update but takes longer. For a "
            "new run, use half of training.batch_tokens and twice training.accumulate."
        )
    return batch.halves()


def try_largest_batch(state: TrainingState) -> None:
    """Compute the gradient of the largest batch and drop it, so that out-of-memory errors appear at the start."""
    pairs = state.data.train
    plan = state.planner.plan(state.config.training.batch_tokens, state.progress.epoch)
    source, target = pairs.lengths
    largest = max(plan, key=lambda rows: len(rows) * int(source[rows].max() + target[rows].max()))
    batch = make_batch(pairs, largest, state.ranks.rank, state.ranks.world_size)
    # As much memory as the moments, which the optimizer allocates at its first step.
    new = [p for p in state.model.parameters() if p not in state.optimizer.state]
    moments = [torch.empty_like(p) for p in new for _ in range(2)]
    with distributed.no_sync(state.learner):
        accumulate(state, [batch], state.progress.step + 1, batch.tokens)
    del moments
    state.optimizer.zero_grad(set_to_none=True)
