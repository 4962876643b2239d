"""The encoder-only model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.architectures import ctc
from dragoman.architectures.decoder_only import Stack
from dragoman.model import Encoder, Model, matrix_weights, padding_mask, record_attention
from dragoman.settings import PAD, ModelConfig


class EncoderOnly(Model):
    """The encoder-only model: all words of the translation at once, in a single pass.

    After Libovický & Helcl 2018, "End-to-End Non-Autoregressive Neural Machine Translation with CTC". The state that
    the encoder has of each source token is split into several, which are places for target tokens. Further layers, in
    which all places see one another, decide what stands at each: a token, or nothing. `ctc` tells how a sentence is
    learnt, and read, from places of which most are empty.
    """

    def __init__(self, settings: ModelConfig, source_size: int, target_size: int) -> None:
        """As `Transformer`. There is no embedding of the target, for no word waits for the one before it."""
        super().__init__(settings)
        self.encoder = Encoder(source_size, settings)
        self.split = nn.Linear(settings.d_model, settings.upsampling * settings.d_model)
        self.decoder = Stack(settings)
        self.projection = nn.Linear(settings.d_model, target_size, bias=False)
        self._begin(self.encoder.embedding, None)

    def states(self, source: Tensor, target: Tensor | None = None) -> Tensor:
        """The states of all places, (B, N, D): N is `upsampling` times S. The target is not looked at."""
        mask = padding_mask(source)
        places = self.split(self.encoder(source, mask)).unflatten(2, (self.settings.upsampling, -1)).flatten(1, 2)
        mask = mask.repeat_interleave(self.settings.upsampling, 3)  # (B, 1, 1, N)
        places = self.encoder.embedding.placed(places, mask[:, 0, 0])  # without them, it hardly begins to learn
        turns = self.encoder.embedding.turns(0, places.shape[1])
        return self.decoder(places, mask, turns)[0]

    def read(self, source: Tensor) -> Tensor:
        """As `Model.read`."""
        return self.encoder(source, padding_mask(source))

    def places(self, source: Tensor) -> Tensor:
        """Logits (B, N, V) of what stands at each place, `ctc.BLANK` being nothing."""
        return self.projection(self.states(source))

    def lengths(self, source: Tensor) -> Tensor:
        """How many places each sentence of source ids (B, S) has: (B)."""
        return self.settings.upsampling * (source != PAD).sum(1)

    def products(self) -> tuple[int, int]:
        """As `Model.products`: a target token costs nothing, and a source token its places."""
        each = matrix_weights(self.decoder) + self.projection.weight.numel()
        return matrix_weights(self.encoder.layers) + matrix_weights(self.split) + self.settings.upsampling * each, 0  # type: ignore[arg-type]

    @torch.no_grad()
    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """Where the place of each next token of target (B, T) looks, by source token: (layers, B, H, T, S).

        Behind the last token stands no other, and its row is that of the token itself.
        """
        with record_attention([layer.attention for layer in self.decoder.layers]) as maps:
            log_probs = self.places(source).float().log_softmax(-1)
        wanted = F.pad(target[:, 1:], (0, 1), value=PAD)  # without [SOS]
        tokens = (wanted != PAD).sum(1)
        path = ctc.forced_path(log_probs, self.lengths(source), wanted, tokens)
        at = ctc.first_places(path, wanted.shape[1])  # (B, T)
        last = (tokens - 1).clamp(min=0)[:, None]
        at = torch.where(torch.arange(at.shape[1], device=at.device) > last, at.gather(1, last), at)
        looked = torch.stack(maps).unflatten(4, (-1, self.settings.upsampling)).sum(5)  # (layers, B, H, N, S)
        return looked[:, torch.arange(len(at))[:, None], :, at].permute(2, 0, 3, 1, 4)
