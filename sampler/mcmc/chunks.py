"""Chains advanced in chunks that can be stored and gone on from.

Knows no task, no file, and of an algorithm what `Algorithm` says. One compiled function serves
every chunk, whatever its length, so memory stays bounded, progress is visible, and stopping between
chunks loses nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Axes

from sampler.mcmc.algorithm import Algorithm, ChainSettings
from sampler.posterior.density import Density

# A chunk holds at most this many draws per chain and bytes in all, and lasts about this long.
CHUNK_DRAWS = 64
CHUNK_BYTES = 128 * 2**20
CHUNK_SECONDS = 4.0
OBSERVATION_STREAM = 1
BY_CHAIN, IN_BUFFERS, EVERYWHERE = Axes("chain"), Axes(None, "chain"), Axes()


def for_every_chain(of_one_chain: Callable, *by_chain):
    """The results for all chains: one after the other on a processor, together elsewhere.

    Together, every step of a trajectory copies the trees of all chains, and the longest tree keeps
    all waiting: on a processor that costs several times more than the gradients of wide networks.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda arguments: of_one_chain(*arguments), by_chain)
    return jax.vmap(of_one_chain)(*by_chain)


def devices_for(chains: int) -> list:
    """As many devices as divide the chains evenly.

    A processor is one device, unless XLA_FLAGS divides it into several.
    """
    devices = jax.devices()
    count = max(n for n in range(1, len(devices) + 1) if chains % n == 0)
    return devices[:count]


def chain_mesh(chains: int) -> Mesh:
    """The devices that share these chains, along one axis."""
    return Mesh(np.array(devices_for(chains)), ("chain",))


def place_chains(state, chain_keys, data, chains: int):
    """Put state and keys where their chains are advanced, and data everywhere.

    Done once before the first chunk: arguments that moved between chunks would compile it again.
    """
    mesh = chain_mesh(chains)

    def put(tree, axes):
        where = NamedSharding(mesh, axes) if mesh.size > 1 else mesh.devices.item()
        return jax.device_put(jax.tree.map(_strongly_typed, tree), where)

    return put(state, BY_CHAIN), put(chain_keys, BY_CHAIN), put(data, EVERYWHERE)


def share_chains(advance: Callable, chains: int) -> Callable:
    """Compile `advance(thinning, state, chain keys, first, length, arguments, observed)`.

    State and keys are split along their leading chain axis, buffers [row, chain, …] along their
    second; there is no communication inside, so trees of different depth on two devices do not
    wait for each other. The same seed and the same number of devices give the same draws.
    """
    mesh = chain_mesh(chains)

    @cache
    def compiled(thinning: int) -> Callable:
        def local(*arguments):
            return advance(thinning, *arguments)

        if mesh.size == 1:
            return jax.jit(local)
        return jax.jit(
            jax.shard_map(
                local,
                mesh=mesh,
                in_specs=(BY_CHAIN, BY_CHAIN, EVERYWHERE, EVERYWHERE, EVERYWHERE, EVERYWHERE),
                out_specs=(BY_CHAIN, IN_BUFFERS, IN_BUFFERS),
                check_vma=False,
            )
        )

    def call(thinning: int, *arguments):
        with _without_shardy() if mesh.size > 1 else nullcontext():
            return compiled(thinning)(*arguments)

    return call


@contextmanager
def _without_shardy() -> Iterator[None]:
    """Compile with JAX's older partitioner: in Shardy the compiler of jaxlib 0.11.2 crashes."""
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        yield
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)


def _strongly_typed(leaf):
    """A leaf whose type no longer depends on what it meets (a weak one changes between chunks)."""
    if isinstance(leaf, jax.Array) and not getattr(leaf, "weak_type", False):
        return leaf
    return jnp.asarray(leaf, jnp.asarray(leaf).dtype)


@dataclass(frozen=True)
class Snapshot:
    """Where the chains stand after `done` steps of a phase.

    phase   "warmup" or "draws"
    arrays  every leaf of the sampler's state by its path, random keys as their data
    """

    phase: str
    done: int
    arrays: Mapping[str, np.ndarray]


class SnapshotMismatch(Exception):
    """A snapshot does not belong to these chains; the text names what differs."""


def state_arrays(state) -> dict[str, np.ndarray]:
    """Every leaf of a sampler state, by its path in the tree."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(_data(leaf)) for path, leaf in leaves}


def restored_state(arrays: Mapping[str, np.ndarray], like):
    """The state whose leaves are these arrays; `like` is a state of the same chains.

    Raises SnapshotMismatch unless names, shapes and dtypes agree.
    """
    paths, tree = jax.tree_util.tree_flatten_with_path(like)
    expected = {jax.tree_util.keystr(path): leaf for path, leaf in paths}
    if set(expected) != set(arrays):
        odd = sorted(set(expected) ^ set(arrays))[0]
        raise SnapshotMismatch(f"{odd} is in one of the two states only")
    return jax.tree_util.tree_unflatten(
        tree, [_restored(name, arrays[name], leaf) for name, leaf in expected.items()]
    )


def _data(leaf):
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _restored(name: str, values: np.ndarray, leaf):
    stored = jax.eval_shape(_data, leaf)
    if (values.shape, values.dtype) != (stored.shape, stored.dtype):
        raise SnapshotMismatch(
            f"{name} is {values.dtype}{list(values.shape)}, "
            f"these chains have {stored.dtype}{list(stored.shape)}"
        )
    if _is_key(leaf):
        return jax.random.wrap_key_data(values, impl=jax.random.key_impl(leaf))
    return jax.numpy.asarray(values)


@dataclass(frozen=True)
class Chunk:
    """What one chunk of steps produced.

    phase         "warmup" or "draws"
    done, total   steps finished so far in this phase, and the phase's length
    observables   name → [chain, draw, …]; empty in warm-up
    statistics    ArviZ name → [chain, draw] of every step
    seconds       wall time of this chunk
    compiled      whether the chunk's time includes compilation
    state         state of all chains after this chunk; None where no chains ran
    """

    phase: str
    done: int
    total: int
    observables: Mapping[str, np.ndarray]
    statistics: Mapping[str, np.ndarray]
    seconds: float
    compiled: bool = False
    state: Any = None

    @property
    def snapshot(self) -> Snapshot:
        """What it takes to go on after this chunk."""
        return Snapshot(self.phase, self.done, state_arrays(self.state))

    @property
    def draws(self) -> int:
        """Steps of this chunk, per chain."""
        return self.statistics["lp"].shape[1]


def sample_in_chunks(
    density: Density,
    algorithm: Algorithm,
    settings: ChainSettings,
    on_chunk: Callable[[Chunk], None],
    resume: Snapshot | None = None,
    next_end: Callable[[int], int] | None = None,
) -> None:
    """Run warm-up, then draws, of all chains; every finished chunk goes to `on_chunk`.

    `next_end` maps the number of draws made to that at which a chunk must end next, or to itself
    where no more are to be made; by default it is `settings.draws`.

    From a snapshot of the same chains they go on as if they had never stopped, bit for bit. Raises
    SnapshotMismatch for a snapshot of other chains.
    """
    chain = algorithm.prepared(density, settings)
    # Kernels are completed by their first state, so it is made even where it is replaced.
    state = start_chains(chain, density, settings)
    if resume is not None:
        state = restored_state(resume.arrays, state)
    observation_key = jax.random.fold_in(jax.random.key(settings.seed), OBSERVATION_STREAM)
    chain_keys = jax.random.split(observation_key, settings.chains)
    state, chain_keys, data = place_chains(
        state, chain_keys, (density.arguments, density.observed), settings.chains
    )

    # Traced once, wherever it is used.
    @partial(jax.jit, inline=True)
    def move(state, arguments):
        return chain.step(state, replace(density, arguments=arguments))

    step = partial(_step_all, move, chain.position, density.observe, algorithm.summed)
    rows = jax.eval_shape(partial(step, thinning=1), state, chain_keys, 0, *data)[1:]
    capacity = _capacity(rows)
    advance = share_chains(partial(_advance, step, capacity), settings.chains)
    compiled_for: set[int] = set()
    for phase, total in (("warmup", settings.warmup), ("draws", settings.draws)):
        done, length = _done_before(resume, phase, total), 1
        thinning = settings.thinning if phase == "draws" else 1
        ends = next_end if next_end and phase == "draws" else lambda _, end=total: end
        while done < (end := ends(done)):
            started = time.perf_counter()
            length = min(length, end - done)
            state, observables, statistics = advance(
                thinning, state, chain_keys, done, length, *data
            )
            observables, statistics = jax.device_get((observables, statistics))
            seconds = time.perf_counter() - started
            done += length
            kept = _by_chain(observables, length) if phase == "draws" else {}
            statistics = _by_chain(statistics, length)
            compiled = thinning not in compiled_for
            compiled_for.add(thinning)
            on_chunk(Chunk(phase, done, total, kept, statistics, seconds, compiled, state))
            length = _next_length(length, seconds, capacity)


def start_chains(chain, density: Density, settings: ChainSettings):
    """State of all chains before the first step, stacked along a leading chain axis."""

    def start(key, arguments):
        here = replace(density, arguments=arguments)
        chain_key, start_key = jax.random.split(key)
        positions = jax.vmap(density.start)(jax.random.split(start_key, settings.chains))
        keys = jax.random.split(chain_key, settings.chains)
        return for_every_chain(lambda k, position: chain.init(k, position, here), keys, positions)

    # One compilation instead of one for each of some four hundred operations.
    return jax.jit(start)(jax.random.key(settings.seed), density.arguments)


def _done_before(resume: Snapshot | None, phase: str, total: int) -> int:
    """Steps of a phase that lie before the snapshot."""
    if resume is None or (resume.phase, phase) == ("warmup", "draws"):
        return 0
    return resume.done if resume.phase == phase else total


def _capacity(rows) -> int:
    """Draws that one chunk may hold: few when a draw is large."""
    size = sum(np.prod(row.shape) * row.dtype.itemsize for row in jax.tree.leaves(rows))
    return int(max(1, min(CHUNK_DRAWS, CHUNK_BYTES // size)))


def _next_length(length: int, seconds: float, capacity: int) -> int:
    """Steps of the next chunk: at most four times the last, so compilation is soon forgotten."""
    affordable = int(length * CHUNK_SECONDS / max(seconds, 1e-9)) if length > 1 else 4
    return max(1, min(capacity, 4 * length, affordable))


def _by_chain(buffers: Mapping[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
    """[step, chain, …] buffers, filled up to `length`, as [chain, step, …]."""
    return {name: np.swapaxes(values[:length], 0, 1) for name, values in buffers.items()}


def _advance(step, capacity, thinning, state, chain_keys, first, length, arguments, observed):
    """`length` kept steps of all chains, written into buffers of `capacity` rows."""
    step = partial(step, thinning=thinning)
    rows = jax.eval_shape(step, state, chain_keys, 0, arguments, observed)[1:]
    buffers = jax.tree.map(lambda row: jnp.zeros((capacity, *row.shape), row.dtype), rows)

    def body(row, carry):
        state, buffers = carry
        state, *new = step(state, chain_keys, first + row, arguments, observed)
        return state, jax.tree.map(lambda b, n: b.at[row].set(n), buffers, tuple(new))

    state, (observables, statistics) = jax.lax.fori_loop(0, length, body, (state, buffers))
    return state, observables, statistics


def _step_all(
    move, position, observe, summed, state, chain_keys, index, arguments, observed, *, thinning
):
    """One kept step of every chain: `thinning` transitions, then what is read off the position."""

    def advance(_, carry):
        state, before = carry
        state, found = move(state, arguments)
        return state, {n: before[n] + v if n in summed else v for n, v in found.items()}

    def of_one_chain(state, chain_key):
        _, found = jax.eval_shape(move, state, arguments)
        nothing = {name: jnp.zeros(one.shape, one.dtype) for name, one in found.items()}
        state, statistics = jax.lax.fori_loop(0, thinning, advance, (state, nothing))
        key = jax.random.fold_in(chain_key, index)
        return state, observe(key, position(state), *observed), statistics

    return for_every_chain(of_one_chain, state, chain_keys)
