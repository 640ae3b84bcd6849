"""The distribution in which particles begin: the prior, mixed with one at every mode found.

It must reach every part of the posterior that has weight. Draws from the prior do not, if a phase
transition of first order lies between prior and posterior: none of them is in the other phase.
Descents from far outside the prior reach it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, Int

from sampler.posterior.densities import (
    hessian_products,
    log_likelihood,
    potential_and_slope,
    values_at,
)
from sampler.posterior.importance_weights import systematic_resampling
from sampler.posterior.space import Space
from sampler.posterior.t_mixture import TMixture, stretched
from sampler.runtime import side_by_side
from sampler.streams import Stream, jax_key, stream

# Descents: from the mean of the prior, from the mode where the space has one, from so many draws of
# the prior that stand further from its mean by these factors in turn, and, for each factor, from so
# many points at which one coordinate alone does: a separate phase may be narrow, and is
# entered along few directions. The likeliest of this number of points are taken.
FACTORS = (4.0, 8.0, 16.0, 32.0)
WIDE_STARTS, PUSHED_STARTS, PUSHED_POINTS = 8, 8, 256
DESCENT_STEPS, GRADIENT_TOLERANCE, MEMORY = 400, 1e-5, 20
# Two ends of descents are one mode where the Hessian puts them closer than this (squared).
SAME_MODE = 0.5
MOST_MODES = 8
# By Laplace's approximation, modes of less than e^−50 of the largest weight are left out.
LEAST_LOG_WEIGHT = 50.0
# In more coordinates the diagonal of the Hessian is estimated, from these random directions.
WHOLE_HESSIAN, PROBES = 256, 32
# Curvature in units of the prior: the distribution at a mode is at most twice as wide as it.
LEAST_CURVATURE = 0.25
PRIOR_SHARE = 0.5
# Degrees of freedom of Student's t at a mode. A Gaussian there is narrower than a posterior that
# is skew, and a rare particle beyond it then carries what all others lack in evidence.
TAIL = 4.0
DRAWN_TOGETHER = 64


@register_dataclass
@dataclass(frozen=True)
class InitialDistribution:
    """Distribution q_0 in which particles begin: the prior, mixed with Student's t at every mode.

    space      whose prior it is
    log_share  of the prior
    at_modes   the other distributions, with their shares
    """

    space: Space
    log_share: Float[Array | np.ndarray, ""]
    at_modes: TMixture

    @classmethod
    def prior(cls, space: Space) -> "InitialDistribution":
        """The prior alone."""
        none = np.zeros((0, space.size))
        return cls(space, np.zeros(()), TMixture(np.zeros(0), none, none, np.zeros(0), TAIL))

    @classmethod
    def of(cls, space: Space, arrays: Mapping[str, np.ndarray]) -> "InitialDistribution":
        """The distribution whose `arrays` these are."""
        of_modes = {name: values for name, values in arrays.items() if name != "log_share"}
        return cls(space, arrays["log_share"], TMixture(**of_modes, degrees=TAIL))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All numbers besides those of the prior, by name."""
        values = {"log_share": self.log_share, **vars(self.at_modes)}
        return {name: np.asarray(value) for name, value in values.items() if name != "degrees"}

    @property
    def prior_alone(self) -> "InitialDistribution":
        """The prior as a distribution of the same arrays, which the same programs serve."""
        nothing = replace(self.at_modes, log_shares=np.full(self.modes, -np.inf))
        return replace(self, log_share=np.zeros(()), at_modes=nothing)

    @property
    def modes(self) -> int:
        """Number of modes."""
        return len(self.at_modes.centres)

    def log_density(self, point: Float[Array, " coordinate"]) -> Float[Array, ""]:
        """Log density ln q_0(θ), normalised."""
        of_prior = self.log_share + self.space.log_prior(self.space.unflatten(point))
        if not self.modes:
            return of_prior
        terms = self.at_modes.log_terms(self.at_modes.squares(point))
        return jax.nn.logsumexp(jnp.concatenate([of_prior[None], terms]))

    def nearest_mode(
        self, points: Float[np.ndarray, "draw coordinate"]
    ) -> Int[np.ndarray, " draw"]:
        """Number of the mode that each point is nearest to in its units; −1 where there is none."""
        if not self.modes:
            return np.full(len(points), -1)
        return np.argmin(self.at_modes.squares(points), axis=0)

    def draw(self, count: int, seed: tuple[int, int, int]) -> Float[np.ndarray, "_draw coordinate"]:
        """Draws from the distribution; components have numbers by their shares, to the nearest.

        Every draw by itself has the distribution q_0: one uniform number rounds all numbers up or
        down.

        seed  the seed, and what numbers the draws
        """
        first, *rest = seed
        rng, key = stream(first, Stream.PARTICLES, *rest), jax_key(first, Stream.PARTICLES, *rest)
        shares = np.exp(np.append(self.log_share, self.at_modes.log_shares))
        component = systematic_resampling(shares / shares.sum(), count, rng)
        points, of_prior = np.empty((count, self.space.size)), component == 0
        points[of_prior] = draw_prior_points(self.space, int(of_prior.sum()), key)
        points[~of_prior] = self.at_modes.draw_each(component[~of_prior] - 1, rng)
        return points


def draw_prior_points(space: Space, count: int, key: Array) -> Float[np.ndarray, "_draw coord"]:
    """Draws from the prior, in batches of one size, so that one program serves any number."""
    keys = jax.random.split(key, -(-max(count, 1) // DRAWN_TOGETHER) * DRAWN_TOGETHER)
    blocks = [
        np.asarray(_draw_prior_points(keys[first : first + DRAWN_TOGETHER], space))
        for first in range(0, len(keys), DRAWN_TOGETHER)
    ]
    return np.concatenate(blocks)[:count]


@jax.jit
def _draw_prior_points(keys, space: Space):
    return jax.vmap(lambda key: space.flatten(space.draw_prior(key)))(keys)


# --- modes


def law_at_modes(space: Space, seed: int) -> tuple[InitialDistribution, int]:
    """The prior mixed with Student's t at every mode found, with the inverse Hessian as scale.

    Half the prior, the other half the modes in equal parts: the particles find the weight of each.
    Where descents end nowhere, the prior alone.
    """
    ends, values, gradients = descend_from_far(space, seed)
    heaviest, found = -np.inf, []
    for place in np.argsort(-values, kind="stable"):
        if len(found) == MOST_MODES or not np.isfinite(values[place]):
            break
        end = ends[place]
        if any(np.sum(stretched(w, end - centre) ** 2) < SAME_MODE for centre, w, _ in found):
            continue
        whitening, log_volume = fit_at(end, space, stream(seed, Stream.CURVATURES, int(place)))
        weight = float(values[place]) - log_volume
        if np.isfinite(weight) and weight >= heaviest - LEAST_LOG_WEIGHT:
            found.append((end, whitening, log_volume))
            heaviest = max(heaviest, weight)
    if not found:
        return InitialDistribution.prior(space), gradients
    shares = np.full(len(found), math.log((1.0 - PRIOR_SHARE) / len(found)))
    mixture = TMixture(shares, *map(np.array, zip(*found, strict=True)), TAIL)
    return InitialDistribution(space, np.array(math.log(PRIOR_SHARE)), mixture), gradients


def descend_from_far(space: Space, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Ends [start, coordinate] of descents on −ln p(θ, y) from all starts, by L-BFGS.

    With ln p(θ, y) there, −∞ at invalid ends, and the number of gradients.
    """
    from scipy.optimize import minimize

    (centre, scale), count = prior_moments(space), 0

    def value_and_slope(z):
        nonlocal count
        count += 1
        value, slope = potential_and_slope(space, centre + scale * z)
        return float(value), scale * np.asarray(slope, float)

    options = {"maxiter": DESCENT_STEPS, "maxcor": MEMORY, "gtol": GRADIENT_TOLERANCE, "ftol": 0.0}
    ends, values = [], []
    for start in far_starts(space, seed):
        with np.errstate(all="ignore"):  # far outside, numbers may be too large
            ended = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options)
        ends.append(centre + scale * ended.x)
        values.append(-ended.fun if np.isfinite(ended.fun) else -np.inf)
    return np.stack(ends), np.array(values), count


def prior_moments(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of every coordinate without data."""
    prior = space.prior_gaussian
    return np.asarray(prior.centre, float), np.asarray(prior.scale, float)


def far_starts(space: Space, seed: int) -> Float[np.ndarray, "start coordinate"]:
    """Starts of descents, in units of the prior about its mean."""
    size, (centre, scale) = space.size, prior_moments(space)
    drawn = draw_prior_points(space, WIDE_STARTS, jax_key(seed, Stream.FAR_STARTS))
    wide = np.resize(FACTORS, WIDE_STARTS)[:, None] * (drawn - centre) / scale
    # Every coordinate and sign in few coordinates, an even choice of them in many.
    every = np.stack(np.meshgrid(np.arange(size), (-1.0, 1.0)), axis=-1).reshape(-1, 2)
    chosen = stream(seed, Stream.FAR_STARTS).permutation(every)[:PUSHED_POINTS]
    directions = np.zeros((len(chosen), size))
    directions[np.arange(len(chosen)), chosen[:, 0].astype(int)] = chosen[:, 1]
    pushed, together = [], side_by_side(DRAWN_TOGETHER)
    for factor in FACTORS:
        points = centre + scale * factor * directions
        values = np.asarray(values_at(log_likelihood, space, points, together))
        best = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")[:PUSHED_STARTS]
        pushed.append(factor * directions[best])
    modes = []
    if space.mode is not None:
        modes.append((np.asarray(space.mode.gaussian.centre) - centre)[None] / scale)
    return np.concatenate([np.zeros((1, size)), *modes, wide, *pushed])


def fit_at(
    end: np.ndarray, space: Space, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "*shape coordinate"], float]:
    """The whitening by the curvature of −ln p(θ, y) at a point, and its log volume.

    By the Hessian, or its diagonal in many coordinates. Curvatures in units of the prior are at
    least `LEAST_CURVATURE`, where they are estimated at least 1.
    """
    _, scale = prior_moments(space)
    whole = len(end) <= WHOLE_HESSIAN
    directions = np.eye(len(end)) if whole else rng.choice([-1.0, 1.0], (PROBES, len(end)))
    products = scale * np.asarray(hessian_products(space, end, scale * directions), float)
    if not whole:
        # The mean of v · H v over random signs v.
        diagonal = np.nan_to_num(np.mean(directions * products, axis=0), nan=1.0)
        sizes = np.maximum(diagonal, 1.0)
        whitening = np.sqrt(sizes) / scale
    else:
        hessian = np.nan_to_num(products)
        eigenvalues, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
        sizes = np.maximum(eigenvalues, LEAST_CURVATURE)
        whitening = (vectors * np.sqrt(sizes)).T / scale
    return whitening, float(0.5 * np.sum(np.log(sizes)) - np.sum(np.log(scale)))
