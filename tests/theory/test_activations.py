"""Functions of values against their definitions and Gauss–Hermite quadrature."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf, ndtr

from tests.assertions import assert_equal_to_rounding
from theory.activations import ERF, GELU, activation

POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(100)
WEIGHTS = WEIGHTS / np.sqrt(2.0 * np.pi)
DEFINITIONS = {
    "linear": lambda u: u,
    "relu": lambda u: np.sqrt(2.0) * np.maximum(u, 0.0),
    "erf": lambda u: ERF * erf(u),
    "gelu": lambda u: GELU * u * ndtr(u),
}


@pytest.mark.parametrize("values", DEFINITIONS)
def test_they_keep_the_second_moment_of_standard_normal_numbers(values):
    received = np.asarray(activation(jnp.asarray(POINTS), values))
    assert_equal_to_rounding(received, DEFINITIONS[values](POINTS), operations=8)
    # Quadrature converges geometrically: 100 points leave less than 10⁻⁹, and for |u|² of the
    # ReLU, which is symmetric, nothing.
    assert abs(WEIGHTS @ received**2 - 1.0) < 1e-9
