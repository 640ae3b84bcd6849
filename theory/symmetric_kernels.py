"""Stored path kernels of a set of examples with itself, one output: half of them is enough."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Rows of K that are stored together, up to the longest of them; fewer rows, less is stored twice.
SMALLEST_BLOCK, BLOCKS = 64, 8


@partial(
    jax.tree_util.register_dataclass, data_fields=["blocks"], meta_fields=["paths", "examples"]
)
@dataclass(frozen=True)
class SymmetricKernelForm:
    """K(U_1) = Σ_{π≤π'} U_1^{ππ'} C̃_{ππ'} from blocks of rows that end at the diagonal.

    C̃_{ππ'} = C_{ππ'} + C_{π'π}, half of it for π = π'. Each block is [pair, row · column] with the
    columns up to its last row.
    """

    blocks: tuple[Float[Array, "pair _entry"], ...]
    paths: int
    examples: int

    @classmethod
    def of(cls, features: Float[Array, "example path channel"]) -> "SymmetricKernelForm":
        """The path kernels of features φ^π."""
        examples, paths, _ = features.shape
        blocks = tuple(_block(features, *edges) for edges in row_blocks(examples))
        return cls(blocks, paths, examples)

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.nbytes for block in self.blocks)

    def kernel(self, factor: Float[Array, "path _rank"]) -> Float[Array, "_example _example"]:
        """K(U_1) with U_1 = F Fᵀ."""
        weights = (factor @ factor.T)[np.triu_indices(self.paths)]
        rows = [
            jnp.pad((weights @ block).reshape(-1, end), ((0, 0), (0, self.examples - end)))
            for (_, end), block in zip(row_blocks(self.examples), self.blocks, strict=True)
        ]
        stacked = jnp.concatenate(rows)
        return jnp.tril(stacked) + jnp.tril(stacked, -1).T

    def kernel_and_pull_back(
        self, factor: Float[Array, "path rank"]
    ) -> tuple[Float[Array, "_example _example"], Callable]:
        """K(F Fᵀ), and the function from a symmetric ∂/∂K to ∂/∂F there."""
        return self.kernel(factor), partial(self.pull_back, factor)

    def pull_back(
        self, factor: Float[Array, "path rank"], slope: Float[Array, "_example _example"]
    ) -> Float[Array, "path rank"]:
        """∂/∂F of Σ R_{xx'} K_{xx'}(F Fᵀ) for a symmetric R: 2 M F with M = ∂/∂U_1."""
        half = 2.0 * jnp.tril(slope, -1) + jnp.diag(jnp.diagonal(slope))
        # In this order of factors, several slopes at a time are one product that reads C̃ once.
        by_pair = sum(
            block @ half[start:end, :end].reshape(-1)
            for (start, end), block in zip(row_blocks(self.examples), self.blocks, strict=True)
        )
        rows, columns = np.triu_indices(self.paths)
        upper = jnp.zeros((self.paths, self.paths), by_pair.dtype).at[rows, columns].set(by_pair)
        return (upper + upper.T) @ factor


def row_blocks(examples: int) -> list[tuple[int, int]]:
    """First row and end of every block."""
    rows = max(SMALLEST_BLOCK, -(-examples // BLOCKS))
    return [(start, min(start + rows, examples)) for start in range(0, examples, rows)]


def stored_numbers(examples: int, paths: int) -> int:
    """Numbers in all blocks together."""
    pairs = paths * (paths + 1) // 2
    return pairs * sum((end - start) * end for start, end in row_blocks(examples))


@partial(jax.jit, static_argnames=("start", "end"))
def _block(features: Float[Array, "example path channel"], start: int, end: int):
    rows, columns = np.triu_indices(features.shape[1])
    by_path = features.transpose(1, 0, 2)

    def one_pair(pair):
        first, second = by_path[pair[0]], by_path[pair[1]]
        both = first[start:end] @ second[:end].T + second[start:end] @ first[:end].T
        return jnp.where(pair[0] == pair[1], 0.5, 1.0).astype(both.dtype) * both.reshape(-1)

    # One pair at a time: all of them at once would take several times the memory.
    return jax.lax.map(one_pair, (jnp.asarray(rows), jnp.asarray(columns)))
