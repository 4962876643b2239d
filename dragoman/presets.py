"""Presets: model size, regularization and training settings as one choice.

    name = choose(29_000)                                          # small
    changed = values_of(name, values, {"model.dropout"}, Extent())   # by dotted names, for `settings` to check
    enough_time = seconds * tokens_per_second > PER_WEIGHT * parameters(values)

The tables below are the only place of these numbers. A preset sets every key of its table except those that the user
has chosen. If a number of the table conflicts with a user's choice, the choice wins (`adapted`).

Nothing here looks at data or devices. Memory is an estimate; `train.py` tries out the largest batch before it starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

# A column for each preset, smallest first. A preset also resets what a file may have set for a model of its own.
# Muon: eight minutes on one core bring small to 32.8 BLEU, compared with 29.1 by AdamW (Multi30k validation).
# Weight decay: seventeen minutes bring small to 39.1 BLEU without, 39.9 with 0.1, 40.9 with 0.2 and 40.6 with 0.3. The
# validation loss is 1.72, 1.63, 1.58 and 1.56. It has not been measured with AdamW.
_TABLE: dict[str, tuple[Any, ...]] = {
    #                            tiny     small    base     big
    "tokenizer.vocab_size":     (2000,    8000,    8000,    16000),
    "model.d_model":            (128,     128,     256,     512),
    "model.n_heads":            (4,       4,       4,       8),
    "model.encoder_layers":     (3,       4,       4,       6),
    "model.decoder_layers":     (3,       4,       4,       6),
    "model.d_ff":               (512,     512,     1024,    2048),
    "model.dropout":            (0.3,     0.3,     0.2,     0.1),
    "training.max_epochs":      (60,      30,      20,      10),
    "training.batch_tokens":    (1024,    2048,    4096,    8192),
    "training.optimizer":       ("muon",  "muon",  "muon",  "adamw"),
    "training.weight_decay":    (0.3,     0.3,     0.3,     0.0),
    "training.lr":              (0.003,   0.005,   0.003,   0.001),
    "training.warmup_steps":    (200,     200,     1000,    4000),
    "training.validate_every":  (250,     500,     1000,    2000),
    "training.save_every":      (250,     500,     1000,    2000),
}  # fmt: skip
_COMMON: dict[str, Any] = {
    "tokenizer.kind": "bpe",
    "tokenizer.min_frequency": 2,
    "tokenizer.shared": True,
    "model.kv_heads": None,
    "model.attention_dropout": 0.0,
    "model.activation_dropout": 0.0,
    "model.norm": "pre",
    "model.tie": "all",
    "training.max_steps": None,
    "training.max_minutes": None,
    "training.plan_minutes": None,
    "training.accumulate": 1,
    "training.schedule": "linear",
    "training.decay_share": 1.0,
    "training.label_smoothing": 0.1,
}
UP_TO = {"tiny": 10_000, "small": 100_000, "base": 1_000_000, "big": math.inf}  # most training pairs, smallest first
PRESETS: dict[str, dict[str, Any]] = {
    name: _COMMON | {key: row[column] for key, row in _TABLE.items()} for column, name in enumerate(UP_TO)
}
KEYS = tuple(PRESETS["small"])  # what every preset sets
STAND_IN = "small"  # used for auto until the data are known; right for some ten thousand pairs
QUICK = ("tiny", "small")  # these learn about equally fast, so a time limit never steps down from them
ENOUGH = 1_000_000  # stop counting pairs here
WORD_VOCABULARY = 16_000  # a vocabulary of words as small as one of subwords would leave many words unknown
# What a time limit changes.
PER_WEIGHT = 1.0  # with fewer target tokens per weight, a smaller model learns more in the same time
USABLE = 0.5  # target tokens per weight that multiplies a token, after which translations become usable
FEW_PASSES = 10  # so few passes do not overfit, and dropout would only slow them down
LIGHT_DROPOUT = 0.1  # enough for FEW_PASSES; rises to the preset's own dropout at the preset's own max_epochs
VALIDATIONS = 5  # at least this many per run, if there are enough updates; each takes time from training
BYTES_PER_TOKEN = 4.0  # about
ENDS = ("training.max_steps", "training.max_epochs", "training.max_minutes")
LIMITS = (*ENDS, "training.plan_minutes")


def choose(pairs: int, fits: Callable[[str], bool] = lambda _: True) -> str:
    """Choose the preset for a number of training pairs, or the largest smaller one that fits; if none, the smallest."""
    names = list(UP_TO)
    place = next(i for i, most in enumerate(UP_TO.values()) if pairs <= most)
    return next((name for name in reversed(names[: place + 1]) if fits(name)), names[0])


class CorpusSize(NamedTuple):
    """The size of a corpus."""

    pairs: int
    bytes: float  # mean length of a target sentence

    @property
    def tokens(self) -> float:
        """Target tokens per pass, estimated."""
        return max(1.0, self.pairs * self.bytes / BYTES_PER_TOKEN)


class Extent(NamedTuple):
    """The length of a run, as far as known."""

    passes: float = math.inf
    updates: float = math.inf


def values_of(name: str, values: Mapping[str, Any], chosen: Collection[str], extent: Extent) -> dict[str, Any]:
    """What the preset sets, given the values of all settings and the names of those that the user chose."""
    picked = dict(PRESETS[name])
    if extent.passes < picked["training.max_epochs"]:
        least, most = sorted((LIGHT_DROPOUT, picked["model.dropout"]))
        share = max(0.0, extent.passes - FEW_PASSES) / max(1, picked["training.max_epochs"] - FEW_PASSES)
        picked["model.dropout"] = round(least + share * (most - least), 2)
    if "tokenizer.kind" in chosen and values["tokenizer.kind"] == "word":
        picked["tokenizer.vocab_size"] = WORD_VOCABULARY
        picked["tokenizer.shared"] = values["data.source_lang"] is None  # with two languages, a table for each
    if values["training.fsdp"]:
        picked["training.optimizer"] = "adamw"  # Muon needs whole matrices
    if extent.updates < VALIDATIONS * picked["training.validate_every"]:
        every = max(50, 10 * round(extent.updates / VALIDATIONS / 10))
        picked |= {"training.validate_every": every, "training.save_every": every}
    return adapted(picked, values, chosen)


def adapted(picked: Mapping[str, Any], values: Mapping[str, Any], chosen: Collection[str]) -> dict[str, Any]:
    """Drop the chosen settings from the picked values of KEYS, and change those that conflict with a choice.

    A limit that the user set is the only one: a preset's number of epochs does not cut ten requested minutes short.
    """
    applied = {key: picked[key] for key in KEYS if key not in chosen}
    now = {**values, **applied}
    instead: dict[str, Any] = {}
    if any(now[key] is not None for key in ENDS if key in chosen):
        instead |= dict.fromkeys(ENDS)
    if now["training.optimizer"] == "adamw":
        instead["training.weight_decay"] = 0.0
    if now["model.tie"] == "all" and not now["tokenizer.shared"]:
        instead["model.tie"] = "output"
    return applied | {key: value for key, value in instead.items() if key in applied}


def parameters(values: Mapping[str, Any]) -> int:
    """Estimate the number of weights: the matrices, with a full vocabulary."""
    encoder, decoder, table = _weights(values)
    return encoder + decoder + {"all": 1, "output": 2, "none": 3}[values["model.tie"]] * table


def operations(values: Mapping[str, Any]) -> int:
    """Estimate the operations of training per target token: two for each weight forward, and four backward.

    Source and target count as equally long.
    """
    encoder, decoder, table = _weights(values)
    match values["model.architecture"]:
        case "decoder-only":
            products = decoder * (1 if values["data.source_lang"] is None else 2) + table
        case "encoder-only":
            products = encoder + values["model.upsampling"] * (decoder + table)
        case _:
            products = encoder + decoder + table
    return 6 * products


def usable_tokens(values: Mapping[str, Any]) -> float:
    """Target tokens, of all passes, after which translations become usable."""
    return USABLE * operations(values) / 6


def _weights(values: Mapping[str, Any]) -> tuple[int, int, int]:
    """Weights in the encoder, in the decoder, and in one embedding table, which is as large as the projection."""
    width, inner = values["model.d_model"], values["model.d_ff"]
    attention = 4 * width * width
    feed_forward = (3 if values["model.activation"] == "swiglu" else 2) * width * inner
    has_encoder = values["model.architecture"] != "decoder-only"
    has_cross_attention = values["model.architecture"] == "encoder-decoder"
    encoder = values["model.encoder_layers"] * has_encoder * (attention + feed_forward)
    decoder = values["model.decoder_layers"] * (attention * (1 + has_cross_attention) + feed_forward)
    return encoder, decoder, values["tokenizer.vocab_size"] * width


def memory(values: Mapping[str, Any], ranks: int = 1) -> int:
    """Estimate the bytes that training with these settings takes on each of `ranks`, besides PyTorch itself.

    16 bytes per parameter: weight, gradient and two moments in float32. 4 bytes per value that a layer keeps for its
    gradient, by count about 12 d_model + 2 d_ff per position. The logits never exist all at once.
    """
    layers = values["model.encoder_layers"] + values["model.decoder_layers"]
    kept = layers * (12 * values["model.d_model"] + 2 * values["model.d_ff"])
    shards = ranks if values["training.fsdp"] else 1
    return 16 * parameters(values) // shards + 4 * values["training.batch_tokens"] * kept // ranks


def settings_line(values: Mapping[str, Any]) -> str:
    """The settings that distinguish one preset from another, in a line."""
    keys = (
        "model.d_model", "model.encoder_layers", "model.decoder_layers", "model.d_ff", "model.dropout",
        "tokenizer.kind", "tokenizer.vocab_size", "training.batch_tokens", "training.optimizer", "training.lr", *ENDS,
    )  # fmt: skip
    return ", ".join(f"{key.partition('.')[2]} {values[key]}" for key in keys if values[key] is not None)
