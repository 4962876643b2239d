"""PyTorch's translation tutorial as a contender of quality.py: its model, its training loop, and our search."""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from common import ROOT, Texts
from peers import Tutorial, tutorial_batches
from quality_contenders import BEAMS, SPLITS, Outcome, data_settings, languages, output_lines
from torch import Tensor, nn

from dragoman import dataset
from dragoman.command_line import override
from dragoman.corpora import preparation
from dragoman.device import choose_device
from dragoman.settings import PAD, Config, DecodingConfig
from dragoman.translation.search import search

SHAPE = {"d_model": 512, "n_heads": 8, "encoder_layers": 3, "decoder_layers": 3, "d_ff": 512, "tie": "none"}
TOKENIZERS = {
    "words": {"kind": "word", "vocab_size": 100_000, "min_frequency": 1},
    "pieces": {"kind": "bpe", "vocab_size": 8000, "min_frequency": 2, "shared": True},
}


def tutorial(options: argparse.Namespace, config: Config, folder: Path, texts: Texts) -> Outcome:
    """Run the tutorial in a process of its own, which calls `train_and_translate`."""
    command = [sys.executable, str(ROOT / "benchmarks" / "quality.py"), f"--contender={folder.name}"]
    command += [f"--config={options.config.resolve()}", f"--work={options.work}", f"--minutes={options.minutes}"]
    command += [f"--device={options.device}", f"--seed={options.seed}", *options.settings]
    for _ in output_lines(command, folder, ROOT):
        pass
    return Outcome(**json.loads((folder / "outcome.json").read_text(encoding="utf-8")))


def train_and_translate(options: argparse.Namespace, config: Config) -> None:
    """Train as the tutorial does, translate the held-out texts, and write outcome.json."""
    started = time.perf_counter()
    torch.manual_seed(options.seed)
    folder = options.work / options.contender
    device = choose_device(options.device)
    words = [f"--tokenizer.{key}={value}" for key, value in TOKENIZERS[options.contender].items()]
    words += [f"--model.{key}={value}" for key, value in SHAPE.items()]
    config = override(Config(), [*data_settings(options, config), f"--run.dir={folder}", *words])
    data = preparation.prepare_data(config, folder / "data", lambda line: print(line))
    model = Tutorial(config.model, len(data.source), len(data.target)).to(device)
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.xavier_uniform_(weight)
    training = time.perf_counter()
    passes = train(model, config, data, device, 60 * options.minutes)
    ended = time.perf_counter()
    torch.save(model.state_dict(), folder / "weights.pt")
    sizes = sum(weight.numel() for weight in model.parameters())
    found = {}
    for split in SPLITS:
        sources = (options.work / "text" / f"{split}.{languages(config)[0]}").read_text(encoding="utf-8").splitlines()
        for beam in BEAMS:
            found[f"{split} {beam}"] = translate(model, data, sources, beam, device)
            print(f"{split}, beam {beam}: translated")
    outcome = Outcome((ended - training) / 60, (ended - started) / 60, passes, sizes, found)
    (folder / "outcome.json").write_text(json.dumps(asdict(outcome), ensure_ascii=False), encoding="utf-8")


def train(model: Tutorial, config: Config, data: preparation.PreparedData, device: torch.device, seconds: float) -> int:
    """Run the tutorial's loop until the time is up, and load the best weights; return the number of complete passes."""
    started = time.perf_counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    held_out = dataset.encode_pairs(data.validation, data.source, data.target)
    best, lowest, passes = copy.deepcopy(model.state_dict()), math.inf, 0
    steps_per_pass = math.ceil(len(data.train) / 128)
    model.train()
    for step, each in enumerate(tutorial_batches(data), start=1):
        batch = each.to(device)
        optimizer.zero_grad()
        logits = model(batch.source, batch.target_in)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD)
        loss.backward()
        optimizer.step()
        over = time.perf_counter() - started >= seconds
        passes += step % steps_per_pass == 0
        if over or step % steps_per_pass == 0:
            found = mean_loss(model, held_out, device)
            minutes = (time.perf_counter() - started) / 60
            print(f"step {step}, {minutes:.1f} min: loss {loss.item():.3f}, validation {found:.3f}")
            if found < lowest:
                best, lowest = copy.deepcopy(model.state_dict()), found
            if over or minutes * 60 >= seconds:
                break
    model.load_state_dict(best)
    return passes


@torch.no_grad()
def mean_loss(model: Tutorial, pairs: dataset.EncodedPairs, device: torch.device) -> float:
    """Return the loss per target token of the validation pairs, in nats."""
    model.eval()
    total, tokens = 0.0, 0
    for indices in dataset.batch_plan(*pairs.lengths, 4096, seed=0, epoch=0):
        batch = dataset.make_batch(pairs, indices).to(device)
        logits = model(batch.source, batch.target_in).flatten(0, 1)
        total += F.cross_entropy(logits, batch.target_out.flatten(), ignore_index=PAD, reduction="sum").item()
        tokens += batch.tokens
    model.train()
    return total / tokens


class TutorialState(NamedTuple):
    """The state of a search for A sentences with P hypotheses each."""

    memory: Tensor  # (A, S, D)
    hidden: Tensor  # (A, S), True where there is padding
    tokens: Tensor  # (A P, T), all earlier ones

    def select(self, hypotheses: Tensor | None, sentences: Tensor | None) -> TutorialState:
        """Do what `model.State.select` does."""
        memory, hidden, tokens = self
        if sentences is not None:
            memory, hidden = memory[sentences], hidden[sentences]
        return TutorialState(memory, hidden, tokens if hypotheses is None else tokens[hypotheses])


class Stepwise:
    """The tutorial's model for our search. Like the tutorial, each step reads all earlier tokens again."""

    def __init__(self, model: Tutorial) -> None:
        self.model = model.eval()

    def start(self, source: Tensor) -> TutorialState:
        """Do what `StepModel.start` does."""
        hidden = source == PAD
        placed = self.model.embed(self.model.source, source)
        memory = self.model.body.encoder(placed, src_key_padding_mask=hidden)
        return TutorialState(memory, hidden, source.new_empty(len(source), 0))

    def step(self, tokens: Tensor, state: TutorialState) -> tuple[Tensor, TutorialState]:
        """Do what `StepModel.step` does."""
        written = torch.cat((state.tokens, tokens[:, None]), 1)  # (A P, T)
        each = len(written) // len(state.memory)
        memory, hidden = state.memory.repeat_interleave(each, 0), state.hidden.repeat_interleave(each, 0)
        length = written.shape[1]
        causal = nn.Transformer.generate_square_subsequent_mask(length, written.device).isinf()
        placed = self.model.embed(self.model.target, written)
        states = self.model.body.decoder(placed, memory, tgt_mask=causal, memory_key_padding_mask=hidden)
        return self.model.projection(states[:, -1]), state._replace(tokens=written)


@torch.inference_mode()
def translate(
    model: Tutorial, data: preparation.PreparedData, sources: Sequence[str], beam: int, device: torch.device
) -> list[str]:
    """Translate sources, in batches of 50 of similar length."""
    settings, most = DecodingConfig(beam_size=beam), len(model.table) - 1  # type: ignore[arg-type]
    ids = [each[:most] for each in data.source.encode_batch(sources)]
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found = [""] * len(ids)
    for start in range(0, len(order), 50):
        rows = order[start : start + 50]
        limits = [min(2 * len(ids[i]) + 10, most) for i in rows]
        batch = dataset.source_batch([ids[i] for i in rows]).to(device)
        best = [each[0].tokens for each in search(Stepwise(model), batch, limits, settings)]
        for i, text in zip(rows, data.target.decode_batch(best), strict=True):
            found[i] = text
    return found
