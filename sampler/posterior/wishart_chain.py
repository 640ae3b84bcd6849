"""The prior of the order parameters: a chain of Wishart matrices, written in Bartlett factors.

    U_a           ~ Wishart_O(N_a, σ_a² 1/N_a)
    U_l | U_{l+1} ~ Wishart_{p_l}(N_l, σ_l² (1_{H_l} ⊗ U_{l+1})/N_l),   l = L … 1

Each weight array that is integrated out adds one link; every step is Gaussian, nothing is
approximated. In Bartlett form, with r_l = min(N_l, H_l r_{l+1}) and U_l = F_l F_lᵀ,

    F_{L+1} = σ_a B_{L+1}/√N_a,    F_l = σ_l (1_{H_l} ⊗ F_{l+1}) B_l/√N_l,

B_l lower trapezoidal [H_l r_{l+1}, r_l]: diagonal c_i ~ χ_{N_l − i}, entries below it N(0, 1). A
layer narrower than its order parameter (singular Wishart) needs no other formula.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from theory.architecture import Architecture


@dataclass(frozen=True)
class BartlettShape:
    """Shape of one Bartlett factor: `rows` × `rank`, from a layer of `width` units."""

    rows: int
    rank: int
    width: int

    @property
    def degrees(self) -> np.ndarray:
        """Degrees of freedom N_l − i of the χ variables on the diagonal."""
        return self.width - np.arange(self.rank)

    @property
    def below_diagonal(self) -> int:
        """Number of standard normal entries."""
        return self.rows * self.rank - self.rank * (self.rank + 1) // 2

    @property
    def dimension(self) -> int:
        """Free numbers: rows · rank − rank (rank − 1)/2."""
        return self.rank + self.below_diagonal


def bartlett_shapes(architecture: Architecture) -> tuple[BartlettShape, ...]:
    """Shapes of B_1 … B_{L+1}."""
    width = architecture.widths[-1]
    shape = BartlettShape(architecture.outputs, min(width, architecture.outputs), width)
    shapes = [shape]
    for layer in reversed(range(architecture.layers)):
        rows, width = architecture.heads[layer] * shape.rank, architecture.widths[layer]
        shape = BartlettShape(rows, min(width, rows), width)
        shapes.append(shape)
    return tuple(reversed(shapes))


class StandardisedLogChi(dist.Distribution):
    """t with ln c = ½ ln ν + t/√(2ν) and c ~ χ_ν: of order one at every ν.

    ln p(t) = ν ln c − c²/2 + const = −(ν/2)(e^u − 1 − u) + const, u = t √(2/ν); the second form
    does not cancel at large ν.
    """

    arg_constraints: ClassVar = {"degrees": dist.constraints.positive}
    support = dist.constraints.real
    reparametrized_params: ClassVar = ["degrees"]

    def __init__(self, degrees, *, validate_args=None) -> None:
        self.degrees = jnp.asarray(degrees)
        super().__init__(jnp.shape(self.degrees), validate_args=validate_args)

    def sample(self, key, sample_shape=()):
        shape = sample_shape + self.batch_shape
        gamma = dist.Gamma(self.degrees / 2.0, 0.5).expand(shape).sample(key)
        return jnp.sqrt(self.degrees / 2.0) * jnp.log(gamma / self.degrees)

    def log_prob(self, value):
        half = self.degrees / 2.0
        u = value / jnp.sqrt(half)
        constant = half * jnp.log(half) - half - gammaln(half) - 0.5 * jnp.log(half)
        return constant - half * (jnp.expm1(u) - u)


def bartlett_diagonal(
    standardised: Float[Array, " rank"], shape: BartlettShape
) -> Float[Array, " rank"]:
    """c_i = √ν exp(t_i/√(2ν)), ν = N_l − i."""
    degrees = jnp.asarray(shape.degrees, standardised.dtype)
    return jnp.sqrt(degrees) * jnp.exp(standardised / jnp.sqrt(2.0 * degrees))


def bartlett_matrix(
    standardised: Float[Array, " rank"], lower: Float[Array, " entry"], shape: BartlettShape
) -> Float[Array, "row rank"]:
    """The lower trapezoidal B_l from its standardised diagonal and its entries below."""
    rows, columns = np.tril_indices(shape.rows, -1, shape.rank)
    diagonal = np.arange(shape.rank)
    rows, columns = np.concatenate([diagonal, rows]), np.concatenate([diagonal, columns])
    values = jnp.concatenate([bartlett_diagonal(standardised, shape), lower])
    empty = jnp.zeros((shape.rows, shape.rank), values.dtype)
    return empty.at[rows, columns].set(values, unique_indices=True)


def chain_factors(
    matrices: tuple[Float[Array, "_rows _rank"], ...], architecture: Architecture
) -> tuple[Float[Array, "_size _rank"], ...]:
    """F_1 … F_{L+1} from the Bartlett matrices B_1 … B_{L+1}; F_l is [p_l, r_l]."""
    deviations = [variance**0.5 for variance in architecture.order_parameter_variances]
    *layers, readout = matrices
    factor = readout * (deviations[-1] / architecture.widths[-1] ** 0.5)
    factors = [factor]
    for layer in reversed(range(architecture.layers)):
        heads, bartlett = architecture.heads[layer], layers[layer]
        by_head = bartlett.reshape(heads, factor.shape[1], bartlett.shape[1])
        scale = deviations[layer] / architecture.widths[layer] ** 0.5
        factor = scale * jnp.einsum("pr,hrk->hpk", factor, by_head)
        factor = factor.reshape(-1, bartlett.shape[1])
        factors.append(factor)
    return tuple(reversed(factors))
