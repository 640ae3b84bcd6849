"""Order parameters and their log-Cholesky coordinates."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from tests.problems import ARCHITECTURES, FEW, order_parameters_of, random_order_parameters
from theory import OrderParameters
from theory.order_parameters import (
    from_log_cholesky,
    log_invariant_volume,
    to_log_cholesky,
)


@pytest.mark.parametrize("name", FEW)
def test_matrices_and_coordinates_come_back(name, rng):
    architecture = ARCHITECTURES[name]
    matrices = random_order_parameters(architecture, rng)
    order_parameters = order_parameters_of(matrices)
    point = to_log_cholesky(order_parameters)
    assert point.shape == (architecture.coordinate_count,)
    again = from_log_cholesky(point, architecture.order_parameter_sizes)
    for parameters in (order_parameters, again):
        for received, expected in zip(parameters.matrices, matrices, strict=True):
            assert_equal_to_rounding(received, expected, operations=4 * len(expected))
    for factor in again.factors:
        np.testing.assert_array_equal(factor, np.tril(factor))


def test_any_vector_is_positive_definite(rng):
    sizes = (4, 2, 1)
    point = jnp.asarray(3 * rng.standard_normal(14))
    for factor in from_log_cholesky(point, sizes).factors:
        assert np.all(np.diagonal(factor) > 0)


def test_gp_limit_multiplies_the_variances_from_the_readout_down():
    architecture = ARCHITECTURES["two layers, three outputs"]
    _, first, second, readout = architecture.variances
    expected = (readout * second * first, readout * second, readout)
    matrices = OrderParameters.gp_limit(architecture).matrices
    for matrix, value, size in zip(matrices, expected, (18, 6, 3), strict=True):
        assert_equal_to_rounding(matrix, value * np.eye(size), operations=8)


def free_entries(coordinates, sizes):
    """Entries of all U_l on and below the diagonal."""
    matrices = from_log_cholesky(coordinates, sizes).matrices
    return jnp.concatenate([m[np.tril_indices(len(m))] for m in matrices])


def test_log_invariant_volume_is_the_log_determinant_of_the_jacobian(rng):
    """ln |∂U/∂x| − Σ (p_l + 1)/2 ln det U_l."""
    sizes = (3, 2, 1)
    point = jnp.asarray(rng.standard_normal(10))
    jacobian = np.asarray(jax.jit(jax.jacfwd(partial(free_entries, sizes=sizes)))(point))
    order_parameters = from_log_cholesky(point, sizes)
    expected = np.linalg.slogdet(jacobian)[1] - sum(
        (len(matrix) + 1) / 2 * np.linalg.slogdet(matrix)[1] for matrix in order_parameters.matrices
    )
    received = log_invariant_volume(order_parameters)
    assert_equal_to_rounding(
        received, expected, operations=100, condition=np.linalg.cond(jacobian), scale=1.0
    )
