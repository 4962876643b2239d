"""Compare the translations of an export with our own, token by token, and measure what int8 weights cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dragoman import reading
from dragoman.dataset import masks
from dragoman.errors import DataError, ExportError
from dragoman.evaluation.metrics import Measurements
from dragoman.export.loaded import LoadedExport
from dragoman.model import Transformer
from dragoman.settings import EOS, SOS
from dragoman.translation.results import Sentence
from dragoman.translation.translator import Translator

SAMPLE_SIZE = 200  # texts
TIE = 1e-3  # nats; closer than this, the last digits of float32 decide between two tokens, and they differ by engine


@dataclass(frozen=True)
class Sample:
    """Texts, their references, and our own translations: greedy, in float32, with [UNK] for unknown words."""

    sources: list[str]
    references: list[str]
    sentences: list[list[Sentence]]  # for each source
    limit: int  # tokens of a translation, including [EOS]

    @property
    def flat(self) -> list[Sentence]:
        """All sentences in one list."""
        return [sentence for of_text in self.sentences for sentence in of_text]

    @property
    def expected(self) -> list[list[int]]:
        """The token ids of our translations."""
        return [sentence.candidates[0].ids for sentence in self.flat]


def translate_sample(translator: Translator, run: Path) -> Sample:
    """Translate up to `SAMPLE_SIZE` validation pairs of the run, then test pairs if there are too few.

    Raises DataError if the run has no pairs.
    """
    pairs = []
    for split in ("validation", "test"):
        path = run / "data" / f"{split}.tsv"
        if path.exists():
            pairs += [line.split("\t") for line in reading.read(path, reading.TABLE).decode().split("\n")[:-1]]
    if not pairs:
        raise DataError(
            f"{run / 'data'} has no validation pairs, but an export is verified on them: name a run that "
            "still has its data folder."
        )
    if translator.config.data.several:  # spread the sample over all directions
        pairs = pairs[:: max(1, len(pairs) // SAMPLE_SIZE)]
    sources, references = (list(side) for side in zip(*pairs[:SAMPLE_SIZE], strict=True))
    settings = translator.config
    longest = max(len(translator.source.encode(text)) for text in sources)
    limit = min(settings.decoding.max_length, 2 * longest + 10)
    if settings.model.positions == "learned":
        limit = min(limit, settings.model.max_positions - 1)
    greedy = translator.with_decoding(
        beam_size=1, n_best=1, sample=False, max_ratio=float(limit),
        max_length=limit, no_repeat_ngram=None, precision="float32", unknown="keep", split_sentences=False,
        tolerant=False,
    )  # fmt: skip
    return Sample(sources, references, [found.sentences for found in greedy.explain(sources)], limit)


def verify(engine: LoadedExport, sample: Sample, translator: Translator) -> None:
    """Check that the engine encodes, decodes and translates the sample as we do. Raises ExportError if not."""
    flat, expected, decode = sample.flat, sample.expected, translator.target.decode
    texts = [sentence.source for sentence in flat]
    tags = set(translator.source.tags.values())  # the caller of an engine adds these
    ids = [[*sentence.ids[sentence.ids[0] in tags :], EOS] for sentence in flat]
    _require_same("the tokenizer of the export encodes", texts, ids, engine.encode(texts))
    texts_of_ours = translator.target.decode_batch(expected)
    _require_same("the tokenizer of the export decodes", expected, texts_of_ours, engine.decode(expected))
    assert isinstance(translator.model, Transformer)
    theirs_or_tie = [
        ours if is_tie(translator.model, sentence.ids, ours, theirs) else theirs
        for sentence, ours, theirs in zip(
            flat, expected, engine.greedy([sentence.ids for sentence in flat], sample.limit), strict=True
        )
    ]
    _require_same("the engine translates", texts, expected, theirs_or_tie, decode)


def _require_same(
    what: str,
    given: Sequence[Any],
    ours: Sequence[Any],
    theirs: Sequence[Any],
    show: Callable[[Any], Any] = lambda result: result,
) -> None:
    """Raise ExportError if our result and theirs differ for anything given."""
    different = [row for row in zip(given, ours, theirs, strict=True) if row[1] != row[2]]
    if different:
        first, expected, other = different[0]
        raise ExportError(
            f"{what} {len(different)} of {len(given)} sentences differently, so nothing was written. "
            f"First difference: {first!r} becomes {show(other)!r} instead of {show(expected)!r}. "
            "Choose another format with --to."
        )


def is_tie(model: Transformer, source: Sequence[int], ours: Sequence[int], theirs: Sequence[int]) -> bool:
    """Whether two different translations part at tokens that are equally likely, up to rounding in float32."""
    a, b = [*ours, EOS], [*theirs, EOS]
    parted = next((t for t, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if parted is None:  # the same, or one was cut off by its limit and the other was not
        return False
    with torch.inference_mode():
        source_ids, target_ids = torch.tensor([[*source, EOS]]), torch.tensor([[SOS, *ours[:parted]]])
        logits = model(source_ids, target_ids, *masks(source_ids, target_ids))[0, -1]
    return abs(float(logits[a[parted]] - logits[b[parted]])) < TIE


@dataclass(frozen=True)
class QuantizationCost:
    """Greedy translations with int8 weights, compared with ours in float32."""

    same: float  # share of identical sentences
    bleu: float
    bleu_float32: float
    signature: str

    def __str__(self) -> str:
        return (
            f"int8: {self.same:.1%} of the translations are the same as in float32; BLEU {self.bleu:.2f}, "
            f"against {self.bleu_float32:.2f} in float32 ({self.signature})"
        )


def measure_quantization(engine: LoadedExport, sample: Sample, tokenize: str) -> QuantizationCost:
    """Translate the sample with the engine's int8 weights; `tokenize` is BLEU's tokenizer."""
    quantized = engine.greedy([sentence.ids for sentence in sample.flat], sample.limit)
    same = sum(ours == theirs for ours, theirs in zip(sample.expected, quantized, strict=True)) / len(quantized)
    bleu = []
    for translations in (quantized, sample.expected):
        texts = iter(engine.decode(translations))
        joined = [" ".join(next(texts) for _ in of_text) for of_text in sample.sentences]
        bleu.append(Measurements(joined, sample.references, tokenize).bleu)
    return QuantizationCost(same, bleu[0].score(), bleu[1].score(), bleu[0].signature())
