"""Several models that translate together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Ensemble(nn.Module):
    """Several models that translate together by averaging their probabilities. They share the vocabularies."""

    def __init__(self, members: Sequence[Any]) -> None:
        super().__init__()
        # A ModuleList, so that .to() and .eval() reach the members; a table of a test is no module and needs neither.
        self.members: Sequence[Any] = (
            nn.ModuleList(members) if all(isinstance(each, nn.Module) for each in members) else list(members)  # type: ignore[assignment]
        )

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """Log-probabilities (B, T, V) in place of the logits of a model."""
        return mean_log_probs([member(source, target, source_mask, target_mask) for member in self.members])

    def start(self, source: Tensor) -> EnsembleState:
        """Let each member read source ids (B, S)."""
        return EnsembleState([member.start(source) for member in self.members])

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Log-probabilities (B W, V), and the new state; see `Transformer.step`."""
        steps = [member.step(tokens, own) for member, own in zip(self.members, state.states, strict=True)]
        return mean_log_probs([logits for logits, _ in steps]), EnsembleState([own for _, own in steps])

    def places(self, source: Tensor) -> Tensor:
        """Log-probabilities (B, N, V) in place of the logits of `EncoderOnly.places`."""
        return mean_log_probs([member.places(source) for member in self.members])

    def lengths(self, source: Tensor) -> Tensor:
        """See `EncoderOnly.lengths`."""
        return self.members[0].lengths(source)

    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """The maps of all layers of all members, (layers, B, 1, T, S). Heads are averaged: members may differ there."""
        return torch.cat([member.cross_attention(source, target).mean(2, keepdim=True) for member in self.members])


class EnsembleState(NamedTuple):
    """One state per member."""

    states: list[Any]

    def select(self, hypotheses: Tensor | None, sentences: Tensor | None) -> EnsembleState:
        """See `DecodingState.select`."""
        return EnsembleState([state.select(hypotheses, sentences) for state in self.states])


def mean_log_probs(logits: list[Tensor]) -> Tensor:
    """The logarithm of the mean of the probabilities that several logits (…, V) stand for."""
    log_probs = torch.stack([each.float().log_softmax(-1) for each in logits])
    return log_probs.logsumexp(0) - math.log(len(logits))


def alignment(model: Any, source: Tensor, target: Tensor, last: bool = False) -> Tensor:
    """How much each position of target (B, T) draws on each of source (B, S): (B, T, S).

    A mean over layers, heads, and the members of an ensemble. last: of the last layers alone
    """
    members = model.members if isinstance(model, Ensemble) else [model]
    maps = [member.cross_attention(source, target) for member in members]
    return torch.stack([(layers[-1:] if last else layers).mean((0, 2)) for layers in maps]).mean(0)
