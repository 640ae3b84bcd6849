"""What a new space touches: one class, and one for its data."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from jax.tree_util import register_dataclass
from numpyro import distributions as dist

from sampler.mcmc.collected_draws import DrawCollector
from sampler.posterior.data import Data
from sampler.posterior.given import Given
from sampler.posterior.space import Space
from tests.problems import SPLIT_HMC, chain_settings


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Intercept(Space):
    """y_i ~ N(x, 𝒯) for one number x ~ N(0, 1): the smallest space that there is."""

    name = "intercept"

    def model(self, labels, inputs=None):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([1]).to_event())
        count = len(self.data.labels if inputs is None else inputs)
        with numpyro.plate("example", count):
            numpyro.sample("y", dist.Normal(x[0], jnp.sqrt(self.temperature)), obs=labels)

    def given(self, position, key):
        return Given(lambda inputs: jnp.full((len(inputs), 1), position["x"][0]))


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Nothing(Data):
    """Examples without inputs."""

    def train(self, position):
        return self.labels

    def test(self, position):
        return self.labels[:1]

    def examples(self, position):
        return self.labels, self.labels


@pytest.mark.heavy
def test_a_new_space_is_sampled(rng):
    """Against the normal posterior of a mean in closed form, within six standard errors."""
    labels, temperature = 1.0 + rng.standard_normal((5, 1)), 0.5
    space = Intercept(
        data=Nothing(labels=jnp.asarray(labels)), temperature=jnp.asarray(temperature)
    )
    chosen, collected = SPLIT_HMC, DrawCollector()
    chosen.draw(space, chain_settings(chains=2, warmup=200), collected)
    draws = collected.draws["predictor"][..., 0, 0]
    variance = 1.0 / (1.0 + len(labels) / temperature)
    mean = variance * labels.sum() / temperature
    error = np.sqrt(variance / 500)  # of a quarter of the draws, whatever their correlation
    assert abs(draws.mean() - mean) < 6 * error
    assert abs(draws.var() / variance - 1.0) < 6 * np.sqrt(2 / 500)


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Scale(Intercept):
    """The same of one number that is not negative."""

    def model(self, labels, inputs=None):
        x = numpyro.sample("x", dist.HalfNormal(1.0))
        with numpyro.plate("example", len(self.data.labels)):
            numpyro.sample("y", dist.Normal(0.0, x), obs=labels)


def space_of(kind, examples: int):
    return kind(data=Nothing(labels=jnp.ones((examples, 1))), temperature=jnp.asarray(0.5))


def test_a_prior_that_is_bounded_is_refused():
    """Coordinates of trajectories are all real numbers."""
    with pytest.raises(TypeError, match=r"\bx\b"):
        _ = space_of(Scale, 3).shapes


def test_threads_run_models_one_after_the_other():
    """NumPyro has one list of handlers for all of them; every space is of other shapes."""

    def density_and_size(examples: int) -> tuple[float, int]:
        space = space_of(Intercept, examples)
        value = jax.eval_shape(space.log_density, {"x": jnp.zeros(1)})
        return value.shape, space.size

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(density_and_size, range(100, 160)))
    assert found == [((), 1)] * 60
