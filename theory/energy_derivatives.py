"""The energy of the labels around one order parameter, to fourth order in U_1.

With α = (K + 𝒯 1)⁻¹ y everything is a contraction of two blocks,

    J_ab = φ_aᵀ (K + 𝒯 1)⁻¹ φ_b [channel, channel],    j_a = φ_aᵀ α [channel],

φ_a the features that belong to row a of U_1 (K = Σ U_ab φ_a φ_bᵀ). Averages over small Gaussian
deviations of U_1 with covariance Cov_{ab,cd} need two more,

    J̄_ad = Σ_bc Cov_{ab,cd} J_bc,    j̄_bc = Σ_ad Cov_{ab,cd} j_a j_dᵀ,

each of the size of J: nothing with an axis for the examples is formed twice.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import solve_triangular

from theory.energy import with_noise
from theory.learning_problem import LearningProblem
from theory.overlaps import ChainCoordinates, log_determinant
from theory.size_limits import examples_at_a_time

Blocks = Float[np.ndarray, "row row channel channel"]


def feature_columns(
    features: Float[Array | np.ndarray, "example path channel"], outputs: int
) -> Float[Array | np.ndarray, "_example_output _row channel"]:
    """φ_a = φ^π δ_o, one block of channels for every row a = (π, o) of U_1: K = Σ U_ab φ_a φ_bᵀ."""
    numbers = features.__array_namespace__()
    examples, paths, channels = features.shape
    identity = numbers.eye(outputs, dtype=features.dtype)
    spread = numbers.einsum("xpi,cd->xcpdi", features, identity)
    return spread.reshape(examples * outputs, paths * outputs, channels)


@dataclass(frozen=True)
class EnergyAt:
    """E(U_1) and its derivatives at one U_1, all entries of U_1 free.

    lower     L with Λ Λᵀ = K + 𝒯 1
    whitened  Λ⁻¹ φ [example_output, row, channel]
    labels    Λ⁻¹ y
    """

    lower: Float[np.ndarray, "example_output example_output"]
    whitened: Float[np.ndarray, "example_output row channel"]
    labels: Float[np.ndarray, " example_output"]

    @property
    def value(self):
        """E = ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y."""
        return log_determinant(self.lower) + self.labels @ self.labels

    @cached_property
    def projected(self) -> Float[np.ndarray, "row channel"]:
        """j_a = φ_aᵀ (K + 𝒯)⁻¹ y."""
        flat = self.whitened.reshape(len(self.labels), -1)
        return (self.labels @ flat).reshape(self.whitened.shape[1:])

    @cached_property
    def slope(self) -> Float[np.ndarray, "row row"]:
        """∂E/∂U_ab = tr J_ab − j_a·j_b, without J."""
        flat = self.whitened.transpose(1, 0, 2).reshape(self.whitened.shape[1], -1)
        return flat @ flat.T - self.projected @ self.projected.T

    @cached_property
    def products(self) -> Blocks:
        """J_ab = φ_aᵀ (K + 𝒯)⁻¹ φ_b."""
        _, rows, channels = self.whitened.shape
        flat = self.whitened.reshape(-1, rows * channels)
        return (flat.T @ flat).reshape(rows, channels, rows, channels).swapaxes(1, 2)

    @cached_property
    def curvature(self) -> Float[np.ndarray, "row row row row"]:
        """∂²E/∂U_ab ∂U_cd = −tr(J_da J_bc) + j_a·J_bc j_d + j_c·J_da j_b."""
        s = self.projected
        rows, channels = s.shape
        # J_bcᵀ = J_cb gives both factors of the trace one layout: a single copy of the blocks.
        flat = self.products.reshape(rows**2, channels**2)
        trace = (flat @ flat.T).reshape(rows, rows, rows, rows).transpose(1, 3, 2, 0)
        blocks = flat.reshape(rows, rows, channels, channels)
        applied = np.einsum("bcik,dk->bcdi", blocks, s, optimize=True)  # J_bc j_d
        bilinear = np.einsum("ai,bcdi->abcd", s, applied, optimize=True)
        return -trace + bilinear + bilinear.transpose(2, 3, 0, 1)


class DenseEnergy:
    """E of one learning problem as a function of a factor of U_1, in NumPy."""

    def __init__(self, problem: LearningProblem) -> None:
        self._labels = np.asarray(problem.labels, float).reshape(-1)
        self._temperature = float(problem.temperature)
        self._columns = feature_columns(
            np.asarray(problem.features, float), problem.architecture.outputs
        )

    def at(self, factor: Float[np.ndarray, "row rank"]) -> EnergyAt:
        """The energy around U_1 = F Fᵀ.

        Raises numpy.linalg.LinAlgError where K + 𝒯 1 is not finite or not positive definite.
        """
        examples, rows, channels = self._columns.shape
        renormalised = np.einsum("xai,ar->xri", self._columns, factor).reshape(examples, -1)
        kernel = renormalised @ renormalised.T
        lower = np.linalg.cholesky(with_noise(kernel, self._temperature))
        if not np.all(np.isfinite(lower)):
            raise np.linalg.LinAlgError("K + 𝒯 1 is not finite")
        columns = self._columns.reshape(examples, rows * channels)
        whitened = solve_triangular(lower, columns, lower=True, check_finite=False)
        labels = solve_triangular(lower, self._labels, lower=True, check_finite=False)
        return EnergyAt(lower, whitened.reshape(self._columns.shape), labels)


@dataclass(frozen=True)
class LabelsAndPrior(ABC):
    """Ψ(θ) = w E(U_1(θ)) + Σ_k Ψ_k(θ_k) + const of one learning problem, in NumPy.

    The labels and, coordinate by coordinate, the terms independent of them: the action over a
    width, or minus the log posterior. With its first two derivatives.
    """

    problem: LearningProblem

    @property
    @abstractmethod
    def coordinates(self) -> ChainCoordinates:
        """The coordinates θ, and Ψ_k."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """w."""

    @property
    def constant(self) -> float:
        """The part independent of θ."""
        return 0.0

    @cached_property
    def energy(self) -> DenseEnergy:
        """E(U_1) of the labels."""
        return DenseEnergy(self.problem)

    def energy_at(self, point: Float[np.ndarray, " coordinate"]) -> EnergyAt:
        """E around U_1(θ). Raises LinAlgError where K + 𝒯 1 is not positive definite."""
        return self.energy.at(self.coordinates.factors(point)[0])

    @np.errstate(all="ignore")
    def value_and_gradient(
        self, point: Float[np.ndarray, " coordinate"]
    ) -> tuple[float, Float[np.ndarray, " coordinate"]]:
        """Ψ and ∇Ψ; infinite where K + 𝒯 1 is not positive definite."""
        series = self.coordinates.series(point, point[None], 0)
        factor = series.factors[0][0]
        try:
            energy = self.energy.at(factor[0])
        except np.linalg.LinAlgError:
            return float("inf"), np.full_like(point, np.nan)
        prior = self.coordinates.prior_derivatives(point)
        value = self.weight * energy.value + prior[0].sum() + self.constant
        gradient = series.pull_back([2.0 * self.weight * energy.slope @ factor])[0]
        return float(value), gradient + prior[1]

    @np.errstate(all="ignore")
    def hessian(
        self, point: Float[np.ndarray, " coordinate"], energy: EnergyAt | None = None
    ) -> Float[np.ndarray, "coordinate coordinate"]:
        """∇²Ψ = w (∂Uᵀ ∂²E ∂U + Σ ∂E/∂U_ab ∂²U_ab) + Ψ_k″; `energy` is that at θ.

        NaN where K + 𝒯 1 is not positive definite.
        """
        series = self.coordinates.series(point, np.eye(point.size), 1)
        factor, moved = series.factors[0]
        try:
            energy = self.energy.at(factor[0]) if energy is None else energy
        except np.linalg.LinAlgError:
            return np.full((point.size, point.size), np.nan)
        jacobian = series.overlap(0, 1).reshape(point.size, -1)
        square = jacobian.shape[1]
        total = self.weight * jacobian @ energy.curvature.reshape(square, square) @ jacobian.T
        slope = 2.0 * self.weight * energy.slope
        total += series.pull_back([slope @ moved, slope @ factor])
        return 0.5 * (total + total.T) + np.diag(self.coordinates.prior_derivatives(point)[2])


@dataclass(frozen=True)
class EnergyAverages:
    """Averages of derivatives of E over small deviations of U_1 with a covariance Cov.

    energy      E at the centre
    covariance  Cov_{ab,cd} = ⟨δU_ab δU_cd⟩, symmetric under a ↔ b, c ↔ d and ab ↔ cd
    """

    energy: EnergyAt
    covariance: Float[np.ndarray, "row row row row"]

    @cached_property
    def kernel_part(self) -> Blocks:
        """J̄_ad = Σ_bc Cov_{ab,cd} J_bc."""
        rows, _, channels, _ = self.energy.products.shape
        pairs = self.covariance.transpose(0, 3, 1, 2).reshape(rows**2, rows**2)
        flat = self.energy.products.reshape(rows**2, channels**2)
        return (pairs @ flat).reshape(rows, rows, channels, channels)

    @cached_property
    def label_part(self) -> Blocks:
        """j̄_bc = Σ_ad Cov_{ab,cd} j_a j_dᵀ."""
        s = self.energy.projected
        half = np.einsum("abcd,dj->abcj", self.covariance, s, optimize=True)
        return np.einsum("abcj,ai->bcij", half, s, optimize=True)

    @cached_property
    def response(self) -> Float[np.ndarray, "row channel"]:
        """b_a = Σ_d J̄_ad j_d."""
        return np.einsum("adij,dj->ai", self.kernel_part, self.energy.projected, optimize=True)

    @cached_property
    def third(self) -> Float[np.ndarray, "row row"]:
        """Σ Cov_{ab,cd} ∂³E/∂U_ab ∂U_cd ∂U_ef = 2 tr[(J (J̄ − j̄) J)_ef] − 2 (c_e·j_f + j_e·c_f).

        c = J b; the trace is over channels.
        """
        rows, channels = self.response.shape
        products = as_matrix(self.energy.products)
        inner = products @ as_matrix(self.kernel_part - self.label_part)
        # Traces of the blocks of inner @ products, without the blocks.
        left = inner.reshape(rows, -1)
        right = products.reshape(rows * channels, rows, channels).transpose(1, 2, 0)
        traces = left @ right.reshape(rows, -1).T
        pulled = (products @ self.response.reshape(-1)).reshape(rows, channels)
        across = pulled @ self.energy.projected.T
        return traces + traces.T - 2.0 * (across + across.T)

    @property
    def fourth(self) -> float:
        """Σ Cov_{ab,cd} Cov_{ef,gh} ∂⁴E/∂U_ab ∂U_cd ∂U_ef ∂U_gh.

        Of the six cyclic orders of ln det, four have the members of a pair side by side,
        tr(J J̄ J J̄), and two do not. Of the 24 orders of yᵀ α, eight pair neighbours, eight the
        ends and the middle, tr(J J̄ J j̄), and eight alternate.
        """
        products = as_matrix(self.energy.products)
        kernel = products @ as_matrix(self.kernel_part)
        label = products @ as_matrix(self.label_part)
        response = self.response.reshape(-1)
        neighbours = -4.0 * np.vdot(kernel, kernel.T) + 8.0 * np.vdot(kernel, label.T)
        neighbours += 8.0 * response @ products @ response
        return float(neighbours + 8.0 * self._alternating_labels - 2.0 * self._alternating_traces)

    @property
    def _alternating_labels(self) -> float:
        """Σ Cov_{ab,ef} Cov_{cd,gh} j_a J_bc J_de J_fg j_h."""
        products, covariance = self.energy.products, self.covariance
        ends = np.einsum("ai,bcij->abcj", self.energy.projected, products, optimize=True)
        first = np.einsum("abef,abcj->cefj", covariance, ends, optimize=True)
        last = np.einsum("cdgh,hgfk->cdfk", covariance, ends, optimize=True)
        carried = np.einsum("cefj,dejk->cdfk", first, products, optimize=True)
        return float(np.vdot(carried, last))

    @property
    def _alternating_traces(self) -> float:
        """Σ Cov_{ab,cd} Cov_{ef,gh} tr(J_be J_fc J_dg J_ha) = Σ_ik tr(Y_ikᵀ Cov′ Y_ik Cov).

        Y_ik[bc, ef] = (J_be J_fc)_ik, Cov′_{bc,ad} = Cov_{ab,cd}: the other two factors of
        the trace are the same Y. Since J_beᵀ = J_eb and Cov is symmetric, ik and ki add the same.
        """
        rows, _, channels, _ = self.energy.products.shape
        square = rows**2
        outer = self.covariance.reshape(square, square)
        crossed = self.covariance.transpose(1, 2, 0, 3).reshape(square, square)
        by_channel = self.energy.products.transpose(2, 0, 1, 3)  # [i, b, e, j]
        chunk, total = examples_at_a_time(channels, 8 * square**2 * channels), 0.0
        for start in range(0, channels, chunk):
            left, right = by_channel[start : start + chunk], by_channel[..., start:]
            count, others = len(left), channels - start
            chain = left.reshape(-1, channels) @ right.reshape(channels, -1)
            chain = chain.reshape(count, *(rows,) * 4, others)  # [i, b, e, f, c, k]
            chain = chain.transpose(1, 4, 0, 5, 2, 3).reshape(square, -1)
            carried = (crossed.T @ chain).reshape(-1, square) @ outer
            traces = np.einsum("xn,xn->x", carried, chain.reshape(-1, square))
            traces = traces.reshape(-1, others)
            total += traces.sum() + traces[:, count:].sum()  # ki of later channels
        return float(total)


def as_matrix(blocks: Blocks) -> Float[np.ndarray, "row_channel row_channel"]:
    """[row, row, channel, channel] as the square matrix of (row, channel)."""
    rows, _, channels, _ = blocks.shape
    return blocks.swapaxes(1, 2).reshape(rows * channels, rows * channels)
