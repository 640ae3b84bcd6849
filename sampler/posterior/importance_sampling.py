"""Independent weighted draws of the order parameters.

The mean weight of draws from a normalised proposal q is the evidence: E_q[p(θ, y)/q(θ)] = p(y).
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from sampler.posterior.densities import log_density, log_ratios, values_at
from sampler.posterior.importance_weights import effective_draws, normalised_weights, pareto_k
from sampler.posterior.order_parameters import OrderParameterSpace
from sampler.posterior.space import Gaussian
from sampler.posterior.t_mixture import TMixture, refit
from sampler.runtime import batch_bytes
from sampler.streams import Stream, stream
from theory.path_kernels import Features, on_host, path_features, store_path_kernels
from theory.size_limits import HESSIAN_COORDINATES, stored_bytes

# Of the t distribution about the mode: its Hessian is the curvature at one point only.
FIRST_DEGREES = 8.0
# Above this shape of the weights' tail the variance of estimates is practically infinite
# (Vehtari et al., Pareto smoothed importance sampling).
LARGEST_PARETO_K = 0.7
# Above this shape of their tail the weights have no variance.
LARGEST_K_WITH_VARIANCE = 0.5
ROUNDS, PILOT_DRAWS = 3, 8192
# Path kernels are stored up to this size: a batch of kernels is then one matrix product with them.
BATCHED_KERNEL_BYTES = 2**30
# Kernels at a time: fewer would leave cores idle, more would gain nothing.
SMALLEST_BATCH, LARGEST_BATCH = 8, 4096
# Batches of a compiled call: shorter calls are filled up, so it compiles once.
BATCHES = 32


@dataclass(frozen=True)
class ImportanceDraws:
    """Draws θ from a proposal q with weights p(θ, y)/q(θ); no draw depends on another.

    points       flat Bartlett coordinates [draw, coordinate]
    log_weights  ln p(θ, y) − ln q(θ) [draw], not normalised
    pareto_k     shape of the tail of the weights
    lost         draws, those of pilots included, at which the density was not a number: their
                 weight is zero
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
        return effective_draws(self.weights)

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
    rng, density = stream(seed, Stream.IMPORTANCE), BatchedDensity.of(space)
    proposal, lost = proposal_about(space.mode.gaussian), 0
    if adapted:
        proposal, pilot = adapt_proposal(proposal, density, rng)
        if not pilot.trusted:
            return pilot
        lost = pilot.lost
    drawn = draw_weighted(proposal, density, draws, rng)
    return replace(drawn, lost=drawn.lost + lost)


def proposal_about(gaussian: Gaussian, degrees: float = FIRST_DEGREES) -> TMixture:
    """One t distribution with the centre of a Gaussian, and its covariance as scale matrix."""
    covariance = np.asarray(gaussian.covariance, float)
    matrix = np.diag(covariance) if covariance.ndim == 1 else covariance
    return TMixture.of(np.ones(1), np.asarray(gaussian.centre, float)[None], matrix[None], degrees)


def adapt_proposal(
    proposal: TMixture, density: "BatchedDensity", rng: np.random.Generator
) -> tuple[TMixture, ImportanceDraws]:
    """A proposal refitted `ROUNDS` times to weighted pilot samples, and its own pilot sample.

    The best is kept, each judged by a pilot sample of its own: in many dimensions a refit can be
    worse than its target. Draws lost in any of the samples count.
    """
    candidates, lost = [], 0
    for remaining in reversed(range(ROUNDS + 1)):
        pilot = draw_weighted(proposal, density, PILOT_DRAWS, rng)
        lost += pilot.lost
        heavy = pilot.pareto_k > LARGEST_PARETO_K
        candidates.append((heavy, -pilot.effective_sample_size, proposal, pilot))
        if remaining:
            proposal = refit(proposal, pilot.points, pilot.weights, rng)
    *_, proposal, pilot = min(candidates, key=lambda candidate: candidate[:2])
    return proposal, replace(pilot, lost=lost)


def draw_weighted(
    proposal: TMixture, density: "BatchedDensity", draws: int, rng: np.random.Generator
) -> ImportanceDraws:
    """Fresh draws from a proposal, weighted.

    Raises FloatingPointError where no draw has a finite density.
    """
    points = proposal.draw(draws, rng)
    log_weights, lost = weighed(points, proposal, density)
    if not np.any(np.isfinite(log_weights)):
        raise FloatingPointError(
            f"none of {len(points)} importance draws has a finite density: rescale inputs and "
            "labels, or raise the temperature"
        )
    return ImportanceDraws(points, log_weights, pareto_k(log_weights), lost)


def weighed(
    points: Float[np.ndarray, "draw coordinate"], proposal: TMixture, density: "BatchedDensity"
) -> tuple[Float[np.ndarray, " draw"], int]:
    """ln p(θ, y) − ln q(θ), −∞ where it is not a number, and how many of these are lost."""
    log_p, log_q = density(points), proposal.log_density(points)
    return log_ratios(density.space, points, log_p, log_q)


def require_hessian(coordinates: int) -> None:
    """Raise ValueError if the coordinates are too many for the Hessian at the mode."""
    if coordinates > HESSIAN_COORDINATES:
        raise ValueError(
            f"{coordinates:,} coordinates: the Hessian at the mode is too large (limit "
            f"{HESSIAN_COORDINATES:,}); sample without the evidence"
        )


@dataclass(frozen=True)
class BatchedDensity:
    """ln p(θ, y) of many points, as many kernels at a time as fit the caches.

    A value that is not a number stays so.
    """

    space: OrderParameterSpace
    batch: int

    @classmethod
    def of(cls, space: OrderParameterSpace) -> "BatchedDensity":
        """The density of a space, with path kernels stored where that makes batches cheaper."""
        space = with_stored_kernels(space)
        size, stored = space.data.labels.size, space.fixed.stored
        numbers, limit = 2 * size**2, batch_bytes()
        if stored is None:
            _, paths, channels = space.fixed.attended.shape
            numbers += size * paths * space.outputs * channels
        else:  # they are read once per batch, which is then at least as large
            limit = max(limit, stored.nbytes)
        return cls(space, int(np.clip(limit // (8 * numbers), SMALLEST_BATCH, LARGEST_BATCH)))

    def __call__(self, points: Float[np.ndarray, "draw coordinate"]) -> Float[np.ndarray, " draw"]:
        """ln p(θ, y), normalised over θ and y, by calls of one shape: the last is filled up."""
        values, length = np.empty(len(points)), BATCHES * self.batch
        for start in range(0, len(points), length):
            block = points[start : start + length]
            filling = np.repeat(points[:1], length - len(block), axis=0)
            filled = jnp.asarray(np.concatenate([block, filling]))
            of_block = np.asarray(values_at(log_density, self.space, filled, self.batch))
            values[start : start + len(block)] = of_block[: len(block)]
        return values


def with_stored_kernels(space: OrderParameterSpace) -> OrderParameterSpace:
    """The space with path kernels stored, where that makes batches of kernels cheaper.

    One kernel at a time reads all stored numbers for few products, a batch of them does not.
    """
    if space.fixed.stored is not None:
        return space
    examples, outputs = space.data.labels.shape
    _, paths, channels = space.fixed.attended.shape
    size, rows = stored_bytes(examples, None, paths, outputs), paths * outputs
    assembled = rows * channels * examples * (examples * outputs**2 + 2 * rows)
    if size > BATCHED_KERNEL_BYTES or size // 8 * outputs**2 > assembled:
        return space
    attended, variance = on_host((space.fixed.attended, space.input_variance))
    stored = store_path_kernels(Features(path_features(attended, float(variance))), outputs)
    return replace(space, data=replace(space.data, stored=jax.tree.map(jnp.asarray, stored)))
