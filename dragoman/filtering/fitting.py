"""Where good pairs end and dirt begins: thresholds and small classifiers, fitted to the corpus itself.

No pair of a corpus is labelled as good or dirty. But dirt can be made, such as a source beside a random target, and
scored as the pairs are. The corpus is then a mixture of good pairs and an unknown share of such dirt.
"""

from __future__ import annotations

import numpy as np

HARM = 4.0  # good pairs that may be lost for each dirty one
FEWEST = 100  # pairs and pieces of dirt without which no threshold is set
SURE = 0.4  # quantile of the dirt below which hardly any good pair lies: what lies there tells the share of dirt


def threshold(scores: np.ndarray, dirt: np.ndarray) -> float:
    """Return the score below which pairs are dropped; -inf if there is no such score.

    Args:
        scores: (N), of the corpus
        dirt: (M), of dirt that was made
    """
    if len(scores) < FEWEST or len(dirt) < FEWEST:
        return -np.inf
    scores, dirt = np.sort(scores), np.sort(dirt)
    share = np.searchsorted(scores, np.quantile(dirt, SURE)) / len(scores) / SURE
    of_dirt = share * np.searchsorted(dirt, scores) / len(dirt)
    good = np.arange(len(scores)) / len(scores) - of_dirt
    gain = HARM * of_dirt - good
    best = int(np.argmax(gain))
    return float(scores[best]) if gain[best] > 0 else -np.inf


def fit_logistic(good: np.ndarray, dirt: np.ndarray, rounds: int = 12) -> np.ndarray:
    """Return the weights of a logistic regression, by Newton's method; the last one is the bias.

    The two classes have the same weight, however many rows they have, and a small ridge keeps weights finite.

    Args:
        good: (N, features); a high score means good
        dirt: (M, features)
    """
    rows = np.concatenate([good, dirt])
    rows = np.concatenate([rows, np.ones((len(rows), 1))], 1)
    labels = np.repeat([1.0, 0.0], [len(good), len(dirt)])
    importance = np.repeat([0.5 / len(good), 0.5 / len(dirt)], [len(good), len(dirt)])
    weights = np.zeros(rows.shape[1])
    ridge = 1e-4 * np.eye(len(weights))
    for _ in range(rounds):
        likely = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (importance * (labels - likely)) - ridge @ weights
        curvature = (rows * (importance * likely * (1 - likely))[:, None]).T @ rows + ridge
        weights = weights + np.linalg.solve(curvature, slope)
    return weights


def logistic_scores(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return the log-odds that each row of features is good."""
    return features @ weights[:-1] + weights[-1]
