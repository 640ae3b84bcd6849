"""Each example as the rest of them predict it, at any order parameter, without a refit.

Given U_1 the labels are Gaussian. With α = (K + 𝒯 1)⁻¹ y and the block κ_i of (K + 𝒯 1)⁻¹ that
belongs to example i, the labels of i given all others and U_1 have the distribution

    y_i | y_{−i}, U_1 ~ 𝒩(y_i − κ_i⁻¹ α_i, κ_i⁻¹).

All of them together are not the likelihood of all labels: each conditions on the others.

A saddle point is that of all labels. Without those of i the action is A + 2 ℓ_i with ℓ_i the log
density above, and its minimum lies at θ − 2 (∇²A)⁻¹ ∇ℓ_i to first order in ∇ℓ_i. The leading
order that has not seen example i predicts it, as it does any new example, with the log density

    ℓ_i − 2 ∇ℓ_i·(∇²A)⁻¹ ∇ℓ_i

at that point. It is not ln p(y_i | y_{−i}) of the posterior, the logarithm of a ratio of evidences,
which fluctuations of U_1 enter at the same order 1/N as the shift: with ⟨δθ⟩ the mean of the
posterior less the saddle point,

    ln p(y_i | y_{−i}) = ℓ_i + ∇ℓ_i·⟨δθ⟩ + tr((∇²A)⁻¹ ∇²ℓ_i) − ∇ℓ_i·(∇²A)⁻¹ ∇ℓ_i + O(1/N²).

On ten problems with one or two paths, widths from 5 to 100 and a quadrature over U_1, ratios of
evidences at saddle points without each example are off by 0.0001 to 0.03 (root of the mean square),
the density above by 0.004 to 0.13. On the recipe `quickstart` their sums are −85.55 and −85.07,
that of the samples −85.61 ± 0.03. It is the score of the theory, not of the posterior.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float

from theory.action_functional import RelativeCoordinates
from theory.energy_derivatives import feature_columns
from theory.learning_problem import LabelEnergy, LearningProblem
from theory.path_kernels import on_host
from theory.saddle_point import SaddlePoint, hessian_of_action
from theory.size_limits import examples_at_a_time


@register_dataclass
@dataclass(frozen=True)
class LeftOut:
    """The labels of examples as the others predict them.

    alpha      α_i, the part of (K + 𝒯 1)⁻¹ y of each example
    precision  κ_i, the inverse covariance of its labels given the others
    """

    alpha: Float[Array | np.ndarray, "*example output"]
    precision: Float[Array | np.ndarray, "*example output output"]

    @classmethod
    def of_rows(
        cls,
        whitening: Float[Array | np.ndarray, "example_output example_output"],
        labels: Float[Array | np.ndarray, "example output"],
    ) -> "LeftOut":
        """From Λ⁻¹, Λ Λᵀ = K + 𝒯 1, where every row is an example: no digits are lost."""
        examples, outputs = labels.shape
        alpha = ((whitening @ labels.reshape(-1)) @ whitening).reshape(labels.shape)
        if outputs == 1:
            return cls(alpha, (whitening**2).sum(axis=0)[:, None, None])
        columns = whitening.reshape(-1, examples, outputs)
        numbers = whitening.__array_namespace__()
        return cls(alpha, numbers.einsum("kxc,kxd->xcd", columns, columns))

    @property
    def covariance(self) -> Float[Array | np.ndarray, "*example output output"]:
        """Covariance κ_i⁻¹ of the labels of each example given those of all others."""
        if self.precision.shape[-1] == 1:
            return 1.0 / self.precision
        return self.precision.__array_namespace__().linalg.inv(self.precision)

    @property
    def residual(self) -> Float[Array | np.ndarray, "*example output"]:
        """Labels minus their means given all others, κ_i⁻¹ α_i."""
        return (self.covariance @ self.alpha[..., None])[..., 0]

    @property
    def log_density(self) -> Float[Array | np.ndarray, "*example"]:
        """Log density ln p(y_i | y_{−i}, U_1), of all outputs of an example together."""
        outputs, numbers = self.alpha.shape[-1], self.alpha.__array_namespace__()
        quadratic = (self.alpha * self.residual).sum(axis=-1)
        if outputs == 1:
            log_determinant = numbers.log(self.precision[..., 0, 0])
        else:
            log_determinant = numbers.linalg.slogdet(self.precision)[1]
        return 0.5 * (log_determinant - quadratic - outputs * math.log(2.0 * math.pi))


@register_dataclass
@dataclass(frozen=True)
class Combinations:
    """Examples as linear combinations Q_i of the rows that represent them, ξ(x_i) = Σ_r Q_ir ξ_r.

    With X = Q R these are rows of Q, so that (X … Xᵀ + 𝒯)⁻¹ = Q (K + 𝒯)⁻¹ Qᵀ + (1 − Q Qᵀ)/𝒯 of the
    kernel K of the rows: the following expressions have sums of positive terms and loses no digits
    at small 𝒯.

    weights  Q_i
    outside  1 − |Q_i|², how far the other examples repeat this one; 0 below its rounding
    rest     y_i − Q_i·y_∥, the part of a label that no row represents
    """

    weights: Float[Array | np.ndarray, "example row"]
    outside: Float[Array | np.ndarray, " example"]
    rest: Float[Array | np.ndarray, "example output"]

    @classmethod
    def of(
        cls,
        problem: LearningProblem,
        attended: Float[Array | np.ndarray, "example path channel"],
        labels: Float[Array | np.ndarray, "example output"],
    ) -> "Combinations":
        """Any of the training examples, in the precision of the problem."""
        weights = problem.combinations(attended)
        outside = 1.0 - np.sum(weights**2, axis=1)
        rounded = outside <= weights.shape[1] * np.finfo(np.float64).eps
        rest = np.asarray(labels, np.float64) - weights @ np.asarray(problem.labels, np.float64)
        parts = weights, np.where(rounded, 0.0, outside), np.where(rounded[:, None], 0.0, rest)
        return cls(*(jnp.asarray(part, problem.labels.dtype) for part in parts))

    def left_out(
        self,
        whitening: Float[Array | np.ndarray, "row_output row_output"],
        labels: Float[Array | np.ndarray, "row output"],
        temperature: Float[Array | np.ndarray, ""] | float,
    ) -> LeftOut:
        """Each as the others predict it, from Λ⁻¹ with Λ Λᵀ = K + 𝒯 1 and the labels of the rows.

        α_i = Q_i·α + (y_i − Q_i·y_∥)/𝒯,   κ_i = |Λ⁻¹ Q_i|² + (1 − |Q_i|²)/𝒯.
        """
        (rows, outputs), numbers = labels.shape, whitening.__array_namespace__()
        alpha = ((whitening @ labels.reshape(-1)) @ whitening).reshape(rows, outputs)
        by_row = numbers.moveaxis(whitening.reshape(-1, rows, outputs), 1, 0).reshape(rows, -1)

        def precision_of(weights):
            columns = (weights @ by_row).reshape(-1, outputs)
            return columns.T @ columns

        at_a_time = examples_at_a_time(len(self.rest), by_row[0].nbytes)
        if numbers is np:
            inside = np.stack([precision_of(weights) for weights in self.weights])
        else:
            inside = jax.lax.map(precision_of, self.weights, batch_size=at_a_time)
        identity = numbers.eye(outputs, dtype=alpha.dtype)
        outside = numbers.multiply.outer(self.outside / temperature, identity)
        return LeftOut(self.weights @ alpha + self.rest / temperature, inside + outside)


def left_out_log_density(
    problem: LearningProblem,
    factor: Float[Array | np.ndarray, "order_row rank"],
    examples: Combinations | None = None,
) -> Float[Array | np.ndarray, " example"]:
    """Log densities ln p(y_i | y_{−i}, U_1) at U_1 = F Fᵀ, exact and without a refit.

    examples  of which they are asked, where rows represent examples

    Raises ValueError if they are missing there.
    """
    energy, factor, examples = on_host((problem.energy, factor, _asked(problem, examples)))
    return left_out(energy, energy.noisy_kernel(factor).whitening, examples).log_density


def _asked(problem, examples):
    if problem.residual_examples == 0:
        return None
    if examples is None:
        raise ValueError("rows stand for the examples: pass `Combinations.of(problem, …)` of them")
    return examples


def left_out(
    energy: LabelEnergy,
    whitening: Float[Array | np.ndarray, "row_output row_output"],
    examples: Combinations | None,
) -> LeftOut:
    """All examples, or those that rows represent, as the others predict them; Λ Λᵀ = K + 𝒯 1."""
    if examples is None:
        return LeftOut.of_rows(whitening, energy.labels)
    return examples.left_out(whitening, energy.labels, energy.temperature)


@dataclass(frozen=True)
class LeftOutAtSaddle:
    """Log densities at a saddle point that has moved as if each example had not been there.

    The leave-one-out predictions of the leading order, not of the posterior (see the module).

    coordinates  ∂U_1/∂θ in the coordinates of the action [coordinate, row, row]
    inverse      (∇²A)⁻¹ in them
    """

    problem: LearningProblem
    factor: Float[Array | np.ndarray, "order_row order_row"]
    coordinates: Float[np.ndarray, "coordinate order_row order_row"]
    inverse: Float[np.ndarray, "coordinate coordinate"]

    @classmethod
    def of(cls, problem: LearningProblem, saddle: SaddlePoint) -> "LeftOutAtSaddle":
        """At a minimum of the action of few coordinates.

        Raises ValueError for one that did not converge.
        """
        arch = problem.architecture
        if not saddle.converged:
            raise ValueError(f"nothing is predicted without a saddle point: {saddle.explain()}")
        factors, coordinates = saddle.order_parameters.factors, RelativeCoordinates(arch)
        point = coordinates.point_of(factors)
        moved = coordinates.series(point, np.eye(point.size), 1).overlap(0, 1)
        hessian = hessian_of_action(problem, saddle.order_parameters)
        return cls(problem, factors[0], moved, np.linalg.inv(max(arch.widths) * hessian))

    def log_density(self, examples: Combinations | None = None) -> Float[np.ndarray, " example"]:
        """Log density ℓ_i − 2 ∇ℓ_i·(∇²A)⁻¹ ∇ℓ_i of examples as in `left_out_log_density`."""
        problem = self.problem
        arguments = problem.energy, problem.features, self.factor, _asked(problem, examples)
        at_saddle, slope = _with_slope(*on_host(arguments))
        along = np.einsum("xab,kab->xk", slope, self.coordinates, optimize=True)
        return at_saddle - 2.0 * np.einsum("xk,kl,xl->x", along, self.inverse, along, optimize=True)


def _with_slope(energy, rows, factor, examples):
    """Log densities ℓ_i and ∂ℓ_i/∂U_1 [example, row, row], all entries of U_1 free.

    With J_ia = [(K + 𝒯)⁻¹ φ_a]_i, j_b = φ_bᵀ α and δ_i = κ_i⁻¹ α_i:
    ∂ℓ_i/∂U_ab = −½ Σ_op (κ_i⁻¹ + δ_i δ_iᵀ)_op J_ioa·J_ipb + Σ_o δ_io J_ioa·j_b.
    """
    outputs = energy.labels.shape[1]
    noisy = energy.noisy_kernel(factor)
    columns = feature_columns(rows, outputs)
    size, count, channels = columns.shape
    solved = noisy.solve(columns.reshape(size, count * channels))
    projected = (energy.flat_labels @ solved).reshape(count, channels)
    solved = solved.reshape(-1, outputs * count * channels)

    labels = left_out(energy, noisy.whitening, examples)
    residuals = labels.residual
    spreads = labels.covariance + residuals[:, :, None] * residuals[:, None, :]
    slopes = np.empty((len(residuals), count, count))
    for number, (residual, spread) in enumerate(zip(residuals, spreads, strict=True)):
        products = solved[number] if examples is None else examples.weights[number] @ solved
        products = products.reshape(outputs, count * channels)
        turned = (spread @ products).reshape(outputs, count, channels)
        drawn_to = (residual @ products).reshape(count, channels) @ projected.T
        by_output = products.reshape(outputs, count, channels)
        slope = drawn_to - 0.5 * (by_output @ turned.swapaxes(1, 2)).sum(axis=0)
        slopes[number] = 0.5 * (slope + slope.T)
    return labels.log_density, slopes
