"""The labels of every training example as a draw sees them: log likelihoods, and labels anew.

In the space of all weights the log likelihood of an example is ln N(y_i; f(x_i), 𝒯). Where weights
are integrated out, labels depend on each other given a draw: there it is what all other examples
predict of this one, ln p(y_i | y_{−i}, U_1), which leave-one-out cross-validation needs.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from theory.learning_problem import LabelEnergy
from theory.leave_one_out import Combinations, LeftOut, left_out

# Keys apart from those that a draw of f is split into: these are 0 and 1.
LABEL_STREAM, LEFT_OUT_STREAM = 2, 3


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["inputs", "labels", "combinations"],
    meta_fields=["rows"],
)
@dataclass(frozen=True)
class LabelledExamples:
    """Training examples of which every draw says something.

    inputs        attended inputs ξ^π(x) [example, path, channel], or tokens
    labels        y [example, output]
    rows          whether rows stand for them in the posterior
    combinations  what they are of these rows, where the order parameters are sampled
    """

    inputs: Float[Array, "example path channel"] | tuple
    labels: Float[Array, "example output"]
    rows: bool = False
    combinations: Combinations | None = None

    def astype(self, dtype) -> "LabelledExamples":
        convert = partial(jnp.asarray, dtype=dtype)
        return replace(self, inputs=jax.tree.map(convert, self.inputs), labels=convert(self.labels))


def new_labels(
    key: Array, outputs: Float[Array, "example output"], temperature: Float[Array, ""] | float
) -> dict[str, Array]:
    """Labels drawn anew, outputs and noise of variance 𝒯; in single precision."""
    noise = jax.random.normal(key, outputs.shape, outputs.dtype)
    labels = outputs + jnp.sqrt(temperature) * noise
    return {"posterior_predictive": labels.astype(jnp.float32)}


def said_of_labels(
    key: Array,
    log_likelihood: Float[Array, " example"],
    outputs: Float[Array, "example output"],
    temperature: Float[Array, ""] | float,
) -> dict[str, Array]:
    """The log likelihood of every example, in single precision, and labels drawn anew."""
    labels = new_labels(jax.random.fold_in(key, LABEL_STREAM), outputs, temperature)
    return {"log_likelihood": log_likelihood.astype(jnp.float32), **labels}


def log_likelihood_given(
    outputs: Float[Array, "example output"],
    labels: Float[Array, "example output"],
    temperature: Float[Array, ""] | float,
) -> Float[Array, " example"]:
    """Log likelihood ln N(y_i; f(x_i), 𝒯), outputs of an example together."""
    squares = jnp.sum((labels - outputs) ** 2, axis=1)
    constant = labels.shape[1] * jnp.log(2.0 * math.pi * temperature)
    return -0.5 * (constant + squares / temperature)


def given_weights(
    key: Array,
    outputs: Float[Array, "example output"],
    labels: Float[Array, "example output"],
    temperature: Float[Array, ""] | float,
) -> dict[str, Array]:
    log_likelihood = log_likelihood_given(outputs, labels, temperature)
    return said_of_labels(key, log_likelihood, outputs, temperature)


def given_order_parameter(
    key: Array,
    energy: LabelEnergy,
    whitening: Float[Array, "row_output row_output"],
    outputs: Float[Array, "example output"],
    training: LabelledExamples,
) -> dict[str, Array]:
    """Log densities ln p(y_i | y_{−i}, U_1) and new labels, given U_1 = F Fᵀ.

    New labels of two kinds: `posterior_predictive` given all labels, and `leave_one_out_predictive`
    of each example given those of the others, which LOO-PIT needs.
    """
    others = left_out(energy, whitening, training.combinations)
    return given_others(key, others, outputs, training.labels, energy.temperature)


def given_others(
    key: Array,
    left_out: LeftOut,
    outputs: Float[Array, "example output"],
    labels: Float[Array, "example output"],
    temperature: Float[Array, ""] | float,
) -> dict[str, Array]:
    """Log densities of labels given all others, and new labels of both kinds.

    outputs  f(x) drawn given all labels
    """
    normal = jax.random.normal(
        jax.random.fold_in(key, LEFT_OUT_STREAM), outputs.shape, outputs.dtype
    )
    if outputs.shape[1] == 1:
        noise = normal * jnp.sqrt(left_out.covariance[:, :, 0])
    else:
        noise = jnp.einsum("xcd,xd->xc", jnp.linalg.cholesky(left_out.covariance), normal)
    new = labels - left_out.residual + noise
    found = said_of_labels(key, left_out.log_density, outputs, temperature)
    return found | {"leave_one_out_predictive": new.astype(jnp.float32)}
