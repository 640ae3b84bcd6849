"""The action A(U_1 … U_a), whose minimum is the saddle point, and its derivatives.

`action` is the function of JAX arrays, for anything that is differentiated or compiled. The Newton
steps and the evidence of a small problem use `DenseAction`, which has the derivatives written out
in NumPy: a cold solve of the four-path reference problem takes 0.8 s with it and 10.4 s with
compiled derivatives of `action`, on two busy cores (5.6 s more of processor time, nearly all of it
compilation). The entropy terms, the coordinates and the second derivative of the energy are the
same code in both; tests compare the rest with automatic differentiation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float, Num

from theory.architecture import Architecture
from theory.energy_derivatives import DenseEnergy, EnergyAt
from theory.learning_problem import LearningProblem
from theory.order_parameters import (
    OrderParameters,
    cholesky_factors,
    from_log_cholesky,
    log_determinant,
    overlap_curvature,
    overlap_jacobian,
)


def entropy_terms(
    order_parameters: OrderParameters,
    heads: Sequence[int],
    widths: Sequence | Num[Array, " above"],
    variances: Sequence | Num[Array, " above"],
) -> Float[Array, ""] | float:
    """The part of the action that does not depend on the data.

    N_a (tr U_a/σ_a² − ln det U_a)
      + Σ_l N_l ( tr[U_{l+1}⁻¹ Tr_h U_l]/σ_l² − ln det U_l + H_l ln det U_{l+1} )

    heads [layer], widths N_1 … N_L, N_a and variances σ_1² … σ_L², σ_a² [layer + 1]; widths and
    variances may be traced, so one compilation serves every width. With U_l = F_l F_lᵀ the partial
    trace is Σ_h |F_{l+1}⁻¹ F_l[h]|², F_l[h] the rows of head h: nothing is inverted. Of factors in
    JAX or in NumPy.
    Source: arXiv 2405.15926, action.
    """
    *factors, above = order_parameters.factors
    numbers = above.__array_namespace__()
    linalg = scipy.linalg if numbers is np else jax.scipy.linalg
    total = widths[-1] * (numbers.sum(above**2) / variances[-1] - log_determinant(above))
    for layer in reversed(range(len(heads))):
        factor, count, rows = factors[layer], heads[layer], above.shape[0]
        by_head = factor.reshape(count, rows, count * rows).transpose(1, 0, 2)
        whitened = linalg.solve_triangular(above, by_head.reshape(rows, -1), lower=True)
        total += widths[layer] * (
            numbers.sum(whitened**2) / variances[layer]
            - log_determinant(factor)
            + count * log_determinant(above)
        )
        above = factor
    return total


@runtime_checkable
class LayersEnergy(Protocol):
    """The energy of labels as a function of the order parameters of all layers."""

    def of_layers(self, factors: tuple[Float[Array, "_row _rank"], ...]) -> Float[Array, ""]:
        """E at factors F_l of U_1 … U_L, U_a, U_l = F_l F_lᵀ."""


def action(
    order_parameters: OrderParameters, architecture: Architecture, energy: LayersEnergy
) -> Float[Array, ""]:
    """A(U_a, U_L … U_1) = entropy terms + ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y.

    Not divided by a width, and without `LearningProblem.residual_energy`. Source: arXiv 2405.15926,
    action (there written for one width).
    """
    entropy = entropy_terms(
        order_parameters,
        architecture.heads,
        architecture.widths,
        architecture.order_parameter_variances,
    )
    return entropy + energy.of_layers(order_parameters.factors)


class DenseAction:
    """A / max width of one learning problem, at points in log-Cholesky coordinates, in NumPy.

    Without `LearningProblem.residual_energy`: large constants would cost digits on the way.
    """

    def __init__(self, problem: LearningProblem) -> None:
        self._architecture = problem.architecture
        self._scale = float(max(problem.architecture.widths))
        self._energy = DenseEnergy(problem)

    @np.errstate(all="ignore")
    def value_and_gradient(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """A / max width and its gradient; infinite where K + 𝒯 or a U_l is not positive."""
        try:
            factors, entropy, energy = self._expand(point)
            slopes = entropy.slopes
        except np.linalg.LinAlgError:  # a step too far
            return float("inf"), np.full_like(point, np.nan)
        slopes[0] += energy.slope
        gradient = [
            np.einsum("kab,ab->k", overlap_jacobian(factor), slope)
            for factor, slope in zip(factors, slopes, strict=True)
        ]
        value = float(entropy.value + energy.value)
        return value / self._scale, np.concatenate(gradient) / self._scale

    @np.errstate(all="ignore")
    def hessian(self, point: np.ndarray) -> np.ndarray:
        """Second derivatives of A / max width; NaN where K + 𝒯 or a U_l is not positive.

        Σ_ll' J_lᵀ (∂²A/∂U_l ∂U_l') J_l' + Σ_l (∂A/∂U_l) ∂²U_l with J_l = ∂U_l/∂x.
        """
        try:
            factors, entropy, energy = self._expand(point)
            slopes, curvatures = entropy.slopes, entropy.curvatures
        except np.linalg.LinAlgError:
            return np.full((point.size, point.size), np.nan)
        slopes[0] += energy.slope
        curvatures[0, 0] += energy.curvature
        jacobians = [overlap_jacobian(factor) for factor in factors]
        jacobians = [jacobian.reshape(len(jacobian), -1) for jacobian in jacobians]
        blocks = [[np.zeros((len(row), len(other))) for other in jacobians] for row in jacobians]
        for (lower, upper), curvature in curvatures.items():
            matrix = curvature.reshape(jacobians[lower].shape[1], -1)
            block = jacobians[lower] @ matrix @ jacobians[upper].T
            blocks[lower][upper], blocks[upper][lower] = block, block.T
        for layer, (factor, slope) in enumerate(zip(factors, slopes, strict=True)):
            blocks[layer][layer] = blocks[layer][layer] + overlap_curvature(factor, slope)
        return np.block(blocks) / self._scale

    def _expand(self, point: np.ndarray) -> tuple[list[np.ndarray], "EntropyAt", EnergyAt]:
        """Factors of all U_l, and the two parts of the action around them.

        Raises numpy.linalg.LinAlgError where K + 𝒯 or a U_l is not finite or not positive.
        """
        architecture = self._architecture
        factors = cholesky_factors(point, architecture.order_parameter_sizes)
        if not all(np.all(np.isfinite(factor)) for factor in factors):
            raise np.linalg.LinAlgError("an order parameter is not finite")
        variances = architecture.order_parameter_variances
        entropy = EntropyAt(factors, architecture.heads, architecture.widths, variances)
        return factors, entropy, self._energy.at(factors[0])


@dataclass(frozen=True)
class EntropyAt:
    """`entropy_terms` and their derivatives at U_l = F_l F_lᵀ, all entries free, in NumPy.

    With V = U_{l+1}, W = V⁻¹, S = Tr_h U_l layer l adds

        N_l ( tr[W S]/σ_l² − ln det U_l + H_l ln det V ),

    and so does the readout, with one head and V = 1. What needs an inverse raises
    numpy.linalg.LinAlgError where a factor has none.
    """

    factors: Sequence[Float[np.ndarray, "_size _size"]]
    heads: Sequence[int]
    widths: Sequence[int]
    variances: Sequence[float]

    @property
    def value(self) -> float:
        """All terms together."""
        order_parameters = OrderParameters(tuple(self.factors))
        return float(entropy_terms(order_parameters, self.heads, self.widths, self.variances))

    @cached_property
    def _inverses(self) -> list[np.ndarray]:
        """U_1⁻¹ … U_{L+1}⁻¹, and 1 above them."""
        inverses = [np.linalg.inv(factor) for factor in self.factors]
        return [*(inverse.T @ inverse for inverse in inverses), np.eye(len(inverses[-1]))]

    @cached_property
    def _layers(self) -> list[tuple]:
        """H_l, N_l, N_l/σ_l², W and W S W of every layer, the readout last."""
        layers = []
        for layer, count in enumerate((*self.heads, 1)):
            width, inverse = self.widths[layer], self._inverses[layer + 1]
            by_head = self.factors[layer].reshape(count, len(inverse), -1)
            reduced = np.sum(by_head @ by_head.swapaxes(1, 2), axis=0)
            carried = inverse @ reduced @ inverse
            layers.append((count, width, width / self.variances[layer], inverse, carried))
        return layers

    @property
    def slopes(self) -> list[Float[np.ndarray, "_size _size"]]:
        """∂/∂U_l, one per layer."""
        layers = zip(self.widths, self._inverses, strict=False)
        slopes = [-width * inverse for width, inverse in layers]
        slopes.append(np.zeros_like(slopes[-1]))  # of V = 1 above the readout
        for layer, (count, width, ratio, inverse, carried) in enumerate(self._layers):
            slopes[layer] += ratio * np.kron(np.eye(count), inverse)
            slopes[layer + 1] += width * count * inverse - ratio * carried
        return slopes[:-1]

    @property
    def curvatures(self) -> dict[tuple[int, int], Float[np.ndarray, "_size _size _other _other"]]:
        """(l, l') → ∂²/∂U_l ∂U_l', l ≤ l' counted from 0, where it is not zero."""
        layers = enumerate(zip(self.widths, self._inverses, strict=False))
        curvatures = {
            (layer, layer): width * both_sides(inverse, inverse)
            for layer, (width, inverse) in layers
        }
        for layer, (count, width, ratio, inverse, carried) in enumerate(self._layers[:-1]):
            square, above, size = both_sides(inverse, inverse), layer + 1, count * len(inverse)
            curvatures[above, above] -= width * count * square
            curvatures[above, above] += ratio * both_sides(inverse, carried)
            curvatures[above, above] += ratio * both_sides(carried, inverse)
            across = np.einsum("gh,abcd->gahbcd", np.eye(count), -ratio * square)
            curvatures[layer, above] = across.reshape(size, size, *inverse.shape)
        return curvatures


def both_sides(left: np.ndarray, right: np.ndarray) -> Float[np.ndarray, "a a a a"]:
    """The bilinear form (X, Y) ↦ tr[left X right Y] of symmetric X and Y, as [a, b, c, d]."""
    return np.einsum("da,bc->abcd", left, right)


class ActionByProducts:
    """A / max width for many coordinates or channels: exact Hessian products, by JAX.

    Without `LearningProblem.residual_energy`, as `DenseAction`.
    """

    def __init__(self, architecture: Architecture, energy: LayersEnergy) -> None:
        scale = float(max(architecture.widths))
        self._shape = {"heads": architecture.heads, "sizes": architecture.order_parameter_sizes}
        # Data, widths and variances are arguments: one compilation serves every width.
        self._arrays = (
            jnp.asarray(architecture.widths, float) / scale,
            jnp.asarray(architecture.order_parameter_variances, float),
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
