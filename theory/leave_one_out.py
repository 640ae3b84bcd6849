"""Each example as the rest of them predict it, at any order parameter, without a refit.

Given U_1 the labels are Gaussian. With α = (K + 𝒯 1)⁻¹ y and the block c_i of (K + 𝒯 1)⁻¹ that
belongs to example i, the labels of i given all others and U_1 have the law

    y_i | y_{−i}, U_1 ~ N(y_i − c_i⁻¹ α_i, c_i⁻¹).

All of them together are not the likelihood of all labels: each conditions on the others.
"""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from theory.energy import LabelEnergy, LearningProblem, inverse_of_lower
from theory.path_kernels import path_features, renormalised_features

# Examples at a time, whose renormalised features and kernels take no more than this.
CHUNK_BYTES = 64 * 2**20


@partial(jax.tree_util.register_dataclass, data_fields=["alpha", "precision"], meta_fields=[])
@dataclass(frozen=True)
class LeftOut:
    """The labels of every example as the others predict them.

    alpha      α_i, the part of (K + 𝒯 1)⁻¹ y of each example
    precision  c_i, the inverse covariance of its labels given the others
    """

    alpha: Float[Array, "example output"]
    precision: Float[Array, "example output output"]

    @classmethod
    def of_rows(
        cls,
        whitening: Float[Array, "example_output example_output"],
        labels: Float[Array, "example output"],
    ) -> "LeftOut":
        """From L⁻¹, L Lᵀ = K + 𝒯 1, where every row is an example: no digits are lost."""
        examples, outputs = labels.shape
        alpha = ((whitening @ labels.reshape(-1)) @ whitening).reshape(labels.shape)
        if outputs == 1:
            return cls(alpha, jnp.sum(whitening**2, axis=0)[:, None, None])
        columns = whitening.reshape(-1, examples, outputs)
        return cls(alpha, jnp.einsum("kxc,kxd->xcd", columns, columns))

    @classmethod
    def of_moments(
        cls,
        mean: Float[Array, "example output"],
        covariance: Float[Array, "example output output"],
        labels: Float[Array, "example output"],
        temperature: Float[Array, ""] | float,
    ) -> "LeftOut":
        """From mean m_i and covariance v_i of f given the labels of all examples.

        α_i = (y_i − m_i)/𝒯 and c_i = (1 − v_i/𝒯)/𝒯, where rows stand for the examples. Digits are
        lost where an example determines its own prediction, v_i ≈ 𝒯.
        """
        identity = jnp.eye(labels.shape[1], dtype=mean.dtype)[None]
        precision = (identity - covariance / temperature) / temperature
        return cls((labels - mean) / temperature, precision)

    @property
    def covariance(self) -> Float[Array, "example output output"]:
        """Covariance c_i⁻¹ of the labels of each example given those of all others."""
        if self.precision.shape[1] == 1:
            return 1.0 / self.precision
        return jnp.linalg.inv(self.precision)

    @property
    def residual(self) -> Float[Array, "example output"]:
        """Labels minus their means given all others, c_i⁻¹ α_i."""
        return jnp.einsum("xcd,xd->xc", self.covariance, self.alpha)

    @property
    def log_density(self) -> Float[Array, " example"]:
        """Log density ln p(y_i | y_{−i}, U_1), of all outputs of an example together."""
        outputs = self.alpha.shape[1]
        quadratic = jnp.sum(self.alpha * self.residual, axis=1)
        if outputs == 1:
            log_determinant = jnp.log(self.precision[:, 0, 0])
        else:
            log_determinant = jnp.linalg.slogdet(self.precision)[1]
        return 0.5 * (log_determinant - quadratic - outputs * math.log(2.0 * math.pi))


def left_out_by_rows(
    energy: LabelEnergy,
    rows: Float[Array, "row path channel"],
    factor: Float[Array, "order_row rank"],
    whitening: Float[Array, "row_output row_output"],
    features: Float[Array, "example path channel"],
    labels: Float[Array, "example output"],
) -> Float[Array, " example"]:
    """Log densities ln p(y_i | y_{−i}, U_1) of examples that rows stand for, U_1 = F Fᵀ.

    energy     of the rows
    rows       φ^π of the rows, features φ^π of the examples themselves
    whitening  L⁻¹ with L Lᵀ = K + 𝒯 1 of the rows
    """
    examples, paths, channels = features.shape
    outputs = labels.shape[1]
    seen = renormalised_features(rows, factor)
    # Of any features: mean and standardised deviations are linear in them.
    whitened = whitening @ seen
    towards_mean = (whitening @ energy.flat_labels) @ whitened

    def of_part(part):
        features, labels = part
        own = renormalised_features(features, factor)
        mean = (own @ towards_mean).reshape(labels.shape)
        own, explained = (x.reshape(len(labels), outputs, -1) for x in (own, own @ whitened.T))
        covariance = jnp.einsum("xci,xdi->xcd", own, own)
        covariance -= jnp.einsum("xci,xdi->xcd", explained, explained)
        return LeftOut.of_moments(mean, covariance, labels, energy.temperature).log_density

    numbers = outputs * (2 * factor.shape[1] * channels + 2 * energy.labels.size)
    chunk = max(1, CHUNK_BYTES // (factor.dtype.itemsize * numbers))
    if examples <= chunk:
        return of_part((features, labels))
    count = -(-examples // chunk)
    missing = ((0, count * chunk - examples),)
    features = jnp.pad(features, (*missing, (0, 0), (0, 0))).reshape(count, chunk, paths, channels)
    labels = jnp.pad(labels, (*missing, (0, 0))).reshape(count, chunk, outputs)
    return jax.lax.map(of_part, (features, labels)).reshape(-1)[:examples]


def left_out_log_density(
    problem: LearningProblem,
    factor: Float[Array, "order_row rank"],
    attended: Float[Array, "example path channel"] | None = None,
    labels: Float[Array, "example output"] | None = None,
) -> Float[Array, " example"]:
    """Log densities ln p(y_i | y_{−i}, U_1) at U_1 = F Fᵀ, exact and without a refit.

    attended, labels  of the examples, where rows stand for them in the problem; of any part of them

    Raises ValueError if they are missing there.
    """
    if problem.compressed is None:
        return _of_rows(problem.energy, factor)
    if attended is None or labels is None:
        raise ValueError("rows stand for the examples: attended inputs and labels must be given")
    features = path_features(attended, problem.architecture.variances[0])
    return _of_examples(problem.energy, problem.features, factor, features, labels)


@jax.jit
def _of_rows(energy, factor):
    whitening = inverse_of_lower(energy.noisy_kernel(factor).cholesky)
    return LeftOut.of_rows(whitening, energy.labels).log_density


@jax.jit
def _of_examples(energy, rows, factor, features, labels):
    whitening = inverse_of_lower(energy.noisy_kernel(factor).cholesky)
    return left_out_by_rows(energy, rows, factor, whitening, features, labels)
