"""Untrusted checkpoints and prepared data: they load and work, or end in one of our errors.

Accidents change bytes under a hash that no longer fits. Forgers change what the bytes mean, and make the hashes fit.
"""

from __future__ import annotations

import io
import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dragoman import checkpoint, dataset, train
from dragoman.corpora import preparation
from dragoman.serialization import sealed
from dragoman.settings import Config
from dragoman.training import saving, starting
from dragoman.translation import loading
from dragoman.translation.translator import Translator
from faults import untrained
from fuzz.harness import survive
from fuzz.mutations import damaged, forged, forged_json, forged_settings, forged_zip, spliced

pytestmark = pytest.mark.slow
FILES = sorted({*loading.BUNDLE, *loading.CONVENTIONS, checkpoint.MANIFEST})
OF_DATA = [
    "report.json", "train.source.npy", "train.target.offsets.npy", "source.tokenizer.json", "target.conventions.json",
    "validation.tsv", "test.tsv",
]  # fmt: skip


class Run:
    """An untrained run, whose files can be replaced and are put back."""

    def __init__(self, folder: Path) -> None:
        words = {"tokenizer__kind": "bpe", "tokenizer__vocab_size": 300, "training__max_epochs": None}
        self.folder = untrained.run(folder, training__max_steps=2, decoding__max_length=3, **words)
        self.step = untrained.newest(self.folder)
        self.files = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        self.data = preparation.load(self.folder / "data")

    def restore(self) -> None:
        for path, data in self.files.items():
            if not path.exists() or path.read_bytes() != data:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("fuzzed"))


def forged_file(name: str, data: bytes, draw: random.Random) -> bytes:
    """A file of a checkpoint with another meaning in the same form."""
    if draw.random() < 0.15:
        return damaged(data, draw)
    match Path(name).suffix:
        case ".json":
            return forged_json(data, draw) if draw.random() < 0.8 else spliced(data.decode(), draw, JSON_PARTS).encode()
        case ".yaml":
            return forged_settings(data.decode(), draw).encode(errors="surrogatepass")
        case ".safetensors":
            return forged_weights(data, draw)
        case ".pt":
            return forged_state(data, draw)
        case ".npy":
            return forged_array(data, draw)
    return damaged(data, draw)


JSON_PARTS = (
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    '"',
    "\\",
    "\\ud800",
    "[" * 5000,
    '{"":' * 5000,
    "1e999",
    "NaN",
    "-",
    "9" * 5000,
    "null",
)


def forged_weights(data: bytes, draw: random.Random) -> bytes:
    """Safetensors of other names, shapes, types, offsets or values; the length of the header fits, or does not."""
    size = struct.unpack("<Q", data[:8])[0]
    header, values = json.loads(data[8 : 8 + size]), data[8 + size :]
    match draw.randrange(4):
        case 0:
            values = damaged(values, draw)
        case 1:
            one, other = draw.sample(sorted(header.keys() - {"__metadata__"}), 2)
            header[one], header[other] = header[other], header[one]
        case _:
            header = forged(header, draw)
    text = json.dumps(header).encode()
    size = draw.choice([len(text)] * 9 + [0, len(text) - 1, len(text) + 1, 2**40, 2**64 - 1])
    return struct.pack("<Q", size) + text + values


def forged_state(data: bytes, draw: random.Random) -> bytes:
    """The optimizer's state with other tensors and numbers, or another archive of them."""
    if draw.random() < 0.5:
        return forged_zip(data, draw, lambda name, content: damaged(content, draw))
    tree = forged(torch.load(io.BytesIO(data), weights_only=True), draw)
    stream = io.BytesIO()
    torch.save(_with_other_tensors(tree, draw), stream)
    return stream.getvalue()


def _with_other_tensors(tree: Any, draw: random.Random) -> Any:
    if isinstance(tree, dict):
        return {key: _with_other_tensors(value, draw) for key, value in tree.items()}
    if not isinstance(tree, torch.Tensor) or draw.random() < 0.8:
        return tree
    stretched = torch.zeros(1).expand(draw.choice([2, 2**20, 2**40]))
    others = [tree.double(), tree.int(), tree.flatten(), tree[None], tree * torch.nan, tree.to(torch.complex64)]
    return draw.choice([*others, torch.zeros(0), stretched, tree.to_sparse(), 1.0])


def forged_array(data: bytes, draw: random.Random) -> bytes:
    """An array of another type, shape or content; or a header that says so."""
    array = np.load(io.BytesIO(data))
    stream = io.BytesIO()
    match draw.randrange(4):
        case 0:
            header = spliced(
                data[10:128].decode("latin-1"), draw, ["(", ")", "'", ",", "9" * 30, "|O", "<f8", "True", "1e9", "-1"]
            )
            return data[:10] + header.encode("latin-1", "replace")[:118].ljust(118) + data[128:]
        case 1:
            np.save(stream, array.astype(draw.choice(["<i8", "<f4", "<u1", "<U3", "?", "<c8", ">i4"])))
        case 2:
            np.save(
                stream, draw.choice([array[:0], array[::-1], array[None], np.append(array, array), array[:7], array[0]])
            )
        case _:
            changed = array.copy()
            changed[draw.randrange(len(array))] = draw.choice([0, 1, 7, 299, 300, 2**15])
            np.save(stream, changed)
    return stream.getvalue()


def change_step(run: Run, names: list[str], draw: random.Random) -> None:
    """Change files of the checkpoint: by accident, or forged with hashes that fit."""
    by_accident = draw.random() < 0.15
    chosen = {draw.choice(names) for _ in range(draw.choice([1, 1, 1, 2]))}
    for name in sorted(chosen, key=lambda name: (name == checkpoint.MANIFEST, name)):  # it has the hashes of the others
        data = run.files[run.step / name]
        if by_accident:
            (run.step / name).write_bytes(damaged(data, draw))
        elif name == checkpoint.MANIFEST:
            whole = json.loads((run.step / name).read_bytes())
            manifest = forged({key: value for key, value in whole.items() if key != "sha256"}, draw)
            data = sealed(manifest) if isinstance(manifest, dict) else json.dumps(manifest).encode()
            (run.step / name).write_bytes(data)
        elif draw.random() < 0.05:
            untrained.forge(run.step, {name: run.files[run.step / draw.choice(FILES)]})
        else:
            untrained.forge(run.step, {name: forged_file(name, data, draw)})


@pytest.mark.parametrize("name", FILES)
def test_checkpoints_that_translate(run: Run, name: str) -> None:
    """Guards `dragoman translate` and all other programs that load a model: nothing in it takes them down."""
    run.restore()

    def attempt(draw: random.Random) -> None:
        run.restore()
        change_step(run, [name, *FILES] if draw.random() < 0.05 else [name], draw)
        translator = Translator(run.folder, engine="auto" if draw.random() < 0.1 else "torch", overrides=SHORT)
        translator.translate(["the cat sees the dog.", "The CAT sees https://x.org"])

    survive(f"checkpoint {name}", 250, attempt)


SHORT = ["--decoding.max_length", "3", "--decoding.beam_size", "2"]


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors", "state.json", "training.pt"])
def test_checkpoints_that_are_resumed(run: Run, name: str) -> None:
    """Guards the resume of a training, up to the first update of the weights."""
    run.restore()
    own = checkpoint.read(run.step)
    config = starting.with_saved_settings(Config(), own)

    def attempt(draw: random.Random) -> None:
        run.restore()
        change_step(run, [name], draw)
        saved = checkpoint.newest(run.folder / "checkpoints", quarantine=False, warn=lambda _: None)
        assert saved
        mine = starting.with_saved_settings(config, saved)
        starting.check_resume(mine, saved)
        train.progress_of(saved)
        state = train.build_state(mine, run.folder, run.data, torch.device("cpu"), torch.float32)
        saving.restore(state, saved)
        for parameter in state.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        state.optimizer.step()

    survive(f"resumed {name}", 200, attempt)


@pytest.mark.parametrize("name", OF_DATA)
def test_prepared_data(run: Run, name: str) -> None:
    """Guards the files that a preparation wrote: damage ends in a DataError, not in a wrong batch or a traceback."""
    run.restore()

    def attempt(draw: random.Random) -> None:
        run.restore()
        path = run.folder / "data" / name
        path.write_bytes(forged_file(name, run.files[path], draw))
        found = preparation.load(path.parent)
        batch = dataset.make_batch(found.train, np.arange(len(found.train)))
        assert 0 <= int(batch.source.min()) <= int(batch.source.max())

    survive(f"prepared {name}", 150, attempt)
