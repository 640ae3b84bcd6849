"""The energy of the labels, its derivatives, and the learning problem that it belongs to."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from theory.architecture import KNOWN, Architecture, HyperPriors
from theory.path_kernels import (
    NoisyKernel,
    PathKernels,
    SampledFeatures,
    path_features,
    path_kernels,
    renormalised_features,
)

# Inverting a triangular matrix by a solve, and Lᵀ L by a full product, cost three times what they
# must: both ignore the zeros. Halving the matrix leaves n³/3 products, nearly all of them in
# matrix products.
# Blocks up to this size are left to LAPACK and to one plain product.
BLOCK = 128


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["count", "squares", "temperature"],
    meta_fields=[],
)
@dataclass(frozen=True)
class ResidualLabels:
    """Part of the labels that no network can fit, y_⊥, where rows stand for the examples.

    Their likelihood depends on no order parameter. So that large constants never meet the rest,
    only its change with a sampled temperature is part of the energy.

    count        (P − r) O, their number (see `theory.compression`)
    squares      y_⊥², their sum of squares
    temperature  𝒯_0, the known one
    """

    count: Float[Array, ""] | float
    squares: Float[Array, ""] | float
    temperature: Float[Array, ""] | float

    def __call__(self, temperature: Float[Array, ""] | float) -> Float[Array, ""]:
        """n ln(𝒯/𝒯_0) + y_⊥² (1/𝒯 − 1/𝒯_0)."""
        inverse = 1.0 / temperature - 1.0 / self.temperature
        return self.count * jnp.log(temperature / self.temperature) + self.squares * inverse

    def slope(self, temperature: Float[Array, ""] | float) -> Float[Array, ""] | float:
        return (self.count - self.squares / temperature) / temperature

    @property
    def constant(self) -> float:
        """Energy n ln 𝒯_0 + y_⊥²/𝒯_0 at the known temperature, which a call leaves out."""
        return self.count * math.log(self.temperature) + self.squares / self.temperature

    @property
    def log_likelihood(self) -> float:
        """Log likelihood ln N(y_⊥; 0, 𝒯_0) = −½ (n ln 2π𝒯_0 + y_⊥²/𝒯_0)."""
        return -0.5 * (self.count * math.log(2.0 * math.pi) + self.constant)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["kernels", "labels", "temperature", "residual"],
    meta_fields=[],
)
@dataclass(frozen=True)
class LabelEnergy:
    """E(U_1) = ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y, so that ln p(y | U_1) = −E/2 − (P O/2) ln 2π.

    kernels      path kernels of the training examples with themselves
    labels       y [example, output]
    temperature  𝒯, the likelihood variance
    residual     labels whose energy changes with the temperature alone, if there are any
    """

    kernels: PathKernels
    labels: Float[Array, "example output"]
    temperature: Float[Array, ""] | float
    residual: ResidualLabels | None = None

    @property
    def flat_labels(self) -> Float[Array, " example_output"]:
        """Labels y as a vector, output fastest."""
        return self.labels.reshape(-1)

    def of_layers(self, factors: tuple[Float[Array, "_row _rank"], ...]) -> Float[Array, ""]:
        """E at factors of all order parameters, of which it depends on that of U_1."""
        return self(factors[0])

    def noisy_kernel(self, factor: Float[Array, "_row _rank"]) -> NoisyKernel:
        """K(U_1) + 𝒯 1 for U_1 = F Fᵀ."""
        return NoisyKernel.factorise(self.kernels.kernel(factor), self.temperature)

    def __call__(self, factor: Float[Array, "_row _rank"]) -> Float[Array, ""]:
        """E(F Fᵀ); its derivative is the hand-written one of `energy_and_gradients`.

        Derivatives are with respect to F, 𝒯 and y. Path kernels count as constants, unless they
        are `SampledFeatures`.
        """
        if not isinstance(self.kernels, SampledFeatures):
            return _energy(self, factor)
        columns = renormalised_features(self.kernels.left, factor)
        value = energy_of_columns(columns, self.flat_labels[:, None], self.temperature)
        return value if self.residual is None else value + self.residual(self.temperature)


@jax.jit
def energy_value(energy: LabelEnergy, factor: Float[Array, "row rank"]) -> Float[Array, ""]:
    """E(F Fᵀ), compiled."""
    return energy(factor)


@jax.custom_jvp
def _energy(energy: LabelEnergy, factor):
    noisy = energy.noisy_kernel(factor)
    value = noisy.log_determinant + noisy.quadratic_form(energy.flat_labels)
    return value if energy.residual is None else value + energy.residual(energy.temperature)


@_energy.defjvp
def _energy_jvp(primals, tangents):
    # Path kernels are never differentiated.
    energy, factor = primals
    value, gradient, by_temperature, by_label = energy_and_gradients(energy, factor)
    along = jnp.vdot(gradient, tangents[1]) + by_temperature * tangents[0].temperature
    return value, along + jnp.vdot(by_label, tangents[0].labels)


def energy_and_gradients(
    energy: LabelEnergy, factor: Float[Array, "row rank"]
) -> tuple[
    Float[Array, ""], Float[Array, "row rank"], Float[Array, ""], Float[Array, "example output"]
]:
    """Return E, ∂E/∂F, ∂E/∂𝒯 and ∂E/∂y from one Cholesky factor.

    dE = Tr(R dK) + Tr(R) d𝒯 + 2 α·dy with R = (K + 𝒯)⁻¹ − ααᵀ and α = (K + 𝒯)⁻¹ y. R is formed
    once and pulled back through the assembly of K, which is linear in U_1: autodiff of the Cholesky
    factor would cost several times more.
    """
    kernel, pull_back = energy.kernels.kernel_and_pull_back(factor)
    noisy = NoisyKernel.factorise(kernel, energy.temperature)
    inverse_factor = inverse_of_lower(noisy.cholesky)
    whitened = inverse_factor @ energy.flat_labels
    alpha = whitened @ inverse_factor
    residual = gram_of_lower(inverse_factor) - jnp.outer(alpha, alpha)
    value, by_temperature = noisy.log_determinant + whitened @ whitened, jnp.trace(residual)
    if energy.residual is not None:
        value = value + energy.residual(energy.temperature)
        by_temperature = by_temperature + energy.residual.slope(energy.temperature)
    by_label = 2.0 * alpha.reshape(energy.labels.shape)
    return value, pull_back(residual), by_temperature, by_label


@jax.custom_jvp
def energy_of_columns(
    columns: Float[Array, "row feature"],
    labels: Float[Array, "row set"],
    temperature: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Σ_s [ ln det(G Gᵀ + 𝒯 1) + y_sᵀ (G Gᵀ + 𝒯 1)⁻¹ y_s ] for sets of labels that are independent.

    Its derivatives in G, y and 𝒯 come from one Cholesky factor, of G Gᵀ or of Gᵀ G, whichever is
    smaller.
    """
    return _energy_and_slopes(columns, labels, temperature)[0]


@energy_of_columns.defjvp
def _energy_of_columns_jvp(primals, tangents):
    value, by_column, by_label, by_temperature = _energy_and_slopes(*primals)
    along = jnp.vdot(by_column, tangents[0]) + jnp.vdot(by_label, tangents[1])
    return value, along + by_temperature * tangents[2]


def _energy_and_slopes(columns, labels, temperature):
    """E and its derivatives 2 R G, 2 α and Tr R, with R = n_s (G Gᵀ + 𝒯)⁻¹ − α αᵀ.

    With few features M = Gᵀ G + 𝒯 stands for the kernel: (G Gᵀ + 𝒯)⁻¹ = (1 − G M⁻¹ Gᵀ)/𝒯.
    """
    (rows, features), sets = columns.shape, labels.shape[1]
    few = features < rows
    noisy = NoisyKernel.factorise(columns.T @ columns if few else columns @ columns.T, temperature)
    inverse_factor = inverse_of_lower(noisy.cholesky)
    inverse = gram_of_lower(inverse_factor)
    if few:
        carried = columns @ inverse  # (G Gᵀ + 𝒯)⁻¹ G
        alpha = (labels - carried @ (columns.T @ labels)) / temperature
        missing = rows - features
        logarithm = noisy.log_determinant + missing * jnp.log(temperature)
        trace = jnp.trace(inverse) + missing / temperature
    else:
        carried, alpha = inverse @ columns, inverse @ labels
        logarithm, trace = noisy.log_determinant, jnp.trace(inverse)
    value = sets * logarithm + jnp.vdot(labels, alpha)
    by_column = 2.0 * (sets * carried - alpha @ (alpha.T @ columns))
    return value, by_column, 2.0 * alpha, sets * trace - jnp.vdot(alpha, alpha)


@jax.custom_jvp
def energy_of_kernel(
    kernel: Float[Array, "row row"],
    labels: Float[Array, "row set"],
    temperature: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Σ_s [ ln det(K + 𝒯 1) + y_sᵀ (K + 𝒯 1)⁻¹ y_s ] as a function of K.

    Its derivative is n_s (K + 𝒯)⁻¹ − α αᵀ; labels and temperature count as constants.
    """
    return _energy_and_slope(kernel, labels, temperature)[0]


@energy_of_kernel.defjvp
def _energy_of_kernel_jvp(primals, tangents):
    value, slope = _energy_and_slope(*primals)
    return value, jnp.vdot(slope, tangents[0])


def _energy_and_slope(kernel, labels, temperature):
    noisy, sets = NoisyKernel.factorise(kernel, temperature), labels.shape[1]
    inverse_factor = inverse_of_lower(noisy.cholesky)
    whitened = inverse_factor @ labels
    alpha = inverse_factor.T @ whitened
    value = sets * noisy.log_determinant + jnp.vdot(whitened, whitened)
    return value, sets * gram_of_lower(inverse_factor) - alpha @ alpha.T


def inverse_of_lower(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L⁻¹ = [[A⁻¹, 0], [−C⁻¹ B A⁻¹, C⁻¹]] of L = [[A, 0], [B, C]], halved recursively.

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
    inverses = list(jax.vmap(lambda one: solve_triangular(one, identity, lower=True))(diagonal))
    while len(inverses) > 1:
        block = len(inverses[0])
        inverses = [
            _joined(
                inverses[i],
                filled[(i + 1) * block : (i + 2) * block, i * block : (i + 1) * block],
                inverses[i + 1],
            )
            for i in range(0, len(inverses), 2)
        ]
    return inverses[0][:size, :size]


def _joined(first_inverse, below, second_inverse):
    low = -second_inverse @ (below @ first_inverse)
    return jnp.block([[first_inverse, jnp.zeros_like(below.T)], [low, second_inverse]])


def gram_of_lower(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lᵀ L = [[Aᵀ A + Bᵀ B, Bᵀ C], [Cᵀ B, Cᵀ C]] of L = [[A, 0], [B, C]]."""
    size = len(lower)
    if size <= BLOCK:
        return lower.T @ lower
    half = size // 2
    first, below, second = lower[:half, :half], lower[half:, :half], lower[half:, half:]
    across = below.T @ second
    return jnp.block(
        [[gram_of_lower(first) + below.T @ below, across], [across.T, gram_of_lower(second)]]
    )


def feature_columns(
    features: Float[Array | np.ndarray, "example path channel"], outputs: int
) -> Float[Array | np.ndarray, "_example_output _row channel"]:
    """Φ_a = φ^π δ_c, one block of channels for every row a = (π, c) of U_1: K = Σ U_ab Φ_a Φ_bᵀ."""
    numbers = features.__array_namespace__()
    examples, paths, channels = features.shape
    identity = numbers.eye(outputs, dtype=features.dtype)
    spread = numbers.einsum("xpi,cd->xcpdi", features, identity)
    return spread.reshape(examples * outputs, paths * outputs, channels)


def whitened_products(
    whitened: Float[Array | np.ndarray, "example_output row_channel"], rows: int
) -> Float[Array | np.ndarray, "row row channel channel"]:
    """S_ab = Φ_aᵀ (K + 𝒯)⁻¹ Φ_b from L⁻¹ Φ, L Lᵀ = K + 𝒯."""
    channels = whitened.shape[1] // rows
    products = (whitened.T @ whitened).reshape(rows, channels, rows, channels)
    return products.swapaxes(1, 2)


def energy_curvature(
    products: Float[Array | np.ndarray, "row row channel channel"],
    projected: Float[Array | np.ndarray, "row channel"],
) -> Float[Array | np.ndarray, "row row row row"]:
    """∂²E/∂U_ab ∂U_cd = −tr(S_da S_bc) + s_a·S_bc s_d + s_c·S_da s_b, all entries of U_1 free.

    products   S_ab = Φ_aᵀ (K + 𝒯)⁻¹ Φ_b
    projected  s_a = Φ_aᵀ α, α = (K + 𝒯)⁻¹ y

    The only second derivative of the energy here: of NumPy arrays for the saddle point and its
    evidence, of JAX arrays inside compiled functions.
    """
    numbers = projected.__array_namespace__()
    rows, channels = projected.shape
    # S_bcᵀ = S_cb gives both factors of the trace one layout: a single copy of the blocks.
    flat = products.reshape(rows**2, channels**2)
    trace = (flat @ flat.T).reshape(rows, rows, rows, rows).transpose(1, 3, 2, 0)
    products = flat.reshape(products.shape)
    applied = numbers.einsum("bcik,dk->bcdi", products, projected, optimize=True)  # S_bc s_d
    bilinear = numbers.einsum("ai,bcdi->abcd", projected, applied, optimize=True)
    return -trace + bilinear + bilinear.transpose(2, 3, 0, 1)


def energy_hessian(
    energy: LabelEnergy, features: Float[Array, "example path channel"], factor
) -> tuple[Float[Array, "row row"], Float[Array, "row row row row"]]:
    """Gradient M_ab = ∂E/∂U_ab = tr S_ab − s_a·s_b and `energy_curvature`.

    `features` are the φ^π of the training examples. Costs one triangular solve and products of
    [a, channel] blocks: no derivative is taken numerically or by repeated differentiation.
    """
    columns = feature_columns(features, energy.labels.shape[1])
    size, rows, channels = columns.shape
    noisy = energy.noisy_kernel(factor)
    whitened = noisy.whiten(columns.reshape(size, rows * channels))
    projected = (noisy.whiten(energy.flat_labels) @ whitened).reshape(rows, channels)
    products = whitened_products(whitened, rows)
    gradient = jnp.einsum("abii->ab", products) - projected @ projected.T
    return gradient, energy_curvature(products, projected)


def hessian_with_energy(
    point: Float[Array, " coordinate"],
    energy: LabelEnergy,
    features: Float[Array, "example path channel"],
    scale,
    factor_at: Callable[[Array], Array],
    rest: Callable[[Array], Array],
) -> Float[Array, "coordinate coordinate"]:
    """Second derivatives of rest(x) + scale · E(F(x) F(x)ᵀ) in any coordinates x of U_1.

    Jᵀ (∂²E/∂U_1²) J + Σ (∂E/∂U_1) ∂²U_1 + ∂²rest, J = ∂U_1/∂x: E itself is differentiated by its
    formula, everything else is cheap.
    """

    def overlap(x):
        factor = factor_at(x)
        return factor @ factor.T

    slope, second = energy_hessian(energy, features, factor_at(point))
    size = slope.size
    jacobian = jax.jacfwd(overlap)(point).reshape(size, -1)
    curvature = scale * jacobian.T @ second.reshape(size, size) @ jacobian
    return curvature + jax.hessian(lambda x: rest(x) + scale * jnp.vdot(slope, overlap(x)))(point)


@dataclass(frozen=True)
class Compressed:
    """Numbers of P examples beside the rows that stand for them (`theory.compression`).

    examples  P
    squares   y_⊥², the sum of squares of labels that no network can fit
    """

    examples: int
    squares: float


@dataclass(frozen=True)
class LearningProblem:
    """One architecture with its training data, the common ground of theory and samplers.

    attended      ξ^π(x_μ) [example, path, channel]
    labels        y [example, output]
    temperature   𝒯, the variance of the likelihood
    hyper_priors  how far the temperature is known
    compressed    where rows stand for the examples, what else is known of these

    Raises ValueError when shapes disagree with the architecture, a number is not finite, or the
    temperature is not positive.
    """

    architecture: Architecture
    attended: Float[Array, "example path channel"]
    labels: Float[Array, "example output"]
    temperature: float
    hyper_priors: HyperPriors = KNOWN
    compressed: Compressed | None = None

    def __post_init__(self) -> None:
        arch = self.architecture
        if self.labels.ndim != 2 or self.labels.shape[0] == 0:
            raise ValueError(
                f"labels have shape {self.labels.shape}: need [example, output] with at least one "
                "example (labels[:, None] for one output)"
            )
        examples = self.labels.shape[0]
        expected = (examples, arch.path_count, arch.channels)
        if self.attended.shape != expected:
            raise ValueError(
                f"attended inputs have shape {self.attended.shape}: the architecture and labels "
                f"need [example, path, channel] = {expected}"
            )
        if self.labels.shape[1] != arch.outputs:
            raise ValueError(
                f"labels have shape {self.labels.shape}: need {arch.outputs} outputs per example"
            )
        for name, values in (("attended inputs", self.attended), ("labels", self.labels)):
            traced = isinstance(values, jax.core.Tracer)  # of which only the shape is known
            if not traced and not np.all(np.isfinite(values)):
                raise ValueError(f"{name} contain values that are not finite; remove them")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"temperature = {self.temperature!r}: must be positive and finite")
        # Derivatives in it are taken: a whole number has none.
        object.__setattr__(self, "temperature", float(self.temperature))

    @property
    def examples(self) -> int:
        """Number P of all examples, whether rows stand for them or not."""
        return len(self.labels) if self.compressed is None else self.compressed.examples

    @property
    def residual_squares(self) -> float:
        """Sum of squares y_⊥² of the labels that no row stands for."""
        return 0.0 if self.compressed is None else self.compressed.squares

    @property
    def residual(self) -> ResidualLabels | None:
        """The labels that no row stands for."""
        if self.compressed is None:
            return None
        count = self.examples * self.architecture.outputs - self.labels.size
        return ResidualLabels(float(count), self.residual_squares, self.temperature)

    @property
    def residual_energy(self) -> float:
        """Energy of the labels that no row stands for: a constant of the action."""
        return 0.0 if self.residual is None else self.residual.constant

    @property
    def residual_log_likelihood(self) -> float:
        """Log likelihood of the labels that no row stands for: a constant of the log evidence."""
        return 0.0 if self.residual is None else self.residual.log_likelihood

    @property
    def features(self) -> Float[Array, "example path channel"]:
        """Features φ^π(x_μ) = σ_0 ξ^π(x_μ)/√(D Π)."""
        return path_features(self.attended, self.architecture.variances[0])

    @cached_property
    def energy(self) -> LabelEnergy:
        """E(U_1) of these labels at this temperature; its path kernels are computed once."""
        # Outside of any trace: what is kept must not belong to a function that is being compiled,
        # unless the problem itself does.
        traced = isinstance(self.attended, jax.core.Tracer)
        with nullcontext() if traced else jax.ensure_compile_time_eval():
            kernels = path_kernels(self.attended, None, self.architecture)
        return LabelEnergy(kernels, self.labels, self.temperature, self.residual)

    def at(self, temperature: float) -> "LearningProblem":
        """Return the problem at another temperature; path kernels are not computed again."""
        found, energy = replace(self, temperature=temperature), self.energy
        there = replace(energy, temperature=found.temperature, residual=found.residual)
        vars(found)["energy"] = there  # where a cached property keeps what it has computed
        return found

    def astype(self, dtype: str | type | np.dtype) -> "LearningProblem":
        """Return the problem in another floating-point precision."""
        return replace(
            self,
            attended=jnp.asarray(self.attended, dtype),
            labels=jnp.asarray(self.labels, dtype),
        )
