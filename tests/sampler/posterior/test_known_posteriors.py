"""Slow: draws against posteriors that are known by other means, and what no evidence can see."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from arviz_stats.base import array_stats
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float
from numpyro import distributions as dist

from sampler.analysis.estimates import OF_CHAINS, Estimate
from sampler.mcmc.tempered import OfStart, log_mean, starts_apart
from sampler.posterior.data import Data
from sampler.posterior.initial_distribution import InitialDistribution, law_at_modes
from sampler.posterior.space import Space
from tests.assertions import assert_within_mcse
from tests.problems import (
    NUTS,
    SPLIT_HMC,
    exact_scalar_posterior,
    sampled,
    scalar_problem,
    space_of,
    weighted_mean_and_error,
)
from tests.reference_data import (
    PUBLISHED_OVERLAP,
    TRIAL_OVERLAP,
    published_draws,
)
from tests.sampler.mcmc.laws import Known, led

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_annotation_checks")]


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


# --- the collapsed posterior of the published problem against two other programs that sampled it


@pytest.mark.parametrize("expected", [PUBLISHED_OVERLAP, TRIAL_OVERLAP], ids=["weights", "trial"])
def test_overlaps_of_the_published_problem(expected):
    _, draws, factors = published_draws()
    mean, mcse = weighted_mean_and_error(draws.weights, factors @ factors.swapaxes(1, 2))
    rows, columns = map(list, zip(*expected, strict=True))
    values, errors = map(np.array, zip(*expected.values(), strict=True))
    combined = np.hypot(mcse[rows, columns], errors)
    assert_within_mcse(mean[rows, columns], values, combined)


# --- what evidences are right about, and what none of them can see, where the truth is known


PARTICLES, REPETITIONS = 256, 6
CLOSE = 0.05


def evidence_by_particles(start: InitialDistribution) -> OfStart:
    """Log evidence and its error over repetitions that follow the course of a pilot."""
    course = led(start, PARTICLES, (7, 0, 0)).path
    made = [led(start, PARTICLES, (7, 0, n), course) for n in range(1, REPETITIONS + 1)]
    return OfStart(*log_mean(np.array([one.log_evidence for one in made])), len(made))


def evidences_that_agree(space: Space) -> tuple[float, float]:
    """Log evidence from the modes that descents reach, and from the prior alone."""
    start, _ = law_at_modes(space, 0)
    both = [evidence_by_particles(one) for one in (start, start.prior_alone)]
    apart, most_apart = starts_apart(*both)
    assert abs(apart) <= most_apart, both
    return both[0].value, both[1].value


# --- a narrow spike that nobody comes across


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Spiked(Known):
    """x ~ N(0, 1), and a likelihood e^{−|x|²/2s²} + e^{h − |x − c|²/2w²}.

    In six coordinates hardly a point of the prior lies where the second term is seen.
    """

    spike: Float[Array, " coordinate"]

    broad, narrow, height = 1.0, 0.02, 30.0

    def model(self, labels, inputs=None):
        x = self.sample_prior()
        hill = -0.5 * jnp.sum(x**2) / self.broad**2
        away = jnp.sum((x - self.spike) ** 2)
        both = jnp.logaddexp(hill, self.height - 0.5 * away / self.narrow**2)
        numpyro.sample("y", dist.Unit(both), obs=labels)


def log_integral(centre: np.ndarray, width: float) -> float:
    """ln ∫ N(x; 0, 1) e^{−|x − c|²/2w²} dx by the trapezoidal rule, coordinate by coordinate."""
    logs = []
    for one in centre:
        grid = one + width * np.linspace(-12.0, 12.0, 4001)
        values = np.exp(-0.5 * (grid**2 + ((grid - one) / width) ** 2)) / np.sqrt(2 * np.pi)
        logs.append(np.log(np.trapezoid(values, grid)))
    return float(sum(logs))


def test_a_spike_that_neither_start_reaches_is_missed_by_both():
    """They agree with each other and not with the truth: agreement is no proof."""
    centre = np.ones(6)
    space = Spiked(
        data=Data(labels=jnp.zeros((0, 1))),
        temperature=jnp.asarray(1.0),
        prior_mean=jnp.zeros(6),
        prior_deviations=jnp.ones(6),
        spike=jnp.asarray(centre),
    )
    hill = log_integral(np.zeros(6), Spiked.broad)
    spike = Spiked.height + log_integral(centre, Spiked.narrow)
    exact = np.logaddexp(hill, spike)
    # The gradient is that of the spike where one stands on it: it is missed, not flat.
    beside = jnp.asarray(centre + 0.5 * Spiked.narrow)
    assert np.linalg.norm(jax.jit(space.slope)(beside)) > 10.0
    for received in evidences_that_agree(space):
        assert abs(received - hill) < 2 * CLOSE
        assert received < exact - 2.0
