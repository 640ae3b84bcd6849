"""Tempered sequential Monte Carlo: from simple draws to the posterior.

Particles θ drawn from a normalised distribution q_0 are moved through

    q_0(θ)^{1−γ} p(θ, y)^γ,   γ = 0 … 1,

each step of γ by weights (p(θ, y)/q_0(θ))^{Δγ}, resampling, and trajectories at the new γ. The
product over γ of mean weights is an unbiased estimate of the evidence p(y), whatever the number of
particles, if values of γ, masses, steps and numbers of trajectories do not depend on them. So these
are found by a pilot, whose particles are not used, and its course is that of all repetitions:
particles that choose their own γ step further where they miss the largest weights, and the evidence
comes out too small, by a tenth and more with a few hundred of them. Where q_0 is the prior, this is
the likelihood to the power γ, with its normaliser where the temperature is sampled.

Particles of one repetition share ancestors: their number is not a sample size. Errors come from
repetitions, independent of each other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, Int
from scipy.special import logsumexp

from sampler.mcmc.split_hmc import ANGLES, moved, state_at
from sampler.posterior.densities import log_ratios
from sampler.posterior.importance_weights import (
    effective_draws,
    normalised_weights,
    systematic_resampling,
)
from sampler.posterior.initial_distribution import InitialDistribution
from sampler.posterior.space import Gaussian, Space
from sampler.runtime import side_by_side
from sampler.streams import Stream, jax_key, stream

# The next γ leaves this share of the particles as their effective number.
EFFECTIVE_SHARE = 0.5
# Moves at one γ end when the correlation with the positions before them is this,
# at the last γ, whose particles are the draws, the second number.
LEFT, LEFT_AT_LAST, MOST_MOVES = 0.3, 0.1, 10
FIRST_STEP, LARGEST_STEP, STEP_GAIN, MOST_STEPS = 0.5, 1.5, 1.5, 255
# Particles for each coordinate from which on their whole covariance is the mass, not its diagonal.
PARTICLES_PER_COORDINATE = 4
MOST_TEMPERATURES = 1000
# Moved or weighed at a time, where that is not one by one.
TOGETHER = 128


@register_dataclass
@dataclass(frozen=True)
class TemperedLaw:
    """The distribution q_0^{1−γ} p(θ, y)^γ, not normalised, as trajectories ask for it.

    Chains are in units of the prior: the γ of a mode is far away.
    """

    space: Space
    start: InitialDistribution
    power: Float[Array, ""]

    @property
    def single(self) -> Space | None:
        """The space in single precision, for gradients."""
        return self.space.single

    @property
    def reference(self) -> Gaussian:
        """Units of the prior about 0."""
        scale = self.space.prior_gaussian.scale
        return Gaussian(jnp.zeros_like(scale), scale)

    def potential(self, point: Float[Array, " coordinate"]) -> Float[Array, ""]:
        """−(1 − γ) ln q_0 − γ ln p(θ, y)."""
        of_start = self.start.log_density(point)
        return self.power * self.space.potential(point) - (1.0 - self.power) * of_start

    def least_potential(self, point: Float[Array, " coordinate"]) -> Float[Array, ""]:
        """Lower bound of the potential."""
        of_start = self.start.log_density(point)
        return self.power * self.space.least_potential(point) - (1.0 - self.power) * of_start

    def slope(self, point: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]:
        """∂/∂θ, that of ln p(θ, y) in the precision of gradients."""
        of_start = jax.grad(self.start.log_density)(point)
        return self.power * self.space.slope(point) - (1.0 - self.power) * of_start


# Of a pilot: what happened at each γ, name → [γ, …], as repetitions follow it.
Course = Mapping[str, Sequence | np.ndarray]
# The seed, the number of the distribution in which particles begin, and that of the repetition.
RepetitionSeed = tuple[int, int, int]


@dataclass(frozen=True)
class Particles:
    """Particles of one repetition at one γ, all of equal weight.

    points        flattened positions [particle, coordinate]
    log_ratio     ln p(θ, y) − ln q_0(θ) [particle]
    log_p         ln p(θ, y) [particle]
    ancestor      number of the particle at γ = 0 that each descends from
    acceptance    probability with which the last trajectory of each was accepted
    log_evidence  sum of the logarithms of mean weights so far
    lost          points so far, drawn or proposed, at which the density was not a number
    path          name → [γ so far, …]: what happened there; of a pilot with centre and scale of the
                  Gaussian that trajectories were about, in units of the prior
    """

    points: Float[np.ndarray, "particle coordinate"]
    log_ratio: Float[np.ndarray, " particle"]
    log_p: Float[np.ndarray, " particle"]
    ancestor: Int[np.ndarray, " particle"]
    acceptance: Float[np.ndarray, " particle"]
    log_evidence: float = 0.0
    lost: int = 0
    path: Course = field(default_factory=dict)

    @property
    def temperatures(self) -> int:
        """Number of values of γ so far."""
        return len(self.path.get("power", ()))

    @property
    def power(self) -> float:
        """γ."""
        return float(self.path["power"][-1]) if self.path else 0.0

    @property
    def finished(self) -> bool:
        """Whether these are draws from the posterior."""
        return self.power == 1.0

    @property
    def latest(self) -> dict[str, np.ndarray]:
        """Numbers of the step at this γ, name → [1, 1]."""
        last = {name: np.asarray(values[-1]) for name, values in self.path.items()}
        return {name: value.reshape(1, 1) for name, value in last.items() if not value.ndim}


def begin(start: InitialDistribution, count: int, seed: RepetitionSeed) -> Particles:
    """Particles at γ = 0, drawn from the distribution in which they begin."""
    points = start.draw(count, seed)
    log_p, log_ratio, lost = weighed(points, start)
    if not np.isfinite(log_ratio).any():
        raise FloatingPointError(
            f"none of {count} particles has a finite density: rescale inputs and labels, or raise "
            "the temperature"
        )
    return Particles(points, log_ratio, log_p, np.arange(count), np.full(count, np.nan), lost=lost)


def next_temperature(
    particles: Particles,
    start: InitialDistribution,
    target_acceptance: float,
    seed: RepetitionSeed,
    course: Course | None = None,
) -> Particles:
    """Particles at the next γ: weighed, resampled and moved there.

    By the course of a pilot; without one, this is a pilot. The same seed and particles give
    the same result, bit for bit.
    """
    number = particles.temperatures + 1
    if number > MOST_TEMPERATURES:
        raise FloatingPointError(
            f"{MOST_TEMPERATURES} temperatures do not lead to the posterior (γ = "
            f"{particles.power:.3g}): raise `particles`, or the temperature"
        )
    of_stage = first, *rest = (*seed, number)
    stage = None if course is None else {n: values[number - 1] for n, values in course.items()}
    before = particles.power
    power = next_power(particles.log_ratio, before) if stage is None else float(stage["power"])
    log_weights = (power - before) * particles.log_ratio
    weights = normalised_weights(log_weights)
    count, rng = len(particles.points), stream(first, Stream.RESAMPLING, *rest)
    chosen = systematic_resampling(weights, count, rng)
    points, ancestor = particles.points[chosen], particles.ancestor[chosen]
    tempered = TemperedLaw(start.space, start, jnp.asarray(power, points.dtype))
    step_size = float(particles.path["step_size"][-1]) if particles.path else FIRST_STEP
    points, acceptance, of_moves, lost = move(
        points, tempered, stage, step_size, target_acceptance, of_stage
    )
    log_p, log_ratio, lost_here = weighed(points, start)
    happened = {
        "power": power,
        "effective_share": effective_draws(weights) / count,
        "acceptance_rate": float(np.mean(acceptance)),
        **of_moves,
        "ancestors": float(len(np.unique(ancestor))),
        "lp": float(np.mean(log_p)),
    }
    return Particles(
        points,
        log_ratio,
        log_p,
        ancestor,
        acceptance,
        particles.log_evidence + float(logsumexp(log_weights) - np.log(count)),
        particles.lost + lost + lost_here,
        {name: (*particles.path.get(name, ()), value) for name, value in happened.items()},
    )


def next_power(log_ratio: Float[np.ndarray, " particle"], power: float) -> float:
    """The γ at which the effective number of the weights is the stated share, 1 at most."""
    from scipy.optimize import brentq  # only here: `solve` starts without it

    def effective(increase: float) -> float:
        return effective_draws(normalised_weights(increase * log_ratio))

    # Particles without density are left behind by any step, however many they are.
    wanted = EFFECTIVE_SHARE * np.isfinite(log_ratio).sum()
    if effective(1.0 - power) >= wanted:
        return 1.0

    def excess(increase: float) -> float:
        return effective(increase) - wanted

    smallest = np.finfo(float).tiny
    return power + float(brentq(excess, smallest, 1.0 - power, xtol=1e-18))


def move(
    points: Float[np.ndarray, "particle coordinate"],
    tempered: TemperedLaw,
    stage: Mapping[str, Any] | None,
    step_size: float,
    target_acceptance: float,
    of_stage: tuple[int, int, int, int],
) -> tuple[np.ndarray, np.ndarray, dict[str, Any], int]:
    """Move all particles by trajectories with settings of a stage, which a pilot finds.

    Trajectories of a pilot turn about the Gaussian with mean and covariance of its particles, and
    are repeated until the particles have nearly forgotten their positions. The step of the next one
    follows from the acceptance of all particles in this one. Every particle makes as many steps.

    Returns points, acceptance of the last trajectory of each, statistics, and points lost.
    """
    first, *rest = of_stage
    rng, key = stream(first, Stream.MOVES, *rest), jax_key(first, Stream.MOVES, *rest)
    unit = np.asarray(tempered.reference.scale)
    if stage is None:
        fitted, most = fitted_gaussian(points / unit), MOST_MOVES
    else:
        fitted = Gaussian(jnp.asarray(stage["centre"]), jnp.asarray(stage["scale"]))
        step_size, most = float(stage["step_size"]), int(stage["moves"])
    before = whitened(points / unit, fitted)
    states = _states(jax.random.split(key, len(points)), jnp.asarray(points / unit), tempered)
    wanted = LEFT_AT_LAST if float(tempered.power) == 1.0 else LEFT
    gradients, moves, lost = len(points), 0, 0
    while moves < most:
        angle = rng.uniform(*ANGLES)
        steps = int(np.clip(np.ceil(angle / step_size), 1, MOST_STEPS))
        step = min(angle / steps, step_size)
        states, acceptance, lost_here = _moved(states, fitted, step, steps, tempered)
        acceptance, lost = np.asarray(acceptance, float), lost + int(np.sum(lost_here))
        gradients, moves = gradients + steps * len(points), moves + 1
        if stage is not None:
            continue
        gained = STEP_GAIN * (float(acceptance.mean()) - target_acceptance)
        step_size = min(LARGEST_STEP, step_size * float(np.exp(gained)))
        after = whitened(np.asarray(states["z"]), fitted)
        if np.sum(after * before) <= wanted * np.sum(before**2):
            break
    happened = {"step_size": step_size, "moves": moves, "n_steps": gradients}
    if stage is None:
        happened |= {"centre": np.asarray(fitted.centre), "scale": np.asarray(fitted.scale)}
    return np.asarray(states["z"]) * unit, acceptance, happened, lost


def fitted_gaussian(standard: Float[np.ndarray, "particle coordinate"]) -> Gaussian:
    """Mean and covariance of particles: the covariance shrunk to its diagonal, or that alone."""
    count, size = standard.shape
    centre, variance = standard.mean(axis=0), standard.var(axis=0)
    variance = np.maximum(variance, np.finfo(float).eps)
    if PARTICLES_PER_COORDINATE * size > count:
        return Gaussian(jnp.asarray(centre), jnp.asarray(np.sqrt(variance)))
    away = standard - centre
    share = size / (size + EFFECTIVE_SHARE * count)
    covariance = (1.0 - share) * (away.T @ away) / count + share * np.diag(variance)
    return Gaussian(jnp.asarray(centre), jnp.asarray(np.linalg.cholesky(covariance)))


def whitened(standard: np.ndarray, fitted: Gaussian) -> np.ndarray:
    """Particles in coordinates in which the fitted Gaussian is standard normal."""
    scale, away = np.asarray(fitted.scale), standard - np.asarray(fitted.centre)
    return away / scale if scale.ndim == 1 else np.linalg.solve(scale, away.T).T


def of_particles(function: Callable, *by_particle):
    """The results for all particles: one by one on a processor, many side by side elsewhere."""
    together = side_by_side(TOGETHER)
    return jax.lax.map(lambda arguments: function(*arguments), by_particle, batch_size=together)


@jax.jit
def _states(keys, points, tempered: TemperedLaw):
    return of_particles(lambda key, point: state_at(tempered, point, key), keys, points)


@jax.jit
def _moved(states, gaussian: Gaussian, step, steps, tempered: TemperedLaw):
    """States after a trajectory of each, its acceptance probability, and whether it was lost."""

    def of_particle(state):
        state, statistics = moved(state, gaussian, step, steps, tempered)
        return state, statistics["acceptance_rate"], statistics["lost"]

    return of_particles(of_particle, states)


def weighed(
    points: np.ndarray, start: InitialDistribution
) -> tuple[Float[np.ndarray, " particle"], Float[np.ndarray, " particle"], int]:
    """ln p(θ, y), ln p(θ, y) − ln q_0(θ), and how many of these are lost.

    The second is −∞ where it is not a number.
    """
    logs = _log_densities(points, start.space, start)
    log_p, of_start = (np.asarray(values, float) for values in logs)
    return log_p, *log_ratios(start.space, points, log_p, of_start)


@jax.jit
def _log_densities(points, space: Space, start: InitialDistribution):
    def of_point(point):
        return -space.potential(point), start.log_density(point)

    return of_particles(of_point, jnp.asarray(points))
