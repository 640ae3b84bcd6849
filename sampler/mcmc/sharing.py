"""Chains shared out over devices: each device advances its own chains, none waits for another."""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Axes

BY_CHAIN, IN_BUFFERS, EVERYWHERE = Axes("chain"), Axes(None, "chain"), Axes()


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

    return lambda thinning, *arguments: compiled(thinning)(*arguments)


def _strongly_typed(leaf):
    """A leaf whose type no longer depends on what it meets (a weak one changes between chunks)."""
    if isinstance(leaf, jax.Array) and not getattr(leaf, "weak_type", False):
        return leaf
    return jnp.asarray(leaf, jnp.asarray(leaf).dtype)
