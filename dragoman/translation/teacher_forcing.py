"""What a model makes of sentence pairs that are given: scores, alignments, attention maps and embeddings.

Pairs are token ids, both sides without [SOS] and [EOS].

Shapes: B batch, T target positions, S source positions, D model width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragoman.architectures import ctc
from dragoman.architectures.ensemble import alignment
from dragoman.dataset import masks, source_batch
from dragoman.device import autocast
from dragoman.errors import DataError
from dragoman.settings import EOS, PAD, SOS
from dragoman.text.cleaning import clean
from dragoman.translation.constraints import BATCH_TOKENS, batches_by_length, target_room
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece, encode_piece, encode_translation
from dragoman.translation.request import Request
from dragoman.translation.results import Candidate, normalizer

Pair = tuple[list[int], list[int]]


def score_pairs(trained: TrainedModel, pairs: Sequence[tuple[Request, str]], first: int) -> list[Candidate]:
    """Score given translations, see `Translator.score`. The first pair has the number `first` in messages."""
    pieces = [encode_piece(trained, request.text, request.direction) for request, _ in pairs]
    scored = score_texts(trained, [(piece, text) for piece, (_, text) in zip(pieces, pairs, strict=True)])
    candidates = []
    for number, candidate in enumerate(scored, first):
        if isinstance(candidate, str):
            raise DataError(f"text {number}: {candidate}")
        candidates.append(candidate)
    return candidates


def score_texts(trained: TrainedModel, pairs: Sequence[tuple[Piece, str]]) -> list[Candidate | str]:
    """Each text as a translation of a piece, with its scores; or why the model cannot score it."""
    texts = [clean(translation, trained.config.data) for _, translation in pairs]
    encoded = [encode_translation(trained, text, piece) for text, (piece, _) in zip(texts, pairs, strict=True)]
    ids = [(piece.ids, target) for (piece, _), (target, _) in zip(pairs, encoded, strict=True)]
    results: dict[int, Candidate | str] = {
        i: reason for i, pair in enumerate(ids) if (reason := why_too_long(trained, pair))
    }
    fitting = [i for i in range(len(ids)) if i not in results]
    for batch in _batches([ids[i] for i in fitting]):
        chosen = [fitting[k] for k in batch]
        for i, log_probs in zip(chosen, _token_log_probs(trained, [ids[i] for i in chosen]), strict=True):
            score = sum(log_probs) / normalizer(len(log_probs), trained.config.decoding)
            labels = [*map(trained.target.label, encoded[i][1]), "[EOS]"]
            results[i] = Candidate(texts[i], ids[i][1], labels, log_probs, score, True, {})
    return [results[i] for i in range(len(ids))]


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
    by_pair: dict[int, list[float]] = {}
    for batch in _batches(pairs):
        by_pair.update(zip(batch, _token_log_probs(trained, [pairs[k] for k in batch]), strict=True))
    return [by_pair[k] for k in range(len(pairs))]


def alignments(trained: TrainedModel, pairs: Sequence[Pair], last: bool = False) -> list[np.ndarray]:
    """How strongly each target token is aligned with each source token: (T, S) per pair; (0, 0) if a side is empty.

    last: in the last layer, instead of the mean over all layers
    """
    maps = [np.zeros((0, 0), np.float32) for _ in pairs]
    some = [i for i, pair in enumerate(pairs) if all(pair)]
    for batch in _batches([pairs[i] for i in some]):
        chosen = [some[k] for k in batch]
        given = _padded(trained, [pairs[i] for i in chosen])
        with torch.inference_mode(), autocast(trained.device, trained.dtype):
            weights = alignment(trained.model, *given, last=last).float().cpu().numpy()
        for i, each in zip(chosen, weights, strict=True):
            source, target = pairs[i]
            maps[i] = each[: len(target), : len(source)]
    return maps


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
                states, tokens = model.read(source), source
        real = tokens != PAD
        text = torch.tensor([owners[k] for k in batch])
        sums.index_add_(0, text, (states.float() * real[:, :, None]).sum(1).cpu())
        counts.index_add_(0, text, real.sum(1, keepdim=True).float().cpu())
    return sums / counts.clamp(min=1)


def _batches(pairs: Sequence[Pair]) -> Iterator[list[int]]:
    """The indices of pairs, in batches of similar length."""
    return batches_by_length([1 + max(map(len, pair)) for pair in pairs], BATCH_TOKENS)


def _padded(trained: TrainedModel, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """Source ids (B, S) with [EOS], and target ids (B, 1 + T) with [SOS], both padded."""
    source = source_batch([ids for ids, _ in pairs])
    longest = max(len(ids) for _, ids in pairs)
    target = torch.tensor([[SOS, *ids, *[PAD] * (longest - len(ids))] for _, ids in pairs])
    return source.to(trained.device), target.to(trained.device)
