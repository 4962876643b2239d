"""Checkpoints with made-up files, and a small model with every kind of weight, for the tests of what is saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dragoman import checkpoint

FILES = (
    "model.safetensors",
    "config.yaml",
    "source.tokenizer.json",
    "target.tokenizer.json",
    "training.pt",
    "state.json",
)


def contents(mark: int) -> dict[str, bytes]:
    """The six files of a checkpoint, different for each mark."""
    return {name: f"{name} {mark} ".encode() * 50 for name in FILES}


def silent(message: str) -> None:
    raise AssertionError(f"an unexpected warning: {message}")


def newest_files(root: Path, quarantine: bool = False, warn: Callable[[str], None] = silent) -> dict[str, bytes]:
    found = checkpoint.newest(root, quarantine, warn)
    assert found is not None
    return found.files


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def snapshot(root: Path) -> dict[str, Any]:
    """Everything below a folder: names, kinds, contents."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        if path.is_file() and path.stat().st_size < 2**20
        else (path.lstat().st_mode, path.lstat().st_size)
        for path in sorted(root.rglob("*"))
    }


class Tied(nn.Module):
    """A bf16 and an fp32 matrix, an integer buffer, a transposed view, and one matrix under two names."""

    def __init__(self, seed: int = 0, vocabulary: int = 7) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embedding = nn.Embedding(vocabulary, 4)
        self.coarse = nn.Linear(4, 3, dtype=torch.bfloat16)
        self.generator = nn.Linear(4, vocabulary, bias=False)
        self.transposed = nn.Parameter(torch.empty(5, 4).t())
        self.register_buffer("counts", torch.arange(3) + seed)
        self.generator.weight = self.embedding.weight
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))


def bits(state: dict[str, Tensor]) -> dict[str, tuple[torch.dtype, bytes]]:
    return {name: (t.dtype, t.contiguous().flatten().view(torch.uint8).numpy().tobytes()) for name, t in state.items()}


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x04
    path.write_bytes(data)
