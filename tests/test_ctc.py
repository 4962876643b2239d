"""CTC compared with an enumeration of all paths."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from dragoman.architectures import ctc
from dragoman.architectures.ctc import BLANK

PLACES, VOCABULARY = 5, 3
# Targets and their number of places: typical, with a repeated token (which needs a blank between), empty, with just
# enough places, with a single path, with a single place; and two without a path.
CASES = [([1, 2], 5), ([1, 1], 5), ([], 4), ([2, 1, 2], 3), ([2, 2, 2], 5), ([1], 1), ([1, 1], 2), ([1, 2, 1], 2)]
TARGETS = [target for target, _ in CASES]
LENGTHS = torch.tensor([length for _, length in CASES])
TOKENS = torch.tensor([len(target) for target in TARGETS])
TARGET = torch.tensor([target + [BLANK] * (3 - len(target)) for target in TARGETS])
POSSIBLE = [0, 1, 2, 3, 4, 5]


def spelled(ids: Sequence[int]) -> list[int]:
    return [token for token, _ in itertools.groupby(ids) if token != BLANK]


def paths(log_probs: Tensor, length: int, target: list[int] | None = None) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
    """All paths through log_probs (N, V), or only those that spell a target, with their log-probabilities."""
    for ids in itertools.product(range(VOCABULARY), repeat=length):
        if target is None or spelled(ids) == target:
            yield log_probs[torch.arange(length), torch.tensor(ids)].sum(), ids


def best(log_probs: Tensor, length: int, target: list[int] | None = None) -> tuple[float, list[int]]:
    score, ids = max(paths(log_probs, length, target), key=lambda each: float(each[0]))
    return float(score), list(ids)


def written(path: Tensor, target: list[int], length: int) -> list[int]:
    """The ids of a path, which must be empty beyond its places."""
    assert (path[length:] == -1).all()
    return [target[token] if token >= 0 else BLANK for token in path[:length].tolist()]


@pytest.fixture(params=[0, 1, 2])
def logits(request: pytest.FixtureRequest) -> Tensor:
    generator = torch.Generator().manual_seed(request.param)
    return 2 * torch.randn(len(CASES), PLACES, VOCABULARY, generator=generator, dtype=torch.double)


def test_loss_is_the_sum_over_all_paths(logits: Tensor) -> None:
    """Guards the blank, the lengths, and a batch loss that targets without a path must not make infinite."""
    log_probs = logits.log_softmax(-1)
    rows = ctc.loss(log_probs, LENGTHS, TARGET, TOKENS)
    for i, (target, length) in enumerate(CASES):
        every = [score for score, _ in paths(log_probs[i], length, target)]
        assert bool(every) == (i in POSSIBLE)
        expected = -torch.stack(every).logsumexp(0) if every else torch.tensor(0.0, dtype=torch.double)
        torch.testing.assert_close(rows[i], expected)


def test_best_path_is_the_likeliest_of_all(logits: Tensor) -> None:
    """Guards the spelling: equal neighbours are one token, and a blank separates two."""
    log_probs = logits.log_softmax(-1)
    sentences, path = ctc.best_path(log_probs, LENGTHS)
    for row, length, sentence, way in zip(log_probs, LENGTHS.tolist(), sentences, path, strict=True):
        _, ids = best(row, length)
        assert sentence == spelled(ids)
        assert written(way, sentence, length) == ids


def test_a_path_by_example() -> None:
    """`a a _ b _ b` spells `a b b`, and places beyond the length do not count."""
    log_probs = torch.nn.functional.one_hot(torch.tensor([[1, 1, 0, 2, 0, 2, 1], [2, 2, 2, 0, 0, 1, 1]]), 3).float()
    sentences, path = ctc.best_path(log_probs, torch.tensor([6, 4]))
    assert sentences == [[1, 2, 2], [2]]
    assert path.tolist() == [[0, 0, -1, 1, -1, 2, -1], [0, 0, 0, -1, -1, -1, -1]]
    assert ctc.first_places(path, 4).tolist() == [[0, 3, 5, 0], [0, 0, 0, 0]]


def test_forced_path_is_the_likeliest_that_spells_the_target(logits: Tensor) -> None:
    """Guards Viterbi's steps: a skip between different tokens, none between equal ones, both ends, any length."""
    log_probs = logits.log_softmax(-1)
    forced = ctc.forced_path(log_probs, LENGTHS, TARGET, TOKENS)
    for i in POSSIBLE:
        target, length = CASES[i]
        assert written(forced[i], target, length) == best(log_probs[i], length, target)[1]


def test_a_target_without_a_path_is_not_spelled(logits: Tensor) -> None:
    """Guards the documented result: some other path, but no crash, because it occurs in the middle of a batch."""
    forced = ctc.forced_path(logits.log_softmax(-1), LENGTHS, TARGET, TOKENS)
    for i in set(range(len(CASES))) - set(POSSIBLE):
        assert spelled(written(forced[i], *CASES[i])) != TARGETS[i]


def test_a_path_can_spell_nothing(logits: Tensor) -> None:
    """Guards the empty translation in a batch of its own."""
    nothing = torch.empty(len(CASES), 0, dtype=torch.long)
    log_probs = logits.log_softmax(-1)
    forced = ctc.forced_path(log_probs, LENGTHS, nothing, torch.zeros_like(LENGTHS))
    assert (forced == -1).all()
    found = ctc.by_token(log_probs[0], 5, [], forced[0])
    assert found == pytest.approx([float(log_probs[0, :, BLANK].sum())])


def test_first_places_are_where_a_token_starts(logits: Tensor) -> None:
    """Guards the alignment: the first of a token's places, not any of them."""
    forced = ctc.forced_path(logits.log_softmax(-1), LENGTHS, TARGET, TOKENS)
    found = ctc.first_places(forced, 3)
    for i in POSSIBLE:
        path = forced[i].tolist()
        assert found[i].tolist() == [path.index(t) if t in path else 0 for t in range(3)]


def test_tokens_share_the_log_probability_of_their_path(logits: Tensor) -> None:
    """Guards the scores: a token's places count for it, the blanks for the end, and none is left out."""
    log_probs = logits.log_softmax(-1)
    forced = ctc.forced_path(log_probs, LENGTHS, TARGET, TOKENS)
    for i in POSSIBLE:
        target, length = CASES[i]
        found = ctc.by_token(log_probs[i], length, target, forced[i])
        expected = [0.0] * (len(target) + 1)
        for n, token in enumerate(forced[i, :length].tolist()):
            expected[token] += float(log_probs[i, n, target[token] if token >= 0 else BLANK])
        assert found == pytest.approx(expected)
        assert sum(found) == pytest.approx(best(log_probs[i], length, target)[0])
