"""Samplers of the posterior of weights that a user would otherwise write or install.

Each is a function of a posterior, the seconds it may use and a seed, and yields blocks
[chain, draw, element] of the lower triangle of U_1, without end. Nothing of `sampler.mcmc` is used;
but for the forward pass token by token, all have this project's contraction along attention paths,
which makes their gradients some hundred times cheaper than what a user would write.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from blackjax.mcmc.adjusted_mclmc_dynamic import make_random_trajectory_length_fn
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as Axes
from jaxtyping import Array, Float
from numpyro.infer import NUTS

from sampler.network import Weights, network_outputs, overlaps
from sampler.posterior.weights_from_order_parameters import standard_normals
from theory import Architecture, LearningProblem

CHAINS = 4
# Draws that a block holds at most, and how long it takes.
BLOCK_DRAWS, BLOCK_SECONDS = 256, 2.0
# NumPyro's usual warm-up, and of the time that a sampler may use, the most for warm-up.
WARMUP, WARMUP_SHARE = 1000, 1 / 3
Position = Mapping[str, Array]
Blocks = Iterator[Float[np.ndarray, "chain draw element"]]


@dataclass(frozen=True)
class Whitened:
    """A posterior in coordinates x whose prior is standard normal.

        p(x, y) = N(x; 0, 1) exp(log_likelihood(x))

    shapes          of the coordinates, by name
    log_likelihood  position → ln p(y | x)
    weights         position → the weights V_0 … V_L, a
    """

    shapes: Mapping[str, tuple[int, ...]]
    log_likelihood: Callable[[Position], Float[Array, ""]]
    weights: Callable[[Position], Weights]

    def log_density(self, position: Position) -> Float[Array, ""]:
        """ln p(x, y)."""
        numbers = sum(values.size for values in position.values())
        squares = sum(jnp.vdot(values, values) for values in position.values())
        return self.log_likelihood(position) - (squares + numbers * math.log(2 * math.pi)) / 2

    def model(self) -> None:
        """The same as a NumPyro model."""
        position = {
            name: numpyro.sample(name, dist.Normal(jnp.zeros(shape), 1.0).to_event(len(shape)))
            for name, shape in self.shapes.items()
        }
        numpyro.factor("y", self.log_likelihood(position))


def scaled_weights(position: Position, architecture: Architecture) -> Weights:
    """σ x."""
    return {name: architecture.weight_variances[name] ** 0.5 * x for name, x in position.items()}


def weight_posterior(problem: LearningProblem) -> Whitened:
    """All weights, divided by their prior standard deviations; f(x) contracted along the paths."""
    architecture = problem.architecture
    deviation = jnp.sqrt(jnp.asarray(problem.temperature, problem.labels.dtype))

    def log_likelihood(position):
        outputs = network_outputs(
            scaled_weights(position, architecture), problem.attended, architecture
        )
        return dist.Normal(outputs, deviation).log_prob(problem.labels).sum()

    weights = partial(scaled_weights, architecture=architecture)
    return Whitened(architecture.weight_shapes, log_likelihood, weights)


def readout_features(
    weights: Weights, attended: Float[Array, "example path channel"], architecture: Architecture
) -> Float[Array, "example width"]:
    """z with f = a z/√N_a: what the readout sees of every example."""
    by_head = attended.reshape(attended.shape[0], *architecture.heads, -1)
    hidden = jnp.einsum("ni,x...i->x...n", weights["V_0"], by_head)
    for layer in range(1, architecture.layers + 1):
        hidden = jnp.einsum("hmn,xh...n->x...m", weights[f"V_{layer}"], hidden)
    return hidden / math.sqrt(
        architecture.path_count * architecture.channels * math.prod(architecture.widths[:-1])
    )


def reparametrised_posterior(problem: LearningProblem) -> Whitened:
    """The readout replaced by what is standard normal under the posterior of the readout.

    With B = σ_a z/√(N_a 𝒯) [example, width] and S = 1 + BᵀB = L Lᵀ, the posterior of a readout row
    given the weights below is N(σ_a S⁻¹Bᵀy/√𝒯, σ_a² S⁻¹). So a = σ_a (S⁻¹Bᵀy/√𝒯 + L⁻ᵀ φ) makes φ
    standard normal and independent of all else, and leaves the weights below with the density
    N(y; 0, 𝒯(1 + BBᵀ)) of the labels, by the smaller of the two matrices. In wide networks that
    varies little: all coordinates are almost standard normal. Source: Hron, Novak, Pennington and
    Sohl-Dickstein 2022, arXiv 2206.07673.
    """
    arch, labels, temperature = problem.architecture, problem.labels, problem.temperature
    scale = math.sqrt(arch.weight_variances["a"] / (arch.widths[-1] * temperature))
    scaled_labels = labels / math.sqrt(temperature)
    examples, outputs = labels.shape

    def basis(position):
        below = {name: values for name, values in position.items() if name != "a"}
        below = scaled_weights(below, arch)
        return below, scale * readout_features(below, problem.attended, arch)

    def log_likelihood(position):
        _, b = basis(position)
        small = b.shape[1] < examples
        factor = jnp.linalg.cholesky(jnp.eye(min(b.shape)) + (b.T @ b if small else b @ b.T))
        solve = partial(jax.scipy.linalg.solve_triangular, factor, lower=True)
        if small:
            squares = jnp.sum(scaled_labels**2) - jnp.sum(solve(b.T @ scaled_labels) ** 2)
        else:
            squares = jnp.sum(solve(scaled_labels) ** 2)
        log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
        constant = examples * math.log(2 * math.pi * temperature)
        return -(squares + outputs * (log_determinant + constant)) / 2

    def weights(position):
        below, b = basis(position)
        factor = jnp.linalg.cholesky(jnp.eye(b.shape[1]) + b.T @ b)
        solve = partial(jax.scipy.linalg.solve_triangular, factor, lower=True)
        rows = solve(solve(b.T @ scaled_labels) + position["a"].T, trans=1)
        return {**below, "a": arch.weight_variances["a"] ** 0.5 * rows.T}

    return Whitened(arch.weight_shapes, log_likelihood, weights)


def first_order_parameter(weights: Weights, architecture: Architecture) -> Float[Array, " element"]:
    """The lower triangle of U_1."""
    matrix = overlaps(weights, architecture)[0]
    return matrix[jnp.tril_indices(matrix.shape[0])]


def block_maker(step: Callable, read: Callable, thinning: int = 1) -> Callable:
    """A compiled function (states of all chains, length) → (states, draws [chain, row, element]).

    Every `thinning`-th state is read; `length` is at most `BLOCK_DRAWS`. Chains are advanced one
    after the other, on as many devices as XLA_FLAGS makes of the processor.
    """

    def of_one_chain(state, length):
        def row(index, carry):
            state, rows = carry
            state = jax.lax.fori_loop(0, thinning, lambda _, state: step(state), state)
            return state, rows.at[index].set(read(state))

        one = jax.eval_shape(read, state)
        rows = jnp.zeros((BLOCK_DRAWS, *one.shape), one.dtype)
        return jax.lax.fori_loop(0, length, row, (state, rows))

    def local(states, length):
        return jax.lax.map(lambda state: of_one_chain(state, length), states)

    count = math.gcd(CHAINS, jax.device_count())
    mesh = Mesh(np.array(jax.devices()[:count]), ("chain",))
    chains = Axes("chain")
    return jax.jit(
        jax.shard_map(
            local, mesh=mesh, in_specs=(chains, Axes()), out_specs=chains, check_vma=False
        )
    )


def blocks(advance: Callable, states: Any) -> Iterator[tuple[Any, np.ndarray]]:
    """States and draws after each of endless blocks that grow up to `BLOCK_SECONDS`."""
    length = 1
    while True:
        started = time.perf_counter()
        states, rows = advance(states, length)
        rows = np.asarray(rows)[:, :length]
        yield states, rows
        affordable = int(length * BLOCK_SECONDS / (time.perf_counter() - started))
        length = max(1, min(4 * length, affordable, BLOCK_DRAWS))


def warmed_up(advance: Callable, states: Any, seconds: float, most: int) -> Any:
    """The states after `most` rows at least, or after the block that uses up the time."""
    ends, done = time.perf_counter() + seconds, 0
    for latest, rows in blocks(advance, states):
        done += rows.shape[1]
        if done >= most or time.perf_counter() >= ends:
            return latest


def chain_keys(seed: int) -> Array:
    return jax.random.split(jax.random.key(seed), CHAINS)


def numpyro_nuts(
    model: Callable, arguments: tuple, read: Callable, seconds: float, seed: int
) -> Blocks:
    """NumPyro's NUTS with its default settings and 1,000 steps of warm-up.

    Warm-up ends early when a third of the time is used up: its last step, which averages the step
    size, is then taken next. `read` takes a position.
    """
    kernel = NUTS(model)

    def init(key):
        return kernel.init(key, WARMUP, None, arguments, {})

    states = jax.jit(lambda keys: jax.lax.map(init, keys))(chain_keys(seed))
    advance = block_maker(
        lambda state: kernel.sample(state, arguments, {}), lambda state: read(state.z)
    )
    states = warmed_up(advance, states, WARMUP_SHARE * seconds, WARMUP)
    if int(states.i[0]) < WARMUP:
        states, _ = advance(states._replace(i=jnp.full_like(states.i, WARMUP - 1)), 1)
    for _, rows in blocks(advance, states):
        yield rows


def nuts(posterior: Whitened, read: Callable, seconds: float, seed: int) -> Blocks:
    """`numpyro_nuts` of a posterior in whitened coordinates."""
    return numpyro_nuts(posterior.model, (), read, seconds, seed)


class CrankNicolsonState(NamedTuple):
    """One chain; `time` counts the steps that adapt, and is 0 for the others.

    log_odds  of β, the share of a proposal that is new: β² of its variance
    """

    key: Array
    position: Position
    log_likelihood: Array
    log_odds: Array
    time: Array


# Acceptance that the step adapts to, steps between two draws that are read, and the most draws in
# which it adapts.
CRANK_NICOLSON_ACCEPTANCE, CRANK_NICOLSON_THINNING, CRANK_NICOLSON_WARMUP = 0.25, 10, 2000


def crank_nicolson_step(state: CrankNicolsonState, posterior: Whitened) -> CrankNicolsonState:
    """x' = √(1 − β²) x + β ξ with ξ ~ N(0, 1), accepted by the ratio of likelihoods.

    Robbins and Monro's rule moves ln(β/(1 − β)) towards the acceptance wanted.
    """
    key, noise_key, accept_key = jax.random.split(state.key, 3)
    beta = jax.nn.sigmoid(state.log_odds)
    noise = standard_normals(noise_key, posterior.shapes, beta.dtype)
    proposal = jax.tree.map(
        lambda x, new: jnp.sqrt(1 - beta**2) * x + beta * new, dict(state.position), noise
    )
    log_likelihood = posterior.log_likelihood(proposal)
    difference = log_likelihood - state.log_likelihood
    ratio = jnp.where(jnp.isnan(difference), 0.0, jnp.exp(jnp.minimum(difference, 0.0)))
    accepted = jax.random.uniform(accept_key, dtype=beta.dtype) < ratio
    gain = jnp.where(state.time > 0, (1 + state.time) ** -0.5, 0.0)
    return CrankNicolsonState(
        key,
        jax.tree.map(lambda new, old: jnp.where(accepted, new, old), proposal, state.position),
        jnp.where(accepted, log_likelihood, state.log_likelihood),
        state.log_odds + gain * (ratio - CRANK_NICOLSON_ACCEPTANCE),
        jnp.where(state.time > 0, state.time + 1, state.time),
    )


def crank_nicolson(posterior: Whitened, read: Callable, seconds: float, seed: int) -> Blocks:
    """Preconditioned Crank–Nicolson; every chain finds its step in warm-up, then keeps it.

    `read` takes a position. Source: arXiv 2408.14325, which applies it to the reparametrised
    posterior.
    """

    def start(key):
        key, start_key = jax.random.split(key)
        dtype = jnp.zeros(()).dtype
        position = standard_normals(start_key, posterior.shapes, dtype)
        likelihood = posterior.log_likelihood(position)
        return CrankNicolsonState(
            key, position, likelihood, jnp.zeros((), dtype), jnp.ones((), dtype)
        )

    states = jax.jit(lambda keys: jax.lax.map(start, keys))(chain_keys(seed))
    advance = block_maker(
        partial(crank_nicolson_step, posterior=posterior),
        lambda state: read(state.position),
        CRANK_NICOLSON_THINNING,
    )
    states = warmed_up(advance, states, WARMUP_SHARE * seconds, CRANK_NICOLSON_WARMUP)
    for _, rows in blocks(advance, states._replace(time=jnp.zeros_like(states.time))):
        yield rows


class MicrocanonicalState(NamedTuple):
    """One chain, with the step size and trajectory length that it found."""

    key: Array
    chain: Any
    step_size: Array
    length: Array


# Acceptance that BlackJAX's tuning is asked for.
MICROCANONICAL_ACCEPTANCE = 0.9
# Length of a trajectory over what the tuning without acceptance finds; see `microcanonical`.
MICROCANONICAL_FACTOR = 1.0
# Most steps without acceptance, their cost in gradients (the integrator takes two of these and
# draws noise), and transitions that find the step size with acceptance.
MICROCANONICAL_WARMUP, STEP_GRADIENTS, MICROCANONICAL_TRANSITIONS = 4000, 10, 100


def microcanonical(
    posterior: Whitened,
    read: Callable,
    seconds: float,
    seed: int,
    factor: float = MICROCANONICAL_FACTOR,
) -> Blocks:
    """BlackJAX's adjusted MCLMC, trajectories of random length, tuned by its own functions.

    Every chain is tuned by itself, first without acceptance, which takes it from its start to the
    bulk of the posterior and finds the length of a trajectory, then the step size with acceptance.
    Masses stay 1, as the prior's are in these coordinates. `read` takes a position.
    """
    example = {name: jnp.zeros(shape) for name, shape in posterior.shapes.items()}
    flat, unravel = ravel_pytree(example)
    unadjusted = blackjax.mclmc.build_kernel()
    adjusted = blackjax.adjusted_mclmc_dynamic.build_kernel(
        integration_steps_fn=make_random_trajectory_length_fn(True)
    )

    def log_density(flat):
        return posterior.log_density(unravel(flat))

    def tuned(key, steps):
        keys = iter(jax.random.split(key, 6))
        position, _ = ravel_pytree(standard_normals(next(keys), posterior.shapes, flat.dtype))
        start = blackjax.mclmc.init(position, log_density, next(keys))
        found, first, _ = blackjax.mclmc_find_L_and_step_size(
            unadjusted,
            steps,
            start,
            next(keys),
            logdensity_fn=log_density,
            frac_tune1=0.7,
            frac_tune2=0.3,
            frac_tune3=0.0,
            diagonal_preconditioning=False,
        )
        chain = blackjax.adjusted_mclmc_dynamic.init(found.position, log_density, next(keys))
        chain, second, _ = blackjax.adjusted_mclmc_find_L_and_step_size(
            adjusted,
            log_density,
            MICROCANONICAL_TRANSITIONS,
            chain,
            next(keys),
            target=MICROCANONICAL_ACCEPTANCE,
            frac_tune1=1.0,
            frac_tune2=0.0,
            diagonal_preconditioning=False,
            params=first,
            target_num_integration_steps=factor * first.L / first.step_size,
        )
        # Its step size is found at this length, its own length is for the step it began with.
        return MicrocanonicalState(next(keys), chain, second.step_size, factor * first.L)

    def step(state):
        key, own = jax.random.split(state.key)
        chain, _ = adjusted(
            own,
            state.chain,
            log_density,
            state.step_size,
            integration_steps_params=(state.length / state.step_size,),
        )
        return state._replace(key=key, chain=chain)

    cost = STEP_GRADIENTS * CHAINS * gradient_seconds(log_density, flat)
    steps = int(np.clip(WARMUP_SHARE * seconds / cost, 100, MICROCANONICAL_WARMUP))
    states = jax.jit(lambda keys: jax.lax.map(lambda key: tuned(key, steps), keys))(
        chain_keys(seed)
    )
    advance = block_maker(step, lambda state: read(unravel(state.chain.position)))
    for _, rows in blocks(advance, states):
        yield rows


def gradient_seconds(log_density: Callable, position: Array, least: float = 0.5) -> float:
    """Seconds per gradient in a compiled loop."""

    @jax.jit
    def loop(position, count):
        gradient = jax.grad(log_density)
        return jax.lax.fori_loop(0, count, lambda _, x: x - 1e-9 * gradient(x), position)

    loop(position, 1).block_until_ready()
    count, started = 1, time.perf_counter()
    while True:
        before = time.perf_counter()
        loop(position, count).block_until_ready()
        now = time.perf_counter()
        if now - started > least:
            return (now - before) / count
        count *= 2
