"""A trained encoder-decoder as two ONNX graphs: one encodes a source, the other takes one step of a search."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim

from dragoman.architectures.portable_weights import POSITIONS, banned_bias, position_table
from dragoman.dataset import padding_mask, source_batch
from dragoman.export.loaded import BATCH_SIZE, Batch, Greedy, until_eos
from dragoman.model import KeysValues, RowPositions, Transformer, sinusoid
from dragoman.settings import EOS, SOS


class OnnxEncoder(nn.Module):
    """Map source ids (B, S) to the keys and values (L, 2, B, H, S, K) that the L decoder layers attend to."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> Tensor:
        """Do what `Transformer.start` does."""
        states = self.model.encoder(source, padding_mask(source))
        return torch.stack([torch.stack(each) for each in self.model.decoder.memory(states)])


class OnnxDecoder(nn.Module):
    """Map the last token (B, 1) to logits of the next one (B, V) and to the keys and values of all tokens so far.

    The latter come in as past (L, 2, B, H, T, K), with T = 0 at first, and go out as (L, 2, B, H, T + 1, K).
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("banned", banned_bias(model.projection.out_features))
        self.last = len(position_table(model.decoder.embedding)) - 1

    def forward(self, token: Tensor, source: Tensor, memory: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Do what `Transformer.step` does."""
        decoder, mask = self.model.decoder, padding_mask(source)
        start = RowPositions(torch.full_like(token, past.shape[4]), self.last)
        x, angles = decoder.embedding(token, start), decoder.embedding.angles(start, 1)
        seen = []
        for layer, looked_at, before in zip(decoder.layers, memory, past, strict=True):
            x, own = layer(x, None, KeysValues(*looked_at), mask, KeysValues(*before), angles)
            seen.append(torch.stack(own))
        # Keep three dimensions here. With two, this becomes a Gemm, whose matrix onnxruntime's quantizer transposes,
        # although the embedding may use the same matrix.
        logits = self.model.projection(decoder.norm(x))[:, 0]
        return logits + self.banned, torch.stack(seen)


def save_onnx(model: Transformer, folder: Path) -> None:
    """Write encoder.onnx and decoder.onnx. This enlarges the model's tables of positions in place."""
    for embedding in (model.encoder.embedding, model.decoder.embedding):  # inside a graph, a table cannot grow
        embedding.positions = sinusoid(POSITIONS, embedding.positions.shape[1])
    most = len(position_table(model.encoder.embedding))
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
    """Write one graph with these names of inputs and outputs; `sizes` says which dimensions of an input may vary."""
    # With strict=True, len() of a tensor in the model stays a size that may vary.
    with quiet():
        program = torch.export.export(module, tuple(inputs.values()), dynamic_shapes=sizes, strict=True)
        torch.onnx.export(
            program, (), str(path), input_names=list(inputs), output_names=outputs, dynamo=True, external_data=False,
            verbose=False,
        )  # fmt: skip


@contextmanager
def quiet() -> Iterator[None]:
    """Context manager: hide warnings that libraries print for their developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def quantize_onnx(folder: Path) -> None:
    """Replace the float32 matrices by int8 ones, with onnxruntime; embeddings stay float32."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # pyright: ignore[reportMissingImports]

    for name in ("encoder", "decoder"):
        exact = folder / f"{name}.float32.onnx"
        (folder / f"{name}.onnx").rename(exact)
        with quiet():
            quantize_dynamic(exact, folder / f"{name}.onnx", weight_type=QuantType.QInt8, per_channel=True)
        exact.unlink()


def load_onnx(folder: Path) -> Greedy:
    """Return `LoadedExport.greedy` of onnxruntime and a greedy search."""
    import onnxruntime  # pyright: ignore[reportMissingImports]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions: list[Any] = [
        onnxruntime.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    ]
    encoder, decoder = sessions

    def greedy(sentences: Batch, limit: int) -> list[list[int]]:
        translations = []
        for start in range(0, len(sentences), BATCH_SIZE):
            source = source_batch(sentences[start : start + BATCH_SIZE]).numpy()
            [memory] = encoder.run(None, {"source": source})
            past, tokens = memory[..., :0, :], [np.full((len(source), 1), SOS)]
            while len(tokens) <= limit and not all((row == EOS).any() for row in np.hstack(tokens)):
                given = {"token": tokens[-1], "source": source, "memory": memory, "past": past}
                logits, past = decoder.run(None, given)
                tokens.append(logits.argmax(1)[:, None])
            translations += [until_eos(row) for row in np.hstack(tokens)[:, 1:].tolist()]
        return translations

    return greedy
