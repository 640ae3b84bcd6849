"""Independent weighted draws of the order parameters.

The mean weight of draws from a normalised proposal q is the evidence: E_q[p(x, y)/q(x)] = p(y).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln, logsumexp

from sampler.posterior.densities import count_lost, is_no_number
from sampler.posterior.order_parameters import OrderParameterSpace
from sampler.posterior.space import Gaussian
from sampler.runtime import batch_bytes
from sampler.streams import Stream, stream
from theory.path_kernels import Features, store_path_kernels
from theory.size_limits import HESSIAN_COORDINATES, stored_bytes

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
# Above this shape of the weights' tail the variance of estimates is practically infinite
# (Vehtari et al., Pareto smoothed importance sampling).
LARGEST_PARETO_K = 0.7
# Above this shape of their tail the weights have no variance.
LARGEST_K_WITH_VARIANCE = 0.5
# The tail is fitted to the √n largest weights; fewer draws leave too few of them to fit.
FEWEST_DRAWS = 400
ROUNDS, PILOT_DRAWS = 3, 8192
# Path kernels are stored up to this size: a batch of kernels is then one matrix product with them.
STORED_BYTES = 2**30
# Kernels at a time: fewer would leave cores idle, more would gain nothing.
SMALLEST_BATCH, LARGEST_BATCH = 8, 4096
# Batches of a compiled call: shorter calls are filled up, so it compiles once.
BATCHES = 32


@dataclass(frozen=True)
class Proposal:
    """Mixture of t distributions, q(x) = Σ_k s_k t_ν(x; m_k, S_k S_kᵀ).

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
        return logsumexp(self.log_shares_and_densities(points)[0], axis=0)

    def log_shares_and_densities(
        self, points: Float[np.ndarray, "draw coordinate"]
    ) -> tuple[Float[np.ndarray, "component draw"], Float[np.ndarray, "component draw"]]:
        """Return ln s_k t_k(x), and the squared distance |S_k⁻¹ (x − m_k)|²."""
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
        return self.shares @ self.centres

    @property
    def spread(self) -> Float[np.ndarray, "coordinate coordinate"]:
        """Scale matrix of all components together, without the factor ν/(ν − 2) of t tails."""
        away = self.centres - self.centre
        own = np.einsum("k,kij,klj->il", self.shares, self.scales, self.scales)
        return own + np.einsum("k,ki,kj->ij", self.shares, away, away)


def single(gaussian: Gaussian, degrees: float = FIRST_DEGREES) -> Proposal:
    """One t distribution around a mode, with the inverse Hessian there as its scale matrix."""
    covariance = np.asarray(gaussian.covariance, float)
    matrix = np.diag(covariance) if covariance.ndim == 1 else covariance
    scale = np.linalg.cholesky(matrix)
    return Proposal(np.ones(1), np.asarray(gaussian.centre, float)[None], scale[None], degrees)


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
    broad = BROAD_STRETCH * np.linalg.cholesky(mixture.spread)
    return Proposal(
        np.append((1 - BROAD_SHARE) * mixture.shares, BROAD_SHARE),
        np.concatenate([mixture.centres, mixture.centre[None]]),
        np.concatenate([mixture.scales, broad[None]]),
        mixture.degrees,
    )


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


@dataclass(frozen=True)
class ImportanceDraws:
    """Draws x from a proposal q with weights p(x, y)/q(x); no draw depends on another.

    points       flat Bartlett coordinates [draw, coordinate]
    log_weights  ln p(x, y) − ln q(x) [draw], not normalised
    pareto_k     shape of the tail of the weights
    lost         draws, of pilots, too, at which the density was not a number: their weight is zero
    """

    points: Float[np.ndarray, "draw coordinate"]
    log_weights: Float[np.ndarray, " draw"]
    pareto_k: float
    lost: int

    @property
    def weights(self) -> Float[np.ndarray, " draw"]:
        """Weights that sum to one."""
        return normalised_weights(self.log_weights)

    @property
    def effective_sample_size(self) -> float:
        """Effective number of draws, (Σ w)²/Σ w²."""
        return effective_draws(self.log_weights)

    @property
    def efficiency(self) -> float:
        """Effective draws per draw."""
        return self.effective_sample_size / len(self.log_weights)

    @property
    def log_evidence(self) -> float:
        """Log evidence ln p(y), from the mean weight."""
        return float(logsumexp(self.log_weights) - np.log(len(self.log_weights)))

    @property
    def log_evidence_error(self) -> float:
        """Error of ln p(y): relative deviation of the weights over √n, n^(k − ½) more above k = ½.

        Weights with a tail of shape k > ½ have no variance: the error of their mean falls as
        n^(−(1 − k)) alone, and the variance of a sample of them is too small by that factor.
        """
        count = len(self.log_weights)
        slower = count ** max(0.0, self.pareto_k - LARGEST_K_WITH_VARIANCE)
        return float(slower * np.sqrt(np.var(count * self.weights, ddof=1) / count))

    @property
    def trusted(self) -> bool:
        """Whether these weights may be used: Pareto k ≤ 0.7 and every density a number."""
        return bool(self.pareto_k <= LARGEST_PARETO_K and self.lost == 0)

    def explain(self) -> str:
        """One line: evidence, error, effective draws, tail shape and its limit."""
        text = (
            f"importance: ln p(y) = {self.log_evidence:.3f} ± {self.log_evidence_error:.3f}, "
            f"{self.effective_sample_size:.0f} effective draws of {len(self.log_weights)}, "
            f"Pareto k = {self.pareto_k:.2f} (limit {LARGEST_PARETO_K})"
        )
        return f"{text}, {self.lost} densities are no numbers (limit 0)" if self.lost else text


LogDensity = Callable[[Float[np.ndarray, "draw coordinate"]], Float[np.ndarray, " draw"]]
# Of points, ln p and ln q.
CountLost = Callable[[np.ndarray, np.ndarray, np.ndarray], int]


def importance_draws(
    space: OrderParameterSpace, draws: int, seed: int, adapted: bool = True
) -> ImportanceDraws:
    """Weighted draws of a posterior whose mode is known, from a proposal about that mode.

    adapted  whether the proposal is fitted to pilot samples; else it is the multivariate t of the
             mode and Hessian, whose heavy tails bound the weights of any number of draws

    Where the pilot samples of no proposal can be trusted, one of these is all that is returned:
    more draws from it would not be trusted, either.

    Raises ValueError for a space not in float64, without a mode, or with too many coordinates for
    a Hessian.
    """
    if space.mode is None:
        raise ValueError(f"space {space.name!r}: importance draws need the mode of the posterior")
    if space.dtype != jnp.float64:
        raise ValueError(
            f"importance weights need float64, got {space.dtype}: "
            "enable 64-bit numbers with jax.enable_x64(True) and pass a float64 problem"
        )
    require_hessian(space.size)
    rng, log_density = stream(seed, Stream.IMPORTANCE), BatchedDensity.of(space)
    proposal, lost = single(space.mode.gaussian), 0
    if adapted:
        proposal, pilot = adapt_proposal(proposal, log_density, rng)
        if not pilot.trusted:
            return pilot
        lost = pilot.lost
    drawn = draw_weighted(proposal, log_density, draws, rng, partial(count_lost, space))
    return replace(drawn, lost=drawn.lost + lost)


def adapt_proposal(
    proposal: Proposal, log_density: "BatchedDensity", rng: np.random.Generator
) -> tuple[Proposal, ImportanceDraws]:
    """A proposal refitted `ROUNDS` times to weighted pilot samples, and its own pilot sample.

    The best is kept, each judged by a pilot sample of its own: in many dimensions a refit can be
    worse than what it was fitted to. What is lost in any of the samples counts.
    """
    space, candidates, lost = log_density.space, [], 0
    for remaining in reversed(range(ROUNDS + 1)):
        pilot = draw_weighted(proposal, log_density, PILOT_DRAWS, rng, partial(count_lost, space))
        lost += pilot.lost
        heavy = pilot.pareto_k > LARGEST_PARETO_K
        candidates.append((heavy, -pilot.effective_sample_size, proposal, pilot))
        if remaining:
            proposal = refit(proposal, pilot.points, pilot.weights, rng)
    *_, proposal, pilot = min(candidates, key=lambda candidate: candidate[:2])
    return proposal, replace(pilot, lost=lost)


def draw_weighted(
    proposal: Proposal,
    log_density: LogDensity,
    draws: int,
    rng: np.random.Generator,
    count_lost: CountLost = lambda points, log_p, log_q: int(is_no_number(log_p).sum()),
) -> ImportanceDraws:
    """Fresh draws from a proposal, weighted.

    count_lost  says how many are lost; by default all at which the density is not a number

    Raises FloatingPointError where no draw has a finite density.
    """
    points = proposal.draw(draws, rng)
    log_p, log_q = log_density(points), proposal.log_density(points)
    lost = count_lost(points, log_p, log_q)
    log_weights = np.where(is_no_number(log_p), -np.inf, log_p) - log_q
    if not np.any(np.isfinite(log_weights)):
        raise FloatingPointError(
            f"none of {len(points)} importance draws has a finite density: rescale inputs and "
            "labels, or raise the temperature"
        )
    return ImportanceDraws(points, log_weights, pareto_k(log_weights), lost)


def require_hessian(coordinates: int) -> None:
    """Raise ValueError if the coordinates are too many for the Hessian at the mode."""
    if coordinates > HESSIAN_COORDINATES:
        raise ValueError(
            f"{coordinates:,} coordinates: the Hessian at the mode is too large (limit "
            f"{HESSIAN_COORDINATES:,}); sample without the evidence"
        )


# --- densities of many points


@dataclass(frozen=True)
class BatchedDensity:
    """ln p(x, y) of many points, so many kernels at a time as fit the caches.

    A value that is not a number stays so.
    """

    space: OrderParameterSpace
    batch: int

    @classmethod
    def of(cls, space: OrderParameterSpace) -> "BatchedDensity":
        """The density of a space, with path kernels stored where that makes batches cheaper."""
        space = with_stored_kernels(space)
        size, stored = space.data.labels.size, space.data.stored
        numbers, limit = 2 * size**2, batch_bytes()
        if stored is None:
            numbers += size * space.chain.shapes[0].rows * space.data.attended.shape[2]
        else:  # they are read once per batch, which is then at least as large
            limit = max(limit, stored.nbytes)
        return cls(space, int(np.clip(limit // (8 * numbers), SMALLEST_BATCH, LARGEST_BATCH)))

    def __call__(self, points: Float[np.ndarray, "draw coordinate"]) -> Float[np.ndarray, " draw"]:
        """ln p(x, y), normalised over x and y, by calls of one shape: the last is filled up."""
        values, length = np.empty(len(points)), BATCHES * self.batch
        for start in range(0, len(points), length):
            block = points[start : start + length]
            filling = np.repeat(points[:1], length - len(block), axis=0)
            block_values = log_densities(
                jnp.asarray(np.concatenate([block, filling])), self.space, batch=self.batch
            )
            values[start : start + len(block)] = np.asarray(block_values)[: len(block)]
        return values


@partial(jax.jit, static_argnames="batch")
def log_densities(points, space: OrderParameterSpace, *, batch: int) -> Float[jax.Array, " draw"]:
    """ln p(x, y) of all points, so many kernels at a time."""
    return jax.lax.map(lambda point: -space.potential(point), points, batch_size=batch)


def with_stored_kernels(space: OrderParameterSpace) -> OrderParameterSpace:
    """The space with path kernels stored, where that makes batches of kernels cheaper.

    One kernel at a time reads all stored numbers for few products, a batch of them does not.
    """
    if space.data.stored is not None:
        return space
    examples, outputs = space.data.labels.shape
    _, paths, channels = space.data.attended.shape
    size = stored_bytes(examples, None, paths, outputs)
    features = space.chain.shapes[0].rows * channels
    assembled = features * examples * (examples * outputs**2 + 2 * space.chain.shapes[0].rows)
    if size > STORED_BYTES or size // 8 * outputs**2 > assembled:
        return space
    stored = store_path_kernels(Features(space.features(space.data.attended)), outputs)
    return replace(space, data=replace(space.data, stored=stored))


# --- weights


def pareto_k(log_weights: Float[np.ndarray, " draw"]) -> float:
    """Shape of a generalised Pareto tail fitted to the largest weights.

    Infinite where the tail cannot be fitted, so that such weights are never trusted.
    """
    finite = log_weights[np.isfinite(log_weights)]
    return tail_shape(finite) if len(finite) >= FEWEST_DRAWS else float("inf")


def tail_shape(log_weights: Float[np.ndarray, " draw"]) -> float:
    """Shape k of the tail of finite weights, of any number that the caller holds to be enough."""
    from arviz_stats.base import array_stats  # only here: it takes a second and a half

    # The library takes pointwise log likelihoods, whose weights are their inverse.
    shape = float(array_stats.psislw(-log_weights)[1])
    return shape if np.isfinite(shape) else float("inf")


def normalised_weights(log_weights: Float[np.ndarray, " draw"]) -> Float[np.ndarray, " draw"]:
    return np.exp(log_weights - logsumexp(log_weights))


def effective_draws(log_weights: Float[np.ndarray, " draw"]) -> float:
    """Effective number of draws, (Σ w)²/Σ w²."""
    return float(1.0 / np.sum(normalised_weights(log_weights) ** 2))


def systematic_resampling(
    weights: Float[np.ndarray, " draw"], count: int, rng: np.random.Generator
) -> Int[np.ndarray, " _count"]:
    """Indices of `count` equally weighted draws, in random order; weights sum to one.

    One uniform number places `count` evenly spaced marks on the cumulated weights: draw i is taken
    ⌊count · w_i⌋ or ⌈count · w_i⌉ times, count · w_i on average. Draws taken more than once make
    the result worth fewer than `count` independent draws: take a small share of the effective
    ones. Raises ValueError when weights are not finite, negative, or do not sum to one.
    """
    if count < 1:
        raise ValueError(f"count = {count}: must be at least 1")
    total = float(np.sum(weights))
    rounding = np.finfo(float).eps * len(weights)
    if not (np.all(weights >= 0) and abs(total - 1.0) <= rounding):
        raise ValueError(f"weights sum to {total!r}: need non-negative weights that sum to 1")
    marks = (np.arange(count) + rng.random()) / count
    edges = np.cumsum(weights)
    edges /= edges[-1]
    return rng.permutation(np.searchsorted(edges, marks, side="right"))
