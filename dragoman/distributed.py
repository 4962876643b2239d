"""Several processes that train one model together, as torchrun starts them.

    torchrun --nproc-per-node 4 train.py --config config.yaml

Each of them, a rank, has a device of its own and computes its share of the rows of every batch; their gradients are
added up before each update. So the update, the order of the data, and the checkpoints are those of a single process,
whatever the number of ranks. The first rank writes, reports and validates; the others are silent.

Everything here does nothing where there is only one process, which needs neither torchrun nor a network.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dragoman.errors import DeviceError, RankError

T = TypeVar("T")
# How long a rank waits for the others. They wait while the first one prepares data or validates; one that has died
# is noticed by torchrun at once, however long this is.
PATIENCE = timedelta(hours=6)


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together."""

    index: int = 0
    count: int = 1
    local: int = 0  # number of this process on its machine, which is that of its GPU

    @classmethod
    def of_environment(cls) -> Ranks:
        """What torchrun tells the processes that it starts; a process started by itself is alone."""
        return cls(*(int(os.environ.get(name, default)) for name, default in NAMES.items()))

    @property
    def first(self) -> bool:
        """Whether this is the one that writes, reports and validates."""
        return self.index == 0

    def own(self, device: torch.device) -> torch.device:
        """The device of this rank, where all are asked to use a kind of device. Raises DeviceError."""
        if self.count == 1 or device.type == "cpu":
            return device
        if device.type != "cuda" or device.index is not None:
            raise DeviceError(
                f"{self.count} ranks cannot share the device {device}: set training.device to cuda or cpu."
            )
        if self.local >= torch.cuda.device_count():
            raise DeviceError(
                f"there are {torch.cuda.device_count()} GPUs on this machine, too few for its ranks: start as many "
                "ranks as there are GPUs."
            )
        return torch.device("cuda", self.local)

    @contextmanager
    def before_others(self) -> Iterator[None]:
        """Within, the first rank is done before the others begin."""
        if not self.first:
            self.same(None)
        yield
        if self.first:
            self.same(None)

    def same(self, value: T) -> T:
        """What the first rank gives here, on all of them; meanwhile they wait for it."""
        if self.count == 1:
            return value
        held = [value]
        with lost():
            dist.broadcast_object_list(held, 0, device=torch.device("cpu"))
        return held[0]

    def most(self, *numbers: float) -> list[float]:
        """The largest of each of these numbers on any rank."""
        return self._reduced(numbers, dist.ReduceOp.MAX)

    def sums(self, *numbers: float) -> list[float]:
        """The sum over all ranks of each of these numbers."""
        return self._reduced(numbers, dist.ReduceOp.SUM)

    def _reduced(self, numbers: tuple[float, ...], how: Any) -> list[float]:
        if self.count == 1:
            return list(numbers)
        held = torch.tensor(numbers, dtype=torch.float64)
        with lost():
            dist.all_reduce(held, how)
        return held.tolist()


NAMES = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0}


@contextmanager
def joined(ranks: Ranks, device: torch.device) -> Iterator[None]:
    """Within, the ranks can reach one another, and the first one alone speaks on standard output.

    NCCL carries what lies on GPUs, gloo the rest.
    """
    if ranks.count == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with lost():
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    with open(os.devnull, "w") as nowhere, nullcontext() if ranks.first else redirect_stdout(nowhere):
        yield
    # After an error no farewell: the others may be in the middle of something, and would be waited for.
    dist.destroy_process_group()


@contextmanager
def lost() -> Iterator[None]:
    """Raise RankError for an error of the network between the ranks."""
    try:
        yield
    except dist.DistError as error:
        raise RankError(_reason(error)) from error
    except RuntimeError as error:  # gloo has no class of its own
        if not any(name in str(error) for name in ("gloo", "Gloo", "NCCL", "Connection")):
            raise
        raise RankError(_reason(error)) from error


def _reason(error: Exception) -> str:
    return (
        f"another rank has ended or cannot be reached ({' '.join(str(error).split())[:120]}): see what it said. "
        "The last checkpoint stands; the same command goes on from there."
    )


# ------------------------------------------------------------------------------------------------ one model on them all


def replicated(module: nn.Module, ranks: Ranks, device: torch.device) -> nn.Module:
    """The module to be called in place of this one: its backward pass averages the gradients over the ranks.

    Buckets of gradients travel while the rest of the backward pass is computed (Li et al. 2020, "PyTorch Distributed").
    """
    if ranks.count == 1:
        return module
    on = [device] if device.type == "cuda" else None
    with lost(), warnings.catch_warnings():
        # The table of positions, a buffer, grows on each rank with its own sentences. torch 2.13 has a new name for
        # this setting, which 2.11 does not know.
        warnings.simplefilter("ignore", FutureWarning)
        return nn.parallel.DistributedDataParallel(module, on, broadcast_buffers=False, gradient_as_bucket_view=True)


def sharded(module: nn.Module, layers: Iterable[nn.Module], ranks: Ranks, device: torch.device) -> nn.Module:
    """The module, with its weights dealt out: each rank keeps a part of each, and of its gradient and moments (Zhao et
    al. 2023, "PyTorch FSDP").

    The weights of a layer come together on every rank when the layer is called, and part again behind it. Its
    gradients are averaged over the ranks. Raises as `joined` does.
    """
    # Takes a second to import, and few need it.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")  # none is changed
    mesh = init_device_mesh(device.type, (ranks.count,))
    with lost():
        for layer in layers:
            for part in layer.children():
                if hasattr(part, "keys_values"):  # is called by itself, too: by a decoder, of its memory
                    fully_shard(part, mesh=mesh)
                    register_fsdp_forward_method(part, "keys_values")
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
    return module


def whole(value: Any) -> Any:
    """A tensor, or what holds tensors, at whatever depth, with those brought together that are dealt out to ranks.

    All ranks have to call this; the result lies in the memory of the CPU.
    """
    if isinstance(value, Mapping):
        return {key: whole(part) for key, part in value.items()}
    if hasattr(value, "full_tensor"):
        with lost():
            return value.full_tensor().cpu()
    return value


def dealt(value: Any, like: Any) -> Any:
    """A tensor, dealt out to the ranks as that other one is, whose shape it has; any other value as it is."""
    if not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor  # see `sharded`

    # Every rank has it whole, and takes its own part of it.
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def without_exchange(module: nn.Module) -> AbstractContextManager[None]:
    """Within, backward passes leave each rank its own gradients; the next one outside averages what has gathered."""
    return module.no_sync() if isinstance(module, nn.parallel.DistributedDataParallel) else nullcontext()
