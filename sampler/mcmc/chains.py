"""Chains advanced in chunks that can be stored and resumed.

Of a space and an algorithm this uses the interfaces `Space` and `Chain`, and no task and no file. A
chunk has positions and statistics; its observables are computed when it is finished,
then its positions go. One compiled function serves every chunk, whatever its length, and all spaces
whose arrays have equal shapes, such as those of a sweep. So memory stays bounded, progress is
visible, and stopping between chunks loses nothing.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from sampler.mcmc.algorithm import (
    Chain,
    ChainSettings,
    Chunk,
    OnChunk,
    Snapshot,
    SnapshotMismatch,
)
from sampler.mcmc.chain_devices import (
    BY_CHAIN,
    DEVICE,
    EVERYWHERE,
    IN_BUFFERS,
    by_chain,
    chain_mesh,
    partitioned,
    placed,
    strongly_typed,
)
from sampler.mcmc.observer import Observed, Observer, capacity_of
from sampler.posterior.space import Space
from sampler.runtime import for_every_chain
from sampler.stored_programs import is_key, plain, stored_program
from sampler.streams import Stream, jax_key

# A chunk lasts about this long.
CHUNK_SECONDS = 4.0
# Chains on one device are an axis of arrays.
CHAIN = "chain"
STATE = (EVERYWHERE, BY_CHAIN)
STREAMS = Stream.TRANSITIONS, Stream.STARTS, Stream.SHARED
NOTHING = Observed({}, {})


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

    From a snapshot of the same chains they continue as if uninterrupted, bit for bit. Raises
    SnapshotMismatch where it does not fit these chains.
    """
    mesh = chain_mesh(settings.chains)
    space = placed(space, EVERYWHERE, mesh)
    state, fresh = blank_state(chain, settings.chains, space), resume is None
    if resume is not None:
        state = restored_state(resume.arrays, state)
    observer, seed = Observer.of(space, settings), np.int64(settings.seed)
    capacity = capacity_of(space, settings.chains)
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
            begin = fresh, seed
            with partitioned(mesh):
                made = advance(steps, capacity, mesh, state, begin, length, space)
            state, points, statistics = made[0], *jax.device_get(made[1:])
            done, fresh = done + length, False
            observed, points = NOTHING, by_chain(points, length) if phase == "draws" else None
            if phase == "draws":
                observed = observer(points, done - length)
            statistics = {name: by_chain(values, length) for name, values in statistics.items()}
            # Not only a compilation makes it larger, but before the first chunk nothing else does.
            compiled = thinning not in begun and advance.programs() > programs
            begun.add(thinning)
            seconds = time.perf_counter() - started
            made = observed._asdict() | {"seconds": seconds, "compiled": compiled, "points": points}
            made["make_snapshot"] = partial(snapshot_of, phase, done, state)
            on_chunk(Chunk(phase, done, total, statistics, **made))
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


# --- transitions


class FirstKeys(NamedTuple):
    """Random keys of chains: of transitions and starts [chain], and of their shared state."""

    chains: Any
    starts: Any
    shared: Any

    @classmethod
    def of(cls, seed, chains: int) -> "FirstKeys":
        of_chains, starts, shared = (jax_key(seed, of) for of in STREAMS)
        split = (jax.random.split(key, chains) for key in (of_chains, starts))
        return cls(*split, shared)


def first_state(chain: Chain, keys: FirstKeys, space: Space):
    """The shared state before the first step, and the states along a leading chain axis."""
    points = jax.vmap(space.start)(keys.starts)
    states = for_every_chain(lambda k, point: chain.init(k, point, space), keys.chains, points)
    return jax.tree.map(strongly_typed, (chain.shared(keys.shared, space), states))


def blank_state(chain: Chain, chains: int, space: Space):
    """A state of as many chains, of zeros: `advance` puts the first one in its place."""

    trees = []

    def first(seed, space):
        leaves, tree = jax.tree.flatten(first_state(chain, FirstKeys.of(seed, chains), space))
        trees.append(tree)
        return leaves

    def zeros(leaf):
        data = jax.eval_shape(plain, leaf)
        values = np.zeros(data.shape, data.dtype)
        return jax.random.wrap_key_data(values) if is_key(leaf) else jnp.asarray(values)

    leaves = [zeros(leaf) for leaf in jax.eval_shape(first, np.int64(0), space)]
    return jax.tree.unflatten(trees[0], leaves)


@dataclass(frozen=True)
class Steps:
    """Kept steps of all chains as one compiled function does them, whatever the arrays.

    chain     how one chain moves
    summed    statistics that are added up between kept steps
    thinning  transitions of each kept step
    axes      the axes that chains are along
    """

    chain: Chain
    summed: tuple[str, ...]
    thinning: int
    axes: tuple[str, ...] = (CHAIN,)


@stored_program("steps", "capacity", "mesh", like={0: "state"})
def advance(steps: Steps, capacity: int, mesh: Mesh, state, begin, length, space: Space):
    """`length` kept steps of all chains → state, points and statistics [row, chain, …].

    `begin` has the seed of chains without a state.
    States are split over devices along their leading chain axis, buffers of `capacity` rows along
    their second. Devices wait for each other only where chains share a part of their state, so
    trees of different depth on two devices do not. The same seed and the same number of devices
    give the same draws.
    """
    fresh, seed = begin
    begin = fresh, FirstKeys.of(seed, len(jax.tree.leaves(state[1])[0]))
    if mesh.size == 1:
        return _advance(steps, capacity, state, begin, length, space)
    of_keys = FirstKeys(BY_CHAIN, BY_CHAIN, EVERYWHERE)
    on_devices = replace(steps, axes=(CHAIN, DEVICE))
    specs = {
        "mesh": mesh,
        "in_specs": (STATE, (EVERYWHERE, of_keys), EVERYWHERE, EVERYWHERE),
        "out_specs": (STATE, IN_BUFFERS, IN_BUFFERS),
        "check_vma": False,
    }
    on_each = jax.shard_map(partial(_advance, on_devices, capacity), **specs)
    return on_each(state, begin, length, space)


def _advance(steps: Steps, capacity: int, state, begin, length, space: Space):
    fresh, keys = begin
    state = jax.lax.cond(fresh, lambda: first_state(steps.chain, keys, space), lambda: state)
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


# --- snapshots


def snapshot_of(phase: str, done: int, state) -> Snapshot:
    """The state of the chains after a number of steps of a phase."""
    return Snapshot(phase, done, state_arrays(state))


def state_arrays(state) -> dict[str, np.ndarray]:
    """Every leaf of the shared and single states of chains, by its path in the tree."""
    return {name: np.asarray(plain(leaf)) for name, leaf in _leaves(state).items()}


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


def _restored(name: str, values: np.ndarray, leaf):
    stored = jax.eval_shape(plain, leaf)
    if (values.shape, values.dtype) != (stored.shape, stored.dtype):
        raise SnapshotMismatch(
            f"{name} is {values.dtype}{list(values.shape)}, "
            f"these chains have {stored.dtype}{list(stored.shape)}"
        )
    if is_key(leaf):
        return jax.random.wrap_key_data(values, impl=jax.random.key_impl(leaf))
    return jnp.asarray(values)
