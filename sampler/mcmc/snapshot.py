"""The state of all chains as named arrays, and back: what a checkpoint holds."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np


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
