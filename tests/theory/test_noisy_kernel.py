"""K + 𝒯 1 against dense linear algebra."""

import jax.numpy as jnp
import numpy as np

from tests.assertions import assert_equal_to_rounding
from theory import NoisyKernel

SIZE, TEMPERATURE = 7, 0.3


def random_kernel(rng):
    rows = rng.standard_normal((SIZE, 3))  # singular without the temperature
    return rows @ rows.T


def test_every_use_of_the_factor_agrees_with_the_matrix(rng):
    kernel, vector = random_kernel(rng), rng.standard_normal(SIZE)
    block = rng.standard_normal((SIZE, 2))
    noisy = NoisyKernel.factorise(jnp.asarray(kernel), TEMPERATURE)
    dense = kernel + TEMPERATURE * np.eye(SIZE)
    rounding = {"operations": SIZE**2, "condition": np.linalg.cond(dense)}
    inverse = np.linalg.inv(dense)
    assert_equal_to_rounding(noisy.log_determinant, np.linalg.slogdet(dense)[1], **rounding)
    assert_equal_to_rounding(noisy.solve(jnp.asarray(block)), inverse @ block, **rounding)
    assert_equal_to_rounding(
        noisy.quadratic_form(jnp.asarray(vector)), vector @ inverse @ vector, **rounding
    )
    whitened = noisy.whiten(jnp.asarray(block))
    assert_equal_to_rounding(whitened.T @ whitened, block.T @ inverse @ block, **rounding)


def test_an_indefinite_kernel_gives_nan():
    noisy = NoisyKernel.factorise(jnp.diag(jnp.array([1.0, -2.0])), TEMPERATURE)
    assert np.isnan(noisy.log_determinant)


def test_single_precision_stays_single(rng):
    kernel = jnp.asarray(random_kernel(rng), jnp.float32)
    assert NoisyKernel.factorise(kernel, TEMPERATURE).cholesky.dtype == jnp.float32
