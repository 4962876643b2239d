"""The same few sentences at every validation: what the model makes of them, in TensorBoard and in the run's folder."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter

from dragoman.architectures.protocol import Model
from dragoman.corpora.preparation import PreparedData
from dragoman.settings import EOS, SOS
from dragoman.training import tensorboard
from dragoman.translation.translator import Translator

COUNT = 8  # validation sentences
LARGEST_MAP = 40  # tokens a side in an attention map


class Samples:
    """Shows a run at work."""

    def __init__(self, folder: Path, data: PreparedData, translator: Translator, model: Model) -> None:
        """folder is where a file of them goes for each validation; the translator is that of the model."""
        self.folder = folder
        self.data = data
        self.translator = translator
        self.model = model

    def of_translations(self, writer: SummaryWriter, step: int, lines: list[tuple[str, str, str]]) -> None:
        """Some of the validation sentences, references and translations, and where the shortest of them looked."""
        samples = lines[:: max(1, len(lines) // COUNT)][:COUNT]
        self._write(writer, step, ("source", "reference", "translation"), samples)

        # A picture of a long sentence is neither readable nor small: the shortest sample's is drawn, cut where need be.
        shortest = min(samples, key=lambda sample: len(sample[0]))
        source = self.data.source.encode(shortest[0])[:LARGEST_MAP]
        target = self.data.target.encode(shortest[2])[:LARGEST_MAP]
        device = self.translator.device
        weights = self.model.cross_attention(
            torch.tensor([[*source, EOS]], device=device), torch.tensor([[SOS, *target]], device=device)
        )
        weights = weights[:, 0].mean(1)  # (layers, T, S), over the heads
        names = [*self.data.source.pieces(source), "[EOS]"], [*self.data.target.pieces(target), "[EOS]"]
        writer.add_figure("attention", tensorboard.attention_figure(weights, *names), step)

    def of_texts(self, writer: SummaryWriter, step: int) -> None:
        """What a language model makes of the beginnings of some validation texts, drawn at random."""
        texts = [text for _, text in self.data.validation]
        chosen = texts[:: max(1, len(texts) // COUNT)][:COUNT]
        beginnings = [" ".join(words[: max(1, len(words) // 3)]) for words in map(str.split, chosen)]
        drawing = self.translator.with_decoding(sample=True, beam_size=1, diversity_groups=1)
        rows = list(zip(beginnings, chosen, drawing.translate(beginnings), strict=True))
        self._write(writer, step, ("beginning", "text", "continued"), rows)

    def _write(
        self, writer: SummaryWriter, step: int, heads: tuple[str, str, str], samples: list[tuple[str, str, str]]
    ) -> None:
        writer.add_text("samples", tensorboard.table(heads, samples), step)
        width = max(map(len, heads)) + 2
        rows = ("".join(f"{head:<{width}}{text}\n" for head, text in zip(heads, row, strict=True)) for row in samples)
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"step-{step:08d}.txt").write_text("\n".join(rows), encoding="utf-8")
