"""A trained encoder-decoder as ONNX graphs: one that reads a source, and one that takes a step of a search."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim

from dragoman.dataset import padding_mask, source_batch
from dragoman.export.weights import BATCH, POSITIONS, Batch, bans, ended, places
from dragoman.model import KeysValues, Starts, Transformer, sinusoid
from dragoman.settings import EOS, SOS


class OnnxEncoder(nn.Module):
    """Source ids (B, S) to what the decoder's layers L look at: keys and values (L, 2, B, H, S, K)."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> Tensor:
        """As `Transformer.start`."""
        states = self.model.encoder(source, padding_mask(source))
        return torch.stack([torch.stack(each) for each in self.model.decoder.memory(states)])


class OnnxDecoder(nn.Module):
    """The last token (B, 1) to the logits of the next one (B, V), and keys and values of all so far.

    These are past (L, 2, B, H, T, K), to begin with of no position at all, and come back as (L, 2, B, H, T + 1, K).
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("banned", bans(model.projection.out_features))
        self.last = len(places(model.decoder.embedding)) - 1

    def forward(self, token: Tensor, source: Tensor, memory: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """As `Transformer.step`."""
        decoder, mask = self.model.decoder, padding_mask(source)
        start = Starts(torch.full_like(token, past.shape[4]), self.last)
        x, turns = decoder.embedding(token, start), decoder.embedding.turns(start, 1)
        seen = []
        for layer, looked_at, before in zip(decoder.layers, memory, past, strict=True):
            x, own = layer(x, None, KeysValues(*looked_at), mask, KeysValues(*before), turns)
            seen.append(torch.stack(own))
        # Of three dimensions, for of two it becomes a Gemm, and onnxruntime's quantizer turns that one's matrix around,
        # though it may be the table of the embedding, too.
        logits = self.model.projection(decoder.norm(x))[:, 0]
        return logits + self.banned, torch.stack(seen)


def save_onnx(model: Transformer, folder: Path) -> None:
    """Write encoder.onnx and decoder.onnx, the latter one step of a search that keeps what it has computed."""
    for embedding in (model.encoder.embedding, model.decoder.embedding):  # no table grows within a graph
        embedding.positions = sinusoid(POSITIONS, embedding.positions.shape[1])
    most = len(places(model.encoder.embedding))
    batch, length, past_length = Dim("batch"), Dim("source", max=most), Dim("past")
    encoder, decoder = OnnxEncoder(model).eval(), OnnxDecoder(model).eval()
    source, token = torch.full((2, 5), EOS), torch.full((2, 1), SOS)
    memory = encoder(source)
    past = torch.zeros_like(memory[..., :3, :])
    ids = {0: batch, 1: length}
    save_graph(encoder, {"source": source}, ["memory"], {"source": ids}, folder / "encoder.onnx")
    given = {"token": token, "source": source, "memory": memory, "past": past}
    sizes = {"token": {0: batch}, "source": ids, "memory": {2: batch, 4: length}, "past": {2: batch, 4: past_length}}
    save_graph(decoder, given, ["logits", "present"], sizes, folder / "decoder.onnx")


def save_graph(
    module: nn.Module, inputs: dict[str, Tensor], outputs: list[str], sizes: dict[str, Any], path: Path
) -> None:
    """Write one graph with inputs and outputs of these names; sizes says which dimensions of an input may vary."""
    # strict: len() of a tensor, as it stands in the model, stays a size that may vary.
    with quiet():
        program = torch.export.export(module, tuple(inputs.values()), dynamic_shapes=sizes, strict=True)
        torch.onnx.export(
            program, (), str(path), input_names=list(inputs), output_names=outputs, dynamo=True, external_data=False,
            verbose=False,
        )  # fmt: skip


@contextmanager
def quiet() -> Iterator[None]:
    """Within, libraries keep to themselves what they would tell those who develop them."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def quantize_onnx(folder: Path) -> None:
    """Let onnxruntime put int8 matrices in place of float32 ones; embeddings stay as they are."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # pyright: ignore[reportMissingImports]

    for name in ("encoder", "decoder"):
        exact = folder / f"{name}.float32.onnx"
        (folder / f"{name}.onnx").rename(exact)
        with quiet():
            quantize_dynamic(exact, folder / f"{name}.onnx", weight_type=QuantType.QInt8, per_channel=True)
        exact.unlink()


def open_onnx(folder: Path) -> Callable[[Batch, int], list[list[int]]]:
    """`Opened.greedy` by onnxruntime and a greedy search."""
    import onnxruntime  # pyright: ignore[reportMissingImports]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions: list[Any] = [
        onnxruntime.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    ]
    encoder, decoder = sessions

    def greedy(sentences: Batch, limit: int) -> list[list[int]]:
        found = []
        for start in range(0, len(sentences), BATCH):
            source = source_batch(sentences[start : start + BATCH]).numpy()
            [memory] = encoder.run(None, {"source": source})
            past, tokens = memory[..., :0, :], [np.full((len(source), 1), SOS)]
            while len(tokens) <= limit and not all((row == EOS).any() for row in np.hstack(tokens)):
                given = {"token": tokens[-1], "source": source, "memory": memory, "past": past}
                logits, past = decoder.run(None, given)
                tokens.append(logits.argmax(1)[:, None])
            found += [ended(row) for row in np.hstack(tokens)[:, 1:].tolist()]
        return found

    return greedy
