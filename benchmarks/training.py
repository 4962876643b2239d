"""How fast training is, against peers and against this machine's own limit.

    python benchmarks/training.py
    python benchmarks/training.py --shape base --data corpus/train --languages en de --contenders ours marian

Every contender trains a model of the same shape on the same sentences, each in a process of its own with its own
settings, in turns, so that a busy minute of the machine hits all of them. What counts is real target tokens a second:
padding earns nothing. Useful FLOPs are 6 for each weight of a matrix product and token that goes through it; lookups,
attention scores and the projection of padding are left out. The limit is the best time of a bfloat16 (or float32)
product of matrices, measured in the same run.

Contenders: `ours` is this program's own update, precision as named; `nn.Transformer` is the loop of PyTorch's tutorial,
128 sentences at a time in random order, float32, stock settings; `+ tricks` gives it our batches, bfloat16 and the
settings of `runtime.tune`; `marian` is Hugging Face's model in eager float32 or bfloat16 autocast on our batches, if
`transformers` is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman import dataset, train
from dragoman import device as device_module
from dragoman.command_line import override
from dragoman.corpora import preparation
from dragoman.settings import EOS, PAD, SOS, Config

SHAPES = {
    "tiny": {"d_model": 32, "d_ff": 64, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1},  # runs, and no more
    "small": {"d_model": 256, "d_ff": 1024, "n_heads": 4, "encoder_layers": 3, "decoder_layers": 3},
    "base": {"d_model": 512, "d_ff": 2048, "n_heads": 8, "encoder_layers": 6, "decoder_layers": 6},
}
CONTENDERS = {
    "ours float32": ("ours", "float32"),
    "ours bfloat16": ("ours", "bfloat16"),
    "nn.Transformer": ("tutorial", "float32"),
    "nn.Transformer + tricks": ("tutorial", "bfloat16"),
    "marian float32": ("marian", "float32"),
    "marian bfloat16": ("marian", "bfloat16"),
}


# ------------------------------------------------------------------------------------------------------- the contenders


def made_up_pairs(count: int) -> list[tuple[str, str]]:
    """Sentences of captions' lengths, of words as rare as real ones are (Zipf)."""
    draw, weights = random.Random(1), [1 / (rank + 3) for rank in range(10_000)]
    words = [f"w{i}" for i in range(10_000)]
    pairs = []
    for _ in range(count):
        length = max(3, round(draw.gauss(13, 4)))
        target = max(3, round(length * draw.gauss(0.97, 0.12)))
        pairs.append(
            (" ".join(draw.choices(words, weights, k=length)), " ".join(draw.choices(words, weights, k=target)))
        )
    return pairs


def configuration(options: argparse.Namespace, precision: str, folder: Path) -> Config:
    """The run of this benchmark: the default loss and optimizer, the shape that was asked for."""
    settings = {
        "run.dir": folder,
        "data.train": options.data or folder / "pairs.tsv",
        "data.source_lang": options.languages[0],
        "data.target_lang": options.languages[1],
        "tokenizer.vocab_size": 10_000,
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


Step = Callable[[], int]  # one update; how many target tokens it learnt from


def ours(config: Config, data: preparation.PreparedData, folder: Path, device: torch.device, precision: str) -> Step:
    """Updates of `train.Training` as they are."""
    device_module.tune_device(device)
    training = train.Training(config, folder, data, device, device_module.DTYPES[precision])
    updates = training.updates()

    def step() -> int:
        batches = next(updates)
        training.update(batches)
        return sum(batch.tokens for batch in batches)

    return step


def batches(config: Config, data: preparation.PreparedData, like_tutorial: bool) -> Iterator[dataset.Batch]:
    """Ours, or 128 sentences in random order, whatever their lengths."""
    for epoch in range(1_000):
        if like_tutorial:
            order = np.random.default_rng(epoch).permutation(len(data.train))
            plan = [order[start : start + 128] for start in range(0, len(order), 128)]
        else:
            plan = dataset.batch_plan(*data.train.lengths, int(config.training.batch_tokens), 1, epoch)
        for indices in plan:
            yield dataset.make_batch(data.train, indices)


class Tutorial(nn.Module):
    """The model of PyTorch's translation tutorial, around nn.Transformer."""

    def __init__(self, config: Config, source: int, target: int) -> None:
        super().__init__()
        shape = config.model
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

    def placed(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        """Tokens (B, T) as vectors that know their places (B, T, D)."""
        return self.dropout(embedding(ids) * self.width**0.5 + self.table[: ids.shape[1]])  # type: ignore[index]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], source.device).isinf()
        x, y = self.placed(self.source, source), self.placed(self.target, target)
        hidden = source == PAD
        states = self.body(
            x, y, tgt_mask=causal, src_key_padding_mask=hidden, tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=hidden,
        )  # fmt: skip
        return self.projection(states)


def marian(config: Config, source: int, target: int) -> nn.Module:
    """Hugging Face's encoder-decoder of the same shape."""
    from transformers import MarianConfig, MarianMTModel  # pyright: ignore[reportMissingImports]

    shape = config.model
    settings: dict[str, Any] = {
        "vocab_size": source, "decoder_vocab_size": target, "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False, "d_model": shape.d_model, "encoder_ffn_dim": shape.d_ff,
        "decoder_ffn_dim": shape.d_ff, "encoder_layers": shape.encoder_layers, "decoder_layers": shape.decoder_layers,
        "encoder_attention_heads": shape.n_heads, "decoder_attention_heads": shape.n_heads, "dropout": 0.1,
        "attention_dropout": 0.1, "activation_dropout": 0.1, "pad_token_id": PAD, "decoder_start_token_id": SOS,
        "eos_token_id": EOS, "activation_function": "relu", "scale_embedding": True, "attn_implementation": "sdpa",
        "max_position_embeddings": 256,
    }  # fmt: skip
    model = MarianMTModel(MarianConfig(**settings))

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            return self.inner(input_ids=source, attention_mask=source != PAD, decoder_input_ids=target).logits

    return Logits()


def peer(kind: str, config: Config, data: preparation.PreparedData, device: torch.device, precision: str) -> Step:
    """The plain loop around a peer's model."""
    stock = kind == "tutorial" and precision == "float32"
    if kind == "tutorial" and not stock:
        device_module.tune_device(device)
    sizes = len(data.source), len(data.target)
    model = (Tutorial(config, *sizes) if kind == "tutorial" else marian(config, *sizes)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    stream = batches(config, data, like_tutorial=stock)

    def step() -> int:
        batch = next(stream).to(device)
        with device_module.autocast(device, device_module.DTYPES[precision]):
            logits = model(batch.source, batch.target_in)
            loss = F.cross_entropy(
                logits.flatten(0, 1).float(), batch.target_out.flatten(), ignore_index=PAD, label_smoothing=0.1
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return batch.tokens

    return step


# ---------------------------------------------------------------------------------------------------------- measuring


def work(options: argparse.Namespace) -> None:
    """One contender, in a process of its own: for each line on standard input, train a while and say how fast."""
    kind, precision = CONTENDERS[options.contender]
    device = device_module.choose_device(options.device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not options.data:
            pairs = made_up_pairs(20_000)
            (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
        config = configuration(options, precision, folder)
        data = preparation.prepare_data(config, folder / "data", lambda _: None)
        step = (
            ours(config, data, folder, device, precision)
            if kind == "ours"
            else peer(kind, config, data, device, precision)
        )
        for _ in range(2):
            step()
        print(json.dumps({"share": data.train.lengths[0].sum() / data.train.lengths[1].sum()}), flush=True)
        for _ in sys.stdin:
            tokens, begun = 0, time.perf_counter()
            while tokens == 0 or time.perf_counter() - begun < options.seconds:
                tokens += step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            print(json.dumps({"rate": tokens / (time.perf_counter() - begun)}), flush=True)


def flops(options: argparse.Namespace, source_share: float) -> float:
    """Useful floating-point operations of an update, for one target token and its share of the source."""
    shape = SHAPES[options.shape]
    width, inner = shape["d_model"], shape["d_ff"]
    encoder = shape["encoder_layers"] * (4 * width**2 + 2 * width * inner)
    decoder = shape["decoder_layers"] * (6 * width**2 + 2 * width * inner)
    memory = shape["decoder_layers"] * 2 * width**2  # keys and values of the source
    return 6 * (decoder + width * 10_000 + source_share * (encoder + memory))


def limit(device: torch.device, dtype: torch.dtype) -> float:
    """The best rate of a product of matrices, in floating-point operations a second."""
    device_module.tune_device(device)
    best = 0.0
    for rows, inner, across in ((4096, 512, 2048), (2048, 2048, 2048), (4096, 256, 1024)):
        x, w = (
            torch.randn(rows, inner, device=device, dtype=dtype),
            torch.randn(across, inner, device=device, dtype=dtype),
        )
        for _ in range(12):
            begun = time.perf_counter()
            F.linear(x, w)
            if device.type == "cuda":
                torch.cuda.synchronize()
            best = max(best, 2 * rows * inner * across / (time.perf_counter() - begun))
    return best


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Measure training against peers and the machine's limit.")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--data", help="training pairs as data.train takes them (default: made-up ones)")
    parser.add_argument("--languages", nargs=2, default=["en", "de"])
    parser.add_argument("--batch_tokens", type=int, default=4096)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--contenders", nargs="+", help="those whose names begin so (default: all there are)")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a contender's turn in a round")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        work(options)
        return

    names = [
        name
        for name, (kind, _) in CONTENDERS.items()
        if kind != "marian" or importlib.util.find_spec("transformers")
        if not options.contenders or name.startswith(tuple(options.contenders))
    ]
    device = device_module.choose_device(options.device)
    peaks = {precision: limit(device, device_module.DTYPES[precision]) for precision in ("float32", "bfloat16")}
    processes: dict[str, subprocess.Popen[str]] = {}
    rates: dict[str, list[float]] = {name: [] for name in names}
    share = 1.0
    try:
        for name in names:
            command = [sys.executable, __file__, "--contender", name, *sys.argv[1:]]
            processes[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            share = _answer(processes[name])["share"]
        for _ in range(options.rounds):
            for name in names:
                processes[name].stdin.write("go\n")  # type: ignore[union-attr]
                processes[name].stdin.flush()  # type: ignore[union-attr]
                rates[name].append(_answer(processes[name])["rate"])
    finally:
        for process in processes.values():
            process.kill()

    each = flops(options, share)
    print(device_module.describe_device(device, torch.float32))
    print(f"shape {options.shape}: {each / 1e6:.0f} useful MFLOP a target token")
    print(f"limits: float32 {peaks['float32'] / 1e9:,.0f} GFLOP/s, bfloat16 {peaks['bfloat16'] / 1e9:,.0f} GFLOP/s\n")
    first = next((name for name in ("nn.Transformer", *names) if name in names), names[0])
    print(f"{'':24} target tokens/s  (best)   GFLOP/s  of limit   x {first}")
    middle = {name: float(np.median(found)) for name, found in rates.items()}
    for name in names:
        rate = middle[name]
        part = rate * each / peaks[CONTENDERS[name][1]]
        print(
            f"{name:24} {rate:15,.0f} {max(rates[name]):8,.0f} {rate * each / 1e9:9,.0f} {part:8.1%} "
            f"{rate / middle[first]:8.2f}"
        )


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    line = process.stdout.readline()  # type: ignore[union-attr]
    if not line:
        raise SystemExit("a contender has ended; its message is above")
    return json.loads(line)


if __name__ == "__main__":
    main()
