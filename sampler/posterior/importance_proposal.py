"""What importance draws are proposed from: a mixture of multivariate t distributions."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, logsumexp

# The first fit knows the curvature at one point only and needs heavy tails; later fits know the
# whole pilot sample, and lighter tails waste fewer draws (more so in many dimensions, where the
# radius of a nearly Gaussian posterior is sharp: there ν is the dimension).
FIRST_DEGREES = 8.0
FEWEST_REFITTED_DEGREES = 16.0
MOST_COMPONENTS = 4
# A component is worth having when it is fitted to this many effective draws per squared dimension.
DRAWS_PER_COMPONENT = 2
# Every refitted proposal keeps one broad component, which bounds the weights in its tails.
BROAD_SHARE = 0.05
BROAD_STRETCH = 1.5
FIT_STEPS = 25


@dataclass(frozen=True)
class Proposal:
    """q(x) = Σ_k s_k t_ν(x; m_k, S_k S_kᵀ).

    shares   s_k [component], summing to one
    centres  m_k [component, coordinate]
    scales   S_k [component, coordinate, coordinate], lower triangular
    degrees  ν, the same for all components
    """

    shares: Float[np.ndarray, " component"]
    centres: Float[np.ndarray, "component coordinate"]
    scales: Float[np.ndarray, "component coordinate coordinate"]
    degrees: float

    @property
    def coordinates(self) -> int:
        """Dimension of x."""
        return self.centres.shape[1]

    def draw(self, count: int, rng: np.random.Generator) -> Float[np.ndarray, "_draw coordinate"]:
        """Independent draws in random order."""
        normal = rng.standard_normal((count, self.coordinates))
        stretch = np.sqrt(self.degrees / rng.chisquare(self.degrees, count))
        component = rng.choice(self.shares.size, count, p=self.shares)
        points = np.empty_like(normal)
        for k, (centre, scale) in enumerate(zip(self.centres, self.scales, strict=True)):
            own = component == k
            points[own] = centre + stretch[own, None] * (normal[own] @ scale.T)
        return points

    def log_density(
        self, points: Float[np.ndarray, "draw coordinate"]
    ) -> Float[np.ndarray, " draw"]:
        """ln q at every point."""
        return logsumexp(self.log_shares_and_densities(points)[0], axis=0)

    def log_shares_and_densities(
        self, points: Float[np.ndarray, "draw coordinate"]
    ) -> tuple[Float[np.ndarray, "component draw"], Float[np.ndarray, "component draw"]]:
        """ln s_k t_k(x), and the squared distance |S_k⁻¹ (x − m_k)|²."""
        nu, size = self.degrees, self.coordinates
        constant = gammaln((nu + size) / 2) - gammaln(nu / 2) - size / 2 * np.log(nu * np.pi)
        logs, squares = [], []
        for share, centre, scale in zip(self.shares, self.centres, self.scales, strict=True):
            whitened = (points - centre) @ np.linalg.inv(scale).T
            square = np.sum(whitened**2, axis=1)
            volume = np.sum(np.log(np.diagonal(scale)))
            logs.append(np.log(share) + constant - volume - (nu + size) / 2 * np.log1p(square / nu))
            squares.append(square)
        return np.stack(logs), np.stack(squares)

    @property
    def centre(self) -> Float[np.ndarray, " coordinate"]:
        """Mean of x."""
        return self.shares @ self.centres

    @property
    def spread(self) -> Float[np.ndarray, "coordinate coordinate"]:
        """Scale matrix of all components together, without the factor ν/(ν − 2) of t tails."""
        away = self.centres - self.centre
        own = np.einsum("k,kij,klj->il", self.shares, self.scales, self.scales)
        return own + np.einsum("k,ki,kj->ij", self.shares, away, away)


def single(centre, covariance, degrees: float = FIRST_DEGREES) -> Proposal:
    """One t distribution around a mode, with the inverse Hessian there as its scale matrix."""
    scale = np.linalg.cholesky(np.asarray(covariance, float))
    return Proposal(np.ones(1), np.asarray(centre, float)[None], scale[None], degrees)


def refit(
    previous: Proposal,
    points: Float[np.ndarray, "draw coordinate"],
    weights: Float[np.ndarray, " draw"],
    rng: np.random.Generator,
) -> Proposal:
    """The mixture nearest (in ∫ p ln p/q) to a weighted sample, found by expectation maximisation.

    Weights sum to one. Fitting a mean to n draws in d dimensions costs d/(2n) of ∫ p ln p/q,
    fitting a covariance about d²/(4n): centres are shrunk towards the previous proposal with d
    pseudo draws, scales with d², so a sample with few effective draws changes little.
    """
    size, prior = points.shape[1], previous.spread
    effective = 1.0 / np.sum(weights**2)
    count = int(np.clip(effective // (DRAWS_PER_COMPONENT * size**2), 1, MOST_COMPONENTS))
    chosen = rng.choice(len(points), count, p=weights)
    centres = points[chosen] if count > 1 else previous.centre[None]
    scales = np.repeat(np.linalg.cholesky(prior)[None], count, axis=0)
    degrees = max(FEWEST_REFITTED_DEGREES, float(size))
    mixture = Proposal(np.full(count, 1.0 / count), centres, scales, degrees)
    for _ in range(FIT_STEPS):
        mixture = _improved(mixture, points, weights, previous.centre, prior)
    return _with_broad_component(mixture)


def _improved(mixture: Proposal, points, weights, prior_centre, prior_spread) -> Proposal:
    """One step of expectation maximisation for a mixture of t distributions."""
    logs, squares = mixture.log_shares_and_densities(points)
    belonging = np.exp(logs - logsumexp(logs, axis=0)) * weights
    nu, size = mixture.degrees, mixture.coordinates
    masses = belonging.sum(axis=1)
    centres, scales = [], []
    for own, square, mass in zip(belonging, squares, masses, strict=True):
        draws = mass**2 / np.sum(own**2)
        moved, reshaped = draws / (draws + size), draws / (draws + size**2)
        damped = own * (nu + size) / (nu + square)
        mean = damped @ points / damped.sum()
        away = points - mean
        covariance = (away.T * (damped / mass)) @ away
        centres.append(moved * mean + (1 - moved) * prior_centre)
        scales.append(np.linalg.cholesky(reshaped * covariance + (1 - reshaped) * prior_spread))
    return Proposal(masses / masses.sum(), np.stack(centres), np.stack(scales), nu)


def _with_broad_component(mixture: Proposal) -> Proposal:
    broad = BROAD_STRETCH * np.linalg.cholesky(mixture.spread)
    return Proposal(
        np.append((1 - BROAD_SHARE) * mixture.shares, BROAD_SHARE),
        np.concatenate([mixture.centres, mixture.centre[None]]),
        np.concatenate([mixture.scales, broad[None]]),
        mixture.degrees,
    )
