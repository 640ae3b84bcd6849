"""The kernel of noisy labels, K + 𝒯 1: one Cholesky factor serves every use of it."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, Shaped


def with_noise(kernel: Float[Array | np.ndarray, "n n"], temperature):
    """K + 𝒯 1, of a JAX or a NumPy array: the only place where the temperature meets K."""
    numbers = np if isinstance(kernel, np.ndarray) else jnp
    return kernel + temperature * numbers.eye(kernel.shape[0], dtype=kernel.dtype)


@partial(jax.tree_util.register_dataclass, data_fields=["cholesky"], meta_fields=[])
@dataclass(frozen=True)
class NoisyKernel:
    """K + 𝒯 1 through its Cholesky factor.

    An indefinite or non-finite kernel gives NaN, which every caller checks in its result.
    """

    cholesky: Float[Array, "n n"]

    @classmethod
    def factorise(
        cls, kernel: Float[Array, "n n"], temperature: float | int | Shaped[Array, ""]
    ) -> "NoisyKernel":
        """Cholesky factor of K + 𝒯 1."""
        return cls(jnp.linalg.cholesky(with_noise(kernel, temperature)))

    @property
    def log_determinant(self) -> Float[Array, ""]:
        """Logarithm of the determinant, ln det(K + 𝒯 1)."""
        return 2.0 * jnp.sum(jnp.log(jnp.diagonal(self.cholesky)))

    def solve(self, right: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """(K + 𝒯 1)⁻¹ times `right`."""
        return cho_solve((self.cholesky, True), right)

    def whiten(self, right: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """L⁻¹ times `right`, where L Lᵀ = K + 𝒯 1."""
        return solve_triangular(self.cholesky, right, lower=True)

    def quadratic_form(self, vector: Float[Array, " n"]) -> Float[Array, ""]:
        """Quadratic form yᵀ (K + 𝒯 1)⁻¹ y of one vector y."""
        whitened = self.whiten(vector)
        return whitened @ whitened
