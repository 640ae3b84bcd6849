"""Devices that chains are shared out over, and arrays on them."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Axes

from sampler.runtime import devices_for

# Devices are an axis of the mesh, along which chains are split.
DEVICE = "device"
BY_CHAIN, IN_BUFFERS, EVERYWHERE = Axes(DEVICE), Axes(None, DEVICE), Axes()
SHARDY_WORKS = version("jaxlib").startswith("0.9.")


def by_chain(buffer: np.ndarray, length: int) -> np.ndarray:
    """A buffer [step, chain, …], filled up to `length`, as [chain, step, …]."""
    return np.swapaxes(buffer[:length], 0, 1)


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

    Programs compiled with it are not stored, which needs Shardy.
    """
    settings: Any = jax.config
    before = settings.jax_use_shardy_partitioner
    works = mesh.size == 1 or SHARDY_WORKS
    jax.config.update("jax_use_shardy_partitioner", before and works)
    try:
        yield
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)


def strongly_typed(leaf):
    """A leaf with a strong type (a weak one changes between chunks)."""
    if isinstance(leaf, np.ndarray | jax.Array) and not getattr(leaf, "weak_type", False):
        return leaf
    if isinstance(leaf, Tracer):
        return jnp.asarray(leaf, leaf.dtype)
    array = np.asarray(leaf)  # by NumPy, which compiles nothing
    return jnp.asarray(array.astype(jax.dtypes.canonicalize_dtype(array.dtype)))
