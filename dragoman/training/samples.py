"""Show the same few validation sentences at every validation, in TensorBoard and in the run's folder."""

from __future__ import annotations

import torch

from dragoman.architectures.build import Model
from dragoman.settings import EOS, SOS
from dragoman.storage import replace_durably
from dragoman.training import tensorboard
from dragoman.training.state import TrainingState
from dragoman.translation.translator import Translator

COUNT = 8  # validation sentences
MAX_MAP = 40  # tokens per side of an attention map


def show_translations(
    state: TrainingState, translator: Translator, model: Model, rows: list[tuple[str, str, str]]
) -> None:
    """Show some (source, reference, translation) rows, and the attention map of the shortest."""
    assert state.writer is not None
    chosen = rows[:: max(1, len(rows) // COUNT)][:COUNT]
    _write(state, ("source", "reference", "translation"), chosen)

    # A map of a long sentence is neither readable nor small, so the shortest is drawn, cut if need be.
    shortest = min(chosen, key=lambda row: len(row[0]))
    data, device = state.data, translator.device
    settings = state.config.model
    # Encoded again, a translation may have more tokens than it was written with, and than the model has positions for.
    most = min(MAX_MAP, settings.max_positions // 2 - 1) if settings.positions == "learned" else MAX_MAP
    source = data.source.encode(shortest[0])[:most]
    target = data.target.encode(shortest[2])[:most]
    weights = model.cross_attention(
        torch.tensor([[*source, EOS]], device=device), torch.tensor([[SOS, *target]], device=device)
    )
    weights = weights[:, 0].mean(1)  # (layers, T, S), over the heads
    names = [*data.source.pieces(source), "[EOS]"], [*data.target.pieces(target), "[EOS]"]
    figure = tensorboard.attention_figure(weights, *names)
    state.writer.add_figure("under the hood/attention", figure, state.progress.step)


def show_continuations(state: TrainingState, translator: Translator) -> None:
    """Show how a language model continues the beginnings of some validation texts, sampling at random."""
    texts = [text for _, text in state.data.validation]
    chosen = texts[:: max(1, len(texts) // COUNT)][:COUNT]
    beginnings = [" ".join(words[: max(1, len(words) // 3)]) for words in map(str.split, chosen)]
    sampling = translator.with_decoding(sample=True, beam_size=1)
    rows = list(zip(beginnings, chosen, sampling.translate(beginnings), strict=True))
    _write(state, ("beginning", "text", "continued"), rows)


def _write(state: TrainingState, heads: tuple[str, str, str], rows: list[tuple[str, str, str]]) -> None:
    """Write rows to TensorBoard and to a text file."""
    assert state.writer is not None
    step = state.progress.step
    width = max(map(len, heads)) + 2
    blocks = ("".join(f"{head:<{width}}{text}\n" for head, text in zip(heads, row, strict=True)) for row in rows)
    text = "\n".join(blocks)
    state.writer.add_text("samples", tensorboard.indented(text), step)
    folder = state.directory / "samples"
    folder.mkdir(exist_ok=True)
    replace_durably(folder / f"step-{step:08d}.txt", text.encode())
