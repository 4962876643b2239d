"""Presets: how large a model, how it is held back from learning by heart, and how it is trained, in one word.

Use:
    name = choose(29_000)                                          # small
    changed = settings(name, values, {"model.dropout"}, Plan())    # by their dotted names, for `config` to check
    able = Time(minutes * 60, rate).tokens(values) > PER_WEIGHT * parameters(values)      # worth it, in that time?

The tables below are the only place of these numbers. A preset sets every key of them but for those that the user has
chosen, and where what the user has chosen does not go with a number of the table, the number gives way (`beside`).

Limits: nothing here looks at data or devices. Memory is estimated: a model that was rehearsed by `train` is certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

# Whatever the size. A preset also unsets what another file may have set for a model of its own.
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
    "training.accumulate": 1,
    "training.schedule": "linear",
    "training.decay_share": 1.0,
    "training.label_smoothing": 0.1,
    "training.ema": 0.0,
}
# Muon: eight minutes of one core bring small to 32.8 BLEU with it, and to 29.1 with AdamW (Multi30k's validation).
# Weight decay: seventeen minutes bring small to 39.1 without, 39.9 with 0.1, 40.9 with 0.2, and 40.6 with
# 0.3, whose validation loss is the lowest of these: 1.72, 1.63, 1.58, 1.56. With AdamW it was not tried.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        **_COMMON,
        "tokenizer.vocab_size": 2000,
        "model.d_model": 128,
        "model.n_heads": 4,
        "model.encoder_layers": 3,
        "model.decoder_layers": 3,
        "model.d_ff": 512,
        "model.dropout": 0.3,
        "training.max_epochs": 60,
        "training.batch_tokens": 1024,
        "training.optimizer": "muon",
        "training.weight_decay": 0.3,
        "training.lr": 0.003,
        "training.warmup_steps": 200,
        "training.validate_every": 250,
        "training.save_every": 250,
    },
    "small": {
        **_COMMON,
        "tokenizer.vocab_size": 8000,
        "model.d_model": 128,
        "model.n_heads": 4,
        "model.encoder_layers": 4,
        "model.decoder_layers": 4,
        "model.d_ff": 512,
        "model.dropout": 0.3,
        "training.max_epochs": 30,
        "training.batch_tokens": 2048,
        "training.optimizer": "muon",
        "training.weight_decay": 0.3,
        "training.lr": 0.005,
        "training.warmup_steps": 200,
        "training.validate_every": 500,
        "training.save_every": 500,
    },
    "base": {
        **_COMMON,
        "tokenizer.vocab_size": 8000,
        "model.d_model": 256,
        "model.n_heads": 4,
        "model.encoder_layers": 4,
        "model.decoder_layers": 4,
        "model.d_ff": 1024,
        "model.dropout": 0.2,
        "training.max_epochs": 20,
        "training.batch_tokens": 4096,
        "training.optimizer": "muon",
        "training.weight_decay": 0.3,
        "training.lr": 0.003,
        "training.warmup_steps": 1000,
        "training.validate_every": 1000,
        "training.save_every": 1000,
    },
    "big": {
        **_COMMON,
        "tokenizer.vocab_size": 16000,
        "model.d_model": 512,
        "model.n_heads": 8,
        "model.encoder_layers": 6,
        "model.decoder_layers": 6,
        "model.d_ff": 2048,
        "model.dropout": 0.1,
        "training.max_epochs": 10,
        "training.batch_tokens": "auto",
        "training.optimizer": "adamw",
        "training.weight_decay": 0.0,
        "training.lr": 0.001,
        "training.warmup_steps": 4000,
        "training.validate_every": 2000,
        "training.save_every": 2000,
    },
}
KEYS = tuple(PRESETS["small"])  # what every preset sets
STAND_IN = "small"  # shown for auto where no data are looked at; that of some ten thousand pairs
QUICK = ("tiny", "small")  # which learn about equally fast: no limit of time asks for less
UP_TO = {"tiny": 10_000, "small": 100_000, "base": 1_000_000, "big": math.inf}  # training pairs, from small to large
ENOUGH = 1_000_000  # pairs beyond which none need be counted
WORDS = 16_000  # of a language, where whole words are asked for: of so few as there are pieces, many would be unknown
UNTRIED = 4096  # batch_tokens that auto comes to at most on what is no GPU; there it tries how many fit
DEALT_OUT = 8192  # batch_tokens with fsdp, which cannot try out how many fit
# What a limit of time changes.
PER_WEIGHT = 1.0  # target tokens a weight has to learn from, or a smaller model learns more in the same time
FEW = 10  # passes in which nothing is learnt by heart: dropout would only slow them
LIGHT = 0.1  # dropout that is enough for these; as many passes as the preset has of its own need all of its dropout
LOOKS = 5  # validations, at least, where there are updates enough: each takes its part of the time
# A training uses about so much, times √d_model, of the rate at which a device multiplies matrices. Measured on CPUs:
# 34 % (one core) and 18 to 28 % (two) at 128 wide, 52 % at 256 and 67 % at 512.
USED = 0.025
A_TOKEN = 4.0  # bytes, about
_ENDS = ("training.max_steps", "training.max_epochs", "training.max_minutes")


def choose(pairs: int, fits: Callable[[str], bool] = lambda _: True) -> str:
    """The preset for so many training pairs, or the largest below it that fits; where none does, the smallest."""
    names = list(UP_TO)
    place = next(i for i, most in enumerate(UP_TO.values()) if pairs <= most)
    return next((name for name in reversed(names[: place + 1]) if fits(name)), names[0])


class Amount(NamedTuple):
    """How much there is to learn from."""

    pairs: int
    bytes: float  # of a target sentence, on average

    @property
    def tokens(self) -> float:
        """Target tokens of a pass, about."""
        return max(1.0, self.pairs * self.bytes / A_TOKEN)


class Time(NamedTuple):
    """How long a training may take, and on what."""

    seconds: float
    rate: float  # operations a second, in products of matrices

    def tokens(self, values: Mapping[str, Any]) -> float:
        """About how many target tokens a model of these settings can learn from.

        Two operations a weight and token forwards, and twice that backwards; source and target are taken for equally
        long.
        """
        encoder, decoder, table = _weights(values)
        match values["model.architecture"]:
            case "decoder-only":
                products = decoder * (1 if values["data.source_lang"] is None else 2) + table
            case "encoder-only":
                products = encoder + values["model.upsampling"] * (decoder + table)
            case _:
                products = encoder + decoder + table
        used = self.rate * USED * math.sqrt(values["model.d_model"])
        return self.seconds * used / (6 * products)


class Plan(NamedTuple):
    """What a training will come to, as far as that is known."""

    passes: float = math.inf
    updates: float = math.inf


def settings(name: str, values: Mapping[str, Any], chosen: Collection[str], plan: Plan) -> dict[str, Any]:
    """What the preset sets, given the values of all settings, of which the user has chosen some."""
    picked = dict(PRESETS[name])
    if plan.passes < picked["training.max_epochs"]:
        least, most = sorted((LIGHT, picked["model.dropout"]))
        share = max(0.0, plan.passes - FEW) / max(1, picked["training.max_epochs"] - FEW)
        picked["model.dropout"] = round(least + share * (most - least), 2)
    if "tokenizer.kind" in chosen and values["tokenizer.kind"] == "word":
        picked["tokenizer.vocab_size"] = WORDS
        picked["tokenizer.shared"] = values["data.source_lang"] is None  # a table for each language, if there are two
    if values["training.fsdp"]:
        picked["training.optimizer"] = "adamw"  # Muon needs whole matrices
        if picked["training.batch_tokens"] == "auto":
            picked["training.batch_tokens"] = DEALT_OUT
    if plan.updates < LOOKS * picked["training.validate_every"]:
        every = max(50, 10 * round(plan.updates / LOOKS / 10))
        picked |= {"training.validate_every": every, "training.save_every": every}
    return beside(picked, values, chosen)


def beside(picked: Mapping[str, Any], values: Mapping[str, Any], chosen: Collection[str]) -> dict[str, Any]:
    """What of the picked values of KEYS is left beside the chosen settings, mended where it does not go with them.

    The user's end is the only one: ten minutes that were asked for are not cut short by a number of epochs.
    """
    found = {key: picked[key] for key in KEYS if key not in chosen}
    now = {**values, **found}
    instead: dict[str, Any] = {}
    if any(now[key] is not None for key in _ENDS if key in chosen):
        instead |= dict.fromkeys(_ENDS)
    if now["training.optimizer"] == "adamw":
        instead["training.weight_decay"] = 0.0
    if now["model.tie"] == "all" and not now["tokenizer.shared"]:
        instead["model.tie"] = "output"
    return found | {key: value for key, value in instead.items() if key in found}


def parameters(values: Mapping[str, Any]) -> int:
    """About how many weights a model of these settings has: the matrices, with a full vocabulary."""
    encoder, decoder, table = _weights(values)
    return encoder + decoder + {"all": 1, "output": 2, "none": 3}[values["model.tie"]] * table


def _weights(values: Mapping[str, Any]) -> tuple[int, int, int]:
    """Those of the encoder, the decoder, and a table of vectors, which is also what the projection has."""
    width, inner = values["model.d_model"], values["model.d_ff"]
    attention = 4 * width * width
    feed_forward = (3 if values["model.activation"] == "swiglu" else 2) * width * inner
    reads = values["model.architecture"] != "decoder-only"
    crosses = values["model.architecture"] == "encoder-decoder"
    encoder = values["model.encoder_layers"] * reads * (attention + feed_forward)
    decoder = values["model.decoder_layers"] * (attention * (1 + crosses) + feed_forward)
    return encoder, decoder, values["tokenizer.vocab_size"] * width


def memory(values: Mapping[str, Any]) -> int:
    """About how many bytes a training with these settings takes, beside what PyTorch itself does.

    16 bytes a parameter: weight, gradient and two moments in float32. And 4 bytes for each value that a layer keeps for
    its gradient: counted, about 12 d_model + 2 d_ff a position. All logits are never there at
    once. batch_tokens auto counts as the most that it comes to without being tried.
    """
    batch = values["training.batch_tokens"]
    positions = UNTRIED if batch == "auto" else batch
    layers = values["model.encoder_layers"] + values["model.decoder_layers"]
    kept = layers * (12 * values["model.d_model"] + 2 * values["model.d_ff"])
    return 16 * parameters(values) + 4 * positions * kept


def summary(values: Mapping[str, Any]) -> str:
    """The settings that tell one preset from another, in a line."""
    batch = values["training.batch_tokens"]
    ends = [f"{values[key]:g} {key.removeprefix('training.max_')}" for key in _ENDS if values[key] is not None]
    layers = [values["model.encoder_layers"], values["model.decoder_layers"]]
    layers = layers[values["model.architecture"] == "decoder-only" :]
    return (
        f"d_model {values['model.d_model']}, {'+'.join(map(str, layers))} layers, d_ff {values['model.d_ff']}, dropout "
        f"{values['model.dropout']:g}, {values['tokenizer.kind']} of {values['tokenizer.vocab_size']:,}, batch_tokens "
        f"{batch if batch == 'auto' else f'{batch:,}'}, {values['training.optimizer']}, lr {values['training.lr']:g}, "
        f"{' or '.join(ends)}"
    )
