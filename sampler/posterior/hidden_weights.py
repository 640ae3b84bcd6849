"""The posterior of hidden weights: all but the readout a, which is integrated out, of any network.

The output is linear in the readout, f = Φ aᵀ/σ_a, where Φ [example, unit] has the outputs of the
network whose readout is σ_a times the identity. Given all other weights, for each output by itself,

    y ~ N(0, Φ Φᵀ + 𝒯 1),    aᵀ/σ_a | y ~ N((Λ Λᵀ)⁻¹ Φᵀ y, 𝒯 (Λ Λᵀ)⁻¹),    Λ Λᵀ = Φᵀ Φ + 𝒯 1.

So the predictor has a closed form given the rest, and a is drawn back with every draw.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions as dist

from sampler.posterior.given import Given
from sampler.posterior.labels import IndependentLabels
from sampler.posterior.space import Position
from sampler.posterior.weights import NetworkSpace
from theory.energy import NoisyKernel
from theory.leave_one_out import LeftOut


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class HiddenWeightSpace(NetworkSpace):
    """All weights but the readout."""

    name = "hidden_weights"

    def model(self, labels: Array | None, inputs: Any = None) -> None:
        """All weights but the readout as a NumPyro model, and all labels given these."""
        sigma_0, shape = jnp.sqrt(self.variances[0]), self.network.weight_shapes["V_0"]
        weights = self.sample_shared()
        weights["V_0"] = numpyro.sample("V_0", dist.Normal(0.0, sigma_0).expand(shape).to_event())
        weights |= self.sample_upper()

        inputs = self.data.train(weights) if inputs is None else inputs
        columns, temperature = self.columns(weights, inputs), self.temperature_at(weights)

        law = IndependentLabels(columns, temperature, self.network.outputs)
        numpyro.sample("y", law, obs=labels)
        if labels is not None:
            self.weigh_residual(weights)

    def columns(self, position: Position, inputs: Any) -> Float[Array, "example unit"]:
        """Φ, which is multiplied by a standard normal readout."""
        identity = jnp.eye(self.network.widths[-1], dtype=self.variances.dtype)
        readout = jnp.sqrt(self.variances[-1]) * identity
        return self.outputs({**position, "a": readout}, inputs)

    def given(self, position: Position, key: PRNGKeyArray | None) -> Given:
        """The network given its hidden weights, its readout drawn from its exact posterior."""
        columns = self.columns(position, self.data.train(position))
        labels, temperature = self.data.labels, self.temperature_at(position)
        posterior = ReadoutPosterior.of(columns, labels, temperature)

        def moments(inputs: Any):
            return posterior.moments(self.columns(position, inputs))

        def left_out(inputs: Any) -> LeftOut:
            if self.data.residual is None:
                return posterior.left_out(columns, labels)
            examples = self.data.examples(position)
            assert examples is not None
            return posterior.left_out_by_rows(self.columns(position, inputs), examples[1])

        if key is None:
            return Given(None, moments, left_out)
        readout = posterior.draw(key)
        weights = {**position, "a": jnp.sqrt(self.variances[-1]) * readout.T}
        stored = {name: weights[name] for name in self.keep}
        return Given(
            lambda inputs: self.columns(position, inputs) @ readout,
            moments,
            left_out,
            self.order_parameters(weights),
            stored,
        )


@register_dataclass
@dataclass(frozen=True)
class ReadoutPosterior:
    """Distribution of the standard normal readout given hidden weights and labels.

    mean         (Λ Λᵀ)⁻¹ Φᵀ y; the covariance is 𝒯 (Λ Λᵀ)⁻¹
    whitening    Λ⁻¹ with Λ Λᵀ = Φᵀ Φ + 𝒯 1
    temperature  𝒯
    """

    mean: Float[Array, "unit output"]
    whitening: Float[Array, "unit unit"]
    temperature: Float[Array, ""]

    @classmethod
    def of(
        cls,
        columns: Float[Array, "example unit"],
        labels: Float[Array, "example output"],
        temperature: Float[Array, ""],
    ) -> "ReadoutPosterior":
        """The posterior given Φ and y."""
        whitening = NoisyKernel.factorise(columns.T @ columns, temperature).whitening
        return cls(whitening.T @ (whitening @ (columns.T @ labels)), whitening, temperature)

    def draw(self, key: PRNGKeyArray) -> Float[Array, "unit output"]:
        """Draw aᵀ/σ_a."""
        normal = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.sqrt(self.temperature) * (self.whitening.T @ normal)

    def moments(
        self, columns: Float[Array, "new unit"]
    ) -> tuple[Float[Array, "new output"], Float[Array, "new output"]]:
        """Mean and variance of f, 𝒯 |Λ⁻¹ φ|² for a row φ of Φ, the same for all outputs."""
        mean = columns @ self.mean
        variance = self.temperature * jnp.sum((columns @ self.whitening.T) ** 2, axis=1)
        return mean, jnp.broadcast_to(variance[:, None], mean.shape)

    def left_out(
        self, columns: Float[Array, "example unit"], labels: Float[Array, "example output"]
    ) -> LeftOut:
        """Examples as the others predict them, from Φ and y of all of them."""
        if len(columns) > columns.shape[1]:
            return self.left_out_by_rows(columns, labels)
        whitening = NoisyKernel.factorise(columns @ columns.T, self.temperature).whitening
        identity = jnp.eye(labels.shape[1], dtype=columns.dtype)
        precision = jnp.sum(whitening**2, axis=0)[:, None, None] * identity[None]
        return LeftOut(whitening.T @ (whitening @ labels), precision)

    def left_out_by_rows(
        self, columns: Float[Array, "example unit"], labels: Float[Array, "example output"]
    ) -> LeftOut:
        """The same of more examples than units, with the leverage |Λ⁻¹ φ_i|² < 1 of each.

        α_i = (y_i − m_i)/𝒯 and κ_i = (1 − leverage)/𝒯; leverages that round to 1 are kept below it.
        """
        leverage = jnp.sum((columns @ self.whitening.T) ** 2, axis=1)
        outside = jnp.maximum(1.0 - leverage, jnp.finfo(columns.dtype).eps) / self.temperature
        identity = jnp.eye(labels.shape[1], dtype=columns.dtype)
        alpha = (labels - columns @ self.mean) / self.temperature
        return LeftOut(alpha, jnp.multiply.outer(outside, identity))
