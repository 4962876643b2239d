"""Save a training run as a checkpoint and restore it, bit for bit.

Under FSDP, too, a checkpoint has the form that a single process writes: full weights, and the optimizer's state by
parameter number.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import safetensors.torch
import torch

from dragoman import checkpoint, config_file, serialization
from dragoman.architectures.build import Model
from dragoman.checkpoint import Checkpoint
from dragoman.console import say
from dragoman.corpora.origin import SIDES
from dragoman.corpora.preparation import conventions_file
from dragoman.device import processor
from dragoman.errors import CheckpointError
from dragoman.tensors import load_tensors, load_weights, tensors_bytes, weights_of
from dragoman.training import final_report, sharding
from dragoman.training.progress import Progress, progress_of
from dragoman.training.state import TrainingState
from dragoman.translation.translator import Translator

PARTS = ".tmp-parts"  # folder of what the ranks write under FSDP; `checkpoint.save` removes it


def save(state: TrainingState) -> None:
    """Write a checkpoint of this step and delete those no longer needed. All ranks must call this.

    Under FSDP, the checkpoint is complete when `finish` returns.
    """
    finish(state)
    parts = state.directory / "checkpoints" / PARTS
    if state.is_sharded and state.ranks.is_first:
        shutil.rmtree(parts, ignore_errors=True)  # of a killed process
        parts.mkdir(parents=True)
    state.read_clock()  # the other ranks wait here, and so write no part before
    # The curves go first, so that a resumed run finds every point up to its checkpoint.
    if state.writer:
        state.writer.flush()
    if state.is_sharded:
        now = replace(state, progress=replace(state.progress))  # training continues meanwhile
        state.saving = sharding.save(state, parts, partial(_write, now, state.scaler.state_dict()))
    elif state.ranks.is_first:
        _write(state, state.scaler.state_dict(), weights_of(state.model), state.optimizer.state_dict())


def finish(state: TrainingState) -> None:
    """Wait for the checkpoint that is being written, if there is one. Raises the error that it ended with."""
    if state.saving:
        state.saving.finish()
        state.saving = None


def _write(
    state: TrainingState, scaler: dict[str, Any], weights: dict[str, torch.Tensor], optimizer: dict[str, Any]
) -> None:
    """Write a checkpoint with these whole tensors, and delete those no longer needed."""
    files = {
        "model.safetensors": safetensors.torch.save(weights),
        "config.yaml": config_file.dump(state.config).encode(),
        "source.tokenizer.json": state.data.source.to_json().encode(),
        "target.tokenizer.json": state.data.target.to_json().encode(),
        "trained_on.json": serialization.json_bytes(_trained_on(state)),
        "training.pt": tensors_bytes({"optimizer": optimizer, "scaler": scaler}),
        "state.json": serialization.json_bytes(
            {"progress": asdict(state.progress), "data": state.data.fingerprint, **environment(state)}
        ),
    }
    for side, conventions in zip(SIDES, state.data.conventions, strict=True):
        files[conventions_file(side)] = conventions.json.encode()
    root = state.directory / "checkpoints"
    checkpoint.save(root, state.progress.step, files)
    mark_best(state)
    checkpoint.prune(root, state.config.training.keep_last)


def _trained_on(state: TrainingState) -> dict[str, Any]:
    """What the weights were trained on, for the translator and the model card."""
    downloads = state.data.origin.get("downloads")
    report = asdict(state.data.report) | {"unsure": state.progress.unsure}
    return report | ({"downloads": downloads} if downloads else {})


def environment(state: TrainingState) -> dict[str, object]:
    """Everything besides settings and data that can change rounding: a resume warns if it differs."""
    return {
        "device": state.device.type,
        "precision": str(state.dtype).removeprefix("torch."),
        "processor": processor(state.device),
        "threads": torch.get_num_threads(),
        "ranks": state.ranks.world_size,
        "torch": str(torch.__version__),
    }


def mark_best(state: TrainingState) -> None:
    """Name the best checkpoint in best.json. If a kill prevents it after a save, the next resume does it."""
    progress, root = state.progress, state.directory / "checkpoints"
    best = checkpoint.get_best(root)
    if progress.best_bleu >= 0 and (best is None or best["step"] != progress.best_step):
        score = progress.best_bleu
        figure = {"perplexity": 100 / score} if state.config.is_language_model else {"bleu": score}
        checkpoint.set_best(root, progress.best_step, **figure)


def set_weights(state: TrainingState, fill: Callable[[Model], object]) -> None:
    """Let `fill` set the weights of the model; under FSDP, those of a full copy that is then sharded."""
    if not state.is_sharded:
        fill(state.model)
        return
    full = state.new_model()
    fill(full)
    sharding.load_weights(state, full.state_dict())


def start_from(state: TrainingState, other: Translator) -> None:
    """Take the weights of another run's model. It is validated and saved before the first update."""
    weights = other.model.state_dict()
    set_weights(state, lambda model: model.load_state_dict(weights))
    say(f"starting from {other.path}")
    measured = final_report.old_test(state.config, other) if state.ranks.is_first else None
    old_bleu = state.ranks.broadcast(measured[1].bleu.score() if measured else -1.0)
    state.progress = Progress(unvalidated=True, old_bleu=old_bleu)


def restore(state: TrainingState, saved: Checkpoint) -> None:
    """Continue from a checkpoint. Raises CheckpointError if it does not belong to this run's data."""
    recorded = serialization.load_json(saved.files["state.json"])
    if recorded.get("data") != state.data.fingerprint:
        raise CheckpointError(
            f"{saved.path} was trained on other data than {state.directory / 'data'} holds now: restore the corpus "
            f"and delete the folder {state.directory / 'data'}, or train under another run.name."
        )
    for name, value in environment(state).items():
        if recorded.get(name, value) != value:
            say(
                f"warning: {name} was {recorded[name]} and is now {value}: the run continues, but not bit for bit as "
                "it would have"
            )
    try:
        set_weights(state, lambda model: load_weights(model, saved.files["model.safetensors"]))
        last_rate = _restore_tensors(state, saved)
    except CheckpointError as error:
        raise CheckpointError(f"{error} To resume from an older one, move {saved.path} elsewhere.") from error
    state.progress = progress_of(saved)
    if not state.progress.step:  # TensorBoard starts anew and needs the first validation again
        state.progress = Progress(unvalidated=True, old_bleu=state.progress.old_bleu)
    step = state.progress.step
    rate = state.learning_rate(step + 1)
    if rate > last_rate and state.warmup_progress(step) >= 1:
        say(
            f"warning: the learning rate had fallen to {last_rate:.3g} and rises again to {rate:.3g}, because the "
            "length of the training or training.lr has changed: the curves will jump"
        )
    if state.ranks.is_first:
        # If the newest checkpoint was damaged, the best one may be of a step that is trained again.
        checkpoint.forget_later_best(state.directory / "checkpoints", step)
        mark_best(state)
    say(f"resumed from step {step}")


def _restore_tensors(state: TrainingState, saved: Checkpoint) -> float:
    """Restore the optimizer and the scaler; return the learning rate of the last update."""
    tensors = load_tensors(saved.files["training.pt"])
    try:
        last_rate = tensors["optimizer"]["param_groups"][0]["lr"]
        # Weight decay and the like come from the settings, which may have changed; only the moments are restored.
        groups = [{**group, "lr": last_rate} for group in state.optimizer.state_dict()["param_groups"]]
        optimizer = {"state": tensors["optimizer"]["state"], "param_groups": groups}
        if state.is_sharded:
            sharding.load_optimizer(state, optimizer)
        else:
            state.optimizer.load_state_dict(optimizer)
            for p, moments in state.optimizer.state.items():
                if any(m.dim() and m.shape != p.shape for m in moments.values() if torch.is_tensor(m)):
                    raise ValueError("a moment of another shape")  # torch's fused AdamW would write beyond its end
        if state.scaler.is_enabled() and tensors["scaler"]:
            state.scaler.load_state_dict(tensors["scaler"])
        if "weights" in tensors:  # of older versions, whose model.safetensors had a moving average of them
            state.model.load_state_dict(tensors["weights"])
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CheckpointError(
            f"{saved.path}: training.pt does not hold the state of this optimizer ({error!r}): use another checkpoint."
        ) from error
    return last_rate
