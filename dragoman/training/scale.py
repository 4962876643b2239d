"""`dragoman plan`: disk, memory and hours of a large training, estimated before there is a corpus or a GPU.

Each figure is printed with its source: measured (`MEASURED`), stated by the maker of the GPU (`GPUS`), published by
others (`MFU`), or counted from the settings (`presets`). docs/scale.md says which of them have been tried.
"""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Iterator

from dragoman import presets, settings
from dragoman.errors import ConfigError
from dragoman.training.outlook import FOR_UPDATES

WIDTH = 80  # columns of the output
# Printed by: python benchmarks/scale.py --data corpus/train --languages en fr --pairs 80000
MEASURED_ON = "2026-11-26, on two busy cores of an AMD EPYC: 80,000 pairs of Tatoeba, English-French"
MEASURED = {
    "tokens": 9.05,  # mean length of a side; cost marked with a * is taken as proportional to it
    "text": 69.9,  # * bytes of disk for a pair of plain text
    "beside": 124,  # * bytes of disk for a pair while it is prepared, besides the result
    "serial": 8.7e-5,  # * processor seconds of preparing a pair that only one core can spend
    "parallel": 5.2e-5,  # * processor seconds of preparing a pair that all cores share
    "preparing": 30,  # bytes of memory for a pair while it is prepared; with 3,000,000 pairs, see docs/speed.md
    "held_out": 329,  # * bytes of memory for a held-out pair, which every rank keeps as text
    "planning": 45,  # bytes of memory for a pair, to put an epoch in order on the first rank
    "cleaning": 20.7,  # bytes of memory for a pair in `dragoman clean`
    "process": 4.7e8,  # bytes of memory of a rank without data
    "fill": 0.98,  # share of training.batch_tokens that is target tokens
    "update": 2.4e-3,  # seconds of Python for each layer in an update
}
# Stated peak of dense products in bfloat16, in TFLOP/s, and memory in GB. Peaks with sparsity are twice as high.
GPUS = {
    "3090": (71, 24), "4090": (165, 24), "5090": (210, 32), "l4": (121, 24), "l40s": (362, 48), "a100": (312, 80),
    "h100": (989, 80), "h100-pcie": (756, 80), "h200": (989, 141), "b200": (2250, 180), "mi300x": (1307, 192),
}  # fmt: skip
# Share of the peak that training reaches (model FLOPs utilisation), and tokens of a batch on each GPU there: fairseq's
# big Transformer on eight A100, by NVIDIA; docs/scale.md has the source and the arithmetic.
MFU, MFU_TOKENS = 0.28, 10_240
ENOUGH = 3_000  # held-out pairs, as in the test sets of WMT


def main(options: argparse.Namespace) -> None:
    """Print the plan for the options of `command_line.parse_plan`. Raises ConfigError."""
    if options.tflops is None and options.gpu not in GPUS:
        raise ConfigError(f"--gpu is {options.gpu}, but it must be one of {', '.join(GPUS)}: or set --tflops.")
    options.tokens = options.tokens or MEASURED["tokens"]
    values = settings.values(options.config)
    preset = values["model.preset"] or "null"
    print(f"{options.pairs:,} pairs, {options.tokens:g} tokens a side, preset {preset}, GPUs: {options.gpus}")
    for unit, rows in {"GB": space(options, values), "h": time(options, values)}.items():
        for name, figure, source in rows:
            start = f"{name:<16} {figure:8,.{3 if figure < 1 else 1}f} {unit:<2}  "
            print(textwrap.fill(source, WIDTH, initial_indent=start, subsequent_indent=" " * len(start)))
    print(textwrap.fill(f"Measured {MEASURED_ON}, {MEASURED['tokens']:g} tokens a side.", WIDTH))
    for key, share in held_out(values).items():
        if (count := share * options.pairs) > 10 * ENOUGH:
            print(f"{key} holds out {count:,.0f} pairs, which teach nothing:")
            print(f"--{key} {ENOUGH / options.pairs:.2g} leaves {ENOUGH:,}")


def held_out(values: dict) -> dict[str, float]:
    """The shares of the corpus that are held out, by the settings that say so."""
    splits = [split for split in ("validation", "test") if values[f"data.{split}"] is None]
    return {key: values[key] for key in (f"data.{split}_fraction" for split in splits)}


def cost(name: str, options: argparse.Namespace, values: dict) -> float:
    """What was measured for a pair, for all pairs and in proportion to their tokens."""
    sides = 2 if values["data.source_lang"] else 1  # plain text has one
    return MEASURED[name] * options.pairs * sides * options.tokens / (2 * MEASURED["tokens"])


def space(options: argparse.Namespace, values: dict) -> Iterator[tuple[str, float, str]]:
    """Yield names, gigabytes of disk and then of memory, and their sources."""
    pairs, process, share = options.pairs / 1e9, MEASURED["process"] / 1e9, sum(held_out(values).values())
    text = cost("text", options, values) / 1e9
    yield "disk: corpus", text, "as plain text; measured"
    token, sides = 2 if values["tokenizer.vocab_size"] <= 2**16 else 4, 2 if values["data.source_lang"] else 1
    prepared = (1 - share) * pairs * (2 * 8 + sides * token * options.tokens) + share * text
    yield "  prepared", prepared, f"{token} bytes a token, 8 a side, and the held-out text; counted"
    yield "  beside it", cost("beside", options, values) / 1e9, "while preparing; measured"
    weights, kept = presets.parameters(values) / 1e6, values["training.keep_last"] + 2  # the best and an unfinished one
    yield "  checkpoints", kept * 12 * weights / 1e3, f"{kept}, each 12 bytes for {weights:,.1f} M weights; counted"
    yield "memory: cleaning", process + MEASURED["cleaning"] * pairs, "of dragoman clean; measured"
    texts = cost("held_out", options, values) * share / 1e9
    yield "  preparing", process + MEASURED["preparing"] * pairs + texts, f"{texts:,.1f} of it held-out text; measured"
    ranks = math.ceil(options.gpus / (options.nodes or math.ceil(options.gpus / 8)))
    how = f"a process for each GPU ({ranks}) with the held-out text, and the order of an epoch; measured without CUDA"
    yield "  each machine", ranks * (process + texts) + MEASURED["planning"] * pairs, how
    how = "counted without CUDA" if options.tflops else f"of {GPUS[options.gpu][1]}; counted without CUDA"
    yield "  each GPU", presets.memory(values, options.gpus) / 1e9, how


def time(options: argparse.Namespace, values: dict) -> Iterator[tuple[str, float, str]]:
    """Yield names, hours and their sources."""
    serial, parallel = (cost(name, options, values) / 3600 for name in ("serial", "parallel"))
    how = f"{serial:,.2f} on one core, and {parallel:,.2f} shared by {options.cores} cores; measured"
    yield "time: preparing", serial + parallel / options.cores, how
    learnt = options.pairs * (options.tokens + 1)  # target tokens of a pass, with the end tokens
    batch, parts = values["training.batch_tokens"], values["training.accumulate"]
    updates = learnt / (batch * parts * MEASURED["fill"])
    peak, share, operations = options.tflops or GPUS[options.gpu][0], options.mfu or MFU, presets.operations(values)
    computing = learnt * operations / (options.gpus * peak * 1e12 * share) / 3600
    has_encoder = values["model.architecture"] != "decoder-only"
    layers = values["model.encoder_layers"] * has_encoder + values["model.decoder_layers"]
    python = updates * parts * layers * MEASURED["update"] / 3600
    whole = max(computing, python) / FOR_UPDATES  # hours of a pass
    limits = {"max_epochs": 1, "max_steps": updates, "max_minutes": 60 * whole}  # a pass in the units of each
    passes = min(values[f"training.{key}"] / one for key, one in limits.items() if values[f"training.{key}"])
    how = f"passes: {passes:,.3g}, updates: {passes * updates:,.0f}; the longer of these, and validations:"
    yield "  training", passes * whole, how
    published = "given" if options.mfu else f"published: 1024 wide, {MFU_TOKENS:,} tokens on each"
    how = f"{share:g} ({published}) of {peak:g} TFLOP/s ({'given' if options.tflops else 'stated'}); "
    how += f"{operations / 1e6:,.0f} MFLOP a token (counted), {batch / options.gpus:,.0f} tokens on each"
    yield "    GPUs", passes * computing, how
    yield "    Python", passes * python, f"{1000 * MEASURED['update']:g} ms for each layer in an update; measured"
