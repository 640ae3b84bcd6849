"""Simulation-based calibration: is the truth just one more draw from its own posterior?

Truth θ* from the prior, labels from θ*, draws from the posterior given the labels: the rank of any
function of θ* among its draws is uniform if, and only if, prior, likelihood and sampler agree.
Every data set is simulated forwards through real weights, so that the spaces with integrated
weights have their integration tested too. All data sets are sampled side by side.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from numpyro.infer.hmc import hmc

from sampler.mcmc.algorithm import Chain
from sampler.network import network_outputs, overlaps, path_weights
from sampler.posterior.data import FixedPaths
from sampler.posterior.labels import CollapsedLabels, flat_labels
from sampler.posterior.order_parameters import OrderParameterSpace
from sampler.posterior.space import TEMPERATURE, Space
from sampler.posterior.spaces import make_space
from tests.problems import weight_variances
from theory import Architecture

WARMUP, KEPT, THINNING, BINS = 200, 31, 5, 8


@dataclass(frozen=True)
class CalibrationProblem:
    """What is simulated, and what the sampler believes (wrong in the negative controls)."""

    architecture: Architecture
    attended: np.ndarray
    attended_test: np.ndarray
    temperature: float
    believed_architecture: Architecture
    believed_temperature: float
    temperature_spread: float = 0.0
    believed_spread: float = 0.0

    @classmethod
    def small(cls, seed: int = 0) -> "CalibrationProblem":
        """Two layers, unequal heads, widths and variances; a few examples."""
        rng = np.random.default_rng(seed)
        architecture = Architecture((2, 1), (4, 3, 3), (1.3, 0.8, 1.2, 1.5), channels=3)
        shape = (8, architecture.path_count, architecture.channels)
        attended, test = rng.standard_normal(shape), rng.standard_normal((1, *shape[1:]))
        return cls(architecture, attended, test, 0.2, architecture, 0.2)

    def misjudging_temperature(self, factor: float) -> "CalibrationProblem":
        return replace(self, believed_temperature=self.temperature * factor)

    def with_spread(self, temperature_spread: float) -> "CalibrationProblem":
        return replace(
            self, temperature_spread=temperature_spread, believed_spread=temperature_spread
        )

    def misjudging_spreads(self, factor: float) -> "CalibrationProblem":
        """The sampler takes the temperature to be better, or less well, known."""
        believed = factor * self.temperature_spread
        return replace(self, believed_spread=believed)


def simulate(key, problem: CalibrationProblem) -> tuple[dict, jax.Array]:
    """A position from the prior in the space of all weights, and labels from these weights."""
    arch = problem.architecture
    *keys, shift_key, noise_key = jax.random.split(key, len(arch.weight_shapes) + 2)
    position = {
        name: weight_variances(arch)[name] ** 0.5 * jax.random.normal(k, shape)
        for k, (name, shape) in zip(keys, arch.weight_shapes.items(), strict=True)
    }
    clean = network_outputs(position, jnp.asarray(problem.attended), arch)
    temperature = problem.temperature
    if problem.temperature_spread:
        shift = problem.temperature_spread * jax.random.normal(shift_key, (1,))
        position[TEMPERATURE], temperature = shift, temperature * jnp.exp(shift[0])
    return position, clean + temperature**0.5 * jax.random.normal(noise_key, clean.shape)


class SpaceCalibration:
    """Quantities of real weights, and of draws in a space."""

    def __init__(self, problem: CalibrationProblem, name: str = "order_parameters") -> None:
        self.problem = problem
        labels = jnp.zeros((len(problem.attended), problem.architecture.outputs))
        attended, test = map(jnp.asarray, (problem.attended, problem.attended_test))
        data = FixedPaths(labels=labels, attended=attended, attended_test=test)
        self.believed = make_space(
            name,
            data,
            problem.believed_architecture,
            problem.believed_temperature,
            problem.believed_spread,
        )

    def simulate(self, key) -> tuple[dict, jax.Array]:
        """A position from the prior in the space of all weights, and labels from these weights."""
        return simulate(key, self.problem)

    def space(self, labels) -> Space:
        """The posterior of these labels."""
        return self.believed.with_labels(labels)

    def truth(self, key, position, labels):
        """Quantities of real weights, by the forward pass."""
        arch, space = self.problem.architecture, self.space(labels)
        outputs = network_outputs(position, jnp.asarray(self.problem.attended_test), arch)
        if isinstance(space, OrderParameterSpace):
            factor = path_weights(position, arch)[0] / arch.widths[0] ** 0.5
            law = CollapsedLabels(space.energy(position), factor)
            likelihood = law.log_prob(flat_labels(labels))
        else:
            likelihood = space.log_likelihood(position)
        matrices = overlaps(position, arch)
        return stacked(matrices[0], matrices[-1], outputs[0, 0], likelihood, position)

    def drawn(self, key, position, labels):
        """Quantities of a draw."""
        space = self.space(labels)
        observed = space.observe(key, position)
        lowest, readout = (observed[f"{kind}order_parameter"] for kind in ("", "readout_"))
        likelihood = space.log_likelihood(position)
        return stacked(lowest, readout, observed["predictor"][0, 0], likelihood, position)


def stacked(lowest, readout, prediction, log_likelihood, position):
    """[quantity]: two elements of U_1, U_a, a predictor, the log likelihood, what has a prior."""
    of_network = [lowest[0, 0], lowest[1, 0], readout[0, 0], prediction, log_likelihood]
    of_prior = [position[TEMPERATURE][0]] if TEMPERATURE in position else []
    return jnp.stack([*of_network, *of_prior])


QUANTITIES = ("U_1[0, 0]", "U_1[1, 0]", "u_a", "predictor", "log likelihood")
HYPER_PARAMETERS = ("temperature",)


def calibration_ranks(
    calibrated, data_sets: int, seed: int, chain: Chain | None = None
) -> np.ndarray:
    """Rank of the truth among KEPT thinned draws, [data set, quantity], from 0 to KEPT.

    Drawn by a chain by itself whose gradients are in single precision, or else by NUTS; from where
    its warm-up ended, which began at a draw from the prior and knew the labels only. Where the
    space can say which of its positions the truth is, the chain goes on from the truth instead, a
    random number of draws to one side and the rest to the other: it is reversible, and the truth
    is a draw from the posterior, so its place among all is uniform however slowly they mix
    (Gandy and Scott, "Unit testing for MCMC", 2020).
    """
    from_truth = chain is not None and hasattr(calibrated, "at_truth")

    def one_data_set(key):
        keys = jax.random.split(key, 6)
        position, labels = calibrated.simulate(keys[0])
        space = calibrated.space(labels)
        moves = nuts(calibrated, labels) if chain is None else alone(chain, space)
        start = space.draw_prior(keys[1])
        state = moves.begin(keys[2], space.flatten(start))
        state = jax.lax.fori_loop(0, WARMUP, lambda _, state: moves.advance(state), state)

        def at_truth(state):
            return moves.at(state, space.flatten(calibrated.at_truth(position, start)))

        if from_truth:
            state = at_truth(state)
        turn = jax.random.randint(keys[5], (), 0, KEPT + 1)

        def keep(state, draw):
            number, draw_key = draw
            if from_truth:
                state = jax.tree.map(partial(jnp.where, number == turn), at_truth(state), state)
            state = jax.lax.fori_loop(0, THINNING, lambda _, state: moves.advance(state), state)
            there = space.unflatten(moves.place(state))
            return state, calibrated.drawn(draw_key, there, labels)

        numbers = jnp.arange(KEPT)
        _, drawn = jax.lax.scan(keep, state, (numbers, jax.random.split(keys[3], KEPT)))
        truth = calibrated.truth(keys[4], position, labels)
        below, equal = jnp.sum(drawn < truth, axis=0), jnp.sum(drawn == truth, axis=0)
        # Refused steps repeat the truth: its place among what equals it is as random.
        return below + jax.random.randint(keys[5], equal.shape, 0, equal + 1)

    keys = jax.random.split(jax.random.key(seed), data_sets)
    return np.asarray(jax.jit(jax.vmap(one_data_set))(keys))


@dataclass(frozen=True)
class Moves:
    """First state, next state, and point in a state of a chain.

    at  the state at another point, step and masses being as they are; None where there is none
    """

    begin: Callable
    advance: Callable
    place: Callable
    at: Callable | None = None


def nuts(calibrated, labels) -> Moves:
    """NumPyro's NUTS."""
    initialise, transition = hmc(
        potential_fn_gen=lambda labels: calibrated.space(labels).potential, algo="NUTS"
    )

    def begin(key, start):
        return initialise(
            start, num_warmup=WARMUP, model_args=(labels,), rng_key=key,
            target_accept_prob=0.9, max_tree_depth=7,
        )  # fmt: skip

    return Moves(begin, lambda state: transition(state, (labels,)), lambda state: state.z)


def alone(chain: Chain, space: Space) -> Moves:
    """A chain that has no others: the mean over all is its own number."""
    space = space.with_single_gradients()

    def begin(key, start):
        first, second = jax.random.split(key)
        return chain.shared(first, space), chain.init(second, start, space)

    def advance(both):
        shared, state, _ = chain.advance(*both, space, lambda number: number)
        return shared, state

    def at(both, point):
        shared, state = both
        return shared, chain.init(state["key"], point, space)

    return Moves(begin, advance, lambda both: chain.point(both[1], space), at)


def sites_at_truth(position: dict, start: dict) -> dict:
    """Those of the sampler at the truth; one that no weight of the truth stands for, at a start."""
    return {name: position.get(name, values) for name, values in start.items()}


def uniformity(ranks: np.ndarray, names: tuple[str, ...] = ()) -> dict[str, float]:
    """χ² p-value of uniform ranks for every quantity, by default those of `stacked`."""
    per_bin = (KEPT + 1) // BINS
    p_values = {}
    if not names:
        names = QUANTITIES if ranks.shape[1] == len(QUANTITIES) else QUANTITIES + HYPER_PARAMETERS
    for name, column in zip(names, ranks.T, strict=True):
        counts = np.bincount(column // per_bin, minlength=BINS)
        p_values[name] = float(scipy.stats.chisquare(counts).pvalue)
    return p_values
