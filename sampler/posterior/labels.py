"""Laws of the labels y: of training examples given a position, and of new examples.

Where weights are integrated out, labels are jointly Gaussian, y ~ N(0, K + 𝒯 1). The density is the
energy of `theory.energy`, with the derivative that is written there by hand: NumPyro's own, from a
Cholesky factor that is differentiated, would cost several times more.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import distributions as dist

from theory.energy import energy_of_columns, with_noise
from theory.learning_problem import LabelEnergy, ResidualLabels
from theory.path_kernels import Features

# Labels [example, output], or [example] where there is one output.
Labels = Float[Array | np.ndarray, "example output"] | Float[Array | np.ndarray, " example"]


def flat_labels(labels: Labels | None) -> Labels | None:
    """Labels as a site has them: one output has no axis of its own."""
    return labels[:, 0] if labels is not None and labels.shape[1:] == (1,) else labels


def split_labels(
    labels: Float[Array, "example output"], basis: Float[Array, "example row"]
) -> tuple[Float[Array, "row output"], ResidualLabels]:
    """Labels y_∥ = Qᵀ y of the rows that represent examples, and the rest of y."""
    rows = basis.T @ labels
    return rows, ResidualLabels(labels.size - rows.size, jnp.sum((labels - basis @ rows) ** 2))


def labels_of_weights(
    features: Float[Array | np.ndarray, "example path channel"],
    factor: Float[Array | np.ndarray, "*draw row rank"],
    temperature: Float[Array | np.ndarray, "*draw"],
    standard_normal: Callable[[tuple[int, ...]], Array | np.ndarray],
) -> Float[Array | np.ndarray, "*draw example output"]:
    """Labels y = Σ_π φ^π(x)·w^π + √𝒯 ε with w = F · normal, of JAX or NumPy.

    They are draws of N(0, K(F Fᵀ) + 𝒯 1) without assembling or factorising K. The normal numbers of
    w are drawn before ε.
    """
    numbers, (_, paths, channels) = factor.__array_namespace__(), features.shape
    *draws, rows, rank = factor.shape
    weights = factor @ standard_normal((*draws, rank, channels))
    weights = weights.reshape(*draws, paths, rows // paths, channels)
    function = numbers.moveaxis(
        numbers.tensordot(features, weights, axes=((1, 2), (len(draws), len(draws) + 2))), 0, -2
    )
    noise = standard_normal(function.shape)
    return function + numbers.sqrt(temperature)[..., None, None] * noise


class LabelLaw(dist.Distribution):
    """Base of joint distributions of labels: all of them are one event of real numbers."""

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
        """Draw all labels once."""
        raise NotImplementedError


class CollapsedLabels(LabelLaw):
    """Distribution of labels with all weights integrated out, N(0, K(U_1) + 𝒯 1).

    energy  path kernels and temperature; of its labels only the shape counts
    factor  F with U_1 = F Fᵀ
    """

    pytree_data_fields = ("energy", "factor")

    def __init__(
        self, energy: LabelEnergy, factor: Float[Array, "_row _rank"], *, validate_args=None
    ) -> None:
        self.energy, self.factor = energy, factor
        super().__init__(*energy.labels.shape, validate_args)

    def log_prob(self, value):
        labels = jnp.reshape(value, self.energy.labels.shape)
        energy = replace(self.energy, labels=labels)(self.factor)
        return -0.5 * (energy + labels.size * math.log(2.0 * math.pi))

    @property
    def covariance(self) -> Float[Array, "label label"]:
        """K + 𝒯 1 of all labels."""
        return with_noise(self.energy.kernels.kernel(self.factor), self.energy.temperature)

    def draw(self, key):
        kernels, temperature = self.energy.kernels, self.energy.temperature
        if isinstance(kernels, Features):
            keys, dtype = iter(jax.random.split(key)), kernels.left.dtype
            labels = labels_of_weights(
                kernels.left,
                self.factor,
                jnp.asarray(temperature, dtype),
                lambda shape: jax.random.normal(next(keys), shape, dtype),
            )
            return labels.reshape(self.event_shape)
        cholesky = self.energy.noisy_kernel(self.factor).cholesky
        normal = jax.random.normal(key, (len(cholesky),), cholesky.dtype)
        return (cholesky @ normal).reshape(self.event_shape)


class IndependentLabels(LabelLaw):
    """Distribution of labels whose outputs are independent, each N(0, Φ Φᵀ + 𝒯 1).

    columns      Φ [example, feature]
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

    @property
    def covariance(self) -> Float[Array, "example example"]:
        """K + 𝒯 1 of the labels of one output."""
        return with_noise(self.columns @ self.columns.T, self.temperature)

    def draw(self, key):
        function_key, noise_key = jax.random.split(key)
        shape, dtype = (self.columns.shape[1], self.outputs), self.columns.dtype
        function = self.columns @ jax.random.normal(function_key, shape, dtype)
        noise = jax.random.normal(noise_key, function.shape, dtype)
        return (function + jnp.sqrt(self.temperature) * noise).reshape(self.event_shape)


class RowsOfExamples(LabelLaw):
    """Distribution of the labels y = Q y_∥ + y_⊥ of examples, from that of their rows.

    rows         law of y_∥
    basis        Q [example, row] with orthonormal columns
    temperature  𝒯, the variance of y_⊥, which is noise alone
    """

    pytree_data_fields = ("rows", "basis", "temperature")

    def __init__(self, rows, basis, temperature, *, validate_args=None) -> None:
        self.rows, self.basis, self.temperature = rows, basis, temperature
        shape = rows.batch_shape + rows.event_shape
        super().__init__(len(basis), shape[1] if len(shape) == 2 else 1, validate_args)

    def log_prob(self, value):
        rows, residual = split_labels(jnp.reshape(value, (len(self.basis), -1)), self.basis)
        of_rows = jnp.sum(self.rows.log_prob(flat_labels(rows)))
        return of_rows + residual.log_likelihood(self.temperature)

    def draw(self, key):
        row_key, noise_key = jax.random.split(key)
        rows = jnp.reshape(self.rows.sample(row_key), (self.basis.shape[1], -1))
        noise = jax.random.normal(noise_key, (len(self.basis), rows.shape[1]), rows.dtype)
        apart = noise - self.basis @ (self.basis.T @ noise)
        labels = self.basis @ rows + jnp.sqrt(self.temperature) * apart
        return labels.reshape(self.event_shape)
