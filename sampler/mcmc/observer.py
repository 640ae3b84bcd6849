"""Observables of the draws of chains.

Draws are observed one after the other on a processor, side by side on an accelerator. The random
key of a draw, and whether it is asked for predictors, follow from its number: nothing depends
on the chunks in which draws come.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chain_devices import (
    BY_CHAIN,
    EVERYWHERE,
    IN_BUFFERS,
    by_chain,
    chain_mesh,
    partitioned,
    placed,
)
from sampler.mcmc.collected_draws import EVERY, MANY_NUMBERS
from sampler.posterior.given import Given
from sampler.posterior.space import Space
from sampler.runtime import side_by_side
from sampler.stored_programs import stored_program
from sampler.streams import Stream, jax_key

# A chunk holds at most this many draws per chain and bytes in all.
CHUNK_DRAWS = 64
CHUNK_BYTES = 128 * 2**20
# Rows of draws that are observed by one call, and draws that one device observes side by side.
OBSERVED_ROWS, OBSERVED_TOGETHER = 16, 16


class Observed(NamedTuple):
    """Observables of draws [chain, draw, …], by name, as `Chunk` has it."""

    observables: dict[str, np.ndarray]
    thinned: dict[str, np.ndarray]


@dataclass(frozen=True)
class Observer:
    """Observes the draws of chains; the random key of each follows from chain and number.

    seed  of the chains
    rows  draws of every chain that are observed by one call
    """

    space: Space
    seed: np.int64
    mesh: Mesh
    rows: int

    @classmethod
    def of(cls, space: Space, settings: ChainSettings) -> "Observer":
        """The observer of these chains, on the devices that share them."""
        mesh = chain_mesh(settings.chains)
        rows = min(OBSERVED_ROWS, capacity_of(space, settings.chains))
        return cls(placed(space, EVERYWHERE, mesh), np.int64(settings.seed), mesh, rows)

    def __call__(
        self,
        points: Float[np.ndarray, "chain draw coordinate"],
        first: int,
        begins: int = 0,
    ) -> Observed:
        """Observables of draws, and the number of the first.

        begins  number of the first draw of these chains
        """
        blocks, numbers = [], first + np.arange(points.shape[1], dtype=np.int32)
        due = (numbers - begins) % EVERY == 0
        for start in range(0, len(numbers), self.rows):
            # The last block is filled up with the last draw: one program for all of them.
            rows = np.minimum(np.arange(start, start + self.rows), len(numbers) - 1)
            length = min(self.rows, len(numbers) - start)
            block = placed(np.swapaxes(points[:, rows], 0, 1), IN_BUFFERS, self.mesh)
            asked = numbers[rows], due[rows], length, self.seed
            with partitioned(self.mesh):
                parts = observe_rows(block, *asked, self.space, self.mesh)
            everything, thinned = jax.device_get(parts)
            wanted = due[rows[:length]]
            blocks.append(
                (
                    {name: by_chain(values, length) for name, values in everything.items()},
                    {name: by_chain(v, length)[:, wanted] for name, v in thinned.items()},
                )
            )
        return Observed(*map(_joined, zip(*blocks, strict=True)))


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


def capacity_of(space: Space, chains: int) -> int:
    """Draws of each chain that a chunk may hold: few where a draw is large.

    A draw holds its point and, of a space of weights, these and their overlaps once more.
    """
    numbers = 4 * space.size + space.data.labels.shape[1] * space.data.numbers_of_draw
    return int(max(1, min(CHUNK_DRAWS, CHUNK_BYTES // (numbers * space.dtype.itemsize * chains))))


def is_thinned(space: Space) -> bool:
    """Whether not every draw is asked for predictors on the test set: many, and judged without."""
    many = space.data.tests * space.data.labels.shape[1] >= MANY_NUMBERS
    return many and space.overlaps_fix_predictors


# Traced once, for the shapes of its results and for the loop.
@partial(jax.jit, inline=True)
def _observe(key, point, due, space: Space):
    """Observables of one draw → all of it but thinned predictors; these if due."""
    position = space.unflatten(point)
    if not is_thinned(space):
        return space.observe(key, position), {}
    thinned = {}

    def predict(given: Given, position):
        def whole():
            return given.predictors(space.data.test(position))

        def nothing():
            return jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), jax.eval_shape(whole))

        thinned.update(jax.lax.cond(due, whole, nothing))
        return {}

    return space.observe(key, position, predict), thinned


@stored_program("mesh")
def observe_rows(points, numbers, due, length, seed, space: Space, mesh: Mesh):
    """Observables of points [row, chain, coordinate] with these numbers → [row, chain, …].

    Two dictionaries, as `Observed` has them. Rows from `length` on stay zero, and so do thinned
    predictors in rows that are not due; they cost nothing one after the other.
    """
    chain_keys = jax.random.split(jax_key(seed, Stream.OBSERVATIONS), points.shape[1])

    def of_chains(points, numbers, due, length, chain_keys, space):
        rows, chains, size = points.shape

        def of_draw(draw):
            place, number, due, point = draw
            key = jax.random.fold_in(chain_keys[place % chains], number)
            return _observe(key, point, due, space)

        def if_asked(draw):
            shapes = jax.eval_shape(of_draw, draw)
            zeros = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), shapes)
            return jax.lax.cond(draw[0] < length * chains, of_draw, lambda _: zeros, draw)

        of_rows = (jnp.repeat(values, chains) for values in (numbers, due))
        draws = jnp.arange(rows * chains), *of_rows, points.reshape(-1, size)
        batch = side_by_side(OBSERVED_TOGETHER)
        observed = jax.lax.map(if_asked, draws, batch_size=batch)
        return jax.tree.map(lambda v: v.reshape(rows, chains, *v.shape[1:]), observed)

    if mesh.size == 1:
        return of_chains(points, numbers, due, length, chain_keys, space)
    specs = {
        "mesh": mesh,
        "in_specs": (IN_BUFFERS, EVERYWHERE, EVERYWHERE, EVERYWHERE, BY_CHAIN, EVERYWHERE),
        "out_specs": IN_BUFFERS,
        "check_vma": False,
    }
    arguments = points, numbers, due, length, chain_keys, space
    return jax.shard_map(of_chains, **specs)(*arguments)
