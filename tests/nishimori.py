"""Nishimori's identity: a teacher is one more draw of the posterior of what it taught.

Over data sets, any overlap of the teacher with a draw has the law of that of two independent draws.
Independent draws come from importance: draws of the prior, weighed by the likelihood.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg


@dataclass(frozen=True)
class PriorDraws:
    """Draws without data.

    parts    arrays [draw, …] of what a network is made of: order parameters, attention
    kernels  K [draw, row, row] on all examples, those of training first
    """

    parts: tuple[np.ndarray, ...]
    kernels: np.ndarray


class IndependentDraws:
    """Independent draws of the posterior of some labels."""

    def __init__(self, prior: PriorDraws, temperature: float, rows: int) -> None:
        self.prior, self.rows = prior, rows
        inner = prior.kernels[:, :rows, :rows] + temperature * np.eye(rows)
        lower = np.linalg.cholesky(inner)
        self.whitener = np.linalg.inv(lower)
        self.logs = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)

    def draw(self, labels: np.ndarray, count: int, rng: np.random.Generator):
        """Parts and f(x) of independent draws, and how many draws they stand for."""
        whitened = self.whitener @ labels
        logs = -self.logs - 0.5 * np.sum(whitened**2, axis=1)
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        found = []
        for s in rng.choice(len(weights), count, p=weights):
            kernel = self.prior.kernels[s]
            cross = self.whitener[s] @ kernel[: self.rows]
            covariance = kernel - cross.T @ cross
            root = scipy.linalg.sqrtm(covariance + 1e-12 * np.eye(len(kernel))).real
            f = cross.T @ whitened[s] + root @ rng.standard_normal(len(kernel))
            found.append((*(part[s] for part in self.prior.parts), f))
        return found, 1.0 / np.sum(weights**2)


def overlap_scores(
    taught: Callable[[int], tuple[tuple, np.ndarray]],
    posterior: IndependentDraws,
    overlaps: Callable[[tuple, tuple], tuple[float, ...]],
    data_sets: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Differences of means, squares and shares above the median, in their standard errors.

    taught    of a data set: the teacher, as draws are, and the labels of the training rows
    overlaps  quantities of two draws

    Of the overlap with the teacher and that of two draws, over data sets: [statistic, quantity].
    """
    found, effective = [], []
    for number in range(data_sets):
        teacher, labels = taught(number)
        (one, two, three), size = posterior.draw(labels, 3, rng)
        effective.append(size)
        found.append((overlaps(teacher, one), overlaps(two, three)))
    assert np.quantile(effective, 0.1) > 50, np.quantile(effective, [0.0, 0.1, 0.5])
    values, scores = np.array(found), []  # [data set, teacher or draw, quantity]
    above = values > np.median(values, axis=(0, 1))
    for statistic in (values, values**2, above.astype(float)):
        apart = statistic[:, 0] - statistic[:, 1]
        error = apart.std(axis=0, ddof=1) / math.sqrt(len(apart))
        scores.append(apart.mean(axis=0) / error)
    return np.abs(scores)
