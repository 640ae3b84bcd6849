"""The exact posterior around its mode: averages over its fluctuations to next order in 1/N.

In the Bartlett coordinates θ of `theory.wishart_chain` the exact posterior is exp(−Ψ(θ)) with

    Ψ(θ) = ½ E(U_1(θ)) − ln p(θ) + const,

E the energy of the labels and p(θ) the prior, a product over coordinates. With N and P
grown together Ψ is of order N. Around its minimum θ̂, with S the inverse of its Hessian there,

    ⟨θ − θ̂⟩ = −½ S d,    d_j = ∂_j tr(S ∇²Ψ), S held fixed,
    ⟨g(θ)⟩  = g(θ̂) − ½ ∇g·S d + ½ tr(S ∇²g) + O(N⁻²)

(Tierney and Kadane 1986). Functions of U_1 alone need its shift and its covariance only,

    ΔU_l = −½ ∂U_l·S d + ½ tr(S ∇²U_l),    Cov = ∂U_1 S ∂U_1ᵀ.

Derivatives of E are those of `theory.energy_derivatives`, derivatives of U are Taylor coefficients.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from theory.energy_derivatives import EnergyAt, EnergyAverages, LabelsAndPrior
from theory.overlaps import FactorSeries
from theory.saddle_point import Descent, SaddlePoint, dense_direction, descend
from theory.wishart_chain import BartlettCoordinates

TOLERANCE = 1e-8  # of |∇Ψ|, in coordinates of order one
MAX_STEPS = 100


@dataclass(frozen=True)
class LogPosterior(LabelsAndPrior):
    """Ψ(θ) = −ln p(θ, y) in Bartlett coordinates, normalised, with its first two derivatives."""

    weight: ClassVar[float] = 0.5

    @cached_property
    def coordinates(self) -> BartlettCoordinates:
        """The coordinates θ and their prior."""
        return BartlettCoordinates(self.problem.architecture)

    @property
    def constant(self) -> float:
        """Of the likelihood, ½ P O ln 2π."""
        return 0.5 * self.problem.labels.size * math.log(2.0 * math.pi)

    def mode(self, saddle: SaddlePoint) -> Descent:
        """Newton descent to θ̂, from the saddle point or, where a layer is narrow, from θ = 0."""
        start = np.zeros(self.coordinates.size)
        if self.problem.architecture.is_regular:
            start = self.coordinates.point_of(saddle.order_parameters.factors)
        # At fixed P/N the mode lies a distance of order √N from the centre of the prior.
        scales = np.full(start.size, max(self.problem.architecture.widths) ** 0.5)
        return descend(
            self.value_and_gradient,
            dense_direction(self.hessian),
            lambda point: scales,
            start,
            TOLERANCE,
            MAX_STEPS,
        )


@dataclass(frozen=True)
class Fluctuations:
    """The posterior around its mode θ̂, in directions v_a of unit variance, Σ v_a v_aᵀ = S.

    point       θ̂
    value       Ψ(θ̂)
    energy      E around U_1(θ̂)
    directions  v_a, one a row
    series      F_1 … F_{L+1} along θ̂ + ε v_a, to second order
    """

    posterior: LogPosterior
    point: Float[np.ndarray, " coordinate"]
    value: float
    energy: EnergyAt
    directions: Float[np.ndarray, "direction coordinate"]
    series: FactorSeries

    @classmethod
    def around(
        cls, posterior: LogPosterior, point: Float[np.ndarray, " coordinate"], value: float
    ) -> "Fluctuations":
        """Return the fluctuations around a mode.

        Raises numpy.linalg.LinAlgError where the Hessian is not positive.
        """
        energy = posterior.energy_at(point)
        directions = np.linalg.inv(np.linalg.cholesky(posterior.hessian(point, energy)))
        series = posterior.coordinates.series(point, directions, 2)
        return cls(posterior, point, value, energy, directions, series)

    @cached_property
    def distance(self) -> float:
        """Distance of the point from the mode in standard deviations, √(∇Ψ·S ∇Ψ)."""
        gradient = self.posterior.value_and_gradient(self.point)[1]
        return float(np.linalg.norm(self.directions @ gradient))

    @cached_property
    def jacobian(self) -> Float[np.ndarray, "direction row row"]:
        """Derivative of U_1 along every direction."""
        return self.series.overlap(0, 1)

    @cached_property
    def averages(self) -> EnergyAverages:
        """Averages of E over Cov = Σ_a ∂_a U_1 ∂_a U_1ᵀ."""
        rows = self.jacobian.shape[1]
        flat = self.jacobian.reshape(len(self.jacobian), -1)
        return EnergyAverages(self.energy, (flat.T @ flat).reshape((rows,) * 4))

    @cached_property
    def curved(self) -> list[Float[np.ndarray, "_row _row"]]:
        """tr(S ∇²U_l) = Σ_a ∂²U_l along direction a, of every layer."""
        links = range(len(self.series.factors))
        return [self.series.overlap(link, 2).sum(axis=0) for link in links]

    @cached_property
    def flat_curvature(self) -> Float[np.ndarray, "row_row row_row"]:
        """∂²E as a matrix of pairs (a, b)."""
        square = self.jacobian[0].size
        return self.energy.curvature.reshape(square, square)

    @cached_property
    def drift(self) -> Float[np.ndarray, " direction"]:
        """The vector d along every direction.

        ½ (∂³E[Cov, ∂U] + 2 Σ_a ∂²E[∂_a∂U, ∂_aU] + ∂²E[Δ, ∂U] + Σ ∂E/∂U ∂Δ) + Σ_j S_jj Ψ_j‴,
        Δ = tr(S ∇²U_1)
        """
        (factor, first, second), slope = self.series.factors[0], self.energy.slope
        rows = slope.shape[0]
        flat = self.jacobian.reshape(len(self.jacobian), -1)
        by_direction = (flat @ self.flat_curvature).reshape(-1, rows, rows)
        by_curved = (self.flat_curvature @ self.curved[0].reshape(-1)).reshape(rows, rows)
        weights = [
            2.0 * by_direction @ first + 2.0 * slope @ second,
            2.0 * by_direction @ factor + 2.0 * slope @ first,
            2.0 * slope @ factor,
        ]
        total = self.series.pull_back(weights).sum(axis=0)
        total += self.series.pull_back([(self.averages.third + by_curved) @ factor])[0]
        prior = self.posterior.coordinates.prior_derivatives(self.point)[3]
        return self.directions @ (total + np.sum(self.directions**2, axis=0) * prior)

    @cached_property
    def shifts(self) -> list[Float[np.ndarray, "_row _row"]]:
        """ΔU_l = −½ ∂U_l·S d + ½ tr(S ∇²U_l), of every layer."""
        return [
            0.5 * (curved - np.tensordot(self.drift, self.series.overlap(link, 1), 1))
            for link, curved in enumerate(self.curved)
        ]

    @property
    def means(self) -> list[Float[np.ndarray, "_row _row"]]:
        """Posterior means ⟨U_l⟩ to next order."""
        return [self.series.overlap(link, 0)[0] + shift for link, shift in enumerate(self.shifts)]
