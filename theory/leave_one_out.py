"""Each example as the rest of them predict it, at any order parameter, without a refit.

Given U_1 the labels are Gaussian. With α = (K + 𝒯 1)⁻¹ y and the block c_i of (K + 𝒯 1)⁻¹ that
belongs to example i, the labels of i given all others and U_1 have the law

    y_i | y_{−i}, U_1 ~ N(y_i − c_i⁻¹ α_i, c_i⁻¹).

All of them together are not the likelihood of all labels: each conditions on the others.

A saddle point is that of all labels. Without those of i the action is A + 2 ℓ_i with ℓ_i the log
density above, and its minimum lies at x − 2 H⁻¹ ∇ℓ_i to first order in ∇ℓ_i, H = ∂²A: there

    ln p(y_i | y_{−i}) = ℓ_i − 2 ∇ℓ_i·H⁻¹ ∇ℓ_i.
"""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.architecture import examples_at_a_time
from theory.energy_derivatives import feature_columns
from theory.learning_problem import LabelEnergy, LearningProblem
from theory.order_parameters import overlap_jacobian
from theory.path_kernels import path_features, renormalise
from theory.saddle_point import SaddlePoint, hessian_of_action


@partial(jax.tree_util.register_dataclass, data_fields=["alpha", "precision"], meta_fields=[])
@dataclass(frozen=True)
class LeftOut:
    """The labels of examples as the others predict them.

    alpha      α_i, the part of (K + 𝒯 1)⁻¹ y of each example
    precision  c_i, the inverse covariance of its labels given the others
    """

    alpha: Float[Array, "*example output"]
    precision: Float[Array, "*example output output"]

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
        mean: Float[Array, " output"],
        covariance: Float[Array, "output output"],
        labels: Float[Array, " output"],
        temperature: Float[Array, ""] | float,
    ) -> "LeftOut":
        """From mean m_i and covariance v_i of f given the labels of all, of one example.

        α_i = (y_i − m_i)/𝒯 and c_i = (1 − v_i/𝒯)/𝒯, where rows stand for the examples. Digits are
        lost where an example determines its own prediction, v_i ≈ 𝒯: 1 − v_i/𝒯 is positive, and
        what rounding leaves below its own size is raised to it, so that densities stay finite.
        """
        precision = jnp.eye(len(labels), dtype=mean.dtype) - covariance / temperature
        smallest = len(labels) * jnp.finfo(mean.dtype).eps
        if len(labels) == 1:
            precision = jnp.maximum(precision, smallest)
        else:
            eigenvalues, vectors = jnp.linalg.eigh(precision)
            precision = (vectors * jnp.maximum(eigenvalues, smallest)) @ vectors.T
        return cls((labels - mean) / temperature, precision / temperature)

    @property
    def covariance(self) -> Float[Array, "*example output output"]:
        """Covariance c_i⁻¹ of the labels of each example given those of all others."""
        if self.precision.shape[-1] == 1:
            return 1.0 / self.precision
        return jnp.linalg.inv(self.precision)

    @property
    def residual(self) -> Float[Array, "*example output"]:
        """Labels minus their means given all others, c_i⁻¹ α_i."""
        return jnp.einsum("...cd,...d->...c", self.covariance, self.alpha)

    @property
    def log_density(self) -> Float[Array, "*example"]:
        """Log density ln p(y_i | y_{−i}, U_1), of all outputs of an example together."""
        outputs = self.alpha.shape[-1]
        quadratic = jnp.sum(self.alpha * self.residual, axis=-1)
        if outputs == 1:
            log_determinant = jnp.log(self.precision[..., 0, 0])
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
) -> LeftOut:
    """Examples that rows stand for, as the others predict them at U_1 = F Fᵀ.

    energy     of the rows
    rows       φ^π of the rows, features φ^π of the examples themselves
    whitening  L⁻¹ with L Lᵀ = K + 𝒯 1 of the rows
    """
    # Of any features: mean and standardised deviations are linear in them.
    whitened = whitening @ renormalise(rows, factor)
    towards_mean = (whitening @ energy.flat_labels) @ whitened

    def of_example(example):
        columns = renormalise(example[0][None], factor)
        explained = columns @ whitened.T
        covariance = columns @ columns.T - explained @ explained.T
        mean = columns @ towards_mean
        return LeftOut.of_moments(mean, covariance, example[1], energy.temperature)

    numbers = labels.shape[1] * (2 * whitened.shape[1] + 2 * energy.labels.size)
    at_a_time = examples_at_a_time(len(labels), numbers * factor.dtype.itemsize)
    return jax.lax.map(of_example, (features, labels), batch_size=at_a_time)


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
    if problem.residual is None:
        return _of_rows(problem.energy, factor)
    if attended is None or labels is None:
        raise ValueError("rows stand for the examples: attended inputs and labels must be given")
    features = path_features(attended, problem.architecture.variances[0])
    return _of_examples(problem.energy, problem.features, factor, features, labels)


@jax.jit
def _of_rows(energy, factor):
    return LeftOut.of_rows(energy.noisy_kernel(factor).whitening, energy.labels).log_density


@jax.jit
def _of_examples(energy, rows, factor, features, labels):
    whitening = energy.noisy_kernel(factor).whitening
    return left_out_by_rows(energy, rows, factor, whitening, features, labels).log_density


@dataclass(frozen=True)
class LeftOutAtSaddle:
    """Log densities at a saddle point that has moved as if each example had not been there.

    coordinates  ∂U_1/∂x of the log-Cholesky coordinates of U_1 [coordinate, row, row]
    inverse      H⁻¹ of these coordinates
    """

    problem: LearningProblem
    factor: Float[Array, "order_row order_row"]
    coordinates: Float[np.ndarray, "coordinate order_row order_row"]
    inverse: Float[np.ndarray, "coordinate coordinate"]

    @classmethod
    def of(cls, problem: LearningProblem, saddle: SaddlePoint) -> "LeftOutAtSaddle":
        """At a minimum of the action of few coordinates.

        Raises ValueError for one that did not converge.
        """
        if not saddle.converged:
            raise ValueError(f"nothing is predicted without a saddle point: {saddle.explain()}")
        factor = saddle.order_parameters.factors[0]
        coordinates = overlap_jacobian(np.asarray(factor))
        hessian = hessian_of_action(problem, saddle.order_parameters)
        count = len(coordinates)
        inverse = np.linalg.inv(max(problem.architecture.widths) * hessian)[:count, :count]
        return cls(problem, factor, coordinates, inverse)

    def log_density(
        self,
        attended: Float[Array, "example path channel"],
        labels: Float[Array, "example output"],
    ) -> Float[np.ndarray, " example"]:
        """Log density ln p(y_i | y_{−i}) of examples, all of them where rows are examples."""
        problem, features = self.problem, None
        if problem.residual is not None:
            features = path_features(attended, problem.architecture.variances[0])
        arguments = problem.energy, problem.features, self.factor, features, labels
        at_saddle, slope = map(np.asarray, _with_slope(*arguments))
        along = np.einsum("xab,kab->xk", slope, self.coordinates, optimize=True)
        return at_saddle - 2.0 * np.einsum("xk,kl,xl->x", along, self.inverse, along, optimize=True)


@jax.jit
def _with_slope(energy, rows, factor, features, labels):
    """Log densities ℓ_i and ∂ℓ_i/∂U_1 [example, row, row], all entries of U_1 free.

    With S_ia = [(K + 𝒯)⁻¹ Φ_a]_i, s_b = Φ_bᵀ α and r_i = c_i⁻¹ α_i:
    ∂ℓ_i/∂U_ab = −½ Σ_cd (c_i⁻¹ + r_i r_iᵀ)_cd S_ica·S_idb + Σ_c r_ic S_ica·s_b.
    """
    outputs = energy.labels.shape[1]
    noisy = energy.noisy_kernel(factor)
    columns = feature_columns(rows, outputs)
    size, count, channels = columns.shape
    solved = noisy.solve(columns.reshape(size, count * channels))
    projected = (energy.flat_labels @ solved).reshape(count, channels)

    def slope_of(left_out: LeftOut, solved: Float[Array, "output row_channel"]):
        solved = solved.reshape(outputs, count, channels)
        residual = left_out.residual
        spread = left_out.covariance + jnp.outer(residual, residual)
        turned = jnp.einsum("cd,dbi->cbi", spread, solved)
        slope = -0.5 * jnp.einsum("cai,cbi->ab", solved, turned)
        slope += jnp.einsum("c,cai,bi->ab", residual, solved, projected)
        return left_out.log_density, 0.5 * (slope + slope.T)

    if features is None:
        left_out = LeftOut.of_rows(noisy.whitening, energy.labels)
        return jax.vmap(slope_of)(left_out, solved.reshape(-1, outputs, count * channels))
    seen = renormalise(rows, factor)
    whitening, alpha = noisy.whitening, noisy.solve(energy.flat_labels)

    def of_example(example):
        own = renormalise(example[0][None], factor)
        across = own @ seen.T
        explained = across @ whitening.T
        covariance = own @ own.T - explained @ explained.T
        left_out = LeftOut.of_moments(across @ alpha, covariance, example[1], energy.temperature)
        own_columns = feature_columns(example[0][None], outputs).reshape(outputs, -1)
        return slope_of(left_out, (own_columns - across @ solved) / energy.temperature)

    numbers = outputs * (2 * count * channels + 3 * energy.labels.size) + count**2
    at_a_time = examples_at_a_time(len(labels), numbers * factor.dtype.itemsize)
    return jax.lax.map(of_example, (features, labels), batch_size=at_a_time)
