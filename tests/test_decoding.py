"""The search against exhaustive enumeration, greedy decoding, one sentence at a time, and teacher forcing."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from config import EOS, PAD, SOS, ModelConfig
from decoding import search
from model import Transformer


class History(NamedTuple):
    """The state of the model below: the sentence, and all tokens so far."""

    source: Tensor  # (B,)
    tokens: Tensor  # (B, T)

    def rows(self, index: Tensor) -> History:
        return History(self.source[index], self.tokens[index])


class Table:
    """A model whose logits depend on the source and on every token so far, by a hash: no shortcut finds its best."""

    def __init__(self, vocabulary: int, eos: float = 0.0) -> None:
        self.vocabulary = vocabulary
        self.eos = eos
        self.steps = 0

    def start(self, source: Tensor) -> History:
        return History(source[:, 0], torch.empty(len(source), 0, dtype=torch.long))

    def step(self, tokens: Tensor, state: History) -> tuple[Tensor, History]:
        self.steps += 1
        state = History(state.source, torch.cat((state.tokens, tokens[:, None]), 1))
        rows = zip(state.source.tolist(), state.tokens.tolist(), strict=True)
        return torch.stack([self.logits(source, history) for source, history in rows]), state

    def logits(self, source: int, history: list[int]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((source, *history)) % 2**63)
        logits = 2 * torch.randn(self.vocabulary, generator=generator)
        logits[EOS] += self.eos
        return logits


def enumerate_all(model: Table, source: int, limit: int, alpha: float) -> list[tuple[float, list[int]]]:
    """Every translation that ends within limit tokens, with its score, best first."""
    ordinary = [token for token in range(model.vocabulary) if token not in (PAD, SOS, EOS)]
    scored = []
    for length in range(limit):
        for words in itertools.product(ordinary, repeat=length):
            history, total = [SOS], 0.0
            for token in (*words, EOS):
                total += float(model.logits(source, history).log_softmax(-1)[token])
                history.append(token)
            scored.append((total / (length + 1) ** alpha, list(words)))
    return sorted(scored, reverse=True)


SOURCES = torch.tensor([[11], [12], [13], [14], [15], [16]])


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0, -0.5])
def test_a_wide_beam_finds_what_enumeration_finds(alpha: float) -> None:
    """Guards the early finish: stopping at the first ended hypothesis misses longer ones with better scores."""
    model = Table(6)
    found = search(model, SOURCES, [4] * 6, beam_size=500, length_penalty=alpha, n_best=3)
    for source, best in zip(SOURCES[:, 0].tolist(), found, strict=True):
        expected = enumerate_all(model, source, 4, alpha)[:3]
        complete = [h for h in best if h.complete]
        assert [h.tokens for h in complete] == [words for _, words in expected]
        assert [h.score for h in complete] == pytest.approx([score for score, _ in expected], rel=1e-5)


def greedy(model: Table, source: int, limit: int) -> list[int]:
    history = [SOS]
    while len(history) <= limit and history[-1] != EOS:
        logits = model.logits(source, history)
        logits[[PAD, SOS]] = -math.inf
        history.append(int(logits.argmax()))
    return [token for token in history[1:] if token != EOS]


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_beam_of_one_is_greedy(alpha: float) -> None:
    """Guards against a beam that goes on past its own [EOS], whatever the length penalty would give for it."""
    model = Table(9)
    found = search(model, SOURCES, [12] * 6, beam_size=1, length_penalty=alpha)
    assert [best[0].tokens for best in found] == [greedy(model, source, 12) for source in SOURCES[:, 0].tolist()]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_batch_equals_one_by_one(beam: int) -> None:
    """Guards the rows: finished sentences leave the batch, and the others must keep their own state and limit."""
    limits = [3, 9, 5, 12, 1, 7]
    together = search(Table(9), SOURCES, limits, beam)
    alone = [search(Table(9), SOURCES[i : i + 1], [limits[i]], beam)[0] for i in range(6)]
    assert [[h.tokens for h in best] for best in together] == [[h.tokens for h in best] for best in alone]
    assert [best[0].score for best in together] == pytest.approx([best[0].score for best in alone])


def test_a_larger_beam_never_scores_worse_here() -> None:
    """Not a law of beam search, but a beam that is reordered wrongly breaks it at once on these tables."""
    scores = [
        sum(best[0].score for best in search(Table(9, eos=-1), SOURCES, [8] * 6, beam, length_penalty=0.0))
        for beam in (1, 4, 64)
    ]
    assert scores == sorted(scores)


def test_a_hypothesis_that_was_cut_off_says_so() -> None:
    """Guards the limit: at most that many tokens, and no pretence of an end."""
    hypotheses = [best[0] for best in search(Table(9, eos=-50), SOURCES, [5] * 6)]
    assert all(not h.complete and len(h.tokens) == len(h.log_probs) == 5 for h in hypotheses)
    ended = [best[0] for best in search(Table(9, eos=50), SOURCES, [5] * 6)]
    assert all(h.complete and h.tokens == [] and h.score == pytest.approx(0, abs=1e-3) for h in ended)


def test_a_search_ends_when_nothing_can_change() -> None:
    """Guards the time: a batch of sure sentences must not run on to its limit."""
    model = Table(9, eos=50)
    search(model, SOURCES, [1000] * 6, beam_size=4)
    assert model.steps <= 3


@pytest.mark.parametrize("beam", [1, 4])
def test_scores_are_the_teacher_forced_log_probabilities(beam: int) -> None:
    """Guards the whole chain: what the search says of a translation is what the loss would say of it."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(d_model=32, n_heads=4, encoder_layers=2, decoder_layers=2, d_ff=64), 12, 12)
    model = model.double().eval()
    with torch.no_grad():  # a fresh tied model repeats its last token for ever
        model.projection.weight[EOS] *= 3
    source = torch.tensor([[5, 6, 7, 8, EOS], [9, 4, EOS, PAD, PAD], [7, 7, 7, EOS, PAD]])
    for row, best in zip(source, search(model, source, [9, 9, 9], beam, n_best=2), strict=True):
        for hypothesis in best:
            ids = [SOS, *hypothesis.tokens] + ([EOS] if hypothesis.complete else [])
            target = torch.tensor([ids])
            log_probs = model(row[None, row != PAD], target[:, :-1]).log_softmax(-1).detach()
            expected = log_probs[0].gather(1, target[0, 1:, None])[:, 0]
            assert hypothesis.log_probs == pytest.approx(expected.tolist(), abs=1e-5)
            assert hypothesis.score == pytest.approx(float(expected.mean()), abs=1e-5)
