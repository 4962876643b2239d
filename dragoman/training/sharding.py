"""Save and restore a model that FSDP has sharded.

Each rank has a block of the rows of every tensor, in the order of the ranks. To save, it copies its blocks to the CPU
and writes them as a file while training continues. Rank 0 joins the files of all ranks into tensors as one process has
them, so a checkpoint does not depend on the number of ranks. The files are safetensors: nothing is unpickled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dragoman.storage import replacing
from dragoman.tensors import check_finite, first_names
from dragoman.training.background import Background
from dragoman.training.state import TrainingState

Write = Callable[[dict[str, Tensor], dict[str, Any]], None]  # of weights, and of the state of an optimizer
POLL_SECONDS = 0.05
WEIGHT, MOMENT = "weight", "moment"  # how the names of tensors in the files begin


def save(state: TrainingState, folder: Path, write: Write) -> Background:
    """Copy the blocks of this rank, and start to write and join them. All ranks must call this.

    Args:
        folder: an empty one that all ranks see
        write: called on rank 0 with the whole tensors

    Raises NotFiniteError if a block of this rank holds NaN or an infinite value.
    """
    named = {f"{WEIGHT} {name}": tensor for name, tensor in state.model.state_dict().items()}
    optimizer = state.optimizer.state_dict()
    for number, moments in optimizer["state"].items():
        named |= {f"{MOMENT} {number} {key}": tensor for key, tensor in moments.items()}
    blocks = {name: _block(tensor).to("cpu", copy=True) for name, tensor in named.items()}
    check_finite(blocks)
    sharded = frozenset(name for name, tensor in named.items() if _is_sharded(tensor))
    with torch.device("meta"):
        shared = first_names(state.new_model().state_dict())  # tensors with several names are stored once

    def work() -> None:
        import safetensors.torch

        with replacing(folder / f"{state.ranks.rank}.safetensors") as path:
            safetensors.torch.save_file(blocks, path)
        if state.ranks.is_first:
            whole = _joined(folder, state.ranks.world_size, sharded)
            weights = {name: whole.pop(f"{WEIGHT} {name}") for name in dict.fromkeys(shared.values())}
            numbered: dict[int, dict[str, Tensor]] = {}
            for name in [name for name in whole if name.startswith(MOMENT)]:
                _, number, key = name.split(" ")
                numbered.setdefault(int(number), {})[key] = whole.pop(name)
            write(weights, {**optimizer, "state": numbered})

    return Background(work)


def _joined(folder: Path, ranks: int, sharded: frozenset[str]) -> dict[str, Tensor]:
    """Wait for the files of all ranks, and return the whole tensors."""
    from safetensors import safe_open

    paths = [folder / f"{rank}.safetensors" for rank in range(ranks)]
    while not all(path.exists() for path in paths):
        time.sleep(POLL_SECONDS)
    files = [safe_open(path, "pt") for path in paths]
    return {
        name: torch.cat([file.get_tensor(name) for file in files]) if name in sharded else files[0].get_tensor(name)
        for name in files[0].keys()  # noqa: SIM118  (it is no dictionary)
    }


def load_weights(state: TrainingState, weights: dict[str, Tensor]) -> None:
    """Load whole weights, the same on every rank."""
    own = state.model.state_dict()
    state.model.load_state_dict({name: _sharded_like(own[name], whole) for name, whole in weights.items()})


def load_optimizer(state: TrainingState, saved: dict[str, Any]) -> None:
    """Load the whole state of an optimizer, the same on every rank."""
    parameters = [parameter for group in state.optimizer.param_groups for parameter in group["params"]]
    moments = {
        number: {key: _sharded_like(parameters[number], whole) if whole.dim() else whole for key, whole in each.items()}
        for number, each in saved["state"].items()
    }
    state.optimizer.load_state_dict({**saved, "state": moments})


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")


def _block(tensor: Any) -> Tensor:
    return tensor.to_local() if _is_sharded(tensor) else tensor


def _sharded_like(own: Any, whole: Tensor) -> Tensor:
    """Of a whole tensor, the block that this rank has of another one of that shape."""
    if not _is_sharded(own):
        return whole
    if own.shape != whole.shape:
        raise ValueError("a tensor of another shape")
    from torch.distributed.tensor import distribute_tensor

    # src_data_rank=None: nothing is sent, because every rank has the whole tensor.
    return distribute_tensor(whole.to(own.device), own.device_mesh, own.placements, src_data_rank=None)
