"""Attended inputs, path kernels C_{ππ'}, the kernel K = Σ U_1 C of these, and K + 𝒯 1 factorised.

Path kernels are kept as features, or stored where that makes K cheaper (`path_kernels` chooses):
each form assembles K from a factor of U_1 and pulls derivatives in K back to the factor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, Int, Shaped

from theory.architecture import Architecture
from theory.kernel_sizes import kernel_form_pays, row_blocks

Readout = Literal["last", "first", "mean"]
PullBack = Callable[[Float[Array, "_left _right"]], Float[Array, "_row _rank"]]


def token_readout(
    tokens: int, readout: Readout, length: Int[Array, ""] | None = None
) -> Float[Array, " token"]:
    """The vector t* that reads one value off the tokens: their last, their first, or their mean.

    Only the first `length` tokens count, where it is given: those behind them are padding.
    """
    if readout == "mean":
        if length is None:
            return jnp.full(tokens, 1.0 / tokens)
        return jnp.where(jnp.arange(tokens) < length, 1.0 / length, 0.0)
    if readout not in ("last", "first"):
        raise ValueError(f"readout = {readout!r}: must be 'last', 'first' or 'mean'")
    end = tokens if length is None else length
    return jnp.zeros(tokens).at[end - 1 if readout == "last" else 0].set(1.0)


def attend_example(
    inputs: Float[Array, "token channel"],
    attention: tuple[Float[Array, "_head token token"], ...],
    readout: Float[Array, " token"],
) -> Float[Array, "path channel"]:
    """Attended inputs of one example, ξ^π = x_0 Ω^{1,h_1} Ω^{2,h_2} ··· Ω^{L,h_L} t*.

    Contracted from the readout down, so that no token × token product is ever formed. Attention
    matrices are [head, key, query]. Source: arXiv 2405.15926, eq. for the attended input.
    """
    token_weights = readout[None, :]  # [paths through the layers above, key]
    for omega in reversed(attention):
        token_weights = jnp.einsum("hkq,pq->hpk", omega, token_weights)
        token_weights = token_weights.reshape(-1, token_weights.shape[-1])
    return token_weights @ inputs


def pair_matrices(
    attention: Float[Array, "example head key query"],
) -> Float[Array, "example path key query"]:
    """Path matrices Ω^{(h',h)} = Ω_{h'} ∘ Ω_h of two layers of weights that mix tokens once.

    The lower layer weighs with Ω_{h'}, the upper one with Ω_h, entry by entry; h' is slowest, as
    in the flat order of paths. In `attended_inputs` they stand for the matrices of both layers.
    """
    products = attention[:, :, None] * attention[:, None, :]
    return products.reshape(attention.shape[0], -1, *attention.shape[2:])


@partial(jax.jit, static_argnames="readout")
def attended_inputs(
    inputs: Float[Array, "example token channel"],
    attention: tuple[Float[Array, "example _head token token"], ...],
    readout: Readout,
    lengths: Int[Array, " example"] | None = None,
) -> Float[Array, "example path channel"]:
    """Attended inputs ξ^π(x) of every example; paths in flat order, h_1 slowest.

    `lengths` are the numbers of tokens of sequences with padding behind them, whose keys have
    weight 0 at every query before. As t* is 0 there, too, ξ^π is that of the sequence by itself:
    Ω t* has no entry on a key of padding, whatever its queries attend to.
    """
    tokens = inputs.shape[1]
    if lengths is None:
        vector = token_readout(tokens, readout).astype(inputs.dtype)
        return jax.vmap(attend_example, in_axes=(0, 0, None))(inputs, attention, vector)
    vectors = jax.vmap(partial(token_readout, tokens, readout))(lengths).astype(inputs.dtype)
    return jax.vmap(attend_example)(inputs, attention, vectors)


def path_features(
    attended: Float[Array | np.ndarray, "example path channel"],
    input_variance: float | Float[Array, ""],
) -> Float[Array | np.ndarray, "example path channel"]:
    """Features φ^π(x) = σ_0 ξ^π(x) / √(D Π), so that C_{ππ'}(x, x') = φ^π(x)·φ^π'(x')."""
    _, paths, channels = attended.shape
    return attended * (input_variance / (channels * paths)) ** 0.5


class DifferentiatedByJax:
    """A form of the path kernels whose `kernel` is left to automatic differentiation."""

    def kernel_and_pull_back(
        self, factor: Float[Array, "row rank"]
    ) -> tuple[Float[Array, "_left _right"], PullBack]:
        """K(F Fᵀ), and the function from ∂/∂K to ∂/∂F there."""
        kernel, pull_back = jax.vjp(self.kernel, factor)
        return kernel, lambda slope: pull_back(slope)[0]


@partial(jax.tree_util.register_dataclass, data_fields=["left", "right"], meta_fields=[])
@dataclass(frozen=True)
class FeatureForm(DifferentiatedByJax):
    """Features φ^π of two sets of examples; K = (φ_left F)(φ_right F)ᵀ is assembled from a factor.

    `right = None` stands for the left set itself, so that its features are renormalised once.
    """

    left: Float[Array, "example path channel"]
    right: Float[Array, "other path channel"] | None

    @property
    def examples(self) -> int:
        """Examples on the left."""
        return self.left.shape[0]

    def kernel(self, factor: Float[Array, "_row _rank"]) -> Float[Array, "_left _right"]:
        """K_{(x,c),(x',c')} = Σ_{ππ'} U_1^{(π,c),(π',c')} C_{ππ'}(x, x') with U_1 = F Fᵀ.

        Rows and columns are (example, output), output fastest.
        """
        left = renormalised_features(self.left, factor)
        right = left if self.right is None else renormalised_features(self.right, factor)
        return left @ right.T

    def path_kernels(self) -> Float[Array, "path path example other"]:
        """C_{ππ'}(x, x') = φ^π(x)·φ^π'(x'), all of them: Π² kernels."""
        right = self.left if self.right is None else self.right
        return jnp.einsum("xpi,yqi->pqxy", self.left, right)


@partial(jax.tree_util.register_dataclass, data_fields=["left", "right"], meta_fields=[])
@dataclass(frozen=True)
class SampledFeatures(FeatureForm):
    """Features that follow from sampled attention: energies are differentiated in them, too."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["packed"],
    meta_fields=["paths", "examples", "others", "symmetric"],
)
@dataclass(frozen=True)
class KernelForm(DifferentiatedByJax):
    """Stored path kernels, so that K is one matrix–vector product per draw of U_1.

    `packed` is [pair, example · other]. With one output the pairs are π ≤ π' and each row holds
    C_{ππ'} + C_{π'π} (half of it on the diagonal); with several outputs all ordered pairs are kept.
    """

    packed: Float[Array, "pair entry"]
    paths: int
    examples: int
    others: int
    symmetric: bool

    @classmethod
    def of(cls, kernels: Float[Array, "path path example other"], outputs: int) -> "KernelForm":
        """The stored form of kernels C_ππ'(x, x')."""
        paths, _, examples, others = kernels.shape
        if symmetric := outputs == 1:
            rows, columns = np.triu_indices(paths)
            halves = np.where(rows == columns, 0.5, 1.0)[:, None, None]
            kernels = (kernels[rows, columns] + kernels[columns, rows]) * halves
        return cls(kernels.reshape(-1, examples * others), paths, examples, others, symmetric)

    @property
    def nbytes(self) -> int:
        """Bytes of the path kernels, for which shapes may stand."""
        return self.packed.size * self.packed.dtype.itemsize

    def kernel(self, factor: Float[Array, "_row _rank"]) -> Float[Array, "_left _right"]:
        """K(U_1) as in `FeatureForm.kernel`."""
        overlap = factor @ factor.T
        if self.symmetric:
            rows, columns = np.triu_indices(self.paths)
            kernel = overlap[rows, columns] @ self.packed
            return kernel.reshape(self.examples, self.others)
        outputs = factor.shape[0] // self.paths
        blocks = overlap.reshape(self.paths, outputs, self.paths, outputs)
        blocks = blocks.transpose(1, 3, 0, 2).reshape(outputs**2, self.paths**2)
        kernel = (blocks @ self.packed).reshape(outputs, outputs, self.examples, self.others)
        return kernel.transpose(2, 0, 3, 1).reshape(self.examples * outputs, self.others * outputs)


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
        """Bytes of all blocks, for which shapes may stand."""
        return sum(block.size * block.dtype.itemsize for block in self.blocks)

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


def _block(features: Float[Array, "example path channel"], start: int, end: int):
    rows, columns = np.triu_indices(features.shape[1])
    by_path = features.transpose(1, 0, 2)

    halves = np.where(rows == columns, 0.5, 1.0).astype(features.dtype)

    def one_pair(pair):
        row, column, half = pair
        first, second = by_path[row], by_path[column]
        both = first[start:end] @ second[:end].T + second[start:end] @ first[:end].T
        return half * both.reshape(-1)

    # One pair at a time: all of them at once would take several times the memory.
    return jax.lax.map(one_pair, (rows, columns, halves))


PathKernels = FeatureForm | KernelForm | SymmetricKernelForm


@jax.jit
def assembled_kernel(
    kernels: PathKernels, factor: Float[Array, "row rank"]
) -> Float[Array, "_left _right"]:
    """K(F Fᵀ), compiled."""
    return kernels.kernel(factor)


def renormalised_features(
    features: Float[Array, "example path channel"], factor: Float[Array, "_row _rank"]
) -> Float[Array, "_example_output _feature"]:
    """G with K = G Gᵀ: G_{(x,c),(r,i)} = Σ_π F_{(π,c),r} φ^π_i(x)."""
    examples, paths, channels = features.shape
    rank = factor.shape[1]
    outputs = factor.shape[0] // paths
    by_output = factor.reshape(paths, outputs, rank)
    renormalised = jnp.einsum("xpi,pcr->xcri", features, by_output)
    return renormalised.reshape(examples * outputs, rank * channels)


def summed_over_paths(
    features: Float[Array, "example path channel"],
    weights: Float[Array, "path output channel"],
) -> Float[Array, "example output"]:
    """Σ_{π,i} φ^π_i(x) w^{(π,c)}_i, the network's output where w are its effective weights.

    One product of two matrices: written as a sum over two axes it takes five times as long.
    """
    flat = features.reshape(features.shape[0], -1)
    return flat @ jnp.moveaxis(weights, 1, 2).reshape(flat.shape[1], -1)


def path_kernels(
    left: Float[Array, "example path channel"],
    right: Float[Array, "other path channel"] | None,
    architecture: Architecture,
) -> PathKernels:
    """Path kernels between two sets of attended inputs (`right=None`: of one set with itself).

    C_{ππ'}(x, x') = σ_0² ξ^π(x)·ξ^π'(x') / (D Π). The kernel form is taken when it is small and
    cheaper per assembly than the feature form, the feature form otherwise.
    Source: arXiv 2405.15926, path–path kernel.
    """
    others = None if right is None else right.shape[0]
    stored = kernel_form_pays(left.shape[0], others, architecture)
    variance = architecture.variances[0]
    form = FeatureForm(
        path_features(left, variance), None if right is None else path_features(right, variance)
    )
    return store_path_kernels(form, architecture.outputs) if stored else form


@partial(jax.jit, static_argnames="outputs")
def store_path_kernels(form: FeatureForm, outputs: int) -> KernelForm | SymmetricKernelForm:
    """The stored form of given features; with one output half of the pairs is enough."""
    if form.right is None and outputs == 1:
        return SymmetricKernelForm.of(form.left)
    return KernelForm.of(form.path_kernels(), outputs)


def with_noise(kernel: Float[Array | np.ndarray, "n n"], temperature):
    """K + 𝒯 1, of a JAX or a NumPy array: the only place where the temperature meets K."""
    numbers = kernel.__array_namespace__()
    return kernel + temperature * numbers.eye(kernel.shape[0], dtype=kernel.dtype)


@partial(jax.tree_util.register_dataclass, data_fields=["cholesky"], meta_fields=[])
@dataclass(frozen=True)
class NoisyKernel:
    """K + 𝒯 1 through its Cholesky factor.

    An indefinite or non-finite kernel gives NaN in everything computed from it.
    """

    cholesky: Float[Array, "n n"]

    @classmethod
    def factorise(
        cls, kernel: Float[Array, "n n"], temperature: float | int | Shaped[Array, ""]
    ) -> "NoisyKernel":
        """Cholesky factor of K + 𝒯 1."""
        return cls(jnp.linalg.cholesky(with_noise(kernel, temperature)))

    @property
    def log_determinant(self) -> Float[Array, ""]:
        """Logarithm of the determinant, ln det(K + 𝒯 1)."""
        return 2.0 * jnp.sum(jnp.log(jnp.diagonal(self.cholesky)))

    def solve(self, right: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """(K + 𝒯 1)⁻¹ times `right`."""
        return cho_solve((self.cholesky, True), right)

    def whiten(self, right: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """L⁻¹ times `right`, where L Lᵀ = K + 𝒯 1."""
        return solve_triangular(self.cholesky, right, lower=True)

    def quadratic_form(self, vector: Float[Array, " n"]) -> Float[Array, ""]:
        """Quadratic form yᵀ (K + 𝒯 1)⁻¹ y of one vector y."""
        whitened = self.whiten(vector)
        return whitened @ whitened
