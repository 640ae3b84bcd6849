"""The posterior of all weights of a network, linear or not.

    V_0 ~ N(0, σ_0²),   V_l^h ~ N(0, σ_l²),   a ~ N(0, σ_a²),   y ~ N(f(x), 𝒯)

so that p(weights | y) ∝ exp(−Σ_μ |f(x_μ) − y_μ|²/2𝒯) Π N(weight; 0, σ²). `WeightSpace` is that text
as a NumPyro model. Networks outside the theory have further arrays: those of MLPs, and the logit
weights of learned heads. Source: arXiv 2405.15926, posterior.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpyro
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions as dist

from sampler.network import (
    named_order_parameters,
    network_outputs,
    overlaps,
)
from sampler.posterior.given import Given
from sampler.posterior.labels import flat_labels
from sampler.posterior.space import Position, Space
from sampler.token_network import TokenNetwork, predict_split
from theory.architecture import Architecture


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkSpace(Space):
    """Common part of spaces of all and of hidden weights: network and priors of V_1 … V_L.

    variances  σ_0² … σ_a²
    network    its sizes: an `Architecture`, or a network outside the theory
    """

    variances: Float[Array, " layer"]
    network: Architecture | TokenNetwork = field(metadata={"static": True})

    def sample_upper(self) -> dict[str, Array]:
        """Sample V_1 … V_L; outside the theory MLPs and logit weights as well."""
        sigma, shapes, weights = jnp.sqrt(self.variances), self.network.weight_shapes, {}
        for layer in range(1, len(self.network.widths)):
            prior = dist.Normal(0.0, sigma[layer]).expand(shapes[f"V_{layer}"])
            weights[f"V_{layer}"] = numpyro.sample(f"V_{layer}", prior.to_event())
        if isinstance(self.network, TokenNetwork):
            for name, layer in self.network.mlp_layers.items():
                prior = dist.Normal(0.0, sigma[layer]).expand(shapes[name])
                weights[name] = numpyro.sample(name, prior.to_event())
            for name, shape in self.network.logits:
                weights[name] = numpyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event())
        return weights

    def outputs(self, weights: Position, inputs: Any) -> Float[Array, "example output"]:
        """f(x) of the network, with a readout of any number of rows."""
        if isinstance(self.network, TokenNetwork):
            return predict_split(weights, inputs, self.network)
        network = replace(self.network, outputs=len(weights["a"]))
        return network_outputs(weights, inputs, network)

    def order_parameters(self, weights: Position) -> dict[str, Array]:
        """U_1 … U_a of a network that has them, by name."""
        if isinstance(self.network, TokenNetwork):
            return {}
        return named_order_parameters(overlaps(weights, self.network))


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class WeightSpace(NetworkSpace):
    """All weights, Gaussian a priori, and the labels of every example given these."""

    name = "weights"

    def sample_prior(self) -> dict[str, Array]:
        """Sample all weights from their prior."""
        sigma, shapes = jnp.sqrt(self.variances), self.network.weight_shapes
        V_0 = numpyro.sample("V_0", dist.Normal(0.0, sigma[0]).expand(shapes["V_0"]).to_event())
        upper = self.sample_upper()
        a = numpyro.sample("a", dist.Normal(0.0, sigma[-1]).expand(shapes["a"]).to_event())
        return {"V_0": V_0, **upper, "a": a}

    def model(self, labels: Array | None, inputs: Any = None) -> None:
        """The network as a NumPyro model: all weights, and the label of every example given f."""
        weights = {**self.sample_shared(), **self.sample_prior()}

        inputs = self.data.train(weights) if inputs is None else inputs
        f = flat_labels(self.outputs(weights, inputs))
        noise = jnp.sqrt(self.temperature_at(weights))

        with numpyro.plate("example", len(f)):
            numpyro.sample("y", dist.Normal(f, noise).to_event(f.ndim - 1), obs=labels)
        if labels is not None:
            self.weigh_residual(weights)

    def law_of_new(self, position: Position, inputs: Any) -> dist.Distribution:
        """Distribution of new labels, which given the weights depend on no other label."""
        return self.law(position, inputs)

    def given(self, position: Position, key: PRNGKeyArray | None) -> Given:
        """The network of these weights."""
        return Given(
            lambda inputs: self.outputs(position, inputs),
            order_parameters=self.order_parameters(position),
            stored={name: position[name] for name in self.keep},
        )
