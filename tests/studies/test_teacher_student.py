"""The leading order at draws of attention, against the minimum over scalars; heads that overlap."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from runs.studies.teacher_student.mathematics import (
    leading_order,
    matched_overlap,
    overlap_with,
)
from theory import Architecture

ONE_HEAD = Architecture((1,), (10, 6), (1.0, 1.0, 1.0), channels=4)
TEMPERATURE = 0.2


def spectrum(rng, examples=12):
    """Attended inputs of one path, labels, and both in the eigenvectors of the kernel."""
    attended = rng.standard_normal((examples, 1, ONE_HEAD.channels))
    labels = rng.standard_normal((examples, 1))
    flat = attended[:, 0] / ONE_HEAD.channels**0.5
    values, vectors = np.linalg.eigh(flat @ flat.T)
    return attended, labels, np.maximum(values, 0.0), vectors.T @ labels[:, 0]


def log_likelihood(scale, values, labels):
    noisy = np.multiply.outer(scale, values) + TEMPERATURE
    return -0.5 * np.sum(np.log(2 * np.pi * noisy) + labels**2 / noisy, axis=-1)


def test_the_leading_order_of_one_head_is_the_minimum_over_two_scalars(rng):
    attended, labels, values, rotated = spectrum(rng)
    lower, upper = ONE_HEAD.widths

    def half_action(logs):
        below, above = np.exp(logs)
        prior = lower * (below - logs[0] - 1.0) + upper * (above - logs[1] - 1.0)
        return 0.5 * prior - log_likelihood(below * above, values, rotated)

    best = scipy.optimize.minimize(half_action, np.zeros(2), tol=1e-12)
    received = leading_order(attended, labels, ONE_HEAD, TEMPERATURE)
    assert received[0, 0] == pytest.approx(np.exp(best.x.sum()), rel=1e-5)


def test_overlaps_are_those_of_heads_in_the_order_that_is_nearest(rng):
    """By loops over both orders of the two heads."""
    matrices, reference = rng.dirichlet(np.ones(5), (2, 7, 2, 1)).swapaxes(-1, -2)

    def distance(order):
        return sum(np.abs(matrices[:, a] - reference[:, b]).sum() for b, a in enumerate(order))

    best = min([(0, 1), (1, 0)], key=distance)
    overlaps = [
        (matrices[:, a] * reference[:, b]).sum() / (reference[:, b] ** 2).sum()
        for b, a in enumerate(best)
    ]
    assert matched_overlap(matrices, reference) == pytest.approx(np.mean(overlaps))
    both = overlap_with(np.array([[matrices, reference], [reference, reference]]), reference)
    assert both == pytest.approx([(np.mean(overlaps) + 1.0) / 2.0, 1.0])
