"""Order parameters with part of their structure taken away."""

import jax.numpy as jnp
import numpy as np

from tests.assertions import assert_equal_to_rounding
from theory import diagonal_only, equal_diagonal


def test_diagonal_only_keeps_the_diagonal(rng):
    factor = rng.standard_normal((4, 4))
    received = diagonal_only(jnp.asarray(factor))
    overlap = factor @ factor.T
    assert_equal_to_rounding(received @ received.T, np.diag(np.diagonal(overlap)), operations=16)


def test_equal_diagonal_keeps_everything_else():
    overlap = np.array([[2.0, 0.3, -0.1], [0.3, 1.0, 0.2], [-0.1, 0.2, 0.5]])
    factor = equal_diagonal(jnp.asarray(np.linalg.cholesky(overlap)))
    expected = overlap.copy()
    np.fill_diagonal(expected, 2.0)
    assert_equal_to_rounding(factor @ factor.T, expected, operations=16)


def test_equal_diagonal_is_undefined_where_it_is_not_positive_definite():
    """|U_12| > U_11: with U_22 lowered to U_11 the matrix is indefinite."""
    overlap = np.array([[1.0, 1.5], [1.5, 4.0]])
    assert equal_diagonal(jnp.asarray(np.linalg.cholesky(overlap))) is None
