"""Models of other programs, which benchmarks compare with ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from common import ROOT  # noqa: F401  # it sets sys.path
from torch import Tensor, nn

from dragoman import dataset
from dragoman.corpora.preparation import PreparedData
from dragoman.settings import EOS, PAD, SOS, ModelConfig


class Tutorial(nn.Module):
    """The model of PyTorch's translation tutorial: nn.Transformer with sinusoidal positions and embeddings."""

    def __init__(self, shape: ModelConfig, source: int, target: int) -> None:
        """Build a model with vocabularies of these sizes."""
        super().__init__()
        self.width = shape.d_model
        self.source, self.target = nn.Embedding(source, self.width), nn.Embedding(target, self.width)
        self.dropout = nn.Dropout(0.1)
        table = torch.zeros(256, self.width)
        angle = torch.arange(256)[:, None] * torch.exp(torch.arange(0, self.width, 2) * (-np.log(10000) / self.width))
        table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
        self.register_buffer("table", table)
        self.body = nn.Transformer(
            shape.d_model, shape.n_heads, shape.encoder_layers, shape.decoder_layers, shape.d_ff, 0.1, batch_first=True
        )
        self.projection = nn.Linear(self.width, target)

    def embed(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        """Map ids (B, T) to embeddings with positions (B, T, D)."""
        return self.dropout(embedding(ids) * self.width**0.5 + self.table[: ids.shape[1]])  # type: ignore[index]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Map source (B, S) and target (B, T) to logits (B, T, V)."""
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], source.device).isinf()
        x, y = self.embed(self.source, source), self.embed(self.target, target)
        hidden = source == PAD
        states = self.body(
            x, y, tgt_mask=causal, src_key_padding_mask=hidden, tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=hidden,
        )  # fmt: skip
        return self.projection(states)


def tutorial_batches(data: PreparedData) -> Iterator[dataset.Batch]:
    """Yield batches as the tutorial makes them: 128 pairs in random order, whatever their lengths."""
    for epoch in range(1_000):
        order = np.random.default_rng(epoch).permutation(len(data.train))
        for start in range(0, len(order), 128):
            yield dataset.make_batch(data.train, order[start : start + 128])


def marian_model(shape: ModelConfig, source: int, target: int) -> Any:
    """Build Hugging Face's encoder-decoder, Marian, of the same shape, with vocabularies of these sizes."""
    from transformers import MarianConfig, MarianMTModel  # pyright: ignore[reportMissingImports]

    settings: dict[str, Any] = {
        "vocab_size": source, "decoder_vocab_size": target, "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False, "d_model": shape.d_model, "encoder_ffn_dim": shape.d_ff,
        "decoder_ffn_dim": shape.d_ff, "encoder_layers": shape.encoder_layers, "decoder_layers": shape.decoder_layers,
        "encoder_attention_heads": shape.n_heads, "decoder_attention_heads": shape.n_heads, "dropout": 0.1,
        "attention_dropout": 0.1, "activation_dropout": 0.1, "pad_token_id": PAD, "decoder_start_token_id": SOS,
        "eos_token_id": EOS, "activation_function": "relu", "scale_embedding": True, "attn_implementation": "sdpa",
        "max_position_embeddings": 256,
    }  # fmt: skip
    return MarianMTModel(MarianConfig(**settings))
