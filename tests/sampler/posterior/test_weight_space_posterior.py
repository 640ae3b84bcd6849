"""Slow: draws of all weights against posteriors that are known by other means."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

from sampler.analysis.estimates import OF_CHAINS, Estimate
from sampler.runtime import jax_settings
from tests.assertions import assert_within_mcse
from tests.problems import (
    NUTS,
    SPLIT_HMC,
    exact_scalar_posterior,
    sampled,
    scalar_problem,
    space_of,
)
from tests.reference_data import (
    PUBLISHED_ACCURACIES,
    PUBLISHED_OVERLAP,
    PUBLISHED_READOUT,
    load_reference,
    reference_problem,
)
from theory.observables import accuracy

pytestmark = pytest.mark.slow


def effective(draws):
    return array_stats.ess(np.asarray(draws, float), chain_axis=0, draw_axis=1)


@pytest.mark.parametrize(
    ("space", "algorithm"),
    [("weights", replace(NUTS, target_acceptance=0.95)), ("hidden_weights", SPLIT_HMC)],
)
def test_one_head_and_one_layer_agree_with_quadrature(space, algorithm, rng):
    """U_1, u_a and the predictor against integrals over (u_a, U_1), which know no weights."""
    problem, test = scalar_problem(rng)
    exact = exact_scalar_posterior(problem, test)
    posterior = space_of(problem, space, test)
    collected = sampled(posterior, algorithm, chains=4, warmup=500, draws=2000, seed=1)
    assert not collected.statistics["diverging"].any()
    draws = {name: values.reshape(4, 2000, -1) for name, values in collected.draws.items()}
    for name, (mean, deviation) in (
        ("order_parameter", exact.order_parameter),
        ("readout_order_parameter", exact.readout),
    ):
        check(f"mean of {name}", OF_CHAINS.mean(draws[name]), mean, draws[name])
        squares = (draws[name] - mean) ** 2
        check(f"variance of {name}", OF_CHAINS.mean(squares), deviation**2, squares)
    predictor = draws["predictor"]
    for values in (predictor, *(draws[n] for n in ("predictor_mean",) if n in draws)):
        check("predictor mean", OF_CHAINS.mean(values), exact.predictor_mean, values)
    squares = (predictor - exact.predictor_mean) ** 2
    check("predictor variance", OF_CHAINS.mean(squares), exact.predictor_variance, squares)
    # the whole law of U_1, not its moments alone
    cumulated = np.cumsum(exact.density)
    cumulated /= cumulated[-1]
    for probability in (0.1, 0.5, 0.9):
        log_quantile = np.interp(probability, cumulated, exact.log_order_parameter_grid)
        # the sum up to a grid point reaches half a spacing beyond it
        spacing = exact.log_order_parameter_grid[1] - exact.log_order_parameter_grid[0]
        below = (np.log(draws["order_parameter"]) < log_quantile + spacing / 2).astype(float)
        check(
            f"P(U_1 below its {probability:g} quantile)", OF_CHAINS.mean(below), probability, below
        )


def check(what, estimate: Estimate, expected, draws) -> None:
    """Within 4 standard errors, from enough effective draws."""
    ess = effective(draws)
    assert_within_mcse(estimate.value, expected, estimate.mcse, ess=ess, minimum_ess=400, what=what)


@pytest.mark.long
def test_the_published_problem_of_ten_units():
    """Order parameters and accuracy by NUTS in single precision; about four minutes."""
    arrays = load_reference(every=1)
    problem = reference_problem(arrays, 10)
    with jax_settings("float32"):
        test = jnp.asarray(arrays["attended_inputs_test"])
        space = space_of(problem, "weights", test, precision="float32")
        collected = sampled(space, NUTS, chains=4, warmup=300, draws=450, seed=0)
    draws, labels = collected.draws, np.asarray(arrays["y_test"], float)[:, None]
    assert collected.statistics["diverging"].sum() <= 0.001 * 4 * 450

    overlap = draws["order_parameter"].astype(float)
    estimate, ess = OF_CHAINS.mean(overlap), effective(overlap)
    rows, columns = zip(*PUBLISHED_OVERLAP, strict=True)
    values, errors = map(np.array, zip(*PUBLISHED_OVERLAP.values(), strict=True))
    received, mcse = estimate.value[rows, columns], estimate.mcse[rows, columns]
    combined = np.hypot(mcse, errors)
    assert_within_mcse(received, values, combined, ess=ess[rows, columns], what="U_1")

    readout = draws["readout_order_parameter"][..., 0, 0].astype(float)
    estimate, (value, error) = OF_CHAINS.mean(readout), PUBLISHED_READOUT
    combined = np.hypot(estimate.mcse, error)
    assert_within_mcse(estimate.value, value, combined, ess=effective(readout), what="u_a")

    mean = draws["predictor"].mean(axis=(0, 1), dtype=float).reshape(labels.shape)
    received = accuracy(mean, labels)
    assert len(labels) == 1000
    # two runs of three differ by the spread of the published ones: four times its half, each side
    spread = (PUBLISHED_ACCURACIES[1] - PUBLISHED_ACCURACIES[0]) / 2
    assert abs(received - np.mean(PUBLISHED_ACCURACIES)) <= 4 * spread
