"""The posterior of all weights of a network, linear or not.

    V_0 ~ N(0, σ_0²),   V_l^h ~ N(0, σ_l²),   a ~ N(0, σ_a²),   y ~ N(f(x), 𝒯)

so that p(weights | y) ∝ exp(−Σ_μ |f(x_μ) − y_μ|²/2𝒯) Π N(weight; 0, σ²). Networks outside the
theory have further arrays: those of MLPs, and the logit weights of learned heads.
Source: arXiv 2405.15926, posterior.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpyro
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions as dist

from sampler.network import (
    effective_weights,
    named_order_parameters,
    network_outputs,
    overlaps,
    path_weights,
)
from sampler.posterior.given import Given
from sampler.posterior.labels import flat_labels
from sampler.posterior.space import Position, Space
from sampler.token_network import TokenNetwork, predict_split
from theory.architecture import Architecture

# Stored where training examples are too many for every draw to be asked about them.
EFFECTIVE = "effective_weights"


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Weights(Space):
    """All weights, Gaussian a priori, and the labels of every example given these.

    variances  σ_0² … σ_a²
    network    its sizes: an `Architecture`, or a network outside the theory
    """

    variances: Float[Array, " layer"]
    network: Architecture | TokenNetwork = field(metadata={"static": True})

    name = "weights"

    def model(self, labels: Array | None) -> dict[str, Array]:
        """The network as a NumPyro model: all weights, and the labels of every example given f."""
        weights = {name: numpyro.sample(name, prior) for name, prior in self.priors.items()}

        f = flat_labels(self.outputs(weights, self.data.train(weights)))
        noise = jnp.sqrt(self.temperature_at(weights))

        with numpyro.plate("example", len(f)):
            y = numpyro.sample("y", dist.Normal(f, noise).to_event(f.ndim - 1), obs=labels)
        if labels is not None:
            self.weigh_residual(weights)
        return weights | {"y": y}

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every array of weights."""
        return self.network.weight_shapes

    @property
    def weights(self) -> dict[str, dist.Distribution]:
        """Gaussian prior of every array of weights; standard normal for logit weights."""
        layers, dtype, priors = self.network.weight_layers, self.variances.dtype, {}
        for name, shape in self.weight_shapes.items():
            variance = self.variances[layers[name]] if name in layers else jnp.ones((), dtype)
            normal = dist.Normal(jnp.zeros(shape, dtype), jnp.sqrt(variance))
            priors[name] = normal.to_event(len(shape))
        return priors

    def outputs(self, weights: Position, inputs: Any) -> Float[Array, "example output"]:
        """f(x) of the network, with a readout of any number of rows."""
        if isinstance(self.network, TokenNetwork):
            return predict_split(weights, inputs, self.network)
        network = replace(self.network, outputs=len(weights["a"]))
        return network_outputs(weights, inputs, network)

    def law(self, position: Position, inputs: Any = None) -> dist.Distribution:
        """Law N(f(x), 𝒯) of the labels, example by example."""
        inputs = self.data.train(position) if inputs is None else inputs
        means = flat_labels(self.outputs(position, inputs))
        noise = jnp.sqrt(self.temperature_at(position))
        return dist.Normal(means, noise).to_event(means.ndim - 1)

    def law_of_new(self, position: Position, inputs: Any) -> dist.Distribution:
        """Law of new labels, which given the weights depend on no other label."""
        return self.law(position, inputs)

    def given(self, position: Position, key: PRNGKeyArray | None) -> Given:
        """The network of these weights."""
        stored = {name: position[name] for name in self.keep}
        if isinstance(self.network, TokenNetwork):
            return Given(lambda inputs: self.outputs(position, inputs), stored=stored)
        if not self.data.pointwise:
            stored[EFFECTIVE] = self.effective_weights(position)
        return Given(
            lambda inputs: self.outputs(position, inputs),
            order_parameters=self.order_parameters(position),
            stored=stored,
        )

    def order_parameters(self, weights: Position) -> dict[str, Array]:
        """U_1 … U_a of a network that has them, by name."""
        if isinstance(self.network, TokenNetwork):
            return {}
        return named_order_parameters(overlaps(weights, self.network))

    def effective_weights(self, weights: Position) -> Float[Array, "row channel"]:
        """The weights of attended inputs, from which f follows at any input."""
        lowest = path_weights(weights, self.network)[0]
        return effective_weights(lowest, weights["V_0"], self.network)
