"""The methods that the rest of the program uses of a model, whatever its architecture.

`Transformer`, `DecoderOnly` and `EncoderOnly` implement `Model`. To write translations, the first two also have `start`
and `step`, and the last has `places` and `lengths`, as the protocols in `dragoman.translation.search` require.

Shapes: B batch, H heads, T target positions, S source positions, D model width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, Self

from torch import Tensor, nn

from dragoman.settings import ModelConfig


class Model(Protocol):
    """A translation model: an `nn.Module` with the methods below."""

    settings: ModelConfig
    projection: nn.Linear  # states to logits, without a bias
    training: bool

    def __call__(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """Logits of the next tokens, (B, T, V): the projection of `states`."""
        ...

    def states(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """The last states before the projection: (B, T, D), or (B, N, D) for an encoder-only model.

        Args:
            source: ids (B, S), ending with [EOS], padded
            target: ids (B, T), starting with [SOS], padded; an encoder-only model ignores them
            source_mask: (B, 1, 1, S), see `dataset.padding_mask`
            target_mask: (B, 1, T, T), see `dataset.decoder_mask`
        """
        ...

    def read(self, source: Tensor) -> Tensor:
        """States (B, S, D) of source ids (B, S) by themselves."""
        ...

    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """Where each position of target (B, T) looks in source (B, S): (layers, B, H, T, S).

        Rows sum to 1, or to less in a decoder-only model, whose target also looks at itself.
        """
        ...

    # A protocol cannot inherit from nn.Module, so its methods in use are listed:

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def to(self, *args: Any, **kwargs: Any) -> Self: ...
    def train(self, mode: bool = True) -> Self: ...
    def eval(self) -> Self: ...
