"""The decoder-only model: one stack of layers that reads the source and then writes the target."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.dataset import masks, padding_mask
from dragoman.model import (
    DecodingState,
    Embedding,
    EncoderLayer,
    KeysValues,
    RowPositions,
    final_norm,
    init_weights,
    record_attention,
    tie_weights,
)
from dragoman.settings import PAD, ModelConfig


def prefix_mask(source_mask: Tensor, target_mask: Tensor) -> Tensor:
    """Join source_mask (B, 1, 1, S) and target_mask (B, 1, T, T) for one sequence, source first: (B, 1, S+T, S+T).

    Source tokens see the whole source. Target tokens see the source, and of the target what target_mask allows.
    """
    read, written = source_mask.shape[3], target_mask.shape[3]
    of_source = F.pad(source_mask, (0, written)).expand(-1, -1, read, -1)  # (B, 1, S, S+T)
    of_target = torch.cat((source_mask.expand(-1, -1, written, -1), target_mask), 3)  # (B, 1, T, S+T)
    return torch.cat((of_source, of_target), 2)


class Stack(nn.Module):
    """Layers of self-attention without an embedding: the decoder of the decoder-only and the encoder-only model."""

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        self.layers: Sequence[EncoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            EncoderLayer(settings) for _ in range(settings.decoder_layers)
        )
        self.norm = final_norm(settings)

    def forward(
        self, x: Tensor, mask: Tensor, angles: Tensor | None, past: list[KeysValues] | None = None
    ) -> tuple[Tensor, list[KeysValues]]:
        """Map embedded tokens x (B, T, D) to states, and return each layer's keys and values so far."""
        seen: list[KeysValues] = []
        for i, layer in enumerate(self.layers):
            x, own = layer(x, mask, angles, past[i] if past else None)
            seen.append(own)
        return self.norm(x), seen


class DecoderOnly(nn.Module):
    """The decoder-only model (Radford et al. 2018, "GPT"): one stack continues where the source ends.

    The sequence is the source, its [EOS], and the target, whose [SOS] separates the two. Source tokens all see one
    another, as in Raffel et al. 2020 (in Liu et al. 2018, "Generating Wikipedia", they see only earlier ones). Target
    tokens see the source and the target so far. With an empty source this is a language model. In a batch, the padding
    of shorter sources lies in the middle of the sequence: it is never seen, and takes up no position.
    """

    def __init__(self, settings: ModelConfig, source_size: int, target_size: int) -> None:
        """See `Transformer`."""
        super().__init__()
        self.settings = settings
        self.source_embedding = Embedding(source_size, settings)
        self.embedding = Embedding(target_size, settings)
        if settings.positions == "learned":  # source and target are one sequence
            self.source_embedding.learned = self.embedding.learned
        self.decoder = Stack(settings)
        self.projection = nn.Linear(settings.d_model, target_size, bias=False)
        init_weights(self)
        tie_weights(settings.tie, self.projection, self.source_embedding, self.embedding)

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """See `Transformer.forward`."""
        return self.projection(self.states(source, target, source_mask, target_mask))

    def states(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """The states of the target alone, (B, T, D): training does not ask for the source. See `Transformer.states`."""
        read, length = source.shape[1], target.shape[1]
        start = RowPositions((source != PAD).sum(1, keepdim=True), read)  # each target starts where its source ends
        x = torch.cat((self.source_embedding(source), self.embedding(target, start)), 1)  # (B, S+T, D)
        angles = self._angles(source, start, length)
        return self.decoder(x, prefix_mask(source_mask, target_mask), angles)[0][:, read:]

    def _angles(self, source: Tensor, start: RowPositions, length: int) -> Tensor | None:
        """The angles of rotary positions of source and target, (B, 1, S+T, K); None for other positions."""
        of_source, of_target = self.source_embedding.angles(0, source.shape[1]), self.embedding.angles(start, length)
        if of_source is None or of_target is None:
            return None
        return torch.cat((of_source.expand(len(source), 1, -1, -1), of_target), 2)

    def encode(self, source: Tensor) -> Tensor:
        """See `Transformer.encode`."""
        return self._encode(source)[0]

    def _encode(self, source: Tensor) -> tuple[Tensor, list[KeysValues]]:
        angles = self.source_embedding.angles(0, source.shape[1])
        return self.decoder(self.source_embedding(source), padding_mask(source), angles)

    def start(self, source: Tensor) -> DecodingState:
        """See `Transformer.start`."""
        return DecodingState([], padding_mask(source), self._encode(source)[1])

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """See `Transformer.step`."""
        assert state.past is not None
        mask, start = next_position(state, len(tokens))
        angles = self.embedding.angles(start, 1)
        states, past = self.decoder(self.embedding(tokens[:, None], start), mask, angles, state.past)
        return self.projection(states[:, 0]), state._replace(past=past)

    @torch.no_grad()
    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """Where the target looks in the source, see `Transformer.cross_attention`.

        Rows sum to less than 1, because the target also looks at itself.
        """
        with record_attention([layer.attention for layer in self.decoder.layers]) as maps:
            self.states(source, target, *masks(source, target))
        return torch.stack(maps)[..., source.shape[1] :, : source.shape[1]]


def next_position(state: DecodingState, hypotheses: int) -> tuple[Tensor, RowPositions]:
    """The mask (B W, 1, 1, S+T) and the position of the next token of each of B W hypotheses."""
    assert state.past is not None
    mask, seen = state.memory_mask, state.past[0].keys.shape[2]
    before = seen - mask.shape[3]  # tokens of the target so far
    start = mask.sum((1, 2, 3))[:, None] + before  # (B, 1)
    mask = F.pad(mask, (0, before + 1), value=True)
    mask, start = (each.repeat_interleave(hypotheses // len(each), 0) for each in (mask, start))
    return mask, RowPositions(start, seen)
