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
from sampler.posterior.density import (
    TEMPERATURE,
    Density,
    energy_at,
    temperature_prior,
    temperature_ratio,
    weights_at,
)

from sampler.mcmc.algorithm import Chain
from sampler.network import network_outputs, overlaps, path_weights
from sampler.posterior.labels import label_log_likelihood
from sampler.posterior.order_parameters import (
    factors_at,
    likelihood_factor,
    order_parameter_model,
    site_priors,
)
from sampler.posterior.weights import weight_model, weight_priors
from theory import Architecture, LabelEnergy, Predictor, make_path_kernels, path_features
from theory.wishart_chain import WishartChain

WARMUP, KEPT, THINNING, BINS = 200, 63, 5, 16


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

    def misjudging_degrees(self, more: int) -> "CalibrationProblem":
        """The sampler takes every layer to be wider than it is, at the same mean overlap."""
        widths = tuple(width + more for width in self.architecture.widths)
        return replace(self, believed_architecture=replace(self.architecture, widths=widths))


def simulate(key, problem: CalibrationProblem) -> tuple[dict, jax.Array]:
    """A position from the prior in the space of all weights, and labels from these weights."""
    arch = problem.architecture
    keys = jax.random.split(key, len(arch.weight_shapes) + 2)
    position = {
        name: arch.weight_variances[name] ** 0.5 * jax.random.normal(k, shape)
        for k, (name, shape) in zip(keys, arch.weight_shapes.items(), strict=False)
    }
    position |= draw_sites(keys[-2], temperature_prior(problem.temperature_spread, jnp.float64))
    clean = network_outputs(weights_at(position, arch), jnp.asarray(problem.attended), arch)
    noise = jax.random.normal(keys[-1], clean.shape)
    temperature = problem.temperature * temperature_ratio(position)
    return position, clean + temperature**0.5 * noise


def draw_sites(key, priors: dict) -> dict:
    """One draw of every site from its prior."""
    keys = jax.random.split(key, len(priors) + 1)
    return {n: site.sample(k) for k, (n, site) in zip(keys, priors.items(), strict=False)}


class SpaceCalibration:
    """A space that is sampled: its density for given labels."""

    problem: CalibrationProblem
    believed: Architecture

    def simulate(self, key) -> tuple[dict, jax.Array]:
        """A position from the prior in the space of all weights, and labels from these weights."""
        return simulate(key, self.problem)

    @property
    def believed_variances(self) -> jax.Array:
        return jnp.asarray(self.believed.variances)

    @property
    def weights_known(self) -> dict:
        """What models of weights are given besides arrays."""
        return {"architecture": self.believed, "temperature_spread": self.problem.believed_spread}

    def density_of(self, model, arguments) -> Density:
        priors = self.priors()
        return Density(
            name="calibrated",
            model=model,
            arguments=arguments,
            priors=priors,
            observe=lambda key, position: {},
            observed=(),
        )

    def priors(self) -> dict:
        return weight_priors(self.believed, self.believed_variances, self.problem.believed_spread)


class WeightCalibration(SpaceCalibration):
    """Quantities of weights and of their draws in the space of all weights."""

    def __init__(self, problem: CalibrationProblem) -> None:
        self.problem, self.believed = problem, problem.believed_architecture
        self.attended = jnp.asarray(problem.attended)
        self.test = jnp.asarray(problem.attended_test)

    def start(self, key) -> dict:
        return draw_prior_weights(key, self.problem, tuple(self.believed.weight_shapes))

    def density(self, labels) -> Density:
        temperature = jnp.asarray(self.problem.believed_temperature)
        arguments = (self.attended, labels, temperature, self.believed_variances)
        return self.density_of(partial(weight_model, **self.weights_known), arguments)

    def truth(self, key, position, labels):
        return self.quantities(position, labels, self.problem.architecture)

    def drawn(self, key, position, labels):
        return self.quantities(position, labels, self.believed)

    def quantities(self, position, labels, architecture):
        weights = weights_at(position, architecture)
        residual = network_outputs(weights, self.attended, architecture) - labels
        prediction = network_outputs(weights, self.test, architecture)[0, 0]
        temperature = self.problem.believed_temperature * temperature_ratio(position)
        likelihood = -jnp.sum(residual**2 / temperature + jnp.log(temperature)) / 2.0
        return stacked(overlaps(weights, architecture), prediction, likelihood, position)


class IntegratedCalibration(SpaceCalibration):
    """Quantities in a space whose likelihood is p(y | U_1), V_0 being integrated out."""

    def __init__(self, problem: CalibrationProblem) -> None:
        self.problem, self.believed = problem, problem.believed_architecture
        self.kernels = make_path_kernels(jnp.asarray(problem.attended), None, self.believed)
        variance = self.believed.variances[0]
        self.train = path_features(jnp.asarray(problem.attended), variance)
        self.test = path_features(jnp.asarray(problem.attended_test), variance)

    def energy(self, labels) -> LabelEnergy:
        return LabelEnergy(self.kernels, labels, self.problem.believed_temperature)

    def truth(self, key, position, labels):
        arch = self.problem.architecture
        weights = weights_at(position, arch)
        factor = path_weights(position, arch)[0] / arch.widths[0] ** 0.5
        prediction = network_outputs(weights, jnp.asarray(self.problem.attended_test), arch)[0, 0]
        likelihood = label_log_likelihood(energy_at(self.energy(labels), position), factor)
        return stacked(overlaps(weights, arch), prediction, likelihood, position)

    def finish(self, key, factor, matrices, labels, position):
        energy = energy_at(self.energy(labels), position)
        cross = make_path_kernels(
            jnp.asarray(self.problem.attended_test),
            jnp.asarray(self.problem.attended),
            self.believed,
        )
        gram = jnp.einsum("xpi,xqi->xpq", self.test, self.test)
        predictor = Predictor(energy, cross, gram)
        sample = predictor.draw(key, factor, self.train, self.test)
        likelihood = label_log_likelihood(energy, factor)
        return stacked(matrices, sample[0, 0], likelihood, position)


class OrderParameterCalibration(IntegratedCalibration):
    """The collapsed space."""

    def start(self, key) -> dict:
        return draw_sites(key, self.priors())

    def density(self, labels) -> Density:
        model = partial(order_parameter_model, temperature_spread=self.problem.believed_spread)
        return self.density_of(model, (self.energy(labels), self.chain))

    @property
    def chain(self) -> WishartChain:
        return WishartChain.of(self.believed)

    def priors(self) -> dict:
        return site_priors(self.chain, self.problem.believed_spread)

    def drawn(self, key, position, labels):
        matrices = tuple(f @ f.T for f in factors_at(position, self.chain))
        factor = likelihood_factor(position, self.chain)
        return self.finish(key, factor, matrices, labels, position)


def draw_prior_weights(key, problem: CalibrationProblem, names: tuple[str, ...]) -> dict:
    """Weights of the believed network, and its hyper-parameters, as sites of its models."""
    architecture = problem.believed_architecture
    keys = jax.random.split(key, len(names) + 1)
    weights = {
        name: architecture.weight_variances[name] ** 0.5
        * jax.random.normal(k, architecture.weight_shapes[name])
        for k, name in zip(keys, names, strict=False)
    }
    priors = temperature_prior(problem.believed_spread, jnp.float64)
    return weights | draw_sites(keys[-1], priors)


def stacked(matrices, prediction, log_likelihood, position):
    """[quantity]: two elements of U_1, U_a, a predictor, the log likelihood, what has a prior."""
    lowest, readout = matrices[0], matrices[-1]
    known = [lowest[0, 0], lowest[1, 0], readout[0, 0], prediction, log_likelihood]
    sampled = [position[TEMPERATURE][0]] if TEMPERATURE in position else []
    return jnp.stack([*known, *sampled])


QUANTITIES = ("U_1[0, 0]", "U_1[1, 0]", "u_a", "predictor", "log likelihood")
HYPER_PARAMETERS = ("temperature",)


def calibration_ranks(space, data_sets: int, seed: int, chain: Chain | None = None) -> np.ndarray:
    """Rank of the truth among KEPT thinned draws, [data set, quantity], from 0 to KEPT.

    Drawn by a chain by itself whose gradients are in single precision, or else by NUTS; from where
    its warm-up ended, which began at a draw from the prior and knew the labels only. Where the
    space can say which of its positions the truth is, the chain goes on from the truth instead, a
    random number of draws to one side and the rest to the other: it is reversible, and the truth
    is a draw from the posterior, so its place among all is uniform however slowly they mix
    (Gandy and Scott, "Unit testing for MCMC", 2020).
    """
    from_truth = chain is not None and hasattr(space, "at_truth")

    def one_data_set(key):
        keys = jax.random.split(key, 6)
        position, labels = space.simulate(keys[0])
        moves = nuts(space, labels) if chain is None else alone(chain, space.density(labels))
        start = space.start(keys[1])
        state = moves.begin(keys[2], start)
        state = jax.lax.fori_loop(0, WARMUP, lambda _, state: moves.advance(state), state)
        if from_truth:
            state = moves.at(state, space.at_truth(position, start))
        turn = jax.random.randint(keys[5], (), 0, KEPT + 1)

        def keep(state, draw):
            number, draw_key = draw
            if from_truth:
                other = moves.at(state, space.at_truth(position, start))
                state = jax.tree.map(partial(jnp.where, number == turn), other, state)
            state = jax.lax.fori_loop(0, THINNING, lambda _, state: moves.advance(state), state)
            return state, space.drawn(draw_key, moves.place(state), labels)

        numbers = jnp.arange(KEPT)
        _, drawn = jax.lax.scan(keep, state, (numbers, jax.random.split(keys[3], KEPT)))
        truth = space.truth(keys[4], position, labels)
        below, equal = jnp.sum(drawn < truth, axis=0), jnp.sum(drawn == truth, axis=0)
        # Refused steps repeat the truth: its place among what equals it is as random.
        return below + jax.random.randint(keys[5], equal.shape, 0, equal + 1)

    keys = jax.random.split(jax.random.key(seed), data_sets)
    return np.asarray(jax.jit(jax.vmap(one_data_set))(keys))


@dataclass(frozen=True)
class Moves:
    """First state, next state, and position in a state of a chain.

    at  the state with another position, step and masses being as they are; None where there is none
    """

    begin: Callable
    advance: Callable
    place: Callable
    at: Callable | None = None


def nuts(space, labels) -> Moves:
    """NumPyro's NUTS."""

    def potential(labels) -> Callable:
        return lambda position: -space.density(labels).log_density(position)

    initialise, transition = hmc(potential_fn_gen=potential, algo="NUTS")

    def begin(key, start):
        return initialise(
            start, num_warmup=WARMUP, model_args=(labels,), rng_key=key,
            target_accept_prob=0.9, max_tree_depth=7,
        )  # fmt: skip

    return Moves(begin, lambda state: transition(state, (labels,)), lambda state: state.z)


def alone(chain: Chain, density: Density) -> Moves:
    """A chain that has no others: the mean over all is its own number."""
    density = density.with_single_gradients()

    def begin(key, start):
        first, second = jax.random.split(key)
        return chain.shared(first, density), chain.init(second, start, density)

    def advance(both):
        shared, state, _ = chain.advance(*both, density, lambda number: number)
        return shared, state

    def at(both, position):
        shared, state = both
        return shared, chain.init(state["key"], position, density)

    return Moves(begin, advance, lambda both: chain.position(both[1], density), at)


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
