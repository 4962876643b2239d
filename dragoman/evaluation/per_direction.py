"""Evaluation of models that translate in several directions; their sources carry tags like ">>en-it<<"."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.dataset import Pair
from dragoman.directions import Direction, by_direction, split_tag, tagged
from dragoman.evaluation.metrics import Measurements, tokenization
from dragoman.settings import DataConfig
from dragoman.text.cleaning import clean
from dragoman.translation.translator import Translator


def bleu_by_direction(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], data: DataConfig
) -> dict[Direction, float]:
    """The BLEU of each direction; empty for a model of one direction."""
    return {
        direction: Measurements(
            [translations[i] for i in which], [references[i] for i in which], tokenization(data, direction.target)
        ).bleu.score()
        for direction, which in indices_by_direction(sources, data).items()
    }


def tokenizations(sources: Sequence[str], data: DataConfig) -> list[str]:
    """Return BLEU's tokenization for the translation of each source."""
    names = [tokenization(data, data.target_lang)] * len(sources)
    for direction, which in indices_by_direction(sources, data).items():
        for i in which:
            names[i] = tokenization(data, direction.target)
    return names


def indices_by_direction(sources: Sequence[str], data: DataConfig) -> dict[Direction, list[int]]:
    """The indices of the sources of each direction; empty for a model of one direction."""
    return by_direction(sources, Direction(data.source_lang or "", data.target_lang)) if data.several else {}


def clean_source(source: str, data: DataConfig) -> str:
    """Clean a source for a run with these settings. Its tag stays, because language names can have capitals."""
    direction, text = split_tag(source) if data.several else (None, source)
    return tagged(clean(text, data), direction) if direction else clean(source, data)


def select_pairs(
    pairs: Sequence[Pair], translator: Translator, target_lang: str | None, source_lang: str | None
) -> list[Pair]:
    """The pairs into `target_lang` and from `source_lang`; None: any. Raises ConfigError for unknown languages."""
    translator.request("", target_lang or "", source_lang or "")  # raises the error
    sources = [source for source, _ in pairs]
    indices = indices_by_direction(sources, translator.config.data) or {translator.usual: list(range(len(pairs)))}
    selected = sorted(
        i
        for direction, which in indices.items()
        if target_lang in (None, direction.target) and source_lang in (None, direction.source)
        for i in which
    )
    return [pairs[i] for i in selected]
