"""A whole corpus in memory, which the program itself reads in portions."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.corpora.sources import SPLITS, Source
from dragoman.corpora.splitting import PairCounts, check_splits, read_portions
from dragoman.dataset import Pair
from dragoman.settings import DataConfig


def read_corpus(
    sources: Sequence[Source], data: DataConfig
) -> tuple[dict[str, list[Pair]], dict[str, PairCounts], list[float]]:
    """Read everything into memory: the pairs and counts by split, and the weight of each training pair."""
    portions = list(read_portions(sources, data))
    pairs = {split: [pair for portion in portions for pair in portion.pairs[split]] for split in SPLITS}
    counts = {split: sum((portion.counts[split] for portion in portions), PairCounts()) for split in SPLITS}
    weights = [portion.weight for portion in portions for _ in portion.pairs["train"]]
    trained = {direction for portion in portions for direction in portion.trained_directions}
    check_splits(counts, trained, data)
    return pairs, counts, weights
