"""Order parameters and their coordinates relative to the layer above."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from tests.problems import ARCHITECTURES, FEW, order_parameters_of, random_order_parameters
from tests.theory.test_action_functional import literal_matrices
from theory import Architecture, OrderParameters
from theory.action_functional import RelativeCoordinates


@pytest.mark.parametrize("name", FEW)
def test_matrices_and_coordinates_come_back(name, rng):
    architecture = ARCHITECTURES[name]
    matrices = random_order_parameters(architecture, rng)
    order_parameters = order_parameters_of(matrices)
    coordinates = RelativeCoordinates(architecture)
    point = coordinates.point_of(order_parameters.factors)
    assert point.shape == (architecture.coordinate_count,) == (coordinates.size,)
    again = OrderParameters(coordinates.factors(point))
    for parameters in (order_parameters, again):
        for received, expected in zip(parameters.matrices, matrices, strict=True):
            assert_equal_to_rounding(received, expected, operations=4 * len(expected))
    for factor in again.factors:
        np.testing.assert_array_equal(factor, np.tril(factor))


CHAIN = Architecture((2, 2), (5, 4, 3), (1.1, 0.8, 1.2, 0.7), channels=3)


def test_any_vector_is_positive_definite(rng):
    for factor in RelativeCoordinates(CHAIN).factors(3 * rng.standard_normal(14)):
        assert np.all(np.diagonal(factor) > 0)


def test_the_origin_is_infinite_width():
    limit = OrderParameters.gp_limit(CHAIN)
    for received, expected in zip(
        RelativeCoordinates(CHAIN).factors(np.zeros(14)), limit.factors, strict=True
    ):
        np.testing.assert_allclose(received, expected, rtol=1e-15)


def test_gp_limit_multiplies_the_variances_from_the_readout_down():
    architecture = ARCHITECTURES["two layers, three outputs"]
    _, first, second, readout = architecture.variances
    expected = (readout * second * first, readout * second, readout)
    matrices = OrderParameters.gp_limit(architecture).matrices
    for matrix, value, size in zip(matrices, expected, (18, 6, 3), strict=True):
        assert_equal_to_rounding(matrix, value * np.eye(size), operations=8)


def test_log_invariant_volume_is_the_log_determinant_of_the_jacobian(rng):
    """ln |∂U/∂x| − Σ (p_l + 1)/2 ln det U_l."""
    point = rng.standard_normal(14)

    def free_entries(point):
        """Entries of all U_l on and below the diagonal."""
        matrices = literal_matrices(CHAIN, point)
        return jnp.concatenate([m[np.tril_indices(len(m))] for m in matrices])

    jacobian = np.asarray(jax.jit(jax.jacfwd(free_entries))(point))
    expected = np.linalg.slogdet(jacobian)[1] - sum(
        (len(matrix) + 1) / 2 * np.linalg.slogdet(matrix)[1]
        for matrix in literal_matrices(CHAIN, point)
    )
    received = RelativeCoordinates(CHAIN).log_invariant_volume(point)
    assert_equal_to_rounding(
        received, expected, operations=100, condition=np.linalg.cond(jacobian), scale=1.0
    )
