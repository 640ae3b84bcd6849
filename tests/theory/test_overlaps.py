"""Order parameters and their coordinates relative to the layer above."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.assertions import assert_equal_to_rounding
from tests.problems import ARCHITECTURES, order_parameters_of, random_order_parameters
from tests.theory.test_action_functional import literal_matrices
from theory import Architecture, BartlettCoordinates, OrderParameters
from theory.action_functional import RelativeCoordinates


@st.composite
def sizes(draw) -> tuple:
    """Up to three layers, any numbers of heads, outputs and units, narrow layers among them."""
    heads = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    count = len(heads) + 1
    widths = draw(st.lists(st.integers(1, 20), min_size=count, max_size=count))
    variances = draw(st.lists(st.floats(0.1, 10.0), min_size=count + 1, max_size=count + 1))
    return heads, tuple(widths), tuple(variances), 3, draw(st.integers(1, 2))


ANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@ANY
@given(sizes=sizes(), seed=st.integers(0, 2**32 - 1))
def test_matrices_and_coordinates_come_back(sizes, seed):
    """U_l of any positive definite matrices, by log-Cholesky and by Bartlett coordinates."""
    architecture = Architecture(*sizes)
    matrices = random_order_parameters(architecture, np.random.default_rng(seed))
    order_parameters = order_parameters_of(matrices)
    for kind in (RelativeCoordinates, BartlettCoordinates):
        coordinates = kind(architecture)
        if kind is BartlettCoordinates and not architecture.is_regular:
            with pytest.raises(ValueError, match="narrow layer"):
                coordinates.point_of(order_parameters.factors)
            continue
        point = coordinates.point_of([np.asarray(one) for one in order_parameters.factors])
        assert point.shape == (coordinates.size,)
        for factor, expected in zip(coordinates.factors(point), matrices, strict=True):
            condition = max(map(np.linalg.cond, matrices))
            rounding = {"operations": 50 * len(expected), "condition": condition}
            assert_equal_to_rounding(factor @ factor.T, expected, **rounding)
            np.testing.assert_array_equal(factor, np.tril(factor))


@ANY
@given(sizes=sizes(), seed=st.integers(0, 2**32 - 1))
def test_any_vector_comes_back(sizes, seed):
    """Every vector stands for positive definite matrices, of which it is the coordinates."""
    architecture = Architecture(*sizes)
    kinds = (RelativeCoordinates, BartlettCoordinates) if architecture.is_regular else ()
    for kind in kinds or (RelativeCoordinates,):
        coordinates = kind(architecture)
        point = np.random.default_rng(seed).standard_normal(coordinates.size)
        factors = coordinates.factors(point)
        assert all((np.diagonal(factor) > 0).all() for factor in factors)
        np.testing.assert_allclose(coordinates.point_of(factors), point, rtol=1e-6, atol=1e-7)


CHAIN = Architecture((2, 2), (5, 4, 3), (1.1, 0.8, 1.2, 0.7), channels=3)


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
