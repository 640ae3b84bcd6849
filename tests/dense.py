"""The kernel of a network from its definition, every index written out."""

import math

import numpy as np


def dense_kernel(left, right, overlap, architecture):
    """K = σ_0²/(D Π) Σ_ππ' U_1^ππ' ξ^π(x)·ξ^π'(x'), rows and columns (example, output).

    left, right: ξ [example, path, channel]. Of the kind of array that U_1 is, NumPy's or JAX's.
    """
    paths, outputs = architecture.path_count, architecture.outputs
    einsum = overlap.__array_namespace__().einsum
    blocks = overlap.reshape(paths, outputs, paths, outputs)
    kernel = einsum("xpi,pcqd,yqi->xcyd", np.asarray(left), blocks, np.asarray(right))
    scale = architecture.variances[0] / (architecture.channels * paths)
    return scale * kernel.reshape(len(left) * outputs, len(right) * outputs)


def dense_kernel_of_infinite_width(left, right, architecture):
    """The same at U_1 = σ_1² … σ_a² 1, of one output: outputs are independent of each other."""
    scale = math.prod(architecture.variances) / (architecture.channels * architecture.path_count)
    return scale * np.einsum("xpi,ypi->xy", np.asarray(left), np.asarray(right))
