"""dragoman.architectures.decoder_only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.model import (
    Embedding,
    EncoderLayer,
    KeysValues,
    Model,
    Starts,
    State,
    causal_mask,
    final_norm,
    matrix_weights,
    padding_mask,
    record_attention,
)
from dragoman.settings import PAD, ModelConfig


def prefix_mask(prefix: int, length: int, device: torch.device | None = None) -> Tensor:
    """Let everyone look at the first so many positions, and beyond them at nothing later: (T, T)."""
    mask = causal_mask(length, device)
    mask[:, :prefix] = True
    return mask


# ------------------------------------------------------------------------------------------------------------ siblings


class Stack(nn.Module):
    """Layers of self-attention without an embedding of their own: all that the models below have for a decoder."""

    def __init__(self, settings: ModelConfig) -> None:
        super().__init__()
        self.layers: Sequence[EncoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            EncoderLayer(settings) for _ in range(settings.decoder_layers)
        )
        self.norm = final_norm(settings)

    def forward(
        self, x: Tensor, mask: Tensor, turns: Tensor | None, past: list[KeysValues] | None = None
    ) -> tuple[Tensor, list[KeysValues]]:
        """Embedded tokens x (B, T, D) to states, and every layer's keys and values up to here."""
        seen: list[KeysValues] = []
        for i, layer in enumerate(self.layers):
            x, own = layer(x, mask, turns, past[i] if past else None)
            seen.append(own)
        return self.norm(x), seen


class DecoderOnly(Model):
    """The decoder-only model (Radford et al. 2018, "GPT"): one stack goes on writing where the source ends.

    The sequence is the source, its [EOS], and the target, whose [SOS] parts the two. Among the tokens of the source all
    see one another (Liu et al. 2018, "Generating Wikipedia", has them see the earlier ones alone; Raffel et al. 2020
    compare), and the target sees the source and what it has written so far. With an empty source this is a language
    model. In a batch the padding of shorter sources stands amid the sequence: no one sees it, and it counts for no
    position.
    """

    def __init__(self, settings: ModelConfig, source_size: int, target_size: int) -> None:
        """As `Transformer`."""
        super().__init__(settings)
        self.source_embedding = Embedding(source_size, settings)
        self.embedding = Embedding(target_size, settings)
        if settings.positions == "learned":  # of the one sequence
            self.source_embedding.learned = self.embedding.learned
        self.decoder = Stack(settings)
        self.projection = nn.Linear(settings.d_model, target_size, bias=False)
        self._begin(self.source_embedding, self.embedding)

    def states(self, source: Tensor, target: Tensor) -> Tensor:
        """As `Model.states`: those of the target alone, for only the target is to be learnt."""
        read, length = source.shape[1], target.shape[1]
        start = Starts((source != PAD).sum(1, keepdim=True), read)  # each target begins where its source ends
        x = torch.cat((self.source_embedding(source), self.embedding(target, start)), 1)  # (B, S + T, D)
        mask = prefix_mask(read, read + length, x.device) & padding_mask(torch.cat((source, target), 1))
        turns = self._turns(source, start, length)
        return self.decoder(x, mask, turns)[0][:, read:]

    def _turns(self, source: Tensor, start: Starts, length: int) -> Tensor | None:
        of_source, of_target = self.source_embedding.turns(0, source.shape[1]), self.embedding.turns(start, length)
        if of_source is None or of_target is None:
            return None
        return torch.cat((of_source.expand(len(source), 1, -1, -1), of_target), 2)  # (B, 1, S + T, K)

    def read(self, source: Tensor) -> Tensor:
        """As `Model.read`."""
        return self._read(source)[0]

    def _read(self, source: Tensor) -> tuple[Tensor, list[KeysValues]]:
        turns = self.source_embedding.turns(0, source.shape[1])
        return self.decoder(self.source_embedding(source), padding_mask(source), turns)

    def products(self) -> tuple[int, int]:
        """As `Model.products`."""
        stack = matrix_weights(self.decoder)
        return stack, stack + self.projection.weight.numel()

    def start(self, source: Tensor) -> State:
        """As `Model.start`."""
        return State([], padding_mask(source), self._read(source)[1])

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """As `Model.step`."""
        assert state.past is not None
        mask, start = next_position(state, len(tokens))
        turns = self.embedding.turns(start, 1)
        states, past = self.decoder(self.embedding(tokens[:, None], start), mask, turns, state.past)
        return self.projection(states[:, 0]), state._replace(past=past)

    @torch.no_grad()
    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """As `Model.cross_attention`."""
        with record_attention([layer.attention for layer in self.decoder.layers]) as maps:
            self.states(source, target)
        return torch.stack(maps)[..., source.shape[1] :, : source.shape[1]]


def next_position(state: State, hypotheses: int) -> tuple[Tensor, Starts]:
    """For the next token of each of so many hypotheses of a decoder-only model: what it may see, (B W, 1, 1, S + T),
    and its position."""
    assert state.past is not None
    mask, seen = state.memory_mask, state.past[0].keys.shape[2]
    before = seen - mask.shape[3]  # tokens of the target
    start = mask.sum((1, 2, 3))[:, None] + before  # (B, 1)
    mask = F.pad(mask, (0, before + 1), value=True)
    mask, start = (each.repeat_interleave(hypotheses // len(each), 0) for each in (mask, start))
    return mask, Starts(start, seen)
