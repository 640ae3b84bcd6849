"""Small studies: teachers of attention, cuts of U₁, power laws in the width."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from runs.studies.next_order.mathematics import fit_power_law
from runs.studies.overlap_cuts.mathematics import (
    FULL,
    losses,
    right,
)
from runs.studies.teacher_student.mathematics import (
    leading_order,
    matched_overlap,
    overlap_with,
)
from tests.problems import small_problem
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


# --- U₁ without its off-diagonal elements, or with an equal diagonal


@pytest.fixture
def problem(rng):
    problem = small_problem(rng)
    labels = rng.choice([-1.0, 1.0], (200, 1))
    attended = rng.standard_normal((200, *problem.attended_test.shape[1:]))
    return replace(problem, attended_test=jnp.asarray(attended), labels_test=labels)


def test_right_answers_are_those_of_the_kernel_of_the_cut_overlap(problem):
    """Regression written out, with the full U₁ and with each cut."""
    overlap = np.diag([0.6, 1.6, 0.1, 1.1]) + 0.4
    learning, train = problem.learning, np.asarray(problem.learning.attended)
    scale = learning.architecture.variances[0] / (learning.architecture.channels * 4)

    def right_with(overlap: np.ndarray) -> np.ndarray:
        gram, cross = (
            scale * np.einsum("xpi,pq,yqi->xy", rows, overlap, train)
            for rows in (train, np.asarray(problem.attended_test))
        )
        noisy = gram + learning.temperature * np.eye(len(gram))
        mean = cross @ np.linalg.solve(noisy, np.asarray(learning.labels))
        return (np.sign(mean) == problem.labels_test)[:, 0]

    expected = {
        FULL: right_with(overlap),
        "diagonal only": right_with(np.diag(np.diag(overlap))),
        "equal diagonal": right_with(0.6 * np.eye(4) + 0.4),
    }
    assert len({share.mean() for share in expected.values()}) == 3  # or nothing would be seen
    received = right(problem, jnp.asarray(np.linalg.cholesky(overlap)))
    assert set(received) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(received[name], values)
    for lost, name in zip(losses(received), ("diagonal only", "equal diagonal"), strict=True):
        assert lost.mean() == pytest.approx(expected[FULL].mean() - expected[name].mean())


def test_what_is_not_defined_is_neither_right_nor_wrong(problem):
    overlap = np.diag([0.1, 2.0, 2.0, 2.0]) + 0.3 * np.ones((4, 4))
    overlap[0, 1] = overlap[1, 0] = 0.6
    found = right(problem, jnp.asarray(np.linalg.cholesky(overlap)))
    assert np.isnan(found["equal diagonal"]).all()
    assert np.isfinite(found["diagonal only"]).all()


# --- power laws in the width, with the error of their slope


@pytest.mark.slow
def test_power_law_is_found_with_its_error_whatever_is_resolved(rng):
    """Signed differences c/N in noise that hides the last ones: no bias by choosing the others."""
    widths, repetitions = np.array([30, 50, 100, 200, 300, 500, 1000]), 400
    truth = -3.0 / widths
    mcse = np.full(len(widths), 0.006)
    laws = [
        fit_power_law(widths, truth + mcse * rng.normal(size=len(widths)), mcse)
        for _ in range(repetitions)
    ]
    slopes, errors = (np.array([getattr(o, key) for o in laws]) for key in ("slope", "slope_error"))
    assert all(one.prefactor < 0.0 for one in laws)
    ratio = (slopes + 1.0) / errors
    assert abs(np.median(ratio)) < 5.0 * 1.2533 / np.sqrt(repetitions)
    # Inflated for scatter, and so no less than one in size.
    assert 0.75 < np.mean(np.abs(ratio) < 2.0) / 0.954 <= 1.05


def test_points_with_smaller_errors_weigh_more_in_a_power_law():
    widths, mcse = np.array([30, 100, 300, 1000]), np.array([1e-6, 1e-6, 1e-6, 10.0])
    difference = 1.0 / widths
    difference[-1] = 5.0
    assert fit_power_law(widths, difference, mcse).slope == pytest.approx(-1.0, abs=1e-3)


def test_noise_alone_has_no_power_law(rng):
    widths, mcse = np.array([30, 100, 300, 1000]), np.full(4, 0.01)
    assert np.isnan(fit_power_law(widths, np.array([0.004, -0.007, 0.01, -0.002]), mcse).slope)
    assert np.isnan(fit_power_law(widths[:2], np.array([1.0, 0.3]), mcse[:2]).slope)
