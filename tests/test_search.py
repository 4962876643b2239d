"""The search, compared with enumeration, greedy decoding, one sentence at a time, and teacher forcing."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from dragoman.architectures.encoder_only import EncoderOnly
from dragoman.architectures.ensemble import Ensemble
from dragoman.dataset import masks
from dragoman.model import Transformer
from dragoman.settings import EOS, PAD, SOS, UNK, DecodingConfig, ModelConfig
from dragoman.translation.constraints import Constraints
from dragoman.translation.next_tokens import filter_likely
from dragoman.translation.results import Hypothesis, normalizer
from dragoman.translation.search import best_paths, search


class History(NamedTuple):
    """The state of the model below."""

    source: Tensor  # (A)
    tokens: Tensor  # (A P, T)

    def select(self, hypotheses: Tensor | None, sentences: Tensor | None) -> History:
        source = self.source if sentences is None else self.source[sentences]
        return History(source, self.tokens if hypotheses is None else self.tokens[hypotheses])


class Table:
    """A model whose logits are a hash of the source and all tokens so far, so no shortcut finds its best output."""

    def __init__(self, vocabulary: int, eos: float = 0.0) -> None:
        self.vocabulary = vocabulary
        self.eos = eos
        self.steps = 0

    def start(self, source: Tensor) -> History:
        return History(source[:, 0], torch.empty(len(source), 0, dtype=torch.long))

    def step(self, tokens: Tensor, state: History) -> tuple[Tensor, History]:
        self.steps += 1
        state = History(state.source, torch.cat((state.tokens, tokens[:, None]), 1))
        sources = state.source.repeat_interleave(len(tokens) // len(state.source))
        rows = zip(sources.tolist(), state.tokens.tolist(), strict=True)
        return torch.stack([self.logits(source, history) for source, history in rows]), state

    def logits(self, source: int, history: list[int]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((source, *history)) % 2**63)
        logits = 2 * torch.randn(self.vocabulary, generator=generator)
        logits[EOS] += self.eos
        return logits


GREEDY = DecodingConfig()


def searched(
    model: Any,
    source: Tensor,
    max_lengths: list[int],
    settings: DecodingConfig = GREEDY,
    **constraints: Any,
) -> list[list[Hypothesis]]:
    return search(model, source, settings, Constraints(max_lengths, **constraints))


def enumerate_all(model: Table, source: int, limit: int, alpha: float) -> list[tuple[float, list[int]]]:
    """Every translation of at most `limit` tokens that ends in [EOS], with its score, best first."""
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
def test_wide_beam_equals_enumeration(alpha: float) -> None:
    """Guards early stopping: a longer hypothesis can have a better score than the first one that ends."""
    model = Table(6)
    found = searched(model, SOURCES, [4] * 6, DecodingConfig(beam_size=500, length_penalty=alpha, n_best=3))
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
def test_beam_of_one_equals_greedy(alpha: float) -> None:
    """Guards against a beam that continues past its own [EOS], which some length penalties would reward."""
    model = Table(9)
    found = searched(model, SOURCES, [12] * 6, DecodingConfig(beam_size=1, length_penalty=alpha))
    assert [best[0].tokens for best in found] == [greedy(model, source, 12) for source in SOURCES[:, 0].tolist()]


@pytest.mark.parametrize("beam", [1, 3])
def test_absent_tokens_are_not_written(beam: int) -> None:
    """Guards placeholders that the source lacks, and the order of these rules when sentences leave the batch."""
    absent = [[], [4], [4, 5], [6, 7, 8], [5], []]
    limits = [3, 9, 5, 12, 4, 10]
    found = searched(Table(9, eos=1.0), SOURCES, limits, DecodingConfig(beam_size=beam), absent=absent)
    for best, never in zip(found, absent, strict=True):
        assert not set(best[0].tokens) & set(never)


@pytest.mark.parametrize("beam", [1, 3])
def test_batch_equals_one_by_one(beam: int) -> None:
    """Guards the rows: when finished sentences leave the batch, the others must keep their own state and limit."""
    limits = [3, 9, 5, 12, 1, 7]
    together = searched(Table(9), SOURCES, limits, DecodingConfig(beam_size=beam))
    alone = [searched(Table(9), SOURCES[i : i + 1], [limits[i]], DecodingConfig(beam_size=beam))[0] for i in range(6)]
    assert [[h.tokens for h in best] for best in together] == [[h.tokens for h in best] for best in alone]
    assert [best[0].score for best in together] == pytest.approx([best[0].score for best in alone])


def test_hypothesis_at_its_limit_is_incomplete() -> None:
    """Guards the limit: no more tokens than that, and `complete` is False."""
    hypotheses = [best[0] for best in searched(Table(9, eos=-50), SOURCES, [5] * 6)]
    assert all(not h.complete and len(h.tokens) == len(h.log_probs) == 5 for h in hypotheses)
    ended = [best[0] for best in searched(Table(9, eos=50), SOURCES, [5] * 6)]
    assert all(h.complete and h.tokens == [] and h.score == pytest.approx(0, abs=1e-3) for h in ended)


def test_search_stops_when_nothing_can_change() -> None:
    """Guards speed: a batch of certain sentences must not run until its limit."""
    model = Table(9, eos=50)
    searched(model, SOURCES, [1000] * 6, DecodingConfig(beam_size=4))
    assert model.steps <= 3


@pytest.mark.parametrize("beam", [1, 4])
def test_scores_equal_teacher_forcing(beam: int) -> None:
    """Guards the whole search: its log-probabilities are those that the loss would compute."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(d_model=32, n_heads=4, encoder_layers=2, decoder_layers=2, d_ff=64), 12, 12)
    model = model.double().eval()
    with torch.no_grad():  # an untrained tied model repeats its last token for ever
        model.projection.weight[EOS] *= 3
    source = torch.tensor([[5, 6, 7, 8, EOS], [9, 4, EOS, PAD, PAD], [7, 7, 7, EOS, PAD]])
    for row, best in zip(
        source, searched(model, source, [9, 9, 9], DecodingConfig(beam_size=max(2, beam), n_best=2)), strict=True
    ):
        for hypothesis in best:
            ids = [SOS, *hypothesis.tokens] + ([EOS] if hypothesis.complete else [])
            target = torch.tensor([ids])
            given = row[None, row != PAD], target[:, :-1]
            log_probs = model(*given, *masks(*given)).log_softmax(-1).detach()
            expected = log_probs[0].gather(1, target[0, 1:, None])[:, 0]
            assert hypothesis.log_probs == pytest.approx(expected.tolist(), abs=1e-5)
            assert hypothesis.score == pytest.approx(float(expected.mean()), abs=1e-5)


def enumerated_score(model: Table, source: int, tokens: list[int]) -> list[float]:
    """The log-probability of each token of a translation, straight from the table."""
    history, found = [SOS], []
    for token in tokens:
        found.append(float(model.logits(source, history).log_softmax(-1)[token]))
        history.append(token)
    return found


@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_length_formula_of_the_paper(alpha: float) -> None:
    """Guards the formula and early stopping with it: ((5 + length) / 6) ** alpha, not length ** alpha."""
    model = Table(6)
    settings = DecodingConfig(beam_size=500, length_penalty=alpha, length_formula="paper", n_best=2)
    for source, best in zip(SOURCES[:, 0].tolist(), searched(model, SOURCES, [4] * 6, settings), strict=True):
        every = enumerate_all(model, source, 4, 0.0)
        expected = sorted(((total / ((6 + len(words)) / 6) ** alpha, words) for total, words in every), reverse=True)
        assert [h.tokens for h in best if h.complete] == [words for _, words in expected[:2]]
        assert best[0].score == pytest.approx(expected[0][0], rel=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("beam", [1, 3])
def test_no_repeat_ngram(n: int, beam: int) -> None:
    """Guards against an off-by-one error in the ban: without it, n-grams repeat; with it, none does."""
    free = DecodingConfig(beam_size=beam, n_best=beam)
    bound = DecodingConfig(beam_size=beam, n_best=beam, no_repeat_ngram=n)
    repeats = 0
    for settings in (free, bound):
        model = Table(7, eos=-4 if n > 1 else 0)
        for hypothesis in itertools.chain.from_iterable(searched(model, SOURCES, [14] * 6, settings)):
            ngrams = list(zip(*(hypothesis.tokens[i:] for i in range(n)), strict=False))
            repeats += len(ngrams) - len(set(ngrams))
        if settings is free:
            assert repeats > 0
            repeats = 0
    assert repeats == 0


@pytest.mark.parametrize("beam", [1, 3])
def test_number_of_unknown_words_is_limited(beam: int) -> None:
    """Guards copying: an [UNK] beyond the unknown words of the source could only copy a known word."""

    class Unsure(Table):
        def logits(self, source: int, history: list[int]) -> Tensor:
            logits = super().logits(source, history)
            logits[UNK] += 5
            return logits

    allowed = [0, 1, 2, 3, 0, 1]
    found = searched(Unsure(9, eos=-3), SOURCES, [8] * 6, DecodingConfig(beam_size=beam), max_unknowns=allowed)
    assert [best[0].tokens.count(UNK) for best in found] == allowed


@pytest.mark.parametrize("beam", [1, 4])
def test_prefix_is_kept_and_scored(beam: int) -> None:
    """Guards prefixes: their tokens as given, their probabilities in the score, and a free search after them."""
    model = Table(9)
    prefixes: list[list[int]] = [[], [4], [5, 6], [7, 8, 4], [4, 4, 4, 4], [UNK]]
    found = searched(model, SOURCES, [12] * 6, DecodingConfig(beam_size=beam), prefixes=prefixes)
    for source, prefix, best in zip(SOURCES[:, 0].tolist(), prefixes, found, strict=True):
        hypothesis = best[0]
        assert hypothesis.tokens[: len(prefix)] == prefix
        ids = hypothesis.tokens + [EOS] * hypothesis.complete
        assert hypothesis.log_probs == pytest.approx(enumerated_score(model, source, ids), abs=1e-5)
    free = searched(model, SOURCES, [12] * 6, DecodingConfig(beam_size=beam))
    forced = searched(
        model, SOURCES, [12] * 6, DecodingConfig(beam_size=beam), prefixes=[h[0].tokens[:2] for h in free]
    )
    if beam == 1:
        assert [h[0].tokens for h in forced] == [h[0].tokens for h in free]


def test_samples_follow_the_probabilities() -> None:
    """Guards sampling: frequencies match the probabilities of the table within 4 sigma."""
    model, count = Table(8), 4000
    settings = DecodingConfig(sample=True, n_best=count)
    one = torch.tensor([[21]])
    drawn: list[int] = []

    class Recorder(Table):
        def step(self, tokens: Tensor, state: History) -> tuple[Tensor, History]:
            if len(tokens) > 1 and not drawn:
                drawn.extend(tokens.tolist())
            logits, state = super().step(tokens[:1], History(state.source, state.tokens[:1]))
            return logits.expand(len(tokens), -1).clone(), History(state.source, state.tokens.expand(len(tokens), -1))

    searched(Recorder(8, eos=-50), one, [2], settings)
    logits = model.logits(21, [SOS])
    logits[EOS] -= 50
    probability = logits.softmax(-1)
    probability[[PAD, SOS]] = 0
    probability /= probability.sum()
    for token in range(8):
        p = float(probability[token])
        assert drawn.count(token) / count == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / count) + 1e-9)


def test_samples_depend_only_on_seed_and_sentence() -> None:
    """Guards reproducibility: neither the batch nor its padding may change a sample."""
    settings = DecodingConfig(sample=True, n_best=3, seed=5)
    padded = torch.cat((SOURCES, torch.full((6, 2), PAD)), 1)
    together = searched(Table(9), padded, [9] * 6, settings)
    alone = [searched(Table(9), SOURCES[i : i + 1], [9], settings)[0] for i in range(6)]
    assert [[h.tokens for h in best] for best in together] == [[h.tokens for h in best] for best in alone]
    other = searched(Table(9), padded, [9] * 6, DecodingConfig(sample=True, n_best=3, seed=6))
    assert together != other
    model = Table(9)
    for source, best in zip(SOURCES[:, 0].tolist(), together, strict=True):
        for h in best:
            ids = h.tokens + [EOS] * h.complete
            assert h.log_probs == pytest.approx(enumerated_score(model, source, ids), abs=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        DecodingConfig(sample=True, top_k=1),
        DecodingConfig(sample=True, top_p=1e-6),
        DecodingConfig(sample=True, temperature=1e-4),
    ],
)
def test_sampling_becomes_greedy_in_the_limit(settings: DecodingConfig) -> None:
    """Guards temperature, top-k and top-p: each can leave only the likeliest token."""
    found = searched(Table(9), SOURCES, [9] * 6, settings)
    assert [best[0].tokens for best in found] == [greedy(Table(9), source, 9) for source in SOURCES[:, 0].tolist()]


def test_filter_likely() -> None:
    """Guards the edge cases: the token that crosses top_p stays, and so do ties at top_k."""
    logits = torch.tensor([[[0.5, 0.3, 0.15, 0.05]]]).log()
    assert filter_likely(logits, None, 0.6).isfinite().tolist() == [[[True, True, False, False]]]
    assert filter_likely(logits, None, 0.5).isfinite().tolist() == [[[True, False, False, False]]]
    assert filter_likely(logits, 3, 1.0).isfinite().tolist() == [[[True, True, True, False]]]
    assert filter_likely(logits, 9, 1.0).isfinite().all()


@pytest.mark.parametrize("beam", [1, 3])
def test_ensemble_uses_mean_probabilities(beam: int) -> None:
    """Guards ensembles: the same model twice equals that model, and two models average their probabilities."""
    torch.manual_seed(0)
    shapes = [ModelConfig(d_model=32, n_heads=4, encoder_layers=1, decoder_layers=n, d_ff=64) for n in (1, 2)]
    one, two = (Transformer(shape, 12, 12).eval() for shape in shapes)
    source = torch.tensor([[5, 6, 7, 8, EOS], [9, 4, EOS, PAD, PAD]])
    settings = DecodingConfig(beam_size=beam)
    same, single = (searched(m, source, [6, 6], settings) for m in (Ensemble([one, one]), one))
    assert [h[0].tokens for h in same] == [h[0].tokens for h in single]
    assert [h[0].score for h in same] == pytest.approx([h[0].score for h in single], abs=1e-5)
    for row, best in zip(source, searched(Ensemble([one, two]), source, [6, 6], settings), strict=True):
        target = torch.tensor([[SOS, *best[0].tokens] + [EOS] * best[0].complete])
        with torch.no_grad():
            given = row[None, row != PAD], target[:, :-1]
            each = [m(*given, *masks(*given)).softmax(-1) for m in (one, two)]
            probability = torch.stack(each).mean(0)
        expected = probability[0].gather(1, target[0, 1:, None])[:, 0].log()
        assert best[0].log_probs == pytest.approx(expected.tolist(), abs=1e-5)


class Sheet:
    """A model with two places per source token, whose logits are a hash of the first token."""

    def __init__(self, **likely: float) -> None:
        self.likely = {{"eos": EOS, "sos": SOS, "unk": UNK}[name]: more for name, more in likely.items()}

    def lengths(self, source: Tensor) -> Tensor:
        return 2 * (source != PAD).sum(1)

    def places(self, source: Tensor) -> Tensor:
        return torch.stack([self.logits(int(row[0]))[: 2 * source.shape[1]] for row in source])

    def logits(self, source: int) -> Tensor:
        logits = 2 * torch.randn(8, 7, generator=torch.Generator().manual_seed(source))
        for token, more in self.likely.items():
            logits[:, token] += more
        return logits


# Sources of one to four tokens, with padding.
LINES = torch.tensor([[n, *[5] * (n % 4), *[PAD] * (3 - n % 4)] for n in range(11, 23)])
ENDLESS = [99] * len(LINES)


def read(
    model: Any,
    source: Tensor = LINES,
    limits: list[int] = ENDLESS,
    settings: DecodingConfig = GREEDY,
    **constraints: Any,
) -> list[Hypothesis]:
    found = best_paths(model, source, settings, Constraints(limits, **constraints))
    assert all(len(each) == 1 for each in found)
    return [hypothesis for [hypothesis] in found]


@pytest.mark.parametrize("changes", [{}, {"length_penalty": 0.0}, {"length_formula": "paper"}])
def test_best_path_finds_the_likeliest_path(changes: dict[str, Any]) -> None:
    """Guards tokens, log-probabilities and scores, compared with all paths through two or four places.

    Probabilities are not renormalized for the tokens that are ruled out.
    """
    settings, model = DecodingConfig(**changes), Sheet()
    for source, hypothesis in zip(LINES, read(model, settings=settings), strict=True):
        places = 2 * int((source != PAD).sum())
        if places > 4:
            continue
        log_probs = model.logits(int(source[0])).log_softmax(-1)
        allowed = [token for token in range(7) if token not in (SOS, EOS)]
        every = (
            (sum(float(log_probs[n, token]) for n, token in enumerate(ids)), ids)
            for ids in itertools.product(allowed, repeat=places)
        )
        total, ids = max(every)
        assert hypothesis.tokens == [token for token, _ in itertools.groupby(ids) if token != PAD]
        assert hypothesis.complete
        assert len(hypothesis.log_probs) == len(hypothesis.tokens) + 1
        assert sum(hypothesis.log_probs) == pytest.approx(total, abs=1e-5)
        empty = sum(float(log_probs[n, PAD]) for n, token in enumerate(ids) if token == PAD)
        assert hypothesis.log_probs[-1] == pytest.approx(empty, abs=1e-5)
        assert hypothesis.score == pytest.approx(total / normalizer(len(hypothesis.tokens) + 1, settings), abs=1e-5)


def test_best_path_is_cut_at_its_limit() -> None:
    """Guards the limit, which counts [EOS] as in a search: a sentence that fills it has none."""
    lengths = [len(free.tokens) for free in read(Sheet())]
    for spare in (1, 0, -1):
        limits = [max(1, length + spare) for length in lengths]
        for limit, free, cut in zip(limits, read(Sheet()), read(Sheet(), limits=limits), strict=True):
            assert cut.tokens == free.tokens[:limit]
            assert cut.complete == (len(free.tokens) < limit)
            assert cut.log_probs == free.log_probs[:limit]
            assert cut.score == pytest.approx(sum(cut.log_probs) / len(cut.log_probs))


def test_best_path_never_returns_start_or_end() -> None:
    """Guards the text against [SOS] and [EOS], which a model that writes at once does not use."""
    for hypothesis in read(Sheet(sos=9, eos=9)):
        assert not {SOS, EOS, PAD} & set(hypothesis.tokens)
        assert all(math.isfinite(each) for each in hypothesis.log_probs)
        assert hypothesis.score < -4, "no other token is likely"


def test_best_path_limits_unknown_words() -> None:
    """Guards copying: without an unknown source word there is nothing to copy into an [UNK]."""
    allowed = [n % 3 for n in range(len(LINES))]
    found = read(Sheet(unk=9), max_unknowns=allowed)
    assert [UNK in each.tokens for each in found] == [n > 0 for n in allowed]
    assert all(UNK in each.tokens for each in read(Sheet(unk=9)))


def test_best_path_of_a_batch_equals_one_by_one() -> None:
    """Guards the rows: each has its own places and limits, and padding is not read."""
    limits, allowed = [1 + n % 5 for n in range(len(LINES))], [n % 2 for n in range(len(LINES))]
    together = read(Sheet(unk=1), limits=limits, max_unknowns=allowed)
    for i, row in enumerate(LINES):
        [alone] = read(Sheet(unk=1), row[None, row != PAD], [limits[i]], max_unknowns=[allowed[i]])
        assert alone.tokens == together[i].tokens
        assert alone.complete == together[i].complete
        assert alone.log_probs == pytest.approx(together[i].log_probs)


def test_encoder_only_model_is_read_alike_in_any_batch() -> None:
    """Guards a real model, including its padding."""
    torch.manual_seed(0)
    shape = ModelConfig(architecture="encoder-only", d_model=32, n_heads=4, encoder_layers=1, decoder_layers=1, d_ff=64)
    model = EncoderOnly(shape, 12, 12).double().eval()
    source = torch.tensor([[5, 6, 7, 8, EOS], [9, 4, EOS, PAD, PAD], [7, 7, 7, EOS, PAD]])
    together = read(model, source, [20] * 3)
    assert any(each.tokens for each in together)
    for row, expected in zip(source, together, strict=True):
        [alone] = read(model, row[None, row != PAD], [20])
        assert alone.tokens == expected.tokens
        assert alone.log_probs == pytest.approx(expected.log_probs, abs=1e-5)
