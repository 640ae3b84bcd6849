"""Path kernels C_{ππ'} of two sets of examples, and the kernel K = Σ U_1^{ππ'} C_{ππ'} of them.

They are kept as features φ^π, or stored and packed where that makes K cheaper. Both forms assemble
K from a factor F of U_1 = F Fᵀ, and JAX differentiates K in everything: in F, features and kernels.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float

from theory.architecture import Architecture
from theory.energy import energy_of_columns, energy_of_kernel
from theory.size_limits import row_blocks, storing_pays


def path_features(
    attended: Float[Array | np.ndarray, "example path channel"],
    input_variance: float | Float[Array | np.ndarray, ""],
) -> Float[Array | np.ndarray, "example path channel"]:
    """Features φ^π(x) = σ_0 ξ^π(x) / √(D Π), so that C_{ππ'}(x, x') = φ^π(x)·φ^π'(x')."""
    _, paths, channels = attended.shape
    return attended * (input_variance / (channels * paths)) ** 0.5


def renormalise(
    features: Float[Array | np.ndarray, "example path channel"],
    factor: Float[Array | np.ndarray, "_row _rank"],
) -> Float[Array | np.ndarray, "_example_output _feature"]:
    """Columns X with K = X Xᵀ: X_{(x,o),(r,i)} = Σ_π F_{(π,o),r} φ^π_i(x)."""
    _, paths, channels = features.shape
    rank = factor.shape[1]
    by_output = factor.reshape(paths, factor.shape[0] // paths, rank)
    if factor.__array_namespace__() is jnp:
        columns = jnp.einsum("xpi,pcr->xcri", features, by_output)
    else:  # one product of two matrices for each example, which its `einsum` would not make of it
        turned = by_output.reshape(paths, -1).T
        columns = np.matmul(turned, features).reshape(len(features), -1, rank, channels)
    return columns.reshape(-1, rank * channels)


def sum_over_paths(
    features: Float[Array | np.ndarray, "example path channel"],
    weights: Float[Array | np.ndarray, "path output channel"],
) -> Float[Array | np.ndarray, "example output"]:
    """Σ_{π,i} φ^π_i(x) w^{(π,o)}_i, the output of the network whose effective weights are w.

    One product of two matrices: written as a sum over two axes it takes five times as long.
    """
    flat = features.reshape(features.shape[0], -1)
    return flat @ weights.swapaxes(1, 2).reshape(flat.shape[1], -1)


@register_dataclass
@dataclass(frozen=True)
class Features:
    """Path kernels as the features φ^π of two sets of examples.

    `right = None` means the left set itself, whose features are then renormalised once.
    """

    left: Float[Array | np.ndarray, "example path channel"]
    right: Float[Array | np.ndarray, "other path channel"] | None = None

    @property
    def examples(self) -> int:
        """Examples on the left."""
        return self.left.shape[0]

    def kernel(
        self, factor: Float[Array | np.ndarray, "_row _rank"]
    ) -> Float[Array | np.ndarray, "_left _right"]:
        """K_{(x,o),(x',o')} = Σ_{ππ'} U_1^{(π,o),(π',o')} C_{ππ'}(x, x') with U_1 = F Fᵀ.

        Rows and columns are (example, output), output fastest.
        """
        left = renormalise(self.left, factor)
        right = left if self.right is None else renormalise(self.right, factor)
        return left @ right.T

    def energy(
        self, factor, labels: Float[Array | np.ndarray, "row set"], temperature
    ) -> Float[Array | np.ndarray, ""]:
        """E of K(F Fᵀ), through its columns: features may be far fewer than examples."""
        return energy_of_columns(renormalise(self.left, factor), labels, temperature)


@register_dataclass
@dataclass(frozen=True)
class StoredKernels:
    """Path kernels stored and packed, so that K is one matrix–vector product per draw of U_1.

    With one output a row of a block holds C_{ππ'} + C_{π'π} of a pair π ≤ π' (half of it for
    π = π'); with several outputs K needs both, and rows are all ordered pairs.

    blocks  [pair, row · column], of some rows of K each; of a set with itself (others = None) and
            one output, columns end at the last of these rows
    """

    blocks: tuple[Float[Array | np.ndarray, "pair _entry"], ...]
    paths: int = field(metadata={"static": True})
    examples: int = field(metadata={"static": True})
    others: int | None = field(metadata={"static": True})

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks, for which shapes suffice."""
        return sum(block.size * block.dtype.itemsize for block in self.blocks)

    def kernel(
        self, factor: Float[Array | np.ndarray, "_row _rank"]
    ) -> Float[Array | np.ndarray, "_left _right"]:
        """K(F Fᵀ) as in `Features.kernel`."""
        outputs = factor.shape[0] // self.paths
        overlap = (factor @ factor.T).reshape(self.paths, outputs, self.paths, outputs)
        rows, columns = path_pairs(self.paths, outputs)
        weights = overlap.transpose(1, 3, 0, 2)[:, :, rows, columns].reshape(outputs**2, -1)
        if self.others is None:
            return self._lower_triangle(weights)
        (block,) = self.blocks
        kernel = (weights @ block).reshape(outputs, outputs, self.examples, self.others)
        return kernel.transpose(2, 0, 3, 1).reshape(self.examples * outputs, self.others * outputs)

    def _lower_triangle(self, weights):
        numbers = weights.__array_namespace__()
        rows = [
            numbers.pad((weights[0] @ block).reshape(-1, end), ((0, 0), (0, self.examples - end)))
            for (_, end), block in zip(row_blocks(self.examples), self.blocks, strict=True)
        ]
        stacked = numbers.concatenate(rows)
        return numbers.tril(stacked) + numbers.tril(stacked, -1).T

    def energy(
        self, factor, labels: Float[Array | np.ndarray, "row set"], temperature
    ) -> Float[Array | np.ndarray, ""]:
        """E of K(F Fᵀ)."""
        return energy_of_kernel(self.kernel(factor), labels, temperature)


PathKernels = Features | StoredKernels


def path_pairs(paths: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """First and second path of every stored pair: π ≤ π' for one output, all for several."""
    if outputs == 1:
        return np.triu_indices(paths)
    return tuple(index.reshape(-1) for index in np.indices((paths, paths)))


def on_host(tree: Any) -> Any:
    """The same arrays as NumPy's, without a copy where they are on a processor; traced ones stay.

    Arrays needed once are computed by NumPy: compiling takes longer.
    """
    traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))
    return tree if traced else jax.tree.map(np.asarray, tree)


def store_path_kernels(features: Features, outputs: int) -> StoredKernels:
    """Store the path kernels of features, packed."""
    left, right = features.left, features.right
    examples, paths, _ = left.shape
    if right is None and outputs == 1:
        blocks = tuple(
            _pack(left[start:end], left[:end], outputs) for start, end in row_blocks(examples)
        )
        return StoredKernels(blocks, paths, examples, None)
    right = left if right is None else right
    return StoredKernels((_pack(left, right, outputs),), paths, examples, right.shape[0])


def _pack(left, right, outputs: int) -> Float[Array | np.ndarray, "pair entry"]:
    numbers = left.__array_namespace__()
    first, second = path_pairs(left.shape[1], outputs)
    halves = np.where(first == second, 0.5, 1.0).astype(left.dtype)
    left, right = left.transpose(1, 0, 2), right.transpose(1, 0, 2)

    def of_pair(pair):
        p, q, half = pair
        kernel = left[p] @ right[q].T
        if outputs == 1:
            kernel += left[q] @ right[p].T
            kernel *= half
        return kernel.reshape(-1)

    # One pair at a time: all of them at once would take several times the memory.
    if numbers is jnp:
        return jax.lax.map(of_pair, (first, second, halves))
    packed = np.empty((len(first), left.shape[1] * right.shape[1]), left.dtype)
    for number, pair in enumerate(zip(first, second, halves, strict=True)):
        packed[number] = of_pair(pair)
    return packed


def make_path_kernels(
    left: Float[Array | np.ndarray, "example path channel"],
    right: Float[Array | np.ndarray, "other path channel"] | None,
    architecture: Architecture,
) -> PathKernels:
    """Path kernels between two sets of attended inputs (`right = None`: of one set with itself).

    C_{ππ'}(x, x') = σ_0² ξ^π(x)·ξ^π'(x') / (D Π). Stored where that is small and cheaper at every
    K, features otherwise. Source: arXiv 2405.15926, path–path kernel.
    """
    variance = architecture.variances[0]
    kernels = Features(
        *(x if x is None else path_features(x, variance) for x in on_host((left, right)))
    )
    others = None if right is None else right.shape[0]
    if storing_pays(left.shape[0], others, architecture):
        kernels = store_path_kernels(kernels, architecture.outputs)
    return jax.tree.map(jnp.asarray, kernels)


def assemble_kernel(
    kernels: PathKernels, factor: Float[Array | np.ndarray, "row rank"]
) -> Float[Array | np.ndarray, "_left _right"]:
    """K(F Fᵀ) at one U_1, by NumPy."""
    kernels, factor = on_host((kernels, factor))
    return kernels.kernel(factor)
