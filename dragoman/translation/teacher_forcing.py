"""What a model makes of sentence pairs that are given: scores, alignments, attention maps and embeddings.

Pairs are token ids, both sides without [SOS] and [EOS].

Shapes: B batch, T target positions, S source positions, D model width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from dragoman.architectures import ctc
from dragoman.architectures.ensemble import alignment
from dragoman.dataset import masks, source_batch
from dragoman.device import autocast
from dragoman.settings import EOS, PAD, SOS
from dragoman.text.cleaning import clean
from dragoman.translation.constraints import BATCH_TOKENS, batches_by_length, target_room
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece, encode_translation
from dragoman.translation.results import Candidate, normalizer

Pair = tuple[list[int], list[int]]
Result = TypeVar("Result")


def score_texts(trained: TrainedModel, pairs: Sequence[tuple[Piece, str]]) -> list[Candidate | str]:
    """Each text as a translation of a piece, with its scores; or why the model cannot score it."""
    texts = [clean(translation, trained.config.data) for _, translation in pairs]
    encoded = [encode_translation(trained, text, piece) for text, (piece, _) in zip(texts, pairs, strict=True)]
    ids = [(piece.ids, target) for (piece, _), (target, _) in zip(pairs, encoded, strict=True)]
    reasons = [why_too_long(trained, pair) for pair in ids]
    log_probs = iter(token_log_probs(trained, [pair for pair, reason in zip(ids, reasons, strict=True) if not reason]))

    def scored(text: str, target: list[int], words: list[str], log_probs: list[float]) -> Candidate:
        score = sum(log_probs) / normalizer(len(log_probs), trained.config.decoding)
        return Candidate(text, target, [*map(trained.target.label, words), "[EOS]"], log_probs, score, True, {})

    rows = zip(reasons, texts, encoded, strict=True)
    return [reason or scored(text, *translation, next(log_probs)) for reason, text, translation in rows]


def why_too_long(trained: TrainedModel, pair: Pair) -> str | None:
    """Why the model cannot read this pair; None if it can."""
    source, target = pair
    if len(target) >= target_room(trained, len(source)):
        return "this pair is longer than the positions of the model (model.max_positions)."
    if trained.writes_at_once and ctc.needed(target) > trained.config.model.upsampling * (len(source) + 1):
        return (
            f"a translation of {len(target)} tokens does not fit into the places for {len(source)} source tokens "
            "(model.upsampling), so it has no score."
        )
    return None


def _token_log_probs(trained: TrainedModel, pairs: Sequence[Pair]) -> list[list[float]]:
    """The log-probability of each target token of each pair, [EOS] included."""
    model = trained.model.eval()
    source, target = _padded(trained, pairs)
    with torch.inference_mode(), autocast(trained.device, trained.dtype):
        if trained.writes_at_once:
            log_probs = model.places(source).float().log_softmax(-1)  # type: ignore[operator]
            lengths = model.lengths(source)  # type: ignore[operator]
            wanted = target[:, 1:]
            path = ctc.forced_path(log_probs, lengths, wanted, (wanted != PAD).sum(1))
            rows = zip(log_probs, lengths.tolist(), [ids for _, ids in pairs], path, strict=True)
            return [ctc.by_token(*row) for row in rows]
        log_probs = model(source, target, *masks(source, target)).float().log_softmax(-1)
        following = torch.cat((target[:, 1:], torch.full_like(target[:, :1], PAD)), 1)
        ended = torch.arange(target.shape[1]) == torch.tensor([len(ids) for _, ids in pairs])[:, None]
        following = following.masked_fill(ended.to(trained.device), EOS)
        chosen = log_probs.gather(2, following[:, :, None])[:, :, 0].tolist()
    return [row[: len(ids) + 1] for row, (_, ids) in zip(chosen, pairs, strict=True)]


def token_log_probs(trained: TrainedModel, pairs: Sequence[Pair]) -> list[list[float]]:
    """The log-probability of each target token of each pair, in nats, that of [EOS] last."""
    return _in_batches(pairs, lambda batch: _token_log_probs(trained, batch))


def alignments(trained: TrainedModel, pairs: Sequence[Pair], last: bool = False) -> list[np.ndarray]:
    """How strongly each target token is aligned with each source token: (T, S) per pair; (0, 0) if a side is empty.

    last: in the last layer, instead of the mean over all layers
    """

    def of_batch(batch: Sequence[Pair]) -> list[np.ndarray]:
        given = _padded(trained, batch)
        with torch.inference_mode(), autocast(trained.device, trained.dtype):
            maps = alignment(trained.model, *given, last=last).float().cpu().numpy()
        return [weights[: len(target), : len(source)] for weights, (source, target) in zip(maps, batch, strict=True)]

    maps = iter(_in_batches([pair for pair in pairs if all(pair)], of_batch))
    return [next(maps) if all(pair) else np.zeros((0, 0), np.float32) for pair in pairs]


def attention(trained: TrainedModel, source: list[int], target: list[int]) -> Tensor:
    """Where each target token looked in the source and its [EOS]: (layers, heads, T, S)."""
    given = _padded(trained, [(source, target)])
    with torch.inference_mode(), autocast(trained.device, trained.dtype):
        maps = trained.model.cross_attention(*given)
    return maps[:, 0, :, : len(target)].float().cpu()


def embeddings(trained: TrainedModel, pairs: Sequence[Pair], owners: Sequence[int], texts: int) -> Tensor:
    """The mean of the states of the source tokens of each text, (texts, D); of a language model, of the target tokens.

    Pair k belongs to text owners[k]. A text without pairs is zeros.
    """
    model: Any = trained.model.eval()
    sums, counts = torch.zeros(texts, trained.config.model.d_model), torch.zeros(texts, 1)
    for batch in batches_by_length([1 + len(source) + len(target) for source, target in pairs], BATCH_TOKENS):
        source, target = _padded(trained, [pairs[k] for k in batch])
        with torch.inference_mode(), autocast(trained.device, trained.dtype):
            if trained.config.is_language_model:
                states, tokens = model.states(source, target, *masks(source, target)), target
            else:
                states, tokens = model.encode(source), source
        real = tokens != PAD
        text = torch.tensor([owners[k] for k in batch])
        sums.index_add_(0, text, (states.float() * real[:, :, None]).sum(1).cpu())
        counts.index_add_(0, text, real.sum(1, keepdim=True).float().cpu())
    return sums / counts.clamp(min=1)


def _in_batches(pairs: Sequence[Pair], compute: Callable[[Sequence[Pair]], Iterable[Result]]) -> list[Result]:
    """What `compute` returns for each pair, when it is given batches of pairs of similar length."""
    results: dict[int, Result] = {}
    for batch in batches_by_length([1 + max(map(len, pair)) for pair in pairs], BATCH_TOKENS):
        results.update(zip(batch, compute([pairs[k] for k in batch]), strict=True))
    return [results[k] for k in range(len(pairs))]


def _padded(trained: TrainedModel, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """Source ids (B, S) with [EOS], and target ids (B, 1 + T) with [SOS], both padded."""
    source = source_batch([ids for ids, _ in pairs])
    longest = max(len(ids) for _, ids in pairs)
    target = torch.tensor([[SOS, *ids, *[PAD] * (longest - len(ids))] for _, ids in pairs])
    return source.to(trained.device), target.to(trained.device)
