"""Chains advanced in chunks that can be stored and resumed.

Of a space and an algorithm this knows what `Space` and `Chain` say, and no task and no file. A
chunk has positions and statistics; what is stored of its draws is observed when it is finished,
then its positions go. One compiled function serves every chunk, whatever its length, and all spaces
whose arrays have equal shapes, such as those of a sweep. So memory stays bounded, progress is
visible, and stopping between chunks loses nothing.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Axes
from jaxtyping import Array, Float

from sampler.mcmc.algorithm import (
    Chain,
    ChainSettings,
    Chunk,
    OnChunk,
    Snapshot,
    SnapshotMismatch,
)
from sampler.posterior.space import Space
from sampler.runtime import devices_for, for_every_chain, side_by_side
from sampler.stored_programs import stored_program
from sampler.streams import Stream, jax_key

# A chunk holds at most this many draws per chain and bytes in all, and lasts about this long.
CHUNK_DRAWS = 64
CHUNK_BYTES = 128 * 2**20
CHUNK_SECONDS = 4.0
# Rows of draws that are observed by one call, and draws that one device observes side by side.
OBSERVED_ROWS, OBSERVED_TOGETHER = 16, 16
# Chains on one device are an axis of arrays, devices an axis of the mesh.
CHAIN, DEVICE = "chain", "device"
BY_CHAIN, IN_BUFFERS, EVERYWHERE = Axes(DEVICE), Axes(None, DEVICE), Axes()
STATE = (EVERYWHERE, BY_CHAIN)
SHARDY_WORKS = version("jaxlib").startswith("0.9.")
STREAMS = Stream.TRANSITIONS, Stream.STARTS, Stream.SHARED


def advance_chains(
    space: Space,
    chain: Chain,
    summed: tuple[str, ...],
    settings: ChainSettings,
    on_chunk: OnChunk,
    resume: Snapshot | None = None,
) -> None:
    """Run warm-up, then draws, of all chains; every finished chunk goes to `on_chunk`.

    summed  statistics that are added up between kept steps

    From a snapshot of the same chains they go on as if they had never stopped, bit for bit. Raises
    SnapshotMismatch where it does not fit these chains.
    """
    mesh = chain_mesh(settings.chains)
    keys = tuple(jax_key(settings.seed, of) for of in STREAMS)
    # Also of chains that go on: the state of the snapshot must be one like it.
    state = start_chains(chain, settings.chains, keys, space)
    if resume is not None:
        state = restored_state(resume.arrays, state)
    space = placed(space, EVERYWHERE, mesh)
    observer = Observer.of(space, settings)
    capacity = observer.capacity
    begun: set[int] = set()
    for phase, total in (("warmup", settings.warmup), ("draws", settings.draws)):
        done, length = steps_before(resume, phase, total), 1
        thinning = settings.thinning if phase == "draws" else 1
        steps = Steps(chain, summed, thinning)
        while done < (end := settings.end(phase, done, total)):
            started = time.perf_counter()
            length = min(length, end - done)
            state = placed(state[0], EVERYWHERE, mesh), placed(state[1], BY_CHAIN, mesh)
            programs = advance.programs()
            with partitioned(mesh):
                state, points, statistics = advance(steps, capacity, mesh, state, length, space)
            points, statistics = jax.device_get((points, statistics))
            done += length
            observables, points = {}, by_chain(points, length) if phase == "draws" else None
            if phase == "draws":
                observables = observer(points, done - length)
            statistics = {name: by_chain(values, length) for name, values in statistics.items()}
            # Not only a compilation makes it larger, but before the first chunk nothing else does.
            compiled = thinning not in begun and advance.programs() > programs
            begun.add(thinning)
            seconds = time.perf_counter() - started
            made = statistics, observables, seconds, compiled, points
            on_chunk(Chunk(phase, done, total, *made, partial(snapshot_of, phase, done, state)))
            length = next_length(length, seconds, capacity)
        if phase == "warmup" and done < total:
            return


def steps_before(resume: Snapshot | None, phase: str, total: int) -> int:
    """Steps of a phase that lie before the snapshot."""
    if resume is None or (resume.phase, phase) == ("warmup", "draws"):
        return 0
    return resume.done if resume.phase == phase else total


def next_length(length: int, seconds: float, capacity: int) -> int:
    """Steps of the next chunk: at most four times the last, so compilation is soon forgotten."""
    affordable = int(length * CHUNK_SECONDS / max(seconds, 1e-9)) if length > 1 else 4
    return max(1, min(capacity, 4 * length, affordable))


def by_chain(buffer: np.ndarray, length: int) -> np.ndarray:
    """A buffer [step, chain, …], filled up to `length`, as [chain, step, …]."""
    return np.swapaxes(buffer[:length], 0, 1)


# --- transitions


@partial(jax.jit, static_argnames=("chain", "chains"))
def start_chains(chain: Chain, chains: int, keys, space: Space):
    """Return the shared state before the first step, and the states along a leading chain axis."""
    chain_key, start_key, shared_key = keys
    points = jax.vmap(space.start)(jax.random.split(start_key, chains))
    chain_keys = jax.random.split(chain_key, chains)
    states = for_every_chain(lambda k, point: chain.init(k, point, space), chain_keys, points)
    return chain.shared(shared_key, space), states


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


@stored_program("steps", "capacity", "mesh", like={0: "state"})
def advance(steps: Steps, capacity: int, mesh: Mesh, state, length, space: Space):
    """`length` kept steps of all chains → state, points and statistics [row, chain, …].

    States are split over devices along their leading chain axis, buffers of `capacity` rows along
    their second. Devices wait for each other only where chains share a part of their state, so
    trees of different depth on two devices do not. The same seed and the same number of devices
    give the same draws.
    """
    if mesh.size == 1:
        return _advance(steps, capacity, state, length, space)
    on_devices = replace(steps, axes=(CHAIN, DEVICE))
    specs = {
        "mesh": mesh,
        "in_specs": (STATE, EVERYWHERE, EVERYWHERE),
        "out_specs": (STATE, IN_BUFFERS, IN_BUFFERS),
        "check_vma": False,
    }
    return jax.shard_map(partial(_advance, on_devices, capacity), **specs)(state, length, space)


def _advance(steps: Steps, capacity: int, state, length, space: Space):
    rows = jax.eval_shape(lambda state: _kept_step(steps, state, space)[1:], state)
    buffers = jax.tree.map(lambda row: jnp.zeros((capacity, *row.shape), row.dtype), rows)

    def body(row, carry):
        state, buffers = carry
        state, *new = _kept_step(steps, state, space)
        return state, jax.tree.map(lambda b, n: b.at[row].set(n), buffers, tuple(new))

    state, (points, statistics) = jax.lax.fori_loop(0, length, body, (state, buffers))
    return state, points, statistics


# Traced once, for the shapes of its results and for the loop.
@partial(jax.jit, inline=True, static_argnames="steps")
def _kept_step(steps: Steps, state, space: Space):
    """One kept step of every chain → state, points and statistics [chain, …]."""
    shared, states = state
    chain, go = steps.chain, partial(_transitions, steps, space)
    if chain.together:
        together = jax.vmap(go, in_axes=(None, 0), out_axes=(None, 0, 0), axis_name=CHAIN)
        shared, states, statistics = together(shared, states)
    else:
        states, statistics = for_every_chain(lambda state: go(shared, state)[1:], states)
    points = for_every_chain(lambda state: chain.point(state, space), states)
    return (shared, states), points, statistics


def _transitions(steps: Steps, space: Space, shared, state):
    """The transitions of one kept step of one chain → shared, state, statistics."""
    move = partial(_move, steps.chain, steps.axes)

    def transition(_, carry):
        shared, state, before = carry
        shared, state, new = move(shared, state, space)
        new = {n: before[n] + v if n in steps.summed else v for n, v in new.items()}
        return shared, state, new

    shapes = jax.eval_shape(lambda *moving: move(*moving)[2], shared, state, space)
    zeros = {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
    return jax.lax.fori_loop(0, steps.thinning, transition, (shared, state, zeros))


# Traced once, wherever it is used.
@partial(jax.jit, inline=True, static_argnames=("chain", "axes"))
def _move(chain: Chain, axes: tuple[str, ...], shared, state, space: Space):
    mean = partial(jax.lax.pmean, axis_name=axes)
    shared, state, statistics = chain.advance(shared, state, space, mean)
    return *jax.tree.map(strongly_typed, (shared, state)), statistics


# --- what is observed of draws


@dataclass(frozen=True)
class Observer:
    """Observes the draws of chains; the random key of each follows from chain and number.

    rows  draws of every chain that are observed by one call
    """

    space: Space
    chain_keys: Array
    mesh: Mesh
    rows: int = OBSERVED_ROWS

    @classmethod
    def of(cls, space: Space, settings: ChainSettings) -> "Observer":
        """The observer of these chains, on the devices that share them."""
        mesh = chain_mesh(settings.chains)
        space = placed(space, EVERYWHERE, mesh)
        key = jax_key(settings.seed, Stream.OBSERVATIONS)
        keys = placed(jax.random.split(key, settings.chains), BY_CHAIN, mesh)
        observer = cls(space, keys, mesh)
        return replace(observer, rows=min(OBSERVED_ROWS, observer.capacity))

    @property
    def capacity(self) -> int:
        """Draws of each chain that a chunk may hold: few where a draw is large."""
        point = jax.ShapeDtypeStruct((self.space.size,), self.space.dtype)
        key = jax.eval_shape(lambda keys: keys[0], self.chain_keys)
        shapes = jax.eval_shape(_observe, key, point, self.space)
        leaves = [*jax.tree.leaves(shapes), point]
        size = sum(np.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
        return int(max(1, min(CHUNK_DRAWS, CHUNK_BYTES // (size * len(self.chain_keys)))))

    def __call__(
        self,
        points: Float[np.ndarray, "chain draw coordinate"],
        first: int,
    ) -> dict[str, np.ndarray]:
        """All observables [chain, draw, …] of draws of which the first has this number."""
        blocks, numbers = [], first + np.arange(points.shape[1], dtype=np.int32)
        for start in range(0, len(numbers), self.rows):
            # The last block is filled up with the last draw: one program for all of them.
            rows = np.minimum(np.arange(start, start + self.rows), len(numbers) - 1)
            length = min(self.rows, len(numbers) - start)
            block = placed(np.swapaxes(points[:, rows], 0, 1), IN_BUFFERS, self.mesh)
            with partitioned(self.mesh):
                observables = observe_rows(
                    block, numbers[rows], length, self.chain_keys, self.space, self.mesh
                )
            observables = jax.device_get(observables)
            blocks.append({name: by_chain(v, length) for name, v in observables.items()})
        return {name: np.concatenate([b[name] for b in blocks], axis=1) for name in blocks[0]}


# Traced once, for the shapes of its results and for the loop.
@partial(jax.jit, inline=True)
def _observe(key, point, space: Space):
    return space.observe(key, space.unflatten(point))


@stored_program("mesh")
def observe_rows(points, numbers, length, chain_keys, space: Space, mesh: Mesh):
    """Observables [row, chain, …] of points [row, chain, coordinate] with these numbers.

    Rows from `length` on stay zero, and cost nothing one after the other.
    """

    def of_chains(points, numbers, length, chain_keys, space):
        rows, chains, size = points.shape

        def of_draw(draw):
            place, number, point = draw
            return _observe(jax.random.fold_in(chain_keys[place % chains], number), point, space)

        def if_asked(draw):
            shapes = jax.eval_shape(of_draw, draw)
            zeros = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), shapes)
            return jax.lax.cond(draw[0] < length * chains, of_draw, lambda _: zeros, draw)

        draws = jnp.arange(rows * chains), jnp.repeat(numbers, chains), points.reshape(-1, size)
        batch = side_by_side(OBSERVED_TOGETHER)
        observables = jax.lax.map(if_asked, draws, batch_size=batch)
        return jax.tree.map(lambda v: v.reshape(rows, chains, *v.shape[1:]), observables)

    if mesh.size == 1:
        return of_chains(points, numbers, length, chain_keys, space)
    specs = {
        "mesh": mesh,
        "in_specs": (IN_BUFFERS, EVERYWHERE, EVERYWHERE, BY_CHAIN, EVERYWHERE),
        "out_specs": IN_BUFFERS,
        "check_vma": False,
    }
    return jax.shard_map(of_chains, **specs)(points, numbers, length, chain_keys, space)


# --- devices


def chain_mesh(chains: int) -> Mesh:
    """The devices that share these chains, along one axis."""
    return Mesh(np.array(devices_for(chains)), (DEVICE,))


def placed(tree, axes: Axes, mesh: Mesh):
    """Arrays where their chains are advanced, or everywhere.

    The state is placed before every chunk: had it moved, it would be compiled again.
    """
    where = NamedSharding(mesh, axes) if mesh.size > 1 else mesh.devices.item()
    return jax.device_put(jax.tree.map(strongly_typed, tree), where)


@contextmanager
def partitioned(mesh: Mesh) -> Iterator[None]:
    """Compile for several devices with the older partitioner where Shardy crashes: jaxlib 0.11.2.

    What is compiled with that one is not stored, which needs Shardy.
    """
    before = jax.config.jax_use_shardy_partitioner
    works = mesh.size == 1 or SHARDY_WORKS
    jax.config.update("jax_use_shardy_partitioner", before and works)
    try:
        yield
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)


def strongly_typed(leaf):
    """A leaf whose type no longer depends on what it meets (a weak one changes between chunks)."""
    if isinstance(leaf, np.ndarray | jax.Array) and not getattr(leaf, "weak_type", False):
        return leaf
    if isinstance(leaf, jax.core.Tracer):
        return jnp.asarray(leaf, leaf.dtype)
    array = np.asarray(leaf)  # by NumPy, which compiles nothing
    return jnp.asarray(array.astype(jax.dtypes.canonicalize_dtype(array.dtype)))


# --- snapshots


def snapshot_of(phase: str, done: int, state) -> Snapshot:
    """The state of the chains after so many steps of a phase."""
    return Snapshot(phase, done, state_arrays(state))


def state_arrays(state) -> dict[str, np.ndarray]:
    """Every leaf of what chains share and of their states, by its path in the tree."""
    return {name: np.asarray(_data(leaf)) for name, leaf in _leaves(state).items()}


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


def _leaves(state) -> dict[str, Any]:
    leaves = {}
    for prefix, tree in zip(("shared", ""), state, strict=True):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            leaves[prefix + jax.tree_util.keystr(path)] = leaf
    return leaves


def _is_key(leaf) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _data(leaf):
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _restored(name: str, values: np.ndarray, leaf):
    stored = jax.eval_shape(_data, leaf)
    if (values.shape, values.dtype) != (stored.shape, stored.dtype):
        raise SnapshotMismatch(
            f"{name} is {values.dtype}{list(values.shape)}, "
            f"these chains have {stored.dtype}{list(stored.shape)}"
        )
    if _is_key(leaf):
        return jax.random.wrap_key_data(values, impl=jax.random.key_impl(leaf))
    return jnp.asarray(values)
