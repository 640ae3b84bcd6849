"""Whatever averages over repetitions weighs them by their evidence, wherever it is shown."""

import numpy as np
import pytest

from sampler.analysis.calibration import calibration_error, probability_of_positive
from sampler.analysis.comparison import compare
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.predictors import SAMPLED
from sampler.analysis.results import RunResults
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.mcmc.diagnostics import Diagnostics
from tests.small import TEST, collect, healthy_statistics, small_problem, within

REPETITIONS, PARTICLES = 5, 48
PASSED = Diagnostics("pass", (), (), {}, REPETITIONS, PARTICLES, {})


@pytest.fixture(params=[{}, {"limits": within(8 * 4 * 5 * TEST)}])
def run(rng, request) -> RunResults:
    """Repetitions whose evidence goes with their predictors and temperatures; predictors thinned.

    The evidences differ by up to e², so that equal weights would give other numbers.
    """
    logs = np.linspace(-1.0, 1.0, REPETITIONS) - 40.0
    problem = small_problem(rng, labels_test=rng.choice([-1.0, 1.0], (TEST, 1)))
    shape = REPETITIONS, PARTICLES
    shift = (logs + 40.0)[:, None]
    rows = problem.architecture.order_parameter_sizes[0]
    factor = rng.standard_normal((*shape, rows, rows + 2)) + shift[..., None, None]
    observables = {
        "order_parameter": factor @ np.swapaxes(factor, -1, -2),
        "predictor_mean": 0.5 * rng.standard_normal((*shape, TEST, 1)) + shift[..., None, None],
        "predictor_variance": rng.uniform(0.1, 0.3, (*shape, TEST, 1)),
        "temperature": np.exp(0.3 * rng.standard_normal(shape) + shift),
    }
    ones = np.ones(shape)
    of_repetitions = {
        "log_evidence": logs[:, None] * ones,
        "log_evidence_prior": np.nan * ones,
        "temperatures": 5.0 * ones,
        "lowest_acceptance": 0.8 * ones,
        "lost": 0 * ones,
        "ancestor": np.arange(PARTICLES) * ones,
        "mode": 0.0 * ones,
    }
    collected = collect(
        observables, healthy_statistics(rng, shape) | of_repetitions, **request.param
    )
    tree = draws_tree(problem, collected, {"algorithm": "tempered"})
    comparison = compare(TheoryAndDraws(None, tree), PASSED, {"seconds": 1.0})
    return RunResults.held(None, draws=tree, comparison=comparison)


def weights_of(run: RunResults) -> np.ndarray:
    logs = run.draws["sample_stats"]["log_evidence"].values[:, 0]
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def test_the_calibration_error_is_that_of_weighted_moments(run):
    probability = probability_of_positive(*run.label_moments(SAMPLED))
    shown = calibration_error(probability, run.labels_test > 0)
    stored = run.comparison.rows["expected_calibration_error", SAMPLED]["value"]
    assert float(shown) == pytest.approx(stored, rel=1e-10)
    # By its definition, from the draws whose predictors were kept.
    table, weights = run.draws["predictions"].to_dataset(), weights_of(run)
    temperature = run.draws["posterior"]["temperature"].sel(draw=table["draw"]).values
    mean, variance = table["predictor_mean"].values, table["predictor_variance"].values
    whole = np.einsum("r,rdx->x", weights, mean) / mean.shape[1]
    count = mean.shape[0] * mean.shape[1]
    within = variance + temperature[..., None] + (mean - whole) ** 2 * count / (count - 1)
    total = np.einsum("r,rdx->x", weights, within) / mean.shape[1]
    expected = 1.0 / (1.0 + np.exp(-2.0 * whole / total))
    np.testing.assert_allclose(probability[:, 0], expected, rtol=1e-10)
