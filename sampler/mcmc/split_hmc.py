"""Hamiltonian Monte Carlo about a Gaussian whose motion is solved exactly.

Around its mode the posterior of a wide network is nearly Gaussian. In coordinates w in which that
Gaussian is standard normal, −ln p = |w|²/2 + ρ(w) + const. The motion under |w|²/2 alone is a
rotation of (w, v) and known exactly, so that only ρ has to be integrated step by step:

    v ← v − (ε/2) ∇ρ,   (w, v) ← (w cos ε + v sin ε, v cos ε − w sin ε),   v ← v − (ε/2) ∇ρ.

A trajectory that turns by about π/2 ends near the fresh v: a nearly independent draw for as few
steps as ρ allows. Its end is accepted or refused by the energy in full precision, so a gradient
that is any function of the position, such as one in single precision, leaves the posterior exact.
Source: Shahbaba, Lan, Johnson and Neal, arXiv 1106.5941.

In warm-up all chains together find the step ε and, from the draws of all, centre and covariance of
the Gaussian; after it both are fixed. Where the mode is not known, it begins with a descent from
the prior: by short trajectories, the step halved where they are refused.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.infer.hmc_util import dual_averaging

from sampler.mcmc.algorithm import Chain
from sampler.posterior.density import Density, LogDensity

# A trajectory turns by an angle between these: about a quarter of a period of every coordinate.
ANGLES = (0.35 * math.pi, 0.65 * math.pi)
FIRST_STEP = 0.5
# In the descent: steps of a trajectory at most, and what a step is multiplied by where less than
# half is accepted, or more than the target.
SHORT, HALVED, GROWN, LEAST_ACCEPTED = 32, 0.5, 1.25, 0.5
# Shares of warm-up: a descent ends at the first, from which on draws count for the Gaussian; it is
# renewed at the others.
COUNTED_FROM, RENEWED_AT = 0.1, (0.2, 0.4, 0.65, 0.9)
DIVERGENCE = 1000.0
# The energy that rounding of the gradient may add along a trajectory: more would cost acceptance.
LARGEST_ROUNDING = 0.05
ROUNDING_POINTS = 4
# Arrays of fewer numbers are read so fast that finding out about rounding, and compiling gradients
# apart from values, takes longer than single precision saves.
FEWEST_NUMBERS = 2**20
# Draws of warm-up that count as independent, of all.
SHARE_INDEPENDENT = 0.5


def suited(density: Density) -> Density:
    """Return the density, with gradients in single precision where that costs no acceptance.

    Small densities keep double precision.
    """
    numbers = sum(jnp.size(leaf) for leaf in jax.tree.leaves(density.arguments))
    if density.gradient_dtype == "float32" or numbers < FEWEST_NUMBERS:
        return density
    single = density.with_single_gradients()
    return single if rounding_of(single) <= LARGEST_ROUNDING else density


@partial(jax.tree_util.register_dataclass, data_fields=["centre", "scale"], meta_fields=[])
@dataclass(frozen=True)
class Gaussian:
    """Gaussian x = centre + scale · z, z standard normal; the scale is a matrix or a diagonal."""

    centre: Float[Array, " coordinate"]
    scale: Float[Array, "coordinate coordinate"] | Float[Array, " coordinate"]

    @classmethod
    def fitted(cls, density: LogDensity) -> "Gaussian":
        """The fit at the mode; where that is not known, zero and the spread of the priors."""
        if density.mode is not None:
            return cls(density.mode.point, density.mode.scale)
        priors = [density.priors[name] for name in density.coordinates.names]
        scale = jnp.concatenate([jnp.sqrt(prior.variance).reshape(-1) for prior in priors])
        return cls(jnp.zeros_like(scale), scale)

    @classmethod
    def standard(cls, centre: Float[Array, " coordinate"]) -> "Gaussian":
        return cls(jnp.zeros_like(centre), jnp.ones_like(centre))

    def at(self, standard: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]:
        dense = self.scale.ndim == 2
        return self.centre + (self.scale @ standard if dense else self.scale * standard)

    def pull_back(self, slope: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]:
        """Map ∂/∂x to ∂/∂z."""
        return slope @ self.scale if self.scale.ndim == 2 else slope * self.scale

    def standardised(self, point: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]:
        away = point - self.centre
        return jnp.linalg.solve(self.scale, away) if self.scale.ndim == 2 else away / self.scale


@partial(jax.tree_util.register_dataclass, data_fields=["count", "sum", "squares"], meta_fields=[])
@dataclass(frozen=True)
class RunningMoments:
    """Number of draws, Σ z and Σ z² of each coordinate."""

    count: Float[Array, ""]
    sum: Float[Array, " coordinate"]
    squares: Float[Array, " coordinate"]

    def and_draws(self, count, mean, mean_square) -> "RunningMoments":
        """Return the moments with so many further draws, of which these are the means."""
        return RunningMoments(
            self.count + count, self.sum + count * mean, self.squares + count * mean_square
        )

    @property
    def gaussian(self) -> Gaussian:
        """Mean and variance of each coordinate, shrunk towards 0 and 1.

        They vary by 1/n and 2/n among draws of a standard normal distribution, and are shrunk by
        the share that this is of what they vary by (James and Stein).
        """
        count = SHARE_INDEPENDENT * self.count
        mean = self.sum / self.count
        excess = self.squares / self.count - mean**2 - 1.0
        mean = mean * kept_share(mean, 1.0 / count)
        return Gaussian(mean, jnp.sqrt(1.0 + excess * kept_share(excess, 2.0 / count)))


def kept_share(estimates: Float[Array, " coordinate"], noise) -> Float[Array, ""]:
    """Share of estimates that is kept, 1 − noise / mean square, but not less than 0."""
    return jnp.maximum(0.0, 1.0 - noise / jnp.mean(estimates**2))


BEGIN_STEP, LEARN_STEP = dual_averaging()


@dataclass(frozen=True)
class SplitChain(Chain):
    """One chain among all, in coordinates z in which the fit at the mode is standard normal.

    chains             how many there are
    warmup             transitions in which step and Gaussian are found
    target_acceptance  acceptance probability that the step adapts to
    max_steps          a trajectory has at most so many steps
    """

    chains: int
    warmup: int
    target_acceptance: float
    max_steps: int

    together: ClassVar[bool] = True

    def shared(self, key, density: Density) -> dict:
        """Step, Gaussian of z, and what they are found from."""
        zeros = jnp.zeros_like(Gaussian.fitted(density).centre)
        return {
            "key": key,
            "transitions": jnp.zeros((), int),
            "gaussian": Gaussian.standard(zeros),
            "moments": RunningMoments(jnp.zeros((), zeros.dtype), zeros, zeros),
            "steps": BEGIN_STEP(jnp.log(FIRST_STEP)),
            "step_size": jnp.asarray(FIRST_STEP, zeros.dtype),
        }

    def init(self, key, position, density: Density) -> dict:
        here = Gaussian.fitted(density).standardised(density.coordinates.flatten(position))
        return self.at(here, key, density)

    def at(self, z, key, density: Density) -> dict:
        lp, after = value_and_slope(density, z)
        return {"key": key, "z": z, "lp": lp, "slope": after}

    def position(self, state, density: Density) -> dict:
        return density.coordinates.unflatten(Gaussian.fitted(density).at(state["z"]))

    def advance(self, shared, state, density: Density, mean):
        """Make a trajectory, and in warm-up a better step and Gaussian for the next one."""
        next_key, angle_key = jax.random.split(shared["key"])
        angle = jax.random.uniform(angle_key, (), minval=ANGLES[0], maxval=ANGLES[1])
        angle = angle.astype(state["lp"].dtype)
        number, descends = shared["transitions"], self.descends(shared, density)
        longest = jnp.where(descends, min(SHORT, self.max_steps), self.max_steps)
        count = jnp.clip(jnp.ceil(angle / shared["step_size"]), 1, longest).astype(int)
        step = jnp.where(descends, jnp.minimum(angle / count, shared["step_size"]), angle / count)
        state, found = moved(state, shared["gaussian"], step, count, density)
        z = state["z"]
        shared = {**shared, "key": next_key}

        def learn(shared):
            return self.learned(shared, descends, z, found["acceptance_rate"], mean)

        shared = jax.lax.cond(number < self.warmup, learn, lambda shared: shared, shared)
        return {**shared, "transitions": number + 1}, state, found

    def descends(self, shared, density: Density):
        """Whether the next transition is one of the descent: there is none from a known mode."""
        return (density.mode is None) & (shared["transitions"] < self.counted_from)

    @property
    def counted_from(self) -> int:
        """Number of the first transition that counts for the Gaussian."""
        return math.ceil(COUNTED_FROM * self.warmup)

    def learned(self, shared, descends, z, acceptance, mean) -> dict:
        """Return the shared state after another transition of warm-up, from all chains."""
        number, acceptance = shared["transitions"], mean(acceptance)
        steps, step_size = jax.tree.map(
            partial(jnp.where, descends),
            self.searched(shared, acceptance),
            self.adapted(shared, acceptance),
        )
        counted = jnp.where(number >= self.counted_from, self.chains, 0)
        moments = shared["moments"].and_draws(counted, mean(z), mean(z**2))
        renewals = np.array([math.ceil(share * self.warmup) for share in RENEWED_AT])
        gaussian = jax.lax.cond(
            jnp.any(number == renewals), lambda: moments.gaussian, lambda: shared["gaussian"]
        )
        found = {"moments": moments, "gaussian": gaussian, "steps": steps, "step_size": step_size}
        return {**shared, **found}

    def searched(self, shared, acceptance):
        """Return a step of the right size, and the state of an adaptation that begins with it.

        An adaptation that began at the prior would average over steps that are orders of magnitude
        too small, and return from them through very long trajectories.
        """
        grown = jnp.where(acceptance > self.target_acceptance, GROWN, 1.0)
        step_size = shared["step_size"] * jnp.where(acceptance < LEAST_ACCEPTED, HALVED, grown)
        return BEGIN_STEP(jnp.log(step_size)), step_size

    def adapted(self, shared, acceptance):
        """Return the state of the adaptation to the acceptance of all chains, and the next step."""
        steps = LEARN_STEP(self.target_acceptance - acceptance, shared["steps"])
        last = shared["transitions"] + 1 == self.warmup
        return steps, jnp.exp(jnp.where(last, steps[1], steps[0]))


def log_density_at(density: LogDensity, z):
    """Return ln p at the point of these coordinates."""
    point = Gaussian.fitted(density).at(z)
    return density.log_density(density.coordinates.unflatten(point))


def value_and_slope(density: LogDensity, z):
    """Return ln p at the point of these coordinates, and ∂/∂z of −ln p."""
    if density.single is not None:
        return log_density_at(density, z), slope(density, z)
    first = Gaussian.fitted(density)
    value, gradient = density.value_and_gradient(density.coordinates.unflatten(first.at(z)))
    return value, -first.pull_back(density.coordinates.flatten(gradient))


def slope(density: LogDensity, z):
    """Return ∂/∂z of −ln p, in the precision of gradients."""
    first = Gaussian.fitted(density)
    return -first.pull_back(density.gradient(first.at(z)))


def moved(state, gaussian: Gaussian, step, count, density: LogDensity):
    """Make a trajectory of `count` steps with a fresh momentum → (state, statistics)."""
    key, kick, toss = jax.random.split(state["key"], 3)
    here = gaussian.standardised(state["z"])
    momentum = jax.random.normal(kick, here.shape, here.dtype)
    there, end, value, after = trajectory(
        here, momentum, state["slope"], gaussian, step, count, density
    )
    new = {"key": key, "z": gaussian.at(there), "lp": value, "slope": after}
    energy = 0.5 * momentum @ momentum - state["lp"]
    gained = 0.5 * end @ end - new["lp"] - energy
    gained = jnp.where(jnp.isnan(gained), jnp.inf, gained)
    probability = jnp.exp(jnp.minimum(0.0, -gained))
    accepted = jax.random.uniform(toss, (), probability.dtype) < probability
    state = jax.tree.map(partial(jnp.where, accepted), new, {**state, "key": key})
    return state, {
        "lp": state["lp"],
        "energy": energy,
        "acceptance_rate": probability,
        "diverging": gained > DIVERGENCE,
        "n_steps": count,
        "trajectory_steps": count,
        "step_size": step,
    }


def trajectory(here, momentum, first, gaussian: Gaussian, step, count, density: LogDensity):
    """Return the end of `count` steps from w = `here`: w, momentum, ln p and slope.

    `first` is the slope here. In one precision ln p comes with the slope of every step.
    """
    cosine, sine = jnp.cos(step), jnp.sin(step)
    together = density.single is None

    def one(_, carry):
        w, v, value, before = carry
        v = v - 0.5 * step * (gaussian.pull_back(before) - w)
        w, v = w * cosine + v * sine, v * cosine - w * sine
        z = gaussian.at(w)
        value, after = value_and_slope(density, z) if together else (value, slope(density, z))
        return w, v - 0.5 * step * (gaussian.pull_back(after) - w), value, after

    unknown = jnp.full((), jnp.nan, here.dtype)
    w, v, value, after = jax.lax.fori_loop(0, count, one, (here, momentum, unknown, first))
    return w, v, value if together else log_density_at(density, gaussian.at(w)), after


def rounding_of(single: Density) -> float:
    """Largest length of what single precision adds to the slope in z, at starts of chains.

    Along a trajectory of angle π/2 it changes the energy by at most about as much.
    """
    keys = jax.random.split(jax.random.key(0), ROUNDING_POINTS)
    found = np.asarray(_rounding_at_starts(keys, single))
    return float(found.max()) if np.isfinite(found).all() else math.inf


@jax.jit
def _rounding_at_starts(keys, single: Density):
    fitted, exact = Gaussian.fitted(single), replace(single, single=None)

    def error(key):
        point = single.coordinates.flatten(single.start(key))
        return jnp.linalg.norm(fitted.pull_back(single.gradient(point) - exact.gradient(point)))

    return jax.lax.map(error, keys)
