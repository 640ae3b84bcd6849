"""All weights drawn back, exactly, from draws of the order parameters.

Given the Bartlett matrices B_l of a draw, all weights are drawn from their conditional posterior:
no chain, no approximation. Together they are draws from p(weights | data), with the overlaps U_l
of the draw they come from.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float

from sampler.errors import InputError
from sampler.posterior.data import FixedPaths
from sampler.posterior.order_parameters import OrderParameterSpace, bartlett_matrices
from sampler.posterior.space import Position, Space
from sampler.posterior.spaces import refuse_weight_draws
from sampler.streams import Stream, stream
from theory.architecture import Architecture
from theory.learning_problem import LabelEnergy
from theory.path_kernels import Features, on_host, sum_over_paths
from theory.wishart_chain import chain_factors, link_scales


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
    sites = {name: np.asarray(sites[name], space.dtype) for name in space.shapes}
    chains, draws = sites["chi_1"].shape[:2]
    refuse_weight_draws(count, chains, draws, architecture.weight_count, space.dtype.itemsize)
    chosen = np.arange(1, count + 1) * draws // count - 1
    shapes = architecture.weight_shapes
    weights = {n: np.empty((chains, count, *s), space.dtype) for n, s in shapes.items()}
    features_at, here = features_by_position(space), on_host(space)
    for place in np.ndindex(chains, count):
        number = place[0], int(chosen[place[1]])
        position = {name: values[number] for name, values in sites.items()}
        features = features_at(position)
        temperature = here.temperature_at(position)
        drawn = draw_weights(
            stream(seed, Stream.WEIGHTS, number[0] * draws + number[1]),
            bartlett_matrices(position, here.chain),
            LabelEnergy(Features(features), here.data.labels, temperature),
            features,
            architecture,
        )
        for name, values in drawn.items():
            weights[name][place] = values
    return WeightDraws(weights, chosen)


def features_by_position(
    space: OrderParameterSpace,
) -> Callable[[Position], Float[np.ndarray, "example path channel"]]:
    """Features φ^π(x_μ) as a function of a position: of fixed attention they are the same."""
    if isinstance(space.data, FixedPaths):
        here = on_host(space)
        features = here.features(here.data.attended)
        return lambda position: features
    return lambda position: np.asarray(_features(position, space))


@jax.jit
def _features(position: Position, space: OrderParameterSpace) -> Array:
    return space.features(space.data.train(position))


def draw_weights(
    generator: np.random.Generator,
    matrices: tuple[Float[np.ndarray, "_rows _rank"], ...],
    energy: LabelEnergy,
    features: Float[np.ndarray, "example path channel"],
    architecture: Architecture,
) -> dict[str, np.ndarray]:
    """Draw all weights given the Bartlett matrices B_1 … B_{L+1} and the labels.

    Q_l [r_l, N_l] is uniform among matrices with orthonormal rows, w_l = √N_l F_l Q_l, a = w_{L+1},
        V_l^h = Ṽ_l^h + Q_{l+1}ᵀ (σ_l B_l[h] Q_l − Q_{l+1} Ṽ_l^h),   Ṽ_l^h ~ N(0, σ_l²),
    where B_l[h] are the rows of head h; V_0 by Matheron's rule. `features` are φ^π(x_μ).
    """
    factors = chain_factors(matrices, architecture.heads, link_scales(architecture))
    ranks = [matrix.shape[1] for matrix in matrices]

    def uniform_rows(layer: int) -> Float[np.ndarray, "row width"]:
        shape = ranks[layer - 1], architecture.widths[layer - 1]
        return orthonormal_rows(generator.standard_normal(shape))

    above = uniform_rows(architecture.layers + 1)
    weights = {"a": architecture.widths[-1] ** 0.5 * factors[-1] @ above}
    for layer in range(architecture.layers, 0, -1):
        rows = uniform_rows(layer)
        values = generator.standard_normal(architecture.weight_shapes[f"V_{layer}"])
        wanted = (matrices[layer - 1] @ rows).reshape(values.shape[0], -1, values.shape[2])
        missing = wanted - above @ values
        deviation = architecture.variances[layer] ** 0.5
        weights[f"V_{layer}"] = deviation * (values + above.T @ missing)
        above = rows
    lowest = architecture.widths[0] ** 0.5 * factors[0] @ above
    variance = architecture.variances[0]
    weights["V_0"] = draw_input_weights(generator, lowest, factors[0], energy, features, variance)
    return {name: weights[name] for name in architecture.weight_shapes}


def draw_input_weights(
    generator: np.random.Generator,
    lowest: Float[np.ndarray, "row width"],
    factor: Float[np.ndarray, "row rank"],
    energy: LabelEnergy,
    features: Float[np.ndarray, "example path channel"],
    input_variance: float,
) -> Float[np.ndarray, "width channel"]:
    """Draw V_0 from p(V_0 | V_1 … V_L, a, y) by Matheron's rule.

    With Ṽ_0 and ε drawn from the prior and from N(0, 𝒯), and f̃ the network with the input
    projection Ṽ_0,
        V_0 = Ṽ_0 + σ_0/√N_1 Σ_μ α_μ Σ_π w_1^π φ^π(x_μ)ᵀ,  α = (K + 𝒯 1)⁻¹ (y − f̃ − ε),
    summed over outputs, if there are several.

    lowest    w_1, the path weights of the lowest layer
    factor    any F with F Fᵀ = w_1 w_1ᵀ/N_1
    features  φ^π(x_μ) of the training examples
    """
    examples, paths, channels = features.shape
    width = lowest.shape[1]
    normal = generator.standard_normal((width, channels))
    by_path = (lowest @ normal / width**0.5).reshape(paths, -1, channels)
    noise = np.sqrt(energy.temperature) * generator.standard_normal(energy.labels.shape)
    missing = energy.labels - sum_over_paths(features, by_path) - noise
    alpha = energy.noisy_kernel(factor).solve(missing.reshape(-1)).reshape(missing.shape)
    # Σ_x φ [path, channel, output] as one product, then output before channel.
    pulled_back = (features.reshape(examples, -1).T @ alpha).reshape(paths, channels, -1)
    pulled_back = pulled_back.swapaxes(1, 2).reshape(lowest.shape[0], channels)
    return input_variance**0.5 * (normal + lowest.T @ pulled_back / width**0.5)


def orthonormal_rows(matrix: Float[np.ndarray, "row width"]) -> Float[np.ndarray, "row width"]:
    """Rows Q with Q Qᵀ = 1 and matrix = triangle · Q, lower with a positive diagonal.

    Rows of a Gaussian matrix give a uniform (Haar) Q: each points in a uniform direction orthogonal
    to the rows before it. Needs linearly independent rows, so row ≤ width.
    """
    basis, triangle = np.linalg.qr(matrix.T)
    return (basis * np.sign(np.diagonal(triangle))).T
