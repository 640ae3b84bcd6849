"""What evidences are right about, and what none of them can see, where the truth is known."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float
from numpyro import distributions as dist

from sampler.mcmc.marginal_likelihood import bridge_evidence
from sampler.mcmc.tempered import Evidences, log_mean
from sampler.posterior.data import Data
from sampler.posterior.importance_sampling import importance_draws
from sampler.posterior.initial_distribution import (
    InitialDistribution,
    descend_from_far,
    mixture_at_modes,
)
from sampler.posterior.order_parameters import stored_sites
from sampler.posterior.space import Space
from tests.problems import (
    NUTS,
    exact_scalar_posterior,
    sampled,
    scalar_problem,
    space_of,
)
from tests.sampler.mcmc.laws import led

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_annotation_checks")]
PARTICLES, REPETITIONS = 256, 6
CLOSE = 0.05


def evidence_by_particles(start: InitialDistribution) -> tuple[float, float]:
    """Log evidence and its error over repetitions that follow the course of a pilot."""
    course = led(start, PARTICLES, (7, 0, 0)).path
    made = [led(start, PARTICLES, (7, 0, n), course) for n in range(1, REPETITIONS + 1)]
    return log_mean(np.array([one.log_evidence for one in made]))


def evidences_of(space: Space) -> Evidences:
    """Log evidence from the modes that descents reach, and from the prior alone."""
    start = mixture_at_modes(space, descend_from_far(space, 0), 0)
    of_modes, of_prior = (evidence_by_particles(s) for s in (start, start.prior_alone))
    return Evidences(*of_modes, REPETITIONS, *of_prior, REPETITIONS)


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
    assert bridged.trusted, bridged.explain()
    assert abs(bridged.log_evidence - exact) < CLOSE


def test_particles_know_the_evidence_of_a_skewed_posterior(skewed):
    space, exact = skewed
    evidences = evidences_of(space)
    assert evidences.agree, evidences.two_starts
    assert abs(evidences.value - exact) < CLOSE
    assert abs(evidences.prior - exact) < CLOSE


# --- a narrow spike that nobody comes across


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Spiked(Space):
    """x ~ N(0, 1), and a likelihood e^{−|x|²/2s²} + e^{h − |x − c|²/2w²}.

    In six coordinates hardly a point of the prior lies where the second term is seen.
    """

    spike: Float[Array, " coordinate"]

    name = "spiked"
    broad, narrow, height = 1.0, 0.02, 30.0

    @property
    def weight_shapes(self):
        return {"x": self.spike.shape}

    @property
    def weights(self):
        return {"x": dist.Normal(jnp.zeros_like(self.spike), 1.0).to_event(1)}

    def log_likelihood(self, position):
        x = position["x"]
        hill = -0.5 * jnp.sum(x**2) / self.broad**2
        away = jnp.sum((x - self.spike) ** 2)
        return jnp.logaddexp(hill, self.height - 0.5 * away / self.narrow**2)


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
    data = Data(labels=jnp.zeros((1, 1)))
    space = Spiked(data=data, temperature=jnp.asarray(1.0), spike=jnp.asarray(centre))
    hill = log_integral(np.zeros(6), Spiked.broad)
    spike = Spiked.height + log_integral(centre, Spiked.narrow)
    exact = np.logaddexp(hill, spike)
    # The gradient is that of the spike where one stands on it: it is missed, not flat.
    beside = jnp.asarray(centre + 0.5 * Spiked.narrow)
    assert np.linalg.norm(jax.jit(space.slope)(beside)) > 10.0
    evidences = evidences_of(space)
    assert evidences.agree, evidences.two_starts
    for received in (evidences.value, evidences.prior):
        assert abs(received - hill) < 2 * CLOSE
        assert received < exact - 2.0
