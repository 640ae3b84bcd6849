"""The law in which particles begin: the prior, mixed with a law at every mode that descents reach.

A law from which particles begin must reach every part of the posterior that has weight. Draws from
the prior do not where a phase transition of first order lies between prior and posterior: none of
them stands in the other phase. Descents from far outside the prior reach it.
"""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, Int

from sampler.posterior.space import Gaussian, Space
from sampler.runtime import side_by_side
from sampler.streams import Stream, jax_key, stream

Numbers = Array | np.ndarray
# Descents: from the mean of the prior, from the mode where the space has one, from so many draws of
# the prior that stand further from its mean by these factors in turn, and, for each factor, from so
# many points at which one coordinate alone does: what is a phase of its own may be narrow, and is
# entered along few directions. Of so many such points the likeliest are taken.
FACTORS = (4.0, 8.0, 16.0, 32.0)
WIDE_STARTS, PUSHED_STARTS, PUSHED_POINTS = 8, 8, 256
DESCENT_STEPS, GRADIENT_TOLERANCE, MEMORY = 400, 1e-5, 20
# Two ends of descents are one mode where the Hessian puts them closer than this (squared).
SAME_MODE = 0.5
MOST_MODES = 8
# By Laplace's approximation, modes of less than e^−50 of the largest weight are left out.
LEAST_LOG_WEIGHT = 50.0
# In more coordinates the diagonal of the Hessian is estimated, from so many random directions.
DENSE_COORDINATES, PROBES = 256, 32
# Curvature in units of the prior: the law at a mode is at most twice as wide as it.
LEAST_CURVATURE = 0.25
PRIOR_SHARE = 0.5
# Degrees of freedom of Student's law at a mode. A Gaussian there is narrower than a posterior that
# is skew, and a rare particle beyond it then carries what all others lack in evidence.
TAIL = 4.0
DRAWN_TOGETHER = 64


@register_dataclass
@dataclass(frozen=True)
class InitialDistribution:
    """Law q_0 in which particles begin: the prior, mixed with Student's law at every mode.

        t_k(x) ∝ (1 + |W_k (x − m_k)|²/ν)^{−(ν + d)/2},   d coordinates, ν = `TAIL`

    space        whose prior it is
    log_shares   [1 + mode], the prior's first
    centres      m_k [mode, coordinate]
    whitenings   W_k [mode, coordinate, coordinate], or their diagonals [mode, coordinate]
    log_volumes  ln |det W_k| [mode]
    """

    space: Space
    log_shares: Float[Numbers, " component"]
    centres: Float[Numbers, "mode coordinate"]
    whitenings: Float[Numbers, "mode coordinate coordinate"] | Float[Numbers, "mode coordinate"]
    log_volumes: Float[Numbers, " mode"]

    @classmethod
    def prior(cls, space: Space) -> "InitialDistribution":
        """The prior alone."""
        empty = np.zeros((0, space.size))
        return cls(space, np.zeros(1), empty, empty, np.zeros(0))

    @property
    def prior_alone(self) -> "InitialDistribution":
        """The prior as a law of the same arrays, which the same programs serve."""
        shares = np.full(1 + self.modes, -np.inf)
        shares[0] = 0.0
        return replace(self, log_shares=shares)

    @property
    def modes(self) -> int:
        """Number of modes."""
        return len(self.centres)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All numbers beside those of the prior, by name."""
        names = ("log_shares", "centres", "whitenings", "log_volumes")
        return {name: np.asarray(getattr(self, name)) for name in names}

    def log_density(self, point: Float[Array, " coordinate"]) -> Float[Array, ""]:
        """Log density ln q_0(x), normalised."""
        of_prior = self.space.log_prior(self.space.unflatten(point))
        if not self.modes:
            return of_prior
        away = point[None] - self.centres
        if self.whitenings.ndim == 2:
            squares = jnp.sum((self.whitenings * away) ** 2, axis=1)
        else:
            squares = jnp.sum(jnp.einsum("kij,kj->ki", self.whitenings, away) ** 2, axis=1)
        tail = 0.5 * (TAIL + len(point)) * jnp.log1p(squares / TAIL)
        humps = self.log_volumes + log_density_at_centre(len(point)) - tail
        terms = jnp.concatenate([of_prior[None], humps])
        return jax.nn.logsumexp(self.log_shares + terms)

    def nearest_mode(
        self, points: Float[np.ndarray, "draw coordinate"]
    ) -> Int[np.ndarray, " draw"]:
        """Number of the mode that each point is nearest to in its units; −1 where there is none."""
        if not self.modes:
            return np.full(len(points), -1)
        distances = []
        for centre, whitening in zip(self.centres, self.whitenings, strict=True):
            away, scale = points - np.asarray(centre), np.asarray(whitening)
            whitened = away * scale if scale.ndim == 1 else away @ scale.T
            distances.append(np.sum(whitened**2, axis=1))
        return np.argmin(distances, axis=0)

    def draw(self, count: int, seed: tuple[int, int, int]) -> Float[np.ndarray, "_draw coordinate"]:
        """Draws from the law; components have the numbers that their shares say, to the nearest.

        Every draw by itself has the law q_0: one uniform number rounds all numbers up or down.

        seed  the seed, and what numbers the draws
        """
        first, *rest = seed
        rng, key = stream(first, Stream.PARTICLES, *rest), jax_key(first, Stream.PARTICLES, *rest)
        marks = (np.arange(count) + rng.random()) / count
        edges = np.cumsum(np.exp(self.log_shares))
        component = np.searchsorted(edges / edges[-1], marks, side="right")
        points = np.empty((count, self.space.size))
        chosen = component == 0
        points[chosen] = draw_prior_points(key, int(chosen.sum()), self.space)
        normal = rng.standard_normal(points.shape)
        normal /= np.sqrt(rng.chisquare(TAIL, (count, 1)) / TAIL)
        for mode in range(self.modes):
            chosen, whitening = component == mode + 1, np.asarray(self.whitenings[mode])
            if whitening.ndim == 1:
                away = normal[chosen] / whitening
            else:
                away = np.linalg.solve(whitening, normal[chosen].T).T
            points[chosen] = np.asarray(self.centres[mode]) + away
        return points


def log_density_at_centre(size: int) -> float:
    """Logarithm of the density at the centre of Student's law in so many unit coordinates."""
    gammas = math.lgamma(0.5 * (TAIL + size)) - math.lgamma(0.5 * TAIL)
    return gammas - 0.5 * size * math.log(TAIL * math.pi)


def draw_prior_points(key: Array, count: int, space: Space) -> Float[np.ndarray, "_draw coord"]:
    """Draws from the prior, so many at a time that one program serves any number."""
    keys = jax.random.split(key, -(-max(count, 1) // DRAWN_TOGETHER) * DRAWN_TOGETHER)
    blocks = [
        np.asarray(_draw_prior_points(keys[first : first + DRAWN_TOGETHER], space))
        for first in range(0, len(keys), DRAWN_TOGETHER)
    ]
    return np.concatenate(blocks)[:count]


@jax.jit
def _draw_prior_points(keys, space: Space):
    return jax.vmap(lambda key: space.flatten(space.draw_prior(key)))(keys)


# --- descents


@dataclass(frozen=True)
class Descents:
    """Ends of descents on −ln p(x, y) by L-BFGS.

    values     ln p(x, y) there
    gradients  of all of them
    """

    ends: Float[np.ndarray, "start coordinate"]
    values: Float[np.ndarray, " start"]
    gradients: int


def descend_from_far(space: Space, seed: int) -> Descents:
    """Descend from all starts, one after the other; an end that is no point has the value −∞."""
    from scipy.optimize import minimize

    prior, count = space.prior_gaussian, 0

    def value_and_slope(z):
        nonlocal count
        count += 1
        value, slope = _value_and_slope(jnp.asarray(z), prior, space)
        return float(value), np.asarray(slope, float)

    options = {"maxiter": DESCENT_STEPS, "maxcor": MEMORY, "gtol": GRADIENT_TOLERANCE, "ftol": 0.0}
    ends, values = [], []
    for start in np.asarray(far_starts(space, prior, seed), float):
        with np.errstate(all="ignore"):  # far outside, numbers may be too large
            ended = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options)
        ends.append(np.asarray(prior.centre) + np.asarray(prior.scale) * ended.x)
        values.append(-ended.fun if np.isfinite(ended.fun) else -np.inf)
    return Descents(np.stack(ends), np.array(values), count)


def far_starts(space: Space, prior: Gaussian, seed: int) -> Float[np.ndarray, "start coordinate"]:
    """Starts of descents, in units of the prior about its mean."""
    size, rng = space.size, stream(seed, Stream.FAR_STARTS)
    key = jax_key(seed, Stream.FAR_STARTS)
    centre, scale = np.asarray(prior.centre), np.asarray(prior.scale)
    draws = (draw_prior_points(key, WIDE_STARTS, space) - centre) / scale
    wide = np.resize(FACTORS, WIDE_STARTS)[:, None] * draws
    # Every coordinate and sign in few coordinates, an even choice of them in many.
    every = np.stack(np.meshgrid(np.arange(size), (-1.0, 1.0)), axis=-1).reshape(-1, 2)
    chosen = rng.permutation(every)[:PUSHED_POINTS]
    directions = np.zeros((len(chosen), size))
    directions[np.arange(len(chosen)), chosen[:, 0].astype(int)] = chosen[:, 1]
    pushed = []
    for factor in FACTORS:
        values = np.asarray(_log_likelihoods(centre + scale * factor * directions, space))
        best = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")[:PUSHED_STARTS]
        pushed.append(factor * directions[best])
    modes = []
    if space.mode is not None:
        modes.append((np.asarray(space.mode.gaussian.centre) - centre)[None] / scale)
    return np.concatenate([np.zeros((1, size)), *modes, wide, *pushed])


def mixture_at_modes(space: Space, descents: Descents, seed: int) -> InitialDistribution:
    """The prior mixed with Student's law at every mode that descents reached, of the scale H⁻¹.

    Half the prior, the other half the modes in equal parts: how much weight each has is what the
    particles are to find out. Where descents end nowhere, the prior alone.
    """
    ends, values = descents.ends, descents.values
    scale = np.asarray(space.prior_gaussian.scale, float)
    modes: list[tuple[float, np.ndarray, np.ndarray]] = []
    for place in np.argsort(-values, kind="stable"):
        if len(modes) == MOST_MODES or not np.isfinite(values[place]):
            break
        end = ends[place]
        if any(_distance(whitening, (end - at) / scale) < SAME_MODE for _, at, whitening in modes):
            continue
        sizes, whitening = fit_at(end, scale, space, stream(seed, Stream.CURVATURES, int(place)))
        weight = float(values[place] - 0.5 * np.sum(np.log(sizes)))
        largest = max((mode[0] for mode in modes), default=weight)
        if np.isfinite(weight) and weight >= largest - LEAST_LOG_WEIGHT:
            modes.append((weight, end, whitening))
    if not modes:
        return InitialDistribution.prior(space)
    of_modes = [math.log((1.0 - PRIOR_SHARE) / len(modes))] * len(modes)
    whitenings = np.stack([whitening for *_, whitening in modes]) / scale
    return InitialDistribution(
        space,
        np.array([math.log(PRIOR_SHARE), *of_modes]),
        np.stack([end for _, end, _ in modes]),
        whitenings,
        np.array([_log_volume(whitening) for whitening in whitenings]),
    )


def fit_at(
    end: np.ndarray, scale: np.ndarray, space: Space, rng: np.random.Generator
) -> tuple[Float[np.ndarray, " coordinate"], np.ndarray]:
    """Curvatures of −ln p(x, y) at a point, in units of the prior, and what whitens by them.

    Eigenvalues of the Hessian, or its diagonal in many coordinates; at least `LEAST_CURVATURE`.
    """
    at = Gaussian(jnp.asarray(end), jnp.asarray(scale))
    if len(end) > DENSE_COORDINATES:
        probes = rng.choice([-1.0, 1.0], (PROBES, len(end)))
        sizes = np.asarray(_diagonal(at, probes, space))
        sizes = np.maximum(np.nan_to_num(sizes, nan=1.0), 1.0)
        return sizes, np.sqrt(sizes)
    hessian = np.nan_to_num(np.asarray(_curvature(at, space)))
    eigenvalues, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    sizes = np.maximum(eigenvalues, LEAST_CURVATURE)
    return sizes, (vectors * np.sqrt(sizes)).T


def _distance(whitening: np.ndarray, away: np.ndarray) -> float:
    """|W away|²."""
    whitened = whitening * away if whitening.ndim == 1 else whitening @ away
    return float(whitened @ whitened)


def _log_volume(whitening: np.ndarray) -> float:
    """ln |det W|, of a matrix or of a diagonal."""
    if whitening.ndim == 1:
        return float(np.sum(np.log(np.abs(whitening))))
    return float(np.linalg.slogdet(whitening)[1])


@jax.jit
def _log_likelihoods(points, space: Space):
    def of_point(point):
        return space.log_likelihood(space.unflatten(point))

    return jax.lax.map(of_point, points, batch_size=side_by_side(DRAWN_TOGETHER))


def _potential_about(space: Space, at: Gaussian):
    """−ln p(x, y) of x = centre + scale · z, as a function of z."""
    return lambda z: space.potential(at.at(z))


@jax.jit
def _value_and_slope(z, at: Gaussian, space: Space):
    return jax.value_and_grad(_potential_about(space, at))(z)


@jax.jit
def _curvature(at: Gaussian, space: Space):
    """Hessian of −ln p(x, y) in units of the prior."""
    slope = jax.grad(_potential_about(space, at))
    origin = jnp.zeros_like(at.centre)
    return jax.lax.map(lambda v: jax.jvp(slope, (origin,), (v,))[1], jnp.eye(len(origin)))


@jax.jit
def _diagonal(at: Gaussian, probes, space: Space):
    """Estimate of the diagonal of the same Hessian H: mean of v · H v over random signs v."""
    slope = jax.grad(_potential_about(space, at))
    origin = jnp.zeros_like(at.centre)
    products = jax.lax.map(lambda v: v * jax.jvp(slope, (origin,), (v,))[1], probes)
    return jnp.mean(products, axis=0)
