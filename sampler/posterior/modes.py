"""Modes of a density by descents from far outside its prior, and mixtures of laws there.

A law from which particles begin must reach every part of the posterior that has weight. Draws from
the prior do not where a phase transition of first order lies between prior and posterior: none of
them stands in the other phase. Descents from far outside find it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro import distributions as dist

from sampler.devices import side_by_side
from sampler.posterior.density import Coordinates, Density, drawn_sites

Numbers = Array | np.ndarray
# Descents: from the mean of the prior, from the mode where the density knows one, from so many
# draws of the prior that stand further from its mean by these factors in turn, and, for each
# factor, from so many points at which one coordinate alone does: what is a phase of its own may be
# narrow, and is entered along few directions. Of so many such points the likeliest are taken.
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


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["priors", "log_shares", "centres", "whitenings", "log_volumes"],
    meta_fields=[],
)
@dataclass(frozen=True)
class StartLaw:
    """Law q_0 in which particles begin: the prior, mixed with Student's law at every mode.

        t_k(x) ∝ (1 + |W_k (x − m_k)|²/ν)^{−(ν + d)/2},   d coordinates, ν = `TAIL`

    priors       of every site
    log_shares   [1 + mode], the prior's first
    centres      m_k [mode, coordinate]
    whitenings   W_k [mode, coordinate, coordinate], or their diagonals [mode, coordinate]
    log_volumes  ln |det W_k| [mode]
    """

    priors: Mapping[str, dist.Distribution]
    log_shares: Float[Numbers, " component"]
    centres: Float[Numbers, "mode coordinate"]
    whitenings: Float[Numbers, "mode coordinate coordinate"] | Float[Numbers, "mode coordinate"]
    log_volumes: Float[Numbers, " mode"]

    @classmethod
    def prior(cls, density: Density) -> "StartLaw":
        """The prior alone."""
        size = density.coordinates.size
        none = np.zeros((0, size))
        return cls(density.priors, np.zeros(1), none, none, np.zeros(0))

    @property
    def prior_alone(self) -> "StartLaw":
        """The prior as a law of the same arrays, which the same programs serve."""
        shares = np.full(1 + self.modes, -np.inf)
        shares[0] = 0.0
        return replace(self, log_shares=shares)

    @property
    def modes(self) -> int:
        return len(self.centres)

    @property
    def coordinates(self) -> Coordinates:
        return Coordinates.of(self.priors)

    def log_density(self, point: Float[Array, " coordinate"]) -> Float[Array, ""]:
        """ln q_0(x), normalised."""
        position = self.coordinates.unflatten(point)
        of_prior = sum(jnp.sum(prior.log_prob(position[n])) for n, prior in self.priors.items())
        if not self.modes:
            return of_prior
        tail = 0.5 * (TAIL + len(point)) * jnp.log1p(self.squared_distances(point) / TAIL)
        humps = self.log_volumes + log_constant(len(point)) - tail
        terms = jnp.concatenate([of_prior[None], humps])
        return jax.nn.logsumexp(self.log_shares + terms)

    def squared_distances(self, point: Float[Array, " coordinate"]) -> Float[Array, " mode"]:
        """|W_k (x − m_k)|² from every mode."""
        away = point - self.centres
        if self.whitenings.ndim == 2:
            return jnp.sum((self.whitenings * away) ** 2, axis=1)
        return jnp.sum(jnp.einsum("kij,kj->ki", self.whitenings, away) ** 2, axis=1)

    def nearest_mode(
        self, points: Float[np.ndarray, "draw coordinate"]
    ) -> Int[np.ndarray, " draw"]:
        """Number of the mode that each point is nearest to in its units; −1 where there is none."""
        if not self.modes:
            return np.full(len(points), -1)
        found = []
        for centre, whitening in zip(self.centres, self.whitenings, strict=True):
            away, scale = points - np.asarray(centre), np.asarray(whitening)
            found.append(np.sum((away * scale if scale.ndim == 1 else away @ scale.T) ** 2, axis=1))
        return np.argmin(found, axis=0)

    def draw(self, count: int, seed: tuple[int, ...]) -> Float[np.ndarray, "_draw coordinate"]:
        """Draws from the law; components have the numbers that their shares say, to the nearest.

        Every draw by itself has the law q_0: one uniform number rounds all numbers up or down.
        """
        rng = np.random.default_rng(seed)
        marks = (np.arange(count) + rng.random()) / count
        edges = np.cumsum(np.exp(self.log_shares))
        component = np.searchsorted(edges / edges[-1], marks, side="right")
        points = np.empty((count, self.coordinates.size))
        own = component == 0
        key = jax.random.key(int(rng.integers(2**31)))
        points[own] = prior_points(key, int(own.sum()), self.priors)
        normal = rng.standard_normal(points.shape)
        normal /= np.sqrt(rng.chisquare(TAIL, (count, 1)) / TAIL)
        for k in range(self.modes):
            own, whitening = component == k + 1, np.asarray(self.whitenings[k])
            if whitening.ndim == 1:
                kick = normal[own] / whitening
            else:
                kick = np.linalg.solve(whitening, normal[own].T).T
            points[own] = np.asarray(self.centres[k]) + kick
        return points

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All numbers but those of the priors, by name."""
        names = ("log_shares", "centres", "whitenings", "log_volumes")
        return {name: np.asarray(getattr(self, name)) for name in names}


def log_constant(size: int) -> float:
    """Logarithm of the density at the centre of Student's law in so many unit coordinates."""
    gammas = math.lgamma(0.5 * (TAIL + size)) - math.lgamma(0.5 * TAIL)
    return gammas - 0.5 * size * math.log(TAIL * math.pi)


def prior_points(
    key: Array, count: int, priors: Mapping[str, dist.Distribution]
) -> Float[np.ndarray, "_draw coordinate"]:
    """Draws from the prior, so many at a time that one program serves any number."""
    keys = jax.random.split(key, -(-max(count, 1) // DRAWN_TOGETHER) * DRAWN_TOGETHER)
    blocks = [
        np.asarray(_prior_points(keys[first : first + DRAWN_TOGETHER], priors))
        for first in range(0, len(keys), DRAWN_TOGETHER)
    ]
    return np.concatenate(blocks)[:count]


@jax.jit
def _prior_points(keys, priors):
    coordinates = Coordinates.of(priors)
    return jax.vmap(lambda key: coordinates.flatten(drawn_sites(key, priors)))(keys)


def prior_centre_and_scale(
    density: Density,
) -> tuple[Float[Array, " coordinate"], Float[Array, " coordinate"]]:
    """Mean and standard deviation without data of every coordinate."""
    priors = [density.priors[name] for name in density.coordinates.names]

    def flat(values):
        return jnp.concatenate([jnp.reshape(one, -1) for one in values])

    return flat([p.mean for p in priors]), jnp.sqrt(flat([p.variance for p in priors]))


def mixture_at_modes(density: Density, descended: "Descents", seed: int) -> StartLaw:
    """The prior mixed with Student's law at every mode that descents found, of the scale H⁻¹.

    Half the prior, the other half the modes in equal parts: how much weight each has is what the
    particles are to find out. Where descents end nowhere, the prior alone.
    """
    ends, values = descended.ends, descended.values
    scale = np.asarray(prior_centre_and_scale(density)[1], float)
    found: list[tuple[float, np.ndarray, np.ndarray]] = []
    for place in np.argsort(-values, kind="stable"):
        if len(found) == MOST_MODES or not np.isfinite(values[place]):
            break
        end = ends[place]
        if any(_distance(whitening, (end - at) / scale) < SAME_MODE for _, at, whitening in found):
            continue
        sizes, whitening = fitted_there(end, scale, density, (seed, int(place)))
        weight = float(values[place] - 0.5 * np.sum(np.log(sizes)))
        largest = max((one[0] for one in found), default=weight)
        if np.isfinite(weight) and weight >= largest - LEAST_LOG_WEIGHT:
            found.append((weight, end, whitening))
    if not found:
        return StartLaw.prior(density)
    of_modes = [math.log((1.0 - PRIOR_SHARE) / len(found))] * len(found)
    whitenings = np.stack([whitening for *_, whitening in found]) / scale
    return StartLaw(
        density.priors,
        np.array([math.log(PRIOR_SHARE), *of_modes]),
        np.stack([end for _, end, _ in found]),
        whitenings,
        np.array([_log_volume(one) for one in whitenings]),
    )


def fitted_there(
    end: np.ndarray, scale: np.ndarray, density: Density, seed: tuple[int, ...]
) -> tuple[Float[np.ndarray, " coordinate"], np.ndarray]:
    """Curvatures of −ln p(x, y) at a point, in units of the prior, and what whitens by them.

    Eigenvalues of the Hessian, or its diagonal in many coordinates; at least `LEAST_CURVATURE`.
    """
    point, unit = jnp.asarray(end), jnp.asarray(scale)
    if len(end) > DENSE_COORDINATES:
        probes = np.random.default_rng(seed).choice([-1.0, 1.0], (PROBES, len(end)))
        sizes = np.asarray(_diagonal(point, unit, probes, density))
        sizes = np.maximum(np.nan_to_num(sizes, nan=1.0), 1.0)
        return sizes, np.sqrt(sizes)
    hessian = np.nan_to_num(np.asarray(_curvature(point, unit, density)))
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


@dataclass(frozen=True)
class Descents:
    """Ends of descents on −ln p(x, y) by L-BFGS.

    values     ln p(x, y) there
    gradients  of all of them
    """

    ends: Float[np.ndarray, "start coordinate"]
    values: Float[np.ndarray, " start"]
    gradients: int


def descents(density: Density, seed: int) -> Descents:
    """Descend from all starts, one after the other; an end that is no point has the value −∞."""
    from scipy.optimize import minimize

    centre, scale = prior_centre_and_scale(density)
    count = 0

    def value_and_slope(z):
        nonlocal count
        count += 1
        value, slope = _value_and_slope(jnp.asarray(z), centre, scale, density)
        return float(value), np.asarray(slope, float)

    options = {"maxiter": DESCENT_STEPS, "maxcor": MEMORY, "gtol": GRADIENT_TOLERANCE, "ftol": 0.0}
    ends, values = [], []
    for start in np.asarray(far_starts(density, centre, scale, seed), float):
        with np.errstate(all="ignore"):  # far outside, numbers may be too large
            found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options)
        ends.append(np.asarray(centre) + np.asarray(scale) * found.x)
        values.append(-found.fun if np.isfinite(found.fun) else -np.inf)
    return Descents(np.stack(ends), np.array(values), count)


def far_starts(
    density: Density,
    centre: Float[Array, " coordinate"],
    scale: Float[Array, " coordinate"],
    seed: int,
) -> Float[Array, "start coordinate"]:
    """Starts of descents, in units of the prior about its mean."""
    size, rng = len(centre), np.random.default_rng(seed)
    draws = (prior_points(jax.random.key(seed), WIDE_STARTS, density.priors) - centre) / scale
    wide = np.resize(FACTORS, WIDE_STARTS)[:, None] * draws
    # Every coordinate and sign in few coordinates, an even choice of them in many.
    every = np.stack(np.meshgrid(np.arange(size), (-1.0, 1.0)), axis=-1).reshape(-1, 2)
    chosen = rng.permutation(every)[:PUSHED_POINTS]
    directions = np.zeros((len(chosen), size))
    directions[np.arange(len(chosen)), chosen[:, 0].astype(int)] = chosen[:, 1]
    pushed = []
    for factor in FACTORS:
        found = np.asarray(_log_likelihoods(centre + scale * factor * directions, density))
        best = np.argsort(-np.nan_to_num(found, nan=-np.inf), kind="stable")[:PUSHED_STARTS]
        pushed.append(factor * directions[best])
    known = [] if density.mode is None else [(density.mode.point - centre)[None] / scale]
    return jnp.concatenate([jnp.zeros((1, size)), *known, wide, *pushed])


def _negative(density: Density, point, scale):
    """−ln p(x, y) of x = point + scale · z, as a function of z."""
    return lambda z: -density.log_density(density.coordinates.unflatten(point + scale * z))


@jax.jit
def _log_likelihoods(points, density: Density):
    def one(point):
        position = density.coordinates.unflatten(point)
        return density.log_density(position) - density.log_prior(position)

    return jax.lax.map(one, points, batch_size=side_by_side(DRAWN_TOGETHER))


@jax.jit
def _value_and_slope(z, centre, scale, density: Density):
    return jax.value_and_grad(_negative(density, centre, scale))(z)


@jax.jit
def _curvature(point, scale, density: Density):
    """Hessian of −ln p(x, y) in units of the prior."""
    slope = jax.grad(_negative(density, point, scale))
    here = jnp.zeros_like(point)
    return jax.lax.map(lambda v: jax.jvp(slope, (here,), (v,))[1], jnp.eye(len(point)))


@jax.jit
def _diagonal(point, scale, probes, density: Density):
    """Estimate of the diagonal of the same Hessian H: mean of v · H v over random signs v."""
    slope = jax.grad(_negative(density, point, scale))
    here = jnp.zeros_like(point)
    products = jax.lax.map(lambda v: v * jax.jvp(slope, (here,), (v,))[1], probes)
    return jnp.mean(products, axis=0)
