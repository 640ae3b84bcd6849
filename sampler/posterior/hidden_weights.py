"""The posterior of hidden weights: all but the readout a, which is integrated out, of any network.

The output is linear in the readout. With G [example, unit] the outputs of the network whose readout
is σ_a times the identity, f = G z with z [unit, output] standard normal a priori, so that

    y_c ~ N(0, G Gᵀ + 𝒯 1)    for each output c by itself, given all other weights,
    z | y ~ N(M⁻¹ Gᵀ y, 𝒯 M⁻¹),  M = Gᵀ G + 𝒯 1.

So the predictor has a closed form given the rest, and a is drawn back with every draw. What the
network does below its readout has no part in this: `predict`, its forward pass, is all that is
known of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from sampler.network import named_order_parameters, overlaps
from sampler.posterior.density import (
    Density,
    Position,
    Weighted,
    observed_temperature,
    sample_sites,
    specialised,
    temperature_ratio,
    weights_at,
)
from sampler.posterior.labels import IndependentLabels, Labels, site_of_labels
from sampler.posterior.pointwise import LabelledExamples, given_others
from sampler.posterior.weights import weight_priors
from theory.energy import NoisyKernel, inverse_of_lower
from theory.learning_problem import ResidualLabels
from theory.leave_one_out import LeftOut

# The forward pass: weights and inputs, of whatever form, to f(x) [example, output].
Forward = Callable[[Position, Any], Float[Array, "example output"]]


def hidden_weight_priors(
    architecture: Weighted, variances: Float[Array, " layer"], temperature_spread: float = 0.0
) -> dict[str, dist.Distribution]:
    """Priors of V_0 … V_L, and of the temperature where it has one."""
    return weight_priors(architecture, variances, temperature_spread, without="a")


def readout_columns(
    position: Position,
    inputs: Any,
    variances: Float[Array, " layer"],
    *,
    architecture: Weighted,
    predict: Forward,
) -> Float[Array, "example unit"]:
    """G, which is multiplied by a standard normal readout."""
    identity = jnp.eye(architecture.widths[-1], dtype=variances.dtype)
    known = {**position, "a": jnp.sqrt(variances[-1]) * identity}
    return predict(weights_at(known, architecture), inputs)


def hidden_weight_model(
    inputs: Any,
    labels: Labels | None,
    temperature: Float[Array, ""] | float,
    variances: Float[Array, " layer"],
    residual: ResidualLabels | None = None,
    *,
    architecture: Weighted,
    predict: Forward,
    temperature_spread: float = 0.0,
) -> tuple[dict[str, Array], Float[Array, "example unit"], Labels]:
    """Gaussian priors of V_0 … V_L, and y_c ~ N(0, G Gᵀ + 𝒯 1): all sites.

    Where 𝒯 has a prior it is a site, too. `residual` are the labels that none of
    the rows stands for, where rows stand for the examples. Returns weights, G and labels.
    """
    position = sample_sites(hidden_weight_priors(architecture, variances, temperature_spread))
    columns = readout_columns(
        position, inputs, variances, architecture=architecture, predict=predict
    )
    here = temperature * temperature_ratio(position)
    law = IndependentLabels(columns, here, architecture.outputs)
    labels = numpyro.sample("y", law, obs=site_of_labels(labels))
    if residual is not None:
        numpyro.factor("residual", -0.5 * residual(here))
    return position, columns, labels


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["mean", "whitening", "temperature"],
    meta_fields=[],
)
@dataclass(frozen=True)
class ReadoutPosterior:
    """Law of the standard normal readout z given hidden weights and labels, N(mean, 𝒯 M⁻¹).

    mean         M⁻¹ Gᵀ y
    whitening    L⁻¹ with L Lᵀ = M = Gᵀ G + 𝒯 1
    temperature  𝒯
    """

    mean: Float[Array, "unit output"]
    whitening: Float[Array, "unit unit"]
    temperature: Float[Array, ""] | float

    @classmethod
    def of(
        cls,
        columns: Float[Array, "example unit"],
        labels: Float[Array, "example output"],
        temperature: Float[Array, ""] | float,
    ) -> "ReadoutPosterior":
        """From G and y."""
        noisy = NoisyKernel.factorise(columns.T @ columns, temperature)
        whitening = inverse_of_lower(noisy.cholesky)
        return cls(whitening.T @ (whitening @ (columns.T @ labels)), whitening, temperature)

    def draw(self, key: Array) -> Float[Array, "unit output"]:
        """Draw z."""
        normal = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.sqrt(self.temperature) * (self.whitening.T @ normal)

    def moments(
        self, columns: Float[Array, "new unit"]
    ) -> tuple[Float[Array, "new output"], Float[Array, "new output"]]:
        """Mean m = G_* M⁻¹ Gᵀ y and variance v = 𝒯 |L⁻¹ g_*|² of f, the same for all outputs."""
        mean = columns @ self.mean
        variance = self.temperature * jnp.sum((columns @ self.whitening.T) ** 2, axis=1)
        return mean, jnp.broadcast_to(variance[:, None], mean.shape)

    def left_out(
        self,
        columns: Float[Array, "example unit"],
        labels: Float[Array, "example output"],
        rows: bool = False,
    ) -> LeftOut:
        """Examples as the others predict them, from G of the examples themselves.

        rows  whether rows stand for the examples in the posterior: then they are more than units or
              paths times channels

        Of more examples than units c_i = (1 − h_i)/𝒯 with h_i = |L⁻¹ g_i|² < 1; one that rounding
        leaves at 1 or above stays below it by that rounding.
        """
        identity = jnp.eye(labels.shape[1], dtype=columns.dtype)
        if rows or len(columns) > columns.shape[1]:
            leverage = jnp.sum((columns @ self.whitening.T) ** 2, axis=1)
            outside = jnp.maximum(1.0 - leverage, jnp.finfo(columns.dtype).eps) / self.temperature
            alpha = (labels - columns @ self.mean) / self.temperature
            return LeftOut(alpha, jnp.multiply.outer(outside, identity))
        noisy = NoisyKernel.factorise(columns @ columns.T, self.temperature)
        whitening = inverse_of_lower(noisy.cholesky)
        precision = jnp.sum(whitening**2, axis=0)[:, None, None] * identity
        return LeftOut(whitening.T @ (whitening @ labels), precision)


class NewIndependentLabels(IndependentLabels):
    """Law of the labels of new examples, all together, given hidden weights and training labels.

    columns      G of the new examples
    temperature  𝒯
    columns_train, labels  G and y [example, output] of the training examples
    """

    pytree_data_fields = ("columns", "temperature", "columns_train", "labels")

    def __init__(
        self,
        columns: Float[Array, "new unit"],
        temperature: Float[Array, ""],
        columns_train: Float[Array, "example unit"],
        labels: Float[Array, "example output"],
        *,
        validate_args=None,
    ) -> None:
        self.columns_train, self.labels = columns_train, labels
        super().__init__(columns, temperature, labels.shape[1], validate_args=validate_args)

    def log_prob(self, value):
        """ln p(y, y_new | hidden weights) − ln p(y | hidden weights)."""
        new = jnp.reshape(value, (-1, self.outputs))
        columns = jnp.concatenate([self.columns_train, self.columns])
        joint = IndependentLabels(columns, self.temperature, self.outputs)
        known = IndependentLabels(self.columns_train, self.temperature, self.outputs)
        together = joint.log_prob(jnp.concatenate([self.labels, new]))
        return together - known.log_prob(self.labels)

    def draw(self, key):
        readout_key, noise_key = jax.random.split(key)
        known = self.columns_train, self.labels, self.temperature
        function = self.columns @ ReadoutPosterior.of(*known).draw(readout_key)
        noise = jax.random.normal(noise_key, function.shape, function.dtype)
        return (function + jnp.sqrt(self.temperature) * noise).reshape(self.event_shape)


def observe_hidden_weights(
    key: Array,
    position: Position,
    inputs: Any,
    labels: Float[Array, "example output"],
    temperature: Float[Array, ""],
    variances: Float[Array, " layer"],
    test: Any,
    validation: Any = None,
    training: LabelledExamples | None = None,
    *,
    architecture: Weighted,
    predict: Forward,
    fits_theory: bool,
    kept: tuple[str, ...],
) -> dict[str, Array]:
    """Exact predictor mean and variance given the hidden weights, and f(x) of a drawn readout.

    On the test set; f also on the validation set, where there is one. Also the overlaps U_l of the
    completed weights where the network fits the theory, some of these weights, and what the hidden
    weights say of the training labels.

    kept  names of the weights that are observed
    """

    def columns_of(chosen):
        return readout_columns(
            position, chosen, variances, architecture=architecture, predict=predict
        )

    columns = columns_of(inputs)
    here = temperature * temperature_ratio(position)
    posterior = ReadoutPosterior.of(columns, labels, here)
    readout = posterior.draw(key)
    of_test = columns_of(test)
    mean, variance = posterior.moments(of_test)
    found = {
        "predictor": of_test @ readout, "predictor_mean": mean, "predictor_variance": variance
    }  # fmt: skip
    if validation is not None:
        found["predictor_validation"] = columns_of(validation) @ readout
    completed = {**position, "a": jnp.sqrt(variances[-1]) * readout.T}
    weights = weights_at(completed, architecture)
    if fits_theory:
        found |= named_order_parameters(overlaps(weights, architecture))
    found |= observed_temperature(position, temperature)
    if training is not None:
        own = columns_of(training.inputs) if training.rows else columns
        left_out = posterior.left_out(own, training.labels, training.rows)
        found |= given_others(key, left_out, own @ readout, training.labels, here)
    return found | {name: weights[name] for name in kept}


def hidden_weight_density(
    inputs: Any,
    labels: Float[Array, "example output"],
    temperature: float,
    architecture: Weighted,
    predict: Forward,
    test: Any,
    *,
    temperature_spread: float = 0.0,
    validation: Any = None,
    training: LabelledExamples | None = None,
    residual: ResidualLabels | None = None,
    fits_theory: bool = False,
    kept: tuple[str, ...] = (),
) -> Density:
    """The posterior of V_0 … V_L; per draw what `observe_hidden_weights` finds.

    inputs, test, validation  of whatever form `predict` takes
    training                  the examples of which every draw says something
    """
    dtype, sizes = labels.dtype, architecture.sizes
    known = jnp.asarray(temperature, dtype), jnp.asarray(architecture.variances, dtype)
    network = {"architecture": sizes, "predict": predict}
    return Density(
        name="hidden_weights",
        model=specialised(hidden_weight_model, temperature_spread=temperature_spread, **network),
        arguments=(inputs, labels, *known, *(() if residual is None else (residual,))),
        priors=hidden_weight_priors(sizes, known[1], temperature_spread),
        observe=specialised(observe_hidden_weights, fits_theory=fits_theory, kept=kept, **network),
        observed=(inputs, labels, *known, test, validation, training),
    )
