"""Make the model that model.architecture names."""

from __future__ import annotations

from dragoman.architectures.decoder_only import DecoderOnly
from dragoman.architectures.encoder_only import EncoderOnly
from dragoman.model import Transformer
from dragoman.settings import ModelConfig


def build_model(settings: ModelConfig, source_size: int, target_size: int) -> Transformer | DecoderOnly | EncoderOnly:
    """Make a model of settings.architecture with fresh weights. Raises ValueError as `Transformer` does."""
    match settings.architecture:
        case "encoder-decoder":
            return Transformer(settings, source_size, target_size)
        case "decoder-only":
            return DecoderOnly(settings, source_size, target_size)
        case "encoder-only":
            return EncoderOnly(settings, source_size, target_size)
