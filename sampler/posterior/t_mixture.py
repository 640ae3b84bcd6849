"""Mixtures of t distributions, of JAX or NumPy arrays, and their fit to weighted points.

They have heavier tails than a posterior that is nearly Gaussian, so that weights p/q stay bounded.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, Int
from scipy.special import logsumexp

from sampler.posterior.importance_weights import effective_draws

Numbers = Array | np.ndarray
# The first fit has the curvature at one point only and needs heavy tails; later fits have the
# whole pilot sample, and lighter tails waste fewer draws (more so in many dimensions, where the
# radius of a nearly Gaussian posterior is sharp: there ν is the dimension).
FEWEST_REFITTED_DEGREES = 16.0
MOST_COMPONENTS = 4
# A component is worth having when it is fitted to this many effective draws per squared dimension.
DRAWS_PER_COMPONENT = 2
# Every refitted mixture keeps one broad component, which bounds the weights in its tails.
BROAD_SHARE = 0.05
BROAD_STRETCH = 1.5
FIT_STEPS = 25


@register_dataclass
@dataclass(frozen=True)
class TMixture:
    """Mixture of t distributions: the density of a component at the point θ is proportional to

        |det whitening| (1 + |whitening · (θ − centre)|²/ν)^{−(ν + coordinates)/2}.

    log_shares   logarithms of shares, which sum to one, or to less beside another distribution
    centres      modes of the components
    whitenings   inverse factors of scale matrices (whiteningᵀ · whitening)⁻¹, or their diagonals
    log_volumes  ln |det whitening|
    degrees      ν, the same for all components
    """

    log_shares: Float[Numbers, " component"]
    centres: Float[Numbers, "component coordinate"]
    whitenings: (
        Float[Numbers, "component coordinate coordinate"] | Float[Numbers, "component coordinate"]
    )
    log_volumes: Float[Numbers, " component"]
    degrees: float = field(metadata={"static": True})

    @classmethod
    def of(
        cls,
        shares: Float[np.ndarray, " component"],
        centres: Float[np.ndarray, "component coordinate"],
        covariances: Float[np.ndarray, "component coordinate coordinate"],
        degrees: float,
    ) -> "TMixture":
        """The mixture whose components have these scale matrices."""
        lower = np.linalg.cholesky(covariances)
        volumes = -np.sum(np.log(np.diagonal(lower, axis1=1, axis2=2)), axis=1)
        return cls(np.log(shares), centres, np.linalg.inv(lower), volumes, degrees)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.centres.shape[1]

    def squares(
        self, points: Float[Numbers, "*draw coordinate"]
    ) -> Float[Numbers, "component ..."]:
        """Squared distances |whitening · (θ − centre)|², one component after the other."""
        pairs = zip(self.whitenings, self.centres, strict=True)
        whitened = [stretched(whitening, points - centre) for whitening, centre in pairs]
        return points.__array_namespace__().stack([(away**2).sum(-1) for away in whitened])

    def log_terms(
        self, squares: Float[Numbers, "component ..."]
    ) -> Float[Numbers, "component ..."]:
        """Logarithms of the terms, share times density, from the squared distances."""
        nu, size = self.degrees, self.size
        height = math.lgamma((nu + size) / 2) - math.lgamma(nu / 2)
        height -= size / 2 * math.log(nu * math.pi)
        tops = (self.log_shares + self.log_volumes + height).reshape(-1, *(1,) * (squares.ndim - 1))
        return tops - (nu + size) / 2 * squares.__array_namespace__().log1p(squares / nu)

    def log_density(
        self, points: Float[np.ndarray, "draw coordinate"]
    ) -> Float[np.ndarray, " draw"]:
        """Log density of points."""
        return logsumexp(self.log_terms(self.squares(points)), axis=0)

    def draw(self, count: int, rng: np.random.Generator) -> Float[np.ndarray, "_draw coordinate"]:
        """Independent draws in random order."""
        components = rng.choice(len(self.centres), count, p=np.exp(self.log_shares))
        return self.draw_each(components, rng)

    def draw_each(
        self, components: Int[np.ndarray, " draw"], rng: np.random.Generator
    ) -> Float[np.ndarray, "draw coordinate"]:
        """One draw from each of these components."""
        points = rng.standard_normal((len(components), self.size))
        points *= np.sqrt(self.degrees / rng.chisquare(self.degrees, (len(components), 1)))
        for k, (centre, whitening) in enumerate(zip(self.centres, self.whitenings, strict=True)):
            back = 1.0 / whitening if whitening.ndim == 1 else np.linalg.inv(whitening)
            points[components == k] = centre + stretched(back, points[components == k])
        return points

    @property
    def moments(
        self,
    ) -> tuple[Float[np.ndarray, " coordinate"], Float[np.ndarray, "coordinate coordinate"]]:
        """Centre and scale matrix of all together, without the factor ν/(ν − 2) of t tails."""
        scales = np.linalg.inv(self.whitenings)
        covariances = scales @ scales.swapaxes(1, 2)
        return moments_of(np.exp(self.log_shares), self.centres, covariances)


def stretched(
    matrix: Float[Numbers, "coordinate coordinate"] | Float[Numbers, " coordinate"],
    points: Float[Numbers, "*draw coordinate"],
) -> Float[Numbers, "*draw coordinate"]:
    """Points times a matrix, or a diagonal."""
    return points * matrix if matrix.ndim == 1 else points @ matrix.T


Components = tuple[np.ndarray, np.ndarray, np.ndarray]


def moments_of(shares, centres, covariances) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a mixture."""
    centre = shares @ centres
    away = centres - centre
    own = np.einsum("k,kij->ij", shares, covariances)
    return centre, own + np.einsum("k,ki,kj->ij", shares, away, away)


def refit(
    previous: TMixture,
    points: Float[np.ndarray, "draw coordinate"],
    weights: Float[np.ndarray, " draw"],
    rng: np.random.Generator,
) -> TMixture:
    """The mixture nearest (in ∫ p ln p/q) to a weighted sample, found by expectation maximisation.

    Weights sum to one. ∫ p ln p/q grows by dimension/(2 draws) for a fitted mean, by about
    dimension²/(4 draws) for a fitted covariance: centres are shrunk towards the previous mixture
    with as many pseudo draws as dimensions, scales with their square, so a sample with few
    effective draws changes little.
    """
    size, (centre, spread) = previous.size, previous.moments
    effective = effective_draws(weights)
    count = int(np.clip(effective // (DRAWS_PER_COMPONENT * size**2), 1, MOST_COMPONENTS))
    chosen = rng.choice(len(points), count, p=weights)
    centres = points[chosen] if count > 1 else centre[None]
    degrees = max(FEWEST_REFITTED_DEGREES, float(size))
    shares, covariances = np.full(count, 1.0 / count), np.repeat(spread[None], count, axis=0)
    for _ in range(FIT_STEPS):
        mixture = TMixture.of(shares, centres, covariances, degrees)
        shares, centres, covariances = _improved(mixture, points, weights, centre, spread)
    middle, broad = moments_of(shares, centres, covariances)
    return TMixture.of(
        np.append((1.0 - BROAD_SHARE) * shares, BROAD_SHARE),
        np.concatenate([centres, middle[None]]),
        np.concatenate([covariances, BROAD_STRETCH**2 * broad[None]]),
        degrees,
    )


def _improved(mixture: TMixture, points, weights, centre, spread) -> Components:
    """Shares, centres and scale matrices after one step of expectation maximisation."""
    squares = mixture.squares(points)
    logs = mixture.log_terms(squares)
    belonging = np.exp(logs - logsumexp(logs, axis=0)) * weights
    damping, size = mixture.degrees + mixture.size, mixture.size
    masses = belonging.sum(axis=1)
    centres, covariances = [], []
    for own, square, mass in zip(belonging, squares, masses, strict=True):
        draws = mass**2 / np.sum(own**2)
        moved, reshaped = draws / (draws + size), draws / (draws + size**2)
        damped = own * damping / (mixture.degrees + square)
        mean = damped @ points / damped.sum()
        away = points - mean
        covariance = (away.T * (damped / mass)) @ away
        centres.append(moved * mean + (1 - moved) * centre)
        covariances.append(reshaped * covariance + (1 - reshaped) * spread)
    return masses / masses.sum(), np.stack(centres), np.stack(covariances)
