"""The encoder-only model: it writes all words of a translation at once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.architectures import ctc
from dragoman.architectures.decoder_only import Stack
from dragoman.dataset import padding_mask
from dragoman.model import Encoder, init_weights, record_attention, tie_weights
from dragoman.settings import PAD, ModelConfig


class EncoderOnly(nn.Module):
    """The encoder-only model: all words of the translation in a single pass, without a search.

    After Libovický & Helcl 2018, "End-to-End Non-Autoregressive Neural Machine Translation with CTC". A projection
    splits the encoder's state of each source token into several places for target tokens. Further layers, in which all
    places see one another, decide what each place holds: a token or nothing. `ctc` explains how such places spell a
    sentence, and how that is learned.
    """

    def __init__(self, settings: ModelConfig, source_size: int, target_size: int) -> None:
        """See `Transformer`. There is no target embedding, because no word depends on the one before it."""
        super().__init__()
        self.settings = settings
        self.encoder = Encoder(source_size, settings)
        self.split = nn.Linear(settings.d_model, settings.upsampling * settings.d_model)
        self.decoder = Stack(settings)
        self.projection = nn.Linear(settings.d_model, target_size, bias=False)
        init_weights(self)
        tie_weights(settings.tie, self.projection, self.encoder.embedding, None)

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """Logits (B, N, V) of all places; the target is ignored."""
        return self.projection(self.states(source, target, source_mask, target_mask))

    def states(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """The states of all places, (B, N, D), where N is `upsampling` times S; the target is ignored."""
        return self._states(source, source_mask)

    def _states(self, source: Tensor, mask: Tensor) -> Tensor:
        places = self.split(self.encoder(source, mask)).unflatten(2, (self.settings.upsampling, -1)).flatten(1, 2)
        mask = mask.repeat_interleave(self.settings.upsampling, 3)  # (B, 1, 1, N)
        places = self.encoder.embedding.placed(places, mask[:, 0, 0])  # without them, training stalls
        angles = self.encoder.embedding.angles(0, places.shape[1])
        return self.decoder(places, mask, angles)[0]

    def encode(self, source: Tensor) -> Tensor:
        """See `Transformer.encode`."""
        return self.encoder(source, padding_mask(source))

    def places(self, source: Tensor) -> Tensor:
        """Logits (B, N, V) of what each place holds; `ctc.BLANK` means nothing."""
        return self.projection(self._states(source, padding_mask(source)))

    def lengths(self, source: Tensor) -> Tensor:
        """The number of places of each sentence of source ids (B, S): (B)."""
        return self.settings.upsampling * (source != PAD).sum(1)

    @torch.no_grad()
    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """Where the place of each next token of target (B, T) looks, per source token: (layers, B, H, T, S).

        No token follows the last one, so its row repeats the row of the last token itself.
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
        return looked[:, torch.arange(len(at), device=at.device)[:, None], :, at].permute(2, 0, 3, 1, 4)
