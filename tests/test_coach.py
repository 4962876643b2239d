"""The coach is silent in healthy runs, and speaks once, and soon, in each kind of spoilt run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from conftest import tiny_pairs, write_tsv
from dragoman import train
from dragoman.command_line import override
from dragoman.evaluation import validation_loss
from dragoman.evaluation.metrics import score
from dragoman.settings import EOS, Config
from dragoman.training import coach, validation
from dragoman.training.batches import training_batches
from dragoman.training.coach import Coach, constant_loss
from faults.harness import training_of

Tiny = Callable[..., Config]
UNIGRAM = 5.63  # `constant_loss` of the phrasebook
DECAY = [5.0 * 0.9**i + 0.2 for i in range(40)]  # a run that learns, 400 updates

# Runs on the phrasebook that reached a BLEU of 93 and 97 and a perplexity of 8: loss and gradient norm at every tenth
# update, and (step, loss, quality) of the validations.
HEALTHY = {
    "encoder-only": (
        """
        15.63 13.27 11.13 9.24 8.13 6.78 5.80 5.42 5.62 5.51 5.30 5.26 5.09 5.14 5.07 4.99 5.03 4.91 4.68 4.76 4.81
        4.66 4.63 4.49 4.51 4.36 4.36 4.16 4.12 4.21 3.83 3.77 3.85 3.78 3.48 3.46 3.48 3.25 3.08 2.95 2.86 2.71 2.54
        2.56 2.51 2.31 2.29 2.05 1.85 1.93 1.83 1.75 1.57 1.68 1.57 1.59 1.38 1.33 1.21 1.15 1.23 1.15 1.25 1.10 1.01
        0.93 0.90 0.86 0.92 0.79 0.80 0.73 0.83 0.81 0.65 0.75 0.55 0.54 0.54 0.59 0.54 0.55 0.61 0.49 0.54 0.44 0.50
        0.46 0.48 0.39 0.42 0.35 0.43 0.35 0.41 0.35 0.32 0.29 0.36 0.30 0.27 0.27 0.27 0.27 0.28 0.26 0.24 0.24 0.21
        0.21 0.21 0.17 0.19 0.19 0.20 0.14 0.16 0.16 0.15 0.14 0.18 0.16 0.16 0.13 0.12 0.13 0.12 0.14 0.12 0.14 0.17
        0.13 0.13 0.09 0.10 0.08 0.09 0.09 0.09 0.10 0.11 0.10 0.09 0.12 0.09 0.08 0.08 0.07 0.10 0.08 0.10 0.08 0.09
        0.09 0.09 0.07 0.05 0.05 0.07 0.06 0.06 0.06 0.06 0.05 0.06 0.06 0.05 0.07 0.06 0.06 0.05
        """,
        """
        12.10 17.05 16.61 13.46 13.56 9.18 3.47 1.66 1.98 2.82 1.55 1.91 1.61 3.12 1.70 1.32 2.61 1.69 3.24 2.19 1.64
        2.28 1.95 2.62 2.62 1.86 1.89 1.62 2.01 1.91 1.31 1.34 1.94 1.40 1.12 1.39 1.40 1.70 1.09 1.03 1.16 1.09 1.01
        1.16 1.06 1.08 1.19 1.02 0.84 1.00 0.94 0.96 0.91 0.92 1.04 1.14 0.97 0.77 0.72 0.82 0.94 0.88 1.05 0.87 0.80
        0.73 0.79 0.73 0.97 0.74 0.69 0.74 0.80 0.90 0.66 0.86 0.66 0.68 0.66 0.79 0.83 0.76 0.83 0.63 0.67 0.62 0.69
        0.72 0.69 0.57 0.64 0.56 0.68 0.63 0.68 0.58 0.57 0.56 0.69 0.78 0.61 0.60 0.54 0.57 0.59 0.53 0.51 0.57 0.47
        0.50 0.53 0.46 0.48 0.47 0.54 0.43 0.49 0.44 0.41 0.43 0.51 0.47 0.51 0.41 0.37 0.61 0.39 0.46 0.42 0.43 0.55
        0.47 0.42 0.34 0.34 0.28 0.36 0.36 0.34 0.36 0.45 0.42 0.33 0.42 0.36 0.36 0.32 0.29 0.35 0.34 0.45 0.35 0.33
        0.34 0.36 0.30 0.24 0.25 0.33 0.28 0.40 0.27 0.31 0.25 0.25 0.26 0.27 0.30 0.29 0.26 0.23
        """,
        [(500, 1.84, 25.6), (1000, 0.301, 79.6), (1500, 0.113, 91.7), (1710, 0.097, 93.2)],
    ),
    "paper": (
        """
        8.26 7.44 6.94 6.68 6.33 6.06 5.67 5.31 5.37 5.23 4.99 4.88 4.72 4.68 4.67 4.44 4.37 4.29 4.08 4.02 4.06 3.76
        3.59 3.47 3.45 3.17 3.16 2.98 2.72 2.83 2.52 2.45 2.53 2.47 2.19 2.21 2.18 1.91 1.75 1.66 1.67 1.60 1.45 1.59
        1.62 1.30 1.43 1.27 1.10 1.23 1.04 1.06 0.91 1.02 1.03 1.03 0.85 0.73 0.74 0.66 0.81 0.68 0.71 0.65 0.60 0.52
        0.54 0.50 0.56 0.49 0.44 0.43 0.61 0.67 0.44 0.56 0.39 0.41 0.36 0.44 0.42 0.38 0.56 0.34 0.37 0.32 0.37 0.43
        0.42 0.33 0.31 0.29 0.38 0.28 0.35 0.26 0.28 0.28 0.35 0.30 0.28 0.31 0.29 0.29 0.34 0.31 0.25 0.33 0.24 0.23
        0.24 0.24 0.24 0.22 0.31 0.23 0.22 0.24 0.22 0.25 0.27 0.23 0.31 0.21 0.21 0.22 0.23 0.22 0.20 0.23 0.31 0.25
        0.22 0.19 0.19 0.17 0.19 0.20 0.19 0.20 0.26 0.24 0.19 0.26 0.20 0.19 0.21 0.19 0.25 0.22 0.23 0.19 0.23 0.29
        0.27 0.22 0.17 0.17 0.20 0.18 0.19 0.18 0.19 0.18 0.18 0.17 0.17 0.18 0.18 0.16 0.15
        """,
        """
        4.27 2.59 1.74 1.64 1.49 1.94 1.43 1.72 2.06 1.77 1.35 1.43 1.87 1.77 1.96 1.53 1.54 1.77 2.34 1.94 1.88 1.61
        1.58 2.14 1.95 1.64 1.69 1.68 1.35 1.88 1.29 1.54 1.74 1.62 1.38 1.63 1.57 1.36 1.35 1.48 1.54 1.39 1.17 1.61
        1.43 1.45 1.57 1.38 1.20 1.47 1.24 1.11 1.18 1.26 1.28 1.23 1.09 0.91 0.99 0.89 1.06 1.06 1.07 1.07 0.93 0.80
        0.84 0.82 0.98 0.77 0.70 0.78 1.17 1.26 0.73 1.17 0.72 0.84 0.76 0.94 0.80 0.80 0.94 0.61 0.70 0.68 0.73 0.90
        0.85 0.65 0.61 0.54 0.73 0.56 0.69 0.49 0.57 0.63 0.71 0.84 0.58 0.71 0.58 0.66 0.68 0.62 0.53 0.68 0.47 0.56
        0.49 0.52 0.50 0.39 0.70 0.53 0.54 0.52 0.51 0.54 0.63 0.50 0.68 0.41 0.45 0.72 0.47 0.50 0.41 0.50 0.73 0.55
        0.53 0.38 0.35 0.29 0.37 0.48 0.41 0.40 0.59 0.58 0.40 0.62 0.41 0.50 0.52 0.42 0.64 0.51 0.75 0.40 0.65 0.75
        0.62 0.96 0.34 0.45 0.48 0.42 0.53 0.37 0.47 0.36 0.42 0.36 0.34 0.40 0.42 0.30 0.23
        """,
        [(500, 0.909, 42.8), (1000, 0.175, 91.4), (1500, 0.12, 93.2), (1710, 0.101, 96.9)],
    ),
    "language-model": (
        """
        7.87 6.87 6.31 5.80 5.43 5.23 5.06 4.88 4.65 4.46 4.29 4.26 3.96 4.05 3.78 3.70 3.52 3.26 3.20 3.38 2.99 2.89
        3.19 2.83 2.87 2.88 2.93 2.86 2.63 2.72 2.71 2.57 2.57 2.52 2.55 2.40 2.49 2.47 2.32 2.33 2.31 2.24 2.34 2.43
        2.36 2.32 2.30 2.15 2.11 2.27 2.12 2.11 2.06 2.17 2.18 2.32 2.15 2.11 2.30 2.16 2.24 2.03 2.07 2.00 2.13 2.02
        2.07 1.96 2.00 1.89 2.09 2.12 1.96 2.01 2.06 1.90 2.14 1.98 1.92 2.00 2.11 2.07 1.92 1.96 1.83 1.86 1.80 1.99
        2.13 1.83 1.84 1.90 1.97 1.97 1.76 2.00 1.98 1.94 2.02 1.88 1.75 1.90 1.74 1.88 2.00 1.98 1.88 1.91 1.89 1.84
        1.87 1.92 1.91 1.76 1.89 1.79 1.92 1.83 1.81 1.92 1.77 1.89 1.70 1.76 1.70 1.81 1.87 1.67 1.71 1.88 1.85 1.78
        1.75 1.89 1.80 1.75 1.66 1.81 1.77 1.80 1.62 1.70 1.75 1.78 1.79 1.78 1.63 1.75 1.81
        """,
        """
        3.03 1.95 1.39 1.56 1.30 1.08 1.51 1.28 1.07 1.16 1.28 1.40 1.31 1.37 1.16 1.34 1.19 1.05 0.98 1.44 0.90 0.84
        1.34 0.79 1.00 0.83 1.14 0.83 0.87 0.87 0.87 0.82 0.82 0.80 0.88 0.74 0.82 0.66 0.75 0.71 0.78 0.68 0.74 0.96
        0.77 0.67 0.67 0.73 0.72 0.68 0.63 0.65 0.63 0.69 0.90 0.83 0.65 0.61 0.78 0.65 0.69 0.64 0.62 0.70 0.75 0.64
        0.70 0.63 0.69 0.63 0.62 0.73 0.64 0.63 0.64 0.58 0.65 0.62 0.62 0.59 0.62 0.65 0.66 0.59 0.60 0.60 0.59 0.64
        0.85 0.57 0.62 0.60 0.64 0.58 0.56 0.66 0.62 0.58 0.61 0.60 0.61 0.58 0.57 0.60 0.63 0.60 0.66 0.59 0.64 0.58
        0.59 0.59 0.57 0.58 0.72 0.55 0.61 0.56 0.54 0.62 0.60 0.58 0.59 0.57 0.57 0.56 0.65 0.56 0.61 0.59 0.61 0.62
        0.53 0.60 0.61 0.56 0.59 0.55 0.57 0.54 0.58 0.55 0.58 0.59 0.62 0.59 0.54 0.57 0.55
        """,
        [(500, 2.356, 9.5), (1000, 2.149, 11.7), (1494, 2.077, 12.5)],
    ),
}

# Runs on the phrasebook that learnt nothing: a rate a hundred times too high, and post-norm without warm-up.
SPOILT = {
    "Lower training.lr (0.3)": (
        """
        6.37 5.40 5.22 5.19 4.99 5.13 4.96 4.81 5.11 5.38 5.38 5.34 5.59 5.43 5.72 5.43 5.83 5.80 5.49 5.63 5.82 5.53
        5.30 5.09 5.13 4.92
        """,
        """
        1.98 1.02 0.76 0.74 0.60 0.75 0.53 0.71 1.06 1.32 1.55 1.58 5.13 2.41 2.67 1.88 3.36 3.73 3.06 3.69 3.67 3.14
        2.25 2.23 2.17 1.76
        """,
        ["--training.lr", "0.3"],
        190,
    ),
    "Raise training.warmup_steps (0)": (
        """
        6.50 5.81 5.77 5.78 5.58 5.60 5.39 5.25 5.54 5.45 5.40 5.40 5.33 5.37 5.41 5.38 5.41 5.39 5.27 5.34 5.42 5.39
        5.39 5.23 5.33 5.30
        """,
        """
        2.04 0.93 0.85 0.86 0.99 1.36 0.59 0.72 2.06 0.71 0.67 0.64 0.59 0.70 0.55 0.60 0.59 0.60 0.65 0.55 0.54 0.61
        0.54 0.66 0.54 0.56
        """,
        ["--model.norm", "post", "--training.warmup_steps", "0"],
        220,
    ),
}


# The settings with which the curves above were recorded.
USUAL = (
    "--model.dropout", "0.1", "--training.lr", "0.003", "--training.warmup_steps", "200", "--training.batch_tokens",
    "1024", "--training.validate_every", "500",
)  # fmt: skip


def config_of(*arguments: str) -> Config:
    return override(Config(), [*USUAL, *arguments])


def heard(each: Coach, losses: Sequence[float], norms: Sequence[float] = (), every: int = 10) -> list[tuple[int, str]]:
    """What the coach says at which step, for a curve with a point every `every` updates. Norms are 1 by default."""
    curve = zip(losses, norms or [1.0] * len(losses), strict=True)
    return [(every * i, line) for i, point in enumerate(curve, 1) for line in each.curve(every * i, *point)]


def steps(said: Sequence[tuple[int, str]]) -> list[int]:
    return [step for step, _ in said]


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("constant", [UNIGRAM, None])
def test_the_coach_is_silent_in_healthy_runs(name: str, constant: float | None) -> None:
    """Guards against false alarms: at a plateau, with noise, with a high loss, and at the end, when little is left to
    learn."""
    losses, norms = ([float(word) for word in text.split()] for text in HEALTHY[name][:2])
    warm = "400" if name == "paper" else "200"
    arguments = ["--training.warmup_steps", warm, "--model.norm", "post" if name == "paper" else "pre"]
    each = Coach(config_of(*arguments), 10 * len(losses), constant=constant)
    assert heard(each, losses, norms) == []
    for step, loss, quality in HEALTHY[name][2]:
        assert each.validation(step, loss, losses[step // 10 - 1], quality, [], []) == []


@pytest.mark.parametrize("remedy", SPOILT)
def test_spoilt_runs_give_one_alarm(remedy: str) -> None:
    """Guards the thresholds from the other side, with real runs that learnt nothing."""
    losses, norms = ([float(word) for word in text.split()] for text in SPOILT[remedy][:2])
    *_, arguments, expected = SPOILT[remedy]
    for total in (1710, None):
        said = heard(Coach(config_of(*arguments), total, constant=UNIGRAM), losses, norms)
        assert steps(said) == [expected]
        assert remedy in said[0][1]


def test_the_coach_is_silent_in_a_trial_of_a_few_steps() -> None:
    """Guards a short trial: too little is known of it to say anything."""
    each = Coach(config_of("--training.warmup_steps", "5"), 32, constant=2.7)
    assert heard(each, [3.7, 2.9, 2.7, 2.7, 2.6, 2.5, 2.5, 2.4, 2.4, 2.4], every=3) == []
    assert each.validation(32, 2.3, 2.4, 1.7, ["la la la la."] * 9, tuple("abcdefghi")) == []


def test_a_jump_of_the_loss_gives_an_alarm_at_its_third_point() -> None:
    """Guards against an alarm for one bad batch, alarms at every point, and silence at a second jump."""
    well, high = DECAY, DECAY[-1] + coach.JUMP
    said = heard(Coach(config_of(), None), [*well, *[high + 0.01] * 20])
    assert steps(said) == [430]
    assert "training.lr (0.003)" in said[0][1]
    assert heard(Coach(config_of(), None), [*well, high + 9, high + 9, high - 0.1, high + 9, high + 9, 0.2]) == []
    assert heard(Coach(config_of(), None), [*well, *[high - 0.01] * 20]) == []
    assert steps(heard(Coach(config_of(), None), [*well, *[high + 1] * 9, 0.1, *[high + 1] * 9])) == [430, 530]


def test_a_jump_is_not_measured_from_one_lucky_point() -> None:
    """Guards against a false alarm for small batches of mixed texts: points of a healthy run on captions and machine
    translations of them."""
    points = """
        2.44 2.95 2.69 2.59 2.66 2.58 2.00 2.19 2.34 2.37 2.80 2.73 2.36 2.55 2.31 2.26 2.55 2.15 2.28 2.33 2.41 2.41
        2.09 2.44 2.19 2.20 2.84 1.77 2.30 2.01 2.57 2.16 1.96 2.50 2.44 2.40 2.15 2.40 2.04 2.14 2.09 2.07 2.36
    """
    assert heard(Coach(config_of(), None), [*DECAY[:8], *map(float, points.split())]) == []


def test_the_noise_of_small_batches_is_not_a_jump() -> None:
    """Guards against an alarm in a run that learns: part of one with batches of 1,024 tokens, 10,000 pairs."""
    losses = """
        2.99 3.00 2.87 3.30 3.30 2.76 3.23 3.12 3.04 2.79 3.10 2.84 3.03 2.94 3.04 2.97 2.98 3.16 3.21 3.08 2.85 2.84
        3.09 2.70 2.63 2.87 2.45 2.57 2.70 2.58 2.88 2.78 2.57 3.02 2.02 2.56 3.07 3.07 2.40 2.60 2.78 2.80 2.91 3.09
        3.07 2.30 2.69 2.31 2.61 2.38 2.53 2.36 2.82 3.11 2.85 2.60 2.69 2.74 2.90 2.45 2.48 2.42 2.97 2.34 2.40 2.41
    """
    curve = [4.0, 3.6, 3.3, *map(float, losses.split())]
    assert heard(Coach(config_of(), None, constant=UNIGRAM), curve) == []
    risen = [loss + 1.0 for loss in curve[-4:]]
    [(step, line)] = heard(Coach(config_of(), None, constant=UNIGRAM), curve + risen)
    assert step == 10 * (len(curve) + 3)
    assert "has jumped" in line


def test_a_growing_norm_gives_an_alarm_once_the_loss_no_longer_falls() -> None:
    """Guards small models that learn fast, whose norm grows while the loss falls."""
    stuck = [*DECAY, *[0.4] * 20]
    said = heard(Coach(config_of(), None), stuck, [1.0] * 41 + [coach.NORM + 0.1] * 19)
    assert steps(said) == [440]
    assert "gradient norm has grown from 1 to 5.1" in said[0][1]
    assert heard(Coach(config_of(), None), stuck, [1.0] * 41 + [coach.NORM - 0.1] * 19) == []
    falling = [6 - 0.08 * i for i in range(60)]
    assert heard(Coach(config_of(), None), falling, [1.0] * 41 + [30.0] * 19) == []


def test_a_divergence_from_the_first_step_gives_an_alarm() -> None:
    """Guards against taking a bad start for normal: the mean of the first updates is not the lowest loss."""
    said = heard(
        Coach(config_of("--training.lr", "1"), 120), [4.6, 20, 36, 34, 31, 33, 51, 40, 38, 28, 25, 22], every=3
    )
    assert steps(said) == [36]


def test_a_rate_that_is_too_high_is_not_raised_afterwards() -> None:
    """Guards against two remedies that contradict each other: a bad start is soon passed, but the loss stays high."""
    config = config_of("--training.lr", "3", "--training.warmup_steps", "5")
    said = heard(Coach(config, None, constant=UNIGRAM), [36, 265, 260, 250, 200, 150, 90, 60, *[30 + 0.1] * 40])
    assert ["Lower training.lr (3)" in line for _, line in said] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "level", "remedy"),
    [
        (["--training.lr", "0.1"], 5.5, "Lower training.lr (0.1)"),
        (["--training.lr", "1e-7"], 7.5, "has only fallen to 7.5, while a model"),
        (["--training.lr", "1e-7"], 7.5, "Raise training.lr (1e-07)"),
        (["--model.norm", "post", "--training.warmup_steps", "50"], 5.5, "model.norm to pre"),
        (["--model.norm", "post", "--training.warmup_steps", "0"], 5.5, "Raise training.warmup_steps (0)"),
    ],
)
def test_a_dead_run_gives_an_alarm_soon_after_the_warmup(arguments: list[str], level: float, remedy: str) -> None:
    """Guards an hour spent on a model that knows only word frequencies; the advice names the right setting."""
    config = config_of(*arguments)
    noisy = [max(level, 8 - 2 * i) + 0.04 * (-1) ** i for i in range(80)]
    expected = config.training.warmup_steps + coach.WAIT
    said = heard(Coach(config, None, constant=UNIGRAM), noisy)
    assert steps(said) == [expected]
    assert remedy in said[0][1]
    lower = [loss - level + (coach.DEAD - 0.02) * UNIGRAM for loss in noisy]
    assert heard(Coach(config, None, constant=UNIGRAM), lower) == []
    falling, crawling = ([1.1 * UNIGRAM * rate**i for i in range(60)] for rate in (0.996, 0.998))
    assert heard(Coach(config, None, constant=UNIGRAM), falling) == []
    assert len(heard(Coach(config, None, constant=UNIGRAM), crawling)) == 1


def test_a_resumed_run_is_judged_by_the_constant_model_alone() -> None:
    """Guards a resume late in a run: its loss is low and hardly changes because little is left to learn."""
    config = config_of()
    resumed = Coach(config, 2000, started=1000)
    assert [line for step in range(1010, 2001, 10) for line in resumed.curve(step, 1.5, 1.0)] == []
    known = Coach(config, 2000, started=1000, constant=UNIGRAM)
    told = [(step, line) for step in range(1010, 2001, 10) for line in known.curve(step, 5.5, 1.0)]
    assert steps(told) == [1000 + 10 * 2 * coach.WINDOW]


def test_a_run_that_is_too_short_gives_an_alarm_at_its_end() -> None:
    """Guards against ending while the loss falls, and against the advice where the curve is flat."""
    straight = [6 - 0.08 * i for i in range(50)]
    for key, limit in (("max_epochs", None), ("max_steps", "500")):
        config = config_of(*(["--training.max_steps", limit] if limit else []))
        said = heard(Coach(config, 500), straight)
        assert steps(said) == [500]
        assert f"Raise training.{key}" in said[0][1]
    assert heard(Coach(config_of(), 500), straight[:49]) == [], "the end is not reached"
    assert heard(Coach(config_of(), None), straight) == [], "the end is unknown"
    assert heard(Coach(config_of(), 500, started=5), straight) == [], "its start is unknown"
    assert heard(Coach(config_of(), 400), DECAY) == []


def test_a_time_limit_gives_the_number_of_updates() -> None:
    """Guards runs with a time limit, whose number of steps the coach has to estimate."""
    config = config_of("--training.max_minutes", "5")
    for planned, limit in ((None, "max_minutes (5)"), (10_000, "max_minutes (5)"), (500, "max_epochs (8)")):
        each = Coach(config, planned)
        told: list[tuple[int, str]] = []
        for i in range(1, 51):
            told += [(10 * i, line) for line in each.curve(10 * i, 6 - 0.08 * i, 1.0, spent=10 * i / 505)]
        assert each.total == min(planned or 505, 505)
        assert [(step, limit in line) for step, line in told] == [(500, True)]
    each = Coach(config, None)
    sung = ["la la la."] * 30 + REFERENCES[30:]
    assert each.validation(700, 1.0, 1.0, 9.0, sung, REFERENCES) == [], "too early, for a run without a known end"
    each.curve(690, 2.0, 1.0, spent=0.6)
    [line] = each.validation(700, 1.0, 1.0, 9.0, sung, REFERENCES)
    assert "max_minutes" in line


def validated(each: Coach, rows: Sequence[tuple[float, float, float]]) -> list[tuple[int, str]]:
    """What the coach says at validations of a language model: rows of loss, training loss and quality."""
    return [(i, line) for i, row in enumerate(rows, 1) for line in each.validation(500 * i, *row, [], [])]


def test_overfitting_gives_an_alarm_at_the_third_rise() -> None:
    """Guards against an early alarm: one worse validation, a rise within the noise, a rising training loss, and
    translations that still improve."""
    losses, training, quality = [3.0, 2.5, 2.31, 2.4, 2.5, 2.58, 2.7], [3.0, 2.6, 2.3, 2.1, 1.9, 1.7, 1.5], [20.0] * 7
    said = validated(Coach(config_of(), None), list(zip(losses, training, quality, strict=True)))
    assert said == [
        (
            6,
            "the validation loss has risen for 3 validations, from 2.31 to 2.58, while the training loss falls: the "
            "model overfits. Raise model.dropout (0.1), or set training.patience: 3.",
        )
    ]
    flat = [3.0, 2.5, 2.31, 2.32, 2.33, 2.34, 2.35]
    jagged = [3.0, 2.5, 2.31, 2.4, 2.38, 2.5, 2.45]
    for row in (flat, jagged):
        assert validated(Coach(config_of(), None), list(zip(row, training, quality, strict=True))) == []
    assert validated(Coach(config_of(), None), list(zip(losses, losses, quality, strict=True))) == []
    assert validated(Coach(config_of(), None), list(zip(losses, training, range(7), strict=True))) == []
    patient = config_of("--training.patience", "5", "--model.dropout", "0.4")
    assert (
        "Lower training.patience"
        in validated(Coach(patient, None), list(zip(losses, training, quality, strict=True)))[0][1]
    )


REFERENCES = [f"Frase numero {i}." for i in range(100)]


def looked_at(outputs: Sequence[str], step: int = 1000, *arguments: str) -> list[str]:
    """What the coach says of translations at a step of a run of 2000."""
    return Coach(config_of(*arguments), 2000).validation(step, 1.0, 1.0, 10.0, outputs, REFERENCES)


@pytest.mark.parametrize(
    ("outputs", "step", "remedy"),
    [
        (["la la la."] * 10, 1000, "training.max_epochs (8)"),
        (["Il cane."] * 50, 500, "training.lr (0.003)"),
        ([""] * 50, 500, "(nothing)"),
        (["la " * (3 + i) for i in range(50)], 500, "(la)"),
        ([f"Il [UNK] {i}." for i in range(30)], 500, "tokenizer.kind to bpe"),
        (["[UNK] [UNK] [UNK]."] * 100, 500, "tokenizer.kind to bpe"),
    ],
)
def test_bad_translations_give_one_alarm_and_not_too_early(outputs: list[str], step: int, remedy: str) -> None:
    """Guards each threshold from both sides, and against two lines about one problem."""
    rest = REFERENCES[len(outputs) :]
    [line] = looked_at([*outputs, *rest], step)
    assert remedy in line
    assert looked_at([*outputs, *rest], step - 1) == []
    assert looked_at([REFERENCES[0], *outputs[1:], *rest], step) == [] or len(outputs) == 100
    each = Coach(config_of(), 2000)
    told = [
        len(each.validation(step + i, 1.0, 1.0, 10.0, said, REFERENCES))
        for i, said in enumerate([[*outputs, *rest], [*outputs, *rest], REFERENCES, [*outputs, *rest]])
    ]
    assert told == [1, 0, 0, 1], "again only after all was well"


# A model of 4.9 million weights, trained on Multi30k for two hours and then again with a rate of 0.004 and a weight
# decay of 0.2, which lowered its validation loss from 1.51 to 1.40: loss at every tenth update.
AGAIN = """
    0.63 0.68 0.64 0.60 0.58 0.61 0.61 0.57 0.57 0.62 0.75 0.60 0.51 0.60 0.68 0.54 0.64 0.54 0.77 0.72 0.66 0.57
    0.67 0.68 0.62 0.77 0.69 0.82 0.66 0.75 0.67 0.91 0.90 0.92 0.96 1.03 0.83 0.79 0.80 0.73 0.74 0.74 0.83 1.01
    0.72 0.76 0.75 0.85 0.74 0.71 0.93 0.99 0.86 0.72 0.99 0.92 0.75 0.85 0.97 0.85 1.03 0.80 1.02 0.97 0.91 0.73
    0.70 1.04 0.93 0.92 0.83 1.01 0.85 1.10 1.02 0.93 0.79 1.17 0.95 1.08 1.01 1.02 0.93 0.93 1.23 1.03 1.11 1.01
    0.84 0.89 0.94 0.90 0.95 1.03 1.05 1.03 1.11 1.04 0.89 1.16 1.02 0.96 0.99 1.17 1.04 0.98 0.87 1.07 0.95 1.17
    0.85 0.97 0.90 1.32 1.08 1.21 1.02 1.01 0.84 1.15 0.96 1.16 1.06 1.04
"""


def test_a_warm_start_may_forget_at_first() -> None:
    """Guards a healthy warm start: the peak of the rate undoes what was memorised. A spoilt one loses more."""
    curve = [float(word) for word in AGAIN.split()]
    borrowed = config_of("--training.init_from", "runs/other")
    assert heard(Coach(borrowed, 11_000, constant=UNIGRAM), curve) == []
    assert heard(Coach(config_of(), 11_000, constant=UNIGRAM), curve) != [], "the curve must be able to raise an alarm"
    [(_, line)] = heard(Coach(borrowed, 11_000, constant=UNIGRAM), [*curve[:40], *[4.5] * 5])
    assert "too large" in line


def test_borrowed_tokenizers_are_not_blamed_on_a_setting() -> None:
    """Guards against advice without effect: no setting changes another model's tokenizers."""
    for kind in ("word", "bpe"):
        each = Coach(config_of("--training.init_from", "runs/other", "--tokenizer.kind", kind), 2000)
        [line] = each.validation(500, 1.0, 1.0, 10.0, ["Il [UNK]."] * 100, REFERENCES)
        assert "Set training.init_from to null" in line


def test_one_problem_gives_one_line() -> None:
    """Guards against two lines, about the translations and the loss, when a run learns nothing."""
    for first, second in ((400, 410), (410, 400)):
        each = Coach(config_of(), 500, constant=UNIGRAM)
        said: list[int] = []
        for step in range(10, 501, 10):
            said += [step] * len(each.curve(step, 5.5, 1.0)) if step >= 20 and (step < 400 or step >= first) else []
            if step >= second:
                said += [step] * len(each.validation(step, 5.5, 5.5, 0.0, ["."] * 100, REFERENCES))
        assert said == [400]


def test_repetitions_of_the_reference_are_fine() -> None:
    """Guards against an alarm for song lyrics, and for equal sources."""
    songs = ["la la la."] * 30 + REFERENCES[30:]
    each = Coach(config_of(), 2000)
    assert each.validation(1500, 1.0, 1.0, 50.0, songs, songs) == []


def test_numbers_that_are_not_finite_do_no_harm() -> None:
    """Guards training against the coach: it neither reports nor remembers NaN, infinity or nothing."""
    odd = [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e308]
    each = Coach(config_of(), 500, constant=math.nan)
    for step in range(1, 501):
        a, b, c = odd[step % 6], odd[step // 6 % 6], odd[step // 36 % 6]
        assert all(isinstance(line, str) for line in each.curve(step, a, b))
        assert all(isinstance(line, str) for line in each.validation(step, a, b, c, [], []))
    assert each.validation(500, 1.0, 1.0, 1.0, [""], []) == []
    assert heard(Coach(config_of(), None), [math.nan, math.inf, *DECAY[2:]]) == []
    assert steps(heard(Coach(config_of(), None), [math.nan, math.inf, *DECAY[2:], 3.0, 3.0, 3.0])) == [430]
    assert heard(Coach(config_of(), None), DECAY, [math.inf] * 20 + [0.0] * 20) == []


def test_the_constant_loss_is_an_entropy() -> None:
    """Guards the loss below which learning begins; tokens that never occur do not count."""
    assert constant_loss([5, 5, 0, 5, 5]) == pytest.approx(math.log(4))
    assert constant_loss([7]) == constant_loss([]) == 0


def trained(config: Config, updates: int) -> list[tuple[int, str]]:
    """Train for some updates with a coach; return what it says, and at which step."""
    training = training_of(config)
    settings, progress, target = config.training, training.progress, training.data.train.target
    counts = np.bincount(target.ids)
    counts[EOS] += len(target.lengths)
    each = Coach(config, updates, constant=constant_loss(counts.tolist()))
    said: list[tuple[int, str]] = []
    loss = math.nan
    for batches in islice(training_batches(training), updates):
        train.train_step(training, batches)
        step = progress.step
        if step % settings.log_every == 0:
            loss = progress.plain / progress.tokens
            said += [(step, line) for line in each.curve(step, loss, progress.norm / progress.norms)]
            progress.reset_sums()
        if step % settings.validate_every == 0:
            measured = validation_loss.mean_loss(
                training.model, training.validation, training.batch_tokens, training.dtype
            )
            sources, references = zip(*training.data.validation, strict=True)
            translator = validation.translator_around(training, training.model)
            outputs = [translation.text for translation in translator.explain(sources)]
            bleu = score(outputs, references).bleu
            said += [(step, line) for line in each.validation(step, measured, loss, bleu, outputs, references)]
    return said


PLAIN = {"training__health_every": 0, "training__max_epochs": 1000}


def test_a_rate_a_hundred_times_too_high_gives_an_alarm_within_40_updates(tiny: Tiny) -> None:
    """Guards the rule about jumps with a real training."""
    [(step, line)] = trained(tiny(training__lr=1.0, **PLAIN), 60)
    assert step <= 40
    assert "Lower training.lr (1)" in line


def test_post_norm_without_warmup_gives_an_alarm_after_200_updates(tiny: Tiny) -> None:
    """Guards the rule about dead runs. Such a model also writes the same sentence always, but one line is enough."""
    deep = {"model__norm": "post", "model__encoder_layers": 3, "model__decoder_layers": 3, "model__d_ff": 32}
    rash = {"training__lr": 0.1, "training__warmup_steps": 0, "training__validate_every": 220}
    [(step, line)] = trained(tiny(**deep, **rash, **PLAIN), 260)
    assert coach.WAIT <= step <= coach.WAIT + 40
    assert "Lower training.lr (0.1)" in line


def test_too_low_a_rate_gives_an_alarm_after_200_updates(tiny: Tiny) -> None:
    """Guards against the advice to lower the rate, since all translations are the same here, too."""
    [(step, line)] = trained(tiny(training__lr=1e-5, training__validate_every=280, **PLAIN), 300)
    assert step <= coach.WAIT + 50
    assert "Raise training.lr (1e-05)" in line


def test_ten_pairs_give_an_alarm_for_overfitting(tiny: Tiny, tmp_path: Path) -> None:
    """Guards the rule about overfitting."""
    few, others = (write_tsv(tmp_path / f"{n}.tsv", tiny_pairs(n, seed=n)) for n in (10, 30))
    data = {"data__train": few, "data__validation": others, "data__test_fraction": 0}
    [(step, line)] = trained(tiny(**data, **PLAIN), 80)
    assert 40 <= step <= 80
    assert "Raise model.dropout (0.1)" in line


def test_a_vocabulary_without_most_words_gives_an_alarm(tiny: Tiny) -> None:
    """Guards the rule about unknown words: nine in ten are unknown."""
    rare = {"tokenizer__min_frequency": 115, "decoding__unknown": "keep", "training__validate_every": 105}
    said = trained(tiny(**rare, **PLAIN), 210)
    assert [(step, line) for step, line in said if "tokenizer.kind to bpe" in line] == said[:1] != []
    assert said[0][0] == 210


def test_the_coach_is_silent_in_a_tiny_run_that_learns(tiny: Tiny) -> None:
    """Guards the smallest batches, whose loss and norm vary most."""
    said = trained(tiny(training__accumulate=1, training__schedule="constant", training__lr=0.003, **PLAIN), 400)
    assert all("Raise training.max_" in line for _, line in said), "it learns, and may only be short"
