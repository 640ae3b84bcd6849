"""The energy of the labels, ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y, with its derivatives by hand.

`energy_of_kernel` takes K itself, `energy_of_columns` an X with K = X Xᵀ that may have few columns.
Both have their first derivatives in every argument, made from one Cholesky factor; JAX
differentiates these further. No other module adds 𝒯 1 to K, factorises it or solves with it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg
from jax.scipy.linalg import solve_triangular
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, Shaped

from theory.overlaps import log_determinant

# A triangular solve for an inverse and a full product for Lᵀ L ignore the zeros: they cost three
# times what they must. Halving the matrix leaves n³/3 products, down to blocks of this size.
BLOCK = 128


def with_noise(kernel: Float[Array | np.ndarray, "n n"], temperature):
    """K + 𝒯 1, of a JAX or a NumPy array: the only place where the temperature meets K."""
    numbers = kernel.__array_namespace__()
    return kernel + temperature * numbers.eye(kernel.shape[0], dtype=kernel.dtype)


class TemperatureTooSmall(ValueError):
    """A temperature that is lost in the rounding of the kernel."""

    def __init__(self, temperature: float, lowest: float) -> None:
        self.temperature, self.lowest = temperature, lowest
        self.remedy = "scale inputs and labels to a size of about 1"
        if math.isfinite(lowest):
            self.remedy = (
                f"below {lowest:.2g} rounding decides whether K + temperature has a Cholesky "
                f"factor; raise it, or {self.remedy}"
            )
        else:
            self.remedy = f"squares of inputs or labels overflow; {self.remedy}"
        super().__init__(f"temperature = {temperature!r}: {self.remedy}")

    def __reduce__(self):
        return type(self), (self.temperature, self.lowest)


def lowest_temperature(trace: float) -> float:
    """ε tr K, ε the relative rounding of float64: a 𝒯 below it is lost in that of K.

    Cholesky's algorithm rounds a zero eigenvalue to this size.
    """
    return float(np.finfo(np.float64).eps) * trace


@register_dataclass
@dataclass(frozen=True)
class NoisyKernel:
    """K + 𝒯 1 through its Cholesky factor Λ.

    JAX or NumPy, by the array. An indefinite or non-finite kernel gives NaN in everything computed
    from it.
    """

    cholesky: Float[Array | np.ndarray, "n n"]

    @classmethod
    def factorise(
        cls,
        kernel: Float[Array | np.ndarray, "n n"],
        temperature: float | int | Shaped[Array | np.ndarray, ""] | np.floating,
    ) -> "NoisyKernel":
        """Factorise K + 𝒯 1."""
        noisy = with_noise(kernel, temperature)
        try:
            return cls(noisy.__array_namespace__().linalg.cholesky(noisy))
        except np.linalg.LinAlgError:  # of NumPy alone
            return cls(np.full_like(noisy, np.nan))

    @property
    def _linear_algebra(self):
        """Triangular solves of JAX or SciPy, neither of which looks for NaN."""
        if self.cholesky.__array_namespace__() is jnp:
            return jax.scipy.linalg
        return scipy.linalg

    @property
    def log_determinant(self) -> Float[Array, ""] | np.floating:
        """Logarithm of the determinant, ln det(K + 𝒯 1)."""
        return log_determinant(self.cholesky)

    @property
    def whitening(self) -> Float[Array | np.ndarray, "n n"]:
        """Λ⁻¹, with which a product takes two thirds of the time of a triangular solve."""
        if self.cholesky.__array_namespace__() is jnp:
            return inverse_of_lower(self.cholesky)
        (invert,) = scipy.linalg.get_lapack_funcs(("trtri",), (self.cholesky,))
        return invert(self.cholesky, lower=True)[0]

    def solve(
        self, right: Float[Array | np.ndarray, "n ..."]
    ) -> Float[Array | np.ndarray, "n ..."]:
        """(K + 𝒯 1)⁻¹ times `right`."""
        return self._linear_algebra.cho_solve((self.cholesky, True), right, check_finite=False)

    def whiten(
        self, right: Float[Array | np.ndarray, "n ..."]
    ) -> Float[Array | np.ndarray, "n ..."]:
        """Λ⁻¹ times `right`."""
        solve_triangular = self._linear_algebra.solve_triangular
        return solve_triangular(self.cholesky, right, lower=True, check_finite=False)


def given_slopes(value_and_slopes: Callable) -> Callable:
    """Make E a function whose derivatives in its three arguments are those returned with it."""

    @jax.custom_jvp
    @wraps(value_and_slopes)
    def energy(matrix, labels, temperature):
        return value_and_slopes(matrix, labels, temperature)[0]

    @energy.defjvp
    def along(primals, tangents):
        value, by_matrix, by_label, by_temperature = value_and_slopes(*primals)
        first = jnp.vdot(by_matrix, tangents[0]) + jnp.vdot(by_label, tangents[1])
        return value, first + by_temperature * tangents[2]

    return energy


@given_slopes
def energy_of_kernel(
    kernel: Float[Array, "row row"],
    labels: Float[Array, "row set"],
    temperature: Float[Array, ""] | float,
):
    """Energy Σ_s [ ln det(K + 𝒯 1) + y_sᵀ (K + 𝒯 1)⁻¹ y_s ] of independent sets of labels.

    ∂E/∂K = n_s (K + 𝒯)⁻¹ − α αᵀ,   ∂E/∂𝒯 = tr ∂E/∂K,   ∂E/∂y_s = 2 α_s,   α_s = (K + 𝒯)⁻¹ y_s
    """
    noisy, sets = NoisyKernel.factorise(kernel, temperature), labels.shape[1]
    whitening = noisy.whitening
    whitened = whitening @ labels
    alpha = whitening.T @ whitened
    residual = sets * gram_of_lower(whitening) - alpha @ alpha.T
    value = sets * noisy.log_determinant + jnp.vdot(whitened, whitened)
    return value, residual, 2.0 * alpha, jnp.trace(residual)


@given_slopes
def energy_of_columns(
    columns: Float[Array, "row feature"],
    labels: Float[Array, "row set"],
    temperature: Float[Array, ""] | float,
):
    """Energy Σ_s [ ln det(X Xᵀ + 𝒯 1) + y_sᵀ (X Xᵀ + 𝒯 1)⁻¹ y_s ] of independent sets of labels.

    ∂E/∂X = 2 ∂E/∂K X, and the others as there, from one Cholesky factor, of X Xᵀ or of Xᵀ X,
    whichever is smaller. With few features Xᵀ X + 𝒯 is factorised:
    (X Xᵀ + 𝒯)⁻¹ = (1 − X (Xᵀ X + 𝒯)⁻¹ Xᵀ)/𝒯, and yᵀ α = 𝒯 |α|² + |Xᵀ α|². At small 𝒯 the
    difference loses most digits of α: a step of iterative refinement restores them.
    """
    (rows, features), sets = columns.shape, labels.shape[1]
    few = features < rows
    noisy = NoisyKernel.factorise(columns.T @ columns if few else columns @ columns.T, temperature)
    whitening = noisy.whitening
    inverse = gram_of_lower(whitening)
    if few:

        def solve(right):
            fitted = columns @ (whitening.T @ (whitening @ (columns.T @ right)))
            return (right - fitted) / temperature

        carried = columns @ inverse  # (X Xᵀ + 𝒯)⁻¹ X
        alpha = solve(labels)
        alpha += solve(labels - columns @ (columns.T @ alpha) - temperature * alpha)
        missing = rows - features
        logs = noisy.log_determinant + missing * jnp.log(temperature)
        trace = jnp.trace(inverse) + missing / temperature
    else:
        carried, alpha = inverse @ columns, inverse @ labels
        logs, trace = noisy.log_determinant, jnp.trace(inverse)
    learned, squares = columns.T @ alpha, jnp.vdot(alpha, alpha)
    quadratic = (
        temperature * squares + jnp.vdot(learned, learned) if few else jnp.vdot(labels, alpha)
    )
    by_column = 2.0 * (sets * carried - alpha @ learned.T)
    return sets * logs + quadratic, by_column, 2.0 * alpha, sets * trace - squares


def inverse_of_lower(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Λ⁻¹ of a lower triangular Λ in two by two blocks, halved recursively.

    All diagonal blocks are inverted by one batched call.
    """
    size, count = len(lower), 1
    while size > BLOCK * count:
        count *= 2
    block = -(-size // count)
    # Ones on the diagonal fill it up and leave this part of the inverse unchanged.
    filled = jnp.pad(lower, (0, count * block - size))
    filled = filled + jnp.diag(jnp.where(jnp.arange(count * block) < size, 0.0, 1.0))
    filled = filled.astype(lower.dtype)
    places = [slice(i * block, (i + 1) * block) for i in range(count)]
    diagonal = jnp.stack([filled[place, place] for place in places])
    identity = jnp.eye(block, dtype=lower.dtype)
    inverses = list(jax.vmap(lambda each: solve_triangular(each, identity, lower=True))(diagonal))
    while len(inverses) > 1:
        block = len(inverses[0])
        inverses = [
            _join(
                inverses[i],
                filled[(i + 1) * block : (i + 2) * block, i * block : (i + 1) * block],
                inverses[i + 1],
            )
            for i in range(0, len(inverses), 2)
        ]
    return inverses[0][:size, :size]


def _join(first_inverse, below, second_inverse):
    low = -second_inverse @ (below @ first_inverse)
    return jnp.block([[first_inverse, jnp.zeros_like(below.T)], [low, second_inverse]])


def gram_of_lower(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Λᵀ Λ of a lower triangular Λ in two by two blocks."""
    size = len(lower)
    if size <= BLOCK:
        return lower.T @ lower
    half = size // 2
    first, below, second = lower[:half, :half], lower[half:, :half], lower[half:, half:]
    across = below.T @ second
    return jnp.block(
        [[gram_of_lower(first) + below.T @ below, across], [across.T, gram_of_lower(second)]]
    )


def regress(
    whitening: Float[Array | np.ndarray, "row row"],
    cross: Float[Array | np.ndarray, "test row"],
    prior: Float[Array | np.ndarray, " test"],
    labels: Float[Array | np.ndarray, "row set"],
) -> tuple[Float[Array | np.ndarray, "test set"], Float[Array | np.ndarray, " test"]]:
    """Mean and variance of f on test examples, from Λ⁻¹ with Λ Λᵀ = K + 𝒯 1.

    m(x) = k(x)ᵀ (K + 𝒯)⁻¹ y,   v(x) = K(x, x) − k(x)ᵀ (K + 𝒯)⁻¹ k(x), where k(x) is `cross` and
    K(x, x) is `prior`. A variance that rounding leaves below 0 is 0.
    """
    whitened = cross @ whitening.T
    variance = prior - (whitened**2).sum(axis=1)
    numbers = variance.__array_namespace__()
    return whitened @ (whitening @ labels), numbers.maximum(variance, 0.0)
