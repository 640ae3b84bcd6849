"""Simulation-based calibration: is the truth just one more draw from its own posterior?

Truth θ* from the prior, labels from θ*, draws from the posterior given the labels: the rank of any
function of θ* among its draws is uniform if, and only if, prior, likelihood and sampler agree.
Every data set is simulated forwards through real weights, so that the spaces with integrated
weights have their integration tested too. All data sets are sampled side by side.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from numpyro.infer.hmc import hmc

from sampler.mcmc.algorithm import Chain
from sampler.network import network_outputs, overlaps, path_weights
from sampler.posterior.initial_distribution import InitialDistribution
from sampler.posterior.labels import CollapsedLabels, flat_labels
from sampler.posterior.space import TEMPERATURE, Space
from sampler.problem import AnyProblem
from sampler.token_network import predict_split
from sampler.token_problem import LearnedProblem, TokenProblem
from tests.sampler.mcmc.laws import led

WARMUP, KEPT, THINNING, BINS = 200, 31, 5, 8
# Of tempered draws: particles, and repetitions, of each of which one particle is a draw.
PARTICLES, REPETITIONS = 32, 7


@dataclass(frozen=True)
class Calibration:
    """What is simulated, and what the sampler believes (wrong in the negative controls).

    space  that the sampler works in
    """

    true: AnyProblem
    believed: AnyProblem
    space: str

    @property
    def outside(self) -> bool:
        """Whether the network is outside the theory."""
        return isinstance(self.true, TokenProblem)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all weights of the true network, and of its logit weights."""
        sites = self.true.sites if isinstance(self.true, LearnedProblem) else ()
        return dict(network_of(self.true).weight_shapes) | dict(sites)

    def simulate(self, key) -> tuple[dict, jax.Array]:
        """All weights from their priors, and labels from these."""
        network, position = network_of(self.true), {}
        *keys, shift_key, noise_key = jax.random.split(key, len(self.shapes) + 2)
        for one, (name, shape) in zip(keys, self.shapes.items(), strict=True):
            layer = network.weight_layers.get(name)
            variance = 1.0 if layer is None else network.variances[layer]
            position[name] = variance**0.5 * jax.random.normal(one, shape)
        temperature = self.true.temperature
        if spread := spread_of(self.true):
            shift = spread * jax.random.normal(shift_key, (1,))
            position[TEMPERATURE], temperature = shift, temperature * jnp.exp(shift[0])
        clean = outputs(self.true, position)
        return position, clean + temperature**0.5 * jax.random.normal(noise_key, clean.shape)

    @cached_property
    def believed_space(self) -> Space:
        keep = () if self.space == "order_parameters" else network_of(self.believed).weight_shapes
        return self.believed.space(self.space, keep=tuple(keep), whitened=False)

    def posterior(self, labels) -> Space:
        """The posterior of these labels."""
        return self.believed_space.with_labels(labels)

    def at_truth(self, position: dict, start: dict) -> dict | None:
        """Where the truth is; a site that no weight of it stands for, at a start.

        None where sites are no weights.
        """
        if self.space == "order_parameters":
            return None
        return {name: position.get(name, values) for name, values in start.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Quantities whose ranks are taken."""
        if self.outside:
            both = {*self.shapes} & {*network_of(self.believed).weight_shapes}
            return "predictor", "log likelihood", *sorted(both)
        names = ["predictor", "log likelihood", "U_1[0, 0]", "U_1[1, 0]", "u_a"]
        names += ["logits", "attention"] * isinstance(self.true, LearnedProblem)
        return (*names, "temperature") if spread_of(self.true) else tuple(names)

    def truth(self, key, position, labels):
        """Quantities of real weights, by the forward pass."""
        if self.space == "order_parameters":
            arch = self.true.architecture
            factor = path_weights(position, arch)[0] / arch.widths[0] ** 0.5
            law = CollapsedLabels(self.posterior(labels).energy(position), factor)
            likelihood = law.log_prob(flat_labels(labels))
        else:
            likelihood = self.fit(self.true, position, labels)
        prediction = outputs(self.true, position, test=True)[0, 0]
        return self.stacked(self.true, position, None, prediction, likelihood)

    def drawn(self, key, position, labels):
        """Quantities of a draw, and of f given it."""
        space = self.posterior(labels)
        given = space.given(position, key)
        prediction = given.function(space.data.test(position))[0, 0]
        if self.space == "order_parameters":
            found, likelihood = given.order_parameters, space.log_likelihood(position)
        else:
            found, likelihood = None, self.fit(self.believed, position, labels)
        weights = {**position, **given.stored}
        return self.stacked(self.believed, weights, found, prediction, likelihood)

    def fit(self, problem, position, labels):
        """ln p(y | hidden weights), or how far f of all weights is from the labels."""
        if self.space == "weights":
            return -jnp.sum((outputs(problem, position) - labels) ** 2)
        space = self.posterior(labels)
        return space.log_likelihood({name: position[name] for name in space.shapes})

    def stacked(self, problem, position, order_parameters, prediction, likelihood):
        """[quantity], as `names`; order parameters are those of the weights, if none are given."""
        found = [prediction, likelihood]
        if self.outside:
            return jnp.stack([*found, *(jnp.sum(position[n] ** 2) for n in self.names[2:])])
        if order_parameters is None:
            lowest, *_, readout = overlaps(position, problem.architecture)
        else:
            lowest, readout = (
                order_parameters[f"{kind}order_parameter"] for kind in ("", "readout_")
            )
        found += [lowest[0, 0], lowest[1, 0], readout[0, 0]]
        if isinstance(problem, LearnedProblem):
            ((site, _),) = problem.sites
            logits = problem.data.attention.scale * position[site]
            found += [logits[0, 0] - logits[0, 1], jax.nn.softmax(logits[1])[0]]
        return jnp.stack(found + ([position[TEMPERATURE][0]] if spread_of(self.true) else []))


class InfiniteCalibration(Calibration):
    """Learned heads at infinite width: f is a Gaussian process given the attention."""

    names = "predictor", "log likelihood", "logits", "attention"

    def simulate(self, key) -> tuple[dict, jax.Array]:
        """Logit weights from the prior, f on both sets by the kernel, and labels from f."""
        ((site, shape),) = self.true.sites
        site_key, f_key, noise_key = jax.random.split(key, 3)
        position, data = {site: jax.random.normal(site_key, shape)}, self.true.data
        both = jnp.concatenate([data.train(position), data.test(position)])
        flat, variances = both.reshape(len(both), -1), self.true.architecture.variances
        kernel = np.prod(variances) / flat.shape[1] * flat @ flat.T
        root = jnp.linalg.cholesky(kernel + 1e-10 * jnp.eye(len(flat)))
        f = root @ jax.random.normal(f_key, (len(flat), 1))
        labels, position["f"] = f[: len(data.labels)], f[len(data.labels) :]
        noise = jax.random.normal(noise_key, labels.shape)
        return position, labels + self.true.temperature**0.5 * noise

    def truth(self, key, position, labels):
        likelihood = self.fit(self.true, position, labels)
        return self.stacked(self.true, position, None, position["f"][0, 0], likelihood)

    def stacked(self, problem, position, order_parameters, prediction, likelihood):
        ((site, _),) = problem.sites
        logits = problem.data.attention.scale * position[site]
        attention = jax.nn.softmax(logits[1])[0]
        return jnp.stack([prediction, likelihood, logits[0, 0] - logits[0, 1], attention])


def network_of(problem: AnyProblem):
    """The network with its variances and the shapes of its weights."""
    return problem.network if isinstance(problem, TokenProblem) else problem.architecture


def spread_of(problem: AnyProblem) -> float:
    """s of ln(𝒯/𝒯_0) ~ N(0, s²)."""
    return getattr(problem, "learning", problem).temperature_spread


def outputs(problem: AnyProblem, weights, test: bool = False):
    """f on the training or the test set by the forward pass of the network."""
    if isinstance(problem, TokenProblem):
        data = problem.data
        return predict_split(weights, data.tokens_test if test else data.tokens, problem.network)
    if isinstance(problem, LearnedProblem):
        attended = problem.data.test(weights) if test else problem.data.train(weights)
    else:
        attended = problem.attended_test if test else problem.learning.attended
    return network_outputs(weights, jnp.asarray(attended), problem.architecture)


def ranks_by_chains(
    calibrated: Calibration, data_sets: int, seed: int, chain: Chain | None = None
) -> np.ndarray:
    """Rank of the truth among KEPT thinned draws, [data set, quantity], from 0 to KEPT.

    Drawn by a chain by itself whose gradients are in single precision, or else by NUTS; from where
    its warm-up ended, which began at a draw from the prior and knew the labels only. Where the
    space can say which of its positions the truth is, the chain goes on from the truth instead, a
    random number of draws to one side and the rest to the other: it is reversible, and the truth
    is a draw from the posterior, so its place among all is uniform however slowly they mix
    (Gandy and Scott, "Unit testing for MCMC", 2020).
    """
    from_truth = chain is not None and calibrated.space != "order_parameters"

    def one_data_set(key):
        keys = jax.random.split(key, 6)
        position, labels = calibrated.simulate(keys[0])
        space = calibrated.posterior(labels)
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
        potential_fn_gen=lambda labels: calibrated.posterior(labels).potential, algo="NUTS"
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


def ranks_by_particles(calibrated: Calibration, data_sets: int, seed: int) -> np.ndarray:
    """Rank of the truth among one particle of each repetition, [data set, quantity].

    All goes as in a run, from the prior: a pilot, and repetitions that follow its course. One
    particle of each, so that they share no ancestor.
    """
    keys = jax.random.split(jax.random.key(seed), data_sets)
    positions, labels = jax.jit(jax.vmap(calibrated.simulate))(keys)
    # One space for all: what is compiled for it serves every data set.
    space = calibrated.posterior(labels[0])
    truth = jax.jit(calibrated.truth)
    drawn = jax.jit(jax.vmap(calibrated.drawn, in_axes=(0, 0, None)))
    ranks = []
    for number, key in enumerate(keys):
        law = InitialDistribution.prior(space.with_labels(labels[number]))
        course = led(law, PARTICLES, (seed, number, REPETITIONS)).path
        # Of equal weight, in an order by chance: any one of them.
        points = [
            led(law, PARTICLES, (seed, number, n), course).points[0] for n in range(REPETITIONS)
        ]
        at = space.unflatten(jnp.asarray(np.stack(points)))
        one, *others = jax.random.split(jax.random.fold_in(key, 1), REPETITIONS + 1)
        known = truth(one, jax.tree.map(lambda v, n=number: v[n], positions), labels[number])
        found = drawn(jnp.stack(others), at, labels[number])
        ranks.append(np.asarray(jnp.sum(found < known, axis=0)))
    return np.array(ranks)


def uniformity(ranks: np.ndarray, largest: int, names: tuple[str, ...]) -> dict[str, float]:
    """χ² p-value of uniform ranks from 0 to the largest, for every quantity."""
    per_bin, found = (largest + 1) // BINS, {}
    for name, column in zip(names, ranks.T, strict=True):
        counts = np.bincount(column // per_bin, minlength=BINS)
        found[name] = float(scipy.stats.chisquare(counts).pvalue)
    return found
