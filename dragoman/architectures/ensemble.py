"""Several models that translate together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dragoman.model import State


class Ensemble(nn.Module):
    """Several models that translate together, by the mean of their probabilities; they share the vocabularies."""

    def __init__(self, members: Sequence[Any]) -> None:
        super().__init__()
        # A ModuleList, so that .to() and .eval() reach the members; engines are no modules and need neither.
        self.members: Sequence[Any] = (
            nn.ModuleList(members) if all(isinstance(each, nn.Module) for each in members) else list(members)  # type: ignore[assignment]
        )

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Log-probabilities (B, T, V), as logits of `Model.forward`."""
        return mean_log_probs([member(source, target) for member in self.members])

    def start(self, source: Tensor) -> EnsembleState:
        """Read source ids (B, S), each model for itself."""
        return EnsembleState([member.start(source) for member in self.members])

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Log-probabilities (B W, V), and the state, as `Model.step`."""
        steps = [member.step(tokens, own) for member, own in zip(self.members, state.states, strict=True)]
        return mean_log_probs([logits for logits, _ in steps]), EnsembleState([own for _, own in steps])

    def places(self, source: Tensor) -> Tensor:
        """Log-probabilities (B, N, V), as logits of `EncoderOnly.places`."""
        return mean_log_probs([member.places(source) for member in self.members])  # type: ignore[operator]

    def lengths(self, source: Tensor) -> Tensor:
        """As `EncoderOnly.lengths`."""
        return self.members[0].lengths(source)  # type: ignore[operator]

    @property
    def step_bytes(self) -> int:
        """Bytes of weights that a step reads, for the largest member. The members must be engines."""
        return max(member.step_bytes for member in self.members)

    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """The members' maps, (layers of all, B, 1, T, S); heads are averaged, for models may differ in their number."""
        return torch.cat([member.cross_attention(source, target).mean(2, keepdim=True) for member in self.members])

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """The mean of the members' alignments, (B, T, S)."""
        return torch.stack([member.alignment(source, target) for member in self.members]).mean(0)


class EnsembleState(NamedTuple):
    """The states of the members."""

    states: list[State]

    def select(self, hypotheses: Tensor | None, sentences: Tensor | None) -> EnsembleState:
        """As `State.select`."""
        return EnsembleState([state.select(hypotheses, sentences) for state in self.states])


def mean_log_probs(logits: list[Tensor]) -> Tensor:
    """The logarithm of the mean of the probabilities that logits (…, V) stand for."""
    log_probs = torch.stack([each.float().log_softmax(-1) for each in logits])
    return log_probs.logsumexp(0) - math.log(len(logits))
