"""What evidences are right about, and what none of them can see, where the truth is known."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float
from numpyro import distributions as dist

from sampler.mcmc.tempered import OfStart, log_mean, starts_apart
from sampler.posterior.data import Data
from sampler.posterior.initial_distribution import InitialDistribution, law_at_modes
from sampler.posterior.space import Space
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
