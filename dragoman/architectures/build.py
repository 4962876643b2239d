"""The models, by model.architecture.

All have `states`, `encode` and `cross_attention`. To translate, `Transformer` and `DecoderOnly` also have `start` and
`step`, and `EncoderOnly` has `places` and `lengths`, as the protocols in `dragoman.translation.search` require.
"""

from __future__ import annotations

from dragoman.architectures.decoder_only import DecoderOnly
from dragoman.architectures.encoder_only import EncoderOnly
from dragoman.model import Transformer
from dragoman.settings import ModelConfig

Model = Transformer | DecoderOnly | EncoderOnly


def build_model(settings: ModelConfig, source_size: int, target_size: int) -> Model:
    """Make a model of settings.architecture with fresh weights. Raises ValueError as `Transformer` does."""
    match settings.architecture:
        case "encoder-decoder":
            return Transformer(settings, source_size, target_size)
        case "decoder-only":
            return DecoderOnly(settings, source_size, target_size)
        case "encoder-only":
            return EncoderOnly(settings, source_size, target_size)
