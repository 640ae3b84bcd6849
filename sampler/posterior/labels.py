"""Laws of the labels: of single examples given all weights, of all examples given U_1.

Given U_1 labels are jointly Gaussian, y ~ N(0, K(U_1) + 𝒯 1). Here that is a distribution of
NumPyro, so that models observe labels as a site, and draw them where they are not given. Its
density is the energy of `theory.energy`, with the derivative that is written there by hand: one of
NumPyro's own, from a Cholesky factor that is differentiated, would cost several times more.
"""

import math
from dataclasses import replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from theory.energy import energy_of_columns
from theory.learning_problem import LabelEnergy
from theory.path_kernels import Features
from theory.predictor import Predictor

# Labels [example, output], or [example] where there is one output.
Labels = Float[Array | np.ndarray, "example output"] | Float[Array | np.ndarray, " example"]


def label_log_likelihood(energy: LabelEnergy, factor: Float[Array, "_row _rank"]):
    """Log likelihood ln p(y | U_1) = −E(U_1)/2 − (P O/2) ln 2π."""
    return -0.5 * (energy(factor) + energy.labels.size * math.log(2.0 * math.pi))


def site_of_labels(labels: Labels | None) -> Labels | None:
    """Labels as a site has them: one output has no axis of its own."""
    return labels[:, 0] if labels is not None and labels.shape[1:] == (1,) else labels


def sample_labels_of_examples(
    outputs: Float[Array, "example output"],
    labels: Labels | None,
    temperature: Float[Array, ""] | float,
    name: str = "y",
    plate: str = "example",
) -> Labels:
    """Sample the site y ~ N(f(x), 𝒯), example by example; it is observed if labels are given."""
    means = site_of_labels(outputs)
    noisy = dist.Normal(means, jnp.sqrt(temperature)).to_event(means.ndim - 1)
    with numpyro.plate(plate, len(means)):
        return numpyro.sample(name, noisy, obs=site_of_labels(labels))


class OfLabels(dist.Distribution):
    """Base of laws of labels given U_1, all labels being one event of real numbers."""

    arg_constraints: ClassVar = {}

    def __init__(self, examples: int, outputs: int, validate_args=None) -> None:
        event = (examples,) if outputs == 1 else (examples, outputs)
        super().__init__((), event, validate_args=validate_args)

    @property
    def support(self):
        return dist.constraints.independent(dist.constraints.real, self.event_dim)

    def sample(self, key, sample_shape=()):
        draw = self.draw
        for _ in sample_shape:
            draw = jax.vmap(draw)
        return draw(jax.random.split(key, sample_shape) if sample_shape else key)

    def draw(self, key: Array) -> Array:
        raise NotImplementedError


class CollapsedLabels(OfLabels):
    """Law of the training labels with all weights, or V_0, integrated out: N(0, K(U_1) + 𝒯 1).

    energy      path kernels and temperature; of its labels the shape [row, output] counts
    factor      F with K(F Fᵀ) the kernel
    projection  Q [example, row] with orthonormal columns, where rows stand for more examples than
                that: their labels are y = Q y_∥ + y_⊥, y_∥ = Qᵀ y, and y_⊥ is noise alone
    """

    pytree_data_fields = ("energy", "factor", "projection")

    def __init__(
        self,
        energy: LabelEnergy,
        factor: Float[Array, "_row _rank"],
        projection: Float[Array, "example row"] | None = None,
        *,
        validate_args=None,
    ) -> None:
        self.energy, self.factor, self.projection = energy, factor, projection
        rows, outputs = energy.labels.shape
        examples = rows if projection is None else len(projection)
        super().__init__(examples, outputs, validate_args)

    def log_prob(self, value):
        outputs = self.energy.labels.shape[1]
        labels = jnp.reshape(value, (-1, outputs))
        if self.projection is None:
            return label_log_likelihood(replace(self.energy, labels=labels), self.factor)
        rows = self.projection.T @ labels
        apart = labels - self.projection @ rows
        of_rows = label_log_likelihood(replace(self.energy, labels=rows), self.factor)
        variance, count = self.energy.temperature, labels.size - rows.size
        noise = count * jnp.log(2.0 * math.pi * variance) + jnp.sum(apart**2) / variance
        return of_rows - 0.5 * noise

    def draw(self, key):
        row_key, noise_key = jax.random.split(key)
        shape, dtype = self.energy.labels.shape, self.factor.dtype
        cholesky = self.energy.noisy_kernel(self.factor).cholesky
        normal = jax.random.normal(row_key, (len(cholesky),), dtype)
        labels = (cholesky @ normal).reshape(shape)
        if self.projection is not None:
            noise = jax.random.normal(noise_key, (len(self.projection), shape[1]), dtype)
            apart = noise - self.projection @ (self.projection.T @ noise)
            labels = self.projection @ labels + jnp.sqrt(self.energy.temperature) * apart
        return labels.reshape(self.event_shape)


class IndependentLabels(OfLabels):
    """Law of the training labels at infinite width, where outputs are independent: N(0, K + 𝒯 1).

    columns      G [example, feature] with K = G Gᵀ the kernel of one output
    temperature  𝒯
    outputs      O
    """

    pytree_data_fields = ("columns", "temperature")
    pytree_aux_fields = ("outputs",)

    def __init__(
        self,
        columns: Float[Array, "example feature"],
        temperature: Float[Array, ""],
        outputs: int,
        *,
        validate_args=None,
    ) -> None:
        self.columns, self.temperature, self.outputs = columns, temperature, outputs
        super().__init__(len(columns), outputs, validate_args)

    def log_prob(self, value):
        labels = jnp.reshape(value, (-1, self.outputs))
        energy = energy_of_columns(self.columns, labels, self.temperature)
        return -0.5 * (energy + labels.size * math.log(2.0 * math.pi))

    def draw(self, key):
        function_key, noise_key = jax.random.split(key)
        shape, dtype = (self.columns.shape[1], self.outputs), self.columns.dtype
        function = self.columns @ jax.random.normal(function_key, shape, dtype)
        noise = jax.random.normal(noise_key, function.shape, dtype)
        return (function + jnp.sqrt(self.temperature) * noise).reshape(self.event_shape)


class NewLabels(OfLabels):
    """Law of the labels of new examples, all together, given U_1 and the training labels.

    energy          kernels, labels and temperature of the training examples, or of their rows
    factor          F with K(F Fᵀ) the kernel
    features_train  φ^π of these examples or rows
    features_new    φ^π of the new examples
    """

    pytree_data_fields = ("energy", "factor", "features_train", "features_new")

    def __init__(
        self,
        energy: LabelEnergy,
        factor: Float[Array, "_row _rank"],
        features_train: Float[Array, "example path channel"],
        features_new: Float[Array, "new path channel"],
        *,
        validate_args=None,
    ) -> None:
        self.energy, self.factor = energy, factor
        self.features_train, self.features_new = features_train, features_new
        super().__init__(len(features_new), energy.labels.shape[1], validate_args)

    def log_prob(self, value):
        """ln p(y, y_new | U_1) − ln p(y | U_1)."""
        energy = self.energy
        new = jnp.reshape(value, (-1, energy.labels.shape[1]))
        features = jnp.concatenate([self.features_train, self.features_new])
        labels = jnp.concatenate([energy.labels, new])
        joint = replace(energy, kernels=Features(features, None), labels=labels)
        return label_log_likelihood(joint, self.factor) - label_log_likelihood(energy, self.factor)

    def draw(self, key):
        function_key, noise_key = jax.random.split(key)
        cross = Features(self.features_new, self.features_train)
        predictor = Predictor(self.energy, cross, None)
        function = predictor.draw(function_key, self.factor, self.features_train, self.features_new)
        noise = jax.random.normal(noise_key, function.shape, function.dtype)
        noisy = function + jnp.sqrt(self.energy.temperature) * noise
        return noisy.reshape(self.event_shape)
