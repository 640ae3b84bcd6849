"""Chains advanced in chunks that can be stored and gone on from.

Knows no task, no file, and of an algorithm what `Algorithm` says. One compiled function serves
every chunk, whatever its length, and all densities whose arrays have equal shapes, such as those of
a sweep. So memory stays bounded, progress is visible, and stopping between chunks loses nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Axes
from jaxtyping import Int

from sampler.devices import devices_for, for_every_chain
from sampler.mcmc.algorithm import Algorithm, Chain, ChainSettings
from sampler.posterior.density import Density

# A chunk holds at most this many draws per chain and bytes in all, and lasts about this long.
CHUNK_DRAWS = 64
CHUNK_BYTES = 128 * 2**20
CHUNK_SECONDS = 4.0
# Rows of draws that are completed by one call.
COMPLETED_ROWS = 16
OBSERVATION_STREAM, SHARED_STREAM = 1, 2
# Chains on one device are an axis of arrays, devices an axis of the mesh.
CHAIN, DEVICE = "chain", "device"
BY_CHAIN, IN_BUFFERS, EVERYWHERE = Axes(DEVICE), Axes(None, DEVICE), Axes()
STATE = (EVERYWHERE, BY_CHAIN)


def chain_mesh(chains: int) -> Mesh:
    """The devices that share these chains, along one axis."""
    return Mesh(np.array(devices_for(chains)), (DEVICE,))


def placed(tree, axes, mesh: Mesh):
    """Arrays where their chains are advanced, or everywhere.

    The state is placed before every chunk: had it moved, it would be compiled again.
    """
    where = NamedSharding(mesh, axes) if mesh.size > 1 else mesh.devices.item()
    return jax.device_put(jax.tree.map(_strongly_typed, tree), where)


@contextmanager
def _partitioned(mesh: Mesh) -> Iterator[None]:
    """Compile for several devices with the older partitioner: Shardy crashes in jaxlib 0.11.2."""
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", before and mesh.size == 1)
    try:
        yield
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)


def _strongly_typed(leaf):
    """A leaf whose type no longer depends on what it meets (a weak one changes between chunks)."""
    if isinstance(leaf, np.ndarray | jax.Array) and not getattr(leaf, "weak_type", False):
        return leaf
    if isinstance(leaf, jax.core.Tracer):
        return jnp.asarray(leaf, leaf.dtype)
    array = np.asarray(leaf)  # by NumPy, which compiles nothing
    return jnp.asarray(array.astype(jax.dtypes.canonicalize_dtype(array.dtype)))


@dataclass(frozen=True)
class Snapshot:
    """State of the chains after `done` steps of a phase.

    phase   "warmup" or "draws"
    arrays  every leaf of the sampler's state by its path, random keys as their data
    """

    phase: str
    done: int
    arrays: Mapping[str, np.ndarray]


class SnapshotMismatch(Exception):
    """A snapshot does not belong to these chains; the text names what differs."""


def state_arrays(state) -> dict[str, np.ndarray]:
    """Every leaf of what chains share and of their states, by its path in the tree."""
    return {name: np.asarray(_data(leaf)) for name, leaf in _leaves(state).items()}


def _leaves(state) -> dict[str, Any]:
    found = {}
    for prefix, tree in zip(("shared", ""), state, strict=True):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            found[prefix + jax.tree_util.keystr(path)] = leaf
    return found


def restored_state(arrays: Mapping[str, np.ndarray], like):
    """The state whose leaves are these arrays; `like` is a state of the same chains.

    Raises SnapshotMismatch unless names, shapes and dtypes agree.
    """
    expected = _leaves(like)
    if set(expected) != set(arrays):
        odd = sorted(set(expected) ^ set(arrays))[0]
        raise SnapshotMismatch(f"{odd} is in one of the two states only")
    leaves = [_restored(name, arrays[name], leaf) for name, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


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
    """Draws and statistics of one chunk of steps.

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
        """The state from which chains go on after this chunk."""
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
    SnapshotMismatch where it does not fit these chains.
    """
    chain = algorithm.prepared(density, settings)
    # Also of chains that go on: the state found must be one like it.
    state = start_chains(chain, settings.chains, jax.random.key(settings.seed), density)
    if resume is not None:
        state = restored_state(resume.arrays, state)
    observation_key = jax.random.fold_in(jax.random.key(settings.seed), OBSERVATION_STREAM)
    chain_keys = jax.random.split(observation_key, settings.chains)
    mesh = chain_mesh(settings.chains)
    chain_keys, density = placed(chain_keys, BY_CHAIN, mesh), placed(density, EVERYWHERE, mesh)
    seen = _observables.eval_shape(state, chain_keys, 0, density, chain)
    capacity = _capacity(seen, chain_keys, density, mesh)
    begun: set[int] = set()
    for phase, total in (("warmup", settings.warmup), ("draws", settings.draws)):
        done, length = _done_before(resume, phase, total), 1
        thinning = settings.thinning if phase == "draws" else 1
        steps = Steps(chain, algorithm.summed, thinning)
        ends = next_end if next_end and phase == "draws" else lambda _, end=total: end
        while done < (end := ends(done)):
            started = time.perf_counter()
            length = min(length, end - done)
            state = placed(state[0], EVERYWHERE, mesh), placed(state[1], BY_CHAIN, mesh)
            known = advance._cache_size()
            with _partitioned(mesh):
                state, observables, statistics = advance(
                    steps, capacity, mesh, state, chain_keys, done, length, density
                )
            observables, statistics = jax.device_get((observables, statistics))
            done += length
            kept = {}
            if phase == "draws":
                numbers = np.arange(done - length, done, dtype=np.int32)
                rows = min(COMPLETED_ROWS, capacity)
                kept = completed(observables, numbers, chain_keys, density, mesh, rows)
            statistics = _by_chain(statistics, length)
            # Not only a compilation makes it larger, but before the first chunk nothing else does.
            compiled = thinning not in begun and advance._cache_size() > known
            begun.add(thinning)
            seconds = time.perf_counter() - started
            on_chunk(Chunk(phase, done, total, kept, statistics, seconds, compiled, state))
            length = _next_length(length, seconds, capacity)


@partial(jax.jit, static_argnames=("chain", "chains"))
def start_chains(chain: Chain, chains: int, key, density: Density):
    """Return the shared state before the first step, and the states along a leading chain axis."""
    chain_key, start_key = jax.random.split(key)
    positions = jax.vmap(density.start)(jax.random.split(start_key, chains))
    keys = jax.random.split(chain_key, chains)
    states = for_every_chain(lambda k, at: chain.init(k, at, density), keys, positions)
    return chain.shared(jax.random.fold_in(key, SHARED_STREAM), density), states


def _done_before(resume: Snapshot | None, phase: str, total: int) -> int:
    """Steps of a phase that lie before the snapshot."""
    if resume is None or (resume.phase, phase) == ("warmup", "draws"):
        return 0
    return resume.done if resume.phase == phase else total


def _capacity(seen, chain_keys, density: Density, mesh: Mesh) -> int:
    """Draws that one chunk may hold: few when a draw is large. `seen`: shapes of one row."""
    size = sum(np.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(seen))
    if density.complete is not None:
        # Of arrays like those to come, so that the function is traced this once.
        rows = {n: np.zeros((COMPLETED_ROWS, *one.shape), one.dtype) for n, one in seen.items()}
        numbers, rows = np.zeros(COMPLETED_ROWS, np.int32), placed(rows, IN_BUFFERS, mesh)
        with _partitioned(mesh):
            found = _completed.eval_shape(rows, numbers, 1, chain_keys, density, mesh).values()
        size += sum(np.prod(v.shape) * v.dtype.itemsize for v in found) // COMPLETED_ROWS
    return int(max(1, min(CHUNK_DRAWS, CHUNK_BYTES // max(size, 1))))


def _next_length(length: int, seconds: float, capacity: int) -> int:
    """Steps of the next chunk: at most four times the last, so compilation is soon forgotten."""
    affordable = int(length * CHUNK_SECONDS / max(seconds, 1e-9)) if length > 1 else 4
    return max(1, min(capacity, 4 * length, affordable))


def completed(
    seen: Mapping[str, np.ndarray],
    numbers: Int[np.ndarray, " draw"],
    chain_keys,
    density: Density,
    mesh: Mesh,
    together: int,
) -> dict[str, np.ndarray]:
    """All observables [chain, draw, …] of draws with these numbers.

    seen      what was read off the draws at once, [row, chain, …]
    together  rows completed by one call
    """
    if density.complete is None:
        return _by_chain(seen, len(numbers))
    blocks = []
    for start in range(0, len(numbers), together):
        # The last block is filled up with the last draw: one program for all of them.
        rows = np.minimum(np.arange(start, start + together), len(numbers) - 1)
        length = min(together, len(numbers) - start)
        block = placed({name: values[rows] for name, values in seen.items()}, IN_BUFFERS, mesh)
        with _partitioned(mesh):
            found = _completed(block, numbers[rows], length, chain_keys, density, mesh)
        blocks.append(_by_chain(jax.device_get(found), length))
    return {name: np.concatenate([b[name] for b in blocks], axis=1) for name in blocks[0]}


@partial(jax.jit, static_argnames="mesh")
def _completed(seen, numbers, length, chain_keys, density: Density, mesh: Mesh):
    """Observables [row, chain, …] of rows of draws, of which the numbers are given.

    Rows from `length` on stay zero, and cost nothing one after the other.
    """

    def of_chains(seen, numbers, length, chain_keys, density):
        rows, chains = len(numbers), len(chain_keys)

        def one(draw):
            place, number, seen = draw
            key = jax.random.fold_in(chain_keys[place % chains], number)
            return density.completed(key, seen)

        def if_asked(draw):
            zeros = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), jax.eval_shape(one, draw))
            return jax.lax.cond(draw[0] < length * chains, one, lambda _: zeros, draw)

        flat = jax.tree.map(lambda v: v.reshape(rows * chains, *v.shape[2:]), seen)
        by_draw = jnp.arange(rows * chains), jnp.repeat(numbers, chains), flat
        found = jax.lax.map(if_asked, by_draw, batch_size=density.together)
        return jax.tree.map(lambda v: v.reshape(rows, chains, *v.shape[1:]), found)

    if mesh.size == 1:
        return of_chains(seen, numbers, length, chain_keys, density)
    given = IN_BUFFERS, EVERYWHERE, EVERYWHERE, BY_CHAIN, EVERYWHERE
    specs = {"mesh": mesh, "in_specs": given, "out_specs": IN_BUFFERS, "check_vma": False}
    shared = jax.shard_map(of_chains, **specs)
    return shared(seen, numbers, length, chain_keys, density)


def _by_chain(buffers: Mapping[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
    """[step, chain, …] buffers, filled up to `length`, as [chain, step, …]."""
    return {name: np.swapaxes(values[:length], 0, 1) for name, values in buffers.items()}


@dataclass(frozen=True)
class Steps:
    """Kept steps of all chains as one compiled function does them, whatever the arrays.

    chain     how one chain moves
    summed    statistics that are added up between kept steps
    thinning  transitions of each kept step
    axes      the axes that chains stand along
    """

    chain: Chain
    summed: tuple[str, ...]
    thinning: int
    axes: tuple[str, ...] = (CHAIN,)


@partial(jax.jit, static_argnames=("steps", "capacity", "mesh"))
def advance(
    steps: Steps, capacity: int, mesh: Mesh, state, chain_keys, first, length, density: Density
):
    """`length` kept steps of all chains → state, observables and statistics [row, chain, …].

    States and keys are split over devices along their leading chain axis, buffers of `capacity`
    rows along their second. Devices wait for each other only where chains share a part of their
    state, so trees of different depth on two devices do not. The same seed and the same number of
    devices give the same draws.
    """
    if mesh.size == 1:
        return _advance(steps, capacity, state, chain_keys, first, length, density)
    one, made = replace(steps, axes=(CHAIN, DEVICE)), (STATE, IN_BUFFERS, IN_BUFFERS)
    given = STATE, BY_CHAIN, EVERYWHERE, EVERYWHERE, EVERYWHERE
    specs = {"mesh": mesh, "in_specs": given, "out_specs": made, "check_vma": False}
    shared = jax.shard_map(partial(_advance, one, capacity), **specs)
    return shared(state, chain_keys, first, length, density)


def _advance(steps: Steps, capacity: int, state, chain_keys, first, length, density: Density):
    first = jnp.asarray(first, jnp.int32)
    rows = _rows.eval_shape(steps, state, chain_keys, first, density)
    buffers = jax.tree.map(lambda row: jnp.zeros((capacity, *row.shape), row.dtype), rows)

    def body(row, carry):
        state, buffers = carry
        index = first + row.astype(jnp.int32)
        state, *new = _kept_step(steps, state, chain_keys, index, density)
        return state, jax.tree.map(lambda b, n: b.at[row].set(n), buffers, tuple(new))

    state, (observables, statistics) = jax.lax.fori_loop(0, length, body, (state, buffers))
    return state, observables, statistics


@partial(jax.jit, static_argnames="steps")
def _rows(steps: Steps, state, chain_keys, first, density: Density):
    """Observables and statistics of one kept step, of which only the shapes are asked for."""
    return _kept_step(steps, state, chain_keys, first, density)[1:]


# Traced once, for the shapes of its results and for the loop.
@partial(jax.jit, inline=True, static_argnames="steps")
def _kept_step(steps: Steps, state, chain_keys, index, density: Density):
    """One kept step of every chain: its transitions, then what is read off the position."""
    shared, states = state
    chain, go = steps.chain, partial(_transitions, steps, density)
    if chain.together:
        side_by_side = jax.vmap(go, in_axes=(None, 0), out_axes=(None, 0, 0), axis_name=CHAIN)
        shared, states, statistics = side_by_side(shared, states)
    else:
        states, statistics = for_every_chain(lambda state: go(shared, state)[1:], states)
    observables = _observables((shared, states), chain_keys, index, density, chain)
    return (shared, states), observables, statistics


@partial(jax.jit, inline=True, static_argnames="chain")
def _observables(state, chain_keys, index, density: Density, chain: Chain):
    """What is read off the position of every chain."""

    def seen(chain_key, state):
        key = jax.random.fold_in(chain_key, index)
        return density.seen(key, chain.position(state, density))

    return for_every_chain(seen, chain_keys, state[1])


def _transitions(steps: Steps, density: Density, shared, state):
    """The transitions of one kept step of one chain → shared, state, statistics."""
    move = partial(_move, steps.chain, steps.axes)

    def one(_, carry):
        shared, state, before = carry
        shared, state, found = move(shared, state, density)
        found = {n: before[n] + v if n in steps.summed else v for n, v in found.items()}
        return shared, state, found

    found = jax.eval_shape(lambda *moving: move(*moving)[2], shared, state, density)
    nothing = {name: jnp.zeros(one.shape, one.dtype) for name, one in found.items()}
    return jax.lax.fori_loop(0, steps.thinning, one, (shared, state, nothing))


# Traced once, wherever it is used.
@partial(jax.jit, inline=True, static_argnames=("chain", "axes"))
def _move(chain: Chain, axes: tuple[str, ...], shared, state, density: Density):
    mean = partial(jax.lax.pmean, axis_name=axes)
    shared, state, found = chain.advance(shared, state, density, mean)
    return *jax.tree.map(_strongly_typed, (shared, state)), found
