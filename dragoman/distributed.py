"""Train one model with several processes, started by `processes` on one machine and by torchrun on several.

    python train.py --config config.yaml --training.ranks 4

Each process, a rank, has its own device and computes its share of the rows of every batch. Gradients are summed over
the ranks before each update, so the updates, the order of the data and the checkpoints are those of a single process,
whatever the number of ranks. Rank 0 writes, reports and validates; the others print nothing.

On one machine, no port is open beyond loopback. torchrun and the connections between machines have no password: they
need a private network. Ranks exchange tensors and JSON; nothing is unpickled here.

With a single process every function here does nothing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from dragoman import console
from dragoman.errors import CheckpointError, DeviceError, RankError
from dragoman.processes import STORE

T = TypeVar("T")
# How long a rank waits for the others, for example while rank 0 prepares data. The launcher notices a dead process at
# once, however long this is, and `watched` limits a step.
TIMEOUT = timedelta(hours=24)
ANSWER_SECONDS = 3.0  # in which ranks that wait, too, say so
SHARED_SECONDS = 60.0  # in which a file system shows a machine what another one has written: NFS caches names so long


@dataclass(frozen=True)
class Ranks:
    """This process and how many train together."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0  # number of this process on its machine, and of its GPU

    @classmethod
    def from_environment(cls) -> Ranks:
        """Read the variables that the launcher sets; without them this is the only process."""
        return cls(*(int(os.environ.get(name, default)) for name, default in VARIABLES.items()))

    @property
    def is_first(self) -> bool:
        """Whether this process writes, reports and validates."""
        return self.rank == 0

    def own_device(self, device: torch.device) -> torch.device:
        """This rank's own device of the kind that all ranks use. Raises DeviceError if there is none."""
        if self.world_size == 1 or device.type == "cpu":
            return device
        if device.type != "cuda" or device.index is not None:
            raise DeviceError(
                f"{self.world_size} ranks cannot share the device {device}: set training.device to cuda or cpu."
            )
        if self.local_rank >= torch.cuda.device_count():
            raise DeviceError(
                f"this machine has {torch.cuda.device_count()} GPUs, fewer than its ranks: start one rank per GPU."
            )
        return torch.device("cuda", self.local_rank)

    def broadcast(self, value: T) -> T:
        """Return rank 0's value, which must be as `json` reads it, on every rank."""
        if self.world_size == 1:
            return value
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        size = torch.tensor(len(data))
        dist.broadcast(size, 0)
        if not self.is_first:
            data = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(data, 0)
        return json.loads(data.numpy().tobytes())

    def maximum(self, *numbers: float) -> list[float]:
        """The maximum of each number over all ranks."""
        return self._all_reduce(numbers, dist.ReduceOp.MAX)

    def sum(self, *numbers: float) -> list[float]:
        """The sum of each number over all ranks."""
        return self._all_reduce(numbers, dist.ReduceOp.SUM)

    def _all_reduce(self, numbers: tuple[float, ...], operation: Any) -> list[float]:
        if self.world_size == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(values, operation)
        return values.tolist()


VARIABLES = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0}
LOOPBACK = {"linux": "lo", "darwin": "lo0"}  # name of the network interface by platform


@contextmanager
def process_group(ranks: Ranks, device: torch.device) -> Iterator[None]:
    """Context manager: connect the ranks, and silence standard output on all but rank 0.

    NCCL moves tensors on GPUs, gloo everything else. Errors of the network inside become RankErrors.
    """
    if ranks.world_size == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if sys.platform in LOOPBACK and os.environ.get("LOCAL_WORLD_SIZE") == str(ranks.world_size):
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = LOOPBACK[sys.platform]
    with network_errors():
        if STORE in os.environ:
            store = dist.FileStore(os.environ[STORE], ranks.world_size)  # type: ignore[attr-defined]
            dist.init_process_group(backend, timeout=TIMEOUT, store=store, world_size=ranks.world_size, rank=ranks.rank)
        else:
            dist.init_process_group(backend, timeout=TIMEOUT)
        with open(os.devnull, "w") as nowhere, nullcontext() if ranks.is_first else redirect_stdout(nowhere):
            yield
    # Not in a `finally`: after an error the other ranks may be in a collective call, and this one would wait for them.
    dist.destroy_process_group()


@contextmanager
def watched(ranks: Ranks, minutes: float) -> Iterator[Callable[[], None]]:
    """Context manager: yields a function to call at each step. If `minutes` pass without a call, this process ends.

    So nothing waits for ever for a rank that was stopped, a GPU that hangs or a link that is down. No other way ends a
    rank that waits inside a library.
    """
    last, done = time.monotonic(), threading.Event()

    def step() -> None:
        nonlocal last
        last = time.monotonic()

    def watch() -> None:
        while not done.wait(min(1.0, 6 * minutes)):
            if time.monotonic() > last + 60 * minutes:
                _end_of_waiting(ranks, minutes, str(start))

    start = ranks.broadcast(time.time())
    if ranks.world_size > 1:
        threading.Thread(target=watch, name="watch", daemon=True).start()
    try:
        yield step
    finally:
        done.set()


def _end_of_waiting(ranks: Ranks, minutes: float, start: str) -> NoReturn:
    """Say which ranks do not answer, and end this process. The first rank that answers speaks for all.

    start: the same on all ranks, but another at each start: the store of torchrun keeps its keys through a restart
    """
    names = {rank: f"waiting/{start}/{rank}" for rank in range(ranks.world_size)}
    try:
        if STORE in os.environ:
            store: Any = dist.FileStore(os.environ[STORE])  # type: ignore[attr-defined]
        else:
            address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            store = dist.TCPStore(address, port, timeout=timedelta(seconds=ANSWER_SECONDS))  # type: ignore[attr-defined]
        store.set(names[ranks.rank], "")
        time.sleep(ANSWER_SECONDS)
        silent = [rank for rank, name in names.items() if not store.check([name])]
        speaker = min(set(names) - set(silent))
    except (dist.DistError, RuntimeError):  # the link is down, or rank 0 has stopped: the store is on its machine
        silent, speaker = [0], ranks.rank
    if ranks.rank == speaker:
        who = f"rank {', '.join(map(str, silent))} does not answer" if silent else "all ranks answer"
        console.warn(
            f"error: no step for {minutes:g} minutes (training.timeout): {who}. The last checkpoint is intact; run the "
            "same command again to resume."
        )
    os._exit(RankError.exit_code)


def await_shared(path: Path, ranks: Ranks) -> None:
    """Wait until this machine sees what rank 0 has written. Raises CheckpointError if it does not."""
    end = time.monotonic() + SHARED_SECONDS
    while not path.exists():
        if time.monotonic() > end:
            raise CheckpointError(
                f"rank 0 has made {path}, but rank {ranks.rank} does not find it: set run.dir to a folder that all "
                "machines share."
            )
        time.sleep(0.1)


@contextmanager
def network_errors() -> Iterator[None]:
    """Context manager: turn an error of the network between the ranks into a RankError."""
    try:
        yield
    except dist.DistError as error:
        raise RankError(_reason(error)) from error
    except RankError:
        raise
    except RuntimeError as error:  # gloo has no class of its own
        if not any(name in str(error) for name in ("gloo", "Gloo", "NCCL", "Connection")):
            raise
        raise RankError(_reason(error)) from error


def _reason(error: Exception) -> str:
    return (
        f"another rank has ended or cannot be reached ({' '.join(str(error).split())[:120]}): see its own message. "
        "The last checkpoint is intact; run the same command again to resume."
    )


def wrap_ddp(module: nn.Module, ranks: Ranks, device: torch.device) -> nn.Module:
    """Wrap a module so that its backward pass averages the gradients over the ranks.

    Buckets of gradients are sent while the rest of the backward pass runs (Li et al. 2020, "PyTorch Distributed").
    """
    if ranks.world_size == 1:
        return module
    devices = [device] if device.type == "cuda" else None
    with warnings.catch_warnings():
        # The table of positions, a buffer, grows on each rank with its own sentences. torch 2.13 renames this argument,
        # but 2.11 does not know the new name.
        warnings.simplefilter("ignore", FutureWarning)
        return nn.parallel.DistributedDataParallel(
            module, devices, broadcast_buffers=False, gradient_as_bucket_view=True
        )


def wrap_fsdp(module: nn.Module, layers: Iterable[nn.Module], ranks: Ranks, device: torch.device) -> nn.Module:
    """Shard a module in place: each rank keeps a part of each weight, of its gradient and of its optimizer state.

    A layer gathers its weights when it is called and frees them afterwards; its gradients are averaged over the ranks
    (Zhao et al. 2023, "PyTorch FSDP"). Raises RankError if a rank cannot be reached.
    """
    # This import takes a second, and few runs need it.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")  # none is modified
    mesh = init_device_mesh(device.type, (ranks.world_size,))
    for layer in layers:
        for part in layer.children():
            if hasattr(part, "keys_values"):  # the decoder also calls this method by itself, on its memory
                fully_shard(part, mesh=mesh)
                register_fsdp_forward_method(part, "keys_values")
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


def no_sync(module: nn.Module) -> AbstractContextManager[None]:
    """Context manager: DDP keeps gradients local; the next backward pass outside averages what has accumulated."""
    return module.no_sync() if isinstance(module, nn.parallel.DistributedDataParallel) else nullcontext()


def full_model_state(model: nn.Module) -> dict[str, Any]:
    """Gather the weights of a sharded model on the CPU of rank 0; the others get {}. All ranks must call this."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
