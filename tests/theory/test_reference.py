"""The published four-path problem: the numbers of the published code come out."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.reference_data import reference_problem
from theory import OrderParameters, Predictor, predict, solve_saddle_point

WIDTHS = [10, 100, 1000]
# Order parameters are stored at machine precision; predictors as an optimiser left them that
# stopped at |gradient| = 1e-5.
ORDER_PARAMETER_TOLERANCE = 1e-6
PREDICTOR_TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def saddles(reference):
    return {width: solve_saddle_point(reference_problem(reference, width)) for width in WIDTHS}


@pytest.mark.parametrize("width", WIDTHS)
def test_order_parameters_and_action(width, saddles, reference):
    saddle = saddles[width]
    assert saddle.converged, saddle.explain()
    lower, upper, readout = saddle.order_parameters.matrices
    tolerance = {"rtol": 0, "atol": ORDER_PARAMETER_TOLERANCE}
    np.testing.assert_allclose(lower, reference[f"N{width}_U_1"], **tolerance)
    np.testing.assert_allclose(upper, reference[f"N{width}_U_2"], **tolerance)
    np.testing.assert_allclose(readout[0, 0], reference[f"N{width}_U_a"], **tolerance)
    np.testing.assert_allclose(saddle.action, reference[f"N{width}_S_over_N"], **tolerance)


def test_the_printed_numbers(saddles):
    """Figures quoted with the published code, to the digits quoted."""
    lower = np.asarray(saddles[10].order_parameters.matrices[0])
    np.testing.assert_allclose(np.diagonal(lower), [13.3653, 0.5463, 6.7452, 0.3434], atol=5e-5)
    np.testing.assert_allclose(lower[0, 2], -5.3970, atol=5e-5)
    np.testing.assert_allclose(saddles[10].action, 8.420371, atol=5e-7)
    lower = np.asarray(saddles[100].order_parameters.matrices[0])
    np.testing.assert_allclose(np.diagonal(lower), [2.9052, 1.3033, 2.5643, 1.3261], atol=5e-5)
    np.testing.assert_allclose(saddles[100].action, 7.852642, atol=5e-7)


@pytest.mark.parametrize("width", WIDTHS)
def test_predictors(width, saddles, reference):
    check_predictor(
        reference, width, saddles[width].order_parameters.factors[0], prefix=f"N{width}_predictor"
    )


def test_gp_predictor(reference):
    architecture = reference_problem(reference, 10).architecture
    check_predictor(reference, 10, OrderParameters.gp_limit(architecture).factors[0], prefix="gp")


def check_predictor(arrays, width, factor, prefix):
    """Compare mean, variance and every predicted sign."""
    test = jnp.asarray(arrays["attended_inputs_test"], float)
    predictor = Predictor.for_examples(reference_problem(arrays, width), test)
    mean, variance = (np.asarray(values)[:, 0] for values in predict(predictor, factor))
    expected = arrays[f"{prefix}_mean"]
    tolerance = {"rtol": 0, "atol": PREDICTOR_TOLERANCE}
    np.testing.assert_allclose(mean, expected, **tolerance)
    np.testing.assert_allclose(variance, arrays[f"{prefix}_variance"], **tolerance)
    labels = arrays["y_test"]
    correct = np.sign(mean) == labels
    # a sign may differ only where the mean itself is within the tolerance of zero
    unclear = np.abs(expected) <= PREDICTOR_TOLERANCE
    np.testing.assert_array_equal(correct[~unclear], (np.sign(expected) == labels)[~unclear])
