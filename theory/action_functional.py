"""The action A(U_1 … U_a), whose minimum is the saddle point, and its derivatives.

`action` is the function of JAX arrays, for anything that is differentiated or compiled. The Newton
steps and the evidence of a small problem use `DenseAction`, which has the derivatives written out
in NumPy: a cold solve of the four-path reference problem takes 0.8 s with it and 10.4 s with
compiled derivatives of `action`, on two busy cores (5.6 s more of processor time, nearly all of it
compilation). The second derivative of the energy and the coordinates are the same code in both;
tests compare the rest with automatic differentiation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Num

from theory.architecture import Architecture
from theory.energy_derivatives import DenseEnergy
from theory.learning_problem import LearningProblem, ResidualLabels
from theory.order_parameters import (
    OrderParameters,
    cholesky_factors,
    from_log_cholesky,
    overlap_curvature,
    overlap_jacobian,
)


def entropy_terms(
    order_parameters: OrderParameters,
    heads: Sequence[int],
    widths: Sequence | Num[Array, " above"],
    variances: Sequence | Num[Array, " above"],
) -> Float[Array, ""]:
    """The part of the action that does not depend on the data.

    N_a (tr U_a/σ_a² − ln det U_a)
      + Σ_l N_l ( tr[U_{l+1}⁻¹ Tr_h U_l]/σ_l² − ln det U_l + H_l ln det U_{l+1} )

    heads [layer], widths N_1 … N_L, N_a and variances σ_1² … σ_L², σ_a² [layer + 1]; widths and
    variances may be traced, so one compilation serves every width. With U_l = F_l F_lᵀ the partial
    trace is Σ_h |F_{l+1}⁻¹ F_l[h]|², F_l[h] the rows of head h: nothing is inverted.
    Source: arXiv 2405.15926, action.
    """
    *factors, above = order_parameters.factors
    total = widths[-1] * (jnp.sum(above**2) / variances[-1] - log_determinant(above))
    for layer in reversed(range(len(heads))):
        factor, head_count, rows = factors[layer], heads[layer], above.shape[0]
        by_head = factor.reshape(head_count, rows, head_count * rows)
        whitened = solve_triangular(above, by_head.transpose(1, 0, 2).reshape(rows, -1), lower=True)
        total += widths[layer] * (
            jnp.sum(whitened**2) / variances[layer]
            - log_determinant(factor)
            + head_count * log_determinant(above)
        )
        above = factor
    return total


def log_determinant(factor: Float[Array, "n n"]) -> Float[Array, ""]:
    """ln det(F Fᵀ) of a Cholesky factor."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor)))


@runtime_checkable
class LayersEnergy(Protocol):
    """The energy of labels as a function of the order parameters of all layers."""

    residual: ResidualLabels | None

    def of_layers(self, factors: tuple[Float[Array, "_row _rank"], ...]) -> Float[Array, ""]:
        """E at factors F_l of U_1 … U_L, U_a, U_l = F_l F_lᵀ."""


def action(
    order_parameters: OrderParameters, architecture: Architecture, energy: LayersEnergy
) -> Float[Array, ""]:
    """A(U_a, U_L … U_1) = entropy terms + ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y.

    Not divided by a width. Source: arXiv 2405.15926, action (there written for one width).
    """
    entropy = entropy_terms(
        order_parameters,
        architecture.heads,
        architecture.widths,
        architecture.order_parameter_variances,
    )
    total = entropy + energy.of_layers(order_parameters.factors)
    if energy.residual is None:
        return total
    # A value of the energy leaves this constant out; here it belongs to what is known.
    known = energy.residual.temperature
    return total + energy.residual.count * jnp.log(known) + energy.residual.squares / known


@dataclass(frozen=True)
class Derivatives:
    """Value, gradient and Hessian of a function of U_1 … U_{L+1}, all entries free.

    gradients  ∂/∂U_l [p_l, p_l], one per layer
    hessians   (l, l') → ∂²/∂U_l ∂U_l' [p_l, p_l, p_l', p_l'], l ≤ l', zero where absent
    """

    value: float
    gradients: list[np.ndarray]
    hessians: dict[tuple[int, int], np.ndarray]


class DenseAction:
    """A / max width of one learning problem, at points in log-Cholesky coordinates.

    Without `LearningProblem.residual_energy`: large constants would cost digits on the way.
    """

    def __init__(self, problem: LearningProblem) -> None:
        self._architecture = problem.architecture
        self._scale = float(max(problem.architecture.widths))
        self._energy = DenseEnergy(problem)

    def value_and_gradient(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """A / max width and its gradient; infinite where K + 𝒯 or a U_l is not positive."""
        factors = self._factors(point)
        derivatives = self._derivatives(factors, second=False)
        if derivatives is None:
            return float("inf"), np.full_like(point, np.nan)
        slopes = [
            np.einsum("kab,ab->k", overlap_jacobian(factor), gradient)
            for factor, gradient in zip(factors, derivatives.gradients, strict=True)
        ]
        return derivatives.value / self._scale, np.concatenate(slopes) / self._scale

    def hessian(self, point: np.ndarray) -> np.ndarray:
        """Second derivatives of A / max width.

        Σ_ll' J_lᵀ (∂²A/∂U_l ∂U_l') J_l' + Σ_l (∂A/∂U_l) ∂²U_l with J_l = ∂U_l/∂x.
        """
        factors = self._factors(point)
        derivatives = self._derivatives(factors, second=True)
        if derivatives is None:
            return np.full((point.size, point.size), np.nan)
        jacobians = [overlap_jacobian(factor) for factor in factors]
        jacobians = [jacobian.reshape(len(jacobian), -1) for jacobian in jacobians]
        ends = np.cumsum([len(jacobian) for jacobian in jacobians])
        layers = [slice(end - len(j), end) for end, j in zip(ends, jacobians, strict=True)]
        hessian = np.zeros((point.size, point.size))
        for (left, right), second in derivatives.hessians.items():
            matrix = second.reshape(jacobians[left].shape[1], -1)
            block = jacobians[left] @ matrix @ jacobians[right].T
            hessian[layers[left], layers[right]] += block
            if left != right:
                hessian[layers[right], layers[left]] += block.T
        for layer, factor, gradient in zip(layers, factors, derivatives.gradients, strict=True):
            hessian[layer, layer] += overlap_curvature(factor, gradient)
        return hessian / self._scale

    def _factors(self, point: np.ndarray) -> list[np.ndarray]:
        with np.errstate(over="ignore"):  # an infinite factor is noticed in `_derivatives`
            return cholesky_factors(point, self._architecture.order_parameter_sizes)

    def _derivatives(self, factors: list[np.ndarray], second: bool) -> Derivatives | None:
        with np.errstate(all="ignore"):
            if not all(np.all(np.isfinite(factor)) for factor in factors):
                return None
            try:
                entropy = entropy_derivatives(
                    factors,
                    self._architecture.heads,
                    self._architecture.widths,
                    self._architecture.order_parameter_variances,
                )
                energy = self._energy.at(factors[0])
            except np.linalg.LinAlgError:  # a step too far
                return None
            gradients = [entropy.gradients[0] + energy.slope, *entropy.gradients[1:]]
            hessians = dict(entropy.hessians)
            if second:
                hessians[0, 0] = hessians[0, 0] + energy.curvature
            value = entropy.value + energy.value
        return Derivatives(value, gradients, hessians)


def entropy_derivatives(
    factors: list[Float[np.ndarray, "_size _size"]], heads, widths, variances
) -> Derivatives:
    """Value and derivatives of `entropy_terms`.

    With V = U_{l+1}, W = V⁻¹, S = Tr_h U_l, layer l adds
        N_l ( tr[W S]/σ_l² − ln det U_l + H_l ln det V ),
    and the readout N_a (tr U_a/σ_a² − ln det U_a).
    """
    inverses = [np.linalg.inv(factor) for factor in factors]
    inverses = [inverse.T @ inverse for inverse in inverses]
    logs = [2.0 * np.sum(np.log(np.diagonal(factor))) for factor in factors]
    overlaps = [factor @ factor.T for factor in factors]
    top = len(factors) - 1
    value = widths[top] * (np.trace(overlaps[top]) / variances[top] - logs[top])
    gradients = [-n * inverse for n, inverse in zip(widths, inverses, strict=True)]
    gradients[top] = gradients[top] + widths[top] / variances[top] * np.eye(len(factors[top]))
    hessians = {
        (layer, layer): n * both_sides(inverse, inverse)
        for layer, (n, inverse) in enumerate(zip(widths, inverses, strict=True))
    }
    for layer, count in enumerate(heads):
        width, ratio, inverse = widths[layer], widths[layer] / variances[layer], inverses[layer + 1]
        rows = len(inverse)
        by_head = overlaps[layer].reshape(count, rows, count, rows)
        reduced = np.einsum("hahb->ab", by_head)
        value += ratio * np.sum(inverse * reduced) + width * (count * logs[layer + 1] - logs[layer])
        gradients[layer] = gradients[layer] + ratio * np.kron(np.eye(count), inverse)
        carried = inverse @ reduced @ inverse  # W S W
        gradients[layer + 1] = gradients[layer + 1] + width * count * inverse - ratio * carried
        hessians[layer + 1, layer + 1] = (
            hessians[layer + 1, layer + 1]
            - width * count * both_sides(inverse, inverse)
            + ratio * (both_sides(inverse, carried) + both_sides(carried, inverse))
        )
        cross = -ratio * both_sides(inverse, inverse)
        wide = np.einsum("gh,abcd->gahbcd", np.eye(count), cross)
        hessians[layer, layer + 1] = wide.reshape(count * rows, count * rows, rows, rows)
    return Derivatives(float(value), gradients, hessians)


def both_sides(left: np.ndarray, right: np.ndarray) -> Float[np.ndarray, "a a a a"]:
    """The bilinear form (X, Y) ↦ tr[left X right Y] of symmetric X and Y, as [a, b, c, d]."""
    return np.einsum("da,bc->abcd", left, right)


class ActionByProducts:
    """A / max width for many coordinates or channels: exact Hessian products, by JAX.

    Without `LearningProblem.residual_energy`, as `DenseAction`.
    """

    def __init__(self, architecture: Architecture, energy: LayersEnergy) -> None:
        arch = architecture
        scale = float(max(arch.widths))
        self._shape = {"heads": arch.heads, "sizes": arch.order_parameter_sizes}
        # Data, widths and variances are arguments: one compilation serves every width.
        self._arrays = (
            jnp.asarray(arch.widths, float) / scale,
            jnp.asarray(arch.order_parameter_variances, float),
            energy,
            1.0 / scale,
        )

    def value_and_gradient(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """A / max width and its gradient."""
        value, gradient = _value_and_gradient(point, *self._arrays, **self._shape)
        return float(value), np.asarray(gradient)

    def hessian_products(self, point: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return the product of second derivatives of A / max width at a point with a vector.

        What does not depend on the vector, K + 𝒯 1 factorised among it, is computed once.
        """
        linear = _linearised_gradient(point, *self._arrays, **self._shape)
        return lambda vector: np.asarray(_applied(linear, vector))

    def hessian(self, point: np.ndarray) -> np.ndarray:
        """Second derivatives of A / max width, column by column."""
        product = self.hessian_products(point)
        return np.stack([product(column) for column in np.eye(point.size)])


def _scaled_action(point, widths, variances, energy, scale, *, heads, sizes):
    order_parameters = from_log_cholesky(point, sizes)
    entropy = entropy_terms(order_parameters, heads, widths, variances)
    return entropy + scale * energy.of_layers(order_parameters.factors)


_value_and_gradient = jax.jit(
    jax.value_and_grad(_scaled_action), static_argnames=("heads", "sizes")
)


@partial(jax.jit, static_argnames=("heads", "sizes"))
def _linearised_gradient(point, *arrays, heads, sizes):
    """The derivative of the gradient as a linear function, with what it has of the point."""
    gradient = jax.grad(partial(_scaled_action, heads=heads, sizes=sizes))
    return jax.linearize(lambda p: gradient(p, *arrays), point)[1]


# One compilation serves all points: linear functions differ in their arrays alone.
_applied = jax.jit(lambda linear, vector: linear(vector))
