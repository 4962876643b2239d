"""Measure the speed of training, compared with peers and with the limit of this machine.

    python benchmarks/training.py
    python benchmarks/training.py --shape base --data corpus/train --languages en de --contenders ours marian

Every contender trains a model of the same shape on the same sentences, with its own settings. They take turns, each
in a new process, so a busy minute of the machine slows them all. The speed is target tokens per second without
padding. Useful FLOPs are 6 for each weight of a matrix product and each token that passes through it; lookups,
attention scores and the projection of padding do not count. The limit is the fastest matrix product in bfloat16 or
float32, measured in the same run. On a machine that emulates bfloat16, its contenders are left out.

Contenders:
    nn.Transformer           the loop of PyTorch's tutorial: 128 sentences in random order, float32, default settings
    ours                     `train.train_step` in the given precision
    nn.Transformer + tricks  the same with our batches, bfloat16 and the settings of `device.tune_device`
    marian                   Hugging Face's model on our batches, in eager float32 or with bfloat16 autocast, if
                             `transformers` is installed
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import fail, number_formats, write_made_up_text
from peers import Tutorial, marian_model, tutorial_batches
from torch import Tensor

from dragoman import dataset, train
from dragoman.command_line import override
from dragoman.corpora import preparation
from dragoman.device import DTYPES, autocast, choose_device, describe_device, tune_device
from dragoman.settings import PAD, Config
from dragoman.training.batches import training_batches

SHAPES = {
    "tiny": {"d_model": 32, "d_ff": 64, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1},  # for tests
    "small": {"d_model": 256, "d_ff": 1024, "n_heads": 4, "encoder_layers": 3, "decoder_layers": 3},
    "base": {"d_model": 512, "d_ff": 2048, "n_heads": 8, "encoder_layers": 6, "decoder_layers": 6},
}
CONTENDERS = {
    "nn.Transformer": ("tutorial", "float32"),
    "ours float32": ("ours", "float32"),
    "ours bfloat16": ("ours", "bfloat16"),
    "nn.Transformer + tricks": ("tutorial", "bfloat16"),
    "marian float32": ("marian", "float32"),
    "marian bfloat16": ("marian", "bfloat16"),
}
VOCABULARY = 10_000

Step = Callable[[], int]  # makes one update and returns the number of its target tokens


def configuration(options: argparse.Namespace, precision: str, folder: Path) -> Config:
    """Configure a run with the given shape and the default loss and optimizer."""
    settings = {
        "run.dir": folder,
        "data.train": options.data or folder / "text",
        "data.source_lang": options.languages[0],
        "data.target_lang": options.languages[1],
        "tokenizer.vocab_size": VOCABULARY,
        "tokenizer.min_frequency": 1,
        "training.batch_tokens": options.batch_tokens,
        "training.precision": precision,
        "training.device": options.device,
        "model.tie": "none",
        "model.dropout": 0.1,
        "model.attention_dropout": 0.1,
        "model.activation_dropout": 0.1,
        **{f"model.{key}": value for key, value in SHAPES[options.shape].items()},
    }
    return override(Config(), [f"--{key}={value}" for key, value in settings.items()])


def ours(config: Config, data: preparation.PreparedData, folder: Path, device: torch.device, precision: str) -> Step:
    """Return the training step of this program."""
    tune_device(device)
    state = train.build_state(config, folder, data, device, DTYPES[precision])
    updates = training_batches(state)

    def step() -> int:
        batches = next(updates)
        train.train_step(state, batches)
        return sum(batch.tokens for batch in batches)

    return step


def our_batches(config: Config, data: preparation.PreparedData) -> Iterator[dataset.Batch]:
    """Yield the batches of this program."""
    for epoch in range(1_000):
        for rows in dataset.batch_plan(*data.train.lengths, int(config.training.batch_tokens), 1, epoch):
            yield dataset.make_batch(data.train, rows)


def peer(kind: str, config: Config, data: preparation.PreparedData, device: torch.device, precision: str) -> Step:
    """Return a plain training step for the model of a peer."""
    sizes = len(data.source), len(data.target)
    stock = kind == "tutorial" and precision == "float32"
    if kind == "tutorial":
        if not stock:
            tune_device(device)
        model: Any = Tutorial(config.model, *sizes).to(device)
    else:
        model = marian_model(config.model, *sizes).to(device)

    def forward(source: Tensor, target: Tensor) -> Tensor:
        if kind == "tutorial":
            return model(source, target)
        return model(input_ids=source, attention_mask=source != PAD, decoder_input_ids=target).logits

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    batches = tutorial_batches(data) if stock else our_batches(config, data)

    def step() -> int:
        batch = next(batches).to(device)
        with autocast(device, DTYPES[precision]):
            logits = forward(batch.source, batch.target_in)
            loss = F.cross_entropy(
                logits.flatten(0, 1).float(), batch.target_out.flatten(), ignore_index=PAD, label_smoothing=0.1
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return batch.tokens

    return step


def work(options: argparse.Namespace) -> None:
    """Run one contender: train for a while and print the speed, and the source tokens for each target token."""
    kind, precision = CONTENDERS[options.contender]
    device = choose_device(options.device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not options.data:
            options.languages = ["en", "de"]
            write_made_up_text(folder / "text", 20_000, VOCABULARY)
        config = configuration(options, precision, folder)
        data = preparation.prepare_data(config, folder / "data", lambda _: None)
        if kind == "ours":
            step = ours(config, data, folder, device, precision)
        else:
            step = peer(kind, config, data, device, precision)

        finish = torch.cuda.synchronize if device.type == "cuda" else lambda: None
        step()
        finish()
        tokens, started = 0, time.perf_counter()
        while tokens == 0 or time.perf_counter() - started < options.seconds:
            tokens += step()
        finish()
        rate = tokens / (time.perf_counter() - started)
        source, target = (lengths.sum() for lengths in data.train.lengths)
        print(json.dumps([rate, source / target]))


def useful_flops(options: argparse.Namespace, source_per_target: float) -> float:
    """Count the useful floating-point operations of an update for one target token and its share of the source."""
    shape = SHAPES[options.shape]
    width, inner = shape["d_model"], shape["d_ff"]
    encoder = shape["encoder_layers"] * (4 * width**2 + 2 * width * inner)
    decoder = shape["decoder_layers"] * (6 * width**2 + 2 * width * inner)
    memory = shape["decoder_layers"] * 2 * width**2  # keys and values of the source
    return 6 * (decoder + width * VOCABULARY + source_per_target * (encoder + memory))


def fastest_product(device: torch.device, dtype: torch.dtype) -> float:
    """Measure the fastest matrix product, in floating-point operations per second."""
    tune_device(device)
    best = 0.0
    sizes = [(4096, 512, 2048), (2048, 2048, 2048), (4096, 256, 1024)]
    if device.type == "cuda":
        sizes.append((8192, 8192, 8192))  # what fills a GPU
    for rows, inner, columns in sizes:
        x, w = (torch.randn(*size, device=device, dtype=dtype) for size in ((rows, inner), (columns, inner)))
        for _ in range(12):
            started = time.perf_counter()
            F.linear(x, w)
            if device.type == "cuda":
                torch.cuda.synchronize()
            best = max(best, 2 * rows * inner * columns / (time.perf_counter() - started))
    return best


def main() -> None:
    """Print a table, each row after the last turn of its contender."""
    parser = argparse.ArgumentParser(description="Measure the speed of training against peers and the machine's limit.")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--data", help="training pairs, as for data.train (default: made-up ones)")
    parser.add_argument("--languages", nargs=2, default=["en", "de"], help="of --data (default: en de)")
    parser.add_argument("--batch_tokens", type=int, default=4096)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--contenders", nargs="+", help="only those whose names start with one of these")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a turn")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        work(options)
        return

    device = choose_device(options.device)
    print(describe_device(device, torch.float32))
    formats = number_formats(device)
    names = [
        name
        for name, (kind, precision) in CONTENDERS.items()
        if kind != "marian" or importlib.util.find_spec("transformers")
        if not options.contenders or name.startswith(tuple(options.contenders))
        if precision in formats
    ]
    if not names:
        parser.error(f"no contender starts with {' or '.join(options.contenders)}: choose from {', '.join(CONTENDERS)}")
    limits = {precision: fastest_product(device, DTYPES[precision]) for precision in formats}
    print(f"limits: {', '.join(f'{name} {limit / 1e9:,.0f} GFLOP/s' for name, limit in limits.items())}")
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            command = [sys.executable, __file__, "--contender", name, *sys.argv[1:]]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                fail(f"{name} ended with exit code {done.returncode}; memory may have run out.")
            turns[name].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"shape {options.shape}\n\n{'':24} target tokens/s  (best)   GFLOP/s  of limit   x {names[0]}")
    first = statistics.median(rate for rate, _ in turns[names[0]])
    for name, results in turns.items():
        rates = [rate for rate, _ in results]
        rate = statistics.median(rates)
        speed = rate * useful_flops(options, results[0][1])
        print(
            f"{name:24} {rate:15,.0f} {max(rates):8,.0f} {speed / 1e9:9,.0f} "
            f"{speed / limits[CONTENDERS[name][1]]:8.1%} {rate / first:8.2f}"
        )


if __name__ == "__main__":
    main()
