"""What evidences are right about, and what none of them can see, where the truth is known."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float
from numpyro import distributions as dist

from sampler.mcmc.marginal_likelihood import bridge_evidence
from sampler.mcmc.tempered import OfStart, log_mean, starts_apart
from sampler.posterior.data import Data
from sampler.posterior.importance_sampling import importance_draws
from sampler.posterior.initial_distribution import InitialDistribution, law_at_modes
from sampler.posterior.order_parameters import stored_sites
from sampler.posterior.space import Space
from tests.problems import (
    NUTS,
    exact_scalar_posterior,
    sampled,
    scalar_problem,
    space_of,
)
from tests.sampler.mcmc.laws import Known, led

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_annotation_checks")]
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


# --- a skewed posterior


@pytest.fixture(scope="module")
def skewed():
    """One unit, and labels that are nearly zero: ln U_1 has a long tail to one side.

    The space, and its evidence by quadrature.
    """
    problem, test = scalar_problem(np.random.default_rng(2), width=1)
    problem = replace(problem, labels=0.1 * problem.labels)
    exact = exact_scalar_posterior(problem, test, points=1000, span=40.0)
    grid, spacing = exact.log_order_parameter_grid, exact.log_order_parameter_grid[1]
    weights = exact.density * (spacing - exact.log_order_parameter_grid[0])
    away = grid - weights @ grid
    assert weights @ away**3 / (weights @ away**2) ** 1.5 < -1.0, "not skewed"
    return space_of(problem), exact.log_evidence


def test_independent_draws_know_the_evidence_of_a_skewed_posterior(skewed):
    """Where they can be trusted, which at the edge of their limit is three times in five."""
    space, exact = skewed
    found = [importance_draws(space, 20_000, seed) for seed in range(6)]
    trusted = [draws.log_evidence for draws in found if draws.trusted]
    assert trusted, [draws.explain() for draws in found]
    assert np.abs(np.array(trusted) - exact).max() < CLOSE


def test_chains_know_the_evidence_of_a_skewed_posterior(skewed):
    space, exact = skewed
    draws = sampled(space, NUTS, warmup=300, draws=2000, seed=1).draws
    sites = stored_sites(draws, float(space.temperature))
    points = np.concatenate([sites[name] for name in space.shapes], axis=-1)
    bridged = bridge_evidence(space, points, seed=1)
    assert bridged.trusted, bridged.text
    assert abs(bridged.value - exact) < CLOSE


def test_particles_know_the_evidence_of_a_skewed_posterior(skewed):
    space, exact = skewed
    for received in evidences_that_agree(space):
        assert abs(received - exact) < CLOSE


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
