"""Scores against sacreBLEU's own, on cases where other implementations are known to be wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sacrebleu
import torch

import dataset
import train
from config import PAD, Config
from conftest import SHARED
from evaluate import mean_loss, perplexity, score
from optim import loss_sums

REFERENCES = ["The cat sees the dog.", "L'amico beve (non) vino, oggi.", "Ciao!"]


def test_perfect_and_empty_translations() -> None:
    """Guards the ends of the scales; torchmetrics calls an empty translation perfect by one of its measures."""
    perfect = score(REFERENCES, REFERENCES)
    assert (perfect.bleu, perfect.chrf, perfect.wer, perfect.cer) == pytest.approx((100, 100, 0, 0))
    empty = score(["", "", ""], REFERENCES)
    assert (empty.bleu, empty.wer, empty.cer) == pytest.approx((0, 1, 1))
    assert empty.chrf == pytest.approx(0)


def test_small_overlap_is_not_nought() -> None:
    """Guards the smoothing: without it, the curve of a young model lies flat on zero."""
    assert 0 < score(["The dog sees the", "vino", "Ciao!"], REFERENCES).bleu < 40


@pytest.mark.skipif(not (SHARED / "multi30k").is_dir(), reason="needs Multi30k in ../shared/data")
@pytest.mark.parametrize("tokenize", ["13a", "none", "intl"])
def test_scores_equal_sacrebleu_on_real_text(tokenize: str) -> None:
    """Guards the way in: references as one list, in the right order, with the tokeniser that was asked for."""
    lines = (SHARED / "multi30k" / "val.de").read_text(encoding="utf-8").split("\n")[:300]
    shifted = [line if i % 3 else " ".join(line.split()[1:]) for i, line in enumerate(lines)]
    found = score(shifted, lines, tokenize)
    assert found.bleu == pytest.approx(sacrebleu.corpus_bleu(shifted, [lines], tokenize=tokenize, force=True).score)
    assert found.chrf == pytest.approx(sacrebleu.corpus_chrf(shifted, [lines]).score)
    assert f"tok:{tokenize}" in found.signature
    words = sum(len(line.split()) for line in lines)
    dropped = sum(1 for i, line in enumerate(lines) if i % 3 == 0 and line.split())
    assert found.wer == pytest.approx(dropped / words)


def test_mean_loss_does_not_depend_on_the_batches(tiny: Callable[..., Config]) -> None:
    """Guards the mean of means, and dropout left on: each sentence by itself gives the same."""
    config = tiny()
    directory = Path(config.run.dir) / config.run.name
    data = dataset.prepare(config, directory / "data", lambda _: None)
    training = train.Training(config, directory, data, torch.device("cpu"), torch.float32)
    pairs = dataset.encode_pairs(data.validation, data.source, data.target)
    total, tokens = 0.0, 0
    training.model.eval()
    for i in range(len(pairs)):
        batch = dataset.make_batch(pairs, torch.tensor([i]).numpy())
        total += float(loss_sums(training.model(batch.source, batch.target_in), batch.target_out, 0.0).plain)
        tokens += int((batch.target_out != PAD).sum())
    for budget in (1, 60, 10_000):
        assert mean_loss(training.translator, pairs, budget) == pytest.approx(total / tokens, rel=1e-5)
    assert not training.model.training


def test_perplexity_stays_finite() -> None:
    """Guards the first point of a run that begins badly: an overflow would end it."""
    assert perplexity(0.0) == 1
    assert perplexity(5000.0) == pytest.approx(1e9)
