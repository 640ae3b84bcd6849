"""The posterior of all weights, and a draw of V_0 given the weights above it."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from sampler.network import Weights, network_outputs
from sampler.posterior.density import (
    Weighted,
    sample_sites,
    temperature_prior,
    temperature_ratio,
    weights_at,
)
from sampler.posterior.labels import (
    Labels,
    sample_labels_of_examples,
)
from theory.learning_problem import LabelEnergy, ResidualLabels
from theory.path_kernels import sum_over_paths


def standard_normals(key: Array, shapes: Mapping[str, tuple[int, ...]], dtype) -> dict[str, Array]:
    """Independent N(0, 1) arrays of the given shapes, by name.

    One call of the generator for all: every call is compiled anew, at a large part of a second.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    pieces = jnp.split(jax.random.normal(key, (int(ends[-1]),), dtype), ends[:-1])
    return {
        name: piece.reshape(shape)
        for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }


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
            row = row - (basis @ row) @ basis  # rows not yet found are zero
            row = row / jnp.linalg.norm(row)
        return basis.at[index].set(row)

    return jax.lax.fori_loop(0, matrix.shape[0], add_row, jnp.zeros_like(matrix))


def weight_model(
    attended: Any,
    labels: Labels | None,
    temperature: Float[Array, ""] | float,
    variances: Float[Array, " layer"],
    residual: ResidualLabels | None = None,
    *,
    architecture: Weighted,
    temperature_spread: float = 0.0,
    predict: Callable[[Weights, Any], Array] | None = None,
) -> dict[str, Array]:
    """Gaussian priors per layer and the tempered likelihood, example by example: all sites.

    V_0 ~ N(0, σ_0²), V_l ~ N(0, σ_l²), a ~ N(0, σ_a²), y ~ N(f(x), 𝒯): the density
    exp(−Σ |f(x_μ) − y_μ|² / (2𝒯)) Π N(weights; 0, σ²). Source: arXiv 2405.15926, posterior.
    Where 𝒯 has a prior it is a site, too. `residual` are the labels that none of the rows stands
    for, where rows stand for the examples. `predict` is the forward pass of a network outside the
    theory, to whom `attended` is whatever it follows.
    """
    position = sample_sites(weight_priors(architecture, variances, temperature_spread))
    weights = weights_at(position, architecture)
    if predict is None:
        outputs = network_outputs(weights, attended, architecture)
    else:
        outputs = predict(weights, attended)
    temperature = temperature * temperature_ratio(position)
    sample_labels_of_examples(outputs, labels, temperature)
    if residual is not None:
        numpyro.factor("residual", -0.5 * residual(temperature))
    return position


def weight_priors(
    network: Weighted,
    variances: Float[Array, " layer"],
    temperature_spread: float = 0.0,
    *,
    without: str = "",
) -> dict[str, dist.Distribution]:
    """Priors of all weights, and of the temperature where it has one.

    All but one array, where this is named. Of the network only the sizes are read.
    """
    dtype = variances.dtype
    sites = temperature_prior(temperature_spread, dtype)
    layers, one = network.weight_layers, jnp.ones((), dtype)
    for name, shape in network.weight_shapes.items():
        if name != without:
            variance = variances[layers[name]] if name in layers else one
            prior = dist.Normal(jnp.zeros(shape, dtype), jnp.sqrt(variance))
            sites[name] = prior.to_event(len(shape))
    return sites


def draw_input_weights(
    key: Array,
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
