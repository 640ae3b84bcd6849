"""Hamiltonian Monte Carlo about a Gaussian whose motion is solved exactly.

Around its mode the posterior of a wide network is nearly Gaussian. In coordinates ω in which that
Gaussian is standard normal, −ln p = |ω|²/2 + ρ(ω) + const. The motion under |ω|²/2 alone is a
rotation of ω and momentum η and known exactly, so that only ρ has to be integrated in steps δ:

    η ← η − (δ/2) ∇ρ,   (ω, η) ← (ω cos δ + η sin δ, η cos δ − ω sin δ),   η ← η − (δ/2) ∇ρ.

A trajectory that turns by a quarter of a circle ends near the fresh momentum: a nearly independent
draw for as few steps as ρ allows. Its end is accepted or refused by the energy in full precision,
so a gradient that is any function of the position, such as one in single precision, leaves the
posterior exact.
Source: Shahbaba, Lan, Johnson and Neal, arXiv 1106.5941.

In warm-up all chains together find the step δ and, from the draws of all, centre and covariance of
the Gaussian; after it both are fixed. Where the mode is not known, it begins with a descent from
the prior: by short trajectories, the step halved where they are refused.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float
from numpyro.infer.hmc_util import dual_averaging

from sampler.mcmc.algorithm import Chain
from sampler.posterior.space import Gaussian, Space
from sampler.streams import Stream, jax_key

# A trajectory turns by an angle between these: about a quarter of a period of every coordinate.
ANGLES = (0.35 * math.pi, 0.65 * math.pi)
FIRST_STEP = 0.5
# In the descent: steps of a trajectory at most, and the factor of a step where less than
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
# apart from values, takes longer than single precision saves. Of 600 examples of 16 paths and 64
# channels (614,400 numbers) chains on two devices took 1.7 times as long in
# double precision.
FEWEST_NUMBERS = 2**19
# Draws of warm-up that count as independent, of all.
SHARE_INDEPENDENT = 0.5


@runtime_checkable
class Potential(Protocol):
    """A distribution e^{−potential(θ)}, normalised or not, as trajectories ask for it.

    Every space is one.

    reference  the Gaussian in whose coordinates ζ chains are
    single     None where the slope has the precision of the potential
    """

    single: Any

    @property
    def reference(self) -> Gaussian: ...

    def potential(self, point: Float[Array, " coordinate"]) -> Float[Array, ""]: ...

    def least_potential(self, point: Float[Array, " coordinate"]) -> Float[Array, ""]: ...

    def slope(self, point: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]: ...


def suited(space: Space) -> Space:
    """Return the space, with gradients in single precision where that costs no acceptance.

    Small spaces keep double precision.
    """
    read = space.data.read_by_density, space.mode
    numbers = sum(jnp.size(leaf) for leaf in jax.tree.leaves(read))
    if space.gradient_dtype == "float32" or numbers < FEWEST_NUMBERS:
        return space
    single = space.with_single_gradients()
    return single if rounding_of(single) <= LARGEST_ROUNDING else space


@register_dataclass
@dataclass(frozen=True)
class RunningMoments:
    """Number of draws, Σ ζ and Σ ζ² of each coordinate."""

    count: Float[Array, ""]
    sum: Float[Array, " coordinate"]
    squares: Float[Array, " coordinate"]

    def and_draws(self, count, mean, mean_square) -> "RunningMoments":
        """Return the moments with further draws, of which these are the means."""
        return RunningMoments(
            self.count + count, self.sum + count * mean, self.squares + count * mean_square
        )

    @property
    def gaussian(self) -> Gaussian:
        """Mean and variance of each coordinate, shrunk towards 0 and 1.

        Among independent draws of a standard normal distribution they vary by 1 and 2 over their
        number, and are shrunk by the share that this is of their variance (James and Stein).
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
    """One chain among all, in coordinates ζ in which the fit at the mode is standard normal.

    chains             how many there are
    warmup             transitions in which step and Gaussian are found
    target_acceptance  acceptance probability that the step adapts to
    max_steps          most steps of a trajectory
    """

    chains: int
    warmup: int
    target_acceptance: float
    max_steps: int

    together: ClassVar[bool] = True

    def shared(self, key, space: Space) -> dict:
        """Step, Gaussian of ζ, and the statistics behind them."""
        zeros = jnp.zeros(space.size, space.dtype)
        return {
            "key": key,
            "transitions": jnp.zeros((), int),
            "gaussian": Gaussian.standard(zeros),
            "moments": RunningMoments(jnp.zeros((), zeros.dtype), zeros, zeros),
            "steps": BEGIN_STEP(jnp.log(FIRST_STEP)),
            "step_size": jnp.asarray(FIRST_STEP, zeros.dtype),
        }

    def init(self, key, point, space: Space) -> dict:
        """State of one chain at a first point, whose density the first trajectory finds."""
        z = space.reference.standardise(point)
        unknown = jnp.full((), jnp.nan, z.dtype)
        return {"key": key, "z": z, "lp": unknown, "slope": jnp.zeros_like(z)}

    def point(self, state, space: Space) -> Float[Array, " coordinate"]:
        """The point in a state."""
        return space.reference.at(state["z"])

    def advance(self, shared, state, space: Space, mean):
        """Make a trajectory, and in warm-up a better step and Gaussian for the next one."""
        next_key, angle_key = jax.random.split(shared["key"])
        angle = jax.random.uniform(angle_key, (), minval=ANGLES[0], maxval=ANGLES[1])
        angle = angle.astype(state["lp"].dtype)
        number, descends = shared["transitions"], self.descends(shared, space)
        longest = jnp.where(descends, min(SHORT, self.max_steps), self.max_steps)
        count = jnp.clip(jnp.ceil(angle / shared["step_size"]), 1, longest).astype(int)
        # A trajectory that would take too many steps is cut short: its step stays as adapted.
        step = jnp.minimum(angle / count, shared["step_size"])
        state, statistics = moved(state, shared["gaussian"], step, count, space)
        z = state["z"]
        shared = {**shared, "key": next_key}

        def learn(shared):
            return self.learned(shared, descends, z, statistics["acceptance_rate"], mean)

        shared = jax.lax.cond(number < self.warmup, learn, lambda shared: shared, shared)
        return {**shared, "transitions": number + 1}, state, statistics

    def descends(self, shared, space: Space):
        """Whether the next transition is one of the descent: there is none from a known mode."""
        return (space.mode is None) & (shared["transitions"] < self.counted_from)

    @property
    def counted_from(self) -> int:
        """Number of the first transition that counts for the Gaussian."""
        return math.ceil(COUNTED_FROM * self.warmup)

    def learned(self, shared, descends, standard, acceptance, mean) -> dict:
        """Return the shared state after another transition of warm-up, from all chains."""
        number, acceptance = shared["transitions"], mean(acceptance)
        steps, step_size = jax.tree.map(
            partial(jnp.where, descends),
            self.searched(shared, acceptance),
            self.adapted(shared, acceptance),
        )
        counted = jnp.where(number >= self.counted_from, self.chains, 0)
        moments = shared["moments"].and_draws(counted, mean(standard), mean(standard**2))
        renewals = np.array([math.ceil(share * self.warmup) for share in RENEWED_AT])
        gaussian = jax.lax.cond(
            jnp.any(number == renewals), lambda: moments.gaussian, lambda: shared["gaussian"]
        )
        learned = {"moments": moments, "gaussian": gaussian, "steps": steps, "step_size": step_size}
        return {**shared, **learned}

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


def state_at(law: Potential, standard: Float[Array, " coordinate"], key: Array) -> dict:
    """State of a chain at ζ: ln p there, and ∂/∂ζ of −ln p."""
    potential, slope = value_and_slope(law, standard)
    return {"key": key, "z": standard, "lp": -potential, "slope": slope}


def value_and_slope(law: Potential, standard):
    """Return −ln p at the point of these coordinates, and its ∂/∂ζ."""
    point = law.reference.at(standard)
    if law.single is not None:
        return law.potential(point), slope_at(law, standard)
    value, slope = jax.value_and_grad(law.potential)(point)
    return value, law.reference.pull_back(slope)


def slope_at(law: Potential, standard):
    """Return ∂/∂ζ of −ln p, in the precision of gradients."""
    reference = law.reference
    return reference.pull_back(law.slope(reference.at(standard)))


def moved(state, gaussian: Gaussian, step, count, law: Potential):
    """Make a trajectory of `count` steps with a fresh momentum → (state, statistics).

    Where the log density of the state is not a number it is found first, with the slope.
    """
    key, momentum_key, accept_key = jax.random.split(state["key"], 3)
    position = gaussian.standardise(state["z"])
    momentum = jax.random.normal(momentum_key, position.shape, position.dtype)
    begin = Begin(-state["lp"], state["slope"], jnp.isnan(state["lp"]))
    there, end, potential, slope, begin = trajectory(
        position, momentum, begin, gaussian, step, count, law
    )
    state = {**state, "lp": -begin.potential, "slope": begin.slope}
    new = {"key": key, "z": gaussian.at(there), "lp": -potential, "slope": slope}
    energy, kinetic = 0.5 * momentum @ momentum - state["lp"], 0.5 * end @ end
    gained = kinetic + potential - energy
    # Where a bound of the density is negligible, it does not matter that it overflows.
    bound = law.least_potential(law.reference.at(new["z"]))
    lost = jnp.isnan(potential) & (kinetic + bound - energy <= DIVERGENCE)
    gained = jnp.where(jnp.isnan(gained), jnp.inf, gained)
    probability = jnp.exp(jnp.minimum(0.0, -gained))
    accepted = jax.random.uniform(accept_key, (), probability.dtype) < probability
    state = jax.tree.map(partial(jnp.where, accepted), new, {**state, "key": key})
    return state, {
        "lp": state["lp"],
        "energy": energy,
        "acceptance_rate": probability,
        "diverging": (gained > DIVERGENCE) & ~lost,
        "lost": lost,
        "n_steps": count,
        "trajectory_steps": count,
        "step_size": step,
    }


class Begin(NamedTuple):
    """Where a trajectory begins.

    potential  −ln p
    slope      ∂/∂ζ of it
    unknown    whether both are unknown
    """

    potential: Float[Array, ""]
    slope: Float[Array, " coordinate"]
    unknown: Bool[Array, ""] | bool = False


def trajectory(position, momentum, begin: Begin, gaussian: Gaussian, step, count, law: Potential):
    """The end of `count` steps from ω = `position`: ω, η, −ln p and slope; and its begin.

    In one precision −ln p comes with the slope of every step. The unknown part of the beginning is
    found by a step of no length before the first: so the compiler sees one gradient, not two.
    """
    one_precision = law.single is None

    def leapfrog(number, carry):
        omega, eta, value, before, begin = carry
        of_none = number < 0
        angle = jnp.astype(jnp.where(of_none, 0.0, step), omega.dtype)
        eta = eta - 0.5 * angle * (gaussian.pull_back(before) - omega)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        omega, eta = omega * cosine + eta * sine, eta * cosine - omega * sine
        standard = gaussian.at(omega)
        if one_precision:
            value, after = value_and_slope(law, standard)
        else:
            after = slope_at(law, standard)
        found = begin._replace(potential=value, slope=after)
        begin = jax.tree.map(partial(jnp.where, of_none), found, begin)
        eta = eta - 0.5 * angle * (gaussian.pull_back(after) - omega)
        return omega, eta, value, after, begin

    potential, unknown = jnp.asarray(begin.potential, position.dtype), jnp.asarray(begin.unknown)
    begin = Begin(potential, begin.slope, unknown)
    value = jnp.full((), jnp.nan, position.dtype)
    carry = position, momentum, value, begin.slope, begin
    first = jnp.where(begin.unknown, -1, 0)
    omega, eta, value, slope, begin = jax.lax.fori_loop(first, count, leapfrog, carry)
    if not one_precision:
        ends = jnp.stack([position, omega])

        def find(end, values):
            return values.at[end].set(law.potential(law.reference.at(gaussian.at(ends[end]))))

        both = jnp.stack([begin.potential, value])
        here, value = jax.lax.fori_loop(jnp.where(begin.unknown, 0, 1), 2, find, both)
        begin = begin._replace(potential=here)
    return omega, eta, value, slope, begin


def rounding_of(single: Space) -> float:
    """Largest error of the slope in ζ by single precision, at starts of chains.

    Along a quarter of a circle it changes the energy by at most about as much.
    """
    keys = jax.random.split(jax_key(0, Stream.ROUNDING), ROUNDING_POINTS)
    errors = np.asarray(_rounding_at_starts(keys, single))
    return float(errors.max()) if np.isfinite(errors).all() else math.inf


@jax.jit
def _rounding_at_starts(keys, single: Space):
    reference, exact = single.reference, replace(single, single=None)

    def error(key):
        point = single.start(key)
        return jnp.linalg.norm(reference.pull_back(single.slope(point) - exact.slope(point)))

    return jax.lax.map(error, keys)
