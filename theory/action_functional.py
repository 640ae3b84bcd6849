"""The action A(U_1 … U_a), whose minimum is the saddle point, and its derivatives.

    A = E(U_1) + N_a (tr U_a/σ_a² − ln det U_a)
          + Σ_l N_l ( tr[U_{l+1}⁻¹ Tr_h U_l]/σ_l² − ln det U_l + H_l ln det U_{l+1} )

Source: arXiv 2405.15926, there written for one width. With U_l = F_l F_lᵀ relative to the layer
above, F_l = (1_{H_l} ⊗ F_{l+1}) B̂_l with B̂_l lower triangular, a layer is a sum over entries,

    N_l ( |B̂_l|²/σ_l² − 2 Σ_i ln (B̂_l)_ii ),

and nothing is inverted. Coordinates θ are those of B̂_l/σ_l: logarithms of its diagonal, and its
entries below. Any point is a set of order parameters, and θ = 0 is infinite width.

Newton steps and the evidence of a small problem use `DenseAction`, whose derivatives are written
out in NumPy: nothing has to be compiled, which takes longer than all steps. `ActionByProducts` has
them from JAX, as products with vectors.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.architecture import Architecture, BartlettShape
from theory.energy_derivatives import LabelsAndPrior
from theory.overlaps import ChainCoordinates, ChainLink, log_determinant, places
from theory.wishart_chain import chain_factors


@dataclass(frozen=True)
class RelativeCoordinates(ChainCoordinates):
    """Flat coordinates θ of all B̂_l/σ_l, by layer: log diagonal, then the entries below it."""

    @cached_property
    def links(self) -> tuple[ChainLink, ...]:
        """Links B̂_l, all of them square."""
        architecture = self.architecture
        parts = zip(
            architecture.order_parameter_sizes, architecture.order_parameter_variances, strict=True
        )
        return tuple(
            ChainLink(
                BartlettShape(size, size),
                np.full(size, variance**0.5),
                np.ones(size),
                variance**0.5,
            )
            for size, variance in parts
        )

    def prior_derivatives(
        self, point: Float[np.ndarray, " coordinate"]
    ) -> Float[np.ndarray, "order coordinate"]:
        """Entropy over max N, N_l (b²/σ_l² − 2 ln b_ii) of entries b of B̂_l, two derivatives."""
        widths, derivatives = self.architecture.widths, np.empty((3, self.size))
        variances = self.architecture.order_parameter_variances
        for layer, link, width, variance in zip(
            self.layers, self.links, widths, variances, strict=True
        ):
            share, rank = width / max(widths), link.shape.rank
            logs, below = np.split(point[layer], [rank])
            squares = np.exp(2.0 * logs)
            diagonal = squares - 2.0 * logs - math.log(variance), 2.0 * squares - 2.0, 4.0 * squares
            others = below**2, 2.0 * below, np.full_like(below, 2.0)
            for order in range(3):
                both = np.concatenate([diagonal[order], others[order]])
                derivatives[order, layer] = share * both
        return derivatives

    def scales_at(
        self, point: Float[np.ndarray, " coordinate"]
    ) -> Float[np.ndarray, " coordinate"]:
        """Natural unit of a coordinate: 1 of a logarithm, |row of B̂_l/σ_l| of entries below it."""
        pieces = []
        for layer, link in zip(self.layers, self.links, strict=True):
            (matrix,) = link.series(point[layer], point[None, layer], 0)
            rows = places(*matrix[0].shape)[0][link.shape.rank :]
            lengths = np.linalg.norm(matrix[0], axis=1) / link.scale
            pieces += [np.ones(link.shape.rank), lengths[rows]]
        return np.concatenate(pieces)

    def log_invariant_volume(self, point: Float[np.ndarray, " coordinate"]) -> float:
        """ln of the measure Π_l (det U_l)^{−(p_l + 1)/2} dU_l in these coordinates.

        Σ_l [ p_l ln 2 − Σ_i i ln((B̂_l)_ii/σ_l) ],   i counted from 0
        """
        volume = 0.0
        for layer, link in zip(self.layers, self.links, strict=True):
            size = link.shape.rank
            volume += size * math.log(2.0) - np.arange(size) @ point[layer][:size]
        return float(volume)


@dataclass(frozen=True)
class DenseAction(LabelsAndPrior):
    """A / max width of one learning problem, with its Hessian, in NumPy.

    Without `LearningProblem.residual_energy`: large constants would cost digits on the way.
    """

    @cached_property
    def coordinates(self) -> RelativeCoordinates:
        """The coordinates θ, and the entropy."""
        return RelativeCoordinates(self.problem.architecture)

    @property
    def weight(self) -> float:
        """Of E."""
        return 1.0 / max(self.problem.architecture.widths)


@runtime_checkable
class LayersEnergy(Protocol):
    """The energy of labels as a function of the order parameters of all layers."""

    def of_layers(self, factors: tuple[Float[Array, "_row _rank"], ...]) -> Float[Array, ""]:
        """E at factors F_l of U_1 … U_L, U_a, U_l = F_l F_lᵀ."""


class ActionByProducts:
    """A / max width for many coordinates or channels: exact Hessian products, by JAX.

    Without `LearningProblem.residual_energy`, as `DenseAction`.
    """

    def __init__(self, architecture: Architecture, energy: LayersEnergy) -> None:
        scale = float(max(architecture.widths))
        self.coordinates = RelativeCoordinates(architecture)
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

        Parts that do not depend on the vector, such as the factor of K + 𝒯 1, are computed once.
        """
        linear = _linearised_gradient(point, *self._arrays, **self._shape)
        return lambda vector: np.asarray(_applied(linear, vector))

    def hessian(self, point: np.ndarray) -> np.ndarray:
        """Second derivatives of A / max width, column by column."""
        product = self.hessian_products(point)
        return np.stack([product(column) for column in np.eye(point.size)])


def _scaled_action(point, widths, variances, energy, scale, *, heads, sizes):
    matrices, entropy, start = [], 0.0, 0
    for layer, size in enumerate(sizes):
        end = start + size * (size + 1) // 2
        diagonal, below = point[start : start + size], point[start + size : end]
        # Set at fixed places, which differentiates into slices, not into gathers.
        entries = jnp.concatenate([jnp.exp(diagonal), below])
        matrices.append(jnp.zeros((size, size), entries.dtype).at[places(size)].set(entries))
        of_layer = jnp.vdot(entries, entries) - log_determinant(matrices[-1])
        entropy += widths[layer] * (of_layer - size * jnp.log(variances[layer]))
        start = end
    factors = chain_factors(matrices, heads, tuple(jnp.sqrt(variances)))
    return entropy + scale * energy.of_layers(factors)


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
