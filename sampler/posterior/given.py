"""The network given a position and the training labels, and its predictions of examples.

In the space of all weights the log likelihood of an example is ln N(y_i; f(x_i), 𝒯). Where weights
are integrated out, labels depend on each other given a position: there it is ln p(y_i | y_{−i}, θ),
given all other labels, as leave-one-out cross-validation needs.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sampler.streams import Stream, part_of_key
from theory.leave_one_out import LeftOut

if TYPE_CHECKING:
    from sampler.posterior.data import Data


@dataclass(frozen=True)
class Given:
    """The network given a position and the training labels.

    function          one joint draw of f, at any inputs; None without a random key
    moments           mean and variance of f at any inputs; None where the position fixes f
    left_out          inputs → training examples as the others predict them; None likewise
    order_parameters  U_1 … U_a by name
    stored            further arrays that are stored of the draw
    """

    function: Callable[[Any], Float[Array, "example output"]] | None
    moments: Callable[[Any], tuple[Array, Array]] | None = None
    left_out: Callable[[Any], LeftOut] | None = None
    order_parameters: Mapping[str, Array] = field(default_factory=dict)
    stored: Mapping[str, Array] = field(default_factory=dict)

    def predictors(self, inputs: Any) -> dict[str, Array]:
        """f on inputs, where it is drawn; where the position does not fix it, mean and variance."""
        predictors = {}
        if self.function is not None:
            predictors["predictor"] = self.function(inputs)
        if self.moments is not None:
            mean, variance = self.moments(inputs)
            predictors |= {"predictor_mean": mean, "predictor_variance": variance}
        return predictors

    def observe(
        self,
        key: PRNGKeyArray,
        data: "Data",
        position: Mapping[str, Array],
        temperature: Float[Array, ""],
    ) -> dict[str, Array]:
        """Order parameters, log likelihoods and new labels of the training examples."""
        observed = {**self.order_parameters, **self.stored}
        if (validation := data.validation(position)) is not None:
            observed["predictor_validation"] = self.function(validation)
        if (examples := data.examples(position)) is None:
            return observed
        inputs, labels = examples
        outputs = self.function(inputs)
        if self.left_out is None:
            log_likelihood = log_likelihood_of_examples(outputs, labels, temperature)
        else:
            left_out = self.left_out(inputs)
            log_likelihood = left_out.log_density
            left_out_key = part_of_key(key, Stream.LEFT_OUT_LABELS)
            observed["leave_one_out_predictive"] = left_out_labels(left_out_key, left_out, labels)
        label_key = part_of_key(key, Stream.NEW_LABELS)
        noise = jax.random.normal(label_key, outputs.shape, outputs.dtype)
        replicated = outputs + jnp.sqrt(temperature) * noise
        return observed | {
            "log_likelihood": log_likelihood.astype(jnp.float32),
            "posterior_predictive": replicated.astype(jnp.float32),
        }


def log_likelihood_of_examples(
    outputs: Float[Array, "example output"],
    labels: Float[Array, "example output"],
    temperature: Float[Array, ""] | float,
) -> Float[Array, " example"]:
    """Log likelihood ln N(y_i; f(x_i), 𝒯) of each example, its outputs together."""
    squares = jnp.sum((labels - outputs) ** 2, axis=1)
    constant = labels.shape[1] * jnp.log(2.0 * math.pi * temperature)
    return -0.5 * (constant + squares / temperature)


def left_out_labels(
    key: PRNGKeyArray, left_out: LeftOut, labels: Float[Array, "example output"]
) -> Float[Array, "example output"]:
    """Draw the labels of each example given those of all others, in single precision."""
    normal = jax.random.normal(key, labels.shape, labels.dtype)
    if labels.shape[1] == 1:
        noise = normal * jnp.sqrt(left_out.covariance[:, :, 0])
    else:
        noise = jnp.einsum("xcd,xd->xc", jnp.linalg.cholesky(left_out.covariance), normal)
    return (labels - left_out.residual + noise).astype(jnp.float32)
