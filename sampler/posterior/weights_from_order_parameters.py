"""All weights drawn back, exactly, from draws of the order parameters.

Given the Bartlett matrices B_l of a draw, all weights are drawn from their conditional posterior:
no chain, no approximation. Together they are draws from p(weights | data), with the overlaps U_l
of the draw they come from.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sampler.errors import InputError
from sampler.posterior.order_parameters import OrderParameterSpace, bartlett_matrices
from sampler.posterior.space import Space
from sampler.posterior.spaces import refuse_weight_draws
from sampler.runtime import side_by_side
from sampler.streams import Stream, jax_key
from theory.architecture import Architecture
from theory.learning_problem import LabelEnergy
from theory.path_kernels import sum_over_paths
from theory.wishart_chain import chain_factors, link_scales

# Draws are made side by side while their arrays fit into this many bytes.
BATCH_BYTES = 64 * 2**20


@dataclass(frozen=True)
class WeightDraws:
    """Weights of some of the draws of every chain.

    weights  name → [chain, draw, …]: V_0, V_1 … V_L, a
    draws    which draws of each chain they belong to [draw]
    """

    weights: Mapping[str, np.ndarray]
    draws: np.ndarray


def draw_weights_back(
    space: Space,
    architecture: Architecture,
    sites: Mapping[str, np.ndarray],
    count: int,
    seed: int,
) -> WeightDraws:
    """Draw all weights for `count` evenly spaced draws of every chain.

    sites  of every draw, name → [chain, draw, …]
    seed   fixes the weights of each draw, whatever other draws are asked for

    Raises InputError for another space, when there are fewer draws than asked for, or the arrays
    would be too large.
    """
    if not isinstance(space, OrderParameterSpace):
        remedy = "weights are drawn back from order parameters alone, whose weights are Gaussian"
        raise InputError("space", space.name, remedy)
    dtype = space.dtype
    sites = {name: np.asarray(sites[name]) for name in space.shapes}
    chains, draws = sites["chi_1"].shape[:2]
    refuse_weight_draws(count, chains, draws, architecture.weight_count, dtype.itemsize)
    chosen = np.arange(1, count + 1) * draws // count - 1
    positions = {
        name: jnp.asarray(values[:, chosen].reshape(-1, *values.shape[2:]).astype(dtype))
        for name, values in sites.items()
    }
    numbers = jnp.asarray((np.arange(chains)[:, None] * draws + chosen).reshape(-1))
    key = jax_key(seed, Stream.WEIGHTS)
    weights = _draw_all(key, numbers, positions, space, architecture)
    return WeightDraws(
        {
            name: np.asarray(values).reshape(chains, count, *values.shape[1:])
            for name, values in weights.items()
        },
        chosen,
    )


@partial(jax.jit, static_argnames="architecture")
def _draw_all(key, numbers, positions, space: OrderParameterSpace, architecture: Architecture):
    """`draw_weights` of every row of `positions`: the one place where draws are batched."""
    keys = jax.vmap(partial(jax.random.fold_in, key))(numbers)

    def of_draw(row):
        key, position = row
        matrices = bartlett_matrices(position, space.chain)
        features = space.features(space.data.train(position))
        return draw_weights(key, matrices, space.energy(position), features, architecture)

    # Weights and their products, two kernels, and renormalised features of one draw.
    examples = space.data.labels.size
    renormalised = examples * len(space.chain.degrees[0]) * architecture.channels
    size = 4 * architecture.weight_count + 4 * examples**2 + renormalised
    batch = side_by_side(max(1, min(len(numbers), BATCH_BYTES // (space.dtype.itemsize * size))))
    return jax.lax.map(of_draw, (keys, positions), batch_size=batch)


def draw_weights(
    key: PRNGKeyArray,
    matrices: tuple[Float[Array, "_rows _rank"], ...],
    energy: LabelEnergy,
    features: Float[Array, "example path channel"],
    architecture: Architecture,
) -> dict[str, Array]:
    """Draw all weights given the Bartlett matrices B_1 … B_{L+1} and the labels.

    Q_l [r_l, N_l] is uniform among matrices with orthonormal rows, w_l = √N_l F_l Q_l, a = w_{L+1},
        V_l^h = V + Q_{l+1}ᵀ (σ_l B_l[h] Q_l − Q_{l+1} V),   V ~ N(0, σ_l²),
    where B_l[h] are the rows of head h; V_0 by Matheron's rule. `features` are φ^π(x_μ).
    """
    factors = chain_factors(matrices, architecture.heads, link_scales(architecture))
    shapes = {k: shape for k, shape in architecture.weight_shapes.items() if k not in ("V_0", "a")}
    for layer, matrix in enumerate(matrices, start=1):
        shapes[f"Q_{layer}"] = (matrix.shape[1], architecture.widths[layer - 1])
    upper_key, input_key = jax.random.split(key)
    normal = standard_normals(upper_key, shapes, features.dtype)
    above = orthonormal_rows(normal[f"Q_{architecture.layers + 1}"])
    weights = {"a": architecture.widths[-1] ** 0.5 * factors[-1] @ above}
    for layer in range(architecture.layers, 0, -1):
        rows, values = orthonormal_rows(normal[f"Q_{layer}"]), normal[f"V_{layer}"]
        wanted = (matrices[layer - 1] @ rows).reshape(values.shape[0], -1, values.shape[2])
        missing = wanted - jnp.einsum("ri,hij->hrj", above, values)
        deviation = architecture.variances[layer] ** 0.5
        weights[f"V_{layer}"] = deviation * (values + jnp.einsum("ri,hrj->hij", above, missing))
        above = rows
    lowest = architecture.widths[0] ** 0.5 * factors[0] @ above
    variance = architecture.variances[0]
    weights["V_0"] = draw_input_weights(input_key, lowest, factors[0], energy, features, variance)
    return {name: weights[name] for name in architecture.weight_shapes}


def draw_input_weights(
    key: PRNGKeyArray,
    lowest: Float[Array, "row width"],
    factor: Float[Array, "row rank"],
    energy: LabelEnergy,
    features: Float[Array, "example path channel"],
    input_variance: Float[Array, ""] | float,
) -> Float[Array, "width channel"]:
    """Draw V_0 from p(V_0 | V_1 … V_L, a, y) by Matheron's rule.

    With V and ε drawn from the prior and from N(0, 𝒯), and f_V the network that has V as its input
    projection,
        V_0 = V + σ_0/√N_1 Σ_{μc} α_{μc} Σ_π w_1^{(π,c)} φ^π(x_μ)ᵀ,  α = (K + 𝒯 1)⁻¹ (y − f_V − ε).

    lowest    w_1, the path weights of the lowest layer
    factor    any F with F Fᵀ = w_1 w_1ᵀ/N_1
    features  φ^π(x_μ) of the training examples
    """
    _, paths, channels = features.shape
    width = lowest.shape[1]
    shapes = {"V_0": (width, channels), "noise": energy.labels.shape}
    normal = standard_normals(key, shapes, lowest.dtype)
    by_path = (lowest @ normal["V_0"] / width**0.5).reshape(paths, -1, channels)
    noisy_prior = sum_over_paths(features, by_path)
    noisy_prior += jnp.sqrt(energy.temperature) * normal["noise"]
    alpha = energy.noisy_kernel(factor).solve((energy.labels - noisy_prior).reshape(-1))
    pulled_back = jnp.einsum("xpi,xc->pci", features, alpha.reshape(energy.labels.shape))
    correction = lowest.T @ pulled_back.reshape(lowest.shape[0], channels) / width**0.5
    return input_variance**0.5 * (normal["V_0"] + correction)


def standard_normals(
    key: PRNGKeyArray, shapes: Mapping[str, tuple[int, ...]], dtype
) -> dict[str, Array]:
    """Independent N(0, 1) arrays of the given shapes, by name.

    One call of the generator for all: every call is compiled anew, at a large part of a second.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    pieces = jnp.split(jax.random.normal(key, (int(ends[-1]),), dtype), ends[:-1])
    pairs = zip(shapes.items(), pieces, strict=True)
    return {name: piece.reshape(shape) for (name, shape), piece in pairs}


def orthonormal_rows(matrix: Float[Array, "row width"]) -> Float[Array, "row width"]:
    """Q with Q Qᵀ = 1 and matrix = L Q, L lower triangular with a positive diagonal.

    Gram–Schmidt row by row, each row projected twice, which makes Q orthogonal to rounding whatever
    the condition of the matrix. Rows of a Gaussian matrix give a uniform (Haar) Q: each points in a
    uniform direction of what the rows before it leave. Needs linearly independent rows, so
    row ≤ width. Plain products rather than a library's QR: several large batches of QR at a time
    can block XLA on few cores.
    """

    def add_row(index, basis):
        row = matrix[index]
        for _ in range(2):
            row = row - (basis @ row) @ basis  # rows that are still to come are zero
            row = row / jnp.linalg.norm(row)
        return basis.at[index].set(row)

    return jax.lax.fori_loop(0, matrix.shape[0], add_row, jnp.zeros_like(matrix))
