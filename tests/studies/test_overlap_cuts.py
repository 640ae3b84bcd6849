"""U₁ without its off-diagonal elements or its unequal diagonal, and what is predicted with it."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from runs.studies.overlap_cuts.mathematics import (
    FULL,
    losses,
    right,
)
from tests.small import small_problem


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
