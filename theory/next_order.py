"""The theory at next order in 1/N: posterior means, predictors and log evidence.

Averages over the fluctuations of the exact posterior around its mode (`theory.laplace`) give
the posterior means of U_1 … U_L, U_a. With j, J, b, J̄, j̄ of `theory.energy_derivatives` and the
residual features φ̃_a = φ_a(x) − φ_aᵀ (K + 𝒯)⁻¹ k(x) of an example x, all at the mode, the
predictor is

    ⟨m⟩          = m̂ + Σ_a φ̃_a·(Σ_b ΔU_ab j_b − b_a)
    ⟨v⟩ + Var[m] = v̂ + Σ_ab φ̃_a·(ΔU_ab − J̄_ab + j̄_ab) φ̃_b.

Neglected terms are of second order in the size of the shift. Where P/N → 0 the likelihood does not
grow with N, and neither order need be close.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from jaxtyping import Array, Float

from theory.energy_derivatives import as_matrix, feature_columns
from theory.laplace import Fluctuations, LogPosterior
from theory.learning_problem import LearningProblem
from theory.log_evidence import log_evidence_at_next_order
from theory.path_kernels import path_features
from theory.saddle_point import SaddlePoint, SaddlePointStatus
from theory.size_limits import examples_at_a_time, next_order_fits

# The evidence needs all third derivatives, p_1⁶ and p_1² d² numbers, with some copies of each.
LARGEST_THIRD_DERIVATIVES = 2**25
# From the mode, in standard deviations: rounding, not the tolerance of the descent, decides where
# labels are many and far beyond the temperature.
LARGEST_DISTANCE = 1e-6
# Not to be trusted above. By quadrature on 864 problems of one head, widths 2 to 64 with 1 to 16
# examples: below both limits ⟨U_1⟩ is off by at most 4.7 %, ⟨m⟩ by 4.5 % and the predictive
# variance by 11 %, above by up to 48, 71 and 78 %.
LARGEST_SHIFT = 0.25
LARGEST_SPREAD = 0.6


class NextOrderStatus(Enum):
    """Whether the expansion holds; there are numbers for `FINE` and `LARGE` only."""

    FINE = "fine"
    LARGE = "fluctuations are too large for an expansion"
    NOT_POSITIVE = "an order parameter is not positive definite at next order"
    NOT_A_MINIMUM = "no maximum of the posterior density was found"
    NOT_FINITE = "the posterior density is not finite"
    NO_SADDLE_POINT = "the saddle point is not converged"
    TOO_LARGE = (
        "the second derivatives of the energy are too large to be stored; keep fewer paths, or "
        "fewer channels"
    )


def per_cent(share: float) -> str:
    """A share to two significant digits, without an exponent: `3.2 %`, `110 %`."""
    return f"{float(f'{100 * share:.2g}'):g} %"


@dataclass(frozen=True)
class NextOrder:
    """Posterior means to next order, or why there are none.

    status            how far they can be trusted
    correction        |⟨U_1⟩ − U_1*|/|U_1*|, U_1* the saddle point; NaN where there is none
    spread            √(Σ_ab Var[U_1,ab])/|⟨U_1⟩|; NaN where there is none
    order_parameters  ⟨U_1⟩ … ⟨U_L⟩, ⟨U_a⟩; empty where there are none
    log_evidence      ln p(y); NaN where it is not computed
    """

    status: NextOrderStatus
    correction: float = float("nan")
    spread: float = float("nan")
    order_parameters: tuple[Float[np.ndarray, "_row _row"], ...] = ()
    log_evidence: float = float("nan")
    around: Fluctuations | None = None

    @property
    def defined(self) -> bool:
        """Whether the expansion has numbers."""
        return self.status in (NextOrderStatus.FINE, NextOrderStatus.LARGE)

    def explain(self) -> str:
        """One line: the size of the correction and the consequence."""
        if not self.defined:
            return f"next order not defined: {self.status.value}"
        text = (
            f"next-order correction {per_cent(self.correction)} of U₁ (valid below "
            f"{100 * LARGEST_SHIFT:g} %), posterior spread {per_cent(self.spread)} (valid below "
            f"{100 * LARGEST_SPREAD:g} %)"
        )
        return text if self.status is NextOrderStatus.FINE else f"{text}: {self.status.value}"

    def predict(
        self, attended: Float[Array | np.ndarray, "test path channel"]
    ) -> tuple[Float[np.ndarray, "test output"], Float[np.ndarray, "test output"]]:
        """Predict ⟨m⟩ and ⟨v⟩ + Var[m] of each test example and output, chunk by chunk.

        Raises ValueError where the next order is not defined.
        """
        if not self.defined:
            raise ValueError(self.explain())
        architecture = self.around.posterior.problem.architecture
        responses, outputs = Responses.of(self.around), architecture.outputs
        rows, channels = responses.projected.shape
        chunk = examples_at_a_time(len(attended), 8 * outputs * rows * channels)
        moments = []
        for start in range(0, len(attended), chunk):
            part = np.asarray(attended[start : start + chunk], float)
            columns = feature_columns(path_features(part, architecture.variances[0]), outputs)
            moments.append(responses.predict(columns))
        mean, variance = (np.concatenate(each) for each in zip(*moments, strict=True))
        return mean.reshape(-1, outputs), variance.reshape(-1, outputs)


@dataclass(frozen=True)
class Responses:
    """Arrays of the size of (row, channel) by which training examples enter predictors.

    overlap    U_1 at the mode, as all that follows
    products   J as a matrix of (row, channel)
    projected  j
    moved      Σ_b ΔU_ab j_b − b_a
    widening   ΔU_ab − J̄_ab + j̄_ab as a matrix of (row, channel)
    """

    overlap: Float[np.ndarray, "row row"]
    products: Float[np.ndarray, "row_channel row_channel"]
    projected: Float[np.ndarray, "row channel"]
    moved: Float[np.ndarray, "row channel"]
    widening: Float[np.ndarray, "row_channel row_channel"]

    @classmethod
    def of(cls, around: Fluctuations) -> "Responses":
        """Return the arrays around a mode."""
        energy, averages, shift = around.energy, around.averages, around.shifts[0]
        channels = energy.projected.shape[1]
        return cls(
            overlap=around.series.overlap(0, 0)[0],
            products=as_matrix(energy.products),
            projected=energy.projected,
            moved=shift @ energy.projected - averages.response,
            widening=np.kron(shift, np.eye(channels))
            + as_matrix(averages.label_part - averages.kernel_part),
        )

    def predict(
        self, columns: Float[np.ndarray, "test_output row channel"]
    ) -> tuple[Float[np.ndarray, " test_output"], Float[np.ndarray, " test_output"]]:
        """Predict ⟨m⟩ and ⟨v⟩ + Var[m] of examples with features φ_a, one block a row of U_1.

        A variance that rounding, or the expansion, leaves below 0 is 0.
        """
        carried = np.einsum("ab,xbi->xai", self.overlap, columns, optimize=True)
        flat, features = carried.reshape(len(columns), -1), columns.reshape(len(columns), -1)
        explained = flat @ self.products
        residual = features - explained
        mean = flat @ self.projected.reshape(-1) + residual @ self.moved.reshape(-1)
        variance = np.sum(flat * residual, axis=1)
        variance += np.sum((residual @ self.widening) * residual, axis=1)
        return mean, np.maximum(variance, 0.0)


def solve_next_order(
    problem: LearningProblem, saddle: SaddlePoint, *, evidence: bool = True
) -> NextOrder:
    """Posterior means to next order in 1/N, starting at the saddle point; see the module.

    Costs a few Newton steps and three Hessians; the evidence costs more (all third derivatives) and
    is left out where it does not fit. Never raises for an expansion that fails: `status` is then
    the reason.
    """
    if not saddle.converged:
        return NextOrder(NextOrderStatus.NO_SADDLE_POINT)
    posterior = LogPosterior(problem)
    if not next_order_fits(problem.architecture):
        return NextOrder(NextOrderStatus.TOO_LARGE)
    ended = posterior.mode(saddle)
    if ended.status is SaddlePointStatus.NOT_FINITE:
        return NextOrder(NextOrderStatus.NOT_FINITE)
    try:
        around = Fluctuations.around(posterior, ended.point, ended.value)
    except np.linalg.LinAlgError:
        return NextOrder(NextOrderStatus.NOT_A_MINIMUM)
    if not around.distance <= LARGEST_DISTANCE:
        return NextOrder(NextOrderStatus.NOT_A_MINIMUM)
    means = tuple(around.means)
    leading = np.asarray(saddle.order_parameters.matrices[0])
    correction = float(np.linalg.norm(means[0] - leading) / np.linalg.norm(leading))
    if not all(np.all(np.isfinite(mean)) for mean in means):
        return NextOrder(NextOrderStatus.NOT_FINITE)
    ranks = [factor[0].shape[-1] for factor in around.series.factors]
    if any(map(is_indefinite, means, ranks)):
        return NextOrder(NextOrderStatus.NOT_POSITIVE, correction)
    variances = np.einsum("abab", around.averages.covariance)
    spread = float(np.sqrt(variances) / np.linalg.norm(means[0]))
    large = correction > LARGEST_SHIFT or spread > LARGEST_SPREAD
    status = NextOrderStatus.LARGE if large else NextOrderStatus.FINE
    rows, coordinates = len(means[0]), posterior.coordinates.size
    fits = max(rows**6, (rows * coordinates) ** 2) <= LARGEST_THIRD_DERIVATIVES
    log_evidence = log_evidence_at_next_order(around) if evidence and fits else float("nan")
    return NextOrder(status, correction, spread, means, log_evidence, around)


def is_indefinite(mean: Float[np.ndarray, "row row"], rank: int) -> bool:
    """Whether a posterior mean of U has eigenvalues that no matrix of this rank has.

    A narrow layer has a mean with as many small eigenvalues as U has zeros: they may be zero.
    """
    eigenvalues = np.linalg.eigvalsh(mean)
    lowest = 0.0 if rank == len(mean) else -1e-12 * eigenvalues[-1]
    return bool(eigenvalues[0] <= lowest)
