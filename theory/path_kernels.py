"""Path kernels C_{ππ'} and the renormalised kernel K(U_1), stored or assembled from features."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.architecture import Architecture
from theory.attended_inputs import path_features
from theory.symmetric_kernels import SymmetricKernelForm, stored_numbers

# Above this many bytes path kernels are never stored: the feature form needs far less. Those of the
# training examples with themselves are read in every gradient, and may take more.
KERNEL_FORM_BYTES = 64 * 2**20
SYMMETRIC_FORM_BYTES = 2**29

PullBack = Callable[[Float[Array, "_left _right"]], Float[Array, "_row _rank"]]


@partial(jax.tree_util.register_dataclass, data_fields=["left", "right"], meta_fields=[])
@dataclass(frozen=True)
class FeatureForm:
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

    def kernel_and_pull_back(
        self, factor: Float[Array, "row rank"]
    ) -> tuple[Float[Array, "_left _right"], PullBack]:
        """K(F Fᵀ), and the function from ∂/∂K to ∂/∂F there."""
        return _differentiated(self.kernel, factor)

    def path_kernels(self) -> Float[Array, "path path example other"]:
        """C_{ππ'}(x, x') = φ^π(x)·φ^π'(x'), all of them: Π² kernels."""
        right = self.left if self.right is None else self.right
        return jnp.einsum("xpi,yqi->pqxy", self.left, right)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["packed"],
    meta_fields=["paths", "examples", "others", "symmetric"],
)
@dataclass(frozen=True)
class KernelForm:
    """Stored path kernels, so that K is one matrix–vector product per draw of U_1.

    `packed` is [pair, example · other]. With one output the pairs are π ≤ π' and each row holds
    C_{ππ'} + C_{π'π} (half of it on the diagonal); with several outputs all ordered pairs are kept.
    """

    packed: Float[Array, "pair entry"]
    paths: int
    examples: int
    others: int
    symmetric: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the path kernels."""
        return self.packed.nbytes

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

    def kernel_and_pull_back(
        self, factor: Float[Array, "row rank"]
    ) -> tuple[Float[Array, "_left _right"], PullBack]:
        """As in `FeatureForm.kernel_and_pull_back`."""
        return _differentiated(self.kernel, factor)


def _differentiated(kernel_of: Callable, factor: Array) -> tuple[Array, PullBack]:
    kernel, pull_back = jax.vjp(kernel_of, factor)
    return kernel, lambda slope: pull_back(slope)[0]


PathKernels = FeatureForm | KernelForm | SymmetricKernelForm


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
    features_left = path_features(left, architecture.variances[0])
    features_right = None if right is None else path_features(right, architecture.variances[0])
    form = FeatureForm(features_left, features_right)
    others = None if right is None else right.shape[0]
    if not kernel_form_pays(left.shape[0], others, architecture):
        return form
    return store_path_kernels(form, architecture)


def store_path_kernels(
    form: FeatureForm, architecture: Architecture
) -> KernelForm | SymmetricKernelForm:
    """The stored form of given features; with one output half of the pairs is enough."""
    one_output = architecture.outputs == 1
    if form.right is None and one_output:
        return SymmetricKernelForm.of(form.left)
    examples, paths, _ = form.left.shape
    return KernelForm(
        packed=_packed(form, one_output),
        paths=paths,
        examples=examples,
        others=examples if form.right is None else form.right.shape[0],
        symmetric=one_output,
    )


@partial(jax.jit, static_argnames="symmetric")
def _packed(form: FeatureForm, symmetric: bool) -> Float[Array, "pair entry"]:
    kernels = form.path_kernels()
    paths, _, examples, others = kernels.shape
    if symmetric:
        rows, columns = np.triu_indices(paths)
        halves = np.where(rows == columns, 0.5, 1.0)[:, None, None]
        kernels = (kernels[rows, columns] + kernels[columns, rows]) * halves
    return kernels.reshape(-1, examples * others)


def kernel_form_pays(examples: int, others: int | None, architecture: Architecture) -> bool:
    """Whether storing the path kernels is small enough and cheaper than the feature form.

    Per assembly the kernel form reads pairs · P · P' numbers once (half of them for a set with
    itself, `others` = None, and one output); the feature form multiplies
    p_1 D P P' + (P + P') D p_1² numbers. Reading a number costs about as much as eight products.
    """
    paths, rows = architecture.path_count, architecture.order_parameter_sizes[0]
    one_output = architecture.outputs == 1
    limit = KERNEL_FORM_BYTES
    if others is None and one_output:
        stored, limit = stored_numbers(examples, paths), SYMMETRIC_FORM_BYTES
    else:
        pairs = paths * (paths + 1) // 2 if one_output else paths**2
        stored = pairs * examples * (others or examples)
    others = others or examples
    assembled = stored * architecture.outputs**2
    features = (
        rows
        * architecture.channels
        * (examples * others * architecture.outputs**2 + (examples + others) * rows)
    )
    return 8 * stored <= limit and 8 * assembled <= features
