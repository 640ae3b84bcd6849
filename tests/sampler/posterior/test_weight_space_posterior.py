"""Slow: draws of all weights against posteriors that are known by other means."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

from sampler.analysis.comparison import sampled_accuracy
from sampler.analysis.estimate import Estimate, batch_means, mean_of, variance_of
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.diagnostics import diagnose
from sampler.mcmc.hamiltonian import NUTS, SPLIT_HMC, Nuts
from sampler.runtime import jax_settings
from tests.assertions import assert_within_mcse
from tests.problems import (
    ARCHITECTURES,
    exact_scalar_posterior,
    random_problem,
    sampled,
    scalar_problem,
    space_of,
)
from tests.reference_data import (
    PUBLISHED_ACCURACIES,
    PUBLISHED_OVERLAP,
    PUBLISHED_READOUT,
    reference_problem,
)
from theory import LearningProblem

pytestmark = pytest.mark.slow


def effective(draws):
    return array_stats.ess(np.asarray(draws, float), chain_axis=0, draw_axis=1)


@pytest.mark.parametrize(
    ("space", "algorithm"),
    [("weights", Nuts(target_acceptance=0.95)), ("hidden_weights", SPLIT_HMC)],
)
def test_one_head_and_one_layer_agree_with_quadrature(space, algorithm, rng):
    """U_1, u_a and the predictor against integrals over (u_a, U_1), which know no weights."""
    problem, test = scalar_problem(rng)
    exact = exact_scalar_posterior(problem, test)
    posterior = space_of(problem, space, test)
    collected = sampled(posterior, algorithm, chains=4, warmup=1000, draws=4000, seed=1)
    assert not collected.statistics["diverging"].any()
    draws = {name: values.reshape(4, 4000, -1) for name, values in collected.draws.items()}
    for name, (mean, deviation) in (
        ("order_parameter", exact.order_parameter),
        ("readout_order_parameter", exact.readout),
    ):
        check(f"mean of {name}", mean_of(draws[name]), mean, draws[name])
        squares = (draws[name] - mean) ** 2
        check(f"variance of {name}", mean_of(squares), deviation**2, squares)
    predictor = draws["predictor"]
    for values in (predictor, *(draws[n] for n in ("predictor_mean",) if n in draws)):
        check("predictor mean", mean_of(values), exact.predictor_mean, values)
    squares = (predictor - exact.predictor_mean) ** 2
    check("predictor variance", mean_of(squares), exact.predictor_variance, squares)
    # the whole law of U_1, not its moments alone
    cumulated = np.cumsum(exact.density)
    cumulated /= cumulated[-1]
    for probability in (0.1, 0.5, 0.9):
        log_quantile = np.interp(probability, cumulated, exact.log_order_parameter_grid)
        # the sum up to a grid point reaches half a spacing beyond it
        spacing = exact.log_order_parameter_grid[1] - exact.log_order_parameter_grid[0]
        below = (np.log(draws["order_parameter"]) < log_quantile + spacing / 2).astype(float)
        check(f"P(U_1 below its {probability:g} quantile)", mean_of(below), probability, below)


def check(what, estimate: Estimate, expected, draws) -> None:
    """Print the worst entry, then compare within 4 standard errors from enough effective draws."""
    received, mcse, wanted = map(np.ravel, (estimate.value, estimate.mcse, expected))
    worst = np.argmax(np.abs(received - wanted) / mcse)
    print(
        f"\n{what} ({received.size} entries): worst {received[worst]:.4f} ± {mcse[worst]:.4f}, "
        f"expected {wanted[worst]:.4f}",
        end="",
    )
    ess = effective(draws)
    assert_within_mcse(estimate.value, expected, estimate.mcse, ess=ess, minimum_ess=400, what=what)


@pytest.mark.long
def test_hot_posterior_is_the_prior(rng):
    """At temperature 10¹² labels say nothing: E[U_l] = σ_l² ⋯ σ_a² · 1, E[f] = 0, Var f = K_GP."""
    arch = ARCHITECTURES["two layers"]
    problem = random_problem(arch, rng, temperature=1e12)
    test = problem.attended[:3]
    space = space_of(problem, "weights", test)
    shallow = Nuts(max_tree_depth=6)
    draws = sampled(space, shallow, chains=4, warmup=500, draws=1500, seed=2).draws
    scale = np.cumprod(arch.variances[:0:-1])[::-1]  # s_1, s_2 …, s_a
    names = ("order_parameter", "order_parameter_layer_2", "readout_order_parameter")
    for name, size in zip(names, scale, strict=True):
        expected = size * np.eye(draws[name].shape[-1])
        check(f"mean of {name}", mean_of(draws[name]), expected, draws[name])
    expected = np.einsum("xpi,xpi->x", problem.features[:3], problem.features[:3]) * scale[0]
    predictor = draws["predictor"][..., 0]
    check("predictor mean", mean_of(predictor), np.zeros(3), predictor)
    check("predictor variance", variance_of(predictor), expected, predictor**2)


@dataclass(frozen=True)
class PublishedRun:
    """Draws of the published problem at N = 10, and the labels of its test set."""

    problem: LearningProblem
    draws: DrawCollector
    labels_test: np.ndarray


@pytest.fixture(scope="module")
def published_run(full_reference) -> PublishedRun:
    """NUTS in single precision, trees as deep as the published ones; about four minutes."""
    arrays = full_reference
    problem = reference_problem(arrays, 10)
    with jax_settings("float32"):
        test = jnp.asarray(arrays["attended_inputs_test"])
        space = space_of(problem, "weights", test, precision="float32")
        collected = sampled(space, NUTS, chains=4, warmup=300, draws=450, seed=0)
    return PublishedRun(problem, collected, np.asarray(arrays["y_test"], float)[:, None])


@pytest.mark.long
def test_order_parameter_of_the_published_problem(published_run):
    draws = published_run.draws.draws["order_parameter"].astype(float)
    estimate, ess = mean_of(draws), effective(draws)
    steps = published_run.draws.statistics["n_steps"].mean()
    print(f"\n{steps:.0f} leapfrog steps per draw, {published_run.draws.seconds} seconds")
    for (i, j), (value, error) in PUBLISHED_OVERLAP.items():
        mean, mcse = estimate.value[i, j], estimate.mcse[i, j]
        apart = (mean - value) / np.hypot(mcse, error)
        print(
            f"U_1[{i},{j}]: sampled {mean:.3f} ± {mcse:.3f} (ESS {ess[i, j]:.0f}), "
            f"published {value} ± {error}: {apart:+.1f} standard errors apart"
        )
    rows, columns = zip(*PUBLISHED_OVERLAP, strict=True)
    values, errors = map(np.array, zip(*PUBLISHED_OVERLAP.values(), strict=True))
    received, mcse = estimate.value[rows, columns], estimate.mcse[rows, columns]
    combined = np.hypot(mcse, errors)
    assert_within_mcse(received, values, combined, ess=ess[rows, columns], what="U_1")


@pytest.mark.long
def test_readout_of_the_published_problem(published_run):
    draws = published_run.draws.draws["readout_order_parameter"][..., 0, 0].astype(float)
    estimate = mean_of(draws)
    value, error = PUBLISHED_READOUT
    print(f"\nu_a: sampled {estimate.value:.3f} ± {estimate.mcse:.3f}, published {value} ± {error}")
    combined = np.hypot(estimate.mcse, error)
    assert_within_mcse(estimate.value, value, combined, ess=effective(draws), what="u_a")


@pytest.mark.long
def test_chains_of_the_published_problem_do_not_diverge(published_run):
    diagnosis = diagnose(
        {"order_parameter": published_run.draws.draws["order_parameter"]},
        published_run.draws.statistics,
        NUTS,
    )
    print(f"\n{diagnosis.reasons} {diagnosis.remarks} {diagnosis.quantities}")
    assert diagnosis.numbers["divergences"] <= 0.001 * 4 * 450
    # this posterior is so stiff in weight space that nearly every trajectory is cut short
    assert diagnosis.numbers["saturated_share"] > 0.5


@pytest.mark.long
def test_accuracy_of_the_published_problem(published_run):
    batches = batch_means(published_run.draws.draws["predictor"].astype(float))
    received = sampled_accuracy(batches, published_run.labels_test)
    print(f"\naccuracy: sampled {received}, published {PUBLISHED_ACCURACIES}")
    assert published_run.labels_test.shape[0] == 1000
    # two runs of three differ by the spread of the published ones: four times its half, each side
    middle = np.mean(PUBLISHED_ACCURACIES)
    spread = (PUBLISHED_ACCURACIES[1] - PUBLISHED_ACCURACIES[0]) / 2
    assert abs(received.value - middle) <= 4 * spread
