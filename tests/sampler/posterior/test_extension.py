"""What a new law of labels and a new space touch: one class each, and nothing else."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import register_dataclass
from numpyro import distributions as dist
from scipy import stats

from sampler.mcmc.algorithm import ChainSettings, algorithm_named
from sampler.mcmc.chains import sample
from sampler.mcmc.collected_draws import DrawCollector
from sampler.posterior.data import Data, FixedPaths
from sampler.posterior.given import Given
from sampler.posterior.space import Space
from sampler.posterior.weights import Weights
from theory.architecture import Architecture

DEGREES = 4.0


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class RobustWeights(Weights):
    """All weights, with labels whose noise has the tails of Student's law."""

    def law(self, position, inputs=None):
        inputs = self.data.train(position) if inputs is None else inputs
        means = self.outputs(position, inputs)[:, 0]
        return dist.StudentT(DEGREES, means, jnp.sqrt(self.temperature_at(position)))

    def model(self, labels):
        return Space.model(self, labels)


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Intercept(Space):
    """y_i ~ N(x, 𝒯) for one number x ~ N(0, 1): the smallest space that there is."""

    name = "intercept"

    @property
    def weight_shapes(self):
        return {"x": (1,)}

    @property
    def weights(self):
        return {"x": dist.Normal(jnp.zeros(1), jnp.ones(1)).to_event(1)}

    def law(self, position, inputs=None):
        count = len(self.data.labels if inputs is None else inputs)
        means = jnp.full(count, position["x"][0])
        return dist.Normal(means, jnp.sqrt(self.temperature_at(position)))

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


def test_a_new_law_of_labels_is_a_method(rng):
    """Against SciPy's Student law at f by loops over the paths, and its normal densities."""
    architecture = Architecture.uniform((2,), 3, channels=2)
    attended = rng.standard_normal((4, 2, 2))
    labels = rng.standard_normal((4, 1))
    data = FixedPaths(
        labels=jnp.asarray(labels),
        attended=jnp.asarray(attended),
        attended_test=jnp.asarray(attended[:1]),
    )
    space = RobustWeights(
        data=data,
        temperature=jnp.asarray(0.3),
        variances=jnp.asarray(architecture.variances),
        network=architecture.sizes,
    )
    weights = {n: rng.standard_normal(shape) for n, shape in architecture.weight_shapes.items()}
    outputs = np.zeros(4)
    for example in range(4):
        for head in range(2):
            hidden = weights["V_0"] @ attended[example, head] / np.sqrt(2)
            outputs[example] += weights["a"][0] @ (weights["V_1"][head] @ hidden) / 3 / np.sqrt(2)
    expected = sum(stats.norm.logpdf(values).sum() for values in weights.values())
    expected += stats.t.logpdf(labels[:, 0], DEGREES, outputs, np.sqrt(0.3)).sum()
    position = {name: jnp.asarray(values) for name, values in weights.items()}
    np.testing.assert_allclose(space.log_density(position), expected, rtol=1e-12)


@pytest.mark.heavy
def test_a_new_space_is_sampled(rng):
    """Against the normal posterior of a mean in closed form, within six standard errors."""
    labels, temperature = 1.0 + rng.standard_normal((5, 1)), 0.5
    space = Intercept(
        data=Nothing(labels=jnp.asarray(labels)), temperature=jnp.asarray(temperature)
    )
    chosen, collected = algorithm_named("split_hmc", {}), DrawCollector()
    sample(space, chosen, ChainSettings(chains=2, warmup=200, draws=1000), collected)
    draws = collected.draws["predictor"][..., 0, 0]
    variance = 1.0 / (1.0 + len(labels) / temperature)
    mean = variance * labels.sum() / temperature
    error = np.sqrt(variance / 500)  # of a quarter of the draws, whatever their correlation
    assert abs(draws.mean() - mean) < 6 * error
    assert abs(draws.var() / variance - 1.0) < 6 * np.sqrt(2 / 500)
