"""Inverse and Gram matrix of a lower triangular matrix, against LAPACK."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from theory.path_kernels import BLOCK, gram_of_lower, inverse_of_lower

SIZES = [1, 7, BLOCK, BLOCK + 1, 3 * BLOCK, 600]


def random_lower(rng, size, count=()):
    """Cholesky factors of well-conditioned matrices."""
    noise = rng.standard_normal((*count, size, size)) / np.sqrt(size)
    return jnp.asarray(np.linalg.cholesky(noise @ noise.swapaxes(-1, -2) + np.eye(size)))


@pytest.mark.parametrize("size", SIZES)
def test_the_inverse_inverts_and_is_lower_triangular(size, rng):
    lower = random_lower(rng, size)
    inverse = inverse_of_lower(lower)
    condition = np.linalg.cond(lower)
    assert_equal_to_rounding(inverse @ lower, np.eye(size), operations=size, condition=condition)
    assert not np.triu(inverse, 1).any()


@pytest.mark.parametrize("size", SIZES)
def test_the_gram_matrix_is_the_full_product(size, rng):
    lower = random_lower(rng, size)
    assert_equal_to_rounding(
        gram_of_lower(lower), np.asarray(lower).T @ np.asarray(lower), operations=size
    )


def test_single_precision_stays_single_and_batches_are_allowed(rng):
    lower = random_lower(rng, BLOCK + 30, (3,)).astype(jnp.float32)
    inverse = jax.jit(jax.vmap(inverse_of_lower))(lower)
    gram = jax.vmap(gram_of_lower)(inverse)
    assert inverse.dtype == gram.dtype == jnp.float32
    expected = np.linalg.inv(np.asarray(lower, float) @ np.asarray(lower, float).swapaxes(1, 2))
    single = np.finfo(np.float32).eps / np.finfo(float).eps
    condition = single * np.linalg.cond(np.asarray(lower, float)).max() ** 2
    assert_equal_to_rounding(gram, expected, operations=BLOCK, condition=condition)
