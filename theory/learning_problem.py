"""One network with its training data, and the few rows that can represent many examples.

Rows for examples: with the attended inputs of all examples as X = [example, path · channel] and
X = Q R, every network of the theory predicts f(X) = Q f(R), because it is linear in ξ. So for
labels y_∥ = Qᵀ y
    |f(X) − y|² = |f(R) − y_∥|² + y_⊥²,      y_⊥² = |y|² − |y_∥|²,
    E(U_1) = ln det(K_R + 𝒯) + y_∥ᵀ (K_R + 𝒯)⁻¹ y_∥ + (P − r) O ln 𝒯 + y_⊥²/𝒯:
the r rows of R, y_∥, y_⊥² and P are all that theory and posterior see. Nothing is left out or
rounded away; other than the Gram matrix, R has the condition number of X.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, Shaped
from scipy.linalg import solve_triangular

from theory.architecture import Architecture, AttentionPaths
from theory.energy import NoisyKernel, TemperatureTooSmall, lowest_temperature
from theory.path_kernels import PathKernels, make_path_kernels, on_host, path_features

# Rows of a block that is folded in at a time, relative to its columns.
ROWS_PER_COLUMN = 8
# Σ y²/𝒯 above which derivatives of the energy may overflow.
LARGEST_LABELS = 1e30


@register_dataclass
@dataclass(frozen=True)
class ResidualLabels:
    """The labels y_⊥ that no row represents: no network can fit them.

    Their likelihood depends on no order parameter. It is a constant, kept apart from the energy of
    the rows, which it would cost digits.

    count    (P − r) O, their number
    squares  y_⊥², their sum of squares
    """

    count: Shaped[Array | np.ndarray, ""] | float | int
    squares: Float[Array | np.ndarray, ""] | float

    def energy(
        self, temperature: Float[Array | np.ndarray, ""] | float
    ) -> Float[Array | np.ndarray, ""] | float:
        """Energy n ln 𝒯 + y_⊥²/𝒯."""
        return self.count * _log(temperature) + self.squares / temperature

    def log_likelihood(
        self, temperature: Float[Array | np.ndarray, ""] | float
    ) -> Float[Array | np.ndarray, ""] | float:
        """Log likelihood ln 𝒩(y_⊥; 0, 𝒯)."""
        logs = self.count * _log(2.0 * math.pi * temperature)
        return -0.5 * (logs + self.squares / temperature)


def _log(number: Float[Array | np.ndarray, ""] | float) -> Float[Array | np.ndarray, ""] | float:
    """Natural logarithm; of a float in double precision, whatever JAX is set to."""
    return jnp.log(number) if isinstance(number, jax.Array) else math.log(number)


@register_dataclass
@dataclass(frozen=True)
class LabelEnergy:
    """E(U_1) = ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y, so that ln p(y | U_1) = −E/2 − (P O/2) ln 2π.

    kernels      path kernels of the training examples with themselves
    labels       y [example, output]
    temperature  𝒯, the likelihood variance
    """

    kernels: PathKernels
    labels: Float[Array | np.ndarray, "example output"]
    temperature: Float[Array | np.ndarray, ""] | float

    @property
    def flat_labels(self) -> Float[Array | np.ndarray, " example_output"]:
        """Labels y as a vector, output fastest."""
        return self.labels.reshape(-1)

    def noisy_kernel(self, factor: Float[Array | np.ndarray, "_row _rank"]) -> NoisyKernel:
        """K(U_1) + 𝒯 1 for U_1 = F Fᵀ."""
        return NoisyKernel.factorise(self.kernels.kernel(factor), self.temperature)

    def __call__(
        self, factor: Float[Array | np.ndarray, "_row _rank"]
    ) -> Float[Array | np.ndarray, ""]:
        """E(F Fᵀ), differentiable in F, kernels, labels and temperature."""
        return self.kernels.energy(factor, self.flat_labels[:, None], self.temperature)

    def of_layers(
        self, factors: tuple[Float[Array | np.ndarray, "_row _rank"], ...]
    ) -> Float[Array | np.ndarray, ""]:
        """E at factors of all order parameters, a function of that of U_1."""
        return self(factors[0])


def sum_of_squares(values: Float[Array | np.ndarray, "..."]) -> float:
    """Sum of squares in double precision; infinite where it overflows."""
    flat = np.ravel(np.asarray(values, np.float64))
    with np.errstate(over="ignore"):
        return float(flat @ flat)


@dataclass(frozen=True)
class LearningProblem:
    """One architecture with its training data, the common ground of theory and samplers.

    attended            ξ^π(x_μ) [example, path, channel], of the examples or the rows for them
    labels              y [example, output]
    temperature         𝒯, the variance of the likelihood
    temperature_spread  s: samplers draw ln 𝒯 ~ 𝒩(ln 𝒯_0, s²) about the temperature 𝒯_0 given
                        here, where the theory is solved; 0 fixes it
    residual_examples   P − r, where r rows represent P examples
    residual_squares    y_⊥², the sum of squares of labels that no row represents

    Raises ValueError when shapes disagree with the architecture, a number is not finite, the
    temperature is not positive, or its spread is negative; TemperatureTooSmall, one of them, below
    `lowest_temperature`.
    """

    architecture: Architecture
    attended: Float[Array, "example path channel"]
    labels: Float[Array, "example output"]
    temperature: float
    temperature_spread: float = 0.0
    residual_examples: int = 0
    residual_squares: float = 0.0

    def __post_init__(self) -> None:
        arch, labels = self.architecture, self.labels
        if labels.ndim != 2 or labels.shape[0] == 0:
            raise ValueError(
                f"labels have shape {labels.shape}: need [example, output] with at least one "
                "example (labels[:, None] for one output)"
            )
        expected = (labels.shape[0], arch.path_count, arch.channels)
        if self.attended.shape != expected:
            raise ValueError(
                f"attended inputs have shape {self.attended.shape}: the architecture and labels "
                f"need [example, path, channel] = {expected}"
            )
        if labels.shape[1] != arch.outputs:
            raise ValueError(
                f"labels have shape {labels.shape}: need {arch.outputs} outputs per example"
            )
        for name, values in (("attended inputs", self.attended), ("labels", labels)):
            traced = isinstance(values, Tracer)  # of which only the shape is known
            if not traced and not np.all(np.isfinite(values)):
                raise ValueError(f"{name} contain values that are not finite; remove them")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"temperature = {self.temperature!r}: must be positive and finite")
        spread = self.temperature_spread
        if not (math.isfinite(spread) and spread >= 0):
            raise ValueError(f"temperature_spread = {spread!r}: must be finite, and 0 or more")
        # Derivatives in it are taken: a whole number has none.
        object.__setattr__(self, "temperature", float(self.temperature))
        if self.temperature < self.lowest_temperature:
            raise TemperatureTooSmall(self.temperature, self.lowest_temperature)

    @property
    def examples(self) -> int:
        """Number P of all examples, whether rows represent them or not."""
        return len(self.labels) + self.residual_examples

    @cached_property
    def lowest_temperature(self) -> float:
        """Limit of 𝒯, by tr K at infinite width and by Σ y² of all labels over `LARGEST_LABELS`.

        Infinite where K overflows, 0 while compiling.
        """
        if any(isinstance(values, Tracer) for values in (self.attended, self.labels)):
            return 0.0
        arch = self.architecture
        scale = math.prod(arch.variances) / (arch.channels * arch.path_count)
        trace = arch.outputs * scale * sum_of_squares(self.attended)
        squares = sum_of_squares(self.labels) + self.residual_squares
        return max(lowest_temperature(trace), squares / LARGEST_LABELS)

    @property
    def residual(self) -> ResidualLabels:
        """The labels that no row represents."""
        count = self.residual_examples * self.architecture.outputs
        return ResidualLabels(count, self.residual_squares)

    @property
    def residual_energy(self) -> float:
        """Energy of the labels that no row represents: a constant of the action."""
        return self.residual.energy(self.temperature)

    @property
    def residual_log_likelihood(self) -> float:
        """Log likelihood of the labels that no row represents: a constant of the log evidence."""
        return self.residual.log_likelihood(self.temperature)

    @property
    def features(self) -> Float[Array | np.ndarray, "example path channel"]:
        """Features φ^π(x_μ) = σ_0 ξ^π(x_μ)/√(D Π), by NumPy."""
        return path_features(on_host(self.attended), self.architecture.variances[0])

    def combinations(
        self, attended: Float[Array | np.ndarray, "example path channel"]
    ) -> Float[np.ndarray, "example row"]:
        """Numbers q with ξ(x_i) = Σ_r q_ir ξ_r of any training examples and the rows for them.

        Where rows are linearly dependent, to rounding, the smallest such numbers.
        """
        rows = np.asarray(self.attended, np.float64).reshape(len(self.labels), -1)
        flat = np.asarray(attended, np.float64).reshape(len(attended), -1)
        sizes = np.abs(np.diagonal(rows))
        triangle = rows.shape[0] == rows.shape[1] and not np.tril(rows, -1).any()
        if triangle and sizes.min() > len(rows) * np.finfo(np.float64).eps * sizes.max():
            return solve_triangular(rows, flat.T, trans="T").T
        return flat @ self._inverse_of_rows

    @cached_property
    def _inverse_of_rows(self) -> Float[np.ndarray, "path_channel row"]:
        rows = np.asarray(self.attended, np.float64).reshape(len(self.labels), -1)
        return np.linalg.pinv(rows, rcond=max(rows.shape) * np.finfo(np.float64).eps)

    @cached_property
    def energy(self) -> LabelEnergy:
        """E(U_1) of these labels at this temperature; its path kernels are computed once."""
        # Outside of any trace: what is stored must not belong to a function that is being compiled,
        # unless the problem itself does.
        traced = isinstance(self.attended, Tracer)
        with nullcontext() if traced else jax.ensure_compile_time_eval():
            kernels = make_path_kernels(self.attended, None, self.architecture)
        return LabelEnergy(kernels, self.labels, self.temperature)

    def at(self, temperature: float) -> "LearningProblem":
        """Return the problem at another temperature; path kernels are not computed again."""
        problem = replace(self, temperature=temperature)
        # Where a cached property stores its value.
        vars(problem)["energy"] = replace(self.energy, temperature=problem.temperature)
        return problem

    def astype(self, dtype: str | type | np.dtype) -> "LearningProblem":
        """Return the problem in another floating-point precision; itself where it has that one."""
        if self.attended.dtype == self.labels.dtype == np.dtype(dtype):
            return self  # with the path kernels that it has
        arrays = (np.asarray(array, dtype) for array in (self.attended, self.labels))
        attended, labels = map(jnp.asarray, arrays)
        return replace(self, attended=attended, labels=labels)


@dataclass(frozen=True)
class Triangle:
    """The triangle R of the columns [X | y] of all examples so far.

    matrix    R [row, column], upper triangular with no negative number on its diagonal, with as
              many rows as columns (zeros while examples are fewer)
    examples  P, how many were folded in
    paths, channels, outputs  sizes of the columns
    """

    matrix: Float[np.ndarray, "column column"]
    examples: int
    paths: int
    channels: int
    outputs: int

    @classmethod
    def empty(cls, paths: int, channels: int, outputs: int) -> "Triangle":
        """A triangle of no examples."""
        size = paths * channels + outputs
        return cls(np.zeros((size, size)), 0, paths, channels, outputs)

    @property
    def block_examples(self) -> int:
        """Examples that are best folded in together: many more than rows are left of them."""
        return ROWS_PER_COLUMN * len(self.matrix)

    def fold(
        self,
        attended: Float[np.ndarray, "example path channel"],
        labels: Float[np.ndarray, "example output"],
    ) -> "Triangle":
        """Return the triangle with further examples: R of [R; X | y], some rows at a time."""
        examples, matrix = len(labels), self.matrix
        flat = np.reshape(attended, (examples, self.paths * self.channels))
        columns = np.concatenate([flat, labels], axis=1, dtype=float)
        for start in range(0, examples, self.block_examples):
            block = columns[start : start + self.block_examples]
            matrix = np.linalg.qr(np.concatenate([matrix, block]), mode="r")
        # A triangle is unique but for the signs of its rows.
        signs = np.where(np.diagonal(matrix) < 0, -1.0, 1.0)
        return replace(self, matrix=signs[:, None] * matrix, examples=self.examples + examples)

    def fold_all(
        self,
        blocks: Iterable[
            tuple[Float[np.ndarray, "_example path channel"], Float[np.ndarray, "_example output"]]
        ],
    ) -> Iterator["Triangle"]:
        """The triangle after every batch of examples of all blocks, the last one of all of them."""
        triangle, waiting, count = self, [], 0
        for attended, labels in blocks:
            waiting.append((np.asarray(attended), np.asarray(labels)))
            count += len(labels)
            if count >= self.block_examples:
                triangle = triangle.fold(*map(np.concatenate, zip(*waiting, strict=True)))
                waiting, count = [], 0
                yield triangle
        if waiting:
            yield triangle.fold(*map(np.concatenate, zip(*waiting, strict=True)))

    @property
    def rows(self) -> Float[np.ndarray, "row path channel"]:
        """Rows of R as attended inputs."""
        size = self.paths * self.channels
        return self.matrix[:size, :size].reshape(size, self.paths, self.channels)

    @property
    def labels(self) -> Float[np.ndarray, "row output"]:
        """Labels of the rows, y_∥ = Qᵀ y."""
        return self.matrix[: -self.outputs, -self.outputs :]

    @property
    def squares(self) -> float:
        """Sum of squares y_⊥² of the labels below the rows, without cancellation."""
        return sum_of_squares(self.matrix[-self.outputs :, -self.outputs :])

    def learning_problem(
        self, architecture: Architecture, temperature: float, temperature_spread: float = 0.0
    ) -> LearningProblem:
        """The problem of learning all examples, by the rows that represent them."""
        return LearningProblem(
            architecture,
            jnp.asarray(self.rows),
            jnp.asarray(self.labels),
            temperature,
            temperature_spread,
            self.examples - len(self.labels),
            self.squares,
        )


def compress(problem: LearningProblem) -> LearningProblem:
    """Return the problem with the rows of its triangle as examples, where there are fewer of them.

    A problem whose examples are rows already, such as that of a sub-network, is compressed further.
    """
    arch, rows = problem.architecture, len(problem.labels)
    if arch.rows_of(rows) == rows:
        return problem
    attended, labels = np.asarray(problem.attended, float), np.asarray(problem.labels, float)
    triangle = Triangle.empty(arch.path_count, arch.channels, arch.outputs).fold(attended, labels)
    dtype = problem.attended.dtype
    return replace(
        problem,
        attended=jnp.asarray(triangle.rows, dtype),
        labels=jnp.asarray(triangle.labels, dtype),
        residual_examples=problem.examples - len(triangle.labels),
        residual_squares=problem.residual_squares + triangle.squares,
    )


def sub_network(
    problem: LearningProblem,
    heads: Sequence[Sequence[int]],
    attended: Float[Array, "test path channel"],
) -> tuple[LearningProblem, Float[Array, "test remaining_path channel"]]:
    """Return the data as a network sees them that has only these heads in each layer.

    It has H_l, Π and rows for its examples by itself. Raises IndexError for a head that does not
    exist.
    """
    arch = problem.architecture
    paths = AttentionPaths(arch.heads).subset(heads)
    part = replace(
        problem,
        architecture=replace(arch, heads=tuple(map(len, heads))),
        attended=jnp.asarray(np.asarray(problem.attended)[:, paths]),
        temperature_spread=0.0,
    )
    return compress(part), jnp.asarray(np.asarray(attended)[:, paths])
